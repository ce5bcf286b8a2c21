//! The language from text to checked program, in one place.

use crate::catalog::Catalog;
use crate::check::{Checked, Options, check};
use crate::diagnostic::Diagnostics;
use crate::forms;
use crate::parse::parse_form;
use crate::span::Source;

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
    let script = forms::expand(script, &options.given, diags);
    let options = Options { params: params.len(), ..options.clone() };
    let checked = check(&script, src, &options, catalog, diags);
    checked.filter(|_| !diags.has_errors())
}
