//! Environment of our code in a process: whether it may run there at all, and how it finds the CPU, the thread and the time.

use crate::remote::seccomp::{self, Caller};
use crate::remote::{Region, RemoteError, StoppedProcess, has_shadow_stacks};
use linux::proc;
use native::{CpuNumber, Environment, Process, ThreadId, TimeSource, Unwind};

/// Offset of the thread's id from its control block, in glibc for x86-64. It is used only if the id of a stopped thread is there.
const GLIBC_TID: i32 = 0x2d0;

/// Checks that nothing of ours would harm the process, or give wrong results there. Without programs no process ids are used there.
///
/// # Errors
/// [`RemoteError::ShadowStacks`], [`RemoteError::OtherNamespace`], and those of [`seccomp::check`].
pub(super) fn check(
    stopped: &StoppedProcess<'_>,
    own_filters: u32,
    has_programs: bool,
) -> Result<(), RemoteError> {
    if has_shadow_stacks(stopped.pid()) {
        return Err(RemoteError::ShadowStacks);
    }
    if !has_programs {
        return Ok(());
    }
    if !has_our_ids(stopped.pid()) {
        return Err(RemoteError::OtherNamespace);
    }
    seccomp::check(stopped, own_filters, Caller::Programs)
}

/// How code of the process finds the CPU, the thread and the time.
pub(super) fn find(
    stopped: &StoppedProcess<'_>,
    cpus: u32,
    region: &Region,
) -> Result<Environment, RemoteError> {
    let tid = stopped.threads()[0];
    let block = stopped.registers(tid)?.fs_base;
    let mut stored = [0; 4];
    let is_stored = stopped.read(block.wrapping_add(GLIBC_TID as u64), &mut stored).is_ok()
        && block != 0
        && u32::from_le_bytes(stored) == tid;
    let thread = if is_stored {
        ThreadId::Stored(GLIBC_TID)
    } else {
        ThreadId::Asked { expected_at: if has_rdfsbase() { GLIBC_TID as u32 } else { 0 } }
    };
    let cpu = if has_rdpid() { CpuNumber::Rdpid } else { CpuNumber::Segment };
    let time =
        if crate::shared::clock::is_counter_steady() { TimeSource::Counter } else { TimeSource::Asked };
    let returns = region.size().data + region.size().code;
    let unwind = region.tables().map(|tables| Unwind { tables: tables.start, returns });
    Ok(Environment::Process(Process { cpus, cpu, thread, time, unwind }))
}

/// Whether system calls of the process know processes by the same ids as those of this process.
fn has_our_ids(pid: u32) -> bool {
    proc::pid_namespace(pid) == proc::own_pid_namespace()
}

/// Whether the kernel permits RDFSBASE.
fn has_rdfsbase() -> bool {
    const FSGSBASE: u64 = 1 << 1;
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// CPUID.(EAX=7):ECX bit 22
fn has_rdpid() -> bool {
    std::arch::x86_64::__cpuid(0).eax >= 7 && std::arch::x86_64::__cpuid_count(7, 0).ecx >> 22 & 1 == 1
}
