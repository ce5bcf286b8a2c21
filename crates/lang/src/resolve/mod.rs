//! Resolves attach points: `uprobe:libcuda:cuMem*` becomes a list of offsets in files, grouped by the values that the body uses.
//!
//! ```text
//! ProbeSpec -> Provider (by name) -> functions, usdt, timers, ... (one Spot per location) -> grouping (one ProgramGroup per program)
//! ```
//!
//! Not here: types of expressions (`check`), files and symbols of this machine (the catalog).

pub mod completion;
mod counters;
pub mod cuda_libraries;
pub mod declaration;
mod driver_events;
mod finder;
pub mod function_list;
mod function_spec;
mod functions;
mod gpu_probes;
pub mod grouping;
pub mod interner;
mod ioctl_probes;
mod iterators;
pub mod jump_targets;
mod kernel_functions;
mod missing_functions;
mod operation_probes;
pub mod pattern;
mod provider;
pub mod providers;
mod requests;
pub mod setting;
pub(crate) mod spot;
pub mod symbols;
mod timers;
pub mod tracepoint;
mod unsafe_returns;
pub mod usage;
mod usdt;
mod watchpoints;

use crate::catalog::File;
use crate::diagnostics::Diagnostics;
use crate::hir::TestKind;
use crate::resolve::finder::{EnclosingUse, Finder};
use crate::resolve::grouping::ProgramGroup;
use crate::resolve::interner::Interner;
use crate::resolve::providers::{ProviderMatch, Runs};
use crate::resolve::setting::{PendingTarget, Run, Setting};
use crate::resolve::spot::{Miss, Spot, Spots, once_each};
use crate::resolve::usage::Usage;
use crate::source::span::Span;
use crate::syntax::ast::{self, text};
use crate::syntax::visit::{Preorder, look};

/// A clause with its attach points.
#[derive(Debug)]
pub struct ResolvedClause<'a> {
    /// Index among the clauses of the script.
    pub index: u32,
    /// As written.
    pub clause: &'a ast::Clause,
    /// One group per program.
    pub groups: Vec<ProgramGroup>,
}

/// A script with its attach points.
#[derive(Debug)]
pub struct ResolvedScript<'a> {
    /// The clauses.
    pub clauses: Vec<ResolvedClause<'a>>,
    /// Files with attach points.
    pub files: Vec<File>,
    /// Missing targets.
    pub pending: Vec<PendingTarget>,
    /// True if calls are emitted as spans, which may enclose others.
    pub sends_calls: bool,
    /// True if a clause uses values of the enclosing calls.
    pub uses_enclosing: bool,
}

/// Resolves the attach points of all clauses and groups them.
pub fn resolve<'a>(
    script: &'a ast::Script,
    setting: &Setting,
    types: &mut crate::types::Types,
    names: &mut Interner,
    diags: &mut Diagnostics,
) -> ResolvedScript<'a> {
    let mut finder = Finder::new(setting, names, diags);
    let clauses = script.items.iter().filter_map(|item| match item {
        ast::Item::Clause(clause) => Some((clause, Usage::of(clause))),
        _ => None,
    });
    let clauses: Vec<(&ast::Clause, Usage)> = clauses.collect();
    let defined = use_in_defines(script);
    let uses_enclosing = defined.is_some() || clauses.iter().any(|(_, usage)| usage.enclosing.is_some());
    let sends_calls =
        clauses.iter().any(|(clause, usage)| usage.result && clause.probes.iter().any(has_spans));
    let mut found = Vec::new();
    let mut count = 0;
    for (index, (clause, usage)) in clauses.into_iter().enumerate() {
        let parent = usage.event && sends_calls;
        finder.enclosing = EnclosingUse { named: usage.enclosing.or(defined), parent };
        finder.typed = usage.needs_signature();
        let spots = spots(&mut finder, clause);
        let before = count;
        count += spots.len();
        if let Some(most) = setting.most.filter(|&most| before <= most as usize && count > most as usize) {
            finder.too_many(clause, count, most);
        }
        found.push(LocatedClause { index: index as u32, clause, usage, spots });
    }
    let (files, pending) = (finder.files, finder.pending);
    let in_process = setting.catalog.runs_in_process();
    if *setting.run == Run::Traces {
        refuse_tests_alone(&found, diags);
    }
    let clauses = found
        .into_iter()
        .map(|LocatedClause { index, clause, usage, spots }| {
            let groups = grouping::group(&usage, in_process, spots, types, diags);
            ResolvedClause { index, clause, groups }
        })
        .collect();
    ResolvedScript { clauses, files, pending, sends_calls, uses_enclosing }
}

/// A clause with its locations, which are not grouped yet.
struct LocatedClause<'a> {
    index: u32,
    clause: &'a ast::Clause,
    usage: Usage,
    spots: Vec<Spot>,
}

/// The locations of a clause, without duplicates.
fn spots(finder: &mut Finder, clause: &ast::Clause) -> Vec<Spot> {
    let mut spots = Vec::new();
    for spec in &clause.probes {
        match attach_point(finder, spec) {
            Ok(found) => spots.extend(found),
            Err(Miss::Wrong(diagnostic)) => drop(finder.diags.push(*diagnostic)),
            Err(Miss::AbsentInKernel(diagnostic)) if finder.setting.for_other_machine => {
                finder.assume(*diagnostic)
            }
            Err(Miss::Absent(diagnostic) | Miss::AbsentInKernel(diagnostic)) => {
                finder.absent.push(*diagnostic)
            }
            Err(Miss::Silent) => {}
        }
    }
    finder.report_absent(!spots.is_empty());
    finder.mark_needed(&spots);
    // Clauses that the expansion has added are no choice of the user's.
    let is_written = clause.span != Span::default();
    spots.retain(|spot| !is_written || finder.passes_filter(spot));
    once_each(spots)
}

fn attach_point(finder: &mut Finder, spec: &ast::ProbeSpec) -> Spots {
    let provider = providers::of(spec)?;
    let name = spec.parts.first().map_or("", |part| text(&part.node));
    let elsewhere = finder.setting.only_files.is_some() && !provider.properties.in_files;
    if elsewhere || !provider.is_in_run(finder.setting.run, name) {
        return Err(Miss::Silent);
    }
    (provider.resolve)(finder, spec, provider)
}

/// Refuses a script that has only tests or benches in a run without `--test` or `--bench`.
fn refuse_tests_alone(found: &[LocatedClause], diags: &mut Diagnostics) {
    let mut specs = found.iter().flat_map(|located| &located.clause.probes);
    let Some((first, kind)) = specs.clone().next().and_then(|spec| Some((spec, test_kind(spec)?))) else {
        return;
    };
    if specs.all(|spec| test_kind(spec).is_some()) {
        let option = kind.word();
        let message = format!("all clauses of the script run with `--{option}` only");
        diags.error("E0116", first.span, message).help(format!("run it with `--{option}`"));
    }
}

/// `test` or `bench`, if the attach point is one.
pub fn test_kind(spec: &ast::ProbeSpec) -> Option<TestKind> {
    match providers::find(&spec.provider.node) {
        ProviderMatch::Known(providers::Provider { runs: Runs::Tests(kind), .. }) => Some(*kind),
        _ => None,
    }
}

/// Whether `span()` at the attach point is the span of a call or of an ioctl, which enclose others.
fn has_spans(spec: &ast::ProbeSpec) -> bool {
    matches!(providers::find(&spec.provider.node), ProviderMatch::Known(row) if row.properties.spans)
}

/// The first use of enclosing calls in a `#define`, which any clause may use.
fn use_in_defines(script: &ast::Script) -> Option<Span> {
    script.items.iter().find_map(|item| {
        let ast::Item::Define { value, .. } = item else { return None };
        let mut found = None;
        let see = |e: &ast::Expr| found = found.or(usage::is_of_enclosing(e).then_some(e.span));
        look::expr(value, &mut Preorder(see));
        found
    })
}
