//! `usdt:TARGET:PROVIDER:NAME`: static tracepoints in user programs.
//!
//! A marker is a nop instruction and a note in the file with its address and the locations of its arguments. One name may be at
//! several addresses, with different locations of arguments at each: see `grouping`.

use std::collections::BTreeSet;

use crate::catalog::{Catalog, File, FileId, Marker, Place, TargetError};
use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::{Hook, NameKind, Site};
use crate::resolve::completion;
use crate::resolve::finder::{EVERYTHING, Finder};
use crate::resolve::pattern::{FunctionPattern, NamePattern};
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Call, Miss, Spot, Spots, finding};
use crate::source::span::Span;
use crate::syntax::ast::{ProbeSpec, SpecPart, text};

/// A target, a provider and a marker, which may be patterns.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    in_files: true,
    patterns: true,
    words: |catalog, _, parts| match parts {
        [target, _] => names(catalog, &catalog.files(target).unwrap_or_default()).collect(),
        _ => completion::targets(catalog),
    },
    ..ProviderProperties::PLAIN
};

/// `provider:name` of the markers of files.
fn names<'c>(catalog: &'c dyn Catalog, files: &'c [File]) -> impl Iterator<Item = String> + 'c {
    let all = files.iter().flat_map(move |file| catalog.markers(file.id));
    all.map(|marker| format!("{}:{}", marker.provider, marker.name))
}

/// An attach point of markers.
struct MarkerSpec<'s> {
    provider: Option<NamePattern>,
    name: NamePattern,
    /// `provider:name` as written.
    written: String,
    target: &'s str,
    span: Span,
}

impl MarkerSpec<'_> {
    fn matches(&self, marker: &Marker) -> bool {
        let matches = |pattern: &NamePattern, text: &str| pattern.matches(None, text, |_| false);
        self.provider.as_ref().is_none_or(|provider| matches(provider, &marker.provider))
            && matches(&self.name, &marker.name)
    }

    fn by_name(&self) -> bool {
        self.name.single().is_some()
    }
}

impl Finder<'_, '_> {
    /// The places of the markers that match an attach point.
    pub(super) fn markers(&mut self, spec: &ProbeSpec, row: &Provider) -> Spots {
        let (target, provider, name) = match spec.parts.as_slice() {
            [target, name] => (target, None, name),
            [target, provider, name] => (target, Some(provider), name),
            _ => return row.malformed(spec.span, "expected a target, a provider and a name"),
        };
        let provider = provider.filter(|part| !text(&part.node).is_empty());
        let Some(marker) = pattern(&name.node) else {
            return row.malformed(name.span, "the name of a USDT marker has no version and no offset");
        };
        let of_provider = match provider.map(|part| pattern(&part.node)) {
            Some(None) => {
                return row.malformed(spec.span, "expected the provider of a USDT marker");
            }
            given => given.flatten(),
        };
        let written = provider.map_or(String::new(), |part| format!("{}:", text(&part.node)));
        let wanted = MarkerSpec {
            provider: of_provider,
            name: marker,
            written: format!("{written}{}", text(&name.node)),
            target: if text(&target.node).is_empty() { EVERYTHING } else { text(&target.node) },
            span: Span { end: name.span.end, ..provider.map_or(name.span, |part| part.span) },
        };
        match self.files(wanted.target) {
            Ok(files) => self.marked(&wanted, files),
            Err(_) if self.setting.only_files.is_some() => Err(Miss::Silent),
            Err(TargetError::NotYet { looked_in }) => Ok(vec![self.not_yet(&wanted, target.span, looked_in)]),
            Err(TargetError::Unusable(reason)) => self.no_target(wanted.target, target.span, &reason),
        }
    }

    fn marked(&mut self, wanted: &MarkerSpec, files: Vec<File>) -> Spots {
        let catalog = self.setting.catalog;
        let mut spots = Vec::new();
        for file in &files {
            let found: Vec<&Marker> = catalog.markers(file.id).iter().filter(|m| wanted.matches(m)).collect();
            if !found.is_empty() {
                self.use_file(file);
            }
            spots.extend(found.into_iter().map(|marker| self.at_marker(wanted, file, marker)));
        }
        match spots.is_empty() {
            false => Ok(spots),
            true if self.setting.only_files.is_some() => Err(Miss::Silent),
            true => self.no_marker(wanted, &files),
        }
    }

    fn at_marker(&mut self, wanted: &MarkerSpec, file: &File, marker: &Marker) -> Spot {
        let place = Place { offset: marker.offset, stack_shift: 0 };
        let probe = format!("{}:{}:{}", file.path, marker.provider, marker.name);
        let mut site = self.marker_site(Some(file.id), place, &marker.name, &probe);
        site.semaphore = marker.semaphore;
        let symbol = format!("{}:{}", marker.provider, marker.name);
        let passed = Some(marker.args.clone());
        let (signature, absent, by_name) = (None, None, wanted.by_name());
        Spot::Call(Call {
            hook: Hook::Uprobe,
            returns: false,
            site,
            symbol,
            signature,
            absent,
            by_name,
            passed,
            undeclared_yet: false,
        })
    }

    fn marker_site(&mut self, file: Option<FileId>, place: Place, name: &str, probe: &str) -> Site {
        Site {
            module: "",
            file,
            place,
            semaphore: 0,
            case: 0,
            func: self.names.intern(NameKind::Func, name),
            api: self.names.intern(NameKind::Api, name),
            probe: self.names.intern(NameKind::Probe, &format!("usdt:{probe}")),
        }
    }

    /// A marker of a library that no process has mapped yet; its places are known when a process maps it.
    fn not_yet(&mut self, wanted: &MarkerSpec, span: Span, looked_in: Vec<String>) -> Spot {
        self.wait_for(wanted.target, span, looked_in);
        let probe = format!("{}:{}", wanted.target, wanted.written);
        let site = self.marker_site(None, Place::default(), &wanted.written, &probe);
        let symbol = wanted.written.clone();
        Spot::Call(Call {
            hook: Hook::Uprobe,
            undeclared_yet: false,
            returns: false,
            site,
            symbol,
            signature: None,
            absent: None,
            by_name: wanted.by_name(),
            passed: None,
        })
    }

    fn no_marker(&self, wanted: &MarkerSpec, files: &[File]) -> Spots {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let names: BTreeSet<String> = names(self.setting.catalog, files).collect();
        let message = format!("no USDT marker `{}` in `{}`", wanted.written, paths.join("`, `"));
        let help = match names.is_empty() {
            true => vec!["this file has no USDT markers; `uprobe` probes its functions".to_string()],
            false => self.near_markers(wanted, &names),
        };
        Err(Miss::Absent(finding("E0114", wanted.span, message, "not in this file", help)))
    }

    fn near_markers(&self, wanted: &MarkerSpec, names: &BTreeSet<String>) -> Vec<String> {
        let near = match wanted.provider {
            Some(_) => similar(&wanted.written, names.iter().map(String::as_str)),
            None => similar(&wanted.written, names.iter().filter_map(|full| Some(full.split_once(':')?.1))),
        };
        match near.is_empty() {
            false => did_you_mean(&near),
            true => vec![format!("`cudatrace -l 'usdt:{}:*'` lists its {}", wanted.target, names.len())],
        }
    }
}

/// The pattern of a name; `None` if it has a version or an offset.
fn pattern(part: &SpecPart) -> Option<NamePattern> {
    match FunctionPattern::parse(part) {
        Ok(FunctionPattern::Named { name, version: None, offset: 0 }) => Some(name),
        _ => None,
    }
}
