//! Tables of the page: statistics of the whole recording, as members of the page's data.

use crate::export::json;
use crate::recording::gpu_use;
use crate::recording::summary::{Stat, Summary, by_time};
use std::fmt::Write as _;

/// Largest number of rows of a table.
const ROWS: usize = 200;

/// Appends the tables.
pub(super) fn write(out: &mut String, summary: &Summary) {
    for (table, all) in [
        ("functions", by_time(&summary.functions)),
        ("kernels", by_time(&summary.kernels)),
        ("gpu_kernels", by_time(&summary.gpu_kernels)),
        ("ioctls", by_time(&summary.ioctls)),
        ("driver_functions", by_time(&summary.driver_functions)),
    ] {
        let _ = write!(out, ",\"{table}_count\":{},\"{table}\":", all.len());
        stats(out, all);
    }
    out.push_str(",\"gpus\":");
    let names = gpu_use::names(&summary.gpus);
    json::list(out, names.iter().zip(summary.gpus.values()), |out, (name, used)| {
        out.push('[');
        json::string(out, name);
        let _ = write!(out, ",{}]", used.percent());
    });
    out.push_str(",\"copies\":");
    json::list(out, summary.copies.iter(), |out, (way, moved)| {
        out.push('[');
        json::string(out, way);
        let _ = write!(out, ",{},{},{}]", moved.count, moved.bytes, moved.ns);
    });
    out.push_str(",\"errors\":");
    json::list(
        out,
        summary.errors.iter().filter(|(_, count)| **count > 0),
        |out, ((func, result), count)| {
            out.push('[');
            json::string(out, func);
            out.push(',');
            json::string(out, result);
            let _ = write!(out, ",{count}]");
        },
    );
    out.push_str(",\"kinds\":");
    json::list(out, summary.memory.iter(), |out, (kind, memory)| {
        out.push('[');
        json::string(out, kind);
        let _ = write!(out, ",{},{},{},{}]", memory.count, memory.bytes, memory.peak, memory.left);
    });
    let _ = write!(
        out,
        ",\"calls\":[{},{}],\"launches\":{},\"failed_launches\":{},\"graphs\":{},\"frees\":{},\"leaked\":{},\"after_shutdown\":{}",
        summary.calls.0,
        summary.calls.1,
        summary.launches(),
        summary.failed_launches(),
        summary.graph_launches.count,
        summary.frees,
        summary.leaked(),
        summary.after_shutdown
    );
}

/// Columns: name, count, total, self, median, p99, longest, errors, buckets.
fn stats(out: &mut String, stats: Vec<(&str, &Stat)>) {
    json::list(out, stats.into_iter().take(ROWS), |out, (name, stat)| {
        out.push('[');
        json::string(out, name);
        let Stat { count, total_ns, self_ns, max_ns, errors, .. } = stat;
        let (median, p99) = (stat.percentile_ns(50), stat.percentile_ns(99));
        let _ = write!(out, ",{count},{total_ns},{self_ns},{median},{p99},{max_ns},{errors},");
        json::list(out, stat.powers().iter(), |out, count| _ = write!(out, "{count}"));
        out.push(']');
    });
}
