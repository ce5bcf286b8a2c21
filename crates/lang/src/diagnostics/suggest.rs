//! Near names for "did you mean".

/// At most three of `candidates` that are similar to `name`, the closest first. Case is ignored; swapped letters
/// count as one edit; a third of the letters may differ, and a short name may be an abbreviation.
pub fn similar<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const SHOWN: usize = 3;
    let missing = MissingName::new(name);
    let mut close: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((missing.distance(candidate)?, candidate)))
        .collect();
    close.sort();
    close.dedup();
    close.into_iter().take(SHOWN).map(|(_, candidate)| candidate).collect()
}

/// Longer names get no suggestions.
const LONGEST: usize = 300;

/// An unknown name.
struct MissingName {
    /// Name in lower case.
    text: String,
    length: usize,
    letters: Letters,
}

impl MissingName {
    fn new(name: &str) -> MissingName {
        let text = name.to_lowercase();
        MissingName { length: text.chars().count(), letters: letters(name), text }
    }

    /// Number of edits to a candidate; `None` if there are too many for a misspelling.
    fn distance(&self, candidate: &str) -> Option<usize> {
        let length = candidate.chars().count();
        let most = (self.length.max(length) / 3).max(1);
        let short_for = self.is_short_for(candidate, length);
        if self.length.max(length) > LONGEST || !short_for && self.least_edits(candidate, length) > most {
            return None;
        }
        let edits = strsim::damerau_levenshtein(&self.text, &candidate.to_lowercase());
        (short_for || edits <= most).then_some(edits)
    }

    /// A lower bound of the edits, which avoids nearly all of the work for the symbols of a kernel: the difference in length,
    /// and the letters that one name has more of. An edit changes each of them by at most one.
    fn least_edits(&self, candidate: &str, length: usize) -> usize {
        let other = letters(candidate);
        let by_letters = more(&self.letters, &other).max(more(&other, &self.letters));
        self.length.abs_diff(length).max(by_letters)
    }

    /// Whether it abbreviates the candidate, as `cnt` does `count`: the first and last letters are equal, and
    /// letters between them are omitted.
    fn is_short_for(&self, candidate: &str, length: usize) -> bool {
        // Longer names are rarely abbreviated by omitting letters.
        const SHORT: usize = 5;
        let (name, candidate) = (self.text.as_bytes(), candidate.as_bytes());
        if !(2..=SHORT).contains(&self.length) || length > 2 * self.length {
            return false;
        }
        let same = |a: &u8, b: &u8| a.eq_ignore_ascii_case(b);
        let alike = |a: Option<&u8>, b: Option<&u8>| a.zip(b).is_some_and(|(a, b)| same(a, b));
        let mut rest = candidate.iter();
        alike(name.first(), candidate.first())
            && alike(name.last(), candidate.last())
            && name.iter().all(|letter| rest.any(|other| same(letter, other)))
    }
}

/// The number of each letter; case is ignored. Several letters may share a number.
type Letters = [u8; 64];

fn letters(name: &str) -> Letters {
    let mut numbers = [0u8; 64];
    for c in name.chars() {
        let number = &mut numbers[c.to_ascii_lowercase() as usize & 63];
        *number = number.saturating_add(1);
    }
    numbers
}

/// The letters that the first name has more of.
fn more(a: &Letters, b: &Letters) -> usize {
    a.iter().zip(b).map(|(a, b)| usize::from(a.saturating_sub(*b))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found() {
        let functions = ["cuMemAlloc_v2", "cuMemAlloc", "cuMemFree", "cuInit", "cuLaunchKernel"];
        assert_eq!(similar("cuMemAllocc", functions), ["cuMemAlloc", "cuMemAlloc_v2"]);
        assert_eq!(similar("cumemfree", functions)[0], "cuMemFree");
        assert_eq!(similar("cuIntit", functions), ["cuInit"]);
        assert_eq!(similar("ncclAllReduce", functions), [""; 0]);
        assert_eq!(similar("", functions), [""; 0]);
    }

    #[test]
    fn abbreviations_are_found() {
        let names = ["cat", "count", "comm", "duration", "printf"];
        assert_eq!(similar("cnt", names), ["cat", "count"]);
        assert_eq!(similar("prtf", names), ["printf"]);
        assert_eq!(similar("cm", names), ["comm"]);
        assert_eq!(similar("dn", names), [""; 0]);
    }
}
