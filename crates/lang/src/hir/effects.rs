//! Side effects of expressions: which ones may be removed, repeated or moved.

use crate::hir::expr::{Expr, ExprKind};
use crate::hir::visit;
use crate::syntax::ast::BinaryOp;

/// What evaluating an expression does and depends on, in rising order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effects {
    /// Nothing, and the value is the same wherever the body has it: one evaluation serves several uses.
    Invariant,
    /// The value may differ from place to place, or a counter tells that there was none.
    Varies,
    /// It changes a map or a variable: it is evaluated exactly once, even if nothing uses the value.
    Changes,
}

impl Expr {
    /// The effects of the expression and of those in it.
    pub fn effects(&self) -> Effects {
        let mut effects = Effects::Invariant;
        visit::visit_expr(self, &mut |e| effects = effects.max(e.kind.effects()));
        effects
    }

    /// Evaluating it changes something.
    pub fn changes(&self) -> bool {
        self.effects() == Effects::Changes
    }
}

impl ExprKind {
    /// The effects of the expression by itself; those in it have their own.
    pub fn effects(&self) -> Effects {
        use ExprKind::*;
        match self {
            UpdateMap { .. } | UpdateVar { .. } | Delete { .. } | Block { .. } => Effects::Changes,
            // A counter tells of divisions by zero.
            Binary { op: BinaryOp::Div | BinaryOp::Rem, .. } => Effects::Varies,
            Int(_)
            | Str(_)
            | Param(_)
            | ParamField { .. }
            | Arg(_)
            | Retval
            | Duration
            | Neg(_)
            | BitNot(_)
            | Not(_)
            | Binary { .. }
            | StrEq { .. }
            | Cast(_)
            | Ternary { .. }
            | Load { .. }
            | Tuple(_)
            | TupleGet { .. }
            | ByCase(_) => Effects::Invariant,
            Zero
            | Var(_)
            | MapGet { .. }
            | RecordBytes { .. }
            | Reg(_)
            | RetvalField { .. }
            | Started
            | Around(_)
            | Pid
            | Tid
            | Uid
            | Gid
            | Cpu
            | Nsecs
            | Elapsed
            | Comm
            | Cgroup
            | Rand
            | Task
            | Fact(_)
            | Name(_)
            | NameIn { .. }
            | StrContains { .. }
            | StrFind { .. }
            | Builtin(..)
            | Kernel(_)
            | Member { .. }
            | Element { .. }
            | StrIndex { .. }
            | ReadStr { .. }
            | ReadBuf { .. }
            | Lookup(_)
            | Stack
            | StackLen { .. }
            | Strftime(_)
            | HasKey { .. }
            | Len(_) => Effects::Varies,
        }
    }
}
