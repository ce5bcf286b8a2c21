//! `/proc/PID/status`: ids and rights of a process.

use super::ns::{namespace, own_namespace};
use std::fs;

/// The process that a thread belongs to.
pub fn tgid(tid: u32) -> Option<u32> {
    status_field(tid, "Tgid")?.trim().parse().ok()
}

/// Pid of the process in its own pid namespace.
pub fn innermost_pid(pid: u32) -> Option<u32> {
    status_field(pid, "NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// The user by whose rights a process opens files.
pub fn file_user(pid: u32) -> Option<u32> {
    // The real, effective, saved and file system user.
    status_field(pid, "Uid")?.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Whether a process may read the memory and open the files of this process, if that has the same user: it has all of its capabilities.
pub fn may_inspect_this_one(pid: u32) -> bool {
    let permitted = |pid: u32| u64::from_str_radix(status_field(pid, "CapPrm")?.trim(), 16).ok();
    let has_all = permitted(pid).zip(permitted(std::process::id())).is_some_and(|(its, own)| own & !its == 0);
    has_all && namespace(pid, "user") == own_namespace("user")
}

/// The value of a line of `/proc/PID/status`, which may have any bytes: the name of a process is among them.
fn status_field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
}
