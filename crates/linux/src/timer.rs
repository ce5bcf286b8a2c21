//! A timer as a file descriptor that can be polled.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A timer whose descriptor is readable after each period.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that ticks after `first`, which is not zero, and then every `period`.
    ///
    /// # Errors
    /// EMFILE, and those of [`Timer::set`].
    pub fn new(first: Duration, period: Duration) -> io::Result<Timer> {
        let timer = Timer::stopped()?;
        timer.set(first, period)?;
        Ok(timer)
    }

    /// Creates a timer that does not tick.
    ///
    /// # Errors
    /// EMFILE
    pub fn stopped() -> io::Result<Timer> {
        Ok(Timer(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?))
    }

    /// Lets it tick every `period` from now on.
    ///
    /// # Errors
    /// The errors of [`Timer::set`].
    pub fn run(&self, period: Duration) -> io::Result<()> {
        self.set(period, period)
    }

    /// Lets it tick no more.
    ///
    /// # Errors
    /// The errors of timerfd_settime(2), none of which is expected.
    pub fn stop(&self) -> io::Result<()> {
        self.set(Duration::ZERO, Duration::ZERO)
    }

    /// Lets it tick after `first`, then each `period`; zero stops it.
    ///
    /// # Errors
    /// A time is longer than the kernel counts.
    pub fn set(&self, first: Duration, period: Duration) -> io::Result<()> {
        let time = |duration| Timespec::try_from(duration).map_err(io::Error::other);
        let setting = Itimerspec { it_interval: time(period)?, it_value: time(first)? };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// Descriptor to wait for.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Consumes the ticks so far; returns whether there were any.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]) == Ok(8)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_has_ticks_until_they_are_taken_or_it_is_stopped() {
        let timer = Timer::stopped().expect("a timer");
        assert!(!timer.take());
        let wait = || {
            let mut fds = [rustix::event::PollFd::new(&timer, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).expect("polled")
        };
        timer.set(Duration::from_nanos(1), Duration::from_secs(3600)).expect("set");
        assert_eq!(wait(), 1);
        assert!(timer.take() && !timer.take());
        timer.run(Duration::from_nanos(1)).expect("set");
        assert_eq!(wait(), 1);
        timer.stop().expect("set");
        assert!(!timer.take());
    }
}
