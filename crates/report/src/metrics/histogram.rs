//! Bucket bounds of exported histograms. They depend on the map and its unit, never on the samples: they are equal in two tracers
//! and constant in one, so that buckets can be added and subtracted.
//!
//! ```text
//! hist(bytes)                       0, 1, 3, 7 ... 2^40 - 1
//! hist(duration), seconds of ns     1023, 2047 ... 2^37 - 1 ns: from a microsecond to two minutes
//! lhist(n, 100, 200, 10)            99, 109 ... 199
//! ```
//!
//! A bound is the largest integer of its bucket, therefore exact.

use std::ops::RangeInclusive;

use wire::map::{Agg, MapValue, hist_range};

/// A power of two has at most 2 to this number of bounds; buckets of finer histograms are merged, which is exact.
const FINEST_BITS: u8 = 2;
/// Largest number of bounds of an `lhist`; of more steps, neighbours are merged.
const STEPS: usize = 128;

/// The buckets that have an upper bound, and the largest sample in each; empty for other aggregations.
pub(super) fn bounds(value: &MapValue, unit: &str, divisor: u64) -> Vec<(usize, i128)> {
    match *value {
        MapValue::Agg(Agg::Hist { bits, .. }) => powers(bits, exponents(unit, divisor)),
        MapValue::Agg(ref agg @ Agg::LHist { min, max, step, .. }) => {
            // The first bucket contains samples below `min`, the last samples from `max` on.
            let steps = agg.buckets() as usize - 2;
            let joined = steps.div_ceil(STEPS);
            let end = |at: usize| (i128::from(min) + i128::from(step) * at as i128).min(max.into());
            let ends = (1..=steps).filter(|at| at % joined == 0 || *at == steps);
            // A bound below 0 would only count negative samples, which are meaningless here.
            let below = (min > 0).then_some(0);
            below.into_iter().chain(ends).map(|at| (at, end(at) - 1)).collect()
        }
        _ => Vec::new(),
    }
}

/// Range of the powers of two that are bounds. For seconds it is about a microsecond to some minutes, in any
/// counting unit.
fn exponents(unit: &str, divisor: u64) -> RangeInclusive<u32> {
    match (unit, divisor.ilog2()) {
        ("s", parts @ 1..) => parts.saturating_sub(19)..=parts + 8,
        _ => 0..=40,
    }
}

fn powers(bits: u8, exponents: RangeInclusive<u32>) -> Vec<(usize, i128)> {
    let (lowest, highest) = (1i128 << exponents.start(), 1i128 << exponents.end());
    let buckets =
        (0u32..).map_while(|bucket| Some((bucket as usize, i128::from(hist_range(bucket, bits).1?))));
    let is_bound = |&(_, high): &(usize, i128)| high >= lowest && is_coarse(high, bits);
    let to_the_end = buckets.take_while(|&(_, high)| high <= highest);
    to_the_end.filter(is_bound).map(|(bucket, high)| (bucket, high - 1)).collect()
}

/// Whether a histogram with [`FINEST_BITS`] also has this bound.
fn is_coarse(high: i128, bits: u8) -> bool {
    if bits <= FINEST_BITS || high < 1 << (FINEST_BITS + 1) {
        return true;
    }
    let shift = 127 - high.leading_zeros() - u32::from(FINEST_BITS);
    high.trailing_zeros() >= shift
}
