//! The tables of a report: as text, as comma-separated values and as JSON.
//!
//! A CSV table has a column for each key of its JSON objects, in the same order. Times are in ns. `time_percent` is a function's self time
//! (`self_ns`) as a percentage of the self time of all functions, so that driver calls within runtime calls do not count twice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::export::json;
use crate::recording::summary::{CopyStat, RangeStat, Stat, Summary, by_time, cut, sum, time};
use crate::recording::text_table;
use crate::units;
use crate::value::escape;

/// A table of a summary.
pub struct Table {
    /// `functions`
    pub name: &'static str,
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
pub(super) enum Cell {
    /// A name.
    Text(String),
    /// A number that is not negative.
    Number(u64),
    /// A number, such as a difference.
    Integer(i128),
    /// A share in tenths of a percent.
    Percent(u64),
}

/// The names of all tables.
pub const NAMES: [&str; 11] = [
    "functions",
    "kernels",
    "ioctls",
    "driver_functions",
    "copies",
    "memory",
    "errors",
    "gpu_kernels",
    "gpu_copies",
    "ranges",
    "idle",
];

/// Columns of tables of calls.
const CALLS: &[&str] = &[
    "name",
    "calls",
    "time_percent",
    "total_ns",
    "self_ns",
    "mean_ns",
    "median_ns",
    "p99_ns",
    "min_ns",
    "max_ns",
    "stddev_ns",
    "errors",
];

/// Columns of tables of copies.
const COPIES: &[&str] = &["direction", "copies", "bytes", "total_ns"];

/// All tables, in the order of [`NAMES`].
pub fn tables(summary: &Summary) -> Vec<Table> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let table = |name, columns, rows| Table { name, columns, rows };
    let copies = |copies: &BTreeMap<Arc<str>, CopyStat>| {
        let row = |(way, moved): (&Arc<str>, &CopyStat)| {
            vec![text(way), Cell::Number(moved.count), Cell::Number(moved.bytes), Cell::Number(moved.ns)]
        };
        copies.iter().map(row).collect::<Vec<_>>()
    };
    let memory = summary.memory.iter().map(|(kind, memory)| {
        let numbers = [memory.count, memory.bytes, memory.ns, memory.peak, memory.left];
        [text(kind)].into_iter().chain(numbers.map(Cell::Number)).collect()
    });
    let errors = summary.errors.iter().filter(|(_, count)| **count > 0);
    let errors =
        errors.map(|((function, result), count)| vec![text(function), text(result), Cell::Number(*count)]);
    let ranges = ranges(summary).into_iter().map(|(name, range)| {
        let host = &range.host;
        let numbers = [host.count, host.total_ns, host.mean_ns(), host.max_ns, range.kernels, range.gpu_ns];
        [text(name)].into_iter().chain(numbers.map(Cell::Number)).collect()
    });
    let idle = summary.idle.iter().map(|((number, cause), idle)| {
        let device = summary.gpus.get(number).map_or(*number, |gpu| gpu.ordinal.into());
        let numbers = [idle.count, idle.ns, *number].map(Cell::Number);
        [Cell::Number(device), text(cause)].into_iter().chain(numbers).collect()
    });
    vec![
        table(NAMES[0], CALLS, calls(by_time(&summary.functions))),
        table(NAMES[1], CALLS, calls(by_time(&summary.kernels))),
        table(NAMES[2], CALLS, calls(by_time(&summary.ioctls))),
        table(NAMES[3], CALLS, calls(by_time(&summary.driver_functions))),
        table(NAMES[4], COPIES, copies(&summary.copies)),
        table(
            NAMES[5],
            &["kind", "allocations", "bytes", "total_ns", "peak_bytes", "bytes_left"],
            memory.collect(),
        ),
        table(NAMES[6], &["function", "result", "count"], errors.collect()),
        table(NAMES[7], CALLS, calls(by_time(&summary.gpu_kernels))),
        table(NAMES[8], COPIES, copies(&summary.gpu_copies)),
        table(
            NAMES[9],
            &["name", "ranges", "total_ns", "mean_ns", "max_ns", "kernels", "gpu_ns"],
            ranges.collect(),
        ),
        table(NAMES[10], &["device", "cause", "gaps", "total_ns", "gpu"], idle.collect()),
    ]
}

/// The ranges, those with the most time first: on the GPU, then on the host.
fn ranges(summary: &Summary) -> Vec<(&str, &RangeStat)> {
    let mut ranges: Vec<(&str, &RangeStat)> =
        summary.ranges.iter().map(|(name, range)| (&**name, range)).collect();
    ranges.sort_by(|(name, one), (other_name, other)| {
        (other.gpu_ns, other.host.total_ns, name).cmp(&(one.gpu_ns, one.host.total_ns, other_name))
    });
    ranges
}

fn calls(stats: Vec<(&str, &Stat)>) -> Vec<Vec<Cell>> {
    let all = sum(stats.iter().map(|(_, stat)| stat.self_ns));
    let row = |(name, stat): (&str, &Stat)| {
        let ns = [
            stat.total_ns,
            stat.self_ns,
            stat.mean_ns(),
            stat.percentile_ns(50),
            stat.percentile_ns(99),
            stat.min_ns,
            stat.max_ns,
            stat.deviation_ns(),
            stat.errors,
        ];
        let head = [
            Cell::Text(name.to_owned()),
            Cell::Number(stat.count),
            Cell::Percent(units::share(stat.self_ns, all)),
        ];
        head.into_iter().chain(ns.map(Cell::Number)).collect()
    };
    stats.into_iter().map(row).collect()
}

impl Table {
    /// The table as comma-separated values; the first line has the names of the columns.
    pub fn csv(&self) -> String {
        let mut out = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::csv).collect();
            out += &(cells.join(",") + "\n");
        }
        out
    }

    /// The table as a list of objects.
    pub fn json(&self, out: &mut String) {
        json::list(out, self.rows.iter(), |out, row| {
            json::object(out, self.columns.iter().copied().zip(row), Cell::json);
        });
    }
}

impl Cell {
    fn csv(&self) -> String {
        match self {
            Cell::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => number.to_string(),
            Cell::Integer(number) => number.to_string(),
            Cell::Percent(tenths) => format!("{}.{}", tenths / 10, tenths % 10),
        }
    }

    fn json(out: &mut String, cell: &Cell) {
        match cell {
            Cell::Text(text) => json::string(out, text),
            Cell::Number(number) => json::integer(out, i128::from(*number)),
            Cell::Integer(number) => json::integer(out, *number),
            Cell::Percent(_) => out.push_str(&cell.csv()),
        }
    }
}

impl Summary {
    /// The tables of a report as text, with at most `columns` columns if that leaves room for names.
    pub fn tables(&self, rows: usize, columns: usize) -> String {
        let mut out = String::new();
        let wide = columns.saturating_sub(NUMBERS).clamp(SHORTEST, LONGEST);
        table(&mut out, "FUNCTION", &by_time(&self.functions), rows, wide);
        table(&mut out, "KERNEL (host time of launch)", &by_time(&self.kernels), rows, wide);
        let graphs = self.graph_launches.count;
        if graphs > 0 {
            let s = if graphs == 1 { "" } else { "es" };
            let _ = writeln!(out, "({graphs} graph launch{s}: `cudatrace graphs` shows what they run)");
        }
        table(&mut out, "KERNEL (time on the GPU)", &by_time(&self.gpu_kernels), rows, wide);
        out + &self.range_table(rows, columns)
    }

    fn range_table(&self, rows: usize, columns: usize) -> String {
        let ranges = ranges(self);
        if ranges.is_empty() {
            return String::new();
        }
        let row = |(name, range): &(&str, &RangeStat)| {
            let host = &range.host;
            let numbers = [host.total_ns, host.mean_ns(), host.max_ns].map(time);
            let gpu = [range.kernels.to_string(), time(range.gpu_ns)];
            let head = [name.to_string(), host.count.to_string()];
            head.into_iter().chain(numbers).chain(gpu).collect()
        };
        let titles = ["NVTX RANGE", "ranges", "total", "mean", "longest", "kernels", "GPU time"];
        let drawn: Vec<_> = ranges.iter().take(rows).map(row).collect();
        let mut text = format!("\n{}", text_table::draw(&titles, &drawn, columns));
        if ranges.len() > rows {
            let _ = writeln!(text, "... and {} more", ranges.len() - rows);
        }
        text
    }
}

/// Width of the numbers of a text table in columns.
const NUMBERS: usize = 90;
/// Shortest and longest width of a name in columns.
const SHORTEST: usize = 28;
const LONGEST: usize = 60;

fn table(out: &mut String, title: &str, stats: &[(&str, &Stat)], rows: usize, wide: usize) {
    if stats.is_empty() {
        return;
    }
    let heads = ["calls", "time%", "total", "self", "mean", "median", "p99", "longest", "errors"];
    let _ = write!(out, "\n{:<wide$}", cut(title, wide));
    heads.iter().for_each(|head| _ = write!(out, " {head:>9}"));
    out.push('\n');
    let all = sum(stats.iter().map(|(_, stat)| stat.self_ns));
    for (name, stat) in stats.iter().take(rows) {
        let _ = write!(out, "{:<wide$}", escape(cut(name, wide).as_bytes()));
        let cells = [
            stat.count.to_string(),
            Cell::Percent(units::share(stat.self_ns, all)).csv(),
            time(stat.total_ns),
            time(stat.self_ns),
            time(stat.mean_ns()),
            time(stat.percentile_ns(50)),
            time(stat.percentile_ns(99)),
            time(stat.max_ns),
            stat.errors.to_string(),
        ];
        cells.iter().for_each(|cell| _ = write!(out, " {cell:>9}"));
        out.push('\n');
    }
    if stats.len() > rows {
        let _ = writeln!(out, "... and {} more", stats.len() - rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_their_columns() {
        let mut summary = Summary::default();
        let name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>";
        summary.kernels.insert(name.into(), Stat::default());
        let text = summary.tables(20, 120);
        assert_eq!(text.lines().map(|line| line.chars().count()).max(), Some(120), "{text}");
        assert!(text.contains("void at::native::ve…or<float>> "), "{text}");
        let wide = summary.tables(20, 200);
        assert!(wide.lines().all(|line| line.chars().count() == 150 || line.is_empty()), "{wide}");
    }

    #[test]
    fn a_cell_with_a_comma_is_quoted() {
        let rows = vec![vec![Cell::Text("f<a, \"b\">".into()), Cell::Number(2), Cell::Percent(125)]];
        let table = Table { name: "x", columns: &["name", "calls", "time_percent"], rows };
        assert_eq!(table.csv(), "name,calls,time_percent\n\"f<a, \"\"b\"\">\",2,12.5\n");
        let mut json = String::new();
        table.json(&mut json);
        assert_eq!(json, "[{\"name\":\"f<a, \\\"b\\\">\",\"calls\":2,\"time_percent\":12.5}]");
    }
}
