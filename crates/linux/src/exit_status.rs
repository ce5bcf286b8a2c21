//! The exit status of a process that is not a child of this one.

use crate::proc::stat;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The exit status of a process that has ended, if the kernel still has it: before its parent has waited for it, and after that since
/// Linux 6.15.
pub fn of(pid: u32, pidfd: &impl AsRawFd) -> Option<ExitStatus> {
    // After its parent has waited for it, only the pidfd has the status.
    stat::zombie_status(pid).map(ExitStatus::from_raw).or_else(|| of_reaped(pidfd))
}

fn of_reaped(pidfd: &impl AsRawFd) -> Option<ExitStatus> {
    // SAFETY: all zero is valid for a struct of numbers.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: the kernel writes a struct of the size in the request.
    let failed = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) } < 0;
    let has_status = !failed && info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0;
    has_status.then(|| ExitStatus::from_raw(info.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_zombie_has_its_status() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("a shell");
        let pidfd = crate::pidfd::open(child.id()).expect("a child");
        let mut fds = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).expect("polled");
        assert_eq!(of(child.id(), &pidfd).and_then(|status| status.code()), Some(7));
        child.wait().expect("waited");
        // Kernels before 6.15 do not keep it.
        assert!(of(child.id(), &pidfd).is_none_or(|status| status.code() == Some(7)));
    }
}
