//! `cudatrace -l PATTERN`: what can be probed, with `-v` the functions' parameters.

use crate::cli::Cli;
use anyhow::{Result, bail};
use lang::ast::SpecPart;
use lang::catalog::{Catalog, File, Function, TargetError};
use lang::resolve::pattern::FunctionPattern;
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
    let query = Query::parse(pattern)?;
    let files = match machine.files(query.target) {
        Ok(files) => files,
        Err(TargetError::Unusable(reason)) => bail!("`{}`: {reason}", query.target),
        Err(TargetError::NotYet { looked_in }) => {
            bail!("no library `{}`; looked in {}", query.target, looked_in.join(", "))
        }
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut matched = 0;
    for file in &files {
        matched += list_file(&mut out, &machine, file, &query, cli.verbose)?;
    }
    match matched {
        0 => bail!("no function matches `{}` in {}", query.function, paths(&files)),
        _ => Ok(out.flush().map(|()| 0)?),
    }
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

fn paths(files: &[File]) -> String {
    files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join(", ")
}

struct Query<'a> {
    provider: &'a str,
    target: &'a str,
    function: &'a str,
    pattern: FunctionPattern,
}

impl Query<'_> {
    fn parse(text: &str) -> Result<Query<'_>> {
        let parts: Vec<&str> = text.splitn(3, ':').collect();
        let (provider, target, function) = match parts[..] {
            [provider, target, function] => (provider, target, function),
            [provider @ ("uprobe" | "u" | "uretprobe" | "ur"), target] => (provider, target, "*"),
            [target, function] => ("uprobe", target, function),
            _ => ("uprobe", "libcuda", text),
        };
        if !matches!(provider, "uprobe" | "u" | "uretprobe" | "ur") {
            bail!("`{provider}` cannot be listed; `uprobe:LIBRARY:FUNCTION` can, with wildcards");
        }
        let pattern =
            FunctionPattern::parse(&SpecPart::Text(function.to_string())).map_err(anyhow::Error::msg)?;
        Ok(Query {
            provider: if provider.len() > 2 { provider } else { "uprobe" },
            target,
            function,
            pattern,
        })
    }

    /// The name under which the function matches.
    fn name<'f>(
        &self,
        file: &File,
        function: &'f Function,
        exported: &dyn Fn(&str) -> bool,
    ) -> Option<&'f str> {
        let FunctionPattern::Named { name: wanted, version, .. } = &self.pattern else { return None };
        let library = file.library.map(|(library, _)| library);
        let right_version = version.is_none() || *version == function.version;
        function
            .names
            .iter()
            .map(String::as_str)
            .find(|name| right_version && wanted.matches(library, name, exported))
    }
}

fn list_file(
    out: &mut dyn Write,
    machine: &Machine,
    file: &File,
    query: &Query,
    verbose: bool,
) -> Result<usize> {
    let functions = machine.functions(file.id);
    let exported = |name: &str| functions.iter().any(|f| f.names.iter().any(|n| n == name));
    let mut matched = 0;
    for function in functions {
        let Some(name) = query.name(file, function, &exported) else { continue };
        matched += 1;
        writeln!(out, "{}:{}:{name}", query.provider, file.path)?;
        if verbose {
            match file.library.and_then(|(library, major)| cuda::signature(library, major, name)) {
                Some(signature) => writeln!(out, "    {signature}")?,
                None => writeln!(out, "    parameters not known: arg0, arg1, …")?,
            }
        }
    }
    Ok(matched)
}
