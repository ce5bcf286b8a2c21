//! Counters of errors that programs maintain, one u64 each.
//!
//! A counter that a normal hit may raise is in the per-CPU array map [`COUNTERS_MAP`]. The others are in the single value of
//! the direct map [`FAILURES_MAP`], which all CPUs share and which needs no lookup.

use crate::place::Place;
use serde::{Deserialize, Serialize};

/// Name of the map of counters that are incremented often.
pub const COUNTERS_MAP: &str = "ct_counters";

/// Name of the map of all other counters.
pub const FAILURES_MAP: &str = "ct_failures";

/// A counter. Its index in the manifest is its index in both maps; only one of the maps contains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Kind.
    pub kind: CounterKind,
    /// Position in the script that it refers to.
    pub place: Place,
}

/// Kind of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CounterKind {
    /// Records of this event that did not fit in the ring buffer.
    LostEvent(u32),
    /// Updates of this map that failed because it was full.
    MapFull(u32),
    /// Reads of user memory that failed (the value became 0 or "").
    UserRead,
    /// Divisions by zero.
    DivisionByZero,
    /// Indexes of arrays that are out of bounds.
    OutOfBounds,
    /// Loops that reached a limit of iterations.
    LoopLimit,
    /// Stacks that could not be stored.
    LostStack,
    /// Frames of code whose unwind table was not loaded yet.
    NoUnwindTable,
    /// Calls without a free scratch cell; their body did not run.
    NoScratch,
    /// Calls whose entry values could not be saved; their return body does not run.
    NoCallSlot,
    /// Calls that did not fit on a thread's stack of traced calls; calls in them are not nested below them.
    NoRoomAround,
    /// Calls of a clause's paired programs that were seen at entry. The difference to `Returned` is the number of
    /// unpaired calls.
    Entered(u32),
    /// Calls of a clause's paired programs that were seen at return, with their entry.
    Returned(u32),
    /// Returns without entry (attached during the call); the body did not run.
    NoEntry(u32),
    /// `delete()` of a key that did not exist, where the result is not used.
    MissingKey(u32),
    /// Signals that the kernel did not send.
    UnsentSignal,
    /// Records that a traced process had not finished when it ended.
    Unfinished,
    /// Events at which the kernel did not run a program, since another one or an operation on a map was under way on the CPU. Those of processes
    /// that are not traced count, too.
    Missed,
    /// Updates of this map, in a traced process, that failed because a lock was not given back.
    MapLocked(u32),
}

impl CounterKind {
    /// Whether the counter may be incremented at every hit, without an error.
    pub fn is_frequent(&self) -> bool {
        matches!(self, CounterKind::Entered(_) | CounterKind::Returned(_) | CounterKind::MissingKey(_))
    }
}
