//! Functions of this machine's libraries by pattern, with their signatures: for lists, help and completion.

use crate::catalog::debug_info::Absent;
use crate::catalog::{Catalog, File, Function, TargetError};
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::resolve::declaration::FunctionDeclaration;
use crate::resolve::pattern::FunctionPattern;
use crate::syntax::ast::SpecPart;
use crate::syntax::glob::{glob, is_pattern};

/// A function that matches a pattern.
#[derive(Debug)]
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
    ///
    /// # Errors
    /// There is no declaration; the error is the reason.
    pub fn declared(&self, catalog: &dyn Catalog) -> Result<FunctionDeclaration, Absent> {
        let tables =
            self.file.library.and_then(|(library, major)| cuda::signature(library, major, &self.name));
        let described =
            || catalog.declared(self.file.id, self.offset, &self.name).map(FunctionDeclaration::Debug);
        tables.map(FunctionDeclaration::Cuda).map_or_else(described, Ok)
    }
}

/// The functions that match `TARGET:FUNCTION` with wildcards, in the order of the files and their symbols.
///
/// # Errors
/// None matches, or there is no such target; the error is the message.
pub fn find(catalog: &dyn Catalog, target: &str, function: &str) -> Result<Vec<Match>, String> {
    let pattern = FunctionPattern::parse(&part(function))?;
    let files = files(catalog, target)?;
    let found: Vec<Match> = files.iter().flat_map(|file| in_file(catalog, file, &pattern)).collect();
    if found.is_empty() {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let all: Vec<&Function> = files.iter().flat_map(|file| catalog.functions(file.id)).collect();
        let names = all.iter().flat_map(|function| function.names.iter().map(String::as_str));
        let near = if is_pattern(function) { String::new() } else { near(function, names) };
        return Err(format!("no function matches `{function}` in {}{near}", paths.join(", ")));
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

/// The files of a target.
///
/// # Errors
/// There are none; the error is the message.
pub fn files(catalog: &dyn Catalog, target: &str) -> Result<Vec<File>, String> {
    catalog.files(target).map_err(|error| match error {
        TargetError::Unusable(reason) => format!("`{target}`: {reason}"),
        TargetError::NotYet { looked_in } => {
            let near = near(target, catalog.known_targets().iter().map(String::as_str));
            format!(
                "no library `{target}` is installed{near}; `-p PID` finds what a process has loaded, `--lib {target}=PATH` names a \
                 file; looked in {}",
                super::setting::looked_in(&looked_in)
            )
        }
    })
}

/// The end of a message on a name that is not there.
fn near<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    did_you_mean(similar(name, known).get(..1).unwrap_or_default())
        .pop()
        .map_or_else(String::new, |near| format!(": {near}"))
}

/// Parses a part of an attach point: `cuInit`, `"cuMemAlloc"`, `/cu.*/`.
fn part(text: &str) -> SpecPart {
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
#[derive(Debug)]
pub struct FunctionName<'p> {
    /// `libcuda`
    pub target: &'p str,
    /// `cuInit`
    pub function: &'p str,
}

/// Splits `TARGET:FUNCTION`, `uprobe:TARGET:FUNCTION` or `FUNCTION` (of libcuda).
pub fn split(pattern: &str) -> FunctionName<'_> {
    let parts: Vec<&str> = pattern.splitn(3, ':').collect();
    let (target, function) = match parts[..] {
        [_, target, function] => (target, function),
        ["uprobe" | "u" | "uretprobe" | "ur", target] => (target, "*"),
        [target, function] => (target, function),
        _ => ("libcuda", pattern),
    };
    FunctionName { target, function }
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
