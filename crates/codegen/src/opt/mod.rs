//! Optimisations: rewrites of single functions that keep what they do. `PASSES` is their order; the verifier runs after
//! each in debug builds.
//!
//! Not here: anything that needs to know what a helper or map is.

mod branch;
mod const_fold;
mod copy_prop;
mod dce;

use crate::Passes;
use crate::ir::{Func, Module, verify};

/// A rewrite of a function; says whether it changed something.
pub type Pass = fn(&mut Func) -> bool;

/// The passes in their order, with their names.
pub const PASSES: &[(&str, Pass)] = &[
    ("const_fold", const_fold::const_fold),
    ("copy_prop", copy_prop::copy_prop),
    ("branch", branch::branch),
    ("dce", dce::dce),
];

/// Rounds after which we stop although something still changed.
const ROUNDS: usize = 8;

/// Runs the passes that `passes` asks for on each function, until nothing changes.
pub fn run(module: &mut Module, passes: Passes) {
    let wanted = |at: usize| passes == Passes::All || passes == Passes::Only(at);
    let chosen = PASSES.iter().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, pass)| *pass);
    let chosen: Vec<(&str, Pass)> = chosen.collect();
    for at in 0..module.funcs.len() {
        check(module, at, "lower");
        settle(module, at, &chosen);
    }
}

/// Runs one pass after the other, until as many as there are have had nothing to change.
fn settle(module: &mut Module, at: usize, passes: &[(&str, Pass)]) {
    let mut idle = 0;
    for (name, pass) in passes.iter().cycle().take(ROUNDS * passes.len()) {
        let changed = pass(&mut module.funcs[at]);
        check(module, at, name);
        idle = if changed { 0 } else { idle + 1 };
        if idle == passes.len() {
            break;
        }
    }
}

fn check(module: &Module, at: usize, after: &str) {
    if cfg!(debug_assertions)
        && let Err(what) = verify::verify_func(module, &module.funcs[at])
    {
        panic!("{after} broke a rule of the IR: {what}");
    }
}
