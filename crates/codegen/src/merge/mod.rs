//! Merges probes of one clause that differ only in values into one probe, and thus one program: the hit attach point selects the
//! value.
//!
//! ```text
//! cuda:alloc { @ = sum(args.bytes) }
//!
//! cuMemAlloc_v2    (bytes in rsi)  @ = sum(args.bytesize)                     case 0
//! cuMemAllocAsync  (bytes in rsi)  @ = sum(args.bytesize)                     case 1
//! cuMemAllocPitch  (in rdx, rcx)   @ = sum(args.WidthInBytes * args.Height)   case 2
//!
//! all three                        @ = sum(by case { 0, 1: args.bytesize, 2: args.WidthInBytes * args.Height })
//! ```
//!
//! A program takes time to compile, verify and attach, and memory for its open calls; selecting a case takes a few instructions.
//! The differing expressions are as small as their types allow, so that the rest is compiled once.

mod column;
mod parts;
mod share;
mod variables;

pub(crate) use column::reads_alike;

use crate::options::Passes;
use column::{Column, columns};
use lang::hir::visit::visit_probe;
use lang::hir::{Expr, ExprKind, Hook, Probe, Program, Site, Type, Var};
use parts::{Member, parts_mut, take};
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// Largest number of cases of a probe: an arm has one bit per case.
const CASES: usize = u64::BITS as usize;

/// The probes of a program in the order of the script; the probes of each clause are merged into as few as
/// possible. Merging is an optimisation: it runs only together with all others.
pub(crate) fn merge(program: &Program, passes: Passes) -> Vec<Cow<'_, Probe>> {
    match passes {
        Passes::All => {
            let clauses = program.probes.chunk_by(|a, b| a.span == b.span);
            clauses.flat_map(|clause| merge_clause(program, clause)).collect()
        }
        Passes::None | Passes::Only(_) => program.probes.iter().map(Cow::Borrowed).collect(),
    }
}

fn merge_clause<'p>(program: &Program, clause: &'p [Probe]) -> Vec<Cow<'p, Probe>> {
    let mut groups: Vec<Group> = vec![];
    for probe in clause {
        let (frame, member) = if clause.len() > 1 { frame(probe) } else { None }.unzip();
        let (tracked, member) = (program.is_tracked(probe), member.unwrap_or_else(|| Member::alone(probe)));
        let same =
            |group: &&mut Group| group.tracked == tracked && group.frame == frame && group.takes(probe);
        match groups.iter_mut().find(same) {
            Some(group) => group.members.push(member),
            None => groups.push(Group { frame, tracked, members: vec![member] }),
        }
    }
    groups.into_iter().map(Group::fused).collect()
}

/// Probes that can be merged.
struct Group<'p> {
    /// The structure that the probes share: a probe whose expressions have only types. `None` if the probe cannot
    /// be merged.
    frame: Option<Probe>,
    /// True if the calls are on the thread's stack of calls.
    tracked: bool,
    members: Vec<Member<'p>>,
}

/// The structure of a probe without its sites and expressions, and the expressions. `None` if it is not a function
/// probe.
fn frame(probe: &Probe) -> Option<(Probe, Member<'_>)> {
    if matches!(probe.attach.hook(), None | Some(Hook::Trampoline)) {
        return None;
    }
    let attach = probe.attach.with_sites(vec![]);
    // The locations of parameters depend on the type of the result.
    let mut of_result = false;
    visit_probe(probe, &mut |e| of_result |= matches!(e.kind, ExprKind::RetvalField { .. }));
    if of_result {
        return None;
    }
    let (predicate, body) = (probe.predicate.clone(), probe.body.clone());
    let (span, signature, cases) = (probe.span, None, vec![]);
    let records = probe.records;
    let mut frame =
        Probe { clause: 0, span, attach, signature, cases, records, vars: vec![], predicate, body };
    let (vars, in_statements) = variables::in_order(&mut frame, &probe.vars);
    // Variables of inserted lookups have a number in their names.
    let nameless = |var: &Var| Var { name: String::new(), ty: var.ty.clone() };
    frame.vars = vars[..in_statements].iter().map(nameless).collect();
    let mut parts = vec![];
    parts_mut(&mut frame, &mut |part| {
        parts.push(take(part));
        // The capacity of a printed literal is its own length.
        if let Type::Str(capacity) = &mut part.ty {
            *capacity = 0;
        }
    });
    Some((frame, Member { probe, parts, vars }))
}

impl<'p> Group<'p> {
    /// Whether a probe with the same structure can join the group.
    fn takes(&self, probe: &Probe) -> bool {
        self.frame.is_some() && self.members.len() < CASES && !self.has_site_of(probe)
    }

    /// Whether a site of the probe is in the group. A site that occurs twice runs twice, in two programs.
    fn has_site_of(&self, probe: &Probe) -> bool {
        let place = |site: &Site| (site.file, site.place.offset);
        let known: FxHashSet<_> =
            self.members.iter().flat_map(|member| member.probe.attach.sites()).map(place).collect();
        probe.attach.sites().iter().any(|site| known.contains(&place(site)))
    }

    fn fused(self) -> Cow<'p, Probe> {
        let (Some(mut fused), [first, _, ..]) = (self.frame, &self.members[..]) else {
            return Cow::Borrowed(self.members[0].probe);
        };
        (fused.clause, fused.attach) = (first.probe.clause, first.probe.attach.clone());
        fused.signature.clone_from(&first.probe.signature);
        let mut members = self.members;
        fused.vars = variables::shared(fused.vars.len(), &mut members);
        let (members, parts): (Vec<&Probe>, Vec<Vec<Expr>>) =
            members.into_iter().map(|member| (member.probe, member.parts)).unzip();
        fused.cases = members.iter().map(|member| member.signature.clone()).collect();
        let of_cases = (0..).zip(&members);
        let all =
            of_cases.flat_map(|(case, m)| m.attach.sites().iter().map(move |s| Site { case, ..s.clone() }));
        fused.attach = fused.attach.with_sites(all.collect());
        let by_signature = Column { signatures: members.iter().map(|m| m.signature.as_ref()).collect() };
        let mut values = columns(parts).map(|column| by_signature.merge_parts(column));
        parts_mut(&mut fused, &mut |part| *part = values.next().expect("all have one frame"));
        drop(values);
        share::share(&mut fused);
        Cow::Owned(fused)
    }
}
