//! Texts that are kept for as long as the process runs: names of ranges, since the program may free its own.

use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::sys::ReservedMemory;

/// Places at which a text is looked for.
const TRIES: usize = 64;

/// State of a place without a text.
const FREE: u64 = 0;
/// State of a place whose text is being written.
const WRITTEN: u64 = 1;

/// A text. It is never removed: records and the program keep its address.
struct Text<const SIZE: usize> {
    /// [`FREE`], [`WRITTEN`] or the hash of the text.
    hash: AtomicU64,
    bytes: UnsafeCell<[u8; SIZE]>,
}

/// Different texts. Each has `SIZE` bytes with the zero that ends it; longer ones are cut.
pub(crate) struct TextTable<const SIZE: usize>(ReservedMemory<Text<SIZE>>, usize);

impl<const SIZE: usize> TextTable<SIZE> {
    /// Room for so many texts; not reserved yet.
    pub(crate) const fn of(count: usize) -> TextTable<SIZE> {
        TextTable(ReservedMemory::of(count), count)
    }

    /// Reserves the memory, which takes room as texts come. False if there is none.
    pub(crate) fn reserve(&self) -> bool {
        self.0.reserve()
    }

    /// The kept text for one that ends with zero; `None` for null, and if there is no room.
    pub(crate) fn keep(&self, text: *const c_char) -> Option<*const u8> {
        let first = self.0.first();
        if text.is_null() || first.is_null() {
            return None;
        }
        let (hash, length) = hash(text, SIZE - 1);
        for at in (0..TRIES).map(|more| (hash as usize).wrapping_add(more) % self.1) {
            // SAFETY: within the memory, whose zeros are valid.
            let kept = unsafe { &*first.add(at) };
            let found = kept.hash.compare_exchange(FREE, WRITTEN, AcqRel, Acquire);
            if found.is_ok() {
                let bytes = kept.bytes.get().cast::<u8>();
                // SAFETY: nobody else has it before the hash is there; the byte behind the text is zero.
                unsafe { core::ptr::copy_nonoverlapping(text.cast(), bytes, length) };
                kept.hash.store(hash, Release);
            }
            if found.is_ok() || found == Err(hash) {
                return Some(kept.bytes.get().cast());
            }
        }
        None
    }
}

/// FNV-1a of at most so many bytes, but no other state; and their number.
fn hash(text: *const c_char, most: usize) -> (u64, usize) {
    let (mut hash, mut length) = (0xcbf2_9ce4_8422_2325u64, 0);
    while length < most {
        // SAFETY: the zero was not reached yet.
        let byte = unsafe { text.add(length).read() } as u8;
        if byte == 0 {
            break;
        }
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        length += 1;
    }
    (hash.max(WRITTEN + 1), length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;
    use core::ptr::null;
    use std::ffi::CString;

    #[test]
    fn a_name_is_kept_once_and_outlives_the_text() {
        let names = TextTable::<64>::of(1 << 10);
        assert!(names.reserve());
        let keep = |text: &CStr| names.keep(text.as_ptr()).unwrap();
        let text = CString::new("forward").unwrap();
        let kept = keep(&text);
        assert_eq!(keep(&text), kept);
        drop(text);
        // SAFETY: texts are kept with their NUL, in memory of `names`, which outlives the name.
        let name = |kept: *const u8| unsafe { CStr::from_ptr(kept.cast()) }.to_str().unwrap();
        assert_eq!(name(kept), "forward");
        let long = CString::new("x".repeat(5000)).unwrap();
        assert_eq!(name(keep(&long)).len(), 63);
        assert_eq!(names.keep(null()), None);
    }
}
