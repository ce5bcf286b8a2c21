//! Replaces uses of a copy by its source, and uses of registers that hold a constant by the constant.
//!
//! Within a block, and over the whole function for registers with a single definition that is a constant. Addresses
//! (`slot`, `map`, `data`) stay: instruction selection rematerialises them at each use.

use super::const_fold::extend;
use crate::ir::{Func, Inst, Op, Operand, Term, VReg, build};

/// `v1 = v0; v2 = add v1, 1` becomes `v1 = v0; v2 = add v0, 1`.
pub(super) fn copy_prop(func: &mut Func) -> bool {
    let mut known = RegisterContents::of(func);
    let (mut changed, mut decided) = (false, false);
    for block in &mut func.blocks {
        known.begin_block();
        for Inst { op, .. } in &mut block.ops {
            changed |= op.replace_uses(&|reg| known.value(reg));
            changed |= fold_extension(op, |reg| known.value(reg));
            known.learn(op);
        }
        changed |= block.term.replace_uses(&|reg| known.value(reg));
        decided |= decide(&mut block.term, |reg| known.value(reg));
    }
    if decided {
        // A removed branch may have been the only predecessor of a block.
        build::drop_unreached(func);
    }
    changed | decided
}

/// Known contents of registers.
struct RegisterContents {
    /// The constant of each register whose only definition is one.
    constants: Vec<Option<Operand>>,
    /// The operand that each register is a copy of at the current point of the block.
    copies: Vec<Option<Operand>>,
    /// Registers that may have an entry in `copies`.
    copied: Vec<VReg>,
    /// For each register: whether another one may be a copy of it.
    original: Vec<bool>,
}

impl RegisterContents {
    fn of(func: &Func) -> RegisterContents {
        let none = vec![None; func.vregs as usize];
        let original = vec![false; func.vregs as usize];
        let mut known =
            RegisterContents { constants: none.clone(), copies: none, copied: Vec::new(), original };
        let mut defined = vec![false; func.vregs as usize];
        for Inst { op, .. } in func.blocks.iter().flat_map(|block| &block.ops) {
            let Some(dst) = op.dst() else { continue };
            let first = !std::mem::replace(&mut defined[dst.0 as usize], true);
            known.constants[dst.0 as usize] = match *op {
                Op::Mov { src: src @ Operand::Const(_), .. } if first => Some(src),
                _ => None,
            };
        }
        known
    }

    fn begin_block(&mut self) {
        self.copied.drain(..).for_each(|reg| self.copies[reg.0 as usize] = None);
    }

    fn value(&self, reg: VReg) -> Option<Operand> {
        self.copies[reg.0 as usize].or(self.constants[reg.0 as usize])
    }

    /// Records the result of an operation, and invalidates what it overwrites.
    fn learn(&mut self, op: &Op) {
        let Some(dst) = op.dst() else { return };
        self.copies[dst.0 as usize] = None;
        if std::mem::take(&mut self.original[dst.0 as usize]) {
            for copy in &self.copied {
                self.copies[copy.0 as usize].take_if(|value| *value == Operand::Reg(dst));
            }
        }
        if let Op::Mov { src, .. } = *op
            && src != Operand::Reg(dst)
        {
            self.copies[dst.0 as usize] = Some(src);
            self.copied.push(dst);
            src.as_reg().into_iter().for_each(|reg| self.original[reg.0 as usize] = true);
        }
    }
}

/// Replaces the extension of a constant by a constant.
fn fold_extension(op: &mut Op, value: impl Fn(VReg) -> Option<Operand>) -> bool {
    let constant = |src| value(src).and_then(Operand::as_const);
    let (dst, value) = match *op {
        Op::Extend { dst, src, width, signed } => (dst, constant(src).map(|c| extend(c, width, signed))),
        Op::Opaque { dst, src } => (dst, constant(src)),
        Op::Neg { dst, src } => (dst, constant(src).map(i64::wrapping_neg)),
        _ => return false,
    };
    value.map(|value| *op = Op::Mov { dst, src: value.into() }).is_some()
}

/// Replaces a branch on a constant by a jump.
fn decide(term: &mut Term, value: impl Fn(VReg) -> Option<Operand>) -> bool {
    let Term::Branch { lhs, then, otherwise, .. } = *term else { return false };
    let lhs = value(lhs).and_then(Operand::as_const);
    let holds = super::const_fold::decided(term, lhs);
    holds.map(|holds| *term = Term::Jump(if holds { then } else { otherwise })).is_some()
}
