//! The checked program: every name resolved, every expression typed, every conversion an explicit `Cast`.
//! `codegen` reads it; it cannot contain errors of the user.
//!
//! One [`Probe`] becomes one BPF program, or two where entry and return are separate programs. A clause whose attach points
//! differ in what the body uses (types or locations of arguments) yields one `Probe` per variant, not one per function. The
//! code generator then merges those that differ only in constants.

mod config;
pub(crate) mod const_eval;
mod effects;
pub(crate) mod make;
mod map;
pub mod print;
mod process_end;
mod tree;
mod types;
pub mod visit;

use crate::catalog::{File, FileId, Place};
use crate::source::span::Span;
pub use crate::syntax::ast::BinaryOp;
pub use config::Config;
pub use effects::Effects;
pub use map::{Map, MapId, MapValue};
pub use tree::{
    Arm, Around, Builtin, Expr, ExprKind, HASH_FACTOR, HASH_SHIFT, HASH_START, NameId, Stmt, StmtKind, VarId,
    Yields, text_hash,
};
pub use types::{Bits, Enum, EnumId, Field, Origin, Struct, StructId, Type};
pub use wire::hook::Hook;
pub use wire::manifest::{Directive, Export, HiddenValue, Message, Metric, MetricKind, Names, Piece};
pub use wire::map::{Agg, Keeps};
pub use wire::trigger::{Accesses, Environment, PerfCounter, TestKind, Trigger};
pub use wire::types::{Lookup, MissingProbes, NameKind, StackMode};

/// A checked script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Enums that are types of values in this program.
    pub enums: Vec<Enum>,
    /// Structs that are read through pointers or passed by value.
    pub structs: Vec<Struct>,
    /// Maps; those of a running program come first and unchanged.
    pub maps: Vec<Map>,
    /// Files that contain the sites.
    pub files: Vec<File>,
    /// Interned names; those of a running program come first and unchanged.
    pub names: Names,
    /// The probes, in script order.
    pub probes: Vec<Probe>,
    /// Settings.
    pub config: Config,
    /// True if a clause uses enclosing calls. All calls seen by return probes are then pushed onto their thread's
    /// stack of calls, see [`Around`].
    pub tracks_calls: bool,
    /// Data of launching calls that records of GPUs need: bits of [`wire::manifest`].
    pub gpu_joins: u32,
}

/// Parameters and result of a probed function, as used by the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// All parameters in order; their locations follow from the types of the preceding ones.
    pub params: Vec<Param>,
    /// Offset of each parameter in the context of a tracepoint; empty at functions.
    pub offsets: Vec<u32>,
    /// The result.
    pub ret: Type,
    /// The enum of the result, if it is not 4 bytes wide; the type then is an integer with its bits.
    pub named: Option<EnumId>,
    /// True if the caller passes the address of the result before all parameters.
    pub hidden: bool,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// The name: `bytesize`
    pub name: String,
    /// The type: `uint64`
    pub ty: Type,
    /// A `float` or `double`: passed in a vector register, which only programs in a traced process can read, and using no integer
    /// register.
    pub float: bool,
    /// The enum of the parameter, if it is not 4 bytes wide; the type then is an integer with its bits.
    pub named: Option<EnumId>,
}

/// A body and its attach points.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Index of the clause in the script, from 0.
    pub clause: u32,
    /// Source range of the clause's probe list.
    pub span: Span,
    /// The attach points.
    pub attach: Attach,
    /// The signature, known for functions in the CUDA tables and for those described by debug information. If
    /// sites differ only in parameters that the body does not use, the signature of the first.
    pub signature: Option<Signature>,
    /// The signatures by [`Site::case`], if `merge` has combined several probes. Empty: all sites have
    /// [`Probe::signature`].
    pub cases: Vec<Option<Signature>>,
    /// The function gets a batch of records, and the body runs for each of them: `return` ends the work on one record, and
    /// [`Builtin::RecordAddress`] is its address. Otherwise `None`.
    pub records: Option<Records>,
    /// Scratch variables; each has one type and is zero until assigned.
    pub vars: Vec<Var>,
    /// Condition for running the body, of type `Bool` or an integer.
    pub predicate: Option<Expr>,
    /// The body.
    pub body: Vec<Stmt>,
}

/// The batch of records that a function gets: its first argument is their address, the second their number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// Number of the kind of records.
    pub kind: u8,
    /// Size of a record in bytes.
    pub bytes: u32,
}

/// A scratch variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// Name without the sigil.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// The attach points of a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Attach {
    /// An event other than a call. At a tracepoint, `Param` and `RecordBytes` are fields of its record, or its arguments.
    Event(Trigger),
    /// `uprobe:...`, `kprobe:...`, `fentry:...`
    Entry(Hook, Vec<Site>),
    /// `uretprobe:...`, `kretprobe:...`, `fexit:...`. `Param`, `Arg` and `Duration` refer to the values at entry of the call.
    Return(Hook, Vec<Site>),
}

impl Attach {
    /// The functions.
    pub fn sites(&self) -> &[Site] {
        match self {
            Attach::Event(_) => &[],
            Attach::Entry(_, sites) | Attach::Return(_, sites) => sites,
        }
    }

    /// The same side of other functions.
    pub fn with_sites(&self, sites: Vec<Site>) -> Attach {
        match self {
            Attach::Event(trigger) => Attach::Event(trigger.clone()),
            Attach::Entry(hook, _) => Attach::Entry(*hook, sites),
            Attach::Return(hook, _) => Attach::Return(*hook, sites),
        }
    }

    /// The environment of the programs; `None` at functions.
    pub fn environment(&self) -> Option<Environment> {
        match self {
            Attach::Event(trigger) => Some(trigger.environment()),
            Attach::Entry(..) | Attach::Return(..) => None,
        }
    }

    /// How its functions are probed; `None` at other events.
    pub fn hook(&self) -> Option<Hook> {
        match self {
            Attach::Event(_) => None,
            Attach::Entry(hook, _) | Attach::Return(hook, _) => Some(*hook),
        }
    }
}

/// A function to probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The file. `None`: expected in a library that no process has mapped yet; checked but not attached.
    pub file: Option<FileId>,
    /// The module of a function of the kernel; empty for files.
    pub module: &'static str,
    /// The location in the file.
    pub place: Place,
    /// File offset of a USDT marker's semaphore, which tells its program about attached probes; 0: no semaphore.
    pub semaphore: u64,
    /// The name of the symbol.
    pub func: NameId,
    /// The name of the API family.
    pub api: NameId,
    /// The name of the attach point.
    pub probe: NameId,
    /// Number that selects the arm of an [`ExprKind::ByCase`] for this site.
    pub case: u8,
}
