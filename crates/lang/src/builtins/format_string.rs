//! Format strings of `printf`: text with directives such as `%-8d`.
//!
//! Grammar: `%[-][+][space][#][0][width][.precision][length]conversion`. A `*` is parsed and ignored.
//! Not here: whether the arguments match the directives, and which of them are registers (`check`).

use crate::hir::{Directive, Piece};

/// An invalid directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Byte offset of the `%`.
    pub offset: usize,
    /// Error and help in one line.
    pub message: String,
}

/// Conversions of two letters, with their letter in a [`Piece`].
const LONG: &[(&[u8], char)] = &[(b"rx", 'R'), (b"rh", 'H'), (b"gr", 'G')];

/// The text of a conversion.
pub fn written(conversion: char) -> String {
    match LONG.iter().find(|(_, letter)| *letter == conversion) {
        Some((text, _)) => String::from_utf8_lossy(text).into_owned(),
        None => conversion.to_string(),
    }
}

/// Conversions of one letter; `i` prints as `d`.
const SHORT: &[(u8, char)] = &[
    (b'd', 'd'),
    (b'i', 'd'),
    (b'o', 'o'),
    (b'u', 'u'),
    (b'x', 'x'),
    (b'X', 'X'),
    (b'c', 'c'),
    (b'p', 'p'),
    (b'f', 'f'),
    (b's', 's'),
    (b'r', 'r'),
];

/// Lengths, with their bytes.
const LENGTHS: &[(&[u8], u8)] =
    &[(b"hh", 1), (b"h", 2), (b"ll", 8), (b"l", 8), (b"j", 8), (b"z", 8), (b"t", 8), (b"L", 8)];

/// Upper bound of a width, so that one event cannot print gigabytes.
const MAX_WIDTH: u32 = 4096;

/// Splits a format into text and directives.
///
/// ```
/// use lang::hir::{Directive, Piece};
/// let pieces = lang::builtins::format_string::parse_format(b"100%% of %-8s").unwrap();
/// assert_eq!(pieces[0], Piece::Text(b"100% of ".to_vec()));
/// let padded = Directive { left: true, width: 8, conversion: 's', ..Directive::default() };
/// assert_eq!(pieces[1], Piece::Directive(padded));
/// ```
pub fn parse_format(text: &[u8]) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Vec::new();
    let mut plain = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'%' {
            plain.push(text[at]);
            at += 1;
        } else if text.get(at + 1) == Some(&b'%') {
            plain.push(b'%');
            at += 2;
        } else if text.get(at + 1).is_none_or(u8::is_ascii_control) {
            // C's printf prints it, too.
            plain.push(b'%');
            at += 1;
        } else {
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            let (piece, length) = directive(&text[at..], at)?;
            pieces.push(piece);
            at += length;
        }
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// The unread part of a directive.
struct Cursor<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl Cursor<'_> {
    fn take(&mut self, text: &[u8]) -> bool {
        let taken = self.rest.strip_prefix(text);
        self.rest = taken.unwrap_or(self.rest);
        taken.is_some()
    }

    fn error<T>(&self, message: String) -> Result<T, FormatError> {
        Err(FormatError { offset: self.offset, message })
    }

    fn number(&mut self) -> Result<Option<u32>, FormatError> {
        let count = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        let value = digits.iter().fold(0u32, |n, b| n.saturating_mul(10).saturating_add(u32::from(b - b'0')));
        match value {
            _ if value > MAX_WIDTH => {
                self.error(format!("a width of {value} is more than the limit of {MAX_WIDTH}"))
            }
            _ => Ok((count > 0).then_some(value)),
        }
    }

    fn conversion(&mut self) -> Result<char, FormatError> {
        if let Some((_, letter)) = LONG.iter().find(|(text, _)| self.rest.starts_with(text)) {
            self.rest = &self.rest[2..];
            return Ok(*letter);
        }
        let Some((&first, rest)) = self.rest.split_first() else {
            return self.error("the format ends inside a directive; a percent sign is written `%%`".into());
        };
        self.rest = rest;
        match SHORT.iter().find(|(letter, _)| *letter == first) {
            Some((_, letter)) => Ok(*letter),
            None => self.error(unknown(first)),
        }
    }
}

fn unknown(letter: u8) -> String {
    match letter {
        b'F' | b'e' | b'E' | b'g' | b'G' | b'a' => {
            format!("`%{}` is not supported; print floating-point numbers with `%f` or `%s`", letter as char)
        }
        b'n' => "`%n` is not supported".into(),
        b'D' | b'I' | b'U' | b'S' | b'C' | b'P' | b'R' => {
            format!(
                "`%{}` is not a directive: did you mean `%{}`?",
                letter as char,
                letter.to_ascii_lowercase() as char
            )
        }
        b' '..=b'~' => format!(
            "`%{}` is not a directive; directives are `%d %i %u %x %X %o %p %c %f %s %r %rx %rh %gr`, and `%%` for a percent sign",
            letter as char
        ),
        _ => "no directive follows the `%`; a percent sign is written `%%`".into(),
    }
}

fn directive(text: &[u8], offset: usize) -> Result<(Piece, usize), FormatError> {
    let mut cursor = Cursor { rest: &text[1..], offset };
    let mut directive = Directive::default();
    loop {
        match cursor.rest.first() {
            Some(b'-') => directive.left = true,
            Some(b'+') => directive.plus = true,
            Some(b' ') => directive.space = true,
            Some(b'#') => directive.alternate = true,
            Some(b'0') => directive.zero = true,
            Some(b'*') => {}
            _ => break,
        }
        cursor.rest = &cursor.rest[1..];
    }
    directive.width = cursor.number()?.unwrap_or(0);
    directive.precision = if cursor.take(b".") { Some(cursor.number()?.unwrap_or(0)) } else { None };
    directive.length = LENGTHS.iter().find(|(text, _)| cursor.take(text)).map_or(0, |(_, bytes)| *bytes);
    directive.conversion = cursor.conversion()?;
    Ok((Piece::Directive(directive), text.len() - cursor.rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Piece {
        let pieces = parse_format(text.as_bytes()).unwrap();
        assert_eq!(pieces.len(), 1, "{text}");
        pieces[0].clone()
    }

    fn plain(conversion: char, length: u8) -> Piece {
        Piece::Directive(Directive { length, conversion, ..Directive::default() })
    }

    #[test]
    fn conversions_with_any_length() {
        for (text, letter, length) in [
            ("%d", 'd', 0),
            ("%i", 'd', 0),
            ("%llu", 'u', 8),
            ("%hhx", 'x', 1),
            ("%hd", 'd', 2),
            ("%lX", 'X', 8),
            ("%zo", 'o', 8),
            ("%p", 'p', 0),
            ("%c", 'c', 0),
            ("%s", 's', 0),
            ("%r", 'r', 0),
            ("%rx", 'R', 0),
            ("%rh", 'H', 0),
            ("%gr", 'G', 0),
        ] {
            assert_eq!(one(text), plain(letter, length), "{text}");
        }
    }

    #[test]
    fn flags_width_precision() {
        let piece = one("%-+ #012.5ld");
        assert_eq!(
            piece,
            Piece::Directive(Directive {
                left: true,
                plus: true,
                space: true,
                alternate: true,
                zero: true,
                width: 12,
                precision: Some(5),
                length: 8,
                register: false,
                literal: false,
                conversion: 'd'
            })
        );
    }

    #[test]
    fn text_and_percent() {
        let pieces = parse_format(b"a%%b%dc\xff").unwrap();
        assert_eq!(pieces, [Piece::Text(b"a%b".to_vec()), plain('d', 0), Piece::Text(b"c\xff".to_vec())]);
        assert_eq!(parse_format(b""), Ok(vec![]));
        let pieces = parse_format(b"%d%\n%").unwrap();
        assert_eq!(pieces, [plain('d', 0), Piece::Text(b"%\n%".to_vec())]);
    }

    #[test]
    fn invalid_directives() {
        for (text, offset, word) in [
            ("%d %-5", 3, "ends inside"),
            ("%y", 0, "`%y` is not a directive"),
            ("%D", 0, "did you mean `%d`?"),
            ("%5\n", 0, "no directive follows"),
            ("%99999999999d", 0, "more than the limit"),
        ] {
            let error = parse_format(text.as_bytes()).unwrap_err();
            assert_eq!(error.offset, offset, "{text}");
            assert!(error.message.contains(word), "{text}: {}", error.message);
        }
    }
}
