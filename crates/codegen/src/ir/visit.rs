//! Uses and definitions of each operation, in one place for all passes.

use super::{BlockId, Func, Op, Operand, Term, VReg};

impl Op {
    /// The register that is written.
    pub fn dst(&self) -> Option<VReg> {
        match *self {
            Op::Ctx { dst }
            | Op::Param { dst, .. }
            | Op::Mov { dst, .. }
            | Op::Bin { dst, .. }
            | Op::Neg { dst, .. }
            | Op::Opaque { dst, .. }
            | Op::Extend { dst, .. }
            | Op::Compare { dst, .. }
            | Op::Load { dst, .. }
            | Op::CmpXchg { dst, .. }
            | Op::SlotAddr { dst, .. }
            | Op::MapAddr { dst, .. }
            | Op::DataAddr { dst, .. }
            | Op::ValueAddr { dst, .. }
            | Op::FuncAddr { dst, .. } => Some(dst),
            Op::Atomic { fetch, .. } => fetch,
            Op::Call { dst, .. } | Op::Kfunc { dst, .. } => dst,
            Op::Store { .. } => None,
        }
    }

    /// Calls `f` with each operand that is read.
    pub fn for_each_use(&self, mut f: impl FnMut(Operand)) {
        match self {
            Op::Ctx { .. }
            | Op::Param { .. }
            | Op::SlotAddr { .. }
            | Op::MapAddr { .. }
            | Op::DataAddr { .. }
            | Op::ValueAddr { .. }
            | Op::FuncAddr { .. } => {}
            Op::Mov { src, .. } => f(*src),
            Op::Neg { src, .. } | Op::Opaque { src, .. } | Op::Extend { src, .. } => f((*src).into()),
            Op::Bin { lhs, rhs, .. } | Op::Compare { lhs, rhs, .. } => [*lhs, *rhs].into_iter().for_each(f),
            Op::Load { base, .. } => f((*base).into()),
            Op::Store { base, src, .. } => [(*base).into(), *src].into_iter().for_each(f),
            Op::Atomic { base, src, .. } => [*base, *src].map(Operand::from).into_iter().for_each(f),
            Op::CmpXchg { base, expected, new, .. } => {
                [*base, *expected, *new].map(Operand::from).into_iter().for_each(f)
            }
            Op::Call { args, .. } | Op::Kfunc { args, .. } => args.iter().copied().for_each(f),
        }
    }
}

impl Term {
    /// Calls `f` with each operand that is read.
    pub fn for_each_use(&self, mut f: impl FnMut(Operand)) {
        match *self {
            Term::Jump(_) => {}
            Term::Branch { lhs, rhs, .. } => [lhs.into(), rhs].into_iter().for_each(f),
            Term::Return(value) => f(value),
        }
    }

    /// Successor blocks.
    pub fn successors(&self) -> impl Iterator<Item = BlockId> + use<> {
        let (first, second) = match *self {
            Term::Jump(to) => (Some(to), None),
            Term::Branch { then, otherwise, .. } => (Some(then), Some(otherwise)),
            Term::Return(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}

impl Func {
    /// Number of uses of each register.
    pub fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.vregs as usize];
        let mut count = |operand| {
            if let Operand::Reg(reg) = operand {
                uses[reg.0 as usize] += 1;
            }
        };
        for block in &self.blocks {
            block.ops.iter().for_each(|inst| inst.op.for_each_use(&mut count));
            block.term.for_each_use(&mut count);
        }
        uses
    }
}
