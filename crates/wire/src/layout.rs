//! Offsets of the parts of tuples, keys and event records. The only place that computes them.
//!
//! An event record is a fixed head and a tail of strings, each as long as it is:
//!
//! ```text
//! 0   u32 event id      4  u32 cpu
//! 8   u64 boot-clock ns
//! 16  u64 tgid << 32 | tid
//! 24  fields, naturally aligned; a string field is its length, u16, with LENGTH_TRUNCATED set if it was cut
//! head_size            the bytes of the first string, of the second, ... without NUL or padding
//! ```

use crate::types::Type;
use serde::{Deserialize, Serialize};

/// Bytes before the first field of a record.
pub const RECORD_HEADER: u32 = 24;
/// Offset of the event id, u32.
pub const RECORD_EVENT: u32 = 0;
/// Offset of the CPU, u32.
pub const RECORD_CPU: u32 = 4;
/// Offset of the time, u64, boot-clock ns.
pub const RECORD_TIME: u32 = 8;
/// Offset of `tgid << 32 | tid`, u64.
pub const RECORD_THREAD: u32 = 16;
/// Set in a string's length when the text was longer than its capacity.
pub const LENGTH_TRUNCATED: u16 = 0x8000;

/// Offsets of a sequence of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Of each value, in bytes.
    pub offsets: Vec<u32>,
    /// Bytes in all, a multiple of `align`.
    pub size: u32,
    /// Largest alignment.
    pub align: u32,
}

impl Offsets {
    /// The `(offset, length)` of the pad bytes between and behind `parts`, which a writer must zero.
    pub fn padding(&self, parts: &[Type]) -> Vec<(u32, u32)> {
        let ends = self.offsets.iter().zip(parts).map(|(offset, part)| offset + part.size());
        let next = self.offsets.iter().skip(1).copied().chain([self.size]);
        ends.zip(next).filter(|(end, next)| end < next).map(|(end, next)| (end, next - end)).collect()
    }
}

/// Lays values out one after the other, as a C struct does.
pub fn tuple(parts: &[Type]) -> Offsets {
    let align = parts.iter().map(Type::align).max().unwrap_or(1);
    let mut at = 0u32;
    let mut offsets = Vec::with_capacity(parts.len());
    for part in parts {
        at = at.next_multiple_of(part.align());
        offsets.push(at);
        at += part.size();
    }
    Offsets { offsets, size: at.next_multiple_of(align), align }
}

/// Layout of a map's key: its parts as a tuple. A scalar map has one key, a u32 0.
pub fn key(parts: &[Type]) -> Offsets {
    if parts.is_empty() { Offsets { offsets: vec![], size: 4, align: 4 } } else { tuple(parts) }
}

/// A value of an event record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its type. Strings travel in the tail, all else in the head.
    pub ty: Type,
    /// Bytes from the start of the record: of the value, or of a string's u16 length.
    pub offset: u32,
}

/// Layout of an event's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The values in order.
    pub fields: Vec<Field>,
    /// Where the tail begins; a multiple of 8.
    pub head_size: u32,
    /// Bytes of the tail at most.
    pub tail_max: u32,
}

impl Record {
    /// Lays out a record with these values.
    pub fn new(types: impl IntoIterator<Item = Type>) -> Record {
        let mut record = Record { fields: vec![], head_size: RECORD_HEADER, tail_max: 0 };
        for ty in types {
            let (size, align) = match &ty {
                Type::Str(capacity) => {
                    record.tail_max += capacity;
                    (2, 2)
                }
                other => (other.size(), other.align()),
            };
            let offset = record.head_size.next_multiple_of(align);
            record.head_size = offset + size;
            record.fields.push(Field { ty, offset });
        }
        record.head_size = record.head_size.next_multiple_of(8);
        record
    }

    /// `(offset, length)` of the head's pad bytes.
    pub fn padding(&self) -> Vec<(u32, u32)> {
        let mut at = RECORD_HEADER;
        let mut pads = Vec::new();
        for field in &self.fields {
            if at < field.offset {
                pads.push((at, field.offset - at));
            }
            at = field.offset + if matches!(field.ty, Type::Str(_)) { 2 } else { field.ty.size() };
        }
        if at < self.head_size {
            pads.push((at, self.head_size - at));
        }
        pads
    }

    /// Bytes of the largest record.
    pub fn max_size(&self) -> u32 {
        self.head_size + self.tail_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U32: Type = Type::Int { bytes: 4, signed: false };
    const U64: Type = Type::Int { bytes: 8, signed: false };

    #[test]
    fn a_tuple_is_aligned_like_a_c_struct_and_names_its_padding() {
        let parts = [U32, U64, Type::Bool];
        let offsets = tuple(&parts);
        assert_eq!((offsets.offsets.as_slice(), offsets.size, offsets.align), (&[0, 8, 16][..], 24, 8));
        assert_eq!(offsets.padding(&parts), [(4, 4), (17, 7)]);
    }

    #[test]
    fn strings_of_a_record_take_two_bytes_of_its_head() {
        let record = Record::new([U32, Type::Str(64), U64]);
        assert_eq!(record.fields.iter().map(|f| f.offset).collect::<Vec<_>>(), [24, 28, 32]);
        assert_eq!((record.head_size, record.tail_max), (40, 64));
        assert_eq!(record.padding(), [(30, 2)]);
    }
}
