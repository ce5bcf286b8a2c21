//! Replaces what operations read and where blocks go, for passes that rewrite functions.

use super::{BlockId, Op, Operand, Term, VReg};

impl Operand {
    /// The register, if it is one.
    pub fn as_reg(self) -> Option<VReg> {
        match self {
            Operand::Reg(reg) => Some(reg),
            Operand::Const(_) => None,
        }
    }

    /// The constant, if it is one.
    pub fn as_const(self) -> Option<i64> {
        match self {
            Operand::Const(value) => Some(value),
            Operand::Reg(_) => None,
        }
    }
}

/// What a register is replaced by, if at all.
type With<'a> = &'a dyn Fn(VReg) -> Option<Operand>;

fn any(operand: &mut Operand, with: With) {
    if let Some(new) = operand.as_reg().and_then(with) {
        *operand = new;
    }
}

fn reg(reg: &mut VReg, with: With) {
    if let Some(Operand::Reg(new)) = with(*reg) {
        *reg = new;
    }
}

impl Op {
    /// Registers that are read.
    pub fn uses(&self) -> Vec<VReg> {
        let mut uses = Vec::new();
        self.for_each_use(|operand| uses.extend(operand.as_reg()));
        uses
    }

    /// Replaces registers that are read. A constant goes only where the operation takes one.
    pub fn replace_uses(&mut self, with: With) {
        match self {
            Op::Ctx { .. } | Op::Param { .. } | Op::SlotAddr { .. } => {}
            Op::MapAddr { .. } | Op::DataAddr { .. } | Op::FuncAddr { .. } => {}
            Op::Mov { src, .. } => any(src, with),
            Op::Bin { lhs, rhs, .. } | Op::Compare { lhs, rhs, .. } => {
                any(lhs, with);
                any(rhs, with);
            }
            Op::Neg { src, .. } | Op::Extend { src, .. } => reg(src, with),
            Op::Load { base, .. } => reg(base, with),
            Op::Store { base, src, .. } => {
                reg(base, with);
                any(src, with);
            }
            Op::Atomic { base, src, .. } => [base, src].into_iter().for_each(|r| reg(r, with)),
            Op::CmpXchg { base, expected, new, .. } => {
                [base, expected, new].into_iter().for_each(|r| reg(r, with));
            }
            Op::Call { args, .. } | Op::Kfunc { args, .. } => args.iter_mut().for_each(|a| any(a, with)),
        }
    }

    /// Nothing but the written register tells that it ran.
    pub fn is_pure(&self) -> bool {
        !matches!(
            self,
            Op::Store { .. } | Op::Atomic { .. } | Op::CmpXchg { .. } | Op::Call { .. } | Op::Kfunc { .. }
        )
    }
}

impl Term {
    /// Registers that are read.
    pub fn uses(&self) -> Vec<VReg> {
        let mut uses = Vec::new();
        self.for_each_use(|operand| uses.extend(operand.as_reg()));
        uses
    }

    /// Replaces the blocks that it goes to.
    pub fn map_targets(&mut self, f: impl Fn(BlockId) -> BlockId) {
        match self {
            Term::Jump(to) => *to = f(*to),
            Term::Branch { then, otherwise, .. } => {
                *then = f(*then);
                *otherwise = f(*otherwise);
            }
            Term::Return(_) => {}
        }
    }

    /// Replaces registers that are read. A constant goes only where the terminator takes one.
    pub fn replace_uses(&mut self, with: With) {
        match self {
            Term::Jump(_) => {}
            Term::Branch { lhs, rhs, .. } => {
                reg(lhs, with);
                any(rhs, with);
            }
            Term::Return(value) => any(value, with),
        }
    }
}
