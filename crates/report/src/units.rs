//! Sizes and lengths of time as people read them.
//!
//! ```text
//! size(1536) -> 1.5 KiB        time(12_345) -> 12.3 us
//! ```

/// Units of size and how many bytes each has.
const SIZES: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Units of time, and how many nanoseconds each has.
const TIMES: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// The number of a float's bits, in as few digits as tell it from all others.
pub fn float(bits: i64) -> String {
    format!("{:?}", f32::from_bits(bits as u32))
}

/// The number of a double's bits, likewise.
pub fn double(bits: i64) -> String {
    format!("{:?}", f64::from_bits(bits as u64))
}

/// Bytes; digits behind the point are cut, not rounded, so that nothing looks larger than it is.
pub fn size(bytes: i64) -> String {
    scaled(bytes, &SIZES, "B")
}

/// Nanoseconds, likewise.
pub fn time(ns: i64) -> String {
    scaled(ns, &TIMES, "ns")
}

fn scaled(n: i64, units: &[(&str, u64)], least: &str) -> String {
    let (sign, n) = (if n < 0 { "-" } else { "" }, n.unsigned_abs());
    match units.iter().find(|(_, one)| n >= *one) {
        None => format!("{sign}{n} {least}"),
        Some((unit, one)) => {
            let tenth = (u128::from(n) * 10 / u128::from(*one)) % 10;
            format!("{sign}{}.{tenth} {unit}", n / one)
        }
    }
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
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (12345, "12.0 KiB"),
            ((1 << 20) - 1, "1023.9 KiB"),
            (3 << 29, "1.5 GiB"),
            (-2048, "-2.0 KiB"),
            (i64::MAX, "7.9 EiB"),
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
            (59_999_999_999, "59.9 s"),
            (90_000_000_000, "1.5 min"),
            (7_200_000_000_000, "2.0 h"),
            (-1_500, "-1.5 us"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
