//! Words that several kinds of attach points are completed with. The words of one kind are in its file.

use crate::catalog::Catalog;

/// Libraries that exist, with the colon that follows them.
pub fn targets(catalog: &dyn Catalog) -> Vec<String> {
    let names = catalog.known_targets().into_iter();
    names.filter(|name| catalog.files(name).is_ok()).map(|name| format!("{name}:")).collect()
}

/// Functions of a target that begin with `start`: symbol families, or symbols (`cuMemAlloc_v2`) if no family
/// matches.
pub fn functions(catalog: &dyn Catalog, target: &str, start: &str) -> Vec<String> {
    let files = catalog.files(target).unwrap_or_default();
    let (mut families, mut symbols) = (Vec::new(), Vec::new());
    for file in &files {
        let names = catalog.functions(file.id).iter().flat_map(|function| &function.names);
        for name in names.filter(|name| name.starts_with(start)) {
            let family = file.library.map_or(name.as_str(), |(library, _)| cuda::base_name(library, name));
            families.extend(family.starts_with(start).then(|| family.to_owned()));
            symbols.push(name.clone());
        }
    }
    if families.is_empty() { symbols } else { families }
}

/// Words of the first part, with the colon that follows them, if the cursor is there.
pub(super) fn first_part(parts: &[&str], words: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    match parts {
        [_] => words.into_iter().map(|word| format!("{word}:")).collect(),
        _ => Vec::new(),
    }
}

/// Words of an attach point with one part, if the cursor is there.
pub(super) fn only_part(parts: &[&str], words: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    match parts {
        [_] => words.into_iter().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
