//! The end of CUPTI in a process, which NVIDIA permits at the exit of a call of the driver: the next call ends it, whenever that is.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::cupti::{CallbackData, Cupti, DRIVER_API, EXIT, SUCCESS, Subscriber};
use crate::sys;

unsafe extern "C" { fn printf(f: *const core::ffi::c_char, ...) -> i32; }
/// Milliseconds to wait for a call of the driver.
const PATIENCE: i64 = 5000;

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

/// CUPTI calls this at the begin and at the exit of calls, after [`finalize`].
pub extern "C" fn callback(_: *mut c_void, domain: u32, _: u32, call: *const CallbackData) {
    // SAFETY: CUPTI's, in this domain.
    if domain != DRIVER_API || call.is_null() || unsafe { (*call).site } != EXIT {
        return;
    }
    if STATE.compare_exchange(ENDS, BEING_ENDED, AcqRel, Acquire).is_ok() {
        // SAFETY: see `Ending`.
        if let Some(cupti) = unsafe { *ENDING.0.get() } {
            let t0 = sys::now(1); let st = cupti.finalize(); let t1 = sys::now(1); unsafe { printf(c"finalize %u took %llu us site %u\n".as_ptr(), st, (t1 - t0) / 1000, 1u32) };
        }
        STATE.store(ENDED, Release);
    }
}

/// Ends CUPTI at the exit of the next call of the driver. Returns whether there was one soon.
pub fn finalize(cupti: Cupti, subscriber: Subscriber) -> bool {
    // SAFETY: no callback reads it in this state.
    unsafe { *ENDING.0.get() = Some(cupti) };
    STATE.store(ENDS, Release);
 unsafe { printf(c"ending\n".as_ptr()) };
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
