//! Templates: expressions that a table has as text, such as the arguments of operations; and what clauses made of them have of the
//! script's.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::diagnostics::Diagnostics;
use crate::source::span::{Source, Span};
use crate::syntax::ast::{Block, Clause, Expr, ExprKind, Item, Name, Stmt, StmtKind, TypeName};
use crate::syntax::parse::parse;
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Preorder, look};

/// Renames the variables of an expression, so that they differ from those of other expressions.
pub(crate) struct RenameVariables {
    /// Added to the names.
    pub suffix: String,
}

impl RenameVariables {
    fn rename(&self, name: &mut String) {
        *name = format!("{name}@{}", self.suffix);
    }
}

impl Visit for RenameVariables {
    fn expr(&mut self, e: &mut Expr) {
        if let ExprKind::Var(name) = &mut e.kind {
            self.rename(name);
        }
    }

    fn var(&mut self, name: &mut Name) {
        self.rename(&mut name.node);
    }
}

/// Parses an expression; all its parts get a position of the script.
pub(crate) fn expression(text: &str, span: Span) -> Expr {
    let known = PARSED.with_borrow(|parsed| parsed.get(text).cloned());
    let mut value = known.unwrap_or_else(|| {
        let value = parsed(text);
        PARSED.with_borrow_mut(|parsed| parsed.insert(text.to_owned(), value.clone()));
        value
    });
    visit::expr(&mut value, &mut SetSpan(span));
    value
}

thread_local! {
    /// The expressions of the tables, by their text.
    static PARSED: RefCell<FxHashMap<String, Expr>> = RefCell::default();
}

pub(super) fn parsed(text: &str) -> Expr {
    let source = Source::new("operations", format!("BEGIN {{ _ = ({text}); }}"));
    let script = parse(&source, &[], |_| None, &mut Diagnostics::default()).unwrap_or_default();
    let first = script.items.into_iter().find_map(|item| match item {
        Item::Clause(Clause { body: Block { stmts, .. }, .. }) => stmts.into_iter().next(),
        _ => None,
    });
    let Some(StmtKind::Expr(value)) = first.map(|stmt| stmt.kind) else {
        unreachable!("`{text}` is no expression");
    };
    value
}

/// The body of a clause as one statement, its predicate as a condition.
pub(super) fn body_of(clause: Clause) -> Stmt {
    let Clause { predicate, body, span, .. } = clause;
    let kind = match predicate {
        Some(cond) => StmtKind::If { cond, then: body, otherwise: None },
        None => StmtKind::Block(body),
    };
    Stmt { kind, span }
}

/// The arguments that a clause uses, with their first positions.
pub(super) fn used_arguments(clause: &Clause) -> Vec<(String, Span)> {
    let mut used: Vec<(String, Span)> = Vec::new();
    let see = |e: &Expr| {
        if let ExprKind::Field { base, name, .. } = &e.kind
            && base.is_args()
            && !used.iter().any(|(known, _)| *known == name.node)
        {
            used.push((name.node.clone(), name.span));
        }
    };
    look::clause(clause, &mut Preorder(see));
    used
}

/// Gives all parts one position.
pub(crate) struct SetSpan(pub Span);

impl Visit for SetSpan {
    fn expr(&mut self, e: &mut Expr) {
        let span = self.0;
        e.span = span;
        match &mut e.kind {
            ExprKind::Field { name, .. } | ExprKind::Call { name, .. } => name.span = span,
            ExprKind::Cast { ty: TypeName { span: at, .. }, .. } => *at = span,
            ExprKind::Record(members) => members.iter_mut().for_each(|(name, _)| name.span = span),
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &mut Stmt) {
        stmt.span = self.0;
    }

    fn var(&mut self, name: &mut Name) {
        name.span = self.0;
    }
}
