//! Reads a relocatable BPF object as libbpf does: functions, maps, and the relocations of each instruction.

mod btf;
pub mod insn;
mod load_error;
mod map_def;

pub use insn::Insn;
pub use load_error::LoadError;
pub use map_def::{MapDef, MapKind};

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_PROGBITS, SectionHeader};
use goblin::elf::{Elf, Sym};
use insn::CALL;
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

impl Function {
    /// Whether it reads vector registers.
    pub fn reads_vectors(&self) -> bool {
        self.references
            .values()
            .any(|to| matches!(to, Reference::Kfunc(name) if name == wire::features::VECTOR))
    }
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

fn symbol_name<'a>(elf: &Elf<'a>, symbol: &Sym) -> &'a str {
    elf.strtab.get_at(symbol.st_name).unwrap_or_default()
}

/// Name of a section.
fn name<'a>(elf: &Elf<'a>, section: &SectionHeader) -> &'a str {
    elf.shdr_strtab.get_at(section.sh_name).unwrap_or_default()
}

/// Bytes of a section.
fn data<'a>(bytes: &'a [u8], section: &SectionHeader) -> &'a [u8] {
    section.file_range().and_then(|range| bytes.get(range)).unwrap_or_default()
}

/// Whether a section has these flags of writable and executable, and is loaded.
fn is_loaded(section: &SectionHeader, flags: u32) -> bool {
    let all = u64::from(SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR);
    section.sh_type == SHT_PROGBITS && section.sh_flags & all == u64::from(SHF_ALLOC | flags)
}

impl Object {
    /// Parses an object.
    pub fn parse(bytes: &[u8]) -> Result<Object, LoadError> {
        let elf = Elf::parse(bytes)?;
        let mut object = Object::default();
        for section in &elf.section_headers {
            let (name, data) = (name(&elf, section), data(bytes, section));
            let constant = is_loaded(section, 0).then(|| data.to_vec());
            object.sections.push(Section { name: name.into(), data: constant });
            if name == ".BTF" {
                object.maps = btf::maps(data)?;
            }
        }
        object.direct_maps(&elf);
        let places = object.functions(&elf, bytes);
        object.references(&elf, &places)?;
        Ok(object)
    }

    /// Creates an object with one function, for tests. Wide loads whose source field is 1 refer to `maps` by
    /// index.
    pub fn of_code(code: &[Insn], maps: Vec<MapDef>) -> Object {
        let wide = |insn: &Insn| insn.opcode == insn::WIDE && insn.src == 1;
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
    fn direct_maps(&mut self, elf: &Elf) {
        for section in &elf.section_headers {
            let Some(name) = name(elf, section).strip_prefix(wire::map::DIRECT_PREFIX) else { continue };
            let value_size = section.sh_size as u32;
            let (name, kind) = (name.to_owned(), MapKind::Array);
            self.maps.push(MapDef { name, kind, key_size: 4, value_size, max_entries: 1 });
        }
    }

    fn functions(&mut self, elf: &Elf, bytes: &[u8]) -> Vec<Place> {
        let mut places = Vec::new();
        for symbol in elf.syms.iter().filter(|s| s.is_function() && s.st_size > 0) {
            let Some(section) = elf.section_headers.get(symbol.st_shndx) else { continue };
            let (start, end) = (symbol.st_value, symbol.st_value + symbol.st_size);
            let code = data(bytes, section).get(start as usize..end as usize).unwrap_or_default();
            let insns = code.chunks_exact(8).map(|b| Insn::decode(b.try_into().expect("8 bytes")));
            let (name, code) = (symbol_name(elf, &symbol).to_owned(), insns.collect());
            self.functions.push(Function { name, code, references: HashMap::new() });
            places.push(Place { section: symbol.st_shndx, start, end });
        }
        places
    }

    fn references(&mut self, elf: &Elf, places: &[Place]) -> Result<(), LoadError> {
        for (table, relocations) in &elf.shdr_relocs {
            let section = elf.section_headers[*table].sh_info as usize;
            for relocation in relocations {
                let at = relocation.r_offset;
                let here = |p: &Place| p.section == section && (p.start..p.end).contains(&at);
                let Some(function) = places.iter().position(here) else { continue };
                let Some(symbol) = elf.syms.get(relocation.r_sym) else { continue };
                let index = ((at - places[function].start) / 8) as usize;
                let insn = self.functions[function].code[index];
                let reference =
                    self.refer(elf, places, insn, &symbol).ok_or_else(|| LoadError::Reference {
                        section: name(elf, &elf.section_headers[section]).into(),
                        at,
                        symbol: symbol_name(elf, &symbol).into(),
                    })?;
                self.functions[function].references.insert(index, reference);
            }
        }
        self.local_calls(places);
        Ok(())
    }

    /// The target of a relocation of an instruction.
    fn refer(&self, elf: &Elf, places: &[Place], insn: Insn, symbol: &Sym) -> Option<Reference> {
        let (index, target) = (symbol.st_shndx, symbol_name(elf, symbol));
        if index == 0 {
            return Some(Reference::Kfunc(target.into()));
        }
        let section = elf.section_headers.get(index)?;
        let name = name(elf, section);
        if name == ".maps" {
            return self.maps.iter().position(|m| m.name == target).map(Reference::Map);
        }
        let offset = symbol.st_value.wrapping_add_signed(i64::from(insn.imm));
        if let Some(name) = name.strip_prefix(wire::map::DIRECT_PREFIX) {
            let map = self.maps.iter().position(|map| map.name == name);
            return map.map(|map| Reference::Value { map, offset });
        }
        if is_loaded(section, SHF_EXECINSTR) {
            // The addend of a call counts instructions from the next one; that of an address counts bytes.
            let behind = match insn.opcode {
                CALL => (i64::from(insn.imm) + 1) * 8,
                _ => i64::from(insn.imm),
            };
            let start = symbol.st_value.wrapping_add_signed(behind);
            let there = |p: &Place| p.section == index && p.start == start;
            return places.iter().position(there).map(Reference::Function);
        }
        let at = self.sections.iter().position(|s| s.name == name)?;
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
