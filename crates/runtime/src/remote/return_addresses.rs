//! Whether stopped threads continue in ranges of code, now or after a signal handler.
//!
//! A signal handler may run on another stack, or in the middle of the stack of the thread: the stack pointer of the interrupted code is
//! in the frame that the kernel has stored. Such frames are recognised by the selectors in them, and that stack is searched, too.
//! Stacks of coroutines that wait belong to no thread. They are found if a guard lies in front of them, as with thread stacks.

use linux::proc::Mapping;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::error::RemoteError;
use super::memory_map::is_stack_behind;
use super::stopped::StoppedProcess;

/// Largest stack that is searched, and largest number of bytes of stacks without a thread.
const MAX_STACK: u64 = 64 << 20;
/// Largest stack without a thread: heaps may look like one.
const MAX_WAITING: u64 = 16 << 20;
const PAGE: u64 = 4096;
/// `cs` and `ss` of 64-bit code in a signal frame, with `gs` and `fs` between them.
const SELECTORS: u64 = 0x002b_0000_0000_0033;
const SELECTORS_MASK: u64 = 0xffff_0000_0000_ffff;
/// `present` and `swapped` in an entry of `/proc/PID/pagemap`.
const HAS_CONTENTS: u64 = 3 << 62;

/// Searches the stacks of a process, all of whose threads are stopped. True if a thread continues in one of the ranges, or if a stack
/// is too large, or unknown.
pub(super) fn may_continue(
    stopped: &StoppedProcess<'_>,
    maps: &[Mapping],
    code: &[Range<u64>],
) -> Result<bool, RemoteError> {
    let mut search = Search { stopped, maps, code, continues: false, searched: Vec::new() };
    for tid in stopped.threads() {
        let registers = stopped.registers(*tid)?;
        search.continues_at(registers.rip);
        if !search.stack(registers.rsp, registers.fs_base)? {
            return Ok(true);
        }
    }
    Ok(!search.stacks_without_thread()? || search.continues)
}

struct Search<'a> {
    stopped: &'a StoppedProcess<'a>,
    maps: &'a [Mapping],
    code: &'a [Range<u64>],
    /// Whether a thread continues in the code.
    continues: bool,
    searched: Vec<Range<u64>>,
}

impl Search<'_> {
    fn continues_at(&mut self, address: u64) {
        self.continues |= self.code.iter().any(|code| code.contains(&address));
    }

    fn mapping(&self, address: u64) -> Option<Range<u64>> {
        Some(self.maps.iter().find(|map| map.range().contains(&address))?.range())
    }

    /// Searches the stack of a thread from its pointer on, and those of the code that its signal handlers have interrupted. False if
    /// that is impossible.
    fn stack(&mut self, pointer: u64, control_block: u64) -> Result<bool, RemoteError> {
        if self.mapping(pointer).is_none() {
            return Ok(false);
        }
        let mut pointers = vec![pointer];
        while let Some(pointer) = pointers.pop() {
            // Words below the pointer are remains of calls that have returned.
            let first = pointer & !7;
            let is_searched = self.searched.iter().any(|range| range.contains(&first));
            // Not every word that looks like selectors is in a frame.
            let Some(stack) = self.mapping(first).filter(|_| !is_searched) else { continue };
            // The stack of a thread ends at its control block; other memory may follow directly.
            let ends_at_block = stack.contains(&control_block) && control_block > first;
            let end = if ends_at_block { control_block & !7 } else { stack.end };
            if end - first > MAX_STACK {
                return Ok(false);
            }
            pointers.extend(self.words(first..end)?);
        }
        Ok(true)
    }

    /// Searches words; returns the stack pointers in signal frames.
    fn words(&mut self, range: Range<u64>) -> Result<Vec<u64>, RemoteError> {
        let bytes = self.bytes(&range)?;
        self.searched.push(range);
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut pointers = Vec::new();
        // The order in a frame: stack pointer, instruction pointer, flags, selectors.
        let mut before = [0; 3];
        for word in words {
            if word & SELECTORS_MASK == SELECTORS {
                let [pointer, address, _] = before;
                self.continues_at(address);
                pointers.push(pointer);
            }
            before = [before[1], before[2], word];
        }
        Ok(pointers)
    }

    /// The bytes of a range. Pages that cannot be read, as those of a guard within a mapping, are zero.
    fn bytes(&self, range: &Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut at = range.start;
        while at < range.end {
            at += self.stopped.read_some(at, &mut bytes[(at - range.start) as usize..])? as u64;
            at = (at + 1).next_multiple_of(PAGE);
        }
        Ok(bytes)
    }

    /// Searches what looks like a stack and has not been searched: of a coroutine that waits, or of a thread that has ended.
    fn stacks_without_thread(&mut self) -> Result<bool, RemoteError> {
        let pages = File::open(self.stopped.file("pagemap"))?;
        let mut total = 0;
        for (guard, stack) in self.maps.iter().zip(&self.maps[1..]) {
            let range = stack.range();
            let is_searched = |range: &Range<u64>| self.searched.iter().any(|one| range.contains(&one.start));
            let is_large = range.end - range.start > MAX_WAITING;
            if is_large || !is_stack_behind(stack, guard) || is_searched(&range) {
                continue;
            }
            for range in contents(&pages, &range)? {
                total += range.end - range.start;
                if total > MAX_STACK {
                    return Ok(false);
                }
                self.words(range)?;
            }
        }
        Ok(true)
    }
}

/// Parts of a mapping that have been written to.
fn contents(pages: &File, range: &Range<u64>) -> Result<Vec<Range<u64>>, RemoteError> {
    let mut entries = vec![0; ((range.end - range.start) / PAGE * 8) as usize];
    pages.read_exact_at(&mut entries, range.start / PAGE * 8)?;
    let mut found: Vec<Range<u64>> = Vec::new();
    for (page, entry) in (range.start..).step_by(PAGE as usize).zip(entries.as_chunks().0) {
        if u64::from_le_bytes(*entry) & HAS_CONTENTS == 0 {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == page => last.end += PAGE,
            _ => found.push(page..page + PAGE),
        }
    }
    Ok(found)
}
