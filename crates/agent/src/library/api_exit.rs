//! The end of CUPTI in a process, which NVIDIA permits at the exit of a call of the driver: the next call ends it, whenever that is.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::cupti::{Cupti, DRIVER_API, SUCCESS, Subscriber};
use crate::forks::NoForks;
use crate::sys;

/// Milliseconds to wait for a call of the driver.
const PATIENCE: i64 = 1500;

const RUNS: u32 = 0;
const ENDS: u32 = 1;
const BEING_ENDED: u32 = 2;
const ENDED: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(RUNS);

struct Ending(UnsafeCell<Option<Cupti>>);
// SAFETY: written before the state is `ENDS`, read by the one thread that changes that.
unsafe impl Sync for Ending {}
static ENDING: Ending = Ending(UnsafeCell::new(None));

/// Whether the last collection of this process still waits for its end.
pub fn is_pending() -> bool {
    ![RUNS, ENDED].contains(&STATE.load(Acquire))
}

/// Called at the exit of calls of the driver.
pub fn exited() {
    if STATE.compare_exchange(ENDS, BEING_ENDED, AcqRel, Acquire).is_err() {
        return;
    }
    let Some(_no_forks) = NoForks::try_begin() else {
        // The fork may wait for a lock of CUPTI's that this call holds.
        STATE.store(ENDS, Release);
        return;
    };
    // SAFETY: see `Ending`.
    if let Some(cupti) = unsafe { *ENDING.0.get() } {
        cupti.finalize();
    }
    STATE.store(ENDED, Release);
}

/// Ends CUPTI at the exit of the next call of the driver. Returns whether there was one soon.
pub fn finalize(cupti: Cupti, subscriber: Subscriber) -> bool {
    // SAFETY: no callback reads it in this state.
    unsafe { *ENDING.0.get() = Some(cupti) };
    STATE.store(ENDS, Release);
    if cupti.call_back_at(subscriber, DRIVER_API) != SUCCESS {
        STATE.store(ENDED, Release);
        return cupti.unsubscribe(subscriber) == SUCCESS;
    }
    for _ in 0..PATIENCE / 5 {
        if STATE.load(Acquire) == ENDED {
            return true;
        }
        sys::sleep(5);
    }
    STATE.load(Acquire) == ENDED
}
