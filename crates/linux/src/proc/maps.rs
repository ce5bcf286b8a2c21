//! `/proc/PID/maps`: the memory of a process.

use super::split_at_byte;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// May be read.
    pub readable: bool,
    /// May be written to.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Changes are visible to other processes that map it.
    pub shared: bool,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Device as the kernel shows it here; on overlayfs and btrfs it differs from that in `stat`.
    pub device: (u32, u32),
    /// Inode; 0: no file.
    pub inode: u64,
    /// The mapped object.
    pub name: MappingName,
}

/// The object of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappingName {
    /// Plain memory.
    Anonymous,
    /// `/usr/lib/libc.so.6`
    File(PathBuf),
    /// `/tmp/libx.so (deleted)`, `/memfd:x (deleted)`: accessible only through `/proc/PID/map_files`.
    Deleted(PathBuf),
    /// `[vdso]`, `[stack]`
    Special(String),
}

impl MappingName {
    /// Whether it is memory of this name: `[stack]`.
    pub fn is_special(&self, name: &str) -> bool {
        matches!(self, MappingName::Special(own) if own == name)
    }

    /// The path of a file, deleted or not.
    pub fn path(&self) -> Option<&Path> {
        match self {
            MappingName::File(path) | MappingName::Deleted(path) => Some(path),
            _ => None,
        }
    }
}

impl Mapping {
    /// Parses a line; `None` if it is malformed.
    pub fn parse(line: &[u8]) -> Option<Mapping> {
        let mut rest = line;
        let range = word(&mut rest)?;
        let access: [u8; 4] = word(&mut rest)?.try_into().ok()?;
        let offset = hex(word(&mut rest)?)?;
        let device = word(&mut rest)?;
        let inode = std::str::from_utf8(word(&mut rest)?).ok()?.parse().ok()?;
        let (start, end) = split_at_byte(range, b'-')?;
        let (major, minor) = split_at_byte(device, b':')?;
        Some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            readable: access[0] == b'r',
            writable: access[1] == b'w',
            executable: access[2] == b'x',
            shared: access[3] == b's',
            offset,
            device: (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?),
            inode,
            name: mapping_name(rest.trim_ascii_start()),
        })
    }

    /// Its addresses.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether it is code whose changes no other process sees: `r-xp`.
    pub fn is_private_code(&self) -> bool {
        self.executable && !self.shared
    }

    /// Whether it may not be accessed at all: `---p`.
    pub fn is_guard(&self) -> bool {
        !(self.readable || self.writable || self.executable)
    }

    /// The link to the mapped file under `/proc/PID/map_files`; following it requires CAP_SYS_ADMIN or
    /// CAP_CHECKPOINT_RESTORE.
    pub fn link(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end))
    }
}

/// Removes the next word from `rest`.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = rest.trim_ascii_start();
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    let (word, behind) = text.split_at(end);
    *rest = behind;
    (!word.is_empty()).then_some(word)
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn mapping_name(text: &[u8]) -> MappingName {
    match text.first() {
        None => MappingName::Anonymous,
        Some(b'/') => match text.strip_suffix(b" (deleted)") {
            Some(path) => MappingName::Deleted(unescape(path)),
            None => MappingName::File(unescape(text)),
        },
        Some(_) => MappingName::Special(String::from_utf8_lossy(text).into_owned()),
    }
}

/// Replaces `\012`, by which the kernel escapes a newline in a path; other characters are not escaped.
fn unescape(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"\\012") {
        path.extend_from_slice(&rest[..at]);
        path.push(b'\n');
        rest = &rest[at + 4..];
    }
    path.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(path))
}

/// All mappings of a process; empty if it has ended or may not be inspected.
pub fn mappings(pid: u32) -> Vec<Mapping> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    parse(&text).collect()
}

/// The mappings in the text of `/proc/PID/maps`, in the order of their addresses; lines of another form are left out.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(Mapping::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = b"7f00-7f10 r-xp 00001000 fe:01 42                   /usr/lib/a b\\012c.so";
        let mapping = Mapping::parse(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x7f10, 0x1000));
        assert_eq!((mapping.device, mapping.inode), ((0xfe, 1), 42));
        assert_eq!(mapping.name, MappingName::File("/usr/lib/a b\nc.so".into()));
    }

    #[test]
    fn access_is_told_by_letters() {
        let access = |letters: &str| {
            let mapping = Mapping::parse(format!("1-2 {letters} 0 00:00 0").as_bytes()).expect("a mapping");
            ((mapping.readable, mapping.writable), (mapping.is_private_code(), mapping.is_guard()))
        };
        assert_eq!(access("r-xp"), ((true, false), (true, false)));
        assert_eq!(access("r-xs"), ((true, false), (false, false)), "shared");
        assert_eq!(access("rw-p"), ((true, true), (false, false)));
        assert_eq!(access("---p"), ((false, false), (false, true)));
        assert_eq!(access("--xp"), ((false, false), (true, false)), "vsyscall");
    }

    #[test]
    fn kinds_of_names_are_told_apart() {
        let name =
            |text: &str| Mapping::parse(format!("1-2 rw-p 0 00:00 0 {text}").as_bytes()).map(|m| m.name);
        assert_eq!(name(""), Some(MappingName::Anonymous));
        assert_eq!(name("[vdso]"), Some(MappingName::Special("[vdso]".into())));
        assert_eq!(name("/memfd:jit (deleted)"), Some(MappingName::Deleted("/memfd:jit".into())));
    }

    #[test]
    fn malformed_lines_of_maps_are_refused() {
        for text in ["", "1-2", "x-y r-xp 0 0:0 0", "1 r-xp 0 0:0 0", "1-2 r-xp 0 00 0", "1-2 r-xp 0 0:0 z"] {
            assert_eq!(Mapping::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn own_code_is_among_own_mappings() {
        let here = own_code_is_among_own_mappings as *const () as u64;
        let mapping = mappings(std::process::id())
            .into_iter()
            .find(|m| (m.start..m.end).contains(&here))
            .expect("mapped");
        assert!(mapping.executable);
        assert_eq!(mapping.name.path(), super::super::executable(std::process::id()).as_deref());
    }
}
