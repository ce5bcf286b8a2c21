//! Mapped files that become code by mprotect(2): some loaders map code as readable first.
//!
//! In: a thread that is held before the call, and its range. Out: the files in it that were not executable yet, open, with their addresses.
//! Memory without a file, such as that of JIT compilers, is ignored. Needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN; without them nothing is found.

use super::query::MappedRange;
use linux::proc::Mapping;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// The files in a range of a thread's memory that are not executable there yet, with their addresses. Empty without
/// CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
pub(super) fn files(tid: u32, range: Range<u64>) -> Vec<(File, MappedRange)> {
    let Ok(maps) = File::open(format!("/proc/{tid}/maps")) else { return Vec::new() };
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok);
    let all = lines.filter_map(|line| Mapping::parse(&line));
    let within = all.skip_while(|map| map.end <= range.start).take_while(|map| map.start < range.end);
    within.filter(|map| map.inode != 0 && !map.executable).filter_map(|map| part(&map, tid, &range)).collect()
}

/// The part of a mapped file within a range.
fn part(map: &Mapping, tid: u32, range: &Range<u64>) -> Option<(File, MappedRange)> {
    let (start, end) = (map.start.max(range.start), map.end.min(range.end));
    let offset = map.offset + (start - map.start);
    Some((super::exec_target::plain(&map.link(tid)).ok()?, MappedRange { start, end, offset }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
