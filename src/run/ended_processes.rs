//! Maps by process (`let @m = processhash(N)`): deletes the keys of processes that have ended.

use crate::pacing::PacedTimer;
use linux::proc;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Shortest pause between two scans.
const PAUSE: Duration = Duration::from_secs(1);

/// Deletes keys of ended processes.
pub struct EndedProcesses {
    timer: PacedTimer,
    /// Start times of the processes that had keys at the last scan.
    started: HashMap<u32, u64>,
}

impl EndedProcesses {
    pub fn new() -> io::Result<EndedProcesses> {
        Ok(EndedProcesses { timer: PacedTimer::new(PAUSE)?, started: HashMap::new() })
    }

    fn delete(&mut self, session: &Session) {
        let mut now: HashMap<u32, Option<u64>> = HashMap::new();
        // Processes outside of our pid namespace are invisible although they run.
        let sees_all = proc::sees_all_pids();
        let deleted = session.delete_ended(&mut |pid| {
            let started = *now.entry(pid).or_insert_with(|| proc::started(pid));
            match self.started.get(&pid) {
                Some(before) => started != Some(*before),
                None => started.is_none() && sees_all,
            }
        });
        // After an error the scan is repeated.
        if deleted.is_ok() {
            self.started = now.into_iter().filter_map(|(pid, started)| Some((pid, started?))).collect();
        }
    }
}

impl Watch for EndedProcesses {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        if let Some(start) = self.timer.due() {
            self.delete(session);
            self.timer.rest(start.elapsed());
        }
        Next::Continue
    }
}
