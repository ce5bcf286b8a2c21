//! Symbols of JIT-compiled code, from the file that a runtime writes for profilers: Python's `-X perf`, node's
//! `--perf-basic-prof`, agents of the JVM.
//!
//! ```text
//! 7f3c41a00000 3b py::train:/work/train.py
//! ```
//!
//! The file grows while the process runs: an unknown address is searched in the part that was appended since. The file is kept open,
//! since its symbols are needed after the end of the process and of its mount namespace.
//!
//! Format: tools/perf/Documentation/jit-interface.txt of the kernel.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use linux::proc;

/// Largest number of bytes that are read of a file, so that its writer cannot fill the memory of this process.
const MOST_BYTES: u64 = 256 << 20;
/// Largest number of functions that are kept per process.
const MOST_NAMES: usize = 1 << 20;
/// Bytes that are read at once. Longer lines are ignored.
const PIECE: u64 = 1 << 20;

/// The perf map of a process.
#[derive(Debug)]
pub(crate) struct PerfMap {
    file: File,
    /// Path as the process sees it.
    path: String,
    read: u64,
    /// Size of the file when it was last read.
    size: u64,
    /// Code by start address: end address and name. Later entries of the file win.
    code: BTreeMap<u64, (u64, String)>,
}

impl PerfMap {
    /// Opens the perf map of a process, if it writes one. Only a plain file of the process's own user, or of root,
    /// is trusted.
    pub(crate) fn open(pid: u32) -> Option<PerfMap> {
        let path = format!("/tmp/perf-{}.map", proc::innermost_pid(pid)?);
        // A pipe would block, and a link may refer to any file.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file =
            OpenOptions::new().read(true).custom_flags(flags).open(format!("/proc/{pid}/root{path}")).ok()?;
        let metadata = file.metadata().ok()?;
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let believed = metadata.is_file() && [owner, 0].contains(&metadata.uid());
        believed.then(|| PerfMap { file, path, read: 0, size: 0, code: BTreeMap::new() })
    }

    /// Path as the process sees it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The name of the code at an address, and the offset in it.
    pub(crate) fn find(&mut self, address: u64) -> Option<(String, u64)> {
        if self.known(address).is_none() {
            self.catch_up();
        }
        self.known(address)
    }

    fn known(&self, address: u64) -> Option<(String, u64)> {
        let (start, (end, name)) = self.code.range(..=address).next_back()?;
        (address < *end).then(|| (name.clone(), address - start))
    }

    /// Reads the lines that were added. An incomplete line is read the next time.
    fn catch_up(&mut self) {
        let size = self.file.metadata().map_or(0, |metadata| metadata.len()).min(MOST_BYTES);
        let is_longer = size > std::mem::replace(&mut self.size, size);
        while is_longer && self.read < size && self.code.len() < MOST_NAMES {
            let mut piece = vec![0; PIECE.min(size - self.read) as usize];
            if self.file.read_exact_at(&mut piece, self.read).is_err() {
                return;
            }
            let whole = match memchr::memrchr(b'\n', &piece) {
                Some(at) => at + 1,
                None if piece.len() as u64 == PIECE => piece.len(),
                None => return,
            };
            self.code.extend(piece[..whole].split(|&byte| byte == b'\n').filter_map(entry));
            self.read += whole as u64;
        }
    }
}

/// Parses `START SIZE name with blanks`, numbers in hex: start, end and name.
fn entry(line: &[u8]) -> Option<(u64, (u64, String))> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hex = |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok();
    let start = hex(start)?;
    Some((start, (start.checked_add(hex(size)?)?, name.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_has_start_size_and_a_name_with_blanks() {
        assert_eq!(entry(b"7f00 1b py::f a:/x y.py"), Some((0x7f00, (0x7f1b, "py::f a:/x y.py".into()))));
        assert_eq!(entry(b"0x10 0x8 f"), Some((0x10, (0x18, "f".into()))));
        for line in [&b""[..], b"10", b"10 8", b"x 8 f", b"ffffffffffffffff 8 f"] {
            assert_eq!(entry(line), None, "{line:?}");
        }
    }

    #[test]
    fn lines_that_are_added_later_are_found_and_half_a_line_waits() {
        let own = std::process::id();
        let path = format!("/tmp/perf-{own}.map");
        let mut writer = File::create(&path).expect("a file");
        writer.write_all(b"1000 10 first\n2000 10 sec").expect("written");
        let mut map = PerfMap::open(own).expect("our own");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(map.find(0x100f), Some(("first".into(), 15)));
        assert_eq!(map.find(0x2000), None);
        writer.write_all(b"ond\n1000 20 again\n").expect("written");
        assert_eq!(map.find(0x2001), Some(("second".into(), 1)));
        assert_eq!(map.find(0x1010), Some(("again".into(), 16)));
        assert_eq!(map.find(0x1020), None);
    }

    #[test]
    fn a_line_without_end_is_passed_over_and_read_once() {
        let own = std::process::id();
        let path = format!("/tmp/perf-{own}.map.long");
        let mut file = File::create(&path).expect("a file");
        file.write_all(&vec![b'7'; 3 * PIECE as usize + 5]).expect("written");
        file.write_all(b"\n1000 10 first\n").expect("written");
        let file = File::open(&path).expect("there");
        std::fs::remove_file(&path).expect("removed");
        let mut map = PerfMap { file, path, read: 0, size: 0, code: BTreeMap::new() };
        assert_eq!(map.find(0x1001), Some(("first".into(), 1)));
        let (read, size) = (map.read, map.size);
        assert_eq!((map.find(0x5000), map.read), (None, size));
        assert_eq!(read, size);
    }

    #[test]
    fn links_pipes_and_files_of_others_are_not_believed() {
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
        let path = format!("/tmp/perf-{}.map", other.id());
        let secret = format!("{path}.secret");
        let opens = || PerfMap::open(other.id()).is_some();
        let mut found = vec![opens()];
        std::fs::write(&secret, "1000 10 first\n").expect("written");
        std::os::unix::fs::symlink(&secret, &path).expect("linked");
        found.push(opens());
        std::fs::rename(&secret, &path).expect("renamed");
        found.push(opens());
        let is_given_away = std::os::unix::fs::chown(&path, Some(65534), None).is_ok();
        found.push(!is_given_away || opens());
        std::fs::remove_file(&path).expect("there");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from(0o600)).expect("a named pipe");
        found.push(opens());
        std::fs::remove_file(&path).expect("there");
        other.kill().and_then(|()| other.wait()).expect("a child of ours");
        assert_eq!(found, [false, false, true, !is_given_away, false]);
    }
}
