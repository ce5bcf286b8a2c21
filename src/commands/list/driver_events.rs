//! `-l 'driver:*'`: events of NVIDIA's kernel driver; with `-v` the functions that perform them.

use super::lister::{ListEntry, Lister, ProviderList, after_provider};
use anyhow::{Result, bail};
use cuda::kernel_driver::{EVENTS, Event};
use lang::syntax::glob::glob;

pub const LIST: ProviderList = ProviderList {
    providers: &["driver"],
    list: |lister, _, pattern| list(lister, after_provider(pattern)),
    all: |_, _| Vec::new(),
};

/// Lists events of NVIDIA's kernel driver, with the functions that perform them.
fn list(lister: &Lister, pattern: &str) -> Result<Vec<ListEntry>> {
    let events = EVENTS.iter().filter(|event| glob(pattern, event.name));
    let listed: Vec<ListEntry> =
        events.map(|event| lister.entry(format!("driver:{}", event.name), || description(event))).collect();
    match listed.is_empty() {
        true => bail!("the driver has no event `{pattern}`"),
        false => Ok(listed),
    }
}

fn description(event: &Event) -> Vec<String> {
    let functions: Vec<&str> = event.functions.iter().map(|function| function.name).collect();
    vec![event.doc.to_owned(), format!("by {}", functions.join(", "))]
}
