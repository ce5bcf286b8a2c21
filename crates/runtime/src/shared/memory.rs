//! Memory that the tracer shares with the traced processes: maps, the ring buffer, clocks. The tracer's own view has the code of the
//! programs, too: BEGIN, END and timers run there, and the helpers that look up, insert and delete keys.
//!
//! That code is as safe against the processes as what the kernel's verifier accepts: descriptions of maps and constants are a part of it, no
//! value from the memory is an address, and an index is compared with its limit before it is used (`maps.c` in `native`). It reads no other
//! memory of the tracer: what a script does with an address is an error there.
//!
//! ```text
//! this process                      a traced process (`remote::Region`)
//! page of its own                   page of its own
//! shared data   <- one memfd ->     shared data
//! code for the tracer               code for the process, detours
//! ```

use super::names;
use super::untrusted::{Damage, UntrustedMemory};
use native::layout::{self, MapPlace};
use native::object::Object;
use native::{
    CpuNumber, Environment, Image, Layout, Placement, Process, ThreadId, TimeSource, TranslateError, context,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Room for code in bytes: some twenty thousand functions.
pub(crate) const CODE_ROOM: u64 = 8 << 20;
/// Largest size of the data in bytes: code refers to them relative to itself, and a region needs as much memory near the program.
const MAX_DATA: u64 = 1 << 30;
/// Largest size in bytes of the data that [`SessionMemory::allocate`] allocates. All maps of usual scripts are smaller.
const MAX_ALLOCATED: u64 = 32 << 20;
/// Attempts for locks that the tracer makes in each period: some milliseconds, also if a process keeps all locks.
const BUDGET: u32 = 20_000;
const BUDGET_PERIOD: Duration = Duration::from_millis(200);
/// Names of the helpers that the tracer calls.
const LOOKUP: &str = "map_lookup";
const UPDATE: &str = "map_update";
const DELETE: &str = "map_delete";

/// The memory of a session in this process; see the module documentation.
#[derive(Debug)]
pub struct SessionMemory {
    region: UntrustedMemory,
    cpus: u32,
    state: Mutex<State>,
    /// Code of the region is running: when it last got a budget for waits.
    running: Mutex<Option<Instant>>,
    /// Changes of the tracer that found a map locked, by the map's symbol.
    locked: Mutex<BTreeMap<String, u64>>,
}

/// A map with its description, which is in the tracer's code.
#[derive(Clone, Debug)]
pub struct DescribedMap {
    /// Where it is.
    pub place: MapPlace,
    /// Offset of the description.
    pub description: u64,
}

#[derive(Debug)]
struct State {
    layout: Layout,
    code_end: u64,
    /// Addresses of the helpers, by name.
    helpers: Vec<(&'static str, u64)>,
}

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
        let region = UntrustedMemory::new(data, CODE_ROOM)?;
        let state = Mutex::new(State { layout, code_end: data + layout::NAMES, helpers: vec![] });
        let memory =
            SessionMemory { region, cpus, state, running: Mutex::default(), locked: Mutex::default() };
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
        let end = self.data_size() + CODE_ROOM;
        if image.end() > end {
            let (needed, left) = (image.end() - start, end - start.min(end));
            return Err(PlaceError::NoRoom { needed, left });
        }
        for (offset, bytes) in &placement.contents {
            self.region.write(*offset, bytes);
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
        let _ = rustix::fs::fallocate(self.file(), rustix::fs::FallocateFlags::empty(), 0, size);
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
        self.region.data_size()
    }

    /// Number of the inode of the shared memory.
    pub fn inode(&self) -> u64 {
        rustix::fs::fstat(self.file()).map_or(0, |file| file.st_ino)
    }

    /// The shared memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.region.file()
    }

    /// The memory that the processes can write.
    pub fn untrusted(&self) -> &UntrustedMemory {
        &self.region
    }

    /// A word of the data.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        self.region.word(offset)
    }

    /// Half a word of the data.
    pub fn word32(&self, offset: u64) -> &AtomicU32 {
        self.region.word32(offset)
    }

    fn write_code(&self, offset: u64, code: &[u8]) -> io::Result<()> {
        let len = code.len().next_multiple_of(layout::PAGE as usize);
        self.protect(offset, len, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: pages of the code, which no process has; they are writable now, and no thread executes them yet.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.region.address(offset), code.len()) };
        self.protect(offset, len, libc::PROT_READ | libc::PROT_EXEC)
    }

    fn protect(&self, offset: u64, len: usize, access: i32) -> io::Result<()> {
        // SAFETY: pages of the code.
        match unsafe { libc::mprotect(self.region.address(offset).cast(), len, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Runs programs on behalf of a process that has ended and had these [names](layout::NAMES).
    ///
    /// # Errors
    /// mprotect(2) fails; the programs have not run.
    pub fn run_for(&self, entries: impl Iterator<Item = u64>, pid: u32, names: &[u8]) -> io::Result<()> {
        self.write_code(self.data_size(), names)?;
        let own = self.word32(layout::TGID).swap(pid, Ordering::Relaxed);
        self.word32(layout::TID).store(pid, Ordering::Relaxed);
        entries.for_each(|entry| _ = self.enter(entry));
        self.word32(layout::TGID).store(own, Ordering::Relaxed);
        self.write_code(self.data_size(), &names::of(own))
    }

    /// Runs a program in this process.
    pub fn run(&self, entry: u64) -> u64 {
        self.word32(layout::TID)
            .store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
        self.enter(entry)
    }

    /// Runs a program with a context of zeros.
    fn enter(&self, entry: u64) -> u64 {
        let mut context = [0u64; context::SIZE as usize / 8];
        self.call(entry, [context.as_mut_ptr() as u64, 0, 0, 0, 0, 0])
    }

    /// Calls code of the region. The programs' own variables are on the stack below the arguments.
    fn call(&self, entry: u64, arguments: [u64; 6]) -> u64 {
        type Code = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
        // One at a time, since there is one word for the stack.
        let mut since = self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if since.is_none_or(|since| since.elapsed() > BUDGET_PERIOD) {
            *since = Some(Instant::now());
            self.word32(layout::BUDGET).store(BUDGET, Ordering::Relaxed);
        }
        self.word(layout::FRAMES_END).store(arguments.as_ptr().addr() as u64, Ordering::Relaxed);
        // SAFETY: code that was translated from an object of the compiler, or a helper, with arguments as it expects them. It is private
        // memory of this process, and so is all that tells it where maps are. What the processes write into the maps meanwhile is
        // data to it: see the module documentation.
        let code: Code = unsafe { std::mem::transmute(self.region.address(entry)) };
        let [a, b, c, d, e, f] = arguments;
        let result = code(a, b, c, d, e, f);
        std::hint::black_box(&arguments);
        result
    }

    fn helper(&self, name: &str) -> u64 {
        let state = self.state();
        let found = state.helpers.iter().find(|(known, _)| *known == name);
        found.expect("every image has the helpers").1
    }

    /// The cell of a key on a CPU, as an offset.
    pub fn lookup(&self, map: &DescribedMap, key: &[u8], cpu: u32) -> Option<u64> {
        assert!(cpu < map.place.cpus && key.len() == map.place.key_bytes(), "a cell of the map");
        let cell =
            self.call(self.helper(LOOKUP), [self.of(map), key.as_ptr() as u64, 0, 0, 0, u64::from(cpu)]);
        let found = (cell != 0).then(|| cell.wrapping_sub(self.region.address(0) as u64));
        found.filter(|cell| {
            let fits = map.place.memory().contains(cell);
            if !fits {
                self.region.note(Damage::Map);
            }
            fits
        })
    }

    /// Address of the description of a map.
    fn of(&self, map: &DescribedMap) -> u64 {
        self.region.address(map.description) as u64
    }

    /// Inserts a key or replaces its value on a CPU.
    ///
    /// # Errors
    /// E2BIG, EBUSY
    pub fn update(&self, map: &DescribedMap, key: &[u8], value: &[u8], cpu: u32) -> io::Result<()> {
        let sizes = (map.place.key_bytes(), map.place.def.value_size as usize);
        assert!(cpu < map.place.cpus && key.len() == sizes.0 && value.len() >= sizes.1, "a cell of the map");
        let [key, value] = [key.as_ptr() as u64, value.as_ptr() as u64];
        result(self.call(self.helper(UPDATE), [self.of(map), key, value, 0, 0, u64::from(cpu)]))
    }

    /// Counts a change of the tracer that found a map locked.
    pub fn count_locked(&self, symbol: &str) {
        let mut locked = self.locked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *locked.entry(symbol.to_owned()).or_default() += 1;
    }

    /// Changes of the tracer that found a map locked, by the map's symbol.
    pub fn locked(&self) -> BTreeMap<String, u64> {
        self.locked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Damage to the memory, done by a process and not by a program; `None` as far as is known.
    pub fn damage(&self) -> Option<&Damage> {
        self.region.damage()
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
    pub fn delete(&self, map: &DescribedMap, key: &[u8]) -> io::Result<()> {
        assert!(key.len() == map.place.key_bytes(), "a key of the map");
        result(self.call(self.helper(DELETE), [self.of(map), key.as_ptr() as u64, 0, 0, 0, 0]))
    }
}

fn result(value: u64) -> io::Result<()> {
    match value as i64 {
        error @ ..0 => Err(io::Error::from_raw_os_error(-error as i32)),
        _ => Ok(()),
    }
}

/// The reason why an object cannot run in processes.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The object cannot be translated.
    #[error(transparent)]
    Unsupported(#[from] TranslateError),
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
