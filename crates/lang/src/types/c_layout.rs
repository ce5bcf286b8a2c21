//! Offsets of the members of a C struct by the System V ABI, which is the same for x86-64 and arm64 in the cases used here.
//!
//! ```text
//! struct { char a; int b; int c : 3; int d : 30; }     a 0, b 4, c 8 bits 0..3, d 12 bits 0..30; size 16
//! ```

use rustc_hash::FxHashSet;

use crate::hir::{Bits, Field, Struct, Type};

/// A struct under construction.
pub(crate) struct Layout {
    union: bool,
    packed: bool,
    /// Number of bits used so far; for a union those of its largest member.
    used: u64,
    align: u32,
    fields: Vec<Field>,
    names: FxHashSet<String>,
}

/// The members of a struct with their positions.
pub(crate) struct MemberLayout {
    /// Size of the struct in bytes.
    pub size: u32,
    /// Alignment of the struct in bytes.
    pub align: u32,
    /// Members in the order of their declarations.
    pub fields: Vec<Field>,
}

impl Layout {
    /// An empty struct.
    pub(crate) fn new(union: bool, packed: bool) -> Layout {
        Layout { union, packed, used: 0, align: 1, fields: Vec::new(), names: FxHashSet::default() }
    }

    /// Whether there is a member of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn push(&mut self, field: Field) {
        self.names.insert(field.name.clone());
        self.fields.push(field);
    }

    /// Allocates `bits` with an alignment, and returns their position.
    fn room(&mut self, bits: u64, align_bits: u64) -> u64 {
        let start = if self.union { 0 } else { self.used.next_multiple_of(align_bits.max(1)) };
        self.used = self.used.max(start + bits);
        start
    }

    /// `int x;`
    pub(crate) fn field(&mut self, name: &str, ty: Type, float: bool, size: u32, align: u32) {
        let align = if self.packed { 1 } else { align };
        self.align = self.align.max(align);
        let at = self.room(u64::from(size) * 8, u64::from(align) * 8);
        self.push(Field { name: name.into(), offset: (at / 8) as u32, ty, bits: None, float, named: None });
    }

    /// `int x : 3;`, in an integer of `size` bytes. It does not straddle two such integers, except in packed
    /// structs.
    pub(crate) fn bits(&mut self, name: &str, ty: Type, size: u32, count: u8) {
        let unit = u64::from(size) * 8;
        if count == 0 {
            self.room(0, unit);
            return;
        }
        let bits = u64::from(count);
        let straddles = !self.union && self.used % unit + bits > unit;
        let start = self.room(bits, if straddles && !self.packed { unit } else { 1 });
        if name.is_empty() {
            return;
        }
        if !self.packed {
            self.align = self.align.max(size);
        }
        let at = if start % unit + bits > unit { start / 8 * 8 } else { start / unit * unit };
        let bits = Bits { first: (start - at) as u8, count };
        let field = Field {
            name: name.into(),
            offset: (at / 8) as u32,
            ty,
            bits: Some(bits),
            float: false,
            named: None,
        };
        self.push(field);
    }

    /// Adds the members of an unnamed struct or union.
    pub(crate) fn embed(&mut self, inner: &Struct) {
        let align = if self.packed { 1 } else { inner.align };
        self.align = self.align.max(align);
        let start = (self.room(u64::from(inner.size) * 8, u64::from(align) * 8) / 8) as u32;
        for field in &inner.fields {
            self.push(Field { offset: start + field.offset, ..field.clone() });
        }
    }

    /// The positions of all members, with at least the alignment `align`.
    pub(crate) fn finish(self, align: Option<u32>) -> MemberLayout {
        let align = self.align.max(align.unwrap_or(1)).max(1);
        let bytes = u32::try_from(self.used.div_ceil(8)).unwrap_or(u32::MAX - align);
        MemberLayout { size: bytes.next_multiple_of(align), align, fields: self.fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offset in bytes, and for a bit-field its first bit and number of bits.
    type Place = (u32, Option<(u8, u8)>);

    fn places(layout: Layout) -> (u32, u32, Vec<Place>) {
        let MemberLayout { size, align, fields } = layout.finish(None);
        let bits = |field: &Field| field.bits.map(|bits| (bits.first, bits.count));
        (size, align, fields.iter().map(|field| (field.offset, bits(field))).collect())
    }

    #[test]
    fn members_are_aligned_and_the_end_is_filled_up() {
        let mut layout = Layout::new(false, false);
        layout.field("a", Type::Bool, false, 1, 1);
        layout.field("b", Type::I64, false, 8, 8);
        layout.field("c", Type::I32, false, 4, 4);
        assert_eq!(places(layout), (24, 8, vec![(0, None), (8, None), (16, None)]));
    }

    #[test]
    fn packed_members_lie_without_gaps() {
        let mut layout = Layout::new(false, true);
        layout.field("a", Type::Bool, false, 1, 1);
        layout.field("b", Type::I64, false, 8, 8);
        assert_eq!(places(layout), (9, 1, vec![(0, None), (1, None)]));
    }

    #[test]
    fn bit_fields_share_an_integer_and_do_not_straddle_two() {
        let mut layout = Layout::new(false, false);
        layout.bits("a", Type::I32, 4, 3);
        layout.bits("b", Type::I32, 4, 29);
        layout.bits("c", Type::I32, 4, 30);
        layout.bits("", Type::I32, 4, 0);
        layout.bits("d", Type::Bool, 1, 1);
        let bits = vec![(0, Some((0, 3))), (0, Some((3, 29))), (4, Some((0, 30))), (8, Some((0, 1)))];
        assert_eq!(places(layout), (12, 4, bits));
    }

    #[test]
    fn members_of_a_union_begin_together() {
        let mut layout = Layout::new(true, false);
        layout.field("a", Type::I64, false, 8, 8);
        layout.field("b", Type::I32, false, 4, 4);
        assert_eq!(places(layout), (8, 8, vec![(0, None), (0, None)]));
    }
}
