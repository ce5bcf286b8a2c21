//! Which functions give way to a jump, as compilers make them, and which are left to the kernel, with the reason. Calls of both kinds are counted
//! exactly.

mod common;

use common::{can_trace, cudatrace, stderr, stdout, text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHAPES: [&str; 14] = [
    "constant",
    "leaf",
    "load",
    "branch",
    "loop",
    "calls",
    "tail",
    "recursive",
    "frame",
    "switch",
    "variadic",
    "many",
    "pointer",
    "double",
];

const TABLE: &str = "it has a jump table that may lead to one of its first instructions";
const TWICE: &str = "its first instruction cannot be executed twice";
const SHORT: &str = "it is shorter than a jump";
const LOOP: &str = "it branches to one of its first instructions";
const CALL: &str = "one of its first instructions is a call";

/// Options of the compiler, and the functions that the kernel may have to trace.
type Row = (&'static str, &'static [(&'static str, &'static str)]);

const ROWS: [Row; 13] = [
    ("-O0", &[("switch", TABLE)]),
    (
        "-O1",
        &[
            ("constant", SHORT),
            ("leaf", SHORT),
            ("load", SHORT),
            ("loop", LOOP),
            ("switch", TABLE),
            ("variadic", TWICE),
        ],
    ),
    ("-O2", &[("branch", TWICE), ("switch", TABLE), ("tail", TWICE)]),
    ("-O3", &[("branch", TWICE), ("switch", TABLE), ("tail", TWICE)]),
    (
        "-Os",
        &[
            ("branch", TWICE),
            ("constant", SHORT),
            ("leaf", SHORT),
            ("load", SHORT),
            ("loop", LOOP),
            ("switch", TABLE),
            ("tail", TWICE),
            ("variadic", TWICE),
        ],
    ),
    ("-O2 -fcf-protection=full", &[("branch", TWICE), ("switch", TABLE), ("tail", TWICE)]),
    ("-O2 -fno-omit-frame-pointer", &[("branch", TWICE), ("switch", TABLE), ("tail", TWICE)]),
    ("-O2 -fstack-protector-all", &[("switch", TABLE)]),
    ("-O2 -fsanitize=undefined", &[("switch", TABLE)]),
    // Retpolines, which are calls within a function, and no jump tables.
    ("-O2 -mindirect-branch=thunk -mfunction-return=thunk", &[("branch", TWICE), ("tail", TWICE)]),
    // Each function begins with `nop`.
    ("-O2 -fpatchable-function-entry=5", &[("switch", TABLE)]),
    ("-O2 -fpatchable-function-entry=16,8", &[("switch", TABLE)]),
    // Each function begins with a call.
    ("-O2 -pg -mfentry", &ALL_CALL),
];

const ALL_CALL: [(&str, &str); SHAPES.len()] = {
    let mut all = [("", CALL); SHAPES.len()];
    let mut at = 0;
    while at < SHAPES.len() {
        all[at].0 = SHAPES[at];
        at += 1;
    }
    all
};

#[test]
fn functions_of_all_shapes_are_counted_and_most_are_patched() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (options, refused) in ROWS {
        let (library, program) = build(folder.path(), options);
        let mut command = cudatrace();
        // Where `-pg` leaves its file.
        command.current_dir(folder.path());
        command.args(["-v", "--in-process", "-e", &script(&library), "--", text(&program)]);
        let output = command.output().expect("cudatrace starts");
        let (printed, said) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{options}: {printed}{said}");
        assert_counts(options, &printed, &said);
        assert_refused(options, refused, &said);
    }
}

/// Compiles the library and its program. Jumps behind other first instructions than `push` are made in CUDA's libraries only.
fn build(folder: &Path, options: &str) -> (PathBuf, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/shapes.c");
    let compile = |to: &str, options: &[&str]| {
        let to = folder.join(to);
        let built = Command::new("gcc").args(["-w", "-o"]).arg(&to).arg(&source).args(options).output();
        let built = built.expect("gcc is installed");
        assert!(built.status.success(), "{options:?}: {}", stderr(&built));
        to
    };
    let mut all: Vec<&str> = options.split(' ').collect();
    let common = all.len();
    all.extend(["-shared", "-fPIC", "-Wl,-Bsymbolic"]);
    let library = compile("libcufft.so.12", &all);
    all.truncate(common);
    all.extend(["-DMAIN", text(&library)]);
    let program = compile("program", &all);
    (library, program)
}

/// A clause at the entry and one at the return of each function.
fn script(library: &Path) -> String {
    let clauses = |shape| {
        let function = format!("{}:shape_{shape}", text(library));
        format!(
            "uprobe:{function} {{ @in_{shape} = count() }} uretprobe:{function} {{ @out_{shape} = count() }} "
        )
    };
    SHAPES.iter().map(clauses).collect()
}

/// Asserts that all calls were counted, wherever the clauses ran.
fn assert_counts(options: &str, printed: &str, said: &str) {
    let truth: Vec<(&str, &str)> =
        printed.lines().filter_map(|line| line.strip_prefix("count shape_")?.split_once(' ')).collect();
    assert_eq!(truth.len(), SHAPES.len(), "{options}: {printed}{said}");
    for (shape, count) in truth {
        for side in ["in", "out"] {
            let line = format!("@{side}_{shape}: {count}");
            assert!(printed.lines().any(|printed| printed == line), "{options}: {line}: {printed}{said}");
        }
    }
}

/// Asserts that no other functions than these were left to the kernel. Where all are, one is named.
fn assert_refused(options: &str, expected: &[(&str, &str)], said: &str) {
    let reason = |line: &str| {
        let (before, after) = line.split_once("` cannot be patched: ")?;
        let (_, shape) = before.rsplit_once(":shape_")?;
        let end = after.find(';').unwrap_or(after.len());
        Some((shape.to_owned(), after[..end].to_owned()))
    };
    let found: BTreeSet<(String, String)> = said.lines().filter_map(reason).collect();
    let other = found.iter().find(|(shape, why)| !expected.contains(&(shape, why)));
    assert_eq!(other, None, "{options}: {said}");
    let all_in_kernel = !said.contains("without the kernel");
    assert_eq!(all_in_kernel, expected.len() == SHAPES.len(), "{options}: {said}");
}
