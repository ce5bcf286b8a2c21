//! A row of the table of built-ins.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::builtins::probe_context::Where;
use crate::hir::{Agg, Expr, Stmt, StmtKind};
use crate::syntax::ast;
use std::ops::RangeInclusive;

/// The kind of a built-in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `pid`; `pid()` is the same.
    Variable,
    /// `strncmp(a, b, n)`: an expression.
    Function,
    /// `printf(...)`: a statement.
    Action,
    /// `@x = count()`: assigned to a map.
    Aggregation,
}

/// The check of a built-in's use, after the checks of argument count and probe.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Check {
    /// `pid`, `pid(init)`
    Variable(fn(&mut dyn Args, &Call<'_>) -> Expr),
    /// `strncmp(a, b, n)`
    Function(fn(&mut dyn Args, &Call<'_>) -> Expr),
    /// `printf(...)`: the statement, and those before it.
    Action(fn(&mut dyn Args, &Call<'_>, &mut Vec<Stmt>) -> Option<StmtKind>),
    /// `sum(n)`: the arguments, and whether the sample is signed.
    Aggregation(fn(&mut dyn Args, &[ast::Expr], bool) -> Agg),
}

impl Check {
    const fn kind(self) -> Kind {
        match self {
            Check::Variable(_) => Kind::Variable,
            Check::Function(_) => Kind::Function,
            Check::Action(_) => Kind::Action,
            Check::Aggregation(_) => Kind::Aggregation,
        }
    }
}

/// A built-in for checking, help and completion.
#[derive(Debug)]
pub struct BuiltinSpec {
    /// The name in scripts.
    pub name: &'static str,
    /// Variable, function, action or aggregation.
    pub kind: Kind,
    /// The check of a use.
    pub(crate) check: Check,
    /// Fewest and most arguments.
    pub arity: RangeInclusive<usize>,
    /// Syntax.
    pub signature: &'static str,
    /// Description, with type and unit.
    pub doc: &'static str,
    /// An example script.
    pub example: &'static str,
    /// Probes in which it is available.
    pub allowed: Where,
}

pub(super) const fn variable(
    check: fn(&mut dyn Args, &Call<'_>) -> Expr,
    name: &'static str,
    doc: &'static str,
    allowed: Where,
    example: &'static str,
) -> BuiltinSpec {
    BuiltinSpec { allowed, ..call(Check::Variable(check), 0..=0, name, doc, example) }
}

pub(super) const fn call(
    check: Check,
    arity: RangeInclusive<usize>,
    signature: &'static str,
    doc: &'static str,
    example: &'static str,
) -> BuiltinSpec {
    let (name, kind) = (name_in(signature), check.kind());
    BuiltinSpec { name, kind, check, arity, signature, doc, example, allowed: Where::Anywhere }
}

/// A variable that may also be called, with at most `most` arguments.
pub(super) const fn callable(builtin: BuiltinSpec, most: usize, signature: &'static str) -> BuiltinSpec {
    BuiltinSpec { arity: 0..=most, signature, ..builtin }
}

pub(super) const fn calls(builtin: BuiltinSpec) -> BuiltinSpec {
    BuiltinSpec { allowed: Where::Calls, ..builtin }
}

pub(super) const fn running(builtin: BuiltinSpec) -> BuiltinSpec {
    BuiltinSpec { allowed: Where::Running, ..builtin }
}

/// The name in a signature: `hist` of `@map = hist(n[, bits])`.
const fn name_in(signature: &'static str) -> &'static str {
    let prefix = if signature.as_bytes()[0] == b'@' { "@map = ".len() } else { 0 };
    let (_, call) = signature.split_at(prefix);
    let mut end = 0;
    while end < call.len() && !matches!(call.as_bytes()[end], b'(' | b'[') {
        end += 1;
    }
    call.split_at(end).0
}

/// Any number of arguments.
pub(super) const MANY: usize = usize::MAX;
