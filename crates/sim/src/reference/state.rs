//! State of the interpreter: of the whole run, and of one run of a probe.

use super::table::Table;
use super::value::Val;
use crate::outcome::{Outcome, What};
use crate::rng::Rng;
use crate::world::{Memory, Moment, Regs};
use lang::hir::{MapId, NameId, Probe, Program, Site};
use std::collections::HashMap;

/// Limit of the rounds of all loops in a world. A compiled loop over a range is limited by its kernel, each differently.
pub(super) const MOST_ROUNDS: u64 = 1 << 24;

/// State of the run.
pub(super) struct Meaning<'a> {
    pub program: &'a Program,
    pub start_ns: u64,
    pub cpus: u32,
    pub memory: Memory,
    pub tables: Vec<Table>,
    /// Known stacks, by (user, limit); the id of a stack is its index.
    pub stacks: HashMap<(bool, u32), Vec<Vec<u64>>>,
    pub rng: Rng,
    pub outcome: Outcome,
    /// Calls in progress.
    pub entered: HashMap<usize, EntryState>,
    /// Tracked calls of each thread that have not returned, outermost first.
    pub tracked: HashMap<u32, Vec<TrackedCall>>,
    /// Rounds of loops so far.
    pub rounds: u64,
}

/// A tracked call.
#[derive(Clone)]
pub(super) struct TrackedCall {
    pub sp: u64,
    pub time_ns: u64,
    pub func: NameId,
}

/// Values of a call's entry that a return probe may use.
#[derive(Clone)]
pub(super) struct EntryState {
    pub time_ns: u64,
    pub regs: Regs,
    /// Eightbytes above the return address.
    pub stack: Vec<Option<u64>>,
}

/// One run of a probe.
pub(super) struct Run<'p> {
    pub probe: &'p Probe,
    pub moment: &'p Moment,
    pub site: Option<&'p Site>,
    /// Registers at the probe.
    pub regs: Regs,
    pub entered: Option<EntryState>,
    /// The enclosing tracked calls, outermost first.
    pub around: Vec<TrackedCall>,
    pub vars: Vec<Val>,
    /// Address of the current record, in a body that runs for a batch of them.
    pub record: u64,
    /// Actions for the reader.
    pub queue: Vec<Later>,
    /// Return value of a test.
    pub returned: i64,
}

/// An action for the reader.
pub(super) enum Later {
    Emit(What),
    PrintEntry(MapId, Vec<Val>),
    PrintMap(MapId, u32, u32),
    Clear(MapId),
    Zero(MapId),
}
