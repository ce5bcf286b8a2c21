//! `-l 'interval:*'`: units of timers and events of counters, without the number that must follow: `interval:s:`.

use super::lister::{ListEntry, ProviderList, after_provider};
use anyhow::{Result, bail};
use host::Machine;
use lang::resolve::providers::Provider;
use lang::syntax::glob::glob;

pub const LIST: ProviderList = ProviderList {
    providers: &["interval", "profile", "software", "hardware"],
    list: |lister, row, pattern| list(pattern, names(lister.machine, row)),
    all: names,
};

/// `interval:s:`, `software:page-faults:`
fn names(machine: &Machine, provider: &Provider) -> Vec<String> {
    let mut words = (provider.properties.words)(machine, provider, &[""]);
    words.sort_unstable_by(|a, b| a.trim_end_matches(':').cmp(b.trim_end_matches(':')));
    words.iter().map(|word| format!("{}:{word}", provider.names[0])).collect()
}

fn list(pattern: &str, names: Vec<String>) -> Result<Vec<ListEntry>> {
    let wanted = after_provider(pattern).trim_end_matches(':');
    let named = |listed: &String| {
        let name = listed.split(':').nth(1).unwrap_or_default();
        glob(wanted.trim_end_matches(":*"), name)
    };
    let found: Vec<String> = names.into_iter().filter(named).collect();
    if found.is_empty() {
        bail!("nothing matches `{pattern}`");
    }
    Ok(found.into_iter().map(ListEntry::plain).collect())
}
