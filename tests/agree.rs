//! Agreement: a script means the same to the reference interpreter and to the BPF machine that runs its object, for the
//! oldest kernel and the newest, with optimisations off, each alone, and on.
//!
//! `tests/agree/*.ct` are run in worlds of their own; behind them come generated scripts. `AGREE_PROGRAMS=5000` makes more
//! of those, `AGREE_SEED=123` begins with that seed (and ends with it, if nothing else is said).

mod common;

use codegen::Passes;
use common::{number, progress};
use lang::Source;
use sim::World;
use sim::agree::{self, Variant};
use sim::catalog::TestCatalog;
use sim::generate;
use std::path::PathBuf;

/// Steps of a world for a script by hand.
const STEPS: usize = 400;
/// Steps of a world for a generated script.
const FEW_STEPS: usize = 60;
/// Generated scripts if nobody says otherwise.
const PROGRAMS: u64 = 300;

fn variants() -> Vec<Variant> {
    agree::variants(codegen::opt::PASSES.len())
}

/// For a generated script: everything on and everything off, and one of the others in turn.
fn some_variants(seed: u64) -> Vec<Variant> {
    let plain = |v: &Variant| !v.pid_filter && matches!(v.passes, Passes::None | Passes::All);
    let (mut some, others): (Vec<_>, Vec<_>) = variants().into_iter().partition(plain);
    let turn = seed as usize % others.len();
    some.extend(others.into_iter().nth(turn));
    some
}

/// Disagreements of a script.
fn disagreements(src: &Source, seed: u64, steps: usize, variants: &[Variant]) -> Vec<String> {
    let catalog = TestCatalog::of_cuda();
    let program = match agree::check(src, &catalog) {
        Ok(program) => program,
        Err(findings) => return vec![findings],
    };
    let world = World::random(seed, &catalog.callees(), steps);
    let wrong = |variant: &Variant| agree::compare(&program, src, &world, variant).err();
    variants.iter().filter_map(wrong).collect()
}

fn scripts() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agree");
    let entries = std::fs::read_dir(folder).expect("the folder of scripts is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
}

#[test]
fn scripts_do_what_they_mean() {
    let mut wrong = Vec::new();
    for path in scripts() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a readable script");
        let seed = name.bytes().fold(0u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
        let found = disagreements(&Source::new(name.clone(), text), seed, STEPS, &variants());
        wrong.extend(found.first().map(|first| format!("{name} ({} variants): {first}", found.len())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn generated_scripts_do_what_they_mean() {
    let first = number("AGREE_SEED");
    let count = number("AGREE_PROGRAMS").unwrap_or(if first.is_some() { 1 } else { PROGRAMS });
    let first = first.unwrap_or(0);
    for seed in first..first + count {
        progress("AGREE_SEED", seed);
        let text = generate::script(seed);
        let found =
            disagreements(&Source::new("generated", text.clone()), seed, FEW_STEPS, &some_variants(seed));
        assert!(found.is_empty(), "AGREE_SEED={seed}\n{text}\n{}", found.join("\n\n"));
    }
}
