//! Attach points as written to sites in files: `uprobe:libcuda:cuMem*` becomes a list of sites, grouped by what the body uses.
//!
//! ```text
//! ProbeSpec -> providers (kind) -> pattern (functions) -> functions (sites) -> grouping (one group per program)
//! ```
//!
//! Not here: types of expressions (`check`), files and symbols of this machine (the catalog).

mod clocks;
pub mod functions;
pub mod grouping;
pub mod interner;
pub mod pattern;
pub mod providers;
pub mod setting;
pub mod signature;
pub(crate) mod spot;
pub mod symbols;
pub mod tracepoint;
mod unsafe_returns;
pub mod usage;
pub mod usdt;

use crate::catalog::File;
use crate::diagnostics::Diagnostics;
use crate::resolve::grouping::Attached;
use crate::resolve::interner::Interner;
use crate::resolve::providers::ProviderKind;
use crate::resolve::setting::{Pending, Run, Setting};
use crate::resolve::usage::Usage;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::visit::{Preorder, look};

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

/// Refuses a script of nothing but tests and benches that is run without `--test` or `--bench`.
fn refuse_trials_alone(found: &[(u32, &ast::Clause, Usage, Vec<spot::Spot>)], diags: &mut Diagnostics) {
    let trial = |spec: &ast::ProbeSpec| match providers::find(&spec.provider.node) {
        providers::ProviderMatch::Known(provider) => provider.kind.trial(),
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
pub(super) fn returns(spec: &ast::ProbeSpec) -> bool {
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
        let see = |e: &ast::Expr| found = found.or(usage::asks_around(e).then_some(e.span));
        look::expr(value, &mut Preorder(see));
        found
    })
}
