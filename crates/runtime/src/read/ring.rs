//! Consumer of a BPF ring buffer.
//!
//! It differs from libbpf's in three ways. It can hold the last record back ("busy"): the kernel wakes the reader only for a
//! record at the consumer's position, so under load producers need no wake-up, and the reader polls after a pause. It maps the
//! data once, not twice in a row: mapped pages count as resident, and the few records that wrap around are copied. It passes over a record
//! that its writer did not finish because the process ended, and counts it.
//!
//! A ring buffer in the memory of a session has the same format. Traced processes can write there what they like, so positions and lengths
//! are compared with the size of the buffer, and a record is copied before it is passed on. The reader's position is its own: it is stored
//! for the writers and never read.
//!
//! Layout: kernel/bpf/ringbuf.c. Not here: what a record means (`records`), when to look (`event_loop`).

use crate::kernel::sys::MemoryMapping;
use crate::shared::{Damage, SessionMemory};
use native::layout::{MapPlace, RING_CONSUMED, RING_PRODUCED};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

/// Default size in bytes: a third of a second at half a million printfs per second.
pub const DEFAULT_BYTES: u32 = 8 << 20;

const BUSY_BIT: u32 = 1 << 31;
const DISCARD_BIT: u32 = 1 << 30;
const HEADER: usize = 8;
/// Time after which a record that is not complete is suspicious.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// Result of a read.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadResult {
    /// Number of records.
    pub records: usize,
    /// True if the handler stopped the read.
    pub stopped: bool,
}

/// Where a ring buffer is.
enum Place {
    Kernel(KernelRing),
    /// The memory of a session. Its reader sets what it has read to zero, because a writer takes room before it writes the header.
    Process {
        memory: Arc<SessionMemory>,
        map: MapPlace,
    },
    /// Nowhere: nothing is ever written.
    Nowhere,
}

/// A BPF map, mapped for reading.
struct KernelRing {
    fd: OwnedFd,
    consumer: MemoryMapping,
    /// The producer's page, followed by the data.
    producer: MemoryMapping,
    /// Size in bytes of the producer's page.
    page: usize,
}

/// A ring buffer.
pub struct Ring {
    place: Place,
    size: usize,
    /// Start of the next record.
    position: usize,
    /// The position that writers know; it may be smaller.
    released: usize,
    /// Start of the last record read.
    last: usize,
    /// A copy of a record.
    copied: Vec<u8>,
    /// Position of a record that is not complete, and when it was found.
    incomplete: Option<(usize, Instant)>,
    /// The process that was last found to have ended.
    ended: Option<u32>,
    /// Number of records that processes had not finished when they ended.
    unfinished: u64,
}

/// Rounds up to a size that the kernel accepts: a power of two of at least a page.
pub fn round_size(bytes: u32) -> u32 {
    bytes.clamp(rustix::param::page_size() as u32, 1 << 30).next_power_of_two()
}

impl Ring {
    /// Maps a ring buffer map of `size` bytes.
    pub fn new(fd: OwnedFd, size: u32) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let consumer = MemoryMapping::shared(fd.as_fd(), 0, page, true)?;
        let producer = MemoryMapping::shared(fd.as_fd(), page, page + size as usize, false)?;
        Ok(Ring::at(Place::Kernel(KernelRing { fd, consumer, producer, page }), size))
    }

    /// The ring buffer of a session whose programs run in traced processes.
    pub fn in_memory(memory: Arc<SessionMemory>, map: MapPlace) -> Ring {
        let size = map.def.max_entries;
        Ring::at(Place::Process { memory, map }, size)
    }

    /// The ring buffer of a session that writes no records.
    pub fn empty() -> Ring {
        Ring::at(Place::Nowhere, 8)
    }

    fn at(place: Place, size: u32) -> Ring {
        let mut ring = Ring {
            place,
            size: size as usize,
            position: 0,
            released: 0,
            last: 0,
            copied: Vec::new(),
            incomplete: None,
            ended: None,
            unfinished: 0,
        };
        if let Place::Kernel(kernel) = &ring.place {
            ring.position = kernel.consumer_position().load(Ordering::Acquire);
        }
        (ring.released, ring.last) = (ring.position, ring.position);
        ring
    }

    /// Descriptor that is readable when there is a record at or after the shared position. `None`: writers wake nobody, and the
    /// reader must look from time to time.
    pub fn fd(&self) -> Option<RawFd> {
        match &self.place {
            Place::Kernel(kernel) => Some(kernel.fd.as_raw_fd()),
            Place::Process { .. } | Place::Nowhere => None,
        }
    }

    /// End of what was written so far. After damage nothing more is read.
    fn end(&self) -> usize {
        match &self.place {
            Place::Kernel(kernel) => kernel.producer_position().load(Ordering::Acquire),
            Place::Process { memory, .. } if memory.damage().is_some() => self.position,
            Place::Process { memory, map } => {
                let end = memory.word(map.state + RING_PRODUCED).load(Ordering::Acquire) as usize;
                // Writers have compared with what was released.
                let written = end.wrapping_sub(self.released);
                let fits = written <= self.size && written >= self.position - self.released;
                if fits && end.is_multiple_of(HEADER) { end } else { self.damaged(memory) }
            }
            Place::Nowhere => self.position,
        }
    }

    /// Notes that the buffer is damaged; returns the position, at which it ends from now on.
    fn damaged(&self, memory: &SessionMemory) -> usize {
        memory.untrusted().note(Damage::Ring);
        self.position
    }

    fn header(&self, position: usize) -> u32 {
        let at = position & (self.size - 1);
        match &self.place {
            Place::Kernel(kernel) => kernel.header(at),
            Place::Process { memory, map } => memory.word32(map.cells + at as u64).load(Ordering::Acquire),
            Place::Nowhere => 0,
        }
    }

    /// Start of the record after that at the position; `None` if its length is more than was written.
    fn after(&self, header: u32, end: usize) -> Option<usize> {
        let len = (header & !(BUSY_BIT | DISCARD_BIT)) as usize;
        let next = self.position + (HEADER + len).next_multiple_of(HEADER);
        let fits = next - self.position <= end.wrapping_sub(self.position);
        match &self.place {
            Place::Process { memory, .. } if !fits => {
                self.damaged(memory);
                None
            }
            _ => Some(next),
        }
    }

    /// Passes up to `limit` of the current records to `handle` in order, until it breaks.
    pub fn read(&mut self, limit: usize, mut handle: impl FnMut(&[u8]) -> ControlFlow<()>) -> ReadResult {
        let mut result = ReadResult::default();
        let end = self.end();
        while result.records < limit && self.position < end {
            let header = self.header(self.position);
            if !is_written(header) {
                if self.pass_unfinished(header, end) {
                    continue;
                }
                break;
            }
            let Some(next) = self.after(header, end) else { break };
            (self.last, self.position) = (self.position, next);
            if header & DISCARD_BIT != 0 {
                continue;
            }
            result.records += 1;
            let len = header as usize;
            if handle(self.record(self.last + HEADER, len)).is_break() {
                result.stopped = true;
                break;
            }
        }
        result
    }

    /// Passes over the next record if its process has ended before it was complete: no other record would be read any more.
    fn pass_unfinished(&mut self, header: u32, end: usize) -> bool {
        let Some(pid) = self.writer(self.position).filter(|_| header != 0) else { return false };
        if self.ended != Some(pid) {
            let (at, since) = self.incomplete.unwrap_or((usize::MAX, Instant::now()));
            if at != self.position {
                self.incomplete = Some((self.position, Instant::now()));
                return false;
            }
            if since.elapsed() < LOOK_AFTER || linux::proc::started(pid).is_some() {
                return false;
            }
            self.ended = Some(pid);
        }
        // The record may have been completed before the process ended.
        is_written(self.header(self.position)) || self.pass(header, end)
    }

    /// Passes over a record that is not complete; false if its length cannot be.
    fn pass(&mut self, header: u32, end: usize) -> bool {
        let Some(next) = self.after(header, end) else { return false };
        self.position = next;
        self.unfinished += 1;
        true
    }

    /// Passes over the next record at the end of a session, whoever writes it; returns whether others may follow.
    pub fn give_up_next(&mut self) -> bool {
        let end = self.end();
        let header = self.header(self.position);
        if self.position >= end || is_written(header) || !matches!(self.place, Place::Process { .. }) {
            return false;
        }
        // A writer that has not even stored the size hides what follows.
        self.pass(header, end) && header != 0
    }

    /// Process that writes a record, if it has told.
    fn writer(&self, position: usize) -> Option<u32> {
        let Place::Process { .. } = &self.place else { return None };
        // A header is aligned, and does not wrap.
        Some(self.header(position + size_of::<u32>())).filter(|pid| *pid != 0)
    }

    /// Number of records that traced processes had not finished when they ended.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// The bytes of a record, which are copied if they wrap around, or if a process could change them.
    fn record(&mut self, start: usize, len: usize) -> &[u8] {
        let at = start & (self.size - 1);
        let first = len.min(self.size - at);
        match &self.place {
            Place::Kernel(kernel) => {
                let (head, tail) = kernel.record(at, first, len);
                if tail.is_empty() {
                    return head;
                }
                self.copied.clear();
                self.copied.extend_from_slice(head);
                self.copied.extend_from_slice(tail);
            }
            Place::Process { memory, map } => {
                self.copied.resize(len, 0);
                let (head, tail) = self.copied.split_at_mut(first);
                memory.untrusted().read(map.cells + at as u64, head);
                memory.untrusted().read(map.cells, tail);
            }
            Place::Nowhere => self.copied.clear(),
        }
        &self.copied
    }

    /// Releases the records that were read. `busy` keeps the last one, so that producers do not wake the reader.
    pub fn release(&mut self, busy: bool) {
        match &self.place {
            Place::Kernel(kernel) => {
                let position = if busy { self.last } else { self.position };
                kernel.consumer_position().store(position, Ordering::Release);
                self.released = position;
            }
            // Writers in a process wake nobody.
            Place::Process { memory, map } => {
                let (start, len) = (self.released & (self.size - 1), self.position - self.released);
                let first = len.min(self.size - start);
                let cell = |at: usize| map.cells + at as u64;
                memory.untrusted().clear(cell(start)..cell(start + first));
                memory.untrusted().clear(cell(0)..cell(len - first));
                memory.word(map.state + RING_CONSUMED).store(self.position as u64, Ordering::Release);
                self.released = self.position;
            }
            Place::Nowhere => {}
        }
    }

    /// Whether a program is writing a record; others may follow it.
    pub fn is_being_written(&self) -> bool {
        self.position < self.end()
    }

    /// Whether there is a record after `release(false)`. A record that was committed before the release wakes no reader.
    pub fn has_more(&self) -> bool {
        fence(Ordering::SeqCst);
        self.position < self.end() && is_written(self.header(self.position))
    }
}

impl KernelRing {
    fn consumer_position(&self) -> &AtomicUsize {
        // SAFETY: a word of a mapping that lives as long as `self`; only this process writes it.
        unsafe { &*self.consumer.bytes().cast::<AtomicUsize>() }
    }

    fn producer_position(&self) -> &AtomicUsize {
        // SAFETY: a word of a mapping that lives as long as `self`; the kernel writes it.
        unsafe { &*self.producer.bytes().cast::<AtomicUsize>() }
    }

    fn data(&self) -> *const u8 {
        // SAFETY: the data follow the page in the mapping.
        unsafe { self.producer.bytes().add(self.page) }
    }

    fn header(&self, at: usize) -> u32 {
        // SAFETY: positions and the size are multiples of 8, so the word is within the data.
        unsafe { (*self.data().add(at).cast::<AtomicU32>()).load(Ordering::Acquire) }
    }

    /// The parts of a record at an offset of the data: `first` bytes there, the rest at the begin.
    fn record(&self, at: usize, first: usize, len: usize) -> (&[u8], &[u8]) {
        // SAFETY: both parts are within the data. The kernel does not write to a committed record before the consumer's position has
        // passed it, which happens in `release`, after the last use of these slices. No other process has the map.
        unsafe {
            (
                std::slice::from_raw_parts(self.data().add(at), first),
                std::slice::from_raw_parts(self.data(), len - first),
            )
        }
    }
}

/// The ring buffers of a session: one for each place where programs run. The order of records is that of each buffer.
#[derive(Default)]
pub struct Rings(Vec<Ring>);

impl Rings {
    /// Adds the buffer of a further place.
    pub fn add(&mut self, ring: Ring) {
        self.0.push(ring);
    }

    /// As [`Ring::read`], for each.
    pub fn read(&mut self, limit: usize, mut handle: impl FnMut(&[u8]) -> ControlFlow<()>) -> ReadResult {
        let mut all = ReadResult::default();
        for ring in &mut self.0 {
            let one = ring.read(limit - all.records, &mut handle);
            all = ReadResult { records: all.records + one.records, stopped: one.stopped };
            if all.stopped {
                break;
            }
        }
        all
    }

    /// Descriptors as of [`Ring::fd`].
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().filter_map(Ring::fd)
    }

    /// Whether all have descriptors.
    pub fn wake(&self) -> bool {
        self.0.iter().all(|ring| ring.fd().is_some())
    }

    /// As [`Ring::release`].
    pub fn release(&mut self, busy: bool) {
        self.0.iter_mut().for_each(|ring| ring.release(busy));
    }

    /// As [`Ring::has_more`].
    pub fn have_more(&self) -> bool {
        self.0.iter().any(Ring::has_more)
    }

    /// As [`Ring::is_being_written`].
    pub fn are_being_written(&self) -> bool {
        self.0.iter().any(Ring::is_being_written)
    }

    /// As [`Ring::give_up_next`].
    pub fn give_up_next(&mut self) -> bool {
        self.0.iter_mut().fold(false, |more, ring| ring.give_up_next() | more)
    }

    /// As [`Ring::unfinished`].
    pub fn unfinished(&self) -> u64 {
        self.0.iter().map(Ring::unfinished).sum()
    }
}

/// Whether the header is that of a record that is complete. A header of zero was not written yet.
fn is_written(header: u32) -> bool {
    header != 0 && header & BUSY_BIT == 0
}
