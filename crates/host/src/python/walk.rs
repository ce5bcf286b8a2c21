//! For programs that walk the frames of Python of a process themselves: the layout that they need, and what they have copied (`wire::python`).

use std::cmp::Reverse;
use std::collections::HashMap;

use super::code::Code;
use super::memory::Memory;
use super::{Python, TYPE, Thread};
use wire::python::{self, COPIED_CODE, COPIED_PARTS, HEAD, LENGTH};

/// Threads that are looked at.
const THREADS: usize = 16;
/// Bytes before the control block of a thread that may be its own memory (thread-local variables), and from it on.
const BEFORE: u64 = 1 << 16;
const BEHIND: u64 = 2304;
const PAGE: u64 = 4096;

impl Python {
    /// The layout for programs. `None` as long as no thread is in Python, or none of its own words has its state.
    pub fn for_programs(&self) -> Option<python::Layout> {
        let threads: Vec<Thread> = self.threads().into_iter().filter(|thread| thread.pthread != 0).collect();
        let is_whole = |thread: &Thread| {
            let stack = self.frames(*thread);
            !stack.frames.is_empty() && !stack.is_cut
        };
        threads.iter().any(is_whole).then_some(())?;
        let main_thread = threads.last().map_or(0, |thread| thread.state);
        Some(self.layout.for_programs(self.slots(&threads)?, main_thread))
    }

    /// Where threads have the addresses of their states, from their control blocks on: the place that most threads agree on, and the next one.
    /// The state that the interpreter runs in and that of the thread are different variables, and only the latter is always set.
    fn slots(&self, threads: &[Thread]) -> Option<[u64; 2]> {
        let mut votes: HashMap<i64, usize> = HashMap::new();
        for thread in threads.iter().take(THREADS) {
            self.places_of_state(*thread).for_each(|place| *votes.entry(place).or_default() += 1);
        }
        let mut places: Vec<(i64, usize)> = votes.into_iter().collect();
        // The values of `pthread_getspecific`, which are set while a thread lives, are within the control block.
        places.sort_by_key(|(place, votes)| (Reverse(*votes), *place < 0, place.unsigned_abs()));
        let mut places = places.into_iter().map(|(place, _)| place as u64);
        Some([places.next()?, places.next().unwrap_or(0)])
    }

    fn places_of_state(&self, thread: Thread) -> impl Iterator<Item = i64> {
        let block = thread.pthread;
        let pages =
            (block.saturating_sub(BEFORE) & !(PAGE - 1)..block.saturating_add(BEHIND)).step_by(PAGE as usize);
        let words = pages.flat_map(move |page| {
            let mut bytes = [0; PAGE as usize];
            let is_there = self.memory.read(page, 0, &mut bytes);
            let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            (page..).step_by(8).zip(words).filter(move |_| is_there)
        });
        words.filter(move |(_, word)| *word == thread.state).map(move |(at, _)| at.wrapping_sub(block) as i64)
    }

    /// A code object that a program has copied: the value of its map. `None` if its names were not copied, or, with `needs_lines`, its table of
    /// lines was not.
    pub fn copied_code(&self, address: u64, copy: &[u8], needs_lines: bool) -> Option<Code> {
        let (code, mut rest) = copy.split_at_checked(COPIED_CODE as usize)?;
        let head = Memory::Copies(vec![(address, code.to_vec())]);
        let mut parts = vec![(address, code.to_vec())];
        for (member, most) in COPIED_PARTS {
            let (part, others) = rest.split_at_checked(most as usize)?;
            rest = others;
            let length =
                part.get(LENGTH as usize..)?.first_chunk().map(|length| u64::from_le_bytes(*length))?;
            let copied = length.saturating_add(u64::from(HEAD)).min(u64::from(most - 1)) as usize;
            // A part that could not be read has no type either.
            let is_there = part.get(TYPE as usize..)?.first_chunk() != Some(&[0; 8]);
            let part = if is_there { part } else { &[] };
            let copied = copied.min(part.len());
            parts.push((head.u64(address, self.layout.code_object.part(member)?)?, part[..copied].to_vec()));
        }
        self.code_in(&Memory::Copies(parts), address, needs_lines)
    }
}
