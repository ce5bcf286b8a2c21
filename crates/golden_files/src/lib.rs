//! Golden files: tests compare what the code produces with files. `BLESS=1` rewrites the files instead.
//!
//! ```text
//! crates/lang/tests/golden/check/maps.ct
//!    @[func] = count()
//! -  @bytes = sum(args.bytesize)
//! +  @bytes = sum((uint64)args.bytesize)
//! BLESS=1 rewrites the files
//! ```

#![forbid(unsafe_code)]

use similar::TextDiff;
use std::path::{Path, PathBuf};

/// The files of a folder with an extension, sorted.
///
/// # Panics
/// If the folder cannot be read, or has fewer than `least` such files: a test of no files always passes.
pub fn files(folder: &Path, extension: &str, least: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    assert!(paths.len() >= least, "{} has {} golden files", folder.display(), paths.len());
    paths
}

/// Compares each file with its new text.
///
/// # Panics
/// With a line diff per file that differs. With `BLESS=1`, if a file cannot be written.
pub fn compare(files: impl IntoIterator<Item = (PathBuf, String)>) {
    let differences: Vec<String> =
        files.into_iter().filter_map(|(path, new)| difference(&path, &new)).collect();
    assert!(differences.is_empty(), "{}\nBLESS=1 rewrites the files", differences.join("\n"));
}

fn difference(path: &Path, new: &str) -> Option<String> {
    let old = std::fs::read_to_string(path).unwrap_or_default();
    if old == new {
        return None;
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, new).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return None;
    }
    let diff = TextDiff::from_lines(old.as_str(), new);
    Some(format!("{}\n{}", path.display(), diff.unified_diff().context_radius(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_by_lines() {
        let path = std::env::temp_dir().join(format!("golden-{}.txt", std::process::id()));
        std::fs::write(&path, "one\ntwo\nthree\n").expect("written");
        assert_eq!(difference(&path, "one\ntwo\nthree\n"), None);
        let shown = difference(&path, "one\n2\nthree\n");
        std::fs::remove_file(&path).expect("removed");
        let shown = shown.expect("a difference");
        assert!(shown.contains("\n-two\n+2\n"), "{shown}");
    }
}
