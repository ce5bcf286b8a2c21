//! The built-in functions and variables: the table, and one file per family.

pub(crate) mod address;
mod aggregations;
pub(crate) mod args;
pub mod assert;
pub mod constants;
pub mod floats;
pub mod format_string;
mod join;
pub(crate) mod lookup_compare;
mod map_functions;
mod name_tests;
mod network;
mod output;
pub mod posix;
pub mod probe_context;
pub(crate) mod row;
mod signal;
pub(crate) mod spans;
pub mod table;
mod text;
mod usdt_args;
pub(crate) mod values;
pub(crate) mod variables;

use crate::hir::make::expr;
use crate::hir::{Builtin, Expr, ExprKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;

/// A use of a built-in: `str(p, 8)`, `pid`.
pub(crate) struct Call<'e> {
    /// As written: `arg3`, `dw_ustack`.
    pub name: &'e str,
    pub args: &'e [ast::Expr],
    pub span: Span,
}

impl Call<'_> {
    /// A value without operands to check.
    pub(crate) fn value(&self, kind: ExprKind, ty: Type) -> Expr {
        expr(kind, ty, self.span)
    }

    /// A built-in variable.
    pub(crate) fn variable(&self, id: Builtin, ty: Type) -> Expr {
        self.value(ExprKind::Builtin(id, Vec::new()), ty)
    }
}
