//! Script text to checked program, without I/O: every query about the machine goes to a [`catalog::Catalog`].
//!
//! ```text
//! source -> parse -> syntax::ast::Script -> expand -> resolve -> check -> hir::Program
//! ```

#![forbid(unsafe_code)]

pub mod builtins;
pub mod catalog;
pub mod check;
pub mod diagnostics;
pub mod expand;
pub mod hir;
pub mod limits;
pub mod resolve;
pub mod source;
pub mod syntax;
pub mod types;

pub use catalog::Catalog;
pub use check::{CheckedScript, Options, SessionState, check, registers};
pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use resolve::setting::{PendingTarget, Run};
pub use source::span::{Source, Span, WithSpan};

use builtins::table;
use syntax::{ast, format, parse};

/// Compiles a script to a checked program. `None` if it has errors; all diagnostics are in `diags`.
///
/// A tracer calls the two halves, [`expand`] and [`check()`], separately: it checks one expanded script several
/// times, as files appear.
pub fn compile(
    src: &Source,
    options: &Options,
    catalog: &dyn Catalog,
    diags: &mut Diagnostics,
) -> Option<CheckedScript> {
    let script = expand(src, options, |_| (), diags)?;
    let checked = check(&script, src, options, catalog, diags);
    checked.filter(|_| !diags.has_errors())
}

/// Parses and expands a script. `None` if its syntax is wrong. `parsed` gets the syntax tree before expansion.
pub fn expand(
    src: &Source,
    options: &Options,
    parsed: impl FnOnce(&ast::Script),
    diags: &mut Diagnostics,
) -> Option<ast::Script> {
    let script = parse::parse_form(src, &options.params, table::arity, diags)?;
    parsed(&script);
    let mut script = expand::expand(script, &options.given, table::arity, diags);
    if let Some(prefix) = &options.map_prefix {
        expand::map_prefix::maps(&mut script, prefix);
    }
    Some(script)
}

/// The settings of an expanded script and of the environment. Errors in them are reported by [`check()`].
pub fn config(script: &ast::Script, options: &Options) -> hir::Config {
    check::settings(script, options, &mut Diagnostics::default())
}

/// Parses a script; `params` are the values of `$1`, `$2` ... `None` if there were errors.
pub fn parse(src: &Source, params: &[String], diags: &mut Diagnostics) -> Option<ast::Script> {
    parse::parse(src, params, table::arity, diags)
}

/// Formats a script; errors are added to `diags`.
///
/// # Errors
/// The script cannot be parsed, or not be formatted without a change of meaning.
pub fn format(src: &Source, diags: &mut Diagnostics) -> Result<String, format::Failure> {
    format::format(src, table::arity, diags)
}
