//! Programs that run when a traced process ends. The tracer runs them, since nothing of ours runs in a process at its end.

use crate::kernel::sys;
use crate::shared::memory::SessionMemory;
use crate::shared::names;
use linux::pidfd;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The programs, and the processes that have not ended; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct ProcessEnds {
    /// Entries of programs.
    programs: Vec<u64>,
    running: BTreeMap<u32, RunningProcess>,
}

#[derive(Debug)]
struct RunningProcess {
    pidfd: OwnedFd,
    /// As they were last seen: the programs read them after the end.
    names: Vec<u8>,
}

impl ProcessEnds {
    /// Adds a program, by its entry. It runs after those that were added before.
    pub(super) fn add(&mut self, program: u64) {
        self.programs.push(program);
    }

    /// Whether there are programs.
    pub(super) fn are_watched(&self) -> bool {
        !self.programs.is_empty()
    }

    /// Watches a process, if there are programs. One that has ended already is none that was traced.
    pub(super) fn watch(&mut self, pid: u32) {
        if !self.are_watched() {
            return;
        }
        let names = names::of(pid);
        match self.running.get_mut(&pid) {
            // The process may execute another file by now.
            Some(process) => process.names = names,
            None => {
                let process = pidfd::open(pid).map(|pidfd| RunningProcess { pidfd, names });
                self.running.extend(process.ok().map(|process| (pid, process)));
            }
        }
    }

    /// Descriptors that are readable when a process has ended.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.running.values().map(|process| process.pidfd.as_raw_fd())
    }

    /// Keeps the names of the processes, which may change.
    pub(super) fn update_names(&mut self) {
        for (pid, process) in &mut self.running {
            let names = names::of(*pid);
            // A process that has ended has no name of a file.
            if names[0] != 0 {
                process.names = names;
            }
        }
    }

    /// Runs the programs for the processes that have ended since the last call.
    ///
    /// # Errors
    /// poll(2) or mprotect(2) fails.
    pub(super) fn serve(&mut self, memory: &SessionMemory) -> io::Result<()> {
        let mut fds: Vec<libc::pollfd> = self.fds().map(sys::readable).collect();
        if sys::poll(&mut fds, 0)? == 0 {
            return Ok(());
        }
        let pids = self.running.keys().zip(&fds).filter(|(_, fd)| fd.revents != 0);
        let ended: Vec<u32> = pids.map(|(pid, _)| *pid).collect();
        for (pid, process) in ended.iter().filter_map(|pid| self.running.remove_entry(pid)) {
            memory.run_for(self.programs.iter().copied(), pid, &process.names)?;
        }
        Ok(())
    }
}
