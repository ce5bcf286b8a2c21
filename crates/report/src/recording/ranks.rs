//! The ranks of a distributed job beside each other: the work of each, whom the others wait for, and how even the kernels are.
//!
//! NCCL's kernels end on all ranks at about the same time, and begin when their rank is there. So their ends align the clocks of the
//! machines, and their starts say which rank was late. The rank with the most work of its own is the slowest; the time in collectives
//! says little about a rank, since it has the wait for the others.
//!
//! ```text
//! rank 0   compute |allreduce ----------|        waits for rank 1
//! rank 1   compute compute compute |allreduce|   starts last
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::export::{Record, Run};
use crate::recording::summary::{Stat, Summary, size, sum, time};
use crate::recording::summary_tables::{Cell, Table};
use crate::recording::text_table;
use crate::value::escape;

/// Begin of the names of NCCL's kernels.
const COLLECTIVE: &str = "nccl";
/// Collectives of a rank that are kept.
const MOST: usize = 1 << 21;
/// Kernels in the table of the text.
const ROWS: usize = 20;

/// The recording of a rank, as far as a comparison needs it.
pub struct Rank {
    run: Run,
    number: u32,
    summary: Summary,
    collectives: Collectives,
}

/// NCCL's kernels of a rank by name, in their order.
#[derive(Default)]
struct Collectives {
    by_name: HashMap<Arc<str>, Vec<Times>>,
    count: usize,
    left_out: u64,
}

/// Start and end of a kernel, boot-clock ns.
#[derive(Copy, Clone)]
struct Times {
    start: u64,
    end: u64,
}

impl Rank {
    /// A rank without records; `None` if the run does not say its rank.
    pub fn of(run: &Run) -> Option<Rank> {
        let (summary, collectives) = Default::default();
        Some(Rank { number: run.rank?, run: run.clone(), summary, collectives })
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        self.summary.add(record);
        if record.gpu_kind() == Some("kernel") && record.name.starts_with(COLLECTIVE) {
            self.collectives.add(record);
        }
    }

    /// Time on the GPU of NCCL's kernels, or of the others, in ns.
    fn kernels_ns(&self, is_collective: bool) -> u64 {
        let kernels = self.summary.gpu_kernels.iter();
        sum(kernels
            .filter(|(name, _)| name.starts_with(COLLECTIVE) == is_collective)
            .map(|(_, stat)| stat.total_ns))
    }

    /// The time of its own work in ns: that of its GPU without collectives, or of its calls if the recording has nothing of the GPU.
    fn own_ns(&self) -> u64 {
        match self.summary.gpu_kernels.is_empty() {
            true => sum(self.summary.functions.values().map(|stat| stat.self_ns)),
            false => self.kernels_ns(false),
        }
    }

    /// Its kernels on the GPU, or its calls, by name.
    fn stats(&self, is_gpu: bool) -> &foldhash::HashMap<Arc<str>, Stat> {
        if is_gpu { &self.summary.gpu_kernels } else { &self.summary.functions }
    }

    /// Largest share of a device's time with a kernel, in percent.
    fn busy_percent(&self) -> u64 {
        self.summary.gpus.values().map(super::gpu_use::GpuUse::percent).max().unwrap_or(0)
    }
}

impl Collectives {
    fn add(&mut self, record: &Record) {
        if self.count == MOST {
            self.left_out += 1;
            return;
        }
        self.count += 1;
        let times = Times { start: record.time_ns, end: record.time_ns + record.duration_ns() };
        self.by_name.entry(record.name.clone()).or_default().push(times);
    }

    fn sort(&mut self) {
        self.by_name.values_mut().for_each(|times| times.sort_unstable_by_key(|times| times.start));
    }
}

/// A rank's part in the collectives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lateness {
    /// Its clock minus that of the first rank, ns; `None` if there are no collectives in common.
    clock_ns: Option<i128>,
    /// Number of collectives that it was the last to begin.
    last: u64,
    /// How much earlier the others began them in the mean, summed up, ns.
    waited_ns: u64,
}

/// The comparison of ranks.
pub struct Ranks {
    ranks: Vec<Rank>,
    lateness: Vec<Lateness>,
    /// Number of collectives that all ranks have in common.
    collectives: u64,
    /// Why some collectives were not compared.
    note: Option<String>,
}

impl Ranks {
    /// Compares ranks; there are two at least, with different numbers.
    pub fn of(mut ranks: Vec<Rank>) -> Ranks {
        ranks.sort_by_key(|rank| rank.number);
        ranks.iter_mut().for_each(|rank| rank.collectives.sort());
        let common = common(&ranks);
        let clocks: Vec<Option<i128>> = (0..ranks.len())
            .map(|at| median(common.iter().map(|each| each.ends[at] - each.ends[0])))
            .collect();
        let mut lateness: Vec<Lateness> =
            clocks.iter().map(|clock| Lateness { clock_ns: *clock, ..Lateness::default() }).collect();
        for each in &common {
            let starts = each.starts.iter().zip(&clocks).map(|(start, clock)| start - clock.unwrap_or(0));
            let starts: Vec<i128> = starts.collect();
            let (last, latest) =
                starts.iter().enumerate().max_by_key(|(_, start)| **start).expect("there is a rank");
            let waited: i128 =
                starts.iter().map(|start| latest - start).sum::<i128>() / (starts.len() as i128 - 1).max(1);
            lateness[last].last += 1;
            let total = &mut lateness[last].waited_ns;
            *total = total.saturating_add(u64::try_from(waited).unwrap_or(u64::MAX));
        }
        let all: usize = ranks.iter().map(|rank| rank.collectives.count).max().unwrap_or(0);
        let left_out: u64 = ranks.iter().map(|rank| rank.collectives.left_out).sum();
        let uncompared = (all as u64).saturating_sub(common.len() as u64) + left_out;
        let note = (uncompared > 0).then(|| {
            format!("{uncompared} collectives are not compared: not all ranks ran as many of their name")
        });
        Ranks { ranks, lateness, collectives: common.len() as u64, note }
    }

    /// A sentence about the slowest rank.
    pub fn verdict(&self) -> String {
        let own = self.ranks.iter().map(|rank| i128::from(rank.own_ns()));
        let middle = median(own).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
        let Some(slowest) = self.ranks.iter().max_by_key(|rank| rank.own_ns()) else { return String::new() };
        let does = if slowest.summary.gpu_kernels.is_empty() { "is in calls" } else { "computes" };
        let mut text = format!(
            "rank {} {does} longest: {}, the median rank {}",
            slowest.number,
            time(slowest.own_ns()),
            time(middle)
        );
        let late = self.ranks.iter().zip(&self.lateness).max_by_key(|(_, late)| late.waited_ns);
        if let Some((rank, late)) = late.filter(|(_, late)| late.waited_ns > 0) {
            let _ = write!(
                text,
                "; the others waited {} for rank {}, which was the last in {} of {} collectives",
                time(late.waited_ns),
                rank.number,
                late.last,
                self.collectives
            );
        }
        text
    }

    /// The report as text.
    pub fn text(&self, columns: usize) -> String {
        let mut out = format!("{}\n", self.verdict());
        self.note.iter().for_each(|note| out += &format!("warning: {note}\n"));
        for rank in &self.ranks {
            rank.summary.losses.iter().for_each(|loss| {
                let _ = writeln!(out, "warning: rank {}: {}", rank.number, escape(loss.as_bytes()));
            });
        }
        out.push('\n');
        out += &self.rank_rows(columns);
        out += &self.kernel_rows(columns);
        out
    }

    fn rank_rows(&self, columns: usize) -> String {
        let titles = [
            "RANK",
            "host",
            "length",
            "kernels",
            "compute",
            "collectives",
            "busy",
            "last in",
            "waited for",
            "clock",
            "memory",
            "failures",
        ];
        let row = |(rank, late): (&Rank, &Lateness)| {
            let summary = &rank.summary;
            vec![
                rank.number.to_string(),
                rank.run.host.clone(),
                time(summary.length_ns()),
                sum(summary.gpu_kernels.values().map(|stat| stat.count)).to_string(),
                time(rank.own_ns()),
                time(rank.kernels_ns(true)),
                format!("{} %", rank.busy_percent()),
                late.last.to_string(),
                time(late.waited_ns),
                late.clock_ns.map_or("-".into(), clock_text),
                size(sum(summary.memory.values().map(|memory| memory.peak))),
                summary.failures().to_string(),
            ]
        };
        let rows: Vec<_> = self.ranks.iter().zip(&self.lateness).map(row).collect();
        text_table::draw(&titles, &rows, columns)
    }

    fn kernel_rows(&self, columns: usize) -> String {
        let spreads = self.spreads();
        let title = if self.has_gpu() { "KERNEL (time on the GPU)" } else { "CALL (its own time)" };
        let titles = [title, "least", "on rank", "most", "on rank", "apart", "count", "to"];
        let row = |spread: &Spread| {
            vec![
                spread.name.to_string(),
                time(spread.least.ns),
                spread.least.rank.to_string(),
                time(spread.most.ns),
                spread.most.rank.to_string(),
                time(spread.most.ns - spread.least.ns),
                spread.counts.0.to_string(),
                spread.counts.1.to_string(),
            ]
        };
        let rows: Vec<_> = spreads.iter().take(ROWS).map(row).collect();
        if rows.is_empty() {
            return String::new();
        }
        let mut text = format!("\n{}", text_table::draw(&titles, &rows, columns));
        if spreads.len() > ROWS {
            let _ = writeln!(text, "... and {} more", spreads.len() - ROWS);
        }
        text
    }

    /// Whether a rank has work of the GPU; then kernels are compared, otherwise calls.
    fn has_gpu(&self) -> bool {
        self.ranks.iter().any(|rank| !rank.summary.gpu_kernels.is_empty())
    }

    /// The spread of each kernel or call over the ranks, the widest first.
    fn spreads(&self) -> Vec<Spread> {
        let is_gpu = self.has_gpu();
        let names: BTreeSet<&Arc<str>> =
            self.ranks.iter().flat_map(|rank| rank.stats(is_gpu).keys()).collect();
        let amount = |rank: &Rank, name: &str| {
            let stat = rank.stats(is_gpu).get(name);
            let ns = stat.map_or(0, |stat| if is_gpu { stat.total_ns } else { stat.self_ns });
            (OnRank { ns, rank: rank.number }, stat.map_or(0, |stat| stat.count))
        };
        let spread = |name: &Arc<str>| Spread::of(name, self.ranks.iter().map(|rank| amount(rank, name)));
        let mut spreads: Vec<Spread> = names.into_iter().filter_map(spread).collect();
        spreads.sort_by_key(|spread| std::cmp::Reverse(spread.most.ns - spread.least.ns));
        spreads
    }

    /// One row per rank.
    pub fn table(&self) -> Table {
        const COLUMNS: &[&str] = &[
            "rank",
            "host",
            "length_ns",
            "kernels",
            "compute_ns",
            "collectives_ns",
            "busy_percent",
            "last_in",
            "waited_for_ns",
            "clock_ns",
            "peak_bytes",
            "failures",
        ];
        let row = |(rank, late): (&Rank, &Lateness)| {
            let summary = &rank.summary;
            vec![
                Cell::Number(rank.number.into()),
                Cell::Text(rank.run.host.clone()),
                Cell::Number(summary.length_ns()),
                Cell::Number(sum(summary.gpu_kernels.values().map(|stat| stat.count))),
                Cell::Number(rank.own_ns()),
                Cell::Number(rank.kernels_ns(true)),
                Cell::Number(rank.busy_percent()),
                Cell::Number(late.last),
                Cell::Number(late.waited_ns),
                Cell::Integer(late.clock_ns.unwrap_or(0)),
                Cell::Number(sum(summary.memory.values().map(|memory| memory.peak))),
                Cell::Number(summary.failures()),
            ]
        };
        let rows = self.ranks.iter().zip(&self.lateness).map(row).collect();
        Table { name: "ranks", columns: COLUMNS, rows }
    }

    /// One row per kernel: its least and its most time, and on which rank.
    pub fn spread_table(&self) -> Table {
        const COLUMNS: &[&str] =
            &["name", "least_ns", "least_rank", "most_ns", "most_rank", "least_count", "most_count"];
        let row = |spread: Spread| {
            let numbers = [
                spread.least.ns,
                spread.least.rank.into(),
                spread.most.ns,
                spread.most.rank.into(),
                spread.counts.0,
                spread.counts.1,
            ];
            [Cell::Text(spread.name.to_string())].into_iter().chain(numbers.map(Cell::Number)).collect()
        };
        Table { name: "spread", columns: COLUMNS, rows: self.spreads().into_iter().map(row).collect() }
    }
}

/// The time of a kernel on a rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OnRank {
    ns: u64,
    rank: u32,
}

/// How far the ranks are apart in a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spread {
    name: Arc<str>,
    least: OnRank,
    most: OnRank,
    /// Smallest and largest number of runs.
    counts: (u64, u64),
}

impl Spread {
    /// The spread of the times and numbers of runs on each rank; `None` without a rank.
    fn of(name: &Arc<str>, amounts: impl Iterator<Item = (OnRank, u64)>) -> Option<Spread> {
        let (times, counts): (Vec<OnRank>, Vec<u64>) = amounts.unzip();
        Some(Spread {
            name: name.clone(),
            least: *times.iter().min()?,
            most: *times.iter().max()?,
            counts: (*counts.iter().min()?, *counts.iter().max()?),
        })
    }
}

/// A collective on all ranks: wall-clock ns of its starts and ends.
struct Collective {
    starts: Vec<i128>,
    ends: Vec<i128>,
}

/// The collectives that all ranks ran: the first of a name on one rank belongs to the first of it on the others, and so on. A name that some
/// rank ran less often is left out: it is of a group of ranks.
fn common(ranks: &[Rank]) -> Vec<Collective> {
    let Some((first, others)) = ranks.split_first() else { return Vec::new() };
    let mut found = Vec::new();
    for (name, times) in &first.collectives.by_name {
        let of_others: Option<Vec<&Vec<Times>>> =
            others.iter().map(|rank| rank.collectives.by_name.get(name)).collect();
        let Some(of_others) = of_others.filter(|all| all.iter().all(|other| other.len() == times.len()))
        else {
            continue;
        };
        let all: Vec<&Vec<Times>> = std::iter::once(times).chain(of_others).collect();
        found.extend((0..times.len()).map(|at| Collective {
            starts: ranks.iter().zip(&all).map(|(rank, times)| rank.run.wall_ns(times[at].start)).collect(),
            ends: ranks.iter().zip(&all).map(|(rank, times)| rank.run.wall_ns(times[at].end)).collect(),
        }));
    }
    found
}

fn median(numbers: impl Iterator<Item = i128>) -> Option<i128> {
    let mut numbers: Vec<i128> = numbers.collect();
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied()
}

fn clock_text(ns: i128) -> String {
    let magnitude = time(u64::try_from(ns.unsigned_abs()).unwrap_or(u64::MAX));
    format!("{}{magnitude}", if ns < 0 { "-" } else { "+" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpu_kernel;

    /// A rank whose clock is ahead, with kernels of this length before each of three collectives that all leave together.
    fn rank(number: u32, ahead_ns: u64, compute_ns: u64) -> Rank {
        let run = Run { rank: Some(number), host: format!("node{number}"), ..Run::default() };
        let mut rank = Rank::of(&run).expect("it says its rank");
        for step in 0..3 {
            let begin = 1_000_000 * (step + 1) + ahead_ns;
            rank.add(&gpu_kernel("gemm", begin, compute_ns));
            let start = begin + compute_ns;
            rank.add(&gpu_kernel("ncclDevKernel_AllReduce", start, begin + 900_000 - start));
        }
        rank
    }

    #[test]
    fn the_slowest_rank_is_found_though_its_collectives_are_the_shortest() {
        let ranks = Ranks::of(vec![rank(2, 0, 100_000), rank(0, 5_000_000, 100_000), rank(1, 0, 400_000)]);
        assert_eq!(
            ranks.verdict(),
            "rank 1 computes longest: 1.2 ms, the median rank 300.0 us; the others waited 900.0 us for rank 1, which was the last in 3 \
             of 3 collectives"
        );
        // The clock of rank 0 is 5 ms ahead.
        assert_eq!(ranks.lateness[1].clock_ns, Some(-5_000_000));
        let csv = ranks.table().csv();
        assert!(csv.contains("\n1,node1,2900000,6,1200000,1500000,"), "{csv}");
        let csv = ranks.spread_table().csv();
        assert!(csv.contains("\ngemm,300000,0,1200000,1,3,3\n"), "{csv}");
    }

    #[test]
    fn collectives_of_some_ranks_are_left_out_and_told() {
        let mut more = rank(1, 0, 100_000);
        more.add(&gpu_kernel("ncclDevKernel_AllReduce", 9_000_000, 1000));
        let ranks = Ranks::of(vec![rank(0, 0, 100_000), more]);
        assert_eq!(ranks.collectives, 0);
        assert!(ranks.text(120).contains("warning: 4 collectives are not compared"), "{}", ranks.text(120));
    }
}
