//! Checks periodically for processes without unwind tables, and for tables that were read in the background.

use super::extender::Extender;
use super::unwinder::Unwinder;
use linux::timer::Timer;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Period of the checks.
const TICK: Duration = Duration::from_millis(10);

/// The periodic task; see the module documentation.
pub struct UnwindUpdater<'a> {
    timer: Timer,
    extender: &'a Extender<'a>,
    ticks: u64,
}

/// Number of ticks between two searches for ended processes.
const GONE_TICKS: u64 = 500;

impl<'a> UnwindUpdater<'a> {
    /// Creates the periodic task for the unwinder of `extender`.
    pub fn new(extender: &'a Extender<'a>) -> io::Result<UnwindUpdater<'a>> {
        let timer = Timer::new(TICK, TICK)?;
        Ok(UnwindUpdater { timer, extender, ticks: 0 })
    }

    fn tick(&mut self, unwinder: &Unwinder<'_>, session: &Session) {
        // A traced process that shares memory can name any process.
        let is_traced = |pid: &u32| session.is_traced(*pid) || session.runs_in(*pid);
        for pid in unwinder.take_unknown().into_iter().filter(is_traced) {
            self.extender.names.remember(pid);
            unwinder.read_mappings(pid);
        }
        unwinder.fill_finished();
        self.ticks += 1;
        unwinder.find_pythons(self.ticks);
        if self.ticks.is_multiple_of(GONE_TICKS) {
            unwinder.forget_gone();
        }
    }
}

impl Watch for UnwindUpdater<'_> {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.timer.take();
        if let Some(unwinder) = self.extender.unwinder() {
            self.tick(unwinder, session);
        }
        Next::Continue
    }
}
