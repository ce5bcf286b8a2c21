//! Writes machine code as a relocatable ELF object that libbpf, bpftool and llvm-objdump read.
//!
//! ```text
//! uprobe.multi ...   programs, one section per kind                .rel...   relocations of instructions
//! .text              callbacks                                     .BTF      types of maps, functions, kernel functions
//! .maps              maps, described in .BTF                       .BTF.ext  function and script line of each
//! .rodata            constant bytes                                          instruction
//! .data.NAME         the one value of a direct map
//! license            of `config`, "GPL" by default                 .cudatrace  the manifest, as JSON, on request
//! ```

mod btf;
mod elf;
mod line_info;
mod maps;
mod sections;

use crate::bpf::code::Assembly;
pub use elf::ObjectNotes;
use lang::Source;
use sections::Sections;

/// Writes the object.
pub fn write(assembly: &Assembly, notes: ObjectNotes, src: &Source) -> Vec<u8> {
    let sections = Sections::of(assembly);
    let mut btf = btf::Btf::new();
    let maps = maps::describe(&mut btf, &assembly.maps);
    let funcs = btf.functions(assembly);
    let ext = line_info::write(&mut btf, assembly, &sections, &funcs, src);
    let debug = elf::Debug { btf: btf.bytes(), ext };
    elf::write(assembly, &sections, &maps, &debug, notes)
}
