//! How much kernels used a device, of all processes together: each process calls its devices 0, 1, …, so devices are told apart by their UUID.

use std::collections::BTreeMap;

/// Times in which kernels ran that are kept apart: kernels of several processes come in no common order. Of more the first half is summed up.
const PARTS: usize = 1 << 16;

/// Use of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// CUDA's number of the device in the first process that used it.
    pub ordinal: u32,
    /// Start of the first kernel, and end of the last one, boot-clock ns.
    pub window: (u64, u64),
    /// Nanoseconds in which kernels ran, as far as they are summed up.
    summed_ns: u64,
    /// End of what is summed up, and number of times that it consists of.
    summed_until: u64,
    summed_parts: u64,
    /// Later times in which at least one kernel ran: their ends by their starts.
    parts: BTreeMap<u64, u64>,
}

impl GpuUse {
    /// No kernel yet.
    pub fn of(ordinal: u32) -> GpuUse {
        GpuUse { ordinal, ..GpuUse::default() }
    }

    /// Adds a kernel.
    pub fn add(&mut self, start: u64, end: u64) {
        let (first, last) = if self.window == (0, 0) { (start, end) } else { self.window };
        self.window = (first.min(start), last.max(end));
        self.add_part(start.max(self.summed_until), end);
    }

    /// Joins a time with those that it touches.
    fn add_part(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&other_start, &other_end)) = self.parts.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.parts.remove(&other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        self.parts.insert(start, end);
        if self.parts.len() > PARTS {
            for _ in 0..PARTS / 2 {
                let Some((start, end)) = self.parts.pop_first() else { break };
                self.summed_ns = self.summed_ns.saturating_add(end - start);
                self.summed_until = end;
                self.summed_parts += 1;
            }
        }
    }

    /// Time in the window in which at least one kernel ran, in ns.
    pub fn busy_ns(&self) -> u64 {
        let apart = self.parts.iter().fold(0, |sum: u64, (start, end)| sum.saturating_add(end - start));
        self.summed_ns.saturating_add(apart)
    }

    /// Time in the window in which no kernel ran, in ns.
    pub fn idle_ns(&self) -> u64 {
        (self.window.1 - self.window.0).saturating_sub(self.busy_ns())
    }

    /// Number of times between kernels in which none ran. Where sums begin a time may be counted as two.
    pub fn gaps(&self) -> u64 {
        (self.summed_parts + self.parts.len() as u64).saturating_sub(1)
    }

    /// Share of the window in which kernels ran, in percent.
    pub fn percent(&self) -> u64 {
        let run = (self.window.1 - self.window.0).max(1);
        let percent = (u128::from(self.busy_ns()) * 100 + u128::from(run) / 2) / u128::from(run);
        // Parts lie within the window and do not overlap.
        percent as u64
    }
}

/// Names of devices: their numbers, unless two have the same.
pub fn names(gpus: &BTreeMap<u64, GpuUse>) -> Vec<String> {
    let is_alone = |ordinal: u32| gpus.values().filter(|gpu| gpu.ordinal == ordinal).count() == 1;
    let name = |(number, gpu): (&u64, &GpuUse)| match is_alone(gpu.ordinal) {
        true => format!("GPU {}", gpu.ordinal),
        false => format!("GPU {} ({number:012x})", gpu.ordinal),
    };
    gpus.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_several_processes_are_joined_in_any_order() {
        // Two processes, each of which has the device for a half of the time; the second one's kernels come later.
        let mut gpu = GpuUse::of(0);
        for offset in [0, 5] {
            (0..1000).for_each(|at| gpu.add(10 * at + offset, 10 * at + offset + 5));
        }
        assert_eq!((gpu.busy_ns(), gpu.percent()), (10_000, 100));
        let mut gpu = GpuUse::of(0);
        for (start, end) in [(100, 200), (150, 160), (400, 500), (190, 410), (0, 10)] {
            gpu.add(start, end);
        }
        assert_eq!((gpu.busy_ns(), gpu.window), (410, (0, 500)));
        assert_eq!((gpu.idle_ns(), gpu.gaps()), (90, 1));
        assert_eq!(gpu.parts.len(), 2);
    }

    #[test]
    fn any_number_of_kernels_takes_bounded_memory() {
        let mut gpu = GpuUse::of(0);
        let count = 4 * PARTS as u64;
        (0..count).for_each(|at| gpu.add(10 * at, 10 * at + 4));
        assert_eq!((gpu.busy_ns(), gpu.percent(), gpu.gaps()), (4 * count, 40, count - 1));
        assert!(gpu.parts.len() <= PARTS);
    }

    #[test]
    fn devices_with_one_number_are_told_apart() {
        let gpus = BTreeMap::from([(7, GpuUse::of(0)), (9, GpuUse::of(0)), (11, GpuUse::of(1))]);
        assert_eq!(names(&gpus), ["GPU 0 (000000000007)", "GPU 0 (000000000009)", "GPU 1"]);
    }
}
