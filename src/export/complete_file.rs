//! A file that can be read at any time: the end of its format follows its contents, and the next rows overwrite it.
//!
//! SIGKILL ends a write(2) between two pages, which would leave a part of a row. The rows therefore reach the file by a read(2) from a pipe
//! into a mapping of the file, which no signal ends as long as the pipe has data. A mapping does not extend a file, so that blanks are
//! written first; formats with an end (JSON) permit them after it.
//!
//! A file system without mappings gets a write.

use super::counted_file::CountedFile;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};

/// Pages are 4 KiB or a power of two times as large.
const SMALLEST_PAGE: usize = 4 << 10;
const LARGEST_PAGE: u64 = 64 << 10;
/// Size of the blanks that are written at once.
const BLANKS: usize = 64 << 10;

/// Writer of such a file.
pub(super) struct CompleteFile {
    file: CountedFile,
    /// The same file, open for reading also, as a mapping requires; `None` if that is not permitted.
    mappable: Option<File>,
    buffer: Vec<u8>,
    capacity: usize,
    /// Offset of the next row.
    at: u64,
    /// Size of the file.
    size: u64,
    end: &'static [u8],
    /// True if the format has written its own end.
    is_closed: bool,
}

impl CompleteFile {
    /// A writer of an empty file that collects `capacity` bytes.
    pub(super) fn new(file: CountedFile, capacity: usize, end: &'static [u8]) -> CompleteFile {
        let path = format!("/proc/self/fd/{}", file.file.as_raw_fd());
        let mappable = File::options().read(true).write(true).open(path).ok();
        CompleteFile { file, mappable, buffer: Vec::new(), capacity, at: 0, size: 0, end, is_closed: false }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let rows = self.buffer.len();
        if rows == 0 {
            return Ok(());
        }
        if !self.is_closed {
            self.buffer.extend_from_slice(self.end);
        }
        let written = match self.size == 0 && self.buffer.len() <= SMALLEST_PAGE {
            // The first rows: a kill between blanks and rows would leave only blanks.
            true => self.begin(),
            false => self.extend_to(self.at + self.buffer.len() as u64).and_then(|()| self.replace_end()),
        };
        self.buffer.truncate(rows);
        written?;
        self.file.count(rows);
        self.at += rows as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the first rows by one write(2) within a page, which no signal divides.
    fn begin(&mut self) -> io::Result<()> {
        self.file.file.write_all_at(&self.buffer, 0)?;
        self.size = self.buffer.len() as u64;
        Ok(())
    }

    /// Adds blanks, or nothing if there is no room for all of them.
    fn extend_to(&mut self, size: u64) -> io::Result<()> {
        let (file, blanks) = (&self.file.file, [b' '; BLANKS]);
        let mut extended = self.size;
        while extended < size {
            let some = &blanks[..BLANKS.min((size - extended) as usize)];
            if let Err(error) = file.write_all_at(some, extended) {
                // A failure leaves blanks at the end, which do no harm.
                let _ = file.set_len(self.size);
                return Err(error);
            }
            extended += some.len() as u64;
        }
        self.size = self.size.max(size);
        Ok(())
    }

    /// Writes the buffer over the end of the file.
    fn replace_end(&self) -> io::Result<()> {
        let mapped = self.mappable.as_ref().ok_or(io::ErrorKind::Unsupported.into());
        let copied = mapped.and_then(|file| copy_into_mapping(file, self.at, &self.buffer)).unwrap_or(0);
        self.file.file.write_all_at(&self.buffer[copied..], self.at + copied as u64)
    }
}

impl Write for CompleteFile {
    /// Accepts all bytes, so that the file never contains a part of a row.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_closed |= bytes == self.end;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= self.capacity {
            self.write_out()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }
}

/// Copies bytes over a part of a file; returns how many.
fn copy_into_mapping(file: &File, at: u64, bytes: &[u8]) -> io::Result<usize> {
    let (reader, mut writer) = io::pipe()?;
    set_capacity(writer.as_raw_fd(), bytes.len())?;
    let first = at / LARGEST_PAGE * LARGEST_PAGE;
    let skipped = (at - first) as usize;
    let mapping = Mapping::of(file, first, skipped + bytes.len())?;
    // The capacity is large enough, so it does not block.
    writer.write_all(bytes)?;
    mapping.read_from(&reader, skipped)
}

/// Makes a pipe large enough for this number of bytes. Writes fill its pages.
fn set_capacity(pipe: RawFd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, bytes) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A shared mapping of a part of a file.
struct Mapping {
    address: NonNull<libc::c_void>,
    size: usize,
}

impl Mapping {
    fn of(file: &File, at: u64, size: usize) -> io::Result<Mapping> {
        let at = libc::off_t::try_from(at).map_err(io::Error::other)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping replaces no memory.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), at) };
        let mapping = match NonNull::new(address) {
            Some(address) if address.as_ptr() != libc::MAP_FAILED => Mapping { address, size },
            _ => return Err(io::Error::last_os_error()),
        };
        // With all pages present nothing can end the copy. An error is one that the copy has as well.
        // SAFETY: the mapping has this size, and populating it does not change it.
        unsafe { libc::madvise(address, size, libc::MADV_POPULATE_WRITE) };
        Ok(mapping)
    }

    /// Reads from a pipe to the bytes after `skipped`. The kernel writes them: this process would get SIGBUS if the file became shorter.
    fn read_from(&self, pipe: &impl AsRawFd, skipped: usize) -> io::Result<usize> {
        let size = self.size.checked_sub(skipped).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the mapping has `size` bytes there, and no reference to them exists.
        let read = unsafe { libc::read(pipe.as_raw_fd(), self.address.byte_add(skipped).as_ptr(), size) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { libc::munmap(self.address.as_ptr(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Destination;
    use super::*;

    /// Contents of a file after each batch of these sizes: always the rows and the end.
    fn check_batches(sizes: &[usize]) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("rows.json");
        let mut out =
            Destination::new(path.to_str().expect("UTF-8"), None).create_with_end(b"\n]}\n").expect("a file");
        let mut expected = Vec::new();
        for (batch, &size) in sizes.iter().enumerate() {
            let rows: Vec<u8> = (0..size).map(|at| b'a' + ((at + batch) % 23) as u8).collect();
            out.write_all(&rows).and_then(|()| out.flush()).expect("written");
            expected.extend(rows);
            let found = std::fs::read(&path).expect("there");
            assert!(found == [&expected[..], b"\n]}\n"].concat(), "batch {batch} of {size} bytes");
        }
    }

    #[test]
    fn batches_of_any_size_are_complete() {
        check_batches(&[1, 4091, 4, 1, 4096, 65_536, 70_001, 3, 300_000]);
    }

    #[test]
    fn a_row_that_is_larger_than_a_pipe_is_complete() {
        check_batches(&[10, 3_000_000, 10]);
    }

    #[test]
    fn a_file_system_with_mappings_gets_no_part_of_a_batch_by_a_write() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[b' '; 200_000]).expect("written");
        let bytes = [b'x'; 150_000];
        assert_eq!(copy_into_mapping(&file, 40_001, &bytes).expect("copied"), bytes.len());
        let mut found = [0; 150_002];
        file.read_exact_at(&mut found, 40_000).expect("read");
        assert!(found[0] == b' ' && found[1..=bytes.len()] == bytes && found[bytes.len() + 1] == b' ');
    }
}
