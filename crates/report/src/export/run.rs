//! The run that records belong to: its clocks, its machine, and the ids of its calls.

use std::collections::BTreeMap;

/// Description of the run that records belong to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Random id.
    pub id: u128,
    /// Wall-clock time of the boot in ns since 1970. It converts the records' times to wall-clock times, and is
    /// constant for the run, so that a step of the wall clock does not reorder records.
    pub boot_at_wall_ns: i128,
    /// Boot clock minus monotonic clock, ns: the time spent suspended.
    pub suspended_ns: u64,
    /// Boot-clock ns of the start of the run.
    pub start_ns: u64,
    /// `cudatrace 0.1.0`
    pub tool: String,
    /// Host name of the machine.
    pub host: String,
    /// Traced command; empty if none was started.
    pub command: Vec<String>,
    /// Name of the script.
    pub script: String,
    /// Rank of the traced process in a distributed job.
    pub rank: Option<u32>,
    /// The surroundings of the program, as names and values: driver, devices, commit of its folder.
    pub environment: BTreeMap<String, String>,
}

impl Run {
    /// Wall-clock time of a boot-clock time, in ns since 1970.
    pub fn wall_ns(&self, boot_ns: u64) -> i128 {
        self.boot_at_wall_ns + i128::from(boot_ns)
    }

    /// The id of the call that a thread began at a time of the monotonic clock. The start time of the enclosing
    /// call thus gives its id, so calls in progress need not be kept. The id is never 0.
    pub fn span_id(&self, pid: u32, tid: u32, start_ns: u64) -> u64 {
        mix(self.mixed_thread(pid, tid) ^ start_ns).max(1)
    }

    /// The inverse: when a thread began the call with an id. For ids of other calls it is any number.
    pub(crate) fn span_start(&self, pid: u32, tid: u32, id: u64) -> u64 {
        unmix(id) ^ self.mixed_thread(pid, tid)
    }

    fn mixed_thread(&self, pid: u32, tid: u32) -> u64 {
        let thread = u64::from(pid) << 32 | u64::from(tid);
        let seed = self.id as u64 ^ (self.id >> 64) as u64;
        mix(mix(seed) ^ thread)
    }
}

/// A bijection that spreads bits (the finaliser of splitmix64).
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The inverse of [`mix`]: its multipliers are odd, and have inverses modulo 2^64.
fn unmix(mut word: u64) -> u64 {
    word = unshift(word, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
    word = unshift(word, 27).wrapping_mul(0x96de_1b17_3f11_9089);
    unshift(word, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

/// The word of which `word ^ (word >> by)` is this.
fn unshift(mixed: u64, by: u32) -> u64 {
    mixed ^ (mixed >> by) ^ (mixed >> (2 * by)) ^ mixed.checked_shr(3 * by).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_the_start_of_its_call() {
        let run = Run { id: 0x1234_5678_9abc_def0_1122_3344_5566_7788, ..Run::default() };
        for start in (0..64).map(|bit| (1u64 << bit).wrapping_mul(3) + 7) {
            assert_eq!(run.span_start(5, 6, run.span_id(5, 6, start)), start);
        }
    }

    #[test]
    fn ids_differ_by_run_thread_and_start() {
        let run = Run { id: 7, ..Run::default() };
        let id = run.span_id(1, 2, 3);
        assert_eq!(id, run.span_id(1, 2, 3));
        let others = [
            run.span_id(1, 2, 4),
            run.span_id(1, 3, 3),
            run.span_id(2, 2, 3),
            Run { id: 8, ..Run::default() }.span_id(1, 2, 3),
        ];
        assert!(others.iter().all(|other| *other != id && *other != 0));
    }
}
