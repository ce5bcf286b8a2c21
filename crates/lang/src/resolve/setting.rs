//! What a script is resolved with: options, the catalog, and libraries that are still absent.

use crate::catalog::{Catalog, FileId};
use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::hir;
use crate::hir::Trial;
use crate::resolve::pattern::glob_matches;
use crate::resolve::providers::ProviderKind;
use crate::source::span::Span;

/// A target that no process maps now. Its sites are assumed from the CUDA tables so that bodies are checked; whoever
/// called the compiler waits for it or refuses the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// As written: `libcuda`.
    pub target: String,
    /// Where the catalog looked.
    pub looked_in: Vec<String>,
    /// The attach point.
    pub span: Span,
    /// Some clause has nothing else to run at, and the script asks for that to be an error.
    pub needed: bool,
}

impl Pending {
    /// The target that was perhaps meant by a name that is not known.
    pub fn meant(&self, catalog: &dyn Catalog) -> Option<String> {
        let known = catalog.known_targets();
        if known.contains(&self.target) {
            return None;
        }
        similar(&self.target, known.iter().map(String::as_str)).first().map(|name| (*name).to_owned())
    }

    /// Says that nothing is to be waited for: the target does not exist.
    pub fn refuse(&self, catalog: &dyn Catalog, diags: &mut Diagnostics) {
        let known = catalog.known_targets();
        let others = known.iter().map(String::as_str).filter(|name| *name != self.target);
        // A library of the tables is meant as it is written.
        let near = if known.contains(&self.target) { Vec::new() } else { similar(&self.target, others) };
        let error = diags.error("E0111", self.span, format!("no library `{}` found", self.target));
        if !self.looked_in.is_empty() {
            error.note(format!("looked in {}", self.looked_in.join(", ")));
        }
        error.help.extend(did_you_mean(&near));
        error.help("name its file by path, trace a program that loads it with `-c` or `-p`, or `--wait` until one does");
    }
}

/// Which of a script's clauses run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// Runs the probes that trace, and no tests or benches.
    #[default]
    Traces,
    /// Its tests or its benches, and BEGIN and END around them.
    Trials {
        /// Which of the two.
        kind: Trial,
        /// The tests or benches whose name matches this pattern.
        names: String,
    },
    /// All of them, to be checked.
    Everything,
}

impl Run {
    /// Whether attach points of a kind take part; those of trials by their name.
    pub(super) fn takes(&self, kind: ProviderKind, name: &str) -> bool {
        match (self, kind.trial()) {
            (Run::Everything, _) => true,
            (Run::Traces, trial) => trial.is_none(),
            (Run::Trials { kind: wanted, names }, Some(trial)) => {
                trial == *wanted && glob_matches(names.as_bytes(), name.as_bytes())
            }
            (Run::Trials { .. }, None) => matches!(kind, ProviderKind::Begin | ProviderKind::End),
        }
    }
}

/// What resolving needs of its surroundings.
pub struct Setting<'a> {
    /// The machine.
    pub catalog: &'a dyn Catalog,
    /// Only these files, and nothing but calls.
    pub only_files: Option<&'a [FileId]>,
    /// What an attach point without function means.
    pub missing: hir::MissingProbes,
    /// Attach points at most, where the script has a bound.
    pub most: Option<u32>,
    /// Which clauses run.
    pub run: &'a Run,
    /// Attach points whose names it does not match are left out.
    pub probe_filter: Option<regex::Regex>,
}
