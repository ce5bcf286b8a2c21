//! Finds the interpreters of Python in traced processes, and tells programs how to walk their frames.
//!
//! An interpreter that has just been started has no frames: it is looked at again, when the process maps a file and periodically.

use crate::console::Messages;
use crate::symbolize::python::Pythons;
use host::python::{self, Python, Unreadable};
use linux::proc::{self, Program};
use runtime::UnwindMaps;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Ticks between two looks at an interpreter that has been looked at often.
const RAREST: u32 = 100;

/// The layout that leads to no thread's state.
const NONE: wire::python::Layout = [0; wire::python::Member::COUNT];

/// Processes and their interpreters.
pub struct PythonFinder<'a> {
    processes: RefCell<HashMap<u32, KnownProcess>>,
    /// Where names of frames are read.
    names: Rc<Pythons>,
    /// Reasons that were told.
    told: RefCell<HashSet<String>>,
    messages: &'a Messages,
}

/// A process that was looked at.
struct KnownProcess {
    program: Option<Program>,
    interpreter: Interpreter,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Interpreter {
    /// There is none yet.
    None,
    /// Without frames so far, after this number of looks.
    Begins(u32),
    /// Programs know it, or its frames cannot be read.
    Settled,
}

impl<'a> PythonFinder<'a> {
    /// Knows no process.
    pub fn new(names: Rc<Pythons>, messages: &'a Messages) -> PythonFinder<'a> {
        PythonFinder { processes: RefCell::default(), names, told: RefCell::default(), messages }
    }

    /// Where names of frames are read.
    pub fn names(&self) -> Rc<Pythons> {
        Rc::clone(&self.names)
    }

    /// Looks at a process that is new, runs another program, or has mapped a file.
    pub fn look_at(&self, pid: u32, maps: &UnwindMaps) {
        let program = Program::of(pid);
        if !maps.walk_python() || program.is_none() {
            return;
        }
        let known = self
            .processes
            .borrow()
            .get(&pid)
            .filter(|known| known.program == program)
            .map(|known| known.interpreter);
        let looks = match known {
            Some(Interpreter::Settled) => return,
            Some(Interpreter::None) if !has_library(pid) => return,
            Some(Interpreter::None) => 0,
            Some(Interpreter::Begins(looks)) => looks.saturating_add(1),
            // Another process may have had its id, or it may have run another program.
            None => {
                self.forget(&[pid], maps);
                0
            }
        };
        // Programs ask for processes that they find nothing about.
        let _ = maps.set_python(pid, &NONE);
        let interpreter = self.find(pid, looks, maps);
        self.processes.borrow_mut().insert(pid, KnownProcess { program, interpreter });
    }

    /// Looks again at the interpreters that had no frames, at those that never have any more and more rarely. `tick`: the number of the call.
    pub fn look_again(&self, tick: u64, maps: &UnwindMaps) {
        let is_due = |known: &KnownProcess| match known.interpreter {
            Interpreter::Begins(looks) => tick.is_multiple_of(u64::from(looks.clamp(1, RAREST))),
            Interpreter::None | Interpreter::Settled => false,
        };
        let due = |(pid, known): (&u32, &KnownProcess)| is_due(known).then_some(*pid);
        let due: Vec<u32> = self.processes.borrow().iter().filter_map(due).collect();
        due.into_iter().for_each(|pid| self.look_at(pid, maps));
    }

    /// Removes processes that end, or have ended. Names of their frames remain.
    pub fn forget(&self, pids: &[u32], maps: &UnwindMaps) {
        self.names.end(pids);
        for pid in pids {
            if self.processes.borrow_mut().remove(pid).is_some() {
                maps.remove_python(*pid);
            }
        }
    }

    /// Tells programs of the interpreter of a process, after this number of looks at it.
    fn find(&self, pid: u32, looks: u32, maps: &UnwindMaps) -> Interpreter {
        let python = match Python::of(pid) {
            None => return Interpreter::None,
            Some(Ok(python)) => python,
            Some(Err(Unreadable::NotBegun(_))) => return Interpreter::Begins(looks),
            Some(Err(why)) => {
                self.refuse(pid, &why.to_string());
                return Interpreter::Settled;
            }
        };
        let Some(layout) = python.for_programs() else { return Interpreter::Begins(looks) };
        match maps.set_python(pid, &layout) {
            Ok(()) => {
                let version = python.version();
                self.messages.detail(|| format!("frames of Python {version} in process {pid}"));
                self.names.add(pid, python);
            }
            Err(error) => self.refuse(pid, &error.to_string()),
        }
        Interpreter::Settled
    }

    /// Tells each reason once: there may be many such processes.
    fn refuse(&self, pid: u32, why: &str) {
        if self.told.borrow_mut().insert(why.to_owned()) {
            self.messages.warning(&format!(
                "stacks of process {pid} have no frames of Python: {why}; from 3.12 on `python3 -X perf` gives functions without lines"
            ));
        }
    }
}

/// Whether a process has mapped a library that may be the interpreter.
fn has_library(pid: u32) -> bool {
    proc::mappings(pid).iter().any(|mapping| mapping.name.path().is_some_and(python::is_library))
}
