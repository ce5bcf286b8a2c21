//! Writes sections, symbols and relocations with the `object` crate.
//!
//! Callbacks are local symbols. References to them use their section, as libbpf requires for static functions. Programs and
//! maps are global symbols.

use super::maps;
use super::sections::{Sections, TEXT};
use crate::bpf::code::{Assembly, Code, Target};
use crate::bpf::insn::{Insn, SLOT};
use crate::ir::{FuncRef, MapDef};
use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};
use wire::Manifest;

/// Type sections.
pub(super) struct Debug {
    /// `.BTF`
    pub btf: Vec<u8>,
    /// `.BTF.ext`
    pub ext: Vec<u8>,
}

/// Sections that describe the whole object.
#[derive(Copy, Clone)]
pub struct ObjectNotes<'a> {
    /// License of its programs; the helpers of tracing programs require one that is compatible with the GPL.
    pub license: &'a str,
    /// Manifest, on request.
    pub manifest: Option<&'a Manifest>,
}

/// Writes the ELF file. `places` has the offset and size of each map's variable.
pub(super) fn write(
    assembly: &Assembly,
    sections: &Sections,
    places: &[Option<(u32, u32)>],
    debug: &Debug,
    notes: ObjectNotes,
) -> Vec<u8> {
    let mut writer = Writer::new();
    let license = [notes.license.as_bytes(), &[0]].concat();
    writer.section("license", SectionKind::Data, license, 1);
    writer.maps(assembly, places);
    if !assembly.data.is_empty() {
        let data = writer.section(".rodata", SectionKind::ReadOnlyData, assembly.data.clone(), 8);
        writer.data = Some(writer.object.section_symbol(data));
    }
    writer.externs(assembly);
    writer.code(assembly, sections);
    writer.section(".BTF", SectionKind::Other, debug.btf.clone(), 4);
    // libbpf refuses a `.BTF.ext` section without functions.
    if !assembly.codes.is_empty() {
        writer.section(".BTF.ext", SectionKind::Other, debug.ext.clone(), 4);
    }
    if let Some(manifest) = notes.manifest {
        let json = serde_json::to_vec(manifest).expect("bug: a manifest has string keys only");
        writer.section(wire::manifest::SECTION, SectionKind::Other, json, 1);
    }
    writer.object.write().expect("bug: sections, symbols and relocations fit each other")
}

struct Writer {
    object: Object<'static>,
    maps: Vec<SymbolId>,
    kfuncs: Vec<SymbolId>,
    data: Option<SymbolId>,
    text: Option<SymbolId>,
}

impl Writer {
    fn new() -> Writer {
        let object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        Writer { object, maps: Vec::new(), kfuncs: Vec::new(), data: None, text: None }
    }

    fn section(&mut self, name: &str, kind: SectionKind, bytes: Vec<u8>, align: u64) -> SectionId {
        let section = self.object.add_section(Vec::new(), name.into(), kind);
        self.object.set_section_data(section, bytes, align);
        section
    }

    fn symbol(
        &mut self,
        name: &str,
        section: SymbolSection,
        kind: SymbolKind,
        offset: u64,
        size: u64,
        global: bool,
    ) -> SymbolId {
        self.object.add_symbol(Symbol {
            name: name.into(),
            value: offset,
            size,
            kind,
            scope: if global { SymbolScope::Dynamic } else { SymbolScope::Compilation },
            weak: false,
            section,
            flags: SymbolFlags::None,
        })
    }

    fn maps(&mut self, assembly: &Assembly, places: &[Option<(u32, u32)>]) {
        let size = places.iter().flatten().last().map_or(0, |(offset, size)| offset + size);
        let described =
            (size > 0).then(|| self.section(maps::SECTION, SectionKind::Data, vec![0; size as usize], 8));
        for (map, place) in assembly.maps.iter().zip(places) {
            let symbol = match (*place, described) {
                (Some((offset, size)), Some(section)) => {
                    let section = SymbolSection::Section(section);
                    self.symbol(&map.name, section, SymbolKind::Data, offset.into(), size.into(), true)
                }
                _ => self.direct(map),
            };
            self.maps.push(symbol);
        }
    }

    /// Adds the data section of a direct map. libbpf creates an array with one value from such a section. Code
    /// that refers to the section gets the address of the value.
    fn direct(&mut self, map: &MapDef) -> SymbolId {
        let name = format!("{}{}", wire::map::DIRECT_PREFIX, map.name);
        let section = self.section(&name, SectionKind::Data, vec![0; map.value_size as usize], 8);
        self.object.section_symbol(section)
    }

    fn externs(&mut self, assembly: &Assembly) {
        for kfunc in &assembly.kfuncs {
            let symbol = self.symbol(&kfunc.name, SymbolSection::Undefined, SymbolKind::Unknown, 0, 0, true);
            self.kfuncs.push(symbol);
        }
    }

    /// Adds all code sections. Callbacks come first, so that relocations can refer to their section symbol.
    fn code(&mut self, assembly: &Assembly, sections: &Sections) {
        let (text, programs): (Vec<_>, Vec<_>) = sections.list.iter().partition(|(name, _)| name == TEXT);
        for (name, codes) in text.into_iter().chain(programs) {
            let section = self.object.add_section(Vec::new(), name.as_bytes().to_vec(), SectionKind::Text);
            if name == TEXT {
                self.text = Some(self.object.section_symbol(section));
            }
            let mut bytes = Vec::new();
            for &at in codes {
                let code = &assembly.codes[at];
                let (offset, size) = (sections.offsets[at], code.size().into());
                let (place, global) = (SymbolSection::Section(section), code.section.is_some());
                self.symbol(&code.name, place, SymbolKind::Text, offset, size, global);
                append(code, sections, &mut bytes);
            }
            self.object.set_section_data(section, bytes, SLOT as u64);
            for &at in codes {
                let code = &assembly.codes[at];
                for (insn, target) in &code.targets {
                    let offset = sections.offsets[at] + u64::from(code.offsets[*insn]);
                    self.relocation(section, offset, *target);
                }
            }
        }
    }

    fn relocation(&mut self, section: SectionId, offset: u64, target: Target) {
        let (symbol, r_type) = match target {
            Target::Map(map) | Target::Value(map) => (Some(self.maps[map.0 as usize]), elf::R_BPF_64_64),
            Target::Data => (self.data, elf::R_BPF_64_64),
            Target::Func(_) => (self.text, elf::R_BPF_64_64),
            Target::Kfunc(kfunc) => (Some(self.kfuncs[kfunc as usize]), elf::R_BPF_64_32),
        };
        let symbol = symbol.expect("bug: code refers to data or callbacks that the module does not have");
        // BPF stores addends in the instructions.
        let relocation = Relocation { offset, symbol, addend: 0, flags: RelocationFlags::Elf { r_type } };
        self.object.add_relocation(section, relocation).expect("bug: relocation out of place");
    }
}

/// Appends the bytes of a function; addresses of callbacks become offsets in their section.
fn append(code: &Code, sections: &Sections, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend(&code.bytes);
    for (at, target) in &code.targets {
        if let (Target::Func(FuncRef(func)), Insn::LoadImm { dst, kind, .. }) = (target, code.insns[*at]) {
            let value = sections.offsets[*func as usize] as i64;
            let mut bytes = Vec::new();
            Insn::LoadImm { dst, kind, value }.encode(&mut bytes);
            let at = start + code.offsets[*at] as usize;
            out[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}
