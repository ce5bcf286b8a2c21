//! `iter:task`, `iter:task_file`: each item that an iterator of the kernel has, once.

use crate::diagnostics::wording::did_you_mean;
use crate::hir::{NameKind, Trigger};
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{EventSpot, Miss, Spot, Spots, finding};
use crate::resolve::tracepoint::{fields, pointees, record};
use crate::syntax::ast::{ProbeSpec, text};

/// A kind of items.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    words: |catalog, _, parts| match parts {
        [_] => catalog.iterators(),
        _ => Vec::new(),
    },
    args: |catalog, _, parts| match parts {
        [items, ..] => fields(catalog.iterator(items)),
        [] => Vec::new(),
    },
    ..ProviderProperties::PLAIN
};

/// `iter:ITEMS`
pub(super) fn items(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider) -> Spots {
    let [part] = &spec.parts[..] else {
        return provider.malformed(spec.span, "expected a kind of items; iterators are not pinned to files");
    };
    let items = text(&part.node);
    let catalog = finder.setting.catalog;
    match catalog.iterator(items) {
        Ok(found) => {
            let name = finder.names.intern(NameKind::Probe, &format!("iter:{items}"));
            let trigger = Trigger::Iterator { items: items.to_owned() };
            let (signature, pointees) = (Some(record(&found)), pointees(&found));
            Ok(vec![Spot::Event(EventSpot { trigger, name, signature, pointees })])
        }
        Err(reason) => {
            let all = catalog.iterators();
            let mut help = did_you_mean(&finder.diags.similar(items, all.iter().map(String::as_str)));
            if help.is_empty() && !all.is_empty() {
                help.push("`cudatrace -l 'iter:*'` lists them".into());
            }
            let message = format!("no iterator `{items}`: {reason}");
            Err(Miss::AbsentInKernel(finding("E0131", part.span, message, "", help)))
        }
    }
}
