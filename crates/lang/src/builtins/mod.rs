//! The built-in functions and variables: the table, and one file per family.

pub(crate) mod address;
pub mod constants;
pub mod format_string;
pub(crate) mod network;
pub mod posix;
pub mod probe_context;
pub(crate) mod signal;
pub mod table;
pub(crate) mod values;

use crate::hir::make::expr;
use crate::hir::{Expr, ExprKind, Fact, Type};
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
    /// A value of which nothing is to be checked.
    pub fn value(&self, kind: ExprKind, ty: Type) -> Expr {
        expr(kind, ty, self.span)
    }

    pub fn fact(&self, fact: Fact) -> Expr {
        self.value(ExprKind::Fact(fact), fact.describe().1)
    }
}
