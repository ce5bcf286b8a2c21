//! Names of kernels, kept for as long as the process runs: those of the driver end with their module, which may be before the record is read.

use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::ptr::null;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::sys::Reserved;

/// Size of a name with the zero byte that ends it; longer ones are cut.
const SIZE: usize = 2040;
/// Different names that are kept.
const NAMES: usize = 1 << 12;
/// Places at which a name is looked for.
const TRIES: usize = 64;

/// State of a place without a name.
const FREE: u64 = 0;
/// State of a place whose name is being written.
const WRITTEN: u64 = 1;

/// A name.
struct Name {
    /// [`FREE`], [`WRITTEN`] or the hash of the name.
    hash: AtomicU64,
    bytes: UnsafeCell<[u8; SIZE]>,
}

static KEPT: Reserved<Name> = Reserved::of(NAMES);

/// Reserves the memory, which takes room as names come. False if there is none.
pub fn create() -> bool {
    KEPT.reserve()
}

/// The kept name for a text that ends with zero; null for null, and if there are too many.
pub fn keep(text: *const c_char) -> *const u8 {
    let first = KEPT.first();
    if text.is_null() || first.is_null() {
        return null();
    }
    let (hash, length) = hash(text);
    for at in (0..TRIES).map(|more| (hash as usize).wrapping_add(more) % NAMES) {
        // SAFETY: within the memory, whose zeros are valid.
        let name = unsafe { &*first.add(at) };
        let is_free = name.hash.compare_exchange(FREE, WRITTEN, AcqRel, Acquire);
        if is_free.is_ok() {
            // SAFETY: nobody else has it before the hash is there; the byte behind the name is zero.
            unsafe { core::ptr::copy_nonoverlapping(text.cast(), name.bytes.get().cast::<u8>(), length) };
            name.hash.store(hash, Release);
        }
        if is_free.is_ok() || is_free == Err(hash) {
            return name.bytes.get().cast();
        }
    }
    null()
}

/// FNV-1a, but no other state; and the length of what is kept.
fn hash(text: *const c_char) -> (u64, usize) {
    let (mut hash, mut length) = (0xcbf2_9ce4_8422_2325u64, 0);
    while length < SIZE - 1 {
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
    use std::ffi::CString;

    #[test]
    fn a_name_is_kept_once_and_outlives_the_text() {
        assert!(create());
        let text = CString::new("_Z4fillPffi").unwrap();
        let kept = keep(text.as_ptr());
        assert_eq!(keep(text.as_ptr()), kept);
        drop(text);
        let name = |kept: *const u8| unsafe { CStr::from_ptr(kept.cast()) }.to_str().unwrap();
        assert_eq!(name(kept), "_Z4fillPffi");
        let long = CString::new("x".repeat(5000)).unwrap();
        assert_eq!(name(keep(long.as_ptr())).len(), SIZE - 1);
        assert!(keep(null()).is_null());
    }
}
