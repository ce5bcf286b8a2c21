//! Ioctls of NVIDIA's driver by name: expands a clause of `ioctl:nvidia:NV_ESC_RM_CONTROL` to clauses at the attach points of a
//! hook (`ioctl_hooks`), which is a place of the kernel that each ioctl passes.
//!
//! ```text
//! ioctl:nvidia:NV_ESC_RM_CONTROL { @[args.cmd] = count() }
//!
//! tracepoint:syscalls:sys_enter_ioctl / (args.cmd >> 8 & 255) == 70 / {
//!     if (the file of the descriptor is a device of the driver) {
//!         $call = (start = nsecs(monotonic), ioctl = ..., ...);
//!         if ($call.ioctl == 0x462a) { @__ioctl_7[tid] = $call }
//!     }
//! }
//! tracepoint:syscalls:sys_exit_ioctl / has_key(@__ioctl_7, tid) / {
//!     $call = @__ioctl_7[tid];
//!     delete(@__ioctl_7, tid);
//!     @[(enum nvidia_control)*(uint32 *)($call.arg + 8)] = count()
//! }
//! ```
//!
//! Which hook this machine has is not known yet: there are clauses for each of them, and `resolve::ioctl_probes` keeps those of the
//! first one that works. A clause has its own map, so that neither other clauses nor their order matter.
//!
//! The tables of ioctls and their arguments are in `cuda::ioctls`.

use std::fmt::Write;

use cuda::ioctls::{Device, Field, Ioctl, Kind};

use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::listed;
use crate::expand::const_eval;
use crate::expand::ioctl_hooks::{HOOKS, IoctlHook};
pub use crate::expand::operations::START;
use crate::expand::template::{
    ArgsUse, ArgsUses, SetSpan, body_of, complete_span, is_span, items, no_argument, parsed, used_arguments,
};
use crate::source::span::{Span, WithSpan};
use crate::syntax::ast::{
    Block, Clause, Expr, ExprKind, Item, Name, ProbeSpec, Script, SpecPart, Stmt, StmtKind,
};
use crate::syntax::glob::glob;
use crate::syntax::visit::change::{self as visit, Visit};

/// The provider of these attach points.
pub const PROVIDER: &str = "ioctl";

/// An argument of all ioctl probes, in addition to the fields of the ioctl's own argument.
#[derive(Debug)]
pub struct CommonArgument {
    /// `name`
    pub name: &'static str,
    /// Type in listings.
    pub ty: &'static str,
    /// Description in listings.
    pub doc: &'static str,
    value: &'static str,
}

/// Arguments of all ioctl probes. No field has one of these names, except `status`.
pub static COMMON: &[CommonArgument] = &[
    CommonArgument {
        name: "name",
        ty: "enum nvidia_ioctl",
        doc: "the ioctl",
        value: "(enum nvidia_ioctl)$call.ioctl",
    },
    CommonArgument { name: "arg", ty: "void *", doc: "address of its argument", value: "(void *)$call.arg" },
    CommonArgument {
        name: "arg_size",
        ty: "uint64",
        doc: "bytes of its argument; 0 for nvidia-uvm, whose commands do not contain it",
        value: "$call.arg_size",
    },
    CommonArgument {
        name: "minor",
        ty: "uint64",
        doc: "minor number of the device file: N of /dev/nvidiaN, 255 of /dev/nvidiactl",
        value: "$call.minor",
    },
];

/// Status of the driver: a field of most ioctls.
const STATUS: &str = "status";

/// An attach point at ioctls.
#[derive(Debug)]
pub struct IoctlProbe {
    /// Device.
    pub device: &'static Device,
    /// The ioctls, by number.
    pub ioctls: Vec<&'static Ioctl>,
    /// True if ioctls without a name are included: `*`.
    pub all: bool,
    /// True for the entry.
    pub start: bool,
    /// The value of `probe`.
    pub name: String,
}

/// The ioctls of an attach point; `None` for other attach points, and invalid ones.
pub fn of_spec(spec: &ProbeSpec) -> Option<IoctlProbe> {
    if !spec.provider.node.eq_ignore_ascii_case(PROVIDER) {
        return None;
    }
    let parts: Vec<&str> = spec.parts.iter().filter_map(|part| as_text(&part.node)).collect();
    let (device, pattern, start) = match parts[..] {
        [device, pattern] => (device, pattern, false),
        [device, pattern, START] => (device, pattern, true),
        _ => return None,
    };
    let device = Device::of(device)?;
    let ioctls = matching(device, pattern);
    let name = match ioctls[..] {
        [] => return None,
        [ioctl] => ioctl.name,
        _ => pattern,
    };
    let name = format!("{PROVIDER}:{}:{name}{}", device.name, if start { ":start" } else { "" });
    Some(IoctlProbe { device, ioctls, all: pattern == "*", start, name })
}

/// The ioctls of a device with a name, or that match a pattern; the prefix may be missing.
pub fn matching(device: &'static Device, pattern: &str) -> Vec<&'static Ioctl> {
    let fits = |ioctl: &&Ioctl| {
        let short = ioctl.name.strip_prefix(device.prefix);
        glob(pattern, ioctl.name) || short.is_some_and(|short| glob(pattern, short))
    };
    device.ioctls.iter().filter(fits).collect()
}

/// Stands for attach points of a clause that are no ioctls, among its other devices.
pub const ANY_OTHER: &str = "*";

/// A hook in a clause made by the expansion.
pub struct HookUse<'s> {
    /// The hook.
    pub hook: &'static IoctlHook,
    /// The other devices of the clause in the script.
    pub others: &'s str,
    /// The attach point of the hook.
    pub attach_point: &'s str,
}

/// The hook of a clause made by the expansion.
pub fn hook_of(spec: &ProbeSpec) -> Option<HookUse<'_>> {
    let Some(SpecPart::Quoted(hidden)) = spec.parts.last().map(|part| &part.node) else { return None };
    let (name, rest) = hidden.strip_prefix('@')?.split_once(' ')?;
    let (others, attach_point) = rest.split_once(' ')?;
    let hook = HOOKS.iter().find(|hook| hook.name == name)?;
    Some(HookUse { hook, others, attach_point })
}

fn as_text(part: &SpecPart) -> Option<&str> {
    match part {
        SpecPart::Text(text) => Some(text),
        SpecPart::Quoted(text) if !text.starts_with('@') => Some(text),
        _ => None,
    }
}

/// Replaces all ioctl probes of a script by clauses at the attach points of hooks.
pub(crate) fn expand(script: &mut Script, diags: &mut Diagnostics) {
    let mut expansion = Expansion { others: Vec::new(), supported: Vec::new(), added: Vec::new(), diags };
    let items = std::mem::take(&mut script.items);
    script.items = items.into_iter().flat_map(|item| expansion.item(item)).collect();
    script.items.extend(expansion.added);
}

struct Expansion<'d> {
    /// Devices of the current attach point's clause at other attach points.
    others: Vec<&'static str>,
    /// Devices whose supporting clauses have been added.
    supported: Vec<&'static str>,
    /// Clauses at the end of the script.
    added: Vec<Item>,
    diags: &'d mut Diagnostics,
}

impl Expansion<'_> {
    fn item(&mut self, item: Item) -> Vec<Item> {
        let Item::Clause(mut clause) = item else { return vec![item] };
        let mut probes = Vec::new();
        clause.probes.retain(|spec| of_spec(spec).map(|probe| probes.push((spec.clone(), probe))).is_none());
        let mut items = Vec::new();
        let devices: Vec<&str> = probes.iter().map(|(_, probe)| probe.device.name).collect();
        for (spec, probe) in once_each(probes) {
            self.others = match clause.probes.is_empty() {
                true => devices.iter().filter(|other| **other != probe.device.name).copied().collect(),
                false => vec![ANY_OTHER],
            };
            self.support(&spec, probe.device);
            items.extend(self.of_probe(&clause, &spec, probe));
        }
        if !clause.probes.is_empty() {
            items.push(Item::Clause(clause));
        }
        items
    }

    /// Adds the clauses that the hooks need for a device, once.
    fn support(&mut self, spec: &ProbeSpec, device: &Device) {
        if self.supported.contains(&device.name) {
            return;
        }
        self.supported.push(device.name);
        for hook in HOOKS {
            let mut made = template((hook.support)(device), Span::default());
            made.iter_mut().for_each(|clause| hide(clause, hook, spec, &self.others));
            self.added.extend(made.into_iter().map(Item::Clause));
        }
    }

    /// The clauses for one attach point, of all hooks.
    fn of_probe(&mut self, clause: &Clause, spec: &ProbeSpec, mut probe: IoctlProbe) -> Vec<Item> {
        self.leave_out(clause, &mut probe);
        let mut own = clause.clone();
        let mut replace =
            Replace { probe: &probe, count: 0, uses: ArgsUses::default(), spans: false, diags: self.diags };
        visit::clause(&mut own, &mut replace);
        let spans = replace.spans;
        let never = const_eval::as_never(own.predicate.as_ref());
        let body = body_of(own);
        let mut items = Vec::new();
        for hook in HOOKS {
            for mut made in template(&script_text(hook, &probe, spec.span, spans), spec.span) {
                if fill(&mut made.body, &body) {
                    made.predicate = never.clone().or(made.predicate);
                    made.probes[0] = hidden(&made.probes[0], hook, spec, &self.others);
                    made.name.clone_from(&clause.name);
                    (made.span, made.body.span) = (clause.span, clause.body.span);
                } else {
                    hide(&mut made, hook, spec, &self.others);
                }
                items.push(Item::Clause(made));
            }
        }
        items
    }

    /// Leaves out the ioctls of a pattern that lack an argument of the clause.
    fn leave_out(&mut self, clause: &Clause, probe: &mut IoctlProbe) {
        let lacks = |ioctl: &Ioctl, name: &str| !is_common(name) && ioctl.field(name).is_none();
        for (name, span) in used_arguments(clause) {
            let without: Vec<&str> =
                probe.ioctls.iter().filter(|ioctl| lacks(ioctl, &name)).map(|ioctl| ioctl.name).collect();
            if without.is_empty() || without.len() == probe.ioctls.len() {
                continue;
            }
            let names = listed(without.iter().copied(), MOST_NAMES);
            let message = format!("ioctls without an argument `{name}` are left out: {names}");
            self.diags.warning("W0042", span, message);
            probe.ioctls.retain(|ioctl| !lacks(ioctl, &name));
            probe.all = false;
        }
    }
}

/// Leaves each ioctl to one of the attach points: to one for all ioctls, or to the first that has it.
fn once_each(mut probes: Vec<(ProbeSpec, IoctlProbe)>) -> Vec<(ProbeSpec, IoctlProbe)> {
    for at in 1..probes.len() {
        let (before, rest) = probes.split_at_mut(at);
        let (_, probe) = &mut rest[0];
        let is_same =
            |other: &&mut IoctlProbe| (other.device.name, other.start) == (probe.device.name, probe.start);
        for other in before.iter_mut().map(|(_, other)| other).filter(is_same) {
            match probe.all {
                true => other.ioctls.clear(),
                false => {
                    probe.ioctls.retain(|ioctl| !other.ioctls.iter().any(|known| known.name == ioctl.name))
                }
            }
        }
    }
    probes.retain(|(_, probe)| !probe.ioctls.is_empty());
    probes
}

/// Largest number of ioctls that a message names.
const MOST_NAMES: usize = 4;

/// Largest number of ioctls whose numbers are compared before the file of the descriptor is.
const MOST_NUMBERS: usize = 6;

fn is_common(name: &str) -> bool {
    name == STATUS || COMMON.iter().any(|arg| arg.name == name)
}

/// The record of a call whose span begins now.
const STARTED_CALL: &str = "(start = __begin_event(\"ioctl\"), ioctl = $call.ioctl, arg = $call.arg, \
                            arg_size = $call.arg_size, minor = $call.minor)";

/// The clauses of a hook for an attach point, whose body has `spans`. The statement `__body()` stands for the body.
fn script_text(hook: &IoctlHook, probe: &IoctlProbe, span: Span, spans: bool) -> String {
    let IoctlProbe { device, start, .. } = *probe;
    let (before, after) = hook.around;
    let before = before.replace("DRIVER", device.name);
    let call = call_text(hook, device);
    let is_one = if probe.all { "true".into() } else { is_one_of("$call.ioctl", device, &probe.ioctls) };
    let map = format!("@__ioctl_{}", span.start);
    let (enter, exit) = ((hook.enter)(device), (hook.exit)(device));
    let is_loaded = format!("__device_major(\"{}\") != 0", device.name);
    let condition =
        format!("{is_loaded} && {} && {}", command_condition(hook, probe), (hook.condition)(device));
    // The spans of calls within the ioctl are in its span.
    let (stored, end) = match spans {
        true => (STARTED_CALL, "$ended = __end_event(0);"),
        false => ("$call", ""),
    };
    let then = if start { "__body();".into() } else { format!("{map}[tid] = {stored};") };
    let mut text =
        format!("{enter} / {condition} / {{ {before} {call} if ({is_one}) {{ {then} }} {after} }}");
    if !start {
        let retval = hook.retval;
        let _ = write!(
            text,
            " {exit} / {is_loaded} && has_key({map}, tid) / {{ $call = {map}[tid]; delete({map}, tid); {end} \
             $duration = nsecs(monotonic) - $call.start; \
             $retval = (int64){retval}; __body(); }}"
        );
    }
    text
}

/// Sets `$call`, the record of a call, at its entry.
fn call_text(hook: &IoctlHook, device: &Device) -> String {
    let IoctlHook { cmd, arg, .. } = hook;
    let decode = match (device.magic, device.carrier) {
        (0, _) => format!("$ioctl = (uint64)({cmd}); $arg = {arg}; $size = (uint64)0;"),
        (magic, carrier) => {
            let mut text = format!(
                "$ioctl = (uint64)({cmd} & 255); $arg = {arg}; $size = (uint64)({cmd} >> 16 & 16383);"
            );
            if let Some(carrier) = carrier {
                let _ = write!(
                    text,
                    "if ($ioctl == {carrier}) {{ \
                         $ioctl = (uint64)*(uint32 *)$arg; \
                         $size = (uint64)*(uint32 *)($arg + 4); \
                         $arg = *(uint64 *)($arg + 8); \
                     }}"
                );
            }
            text + &format!("$ioctl = $ioctl | (uint64){};", magic << 8)
        }
    };
    decode
        + "$call = (start = nsecs(monotonic), ioctl = $ioctl, arg = $arg, arg_size = $size, minor = (uint64)($device & 0xfffff));"
}

/// A condition on the command, which is cheap and rules out most ioctls of other devices.
fn command_condition(hook: &IoctlHook, probe: &IoctlProbe) -> String {
    let IoctlProbe { device, ioctls, all, .. } = probe;
    let cmd = hook.cmd;
    let few = !all && ioctls.len() <= MOST_NUMBERS;
    let numbers = ioctls.iter().map(|ioctl| ioctl.number);
    if device.magic == 0 {
        return match few {
            true => any_of(cmd, numbers),
            // Other commands than these small ones have a type, as most commands of other devices have.
            false => format!("({cmd} < 4096 || {cmd} >> 4 == 0x3000000)"),
        };
    }
    let is_driver = format!("({cmd} >> 8 & 255) == {}", device.magic);
    match few {
        true => {
            format!("{is_driver} && {}", any_of(&format!("({cmd} & 255)"), numbers.chain(device.carrier)))
        }
        false => is_driver,
    }
}

/// Whether an expression is the id of one of these ioctls.
fn is_one_of(value: &str, device: &Device, ioctls: &[&Ioctl]) -> String {
    any_of(value, ioctls.iter().map(|ioctl| device.id(ioctl.number)))
}

fn any_of(value: &str, numbers: impl Iterator<Item = u32>) -> String {
    let tests: Vec<String> = numbers.map(|number| format!("{value} == {number:#x}")).collect();
    format!("({})", tests.join(" || "))
}

/// Parses the clauses of a hook. They and their parts have one position.
fn template(text: &str, span: Span) -> Vec<Clause> {
    let items = items(text, span, &mut Hide { count: 0 });
    let clauses = items.into_iter().filter_map(|item| match item {
        Item::Clause(clause) => Some(clause),
        _ => None,
    });
    clauses.collect()
}

/// Gives variables and functions names that no script has.
struct Hide {
    /// In the names of variables other than those of the hook: 0 in the clauses of a hook.
    count: u32,
}

impl Hide {
    fn rename(&self, name: &mut String) {
        let number = if OF_HOOK.contains(&name.as_str()) { 0 } else { self.count };
        *name = format!("{name}@ioctl{number}");
    }
}

/// Variables that the clauses of hooks set, for values of arguments.
const OF_HOOK: &[&str] = &["call", "duration", "retval"];

impl Visit for Hide {
    fn expr(&mut self, e: &mut Expr) {
        match &mut e.kind {
            ExprKind::Var(name) => self.rename(name),
            ExprKind::Call { name, .. } => {
                if let Some(hidden) = name.node.strip_prefix("__") {
                    name.node = format!("@{hidden}");
                }
            }
            _ => {}
        }
    }

    fn var(&mut self, name: &mut Name) {
        self.rename(&mut name.node);
    }
}

/// Replaces `__body()` by a statement; false if there is none.
fn fill(block: &mut Block, body: &Stmt) -> bool {
    let mut found = false;
    for stmt in &mut block.stmts {
        match &mut stmt.kind {
            StmtKind::Expr(Expr { kind: ExprKind::Call { name, .. }, .. }) if name.node == "@body" => {
                *stmt = body.clone();
                found = true;
            }
            StmtKind::If { then, .. } => found |= fill(then, body),
            _ => {}
        }
    }
    found
}

/// The attach point of a hook's clause: that of the script, and as its last part that of the hook.
fn hidden(made: &ProbeSpec, hook: &IoctlHook, spec: &ProbeSpec, others: &[&str]) -> ProbeSpec {
    let parts: Vec<&str> = made.parts.iter().filter_map(|part| as_text(&part.node)).collect();
    let attach_point =
        format!("@{} {} {}:{}", hook.name, others.join(","), made.provider.node, parts.join(":"));
    let mut spec = spec.clone();
    spec.parts.push(WithSpan { node: SpecPart::Quoted(attach_point), span: spec.span });
    spec
}

/// Removes the position of a clause that the script does not contain.
fn hide(clause: &mut Clause, hook: &IoctlHook, spec: &ProbeSpec, others: &[&str]) {
    let mut hidden = hidden(&clause.probes[0], hook, spec, others);
    hidden.span = Span::default();
    hidden.provider.span = Span::default();
    hidden.parts.iter_mut().for_each(|part| part.span = Span::default());
    clause.probes = vec![hidden];
    visit::clause(clause, &mut SetSpan(Span::default()));
    (clause.span, clause.body.span) = (Span::default(), Span::default());
}

/// Replaces the arguments of ioctls, `duration` and `retval` by expressions of the hook's variables.
struct Replace<'p, 'd> {
    probe: &'p IoctlProbe,
    /// Number of replaced values.
    count: u32,
    uses: ArgsUses,
    /// True if the clause has spans of the ioctl.
    spans: bool,
    diags: &'d mut Diagnostics,
}

impl Visit for Replace<'_, '_> {
    fn before_expr(&mut self, e: &Expr) {
        self.uses.before(e);
    }

    fn expr(&mut self, e: &mut Expr) {
        let text = match (self.uses.of(e), &e.kind) {
            (Some(ArgsUse::Named(name)), _) => self.argument(name),
            (Some(ArgsUse::All), _) => self.all_arguments(),
            (None, ExprKind::Ident(name)) if name == "retval" || name == "duration" => {
                if self.probe.start {
                    return self.too_early(name, e.span);
                }
                format!("${name}")
            }
            _ if is_span(e) && !self.probe.start => return self.span(e),
            _ => return,
        };
        e.kind = self.parsed(&text, e.span).kind;
    }
}

impl Replace<'_, '_> {
    fn parsed(&mut self, text: &str, span: Span) -> Expr {
        self.count += 1;
        let mut value = parsed(text);
        visit::expr(&mut value, &mut Hide { count: self.count });
        visit::expr(&mut value, &mut SetSpan(span));
        value
    }

    /// Reports a value that does not exist at the entry.
    fn too_early(&mut self, name: &str, span: Span) {
        let message = format!("`{name}` has no value at the entry of the call");
        let way_out = "omit `:start`: the body then runs at the return of the call";
        self.diags.error("E0040", span, message).help(way_out);
    }

    /// `span(key = value)`: the span of the ioctl, from its start, with its name.
    fn span(&mut self, e: &mut Expr) {
        let span = e.span;
        let start = self.parsed("__begun($call.start)", span);
        let name = self.parsed(COMMON[0].value, span);
        self.spans |= complete_span(e, name, start);
    }

    /// The value of `args.NAME`.
    fn argument(&mut self, name: &Name) -> String {
        let IoctlProbe { ioctls, start, .. } = self.probe;
        if name.node == STATUS && *start {
            self.too_early(&format!("args.{STATUS}"), name.span);
            return "0".into();
        }
        if let Some(common) = COMMON.iter().find(|arg| arg.name == name.node) {
            return common.value.into();
        }
        if is_common(&name.node) || ioctls.iter().any(|ioctl| ioctl.field(&name.node).is_some()) {
            return self.field(&name.node);
        }
        let known = self.known_names();
        no_argument(self.diags, &self.probe.name, name, &known);
        "0".into()
    }

    fn known_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = COMMON.iter().map(|arg| arg.name).chain([STATUS]).collect();
        for field in self.probe.ioctls.iter().flat_map(|ioctl| ioctl.all_fields()) {
            if !names.contains(&field.name) {
                names.push(field.name);
            }
        }
        names
    }

    /// The value of `args`: a record of the arguments that all ioctls of the probe have.
    fn all_arguments(&self) -> String {
        let mut parts: Vec<String> =
            COMMON.iter().map(|arg| format!("{} = {}", arg.name, arg.value)).collect();
        let own = match self.probe.ioctls[..] {
            [ioctl] => ioctl.all_fields().map(|field| field.name).collect(),
            _ => vec![STATUS],
        };
        let own = own.into_iter().filter(|name| !self.probe.start || *name != STATUS);
        parts.extend(own.map(|name| format!("{name} = {}", self.field(name))));
        format!("({})", parts.join(", "))
    }

    /// The value of a field: read at its offset in the ioctl's argument.
    fn field(&self, name: &str) -> String {
        let IoctlProbe { device, ioctls, all, .. } = self.probe;
        // Offset and kind of the field, and the condition for this case.
        let mut cases: Vec<(u32, Kind, Vec<String>)> = Vec::new();
        let is_only = !all && ioctls.len() == 1;
        for ioctl in ioctls {
            let is_one = format!("$call.ioctl == {:#x}", device.id(ioctl.number));
            for (condition, field) in forms(device, ioctl, name) {
                let Some(field) = field else { continue };
                let condition = match condition {
                    Some(form) if is_only => form,
                    Some(form) => format!("({is_one} && {form})"),
                    None => is_one.clone(),
                };
                match cases
                    .iter_mut()
                    .find(|(offset, kind, _)| (*offset, *kind) == (field.offset, field.kind))
                {
                    Some((.., conditions)) => conditions.push(condition),
                    None => cases.push((field.offset, field.kind, vec![condition])),
                }
            }
        }
        let has = |ioctl: &&Ioctl| {
            !ioctl.forms.is_empty()
                && ioctl.forms.iter().all(|form| form.fields.iter().any(|field| field.name == name))
        };
        let is_everywhere = !all && ioctls.iter().all(has);
        let last = match is_everywhere.then(|| cases.pop()).flatten() {
            Some((offset, kind, _)) => read(kind, offset),
            None => nothing(cases.first().map_or(Kind::Status, |(_, kind, _)| *kind)),
        };
        let mut text = String::new();
        for (offset, kind, conditions) in &cases {
            let _ = write!(text, "({}) ? {} : ", conditions.join(" || "), read(*kind, *offset));
        }
        format!("({text}{last})")
    }
}

/// For each form of an ioctl's argument the field of this name and the condition for the form, unless there is one form.
fn forms<'i>(
    device: &'static Device,
    ioctl: &'i Ioctl,
    name: &'i str,
) -> impl Iterator<Item = (Option<String>, Option<&'static Field>)> + 'i {
    let is_only = ioctl.forms.len() == 1;
    // The forms are sorted, the newest first; each condition excludes those of the forms before it.
    let mut newer = String::new();
    ioctl.forms.iter().map(move |form| {
        let own = match device.magic {
            0 => format!("__driver_release(\"{}\") >= {}", device.name, form.since),
            _ => format!("$call.arg_size >= {}", form.size),
        };
        let condition = format!("{newer}{own}");
        newer = format!("{newer}!({own}) && ");
        (Some(condition).filter(|_| !is_only), form.fields.iter().find(|field| field.name == name))
    })
}

/// Reads a value of the argument.
fn read(kind: Kind, offset: u32) -> String {
    let at = format!("($call.arg + {offset})");
    match kind {
        Kind::Unsigned(bytes) => format!("(uint64)*(uint{} *){at}", bytes * 8),
        Kind::Signed(bytes) => format!("(int64)*(int{} *){at}", bytes * 8),
        Kind::Bool => format!("*(uint8 *){at} != 0"),
        Kind::Pointer => format!("(void *)*(uint64 *){at}"),
        Kind::Status | Kind::Class | Kind::Control => {
            format!("({})*(uint32 *){at}", type_name(kind))
        }
        Kind::Uuid => format!("buf((uint8 *){at}, 16)"),
        Kind::Text(bytes) => format!("str((char *){at}, {bytes})"),
    }
}

/// The value of a field for an ioctl that has none, or whose number is not in the tables.
fn nothing(kind: Kind) -> String {
    match kind {
        Kind::Bool => "false".into(),
        Kind::Text(_) => "\"\"".into(),
        Kind::Uuid => "buf(\"\", 16)".into(),
        _ => format!("({})0", type_name(kind)),
    }
}

/// Type of a field in scripts.
pub fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unsigned(_) => "uint64",
        Kind::Signed(_) => "int64",
        Kind::Bool => "bool",
        Kind::Pointer => "void *",
        Kind::Status => "enum nvidia_status",
        Kind::Class => "enum nvidia_class",
        Kind::Control => "enum nvidia_control",
        Kind::Uuid => "buf",
        Kind::Text(_) => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::ioctl_hooks::DESCRIPTOR;
    use cuda::ioctls::DEVICES;

    /// The clauses of a script for the best hook, and the messages.
    fn expanded(script: &str) -> (String, Vec<String>) {
        let mut diags = Diagnostics::default();
        let mut script = crate::parse(&crate::Source::new("t.ct", script), &[], &mut diags).unwrap();
        expand(&mut script, &mut diags);
        script.items.retain(|item| match item {
            Item::Clause(clause) => clause
                .probes
                .iter()
                .all(|spec| hook_of(spec).is_none_or(|used| used.hook.name == DESCRIPTOR.name)),
            _ => true,
        });
        let messages = diags.list.iter().map(|found| format!("{} {}", found.code, found.message)).collect();
        (crate::syntax::print::print(&script), messages)
    }

    #[test]
    fn all_arguments_of_all_ioctls_can_be_read() {
        for device in DEVICES {
            for ioctl in device.ioctls {
                let (text, messages) =
                    expanded(&format!("ioctl:{}:{} {{ print(args) }}", device.name, ioctl.name));
                assert_eq!(messages, [""; 0], "{text}");
                let own = ioctl.all_fields().map(|field| field.name).filter(|name| *name != STATUS);
                own.for_each(|name| assert!(!is_common(name), "{} {name}", ioctl.name));
            }
        }
    }

    #[test]
    fn the_command_is_compared_before_the_file_is_looked_up() {
        let (text, _) = expanded("ioctl:nvidia-uvm:MIGRATE { @ = count() }");
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("(uint32)args.cmd == 51") < at("curtask->files"), "{text}");
        assert!(at("curtask->files") < at("@__ioctl_0[tid] ="), "{text}");
        // Any ioctl: nothing is known of its number.
        let (text, _) = expanded("ioctl:nvidia-uvm:* { @ = count() }");
        assert!(text.contains("(uint32)args.cmd < 4096") && !text.contains("== 51"), "{text}");
    }

    #[test]
    fn a_field_is_where_the_release_has_it() {
        let (text, _) = expanded("ioctl:nvidia-uvm:FREE { @ = sum(args.status) }");
        assert!(text.contains("@driver_release(\"nvidia-uvm\") >= 610 ? "), "{text}");
        assert!(text.contains(".arg + 8)") && text.contains(".arg + 16)"), "{text}");
    }

    #[test]
    fn an_ioctl_of_several_patterns_is_observed_once() {
        let (text, _) = expanded(
            "ioctl:nvidia:RM_*, ioctl:nvidia:RM_ALLOC, ioctl:nvidia:CARD_INFO, BEGIN { @ = count() }",
        );
        assert_eq!(text.matches("sys_exit_ioctl").count(), 2, "{text}");
        assert!(text.contains("BEGIN"), "{text}");
        let (text, _) =
            expanded("ioctl:nvidia:RM_ALLOC, ioctl:nvidia:*, ioctl:nvidia:RM_ALLOC:start { @ = count() }");
        assert_eq!(
            (text.matches("sys_exit_ioctl").count(), text.matches("sys_enter_ioctl").count()),
            (1, 2),
            "{text}"
        );
    }

    #[test]
    fn a_span_begins_with_the_ioctl_and_has_its_name() {
        let (text, _) = expanded("ioctl:nvidia:* { span(returned = retval) }");
        assert!(text.contains("span((enum nvidia_ioctl)") && text.contains("start = "), "{text}");
    }
}
