//! IR of scripts: `golden/ir` as lowered, `golden/opt` after the optimiser. `BLESS=1` rewrites the files. As root every script is
//! also loaded, for new and old kernels, with and without optimisation.

use codegen::ir::{parse::parse, verify::verify};
use codegen::{Options, Passes, Stage};
use lang::catalog::{Catalog, File, FileId, Function, Place, TargetError};
use lang::{Diagnostics, Source, hir::Program};
use libbpf_rs::{ObjectBuilder, PrintLevel};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::Features;

/// A library of four functions, none of them in the tables, and the agent. Entry probes of the last function attach after a `push`.
struct OneLibrary([Vec<Function>; 2]);

const NAMES: &[&str] = &["copy", "init", "launch", "wait"];
const OF_AGENT: &[&str] = &["cudatrace_gpu_kernel"];

fn library() -> OneLibrary {
    let function = |(name, at): (&&str, u64)| Function {
        names: vec![name.to_string()],
        version: None,
        offset: 0x1000 + 0x100 * at,
    };
    OneLibrary([NAMES, OF_AGENT].map(|names| names.iter().zip(0..).map(function).collect()))
}

impl Catalog for OneLibrary {
    lang::lacks!(
        later_files,
        indirect_functions,
        markers,
        instructions,
        code_addresses,
        code_offsets,
        variables
    );
    lang::lacks!(
        debug_information,
        source_lines,
        kernel_types,
        kernel_symbols,
        iterators,
        kernel_fields,
        cgroups,
        records,
        tracepoints
    );
    lang::lacks!(kernel_functions, devices, known_targets);

    fn agent(&self) -> Option<File> {
        Some(File { id: FileId(1), path: "/lib/libagent.so".into(), library: None })
    }

    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        let file = File { id: FileId(0), path: "/lib/libx.so".into(), library: None };
        if target == "libx" { Ok(vec![file]) } else { Err(TargetError::NotYet { looked_in: vec![] }) }
    }

    fn functions(&self, file: FileId) -> &[Function] {
        &self.0[file.0 as usize]
    }

    fn entry_place(&self, file: FileId, offset: u64) -> Place {
        match offset {
            0x1300 => Place { offset: offset + 1, stack_shift: 8 },
            _ => self.return_place(file, offset),
        }
    }

    fn return_place(&self, _: FileId, offset: u64) -> Place {
        Place { offset, stack_shift: 0 }
    }
}

fn options(features: Features, optimise: Passes) -> Options {
    Options { optimise, ..Options::new(features, 2) }
}

/// Options that the first line of a golden script selects.
fn options_of(script: &str) -> Options {
    let mut features = Features::ALL;
    features.uprobe_session = !script.starts_with("// No sessions.");
    Options { sums: script.starts_with("// Sums."), ..options(features, Passes::All) }
}

fn check(src: &Source) -> Program {
    let mut diags = Diagnostics::default();
    let checked = lang::compile(src, &Default::default(), &library(), &mut diags);
    checked
        .unwrap_or_else(|| panic!("{}", lang::diagnostics::render::render(&diags.list, src, false)))
        .program
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Script and expected text.
fn parts(path: &Path) -> (String, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let (script, expected) = text.split_once(&format!("==== {folder}\n")).unwrap_or((&text, ""));
    (script.to_owned(), expected.to_owned())
}

/// The functions only: internal maps are the same in all modules.
fn functions(text: &str) -> String {
    let from = text.find("\nfunc ").map_or(text.len(), |at| at + 1);
    text[from..].trim_end().to_owned() + "\n"
}

fn compare(folder: &str, stage: Stage) {
    golden_files::compare(files(folder).into_iter().map(|path| {
        let (script, _) = parts(&path);
        let src = Source::new("golden.ct", script.clone());
        let found = codegen::dump(&check(&src), &src, &options_of(&script), stage).unwrap();
        (path, format!("{script}==== {folder}\n{}", functions(&found)))
    }));
}

#[test]
fn scripts_become_ir() {
    compare("ir", Stage::Ir);
}

#[test]
fn ir_becomes_better() {
    compare("opt", Stage::Opt);
}

/// `golden/passes/NAME.ir`: IR, and the result of one run of the pass with this name.
#[test]
fn passes_rewrite_ir() {
    golden_files::compare(codegen::opt::PASSES.iter().map(|(name, pass)| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/passes/{name}.ir"));
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, _) = text.split_once("==== after\n").unwrap();
        let mut module = parse(before).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(verify(&module), Ok(()), "{}", path.display());
        module.funcs.iter_mut().for_each(|func| assert!(pass(func), "{name} changes nothing"));
        let after = functions(&format!("\n{module}"));
        (path, format!("{before}==== after\n{after}"))
    }));
}

#[test]
fn the_text_of_ir_reads_back() {
    for path in files("ir").into_iter().chain(files("opt")) {
        let script = parts(&path).0;
        let src = Source::new("golden.ct", script.clone());
        for stage in [Stage::Ir, Stage::Opt] {
            let text = codegen::dump(&check(&src), &src, &options_of(&script), stage).unwrap();
            let module = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(module.to_string(), text, "{}", path.display());
        }
    }
}

static LOG: Mutex<String> = Mutex::new(String::new());

fn log(_: PrintLevel, text: String) {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push_str(&text);
}

#[test]
fn the_verifier_takes_every_golden() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: loading needs root");
        return;
    }
    libbpf_rs::set_print(Some((PrintLevel::Info, log)));
    for path in files("ir").into_iter().chain(files("opt")) {
        let src = Source::new("golden.ct", parts(&path).0);
        let program = check(&src);
        for features in [Features::ALL, Features::FLOOR] {
            for passes in [Passes::All, Passes::None] {
                let compiled = codegen::compile(&program, &src, &options(features, passes)).unwrap();
                let object = ObjectBuilder::default().open_memory(&compiled.elf).unwrap();
                let loaded = object.load();
                let log = std::mem::take(&mut *LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
                assert!(loaded.is_ok(), "{}, {features:?}, {passes:?}\n{log}", path.display());
            }
        }
    }
}
