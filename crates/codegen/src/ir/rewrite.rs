//! Replaces operands of operations and targets of terminators, for passes that rewrite functions.

use super::{BlockId, Op, Operand, Term, VReg};

impl Operand {
    /// The register, if the operand is one.
    pub fn as_reg(self) -> Option<VReg> {
        match self {
            Operand::Reg(reg) => Some(reg),
            Operand::Const(_) => None,
        }
    }

    /// The constant, if the operand is one.
    pub fn as_const(self) -> Option<i64> {
        match self {
            Operand::Const(value) => Some(value),
            Operand::Reg(_) => None,
        }
    }
}

/// Replacement of a register, or `None`.
type With<'a> = &'a dyn Fn(VReg) -> Option<Operand>;

fn any(operand: &mut Operand, with: With) -> bool {
    let new = operand.as_reg().and_then(with).unwrap_or(*operand);
    std::mem::replace(operand, new) != new
}

fn reg(reg: &mut VReg, with: With) -> bool {
    match with(*reg) {
        Some(Operand::Reg(new)) => std::mem::replace(reg, new) != new,
        _ => false,
    }
}

/// Calls `one` for all items and returns whether any call returned true; does not stop at the first.
fn each<'o, T: 'o>(all: impl IntoIterator<Item = &'o mut T>, one: impl Fn(&mut T) -> bool) -> bool {
    all.into_iter().fold(false, |changed, each| one(each) | changed)
}

impl Op {
    /// Registers that are read.
    pub fn uses(&self) -> Vec<VReg> {
        let mut uses = Vec::new();
        self.for_each_use(|operand| uses.extend(operand.as_reg()));
        uses
    }

    /// Replaces registers that are read; returns whether there was one. A constant replaces a register only where
    /// the operation accepts one.
    pub fn replace_uses(&mut self, with: With) -> bool {
        match self {
            Op::Ctx { .. } | Op::Param { .. } | Op::SlotAddr { .. } => false,
            Op::MapAddr { .. } | Op::DataAddr { .. } | Op::ValueAddr { .. } | Op::FuncAddr { .. } => false,
            Op::Mov { src, .. } => any(src, with),
            Op::Bin { lhs, rhs, .. } | Op::Compare { lhs, rhs, .. } => any(lhs, with) | any(rhs, with),
            Op::Neg { src, .. } | Op::Opaque { src, .. } | Op::Extend { src, .. } => reg(src, with),
            Op::Load { base, .. } => reg(base, with),
            Op::Store { base, src, .. } => reg(base, with) | any(src, with),
            Op::Atomic { base, src, .. } => reg(base, with) | reg(src, with),
            Op::CmpXchg { base, expected, new, .. } => each([base, expected, new], |r| reg(r, with)),
            Op::Call { args, .. } | Op::Kfunc { args, .. } => each(args, |arg| any(arg, with)),
        }
    }

    /// Whether the operation has no effect but its result.
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

    /// Replaces the target blocks.
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

    /// Replaces registers that are read; returns whether there was one. A constant replaces a register only where
    /// the terminator accepts one.
    pub fn replace_uses(&mut self, with: With) -> bool {
        match self {
            Term::Jump(_) => false,
            Term::Branch { lhs, rhs, .. } => reg(lhs, with) | any(rhs, with),
            Term::Return(value) => any(value, with),
        }
    }
}
