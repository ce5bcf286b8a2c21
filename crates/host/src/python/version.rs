//! Versions of CPython.

use std::fmt;
use std::path::Path;

/// A version of CPython.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 3
    pub major: u8,
    /// 12
    pub minor: u8,
}

impl Version {
    /// The version of `Py_Version`: `0x030c01f0`.
    pub(super) fn of_hex(hex: u64) -> Version {
        Version { major: (hex >> 24) as u8, minor: (hex >> 16) as u8 }
    }

    /// The version in a path: `libpython3.10.so.1.0`, `/usr/lib/python3.10/lib-dynload/_ssl.so`.
    pub(super) fn of_path(path: &Path) -> Option<Version> {
        let path = path.to_string_lossy();
        let versions = path.match_indices("python3.").filter_map(|(at, word)| {
            let digits: String = path[at + word.len()..].chars().take_while(char::is_ascii_digit).collect();
            Some(Version { major: 3, minor: digits.parse().ok()? })
        });
        // Folders may be named after another one.
        versions.last()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_versions() {
        let of = |path: &str| Version::of_path(Path::new(path)).map(|version| version.to_string());
        assert_eq!(of("/usr/lib/libpython3.10.so.1.0").as_deref(), Some("3.10"));
        assert_eq!(of("/opt/python3.9/lib-dynload/_ssl.so").as_deref(), Some("3.9"));
        assert_eq!(of("/opt/python3.12-env/bin/python3.9").as_deref(), Some("3.9"));
        assert_eq!((of("/usr/bin/python3"), of("/usr/bin/python3.x")), (None, None));
        assert_eq!(Version::of_hex(0x030c_01f0).to_string(), "3.12");
    }
}
