//! Caches serialized text that many records share.

use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;

/// Things that are kept; beyond, all are forgotten and said anew.
const KEPT: usize = 8192;

/// Texts by what they are of.
pub(crate) struct TextCache<T> {
    /// By address, which is nobody else's while we hold it.
    texts: HashMap<usize, (Arc<T>, String)>,
}

impl<T> Default for TextCache<T> {
    fn default() -> TextCache<T> {
        TextCache { texts: HashMap::new() }
    }
}

impl<T> TextCache<T> {
    /// The text of it.
    pub fn of(&mut self, shared: &Arc<T>, say: impl FnOnce(&T) -> String) -> &str {
        let address = Arc::as_ptr(shared).addr();
        if self.texts.len() >= KEPT && !self.texts.contains_key(&address) {
            self.texts.clear();
        }
        &self.texts.entry(address).or_insert_with(|| (shared.clone(), say(shared))).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn said_once_and_never_for_another() {
        let mut said = TextCache::default();
        let one = Arc::new(1);
        assert_eq!(said.of(&one, |number| number.to_string()), "1");
        assert_eq!(said.of(&one, |_| unreachable!("it is known")), "1");
        for number in 0..3 * KEPT {
            // Dropped at once: were it not held, the next would lie at its address.
            assert_eq!(said.of(&Arc::new(number), |number| number.to_string()), number.to_string());
        }
        assert!(said.texts.len() <= KEPT);
    }
}
