//! `cuda:alloc`, `cudart:alloc:start`: operations of CUDA, already expanded to functions.

use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::{did_you_mean, listed};
use crate::expand::operations;
use crate::resolve::completion;
use crate::resolve::cuda_libraries::cuda_library;
use crate::resolve::declaration::FunctionDeclaration;
use crate::resolve::finder::Finder;
use crate::resolve::function_spec::FunctionSpec;
use crate::resolve::pattern::{FunctionPattern, NamePattern};
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Call, Miss, Spot, Spots, wrong};
use crate::syntax::ast::{ProbeSpec, text};
use cuda::operations::{Api, OTHER};

/// An operation.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    in_files: true,
    patterns: true,
    spans: true,
    words: |_, row, parts| {
        let operations = Api::of(row.names[0]).into_iter().flat_map(|api| api.operations);
        completion::only_part(parts, operations.map(|operation| operation.name))
    },
    args: |_, row, parts| {
        let operation = Api::of(row.names[0]).and_then(|api| api.operation(parts.first()?));
        let args = operation.into_iter().flat_map(|operation| operation.all_args());
        args.map(|arg| arg.name.to_owned()).collect()
    },
};

impl Finder<'_, '_> {
    /// Functions of an operation. A driver may lack some of them.
    pub(super) fn operation(&mut self, spec: &ProbeSpec, provider: &Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        let start = parts.get(1) == Some(&operations::START);
        if operations::functions(spec).next().is_none() {
            let api = Api::of(provider.names[0]).expect("a provider of operations is an API");
            return unknown_operation(spec, api, parts.first().copied().unwrap_or(""));
        }
        let name = format!("{}:{}{}", provider.names[0], parts[0], if start { ":start" } else { "" });
        let mut spots = Vec::new();
        for written in operations::functions(spec) {
            // A function of an operation is found by its family, any other by its symbol.
            let pattern = FunctionPattern::plain(match operations::of_spec(spec) {
                Some(_) => NamePattern::from_text(written),
                None => NamePattern::Exact(written.to_owned()),
            });
            let operation = Some(name.as_str());
            let (at, library) = (spec.span, None);
            let wanted = FunctionSpec { provider, returns: !start, pattern, written, at, library, operation };
            match self.in_target(&wanted, operations::library(written).alias(), spec.span) {
                Ok(found) if wanted.by_name() => spots.extend(found),
                Ok(found) => {
                    let takes = |spot: &Spot| is_informative(spot, parts[0] == OTHER);
                    spots.extend(found.into_iter().filter(takes));
                }
                Err(Miss::Wrong(diagnostic)) => return Err(Miss::Wrong(diagnostic)),
                Err(Miss::Absent(_) | Miss::AbsentInKernel(_) | Miss::Silent) => {}
            }
        }
        if spots.is_empty() { Err(Miss::Silent) } else { Ok(spots) }
    }
}

/// The message about a wrong name, or about `:start` at an operation without.
fn unknown_operation(spec: &ProbeSpec, api: &'static Api, name: &str) -> Spots {
    let known = || api.operations.iter().map(|operation| operation.name);
    let written = format!("{}:{name}", api.provider);
    if let Some(operation) = api.operation(name) {
        let message = format!("`{written}` cannot be followed by that");
        let help = match operation.fires.has_start() {
            false => format!("write `{written}`: it is known only when a call returns"),
            true => format!("write `{written}`, or `{written}:start` for its beginning"),
        };
        return wrong("E0113", spec.span, message, "", vec![help]);
    }
    let mut help = did_you_mean(&similar(name, known()));
    if let Some(library) = cuda_library(name) {
        help = vec![format!(
            "a function is probed by `uprobe:{library}:{name}` or `uretprobe:{library}:{name}`"
        )];
    } else if help.is_empty() {
        help.push(format!("operations are {}", listed(known(), api.operations.len())));
    }
    wrong("E0113", spec.span, format!("no operation `{written}`"), "", help)
}

/// Whether a function does more than query the library's state, and returns a result code; with `others`, one that belongs to no
/// operation.
fn is_informative(spot: &Spot, others: bool) -> bool {
    match spot {
        Spot::Call(Call { signature: Some(FunctionDeclaration::Cuda(known)), .. }) => {
            let family = cuda::base_name(known.library, known.name);
            let left_out = |api: &Api| api.quiet.contains(&family) || others && api.names(family);
            ["CUresult", "cudaError_t"].contains(&cuda::ty(known.ret).c_name)
                && !Api::of_library(known.library).is_some_and(left_out)
        }
        _ => false,
    }
}
