//! Columns of numbers: compact while a recording is read, and as text in the page.
//!
//! ```text
//! values   ->  varints of the values, or of their differences  ->  deflate  ->  base64
//! ```
//!
//! The first byte of a column is its [`Form`]. The number of values is not part of it: the page has it elsewhere.
//! `js/columns.js` is the decoder.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// Values of a packed chunk.
const CHUNK: usize = 1 << 16;
/// Numbers of JavaScript are exact below 2^53. A difference has a sign bit.
const NARROW: u64 = 1 << 52;
/// Level of compression: higher ones take twice the time for 1 % of the size.
const LEVEL: u32 = 2;

/// A growing column of numbers. Full chunks are stored in as many bytes for each value as their range needs, so that ten million times
/// take 40 MB and not 80, and a column that grows is never copied.
#[derive(Debug, Default)]
pub(super) struct Column {
    full: Vec<Chunk>,
    tail: Vec<u64>,
}

/// A full chunk: its smallest value, and what to add to it for each value.
#[derive(Debug)]
struct Chunk {
    least: u64,
    more: Offsets,
}

#[derive(Debug)]
enum Offsets {
    Zero,
    U8(Box<[u8]>),
    U16(Box<[u16]>),
    U32(Box<[u32]>),
    U64(Box<[u64]>),
}

impl Chunk {
    fn new(values: &[u64]) -> Chunk {
        let least = values.iter().copied().min().unwrap_or(0);
        let range = values.iter().map(|value| value - least).max().unwrap_or(0);
        let more = values.iter().map(|value| value - least);
        let more = match range {
            0 => Offsets::Zero,
            1..=0xff => Offsets::U8(more.map(|value| value as u8).collect()),
            0x100..=0xffff => Offsets::U16(more.map(|value| value as u16).collect()),
            0x1_0000..=0xffff_ffff => Offsets::U32(more.map(|value| value as u32).collect()),
            _ => Offsets::U64(more.collect()),
        };
        Chunk { least, more }
    }

    fn get(&self, at: usize) -> u64 {
        self.least
            + match &self.more {
                Offsets::Zero => 0,
                Offsets::U8(more) => more[at].into(),
                Offsets::U16(more) => more[at].into(),
                Offsets::U32(more) => more[at].into(),
                Offsets::U64(more) => more[at],
            }
    }
}

impl Column {
    /// Appends a value.
    pub(super) fn push(&mut self, value: u64) {
        self.tail.push(value);
        if self.tail.len() == CHUNK {
            self.full.push(Chunk::new(&self.tail));
            self.tail.clear();
        }
    }

    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.full.len() * CHUNK + self.tail.len()
    }

    /// The value at a position.
    pub(super) fn get(&self, at: usize) -> u64 {
        match self.full.get(at / CHUNK) {
            Some(chunk) => chunk.get(at % CHUNK),
            None => self.tail[at % CHUNK],
        }
    }
}

/// The first byte of a column.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Form {
    /// Values.
    Plain = 0,
    /// Zigzag differences to the previous value; the first one is to 0.
    Differences = 1,
    /// Two columns, each with its form: the upper 32 bits of all values, then the lower ones.
    Wide = 2,
}

/// The bytes of a column, before compression.
pub(super) fn bytes(values: impl Iterator<Item = u64> + Clone) -> Vec<u8> {
    let mut out = Vec::new();
    if values.clone().all(|value| value < NARROW) {
        narrow(&mut out, values);
    } else {
        out.push(Form::Wide as u8);
        narrow(&mut out, values.clone().map(|value| value >> 32));
        narrow(&mut out, values.map(|value| value & 0xffff_ffff));
    }
    out
}

/// Differences are used if they are clearly shorter: deflate finds repetitions of values, and not those of differences.
fn narrow(out: &mut Vec<u8>, values: impl Iterator<Item = u64> + Clone) {
    let (mut plain, mut short) = (0, 0);
    let mut last = 0;
    for value in values.clone() {
        plain += length(value);
        short += length(difference(last, value));
        last = value;
    }
    if short * 4 >= plain * 3 {
        out.push(Form::Plain as u8);
        values.for_each(|value| varint(out, value));
        return;
    }
    out.push(Form::Differences as u8);
    let mut last = 0;
    for value in values {
        varint(out, difference(last, value));
        last = value;
    }
}

fn difference(last: u64, value: u64) -> u64 {
    zigzag(value.wrapping_sub(last) as i64)
}

/// A signed number as an unsigned one: 0, -1, 1, -2 are 0, 1, 2, 3.
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Bytes of a varint.
fn length(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Seven bits in a byte, the lowest first; the upper bit is set if more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends compressed bytes in base64.
pub(super) fn write(out: &mut String, bytes: &[u8]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(LEVEL));
    // A vector takes all bytes.
    let deflated = encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default();
    base64(out, &deflated);
}

fn base64(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.reserve(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize] as char;
            out.push(if at > three.len() { '=' } else { digit });
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    /// The bytes of a text in base64, decompressed.
    pub(in super::super) fn read(text: &str) -> Vec<u8> {
        let digit = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{c} is no digit"),
        };
        let mut deflated = Vec::new();
        for four in text.trim_end_matches('=').as_bytes().chunks(4) {
            let word =
                four.iter().fold(0, |word, c| word << 6 | u32::from(digit(*c))) << (6 * (4 - four.len()));
            deflated.extend(&word.to_be_bytes()[1..four.len()]);
        }
        let mut bytes = Vec::new();
        ZlibDecoder::new(&deflated[..]).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// The first `count` values of a column, and the bytes after them.
    pub(in super::super) fn values(bytes: &[u8], count: usize) -> (Vec<u64>, &[u8]) {
        let (form, mut rest) = bytes.split_first().unwrap();
        if *form == Form::Wide as u8 {
            let (upper, rest) = values(rest, count);
            let (lower, rest) = values(rest, count);
            return (upper.iter().zip(lower).map(|(upper, lower)| upper << 32 | lower).collect(), rest);
        }
        let mut last = 0u64;
        let mut next = || {
            let end = rest.iter().position(|byte| *byte < 0x80).unwrap();
            let (number, after) = rest.split_at(end + 1);
            rest = after;
            let value = number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
            last = match *form == Form::Plain as u8 {
                true => value,
                false => last.wrapping_add(value >> 1 ^ (value & 1).wrapping_neg()),
            };
            last
        };
        ((0..count).map(|_| next()).collect(), rest)
    }

    #[test]
    fn columns_come_back_as_they_were() {
        let edges = [0, 1, 127, 128, NARROW - 1, 300, 16_384, u64::from(u32::MAX), 1 << 40];
        let wide = [u64::MAX, 0, 1 << 63, NARROW, 5];
        let times: Vec<u64> = (0..100_000).map(|at| 1_700_000_000_000 + at * 1000 + at % 7).collect();
        let repeated = [7; 1000];
        for (values, form) in [
            (&edges[..], Form::Plain),
            (&wide, Form::Wide),
            (&times, Form::Differences),
            (&repeated, Form::Plain),
            (&[], Form::Plain),
        ] {
            let mut text = String::new();
            write(&mut text, &bytes(values.iter().copied()));
            let read = read(&text);
            assert_eq!(read[0], form as u8);
            let (found, rest) = self::values(&read, values.len());
            assert_eq!((&found[..], rest), (values, &[][..]));
        }
    }

    #[test]
    fn packed_chunks_keep_values_of_any_width() {
        let value = |at: usize| match at / CHUNK {
            0 => 1 << 60,
            1 => at as u64 % 200 + 5,
            2 => at as u64 % 60_000,
            3 => at as u64 * 9_999,
            4 => (at as u64) << 44,
            _ => at as u64,
        };
        let mut column = Column::default();
        let count = 5 * CHUNK + 10;
        (0..count).for_each(|at| column.push(value(at)));
        assert_eq!(column.len(), count);
        assert!((0..count).all(|at| column.get(at) == value(at)));
    }
}
