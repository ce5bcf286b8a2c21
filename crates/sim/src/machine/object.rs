//! Reads a relocatable BPF object as libbpf does: functions, maps, and the relocations of each instruction.

use super::btf;
use super::insn::{CALL, Insn};
use super::load_error::LoadError;
use super::maps::{MapDef, MapKind};
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionKind, SymbolKind};
use std::collections::HashMap;

/// Target of a relocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Index into [`Object::maps`].
    Map(usize),
    /// Address in the value of a map with one value.
    Value {
        /// Index into [`Object::maps`].
        map: usize,
        /// Offset in the value in bytes.
        offset: u64,
    },
    /// Index into [`Object::functions`].
    Function(usize),
    /// Address of constant data.
    Data {
        /// Index into [`Object::sections`].
        section: usize,
        /// Offset in the section in bytes.
        offset: u64,
    },
    /// Kernel function, by name.
    Kfunc(String),
}

/// A program or callback.
#[derive(Clone, Debug)]
pub struct Function {
    /// Symbol.
    pub name: String,
    /// Instructions.
    pub code: Vec<Insn>,
    /// Relocations by index of the instruction.
    pub references: HashMap<usize, Reference>,
}

/// A section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Bytes of constant data; `None` for other sections.
    pub data: Option<Vec<u8>>,
}

/// A parsed BPF object; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Programs and callbacks.
    pub functions: Vec<Function>,
    /// BPF maps.
    pub maps: Vec<MapDef>,
    /// All sections.
    pub sections: Vec<Section>,
}

/// Location of a function.
struct Place {
    section: usize,
    start: u64,
    end: u64,
}

type Elf<'a> = ElfFile64<'a, object::Endianness>;

impl Object {
    /// Parses an object.
    pub fn parse(bytes: &[u8]) -> Result<Object, LoadError> {
        let elf: Elf = ElfFile64::parse(bytes)?;
        let mut object = Object::default();
        for section in elf.sections() {
            let constant = matches!(section.kind(), SectionKind::ReadOnlyData | SectionKind::ReadOnlyString);
            let data = if constant { Some(section.data()?.to_vec()) } else { None };
            object.sections.push(Section { name: section.name()?.into(), data });
            if section.name()? == ".BTF" {
                object.maps = btf::maps(section.data()?)?;
            }
        }
        object.direct_maps(&elf)?;
        let places = object.functions(&elf)?;
        object.references(&elf, &places)?;
        Ok(object)
    }

    /// Creates an object with one function, for tests. Wide loads whose source field is 1 refer to `maps` by
    /// index.
    pub fn of_code(code: &[Insn], maps: Vec<MapDef>) -> Object {
        let wide = |insn: &Insn| insn.opcode == super::insn::WIDE && insn.src == 1;
        let map = |(at, insn): (usize, &Insn)| wide(insn).then_some((at, Reference::Map(insn.imm as usize)));
        let references = code.iter().enumerate().filter_map(map).collect();
        let function = Function { name: "program".into(), code: code.to_vec(), references };
        Object { functions: vec![function], maps, sections: vec![] }
    }

    /// Index of the function with this symbol.
    pub fn function(&self, symbol: &str) -> Option<usize> {
        self.functions.iter().position(|f| f.name == symbol)
    }

    /// Adds writable sections, which are maps of one value.
    fn direct_maps(&mut self, elf: &Elf) -> Result<(), LoadError> {
        for section in elf.sections() {
            let Some(name) = section.name()?.strip_prefix(wire::map::DIRECT_PREFIX) else { continue };
            let value_size = section.size() as u32;
            let (name, kind) = (name.to_owned(), MapKind::Array);
            self.maps.push(MapDef { name, kind, key_size: 4, value_size, max_entries: 1 });
        }
        Ok(())
    }

    fn functions(&mut self, elf: &Elf) -> Result<Vec<Place>, LoadError> {
        let mut places = Vec::new();
        for symbol in elf.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0) {
            let Some(index) = symbol.section_index() else { continue };
            let section = elf.section_by_index(index)?;
            let (start, end) = (symbol.address(), symbol.address() + symbol.size());
            let bytes = section.data()?.get(start as usize..end as usize).unwrap_or_default();
            let insns = bytes.chunks_exact(8).map(|b| Insn::decode(b.try_into().expect("8 bytes")));
            let (name, code) = (symbol.name()?.to_owned(), insns.collect());
            self.functions.push(Function { name, code, references: HashMap::new() });
            places.push(Place { section: section.index().0, start, end });
        }
        Ok(places)
    }

    fn references(&mut self, elf: &Elf, places: &[Place]) -> Result<(), LoadError> {
        for section in elf.sections() {
            for (at, relocation) in section.relocations() {
                let here = |p: &Place| p.section == section.index().0 && (p.start..p.end).contains(&at);
                let Some(function) = places.iter().position(here) else { continue };
                let RelocationTarget::Symbol(target) = relocation.target() else { continue };
                let index = ((at - places[function].start) / 8) as usize;
                let insn = self.functions[function].code[index];
                let symbol = elf.symbol_by_index(target)?;
                let reference =
                    self.refer(elf, places, insn, &symbol).ok_or_else(|| LoadError::Reference {
                        section: section.name().unwrap_or("?").into(),
                        at,
                        symbol: symbol.name().unwrap_or("?").into(),
                    })?;
                self.functions[function].references.insert(index, reference);
            }
        }
        self.local_calls(places);
        Ok(())
    }

    /// The target of a relocation of an instruction.
    fn refer<'a>(
        &self,
        elf: &Elf<'a>,
        places: &[Place],
        insn: Insn,
        symbol: &ElfSymbol64<'a, '_, object::Endianness>,
    ) -> Option<Reference> {
        let Some(index) = symbol.section_index() else {
            return Some(Reference::Kfunc(symbol.name().ok()?.into()));
        };
        let section = elf.section_by_index(index).ok()?;
        if section.name().ok()? == ".maps" {
            return self
                .maps
                .iter()
                .position(|m| Some(m.name.as_str()) == symbol.name().ok())
                .map(Reference::Map);
        }
        let offset = symbol.address().wrapping_add_signed(i64::from(insn.imm));
        if let Some(name) = section.name().ok()?.strip_prefix(wire::map::DIRECT_PREFIX) {
            let map = self.maps.iter().position(|map| map.name == name);
            return map.map(|map| Reference::Value { map, offset });
        }
        if section.kind() == SectionKind::Text {
            // The addend of a call counts instructions from the next one; that of an address counts bytes.
            let behind = match insn.opcode {
                CALL => (i64::from(insn.imm) + 1) * 8,
                _ => i64::from(insn.imm),
            };
            let start = symbol.address().wrapping_add_signed(behind);
            let there = |p: &Place| p.section == index.0 && p.start == start;
            return places.iter().position(there).map(Reference::Function);
        }
        let at = self.sections.iter().position(|s| Some(s.name.as_str()) == section.name().ok())?;
        self.sections[at].data.as_ref().map(|_| Reference::Data { section: at, offset })
    }

    /// Adds calls within a section, which have no relocation.
    fn local_calls(&mut self, places: &[Place]) {
        for (function, place) in self.functions.iter_mut().zip(places) {
            for (index, insn) in function.code.iter().enumerate() {
                if insn.opcode != CALL || insn.src != 1 || function.references.contains_key(&index) {
                    continue;
                }
                let target = place.start as i64 + 8 * (index as i64 + 1 + i64::from(insn.imm));
                let there = |p: &Place| p.section == place.section && p.start as i64 == target;
                if let Some(callee) = places.iter().position(there) {
                    function.references.insert(index, Reference::Function(callee));
                }
            }
        }
    }
}
