//! A streaming JSON writer, without a tree.

use super::{Data, Enumerator};
use std::fmt::Write as _;

/// Largest integer that a double represents exactly, together with all smaller ones.
const EXACT: i128 = 1 << 53;

/// Appends a quoted string. Control characters, and characters that change the direction of text, are escaped.
pub fn string(out: &mut String, text: &str) {
    out.push('"');
    // The common case.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        if !is_special(c) {
            continue;
        }
        out.push_str(&text[plain..at]);
        plain = at + c.len_utf8();
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => _ = write!(out, "\\u{:04x}", c as u32),
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

fn is_special(c: char) -> bool {
    matches!(c, '"' | '\\' | '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends digits; the formatter of the standard library takes several times as long.
pub fn digits(out: &mut String, value: impl itoa::Integer) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// Appends an integer, as a string if a double cannot represent it.
pub fn integer(out: &mut String, value: i128) {
    let quote = if value.abs() <= EXACT { "" } else { "\"" };
    out.push_str(quote);
    match i64::try_from(value) {
        Ok(value) => digits(out, value),
        Err(_) => digits(out, value),
    }
    out.push_str(quote);
}

/// `"0x7f00"`
pub fn hex(out: &mut String, value: u64) {
    out.push_str("\"0x");
    hex_digits(out, value, (u64::BITS - value.leading_zeros()).div_ceil(4).max(1));
    out.push('"');
}

/// Appends the lowest `count` hexadecimal digits of a number: `00ab`
pub fn hex_digits(out: &mut String, value: u64, count: u32) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    (0..count).rev().for_each(|at| out.push(DIGITS[(value >> (4 * at) & 0xf) as usize] as char));
}

/// Appends a value: enums as name and number, handles in hex, stacks as lists of frames.
pub fn data(out: &mut String, data: &Data) {
    match data {
        Data::None => out.push_str("null"),
        Data::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Data::Int(value) => integer(out, i128::from(*value)),
        Data::Uint(value) => integer(out, i128::from(*value)),
        Data::Handle(value) => hex(out, *value),
        Data::Enum(of) => {
            out.push('{');
            enumerator(out, of);
        }
        Data::Text(text) => string(out, text),
        Data::Stack(frames) => list(out, frames.iter(), frame),
        Data::List(parts) => list(out, parts.iter(), self::data),
        Data::Map(members) => object(out, members.iter().map(|(name, value)| (&**name, value)), self::data),
    }
}

/// `"name":"CUDA_SUCCESS","value":0}`
pub fn enumerator(out: &mut String, of: &Enumerator) {
    out.push_str("\"name\":");
    match &of.name {
        Some(name) => string(out, name),
        None => out.push_str("null"),
    }
    out.push_str(",\"value\":");
    digits(out, of.value);
    out.push('}');
}

/// `[a,b]`
pub fn list<T>(out: &mut String, parts: impl Iterator<Item = T>, each: impl Fn(&mut String, T)) {
    out.push('[');
    for (at, part) in parts.enumerate() {
        if at > 0 {
            out.push(',');
        }
        each(out, part);
    }
    out.push(']');
}

/// `{"a":1}`
pub fn object<'k, T>(
    out: &mut String,
    members: impl Iterator<Item = (&'k str, T)>,
    each: impl Fn(&mut String, T),
) {
    out.push('{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(',');
        }
        string(out, name);
        out.push(':');
        each(out, value);
    }
    out.push('}');
}

/// `{"pc":"0x10","symbol":"main","offset":16,"module":"/bin/a","file":"a.c","line":3}`, without unknown members.
fn frame(out: &mut String, frame: &crate::Frame) {
    out.push_str("{\"pc\":");
    hex(out, frame.address);
    if let Some(symbol) = &frame.symbol {
        out.push_str(",\"symbol\":");
        string(out, symbol);
        let _ = write!(out, ",\"offset\":{}", frame.offset);
    }
    if let Some(module) = &frame.module {
        out.push_str(",\"module\":");
        string(out, module);
    }
    if let Some((file, line)) = &frame.source {
        out.push_str(",\"file\":");
        string(out, file);
        let _ = write!(out, ",\"line\":{line}");
    }
    if frame.inlined {
        out.push_str(",\"inlined\":true");
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn hostile_strings_are_valid_json_and_keep_what_they_say() {
        let text = "a\"b\\c\n\x1b[2J\u{9b}\u{202e}漢\u{fffd}";
        let json = written(|out| string(out, text));
        assert!(json.is_ascii() || !json.contains('\u{202e}'));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn numbers() {
        for value in [0, 1, 0xf, 0x10, 0x7f00_1234, u64::MAX] {
            assert_eq!(written(|out| hex(out, value)), format!("\"{value:#x}\""));
        }
        assert_eq!(written(|out| integer(out, i128::from(u64::MAX))), "\"18446744073709551615\"");
    }

    #[test]
    fn integers_that_a_double_changes_are_strings() {
        assert_eq!(written(|out| integer(out, 1 << 53)), "9007199254740992");
        assert_eq!(written(|out| integer(out, (1 << 53) + 1)), "\"9007199254740993\"");
        assert_eq!(written(|out| integer(out, i128::from(i64::MIN))), "\"-9223372036854775808\"");
    }
}
