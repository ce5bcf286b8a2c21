//! Work whose share of a CPU is limited. Its time is that of the thread: on a busy machine the work waits for the CPU, which costs nobody, and
//! the pauses must not become longer by that.

use linux::timer::Timer;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// CPU time of this thread, from a moment on.
#[derive(Copy, Clone, Debug)]
pub struct CpuTime(Duration);

impl CpuTime {
    /// From now on.
    pub fn start() -> CpuTime {
        CpuTime(CpuTime::now())
    }

    /// Time that the thread has run since.
    pub fn elapsed(self) -> Duration {
        CpuTime::now().saturating_sub(self.0)
    }

    fn now() -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// A timer for work that takes at most a share of a CPU, however long it takes.
pub struct PacedTimer {
    timer: Timer,
    next: Instant,
}

/// Divisor of the share.
const SHARE: u32 = 50;

impl PacedTimer {
    /// Creates a timer that ticks after each pause, or less often.
    pub fn new(pause: Duration) -> io::Result<PacedTimer> {
        Ok(PacedTimer { timer: Timer::new(pause, pause)?, next: Instant::now() })
    }

    /// Consumes a tick. Returns a clock of the work if it is due.
    pub fn due(&self) -> Option<CpuTime> {
        self.timer.take();
        (Instant::now() >= self.next).then(CpuTime::start)
    }

    /// Sets the time from which on the work is due again, which has taken this CPU time.
    pub fn rest(&mut self, taken: Duration) {
        self.next = Instant::now() + taken * SHARE;
    }

    /// Descriptor to wait for.
    pub fn fd(&self) -> RawFd {
        self.timer.fd()
    }
}

impl AsFd for PacedTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// Time for work that is not paced by a timer: a share of the time that passes.
pub struct Budget {
    left: Duration,
    at: Instant,
}

impl Budget {
    /// Divisor of the share.
    const SHARE: u32 = 20;
    /// Longest time that may be saved.
    const MOST: Duration = Duration::from_millis(50);

    /// All that may be saved.
    pub fn new() -> Budget {
        Budget { left: Budget::MOST, at: Instant::now() }
    }

    /// Whether some time is left.
    pub fn has_time(&mut self) -> bool {
        let passed = self.at.elapsed();
        self.at += passed;
        self.left = (self.left + passed / Budget::SHARE).min(Budget::MOST);
        !self.left.is_zero()
    }

    /// CPU time was spent on the work.
    pub fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_makes_no_pause_longer() {
        let mut timer = PacedTimer::new(Duration::from_millis(1)).expect("a timer");
        let work = timer.due().expect("the first time");
        std::thread::sleep(Duration::from_millis(200));
        let waited = work.elapsed();
        assert!(waited < Duration::from_millis(100), "{waited:?} of CPU time while it slept");
        timer.rest(waited);
        while work.elapsed() < waited + Duration::from_millis(4) {
            std::hint::black_box(0);
        }
        timer.rest(work.elapsed());
        assert!(timer.due().is_none(), "4 ms of work and no pause");
    }
}
