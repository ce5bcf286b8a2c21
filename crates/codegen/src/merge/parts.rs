//! Takes the expressions out of a probe, and puts the merged ones back.

use lang::hir::visit::{direct_mut, inner_mut, operands_mut};
use lang::hir::{Expr, ExprKind, Probe, Stmt, Var};

/// A probe of a group.
pub(super) struct Member<'p> {
    pub probe: &'p Probe,
    /// Its outermost expressions: the predicate and those of the statements.
    pub parts: Vec<Expr>,
    /// Its variables: those that the group shares, then those that occur only in expressions.
    pub vars: Vec<Var>,
}

impl<'p> Member<'p> {
    /// A probe that cannot be merged.
    pub(super) fn alone(probe: &'p Probe) -> Member<'p> {
        Member { probe, parts: vec![], vars: vec![] }
    }
}

/// Takes the contents of an expression; only its type stays.
pub(super) fn take(expr: &mut Expr) -> Expr {
    let kind = std::mem::replace(&mut expr.kind, ExprKind::Int(0));
    Expr { kind, ty: expr.ty.clone(), span: expr.span }
}

/// Calls `f` with the outermost expressions of a probe: its predicate and those of its statements.
pub(super) fn parts_mut(probe: &mut Probe, f: &mut dyn FnMut(&mut Expr)) {
    probe.predicate.iter_mut().for_each(&mut *f);
    parts_of_all_mut(&mut probe.body, f);
}

pub(super) fn parts_of_all_mut(body: &mut [Stmt], f: &mut dyn FnMut(&mut Expr)) {
    body.iter_mut().for_each(|stmt| parts_of_mut(stmt, f));
}

fn parts_of_mut(stmt: &mut Stmt, f: &mut dyn FnMut(&mut Expr)) {
    direct_mut(stmt, &mut |e| f(e));
    inner_mut(stmt, &mut |stmt| parts_of_mut(stmt, f));
}

/// Calls `f` with the operands of an expression, and for a block with the expressions in its statements.
pub(super) fn made_from_mut(expr: &mut Expr, f: &mut dyn FnMut(&mut Expr)) {
    if let ExprKind::Block { body, .. } = &mut expr.kind {
        parts_of_all_mut(body, f);
    }
    operands_mut(expr, &mut |e| f(e));
}
