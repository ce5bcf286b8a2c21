//! Templates: expressions that a table has as text, such as the arguments of operations; and what clauses made of them have of the
//! script's.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::source::span::{Source, Span, WithSpan};
use crate::syntax::ast::{self, Block, Clause, Expr, ExprKind, Item, Name, Stmt, StmtKind, TypeName};
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

/// Parses clauses and declarations; `change` sees them, and then all their parts get a position of the script.
pub(super) fn items(text: &str, span: Span, change: &mut dyn Visit) -> Vec<Item> {
    let source = Source::new("template", text);
    let mut script = parse(&source, &[], |_| None, &mut Diagnostics::default())
        .unwrap_or_else(|| unreachable!("`{text}` is a script"));
    visit::script(&mut script, change);
    visit::script(&mut script, &mut SetSpan(span));
    script.items
}

/// Clauses and declarations that a script does not have itself; the parts of bodies get a position of the script.
pub(super) fn added(text: &str, span: Span) -> Vec<Item> {
    let mut added = items(text, span, &mut visit::Exprs(|_: &mut Expr| {}));
    added.iter_mut().for_each(remove_spans);
    added
}

/// Makes a clause or a declaration one that the script does not have: no message points to it, and listings omit it. The parts of bodies
/// keep their positions.
pub(super) fn remove_spans(item: &mut Item) {
    match item {
        Item::Clause(clause) => {
            clause.span = Span::default();
            clause.body.span = Span::default();
            for spec in &mut clause.probes {
                spec.span = Span::default();
                spec.provider.span = Span::default();
                spec.parts.iter_mut().for_each(|part| part.span = Span::default());
            }
        }
        Item::Declaration(declaration) => declaration.span = Span::default(),
        Item::MapDecl { name, kind, .. } => (name.span, kind.span) = (Span::default(), Span::default()),
        _ => {}
    }
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

/// A use of the arguments of a probe.
pub(crate) enum ArgsUse<'e> {
    /// `args.NAME`
    Named(&'e Name),
    /// `args`
    All,
}

/// Finds the uses of arguments in expressions that are visited, parts first.
#[derive(Default)]
pub(crate) struct ArgsUses {
    /// True within `args.NAME`.
    is_named: bool,
}

impl ArgsUses {
    /// To be called before the parts of an expression are visited.
    pub(crate) fn before(&mut self, e: &Expr) {
        if !e.is_args() {
            self.is_named = matches!(&e.kind, ExprKind::Field { base, .. } if base.is_args());
        }
    }

    /// The use that an expression is, after its parts were visited.
    pub(crate) fn of<'e>(&mut self, e: &'e Expr) -> Option<ArgsUse<'e>> {
        match &e.kind {
            ExprKind::Field { base, name, .. } if base.is_args() => Some(ArgsUse::Named(name)),
            ExprKind::Ident(name) if name == "args" => {
                (!std::mem::take(&mut self.is_named)).then_some(ArgsUse::All)
            }
            _ => None,
        }
    }
}

/// `span(...)`
pub(crate) fn is_span(e: &Expr) -> bool {
    matches!(&e.kind, ExprKind::Call { name, .. } if name.node == "span")
}

/// Adds what a call of `span` lacks: the name, and the member `start`. Returns whether the start was added.
pub(crate) fn complete_span(e: &mut Expr, name: Expr, start: Expr) -> bool {
    let span = e.span;
    let ExprKind::Call { args, .. } = &mut e.kind else { return false };
    if !matches!(args.last(), Some(Expr { kind: ExprKind::Record(_), .. })) {
        args.push(Expr { kind: ExprKind::Record(Vec::new()), span });
    }
    if args.len() == 1 {
        args.insert(0, name);
    }
    let Some(Expr { kind: ExprKind::Record(members), .. }) = args.last_mut() else { return false };
    let lacks = !members.iter().any(|(key, _)| key.node == "start");
    if lacks {
        members.push((WithSpan { node: "start".into(), span }, start));
    }
    lacks
}

/// Replaces `__f(x)` by `@f(x)`, which scripts cannot call.
pub(super) fn hide_calls(e: &mut Expr) {
    let mut rename = visit::Exprs(|e: &mut Expr| {
        if let ExprKind::Call { name, .. } = &mut e.kind
            && let Some(hidden) = name.node.strip_prefix("__")
        {
            name.node = format!("@{hidden}");
        }
    });
    visit::expr(e, &mut rename);
}

/// A stand-in for an argument that the probe does not have: nothing that follows from it is an error.
pub(crate) fn absent(span: Span) -> Expr {
    Expr { kind: ExprKind::Ident(ast::ABSENT.into()), span }
}

/// Reports an argument that a probe does not have.
pub(crate) fn no_argument(diags: &mut Diagnostics, probe: &str, name: &Name, known: &[&str]) {
    let help = match &did_you_mean(&similar(&name.node, known.iter().copied()))[..] {
        [] => {
            let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            vec![format!("it has {}", names.join(", "))]
        }
        near => near.to_vec(),
    };
    let message = format!("`{probe}` has no argument `{}`", name.node);
    diags.error("E0040", name.span, message).help.extend(help);
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
