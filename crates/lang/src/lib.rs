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
pub mod resolve;
pub mod source;
pub mod syntax;
pub mod types;

pub use catalog::Catalog;
pub use check::{Checked, Options, SessionState, check, registers};
pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use resolve::setting::{Pending, Run};
pub use source::span::{Source, Span, Spanned};

use syntax::parse::parse_form;

/// Parses, expands, resolves and checks a script. `None` when it has errors; all findings are in `diags`.
///
/// `params` are the positional parameters, `$1` first.
pub fn compile_front(
    src: &Source,
    params: &[String],
    options: &Options,
    catalog: &dyn Catalog,
    diags: &mut Diagnostics,
) -> Option<Checked> {
    let script = parse_form(src, params, diags)?;
    let script = expand::expand(script, &options.given, diags);
    let options = Options { params: params.len(), ..options.clone() };
    let checked = check(&script, src, &options, catalog, diags);
    checked.filter(|_| !diags.has_errors())
}
