//! Loads objects with libbpf: a counting program that is assembled here, with maps declared by BTF.

use super::*;
use crate::attach::detach::PendingDetach;
use crate::error::LoadError;
use crate::options::Options;
use crate::options::{ModuleId, ModulePart};
use crate::session::LoadedScript;
use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};
use report::Cell;
use std::time::Duration;
use wire::manifest::CompiledScript;
use wire::map::{Agg, Map, MapValue, Storage};

/// `type`, key size, value size, entries.
type DeclaredMap = (&'static str, [u32; 4]);

const MAPS: [DeclaredMap; 4] = [
    ("ct_ring", [bpf::BPF_MAP_TYPE_RINGBUF, 0, 0, 1 << 16]),
    ("ct_counters", [bpf::BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1]),
    ("ct_control", [bpf::BPF_MAP_TYPE_ARRAY, 4, 16, 1]),
    ("calls", [bpf::BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1]),
];

/// BTF type info and strings under construction; `next` is the id of the next type.
struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
    next: u32,
}

impl Btf {
    fn string(&mut self, text: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    fn put(&mut self, words: &[u32]) -> u32 {
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.next += 1;
        self.next - 1
    }

    /// `int (*)[n]`: a number in a map declaration.
    fn number(&mut self, int: u32, n: u32) -> u32 {
        let array = self.put(&[0, 3 << 24, 0, int, int, n]);
        self.put(&[0, 2 << 24, array])
    }

    fn map(&mut self, int: u32, name: &str, values: [u32; 4]) -> u32 {
        // A ring buffer must not have sizes of 0.
        let members = ["type", "key_size", "value_size", "max_entries"].into_iter().zip(values);
        let members: Vec<(u32, u32)> = members
            .filter(|(_, value)| *value != 0)
            .map(|(name, value)| (self.string(name), self.number(int, value)))
            .collect();
        let mut words = vec![0, 4 << 24 | members.len() as u32, 8 * members.len() as u32];
        for (at, (name, ty)) in members.iter().enumerate() {
            words.extend([*name, *ty, 64 * at as u32]);
        }
        let declaration = self.put(&words);
        let name = self.string(name);
        self.put(&[name, 14 << 24, declaration, 1])
    }

    fn bytes(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let header = [0x0001_eb9f, 24, 0, types, types, strings].map(u32::to_le_bytes).concat();
        [header, self.types, self.strings].concat()
    }
}

fn btf(maps: &[DeclaredMap]) -> Vec<u8> {
    let mut btf = Btf { types: vec![], strings: vec![0], next: 1 };
    let name = btf.string("int");
    let int = btf.put(&[name, 1 << 24, 4, 1 << 24 | 32]);
    let vars: Vec<u32> = maps.iter().map(|(name, values)| btf.map(int, name, *values)).collect();
    let name = btf.string(".maps");
    let mut section = vec![name, 15 << 24 | vars.len() as u32, 32 * vars.len() as u32];
    for (at, var) in vars.iter().enumerate() {
        section.extend([*var, 32 * at as u32, 32]);
    }
    btf.put(&section);
    btf.bytes()
}

fn symbol(name: &str, section: SectionId, value: u64, size: u64, kind: SymbolKind) -> Symbol {
    Symbol {
        name: name.into(),
        value,
        size,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    }
}

/// `calls[0] += 1`, and the index of the instruction that refers to the map.
fn counts() -> (Vec<bpf::bpf_insn>, u64) {
    let code = vec![
        insn(0x62, 10, 0, -4, 0), // key 0
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -4),
        insn(0x18, 1, 0, 0, 0), // the map, by relocation
        insn(0, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, bpf::BPF_FUNC_map_lookup_elem as i32),
        insn(0x15, 0, 0, 2, 0),
        insn(0xb7, 1, 0, 0, 1),
        insn(0xdb, 0, 1, 0, 0), // atomic add
        insn(0xb7, 0, 0, 0, 0),
        insn(0x95, 0, 0, 0, 0),
    ];
    (code, 3)
}

/// Reads an uninitialised register.
fn refused() -> Vec<bpf::bpf_insn> {
    vec![insn(0xbf, 0, 5, 0, 0), insn(0x95, 0, 0, 0, 0)]
}

fn object(code: &[bpf::bpf_insn], uses_map_at: Option<u64>) -> Vec<u8> {
    object_with(&MAPS, code, uses_map_at)
}

fn object_with(maps: &[DeclaredMap; 4], code: &[bpf::bpf_insn], uses_map_at: Option<u64>) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let mut section = |name: &str, kind, data: &[u8]| {
        let id = object.add_section(vec![], name.into(), kind);
        object.append_section_data(id, data, 8);
        id
    };
    section("license", SectionKind::Data, b"GPL\0");
    section(".BTF", SectionKind::Other, &btf(maps));
    let declarations = section(".maps", SectionKind::Data, &[0; 32 * MAPS.len()]);
    // SAFETY: instructions are plain bytes.
    let bytes = unsafe { std::slice::from_raw_parts(code.as_ptr().cast::<u8>(), size_of_val(code)) };
    let text = section("uprobe.multi", SectionKind::Text, bytes);
    let declared = maps.iter().zip(0u64..);
    let symbols: Vec<SymbolId> = declared
        .map(|((name, _), at)| object.add_symbol(symbol(name, declarations, 32 * at, 32, SymbolKind::Data)))
        .collect();
    object.add_symbol(symbol("p", text, 0, bytes.len() as u64, SymbolKind::Text));
    if let Some(at) = uses_map_at {
        let flags = RelocationFlags::Elf { r_type: object::elf::R_BPF_64_64 };
        let relocation = Relocation { offset: 8 * at, symbol: symbols[3], addend: 0, flags };
        object.add_relocation(text, relocation).expect("relocation");
    }
    object.write().expect("object")
}

fn compiled(elf: Vec<u8>, sites: Vec<Site>) -> CompiledScript {
    let mut manifest = manifest(vec![uprobes(Side::Entry, sites)]);
    manifest.print_maps_on_exit = true;
    manifest.maps.push(Map {
        name: "calls".into(),
        symbol: "calls".into(),
        key: vec![],
        value: MapValue::Agg(Agg::Count),
        storage: Storage::PerCpuArray,
        max_entries: 1,
    });
    CompiledScript { elf, manifest }
}

#[test]
fn a_module_that_extends_a_session_counts_in_the_same_map() {
    let Some(_alone) = alone() else { return };
    let (code, uses_map_at) = counts();
    let elf = object(&code, Some(uses_map_at));
    let first = compiled(elf.clone(), vec![site(probed_one, 0, 0, 0)]);
    let loaded = LoadedScript::load(&first, &Options::default()).expect("loads");
    let mut session = loaded.attach(&only_us()).expect("attaches");
    probed_one(1);
    probed_two(1);
    let second = compiled(elf, vec![site(probed_two, 0, 0, 1)]);
    let module = session.extend(&second, &only_us()).expect("extends");
    assert_eq!(module.attached, 1);
    assert_eq!(session.attached(), 2);
    probed_one(1);
    probed_two(1);
    let count = |session: &Session| session.snapshot(0, 0, 0).expect("snapshot").entries;
    let is = |bits| vec![(vec![], Cell::Number { bits, signed: false })];
    assert_eq!(count(&session), is(3));

    let part = |module, clause| ModulePart { module, clause: Some(clause) };
    let wait = |detaching: PendingDetach| {
        assert!(!detaching.wait(Duration::from_secs(10)).left_behind);
    };
    wait(session.detach_part(part(ModuleId::default(), 0)));
    probed_one(1);
    assert_eq!(count(&session), is(3), "detached");
    probed_two(1);
    assert_eq!(count(&session), is(4), "another module, whatever its clauses' numbers");
    wait(session.detach_part(part(module.id, 0)));
    probed_two(1);
    assert_eq!(count(&session), is(4));
    session.clear(0).expect("clear");
    assert_eq!(count(&session), is(0));
    let mut log = OutputLog::default();
    session.run(&mut log, &NoNames, stop_now());
    assert_eq!(log.lines, ["attached 2", "end", "loss 0"], "a cleared map is not printed");

    let mut fewer = second;
    fewer.manifest.events.clear();
    let error = session.extend(&fewer, &only_us()).expect_err("fewer events").to_string();
    assert!(error.contains("it has fewer events"), "{error}");
}

#[test]
fn a_refused_program_is_our_bug_and_comes_with_clause_and_log() {
    let Some(_alone) = alone() else { return };
    let refused = compiled(object(&refused(), None), vec![site(probed_one, 0, 0, 0)]);
    let error = LoadedScript::load(&refused, &Options::default()).err().expect("refused");
    assert!(
        matches!(&error, LoadError::Refused { place, errno, .. } if place == "line 3" && errno.raw_os_error() == Some(libc::EACCES))
    );
    let text = error.to_string();
    for part in ["`the clause`", "bug in cudatrace", "R5 !read_ok"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_manifest_with_missing_names_is_refused() {
    let Some(_alone) = alone() else { return };
    let (code, uses_map_at) = counts();
    let mut compiled = compiled(object(&code, Some(uses_map_at)), vec![]);
    compiled.manifest.maps[0].symbol = "elsewhere".into();
    let error = LoadedScript::load(&compiled, &Options::default()).err().expect("refused");
    assert!(matches!(&error, LoadError::Missing { what: "map", symbol } if symbol == "elsewhere"), "{error}");
    compiled.manifest.maps.clear();
    compiled.manifest.programs[0].symbol = "missing".into();
    let error = LoadedScript::load(&compiled, &Options::default()).err().expect("refused");
    assert!(matches!(&error, LoadError::Missing { what: "program", .. }), "{error}");
}

#[test]
fn a_map_that_the_kernel_refuses_is_named() {
    let Some(_alone) = alone() else { return };
    let (code, uses_map_at) = counts();
    let mut maps = MAPS;
    // Exceeds the limit of the buffer for the values of all CPUs.
    maps[3].1[2] = 1 << 30;
    let compiled = compiled(object_with(&maps, &code, Some(uses_map_at)), vec![]);
    let error = LoadedScript::load(&compiled, &Options::default()).err().expect("refused");
    assert!(matches!(&error, LoadError::Map { symbol, .. } if symbol == "calls"), "{error}");
}
