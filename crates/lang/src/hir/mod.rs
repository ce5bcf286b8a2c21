//! The checked program: every name resolved, every expression typed, every conversion an explicit `Cast`.
//! `codegen` reads it; it cannot contain a mistake of the user.
//!
//! One [`Probe`] becomes one BPF program, or two where entry and return are separate programs. A clause whose attach points
//! differ in what the body uses (types or locations of arguments) yields one `Probe` per variant, not one per function. The
//! code generator then merges those that differ only in constants.

pub(crate) mod make;
pub mod print;
pub mod visit;

use crate::catalog::{File, FileId, Place};
use crate::source::span::Span;
pub use crate::syntax::ast::BinaryOp;
use std::sync::Arc;
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

/// Index into [`Program::enums`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnumId(pub u32);
/// Index into [`Program::structs`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub u32);
/// Index into [`Program::maps`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapId(pub u32);
/// Index into [`Probe::vars`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct VarId(pub u32);
/// Index into one of the tables of [`Names`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value.
    Void,
    /// 1 byte, 0 or 1.
    Bool,
    /// `uint32`: `{ bytes: 4, signed: false }`
    Int {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement.
        signed: bool,
    },
    /// `float`, `double`, `long double`: 4, 8 or 16 bytes in memory. As a value it is a [`Lookup`], which prints as the number.
    Float(u8),
    /// 4 bytes that print as a name.
    Enum(EnumId),
    /// User-space pointer, 8 bytes; to `Void` when nothing is known of what it points to (handles).
    Pointer(Arc<Type>),
    /// NUL-terminated bytes in a buffer of so many bytes, the NUL included; zero-filled behind it when stored.
    Str(u32),
    /// A C struct: its bytes, in memory or as a value.
    Struct(StructId),
    /// C array: its bytes, in memory or as a value.
    Array(Arc<Type>, u32),
    /// `(1, "a")`; also a key of several values, and `$kv` of a map loop: `(key, value)`.
    Tuple(Arc<[Type]>),
    /// `(a = 1, b = "x")`: names, and a tuple of the values.
    Record(Arc<[String]>, Arc<[Type]>),
    /// `func`, `api`, `probe`: 4 bytes, an index into [`Names`].
    Name(NameKind),
    /// Code address of a process: `usym(x)`, 16 bytes (address, tgid).
    Usym,
    /// Stack id, 8 bytes (id, tgid).
    Stack {
        /// User or kernel.
        user: bool,
        /// Frames kept at most.
        limit: u32,
        /// How it prints.
        mode: StackMode,
    },
    /// `strftime(format, ns)`: 8 bytes, boot-clock ns; prints by the format.
    Timestamp(String),
    /// `strerror(n)`: 8 bytes, int64; prints as what the reader finds for it.
    Lookup(Lookup),
    /// `buf(p, n)`: a uint32 length and so many bytes at most, zero-filled behind the length.
    Buf(u32),
    /// `ntop(address)`: the family and four words in network order, all uint32.
    Inet,
    /// `c ? func : "none"`: a uint32 that says which of the parts behind it is meant; the others are zero.
    Either(Arc<[Type]>),
}

impl Type {
    /// `int64`
    pub const I64: Type = Type::Int { bytes: 8, signed: true };
    /// `uint64`
    pub const U64: Type = Type::Int { bytes: 8, signed: false };
    /// `uint32`
    pub const U32: Type = Type::Int { bytes: 4, signed: false };
    /// `int32`
    pub const I32: Type = Type::Int { bytes: 4, signed: true };
}

/// The source that declares a struct or an enum.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The script.
    Script,
    /// The CUDA tables.
    Cuda,
    /// Debug information of a file.
    Debug,
}

/// An enum.
#[derive(Clone, Debug, PartialEq)]
pub struct Enum {
    /// `CUresult`
    pub name: String,
    /// Some value is negative.
    pub signed: bool,
    /// `(CUDA_SUCCESS, 0)`, sorted by value.
    pub variants: Vec<(String, i64)>,
    /// The source that declares it.
    pub origin: Origin,
}

/// A struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    /// `CUlaunchConfig`
    pub name: String,
    /// Bytes.
    pub size: u32,
    /// Bytes.
    pub align: u32,
    /// In order.
    pub fields: Vec<Field>,
    /// The source that declares it.
    pub origin: Origin,
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bytes from the start.
    pub offset: u32,
    /// Its type.
    pub ty: Type,
    /// `int flag : 3;`: only these bits of the integer at the offset.
    pub bits: Option<Bits>,
    /// A floating-point number, whose bits the type has.
    pub float: bool,
    /// An enum that is not 4 bytes wide, whose bits the type has.
    pub named: Option<EnumId>,
}

/// Place of a bit-field in its integer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Bits below it.
    pub first: u8,
    /// Bits that it has.
    pub count: u8,
}

/// A map.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Without the sigil; empty for `@`.
    pub name: String,
    /// Types of the key's parts; empty for a scalar map.
    pub key: Vec<Type>,
    /// What a cell holds.
    pub value: MapValue,
    /// Keys at most.
    pub max_entries: u32,
    /// `lruhash`: where there is no room, a new key takes the place of one that was not used for long.
    pub evicts: bool,
    /// `processhash`: the key begins with a process id, and is deleted when that process has ended.
    pub by_process: bool,
    /// How it is exported as a metric.
    pub metric: Metric,
    /// First use.
    pub span: Span,
}

/// What a cell of a map holds.
#[derive(Clone, Debug, PartialEq)]
pub enum MapValue {
    /// `@x = e`
    Plain(Type),
    /// `@x = count()`
    Agg(Agg),
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

/// A value of an [`ExprKind::ByCase`].
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Bit n: it is that of sites with case n.
    pub cases: u64,
    /// The value, in terms of the signature of these cases.
    pub value: Expr,
}

impl Arm {
    /// One of its cases; what it reads lies at the same places in all.
    pub fn first_case(&self) -> usize {
        self.cases.trailing_zeros() as usize
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it was written.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `$x = e;` the types are equal
    SetVar {
        /// Target.
        var: VarId,
        /// Value.
        value: Expr,
    },
    /// `@m[k] = e;` the types are equal; `key` has one expression for each part of the map's key
    SetMap {
        /// Target.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
        /// Value.
        value: Expr,
    },
    /// `@m[k] = hist(e);` the function is the map's; `arg` is 64 bits wide, `None` for `count()`
    Aggregate {
        /// Target.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
        /// Sample.
        arg: Option<Expr>,
    },
    /// An expression for its effect.
    Expr(Expr),
    /// `if`
    If {
        /// Condition.
        cond: Expr,
        /// When non-zero.
        then: Vec<Stmt>,
        /// When zero.
        otherwise: Vec<Stmt>,
    },
    /// `while`; the run-time limit is `Config::max_loop_iterations`, beyond which the loop ends and a counter tells.
    While {
        /// Condition.
        cond: Expr,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `unroll(n)`
    Unroll {
        /// Copies, 1..=100.
        count: u32,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `for $i : a..b`; both bounds int64, evaluated once
    ForRange {
        /// Loop variable, of type int64.
        var: VarId,
        /// First value.
        start: Expr,
        /// One past the last value.
        end: Expr,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `for ($kv : @m)`; `var` has type `Tuple([key, value])`, key itself a tuple if it has several parts; values of
    /// aggregations arrive summed over CPUs, as in [`ExprKind::MapGet`]
    ForMap {
        /// Loop variable.
        var: VarId,
        /// Map.
        map: MapId,
        /// Body.
        body: Vec<Stmt>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return`, from the clause; the value is that of a test.
    Return(Option<Expr>),
    /// `exit(code)`: ends the program; the body goes no further.
    Exit {
        /// Exit status.
        code: Expr,
    },
    /// `printf(format, args)`
    Printf {
        /// Parsed format.
        format: Vec<Piece>,
        /// One for each directive.
        args: Vec<Expr>,
    },
    /// `errorf(format, args)`, `cat(format, args)`: the text is not just printed.
    Message {
        /// What becomes of it.
        what: Message,
        /// Parsed format.
        format: Vec<Piece>,
        /// One for each directive.
        args: Vec<Expr>,
    },
    /// `rows(top, "none")`: the lines of `row` that were kept, largest weight first.
    Rows {
        /// Number of rows; 0: all.
        top: u32,
        /// The line where none was kept; empty: none.
        none: Vec<u8>,
    },
    /// `signal(n)`, to what the probe interrupted; a counter tells of those that the kernel did not send.
    Signal {
        /// int64
        number: Expr,
        /// Only to the thread.
        thread: bool,
    },
    /// `print(e)`
    PrintValue(Expr),
    /// `span("name", key = value)` and its like: a record for the sinks of `--export`.
    Export {
        /// Which.
        what: Export,
        /// The name, where it is a literal; else one of `hidden`, or that of the function.
        name: Option<Vec<u8>>,
        /// What the record has without the script's doing.
        hidden: Vec<(Hidden, Expr)>,
        /// What the script adds.
        fields: Vec<(String, Expr)>,
    },
    /// `print(@m[k])` of an aggregation without a single value, such as a histogram
    PrintEntry {
        /// Map.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
    },
    /// `print(@m, top, div)`
    PrintMap {
        /// Map.
        map: MapId,
        /// Only so many of the largest; 0: all.
        top: u32,
        /// Values are divided by it; 0 counts as 1.
        div: u32,
    },
    /// `clear(@m)`
    Clear(MapId),
    /// `zero(@m)`
    Zero(MapId),
    /// `time(format)`
    Time(String),
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Type,
    /// Where it was written.
    pub span: Span,
}

/// The number that [`Builtin::StrHash`] has for a text whose type has so many bytes, a multiple of 8: over its words,
/// those behind the text zero.
pub fn text_hash(text: &[u8], capacity: u32) -> u64 {
    let mut bytes = text.to_vec();
    bytes.resize(capacity as usize, 0);
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    words.fold(HASH_START, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(HASH_FACTOR);
        mixed ^ mixed >> HASH_SHIFT
    })
}

/// Where [`text_hash`] begins.
pub const HASH_START: u64 = 0x9e37_79b9_7f4a_7c15;
/// Odd factor of [`text_hash`].
pub const HASH_FACTOR: u64 = 0x2127_599b_f432_5c37;
/// What of each product is mixed into its low bits.
pub const HASH_SHIFT: u32 = 32;

/// Value of an update expression.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Yields {
    /// `x++`
    Old,
    /// `++x`, `x += e`
    New,
}

impl Expr {
    /// As an address: it is one of kernel memory. What was read there is, too.
    pub fn in_kernel(&self) -> bool {
        match &self.kind {
            ExprKind::Kernel(_) => true,
            ExprKind::Cast(inner) | ExprKind::Load { base: inner, .. } => inner.in_kernel(),
            ExprKind::Binary { op: BinaryOp::Add | BinaryOp::Sub, lhs, .. } => lhs.in_kernel(),
            _ => false,
        }
    }
}

/// What evaluating an expression does and depends on, in rising order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effects {
    /// Nothing, and the value is the same wherever the body has it: one evaluation serves several uses.
    Invariant,
    /// The value may differ from place to place, or a counter tells that there was none.
    Varies,
    /// It changes a map or a variable: it is evaluated exactly once, even if nothing uses the value.
    Changes,
}

impl Expr {
    /// The effects of the expression and of those in it.
    pub fn effects(&self) -> Effects {
        let mut effects = Effects::Invariant;
        visit::visit_expr(self, &mut |e| effects = effects.max(e.kind.effects()));
        effects
    }

    /// Evaluating it changes something.
    pub fn changes(&self) -> bool {
        self.effects() == Effects::Changes
    }
}

impl ExprKind {
    /// The effects of the expression by itself; those in it have their own.
    pub fn effects(&self) -> Effects {
        use ExprKind::*;
        match self {
            UpdateMap { .. } | UpdateVar { .. } | Delete { .. } | Block { .. } => Effects::Changes,
            // A counter tells of divisions by zero.
            Binary { op: BinaryOp::Div | BinaryOp::Rem, .. } => Effects::Varies,
            Int(_)
            | Str(_)
            | Param(_)
            | ParamField { .. }
            | Arg(_)
            | Retval
            | Duration
            | Neg(_)
            | BitNot(_)
            | Not(_)
            | Binary { .. }
            | StrEq { .. }
            | Cast(_)
            | Ternary { .. }
            | Load { .. }
            | Tuple(_)
            | TupleGet { .. }
            | ByCase(_) => Effects::Invariant,
            Zero
            | Var(_)
            | MapGet { .. }
            | RecordBytes { .. }
            | Reg(_)
            | RetvalField { .. }
            | Started
            | Around(_)
            | Pid
            | Tid
            | Uid
            | Gid
            | Cpu
            | Nsecs
            | Elapsed
            | Comm
            | Cgroup
            | Rand
            | Task
            | Fact(_)
            | Name(_)
            | NameIn { .. }
            | StrContains { .. }
            | StrFind { .. }
            | Builtin(..)
            | Kernel(_)
            | Member { .. }
            | Element { .. }
            | StrIndex { .. }
            | ReadStr { .. }
            | ReadBuf { .. }
            | Lookup(_)
            | Stack
            | StackLen { .. }
            | Strftime(_)
            | HasKey { .. }
            | Len(_) => Effects::Varies,
        }
    }
}

/// A built-in function that is nothing but a value of its arguments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `strlen(a)`: uint64, bytes before the NUL.
    StrLen,
    /// A number for a text, the same for the same text in a type of the same capacity, see [`text_hash`].
    StrHash,
    /// `strstr(a, b)` of a needle that is no literal: int64, where it begins, -1 if it is not there; 0 of an empty one.
    StrSearch,
    /// `str_concat(a, b)`: the type has room for both.
    StrConcat,
    /// `tolower(a)`: of a Str, whose type it has; ASCII letters alone.
    ToLower,
    /// `toupper(a)`, as [`Builtin::ToLower`].
    ToUpper,
    /// `bswap(n)`: of an unsigned integer, whose type it has.
    ByteSwap,
    /// `usym(a)`: of an uint64.
    Usym,
}

impl Builtin {
    /// As scripts write it.
    pub fn function(self) -> &'static str {
        match self {
            Builtin::StrLen => "strlen",
            Builtin::StrHash => "hash",
            Builtin::StrSearch => "strstr",
            Builtin::StrConcat => "str_concat",
            Builtin::ToLower => "tolower",
            Builtin::ToUpper => "toupper",
            Builtin::ByteSwap => "bswap",
            Builtin::Usym => "usym",
        }
    }
}

/// The kinds of expression. "The operands" below have been converted: where an operation works on one type, both sides
/// have it.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `12`, `true`, `CUDA_SUCCESS`: bits in the width of the type.
    Int(i64),
    /// `"text"`, without the NUL; the type's capacity is at least one byte more. Or all bytes of an array.
    Str(Vec<u8>),
    /// All bytes zero.
    Zero,
    /// `$x`
    Var(VarId),
    /// `@m[k]`: zero (or `""`) when missing. Of an aggregation: count, sum, min, max or avg over all CPUs as a 64-bit integer.
    MapGet {
        /// Map.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
    },
    /// `args.bytesize`: a parameter that is a scalar (integer, enum, bool, pointer), by index.
    Param(u32),
    /// `args.grid.x`: a scalar field of a parameter that is a struct passed by value.
    ParamField {
        /// Parameter index.
        param: u32,
        /// Bytes from the start of the struct.
        offset: u32,
    },
    /// `args.comm` of a tracepoint: text in its record, of the type's capacity, or an array of integers.
    RecordBytes {
        /// Parameter index.
        param: u32,
        /// The field says where in the record the text lies.
        located: bool,
    },
    /// `arg0`: the integer argument in the n-th register, or stack slot behind them, as 64 bits, whatever the signature.
    Arg(u32),
    /// `reg("sp")`: by the architecture's name; one of `lang::registers` of this architecture.
    Reg(String),
    /// `retval`, masked to its type.
    Retval,
    /// `retval.b`: a scalar field of a struct that is returned in registers.
    RetvalField {
        /// Bytes from the start of the struct.
        offset: u32,
    },
    /// `duration`: ns of this call, uint64.
    Duration,
    /// When this call began: ns of the monotonic clock, uint64. Where calls are tracked it is what calls inside of it find
    /// as [`Around::Start`]. Of a probe whose call is tracked.
    Started,
    /// `call_depth`, `parent_func`: of the tracked calls of this thread that the one in hand, or the system call, lies in.
    Around(Around),
    /// `pid`: tgid, uint32.
    Pid,
    /// `tid`: uint32.
    Tid,
    /// `uid`
    Uid,
    /// `gid`
    Gid,
    /// `cpu`: uint32.
    Cpu,
    /// `nsecs`: boot clock, uint64.
    Nsecs,
    /// `elapsed`: ns since the start, uint64.
    Elapsed,
    /// `comm`: Str(16).
    Comm,
    /// `cgroup`: cgroup v2 id, uint64.
    Cgroup,
    /// `rand`: uint32.
    Rand,
    /// `curtask`: address of the kernel's `task_struct` of the thread, uint64.
    Task,
    /// `ncpus`, `nsecs(tai)`: see [`Fact`].
    Fact(Fact),
    /// `func`, `api`, `probe`; the type is `Name`.
    Name(NameKind),
    /// `func == "cuInit"`, `strcontains(api, "Mem")`: true for the attach points whose name is in the (sorted) list.
    NameIn {
        /// Which name.
        kind: NameKind,
        /// Names for which it holds.
        ids: Vec<NameId>,
    },
    /// `-e` on int64/uint64
    Neg(Box<Expr>),
    /// `~e`
    BitNot(Box<Expr>),
    /// `!e`: Bool
    Not(Box<Expr>),
    /// `a + b`: on two 64-bit integers of equal signedness, or any two scalars of one type for comparisons (Bool).
    /// `&&` and `||` take any scalar, evaluate the right side only if needed, and yield Bool. `>>` of a signed value keeps the sign. Division by zero yields 1, the remainder of it 0, both with a counter.
    Binary {
        /// Operator.
        op: BinaryOp,
        /// Left.
        lhs: Box<Expr>,
        /// Right.
        rhs: Box<Expr>,
    },
    /// `a == "text"`, `strncmp(a, b, 3) == 0`: Bool; compares up to a NUL or `limit` bytes.
    StrEq {
        /// Left, of type Str, or of a type Buf.
        lhs: Box<Expr>,
        /// Right, likewise.
        rhs: Box<Expr>,
        /// Bytes at most.
        limit: Option<u32>,
    },
    /// `strcontains(a, "text")`: Bool.
    StrContains {
        /// Haystack.
        haystack: Box<Expr>,
        /// Needle, not empty.
        needle: Vec<u8>,
    },
    /// `strstr(a, "text")`: int64, where it begins, -1 if it is not there.
    StrFind {
        /// Haystack.
        haystack: Box<Expr>,
        /// Needle, not empty.
        needle: Vec<u8>,
    },
    /// `strlen(a)`: see [`Builtin`].
    Builtin(Builtin, Vec<Expr>),
    /// `(uint32)e`, or a conversion that the checker wrote: integer, bool, enum and pointer among each other (low bits
    /// kept, then extended by the *source's* signedness), Str to a larger or smaller capacity, Tuple part by part,
    /// Record likewise by the members' names, an integer to an array of as many bytes and back, an array of bytes to the Str in
    /// it, an array to a Buf of its size, a Str to a Buf or an array of bytes of any: it is cut, or has zeros after it; a Buf to
    /// a larger one.
    Cast(Box<Expr>),
    /// `c ? a : b`
    Ternary {
        /// Condition.
        cond: Box<Expr>,
        /// When non-zero.
        then: Box<Expr>,
        /// When zero.
        otherwise: Box<Expr>,
    },
    /// `{ $b = 1; $b + 1 }`: runs the statements, none of which leaves the block, then has the value.
    Block {
        /// What comes first.
        body: Vec<Stmt>,
        /// What it is then.
        value: Box<Expr>,
    },
    /// `kptr(p)`, a pointer that a tracepoint passes on: the address, at which memory is the kernel's. See [`Expr::in_kernel`].
    Kernel(Box<Expr>),
    /// `*p`, `p->f`, `p[2]`: a scalar, struct or array of the expression's type in user memory; zeros and a counter when it
    /// cannot be read.
    Load {
        /// Address.
        base: Box<Expr>,
        /// Bytes added to it.
        offset: i64,
    },
    /// `$s.field`, `$a[2]` of a struct or array that is a value: what lies so many bytes into it.
    Member {
        /// The struct or array.
        base: Box<Expr>,
        /// Bytes.
        offset: u32,
    },
    /// `$a[i]` of an array that is a value: a scalar; 0 out of bounds.
    Element {
        /// The array.
        base: Box<Expr>,
        /// uint64.
        index: Box<Expr>,
    },
    /// `"abc"[1]`: uint8
    StrIndex {
        /// String.
        base: Box<Expr>,
        /// Index; out of bounds reads 0.
        index: Box<Expr>,
    },
    /// `(a, b)`; of type `Record` also `(x = a, y = b)`
    Tuple(Vec<Expr>),
    /// `t.0`
    TupleGet {
        /// Tuple.
        base: Box<Expr>,
        /// Part.
        index: u32,
    },
    /// `str(p, n)`: at most n-1 bytes and at most capacity-1, up to a NUL. `""` and a counter when it cannot be read.
    ReadStr {
        /// User address.
        base: Box<Expr>,
        /// uint64.
        limit: Option<Box<Expr>>,
    },
    /// `buf(p, n)`: the bytes at a user address, as many as the type takes at most; zeros and a counter when they cannot be
    /// read.
    ReadBuf {
        /// User address.
        base: Box<Expr>,
        /// uint64.
        len: Box<Expr>,
    },
    /// `strerror(n)`: of an int64; which is in the type.
    Lookup(Box<Expr>),
    /// `ustack`, `kstack(3)`; all is in the type.
    Stack,
    /// `len(ustack)`: uint64; 0 and a counter if there is no stack.
    StackLen {
        /// User or kernel.
        user: bool,
        /// Frames counted at most.
        limit: u32,
    },
    /// `strftime(format, ns)`; the format is in the type.
    Strftime(Box<Expr>),
    /// `has_key(@m, k)`: Bool
    HasKey {
        /// Map.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
    },
    /// `len(@m)`: uint64, by counting.
    Len(MapId),
    /// `delete(@m, k)`: Bool, it was there.
    Delete {
        /// Map.
        map: MapId,
        /// Key parts; empty for a scalar map.
        key: Vec<Expr>,
    },
    /// `@m[k] += e`, `@m[k]++`: one atomic update of a 64-bit integer cell; a missing cell starts at 0.
    UpdateMap {
        /// Map with a plain int64 or uint64 value.
        map: MapId,
        /// Key parts.
        key: Vec<Expr>,
        /// Operator.
        op: BinaryOp,
        /// Right side, of the cell's type.
        value: Box<Expr>,
        /// Old or new value.
        yields: Yields,
    },
    /// One value or another, by the case of the site that was hit; each case is in one arm. Only `merge` makes it, behind the
    /// checker, and never one inside another.
    ByCase(Vec<Arm>),
    /// `$x += e`, `$x++`
    UpdateVar {
        /// An integer variable.
        var: VarId,
        /// Operator.
        op: BinaryOp,
        /// Right side, of the variable's type.
        value: Box<Expr>,
        /// Old or new value.
        yields: Yields,
    },
}

/// What is known of the tracked calls around the one in hand: those on its thread whose stack pointer lies above that of the
/// call and that have not returned. See [`Program::is_tracked`] for which calls are tracked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Around {
    /// `call_depth`: how many, uint64.
    Depth,
    /// `parent_func`: `func` of the innermost, of type `Name(Func)`.
    Func {
        /// The name if there is none, which is empty.
        none: NameId,
    },
    /// When the innermost began: ns of the monotonic clock, uint64; 0 if there is none.
    Start,
}

/// A number that the kernel or the tracer knows where the body runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// `ncpus`: uint64.
    Cpus,
    /// `numaid`: uint32.
    NumaNode,
    /// `jiffies`: uint64.
    Jiffies,
    /// `usermode`: uint8, 1 if the probe interrupted user space.
    UserMode,
    /// `cpid`: uint32, the process that the tracer started, 0 if there is none.
    ChildPid,
    /// `pid(init)`: uint32.
    InitPid,
    /// `tid(init)`: uint32.
    InitTid,
    /// `nsecs(monotonic)`: uint64.
    Monotonic,
    /// `nsecs(tai)`: uint64, the boot clock and the distance between the two when the tracer began.
    Tai,
    /// `ctx`: uint64, the address of the program's context.
    Context,
}

impl Fact {
    /// As scripts write it, and its type.
    pub fn describe(self) -> (&'static str, Type) {
        match self {
            Fact::Cpus => ("ncpus", Type::U64),
            Fact::NumaNode => ("numaid", Type::U32),
            Fact::Jiffies => ("jiffies", Type::U64),
            Fact::UserMode => ("usermode", Type::Int { bytes: 1, signed: false }),
            Fact::ChildPid => ("cpid", Type::U32),
            Fact::InitPid => ("pid(init)", Type::U32),
            Fact::InitTid => ("tid(init)", Type::U32),
            Fact::Monotonic => ("nsecs(monotonic)", Type::U64),
            Fact::Tai => ("nsecs(tai)", Type::U64),
            Fact::Context => ("ctx", Type::U64),
        }
    }
}

/// Settings that reach the code or the output.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `max_map_keys`, default 4096.
    pub max_map_keys: u32,
    /// `max_strlen`: capacity of `str()`, the NUL included, default 1024.
    pub max_strlen: u32,
    /// `str_trunc_trailer`, default `..`.
    pub str_trunc_trailer: String,
    /// `max_cat_bytes`: what `cat` prints of a file at most, default 10240.
    pub max_cat_bytes: u32,
    /// `print_maps_on_exit`, default true.
    pub print_maps_on_exit: bool,
    /// `stack_mode`
    pub stack_mode: StackMode,
    /// Iterations of one `while` at most.
    pub max_loop_iterations: u32,
    /// `missing_probes`: `error` (default), `warn`, `ignore`.
    pub missing_probes: MissingProbes,
    /// `max_probes`: attach points at most, without a bound unless told.
    pub max_probes: Option<u32>,
    /// `cpp_demangle`: symbols of C++ and Rust print as their source has them, default true.
    pub demangle: bool,
    /// `show_debug_info`: stacks have source lines and inlined functions, default false.
    pub source_lines: bool,
    /// Ring buffer size in bytes, a power of two and of pages; 0: chosen by the runtime.
    pub ring_bytes: u32,
}

/// What a probe without attach point means.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MissingProbes {
    /// The script is refused.
    #[default]
    Error,
    /// A warning.
    Warn,
    /// Nothing is said.
    Ignore,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_map_keys: 4096,
            max_strlen: 1024,
            str_trunc_trailer: "..".into(),
            max_cat_bytes: 10 << 10,
            print_maps_on_exit: true,
            stack_mode: StackMode::default(),
            max_loop_iterations: 1 << 20,
            missing_probes: MissingProbes::default(),
            max_probes: None,
            demangle: true,
            source_lines: false,
            ring_bytes: 0,
        }
    }
}
