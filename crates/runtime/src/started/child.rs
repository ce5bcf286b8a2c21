//! Starts the program to trace, and holds it before its first instruction until the probes are attached.

use super::seccomp_filter;
use super::server_handle::Mappings;
use super::shared_memory::{FileState, Identity, MappingScope, SharedState};
use crate::kernel::{signals, sys};
use linux::pidfd;
use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use thiserror::Error;

/// A program to start.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Program, which is searched on PATH, and its arguments; not empty.
    pub argv: Vec<OsString>,
    /// Variables of its environment, in addition to those of the tracer.
    pub environment: Vec<(OsString, OsString)>,
    /// User to run it as; `None`: the tracer's.
    pub user: Option<String>,
    /// True to report the files that it maps; see [`Child::mappings`].
    pub watch_mappings: bool,
    /// True to report processes that are about to end, in addition to mappings.
    pub watch_ends: bool,
    /// Files that need not be reported unless they change.
    pub known: Vec<FileState>,
    /// True to separate it from the terminal: its input is empty, [`Child::output`] receives stdout and stderr, and Ctrl-C
    /// does not reach it.
    pub captured: bool,
    /// Which mappings are reported.
    pub reported: MappingScope,
}

/// Why a program was not started.
#[derive(Debug, Error)]
pub enum SpawnError {
    /// The user of `--user` does not exist.
    #[error("no user `{0}` on this machine")]
    NoUser(String),
    /// exec(2) or one of the steps before it.
    #[error("cannot start `{program}`: {reason}")]
    Exec {
        /// As typed.
        program: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Pipes, descriptors or the seccomp server.
    #[error("cannot prepare to start a program: {0}")]
    Prepare(#[from] io::Error),
}

/// A started program: held, then running, then reaped. If it is dropped before its end, it receives SIGTERM.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    pidfd: OwnedFd,
    gate: Option<PipeWriter>,
    starter: Option<JoinHandle<io::Result<std::process::Child>>>,
    program: String,
    status: Option<ExitStatus>,
    /// Queries about files that it is about to map. `None` unless requested, or if the kernel refuses; see `unwatched`.
    pub mappings: Option<Mappings>,
    /// Error, if mappings were requested but are not watched.
    pub unwatched: Option<io::Error>,
    /// Its output, if that is captured.
    pub output: Option<PipeReader>,
    shared: Option<Arc<SharedState>>,
}

/// Size of the message of the held child: its pid, and its seccomp listener or a negative errno.
const HELLO: usize = 8;

impl Child {
    /// Starts the program and holds it before exec.
    ///
    /// # Errors
    /// See [`SpawnError`]. A program that does not exist is reported by [`Child::release`].
    pub fn spawn(command: &Command) -> Result<Child, SpawnError> {
        let program = command.argv[0].to_string_lossy().into_owned();
        let identity = command.user.as_deref().map(user).transpose()?;
        let (gate_in, gate) = io::pipe()?;
        let (mut hello, hello_out) = io::pipe()?;
        let mut process = std::process::Command::new(&command.argv[0]);
        process.args(&command.argv[1..]).envs(command.environment.iter().cloned());
        if let Some(user) = &identity {
            process.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        let output = if command.captured { Some(capture_output(&mut process)?) } else { None };
        let mut hold = Hold {
            ignores_children: signals::reset_sigchld(),
            watch: command.watch_mappings,
            ends: command.watch_ends,
            patched: command.reported == MappingScope::All,
            identity,
            gate: gate_in,
            gate_writer: gate.as_raw_fd(),
            hello: hello_out,
        };
        // SAFETY: `Hold::run` makes only async-signal-safe calls.
        unsafe { process.pre_exec(move || hold.run()) };
        // `spawn` returns after exec, and exec waits for the gate, so it is called in a thread.
        let starter = std::thread::spawn(move || process.spawn());
        let mut message = [0; HELLO];
        if hello.read_exact(&mut message).is_err() {
            let error = starter.join().expect("does not panic").err();
            return Err(exec_error(&program, error.unwrap_or_else(|| io::ErrorKind::Other.into())));
        }
        let word = |at: usize| i32::from_le_bytes(message[at..at + 4].try_into().expect("4 bytes"));
        let pid = word(0) as u32;
        let pidfd = pidfd::open(pid)?;
        let (gate, starter) = (Some(gate), Some(starter));
        let (status, mappings, unwatched, shared) = (None, None, None, None);
        let mut child =
            Child { pid, pidfd, gate, starter, program, status, mappings, unwatched, output, shared };
        match child.watch(command, word(4)) {
            Ok(()) => Ok(child),
            // Its filter would fail each reported system call, because nothing answers.
            Err(error) => {
                drop(child);
                let mut child = Child::spawn(&Command { watch_mappings: false, ..command.clone() })?;
                child.unwatched = Some(error);
                Ok(child)
            }
        }
    }

    /// Starts the seccomp server for the child's listener. Without a listener the child is not watched.
    fn watch(&mut self, command: &Command, listener: RawFd) -> io::Result<()> {
        if listener < 0 {
            self.unwatched = Some(io::Error::from_raw_os_error(-listener));
        }
        if !command.watch_mappings || listener < 0 {
            return Ok(());
        }
        // The server is started by its path in /proc, and finds files there.
        if !Path::new("/proc/self/exe").exists() {
            return Err(io::Error::other("/proc is not mounted"));
        }
        let listener = pidfd::descriptor_of(&self.pidfd, listener)?;
        let shared = Arc::new(SharedState::new(&command.known, command.reported, self.pid)?);
        self.mappings = Some(Mappings::start(listener, Arc::clone(&shared))?);
        self.shared = Some(shared);
        Ok(())
    }

    /// Whether it or one of its children has mapped this file of [`Command::known`]. False if mappings are not watched.
    pub fn has_mapped(&self, file: &Identity) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_mapped(file))
    }

    /// False if mappings were requested but are not watched.
    pub fn is_watched(&self) -> bool {
        self.unwatched.is_none()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Descriptor that is readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Lets it run. Its first program causes no query, so this does not wait for an answer.
    ///
    /// # Errors
    /// [`SpawnError::Exec`] if there is no such program.
    pub fn release(&mut self) -> Result<(), SpawnError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        gate.write_all(&[1])?;
        let starter = self.starter.take().expect("released once");
        // A program that cannot be started ends, which may be a query.
        while let (false, Some(mappings)) = (starter.is_finished(), &mut self.mappings) {
            mappings.let_end(1)?;
        }
        let started = starter.join().expect("does not panic");
        match started {
            // This type reaps by pid; std's handle must not reap too.
            Ok(handle) => {
                drop(handle);
                Ok(())
            }
            Err(error) => {
                self.status = Some(ExitStatus::from_raw(127 << 8));
                Err(exec_error(&self.program, error))
            }
        }
    }

    /// Waits until it has ended; returns its exit status.
    ///
    /// # Errors
    /// The errors of waitpid(2).
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        while self.status.is_none() {
            let mut status = 0;
            // SAFETY: `pid` is a child of this process that has not been reaped.
            let reaped = unsafe { libc::waitpid(self.pid as i32, &mut status, 0) };
            if reaped == self.pid as i32 {
                self.status = status_of_end(status);
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(self.status.expect("set above"))
    }

    /// Its exit status if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        let mut status = 0;
        if self.status.is_none() {
            // SAFETY: as in `wait`.
            let reaped = unsafe { libc::waitpid(self.pid as i32, &mut status, libc::WNOHANG) };
            self.status = if reaped == self.pid as i32 { status_of_end(status) } else { None };
        }
        self.status
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        // A pidfd refers to this process, never to a later one with the same number.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::TERM);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.gate.is_some() || self.try_wait().is_none() {
            self.terminate();
        }
        // A child that waits at the gate ends when the gate is closed.
        self.mappings = None;
        self.gate = None;
        if let Some(starter) = self.starter.take() {
            let _ = starter.join();
            let _ = self.wait();
        }
    }
}

/// The exit status, unless another thread of this process traces the child, whose stops waitpid(2) also reports.
fn status_of_end(status: libc::c_int) -> Option<ExitStatus> {
    let has_ended = libc::WIFEXITED(status) || libc::WIFSIGNALED(status);
    has_ended.then(|| ExitStatus::from_raw(status))
}

/// Gives the process an empty input, a pipe for its output, and a process group; returns the reading end.
fn capture_output(process: &mut std::process::Command) -> io::Result<PipeReader> {
    let (output, writer) = io::pipe()?;
    process.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
    Ok(output)
}

/// The child between fork and exec.
struct Hold {
    /// True to ignore SIGCHLD, as the tracer's parent had set it.
    ignores_children: bool,
    watch: bool,
    ends: bool,
    patched: bool,
    identity: Option<User>,
    gate: PipeReader,
    /// The tracer's end of the gate, which fork has duplicated.
    gate_writer: RawFd,
    hello: PipeWriter,
}

impl Hold {
    fn run(&mut self) -> io::Result<()> {
        // Before the user changes: root needs no `no_new_privs` for the filter.
        let listener = if self.watch { self.install() } else { 0 };
        let mut hello = [0; HELLO];
        hello[..4].copy_from_slice(&std::process::id().to_le_bytes());
        hello[4..].copy_from_slice(&listener.to_le_bytes());
        self.hello.write_all(&hello).unwrap_or_else(|_| end());
        // SAFETY: nothing else in this process uses this copy. While it is open, the gate never reports end of file.
        drop(unsafe { OwnedFd::from_raw_fd(self.gate_writer) });
        self.gate.read_exact(&mut [0]).unwrap_or_else(|_| end());
        if self.watch && listener >= 0 {
            // SAFETY: the listener that `install` leaked; the seccomp server has a copy.
            drop(unsafe { OwnedFd::from_raw_fd(listener) });
        }
        signals::unblock();
        sys::restore_file_limit();
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        if self.ignores_children {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        self.identity.as_ref().map_or(Ok(()), User::assume)
    }

    fn install(&self) -> i32 {
        // SAFETY: plain system calls. Without privileges a filter requires `no_new_privs`; programs of root may need privileges.
        unsafe {
            if libc::geteuid() != 0 {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            }
        }
        match seccomp_filter::install(self.ends, self.patched) {
            Ok(listener) => listener.into_raw_fd(),
            Err(error) => -error.raw_os_error().unwrap_or(libc::EINVAL),
        }
    }
}

/// Ends this process after the tracer has ended. Not by exit(2), which the filter may report.
fn end() {
    // SAFETY: plain system calls.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A user and its groups.
#[derive(Debug)]
struct User {
    name: String,
    home: OsString,
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl User {
    /// Changes the user of this process. Async-signal-safe.
    fn assume(&self) -> io::Result<()> {
        let done = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: plain system calls; the groups first, while that is permitted.
        unsafe {
            done(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            done(libc::setgid(self.gid))?;
            done(libc::setuid(self.uid))
        }
    }
}

/// The number of a user.
///
/// # Errors
/// [`SpawnError::NoUser`]
pub fn user_id(name: &str) -> Result<u32, SpawnError> {
    user(name).map(|user| user.uid)
}

fn user(name: &str) -> Result<User, SpawnError> {
    let no_user = || SpawnError::NoUser(name.to_string());
    let c_name = CString::new(name).map_err(|_| no_user())?;
    // SAFETY: the entry is copied before the next call that overwrites it; called before threads are started.
    unsafe {
        let entry = libc::getpwnam(c_name.as_ptr());
        let entry = entry.as_ref().ok_or_else(no_user)?;
        let home = std::ffi::CStr::from_ptr(entry.pw_dir).to_string_lossy().into_owned();
        let mut groups = vec![0; 256];
        let mut count = groups.len() as i32;
        libc::getgrouplist(c_name.as_ptr(), entry.pw_gid, groups.as_mut_ptr(), &mut count);
        groups.truncate(count.max(0) as usize);
        Ok(User { name: name.into(), home: home.into(), uid: entry.pw_uid, gid: entry.pw_gid, groups })
    }
}

fn exec_error(program: &str, error: io::Error) -> SpawnError {
    let is_bare = !program.contains('/');
    let reason = match error.kind() {
        _ if program.starts_with('-') => "options of cudatrace come before `--`".to_owned(),
        io::ErrorKind::NotFound if is_bare && std::env::var_os("SUDO_USER").is_some() => {
            "there is no such program in PATH, which sudo replaces: give the full path, or use `sudo env PATH=\"$PATH\" cudatrace …`"
                .to_owned()
        }
        io::ErrorKind::NotFound if is_bare => "there is no such program in PATH".to_owned(),
        io::ErrorKind::PermissionDenied if Path::new(program).is_dir() => "it is a folder".to_owned(),
        io::ErrorKind::PermissionDenied if program.ends_with(".py") => {
            format!("{error}; the file is not executable: `-- python3 {program}`")
        }
        io::ErrorKind::PermissionDenied if Path::new(program).is_file() => {
            format!("{error}; the file is not executable: `chmod +x {program}`")
        }
        _ => error.to_string(),
    };
    SpawnError::Exec { program: program.into(), reason }
}
