//! Functions that read their own return address. A return probe replaces that address, so that the program misbehaves or crashes
//! while it is traced: a pattern skips these functions, and a probe that names one gets a warning.
//!
//! ```text
//! uretprobe:libc:*        all but dlsym, _setjmp, ...
//! ```
//!
//! Facts: tests with glibc 2.36 and GCC 12's libgcc on Linux 6.18. Not tested, but similar: setjmp, sigsetjmp, dlmopen,
//! __cxa_rethrow, _Unwind_Resume, _Unwind_Resume_or_Rethrow.

use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::listed;
use crate::resolve::spot::Spot;
use crate::source::span::Span;

/// Functions, and the effect of a return probe on programs that call them.
static FUNCTIONS: &[(&[&str], &str)] = &[
    (
        &["dlsym", "dlvsym"],
        "in a traced program `RTLD_NEXT`, with which wrappers find the wrapped function, has no result",
    ),
    (&["dlopen", "dlmopen"], "a traced program does not search the paths of the calling library"),
    (
        &["setjmp", "_setjmp", "sigsetjmp", "__sigsetjmp", "getcontext"],
        "a traced program is killed when it returns to that point",
    ),
    (
        &[
            "__cxa_throw",
            "__cxa_rethrow",
            "_Unwind_RaiseException",
            "_Unwind_Resume",
            "_Unwind_Resume_or_Rethrow",
        ],
        "any exception ends a traced program, since no handler is found",
    ),
    (
        &["backtrace", "_Unwind_Backtrace", "_Unwind_ForcedUnwind"],
        "in a traced program stacks end at the probed function",
    ),
];

fn effect(symbol: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(names, _)| names.contains(&symbol)).map(|(_, effect)| *effect)
}

fn effect_at(spot: &Spot) -> Option<&'static str> {
    match spot {
        Spot::Call(call) if call.returns => effect(&call.symbol),
        _ => None,
    }
}

/// Skips such functions among those that a pattern matches, unless none would be left; with `named`, only warns.
pub(super) fn skip(spots: Vec<Spot>, named: bool, at: Span, diags: &mut Diagnostics) -> Vec<Spot> {
    let Some(effect) = spots.iter().find_map(effect_at) else { return spots };
    if named || spots.iter().all(|spot| effect_at(spot).is_some()) {
        let names = listed(spots.iter().filter(|spot| effect_at(spot).is_some()).filter_map(symbol), 5);
        let message = format!("a return probe changes the return address of {names}, which reads it");
        diags.warning("W0155", at, message).note(effect);
        return spots;
    }
    let (odd, left): (Vec<Spot>, Vec<Spot>) = spots.into_iter().partition(|spot| effect_at(spot).is_some());
    let names = listed(odd.iter().filter_map(symbol), 5);
    let why = match odd.len() {
        1 => "1 function is skipped, since it reads its return address".to_owned(),
        many => format!("{many} functions are skipped, since they read their return addresses"),
    };
    let message = format!("{why}: {names}");
    diags.warning("W0155", at, message).note("a return probe changes that address, and programs would fail");
    left
}

fn symbol(spot: &Spot) -> Option<&str> {
    match spot {
        Spot::Call(call) => Some(&call.symbol),
        _ => None,
    }
}
