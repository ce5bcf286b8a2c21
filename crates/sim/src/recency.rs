//! Recency of a map's keys: a full `lruhash` evicts the key that was unused for the longest time.

/// Keys, the one used last at the end.
#[derive(Debug, Default)]
pub struct Recency(Vec<Vec<u8>>);

impl Recency {
    /// A key is used.
    pub fn used(&mut self, key: &[u8]) {
        self.forget(key);
        self.0.push(key.to_vec());
    }

    /// A key is gone.
    pub fn forget(&mut self, key: &[u8]) {
        self.0.retain(|known| known != key);
    }

    /// The key that gives way.
    pub fn take_oldest(&mut self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}
