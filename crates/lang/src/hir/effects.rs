//! Side effects of expressions: which ones may be removed, repeated or moved.

use crate::hir::tree::{Builtin as B, Expr, ExprKind};
use crate::hir::visit;
use crate::syntax::ast::BinaryOp;

/// The effects and dependencies of evaluating an expression, in rising order.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effects {
    /// No effect, and the same value everywhere in the body: one evaluation can serve several uses.
    Invariant,
    /// The value may differ between positions in the body, or a failed evaluation increments a counter.
    Varies,
    /// Changes a map, a variable or the thread's stack of calls: evaluated exactly once, even if the value is unused.
    Changes,
}

impl Expr {
    /// The effects of the expression and of its subexpressions.
    pub fn effects(&self) -> Effects {
        let mut effects = Effects::Invariant;
        visit::visit_expr(self, &mut |e| effects = effects.max(e.kind.effects()));
        effects
    }

    /// Whether evaluating the expression changes a map or a variable.
    pub fn changes(&self) -> bool {
        self.effects() == Effects::Changes
    }
}

impl ExprKind {
    /// The effects of the expression itself, without those of its subexpressions.
    pub fn effects(&self) -> Effects {
        use ExprKind::*;
        match self {
            UpdateMap { .. } | UpdateVar { .. } | Delete { .. } | Block { .. } => Effects::Changes,
            Builtin(B::BeginEvent | B::EndEvent, _) => Effects::Changes,
            // A division by zero increments a counter.
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
            | VarAddress(_)
            | MapGet { .. }
            | RecordBytes { .. }
            | Reg(_)
            | RetvalField { .. }
            | Started
            | Around(_)
            | Name(_)
            | NameIn { .. }
            | StrContains { .. }
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
            | HasKey { .. }
            | Len(_) => Effects::Varies,
        }
    }
}
