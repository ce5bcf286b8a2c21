//! `comptime`: conditions and values that are computed while the script is compiled.
//!
//! ```text
//! if comptime (is_str(x)) { strlen(x) } else { sizeof(x) }       only the branch that is taken is checked
//! ```
//!
//! A condition may depend on types, which widen from round to round. It is decided once the code outside of such branches
//! has its types (see `rounds`); until then neither branch is checked.

use crate::builtins::args::Args;
use crate::check::Checker;
use crate::hir::const_eval::{constant, is_constant};
use crate::hir::make::{is_unknown, unknown};
use crate::hir::{Expr, ExprKind};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::UnaryOp;

/// The `c` of a condition `comptime c`.
pub(super) fn decided_early(cond: &ast::Expr) -> Option<&ast::Expr> {
    match &cond.kind {
        ast::ExprKind::Unary { op: UnaryOp::Comptime, expr } => Some(expr),
        _ => None,
    }
}

impl Checker<'_> {
    /// Whether a condition of `comptime` holds; `None` while that is unknown, and after an error.
    pub(super) fn decide(&mut self, cond: &ast::Expr) -> Option<bool> {
        if !self.decides {
            self.scope.undecided = true;
            return None;
        }
        let outer = std::mem::take(&mut self.scope.has_unknown);
        let value = self.expr(cond);
        let is_open = std::mem::replace(&mut self.scope.has_unknown, outer);
        // A comparison with a value of unknown type is false, which decides nothing.
        if is_open {
            return None;
        }
        // A text is true if it is not empty.
        let holds = match &value.kind {
            ExprKind::Str(text) => Some(!text.is_empty()),
            _ => constant(&value).map(|number| number != 0),
        };
        if holds.is_none() {
            self.error("E0221", cond.span, "the condition of `comptime` is not constant")
                .help("use `if` without `comptime` for conditions that depend on run time");
        }
        holds
    }

    /// `comptime e` as a value.
    pub(super) fn comptime_value(&mut self, inner: &ast::Expr, span: Span) -> Expr {
        let value = self.expr(inner);
        if is_unknown(&value) || is_constant(&value) {
            return Expr { span, ..value };
        }
        if let Some(number) = constant(&value) {
            return Expr { kind: ExprKind::Int(number), span, ..value };
        }
        self.error("E0221", inner.span, "the value of `comptime` is not constant")
            .help("omit `comptime`: the value is computed at run time");
        unknown(span)
    }
}
