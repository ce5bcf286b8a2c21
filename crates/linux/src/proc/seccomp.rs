//! Seccomp filters of threads, as far as `/proc/PID/status` has them.

use super::status::Status;
use std::io;

/// Mode and filters of a thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SeccompState {
    /// `SECCOMP_MODE_*`
    pub mode: u32,
    /// Number of its filters: all that there could be before Linux 5.9, which does not count them.
    pub filters: u32,
}

impl SeccompState {
    /// The state of a thread.
    ///
    /// # Errors
    /// It has ended.
    pub fn of(pid: u32, tid: u32) -> io::Result<SeccompState> {
        let status = Status::of_thread(pid, tid)?;
        let number = |name| status.field(name).and_then(|number| number.parse().ok());
        Ok(SeccompState {
            mode: number("Seccomp").unwrap_or(libc::SECCOMP_MODE_DISABLED),
            filters: number("Seccomp_filters").unwrap_or(u32::MAX),
        })
    }
}

/// Whether a thread has more filters than those of the caller.
///
/// # Errors
/// It has ended.
pub fn is_filtered(pid: u32, tid: u32, own_filters: u32) -> io::Result<bool> {
    let SeccompState { mode, filters } = SeccompState::of(pid, tid)?;
    Ok(mode != libc::SECCOMP_MODE_DISABLED && filters > own_filters)
}

/// Number of filters of this process, such as that of a container. A program that it has started has inherited them.
pub fn own_filters() -> u32 {
    let status = Status::own().unwrap_or_default();
    status.field("Seccomp_filters").and_then(|count| count.parse().ok()).unwrap_or(0)
}
