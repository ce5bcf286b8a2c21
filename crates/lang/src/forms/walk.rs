//! Walks over the tree of a script that may change what they see.

use crate::ast::{Block, CType, Declarator, Expr, ExprKind, Item, Script, Stmt, StmtKind, TypeName};

/// Calls `see` on every expression of a script, those inside others first.
pub fn script(script: &mut Script, see: &mut dyn FnMut(&mut Expr)) {
    for item in &mut script.items {
        match item {
            Item::Clause(clause) => {
                clause.predicate.iter_mut().for_each(|e| expr(e, see));
                block(&mut clause.body, see);
            }
            Item::Define { value: e, .. } | Item::MapDecl { max_entries: e, .. } => expr(e, see),
            Item::Declaration(declaration) => {
                c_type(&mut declaration.base, see);
                declaration.names.iter_mut().for_each(|name| declarator(name, see));
            }
            Item::Config(_) => {}
        }
    }
}

fn c_type(ty: &mut CType, see: &mut dyn FnMut(&mut Expr)) {
    match ty {
        CType::Named(name) => type_name(name, see),
        CType::Compound(compound) => {
            for member in &mut compound.members {
                c_type(&mut member.base, see);
                member.names.iter_mut().for_each(|name| declarator(name, see));
            }
        }
        CType::Enumeration(e) => {
            e.values.iter_mut().filter_map(|(_, value)| value.as_mut()).for_each(|e| expr(e, see))
        }
    }
}

fn declarator(name: &mut Declarator, see: &mut dyn FnMut(&mut Expr)) {
    name.dims.iter_mut().flatten().chain(&mut name.bits).for_each(|e| expr(e, see));
}

/// `typeof($x)`
fn type_name(name: &mut TypeName, see: &mut dyn FnMut(&mut Expr)) {
    name.of.iter_mut().for_each(|e| expr(e, see));
}

/// The same for a block.
pub fn block(block: &mut Block, see: &mut dyn FnMut(&mut Expr)) {
    block.stmts.iter_mut().for_each(|s| stmt(s, see));
}

fn stmt(stmt: &mut Stmt, see: &mut dyn FnMut(&mut Expr)) {
    match &mut stmt.kind {
        StmtKind::Expr(e) => expr(e, see),
        StmtKind::Let { ty, value, .. } => {
            ty.iter_mut().for_each(|ty| type_name(ty, see));
            value.iter_mut().for_each(|e| expr(e, see));
        }
        StmtKind::Return(value) => value.iter_mut().for_each(|e| expr(e, see)),
        StmtKind::Assign { target, value, .. } => all([target, value], see),
        StmtKind::If { cond, then, otherwise } => {
            expr(cond, see);
            block(then, see);
            otherwise.iter_mut().for_each(|inner| block(inner, see));
        }
        StmtKind::While { cond: e, body } | StmtKind::Unroll { count: e, body } => {
            expr(e, see);
            block(body, see);
        }
        StmtKind::ForRange { start, end, body, .. } => {
            all([start, end], see);
            block(body, see);
        }
        StmtKind::ForMap { body, .. } | StmtKind::Block(body) => block(body, see),
        StmtKind::Break | StmtKind::Continue => {}
    }
}

fn all<'e>(exprs: impl IntoIterator<Item = &'e mut Expr>, see: &mut dyn FnMut(&mut Expr)) {
    exprs.into_iter().for_each(|e| expr(e, see));
}

/// Calls `see` on the expressions in an expression, then on itself.
pub fn expr(e: &mut Expr, see: &mut dyn FnMut(&mut Expr)) {
    match &mut e.kind {
        ExprKind::Map { keys: Some(list), .. }
        | ExprKind::Call { args: list, .. }
        | ExprKind::Tuple(list) => all(list, see),
        ExprKind::Field { base: inner, .. }
        | ExprKind::TupleIndex { base: inner, .. }
        | ExprKind::Unary { expr: inner, .. }
        | ExprKind::IncDec { target: inner, .. }
        | ExprKind::SizeofExpr(inner) => expr(inner, see),
        ExprKind::Cast { ty, expr: inner } => {
            type_name(ty, see);
            expr(inner, see);
        }
        ExprKind::SizeofType(ty) | ExprKind::OffsetOf { ty, .. } => type_name(ty, see),
        ExprKind::Index { base: a, index: b } | ExprKind::Binary { lhs: a, rhs: b, .. } => {
            all([&mut **a, &mut **b], see);
        }
        ExprKind::Ternary { cond, then, otherwise } => {
            expr(cond, see);
            then.iter_mut().for_each(|e| expr(e, see));
            expr(otherwise, see);
        }
        ExprKind::Int { .. }
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Ident(_)
        | ExprKind::Var(_)
        | ExprKind::Map { keys: None, .. }
        | ExprKind::Positional(_)
        | ExprKind::PositionalCount => {}
    }
    see(e);
}
