//! Compiles `src/library` to a shared library, `agent.so`, which the crate contains as bytes.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use goblin::elf::Elf;

const SOURCE: &str = "src/library/lib.rs";

/// Neither the C library nor the start files are linked: the symbols are those of any C library that a process has. Tables for
/// unwinding name no function of Rust, since nothing unwinds.
const FLAGS: &[&str] = &[
    "--edition=2024",
    "--crate-name=cudatrace_gpu",
    "--crate-type=cdylib",
    "-Cpanic=abort",
    "-Copt-level=2",
    "-Cstrip=debuginfo",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-Wl,-soname,libcudatrace_gpu.so",
    "-Clink-arg=-Wl,--defsym=rust_eh_personality=0",
];

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let library = out.join("agent.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args(FLAGS).arg("--target").arg(variable("TARGET")).arg("-o").arg(&library).arg(SOURCE);
    assert!(compiler.status().is_ok_and(|status| status.success()), "{SOURCE} does not compile");
    let bytes = fs::read(&library).expect("the compiler has written it");
    assert!(bytes.len() < 200_000, "the agent is small: {} bytes", bytes.len());
    let places = places(&Elf::parse(&bytes).expect("the compiler writes ELF"));
    fs::write(out.join("places.rs"), places).expect("OUT_DIR can be written");
}

/// Constants for what the tracer must find in the library.
fn places(elf: &Elf<'_>) -> String {
    let address = |name: &str| {
        let is_it = |symbol: &goblin::elf::Sym| elf.dynstrtab.get_at(symbol.st_name) == Some(name);
        elf.dynsyms.iter().find(is_it).unwrap_or_else(|| panic!("no {name}")).st_value
    };
    let segment = |address: u64| {
        let holds = |segment: &&goblin::elf::ProgramHeader| segment.vm_range().contains(&(address as usize));
        let segment =
            elf.program_headers.iter().find(|s| s.p_type == goblin::elf::program_header::PT_LOAD && holds(s));
        segment.unwrap_or_else(|| panic!("no segment has {address:#x}"))
    };
    let written = address("cudatrace_tracer");
    let at = written - segment(written).p_vaddr + segment(written).p_offset;
    format!("pub(crate) const WRITTEN_AT: usize = {at:#x};\n")
}
