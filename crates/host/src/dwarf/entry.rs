//! One entry with its attributes, including those of the entries that it refers to.

use gimli::constants::{
    DW_AT_MIPS_linkage_name, DW_AT_abstract_origin, DW_AT_data_member_location, DW_AT_declaration,
    DW_AT_linkage_name, DW_AT_name, DW_AT_specification, DW_AT_type,
};
use gimli::{AttributeValue, DebuggingInformationEntry, DwAt, DwTag, Dwarf, Unit, UnitOffset};

use super::units::{Part, Place};
use super::{Debug, Slice};

/// Limit of the length of a chain of references between entries.
const CHAIN: usize = 8;
/// `DW_OP_plus_uconst`
const PLUS: u8 = 0x23;

/// The attributes of an entry, read once.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub place: Place,
    pub tag: DwTag,
    pub name: Option<String>,
    /// Symbol name, if the language mangles names.
    pub linked: Option<String>,
    /// `DW_AT_type`
    pub ty: Option<Place>,
    /// Entry that this one is a copy of, or completes.
    pub origin: Option<Place>,
    /// True for a declaration without definition.
    pub declaration: bool,
    values: Vec<(DwAt, Value)>,
}

/// Value of an attribute, of the supported forms.
#[derive(Copy, Clone, Debug)]
enum Value {
    Number { unsigned: Option<u64>, signed: Option<i64> },
    Flag,
    Type(Place),
}

impl Entry {
    /// The value of an attribute as an unsigned number.
    pub(super) fn number(&self, name: DwAt) -> Option<u64> {
        match self.value(name)? {
            Value::Number { unsigned, .. } => *unsigned,
            _ => None,
        }
    }

    /// The value of an attribute as a signed number.
    pub(super) fn signed(&self, name: DwAt) -> Option<i64> {
        match self.value(name)? {
            Value::Number { signed, .. } => *signed,
            _ => None,
        }
    }

    /// Whether the entry has the attribute, and its value is not false.
    pub(super) fn has(&self, name: DwAt) -> bool {
        self.value(name).is_some()
    }

    /// The target of a reference attribute that has no field of its own.
    pub(super) fn reference(&self, name: DwAt) -> Option<Place> {
        match self.value(name)? {
            Value::Type(place) => Some(*place),
            _ => None,
        }
    }

    fn value(&self, name: DwAt) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl Debug {
    /// The entry at a location.
    pub(super) fn entry(&self, place: Place) -> Option<Entry> {
        self.in_unit(place, |dwarf, unit, start| {
            let entry = unit.entry(UnitOffset(place.offset.checked_sub(start.offset)?)).ok()?;
            Some(self.read(dwarf, unit, start, &entry))
        })
    }

    /// The direct children of an entry.
    pub(super) fn children(&self, place: Place) -> Vec<Entry> {
        let mut found = Vec::new();
        self.in_unit(place, |dwarf, unit, start| {
            let offset = UnitOffset(place.offset.checked_sub(start.offset)?);
            let mut tree = unit.entries_tree(Some(offset)).ok()?;
            let mut children = tree.root().ok()?.children();
            while let Ok(Some(child)) = children.next() {
                found.push(self.read(dwarf, unit, start, child.entry()));
            }
            Some(())
        });
        found
    }

    /// An entry and the entries that it is a copy of, or completes; the nearest first.
    pub(super) fn chain(&self, place: Place) -> Vec<Entry> {
        let mut chain: Vec<Entry> = Vec::new();
        let mut next = Some(place);
        while let Some(entry) = next.filter(|_| chain.len() < CHAIN).and_then(|place| self.entry(place)) {
            next = entry.origin;
            chain.push(entry);
        }
        chain
    }

    fn read(
        &self,
        dwarf: &Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        start: Place,
        entry: &DebuggingInformationEntry<Slice<'_>>,
    ) -> Entry {
        let place = Place { offset: start.offset + entry.offset().0, ..start };
        let mut found = Entry {
            place,
            tag: entry.tag(),
            name: None,
            linked: None,
            ty: None,
            origin: None,
            declaration: false,
            values: Vec::new(),
        };
        let text = |value| Some(dwarf.attr_string(unit, value).ok()?.to_string_lossy().into_owned());
        for attribute in entry.attrs() {
            let (name, value) = (attribute.name(), attribute.value());
            match name {
                DW_AT_name => found.name = text(value),
                DW_AT_linkage_name | DW_AT_MIPS_linkage_name => found.linked = text(value),
                DW_AT_type => found.ty = self.referred(value, start),
                DW_AT_abstract_origin | DW_AT_specification => found.origin = self.referred(value, start),
                DW_AT_declaration => found.declaration = value == AttributeValue::Flag(true),
                _ => found.values.extend(self.value(value, name, start).map(|value| (name, value))),
            }
        }
        found
    }

    fn value(&self, value: AttributeValue<Slice<'_>>, name: DwAt, start: Place) -> Option<Value> {
        let number = |unsigned, signed| Some(Value::Number { unsigned, signed });
        match value {
            AttributeValue::Flag(false) => None,
            AttributeValue::Flag(true) => Some(Value::Flag),
            AttributeValue::Encoding(encoding) => number(Some(u64::from(encoding.0)), None),
            AttributeValue::CallingConvention(convention) => number(Some(u64::from(convention.0)), None),
            AttributeValue::Inline(inline) => number(Some(u64::from(inline.0)), None),
            // In DWARF 2 the location of a member is an expression.
            AttributeValue::Exprloc(_) | AttributeValue::Block(_) if name == DW_AT_data_member_location => {
                let bytes = value.exprloc_value()?.0;
                let offset = bytes.slice().strip_prefix(&[PLUS])?;
                number(Some(uleb(offset)?), None)
            }
            _ => match self.referred(value, start) {
                Some(place) => Some(Value::Type(place)),
                None if value.udata_value().is_some() || value.sdata_value().is_some() => {
                    number(value.udata_value(), value.sdata_value())
                }
                None => None,
            },
        }
    }

    /// The target of a reference of an entry in the unit at `start`.
    fn referred(&self, value: AttributeValue<Slice<'_>>, start: Place) -> Option<Place> {
        let info = match start.part {
            Part::Info | Part::Types => Part::Info,
            Part::Shared => Part::Shared,
            Part::Split(at) | Part::SplitTypes(at) => Part::Split(at),
        };
        match value {
            AttributeValue::UnitRef(offset) => {
                Some(Place { offset: start.offset.checked_add(offset.0)?, ..start })
            }
            AttributeValue::DebugInfoRef(offset) => Some(Place { part: info, offset: offset.0 }),
            AttributeValue::DebugInfoRefSup(offset) => Some(Place { part: Part::Shared, offset: offset.0 }),
            AttributeValue::DebugTypesRef(signature) => self.units().signature(signature.0),
            _ => None,
        }
    }
}

fn uleb(bytes: &[u8]) -> Option<u64> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
