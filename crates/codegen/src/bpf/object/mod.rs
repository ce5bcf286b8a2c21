//! Writes machine code as a relocatable ELF object that libbpf, bpftool and llvm-objdump read.
//!
//! ```text
//! uprobe.multi ...   programs, one section per kind                .rel...   relocations of instructions
//! .text              callbacks                                     .BTF      types of maps, functions, kernel functions
//! .maps              maps, described in .BTF                       .BTF.ext  function and script line of each
//! .rodata            constant bytes                                          instruction
//! .data.NAME         the one value of a direct map
//! license            "GPL", as the tracing helpers require         .cudatrace  the manifest, as JSON, on request
//! ```

mod btf;
mod elf;
mod line_info;
mod maps;
mod sections;

use crate::bpf::code::Assembly;
use lang::Source;
use sections::Sections;
use wire::Manifest;

/// Writes the object, with or without its manifest.
pub fn write(assembly: &Assembly, manifest: Option<&Manifest>, src: &Source) -> Vec<u8> {
    let sections = Sections::of(assembly);
    let mut btf = btf::Btf::new();
    let maps = maps::describe(&mut btf, &assembly.maps);
    let funcs = btf.functions(assembly);
    let ext = line_info::write(&mut btf, assembly, &sections, &funcs, src);
    let debug = elf::Debug { btf: btf.bytes(), ext };
    elf::write(assembly, &sections, &maps, &debug, manifest)
}
