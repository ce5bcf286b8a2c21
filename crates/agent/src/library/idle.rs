//! Times in which no kernel ran on a device, and their probable causes.
//!
//! Records come in no order, and that of a kernel comes after its end. So records wait for [`HOLD`] and are then taken in the order of their
//! begin: a kernel that takes longer, beside others, may seem to be idle time.

use crate::record::{Kind, Record};
use crate::sys::Reserved;

/// Nanoseconds for which records wait.
pub const HOLD: u64 = 500_000_000;
/// Records that may wait; of more the oldest do not wait as long.
const MOST: usize = 1 << 17;
/// Devices, by ordinal.
const DEVICES: usize = 32;
/// Waits of the host that are remembered.
const WAITS: usize = 64;
/// Nanoseconds between the end of work and the return of the call that waits for it.
const RETURN: u64 = 20_000;
/// A host that launches later than this many nanoseconds after the end of the work before did something else.
const LATE: u64 = 1_000_000;

/// The cause of an idle time, by the numbers of `args.cause`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The work was launched before, but did not start: it waited for another stream, or for the device.
    Unknown,
    /// It was launched soon after the idle time had begun.
    HostLate,
    /// The host waited for the work before.
    HostWaited,
    /// Copies ran most of the time.
    Copy,
    /// It was launched long after.
    NothingAsked,
}

/// A record that waits.
type Waiting = (Kind, Record);

/// Memory for those.
static MEMORY: Reserved<Waiting> = Reserved::of(MOST);

/// The idle times of all devices.
pub struct Idle {
    waiting: &'static mut [Waiting],
    count: usize,
    devices: [Device; DEVICES],
    /// Begin and end of the last waits of the host.
    waits: [(u64, u64); WAITS],
    next_wait: usize,
}

/// What is known of a device.
#[derive(Copy, Clone, Default)]
struct Device {
    /// End of the last kernel; 0: none yet.
    end: u64,
    /// Nanoseconds of copies since then.
    copied: u64,
}

impl Idle {
    /// `None` if there is no memory.
    ///
    /// # Safety
    /// There is one of these values at a time.
    pub unsafe fn new() -> Option<Idle> {
        if !MEMORY.reserve() {
            return None;
        }
        // SAFETY: no other value has it, as the caller promises; zeros are a valid kind and record.
        let waiting = unsafe { core::slice::from_raw_parts_mut(MEMORY.first(), MOST) };
        let (devices, waits) = ([Device::default(); DEVICES], [(0, 0); WAITS]);
        Some(Idle { waiting, count: 0, devices, waits, next_wait: 0 })
    }

    /// Adds a record. `found` gets idle times if there is no room.
    pub fn add(&mut self, kind: Kind, record: Record, found: &mut impl FnMut(Record)) {
        if self.count == MOST {
            self.waiting.sort_unstable_by_key(|(_, record)| record.start);
            let median = self.waiting[MOST / 2].1.start;
            self.take_before(median, found);
        }
        self.waiting[self.count] = (kind, record);
        self.count += 1;
    }

    /// Takes the records that began before a time.
    pub fn take_before(&mut self, time: u64, found: &mut impl FnMut(Record)) {
        self.waiting[..self.count].sort_unstable_by_key(|(_, record)| record.start);
        let taken = self.waiting[..self.count].partition_point(|(_, record)| record.start < time);
        for at in 0..taken {
            let (kind, record) = self.waiting[at];
            self.take(kind, &record, found);
        }
        self.waiting.copy_within(taken..self.count, 0);
        self.count -= taken;
    }

    fn take(&mut self, kind: Kind, record: &Record, found: &mut impl FnMut(Record)) {
        match kind {
            Kind::Sync => {
                self.waits[self.next_wait % WAITS] = (record.start, record.end);
                self.next_wait += 1;
            }
            Kind::Memcpy => {
                if let Some(device) = self.devices.get_mut(record.device as usize) {
                    device.copied += record.end.saturating_sub(record.start.max(device.end));
                }
            }
            Kind::Kernel | Kind::Graph => {
                let Some(device) = self.devices.get(record.device as usize).copied() else { return };
                if device.end != 0 && record.start > device.end {
                    let what = self.cause(device, record) as u8;
                    let (start, end) = (device.end, record.start);
                    found(Record { start, end, what, kernel: record.kernel, ..*record });
                }
                let device = &mut self.devices[record.device as usize];
                if record.end > device.end {
                    *device = Device { end: record.end, copied: 0 };
                }
            }
            _ => {}
        }
    }

    /// Why nothing ran from the end of the last kernel to the start of this one.
    fn cause(&self, device: Device, next: &Record) -> Cause {
        let start = device.end;
        // And launched soon afterwards.
        let waited = |(begin, end): &(u64, u64)| {
            *begin <= start && start <= *end + RETURN && *end != 0 && next.launch < *end + LATE
        };
        if device.copied > (next.start - start) / 2 {
            Cause::Copy
        } else if self.waits.iter().any(waited) {
            Cause::HostWaited
        } else if next.launch < start {
            Cause::Unknown
        } else if next.launch - start < LATE {
            Cause::HostLate
        } else {
            Cause::NothingAsked
        }
    }
}

/// The memory takes no room afterwards.
impl Drop for Idle {
    fn drop(&mut self) {
        MEMORY.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// There is one `Idle` at a time.
    static ONE: Mutex<()> = Mutex::new(());

    /// The idle times of these records, given in this order: start, end, cause.
    fn idle(records: &[(Kind, u64, u64, u64)]) -> Vec<(u64, u64, u8)> {
        let _one = ONE.lock().unwrap();
        // SAFETY: see `ONE`.
        let mut idle = unsafe { Idle::new() }.expect("memory");
        let mut found = Vec::new();
        let mut see = |record: Record| found.push((record.start, record.end, record.what));
        for (kind, start, end, launch) in records {
            idle.add(
                *kind,
                Record { start: *start, end: *end, launch: *launch, ..Record::default() },
                &mut see,
            );
        }
        idle.take_before(u64::MAX, &mut see);
        found
    }

    const K: Kind = Kind::Kernel;
    const MS: u64 = 1_000_000;

    #[test]
    fn gaps_have_causes() {
        // In any order of records, kernels that overlap leave no gap.
        assert_eq!(idle(&[(K, 30, 50, 5), (K, 10, 40, 5), (K, 50, 60, 5)]), []);
        assert_eq!(idle(&[(K, 10, 20, 5), (K, 40, 50, 15)]), [(20, 40, Cause::Unknown as u8)]);
        assert_eq!(idle(&[(K, 10, 20, 5), (K, 40, 50, 35)]), [(20, 40, Cause::HostLate as u8)]);
        let late = [(K, 10, 20, 5), (K, 5 * MS, 6 * MS, 4 * MS)];
        assert_eq!(idle(&late), [(20, 5 * MS, Cause::NothingAsked as u8)]);
        let waited = [(K, MS, 2 * MS, 5), (Kind::Sync, 1, 2 * MS, 0), (K, 3 * MS, 4 * MS, 5 * MS / 2)];
        assert_eq!(idle(&waited), [(2 * MS, 3 * MS, Cause::HostWaited as u8)]);
        // The host waited, and then did something else.
        let slept = [(K, MS, 2 * MS, 5), (Kind::Sync, 1, 2 * MS, 0), (K, 30 * MS, 31 * MS, 29 * MS)];
        assert_eq!(idle(&slept), [(2 * MS, 30 * MS, Cause::NothingAsked as u8)]);
        let copied = [(K, 10, 20, 5), (K, 100, 110, 90), (Kind::Memcpy, 25, 80, 6)];
        assert_eq!(idle(&copied), [(20, 100, Cause::Copy as u8)]);
    }

    #[test]
    fn more_records_than_there_is_room_for_are_taken_earlier() {
        let many: Vec<_> = (0..MOST as u64 * 2).map(|at| (K, at * 10, at * 10 + 9, at * 10)).collect();
        let found = idle(&many);
        assert_eq!(found.len() as u64, MOST as u64 * 2 - 1);
        assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}
