//! Types: an entry without its typedefs and qualifiers, and its spelling in C.

use gimli::constants::{
    DW_AT_bit_offset, DW_AT_bit_size, DW_AT_byte_size, DW_AT_const_value, DW_AT_count, DW_AT_data_bit_offset,
    DW_AT_data_member_location, DW_AT_encoding, DW_AT_external, DW_AT_lower_bound, DW_AT_signature,
    DW_AT_upper_bound, DW_ATE_UTF, DW_ATE_boolean, DW_ATE_float, DW_ATE_signed, DW_ATE_signed_char,
    DW_ATE_unsigned, DW_ATE_unsigned_char, DW_TAG_array_type, DW_TAG_atomic_type, DW_TAG_base_type,
    DW_TAG_class_type, DW_TAG_const_type, DW_TAG_enumeration_type, DW_TAG_enumerator,
    DW_TAG_formal_parameter, DW_TAG_immutable_type, DW_TAG_inheritance, DW_TAG_member, DW_TAG_pointer_type,
    DW_TAG_ptr_to_member_type, DW_TAG_reference_type, DW_TAG_restrict_type, DW_TAG_rvalue_reference_type,
    DW_TAG_structure_type, DW_TAG_subrange_type, DW_TAG_subroutine_type, DW_TAG_typedef, DW_TAG_union_type,
    DW_TAG_unspecified_type, DW_TAG_volatile_type, DwAte,
};
use lang::catalog::FileId;
use lang::catalog::debug_info::{Field, Kind, Type, TypeId};

use super::Debug;
use super::entry::Entry;
use super::units::{MOST_SPLITS, Part, Place};

/// Limit of chains and nesting of types.
const LEVELS: usize = 32;

/// A type that is encoded in a [`TypeId`]: an entry, or a type derived from one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    place: Place,
    /// True for a pointer to the entry.
    pointer: bool,
    /// Number of leading dimensions that were removed from an array.
    dimensions: u8,
}

const POINTER: u64 = 1 << 63;
const PART: u32 = 61;
const DIMENSIONS: u32 = 56;
/// Number of the split unit, above its offset: sections of one unit are smaller than 64 GiB.
const SPLIT: u32 = 36;
/// The offset is in the section of type units.
const SPLIT_TYPES: u64 = 1 << (DIMENSIONS - 1);
const _: () = assert!(MOST_SPLITS < 1 << (DIMENSIONS - 1 - SPLIT));

impl Ref {
    pub(super) fn to(place: Place) -> Ref {
        Ref { place, pointer: false, dimensions: 0 }
    }

    pub(super) fn pointer_to(place: Place) -> Ref {
        Ref { pointer: true, ..Ref::to(place) }
    }

    pub(super) fn id(self, file: FileId) -> TypeId {
        let part = match self.place.part {
            Part::Info => 0,
            Part::Types => 1,
            Part::Shared => 2,
            Part::Split(_) | Part::SplitTypes(_) => 3,
        };
        let pointer = if self.pointer { POINTER } else { 0 };
        let split = match self.place.part {
            Part::Split(at) => u64::from(at) << SPLIT,
            Part::SplitTypes(at) => u64::from(at) << SPLIT | SPLIT_TYPES,
            Part::Info | Part::Types | Part::Shared => 0,
        };
        let place = split | self.place.offset as u64;
        let at = pointer | part << PART | u64::from(self.dimensions) << DIMENSIONS | place;
        TypeId { file, at }
    }

    pub(super) fn of(id: TypeId) -> Ref {
        let place = id.at & ((1 << DIMENSIONS) - 1);
        let split = || (place >> SPLIT) as u32 & MOST_SPLITS;
        let (part, offset) = match id.at >> PART & 3 {
            0 => (Part::Info, place),
            1 => (Part::Types, place),
            2 => (Part::Shared, place),
            _ if place & SPLIT_TYPES != 0 => (Part::SplitTypes(split()), place & ((1 << SPLIT) - 1)),
            _ => (Part::Split(split()), place & ((1 << SPLIT) - 1)),
        };
        let offset = offset as usize;
        let dimensions = (id.at >> DIMENSIONS & 0x1f) as u8;
        Ref { place: Place { part, offset }, pointer: id.at & POINTER != 0, dimensions }
    }
}

impl Debug {
    pub(super) fn read_type(&self, of: Ref) -> Option<Type> {
        if of.pointer {
            let to = Some(Ref::to(of.place).id(self.file));
            return Some(Type { name: String::new(), kind: Kind::Pointer(to) });
        }
        let Some((entry, alias)) = self.seen_through(of.place) else {
            return Some(Type { name: String::new(), kind: Kind::Void });
        };
        let kind = self.kind(&entry, of.dimensions)?;
        let name = self.full_name(&entry).or(alias).unwrap_or_default();
        Some(Type { name, kind })
    }

    /// The type after resolving typedefs and qualifiers, and the name of the last typedef; `None` for `void`.
    pub(super) fn seen_through(&self, place: Place) -> Option<(Entry, Option<String>)> {
        let (mut alias, mut at) = (None, place);
        for _ in 0..LEVELS {
            let entry = self.defined(self.entry(at)?);
            match entry.tag {
                DW_TAG_typedef => alias = self.full_name(&entry),
                DW_TAG_const_type
                | DW_TAG_volatile_type
                | DW_TAG_restrict_type
                | DW_TAG_atomic_type
                | DW_TAG_immutable_type => {}
                _ => return Some((entry, alias)),
            }
            at = entry.ty?;
        }
        None
    }

    /// The definition of a declaration, found by its signature, or by its name in another unit.
    fn defined(&self, entry: Entry) -> Entry {
        let entry = self.numbered(entry);
        if !entry.declaration || !is_compound(&entry) {
            return entry;
        }
        let by_name = || self.entry(*self.names().get(&self.full_name(&entry)?)?);
        by_name().filter(is_compound).unwrap_or(entry)
    }

    /// The type itself, if the entry has only its signature.
    fn numbered(&self, entry: Entry) -> Entry {
        let place = entry.reference(DW_AT_signature).filter(|_| is_compound(&entry));
        place.and_then(|place| self.entry(place)).unwrap_or(entry)
    }

    /// `ns::point`
    fn full_name(&self, entry: &Entry) -> Option<String> {
        let name = entry.name.as_ref()?;
        if !is_compound(entry) && entry.tag != DW_TAG_typedef {
            return Some(name.clone());
        }
        Some(self.scoped(entry.place, name))
    }

    /// A name with the namespaces and classes that enclose its entry.
    pub(super) fn scoped(&self, place: Place, name: &str) -> String {
        let scan = self.units().around(place).map(|unit| self.scan(unit));
        match scan.as_ref().and_then(|scan| scan.scopes.get(&place.offset)) {
            Some(scope) => format!("{scope}::{name}"),
            None => name.to_owned(),
        }
    }

    fn kind(&self, entry: &Entry, dimensions: u8) -> Option<Kind> {
        let size = entry.number(DW_AT_byte_size).and_then(|size| u32::try_from(size).ok());
        Some(match entry.tag {
            DW_TAG_base_type => base(entry, size?),
            DW_TAG_pointer_type | DW_TAG_reference_type | DW_TAG_rvalue_reference_type => {
                Kind::Pointer(entry.ty.map(|to| Ref::to(to).id(self.file)))
            }
            DW_TAG_structure_type | DW_TAG_class_type | DW_TAG_union_type => {
                let fields = if entry.declaration { Vec::new() } else { self.fields(entry.place, LEVELS) };
                Kind::Struct { size: size.filter(|_| !entry.declaration).unwrap_or(0), fields }
            }
            DW_TAG_enumeration_type => self.enumeration(entry, size.unwrap_or(4)),
            DW_TAG_array_type => self.array(entry, dimensions)?,
            // `decltype(nullptr)`
            DW_TAG_unspecified_type if entry.name.as_ref().is_some_and(|name| name.contains("nullptr")) => {
                Kind::Pointer(None)
            }
            DW_TAG_subroutine_type | DW_TAG_unspecified_type => Kind::Void,
            _ => Kind::Other { size: size.unwrap_or(0) },
        })
    }

    fn enumeration(&self, entry: &Entry, size: u32) -> Kind {
        let underlying = entry.ty.and_then(|ty| Some(self.seen_through(ty)?.0));
        let encoding = underlying.as_ref().unwrap_or(entry).number(DW_AT_encoding);
        let constants: Vec<Entry> =
            self.children(entry.place).into_iter().filter(|child| child.tag == DW_TAG_enumerator).collect();
        let is_negative = |constant: &Entry| constant.number(DW_AT_const_value).is_none();
        let signed = match encoding.map(encoding_of) {
            Some(encoding) => encoding == DW_ATE_signed || encoding == DW_ATE_signed_char,
            None => constants.iter().any(is_negative),
        };
        // A constant of fixed length has no sign of its own, so `200` in one byte may stand for an int.
        let bits = |constant: &Entry| {
            let signed = || constant.signed(DW_AT_const_value).map(i64::cast_unsigned);
            constant.number(DW_AT_const_value).or_else(signed)
        };
        let Ok(bytes @ (1 | 2 | 4 | 8)) = u8::try_from(size) else { return Kind::Other { size } };
        let above = 64 - 8 * u32::from(bytes);
        let value = |constant: &Entry| {
            let bits = bits(constant)? << above;
            Some(if signed { bits.cast_signed() >> above } else { (bits >> above).cast_signed() })
        };
        let variants = constants.iter().filter_map(|c| Some((c.name.clone()?, value(c)?))).collect();
        Kind::Enum { bytes, signed, variants }
    }

    /// The element type of an array, or the array without its leading dimensions.
    fn array(&self, entry: &Entry, dimensions: u8) -> Option<Kind> {
        let ranges = self.children(entry.place).into_iter().filter(|child| child.tag == DW_TAG_subrange_type);
        let counts: Vec<u32> = ranges.map(|range| count(&range)).collect();
        let left = counts.get(usize::from(dimensions)..).unwrap_or(&[]);
        let inner = if left.len() > 1 {
            Ref {
                place: entry.place,
                pointer: false,
                dimensions: dimensions.checked_add(1).filter(|n| *n < 32)?,
            }
        } else {
            Ref::to(entry.ty?)
        };
        Some(Kind::Array(inner.id(self.file), left.first().copied().unwrap_or(0)))
    }

    /// Members of a struct, including those of base classes and unnamed members.
    fn fields(&self, place: Place, levels: usize) -> Vec<Field> {
        let mut fields = Vec::new();
        let Some(levels) = levels.checked_sub(1) else { return fields };
        for child in self.children(place) {
            // Members of a union may lack an offset; the offset of a virtual base is an expression.
            let location = child.number(DW_AT_data_member_location);
            let offset = match location.map(u32::try_from) {
                Some(Ok(offset)) => offset,
                None if child.tag == DW_TAG_member => 0,
                _ => continue,
            };
            let is_static = child.has(DW_AT_external) || child.declaration;
            let (Some(ty), false) = (child.ty, is_static) else { continue };
            match (&child.name, child.tag) {
                (Some(name), DW_TAG_member) => fields.extend(self.field(&child, name, offset, ty)),
                (None, DW_TAG_member) | (_, DW_TAG_inheritance) => {
                    let Some((inner, _)) = self.seen_through(ty).filter(|(inner, _)| is_struct(inner)) else {
                        continue;
                    };
                    let inner = self.fields(inner.place, levels).into_iter();
                    fields.extend(
                        inner.map(|field| Field { offset: offset.saturating_add(field.offset), ..field }),
                    );
                }
                _ => {}
            }
        }
        fields
    }

    fn field(&self, member: &Entry, name: &str, offset: u32, ty: Place) -> Option<Field> {
        let id = Ref::to(ty).id(self.file);
        let plain = Field { name: name.to_owned(), offset, ty: id, bits: None };
        let Some(count) = member.number(DW_AT_bit_size) else { return Some(plain) };
        let unit = match self.read_type(Ref::to(ty))?.kind {
            Kind::Int { bytes, .. } | Kind::Enum { bytes, .. } => u64::from(bytes) * 8,
            Kind::Bool => 8,
            _ => return None,
        };
        let start = match (member.number(DW_AT_data_bit_offset), member.signed(DW_AT_bit_offset)) {
            (Some(first), _) => (u64::from(offset) * 8).checked_add(first)?,
            // DWARF 3 counts from the highest bit of an integer with the member's own size.
            (None, Some(above)) => {
                let storage = member.number(DW_AT_byte_size).map_or(unit, |bytes| bytes * 8);
                let lowest = (u64::from(offset) * 8 + storage).checked_sub(count)?;
                lowest.checked_add_signed(-above)?
            }
            (None, None) => u64::from(offset) * 8,
        };
        // A bit-field that straddles two integers is packed: it is read from the byte where it begins.
        let at = if start % unit + count > unit { start / 8 * 8 } else { start / unit * unit };
        let bits = Some((u8::try_from(start - at).ok()?, u8::try_from(count).ok()?));
        Some(Field { offset: u32::try_from(at / 8).ok()?, bits, ..plain })
    }

    /// The declaration in C, with the name of the declared entity, if any: `unsigned long n`.
    pub(super) fn spelled(&self, ty: Option<Place>, name: &str) -> String {
        self.spelled_within(ty, name.to_owned(), LEVELS)
    }

    fn spelled_within(&self, ty: Option<Place>, name: String, levels: usize) -> String {
        let word = |word: &str| if name.is_empty() { word.to_owned() } else { format!("{word} {name}") };
        let Some(entry) = ty.filter(|_| levels > 0).and_then(|ty| self.entry(ty)) else {
            return word("void");
        };
        let (entry, levels) = (self.numbered(entry), levels - 1);
        let behind = |mark: &str| self.spelled_within(entry.ty, format!("{mark}{name}"), levels);
        match entry.tag {
            DW_TAG_pointer_type if self.is_function(entry.ty) => {
                let function = entry.ty.and_then(|to| self.entry(to));
                let params =
                    function.as_ref().map(|f| self.spelled_params(f.place, levels)).unwrap_or_default();
                self.spelled_within(function.and_then(|f| f.ty), format!("(*{name})({params})"), levels)
            }
            DW_TAG_pointer_type => behind("*"),
            DW_TAG_reference_type => behind("&"),
            DW_TAG_rvalue_reference_type => behind("&&"),
            // The pointee is constant, not the copy that is passed.
            DW_TAG_const_type if name.starts_with(['*', '&']) => {
                format!("const {}", self.spelled_within(entry.ty, name, levels))
            }
            DW_TAG_const_type | DW_TAG_volatile_type | DW_TAG_restrict_type | DW_TAG_atomic_type => {
                self.spelled_within(entry.ty, name, levels)
            }
            DW_TAG_array_type => self.spelled_within(entry.ty, format!("{name}[]"), levels),
            DW_TAG_ptr_to_member_type => word("pointer to member"),
            _ => {
                let tag = if self.is_c(entry.place) { tag_of(&entry) } else { "" };
                let own = self.full_name(&entry).unwrap_or_else(|| "{...}".into());
                word(&format!("{tag}{own}"))
            }
        }
    }

    fn spelled_params(&self, function: Place, levels: usize) -> String {
        let params = self.children(function).into_iter().filter(|child| child.tag == DW_TAG_formal_parameter);
        let spelled: Vec<String> =
            params.map(|param| self.spelled_within(param.ty, String::new(), levels)).collect();
        spelled.join(", ")
    }

    fn is_function(&self, ty: Option<Place>) -> bool {
        ty.and_then(|ty| self.entry(ty)).is_some_and(|entry| entry.tag == DW_TAG_subroutine_type)
    }
}

pub(super) fn is_struct(entry: &Entry) -> bool {
    matches!(entry.tag, DW_TAG_structure_type | DW_TAG_class_type | DW_TAG_union_type)
}

/// Whether the entry is a struct, class, union or enum.
fn is_compound(entry: &Entry) -> bool {
    is_struct(entry) || entry.tag == DW_TAG_enumeration_type
}

fn tag_of(entry: &Entry) -> &'static str {
    match entry.tag {
        DW_TAG_structure_type => "struct ",
        DW_TAG_union_type => "union ",
        DW_TAG_enumeration_type => "enum ",
        _ => "",
    }
}

fn encoding_of(number: u64) -> DwAte {
    DwAte(u8::try_from(number).unwrap_or(0))
}

fn base(entry: &Entry, size: u32) -> Kind {
    let encoding = encoding_of(entry.number(DW_AT_encoding).unwrap_or(0));
    let name = entry.name.as_deref().unwrap_or("");
    match (encoding, u8::try_from(size).unwrap_or(0)) {
        (DW_ATE_boolean, 1) => Kind::Bool,
        (DW_ATE_float, bytes @ (4 | 8)) => Kind::Float { bytes },
        (DW_ATE_float, 16) if name == "long double" && cfg!(target_arch = "x86_64") => {
            Kind::Float { bytes: 16 }
        }
        (DW_ATE_signed | DW_ATE_signed_char, bytes @ (1 | 2 | 4 | 8)) => Kind::Int { bytes, signed: true },
        (DW_ATE_unsigned | DW_ATE_unsigned_char | DW_ATE_UTF | DW_ATE_boolean, bytes @ (1 | 2 | 4 | 8)) => {
            Kind::Int { bytes, signed: false }
        }
        _ => Kind::Other { size },
    }
}

/// Number of elements of a dimension; 0 if unknown.
fn count(range: &Entry) -> u32 {
    let lower = range.number(DW_AT_lower_bound).unwrap_or(0);
    let by_bound = || range.number(DW_AT_upper_bound)?.checked_sub(lower)?.checked_add(1);
    let count = range.number(DW_AT_count).or_else(by_bound).unwrap_or(0);
    // Some compilers encode an open bound as -1.
    u32::try_from(count).unwrap_or(0)
}
