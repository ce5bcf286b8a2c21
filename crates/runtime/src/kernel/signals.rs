//! Signals as descriptors: those that end a run, and those of signal probes.
//!
//! The first signal that ends a run makes the descriptor readable. Soon afterwards the signals have their default actions again,
//! so that a second Ctrl-C ends the process at once. SIGPIPE stays ignored, as Rust sets it: a write of a sink fails with EPIPE.

use crate::kernel::sys;
use signal_hook::SigId;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals within this time count as one: timeout(1) signals a process and its group, and sudo forwards signals of the terminal.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// SIGINT, SIGTERM, SIGHUP and SIGQUIT, blocked and readable.
#[derive(Debug)]
pub struct StopSignals {
    /// Receives the number of the first signal, as a byte.
    arrived: PipeReader,
    /// True while files are opened, which may block forever.
    opening: Arc<AtomicBool>,
}

impl StopSignals {
    /// Blocks the signals in the calling thread and those it starts later; must be called before there are other threads.
    /// Ignored signals (nohup) stay ignored, except SIGINT, which shells ignore for background commands of scripts.
    pub fn install() -> io::Result<StopSignals> {
        StopSignals::install_but(None)
    }

    /// Like [`StopSignals::install`], but does not change the signals in `left`.
    pub fn install_without(left: &[i32]) -> io::Result<StopSignals> {
        StopSignals::install_for(left, None)
    }

    /// Like [`StopSignals::install`], but blocks `blocked` without reading it. For Ctrl-C at a prompt.
    pub fn install_but(blocked: Option<i32>) -> io::Result<StopSignals> {
        StopSignals::install_for(&[], blocked)
    }

    fn install_for(left: &[i32], blocked: Option<i32>) -> io::Result<StopSignals> {
        // A blocked signal waits for its reader even if it is ignored. Started programs still ignore it.
        let is_read =
            |signal: &i32| (*signal == libc::SIGINT || !is_ignored(*signal)) && !left.contains(signal);
        let mut set = set_of(SIGNALS.into_iter().filter(is_read));
        // SAFETY: the calls take pointers to live values.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            blocked.inspect(|signal| _ = libc::sigdelset(&mut set, *signal));
        }
        let arrive = descriptor_of(&set)?;
        let (arrived, writer) = io::pipe()?;
        // The thread must have started before this process forks.
        let (begin, begun) = mpsc::channel();
        let opening = Arc::<AtomicBool>::default();
        let is_opening = opening.clone();
        let listen = move || {
            let _ = begin.send(());
            listen(&arrive, &set, writer, &is_opening);
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen)?;
        let _ = begun.recv();
        Ok(StopSignals { arrived, opening })
    }

    /// Opens files. A signal during this ends the process if it takes long: open(2) waits for the reader of a pipe.
    pub fn while_opening<T>(&self, open: impl FnOnce() -> T) -> T {
        self.opening.store(true, Ordering::Relaxed);
        let opened = open();
        self.opening.store(false, Ordering::Relaxed);
        opened
    }

    /// Descriptor that is readable after a signal.
    pub fn fd(&self) -> RawFd {
        self.arrived.as_raw_fd()
    }

    /// Whether a signal has arrived that was not taken.
    pub fn is_waiting(&self) -> bool {
        sys::poll(&mut [sys::readable(self.fd())], 0).is_ok_and(|ready| ready > 0)
    }

    /// Takes the signal that has arrived, if there is one.
    pub fn take(&self) -> Option<i32> {
        let mut signal = [0];
        let read = self.is_waiting() && (&self.arrived).read(&mut signal).is_ok_and(|read| read > 0);
        read.then_some(i32::from(signal[0]))
    }
}

/// A signal that is blocked in all threads, such as that of [`StopSignals::install_but`], as a descriptor that is readable when it has come.
#[derive(Debug)]
pub struct BlockedSignal(OwnedFd);

impl BlockedSignal {
    /// Does not block it.
    pub fn new(signal: i32) -> io::Result<BlockedSignal> {
        descriptor_of(&set_of([signal])).map(BlockedSignal)
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes the signal, if it has come.
    pub fn take(&self) -> bool {
        read(self.fd()).is_some()
    }
}

/// Reports the first signal and restores the default actions. The next signal then ends the process even if it is blocked, for
/// example by a reader of its output that does not read.
fn listen(arrive: &OwnedFd, set: &libc::sigset_t, mut writer: PipeWriter, is_opening: &AtomicBool) {
    let signal = loop {
        let ready = sys::poll(&mut [sys::readable(arrive.as_raw_fd())], -1).ok();
        if let Some(signal) = ready.and_then(|_| read(arrive.as_raw_fd())) {
            break signal;
        }
    };
    // Fails after the end of the run.
    let _ = writer.write_all(&[signal as u8]);
    std::thread::sleep(SAME_SIGNAL);
    while read(arrive.as_raw_fd()).is_some() {}
    // SAFETY: no handler is installed; the caller has initialised the set.
    unsafe {
        if is_ignored(libc::SIGINT) {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut());
        if is_opening.load(Ordering::Relaxed) {
            libc::kill(libc::getpid(), signal);
        }
    }
    // This thread keeps the signals unblocked.
    loop {
        std::thread::park();
    }
}

fn set_of(signals: impl IntoIterator<Item = i32>) -> libc::sigset_t {
    // SAFETY: all zero is an empty set; the calls take pointers to live values.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// A signalfd for signals that are blocked.
fn descriptor_of(set: &libc::sigset_t) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a pointer to a live value.
    sys::owned(unsafe { libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())
}

/// Reads a signal from a signalfd.
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

/// Counts the arrivals of a signal for a probe. Other handlers of the signal run too; started programs have the default action.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pipe: UnixStream,
    handler: SigId,
}

impl Arrivals {
    /// Starts to count.
    pub(crate) fn of(signal: i32) -> io::Result<Arrivals> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Arrivals { pipe, handler: signal_hook::low_level::pipe::register(signal, writer)? })
    }

    /// Descriptor that is readable after the signal.
    pub(crate) fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Number of arrivals since the last call.
    pub(crate) fn take(&self) -> usize {
        (&self.pipe).read(&mut [0; 64]).unwrap_or(0)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.handler);
    }
}

/// Sets SIGCHLD to its default action, without which the exit status of a child is lost. Returns true if it was ignored.
pub(crate) fn reset_sigchld() -> bool {
    let ignored = is_ignored(libc::SIGCHLD);
    if ignored {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    ignored
}

/// Unblocks the signals in a started program. Async-signal-safe.
pub(crate) fn unblock() {
    // SAFETY: as in `install_for`.
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
