//! Common parts of `-l`, which lists attach points: an entry, the row that says how a provider lists its points, and the note on functions
//! whose parameters are unknown.

use crate::console::Messages;
use anyhow::Result;
use host::Machine;
use lang::catalog::debug_info::{Absent, WITH_INFORMATION};
use lang::diagnostics::wording::listed;
use lang::resolve::function_list::Match;
use lang::resolve::providers::{self, Provider, ProviderMatch};
use std::collections::{BTreeMap, BTreeSet};

/// An attach point.
pub struct ListEntry {
    /// `uprobe:/usr/lib/libcuda.so.1:cuInit`
    pub name: String,
    /// With `-v` its parameters, one per line, and other facts.
    pub details: Vec<String>,
}

impl ListEntry {
    pub fn plain(name: String) -> ListEntry {
        ListEntry { name, details: Vec::new() }
    }
}

/// A row of the table of lists.
pub struct ProviderList {
    /// Long names of the providers with this list.
    pub providers: &'static [&'static str],
    /// Lists the attach points that match a pattern with the provider: `gpu`, `gpu:mem*`.
    pub list: fn(&mut Lister, &Provider, pattern: &str) -> Result<Vec<ListEntry>>,
    /// Names among which a pattern without provider searches.
    pub all: fn(&Machine, &Provider) -> Vec<String>,
}

impl ProviderList {
    pub fn rows(&self) -> impl Iterator<Item = &'static Provider> {
        self.providers.iter().filter_map(|name| match providers::find(name) {
            ProviderMatch::Known(row) => Some(row),
            ProviderMatch::Absent(_) | ProviderMatch::Unknown => None,
        })
    }
}

/// The part of a pattern after the provider: `mem*` of `gpu:mem*`, `*` of `gpu`.
pub fn after_provider(pattern: &str) -> &str {
    pattern.split_once(':').map_or("*", |(_, rest)| rest)
}

/// The machine whose attach points are listed.
pub struct Lister<'m> {
    pub machine: &'m Machine,
    /// Whether entries have details.
    pub verbose: bool,
    pub unknown: UnknownParameters,
}

impl<'m> Lister<'m> {
    pub fn new(machine: &'m Machine, verbose: bool) -> Lister<'m> {
        Lister { machine, verbose, unknown: UnknownParameters::default() }
    }

    /// An entry, with details if they are printed.
    pub fn entry(&self, name: String, details: impl FnOnce() -> Vec<String>) -> ListEntry {
        ListEntry { name, details: if self.verbose { details() } else { Vec::new() } }
    }
}

/// Reasons why parameters are unknown, as the text around the files' names: number of functions, and files.
#[derive(Default)]
pub struct UnknownParameters(BTreeMap<(&'static str, String), (usize, BTreeSet<String>)>);

impl UnknownParameters {
    /// Largest number of files that are named in a message.
    const NAMED: usize = 3;

    pub fn count(&mut self, found: &Match, absent: Absent) {
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
    pub fn report(&self, messages: &Messages) {
        for ((before, after), (count, paths)) in &self.0 {
            let functions = if *count == 1 { "function" } else { "functions" };
            let paths = listed(paths.iter().map(String::as_str), UnknownParameters::NAMED);
            messages
                .note(&format!("parameters of {count} {functions} are not known: {before}{paths}{after}"));
        }
    }
}
