//! Expressions and statements of the checked program.

use crate::hir::map::MapId;
use crate::hir::types::Type;
use crate::source::span::Span;
use crate::syntax::ast::BinaryOp;
use wire::manifest::{Export, HiddenValue, Message, Piece};
use wire::types::{NameKind, StackMode};

/// Index into [`Probe::vars`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct VarId(pub u32);

/// Index into one of the tables of [`Names`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The kind, with the operands.
    pub kind: ExprKind,
    /// The type of the value.
    pub ty: Type,
    /// The source range.
    pub span: Span,
}

/// The value of [`Builtin::StrHash`] for a text whose type has `capacity` bytes, a multiple of 8. The hash covers
/// all words of the capacity; the words after the text are zero.
pub fn text_hash(text: &[u8], capacity: u32) -> u64 {
    let mut bytes = text.to_vec();
    bytes.resize(capacity as usize, 0);
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    words.fold(HASH_START, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(HASH_FACTOR);
        mixed ^ mixed >> HASH_SHIFT
    })
}

/// Initial value of [`text_hash`].
pub const HASH_START: u64 = 0x9e37_79b9_7f4a_7c15;

/// Odd factor of [`text_hash`].
pub const HASH_FACTOR: u64 = 0x2127_599b_f432_5c37;

/// Right shift by which the high bits of each product are mixed into its low bits.
pub const HASH_SHIFT: u32 = 32;

/// The value of an update expression.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Yields {
    /// `x++`
    Old,
    /// `++x`, `x += e`
    New,
}

impl Expr {
    /// Whether the value, used as an address, refers to kernel memory. This also holds for pointers read from
    /// kernel memory.
    pub fn in_kernel(&self) -> bool {
        match &self.kind {
            ExprKind::Kernel(_) | ExprKind::VarAddress(_) => true,
            ExprKind::Cast(inner) | ExprKind::Load { base: inner, .. } => inner.in_kernel(),
            ExprKind::Binary { op: BinaryOp::Add | BinaryOp::Sub, lhs, .. } => lhs.in_kernel(),
            ExprKind::Block { value, .. } => value.in_kernel(),
            _ => false,
        }
    }
}

/// A built-in variable or function: a value that depends on the position in the body and on the arguments only.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `pid`: the tgid, uint32.
    Pid,
    /// `tid`: uint32.
    Tid,
    /// `pid(init)`: uint32.
    InitPid,
    /// `tid(init)`: uint32.
    InitTid,
    /// `cpid`: uint32, the process started by the tracer, 0 if there is none.
    ChildPid,
    /// `uid`: uint32.
    Uid,
    /// `gid`: uint32.
    Gid,
    /// `comm`: the name of the thread, a Str of 16 bytes.
    Comm,
    /// `comm(program)` of a script that runs in the traced process: the name of the executed file, a Str of 64 bytes.
    Program,
    /// Name of the process, of programs in the traced process, str_t[16].
    ProcessName,
    /// `cgroup`: uint64.
    Cgroup,
    /// `curtask`: the address of the kernel's `task_struct`, uint64.
    Task,
    /// `ctx`: the address of the BPF program's context.
    Context,
    /// `func` in a map of symbols: the address of the probed function of the kernel, int64.
    FunctionAddress,
    /// `cpu`: uint32.
    Cpu,
    /// `ncpus`: the number of CPUs, uint64.
    Cpus,
    /// `numaid`: uint32.
    NumaNode,
    /// `usermode`: uint8, 1 if the probe interrupted user space.
    UserMode,
    /// `nsecs`: ns since boot, with the time spent suspended, uint64.
    Nsecs,
    /// `nsecs(monotonic)`: uint64.
    Monotonic,
    /// `nsecs(tai)`: uint64, the boot clock plus the offset between both clocks at the start of the tracer.
    Tai,
    /// `elapsed`: ns since the start of the tracer, uint64.
    Elapsed,
    /// `jiffies`: uint64.
    Jiffies,
    /// `rand`: uint32.
    Rand,
    /// `strlen(a)`: uint64, the number of bytes before the NUL.
    StrLen,
    /// A hash of a text, equal for equal texts in types of the same capacity; see [`text_hash`].
    StrHash,
    /// `strstr(a, b)`: int64, the offset of the needle, -1 if it is absent, 0 for an empty one.
    StrSearch,
    /// `str_concat(a, b)`: the result type has room for both.
    StrConcat,
    /// `tolower(a)` of a Str, with the type of the argument; converts ASCII letters only.
    ToLower,
    /// `toupper(a)`, as [`Builtin::ToLower`].
    ToUpper,
    /// `bswap(n)` of an unsigned integer, with the type of the argument.
    ByteSwap,
    /// `popcount(n)` of a uint64: uint64, the number of bits that are 1.
    PopCount,
    /// `usym(a)` of a uint64.
    Usym,
    /// Pushes an event of the kernel, such as an ioctl, onto the thread's stack of calls: later calls, spans and instants of the
    /// thread are in it. The argument is the number of its name. Returns its start in ns of the monotonic clock, uint64.
    BeginEvent,
    /// Removes that event from the stack; 0, uint64.
    EndEvent,
    /// Address of the current record of a batch, uint64. Only in probes with [`Records`](crate::hir::Records).
    RecordAddress,
    /// Address of the control block of the thread, uint64; 0 if it is not known.
    ThreadPointer,
    /// `retval` of a function that returns a floating-point number: the low eight bytes of its register, uint64. Only in programs in the
    /// traced process.
    FloatResult,
}

impl Builtin {
    /// The spelling in scripts, without arguments of functions.
    pub fn name(self) -> &'static str {
        match self {
            Builtin::Pid => "pid",
            Builtin::FloatResult => "retval",
            Builtin::Tid => "tid",
            Builtin::InitPid => "pid(init)",
            Builtin::InitTid => "tid(init)",
            Builtin::ChildPid => "cpid",
            Builtin::Uid => "uid",
            Builtin::Gid => "gid",
            Builtin::Comm => "comm",
            Builtin::Program => "comm(program)",
            Builtin::ProcessName => "comm(process)",
            Builtin::Cgroup => "cgroup",
            Builtin::Task => "curtask",
            Builtin::Context => "ctx",
            Builtin::FunctionAddress => "func",
            Builtin::Cpu => "cpu",
            Builtin::Cpus => "ncpus",
            Builtin::NumaNode => "numaid",
            Builtin::UserMode => "usermode",
            Builtin::Nsecs => "nsecs",
            Builtin::Monotonic => "nsecs(monotonic)",
            Builtin::Tai => "nsecs(tai)",
            Builtin::Elapsed => "elapsed",
            Builtin::Jiffies => "jiffies",
            Builtin::Rand => "rand",
            Builtin::StrLen => "strlen",
            Builtin::StrHash => "hash",
            Builtin::StrSearch => "strstr",
            Builtin::StrConcat => "str_concat",
            Builtin::ToLower => "tolower",
            Builtin::ToUpper => "toupper",
            Builtin::ByteSwap => "bswap",
            Builtin::PopCount => "popcount",
            Builtin::Usym => "usym",
            Builtin::BeginEvent => "begin_event",
            Builtin::EndEvent => "end_event",
            Builtin::RecordAddress => "record",
            Builtin::ThreadPointer => "thread_pointer",
        }
    }
}

/// The kinds of expression. The checker has converted the operands: if an operation works on one type, both sides
/// have it.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `12`, `true`, `CUDA_SUCCESS`: the bits in the width of the type.
    Int(i64),
    /// `"text"`, without the NUL; the capacity of the type is at least one byte larger. Alternatively all bytes of
    /// an array.
    Str(Vec<u8>),
    /// A value whose bytes are all zero.
    Zero,
    /// `$x`
    Var(VarId),
    /// `&$x`: the address of the variable in the program's own memory, until the program ends. See [`Expr::in_kernel`].
    VarAddress(VarId),
    /// `@m[k]`: zero (or `""`) if the key is missing. For an aggregation: count, sum, min, max or avg over all
    /// CPUs as a 64-bit integer.
    MapGet {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
    },
    /// `args.bytesize`: a scalar parameter (integer, enum, bool, pointer), by index.
    Param(u32),
    /// `args.grid.x`: a scalar field of a struct parameter that is passed by value.
    ParamField {
        /// Index of the parameter.
        param: u32,
        /// Offset in the struct, in bytes.
        offset: u32,
    },
    /// `args.comm` of a tracepoint: text in its record with the capacity of the type, or an array of integers.
    RecordBytes {
        /// Index of the parameter.
        param: u32,
        /// True if the field contains the position of the text in the record.
        located: bool,
    },
    /// `arg0`: the n-th integer argument, in a register or in a stack slot after them, as 64 bits regardless of
    /// the signature.
    Arg(u32),
    /// `reg("sp")`: the register's name on this architecture, one of `lang::registers`.
    Reg(String),
    /// `retval`, masked to its type.
    Retval,
    /// `retval.b`: a scalar field of a struct that is returned in registers.
    RetvalField {
        /// Offset in the struct, in bytes.
        offset: u32,
    },
    /// `duration`: duration of this call in ns, uint64.
    Duration,
    /// Start of this call in ns of the monotonic clock, uint64. If calls are tracked, nested calls read the same
    /// value as [`Around::Start`]. Only in probes whose calls are tracked.
    Started,
    /// `call_depth`, `parent_func`: a property of the tracked calls of this thread that enclose the current call
    /// or the system call.
    Around(Around),
    /// `func`, `api`, `probe`; the type is `Name`.
    Name(NameKind),
    /// `func == "cuInit"`, `strcontains(api, "Mem")`: true for attach points whose name is in the sorted list.
    NameIn {
        /// The kind of the name.
        kind: NameKind,
        /// The names for which the expression is true.
        ids: Vec<NameId>,
    },
    /// `-e` on int64/uint64
    Neg(Box<Expr>),
    /// `~e`
    BitNot(Box<Expr>),
    /// `!e`: Bool
    Not(Box<Expr>),
    /// `a + b`: on two 64-bit integers of equal signedness; comparisons take any two scalars of one type and yield
    /// Bool. `&&` and `||` take any scalar, evaluate the right side only if needed, and yield Bool. `>>` of a
    /// signed value keeps the sign. Division by zero yields 1 and its remainder 0; both increment a counter.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Left operand.
        lhs: Box<Expr>,
        /// Right operand.
        rhs: Box<Expr>,
    },
    /// `a == "text"`, `strncmp(a, b, 3) == 0`: Bool; compares up to a NUL or `limit` bytes.
    StrEq {
        /// Left operand, of type Str or Buf.
        lhs: Box<Expr>,
        /// Right operand, of type Str or Buf.
        rhs: Box<Expr>,
        /// Maximum number of bytes compared.
        limit: Option<u32>,
    },
    /// `strcontains(a, "text")`: Bool.
    StrContains {
        /// The text that is searched.
        haystack: Box<Expr>,
        /// The text to find, not empty.
        needle: Vec<u8>,
    },
    /// `strlen(a)`: see [`Builtin`].
    Builtin(Builtin, Vec<Expr>),
    /// `(uint32)e`, or a conversion inserted by the checker. Conversions exist between integers, bools, enums and
    /// pointers (the low bits are kept, then extended by the *source's* signedness), and from a Str to a larger or
    /// smaller capacity. A Tuple is converted part by part, a Record by the names of its members. An integer
    /// converts to an array of the same size and back. An array of bytes converts to the Str in it, an array to a
    /// Buf of its size. A Str converts to a Buf or an array of bytes of any size: it is cut or padded with zeros.
    /// A Buf converts to a larger one.
    Cast(Box<Expr>),
    /// `c ? a : b`
    Ternary {
        /// The condition.
        cond: Box<Expr>,
        /// Value if the condition is non-zero.
        then: Box<Expr>,
        /// Value if the condition is zero.
        otherwise: Box<Expr>,
    },
    /// `{ $b = 1; $b + 1 }`: runs the statements, none of which leaves the block, then yields the value.
    Block {
        /// The statements.
        body: Vec<Stmt>,
        /// The value after the statements.
        value: Box<Expr>,
    },
    /// `kptr(p)`, or a pointer argument of a tracepoint: an address in kernel memory. See [`Expr::in_kernel`].
    Kernel(Box<Expr>),
    /// `*p`, `p->f`, `p[2]`: a scalar, struct or array of the expression's type in user memory. If the memory
    /// cannot be read, the value is zero and a counter is incremented.
    Load {
        /// The address.
        base: Box<Expr>,
        /// Bytes added to the address.
        offset: i64,
    },
    /// `$s.field`, `$a[2]`: the member at an offset of a struct or array value.
    Member {
        /// The struct or array.
        base: Box<Expr>,
        /// Offset in bytes.
        offset: u32,
    },
    /// `$a[i]`: a scalar element of an array value; 0 if the index is out of bounds.
    Element {
        /// The array.
        base: Box<Expr>,
        /// The index, uint64.
        index: Box<Expr>,
    },
    /// `"abc"[1]`: uint8
    StrIndex {
        /// The string.
        base: Box<Expr>,
        /// The index; 0 is read out of bounds.
        index: Box<Expr>,
    },
    /// `(a, b)`; for a type `Record` also `(x = a, y = b)`
    Tuple(Vec<Expr>),
    /// `t.0`
    TupleGet {
        /// The tuple.
        base: Box<Expr>,
        /// Index of the part.
        index: u32,
    },
    /// `str(p, n)`: at most n-1 bytes and at most capacity-1, up to a NUL. If the memory cannot be read, the value
    /// is `""` and a counter is incremented.
    ReadStr {
        /// The user-space address.
        base: Box<Expr>,
        /// Maximum length, uint64.
        limit: Option<Box<Expr>>,
    },
    /// `buf(p, n)`: the bytes at a user-space address, limited to the capacity of the type. If they cannot be
    /// read, they are zero and a counter is incremented.
    ReadBuf {
        /// The user-space address.
        base: Box<Expr>,
        /// Number of bytes, uint64.
        len: Box<Expr>,
    },
    /// `strerror(n)` of an int64, `strftime(format, ns)`: a number that is printed as text; the type contains the kind of
    /// lookup or the format.
    Lookup(Box<Expr>),
    /// `ustack`, `kstack(3)`; the type contains all properties.
    Stack,
    /// `len(ustack)`: uint64; without a stack, 0 and a counter is incremented.
    StackLen {
        /// True for the user stack, false for the kernel stack.
        user: bool,
        /// Maximum number of frames counted.
        limit: u32,
        /// [`StackMode::Python`]: frames of Python; otherwise those of native code.
        mode: StackMode,
    },
    /// `has_key(@m, k)`: Bool
    HasKey {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
    },
    /// `len(@m)`: uint64, the counted entries.
    Len(MapId),
    /// `delete(@m, k)`: Bool, whether the key existed.
    Delete {
        /// The map.
        map: MapId,
        /// The parts of the key; empty for a scalar map.
        key: Vec<Expr>,
    },
    /// `@m[k] += e`, `@m[k]++`: one atomic update of a 64-bit integer cell; a missing cell starts at 0.
    UpdateMap {
        /// A map with a plain int64 or uint64 value.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
        /// The operator.
        op: BinaryOp,
        /// Right side, of the cell's type.
        value: Box<Expr>,
        /// Whether the expression yields the old or the new value.
        yields: Yields,
    },
    /// A value selected by the case of the probed site; each case occurs in exactly one arm. Only `merge`
    /// creates this expression, after the checker, and never nested.
    ByCase(Vec<Arm>),
    /// `$x += e`, `$x++`
    UpdateVar {
        /// An integer variable.
        var: VarId,
        /// The operator.
        op: BinaryOp,
        /// Right side, of the variable's type.
        value: Box<Expr>,
        /// Whether the expression yields the old or the new value.
        yields: Yields,
    },
}

/// A property of the tracked calls that enclose the current one: calls on the same thread with a higher stack
/// pointer that have not returned. See [`Program::is_tracked`] for which calls are tracked.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Around {
    /// `call_depth`: the number of enclosing calls, uint64.
    Depth,
    /// `parent_func`: `func` of the innermost enclosing call, of type `Name(Func)`.
    Func {
        /// The empty name, used if there is no enclosing call.
        none: NameId,
    },
    /// Start of the innermost enclosing call in ns of the monotonic clock, uint64; 0 without an enclosing call.
    Start,
}

/// An alternative of an [`ExprKind::ByCase`].
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Bit mask: bit n is set if the arm applies to sites with case n.
    pub cases: u64,
    /// The value, in terms of the signature of these cases.
    pub value: Expr,
}

impl Arm {
    /// The first of the arm's cases; the operands have the same locations in all of them.
    pub fn first_case(&self) -> usize {
        self.cases.trailing_zeros() as usize
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// The kind, with the operands.
    pub kind: StmtKind,
    /// The source range.
    pub span: Span,
}

/// The kinds of statement.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `$x = e;` the types are equal
    SetVar {
        /// The variable.
        var: VarId,
        /// The value.
        value: Expr,
    },
    /// `@m[k] = e;` the types are equal; `key` has one expression for each part of the map's key
    SetMap {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
        /// The value.
        value: Expr,
    },
    /// `@m[k] = hist(e);` the function is the map's; `arg` is 64 bits wide, `None` for `count()`
    Aggregate {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
        /// The sample.
        arg: Option<Expr>,
    },
    /// An expression evaluated for its effect.
    Expr(Expr),
    /// `if`
    If {
        /// The condition.
        cond: Expr,
        /// Statements if the condition is non-zero.
        then: Vec<Stmt>,
        /// Statements if the condition is zero.
        otherwise: Vec<Stmt>,
    },
    /// `while`; at run time `Config::max_loop_iterations` limits it: at the limit the loop ends and a counter is
    /// incremented.
    While {
        /// The condition.
        cond: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `unroll(n)`
    Unroll {
        /// Number of copies, 1..=100.
        count: u32,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `for $i : a..b`; both bounds int64, evaluated once
    ForRange {
        /// Loop variable, of type int64.
        var: VarId,
        /// First value.
        start: Expr,
        /// End of the range, exclusive.
        end: Expr,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `for ($kv : @m)`; `var` has type `Tuple([key, value])`, where the key itself is a tuple if it has several
    /// parts. The values of aggregations are summed over all CPUs, as in [`ExprKind::MapGet`].
    ForMap {
        /// Loop variable.
        var: VarId,
        /// The map.
        map: MapId,
        /// The body.
        body: Vec<Stmt>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
    /// `return` from the clause; the value is the result of a test.
    Return(Option<Expr>),
    /// `exit(code)`: ends the program; the rest of the body is skipped.
    Exit {
        /// The exit status.
        code: Expr,
    },
    /// `printf(format, args)`
    Printf {
        /// The parsed format.
        format: Vec<Piece>,
        /// The arguments, one for each directive.
        args: Vec<Expr>,
    },
    /// `errorf(format, args)`, `cat(format, args)`: formatted text with a use other than printing.
    Message {
        /// The use of the text.
        what: Message,
        /// The parsed format.
        format: Vec<Piece>,
        /// The arguments, one for each directive.
        args: Vec<Expr>,
        /// Calls of the macros that it is in, the innermost first.
        calls: Vec<Span>,
    },
    /// `rows(top, "none")`: the lines stored by `row`, in descending order of weight.
    Rows {
        /// Maximum number of rows; 0: all.
        top: u32,
        /// The line to print without rows; empty: no line.
        none: Vec<u8>,
        /// The name of the table for programs; empty: no name.
        name: String,
    },
    /// `signal(n)` to the process or thread that the probe interrupted; signals that the kernel did not send are
    /// counted.
    Signal {
        /// The signal number, int64.
        number: Expr,
        /// True to signal only the thread.
        thread: bool,
    },
    /// `print(e)`
    PrintValue(Expr),
    /// `span("name", key = value)` and similar calls: a record for the sinks of `--export`.
    Export {
        /// The kind of record.
        what: Export,
        /// The name, if it is a literal; otherwise the name is in `hidden`, or is that of the function.
        name: Option<Vec<u8>>,
        /// Fields that every such record has, with their values.
        hidden: Vec<(HiddenValue, Expr)>,
        /// Fields given in the script.
        fields: Vec<(String, Expr)>,
    },
    /// `print(@m[k])` of an aggregation without a single value, such as a histogram
    PrintEntry {
        /// The map.
        map: MapId,
        /// The parts of the key.
        key: Vec<Expr>,
    },
    /// `print(@m, top, div)`
    PrintMap {
        /// The map.
        map: MapId,
        /// Maximum number of entries, the largest first; 0: all.
        top: u32,
        /// Divisor of the values; 0 counts as 1.
        div: u32,
    },
    /// `clear(@m)`
    Clear(MapId),
    /// `zero(@m)`
    Zero(MapId),
    /// `time(format)`
    Time(String),
}
