//! Processes in keys of maps: their identity, and whether they are alive.
//!
//! A process is read when it is first seen and keeps that identity until its keys are deleted: a changed label would start a second
//! series.

use super::process_facts;
use host::process;
use report::metrics::{Device, Life, Process};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Processes by their ids.
#[derive(Default)]
pub struct Processes {
    known: RefCell<HashMap<u32, ProcessEntry>>,
    /// By process and number, as labels have them.
    devices: RefCell<HashMap<(u32, u32), Device>>,
    /// The same as processes have learnt it since.
    learnt: RefCell<HashMap<(u32, u32), Device>>,
    /// Somebody calls [`Processes::look_again`] and [`Processes::forget_settled`].
    tracked: Cell<bool>,
}

struct ProcessEntry {
    /// When it began; none if it was never seen alive.
    started: Option<u64>,
    process: Process,
}

impl Processes {
    /// From now on processes may be met before a key names them.
    pub fn track(&self) {
        self.tracked.set(true);
    }

    /// A process has appeared that keys may name soon: it may not live until somebody reads them.
    pub fn meet(&self, pid: u32) {
        if self.tracked.get() {
            self.process(pid);
        }
    }

    /// What is known of a process.
    pub fn process(&self, pid: u32) -> Process {
        self.known.borrow_mut().entry(pid).or_insert_with(|| look(pid)).process.clone()
    }

    /// Looks which processes have ended. Maps that are read from now on have all that these did.
    pub fn look_again(&self) {
        for (pid, ProcessEntry { started, process }) in self.known.borrow_mut().iter_mut() {
            let has_ended = match started {
                Some(started) => process::started(*pid) != Some(*started),
                None => process.life == Life::Ended,
            };
            if has_ended {
                process.life = Life::Settled;
            }
        }
    }

    /// The keys of processes that had ended are deleted.
    pub fn forget_settled(&self) {
        let mut known = self.known.borrow_mut();
        known.retain(|_, known| known.process.life != Life::Settled);
        self.devices.borrow_mut().retain(|(pid, _), _| known.contains_key(pid));
        self.learnt.borrow_mut().retain(|(pid, _), _| known.contains_key(pid));
    }

    /// What a process calls one of its devices. What is not known when it is first needed stays so.
    pub fn device(&self, pid: u32, number: u32) -> Device {
        let learn = || self.learnt.borrow().get(&(pid, number)).cloned().unwrap_or_default();
        self.devices.borrow_mut().entry((pid, number)).or_insert_with(learn).clone()
    }

    /// What processes have learnt of their devices so far. What ended processes learnt is kept as long as they are.
    pub fn learn_devices(&self, learnt: HashMap<(u32, u32), Device>) {
        self.learnt.borrow_mut().extend(learnt);
    }
}

fn look(pid: u32) -> ProcessEntry {
    let facts = process_facts::of(pid);
    let life = match process::started(pid) {
        // Nothing is visible of a process outside of our pid namespace, though it runs.
        None if process::sees_all_pids() => Life::Ended,
        _ => Life::Alive,
    };
    let place = facts.place.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    ProcessEntry { started: facts.started, process: Process { program: facts.program(), place, life } }
}
