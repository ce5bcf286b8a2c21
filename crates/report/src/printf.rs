//! `printf`: formats values by the pieces of a format string.
//!
//! As in C, except that a number is printed whole if it does not fit a conversion without a length modifier: `%d` of a size of 3 GB
//! is positive, `%x` of an address has all digits. A register of unknown type may hold an `int` in its lower half: there `%d` of
//! 0xffffffff is -1. Widths count characters, not bytes. A precision does not truncate strings.

use wire::Value;
use wire::manifest::{Directive, Piece};
use wire::types::Lookup;

use crate::gfp_flags;
use crate::value::{Context, visible};

/// Output of a `printf` call. Directives without a value print nothing (in a manifest of another version).
pub fn printf(pieces: &[Piece], values: &[Value], context: Context) -> Vec<u8> {
    let mut out = Vec::new();
    let mut values: Box<dyn Iterator<Item = &Value>> = match named(pieces, values) {
        Some(members) => Box::new(members.iter().map(|(_, value)| value)),
        None => Box::new(values.iter()),
    };
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Directive(directive) => {
                let text = values.next().map_or(String::new(), |value| convert(directive, value, context));
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
    out
}

/// The values of a format that have names: `printf("%d %s\n", (pid = pid, call = func))`.
pub fn named<'v>(pieces: &[Piece], values: &'v [Value]) -> Option<&'v Vec<(String, Value)>> {
    let directives = pieces.iter().filter(|piece| matches!(piece, Piece::Directive(_))).count();
    match values {
        [Value::Record(members)] if directives != 1 || members.len() == 1 => Some(members),
        _ => None,
    }
}

fn convert(directive: &Directive, value: &Value, context: Context) -> String {
    let text = match directive.conversion {
        's' if directive.literal => Context { verbatim: true, ..context }.text(value),
        's' => context.text(value),
        'r' => visible(&bytes(value)),
        'R' => bytes(value).iter().map(|byte| format!("\\x{byte:02x}")).collect(),
        'H' => hex_list(value),
        'f' => return floating(directive, value),
        'G' => number(value).map_or_else(|| context.text(value), |number| gfp_flags::flags(number.masked())),
        'c' => match number(value) {
            Some(number) => context.escape(&[number.bits as u8]),
            None => context.text(value),
        },
        letter => match number(value) {
            Some(number) => return integer(directive, letter, number),
            None => context.text(value),
        },
    };
    pad(directive, text)
}

/// An integer with its width in bytes.
#[derive(Copy, Clone)]
struct Number {
    bits: u64,
    bytes: u8,
    signed: bool,
}

impl Number {
    fn is_negative(self) -> bool {
        self.signed && (self.bits as i64) < 0
    }

    /// The bits of the number, limited to its width.
    fn masked(self) -> u64 {
        if self.bytes >= 8 { self.bits } else { self.bits & ((1 << (8 * u32::from(self.bytes))) - 1) }
    }

    /// The number, converted as the directive requires.
    fn converted(self, directive: &Directive, signed: bool) -> Number {
        const INT: u8 = 4;
        let bits = if self.signed { self.bits } else { self.masked() };
        let fits_int = i32::try_from(bits as i64).is_ok();
        let (bytes, signed) = match (directive.length, directive.register) {
            (0, true) if u32::try_from(bits).is_ok() || fits_int => (INT, signed),
            (0, false) if signed && !self.signed => (8, self.bytes == 8),
            (0, _) if !signed && fits_int && self.is_negative() => (INT, false),
            (0, _) => (8, signed),
            (length, _) => (length, signed),
        };
        let above = 64 - 8 * u32::from(bytes);
        let bits =
            if signed { (bits << above).cast_signed() >> above } else { (bits << above >> above) as i64 };
        Number { bits: bits as u64, bytes, signed }
    }
}

/// The value as an integer; `None` for text.
fn number(value: &Value) -> Option<Number> {
    let (bits, bytes, signed) = match *value {
        Value::Bool(value) => (u64::from(value), 1, false),
        Value::Int(value, bytes) => (value as u64, bytes, true),
        Value::Uint(value, bytes) => (value, bytes, false),
        Value::Enum(_, value) => (value as u64, 4, value < 0),
        Value::Pointer(value) | Value::Usym { address: value, .. } | Value::Timestamp(value, _) => {
            (value, 8, false)
        }
        Value::Lookup(_, value) => (value as u64, 8, true),
        Value::Buf(_)
        | Value::Str(..)
        | Value::Tuple(_)
        | Value::Record(_)
        | Value::Array(_)
        | Value::Name(..)
        | Value::Inet(..)
        | Value::Either(..)
        | Value::Stack { .. } => {
            return None;
        }
    };
    Some(Number { bits, bytes, signed })
}

fn integer(directive: &Directive, letter: char, number: Number) -> String {
    let is_decimal = matches!(letter, 'd' | 'i');
    let converted = number.converted(directive, is_decimal);
    let bits = converted.bits;
    let marked = directive.alternate && bits != 0;
    let (prefix, digits) = match letter {
        'p' => ("0x", format!("{:x}", number.masked())),
        'x' => (if marked { "0x" } else { "" }, format!("{bits:x}")),
        'X' => (if marked { "0X" } else { "" }, format!("{bits:X}")),
        'o' => (if marked { "0" } else { "" }, format!("{bits:o}")),
        'u' => ("", bits.to_string()),
        _ if converted.is_negative() => ("-", bits.cast_signed().unsigned_abs().to_string()),
        _ if directive.plus => ("+", bits.to_string()),
        _ if directive.space => (" ", bits.to_string()),
        _ => ("", bits.to_string()),
    };
    let least = directive.precision.unwrap_or(0) as usize;
    let mut digits = format!("{digits:0>least$}");
    // Zeroes are inserted between sign and digits, unless the number is left-aligned or has a precision.
    if directive.zero && !directive.left && directive.precision.is_none() {
        let room = (directive.width as usize).saturating_sub(prefix.len());
        digits = format!("{digits:0>room$}");
    }
    pad(directive, format!("{prefix}{digits}"))
}

/// A float with six decimals, unless a precision is given.
fn floating(directive: &Directive, value: &Value) -> String {
    let number = match *value {
        Value::Lookup(Lookup::Float, bits) => f64::from(f32::from_bits(bits as u32)),
        Value::Lookup(_, bits) => f64::from_bits(bits as u64),
        _ => 0.0,
    };
    let sign = match number {
        _ if number.is_sign_negative() => "-",
        _ if directive.plus => "+",
        _ if directive.space => " ",
        _ => "",
    };
    let mut digits = format!("{:.*}", directive.precision.unwrap_or(6) as usize, number.abs());
    if directive.zero && !directive.left && number.is_finite() {
        let room = (directive.width as usize).saturating_sub(sign.len());
        digits = format!("{digits:0>room$}");
    }
    pad(directive, format!("{sign}{digits}").to_lowercase())
}

fn pad(directive: &Directive, text: String) -> String {
    let missing = (directive.width as usize).saturating_sub(text.chars().count());
    let blanks = " ".repeat(missing);
    if directive.left { text + &blanks } else { blanks + &text }
}

/// `0a fe`
fn hex_list(value: &Value) -> String {
    bytes(value).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// The bytes of a string, or those of an integer in memory order.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Str(bytes, _) | Value::Buf(bytes) => bytes.clone(),
        other => number(other).map_or(Vec::new(), |number| {
            number.bits.to_le_bytes()[..usize::from(number.bytes.min(8))].to_vec()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, manifest};

    fn show(change: impl FnOnce(&mut Directive), conversion: char, value: Value) -> String {
        let mut directive = Directive { conversion, ..Directive::default() };
        change(&mut directive);
        let manifest = manifest();
        let context = Context { manifest: &manifest, names: &Fake, verbatim: false };
        String::from_utf8(printf(&[Piece::Directive(directive)], &[value], context)).unwrap()
    }

    fn plain(conversion: char, value: Value) -> String {
        show(|_| {}, conversion, value)
    }

    #[test]
    fn text_stays_as_it_is_where_all_is_escaped_afterwards() {
        let manifest = manifest();
        for (verbatim, expected) in [(true, b"[a\tb]" as &[u8]), (false, b"[a\\tb]")] {
            let context = Context { manifest: &manifest, names: &Fake, verbatim };
            let directive = Directive { conversion: 's', ..Directive::default() };
            let pieces =
                [Piece::Text(b"[".to_vec()), Piece::Directive(directive), Piece::Text(b"]".to_vec())];
            let text = Value::Str(b"a\tb".to_vec(), false);
            assert_eq!(printf(&pieces, &[text], context), expected);
        }
    }

    #[test]
    fn without_a_length_no_number_is_cut() {
        assert_eq!(plain('d', Value::Uint(3 << 30, 8)), "3221225472");
        assert_eq!(plain('d', Value::Int(3 << 30, 8)), "3221225472");
        assert_eq!(plain('d', Value::Uint(u64::from(u32::MAX), 4)), "4294967295");
        assert_eq!(plain('d', Value::Int(-1, 4)), "-1");
        assert_eq!(plain('d', Value::Uint(-5i64 as u64, 8)), "-5");
        assert_eq!(plain('u', Value::Int(-1, 4)), "4294967295");
        assert_eq!(plain('u', Value::Int(-1, 8)), "4294967295");
        assert_eq!(plain('u', Value::Uint(u64::MAX, 8)), "18446744073709551615");
        assert_eq!(plain('x', Value::Int(-1, 2)), "ffffffff");
        assert_eq!(plain('X', Value::Int(-1, 8)), "FFFFFFFF");
        assert_eq!(plain('x', Value::Int(i64::from(i32::MIN) - 1, 8)), "ffffffff7fffffff");
        assert_eq!(plain('x', Value::Int(0x1234_5678_abcd, 8)), "12345678abcd");
        assert_eq!(plain('o', Value::Uint(8, 1)), "10");
        assert_eq!(plain('d', Value::Int(i64::MIN, 8)), "-9223372036854775808");
        assert_eq!(plain('d', Value::Bool(true)), "1");
        assert_eq!(plain('p', Value::Uint(0, 8)), "0x0");
        assert_eq!(plain('d', Value::Pointer(16)), "16");
    }

    #[test]
    fn a_length_cuts_as_in_c() {
        let show = |length, conversion, value| show(|d| d.length = length, conversion, value);
        let number = || Value::Int(0x12_3456_78ab_cdef, 8);
        assert_eq!(show(1, 'x', number()), "ef");
        assert_eq!(show(2, 'x', number()), "cdef");
        assert_eq!(show(8, 'x', number()), "12345678abcdef");
        assert_eq!(show(1, 'd', Value::Uint(200, 8)), "-56");
        assert_eq!(show(2, 'd', Value::Uint(0xffff, 2)), "-1");
        assert_eq!(show(1, 'u', Value::Int(-1, 8)), "255");
        assert_eq!(show(8, 'd', Value::Uint(-5i64 as u64, 8)), "-5");
        assert_eq!(show(8, 'd', Value::Uint(u64::from(u32::MAX), 4)), "4294967295");
        assert_eq!(show(8, 'u', Value::Int(-1, 4)), "18446744073709551615");
        assert_eq!(show(8, 'x', Value::Int(-1, 4)), "ffffffffffffffff");
    }

    #[test]
    fn an_int_is_the_lower_half_of_a_register() {
        let show = |length, conversion, value| {
            show(|d| (d.length, d.register) = (length, true), conversion, Value::Uint(value, 8))
        };
        let minus_one = u64::from(u32::MAX);
        assert_eq!(show(0, 'd', minus_one), "-1");
        assert_eq!(show(0, 'u', minus_one), "4294967295");
        assert_eq!(show(0, 'x', minus_one), "ffffffff");
        assert_eq!(show(8, 'd', minus_one), "4294967295");
        assert_eq!(show(0, 'd', -5i64 as u64), "-5");
        assert_eq!(show(0, 'x', -5i64 as u64), "fffffffb");
        assert_eq!(show(0, 'd', 5_000_000_000), "5000000000");
        assert_eq!(show(0, 'x', 0x7fff_1234_5678), "7fff12345678");
    }

    #[test]
    fn enums_print_as_name_or_number() {
        assert_eq!(plain('s', Value::Enum(0, 2)), "CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(plain('d', Value::Enum(0, 2)), "2");
        assert_eq!(plain('x', Value::Enum(0, -1)), "ffffffff");
    }

    #[test]
    fn floating_point_numbers_as_in_c() {
        let number = |number: f64| Value::Lookup(Lookup::Double, number.to_bits() as i64);
        assert_eq!(plain('f', number(-2.5)), "-2.500000");
        assert_eq!(plain('f', Value::Lookup(Lookup::Float, i64::from(1.25f32.to_bits()))), "1.250000");
        assert_eq!(show(|d| (d.width, d.precision) = (7, Some(1)), 'f', number(0.25)), "    0.2");
        assert_eq!(
            show(|d| (d.width, d.precision, d.zero) = (7, Some(2), true), 'f', number(-0.5)),
            "-000.50"
        );
        assert_eq!(show(|d| (d.width, d.left, d.plus) = (10, true, true), 'f', number(1.0)), "+1.000000 ");
        assert_eq!(show(|d| (d.width, d.zero) = (5, true), 'f', number(f64::NEG_INFINITY)), " -inf");
        assert_eq!(plain('f', number(f64::NAN)), "nan");
    }

    #[test]
    fn flags_as_in_c() {
        let five = || Value::Int(5, 4);
        assert_eq!(show(|d| d.width = 4, 'd', five()), "   5");
        assert_eq!(show(|d| (d.width, d.left) = (4, true), 'd', five()), "5   ");
        assert_eq!(show(|d| (d.width, d.zero) = (5, true), 'd', Value::Int(-5, 4)), "-0005");
        assert_eq!(show(|d| (d.width, d.zero, d.left) = (5, true, true), 'd', five()), "5    ");
        assert_eq!(show(|d| d.plus = true, 'd', five()), "+5");
        assert_eq!(show(|d| d.space = true, 'd', five()), " 5");
        assert_eq!(show(|d| d.alternate = true, 'x', Value::Uint(255, 4)), "0xff");
        assert_eq!(show(|d| d.alternate = true, 'x', Value::Uint(0, 4)), "0");
        assert_eq!(
            show(|d| (d.alternate, d.zero, d.width) = (true, true, 8), 'x', Value::Uint(255, 4)),
            "0x0000ff"
        );
        assert_eq!(show(|d| d.precision = Some(3), 'd', Value::Int(-5, 4)), "-005");
        assert_eq!(show(|d| (d.precision, d.zero, d.width) = (Some(3), true, 6), 'd', five()), "   005");
    }

    #[test]
    fn text_is_padded_by_characters_and_never_cut() {
        let word = || Value::Str("漢字".into(), false);
        assert_eq!(show(|d| d.width = 4, 's', word()), "  漢字");
        assert_eq!(show(|d| d.precision = Some(1), 's', word()), "漢字");
        assert_eq!(plain('s', Value::Int(-7, 8)), "-7");
        assert_eq!(plain('s', Value::Tuple(vec![Value::Int(1, 8), word()])), "(1, 漢字)");
    }

    #[test]
    fn characters_and_bytes() {
        assert_eq!(plain('c', Value::Uint(65, 1)), "A");
        assert_eq!(plain('c', Value::Uint(27, 1)), "\\x1b");
        assert_eq!(plain('r', Value::Str(b"a\n\xff".to_vec(), false)), "a\\x0a\\xff");
        assert_eq!(plain('R', Value::Str(b"a\n".to_vec(), false)), "\\x61\\x0a");
        assert_eq!(plain('H', Value::Str(b"\n\xfe".to_vec(), false)), "0a fe");
        assert_eq!(plain('r', Value::Buf(b"a\0".to_vec())), "a\\x00");
    }

    #[test]
    fn only_strings_that_are_literals_keep_control_characters() {
        let text = Value::Str(b"a\tb".to_vec(), false);
        assert_eq!(show(|d| (d.literal, d.width) = (true, 5), 's', text.clone()), "  a\tb");
        assert_eq!(show(|d| d.width = 5, 's', text), " a\\tb");
    }

    #[test]
    fn literals_of_the_script_are_not_escaped() {
        let pieces = [Piece::Text(b"\x1b[1m\xff".to_vec())];
        let manifest = manifest();
        assert_eq!(
            printf(&pieces, &[], Context { manifest: &manifest, names: &Fake, verbatim: false }),
            b"\x1b[1m\xff"
        );
    }
}
