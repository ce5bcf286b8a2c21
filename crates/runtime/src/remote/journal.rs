//! Journal of a session's changes in a process, stored in the process: another session can undo them if the tracer was killed, or if
//! threads were still in the code when the session ended.
//!
//! ```text
//! base            data               used       first entry     end
//! | page | shared data | code ........|  (unused)  | entries, header |
//! ```
//!
//! A header is written as soon as the first page is reserved, an entry before the jump that it describes. So whatever happens to the
//! tracer, the journal describes all jumps. A tracer that is alive is recognised by the word [`ACTIVE`] of the shared data.
//!
//! A region to which a thread or a call returns cannot be taken away. A later session frees it.
//!
//! The process may have written anything there, also before a session comes for the first time. What is read is compared with the mappings
//! and with the sizes that sessions use; what a false journal then does, it does to the process alone.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use linux::proc::{Mapping, MappingName};
use native::layout::{ACTIVE, ACTIVE_THREAD, TGID};
use native::load;
use native::returns::SILENT;
use native::site::JUMP;

use super::error::RemoteError;
use super::memory_map::{OutpostPage, is_in_hole};
use super::patches::restore;
use super::return_addresses::may_continue;
use super::stopped::StoppedProcess;
use super::system_calls::RemoteCalls;

const PAGE: u64 = 4096;
/// Marks a header; changes with its format.
const MAGIC: u64 = u64::from_le_bytes(*b"cudatr01");
/// Size of the header in bytes.
const HEADER: u64 = 64;
/// Size of an entry in bytes.
pub const ENTRY: u64 = 64;
/// Most entries of a process that are read: one for each patched function.
const MAX_ENTRIES: u64 = 1 << 17;
/// Most regions of a process: those of sessions before stay if a call may return there.
const MAX_REGIONS: usize = 512;
/// Most pages of code elsewhere of a region.
const MAX_OUTPOSTS: usize = 64;
/// Largest memory for calls whose return is traced, in bytes. A region has one.
const MAX_RETURNS: u64 = 8 << 20;
/// Name of the shared data in `/proc/PID/maps`.
const DATA_NAME: &str = "/memfd:cudatrace";

/// Whether a mapping is the shared data of a session, by its name.
pub(crate) fn is_shared_data(map: &Mapping) -> bool {
    let path = map.name.path().map(|path| path.as_os_str().as_bytes());
    path.is_some_and(|path| path.starts_with(DATA_NAME.as_bytes()))
}

/// A change of a session in a process. All addresses are those of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A patched function.
    Jump(Jump),
    /// A patched function of an unwinder, which finds the frames of calls whose return is traced.
    Hook(Jump),
    /// A page of code elsewhere.
    Outpost(OutpostPage),
    /// Memory for calls whose return is traced (`native::returns`).
    Returns {
        /// Address.
        area: u64,
        /// Offsets of the slots of running calls.
        slots: Range<u64>,
    },
}

/// A jump that has replaced instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Address.
    pub address: u64,
    /// The bytes that it has replaced.
    pub original: [u8; JUMP],
    /// The jump.
    pub jump: [u8; JUMP],
}

impl Jump {
    fn words(&self, kind: u64) -> [u64; 8] {
        let word = |b: &[u8; JUMP]| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], 0, 0, 0]);
        [kind, self.address, word(&self.original), word(&self.jump), 0, 0, 0, 0]
    }

    fn of_words(address: u64, original: u64, jump: u64) -> Jump {
        let bytes = |word: u64| word.to_le_bytes()[..JUMP].try_into().expect("5 bytes");
        Jump { address, original: bytes(original), jump: bytes(jump) }
    }

    /// Restores the instructions; returns whether they are there. The file may not be mapped any more.
    fn restore(&self, stopped: &StoppedProcess<'_>, maps: &[Mapping]) -> Result<bool, RemoteError> {
        Ok(!self.is_mapped(maps) || restore(stopped, self.address, &self.jump, &self.original)?)
    }

    fn is_mapped(&self, maps: &[Mapping]) -> bool {
        // In the order of their addresses.
        let after = maps.partition_point(|map| map.start <= self.address);
        let map = after.checked_sub(1).map(|at| &maps[at]);
        map.is_some_and(|map| map.is_private_code() && map.range().contains(&self.address))
    }

    fn is_written(&self, stopped: &StoppedProcess<'_>, maps: &[Mapping]) -> Result<bool, RemoteError> {
        let mut now = [0; JUMP];
        if self.is_mapped(maps) {
            stopped.read_if_there(self.address, &mut now)?;
        }
        Ok(now == self.jump)
    }
}

impl Entry {
    fn to_bytes(&self) -> Vec<u8> {
        let words = match self {
            Entry::Jump(jump) => jump.words(1),
            Entry::Hook(jump) => jump.words(2),
            Entry::Outpost(page) => [3, page.address, page.is_in_hole.into(), 0, 0, 0, 0, 0],
            Entry::Returns { area, slots } => [4, *area, slots.start, slots.end, 0, 0, 0, 0],
        };
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn of_words(words: [u64; 8]) -> Option<Entry> {
        match words {
            [1, address, original, jump, ..] => Some(Entry::Jump(Jump::of_words(address, original, jump))),
            [2, address, original, jump, ..] => Some(Entry::Hook(Jump::of_words(address, original, jump))),
            [3, address, is_in_hole, ..] if address <= u64::MAX - PAGE => {
                Some(Entry::Outpost(OutpostPage { address, is_in_hole: is_in_hole != 0 }))
            }
            [4, area, start, end, ..] if end <= MAX_RETURNS && area <= u64::MAX - MAX_RETURNS => {
                Some(Entry::Returns { area, slots: start..end })
            }
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
    /// Size of the process's own data after the code.
    pub own: u64,
    /// Address of the tables; 0: none.
    pub tables: u64,
}

impl Header {
    /// Addresses of the code.
    pub(super) fn code(&self) -> Range<u64> {
        let start = self.base + self.data;
        start..start + self.code
    }

    pub(super) fn end(&self) -> u64 {
        self.code().end
    }

    fn first_entry(&self) -> u64 {
        self.end() - HEADER - self.entries * ENTRY
    }

    /// Addresses of all but the tables and the outposts.
    pub(super) fn whole(&self) -> Range<u64> {
        self.base..self.end() + self.own
    }

    pub(super) fn write(&self, stopped: &StoppedProcess<'_>) -> Result<(), RemoteError> {
        self.write_at_end(stopped, self.end())
    }

    /// Writes the header at the end of other memory.
    pub(super) fn write_at_end(&self, stopped: &StoppedProcess<'_>, end: u64) -> Result<(), RemoteError> {
        let words = [self.base, self.data, self.code, self.used, self.entries, self.own, self.tables, MAGIC];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        stopped.write(end - HEADER, &bytes)
    }

    /// Undoes [`Header::write_at_end`] in new memory.
    pub(super) fn clear_at_end(stopped: &StoppedProcess<'_>, end: u64) -> Result<(), RemoteError> {
        stopped.write(end - HEADER, &[0; HEADER as usize])
    }

    /// Adds entries, then changes the header. `used`: size of the code that is used now.
    pub(super) fn add(
        &mut self,
        stopped: &StoppedProcess<'_>,
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

    /// The header at the end of a mapping, whose last page may be one that cannot be read.
    fn find(stopped: &StoppedProcess<'_>, end: u64) -> Result<Option<Header>, RemoteError> {
        let mut bytes = [0; HEADER as usize];
        let is_there = stopped.read_if_there(end - HEADER, &mut bytes)?;
        Ok(Header::of_words(to_words(&bytes)[0]).filter(|_| is_there))
    }

    fn of_words(words: [u64; 8]) -> Option<Header> {
        let [base, data, code, used, entries, own, tables, magic] = words;
        let sizes = [base, data, code, own].iter().try_fold(0u64, |sum, part| sum.checked_add(*part));
        let has_room = data >= 2 * PAGE && code >= PAGE && entries < (code / ENTRY).min(MAX_ENTRIES);
        let fits = sizes.is_some() && used <= code && has_room;
        (magic == MAGIC && fits).then_some(Header { base, data, code, used, entries, own, tables })
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

impl Remains {
    /// Finds the regions in a process.
    ///
    /// # Errors
    /// The errors of reading its memory.
    pub fn find(stopped: &StoppedProcess<'_>, maps: &[Mapping]) -> Result<Vec<Remains>, RemoteError> {
        let (mut found, mut read) = (Vec::new(), 0);
        let may_be =
            |map: &&Mapping| map.is_private_code() && map.inode == 0 && map.name == MappingName::Anonymous;
        for map in maps.iter().filter(may_be) {
            let Some(header) = Header::find(stopped, map.end)? else { continue };
            // As long as it is not complete, the process's own data are code too.
            let ends_here = [header.end(), header.whole().end].contains(&map.end);
            if !ends_here || !map.range().contains(&header.first_entry()) {
                continue;
            }
            read += header.entries;
            if read > MAX_ENTRIES || found.len() == MAX_REGIONS {
                break;
            }
            let entries = words(stopped, header.first_entry(), header.entries)?;
            let entries: Vec<Entry> = entries.into_iter().rev().filter_map(Entry::of_words).collect();
            let count = |is: fn(&&Entry) -> bool| entries.iter().filter(is).count();
            let returns = count(|entry| matches!(entry, Entry::Returns { .. }));
            if returns > 1 || count(|entry| matches!(entry, Entry::Outpost(_))) > MAX_OUTPOSTS {
                continue;
            }
            let data = header.base + PAGE..header.base + header.data;
            let mut shared = maps.iter().filter(|map| is_shared_data(map));
            let tables = shared.clone().find(|map| map.start == header.tables);
            let tables = tables.map(Mapping::range);
            let data = shared.find(|map| map.range() == data).map(|map| map.inode);
            found.push(Remains { header, entries, data, tables });
        }
        Ok(found)
    }

    /// Id of a thread of the tracer, in the tracer's pid namespace; `None` if the session is over.
    ///
    /// # Errors
    /// The errors of reading the process's memory.
    pub fn tracer(&self, stopped: &StoppedProcess<'_>) -> Result<Option<u32>, RemoteError> {
        let mut word = [0; 4];
        // Without data it is not complete: its tracer would still hold the threads.
        if self.data.is_some() {
            stopped.read(self.header.base + ACTIVE, &mut word)?;
        }
        Ok(Some(u32::from_le_bytes(word) & ACTIVE_THREAD).filter(|thread| *thread != 0))
    }

    /// Whether the memory of the process is that of another process, which it will leave by execve(2): a child of vfork(2) or
    /// posix_spawn(3).
    ///
    /// # Errors
    /// The errors of reading the memory of the process.
    pub fn is_borrowed(&self, stopped: &StoppedProcess<'_>) -> Result<bool, RemoteError> {
        let mut word = [0; 4];
        stopped.read(self.header.base + TGID, &mut word)?;
        // A child of fork(2) has zero there before it has its own number.
        Ok(![0, stopped.pid()].contains(&u32::from_le_bytes(word)))
    }

    /// Address of the region.
    pub fn base(&self) -> u64 {
        self.header.base
    }

    /// Address of the code.
    pub fn code_start(&self) -> u64 {
        self.header.code().start
    }

    /// Addresses of the code.
    pub fn code(&self) -> Range<u64> {
        self.header.code()
    }

    /// Addresses of the code that is not used yet.
    pub(super) fn unused_code(&self) -> Range<u64> {
        self.code_start() + self.header.used..self.header.first_entry()
    }

    /// Whether a probed function has its jump.
    ///
    /// # Errors
    /// [`RemoteError::Gone`]
    pub fn has_jump(&self, stopped: &StoppedProcess<'_>) -> Result<bool, RemoteError> {
        let maps = stopped.maps()?;
        for entry in &self.entries {
            if let Entry::Jump(jump) = entry
                && jump.is_written(stopped, &maps)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Inode of the shared data, if these are mapped.
    pub fn inode(&self) -> Option<u64> {
        self.data
    }

    /// Addresses of the jumps in probed functions.
    pub fn jumps(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Jump(jump) => Some(jump.address),
            _ => None,
        })
    }

    /// Puts empty memory of the process's own in the place of what it shares with others. Threads may be using it.
    ///
    /// # Errors
    /// The errors of [`RemoteCalls::new`] and of mmap(2).
    pub fn separate(&self, stopped: &StoppedProcess<'_>, own_filters: u32) -> Result<(), RemoteError> {
        let Header { base, data, .. } = self.header;
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let shared = [Some(base + PAGE..base + data), self.tables.clone()];
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        for range in shared.into_iter().flatten() {
            calls.map_over(&range, access)?;
        }
        calls.finish()
    }

    /// Restores the functions of a session that is over, and frees its memory unless a thread or a call returns there; returns whether
    /// it is free. Until then exceptions may pass its frames, so that unwinders find them.
    ///
    /// # Errors
    /// The errors of [`RemoteCalls::new`] and of the memory of the process.
    pub fn remove(&self, stopped: &StoppedProcess<'_>, own_filters: u32) -> Result<bool, RemoteError> {
        let maps = stopped.maps()?;
        let mut is_whole = true;
        self.silence(stopped)?;
        self.withdraw_load(stopped, own_filters)?;
        for entry in &self.entries {
            if let Entry::Jump(jump) = entry {
                is_whole &= jump.restore(stopped, &maps)?;
            }
        }
        if !is_whole || self.is_in_use(stopped, &maps)? {
            return Ok(false);
        }
        for entry in &self.entries {
            if let Entry::Hook(hook) = entry {
                is_whole &= hook.restore(stopped, &maps)?;
            }
        }
        if is_whole {
            self.free(stopped, &maps, own_filters)?;
        }
        Ok(is_whole)
    }

    /// Keeps programs from running when calls return.
    fn silence(&self, stopped: &StoppedProcess<'_>) -> Result<(), RemoteError> {
        for entry in &self.entries {
            if let Entry::Returns { area, .. } = entry {
                stopped.write(area + SILENT, &1u64.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Whether a thread is in the code.
    ///
    /// # Errors
    /// The errors of reading the memory of the process.
    pub fn has_threads(&self, stopped: &StoppedProcess<'_>) -> Result<bool, RemoteError> {
        may_continue(stopped, &stopped.maps()?, &[self.header.code()])
    }

    /// Whether a thread is in the code, now or after a signal handler, or a call may return there. Its other code calls nothing outside, so
    /// other words on stacks are remains.
    fn is_in_use(&self, stopped: &StoppedProcess<'_>, maps: &[Mapping]) -> Result<bool, RemoteError> {
        let mut loading = [0; 4];
        // Only a complete one has this word.
        if self.data.is_some() {
            stopped.read(self.header.base + load::RUNNING, &mut loading)?;
        }
        if loading != [0; 4] {
            return Ok(true);
        }
        for entry in &self.entries {
            if let Entry::Returns { area, slots } = entry {
                let mut memory = vec![0; slots.end as usize];
                stopped.read(*area, &mut memory)?;
                if native::returns::has_calls(&memory, slots) {
                    return Ok(true);
                }
            }
        }
        let outposts = self.outposts(maps).map(OutpostPage::range);
        let code: Vec<Range<u64>> = outposts.chain([self.header.code()]).collect();
        may_continue(stopped, maps, &code)
    }

    /// The pages of code elsewhere, but for those that were unmapped with a library.
    fn outposts(&self, maps: &[Mapping]) -> impl Iterator<Item = OutpostPage> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Outpost(page) => {
                Some(*page).filter(|page| !page.is_in_hole || is_in_hole(maps, page.address))
            }
            _ => None,
        })
    }

    /// Takes everything away.
    fn free(
        &self,
        stopped: &StoppedProcess<'_>,
        maps: &[Mapping],
        own_filters: u32,
    ) -> Result<(), RemoteError> {
        let whole = self.header.whole();
        let is_one =
            |range: &Range<u64>| maps.iter().any(|map| map.start <= range.start && range.end <= map.end);
        // One that is not complete has code in the place of all data, or there is only its last page.
        let has_all = self.data.is_some() || is_one(&(self.header.base + PAGE..whole.end));
        let start = if has_all { whole.start } else { whole.end - PAGE };
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        for page in self.outposts(maps) {
            match page.is_in_hole {
                // The hole is what it was: nothing else is mapped there as long as the library is.
                true => calls.map_over(&page.range(), libc::PROT_NONE as u64)?,
                false => calls.unmap(&page.range())?,
            }
        }
        for range in self.tables.clone().into_iter().chain(std::iter::once(start..whole.end)) {
            calls.unmap(&range)?;
        }
        calls.finish()
    }
}

/// Reads groups of 8 words.
fn words(stopped: &StoppedProcess<'_>, address: u64, groups: u64) -> Result<Vec<[u64; 8]>, RemoteError> {
    let mut bytes = vec![0; (groups * 64) as usize];
    stopped.read(address, &mut bytes)?;
    Ok(to_words(&bytes))
}

/// Groups of 8 words.
fn to_words(bytes: &[u8]) -> Vec<[u64; 8]> {
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    words.as_chunks().0.to_vec()
}
