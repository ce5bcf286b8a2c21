//! A map of the interpreter. Keys are ordered by their bytes, as in the machine, so that loops over a map have the same order in
//! both.

use super::value::Val;
use crate::recency::Recency;
use crate::series;
use lang::hir::{Map, MapValue, Program};
use std::cell::RefCell;
use std::collections::BTreeMap;
use wire::map::Agg;

/// Content of a key.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// A value.
    Plain(Val),
    /// Words of an aggregation in the layout of `wire::map`, merged over all CPUs.
    Agg(Vec<u64>),
}

/// A map.
pub(super) struct Table {
    /// By the bytes of the key: its parts, and the slot.
    pub cells: BTreeMap<Vec<u8>, (Vec<Val>, Slot)>,
    pub agg: Option<Agg>,
    limit: usize,
    /// Recency of the keys of an `lruhash`; reads count as uses.
    recent: Option<RefCell<Recency>>,
}

impl Table {
    /// Creates an empty map; `sums`: its histograms also sum their samples.
    pub(super) fn new(map: &Map, sums: bool) -> Table {
        let agg = match &map.value {
            MapValue::Plain(_) => None,
            MapValue::Agg(agg) => Some(agg.clone().with_sums(sums)),
        };
        // A map without keys has a single cell.
        let recent = (map.evicts && !map.key.is_empty()).then(RefCell::default);
        Table { cells: BTreeMap::new(), agg, limit: map.max_entries as usize, recent }
    }

    /// Notes a use of a key.
    pub(super) fn used(&self, key: &[u8]) {
        if let Some(recent) = self.recent.as_ref().filter(|_| self.cells.contains_key(key)) {
            recent.borrow_mut().used(key);
        }
    }

    /// Removes a key; false if there is none.
    pub(super) fn forget(&mut self, key: &[u8]) -> bool {
        self.recent.iter().for_each(|recent| recent.borrow_mut().forget(key));
        self.cells.remove(key).is_some()
    }

    /// Makes room for a key; false if the map is full.
    pub(super) fn has_room(&mut self, key: &[u8]) -> bool {
        if self.cells.contains_key(key) || self.cells.len() < self.limit {
            return true;
        }
        let oldest = self.recent.as_ref().and_then(|recent| recent.borrow_mut().take_oldest());
        oldest.is_some_and(|oldest| self.cells.remove(&oldest).is_some())
    }

    /// Removes all keys.
    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.recent.iter().for_each(|recent| *recent.borrow_mut() = Recency::default());
    }

    /// Zeroes all values; the keys stay.
    pub(super) fn zero(&mut self, map: &Map, program: &Program) {
        for (_, slot) in self.cells.values_mut() {
            match (slot, &map.value) {
                (Slot::Plain(value), MapValue::Plain(ty)) => *value = Val::zero(ty, program),
                (Slot::Agg(words), _) => words.fill(0),
                (Slot::Plain(_), MapValue::Agg(_)) => {}
            }
        }
    }
}

/// Adds a sample with the current time to the words of a cell.
pub(super) fn add(agg: &Agg, words: &mut [u64], sample: i64, now_ns: u64) {
    let better = |old: u64, signed: bool, want_less: bool| {
        let less = if signed { sample < old as i64 } else { (sample as u64) < old };
        let equal = sample as u64 == old;
        equal || less == want_less
    };
    if let Some(sum) = agg.sum_word() {
        let sum = &mut words[sum as usize];
        *sum = sum.wrapping_add(sample as u64);
    }
    match *agg {
        Agg::Count => words[0] += 1,
        Agg::Sum { .. } | Agg::Avg { .. } | Agg::Stats { .. } => {
            words[0] += 1;
            words[1] = words[1].wrapping_add(sample as u64);
        }
        Agg::Min { signed } | Agg::Max { signed } => {
            let want_less = matches!(agg, Agg::Min { .. });
            if words[0] == 0 || better(words[1], signed, want_less) {
                words[1] = sample as u64;
            }
            words[0] += 1;
        }
        Agg::TSeries { .. } => series::add(agg, words, sample, now_ns),
        Agg::Hist { bits, .. } => words[wire::map::hist_bucket(sample, bits) as usize] += 1,
        Agg::LHist { min, max, step, .. } => {
            let past = i128::from(sample) - i128::from(min);
            let last = agg.buckets() as usize - 1;
            let bucket = match sample {
                _ if past < 0 => 0,
                _ if sample >= max => last,
                _ => 1 + (past / i128::from(step)) as usize,
            };
            words[bucket] += 1;
        }
    }
}
