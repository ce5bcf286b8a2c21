//! A change of the manifest's shape requires a new version, because a reader of the old version would misread it.

use serde_reflection::{ContainerFormat, Registry, Tracer, TracerConfig};
use std::path::Path;
use wire::manifest::{
    self, Attach, EventKind, Export, HiddenValue, Manifest, Message, MetricKind, Piece, Side,
};
use wire::map::{Agg, Keeps, MapValue, Storage};
use wire::trigger::{Accesses, TestKind, Trigger};
use wire::types::{Lookup, MissingProbes, StackMode};
use wire::{CounterKind, Hook, NameKind, Type};

/// Fields and variants of all types of a manifest.
fn shape() -> Registry {
    let mut tracer = Tracer::new(TracerConfig::default());
    // The tracer covers one variant of an enum inside another type, so each enum is traced separately.
    macro_rules! trace {
        ($($ty:ty),*) => { $(tracer.trace_simple_type::<$ty>().unwrap_or_else(|error| panic!("{}: {error}", stringify!($ty)));)* };
    }
    trace!(
        Type,
        NameKind,
        Lookup,
        StackMode,
        MissingProbes,
        Agg,
        Keeps,
        MapValue,
        Storage,
        CounterKind,
        Hook,
        Side,
        TestKind,
        Trigger,
        Accesses,
        Attach,
        Export,
        HiddenValue,
        Message
    );
    trace!(Piece, EventKind, MetricKind, Manifest);
    tracer.registry().expect("every enum is traced")
}

/// One line per field or variant.
fn lines(format: &ContainerFormat) -> String {
    match format {
        ContainerFormat::Struct(fields) => {
            fields.iter().map(|field| format!("  {}: {:?}\n", field.name, field.value)).collect()
        }
        ContainerFormat::Enum(variants) => {
            variants.values().map(|variant| format!("  {} {:?}\n", variant.name, variant.value)).collect()
        }
        other => format!("  {other:?}\n"),
    }
}

#[test]
fn another_shape_is_another_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/manifest.txt");
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let head = format!("version {}\n", manifest::VERSION);
    let types = shape().into_iter().map(|(name, format)| format!("\n{name}\n{}", lines(&format)));
    let found = head.clone() + &types.collect::<String>();
    if found == known {
        return;
    }
    assert!(
        !known.starts_with(&head),
        "the manifest has changed: raise `wire::manifest::VERSION`, then BLESS=1\n{found}"
    );
    assert!(std::env::var_os("BLESS").is_some(), "a new version: write its shape down with BLESS=1");
    std::fs::write(&path, found).expect("written");
}
