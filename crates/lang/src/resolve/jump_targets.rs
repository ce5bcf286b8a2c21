//! Symbols of code that is entered by a jump, not by a call: the top of the stack is no return address there. A return probe would
//! replace a value of the program: `argc` at `_start`, a local variable in the cold part of a function.
//!
//! ```text
//! uprobe:./app:*          all but f.cold, which belongs to f
//! uretprobe:./app:*       neither f.cold nor _start
//! uretprobe:./app:_start  an error
//! ```

use crate::resolve::pattern::NamePattern;

/// Entries of programs and of the loader, and the code to which signal handlers return.
const ENTRIES: [&str; 4] = ["_start", "_dl_start_user", "__restore_rt", "__restore"];
/// Beginnings of names of functions that the loader's tables jump to.
const BEGINNINGS: [&str; 2] = ["_dl_runtime_resolve", "_dl_runtime_profile"];

/// Whether the symbol is a part of a function, which a compiler has moved to the code that is seldom executed: `f.cold`, `f.cold.13`.
fn is_cold_part(symbol: &str) -> bool {
    let Some((_, after)) = symbol.rsplit_once(".cold") else { return false };
    after.is_empty()
        || after.strip_prefix('.').is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether code with this name is entered by jumps.
pub fn is_jumped_to(symbol: &str) -> bool {
    is_cold_part(symbol)
        || ENTRIES.contains(&symbol)
        || BEGINNINGS.iter().any(|beginning| symbol.starts_with(beginning))
}

/// Whether a pattern skips a symbol that it matches. With a return probe it skips all that are jumped to, else the parts of functions,
/// unless it spells out that they are meant.
pub(super) fn is_skipped(name: &NamePattern, symbol: &str, has_return: bool) -> bool {
    let spells_cold = || matches!(name, NamePattern::Glob(glob) if glob.contains(".cold"));
    name.single().is_none() && (has_return && is_jumped_to(symbol) || is_cold_part(symbol) && !spells_cold())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_functions_are_no_functions() {
        for part in ["f.cold", "_ZN1f1gEv.cold", "ncclAllGather.cold.13"] {
            assert!(is_cold_part(part), "{part}");
        }
        for function in ["f", "f.part.0", "f.constprop.0", "f.coldest", "cold", "f.cold.x"] {
            assert!(!is_cold_part(function), "{function}");
        }
    }
}
