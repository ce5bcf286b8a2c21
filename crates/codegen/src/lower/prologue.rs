//! Values that a body computes once in its prologue, and their locations.

use crate::ir::VReg;
use lang::hir::{self, Expr};

/// A value that the prologue computes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pro {
    /// The context.
    Ctx,
    /// tgid and tid in the tracer's pid namespace.
    Thread,
    /// The attach cookie.
    Cookie,
    /// A value of the call at its entry: index into the saved values.
    Entry(u32),
    /// Address of the usable bytes of the scratch cell.
    Scratch,
    /// `duration`
    Duration,
    /// Start of the current call, recorded at its entry.
    Started,
    /// A value of the enclosing calls.
    Around(hir::Around),
}

/// The stage that first needs a prologue value.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Code before the predicate.
    Guard,
    /// The predicate.
    Predicate,
    /// The body.
    Body,
}

/// A prologue value: its register, and the stage that computes it.
pub(super) struct PrologueValue {
    pub reg: VReg,
    pub stage: Stage,
    /// True if the value is already in the register, and the prologue does not compute it.
    pub given: bool,
    /// Offset in the frame, if callbacks use the value.
    pub frame: Option<u32>,
}

/// Source of arguments.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// The registers, at the entry of the function.
    Direct {
        /// Bytes that the function's prologue has pushed before the probe.
        shift: u32,
    },
    /// The saved values, in this order.
    Saved(Vec<Expr>),
}
