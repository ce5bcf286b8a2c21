//! Counters of errors that programs maintain, one u64 each.
//!
//! A counter that a normal hit may raise is in the per-CPU array map [`COUNTERS_MAP`]. The others are in the single value of
//! the direct map [`FAILURES_MAP`], which all CPUs share and which needs no lookup.

use crate::manifest::Place;
use serde::{Deserialize, Serialize};

/// Name of the map of counters that are raised often.
pub const COUNTERS_MAP: &str = "ct_counters";

/// Name of the map of all others.
pub const FAILURES_MAP: &str = "ct_failures";

/// One counter; its index in the manifest is its index in both maps, of which it is in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// What it counts.
    pub kind: CounterKind,
    /// What of the script it concerns.
    pub place: Place,
}

/// What a counter counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CounterKind {
    /// Records of this event that found no room in the ring buffer.
    LostEvent(u32),
    /// Updates of this map that found no room for a new key.
    MapFull(u32),
    /// Reads of user memory that failed (the value was taken as 0 or "").
    UserRead,
    /// Divisions by zero.
    DivisionByZero,
    /// Loops that were cut off.
    LoopLimit,
    /// Stacks that could not be stored.
    LostStack,
    /// Frames of code whose unwind table was not loaded yet.
    NoUnwindTable,
    /// Calls that found no scratch space; their body did not run.
    NoScratch,
    /// Calls for which the saved entry state had no room; their return body does not run.
    NoCallSlot,
    /// Calls that a thread's stack of traced calls had no room for: deeper ones do not lie in them.
    NoRoomAround,
    /// Calls of a clause's paired programs seen at entry. Minus `Returned`: the unpaired ones.
    Entered(u32),
    /// Calls of a clause's paired programs seen at return with their entry.
    Returned(u32),
    /// Returns without entry (attached in mid-call); the body did not run.
    NoEntry(u32),
    /// `delete()` of a key that was not there, where nobody looked at the result.
    MissingKey(u32),
    /// Signals that the kernel did not send.
    UnsentSignal,
}

impl CounterKind {
    /// Raised where nothing needs to be wrong, perhaps at every hit.
    pub fn is_frequent(&self) -> bool {
        matches!(self, CounterKind::Entered(_) | CounterKind::Returned(_) | CounterKind::MissingKey(_))
    }
}
