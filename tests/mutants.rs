//! Mostly valid scripts: the trees of bundled, handwritten and generated scripts with a few changes. Each must be refused with positions, or
//! become programs that mean the same to all engines and that the kernel accepts. None may be an internal error.
//!
//! [`MUTANTS`] are tried, and more until `CUDATRACE_FUZZ_SECONDS` are over. `MUTANTS_SEED=123` begins with that seed (and ends with it by
//! default).

mod common;
#[path = "common/native_engine.rs"]
mod native_engine;

use codegen::{Options, Passes};
use common::{is_root, number};
use lang::diagnostics::{codes, render};
use lang::syntax::ast::Script;
use lang::syntax::{format, print};
use lang::{Diagnostics, Source};
use runtime::{Kernel, LoadError, LoadedScript};
use sim::World;
use sim::agree::{self, Disagreement, Variant};
use sim::catalog::TestCatalog;
use sim::generate;
use sim::mutate::mutate;
use sim::rng::Rng;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::Features;

/// Least number of mutants: the share that runs would be chance if a slow machine tried fewer.
const MUTANTS: u64 = 100;
/// Number of steps of a mutant's world.
const STEPS: usize = 40;

/// A script and its tree.
struct Original {
    name: String,
    tree: Script,
}

/// Result of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The text of the tree has wrong syntax.
    Syntax,
    /// Reported by the checker.
    Refused,
    /// The code is too long, or too much for the verifier.
    TooLong,
    Runs,
}

fn read(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let scripts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "ct"));
    let mut scripts: Vec<_> = scripts
        .map(|path| (path.display().to_string(), std::fs::read_to_string(path).expect("a readable script")))
        .collect();
    scripts.sort();
    scripts
}

fn parse(text: &str) -> Option<Script> {
    lang::parse(&Source::new("mutant.ct", text), &[], &mut Diagnostics::default())
}

/// The scripts that compile with the functions of the test catalog.
fn originals() -> Vec<Original> {
    let generated = (0..30).map(|seed| (format!("generated {seed}"), generate::script(seed)));
    let all = read("scripts").into_iter().chain(read("tests/agree")).chain(generated);
    let catalog = TestCatalog::of_cuda();
    let compile = |(name, text): (String, String)| {
        agree::check(&Source::new("original.ct", text.as_str()), &catalog).ok()?;
        Some(Original { name, tree: parse(&text).expect("it was checked") })
    };
    all.filter_map(compile).collect()
}

/// Parses what was printed, twice: the second tree is that of the parser, which must come back.
fn assert_is_printed_and_formatted(text: &str) -> bool {
    let Some(tree) = parse(text) else { return false };
    let again = print::print(&tree);
    let reparsed = parse(&again).unwrap_or_else(|| panic!("it is printed as text that is wrong:\n{again}"));
    assert_eq!(print::dump(&reparsed), print::dump(&tree), "it is printed as another script:\n{again}");
    let format = |text: &str| lang::format(&Source::new("mutant.ct", text), &mut Diagnostics::default());
    let once = format(text).unwrap_or_else(|failure: format::Failure| panic!("not formatted: {failure:?}"));
    assert_eq!(format(&once).as_ref(), Ok(&once), "it is formatted in two ways");
    true
}

/// Asserts that errors have a code and a position in the script.
fn assert_are_diagnostics(diags: &Diagnostics, src: &Source) {
    assert!(diags.has_errors(), "refused without an error");
    for diag in &diags.list {
        let (start, end) = (diag.span.start as usize, diag.span.end as usize);
        assert!(start <= end && end <= src.text.len(), "{diag:?}");
        assert!(codes::find(diag.code).is_some(), "{diag:?}");
    }
    let text = render::render(&diags.list, src, false);
    assert!(!text.contains("bug in cudatrace"), "an internal error: {text}");
}

/// Compiles a mutant for one kernel after the other, and loads it for one of them.
fn verdict(text: &str, seed: u64, kernel: Option<&Kernel>) -> Verdict {
    let src = Source::new("mutant.ct", text);
    if !assert_is_printed_and_formatted(text) {
        let mut diags = Diagnostics::default();
        lang::parse(&src, &[], &mut diags);
        assert_are_diagnostics(&diags, &src);
        return Verdict::Syntax;
    }
    let catalog = TestCatalog::of_cuda();
    let mut diags = Diagnostics::default();
    let options = lang::Options { unsafe_ok: true, run: lang::Run::Everything, ..Default::default() };
    let Some(checked) = lang::compile(&src, &options, &catalog, &mut diags) else {
        assert_are_diagnostics(&diags, &src);
        return Verdict::Refused;
    };
    let mut world = World::random(seed, &catalog.callees(), STEPS);
    if text.contains("gpu:") {
        world.pass_records(&catalog.agent_functions(), seed);
    }
    let kernels = [("floor", Features::FLOOR), ("new", Features::ALL)];
    let passes = [Passes::None, Passes::All];
    let mut is_too_long = false;
    for (name, features) in kernels {
        let passes = passes[(seed / 2) as usize % 2];
        let variant = Variant { name: name.into(), features, passes, pid_filter: false, sums: false };
        match agree::compare(&checked.program, &src, &world, &variant) {
            Ok(_) => {}
            Err(Disagreement::TooLong(_)) => is_too_long = true,
            Err(wrong) => panic!("{}", wrong.text()),
        }
    }
    // In the test's own process, keys of loops over maps are not where the programs may read long texts.
    if !is_too_long && seed.is_multiple_of(3) && !text.contains(" : @") {
        let (name, features) = ("in the process".into(), Features::IN_PROCESS);
        let variant = Variant { name, features, passes: Passes::All, pid_filter: false, sums: true };
        let run = agree::compile(&checked.program, &src, &world, &variant).map(|compiled| {
            // Scripts that need the kernel have no translation.
            let run = native_engine::run(&compiled, &world).ok()?;
            agree::compare_run(&checked.program, &world, &variant, run).err()
        });
        match run {
            Ok(None) | Err(Disagreement::TooLong(_)) => {}
            Ok(Some(wrong)) | Err(wrong) => panic!("{}", wrong.text()),
        }
    }
    let Some(kernel) = kernel.filter(|_| !is_too_long) else {
        return if is_too_long { Verdict::TooLong } else { Verdict::Runs };
    };
    let features = [kernel.features, Features::FLOOR][seed as usize % 2];
    let options = Options { pid_filter: true, sums: true, ..Options::new(features, 2) };
    let compiled = match codegen::compile(&checked.program, &src, &options) {
        Ok(compiled) => compiled,
        Err(codegen::Error::Length { .. } | codegen::Error::Size { .. }) => return Verdict::TooLong,
        Err(error) => panic!("{error}"),
    };
    let options = runtime::Options { ring_bytes: 1 << 16, ..runtime::Options::default() };
    match LoadedScript::load(&compiled, &options) {
        Ok(_) => Verdict::Runs,
        Err(LoadError::TooMuch { .. }) => Verdict::TooLong,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn mutants_are_refused_with_positions_or_run() {
    let originals = originals();
    assert!(originals.len() > 60, "{} scripts compile", originals.len());
    let kernel = is_root().then(|| Kernel::probe().expect("root may probe features"));
    let first = number("MUTANTS_SEED");
    let seconds = number("CUDATRACE_FUZZ_SECONDS").map(Duration::from_secs);
    let (start, mut verdicts, mut wrong) = (Instant::now(), Vec::new(), Vec::new());
    for seed in first.unwrap_or(0).. {
        let is_over = match (seconds, first) {
            (Some(seconds), _) => start.elapsed() >= seconds && seed - first.unwrap_or(0) >= MUTANTS,
            (None, Some(first)) => seed > first,
            (None, None) => seed >= MUTANTS,
        };
        if is_over {
            break;
        }
        let mut rng = Rng::new(seed);
        let original = rng.pick(&originals);
        let mut tree = original.tree.clone();
        for _ in 0..1 + rng.below(4) {
            mutate(&mut tree, &mut rng);
        }
        let text = print::print(&tree);
        match std::panic::catch_unwind(|| verdict(&text, seed, kernel.as_ref())) {
            Ok(verdict) => verdicts.push(verdict),
            Err(_) => {
                eprintln!("MUTANTS_SEED={seed}, {}:\n{text}", original.name);
                wrong.push(seed);
            }
        }
    }
    let share = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let [syntax, refused, long, run] =
        [Verdict::Syntax, Verdict::Refused, Verdict::TooLong, Verdict::Runs].map(share);
    eprintln!(
        "{run} run, {refused} are refused, {long} are too long, {syntax} have wrong syntax, {} fail",
        wrong.len()
    );
    assert!(wrong.is_empty(), "these mutants fail: {wrong:?}");
    assert!(first.is_some() || 2 * run > verdicts.len(), "{run} of {} mutants run", verdicts.len());
}
