//! Empties a map of counts while programs continue to count, without losing a count.
//!
//! Deleting the cells after reading them would lose the counts in between. Instead the cells stay, and their totals at the time
//! of emptying are subtracted from later totals. This works for words that samples only add to, and costs the programs nothing.
//!
//! ```text
//! print(@)   total 500            prints 500
//! clear(@)   start = 500          counts after the print are kept
//! print(@)   total 720            prints 220
//! ```
//!
//! Keys whose totals did not change since the previous emptying are deleted, so that the map does not fill up. If the map is
//! more than half full, all keys are deleted that no call has changed since the print; if that is not enough, all others, too. A
//! deletion returns the last total, and its increase is kept here. The only loss is that of a call that has found its cell before
//! the deletion and adds to it afterwards, some nanoseconds later. Hence keys that programs are using are deleted last.
//!
//! Not here: how cells are read and deleted, and which maps qualify (`maps`).

use std::collections::HashMap;

/// The words of a cell, summed over all CPUs.
pub(crate) type Total = Vec<u64>;

/// By key, the total when the map was emptied.
#[derive(Debug, Default)]
pub(crate) struct Starts(HashMap<Vec<u8>, Start>);

#[derive(Debug)]
struct Start {
    total: Total,
    /// True if the key stays, with a value of 0 (`zero(@m)`).
    is_shown: bool,
}

/// Counts of a key since the map was emptied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Since {
    /// Words of the cell.
    pub words: Total,
    /// `None` if the key has no start; `Some(true)` if it is shown even if all words are 0.
    pub is_shown: Option<bool>,
}

impl Starts {
    /// The counts of a key since the map was emptied.
    pub(crate) fn since(&self, key: &[u8], total: &[u64]) -> Since {
        match self.0.get(key) {
            None => Since { words: total.to_vec(), is_shown: None },
            Some(start) => Since { words: subtract(total, &start.total), is_shown: Some(start.is_shown) },
        }
    }

    /// Keys with a start, including those that are not in the map.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.0.keys()
    }

    /// Whether the total of a key has not changed since the map was emptied.
    pub(crate) fn is_idle(&self, key: &[u8], total: &[u64]) -> bool {
        self.0.get(key).is_some_and(|start| start.total == total)
    }

    /// `clear(@m)` of a key with this total.
    pub(crate) fn clear(&mut self, key: Vec<u8>, total: Total) {
        self.set(key, total, false);
    }

    /// `clear(@m)` of a key that was deleted with the total `last`.
    pub(crate) fn clear_deleted(&mut self, key: Vec<u8>, total: &[u64], last: &[u64]) {
        self.set(key, subtract(total, last), false);
    }

    /// `zero(@m)` of a key: if it exists, its value is 0.
    pub(crate) fn zero(&mut self, key: Vec<u8>, total: Total) {
        let exists = match self.since(&key, &total) {
            Since { is_shown: Some(is_shown), words } => is_shown || words.iter().any(|word| *word != 0),
            Since { is_shown: None, .. } => true,
        };
        self.set(key, total, exists);
    }

    /// Removes the start of a deleted key.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// Removes all starts.
    pub(crate) fn remove_all(&mut self) {
        self.0.clear();
    }

    fn set(&mut self, key: Vec<u8>, total: Total, is_shown: bool) {
        if !is_shown && total.iter().all(|word| *word == 0) {
            self.0.remove(&key);
        } else {
            self.0.insert(key, Start { total, is_shown });
        }
    }
}

/// Sums wrap around, and so do their differences.
fn subtract(total: &[u64], start: &[u64]) -> Total {
    total.iter().zip(start).map(|(total, start)| total.wrapping_sub(*start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(starts: &Starts, total: u64) -> (u64, Option<bool>) {
        let Since { words, is_shown } = starts.since(b"k", &[total]);
        (words[0], is_shown)
    }

    #[test]
    fn counts_after_the_reading_of_the_total_are_kept() {
        let mut starts = Starts::default();
        assert_eq!(since(&starts, 500), (500, None));
        starts.clear(b"k".to_vec(), vec![500]);
        assert_eq!(since(&starts, 500), (0, Some(false)));
        assert_eq!(since(&starts, 720), (220, Some(false)));
        assert!(starts.is_idle(b"k", &[500]) && !starts.is_idle(b"k", &[501]));
    }

    #[test]
    fn a_deleted_key_keeps_its_last_counts() {
        let mut starts = Starts::default();
        starts.clear_deleted(b"k".to_vec(), &[500], &[503]);
        assert_eq!(since(&starts, 0), (3, Some(false)), "not in the map");
        assert_eq!(since(&starts, 4), (7, Some(false)), "created again");
        starts.clear(b"k".to_vec(), vec![0]);
        assert_eq!(starts.keys().count(), 0);
        starts.clear_deleted(b"k".to_vec(), &[500], &[500]);
        assert_eq!(starts.keys().count(), 0, "no further counts");
    }

    #[test]
    fn zero_keeps_existing_keys() {
        let mut starts = Starts::default();
        starts.zero(b"k".to_vec(), vec![5]);
        assert_eq!(since(&starts, 5), (0, Some(true)));
        starts.clear(b"k".to_vec(), vec![6]);
        starts.zero(b"k".to_vec(), vec![6]);
        assert_eq!(since(&starts, 6), (0, Some(false)), "cleared before");
        starts.zero(b"k".to_vec(), vec![7]);
        assert_eq!(since(&starts, 7), (0, Some(true)), "counted again");
    }
}
