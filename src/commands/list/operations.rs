//! `-l 'cuda:*'`: operations of CUDA; with `-v` their arguments and functions.

use super::lister::{ListEntry, Lister, ProviderList, after_provider};
use anyhow::{Result, bail};
use cuda::operations::{APIS, Api, Operation};
use lang::syntax::glob::glob;

pub const LIST: ProviderList = ProviderList {
    providers: &["cuda", "cudart"],
    list: |lister, row, pattern| {
        let api = Api::of(row.names[0]).expect("a provider of operations is an API");
        list(lister, api, after_provider(pattern))
    },
    // A pattern without provider searches operations apart, since they are listed first.
    all: |_, _| Vec::new(),
};

/// Names of all operations: `cuda:alloc`.
pub fn all() -> impl Iterator<Item = String> {
    let named = |api: &'static Api| api.operations.iter().map(|o| format!("{}:{}", api.provider, o.name));
    APIS.iter().flat_map(named)
}

fn list(lister: &Lister, api: &'static Api, wanted: &str) -> Result<Vec<ListEntry>> {
    let provider = api.provider;
    let found: Vec<_> = api.operations.iter().filter(|operation| glob(wanted, operation.name)).collect();
    if found.is_empty() {
        let library = api.library.alias();
        bail!(
            "no operation matches `{provider}:{wanted}`; `{provider}:*` lists all, `uprobe:{library}:{wanted}` functions"
        );
    }
    let entry = |operation: &'static Operation| {
        lister.entry(format!("{provider}:{}", operation.name), || description(operation))
    };
    Ok(found.into_iter().map(entry).collect())
}

/// Description, arguments and functions of an operation.
pub fn description(operation: &'static Operation) -> Vec<String> {
    let functions: Vec<&str> =
        operation.variants.iter().flat_map(|variant| variant.functions).copied().collect();
    let args = operation.all_args().map(|arg| format!("{} {}: {}", arg.ty, arg.name, arg.doc));
    let doc = std::iter::once(operation.doc.to_owned());
    doc.chain(args).chain([format!("by {}", functions.join(", "))]).collect()
}
