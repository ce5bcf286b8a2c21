//! A timer as a file descriptor that the event loop can poll.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Readable each time that its period has passed.
pub struct Timer(OwnedFd);

impl Timer {
    /// Ticks after `first`, which is not zero, and then every `period`.
    ///
    /// # Errors
    /// The errors of timerfd_create(2).
    pub fn new(first: Duration, period: Duration) -> io::Result<Timer> {
        let setting = libc::itimerspec { it_interval: timespec(period), it_value: timespec(first) };
        // SAFETY: plain system calls; a non-negative descriptor is new and nobody else's, and the setting lives.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let timer = OwnedFd::from_raw_fd(fd);
            if libc::timerfd_settime(fd, 0, &setting, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Timer(timer))
        }
    }

    /// Takes the ticks so far; nothing is wrong if there are none.
    pub fn take(&self) {
        let mut ticks = [0u8; 8];
        // SAFETY: reads 8 bytes into a buffer of 8.
        unsafe { libc::read(self.fd(), ticks.as_mut_ptr().cast(), ticks.len()) };
    }

    /// To wait for.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
