//! Temporaries for values that are used several times and must be evaluated once.
//!
//! ```text
//! macaddr(@next++)             { $v = @next++; bytes 0-3 of $v, bytes 4-5 of $v }
//! ```

use crate::check::Checker;
use crate::check::expr::is_single;
use crate::hir::make::{expr, is_unknown};
use crate::hir::{Expr, ExprKind, Stmt, StmtKind, Type};

impl Checker<'_> {
    /// What is made of a value, by something that may look at it several times. A variable of its own keeps it if computing it
    /// changes anything.
    pub fn once(&mut self, value: Expr, make: impl FnOnce(&mut Self, Expr) -> Expr) -> Expr {
        if is_unknown(&value) || !value.changes() {
            return make(self, value);
        }
        let mut kept = Vec::new();
        let value = self.kept(value, &mut kept);
        let made = make(self, value);
        behind(kept, made)
    }

    /// The value as something that costs nothing to look at again: a variable, if it must be, which `kept` sets.
    pub fn steady(&mut self, value: &Expr, kept: &mut Vec<Stmt>) -> Expr {
        if is_single(value)
            || matches!(&value.kind, ExprKind::Tuple(parts) if !parts.iter().any(Expr::changes))
        {
            return value.clone();
        }
        self.kept(value.clone(), kept)
    }

    fn kept(&mut self, value: Expr, kept: &mut Vec<Stmt>) -> Expr {
        let (ty, span, in_kernel) = (value.ty.clone(), value.span, value.in_kernel());
        let var = self.scope.hidden(span, ty.clone());
        kept.push(Stmt { kind: StmtKind::SetVar { var, value }, span });
        let read = expr(ExprKind::Var(var), ty.clone(), span);
        match ty {
            Type::Pointer(_) if in_kernel => expr(ExprKind::Kernel(Box::new(read)), ty, span),
            _ => read,
        }
    }
}

/// A value whose variables are set first.
pub fn behind(kept: Vec<Stmt>, value: Expr) -> Expr {
    if kept.is_empty() || is_unknown(&value) {
        return value;
    }
    let (ty, span) = (value.ty.clone(), value.span);
    expr(ExprKind::Block { body: kept, value: Box::new(value) }, ty, span)
}
