//! The consuming side of a BPF ring buffer.
//!
//! Our own and not libbpf's for two reasons. It can hold the last record back ("busy"): the kernel wakes the reader only
//! for a record that lands where the consumer stands, so under load producers pay no wake-up at all, and the reader looks
//! again after a pause. And it maps the data once, not twice in a row: mapped pages count as resident, and a record that
//! wraps around is rare enough to copy.
//!
//! Layout: kernel/bpf/ringbuf.c. Not here: what a record means (`records`), when to look (`event_loop`).

use crate::kernel::sys::MemoryMapping;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// Bytes if nobody asks for another size: a third of a second of half a million printfs a second.
pub const DEFAULT_BYTES: u32 = 8 << 20;

const BUSY_BIT: u32 = 1 << 31;
const DISCARD_BIT: u32 = 1 << 30;
const HEADER: usize = 8;

/// What a look into the ring found.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadResult {
    /// Records handed out.
    pub records: usize,
    /// The handler asked to stop.
    pub stopped: bool,
}

/// A ring buffer map, mapped for reading.
pub struct Ring {
    fd: OwnedFd,
    consumer: MemoryMapping,
    /// The producer's page, then the data.
    producer: MemoryMapping,
    size: usize,
    /// Bytes of the producer's page.
    page: usize,
    /// Where the next record starts; the shared position may lie behind it.
    position: usize,
    /// Start of the last record read.
    last: usize,
    wrapped: Vec<u8>,
}

/// The size that the kernel takes: a power of two of at least a page.
pub fn round_size(bytes: u32) -> u32 {
    bytes.clamp(rustix::param::page_size() as u32, 1 << 30).next_power_of_two()
}

impl Ring {
    /// Maps a ring buffer map of `size` bytes.
    pub fn new(fd: OwnedFd, size: u32) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let consumer = MemoryMapping::shared(fd.as_fd(), 0, page, true)?;
        let producer = MemoryMapping::shared(fd.as_fd(), page, page + size as usize, false)?;
        let mut ring = Ring {
            fd,
            consumer,
            producer,
            size: size as usize,
            page,
            position: 0,
            last: 0,
            wrapped: Vec::new(),
        };
        ring.position = ring.consumer_position().load(Ordering::Acquire);
        ring.last = ring.position;
        Ok(ring)
    }

    /// For `poll(2)`: readable when there is something beyond the shared position.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn consumer_position(&self) -> &AtomicUsize {
        // SAFETY: the first word of a page that lives as long as `self`; only this process writes it.
        unsafe { &*self.consumer.bytes().cast::<AtomicUsize>() }
    }

    fn producer_position(&self) -> &AtomicUsize {
        // SAFETY: the first word of a page that lives as long as `self`; the kernel writes it.
        unsafe { &*self.producer.bytes().cast::<AtomicUsize>() }
    }

    fn data(&self) -> *const u8 {
        // SAFETY: the mapping has a page and `size` bytes.
        unsafe { self.producer.bytes().add(self.page) }
    }

    fn header(&self, position: usize) -> u32 {
        let at = position & (self.size - 1);
        // SAFETY: positions are multiples of 8 and so is the size: the word lies within the data.
        unsafe { (*self.data().add(at).cast::<AtomicU32>()).load(Ordering::Acquire) }
    }

    /// Hands up to `limit` of the records that are there now out, in order, until `handle` breaks.
    pub fn read(&mut self, limit: usize, mut handle: impl FnMut(&[u8]) -> ControlFlow<()>) -> ReadResult {
        let mut drained = ReadResult::default();
        let end = self.producer_position().load(Ordering::Acquire);
        while drained.records < limit && self.position < end {
            let header = self.header(self.position);
            if header & BUSY_BIT != 0 {
                break;
            }
            let len = (header & !DISCARD_BIT) as usize;
            let start = self.position + HEADER;
            self.last = self.position;
            self.position += (HEADER + len).next_multiple_of(HEADER);
            if header & DISCARD_BIT != 0 {
                continue;
            }
            drained.records += 1;
            if handle(Self::record(self.data(), self.size, start, len, &mut self.wrapped)).is_break() {
                drained.stopped = true;
                break;
            }
        }
        drained
    }

    /// The bytes of a record, copied to `spare` if they wrap around.
    fn record(data: *const u8, size: usize, start: usize, len: usize, spare: &mut Vec<u8>) -> &[u8] {
        let at = start & (size - 1);
        let first = len.min(size - at);
        // SAFETY: both parts lie within the data; the kernel does not write to a committed record before the consumer's
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

    /// Gives the room of what was read back. `busy` keeps the last record, and with it the producers from waking us.
    pub fn release(&mut self, busy: bool) {
        let position = if busy { self.last } else { self.position };
        self.consumer_position().store(position, Ordering::Release);
    }

    /// A program is in the middle of a record, and others may have queued behind it.
    pub fn is_being_written(&self) -> bool {
        self.position < self.producer_position().load(Ordering::Acquire)
    }

    /// After `release(false)`: there is more. Without that look a record committed before the release would wake nobody.
    pub fn has_more(&self) -> bool {
        fence(Ordering::SeqCst);
        self.position < self.producer_position().load(Ordering::Acquire)
            && self.header(self.position) & BUSY_BIT == 0
    }
}
