//! Names that somebody may have meant: for "did you mean".

/// At most three of `candidates` that are close to `name`, the closest first. Case does not count; swapped letters count
/// once; a third of the letters may differ.
pub fn similar<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const SHOWN: usize = 3;
    let wanted = name.to_lowercase();
    let mut close: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(&wanted, candidate)?, candidate)))
        .collect();
    close.sort();
    close.dedup();
    close.into_iter().take(SHOWN).map(|(_, candidate)| candidate).collect()
}

/// Edits from `wanted` (in lower case) to a candidate; `None` if they are too many to be a slip.
fn distance(wanted: &str, candidate: &str) -> Option<usize> {
    let most = (wanted.chars().count().max(candidate.chars().count()) / 3).max(1);
    // The difference in length is a lower bound, and spares most of the work over thousands of symbols.
    if wanted.len().abs_diff(candidate.len()) > most * 4 {
        return None;
    }
    let edits = strsim::damerau_levenshtein(wanted, &candidate.to_lowercase());
    (edits <= most).then_some(edits)
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
}
