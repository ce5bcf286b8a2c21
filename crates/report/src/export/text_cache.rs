//! Caches serialized text that many records share.

use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;

/// Largest number of texts; if the cache is full, it is cleared.
const KEPT: usize = 8192;

/// Cache of the texts of shared objects.
pub(crate) struct TextCache<T> {
    /// Texts by the address of the object, which cannot be reused while the cache holds the object.
    texts: HashMap<usize, (Arc<T>, String)>,
}

impl<T> Default for TextCache<T> {
    fn default() -> TextCache<T> {
        TextCache { texts: HashMap::new() }
    }
}

impl<T> TextCache<T> {
    /// The text of a shared object, computed by `format` at first use.
    pub(crate) fn of(&mut self, shared: &Arc<T>, format: impl FnOnce(&T) -> String) -> &str {
        let address = Arc::as_ptr(shared).addr();
        if self.texts.len() >= KEPT && !self.texts.contains_key(&address) {
            self.texts.clear();
        }
        &self.texts.entry(address).or_insert_with(|| (shared.clone(), format(shared))).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_computed_once_per_object() {
        let mut cache = TextCache::default();
        let one = Arc::new(1);
        assert_eq!(cache.of(&one, |number| number.to_string()), "1");
        assert_eq!(cache.of(&one, |_| unreachable!("it is cached")), "1");
        for number in 0..3 * KEPT {
            // The object is dropped immediately: if the cache did not hold it, the next one would have its
            // address.
            assert_eq!(cache.of(&Arc::new(number), |number| number.to_string()), number.to_string());
        }
        assert!(cache.texts.len() <= KEPT);
    }
}
