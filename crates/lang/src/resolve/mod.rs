//! From attach points as written to places in files: `uprobe:libcuda:cuMem*` becomes a list of sites, grouped by what
//! the body sees there.
//!
//! ```text
//! ProbeSpec -> providers (which kind) -> pattern (which functions) -> probes (sites) -> layout (one group per program)
//! ```
//!
//! Not here: types of expressions (`check`), files and symbols of this machine (the catalog).

pub mod functions;
pub mod grouping;
pub mod interner;
pub mod pattern;
pub mod providers;
pub mod signature;
pub mod symbols;
pub mod tracepoint;
mod unsafe_returns;
pub mod usage;
pub mod usdt;

use crate::catalog::{Catalog, File, FileId};
use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::hir::{self, NameId, Trial};
use crate::resolve::grouping::Layout;
use crate::resolve::interner::Interner;
use crate::resolve::providers::ProviderKind;
use crate::resolve::usage::Usage;
use crate::source::span::Span;
use crate::syntax::ast;

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
        error.help.extend(functions::did_you_mean(&near));
        error.help("name its file by path, trace a program that loads it with `-c` or `-p`, or `--wait` until one does");
    }
}

/// A clause and everything it runs at.
#[derive(Debug)]
pub struct ResolvedClause<'a> {
    /// Position among the clauses of the script.
    pub index: u32,
    /// As written.
    pub clause: &'a ast::Clause,
    /// One for each program.
    pub attached: Vec<Attached>,
}

/// Where one program runs.
#[derive(Debug)]
pub enum Attached {
    /// `BEGIN`, `END`, `interval`, `profile`, `tracepoint`
    Timed {
        /// Which.
        attach: hir::Attach,
        /// What `probe` says there.
        name: NameId,
        /// The record of a tracepoint.
        signature: Option<hir::Signature>,
        /// Of each field of it the struct of the kernel that it points to.
        pointees: Vec<Option<String>>,
    },
    /// `uprobe`, `uretprobe`
    Calls {
        /// At return.
        returns: bool,
        /// The functions and what the body sees of them.
        layout: Layout,
    },
}

/// What resolving yields.
#[derive(Debug)]
pub struct Resolved<'a> {
    /// Clauses that run somewhere.
    pub clauses: Vec<ResolvedClause<'a>>,
    /// Files that sites lie in.
    pub files: Vec<File>,
    /// Targets that are not there yet.
    pub pending: Vec<Pending>,
    /// The script sends calls as spans, in which others then lie.
    pub sends_calls: bool,
    /// It asks for the calls around the one in hand.
    pub asks_around: bool,
}

/// Which of a script's clauses run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// Those that trace; its tests and benches do not.
    #[default]
    Traces,
    /// Its tests or its benches, and BEGIN and END around them.
    Trials {
        /// Which of the two.
        kind: Trial,
        /// Those whose name matches this pattern.
        names: String,
    },
    /// All of them, to be checked.
    Everything,
}

impl Run {
    /// Whether attach points of a kind take part; those of trials by their name.
    fn takes(&self, kind: ProviderKind, name: &str) -> bool {
        match (self, Trial::of(kind)) {
            (Run::Everything, _) => true,
            (Run::Traces, trial) => trial.is_none(),
            (Run::Trials { kind: wanted, names }, Some(trial)) => {
                trial == *wanted && pattern::glob_matches(names.as_bytes(), name.as_bytes())
            }
            (Run::Trials { .. }, None) => matches!(kind, ProviderKind::Begin | ProviderKind::End),
        }
    }
}

impl Trial {
    /// That of a kind of attach point.
    pub fn of(kind: ProviderKind) -> Option<Trial> {
        match kind {
            ProviderKind::Test => Some(Trial::Test),
            ProviderKind::Bench => Some(Trial::Bench),
            _ => None,
        }
    }

    /// As scripts and options write it.
    pub fn word(self) -> &'static str {
        match self {
            Trial::Test => "test",
            Trial::Bench => "bench",
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

/// Finds the sites of all clauses and groups them.
pub fn resolve<'a>(
    script: &'a ast::Script,
    setting: &Setting,
    types: &mut crate::types::Types,
    names: &mut Interner,
    diags: &mut Diagnostics,
) -> Resolved<'a> {
    let mut finder = functions::Finder::new(setting, names, diags);
    let clauses = script.items.iter().filter_map(|item| match item {
        ast::Item::Clause(clause) => Some((clause, Usage::of(clause))),
        _ => None,
    });
    let clauses: Vec<(&ast::Clause, Usage)> = clauses.collect();
    let defined = defines_ask(script);
    let asks_around = defined.is_some() || clauses.iter().any(|(_, usage)| usage.around.is_some());
    let sends_calls = clauses.iter().any(|(clause, usage)| usage.result && clause.probes.iter().any(returns));
    let mut found = Vec::new();
    let mut count = 0;
    for (index, (clause, usage)) in clauses.into_iter().enumerate() {
        let asked = functions::Around { named: usage.around.or(defined), parent: usage.event && sends_calls };
        let spots = finder.clause(clause, asked, usage.wants_signature());
        let before = count;
        count += spots.len();
        if let Some(most) = setting.most.filter(|&most| before <= most as usize && count > most as usize) {
            finder.too_many(clause, count, most);
        }
        found.push((index as u32, clause, usage, spots));
    }
    let (files, pending) = finder.finish();
    if *setting.run == Run::Traces {
        refuse_trials_alone(&found, diags);
    }
    let clauses = found
        .into_iter()
        .map(|(index, clause, usage, spots)| {
            let attached = grouping::group(&usage, spots, types, diags);
            ResolvedClause { index, clause, attached }
        })
        .collect();
    Resolved { clauses, files, pending, sends_calls, asks_around }
}

/// Who runs a script that has nothing but tests and benches has forgotten to say that they are meant.
fn refuse_trials_alone(found: &[(u32, &ast::Clause, Usage, Vec<functions::Spot>)], diags: &mut Diagnostics) {
    let trial = |spec: &ast::ProbeSpec| match providers::find(&spec.provider.node) {
        providers::Found::Known(provider) => Trial::of(provider.kind),
        _ => None,
    };
    let mut specs = found.iter().flat_map(|(_, clause, ..)| &clause.probes);
    let Some((first, kind)) = specs.clone().next().and_then(|spec| Some((spec, trial(spec)?))) else {
        return;
    };
    if specs.all(|spec| trial(spec).is_some()) {
        let message = format!("the script has nothing but what `--{}` runs", kind.word());
        diags.error("E0116", first.span, message).help(format!("run it with `--{}`", kind.word()));
    }
}

/// An attach point at which calls return.
fn returns(spec: &ast::ProbeSpec) -> bool {
    let provider = providers::PROVIDERS
        .iter()
        .find(|known| known.names.iter().any(|name| name.eq_ignore_ascii_case(&spec.provider.node)));
    provider.is_some_and(|known| matches!(known.kind, ProviderKind::Uretprobe | ProviderKind::Cuda))
}

/// A `#define` that asks for the calls around the one in hand: any clause may use it.
fn defines_ask(script: &ast::Script) -> Option<Span> {
    script.items.iter().find_map(|item| {
        let ast::Item::Define { value, .. } = item else { return None };
        let mut found = None;
        usage::walk_expr(value, &mut |e| found = found.or(usage::asks_around(e).then_some(e.span)));
        found
    })
}
