//! Common subexpression elimination: values by case that a body uses several times are computed once.

use super::parts::{made_from_mut, parts_of_all_mut, take};
use lang::Span;
use lang::hir::visit::{direct, inner, inner_mut, operands, visit_block, visit_expr};
use lang::hir::{Arm, BinaryOp, Effects, Expr, ExprKind, Probe, Stmt, StmtKind, Var, VarId};

/// Common subexpression elimination for values by case. The value is computed at the start of the body if every
/// path uses it, otherwise in the condition that first uses it.
pub(super) fn share(probe: &mut Probe) {
    let span = probe.span;
    for value in always_used(&probe.body) {
        let mut times = 0;
        visit_block(&probe.body, &mut |e| times += usize::from(is_case(e, &value)));
        if times >= 2 {
            let var = case_variable(&mut probe.vars, &value);
            parts_of_all_mut(&mut probe.body, &mut |part| replace(part, &value, var));
            probe.body.insert(0, Stmt { kind: StmtKind::SetVar { var, value }, span });
        }
    }
    share_after_conditions(&mut probe.body, &mut probe.vars);
}

fn case_variable(vars: &mut Vec<Var>, value: &Expr) -> VarId {
    let var = VarId(vars.len() as u32);
    vars.push(Var { name: format!("case{}", var.0), ty: value.ty.clone() });
    var
}

/// `if (a && f(x)) { g(x) }` becomes `if (a && { $case = x; f($case) }) { g($case) }`.
fn share_after_conditions(body: &mut [Stmt], vars: &mut Vec<Var>) {
    for stmt in body {
        if let StmtKind::If { cond, then, .. } = &mut stmt.kind {
            share_after(cond, then, vars);
        }
        inner_mut(stmt, &mut |stmt| share_after_conditions(std::slice::from_mut(stmt), vars));
    }
}

/// Shares values of the last operand of a condition with the statements that it guards: it was evaluated whenever
/// they run.
fn share_after(cond: &mut Expr, then: &mut [Stmt], vars: &mut Vec<Var>) {
    let ExprKind::Binary { op: BinaryOp::And, rhs, .. } = &mut cond.kind else { return };
    let mut candidates: Vec<Expr> = vec![];
    always(rhs, &mut |e| candidates.extend((e.effects() == Effects::Invariant).then(|| placeless(e))));
    for value in candidates {
        let mut times = 0;
        let mut count = |e: &Expr| times += usize::from(is_case(e, &value));
        visit_expr(rhs, &mut count);
        visit_block(then, &mut count);
        if times < 2 {
            continue;
        }
        let var = case_variable(vars, &value);
        replace(rhs, &value, var);
        parts_of_all_mut(then, &mut |part| replace(part, &value, var));
        let set = Stmt { kind: StmtKind::SetVar { var, value }, span: rhs.span };
        let tested = Box::new(take(rhs));
        rhs.kind = ExprKind::Block { body: vec![set], value: tested };
    }
}

/// Values by case that are evaluated on every path through a body, without duplicates.
fn always_used(body: &[Stmt]) -> Vec<Expr> {
    let mut candidates: Vec<Expr> = vec![];
    for stmt in body.iter().take_while(|stmt| !may_leave(stmt)) {
        direct(stmt, &mut |e| {
            always(e, &mut |e| {
                if e.effects() == Effects::Invariant && !candidates.iter().any(|known| is_case(e, known)) {
                    candidates.push(placeless(e));
                }
            });
        });
    }
    candidates
}

fn may_leave(stmt: &Stmt) -> bool {
    let mut may = matches!(stmt.kind, StmtKind::Return(_) | StmtKind::Exit { .. });
    inner(stmt, &mut |stmt| may |= may_leave(stmt));
    may
}

/// Calls `see` with the values by case that an expression always evaluates.
fn always<'e>(expr: &'e Expr, see: &mut dyn FnMut(&'e Expr)) {
    match &expr.kind {
        ExprKind::ByCase(_) => see(expr),
        ExprKind::Block { .. } => {}
        ExprKind::Ternary { cond: first, .. }
        | ExprKind::Binary { op: BinaryOp::And | BinaryOp::Or, lhs: first, .. } => always(first, see),
        _ => operands(expr, &mut |e| always(e, see)),
    }
}

/// Whether the expression is this value by case; `value` has no spans.
fn is_case(expr: &Expr, value: &Expr) -> bool {
    let (ExprKind::ByCase(arms), ExprKind::ByCase(others)) = (&expr.kind, &value.kind) else { return false };
    let cases = |arms: &[Arm]| arms.iter().map(|arm| arm.cases).collect::<Vec<_>>();
    expr.ty == value.ty && cases(arms) == cases(others) && placeless(expr) == *value
}

fn replace(expr: &mut Expr, value: &Expr, var: VarId) {
    if is_case(expr, value) {
        expr.kind = ExprKind::Var(var);
    }
    made_from_mut(expr, &mut |part| replace(part, value, var));
}

/// The expression without spans.
fn placeless(expr: &Expr) -> Expr {
    fn clear(expr: &mut Expr) {
        expr.span = Span::default();
        made_from_mut(expr, &mut |part| clear(part));
    }
    let mut expr = expr.clone();
    clear(&mut expr);
    expr
}
