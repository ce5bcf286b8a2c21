//! The version of the Python on PATH, from its file name: no program is started.

use std::fs;
use std::path::{Path, PathBuf};

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

/// Whether stacks have functions and lines of the version.
pub fn has_frames((major, minor): (u32, u32)) -> bool {
    major == 3 && (9..=15).contains(&minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_name() {
        assert_eq!(version(Path::new("/usr/bin/python3.11")), Some((3, 11)));
        assert_eq!(version(Path::new("/usr/bin/python3")), None);
        assert!(has_frames((3, 12)) && !has_frames((3, 8)) && !has_frames((2, 11)));
    }
}
