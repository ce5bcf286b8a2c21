//! Memory that each traced process of a session can write, at any time and whatever it likes. Nothing else in this crate touches it.
//!
//! ```text
//!                nothing: an access there ends the tracer
//! base           a page of the tracer's own, which no process has
//! base + 4096    data, which all processes of the session share with the tracer
//! base + data    code of the tracer's own
//!                nothing
//! ```
//!
//! The rules that hold against a process which writes there on purpose, also between two reads:
//!
//! - No reference to the bytes leaves this module. Words are atomics, and bytes are copied out word by word. What was copied is checked
//!   afterwards, not what is there.
//! - Offsets and lengths are the caller's own, from the layout. If they come from the memory, the caller has compared them with what the
//!   layout says. Here they are compared once more: an offset beyond the data is a fault of the tracer, which panics before it reads.
//! - The size of the file is sealed, so that no access can fail.
//!
//! Not here: what the words mean (`map.rs`, `read/ring.rs`, `clock.rs`), and the code that runs in the tracer (`memory.rs`).

use crate::kernel::sys;
use native::layout::{self, PAGE};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: u64 = 8;
/// Size of what lies before and after, in bytes: a wrong offset ends there.
const GUARD: u64 = 64 << 20;

/// The memory of a session in the tracer; see the module documentation.
#[derive(Debug)]
pub struct UntrustedMemory {
    base: *mut u8,
    file: OwnedFd,
    /// Size of the tracer's page and the data in bytes.
    data: u64,
    /// Size of the code in bytes.
    code: u64,
    damage: OnceLock<Damage>,
}

// SAFETY: the mapping belongs to the process, not to a thread. All accesses are atomic.
unsafe impl Send for UntrustedMemory {}
// SAFETY: as above.
unsafe impl Sync for UntrustedMemory {}

/// Damage to the shared memory: values of a process that no program of the session writes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A ring buffer has positions or records that cannot be.
    Ring,
    /// Entries of a map form no chains.
    Map,
    /// A record is of no kind that the script has.
    Record,
    /// The words that the tracer alone writes have changed: the clock, or the switch of all probes.
    Words,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Damage::Ring => "its ring buffer has a record that does not fit",
            Damage::Map => "the entries of a map are no chains",
            Damage::Record => "its ring buffer has a record of an unknown kind",
            Damage::Words => "words have changed that only cudatrace writes",
        })
    }
}

impl UntrustedMemory {
    /// Creates the data in a new file, whose size is sealed. All of it is zero.
    ///
    /// # Errors
    /// The errors of [`sys::shared_memory`] and of mmap(2).
    pub fn new(data: u64, code: u64) -> io::Result<UntrustedMemory> {
        let file = sys::shared_memory(c"cudatrace", data)?;
        let base = map(&file, data, code)?;
        Ok(UntrustedMemory { base, file, data, code, damage: OnceLock::new() })
    }

    /// The file of the data.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Size of the tracer's page and the data in bytes.
    pub fn data_size(&self) -> u64 {
        self.data
    }

    /// Address of the byte at an offset. It must not be read by anybody who does not expect it to change.
    pub fn address(&self, offset: u64) -> *mut u8 {
        assert!(offset <= self.data + self.code, "within the region");
        // SAFETY: within the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    /// A word. One load is one value; a second one may be another.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD) && offset <= self.data - WORD, "a word of the data");
        // SAFETY: aligned and within the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.address(offset).cast()) }
    }

    /// Half a word.
    pub fn word32(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset <= self.data - 4, "half a word of the data");
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.address(offset).cast()) }
    }

    /// Copies bytes out. The offset is a multiple of 8.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, bytes) in (offset..).step_by(WORD as usize).zip(bytes.chunks_mut(WORD as usize)) {
            let word = self.word(at).load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }

    /// Writes whole words, at a multiple of 8.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        assert!(rest.is_empty(), "whole words");
        for (at, word) in (offset..).step_by(WORD as usize).zip(words) {
            self.word(at).store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Sets whole words to zero.
    pub fn clear(&self, range: Range<u64>) {
        range.step_by(WORD as usize).for_each(|at| self.word(at).store(0, Ordering::Relaxed));
    }

    /// Notes that a check has failed. The first one counts.
    pub fn note(&self, damage: Damage) {
        _ = self.damage.set(damage);
    }

    /// The first check that has failed: in this module's users, or in a helper that ran in the tracer.
    pub fn damage(&self) -> Option<&Damage> {
        if self.word32(layout::DAMAGED).load(Ordering::Relaxed) != 0 {
            self.note(Damage::Map);
        }
        self.damage.get()
    }
}

impl Drop for UntrustedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing uses it any more.
        unsafe {
            libc::munmap(self.base.sub(GUARD as usize).cast(), (self.data + self.code + 2 * GUARD) as usize)
        };
    }
}

/// Maps nothing first, then private memory over the middle, and the shared data over a part of that.
fn map(file: &OwnedFd, data: u64, code: u64) -> io::Result<*mut u8> {
    const NEW: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let place = |at: *mut c_void, size: u64, access, flags, fd, offset: u64| {
        // SAFETY: a new mapping, or a part of the one that was just made.
        let mapped = unsafe { libc::mmap(at, size as usize, access, flags, fd, offset as libc::off_t) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped) }
    };
    // SAFETY: within the first mapping.
    let after = |start: *mut c_void, bytes: u64| unsafe { start.cast::<u8>().add(bytes as usize) };
    let (access, nothing) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_NONE);
    let whole = place(std::ptr::null_mut(), data + code + 2 * GUARD, nothing, NEW, -1, 0)?;
    let base = after(whole, GUARD);
    place(base.cast(), data + code, access, NEW | libc::MAP_FIXED, -1, 0)?;
    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
    place(after(base.cast(), PAGE).cast(), data - PAGE, access, shared, file.as_raw_fd(), PAGE)?;
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_in_words() {
        let memory = UntrustedMemory::new(3 * PAGE, PAGE).expect("memory");
        memory.write(PAGE, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0]);
        let mut bytes = [0xff; 11];
        memory.read(PAGE, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0]);
        memory.clear(PAGE..PAGE + 8);
        memory.read(PAGE, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0]);
    }

    #[test]
    fn the_last_word_of_the_data_is_the_last_one() {
        let memory = UntrustedMemory::new(2 * PAGE, PAGE).expect("memory");
        memory.read(2 * PAGE - 8, &mut [0; 8]);
        let beyond = std::panic::AssertUnwindSafe(|| memory.read(2 * PAGE - 8, &mut [0; 9]));
        assert!(std::panic::catch_unwind(beyond).is_err());
    }

    #[test]
    fn the_first_damage_counts() {
        let memory = UntrustedMemory::new(2 * PAGE, PAGE).expect("memory");
        assert_eq!(memory.damage(), None);
        memory.note(Damage::Ring);
        memory.word32(layout::DAMAGED).store(1, Ordering::Relaxed);
        assert_eq!(memory.damage(), Some(&Damage::Ring));
    }
}
