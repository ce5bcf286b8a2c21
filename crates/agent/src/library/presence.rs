//! In which process a collection runs, and the wait for its last records when that process ends.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::sys::{self, Descriptor};

/// Milliseconds that the end of the process waits for the last records.
const LAST_RECORDS: i64 = 1000;

/// Process in which a collection runs; 0: none. A child of fork(2) has no thread of the agent.
static RUNS_IN: AtomicU32 = AtomicU32::new(0);
/// Its socket.
static SOCKET: AtomicU32 = AtomicU32::new(0);
/// 1 as soon as the process exits.
static EXITS: AtomicU32 = AtomicU32::new(0);
/// 1 as soon as the process has waited in vain.
static IS_LATE: AtomicU32 = AtomicU32::new(0);

/// A collection begins in this process, with its socket. False if one runs here, or the process exits.
pub(crate) fn begin(pid: u32, socket: Descriptor) -> bool {
    let before = RUNS_IN.load(Acquire);
    if exits() || before == pid || RUNS_IN.compare_exchange(before, pid, AcqRel, Acquire).is_err() {
        return false;
    }
    SOCKET.store(socket.0 as u32, Release);
    true
}

/// The collection has ended.
pub(crate) fn end() {
    RUNS_IN.store(0, Release);
}

/// Whether a collection runs in this process, and not only in the one that it is a child of.
pub(crate) fn runs_here() -> bool {
    // SAFETY: no arguments.
    RUNS_IN.load(Acquire) == unsafe { sys::getpid() } as u32
}

/// Whether the process exits.
pub(crate) fn exits() -> bool {
    EXITS.load(Acquire) != 0
}

/// Passes on the last records before the process ends, and ends the collection. Makes system calls only: a handler of a signal may end the process.
pub(crate) fn pass_on_last() {
    // A child of vfork(2) has the memory of its parent.
    if !runs_here() || EXITS.swap(1, AcqRel) != 0 {
        return;
    }
    // SAFETY: the agent's socket; the agent's thread notices it.
    unsafe { sys::shutdown(SOCKET.load(Acquire) as c_int, sys::SHUT_RD) };
    for _ in 0..LAST_RECORDS {
        if !runs_here() {
            return;
        }
        sys::sleep(1);
    }
    IS_LATE.store(1, Release);
}

/// Stays here if the process has exited without waiting any longer: CUPTI and the driver end now, and must not be called.
pub(crate) fn stay_if_late() {
    while IS_LATE.load(Acquire) != 0 {
        sys::sleep(1000);
    }
}
