//! `/etc/ld.so.cache`: the dynamic loader's table from sonames to paths.
//!
//! The file has entries of (flags, soname, path) in glibc's format of 1999 (magic `glibc-ld.so.cache1.1`). Older systems write it
//! after a table in the previous format (`ld.so-1.7.0`). Facts: glibc's `dl-cache.h`.

use std::path::{Path, PathBuf};

use crate::untrusted_file;

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Largest size of a cache; usual ones have some hundred KB.
const MOST_BYTES: u64 = 64 << 20;
/// Size of the header of each format.
const OLD_HEADER: usize = 16;
const NEW_HEADER: usize = 48;
/// Size of an entry of each format.
const OLD_ENTRY: usize = 12;
const NEW_ENTRY: usize = 24;
/// `FLAG_ELF_LIBC6` with the bits for this machine's 64-bit ABI.
#[cfg(target_arch = "x86_64")]
const WANTED_FLAGS: u32 = 0x0303;
#[cfg(target_arch = "aarch64")]
const WANTED_FLAGS: u32 = 0x0a03;

/// Libraries of this machine's ABI: (soname, path), in the order of the file.
pub(crate) fn parse(bytes: &[u8]) -> Vec<(String, PathBuf)> {
    let Some(table) = new_table(bytes) else { return Vec::new() };
    let count = number(table, NEW_MAGIC.len()).unwrap_or(0) as usize;
    let entries = table.get(NEW_HEADER..).unwrap_or_default().chunks_exact(NEW_ENTRY).take(count);
    entries.filter_map(|entry| library(table, entry)).collect()
}

/// Reads the cache of a root directory; empty if there is none.
pub(crate) fn read(root: &Path) -> Vec<(String, PathBuf)> {
    untrusted_file::read(&root.join("etc/ld.so.cache"), MOST_BYTES)
        .map(|bytes| parse(&bytes))
        .unwrap_or_default()
}

/// The table of the new format: the file, or the part after a table of the old format, aligned to 8 bytes.
fn new_table(bytes: &[u8]) -> Option<&[u8]> {
    let start = match bytes.starts_with(OLD_MAGIC) {
        true => {
            let count = number(bytes, OLD_HEADER - 4)? as usize;
            count.checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER)?.checked_next_multiple_of(8)?
        }
        false => 0,
    };
    bytes.get(start..).filter(|table| table.starts_with(NEW_MAGIC))
}

fn library(table: &[u8], entry: &[u8]) -> Option<(String, PathBuf)> {
    let text = |at: usize| {
        let rest = table.get(number(entry, at)? as usize..)?;
        std::str::from_utf8(&rest[..memchr::memchr(0, rest)?]).ok()
    };
    (number(entry, 0)? == WANTED_FLAGS).then_some(())?;
    Some((text(4)?.to_owned(), text(8)?.into()))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(libraries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = NEW_MAGIC.to_vec();
        bytes.extend((libraries.len() as u32).to_le_bytes());
        bytes.resize(NEW_HEADER, 0);
        let mut at = (NEW_HEADER + libraries.len() * NEW_ENTRY) as u32;
        let mut strings = Vec::new();
        for (flags, soname, path) in libraries {
            bytes.extend(flags.to_le_bytes());
            for text in [soname, path] {
                bytes.extend(at.to_le_bytes());
                strings.extend(text.bytes().chain([0]));
                at += text.len() as u32 + 1;
            }
            bytes.extend([0; 12]);
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn libraries_of_other_machines_are_left_out() {
        let bytes = cache(&[
            (WANTED_FLAGS, "libcuda.so.1", "/a/libcuda.so.1"),
            (3, "libcuda.so.1", "/32/libcuda.so.1"),
        ]);
        assert_eq!(parse(&bytes), [("libcuda.so.1".to_owned(), PathBuf::from("/a/libcuda.so.1"))]);
    }

    #[test]
    fn a_table_behind_one_of_the_old_format_is_found() {
        let mut bytes = b"ld.so-1.7.0\0".to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.extend([0; OLD_ENTRY + 4]);
        bytes.extend(cache(&[(WANTED_FLAGS, "libm.so.6", "/m")]));
        assert_eq!(parse(&bytes).len(), 1);
    }

    #[test]
    fn a_cache_that_is_a_pipe_is_none() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("made");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            root.path().join("etc/ld.so.cache"),
            rustix::fs::Mode::from(0o600),
        )
        .expect("a named pipe");
        assert!(read(root.path()).is_empty());
    }

    #[test]
    fn cut_off_anywhere_it_does_not_panic() {
        let bytes = cache(&[(WANTED_FLAGS, "libcuda.so.1", "/a/libcuda.so.1")]);
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).len() <= 1);
        }
    }
}
