//! Memory of ours in another process: data that both share, and code near the code that it replaces.
//!
//! ```text
//! base      a page of the process alone; in a child of fork(2) its bytes are zero
//! base+4096 data, shared with this process
//! ...       code, which the process cannot write
//! ...       data of the process alone, which a child of fork(2) inherits
//! ```
//!
//! The last page is mapped first and gets a header of the journal before there is more: if this process is killed between these two
//! steps, one page is left in the other process. A later session finds all else by the header.
//!
//! The code is private anonymous memory, which is executable from the start and is written from outside: no seccomp listener of
//! ours is asked about it, and no memory is writable and executable. The shared memory is a memfd that the process creates, or that it
//! receives, and closes. Its size is sealed, so that no access of either side can fail.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::SealFlags;

use super::error::RemoteError;
use super::journal::{Entry, Header};
use super::memory_map::{OutpostPage, all_gaps, gaps, holes, library_at};
use super::stopped::StoppedProcess;
use super::system_calls::RemoteCalls;
use crate::kernel::sys::MemoryMapping;

const PAGE: u64 = 4096;
/// Gaps that are tried: other threads may map memory meanwhile.
const TRIES: usize = 8;
/// Smallest size of the code: the registers of a thread are stored there while it makes system calls.
const MIN_CODE: u64 = 16 << 10;
const NAME: &[u8] = b"cudatrace\0";
/// Flag of memfd_create(2) that `vm.memfd_noexec` may demand.
const MFD_NOEXEC_SEAL: u64 = 8;

/// Sizes in bytes; they are rounded up to pages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RegionSize {
    /// Data, including the page of the process alone: two pages at least.
    pub data: u64,
    /// Code, which begins after the data.
    pub code: u64,
    /// Further data of the process alone, after the code; a child inherits them.
    pub own: u64,
}

impl RegionSize {
    fn rounded(self) -> RegionSize {
        RegionSize {
            data: self.data.max(2 * PAGE).next_multiple_of(PAGE),
            code: self.code.max(MIN_CODE).next_multiple_of(PAGE),
            own: self.own.next_multiple_of(PAGE),
        }
    }

    /// Size of the region.
    fn whole(self) -> u64 {
        self.data + self.code + self.own
    }
}

/// Memory of ours in another process, and the view of its data in this process.
///
/// It stays in the other process when this value is dropped: threads may be in its code.
pub struct Region {
    header: Header,
    memory: Option<MemoryMapping>,
    tables: Option<Range<u64>>,
}

/// A sealed memfd of this process, and its size in bytes.
#[derive(Copy, Clone, Debug)]
pub struct SharedFile<'a> {
    /// The descriptor.
    pub file: BorrowedFd<'a>,
    /// Size in bytes.
    pub size: u64,
}

impl Region {
    /// Creates the memory within reach of a jump from and to all of `near`, by system calls of the first of the stopped threads.
    /// `own_filters`: see [`RemoteCalls::new`].
    ///
    /// # Errors
    /// [`RemoteError::NoRoom`], [`RemoteError::Call`], and the errors of [`RemoteCalls::new`]. The process is then as before.
    pub fn create(
        stopped: &StoppedProcess<'_>,
        near: Range<u64>,
        size: RegionSize,
        own_filters: u32,
    ) -> Result<Region, RemoteError> {
        Region::with(stopped, near, size, own_filters, None, None)
    }

    /// The same, with data that this process has already: a sealed memfd of `size.data` bytes. `tables` is mapped elsewhere, and
    /// the process can only read it.
    ///
    /// # Errors
    /// As for [`Region::create`], and EPERM or EMFILE if the descriptor cannot be passed on.
    pub fn sharing(
        stopped: &StoppedProcess<'_>,
        near: Range<u64>,
        size: RegionSize,
        own_filters: u32,
        data: BorrowedFd<'_>,
        tables: Option<SharedFile<'_>>,
    ) -> Result<Region, RemoteError> {
        Region::with(stopped, near, size, own_filters, Some(data), tables)
    }

    /// Maps a page of code near a function, for a jump that leads further away; also the addresses of the functions that may use it. One in a hole
    /// of a library is unmapped with that: only its own functions are sure to be gone then. `in_any`: another library's will do.
    ///
    /// # Errors
    /// As for [`Region::create`]
    pub fn outpost(
        stopped: &StoppedProcess<'_>,
        function: u64,
        in_any: bool,
        own_filters: u32,
    ) -> Result<(OutpostPage, Range<u64>), RemoteError> {
        let near = function..function + 1;
        let size = RegionSize { data: 0, code: PAGE, own: 0 };
        let maps = stopped.maps()?;
        let places = gaps(&maps, size.whole(), &near);
        let own = library_at(&maps, function);
        let mut holes = if places.is_empty() { holes(&maps, &near) } else { vec![] };
        holes.retain(|page| in_any || own.contains(page));
        let hole = holes.first().copied();
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        let page = match hole {
            Some(address) => {
                let page = OutpostPage { address, is_in_hole: true };
                calls.map_over(&page.range(), READ | EXEC)?;
                page
            }
            None => {
                let setup = &mut Setup { stopped, calls: &mut calls, size };
                let map = |setup: &mut Setup<'_, '_>, place| setup.map(place..place + PAGE).map(|()| place);
                OutpostPage { address: setup.first_free(&places, map)?, is_in_hole: false }
            }
        };
        calls.finish()?;
        Ok((page, hole.map_or(0..u64::MAX, |page| library_at(&maps, page))))
    }

    fn with(
        stopped: &StoppedProcess<'_>,
        near: Range<u64>,
        size: RegionSize,
        own_filters: u32,
        data: Option<BorrowedFd<'_>>,
        tables: Option<SharedFile<'_>>,
    ) -> Result<Region, RemoteError> {
        let size = size.rounded();
        let places = gaps(&stopped.maps()?, size.whole(), &near);
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        let mut setup = Setup { stopped, calls: &mut calls, size };
        let mut header = setup.first_free(&places, Setup::reserve)?;
        let filled = setup.fill(&mut header, data, tables);
        let RegionParts { memory, used, tables } = filled.inspect_err(|_| setup.free(&header))?;
        calls.finish()?;
        // The registers of the thread.
        stopped.write(header.code().start, &vec![0; used])?;
        Ok(Region { header, memory, tables })
    }

    /// Addresses of the tables in the other process.
    pub fn tables(&self) -> Option<&Range<u64>> {
        self.tables.as_ref()
    }

    /// Address in the other process.
    pub fn base(&self) -> u64 {
        self.header.base
    }

    /// Sizes, in whole pages.
    pub fn size(&self) -> RegionSize {
        let Header { data, code, own, .. } = self.header;
        RegionSize { data, code, own }
    }

    /// Addresses in the other process.
    pub fn range(&self) -> Range<u64> {
        self.header.base..self.header.end()
    }

    /// Addresses of the code in the other process.
    pub fn code(&self) -> Range<u64> {
        self.header.code()
    }

    /// Room for code in bytes: what entries of the journal do not need.
    pub fn room(&self) -> u64 {
        self.header.room()
    }

    /// Stores in the process what is about to be changed there. `used`: size of the code that is used now.
    ///
    /// # Errors
    /// [`RemoteError::NoRoom`], and the errors of [`StoppedProcess::write`].
    pub fn record(
        &mut self,
        stopped: &StoppedProcess<'_>,
        used: u64,
        entries: &[Entry],
    ) -> Result<(), RemoteError> {
        self.header.add(stopped, used, entries)
    }

    /// Writes code, or data of the process alone, at an offset from the base.
    ///
    /// # Errors
    /// The errors of [`StoppedProcess::write`].
    ///
    /// # Panics
    /// If the bytes are not all within the region.
    pub fn write(&self, stopped: &StoppedProcess<'_>, offset: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        assert!(offset + bytes.len() as u64 <= self.size().whole(), "within the region");
        stopped.write(self.base() + offset, bytes)
    }

    /// The shared data in this process, by offset from the base; the first page is not that of the other process. There are
    /// `size().data` bytes, which the other process may change at any time.
    ///
    /// # Panics
    /// If the region was created with data that this process has already.
    pub fn data(&self) -> *mut u8 {
        self.memory.as_ref().expect("memory of the region's own").bytes()
    }

    /// A word of the shared data, by offset from the base.
    ///
    /// # Panics
    /// If the offset is not aligned, or not within the data.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.header.data, "a word of the data");
        // SAFETY: aligned, and within the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.data().add(offset as usize).cast()) }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("header", &self.header).finish_non_exhaustive()
    }
}

/// The contents of a new region.
struct RegionParts {
    /// The view of the data in this process.
    memory: Option<MemoryMapping>,
    /// The size of code that was used, in bytes.
    used: usize,
    /// The tables in the other process.
    tables: Option<Range<u64>>,
}

/// The system calls that create a region.
struct Setup<'a, 's> {
    stopped: &'a StoppedProcess<'a>,
    calls: &'a mut RemoteCalls<'s>,
    size: RegionSize,
}

impl Setup<'_, '_> {
    /// Result at the first free one of these places: other processes with the same memory may map something there meanwhile.
    fn first_free<T>(
        &mut self,
        places: &[u64],
        mut try_at: impl FnMut(&mut Self, u64) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        for place in places.iter().take(TRIES) {
            match try_at(self, *place) {
                Err(RemoteError::Call { error, .. }) if error.raw_os_error() == Some(libc::EEXIST) => {}
                result => return result,
            }
        }
        Err(RemoteError::NoRoom)
    }

    /// Maps the whole region as code, with a header.
    fn reserve(&mut self, base: u64) -> Result<Header, RemoteError> {
        let RegionSize { data, code, own } = self.size;
        let header = Header { base, data, code, used: 0, entries: 0, own, tables: 0 };
        let whole = header.whole();
        let page = whole.end - PAGE..whole.end;
        self.map(page.clone())?;
        let unmap = |setup: &mut Self| setup.calls.unmap(&page);
        header.write_at_end(self.stopped, whole.end).inspect_err(|_| drop(unmap(self)))?;
        self.map(base..page.start).inspect_err(|_| drop(unmap(self)))?;
        header.write(self.stopped).inspect_err(|_| self.free(&header))?;
        Ok(header)
    }

    /// Maps code.
    fn map(&mut self, range: Range<u64>) -> Result<(), RemoteError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let arguments = [range.start, range.end - range.start, READ | EXEC, flags as u64, u64::MAX, 0];
        self.calls.call("mmap", libc::SYS_mmap, arguments).map(drop)
    }

    /// Makes the region what it is to be.
    fn fill(
        &mut self,
        header: &mut Header,
        data: Option<BorrowedFd<'_>>,
        tables: Option<SharedFile<'_>>,
    ) -> Result<RegionParts, RemoteError> {
        let room = (self.size.code - PAGE) as usize;
        let used = self.calls.use_code_at(header.code().start, room)?;
        let memory = self.add_data(header.base, data)?;
        // Not before there are data: the region is then known to be complete.
        self.add_own(header)?;
        let tables = tables.map(|tables| self.add_tables(header, tables)).transpose()?;
        Ok(RegionParts { memory, used, tables })
    }

    /// Makes data of the code after the header's page.
    fn add_own(&mut self, header: &Header) -> Result<(), RemoteError> {
        let (own, end) = (header.end(), header.whole().end);
        if own < end {
            self.calls.call("mprotect", libc::SYS_mprotect, [own, end - own, READ | WRITE, 0, 0, 0])?;
            Header::clear_at_end(self.stopped, end)?;
        }
        Ok(())
    }

    /// Shares the data with this process.
    fn add_data(
        &mut self,
        base: u64,
        data: Option<BorrowedFd<'_>>,
    ) -> Result<Option<MemoryMapping>, RemoteError> {
        let name = base + self.size.data + self.size.code - PAGE;
        self.calls.call("mprotect", libc::SYS_mprotect, [base, PAGE, READ | WRITE, 0, 0, 0])?;
        let fd = match data {
            Some(data) => self.calls.pass(base, data)?,
            None => {
                self.stopped.write(name, NAME)?;
                self.memfd_create(name)?
            }
        };
        let shared = self.share(base, fd, data.is_none());
        let closed = self.calls.close(fd);
        let memory = shared?;
        closed?;
        Ok(memory)
    }

    /// Maps a file, for reading, at an address that the header has before.
    fn add_tables(&mut self, header: &mut Header, tables: SharedFile<'_>) -> Result<Range<u64>, RemoteError> {
        let places = all_gaps(&self.stopped.maps()?, tables.size, &header.whole());
        let fd = self.calls.pass(header.base, tables.file)?;
        let mapped = self.first_free(&places, |setup, place| {
            header.tables = place;
            header.write(setup.stopped)?;
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            let arguments = [place, tables.size, READ, flags as u64, fd, 0];
            setup.calls.call("mmap", libc::SYS_mmap, arguments)
        });
        self.calls.close(fd)?;
        let start = mapped?;
        Ok(start..start + tables.size)
    }

    fn memfd_create(&mut self, name: u64) -> Result<u64, RemoteError> {
        let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let mut create =
            |flags| self.calls.descriptor("memfd_create", libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]);
        match create(flags) {
            Err(RemoteError::Call { error, .. }) if error.raw_os_error() == Some(libc::EACCES) => {
                create(flags | MFD_NOEXEC_SEAL)
            }
            result => result,
        }
    }

    /// Maps the shared data. `is_new`: it gets its size, and a view in this process.
    fn share(&mut self, base: u64, fd: u64, is_new: bool) -> Result<Option<MemoryMapping>, RemoteError> {
        let memory = if is_new {
            let path = self.stopped.file(&format!("fd/{fd}"));
            let file = File::options().read(true).write(true).open(path)?;
            Some(sized(&file, self.size.data)?)
        } else {
            None
        };
        let (shared, flags) = (self.size.data - PAGE, libc::MAP_SHARED | libc::MAP_FIXED);
        let arguments = [base + PAGE, shared, READ | WRITE, flags as u64, fd, PAGE];
        self.calls.call("mmap", libc::SYS_mmap, arguments)?;
        let advice = libc::MADV_WIPEONFORK as u64;
        self.calls.call("madvise", libc::SYS_madvise, [base, PAGE, advice, 0, 0, 0])?;
        Ok(memory)
    }

    /// Undoes what is mapped but the tables, whose mapping is the last step.
    fn free(&mut self, header: &Header) {
        // The code that makes the calls is part of it.
        self.calls.use_first_code();
        let _ = self.calls.unmap(&header.whole());
    }
}

const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXEC: u64 = libc::PROT_EXEC as u64;

/// Gives the memfd its size for good, and maps it.
fn sized(file: &File, size: u64) -> io::Result<MemoryMapping> {
    file.set_len(size)?;
    rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    MemoryMapping::shared(file.as_fd(), 0, size as usize, true)
}
