//! Starts the program to trace and holds it before its first instruction until probes are in place.

use super::server_handle::Mappings;
use super::shared_memory::{FileState, Identity, Shared};
use super::{seccomp_filter, server_handle};
use crate::kernel::{signals, sys};
use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use thiserror::Error;

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Program, looked for on PATH, and its arguments; not empty.
    pub argv: Vec<OsString>,
    /// User to run it as; `None`: ours.
    pub user: Option<String>,
    /// Report files that it maps, see [`Child::mappings`].
    pub watch_mappings: bool,
    /// With it: report processes that are about to end.
    pub watch_ends: bool,
    /// Files that need no report as long as they do not change.
    pub known: Vec<FileState>,
    /// Apart from our terminal: its input is empty, its output, of both kinds, is [`Child::output`], and our Ctrl-C is not
    /// for it.
    pub apart: bool,
    /// Report each mapping of a file to a fixed address, not only the first mapping.
    pub every_mapping: bool,
}

/// Why a program was not started.
#[derive(Debug, Error)]
pub enum SpawnError {
    /// `--user` names nobody.
    #[error("no user `{0}` on this machine")]
    NoUser(String),
    /// exec(2) or one of the steps before it.
    #[error("cannot start `{program}`: {error}{hint}")]
    Exec {
        /// As typed.
        program: String,
        /// Why.
        error: io::Error,
        /// A way out, or nothing.
        hint: &'static str,
    },
    /// Our own plumbing.
    #[error("cannot prepare to start a program: {0}")]
    Prepare(#[from] io::Error),
}

/// A program of ours: held, then running, then reaped. Dropped while it lives, it gets SIGTERM.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    pidfd: OwnedFd,
    gate: Option<PipeWriter>,
    starter: Option<JoinHandle<io::Result<std::process::Child>>>,
    program: String,
    status: Option<ExitStatus>,
    /// Questions about files that it is about to map; `None` unless asked for, or when the kernel refuses: then
    /// `unwatched` says why.
    pub mappings: Option<Mappings>,
    /// Why mappings are not watched although asked for.
    pub unwatched: Option<io::Error>,
    /// What it prints, if it was started apart.
    pub output: Option<PipeReader>,
    known: Option<Arc<Shared>>,
}

/// What the held child says: its pid, and its seccomp listener or a negative errno.
const HELLO: usize = 8;

impl Child {
    /// Starts the program and holds it before exec.
    ///
    /// # Errors
    /// See [`SpawnError`]; a program that does not exist is reported by [`Child::release`].
    pub fn spawn(command: &Command) -> Result<Child, SpawnError> {
        let program = command.argv[0].to_string_lossy().into_owned();
        let identity = command.user.as_deref().map(user).transpose()?;
        let (gate_in, gate) = io::pipe()?;
        let (mut hello, hello_out) = io::pipe()?;
        let mut process = std::process::Command::new(&command.argv[0]);
        process.args(&command.argv[1..]);
        if let Some(user) = &identity {
            process.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        }
        let output = if command.apart { Some(set_apart(&mut process)?) } else { None };
        let mut hold = Hold {
            deaf: signals::hear_of_children(),
            watch: command.watch_mappings,
            ends: command.watch_ends,
            identity,
            gate: gate_in,
            gate_writer: gate.as_raw_fd(),
            hello: hello_out,
        };
        // SAFETY: `Hold::run` makes only async-signal-safe calls.
        unsafe { process.pre_exec(move || hold.run()) };
        // `spawn` returns after exec, and exec waits for the gate: so it waits in a thread.
        let starter = std::thread::spawn(move || process.spawn());
        let mut said = [0; HELLO];
        if hello.read_exact(&mut said).is_err() {
            let error = starter.join().expect("does not panic").err();
            return Err(exec_error(&program, error.unwrap_or_else(|| io::ErrorKind::Other.into())));
        }
        let word = |at: usize| i32::from_le_bytes(said[at..at + 4].try_into().expect("4 bytes"));
        let pid = word(0) as u32;
        let pidfd = sys::pidfd_open(pid)?;
        let (gate, starter) = (Some(gate), Some(starter));
        let (status, mappings, unwatched, known) = (None, None, None, None);
        let mut child =
            Child { pid, pidfd, gate, starter, program, status, mappings, unwatched, output, known };
        match child.watch(command, word(4)) {
            Ok(()) => Ok(child),
            // Its filter would fail each system call that nobody answers.
            Err(error) => {
                drop(child);
                let mut child = Child::spawn(&Command { watch_mappings: false, ..command.clone() })?;
                child.unwatched = Some(error);
                Ok(child)
            }
        }
    }

    /// Starts the doorman for the child's listener. Without one, the child goes on unwatched.
    fn watch(&mut self, command: &Command, listener: RawFd) -> io::Result<()> {
        if listener < 0 {
            self.unwatched = Some(io::Error::from_raw_os_error(-listener));
        }
        if !command.watch_mappings || listener < 0 {
            return Ok(());
        }
        // The doorman is started by its path there, and finds files there.
        if !Path::new("/proc/self/exe").exists() {
            return Err(io::Error::other("/proc is not mounted"));
        }
        let listener = server_handle::descriptor_of(self.pidfd.as_fd(), listener)?;
        let shared = Arc::new(Shared::new(&command.known, command.every_mapping, self.pid)?);
        self.mappings = Some(Mappings::start(listener, Arc::clone(&shared))?);
        self.known = Some(shared);
        Ok(())
    }

    /// Whether it, or a child of it, has mapped one of the files of [`Command::known`], as far as mappings are watched.
    pub fn has_mapped(&self, file: &Identity) -> bool {
        self.known.as_ref().is_some_and(|known| known.is_mapped(file))
    }

    /// Whether what it maps is seen before its first call, as far as that was asked for.
    pub fn is_watched(&self) -> bool {
        self.unwatched.is_none()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Lets it run. Of its first program nobody asks, so this does not wait for answers of ours.
    ///
    /// # Errors
    /// [`SpawnError::Exec`] if there is no such program.
    pub fn release(&mut self) -> Result<(), SpawnError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        gate.write_all(&[1])?;
        let starter = self.starter.take().expect("released once");
        // A program that cannot be started ends, and may have to ask us for that.
        while let (false, Some(mappings)) = (starter.is_finished(), &mut self.mappings) {
            mappings.let_end(1)?;
        }
        let started = starter.join().expect("does not panic");
        match started {
            // We wait by pid; std's handle must not reap it too.
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

    /// Its exit status, once it has ended; waits for that.
    ///
    /// # Errors
    /// The errors of waitpid(2).
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        while self.status.is_none() {
            let mut status = 0;
            // SAFETY: `pid` is our child and not yet reaped.
            let reaped = unsafe { libc::waitpid(self.pid as i32, &mut status, 0) };
            if reaped == self.pid as i32 {
                self.status = Some(ExitStatus::from_raw(status));
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(self.status.expect("set above"))
    }

    /// Its status if it has ended already.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        let mut status = 0;
        if self.status.is_none() {
            // SAFETY: as in `wait`.
            let reaped = unsafe { libc::waitpid(self.pid as i32, &mut status, libc::WNOHANG) };
            self.status = (reaped == self.pid as i32).then(|| ExitStatus::from_raw(status));
        }
        self.status
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        // A pidfd names this process and no later one with its number.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::TERM);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.gate.is_some() || self.try_wait().is_none() {
            self.terminate();
        }
        // A child that still waits at the gate sees it close, and ends; nobody keeps it from that.
        self.mappings = None;
        self.gate = None;
        if let Some(starter) = self.starter.take() {
            let _ = starter.join();
            let _ = self.wait();
        }
    }
}

/// Gives the process no input, a pipe for its output and a group of its own; the pipe's other end is the result.
fn set_apart(process: &mut std::process::Command) -> io::Result<PipeReader> {
    let (output, writer) = io::pipe()?;
    process.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
    Ok(output)
}

/// What the child does between fork and exec.
struct Hold {
    /// It ignores the end of its children, as we were told to.
    deaf: bool,
    watch: bool,
    ends: bool,
    identity: Option<User>,
    gate: PipeReader,
    /// The tracer's end of the gate, of which fork gave us a copy.
    gate_writer: RawFd,
    hello: PipeWriter,
}

impl Hold {
    fn run(&mut self) -> io::Result<()> {
        // Still root here if ever: the filter needs no promise to gain no privileges.
        let listener = if self.watch { self.install() } else { 0 };
        let mut hello = [0; HELLO];
        hello[..4].copy_from_slice(&std::process::id().to_le_bytes());
        hello[4..].copy_from_slice(&listener.to_le_bytes());
        self.hello.write_all(&hello).unwrap_or_else(|_| end());
        // SAFETY: our copy, which nobody else in this process knows of; as long as it is open, the gate never ends.
        drop(unsafe { OwnedFd::from_raw_fd(self.gate_writer) });
        self.gate.read_exact(&mut [0]).unwrap_or_else(|_| end());
        if self.watch && listener >= 0 {
            // SAFETY: the listener that `install` leaked; the doorman has its own copy by now.
            drop(unsafe { OwnedFd::from_raw_fd(listener) });
        }
        signals::unblock();
        sys::restore_file_limit();
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        if self.deaf {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        self.identity.as_ref().map_or(Ok(()), User::become_it)
    }

    fn install(&self) -> i32 {
        // SAFETY: plain system calls. Without privileges a filter wants this promise; root's programs may need theirs.
        unsafe {
            if libc::geteuid() != 0 {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            }
        }
        match seccomp_filter::install(self.ends) {
            Ok(listener) => listener.into_raw_fd(),
            Err(error) => -error.raw_os_error().unwrap_or(libc::EINVAL),
        }
    }
}

/// The tracer has gone, and with it whoever would read an error of ours. Not by exit(2): that may be reported, to nobody.
fn end() {
    // SAFETY: plain system calls.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A user to become.
#[derive(Debug)]
struct User {
    name: String,
    home: OsString,
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl User {
    /// Async-signal-safe.
    fn become_it(&self) -> io::Result<()> {
        let done = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: plain system calls, groups first while we still may.
        unsafe {
            done(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            done(libc::setgid(self.gid))?;
            done(libc::setuid(self.uid))
        }
    }
}

fn user(name: &str) -> Result<User, SpawnError> {
    let nobody = || SpawnError::NoUser(name.to_string());
    let c_name = CString::new(name).map_err(|_| nobody())?;
    // SAFETY: the entry is copied before anything else asks for one; called before threads are started.
    unsafe {
        let entry = libc::getpwnam(c_name.as_ptr());
        let entry = entry.as_ref().ok_or_else(nobody)?;
        let home = std::ffi::CStr::from_ptr(entry.pw_dir).to_string_lossy().into_owned();
        let mut groups = vec![0; 256];
        let mut count = groups.len() as i32;
        libc::getgrouplist(c_name.as_ptr(), entry.pw_gid, groups.as_mut_ptr(), &mut count);
        groups.truncate(count.max(0) as usize);
        Ok(User { name: name.into(), home: home.into(), uid: entry.pw_uid, gid: entry.pw_gid, groups })
    }
}

fn exec_error(program: &str, error: io::Error) -> SpawnError {
    let hidden = error.kind() == io::ErrorKind::NotFound
        && !program.contains('/')
        && std::env::var_os("SUDO_USER").is_some();
    let hint = if hidden {
        "; sudo replaces PATH: give the full path, or use `sudo env PATH=\"$PATH\" cudatrace …`"
    } else {
        ""
    };
    SpawnError::Exec { program: program.into(), error, hint }
}
