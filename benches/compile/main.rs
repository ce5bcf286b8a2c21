//! What compiling costs: time from the text of a script to the BPF object, for every script that ships and for some
//! that are larger. Files are opened and their symbols read beforehand: that is the machine's share, not the compiler's.
//!
//! ```text
//! cargo bench --bench compile              every script
//! cargo bench --bench compile -- latency   those whose names contain this
//! ```
//!
//! The least of many runs is printed, since a busy machine only ever adds to it. More than [`ALLOWED`] is a failure.

use codegen::Options;
use host::{Machine, Scope};
use lang::catalog::{KernelFunction, RecordField, RecordKind, Tracepoint, debug_info};
use lang::expand::import;
use lang::expand::import::ImportedScript;
use lang::hir::Hook;
use lang::{Diagnostics, Source};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::Features;
use wire::manifest::CompiledScript;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time limit from source to object, for any script.
const ALLOWED: Duration = Duration::from_millis(50);
const RUNS: usize = 40;

/// Times of the front end and the back end, and the object.
struct Run {
    front: Duration,
    back: Duration,
    compiled: CompiledScript,
}

/// A kernel with every tracepoint and every field, so that nothing of this machine's kernel is read.
#[derive(Debug)]
struct AnyKernel;

impl host::Kernel for AnyKernel {
    fn tracepoint(&self, _: &str, _: &str) -> Result<Tracepoint, String> {
        let kind = |name: &str| match name {
            "filename" => RecordKind::Pointer { text: true },
            _ => RecordKind::Int { bytes: 8, signed: false },
        };
        let names = ["ret", "fd", "cmd", "filename"].into_iter();
        let field =
            |(at, name): (u32, &str)| RecordField { name: name.into(), offset: 8 * at, kind: kind(name) };
        Ok(Tracepoint { fields: (1..).zip(names).map(field).collect() })
    }

    fn tracepoints(&self) -> Vec<(String, String)> {
        vec![]
    }

    fn iterator(&self, _: &str) -> Result<Tracepoint, String> {
        Err("not here".into())
    }

    fn iterators(&self) -> Vec<String> {
        Vec::new()
    }

    fn raw_tracepoint(&self, _: &str) -> Result<Tracepoint, String> {
        Ok(Tracepoint { fields: vec![] })
    }

    fn raw_tracepoints(&self) -> Vec<String> {
        vec![]
    }

    fn hook(&self, _: Hook) -> Result<(), String> {
        Err("its functions are not known here".into())
    }

    fn functions(&self) -> &[KernelFunction] {
        &[]
    }

    fn trampoline_functions(&self) -> &[KernelFunction] {
        &[]
    }

    fn declared(&self, _: u64, _: &str) -> Result<debug_info::Function, debug_info::Absent> {
        Err(debug_info::Absent::NotDescribed)
    }

    fn field(&self, _: &str, _: &str) -> Option<u32> {
        None
    }

    fn symbol(&self, _: &str) -> Option<u64> {
        None
    }

    fn type_named(&self, _: &str) -> Option<u64> {
        None
    }

    fn enum_with(&self, _: &str) -> Option<u64> {
        None
    }

    fn declared_type(&self, _: u64) -> Option<lang::catalog::debug_info::Type> {
        None
    }
}

/// Resolver of libraries that bundled scripts import.
struct Parts;

impl import::Files for Parts {
    fn import(&self, _: &str, name: &str) -> Result<Vec<ImportedScript>, String> {
        let path = format!("{}/scripts/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok(vec![ImportedScript { name: name.to_owned(), text }])
    }
}

fn main() -> ExitCode {
    // cargo passes `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The time of a failed search for a library depends on the machine, so it is excluded.
    let libraries =
        [("libcuda", "libcuda.so.1"), ("libcudart", "libcudart.so.13"), ("libnccl", "libnccl.so.2")];
    let lib_overrides = libraries.map(|(name, file)| (name.into(), root.join("examples/build").join(file)));
    assert!(lib_overrides.iter().all(|(_, file)| file.exists()), "needs the examples: `make examples`");
    let lib_overrides = lib_overrides.to_vec();
    let machine = Machine::new(Scope { lib_overrides, ..Scope::default() }).with_kernel(&AnyKernel);
    println!("{:<20}{:>10}{:>12}{:>10}{:>14}", "script", "front us", "codegen us", "sum us", "object bytes");
    let scripts = scripts(&[root.join("scripts"), root.join("benches/compile")]);
    let chosen = scripts.iter().filter(|path| is_wanted(path, &wanted));
    let slow = chosen.filter(|path| measure(path, &machine) > ALLOWED).count();
    if slow > 0 {
        eprintln!("{slow} took more than {ALLOWED:?}");
    }
    ExitCode::from(u8::from(slow > 0))
}

fn scripts(directories: &[PathBuf]) -> Vec<PathBuf> {
    let entries =
        directories.iter().flat_map(|dir| std::fs::read_dir(dir).expect("a directory of this project"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ct"));
    paths.sort();
    paths
}

fn is_wanted(path: &Path, wanted: &[String]) -> bool {
    let name = path.to_string_lossy();
    wanted.is_empty() || wanted.iter().any(|part| name.contains(part))
}

/// Prints a line, and returns the total time.
fn measure(path: &Path, machine: &Machine) -> Duration {
    let mut source = Source::new(path.to_string_lossy(), std::fs::read_to_string(path).expect("a script"));
    import::load(&mut source, &Parts, &mut Diagnostics::default());
    compile(&source, machine); // the first one reads symbols
    let best = (0..RUNS)
        .map(|_| compile(&source, machine))
        .min_by_key(|run| run.front + run.back)
        .expect("RUNS > 0");
    let sum = best.front + best.back;
    println!(
        "{:<20}{:>10}{:>12}{:>10}{:>14}",
        path.file_stem().expect("a file").to_string_lossy(),
        best.front.as_micros(),
        best.back.as_micros(),
        sum.as_micros(),
        best.compiled.elf.len()
    );
    sum
}

fn compile(source: &Source, machine: &Machine) -> Run {
    let start = Instant::now();
    let mut diags = Diagnostics::default();
    let checked = lang::compile(source, &lang::Options::default(), machine, &mut diags)
        .unwrap_or_else(|| panic!("{}: {:#?}", source.name, diags.list));
    let front = start.elapsed();
    let compiled = codegen::compile(&checked.program, source, &options()).expect("it is not too large");
    Run { front, back: start.elapsed() - front, compiled }
}

fn options() -> Options {
    Options { pid_filter: true, ..Options::new(Features::ALL, 2) }
}
