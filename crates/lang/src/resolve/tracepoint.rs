//! Tracepoints of the kernel: which ones a pattern means, and what a body sees of their records.

use crate::catalog::{Catalog, RecordField, RecordKind, Tracepoint};
use crate::diagnostics::Diagnostics;
use crate::hir::{Param, Signature, Type};
use std::sync::Arc;

/// Category and event of the tracepoints that are meant; a name without wildcards stands for itself.
pub fn wanted(catalog: &dyn Catalog, category: &str, event: &str) -> Vec<(String, String)> {
    if !category.contains('*') && !event.contains('*') {
        return vec![(category.into(), event.into())];
    }
    let matches = |(c, e): &(String, String)| glob(category, c) && glob(event, e);
    catalog.tracepoints().into_iter().filter(matches).collect()
}

/// Names of the raw tracepoints that are meant; likewise.
pub fn raw_wanted(catalog: &dyn Catalog, event: &str) -> Vec<String> {
    match event.contains('*') {
        true => catalog.raw_tracepoints().into_iter().filter(|name| glob(event, name)).collect(),
        false => vec![event.into()],
    }
}

/// Whether a text fits a pattern in which `*` stands for anything.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // Each part where it comes first leaves the most to those behind it.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Tracepoints with names like this.
pub fn near(catalog: &dyn Catalog, category: &str, event: &str, diags: &Diagnostics) -> Vec<String> {
    if diags.are_many() {
        return Vec::new();
    }
    let all: Vec<String> = catalog.tracepoints().into_iter().map(|(c, e)| format!("{c}:{e}")).collect();
    diags.similar(&format!("{category}:{event}"), all.iter().map(String::as_str))
}

/// Tracepoints of this event, whatever their category.
pub fn of_event(catalog: &dyn Catalog, event: &str, diags: &Diagnostics) -> Vec<String> {
    if diags.are_many() {
        return Vec::new();
    }
    let named = catalog.tracepoints().into_iter().filter(|(_, name)| name == event);
    named.map(|(category, event)| format!("tracepoint:{category}:{event}")).collect()
}

/// The record as parameters, and where they lie in it. Text whose length only the record knows is `Str(0)`.
pub fn record(tracepoint: &Tracepoint) -> (Signature, Vec<u32>) {
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
    let signature = Signature { params, ret: Type::Void, named: None, hidden: false };
    (signature, tracepoint.fields.iter().map(|f| f.offset).collect())
}

/// Of each field the struct of the kernel that it points to.
pub fn pointees(tracepoint: &Tracepoint) -> Vec<Option<String>> {
    let pointee = |field: &RecordField| match &field.kind {
        RecordKind::PointerTo(name) => Some(name.clone()),
        _ => None,
    };
    tracepoint.fields.iter().map(pointee).collect()
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn stars_stand_for_anything() {
        let many = "*a".repeat(1000);
        for (pattern, text) in [
            ("*", ""),
            ("sched_*", "sched_switch"),
            ("*_e*t", "sys_exit"),
            ("a", "a"),
            ("a**a*", "aba"),
            (&many, &"a".repeat(1000)),
        ] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*b", "a"), ("*x", "xy"), ("ab*ba", "aba"), (&many, &"ab".repeat(1000))]
        {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }
}
