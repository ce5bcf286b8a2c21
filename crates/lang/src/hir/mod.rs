//! The checked program: every name resolved, every expression typed, every conversion an explicit `Cast`.
//! `codegen` reads it; it cannot contain a mistake of the user.
//!
//! One [`Probe`] becomes one BPF program, or two where entry and return are separate programs. A clause whose attach points
//! differ in what the body uses (types or locations of arguments) yields one `Probe` per variant, not one per function. The
//! code generator then merges those that differ only in constants.

mod config;
mod effects;
mod expr;
pub(crate) mod make;
mod map;
pub mod print;
mod stmt;
mod types;
pub mod visit;

use crate::catalog::{File, FileId, Place};
use crate::source::span::Span;
pub use crate::syntax::ast::BinaryOp;
pub use config::{Config, MissingProbes};
pub use effects::Effects;
pub use expr::{
    Around, Builtin, Expr, ExprKind, Fact, HASH_FACTOR, HASH_SHIFT, HASH_START, NameId, VarId, Yields,
    text_hash,
};
pub use map::{Map, MapId, MapValue};
pub use stmt::{Arm, Stmt, StmtKind};
pub use types::{Bits, Enum, EnumId, Field, Origin, Struct, StructId, Type};
pub use wire::manifest::{Directive, Export, Hidden, Message, Metric, MetricKind, Names, Piece, Trial};
pub use wire::map::{Agg, Keeps};
pub use wire::types::{Lookup, NameKind, StackMode};

/// A checked script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Enums that values of this program have.
    pub enums: Vec<Enum>,
    /// Structs that are read through pointers or passed by value.
    pub structs: Vec<Struct>,
    /// Maps, those of a running program first and unchanged.
    pub maps: Vec<Map>,
    /// Files that sites lie in.
    pub files: Vec<File>,
    /// Interned names, those of a running program first and unchanged.
    pub names: Names,
    /// What to run, in script order.
    pub probes: Vec<Probe>,
    /// Settings.
    pub config: Config,
    /// A clause names the calls around the one in hand, so all that return probes see are on their thread's stack of calls, see
    /// [`Around`].
    pub tracks_calls: bool,
}

impl Program {
    /// Whether the calls of a probe are on their thread's stack of calls: those that are spans; where a clause names the calls
    /// around its own, also all that are probed at return, and its own.
    pub fn is_tracked(&self, probe: &Probe) -> bool {
        let (mut names, mut sends) = (false, false);
        let mut see = |e: &Expr| match e.kind {
            ExprKind::Around(Around::Depth | Around::Func { .. }) => names = true,
            ExprKind::Started => sends = true,
            _ => {}
        };
        crate::hir::visit::visit_probe(probe, &mut see);
        match probe.attach {
            Attach::Return(_) => sends || self.tracks_calls,
            Attach::Entry(_) => sends || self.tracks_calls && names,
            _ => false,
        }
    }
}

/// Parameters and result of a probed function as the body sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// All parameters in order: places follow from the types of those before.
    pub params: Vec<Param>,
    /// Result.
    pub ret: Type,
    /// The result is of an enum that is not 4 bytes wide, whose bits the type has.
    pub named: Option<EnumId>,
    /// The caller says where the result goes, before all parameters.
    pub hidden: bool,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// `bytesize`
    pub name: String,
    /// `uint64`
    pub ty: Type,
    /// A `float` or `double`: travels in a vector register, cannot be read, and takes no integer register.
    pub float: bool,
    /// An enum that is not 4 bytes wide, whose bits the type has.
    pub named: Option<EnumId>,
}

/// A body and where it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Index of the clause in the script, from 0.
    pub clause: u32,
    /// The clause's probe list.
    pub span: Span,
    /// Where it runs.
    pub attach: Attach,
    /// Known for functions in the CUDA tables and for those that debug information describes. Where sites differ only in parameters that the body does not use, that of the first.
    pub signature: Option<Signature>,
    /// By [`Site::case`]: the signatures, where `merge` has made one probe of several. Empty: all sites have [`Probe::signature`].
    pub cases: Vec<Option<Signature>>,
    /// Scratch variables; each has one type; zero until set.
    pub vars: Vec<Var>,
    /// Condition for running the body; of type `Bool` or an integer.
    pub predicate: Option<Expr>,
    /// The body.
    pub body: Vec<Stmt>,
}

/// A scratch variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// Without the sigil.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// A counter of the kernel or of the processor, as perf_event_open(2) numbers it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `PERF_TYPE_HARDWARE` or `PERF_TYPE_SOFTWARE`.
    pub kind: u32,
    /// Its number among those.
    pub number: u64,
}

impl Counter {
    /// Time on a CPU: what `profile` samples by.
    pub const CPU_CLOCK: Counter = Counter { kind: 1, number: 0 };

    /// `software`, `hardware`; the clock of `profile` has no other name.
    pub fn provider(self) -> &'static str {
        if self.kind == 0 { "hardware" } else { "software" }
    }
}

/// Where a probe runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Attach {
    /// `BEGIN`
    Begin,
    /// `END`
    End,
    /// `interval:s:1`
    Interval {
        /// Nanoseconds between two runs.
        period_ns: u64,
    },
    /// `profile:hz:99`, `software:page-faults:100`, on each CPU.
    Profile {
        /// What the kernel counts.
        counter: Counter,
        /// How much of it lies between two samples; of clocks in nanoseconds.
        period: u64,
    },
    /// `self:signal:SIGUSR1`, when the tracer gets a signal.
    Signal {
        /// As Linux numbers it.
        number: i32,
    },
    /// `test:NAME`, `bench:NAME`, when the user asks for it.
    Trial {
        /// Which.
        kind: Trial,
        /// `NAME`
        name: String,
    },
    /// `tracepoint:sched:sched_switch`; `Param` and `RecordBytes` are fields of its record.
    Tracepoint {
        /// `sched`
        category: String,
        /// `sched_switch`
        event: String,
        /// By parameter of the signature: where the field lies in the record.
        offsets: Vec<u32>,
    },
    /// `rawtracepoint:sched_switch`; `Param` is what the tracepoint passes on.
    RawTracepoint {
        /// `sched_switch`
        event: String,
        /// By parameter of the signature: where it lies.
        offsets: Vec<u32>,
    },
    /// `uprobe:...`
    Entry(Vec<Site>),
    /// `uretprobe:...`. `Param`, `Arg` and `Duration` mean the values that the call had at entry.
    Return(Vec<Site>),
}

/// One function to probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// In which file. `None`: expected in a library that no process has mapped yet; checked, not attached.
    pub file: Option<FileId>,
    /// Where in the file.
    pub place: Place,
    /// File offset of the counter by which a marker's program knows that it is probed; 0: there is none.
    pub semaphore: u64,
    /// The symbol.
    pub func: NameId,
    /// Its family's name.
    pub api: NameId,
    /// The attach point's name.
    pub probe: NameId,
    /// Which arm of an [`ExprKind::ByCase`] is this site's.
    pub case: u8,
}
