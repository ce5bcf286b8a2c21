//! `software:page-faults:100`, `hardware:cache-misses:1000000`: counters of the kernel and of the processor.

use crate::diagnostics::wording::{did_you_mean, listed};
use crate::hir::{PerfCounter, Trigger};
use crate::resolve::completion;
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Spots, wrong};
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::parse::whole_number;

/// `PERF_TYPE_HARDWARE`
pub(super) const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`
pub(super) const SOFTWARE: u32 = 1;

/// An event that is counted.
struct CountedEvent {
    /// Names, the usual one first.
    names: &'static [&'static str],
    counter: PerfCounter,
    /// Default of the number of events between two samples.
    period: u64,
}

const fn software(number: u64, names: &'static [&'static str], period: u64) -> CountedEvent {
    CountedEvent { names, counter: PerfCounter { kind: SOFTWARE, number }, period }
}

const fn hardware(number: u64, names: &'static [&'static str], period: u64) -> CountedEvent {
    CountedEvent { names, counter: PerfCounter { kind: HARDWARE, number }, period }
}

/// Numbers of linux/perf_event.h; default periods of bpftrace.
static EVENTS: &[CountedEvent] = &[
    software(7, &["alignment-faults"], 1),
    software(10, &["bpf-output"], 1),
    software(3, &["context-switches", "cs"], 1_000),
    software(0, &["cpu-clock", "cpu"], 1_000_000),
    software(4, &["cpu-migrations"], 1),
    software(9, &["dummy"], 1),
    software(8, &["emulation-faults"], 1),
    software(6, &["major-faults"], 1),
    software(5, &["minor-faults"], 100),
    software(2, &["page-faults", "faults"], 100),
    software(1, &["task-clock"], 1_000_000),
    hardware(8, &["backend-stalls"], 1_000_000),
    hardware(4, &["branch-instructions", "branches"], 100_000),
    hardware(5, &["branch-misses"], 100_000),
    hardware(6, &["bus-cycles"], 100_000),
    hardware(3, &["cache-misses"], 1_000_000),
    hardware(2, &["cache-references"], 1_000_000),
    hardware(0, &["cpu-cycles", "cycles"], 1_000_000),
    hardware(7, &["frontend-stalls"], 1_000_000),
    hardware(1, &["instructions"], 1_000_000),
    hardware(9, &["ref-cycles"], 1_000_000),
];

/// The events of a kind of counter.
fn events(kind: u32) -> impl Iterator<Item = &'static CountedEvent> {
    EVENTS.iter().filter(move |event| event.counter.kind == kind)
}

/// An event and a number: `page-faults:100`.
pub(super) const SOFTWARE_EVENTS: ProviderProperties = ProviderProperties {
    words: |_, _, parts| completion::first_part(parts, names(SOFTWARE)),
    ..ProviderProperties::PLAIN
};

/// The same for the processor's: `cache-misses:1000000`.
pub(super) const HARDWARE_EVENTS: ProviderProperties = ProviderProperties {
    words: |_, _, parts| completion::first_part(parts, names(HARDWARE)),
    ..ProviderProperties::PLAIN
};

/// The names of the events of a kind of counter.
fn names(kind: u32) -> Vec<&'static str> {
    events(kind).flat_map(|event| event.names).copied().collect()
}

/// `software:page-faults:100`; without a number the default.
pub(super) fn counter(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider, kind: u32) -> Spots {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    let ([name] | [name, _]) = parts[..] else {
        return provider.malformed(spec.span, "expected the name of an event");
    };
    let Some(event) = events(kind).find(|event| event.names.contains(&name)) else {
        let names = names(kind);
        let message = format!("no event `{name}` of `{}`", provider.names[0]);
        let mut help = did_you_mean(&finder.diags.similar(name, names.iter().copied()));
        if help.is_empty() {
            help.push(format!("events are {}", listed(names.iter().copied(), names.len())));
        }
        return wrong("E0106", spec.span, message, "", help);
    };
    let period = parts.get(1).filter(|count| !count.is_empty()).map(|count| (count, whole_number(count)));
    let (period, written) = match period {
        None => (event.period, String::new()),
        Some((_, Some(period))) if period > 0 => (period, format!(":{period}")),
        Some((count, _)) => {
            let message = format!("`{count}` is not a number of events between two samples");
            return wrong("E0106", spec.span, message, "", vec![format!("write `{}`", provider.form)]);
        }
    };
    let trigger = Trigger::Profile { counter: event.counter, period };
    Ok(vec![finder.event(trigger, &format!("{}:{name}{written}", provider.names[0]))])
}
