//! Functions of this machine's libraries by pattern, with their signatures: for lists, help and completion.

use anyhow::{Result, bail};
use lang::catalog::debug_info::Absent;
use lang::catalog::{Catalog, File, Function, TargetError};
use lang::resolve::declaration::FunctionDeclaration;
use lang::resolve::pattern::FunctionPattern;
use lang::syntax::ast::SpecPart;
use lang::syntax::glob::{glob, is_pattern};

/// A function that matches a pattern.
pub struct Match {
    /// File that defines it.
    pub file: File,
    /// Name that matched.
    pub name: String,
    /// Offset in the file.
    offset: u64,
}

impl Match {
    /// The declaration of the function: from the CUDA tables, otherwise from debug information, which is read now.
    pub fn declared(&self, catalog: &dyn Catalog) -> Result<FunctionDeclaration, Absent> {
        let tables =
            self.file.library.and_then(|(library, major)| cuda::signature(library, major, &self.name));
        let described =
            || catalog.declared(self.file.id, self.offset, &self.name).map(FunctionDeclaration::Debug);
        tables.map(FunctionDeclaration::Cuda).map_or_else(described, Ok)
    }
}

/// The functions that match `TARGET:FUNCTION` with wildcards, in the order of the files and their symbols.
pub fn find(catalog: &dyn Catalog, target: &str, function: &str) -> Result<Vec<Match>> {
    let pattern = FunctionPattern::parse(&part(function)).map_err(anyhow::Error::msg)?;
    let files = files(catalog, target)?;
    let found: Vec<Match> = files.iter().flat_map(|file| in_file(catalog, file, &pattern)).collect();
    if found.is_empty() {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        bail!("no function matches `{function}` in {}", paths.join(", "));
    }
    Ok(found)
}

/// The functions of all CUDA libraries that a name selects, as in a script; empty for a pattern with `*`, which
/// [`alike`] handles.
pub fn named(catalog: &dyn Catalog, pattern: &str) -> Vec<Match> {
    if is_pattern(pattern) { Vec::new() } else { of_cuda(catalog, pattern) }
}

/// The functions of all CUDA libraries whose name is similar to a pattern ([`is_like`]).
pub fn alike(catalog: &dyn Catalog, pattern: &str) -> Vec<Match> {
    let mut all = of_cuda(catalog, "*");
    all.retain(|found| is_like(pattern, &found.name));
    all
}

fn of_cuda(catalog: &dyn Catalog, pattern: &str) -> Vec<Match> {
    let libraries = catalog.known_targets();
    libraries.iter().filter_map(|library| find(catalog, library, pattern).ok()).flatten().collect()
}

/// Whether a name matches a pattern with `*`, or contains a pattern without `*`. Case is ignored if the pattern is
/// in lower case.
pub fn is_like(pattern: &str, name: &str) -> bool {
    let around = if is_pattern(pattern) { pattern.to_owned() } else { format!("*{pattern}*") };
    let any_case = !pattern.contains(char::is_uppercase);
    if any_case { glob(&around, &name.to_lowercase()) } else { glob(&around, name) }
}

pub fn files(catalog: &dyn Catalog, target: &str) -> Result<Vec<File>> {
    match catalog.files(target) {
        Ok(files) => Ok(files),
        Err(TargetError::Unusable(reason)) => bail!("`{target}`: {reason}"),
        Err(TargetError::NotYet { looked_in }) => {
            bail!(
                "no library `{target}` is installed; `-p PID` finds what a process has loaded, `--lib {target}=PATH` names a file; \
                 looked in {}",
                looked_in.join(", ")
            )
        }
    }
}

/// Parses a part of an attach point: `cuInit`, `"cuMemAlloc"`, `/cu.*/`.
pub fn part(text: &str) -> SpecPart {
    let between = |quote: &str| text.strip_prefix(quote)?.strip_suffix(quote).map(String::from);
    match (between("\""), between("/")) {
        (Some(name), _) => SpecPart::Quoted(name),
        (_, Some(regex)) => SpecPart::Regex(regex),
        _ => SpecPart::Text(text.to_owned()),
    }
}

fn in_file(catalog: &dyn Catalog, file: &File, pattern: &FunctionPattern) -> Vec<Match> {
    let functions = catalog.functions(file.id);
    let exported = |name: &str| functions.iter().any(|f| f.names.iter().any(|n| n == name));
    let matched = functions.iter().filter_map(|function| {
        let name = name(pattern, file, function, &exported)?;
        Some(Match { file: file.clone(), name: name.to_owned(), offset: function.offset })
    });
    matched.collect()
}

fn name<'f>(
    pattern: &FunctionPattern,
    file: &File,
    function: &'f Function,
    exported: &dyn Fn(&str) -> bool,
) -> Option<&'f str> {
    let FunctionPattern::Named { name: wanted, version, .. } = pattern else { return None };
    let library = file.library.map(|(library, _)| library);
    let right_version = version.is_none() || *version == function.version;
    let mut names = function.names.iter().map(String::as_str);
    names.find(|name| right_version && wanted.matches(library, name, exported))
}

/// A function as a pattern names it.
pub struct FunctionName<'p> {
    /// `uprobe`
    pub provider: &'p str,
    /// `libcuda`
    pub target: &'p str,
    /// `cuInit`
    pub function: &'p str,
}

/// Splits `TARGET:FUNCTION`, `uprobe:TARGET:FUNCTION` or `FUNCTION` (of libcuda).
pub fn split(pattern: &str) -> FunctionName<'_> {
    let parts: Vec<&str> = pattern.splitn(3, ':').collect();
    let (target, function) = match parts[..] {
        [provider, target, function] => return FunctionName { provider, target, function },
        [provider @ ("uprobe" | "u" | "uretprobe" | "ur"), target] => {
            return FunctionName { provider, target, function: "*" };
        }
        [target, function] => (target, function),
        _ => ("libcuda", pattern),
    };
    FunctionName { provider: "uprobe", target, function }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_matches_any_case() {
        for pattern in ["alloc", "*alloc*", "cu*alloc", "*Alloc*", "cuMemAlloc"] {
            assert!(is_like(pattern, "cuMemAlloc"), "{pattern}");
        }
        for pattern in ["ALLOC", "alloc*", "cumemAlloc", "free"] {
            assert!(!is_like(pattern, "cuMemAlloc"), "{pattern}");
        }
    }
}
