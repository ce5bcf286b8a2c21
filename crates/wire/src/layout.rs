//! Layout of event records, tuples and keys.
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
pub use crate::types::{Offsets, key, tuple};
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
/// Flag in a string's length: the text was longer than its capacity.
pub const LENGTH_TRUNCATED: u16 = 0x8000;

/// The `(offset, length)` of bytes that are padding in the C structs of a type: equal values may differ in them.
pub fn gaps(ty: &Type) -> Vec<(u32, u32)> {
    if !has_struct(ty) {
        return Vec::new();
    }
    let mut covered = vec![false; ty.size() as usize];
    cover(ty, 0, &mut covered);
    let mut at = 0;
    let runs = covered.chunk_by(|a, b| a == b).map(|run| {
        let start = at;
        at += run.len();
        (!run[0]).then_some((start as u32, run.len() as u32))
    });
    runs.flatten().collect()
}

fn has_struct(ty: &Type) -> bool {
    match ty {
        Type::Struct(_) => true,
        Type::Array(element, _) => has_struct(element),
        Type::Tuple(parts) | Type::Record(_, parts) => parts.iter().any(has_struct),
        _ => false,
    }
}

/// Marks the bytes of a value at `at`.
fn cover(ty: &Type, at: u32, covered: &mut [bool]) {
    let mut mark = |at: u32, len: u32| covered[at as usize..(at + len) as usize].fill(true);
    match ty {
        Type::Struct(def) if !def.members.is_empty() => {
            def.members.iter().for_each(|member| cover(&member.ty, at + member.offset, covered));
        }
        Type::Array(element, count) => {
            (0..*count).for_each(|n| cover(element, at + n * element.size(), covered));
        }
        Type::Tuple(parts) | Type::Record(_, parts) => {
            let layout = tuple(parts);
            layout.padding(parts).into_iter().for_each(|(pad, len)| mark(at + pad, len));
            parts.iter().zip(layout.offsets).for_each(|(part, offset)| cover(part, at + offset, covered));
        }
        ty => mark(at, ty.size()),
    }
}

/// A value of an event record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Type. Strings are in the tail, all other values in the head.
    pub ty: Type,
    /// Offset in bytes from the start of the record: of the value, or of the u16 length of a string.
    pub offset: u32,
}

/// Layout of an event's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The values in order.
    pub fields: Vec<Field>,
    /// Offset of the tail; a multiple of 8.
    pub head_size: u32,
    /// Largest size of the tail in bytes.
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

    /// `(offset, length)` of the padding in the head.
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

    /// Size of the largest record in bytes.
    pub fn max_size(&self) -> u32 {
        self.head_size + self.tail_max
    }
}

#[cfg(test)]
mod tests {
    use crate::types::{Member, Struct};

    #[test]
    fn gaps_are_between_members_and_behind_the_last() {
        let int = |bytes| Type::Int { bytes, signed: true };
        let member = |offset, ty| Member { name: String::new(), offset, ty, bits: None };
        let def = |size, members| Type::Struct(Struct { size, align: 4, members });
        let odd = def(12, vec![member(0, int(1)), member(4, int(4)), member(8, int(2))]);
        assert_eq!(gaps(&odd), [(1, 3), (10, 2)]);
        let union = def(12, vec![member(0, odd.clone()), member(0, int(8))]);
        assert_eq!(gaps(&union), [(10, 2)]);
        assert_eq!(gaps(&Type::Tuple(vec![int(1), odd])), [(5, 3), (14, 2)]);
        assert_eq!(gaps(&Type::Tuple(vec![int(1), int(4)])), []);
    }

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
