//! Times in which no kernel ran on a device, and their probable causes.
//!
//! Records are taken in the order of their begin: of one that comes late, the time before may be taken for idle.

use crate::record::{Kind, Record};

/// Devices, by ordinal.
const DEVICES: usize = 32;
/// Waits of the host that are remembered.
const WAITS: usize = 64;
/// Nanoseconds between the end of work and the return of the call that waits for it.
const RETURN: u64 = 20_000;
/// A host that launches later than this many nanoseconds after the end of the work before did something else.
const LATE: u64 = 1_000_000;
/// A kernel that comes so many nanoseconds after one that began later has been taken for idle time.
const MISSED: u64 = 100_000_000;

/// The cause of an idle time, by the numbers of `args.cause`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cause {
    /// The time of the launch is not known.
    Unknown,
    /// The work was launched soon after the idle time had begun.
    HostLate,
    /// The host waited for the work before.
    HostWaited,
    /// Copies ran most of the time.
    Copy,
    /// The work was launched long after the idle time had begun.
    NothingAsked,
    /// The work was launched before: it waited for the device, as each kernel in a queue does for some microseconds, or for another stream.
    Queued,
}

/// The idle times of all devices.
pub(crate) struct Idle {
    devices: [Device; DEVICES],
    /// Begin and end of the waits of the host that ended last: a long one is remembered beside many short ones.
    waits: [(u64, u64); WAITS],
    /// Kernels that came too late, so that idle times were found where they ran.
    pub missed: u64,
}

/// State of a device.
#[derive(Copy, Clone, Default)]
struct Device {
    /// Begin of the last kernel.
    start: u64,
    /// End of the last kernel; 0: none yet.
    end: u64,
    /// Nanoseconds of copies since then.
    copied: u64,
}

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle { devices: [Device::default(); DEVICES], waits: [(0, 0); WAITS], missed: 0 }
    }

    /// Takes the next record. `found` gets the idle time that has ended.
    pub(crate) fn take(&mut self, kind: Kind, record: &Record, found: &mut impl FnMut(Record)) {
        match kind {
            Kind::Sync => {
                let first_ended = self.waits.iter_mut().min_by_key(|(_, end)| *end);
                first_ended.into_iter().for_each(|wait| *wait = (record.start, record.end));
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
                self.missed += u64::from(record.start + MISSED < device.start);
                let device = &mut self.devices[record.device as usize];
                device.start = device.start.max(record.start);
                if record.end > device.end {
                    (device.end, device.copied) = (record.end, 0);
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
        } else if next.launch == 0 {
            Cause::Unknown
        } else if next.launch < start {
            Cause::Queued
        } else if self.waits.iter().any(waited) {
            Cause::HostWaited
        } else if next.launch - start < LATE {
            Cause::HostLate
        } else {
            Cause::NothingAsked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The idle times of these records: start, end, cause.
    fn idle(records: &[(Kind, u64, u64, u64)]) -> Vec<(u64, u64, u8)> {
        let mut records = records.to_vec();
        records.sort_by_key(|(_, start, ..)| *start);
        let (mut idle, mut found) = (Idle::new(), Vec::new());
        for (kind, start, end, launch) in records {
            let record = Record { start, end, launch, ..Record::default() };
            idle.take(kind, &record, &mut |idle| found.push((idle.start, idle.end, idle.what)));
        }
        found
    }

    const K: Kind = Kind::Kernel;
    const MS: u64 = 1_000_000;

    #[test]
    fn kernels_that_come_too_late_are_counted() {
        let mut idle = Idle::new();
        for (start, end) in [(10, 20), (500, 510), (30, 480), (900, 910), (890, 895)] {
            let record = Record { start: start * MS, end: end * MS, ..Record::default() };
            idle.take(K, &record, &mut |_| ());
        }
        assert_eq!(idle.missed, 1);
    }

    #[test]
    fn gaps_have_causes() {
        // Kernels that overlap leave no gap.
        assert_eq!(idle(&[(K, 10, 40, 5), (K, 20, 30, 5), (K, 30, 50, 5), (K, 50, 60, 5)]), []);
        assert_eq!(idle(&[(K, 10, 20, 5), (K, 40, 50, 0)]), [(20, 40, Cause::Unknown as u8)]);
        assert_eq!(idle(&[(K, 10, 20, 5), (K, 40, 50, 15)]), [(20, 40, Cause::Queued as u8)]);
        // However long the host waits for it.
        let waits = [(Kind::Sync, 8, 60, 0), (K, 10, 20, 5), (K, 40, 50, 15)];
        assert_eq!(idle(&waits), [(20, 40, Cause::Queued as u8)]);
        assert_eq!(idle(&[(K, 10, 20, 5), (K, 40, 50, 35)]), [(20, 40, Cause::HostLate as u8)]);
        let late = [(K, 10, 20, 5), (K, 5 * MS, 6 * MS, 4 * MS)];
        assert_eq!(idle(&late), [(20, 5 * MS, Cause::NothingAsked as u8)]);
        let waited = [(K, MS, 2 * MS, 5), (Kind::Sync, 1, 2 * MS, 0), (K, 3 * MS, 4 * MS, 5 * MS / 2)];
        assert_eq!(idle(&waited), [(2 * MS, 3 * MS, Cause::HostWaited as u8)]);
        // Other threads wait often meanwhile.
        let others = (0..200).map(|at| (Kind::Sync, 10 + at, 11 + at, 0));
        let all: Vec<_> = waited.into_iter().chain(others).collect();
        assert_eq!(idle(&all), [(2 * MS, 3 * MS, Cause::HostWaited as u8)]);
        // The host waited, and then did something else.
        let slept = [(K, MS, 2 * MS, 5), (Kind::Sync, 1, 2 * MS, 0), (K, 30 * MS, 31 * MS, 29 * MS)];
        assert_eq!(idle(&slept), [(2 * MS, 30 * MS, Cause::NothingAsked as u8)]);
        let copied = [(K, 10, 20, 5), (K, 100, 110, 90), (Kind::Memcpy, 25, 80, 6)];
        assert_eq!(idle(&copied), [(20, 100, Cause::Copy as u8)]);
    }
}
