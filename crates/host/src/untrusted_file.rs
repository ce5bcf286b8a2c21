//! Untrusted files: those that a traced process uses, and those found through them, such as files of debug information.
//!
//! Such a file may be a pipe without a writer, a device, endless, or truncated while it is read. Reading it must not block, exhaust
//! memory, or crash the tracer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::Mmap;

/// A path to an open file, valid while it is open, whatever its own path refers to. Requires `/proc`.
pub fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Opens a plain file for reading. Other files are not opened, since opening them may block or have side effects.
///
/// # Errors
/// The errors of open(2); `InvalidInput` for anything but a plain file.
pub fn open(path: &Path) -> io::Result<File> {
    let plain = |metadata: std::fs::Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file")),
    };
    plain(std::fs::metadata(path)?)?;
    // The file may have been replaced since.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    plain(file.metadata()?)?;
    Ok(file)
}

/// Moves a descriptor, one of many, to a high number if possible: select(2), which line editors use, supports only
/// numbers below 1024.
pub(crate) fn out_of_the_way(file: File) -> File {
    const BEHIND_SELECT: i32 = libc::FD_SETSIZE as i32;
    // SAFETY: plain system call; the result is a new descriptor, or negative.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, BEHIND_SELECT) } {
        // SAFETY: the descriptor is new, so it has no other owner.
        high @ 0.. => unsafe { File::from_raw_fd(high) },
        _ => file,
    }
}

/// The contents of a plain file of at most `most` bytes.
///
/// # Errors
/// The errors of [`open`] and read(2); `InvalidData` if the file is larger.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too large")),
        false => Ok(bytes),
    }
}

/// A mapped file. Parts that are truncated later read as zeroes.
#[derive(Debug)]
pub(crate) struct FileMapping(Mmap);

impl FileMapping {
    /// Maps a file to read.
    ///
    /// # Errors
    /// The errors of mmap(2).
    pub(crate) fn of(file: &File) -> io::Result<FileMapping> {
        survive_truncation();
        // SAFETY: the mapping is private and read-only. Its bytes may change while they are read; readers treat
        // them as untrusted input. If the file is truncated, `put_zeros` maps memory in its place.
        unsafe { Mmap::map(file) }.map(FileMapping)
    }
}

impl Deref for FileMapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Installs a signal handler by which reads beyond the new end of a truncated mapped file return zeroes. Without
/// it they end the program.
pub fn survive_truncation() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: sysconf only returns a number, and the handler calls only mmap(2) and signal(2).
        unsafe {
            PAGE.store(libc::sysconf(libc::_SC_PAGESIZE) as usize, Ordering::Relaxed);
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = put_zeros;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    });
}

/// Maps a page of zeroes where a mapped file has been truncated. Any other fault is repeated with the default
/// action, which ends the program.
extern "C" fn put_zeros(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: the kernel passes the `siginfo_t` of a SIGBUS. The page is a mapping of a file and cannot be read,
    // so there are no references into it.
    unsafe {
        let at = (*info).si_addr() as usize & !(page - 1);
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let is_cut_off = (*info).si_code == libc::BUS_ADRERR;
        if !is_cut_off
            || libc::mmap(at as *mut libc::c_void, page, libc::PROT_READ, flags, -1, 0) == libc::MAP_FAILED
        {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_that_is_cut_short_reads_as_zeros() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("library");
        std::fs::write(&path, vec![7; 3 << 16]).expect("written");
        let mapped = FileMapping::of(&open(&path).expect("opened")).expect("mapped");
        let writer = OpenOptions::new().write(true).open(&path).expect("opened");
        writer.set_len(1 << 16).expect("cut");
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(sum(&mapped), 7 << 16);
    }

    #[test]
    fn files_that_are_not_regular_are_refused_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from(0o600)).expect("a named pipe");
        for path in [pipe.as_path(), Path::new("/dev/null"), dir.path()] {
            assert_eq!(open(path).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_large_file_is_not_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("large");
        File::create(&path).expect("made").set_len(1 << 40).expect("sparse");
        assert_eq!(read(&path, 1 << 20).expect_err("refused").kind(), io::ErrorKind::InvalidData);
    }
}
