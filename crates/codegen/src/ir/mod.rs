//! The intermediate representation: functions of basic blocks over virtual registers. Not SSA: scripts are small, so
//! that liveness with a linear scan is sufficient.
//!
//! Every virtual register holds 64 bits. Narrow values are kept extended to 64 bits by the signedness of their type, so
//! that only memory accesses and [`Op::Extend`] need a width.
//!
//! ```text
//! func probe0 (uprobe.multi)
//! b0: v0 = ctx
//!     v1 = load.u64 [v0 + 112]
//!     branch v1 == 0, b1, b2
//! ```
//!
//! Not here: the lowering of scripts (`lower`), the assignment of machine registers (`bpf::regalloc`).

mod visit;

pub mod build;
pub mod parse;
pub mod print;
pub mod rewrite;
pub mod verify;

use crate::bpf::helper::Helper;
use lang::source::span::Span;
use wire::manifest;

/// A whole object before encoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Programs and their callbacks.
    pub funcs: Vec<Func>,
    /// BPF maps: the maps of the script and internal maps.
    pub maps: Vec<MapDef>,
    /// Constant bytes: one read-only section, addressed by [`Op::DataAddr`].
    pub data: Vec<u8>,
    /// True if stacks may be per-CPU: see `wire::Features::private_stack`.
    pub private_stack: bool,
}

impl Module {
    /// Number of operations in all functions.
    pub fn operations(&self) -> usize {
        self.funcs.iter().map(Func::operations).sum()
    }
}

/// A virtual register, which holds 64 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VReg(pub u32);
/// Index into [`Func::blocks`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);
/// Index into [`Func::slots`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(pub u32);
/// Index into [`Module::maps`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapRef(pub u32);
/// Index into [`Module::funcs`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FuncRef(pub u32);

/// A BPF map of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Symbol: at most 15 bytes, `[A-Za-z0-9_]`.
    pub name: String,
    /// `BPF_MAP_TYPE_*`
    pub kind: u32,
    /// Size of a key in bytes; 0 for a ring buffer.
    pub key_size: u32,
    /// Size of a value in bytes; 0 for a ring buffer.
    pub value_size: u32,
    /// Largest number of keys; for a ring buffer its size in bytes.
    pub max_entries: u32,
    /// `BPF_F_*`
    pub flags: u32,
    /// True for an array of one value whose address programs have without a lookup: see [`Op::ValueAddr`].
    pub direct: bool,
}

/// A program or a callback.
#[derive(Clone, Debug, PartialEq)]
pub struct Func {
    /// Symbol.
    pub name: String,
    /// Program or callback.
    pub kind: FuncKind,
    /// Blocks; the first is the entry.
    pub blocks: Vec<Block>,
    /// Number of virtual registers in use.
    pub vregs: u32,
    /// Stack slots, addressed by [`Op::SlotAddr`].
    pub slots: Vec<Slot>,
    /// Span of the probe list, for line info of code without a span of its own.
    pub span: Span,
}

impl Func {
    /// Number of operations, terminators included.
    pub fn operations(&self) -> usize {
        self.blocks.iter().map(|block| block.ops.len() + 1).sum()
    }
}

/// Kind of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FuncKind {
    /// A program in this ELF section (`uprobe.multi`, `uprobe.session`, `uprobe`, `perf_event`, `raw_tp`,
    /// `tracepoint`). Its argument is the context.
    Program {
        /// Section name, as libbpf defines it.
        section: String,
        /// Facts for the manifest, without attach points.
        info: ProgramInfo,
    },
    /// A function called by a helper (`bpf_loop`, `bpf_for_each_map_elem`): static, in `.text`.
    Callback {
        /// Number of arguments, 1 to 5.
        args: u8,
    },
}

/// The part of a program's manifest entry that lowering determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Clause index.
    pub clause: u32,
    /// Attach point.
    pub attach: manifest::Attach,
}

/// A stack slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes, at most 8.
    pub align: u32,
}

/// A basic block: straight-line code with one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Operations in order.
    pub ops: Vec<Inst>,
    /// Terminator.
    pub term: Term,
    /// Span of the terminator in the script.
    pub span: Span,
}

/// An operation and its span in the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// Operation.
    pub op: Op,
    /// Span.
    pub span: Span,
}

/// A register or a constant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `v1`
    Reg(VReg),
    /// `12`
    Const(i64),
}

impl From<VReg> for Operand {
    fn from(reg: VReg) -> Operand {
        Operand::Reg(reg)
    }
}

impl From<i64> for Operand {
    fn from(value: i64) -> Operand {
        Operand::Const(value)
    }
}

/// Size of a memory access.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 1 byte
    B8,
    /// 2 bytes
    B16,
    /// 4 bytes
    B32,
    /// 8 bytes
    B64,
}

impl Width {
    /// Size in bytes: 1, 2, 4 or 8.
    pub fn bytes(self) -> u32 {
        match self {
            Width::B8 => 1,
            Width::B16 => 2,
            Width::B32 => 4,
            Width::B64 => 8,
        }
    }

    /// The width with this number of bytes, if there is one.
    pub fn of(bytes: u32) -> Option<Width> {
        [Width::B8, Width::B16, Width::B32, Width::B64].into_iter().find(|width| width.bytes() == bytes)
    }
}

/// Arithmetic. Division and remainder are unsigned, and their divisor is not zero: `lower` tests it, and expands
/// signed division.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Bin {
    Add,
    Sub,
    Mul,
    /// Unsigned.
    Div,
    /// Unsigned.
    Rem,
    And,
    Or,
    Xor,
    Shl,
    /// Logical shift: fills with zeroes.
    Shr,
    /// Arithmetic shift: fills with the sign.
    Sar,
}

/// Comparison of 64-bit values.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    /// True if `lhs & rhs` is not zero.
    Test,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

impl Cmp {
    /// All comparisons.
    pub const ALL: [Cmp; 11] = {
        use Cmp::*;
        [Eq, Ne, Test, Ult, Ule, Ugt, Uge, Slt, Sle, Sgt, Sge]
    };
}

/// Atomic update of memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AtomicOp {
    Add,
    And,
    Or,
    Xor,
    Xchg,
}

/// An operation. It writes `dst` and reads all other operands.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Op {
    /// `v0 = ctx`: the context of the program; only in the entry block.
    Ctx { dst: VReg },
    /// `v0 = param 1`: the n-th argument of a callback, from 0; only in the entry block.
    Param { dst: VReg, index: u8 },
    /// `v0 = v1`, `v0 = 7`
    Mov { dst: VReg, src: Operand },
    /// `v0 = add v1, 4`
    Bin { op: Bin, dst: VReg, lhs: Operand, rhs: Operand },
    /// `v0 = neg v1`
    Neg { dst: VReg, src: VReg },
    /// `v0 = opaque v1`: a copy that the verifier tracks as a separate value: a test of one does not narrow the
    /// other
    Opaque { dst: VReg, src: VReg },
    /// `v0 = extend.s32 v1`: the low bytes of `src`, sign- or zero-extended
    Extend { dst: VReg, src: VReg, width: Width, signed: bool },
    /// `v0 = cmp.slt v1, v2`: 0 or 1
    Compare { dst: VReg, cmp: Cmp, lhs: Operand, rhs: Operand },
    /// `v0 = load.u32 [v1 + 8]`: zero- or sign-extended
    Load { dst: VReg, base: VReg, offset: i16, width: Width, signed: bool },
    /// `store.32 [v0 + 8], v1`
    Store { base: VReg, offset: i16, width: Width, src: Operand },
    /// `atomic.add.64 [v0 + 8], v1`; `fetch` receives the old value. Widths 32 and 64.
    Atomic { op: AtomicOp, base: VReg, offset: i16, width: Width, src: VReg, fetch: Option<VReg> },
    /// `v0 = cmpxchg.64 [v1 + 8], v2 -> v3`: if memory equals `expected` it becomes `new`; `dst` gets the old
    /// value
    CmpXchg { dst: VReg, base: VReg, offset: i16, width: Width, expected: VReg, new: VReg },
    /// `v0 = slot s1`: address of a stack slot
    SlotAddr { dst: VReg, slot: SlotId },
    /// `v0 = map @m`: a map, as an argument of helpers
    MapAddr { dst: VReg, map: MapRef },
    /// `v0 = data 16`: address of byte 16 of [`Module::data`] (an array map's value)
    DataAddr { dst: VReg, offset: u32 },
    /// `v0 = value @m + 16`: address of byte 16 of the value of a direct map
    ValueAddr { dst: VReg, map: MapRef, offset: u32 },
    /// `v0 = func f1`: address of a callback
    FuncAddr { dst: VReg, func: FuncRef },
    /// `v0 = call map_lookup_elem(v1, v2)`
    Call { dst: Option<VReg>, helper: Helper, args: Vec<Operand> },
    /// `v0 = kfunc bpf_session_cookie()`: calls a kernel function, declared as an extern in `.ksyms`
    Kfunc { dst: Option<VReg>, name: String, args: Vec<Operand> },
}

/// Terminator of a block.
#[derive(Copy, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Term {
    /// `jump b1`
    Jump(BlockId),
    /// `branch v0 <s 3, b1, b2`
    Branch { cmp: Cmp, lhs: VReg, rhs: Operand, then: BlockId, otherwise: BlockId },
    /// `return 0`
    Return(Operand),
}

impl Func {
    /// Returns a fresh virtual register.
    pub fn vreg(&mut self) -> VReg {
        self.vregs += 1;
        VReg(self.vregs - 1)
    }

    /// Returns a fresh stack slot.
    pub fn slot(&mut self, size: u32, align: u32) -> SlotId {
        self.slots.push(Slot { size, align });
        SlotId(self.slots.len() as u32 - 1)
    }
}
