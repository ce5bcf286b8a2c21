//! The built-in variables and functions, for checking, help and completion.
//!
//! A built-in is a row in the file of its family, next to the function that checks its uses.

pub use crate::builtins::row::{BuiltinSpec, Kind};

use crate::builtins::{
    address, aggregations, assert, join, map_functions, network, output, signal, spans, text, values,
    variables,
};
use crate::resolve::usage;
use std::ops::RangeInclusive;

/// The families, in the order of the manual.
static FAMILIES: &[&[BuiltinSpec]] = &[
    variables::ROWS,
    text::ROWS,
    address::ROWS,
    network::ROWS,
    values::ROWS,
    map_functions::ROWS,
    output::ROWS,
    join::ROWS,
    signal::ROWS,
    assert::ROWS,
    spans::ROWS,
    aggregations::ROWS,
];

/// All built-ins.
pub fn all() -> impl Iterator<Item = &'static BuiltinSpec> {
    FAMILIES.iter().copied().flatten()
}

/// Aliases and their built-ins.
static ALIASES: &[(&str, &str)] = &[("dw_ustack", "ustack")];

/// The row of a name; `arg3` finds `argN`.
pub fn find(name: &str) -> Option<&'static BuiltinSpec> {
    let numbered = usage::arg_number(name).or_else(|| usage::stack_arg_number(name)).is_some();
    let name = if numbered { "argN" } else { name };
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, known)| known);
    all().find(|builtin| builtin.name == name)
}

/// The fewest and most arguments of a built-in.
pub fn arity(name: &str) -> Option<RangeInclusive<usize>> {
    find(name).map(|builtin| builtin.arity.clone())
}

/// Built-ins of other tracers without a counterpart here: name and alternative.
pub static ABSENT: &[(&str, &str)] = &[
    ("assert_str", "use `static_assert(is_str(value), \"a string\")`"),
    ("debugf", "use `printf`"),
    ("kfunc_allowed", "scripts cannot call kernel functions"),
    ("kfunc_exist", "scripts cannot call kernel functions"),
    ("path", "use `cat` or `system` on `/proc/PID/fd`"),
    ("skboutput", "packets cannot be written to files; trace the functions that send them"),
    ("socket_cookie", "use the address of the socket as a key"),
    ("unwatch", "watchpoints last until the end of the run"),
];

/// Names of other languages, with their counterpart here.
pub static ELSEWHERE: &[(&str, &str)] = &[
    ("NULL", "write `0`"),
    ("None", "write `0`"),
    ("nullptr", "write `0`"),
    ("True", "write `true`"),
    ("False", "write `false`"),
    ("nil", "write `0`"),
    ("null", "write `0`"),
    ("backtrace", "use `ustack`"),
    ("concat", "use `str_concat`"),
    ("contains", "use `strcontains(text, \"part\")`"),
    ("echo", "use `printf` or `print`"),
    ("errno", "use the result of the call: `retval` in a `uretprobe`"),
    ("execname", "use `comm`"),
    ("format", "use `printf`; a value as text is printed by `%s`"),
    ("function", "`func` is the function's name"),
    ("getpid", "use `pid`"),
    ("gettid", "use `tid`"),
    ("histogram", "use `@ = hist(n)`"),
    ("length", "use `len(@map)`, or `strlen(text)`"),
    ("log", "use `printf` or `print`"),
    ("lquantize", "use `@ = lhist(n, min, max, step)`"),
    ("now", "use `nsecs`"),
    ("name", "`func` is the function's name, `comm` the process's"),
    ("printk", "use `printf` or `print`"),
    ("println", "use `printf` or `print`"),
    ("probefunc", "`func` is the function's name"),
    ("process", "`comm` is the process's name, `pid` its number"),
    ("puts", "use `printf` or `print`"),
    ("quantize", "use `@ = hist(n)`"),
    ("sleep", "a script does not wait; use `interval:s:1`"),
    ("sprintf", "use `printf`, or `str_concat` to join text"),
    ("strcat", "use `str_concat`"),
    ("strcmp", "compare by `==`"),
    ("thread", "`tid` is the thread's number, `comm` its name"),
    ("timestamp", "use `nsecs`"),
    ("walltimestamp", "use `strftime(\"%H:%M:%S\", nsecs)`"),
];

/// The counterpart of a name of another language.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(foreign, _)| *foreign == name).map(|(_, here)| *here)
}

/// Functions that change the machine, and so need `--unsafe`.
pub static UNSAFE: &[&str] = &["system", "signal", "signal_thread", "override", "write_user"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (at, builtin) in all().enumerate() {
            assert!(all().take(at).all(|other| other.name != builtin.name), "{}", builtin.name);
            let others = ABSENT.iter().chain(ELSEWHERE);
            assert!(others.into_iter().all(|(name, _)| *name != builtin.name), "{}", builtin.name);
        }
    }

    #[test]
    fn arguments_have_one_row() {
        assert_eq!(find("arg3").map(|b| b.name), Some("argN"));
        assert!(find("argx").is_none());
    }
}
