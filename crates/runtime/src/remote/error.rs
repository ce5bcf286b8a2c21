//! Errors of controlling another process.

use std::io;
use std::time::Duration;
use thiserror::Error;

/// The reason why a process cannot be controlled.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The process ended, was killed, or executed another program meanwhile.
    #[error("the process has ended, or executes another program")]
    Gone,
    /// Only one process may trace another one.
    #[error("process {tracer} traces it already, such as a debugger or strace")]
    Traced {
        /// Id of the other tracer.
        tracer: u32,
    },
    /// Another session has changed the same functions.
    #[error("another cudatrace traces the same functions (thread {tracer})")]
    Patched {
        /// Id of a thread of the other cudatrace, in its pid namespace.
        tracer: u32,
    },
    /// Another user's process, a process that is not dumpable, or Yama's `ptrace_scope`.
    #[error(
        "ptrace of the process is not permitted: needs CAP_SYS_PTRACE, or the same user and `ptrace_scope` 0"
    )]
    NotPermitted,
    /// A thread waits in the kernel and cannot be interrupted.
    #[error("thread {tid} did not stop in time")]
    DidNotStop {
        /// Id of the thread.
        tid: u32,
    },
    /// A filter could kill the process for a system call that it does not expect.
    #[error("the process has a seccomp filter; reading and suspending the filter needs CAP_SYS_ADMIN")]
    Filtered,
    /// The programs make system calls.
    #[error("a seccomp filter of the process may kill it for a system call of the probes (`{call}`)")]
    KillsCalls {
        /// Name of such a system call.
        call: &'static str,
    },
    /// `PR_SET_SYSCALL_USER_DISPATCH`
    #[error("the process handles system calls itself, as emulators do")]
    DispatchesCalls,
    /// A thread executes 32-bit code.
    #[error("the process executes 32-bit code")]
    OtherMachine,
    /// `x86_Thread_features: shstk`
    #[error("the process has shadow stacks, which forbid moved calls")]
    ShadowStacks,
    /// The process is in a container, and the tracer is not in the same one.
    #[error(
        "the process is in another pid namespace, where ids mean other processes: trace it from there, or by the kernel"
    )]
    OtherNamespace,
    /// Processes that share memory can read and write each other's values.
    #[error(
        "its rights are not those of the processes that are traced, and all of these share memory ({how}): trace it in a run of its own, or \
         without `--in-process`"
    )]
    OtherOwner {
        /// How they differ.
        how: String,
    },
    /// Too short, or of another form than compilers make.
    #[error(
        "none of the functions of CUDA's driver in the process can be patched, by which it is made to load the library"
    )]
    NoGate,
    /// A thread is about to load a library for a session before, or waits for the loader.
    #[error("the process is still loading the library of another trace")]
    LoadsAlready,
    /// Since its functions were looked up: their addresses are those of another program, or not known yet.
    #[error("the process executes another program by now, which is being loaded")]
    Executed,
    /// The vdso is switched off.
    #[error("the process has no vdso")]
    NoVdso,
    /// A jump reaches 2 GiB.
    #[error("the process has no free memory within 2 GiB of its code")]
    NoRoom,
    /// A system call of a stopped thread failed.
    #[error("`{call}` in the process: {error}")]
    Call {
        /// Name of the system call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// Another error of ptrace(2) or of the process's files in `/proc`.
    #[error("controlling the process: {0}")]
    System(#[source] io::Error),
}

impl RemoteError {
    /// Time for which [`RemoteError::Traced`] may be another cudatrace, which stops a process for some milliseconds at a time.
    pub const BRIEFLY: Duration = Duration::from_secs(1);

    /// Advice on a process that is not traced, unless the error's text contains it.
    pub fn way_out(&self) -> Option<&'static str> {
        use RemoteError::*;
        match self {
            Gone
            | NotPermitted
            | Filtered
            | OtherNamespace
            | OtherOwner { .. }
            | NoGate
            | LoadsAlready
            | Executed => None,
            Traced { .. } | Patched { .. } => Some("end that first, or trace it without `--in-process`"),
            DidNotStop { .. }
            | KillsCalls { .. }
            | DispatchesCalls
            | OtherMachine
            | ShadowStacks
            | NoVdso
            | NoRoom
            | Call { .. }
            | System(_) => Some("without `--in-process` the kernel traces it"),
        }
    }
}

impl From<io::Error> for RemoteError {
    fn from(error: io::Error) -> RemoteError {
        match error.raw_os_error() {
            Some(libc::ESRCH) => RemoteError::Gone,
            // `/proc/PID`
            Some(libc::ENOENT) => RemoteError::Gone,
            Some(libc::EPERM | libc::EACCES) => RemoteError::NotPermitted,
            _ => RemoteError::System(error),
        }
    }
}
