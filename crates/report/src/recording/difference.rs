//! Two recordings beside each other: by kernel, copy, call, gap, memory and failure, what changed from the first to the second, the
//! largest change first.
//!
//! Names are matched as they are. A change of time is that of all calls of a name; whether there were more calls or each took longer is
//! in the verdict, and can be read from the counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::recording::gpu_use;
use crate::recording::summary::{CopyStat, Memory, Stat, Summary, size, time};
use crate::recording::summary_tables::{Cell, Table};
use crate::recording::text_table;
use crate::units;
use crate::value::escape;

/// Rows of each part of the text.
const ROWS: usize = 15;
/// Changes of the run's length below this share, in tenths of a percent, are none.
const NOISE: i128 = 20;

/// An amount of one name in one recording.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// In the unit of its subject.
    total: u64,
    /// Number of calls, copies, gaps.
    count: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Unit {
    Ns,
    Bytes,
    Failures,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Bytes => "bytes",
            Unit::Failures => "failures",
        }
    }

    fn text(self, amount: i128) -> String {
        let magnitude = u64::try_from(amount.unsigned_abs()).unwrap_or(u64::MAX);
        match self {
            Unit::Ns => time(magnitude),
            Unit::Bytes => size(magnitude),
            Unit::Failures => magnitude.to_string(),
        }
    }
}

type Amounts = BTreeMap<String, Amount>;

/// One part of a comparison.
struct Subject {
    /// `kernels`
    name: &'static str,
    title: &'static str,
    /// The word before a name in the verdict, with a space.
    word: &'static str,
    unit: Unit,
    /// Whether its changes are part of what the GPU's time consists of.
    is_of_gpu: bool,
    amounts: fn(&Summary) -> Amounts,
}

/// The parts of a comparison, in the order of the text.
const SUBJECTS: [Subject; 10] = [
    Subject {
        name: "kernels",
        title: "KERNEL (time on the GPU)",
        word: "kernel ",
        unit: Unit::Ns,
        is_of_gpu: true,
        amounts: |summary| of_stats(&summary.gpu_kernels, |stat| stat.total_ns),
    },
    Subject {
        name: "copies",
        title: "COPY (time on the GPU)",
        word: "copies ",
        unit: Unit::Ns,
        is_of_gpu: true,
        amounts: |summary| {
            let copies = summary.gpu_copies.iter();
            copies
                .map(|(way, moved)| (way.to_string(), Amount { total: moved.ns, count: moved.count }))
                .collect()
        },
    },
    Subject {
        name: "gaps",
        title: "GAPS (without a kernel)",
        word: "time without a kernel on ",
        unit: Unit::Ns,
        is_of_gpu: true,
        amounts: |summary| {
            let gap = |used: &gpu_use::GpuUse| Amount { total: used.idle_ns(), count: used.gaps() };
            if summary.idle.is_empty() {
                return gpu_use::names(&summary.gpus)
                    .into_iter()
                    .zip(summary.gpus.values().map(gap))
                    .collect();
            }
            let amount = |idle: &CopyStat| Amount { total: idle.ns, count: idle.count };
            let caused = summary.named_idle().into_iter();
            caused.map(|(device, cause, idle)| (format!("{device}: {cause}"), amount(idle))).collect()
        },
    },
    Subject {
        name: "ranges",
        title: "NVTX RANGE (on the host)",
        word: "",
        unit: Unit::Ns,
        is_of_gpu: false,
        amounts: |summary| {
            of_stats(summary.ranges.iter().map(|(name, range)| (name, &range.host)), |stat| stat.total_ns)
        },
    },
    Subject {
        name: "launches",
        title: "KERNEL (host time of launch)",
        word: "",
        unit: Unit::Ns,
        is_of_gpu: false,
        amounts: |summary| of_stats(&summary.kernels, |stat| stat.total_ns),
    },
    Subject {
        name: "calls",
        title: "CALL (its own time)",
        word: "",
        unit: Unit::Ns,
        is_of_gpu: false,
        amounts: |summary| of_stats(&summary.functions, |stat| stat.self_ns),
    },
    Subject {
        name: "ioctls",
        title: "IOCTL",
        word: "",
        unit: Unit::Ns,
        is_of_gpu: false,
        amounts: |summary| of_stats(&summary.ioctls, |stat| stat.self_ns),
    },
    Subject {
        name: "memory",
        title: "MEMORY (most at a time)",
        word: "",
        unit: Unit::Bytes,
        is_of_gpu: false,
        amounts: |summary| of_memory(summary, |memory| memory.peak),
    },
    Subject {
        name: "memory_left",
        title: "MEMORY (never freed)",
        word: "",
        unit: Unit::Bytes,
        is_of_gpu: false,
        amounts: |summary| of_memory(summary, |memory| memory.left),
    },
    Subject {
        name: "errors",
        title: "FAILURE",
        word: "",
        unit: Unit::Failures,
        is_of_gpu: false,
        amounts: |summary| {
            let errors = summary.errors.iter().filter(|(_, count)| **count > 0);
            errors
                .map(|((func, result), count)| {
                    (format!("{func} {result}"), Amount { total: *count, count: *count })
                })
                .collect()
        },
    },
];

fn of_stats<'s>(
    stats: impl IntoIterator<Item = (&'s Arc<str>, &'s Stat)>,
    total: fn(&Stat) -> u64,
) -> Amounts {
    let amount = |stat: &Stat| Amount { total: total(stat), count: stat.count };
    stats.into_iter().map(|(name, stat)| (name.to_string(), amount(stat))).collect()
}

fn of_memory(summary: &Summary, total: fn(&Memory) -> u64) -> Amounts {
    let kinds = summary.memory.iter();
    kinds
        .map(|(kind, memory)| (kind.to_string(), Amount { total: total(memory), count: memory.count }))
        .collect()
}

/// The change of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    name: String,
    before: Amount,
    after: Amount,
}

impl Change {
    fn by(&self) -> i128 {
        i128::from(self.after.total) - i128::from(self.before.total)
    }

    /// `+12.5 %`, or that it was not there.
    fn percent(&self) -> String {
        match (self.before.total, self.after.total) {
            (0, 0) => "0 %".into(),
            (0, _) => "new".into(),
            (_, 0) => "gone".into(),
            (before, _) => percent_text(self.by(), before),
        }
    }
}

/// A part's changes, the largest first.
struct Part {
    subject: &'static Subject,
    changes: Vec<Change>,
    before: Amount,
    after: Amount,
}

impl Part {
    fn of(subject: &'static Subject, before: &Summary, after: &Summary) -> Part {
        let [mut before, mut after] = [before, after].map(subject.amounts);
        let totals = [&before, &after].map(total);
        // Every name of either recording.
        after.keys().for_each(|name| _ = before.entry(name.clone()).or_default());
        let mut changes: Vec<Change> = before
            .into_iter()
            .map(|(name, before)| {
                let after = after.remove(&name).unwrap_or_default();
                Change { name, before, after }
            })
            .collect();
        changes.sort_by_key(|change| std::cmp::Reverse(change.by().unsigned_abs()));
        Part { subject, changes, before: totals[0], after: totals[1] }
    }

    fn text(&self, columns: usize) -> String {
        let different = self.changes.iter().filter(|change| change.before != change.after).count();
        if different == 0 {
            return String::new();
        }
        let all = Change { name: "all".into(), before: self.before, after: self.after };
        // Ranges lie within each other.
        let has_sum = self.changes.len() > 1 && self.subject.name != "ranges";
        let all = has_sum.then_some(&all);
        let rows: Vec<Vec<String>> =
            self.changes.iter().take(different.min(ROWS)).chain(all).map(|change| self.row(change)).collect();
        let titles =
            [self.subject.title, "before", "after", "change", "", "count", "after", "share", "after"];
        let mut text = format!("\n{}", text_table::draw(&titles, &rows, columns));
        if different > ROWS {
            let _ = writeln!(text, "... and {} more", different - ROWS);
        }
        text
    }

    fn row(&self, change: &Change) -> Vec<String> {
        let unit = self.subject.unit;
        let sign = if change.by() < 0 { "-" } else { "+" };
        vec![
            change.name.clone(),
            unit.text(change.before.total.into()),
            unit.text(change.after.total.into()),
            format!("{sign}{}", unit.text(change.by())),
            change.percent(),
            change.before.count.to_string(),
            change.after.count.to_string(),
            share(change.before.total, self.before.total),
            share(change.after.total, self.after.total),
        ]
    }
}

fn total(amounts: &Amounts) -> Amount {
    amounts.values().fold(Amount::default(), |sum, amount| Amount {
        total: sum.total.saturating_add(amount.total),
        count: sum.count.saturating_add(amount.count),
    })
}

fn share(part: u64, whole: u64) -> String {
    let tenths = units::share(part, whole);
    format!("{} %", units::tenths(i64::try_from(tenths).unwrap_or(i64::MAX)))
}

/// A difference as a signed share of an amount: `+12.5 %`.
fn percent_text(by: i128, of: u64) -> String {
    let tenths = tenths_of(by, of);
    let sign = if by < 0 { "" } else { "+" };
    format!("{sign}{} %", units::tenths(i64::try_from(tenths).unwrap_or(i64::MAX)))
}

fn tenths_of(by: i128, of: u64) -> i128 {
    let of = i128::from(of.max(1));
    (by * 1000 + by.signum() * of / 2) / of
}

/// The comparison of two recordings.
pub struct Difference {
    lengths: [u64; 2],
    /// Whether there is work of the GPU in each.
    has_gpu: [bool; 2],
    parts: Vec<Part>,
}

impl Difference {
    /// Compares two recordings.
    pub fn of(before: &Summary, after: &Summary) -> Difference {
        let has_gpu = [before, after].map(|summary| !summary.gpu_kernels.is_empty());
        let both = has_gpu == [true, true];
        // Time on the GPU is compared only if both have it; then the host's time of launches is that of their calls.
        let is_compared = |subject: &&Subject| match subject.name {
            "launches" => !both,
            // Ranges of NVTX are recorded with the work of the GPU.
            "ranges" => both,
            _ => both || !subject.is_of_gpu,
        };
        let parts = SUBJECTS.iter().filter(is_compared).map(|subject| Part::of(subject, before, after));
        Difference { lengths: [before, after].map(Summary::length_ns), has_gpu, parts: parts.collect() }
    }

    /// One or two sentences: how the length changed, and the largest cause.
    pub fn verdict(&self) -> String {
        let [before, after] = self.lengths;
        if let Some(empty) = self.lengths.iter().position(|length| *length == 0) {
            return format!("the {} recording has no calls", ["first", "second"][empty]);
        }
        let by = i128::from(after) - i128::from(before);
        let mut text = match tenths_of(by, before) {
            tenths if tenths.abs() < NOISE => {
                format!(
                    "as long as before: {} and {} ({})",
                    time(before),
                    time(after),
                    percent_text(by, before)
                )
            }
            _ => format!(
                "{} by {}: {} instead of {}",
                if by < 0 { "shorter" } else { "longer" },
                percent_text(by, before).trim_start_matches(['+', '-']),
                time(after),
                time(before)
            ),
        };
        if let Some((part, change)) = self.largest() {
            let _ = write!(text, "; the largest change: {}", cause(part, change));
        }
        text
    }

    /// The largest change of time: on the GPU if both recordings have it, otherwise of calls.
    fn largest(&self) -> Option<(&Part, &Change)> {
        let is_cause = |part: &&Part| match self.has_gpu {
            [true, true] => part.subject.is_of_gpu,
            _ => part.subject.name == "calls",
        };
        let changes = self.parts.iter().filter(is_cause);
        let first = changes.filter_map(|part| Some((part, part.changes.first()?)));
        first.max_by_key(|(_, change)| change.by().unsigned_abs()).filter(|(_, change)| change.by() != 0)
    }

    /// The comparison as text, with at most `columns` columns if that leaves room for names.
    pub fn text(&self, columns: usize) -> String {
        let mut out = String::new();
        let only = match self.has_gpu {
            [true, false] => Some("first"),
            [false, true] => Some("second"),
            _ => None,
        };
        if let Some(only) = only {
            let _ = writeln!(
                out,
                "only the {only} recording has the work of the GPU, which is not compared: `record --gpu` makes it"
            );
        }
        self.parts.iter().for_each(|part| out += &part.text(columns));
        if out.is_empty() {
            out += "\nno call, kernel, copy or failure differs\n";
        }
        out
    }

    /// All changes as one table.
    pub fn table(&self) -> Table {
        const COLUMNS: &[&str] =
            &["subject", "name", "unit", "before", "after", "change", "count_before", "count_after"];
        let rows = self.parts.iter().flat_map(|part| {
            part.changes.iter().map(|change| {
                let text = [part.subject.name, &change.name, part.subject.unit.name()];
                let cells = text.map(|text| Cell::Text(text.to_owned())).into_iter();
                let numbers = [
                    change.before.total.into(),
                    change.after.total.into(),
                    change.by(),
                    change.before.count.into(),
                    change.after.count.into(),
                ];
                cells.chain(numbers.map(Cell::Integer)).collect()
            })
        });
        Table { name: "changes", columns: COLUMNS, rows: rows.collect() }
    }
}

/// The name of a change, its amount, and whether there are more calls or each takes longer.
fn cause(part: &Part, change: &Change) -> String {
    let name = escape(change.name.as_bytes());
    let (more, by) = (if change.by() < 0 { "less" } else { "more" }, Unit::Ns.text(change.by()));
    let each = |amount: Amount| amount.total / amount.count.max(1);
    let (before, after) = (change.before, change.after);
    let how = match (before.count, after.count) {
        (0, _) => format!("{by}, which was not there before"),
        (_, 0) => format!("{by} {more}: it is gone"),
        (one, other) if one == other => {
            format!(
                "{by} {more} in {one} as before, {} instead of {} each",
                time(each(after)),
                time(each(before))
            )
        }
        (one, other) => format!(
            "{by} {more} in {other} instead of {one}, {} instead of {} each",
            time(each(after)),
            time(each(before))
        ),
    };
    format!("{}{name}, {how}", part.subject.word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpu_kernel;

    fn summary(kernels: &[(&str, u64, u64)]) -> Summary {
        let (mut summary, mut at) = (Summary::default(), 1000);
        for (name, count, ns) in kernels {
            for _ in 0..*count {
                summary.add(&gpu_kernel(name, at, *ns));
                at += ns + 10;
            }
        }
        summary
    }

    #[test]
    fn the_largest_change_is_first_and_is_the_verdict() {
        let before = summary(&[("scale", 10, 1000), ("gone", 1, 50), ("same", 5, 7)]);
        let after = summary(&[("same", 5, 7), ("new", 2, 100), ("scale", 10, 2000)]);
        let difference = Difference::of(&before, &after);
        assert_eq!(
            difference.verdict(),
            "longer by 99.3 %: 20.4 us instead of 10.2 us; the largest change: kernel scale, 10.0 us more in 10 as before, 2.0 us \
             instead of 1.0 us each"
        );
        let names: Vec<&str> = difference.parts[0].changes.iter().map(|change| &*change.name).collect();
        assert_eq!(names, ["scale", "new", "gone", "same"]);
        let text = difference.text(120);
        assert!(text.contains("new") && text.contains("gone") && !text.contains("\nsame"), "{text}");
        assert!(difference.table().csv().contains("kernels,scale,ns,10000,20000,10000,10,10\n"));
    }

    #[test]
    fn a_recording_beside_itself_has_no_difference() {
        let one = summary(&[("scale", 10, 1000)]);
        let difference = Difference::of(&one, &one);
        assert_eq!(difference.verdict(), "as long as before: 10.1 us and 10.1 us (+0.0 %)");
        assert_eq!(difference.text(120), "\nno call, kernel, copy or failure differs\n");
    }

    #[test]
    fn work_of_the_gpu_is_compared_only_if_both_have_it() {
        let difference = Difference::of(&summary(&[("scale", 1, 1000)]), &Summary::default());
        assert!(difference.text(120).starts_with("only the first recording has the work of the GPU"));
        assert!(difference.parts.iter().all(|part| !part.subject.is_of_gpu && part.subject.name != "ranges"));
        assert_eq!(difference.verdict(), "the second recording has no calls");
    }
}
