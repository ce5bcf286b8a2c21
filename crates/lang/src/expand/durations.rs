//! Durations on the command line: `--interval=500ms`, `--older=2m`; `--interval=0.5` for an option in seconds.

/// Units and their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("seconds", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Nanoseconds in a unit of time.
pub(super) fn unit(name: &str) -> Option<u64> {
    UNITS.iter().find(|(known, _)| *known == name).map(|(_, ns)| *ns)
}

/// The short name of a unit.
pub(super) fn name(unit_ns: u64) -> &'static str {
    UNITS.iter().find(|(_, ns)| *ns == unit_ns).map_or("", |(name, _)| name)
}

/// The unit that an option's help names as its first or last word: `seconds between reports`, `longest life, ms`.
pub(super) fn unit_of_help(help: &str) -> Option<u64> {
    let mut words = help.split([' ', ';', ',']).filter(|word| !word.is_empty());
    let first = words.next()?;
    // A single letter such as `s` may not be a unit.
    [Some(first), words.next_back()].into_iter().flatten().filter(|word| word.len() > 1).find_map(unit)
}

/// Nanoseconds of `5`, `0.5`, `500ms`; a number alone is in `unit_ns`.
pub(super) fn parse(text: &str, unit_ns: u64) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let per_unit = if suffix.is_empty() { unit_ns } else { unit(suffix)? };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let ns = digits(whole)?.checked_mul(per_unit)?;
    let scaled = u128::from(digits(fraction)?) * u128::from(per_unit) / 10u128.pow(fraction.len() as u32);
    ns.checked_add(u64::try_from(scaled).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn numbers_are_in_the_unit_of_the_option() {
        assert_eq!(parse("5", SECOND), Some(5 * SECOND));
        assert_eq!(parse("0.5", SECOND), Some(SECOND / 2));
        assert_eq!(parse(".25", SECOND), Some(SECOND / 4));
        assert_eq!(parse("500ms", SECOND), Some(SECOND / 2));
        assert_eq!(parse("1.5m", SECOND), Some(90 * SECOND));
    }

    #[test]
    fn no_durations() {
        for text in ["", ".", "-1", "1x", "s", "1.2.3", "1e9", "99999999999999999999", "9999999999999h"] {
            assert_eq!(parse(text, SECOND), None, "{text}");
        }
    }

    #[test]
    fn help_names_the_unit() {
        assert_eq!(unit_of_help("seconds between reports; 0: only at the end"), Some(SECOND));
        assert_eq!(unit_of_help("minimum duration of a call, us"), Some(1_000));
        assert_eq!(unit_of_help("rows to print"), None);
        assert_eq!(unit_of_help("pairs that count, at least"), None);
    }
}
