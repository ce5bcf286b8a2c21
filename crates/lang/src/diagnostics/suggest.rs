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
    letters: u64,
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
        // Lower bounds avoid nearly all of the work for thousands of symbols: the difference in length, and
        // letters that occur in only one name.
        let lacking = |a: u64, b: u64| (a & !b).count_ones() as usize;
        let other = letters(candidate);
        let bounds =
            [self.length.abs_diff(length), lacking(self.letters, other), lacking(other, self.letters)];
        let short_for = self.is_short_for(candidate, length);
        if !short_for && bounds.into_iter().any(|bound| bound > most) || self.length.max(length) > LONGEST {
            return None;
        }
        let edits = strsim::damerau_levenshtein(&self.text, &candidate.to_lowercase());
        (short_for || edits <= most).then_some(edits)
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

/// The set of letters of a name as bits; case is ignored. Several letters may share a bit.
fn letters(name: &str) -> u64 {
    name.chars().fold(0, |set, c| set | 1 << (c.to_ascii_lowercase() as u32 & 63))
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
