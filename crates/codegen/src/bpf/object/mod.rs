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

use crate::bpf::code::{Assembly, Code};
use lang::Source;
use rustc_hash::FxHashMap;
use wire::Manifest;

/// Section of callbacks; libbpf appends them to the programs that refer to them.
const TEXT: &str = ".text";

/// The object's bytes, with its manifest or without.
pub fn write(assembly: &Assembly, manifest: Option<&Manifest>, src: &Source) -> Vec<u8> {
    let sections = Sections::of(assembly);
    let mut btf = btf::Btf::new();
    let maps = maps::describe(&mut btf, &assembly.maps);
    let funcs = btf.functions(assembly);
    let ext = line_info::write(&mut btf, assembly, &sections, &funcs, src);
    let debug = elf::Debug { btf: btf.bytes(), ext };
    elf::write(assembly, &sections, &maps, &debug, manifest)
}

/// Which functions lie in which section, and where.
struct Sections {
    /// Name, and indices of functions; in the order of the file.
    list: Vec<(String, Vec<usize>)>,
    /// By function: offset in its section, in bytes.
    offsets: Vec<u64>,
}

impl Sections {
    fn of(assembly: &Assembly) -> Sections {
        let mut sections = Sections { list: Vec::new(), offsets: Vec::new() };
        let mut known: FxHashMap<&str, (usize, u64)> = FxHashMap::default();
        for (at, code) in assembly.codes.iter().enumerate() {
            let name = section(code);
            let (index, end) = known.entry(name).or_insert_with(|| {
                sections.list.push((name.to_owned(), Vec::new()));
                (sections.list.len() - 1, 0)
            });
            sections.list[*index].1.push(at);
            sections.offsets.push(*end);
            *end += u64::from(code.size());
        }
        sections
    }
}

fn section(code: &Code) -> &str {
    code.section.as_deref().unwrap_or(TEXT)
}
