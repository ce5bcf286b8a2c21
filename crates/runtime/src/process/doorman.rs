//! The doorman: a process of ours that holds the seccomp listener of a traced program.
//!
//! It is a process of its own so that the traced program outlives us: a listener that is closed makes every further
//! mapping fail. It knows which files were seen, asks us about others over a socket, one at a time, and when the socket
//! is closed says yes to everything until the last traced process is gone. If we do not answer for [`PATIENCE`] the
//! program goes on, and does not wait for us again before we have caught up.

use super::executed;
use super::known::Known;
use crate::sys;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Device and inode of a file.
pub type Identity = (u64, u64);

/// A file that a traced program is about to map executable for the first time. The thread waits until
/// [`Mappings::answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The mapping thread, in our pid namespace.
    pub tid: u32,
    /// Device and inode, as `stat` gives them.
    pub identity: Identity,
    /// Path that we can open while the thread waits: `/proc/TID/fd/N`.
    pub open: PathBuf,
    /// Path as the program sees it.
    pub shown: PathBuf,
    /// Where it will lie, if the program has said that.
    pub place: Option<Place>,
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
    /// A file that it is about to map.
    Maps(Mapping),
    /// A program that it is about to execute; it can be opened until the answer.
    Executes(Mapping),
    /// It is about to end: the last chance to see what is mapped where. By thread.
    Ends(u32),
    /// Not a question, and nothing to answer: we were too late for one, and the program has gone on.
    Late,
}

/// How long a program waits for our answer. Finding and attaching the largest library takes a hundredth of that.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

/// Questions of the doorman.
#[derive(Debug)]
pub struct Mappings {
    socket: UnixStream,
    doorman: u32,
}

/// A question on the socket, little endian: kind, tid, fd and 0, 32 bits each; of a mapping its start (0: the kernel chooses),
/// its end and its offset in the file, 64 bits each.
const QUESTION: usize = 40;
/// Where the 64 bits begin.
const PLACE: usize = 16;

/// Kinds of question.
const MAPS: u32 = 0;
const EXECUTES: u32 = 1;
const ENDS: u32 = 2;
const LATE: u32 = 3;

impl Mappings {
    /// Readable when a question waits.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next question; `None` when the doorman has gone, with all traced processes.
    ///
    /// # Errors
    /// Those of the socket.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can fail: an iterator of results would not end at an error"
    )]
    pub fn next(&mut self) -> io::Result<Option<Question>> {
        let mut question = [0; QUESTION];
        match self.socket.read_exact(&mut question) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let word = |at: usize| u32::from_le_bytes(question[at..at + 4].try_into().expect("4 bytes"));
        let (kind, tid, fd) = (word(0), word(4), word(8));
        let holder = match kind {
            ENDS => return Ok(Some(Question::Ends(tid))),
            LATE => return Ok(Some(Question::Late)),
            EXECUTES => self.doorman,
            _ => tid,
        };
        let open = PathBuf::from(format!("/proc/{holder}/fd/{fd}"));
        // The thread waits, unless it was killed or has gone on meanwhile: then there is nothing to attach, and the
        // doorman may have left too.
        let (Ok(metadata), Ok(shown)) = (std::fs::metadata(&open), std::fs::read_link(&open)) else {
            let _ = self.answer();
            return self.next();
        };
        let (identity, shown) = (identity(&metadata), without_mark(shown));
        let long = |at: usize| u64::from_le_bytes(question[at..at + 8].try_into().expect("8 bytes"));
        let place = Place { start: long(PLACE), end: long(PLACE + 8), offset: long(PLACE + 16) };
        let place = Some(place).filter(|place| place.start != 0);
        let mapping = Mapping { tid, identity, open, shown, place };
        Ok(Some(if kind == EXECUTES { Question::Executes(mapping) } else { Question::Maps(mapping) }))
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
        let tid = u32::from_le_bytes(question[4..8].try_into().expect("4 bytes"));
        if peeked == QUESTION as isize && question[..4] == ENDS.to_le_bytes() && is_ours(tid) {
            self.socket.read_exact(&mut question)?;
            self.answer()?;
        }
        Ok(())
    }

    /// Lets the thread that asked go on.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn answer(&mut self) -> io::Result<()> {
        self.socket.write_all(&[1])
    }
}

/// Starts the doorman for a listener. `known` are files that need no question, unless `every` mapping is asked about, and are
/// marked when they are mapped; `held` is our child that waits to become the program.
///
/// # Errors
/// Those of socketpair(2) and fork(2).
pub(super) fn start(listener: OwnedFd, known: &Known, every: bool, held: u32) -> io::Result<Mappings> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: the child calls only async-signal-safe functions and the allocator; it is forked while no other thread of
    // ours can hold the allocator's lock (`Child::spawn` is called before threads are started, and its own helper
    // thread sleeps in the kernel).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            // Descriptors that it inherited would keep pipes of ours open.
            sys::close_all_but(vec![listener.as_raw_fd(), theirs.as_raw_fd()]);
            leave_session();
            let (socket, asked) = (Some(theirs), HashSet::new());
            Doorman { listener, socket, known, asked, every, held, unanswered: 0 }.serve();
            // SAFETY: ends this process without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        doorman => Ok(Mappings { socket: ours, doorman: doorman as u32 }),
    }
}

/// Ctrl-C is not for the doorman.
fn leave_session() {
    // SAFETY: plain system calls.
    unsafe {
        libc::setsid();
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, c"ct-doorman".as_ptr());
    }
}

struct Doorman<'a> {
    listener: OwnedFd,
    socket: Option<UnixStream>,
    known: &'a Known,
    /// Files that the tracer has heard of from us.
    asked: HashSet<Identity>,
    every: bool,
    held: u32,
    /// Questions that the tracer has not answered.
    unanswered: u32,
}

impl Doorman<'_> {
    fn serve(mut self) {
        while self.wait() {
            match self.receive() {
                Ok(Some(request)) => {
                    self.consider(&request);
                    self.pass(request.id);
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Waits for a report; false when no traced process is left.
    fn wait(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            // SAFETY: one valid pollfd.
            let ready = unsafe { libc::poll(&mut poll, 1, -1) };
            if ready > 0 {
                return poll.revents & libc::POLLIN != 0;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }

    /// The report; `None` when its thread died before we read it.
    fn receive(&self) -> io::Result<Option<libc::seccomp_notif>> {
        // SAFETY: all zero is valid for it, and the kernel wants it so.
        let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `seccomp_notif`.
        if unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut request) }
            == 0
        {
            return Ok(Some(request));
        }
        match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            error => Err(error),
        }
    }

    /// Asks about the file unless it is known; then it is.
    fn consider(&mut self, request: &libc::seccomp_notif) {
        match i64::from(request.data.nr) {
            libc::SYS_mmap => self.maps(request),
            libc::SYS_execve | libc::SYS_execveat => self.executes(request),
            _ => self.ask(ENDS, request.pid, 0, None),
        }
    }

    fn maps(&mut self, request: &libc::seccomp_notif) {
        // mmap's descriptor is an int: the upper half of the register means nothing.
        let fd = request.data.args[4] as u32;
        let Ok(metadata) = std::fs::metadata(format!("/proc/{}/fd/{fd}", request.pid)) else { return };
        if self.is_new(&metadata) || self.every {
            self.ask(MAPS, request.pid, fd, place(&request.data));
        }
    }

    fn executes(&mut self, request: &libc::seccomp_notif) {
        let Some(program) = executed::open(request.pid, &request.data) else { return };
        let Ok(metadata) = program.metadata() else { return };
        if let Some(Ok(loader)) = executed::loader(request.pid, &program).map(|loader| loader.metadata()) {
            self.known.mark(&identity(&loader));
        }
        // The command's own program was looked at before it was started.
        if request.pid == self.held && is_ours(self.held) {
            self.known.mark(&identity(&metadata));
        } else if self.is_new(&metadata) {
            self.ask(EXECUTES, request.pid, program.as_raw_fd() as u32, None);
        }
    }

    /// Whether the tracer has to hear of a file that is mapped now.
    fn is_new(&mut self, file: &std::fs::Metadata) -> bool {
        let file = identity(file);
        !self.known.mark(&file) && self.asked.insert(file)
    }

    fn ask(&mut self, kind: u32, tid: u32, fd: u32, place: Option<Place>) {
        if self.try_ask(kind, tid, fd, place).is_err() {
            self.socket = None;
        }
    }

    /// Asks, and waits for the answer unless we have fallen behind.
    fn try_ask(&mut self, kind: u32, tid: u32, fd: u32, place: Option<Place>) -> io::Result<()> {
        while self.unanswered > 0 && self.hear(Duration::ZERO)? {}
        let is_behind = self.unanswered > 0;
        if !self.send(kind, tid, fd, place)? {
            return Ok(());
        }
        self.unanswered += 1;
        let start = Instant::now();
        while self.unanswered > 0 && !is_behind {
            if !self.hear(PATIENCE.saturating_sub(start.elapsed()))? {
                self.send(LATE, tid, 0, None)?;
                break;
            }
        }
        Ok(())
    }

    /// Whether there was room: the tracer may be stuck for long.
    fn send(&mut self, kind: u32, tid: u32, fd: u32, place: Option<Place>) -> io::Result<bool> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let mut question = [0; QUESTION];
        for (bytes, word) in question.chunks_exact_mut(4).zip([kind, tid, fd]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let words = place.map_or([0; 3], |place| [place.start, place.end, place.offset]);
        for (bytes, word) in question[PLACE..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: a buffer with its length; so few bytes are sent whole or not at all.
        let sent = unsafe { libc::send(socket.as_raw_fd(), question.as_ptr().cast(), QUESTION, flags) };
        match io::Error::last_os_error() {
            _ if sent == QUESTION as isize => Ok(true),
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// Takes in answers, of which each is a byte; whether there were any in time.
    fn hear(&mut self, patience: Duration) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        if sys::poll(&mut [sys::readable(socket.as_raw_fd())], patience.as_millis() as i32)? == 0 {
            return Ok(false);
        }
        let answers = socket.read(&mut [0; 64])?;
        if answers == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unanswered = self.unanswered.saturating_sub(answers as u32);
        Ok(true)
    }

    /// Lets the system call run as if nobody had looked.
    fn pass(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the kernel reads one `seccomp_notif_resp`. It fails only if the thread was killed.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) };
    }
}

fn identity(metadata: &std::fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The path of a file that has been deleted, or never had a place on disk, as the kernel shows it: with a mark.
fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsStr::from_bytes(path).into(),
        None => path,
    }
}

/// Where mmap(2) is told to put a file; otherwise the kernel chooses.
fn place(call: &libc::seccomp_data) -> Option<Place> {
    let [start, len, _, flags, _, offset] = call.args;
    let page = sys::page_size() as u64;
    let end = start.checked_add(len)?.checked_next_multiple_of(page)?;
    (flags & libc::MAP_FIXED as u64 != 0).then_some(Place { start, end, offset })
}

/// The process still runs our own program.
fn is_ours(pid: u32) -> bool {
    let of = |who: &str| std::fs::metadata(format!("/proc/{who}/exe")).map(|metadata| identity(&metadata));
    matches!((of(&pid.to_string()), of("self")), (Ok(its), Ok(ours)) if its == ours)
}

/// Takes a descriptor out of a process of ours.
///
/// # Errors
/// Those of pidfd_getfd(2) (Linux 5.6).
pub fn descriptor_of(pidfd: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    sys::owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) })
}
