//! Compiles `src/helpers/helpers.c`, which includes the other files there, and takes its machine code out of the result: `helpers.bin`,
//! and `helpers.rs` with the offsets of its functions.

use goblin::elf::Elf;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

const SOURCE: &str = "src/helpers/helpers.c";
/// Variable that names the C compiler, for a build whose compiler is not gcc.
const COMPILER: &str = "CUDATRACE_HELPERS_CC";

/// General registers only, as in a signal handler; no calls of a library, no unwind tables, no landing pads.
const FLAGS: &[&str] = &[
    "-O2",
    "-std=gnu11",
    "-ffreestanding",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-tree-loop-distribute-patterns",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-mgeneral-regs-only",
    "-shared",
    "-nostdlib",
    "-Wall",
    "-Wno-unused-parameter",
    "-Wl,-Bsymbolic,-z,norelro,--build-id=none",
];

fn main() {
    println!("cargo:rerun-if-changed=src/helpers");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = out.join("helpers.so");
    // The same code in every profile: what cargo says about debugging and optimisation would change it.
    let mut build = cc::Build::new();
    println!("cargo:rerun-if-env-changed={COMPILER}");
    let mut compiler = match env::var_os(COMPILER) {
        Some(compiler) => std::process::Command::new(compiler),
        None => build.no_default_flags(true).get_compiler().to_command(),
    };
    let status = compiler.args(FLAGS).arg("-o").arg(&library).arg(SOURCE).status();
    assert!(status.is_ok_and(|s| s.success()), "the C compiler does not compile {SOURCE}");
    take_code(&library, &out);
}

fn take_code(library: &Path, out: &Path) {
    let bytes = fs::read(library).expect("the library was just written");
    let elf = Elf::parse(&bytes).expect("the compiler writes ELF");
    let name = |at| elf.shdr_strtab.get_at(at).unwrap_or_default();
    for section in &elf.section_headers {
        let has_data = [".data", ".bss", ".rodata", ".got", ".got.plt"].contains(&name(section.sh_name));
        assert!(!has_data || section.sh_size == 0, "{SOURCE} has data in {}", name(section.sh_name));
    }
    assert!(elf.dynrelas.iter().next().is_none(), "{SOURCE} has relocations");
    let text = elf.section_headers.iter().find(|s| name(s.sh_name) == ".text").expect("it has code");
    let range = text.file_range().expect("code is in the file");
    fs::write(out.join("helpers.bin"), &bytes[range]).expect("OUT_DIR can be written");
    let functions: BTreeMap<&str, u64> = elf
        .dynsyms
        .iter()
        .filter(|symbol| symbol.is_function() && symbol.st_value != 0)
        .map(|symbol| (elf.dynstrtab.get_at(symbol.st_name).expect("a name"), symbol.st_value - text.sh_addr))
        .collect();
    let entries: Vec<_> = functions.iter().collect();
    let mut source = format!("pub(crate) const ALL: [(&str, u64); {}] = {entries:?};\n", entries.len());
    for (index, name) in functions.keys().enumerate() {
        source += &format!("pub(crate) const {}: usize = {index};\n", name.to_uppercase());
    }
    fs::write(out.join("helpers.rs"), source).expect("OUT_DIR can be written");
}
