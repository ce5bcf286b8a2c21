//! `interval:s:1`, `profile:hz:99`: timers.

use crate::hir::{PerfCounter, Trigger};
use crate::resolve::completion;
use crate::resolve::finder::Finder;
use crate::resolve::provider::{Provider, ProviderProperties};
use crate::resolve::spot::{Spots, wrong};
use crate::syntax::ast::{ProbeSpec, text};
use crate::syntax::parse::whole_number;

/// A unit and a number: `s:1`.
pub(super) const PROPERTIES: ProviderProperties = ProviderProperties {
    words: |_, _, parts| completion::first_part(parts, OFFERED_UNITS),
    ..ProviderProperties::PLAIN
};

/// `interval:s:1`
pub(super) fn interval(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider) -> Spots {
    let in_seconds = |count: &str| {
        format!("write `interval:s:{count}` for seconds, `interval:ms:{count}` for milliseconds")
    };
    timer(finder, spec, provider, |period_ns| Trigger::Interval { period_ns }, in_seconds)
}

/// `profile:hz:99`
pub(super) fn profile(finder: &mut Finder, spec: &ProbeSpec, provider: &Provider) -> Spots {
    let by_clock = |period| Trigger::Profile { counter: PerfCounter::CPU_CLOCK, period };
    let in_hertz = |count: &str| format!("write `profile:hz:{count}` for a frequency of {count} Hz");
    timer(finder, spec, provider, by_clock, in_hertz)
}

/// `with_unit`: help for a number without unit.
fn timer(
    finder: &mut Finder,
    spec: &ProbeSpec,
    provider: &Provider,
    trigger: fn(u64) -> Trigger,
    with_unit: fn(&str) -> String,
) -> Spots {
    let parts: Vec<&str> = spec.parts.iter().map(|part| text(&part.node)).collect();
    match period(&parts) {
        Ok(period_ns) => {
            let name = format!("{}:{}", provider.names[0], parts.join(":"));
            Ok(vec![finder.event(trigger(period_ns), &name)])
        }
        Err(reason) => {
            let help = match parts[..] {
                [count] if whole_number(count).is_some() => with_unit(count),
                _ => format!("write `{}`", provider.form),
            };
            wrong("E0106", spec.span, reason, "", vec![help])
        }
    }
}

/// Units that scripts use.
const OFFERED_UNITS: [&str; 5] = ["hz", "s", "ms", "us", "ns"];

/// Nanoseconds in a unit of time.
static UNITS: &[(&str, u64)] =
    &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("m", 60_000_000_000)];

/// The shortest period of the kernel's timers in practice, ns.
const SHORTEST_PERIOD: u64 = 1_000;

/// The period of `s:1`, `hz:99`, `1s`, `500000` (ns), in ns.
fn period(parts: &[&str]) -> Result<u64, String> {
    let (unit, count) = match *parts {
        [unit, count] => (unit, count),
        [joined] => {
            let digits = joined.find(|c: char| !c.is_ascii_digit()).unwrap_or(joined.len());
            (&joined[digits..], &joined[..digits])
        }
        _ => return Err("expected a unit and a number".into()),
    };
    if count.is_empty() {
        return Err("the number is missing".into());
    }
    let number: u64 = whole_number(count).ok_or_else(|| format!("`{count}` is not a whole number"))?;
    let period =
        in_unit(unit, number).ok_or_else(|| format!("`{unit}` is not a unit: use s, ms, us, ns or hz"))?;
    if period < SHORTEST_PERIOD && unit.is_empty() {
        return Err(format!("`{count}` without a unit is {period} ns, and the shortest period is 1 us"));
    }
    if period < SHORTEST_PERIOD {
        return Err(format!("a period of {period} ns is too short; the shortest is 1 us"));
    }
    Ok(period)
}

/// `None` for an unknown unit.
fn in_unit(unit: &str, number: u64) -> Option<u64> {
    match unit {
        "" => Some(number),
        "hz" => Some(1_000_000_000u64.checked_div(number).unwrap_or(0)),
        _ => UNITS.iter().find(|(name, _)| *name == unit).map(|&(_, ns)| ns.saturating_mul(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        assert_eq!(period(&["s", "1"]), Ok(1_000_000_000));
        assert_eq!(period(&["1s"]), Ok(1_000_000_000));
        assert_eq!(period(&["hz", "99"]), Ok(10_101_010));
        assert_eq!(period(&["ms", "1e2"]), period(&["ms", "0100"]));
        assert_eq!(period(&["5000"]), Ok(5000));
        for wrong in [&["s", "0"][..], &["hz", "0"], &["x", "1"], &["s", "q"], &["s"], &[], &["ns", "1"]] {
            assert!(period(wrong).is_err(), "{wrong:?}");
        }
    }
}
