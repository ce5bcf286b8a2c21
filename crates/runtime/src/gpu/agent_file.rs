//! The file that processes load, and the socket at which the tracer waits for them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use agent::message::NEXT;
use native::load::Functions as LoaderFunctions;
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags, Uid};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::connection::{Connection, Proof, Secret};
use crate::kernel::sys;
use crate::remote::Library;

/// Begin of the names of sockets and files.
const NAME: &str = "cudatrace_gpu_";
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
    /// Secret that an agent must send first.
    secret: Secret,
    /// The users whose processes can open the file, beside those of root.
    users: Mutex<BTreeSet<u32>>,
}

impl AgentFile {
    /// Creates both. `reader`: the user whose processes are to load it, if that is another one. What is only in memory can be opened by those
    /// alone who could also read the tracer's memory.
    ///
    /// # Errors
    /// The errors of memfd_create(2), of the folders for temporary files, and of the socket.
    pub fn create(reader: Option<u32>) -> io::Result<AgentFile> {
        let pid = std::process::id();
        // No other user can take the name beforehand.
        let name = format!("{NAME}{pid}_{:016x}", sys::random());
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let secret = Secret::new()?;
        let library = agent::library(pid, &name, secret.bytes());
        let (file, path) = match reader {
            Some(user) => temporary_file(&format!(".{name}.so"), &library, user)
                .map(|(file, path)| (file, Some(path)))?,
            None => (memory_file(&library)?, None),
        };
        let reader = reader.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let users = Mutex::new(BTreeSet::from([reader]));
        Ok(AgentFile { file, listener, path, name, secret, users })
    }

    /// The file's path for other processes.
    pub fn path(&self) -> PathBuf {
        let in_memory = || format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into();
        self.path.clone().unwrap_or_else(in_memory)
    }

    /// Whether the file is not only in memory, where it can be opened by those alone who may inspect the tracer.
    pub fn is_on_disk(&self) -> bool {
        self.path.is_some()
    }

    /// Whether processes of a user can open the file by its path.
    pub fn is_for(&self, user: u32) -> bool {
        user == 0 || self.users.lock().is_ok_and(|users| users.contains(&user))
    }

    /// Whether it is the file that was found.
    pub fn is(&self, found: &std::fs::Metadata) -> bool {
        let own = rustix::fs::fstat(&self.file);
        own.is_ok_and(|own| (own.st_dev, own.st_ino) == (found.dev(), found.ino()))
    }

    /// Number of its inode.
    pub(crate) fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |own| own.st_ino)
    }

    /// The variable of the environment that names the library that a program asks for, which the agent loads then.
    pub fn next_variable(&self) -> String {
        NEXT.to_owned() + &self.name
    }

    /// A descriptor that is readable when a process waits.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next connection; `None` if none waits. Any process can make one.
    ///
    /// # Errors
    /// The errors of accept(2).
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(socket) => Connection::accepted(socket).map(Some),
        }
    }

    /// Reads the first packet of a connection.
    pub fn prove(&self, connection: Connection) -> Proof {
        connection.prove(&self.secret)
    }

    /// The library for a process of a user that runs, with functions of that process that load it. `is_current`: see [`Library`].
    ///
    /// # Errors
    /// The user cannot be let open the file.
    pub fn library<'a>(
        &'a self,
        user: u32,
        functions: LoaderFunctions,
        is_current: &'a (dyn Fn() -> bool + Sync),
    ) -> io::Result<Library<'a>> {
        // A process can open what is only in memory if it has a descriptor of it.
        if self.path.is_some() {
            self.admit(user)?;
        }
        Ok(Library { file: self.file.as_fd(), symbol: agent::ATTACH, functions, is_current })
    }

    /// Lets a user open the library. That user's processes can read the secret in the traced process anyway.
    fn admit(&self, user: u32) -> io::Result<()> {
        let mut users = self.users.lock().map_err(|_| io::ErrorKind::Other)?;
        if user != 0 && !users.contains(&user) {
            let admitted: Vec<u32> = users.iter().copied().chain([user]).collect();
            let list = access_list(&admitted);
            let name = "system.posix_acl_access";
            rustix::fs::fsetxattr(&self.file, name, &list, rustix::fs::XattrFlags::empty())?;
            users.insert(user);
        }
        Ok(())
    }
}

/// An access list, as `struct posix_acl_xattr_header` has it, by which the owner and these users can read and execute a file.
fn access_list(users: &[u32]) -> Vec<u8> {
    const VERSION: u32 = 2;
    const READ_EXECUTE: u16 = 5;
    const ANYBODY: u32 = u32::MAX;
    let entry = |(tag, rights, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    // The kernel needs them sorted by tag and id: owner, users, group, mask, others.
    let mut ids = users.to_vec();
    ids.sort_unstable();
    let named = ids.into_iter().map(|id| (0x02, READ_EXECUTE, id));
    let entries = std::iter::once((0x01, READ_EXECUTE, ANYBODY)).chain(named).chain([
        (0x04, 0, ANYBODY),
        (0x10, READ_EXECUTE, ANYBODY),
        (0x20, 0, ANYBODY),
    ]);
    VERSION.to_le_bytes().into_iter().chain(entries.flat_map(entry)).collect()
}

impl Drop for AgentFile {
    fn drop(&mut self) {
        self.path.iter().for_each(|path| remove(path));
    }
}

/// Creates a file that a user can read and execute, and no other, in a folder where programs can be.
fn temporary_file(name: &str, bytes: &[u8], user: u32) -> io::Result<(OwnedFd, PathBuf)> {
    let mut last = io::ErrorKind::NotFound.into();
    for folder in [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()] {
        let forbids = rustix::fs::statvfs(&folder)
            .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC));
        if forbids {
            continue;
        }
        remove_abandoned(&folder);
        let path = folder.join(name);
        // A new file: no link of another user is followed.
        let created = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match created.and_then(|file| fill(file, &path, bytes, user).inspect_err(|_| remove(&path))) {
            Ok(file) => return Ok((file.into(), path)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Writes a new file, and gives it to a user.
fn fill(mut file: File, path: &Path, bytes: &[u8], user: u32) -> io::Result<File> {
    file.write_all(bytes)?;
    // A file that is open for writing cannot be executed.
    let readable = File::open(path)?;
    // Another tracer sees by the lock that this one lives, see `remove_abandoned`.
    rustix::fs::flock(&readable, FlockOperation::NonBlockingLockShared)?;
    // The mode is independent of the umask.
    file.set_permissions(std::fs::Permissions::from_mode(0o500))?;
    let [own, found] = [&file, &readable].map(|file| file.metadata().map(|its| (its.dev(), its.ino())));
    if own? != found? {
        return Err(io::Error::other(format!("{} was replaced", path.display())));
    }
    // The secret in it is for the user alone.
    rustix::fs::fchown(&file, Some(Uid::from_raw(user)), None)?;
    Ok(readable)
}

/// Removes the files of tracers that were killed: they are complete, and nobody holds their lock.
fn remove_abandoned(folder: &Path) {
    let is_ours = |name: &str| name.starts_with(&format!(".{NAME}")) && name.ends_with(".so");
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        let Ok(file) = File::options().read(true).custom_flags(flags).open(entry.path()) else { continue };
        let is_complete =
            file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o100 != 0);
        if is_complete && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&entry.path());
        }
    }
}

/// Removes a file, unless somebody has.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_for_another_user_is_for_that_user_alone_and_is_removed() {
        let own = rustix::process::geteuid().as_raw();
        let user = if own == 0 { 65534 } else { own };
        let agent = AgentFile::create(Some(user)).expect("a folder for temporary files");
        let path = agent.path();
        let found = std::fs::metadata(&path).expect("it exists");
        assert_eq!((found.permissions().mode() & 0o777, found.uid(), found.is_file()), (0o500, user, true));
        assert!(agent.is(&found) && agent.is_for(user) && agent.is_for(0) && !agent.is_for(4242));
        // A traced process may change its user. Some file systems have no such lists.
        if agent.admit(4242).is_ok() {
            let found = std::fs::metadata(&path).expect("it exists");
            // The bits of the group are the mask of the list.
            assert_eq!(found.permissions().mode() & 0o777, 0o550);
            assert!(agent.is_for(user) && agent.is_for(4242) && !agent.is_for(4243));
        }
        drop(agent);
        assert!(!path.exists(), "{}", path.display());
    }

    #[test]
    fn files_of_tracers_that_were_killed_are_removed() {
        let own = rustix::process::geteuid().as_raw();
        let agent = AgentFile::create(Some(own)).expect("a folder for temporary files");
        let folder = agent.path().parent().expect("a folder").to_owned();
        let name = format!(".{NAME}killed_{}", std::process::id());
        let [killed, begun, other] =
            [".so", "_begun.so", ".txt"].map(|end| folder.join(format!("{name}{end}")));
        for (path, mode) in [(&killed, 0o500), (&begun, 0o600), (&other, 0o500)] {
            File::options().write(true).create_new(true).mode(mode).open(path).expect("it is new");
        }
        remove_abandoned(&folder);
        let left = [&killed, &begun, &other, &agent.path()].map(|path| path.exists());
        [begun, other].iter().for_each(|path| remove(path));
        assert_eq!(left, [false, true, true, true]);
    }
    #[test]
    fn a_file_in_memory_is_opened_by_its_path_and_cannot_be_changed() {
        let agent = AgentFile::create(None).expect("memory");
        let bytes = std::fs::read(agent.path()).expect("this process may open it");
        assert!(bytes.starts_with(b"\x7fELF"));
        let opened = File::options().write(true).open(agent.path());
        assert!(opened.and_then(|mut file| file.write_all(b"x")).is_err(), "it is sealed");
    }
}
