//! Values by key of which the latest are kept.

use std::hash::Hash;

use foldhash::{HashMap, HashMapExt};

/// Keeps at least the latest `LEAST` values, and at most twice as many.
#[derive(Debug)]
pub(crate) struct Recent<K, V, const LEAST: usize> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V, const LEAST: usize> Default for Recent<K, V, LEAST> {
    fn default() -> Self {
        Recent { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash, V: Copy, const LEAST: usize> Recent<K, V, LEAST> {
    /// Adds a value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= LEAST {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }

    /// The last value of a key, if it is kept.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.new.get(key).or_else(|| self.old.get(key)).copied()
    }
}

/// Number of launches that are kept for their work.
pub(crate) const LAUNCHES: usize = 1 << 17;

/// Ids of calls that launched work of a GPU, by process and correlation id. A recording in columns leaves out what its reader finds in the same way.
pub(crate) type LaunchIds = Recent<(u32, u64), u64, LAUNCHES>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_values_are_kept() {
        let mut recent = Recent::<u32, u32, 10>::default();
        for key in 0..100 {
            recent.insert(key, 2 * key);
            for kept in key.saturating_sub(9)..=key {
                assert_eq!(recent.get(&kept), Some(2 * kept), "{kept} of {key}");
            }
        }
        assert_eq!(recent.get(&70), None);
    }
}
