//! Runs one script through the interpreter and through the BPF machine, with all compiler options: the outcomes must be equal.

use crate::catalog::TestCatalog;
use crate::outcome::Outcome;
use crate::{World, reference, session};
use codegen::{Options, Passes};
use lang::hir::Program;
use lang::{Diagnostics, Source};
use wire::Features;

/// A way of compiling.
#[derive(Clone, Debug)]
pub struct Variant {
    /// In messages.
    pub name: String,
    /// Kernel.
    pub features: Features,
    /// Optimisations.
    pub passes: Passes,
    /// Only [`World::traced`] processes.
    pub pid_filter: bool,
    /// Histograms add their samples up.
    pub sums: bool,
}

/// Every kernel with no, each single, and all of `passes` optimisations.
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

/// Checks a script; the findings in words if there are errors.
pub fn check(src: &Source, catalog: &TestCatalog) -> Result<Program, String> {
    let mut diags = Diagnostics::default();
    let options = lang::Options { unsafe_ok: true, run: lang::Run::Everything, ..Default::default() };
    let checked = lang::compile_front(src, &[], &options, catalog, &mut diags);
    checked.map(|c| c.program).ok_or_else(|| lang::diagnostics::render::render(&diags.list, src, false))
}

/// What a program means in a world.
pub fn meant(program: &Program, world: &World, variant: &Variant) -> Outcome {
    reference::run(program, world, variant.pid_filter, variant.sums)
}

/// Why a script was not seen to do what it means.
#[derive(Clone, Debug)]
pub enum Disagreement {
    /// It is refused for the length of its code, which is said in the script's terms.
    TooLong(String),
    /// Something is wrong.
    Wrong(String),
}

impl Disagreement {
    /// In words.
    pub fn text(&self) -> &str {
        match self {
            Disagreement::TooLong(text) | Disagreement::Wrong(text) => text,
        }
    }
}

/// Compiles a program, runs it, and says where it differs from what is meant.
pub fn compare(
    program: &Program,
    src: &Source,
    world: &World,
    variant: &Variant,
) -> Result<session::Run, Disagreement> {
    let options = Options {
        pid_filter: variant.pid_filter,
        optimise: variant.passes,
        sums: variant.sums,
        ..Options::new(variant.features, world.cpus)
    };
    let said = |error: String| format!("{}: {error}", variant.name);
    let failed = |error: String| Disagreement::Wrong(said(error));
    let compiled = codegen::compile(program, src, &options).map_err(|error| match error {
        codegen::Error::Length { .. } | codegen::Error::Size { .. } => {
            Disagreement::TooLong(said(error.to_string()))
        }
        error => failed(error.to_string()),
    })?;
    let run = session::run(&compiled, world).map_err(|failure| failed(failure.to_string()))?;
    match meant(program, world, variant).difference(&run.outcome) {
        Some(difference) => Err(failed(difference)),
        None => Ok(run),
    }
}
