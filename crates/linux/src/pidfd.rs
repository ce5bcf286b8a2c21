//! Descriptors of processes, which refer to the same process for good: numbers are used again.

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// Opens a descriptor that is readable when the process has ended.
///
/// # Errors
/// ESRCH: no such process; EINVAL: it is a thread, but not the first one of its process.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Duplicates a descriptor of another process into this one.
///
/// # Errors
/// EBADF: it has no such descriptor; ESRCH: it has ended; EPERM: this process may not inspect it; ENOSYS before Linux 5.6.
pub fn descriptor_of(process: impl AsFd, fd: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?)
}
