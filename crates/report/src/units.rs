//! Human-readable sizes, durations and percentages.
//!
//! ```text
//! size(1536) -> 1.5 KiB        time(12_345) -> 12.3 us        percent(396) -> 40
//! ```

use std::collections::HashMap;

/// Units of size, with their number of bytes.
const SIZES: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Units of time, with their number of nanoseconds.
const TIMES: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// The float with these bits, with as few digits as identify it.
pub fn float(bits: i64) -> String {
    format!("{:?}", f32::from_bits(bits as u32))
}

/// The double with these bits, with as few digits as identify it.
pub fn double(bits: i64) -> String {
    format!("{:?}", f64::from_bits(bits as u64))
}

/// A number of bytes, rounded to a tenth of the unit.
pub fn size(bytes: i64) -> String {
    scaled(bytes, &SIZES, "B")
}

/// A number of nanoseconds, rounded to a tenth of the unit.
pub fn time(ns: i64) -> String {
    scaled(ns, &TIMES, "ns")
}

/// Tenths of a percent, as a whole percent.
pub fn percent(tenths: i64) -> String {
    (tenths.saturating_add(5).div_euclid(10)).to_string()
}

/// Tenths, as a number with a decimal.
pub fn tenths(tenths: i64) -> String {
    let sign = if tenths < 0 { "-" } else { "" };
    format!("{sign}{}.{}", tenths.unsigned_abs() / 10, tenths.unsigned_abs() % 10)
}

/// A part of a whole in tenths of a percent.
pub fn share(part: u64, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    u64::try_from((u128::from(part) * 1000 + whole / 2) / whole).unwrap_or(u64::MAX)
}

/// The whole percents of parts, as [`shares`] rounds them.
pub fn shares_of(parts: impl Iterator<Item = u64>, whole: u64) -> Vec<i64> {
    let tenths = parts.map(|part| i64::try_from(share(part, whole)).unwrap_or(i64::MAX));
    shares(&tenths.collect::<Vec<_>>())
}

/// Tenths of a percent of the parts of a whole, as whole percents. If they add up to 100 before, they do after: parts with the
/// largest remainders are rounded up. Otherwise each is rounded alone.
pub fn shares(parts: &[i64]) -> Vec<i64> {
    let sum: i64 = parts.iter().fold(0, |sum, &part| sum.saturating_add(part));
    // Each part is rounded to a tenth.
    if !(990..=1010).contains(&sum) || parts.iter().any(|&part| part < 0) {
        return parts.iter().map(|part| part.saturating_add(5).div_euclid(10)).collect();
    }
    let mut shares: Vec<i64> = parts.iter().map(|part| part / 10).collect();
    let missing = 100 - shares.iter().sum::<i64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(parts[at] % 10));
    order.into_iter().take(usize::try_from(missing).unwrap_or(0)).for_each(|at| shares[at] += 1);
    shares
}

/// A number in a unit. If rounding yields one of the next larger unit, that unit is used: 999 960 ns are 1.0 ms.
fn scaled(n: i64, units: &[(&str, u64)], least: &str) -> String {
    let (sign, n) = (if n < 0 { "-" } else { "" }, u128::from(n.unsigned_abs()));
    let Some(at) = units.iter().position(|(_, one)| n >= u128::from(*one)) else {
        return format!("{sign}{n} {least}");
    };
    let tenths = |at: usize| {
        let one = u128::from(units[at].1);
        (n * 10 + one / 2) / one
    };
    let next = |larger: &usize| tenths(at) * u128::from(units[at].1) >= 10 * u128::from(units[*larger].1);
    let at = at.checked_sub(1).filter(next).unwrap_or(at);
    let tenths = tenths(at);
    format!("{sign}{}.{} {}", tenths / 10, tenths % 10, units[at].0)
}

/// Texts of which each is there once: the second of two equal ones becomes `text#2`.
pub(crate) fn distinct(mut texts: Vec<String>) -> Vec<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for text in &mut texts {
        let times = times.entry(text.clone()).or_default();
        *times += 1;
        if *times > 1 {
            *text += &format!("#{times}");
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_numbers_have_as_few_digits_as_tell_them_apart() {
        assert_eq!(float(i64::from(0.1f32.to_bits())), "0.1");
        assert_eq!(double(0.1f64.to_bits() as i64), "0.1");
        assert_eq!(double((1e300f64).to_bits() as i64), "1e300");
        assert_eq!(float(i64::from(f32::NAN.to_bits())), "NaN");
    }

    #[test]
    fn percents() {
        assert_eq!([0, 4, 5, 994, 995, 2500, -6].map(percent), ["0", "0", "1", "99", "100", "250", "-1"]);
        assert_eq!([0, 7, 396, -12].map(tenths), ["0.0", "0.7", "39.6", "-1.2"]);
    }

    #[test]
    fn shares_of_a_whole_add_up() {
        assert_eq!(shares(&[396, 254, 238, 56, 56]), [40, 25, 24, 6, 5]);
        assert_eq!(shares(&[333, 333, 333]), [34, 33, 33]);
        assert_eq!(shares(&[996, 4]), [100, 0]);
        // Some of the parts are missing, or the parts overlap.
        assert_eq!(shares(&[396, 256]), [40, 26]);
        assert_eq!(shares(&[996, 996]), [100, 100]);
        assert_eq!(shares(&[505, 505]), [50, 50]);
        assert_eq!(shares(&[]), [0; 0]);
    }

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (12345, "12.1 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            ((1 << 20) - 52, "1023.9 KiB"),
            (3 << 29, "1.5 GiB"),
            (-2048, "-2.0 KiB"),
            (i64::MAX, "8.0 EiB"),
            (i64::MIN, "-8.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (12_345, "12.3 us"),
            (2_500_000, "2.5 ms"),
            (59_999_999_999, "1.0 min"),
            (1_798_678, "1.8 ms"),
            (9_992, "10.0 us"),
            (999_949, "999.9 us"),
            (999_950, "1.0 ms"),
            (90_000_000_000, "1.5 min"),
            (7_200_000_000_000, "2.0 h"),
            (-1_500, "-1.5 us"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn equal_texts_are_numbered() {
        let texts = ["a", "b", "a", "a"].map(String::from).to_vec();
        assert_eq!(distinct(texts), ["a", "b", "a#2", "a#3"]);
    }
}
