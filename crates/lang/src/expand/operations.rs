//! Operations of CUDA: expands a clause of `cuda:alloc` to one clause per group of driver functions that have the used arguments
//! in the same way. `cudart:alloc` is the same for the runtime.
//!
//! ```text
//! cuda:alloc { @ = sum(args.bytes) }
//!
//! cuda:alloc:"cuMemAlloc":"cuMemHostAlloc"... / !is_error(retval) / { @ = sum((uint64)args.bytesize) }
//! cuda:alloc:"cuMemAllocPitch" / !is_error(retval) / { @ = sum((uint64)(args.WidthInBytes * args.Height)) }
//! ```
//!
//! An operation is a call that succeeded. A clause that uses the result sees failed calls as well and decides for itself.
//!
//! Functions that can never satisfy the predicate are omitted: `/ args.kind == "pool" /` drops functions for pinned memory.
//!
//! The functions and the expressions for arguments are in `cuda::operations`.

use crate::expand::template::expression;
use cuda::operations::{Api, Argument, Operation, OperationVariant};

use crate::diagnostics::Diagnostics;
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::expand::const_eval;
use crate::expand::template::{RenameVariables, SetSpan, absent, parsed};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{BinaryOp, Clause, Expr, ExprKind, Item, ProbeSpec, Script, SpecPart};
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Preorder, look};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// The part after an operation, an ioctl or an event of the driver that probes its entry.
pub const START: &str = "start";

/// Replaces all operations of a script by functions.
pub(crate) fn expand(script: &mut Script, diags: &mut Diagnostics) {
    let items = std::mem::take(&mut script.items);
    script.items = items.into_iter().flat_map(|item| lowered(item, diags)).collect();
}

/// An attach point at an operation.
#[derive(Clone, Copy)]
pub struct OperationProbe {
    /// The API that has the operation.
    pub api: &'static Api,
    /// Operation.
    pub operation: &'static Operation,
    /// True for its entry.
    pub start: bool,
}

/// The operation of an attach point; `None` for other attach points, and invalid ones.
pub fn of_spec(spec: &ProbeSpec) -> Option<OperationProbe> {
    let api = Api::of(&spec.provider.node)?;
    let parts: Vec<&str> = spec.parts.iter().filter_map(|part| as_text(&part.node)).collect();
    let (name, start) = match parts[..] {
        [name] => (name, false),
        [name, START] => (name, true),
        _ => return None,
    };
    let operation = api.operation(name).filter(|operation| !start || operation.fires.has_start())?;
    Some(OperationProbe { api, operation, start })
}

/// The functions of an expanded attach point.
pub fn functions(spec: &ProbeSpec) -> impl Iterator<Item = &str> {
    spec.parts.iter().filter_map(|part| match &part.node {
        SpecPart::Quoted(name) => Some(name.as_str()),
        _ => None,
    })
}

/// The library of such a function.
pub fn library(function: &str) -> cuda::Library {
    if function.trim_start_matches('_').starts_with("cuda") {
        cuda::Library::Runtime
    } else {
        cuda::Library::Driver
    }
}

fn as_text(part: &SpecPart) -> Option<&str> {
    match part {
        SpecPart::Text(text) => Some(text),
        _ => None,
    }
}

fn lowered(item: Item, diags: &mut Diagnostics) -> Vec<Item> {
    let Item::Clause(mut clause) = item else { return vec![item] };
    let (operations, others): (Vec<_>, Vec<_>) =
        std::mem::take(&mut clause.probes).into_iter().partition(|spec| of_spec(spec).is_some());
    let all = operations.iter().filter_map(|spec| Some((spec, of_spec(spec)?)));
    let mut rows: Vec<_> =
        all.map(|(spec, probe)| (spec, probe, possible_variants(&clause, probe))).collect();
    if others.is_empty() && rows.iter().all(|(.., variants)| variants.is_empty()) {
        rows.truncate(1);
        rows.iter_mut().for_each(|(_, probe, variants)| *variants = impossible(&clause, *probe, diags));
    }
    let mut clauses = Vec::new();
    for (spec, probe, variants) in rows {
        clauses.extend(of_operation(&clause, spec, probe, &variants, diags));
    }
    if !others.is_empty() {
        clause.probes = others;
        clauses.push(clause);
    }
    clauses.into_iter().map(Item::Clause).collect()
}

/// One clause per different body, for these variants of an operation.
fn of_operation(
    clause: &Clause,
    spec: &ProbeSpec,
    probe: OperationProbe,
    variants: &[&'static OperationVariant],
    diags: &mut Diagnostics,
) -> Vec<Clause> {
    let used = arguments(clause, probe.operation);
    let mut clauses: Vec<(Vec<&str>, Clause)> = Vec::new();
    for &variant in variants {
        let values: Vec<&str> = used.iter().map(|arg| variant.value(arg)).collect();
        if let Some((_, same)) = clauses.iter_mut().find(|(known, _)| *known == values) {
            add_functions(&mut same.probes[0], variant);
            continue;
        }
        let mut spec = spec.clone();
        add_functions(&mut spec, variant);
        clauses.push((values, Clause { probes: vec![spec], ..for_variant(clause, probe, variant, diags) }));
    }
    clauses.into_iter().map(|(_, clause)| clause).collect()
}

/// The variants of an operation for which a clause's condition may hold.
fn possible_variants(clause: &Clause, probe: OperationProbe) -> Vec<&'static OperationVariant> {
    let variants = probe.operation.variants.iter();
    let Some(condition) = &clause.predicate else { return variants.collect() };
    let mut used = Vec::new();
    look::expr(condition, &mut Preorder(|e: &Expr| use_once(e, probe.operation, &mut used)));
    let may_hold = |variant: &&'static OperationVariant| {
        let values: Vec<Rc<Expr>> = used.iter().map(|arg| value(variant, arg)).collect();
        let meaning = |e: &Expr| {
            let name = argument(e, probe.operation)?.name;
            used.iter().position(|arg| arg.name == name).map(|at| &*values[at])
        };
        const_eval::truth_where(condition, &meaning) != Some(false)
    };
    variants.filter(may_hold).collect()
}

/// The argument of an operation, if the expression is one.
fn argument(e: &Expr, operation: &'static Operation) -> Option<&'static Argument> {
    match &e.kind {
        ExprKind::Field { base, name, .. } if base.is_args() => operation.arg(&name.node),
        _ => None,
    }
}

/// One variant of an operation, so that the clause is checked although its condition never holds. Warns, unless an option makes it
/// false.
fn impossible(
    clause: &Clause,
    probe: OperationProbe,
    diags: &mut Diagnostics,
) -> Vec<&'static OperationVariant> {
    let OperationProbe { api, operation, .. } = probe;
    if let Some(predicate) =
        clause.predicate.as_ref().filter(|predicate| const_eval::truth(predicate).is_none())
    {
        let message = format!("no function of `{}:{}` meets this condition", api.provider, operation.name);
        let mut used = Vec::new();
        look::expr(predicate, &mut Preorder(|e: &Expr| use_once(e, operation, &mut used)));
        let words = |arg: &&'static Argument| {
            one_of(arg.name, operation.variants.iter().map(|variant| variant.value(arg)))
        };
        diags.warning("W0041", predicate.span, message).help.extend(used.iter().filter_map(words));
    }
    operation.variants.iter().take(1).collect()
}

/// The words that an argument may be, from the expressions that it may stand for.
pub(crate) fn one_of<'t>(argument: &str, values: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut words: Vec<&str> = values.flat_map(|text| text.split('"').skip(1).step_by(2)).collect();
    words.sort_unstable();
    words.dedup();
    (!words.is_empty()).then(|| format!("`args.{argument}` is one of \"{}\"", words.join("\", \"")))
}

/// The arguments of an operation that a clause uses.
fn arguments(clause: &Clause, operation: &'static Operation) -> Vec<&'static Argument> {
    let mut used = Vec::new();
    look::clause(clause, &mut Preorder(|e: &Expr| use_once(e, operation, &mut used)));
    used
}

/// Adds the argument of an operation, if the expression is a new one.
fn use_once(e: &Expr, operation: &'static Operation, used: &mut Vec<&'static Argument>) {
    let arg = argument(e, operation);
    used.extend(arg.filter(|arg| !used.iter().any(|known| known.name == arg.name)));
}

fn add_functions(spec: &mut ProbeSpec, variant: &OperationVariant) {
    let span = spec.span;
    let part = |name: &&str| WithSpan { node: SpecPart::Quoted(name.to_string()), span };
    spec.parts.extend(variant.functions.iter().map(part));
}

/// A clause for the functions of one variant.
fn for_variant(
    clause: &Clause,
    probe: OperationProbe,
    variant: &'static OperationVariant,
    diags: &mut Diagnostics,
) -> Clause {
    let mut copy = clause.clone();
    let mut replace = ReplaceArguments { probe, variant, count: 0, diags };
    visit::clause(&mut copy, &mut replace);
    let is_off = copy.predicate.as_ref().is_some_and(|predicate| const_eval::truth(predicate) == Some(false));
    if let (Some(when), false) = (condition(clause, probe), is_off) {
        copy.predicate = Some(both(expression(when, clause.span), copy.predicate));
    }
    copy
}

/// The condition on the result of the calls that a clause runs at.
fn condition(clause: &Clause, probe: OperationProbe) -> Option<&'static str> {
    match probe.start {
        true => None,
        false => probe.operation.fires.condition(uses_result(clause)),
    }
}

/// Whether a clause uses the result of the call: `args.result`, `retval`, or `span`, which records it.
fn uses_result(clause: &Clause) -> bool {
    let mut found = false;
    let see = |e: &Expr| {
        found |= match &e.kind {
            ExprKind::Field { base, name, .. } => base.is_args() && name.node == "result",
            ExprKind::Ident(name) => name == "retval",
            ExprKind::Call { name, .. } => ["retval", "span"].contains(&name.node.as_str()),
            _ => false,
        }
    };
    look::clause(clause, &mut Preorder(see));
    found
}

fn both(when: Expr, predicate: Option<Expr>) -> Expr {
    let Some(predicate) = predicate else { return when };
    let span = predicate.span;
    let kind = ExprKind::Binary { op: BinaryOp::And, lhs: Box::new(when), rhs: Box::new(predicate) };
    Expr { kind, span }
}

/// Replaces the arguments of an operation by the expressions of a variant.
struct ReplaceArguments<'d> {
    probe: OperationProbe,
    variant: &'static OperationVariant,
    /// Number of replaced arguments.
    count: u32,
    diags: &'d mut Diagnostics,
}

impl Visit for ReplaceArguments<'_> {
    fn expr(&mut self, e: &mut Expr) {
        let ExprKind::Field { base, name, .. } = &e.kind else { return };
        if !base.is_args() {
            return;
        }
        e.kind = match self.argument(&name.node) {
            Ok(arg) => self.own_value(arg, e.span).kind,
            Err((message, help)) => {
                self.diags.error("E0040", name.span, message).help.extend(help);
                absent(e.span).kind
            }
        };
    }
}

impl ReplaceArguments<'_> {
    /// The value of an argument, with its variables renamed.
    fn own_value(&mut self, arg: &'static Argument, span: Span) -> Expr {
        let mut value = Expr::clone(&value(self.variant, arg));
        visit::expr(&mut value, &mut SetSpan(span));
        self.count += 1;
        if self.variant.value(arg).contains('$') {
            visit::expr(&mut value, &mut RenameVariables { suffix: format!("arg{}", self.count) });
        }
        value
    }

    fn argument(&self, name: &str) -> Result<&'static Argument, (String, Vec<String>)> {
        let OperationProbe { api, operation, start } = self.probe;
        let written = format!("{}:{}", api.provider, operation.name);
        match operation.arg(name) {
            Some(arg) if arg.at_return && start => Err((
                format!("`args.{name}` has no value at the entry of the call"),
                vec![format!("use `{written}`, which is probed at the return of the call")],
            )),
            Some(arg) => Ok(arg),
            None => {
                let near = similar(name, operation.all_args().map(|arg| arg.name));
                let help = match did_you_mean(&near) {
                    help if help.is_empty() => vec![format!("it has {}", names(operation))],
                    help => help,
                };
                Err((format!("`{written}` has no argument `{name}`"), help))
            }
        }
    }
}

fn names(operation: &'static Operation) -> String {
    let names: Vec<String> = operation.all_args().map(|arg| format!("`{}`", arg.name)).collect();
    names.join(", ")
}

thread_local! {
    /// The expression of each argument, by the addresses of its rows: parsing takes longer than this lookup.
    static VALUES: RefCell<FxHashMap<(*const OperationVariant, *const Argument), Rc<Expr>>> = RefCell::default();
}

/// The expression of a variant for an argument, in the type of the argument, without a position.
pub(super) fn value(variant: &'static OperationVariant, arg: &'static Argument) -> Rc<Expr> {
    VALUES.with_borrow_mut(|values| {
        values.entry((variant, arg)).or_insert_with(|| Rc::new(parsed(&spelled(variant, arg)))).clone()
    })
}

fn spelled(variant: &'static OperationVariant, arg: &'static Argument) -> String {
    let text = variant.value(arg);
    if arg.is_number() { format!("({})({text})", arg.ty) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda::operations::APIS;

    #[test]
    fn all_expressions_can_be_parsed() {
        for operation in APIS.iter().flat_map(|api| api.operations) {
            operation.fires.condition(false).iter().for_each(|when| drop(expression(when, Span::default())));
            for (variant, arg) in
                operation.variants.iter().flat_map(|f| operation.all_args().map(move |a| (f, a)))
            {
                value(variant, arg);
            }
        }
    }
}
