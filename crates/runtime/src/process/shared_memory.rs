//! Memory that the tracer shares with the doorman: files that need no question, with a mark for each that was mapped; the
//! requests that the doorman is working on, so that a successor can answer them; and how many went on unseen.
//!
//! It is a memfd of 64-bit words, since the doorman is another program image and inherits descriptors only.

use crate::kernel::sys;
use rustix::fs::{AtFlags, FileType, MemfdFlags, StatxFlags};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

/// Device and inode of a file.
pub type Identity = (u64, u64);

/// A file and its content: another state of the same file may be another program.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileState {
    /// Device and inode, as `stat` gives them.
    pub identity: Identity,
    /// In bytes.
    size: u64,
    /// Time of the last change, in ns.
    changed_ns: u64,
}

impl FileState {
    /// Returns the state of the regular file that a path leads to. Network file systems answer from their cache.
    ///
    /// # Errors
    /// The errors of statx(2); EINVAL for other kinds of file.
    pub fn of(path: &Path) -> io::Result<FileState> {
        FileState::at(rustix::fs::CWD, path)
    }

    /// Returns the state of an open file.
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

/// Requests that the doorman can work on at a time.
pub(super) const DESKS: usize = 64;

/// Words of a request: `struct seccomp_notif`, whose first word is its id.
const REQUEST: usize = size_of::<libc::seccomp_notif>() / WORD;
/// Words of a file: device, inode, size, time of change, mark.
const FILE: usize = 5;
const MARK: usize = 4;
const WORD: usize = size_of::<u64>();

/// Words of the header.
const LATE: usize = 0;
const FILES: usize = 1;
const EVERY: usize = 2;
const HELD: usize = 3;
const HEADER: usize = 4;
const FIRST_FILE: usize = HEADER + DESKS * REQUEST;

/// See the module.
pub(super) struct Shared {
    fd: OwnedFd,
    memory: sys::Mapping,
    words: usize,
    index: HashMap<Identity, usize>,
}

// SAFETY: the memory is read and written as atomic words, but for requests, of which each belongs to one thread.
unsafe impl Sync for Shared {}

impl Shared {
    /// Made by the tracer: none of the files is mapped yet. `every`: each mapping of a file is asked about. `held` is the process
    /// that waits to become the program.
    ///
    /// # Errors
    /// The errors of memfd_create(2), ftruncate(2) and mmap(2).
    pub(super) fn new(files: &[FileState], every: bool, held: u32) -> io::Result<Shared> {
        let fd = rustix::fs::memfd_create(c"ct-doorman", MemfdFlags::CLOEXEC)?;
        let words = FIRST_FILE + files.len() * FILE;
        rustix::fs::ftruncate(&fd, (words * WORD) as u64)?;
        let mut shared = Shared::map(fd, words)?;
        for (number, file) in files.iter().enumerate() {
            let (device, inode) = file.identity;
            for (at, word) in [device, inode, file.size, file.changed_ns].into_iter().enumerate() {
                shared.word(FIRST_FILE + number * FILE + at).store(word, Ordering::Relaxed);
            }
        }
        shared.word(FILES).store(files.len() as u64, Ordering::Relaxed);
        shared.word(EVERY).store(every.into(), Ordering::Relaxed);
        shared.word(HELD).store(held.into(), Ordering::Relaxed);
        shared.index = shared.files();
        Ok(shared)
    }

    /// Found by the doorman.
    ///
    /// # Errors
    /// The errors of fstat(2) and mmap(2).
    pub(super) fn open(fd: OwnedFd) -> io::Result<Shared> {
        let file = File::from(fd);
        let words = file.metadata()?.len() as usize / WORD;
        let mut shared = Shared::map(file.into(), words)?;
        shared.index = shared.files();
        Ok(shared)
    }

    fn map(fd: OwnedFd, words: usize) -> io::Result<Shared> {
        let memory = sys::Mapping::shared(fd.as_fd(), 0, words * WORD, true)?;
        Ok(Shared { fd, memory, words, index: HashMap::new() })
    }

    fn files(&self) -> HashMap<Identity, usize> {
        let count = self.word(FILES).load(Ordering::Relaxed) as usize;
        let first = |number: usize| FIRST_FILE + number * FILE;
        let load = |at: usize| self.word(at).load(Ordering::Relaxed);
        (0..count).map(first).map(|at| ((load(at), load(at + 1)), at)).collect()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words, "inside of the memory");
        // SAFETY: inside of the mapping, which lives as long as `self`, and aligned.
        unsafe { AtomicU64::from_ptr(self.memory.bytes().cast::<u64>().add(at)) }
    }

    /// The descriptor that the doorman inherits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether each mapping of a file is asked about, not only the first.
    pub(super) fn asks_every(&self) -> bool {
        self.word(EVERY).load(Ordering::Relaxed) != 0
    }

    /// The process that waits to become the program.
    pub(super) fn held(&self) -> u32 {
        self.word(HELD).load(Ordering::Relaxed) as u32
    }

    /// Whether it is one of the files, unchanged; if so, it is mapped from now on.
    pub(super) fn mark(&self, file: &FileState) -> bool {
        let Some(&at) = self.index.get(&file.identity) else { return false };
        let is = |word, value| self.word(at + word).load(Ordering::Relaxed) == value;
        let same = is(2, file.size) && is(3, file.changed_ns);
        if same {
            self.word(at + MARK).store(1, Ordering::Relaxed);
        }
        same
    }

    /// It is one of them and was mapped.
    pub(super) fn is_mapped(&self, file: &Identity) -> bool {
        self.index.get(file).is_some_and(|at| self.word(at + MARK).load(Ordering::Relaxed) != 0)
    }

    /// One more request was answered before it was looked at.
    pub(super) fn add_late(&self) {
        self.word(LATE).fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were answered before they were looked at.
    pub(super) fn late(&self) -> u64 {
        self.word(LATE).load(Ordering::Relaxed)
    }

    /// Id of the request at a desk; 0: none.
    pub(super) fn request_id(&self, desk: usize) -> u64 {
        self.word(HEADER + desk * REQUEST).load(Ordering::Acquire)
    }

    /// Where the kernel writes the request of a desk: its thread can be killed, and still a successor finds it there.
    pub(super) fn request(&self, desk: usize) -> *mut libc::seccomp_notif {
        let id = self.word(HEADER + desk * REQUEST);
        id.as_ptr().cast()
    }

    /// The request of a desk was answered.
    pub(super) fn clear(&self, desk: usize) {
        let words = HEADER + desk * REQUEST..HEADER + (desk + 1) * REQUEST;
        words.for_each(|at| self.word(at).store(0, Ordering::Release));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("index", &self.index).finish_non_exhaustive()
    }
}
