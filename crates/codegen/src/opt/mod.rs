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
use crate::parallel;

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
    let original = cfg!(debug_assertions).then(|| module.clone());
    let check = |func: &Func, after: &str| {
        if let Some(module) = &original
            && let Err(what) = verify::verify_func(module, func)
        {
            panic!("{after} broke a rule of the IR: {what}");
        }
    };
    let operations = module.operations();
    parallel::for_each(module.funcs.iter_mut(), operations, |func| {
        check(func, "lower");
        settle(func, &chosen, &check);
    });
}

/// Runs one pass after the other, until as many as there are have had nothing to change.
fn settle(func: &mut Func, passes: &[(&str, Pass)], check: &impl Fn(&Func, &str)) {
    let mut idle = 0;
    for (name, pass) in passes.iter().cycle().take(ROUNDS * passes.len()) {
        let changed = pass(func);
        check(func, name);
        idle = if changed { 0 } else { idle + 1 };
        if idle == passes.len() {
            break;
        }
    }
}
