//! Runs one script through the interpreter and through the BPF machine, with all compiler options: the outcomes must be equal.

use crate::catalog::TestCatalog;
use crate::outcome::Outcome;
use crate::{World, reference, session};
use codegen::{Options, Passes};
use lang::hir::Program;
use lang::{Diagnostics, Source};
use wire::Features;
use wire::manifest::CompiledScript;

/// A configuration of the compiler.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Name in messages.
    pub name: String,
    /// Features of the kernel.
    pub features: Features,
    /// Optimisations.
    pub passes: Passes,
    /// True if only the processes in [`World::traced`] are traced.
    pub pid_filter: bool,
    /// True if histograms also sum their samples.
    pub sums: bool,
}

/// Every kernel with no optimisation, with each single one, and with all `passes`.
pub fn variants(passes: usize) -> Vec<Variant> {
    let kernels = [("floor", Features::FLOOR), ("new", Features::ALL)];
    let singles = (0..passes).map(|n| (format!("pass {n}"), Passes::Only(n)));
    let sets: Vec<_> = [("no passes".to_owned(), Passes::None), ("all passes".to_owned(), Passes::All)]
        .into_iter()
        .chain(singles)
        .collect();
    let mut variants = Vec::new();
    for (kernel, features) in kernels {
        for (set, passes) in &sets {
            let (name, passes) = (format!("{kernel} kernel, {set}"), *passes);
            variants.push(Variant { name, features, passes, pid_filter: false, sums: false });
        }
        let name = format!("{kernel} kernel, all passes, pid filter, sums");
        variants.push(Variant { name, features, passes: Passes::All, pid_filter: true, sums: true });
    }
    variants
}

/// Checks a script; the error is the text of its messages.
pub fn check(src: &Source, catalog: &TestCatalog) -> Result<Program, String> {
    let mut diags = Diagnostics::default();
    let options = lang::Options { unsafe_ok: true, run: lang::Run::Everything, ..Default::default() };
    let checked = lang::compile(src, &options, catalog, &mut diags);
    checked.map(|c| c.program).ok_or_else(|| lang::diagnostics::render::render(&diags.list, src, false))
}

/// The outcome of a program in a world, according to the reference interpreter.
///
/// # Errors
/// The interpreter does not run loops that are this long.
pub fn meant(program: &Program, world: &World, variant: &Variant) -> Result<Outcome, Disagreement> {
    let outcome = reference::run(program, world, variant.pid_filter, variant.sums);
    outcome.map_err(|_| {
        Disagreement::TooLong(format!("{}: its loops are too long to be interpreted", variant.name))
    })
}

/// The reason why a script did not have its expected outcome.
#[derive(Clone, Debug)]
pub enum Disagreement {
    /// The compiler refuses the script because its code is too long, and reports it; or its loops are.
    TooLong(String),
    /// A compiler bug.
    Wrong(String),
}

impl Disagreement {
    /// Text of the disagreement.
    pub fn text(&self) -> &str {
        match self {
            Disagreement::TooLong(text) | Disagreement::Wrong(text) => text,
        }
    }
}

/// Compiles a program, runs it, and reports a difference from the expected outcome.
pub fn compare(
    program: &Program,
    src: &Source,
    world: &World,
    variant: &Variant,
) -> Result<session::Run, Disagreement> {
    let compiled = compile(program, src, world, variant)?;
    // First, because a machine runs long loops for minutes.
    let meant = meant(program, world, variant)?;
    difference(meant, variant, session::run(&compiled, world))
}

/// Compiles a program.
pub fn compile(
    program: &Program,
    src: &Source,
    world: &World,
    variant: &Variant,
) -> Result<CompiledScript, Disagreement> {
    let options = Options {
        pid_filter: variant.pid_filter,
        optimise: variant.passes,
        sums: variant.sums,
        ..Options::new(variant.features, world.cpus)
    };
    codegen::compile(program, src, &options).map_err(|error| {
        let text = format!("{}: {error}", variant.name);
        match error {
            codegen::Error::Length { .. } | codegen::Error::Size { .. } => Disagreement::TooLong(text),
            _ => Disagreement::Wrong(text),
        }
    })
}

/// Reports a difference of a run from the expected outcome.
pub fn compare_run(
    program: &Program,
    world: &World,
    variant: &Variant,
    run: Result<session::Run, session::Failure>,
) -> Result<session::Run, Disagreement> {
    difference(meant(program, world, variant)?, variant, run)
}

fn difference(
    meant: Outcome,
    variant: &Variant,
    run: Result<session::Run, session::Failure>,
) -> Result<session::Run, Disagreement> {
    let failed = |error: String| Disagreement::Wrong(format!("{}: {error}", variant.name));
    let run = run.map_err(|failure| failed(failure.to_string()))?;
    match meant.difference(&run.outcome) {
        Some(difference) => Err(failed(difference)),
        None => Ok(run),
    }
}
