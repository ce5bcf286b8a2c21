//! Evaluates constant conditions before types are known. Arguments of an operation are often literal strings that name the kind
//! of call: a clause that filters for one kind is not attached to functions of another kind.

use crate::syntax::ast::{BinaryOp, Expr, ExprKind, UnaryOp};

/// Whether a condition holds; `None` if that depends on more than constants, or if its evaluation has side effects.
pub(crate) fn truth(e: &Expr) -> Option<bool> {
    truth_where(e, &|_| None)
}

/// As [`truth`]; `meaning` returns the expressions that replace some of its parts.
pub(crate) fn truth_where<'e>(e: &'e Expr, meaning: &dyn Fn(&'e Expr) -> Option<&'e Expr>) -> Option<bool> {
    let truth = |e| truth_where(e, meaning);
    match &e.kind {
        ExprKind::Bool(holds) => Some(*holds),
        ExprKind::Unary { op: UnaryOp::Not, expr } => truth(expr).map(|holds| !holds),
        ExprKind::Unary { op: UnaryOp::Comptime, expr } => truth(expr),
        ExprKind::Binary { op: BinaryOp::And, lhs, rhs } => both(false, lhs, rhs, meaning),
        ExprKind::Binary { op: BinaryOp::Or, lhs, rhs } => both(true, lhs, rhs, meaning),
        ExprKind::Binary { op: op @ (BinaryOp::Eq | BinaryOp::Ne), lhs, rhs } => {
            same(lhs, rhs, meaning).map(|same| same == (*op == BinaryOp::Eq))
        }
        ExprKind::Field { .. } => meaning(e).and_then(self::truth),
        _ => Some(value(e, meaning)? != Value::Number(0)),
    }
}

/// `false` in place of a condition that never holds: it may name what only the body of an expanded clause has.
pub(crate) fn as_never(condition: Option<&Expr>) -> Option<Expr> {
    let never = condition.filter(|condition| truth(condition) == Some(false))?;
    Some(Expr { kind: ExprKind::Bool(false), span: never.span })
}

/// `&&`, which `false` decides, or `||`, which `true` does.
fn both<'e>(
    deciding: bool,
    lhs: &'e Expr,
    rhs: &'e Expr,
    meaning: &dyn Fn(&'e Expr) -> Option<&'e Expr>,
) -> Option<bool> {
    let left = truth_where(lhs, meaning);
    if left == Some(deciding) {
        return left;
    }
    match (left, truth_where(rhs, meaning)) {
        (_, Some(rhs)) if rhs == deciding && is_pure(lhs) => Some(deciding),
        (Some(_), rest) => rest,
        _ => None,
    }
}

/// Whether two values are the same: one of them may be one of several, none or each of which is the other.
fn same<'e>(lhs: &'e Expr, rhs: &'e Expr, meaning: &dyn Fn(&'e Expr) -> Option<&'e Expr>) -> Option<bool> {
    let (lhs_meant, rhs_meant) = (meaning(lhs), meaning(rhs));
    if lhs_meant.is_some() || rhs_meant.is_some() {
        // A meaning has names of its own.
        return same(lhs_meant.unwrap_or(lhs), rhs_meant.unwrap_or(rhs), &|_| None);
    }
    for (one, other) in [(lhs, rhs), (rhs, lhs)] {
        if let ExprKind::Ternary { cond, then: Some(then), otherwise } = &one.kind {
            let (left, right) = (same(then, other, meaning)?, same(otherwise, other, meaning)?);
            return (left == right && is_pure(cond)).then_some(left);
        }
    }
    match (value(lhs, meaning)?, value(rhs, meaning)?) {
        (Value::Number(lhs), Value::Number(rhs)) => Some(lhs == rhs),
        (Value::Text(lhs), Value::Text(rhs)) => Some(lhs == rhs),
        // An error, which the checker reports.
        _ => None,
    }
}

#[derive(PartialEq)]
enum Value<'e> {
    Number(u64),
    Text(&'e [u8]),
}

fn value<'e>(e: &'e Expr, meaning: &dyn Fn(&'e Expr) -> Option<&'e Expr>) -> Option<Value<'e>> {
    match &e.kind {
        ExprKind::Int { value, .. } => Some(Value::Number(*value)),
        ExprKind::Str(text) => Some(Value::Text(text)),
        // Zero is the same at any width.
        ExprKind::Cast { expr, .. } => value(expr, meaning).filter(|value| *value == Value::Number(0)),
        ExprKind::Field { .. } => meaning(e).and_then(|meant| value(meant, &|_| None)),
        _ => None,
    }
}

/// Whether an expression has no side effects, as far as its syntax shows.
fn is_pure(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int { .. }
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Ident(_)
        | ExprKind::Var(_) => true,
        ExprKind::Map { keys, .. } => keys.iter().flatten().all(is_pure),
        ExprKind::Field { base: e, .. } | ExprKind::TupleIndex { base: e, .. } => is_pure(e),
        ExprKind::Unary { expr, .. } | ExprKind::Cast { expr, .. } => is_pure(expr),
        ExprKind::Binary { lhs, rhs, .. } => is_pure(lhs) && is_pure(rhs),
        ExprKind::Ternary { cond, then, otherwise } => {
            is_pure(cond) && then.iter().all(|e| is_pure(e)) && is_pure(otherwise)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::template::expression;
    use crate::source::span::Span;

    #[test]
    fn conditions_on_constants() {
        for (text, holds) in [
            ("\"map\" == \"map\"", Some(true)),
            ("\"map\" != \"unmap\" && pid == 1", None),
            ("\"map\" == \"unmap\" && pid == 1", Some(false)),
            ("@n[pid] > 0 && \"map\" == \"unmap\"", Some(false)),
            ("@n[pid]++ > 0 && \"map\" == \"unmap\"", None),
            ("strcontains(func, \"x\") && \"map\" == \"unmap\"", None),
            ("pid == 1 || \"map\" == \"map\"", Some(true)),
            ("!(pid == 1 || \"map\" == \"map\")", Some(false)),
            ("(pid == 1 ? \"a\" : pid == 2 ? \"b\" : \"c\") == \"d\"", Some(false)),
            ("\"d\" != (pid == 1 ? \"a\" : \"b\")", Some(true)),
            ("(pid == 1 ? \"a\" : \"b\") == \"a\"", None),
            ("(pid == 1 ? \"a\" : comm) == \"b\"", None),
            ("(pid == 1 ? \"a\" : \"b\") == 3", None),
            ("(@n++ == 1 ? \"a\" : \"b\") == \"c\"", None),
            ("(void *)0", Some(false)),
            ("(uint8)256", None),
            ("\"text\"", Some(true)),
            ("3", Some(true)),
            ("args.ptr != 0", None),
            ("comptime (\"map\" == \"map\")", Some(true)),
            ("comptime (typeinfo(pid).base_type == \"int\")", None),
        ] {
            assert_eq!(truth(&expression(text, Span::default())), holds, "{text}");
        }
    }
}
