//! Which copy of this library has CUPTI's only subscription, and the end of CUPTI in a process, which NVIDIA permits at the exit of a call of the
//! driver: the next call ends it, whenever that is. A collection that begins before takes it over as it is. Where graphs were used, CUPTI is not
//! ended: it goes on without a subscriber.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::copies::SharedStatic;
use crate::cupti::{Cupti, DRIVER_API, SUCCESS, Subscriber};
use crate::forks::NoForks;
use crate::{graphs, sys};

/// Milliseconds to wait for a call of the driver.
const PATIENCE: i64 = 1500;
/// Milliseconds to wait for the end of another collection.
const HANDOVER: i64 = 1500;
/// Milliseconds between two looks.
const STEP: i64 = 5;

/// No copy has the subscription.
const FREE: u32 = 0;
/// A collection has it.
const HELD: u32 = 1;
/// The next call of the driver ends CUPTI.
const ENDS: u32 = 2;
const BEING_ENDED: u32 = 3;

/// The subscription of the copies of this library.
#[repr(C)]
pub(crate) struct Subscription {
    state: AtomicU32,
    subscriber: AtomicPtr<c_void>,
}

/// That of the first copy is used.
#[unsafe(no_mangle)]
#[used]
pub(crate) static cudatrace_subscription: Subscription =
    Subscription { state: AtomicU32::new(FREE), subscriber: AtomicPtr::new(null_mut()) };
static SHARED: SharedStatic<Subscription> =
    SharedStatic::new(c"cudatrace_subscription", &cudatrace_subscription);

struct CuptiCell(UnsafeCell<Option<Cupti>>);
// SAFETY: written before the state is `ENDS`, read by the one thread that changes that.
unsafe impl Sync for CuptiCell {}
static ENDING: CuptiCell = CuptiCell(UnsafeCell::new(None));

/// This copy has the subscription now.
pub(crate) fn has_subscribed(subscriber: Subscriber) {
    SHARED.get().subscriber.store(subscriber.0, Release);
    SHARED.get().state.store(HELD, Release);
}

/// Frees the subscription, if another collection of this library has it and ends. False if another tool has it, or a collection that goes on.
pub(crate) fn take_over(cupti: Cupti) -> bool {
    let Subscription { state, subscriber } = SHARED.get();
    if state.load(Acquire) == FREE {
        return false;
    }
    for _ in 0..HANDOVER / STEP {
        if state.compare_exchange(ENDS, HELD, AcqRel, Acquire).is_ok() {
            let departure = unsubscribe(cupti, Subscriber(subscriber.load(Acquire)));
            return departure == Departure::Unsubscribed;
        }
        if state.load(Acquire) == FREE {
            return true;
        }
        sys::sleep(STEP);
    }
    false
}

/// Called at the exit of calls of the driver.
pub(crate) fn exited() {
    let Subscription { state, subscriber } = SHARED.get();
    if state.compare_exchange(ENDS, BEING_ENDED, AcqRel, Acquire).is_err() {
        return;
    }
    let Some(_no_forks) = NoForks::try_begin() else {
        // The fork may wait for a lock of CUPTI's that this call holds.
        state.store(ENDS, Release);
        return;
    };
    // SAFETY: see `CuptiCell`.
    if let Some(cupti) = unsafe { *ENDING.0.get() } {
        // A graph was used just now, for the first time. The collection gives the subscription back, or the next one if it waits no more.
        if graphs::were_used() {
            cupti.call_back_at(Subscriber(subscriber.load(Acquire)), DRIVER_API, false);
            state.store(ENDS, Release);
            return;
        }
        if cupti.finalize() == SUCCESS {
            graphs::forget();
        }
    }
    state.store(FREE, Release);
}

/// How a collection has left CUPTI.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Departure {
    /// CUPTI has ended, or the process exits.
    Finalized,
    /// CUPTI goes on without a subscriber.
    Unsubscribed,
    /// CUPTI ends at the next call of the driver, or another collection has it, or it refuses.
    NotYet,
}

/// Ends CUPTI at the exit of the next call of the driver, unless graphs were used; waits a little for that call.
pub(crate) fn finalize(cupti: Cupti, subscriber: Subscriber) -> Departure {
    let state = &SHARED.get().state;
    if graphs::were_used() {
        return unsubscribe(cupti, subscriber);
    }
    // SAFETY: no callback reads it in this state.
    unsafe { *ENDING.0.get() = Some(cupti) };
    if cupti.call_back_at(subscriber, DRIVER_API, true) != SUCCESS {
        return unsubscribe(cupti, subscriber);
    }
    state.store(ENDS, Release);
    for _ in 0..PATIENCE / STEP {
        match state.load(Acquire) {
            FREE => return Departure::Finalized,
            // Another collection has taken it over.
            HELD => return Departure::NotYet,
            ENDS if graphs::were_used() && state.compare_exchange(ENDS, HELD, AcqRel, Acquire).is_ok() => {
                return unsubscribe(cupti, subscriber);
            }
            _ => sys::sleep(STEP),
        }
    }
    if state.load(Acquire) == FREE { Departure::Finalized } else { Departure::NotYet }
}

/// Gives the subscription back.
pub(crate) fn unsubscribe(cupti: Cupti, subscriber: Subscriber) -> Departure {
    let status = cupti.unsubscribe(subscriber);
    SHARED.get().state.store(FREE, Release);
    if status == SUCCESS { Departure::Unsubscribed } else { Departure::NotYet }
}
