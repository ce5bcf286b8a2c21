//! Numbers over time: allocated memory by kind, and counters of scripts.

use super::columns::{self, zigzag};
use crate::export::{Data, Kind, Record, json};
use crate::recording::summary::{Class, PROCESS_END, class_of, memory_kind};
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest number of points of a curve. Of more, the smallest and the largest of each four are kept.
const POINTS: usize = 1 << 20;
/// Largest number of counters.
const COUNTERS: usize = 1000;

/// A number over time: boot-clock ns and value at each change.
#[derive(Debug, Default)]
struct Curve {
    points: Vec<(u64, i64)>,
    is_thinned: bool,
}

impl Curve {
    fn push(&mut self, at_ns: u64, value: i64) {
        self.points.push((at_ns, value));
        if self.points.len() > 2 * POINTS {
            self.points = thinned(&self.points);
            self.is_thinned = true;
        }
    }
}

/// Half of the points: the smallest and the largest of each four, so that peaks stay.
fn thinned(points: &[(u64, i64)]) -> Vec<(u64, i64)> {
    let two = |four: &[(u64, i64)]| {
        let places = 0..four.len();
        let least = places.clone().min_by_key(|at| four[*at].1);
        let most = places.max_by_key(|at| four[*at].1);
        let mut two: Vec<usize> = least.into_iter().chain(most).collect();
        two.sort_unstable();
        two.dedup();
        two.into_iter().map(|at| four[at]).collect::<Vec<_>>()
    };
    points.chunks(4).flat_map(two).collect()
}

/// Curves; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct Areas {
    /// Memory by kind, and the bytes that are allocated.
    memory: BTreeMap<Arc<str>, (Curve, u64)>,
    /// Counters by name and keys.
    counters: BTreeMap<String, Curve>,
    /// Values of counters that are no numbers, or of too many counters.
    unshown: u64,
    /// Allocated blocks by process and address: bytes and kind.
    blocks: HashMap<(u32, u64), (u64, Arc<str>)>,
}

impl Areas {
    /// Adds a record, if it changes a number.
    pub(super) fn add(&mut self, record: &Record) {
        match (&record.kind, &record.thread) {
            (Kind::Counter { value }, _) => self.counter(record, value),
            (Kind::Instant { .. }, Some(thread)) if &*record.name == PROCESS_END => {
                self.end_process(thread.pid, record.time_ns);
            }
            (Kind::Span(span), Some(thread)) if span.works() && class_of(record) == Class::Memory => {
                self.memory_of(record, thread.pid);
            }
            _ => {}
        }
    }

    fn counter(&mut self, record: &Record, value: &Data) {
        let keys: Vec<String> = record.fields.labels().collect();
        let name = [&[record.name.to_string()][..], &keys].concat().join(" ");
        let is_full = self.counters.len() >= COUNTERS && !self.counters.contains_key(&name);
        let Some(number) = value.number().filter(|_| !is_full) else {
            self.unshown += 1;
            return;
        };
        let number = number.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        self.counters.entry(name).or_default().push(record.time_ns, number);
    }

    fn memory_of(&mut self, record: &Record, pid: u32) {
        let number =
            |name: &str| record.field(name).and_then(Data::number).map(|number| number.max(0) as u64);
        let Some(ptr) = number("ptr") else { return };
        let end = record.time_ns + record.duration_ns();
        // If a block is allocated at the address of another, the other was freed without a record.
        if let Some((bytes, kind)) = self.blocks.remove(&(pid, ptr)) {
            self.change(kind, end, |live| live.saturating_sub(bytes));
        }
        if let Some(bytes) = number("bytes") {
            let kind = memory_kind(record);
            self.change(kind.clone(), end, |live| live.saturating_add(bytes));
            self.blocks.insert((pid, ptr), (bytes, kind));
        }
    }

    fn change(&mut self, kind: Arc<str>, at_ns: u64, change: impl FnOnce(u64) -> u64) {
        let (curve, live) = self.memory.entry(kind).or_default();
        *live = change(*live);
        curve.push(at_ns, i64::try_from(*live).unwrap_or(i64::MAX));
    }

    /// Frees the memory of a process that has ended.
    fn end_process(&mut self, ended: u32, at_ns: u64) {
        let mut freed: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        self.blocks.retain(|(pid, _), (bytes, kind)| {
            if *pid == ended {
                let sum = freed.entry(kind.clone()).or_default();
                *sum = sum.saturating_add(*bytes);
            }
            *pid != ended
        });
        freed
            .into_iter()
            .for_each(|(kind, bytes)| self.change(kind, at_ns, |live| live.saturating_sub(bytes)));
    }

    /// Curves with their kinds and names.
    fn curves(&self) -> impl Iterator<Item = (&'static str, &str, &Curve)> {
        let memory = self.memory.iter().map(|(kind, (curve, _))| ("memory", &**kind, curve));
        memory.chain(self.counters.iter().map(|(name, curve)| ("counter", &**name, curve)))
    }

    /// Members of the page's data: kind, name and number of points of each curve, and whether points were left out; the number of values
    /// that no curve has.
    pub(super) fn header(&self, out: &mut String) {
        out.push_str(",\"areas\":");
        json::list(out, self.curves(), |out, (kind, name, curve)| {
            out.push_str("[\"");
            out.push_str(kind);
            out.push_str("\",");
            json::string(out, name);
            out.push_str(&format!(",{},{}]", curve.points.len(), curve.is_thinned));
        });
        out.push_str(&format!(",\"unshown\":{}", self.unshown));
    }

    /// Passes each column with its name to `each`: the points of all curves, with times relative to `first`.
    pub(super) fn columns(&self, first: u64, mut each: impl FnMut(&str, &[u8])) {
        let mut points = Vec::new();
        for (_, _, curve) in self.curves() {
            // Calls of several threads end in another order than they are recorded.
            let from = points.len();
            points.extend_from_slice(&curve.points);
            points[from..].sort_by_key(|(at, _)| *at);
        }
        let times = points.iter().map(|(at, _)| zigzag(at.wrapping_sub(first) as i64));
        each("area-time", &columns::bytes(times));
        each("area-value", &columns::bytes(points.iter().map(|(_, value)| zigzag(*value))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_valleys_stay_in_a_thinned_curve() {
        let points: Vec<(u64, i64)> = (0..1000).map(|at| (at, if at == 501 { 9 } else { 5 })).collect();
        let kept = thinned(&points);
        assert!(kept.len() <= 500 && kept.contains(&(501, 9)) && kept.is_sorted());
    }
}
