//! The doorman: a process of ours that holds the seccomp listener of a traced program.
//!
//! It is a process of its own so that the traced program outlives us: a listener that is closed makes every further
//! mapping fail. It knows which files were seen, asks us about others over a socket, one at a time, and when the socket
//! is closed says yes to everything until the last traced process is gone.

use crate::sys;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

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
}

/// What a traced program waits for us to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A file that it is about to map.
    Maps(Mapping),
    /// It is about to end: the last chance to see what is mapped where. By thread.
    Ends(u32),
}

/// Questions of the doorman.
#[derive(Debug)]
pub struct Mappings {
    socket: UnixStream,
}

/// A question on the socket: tid and fd, little endian.
const QUESTION: usize = 8;
/// In place of an fd: the process ends.
const ENDS: u32 = u32::MAX;

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
        let (tid, fd) = (word(0), word(4));
        if fd == ENDS {
            return Ok(Some(Question::Ends(tid)));
        }
        let open = PathBuf::from(format!("/proc/{tid}/fd/{fd}"));
        // The thread waits, unless it was killed meanwhile: then there is nothing to attach.
        let (Ok(metadata), Ok(shown)) = (std::fs::metadata(&open), std::fs::read_link(&open)) else {
            self.answer()?;
            return self.next();
        };
        let identity = (metadata.dev(), metadata.ino());
        Ok(Some(Question::Maps(Mapping { tid, identity, open, shown })))
    }

    /// Lets a process end that waits to do so, within some ms; other questions stay.
    pub(super) fn let_end(&mut self, timeout_ms: i32) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut question = [0; QUESTION];
        // SAFETY: one valid pollfd, and a buffer of the length that is given.
        let peeked = unsafe {
            libc::poll(&mut poll, 1, timeout_ms);
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(self.socket.as_raw_fd(), question.as_mut_ptr().cast(), QUESTION, flags)
        };
        if peeked == QUESTION as isize && question[4..] == ENDS.to_le_bytes() {
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

/// Starts the doorman for a listener. `known` are files that need no question.
///
/// # Errors
/// Those of socketpair(2) and fork(2).
pub fn start(listener: OwnedFd, known: HashSet<Identity>) -> io::Result<Mappings> {
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
            Doorman { listener, socket: Some(theirs), known }.serve();
            // SAFETY: ends this process without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        _ => Ok(Mappings { socket: ours }),
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

struct Doorman {
    listener: OwnedFd,
    socket: Option<UnixStream>,
    known: HashSet<Identity>,
}

impl Doorman {
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
        if i64::from(request.data.nr) != libc::SYS_mmap {
            if self.ask(request.pid, ENDS).is_err() {
                self.socket = None;
            }
            return;
        }
        // mmap's descriptor is an int: the upper half of the register means nothing.
        let fd = request.data.args[4] as u32;
        let Ok(metadata) = std::fs::metadata(format!("/proc/{}/fd/{fd}", request.pid)) else { return };
        let identity = (metadata.dev(), metadata.ino());
        if self.known.contains(&identity) {
            return;
        }
        if self.ask(request.pid, fd).is_err() {
            self.socket = None;
        }
        self.known.insert(identity);
    }

    fn ask(&mut self, tid: u32, fd: u32) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let mut question = [0; QUESTION];
        question[..4].copy_from_slice(&tid.to_le_bytes());
        question[4..].copy_from_slice(&fd.to_le_bytes());
        socket.write_all(&question)?;
        socket.read_exact(&mut [0])
    }

    /// Lets the system call run as if nobody had looked.
    fn pass(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the kernel reads one `seccomp_notif_resp`. It fails only if the thread was killed.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) };
    }
}

/// Takes a descriptor out of a process of ours.
///
/// # Errors
/// Those of pidfd_getfd(2) (Linux 5.6).
pub fn descriptor_of(pidfd: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain system call.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(taken as i32) })
}
