//! Waits of the host that have returned: causes of idle times, when a script asks for these and not for records of the waits.
//!
//! CUPTI could record the waits. But then each of them also takes the time for reading the records of the work that it waited for: a program
//! that decodes tokens and waits 76 times in 110 ms took 15 to 20 ms longer (H200).

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sys::{self, ReservedMemory};

/// Number of waits that may return before the agent's thread takes them; of more, the oldest are lost as causes.
const WAITS: u64 = 1 << 15;

/// A wait, in nanoseconds of CLOCK_MONOTONIC.
struct Wait {
    start: AtomicU64,
    /// 0: not written yet.
    end: AtomicU64,
}

static ENDED: ReservedMemory<Wait> = ReservedMemory::of(WAITS as usize);
/// Number of waits that were added.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// Reserves the memory. False if there is none.
pub(crate) fn create() -> bool {
    ENDED.reserve()
}

/// Gives the memory back, when no wait is added any more.
pub(crate) fn release() {
    ENDED.release();
}

/// Adds a wait that began then and returns now.
pub(crate) fn add(start: u64) {
    let Some(wait) = at(ADDED.fetch_add(1, AcqRel)) else { return };
    wait.start.store(start, Relaxed);
    wait.end.store(sys::now(sys::CLOCK_MONOTONIC), Release);
}

/// The waits that have not been taken.
pub(crate) struct Waits {
    /// Number of those that were.
    taken: u64,
}

impl Waits {
    /// No wait is taken that has returned before.
    pub(crate) fn new() -> Waits {
        Waits { taken: ADDED.load(Acquire) }
    }

    /// Takes all that were added, as begin and end.
    pub(crate) fn take(&mut self, mut see: impl FnMut(u64, u64)) {
        let added = ADDED.load(Acquire);
        self.taken = self.taken.max(added.saturating_sub(WAITS));
        while self.taken < added {
            let Some(wait) = at(self.taken) else { return };
            let end = wait.end.swap(0, AcqRel);
            if end == 0 {
                // Its thread is writing it just now.
                return;
            }
            see(wait.start.load(Relaxed), end);
            self.taken += 1;
        }
    }
}

fn at(number: u64) -> Option<&'static Wait> {
    let first = ENDED.first();
    // SAFETY: within the memory, whose zeros are valid.
    (!first.is_null()).then(|| unsafe { &*first.add((number % WAITS) as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_taken_once_and_of_too_many_the_last() {
        assert!(create());
        let mut waits = Waits::new();
        let mut take = || {
            let mut starts = Vec::new();
            waits.take(|start, end| {
                assert!(end > start);
                starts.push(start);
            });
            starts
        };
        add(1);
        add(2);
        assert_eq!(take(), [1, 2]);
        assert_eq!(take(), []);
        (0..WAITS + 5).for_each(add);
        let last: Vec<u64> = (5..WAITS + 5).collect();
        assert!(take() == last && take().is_empty());
    }
}
