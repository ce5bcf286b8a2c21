//! The id of this thread: read from the thread's control block if the C library keeps it where glibc does, otherwise by a system call.

use core::arch::asm;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::sys;

/// Offset of a thread's id from its control block in glibc, 2.4 to 2.43.
const GLIBC_TID: usize = 720;
/// Whether the C library stores the id of a thread where glibc does: 0 not known yet, 1 yes, 2 no.
static STORES_TID: AtomicU32 = AtomicU32::new(0);

/// The id of this thread.
pub(crate) fn current() -> u32 {
    match STORES_TID.load(Relaxed) {
        1 => stored(),
        2 => sys::gettid(),
        _ => {
            let is_stored = stored() == sys::gettid();
            STORES_TID.store(if is_stored { 1 } else { 2 }, Release);
            sys::gettid()
        }
    }
}

/// The id of this thread where glibc stores it.
fn stored() -> u32 {
    // SAFETY: the thread's control block is larger in all C libraries for x86-64.
    unsafe { core::ptr::with_exposed_provenance::<u32>(control_block() + GLIBC_TID).read_volatile() }
}

/// Address of this thread's control block, which no other living thread of the process has.
pub(crate) fn control_block() -> usize {
    let block: usize;
    // SAFETY: the block begins with words that all C libraries for x86-64 have there, the third one being its address.
    unsafe {
        asm!("mov {}, fs:[0x10]", out(reg) block, options(nostack, readonly, preserves_flags));
    }
    block
}
