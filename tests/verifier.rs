//! The kernel's verifier and the emitted programs.
//!
//! It must accept every program that the compiler accepts: generated scripts are loaded for real, with and without the
//! features that this kernel has beyond the oldest. `VERIFY_PROGRAMS=5000` makes more of them, `VERIFY_SEED=123` begins
//! with that seed (and ends with it by default). A refusal is reported as a bug of cudatrace.

mod common;

use codegen::{Options, Unwind};
use common::{can_load, section, seeds};
use lang::Source;
use lang::hir::Program;
use runtime::{Kernel, LoadError, LoadedScript};
use sim::agree;
use sim::catalog::TestCatalog;
use sim::generate;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::Features;
use wire::manifest::CompiledScript;

/// Default number of generated scripts.
const PROGRAMS: u64 = 150;

fn compile(program: &Program, src: &Source, features: Features) -> CompiledScript {
    let options = Options {
        pid_filter: true,
        sums: true,
        unwind: (features.btf && features.bpf_loop).then(Unwind::default),
        ..Options::new(features, 2)
    };
    codegen::compile(program, src, &options).unwrap_or_else(|error| panic!("{error}\n{}", src.text))
}

fn load(compiled: &CompiledScript) -> Result<LoadedScript, LoadError> {
    LoadedScript::load(compiled, &runtime::Options { ring_bytes: 1 << 16, ..runtime::Options::default() })
}

/// The features of this kernel, and those of the oldest supported kernel.
fn kernels() -> [(&'static str, Features); 2] {
    let kernel = Kernel::probe().expect("root may probe features");
    [("this kernel", kernel.features), ("only what the oldest kernel has", Features::FLOOR)]
}

/// Tests load one after the other, since [`steps`] reads all programs of this process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn generated_scripts_are_accepted() {
    if !can_load() {
        return;
    }
    let _alone = alone();
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

/// Number of instructions that the verifier followed in the most expensive program.
fn steps(text: &str, features: Features) -> Result<u64, LoadError> {
    let src = Source::new("growing.ct", text);
    let program = agree::check(&src, &TestCatalog::of_cuda()).unwrap_or_else(|findings| panic!("{findings}"));
    let loaded = load(&compile(&program, &src, features))?;
    let files = std::fs::read_dir("/proc/self/fdinfo").expect("proc is there");
    // The descriptor of the folder itself is already closed.
    let infos = files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let most = infos.filter_map(|info| {
        let line = info.lines().find_map(|line| line.strip_prefix("verified_insns:")).map(str::trim)?;
        line.parse().ok()
    });
    let most = most.max().expect("the kernel tells (5.16)");
    drop(loaded);
    Ok(most)
}

/// Repeats a text, with `#` replaced by a number.
fn numbered(one: &str, times: usize) -> String {
    (0..times).map(|at| one.replace('#', &at.to_string())).collect()
}

/// Statements that a script may repeat, with `#` as the number: name, first statement for all, then second
/// statement for all.
const GROWING: [(&str, &str, &str); 12] = [
    ("a value", "$v# = arg0 * #;", "if ($v# == 0) { @++ }"),
    ("a result", "@i[#] = arg0; $v# = @i[#];", "if ($v# == 0) { @++ }"),
    ("a divisor", "$v# = arg0 + #;", "@ = arg1 / $v#;"),
    ("a length", "$v# = arg1 + #;", "@s = str(arg0, $v#);"),
    ("an index", "$v# = arg1 + #;", "@ = (\"abc\")[$v#];"),
    ("a sample", "$v# = arg1 + #;", "@h = hist($v#);"),
    ("an extreme", "$v# = arg1 + #;", "@m# = max($v#);"),
    ("an extreme by time", "", "@m# = tseries(arg0, 1ms, 4, \"max\");"),
    ("a flag", "$v# = 0; if (arg0 > #) { $v# = 1; }", "if ($v# == 1) { @++ }"),
    ("a position", "$v# = strstr(comm, \"#\");", "if ($v# > 2) { @++ }"),
    ("a value of the program in loops", "$v# = arg0 * #;", "for $i : 0..arg1 { if ($v# > $i) { @++ } }"),
    ("a loop", "", "for $i : 0..arg1 { if ($i == arg0) { @++ } if ($i > arg0) { @-- } }"),
];

/// The verifier must not follow joined paths separately. With joined states, four times the code takes about four
/// times as long. With a separate state for each path, it would take millions of times as long.
#[test]
fn verifier_work_grows_linearly_with_the_script() {
    if !can_load() {
        return;
    }
    let _alone = alone();
    const SOME: usize = 6;
    let mut wrong = Vec::new();
    for (what, set, later) in GROWING {
        let body = |times| numbered(set, times) + &numbered(later, times).repeat(2);
        for (kernel, features) in kernels() {
            let text = |times| format!("uprobe:libcuda:cuMem* {{ {} }}", body(times));
            let [some, many] =
                [SOME, 4 * SOME].map(|times| steps(&text(times), features).unwrap_or(u64::MAX));
            eprintln!("{what}, {kernel}: {some}, {many}");
            if some == u64::MAX || many > 10 * some {
                wrong.push(format!("{what}, {kernel}: {some}, then {many}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Offset of the code in an object, and of a null test in it: `if r0 == 0 goto`.
fn null_test(elf: &[u8]) -> usize {
    const JUMP_IF_ZERO: [u8; 2] = [0x15, 0];
    let slots = section(elf, "raw_tp").step_by(8);
    let mut tests = slots.filter(|&at| elf[at..at + 2] == JUMP_IF_ZERO && elf[at + 4..at + 8] == [0; 4]);
    tests.next_back().expect("a lookup that is tested")
}

#[test]
fn bodies_that_run_for_records_are_accepted() {
    if !can_load() {
        return;
    }
    let _alone = alone();
    let catalog = TestCatalog::of_cuda();
    for name in ["gpu_exit.ct", "gpu_names.ct", "gpu_records.ct", "gpu_return.ct"] {
        let path = format!("{}/tests/agree/{name}", env!("CARGO_MANIFEST_DIR"));
        let src = Source::new(name, std::fs::read_to_string(path).expect("a readable script"));
        let program = agree::check(&src, &catalog).unwrap_or_else(|findings| panic!("{findings}"));
        for (kernel, features) in kernels() {
            load(&compile(&program, &src, features))
                .unwrap_or_else(|error| panic!("{name}, {kernel}: {error}"));
        }
    }
}

#[test]
fn a_refused_program_is_reported_as_a_bug_with_its_position() {
    if !can_load() {
        return;
    }
    let _alone = alone();
    let src = Source::new("spoilt.ct", "// one line\nBEGIN { @seen[1] = 2; print(@seen[1]); }\n");
    let program = agree::check(&src, &TestCatalog::of_cuda()).expect("a correct script");
    let mut compiled = compile(&program, &src, Features::FLOOR);
    let at = null_test(&compiled.elf);
    // `goto +0` replaces the test, so the value is read although it may be null.
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
fn a_program_that_is_too_large_for_the_verifier_is_reported_with_its_clause() {
    if !can_load() {
        return;
    }
    let _alone = alone();
    let loops: String = (0..9).map(|at| format!("for $i{at} : 0..100 {{ ")).collect();
    let search = "$a = str(arg0, 1024); unroll(100) { if (strcontains($a, \"abcabd\")) { @++ } }";
    let cases = [
        (
            format!("// one line\nBEGIN {{ {loops} @++ {} }}", "}".repeat(9)),
            "line 2, `BEGIN`: loops can be nested at most 7 deep",
        ),
        (
            format!("uprobe:libcuda:cuInit {{ {search} }}"),
            "line 1, `uprobe:libcuda:cuInit`: the verifier follows at most a million",
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
