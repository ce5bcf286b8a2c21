//! `:watch @m`: a map again and again, until Ctrl-C.

use super::Repl;
use anyhow::Result;
use runtime::Session;
use runtime::run::{Next, Watch};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;

struct Live<'a> {
    repl: Rc<Repl<'a>>,
    map: u32,
    timer: OwnedFd,
    /// Another `:watch` or a Ctrl-C since ends this one.
    number: u32,
}

/// Shows the map now and every so many seconds.
///
/// # Errors
/// There is no timer.
pub fn start(repl: &Rc<Repl>, map: u32, seconds: u32) -> Result<()> {
    let number = repl.watching.get().wrapping_add(1);
    repl.watching.set(number);
    repl.is_watching.set(true);
    let live = Live { repl: Rc::clone(repl), map, timer: timer(seconds)?, number };
    repl.joining.borrow_mut().push(Box::new(live));
    Ok(())
}

/// A descriptor that is readable at once and then every so many seconds.
fn timer(seconds: u32) -> io::Result<OwnedFd> {
    let period = libc::timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    let setting = libc::itimerspec { it_interval: period, it_value: at_once };
    // SAFETY: plain system calls; a non-negative descriptor is new, and the setting lives.
    unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = OwnedFd::from_raw_fd(fd);
        if libc::timerfd_settime(fd, 0, &setting, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(timer)
    }
}

impl Watch for Live<'_> {
    fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        let mut expired = [0u8; 8];
        // SAFETY: reads 8 bytes into a buffer of 8.
        unsafe { libc::read(self.fd(), expired.as_mut_ptr().cast(), expired.len()) };
        if !self.repl.is_watching.get() || self.repl.watching.get() != self.number {
            return Next::Remove;
        }
        match self.repl.show_map(session, self.map, 0) {
            Ok(()) => Next::Continue,
            Err(error) => {
                self.repl.fail(&error);
                Next::Remove
            }
        }
    }
}
