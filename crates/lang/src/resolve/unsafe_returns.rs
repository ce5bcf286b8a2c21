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

/// Functions that read their return address.
struct Readers {
    names: &'static [&'static str],
    /// The effect of a return probe on programs that call them.
    effect: &'static str,
    /// True if a return probe in the traced process has no effect on them: frames of its calls are found by unwinders.
    harmless_in_process: bool,
}

static READERS: &[Readers] = &[
    Readers {
        names: &["dlsym", "dlvsym"],
        effect: "in a traced program `RTLD_NEXT`, with which wrappers find the wrapped function, has no result",
        harmless_in_process: false,
    },
    Readers {
        names: &["dlopen", "dlmopen"],
        effect: "a traced program does not search the paths of the calling library",
        harmless_in_process: false,
    },
    Readers {
        names: &["setjmp", "_setjmp", "sigsetjmp", "__sigsetjmp", "getcontext"],
        effect: "a traced program is killed when it returns to that point",
        harmless_in_process: false,
    },
    Readers {
        names: &[
            "__cxa_throw",
            "__cxa_rethrow",
            "_Unwind_RaiseException",
            "_Unwind_Resume",
            "_Unwind_Resume_or_Rethrow",
        ],
        effect: "any exception ends a traced program, since no handler is found",
        harmless_in_process: true,
    },
    Readers {
        names: &["backtrace", "_Unwind_Backtrace", "_Unwind_ForcedUnwind"],
        effect: "in a traced program stacks end at the probed function",
        harmless_in_process: true,
    },
];

/// The effect of a return probe at a spot.
fn effect_at(spot: &Spot, in_process: bool) -> Option<&'static str> {
    let Spot::Call(call) = spot else { return None };
    let readers = READERS.iter().find(|readers| readers.names.contains(&call.symbol.as_str()))?;
    (call.returns && !(in_process && readers.harmless_in_process)).then_some(readers.effect)
}

/// Skips such functions among those that a pattern matches, unless none would be left; with `named`, only warns. `in_process`: the probes are
/// to be in the traced processes.
pub(super) fn skip(
    spots: Vec<Spot>,
    named: bool,
    in_process: bool,
    at: Span,
    diags: &mut Diagnostics,
) -> Vec<Spot> {
    let effect_of = |spot: &Spot| effect_at(spot, in_process);
    let Some(effect) = spots.iter().find_map(effect_of) else { return spots };
    let odd = spots.iter().filter(|spot| effect_of(spot).is_some());
    let (count, names) = (odd.clone().count(), listed(odd.filter_map(symbol), 5));
    if named || count == spots.len() {
        let message = format!("a return probe changes the return address of {names}, which reads it");
        diags.warning("W0155", at, message).note(effect);
        return spots;
    }
    let why = match count {
        1 => "1 function is skipped, since it reads its return address".to_owned(),
        many => format!("{many} functions are skipped, since they read their return addresses"),
    };
    let message = format!("{why}: {names}");
    diags.warning("W0155", at, message).note("a return probe changes that address, and programs would fail");
    spots.into_iter().filter(|spot| effect_of(spot).is_none()).collect()
}

fn symbol(spot: &Spot) -> Option<&str> {
    match spot {
        Spot::Call(call) => Some(&call.symbol),
        _ => None,
    }
}
