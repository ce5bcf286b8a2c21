//! Removes clauses without effect, mostly those that an option of the script has switched off.
//!
//! ```text
//! cuda:launch / getopt("devices", false) / { @[device] = count() }    nothing without `--devices`: not attached
//! cuda:launch { if (getopt("devices", false)) { @[device] = count() } }    likewise
//! ```
//!
//! A test has a verdict even with an empty body, and a bench has a time: both are kept.
//!
//! Clauses that only collect data for a removed clause are removed as well, such as those that record names of kernels. A body
//! that is empty in the source is kept, since the user wants the attach point itself.

use crate::hir::const_eval::truth;
use crate::hir::visit::{inner, inner_mut, visit_probe};
use crate::hir::{Attach, ExprKind, MapId, Probe, Stmt, StmtKind, Trigger};
use crate::source::span::Span;
use rustc_hash::FxHashSet;

/// Empties branches that are never taken and takes idle clauses out, unless none would be left of those that the script has
/// itself.
pub fn leave_out(probes: &mut Vec<Probe>) {
    probes.iter_mut().flat_map(|probe| &mut probe.body).for_each(empty_untaken);
    if probes.iter().filter(|probe| is_written(probe)).all(is_idle) {
        return;
    }
    probes.retain(|probe| !is_idle(probe));
    let heard = heard(probes);
    probes.retain(|probe| is_written(probe) || maps(probe).iter().any(|map| heard.contains(map)));
}

/// The others were put in by a form, and have no place in the script.
fn is_written(probe: &Probe) -> bool {
    probe.span != Span::default()
}

fn is_idle(probe: &Probe) -> bool {
    if matches!(probe.attach, Attach::Event(Trigger::Trial { .. })) {
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

/// The maps of which the script hears, by itself or through what listens for it.
fn heard(probes: &[Probe]) -> FxHashSet<MapId> {
    let (written, listeners): (Vec<&Probe>, Vec<&Probe>) = probes.iter().partition(|probe| is_written(probe));
    let mut heard: FxHashSet<MapId> = written.into_iter().flat_map(maps).collect();
    let listeners: Vec<Vec<MapId>> = listeners.into_iter().map(maps).collect();
    let mut known = 0;
    while known < heard.len() {
        known = heard.len();
        for maps in &listeners {
            if maps.iter().any(|map| heard.contains(map)) {
                heard.extend(maps);
            }
        }
    }
    heard
}

/// The maps that a probe mentions.
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
