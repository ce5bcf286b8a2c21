//! `-l 'uprobe:libcuda:cuMem*'`: functions of files; with `-v` their parameters.

use super::lister::{ListEntry, Lister, ProviderList};
use super::structs;
use anyhow::Error;
use lang::resolve::function_list::{self, FunctionName, Match};

pub const LIST: ProviderList = ProviderList {
    providers: &["uprobe", "uretprobe"],
    list: |lister, row, pattern| {
        let FunctionName { target, function, .. } = function_list::split(pattern);
        let found = function_list::find(lister.machine, target, function).map_err(Error::msg)?;
        // A return probe has the span of the call.
        let returns = row.properties.spans;
        Ok(found.iter().map(|found| entry(lister, found, row.names[0], returns)).collect())
    },
    // A pattern without provider searches functions first.
    all: |_, _| Vec::new(),
};

/// The entry of a function; `provider` is `uprobe` or `uretprobe`.
pub fn entry(lister: &mut Lister, found: &Match, provider: &str, returns: bool) -> ListEntry {
    let name = format!("{provider}:{}:{}", found.file.path, found.name);
    let details = if lister.verbose { parameters(lister, found, returns) } else { Vec::new() };
    ListEntry { name, details }
}

/// The parameters of a function as C declarations, one per line, and for a return the result.
fn parameters(lister: &mut Lister, found: &Match, returns: bool) -> Vec<String> {
    match found.declared(lister.machine) {
        Ok(declared) => {
            let declared = declared.to_string();
            let result = structs::result(&declared).filter(|_| returns);
            structs::parameters(&declared).into_iter().chain(result).collect()
        }
        Err(absent) => {
            lister.unknown.count(found, absent);
            vec!["parameters not known: arg0, arg1, …".into()]
        }
    }
}
