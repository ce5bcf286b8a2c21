//! Reads the original instead of its copy, and constants instead of registers that hold one.
//!
//! Within a block, and over the whole function for registers with a single definition that is a constant. Addresses
//! (`slot`, `map`, `data`) stay: instruction selection says them anew at each use.

use super::const_fold::extend;
use crate::ir::{Func, Inst, Op, Operand, Term, VReg, build};
use std::collections::HashMap;

/// `v1 = v0; v2 = add v1, 1` becomes `v1 = v0; v2 = add v0, 1`.
pub fn copy_prop(func: &mut Func) -> bool {
    let constants = single_constants(func);
    let mut changed = false;
    for block in &mut func.blocks {
        let mut known: HashMap<VReg, Operand> = HashMap::new();
        for Inst { op, .. } in &mut block.ops {
            let old = op.clone();
            op.replace_uses(&|reg| known.get(&reg).or_else(|| constants.get(&reg)).copied());
            fold_extension(op, |reg| known.get(&reg).or_else(|| constants.get(&reg)).copied());
            changed |= *op != old;
            learn(op, &mut known);
        }
        let old = block.term;
        block.term.replace_uses(&|reg| known.get(&reg).or_else(|| constants.get(&reg)).copied());
        decide(&mut block.term, |reg| known.get(&reg).or_else(|| constants.get(&reg)).copied());
        changed |= block.term != old;
    }
    // A branch that is decided may have been the only way to a block.
    changed | build::drop_unreached(func)
}

/// Registers whose only definition is a constant.
fn single_constants(func: &Func) -> HashMap<VReg, Operand> {
    let mut definitions: HashMap<VReg, Option<Operand>> = HashMap::new();
    for inst in func.blocks.iter().flat_map(|block| &block.ops) {
        if let Some(dst) = inst.op.dst() {
            let value = match inst.op {
                Op::Mov { src: src @ Operand::Const(_), .. } => Some(src),
                _ => None,
            };
            definitions.entry(dst).and_modify(|old| *old = None).or_insert(value);
        }
    }
    definitions.into_iter().filter_map(|(reg, value)| Some((reg, value?))).collect()
}

/// Takes note of what a block's operation makes known, and forgets what it overwrites.
fn learn(op: &Op, known: &mut HashMap<VReg, Operand>) {
    if let Some(dst) = op.dst() {
        known.remove(&dst);
        known.retain(|_, value| *value != Operand::Reg(dst));
        if let Op::Mov { src, .. } = *op
            && src != Operand::Reg(dst)
        {
            known.insert(dst, src);
        }
    }
}

/// An extension of a constant is one.
fn fold_extension(op: &mut Op, value: impl Fn(VReg) -> Option<Operand>) {
    match *op {
        Op::Extend { dst, src, width, signed } => {
            if let Some(Operand::Const(constant)) = value(src) {
                *op = Op::Mov { dst, src: extend(constant, width, signed).into() };
            }
        }
        Op::Neg { dst, src } => {
            if let Some(Operand::Const(constant)) = value(src) {
                *op = Op::Mov { dst, src: constant.wrapping_neg().into() };
            }
        }
        _ => {}
    }
}

/// A branch on a constant is a jump.
fn decide(term: &mut Term, value: impl Fn(VReg) -> Option<Operand>) {
    if let Term::Branch { lhs, then, otherwise, .. } = *term {
        let lhs = value(lhs).and_then(Operand::as_const);
        if let Some(holds) = super::const_fold::decided(term, lhs) {
            *term = Term::Jump(if holds { then } else { otherwise });
        }
    }
}
