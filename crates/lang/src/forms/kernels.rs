//! `kernel_name(handle)`: the name of a kernel, from what the driver was asked for, or from the driver's own record of it.
//!
//! ```text
//! cuda:launch { @[kernel_name(args.kernel)] = count() }
//!
//! cuda:launch { @[{ let $name = @__kernel_names[pid, HANDLE]; ... }] = count() }
//! uretprobe:libcuda:cuModuleGetFunction { @__kernel_names[pid, *args.hfunc] = str(args.name) }
//! ...
//! ```
//!
//! A name that was seen being asked for is right. For a handle that is older than the trace the record behind it is read:
//! drivers keep the address of the name 8 bytes into it, which is an observation and no interface, so what does not begin
//! like a name is none. Either is kept, and each later sight of the handle is one lookup.

use crate::ast::{Clause, Expr, ExprKind, Item, Name, ProbeSpec, Script, SpecPart};
use crate::diagnostic::Diagnostics;
use crate::forms::operations::{At, expression};
use crate::forms::walk::{self, Visit};
use crate::parse::parse;
use crate::span::{Source, Span, Spanned};

const NAME: &str = "kernel_name";

/// What a call becomes.
const LOOKED_UP: &str = "{
    let $handle = (uint64)HANDLE;
    let $name = @__kernel_names[pid, $handle];
    if ($name == \"\" && $handle != 0) {
        let $at = *(uint64 *)($handle + 8);
        let $first = *(uint8 *)$at;
        if (($first >= 65 && $first <= 90) || $first == 95 || ($first >= 97 && $first <= 122)) {
            $name = str($at, 256);
            @__kernel_names[pid, $handle] = $name;
        }
    }
    $name != \"\" ? $name : $handle == 0 ? \"<no kernel>\" : \"<unknown kernel>\"
}";

/// Functions of the driver that tell names, and what is kept of them.
static TOLD: &[(&str, &str)] = &[
    ("cuModuleGetFunction", "@__kernel_names[pid, (uint64)*args.hfunc] = str(args.name, 256)"),
    ("cuLibraryGetKernel", "@__kernel_names[pid, (uint64)*args.pKernel] = str(args.name, 256)"),
    (
        "cuKernelGetFunction",
        "let $name = @__kernel_names[pid, (uint64)args.kernel];
         if ($name != \"\") { @__kernel_names[pid, (uint64)*args.pFunc] = $name }",
    ),
];

/// Replaces all calls, and adds the clauses that they need.
pub(super) fn expand(script: &mut Script) {
    let mut looked_up = LookedUp { count: 0 };
    for item in &mut script.items {
        match item {
            Item::Clause(clause) if clause.probes.iter().any(is_call) => {
                clause.predicate.iter_mut().for_each(|e| walk::expr(e, &mut looked_up));
                walk::block(&mut clause.body, &mut looked_up);
            }
            Item::Define { value, .. } => walk::expr(value, &mut looked_up),
            _ => {}
        }
    }
    if looked_up.count > 0 {
        script.items.extend(TOLD.iter().flat_map(|(function, kept)| told(function, kept)));
        script.items.extend(items("END { clear(@__kernel_names) }"));
    }
}

/// Elsewhere there is no process whose kernels could be meant; the checker says so.
fn is_call(spec: &ProbeSpec) -> bool {
    let provider = spec.provider.node.to_lowercase();
    ["uprobe", "u", "uretprobe", "ur", "cuda"].contains(&provider.as_str())
}

/// The clause that listens to a function, which older drivers need not have.
fn told(function: &str, kept: &str) -> Vec<Item> {
    let mut items = items(&format!("cuda:{NAME} / retval == CUDA_SUCCESS / {{ {kept} }}"));
    for item in &mut items {
        if let Item::Clause(clause) = item {
            let node = SpecPart::Quoted(function.to_string());
            clause.probes[0].parts.push(Spanned { node, span: Span::default() });
        }
    }
    items
}

fn items(text: &str) -> Vec<Item> {
    let mut script = parse(&Source::new(NAME, text), &[], &mut Diagnostics::default()).unwrap_or_default();
    walk::script(&mut script, &mut At(Span::default()));
    for item in &mut script.items {
        if let Item::Clause(clause) = item {
            nowhere(clause);
        }
    }
    script.items
}

/// What the script does not have has no place in it.
fn nowhere(clause: &mut Clause) {
    clause.span = Span::default();
    clause.body.span = Span::default();
    for spec in &mut clause.probes {
        spec.span = Span::default();
        spec.provider.span = Span::default();
        spec.parts.iter_mut().for_each(|part| part.span = Span::default());
    }
}

/// Puts the lookup where a name is asked for.
struct LookedUp {
    count: u32,
}

impl Visit for LookedUp {
    fn expr(&mut self, e: &mut Expr) {
        let ExprKind::Call { name, args } = &mut e.kind else { return };
        if name.node != NAME || args.len() != 1 {
            return;
        }
        let handle = args.remove(0);
        self.count += 1;
        let mut lookup = expression(LOOKED_UP, e.span);
        walk::expr(&mut lookup, &mut Own { handle, number: self.count });
        e.kind = lookup.kind;
    }
}

/// Gives a lookup its handle, and variables that no script has.
struct Own {
    handle: Expr,
    number: u32,
}

impl Own {
    fn rename(&self, name: &mut String) {
        *name = format!("{name}@kernel{}", self.number);
    }
}

impl Visit for Own {
    fn expr(&mut self, e: &mut Expr) {
        match &mut e.kind {
            ExprKind::Ident(name) if name == "HANDLE" => *e = self.handle.clone(),
            ExprKind::Var(name) => self.rename(name),
            _ => {}
        }
    }

    fn var(&mut self, name: &mut Name) {
        self.rename(&mut name.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_can_be_read() {
        expression(LOOKED_UP, Span::default());
        for (function, kept) in TOLD {
            assert_eq!(told(function, kept).len(), 1, "{function}");
        }
    }
}
