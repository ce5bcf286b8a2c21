//! The unwind tables of a session whose programs run in the traced processes: memory that only the tracer writes. The layout is that of
//! `native::unwind`.
//!
//! The areas of a process are in one of two buffers, and there are two lists of processes. A change fills what is not in use, then switches by
//! the next sequence: a program that has read something else meanwhile notices it, and reads again. No program waits for the tracer.

use crate::kernel::sys::MemoryMapping;
use native::unwind;
use rustix::fs::{MemfdFlags, SealFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use wire::unwind::MAX_TABLES;

/// Smallest number of areas for which a process gets memory.
const FEWEST_AREAS: usize = 256;

/// The memory; see the module documentation.
#[derive(Debug)]
pub(crate) struct UnwindMemory {
    file: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    memory: MemoryMapping,
    /// Offset of the first byte that was never used.
    next: u64,
    processes: BTreeMap<u32, Process>,
    /// Buffers of processes that have ended, by their capacity.
    free: BTreeMap<usize, Vec<u64>>,
}

#[derive(Debug)]
struct Process {
    /// By start address.
    areas: BTreeMap<u64, Area>,
    capacity: usize,
    /// Offsets of the buffers; the first one is in use.
    buffers: [u64; 2],
}

#[derive(Copy, Clone, Debug)]
struct Area {
    end: u64,
    bias: u64,
    table: u32,
}

impl UnwindMemory {
    /// Creates empty memory.
    ///
    /// # Errors
    /// memfd_create(2) or mmap(2) fails.
    pub(crate) fn new() -> io::Result<UnwindMemory> {
        let file = rustix::fs::memfd_create("cudatrace", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, unwind::SIZE)?;
        let memory = MemoryMapping::shared(file.as_fd(), 0, unwind::SIZE as usize, true)?;
        // Traced processes map it for reading, and can not map it otherwise.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let (processes, free) = (BTreeMap::new(), BTreeMap::new());
        Ok(UnwindMemory { file, state: Mutex::new(State { memory, next: unwind::DATA, processes, free }) })
    }

    /// The memory's file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Fills a table with the rows of its chunks; returns its size in bytes.
    ///
    /// # Errors
    /// ENOMEM
    pub(crate) fn fill(&self, table: u32, chunks: &[Vec<u64>]) -> io::Result<usize> {
        assert!(table < MAX_TABLES, "the number of a table");
        // The first chunk is the directory of the others.
        let rows: Vec<u64> = chunks.iter().skip(1).flatten().copied().collect();
        let mut state = self.state();
        let at = state.take(8 * rows.len() as u64)?;
        state.write(at, &rows);
        let entry = unwind::TABLES + unwind::ENTRY * u64::from(table);
        state.write(entry, &[at]);
        // A table without rows is not read: it is complete from here on.
        state.word(entry + 8).store(rows.len() as u64, Ordering::Release);
        Ok(8 * rows.len())
    }

    /// Records that a table covers addresses of a process.
    ///
    /// # Errors
    /// ENOMEM, E2BIG: too many processes.
    pub(crate) fn map(&self, tgid: u32, start: u64, end: u64, table: u32, bias: u64) -> io::Result<()> {
        let mut state = self.state();
        if !state.processes.contains_key(&tgid) {
            if state.processes.len() as u64 >= unwind::MAX_PROCESSES {
                return Err(io::Error::from_raw_os_error(libc::E2BIG));
            }
            let buffers = state.buffers(FEWEST_AREAS)?;
            state.processes.insert(tgid, Process { areas: BTreeMap::new(), capacity: FEWEST_AREAS, buffers });
        }
        let process = state.processes.get_mut(&tgid).expect("inserted above");
        process.areas.insert(start, Area { end, bias, table });
        state.write_areas(tgid)
    }

    /// Removes addresses of a process that were [mapped](Self::map), all or a part of them.
    pub(crate) fn unmap(&self, tgid: u32, start: u64, end: u64) {
        let mut state = self.state();
        let Some(process) = state.processes.get_mut(&tgid) else { return };
        process.areas.retain(|at, area| area.end <= start || *at >= end);
        if process.areas.is_empty() {
            let process = state.processes.remove(&tgid).expect("it is there");
            state.free.entry(process.capacity).or_default().extend(process.buffers);
            state.publish();
        } else {
            // There is room, as there are fewer areas than before.
            let _ = state.write_areas(tgid);
        }
    }

    /// Ignores poisoning: a change that was interrupted is repeated by the next one.
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, bytes: u64) -> io::Result<u64> {
        let at = self.next;
        let next = at + bytes.next_multiple_of(8);
        if next > unwind::SIZE {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        self.next = next;
        Ok(at)
    }

    fn buffers(&mut self, capacity: usize) -> io::Result<[u64; 2]> {
        let free = self.free.entry(capacity).or_default();
        if let (Some(one), Some(other)) = (free.pop(), free.pop()) {
            return Ok([one, other]);
        }
        let bytes = unwind::AREA * capacity as u64;
        Ok([self.take(bytes)?, self.take(bytes)?])
    }

    /// Writes words that no program reads now.
    fn write(&mut self, at: u64, words: &[u64]) {
        assert!(at.is_multiple_of(8) && at + 8 * words.len() as u64 <= unwind::SIZE, "within the memory");
        for (index, word) in words.iter().enumerate() {
            self.word(at + 8 * index as u64).store(*word, Ordering::Relaxed);
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: aligned and within the mapping, as `write` checks; it lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.memory.bytes().add(at as usize).cast()) }
    }

    /// Writes the processes to the list that is not in use, and switches.
    fn publish(&mut self) {
        let sequence = self.word(0).load(Ordering::Relaxed) + 1;
        let list = sequence & 1;
        let entry = |(tgid, process): (&u32, &Process)| {
            [u64::from(*tgid) | (process.areas.len() as u64) << 32, process.buffers[0]]
        };
        let entries: Vec<u64> = self.processes.iter().flat_map(entry).collect();
        self.write(unwind::PROCESSES + list * unwind::PROCESS_LIST, &entries);
        let counts = self.word(unwind::PROCESS_COUNTS).load(Ordering::Relaxed);
        let others = counts & 0xffff_ffff << (32 * (1 - list));
        self.write(unwind::PROCESS_COUNTS, &[others | (self.processes.len() as u64) << (32 * list)]);
        self.word(0).store(sequence, Ordering::Release);
        // The next change writes to what was in use before.
        fence(Ordering::Release);
    }

    /// Writes the areas of a process to the buffer that is not in use, and switches.
    fn write_areas(&mut self, tgid: u32) -> io::Result<()> {
        let process = self.processes.get(&tgid).expect("a process with areas");
        if process.areas.len() > process.capacity {
            let capacity = process.areas.len().next_power_of_two();
            let buffers = self.buffers(capacity)?;
            let process = self.processes.get_mut(&tgid).expect("as before");
            let (before, old) = (process.capacity, process.buffers);
            (process.capacity, process.buffers) = (capacity, buffers);
            self.free.entry(before).or_default().extend(old);
        }
        let process = self.processes.get_mut(&tgid).expect("as before");
        process.buffers.swap(0, 1);
        let area = |(start, area): (&u64, &Area)| [*start, area.end, area.bias, u64::from(area.table)];
        let (to, words) = (process.buffers[0], process.areas.iter().flat_map(area).collect::<Vec<u64>>());
        self.write(to, &words);
        self.publish();
        Ok(())
    }
}
