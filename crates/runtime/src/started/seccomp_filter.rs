//! The seccomp filter of a traced program. It reports executable mappings of files, executed programs, memory that is made
//! executable, uses of seccomp that fail because of this filter, and optionally further filters, changes of rights, the begin of programs
//! and the ends of processes.

use crate::kernel::sys;
use std::io;
use std::os::fd::OwnedFd;

/// Offsets in `struct seccomp_data`; for an argument, of its low half.
const DATA_NR: u32 = 0;
const DATA_ARCH: u32 = 4;
const fn data_arg(n: u32) -> u32 {
    16 + 8 * n
}

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// `prot` of mmap(2), mprotect(2) and pkey_mprotect(2); `flags` of mmap(2).
const ARG_PROT: u32 = data_arg(2);
const ARG_FLAGS: u32 = data_arg(3);

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// No system call has this number.
const NO_CALL: u32 = u32::MAX;

/// By this system call a program, or its loader, sets its thread pointer as one of the first.
#[cfg(target_arch = "x86_64")]
const BEGIN: u32 = libc::SYS_arch_prctl as u32;
#[cfg(target_arch = "aarch64")]
const BEGIN: u32 = NO_CALL;

/// System calls of 32-bit programs, which may execute 64-bit programs.
#[cfg(target_arch = "x86_64")]
mod compat {
    pub(super) const AUDIT_ARCH: u32 = 0x4000_0003;
    pub(super) const EXECVE: u32 = 11;
    pub(super) const EXECVEAT: u32 = 358;
}
#[cfg(target_arch = "aarch64")]
mod compat {
    pub const AUDIT_ARCH: u32 = 0x4000_0028;
    pub const EXECVE: u32 = 11;
    pub const EXECVEAT: u32 = 387;
}

/// System calls by which a process gets other rights than the processes with which it shares memory.
const RIGHTS: [u32; 11] = [
    libc::SYS_setuid as u32,
    libc::SYS_setgid as u32,
    libc::SYS_setreuid as u32,
    libc::SYS_setregid as u32,
    libc::SYS_setresuid as u32,
    libc::SYS_setresgid as u32,
    libc::SYS_setfsuid as u32,
    libc::SYS_setfsgid as u32,
    libc::SYS_capset as u32,
    libc::SYS_unshare as u32,
    libc::SYS_setns as u32,
];

/// First argument of arch_prctl(2) by which it sets the thread pointer: `ARCH_SET_FS`.
const SET_THREAD_POINTER: u32 = 0x1002;

/// First and second argument of prctl(2), the first one of arch_prctl(2); `flags` of seccomp(2).
const ARG_OPTION: u32 = data_arg(0);
const ARG_MODE: u32 = data_arg(1);
const ARG_SECCOMP_FLAGS: u32 = data_arg(1);

/// A branch to absolute positions in the filter.
const fn branch(at: u8, code: u32, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    jump(code, k, yes - at - 1, no - at - 1)
}

/// Positions in the filter.
const MMAP: u8 = 12;
const PROTECT: u8 = 16;
const PRCTL: u8 = 18;
const SECCOMP: u8 = 22;
const BEGINS: u8 = 24;
const COMPAT: u8 = 26;
const NOTIFY: u8 = 30;
const ALLOW: u8 = 31;
/// The tests for [`RIGHTS`] and their results follow.
const CHANGES: u8 = 32;
const CHANGES_END: u8 = CHANGES + RIGHTS.len() as u8;
/// Number of statements.
const LENGTH: usize = CHANGES_END as usize + 2;

/// Except for mmap, mprotect, prctl, seccomp and `begin` the number of the system call decides, so that the kernel caches "allow".
/// `end` is always reported, `begin` if it sets the thread pointer, `protect` if it makes memory executable, `patched`: each use of seccomp,
/// and changes of rights.
const fn filter([end, begin]: [u32; 2], protect: [u32; 2], patched: bool) -> [libc::sock_filter; LENGTH] {
    let mut whole = [statement(RETURN, libc::SECCOMP_RET_ALLOW); LENGTH];
    let first = first_part([end, begin], protect, patched);
    let mut at = 0;
    while at < first.len() {
        whole[at] = first[at];
        at += 1;
    }
    let mut at = CHANGES;
    while at < CHANGES_END {
        let otherwise = if at + 1 == CHANGES_END { CHANGES_END + 1 } else { at + 1 };
        whole[at as usize] = branch(at, IF_EQUAL, RIGHTS[(at - CHANGES) as usize], CHANGES_END, otherwise);
        at += 1;
    }
    whole[CHANGES_END as usize] = statement(RETURN, libc::SECCOMP_RET_USER_NOTIF);
    whole
}

const fn first_part(
    [end, begin]: [u32; 2],
    protect: [u32; 2],
    patched: bool,
) -> [libc::sock_filter; ALLOW as usize + 1] {
    let (other_seccomp, others) = if patched { (NOTIFY, CHANGES) } else { (ALLOW, ALLOW) };
    [
        statement(LOAD, DATA_ARCH),
        branch(1, IF_EQUAL, AUDIT_ARCH, 2, COMPAT),
        statement(LOAD, DATA_NR),
        branch(3, IF_EQUAL, end, NOTIFY, 4),
        branch(4, IF_EQUAL, begin, BEGINS, 5),
        branch(5, IF_EQUAL, libc::SYS_execve as u32, NOTIFY, 6),
        branch(6, IF_EQUAL, libc::SYS_execveat as u32, NOTIFY, 7),
        branch(7, IF_EQUAL, libc::SYS_mmap as u32, MMAP, 8),
        branch(8, IF_EQUAL, protect[0], PROTECT, 9),
        branch(9, IF_EQUAL, protect[1], PROTECT, 10),
        branch(10, IF_EQUAL, libc::SYS_prctl as u32, PRCTL, 11),
        branch(11, IF_EQUAL, libc::SYS_seccomp as u32, SECCOMP, others),
        statement(LOAD, ARG_PROT),
        branch(13, IF_SET, libc::PROT_EXEC as u32, 14, ALLOW),
        statement(LOAD, ARG_FLAGS),
        branch(15, IF_SET, libc::MAP_ANONYMOUS as u32, ALLOW, NOTIFY),
        statement(LOAD, ARG_PROT),
        branch(17, IF_SET, libc::PROT_EXEC as u32, NOTIFY, ALLOW),
        statement(LOAD, ARG_OPTION),
        branch(19, IF_EQUAL, libc::PR_SET_SECCOMP as u32, 20, ALLOW),
        statement(LOAD, ARG_MODE),
        branch(21, IF_EQUAL, libc::SECCOMP_MODE_STRICT, NOTIFY, other_seccomp),
        statement(LOAD, ARG_SECCOMP_FLAGS),
        branch(23, IF_SET, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32, NOTIFY, other_seccomp),
        statement(LOAD, ARG_OPTION),
        branch(25, IF_EQUAL, SET_THREAD_POINTER, NOTIFY, ALLOW),
        branch(COMPAT, IF_EQUAL, compat::AUDIT_ARCH, 27, ALLOW),
        statement(LOAD, DATA_NR),
        branch(28, IF_EQUAL, compat::EXECVE, NOTIFY, 29),
        branch(29, IF_EQUAL, compat::EXECVEAT, NOTIFY, ALLOW),
        statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
}

/// A reported system call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Maps a file executable.
    Maps,
    /// Makes memory executable.
    Protects {
        /// First address.
        start: u64,
        /// Size in bytes.
        len: u64,
    },
    /// Executes the path at an address, relative to a directory.
    Executes {
        /// Descriptor, or `AT_FDCWD`.
        directory: i32,
        /// Address of the path in the process.
        address: u64,
    },
    /// Sets the thread pointer: a program begins.
    Begins,
    /// Ends the process.
    Ends,
    /// Installs a filter with a listener.
    InstallsListener,
    /// Installs another filter, or uses seccomp in another way.
    InstallsFilter,
    /// Enters seccomp's strict mode.
    EntersStrictMode,
    /// Changes its user, a group, its capabilities or a namespace.
    ChangesRights,
}

impl Call {
    /// Decodes a system call that the filter has reported.
    pub(super) fn of(call: &libc::seccomp_data) -> Call {
        let here = |address| Call::Executes { directory: libc::AT_FDCWD, address };
        let there = || Call::Executes { directory: call.args[0] as i32, address: call.args[1] };
        if call.arch == compat::AUDIT_ARCH {
            return if call.nr as u32 == compat::EXECVEAT { there() } else { here(call.args[0]) };
        }
        match i64::from(call.nr) {
            libc::SYS_mmap => Call::Maps,
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                Call::Protects { start: call.args[0], len: call.args[1] }
            }
            libc::SYS_execve => here(call.args[0]),
            libc::SYS_execveat => there(),
            libc::SYS_seccomp if call.args[1] & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 => {
                Call::InstallsListener
            }
            libc::SYS_prctl if call.args[1] as u32 == libc::SECCOMP_MODE_STRICT => Call::EntersStrictMode,
            libc::SYS_seccomp | libc::SYS_prctl => Call::InstallsFilter,
            number if number as u32 == BEGIN => Call::Begins,
            number if RIGHTS.contains(&(number as u32)) => Call::ChangesRights,
            _ => Call::Ends,
        }
    }
}

/// Installs the filter for this process and its future children; returns the listener. `ends`: report exit_group(2) too. `patched`:
/// report further filters, changes of rights and the begin of programs, too. Makes only system calls, so it may run between fork and exec.
///
/// # Errors
/// The errors of seccomp(2): EBUSY if there is another listener, EACCES without CAP_SYS_ADMIN and `no_new_privs`.
pub(super) fn install(ends: bool, patched: bool) -> io::Result<OwnedFd> {
    let ends_and_begins =
        [if ends { libc::SYS_exit_group as u32 } else { NO_CALL }, if patched { BEGIN } else { NO_CALL }];
    let base = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // A signal must not make mmap fail with EINTR.
    let uninterrupted = base | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let protect = [libc::SYS_mprotect as u32, libc::SYS_pkey_mprotect as u32];
    seccomp(uninterrupted, &filter(ends_and_begins, protect, patched)).or_else(|error| {
        match error.raw_os_error() {
            // Kernels before 5.19 lack the flag. JIT compilers call mprotect often and are interrupted often.
            Some(libc::EINVAL) => seccomp(base, &filter(ends_and_begins, [NO_CALL; 2], patched)),
            _ => Err(error),
        }
    })
}

fn seccomp(flags: libc::c_ulong, filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` points to a filter that outlives the call, which copies it. With NEW_LISTENER the result is a new
    // descriptor.
    sys::owned(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&program))
    })
}
