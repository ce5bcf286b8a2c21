//! `cudatrace -l PATTERN`: lists attach points, with `-v` the parameters of functions; `-l 'struct NAME'` prints a struct of the kernel.

mod counted;
mod driver_events;
mod functions;
pub mod gpu;
pub mod ioctls;
mod iterators;
mod kernel_functions;
mod lister;
mod markers;
pub mod operations;
mod structs;
mod tracepoints;

use crate::cli::{Cli, Format, Word};
use crate::run::setup::check_process;
use crate::script::{NO_FILE, Script};
use crate::subcommand::Listing;
use crate::{Failure, script};
use anyhow::{Error, Result, bail};
use cuda::Library;
use host::{Machine, Scope};
use lang::catalog::Catalog;
use lang::diagnostics::suggest::similar;
use lang::expand::options;
use lang::resolve::function_list;
use lang::resolve::providers::{self, Provider, ProviderMatch};
use lang::syntax::ast;
use lang::syntax::glob::{glob, is_pattern};
use lang::{Diagnostics, Source};
use lister::{ListEntry, Lister, ProviderList};
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// The lists, in the order of those that a pattern without provider searches. A provider without one has nothing to list.
static LISTS: &[ProviderList] = &[
    functions::LIST,
    markers::LIST,
    operations::LIST,
    kernel_functions::KPROBES,
    kernel_functions::TRAMPOLINES,
    driver_events::LIST,
    tracepoints::LIST,
    tracepoints::RAW_LIST,
    iterators::LIST,
    ioctls::LIST,
    gpu::LIST,
    counted::LIST,
];

/// `-l`
pub const LISTING: Listing = Listing {
    option: "list",
    // The words after a script are its parameters.
    most_words: usize::MAX,
    options: &["programs", "pids", "libs", "debuginfo", "format", "wait", "no_children"],
    is_requested: |cli| cli.list,
    run: |invocation| run(invocation.cli).map_err(Failure::wrong),
};

/// Lists the attach points that match a pattern such as `uprobe:libcuda:cuMem*`, or those of a script.
fn run(cli: &Cli) -> Result<u8> {
    let machine =
        Machine::new(Scope { pids: cli.pids.clone(), lib_overrides: cli.libs.clone(), ..Scope::default() })
            .with_kernel(&crate::kernel_catalog::RunningKernel)
            .with_progress(cli.messages().search_progress());
    cli.pids.iter().try_for_each(|&pid| check_process(pid))?;
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
    let mut lister = Lister::new(&machine, cli.verbose);
    let patterns = if cli.words.is_empty() { usual } else { &[pattern] };
    for pattern in patterns {
        print(&list(&mut lister, pattern)?, cli.format)?;
    }
    lister.unknown.report(&cli.messages());
    Ok(0)
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
        Some(text) => Script::alone(Source::new(NO_FILE, text.as_str()), &cli.words),
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
    let (mut seen, mut lister) = (HashSet::new(), Lister::new(machine, cli.verbose));
    let mut status = 0;
    for written in
        clauses.flat_map(|clause| &clause.probes).map(written).filter(|text| seen.insert(text.clone()))
    {
        let listed = match is_list(&written) {
            true => list(&mut lister, &written),
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
    lister.unknown.report(&messages);
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
        ProviderMatch::Known(provider) => provider.properties.patterns,
        ProviderMatch::Absent(_) | ProviderMatch::Unknown => true,
    }
}

fn provider(pattern: &str) -> ProviderMatch {
    providers::find(provider_name(pattern))
}

fn provider_name(pattern: &str) -> &str {
    pattern.split(':').next().unwrap_or(pattern)
}

/// Lists the attach points that match a pattern.
fn list(lister: &mut Lister, pattern: &str) -> Result<Vec<ListEntry>> {
    if let Some(AnyKindPattern { kind, target, name }) = of_any_kind(pattern) {
        return list_target(lister.machine, kind, target, name);
    }
    let word = provider_name(pattern);
    match provider(pattern) {
        ProviderMatch::Known(row) => match list_of(row) {
            Some(found) => (found.list)(lister, row, pattern),
            None => bail!("`{word}` has nothing to list: it is written `{}` ({})", row.form, row.doc),
        },
        ProviderMatch::Absent(way_out) => bail!("`{word}` probes are not supported: {way_out}"),
        ProviderMatch::Unknown if pattern.starts_with('*') => list_all(lister, pattern),
        ProviderMatch::Unknown => match pattern.matches(':').count() {
            0 => list_all(lister, pattern),
            1 if !is_target(lister.machine, word) => {
                bail!(
                    "`{word}` is neither a kind of probe nor a library: `cudatrace help probes` lists the kinds"
                )
            }
            // A target and a function.
            1 => list(lister, &format!("uprobe:{pattern}")),
            _ => bail!("`{word}` cannot be listed; `uprobe:LIBRARY:FUNCTION` can, with wildcards"),
        },
    }
}

fn list_of(row: &Provider) -> Option<&'static ProviderList> {
    LISTS.iter().find(|list| list.providers.contains(&row.names[0]))
}

/// Lists attach points of any kind whose name matches; a pattern with a colon is compared with the whole attach
/// point: `cudaMalloc`, `*alloc*`, `*:cuInit`. Functions are those of CUDA's libraries, which come first.
fn list_all(lister: &mut Lister, pattern: &str) -> Result<Vec<ListEntry>> {
    let machine = lister.machine;
    let fits = |listed: &String| {
        let name = if pattern.contains(':') { listed } else { listed.rsplit(':').next().unwrap_or(listed) };
        function_list::is_like(pattern, name)
    };
    let name = pattern.rsplit(':').next().unwrap_or(pattern);
    let traced = !machine.scope().pids.is_empty();
    let mut functions = match traced {
        true => function_list::find(machine, "*", name).map_err(Error::msg)?,
        false => function_list::named(machine, name),
    };
    let (mut operations, mut others) = (Vec::new(), Vec::new());
    if functions.is_empty() {
        functions = function_list::alike(machine, name);
        operations = operations::all().filter(fits).collect();
        let all = LISTS.iter().flat_map(|list| list.rows().flat_map(move |row| (list.all)(machine, row)));
        others = all.filter(fits).collect();
    }
    if traced {
        let files = machine.files("*").unwrap_or_default();
        others.extend(files.iter().flat_map(|file| markers::of_file(machine, file)).filter(fits));
    }
    if operations.is_empty() && functions.is_empty() && others.is_empty() {
        if is_library(machine, pattern) {
            return list(lister, &format!("uprobe:{pattern}:*"));
        }
        bail!("{}", nothing_matches(machine, pattern));
    }
    let mut listed: Vec<ListEntry> = operations.into_iter().map(ListEntry::plain).collect();
    for found in &functions {
        let name = format!("uprobe:{}:{}", found.file.path, found.name);
        if !pattern.contains(':') || fits(&name) {
            listed.push(functions::entry(lister, found, "uprobe", false));
        }
    }
    listed.extend(others.into_iter().map(ListEntry::plain));
    Ok(listed)
}

/// Whether a word may be the target of a probe: a file, or the name of a library.
fn is_target(machine: &Machine, word: &str) -> bool {
    word.starts_with("lib") || word.contains(['/', '.', '*', '?', '[']) || machine.files(word).is_ok()
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
    let files = function_list::files(machine, target).map_err(Error::msg)?;
    let markers = files.iter().flat_map(|file| markers::of_file(machine, file)).filter(|_| is_kind("usdt"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use lang::resolve::providers::PROVIDERS;

    #[test]
    fn providers_with_patterns_are_listed() {
        for list in LISTS {
            assert_eq!(list.rows().count(), list.providers.len(), "{:?}", list.providers);
        }
        for row in PROVIDERS.iter().filter(|row| row.properties.patterns) {
            assert!(list_of(row).is_some(), "{}", row.names[0]);
        }
    }
}
