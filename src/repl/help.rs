//! Help on names of the language, of CUDA and of this program, from their tables. Help on the prompt's commands is in `commands`.

use crate::arguments::definition;
use crate::bundled::SCRIPTS;
use crate::commands::{explain, list, script_help};
use crate::console::Messages;
use crate::export::kinds;
use crate::{bundled, script, terminal};
use anyhow::{Result, anyhow};
use cuda::gpu::RecordKind;
use cuda::ioctls::Device;
use cuda::operations::{APIS, Api};
use cuda::{Library, Signature};
use lang::builtins::table;
use lang::builtins::table::Kind;
use lang::diagnostics::suggest::similar;
use lang::resolve::providers::{self, PROVIDERS, Provider, ProviderMatch};
use std::fmt::Write;

/// The help on a topic. `others` are further names for suggestions.
pub fn on(topic: &str, others: impl Iterator<Item = &'static str>, messages: &Messages) -> Result<String> {
    if let Some(embedded) = bundled::find(topic) {
        return script_help::of_embedded(embedded, messages);
    }
    let text = list_of(topic)
        .or_else(|| word(topic))
        .or_else(|| operation(topic))
        .or_else(|| call(topic))
        .or_else(|| constant(topic))
        .or_else(|| explain::on(topic))
        .or_else(|| concept(topic))
        .or_else(|| export(topic))
        .or_else(|| option(topic));
    text.ok_or_else(|| unknown(topic, others))
}

fn unknown(topic: &str, others: impl Iterator<Item = &'static str>) -> anyhow::Error {
    if let Some(instead) = script::habit(topic) {
        return anyhow!("no help on `{topic}`: {instead}");
    }
    let operations = operations();
    let mut names: Vec<&str> = operations.iter().map(String::as_str).collect();
    names.extend(others.map(|name| -> &str { name }));
    names.extend(table::all().map(|builtin| builtin.name));
    names.extend(SCRIPTS.iter().map(|script| script.name));
    names.extend(Library::all().flat_map(|library| cuda::signatures(library, 0)).map(|call| call.name));
    names.extend(LISTS);
    match did_you_mean(topic, names, "") {
        near if near.is_empty() => anyhow!(
            "no help on `{topic}`; there is help on functions of CUDA (`cuMemAlloc`), operations (`cuda:alloc`), built-ins \
             (`help functions`), probes (`help probes`), scripts, constants and codes of messages (`E0105`)"
        ),
        near => anyhow!("no help on `{topic}`{near}"),
    }
}

/// `: did you mean ...?`, or nothing.
pub fn did_you_mean<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>, sigil: &str) -> String {
    similar(name, candidates).first().map_or(String::new(), |near| format!(": did you mean `{sigil}{near}`?"))
}

/// Words that are no names of the language or the command line, and where to look instead.
const CONCEPTS: &[(&[&str], &str)] = &[
    (
        &["python"],
        "Stacks have functions and lines of Python, also of a process that already runs:\n    \
         cuda:alloc { @bytes[ustack(python, 8)] = sum(args.bytes) }\n`pyline` and `pyfunc` are one line and function, and \
         `cudatrace lines` shows what the GPU does for each line.\n",
    ),
    (
        &["stack", "stacks", "backtrace"],
        "`ustack` is the stack in the program, `kstack` the one in the kernel, as values and keys:\n    \
         cuda:alloc { @bytes[ustack(8)] = sum(args.bytes) }\n`help ustack` shows their modes.\n",
    ),
    (
        &["step", "steps", "iteration"],
        "A training step is known by NVTX ranges (`cudatrace nvtx`), or by a call that the program makes once in each:\n    \
         cuda:launch { @launches[pid]++ } cuda:sync { @per_step = hist(@launches[pid]); @launches[pid] = 0 }\n",
    ),
    (
        &["getopt", "options", "parameters"],
        "`getopt(\"name\", default, \"text\")` is an option of a script, `--name=value` on the command line:\n    \
         cuda:alloc / args.bytes >= getopt(\"min-bytes\", 0, \"smallest block\") / { @ = count() }\n\
         `cudatrace SCRIPT --help` lists those of a script, `cudatrace --help` those of cudatrace. `$1`, `$2` are parameters.\n",
    ),
    (
        &["alerts", "alert", "rules"],
        concat!(
            "Rules for Prometheus on the metrics of `cudatrace metrics --export openmetrics=9464`:\n\n",
            include_str!("../../examples/observability/alerts.yml")
        ),
    ),
    (
        &["dashboard", "grafana", "kubernetes", "container", "containers", "docker"],
        "`examples/observability` of the source has a Grafana dashboard, an image and a DaemonSet for\n    \
         cudatrace metrics --wait --export openmetrics=9464\n\
         Processes in containers are traced from outside by `-p PID`; inside, `cudatrace -- COMMAND` needs no rights.\n",
    ),
    (
        &["root", "sudo", "rights", "permission", "permissions", "capabilities"],
        "Without root, probes run in the traced program, which must be yours:\n    \
         cudatrace -- python3 train.py\nWith `sudo` they run in the kernel, in all processes; the command still runs as you. `cudatrace doctor` \
         says what this machine permits.\n",
    ),
    (
        &["slow", "performance", "bottleneck"],
        "Where the time goes, and which script to run next:\n    \
         cudatrace -- python3 train.py            or cudatrace -p PID, then Ctrl-C\n\
         `launchgap` shows when the GPU starves, `sync` where the host waits, `gpu` the time of each kernel, `lines` the lines of Python.\n",
    ),
    (
        &["json"],
        "`-f json` prints one object for each line and table:\n    \
         cudatrace -f json kernels -- python3 train.py\n`--export jsonl=FILE` writes all events.\n",
    ),
];

/// The text on a concept.
fn concept(topic: &str) -> Option<String> {
    let row = CONCEPTS.iter().find(|(words, _)| words.contains(&topic));
    row.map(|(_, text)| (*text).to_owned())
}

/// A kind of `--export`: `perfetto`, `prometheus`.
fn export(topic: &str) -> Option<String> {
    let kind = kinds::named(topic)?;
    Some(format!("--export {}={}\n    {}\n", kind.name, kind.dest, kind.doc))
}

/// An option of the command line, with or without its dashes: `in-process`.
fn option(topic: &str) -> Option<String> {
    let name = topic.trim_start_matches('-');
    let command = definition::command(None);
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name) && !arg.is_hide_set())?;
    let help = arg.get_long_help().or_else(|| arg.get_help())?.to_string();
    let lines: String = help.lines().map(|line| format!("    {line}\n")).collect();
    let kinds = if name == "export" { kinds::list() + "\n" } else { String::new() };
    Some(format!("--{name}\n{lines}{kinds}"))
}

/// Names of all operations: `cuda:alloc`.
fn operations() -> Vec<String> {
    let named = |api: &'static Api| api.operations.iter().map(|o| format!("{}:{}", api.provider, o.name));
    APIS.iter().flat_map(named).collect()
}

/// Topics that are lists.
const LISTS: [&str; 2] = ["functions", "probes"];

/// `help functions`, `help probes`: one line per entry.
fn list_of(topic: &str) -> Option<String> {
    match topic {
        "functions" | "builtins" => Some(functions()),
        "probes" => Some(probes()),
        _ => None,
    }
}

fn functions() -> String {
    const KINDS: [(Kind, &str); 4] = [
        (Kind::Variable, "Values"),
        (Kind::Function, "Functions"),
        (Kind::Action, "Statements"),
        (Kind::Aggregation, "Aggregations, as in `@x = count()`"),
    ];
    let mut text = String::new();
    for (kind, title) in KINDS {
        let _ = writeln!(text, "{title}:");
        let rows = table::all().filter(|row| row.kind == kind);
        rows.for_each(|row| entry(&mut text, row.signature, row.doc));
        text.push('\n');
    }
    text + "`help NAME` shows an example of one.\n"
}

fn probes() -> String {
    let mut text = String::from("Probes:\n");
    PROVIDERS.iter().for_each(|provider| entry(&mut text, provider.form, provider.doc));
    text += "\nOperations of CUDA:\n";
    for api in APIS {
        let of_api = api.operations.iter();
        of_api.for_each(|o| entry(&mut text, &format!("{}:{}", api.provider, o.name), o.doc));
    }
    text + "\n`help NAME` shows what one has; `cudatrace -l PATTERN` lists functions and tracepoints.\n"
}

fn entry(text: &mut String, name: &str, doc: &str) {
    *text += &terminal::entry(name, 30, doc);
}

fn word(topic: &str) -> Option<String> {
    if let Some(row) = table::find(topic) {
        return Some(format!("{}\n    {}\n    {}\n", row.signature, row.doc, row.example));
    }
    match providers::find(topic) {
        ProviderMatch::Known(Provider { form, doc, .. }) => Some(format!("{form}\n    {doc}\n")),
        _ => None,
    }
}

/// `cuda:alloc`, `gpu:kernel`, `ioctl:nvidia:NV_ESC_RM_ALLOC`
fn operation(topic: &str) -> Option<String> {
    let (provider, name) = topic.split_once(':')?;
    if let Some(kind) = list::gpu::kind(topic) {
        let lines = list::gpu::description(RecordKind::of(kind)?);
        let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
        return Some(format!("{topic}\n{lines}"));
    }
    if let Some((device, name)) = list::ioctls::split(topic) {
        let device = Device::of(device)?;
        let ioctl = device.ioctls.iter().find(|ioctl| ioctl.name == name)?;
        let lines: String =
            list::ioctls::arguments(ioctl).iter().map(|line| format!("    {line}\n")).collect();
        return Some(format!("{topic}\n{lines}"));
    }
    let operation = Api::of(provider)?.operation(name)?;
    let lines: String =
        list::operations::description(operation).iter().map(|line| format!("    {line}\n")).collect();
    Some(format!("{topic}\n{lines}"))
}

/// Help on a function: `cuMemAlloc` shows every numbered variant.
fn call(topic: &str) -> Option<String> {
    let all = || Library::all().flat_map(|library| cuda::signatures(library, 0));
    let mut text = String::new();
    for signature in all().filter(|signature| signature.name == topic || is_member(signature, topic)) {
        let _ = writeln!(text, "{}:{signature}", signature.library.alias());
        for param in signature.params {
            let _ = writeln!(text, "    args.{:<20} {}", param.name, cuda::ty(param.ty).c_name);
        }
        let _ = writeln!(text, "    {:<25} {}", "retval", cuda::ty(signature.ret).c_name);
    }
    (!text.is_empty()).then_some(text)
}

fn is_member(signature: &Signature, topic: &str) -> bool {
    cuda::base_name(signature.library, signature.name) == topic
}

fn constant(topic: &str) -> Option<String> {
    if let Some((id, value)) = cuda::constant(topic) {
        let def = cuda::enum_def(id);
        let meaning = cuda::errors::results(def.name).and_then(|results| results.text(value));
        let meaning = meaning.map_or(String::new(), |text| format!("    {text}\n"));
        return Some(format!("{topic} = {value}\n    of enum {}\n{meaning}", def.name));
    }
    let id = cuda::find_enum(topic);
    let variants = id
        .map(|id| cuda::enum_def(id).variants.iter().map(|(name, value)| format!("    {name} = {value}\n")));
    let listed = variants.map(|lines| format!("enum {topic}\n{}", lines.collect::<String>()));
    listed.or_else(|| cuda::macro_constant(topic).map(|value| format!("{topic} = {value}\n")))
}
