//! `cudatrace -l PATTERN`: lists attach points, with `-v` the parameters of functions; `-l 'struct NAME'` prints a struct of the kernel.

pub mod gpu;
pub mod ioctls;
mod structs;

use crate::cli::{Cli, Format, Word};
use crate::console::Messages;
use crate::function_list::{FunctionName, Match};
use crate::script::Script;
use crate::subcommand::Listing;
use crate::{Failure, function_list, script};
use anyhow::{Result, bail};
use cuda::Library;
use cuda::kernel_driver::{EVENTS, Event};
use cuda::operations::{APIS, Api, Operation};
use host::{Machine, Scope};
use lang::catalog::debug_info::{Absent, WITH_INFORMATION};
use lang::catalog::{
    Catalog, File, KERNEL, KernelFunction, Marker, MarkerArg, MarkerPlace, Tracepoint, VMLINUX,
};
use lang::diagnostics::suggest::similar;
use lang::diagnostics::wording::listed;
use lang::expand::options;
use lang::hir::Hook;
use lang::resolve::providers::{self, PROVIDERS, Parts, Provider, ProviderMatch};
use lang::syntax::ast;
use lang::syntax::glob::{glob, is_pattern};
use lang::{Diagnostics, Source};
use runtime::kernel::tracefs;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::path::Path;

/// `-l`
pub const LISTING: Listing = Listing {
    option: "list",
    // The words after a script are its parameters.
    most_words: usize::MAX,
    options: &["programs", "pids", "libs", "format", "wait", "no_children"],
    is_requested: |cli| cli.list,
    run: |invocation| run(invocation.cli).map_err(Failure::wrong),
};

/// Lists the attach points that match a pattern such as `uprobe:libcuda:cuMem*`, or those of a script.
fn run(cli: &Cli) -> Result<u8> {
    let machine =
        Machine::new(Scope { pids: cli.pids.clone(), lib_overrides: cli.libs.clone(), ..Scope::default() })
            .with_kernel(&crate::kernel_catalog::RunningKernel)
            .with_progress(cli.messages().search_progress());
    // Operations and functions of CUDA's driver; on a machine without it, all functions.
    let has_driver = cli.pids.is_empty() && machine.files("libcuda").is_ok();
    let usual: &[&str] = if has_driver { &["cuda:*", "uprobe:libcuda:*"] } else { &["*"] };
    let pattern = cli.words.first().map_or("*", String::as_str);
    if cli.execute.is_some() || is_script(cli, pattern) {
        return list_script(cli, &machine);
    }
    let option = cli.given.first().map(|given| format!("--{}", given.name));
    if let Some(word) = cli.words.get(1).or(option.as_ref()) {
        bail!("unexpected argument `{word}`: `-l` takes one pattern, in quotes if it has blanks");
    }
    if structs::is_type(pattern) {
        std::io::stdout().write_all(structs::declarations(pattern, cli.verbose)?.as_bytes())?;
        return Ok(0);
    }
    let mut unknown = UnknownParameters::default();
    let patterns = if cli.words.is_empty() { usual } else { &[pattern] };
    for pattern in patterns {
        print(&list(&machine, pattern, cli.verbose, &mut unknown)?, cli.format)?;
    }
    unknown.report(&cli.messages());
    Ok(0)
}

/// An attach point.
struct ListEntry {
    /// `uprobe:/usr/lib/libcuda.so.1:cuInit`
    name: String,
    /// With `-v` its parameters, one per line, and other facts.
    details: Vec<String>,
}

impl ListEntry {
    fn plain(name: String) -> ListEntry {
        ListEntry { name, details: Vec::new() }
    }
}

fn print(listed: &[ListEntry], format: Format) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for ListEntry { name, details } in listed {
        match format {
            Format::Text => {
                writeln!(out, "{name}")?;
                details.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
            }
            Format::Json => {
                writeln!(
                    out,
                    "{}",
                    serde_json::json!({"type": "probe", "data": {"name": name, "details": details}})
                )?;
            }
        }
    }
    out.flush()
}

/// Whether the word is a script and not a pattern: patterns have colons.
fn is_script(cli: &Cli, word: &str) -> bool {
    let named = matches!(cli.classify(word), Word::Embedded(_) | Word::File("-"));
    named
        || !word.contains(':')
            && (word.ends_with(".ct") || word.ends_with(".bt") || Path::new(word).is_file())
}

/// Lists the attach points of a script without duplicates, and reports patterns without a match.
fn list_script(cli: &Cli, machine: &Machine) -> Result<u8> {
    let messages = cli.messages();
    let script = match &cli.execute {
        Some(text) => Script::alone(Source::new("stdin", text.as_str()), &cli.words),
        None => script::open(cli, &cli.words[0], &cli.words[1..])?,
    };
    let script = script::import(script, &messages)?;
    let mut diags = Diagnostics::default();
    let mut parsed = lang::parse(&script.source, &script.params, &mut diags);
    if let Some(ast) = &mut parsed {
        options::expand(ast, &cli.given, &mut diags);
    }
    messages.diagnostics(&diags, &script.source);
    let Some(ast) = parsed else { bail!("the script cannot be read") };
    let clauses = ast.items.iter().filter_map(|item| match item {
        ast::Item::Clause(clause) => Some(clause),
        _ => None,
    });
    let (mut seen, mut unknown) = (HashSet::new(), UnknownParameters::default());
    let mut status = 0;
    for written in
        clauses.flat_map(|clause| &clause.probes).map(written).filter(|text| seen.insert(text.clone()))
    {
        let listed = match is_list(&written) {
            true => list(machine, &written, cli.verbose, &mut unknown),
            false => Ok(vec![ListEntry::plain(written.clone())]),
        };
        match listed {
            Ok(listed) => print(&listed, cli.format)?,
            Err(error) => {
                messages.warning(&format!("`{written}`: {error}"));
                status = 1;
            }
        }
    }
    unknown.report(&messages);
    Ok(status)
}

/// The attach point as written.
fn written(probe: &ast::ProbeSpec) -> String {
    let parts = probe.parts.iter().map(|part| match &part.node {
        ast::SpecPart::Text(text) => text.clone(),
        ast::SpecPart::Quoted(text) => format!("\"{text}\""),
        ast::SpecPart::QuotedAt(text, offset) => format!("\"{text}\"+{offset}"),
        ast::SpecPart::Regex(text) => format!("/{text}/"),
        ast::SpecPart::Option(_) => unreachable!("options of probes have been expanded"),
    });
    std::iter::once(probe.provider.node.clone()).chain(parts).collect::<Vec<_>>().join(":")
}

/// Whether it may match several attach points.
fn is_list(written: &str) -> bool {
    match provider(written) {
        ProviderMatch::Known(provider) => provider.takes_patterns(),
        ProviderMatch::Absent(_) | ProviderMatch::Unknown => true,
    }
}

fn provider(pattern: &str) -> ProviderMatch {
    providers::find(pattern.split(':').next().unwrap_or(pattern))
}

/// Lists the attach points that match a pattern.
fn list(
    machine: &Machine,
    pattern: &str,
    verbose: bool,
    unknown: &mut UnknownParameters,
) -> Result<Vec<ListEntry>> {
    if let Some(AnyKindPattern { kind, target, name }) = of_any_kind(pattern) {
        return list_target(machine, kind, target, name);
    }
    if let ProviderMatch::Known(provider) = provider(pattern)
        && let names = timed(provider)
        && !names.is_empty()
    {
        return list_timed(pattern, names);
    }
    if pattern.starts_with('*')
        || !pattern.contains(':') && matches!(provider(pattern), ProviderMatch::Unknown)
    {
        return list_all(machine, pattern, verbose, unknown);
    }
    if let Some((category, event)) = tracepoint(pattern) {
        return list_tracepoints(machine, category, event, verbose);
    }
    if let Some(event) = raw_tracepoint(pattern) {
        return list_raw_tracepoints(machine, event, verbose);
    }
    if let ProviderMatch::Known(Provider {
        parts: Parts::KernelFunction { trampoline, returns },
        names,
        ..
    }) = provider(pattern)
    {
        let wanted = KernelList { kind: names[0], trampoline: *trampoline, returns: *returns };
        return wanted.list(machine, pattern, verbose);
    }
    if let ProviderMatch::Known(Provider { parts: Parts::DriverEvent, .. }) = provider(pattern) {
        return list_driver_events(pattern.split_once(':').map_or("*", |(_, name)| name), verbose);
    }
    if let Some(kind) = gpu::kind(pattern) {
        return gpu::list(kind, verbose);
    }
    if let Some((device, name)) = ioctls::split(pattern) {
        return ioctls::list(device, name, verbose);
    }
    if let Some((api, operation)) = operation(pattern).or_else(|| Some((Api::of(pattern)?, "*"))) {
        return list_operations(api, operation, verbose);
    }
    if let ProviderMatch::Known(Provider { parts: Parts::Marker, .. }) = provider(pattern) {
        return list_markers(machine, pattern, verbose);
    }
    not_countable(pattern)?;
    let FunctionName { provider, target, function } = function_list::split(pattern);
    if !matches!(provider, "uprobe" | "u" | "uretprobe" | "ur") {
        bail!("`{provider}` cannot be listed; `uprobe:LIBRARY:FUNCTION` can, with wildcards");
    }
    let provider = if provider.len() > 2 { provider } else { "uprobe" };
    let is_return = provider.starts_with("ur");
    let found = function_list::find(machine, target, function)?;
    let listed = |found: &Match| ListEntry {
        name: format!("{provider}:{}:{}", found.file.path, found.name),
        details: if verbose { parameters(machine, found, is_return, unknown) } else { Vec::new() },
    };
    Ok(found.iter().map(listed).collect())
}

/// Lists attach points of any kind whose name matches; a pattern with a colon is compared with the whole attach
/// point: `cudaMalloc`, `*alloc*`, `*:cuInit`. Functions are those of CUDA's libraries, which come first.
fn list_all(
    machine: &Machine,
    pattern: &str,
    verbose: bool,
    unknown: &mut UnknownParameters,
) -> Result<Vec<ListEntry>> {
    let named = |api: &'static Api| api.operations.iter().map(|o| format!("{}:{}", api.provider, o.name));
    let operations_of_all = APIS.iter().flat_map(named);
    let events = machine.tracepoints().into_iter().map(|(c, e)| format!("tracepoint:{c}:{e}"));
    let raw = machine.raw_tracepoints().into_iter().map(|event| format!("rawtracepoint:{event}"));
    let fits = |listed: &String| {
        let name = if pattern.contains(':') { listed } else { listed.rsplit(':').next().unwrap_or(listed) };
        function_list::is_like(pattern, name)
    };
    let name = pattern.rsplit(':').next().unwrap_or(pattern);
    let traced = !machine.scope().pids.is_empty();
    let mut functions = match traced {
        true => function_list::find(machine, "*", name)?,
        false => function_list::named(machine, name),
    };
    let (mut operations, mut others) = (Vec::new(), Vec::new());
    if functions.is_empty() {
        functions = function_list::alike(machine, name);
        operations = operations_of_all.filter(fits).collect();
        others = events
            .chain(raw)
            .chain(ioctls::all())
            .chain(gpu::all())
            .chain(PROVIDERS.iter().flat_map(timed))
            .filter(fits)
            .collect();
    }
    if traced {
        let files = machine.files("*").unwrap_or_default();
        others.extend(files.iter().flat_map(|file| markers(machine, file)).filter(fits));
    }
    if operations.is_empty() && functions.is_empty() && others.is_empty() {
        if is_library(machine, pattern) {
            return list(machine, &format!("uprobe:{pattern}:*"), verbose, unknown);
        }
        bail!("{}", nothing_matches(machine, pattern));
    }
    let mut listed: Vec<ListEntry> = operations.into_iter().map(ListEntry::plain).collect();
    for found in &functions {
        let name = format!("uprobe:{}:{}", found.file.path, found.name);
        if !pattern.contains(':') || fits(&name) {
            let details = if verbose { parameters(machine, found, false, unknown) } else { Vec::new() };
            listed.push(ListEntry { name, details });
        }
    }
    listed.extend(others.into_iter().map(ListEntry::plain));
    Ok(listed)
}

/// Whether the word is `libc`, or the name of a CUDA library, installed or not.
fn is_library(machine: &Machine, word: &str) -> bool {
    machine.known_targets().iter().any(|known| known == word)
        || word.starts_with("lib") && machine.files(word).is_ok()
}

/// The reason why a list is empty: for a name of CUDA, most likely a missing CUDA library.
fn nothing_matches(machine: &Machine, pattern: &str) -> String {
    let missing: Vec<&str> =
        ["libcuda", "libcudart"].into_iter().filter(|library| machine.files(library).is_err()).collect();
    let is_of_cuda = pattern.trim_start_matches('*').starts_with("cu");
    if is_of_cuda && !missing.is_empty() {
        return format!(
            "nothing matches `{pattern}`, and {} not installed where libraries are looked for; `-p PID` looks into what a process \
             has loaded, `--lib {}=PATH` names a file",
            if let [one] = missing[..] {
                format!("{one} is")
            } else {
                format!("{} are", missing.join(" and "))
            },
            missing[0]
        );
    }
    let name = pattern.rsplit(':').next().unwrap_or(pattern);
    let signatures = Library::all().flat_map(|library| cuda::signatures(library, 0)).map(|call| call.name);
    if let Some(near) = similar(name, signatures).first().filter(|_| !is_pattern(name)) {
        return format!("nothing matches `{pattern}`: did you mean `{near}`?");
    }
    format!(
        "nothing matches `{pattern}`; functions of other libraries are listed by `uprobe:LIBRARY:{pattern}`"
    )
}

/// `*:/bin/bash:read*`: a pattern for any kind of attach point in a file.
struct AnyKindPattern<'p> {
    /// `*`
    kind: &'p str,
    /// `/bin/bash`
    target: &'p str,
    /// `read*`
    name: &'p str,
}

fn of_any_kind(pattern: &str) -> Option<AnyKindPattern<'_>> {
    let mut parts = pattern.splitn(3, ':');
    let (kind, target, name) = (parts.next()?, parts.next()?, parts.next()?);
    (is_pattern(kind) && target.contains('/')).then_some(AnyKindPattern { kind, target, name })
}

/// Lists functions and markers of a file.
fn list_target(machine: &Machine, kind: &str, target: &str, name: &str) -> Result<Vec<ListEntry>> {
    let is_kind = |word: &str| glob(kind, word);
    let files = function_list::files(machine, target)?;
    let markers = files.iter().flat_map(|file| markers(machine, file)).filter(|_| is_kind("usdt"));
    let wanted = format!("usdt:*:{name}");
    let mut listed: Vec<String> = markers.filter(|marker| glob(&wanted, marker)).collect();
    for word in ["uprobe", "uretprobe"].into_iter().filter(|word| is_kind(word)) {
        let found = function_list::find(machine, target, name).unwrap_or_default();
        listed.extend(found.iter().map(|found| format!("{word}:{}:{}", found.file.path, found.name)));
    }
    if listed.is_empty() {
        bail!("nothing in {target} matches `{pattern}`", pattern = format_args!("{kind}:*:{name}"));
    }
    Ok(listed.into_iter().map(ListEntry::plain).collect())
}

/// `usdt:PATH:PROVIDER:NAME` of the markers of a file, without duplicates.
fn markers(machine: &Machine, file: &File) -> Vec<String> {
    let shown = |marker: &Marker| format!("usdt:{}:{}:{}", file.path, marker.provider, marker.name);
    let all: BTreeSet<String> = machine.markers(file.id).iter().map(shown).collect();
    all.into_iter().collect()
}

/// Attach points of a kind that counts time or events, without the number that must follow: `interval:s:`,
/// `software:page-faults:`.
fn timed(provider: &Provider) -> Vec<String> {
    let Parts::Counted(words) = provider.parts else { return Vec::new() };
    let mut names = words();
    names.sort_unstable();
    names.iter().map(|name| format!("{}:{name}:", provider.names[0])).collect()
}

fn list_timed(pattern: &str, names: Vec<String>) -> Result<Vec<ListEntry>> {
    let wanted = pattern.split_once(':').map_or("*", |(_, wanted)| wanted.trim_end_matches(':'));
    let named = |listed: &String| {
        let name = listed.split(':').nth(1).unwrap_or_default();
        glob(wanted.trim_end_matches(":*"), name)
    };
    let found: Vec<String> = names.into_iter().filter(named).collect();
    if found.is_empty() {
        bail!("nothing matches `{pattern}`");
    }
    Ok(found.into_iter().map(ListEntry::plain).collect())
}

/// Markers of `usdt:TARGET`, `usdt:TARGET:NAME`, `usdt:TARGET:PROVIDER:NAME`, without duplicates.
fn list_markers(machine: &Machine, pattern: &str, verbose: bool) -> Result<Vec<ListEntry>> {
    let parts: Vec<&str> = pattern.split(':').skip(1).collect();
    let (target, provider, name) = match parts[..] {
        [target] => (target, "*", "*"),
        [target, name] => (target, "*", name),
        [target, provider, name] => (target, provider, name),
        _ => bail!("write `usdt:TARGET:PROVIDER:NAME`"),
    };
    let files = function_list::files(machine, target)?;
    let matches = |pattern: &str, text: &str| glob(pattern, text);
    let (mut seen, mut listed) = (HashSet::new(), Vec::new());
    for file in &files {
        for marker in machine.markers(file.id) {
            let shown = format!("usdt:{}:{}:{}", file.path, marker.provider, marker.name);
            let args = marker.args.iter().enumerate().filter(|_| verbose);
            let details: Vec<String> = args.map(|(at, arg)| format!("{} arg{at}", shown_type(arg))).collect();
            let wanted = matches(provider, &marker.provider) && matches(name, &marker.name);
            if wanted && seen.insert((shown.clone(), details.clone())) {
                listed.push(ListEntry { name: shown, details });
            }
        }
    }
    if listed.is_empty() {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        bail!("no USDT marker matches `{provider}:{name}` in {}", paths.join(", "));
    }
    Ok(listed)
}

fn shown_type(arg: &MarkerArg) -> String {
    match &arg.place {
        MarkerPlace::Unreadable(written) => format!("unreadable ({written})"),
        _ => format!("{}int{}", if arg.signed { "" } else { "u" }, 8 * arg.bytes),
    }
}

/// Refuses kinds of attach points that cannot be listed, such as `interval:*`.
fn not_countable(pattern: &str) -> Result<()> {
    let word = pattern.split(':').next().unwrap_or(pattern);
    match provider(pattern) {
        ProviderMatch::Known(Provider { parts: Parts::Function { .. }, .. }) | ProviderMatch::Unknown => {
            Ok(())
        }
        ProviderMatch::Known(provider) => {
            bail!("`{word}` has nothing to list: it is written `{}` ({})", provider.form, provider.doc)
        }
        ProviderMatch::Absent(way_out) => bail!("`{word}` probes are not supported: {way_out}"),
    }
}

/// Returns the API of an operation, and `alloc` of `cuda:alloc`.
fn operation(pattern: &str) -> Option<(&'static Api, &str)> {
    let (provider, operation) = pattern.split_once(':')?;
    Some((Api::of(provider)?, operation))
}

fn list_operations(api: &'static Api, wanted: &str, verbose: bool) -> Result<Vec<ListEntry>> {
    let provider = api.provider;
    let found: Vec<_> = api.operations.iter().filter(|operation| glob(wanted, operation.name)).collect();
    if found.is_empty() {
        let library = api.library.alias();
        bail!(
            "no operation matches `{provider}:{wanted}`; `{provider}:*` lists all, `uprobe:{library}:{wanted}` functions"
        );
    }
    let listed = |operation: &'static Operation| ListEntry {
        name: format!("{provider}:{}", operation.name),
        details: if verbose { description(operation) } else { Vec::new() },
    };
    Ok(found.into_iter().map(listed).collect())
}

/// Description, arguments and functions of an operation.
pub fn description(operation: &'static Operation) -> Vec<String> {
    let functions: Vec<&str> =
        operation.variants.iter().flat_map(|variant| variant.functions).copied().collect();
    let args = operation.all_args().map(|arg| format!("{} {}: {}", arg.ty, arg.name, arg.doc));
    let doc = std::iter::once(operation.doc.to_owned());
    doc.chain(args).chain([format!("by {}", functions.join(", "))]).collect()
}

/// Category and event of `tracepoint:sched:*`, `t:sched`.
fn tracepoint(pattern: &str) -> Option<(&str, &str)> {
    let mut parts = pattern.splitn(3, ':');
    let provider = parts.next()?;
    ["tracepoint", "t"].contains(&provider.to_lowercase().as_str()).then_some(())?;
    Some((parts.next().unwrap_or("*"), parts.next().unwrap_or("*")))
}

fn list_tracepoints(machine: &Machine, category: &str, event: &str, verbose: bool) -> Result<Vec<ListEntry>> {
    let matches = |(c, e): &(String, String)| glob(category, c) && glob(event, e);
    let found: Vec<_> = machine.tracepoints().into_iter().filter(matches).collect();
    if found.is_empty() {
        bail!("no tracepoint matches `{category}:{event}`; only root may read tracefs");
    }
    let listed = |(category, event): (String, String)| ListEntry {
        details: if verbose { record(&category, &event) } else { Vec::new() },
        name: format!("tracepoint:{category}:{event}"),
    };
    Ok(found.into_iter().map(listed).collect())
}

/// Event of `rawtracepoint:sched_*`, `rt`.
fn raw_tracepoint(pattern: &str) -> Option<&str> {
    let (provider, event) = pattern.split_once(':').unwrap_or((pattern, "*"));
    ["rawtracepoint", "rt"].contains(&provider.to_lowercase().as_str()).then_some(event)
}

fn list_raw_tracepoints(machine: &Machine, wanted: &str, verbose: bool) -> Result<Vec<ListEntry>> {
    let found: Vec<String> =
        machine.raw_tracepoints().into_iter().filter(|event| glob(wanted, event)).collect();
    if found.is_empty() {
        bail!("no raw tracepoint matches `{wanted}`; `rawtracepoint:*` lists all, from the kernel's BTF");
    }
    let listed = |event: String| ListEntry {
        details: if verbose { fields(machine.raw_tracepoint(&event)) } else { Vec::new() },
        name: format!("rawtracepoint:{event}"),
    };
    Ok(found.into_iter().map(listed).collect())
}

/// Lists events of NVIDIA's kernel driver, with the functions that perform them.
fn list_driver_events(pattern: &str, verbose: bool) -> Result<Vec<ListEntry>> {
    let events = EVENTS.iter().filter(|event| glob(pattern, event.name));
    let details = |event: &Event| {
        let functions: Vec<&str> = event.functions.iter().map(|function| function.name).collect();
        vec![event.doc.to_owned(), format!("by {}", functions.join(", "))]
    };
    let listed: Vec<ListEntry> = events
        .map(|event| ListEntry {
            name: format!("driver:{}", event.name),
            details: if verbose { details(event) } else { Vec::new() },
        })
        .collect();
    match listed.is_empty() {
        true => bail!("the driver has no event `{pattern}`"),
        false => Ok(listed),
    }
}

/// Lists functions of the kernel.
struct KernelList {
    /// `kprobe`
    kind: &'static str,
    trampoline: bool,
    returns: bool,
}

impl KernelList {
    fn list(&self, machine: &Machine, pattern: &str, verbose: bool) -> Result<Vec<ListEntry>> {
        let hook = if self.trampoline { Hook::Trampoline } else { Hook::Kprobe };
        if let Err(reason) = machine.kernel_hook(hook) {
            bail!("this kernel has no `{}` probes: {reason}", self.kind);
        }
        let all = match self.trampoline {
            true => machine.trampoline_functions(),
            false => machine.kernel_functions(),
        };
        let (module, name) = match pattern.split(':').collect::<Vec<_>>()[..] {
            [_, module, name] => (module, name),
            [_, name] => ("*", name),
            _ => ("*", "*"),
        };
        let like = |pattern: &str, name: &str| glob(pattern, name);
        let fits = |function: &&KernelFunction| like(module, function.module) && like(name, function.name);
        let listed: Vec<ListEntry> =
            all.iter().filter(fits).map(|function| self.entry(machine, function, verbose)).collect();
        match listed.is_empty() {
            true => bail!("no function of the kernel matches `{name}`"),
            false => Ok(listed),
        }
    }

    fn entry(&self, machine: &Machine, function: &KernelFunction, verbose: bool) -> ListEntry {
        let KernelFunction { module, name, address, .. } = function;
        let details = match machine.declared(KERNEL, *address, name).ok().filter(|_| verbose) {
            Some(declared) => {
                let result = structs::result(&declared.declared).filter(|_| self.returns);
                structs::parameters(&declared.declared).into_iter().chain(result).collect()
            }
            None if verbose => vec!["parameters not known: arg0, arg1, …".into()],
            None => Vec::new(),
        };
        let name = match *module {
            VMLINUX if !self.trampoline => format!("{}:{name}", self.kind),
            module => format!("{}:{module}:{name}", self.kind),
        };
        ListEntry { name, details }
    }
}

/// The fields of a tracepoint's record as C declarations, without the common header.
fn record(category: &str, event: &str) -> Vec<String> {
    let fields = tracefs::tracepoint_format(category, event).map(|format| format.fields).unwrap_or_default();
    let own = fields.iter().filter(|field| !field.name.starts_with("common_"));
    own.map(|field| structs::variable(&field.declared, &field.name)).collect()
}

/// The arguments of a raw tracepoint.
fn fields(found: Result<Tracepoint, String>) -> Vec<String> {
    let fields = found.map(|found| found.fields).unwrap_or_default();
    fields.iter().map(|field| structs::variable(&field.kind.to_string(), &field.name)).collect()
}

/// The parameters of a function as C declarations, one per line, and for a return the result.
fn parameters(
    machine: &Machine,
    found: &Match,
    is_return: bool,
    unknown: &mut UnknownParameters,
) -> Vec<String> {
    match found.declared(machine) {
        Ok(declared) => {
            let declared = declared.to_string();
            let result = structs::result(&declared).filter(|_| is_return);
            structs::parameters(&declared).into_iter().chain(result).collect()
        }
        Err(absent) => {
            unknown.count(found, absent);
            vec!["parameters not known: arg0, arg1, …".into()]
        }
    }
}

/// Reasons why parameters are unknown, as the text around the files' names: number of functions, and files.
#[derive(Default)]
struct UnknownParameters(BTreeMap<(&'static str, String), (usize, BTreeSet<String>)>);

impl UnknownParameters {
    /// Largest number of files that are named in a message.
    const NAMED: usize = 3;

    fn count(&mut self, found: &Match, absent: Absent) {
        let why = match absent {
            // NVIDIA does not publish debug information.
            Absent::NoInformation { .. } if found.file.library.is_some() => (
                "NVIDIA's headers do not declare them, and there is no debug information for ",
                String::new(),
            ),
            Absent::NoInformation { .. } => {
                ("there is no debug information for ", format!("; {WITH_INFORMATION}"))
            }
            Absent::NotDescribed => {
                ("they are not in the debug information for ", ", compiled without `-g` in part".into())
            }
            Absent::Unusable(why) => ("", format!(": {why}")),
        };
        let (count, paths) = self.0.entry(why).or_default();
        *count += 1;
        if !paths.contains(&found.file.path) {
            paths.insert(found.file.path.clone());
        }
    }

    /// Reports each reason once, after the list.
    fn report(&self, messages: &Messages) {
        for ((before, after), (count, paths)) in &self.0 {
            let functions = if *count == 1 { "function" } else { "functions" };
            let paths = listed(paths.iter().map(String::as_str), UnknownParameters::NAMED);
            messages
                .note(&format!("parameters of {count} {functions} are not known: {before}{paths}{after}"));
        }
    }
}
