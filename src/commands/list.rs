//! `cudatrace -l PATTERN`: what can be probed, with `-v` the functions' parameters.

use crate::cli::Cli;
use crate::functions::{self, Match};
use anyhow::{Result, bail};
use cuda::operations::{OPERATIONS, Operation};
use lang::catalog::Catalog;
use lang::resolve::pattern::glob_matches;
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
    if let Some(operation) = operation(pattern) {
        return list_operations(operation, cli.verbose);
    }
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
        let fields = machine.tracepoint(&category, &event).map(|found| found.fields).unwrap_or_default();
        for field in fields.iter().filter(|_| verbose) {
            writeln!(out, "    {} {}", field.kind, field.name)?;
        }
    }
    out.flush()?;
    Ok(0)
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
