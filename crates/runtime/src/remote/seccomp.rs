//! Whether a stopped process lets our code in it, the script's or the agent's, make system calls. Refused: a seccomp filter that would
//! kill it for one, and a process that catches its own system calls by SIGSYS (PR_SET_SYSCALL_USER_DISPATCH).
//!
//! A filter that returns an error number is harmless: what our code reads by the call is missing then. Filters are read (PTRACE_SECCOMP_GET_FILTER) and run here for each of the calls.
//!
//! Not here: the calls that a tracer makes by a stopped thread. Filters are suspended for those, see `calls`.

use super::error::RemoteError;
use super::ptrace;
use super::stopped::StoppedProcess;
use linux::proc::seccomp::SeccompState;

/// `AUDIT_ARCH_X86_64`
const MACHINE: u32 = 0xc000_003e;
const PR_GET_NAME: u64 = 16;
const CLOCKS: [libc::clockid_t; 2] = [libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME];
/// `SECCOMP_RET_ACTION_FULL`
const ACTION: u32 = 0xffff_0000;
/// Actions that do no harm.
const HARMLESS: [u32; 3] = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_LOG, libc::SECCOMP_RET_ERRNO];
/// Words of scratch memory of a filter.
const SCRATCH: usize = 16;
/// Size of `struct seccomp_data` in words: number, machine, instruction pointer, 6 arguments.
const DATA: usize = 16;

/// Origin of system calls in a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The helpers (`native`) and generated code.
    Programs,
    /// The gates (`native::load`), and the C library for them and for the agent.
    Agent,
}

/// Checks that no filter harms the process for a call. `own_filters`: number of filters of the
/// process that are the caller's.
///
/// # Errors
/// [`RemoteError::KillsCalls`] if it may, [`RemoteError::Filtered`] if that cannot be found out, [`RemoteError::DispatchesCalls`]
pub fn check(stopped: &StoppedProcess<'_>, own_filters: u32, caller: Caller) -> Result<(), RemoteError> {
    let calls = match caller {
        Caller::Programs => calls(stopped.pid()),
        Caller::Agent => AGENT_CALLS.map(|(name, number, arguments)| call(name, number, arguments)).to_vec(),
    };
    stopped.threads().iter().try_for_each(|tid| check_thread(stopped.pid(), *tid, own_filters, &calls))
}

fn check_thread(pid: u32, tid: u32, own_filters: u32, calls: &[CallData]) -> Result<(), RemoteError> {
    if ptrace::dispatches_system_calls(tid)? {
        return Err(RemoteError::DispatchesCalls);
    }
    match SeccompState::of(pid, tid)? {
        SeccompState { mode: libc::SECCOMP_MODE_DISABLED, .. } => return Ok(()),
        SeccompState { mode: libc::SECCOMP_MODE_STRICT, .. } => {
            return Err(RemoteError::KillsCalls { call: calls[0].0 });
        }
        SeccompState { filters, .. } if filters <= own_filters => return Ok(()),
        _ => {}
    }
    let filters = ptrace::seccomp_filters(tid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => RemoteError::Gone,
        _ => RemoteError::Filtered,
    })?;
    let harms = |data: &[u32; DATA]| filters.iter().any(|filter| is_harmful(run(filter, data)));
    match calls.iter().find(|(_, data)| harms(data)) {
        Some((call, _)) => Err(RemoteError::KillsCalls { call }),
        None => Ok(()),
    }
}

/// Name of a call, and what filters see of it.
type CallData = (&'static str, [u32; DATA]);

/// A call, as filters see it. Pointers are zero: a filter cannot read what they lead to.
fn call(name: &'static str, number: i64, arguments: &[u64]) -> CallData {
    let mut data = [0; DATA];
    (data[0], data[1]) = (number as u32, MACHINE);
    for (argument, words) in arguments.iter().zip(data[4..].as_chunks_mut::<2>().0) {
        *words = [*argument as u32, (*argument >> 32) as u32];
    }
    (name, data)
}

/// `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
/// CLONE_CHILD_CLEARTID`, as in C libraries.
const THREAD: u64 = 0x3d_0f00;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;

/// The calls for a thread of the C library that loads a library and waits for the tracer.
const AGENT_CALLS: [(&str, i64, &[u64]); 27] = [
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask, &[libc::SIG_SETMASK as u64, 0, 0, 8]),
    ("clone", libc::SYS_clone, &[THREAD]),
    ("clone3", libc::SYS_clone3, &[0, 88]),
    ("set_robust_list", libc::SYS_set_robust_list, &[0, 24]),
    ("rseq", libc::SYS_rseq, &[0, 32]),
    ("mmap", libc::SYS_mmap, &[0, 8 << 20, READ_WRITE, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64]),
    ("mmap", libc::SYS_mmap, &[0, 4096, READ_EXECUTE, libc::MAP_PRIVATE as u64, 3]),
    ("munmap", libc::SYS_munmap, &[0, 4096]),
    ("mprotect", libc::SYS_mprotect, &[0, 4096, READ_WRITE]),
    ("openat", libc::SYS_openat, &[libc::AT_FDCWD as u64, 0, libc::O_CLOEXEC as u64]),
    ("read", libc::SYS_read, &[3, 0, 832]),
    ("pread64", libc::SYS_pread64, &[3, 0, 832]),
    ("fstat", libc::SYS_fstat, &[3]),
    ("newfstatat", libc::SYS_newfstatat, &[3]),
    ("close", libc::SYS_close, &[3]),
    ("shutdown", libc::SYS_shutdown, &[3, 2]),
    ("futex", libc::SYS_futex, &[]),
    ("poll", libc::SYS_poll, &[0, 1]),
    ("recvfrom", libc::SYS_recvfrom, &[3]),
    ("sendto", libc::SYS_sendto, &[3]),
    ("recvmsg", libc::SYS_recvmsg, &[3]),
    ("gettid", libc::SYS_gettid, &[]),
    ("nanosleep", libc::SYS_nanosleep, &[]),
    ("clock_nanosleep", libc::SYS_clock_nanosleep, &[libc::CLOCK_REALTIME as u64]),
    ("madvise", libc::SYS_madvise, &[0, 4096, libc::MADV_DONTNEED as u64]),
    ("prctl", libc::SYS_prctl, &[libc::PR_SET_NAME as u64]),
    ("exit", libc::SYS_exit, &[]),
];

/// The calls of programs.
fn calls(pid: u32) -> Vec<CallData> {
    let mut calls = vec![
        call("process_vm_readv", libc::SYS_process_vm_readv, &[pid.into(), 0, 1, 0, 1]),
        // The owner of a lock may be another process.
        call("process_vm_readv", libc::SYS_process_vm_readv, &[1, 0, 1, 0, 1]),
        call("sched_yield", libc::SYS_sched_yield, &[]),
        // An operation that does not exist, by which stacks are read.
        call("rt_sigprocmask", libc::SYS_rt_sigprocmask, &[u64::MAX]),
        call("gettid", libc::SYS_gettid, &[]),
        call("getpid", libc::SYS_getpid, &[]),
        call("prctl", libc::SYS_prctl, &[PR_GET_NAME]),
        call("getuid", libc::SYS_getuid, &[]),
        call("getgid", libc::SYS_getgid, &[]),
    ];
    calls.extend(CLOCKS.map(|clock| call("clock_gettime", libc::SYS_clock_gettime, &[clock as u64])));
    calls
}

/// An unknown result is one that the kernel would not have accepted.
fn is_harmful(result: Option<u32>) -> bool {
    result.is_none_or(|result| !HARMLESS.contains(&(result & ACTION)))
}

/// Runs a filter, which is classic BPF. `None`: an instruction that filters do not have.
fn run(filter: &[libc::sock_filter], data: &[u32; DATA]) -> Option<u32> {
    let (mut a, mut x, mut scratch) = (0u32, 0u32, [0u32; SCRATCH]);
    let mut at = 0;
    loop {
        let instruction = filter.get(at)?;
        at += 1;
        let (code, k) = (u32::from(instruction.code), instruction.k);
        let cell = k as usize;
        let operand = if code & libc::BPF_X == 0 { k } else { x };
        match code & 7 {
            libc::BPF_LD | libc::BPF_LDX => {
                let value = match code & 0xe0 {
                    libc::BPF_IMM => k,
                    libc::BPF_ABS => *data.get(cell / 4)?,
                    libc::BPF_MEM => *scratch.get(cell)?,
                    libc::BPF_LEN => size_of_val(data) as u32,
                    _ => return None,
                };
                if code & 7 == libc::BPF_LD { a = value } else { x = value }
            }
            libc::BPF_ST => *scratch.get_mut(cell)? = a,
            libc::BPF_STX => *scratch.get_mut(cell)? = x,
            libc::BPF_ALU => a = calculate(code & 0xf0, a, operand)?,
            libc::BPF_JMP if code & 0xf0 == libc::BPF_JA => at += cell,
            libc::BPF_JMP => {
                let holds = match code & 0xf0 {
                    libc::BPF_JEQ => a == operand,
                    libc::BPF_JGT => a > operand,
                    libc::BPF_JGE => a >= operand,
                    libc::BPF_JSET => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if holds { instruction.jt } else { instruction.jf });
            }
            libc::BPF_RET => return Some(if code & 0x18 == libc::BPF_A { a } else { k }),
            _ if code & 0xf8 == libc::BPF_TAX => x = a,
            _ => a = x,
        }
    }
}

fn calculate(operation: u32, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => a.wrapping_add(b),
        libc::BPF_SUB => a.wrapping_sub(b),
        libc::BPF_MUL => a.wrapping_mul(b),
        libc::BPF_DIV => a.checked_div(b)?,
        libc::BPF_AND => a & b,
        libc::BPF_OR => a | b,
        libc::BPF_XOR => a ^ b,
        libc::BPF_LSH => a.wrapping_shl(b),
        libc::BPF_RSH => a.wrapping_shr(b),
        libc::BPF_NEG => a.wrapping_neg(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
    }

    fn killed_for(number: i64, action: u32) -> Vec<libc::sock_filter> {
        let is = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        vec![
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter { code: is, jt: 0, jf: 1, k: number as u32 },
            statement(libc::BPF_RET | libc::BPF_K, action),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ]
    }

    fn harmful(filter: &[libc::sock_filter]) -> Vec<&'static str> {
        let calls = calls(1);
        calls.into_iter().filter(|(_, data)| is_harmful(run(filter, data))).map(|(call, _)| call).collect()
    }

    #[test]
    fn a_filter_harms_by_the_calls_that_it_kills_for() {
        assert_eq!(harmful(&killed_for(libc::SYS_gettid, libc::SECCOMP_RET_KILL_PROCESS)), ["gettid"]);
        assert_eq!(harmful(&killed_for(libc::SYS_prctl, libc::SECCOMP_RET_TRAP)), ["prctl"]);
        assert_eq!(harmful(&killed_for(libc::SYS_prctl, libc::SECCOMP_RET_ERRNO | 1)), [""; 0]);
        assert_eq!(harmful(&killed_for(libc::SYS_read, libc::SECCOMP_RET_KILL_THREAD)), [""; 0]);
    }

    #[test]
    fn arguments_are_seen_through_all_kinds_of_instructions() {
        // Kills for PR_GET_NAME as the low half of the first argument, by way of scratch memory and X.
        let filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            statement(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, libc::SYS_prctl as u32),
            statement(libc::BPF_ST, 3),
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16),
            statement(libc::BPF_MISC | libc::BPF_TAX, 0),
            statement(libc::BPF_LD | libc::BPF_MEM, 3),
            statement(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
            libc::sock_filter {
                code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                jt: 0,
                jf: 1,
                k: PR_GET_NAME as u32,
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_THREAD),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        assert_eq!(harmful(&filter), ["prctl"]);
    }
}
