//! Texts that occur once: names, and values of arguments.

use super::columns;
use foldhash::HashMap;
use std::sync::Arc;

/// Largest length of a text in characters.
const LENGTH: usize = 300;

/// Texts by number.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Texts {
    /// The number of a text.
    pub(super) fn number(&mut self, text: &Arc<str>) -> u32 {
        match self.numbers.get(text) {
            Some(number) => *number,
            None => self.add(text.clone()),
        }
    }

    /// The number of a text that is not shared.
    pub(super) fn number_of(&mut self, text: &str) -> u32 {
        match self.numbers.get(text) {
            Some(number) => *number,
            None => self.add(text.into()),
        }
    }

    /// The number of a text that was added.
    pub(super) fn known(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    fn add(&mut self, text: Arc<str>) -> u32 {
        let number = self.all.len() as u32;
        self.all.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The bytes of all texts: a column of their lengths in units of UTF-16, which JavaScript counts, then UTF-8. A text that is too
    /// long has `…` in its middle.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let cut: Vec<_> = self.all.iter().map(|text| shortened(text)).collect();
        let mut out = columns::bytes(cut.iter().map(|text| text.encode_utf16().count() as u64));
        cut.iter().for_each(|text| out.extend(text.as_bytes()));
        out
    }
}

fn shortened(text: &str) -> std::borrow::Cow<'_, str> {
    match text.len() > LENGTH {
        true => crate::recording::summary::cut(text, LENGTH).into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_occurs_once_and_its_length_is_that_of_javascript() {
        let mut texts = Texts::default();
        let words = ["cuInit", "", "größe", "𝄞", &"x".repeat(1000), "cuInit"];
        let numbers: Vec<u32> = words.iter().map(|word| texts.number(&Arc::from(*word))).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 0]);
        assert_eq!(texts.number_of("größe"), 2);
        let bytes = texts.bytes();
        let (lengths, text) = columns::tests::values(&bytes, texts.len());
        assert_eq!(lengths, [6, 0, 5, 2, LENGTH as u64]);
        assert!(text.starts_with("cuInitgröße𝄞xxx".as_bytes()));
    }
}
