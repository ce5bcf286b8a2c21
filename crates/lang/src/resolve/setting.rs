//! The setting of resolving: options, the catalog, and targets that are missing.

use crate::catalog::{Catalog, FileId};
use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::hir;
use crate::hir::TestKind;
use crate::source::span::Span;

/// A target that no process maps now. Its sites are assumed from the CUDA tables so that bodies are checked; the caller of the
/// compiler waits for it or refuses the script.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingTarget {
    /// `libcuda`, as written.
    pub target: String,
    /// The places in which the catalog looked.
    pub looked_in: Vec<String>,
    /// The attach point.
    pub span: Span,
    /// A clause has no other attach points, and the script makes that an error.
    pub needed: bool,
}

impl PendingTarget {
    /// A known target with a similar name, if this name is unknown.
    pub fn meant(&self, catalog: &dyn Catalog) -> Option<String> {
        let known = catalog.known_targets();
        if known.contains(&self.target) {
            return None;
        }
        similar(&self.target, known.iter().map(String::as_str)).first().map(|name| (*name).to_owned())
    }

    /// Reports that the target does not exist.
    pub fn refuse(&self, catalog: &dyn Catalog, diags: &mut Diagnostics) {
        let known = catalog.known_targets();
        let others = known.iter().map(String::as_str).filter(|name| *name != self.target);
        // A library of the tables is no misspelling.
        let near = if known.contains(&self.target) { Vec::new() } else { similar(&self.target, others) };
        let error = diags.error("E0111", self.span, format!("no library `{}` found", self.target));
        if !self.looked_in.is_empty() {
            error.note(format!("looked in {}", looked_in(&self.looked_in)));
        }
        error.help.extend(did_you_mean(&near));
        error.help("name its file by path, trace a program that loads it with `-c` or `-p`, or `--wait` until one does");
    }
}

/// Places that are named one by one.
const NAMED_PLACES: usize = 5;

/// The first of the places that were searched, and the number of the others.
pub(super) fn looked_in(places: &[String]) -> String {
    let named = places[..places.len().min(NAMED_PLACES)].join(", ");
    match places.len().saturating_sub(NAMED_PLACES) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// The clauses of a script that run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// The probes that trace, and no tests or benches.
    #[default]
    Traces,
    /// Its tests or its benches, and BEGIN and END around them.
    Tests {
        /// Which of the two.
        kind: TestKind,
        /// The tests or benches whose name matches this pattern.
        names: String,
    },
    /// All of them, to be checked.
    Everything,
}

/// Input of resolving besides the script.
pub struct Setting<'a> {
    /// The machine.
    pub catalog: &'a dyn Catalog,
    /// Only attach points in these files.
    pub only_files: Option<&'a [FileId]>,
    /// The treatment of an attach point without function.
    pub missing: hir::MissingProbes,
    /// The script's limit of attach points.
    pub most: Option<u32>,
    /// The clauses that run.
    pub run: &'a Run,
    /// The script is only checked, and may run on a machine with another kernel: what this kernel lacks is a warning.
    pub for_other_machine: bool,
    /// Only attach points whose names it matches.
    pub probe_filter: Option<regex::Regex>,
}
