//! Settings of traces, from the command line and the environment.

use super::destination::Variables;
use anyhow::{Result, anyhow};
use report::export::otlp::traces::{Per, Sampler};

/// Parses `10s`, `500ms`, `event:step`, `process`.
pub fn parse(text: &str) -> Result<Per, String> {
    if text == "process" {
        return Ok(Per::Process);
    }
    if let Some(name) = text.strip_prefix("event:").filter(|name| !name.is_empty()) {
        return Ok(Per::Event(name.into()));
    }
    let units = [("ms", 1_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000)];
    let time = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
    let ns = time.and_then(|(number, unit_ns): (&str, u64)| number.parse::<u64>().ok()?.checked_mul(unit_ns));
    let wrong = || "expected a time such as 10s or 500ms, event:NAME, or process".to_owned();
    ns.filter(|ns| *ns > 0).map(Per::Interval).ok_or_else(wrong)
}

/// The sampler of `OTEL_TRACES_SAMPLER`.
pub fn sampler(variables: Variables<'_>) -> Result<Sampler> {
    let argument = variables("OTEL_TRACES_SAMPLER_ARG");
    let named = variables("OTEL_TRACES_SAMPLER").map(|name| Sampler::named(&name, argument.as_deref()));
    named.unwrap_or(Ok(Sampler::default())).map_err(|error| anyhow!(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_trace_begins() {
        assert_eq!(parse("10s"), Ok(Per::Interval(10_000_000_000)));
        assert_eq!(parse("500ms"), Ok(Per::Interval(500_000_000)));
        assert_eq!(parse("event:step"), Ok(Per::Event("step".into())));
        assert_eq!(parse("process"), Ok(Per::Process));
        for wrong in ["", "10", "0s", "event:", "step", "1h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
