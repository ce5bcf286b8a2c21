//! Finds stacks in the mappings of another process, and free addresses for code of ours, which the jumps in its functions must reach
//! (2 GiB).
//!
//! Not here: `/proc/PID/maps` itself, which `linux::proc` parses.

use linux::proc::{Mapping, MappingName};
use std::ops::Range;

/// First address that programs may map, and end of the addresses.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// Distance that a displacement of 32 bits reaches, with room for the size of an instruction.
const REACH: u64 = (1 << 31) - (1 << 16);
/// Largest size of a guard in front of a stack.
const MAX_GUARD: u64 = 1 << 20;
/// Distance from neighbours.
const MARGIN: u64 = 64 << 10;
/// Distance from the stack of the first thread.
const STACK_ROOM: u64 = 128 << 20;
/// Distance from the program, whose heap grows upwards.
const HEAP_ROOM: u64 = 256 << 20;
/// Programs and their heaps are below this address. Libraries begin above 0x7e00_0000_0000, and come further down in a process that reserves terabytes,
/// as CUDA's driver does.
const PROGRAMS_END: u64 = 0x6000_0000_0000;
const PAGE: u64 = 4096;

/// Whether a mapping looks like a stack: memory of the process alone, directly after a small guard.
pub(super) fn is_stack_behind(map: &Mapping, guard: &Mapping) -> bool {
    is_guard_of(guard, map) && map.inode == 0 && map.writable
}

/// Whether a mapping is a small guard directly in front of another one.
fn is_guard_of(guard: &Mapping, map: &Mapping) -> bool {
    guard.is_guard() && guard.end == map.start && guard.end - guard.start <= MAX_GUARD
}

/// Whether `size` bytes below the stack pointer belong to the stack of a thread. Coroutines may have small stacks next to other data.
///
/// The stack of the first thread has a name. C libraries put the control block of another thread, whose address is `control_block`, at
/// the end of its stack, and a guard in front of it. The heap of Go has large mappings without access in front of it.
pub(super) fn has_stack_below(maps: &[Mapping], pointer: u64, control_block: u64, size: u64) -> bool {
    let Some(at) = maps.iter().position(|map| map.range().contains(&pointer)) else { return false };
    let stack = &maps[at];
    let is_of_library = may_be_stack(&stack.name)
        && (pointer..stack.end).contains(&control_block)
        && at.checked_sub(1).is_some_and(|before| is_guard_of(&maps[before], stack));
    (stack.name.is_special("[stack]") || is_of_library) && pointer - stack.start > size
}

/// Whether memory of this name may be a stack: C libraries give it a name with this word, or none.
fn may_be_stack(name: &MappingName) -> bool {
    match name {
        MappingName::Anonymous => true,
        MappingName::Special(name) => name.contains("stack"),
        MappingName::File(path) | MappingName::Deleted(path) => path.to_string_lossy().contains("stack"),
    }
}

/// Addresses for `size` bytes that are free and within reach of a jump from all of `near`, nearest first.
pub(super) fn gaps(maps: &[Mapping], size: u64, near: &Range<u64>) -> Vec<u64> {
    let mut found = all_gaps(maps, size, near);
    found.retain(|start| is_near(&(*start..start + size), near));
    found
}

/// Addresses for `size` bytes that are free, nearest first.
pub(super) fn all_gaps(maps: &[Mapping], size: u64, near: &Range<u64>) -> Vec<u64> {
    let ends = std::iter::once(0).chain(maps.iter().map(|map| map.end));
    let next = maps.iter().map(|map| (map.start, map.name.is_special("[stack]")));
    let next = next.chain([(HIGHEST, false)]);
    let mut found: Vec<u64> =
        ends.zip(next).filter_map(|(end, (next, is_stack))| place(end, next, is_stack, size, near)).collect();
    found.sort_by_key(|start| start.abs_diff(near.start));
    found
}

/// A page of code elsewhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OutpostPage {
    /// Its address.
    pub address: u64,
    /// Whether it is in a hole of a library, which may be unmapped with it.
    pub is_in_hole: bool,
}

impl OutpostPage {
    /// Its addresses.
    pub fn range(self) -> Range<u64> {
        self.address..self.address + PAGE
    }
}

/// Pages of libraries that nothing uses, within reach of a jump from all of `near`, nearest first.
///
/// The loader maps a library as a whole, and takes the access away from what is between its segments: 2 MiB in those of NVIDIA. There is room in
/// them where a process has gigabytes of libraries, one behind the other.
pub(super) fn holes(maps: &[Mapping], near: &Range<u64>) -> Vec<u64> {
    let mut found: Vec<u64> = (0..maps.len()).filter_map(|at| hole(maps, at)).collect();
    found.retain(|page| is_near(&(*page..page + PAGE), near));
    found.sort_by_key(|start| start.abs_diff(near.start));
    found
}

/// The addresses of the library that is mapped at an address, with its holes and the pages in them; none if no file is.
pub(super) fn library_at(maps: &[Mapping], address: u64) -> Range<u64> {
    let at = maps.iter().position(|map| map.range().contains(&address));
    let Some(at) = at.and_then(|at| behind_ours(maps, at)).filter(|at| maps[*at].inode != 0) else {
        return 0..0;
    };
    let file = (maps[at].inode, maps[at].device);
    let belongs = |map: &Mapping| (map.inode, map.device) == file || (map.inode == 0 && is_of_ours(map));
    // The file begins anew where it is mapped a second time.
    let begins = |map: &Mapping| map.inode != 0 && map.offset == 0;
    let mut range = maps[at].range();
    if !begins(&maps[at]) {
        for before in maps[..at].iter().rev() {
            if before.end != range.start || !belongs(before) {
                break;
            }
            range.start = before.start;
            if begins(before) {
                break;
            }
        }
    }
    for behind in &maps[at + 1..] {
        if behind.start != range.end || !belongs(behind) || begins(behind) {
            break;
        }
        range.end = behind.end;
    }
    range
}

/// Whether a mapping may be a page of ours in a hole, or what is left of one.
fn is_of_ours(map: &Mapping) -> bool {
    map.inode == 0 && (map.is_private_code() || map.is_guard())
}

/// The first unused page of a hole, by the place of its rest in the list. Pages of sessions before may be in front of that.
fn hole(maps: &[Mapping], at: usize) -> Option<u64> {
    let rest = Some(&maps[at]).filter(|map| is_of_hole(map) && map.end - map.start >= 2 * PAGE)?;
    let mut unused = rest.start;
    let mut start = rest.start;
    for before in maps[..at].iter().rev() {
        let follows = before.end == start;
        match before.inode {
            0 if follows && before.is_guard() && unused == start => unused = before.start,
            0 if follows && (before.is_guard() || before.is_private_code()) => {}
            inode => {
                return (follows && inode == rest.inode && before.device == rest.device).then_some(unused);
            }
        }
        start = before.start;
    }
    None
}

/// Whether a page is code of ours in a hole of a library ([`holes`]), which is still mapped.
pub fn is_in_hole(maps: &[Mapping], page: u64) -> bool {
    let Some(at) = maps.iter().position(|map| map.range().contains(&page)) else { return false };
    let is_code = maps[at].is_private_code() && maps[at].inode == 0;
    is_code && behind_ours(maps, at).is_some_and(|at| is_of_hole(&maps[at]))
}

/// The first mapping that is not a page of ours, from this one on and without a gap.
fn behind_ours(maps: &[Mapping], at: usize) -> Option<usize> {
    let ours = maps[at..].iter().take_while(|map| is_of_ours(map)).count();
    let follow = maps[at..].windows(2).take(ours).all(|pair| pair[0].end == pair[1].start);
    (follow && at + ours < maps.len()).then_some(at + ours)
}

/// Whether a mapping may be between the segments of a library.
fn is_of_hole(map: &Mapping) -> bool {
    map.is_guard() && map.inode != 0 && !map.shared
}

/// Whether jumps reach from all of one range to all of the other one, and back.
pub fn is_near(one: &Range<u64>, other: &Range<u64>) -> bool {
    other.end.saturating_sub(one.start) < REACH && one.end.saturating_sub(other.start) < REACH
}

/// The address nearest to the code in the gap from the end of a mapping to the start of the next one, which may be the stack.
fn place(end: u64, next: u64, is_stack: bool, size: u64, near: &Range<u64>) -> Option<u64> {
    // The stack grows into the gap below it. A process may have reserved all of the memory below its libraries.
    let below = if is_stack { STACK_ROOM } else { MARGIN };
    let room = if end < PROGRAMS_END { HEAP_ROOM } else { MARGIN };
    let first = end.max(LOWEST).checked_add(room)?.next_multiple_of(PAGE);
    let last = next.min(HIGHEST).checked_sub(size + below)? & !(PAGE - 1);
    (first <= last).then(|| near.start.clamp(first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::proc::maps;

    const MAPS: &str = "\
00400000-00500000 r-xp 00000000 08:01 12 /bin/program with spaces
00700000-00800000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000100000 r-xs 00000000 08:01 13                         /lib/a.so
7f0000400000-7f0000500000 rw-p 00000000 00:00 0 
7f0010000000-7f0010100000 r-xp 00000000 08:01 14 /lib/b.so (deleted)
7ffffff00000-7fffffff0000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
no mapping
";

    fn parse(text: &str) -> Vec<Mapping> {
        maps::parse(text.as_bytes()).collect()
    }

    #[test]
    fn a_gap_is_free_and_within_reach() {
        let maps = parse(MAPS);
        let library = 0x7f00_1000_0000..0x7f00_1010_0000;
        let found = gaps(&maps, 1 << 20, &library);
        assert_eq!(
            found,
            [0x7f00_0fef_0000, 0x7f00_1011_0000, 0x7f00_002f_0000, 0x7eff_ffef_0000],
            "directly before the library, behind it, between and before the others"
        );
    }

    #[test]
    fn a_hole_is_between_the_segments_of_a_library() {
        let text = "\
7f0000000000-7f00000a6000 r-xp 00000000 08:01 13 /lib/libcudart.so
7f00000a6000-7f00002a6000 ---p 000a6000 08:01 13 /lib/libcudart.so
7f00002a6000-7f00002ab000 r--p 000a6000 08:01 13 /lib/libcudart.so
7f0000400000-7f0000401000 ---p 00000000 08:01 14 /tmp/data
7f0000500000-7f0000501000 ---p 00000000 00:00 0 
7f0001000000-7f0001001000 r-xp 00000000 08:01 15 /lib/b.so
7f0001001000-7f0001002000 ---p 00001000 08:01 15 /lib/b.so
";
        let near = 0x7f00_0000_1000..0x7f00_0000_1001;
        assert_eq!(holes(&parse(text), &near), [0x7f00_000a_6000], "not the data, and not the one of a page");
        assert!(holes(&parse(text), &(0x7e00_0000_0000..0x7e00_0000_1000)).is_empty(), "far away");
        let taken = text.replace(
            "7f00000a6000-7f00002a6000 ---p 000a6000 08:01 13",
            "7f00000a6000-7f00000a7000 r-xp 00000000 00:00 0\n7f00000a7000-7f00002a6000 ---p 000a7000 08:01 13",
        );
        let taken = parse(&taken);
        assert!(is_in_hole(&taken, 0x7f00_000a_6000) && !is_in_hole(&taken, 0x7f00_0000_0000));
        assert_eq!(holes(&taken, &near), [0x7f00_000a_7000], "the next page");
        let left = text.replace(
            "7f00000a6000-7f00002a6000 ---p 000a6000 08:01 13",
            "7f00000a6000-7f00000a7000 ---p 00000000 00:00 0\n7f00000a7000-7f00002a6000 ---p 000a7000 08:01 13",
        );
        assert_eq!(holes(&parse(&left), &near), [0x7f00_000a_6000], "a session before has left it");
        assert_eq!(
            library_at(&parse(&left), 0x7f00_000a_6000),
            0x7f00_0000_0000..0x7f00_002a_b000,
            "and it is the library's"
        );
        assert_eq!(library_at(&taken, 0x7f00_0000_1000), 0x7f00_0000_0000..0x7f00_002a_b000, "with the page");
        assert_eq!(library_at(&taken, 0x7f00_000a_7000), 0x7f00_0000_0000..0x7f00_002a_b000, "from its hole");
        assert_eq!(library_at(&taken, 0x7f00_0050_0000), 0..0, "no file");
        let gone = parse(
            "7f00000a6000-7f00000a7000 r-xp 00000000 00:00 0\n7f0000400000-7f0000401000 ---p 00000000 08:01 14 /x\n",
        );
        assert!(!is_in_hole(&gone, 0x7f00_000a_6000), "the library was unmapped, and other code is there");
    }

    #[test]
    fn a_gap_must_be_large_enough() {
        let maps = parse(MAPS);
        assert!(gaps(&maps, 3 << 30, &(0x7f00_1000_0000..0x7f00_1010_0000)).is_empty());
        assert!(gaps(&maps, 1 << 20, &(0x40_0000..0x7f00_0000_0000)).is_empty(), "no place is near to both");
    }

    #[test]
    fn only_stacks_of_threads_are_used() {
        let stacks = "\
c000000000-c000400000 rw-p 00000000 00:00 0 
c000400000-c004000000 ---p 00000000 00:00 0 
c004000000-c004400000 rw-p 00000000 00:00 0 
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
7f0000001000-7f0000801000 rw-p 00000000 00:00 0 
7f0001000000-7f0001001000 ---p 00000000 00:00 0 
7f0001001000-7f0001801000 rw-p 00000000 00:00 0                          [anon: Go: heap]
7ffffff00000-7fffffff0000 rw-p 00000000 00:00 0                          [stack]
";
        let maps = parse(stacks);
        let has = |pointer, control_block| has_stack_below(&maps, pointer, control_block, 0x4000);
        assert!(has(0x7f00_0080_0000, 0x7f00_0080_0700) && has(0x7fff_fffe_0000, 0x1234));
        assert!(!has(0x7f00_0000_5000, 0x7f00_0080_0700), "little is left");
        assert!(!has(0x7f00_0070_0000, 0x7f00_0060_0000), "the control block is not behind it");
        assert!(!has(0xc0_0420_0000, 0xc0_0430_0000) && !has(0x7f00_0170_0000, 0x7f00_0178_0000), "a heap");
        assert!(!has(0xc0_0030_0000, 0xc0_0031_0000) && !has(0x1000, 0x2000), "no guard, and nothing");
    }

    #[test]
    fn memory_below_the_libraries_needs_no_room_for_a_heap() {
        let maps = parse(
            "7d0000000000-7d0000100000 r-xp 00000000 08:01 14 /lib/a.so\n7d0000400000-7e0000000000 ---p 00000000 00:00 0 \n",
        );
        let found = gaps(&maps, 1 << 20, &(0x7d00_0000_0000..0x7d00_0010_0000));
        assert!(found.contains(&(0x7d00_0010_0000 + MARGIN)), "the gap of 3 MiB behind it: {found:x?}");
    }

    #[test]
    fn the_heap_may_grow() {
        let maps = parse(MAPS);
        assert_eq!(gaps(&maps, 1 << 20, &(0x40_0000..0x50_0000)), [0x80_0000 + HEAP_ROOM]);
    }
}
