//! Histograms: rows, labels and bars.
//!
//! ```text
//! [4, 8)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
//! [8, 16)                4 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
//! ```
//!
//! Rows range from the first to the last bucket that is not empty. Shape and labels are those of bpftrace.

use wire::map::{Agg, hist_range};

/// One bucket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Smallest sample in it; `None` if there is no lower bound.
    pub low: Option<i64>,
    /// Largest sample in it plus one; `None` if there is no upper bound.
    pub high: Option<i64>,
    /// Number of samples.
    pub count: u64,
}

/// Width of a label in columns.
const LABEL: usize = 16;
/// Width of a count in columns.
const COUNT: usize = 8;
/// Width of the largest bar in columns.
const BAR: u128 = 52;

/// The rows of a `hist` or `lhist` cell; empty if all buckets are empty, or for another aggregation.
pub fn rows(agg: &Agg, buckets: &[u64]) -> Vec<Row> {
    let filled = |&(_, &count): &(usize, &u64)| count > 0;
    let first = buckets.iter().enumerate().find(filled).map(|(at, _)| at);
    let last = buckets.iter().enumerate().rfind(filled).map(|(at, _)| at);
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let row = |at: usize| range(agg, at).map(|(low, high)| Row { low, high, count: buckets[at] });
    (first..=last).filter_map(row).collect()
}

/// Inclusive lower and exclusive upper bound of a bucket of a `hist` or `lhist`.
pub fn range(agg: &Agg, at: usize) -> Option<(Option<i64>, Option<i64>)> {
    match *agg {
        Agg::Hist { bits, .. } => Some(hist_range(at as u32, bits)),
        Agg::LHist { min, max, step, .. } => Some(lhist_range(at, agg.buckets() as usize, min, max, step)),
        _ => None,
    }
}

fn lhist_range(at: usize, buckets: usize, min: i64, max: i64, step: i64) -> (Option<i64>, Option<i64>) {
    if at == 0 {
        return (None, Some(min));
    }
    if at + 1 == buckets {
        return (Some(max), None);
    }
    let low = min.saturating_add(step.saturating_mul(at as i64 - 1));
    (Some(low), Some(low.saturating_add(step).min(max)))
}

/// The rows as text, one line each.
pub fn draw(agg: &Agg, rows: &[Row]) -> String {
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0).max(1);
    rows.iter().map(|row| line(&label(agg, row), row.count, most)).collect()
}

fn line(label: &str, count: u64, most: u64) -> String {
    let bar = "@".repeat((BAR * u128::from(count) / u128::from(most)) as usize);
    let width = BAR as usize;
    format!("{label:<LABEL$}{count:>COUNT$} |{bar:<width$}|\n")
}

fn label(agg: &Agg, row: &Row) -> String {
    let show = |n: i64| match *agg {
        Agg::LHist { step, .. } => lhist_number(n, step),
        _ => hist_number(n),
    };
    match (row.low, row.high) {
        (None, Some(high)) => format!("(..., {})", show(high)),
        (Some(low), None) => format!("[{}, ...)", show(low)),
        (Some(low), Some(high)) if low.checked_add(1) == Some(high) => format!("[{}]", show(low)),
        (Some(low), Some(high)) => format!("[{}, {})", show(low), show(high)),
        (None, None) => "(..., ...)".into(),
    }
}

/// `512`, `1K`, `4M`: a number in the largest unit that divides it.
fn hist_number(n: i64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = n;
    let mut unit = 0;
    while value != 0 && value % 1024 == 0 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value}{}", UNITS[unit])
}

/// A number with a unit, if the step is a multiple of the unit.
fn lhist_number(n: i64, step: i64) -> String {
    const KILO: i64 = 1024;
    const MEGA: i64 = 1024 * KILO;
    match n {
        _ if step % KILO != 0 || n == 0 => n.to_string(),
        _ if n % MEGA == 0 => format!("{}M", n / MEGA),
        _ if n % KILO == 0 => format!("{}K", n / KILO),
        _ => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::map::{hist_bucket, hist_buckets};

    fn hist(bits: u8, samples: &[i64]) -> String {
        let agg = Agg::Hist { bits, summed: false };
        let mut buckets = vec![0; hist_buckets(bits) as usize];
        samples.iter().for_each(|&sample| buckets[hist_bucket(sample, bits) as usize] += 1);
        draw(&agg, &rows(&agg, &buckets))
    }

    #[test]
    fn powers_of_two() {
        let bar = |n: usize| format!("|{:<52}|", "@".repeat(n));
        let expected = format!(
            "(..., 0)               1 {}\n[0]                    1 {}\n[1]                    0 {}\n[2, 4)                 3 {}\n",
            bar(17),
            bar(17),
            bar(0),
            bar(52)
        );
        assert_eq!(hist(0, &[-5, 0, 2, 3, 3]), expected);
    }

    #[test]
    fn labels_have_units_from_1024_on() {
        let labels = |bits, samples: &[i64]| -> Vec<String> {
            hist(bits, samples).lines().map(|line| line[..16].trim().to_owned()).collect()
        };
        assert_eq!(labels(0, &[600, 1500]), ["[512, 1K)", "[1K, 2K)"]);
        assert_eq!(labels(0, &[5 << 20]), ["[4M, 8M)"]);
        assert_eq!(labels(0, &[i64::MAX]), ["[4E, ...)"]);
        assert_eq!(labels(2, &[1, 7, 9]), ["[1]", "[2]", "[3]", "[4]", "[5]", "[6]", "[7]", "[8, 10)"]);
        assert_eq!(labels(2, &[1300]), ["[1280, 1536)"]);
    }

    #[test]
    fn equal_steps() {
        let labels = |agg: Agg, buckets: &[u64]| -> Vec<String> {
            draw(&agg, &rows(&agg, buckets)).lines().map(|line| line[..16].trim().to_owned()).collect()
        };
        let agg = Agg::LHist { min: 0, max: 25, step: 10, summed: false };
        assert_eq!(
            labels(agg, &[1, 0, 1, 1, 1]),
            ["(..., 0)", "[0, 10)", "[10, 20)", "[20, 25)", "[25, ...)"]
        );
        let agg = Agg::LHist { min: 0, max: 3 << 20, step: 1 << 20, summed: false };
        assert_eq!(labels(agg, &[0, 1, 1, 0, 1]), ["[0, 1M)", "[1M, 2M)", "[2M, 3M)", "[3M, ...)"]);
        let agg = Agg::LHist { min: 0, max: 4096, step: 2048, summed: false };
        assert_eq!(labels(agg, &[0, 1, 1, 0]), ["[0, 2K)", "[2K, 4K)"]);
    }

    #[test]
    fn an_empty_histogram_has_no_rows() {
        assert_eq!(rows(&Agg::Hist { bits: 0, summed: false }, &[0; 65]), []);
        assert_eq!(hist(0, &[]), "");
    }
}
