//! The Python version of a command, from its file name: no program is started.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The first version with `-X perf`.
const PERF: (u32, u32) = (3, 12);

/// The file of a program, given as a name on PATH or as a path.
pub fn file(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return fs::canonicalize(program).ok();
    }
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    fs::canonicalize(found?).ok()
}

/// Version of Python by its file name: `(3, 11)` for `/usr/bin/python3.11`.
pub fn version(file: &Path) -> Option<(u32, u32)> {
    let (major, minor) = file.file_name()?.to_str()?.strip_prefix("python")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether the version supports `-X perf`.
pub fn has_perf(version: (u32, u32)) -> bool {
    version >= PERF
}

/// The version of a Python that is started with `-X perf` but ignores it.
pub fn without_perf(argv: &[OsString]) -> Option<String> {
    let (program, options) = argv.split_first()?;
    let is_asked = options.iter().any(|word| word == "-Xperf")
        || options.windows(2).any(|pair| pair[0] == "-X" && pair[1] == "perf");
    let (major, minor) = version(&file(Path::new(program)).filter(|_| is_asked)?)?;
    (!has_perf((major, minor))).then(|| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_name() {
        assert_eq!(version(Path::new("/usr/bin/python3.11")), Some((3, 11)));
        assert_eq!(version(Path::new("/usr/bin/python3")), None);
        assert!(has_perf((3, 12)) && !has_perf((3, 9)));
    }

    #[test]
    fn perf_is_missed_by_an_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python3.11");
        fs::write(&python, "").unwrap();
        let argv = |options: &[&str]| -> Vec<OsString> {
            std::iter::once(python.clone().into()).chain(options.iter().map(OsString::from)).collect()
        };
        assert_eq!(without_perf(&argv(&["-X", "perf", "train.py"])).as_deref(), Some("3.11"));
        assert_eq!(without_perf(&argv(&["train.py"])), None);
    }
}
