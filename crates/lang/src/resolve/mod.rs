//! From attach points as written to places in files: `uprobe:libcuda:cuMem*` becomes a list of sites, grouped by what
//! the body sees there.
//!
//! ```text
//! ProbeSpec -> providers (which kind) -> pattern (which functions) -> probes (sites) -> layout (one group per program)
//! ```
//!
//! Not here: types of expressions (`check`), files and symbols of this machine (the catalog).

pub mod codes;
pub mod declared;
pub mod layout;
pub mod markers;
pub mod names;
pub mod pattern;
pub mod probes;
pub mod providers;
mod returns;
pub mod symbols;
pub mod tracepoint;
pub mod usage;

use crate::ast;
use crate::catalog::{Catalog, File, FileId};
use crate::diagnostic::Diagnostics;
use crate::hir::{self, NameId};
use crate::resolve::layout::Layout;
use crate::resolve::names::Interner;
use crate::resolve::providers::ProviderKind;
use crate::resolve::usage::Usage;
use crate::similar::similar;
use crate::span::Span;

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
        let near = similar(&self.target, others);
        let error = diags.error("E0111", self.span, format!("no library `{}` found", self.target));
        if !self.looked_in.is_empty() {
            error.note(format!("looked in {}", self.looked_in.join(", ")));
        }
        error.help.extend(probes::did_you_mean(&near));
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
}

/// Finds the sites of all clauses and groups them.
pub fn resolve<'a>(
    script: &'a ast::Script,
    setting: &Setting,
    types: &mut crate::check::types::Types,
    names: &mut Interner,
    diags: &mut Diagnostics,
) -> Resolved<'a> {
    let mut finder = probes::Finder::new(setting, names, diags);
    let defined = defines_ask(script);
    let sends = sends_calls(script);
    let clauses = script.items.iter().filter_map(|item| match item {
        ast::Item::Clause(clause) => Some(clause),
        _ => None,
    });
    let mut found = Vec::new();
    let mut count = 0;
    for (index, clause) in clauses.enumerate() {
        let usage = Usage::of(clause);
        let asked = probes::Around { named: usage.around.or(defined), parent: usage.event && sends };
        let spots = finder.clause(clause, asked, usage.wants_signature());
        let before = count;
        count += spots.len();
        if let Some(most) = setting.most.filter(|&most| before <= most as usize && count > most as usize) {
            finder.too_many(clause, count, most);
        }
        found.push((index as u32, clause, spots));
    }
    let (files, pending) = finder.finish();
    let clauses = found
        .into_iter()
        .map(|(index, clause, spots)| {
            let attached = layout::group(clause, spots, types, diags);
            ResolvedClause { index, clause, attached }
        })
        .collect();
    Resolved { clauses, files, pending }
}

/// Whether a script sends calls as spans, in which others then lie.
pub fn sends_calls(script: &ast::Script) -> bool {
    let returns = |spec: &ast::ProbeSpec| {
        let provider = providers::PROVIDERS
            .iter()
            .find(|known| known.names.iter().any(|name| name.eq_ignore_ascii_case(&spec.provider.node)));
        provider.is_some_and(|known| matches!(known.kind, ProviderKind::Uretprobe | ProviderKind::Cuda))
    };
    script.items.iter().any(|item| match item {
        ast::Item::Clause(clause) => clause.probes.iter().any(returns) && Usage::of(clause).result,
        _ => false,
    })
}

/// Whether a script asks for the calls around the one in hand.
pub fn asks_around(script: &ast::Script) -> bool {
    let asks = |item: &ast::Item| match item {
        ast::Item::Clause(clause) => Usage::of(clause).around.is_some(),
        _ => false,
    };
    defines_ask(script).is_some() || script.items.iter().any(asks)
}

/// A `#define` that asks for them: any clause may use it.
fn defines_ask(script: &ast::Script) -> Option<Span> {
    script.items.iter().find_map(|item| {
        let ast::Item::Define { value, .. } = item else { return None };
        let mut found = None;
        usage::walk_expr(value, &mut |e| found = found.or(usage::asks_around(e).then_some(e.span)));
        found
    })
}
