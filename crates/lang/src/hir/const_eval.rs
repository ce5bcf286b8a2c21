//! Evaluates constant conditions.

use crate::hir::{BinaryOp, Expr, ExprKind, Type};

/// The value of a constant condition; `None` for others.
pub(crate) fn truth(cond: &Expr) -> Option<bool> {
    match &cond.kind {
        ExprKind::Int(number) => Some(*number != 0),
        ExprKind::Not(inner) => truth(inner).map(|holds| !holds),
        ExprKind::Binary { op: BinaryOp::And, lhs, rhs } => Some(truth(lhs)? && truth(rhs)?),
        ExprKind::Binary { op: BinaryOp::Or, lhs, rhs } => Some(truth(lhs)? || truth(rhs)?),
        ExprKind::Binary { op, lhs, rhs } => compare(*op, lhs, rhs),
        _ => None,
    }
}

/// Compares two numbers of one type.
fn compare(op: BinaryOp, lhs: &Expr, rhs: &Expr) -> Option<bool> {
    let (ExprKind::Int(a), ExprKind::Int(b)) = (&lhs.kind, &rhs.kind) else { return None };
    let is_signed = matches!(lhs.ty, Type::Int { signed: true, .. });
    let order = if is_signed { a.cmp(b) } else { (*a as u64).cmp(&(*b as u64)) };
    Some(match op {
        BinaryOp::Eq => order.is_eq(),
        BinaryOp::Ne => order.is_ne(),
        BinaryOp::Lt => order.is_lt(),
        BinaryOp::Le => order.is_le(),
        BinaryOp::Gt => order.is_gt(),
        BinaryOp::Ge => order.is_ge(),
        _ => return None,
    })
}
