//! The seccomp filter of a traced program: executable mappings of files and executed programs are reported, ends of processes
//! if asked for, all else passes.

use crate::sys;
use std::io;
use std::os::fd::OwnedFd;

/// Offsets in `struct seccomp_data`; of an argument, its low half.
const DATA_NR: u32 = 0;
const DATA_ARCH: u32 = 4;
const fn data_arg(n: u32) -> u32 {
    16 + 8 * n
}

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// `prot` and `flags` of mmap(2).
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

/// The system call number decides alone for all but mmap, so the kernel caches "allow" for those.
const fn filter(also: u32) -> [libc::sock_filter; 13] {
    [
        statement(LOAD, DATA_ARCH),
        jump(IF_EQUAL, AUDIT_ARCH, 0, 10),
        statement(LOAD, DATA_NR),
        jump(IF_EQUAL, also, 7, 0),
        jump(IF_EQUAL, libc::SYS_execve as u32, 6, 0),
        jump(IF_EQUAL, libc::SYS_execveat as u32, 5, 0),
        jump(IF_EQUAL, libc::SYS_mmap as u32, 0, 5),
        statement(LOAD, ARG_PROT),
        jump(IF_SET, libc::PROT_EXEC as u32, 0, 3),
        statement(LOAD, ARG_FLAGS),
        jump(IF_SET, libc::MAP_ANONYMOUS as u32, 1, 0),
        statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Puts the filter on this process and all that it starts; the result is where the reports arrive, `ends`: of exit_group(2)
/// too. Makes nothing but system calls, so it may run between fork and exec.
///
/// # Errors
/// The kernel's; EBUSY when another tracer listens already, EACCES when new privileges are neither given up nor ours.
pub fn install(ends: bool) -> io::Result<OwnedFd> {
    let filter = filter(if ends { libc::SYS_exit_group as u32 } else { NO_CALL });
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let base = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // A caller that a signal interrupts must not see EINTR from mmap; kernels before 5.19 lack the flag.
    seccomp(base | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program).or_else(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => seccomp(base, &program),
            _ => Err(error),
        }
    })
}

fn seccomp(flags: libc::c_ulong, program: &libc::sock_fprog) -> io::Result<OwnedFd> {
    // SAFETY: `program` points to a filter that lives as long as the call; the kernel copies it. With NEW_LISTENER the
    // result is a new descriptor.
    sys::owned(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(program))
    })
}
