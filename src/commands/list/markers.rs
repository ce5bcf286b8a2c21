//! `-l 'usdt:TARGET:PROVIDER:NAME'`: markers of files; with `-v` the types of their arguments.

use super::lister::{ListEntry, ProviderList};
use anyhow::{Error, Result, bail};
use host::Machine;
use lang::catalog::{Catalog, File, Marker, MarkerArg, MarkerPlace};
use lang::resolve::function_list;
use lang::syntax::glob::glob;
use std::collections::{BTreeSet, HashSet};

pub const LIST: ProviderList = ProviderList {
    providers: &["usdt"],
    list: |lister, _, pattern| list(lister.machine, pattern, lister.verbose),
    // A pattern without provider searches the markers of traced processes only.
    all: |_, _| Vec::new(),
};

/// `usdt:PATH:PROVIDER:NAME` of the markers of a file, without duplicates.
pub fn of_file(machine: &Machine, file: &File) -> Vec<String> {
    let shown = |marker: &Marker| format!("usdt:{}:{}:{}", file.path, marker.provider, marker.name);
    let all: BTreeSet<String> = machine.markers(file.id).iter().map(shown).collect();
    all.into_iter().collect()
}

/// Markers of `usdt:TARGET`, `usdt:TARGET:NAME`, `usdt:TARGET:PROVIDER:NAME`, without duplicates.
fn list(machine: &Machine, pattern: &str, verbose: bool) -> Result<Vec<ListEntry>> {
    let parts: Vec<&str> = pattern.split(':').skip(1).collect();
    let (target, provider, name) = match parts[..] {
        [target] => (target, "*", "*"),
        [target, name] => (target, "*", name),
        [target, provider, name] => (target, provider, name),
        _ => bail!("write `usdt:TARGET:PROVIDER:NAME`"),
    };
    let files = function_list::files(machine, target).map_err(Error::msg)?;
    let matches = |pattern: &str, text: &str| glob(pattern, text);
    let (mut seen, mut listed) = (HashSet::new(), Vec::new());
    for file in &files {
        for marker in machine.markers(file.id) {
            let shown = format!("usdt:{}:{}:{}", file.path, marker.provider, marker.name);
            let args = marker.args.iter().enumerate().filter(|_| verbose);
            let details: Vec<String> = args.map(|(at, arg)| format!("{} arg{at}", shown_type(arg))).collect();
            let wanted = matches(provider, &marker.provider) && matches(name, &marker.name);
            if wanted && seen.insert((shown.clone(), details.clone())) {
                listed.push(ListEntry { name: shown, details });
            }
        }
    }
    if listed.is_empty() {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        bail!("no USDT marker matches `{provider}:{name}` in {}", paths.join(", "));
    }
    Ok(listed)
}

fn shown_type(arg: &MarkerArg) -> String {
    match &arg.place {
        MarkerPlace::Unreadable(written) => format!("unreadable ({written})"),
        _ => format!("{}int{}", if arg.signed { "" } else { "u" }, 8 * arg.bytes),
    }
}
