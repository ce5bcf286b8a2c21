//! Machine code to a relocatable ELF object that libbpf, bpftool and llvm-objdump read.
//!
//! ```text
//! uprobe.multi ...   programs, one section for each kind           .rel...   what their instructions refer to
//! .text              callbacks                                     .BTF      types of maps, functions, kernel functions
//! .maps              maps, described in .BTF                       .BTF.ext  which function and script line each
//! .rodata            constant bytes                                          instruction belongs to
//! .data.NAME         the one value of a direct map
//! license            "GPL", as the tracing helpers demand          .cudatrace  the manifest, as JSON, if asked for
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
