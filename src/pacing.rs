//! Work whose share of the time is limited.

use linux::timer::Timer;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// A timer for work that takes at most a share of the time, however long it takes.
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

    /// Consumes a tick. Returns the time if the work is due.
    pub fn due(&self) -> Option<Instant> {
        self.timer.take();
        Some(Instant::now()).filter(|now| *now >= self.next)
    }

    /// Sets the time from which on the work is due again. It has begun at `start` and taken this long.
    pub fn rest(&mut self, start: Instant, taken: Duration) {
        self.next = start + taken * SHARE;
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

    /// Time was spent on the work.
    pub fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}
