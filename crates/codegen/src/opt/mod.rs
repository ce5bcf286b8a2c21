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

/// Runs the passes that `passes` asks for on each function, until nothing changes. Debug builds check the rules of the IR
/// behind each pass.
pub fn run(module: &mut Module, passes: Passes) {
    let original = cfg!(debug_assertions).then(|| module.clone());
    let check = |func: &Func, after: &str| {
        if let Some(module) = &original
            && let Err(what) = verify::verify_func(module, func)
        {
            panic!("{after} broke a rule of the IR: {what}");
        }
    };
    for func in &mut module.funcs {
        check(func, "lower");
        settle(func, passes, check);
    }
}

/// The same for one function; `check` is called behind each pass with its name.
pub fn settle(func: &mut Func, passes: Passes, check: impl Fn(&Func, &str)) {
    let wanted = |at: usize| passes == Passes::All || passes == Passes::Only(at);
    let chosen = || PASSES.iter().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, pass)| pass);
    let (mut idle, count) = (0, chosen().count());
    for (name, pass) in std::iter::repeat_with(chosen).take(ROUNDS).flatten() {
        let changed = pass(func);
        check(func, name);
        idle = if changed { 0 } else { idle + 1 };
        if idle == count {
            break;
        }
    }
}
