//! The requests of ptrace(2). Only the thread that seized a thread may make them.

use std::io;

use crate::kernel::sys;
use linux::proc::Status;

/// Registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// Marks the stop of a system call: added to SIGTRAP.
const SYSCALL_MARK: libc::c_int = 0x80;
const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
/// Note type of the floating point and vector registers.
const NT_X86_XSTATE: usize = 0x202;

/// The kind of a stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The effect of PTRACE_INTERRUPT, or of a stop signal.
    Interrupted,
    /// At the begin or end of a system call.
    SystemCall,
    /// A signal is about to be delivered.
    Signal(libc::c_int),
}

/// A request whose arguments are numbers or pointers that are valid for the request.
///
/// # Safety
/// `address` and `data` are what ptrace(2) demands.
unsafe fn request(request: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: promised by the caller.
    sys::check(unsafe { libc::ptrace(request as _, tid as libc::pid_t, address, data) }).map(drop)
}

/// Takes control of a thread, without a stop.
pub(super) fn seize(tid: u32) -> io::Result<()> {
    // SAFETY: options.
    unsafe { request(libc::PTRACE_SEIZE as _, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize) }
}

/// Makes a thread stop.
pub(super) fn interrupt(tid: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { request(libc::PTRACE_INTERRUPT as _, tid, 0, 0) }
}

/// Resumes a stopped thread and delivers a signal (0: none).
pub(super) fn resume(tid: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a signal.
    unsafe { request(libc::PTRACE_CONT as _, tid, 0, signal as usize) }
}

/// Resumes a stopped thread up to the begin or end of a system call.
pub(super) fn resume_to_syscall(tid: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { request(libc::PTRACE_SYSCALL as _, tid, 0, 0) }
}

/// Resumes a stopped thread and gives it up.
pub(super) fn detach(tid: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe { request(libc::PTRACE_DETACH as _, tid, 0, 0) }
}

/// Whether the thread's seccomp filters are suspended while it is traced.
pub(super) fn suspend_seccomp(tid: u32, suspended: bool) -> io::Result<()> {
    let suspend = if suspended { libc::PTRACE_O_SUSPEND_SECCOMP as usize } else { 0 };
    // SAFETY: options.
    unsafe { request(libc::PTRACE_SETOPTIONS as _, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize | suspend) }
}

/// Whether system calls of a stopped thread raise SIGSYS, for emulators (`PR_SET_SYSCALL_USER_DISPATCH`). False before Linux 6.4.
pub(super) fn dispatches_system_calls(tid: u32) -> io::Result<bool> {
    // `struct ptrace_sud_config`, which begins with the mode.
    let mut configuration = [0u64; 4];
    let (size, to) = (size_of_val(&configuration), configuration.as_mut_ptr().addr());
    // SAFETY: room for as many bytes.
    match unsafe { request(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, size, to) } {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => Ok(false),
        result => result.map(|()| configuration[0] != 0),
    }
}

/// The seccomp filters of a stopped thread. EACCES without CAP_SYS_ADMIN, or if the caller has filters itself.
pub(super) fn seccomp_filters(tid: u32) -> io::Result<Vec<Vec<libc::sock_filter>>> {
    let mut filters = Vec::new();
    loop {
        let read = |data: usize| {
            // SAFETY: no address, or room for the filter, whose length the kernel has returned.
            sys::check(unsafe {
                libc::ptrace(PTRACE_SECCOMP_GET_FILTER as _, tid as libc::pid_t, filters.len(), data)
            })
        };
        let count = match read(0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(filters),
            result => result?,
        };
        let mut filter = vec![libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; count as usize];
        read(filter.as_mut_ptr().addr())?;
        filters.push(filter);
    }
}

/// The kind of stop of a thread; ESRCH if the thread has not stopped.
///
/// Unlike waitid(2) this is correct also if another thread of this process waits for the process.
pub(super) fn stop(tid: u32) -> io::Result<Stop> {
    // SAFETY: all zero is valid for a struct of numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: room for the struct.
    match unsafe { request(libc::PTRACE_GETSIGINFO as _, tid, 0, (&raw mut info).addr()) } {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Stop::Interrupted),
        result => result?,
    }
    Ok(match (info.si_signo, info.si_code) {
        (libc::SIGTRAP, code) if code == libc::SIGTRAP | SYSCALL_MARK => Stop::SystemCall,
        (_, code) if code >> 8 == libc::PTRACE_EVENT_STOP => Stop::Interrupted,
        (signal, _) => Stop::Signal(signal),
    })
}

/// Whether a thread is traced no longer: it has ended, or another one has taken its place by execve(2). waitid(2) does not report the
/// first thread before all others are freed.
pub(super) fn is_lost(tid: u32) -> bool {
    Status::of(tid).ok().is_none_or(|status| status.has_ended() || status.tracer() == Some(0))
}

/// Whether the processor checks return addresses against a second stack: moved calls return elsewhere than they were called.
pub(crate) fn has_shadow_stacks(pid: u32) -> bool {
    let status = Status::of(pid).unwrap_or_default();
    status.field("x86_Thread_features").is_some_and(|features| features.contains("shstk"))
}

/// Frees a seized thread that has ended. Any thread of this process may do this. Returns false if it has not ended.
pub(super) fn reap(tid: u32) -> bool {
    // The kernel reports stops of a seized thread here, too. They stay: a signal that a thread has stopped for would be lost.
    has_ended(tid, libc::WNOWAIT) && has_ended(tid, 0)
}

/// Whether a seized thread has ended, by waitid(2).
fn has_ended(tid: u32, flags: libc::c_int) -> bool {
    // SAFETY: all zero is valid for a struct of numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = flags | libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: room for the struct.
    let result = unsafe { libc::waitid(libc::P_PID, tid, &raw mut info, flags) };
    result == 0 && matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
}

/// Registers of a stopped thread.
pub(super) fn registers(tid: u32) -> io::Result<Registers> {
    // SAFETY: all zero is valid for a struct of numbers.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    // SAFETY: room for the struct.
    unsafe { request(libc::PTRACE_GETREGS as _, tid, 0, (&raw mut registers).addr())? };
    Ok(registers)
}

/// Sets the registers of a stopped thread.
pub(super) fn set_registers(tid: u32, registers: &Registers) -> io::Result<()> {
    // SAFETY: the struct, which the kernel reads.
    unsafe { request(libc::PTRACE_SETREGS as _, tid, 0, (&raw const *registers).addr()) }
}

/// The blocked signals of a stopped thread, outside of a system call that changes them for a while.
pub(super) fn signal_mask(tid: u32) -> io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: room for as many bytes.
    unsafe { request(libc::PTRACE_GETSIGMASK as _, tid, size_of::<u64>(), (&raw mut mask).addr())? };
    Ok(mask)
}

/// Sets the blocked signals of a stopped thread.
pub(super) fn set_signal_mask(tid: u32, mask: u64) -> io::Result<()> {
    // SAFETY: as many bytes.
    unsafe { request(libc::PTRACE_SETSIGMASK as _, tid, size_of::<u64>(), (&raw const mask).addr()) }
}

/// The floating point and vector registers of a stopped thread, in the format of `XSAVE`.
pub(super) fn extended_state(tid: u32) -> io::Result<Vec<u8>> {
    // With AMX about 11 kB.
    let mut bytes = vec![0u8; 1 << 16];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel writes as many bytes as `part` has, and stores their number there.
    unsafe { request(libc::PTRACE_GETREGSET as _, tid, NT_X86_XSTATE, (&raw mut part).addr())? };
    bytes.truncate(part.iov_len);
    Ok(bytes)
}

/// Address of the thread's `struct rseq`, if it has one.
pub(super) fn rseq_area(tid: u32) -> io::Result<Option<u64>> {
    // `struct ptrace_rseq_configuration`, which begins with the address.
    let mut configuration = [0u64; 3];
    let (request_number, size) = (PTRACE_GET_RSEQ_CONFIGURATION, size_of_val(&configuration));
    // SAFETY: room for as many bytes.
    match unsafe { request(request_number, tid, size, configuration.as_mut_ptr().addr()) } {
        // Kernels without rseq(2).
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(None),
        result => result.map(|()| Some(configuration[0]).filter(|area| *area != 0)),
    }
}

/// Writes a word to a stopped thread's memory, also where the memory is write-protected.
pub(super) fn poke(tid: u32, address: u64, word: u64) -> io::Result<()> {
    // SAFETY: an address in the other process, which the kernel checks.
    unsafe { request(libc::PTRACE_POKEDATA as _, tid, address as usize, word as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_thread_that_has_stopped_is_not_freed() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id();
        seize(pid).expect("it is a child");
        interrupt(pid).expect("it is traced");
        let deadline = Instant::now() + Duration::from_secs(10);
        while stop(pid).is_err() {
            assert!(Instant::now() < deadline);
        }
        assert!(!reap(pid), "it has stopped");
        child.kill().expect("it runs");
        while !reap(pid) {
            assert!(Instant::now() < deadline);
        }
        assert!(child.wait().map_or(true, |status| status.signal() == Some(libc::SIGKILL)));
    }
}
