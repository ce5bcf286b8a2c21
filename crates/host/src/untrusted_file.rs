//! Untrusted files: files of traced processes, and files beside them.
//!
//! Such a file may be a pipe without a writer, a device, endless, or truncated while it is read. Reading it must not block, exhaust
//! memory, or end the tracer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::Mmap;

/// A path to a file for as long as it is open, whatever its own path leads to. Needs `/proc`.
pub fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Opens a plain file to read. What is none is not opened: that could wait, or do something.
///
/// # Errors
/// The errors of open(2); `InvalidInput` for anything but a plain file.
pub fn open(path: &Path) -> io::Result<File> {
    let plain = |metadata: std::fs::Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file")),
    };
    plain(std::fs::metadata(path)?)?;
    // It may have been replaced since.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    plain(file.metadata()?)?;
    Ok(file)
}

/// Moves a descriptor, one of many, to a high number if there is one: select(2), which line editors use, knows numbers below 1024
/// only.
pub(crate) fn out_of_the_way(file: File) -> File {
    const BEHIND_SELECT: i32 = libc::FD_SETSIZE as i32;
    // SAFETY: plain system call; the result is a new descriptor, or negative.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, BEHIND_SELECT) } {
        // SAFETY: nobody else has it.
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

/// A mapped file. What was cut off since reads as zeros.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    /// Maps a file to read.
    ///
    /// # Errors
    /// The errors of mmap(2).
    pub(crate) fn of(file: &File) -> io::Result<Mapped> {
        survive_truncation();
        // SAFETY: the mapping is private and read-only. Its bytes may change while they are read, as any input may be wrong; where
        // the file is cut off, `put_zeros` puts memory.
        unsafe { Mmap::map(file) }.map(Mapped)
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

static PAGE: AtomicUsize = AtomicUsize::new(0);

/// From now on a read of a mapped file, beyond an end that it did not have before, gives zeros. Without this it ends the program.
pub fn survive_truncation() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a number is asked for, and a handler set that calls mmap(2) and signal(2) alone.
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

/// Puts a page of zeros where a mapped file has none. Any other fault happens again, and ends the program.
extern "C" fn put_zeros(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: the kernel hands over a `siginfo_t` of a SIGBUS. The page was mapped, from a file, and cannot be read: nobody holds
    // what it replaces.
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
        let mapped = Mapped::of(&open(&path).expect("opened")).expect("mapped");
        let writer = OpenOptions::new().write(true).open(&path).expect("opened");
        writer.set_len(1 << 16).expect("cut");
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(sum(&mapped), 7 << 16);
    }

    #[test]
    fn what_is_no_plain_file_is_refused_at_once() {
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
