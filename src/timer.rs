//! A timer as a file descriptor that the event loop can poll.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A timer whose descriptor is readable after each period.
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that ticks after `first`, which is not zero, and then every `period`.
    pub fn new(first: Duration, period: Duration) -> io::Result<Timer> {
        let time = |duration| Timespec::try_from(duration).map_err(io::Error::other);
        let setting = Itimerspec { it_interval: time(period)?, it_value: time(first)? };
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting)?;
        Ok(Timer(timer))
    }

    /// Consumes the ticks so far, if any.
    pub fn take(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    /// Descriptor to wait for.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
