//! Dead-code elimination on clauses: removes those without effect, mostly those that an option has switched off.
//!
//! ```text
//! cuda:launch / getopt("devices", false) / { @[device] = count() }    dead without `--devices`: not attached
//! cuda:launch { if (getopt("devices", false)) { @[device] = count() } }    also dead
//! ```
//!
//! A test has a verdict even with an empty body, and a bench has a time: both are kept.
//!
//! Clauses that only collect data for a removed clause are also removed, such as those that record names of kernels. A body
//! that is empty in the source is kept, since its attach point has a use of its own.

use crate::hir::const_eval::truth;
use crate::hir::visit::{inner, inner_mut, visit_probe};
use crate::hir::{Attach, ExprKind, MapId, Probe, Stmt, StmtKind, Trigger};
use crate::source::span::Span;
use rustc_hash::FxHashSet;

/// Empties branches that are never taken and removes dead clauses. If all clauses of the source are dead, all are kept. `elsewhere`: maps
/// of clauses whose attach points may be in other modules.
pub(crate) fn remove(probes: &mut Vec<Probe>, elsewhere: ClauseMaps) {
    probes.iter_mut().flat_map(|probe| &mut probe.body).for_each(empty_untaken);
    if probes.iter().filter(|probe| is_written(probe)).all(is_dead) {
        return;
    }
    probes.retain(|probe| !is_dead(probe));
    let live = live_maps(probes, elsewhere);
    probes.retain(|probe| is_written(probe) || maps(probe).iter().any(|map| live.contains(map)));
}

/// Maps of clauses, which may have no probe in this module.
#[derive(Default)]
pub(crate) struct ClauseMaps {
    /// Maps of the clauses in the source.
    pub written: Vec<MapId>,
    /// Maps of each clause that the expansion has added.
    pub inserted: Vec<Vec<MapId>>,
}

/// Whether the probe is in the source; expansions have no span.
fn is_written(probe: &Probe) -> bool {
    probe.span != Span::default()
}

fn is_dead(probe: &Probe) -> bool {
    if matches!(probe.attach, Attach::Event(Trigger::Test { .. })) {
        return false;
    }
    match &probe.predicate {
        Some(predicate) if truth(predicate) == Some(false) => true,
        Some(predicate) if predicate.changes() => false,
        _ => !probe.body.is_empty() && probe.body.iter().all(does_nothing),
    }
}

fn empty_untaken(stmt: &mut Stmt) {
    if let StmtKind::If { cond, then, otherwise } = &mut stmt.kind {
        match truth(cond) {
            Some(false) => then.clear(),
            Some(true) => otherwise.clear(),
            None => {}
        }
    }
    inner_mut(stmt, &mut empty_untaken);
}

fn does_nothing(stmt: &Stmt) -> bool {
    let StmtKind::If { cond, then, otherwise } = &stmt.kind else { return false };
    !cond.changes() && then.iter().chain(otherwise).all(does_nothing)
}

/// Maps that the script's clauses use, directly or through inserted clauses.
fn live_maps(probes: &[Probe], elsewhere: ClauseMaps) -> FxHashSet<MapId> {
    let (written, collectors): (Vec<&Probe>, Vec<&Probe>) =
        probes.iter().partition(|probe| is_written(probe));
    let mut live: FxHashSet<MapId> = written.into_iter().flat_map(maps).chain(elsewhere.written).collect();
    let collectors: Vec<Vec<MapId>> = collectors.into_iter().map(maps).chain(elsewhere.inserted).collect();
    let mut known = 0;
    while known < live.len() {
        known = live.len();
        for maps in &collectors {
            if maps.iter().any(|map| live.contains(map)) {
                live.extend(maps);
            }
        }
    }
    live
}

/// The maps that a probe reads or writes.
fn maps(probe: &Probe) -> Vec<MapId> {
    let mut maps = Vec::new();
    visit_probe(probe, &mut |e| {
        use ExprKind::{Delete, HasKey, Len, MapGet, UpdateMap};
        if let MapGet { map, .. }
        | HasKey { map, .. }
        | Delete { map, .. }
        | UpdateMap { map, .. }
        | Len(map) = &e.kind
        {
            maps.push(*map);
        }
    });
    probe.body.iter().for_each(|stmt| set_maps(stmt, &mut maps));
    maps
}

fn set_maps(stmt: &Stmt, maps: &mut Vec<MapId>) {
    if let StmtKind::SetMap { map, .. } | StmtKind::Aggregate { map, .. } | StmtKind::ForMap { map, .. } =
        stmt.kind
    {
        maps.push(map);
    }
    inner(stmt, &mut |stmt| set_maps(stmt, maps));
}
