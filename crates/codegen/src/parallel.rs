//! Work on several items at once.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

/// Threads at most: scripts have a few dozen functions.
const THREADS: usize = 4;

/// Operations of the IR that are worth a thread: starting one takes some 50 us, and each operation half of one.
const WORTH: usize = 500;

/// Calls `f` with each item, on several threads where the items have many operations together.
pub fn for_each<T: Send>(items: impl Iterator<Item = T> + Send, operations: usize, f: impl Fn(T) + Sync) {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = processors.min(operations / WORTH).min(THREADS);
    if threads <= 1 {
        return items.for_each(f);
    }
    let items = Mutex::new(items);
    let next = || items.lock().expect("bug: an iterator has panicked").next();
    let work = || std::iter::from_fn(next).for_each(&f);
    thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_met_once() {
        for operations in [0, 100_000] {
            let mut squares = vec![0; 1000];
            for_each(squares.iter_mut().enumerate(), operations, |(at, square)| *square += at * at);
            assert!(squares.iter().enumerate().all(|(at, square)| *square == at * at));
        }
    }
}
