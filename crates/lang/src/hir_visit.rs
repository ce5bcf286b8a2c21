//! Walks over all expressions of a checked program.

use crate::hir::{Expr, ExprKind, Program, Stmt, StmtKind};

/// Calls `see` on every expression, each before those in it.
pub fn visit(program: &Program, see: &mut dyn FnMut(&Expr)) {
    for probe in &program.probes {
        probe.predicate.iter().for_each(|e| visit_expr(e, see));
        visit_block(&probe.body, see);
    }
}

/// The same for a block.
pub fn visit_block(stmts: &[Stmt], see: &mut dyn FnMut(&Expr)) {
    stmts.iter().for_each(|stmt| visit_stmt(&stmt.kind, see));
}

fn visit_stmt(kind: &StmtKind, see: &mut dyn FnMut(&Expr)) {
    match kind {
        StmtKind::SetVar { value: e, .. }
        | StmtKind::Expr(e)
        | StmtKind::PrintValue(e)
        | StmtKind::Signal { number: e, .. }
        | StmtKind::Exit { code: e } => visit_expr(e, see),
        StmtKind::SetMap { key, value, .. } => {
            visit_all(key, see);
            visit_expr(value, see);
        }
        StmtKind::Aggregate { key, arg, .. } => {
            visit_all(key, see);
            arg.iter().for_each(|e| visit_expr(e, see));
        }
        StmtKind::If { cond, then, otherwise } => {
            visit_expr(cond, see);
            visit_block(then, see);
            visit_block(otherwise, see);
        }
        StmtKind::While { cond, body } => {
            visit_expr(cond, see);
            visit_block(body, see);
        }
        StmtKind::ForRange { start, end, body, .. } => {
            visit_all([start, end], see);
            visit_block(body, see);
        }
        StmtKind::Unroll { body, .. } | StmtKind::ForMap { body, .. } => visit_block(body, see),
        StmtKind::Export { hidden, fields, .. } => {
            visit_all(hidden.iter().map(|(_, e)| e), see);
            visit_all(fields.iter().map(|(_, e)| e), see);
        }
        StmtKind::Printf { args: list, .. }
        | StmtKind::Message { args: list, .. }
        | StmtKind::PrintEntry { key: list, .. } => visit_all(list, see),
        StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::PrintMap { .. }
        | StmtKind::Rows(_)
        | StmtKind::Clear(_)
        | StmtKind::Zero(_)
        | StmtKind::Time(_) => {}
    }
}

fn visit_all<'e>(exprs: impl IntoIterator<Item = &'e Expr>, see: &mut dyn FnMut(&Expr)) {
    exprs.into_iter().for_each(|e| visit_expr(e, see));
}

/// The same for an expression and those in it.
pub fn visit_expr(e: &Expr, see: &mut dyn FnMut(&Expr)) {
    see(e);
    match &e.kind {
        ExprKind::MapGet { key, .. } | ExprKind::HasKey { key, .. } | ExprKind::Delete { key, .. } => {
            visit_all(key, see)
        }
        ExprKind::Neg(a)
        | ExprKind::BitNot(a)
        | ExprKind::Not(a)
        | ExprKind::Cast(a)
        | ExprKind::Kernel(a)
        | ExprKind::Usym(a)
        | ExprKind::Strftime(a)
        | ExprKind::Load { base: a, .. }
        | ExprKind::TupleGet { base: a, .. }
        | ExprKind::Member { base: a, .. }
        | ExprKind::StrContains { haystack: a, .. }
        | ExprKind::StrFind { haystack: a, .. }
        | ExprKind::StrLen(a)
        | ExprKind::StrHash(a)
        | ExprKind::StrCase { text: a, .. }
        | ExprKind::ByteSwap(a)
        | ExprKind::Lookup(a)
        | ExprKind::UpdateVar { value: a, .. } => visit_expr(a, see),
        ExprKind::Block { body, value } => {
            visit_block(body, see);
            visit_expr(value, see);
        }
        ExprKind::Binary { lhs: a, rhs: b, .. }
        | ExprKind::StrEq { lhs: a, rhs: b, .. }
        | ExprKind::StrConcat { lhs: a, rhs: b }
        | ExprKind::Element { base: a, index: b }
        | ExprKind::StrIndex { base: a, index: b }
        | ExprKind::ReadBuf { base: a, len: b } => visit_all([&**a, &**b], see),
        ExprKind::Ternary { cond, then, otherwise } => visit_all([&**cond, &**then, &**otherwise], see),
        ExprKind::Tuple(parts) => visit_all(parts, see),
        ExprKind::ReadStr { base, limit } => {
            visit_expr(base, see);
            limit.iter().for_each(|e| visit_expr(e, see));
        }
        ExprKind::UpdateMap { key, value, .. } => {
            visit_all(key, see);
            visit_expr(value, see);
        }
        _ => {}
    }
}
