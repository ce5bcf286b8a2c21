//! What a recording amounts to: calls, launches, memory, copies, errors and ioctls, counted as records go by.
//!
//! A call of the runtime and the calls of the driver in it are both calls; what an operation amounts to is counted at the
//! driver's functions alone, which the tables of CUDA know by name, so nothing counts twice.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use foldhash::HashMap;

use crate::export::{Data, Kind, Record, Span, Status, Text};
use crate::value::escape;

/// Calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// How many.
    pub count: u64,
    /// ns of all.
    pub total_ns: u64,
    /// ns of the shortest.
    pub min_ns: u64,
    /// ns of the longest.
    pub max_ns: u64,
    /// Those that failed.
    pub errors: u64,
    /// By the ns: [`PARTS`] for each power of two.
    buckets: Vec<u32>,
}

/// Kinds of error that are told at the end of a run.
const ERRORS: usize = 10;

/// Buckets of one power of two: what a percentile is off by at most is a sixteenth.
const PARTS: u64 = 16;

/// The bucket of a duration. Below [`PARTS`] each ns has its own.
fn bucket(ns: u64) -> usize {
    let power = ns.max(PARTS).ilog2() - PARTS.ilog2();
    (u64::from(power) * PARTS + (ns >> power)) as usize
}

/// The longest duration of a bucket, ns.
fn bucket_end(at: usize) -> u64 {
    let at = at as u64;
    let power = (at / PARTS).saturating_sub(1);
    ((u128::from(at - power * PARTS + 1) << power) - 1) as u64
}

impl Default for Stat {
    fn default() -> Stat {
        Stat { count: 0, total_ns: 0, min_ns: u64::MAX, max_ns: 0, errors: 0, buckets: Vec::new() }
    }
}

impl Stat {
    fn add(&mut self, ns: u64, failed: bool) {
        self.count += 1;
        self.total_ns += ns;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.errors += u64::from(failed);
        let at = bucket(ns);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
    }

    /// ns that so many of a hundred calls do not exceed, by the upper end of its bucket.
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return bucket_end(at).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Calls by power of two of their ns, the last one not empty.
    pub fn powers(&self) -> Vec<u64> {
        let mut powers = vec![0; self.max_ns.max(1).ilog2() as usize + 1];
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            powers[bucket_end(at).max(1).ilog2() as usize] += u64::from(*count);
        }
        powers
    }
}

/// Bytes that went one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Copies.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// ns in the calls.
    pub ns: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Calls by function, and other spans by name.
    pub functions: HashMap<Arc<str>, Stat>,
    /// Launches by kernel.
    pub kernels: HashMap<Arc<str>, Stat>,
    /// Copies by direction.
    pub copies: BTreeMap<Arc<str>, Moved>,
    /// Failed calls by function and result.
    pub errors: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// Spans of the kernel side by name.
    pub ioctls: BTreeMap<Arc<str>, Stat>,
    /// Processes and threads.
    pub threads: HashMap<(u32, u32), Arc<str>>,
    /// Calls of the runtime and of the driver.
    pub calls: (u64, u64),
    /// Allocations that worked, and their bytes.
    pub allocations: Moved,
    /// Frees that worked.
    pub frees: u64,
    /// Bytes that are allocated and not freed, and the most there were.
    pub live: (u64, u64),
    /// Blocks that are allocated: by process and address.
    blocks: HashMap<(u32, u64), u64>,
    /// All records.
    pub records: u64,
    /// Spans.
    pub spans: u64,
    /// Boot-clock ns of the first start and of the last end.
    pub window: Option<(u64, u64)>,
    /// What was lost or went wrong, as it was told.
    pub troubles: Vec<String>,
}

/// What a call of the driver is, for people: kinds by which time and colour are told apart.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A kernel or graph launch.
    Launch,
    /// Memory is made or freed.
    Memory,
    /// A copy or fill.
    Copy,
    /// The program waits.
    Wait,
    /// What the kernel of Linux is asked.
    Kernel,
    /// A call of the runtime.
    Runtime,
    /// Anything else.
    #[default]
    Other,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 7] =
        [Class::Launch, Class::Copy, Class::Memory, Class::Wait, Class::Kernel, Class::Runtime, Class::Other];

    /// One letter.
    pub fn letter(self) -> char {
        match self {
            Class::Launch => 'L',
            Class::Memory => 'M',
            Class::Copy => 'C',
            Class::Wait => 'W',
            Class::Kernel => 'K',
            Class::Runtime => 'R',
            Class::Other => 'o',
        }
    }

    /// A word or two.
    pub fn name(self) -> &'static str {
        match self {
            Class::Launch => "launch",
            Class::Memory => "memory",
            Class::Copy => "copy, fill",
            Class::Wait => "wait",
            Class::Kernel => "ioctl",
            Class::Runtime => "runtime call",
            Class::Other => "other",
        }
    }
}

/// Which operation a function of the driver is part of.
fn operation(api: &str) -> Option<&'static str> {
    thread_local! {
        static BY_API: HashMap<&'static str, &'static str> = cuda::operations::Api::of_library(cuda::Library::Driver)
            .into_iter()
            .flat_map(|api| api.operations)
            .filter(|operation| !matches!(operation.name, "error" | "call" | "graph" | "node"))
            .flat_map(|operation| {
                operation.feeds.iter().flat_map(|feed| feed.functions).map(|function| (*function, operation.name))
            })
            .collect();
    }
    BY_API.with(|known| known.get(api).copied())
}

/// What a span is for people.
pub fn class_of(record: &Record) -> Class {
    if matches!(record.field("category"), Some(Data::Text(category)) if category.starts_with("nvidia")) {
        return Class::Kernel;
    }
    match operation(&record.site.api) {
        Some("launch") => Class::Launch,
        Some("alloc" | "free") => Class::Memory,
        Some("memcpy" | "memset") => Class::Copy,
        Some("sync") => Class::Wait,
        _ if record.site.func.starts_with("cuda") => Class::Runtime,
        _ => Class::Other,
    }
}

impl Summary {
    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        self.records += 1;
        match &record.kind {
            Kind::Span(span) => self.span(record, span),
            Kind::Text(Text::Trouble(_), text) => self.troubles.push(text.clone()),
            _ => {}
        }
    }

    fn span(&mut self, record: &Record, span: &Span) {
        self.spans += 1;
        let (first, last) = self.window.unwrap_or((u64::MAX, 0));
        let end = record.time_ns + span.duration_ns;
        self.window = Some((first.min(record.time_ns), last.max(end)));
        if let Some(thread) = &record.thread {
            let known = self.threads.entry((thread.pid, thread.tid)).or_insert_with(|| thread.comm.clone());
            if !thread.comm.is_empty() && !Arc::ptr_eq(known, &thread.comm) {
                *known = thread.comm.clone();
            }
        }
        let (ns, failed) = (record.own_ns(), span.status == Status::Error);
        if class_of(record) == Class::Kernel {
            return stat(&mut self.ioctls, &record.name).add(ns, failed);
        }
        match self.functions.get_mut(&record.name) {
            Some(known) => known.add(ns, failed),
            None => self.functions.entry(record.name.clone()).or_default().add(ns, failed),
        }
        let is_runtime = record.site.func.starts_with("cuda");
        let is_driver = !is_runtime && record.site.func.starts_with("cu");
        self.calls = (self.calls.0 + u64::from(is_runtime), self.calls.1 + u64::from(is_driver));
        if failed {
            let result = span.result.as_ref().map_or(String::new(), Data::label);
            *self.errors.entry((record.name.clone(), result.into())).or_default() += 1;
        }
        self.operation(record, span);
    }

    fn operation(&mut self, record: &Record, span: &Span) {
        let number = |name: &str| record.field(name).and_then(Data::number).unwrap_or(0).max(0) as u64;
        let pid = record.thread.as_ref().map_or(0, |thread| thread.pid);
        let works = span.status != Status::Error;
        match operation(&record.site.api) {
            Some("launch") if works => {
                let kernel = match record.field("kernel") {
                    Some(Data::Text(kernel)) => kernel.clone(),
                    _ => record.name.clone(),
                };
                self.kernels.entry(kernel).or_default().add(record.own_ns(), false);
            }
            Some("alloc") if works => {
                let bytes = number("bytes");
                self.allocations.count += 1;
                self.allocations.bytes += bytes;
                self.allocations.ns += record.own_ns();
                let before = self.blocks.insert((pid, number("ptr")), bytes).unwrap_or(0);
                self.live.0 = self.live.0.saturating_sub(before) + bytes;
                self.live.1 = self.live.1.max(self.live.0);
            }
            Some("free") if works => {
                self.frees += 1;
                let bytes = self.blocks.remove(&(pid, number("ptr"))).unwrap_or(0);
                self.live.0 = self.live.0.saturating_sub(bytes);
            }
            Some("memcpy") if works => {
                let direction = match record.field("direction") {
                    Some(Data::Text(direction)) => direction.clone(),
                    _ => "any".into(),
                };
                let moved = self.copies.entry(direction).or_default();
                moved.count += 1;
                moved.bytes += number("bytes");
                moved.ns += record.own_ns();
            }
            _ => {}
        }
    }

    /// Blocks that were never freed.
    pub fn leaked(&self) -> usize {
        self.blocks.len()
    }

    /// Launches.
    pub fn launches(&self) -> u64 {
        self.kernels.values().map(|stat| stat.count).sum()
    }

    /// Some lines for the end of a run.
    pub fn short(&self) -> String {
        let mut lines = Lines::default();
        let seconds = self.window.map_or(0, |(first, last)| last - first);
        let threads = self.threads.len();
        let threads = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        lines.add("time", format!("{}, {threads}", time(seconds)));
        lines.add("API calls", format!("{} driver, {} runtime", self.calls.1, self.calls.0));
        let kernels = self.kernels.len();
        let kernels = format!("{kernels} kernel{}", if kernels == 1 { "" } else { "s" });
        lines.add("launches", format!("{} of {kernels}", self.launches()));
        lines.add("allocations", self.short_of_memory());
        lines.add("transfers", self.short_of_copies());
        self.short_of_errors(&mut lines);
        self.short_of_ioctls(&mut lines);
        lines.0
    }

    fn short_of_memory(&self) -> String {
        format!(
            "{}, {}; {} frees; at most {} at a time, {} blocks left ({})",
            self.allocations.count,
            size(self.allocations.bytes),
            self.frees,
            size(self.live.1),
            self.leaked(),
            size(self.live.0)
        )
    }

    fn short_of_copies(&self) -> String {
        let transfers: u64 = self.copies.values().map(|moved| moved.count).sum();
        let bytes: u64 = self.copies.values().map(|moved| moved.bytes).sum();
        let way = |(way, moved): (&Arc<str>, &Moved)| {
            format!("{} {} in {}", escape(way.as_bytes()), size(moved.bytes), moved.count)
        };
        let ways: Vec<String> = self.copies.iter().map(way).collect();
        let ways = if ways.is_empty() { String::new() } else { format!(": {}", ways.join(", ")) };
        format!("{transfers}, {}{ways}", size(bytes))
    }

    /// The most frequent first.
    fn short_of_errors(&self, lines: &mut Lines) {
        lines.add("errors", self.errors.values().sum::<u64>().to_string());
        let mut errors: Vec<_> = self.errors.iter().collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for ((func, result), count) in errors.iter().take(ERRORS) {
            lines.row(func, format!("{count:>8}  {}", escape(result.as_bytes())));
        }
        if errors.len() > ERRORS {
            lines.add("", format!("... and {} more", errors.len() - ERRORS));
        }
    }

    fn short_of_ioctls(&self, lines: &mut Lines) {
        if self.ioctls.is_empty() {
            return;
        }
        lines.add("ioctls", self.ioctls.values().map(|stat| stat.count).sum::<u64>().to_string());
        for (name, stat) in by_time(&self.ioctls) {
            lines.row(name, format!("{:>8} {:>10}", stat.count, time(stat.total_ns)));
        }
    }

    /// The tables of a report.
    pub fn tables(&self, rows: usize) -> String {
        let mut out = self.short();
        let head = ["calls", "total", "mean", "median", "p99", "longest", "errors"];
        table(&mut out, "FUNCTION", head, &by_time(&self.functions), rows);
        table(&mut out, "KERNEL (host time of the launch)", head, &by_time(&self.kernels), rows);
        out
    }
}

/// Lines with a word before them.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, word: &str, text: String) {
        let _ = writeln!(self.0, "{word:<13} {text}");
    }

    /// What belongs to the line before, by a name of a program.
    fn row(&mut self, name: &str, text: String) {
        self.add("", format!("{:<34} {text}", escape(cut(name, 34).as_bytes())));
    }
}

fn stat<'m>(map: &'m mut BTreeMap<Arc<str>, Stat>, name: &Arc<str>) -> &'m mut Stat {
    map.entry(name.clone()).or_default()
}

/// The most time first; equal ones by name.
pub fn by_time<'m>(stats: impl IntoIterator<Item = (&'m Arc<str>, &'m Stat)>) -> Vec<(&'m str, &'m Stat)> {
    let mut all: Vec<_> = stats.into_iter().map(|(name, stat)| (&**name, stat)).collect();
    all.sort_by(|a, b| b.1.total_ns.cmp(&a.1.total_ns).then(a.0.cmp(b.0)));
    all
}

fn table(out: &mut String, title: &str, head: [&str; 7], stats: &[(&str, &Stat)], rows: usize) {
    if stats.is_empty() {
        return;
    }
    let _ = write!(out, "\n{title:<44}");
    head.iter().for_each(|word| _ = write!(out, " {word:>9}"));
    out.push('\n');
    for (name, stat) in stats.iter().take(rows) {
        let name = escape(cut(name, 44).as_bytes());
        let mean = stat.total_ns / stat.count.max(1);
        let _ = writeln!(
            out,
            "{name:<44} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            stat.count,
            time(stat.total_ns),
            time(mean),
            time(stat.percentile_ns(50)),
            time(stat.percentile_ns(99)),
            time(stat.max_ns),
            stat.errors
        );
    }
    if stats.len() > rows {
        let _ = writeln!(out, "... and {} more", stats.len() - rows);
    }
}

/// So many characters at most, with `..` in place of the middle.
pub fn cut(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= most {
        return text.to_owned();
    }
    let (head, tail) = ((most - 2) * 2 / 3, (most - 2) - (most - 2) * 2 / 3);
    let end: String = chars[chars.len() - tail..].iter().collect();
    chars[..head].iter().collect::<String>() + ".." + &end
}

/// `950 ns`, `12.3 ms`
pub fn time(ns: u64) -> String {
    crate::units::time(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// `512 B`, `4.7 MiB`
pub fn size(bytes: u64) -> String {
    crate::units::size(i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_all_durations() {
        let ends: Vec<u64> = (0..=bucket(u64::MAX)).map(bucket_end).collect();
        assert_eq!(ends.last(), Some(&u64::MAX));
        for (at, end) in ends.iter().enumerate() {
            assert_eq!(bucket(*end), at, "{end}");
            assert_eq!(bucket(end.saturating_add(1)), (at + 1).min(ends.len() - 1), "{end}");
        }
    }

    #[test]
    fn percentiles_are_off_by_a_sixteenth_at_most() {
        let mut stat = Stat::default();
        (1..=10_000).for_each(|ns| stat.add(ns * 1000, false));
        for (percent, exact) in [(50, 5_000_000), (99, 9_900_000), (100, 10_000_000)] {
            let found = stat.percentile_ns(percent);
            assert!((exact..=exact + exact / 16).contains(&found), "{percent} %: {found}");
        }
        assert_eq!(stat.powers().iter().sum::<u64>(), 10_000);
    }
}
