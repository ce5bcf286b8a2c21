//! `gpu:kernel`: records of what a GPU did. The agent, a library in the traced process, calls a function with a batch of them, which is
//! probed.

use cuda::gpu::{KINDS, RecordKind};

use crate::diagnostics::suggest::similar;
use crate::diagnostics::wording::{did_you_mean, listed};
use crate::expand::gpu::{PROVIDER, kind_of};
use crate::hir::{Hook, NameKind, Site};
use crate::resolve::completion;
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Call, Miss, Spot, Spots, finding, wrong};
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::glob::glob;

/// A kind of records, which may be a pattern.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    patterns: true,
    words: |_, _, parts| completion::only_part(parts, KINDS.iter().map(|kind| kind.name)),
    args: |_, _, parts| {
        let pattern = parts.first().unwrap_or(&"");
        let kinds = KINDS.iter().filter(|kind| glob(pattern, kind.name));
        kinds.flat_map(RecordKind::args).map(|arg| arg.name.to_owned()).collect()
    },
    ..ProviderProperties::PLAIN
};

impl Finder<'_, '_> {
    /// The agent's function for a kind of records.
    pub(super) fn gpu(&mut self, spec: &ProbeSpec, provider: &Provider) -> Spots {
        let Some(kind) = kind_of(spec) else { return unknown(spec, provider) };
        let absent = |message: String, help: &str| {
            Err(Miss::Absent(finding("E0128", spec.span, message, "", vec![help.into()])))
        };
        let Some(file) = self.setting.catalog.agent() else {
            let message = format!("`{PROVIDER}:` probes need the agent, which is not available here");
            return absent(message, "it is for x86-64, and needs memory for its file: `-v` has the reason");
        };
        let functions = self.setting.catalog.functions(file.id);
        let is_named = |name: &String| name == kind.function;
        let Some(function) = functions.iter().find(|function| function.names.iter().any(is_named)) else {
            let message = format!("the agent `{}` has no function `{}`", file.path, kind.function);
            return absent(message, "it is part of another version of cudatrace");
        };
        let place = self.place(file.id, function.offset, false);
        let probe = self.names.intern(NameKind::Probe, &format!("{PROVIDER}:{}", kind.name));
        let known = self.function(kind.function, None);
        self.use_file(&file);
        let site = Site {
            file: Some(file.id),
            module: "",
            place,
            semaphore: 0,
            case: 0,
            func: known.func,
            api: known.api,
            probe,
        };
        Ok(vec![Spot::Call(Call {
            hook: Hook::Uprobe,
            returns: false,
            site,
            symbol: kind.function.into(),
            signature: None,
            undeclared_yet: false,
            absent: None,
            by_name: true,
            passed: None,
        })])
    }
}

/// The message about an attach point that is none.
fn unknown(spec: &ProbeSpec, provider: &Provider) -> Spots {
    let known = || KINDS.iter().map(|kind: &RecordKind| kind.name);
    let kinds = format!("kinds are {}", listed(known(), KINDS.len()));
    match &spec.parts[..] {
        [] => provider.malformed(spec.span, "expected a kind of records"),
        [part] if text(&part.node).is_empty() => {
            wrong("E0129", spec.span, "the kind of records is missing".into(), "", vec![kinds])
        }
        [part] => {
            let name = text(&part.node);
            let help = match &did_you_mean(&similar(name, known()))[..] {
                [] => vec![kinds],
                near => near.to_vec(),
            };
            wrong("E0129", part.span, format!("a GPU has no records `{PROVIDER}:{name}`"), "", help)
        }
        [kind, rest, ..] => {
            let help = vec![format!("write `{PROVIDER}:{}`", text(&kind.node))];
            wrong("E0129", rest.span, "a kind of records cannot be followed by that".into(), "", help)
        }
    }
}
