//! Memory that the tracer shares with the traced processes: maps, the ring buffer, clocks. The tracer's own view has the code of the
//! programs, too: BEGIN, END and timers run there, and the helpers that look up, insert and delete keys.
//!
//! ```text
//! this process                      a traced process (`in_process::Region`)
//! page of its own                   page of its own
//! shared data   <- one memfd ->     shared data
//! code for the tracer               code for the process, detours
//! ```

use super::names;
use native::layout::{self, MapPlace};
use native::object::Object;
use native::{
    CpuNumber, Environment, Image, Layout, Placement, Process, ThreadId, TimeSource, Unsupported, program,
};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Room for code in bytes: some twenty thousand functions.
pub const CODE_ROOM: u64 = 8 << 20;
/// Largest size of the data in bytes: code refers to them relative to itself, and a region needs as much memory near the program.
const MAX_DATA: u64 = 1 << 30;
/// Largest size in bytes of the data that [`SessionMemory::allocate`] allocates. All maps of usual scripts are smaller.
const MAX_ALLOCATED: u64 = 32 << 20;
/// Names of the helpers that the tracer calls.
const LOOKUP: &str = "map_lookup";
const UPDATE: &str = "map_update";
const DELETE: &str = "map_delete";

/// The memory of a session in this process; see the module documentation.
#[derive(Debug)]
pub struct SessionMemory {
    base: *mut u8,
    file: OwnedFd,
    /// Size of the data in bytes, which is also the offset of the code.
    data: u64,
    cpus: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    layout: Layout,
    code_end: u64,
    /// Addresses of the helpers, by name.
    helpers: Vec<(&'static str, u64)>,
}

// SAFETY: the region belongs to the process, not to a thread. Programs and the tracer access shared words by atomics, the rest under
// the rules of the maps (see `maps.c` in `native`).
unsafe impl Send for SessionMemory {}
// SAFETY: as above.
unsafe impl Sync for SessionMemory {}

/// A module whose data and code for the tracer are in the memory of a session.
#[derive(Debug)]
pub struct PlacedModule {
    /// The object.
    pub object: Object,
    /// Where its data are.
    pub placement: Placement,
    /// Its code for the tracer.
    pub image: Image,
}

/// The tracer's own environment.
fn own_environment(cpus: u32) -> Environment {
    Environment::Process(Process {
        cpus,
        cpu: CpuNumber::Segment,
        thread: ThreadId::Word,
        time: TimeSource::Asked,
        unwind: None,
    })
}

impl SessionMemory {
    /// Creates the memory of a session that begins with an object; `known` are objects that will extend it.
    ///
    /// # Errors
    /// The object needs what only the kernel has, or there is no memory.
    pub fn new(
        object: Object,
        known: &[Object],
        cpus: u32,
    ) -> Result<(SessionMemory, PlacedModule), PlaceError> {
        let (layout, placement) = Layout::with_room(&object, known, cpus);
        let data = layout.code;
        if data > MAX_DATA {
            return Err(PlaceError::TooLarge { bytes: data });
        }
        let file = rustix::fs::memfd_create(
            "cudatrace",
            rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING,
        )
        .map_err(io::Error::from)?;
        rustix::fs::ftruncate(&file, data).map_err(io::Error::from)?;
        use rustix::fs::SealFlags;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(io::Error::from)?;
        let base = map(&file, data)?;
        let state = Mutex::new(State { layout, code_end: data + layout::NAMES, helpers: vec![] });
        let memory = SessionMemory { base, file, data, cpus, state };
        memory.word32(layout::TGID).store(std::process::id(), Ordering::Relaxed);
        memory.write_code(data, &names::of(std::process::id()))?;
        let module = memory.add(object, placement)?;
        Ok((memory, module))
    }

    /// Adds a module, which shares the maps.
    ///
    /// # Errors
    /// As for [`SessionMemory::new`].
    pub fn extend(&self, object: Object) -> Result<PlacedModule, PlaceError> {
        let extended = self.state().layout.extend(&object);
        let placement = extended.ok_or_else(|| {
            let (needed, left) = self.layout().room_for(&object);
            PlaceError::NoRoom { needed, left }
        })?;
        self.add(object, placement)
    }

    fn add(&self, object: Object, placement: Placement) -> Result<PlacedModule, PlaceError> {
        let mut state = self.state();
        let start = state.code_end.next_multiple_of(layout::PAGE);
        let image =
            native::translate(&object, &state.layout, &placement, &own_environment(self.cpus), start)?;
        let end = self.data + CODE_ROOM;
        if image.end() > end {
            let (needed, left) = (image.end() - start, end - start.min(end));
            return Err(PlaceError::NoRoom { needed, left });
        }
        for (offset, bytes) in &placement.contents {
            self.write(*offset, bytes);
        }
        self.write_code(start, &image.code)?;
        state.code_end = image.end();
        state.helpers = image.helpers.clone();
        Ok(PlacedModule { object, placement, image })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Allocates the memory of the maps. A page counts against the memory limit of the control group whose process allocates it: without
    /// this, that is the traced process which writes there first, and it could be killed.
    pub fn allocate(&self) {
        let size = self.state().layout.data_end().min(MAX_ALLOCATED);
        // Without it, pages are allocated when they are written to.
        let _ = rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, size);
    }

    /// The layout as far as modules have been added.
    pub fn layout(&self) -> Layout {
        self.state().layout.clone()
    }

    /// Number of possible CPUs.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Size of the data in bytes.
    pub fn data_size(&self) -> u64 {
        self.data
    }

    /// Number of the inode of the shared memory.
    pub fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |file| file.st_ino)
    }

    /// The shared memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Address of the byte at an offset.
    pub fn at(&self, offset: u64) -> *mut u8 {
        assert!(offset <= self.data + CODE_ROOM, "within the region");
        // SAFETY: within the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    /// A word of the data.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.data, "a word of the data");
        // SAFETY: aligned and within the mapping, which lives as long as `self`.
        unsafe { &*self.at(offset).cast() }
    }

    /// Half a word of the data.
    pub fn word32(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.data, "half a word of the data");
        // SAFETY: as in `word`.
        unsafe { &*self.at(offset).cast() }
    }

    /// Writes data that no program uses at the same time.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.data, "within the data");
        // SAFETY: within the mapping; `bytes` is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) }
    }

    /// Reads bytes, which programs may change at the same time.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        assert!(offset + bytes.len() as u64 <= self.data, "within the data");
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset), bytes.as_mut_ptr(), bytes.len()) }
    }

    fn write_code(&self, offset: u64, code: &[u8]) -> io::Result<()> {
        let len = code.len().next_multiple_of(layout::PAGE as usize);
        self.protect(offset, len, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: pages of the region that are writable now and that no thread executes yet.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.at(offset), code.len()) };
        self.protect(offset, len, libc::PROT_READ | libc::PROT_EXEC)
    }

    fn protect(&self, offset: u64, len: usize, access: i32) -> io::Result<()> {
        // SAFETY: pages of the region.
        match unsafe { libc::mprotect(self.at(offset).cast(), len, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Runs programs on behalf of a process that has ended and had these [names](layout::NAMES).
    ///
    /// # Errors
    /// mprotect(2) fails; the programs have not run.
    pub fn run_for(&self, entries: impl Iterator<Item = u64>, pid: u32, names: &[u8]) -> io::Result<()> {
        self.write_code(self.data, names)?;
        let own = self.word32(layout::TGID).swap(pid, Ordering::Relaxed);
        self.word32(layout::TID).store(pid, Ordering::Relaxed);
        entries.for_each(|entry| _ = self.enter(entry));
        self.word32(layout::TGID).store(own, Ordering::Relaxed);
        self.write_code(self.data, &names::of(own))
    }

    /// Runs a program in this process.
    pub fn run(&self, entry: u64) -> u64 {
        self.word32(layout::TID)
            .store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
        self.enter(entry)
    }

    /// Runs a program with a context of zeros.
    fn enter(&self, entry: u64) -> u64 {
        let mut context = [0u64; program::SIZE as usize / 8];
        self.call(entry, [context.as_mut_ptr() as u64, 0, 0, 0, 0, 0])
    }

    /// Calls code of the region.
    fn call(&self, entry: u64, a: [u64; 6]) -> u64 {
        type Code = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
        // SAFETY: code that was translated from an object of the compiler, or a helper, with arguments as it expects them.
        let code: Code = unsafe { std::mem::transmute(self.at(entry)) };
        code(a[0], a[1], a[2], a[3], a[4], a[5])
    }

    fn helper(&self, name: &str) -> u64 {
        let state = self.state();
        let found = state.helpers.iter().find(|(known, _)| *known == name);
        found.expect("every image has the helpers").1
    }

    /// The cell of a key on a CPU.
    pub fn lookup(&self, map: &MapPlace, key: &[u8], cpu: u32) -> Option<u64> {
        let arguments = [self.at(map.description) as u64, key.as_ptr() as u64, 0, 0, 0, u64::from(cpu)];
        let cell = self.call(self.helper(LOOKUP), arguments);
        (cell != 0).then(|| cell - self.base as u64)
    }

    /// Inserts a key or replaces its value on a CPU.
    ///
    /// # Errors
    /// E2BIG, EBUSY
    pub fn update(&self, map: &MapPlace, key: &[u8], value: &[u8], cpu: u32) -> io::Result<()> {
        let [key, value] = [key.as_ptr() as u64, value.as_ptr() as u64];
        let arguments = [self.at(map.description) as u64, key, value, 0, 0, u64::from(cpu)];
        result(self.call(self.helper(UPDATE), arguments))
    }

    /// Processes in whose stacks programs found an unknown mapping since the last call.
    pub fn take_unknown(&self) -> Vec<u32> {
        let words = (0..layout::UNKNOWN_IDS).map(|index| self.word32(layout::UNKNOWN + 4 * index));
        words.map(|word| word.swap(0, Ordering::Relaxed)).filter(|tgid| *tgid != 0).collect()
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// ENOENT, EBUSY
    pub fn delete(&self, map: &MapPlace, key: &[u8]) -> io::Result<()> {
        result(
            self.call(
                self.helper(DELETE),
                [self.at(map.description) as u64, key.as_ptr() as u64, 0, 0, 0, 0],
            ),
        )
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        // SAFETY: the region is this value's own, and nothing uses it any more.
        unsafe { libc::munmap(self.base.cast(), (self.data + CODE_ROOM) as usize) };
    }
}

fn result(value: u64) -> io::Result<()> {
    match value as i64 {
        error @ ..0 => Err(io::Error::from_raw_os_error(-error as i32)),
        _ => Ok(()),
    }
}

/// Maps the region: all of it first, then the shared data over a part.
fn map(file: &OwnedFd, data: u64) -> io::Result<*mut u8> {
    let (size, access) = ((data + CODE_ROOM) as usize, libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let place = |at: *mut c_void, size, flags, fd, offset| {
        // SAFETY: a new mapping, or a part of the one that was just made.
        let mapped = unsafe { libc::mmap(at, size, access, flags, fd, offset) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped) }
    };
    let base = place(std::ptr::null_mut(), size, flags, -1, 0)?;
    let page = layout::PAGE as usize;
    // SAFETY: a page further in the mapping.
    let shared = unsafe { base.cast::<u8>().add(page) };
    place(
        shared.cast(),
        data as usize - page,
        libc::MAP_SHARED | libc::MAP_FIXED,
        file.as_raw_fd(),
        page as libc::off_t,
    )?;
    Ok(base.cast())
}

/// The reason why an object cannot run in processes.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// It needs what only the kernel has.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// More modules than the region has room for.
    #[error("the maps and the code for a library that was loaded later need {} KiB of shared memory, and {} KiB are left", needed >> 10, left >> 10)]
    NoRoom {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// More data than code can refer to.
    #[error("its maps take {} MiB, and code reaches {} MiB", bytes >> 20, MAX_DATA >> 20)]
    TooLarge {
        /// Size of the data.
        bytes: u64,
    },
    /// No memory.
    #[error("shared memory cannot be created: {0}")]
    Memory(#[from] io::Error),
}
