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

/// Runs the passes that `passes` asks for, until nothing changes.
pub fn run(module: &mut Module, passes: Passes) {
    check(module, "lower");
    for _ in 0..ROUNDS {
        let mut changed = false;
        for (at, (name, pass)) in PASSES.iter().enumerate() {
            if passes == Passes::All || passes == Passes::Only(at) {
                changed |= module.funcs.iter_mut().fold(false, |changed, func| pass(func) | changed);
                check(module, name);
            }
        }
        if !changed {
            break;
        }
    }
}

fn check(module: &Module, after: &str) {
    if cfg!(debug_assertions)
        && let Err(what) = verify::verify(module)
    {
        panic!("{after} broke a rule of the IR: {what}");
    }
}
