//! Conditions: expressions that select where the body continues.

use super::arithmetic::comparison;
use super::body::Body;
use super::loop_shape::literal;
use super::place::is_scalar;
use super::string::Strings;
use crate::ir::{BlockId, Cmp, Operand, VReg};
use lang::hir::{BinaryOp, Expr, ExprKind};

impl Body<'_, '_> {
    /// Jumps to `then` if `expr` is not zero, otherwise to `otherwise`.
    pub(super) fn cond(&mut self, expr: &Expr, then: BlockId, otherwise: BlockId) {
        use BinaryOp::{And, Or};
        match &expr.kind {
            ExprKind::Not(e) if is_scalar(&e.ty) => self.cond(e, otherwise, then),
            ExprKind::Binary { op: op @ (And | Or), lhs, rhs } => {
                let middle = self.b().block();
                let (yes, no) = if *op == And { (middle, otherwise) } else { (then, middle) };
                self.cond(lhs, yes, no);
                self.b().switch_to(middle);
                self.cond(rhs, then, otherwise);
            }
            ExprKind::Binary { op, lhs, rhs } if comparison(*op, self.signed(&lhs.ty)).is_some() => {
                let cmp = comparison(*op, self.signed(&lhs.ty)).expect("tested by the guard");
                let (left, right) = self.operands(lhs, rhs);
                let left = self.b().reg(left);
                self.b().branch(cmp, left, right, then, otherwise);
            }
            ExprKind::StrEq { lhs, rhs, limit } => self.string_equal(lhs, rhs, *limit, then, otherwise),
            ExprKind::StrContains { haystack, needle } => {
                self.string_contains(haystack, needle, then, otherwise)
            }
            ExprKind::Int(value) => self.b().jump(if *value != 0 { then } else { otherwise }),
            _ => {
                let value = self.scalar(expr);
                let value = self.b().reg(value);
                self.b().branch(Cmp::Ne, value, 0, then, otherwise);
            }
        }
    }

    /// Both operands of an operator, the left one first. The register of a variable is copied if the right operand
    /// changes the variable.
    pub(super) fn operands(&mut self, lhs: &Expr, rhs: &Expr) -> (Operand, Operand) {
        let mut left = self.scalar(lhs);
        if rhs.changes() && literal(lhs).is_none() {
            left = self.b().copy(left).into();
        }
        (left, self.scalar(rhs))
    }

    /// The result of `cond` as 0 or 1.
    pub(super) fn truth(&mut self, expr: &Expr) -> VReg {
        let result = self.b().vreg();
        let [yes, no, after] = std::array::from_fn(|_| self.b().block());
        self.cond(expr, yes, no);
        self.b().switch_to(yes);
        self.b().set(result, 1);
        self.b().jump(after);
        self.b().switch_to(no);
        self.b().set(result, 0);
        self.b().fall_into(after);
        result
    }
}
