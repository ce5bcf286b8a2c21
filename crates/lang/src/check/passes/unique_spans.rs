//! One span per call: if several clauses could emit a span for a call, only the first one in the script emits it.
//!
//! ```text
//! cuda:launch { span(kernel = kernel_name(args.kernel)) }    spans of launches
//! uretprobe:libcuda:cu* { span() }                           spans of all other calls
//! ```
//!
//! Attach points decide, not conditions: a call has no span if the predicate of its first clause is false. A clause that
//! does nothing else is not attached to functions whose spans another clause emits.
//!
//! The parent of an instant is the span of the probed call, or of the enclosing call if the probed call has no span.

use crate::hir::visit::{inner, inner_mut};
use crate::hir::{
    Attach, Export, Expr, ExprKind, HiddenValue, NameId, NameKind, Probe, Site, Stmt, StmtKind, Type,
};
use rustc_hash::FxHashMap;

/// A position in a file.
type Position = (u32, u64);

/// Removes duplicate spans and sets the parents of instants.
pub(crate) fn dedup(probes: &mut Vec<Probe>) {
    let first = first_clauses(probes);
    drop_duplicates(probes, &first);
    *probes = std::mem::take(probes).into_iter().flat_map(|probe| split_instants(probe, &first)).collect();
}

fn drop_duplicates(probes: &mut Vec<Probe>, first: &FxHashMap<Position, u32>) {
    for probe in &mut *probes {
        let clause = probe.clause;
        let Attach::Return(_, sites) = &mut probe.attach else { continue };
        let is_others = |site: &Site| {
            position(site).is_some_and(|at| first.get(&at).is_some_and(|first| *first < clause))
        };
        if !sites.iter().any(is_others) {
            continue;
        }
        if let [only] = &probe.body[..]
            && is_span(only)
        {
            sites.retain(|site| !is_others(site));
            continue;
        }
        let mut ids: Vec<NameId> =
            sites.iter().filter(|site| is_others(site)).map(|site| site.probe).collect();
        ids.sort();
        ids.dedup();
        probe.body.iter_mut().for_each(|stmt| guard(stmt, &ids));
    }
    probes.retain(|probe| !matches!(&probe.attach, Attach::Return(_, sites) if sites.is_empty()));
}

/// Splits a probe with instants in two: one for calls with spans, one for other calls.
fn split_instants(probe: Probe, first: &FxHashMap<Position, u32>) -> Vec<Probe> {
    let is_span = |site: &&Site| position(site).is_some_and(|at| first.contains_key(&at));
    let (spans, others): (Vec<Site>, Vec<Site>) =
        probe.attach.sites().iter().cloned().partition(|site| is_span(&site));
    if spans.is_empty() || !any(&probe.body, &is_instant) {
        return vec![probe];
    }
    let mut of_spans = Probe { attach: probe.attach.with_sites(spans), ..probe.clone() };
    of_spans.body.iter_mut().for_each(set_parent);
    let of_others = (!others.is_empty()).then(|| Probe { attach: probe.attach.with_sites(others), ..probe });
    [Some(of_spans), of_others].into_iter().flatten().collect()
}

/// Makes the probed call the parent of its instants.
fn set_parent(stmt: &mut Stmt) {
    if let StmtKind::Export { what: Export::Instant, hidden, .. } = &mut stmt.kind {
        let parent = hidden.iter_mut().filter(|(kind, _)| *kind == HiddenValue::ParentStart);
        parent.for_each(|(_, start)| start.kind = ExprKind::Started);
    }
    inner_mut(stmt, &mut set_parent);
}

/// By position: the first clause that emits a span of its calls.
fn first_clauses(probes: &[Probe]) -> FxHashMap<Position, u32> {
    let mut first = FxHashMap::default();
    for probe in probes {
        let Attach::Return(_, sites) = &probe.attach else { continue };
        if !any(&probe.body, &is_span) {
            continue;
        }
        for at in sites.iter().filter_map(position) {
            let known = first.entry(at).or_insert(probe.clause);
            *known = probe.clause.min(*known);
        }
    }
    first
}

fn position(site: &Site) -> Option<Position> {
    Some((site.file?.0, site.place.offset))
}

/// A span of the call itself.
fn is_span(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Export { what: Export::Span, hidden, .. } => {
            hidden.iter().any(|(kind, _)| *kind == HiddenValue::Start)
        }
        _ => false,
    }
}

fn is_instant(stmt: &Stmt) -> bool {
    matches!(stmt.kind, StmtKind::Export { what: Export::Instant, .. })
}

fn any(stmts: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> bool {
    stmts.iter().any(|stmt| any_in(stmt, is))
}

fn any_in(stmt: &Stmt, is: &dyn Fn(&Stmt) -> bool) -> bool {
    let mut found = is(stmt);
    inner(stmt, &mut |stmt| found |= any_in(stmt, is));
    found
}

/// Guards every span by a test that its attach point is none of `ids`.
fn guard(stmt: &mut Stmt, ids: &[NameId]) {
    if !is_span(stmt) {
        return inner_mut(stmt, &mut |stmt| guard(stmt, ids));
    }
    let span = stmt.span;
    let inside = Stmt { kind: std::mem::replace(&mut stmt.kind, StmtKind::Break), span };
    let kind = ExprKind::NameIn { kind: NameKind::Probe, ids: ids.to_vec() };
    let cond = Expr { kind, ty: Type::Bool, span };
    stmt.kind = StmtKind::If { cond, then: Vec::new(), otherwise: vec![inside] };
}
