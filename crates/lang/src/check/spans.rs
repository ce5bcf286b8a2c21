//! One call, one span: where several clauses would send one for the same call, the first in the script does.
//!
//! ```text
//! cuda:launch { span(kernel = kernel_name(args.kernel)) }    these functions' spans
//! uretprobe:libcuda:cu* { span() }                           those of all others
//! ```
//!
//! Attach points decide, not conditions: a call whose clause has a condition that does not hold has no span. A clause that
//! does nothing else is not attached to functions whose spans are others'.

use crate::hir::{
    Attach, Export, Expr, ExprKind, Hidden, NameId, NameKind, Probe, Site, Stmt, StmtKind, Type,
};
use std::collections::HashMap;

/// A place in a file.
type Where = (u32, u64);

/// Takes the spans out that others send.
pub fn settle(probes: &mut Vec<Probe>) {
    let first = first_clauses(probes);
    for probe in &mut *probes {
        let clause = probe.clause;
        let Attach::Return(sites) = &mut probe.attach else { continue };
        let is_others =
            |site: &Site| of(site).is_some_and(|at| first.get(&at).is_some_and(|first| *first < clause));
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
        silence(&mut probe.body, &ids);
    }
    probes.retain(|probe| !matches!(&probe.attach, Attach::Return(sites) if sites.is_empty()));
}

/// By place: the first clause that sends a span of its calls.
fn first_clauses(probes: &[Probe]) -> HashMap<Where, u32> {
    let mut first = HashMap::new();
    for probe in probes {
        let Attach::Return(sites) = &probe.attach else { continue };
        if !any_span(&probe.body) {
            continue;
        }
        for at in sites.iter().filter_map(of) {
            let known = first.entry(at).or_insert(probe.clause);
            *known = probe.clause.min(*known);
        }
    }
    first
}

fn of(site: &Site) -> Option<Where> {
    Some((site.file?.0, site.place.offset))
}

/// A span of the call itself.
fn is_span(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Export { what: Export::Span, hidden, .. } => {
            hidden.iter().any(|(kind, _)| *kind == Hidden::Start)
        }
        _ => false,
    }
}

fn any_span(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| is_span(stmt) || inner(stmt).into_iter().any(any_span))
}

fn inner(stmt: &Stmt) -> Vec<&[Stmt]> {
    match &stmt.kind {
        StmtKind::If { then, otherwise, .. } => vec![then, otherwise],
        StmtKind::While { body, .. }
        | StmtKind::Unroll { body, .. }
        | StmtKind::ForRange { body, .. }
        | StmtKind::ForMap { body, .. } => vec![body],
        _ => vec![],
    }
}

/// Puts every span behind the test that its attach point is none of these.
fn silence(body: &mut [Stmt], ids: &[NameId]) {
    for stmt in body {
        if is_span(stmt) {
            let span = stmt.span;
            let inside = Stmt { kind: std::mem::replace(&mut stmt.kind, StmtKind::Break), span };
            let kind = ExprKind::NameIn { kind: NameKind::Probe, ids: ids.to_vec() };
            let cond = Expr { kind, ty: Type::Bool, span };
            stmt.kind = StmtKind::If { cond, then: Vec::new(), otherwise: vec![inside] };
            continue;
        }
        match &mut stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                silence(then, ids);
                silence(otherwise, ids);
            }
            StmtKind::While { body, .. }
            | StmtKind::Unroll { body, .. }
            | StmtKind::ForRange { body, .. }
            | StmtKind::ForMap { body, .. } => silence(body, ids),
            _ => {}
        }
    }
}
