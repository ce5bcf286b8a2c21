//! `/proc/PID/status`: ids and rights of a process.

use super::ns::{namespace, own_namespace};
use super::stat::is_ended;
use std::fs;
use std::io;

/// The process that a thread belongs to.
pub fn tgid(tid: u32) -> Option<u32> {
    Status::of(tid).ok()?.field("Tgid")?.parse().ok()
}

/// Pid of the process in its own pid namespace.
pub fn innermost_pid(pid: u32) -> Option<u32> {
    Status::of(pid).ok()?.field("NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// The user by whose rights a process opens files.
pub fn file_user(pid: u32) -> Option<u32> {
    // The real, effective, saved and file system user.
    Status::of(pid).ok()?.field("Uid")?.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Whether a process may read the memory and open the files of this process, if that has the same user: it has all of its capabilities.
pub fn may_inspect_this_one(pid: u32) -> bool {
    let permitted = |pid: u32| u64::from_str_radix(Status::of(pid).ok()?.field("CapPrm")?, 16).ok();
    let has_all = permitted(pid).zip(permitted(std::process::id())).is_some_and(|(its, own)| own & !its == 0);
    has_all && namespace(pid, "user") == own_namespace("user")
}

/// The text of `/proc/PID/status`.
#[derive(Clone, Debug, Default)]
pub struct Status(String);

impl Status {
    /// The status of a process, which is that of its first thread, or of a thread.
    ///
    /// # Errors
    /// ENOENT, ESRCH: it has ended, and its parent has waited for it.
    pub fn of(tid: u32) -> io::Result<Status> {
        Status::at(&format!("/proc/{tid}/status"))
    }

    /// The status of a thread of this process; the thread's number may be another process's by now.
    ///
    /// # Errors
    /// ENOENT, ESRCH: it has ended.
    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Status> {
        Status::at(&format!("/proc/{pid}/task/{tid}/status"))
    }

    /// The status of this process.
    ///
    /// # Errors
    /// ENOENT: `/proc` is not mounted.
    pub fn own() -> io::Result<Status> {
        Status::at("/proc/self/status")
    }

    fn at(path: &str) -> io::Result<Status> {
        // The name of a process may have any bytes.
        Ok(Status(String::from_utf8_lossy(&fs::read(path)?).into_owned()))
    }

    /// The value of a line by its name, such as `NSpid`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// Whether the thread has ended, though its parent has not waited for it.
    pub fn has_ended(&self) -> bool {
        self.field("State").and_then(|state| state.chars().next()).is_none_or(is_ended)
    }

    /// The thread that traces this one by ptrace(2); 0: none.
    pub fn tracer(&self) -> Option<u32> {
        self.field("TracerPid")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_whole_names() {
        let status = Status("Name:\tTgid\nState:\tZ (zombie)\nTgid:\t42\nTracerPid:\t0\n".into());
        assert_eq!((status.field("Name"), status.field("Tgid")), (Some("Tgid"), Some("42")));
        assert_eq!((status.field("T"), status.tracer()), (None, Some(0)));
        assert!(status.has_ended() && !Status::own().expect("this process").has_ended());
    }
}
