//! Launches of a process and their records, which its agent counts in memory of the tracer: it is there when the process has ended, in whatever way.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent::message::{COUNTERS, Counters};

use crate::kernel::sys;

/// Memory for the counters of one agent. The process can write anything into it, and nobody can change its size.
#[derive(Debug)]
pub(super) struct CounterMemory(OwnedFd);

/// Launches of a process. It can falsify them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Launches of kernels.
    pub kernels: u64,
    /// Launches of kernels without a record.
    pub kernels_without: u64,
    /// Launches of graphs.
    pub graphs: u64,
    /// Launches of graphs without a record.
    pub graphs_without: u64,
}

impl CounterMemory {
    /// # Errors
    /// The errors of [`sys::shared_memory`].
    pub(super) fn new() -> io::Result<CounterMemory> {
        sys::shared_memory(c"cudatrace-launches", COUNTERS as u64).map(CounterMemory)
    }

    /// The descriptor for the agent.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Counts so far; `None` if nothing was counted, since no kernels are traced.
    pub(super) fn read(&self) -> Option<LaunchCounts> {
        let mut bytes = [0; COUNTERS];
        let read = rustix::io::pread(&self.0, &mut bytes[..], 0);
        let word = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().expect("8 bytes");
            // Sums of all processes stay far below 2^64.
            u64::from_ne_bytes(bytes).min(super::checks::MOST)
        };
        if read != Ok(COUNTERS) || word(offset_of!(Counters, counts)) == 0 {
            return None;
        }
        let [kernels, recorded] =
            [offset_of!(Counters, kernels), offset_of!(Counters, kernels_recorded)].map(word);
        let [graphs, graphs_recorded] =
            [offset_of!(Counters, graphs), offset_of!(Counters, graphs_recorded)].map(word);
        // Launches that were forgotten had the records that came later.
        let unknown = word(offset_of!(Counters, unknown)).min(word(offset_of!(Counters, forgotten)));
        Some(LaunchCounts {
            kernels,
            kernels_without: kernels.saturating_sub(recorded).saturating_sub(unknown),
            graphs,
            graphs_without: graphs.saturating_sub(graphs_recorded),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(words: [u64; 7]) -> Option<LaunchCounts> {
        let memory = CounterMemory::new().expect("memory");
        let bytes = words.map(u64::to_ne_bytes).concat();
        rustix::io::pwrite(memory.as_fd(), &bytes, 0).expect("it can be written");
        memory.read()
    }

    #[test]
    fn launches_without_a_record_are_those_of_which_none_has_come() {
        assert_eq!(counted([0, 5, 0, 0, 0, 0, 0]), None, "nothing is counted");
        let all = LaunchCounts { kernels: 9, kernels_without: 0, graphs: 2, graphs_without: 1 };
        assert_eq!(counted([1, 9, 9, 2, 1, 0, 0]), Some(all));
        assert_eq!(counted([1, 9, 6, 2, 1, 3, 5]), Some(all), "three were forgotten");
        let some = LaunchCounts { kernels_without: 2, ..all };
        assert_eq!(counted([1, 9, 6, 2, 1, 3, 1]), Some(some), "one of these has come");
    }

    #[test]
    fn a_process_that_writes_anything_is_read() {
        let most = super::super::checks::MOST;
        let any = counted([u64::MAX; 7]);
        assert_eq!(any, Some(LaunchCounts { kernels: most, graphs: most, ..LaunchCounts::default() }));
    }
}
