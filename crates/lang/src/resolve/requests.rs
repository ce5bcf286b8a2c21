//! Bodies that the tracer runs itself: `BEGIN`, `END`, `self:signal:SIGUSR1`, `test:NAME`, `bench:NAME`.

use crate::hir::{TestKind, Trigger};
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::Spots;
use crate::syntax::ast::{ProbeSpec, text};

/// Signals without another meaning, with their numbers on x86 and Arm.
static SIGNALS: &[(&str, i32)] = &[("SIGUSR1", 10), ("SIGUSR2", 12)];

/// `signal` and the name of a signal.
pub(super) const SIGNAL_PROBES: ProviderProperties = ProviderProperties {
    words: |_, _, parts| {
        let names = SIGNALS.iter().map(|(name, _)| name);
        match parts {
            [_] => names.map(|name| format!("signal:{name}")).collect(),
            _ => names.map(|name| (*name).to_owned()).collect(),
        }
    },
    ..ProviderProperties::PLAIN
};

/// `BEGIN`, `END`
pub(super) fn bare(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider, trigger: Trigger) -> Spots {
    match spec.parts.first() {
        None => Ok(vec![finder.event(trigger, &spec.provider.node)]),
        Some(part) => {
            provider.malformed(part.span, &format!("`{}` takes nothing after it", provider.names[0]))
        }
    }
}

/// `self:signal:SIGUSR1`
pub(super) fn signal(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider) -> Spots {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    let ["signal", wanted] = parts[..] else {
        return provider.malformed(spec.span, "expected `signal` and the name of a signal");
    };
    match SIGNALS.iter().find(|(name, _)| *name == wanted) {
        Some((name, number)) => {
            Ok(vec![finder.event(Trigger::Signal { number: *number }, &format!("self:signal:{name}"))])
        }
        None => {
            provider.malformed(spec.span, &format!("`{wanted}` is not a signal that probes may wait for"))
        }
    }
}

/// `test:NAME`, `bench:NAME`
pub(super) fn test(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider, kind: TestKind) -> Spots {
    match spec.parts.as_slice() {
        [name] => {
            let name = text(&name.node);
            let trigger = Trigger::Test { kind, name: name.to_owned() };
            Ok(vec![finder.event(trigger, &format!("{}:{name}", kind.word()))])
        }
        _ => provider.malformed(spec.span, "expected one name"),
    }
}
