//! Empties a map of counts while programs go on counting, so that no count is lost.
//!
//! Reading the cells and then deleting them would lose what is counted in between. Instead the cells stay, and what they
//! held when the map was emptied is subtracted from then on. This works for words that samples only add to, and costs
//! the programs nothing.
//!
//! ```text
//! print(@)   total 500            prints 500
//! clear(@)   start = 500          what is counted after the print is kept
//! print(@)   total 720            prints 220
//! ```
//!
//! Keys that did not change from one emptying to the next are deleted, so that the map does not fill up; if the map is more
//! than half full, all keys are. A deletion returns the last total, and what it has more is kept here. Only a call that has
//! found its cell before the deletion and adds to it after is lost.
//!
//! Not here: how cells are read and deleted (`aggregate`), and which maps qualify.

use std::collections::HashMap;

/// A cell's words, summed over all CPUs.
pub type Total = Vec<u64>;

/// By key: the total when the map was emptied.
#[derive(Debug, Default)]
pub struct Starts(HashMap<Vec<u8>, Start>);

#[derive(Debug)]
struct Start {
    total: Total,
    /// The key stays, with a value of 0 (`zero(@m)`).
    is_shown: bool,
}

/// What has been counted since a map was emptied.
#[derive(Debug, PartialEq, Eq)]
pub struct Since {
    /// The words.
    pub words: Total,
    /// The key was there when the map was emptied: none without a start, `Some(true)` if it stays even with zeros.
    pub is_shown: Option<bool>,
}

impl Starts {
    /// What a key has counted since the map was emptied.
    pub fn since(&self, key: &[u8], total: &[u64]) -> Since {
        match self.0.get(key) {
            None => Since { words: total.to_vec(), is_shown: None },
            Some(start) => Since { words: subtract(total, &start.total), is_shown: Some(start.is_shown) },
        }
    }

    /// Keys that have a start, whether or not they are in the map.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.0.keys()
    }

    /// The key has not been counted under since the map was emptied the last time.
    pub fn is_idle(&self, key: &[u8], total: &[u64]) -> bool {
        self.0.get(key).is_some_and(|start| start.total == total)
    }

    /// `clear(@m)`: the key has counted `total`, and holds nothing from now on.
    pub fn clear(&mut self, key: Vec<u8>, total: Total) {
        self.set(key, total, false);
    }

    /// `clear(@m)` of a key that was deleted when it had counted `last`.
    pub fn clear_deleted(&mut self, key: Vec<u8>, total: &[u64], last: &[u64]) {
        self.set(key, subtract(total, last), false);
    }

    /// `zero(@m)`: a key that is there holds 0 from now on.
    pub fn zero(&mut self, key: Vec<u8>, total: Total) {
        let is_there = match self.since(&key, &total) {
            Since { is_shown: Some(is_shown), words } => is_shown || words.iter().any(|word| *word != 0),
            Since { is_shown: None, .. } => true,
        };
        self.set(key, total, is_there);
    }

    /// The key is gone, whatever it held.
    pub fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// All keys are gone.
    pub fn remove_all(&mut self) {
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

/// Sums wrap around, so their differences do.
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
    fn what_is_counted_after_the_total_was_read_is_kept() {
        let mut starts = Starts::default();
        assert_eq!(since(&starts, 500), (500, None));
        starts.clear(b"k".to_vec(), vec![500]);
        assert_eq!(since(&starts, 500), (0, Some(false)));
        assert_eq!(since(&starts, 720), (220, Some(false)));
        assert!(starts.is_idle(b"k", &[500]) && !starts.is_idle(b"k", &[501]));
    }

    #[test]
    fn a_deleted_key_keeps_what_it_counted_last() {
        let mut starts = Starts::default();
        starts.clear_deleted(b"k".to_vec(), &[500], &[503]);
        assert_eq!(since(&starts, 0), (3, Some(false)), "gone from the map");
        assert_eq!(since(&starts, 4), (7, Some(false)), "made again");
        starts.clear(b"k".to_vec(), vec![0]);
        assert_eq!(starts.keys().count(), 0);
        starts.clear_deleted(b"k".to_vec(), &[500], &[500]);
        assert_eq!(starts.keys().count(), 0, "nothing came");
    }

    #[test]
    fn zero_keeps_the_keys_that_are_there() {
        let mut starts = Starts::default();
        starts.zero(b"k".to_vec(), vec![5]);
        assert_eq!(since(&starts, 5), (0, Some(true)));
        starts.clear(b"k".to_vec(), vec![6]);
        starts.zero(b"k".to_vec(), vec![6]);
        assert_eq!(since(&starts, 6), (0, Some(false)), "it was cleared away");
        starts.zero(b"k".to_vec(), vec![7]);
        assert_eq!(since(&starts, 7), (0, Some(true)), "it came again");
    }
}
