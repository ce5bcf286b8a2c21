//! Signals as descriptors: those that end a run, and those that probes wait for.
//!
//! The first one that ends a run makes the descriptor readable; soon after that the signals have their default effect back, so the
//! second Ctrl-C leaves at once. SIGPIPE stays as Rust sets it (ignored): a sink's write fails with EPIPE.

use crate::kernel::sys;
use signal_hook::SigId;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals within this time count as one: timeout(1) signals a process and its group, and sudo passes on what the terminal sent already.
const ONCE: Duration = Duration::from_millis(300);

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT, blocked and readable.
#[derive(Debug)]
pub struct StopSignals {
    /// Their numbers, a byte each.
    told: PipeReader,
    /// Files are being opened, which may take for ever.
    opening: Arc<AtomicBool>,
}

impl StopSignals {
    /// Blocks the signals in the calling thread and those it starts later: call it before there are others. Ignored
    /// signals (nohup) stay ignored, save for SIGINT: shells let what scripts start by `&` ignore it, and who sends it means us.
    pub fn install() -> io::Result<StopSignals> {
        StopSignals::install_but(None)
    }

    /// As [`StopSignals::install`], but these end nothing: they are left as they are, for others to catch.
    pub fn install_without(left: &[i32]) -> io::Result<StopSignals> {
        StopSignals::install_for(left, None)
    }

    /// As [`StopSignals::install`], but `kept_off` ends nothing: it is blocked and nobody reads it. For Ctrl-C at a prompt.
    pub fn install_but(kept_off: Option<i32>) -> io::Result<StopSignals> {
        StopSignals::install_for(&[], kept_off)
    }

    fn install_for(left: &[i32], kept_off: Option<i32>) -> io::Result<StopSignals> {
        // What is blocked waits for its reader, also where it would be ignored; the program that we start ignores it as before.
        let heard = |signal: i32| signal == libc::SIGINT || !is_ignored(signal);
        let wanted = |signal: &i32| heard(*signal) && !left.contains(signal);
        // SAFETY: an empty set is all zero in every libc; the calls below take pointers to live values.
        let (set, arrive) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in SIGNALS.into_iter().filter(wanted) {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            kept_off.inspect(|signal| _ = libc::sigdelset(&mut set, *signal));
            (set, sys::owned(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?)
        };
        let (told, tell) = io::pipe()?;
        // A fork after this finds the thread waiting, and not in its start-up.
        let (begin, begun) = mpsc::channel();
        let opening = Arc::<AtomicBool>::default();
        let is_opening = opening.clone();
        let listen = move || {
            let _ = begin.send(());
            listen(&arrive, &set, tell, &is_opening);
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen)?;
        let _ = begun.recv();
        Ok(StopSignals { told, opening })
    }

    /// Opens files. A signal that comes meanwhile ends the process if it goes on for long: open(2) waits for the reader of a pipe.
    pub fn while_opening<T>(&self, open: impl FnOnce() -> T) -> T {
        self.opening.store(true, Ordering::Relaxed);
        let opened = open();
        self.opening.store(false, Ordering::Relaxed);
        opened
    }

    /// Readable once a signal came.
    pub fn fd(&self) -> RawFd {
        self.told.as_raw_fd()
    }

    /// Whether one came that was not taken yet.
    pub fn is_waiting(&self) -> bool {
        sys::poll(&mut [sys::readable(self.fd())], 0).is_ok_and(|ready| ready > 0)
    }

    /// The signal that came, if one did.
    pub fn take(&self) -> Option<i32> {
        let mut signal = [0];
        let read = self.is_waiting() && (&self.told).read(&mut signal).is_ok_and(|read| read > 0);
        read.then_some(i32::from(signal[0]))
    }
}

/// Tells of the first signal; soon after it they have their default effect, so that the next one ends us whatever we wait for: a
/// reader of our output that does not read, above all.
fn listen(arrive: &OwnedFd, set: &libc::sigset_t, mut tell: PipeWriter, is_opening: &AtomicBool) {
    let signal = loop {
        let heard = sys::poll(&mut [sys::readable(arrive.as_raw_fd())], -1).ok();
        if let Some(signal) = heard.and_then(|_| read(arrive.as_raw_fd())) {
            break signal;
        }
    };
    // Nobody hears it when the run is over.
    let _ = tell.write_all(&[signal as u8]);
    std::thread::sleep(ONCE);
    while read(arrive.as_raw_fd()).is_some() {}
    // SAFETY: no handler is installed; the set was initialised by who started us.
    unsafe {
        if is_ignored(libc::SIGINT) {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut());
        if is_opening.load(Ordering::Relaxed) {
            libc::kill(libc::getpid(), signal);
        }
    }
    // The one thread that takes them: it stays.
    loop {
        std::thread::park();
    }
}

/// The signal that a descriptor has for us.
fn read(fd: RawFd) -> Option<i32> {
    // SAFETY: a struct of plain numbers; read(2) writes at most its size.
    let (info, read) = unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        let read = libc::read(fd, (&raw mut info).cast(), size);
        (info, read)
    };
    (read > 0).then_some(info.ssi_signo as i32)
}

/// How often a signal came that a probe waits for. Whoever else waits for it is told too; a program that we start gets its
/// default effect.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pipe: UnixStream,
    handler: SigId,
}

impl Arrivals {
    /// From now on.
    pub fn of(signal: i32) -> io::Result<Arrivals> {
        let (pipe, told) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        told.set_nonblocking(true)?;
        Ok(Arrivals { pipe, handler: signal_hook::low_level::pipe::register(signal, told)? })
    }

    /// Readable when the signal came.
    pub fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Arrivals since the last call.
    pub fn take(&self) -> usize {
        (&self.pipe).read(&mut [0; 64]).unwrap_or(0)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.handler);
    }
}

/// Gives SIGCHLD its default effect, without which the exit status of a child is lost; returns whether our parent had it ignored.
pub(crate) fn reset_sigchld() -> bool {
    let ignored = is_ignored(libc::SIGCHLD);
    if ignored {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    ignored
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
