//! `-l 'iter:*'`: iterators of the kernel; with `-v` the fields of their items.

use super::lister::{ListEntry, Lister, ProviderList, after_provider};
use super::tracepoints::fields;
use anyhow::{Result, bail};
use lang::catalog::Catalog;
use lang::syntax::glob::glob;

pub const LIST: ProviderList = ProviderList {
    providers: &["iter"],
    list: |lister, _, pattern| list(lister, after_provider(pattern)),
    all: |machine, _| machine.iterators().iter().map(|items| format!("iter:{items}")).collect(),
};

fn list(lister: &Lister, wanted: &str) -> Result<Vec<ListEntry>> {
    let found: Vec<String> =
        lister.machine.iterators().into_iter().filter(|items| glob(wanted, items)).collect();
    if found.is_empty() {
        bail!("no iterator matches `{wanted}`; `iter:*` lists all, from the kernel's BTF");
    }
    let entry =
        |items: String| lister.entry(format!("iter:{items}"), || fields(lister.machine.iterator(&items)));
    Ok(found.into_iter().map(entry).collect())
}
