//! Visitors of the syntax tree: what lies in an expression, a statement or a declaration is listed here, once for looking
//! and once for changing.

use crate::syntax::ast::{Expr, Stmt};

/// Walks over a borrowed or mutably borrowed (`mut`) tree.
macro_rules! walks {
    ($iter:ident, $option:ident, $($mutable:tt)?) => {
        use crate::syntax::ast::{
            Block, CType, Clause, Declarator, Expr, ExprKind, Item, Name, ProbeSpec, Script, SpecPart, Stmt,
            StmtKind, TypeName,
        };

        /// Callbacks for the parts of a tree. A method is called after those for the nested parts, unless its name
        /// begins with `before`.
        pub trait Visit {
            /// An expression, before its subexpressions.
            fn before_expr(&mut self, _: &Expr) {}
            /// A statement, before its contents; false skips its contents and the call of `stmt`.
            fn before_stmt(&mut self, _: &Stmt) -> bool {
                true
            }
            /// An expression.
            fn expr(&mut self, _: &$($mutable)? Expr) {}
            /// A statement.
            fn stmt(&mut self, _: &$($mutable)? Stmt) {}
            /// A type name.
            fn ty(&mut self, _: &$($mutable)? TypeName) {}
            /// A variable that a statement declares: `let $x`, `for $i : 0..3`.
            fn var(&mut self, _: &$($mutable)? Name) {}
            /// A map in a statement: `for $kv : @m`.
            fn map(&mut self, _: &$($mutable)? Name) {}
            /// Whether to visit the parts that run under this condition.
            fn enters(&self, _: &Expr) -> bool {
                true
            }
        }

        /// Visits only expressions.
        pub struct Exprs<F>(pub F);

        impl<F: FnMut(&$($mutable)? Expr)> Visit for Exprs<F> {
            fn expr(&mut self, e: &$($mutable)? Expr) {
                (self.0)(e);
            }
        }

        /// Visits a script except the bodies of its macros.
        pub fn script(script: &$($mutable)? Script, visit: &mut dyn Visit) {
            for item in &$($mutable)? script.items {
                match item {
                    Item::Clause(clause) => {
                        clause.probes.$iter().for_each(|probe| spec(probe, visit));
                        self::clause(clause, visit);
                    }
                    Item::Define { value: e, .. } | Item::MapDecl { max_entries: e, .. } => expr(e, visit),
                    Item::Declaration(declaration) => {
                        c_type(&$($mutable)? declaration.base, visit);
                        declaration.names.$iter().for_each(|name| declarator(name, visit));
                    }
                    Item::Config(_) | Item::Metric { .. } | Item::Import(_) | Item::Macro(_) => {}
                }
            }
        }

        /// Visits predicate and body of a clause.
        pub fn clause(clause: &$($mutable)? Clause, visit: &mut dyn Visit) {
            clause.predicate.$iter().for_each(|e| expr(e, visit));
            block(&$($mutable)? clause.body, visit);
        }

        fn spec(probe: &$($mutable)? ProbeSpec, visit: &mut dyn Visit) {
            for part in &$($mutable)? probe.parts {
                if let SpecPart::Option(option) = &$($mutable)? part.node {
                    expr(option, visit);
                }
            }
        }

        fn c_type(ty: &$($mutable)? CType, visit: &mut dyn Visit) {
            match ty {
                CType::Named(name) => type_name(name, visit),
                CType::Compound(compound) => {
                    for member in &$($mutable)? compound.members {
                        c_type(&$($mutable)? member.base, visit);
                        member.names.$iter().for_each(|name| declarator(name, visit));
                    }
                }
                CType::Enumeration(e) => {
                    e.values.$iter().filter_map(|(_, value)| value.$option()).for_each(|e| expr(e, visit))
                }
            }
        }

        fn declarator(name: &$($mutable)? Declarator, visit: &mut dyn Visit) {
            name.dims.$iter().flatten().chain(&$($mutable)? name.bits).for_each(|e| expr(e, visit));
        }

        /// `typeof($x)`
        fn type_name(name: &$($mutable)? TypeName, visit: &mut dyn Visit) {
            name.of.$iter().for_each(|e| expr(e, visit));
            visit.ty(name);
        }

        /// Visits a block.
        pub fn block(block: &$($mutable)? Block, visit: &mut dyn Visit) {
            block.stmts.$iter().for_each(|s| stmt(s, visit));
        }

        /// Visits a statement.
        pub fn stmt(stmt: &$($mutable)? Stmt, visit: &mut dyn Visit) {
            if !visit.before_stmt(stmt) {
                return;
            }
            match &$($mutable)? stmt.kind {
                StmtKind::Expr(e) => expr(e, visit),
                StmtKind::Let { name, ty, value } => {
                    visit.var(name);
                    ty.$iter().for_each(|ty| type_name(ty, visit));
                    value.$iter().for_each(|e| expr(e, visit));
                }
                StmtKind::Return(value) => value.$iter().for_each(|e| expr(e, visit)),
                StmtKind::Assign { target, value, .. } => all([target, value], visit),
                StmtKind::If { cond, then, otherwise } => {
                    expr(cond, visit);
                    if visit.enters(cond) {
                        block(then, visit);
                    }
                    otherwise.$iter().for_each(|inner| block(inner, visit));
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
        }

        fn all<'e>(exprs: impl IntoIterator<Item = &'e $($mutable)? Expr>, visit: &mut dyn Visit) {
            exprs.into_iter().for_each(|e| expr(e, visit));
        }

        /// Visits an expression and its subexpressions.
        pub fn expr(e: &$($mutable)? Expr, visit: &mut dyn Visit) {
            visit.before_expr(e);
            match &$($mutable)? e.kind {
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
                ExprKind::Record(members) => all(members.$iter().map(|(_, value)| value), visit),
                ExprKind::Type(ty) | ExprKind::TypeInfo(ty) | ExprKind::SizeofType(ty) | ExprKind::OffsetOf { ty, .. } => type_name(ty, visit),
                ExprKind::Index { base: a, index: b } | ExprKind::Binary { lhs: a, rhs: b, .. } => {
                    all([&$($mutable)? **a, &$($mutable)? **b], visit);
                }
                ExprKind::Ternary { cond, then, otherwise } => {
                    expr(cond, visit);
                    if visit.enters(cond) {
                        then.$iter().for_each(|e| expr(e, visit));
                    }
                    expr(otherwise, visit);
                }
                ExprKind::Block { body, value } => {
                    block(body, visit);
                    value.$iter().for_each(|e| expr(e, visit));
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
        }
    };
}

/// Walks over a borrowed tree.
pub mod look {
    walks!(iter, as_ref,);
}

/// Walks over a mutably borrowed tree.
pub mod change {
    walks!(iter_mut, as_mut, mut);
}

/// Visits only expressions, each before its subexpressions.
pub struct Preorder<F>(pub F);

impl<F: FnMut(&Expr)> look::Visit for Preorder<F> {
    fn before_expr(&mut self, e: &Expr) {
        (self.0)(e);
    }
}

/// Size of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measure {
    /// Number of expressions and statements.
    pub nodes: usize,
    /// Nesting depth.
    pub levels: usize,
    level: usize,
}

impl look::Visit for Measure {
    fn before_expr(&mut self, _: &Expr) {
        self.enter();
    }

    fn before_stmt(&mut self, _: &Stmt) -> bool {
        self.enter();
        true
    }

    fn expr(&mut self, _: &Expr) {
        self.level -= 1;
    }

    fn stmt(&mut self, _: &Stmt) {
        self.level -= 1;
    }
}

impl Measure {
    fn enter(&mut self) {
        self.nodes += 1;
        self.level += 1;
        self.levels = self.levels.max(self.level);
    }

    /// Measures an expression.
    pub fn of(e: &Expr) -> Measure {
        let mut measure = Measure::default();
        look::expr(e, &mut measure);
        measure
    }
}
