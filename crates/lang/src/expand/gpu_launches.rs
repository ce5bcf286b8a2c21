//! Joins records of a GPU with the calls that launched the work, by their correlation id.
//!
//! ```text
//! cuda:launch { @step[corr] = $step }
//! gpu:kernel { @[ustack(5)] = sum(args.duration) }
//!
//! cuda:launch:start { @__launch_corr[tid] = 0 }
//! gpu:__launch { @__launch_corr[tid] = corr }
//! cuda:launch { @step[@__launch_corr[tid]] = $step }
//!
//! cuda:launch:start { @__launch_at_ustack__5[tid] = ustack(5) }
//! gpu:__launch { @__launch_ustack__5[pid, corr] = @__launch_at_ustack__5[tid] }
//! gpu:kernel { @[@__launch_ustack__5[pid, args.corr]] = sum(args.duration) }
//! ```
//!
//! The call's entry keeps its stack for the thread, and the launch in it, at which the id is known, gives it to the id. Runs before the
//! operations and the records of GPUs are expanded.
//!
//! A frame with `forward` is that of the forward operator, for work of PyTorch's backward pass ([`super::operators`]):
//!
//! ```text
//! gpu:kernel { @[pyline(forward)] = sum(args.duration) }
//!
//! gpu:__launch {
//!     @__launch_pyline__forward[pid, corr] = @__launch_at_pyline__forward[tid];
//!     if (args.forward != 0 && has_key(@__torch_pyline, (pid, args.forward))) {
//!         @__launch_pyline__forward[pid, corr] = @__torch_pyline[pid, args.forward];
//!     }
//! }
//! ```

use std::collections::BTreeSet;

use cuda::gpu::{LAUNCH, LAUNCHING};

use crate::expand::const_eval;
use crate::expand::gpu::{PROVIDER, is_gpu, kinds_of};
use crate::expand::operations::{self, OperationProbe};
use crate::expand::operators::{OperatorUse, forward_frame, of_thread_itself};
use crate::expand::shared_stacks::is_user_stack;
use crate::expand::template::{added, expression};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{Clause, Expr, ExprKind, Item, ProbeSpec, Script};
use crate::syntax::print::{print_expr, spec};
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Preorder, look};

/// Threads that launch at once.
const THREADS: u32 = 16_384;
/// Launches whose records have not come.
const RECORDS: u32 = 262_144;

/// Joins the records of a script to the launching calls.
pub(crate) fn expand(script: &mut Script) {
    let items = std::mem::take(&mut script.items);
    script.items = items.into_iter().flat_map(apart).collect();
    let (mut stacks, mut id_use, mut calls) = (Vec::new(), None, BTreeSet::new());
    let mut operators = OperatorUse::default();
    for item in &mut script.items {
        let Item::Clause(clause) = item else { continue };
        if clause.probes.iter().all(launches) {
            if let Some(span) = read_id_of_thread(clause) {
                id_use.get_or_insert(span);
                calls.extend(clause.probes.iter().map(|probe| start_of(&spec(probe))));
            }
        } else if clause.probes.iter().all(is_gpu) {
            read_stacks_of_launches(clause, &mut stacks);
        }
        if !clause.probes.iter().any(is_gpu) {
            operators.replace(clause);
        }
    }
    script.items.extend(id_use.map(|span| id_of_thread(&calls, span)).into_iter().flatten());
    script.items.extend(stacks.iter().flat_map(|stack| stack.clauses(&mut operators)));
    script.items.extend(operators.clauses());
}

/// Gives the attach points at records of a GPU a clause of their own.
fn apart(item: Item) -> Vec<Item> {
    let Item::Clause(mut clause) = item else { return vec![item] };
    let (records, others): (Vec<ProbeSpec>, _) =
        std::mem::take(&mut clause.probes).into_iter().partition(is_gpu);
    let with = |probes| Item::Clause(Clause { probes, ..clause.clone() });
    match (records.is_empty(), others.is_empty()) {
        (false, false) => vec![with(records), with(others)],
        _ => vec![with(if records.is_empty() { others } else { records })],
    }
}

/// Whether a probe is at the return of a call of the driver that launches work.
fn launches(spec: &ProbeSpec) -> bool {
    let Some(OperationProbe { api, operation, start: false }) = operations::of_spec(spec) else {
        return false;
    };
    let name = format!("{}:{}", api.provider, operation.name);
    LAUNCHING.contains(&&*name)
}

/// Replaces `corr` by the id of the launch in the call. Returns the position of a use; where an option of the script excludes it, there is
/// none, and the id is 0.
fn read_id_of_thread(clause: &mut Clause) -> Option<Span> {
    let mut used = ReadId { value: "@__launch_corr[tid]", enters_all: false, found: None };
    visit::clause(clause, &mut used);
    visit::clause(clause, &mut ReadId { value: "(uint64)0", enters_all: true, found: None });
    used.found
}

/// Replaces `corr`.
struct ReadId {
    value: &'static str,
    /// Also where it is never read.
    enters_all: bool,
    found: Option<Span>,
}

impl Visit for ReadId {
    fn enters(&self, condition: &Expr) -> bool {
        self.enters_all || const_eval::truth(condition) != Some(false)
    }

    fn expr(&mut self, e: &mut Expr) {
        if matches!(&e.kind, ExprKind::Ident(name) if name == "corr") {
            self.found = Some(e.span);
            *e = expression(self.value, e.span);
        }
    }
}

/// The entry of an operation.
fn start_of(operation: &str) -> String {
    format!("{operation}:{}", operations::START)
}

/// The clauses that store the id of the launch in each thread's call; 0 until there is one.
fn id_of_thread(calls: &BTreeSet<String>, span: Span) -> Vec<Item> {
    let (launch, calls) = (LAUNCH.name, listed(calls));
    let text = format!(
        "let @__launch_corr = lruhash({THREADS}); {calls} {{ @__launch_corr[tid] = 0; }} \
         {PROVIDER}:{launch} {{ @__launch_corr[tid] = corr; }}"
    );
    added(&text, span)
}

fn listed(calls: &BTreeSet<String>) -> String {
    calls.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A stack of launching calls, or its length, that a script uses.
struct LaunchStack {
    /// `ustack__5`
    name: String,
    /// `ustack(5)`
    walk: Expr,
    /// Operations whose calls may have launched the work.
    calls: BTreeSet<&'static str>,
}

impl LaunchStack {
    /// The clauses and maps of a stack.
    fn clauses(&self, operators: &mut OperatorUse) -> Vec<Item> {
        let LaunchStack { name, walk, calls } = self;
        let launch = LAUNCH.name;
        let calls = listed(&calls.iter().map(|call| start_of(call)).collect());
        let frame = forward_frame(walk);
        let kept = frame.map_or_else(|| print_expr(walk), of_thread_itself);
        let in_backward = frame.map_or_else(String::new, |frame| {
            let map = operators.map_of_frames(frame, walk.span);
            format!(
                "if (args.forward != 0 && has_key({map}, (pid, args.forward))) \
                 {{ @__launch_{name}[pid, corr] = {map}[pid, args.forward]; }}"
            )
        });
        let text = format!(
            "let @__launch_at_{name} = lruhash({THREADS}); let @__launch_{name} = lruhash({RECORDS}); \
             {calls} {{ @__launch_at_{name}[tid] = {kept}; }} \
             {PROVIDER}:{launch} {{ @__launch_{name}[pid, corr] = @__launch_at_{name}[tid]; {in_backward} }}",
        );
        added(&text, walk.span)
    }
}

/// Replaces the stacks of a clause at records by those of their launches.
fn read_stacks_of_launches(clause: &mut Clause, stacks: &mut Vec<LaunchStack>) {
    let kinds = clause.probes.iter().flat_map(kinds_of);
    let calls: BTreeSet<&'static str> = kinds.flat_map(|kind| kind.launched_by).copied().collect();
    if calls.is_empty() {
        return;
    }
    visit::clause(clause, &mut ReadStacks { calls, stacks });
}

/// Replaces stacks, but not where an option of the script excludes them: probes are dear.
struct ReadStacks<'s> {
    calls: BTreeSet<&'static str>,
    stacks: &'s mut Vec<LaunchStack>,
}

impl Visit for ReadStacks<'_> {
    fn enters(&self, condition: &Expr) -> bool {
        const_eval::truth(condition) != Some(false)
    }

    fn expr(&mut self, e: &mut Expr) {
        let Some(walk) = walk_of(e, self.stacks) else { return };
        let name = name_of(&walk);
        *e = expression(&format!("@__launch_{name}[pid, args.corr]"), e.span);
        match self.stacks.iter_mut().find(|known| known.name == name) {
            Some(known) => known.calls.extend(&self.calls),
            None => self.stacks.push(LaunchStack { name, walk, calls: self.calls.clone() }),
        }
    }
}

/// Whether an argument of a stack reads the record, a variable or a map.
fn reads_record(arg: &Expr) -> bool {
    let mut reads = false;
    look::expr(
        arg,
        &mut Preorder(|e: &Expr| {
            reads |= e.is_args() || matches!(e.kind, ExprKind::Var(_) | ExprKind::Map { .. });
        }),
    );
    reads
}

/// A name for maps, `ustack__perf__5`, which is the same for the same walk in all scripts: they share the maps.
fn name_of(walk: &Expr) -> String {
    let mut name = String::new();
    for c in print_expr(walk).chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '_' => name.push(c),
            '(' | ',' => name.push_str("__"),
            ')' | ' ' => {}
            c => name.push_str(&format!("_{:x}_", u32::from(c))),
        }
    }
    name
}

/// The walk that an expression is, `ustack(5)` or the length of that, whose own expression is replaced already.
fn walk_of(e: &Expr, stacks: &[LaunchStack]) -> Option<Expr> {
    match &e.kind {
        ExprKind::Ident(name) if is_user_stack(name) => Some(e.clone()),
        // An argument that is no constant is left for the checker, at its place.
        ExprKind::Call { name, args } if is_user_stack(&name.node) && !args.iter().any(reads_record) => {
            Some(e.clone())
        }
        ExprKind::Call { name, args } if name.node == "len" => {
            let [Expr { kind: ExprKind::Map { name: map, .. }, .. }] = &args[..] else { return None };
            let known = stacks.iter().find(|known| map.strip_prefix("__launch_") == Some(&known.name))?;
            let len = WithSpan { node: "len".to_owned(), span: name.span };
            Some(Expr { kind: ExprKind::Call { name: len, args: vec![known.walk.clone()] }, span: e.span })
        }
        _ => None,
    }
}
