//! Decodes records to values. Malformed records are errors, never panics.

use crate::layout::{self, Record};
use crate::types::{Lookup, Member, NameKind, StackMode, Type};

/// A value read from a record or a map. Names, enums, symbols and stacks are still ids, not text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// `true`
    Bool(bool),
    /// Signed integer of `bytes` bytes.
    Int(i64, u8),
    /// Unsigned integer of `bytes` bytes.
    Uint(u64, u8),
    /// Value of the enum with this index in the manifest.
    Enum(u32, i64),
    /// Address or handle.
    Pointer(u64),
    /// Bytes without NUL, and whether the string was truncated.
    Str(Vec<u8>, bool),
    /// `(a, b)`
    Tuple(Vec<Value>),
    /// `(a = 1, b = 2)`, or a C struct.
    Record(Vec<(String, Value)>),
    /// Elements of an array.
    Array(Vec<Value>),
    /// Index into a table of names.
    Name(NameKind, u32),
    /// Code address in a process.
    Usym {
        /// Address.
        address: u64,
        /// Process.
        tgid: u32,
    },
    /// Key of a stack map.
    Stack {
        /// Index of the stack map in the manifest.
        map: u32,
        /// Key, `u32::MAX` for none.
        id: u32,
        /// Process.
        tgid: u32,
        /// Print format.
        mode: StackMode,
    },
    /// Boot-clock ns, and the strftime format.
    Timestamp(u64, String),
    /// A number that is resolved when it is printed.
    Lookup(Lookup, i64),
    /// Bytes.
    Buf(Vec<u8>),
    /// Address of a host: `AF_INET` or `AF_INET6`, and its bytes in network order.
    Inet(u32, [u8; 16]),
    /// One of several variants: index of the variant in its type, its value, and what the first of them with a unit looks up.
    Either(usize, Box<Value>, Option<Lookup>),
}

/// Header of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Index into the manifest's events.
    pub event: u32,
    /// CPU that wrote it.
    pub cpu: u32,
    /// Boot-clock ns.
    pub time_ns: u64,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
}

/// Where a run of a program goes on: the records of a run have the same, and two runs at a time have different ones.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    tgid: u32,
    tid: u32,
    cpu: u32,
}

impl Header {
    /// Where it was written. A thread may move to another CPU during a run in a traced process, so that the CPU only tells the idle
    /// tasks apart, all of which have number 0.
    pub fn place(&self) -> Place {
        let cpu = if self.tid == 0 { self.cpu } else { 0 };
        Place { tgid: self.tgid, tid: self.tid, cpu }
    }
}

/// The reason why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The record ends before a value of its layout.
    Short {
        /// Bytes needed.
        needed: usize,
        /// Bytes present.
        found: usize,
    },
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DecodeError::Short { needed, found } = self;
        write!(f, "record ends after {found} bytes, expected {needed}")
    }
}

impl std::error::Error for DecodeError {}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], DecodeError> {
    let slice = slice(data, at, N)?;
    Ok(slice.try_into().expect("of length N"))
}

fn slice(data: &[u8], at: usize, len: usize) -> Result<&[u8], DecodeError> {
    let needed = at.saturating_add(len);
    data.get(at..needed).ok_or(DecodeError::Short { needed, found: data.len() })
}

fn unsigned(data: &[u8], at: usize, size: u8) -> Result<u64, DecodeError> {
    let mut word = [0; 8];
    word[..size as usize].copy_from_slice(slice(data, at, size as usize)?);
    Ok(u64::from_le_bytes(word))
}

fn sign_extend(value: u64, size: u8) -> i64 {
    let shift = 64 - 8 * u32::from(size);
    ((value << shift) as i64) >> shift
}

/// Reads a record's header.
pub fn header(data: &[u8]) -> Result<Header, DecodeError> {
    let thread = u64::from_le_bytes(bytes(data, layout::RECORD_THREAD as usize)?);
    Ok(Header {
        event: u32::from_le_bytes(bytes(data, layout::RECORD_EVENT as usize)?),
        cpu: u32::from_le_bytes(bytes(data, layout::RECORD_CPU as usize)?),
        time_ns: u64::from_le_bytes(bytes(data, layout::RECORD_TIME as usize)?),
        tgid: (thread >> 32) as u32,
        tid: thread as u32,
    })
}

/// Reads the values of a record.
pub fn record(data: &[u8], record: &Record) -> Result<Vec<Value>, DecodeError> {
    let mut tail = record.head_size as usize;
    let mut values = Vec::with_capacity(record.fields.len());
    for field in &record.fields {
        let at = field.offset as usize;
        values.push(match &field.ty {
            Type::Str(_) => {
                let word = u16::from_le_bytes(bytes(data, at)?);
                let len = (word & !layout::LENGTH_TRUNCATED) as usize;
                let text = slice(data, tail, len)?.to_vec();
                tail += len;
                Value::Str(text, word & layout::LENGTH_TRUNCATED != 0)
            }
            other => value(data, at, other)?,
        });
    }
    Ok(values)
}

/// Reads a value of type `ty` at `at`, in its memory format (maps, keys).
pub fn value(data: &[u8], at: usize, ty: &Type) -> Result<Value, DecodeError> {
    Ok(match ty {
        Type::Bool => Value::Bool(unsigned(data, at, 1)? != 0),
        Type::Int { bytes, signed: true } => {
            Value::Int(sign_extend(unsigned(data, at, *bytes)?, *bytes), *bytes)
        }
        Type::Int { bytes, signed: false } => Value::Uint(unsigned(data, at, *bytes)?, *bytes),
        Type::Enum { id, signed: true } => Value::Enum(*id, sign_extend(unsigned(data, at, 4)?, 4)),
        Type::Enum { id, signed: false } => Value::Enum(*id, unsigned(data, at, 4)? as i64),
        Type::Pointer => Value::Pointer(unsigned(data, at, 8)?),
        Type::Str(capacity) => {
            let text = slice(data, at, *capacity as usize)?;
            let end = text.iter().position(|&b| b == 0);
            Value::Str(text[..end.unwrap_or(text.len())].to_vec(), end.is_none())
        }
        Type::Tuple(parts) => Value::Tuple(values(data, at, parts)?),
        Type::Record(names, parts) => {
            Value::Record(names.iter().cloned().zip(values(data, at, parts)?).collect())
        }
        Type::Struct(def) => {
            let member = |m: &Member| Ok((m.name.clone(), member(data, at, m)?));
            Value::Record(def.members.iter().map(member).collect::<Result<_, _>>()?)
        }
        Type::Array(element, count) => {
            let size = element.size() as usize;
            let element = |n: u32| value(data, at + n as usize * size, element);
            Value::Array((0..*count).map(element).collect::<Result<_, _>>()?)
        }
        Type::Chars(count) => {
            let text = slice(data, at, *count as usize)?;
            let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
            Value::Str(text[..end].to_vec(), false)
        }
        Type::Name(kind) => Value::Name(*kind, unsigned(data, at, 4)? as u32),
        Type::Usym => {
            Value::Usym { address: unsigned(data, at, 8)?, tgid: unsigned(data, at + 8, 4)? as u32 }
        }
        Type::Stack { map, mode } => Value::Stack {
            map: *map,
            id: unsigned(data, at, 4)? as u32,
            tgid: unsigned(data, at + 4, 4)? as u32,
            mode: *mode,
        },
        Type::Timestamp(format) => Value::Timestamp(unsigned(data, at, 8)?, format.clone()),
        Type::Float(4) => Value::Lookup(Lookup::Float, unsigned(data, at, 4)? as i64),
        Type::Float(8) => Value::Lookup(Lookup::Double, unsigned(data, at, 8)? as i64),
        Type::Float(_) => {
            let (mantissa, head) = (unsigned(data, at, 8)?, unsigned(data, at + 8, 2)?);
            Value::Lookup(Lookup::Double, extended(mantissa, head as u16).to_bits() as i64)
        }
        Type::Lookup(lookup) => Value::Lookup(*lookup, unsigned(data, at, 8)? as i64),
        Type::Buf(capacity) => {
            let len = unsigned(data, at, 4)?.min(u64::from(*capacity)) as usize;
            Value::Buf(slice(data, at + 4, *capacity as usize)?[..len].to_vec())
        }
        Type::Inet => Value::Inet(unsigned(data, at, 4)? as u32, bytes(data, at + 4)?),
        Type::Either(parts) => {
            // The first part is the index of the variant; an invalid one is clamped. A missing value of a map has none, and is no text.
            let which = (unsigned(data, at, 4)? as usize).min(parts.len().max(2) - 1);
            let unit = parts.iter().find_map(|part| match part {
                Type::Lookup(what) if what.unit().is_some() => Some(*what),
                _ => None,
            });
            if which == 0 {
                return Ok(Value::Either(0, Box::new(Value::Str(vec![], false)), unit));
            }
            let part = parts.get(which).ok_or(DecodeError::Short { needed: at, found: at })?;
            let offset = layout::tuple(parts).offsets[which] as usize;
            Value::Either(which, Box::new(value(data, at + offset, part)?), unit)
        }
    })
}

/// The value of an x87 extended number: a mantissa without a hidden bit; the sign precedes the exponent.
fn extended(mantissa: u64, head: u16) -> f64 {
    const BIAS: i32 = 16383 + 63;
    const HIGHEST: u16 = 0x7fff;
    let size = match head & HIGHEST {
        HIGHEST if mantissa << 1 != 0 => f64::NAN,
        HIGHEST => f64::INFINITY,
        // The scaling is in two steps: a single power of two could overflow although the result does not.
        exponent => {
            let exponent = i32::from(exponent) - BIAS;
            mantissa as f64 * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
        }
    };
    if head > HIGHEST { -size } else { size }
}

/// Reads consecutive values.
fn values(data: &[u8], at: usize, types: &[Type]) -> Result<Vec<Value>, DecodeError> {
    let offsets = layout::tuple(types).offsets;
    types.iter().zip(offsets).map(|(ty, offset)| value(data, at + offset as usize, ty)).collect()
}

/// Reads a member of the struct at `at`.
fn member(data: &[u8], at: usize, member: &Member) -> Result<Value, DecodeError> {
    let whole = value(data, at + member.offset as usize, &member.ty)?;
    let Some((first, count)) = member.bits else { return Ok(whole) };
    let up = 64u32.saturating_sub(u32::from(first) + u32::from(count));
    let down = 64u32.saturating_sub(u32::from(count));
    let unsigned = |word: u64| word.wrapping_shl(up).wrapping_shr(down);
    let signed = |word: i64| word.wrapping_shl(up).wrapping_shr(down);
    Ok(match whole {
        Value::Int(word, bytes) => Value::Int(signed(word), bytes),
        Value::Enum(id, word) if matches!(member.ty, Type::Enum { signed: true, .. }) => {
            Value::Enum(id, signed(word))
        }
        Value::Uint(word, bytes) => Value::Uint(unsigned(word), bytes),
        Value::Enum(id, word) => Value::Enum(id, unsigned(word as u64) as i64),
        // A bool is read as a whole byte: the value is that of its bits.
        Value::Bool(_) => {
            let byte = slice(data, at + member.offset as usize, 1)?[0];
            Value::Bool(unsigned(u64::from(byte)) != 0)
        }
        other => other,
    })
}

/// Reads a map's key.
pub fn key(data: &[u8], parts: &[Type]) -> Result<Vec<Value>, DecodeError> {
    let offsets = layout::key(parts).offsets;
    parts.iter().zip(offsets).map(|(ty, offset)| value(data, offset as usize, ty)).collect()
}
