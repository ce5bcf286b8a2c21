//! Recency of a map's keys: a full `lruhash` evicts the key that was unused for the longest time.

/// Keys in order of their last use, the most recent last.
#[derive(Debug, Default)]
pub(crate) struct Recency(Vec<Vec<u8>>);

impl Recency {
    /// Marks a key as used.
    pub(crate) fn used(&mut self, key: &[u8]) {
        self.forget(key);
        self.0.push(key.to_vec());
    }

    /// Removes a key.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        self.0.retain(|known| known != key);
    }

    /// Removes and returns the least recently used key.
    pub(crate) fn take_oldest(&mut self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}
