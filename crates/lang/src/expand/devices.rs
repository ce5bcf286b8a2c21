//! `context`, `device`, `device_name`, `device_uuid`: the current context of the calling thread, and its device.
//!
//! ```text
//! cuda:launch { @[device] = count() }
//!
//! cuda:launch { @[{ the device of @__device_of[pid, @__device_at[tid, @__device_depth[tid]]] }] = count() }
//! uretprobe:libcuda:"cuDevicePrimaryCtxRetain" { @__device_of[pid, CONTEXT] = args.dev + 1 }
//! uretprobe:libcuda:"cuCtxSetCurrent"          { @__device_at[tid, DEPTH] = CONTEXT }
//! ...
//! ```
//!
//! A thread has a stack of contexts, which calls push, pop and replace. A context belongs to one device, which the call that
//! creates the context names. For threads and contexts that are older than the trace, the first answer of the driver to a query
//! for the current device is used. A device that is still unknown is -1, or `?`. If the handle of a context is unknown, its
//! device plus 1 is stored instead: handles are addresses and never that small.
//!
//! Libraries query their device more often than they launch. `chosen_device` ignores those queries and follows only the calls
//! that change the device, which are rare. The device stays unknown under a condition that an option makes `false`: no clause
//! for it is attached, and it costs nothing.
//!
//! Several scripts of a run share these maps, so that an update must have the same effect if it is made twice: a call changes
//! the stack at the depth that the stack had when the call began.

use crate::expand::template;
use crate::expand::template::{Listener, Own, expression};
use crate::hir;
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Item, Script};
use crate::syntax::visit::change::{self as visit, Visit};
use std::collections::BTreeSet;

/// Names of the maps that know devices begin so.
pub const MAPS: &str = "__device_";

/// Numbers that are shown as text: how the table below has them, the function by which the checker knows them, what prints.
pub static SHOWN: &[(&str, &str, hir::Lookup)] =
    &[("UUID", "@device_uuid", hir::Lookup::DeviceUuid), ("PCI", "@device_pci", hir::Lookup::DevicePci)];

/// What calls tell of devices.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DeviceFact {
    Choice,
    Answer,
    Name,
    Uuid,
    Place,
}

impl DeviceFact {
    /// What is known when nothing was heard: it also says of what type the maps are.
    fn first(self) -> &'static str {
        match self {
            DeviceFact::Choice | DeviceFact::Answer => "",
            DeviceFact::Name => "@__device_name[(uint32)0, (int64)-1] = \"?\";",
            DeviceFact::Uuid => "@__device_uuid[(uint32)0, (int64)-1] = (uint64)0;",
            DeviceFact::Place => "@__device_place[(uint32)0, (int64)-1, (int64)0] = (int64)0;",
        }
    }

    fn listeners(self) -> &'static [Listener] {
        match self {
            DeviceFact::Choice => CHOICES,
            DeviceFact::Answer => ANSWERS,
            DeviceFact::Name => NAMES,
            DeviceFact::Uuid => UUIDS,
            DeviceFact::Place => PLACES,
        }
    }
}

/// What a script may ask for.
struct Variable {
    /// As scripts write it.
    name: &'static str,
    /// What is said of `$context`; `DEVICE` stands for what finds its `$device`.
    said: &'static str,
    /// What has to be heard, besides which context it is.
    heard: &'static [DeviceFact],
}

impl Variable {
    fn lookup(&self) -> String {
        CONTEXT.replace("SAID", self.said).replace("DEVICE", DEVICE)
    }
}

static VARIABLES: &[Variable] = &[
    Variable { name: "context", said: "$context < 4096 ? (uint64)0 : $context", heard: &[] },
    Variable { name: "chosen_device", said: "DEVICE $device", heard: &[DeviceFact::Choice] },
    Variable { name: "device", said: "DEVICE $device", heard: &[DeviceFact::Choice, DeviceFact::Answer] },
    Variable {
        name: "device_name",
        said: "DEVICE has_key(@__device_name, (pid, $device)) ? @__device_name[pid, $device] : \"?\"",
        heard: &[DeviceFact::Choice, DeviceFact::Answer, DeviceFact::Name],
    },
    Variable {
        name: "device_uuid",
        said: "DEVICE UUID(@__device_uuid[pid, $device])",
        heard: &[DeviceFact::Choice, DeviceFact::Answer, DeviceFact::Uuid],
    },
    Variable {
        name: "device_pci",
        said: "DEVICE
            let $domain = @__device_place[pid, $device, 50];
            let $bus = @__device_place[pid, $device, 33];
            let $slot = @__device_place[pid, $device, 34];
            PCI($domain > 0 && $bus > 0 && $slot > 0 ? (($domain - 1) << 16) | (($bus - 1) << 8) | (($slot - 1) << 3) : -1)",
        heard: &[DeviceFact::Choice, DeviceFact::Answer, DeviceFact::Place],
    },
];

const CONTEXT: &str = "{ let $context = @__device_at[tid, @__device_depth[tid]]; SAID }";
const DEVICE: &str = "let $device = $context < 4096 ? (int64)$context - 1 : @__device_of[pid, $context] - 1;";

/// Threads, contexts and processes that are gone make room by themselves.
const KEPT: &str = "
let @__device_before = lruhash(16384);
let @__device_depth = lruhash(16384);
let @__device_at = lruhash(16384);
let @__device_of = lruhash(16384);
let @__device_name = processhash(4096);
let @__device_uuid = processhash(4096);
let @__device_place = processhash(4096);
BEGIN {
    @__device_before[(uint32)0] = (uint64)0;
    @__device_depth[(uint32)0] = (uint64)0;
    @__device_at[(uint32)0, (uint64)0] = (uint64)0;
    @__device_of[(uint32)0, (uint64)0] = (int64)0;
    FIRST
}";

const BEFORE: &str = "@__device_before[tid] = @__device_depth[tid]";

const CREATED: &str = "
    let $d = @__device_before[tid] + 1;
    let $context = (uint64)*args.pctx;
    @__device_of[pid, $context] = (int64)args.dev + 1;
    @__device_depth[tid] = $d;
    @__device_at[tid, $d] = $context;";

const RETAINED: &str = "@__device_of[pid, (uint64)*args.pctx] = (int64)args.dev + 1;";

const PUSHED: &str = "
    let $d = @__device_before[tid] + 1;
    @__device_depth[tid] = $d;
    @__device_at[tid, $d] = (uint64)args.ctx;";

/// Below the depth 0 nothing is known: it is where the stack began when the trace did.
const POPPED: &str = "
    let $d = @__device_before[tid];
    if ($d > 0) { @__device_depth[tid] = (uint64)($d - 1) } else { @__device_at[tid, $d] = (uint64)0 }";

/// No context instead of one pops it.
const SET: &str = "
    let $d = @__device_before[tid];
    if (args.ctx != 0) {
        @__device_at[tid, $d] = (uint64)args.ctx;
    } else if ($d > 0) {
        @__device_depth[tid] = (uint64)($d - 1);
    } else {
        @__device_at[tid, $d] = (uint64)0;
    }";

/// A context that is current in the thread is popped.
const DESTROYED: &str = "
    let $d = @__device_before[tid];
    if (@__device_at[tid, $d] == (uint64)args.ctx) {
        if ($d > 0) { @__device_depth[tid] = (uint64)($d - 1) } else { @__device_at[tid, $d] = (uint64)0 }
    }";

/// The handle may be given to another, by another thread even before the call has returned: it is forgotten when the call begins.
const DESTROYING: &str = "
    @__device_before[tid] = @__device_depth[tid];
    if (has_key(@__device_of, (pid, (uint64)args.ctx))) { delete(@__device_of, (pid, (uint64)args.ctx)) }";

/// The driver says of which device the current context is.
const ANSWERED: &str = "
    let $d = @__device_depth[tid];
    let $context = @__device_at[tid, $d];
    let $said = (int64)*args.device + 1;
    if ($context < 4096) {
        if ($context != (uint64)$said) { @__device_at[tid, $d] = (uint64)$said }
    } else if (@__device_of[pid, $context] != $said) {
        @__device_of[pid, $context] = $said;
    }";

/// The same of any context.
const ANSWERED_OF: &str = "
    if (@__device_of[pid, (uint64)args.ctx] != (int64)*args.device + 1) {
        @__device_of[pid, (uint64)args.ctx] = (int64)*args.device + 1;
    }";

/// The runtime says what device the thread's next calls are for: it may make a context of it current later, and then says so.
const CHOSEN: &str = "
    let $d = @__device_depth[tid];
    let $context = @__device_at[tid, $d];
    let $known = $context < 4096 ? (int64)$context : @__device_of[pid, $context];
    if ($known != (int64)DEVICE + 1) { @__device_at[tid, $d] = (uint64)DEVICE + 1 }";

const NAMED: &str = "@__device_name[pid, (int64)args.dev] = str((uint64)args.name, 64);";

const UUID_TOLD: &str = "
    let $first = *(uint64 *)((uint64)WHERE);
    let $second = *(uint64 *)((uint64)WHERE + 8);
    @__device_uuids[$first ^ $second] = ($first, $second);
    @__device_uuid[pid, (int64)DEVICE] = $first ^ $second;";

/// `0000:1b:00.0`, whose letters may be large.
const PLACED: &str = "
    let $p = (uint64)args.pciBusId;
    let $domain = 0;
    for $i : 0..4 { let $c = (int64)*(uint8 *)($p + (uint64)$i); $domain = $domain * 16 + ($c & 15) + ($c >> 6) * 9 }
    let $bus = 0;
    for $i : 5..7 { let $c = (int64)*(uint8 *)($p + (uint64)$i); $bus = $bus * 16 + ($c & 15) + ($c >> 6) * 9 }
    let $slot = 0;
    for $i : 8..10 { let $c = (int64)*(uint8 *)($p + (uint64)$i); $slot = $slot * 16 + ($c & 15) + ($c >> 6) * 9 }
    @__device_place[pid, (int64)args.dev, 50] = $domain + 1;
    @__device_place[pid, (int64)args.dev, 33] = $bus + 1;
    @__device_place[pid, (int64)args.dev, 34] = $slot + 1;";

const fn at_start(functions: &'static [&'static str], then: &'static str) -> Listener {
    Listener { functions, start: true, when: None, then, given: &[] }
}

const fn of_driver(functions: &'static [&'static str], then: &'static str) -> Listener {
    Listener { functions, start: false, when: Some("retval == CUDA_SUCCESS"), then, given: &[] }
}

const fn of_runtime(
    functions: &'static [&'static str],
    then: &'static str,
    given: &'static [(&'static str, &'static str)],
) -> Listener {
    Listener { functions, start: false, when: Some("retval == cudaSuccess"), then, given }
}

/// Clauses that record the current context.
static CONTEXTS: &[Listener] = &[
    at_start(
        &[
            "cuCtxCreate_v2",
            "cuCtxCreate_v3",
            "cuCtxCreate_v4",
            "cuCtxPushCurrent_v2",
            "cuCtxPopCurrent_v2",
            "cuCtxSetCurrent",
        ],
        BEFORE,
    ),
    at_start(&["cuCtxDestroy_v2"], DESTROYING),
    of_driver(&["cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"], CREATED),
    of_driver(&["cuCtxPushCurrent_v2"], PUSHED),
    of_driver(&["cuCtxPopCurrent_v2"], POPPED),
    of_driver(&["cuCtxSetCurrent"], SET),
    of_driver(&["cuCtxDestroy_v2"], DESTROYED),
];

/// Functions that choose a device.
static CHOICES: &[Listener] = &[
    of_driver(&["cuDevicePrimaryCtxRetain"], RETAINED),
    of_runtime(&["cudaSetDevice"], CHOSEN, &[("DEVICE", "args.device")]),
];

/// Functions that return which device it is. Libraries call them all the time.
static ANSWERS: &[Listener] = &[
    of_driver(&["cuCtxGetDevice"], ANSWERED),
    Listener {
        when: Some("args.ctx == 0 && retval == CUDA_SUCCESS"),
        ..of_driver(&["cuCtxGetDevice_v2"], ANSWERED)
    },
    Listener {
        when: Some("args.ctx != 0 && retval == CUDA_SUCCESS"),
        ..of_driver(&["cuCtxGetDevice_v2"], ANSWERED_OF)
    },
    of_runtime(&["cudaGetDevice"], CHOSEN, &[("DEVICE", "*args.device")]),
];

const PROPERTIES: &[&str] = &["cudaGetDeviceProperties", "cudaGetDeviceProperties_v2"];

static NAMES: &[Listener] = &[
    of_driver(&["cuDeviceGetName"], NAMED),
    of_runtime(PROPERTIES, "@__device_name[pid, (int64)args.device] = str((uint64)args.prop, 64);", &[]),
];

static UUIDS: &[Listener] = &[
    Listener {
        given: &[("WHERE", "args.uuid"), ("DEVICE", "args.dev")],
        ..of_driver(&["cuDeviceGetUuid", "cuDeviceGetUuid_v2"], UUID_TOLD)
    },
    of_runtime(PROPERTIES, UUID_TOLD, &[("WHERE", "args.prop + 256"), ("DEVICE", "args.device")]),
];

static PLACES: &[Listener] = &[
    Listener {
        when: Some(
            "args.attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID || args.attrib == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID \
             || args.attrib == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID",
        ),
        ..of_driver(
            &["cuDeviceGetAttribute"],
            "if (retval == CUDA_SUCCESS) { @__device_place[pid, (int64)args.dev, (int64)args.attrib] = (int64)*args.pi + 1 }",
        )
    },
    of_driver(&["cuDeviceGetPCIBusId"], PLACED),
    of_runtime(
        PROPERTIES,
        "@__device_place[pid, (int64)args.device, 50] = (int64)args.prop->pciDomainID + 1;
         @__device_place[pid, (int64)args.device, 33] = (int64)args.prop->pciBusID + 1;
         @__device_place[pid, (int64)args.device, 34] = (int64)args.prop->pciDeviceID + 1;",
        &[],
    ),
];

/// Replaces all variables, and adds the clauses that they need.
pub(crate) fn expand(script: &mut Script) {
    let mut asked = LookupInserter { count: 0, names: Vec::new() };
    template::askers(script, &mut asked);
    if asked.count == 0 {
        return;
    }
    let variables = || VARIABLES.iter().filter(|variable| asked.names.contains(&variable.name));
    let mut heard: BTreeSet<DeviceFact> = variables().flat_map(|variable| variable.heard).copied().collect();
    if has_device_labels(script) {
        heard.extend([DeviceFact::Name, DeviceFact::Uuid]);
    }
    script.items.extend(kept(heard.iter().map(|heard| heard.first())));
    let listeners = CONTEXTS.iter().chain(heard.iter().flat_map(|heard| heard.listeners()));
    script.items.extend(listeners.flat_map(|listener| listener.clauses("device")));
}

/// The exporter writes out what a label `cuda.device` is known by.
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

fn kept<'a>(first: impl Iterator<Item = &'a str>) -> Vec<Item> {
    template::items("device", &KEPT.replace("FIRST", &first.collect::<String>()))
}

/// Puts the lookup where a device is asked for.
struct LookupInserter {
    count: u32,
    names: Vec<&'static str>,
}

impl Visit for LookupInserter {
    fn enters(&self, condition: &Expr) -> bool {
        match &condition.kind {
            ExprKind::Bool(on) => *on,
            ExprKind::Binary { op: BinaryOp::And, lhs, .. } => self.enters(lhs),
            _ => true,
        }
    }

    fn expr(&mut self, e: &mut Expr) {
        let name = match &e.kind {
            ExprKind::Ident(name) => name,
            ExprKind::Call { name, args } if args.is_empty() => &name.node,
            _ => return,
        };
        let Some(variable) = VARIABLES.iter().find(|variable| variable.name == name) else { return };
        self.count += 1;
        self.names.push(variable.name);
        let mut lookup = expression(&variable.lookup(), e.span);
        visit::expr(&mut lookup, &mut visit::Exprs(known_to_the_checker));
        let suffix = format!("device{}", self.count);
        visit::expr(&mut lookup, &mut Own { given: None, suffix });
        e.kind = lookup.kind;
    }
}

/// Names of functions that no script can write.
fn known_to_the_checker(e: &mut Expr) {
    if let ExprKind::Call { name, .. } = &mut e.kind
        && let Some((_, function, _)) = SHOWN.iter().find(|(word, ..)| *word == name.node)
    {
        name.node = (*function).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;
    use crate::parse;
    use crate::source::span::{Source, Span, Spanned};
    use crate::syntax::ast::SpecPart;

    /// The functions that a script listens to besides its own.
    fn listened(script: &str) -> Vec<String> {
        let mut script =
            parse(&Source::new("t.ct", script), &[], &mut Diagnostics::default()).expect("a script");
        expand(&mut script);
        let clauses = script.items.iter().filter_map(|item| match item {
            Item::Clause(clause) => Some(clause),
            _ => None,
        });
        let parts = clauses.flat_map(|clause| &clause.probes).flat_map(|probe| &probe.parts);
        let quoted = |part: &Spanned<SpecPart>| match &part.node {
            SpecPart::Quoted(function) => Some(function.clone()),
            _ => None,
        };
        parts.filter_map(quoted).collect()
    }

    #[test]
    fn what_libraries_ask_all_the_time_is_not_listened_to_for_the_chosen_device_and_its_labels() {
        let metric = |device: &str| {
            format!(
                "metric @n = {{ labels = \"process, cuda.device\" }} cuda:launch {{ @n[pid, {device}] = count() }}"
            )
        };
        let answers = ["cuCtxGetDevice", "cuCtxGetDevice_v2", "cudaGetDevice"];
        let has = |functions: &[String], name: &str| functions.iter().any(|function| function == name);
        let chosen = listened(&metric("false ? device : chosen_device"));
        assert!(has(&chosen, "cudaSetDevice") && has(&chosen, "cuDeviceGetUuid"), "{chosen:?}");
        assert!(answers.iter().all(|answer| !has(&chosen, answer)), "{chosen:?}");
        let asked = listened(&metric("true ? device : chosen_device"));
        assert!(answers.iter().all(|answer| has(&asked, answer)), "{asked:?}");
    }

    #[test]
    fn what_is_put_in_can_be_read() {
        let all = VARIABLES.iter().flat_map(|variable| variable.heard);
        let all: BTreeSet<DeviceFact> = all.copied().collect();
        assert_eq!(kept(all.iter().map(|heard| heard.first())).len(), 8);
        for variable in VARIABLES {
            expression(&variable.lookup(), Span::default());
        }
        let heard = VARIABLES.iter().flat_map(|variable| variable.heard).flat_map(|heard| heard.listeners());
        for listener in CONTEXTS.iter().chain(heard) {
            assert_eq!(listener.clauses("device").len(), 1, "{:?}", listener.functions);
        }
    }
}
