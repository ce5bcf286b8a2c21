//! Finds the unit of an address or an entry, and entries in a unit.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::constants::{
    DW_AT_declaration, DW_AT_entry_pc, DW_AT_language, DW_AT_low_pc, DW_AT_name, DW_AT_ranges, DW_LANG_C,
    DW_TAG_class_type, DW_TAG_enumeration_type, DW_TAG_namespace, DW_TAG_structure_type, DW_TAG_subprogram,
    DW_TAG_typedef, DW_TAG_union_type, DwLang, DwTag,
};
use gimli::{
    AttributeValue, DebugInfoOffset, DebugTypes, DebuggingInformationEntry, Dwarf, DwoId, EndianSlice,
    LittleEndian, Section, Unit, UnitHeader, UnitOffset, UnitSectionOffset, UnitType,
};

use super::sections::Slice;
use super::split::{Skeleton, SplitSearch, Splits};

/// Largest number of a split unit: an id of a type has 19 bits for it.
pub(super) const MOST_SPLITS: u32 = (1 << 19) - 1;

/// Location of an entry: section and offset in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub part: Part,
    pub offset: usize,
}

/// A section with entries.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    /// `.debug_info`
    Info,
    /// `.debug_types` of DWARF 4.
    Types,
    /// `.debug_info` of the supplementary file of `dwz`.
    Shared,
    /// `.debug_info.dwo` of a split unit or file.
    Split(u32),
    /// `.debug_types.dwo` of a split unit or file.
    SplitTypes(u32),
}

/// All units of a file.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// Units in the order of their locations.
    list: Vec<UnitAt>,
    /// Sorted ranges of code.
    ranges: Vec<CodeRange>,
    /// Types in type units, by signature.
    signatures: HashMap<u64, Place>,
    splits: Splits,
}

/// Code of a unit.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CodeRange {
    start: u64,
    end: u64,
    /// Index of the unit.
    unit: usize,
}

#[derive(Debug)]
struct UnitAt {
    start: Place,
    end: usize,
    language: DwLang,
    /// Number that a skeleton and its split unit have in common.
    split: Option<DwoId>,
    /// The skeleton of a split unit.
    skeleton: Option<usize>,
    /// Why the split unit of a skeleton is absent.
    missing: Option<String>,
}

/// Index of a unit.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Entries of functions, by the address of their first instruction.
    pub functions: HashMap<u64, Vec<Place>>,
    /// Definitions of types, by their full names.
    pub types: Vec<(String, Place)>,
    /// Enclosing namespaces and classes of entries that have any: `ns::outer`.
    pub scopes: HashMap<usize, Arc<str>>,
}

impl Units {
    /// The units of all sections.
    pub(super) fn read(dwarf: &Dwarf<Slice<'_>>, search: &SplitSearch) -> Units {
        let mut units = Units::default();
        add_all(&mut units, dwarf, Part::Info);
        add_types(&mut units, dwarf, Part::Types);
        if let Some(shared) = dwarf.sup() {
            add_all(&mut units, shared, Part::Shared);
        }
        units.add_splits(dwarf, search);
        units.ranges.sort_unstable();
        units
    }

    /// Where a unit begins.
    pub(super) fn start(&self, unit: usize) -> Place {
        self.list[unit].start
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The unit that contains an entry.
    pub(super) fn around(&self, place: Place) -> Option<usize> {
        let at = self.list.partition_point(|unit| unit.start <= place).checked_sub(1)?;
        let unit = &self.list[at];
        (unit.start.part == place.part && place.offset < unit.end).then_some(at)
    }

    /// The unit whose code contains an address.
    pub(super) fn of_code(&self, address: u64) -> Option<usize> {
        let behind = self.ranges.partition_point(|range| range.start <= address);
        // Ranges seldom overlap, so examining a few is enough.
        self.ranges[..behind].iter().rev().take(8).find(|range| address < range.end).map(|range| range.unit)
    }

    pub(super) fn signature(&self, signature: u64) -> Option<Place> {
        self.signatures.get(&signature).copied()
    }

    pub(super) fn language(&self, unit: usize) -> DwLang {
        self.list[unit].language
    }

    /// Why a unit has only its skeleton.
    pub(super) fn missing(&self, unit: usize) -> Option<&str> {
        self.list[unit].missing.as_deref()
    }

    /// Where the skeleton of a split unit begins.
    pub(super) fn skeleton(&self, unit: usize) -> Option<Place> {
        Some(self.list[self.list[unit].skeleton?].start)
    }

    /// The sections of a split unit; `None` for other parts.
    pub(super) fn split<'a>(&'a self, part: Part, parent: &Dwarf<Slice<'a>>) -> Option<Dwarf<Slice<'a>>> {
        match part {
            Part::Split(at) | Part::SplitTypes(at) => self.splits.dwarf(at as usize, parent),
            Part::Info | Part::Types | Part::Shared => None,
        }
    }

    /// Adds the split units of skeletons; the code of a skeleton becomes that of its split unit.
    fn add_splits(&mut self, dwarf: &Dwarf<Slice<'_>>, search: &SplitSearch) {
        let skeletons: Vec<usize> =
            (0..self.list.len()).filter(|at| self.list[*at].split.is_some()).collect();
        if skeletons.is_empty() {
            return;
        }
        let mut splits = Splits::default();
        splits.open_package(search);
        for &at in &skeletons {
            let unit = header(dwarf, self.list[at].start).and_then(|header| dwarf.unit(header).ok());
            let skeleton = unit.and_then(|unit| Skeleton::of(dwarf, &unit));
            self.list[at].missing = skeleton.and_then(|skeleton| splits.add(&skeleton, search).err());
        }
        let count = splits.len().min(MOST_SPLITS as usize) as u32;
        for at in 0..count {
            if let Some(own) = splits.dwarf(at as usize, dwarf) {
                add_all(self, &own, Part::Split(at));
            }
        }
        for at in 0..count {
            if let Some(own) = splits.dwarf(at as usize, dwarf) {
                add_types(self, &own, Part::SplitTypes(at));
            }
        }
        self.splits = splits;
        self.relate(&skeletons);
    }

    fn relate(&mut self, skeletons: &[usize]) {
        let behind = skeletons.last().map_or(0, |last| last + 1);
        let of_id: HashMap<u64, usize> =
            (behind..self.list.len()).filter_map(|at| Some((self.list[at].split?.0, at))).collect();
        let mut units = HashMap::new();
        for &skeleton in skeletons {
            let unit = self.list[skeleton].split.and_then(|id| of_id.get(&id.0).copied());
            if let Some(unit) = unit {
                self.list[unit].skeleton = Some(skeleton);
                units.insert(skeleton, unit);
            }
        }
        for range in &mut self.ranges {
            range.unit = units.get(&range.unit).copied().unwrap_or(range.unit);
        }
    }
}

impl Scan {
    /// Reads the entries of the unit that begins at `start`. If the unit is damaged, those before the damage.
    pub(super) fn read<'d>(dwarf: &Dwarf<Slice<'d>>, unit: &Unit<Slice<'d>>, start: Place) -> Scan {
        let mut scan = Scan::default();
        let _ = Scanner { dwarf, unit, start, scan: &mut scan, scopes: Vec::new() }.run();
        scan
    }
}

pub(super) fn of_part<'a, 'd>(dwarf: &'a Dwarf<Slice<'d>>, part: Part) -> &'a Dwarf<Slice<'d>> {
    match part {
        Part::Shared => dwarf.sup().unwrap_or(dwarf),
        Part::Info | Part::Types | Part::Split(_) | Part::SplitTypes(_) => dwarf,
    }
}

/// The header of the unit that begins at a location.
pub(super) fn header<'d>(dwarf: &Dwarf<Slice<'d>>, start: Place) -> Option<UnitHeader<Slice<'d>>> {
    match start.part {
        Part::Info | Part::Shared | Part::Split(_) => {
            dwarf.debug_info.header_from_offset(DebugInfoOffset(start.offset)).ok()
        }
        Part::Types | Part::SplitTypes(_) => {
            let section: EndianSlice<'d, LittleEndian> = *dwarf.debug_types.reader();
            let rest = section.slice().get(start.offset..)?;
            DebugTypes::new(rest, LittleEndian).units().next().ok()?
        }
    }
}

fn add_all(units: &mut Units, dwarf: &Dwarf<Slice<'_>>, part: Part) {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        add(units, dwarf, part, header);
    }
}

fn add_types(units: &mut Units, dwarf: &Dwarf<Slice<'_>>, part: Part) {
    let mut headers = dwarf.type_units();
    while let Ok(Some(header)) = headers.next() {
        add(units, dwarf, part, header);
    }
}

fn add<'d>(units: &mut Units, dwarf: &Dwarf<Slice<'d>>, part: Part, header: UnitHeader<Slice<'d>>) {
    let UnitSectionOffset(offset) = header.offset();
    let start = Place { part, offset };
    if let UnitType::Type { type_signature, type_offset }
    | UnitType::SplitType { type_signature, type_offset } = header.type_()
    {
        let place = Place { part, offset: offset + type_offset.0 };
        units.signatures.insert(type_signature.0, place);
    }
    let end = offset + header.length_including_self();
    let Ok(unit) = dwarf.unit(header) else { return };
    let at = units.list.len();
    let language = root_language(&unit);
    units.list.push(UnitAt { start, end, language, split: unit.dwo_id, skeleton: None, missing: None });
    if matches!(part, Part::Split(_) | Part::SplitTypes(_)) {
        return;
    }
    let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { return };
    while let Ok(Some(range)) = ranges.next() {
        // Functions that the linker has removed have the address 0.
        if range.begin != 0 && range.begin < range.end {
            units.ranges.push(CodeRange { start: range.begin, end: range.end, unit: at });
        }
    }
}

fn root_language(unit: &Unit<Slice<'_>>) -> DwLang {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok().flatten();
    match root.and_then(|root| root.attr_value(DW_AT_language)) {
        Some(AttributeValue::Language(language)) => language,
        _ => DW_LANG_C,
    }
}

/// Walks a unit.
struct Scanner<'s, 'd> {
    dwarf: &'s Dwarf<Slice<'d>>,
    unit: &'s Unit<Slice<'d>>,
    start: Place,
    scan: &'s mut Scan,
    /// Enclosing namespaces and classes at the current entry, with their depths.
    scopes: Vec<(isize, Arc<str>)>,
}

impl<'d> Scanner<'_, 'd> {
    fn run(&mut self) -> gimli::Result<()> {
        let mut raw = self.unit.entries_raw(None)?;
        let mut entry = DebuggingInformationEntry::null();
        while !raw.is_empty() {
            let (depth, offset) = (raw.next_depth(), raw.next_offset());
            let Some(abbreviation) = raw.read_abbreviation()? else { continue };
            let tag = abbreviation.tag();
            if is_type(tag) || matches!(tag, DW_TAG_subprogram | DW_TAG_namespace) {
                let mut again = self.unit.entries_raw(Some(offset))?;
                again.read_entry(&mut entry)?;
                while self.scopes.last().is_some_and(|(of, _)| *of >= depth) {
                    self.scopes.pop();
                }
                self.note(&entry, offset, tag, depth);
            }
            raw.skip_attributes(abbreviation.attributes())?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        entry: &DebuggingInformationEntry<Slice<'d>>,
        offset: UnitOffset,
        tag: DwTag,
        depth: isize,
    ) {
        let place = Place { offset: self.start.offset + offset.0, ..self.start };
        if let Some((_, scope)) = self.scopes.last() {
            self.scan.scopes.insert(place.offset, Arc::clone(scope));
        }
        if tag == DW_TAG_subprogram {
            if let Some(address) = self.address(entry) {
                self.scan.functions.entry(address).or_default().push(place);
            }
            return;
        }
        let Some(name) = self.name(entry) else { return };
        let full = match self.scopes.last() {
            Some((_, scope)) => format!("{scope}::{name}"),
            None => name,
        };
        if tag != DW_TAG_typedef {
            self.scopes.push((depth, full.as_str().into()));
        }
        if is_type(tag) && entry.attr(DW_AT_declaration).is_none() {
            self.scan.types.push((full, place));
        }
    }

    fn name(&self, entry: &DebuggingInformationEntry<Slice<'d>>) -> Option<String> {
        let name = self.dwarf.attr_string(self.unit, entry.attr_value(DW_AT_name)?).ok()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// First address of a function. Of several ranges it is the first, since the others contain cold code.
    fn address(&self, entry: &DebuggingInformationEntry<Slice<'d>>) -> Option<u64> {
        let address = |value| self.dwarf.attr_address(self.unit, value).ok().flatten();
        let begin = entry.attr_value(DW_AT_low_pc).and_then(address);
        let begin = begin.or_else(|| entry.attr_value(DW_AT_entry_pc).and_then(address));
        begin.filter(|address| *address != 0).or_else(|| {
            let ranges = self.dwarf.attr_ranges(self.unit, entry.attr_value(DW_AT_ranges)?).ok()??;
            let mut ranges = ranges;
            ranges.next().ok()?.map(|range| range.begin)
        })
    }
}

fn is_type(tag: DwTag) -> bool {
    matches!(
        tag,
        DW_TAG_structure_type
            | DW_TAG_class_type
            | DW_TAG_union_type
            | DW_TAG_enumeration_type
            | DW_TAG_typedef
    )
}
