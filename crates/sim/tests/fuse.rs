//! Number of programs of a clause of an operation.

use codegen::Options;
use lang::Source;
use sim::agree;
use sim::catalog::TestCatalog;
use wire::Features;

fn programs(text: &str, features: Features) -> Vec<String> {
    let src = Source::new("test", text);
    let program = agree::check(&src, &TestCatalog::of_cuda()).expect("a right script");
    let compiled = codegen::compile(&program, &src, &Options::new(features, 2)).expect("it is small");
    compiled.manifest.programs.into_iter().map(|program| program.symbol).collect()
}

#[test]
fn functions_that_differ_in_places_alone_share_a_program() {
    let script = "cuda:memcpy / args.bytes > 64 / { printf(\"%s %d\\n\", args.kind, args.bytes) }";
    assert_eq!(programs(script, Features::ALL), ["session0"]);
    assert_eq!(programs(script, Features::FLOOR), ["entry0", "uretprobe1"]);
}

/// Allocators have their sizes in an argument, in a product of arguments, or in the result of a loop over the
/// levels of an array.
#[test]
fn functions_that_compute_in_variables_share_a_program() {
    assert_eq!(programs("cuda:alloc { @[args.kind] = sum(args.bytes) }", Features::ALL), ["session0"]);
    // A predicate that computes in variables is evaluated in the body.
    let tested = "cuda:alloc / args.bytes > 64 / { printf(\"%s %d\\n\", args.kind, args.bytes) }";
    assert_eq!(programs(tested, Features::ALL), ["session0", "session1"]);
}

#[test]
fn clauses_and_sides_stay_apart() {
    let script = "cuda:alloc { @ = count() } cuda:alloc:start { @ = count() } cuda:free { @f = args.ptr }";
    assert_eq!(programs(script, Features::ALL), ["uretprobe0", "uprobe1", "session2"]);
}
