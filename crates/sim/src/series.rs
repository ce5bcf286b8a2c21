//! Cells of a `tseries` in the layout of `wire::map`: adding a sample, and reading the intervals of several CPUs. An interpreter is
//! never interrupted, so that no interval is ever claimed by another CPU.

use std::collections::BTreeMap;
use wire::map::{Agg, Keeps, SERIES_WORDS};

/// Adds a sample to the current interval, whose words may still belong to an earlier one.
pub(crate) fn add(agg: &Agg, words: &mut [u64], sample: i64, now_ns: u64) {
    let Agg::TSeries { interval, count, keeps, signed } = *agg else { panic!("{agg:?} is no series") };
    let number = now_ns / interval;
    let at = (number % u64::from(count)) as usize * SERIES_WORDS as usize;
    let one = &mut words[at..at + SERIES_WORDS as usize];
    if one[0] != number + 1 {
        one.copy_from_slice(&[number + 1, 0, 0, 0]);
    }
    let first = one[1] == 0;
    one[2] = match keeps {
        Keeps::Last => sample as u64,
        Keeps::Sum | Keeps::Avg => one[2].wrapping_add(sample as u64),
        Keeps::Min | Keeps::Max if first => sample as u64,
        Keeps::Min | Keeps::Max => best(one[2], sample as u64, keeps, signed),
    };
    one[1] += 1;
    one[3] = now_ns;
}

fn best(a: u64, b: u64, keeps: Keeps, signed: bool) -> u64 {
    let rank = |bits: u64| if signed { i128::from(bits as i64) } else { i128::from(bits) };
    let (less, more) = if rank(a) < rank(b) { (a, b) } else { (b, a) };
    if keeps == Keeps::Min { less } else { more }
}

/// The last intervals that have a sample: number and value. `cells` has one cell per CPU.
pub(crate) fn shown(agg: &Agg, cells: &[Vec<u64>]) -> Vec<(u64, i64)> {
    let Agg::TSeries { count, keeps, signed, .. } = *agg else { panic!("{agg:?} is no series") };
    let mut intervals: BTreeMap<u64, Vec<&[u64]>> = BTreeMap::new();
    for one in cells.iter().flat_map(|cell| cell.chunks(SERIES_WORDS as usize)).filter(|one| one[0] != 0) {
        intervals.entry(one[0] - 1).or_default().push(&one[1..]);
    }
    let last = intervals.keys().next_back().copied().unwrap_or(0);
    let recent = intervals.into_iter().filter(|(number, _)| number + u64::from(count) > last);
    recent.map(|(number, parts)| (number, value(&parts, keeps, signed))).collect()
}

/// Value of an interval, from its samples, value and time on each CPU.
fn value(parts: &[&[u64]], keeps: Keeps, signed: bool) -> i64 {
    let sum = |at: usize| parts.iter().fold(0u64, |sum, part| sum.wrapping_add(part[at]));
    let latest = || parts.iter().max_by_key(|part| part[2]).map_or(0, |part| part[1]);
    (match keeps {
        Keeps::Last => latest(),
        Keeps::Sum => sum(1),
        Keeps::Avg if signed => (sum(1) as i64).wrapping_div(sum(0) as i64) as u64,
        Keeps::Avg => sum(1) / sum(0),
        Keeps::Min | Keeps::Max => {
            let values = parts.iter().map(|part| part[1]);
            values.reduce(|a, b| best(a, b, keeps, signed)).unwrap_or(0)
        }
    }) as i64
}
