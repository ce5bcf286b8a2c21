//! Consumer of a BPF ring buffer.
//!
//! It differs from libbpf's in two ways. It can hold the last record back ("busy"): the kernel wakes the reader only for a
//! record at the consumer's position, so under load producers need no wake-up, and the reader polls after a pause. It maps the
//! data once, not twice in a row: mapped pages count as resident, and the few records that wrap around are copied.
//!
//! Layout: kernel/bpf/ringbuf.c. Not here: what a record means (`records`), when to look (`event_loop`).

use crate::kernel::sys::{self, MemoryMapping};
use crate::user_space::SessionMemory;
use native::layout::{MapPlace, RING_CONSUMED};
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
    /// A BPF map, mapped for reading.
    Kernel {
        fd: OwnedFd,
        consumer: MemoryMapping,
        /// The producer's page, followed by the data.
        producer: MemoryMapping,
        /// Size in bytes of the producer's page.
        page: usize,
    },
    /// The memory of a session. Its reader sets what it has read to zero, because a writer takes room before it writes the header.
    Process { memory: Arc<SessionMemory>, map: MapPlace },
    /// Nowhere: nothing is ever written.
    Nowhere { position: AtomicUsize },
}

/// A ring buffer.
pub struct Ring {
    place: Place,
    size: usize,
    /// Start of the next record; the shared position may be smaller.
    position: usize,
    /// Start of the last record read.
    last: usize,
    wrapped: Vec<u8>,
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
        Ok(Ring::at(Place::Kernel { fd, consumer, producer, page }, size))
    }

    /// The ring buffer of a session whose programs run in traced processes.
    pub fn in_memory(memory: Arc<SessionMemory>, map: MapPlace) -> Ring {
        let size = map.def.max_entries;
        Ring::at(Place::Process { memory, map }, size)
    }

    /// The ring buffer of a session that writes no records.
    pub fn empty() -> Ring {
        Ring::at(Place::Nowhere { position: AtomicUsize::new(0) }, 8)
    }

    fn at(place: Place, size: u32) -> Ring {
        let mut ring = Ring {
            place,
            size: size as usize,
            position: 0,
            last: 0,
            wrapped: Vec::new(),
            incomplete: None,
            ended: None,
            unfinished: 0,
        };
        ring.position = ring.consumer_position().load(Ordering::Acquire);
        ring.last = ring.position;
        ring
    }

    /// Descriptor that is readable when there is a record at or after the shared position. `None`: writers wake nobody, and the
    /// reader must look from time to time.
    pub fn fd(&self) -> Option<RawFd> {
        match &self.place {
            Place::Kernel { fd, .. } => Some(fd.as_raw_fd()),
            Place::Process { .. } | Place::Nowhere { .. } => None,
        }
    }

    fn consumer_position(&self) -> &AtomicUsize {
        let word = match &self.place {
            Place::Kernel { consumer, .. } => consumer.bytes(),
            Place::Process { memory, map } => memory.at(map.description + RING_CONSUMED),
            Place::Nowhere { position } => return position,
        };
        // SAFETY: a word of memory that lives as long as `self`; only this process writes it.
        unsafe { &*word.cast::<AtomicUsize>() }
    }

    fn producer_position(&self) -> &AtomicUsize {
        let word = match &self.place {
            Place::Kernel { producer, .. } => producer.bytes(),
            Place::Process { memory, map } => memory.at(map.description),
            Place::Nowhere { position } => return position,
        };
        // SAFETY: a word of memory that lives as long as `self`; the writers change it.
        unsafe { &*word.cast::<AtomicUsize>() }
    }

    fn data(&self) -> *const u8 {
        match &self.place {
            // SAFETY: the mapping has a page and `size` bytes.
            Place::Kernel { producer, page, .. } => unsafe { producer.bytes().add(*page) },
            Place::Process { memory, map } => memory.at(map.cells),
            Place::Nowhere { .. } => std::ptr::null(),
        }
    }

    fn header(&self, position: usize) -> u32 {
        let at = position & (self.size - 1);
        // SAFETY: positions and the size are multiples of 8, so the word is within the data.
        unsafe { (*self.data().add(at).cast::<AtomicU32>()).load(Ordering::Acquire) }
    }

    /// Passes up to `limit` of the current records to `handle` in order, until it breaks.
    pub fn read(&mut self, limit: usize, mut handle: impl FnMut(&[u8]) -> ControlFlow<()>) -> ReadResult {
        let mut result = ReadResult::default();
        let end = self.producer_position().load(Ordering::Acquire);
        while result.records < limit && self.position < end {
            let header = self.header(self.position);
            if !is_written(header) {
                if self.pass_unfinished(header) {
                    continue;
                }
                break;
            }
            let len = (header & !DISCARD_BIT) as usize;
            let start = self.position + HEADER;
            self.last = self.position;
            self.position += (HEADER + len).next_multiple_of(HEADER);
            if header & DISCARD_BIT != 0 {
                continue;
            }
            result.records += 1;
            if handle(Self::record(self.data(), self.size, start, len, &mut self.wrapped)).is_break() {
                result.stopped = true;
                break;
            }
        }
        result
    }

    /// Passes over the next record if its process has ended before it was complete: no other record would be read any more.
    fn pass_unfinished(&mut self, header: u32) -> bool {
        let Some(pid) = self.writer(self.position).filter(|_| header != 0) else { return false };
        if self.ended != Some(pid) {
            let (at, since) = self.incomplete.unwrap_or((usize::MAX, Instant::now()));
            if at != self.position {
                self.incomplete = Some((self.position, Instant::now()));
                return false;
            }
            if since.elapsed() < LOOK_AFTER || !sys::has_ended(pid) {
                return false;
            }
            self.ended = Some(pid);
        }
        // It may have been completed before the process ended.
        if is_written(self.header(self.position)) {
            return true;
        }
        self.pass(header);
        true
    }

    fn pass(&mut self, header: u32) {
        let len = (header & !(BUSY_BIT | DISCARD_BIT)) as usize;
        self.position += (HEADER + len).next_multiple_of(HEADER);
        self.unfinished += 1;
    }

    /// Passes over the next record at the end of a session, whoever writes it; returns whether others may follow.
    pub fn give_up_next(&mut self) -> bool {
        let is_next = self.position < self.producer_position().load(Ordering::Acquire);
        let header = self.header(self.position);
        if !is_next || is_written(header) || !matches!(self.place, Place::Process { .. }) {
            return false;
        }
        self.pass(header);
        // A writer that has not even stored the size hides what follows.
        header != 0
    }

    /// Process that writes a record, if it has told.
    fn writer(&self, position: usize) -> Option<u32> {
        let Place::Process { .. } = &self.place else { return None };
        Some(self.header(position + size_of::<u32>())).filter(|pid| *pid != 0)
    }

    /// Number of records that traced processes had not finished when they ended.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// The bytes of a record, which are copied to `spare` if they wrap around.
    fn record(data: *const u8, size: usize, start: usize, len: usize, spare: &mut Vec<u8>) -> &[u8] {
        let at = start & (size - 1);
        let first = len.min(size - at);
        // SAFETY: both parts are within the data. The kernel does not write to a committed record before the consumer's
        // position has passed it, which happens in `release`, after the last use of this slice.
        let (head, tail) = unsafe {
            (std::slice::from_raw_parts(data.add(at), first), std::slice::from_raw_parts(data, len - first))
        };
        if tail.is_empty() {
            return head;
        }
        spare.clear();
        spare.extend_from_slice(head);
        spare.extend_from_slice(tail);
        spare
    }

    /// Releases the records that were read. `busy` keeps the last one, so that producers do not wake the reader.
    pub fn release(&mut self, busy: bool) {
        // Writers in a process wake nobody.
        let position = if busy && self.fd().is_some() { self.last } else { self.position };
        if let Place::Process { memory, map } = &self.place {
            let from = self.consumer_position().load(Ordering::Relaxed);
            empty(memory.at(map.cells), self.size, from..position);
        }
        self.consumer_position().store(position, Ordering::Release);
    }

    /// Whether a program is writing a record; others may follow it.
    pub fn is_being_written(&self) -> bool {
        self.position < self.producer_position().load(Ordering::Acquire)
    }

    /// Whether there is a record after `release(false)`. A record that was committed before the release wakes no reader.
    pub fn has_more(&self) -> bool {
        fence(Ordering::SeqCst);
        self.position < self.producer_position().load(Ordering::Acquire)
            && is_written(self.header(self.position))
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

/// Sets the data between two positions to zero.
fn empty(data: *mut u8, size: usize, positions: std::ops::Range<usize>) {
    let (start, len) = (positions.start & (size - 1), positions.len());
    let first = len.min(size - start);
    // SAFETY: both parts are within the data, and no writer uses them before the reader's position has passed them.
    unsafe {
        std::ptr::write_bytes(data.add(start), 0, first);
        std::ptr::write_bytes(data, 0, len - first);
    }
}
