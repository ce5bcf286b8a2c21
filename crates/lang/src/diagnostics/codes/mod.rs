//! Explanations of the error codes: the text of `--explain E0102`.
//!
//! Codes are stable: a retired code is not used again. `E00xx` come from the parser, `E003x` from expansions, `E01xx` from
//! resolving probes, `E02xx` from checking. The stage has the text of a single diagnostic; this table has its rule.

use crate::diagnostics::Code;
use crate::diagnostics::codes::syntax::SYNTAX;

pub mod check;
pub mod expand;
pub mod resolve;
pub mod syntax;

/// The entry of a code; case is ignored.
pub fn find(code: &str) -> Option<&'static Code> {
    TABLES.iter().copied().flatten().find(|entry| entry.code.eq_ignore_ascii_case(code))
}

/// All tables, in the order of the stages.
pub const TABLES: &[&[Code]] = &[
    SYNTAX,
    crate::diagnostics::codes::expand::EXPANSION,
    crate::diagnostics::codes::resolve::PROBES,
    crate::diagnostics::codes::check::TYPES,
];
