//! What a session has changed in a process, stored in the process: another session can undo it if the tracer was killed, or if threads
//! were still in the code when the session ended.
//!
//! ```text
//! base            data               used       first entry     end
//! | page | shared data | code ........|  (unused)  | entries, header |
//! ```
//!
//! The header is written as soon as the memory is reserved, an entry before the jump that it describes. So whatever happens to the
//! tracer, the journal describes all jumps. A tracer that is alive is recognised by the word [`ACTIVE`] of the shared data.
//!
//! A region that threads return to cannot be taken away. Its data and tables, which are its largest part, can: calls that are running return
//! without a program, and other code that uses data is not entered any more. The rest is freed by a later session.

use std::collections::HashSet;
use std::ops::Range;

use native::layout::{ACTIVE, ACTIVE_THREAD};

use super::calls::RemoteCalls;
use super::error::RemoteError;
use super::maps::MemoryRange;
use super::patches::{JUMP, restore};
use super::stacks::{Uses, uses};
use super::stopped::Stopped;

const PAGE: u64 = 4096;
/// Marks a header; changes with its format.
const MAGIC: u64 = u64::from_le_bytes(*b"cudatr01");
/// Size of the header in bytes.
const HEADER: u64 = 64;
/// Size of an entry in bytes.
pub const ENTRY: u64 = 64;
/// Name of the shared data in `/proc/PID/maps`.
const DATA_NAME: &str = "/memfd:cudatrace";
/// `ret`
const RET: [u8; 1] = [0xc3];

/// A part of the code of a region. All addresses are those of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A patched function with its detour.
    Jump {
        /// Address of the jump.
        address: u64,
        /// The bytes that the jump has replaced.
        original: [u8; JUMP],
        /// The jump.
        jump: [u8; JUMP],
        /// The detour from its first instruction to the end of the moved instructions.
        detour: Range<u64>,
        /// From here on, the detour uses no data but by [`Entry::Leave`].
        entered: u64,
        /// Where the wrapped function returns; 0 if it is not wrapped.
        returns: u64,
    },
    /// Code of returns, which a `ret` at this address switches off.
    Leave(u64),
}

impl Entry {
    fn to_bytes(&self) -> Vec<u8> {
        let word = |bytes: &[u8; JUMP]| {
            u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], 0, 0, 0])
        };
        let words = match self {
            Entry::Jump { address, original, jump, detour, entered, returns } => {
                [1, *address, word(original), word(jump), detour.start, detour.end, *entered, *returns]
            }
            Entry::Leave(address) => [2, *address, 0, 0, 0, 0, 0, 0],
        };
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn of_words(words: [u64; 8]) -> Option<Entry> {
        let [kind, address, original, jump, start, end, entered, returns] = words;
        let bytes = |word: u64| word.to_le_bytes()[..JUMP].try_into().expect("5 bytes");
        match kind {
            1 => Some(Entry::Jump {
                address,
                original: bytes(original),
                jump: bytes(jump),
                detour: start..end,
                entered,
                returns,
            }),
            2 => Some(Entry::Leave(address)),
            _ => None,
        }
    }
}

/// Header of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub base: u64,
    /// Sizes in bytes.
    pub data: u64,
    pub code: u64,
    /// Size of the code that is used.
    pub used: u64,
    /// Number of entries.
    pub entries: u64,
    /// The data and the unused part have been taken away.
    pub is_small: bool,
    /// Address of the tables; 0: none.
    pub tables: u64,
}

impl Header {
    fn end(&self) -> u64 {
        self.base + self.data + self.code
    }

    fn first_entry(&self) -> u64 {
        self.end() - HEADER - self.entries * ENTRY
    }

    pub(super) fn write(&self, stopped: &Stopped<'_>) -> Result<(), RemoteError> {
        let is_small = u64::from(self.is_small);
        let words = [self.base, self.data, self.code, self.used, self.entries, is_small, self.tables, MAGIC];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        stopped.write(self.end() - HEADER, &bytes)
    }

    /// Adds entries, then changes the header. `used`: size of the code that is used now.
    pub(super) fn add(
        &mut self,
        stopped: &Stopped<'_>,
        used: u64,
        entries: &[Entry],
    ) -> Result<(), RemoteError> {
        let added = Header { entries: self.entries + entries.len() as u64, used, ..self.clone() };
        if added.first_entry() < self.base + self.data + used {
            return Err(RemoteError::NoRoom);
        }
        // Entry 0 is directly in front of the header.
        let bytes: Vec<u8> = entries.iter().rev().flat_map(Entry::to_bytes).collect();
        stopped.write(added.first_entry(), &bytes)?;
        added.write(stopped)?;
        *self = added;
        Ok(())
    }

    /// Room for code.
    pub(super) fn room(&self) -> u64 {
        self.first_entry() - self.base - self.data
    }

    fn of_words(words: [u64; 8]) -> Option<Header> {
        let [base, data, code, used, entries, small, tables, magic] = words;
        let sizes = [base, data, code].iter().try_fold(0u64, |sum, part| sum.checked_add(*part));
        let fits = sizes.is_some() && used <= code && entries < code / ENTRY;
        let is_small = small != 0;
        (magic == MAGIC && fits).then_some(Header { base, data, code, used, entries, is_small, tables })
    }
}

/// A region in a process, of this session or of another one.
#[derive(Debug)]
pub struct Remains {
    header: Header,
    entries: Vec<Entry>,
    /// Inode of the shared data, if these are mapped.
    data: Option<u64>,
    /// Addresses of the tables, if these are mapped.
    tables: Option<Range<u64>>,
}

/// What is left of a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Some pages of code, to which threads return.
    Code,
    /// All of it: a thread is in the code of a program, or a jump could not be removed.
    Everything,
}

impl Remains {
    /// Finds the regions in a process.
    ///
    /// # Errors
    /// The errors of reading its memory.
    pub fn find(stopped: &Stopped<'_>, maps: &[MemoryRange]) -> Result<Vec<Remains>, RemoteError> {
        let mut found = Vec::new();
        let may_be = |map: &&MemoryRange| map.is_private_code && map.inode == 0 && map.name.is_empty();
        for map in maps.iter().filter(may_be) {
            let Some(header) = Header::of_words(words(stopped, map.range.end - HEADER, 1)?[0]) else {
                continue;
            };
            if header.end() != map.range.end {
                continue;
            }
            let entries = words(stopped, header.first_entry(), header.entries)?;
            let entries = entries.into_iter().rev().filter_map(Entry::of_words).collect();
            let data = header.base + PAGE..header.base + header.data;
            let mut shared = maps.iter().filter(|map| map.name.starts_with(DATA_NAME));
            let tables = shared.clone().find(|map| map.range.start == header.tables);
            let tables = tables.map(|map| map.range.clone());
            let data = shared.find(|map| map.range == data).map(|map| map.inode);
            found.push(Remains { header, entries, data, tables });
        }
        Ok(found)
    }

    /// Id of a thread of the tracer, in the tracer's pid namespace; `None` if the session is over.
    ///
    /// # Errors
    /// The errors of reading the process's memory.
    pub fn tracer(&self, stopped: &Stopped<'_>) -> Result<Option<u32>, RemoteError> {
        let mut word = [0; 4];
        // Without data it is not complete: its tracer would still hold the threads.
        if self.data.is_some() {
            stopped.read(self.header.base + ACTIVE, &mut word)?;
        }
        Ok(Some(u32::from_le_bytes(word) & ACTIVE_THREAD).filter(|thread| *thread != 0))
    }

    /// Inode of the shared data, if these are mapped.
    pub fn inode(&self) -> Option<u64> {
        self.data
    }

    /// Addresses of the jumps.
    pub fn jumps(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Jump { address, .. } => Some(*address),
            Entry::Leave(_) => None,
        })
    }

    /// Restores the functions of a session that is over, and frees its memory. `is_last`: code to which threads return is separated
    /// from the rest, which is freed.
    ///
    /// # Errors
    /// The errors of [`RemoteCalls::new`] and of the memory of the process.
    pub fn remove(
        &self,
        stopped: &Stopped<'_>,
        own_filters: u32,
        is_last: bool,
    ) -> Result<Left, RemoteError> {
        let maps = stopped.maps()?;
        let mut is_whole = true;
        for entry in &self.entries {
            if let Entry::Jump { address, original, jump, .. } = entry {
                let is_code = |map: &MemoryRange| map.is_private_code && map.range.contains(address);
                // The file may not be mapped any more.
                is_whole &= !maps.iter().any(is_code) || restore(stopped, *address, jump, original)?;
            }
        }
        let code = self.code();
        let left = match uses(stopped, &maps, &code)? {
            Some(uses) if is_whole => self.left(&uses),
            _ => Left::Everything,
        };
        match left {
            Left::Everything => {}
            Left::Code if self.header.is_small || !is_last => {}
            Left::Code => self.shrink(stopped, own_filters)?,
            Left::Nothing => self.free(stopped, &maps, own_filters)?,
        }
        Ok(left)
    }

    fn code(&self) -> Range<u64> {
        let start = self.header.base + self.header.data;
        start..start + self.header.code
    }

    /// What must stay. A thread that executes code of a program, which calls nothing outside, is there with its instruction pointer,
    /// now or after a signal handler. All other words are remains, unless they are where a wrapped function returns.
    fn left(&self, uses: &Uses) -> Left {
        let detours = || {
            self.entries.iter().filter_map(|entry| match entry {
                Entry::Jump { detour, entered, returns, .. } => Some((*entered..detour.end, *returns)),
                Entry::Leave(_) => None,
            })
        };
        let uses_no_data = |address: &u64| detours().any(|(harmless, _)| harmless.contains(address));
        let returns: HashSet<u64> = detours().map(|(_, returns)| returns).collect();
        if !uses.continues.iter().all(uses_no_data) {
            return Left::Everything;
        }
        let is_left = !uses.continues.is_empty() || uses.words.iter().any(|word| returns.contains(word));
        if is_left { Left::Code } else { Left::Nothing }
    }

    /// Takes away the data and what is not used of the code.
    fn shrink(&self, stopped: &Stopped<'_>, own_filters: u32) -> Result<(), RemoteError> {
        for entry in &self.entries {
            if let Entry::Leave(address) = entry {
                stopped.write(*address, &RET)?;
            }
        }
        let small = self.small();
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        if self.data.is_some() {
            unmap(&mut calls, &(self.header.base..self.header.base + self.header.data))?;
        }
        self.unmap_tables(&mut calls)?;
        unmap(&mut calls, &(small[0].end..small[1].start))?;
        calls.finish()?;
        Header { is_small: true, ..self.header.clone() }.write(stopped)
    }

    fn unmap_tables(&self, calls: &mut RemoteCalls<'_>) -> Result<(), RemoteError> {
        self.tables.iter().try_for_each(|tables| unmap(calls, tables))
    }

    /// The used code, and the journal.
    fn small(&self) -> [Range<u64>; 2] {
        let code = self.code();
        let used = code.start..(code.start + self.header.used).next_multiple_of(PAGE);
        let journal = (self.header.first_entry() & !(PAGE - 1)).max(used.end)..code.end;
        [used, journal]
    }

    /// Takes everything away that is still mapped.
    fn free(&self, stopped: &Stopped<'_>, maps: &[MemoryRange], own_filters: u32) -> Result<(), RemoteError> {
        let code = self.code();
        let is_one = |range: &Range<u64>| {
            maps.iter().any(|map| map.range.start <= range.start && range.end <= map.range.end)
        };
        let is_small = self.header.is_small || !is_one(&code);
        // A region that is not complete has code in the place of the data.
        let has_all = self.data.is_some() || is_one(&(self.header.base + PAGE..code.end));
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        self.unmap_tables(&mut calls)?;
        if is_small {
            // The journal last: a tracer that is killed in between leaves something that can be found.
            for range in self.small() {
                unmap(&mut calls, &range)?;
            }
        } else {
            let start = if has_all { self.header.base } else { code.start };
            unmap(&mut calls, &(start..code.end))?;
        }
        calls.finish()
    }
}

fn unmap(calls: &mut RemoteCalls<'_>, range: &Range<u64>) -> Result<(), RemoteError> {
    if range.is_empty() {
        return Ok(());
    }
    calls.call("munmap", libc::SYS_munmap, [range.start, range.end - range.start, 0, 0, 0, 0])?;
    Ok(())
}

/// Reads groups of 8 words.
fn words(stopped: &Stopped<'_>, address: u64, groups: u64) -> Result<Vec<[u64; 8]>, RemoteError> {
    let mut bytes = vec![0; (groups * 64) as usize];
    stopped.read(address, &mut bytes)?;
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Ok(words.as_chunks().0.to_vec())
}
