//! Resource usage of the tracer: the metrics that Prometheus expects of every exporter.

use report::metrics::{Family, Kind, Number, Point, Reading};
use runtime::kernel::clock::{Clock, SystemClock};
use std::fs;

/// `process_cpu_seconds_total`, `process_resident_memory_bytes` and `process_start_time_seconds`.
pub fn families() -> Vec<Family> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map(|(_, behind)| behind.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    // proc(5): the first of these fields is the state, field 3.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64);
    let booted_ms = SystemClock.wall_ns().saturating_sub(i128::from(SystemClock.boot_ns())) / 1_000_000;
    let started_ms = booted_ms + i128::from(field(22)) * 1000 / i128::from(ticks);
    let cpu = Number { whole: (field(14) + field(15)).into(), divisor: ticks };
    let memory = Number { whole: i128::from(field(24)) * i128::from(page), divisor: 1 };
    vec![
        family("process.cpu", "s", Kind::Counter, "Processor time of the tracer", cpu),
        family("process.resident.memory", "By", Kind::Gauge, "Memory that the tracer has resident", memory),
        family(
            "process.start.time",
            "s",
            Kind::Gauge,
            "When the tracer was started, since 1970",
            Number { whole: started_ms, divisor: 1000 },
        ),
    ]
}

fn family(name: &str, unit: &str, kind: Kind, help: &str, value: Number) -> Family {
    let points = vec![Point { labels: Vec::new(), value: Reading::Number(value) }];
    Family { name: name.into(), unit: unit.into(), help: help.into(), kind, points }
}
