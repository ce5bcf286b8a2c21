//! Agreement: a script means the same to the reference interpreter and to the BPF machine that runs its object, for the
//! oldest kernel and the newest, with optimisations off, each alone, and on.
//!
//! The machine code for probes in the traced process is a third engine (`common/native_engine.rs`).
//!
//! `tests/agree/*.ct` run in separate machines, then generated scripts. `AGREE_PROGRAMS=5000` makes more
//! of those, `AGREE_SEED=123` begins with that seed (and ends with it by default).

mod common;
#[path = "common/native_engine.rs"]
mod native_engine;

use codegen::Passes;
use common::seeds;
use lang::Source;
use sim::World;
use sim::agree::{self, Disagreement, Variant};
use sim::catalog::TestCatalog;
use sim::generate;
use std::path::PathBuf;
use wire::Features;
use wire::manifest::{GPU_LAUNCHES, GPU_RANGES};

/// Number of steps of a world for a handwritten script.
const STEPS: usize = 400;
/// Number of steps of a world for a generated script.
const FEW_STEPS: usize = 60;
/// Default number of generated scripts.
const PROGRAMS: u64 = 300;

fn variants() -> Vec<Variant> {
    agree::variants(codegen::opt::PASSES.len())
}

/// Variants for a generated script: all optimisations, none, and one of the others in turn.
fn some_variants(seed: u64) -> Vec<Variant> {
    let plain = |v: &Variant| !v.pid_filter && matches!(v.passes, Passes::None | Passes::All);
    let (mut some, others): (Vec<_>, Vec<_>) = variants().into_iter().partition(plain);
    let turn = seed as usize % others.len();
    some.extend(others.into_iter().nth(turn));
    some
}

/// One of this number of generated scripts may be too long for BPF's jumps.
const LONG: usize = 2_000;

/// Disagreements of a script as text.
fn disagreements(src: &Source, seed: u64, steps: usize, variants: &[Variant]) -> Vec<String> {
    found(src, seed, steps, variants).iter().map(|found| found.text().to_owned()).collect()
}

fn found(src: &Source, seed: u64, steps: usize, variants: &[Variant]) -> Vec<Disagreement> {
    let catalog = TestCatalog::of_cuda();
    let program = match agree::check(src, &catalog) {
        Ok(program) => program,
        Err(findings) => return vec![Disagreement::Wrong(findings)],
    };
    let world = world(src, &catalog, seed, steps);
    let wrong = |variant: &Variant| agree::compare(&program, src, &world, variant).err();
    variants.iter().filter_map(wrong).collect()
}

/// A random world. If the script has probes at records of GPUs, processes pass batches of them.
fn world(src: &Source, catalog: &TestCatalog, seed: u64, steps: usize) -> World {
    let mut world = World::random(seed, &catalog.callees(), steps);
    if src.text.contains("gpu:") {
        world.pass_records(&catalog.agent_functions(), seed);
    }
    world
}

/// Scripts that need what only the kernel has: its stacks, and the task.
const KERNEL_ONLY: [&str; 5] = ["gpu_stacks.ct", "parents.ct", "rows.ct", "stacks.ct", "stacks_compared.ct"];

/// Compares the outcomes of machine code in this process, with and without optimisations. `Ok(false)`: the script needs the kernel.
fn in_process(src: &Source, seed: u64, steps: usize) -> Result<bool, Disagreement> {
    let catalog = TestCatalog::of_cuda();
    let program = agree::check(src, &catalog).map_err(Disagreement::Wrong)?;
    let world = world(src, &catalog, seed, steps);
    for passes in [Passes::None, Passes::All] {
        let (name, features) = (format!("in the process, {passes:?}"), Features::IN_PROCESS);
        let variant = Variant { name, features, passes, pid_filter: false, sums: true };
        let compiled = agree::compile(&program, src, &world, &variant)?;
        let Ok(run) = native_engine::run(&compiled, &world) else { return Ok(false) };
        agree::compare_run(&program, &world, &variant, run)?;
    }
    Ok(true)
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
fn scripts_do_the_same_in_the_process() {
    let mut wrong = Vec::new();
    for path in scripts() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a readable script");
        let runs = !KERNEL_ONLY.contains(&name.as_str());
        match in_process(&Source::new(name.clone(), text), 11, STEPS) {
            Ok(ran) if ran == runs => {}
            Ok(ran) => wrong.push(format!("{name}: ran: {ran}")),
            Err(disagreement) => wrong.push(format!("{name}: {}", disagreement.text())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The scripts at records of GPUs are about something: each of their maps gets entries, and an `exit` ends the world.
#[test]
fn records_reach_scripts_in_each_way() {
    let catalog = TestCatalog::of_cuda();
    let kinds_of = [
        ("gpu_exit.ct", 0b101),
        ("gpu_names.ct", 0b101),
        ("gpu_records.ct", 0b1111_1111 | GPU_RANGES),
        ("gpu_return.ct", 0b11),
    ];
    for (name, kinds) in kinds_of {
        let path = scripts().into_iter().find(|path| path.ends_with(name)).expect("a script");
        let src = Source::new(name, std::fs::read_to_string(path).expect("a readable script"));
        let program = agree::check(&src, &catalog).unwrap();
        let variant = &variants()[0];
        let worlds = [11, 12, 13, 14].map(|seed| world(&src, &catalog, seed, STEPS));
        let outcomes =
            worlds.each_ref().map(|world| agree::meant(&program, world, variant).expect("short loops"));
        let is_empty = |map: &str| outcomes.iter().all(|outcome| outcome.maps[map].is_empty());
        let own = outcomes[0].maps.keys().filter(|name| !name.starts_with("__"));
        assert_eq!(own.filter(|name| is_empty(name)).collect::<Vec<_>>(), [""; 0], "{name}");
        let ends = outcomes.iter().any(|outcome| outcome.exit.is_some());
        assert_eq!(ends, name == "gpu_exit.ct", "{name}");
        let [world, ..] = worlds;
        let compiled =
            agree::compile(&program, &src, &world, variant).unwrap_or_else(|e| panic!("{}", e.text()));
        let found = compiled.manifest.gpu_kinds;
        assert_eq!(found & !GPU_LAUNCHES, kinds, "{name}");
        assert_eq!(found & GPU_LAUNCHES != 0, src.text.contains("delay"), "{name}");
    }
}

/// A clause in which this number of values is live at once.
fn holds(values: usize) -> String {
    let sets: String = (0..values).map(|at| format!("$v{at} = pid * {} + retval; ", at + 3)).collect();
    let joined = (0..values).rev().map(|at| format!("$v{at}")).collect::<Vec<_>>().join(" ^ ");
    format!(
        "uretprobe:libcuda:cuMem* {{ {sets} printf(\"%d\", tid); @ = {joined}; print((@, duration > 0)) }}"
    )
}

/// If values occupy the whole stack, those of guards are in scratch memory. It must be released also at a return
/// that is not traced. The compiler decides how many values that takes.
#[test]
fn scratch_memory_that_a_guard_claims_is_given_back() {
    let (least, most) = (56, 66);
    let found = |values| disagreements(&Source::new("t.ct", holds(values)), 7, STEPS, &variants());
    let mut refused = 0;
    for values in least..=most {
        let found = found(values);
        let (full, wrong): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|found| found.contains("bytes of stack"));
        assert_eq!(wrong, [""; 0], "{values} values");
        refused += usize::from(!full.is_empty());
    }
    assert!((1..most - least).contains(&refused), "{refused} of them are too large");
}

/// The values take three times the stack together, but only a third of that at any time.
#[test]
fn values_that_are_held_one_after_the_other_share_the_stack() {
    let hold = |round: u32| {
        let values = || (0..45).map(move |at| format!("$v{round}_{at}"));
        let sets: String =
            values().enumerate().map(|(at, name)| format!("{name} = arg0 * {at} + pid; ")).collect();
        let joined = values().collect::<Vec<_>>().join(" ^ ");
        format!("{sets} printf(\"%d\", tid); @[{round}] = {joined};")
    };
    let body: String = (0..4).map(hold).collect();
    let src = Source::new("t.ct", format!("uprobe:libcuda:cuMem* {{ {body} }}"));
    assert_eq!(disagreements(&src, 7, STEPS, &variants()), [""; 0]);
}

/// Result of a generated script.
#[derive(PartialEq)]
enum Verdict {
    Agrees,
    TooLong,
    Disagrees,
}

/// Runs a generated script; reports disagreements and panics.
fn verdict(seed: u64) -> Verdict {
    let src = Source::new("generated", generate::script(seed));
    let found = std::panic::catch_unwind(|| found(&src, seed, FEW_STEPS, &some_variants(seed)));
    let found = found.unwrap_or_else(|_| vec![Disagreement::Wrong("a panic, see above".into())]);
    if found.is_empty() {
        return Verdict::Agrees;
    }
    if found.iter().all(|found| matches!(found, Disagreement::TooLong(_))) {
        return Verdict::TooLong;
    }
    let texts: Vec<&str> = found.iter().map(Disagreement::text).collect();
    eprintln!("AGREE_SEED={seed}\n{}\n{}", src.text, texts.join("\n\n"));
    Verdict::Disagrees
}

#[test]
fn generated_scripts_do_what_they_mean() {
    let verdicts: Vec<(u64, Verdict)> = seeds("AGREE", PROGRAMS).map(|seed| (seed, verdict(seed))).collect();
    let of = |wanted: Verdict| -> Vec<u64> {
        verdicts.iter().filter(|(_, verdict)| *verdict == wanted).map(|(seed, _)| *seed).collect()
    };
    let (wrong, long) = (of(Verdict::Disagrees), of(Verdict::TooLong));
    assert!(wrong.is_empty(), "{} disagree: {wrong:?}", wrong.len());
    assert!(long.len() <= 1 + verdicts.len() / LONG, "{} are too long: {long:?}", long.len());
}

/// `AGREE_PROGRAMS=100000 cargo test --test agree generated_scripts_do_the_same` takes half an hour.
#[test]
fn generated_scripts_do_the_same_in_the_process() {
    let (mut ran, mut all, mut long) = (0, 0, 0);
    for seed in seeds("AGREE", PROGRAMS) {
        let src = Source::new("generated", generate::script(seed));
        all += 1;
        match in_process(&src, seed, FEW_STEPS) {
            Ok(in_process) => ran += usize::from(in_process),
            Err(Disagreement::TooLong(_)) => long += 1,
            Err(wrong) => panic!("AGREE_SEED={seed}\n{}\n{}", src.text, wrong.text()),
        }
    }
    assert!(long <= 1 + all / LONG, "{long} are too long");
    assert!(3 * ran >= all, "only {ran} of {all} ran in the process");
    eprintln!("{ran} of {all} ran in the process");
}
