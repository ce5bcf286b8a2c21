//! Buffers for CUPTI's records. CUPTI asks for one on a thread of the program, and returns it from any thread: both callbacks only set
//! bits. The agent's thread reads the returned ones, clears them and makes them free.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::sys::{self, CLOCK_MONOTONIC, ReservedMemory};

/// Size of a buffer in bytes: some 280 kernels. CUPTI returns a buffer when all of them have ended, so a large one keeps the records of
/// launches that are far ahead of their work for seconds: 2.8 s in 1 MiB with kernels of 2.7 ms on an H200, 0.5 s in 32 KiB, which cost an
/// operation of PyTorch 0.25 us more.
const SIZE: usize = 64 << 10;
/// Number of buffers. Since CUDA 13 each thread that launches has one of its own.
const COUNT: usize = 8 << 10;
const WORDS: usize = COUNT / 64;

/// Memory of all buffers.
static MEMORY: ReservedMemory<u8> = ReservedMemory::of(SIZE * COUNT);
/// A bit per buffer that nobody has.
static FREE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// A bit per buffer that CUPTI has returned.
static RETURNED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// When CUPTI asked for the buffer, in nanoseconds of CLOCK_MONOTONIC.
static ASKED: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
/// The used bytes, the context and the stream of a returned buffer.
static USED: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];
static CONTEXT: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];
static STREAM: [AtomicU32; COUNT] = [const { AtomicU32::new(0) }; COUNT];
/// Requests without an answer: CUPTI has dropped records, which it counts.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Reserves the memory. False if there is none.
pub(crate) fn create() -> bool {
    let is_new = MEMORY.first().is_null();
    if is_new && MEMORY.reserve() {
        FREE.iter().for_each(|word| word.store(u64::MAX, Release));
    }
    !MEMORY.first().is_null()
}

/// Gives the memory back, if CUPTI has no buffer; it gets none meanwhile.
pub(crate) fn release_if_free() {
    let take = |word: &AtomicU64| word.compare_exchange(u64::MAX, 0, AcqRel, Acquire).is_ok();
    let taken = FREE.iter().take_while(|word| take(word)).count();
    if taken == WORDS {
        MEMORY.release();
    }
    FREE[..taken].iter().for_each(|word| word.store(u64::MAX, Release));
}

/// Gives the memory back, when CUPTI has no buffer any more.
pub(crate) fn release() {
    RETURNED.iter().for_each(|word| word.store(0, Release));
    FREE.iter().for_each(|word| word.store(u64::MAX, Release));
    MEMORY.release();
}

/// CUPTI asks for a buffer.
pub(crate) extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let taken = take(&FREE);
    let at = match taken {
        // SAFETY: within the memory.
        Some(number) => unsafe {
            ASKED[number].store(sys::now(CLOCK_MONOTONIC), Release);
            MEMORY.first().add(number * SIZE)
        },
        None => {
            REFUSED.fetch_add(1, Relaxed);
            null_mut()
        }
    };
    // SAFETY: CUPTI's variables.
    unsafe {
        *buffer = at;
        *size = if at.is_null() { 0 } else { SIZE };
        *records = 0;
    }
}

/// CUPTI returns a buffer.
pub(crate) extern "C" fn completed(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    _: usize,
    used: usize,
) {
    let offset = (buffer as usize).wrapping_sub(MEMORY.first() as usize);
    let number = match offset / SIZE {
        _ if buffer.is_null() => return,
        number if number < COUNT => number,
        _ => match take_in(buffer, used) {
            Some(number) => number,
            None => return,
        },
    };
    CONTEXT[number].store(context, Relaxed);
    STREAM[number].store(stream, Relaxed);
    USED[number].store(used, Relaxed);
    put(&RETURNED, number);
}

/// Copies a buffer of the collection before, which another copy of this library may have had, into one of ours.
fn take_in(buffer: *const u8, used: usize) -> Option<usize> {
    if used == 0 {
        return None;
    }
    let number = if used <= SIZE { take(&FREE) } else { None };
    let Some(number) = number else {
        REFUSED.fetch_add(1, Relaxed);
        return None;
    };
    ASKED[number].store(sys::now(CLOCK_MONOTONIC), Release);
    // SAFETY: CUPTI's bytes, and a buffer that nobody else has.
    unsafe { core::ptr::copy_nonoverlapping(buffer, MEMORY.first().add(number * SIZE), used) };
    Some(number)
}

/// When CUPTI asked for the first of the buffers that it has, or that were not read yet; now if there is none. In nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn first_asked() -> u64 {
    let now = sys::now(CLOCK_MONOTONIC);
    asked(|word| !FREE[word].load(Acquire)).fold(now, u64::min)
}

/// The buffers of a word that CUPTI has, as bits.
fn held(word: usize) -> u64 {
    !(FREE[word].load(Acquire) | RETURNED[word].load(Acquire))
}

/// Whether CUPTI has no buffer.
pub(crate) fn are_returned() -> bool {
    (0..WORDS).all(|word| held(word) == 0)
}

/// Number of buffers that CUPTI asked for until a time, in nanoseconds of CLOCK_MONOTONIC, and has not returned.
pub(crate) fn asked_until(time: u64) -> u64 {
    asked(held).filter(|asked| *asked <= time).count() as u64
}

/// When CUPTI asked for the buffers whose bits a function gives, by words.
fn asked(bits: impl Fn(usize) -> u64) -> impl Iterator<Item = u64> {
    (0..WORDS).flat_map(move |word| {
        let mut left = bits(word);
        core::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(ASKED[word * 64 + bit].load(Acquire))
        })
    })
}

/// A buffer that CUPTI has returned. It is free again when this is dropped.
pub(crate) struct CompletedBuffer {
    number: usize,
    pub bytes: *mut u8,
    pub used: usize,
    pub context: *mut c_void,
    pub stream: u32,
}

/// The next one, in no particular order.
pub(crate) fn returned() -> Option<CompletedBuffer> {
    let number = take(&RETURNED)?;
    Some(CompletedBuffer {
        number,
        // SAFETY: within the memory.
        bytes: unsafe { MEMORY.first().add(number * SIZE) },
        used: USED[number].load(Relaxed).min(SIZE),
        context: CONTEXT[number].load(Relaxed),
        stream: STREAM[number].load(Relaxed),
    })
}

impl Drop for CompletedBuffer {
    fn drop(&mut self) {
        // SAFETY: this buffer is nobody else's.
        unsafe { self.bytes.write_bytes(0, self.used) };
        put(&FREE, self.number);
    }
}

/// Takes a bit.
fn take(bits: &[AtomicU64; WORDS]) -> Option<usize> {
    bits.iter().enumerate().find_map(|(at, word)| {
        let mut seen = word.load(Acquire);
        while seen != 0 {
            match word.compare_exchange_weak(seen, seen & (seen - 1), AcqRel, Acquire) {
                Ok(_) => return Some(at * 64 + seen.trailing_zeros() as usize),
                Err(now) => seen = now,
            }
        }
        None
    })
}

fn put(bits: &[AtomicU64; WORDS], number: usize) {
    bits[number / 64].fetch_or(1 << (number % 64), Release);
}
