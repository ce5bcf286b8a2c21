//! CUPTI's clock, CLOCK_REALTIME, in that of probes, CLOCK_MONOTONIC.

use crate::sys::{CLOCK_MONOTONIC, CLOCK_REALTIME, now};

/// Pairs of readings, the closest of which counts.
const READINGS: usize = 8;
/// A larger change between two flushes is a step of the clock, not its adjustment.
const STEP: i64 = 1_000_000;

/// The difference between both clocks.
pub(crate) struct Clock {
    /// CLOCK_MONOTONIC minus CLOCK_REALTIME in nanoseconds, which wraps.
    offset: u64,
    /// How often the wall clock was set.
    pub steps: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { offset: offset(), steps: 0 }
    }

    /// Follows adjustments of the wall clock.
    pub(crate) fn update(&mut self) {
        let offset = offset();
        self.steps += u64::from((offset.wrapping_sub(self.offset) as i64).abs() > STEP);
        self.offset = offset;
    }

    /// A time of CUPTI; 0 stays 0, which stands for an unknown time.
    pub(crate) fn monotonic(&self, time: u64) -> u64 {
        if time == 0 { 0 } else { time.wrapping_add(self.offset) }
    }
}

fn offset() -> u64 {
    let mut best = (u64::MAX, 0);
    for _ in 0..READINGS {
        let before = now(CLOCK_MONOTONIC);
        let real = now(CLOCK_REALTIME);
        let after = now(CLOCK_MONOTONIC);
        let middle = before + (after - before) / 2;
        if after - before < best.0 {
            best = (after - before, middle.wrapping_sub(real));
        }
    }
    best.1
}
