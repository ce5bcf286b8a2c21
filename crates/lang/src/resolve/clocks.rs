//! Probes that fire on time, on counters, on signals, and tests: no function is searched for.

use crate::diagnostics::wording::{did_you_mean, listed};
use crate::hir::{NameKind, PerfCounter, Trial, Trigger};
use crate::resolve::functions::Finder;
use crate::resolve::providers;
use crate::resolve::providers::{Provider, ProviderKind, SIGNALS};
use crate::resolve::spot::{Spot, Spots, malformed, wrong};
use crate::syntax::ast::{ProbeSpec, text};

impl Finder<'_, '_> {
    pub(super) fn bare(&mut self, spec: &ProbeSpec, provider: &'static Provider, trigger: Trigger) -> Spots {
        match spec.parts.first() {
            None => Ok(vec![self.timed(trigger, &spec.provider.node)]),
            Some(part) => {
                malformed(part.span, format!("`{}` takes nothing after it", provider.names[0]), provider)
            }
        }
    }

    pub(super) fn timer(&mut self, spec: &ProbeSpec, provider: &'static Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        match providers::period(&parts) {
            Ok(period_ns) => {
                let trigger = match provider.kind {
                    ProviderKind::Interval => Trigger::Interval { period_ns },
                    _ => Trigger::Profile { counter: PerfCounter::CPU_CLOCK, period: period_ns },
                };
                Ok(vec![self.timed(trigger, &format!("{}:{}", provider.names[0], parts.join(":")))])
            }
            Err(reason) => wrong("E0106", spec.span, reason, "", vec![providers::way_out(provider, &parts)]),
        }
    }

    /// `software:page-faults:100`; without a number the usual one.
    pub(super) fn counter(&mut self, spec: &ProbeSpec, provider: &'static Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        let ([name] | [name, _]) = parts[..] else {
            return malformed(spec.span, "expected the name of an event".into(), provider);
        };
        let Some(event) = providers::event(provider.kind, name) else {
            let names: Vec<&str> = providers::events(provider.kind).map(|event| event.names[0]).collect();
            let message = format!("no event `{name}` of `{}`", provider.names[0]);
            let mut help = did_you_mean(&self.diags.similar(name, names.iter().copied()));
            if help.is_empty() {
                help.push(format!("events are {}", listed(names.iter().copied(), names.len())));
            }
            return wrong("E0106", spec.span, message, "", help);
        };
        let period =
            parts.get(1).filter(|count| !count.is_empty()).map(|count| (count, count.parse::<u64>()));
        let (period, written) = match period {
            None => (event.period, String::new()),
            Some((_, Ok(period))) if period > 0 => (period, format!(":{period}")),
            Some((count, _)) => {
                let message = format!("`{count}` is not a number of events between two samples");
                return wrong("E0106", spec.span, message, "", vec![format!("write `{}`", provider.form)]);
            }
        };
        let trigger = Trigger::Profile { counter: event.counter, period };
        Ok(vec![self.timed(trigger, &format!("{}:{name}{written}", provider.names[0]))])
    }

    pub(super) fn signal(&mut self, spec: &ProbeSpec, provider: &'static Provider) -> Spots {
        let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
        let ["signal", wanted] = parts[..] else {
            return malformed(spec.span, "expected `signal` and the name of a signal".into(), provider);
        };
        match SIGNALS.iter().find(|(name, _)| *name == wanted) {
            Some((name, number)) => {
                Ok(vec![self.timed(Trigger::Signal { number: *number }, &format!("self:signal:{name}"))])
            }
            None => {
                let message = format!("`{wanted}` is not a signal that probes may wait for");
                malformed(spec.span, message, provider)
            }
        }
    }

    pub(super) fn trial(&mut self, spec: &ProbeSpec, provider: &'static Provider, kind: Trial) -> Spots {
        match spec.parts.as_slice() {
            [name] => {
                let name = text(&name.node);
                let trigger = Trigger::Trial { kind, name: name.to_owned() };
                Ok(vec![self.timed(trigger, &format!("{}:{name}", kind.word()))])
            }
            _ => malformed(spec.span, "expected one name".into(), provider),
        }
    }

    pub(super) fn timed(&mut self, trigger: Trigger, name: &str) -> Spot {
        Spot::Timed {
            trigger,
            name: self.names.intern(NameKind::Probe, name),
            signature: None,
            pointees: vec![],
        }
    }
}
