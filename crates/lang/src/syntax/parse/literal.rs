//! Literals: values of numbers and quoted strings.
//!
//! The grammar accepts any token that begins like a number; this module parses it or reports what is wrong with it.

use crate::syntax::ast::ExprKind;

/// The reason why a literal is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Code in the table of `codes`.
    pub code: &'static str,
    /// Message.
    pub message: String,
    /// Remedy; may be empty.
    pub help: String,
}

fn problem<T>(code: &'static str, message: String, help: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { code, message, help: help.into() })
}

/// Units of time in nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Suffixes of C, and whether they mean unsigned.
const SUFFIXES: &[(&str, bool)] = &[
    ("", false),
    ("l", false),
    ("ll", false),
    ("u", true),
    ("ul", true),
    ("ull", true),
    ("lu", true),
    ("llu", true),
];

/// Parses `12`, `0x1f`, `017`, `1e6`, `1_000`, `3UL`, `10ms`.
pub(super) fn number(text: &str) -> Result<ExprKind, Problem> {
    if text.contains('.') {
        return Err(float(text));
    }
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return radix(text, hex, 16);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() && unit(rest).is_none() && exponent(rest).is_none() => {
            radix(text, &text[1..], 8)
        }
        _ => decimal(text, digits, rest),
    }
}

/// The number in a part of a probe: `100`, `1e6`, `1_000`; digits alone are decimal, also after zeros. `None` if it is something else.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let is_plain = || text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'e' | b'E' | b'_'));
    text.parse().ok().or_else(|| match number(text) {
        Ok(ExprKind::Int { value, .. }) if is_plain() && text.starts_with(|c: char| c.is_ascii_digit()) => {
            Some(value)
        }
        _ => None,
    })
}

/// Parses a positional parameter as a number: `12`, `-3`, `0x1f`; anything else is a string.
pub(super) fn parameter(text: &str) -> Option<(bool, ExprKind)> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let hex = digits.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !hex && !plain {
        return None;
    }
    number(digits).ok().map(|value| (negative, value))
}

fn unit(rest: &str) -> Option<u64> {
    UNITS.iter().find(|(name, _)| *name == rest).map(|&(_, ns)| ns)
}

fn exponent(rest: &str) -> Option<&str> {
    rest.strip_prefix(['e', 'E'])
}

fn decimal(text: &str, digits: &str, rest: &str) -> Result<ExprKind, Problem> {
    let value = digits.replace('_', "").parse::<u64>().or_else(|_| too_large(text))?;
    if let Some(ns) = unit(rest) {
        return int(text, value.checked_mul(ns), false);
    }
    if let Some(power) = exponent(rest) {
        let Ok(power) = power.parse::<u32>() else { return not_a_number(text, rest) };
        return int(text, 10u64.checked_pow(power).and_then(|scale| value.checked_mul(scale)), false);
    }
    match suffix(rest) {
        Some(unsigned) => int(text, Some(value), unsigned),
        None => not_a_number(text, rest),
    }
}

fn radix(text: &str, digits: &str, radix: u32) -> Result<ExprKind, Problem> {
    let end = digits.find(|c: char| !c.is_digit(radix) && c != '_').unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let digits = digits.replace('_', "");
    match suffix(rest) {
        Some(unsigned) if !digits.is_empty() => int(text, u64::from_str_radix(&digits, radix).ok(), unsigned),
        _ => not_a_number(text, rest),
    }
}

fn suffix(rest: &str) -> Option<bool> {
    SUFFIXES.iter().find(|(name, _)| name.eq_ignore_ascii_case(rest)).map(|&(_, unsigned)| unsigned)
}

fn int(text: &str, value: Option<u64>, unsigned: bool) -> Result<ExprKind, Problem> {
    match value {
        Some(value) => Ok(ExprKind::Int { value, unsigned: unsigned || value > i64::MAX as u64 }),
        None => too_large(text),
    }
}

fn too_large<T>(text: &str) -> Result<T, Problem> {
    problem(
        "E0005",
        format!("`{text}` does not fit in 64 bits"),
        format!("the largest integer is `{}`", u64::MAX),
    )
}

fn not_a_number<T>(text: &str, rest: &str) -> Result<T, Problem> {
    let octal = text.starts_with('0') && text.len() > 1 && rest.starts_with(['8', '9']);
    let help = match rest {
        _ if octal => "a leading `0` means octal; remove it for a decimal number",
        _ if text.starts_with("0b") => "there are no binary numbers; `0x` begins a hexadecimal one",
        _ if rest.is_empty() => "digits are missing after the prefix",
        _ if text.starts_with("0x") => "hexadecimal digits are `0` to `9` and `a` to `f`",
        _ if exponent(rest) == Some("") => "an exponent is a whole number, as in `1e6`",
        _ if is_bytes(rest) => "bytes have no units: 10 MB are `10 << 20`",
        _ => "units are those of time: `ns us ms s m h d`",
    };
    problem("E0005", format!("`{text}` is not a number"), help)
}

/// Whether the unit is one of memory: `kb` or `MiB`
fn is_bytes(unit: &str) -> bool {
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix('b').map_or(&unit[..], |rest| rest.strip_suffix('i').unwrap_or(rest));
    ["k", "m", "g", "t"].contains(&unit)
}

fn float(text: &str) -> Problem {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let help = if fraction.bytes().all(|b| b == b'0') {
        format!("write `{whole}`; a division of integers rounds towards zero")
    } else {
        let scale = 10u64.pow(fraction.bytes().take_while(u8::is_ascii_digit).count().min(6) as u32);
        format!("scale the other side: `x * {scale}` instead of `x`, with an integer here")
    };
    Problem {
        code: "E0004",
        message: format!("`{text}` is a floating-point number, and scripts have integers only"),
        help,
    }
}

/// Resolves the escapes of a string without its quotes. The error is the range of an invalid escape.
pub(super) fn unescape(inside: &str) -> Result<Vec<u8>, std::ops::Range<usize>> {
    let bytes = inside.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let (byte, length) = escape(&bytes[at + 1..]).ok_or_else(|| at..next_char(inside, at + 1))?;
        out.push(byte);
        at += 1 + length;
    }
    Ok(out)
}

fn next_char(text: &str, at: usize) -> usize {
    at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
}

/// The byte of an escape, and the number of bytes after the backslash.
fn escape(rest: &[u8]) -> Option<(u8, usize)> {
    Some(match *rest.first()? {
        b'n' => (b'\n', 1),
        b't' => (b'\t', 1),
        b'r' => (b'\r', 1),
        b'a' => (7, 1),
        b'b' => (8, 1),
        b'e' => (27, 1),
        b'"' => (b'"', 1),
        b'\\' => (b'\\', 1),
        b'x' => digits(&rest[1..], 16, 2).map(|(value, count)| (value, count + 1))?,
        b'0'..=b'7' => digits(rest, 8, 3)?,
        _ => return None,
    })
}

fn digits(rest: &[u8], radix: u32, most: usize) -> Option<(u8, usize)> {
    let count = rest.iter().take(most).take_while(|&&b| (b as char).is_digit(radix)).count();
    let value =
        rest[..count].iter().filter_map(|&b| (b as char).to_digit(radix)).fold(0, |sum, d| sum * radix + d);
    (count > 0 && value < 256).then_some((value as u8, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> (u64, bool) {
        match number(text) {
            Ok(ExprKind::Int { value, unsigned }) => (value, unsigned),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn integers_in_all_spellings() {
        for (text, expected) in [
            ("0", 0),
            ("12", 12),
            ("1_000", 1000),
            ("0x1F", 31),
            ("017", 15),
            ("1e6", 1_000_000),
            ("3e0", 3),
            ("10ms", 10_000_000),
            ("2s", 2_000_000_000),
            ("1d", 86_400_000_000_000),
            ("0s", 0),
            ("7ll", 7),
        ] {
            assert_eq!(value(text), (expected, false), "{text}");
        }
        assert_eq!(value("7UL"), (7, true));
        assert_eq!(value("18446744073709551615"), (u64::MAX, true));
        assert_eq!(value("9223372036854775807"), (i64::MAX as u64, false));
    }

    #[test]
    fn texts_that_are_no_integers_are_refused() {
        for (text, code) in [
            ("1000000.0", "E0004"),
            ("0.25", "E0004"),
            ("12kb", "E0005"),
            ("08", "E0005"),
            ("0x", "E0005"),
            ("0xg", "E0005"),
            ("1e", "E0005"),
            ("1e20", "E0005"),
            ("18446744073709551616", "E0005"),
            ("300000d", "E0005"),
        ] {
            assert_eq!(number(text).map_err(|p| p.code), Err(code), "{text}");
        }
    }

    #[test]
    fn parameters_are_numbers_only_when_they_look_so() {
        assert_eq!(parameter("-3"), Some((true, ExprKind::Int { value: 3, unsigned: false })));
        assert_eq!(parameter("0x10"), Some((false, ExprKind::Int { value: 16, unsigned: false })));
        for text in ["", "-", "cuInit", "10ms", "1.5", "0x"] {
            assert_eq!(parameter(text), None, "{text}");
        }
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r#"a\n\t\"\\\x41\033\0é"#), Ok("a\n\t\"\\A\x1b\0é".as_bytes().to_vec()));
        assert_eq!(unescape(r"\xff"), Ok(vec![0xff]));
        assert_eq!(unescape(r"ab\%"), Err(2..4));
        assert_eq!(unescape(r"\x"), Err(0..2));
        assert_eq!(unescape(r"\é"), Err(0..3));
        assert_eq!(unescape(r"\777"), Err(0..2));
    }
}
