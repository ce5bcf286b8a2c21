//! The tracer's side of the doorman: the process that holds the seccomp listener of a traced program (`seccomp_server`).
//!
//! It is a process of its own so that the traced program outlives us: a listener that is closed makes every further
//! mapping fail. It knows which files were seen, asks us about others over a socket, one at a time, and when the socket
//! is closed lets everything pass until the last traced process is gone. If we do not answer for some seconds the
//! program goes on, and does not wait for us again before we have caught up.
//!
//! It runs our own executable, since a program that has threads cannot be forked into one that starts others. If it is killed
//! while we live, another one takes its place; if it is stopped, it is continued.

use super::seccomp_server;
use super::shared_memory::{FileState, Identity, Shared};
use crate::kernel::sys;
use rustix::process::PidfdGetfdFlags;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

/// A file that a traced program is about to map executable for the first time. The thread waits until
/// [`Mappings::answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The mapping thread, in our pid namespace.
    pub tid: u32,
    /// The file as it is now.
    pub state: FileState,
    /// Path that we can open while the thread waits: `/proc/TID/fd/N`, or the doorman's own descriptor.
    pub open: PathBuf,
    /// Path as the program sees it.
    pub shown: PathBuf,
    /// Where it will lie, if the program has said that.
    pub place: Option<Place>,
}

impl Mapping {
    /// Device and inode, as `stat` gives them.
    pub fn identity(&self) -> Identity {
        self.state.identity
    }
}

/// Where a file is mapped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Where in the file it starts, in bytes.
    pub offset: u64,
}

/// What a traced program waits for us to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A file that it is about to map, or has mapped and is about to make executable.
    Maps(Mapping),
    /// A program that it is about to execute; it can be opened until the answer.
    Executes(Mapping),
    /// It is about to end: the last chance to see what is mapped where. By thread.
    Ends(u32),
    /// It asks for a seccomp listener of its own, which the kernel refuses while ours is there.
    InstallsListener(u32),
    /// It asks for seccomp's strict mode, which the kernel refuses while our filter is there.
    EntersStrictMode(u32),
}

/// Questions of the doorman.
#[derive(Debug)]
pub struct Mappings {
    socket: UnixStream,
    doorman: u32,
    /// A copy, for a successor.
    listener: OwnedFd,
    shared: Arc<Shared>,
    held_since_ns: Option<u64>,
}

/// A question on the socket, little endian: kind, tid, fd and 0, 32 bits each; of a mapping its start (0: the kernel chooses),
/// its end and its offset in the file, 64 bits each; the boot-clock time since which the thread waits (0: it does not).
pub(super) const QUESTION: usize = 48;
/// Where the 64 bits begin.
pub(super) const PLACE: usize = 16;
/// Where the time is.
pub(super) const SINCE: usize = 40;

/// Kinds of question.
pub(super) const MAPS: u32 = 0;
pub(super) const EXECUTES: u32 = 1;
pub(super) const ENDS: u32 = 2;
pub(super) const LISTENER: u32 = 3;
pub(super) const STRICT: u32 = 4;
pub(super) const PROTECTS: u32 = 5;

/// The descriptors that a doorman inherits, `LISTENER,SOCKET,MEMORY`, are in this variable.
const VARIABLE: &str = "CT_DOORMAN";
/// What it is called: not as we are, since `pkill -9` is for us.
const NAME: &str = "ct-doorman";
/// The tests' own program can be started as one test alone.
const ARGUMENTS: &[&str] =
    if cfg!(test) { &["--exact", "process::tests::doorman", "--ignored", "--nocapture"] } else { &[] };

/// Becomes the doorman if this process was started to be one, and then does not return. The first thing that `main` does.
pub fn serve_if_doorman() {
    let is_doorman = cfg!(test) || std::env::args_os().next().is_some_and(|name| name == NAME);
    let fds = std::env::var(VARIABLE).ok().filter(|_| is_doorman);
    let numbers: Option<Vec<i32>> = fds.and_then(|fds| fds.split(',').map(|fd| fd.parse().ok()).collect());
    if let Some(fds) = numbers.and_then(|numbers| numbers.try_into().ok()) {
        seccomp_server::serve(fds);
    }
}

impl Mappings {
    /// Starts a doorman for a listener.
    ///
    /// # Errors
    /// The errors of socketpair(2) and exec(2).
    pub(super) fn start(listener: OwnedFd, shared: Arc<Shared>) -> io::Result<Mappings> {
        let (socket, theirs) = UnixStream::pair()?;
        let doorman = start(&listener, &theirs, &shared)?;
        Ok(Mappings { socket, doorman, listener, shared, held_since_ns: None })
    }

    /// Readable when a question waits.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Mappings and programs that went on before we had looked at them: we were too slow, or a file system was.
    pub fn late(&self) -> u64 {
        self.shared.late()
    }

    /// The next question; `None` when the doorman has gone, with all traced processes.
    ///
    /// # Errors
    /// The errors of the socket, and of starting another doorman.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can fail: an iterator of results would not end at an error"
    )]
    pub fn next(&mut self) -> io::Result<Option<Question>> {
        loop {
            let mut question = [0; QUESTION];
            match self.socket.read_exact(&mut question) {
                Ok(()) => {}
                Err(_) if self.replace()? => continue,
                Err(_) => return Ok(None),
            }
            self.held_since_ns = Some(long(&question, SINCE)).filter(|&since_ns| since_ns != 0);
            match self.read(&question) {
                Some(question) => return Ok(Some(question)),
                None => self.answer()?,
            }
        }
    }

    /// A question; `None` if nobody waits for the answer any more.
    fn read(&self, question: &[u8; QUESTION]) -> Option<Question> {
        let word = |at: usize| u32::from_le_bytes(question[at..at + 4].try_into().expect("4 bytes"));
        let (kind, tid, fd) = (word(0), word(4), word(8));
        let holder = match kind {
            ENDS => return Some(Question::Ends(tid)),
            LISTENER => return Some(Question::InstallsListener(tid)),
            STRICT => return Some(Question::EntersStrictMode(tid)),
            EXECUTES | PROTECTS => self.doorman,
            _ => tid,
        };
        let open = PathBuf::from(format!("/proc/{holder}/fd/{fd}"));
        // The thread waits, unless it was killed or has gone on meanwhile: then there is nothing to attach, and the
        // doorman may have left too.
        let (state, shown) = (FileState::of(&open).ok()?, without_mark(std::fs::read_link(&open).ok()?));
        let [start, end, offset] = [0, 8, 16].map(|at| long(question, PLACE + at));
        let place = Place { start, end, offset };
        let place = Some(place).filter(|place| place.start != 0);
        let mapping = Mapping { tid, state, open, shown, place };
        Some(if kind == EXECUTES { Question::Executes(mapping) } else { Question::Maps(mapping) })
    }

    /// Boot-clock time since which the thread of the last question waits; `None` if it went on, since we were behind.
    pub fn held_since_ns(&self) -> Option<u64> {
        self.held_since_ns
    }

    /// Starts another doorman in the place of one that has ended, unless no traced process is left.
    fn replace(&mut self) -> io::Result<bool> {
        let mut listener = libc::pollfd { fd: self.listener.as_raw_fd(), events: 0, revents: 0 };
        sys::poll(std::slice::from_mut(&mut listener), 0)?;
        let is_needed = listener.revents & libc::POLLHUP == 0;
        if is_needed {
            *self = Mappings::start(self.listener.try_clone()?, Arc::clone(&self.shared))?;
        }
        Ok(is_needed)
    }

    /// Lets a process end that waits to do so, within some ms, without having become its program; other questions stay, of a
    /// program that has run and ends already too.
    pub(super) fn let_end(&mut self, timeout_ms: i32) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut question = [0; QUESTION];
        // SAFETY: one valid pollfd, and a buffer of the length that is given.
        let peeked = unsafe {
            libc::poll(&mut poll, 1, timeout_ms);
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(self.socket.as_raw_fd(), question.as_mut_ptr().cast(), QUESTION, flags)
        };
        if peeked == 0 {
            return self.replace().map(drop);
        }
        let tid = u32::from_le_bytes(question[4..8].try_into().expect("4 bytes"));
        if peeked == QUESTION as isize && question[..4] == ENDS.to_le_bytes() && seccomp_server::is_ours(tid)
        {
            self.socket.read_exact(&mut question)?;
            self.answer()?;
        }
        Ok(())
    }

    /// Lets the thread that asked go on. A doorman that was killed needs no answer.
    ///
    /// # Errors
    /// The errors of the socket.
    pub fn answer(&mut self) -> io::Result<()> {
        match self.socket.write_all(&[1]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
impl Mappings {
    pub(super) fn doorman(&self) -> u32 {
        self.doorman
    }

    pub(super) fn kill_doorman(&self) {
        // SAFETY: our child, which has asked a question and waits for its answer.
        unsafe { libc::kill(self.doorman as i32, libc::SIGKILL) };
    }
}

/// Starts the process, and looks after it; its pid.
fn start(listener: &OwnedFd, socket: &UnixStream, shared: &Shared) -> io::Result<u32> {
    let fds = [listener.as_raw_fd(), socket.as_raw_fd(), shared.fd().as_raw_fd()];
    let mut process = std::process::Command::new("/proc/self/exe");
    process.arg0(NAME).args(ARGUMENTS).env(VARIABLE, fds.map(|fd| fd.to_string()).join(","));
    process.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let prepare = move || {
        seccomp_server::ignore_signals();
        // SAFETY: plain system calls. Ctrl-C is not for the doorman; the descriptors are inherited.
        unsafe {
            libc::setsid();
            fds.iter().try_for_each(|&fd| sys::check(libc::fcntl(fd, libc::F_SETFD, 0).into()).map(drop))
        }
    };
    // SAFETY: it makes only async-signal-safe calls.
    unsafe { process.pre_exec(prepare) };
    let pid = process.spawn()?.id();
    std::thread::Builder::new().name("keeper".into()).spawn(move || keep_running(pid as libc::pid_t))?;
    Ok(pid)
}

/// Continues the doorman each time that it is stopped, and reaps it when it has ended. SIGSTOP cannot be ignored, and a traced
/// program would wait for as long as it lasts. A thread of its own does this, as ours may wait for the reader of the output.
fn keep_running(doorman: libc::pid_t) {
    loop {
        let mut status = 0;
        // SAFETY: a child of ours, which nobody else waits for.
        match unsafe { libc::waitpid(doorman, &mut status, libc::WUNTRACED) } {
            // SAFETY: it has not been reaped, so the number is still its own.
            pid if pid == doorman && libc::WIFSTOPPED(status) => unsafe {
                libc::kill(doorman, libc::SIGCONT);
            },
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

fn long(question: &[u8; QUESTION], at: usize) -> u64 {
    u64::from_le_bytes(question[at..at + 8].try_into().expect("8 bytes"))
}

/// The path of a file that has been deleted, or never had a place on disk, as the kernel shows it: with a mark.
fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsStr::from_bytes(path).into(),
        None => path,
    }
}

/// Takes a descriptor out of a process of ours.
///
/// # Errors
/// The errors of pidfd_getfd(2) (Linux 5.6).
pub(super) fn descriptor_of(pidfd: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty())?)
}
