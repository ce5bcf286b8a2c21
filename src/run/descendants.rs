//! Children that traced processes fork, in runs whose scripts run in the processes and have probes on their end.
//!
//! Other new processes are noticed by the files that they map, but a fork maps nothing. So a timer looks for descendants every 100 ms, and
//! each is made known to the session.

use linux::proc;
use linux::timer::Timer;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Pause between two looks. A child that ends sooner has hardly begun to work with CUDA, which takes longer.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks for new descendants of processes.
pub struct Descendants {
    timer: Timer,
    pids: Vec<u32>,
}

impl Descendants {
    /// Watches these processes.
    pub fn new(pids: Vec<u32>) -> io::Result<Descendants> {
        Ok(Descendants { timer: Timer::new(PAUSE, PAUSE)?, pids })
    }
}

impl Watch for Descendants {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.timer.take();
        proc::with_descendants(&self.pids).into_iter().for_each(|pid| session.meet(pid));
        Next::Continue
    }
}
