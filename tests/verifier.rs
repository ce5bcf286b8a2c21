//! The kernel's verifier and what we hand it.
//!
//! It must accept every program that the compiler accepts: generated scripts are loaded for real, with and without the
//! features that this kernel has beyond the oldest. `VERIFY_PROGRAMS=5000` makes more of them, `VERIFY_SEED=123` begins
//! with that seed (and ends with it, if nothing else is said). What it refuses all the same is reported as our bug.

mod common;

use codegen::{Options, Unwind};
use common::{can_load, seeds};
use lang::Source;
use lang::hir::Program;
use runtime::{Kernel, LoadError, Loaded};
use sim::agree;
use sim::catalog::TestCatalog;
use sim::generate;
use wire::Features;
use wire::manifest::Compiled;

/// Generated scripts if nobody says otherwise.
const PROGRAMS: u64 = 150;

fn compile(program: &Program, src: &Source, features: Features) -> Compiled {
    let options = Options {
        pid_filter: true,
        unwind: (features.btf && features.bpf_loop).then(Unwind::default),
        ..Options::new(features, 2)
    };
    codegen::compile(program, src, &options).unwrap_or_else(|error| panic!("{error}\n{}", src.text))
}

fn load(compiled: &Compiled) -> Result<Loaded, LoadError> {
    Loaded::load(compiled, &runtime::Options { ring_bytes: 1 << 16, ..runtime::Options::default() })
}

/// As the command line does on this kernel, and as it does on the oldest one.
fn kernels() -> [(&'static str, Features); 2] {
    let kernel = Kernel::probe().expect("root may probe features");
    [("this kernel", kernel.features), ("only what the oldest kernel has", Features::FLOOR)]
}

#[test]
fn generated_scripts_are_accepted() {
    if !can_load() {
        return;
    }
    let (kernels, catalog) = (kernels(), TestCatalog::of_cuda());
    let mut refused = Vec::new();
    for seed in seeds("VERIFY", PROGRAMS) {
        let src = Source::new("generated", generate::script(seed));
        let program = agree::check(&src, &catalog).unwrap_or_else(|findings| panic!("{findings}"));
        let (name, features) = kernels[seed as usize % kernels.len()];
        if let Err(error) = load(&compile(&program, &src, features)) {
            eprintln!("VERIFY_SEED={seed} ({name})\n{}\n{error}", src.text);
            refused.push(seed);
        }
    }
    assert!(refused.is_empty(), "refused: {refused:?}");
}

/// Where code lies in an object, and a test for null in it: `if r0 == 0 goto`.
fn null_test(elf: &[u8]) -> usize {
    use object::{Object, ObjectSection};
    const JUMP_IF_ZERO: [u8; 2] = [0x15, 0];
    let file = object::File::parse(elf).expect("an object");
    let code = file.sections().find(|section| section.name() == Ok("raw_tp")).expect("the program's section");
    let (start, length) = code.file_range().expect("it has bytes");
    let slots = (start as usize..(start + length) as usize).step_by(8);
    let mut tests = slots.filter(|&at| elf[at..at + 2] == JUMP_IF_ZERO && elf[at + 4..at + 8] == [0; 4]);
    tests.next_back().expect("a lookup that is tested")
}

#[test]
fn a_refused_program_is_our_bug_and_says_where() {
    if !can_load() {
        return;
    }
    let src = Source::new("spoilt.ct", "// one line\nBEGIN { @seen[1] = 2; print(@seen[1]); }\n");
    let program = agree::check(&src, &TestCatalog::of_cuda()).expect("a correct script");
    let mut compiled = compile(&program, &src, Features::FLOOR);
    let at = null_test(&compiled.elf);
    // `goto +0`: what may be missing is read all the same.
    compiled.elf[at..at + 8].copy_from_slice(&[0x05, 0, 0, 0, 0, 0, 0, 0]);
    let error = load(&compiled).err().expect("the verifier refuses it");
    assert!(matches!(&error, LoadError::Refused { place, .. } if place == "line 2"), "{error:?}");
    let said = error.to_string();
    for part in
        ["line 2, `BEGIN`", "bug in cudatrace", "map_value_or_null", "; BEGIN { @seen[1] = 2;", "spoilt.ct:2"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn what_the_kernel_cannot_check_for_its_size_is_said_in_the_terms_of_the_script() {
    if !can_load() {
        return;
    }
    let loops: String = (0..9).map(|at| format!("for $i{at} : 0..100 {{ ")).collect();
    let search = "$a = str(arg0, 1024); unroll(100) { if (strcontains($a, \"abcabd\")) { @++ } }";
    let cases = [
        (
            format!("// one line\nBEGIN {{ {loops} @++ {} }}", "}".repeat(9)),
            "line 2, `BEGIN`: loops nest 7 deep",
        ),
        (
            format!("uprobe:libcuda:cuInit {{ {search} }}"),
            "line 1, `uprobe:libcuda:cuInit`: it follows a million steps",
        ),
    ];
    for (text, said) in cases {
        let src = Source::new("large.ct", text.as_str());
        let program = agree::check(&src, &TestCatalog::of_cuda()).expect("a correct script");
        let error = load(&compile(&program, &src, kernels()[0].1)).err().expect("too much for the verifier");
        assert!(matches!(&error, LoadError::TooMuch { .. }), "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!error.to_string().contains("bug"), "{error}");
    }
}
