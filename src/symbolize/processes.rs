//! Processes in keys of maps: their identity, and whether they are alive.
//!
//! A process is read when it is first seen and keeps that identity until its keys are deleted: a changed label would start a second
//! series.

use super::process_facts;
use linux::proc;
use report::metrics::{Device, Life, Process};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Processes by id.
#[derive(Default)]
pub struct Processes {
    entries: RefCell<HashMap<u32, ProcessEntry>>,
    /// Devices by process and number, as labels show them.
    devices: RefCell<HashMap<(u32, u32), Device>>,
    /// Devices that processes have queried since.
    queried: RefCell<HashMap<(u32, u32), Device>>,
    /// True if [`Processes::find_ended`] and [`Processes::forget_settled`] are called.
    tracked: Cell<bool>,
}

struct ProcessEntry {
    /// Start time; `None` if it was never read while it ran.
    started: Option<u64>,
    process: Process,
}

impl Processes {
    /// Enables recording processes before a key contains them.
    pub fn track(&self) {
        self.tracked.set(true);
    }

    /// Records a new process that keys may contain soon, since it may end before they are read.
    pub fn add(&self, pid: u32) {
        if self.tracked.get() {
            self.process(pid);
        }
    }

    /// Identity of a process.
    pub fn process(&self, pid: u32) -> Process {
        self.entries.borrow_mut().entry(pid).or_insert_with(|| read(pid)).process.clone()
    }

    /// Finds ended processes. Maps that are read later contain all their values.
    pub fn find_ended(&self) {
        for (pid, ProcessEntry { started, process }) in self.entries.borrow_mut().iter_mut() {
            let has_ended = match started {
                Some(started) => proc::started(*pid) != Some(*started),
                None => process.life == Life::Ended,
            };
            if has_ended {
                process.life = Life::Settled;
            }
        }
    }

    /// Removes ended processes whose keys are deleted.
    pub fn forget_settled(&self) {
        let mut entries = self.entries.borrow_mut();
        entries.retain(|_, entries| entries.process.life != Life::Settled);
        self.devices.borrow_mut().retain(|(pid, _), _| entries.contains_key(pid));
        self.queried.borrow_mut().retain(|(pid, _), _| entries.contains_key(pid));
    }

    /// Identity of a device of a process. If it is unknown at the first query, it stays unknown.
    pub fn device(&self, pid: u32, number: u32) -> Device {
        let learn = || self.queried.borrow().get(&(pid, number)).cloned().unwrap_or_default();
        self.devices.borrow_mut().entry((pid, number)).or_insert_with(learn).clone()
    }

    /// Adds devices that processes have queried. Those of ended processes are kept as long as their keys.
    pub fn learn_devices(&self, queried: HashMap<(u32, u32), Device>) {
        self.queried.borrow_mut().extend(queried);
    }
}

fn read(pid: u32) -> ProcessEntry {
    let facts = process_facts::of(pid);
    let life = match proc::started(pid) {
        // A process outside of our pid namespace is invisible although it runs.
        None if proc::sees_all_pids() => Life::Ended,
        _ => Life::Alive,
    };
    let place = facts.place.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    ProcessEntry { started: facts.started, process: Process { program: facts.program(), place, life } }
}
