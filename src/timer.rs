//! A timer as a file descriptor that the event loop can poll.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A timer whose descriptor is readable after each period.
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that ticks after `first`, which is not zero, and then every `period`.
    pub fn new(first: Duration, period: Duration) -> io::Result<Timer> {
        let timer = Timer::stopped()?;
        timer.set(first, period)?;
        Ok(timer)
    }

    /// Creates a timer that does not tick.
    pub fn stopped() -> io::Result<Timer> {
        Ok(Timer(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?))
    }

    /// Lets it tick every `period` from now on.
    pub fn run(&self, period: Duration) -> io::Result<()> {
        self.set(period, period)
    }

    /// Lets it tick no more.
    pub fn stop(&self) -> io::Result<()> {
        self.set(Duration::ZERO, Duration::ZERO)
    }

    fn set(&self, first: Duration, period: Duration) -> io::Result<()> {
        let time = |duration| Timespec::try_from(duration).map_err(io::Error::other);
        let setting = Itimerspec { it_interval: time(period)?, it_value: time(first)? };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// Descriptor to wait for.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Descriptor to wait for.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Consumes the ticks so far, if any.
    pub fn take(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

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
        self.timer.0.as_fd()
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
