//! `-l 'gpu:*'`: kinds of records of GPUs, from the table; with `-v` their arguments.

use super::lister::{ListEntry, Lister, ProviderList, after_provider};
use anyhow::{Result, bail};
use cuda::gpu::{KINDS, RecordKind};
use lang::expand::gpu::PROVIDER;
use lang::syntax::glob::glob;

pub const LIST: ProviderList = ProviderList {
    providers: &[PROVIDER],
    list: |lister, _, pattern| list(lister, after_provider(pattern)),
    all: |_, _| KINDS.iter().map(written).collect(),
};

/// The kind of `gpu:mem*`; `*` for `gpu`.
pub fn kind(pattern: &str) -> Option<&str> {
    let (provider, kind) = pattern.split_once(':').unwrap_or((pattern, "*"));
    provider.eq_ignore_ascii_case(PROVIDER).then_some(kind)
}

fn list(lister: &Lister, pattern: &str) -> Result<Vec<ListEntry>> {
    let found = KINDS.iter().filter(|kind| glob(pattern, kind.name));
    let listed: Vec<ListEntry> =
        found.map(|kind| lister.entry(written(kind), || description(kind))).collect();
    if listed.is_empty() {
        bail!("no kind of records matches `{PROVIDER}:{pattern}`; `{PROVIDER}:*` lists all");
    }
    Ok(listed)
}

/// When the probe runs, and its arguments as declarations.
pub fn description(kind: &RecordKind) -> Vec<String> {
    let mut lines = vec![kind.doc.to_owned()];
    lines.extend(kind.args().map(|arg| format!("{} {}: {}", arg.ty, arg.name, arg.description())));
    lines
}

fn written(kind: &RecordKind) -> String {
    format!("{PROVIDER}:{}", kind.name)
}
