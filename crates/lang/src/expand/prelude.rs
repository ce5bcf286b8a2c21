//! Preludes: inserts the macros of [`cuda::prelude`] where a script uses them, and adds the clauses and maps that they need.
//!
//! ```text
//! cuda:launch { @[device] = count() }
//!
//! cuda:launch { @[{ let $context@device1 = @__device_at[tid, @__device_depth[tid]]; ... }] = count() }
//! cuda:device:"cuCtxSetCurrent" / retval == CUDA_SUCCESS / { ... @__device_at[tid, $d] = (uint64)args.ctx; ... }
//! ```
//!
//! Inserted expressions have the span of the use, and clauses have none. Not here: the definitions, which are scripts.

use std::cell::RefCell;
use std::rc::Rc;

use cuda::Library;
use cuda::operations::Api;
use cuda::prelude::{self, Prelude};
use rustc_hash::FxHashMap;

use crate::diagnostics::Diagnostics;
use crate::expand::gpu::is_gpu;
use crate::expand::macros::{Expander, Macros, definitions};
use crate::expand::template::{SetSpan, remove_spans};
use crate::source::span::{Source, Span};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Item, ProbeSpec, Script, Stmt, StmtKind, text};
use crate::syntax::parse::parse;
use crate::syntax::visit::change::{self as visit, Visit};
use crate::syntax::visit::{Preorder, look};

/// `alloc_size(p)`
pub(crate) fn allocations(script: &mut Script) {
    insert(script, &prelude::ALLOCATIONS, &[], |_| true);
}

/// `kernel_name(handle)`; at records of a GPU the address of the name is known, and no clause of a query is needed.
pub(crate) fn kernel_names(script: &mut Script) {
    let probes = probes_with(script, "kernel_name");
    let handles = (!probes.is_empty() || define_calls(script, "kernel_name")).then_some("handles");
    let host = probes.iter().any(|probe| !is_of_driver(probe)).then_some("host");
    let graph = probes.iter().any(is_of_graph).then_some("graph");
    let options: Vec<&str> = handles.into_iter().chain(host).chain(graph).collect();
    insert(script, &prelude::KERNEL_NAMES, &options, |_| true);
}

/// `device`. It stays unknown under a condition that an option makes `false`: no clause for it is attached there.
pub(crate) fn devices(script: &mut Script) {
    fn may_hold(condition: &Expr) -> bool {
        match &condition.kind {
            ExprKind::Bool(on) => *on,
            ExprKind::Binary { op: BinaryOp::And, lhs, .. } => may_hold(lhs),
            _ => true,
        }
    }
    let options: &[&str] = if has_device_labels(script) { &["device_name", "device_uuid"] } else { &[] };
    insert(script, &prelude::DEVICES, options, may_hold);
}

/// The attach points of the clauses that call a function.
fn probes_with(script: &Script, function: &str) -> Vec<ProbeSpec> {
    let mut probes = Vec::new();
    for item in &script.items {
        let Item::Clause(clause) = item else { continue };
        let mut calls = false;
        look::clause(clause, &mut Preorder(|e: &Expr| calls |= is_call_of(e, function)));
        if calls {
            probes.extend(clause.probes.iter().filter(|probe| is_call(probe)).cloned());
        }
    }
    probes
}

/// Whether a `#define` calls a function.
fn define_calls(script: &Script, function: &str) -> bool {
    let mut calls = false;
    for item in &script.items {
        if let Item::Define { value, .. } = item {
            look::expr(value, &mut Preorder(|e: &Expr| calls |= is_call_of(e, function)));
        }
    }
    calls
}

fn is_call_of(e: &Expr, function: &str) -> bool {
    matches!(&e.kind, ExprKind::Call { name, .. } if name.node == function)
}

/// Whether an attach point is a call of a traced process. In other clauses uses are left for the checker.
fn is_call(spec: &ProbeSpec) -> bool {
    let provider = spec.provider.node.to_lowercase();
    ["uprobe", "u", "uretprobe", "ur", "usdt", "cuda", "cudart"].contains(&provider.as_str())
}

/// `cuda:launch`, `uprobe:libcuda:cu*`
fn is_of_driver(probe: &ProbeSpec) -> bool {
    match Api::of(&probe.provider.node) {
        Some(api) => api.library == Library::Driver,
        None => word(probe, 0).and_then(Library::from_alias) == Some(Library::Driver),
    }
}

/// `uprobe:libcuda:cuGraph*`
fn is_of_graph(probe: &ProbeSpec) -> bool {
    word(probe, 1).is_some_and(|function| function.contains("Graph"))
}

fn word(probe: &ProbeSpec, part: usize) -> Option<&str> {
    probe.parts.get(part).map(|part| text(&part.node))
}

/// Whether a metric has the label `cuda.device`, for which the exporter needs names and UUIDs.
fn has_device_labels(script: &Script) -> bool {
    let entries = script.items.iter().filter_map(|item| match item {
        Item::Metric { entries, .. } => Some(entries),
        _ => None,
    });
    entries.flatten().any(|entry| {
        let ExprKind::Str(text) = &entry.value.kind else { return false };
        let mut labels = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        entry.key.node == "labels" && labels.any(|label| label == b"cuda.device")
    })
}

/// Replaces all uses of a prelude's macros, and adds the clauses and maps that they need. `options` are set in addition to the names
/// of used macros. Code under a condition that `enters` rejects is skipped.
fn insert(
    script: &mut Script,
    prelude: &'static Prelude,
    options: &[&'static str],
    enters: fn(&Expr) -> bool,
) {
    let (found, at_records, expander) = Default::default();
    let mut uses = Uses { names: names(prelude), enters, found, at_records, expander };
    visit_calls(script, &mut uses);
    if uses.found.is_empty() {
        return;
    }
    let mut added = Definitions::clone(&parsed(prelude));
    added.close(&mut uses);
    uses.found.extend(options);
    added.select(&uses.found);
    let mut diags = Diagnostics::default();
    let mut expander = Expander::of_prelude(&added.macros, prelude.name, &mut diags);
    visit::script(&mut added.script, &mut expander);
    visit_calls(script, &mut Uses { expander: Some(expander), ..uses });
    visit::script(&mut added.script, &mut SetSpan(Span::default()));
    added.script.items.iter_mut().for_each(remove_spans);
    script.items.extend(added.script.items);
}

/// Visits bodies and conditions of clauses at calls and at records of a GPU, and constants.
fn visit_calls(script: &mut Script, visit: &mut Uses) {
    for item in &mut script.items {
        visit.at_records = false;
        match item {
            Item::Clause(clause)
                if clause.probes.iter().any(|probe| is_call(probe) || is_gpu(probe))
                    && clause.predicate.as_ref().is_none_or(|condition| visit.enters(condition)) =>
            {
                visit.at_records = clause.probes.iter().all(is_gpu);
                visit::clause(clause, visit);
            }
            Item::Define { value, .. } => visit::expr(value, visit),
            _ => {}
        }
    }
}

/// Names of a prelude's macros.
fn names(prelude: &Prelude) -> Vec<&'static str> {
    prelude.text.lines().filter_map(|line| line.strip_prefix("macro ")?.split('(').next()).collect()
}

/// Finds the uses of a prelude's macros, and expands them if there is an expander.
struct Uses<'m, 'd> {
    names: Vec<&'static str>,
    enters: fn(&Expr) -> bool,
    found: Vec<&'static str>,
    /// In a clause at records of a GPU, where `__recorded_NAME` replaces `NAME`.
    at_records: bool,
    expander: Option<Expander<'m, 'd>>,
}

impl Uses<'_, '_> {
    fn name(&self, name: &str) -> Option<&'static str> {
        self.names.iter().find(|known| **known == name).copied()
    }

    /// The macro and the arguments: `kernel_name(h, full)` is `__kernel_name_full(h)`.
    fn of<'e>(&self, e: &'e Expr) -> Option<(&'static str, &'e [Expr])> {
        let (name, args) = called(e)?;
        let name = match self.at_records {
            true => self.name(&format!("__recorded_{name}"))?,
            false => self.name(name).filter(|name| !name.starts_with("__"))?,
        };
        if let [args @ .., Expr { kind: ExprKind::Ident(word), .. }] = args
            && let Some(form) = self.name(&format!("__{}_{word}", name.trim_start_matches("__")))
        {
            return Some((form, args));
        }
        Some((name, args))
    }
}

impl Visit for Uses<'_, '_> {
    fn enters(&self, condition: &Expr) -> bool {
        (self.enters)(condition)
    }

    fn expr(&mut self, e: &mut Expr) {
        let Some((name, args)) = self.of(e) else { return };
        match &mut self.expander {
            None => self.found.push(name),
            Some(expander) => {
                if let Some(kind) = expander.call(name, args, e.span) {
                    e.kind = kind;
                }
            }
        }
    }
}

/// `f(x)`, `f`
fn called(e: &Expr) -> Option<(&str, &[Expr])> {
    match &e.kind {
        ExprKind::Ident(name) => Some((name, &[])),
        ExprKind::Call { name, args } => Some((&name.node, args)),
        _ => None,
    }
}

/// The parts of a prelude.
#[derive(Clone)]
struct Definitions {
    macros: Macros,
    script: Script,
}

impl Definitions {
    fn read(prelude: &Prelude) -> Definitions {
        let source = Source::new(prelude.name, prelude.text);
        let mut script = parse(&source, &[], |_| None, &mut Diagnostics::default())
            .unwrap_or_else(|| unreachable!("the prelude `{}` is not valid", prelude.name));
        let macros = definitions(&mut script, &mut Diagnostics::default());
        let mut read = Definitions { macros, script };
        let names = names(prelude);
        read.visit(&mut visit::Exprs(|e: &mut Expr| {
            if let ExprKind::Call { name, .. } = &mut e.kind
                && !names.contains(&name.node.as_str())
                && let Some(hidden) = name.node.strip_prefix("__")
            {
                name.node = format!("@{hidden}");
            }
        }));
        read
    }

    fn visit(&mut self, visit: &mut dyn Visit) {
        for def in self.macros.values_mut().flatten() {
            visit::block(&mut def.body, visit);
            def.value.iter_mut().for_each(|value| visit::expr(value, visit));
        }
        visit::script(&mut self.script, visit);
    }

    /// Adds the macros that the found macros use.
    fn close(&self, uses: &mut Uses) {
        let mut at = 0;
        while let Some(name) = uses.found.get(at).copied() {
            let mut inner = Vec::new();
            let mut see = Preorder(|e: &Expr| inner.extend(called(e).and_then(|(name, _)| uses.name(name))));
            for def in &self.macros[name] {
                look::block(&def.body, &mut see);
                def.value.iter().for_each(|value| look::expr(value, &mut see));
            }
            inner.retain(|name| !uses.found.contains(name));
            uses.found.extend(inner);
            at += 1;
        }
    }

    /// Removes named clauses and conditional parts whose name is not used.
    fn select(&mut self, used: &[&str]) {
        self.script.items.retain_mut(|item| match item {
            Item::Clause(clause) => clause.name.take().is_none_or(|name| used.contains(&name.node.as_str())),
            _ => true,
        });
        self.visit(&mut Select { used });
    }
}

/// Replaces `getopt("NAME")` by whether the name is used, and removes branches that are never taken.
struct Select<'u> {
    used: &'u [&'u str],
}

impl Visit for Select<'_> {
    fn expr(&mut self, e: &mut Expr) {
        let kind = match &mut e.kind {
            ExprKind::Call { name, args } if name.node == "getopt" => match &args[0].kind {
                ExprKind::Str(option) => {
                    ExprKind::Bool(self.used.iter().any(|used| used.as_bytes() == option.as_slice()))
                }
                _ => return,
            },
            ExprKind::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), lhs, rhs } => {
                let (taken, other) = match (&lhs.kind, &rhs.kind) {
                    (ExprKind::Bool(on), _) => (*on, (lhs, rhs)),
                    (_, ExprKind::Bool(on)) => (*on, (rhs, lhs)),
                    _ => return,
                };
                let rest = if taken == (*op == BinaryOp::And) { other.1 } else { other.0 };
                std::mem::replace(&mut rest.kind, ExprKind::Bool(false))
            }
            ExprKind::Ternary { cond, then: Some(then), otherwise } => {
                let ExprKind::Bool(holds) = cond.kind else { return };
                let taken = if holds { then } else { otherwise };
                std::mem::replace(&mut taken.kind, ExprKind::Bool(false))
            }
            _ => return,
        };
        e.kind = kind;
    }

    fn stmt(&mut self, stmt: &mut Stmt) {
        if let StmtKind::If { cond: Expr { kind: ExprKind::Bool(holds), .. }, then, otherwise } =
            &mut stmt.kind
        {
            let taken = if *holds { Some(std::mem::take(then)) } else { otherwise.take() };
            stmt.kind = StmtKind::Block(taken.unwrap_or_default());
        }
    }
}

thread_local! {
    /// The parsed preludes, by name.
    static PARSED: RefCell<FxHashMap<&'static str, Rc<Definitions>>> = RefCell::default();
}

fn parsed(prelude: &'static Prelude) -> Rc<Definitions> {
    let read = || Rc::new(Definitions::read(prelude));
    PARSED.with_borrow_mut(|parsed| parsed.entry(prelude.name).or_insert_with(read).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a script after the insertion of all preludes.
    fn inserted(script: &str) -> String {
        let mut script =
            crate::parse(&Source::new("t.ct", script), &[], &mut Diagnostics::default()).unwrap();
        allocations(&mut script);
        kernel_names(&mut script);
        devices(&mut script);
        crate::syntax::print::print(&script)
    }

    #[test]
    fn frequent_queries_are_not_probed_for_the_chosen_device_and_its_labels() {
        let metric = |device: &str| {
            inserted(&format!(
                "metric @n = {{ labels = \"process, cuda.device\" }} cuda:launch {{ @n[pid, {device}] = count() }}"
            ))
        };
        let queries = ["\"cuCtxGetDevice\"", "\"cuCtxGetDevice_v2\"", "\"cudaGetDevice\""];
        let chosen = metric("false ? device : chosen_device");
        assert!(chosen.contains("\"cudaSetDevice\"") && chosen.contains("\"cuDeviceGetUuid\""), "{chosen}");
        assert!(queries.iter().all(|query| !chosen.contains(query)), "{chosen}");
        let both = metric("true ? device : chosen_device");
        assert!(queries.iter().all(|query| both.contains(query)), "{both}");
    }

    #[test]
    fn names_in_the_driver_need_no_probes_elsewhere() {
        let driver = inserted("cuda:launch, u:libcuda:cuLaunchKernel { @[kernel_name(arg0)] = count() }");
        let others = ["\"__cudaRegisterFunction\"", "\"cuGraphAddNode\"", "@__kernel_places["];
        assert!(others.iter().all(|other| !driver.contains(other)), "{driver}");
        let all = inserted(
            "uprobe:libcudart:cudaLaunchKernel, ur:libcuda:cuGraph* { @[kernel_name(arg0)] = count() }",
        );
        assert!(others.iter().all(|other| all.contains(other)), "{all}");
    }

    #[test]
    fn names_of_records_need_no_queries() {
        let queries = |text: &str| text.contains("\"cuModuleGetFunction\"");
        let records = inserted("gpu:kernel { @[kernel_name(1), kernel_name(2, full)] = count() }");
        assert!(!queries(&records) && records.contains("@kernel_full("), "{records}");
        let both = inserted("gpu:kernel, cuda:launch { @[kernel_name(1)] = count() }");
        assert!(queries(&both), "{both}");
    }

    #[test]
    fn sites_are_stored_where_they_are_used() {
        assert!(!inserted("cuda:memcpy { @[alloc_size(args.dst)] = count() }").contains("@__alloc_site["));
        assert!(inserted("cuda:memcpy { @[alloc_site(args.dst)] = count() }").contains("ustack(16)"));
    }
}
