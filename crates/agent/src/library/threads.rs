//! A stack for each thread, of the ranges or the operators that it has begun and not ended.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::record::operator_table;
use crate::sys::ReservedMemory;

/// Threads that are kept.
pub(crate) const THREADS: usize = operator_table::PLACES as usize;
/// Places at which a thread is looked for.
const TRIES: usize = operator_table::TRIES as usize;
/// The bits of [`Thread::state`] that have the depth of the stack.
const DEPTH_BITS: u32 = 20;
/// Deepest stack.
const DEEPEST: u32 = (1 << DEPTH_BITS) - 1;

/// A thread with the innermost `KEPT` of its values. Zeros are a valid value.
pub(crate) struct Thread<T, const KEPT: usize> {
    /// Number of the thread, and below it the depth; 0: none. At depth 0 another thread may take the place, as threads end.
    state: AtomicU64,
    values: [T; KEPT],
}

/// Threads by their numbers, of 44 bits.
pub(crate) struct ThreadTable<T: 'static, const KEPT: usize>(ReservedMemory<Thread<T, KEPT>>);

/// The stack of a thread.
pub(crate) struct Stack<T: 'static, const KEPT: usize> {
    thread: &'static Thread<T, KEPT>,
    /// The number of the thread.
    pub(crate) number: u64,
    /// Index of the thread's place.
    pub(crate) place: usize,
    /// How many values have begun, also those that are not kept.
    pub(crate) depth: u32,
}

impl<T, const KEPT: usize> ThreadTable<T, KEPT> {
    /// A table that is not reserved yet.
    pub(crate) const fn new() -> ThreadTable<T, KEPT> {
        ThreadTable(ReservedMemory::of(THREADS))
    }

    /// Reserves its memory. False if there is none.
    pub(crate) fn reserve(&self) -> bool {
        self.0.reserve()
    }

    /// The stack of a thread; `None` if the thread has no place, and so has nothing begun.
    pub(crate) fn find(&self, number: u64) -> Option<Stack<T, KEPT>> {
        for (place, thread) in self.places(number) {
            match thread.state.load(Acquire) {
                0 => return None,
                known if known >> DEPTH_BITS == number => {
                    return Some(Stack { thread, number, place, depth: known as u32 & DEEPEST });
                }
                _ => {}
            }
        }
        None
    }

    /// The stack of this thread with a value more, whose place is that at the depth before. `None` if there is no room.
    pub(crate) fn push(&self, number: u64) -> Option<Stack<T, KEPT>> {
        self.find(number).and_then(Stack::pushed).or_else(|| self.take(number))
    }

    /// Takes a place for the first value of a thread.
    fn take(&self, number: u64) -> Option<Stack<T, KEPT>> {
        let mut places = self.places(number);
        let is_taken = |(_, thread): &(usize, &'static Thread<T, KEPT>)| {
            let before = thread.state.load(Acquire);
            before as u32 & DEEPEST == 0
                && thread.state.compare_exchange(before, state(number, 1), AcqRel, Acquire).is_ok()
        };
        places.find(is_taken).map(|(place, thread)| Stack { thread, number, place, depth: 1 })
    }

    /// The places at which a thread may be, with their indices.
    fn places(&self, number: u64) -> impl Iterator<Item = (usize, &'static Thread<T, KEPT>)> {
        let first = self.0.first();
        let start = (number as u32).wrapping_mul(operator_table::FACTOR as u32) as usize;
        let count = if first.is_null() { 0 } else { TRIES };
        (0..count).map(move |more| {
            let place = start.wrapping_add(more) % THREADS;
            // SAFETY: within the memory, whose zeros are valid.
            (place, unsafe { &*first.add(place) })
        })
    }
}

impl<T, const KEPT: usize> Stack<T, KEPT> {
    /// The values that are kept, the outermost first.
    pub(crate) fn kept(&self) -> &'static [T] {
        &self.thread.values[..(self.depth as usize).min(KEPT)]
    }

    /// The value of this depth, if it is kept.
    pub(crate) fn at(&self, depth: u32) -> Option<&'static T> {
        self.thread.values.get(depth as usize)
    }

    /// Sets the depth. Only the thread itself does so.
    pub(crate) fn cut(&self, depth: u32) {
        self.thread.state.store(state(self.number, depth), Release);
    }

    /// With a value more, unless another thread has just taken the place.
    fn pushed(self) -> Option<Stack<T, KEPT>> {
        let (before, after) = (state(self.number, self.depth), state(self.number, self.depth + 1));
        let has_room = self.depth < DEEPEST;
        let is_kept = has_room && self.thread.state.compare_exchange(before, after, AcqRel, Relaxed).is_ok();
        is_kept.then(|| Stack { depth: self.depth + 1, ..self })
    }
}

fn state(number: u64, depth: u32) -> u64 {
    number << DEPTH_BITS | u64::from(depth)
}
