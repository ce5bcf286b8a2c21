//! The region of memory that a traced process gets: what lies where. Code addresses all of it relative to itself, so that the layout is
//! the same in every process.
//!
//! ```text
//! 0        words of the process alone; a child of `fork` finds zeros there
//! SHARED   words that the tracer writes: clock
//! ...      maps; then room for those of more modules
//! code     descriptions of the maps (`struct map` of maps.c, `struct ring` of ring.c), constants, generated code, the helpers, the detours
//!          of the functions
//! ...      memory of the process alone for its returns (`returns.rs`), which a child of `fork` inherits
//! ```
//!
//! From `SHARED` to the code the memory is the same in all processes of a session and in the tracer, and any of them can write there at any
//! time. So nothing in it says where something is, or how large: that is in the code.
//!
//! A detour is the code between a function that was patched and the programs. A module is a compiled script; one that extends a session
//! uses the session's maps of the same names.

use crate::object::{MapDef, MapKind, Object};
use std::ops::Range;

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;

/// u32: the process's id, in the tracer's pid namespace; 0 in a child of `fork`, which then asks for its id.
pub const TGID: u64 = 8;
/// u32: the thread's id, for [`crate::ThreadId::Word`].
pub const TID: u64 = 12;
/// u32: number of the CPU, for [`crate::CpuNumber::Word`].
pub const CPU: u64 = 16;
/// u32: offset of a thread's id from its thread control block; 0: it is not known.
pub const THREAD_AT: u64 = 20;
/// u32: a number by which helpers distinguish the threads of this process from those of others.
pub const NUMBER: u64 = 24;
/// u32: offset from a thread control block of the address and the size of the thread's stack; 0: it is not known.
pub const STACK_AT: u64 = 28;
/// Two u64: from where to where there is the stack of the process's first thread, or nothing; 0: it is not known.
pub const FIRST_STACK: u64 = 32;
/// Where the words of [`crate::load`] are.
pub const LOAD: u64 = 3136;
/// Room for what system calls of the tracer read and write, 128 bytes.
pub const SCRATCH: u64 = 3584;
/// u64: owner of a chain who did not give it back, see `maps.c`.
pub const STUCK: u64 = 48;
/// u64: end of the stack that programs use which run in the tracer; in a traced process 0.
pub const FRAMES_END: u64 = 56;
/// u32: not 0 if a helper has found that a map is not as its rules make it.
pub const DAMAGED: u64 = 64;
/// u32: attempts for locks of maps that programs in the tracer have left.
pub const BUDGET: u64 = 68;
/// Addresses of functions by the number of the helper that they replace, for [`crate::Environment::Replaced`].
pub const REPLACED: u64 = 128;

/// Start of the words that the tracer writes.
pub const SHARED: u64 = PAGE;
/// u64: which of two [clocks](CLOCK_SIZE) is valid: the tracer fills in the other one, then switches.
pub const CLOCK_NUMBER: u64 = SHARED;
/// u32: a word as of a robust futex. [`ACTIVE_THREAD`]: id of a thread of the tracer; 0 while the detours of all processes pass by.
pub const ACTIVE: u64 = SHARED + 16;
/// The bits of [`ACTIVE`] that the kernel clears when the thread ends: `FUTEX_TID_MASK`.
pub const ACTIVE_THREAD: u32 = 0x3fff_ffff;
/// u64: ns by which the boot clock is ahead of the monotonic clock.
pub const BOOT_AHEAD: u64 = SHARED + 8;
/// u64: number of calls whose return was not traced, since there was no room.
pub const LOST_RETURNS: u64 = SHARED + 24;
/// The clocks.
pub const CLOCKS: u64 = SHARED + 64;
/// Size of a clock in bytes: u64 ns per tick of the time stamp counter, times 2^32; u64 monotonic ns at tick 0.
pub const CLOCK_SIZE: u64 = 16;
/// u32 ids of processes in which a stack walk met code that no [mapping](crate::unwind) covers; the tracer takes them away.
pub const UNKNOWN: u64 = SHARED + 128;
/// Number of such ids, a power of two; a process has its place.
pub const UNKNOWN_IDS: u64 = 64;
/// End of the words.
const MAPS: u64 = UNKNOWN + 4 * UNKNOWN_IDS;

/// Size of the state of a hash in bytes.
pub const HASH_STATE: u64 = 64;
/// Size of the state of a ring buffer in bytes.
const RING_STATE: u64 = 128;
/// Entries of a hash beyond its largest number of keys: while a value is replaced, both are there.
pub const SPARE: u32 = 64;
/// Marks the end of a chain, together with the number of its bucket.
const END: u32 = 0x8000_0000;

/// Bytes at the start of the code for names, which a child of `fork` has, too: that of the executed file with zeros behind it; u64: which
/// of two names of the process is valid, 0 or [`PROCESS_NAME_SIZE`]; these two.
pub const NAMES: u64 = 128;
/// Size of the name of the executed file in bytes.
pub const PROGRAM_NAME_SIZE: u64 = 64;
/// Offset in [`NAMES`] of the number of the process's name.
pub const PROCESS_NAME_NUMBER: u64 = PROGRAM_NAME_SIZE;
/// Offset in [`NAMES`] of the process's names.
pub const PROCESS_NAMES: u64 = PROCESS_NAME_NUMBER + 8;
/// Size of a name of a process in bytes, as the kernel has it.
pub const PROCESS_NAME_SIZE: u64 = 16;

/// Room in bytes for the data of later modules, which may declare all maps of a script: also the largest ones of the compiler. Pages that
/// nobody writes to take no memory.
const ROOM: u64 = 96 << 20;
/// The same for each possible CPU: maps have a value for each.
const ROOM_PER_CPU: u64 = 1 << 20;

/// Where things lie; see the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// All maps.
    pub maps: Vec<MapPlace>,
    /// Start of the code.
    pub code: u64,
    /// Number of possible CPUs.
    cpus: u32,
    /// End of the data.
    next: u64,
}

/// Data of one object.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// By index in [`Object::maps`], the index in [`Layout::maps`].
    pub maps: Vec<usize>,
    /// Contents at the start where they are not zero, by offset. Those of maps that were there before are not among them.
    pub contents: Vec<(u64, Vec<u8>)>,
}

/// A map in the region.
#[derive(Clone, Debug)]
pub struct MapPlace {
    /// Definition.
    pub def: MapDef,
    /// Offset of what changes of a hash or a ring buffer: `struct map_state`, `struct ring_state`.
    pub state: u64,
    /// Offset of the cells, of the entries, or of a ring buffer's data.
    pub cells: u64,
    /// Offset of a hash's buckets: u32 first entry or end, u32 unused, u64 owner.
    pub buckets: u64,
    /// Number of buckets.
    pub bucket_count: u32,
    /// Distance of entries or cells in bytes.
    pub stride: u64,
    /// Number of cells per key.
    pub cpus: u32,
    /// Distance of the cells of two CPUs in an array, in bytes.
    pub cpu_size: u64,
}

/// Offset of a u32 in the state of a hash: entries from this index on were never used.
pub const HASH_FRESH: u64 = 8;
/// Offset of a u64 in the state of a hash: updates that failed since another one did not end.
pub const HASH_REFUSED: u64 = 24;
/// Size of a bucket in bytes.
pub const BUCKET: u64 = 16;
/// Offset of the owner in a bucket.
pub const BUCKET_OWNER: u64 = 8;
/// Offset of a u64 in an entry of a hash: 0 if the entry is free.
pub const ENTRY_USED: u64 = 8;
/// Offset of the key in an entry of a hash: behind u32 next entry, u32 hash, u64 last use.
pub const ENTRY_KEY: u64 = 16;
/// Offset of the writers' position in the state of a ring buffer.
pub const RING_PRODUCED: u64 = 0;
/// Offset of the reader's position in the state of a ring buffer.
pub const RING_CONSUMED: u64 = 64;

fn round8(size: u32) -> u64 {
    u64::from(size).next_multiple_of(8)
}

impl Layout {
    /// A layout for a session that begins with an object, on a machine with this number of possible CPUs.
    pub fn new(object: &Object, cpus: u32) -> (Layout, Placement) {
        Layout::with_room(object, &[], cpus)
    }

    /// The same, with room for modules that are known to extend it.
    pub fn with_room(object: &Object, known: &[Object], cpus: u32) -> (Layout, Placement) {
        let mut layout = Layout { cpus, next: MAPS, ..Layout::default() };
        let placement = layout.place(object);
        let mut extended = layout.clone();
        known.iter().for_each(|object| drop(extended.place(object)));
        layout.code = extended.next.next_multiple_of(PAGE) + ROOM + ROOM_PER_CPU * u64::from(cpus);
        (layout, placement)
    }

    /// Places the data of a module; `None` if there is no room.
    pub fn extend(&mut self, object: &Object) -> Option<Placement> {
        let mut extended = self.clone();
        let placement = extended.place(object);
        let fits = extended.next <= self.code;
        fits.then(|| {
            *self = extended;
            placement
        })
    }

    /// Size in bytes of the data of a module, and of the room that is left.
    pub fn room_for(&self, object: &Object) -> (u64, u64) {
        let mut extended = self.clone();
        extended.place(object);
        (extended.next - self.next, self.code.saturating_sub(self.next))
    }

    /// Places the maps of an object that are new.
    fn place(&mut self, object: &Object) -> Placement {
        let mut placement = Placement::default();
        for def in &object.maps {
            if let Some(known) = self.maps.iter().position(|map| map.def.name == def.name) {
                placement.maps.push(known);
                continue;
            }
            let map = MapPlace::new(def, self.cpus, &mut |size, align| self.take(size, align));
            placement.contents.extend(map.contents());
            placement.maps.push(self.maps.len());
            self.maps.push(map);
        }
        placement
    }

    fn take(&mut self, size: u64, align: u64) -> u64 {
        let at = self.next.next_multiple_of(align);
        self.next = at + size;
        at
    }

    /// Offset after the data of the modules that were added.
    pub fn data_end(&self) -> u64 {
        self.next
    }

    /// A map by its symbol.
    pub fn map(&self, name: &str) -> Option<&MapPlace> {
        self.maps.iter().find(|map| map.def.name == name)
    }
}

impl MapPlace {
    fn new(def: &MapDef, cpus: u32, take: &mut impl FnMut(u64, u64) -> u64) -> MapPlace {
        let cpus = if def.kind.is_per_cpu() { cpus } else { 1 };
        let mut place = MapPlace {
            def: def.clone(),
            state: 0,
            cells: 0,
            buckets: 0,
            bucket_count: 0,
            stride: round8(def.value_size),
            cpus,
            cpu_size: 0,
        };
        match def.kind {
            MapKind::Array | MapKind::PerCpuArray => {
                place.cpu_size = (place.stride * u64::from(def.max_entries)).next_multiple_of(64);
                place.cells = take(place.cpu_size * u64::from(cpus), 64);
            }
            MapKind::Hash | MapKind::PerCpuHash | MapKind::LruHash | MapKind::PerCpuLruHash => {
                place.state = take(HASH_STATE, 64);
                place.stride = ENTRY_KEY + round8(def.key_size) + round8(def.value_size) * u64::from(cpus);
                place.cells = take(place.stride * u64::from(def.max_entries + SPARE), 64);
                place.bucket_count = def.max_entries.max(1).next_power_of_two();
                place.buckets = take(BUCKET * u64::from(place.bucket_count), 64);
            }
            MapKind::Ring => {
                place.state = take(RING_STATE, 64);
                place.cells = take(u64::from(def.max_entries), PAGE);
            }
            MapKind::StackTrace => {}
        }
        place
    }

    /// Whether generated code can use the map.
    pub fn is_supported(&self) -> bool {
        self.def.kind != MapKind::StackTrace
    }

    /// Contents at the start: the ends of the chains of a hash.
    fn contents(&self) -> Option<(u64, Vec<u8>)> {
        let bucket = |number: u32| [u64::from(END | number), 0];
        (self.bucket_count > 0).then(|| (self.buckets, bytes((0..self.bucket_count).flat_map(bucket))))
    }

    /// The description, for an offset in the region: `struct map` of maps.c, `struct ring` of ring.c.
    pub(crate) fn description(&self, at: u64) -> Vec<u8> {
        let from_here = |offset: u64| offset.wrapping_sub(at);
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let kind = match self.def.kind {
            MapKind::Ring => {
                let size = u64::from(self.def.max_entries);
                return bytes([size, from_here(self.cells), from_here(self.state), from_here(0)]);
            }
            MapKind::Hash => 1,
            MapKind::Array => 2,
            MapKind::PerCpuHash => 5,
            MapKind::PerCpuArray => 6,
            MapKind::LruHash => 9,
            MapKind::PerCpuLruHash => 10,
            MapKind::StackTrace => 0,
        };
        bytes([
            pair(kind, self.def.key_size),
            pair(self.def.value_size, self.def.max_entries),
            pair(self.stride as u32, self.cpus),
            pair(self.bucket_count.saturating_sub(1), self.def.max_entries + SPARE),
            from_here(self.cells),
            from_here(self.buckets),
            self.cpu_size,
            from_here(self.state),
            from_here(0),
        ])
    }

    /// Size of a key in bytes.
    pub fn key_bytes(&self) -> usize {
        self.def.key_size as usize
    }

    /// Offsets of all its entries or cells.
    pub fn memory(&self) -> Range<u64> {
        let entries = match self.def.kind {
            MapKind::Array | MapKind::PerCpuArray => self.cpu_size * u64::from(self.cpus),
            MapKind::Ring => self.def.max_entries.into(),
            _ => self.stride * u64::from(self.def.max_entries + SPARE),
        };
        self.cells..self.cells + entries
    }
}

fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}
