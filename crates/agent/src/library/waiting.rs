//! Records that wait until none that began before can come: probes see them in the order of their begin.
//!
//! CUPTI returns a buffer when the work of all its records is done, and each thread that launches fills a buffer of its own: records of several
//! threads come in no order. But no buffer has work that began before CUPTI asked for the buffer. So a record waits for the buffers that CUPTI
//! asked for before it began, for at most [`HOLD`].

use crate::record::{Kind, Record};
use crate::sys::ReservedMemory;

/// Nanoseconds for which records wait for others.
pub(crate) const HOLD: u64 = 1_000_000_000;
/// Records that may wait; of more the oldest do not wait as long.
const MOST: usize = 1 << 18;

type WaitingRecord = (Kind, Record);

/// Memory for those.
static MEMORY: ReservedMemory<WaitingRecord> = ReservedMemory::of(MOST);

/// The records that wait, in no order.
pub(crate) struct ReorderBuffer {
    records: &'static mut [WaitingRecord],
    count: usize,
}

/// Reserves the memory. False if there is none.
pub(crate) fn create() -> bool {
    MEMORY.reserve()
}

impl ReorderBuffer {
    /// # Safety
    /// [`create`] was successful, and there is one of these values at a time.
    pub(crate) unsafe fn new() -> ReorderBuffer {
        // SAFETY: no other value has it, as the caller promises; zeros are a valid kind and record.
        ReorderBuffer { records: unsafe { core::slice::from_raw_parts_mut(MEMORY.first(), MOST) }, count: 0 }
    }

    /// Adds a record. `pass_on` gets some if there is no room.
    pub(crate) fn add(&mut self, kind: Kind, record: Record, pass_on: &mut impl FnMut(Kind, Record)) {
        if self.count == MOST {
            let (_, median, _) =
                self.records.select_nth_unstable_by_key(MOST / 2, |(_, record)| record.start);
            let until = median.1.start;
            self.take(|start| start <= until, pass_on);
        }
        self.records[self.count] = (kind, record);
        self.count += 1;
    }

    /// Takes the records whose begin is due, the first one first.
    pub(crate) fn take(&mut self, is_due: impl Fn(u64) -> bool, pass_on: &mut impl FnMut(Kind, Record)) {
        let mut taken = 0;
        for at in 0..self.count {
            if is_due(self.records[at].1.start) {
                self.records.swap(at, taken);
                taken += 1;
            }
        }
        self.records[..taken].sort_unstable_by_key(|(_, record)| record.start);
        self.records[..taken].iter().for_each(|(kind, record)| pass_on(*kind, *record));
        self.records.copy_within(taken..self.count, 0);
        self.count -= taken;
    }
}

/// The memory takes no room afterwards.
impl Drop for ReorderBuffer {
    fn drop(&mut self) {
        MEMORY.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// There is one `ReorderBuffer` at a time.
    static ONE: Mutex<()> = Mutex::new(());

    fn one() -> ReorderBuffer {
        assert!(create());
        // SAFETY: see `ONE`.
        unsafe { ReorderBuffer::new() }
    }

    fn at(start: u64) -> Record {
        Record { start, ..Record::default() }
    }

    #[test]
    fn records_that_are_due_are_taken_in_order() {
        let _one = ONE.lock().unwrap();
        let mut waiting = one();
        let mut seen = Vec::new();
        let mut see = |kind, record: Record| seen.push((kind, record.start));
        for (kind, start) in [(Kind::Kernel, 30), (Kind::Sync, 5), (Kind::Kernel, 20), (Kind::Memcpy, 10)] {
            waiting.add(kind, at(start), &mut see);
        }
        waiting.take(|start| start < 20, &mut see);
        waiting.add(Kind::Kernel, at(25), &mut see);
        waiting.take(|_| true, &mut see);
        let (k, m, s) = (Kind::Kernel, Kind::Memcpy, Kind::Sync);
        assert_eq!(seen, [(s, 5), (m, 10), (k, 20), (k, 25), (k, 30)]);
    }

    #[test]
    fn the_oldest_records_do_not_wait_when_the_room_is_full() {
        let _one = ONE.lock().unwrap();
        let mut waiting = one();
        let mut seen = Vec::new();
        let count = MOST as u64 * 2;
        for start in 0..count {
            waiting.add(Kind::Kernel, at(start), &mut |_, record| seen.push(record.start));
        }
        waiting.take(|_| true, &mut |_, record| seen.push(record.start));
        assert!(seen.into_iter().eq(0..count));
        // All of one time.
        let mut passed = 0;
        for _ in 0..count {
            waiting.add(Kind::Kernel, at(7), &mut |_, _| passed += 1);
        }
        waiting.take(|_| true, &mut |_, _| passed += 1);
        assert_eq!(passed, count);
    }
}
