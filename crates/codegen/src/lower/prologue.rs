//! Values that a body computes once in its prologue, and their locations.

use crate::ir::VReg;
use lang::hir::{self, Expr};

/// A value made in the prologue.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pro {
    /// The context.
    Ctx,
    /// tgid and tid, as the tracer's pid namespace has them.
    Thread,
    /// The attach cookie.
    Cookie,
    /// What the call had at entry: index into the saved values.
    Entry(u32),
    /// Address of the scratch cell's bytes.
    Scratch,
    /// `duration`
    Duration,
    /// Start of the current call, recorded at its entry.
    Started,
    /// A value of the enclosing calls.
    Around(hir::Around),
}

/// When a prologue value is first needed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Before the predicate.
    Guard,
    /// By the predicate.
    Predicate,
    /// By the body.
    Body,
}

/// A prologue value: its register, and the stage that computes it.
pub(super) struct PrologueValue {
    pub reg: VReg,
    pub stage: Stage,
    /// Written already; the prologue need not make it.
    pub given: bool,
    /// Its offset in the frame, if callbacks use it.
    pub frame: Option<u32>,
}

/// Where arguments come from.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// From the registers: we are at the entry.
    Direct {
        /// Bytes that the prologue has pushed before the probe.
        shift: u32,
    },
    /// From what was saved, in this order.
    Saved(Vec<Expr>),
}
