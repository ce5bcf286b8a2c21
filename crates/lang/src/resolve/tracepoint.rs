//! Tracepoints of the kernel that a pattern matches, and the fields of their records.

use crate::catalog::{Catalog, RecordField, RecordKind, Tracepoint, VMLINUX};
use crate::diagnostics::Diagnostics;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::{NameKind, Param, Signature, Trigger, Type};
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{EventSpot, Miss, Spot, Spots, finding, wrong};
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::glob::{glob, is_pattern};
use std::sync::Arc;

/// A category and an event, which may be patterns.
pub(super) const RECORDS: ProviderProperties = ProviderProperties {
    patterns: true,
    words: |catalog, _, parts| {
        let all = catalog.tracepoints().into_iter();
        match parts {
            [category, _] => all.filter(|(known, _)| known == category).map(|(_, event)| event).collect(),
            _ => all.map(|(category, _)| format!("{category}:")).collect(),
        }
    },
    args: |catalog, _, parts| match parts {
        [category, event] => fields(catalog.tracepoint(category, event)),
        _ => Vec::new(),
    },
    ..ProviderProperties::PLAIN
};

/// An event, which may be a pattern.
pub(super) const RAW: ProviderProperties = ProviderProperties {
    patterns: true,
    words: |catalog, _, parts| match parts {
        [_] => catalog.raw_tracepoints(),
        _ => Vec::new(),
    },
    args: |catalog, _, parts| match parts {
        [event, ..] => fields(catalog.raw_tracepoint(event)),
        [] => Vec::new(),
    },
    ..ProviderProperties::PLAIN
};

/// Names of the fields of a record.
pub(super) fn fields(found: Result<Tracepoint, String>) -> Vec<String> {
    found.map(|found| found.fields).unwrap_or_default().into_iter().map(|field| field.name).collect()
}

/// Category and event of the tracepoints that match; a name without wildcards matches itself.
pub fn wanted(catalog: &dyn Catalog, category: &str, event: &str) -> Vec<(String, String)> {
    if !is_pattern(category) && !is_pattern(event) {
        return vec![(category.into(), event.into())];
    }
    let matches = |(c, e): &(String, String)| glob(category, c) && glob(event, e);
    catalog.tracepoints().into_iter().filter(matches).collect()
}

/// Names of the raw tracepoints that match; a name without wildcards matches itself.
pub fn raw_wanted(catalog: &dyn Catalog, event: &str) -> Vec<String> {
    match is_pattern(event) {
        true => catalog.raw_tracepoints().into_iter().filter(|name| glob(event, name)).collect(),
        false => vec![event.into()],
    }
}

/// Tracepoints with similar names.
pub fn near(catalog: &dyn Catalog, category: &str, event: &str, diags: &Diagnostics) -> Vec<String> {
    if diags.are_many() {
        return Vec::new();
    }
    let all: Vec<String> = catalog.tracepoints().into_iter().map(|(c, e)| format!("{c}:{e}")).collect();
    diags.similar(&format!("{category}:{event}"), all.iter().map(String::as_str))
}

/// Advice on a missing tracepoint: similar names, or a pattern that lists what there is.
fn help(near: &[String], pattern: Option<String>) -> Vec<String> {
    match (did_you_mean(near), pattern) {
        (help, Some(pattern)) if help.is_empty() => vec![format!("`cudatrace -l '{pattern}'` lists them")],
        (help, _) => help,
    }
}

/// A pattern for the tracepoints of a category, or for all if it has none; `None` if none can be listed.
fn pattern_of(catalog: &dyn Catalog, category: &str) -> Option<String> {
    let all = catalog.tracepoints();
    let is_known = all.iter().any(|(known, _)| glob(category, known));
    (!all.is_empty()).then(|| format!("tracepoint:{}:*", if is_known { category } else { "*" }))
}

/// Tracepoints with this event, in any category.
pub fn of_event(catalog: &dyn Catalog, event: &str, diags: &Diagnostics) -> Vec<String> {
    if diags.are_many() {
        return Vec::new();
    }
    let named = catalog.tracepoints().into_iter().filter(|(_, name)| name == event);
    named.map(|(category, event)| format!("tracepoint:{category}:{event}")).collect()
}

/// The record as parameters. A text whose length is in the record is `Str(0)`.
pub fn record(tracepoint: &Tracepoint) -> Signature {
    let text = || Type::Pointer(Arc::new(Type::Int { bytes: 1, signed: true }));
    let ty = |kind: &RecordKind| match kind {
        RecordKind::Int { bytes, signed } => Type::Int { bytes: *bytes, signed: *signed },
        RecordKind::Pointer { text: true } => text(),
        RecordKind::Texts => Type::Pointer(Arc::new(text())),
        RecordKind::Pointer { text: false } | RecordKind::PointerTo(_) => Type::Pointer(Arc::new(Type::Void)),
        RecordKind::Text(bytes) => Type::Str(*bytes),
        RecordKind::LocatedText => Type::Str(0),
        RecordKind::Array { bytes, signed, count } => {
            Type::Array(Arc::new(Type::Int { bytes: *bytes, signed: *signed }), *count)
        }
        RecordKind::Other(_) => Type::Void,
    };
    let params = tracepoint.fields.iter();
    let param = |f: &RecordField| Param { name: f.name.clone(), ty: ty(&f.kind), float: false, named: None };
    let params = params.map(param).collect();
    let offsets = tracepoint.fields.iter().map(|f| f.offset).collect();
    Signature { params, offsets, ret: Type::Void, named: None, hidden: false }
}

/// For each field, the kernel struct that it points to.
pub fn pointees(tracepoint: &Tracepoint) -> Vec<Option<String>> {
    let pointee = |field: &RecordField| match &field.kind {
        RecordKind::PointerTo(name) => Some(name.clone()),
        _ => None,
    };
    tracepoint.fields.iter().map(pointee).collect()
}

impl Finder<'_, '_> {
    pub(super) fn tracepoints(&mut self, spec: &ProbeSpec, provider: &Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        let [category, event] = parts[..] else {
            let message = "expected a category and an event";
            let named = of_event(self.setting.catalog, parts.first().unwrap_or(&""), self.diags);
            return match named.is_empty() {
                true => provider.malformed(spec.span, message),
                false => wrong("E0103", spec.span, message.into(), "", did_you_mean(&named)),
            };
        };
        let wanted = wanted(self.setting.catalog, category, event);
        let found: Result<Vec<Spot>, String> =
            wanted.iter().map(|(category, event)| self.tracepoint(category, event)).collect();
        match found {
            Ok(spots) if !spots.is_empty() => Ok(spots),
            missing => {
                let reason = missing.err().unwrap_or_else(|| "none matches".into());
                let near = near(self.setting.catalog, category, event, self.diags);
                let message = format!("no tracepoint `{category}:{event}`: {reason}");
                let help = help(&near, pattern_of(self.setting.catalog, category));
                let mut finding = finding("E0112", spec.span, message, "", help);
                if let Some(of_driver) = cuda::kernel_driver::tracepoint(category, event) {
                    finding.notes.push(of_driver.exists.into());
                    finding.help = vec![of_driver.instead.into()];
                }
                Err(Miss::AbsentInKernel(finding))
            }
        }
    }

    fn tracepoint(&mut self, category: &str, event: &str) -> Result<Spot, String> {
        let found = self.setting.catalog.tracepoint(category, event)?;
        let (signature, pointees) = (record(&found), pointees(&found));
        let name = self.names.intern(NameKind::Probe, &format!("tracepoint:{category}:{event}"));
        let trigger = Trigger::Tracepoint { category: category.into(), event: event.into() };
        Ok(Spot::Event(EventSpot { trigger, name, signature: Some(signature), pointees }))
    }

    pub(super) fn raw_tracepoints(&mut self, spec: &ProbeSpec, provider: &Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        // The module of the event, or its category as a tracepoint, is optional.
        let (module, event) = match parts[..] {
            [event] => (VMLINUX, event),
            [module, event] => (module, event),
            _ => return provider.malformed(spec.span, "expected an event"),
        };
        let has = |(category, name): &(String, String)| glob(module, category) && glob(event, name);
        let is_known = glob(module, VMLINUX) || self.setting.catalog.tracepoints().iter().any(has);
        let wanted = match is_known {
            true => raw_wanted(self.setting.catalog, event),
            false => return self.no_raw_tracepoint(spec, event, &format!("`{module}` has none")),
        };
        let found: Result<Vec<Spot>, String> =
            wanted.iter().map(|event| self.raw_tracepoint(event)).collect();
        match found {
            Ok(spots) if !spots.is_empty() => Ok(spots),
            Ok(_) => self.no_raw_tracepoint(spec, event, "none matches"),
            Err(reason) => self.no_raw_tracepoint(spec, event, &reason),
        }
    }

    fn no_raw_tracepoint(&self, spec: &ProbeSpec, event: &str, reason: &str) -> Spots {
        let all = self.setting.catalog.raw_tracepoints();
        let help = match all.iter().any(|known| known == event) {
            true => vec![format!("write `{}:{event}`", spec.provider.node)],
            false => help(
                &self.diags.similar(event, all.iter().map(String::as_str)),
                (!all.is_empty()).then(|| "rawtracepoint:*".into()),
            ),
        };
        let message = format!("no raw tracepoint `{event}`: {reason}");
        Err(Miss::AbsentInKernel(finding("E0112", spec.span, message, "", help)))
    }

    fn raw_tracepoint(&mut self, event: &str) -> Result<Spot, String> {
        let found = self.setting.catalog.raw_tracepoint(event)?;
        let (signature, pointees) = (record(&found), pointees(&found));
        let name = self.names.intern(NameKind::Probe, &format!("rawtracepoint:{event}"));
        let trigger = Trigger::RawTracepoint { event: event.into() };
        Ok(Spot::Event(EventSpot { trigger, name, signature: Some(signature), pointees }))
    }
}
