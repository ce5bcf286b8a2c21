//! Probes of one clause that differ in values alone become one probe, and so one program: which value is meant is told by
//! the site that was hit.
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
//! A program costs time to compile, to verify and to attach, and memory for its calls under way; telling cases apart costs
//! a few instructions. What differs stays as small as its types allow: the rest is compiled once.

mod share;
mod variables;

use crate::options::Passes;
use lang::hir::visit::{direct_mut, inner_mut, operands_mut, visit_expr, visit_probe};
use lang::hir::{Arm, Attach, Expr, ExprKind, Probe, Program, Signature, Site, Stmt, Type, Var};
use lang::types::passing::long_double;
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// Cases of a probe at most: an arm has a bit for each.
const CASES: usize = u64::BITS as usize;

/// The probes of a program in the order of the script, those of a clause merged into as few as possible. Merging is an
/// optimisation: it runs only together with all others.
pub fn merge(program: &Program, passes: Passes) -> Vec<Cow<'_, Probe>> {
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

/// Probes that can be one.
struct Group<'p> {
    /// What they have in common: a probe whose expressions are nothing but their types. `None`: it can be with no other.
    frame: Option<Probe>,
    /// Their calls are on their thread's stack of calls.
    tracked: bool,
    members: Vec<Member<'p>>,
}

/// A probe of a group.
struct Member<'p> {
    probe: &'p Probe,
    /// The expressions that stand directly in it.
    parts: Vec<Expr>,
    /// Its variables: those of the frame, and behind them those that are in the expressions alone.
    vars: Vec<Var>,
}

impl<'p> Member<'p> {
    /// One that can be with no other.
    fn alone(probe: &'p Probe) -> Member<'p> {
        Member { probe, parts: vec![], vars: vec![] }
    }
}

/// A probe without its sites and the contents of its expressions, and these. `None`: it is not one of functions.
fn frame(probe: &Probe) -> Option<(Probe, Member<'_>)> {
    let attach = match probe.attach {
        Attach::Entry(_) => Attach::Entry(vec![]),
        Attach::Return(_) => Attach::Return(vec![]),
        _ => return None,
    };
    // Where they lie depends on the function's result.
    let mut of_result = false;
    visit_probe(probe, &mut |e| of_result |= matches!(e.kind, ExprKind::RetvalField { .. }));
    if of_result {
        return None;
    }
    let (predicate, body) = (probe.predicate.clone(), probe.body.clone());
    let (span, signature, cases) = (probe.span, None, vec![]);
    let mut frame = Probe { clause: 0, span, attach, signature, cases, vars: vec![], predicate, body };
    let (vars, in_statements) = variables::in_order(&mut frame, &probe.vars);
    // Those of lookups that were put in have a number in their names.
    let nameless = |var: &Var| Var { name: String::new(), ty: var.ty.clone() };
    frame.vars = vars[..in_statements].iter().map(nameless).collect();
    let mut parts = vec![];
    parts_mut(&mut frame, &mut |part| {
        parts.push(take(part));
        // A text that is printed has room for no more than itself.
        if let Type::Str(capacity) = &mut part.ty {
            *capacity = 0;
        }
    });
    Some((frame, Member { probe, parts, vars }))
}

/// Leaves nothing but the type of an expression.
fn take(expr: &mut Expr) -> Expr {
    let kind = std::mem::replace(&mut expr.kind, ExprKind::Int(0));
    Expr { kind, ty: expr.ty.clone(), span: expr.span }
}

/// Calls `f` with the expressions that stand directly in a probe: its predicate and those of its statements.
fn parts_mut(probe: &mut Probe, f: &mut dyn FnMut(&mut Expr)) {
    probe.predicate.iter_mut().for_each(&mut *f);
    parts_of_all_mut(&mut probe.body, f);
}

fn parts_of_all_mut(body: &mut [Stmt], f: &mut dyn FnMut(&mut Expr)) {
    body.iter_mut().for_each(|stmt| parts_of_mut(stmt, f));
}

fn parts_of_mut(stmt: &mut Stmt, f: &mut dyn FnMut(&mut Expr)) {
    direct_mut(stmt, &mut |e| f(e));
    inner_mut(stmt, &mut |stmt| parts_of_mut(stmt, f));
}

/// Calls `f` with what an expression is made from: its operands, and of a block the expressions in its statements.
fn made_from_mut(expr: &mut Expr, f: &mut dyn FnMut(&mut Expr)) {
    if let ExprKind::Block { body, .. } = &mut expr.kind {
        parts_of_all_mut(body, f);
    }
    operands_mut(expr, &mut |e| f(e));
}

fn sites(attach: &Attach) -> &[Site] {
    match attach {
        Attach::Entry(sites) | Attach::Return(sites) => sites,
        _ => &[],
    }
}

impl<'p> Group<'p> {
    /// A probe of the same frame.
    fn takes(&self, probe: &Probe) -> bool {
        self.frame.is_some() && self.members.len() < CASES && !self.has_site_of(probe)
    }

    /// A site that is written twice runs twice, by two programs.
    fn has_site_of(&self, probe: &Probe) -> bool {
        let place = |site: &Site| (site.file, site.place.offset);
        let known: FxHashSet<_> =
            self.members.iter().flat_map(|member| sites(&member.probe.attach)).map(place).collect();
        sites(&probe.attach).iter().any(|site| known.contains(&place(site)))
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
            of_cases.flat_map(|(case, m)| sites(&m.attach).iter().map(move |s| Site { case, ..s.clone() }));
        match &mut fused.attach {
            Attach::Entry(sites) | Attach::Return(sites) => *sites = all.collect(),
            _ => unreachable!("only probes of functions have a frame"),
        }
        let by_signature = Column { signatures: members.iter().map(|m| m.signature.as_ref()).collect() };
        let mut values = columns(parts).map(|column| by_signature.merge_parts(column));
        parts_mut(&mut fused, &mut |part| *part = values.next().expect("all have one frame"));
        drop(values);
        share::tell_once(&mut fused);
        Cow::Owned(fused)
    }
}

/// Rows of one length, turned.
fn columns(rows: Vec<Vec<Expr>>) -> impl Iterator<Item = Vec<Expr>> {
    let mut rows: Vec<_> = rows.into_iter().map(Vec::into_iter).collect();
    std::iter::from_fn(move || rows.iter_mut().map(Iterator::next).collect())
}

/// What an expression reads lies at the same places in two cases of a probe.
pub(crate) fn reads_alike(probe: &Probe, a: usize, b: usize, expr: &Expr) -> bool {
    Column { signatures: probe.cases.iter().map(Option::as_ref).collect() }.places_alike(
        a,
        b,
        params_read(expr),
    )
}

/// Merges expressions of one type, one of each case.
struct Column<'p> {
    signatures: Vec<Option<&'p Signature>>,
}

impl Column<'_> {
    /// The same of parts of a probe, where texts may differ in their room.
    fn merge_parts(&self, column: Vec<Expr>) -> Expr {
        let room = |e: &Expr| if let Type::Str(capacity) = e.ty { Some(capacity) } else { None };
        let most = column.iter().filter_map(room).max();
        if column.iter().all(|e| room(e) == most) {
            return self.merge(column);
        }
        let ty = Type::Str(most.expect("they differ"));
        self.merge(column.into_iter().map(|e| widened(e, &ty)).collect())
    }

    fn merge(&self, mut column: Vec<Expr>) -> Expr {
        let first = &column[0];
        if (1..).zip(&column[1..]).all(|(case, e)| self.alike((0, first), (case, e))) {
            return column.swap_remove(0);
        }
        match column.iter().map(constant).collect::<Option<Vec<Expr>>>() {
            Some(constants) => self.by_case(constants),
            None => self.merge_operands(column),
        }
    }

    /// They mean the same in their cases: what they read lies at the same places.
    fn alike(&self, (a_case, a): (usize, &Expr), (b_case, b): (usize, &Expr)) -> bool {
        a == b && self.places_alike(a_case, b_case, params_read(a))
    }

    /// Places of the parameters follow from the classes of those before.
    fn places_alike(&self, a: usize, b: usize, params: usize) -> bool {
        let classes = |case: usize| {
            let params = self.signatures[case].into_iter().flat_map(|signature| &signature.params);
            params.map(|param| match &param.ty {
                ty if *ty == long_double() => Class::LongDouble,
                _ if param.float => Class::Float,
                Type::Struct(id) => Class::Struct(id.0),
                _ => Class::Word,
            })
        };
        let hidden = |case: usize| self.signatures[case].is_some_and(|signature| signature.hidden);
        params == 0 || hidden(a) == hidden(b) && classes(a).take(params).eq(classes(b).take(params))
    }

    /// One operation for all, whose operands are merged in turn, unless the operations differ.
    fn merge_operands(&self, mut column: Vec<Expr>) -> Expr {
        let operands: Vec<Vec<Expr>> = column.iter_mut().map(dismantled).collect();
        if operands[0].is_empty() || column[1..].iter().any(|e| *e != column[0]) {
            column.iter_mut().zip(operands).for_each(|(e, operands)| assemble(e, operands.into_iter()));
            return self.by_case(column);
        }
        let mut merged = column.swap_remove(0);
        assemble(&mut merged, columns(operands).map(|column| self.merge(column)));
        merged
    }

    fn by_case(&self, column: Vec<Expr>) -> Expr {
        let (ty, span) = (column[0].ty.clone(), column[0].span);
        let mut arms: Vec<Arm> = vec![];
        for (case, value) in column.into_iter().enumerate() {
            match arms.iter_mut().find(|arm| self.alike((arm.first_case(), &arm.value), (case, &value))) {
                Some(arm) => arm.cases |= 1 << case,
                None => arms.push(Arm { cases: 1 << case, value }),
            }
        }
        Expr { kind: ExprKind::ByCase(arms), ty, span }
    }
}

/// What a parameter's place depends on.
#[derive(PartialEq)]
enum Class {
    Word,
    Float,
    LongDouble,
    Struct(u32),
}

/// Takes an expression's operands; their types stay.
fn dismantled(expr: &mut Expr) -> Vec<Expr> {
    let mut operands = vec![];
    made_from_mut(expr, &mut |part| operands.push(take(part)));
    operands
}

/// Gives an expression its operands.
fn assemble(expr: &mut Expr, mut operands: impl Iterator<Item = Expr>) {
    made_from_mut(expr, &mut |part| *part = operands.next().expect("there is one for each"));
}

/// A text with more room.
fn widened(text: Expr, ty: &Type) -> Expr {
    let span = text.span;
    let kind = match text.kind {
        kind @ ExprKind::Str(_) => kind,
        _ => ExprKind::Cast(Box::new(text)),
    };
    Expr { kind, ty: ty.clone(), span }
}

/// The value of what is constant, of a comparison of constant texts too.
fn constant(expr: &Expr) -> Option<Expr> {
    let kind = match &expr.kind {
        ExprKind::Int(_) | ExprKind::Str(_) => expr.kind.clone(),
        ExprKind::StrEq { lhs, rhs, limit: None } => match (&lhs.kind, &rhs.kind) {
            (ExprKind::Str(lhs), ExprKind::Str(rhs)) => ExprKind::Int(i64::from(lhs == rhs)),
            _ => return None,
        },
        _ => return None,
    };
    Some(Expr { kind, ..expr.clone() })
}

/// One more than the last parameter that is read in an expression.
fn params_read(expr: &Expr) -> usize {
    let mut last = 0;
    visit_expr(expr, &mut |e| {
        if let ExprKind::Param(param) | ExprKind::ParamField { param, .. } = e.kind {
            last = last.max(param as usize + 1);
        }
    });
    last
}
