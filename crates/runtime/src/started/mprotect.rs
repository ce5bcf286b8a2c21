//! Finds the mapped files that an mprotect(2) makes executable: some loaders map code as readable first.
//!
//! Memory without a file, such as that of JIT compilers, is ignored.

use super::query::MappedRange;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// The files in a range of a thread's memory that are not executable there yet, with their addresses. Empty without
/// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
pub(super) fn files(tid: u32, range: Range<u64>) -> Vec<(File, MappedRange)> {
    let Ok(maps) = File::open(format!("/proc/{tid}/maps")) else { return Vec::new() };
    let lines = BufReader::new(maps).lines().map_while(Result::ok);
    let lines = lines.filter_map(|line| Line::parse(&line)).skip_while(|line| line.memory.end <= range.start);
    let lines = lines.take_while(|line| line.memory.start < range.end);
    lines
        .filter(|line| line.has_file && !line.is_executable)
        .filter_map(|line| line.part(tid, &range))
        .collect()
}

/// A line of `/proc/PID/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    memory: Range<u64>,
    is_executable: bool,
    /// Offset of its first byte in the file.
    offset: u64,
    has_file: bool,
}

impl Line {
    fn parse(line: &str) -> Option<Line> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let memory = hex(start)?..hex(end)?;
        let is_executable = words.next()?.contains('x');
        let offset = hex(words.next()?)?;
        let _device = words.next()?;
        Some(Line { memory, is_executable, offset, has_file: words.next()? != "0" })
    }

    /// The part within a range.
    fn part(&self, tid: u32, range: &Range<u64>) -> Option<(File, MappedRange)> {
        let (start, end) = (self.memory.start.max(range.start), self.memory.end.min(range.end));
        let offset = self.offset + (start - self.memory.start);
        let link = format!("/proc/{tid}/map_files/{:x}-{:x}", self.memory.start, self.memory.end);
        Some((super::exec_target::plain(link.as_ref()).ok()?, MappedRange { start, end, offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_distinguished_from_other_memory() {
        let line = |text| Line::parse(text).expect("a line of the kernel's");
        let file = line("7f00-8f00 r--p 00002000 fe:00 1234    /usr/lib/a b.so");
        assert_eq!(
            file,
            Line { memory: 0x7f00..0x8f00, is_executable: false, offset: 0x2000, has_file: true }
        );
        assert!(line("7f00-8f00 r-xp 00000000 fe:00 1234 /lib/x").is_executable);
        assert!(!line("7f00-8f00 rw-p 00000000 00:00 0 [heap]").has_file);
        assert_eq!(Line::parse("7f00"), None);
    }

    #[test]
    fn files_that_can_be_made_executable_are_found_by_their_addresses() {
        if !crate::kernel::features::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let file = File::open("/proc/self/exe").expect("us");
        let page = rustix::param::page_size();
        let mapped = crate::kernel::sys::MemoryMapping::read_only(std::os::fd::AsFd::as_fd(&file), 3 * page)
            .expect("mapped");
        let (start, page) = (mapped.bytes() as u64 + page as u64, page as u64);
        let found = files(std::process::id(), start..start + page);
        let places: Vec<MappedRange> = found.iter().map(|(_, place)| *place).collect();
        assert_eq!(places, [MappedRange { start, end: start + page, offset: page }]);
        let same = |file: &File| std::os::unix::fs::MetadataExt::ino(&file.metadata().expect("open"));
        assert_eq!(same(&found[0].0), same(&file));
    }
}
