//! Predicates on statements and expressions of the checked program.

use lang::hir::visit::{direct, inner};
pub(super) use lang::hir::visit::{visit_expr as each, visit_probe as each_of};
use lang::hir::{Expr, ExprKind, Stmt};

/// Whether `test` holds for the expression or one of its subexpressions.
pub(super) fn any(expr: &Expr, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
    let mut found = false;
    each(expr, &mut |e| found = found || test(e));
    found
}

/// Whether `test` holds for a statement or a nested one.
pub(super) fn any_stmt(body: &[Stmt], test: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    body.iter().any(|stmt| {
        let mut found = test(stmt);
        inner(stmt, &mut |stmt| found = found || any_stmt(std::slice::from_ref(stmt), test));
        found || any_in_blocks(stmt, test)
    })
}

/// The same for the statements of block expressions.
fn any_in_blocks(stmt: &Stmt, test: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    let mut found = false;
    direct(stmt, &mut |e| {
        found =
            found || any(e, &mut |e| matches!(&e.kind, ExprKind::Block { body, .. } if any_stmt(body, test)));
    });
    found
}
