//! Evaluates constant conditions and values.

use crate::hir::{BinaryOp, Expr, ExprKind, Type};

/// The value of a constant number or condition, with comparisons of texts; `None` for others.
pub(crate) fn constant(value: &Expr) -> Option<i64> {
    let holds = |e| constant(e).map(|number| number != 0);
    let holds = match &value.kind {
        ExprKind::Int(number) => return Some(*number),
        ExprKind::Cast(inner) if inner.ty == Type::Bool => return constant(inner),
        ExprKind::Not(inner) => !holds(inner)?,
        ExprKind::Binary { op: BinaryOp::And, lhs, rhs } => holds(lhs)? && holds(rhs)?,
        ExprKind::Binary { op: BinaryOp::Or, lhs, rhs } => holds(lhs)? || holds(rhs)?,
        ExprKind::Binary { op, lhs, rhs } => compare(*op, lhs, rhs)?,
        ExprKind::StrEq { lhs, rhs, limit: None } => text(lhs)? == text(rhs)?,
        _ => return None,
    };
    Some(i64::from(holds))
}

/// A text in quotes, up to its NUL.
fn text(value: &Expr) -> Option<&[u8]> {
    match &value.kind {
        ExprKind::Str(bytes) => bytes.split(|byte| *byte == 0).next(),
        _ => None,
    }
}

/// Whether a value is a literal, or a tuple of literals.
pub(crate) fn is_constant(value: &Expr) -> bool {
    match &value.kind {
        ExprKind::Int(_) | ExprKind::Str(_) => true,
        ExprKind::Tuple(parts) => parts.iter().all(is_constant),
        _ => false,
    }
}

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
