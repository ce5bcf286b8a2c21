//! The activity of each thread over time, as rows of letters.
//!
//! ```text
//! python3 1234/1234     |oLLLLWWWW.  CCCCCLLLLLL|
//! ```
//!
//! A column is a slice of time. Its letter is the class of calls with the most time in the slice; the time of a runtime call excludes
//! the driver calls in it. The letter is lower-case if that is less than half of the slice. A blank means no calls.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::export::{GpuStream, Kind, Record};
use crate::recording::summary::{Class, class_of, cut, time};

/// Number of time slices; at least half of them are used. A row has fewer columns, which merge several slices.
/// There may be thousands of threads, each with all slices.
const SLICES: usize = 1 << 10;
/// Largest number of threads, about 80 KB each.
const MOST_THREADS: usize = 1 << 12;

/// Time by class in each slice, for one thread.
type Slices = Vec<[u64; Class::ALL.len()]>;

/// Timeline of threads; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    start_ns: u64,
    /// Length of a slice in ns; it doubles when the time exceeds the last slice.
    slice_ns: u64,
    threads: BTreeMap<(u32, u32), (Arc<str>, Slices)>,
    /// First start and last end of a call, relative to `start_ns`.
    window: Option<(u64, u64)>,
    /// Threads beyond the limit.
    uncounted: HashSet<(u32, u32)>,
}

impl Timeline {
    /// Creates a timeline that begins at a boot-clock time.
    pub fn new(start_ns: u64) -> Timeline {
        Timeline { start_ns, slice_ns: 1 << 14, ..Timeline::default() }
    }

    /// Adds a span.
    pub fn add(&mut self, record: &Record) {
        let (Kind::Span(span), Some(thread)) = (&record.kind, &record.thread) else { return };
        let start = record.time_ns.saturating_sub(self.start_ns);
        let end = start + span.duration_ns;
        let (first, last) = self.window.unwrap_or((start, end));
        self.window = Some((first.min(start), last.max(end)));
        while end / self.slice_ns >= SLICES as u64 {
            self.double();
        }
        let key = (thread.pid, thread.tid);
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&key) {
            self.uncounted.insert(key);
            return;
        }
        let class = Class::ALL.iter().position(|known| *known == class_of(record)).unwrap_or(0);
        let slice_ns = self.slice_ns;
        let (comm, slices) = self
            .threads
            .entry(key)
            .or_insert_with(|| (thread.comm.clone(), vec![[0; Class::ALL.len()]; SLICES]));
        if !thread.comm.is_empty() {
            *comm = thread.comm.clone();
        }
        for slice in start / slice_ns..=end / slice_ns {
            let (from, to) = (start.max(slice * slice_ns), end.min((slice + 1) * slice_ns));
            // Short spans count at least 1 ns, so that they are visible.
            let ns = (to - from).max(1);
            let cell = &mut slices[slice as usize][class];
            *cell = cell.saturating_add(ns);
        }
    }

    fn double(&mut self) {
        self.slice_ns *= 2;
        for (_, slices) in self.threads.values_mut() {
            for at in 0..SLICES {
                slices[at] = match at < SLICES / 2 {
                    true => std::array::from_fn(|class| {
                        slices[2 * at][class].saturating_add(slices[2 * at + 1][class])
                    }),
                    false => [0; Class::ALL.len()],
                };
            }
        }
    }

    /// The first slice with any activity.
    fn first_slice(&self) -> usize {
        let is_busy = |slice: &[u64; Class::ALL.len()]| slice.iter().any(|ns| *ns > 0);
        let firsts = self.threads.values().filter_map(|(_, slices)| slices.iter().position(is_busy));
        firsts.min().unwrap_or(0)
    }

    /// Draws at most `rows` threads, the busiest ones, with a legend.
    pub fn draw(&self, columns: usize, rows: usize) -> String {
        let mut out = String::new();
        let mut threads: Vec<_> = self.threads.iter().collect();
        let busy =
            |slices: &Slices| -> u64 { slices.iter().flatten().fold(0, |sum, ns| sum.saturating_add(*ns)) };
        threads.sort_by_cached_key(|(_, (_, slices))| std::cmp::Reverse(busy(slices)));
        let left_out = threads.len().saturating_sub(rows);
        threads.truncate(rows);
        threads.sort_by_key(|(key, _)| **key);
        let first = self.first_slice();
        let (first_ns, end_ns) = self.window.unwrap_or_default();
        let used = (end_ns / self.slice_ns.max(1) + 1) as usize - first;
        for ((pid, tid), (comm, slices)) in threads {
            let name = crate::value::escape(cut(comm, 15).as_bytes());
            let slice = |column: usize| first + column * used / columns;
            let row: String = (0..columns)
                .map(|column| {
                    let (from, to) = (slice(column), slice(column + 1).max(slice(column) + 1));
                    letter(&slices[from.min(SLICES)..to.min(SLICES)], self.slice_ns)
                })
                .collect();
            // A stream of a GPU has its name.
            let ids =
                if GpuStream::of_tid(*tid).is_some() { format!("{pid}") } else { format!("{pid}/{tid}") };
            let _ = writeln!(out, "{name:<15} {ids:<15} |{row}|");
        }
        if left_out > 0 {
            let _ = writeln!(out, "... and {left_out} less busy threads");
        }
        if !self.uncounted.is_empty() {
            let (more, most) = (self.uncounted.len(), MOST_THREADS);
            let _ = writeln!(out, "... and {more} threads that came after the first {most}");
        }
        let legend: Vec<String> =
            Class::ALL.iter().map(|class| format!("{} {}", class.letter(), class.name())).collect();
        let length = time(end_ns - first_ns);
        let _ = writeln!(out, "{:<31} |0{length:>width$}|", "", width = columns.saturating_sub(1));
        let _ = writeln!(out, "{}; lower-case: less than half of the column", legend.join(", "));
        out
    }
}

fn letter(slices: &[[u64; Class::ALL.len()]], slice_ns: u64) -> char {
    let mut ns = [0u64; Class::ALL.len()];
    slices
        .iter()
        .for_each(|slice| ns.iter_mut().zip(slice).for_each(|(sum, one)| *sum = sum.saturating_add(*one)));
    // The time of a runtime call is attributed to the driver calls in it, if these are known.
    let runtime = Class::ALL.iter().position(|class| *class == Class::Runtime).unwrap_or(0);
    let others = ns.iter().enumerate().filter(|(at, _)| *at != runtime);
    let inside = others.fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
    ns[runtime] = ns[runtime].saturating_sub(inside);
    let Some((at, most)) = ns.iter().enumerate().max_by_key(|(_, ns)| **ns).filter(|(_, ns)| **ns > 0) else {
        return ' ';
    };
    let letter = Class::ALL[at].letter();
    let half = slice_ns * slices.len() as u64 / 2;
    if *most >= half { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
}
