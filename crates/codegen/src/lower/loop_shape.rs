//! Properties of loops of the checked program: ranges that are lowered inline, bodies that leave the clause.

use super::walk;
use lang::hir::{Expr, ExprKind, Stmt, StmtKind};

/// Longest range that is emitted as a loop in the program itself.
const SHORT: i64 = 16;

/// The bounds of a range with few iterations and no loop inside. The verifier follows every iteration, and nested loops
/// would multiply them.
pub(super) fn short_range(start: &Expr, end: &Expr, body: &[Stmt]) -> Option<(i64, i64)> {
    let (start, end) = (literal(start)?, literal(end)?);
    let is_short = end.saturating_sub(start) <= SHORT;
    (is_short && !walk::any_stmt(body, &mut is_loop)).then_some((start, end))
}

pub(super) fn is_loop(stmt: &Stmt) -> bool {
    use StmtKind::{ForMap, ForRange, Unroll, While};
    matches!(stmt.kind, ForRange { .. } | ForMap { .. } | While { .. } | Unroll { .. })
}

/// Whether an `exit` in the loop may leave the clause.
pub(super) fn may_exit(body: &[Stmt]) -> bool {
    walk::any_stmt(body, &mut |stmt| matches!(stmt.kind, StmtKind::Exit { .. }))
}

/// Whether a `return` or `exit` in the loop may leave the clause.
pub(super) fn may_leave(body: &[Stmt]) -> bool {
    walk::any_stmt(body, &mut |stmt| matches!(stmt.kind, StmtKind::Return(_) | StmtKind::Exit { .. }))
}

/// The value of a literal.
pub(super) fn literal(expr: &Expr) -> Option<i64> {
    match expr.kind {
        ExprKind::Int(value) => Some(value),
        _ => None,
    }
}
