//! Variables of merged probes. Variables of statements are the same in all probes. An expression that only some probes have, such
//! as the size of an array from its descriptor, may have additional variables.

use super::parts::{Member, made_from_mut, parts_mut};
use lang::hir::visit::inner_mut;
use lang::hir::{Expr, ExprKind, Probe, Stmt, StmtKind, Var, VarId};

/// Renumbers the variables of a probe in the order of their definition, those of its statements before those that
/// occur only in its expressions. Returns them in this order, and the number of those in statements.
pub(super) fn in_order(probe: &mut Probe, vars: &[Var]) -> (Vec<Var>, usize) {
    let mut order = Order { numbers: vec![None; vars.len()], vars, ordered: vec![] };
    probe.body.iter_mut().for_each(|stmt| set_in(stmt, &mut |var| order.number(var)));
    let in_statements = order.ordered.len();
    if !vars.is_empty() {
        parts_mut(probe, &mut |part| in_expression(part, &mut |var| order.number(var)));
    }
    (order.ordered, in_statements)
}

struct Order<'v> {
    vars: &'v [Var],
    /// New number, indexed by old number.
    numbers: Vec<Option<VarId>>,
    ordered: Vec<Var>,
}

impl Order<'_> {
    fn number(&mut self, var: &mut VarId) {
        let old = var.0 as usize;
        *var = *self.numbers[old].get_or_insert_with(|| {
            self.ordered.push(self.vars[old].clone());
            VarId(self.ordered.len() as u32 - 1)
        });
    }
}

/// One list of variables for all members. The first `in_statements` are equal in all. The others are shared by
/// type, since a run uses the variables of one member only. The members' expressions are renumbered.
pub(super) fn shared(in_statements: usize, members: &mut [Member<'_>]) -> Vec<Var> {
    let mut all = members[0].vars.clone();
    for member in members {
        let mut numbers: Vec<VarId> = (0..in_statements as u32).map(VarId).collect();
        for var in &member.vars[in_statements..] {
            let free = numbers.last().map_or(0, |last| last.0 as usize + 1).max(in_statements);
            let at = (free..all.len()).find(|&at| all[at].ty == var.ty).unwrap_or_else(|| {
                all.push(var.clone());
                all.len() - 1
            });
            numbers.push(VarId(at as u32));
        }
        if (0..).zip(&numbers).any(|(at, number)| number.0 != at) {
            let mut number = |var: &mut VarId| *var = numbers[var.0 as usize];
            member.parts.iter_mut().for_each(|part| in_expression(part, &mut number));
        }
    }
    all
}

/// Calls `f` with the variables that a statement and its nested statements set, without those set in expressions.
fn set_in(stmt: &mut Stmt, f: &mut dyn FnMut(&mut VarId)) {
    if let StmtKind::SetVar { var, .. } | StmtKind::ForRange { var, .. } | StmtKind::ForMap { var, .. } =
        &mut stmt.kind
    {
        f(var);
    }
    inner_mut(stmt, &mut |stmt| set_in(stmt, f));
}

/// Calls `f` with the variables of an expression.
fn in_expression(expr: &mut Expr, f: &mut dyn FnMut(&mut VarId)) {
    match &mut expr.kind {
        ExprKind::Var(var) | ExprKind::VarAddress(var) | ExprKind::UpdateVar { var, .. } => f(var),
        ExprKind::Block { body, .. } => body.iter_mut().for_each(|stmt| set_in(stmt, f)),
        _ => {}
    }
    made_from_mut(expr, &mut |part| in_expression(part, f));
}
