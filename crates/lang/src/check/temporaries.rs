//! Temporaries for values that are used several times and must be evaluated once.

use crate::builtins::args::Args;
use crate::check::Checker;
use crate::hir::visit::visit_expr;
use crate::hir::{Expr, ExprKind, Stmt};

impl Checker<'_> {
    /// The value as an expression without cost and side effects: itself, or a variable that `setup` sets.
    pub(crate) fn evaluate_once(&mut self, value: &Expr, setup: &mut Vec<Stmt>) -> Expr {
        if is_single(value)
            || matches!(&value.kind, ExprKind::Tuple(parts) if !parts.iter().any(Expr::changes))
        {
            return value.clone();
        }
        self.kept(value.clone(), setup)
    }
}

/// Whether the expression has no operands, or is a part of such a tuple: `$kv.0`.
pub(super) fn is_single(e: &Expr) -> bool {
    if let ExprKind::TupleGet { base, .. } = &e.kind {
        return is_single(base);
    }
    let mut count = 0;
    visit_expr(e, &mut |_| count += 1);
    count == 1
}
