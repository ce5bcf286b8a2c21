//! Signals that end a run, as a descriptor.
//!
//! The first one makes the descriptor readable; reading it gives the signals their default effect back, so the second
//! Ctrl-C leaves at once. SIGPIPE stays as Rust sets it (ignored): a sink's write fails with EPIPE.

use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT, blocked and readable.
#[derive(Debug)]
pub struct StopSignals {
    fd: OwnedFd,
    set: libc::sigset_t,
}

impl StopSignals {
    /// Blocks the signals in the calling thread and those it starts later: call it before there are others. Ignored
    /// signals (nohup, background jobs) stay ignored.
    pub fn install() -> io::Result<StopSignals> {
        StopSignals::install_but(None)
    }

    /// As [`StopSignals::install`], but `kept_off` ends nothing: it is blocked and nobody reads it. For Ctrl-C at a prompt.
    pub fn install_but(kept_off: Option<i32>) -> io::Result<StopSignals> {
        // SAFETY: an empty set is all zero in every libc; the calls below take pointers to live values.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in SIGNALS.into_iter().filter(|signal| !is_ignored(*signal)) {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            kept_off.inspect(|signal| _ = libc::sigdelset(&mut set, *signal));
            let fd = sys::owned(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
            Ok(StopSignals { fd, set })
        }
    }

    /// Readable once a signal came.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The signal that came, if one did; from then on they have their default effect.
    pub fn take(&self) -> Option<i32> {
        // SAFETY: a struct of plain numbers; read(2) writes at most its size.
        let (info, read) = unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let read = libc::read(self.fd(), (&raw mut info).cast(), size);
            (info, read)
        };
        if read <= 0 {
            return None;
        }
        // SAFETY: `set` was initialised by `install`.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.set, std::ptr::null_mut()) };
        Some(info.ssi_signo as i32)
    }
}

/// A program that we start must not inherit that they are blocked. Async-signal-safe.
pub(crate) fn unblock() {
    // SAFETY: as in `install`.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in SIGNALS {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: reads the disposition only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
