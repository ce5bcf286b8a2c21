//! Memory that the tracer and the seccomp server share: the known files, each with a mark once it is mapped; the requests
//! that the server handles, so that another server can answer them; the number of late answers.
//!
//! It is a memfd of 64-bit words, because the server is another program image that inherits only descriptors.

use crate::kernel::sys;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use std::collections::HashMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

/// Which mappings of files by a started program and its children are reported.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MappingScope {
    /// The first of each file that is not known.
    #[default]
    New,
    /// Also each one to a fixed address.
    Fixed,
    /// Each one, each further seccomp filter, and the begin of each program that has no loader.
    All,
}

/// Device and inode of a file.
pub type Identity = (u64, u64);

/// Identity of a file and of its contents.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileState {
    /// Device and inode, as `stat` returns them.
    pub identity: Identity,
    /// Size in bytes.
    size: u64,
    /// Time of the last change, in ns.
    changed_ns: u64,
}

impl FileState {
    /// The state of the regular file at a path. Network file systems answer from their cache.
    ///
    /// # Errors
    /// The errors of statx(2); EINVAL for other kinds of file.
    pub fn of(path: &Path) -> io::Result<FileState> {
        FileState::at(rustix::fs::CWD, path)
    }

    /// The state of an open file.
    pub(super) fn of_file(file: &File) -> io::Result<FileState> {
        FileState::at(file.as_fd(), Path::new(""))
    }

    fn at(directory: BorrowedFd<'_>, path: &Path) -> io::Result<FileState> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS)?;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let changed = stat.stx_ctime;
        Ok(FileState {
            identity: (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
            size: stat.stx_size,
            changed_ns: (changed.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(changed.tv_nsec),
        })
    }
}

/// Largest number of requests that are handled at a time.
pub(super) const SLOTS: usize = 64;

/// Number of late answers whose threads are known.
const NAMED_LATE: usize = 32;

/// Size in words of a request: `struct seccomp_notif`, which begins with its id.
const REQUEST: usize = size_of::<libc::seccomp_notif>() / WORD;
/// The word of a request whose lower half is the thread.
const REQUEST_THREAD: usize = offset_of!(libc::seccomp_notif, pid) / WORD;
/// Size in words of a file: device, inode, size, time of change, mark.
const FILE: usize = 5;
const MARK: usize = 4;
const WORD: usize = size_of::<u64>();

/// Indices of the words of the header.
const LATE: usize = 0;
const FILES: usize = 1;
const REPORTED: usize = 2;
const HELD: usize = 3;
/// The threads of the last late answers.
const LATE_THREADS: usize = 4;
const HEADER: usize = LATE_THREADS + NAMED_LATE;
const FIRST_FILE: usize = HEADER + SLOTS * REQUEST;

/// The shared memory; see the module documentation.
pub(super) struct SharedState {
    fd: OwnedFd,
    memory: sys::MemoryMapping,
    words: usize,
    index: HashMap<Identity, usize>,
}

// SAFETY: all words are accessed atomically, except requests, of which each belongs to one thread.
unsafe impl Sync for SharedState {}

impl SharedState {
    /// Creates the memory in the tracer; no file is marked. `reported`: see [`MappingScope`]. `held`: the process
    /// that has not become its program yet.
    ///
    /// # Errors
    /// The errors of [`sys::shared_memory`] and of mmap(2).
    pub(super) fn new(files: &[FileState], reported: MappingScope, held: u32) -> io::Result<SharedState> {
        let words = FIRST_FILE + files.len() * FILE;
        let fd = sys::shared_memory(c"ct-seccomp", (words * WORD) as u64)?;
        let mut shared = SharedState::map(fd, words)?;
        for (number, file) in files.iter().enumerate() {
            let (device, inode) = file.identity;
            for (at, word) in [device, inode, file.size, file.changed_ns].into_iter().enumerate() {
                shared.word(FIRST_FILE + number * FILE + at).store(word, Ordering::Relaxed);
            }
        }
        shared.word(FILES).store(files.len() as u64, Ordering::Relaxed);
        shared.word(REPORTED).store(reported as u64, Ordering::Relaxed);
        shared.word(HELD).store(held.into(), Ordering::Relaxed);
        shared.index = shared.files();
        Ok(shared)
    }

    /// Maps the memory in the seccomp server.
    ///
    /// # Errors
    /// The errors of fstat(2) and mmap(2).
    pub(super) fn open(fd: OwnedFd) -> io::Result<SharedState> {
        let file = File::from(fd);
        let words = file.metadata()?.len() as usize / WORD;
        let mut shared = SharedState::map(file.into(), words)?;
        shared.index = shared.files();
        Ok(shared)
    }

    fn map(fd: OwnedFd, words: usize) -> io::Result<SharedState> {
        let memory = sys::MemoryMapping::shared(fd.as_fd(), 0, words * WORD, true)?;
        Ok(SharedState { fd, memory, words, index: HashMap::new() })
    }

    fn files(&self) -> HashMap<Identity, usize> {
        let count = self.word(FILES).load(Ordering::Relaxed) as usize;
        let first = |number: usize| FIRST_FILE + number * FILE;
        let load = |at: usize| self.word(at).load(Ordering::Relaxed);
        (0..count).map(first).map(|at| ((load(at), load(at + 1)), at)).collect()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words, "within the memory");
        // SAFETY: aligned, and within the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.memory.bytes().cast::<u64>().add(at)) }
    }

    /// The descriptor that the server inherits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether a mapping of a file is reported even if it is known. `is_fixed`: to a fixed address.
    pub(super) fn reports_again(&self, is_fixed: bool) -> bool {
        let reported = self.word(REPORTED).load(Ordering::Relaxed);
        self.reports_all() || is_fixed && reported == MappingScope::Fixed as u64
    }

    /// Whether every mapping is reported.
    pub(super) fn reports_all(&self) -> bool {
        self.word(REPORTED).load(Ordering::Relaxed) == MappingScope::All as u64
    }

    /// The process that has not become its program yet.
    pub(super) fn held(&self) -> u32 {
        self.word(HELD).load(Ordering::Relaxed) as u32
    }

    /// Marks a known file as mapped. Returns false if the file is not known or has changed.
    pub(super) fn mark(&self, file: &FileState) -> bool {
        let Some(&at) = self.index.get(&file.identity) else { return false };
        let is = |word, value| self.word(at + word).load(Ordering::Relaxed) == value;
        let same = is(2, file.size) && is(3, file.changed_ns);
        if same {
            self.word(at + MARK).store(1, Ordering::Relaxed);
        }
        same
    }

    /// Whether the file is known and marked as mapped.
    pub(super) fn is_mapped(&self, file: &Identity) -> bool {
        self.index.get(file).is_some_and(|at| self.word(at + MARK).load(Ordering::Relaxed) != 0)
    }

    /// Counts a late answer to a thread.
    pub(super) fn add_late(&self, tid: u32) {
        let number = self.word(LATE).load(Ordering::Relaxed) as usize % NAMED_LATE;
        self.word(LATE_THREADS + number).store(tid.into(), Ordering::Relaxed);
        self.word(LATE).fetch_add(1, Ordering::Release);
    }

    /// The threads of the late answers after so many; of more than [`NAMED_LATE`] the last ones.
    pub(super) fn late_threads(&self, after: u64) -> Vec<u32> {
        let late = self.late();
        let first = after.max(late.saturating_sub(NAMED_LATE as u64));
        let thread =
            |number: u64| self.word(LATE_THREADS + number as usize % NAMED_LATE).load(Ordering::Relaxed);
        (first..late).map(|number| thread(number) as u32).collect()
    }

    /// Number of requests that were answered before they were handled.
    pub(super) fn late(&self) -> u64 {
        self.word(LATE).load(Ordering::Acquire)
    }

    /// Id of the request in a slot; 0: none.
    pub(super) fn request_id(&self, slot: usize) -> u64 {
        self.word(HEADER + slot * REQUEST).load(Ordering::Acquire)
    }

    /// Thread of the request in a slot.
    pub(super) fn request_thread(&self, slot: usize) -> u32 {
        self.word(HEADER + slot * REQUEST + REQUEST_THREAD).load(Ordering::Acquire) as u32
    }

    /// The request in a slot, for the kernel to write: if the server is killed, the next one finds it here.
    pub(super) fn request(&self, slot: usize) -> *mut libc::seccomp_notif {
        let id = self.word(HEADER + slot * REQUEST);
        id.as_ptr().cast()
    }

    /// Removes the request from a slot.
    pub(super) fn clear(&self, slot: usize) {
        let words = HEADER + slot * REQUEST..HEADER + (slot + 1) * REQUEST;
        words.for_each(|at| self.word(at).store(0, Ordering::Release));
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("index", &self.index).finish_non_exhaustive()
    }
}
