//! Functions that read their own return address. A return probe replaces that address, so that the program misbehaves or crashes
//! while it is traced: a pattern skips these functions, and a probe that names one gets a warning.
//!
//! ```text
//! uretprobe:libc:*        all but dlsym, _setjmp, ...
//! ```
//!
//! Facts: tried with glibc 2.36 and GCC 12's libgcc on Linux 6.18. Not tried, but the same by their nature: setjmp, sigsetjmp,
//! dlmopen, __cxa_rethrow, _Unwind_Resume, _Unwind_Resume_or_Rethrow.

use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::listed;
use crate::resolve::spot::Spot;
use crate::source::span::Span;

/// Functions, and what becomes of a program that calls them under a return probe.
static FUNCTIONS: &[(&[&str], &str)] = &[
    (
        &["dlsym", "dlvsym"],
        "a traced program finds nothing for `RTLD_NEXT`, by which wrappers reach what they wrap",
    ),
    (&["dlopen", "dlmopen"], "a traced program does not search where the library that asks says"),
    (
        &["setjmp", "_setjmp", "sigsetjmp", "__sigsetjmp", "getcontext"],
        "a traced program is killed when it comes back there",
    ),
    (
        &[
            "__cxa_throw",
            "__cxa_rethrow",
            "_Unwind_RaiseException",
            "_Unwind_Resume",
            "_Unwind_Resume_or_Rethrow",
        ],
        "a traced program is ended by any exception, as nobody can catch it",
    ),
    (&["backtrace", "_Unwind_Backtrace", "_Unwind_ForcedUnwind"], "in a traced program stacks end there"),
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

/// Takes such functions out of what a pattern has found, as long as something is left; `named`: one was asked for by name.
pub(super) fn leave_out(spots: Vec<Spot>, named: bool, at: Span, diags: &mut Diagnostics) -> Vec<Spot> {
    let Some(effect) = spots.iter().find_map(effect_at) else { return spots };
    if named || spots.iter().all(|spot| effect_at(spot).is_some()) {
        let names = listed(spots.iter().filter(|spot| effect_at(spot).is_some()).filter_map(symbol), 5);
        let message = format!("a return probe changes where {names} returns to, and it looks at that");
        diags.warning("W0155", at, message).note(effect);
        return spots;
    }
    let (odd, left): (Vec<Spot>, Vec<Spot>) = spots.into_iter().partition(|spot| effect_at(spot).is_some());
    let names = listed(odd.iter().filter_map(symbol), 5);
    let why = match odd.len() {
        1 => "1 function is left out, as it looks at where it returns to".to_owned(),
        many => format!("{many} functions are left out, as they look at where they return to"),
    };
    let message = format!("{why}: {names}");
    diags.warning("W0155", at, message).note("a return probe changes that, and programs would fail");
    left
}

fn symbol(spot: &Spot) -> Option<&str> {
    match spot {
        Spot::Call(call) => Some(&call.symbol),
        _ => None,
    }
}
