//! Machine code before registers are assigned: BPF instructions over virtual registers, in basic blocks.
//!
//! Machine registers occur only where the instruction set requires them: r1 at entry, r1 to r5 before a call, r0 after it, r0
//! at compare-exchange and exit. None of them is live across blocks, except into [`Function::ENTRY`].

use super::helper::Helper;
use super::insn::{Alu, Atomic, Cmp, Reg, Width};
use crate::ir::{FuncRef, MapRef, SlotId, VReg};
use lang::Span;

/// A register, virtual or assigned.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum R {
    /// A virtual register.
    Virt(VReg),
    /// A machine register.
    Phys(Reg),
}

/// Second operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Val {
    /// A register.
    R(R),
    /// An immediate, sign-extended.
    Imm(i32),
}

/// Base of a memory access.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// An address in a register.
    R(R),
    /// A stack slot; the frame layout determines its address.
    Slot(SlotId),
}

/// A 64-bit immediate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wide {
    /// A number.
    Const(i64),
    /// Address of a map.
    Map(MapRef),
    /// Address of a byte of the module's data.
    Data(u32),
    /// Address of a byte of a direct map's value.
    Value(MapRef, u32),
    /// Address of a callback.
    Func(FuncRef),
}

/// Target of a call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A helper of the kernel.
    Helper(Helper),
    /// Index into the table of kernel functions.
    Kfunc(u32),
}

/// A kernel function that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kfunc {
    /// Name.
    pub name: String,
    /// Number of arguments.
    pub args: u8,
}

/// A machine instruction; see [`super::insn::Insn`] for the text of each instruction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Inst {
    /// If not `wide`: copies the low 32 bits, zero-extended.
    Mov {
        wide: bool,
        dst: R,
        src: Val,
    },
    Wide {
        dst: R,
        value: Wide,
    },
    /// Becomes two instructions: `r1 = r10`, `r1 += -8`
    SlotAddr {
        dst: R,
        slot: SlotId,
        offset: i32,
    },
    /// Reads and writes `dst`.
    Alu {
        op: Alu,
        dst: R,
        src: Val,
    },
    Neg {
        dst: R,
    },
    Load {
        width: Width,
        dst: R,
        base: Base,
        offset: i16,
    },
    Store {
        width: Width,
        base: Base,
        offset: i16,
        src: R,
    },
    /// A fetch writes `src`; compare-exchange reads and writes r0.
    Atomic {
        op: Atomic,
        width: Width,
        base: Base,
        offset: i16,
        src: R,
    },
    /// Reads the first `args` of r1 to r5, leaves all five undefined, and writes r0.
    Call {
        callee: Callee,
        args: u8,
    },
}

/// Terminator of a block. Targets are indices of blocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum End {
    Jump(usize),
    Branch {
        cmp: Cmp,
        lhs: R,
        rhs: Val,
        then: usize,
        otherwise: usize,
    },
    /// Reads r0.
    Exit,
}

/// An instruction with its origin.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PlacedInst {
    /// The instruction.
    pub inst: Inst,
    /// Span in the script.
    pub span: Span,
    /// Number of the selected instruction; [`INSERTED`] for spill code.
    pub origin: u32,
}

/// Origin of instructions that the register allocator inserted.
pub const INSERTED: u32 = u32::MAX;

/// A basic block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Instructions in order.
    pub insts: Vec<PlacedInst>,
    /// Terminator.
    pub end: End,
    /// Span of the terminator in the script.
    pub span: Span,
}

/// Size and alignment of a stack slot.
pub use crate::ir::Slot;

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// The first block is the entry; no jump leads to it.
    pub blocks: Vec<Block>,
    /// Number of virtual registers.
    pub vregs: u32,
    /// Slots of the IR, then slots of spilled registers.
    pub slots: Vec<Slot>,
    /// Index of the first slot of a spilled register.
    pub spills_from: usize,
}

/// How an instruction uses a register.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read.
    Use,
    /// Written.
    Def,
    /// Read and written.
    UseDef,
}

impl Role {
    /// Whether the register is read.
    pub fn reads(self) -> bool {
        self != Role::Def
    }

    /// Whether the register is written.
    pub fn writes(self) -> bool {
        self != Role::Use
    }
}

impl Function {
    /// Index of the entry block.
    pub const ENTRY: usize = 0;

    /// Returns a fresh virtual register.
    pub fn vreg(&mut self) -> VReg {
        self.vregs += 1;
        VReg(self.vregs - 1)
    }
}

impl Val {
    fn rewrite(&mut self, f: &mut impl FnMut(&mut R, Role)) {
        if let Val::R(reg) = self {
            f(reg, Role::Use);
        }
    }
}

impl Base {
    fn rewrite(&mut self, f: &mut impl FnMut(&mut R, Role)) {
        if let Base::R(reg) = self {
            f(reg, Role::Use);
        }
    }
}

impl Inst {
    /// Calls `f` with each explicit register of the instruction, which `f` may replace.
    pub fn rewrite(&mut self, f: &mut impl FnMut(&mut R, Role)) {
        match self {
            Inst::Mov { dst, src, .. } => {
                src.rewrite(f);
                f(dst, Role::Def);
            }
            Inst::Wide { dst, .. } | Inst::SlotAddr { dst, .. } => f(dst, Role::Def),
            Inst::Alu { dst, src, .. } => {
                src.rewrite(f);
                f(dst, Role::UseDef);
            }
            Inst::Neg { dst } => f(dst, Role::UseDef),
            Inst::Load { dst, base, .. } => {
                base.rewrite(f);
                f(dst, Role::Def);
            }
            Inst::Store { base, src, .. } => {
                base.rewrite(f);
                f(src, Role::Use);
            }
            Inst::Atomic { op, base, src, .. } => {
                base.rewrite(f);
                f(src, if fetches(*op) { Role::UseDef } else { Role::Use });
            }
            Inst::Call { .. } => {}
        }
    }

    /// Calls `f` with each register that is read or written, implicit ones included.
    pub fn visit(&self, f: &mut impl FnMut(R, Role)) {
        let mut copy = *self;
        copy.rewrite(&mut |reg, role| f(*reg, role));
        match *self {
            Inst::Call { args, .. } => {
                (0..args).for_each(|n| f(R::Phys(Reg::arg(n.into())), Role::Use));
                (0..=5).for_each(|n| f(R::Phys(Reg(n)), Role::Def));
            }
            Inst::Atomic { op: Atomic::CmpXchg, .. } => f(R::Phys(Reg::R0), Role::UseDef),
            _ => {}
        }
    }

    /// The slot that is accessed or whose address is computed.
    pub fn slot(&self) -> Option<SlotId> {
        match *self {
            Inst::SlotAddr { slot, .. }
            | Inst::Load { base: Base::Slot(slot), .. }
            | Inst::Store { base: Base::Slot(slot), .. }
            | Inst::Atomic { base: Base::Slot(slot), .. } => Some(slot),
            _ => None,
        }
    }

    /// Destination and source of a 64-bit move between registers.
    pub fn copy(&self) -> Option<(R, R)> {
        match *self {
            Inst::Mov { wide: true, dst, src: Val::R(src) } => Some((dst, src)),
            _ => None,
        }
    }
}

/// Whether the old value is returned in the source register.
fn fetches(op: Atomic) -> bool {
    matches!(op, Atomic::Fetch(_) | Atomic::Xchg)
}

impl End {
    /// As [`Inst::rewrite`].
    pub fn rewrite(&mut self, f: &mut impl FnMut(&mut R, Role)) {
        if let End::Branch { lhs, rhs, .. } = self {
            f(lhs, Role::Use);
            rhs.rewrite(f);
        }
    }

    /// As [`Inst::visit`].
    pub fn visit(&self, f: &mut impl FnMut(R, Role)) {
        let mut copy = *self;
        copy.rewrite(&mut |reg, role| f(*reg, role));
        if matches!(self, End::Exit) {
            f(R::Phys(Reg::R0), Role::Use);
        }
    }

    /// Successor blocks.
    pub fn successors(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, second) = match *self {
            End::Jump(to) => (Some(to), None),
            End::Branch { then, otherwise, .. } => (Some(then), Some(otherwise)),
            End::Exit => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Calls `f` with each target block and replaces the target by the result.
    pub fn retarget(&mut self, mut f: impl FnMut(usize) -> usize) {
        match self {
            End::Jump(to) => *to = f(*to),
            End::Branch { then, otherwise, .. } => {
                *then = f(*then);
                *otherwise = f(*otherwise);
            }
            End::Exit => {}
        }
    }
}
