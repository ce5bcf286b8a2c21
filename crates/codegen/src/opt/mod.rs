//! Optimisations of single functions. `PASSES` is their order; the verifier runs after each in debug builds. No pass depends on
//! the meaning of a helper or map.

mod branch;
mod const_fold;
mod copy_prop;
mod dce;

use crate::ir::{Func, Module, verify};
use crate::options::Passes;

/// A rewrite of a function; returns whether it changed something.
pub type Pass = fn(&mut Func) -> bool;

/// The passes in their order, with their names.
pub const PASSES: &[(&str, Pass)] = &[
    ("const_fold", const_fold::const_fold),
    ("copy_prop", copy_prop::copy_prop),
    ("branch", branch::branch),
    ("dce", dce::dce),
];

/// Limit of iterations, in case something still changes.
const ROUNDS: usize = 8;

/// Runs the passes that `passes` selects on each function, until nothing changes. Debug builds verify the IR after
/// each pass.
pub fn optimise(module: &mut Module, passes: Passes) {
    let original = cfg!(debug_assertions).then(|| module.clone());
    let verify = |func: &Func, after: &str| {
        if let Some(module) = &original
            && let Err(what) = verify::verify_func(module, func)
        {
            panic!("{after} broke a rule of the IR: {what}");
        }
    };
    for func in &mut module.funcs {
        verify(func, "lower");
        run_passes(func, passes, verify);
    }
}

fn run_passes(func: &mut Func, passes: Passes, verify: impl Fn(&Func, &str)) {
    let is_selected = |at: usize| passes == Passes::All || passes == Passes::Only(at);
    let selected: Vec<_> =
        PASSES.iter().enumerate().filter(|(at, _)| is_selected(*at)).map(|(_, pass)| pass).collect();
    let mut unchanged = 0;
    for (name, pass) in std::iter::repeat_n(&selected, ROUNDS).flatten() {
        let changed = pass(func);
        verify(func, name);
        unchanged = if changed { 0 } else { unchanged + 1 };
        if unchanged == selected.len() {
            break;
        }
    }
}
