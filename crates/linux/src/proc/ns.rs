//! Namespaces of processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Inode of the initial pid namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// A namespace: device and inode of its file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// Device of the file system of namespaces.
    pub device: u64,
    /// Inode number of the namespace.
    pub inode: u64,
}

impl Namespace {
    /// Whether this is the initial pid namespace, whose pids BPF's plain pid helper returns.
    pub fn is_initial_pid(self) -> bool {
        self.inode == INITIAL_PID_NAMESPACE
    }
}

/// The pid namespace of this process, for `bpf_get_ns_current_pid_tgid`.
pub fn own_pid_namespace() -> Option<Namespace> {
    own_namespace("pid")
}

/// Whether this process is in the initial pid namespace.
pub fn sees_all_pids() -> bool {
    own_pid_namespace().is_none_or(|namespace| namespace.is_initial_pid())
}

/// The pid namespace of a process.
pub fn pid_namespace(pid: u32) -> Option<Namespace> {
    namespace(pid, "pid")
}

/// Whether a process knows processes by the ids of this process, and sees its sockets with abstract names.
pub fn shares_network_and_pids(pid: u32) -> bool {
    ["net", "pid"].iter().all(|kind| namespace(pid, kind) == own_namespace(kind))
}

/// A namespace of a process by its name in `/proc/PID/ns`, such as `uts`; `None` if this process may not inspect the other one.
pub fn namespace(pid: u32, kind: &str) -> Option<Namespace> {
    namespace_at(&format!("/proc/{pid}/ns/{kind}"))
}

/// The name of a namespace of a process, such as `user:[4026531837]`.
///
/// # Errors
/// ENOENT: the process has ended. EACCES: this process may not inspect it.
pub fn namespace_name(pid: u32, kind: &str) -> io::Result<String> {
    Ok(fs::read_link(format!("/proc/{pid}/ns/{kind}"))?.to_string_lossy().into_owned())
}

pub(super) fn own_namespace(kind: &str) -> Option<Namespace> {
    namespace_at(&format!("/proc/self/ns/{kind}"))
}

fn namespace_at(path: &str) -> Option<Namespace> {
    let metadata = fs::metadata(path).ok()?;
    Some(Namespace { device: metadata.dev(), inode: metadata.ino() })
}
