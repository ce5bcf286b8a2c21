//! The process's use of graphs while records were collected. CUPTI changes the kernels of such a graph, so that they write to its memory; after
//! its end (`cuptiFinalize`) the next launch of the graph fails, and with it the program: "unspecified launch failure", with CUPTI 13.0.1 on an
//! H200. PyTorch's profiler does not end CUPTI either where it knows of graphs.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::copies::SharedStatic;

/// One was made or launched.
const USED: u32 = 1;
/// CUPTI records graphs as a whole until its end, and none of their nodes.
const AS_A_WHOLE: u32 = 2;

/// Bits that all copies of this library share.
#[unsafe(no_mangle)]
#[used]
pub(crate) static cudatrace_graphs: AtomicU32 = AtomicU32::new(0);
static SHARED: SharedStatic<AtomicU32> = SharedStatic::new(c"cudatrace_graphs", &cudatrace_graphs);

/// A graph is made or launched.
pub(crate) fn are_used() {
    set(USED);
}

/// Whether CUPTI must not be ended.
pub(crate) fn were_used() -> bool {
    has(USED)
}

/// CUPTI records graphs as a whole from now on.
pub(crate) fn are_recorded_as_a_whole() {
    set(AS_A_WHOLE);
}

/// Whether graphs are recorded as a whole alone.
pub(crate) fn are_a_whole() -> bool {
    has(AS_A_WHOLE)
}

/// CUPTI has ended.
pub(crate) fn forget() {
    SHARED.get().fetch_and(!AS_A_WHOLE, AcqRel);
}

fn set(bit: u32) {
    if !has(bit) {
        SHARED.get().fetch_or(bit, AcqRel);
    }
}

fn has(bit: u32) -> bool {
    SHARED.get().load(Acquire) & bit != 0
}
