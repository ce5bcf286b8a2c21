//! The tracer's side of the seccomp server: starts the process, receives its queries and answers them.
//!
//! The server is a process of its own because the traced program outlives the tracer: once a listener is closed, every
//! further mapping fails. The server runs this executable, because a process that has threads cannot be forked into one that
//! starts threads. If it is killed while the tracer runs, another one is started; if it is stopped, it is continued.
//!
//! Not here: how a request is answered (`seccomp_server`).

use super::query::{
    BEGINS, ENDS, EXECUTES, FILTER, LISTENER, Mapping, PROTECTS, Query, QueryMessage, RIGHTS, SIZE, STRICT,
};
use super::seccomp_server;
use super::shared_memory::{FileState, SharedState};
use crate::kernel::sys;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

/// Receiver of the seccomp server's queries.
#[derive(Debug)]
pub struct Mappings {
    socket: UnixStream,
    server: u32,
    /// Copy of the listener, for the next server if this one is killed.
    listener: OwnedFd,
    shared: Arc<SharedState>,
    held_since_ns: Option<u64>,
}

/// Arguments of the server: the test program runs a single test.
const ARGUMENTS: &[&str] =
    if cfg!(test) { &["--exact", "started::tests::seccomp_server", "--ignored", "--nocapture"] } else { &[] };

impl Mappings {
    /// Starts a seccomp server for a listener.
    ///
    /// # Errors
    /// The errors of socketpair(2) and exec(2).
    pub(super) fn start(listener: OwnedFd, shared: Arc<SharedState>) -> io::Result<Mappings> {
        let (socket, theirs) = UnixStream::pair()?;
        let server = start(&listener, &theirs, &shared)?;
        Ok(Mappings { socket, server, listener, shared, held_since_ns: None })
    }

    /// Descriptor that is readable when there is a query.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Number of requests that were answered without the tracer, because it or a file system was too slow.
    pub fn late(&self) -> u64 {
        self.shared.late()
    }

    /// The threads of such requests after so many, as far as they are known.
    pub fn late_threads(&self, after: u64) -> Vec<u32> {
        self.shared.late_threads(after)
    }

    /// Receives the next query; `None` if the server and all traced processes have ended.
    ///
    /// # Errors
    /// The errors of the socket, and of starting another server.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can fail: an iterator of results would not end at an error"
    )]
    pub fn next(&mut self) -> io::Result<Option<Query>> {
        loop {
            let mut message = [0; SIZE];
            match self.socket.read_exact(&mut message) {
                Ok(()) => {}
                Err(_) if self.replace()? => continue,
                Err(_) => return Ok(None),
            }
            let message = QueryMessage::decode(&message);
            self.held_since_ns = Some(message.since_ns).filter(|&since_ns| since_ns != 0);
            match self.query(&message) {
                Some(query) => return Ok(Some(query)),
                None => self.answer()?,
            }
        }
    }

    /// The query of a message; `None` if its thread is no longer held.
    fn query(&self, &QueryMessage { kind, tid, fd, range, .. }: &QueryMessage) -> Option<Query> {
        let file = match kind {
            ENDS => return Some(Query::Ends(tid)),
            LISTENER => return Some(Query::InstallsListener(tid)),
            FILTER => return Some(Query::InstallsFilter(tid)),
            STRICT => return Some(Query::EntersStrictMode(tid)),
            RIGHTS => return Some(Query::ChangesRights(tid)),
            BEGINS => format!("{tid}/exe"),
            EXECUTES | PROTECTS => format!("{}/fd/{fd}", self.server),
            _ => format!("{tid}/fd/{fd}"),
        };
        let open = PathBuf::from(format!("/proc/{file}"));
        // Fails if the thread was killed or has continued, and if the server has ended: then there is nothing to attach.
        let (state, shown) = (FileState::of(&open).ok()?, without_mark(std::fs::read_link(&open).ok()?));
        let mapping = Mapping { tid, state, open, shown, range };
        Some(match kind {
            BEGINS => Query::Begins(mapping),
            EXECUTES => Query::Executes(mapping),
            _ => Query::Maps(mapping),
        })
    }

    /// Boot-clock time since which the thread of the last query is held; `None` if it has continued, because the tracer was
    /// behind with answers.
    pub fn held_since_ns(&self) -> Option<u64> {
        self.held_since_ns
    }

    /// Starts another server after one that has ended, unless no traced process is left.
    fn replace(&mut self) -> io::Result<bool> {
        let mut listener = libc::pollfd { fd: self.listener.as_raw_fd(), events: 0, revents: 0 };
        sys::poll(std::slice::from_mut(&mut listener), 0)?;
        let is_needed = listener.revents & libc::POLLHUP == 0;
        if is_needed {
            *self = Mappings::start(self.listener.try_clone()?, Arc::clone(&self.shared))?;
        }
        Ok(is_needed)
    }

    /// Answers a process that ends without having become its program, if there is one within the timeout. Other queries stay
    /// in the socket, also that of a program that ends after it has run.
    pub(super) fn let_end(&mut self, timeout_ms: i32) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut message = [0; SIZE];
        // SAFETY: one valid pollfd, and a buffer of the given length.
        let peeked = unsafe {
            libc::poll(&mut poll, 1, timeout_ms);
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(self.socket.as_raw_fd(), message.as_mut_ptr().cast(), SIZE, flags)
        };
        if peeked == 0 {
            return self.replace().map(drop);
        }
        let QueryMessage { kind, tid, .. } = QueryMessage::decode(&message);
        if peeked == SIZE as isize && kind == ENDS && seccomp_server::runs_our_program(tid) {
            self.socket.read_exact(&mut message)?;
            self.answer()?;
        }
        Ok(())
    }

    /// Releases the thread of the last query. A server that was killed needs no answer.
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
    pub(super) fn server(&self) -> u32 {
        self.server
    }

    pub(super) fn kill_server(&self) {
        // SAFETY: a child of this process, which waits for the answer to its query.
        unsafe { libc::kill(self.server as i32, libc::SIGKILL) };
    }
}

/// Starts the server and a thread that keeps it running; returns its pid.
fn start(listener: &OwnedFd, socket: &UnixStream, shared: &SharedState) -> io::Result<u32> {
    if !seccomp_server::can_serve() {
        return Err(io::Error::other("this program cannot be the seccomp server"));
    }
    let fds = [listener.as_raw_fd(), socket.as_raw_fd(), shared.fd().as_raw_fd()];
    let mut process = std::process::Command::new("/proc/self/exe");
    process
        .arg0(seccomp_server::NAME)
        .args(ARGUMENTS)
        .env(seccomp_server::VARIABLE, fds.map(|fd| fd.to_string()).join(","));
    process.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let prepare = move || {
        seccomp_server::ignore_signals();
        // SAFETY: plain system calls. Ctrl-C must not reach the server; it inherits the descriptors.
        unsafe {
            libc::setsid();
            fds.iter().try_for_each(|&fd| sys::check(libc::fcntl(fd, libc::F_SETFD, 0).into()).map(drop))
        }
    };
    // SAFETY: `prepare` makes only async-signal-safe calls.
    unsafe { process.pre_exec(prepare) };
    let pid = process.spawn()?.id();
    std::thread::Builder::new().name("keeper".into()).spawn(move || keep_running(pid as libc::pid_t))?;
    Ok(pid)
}

/// Continues the server each time that it is stopped, and reaps it when it has ended. SIGSTOP cannot be ignored, and would
/// hold a traced program for as long as it lasts. Runs in a thread of its own, because the main thread may wait for the reader
/// of the output.
fn keep_running(server: libc::pid_t) {
    loop {
        let mut status = 0;
        // SAFETY: a child of this process that only this thread waits for.
        match unsafe { libc::waitpid(server, &mut status, libc::WUNTRACED) } {
            // SAFETY: the child has not been reaped, so no other process has its number.
            pid if pid == server && libc::WIFSTOPPED(status) => unsafe {
                libc::kill(server, libc::SIGCONT);
            },
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// Removes the mark that the kernel appends to the path of a file that is deleted or exists only in memory.
fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsStr::from_bytes(path).into(),
        None => path,
    }
}
