//! Typed expressions.

use crate::hir::map::MapId;
use crate::hir::stmt::{Arm, Stmt};
use crate::hir::types::Type;
use crate::source::span::Span;
use crate::syntax::ast::BinaryOp;
use wire::types::NameKind;

/// Index into [`Probe::vars`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct VarId(pub u32);

/// Index into one of the tables of [`Names`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

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
