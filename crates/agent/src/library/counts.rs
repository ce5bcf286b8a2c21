//! Counts of launches and of their records, in memory of the tracer: it compares them when the process has ended, in whatever way.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::message::{COUNTERS, Counters};
use crate::sys::{self, Descriptor};

/// The tracer's memory; null: there is none, and nothing is counted.
static COUNTED: AtomicPtr<Counters> = AtomicPtr::new(null_mut());
/// 1 while launches are counted.
static COUNTS: AtomicU32 = AtomicU32::new(0);
/// Captures of streams that have begun and not ended.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// Work that a launch starts.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum LaunchKind {
    Kernel,
    Graph,
}

/// Maps the tracer's memory.
pub(crate) fn map(memory: Descriptor) {
    // SAFETY: new memory.
    let at = unsafe { sys::mmap(null_mut(), COUNTERS, sys::PROT_READ_WRITE, sys::MAP_SHARED, memory.0, 0) };
    memory.close();
    if at as isize != -1 {
        COUNTED.store(at.cast(), Release);
    }
}

/// Counts launches from now on.
pub(crate) fn begin() {
    CAPTURES.store(0, Release);
    COUNTS.store(1, Release);
    add(|counters| &counters.counts);
}

/// Counts no launches any more.
pub(crate) fn end() {
    COUNTS.store(0, Release);
}

/// Forgets the tracer's memory, which a launch that returns just now may still count in.
pub(crate) fn release() {
    COUNTED.store(null_mut(), Release);
}

/// Whether a launch that returns now is counted.
pub(crate) fn counts() -> bool {
    COUNTS.load(Acquire) == 1 && CAPTURES.load(Acquire) == 0
}

/// Launches are not counted until the end of the capture.
pub(crate) fn begin_capture() {
    CAPTURES.fetch_add(1, AcqRel);
}

/// See [`begin_capture`]. One that began before launches were counted changes nothing.
pub(crate) fn end_capture() {
    let _ = CAPTURES.fetch_update(AcqRel, Acquire, |captures| captures.checked_sub(1));
}

/// A launch was made.
pub(crate) fn launched(what: LaunchKind) {
    add(|counters| match what {
        LaunchKind::Kernel => &counters.kernels,
        LaunchKind::Graph => &counters.graphs,
    });
}

/// A launch has a record, the first one.
pub(crate) fn recorded(what: LaunchKind) {
    add(|counters| match what {
        LaunchKind::Kernel => &counters.kernels_recorded,
        LaunchKind::Graph => &counters.graphs_recorded,
    });
}

/// A launch is forgotten before a record of it has come.
pub(crate) fn forgotten() {
    add(|counters| &counters.forgotten);
}

/// A record of a kernel has come whose launch is not known.
pub(crate) fn unknown() {
    add(|counters| &counters.unknown);
}

fn add(counter: impl FnOnce(&Counters) -> &AtomicU64) {
    let counters = COUNTED.load(Acquire);
    if !counters.is_null() {
        // SAFETY: mapped memory of numbers, which is never unmapped.
        counter(unsafe { &*counters }).fetch_add(1, Relaxed);
    }
}
