//! The function part of an attach point: a name, a wildcard, a regular expression, a version, an offset, an address.
//!
//! ```text
//! cuMemAlloc            the live family           "cuMemAlloc"       exactly this symbol
//! cuMem*_v2             wildcard                  /cu(Mem|Ctx).*/    regular expression over the whole name
//! cudaMalloc@libcudart.so.12                      ELF symbol version
//! cuInit+16             16 bytes into it          0x1f00             an address
//! ./app@main.c:22       the code of a line of source
//! ```

use regex::bytes::{Regex, RegexBuilder};

use crate::syntax::ast::SpecPart;
use crate::syntax::glob::{self, glob, is_pattern};

/// The functions of a file that an attach point matches.
#[derive(Clone, Debug)]
pub enum FunctionPattern {
    /// By name.
    Named {
        /// The names.
        name: NamePattern,
        /// Only symbols of this ELF version.
        version: Option<String>,
        /// Bytes from the first instruction.
        offset: u64,
    },
    /// By virtual address in the file.
    Address(u64),
    /// The code of a source line, by debug information.
    Line {
        /// `main.c`, `src/main.c`: the end of a path.
        source: String,
        /// From 1.
        line: u64,
    },
}

/// Endings of names of source files.
const SOURCES: [&str; 10] = [".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".rs", ".go"];

/// A pattern of names.
#[derive(Clone, Debug)]
pub enum NamePattern {
    /// `"cuMemAlloc"`
    Exact(String),
    /// `cuMemAlloc`: in libraries with symbol families the live ones, elsewhere exactly this.
    Family(String),
    /// `cuMem*`, `cu?nit`, `cu[MC]*`
    Glob(String),
    /// `/cu.*Alloc/`
    Regex(Regex),
    /// `cpp:"ns::f"`, `cpp:"ns::f(int)"`, `cpp:"ns::*"`: names of C++, with or without parameters.
    Cpp(String),
}

/// Bytes of a regular expression: memory for its groups grows with their square.
const LONGEST_REGEX: usize = 1000;

impl FunctionPattern {
    /// Parses the part after the target. `Err`: the mistake.
    pub fn parse(part: &SpecPart) -> Result<FunctionPattern, String> {
        match part {
            SpecPart::Quoted(name) => Ok(FunctionPattern::plain(NamePattern::Exact(name.clone()))),
            SpecPart::QuotedAt(name, offset) => {
                let name = NamePattern::Exact(name.clone());
                Ok(FunctionPattern::Named { name, version: None, offset: offset_of(offset)? })
            }
            SpecPart::Regex(text) if text.len() > LONGEST_REGEX => {
                Err(format!("a regular expression has {LONGEST_REGEX} bytes at most"))
            }
            SpecPart::Regex(text) => RegexBuilder::new(&format!("^(?:{text})$"))
                .unicode(false)
                .build()
                .map(|regex| FunctionPattern::plain(NamePattern::Regex(regex)))
                .map_err(|error| format!("regular expression: {}", last_line(&error.to_string()))),
            SpecPart::Text(text) => FunctionPattern::parse_text(text),
            SpecPart::Option(_) => unreachable!("options of probes have been expanded"),
        }
    }

    /// `./app@main.c` and `22`: the file, and the line.
    pub fn line<'a>(target: &'a str, line: &str) -> Option<(&'a str, FunctionPattern)> {
        let (file, source) = target.rsplit_once('@')?;
        let line = line.parse().ok().filter(|_| SOURCES.iter().any(|end| source.ends_with(end)))?;
        Some((file, FunctionPattern::Line { source: source.into(), line }))
    }

    /// `cpp:"ns::f"`
    pub fn cpp(name: &str) -> FunctionPattern {
        FunctionPattern::plain(NamePattern::Cpp(name.to_owned()))
    }

    /// By name alone.
    pub fn plain(name: NamePattern) -> FunctionPattern {
        FunctionPattern::Named { name, version: None, offset: 0 }
    }

    fn parse_text(text: &str) -> Result<FunctionPattern, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return number(text)
                .map(FunctionPattern::Address)
                .ok_or_else(|| format!("`{text}` is not an address"));
        }
        let (text, offset) = match text.rsplit_once('+') {
            Some((name, offset)) => (name, offset_of(offset)?),
            None => (text, 0),
        };
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version.trim_start_matches('@').to_string())),
            None => (text, None),
        };
        if name.is_empty() {
            return Err("the name of the function is missing".into());
        }
        Ok(FunctionPattern::Named { name: NamePattern::from_text(name), version, offset })
    }
}

fn offset_of(text: &str) -> Result<u64, String> {
    match text {
        "" => Err("an offset in bytes is missing after `+`".into()),
        _ => number(text).ok_or_else(|| format!("`{text}` is not an offset in bytes")),
    }
}

impl NamePattern {
    /// Whether it stands for names that it does not spell out.
    pub fn is_pattern(&self) -> bool {
        matches!(self, NamePattern::Glob(_) | NamePattern::Regex(_))
    }

    /// A wildcard, or a name.
    pub fn from_text(name: &str) -> NamePattern {
        if is_pattern(name) { NamePattern::Glob(name.into()) } else { NamePattern::Family(name.into()) }
    }

    /// The name, unless it is a pattern.
    pub fn single(&self) -> Option<&str> {
        match self {
            NamePattern::Exact(name) | NamePattern::Family(name) => Some(name),
            NamePattern::Glob(_) | NamePattern::Regex(_) | NamePattern::Cpp(_) => None,
        }
    }

    /// The common beginning of all names that match.
    pub fn beginning(&self) -> &str {
        match self {
            NamePattern::Exact(name) => name,
            // The script may name the family with a version. The names of all members begin with that of the family.
            NamePattern::Family(family) => family.split('@').next().unwrap_or(family),
            NamePattern::Glob(pattern) => glob::beginning(pattern),
            NamePattern::Regex(_) | NamePattern::Cpp(_) => "",
        }
    }

    /// Whether a symbol of a file matches. `library` has families; `exported` tests for other symbols of the file.
    pub fn matches(
        &self,
        library: Option<cuda::Library>,
        symbol: &str,
        exported: impl Fn(&str) -> bool,
    ) -> bool {
        match (self, library) {
            (NamePattern::Family(family), Some(library)) => {
                cuda::is_live_member(library, family, symbol, exported)
            }
            (NamePattern::Exact(name) | NamePattern::Family(name), _) => name == symbol,
            (NamePattern::Glob(pattern), _) => glob(pattern, symbol),
            (NamePattern::Regex(regex), _) => regex.is_match(symbol.as_bytes()),
            (NamePattern::Cpp(name), _) => cpp_matches(name, symbol),
        }
    }
}

/// Whether the C++ name of a symbol matches: with parameters if the pattern has them.
fn cpp_matches(pattern: &str, symbol: &str) -> bool {
    // Most symbols do not contain the last part of the name.
    let plain = pattern.split('(').next().unwrap_or(pattern).rsplit("::").next().unwrap_or(pattern);
    let is_word = plain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !symbol.starts_with("_Z") || is_word && !symbol.contains(plain) {
        return false;
    }
    cpp_name(symbol, pattern.contains('(')).is_some_and(|name| glob(pattern, &name))
}

/// The C++ name of a symbol, optionally with its parameters.
pub fn cpp_name(symbol: &str, params: bool) -> Option<String> {
    let parsed = cpp_demangle::Symbol::new(symbol).ok()?;
    let options = cpp_demangle::DemangleOptions::new().no_return_type();
    parsed.demangle_with_options(&if params { options } else { options.no_params() }).ok()
}

/// `4096`, `0x1000`
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or(text).trim_start_matches("error: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpp() {
        for pattern in ["outer::inner::add", "outer::inner::add(int, char const*)", "outer::*::add", "*add"] {
            assert!(cpp_matches(pattern, "_ZN5outer5inner3addEiPKc"), "{pattern}");
        }
        for pattern in ["add", "outer::inner::ad", "outer::inner::add(int)", "outer::inner::sub"] {
            assert!(!cpp_matches(pattern, "_ZN5outer5inner3addEiPKc"), "{pattern}");
        }
        assert!(!cpp_matches("*", "malloc"));
    }

    #[test]
    fn parts() {
        let parse = |text: &str| FunctionPattern::parse(&SpecPart::Text(text.into()));
        assert!(matches!(parse("0x1f"), Ok(FunctionPattern::Address(0x1f))));
        assert!(parse("12q").is_err());
        assert!(parse("@v").is_err());
        match parse("cudaMalloc@@libcudart.so.12+0x10") {
            Ok(FunctionPattern::Named { name, version, offset }) => {
                assert_eq!(name.single(), Some("cudaMalloc"));
                assert_eq!((version.as_deref(), offset), (Some("libcudart.so.12"), 16));
            }
            other => panic!("{other:?}"),
        }
        assert!(FunctionPattern::parse(&SpecPart::Regex("cu(".into())).is_err());
    }
}
