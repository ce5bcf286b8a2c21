//! `kernel_name(handle)`: the name of a GPU kernel, from the program's query for it or from the driver's own record.
//!
//! ```text
//! cuda:launch { @[kernel_name(args.kernel)] = count() }
//!
//! cuda:launch { @[{ let $id = @__kernel_ids[pid, HANDLE]; ... name($id) }] = count() }
//! uretprobe:libcuda:cuModuleGetFunction { let $id = hash(NAME); @__kernel_texts[$id] = NAME; @__kernel_ids[pid, HANDLE] = $id }
//! ...
//! ```
//!
//! A name is stored as the hash of its text. The text is found when the name is printed, and the hash is the same for all handles
//! of a kernel and in all processes. A launch therefore costs one lookup, whatever the length of names.
//!
//! A name from an observed query is certain. For a handle that is older than the trace, the driver's record behind the handle is
//! read: drivers store the address of the name 8 bytes into it, which is an observation and no interface. Text that does not
//! begin like a name is rejected. Names of observed queries are compared with the record; after the first difference, records
//! are no longer read.

use crate::expand::template;
use crate::expand::template::{Listener, Own, expression};
use crate::hir;
use crate::syntax::ast::{Expr, ExprKind, Item, ProbeSpec, Script, text};
use crate::syntax::visit::change::{self as visit, Visit};
use cuda::Library;
use cuda::operations::Api;

const NAME: &str = "kernel_name";
/// Names of the maps that hold names begin so.
pub const MAPS: &str = "__kernel_";
/// Map of texts by id: values are strings of [`BYTES`].
pub const TEXTS: &str = "__kernel_texts";
/// Bytes of a name that are kept, the NUL included.
pub const BYTES: u32 = 2048;
/// Bytes of a name that conditions look at.
pub const COMPARED: u32 = 256;

/// Ways in which a name prints: the word in a script, the function by which the checker knows it, and what prints.
pub static FORMS: &[(&str, &str, hir::Lookup)] = &[
    ("short", "@kernel_short", hir::Lookup::Kernel),
    ("full", "@kernel_full", hir::Lookup::KernelFull),
    ("mangled", "@kernel_mangled", hir::Lookup::KernelMangled),
];
/// The function by which the checker knows a text's number.
pub const HASH: &str = "@text_hash";
/// The function by which it knows a text of [`BYTES`] at an address.
pub const TEXT: &str = "@kernel_text";

/// What a call becomes.
const LOOKED_UP: &str = "{
    let $handle = (uint64)HANDLE;
    let $id = @__kernel_ids[pid, $handle];
    if ($id == 0 && $handle != 0 && READABLE) {
        let $at = BEHIND;
        let $first = FIRST;
        if (($first >= 65 && $first <= 90) || $first == 95 || ($first >= 97 && $first <= 122)) {
            let $name = TEXT($at);
            $id = HASH($name);
            @__kernel_texts[$id] = $name;
            @__kernel_ids[pid, $handle] = $id;
        }
    }
    OTHERWISE
    SHOWN($handle == 0 ? 1 : $id)
}";

/// Where host functions are asked for: one that was registered before the trace has the number of its place, and whoever prints
/// looks for the symbol there. That a name may yet be heard, or become readable, is why the number is not kept.
const PLACE_OF_HOST: &str = "
    if ($id == 0 && $handle != 0) {
        $id = $handle ^ (uint64)pid << 47;
        if (!has_key(@__kernel_places, $id)) { @__kernel_places[$id] = ((uint64)pid, $handle); }
    }";

/// What is kept of a name that was asked for; the first few are looked for behind the handle, too.
const TOLD_NAME: &str = "
    let $handle = (uint64)*HANDLE;
    let $name = TEXT(args.name);
    let $id = HASH($name);
    @__kernel_texts[$id] = $name;
    @__kernel_ids[pid, $handle] = $id;
    if (@__kernel_checked >= 0 && @__kernel_checked < 16) {
        let $behind = TEXT(*(uint64 *)($handle + 8));
        if (HASH($behind) == $id) {
            @__kernel_checked += 1;
        } else {
            @__kernel_checked = -1;
            warnf(\"this driver keeps no name behind the handle of a kernel: kernels that were loaded before the trace stay unknown\");
        }
    }";

/// What is kept of a further handle of a kernel.
const TOLD_HANDLE: &str = "
    let $id = @__kernel_ids[pid, (uint64)args.kernel];
    if ($id != 0) { @__kernel_ids[pid, (uint64)*HANDLE] = $id }";

/// Functions of the driver that tell names.
static TOLD: &[Listener] = &[
    told(&["cuModuleGetFunction"], TOLD_NAME, &[("HANDLE", "args.hfunc")]),
    told(&["cuLibraryGetKernel"], TOLD_NAME, &[("HANDLE", "args.pKernel")]),
    told(&["cuKernelGetFunction"], TOLD_HANDLE, &[("HANDLE", "args.pFunc")]),
];

/// The runtime is told the names of a program's kernels before `main`, with the functions of the host that stand for them: up
/// to CUDA 12 launches name those. Only scripts that ask elsewhere than in the driver listen. Where the name stands is all
/// that is kept: nobody has looked at it then, so the page may not be there to be read.
static TOLD_HOST: Listener = Listener {
    functions: &["__cudaRegisterFunction"],
    start: true,
    when: None,
    then: "@__kernel_host[pid, (uint64)args.hostFun] = (uint64)args.deviceName",
    given: &[],
};

/// Room for the kernels of all libraries of a large framework.
const HOST_MAPS: &str = "let @__kernel_host = hash(131072); let @__kernel_places = hash(131072);";

/// Whether a name may be read that was not heard of, and where it stands: behind the handle.
const BEHIND: [(&str, &str); 4] = [
    ("READABLE", "@__kernel_checked >= 0"),
    ("BEHIND", "*(uint64 *)($handle + 8)"),
    ("FIRST", "*(uint8 *)$at"),
    ("OTHERWISE", ""),
];
/// The same where [`TOLD_HOST`] listens.
const BEHIND_HOST: [(&str, &str); 4] = [
    ("READABLE", "(@__kernel_checked >= 0 || has_key(@__kernel_host, (pid, $handle)))"),
    (
        "BEHIND",
        "has_key(@__kernel_host, (pid, $handle)) ? @__kernel_host[pid, $handle] : *(uint64 *)($handle + 8)",
    ),
    // Code is no address, most often.
    ("FIRST", "$at >> 47 == 0 ? *(uint8 *)$at : (uint8)0"),
    ("OTHERWISE", PLACE_OF_HOST),
];

/// What is kept of a node that has a kernel, by one of two handles.
const NODE: &str = "
    let $kernel = (uint64)PARAMS->FUNC;
    if ($kernel == 0) { $kernel = (uint64)PARAMS->KERN }
    let $id = @__kernel_ids[pid, $kernel];
    if ($id != 0) { @__kernel_ids[pid, (uint64)*args.phGraphNode] = $id }";

/// A node of a graph has the name of its kernel. Only scripts that ask in functions of graphs listen.
static TOLD_NODE: &[Listener] = &[
    told(
        &["cuGraphAddKernelNode"],
        NODE,
        &[("PARAMS", "args.nodeParams"), ("FUNC", "func"), ("KERN", "func")],
    ),
    told(
        &["cuGraphAddKernelNode_v2"],
        NODE,
        &[("PARAMS", "args.nodeParams"), ("FUNC", "func"), ("KERN", "kern")],
    ),
    Listener {
        functions: &["cuGraphAddNode", "cuGraphAddNode_v2"],
        start: false,
        when: Some("retval == CUDA_SUCCESS && args.nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL"),
        then: NODE,
        given: &[("PARAMS", "args.nodeParams"), ("FUNC", "kernel.func"), ("KERN", "kernel.kern")],
    },
];

const fn told(
    functions: &'static [&'static str],
    then: &'static str,
    given: &'static [(&'static str, &'static str)],
) -> Listener {
    Listener { functions, start: false, when: Some("retval == CUDA_SUCCESS"), then, given }
}

/// Names for what has none.
const ALWAYS: &str =
    "BEGIN { @__kernel_texts[0] = \"<unknown kernel>\"; @__kernel_texts[1] = \"<no kernel>\" }";

/// Replaces all calls, and adds the clauses that they need.
pub(crate) fn expand(script: &mut Script) {
    let asked = NameUses::of(&template::probes_that_ask(script, NAME));
    let mut looked_up = LookedUp { count: 0, text: asked.lookup() };
    template::askers(script, &mut looked_up);
    if looked_up.count > 0 {
        script.items.extend(asked.items());
    }
}

/// Where names are asked for, by which it is known what must be listened to.
struct NameUses {
    /// Elsewhere than in the driver.
    host: bool,
    /// In functions of graphs.
    graph: bool,
}

impl NameUses {
    fn of(probes: &[ProbeSpec]) -> NameUses {
        NameUses {
            host: probes.iter().any(|probe| !is_of_driver(probe)),
            graph: probes.iter().any(is_of_graph),
        }
    }

    /// What a call becomes.
    fn lookup(&self) -> String {
        let words = if self.host { BEHIND_HOST } else { BEHIND };
        words.iter().fold(LOOKED_UP.to_owned(), |text, (word, meant)| text.replace(word, meant))
    }

    /// What listens to names, and the names for what has none.
    fn items(&self) -> Vec<Item> {
        let host = self.host.then_some(&TOLD_HOST);
        let graph = self.graph.then_some(TOLD_NODE).into_iter().flatten();
        let told = TOLD.iter().chain(host).chain(graph).flat_map(|listener| listener.clauses(NAME));
        let always = template::items(NAME, ALWAYS).into_iter();
        let map = if self.host { template::items(NAME, HOST_MAPS) } else { Vec::new() };
        let mut script = Script { items: told.chain(always).chain(map).collect(), ..Script::default() };
        visit::script(&mut script, &mut visit::Exprs(known_to_the_checker));
        script.items
    }
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

/// Names of functions that no script can write.
fn known_to_the_checker(e: &mut Expr) {
    if let ExprKind::Call { name, .. } = &mut e.kind {
        name.node = match name.node.as_str() {
            "HASH" => HASH.into(),
            "TEXT" => TEXT.into(),
            _ => return,
        };
    }
}

/// Puts the lookup where a name is asked for.
struct LookedUp {
    count: u32,
    /// What takes its place.
    text: String,
}

impl Visit for LookedUp {
    fn expr(&mut self, e: &mut Expr) {
        let ExprKind::Call { name, args } = &mut e.kind else { return };
        if name.node != NAME {
            return;
        }
        let Some(shown) = form(args) else { return };
        let given = args.remove(0);
        self.count += 1;
        let mut lookup = expression(&self.text, e.span);
        visit::expr(
            &mut lookup,
            &mut visit::Exprs(|e: &mut Expr| {
                known_to_the_checker(e);
                show_by(e, shown);
            }),
        );
        let suffix = format!("kernel{}", self.count);
        visit::expr(&mut lookup, &mut Own { given: Some(("HANDLE", given)), suffix });
        e.kind = lookup.kind;
    }
}

/// The function for what is asked for: `kernel_name(h)`, `kernel_name(h, full)`.
fn form(args: &[Expr]) -> Option<&'static str> {
    let word = match args {
        [_] => "short",
        [_, Expr { kind: ExprKind::Ident(word), .. }] => word,
        _ => return None,
    };
    FORMS.iter().find(|(known, ..)| *known == word).map(|(_, function, _)| *function)
}

/// Which form of the name is shown.
fn show_by(e: &mut Expr, shown: &str) {
    if let ExprKind::Call { name, .. } = &mut e.kind
        && name.node == "SHOWN"
    {
        name.node = shown.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::span::{Span, Spanned};
    use crate::syntax::ast::SpecPart;

    fn probe(provider: &str, parts: &[&str]) -> ProbeSpec {
        let spanned = |node| Spanned { node, span: Span::default() };
        let parts = parts.iter().map(|part| spanned(SpecPart::Text((*part).into()))).collect();
        ProbeSpec {
            provider: Spanned { node: provider.into(), span: Span::default() },
            parts,
            span: Span::default(),
        }
    }

    #[test]
    fn what_is_put_in_can_be_read() {
        let all = NameUses::of(&[
            probe("uprobe", &["libcudart", "cudaLaunchKernel"]),
            probe("ur", &["libcuda", "cuGraph*"]),
        ]);
        expression(&all.lookup(), Span::default());
        assert_eq!(all.items().len(), TOLD.len() + TOLD_NODE.len() + 4);
    }

    #[test]
    fn who_asks_in_the_driver_pays_for_no_other_listener() {
        let of_driver =
            NameUses::of(&[probe("cuda", &["launch"]), probe("u", &["libcuda", "cuLaunchKernel"])]);
        expression(&of_driver.lookup(), Span::default());
        assert_eq!(of_driver.items().len(), TOLD.len() + 1);
    }
}
