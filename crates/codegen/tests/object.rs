//! Sections, symbols and relocations of an object, read by another library.

mod build;

use build::*;
use codegen::bpf::helper::Helper;
use codegen::bpf::link;
use codegen::bpf::object::ObjectNotes;
use codegen::ir::*;
use goblin::elf::header::EM_BPF;
use goblin::elf::sym::{STB_LOCAL, STT_SECTION, type_to_str};
use goblin::elf::{Elf, Sym};
use lang::Source;
use std::fmt::Write;
use std::time::{Duration, Instant};
use wire::Manifest;

fn object(module: &Module, manifest: &Manifest) -> Vec<u8> {
    let src = Source::new("t.ct", "uprobe:x:f { @ = count() }");
    let notes = ObjectNotes { license: "GPL", manifest: Some(manifest) };
    codegen::bpf::object::write(&link::assemble(module).unwrap(), notes, &src)
}

/// A program of each kind, with relocations of each kind.
fn everything() -> Module {
    let mut loops = Build::new("probe1", program("raw_tp"));
    let (sum, callback) = (loops.slot(8), loops.def(|dst| Op::FuncAddr { dst, func: FuncRef(2) }));
    loops.store(sum, 0, Width::B64, 0);
    loops.call(Helper::Loop, &[10.into(), callback.into(), sum.into(), 0.into()]);
    let data = loops.def(|dst| Op::DataAddr { dst, offset: 8 });
    loops.load(data, 0, Width::B64);
    let each = Build::new("each", FuncKind::Callback { args: 2 });
    let mut session = Build::new("probe2", program("uprobe.session"));
    session.kfunc("bpf_session_is_return");
    let mut module = count("uprobe.multi", 4);
    let second = Func { name: "probe3".into(), ..module.funcs[0].clone() };
    module.funcs.extend([loops.0, each.0, session.0, second]);
    module.data = vec![7; 16];
    module
}

/// Sections with their sizes and relocations, and symbols. The sizes of the type sections are omitted.
fn listing(bytes: &[u8]) -> String {
    let elf = Elf::parse(bytes).unwrap();
    assert_eq!((elf.header.e_machine, elf.little_endian), (EM_BPF, true));
    let section_name = |at: usize| elf.shdr_strtab.get_at(elf.section_headers[at].sh_name).unwrap();
    let symbol_name = |symbol: &Sym| match symbol.st_type() {
        STT_SECTION => section_name(symbol.st_shndx),
        _ => elf.strtab.get_at(symbol.st_name).unwrap(),
    };
    let mut out = String::new();
    for (at, section) in elf.section_headers.iter().enumerate().skip(1) {
        let name = section_name(at);
        match name.starts_with('.') && !matches!(name, ".maps" | ".rodata" | ".text") {
            true => writeln!(out, "{name}").unwrap(),
            false => writeln!(out, "{name} {}", section.sh_size).unwrap(),
        }
        let here =
            elf.shdr_relocs.iter().filter(|(table, _)| elf.section_headers[*table].sh_info as usize == at);
        for relocation in here.flat_map(|(_, relocations)| relocations.iter()) {
            let symbol = elf.syms.get(relocation.r_sym).unwrap();
            let (at, kind) = (relocation.r_offset, relocation.r_type);
            writeln!(out, "  {at:#x} type {kind} {}", symbol_name(&symbol)).unwrap();
        }
    }
    for symbol in elf.syms.iter().skip(1) {
        let scope = if symbol.st_bind() == STB_LOCAL { "local" } else { "global" };
        let (name, kind) = (symbol_name(&symbol), type_to_str(symbol.st_type()));
        writeln!(out, "{scope} {kind} {name} {} {}", symbol.st_value, symbol.st_size).unwrap();
    }
    out
}

#[test]
fn sections_symbols_and_relocations_are_in_their_places() {
    let found = listing(&object(&everything(), &Manifest::default()));
    // Relocation types: 1 is R_BPF_64_64, 10 is R_BPF_64_32.
    let expected = "
license 4
.maps 32
.rodata 16
.text 16
uprobe.multi 192
  0x10 type 1 at_
  0x70 type 1 at_
.reluprobe.multi
raw_tp 112
  0x18 type 1 .text
  0x48 type 1 .rodata
.relraw_tp
uprobe.session 24
  0x0 type 10 bpf_session_is_return
.reluprobe.session
.BTF
.BTF.ext
.cudatrace
.symtab
.strtab
.shstrtab
local SECTION .rodata 0 0
local SECTION .text 0 0
local FUNC each 0 16
global OBJECT at_ 0 32
global NOTYPE bpf_session_is_return 0 0
global FUNC probe0 0 96
global FUNC probe3 96 96
global FUNC probe1 0 112
global FUNC probe2 0 24
";
    assert_eq!(found.trim(), expected.trim(), "\n{found}");
}

#[test]
fn the_manifest_travels_in_its_section() {
    let manifest = Manifest { version: 1, ring_bytes: 77, ..Manifest::default() };
    let bytes = object(&everything(), &manifest);
    let elf = Elf::parse(&bytes).unwrap();
    let named = |name| elf.shdr_strtab.get_at(name) == Some(wire::manifest::SECTION);
    let section = elf.section_headers.iter().find(|section| named(section.sh_name)).unwrap();
    let found: Manifest = serde_json::from_slice(&bytes[section.file_range().unwrap()]).unwrap();
    assert_eq!(found, manifest);
}

/// Errors for bodies that exceed limits of the kernel contain the size that they need.
#[test]
fn too_much_stack_is_an_error_that_says_how_much() {
    let mut b = Build::new("probe0", program("raw_tp"));
    let (big, callback) = (b.slot(400), b.def(|dst| Op::FuncAddr { dst, func: FuncRef(1) }));
    b.call(Helper::Loop, &[10.into(), callback.into(), big.into(), 0.into()]);
    let mut each = Build::new("each", FuncKind::Callback { args: 2 });
    let local = each.slot(100);
    each.store(local, 0, Width::B64, 0);
    let module = Module { funcs: vec![b.0, each.0], ..Module::default() };
    match link::assemble(&module) {
        // 416 and 128, each rounded up to 32.
        Err(codegen::Error::Stack { name, bytes, .. }) => assert_eq!((&*name, bytes), ("probe0", 544)),
        other => panic!("{other:?}"),
    }
}

/// A program with a slot of `bytes` bytes, and two exits.
fn with_slot(section: &str, bytes: u32) -> Func {
    let mut b = Build::new("probe0", program(section));
    let (map_addr, key) = (b.map(0), b.slot(bytes));
    b.store(key, 0, Width::B64, 1);
    let cell = b.call(Helper::MapLookupElem, &[map_addr.into(), key.into()]);
    b.if_zero(cell, 2, 1);
    b.block();
    b.store(cell, 0, Width::B64, 7);
    b.term(Term::Return(1.into()));
    b.block();
    b.0
}

/// A run in another thread would overwrite a per-CPU stack, so such a program disables preemption from its first
/// instruction to its last.
#[test]
fn programs_at_functions_with_stacks_of_their_own_are_not_preempted() {
    let listing = |section: &str, bytes, private_stack| {
        let maps = vec![map("at_", HASH, bytes, 8, 1)];
        let module =
            Module { funcs: vec![with_slot(section, bytes)], maps, private_stack, ..Module::default() };
        codegen::bpf::disasm::listing(&link::assemble(&module).unwrap(), &Source::new("t.ct", ""))
    };
    for (section, bytes, private_stack) in
        [("uprobe.multi", 48, true), ("uprobe.multi", 56, false), ("tracepoint", 56, true)]
    {
        assert!(
            !listing(section, bytes, private_stack).contains("preempt"),
            "{section} {bytes} {private_stack}"
        );
    }
    for section in ["uprobe.multi", "uprobe.session", "uretprobe"] {
        let text = listing(section, 56, true);
        let calls = |what: &str| text.matches(what).count();
        let numbered = |line: &'_ str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let lines = text.lines().filter(|line| numbered(line));
        let lines: Vec<&str> = lines.filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        let first = lines.iter().position(|insn| *insn == "call bpf_preempt_disable");
        assert_eq!((first, calls("bpf_preempt_disable")), (Some(1), 1), "{text}");
        let exits: Vec<usize> = (0..lines.len()).filter(|&at| lines[at] == "exit").collect();
        assert_eq!((exits.len(), calls("bpf_preempt_enable")), (2, 2), "{text}");
        assert!(exits.iter().all(|&at| lines[at - 2] == "call bpf_preempt_enable"), "{text}");
    }
}

/// Slots of statements that do not overlap share their bytes.
#[test]
fn slots_that_are_not_in_use_at_once_share_their_bytes() {
    let mut b = Build::new("probe0", program("raw_tp"));
    for _ in 0..20 {
        let (map_addr, key) = (b.map(0), b.slot(64));
        b.store(key, 0, Width::B64, 1);
        b.call(Helper::MapDeleteElem, &[map_addr.into(), key.into()]);
    }
    let module = Module { funcs: vec![b.0], maps: vec![map("at_", HASH, 64, 8, 1)], ..Module::default() };
    assert_eq!(link::assemble(&module).unwrap().codes[0].frame, 64);
}

/// Assembles a script of 40 long bodies. In debug builds the allocation checker also runs, and the limit is
/// higher.
#[test]
fn a_large_script_is_assembled_at_once() {
    let body = |name: String| {
        let mut b = Build::new(&name, program("uprobe.multi"));
        for n in 0..40 {
            let (map_addr, key) = (b.map(0), b.slot(16));
            b.store(key, 0, Width::B64, n);
            let cell = b.call(Helper::MapLookupElem, &[map_addr.into(), key.into()]);
            let at = b.0.blocks.len() as u32;
            b.if_zero(cell, at + 1, at);
            b.block();
            let old = b.load(cell, 0, Width::B64);
            let new = b.bin(Bin::Add, old, n);
            b.store(cell, 0, Width::B64, new);
            b.term(Term::Jump(BlockId(at + 1)));
            b.block();
        }
        b.0
    };
    let funcs = (0..40).map(|n| body(format!("probe{n}"))).collect();
    let module = Module { funcs, maps: vec![map("at_", HASH, 16, 8, 1)], ..Module::default() };
    let time = || {
        let start = Instant::now();
        object(&module, &Manifest::default());
        start.elapsed()
    };
    let best = (0..5).map(|_| time()).min().unwrap();
    println!("{} programs: {best:?}", module.funcs.len());
    let limit = Duration::from_millis(if cfg!(debug_assertions) { 2000 } else { 20 });
    assert!(best < limit, "{best:?}");
}
