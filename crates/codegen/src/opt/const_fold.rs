//! Folds operations on constants, and removes operations without effect.
//!
//! Division by a constant zero does not occur: `lower` never emits one.

use crate::ir::{Bin, Cmp, Func, Op, Operand, Term, VReg, Width};

/// `v1 = add 2, 3` becomes `v1 = 5`; `v1 = add v0, 0` becomes `v1 = v0`; a branch on constants becomes a jump.
pub(super) fn const_fold(func: &mut Func) -> bool {
    let mut changed = false;
    for inst in func.blocks.iter_mut().flat_map(|block| &mut block.ops) {
        if let Some(op) = fold(&inst.op).filter(|op| *op != inst.op) {
            inst.op = op;
            changed = true;
        }
    }
    changed
}

fn fold(op: &Op) -> Option<Op> {
    match *op {
        Op::Bin { op, dst, lhs: Operand::Const(a), rhs: Operand::Const(b) } => {
            eval(op, a, b).map(|value| constant(dst, value))
        }
        Op::Bin { op, dst, lhs, rhs: Operand::Const(b) } => simpler(op, dst, lhs, b),
        Op::Bin { op, dst, lhs: Operand::Const(a), rhs } if commutes(op) => {
            Some(Op::Bin { op, dst, lhs: rhs, rhs: Operand::Const(a) })
        }
        Op::Compare { dst, cmp, lhs: Operand::Const(a), rhs: Operand::Const(b) } => {
            Some(constant(dst, i64::from(holds(cmp, a, b))))
        }
        _ => None,
    }
}

fn constant(dst: VReg, value: i64) -> Op {
    Op::Mov { dst, src: Operand::Const(value) }
}

fn commutes(op: Bin) -> bool {
    matches!(op, Bin::Add | Bin::Mul | Bin::And | Bin::Or | Bin::Xor)
}

/// The value of an operation on constants.
pub(super) fn eval(op: Bin, a: i64, b: i64) -> Option<i64> {
    let shift = (b & 63) as u32;
    Some(match op {
        Bin::Add => a.wrapping_add(b),
        Bin::Sub => a.wrapping_sub(b),
        Bin::Mul => a.wrapping_mul(b),
        Bin::Div => (a as u64).checked_div(b as u64)? as i64,
        Bin::Rem => (a as u64).checked_rem(b as u64)? as i64,
        Bin::And => a & b,
        Bin::Or => a | b,
        Bin::Xor => a ^ b,
        Bin::Shl => a << shift,
        Bin::Shr => (a as u64 >> shift) as i64,
        Bin::Sar => a >> shift,
    })
}

/// Whether a comparison of constants holds.
pub(super) fn holds(cmp: Cmp, a: i64, b: i64) -> bool {
    let (ua, ub) = (a as u64, b as u64);
    match cmp {
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Test => a & b != 0,
        Cmp::Ult => ua < ub,
        Cmp::Ule => ua <= ub,
        Cmp::Ugt => ua > ub,
        Cmp::Uge => ua >= ub,
        Cmp::Slt => a < b,
        Cmp::Sle => a <= b,
        Cmp::Sgt => a > b,
        Cmp::Sge => a >= b,
    }
}

/// Simplifies operations with neutral and absorbing constants, and with powers of two.
fn simpler(op: Bin, dst: VReg, lhs: Operand, by: i64) -> Option<Op> {
    let power = (by > 0 && by & (by - 1) == 0).then(|| i64::from(by.trailing_zeros()));
    let with = |op, by| Some(Op::Bin { op, dst, lhs, rhs: Operand::Const(by) });
    match (op, by) {
        (Bin::Add | Bin::Sub | Bin::Or | Bin::Xor | Bin::Shl | Bin::Shr | Bin::Sar, 0)
        | (Bin::Mul | Bin::Div, 1)
        | (Bin::And, -1) => Some(Op::Mov { dst, src: lhs }),
        (Bin::Mul | Bin::And, 0) | (Bin::Rem, 1) => Some(constant(dst, 0)),
        (Bin::Mul, _) => with(Bin::Shl, power?),
        (Bin::Div, _) => with(Bin::Shr, power?),
        (Bin::Rem, _) => power.and_then(|_| with(Bin::And, by - 1)),
        _ => None,
    }
}

/// Extends a constant.
pub(super) fn extend(value: i64, width: Width, signed: bool) -> i64 {
    let unused = 64 - 8 * width.bytes();
    if signed { value << unused >> unused } else { ((value as u64) << unused >> unused) as i64 }
}

/// Whether the branch is taken, if that is known.
pub(super) fn decided(term: &Term, lhs: Option<i64>) -> Option<bool> {
    match *term {
        Term::Branch { cmp, rhs: Operand::Const(rhs), .. } => lhs.map(|lhs| holds(cmp, lhs, rhs)),
        _ => None,
    }
}
