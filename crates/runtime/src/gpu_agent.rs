//! The agent for the times of the GPU (crate `agent`): its file, which processes load, and the sockets to the processes that have.

use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use agent::message::{EVERY, FUNCTIONS, Hello, NEXT, PATHS, Request};
pub use agent::message::{MULTIPLE_SUBSCRIBERS, REPLACED, Report, State};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::in_process::Library;
use crate::kernel::sys;
use crate::user_space::LaunchWords;
pub use native::load::Functions as LoaderFunctions;
use native::load::{BEGINS, LOADED};

/// Number of the kind of kernels.
pub const KERNEL: u32 = agent::record::Kind::Kernel as u32;
/// Number of the kind of graphs as a whole.
pub const GRAPH: u32 = agent::record::Kind::Graph as u32;
/// Number of the kind of idle times.
pub const IDLE: u32 = agent::record::Kind::Idle as u32;

/// Sockets that wait to be accepted.
const BACKLOG: i32 = 128;

/// The agent's file, and the socket at which the tracer waits for processes that have loaded it.
#[derive(Debug)]
pub struct AgentFile {
    file: OwnedFd,
    listener: OwnedFd,
    /// The file's path, if it is not only in memory; it is removed on drop.
    path: Option<PathBuf>,
    /// Name of the socket.
    name: String,
}

impl AgentFile {
    /// Creates both. `for_others`: also for processes of other users, which cannot open what is only in memory.
    ///
    /// # Errors
    /// The errors of memfd_create(2), of the folders for temporary files, and of the socket.
    pub fn create(for_others: bool) -> io::Result<AgentFile> {
        let pid = std::process::id();
        // No other user can take the name beforehand.
        let name = format!("cudatrace_gpu_{pid}_{:016x}", sys::random());
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let library = agent::library(pid, &name);
        let (file, path) = match for_others {
            true => {
                temporary_file(&format!(".{name}.so"), &library).map(|(file, path)| (file, Some(path)))?
            }
            false => (memory_file(&library)?, None),
        };
        Ok(AgentFile { file, listener, path, name })
    }

    /// The file's path for other processes.
    pub fn path(&self) -> PathBuf {
        let in_memory = || format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into();
        self.path.clone().unwrap_or_else(in_memory)
    }

    /// Whether only processes of the tracer's user, and of root, can open it.
    pub fn is_in_memory(&self) -> bool {
        self.path.is_none()
    }

    /// Whether it is the file that was found.
    pub fn is(&self, found: &std::fs::Metadata) -> bool {
        let own = rustix::fs::fstat(&self.file);
        own.is_ok_and(|own| (own.st_dev, own.st_ino) == (found.dev(), found.ino()))
    }

    /// The variable of the environment that names the library that a program asks for, which the agent loads then.
    pub fn next_variable(&self) -> String {
        NEXT.to_owned() + &self.name
    }

    /// A descriptor that is readable when a process waits.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next process that has loaded the agent; `None` if none waits.
    ///
    /// # Errors
    /// The errors of accept(2).
    pub fn accept(&self) -> io::Result<Option<AgentSocket>> {
        match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(socket) => AgentSocket::new(socket).map(Some),
        }
    }

    /// The library for a process that runs, with functions of that process that load it.
    pub fn library(&self, functions: LoaderFunctions) -> Library<'_> {
        Library { file: self.file.as_fd(), symbol: agent::ATTACH, functions }
    }
}

impl Drop for AgentFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Creates a file that all users can read and execute, in a folder where programs can be.
fn temporary_file(name: &str, bytes: &[u8]) -> io::Result<(OwnedFd, PathBuf)> {
    let mut last = io::ErrorKind::NotFound.into();
    for folder in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()] {
        let forbids = rustix::fs::statvfs(&folder)
            .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
        if forbids {
            continue;
        }
        let path = folder.join(name);
        // A new file: no link of another user is followed.
        let options = File::options().read(true).write(true).create_new(true).mode(0o755).open(&path);
        let written = options.and_then(|mut file| {
            file.write_all(bytes)?;
            // Whatever the umask is. Nobody can execute a file that is open for writing.
            file.set_permissions(std::fs::Permissions::from_mode(0o755))?;
            File::open(&path)
        });
        match written {
            Ok(file) => return Ok((file.into(), path)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A file in memory that nobody can change.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let create = |flags| rustix::fs::memfd_create(c"cudatrace-gpu", flags);
    // Kernels before 6.3 do not know the flag, which `vm.memfd_noexec` of later ones may demand.
    let file = create(flags | MemfdFlags::EXEC).or_else(|_| create(flags))?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    // Processes that outlive the tracer look for it under the number of the tracer, where another process might have a file with a low
    // number.
    Ok(sys::out_of_the_way(file.into()))
}

/// The socket to the agent of a process.
#[derive(Debug)]
pub struct AgentSocket {
    socket: OwnedFd,
    pid: u32,
}

/// What an agent is asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Kinds of records, a bit per kind.
    pub kinds: u32,
    /// Milliseconds between two batches.
    pub flush_ms: u32,
    /// True for the time and the thread of launches.
    pub launches: bool,
    /// The functions of the process whose place the agent can take, to measure kernels without CUPTI.
    pub replaced: Option<LaunchWords>,
}

/// What has come from an agent.
#[derive(Clone, Debug)]
pub enum Received {
    /// The agent is there, and waits for its request.
    Hello,
    /// A thread of the process is about to load the agent, see [`Session::load_agent`](crate::Session::load_agent).
    Begins,
    /// A report.
    Report(Report),
    /// Nothing yet.
    Nothing,
    /// The process has ended, or executes another program.
    End,
}

impl AgentSocket {
    fn new(socket: OwnedFd) -> io::Result<AgentSocket> {
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        Ok(AgentSocket { pid: peer.pid.as_raw_nonzero().get() as u32, socket })
    }

    /// The socket to a process that was asked to load the agent.
    pub(crate) fn of(pid: u32, socket: OwnedFd) -> io::Result<AgentSocket> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(AgentSocket { socket, pid })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A descriptor that is readable when a report has come.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks for records. `paths`: where CUPTI may be, for a process that has not loaded it.
    ///
    /// # Errors
    /// EPIPE if the process has ended.
    pub fn request(&self, wanted: Wanted, paths: &[PathBuf]) -> io::Result<()> {
        let Wanted { kinds, flush_ms, launches, replaced } = wanted;
        let (running, originals) =
            replaced.map_or((0, [0; FUNCTIONS]), |words| (words.running(), words.originals));
        let mut request = Request {
            kinds,
            flush_ms,
            launches: launches.into(),
            every: EVERY,
            running,
            originals,
            paths: [0; PATHS],
        };
        let mut used = 0;
        for path in paths {
            let bytes = path.as_os_str().as_encoded_bytes();
            // The last byte stays zero.
            if used + bytes.len() + 1 < PATHS {
                request.paths[used..][..bytes.len()].copy_from_slice(bytes);
                used += bytes.len() + 1;
            }
        }
        // SAFETY: a struct of numbers without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const request).cast::<u8>(), size_of::<Request>()) };
        rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Lets an agent go on that waits until calls lead to its words.
    pub fn acknowledge(&self) {
        // An agent that has ended waits no more.
        let _ = rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL);
    }

    /// Lets the thread that is about to load the agent go on, and waits until it has.
    pub(crate) fn let_load(&self, patience: Duration) {
        self.acknowledge();
        let mut readable = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        // It comes later if this fails.
        let _ = rustix::event::poll(&mut readable, Some(&timeout));
    }

    /// Asks for the end. The last records come before the last report.
    pub fn end(&self) {
        // An agent that has ended needs no request.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    /// The next message.
    pub fn receive(&self) -> Received {
        let mut bytes = [MaybeUninit::<u8>::zeroed(); size_of::<Report>()];
        match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            // The other one comes if the threads of the program could not be held that long.
            Ok(((&mut [BEGINS], _), _)) => Received::Begins,
            Ok(((&mut [LOADED], _), _)) => self.receive(),
            // SAFETY: the struct consists of numbers; the bytes are initialised.
            Ok((_, size)) if size == size_of::<Report>() => {
                Received::Report(unsafe { bytes.as_ptr().cast::<Report>().read_unaligned() })
            }
            Ok((_, size)) if size == size_of::<Hello>() => Received::Hello,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Received::Nothing,
            _ => Received::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_for_other_users_can_be_executed_and_is_removed() {
        let agent = AgentFile::create(true).expect("a folder for temporary files");
        let path = agent.path();
        let found = std::fs::metadata(&path).expect("it exists");
        assert_eq!((found.permissions().mode() & 0o777, found.is_file()), (0o755, true));
        drop(agent);
        assert!(!path.exists(), "{}", path.display());
    }

    #[test]
    fn a_file_in_memory_is_opened_by_its_path_and_cannot_be_changed() {
        let agent = AgentFile::create(false).expect("memory");
        let bytes = std::fs::read(agent.path()).expect("this process may open it");
        assert!(bytes.starts_with(b"\x7fELF"));
        let opened = File::options().write(true).open(agent.path());
        assert!(opened.and_then(|mut file| file.write_all(b"x")).is_err(), "it is sealed");
    }
}
