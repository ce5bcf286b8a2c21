//! Work on several items at once, also while they are still being made.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Threads at most: scripts have a few dozen functions.
const THREADS: usize = 4;

/// Operations of the IR that are worth a thread: starting one takes some 50 us, and each operation half of one.
const WORTH: usize = 500;

/// Asking takes as long as starting a thread.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Calls `f` with each item that `produce` hands out, on several threads where the items have many operations together; about
/// so many are `expected`. Gives what `produce` does, and the results in the order of the items.
pub fn pipeline<T: Send, R: Send, P>(
    expected: usize,
    produce: impl FnOnce(&mut dyn FnMut(T)) -> P,
    operations: impl Fn(&T) -> usize,
    f: impl Fn(T) -> R + Sync,
) -> (P, Vec<R>) {
    let queue = Queue::default();
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some(Waiting { at, item, .. }) = queue.next() {
            let result = f(item);
            lock(&results).push((at, result));
        }
    };
    let most = processors().min(THREADS) - 1;
    let produced = thread::scope(|scope| {
        // Also when `produce` panics, or the workers would wait for ever.
        let close = Close(&queue);
        let (mut count, mut waiting, mut workers) = (0, 0, 0);
        let mut hire = |operations| {
            if workers < most && operations >= WORTH * (workers + 1) {
                scope.spawn(work);
                workers += 1;
            }
        };
        hire(expected);
        let produced = produce(&mut |item| {
            let size = operations(&item);
            waiting += size;
            queue.push(Waiting { size, at: count, item });
            count += 1;
            hire(waiting);
        });
        drop(close);
        work();
        produced
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(at, _)| *at);
    (produced, results.into_iter().map(|(_, result)| result).collect())
}

/// Items that nobody has taken yet.
struct Queue<T>(Mutex<Open<T>>, Condvar);

struct Open<T> {
    items: Vec<Waiting<T>>,
    closed: bool,
}

/// An item, of so many operations, and its place among all.
struct Waiting<T> {
    size: usize,
    at: usize,
    item: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue(Mutex::new(Open { items: Vec::new(), closed: false }), Condvar::new())
    }
}

impl<T> Queue<T> {
    fn push(&self, item: Waiting<T>) {
        lock(&self.0).items.push(item);
        self.1.notify_one();
    }

    /// Waits for an item, of several takes the largest: whoever has that one last keeps all others waiting. None comes any more
    /// once the queue is closed and empty.
    fn next(&self) -> Option<Waiting<T>> {
        let open = self.1.wait_while(lock(&self.0), |open| open.items.is_empty() && !open.closed);
        let items = &mut open.unwrap_or_else(PoisonError::into_inner).items;
        let largest = (0..items.len()).max_by_key(|at| items[*at].size)?;
        Some(items.swap_remove(largest))
    }
}

/// Closes a queue when it goes.
struct Close<'q, T>(&'q Queue<T>);

impl<T> Drop for Close<'_, T> {
    fn drop(&mut self) {
        lock(&self.0.0).closed = true;
        self.0.1.notify_all();
    }
}

/// What a panic elsewhere has left is whole: nothing but lists is kept here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_met_once_and_results_keep_their_order() {
        for operations in [0, 100_000] {
            let all = |emit: &mut dyn FnMut(usize)| (0..1000).for_each(emit);
            let ((), squares) = pipeline(operations, all, |_| operations, |n| n * n);
            assert!(squares.into_iter().eq((0..1000).map(|n| n * n)));
        }
    }

    #[test]
    fn a_panic_of_the_producer_ends_the_workers() {
        let fails = |emit: &mut dyn FnMut(usize)| {
            (0..10).for_each(emit);
            panic!("on purpose")
        };
        let run = || pipeline::<_, _, ()>(0, fails, |_| WORTH, |n| n);
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
