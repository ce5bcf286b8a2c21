//! Resource usage of the tracer: the metrics that Prometheus expects of every exporter.

use linux::proc::Usage;
use report::metrics::{Family, Kind, Number, Point, Reading};
use runtime::kernel::clock::{Clock, SystemClock};

/// `process_cpu_seconds_total`, `process_resident_memory_bytes` and `process_start_time_seconds`.
pub fn families() -> Vec<Family> {
    let usage = Usage::own().unwrap_or_default();
    let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64);
    let booted_ms = SystemClock.wall_ns().saturating_sub(i128::from(SystemClock.boot_ns())) / 1_000_000;
    let started_ms = booted_ms + i128::from(usage.started) * 1000 / i128::from(ticks);
    let cpu = Number { whole: usage.cpu_ticks.into(), divisor: ticks };
    let memory = Number { whole: i128::from(usage.resident_pages) * i128::from(page), divisor: 1 };
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
