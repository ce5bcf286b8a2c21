//! The state of a process in a session: its regions, those from its parent, and whether it has left the session.

use super::regions::PatchedRegion;
use crate::shared::names::Names;

/// A process of a session.
#[derive(Debug, Default)]
pub(super) struct TracedProcess {
    /// True if it is of the traced command, whether it calls probed functions or not.
    pub is_met: bool,
    /// A region each for functions that are near to each other.
    pub regions: Vec<PatchedRegion>,
    /// The regions and jumps from its parent.
    pub inheritance: Option<Inheritance>,
    /// If its functions were restored before the end of the session: number of its seccomp filters that are the tracer's.
    pub restored: Option<u32>,
}

/// Regions of a process from its parent.
#[derive(Debug)]
pub(super) struct Inheritance {
    /// Number of seccomp filters of the process that are the tracer's.
    pub own_filters: u32,
    /// Its names, which each region has.
    pub names: Vec<Names>,
}

impl TracedProcess {
    /// Whether it shares the memory of the session.
    pub(super) fn shares_memory(&self) -> bool {
        !self.regions.is_empty() || self.inheritance.is_some()
    }

    /// Whether the session has changed it, or its parent.
    pub(super) fn is_changed(&self) -> bool {
        self.shares_memory() || self.restored.is_some()
    }

    /// Number of its seccomp filters that are the tracer's.
    pub(super) fn own_filters(&self) -> u32 {
        let inherited = || self.inheritance.as_ref().map(|inheritance| inheritance.own_filters);
        let of_regions = self.regions.iter().map(PatchedRegion::own_filters).max();
        of_regions.or(self.restored).or_else(inherited).unwrap_or(0)
    }

    /// Forgets all its regions.
    pub(super) fn drop_regions(&mut self) {
        self.regions.clear();
        self.inheritance = None;
    }

    /// Forgets its changes after its end.
    pub(super) fn end(&mut self) {
        *self = TracedProcess { is_met: self.is_met, ..TracedProcess::default() };
    }

    /// Keeps the names right that programs read.
    pub(super) fn update_names(&mut self) {
        self.regions.iter_mut().for_each(PatchedRegion::update_names);
        self.inheritance.iter_mut().flat_map(|inheritance| &mut inheritance.names).for_each(Names::update);
    }
}
