//! Templates: clauses and expressions that replace a call such as `kernel_name(h)` or `alloc_size(p)`.

use crate::syntax::ast::{Block, Stmt, StmtKind, TypeName};
use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::diagnostics::Diagnostics;
use crate::source::span::{Source, Span, Spanned};
use crate::syntax::ast::{Clause, Expr, ExprKind, Item, Name, ProbeSpec, Script, SpecPart};
use crate::syntax::parse::parse;
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Preorder, look};

/// Visits what may ask: bodies and conditions of clauses that see a process's call, and constants.
pub(crate) fn askers(script: &mut Script, visit: &mut impl Visit) {
    for item in &mut script.items {
        match item {
            Item::Clause(clause) if clause.probes.iter().any(is_call) => {
                if clause.predicate.as_ref().is_some_and(|predicate| !visit.enters(predicate)) {
                    continue;
                }
                visit::clause(clause, visit);
            }
            Item::Define { value, .. } => visit::expr(value, visit),
            _ => {}
        }
    }
}

/// The attach points of the clauses that ask by this name.
pub(crate) fn probes_that_ask(script: &Script, name: &str) -> Vec<ProbeSpec> {
    let mut probes = Vec::new();
    for item in &script.items {
        let Item::Clause(clause) = item else { continue };
        let mut asks = false;
        let see = |e: &Expr| {
            asks |= matches!(&e.kind, ExprKind::Call { name: called, .. } if called.node == name);
        };
        look::clause(clause, &mut Preorder(see));
        if asks {
            probes.extend(clause.probes.iter().filter(|probe| is_call(probe)).cloned());
        }
    }
    probes
}

/// Elsewhere there is no process that could be meant; the checker says so.
fn is_call(spec: &ProbeSpec) -> bool {
    let provider = spec.provider.node.to_lowercase();
    ["uprobe", "u", "uretprobe", "ur", "usdt", "cuda", "cudart"].contains(&provider.as_str())
}

/// Functions that tell what scripts ask for, and what is kept of it. A driver, or a program, need not have them.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Symbols, all of one library.
    pub functions: &'static [&'static str],
    /// Listens when a call begins, not when it has returned.
    pub start: bool,
    /// A predicate.
    pub when: Option<&'static str>,
    /// The body.
    pub then: &'static str,
    /// Words of the body, and what stands for them.
    pub given: &'static [(&'static str, &'static str)],
}

impl Listener {
    /// Its clause; `name` is what the attach point says of itself: `cuda:kernel_name`.
    pub fn clauses(&self, name: &str) -> Vec<Item> {
        let start = if self.start { ":start" } else { "" };
        let when = self.when.map_or(String::new(), |when| format!("/ {when} /"));
        let then =
            self.given.iter().fold(self.then.to_owned(), |text, (word, given)| text.replace(word, given));
        let mut items = items(name, &format!("cuda:{name}{start} {when} {{ {then} }}"));
        for item in &mut items {
            if let Item::Clause(clause) = item {
                let part = |function: &&str| Spanned {
                    node: SpecPart::Quoted(function.to_string()),
                    span: Span::default(),
                };
                clause.probes[0].parts.extend(self.functions.iter().map(part));
            }
        }
        items
    }
}

thread_local! {
    /// What was read before: at the prompt most clauses ask for the same.
    static READ: RefCell<FxHashMap<(String, String), Vec<Item>>> = RefCell::default();
}

/// Clauses and maps that a script gets besides. What the script does not have has no place in it.
pub(crate) fn items(name: &str, text: &str) -> Vec<Item> {
    let asked = (name.to_owned(), text.to_owned());
    READ.with_borrow_mut(|read| read.entry(asked).or_insert_with(|| read_items(name, text)).clone())
}

fn read_items(name: &str, text: &str) -> Vec<Item> {
    let mut script =
        parse(&Source::new(name, text), &[], |_| None, &mut Diagnostics::default()).unwrap_or_default();
    visit::script(&mut script, &mut At(Span::default()));
    for item in &mut script.items {
        match item {
            Item::Clause(clause) => nowhere(clause),
            Item::MapDecl { name, kind, .. } => {
                (name.span, kind.span) = (Span::default(), Span::default());
            }
            _ => {}
        }
    }
    script.items
}

fn nowhere(clause: &mut Clause) {
    clause.span = Span::default();
    clause.body.span = Span::default();
    for spec in &mut clause.probes {
        spec.span = Span::default();
        spec.provider.span = Span::default();
        spec.parts.iter_mut().for_each(|part| part.span = Span::default());
    }
}

/// Gives a lookup what it is asked with, and variables that no script has.
pub(crate) struct Own {
    /// What it is asked with, and the word that stands for that.
    pub given: Option<(&'static str, Expr)>,
    /// Put behind the names of variables: not the same for two lookups.
    pub suffix: String,
}

impl Own {
    fn rename(&self, name: &mut String) {
        *name = format!("{name}@{}", self.suffix);
    }
}

impl Visit for Own {
    fn expr(&mut self, e: &mut Expr) {
        match &mut e.kind {
            ExprKind::Ident(name) => {
                if let Some((_, given)) = self.given.as_ref().filter(|(word, _)| word == name) {
                    *e = given.clone();
                }
            }
            ExprKind::Var(name) => self.rename(name),
            _ => {}
        }
    }

    fn var(&mut self, name: &mut Name) {
        self.rename(&mut name.node);
    }
}

/// An expression of the tables, at a place of the script.
pub(crate) fn expression(text: &str, span: Span) -> Expr {
    let known = PARSED.with_borrow(|parsed| parsed.get(text).cloned());
    let mut value = known.unwrap_or_else(|| {
        let value = parsed(text);
        PARSED.with_borrow_mut(|parsed| parsed.insert(text.to_owned(), value.clone()));
        value
    });
    visit::expr(&mut value, &mut At(span));
    value
}

thread_local! {
    /// The tables' expressions, which never change, as they were parsed.
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

/// Gives all parts one place.
pub(crate) struct At(pub Span);

impl Visit for At {
    fn expr(&mut self, e: &mut Expr) {
        place(e, self.0);
    }

    fn stmt(&mut self, stmt: &mut Stmt) {
        stmt.span = self.0;
    }

    fn var(&mut self, name: &mut Name) {
        name.span = self.0;
    }
}

fn place(e: &mut Expr, span: Span) {
    e.span = span;
    match &mut e.kind {
        ExprKind::Field { name, .. } | ExprKind::Call { name, .. } => name.span = span,
        ExprKind::Cast { ty: TypeName { span: at, .. }, .. } => *at = span,
        ExprKind::Record(members) => members.iter_mut().for_each(|(name, _)| name.span = span),
        _ => {}
    }
}
