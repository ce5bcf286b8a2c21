//! Busy time of spans that are too many for the page: by row and bin of time.
//!
//! All rows have bins of one width, a power of two in ns. The width doubles when a row would have too many.

use super::columns;
use crate::export::Record;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Largest number of bins between the first and the last time.
const BINS: u64 = 4096;
/// Exponent of the first width: a microsecond.
const FIRST_POWER: u32 = 10;

/// Content of a bin.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Bin {
    /// Duration of the spans in it, in ns. Calls within calls are left out.
    busy_ns: u64,
    /// Number of the spans that begin in it.
    spans: u64,
}

/// Bins of rows; see the module documentation.
#[derive(Debug)]
pub(super) struct Density {
    /// Bins by row and number; bin 0 begins at time 0.
    bins: BTreeMap<(u32, u64), Bin>,
    power: u32,
    window: Option<(u64, u64)>,
    spans: u64,
}

impl Default for Density {
    fn default() -> Density {
        Density { bins: BTreeMap::new(), power: FIRST_POWER, window: None, spans: 0 }
    }
}

impl Density {
    /// Adds a span.
    pub(super) fn add(&mut self, record: &Record, row: u32) {
        let Some(span) = record.span() else { return };
        let (start, end) = (record.time_ns, record.time_ns + span.duration_ns);
        let (first, last) = self.window.unwrap_or((u64::MAX, 0));
        self.window = Some((first.min(start), last.max(end)));
        self.widen();
        self.spans += 1;
        self.bins.entry((row, start >> self.power)).or_default().spans += 1;
        if span.parent_id != 0 {
            return;
        }
        for number in start >> self.power..=end >> self.power {
            let (from, to) = (number << self.power, (number + 1) << self.power);
            let busy = end.min(to) - start.max(from);
            let bin = self.bins.entry((row, number)).or_default();
            bin.busy_ns = bin.busy_ns.saturating_add(busy);
        }
    }

    fn widen(&mut self) {
        let Some((first, last)) = self.window else { return };
        let before = self.power;
        while (last >> self.power) - (first >> self.power) >= BINS {
            self.power += 1;
        }
        let shift = self.power - before;
        if shift == 0 {
            return;
        }
        let mut bins: BTreeMap<(u32, u64), Bin> = BTreeMap::new();
        for ((row, number), bin) in &self.bins {
            let sum = bins.entry((*row, number >> shift)).or_default();
            sum.busy_ns = sum.busy_ns.saturating_add(bin.busy_ns);
            sum.spans += bin.spans;
        }
        self.bins = bins;
    }

    /// A member of the page's data: number of the spans and of the bins, width of a bin, and the start of bin 0.
    pub(super) fn header(&self, out: &mut String, first: u64) {
        let (spans, bins, width, start) =
            (self.spans, self.bins.len(), 1u64 << self.power, self.start(first));
        let start = start as i64 - first as i64;
        let _ = write!(
            out,
            ",\"density\":{{\"spans\":{spans},\"bins\":{bins},\"width\":{width},\"start\":{start}}}"
        );
    }

    /// Start of the bin in which a time is.
    fn start(&self, time: u64) -> u64 {
        let first = self.window.map_or(time, |(first, _)| first.min(time));
        first >> self.power << self.power
    }

    /// Passes each column with its name to `each`.
    pub(super) fn columns(&self, first: u64, mut each: impl FnMut(&str, &[u8])) {
        let start = self.start(first) >> self.power;
        each("density-row", &columns::bytes(self.bins.keys().map(|(row, _)| u64::from(*row))));
        each("density-bin", &columns::bytes(self.bins.keys().map(|(_, number)| number - start)));
        each("density-busy", &columns::bytes(self.bins.values().map(|bin| bin.busy_ns)));
        each("density-spans", &columns::bytes(self.bins.values().map(|bin| bin.spans)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::page::testing;

    #[test]
    fn bins_keep_the_time_and_the_number_of_spans_at_any_width() {
        let mut density = Density::default();
        for at in 0..100_000u64 {
            density.add(&testing::call("cuInit", 5_000_000 + at * 10_000, 4_000), (at % 3) as u32);
        }
        density.add(&testing::call("main", 5_000_000, 1_000_000_000), 3);
        let sum =
            |row: u32| density.bins.range((row, 0)..(row + 1, 0)).map(|(_, bin)| bin.busy_ns).sum::<u64>();
        assert_eq!((0..3).map(sum).sum::<u64>(), 400_000_000);
        assert_eq!(sum(3), 1_000_000_000);
        assert_eq!(density.bins.values().map(|bin| bin.spans).sum::<u64>(), 100_001);
        assert!(density.bins.len() as u64 <= 4 * BINS + 4);
    }
}
