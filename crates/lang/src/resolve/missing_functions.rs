//! Messages about functions that do not exist.

use crate::catalog::debug_info::{Absent, WITH_INFORMATION};
use crate::catalog::{File, Function};
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::{did_you_mean, listed};
use crate::diagnostics::{DRAWN, Diagnostic};
use crate::resolve::cuda_libraries::cuda_library;
use crate::resolve::finder::Finder;
use crate::resolve::function_spec::FunctionSpec;
use crate::resolve::pattern::{FunctionPattern, NamePattern, cpp_name};
use crate::resolve::spot::finding;
use rustc_hash::FxHashSet;

impl Finder<'_, '_> {
    pub(super) fn no_function(&self, wanted: &FunctionSpec, files: &[File]) -> Box<Diagnostic> {
        let paths = listed(files.iter().map(|file| file.path.as_str()), 5);
        let of_cpp = matches!(&wanted.pattern, FunctionPattern::Named { name: NamePattern::Cpp(_), .. });
        let what = if of_cpp { "C++ function" } else { "function" };
        let message = format!("no {what} `{}` in {paths}", wanted.written);
        let help = match self.diags.are_many() || self.absent.len() >= DRAWN {
            true => Vec::new(),
            false => self.other_functions(wanted, files),
        };
        finding("E0105", wanted.at, message, "not exported there", help)
    }

    /// Help for a name that the loader binds to one of several functions.
    fn indirect(&self, name: &str, files: &[File]) -> String {
        let variant = format!("__{name}_");
        let names = |file: &File| self.setting.catalog.functions(file.id);
        let has_variants =
            files.iter().flat_map(names).flat_map(|f| f.names.iter()).any(|n| n.starts_with(&variant));
        let remedy = match has_variants {
            true => format!("probe all of them: `{variant}*`"),
            false => "probe its callers".to_owned(),
        };
        format!(
            "`{name}` stands for several functions, of which the loader selects one for this CPU (IFUNC): {remedy}"
        )
    }

    /// Suggestions for a missing function.
    fn other_functions(&self, wanted: &FunctionSpec, files: &[File]) -> Vec<String> {
        // No name has blanks: a comma before a predicate makes the predicate a regular expression.
        if !is_plain(&wanted.pattern) && wanted.written.contains(' ') {
            return vec![
                "write no comma before a predicate: `uprobe:libcuda:cuInit / pid == 3 / { }`".into(),
            ];
        }
        if files.iter().any(|file| self.setting.catalog.is_indirect(file.id, wanted.written)) {
            return vec![self.indirect(wanted.written, files)];
        }
        let names = |file: &File| self.setting.catalog.functions(file.id);
        let candidates: FxHashSet<&str> =
            files.iter().flat_map(names).flat_map(|f| f.names.iter().map(String::as_str)).collect();
        let help = match &wanted.pattern {
            FunctionPattern::Named { version: Some(version), .. } => {
                other_versions(wanted, files, version, names)
            }
            _ => Vec::new(),
        };
        let near = match &wanted.pattern {
            FunctionPattern::Named { name: NamePattern::Cpp(name), .. } => {
                let names = candidates.iter().filter_map(|symbol| cpp_name(symbol, name.contains('(')));
                let names: FxHashSet<String> = names.collect();
                return did_you_mean(&similar(name, names.iter().map(String::as_str)));
            }
            FunctionPattern::Named { name, .. } => nearest(name, wanted.written, &sorted(candidates.clone())),
            FunctionPattern::Address(_) | FunctionPattern::Line { .. } => Vec::new(),
        };
        let elsewhere = cuda_library(wanted.written);
        let other =
            |library: &&str| files.iter().all(|file| file.library.is_none_or(|(l, _)| l.alias() != *library));
        match elsewhere.filter(other) {
            Some(library) => {
                let form = format!("{}:{library}:{}", wanted.provider.names[0], wanted.written);
                vec![format!("`{library}` has it: `{form}`")]
            }
            None if wanted.written.contains('|') && is_plain(&wanted.pattern) => {
                vec![format!("write a regular expression between slashes: `/{}/`", wanted.written)]
            }
            None if help.is_empty() && near.is_empty() => listing(files, candidates.len()),
            None if help.is_empty() => did_you_mean(&near),
            None => help,
        }
    }

    pub(super) fn warn_unexpected(&mut self, wanted: &FunctionSpec, library: Option<(cuda::Library, u32)>) {
        let Some((library, major)) = library else { return };
        if cuda::signatures(library, major).next().is_none() {
            return;
        }
        let near =
            self.diags.similar(near_key(wanted.written), cuda::signatures(library, major).map(|s| s.name));
        let message = format!("`{}` is no known function of {}", wanted.written, library.alias());
        let warning = self.diags.warning("W0152", wanted.at, message);
        warning.note("the library is not loaded yet, so this is decided when it is");
        warning.help.extend(did_you_mean(&near));
    }
}

pub(super) fn no_lines(wanted: &FunctionSpec, file: &File, absent: &Absent) -> Box<Diagnostic> {
    let message = format!("source lines of `{}` are unknown", file.path);
    let why = match absent {
        Absent::NoInformation { .. } | Absent::NotDescribed => {
            format!("it has no debug information: {WITH_INFORMATION}")
        }
        Absent::Unusable(why) => format!("its debug information cannot be used: {why}"),
    };
    finding("E0105", wanted.at, message, "", vec![why])
}

/// The message about a line without code. `lines` are the lines with code, in order.
pub(super) fn no_line(
    wanted: &FunctionSpec,
    file: &File,
    source: &str,
    line: u64,
    lines: &[(u64, u64)],
) -> Box<Diagnostic> {
    let message = match lines.is_empty() {
        true => format!("`{}` has no code of `{source}`", file.path),
        false => format!("line {line} of `{source}` has no code in `{}`", file.path),
    };
    let before = lines.iter().rev().map(|(of, _)| of).find(|of| **of < line);
    let after = lines.iter().map(|(of, _)| of).find(|of| **of > line);
    let near: Vec<String> = before.into_iter().chain(after).map(|of| format!("line {of}")).collect();
    let help = (!near.is_empty()).then(|| format!("the nearest code is that of {}", near.join(" and ")));
    finding("E0105", wanted.at, message, "", help.into_iter().collect())
}

/// Names similar to a pattern; for a wildcard, names with a similar beginning.
fn nearest<'n>(name: &NamePattern, written: &str, candidates: &[&'n str]) -> Vec<&'n str> {
    let key = near_key(written);
    if name.single().is_some() || key.len() < 3 {
        return similar(key, candidates.iter().copied());
    }
    let starts = candidates.iter().filter_map(|candidate| candidate.get(..key.len()));
    let near = similar(key, starts);
    near.into_iter().filter_map(|start| candidates.iter().copied().find(|c| c.starts_with(start))).collect()
}

/// Whether a pattern is not a regular expression.
fn is_plain(pattern: &FunctionPattern) -> bool {
    !matches!(pattern, FunctionPattern::Named { name: NamePattern::Regex(_), .. })
}

/// Help to list the functions.
fn listing(files: &[File], names: usize) -> Vec<String> {
    match files {
        [] => Vec::new(),
        _ if names == 0 => vec!["it has no symbols of functions".into()],
        [first, ..] => {
            vec![format!("`cudatrace -l 'uprobe:{}:*'` lists its {names} functions", first.path)]
        }
    }
}

/// The text that names are compared with: without version, offset and wildcards.
fn near_key(written: &str) -> &str {
    written.split(['@', '+', '*', '?', '[']).next().unwrap_or(written)
}

fn other_versions<'f>(
    wanted: &FunctionSpec,
    files: &[File],
    version: &str,
    functions: impl Fn(&File) -> &'f [Function],
) -> Vec<String> {
    let FunctionPattern::Named { name, .. } = &wanted.pattern else { return Vec::new() };
    let named = |f: &&Function| f.names.iter().any(|symbol| name.matches(None, symbol, |_| false));
    let versions: FxHashSet<&str> =
        files.iter().flat_map(functions).filter(named).filter_map(|f| f.version.as_deref()).collect();
    match sorted(versions).as_slice() {
        [] => Vec::new(),
        found => {
            vec![format!("its version in this file is {}, not `{version}`", listed(found.iter().copied(), 5))]
        }
    }
}

fn sorted(names: FxHashSet<&str>) -> Vec<&str> {
    let mut list: Vec<&str> = names.into_iter().collect();
    list.sort_unstable();
    list
}
