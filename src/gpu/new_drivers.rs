//! Processes that are about to map CUDA's driver, or just have. They are looked at at once and often, not only at the next search: before the
//! driver is initialised.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use linux::proc::{self, Program};

use super::cupti::{DRIVER, is_named};
use crate::process_tree::ProcessTree;
use linux::timer::Timer;
use runtime::started::Fork;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// Time after which a process is left to the search.
const LIMIT: Duration = Duration::from_millis(500);

/// These processes, with a timer that ticks as long as one is to be looked at.
pub struct NewDrivers {
    timer: Option<Timer>,
    /// Processes whose descendants they are, and which may be such a process, too.
    roots: RefCell<Vec<u32>>,
    /// Both by reports of forks, with those that have ended.
    tree: RefCell<ProcessTree>,
    processes: RefCell<Vec<NewDriver>>,
    /// Processes that have had an agent.
    met: RefCell<BTreeSet<u32>>,
}

/// A process that maps the driver.
struct NewDriver {
    pid: u32,
    /// Another one is looked at on its own.
    program: Option<Program>,
    /// Time of the first mapping.
    since: Instant,
    /// True if it needs no further look: each part of the driver is a mapping of its own, and the first one may be enough.
    is_settled: bool,
}

impl NewDrivers {
    /// No processes yet. Without a timer there never are.
    pub fn new() -> NewDrivers {
        let (roots, tree, processes, met) = Default::default();
        NewDrivers { timer: Timer::stopped().ok(), roots, tree, processes, met }
    }

    /// Sets the processes whose descendants are looked at from now on, beside them.
    pub fn choose(&self, roots: Vec<u32>) {
        self.tree.replace(ProcessTree::of(&roots));
        self.roots.replace(roots);
    }

    /// Processes have forked.
    pub fn add_forks(&self, forks: &[Fork]) {
        self.tree.borrow_mut().add(forks);
    }

    /// A process has mapped a file, and has had it for this time. It may have ended.
    pub fn maps(&self, pid: u32, file: &Path, age: Duration) {
        let Some(timer) = self.timer.as_ref().filter(|_| is_named(file, DRIVER)) else { return };
        if !proc::descends_from(pid, &self.roots.borrow()) && !self.tree.borrow().contains(pid) {
            return;
        }
        let mut processes = self.processes.borrow_mut();
        let program = Program::of(pid);
        let is_it =
            |process: &NewDriver| process.pid == pid && (process.program == program || program.is_none());
        if !processes.iter().any(is_it) {
            processes.retain(|process| process.pid != pid);
            let now = Instant::now();
            let since = now.checked_sub(age).unwrap_or(now);
            processes.push(NewDriver { pid, program, since, is_settled: false });
            let _ = timer.run(PAUSE);
        }
    }

    /// A process has an agent, which this program has loaded.
    pub fn meet(&self, pid: u32, program: Option<Program>) {
        self.met.borrow_mut().insert(pid);
        self.settle(program);
    }

    /// Whether a process has, or had, an agent: its mappings may be reported when it has ended.
    pub fn was_met(&self, pid: u32) -> bool {
        self.met.borrow().contains(&pid)
    }

    /// A process is looked at again: another program is loaded there, or its libraries are still being mapped.
    pub fn look_again(&self, pid: u32) {
        let mut processes = self.processes.borrow_mut();
        let mut of_process = processes.iter_mut().filter(|process| process.pid == pid);
        if let (Some(process), Some(timer)) = (of_process.next(), &self.timer) {
            process.is_settled = false;
            let _ = timer.run(PAUSE);
        }
    }

    /// A program needs no further look; what its process executes next does.
    pub fn settle(&self, program: Option<Program>) {
        let mut processes = self.processes.borrow_mut();
        let is_it = |process: &&mut NewDriver| process.program == program;
        processes.iter_mut().filter(is_it).for_each(|process| process.is_settled = true);
    }

    /// Adds a descriptor to a set that is readable when a process is to be looked at.
    pub fn watch(&self, add: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        self.timer.as_ref().map_or(Ok(()), |timer| add(timer.as_fd()))
    }

    /// Looks at these processes. `look` gets how long they have had the driver, and returns whether the process needs no further look.
    pub fn look(&self, mut look: impl FnMut(u32, Duration) -> bool) {
        let Some(timer) = &self.timer else { return };
        timer.take();
        let mut processes = self.processes.borrow_mut();
        for process in processes.iter_mut().filter(|process| !process.is_settled) {
            process.is_settled = look(process.pid, process.since.elapsed());
        }
        // After the look: the tracer may have been busy for longer.
        processes.retain(|process| process.since.elapsed() < LIMIT);
        if processes.iter().all(|process| process.is_settled) {
            let _ = timer.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_looked_at_until_it_has_the_driver() {
        let (drivers, own) = (NewDrivers::new(), std::process::id());
        let driver = Path::new("/usr/lib/libcuda.so.580.1");
        drivers.maps(own, driver, Duration::ZERO);
        drivers.look(|_, _| panic!("it is not traced"));
        drivers.choose(vec![own]);
        drivers.maps(own, Path::new("/usr/lib/libc.so.6"), Duration::ZERO);
        drivers.look(|_, _| panic!("it has no driver"));
        for part in 0..3 {
            drivers.maps(own, driver, Duration::ZERO);
            assert_eq!(drivers.processes.borrow().len(), 1, "part {part}");
        }
        let looks = std::cell::Cell::new(0);
        let look = |is_settled: bool| {
            drivers.look(|pid, _| {
                looks.set(looks.get() + 1);
                assert_eq!(pid, own);
                is_settled
            });
        };
        look(false);
        drivers.maps(own, driver, Duration::ZERO);
        look(true);
        look(false);
        assert_eq!(looks.get(), 2, "it is settled");
    }

    #[test]
    fn a_process_with_an_agent_is_not_looked_at() {
        let (drivers, own) = (NewDrivers::new(), std::process::id());
        drivers.choose(vec![own]);
        drivers.maps(own, Path::new("/usr/lib/libcuda.so.1"), Duration::ZERO);
        assert!(!drivers.was_met(own));
        // Its process executes another program now.
        drivers.meet(own, Program::of(1));
        let looks = std::cell::Cell::new(0);
        drivers.look(|_, _| {
            looks.set(1);
            false
        });
        assert_eq!(looks.get(), 1);
        drivers.meet(own, Program::of(own));
        drivers.look(|_, _| panic!("it is settled"));
        assert!(drivers.was_met(own));
    }

    #[test]
    fn a_process_that_has_ended_is_looked_at_once_however_late() {
        let (drivers, own, driver) =
            (NewDrivers::new(), std::process::id(), Path::new("/usr/lib/libcuda.so.1"));
        drivers.choose(vec![own]);
        let (ended, stranger) = (4_194_305, 4_194_306);
        let fork = |pid, parent| Fork { pid, parent, time_ns: 1 };
        drivers.add_forks(&[fork(ended, own), fork(stranger, 1)]);
        [ended, stranger].into_iter().for_each(|pid| drivers.maps(pid, driver, 2 * LIMIT));
        let looks = RefCell::new(vec![]);
        let look = || {
            drivers.look(|pid, age| {
                assert!(age >= 2 * LIMIT);
                looks.borrow_mut().push(pid);
                false
            });
        };
        look();
        look();
        assert_eq!(*looks.borrow(), [ended]);
    }
}
