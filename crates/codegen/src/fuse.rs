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

use lang::Span;
use lang::hir::{
    Arm, Attach, BinaryOp, Expr, ExprKind, Probe, Program, Signature, Site, Stmt, StmtKind, Type, Var, VarId,
};
use lang::hir_visit::{
    direct, direct_mut, inner, inner_mut, operands, operands_mut, visit_block, visit_expr, visit_probe,
};
use lang::passing::long_double;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

/// Cases of a probe at most: an arm has a bit for each.
const CASES: usize = u64::BITS as usize;

/// The probes of a program, as few as can be, in the order of the script.
pub fn fuse(program: &Program) -> Vec<Cow<'_, Probe>> {
    let mut of_clause: FxHashMap<Span, usize> = FxHashMap::default();
    program.probes.iter().for_each(|probe| *of_clause.entry(probe.span).or_default() += 1);
    let mut groups: Vec<Group> = vec![];
    for probe in &program.probes {
        let candidate = of_clause[&probe.span] > 1;
        let (frame, parts) = frame(probe).filter(|_| candidate).unzip();
        let (tracked, member) = (program.is_tracked(probe), (probe, parts.unwrap_or_default()));
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
    /// The probes, and the expressions that stand directly in each.
    members: Vec<(&'p Probe, Vec<Expr>)>,
}

/// A probe without its sites and the contents of its expressions, and these. `None`: it is not one of functions.
fn frame(probe: &Probe) -> Option<(Probe, Vec<Expr>)> {
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
    let (vars, predicate, body) = (probe.vars.clone(), probe.predicate.clone(), probe.body.clone());
    let (span, signature, cases) = (probe.span, None, vec![]);
    let mut frame = Probe { clause: 0, span, attach, signature, cases, vars, predicate, body };
    // Those of lookups that were put in have a number in their names.
    frame.vars.iter_mut().for_each(|var| var.name.clear());
    let mut parts = vec![];
    parts_mut(&mut frame, &mut |part| {
        parts.push(take(part));
        // A text that is printed has room for no more than itself.
        if let Type::Str(capacity) = &mut part.ty {
            *capacity = 0;
        }
    });
    Some((frame, parts))
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
            self.members.iter().flat_map(|(member, _)| sites(&member.attach)).map(place).collect();
        sites(&probe.attach).iter().any(|site| known.contains(&place(site)))
    }

    fn fused(self) -> Cow<'p, Probe> {
        let (members, parts): (Vec<&Probe>, Vec<Vec<Expr>>) = self.members.into_iter().unzip();
        if let [only] = members[..] {
            return Cow::Borrowed(only);
        }
        let mut fused = members[0].clone();
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
        tell_once(&mut fused);
        Cow::Owned(fused)
    }
}

/// A value that the body wants several times is told once: at its beginning, if the body wants it whatever happens, or where a
/// condition first wants it.
fn tell_once(probe: &mut Probe) {
    let span = probe.span;
    for value in wanted_always(&probe.body) {
        let mut times = 0;
        visit_block(&probe.body, &mut |e| times += usize::from(is_case(e, &value)));
        if times >= 2 {
            let var = case_variable(&mut probe.vars, &value);
            parts_of_all_mut(&mut probe.body, &mut |part| replace(part, &value, var));
            probe.body.insert(0, Stmt { kind: StmtKind::SetVar { var, value }, span });
        }
    }
    tell_once_behind_conditions(&mut probe.body, &mut probe.vars);
}

fn case_variable(vars: &mut Vec<Var>, value: &Expr) -> VarId {
    let var = VarId(vars.len() as u32);
    vars.push(Var { name: format!("case{}", var.0), ty: value.ty.clone() });
    var
}

/// `if (a && f(x)) { g(x) }` becomes `if (a && { $case = x; f($case) }) { g($case) }`.
fn tell_once_behind_conditions(body: &mut [Stmt], vars: &mut Vec<Var>) {
    for stmt in body {
        if let StmtKind::If { cond, then, .. } = &mut stmt.kind {
            tell_once_behind(cond, then, vars);
        }
        inner_mut(stmt, &mut |stmt| tell_once_behind_conditions(std::slice::from_mut(stmt), vars));
    }
}

/// What the last part of a condition always has is the same wherever it holds.
fn tell_once_behind(cond: &mut Expr, then: &mut [Stmt], vars: &mut Vec<Var>) {
    let ExprKind::Binary { op: BinaryOp::And, rhs, .. } = &mut cond.kind else { return };
    let mut wanted: Vec<Expr> = vec![];
    always(rhs, &mut |e| wanted.extend(is_steady(e).then(|| placeless(e))));
    for value in wanted {
        let mut times = 0;
        let mut count = |e: &Expr| times += usize::from(is_case(e, &value));
        visit_expr(rhs, &mut count);
        visit_block(then, &mut count);
        if times < 2 {
            continue;
        }
        let var = case_variable(vars, &value);
        replace(rhs, &value, var);
        parts_of_all_mut(then, &mut |part| replace(part, &value, var));
        let set = Stmt { kind: StmtKind::SetVar { var, value }, span: rhs.span };
        let tested = Box::new(take(rhs));
        rhs.kind = ExprKind::Block { body: vec![set], value: tested };
    }
}

/// Values by case that a body has in every run, each once.
fn wanted_always(body: &[Stmt]) -> Vec<Expr> {
    let mut wanted: Vec<Expr> = vec![];
    for stmt in body.iter().take_while(|stmt| !may_leave(stmt)) {
        direct(stmt, &mut |e| {
            always(e, &mut |e| {
                if is_steady(e) && !wanted.iter().any(|known| is_case(e, known)) {
                    wanted.push(placeless(e));
                }
            });
        });
    }
    wanted
}

fn may_leave(stmt: &Stmt) -> bool {
    let mut may = matches!(stmt.kind, StmtKind::Return(_) | StmtKind::Exit { .. });
    inner(stmt, &mut |stmt| may |= may_leave(stmt));
    may
}

/// Calls `see` with the values by case that an expression always has.
fn always<'e>(expr: &'e Expr, see: &mut dyn FnMut(&'e Expr)) {
    match &expr.kind {
        ExprKind::ByCase(_) => see(expr),
        ExprKind::Block { .. } => {}
        ExprKind::Ternary { cond: first, .. }
        | ExprKind::Binary { op: BinaryOp::And | BinaryOp::Or, lhs: first, .. } => always(first, see),
        _ => operands(expr, &mut |e| always(e, see)),
    }
}

/// It is this value by case, which is placeless.
fn is_case(expr: &Expr, value: &Expr) -> bool {
    let (ExprKind::ByCase(arms), ExprKind::ByCase(others)) = (&expr.kind, &value.kind) else { return false };
    let cases = |arms: &[Arm]| arms.iter().map(|arm| arm.cases).collect::<Vec<_>>();
    expr.ty == value.ty && cases(arms) == cases(others) && placeless(expr) == *value
}

fn replace(expr: &mut Expr, value: &Expr, var: VarId) {
    if is_case(expr, value) {
        expr.kind = ExprKind::Var(var);
    }
    made_from_mut(expr, &mut |part| replace(part, value, var));
}

/// The same wherever it was written.
fn placeless(expr: &Expr) -> Expr {
    fn clear(expr: &mut Expr) {
        expr.span = Span::default();
        made_from_mut(expr, &mut |part| clear(part));
    }
    let mut expr = expr.clone();
    clear(&mut expr);
    expr
}

/// It has no effect, and the same value wherever the body has it.
fn is_steady(expr: &Expr) -> bool {
    use ExprKind::*;
    let mut steady = true;
    visit_expr(expr, &mut |e| {
        steady &= matches!(
            &e.kind,
            Int(_)
                | Str(_)
                | Param(_)
                | ParamField { .. }
                | Arg(_)
                | Retval
                | Duration
                | Neg(_)
                | BitNot(_)
                | Not(_)
                | StrEq { .. }
                | Cast(_)
                | Ternary { .. }
                | Load { .. }
                | Tuple(_)
                | TupleGet { .. }
                | ByCase(_)
        ) || matches!(&e.kind, Binary { op, .. } if !matches!(op, BinaryOp::Div | BinaryOp::Rem));
    });
    steady
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
