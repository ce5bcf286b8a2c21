//! Hand-written scripts and worlds in the reference interpreter.

use lang::catalog::{Catalog, File, FileId};
use lang::{Diagnostics, Source};
use sim::catalog::TestCatalog;
use sim::outcome::{Cell, Loss, Outcome, Value, What};
use sim::world::{Callee, World};

fn outcome(script: &str) -> Outcome {
    let file = |id, path: &str| File { id: FileId(id), path: path.into(), library: None };
    let catalog = TestCatalog::new([file(0, "libcuda.so.1"), file(1, "libcudart.so.12")]);
    let (src, mut diags) = (Source::new("test", script), Diagnostics::default());
    let checked = lang::compile(&src, &Default::default(), &catalog, &mut diags);
    let checked = checked.unwrap_or_else(|| panic!("{script}: {:#?}", diags.list));
    // The world only calls cuInit.
    let mut driver = catalog.functions(FileId(0)).iter();
    let init = driver.find(|function| function.names == ["cuInit"]).expect("it is there");
    let world = World::random(1, &[Callee { file: 0, function: init.offset }], 40);
    sim::reference::run(&checked.program, &world, false, false).expect("short loops")
}

fn scalar(outcome: &Outcome, map: &str) -> Option<Cell> {
    outcome.maps[map].get(&vec![]).cloned()
}

fn int(n: i64) -> Option<Cell> {
    Some(Cell::Plain(Value::Int(n, 8)))
}

#[test]
fn arithmetic_wraps_and_divides_as_the_language_says() {
    let outcome = outcome(
        "BEGIN { @a = (int64)-7 / 2; @b = (int64)-7 % 2; @c = (int64)5; @c /= 0; @d = (int64)1 << 63; @d -= 1;
         @e = (int64)-16 >> 2 }",
    );
    assert_eq!(scalar(&outcome, "a"), int(-3));
    assert_eq!(scalar(&outcome, "b"), int(-1));
    assert_eq!(scalar(&outcome, "c"), int(1));
    assert_eq!(scalar(&outcome, "d"), int(i64::MAX));
    assert_eq!(scalar(&outcome, "e"), int(-4));
    assert_eq!(outcome.losses, [(Loss::DivisionByZero, 1)].into());
}

#[test]
fn entries_and_returns_pair_and_durations_are_times_between() {
    let outcome =
        outcome("uprobe:libcuda:cuInit { @in = count() } uretprobe:libcuda:cuInit { @t = min(duration) }");
    assert!(matches!(scalar(&outcome, "in"), Some(Cell::Count(n)) if n > 5));
    assert!(matches!(scalar(&outcome, "t"), Some(Cell::Number(n)) if n > 0));
}

#[test]
fn actions_of_the_reader_happen_after_the_probe() {
    let outcome = outcome("BEGIN { @a = 1; clear(@a); @a = 2; print(@a) } END { @b = 1; exit(3) }");
    let output: Vec<_> = outcome.output.iter().map(|s| s.what.clone()).collect();
    assert_eq!(
        output,
        [What::Clear("a".into()), What::PrintMap("a".into(), Default::default(), 0, 0), What::Exit(3)]
    );
    assert_eq!(outcome.exit, Some(3));
    assert_eq!(scalar(&outcome, "a"), None);
}

#[test]
fn a_full_map_and_a_bad_pointer_are_counted() {
    let outcome = outcome(
        "config = { max_map_keys = 2 } BEGIN { for $i : 0..4 { @m[$i] = 1 } @s = str((uint64)8); @n = *(int64 *)16 }",
    );
    assert_eq!(outcome.maps["m"].len(), 2);
    assert_eq!(outcome.losses, [(Loss::MapFull("m".into()), 2), (Loss::UserRead, 2)].into());
    assert_eq!(scalar(&outcome, "s"), Some(Cell::Plain(Value::Str(vec![]))));
}
