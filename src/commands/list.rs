//! `cudatrace -l PATTERN`: what can be probed, with `-v` the functions' parameters.

use crate::cli::Cli;
use crate::functions::{self, Match};
use anyhow::{Result, bail};
use cuda::operations::{OPERATIONS, Operation};
use lang::catalog::{Catalog, Tracepoint};
use lang::resolve::pattern::glob_matches;
use lang::resolve::providers::{self, Found, Provider, ProviderKind};
use lang::resolve::tracepoint::glob;
use std::io::Write;
use target::{Machine, Scope};

/// Lists the attach points that a pattern such as `uprobe:libcuda:cuMem*` stands for.
pub fn run(cli: &Cli) -> Result<u8> {
    let machine =
        Machine::new(Scope { pids: cli.pids.clone(), lib_overrides: cli.libs.clone(), ..Scope::default() })
            .with_kernel(&crate::kernel::Running);
    let pattern = cli.words.first().map_or("uprobe:libcuda:*", String::as_str);
    if let Some((category, event)) = tracepoint(pattern) {
        return list_tracepoints(&machine, category, event, cli.verbose);
    }
    if let Some(event) = raw_tracepoint(pattern) {
        return list_raw_tracepoints(&machine, event, cli.verbose);
    }
    if let Some(operation) = operation(pattern) {
        return list_operations(operation, cli.verbose);
    }
    not_countable(pattern)?;
    let (provider, target, function) = functions::split(pattern);
    if !matches!(provider, "uprobe" | "u" | "uretprobe" | "ur") {
        bail!("`{provider}` cannot be listed; `uprobe:LIBRARY:FUNCTION` can, with wildcards");
    }
    let provider = if provider.len() > 2 { provider } else { "uprobe" };
    let found = functions::find(&machine, target, function)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for found in &found {
        write_match(&mut out, provider, found, cli.verbose)?;
    }
    Ok(out.flush().map(|()| 0)?)
}

/// Refuses kinds of attach point that are no list, such as `interval:*`: their first word is no library.
fn not_countable(pattern: &str) -> Result<()> {
    let word = pattern.split(':').next().unwrap_or(pattern);
    match providers::find(word) {
        Found::Known(Provider { kind: ProviderKind::Uprobe | ProviderKind::Uretprobe, .. })
        | Found::Unknown => Ok(()),
        Found::Known(provider) => {
            bail!("`{word}` is no list: it is written `{}` ({})", provider.form, provider.doc)
        }
        Found::Absent(way_out) => bail!("there are no `{word}` probes: {way_out}"),
    }
}

/// `alloc` of `cuda:alloc`.
fn operation(pattern: &str) -> Option<&str> {
    let (provider, operation) = pattern.split_once(':')?;
    provider.eq_ignore_ascii_case("cuda").then_some(operation)
}

fn list_operations(wanted: &str, verbose: bool) -> Result<u8> {
    let found: Vec<_> = OPERATIONS
        .iter()
        .filter(|operation| glob_matches(wanted.as_bytes(), operation.name.as_bytes()))
        .collect();
    if found.is_empty() {
        bail!("no operation matches `cuda:{wanted}`; `cuda:*` lists all");
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for operation in found {
        writeln!(out, "cuda:{}", operation.name)?;
        if verbose {
            describe(&mut out, operation)?;
        }
    }
    out.flush()?;
    Ok(0)
}

fn describe(out: &mut dyn Write, operation: &'static Operation) -> Result<()> {
    writeln!(out, "    {}", operation.doc)?;
    for arg in operation.all_args() {
        writeln!(out, "    {} {}: {}", arg.ty, arg.name, arg.doc)?;
    }
    let functions: Vec<&str> = operation.feeds.iter().flat_map(|feed| feed.functions).copied().collect();
    writeln!(out, "    by {}", functions.join(", "))?;
    Ok(())
}

/// Category and event of `tracepoint:sched:*`, `t:sched`.
fn tracepoint(pattern: &str) -> Option<(&str, &str)> {
    let mut parts = pattern.splitn(3, ':');
    let provider = parts.next()?;
    ["tracepoint", "t"].contains(&provider.to_lowercase().as_str()).then_some(())?;
    Some((parts.next().unwrap_or("*"), parts.next().unwrap_or("*")))
}

fn list_tracepoints(machine: &Machine, category: &str, event: &str, verbose: bool) -> Result<u8> {
    let matches = |(c, e): &(String, String)| glob(category, c) && glob(event, e);
    let found: Vec<_> = machine.tracepoints().into_iter().filter(matches).collect();
    if found.is_empty() {
        bail!("no tracepoint matches `{category}:{event}`; only root may read tracefs");
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (category, event) in found {
        writeln!(out, "tracepoint:{category}:{event}")?;
        if verbose {
            write_fields(&mut out, machine.tracepoint(&category, &event))?;
        }
    }
    out.flush()?;
    Ok(0)
}

/// Event of `rawtracepoint:sched_*`, `rt`.
fn raw_tracepoint(pattern: &str) -> Option<&str> {
    let (provider, event) = pattern.split_once(':').unwrap_or((pattern, "*"));
    ["rawtracepoint", "rt"].contains(&provider.to_lowercase().as_str()).then_some(event)
}

fn list_raw_tracepoints(machine: &Machine, wanted: &str, verbose: bool) -> Result<u8> {
    let found: Vec<String> =
        machine.raw_tracepoints().into_iter().filter(|event| glob(wanted, event)).collect();
    if found.is_empty() {
        bail!("no raw tracepoint matches `{wanted}`; `rawtracepoint:*` lists all, from the kernel's BTF");
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for event in found {
        writeln!(out, "rawtracepoint:{event}")?;
        if verbose {
            write_fields(&mut out, machine.raw_tracepoint(&event))?;
        }
    }
    out.flush()?;
    Ok(0)
}

fn write_fields(out: &mut dyn Write, found: Result<Tracepoint, String>) -> std::io::Result<()> {
    let fields = found.map(|found| found.fields).unwrap_or_default();
    fields.iter().try_for_each(|field| writeln!(out, "    {} {}", field.kind, field.name))
}

/// A line for the attach point, and one for its parameters.
fn write_match(out: &mut dyn Write, provider: &str, found: &Match, verbose: bool) -> std::io::Result<()> {
    writeln!(out, "{provider}:{}:{}", found.file.path, found.name)?;
    match found.signature {
        _ if !verbose => Ok(()),
        Some(signature) => writeln!(out, "    {signature}"),
        None => writeln!(out, "    parameters not known: arg0, arg1, …"),
    }
}
