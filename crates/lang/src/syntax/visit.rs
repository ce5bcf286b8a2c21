//! Visitors of the syntax tree that may change it.

use crate::syntax::ast::{
    Block, CType, Declarator, Expr, ExprKind, Item, Name, ProbeSpec, Script, SpecPart, Stmt, StmtKind,
    TypeName,
};

/// What is done with the parts of a tree; those inside others come first.
pub trait Visit {
    /// An expression or statement begins: what is visited until it is left is it, or lies in it.
    fn enter(&mut self) {}
    /// The one that began last has been visited.
    fn leave(&mut self) {}
    /// An expression.
    fn expr(&mut self, _: &mut Expr) {}
    /// A statement.
    fn stmt(&mut self, _: &mut Stmt) {}
    /// A spelling of a type.
    fn ty(&mut self, _: &mut TypeName) {}
    /// A variable that a statement declares: `let $x`, `for $i : 0..3`.
    fn var(&mut self, _: &mut Name) {}
    /// A map that a statement names: `for $kv : @m`.
    fn map(&mut self, _: &mut Name) {}
    /// Whether what runs under this condition is looked at.
    fn enters(&self, _: &Expr) -> bool {
        true
    }
}

/// Expressions alone.
pub struct Exprs<F>(pub F);

impl<F: FnMut(&mut Expr)> Visit for Exprs<F> {
    fn expr(&mut self, e: &mut Expr) {
        (self.0)(e);
    }
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measure {
    /// Expressions and statements.
    pub nodes: usize,
    /// The deepest nesting of them.
    pub levels: usize,
    level: usize,
}

impl Visit for Measure {
    fn enter(&mut self) {
        self.nodes += 1;
        self.level += 1;
        self.levels = self.levels.max(self.level);
    }

    fn leave(&mut self) {
        self.level -= 1;
    }
}

impl Measure {
    /// Measures an expression.
    pub fn of(e: &Expr) -> Measure {
        let mut measure = Measure::default();
        expr(&mut e.clone(), &mut measure);
        measure
    }
}

/// All of a script but the bodies of its macros.
pub fn script(script: &mut Script, visit: &mut dyn Visit) {
    for item in &mut script.items {
        match item {
            Item::Clause(clause) => {
                clause.probes.iter_mut().for_each(|probe| spec(probe, visit));
                clause.predicate.iter_mut().for_each(|e| expr(e, visit));
                block(&mut clause.body, visit);
            }
            Item::Define { value: e, .. } | Item::MapDecl { max_entries: e, .. } => expr(e, visit),
            Item::Declaration(declaration) => {
                c_type(&mut declaration.base, visit);
                declaration.names.iter_mut().for_each(|name| declarator(name, visit));
            }
            Item::Config(_) | Item::Metric { .. } | Item::Import(_) | Item::Macro(_) => {}
        }
    }
}

fn spec(probe: &mut ProbeSpec, visit: &mut dyn Visit) {
    for part in &mut probe.parts {
        if let SpecPart::Option(option) = &mut part.node {
            expr(option, visit);
        }
    }
}

fn c_type(ty: &mut CType, visit: &mut dyn Visit) {
    match ty {
        CType::Named(name) => type_name(name, visit),
        CType::Compound(compound) => {
            for member in &mut compound.members {
                c_type(&mut member.base, visit);
                member.names.iter_mut().for_each(|name| declarator(name, visit));
            }
        }
        CType::Enumeration(e) => {
            e.values.iter_mut().filter_map(|(_, value)| value.as_mut()).for_each(|e| expr(e, visit))
        }
    }
}

fn declarator(name: &mut Declarator, visit: &mut dyn Visit) {
    name.dims.iter_mut().flatten().chain(&mut name.bits).for_each(|e| expr(e, visit));
}

/// `typeof($x)`
fn type_name(name: &mut TypeName, visit: &mut dyn Visit) {
    name.of.iter_mut().for_each(|e| expr(e, visit));
    visit.ty(name);
}

/// A block.
pub fn block(block: &mut Block, visit: &mut dyn Visit) {
    block.stmts.iter_mut().for_each(|s| stmt(s, visit));
}

/// A statement.
pub fn stmt(stmt: &mut Stmt, visit: &mut dyn Visit) {
    visit.enter();
    match &mut stmt.kind {
        StmtKind::Expr(e) => expr(e, visit),
        StmtKind::Let { name, ty, value } => {
            visit.var(name);
            ty.iter_mut().for_each(|ty| type_name(ty, visit));
            value.iter_mut().for_each(|e| expr(e, visit));
        }
        StmtKind::Return(value) => value.iter_mut().for_each(|e| expr(e, visit)),
        StmtKind::Assign { target, value, .. } => all([target, value], visit),
        StmtKind::If { cond, then, otherwise } => {
            expr(cond, visit);
            if visit.enters(cond) {
                block(then, visit);
            }
            otherwise.iter_mut().for_each(|inner| block(inner, visit));
        }
        StmtKind::While { cond: e, body } | StmtKind::Unroll { count: e, body } => {
            expr(e, visit);
            block(body, visit);
        }
        StmtKind::ForRange { var, start, end, body } => {
            visit.var(var);
            all([start, end], visit);
            block(body, visit);
        }
        StmtKind::ForMap { var, map, body } => {
            visit.var(var);
            visit.map(map);
            block(body, visit);
        }
        StmtKind::Block(body) => block(body, visit),
        StmtKind::Break | StmtKind::Continue => {}
    }
    visit.stmt(stmt);
    visit.leave();
}

fn all<'e>(exprs: impl IntoIterator<Item = &'e mut Expr>, visit: &mut dyn Visit) {
    exprs.into_iter().for_each(|e| expr(e, visit));
}

/// An expression and those in it.
pub fn expr(e: &mut Expr, visit: &mut dyn Visit) {
    visit.enter();
    match &mut e.kind {
        ExprKind::Map { keys: Some(list), .. }
        | ExprKind::Call { args: list, .. }
        | ExprKind::Tuple(list) => all(list, visit),
        ExprKind::Field { base: inner, .. }
        | ExprKind::TupleIndex { base: inner, .. }
        | ExprKind::Unary { expr: inner, .. }
        | ExprKind::IncDec { target: inner, .. }
        | ExprKind::SizeofExpr(inner) => expr(inner, visit),
        ExprKind::Cast { ty, expr: inner } => {
            type_name(ty, visit);
            expr(inner, visit);
        }
        ExprKind::Record(members) => all(members.iter_mut().map(|(_, value)| value), visit),
        ExprKind::Type(ty) | ExprKind::SizeofType(ty) | ExprKind::OffsetOf { ty, .. } => type_name(ty, visit),
        ExprKind::Index { base: a, index: b } | ExprKind::Binary { lhs: a, rhs: b, .. } => {
            all([&mut **a, &mut **b], visit);
        }
        ExprKind::Ternary { cond, then, otherwise } => {
            expr(cond, visit);
            if visit.enters(cond) {
                then.iter_mut().for_each(|e| expr(e, visit));
            }
            expr(otherwise, visit);
        }
        ExprKind::Block { body, value } => {
            block(body, visit);
            value.iter_mut().for_each(|e| expr(e, visit));
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
    visit.expr(e);
    visit.leave();
}
