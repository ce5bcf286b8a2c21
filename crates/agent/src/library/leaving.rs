//! Passes on the last records when a process ends without the handlers of exit(3) (`_exit`, by which Python's workers end, or `abort`), or
//! executes another program.
//!
//! The program and its libraries call these functions through pointers that the loader has written: the global offset table, one entry for
//! each file and function. While records are collected, these entries point to the functions here, which pass the records on and then call
//! the original. An entry is changed in one write, so that another thread calls either the old or the new function. Not seen: calls within
//! the C library, and system calls that the program makes itself.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use crate::presence;
use crate::sys::{self, LoadedObject, Segment};

/// Milliseconds that the execution of another program waits for the last records.
const PATIENCE: i64 = 1000;

/// A list of functions with the symbols, which end the process or execute another program in it.
macro_rules! functions {
    ($count:literal; $($number:literal $name:ident: $symbol:literal)*) => {
        $(
            /// Keeps all registers in which arguments are.
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!(
                    "push rbp", "mov rbp, rsp",
                    "push rax", "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push r10",
                    "mov edi, {number}",
                    "call {leaves}",
                    "pop r10", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi", "pop rax",
                    "pop rbp",
                    "lea r11, [rip + {originals}]",
                    "jmp qword ptr [r11 + 8 * {number}]",
                    number = const $number,
                    leaves = sym leaves,
                    originals = sym ORIGINALS,
                )
            }
        )*

        /// The functions here that take the place of those.
        const REPLACEMENTS: [(extern "C" fn(), &CStr); $count] = [$(($name, $symbol)),*];
    };
}

functions! { 13;
    0 exit: c"_exit"
    1 exit_of_c: c"_Exit"
    2 quick_exit: c"quick_exit"
    3 abort: c"abort"
    4 execve: c"execve"
    5 execv: c"execv"
    6 execvp: c"execvp"
    7 execvpe: c"execvpe"
    8 execl: c"execl"
    9 execlp: c"execlp"
    10 execle: c"execle"
    11 fexecve: c"fexecve"
    12 execveat: c"execveat"
}

/// How many of them end the process. The others may fail.
const ENDING: u32 = 4;

/// The functions themselves.
static ORIGINALS: [AtomicUsize; REPLACEMENTS.len()] = [const { AtomicUsize::new(0) }; REPLACEMENTS.len()];
/// How often the last records were asked for, and up to which request they were passed on.
static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);

/// Called by a thread that is about to leave.
extern "C" fn leaves(number: u32) {
    if !presence::runs_here() {
        return;
    }
    if number < ENDING {
        return presence::pass_on_last();
    }
    let request = ASKED.fetch_add(1, AcqRel) + 1;
    for _ in 0..PATIENCE {
        if ANSWERED.load(Acquire) >= request || !presence::runs_here() {
            return;
        }
        sys::sleep(1);
    }
}

/// The last request so far.
pub(crate) fn asked() -> u32 {
    ASKED.load(Acquire)
}

/// Whether a request is not answered yet.
pub(crate) fn is_asked(request: u32) -> bool {
    request != ANSWERED.load(Acquire)
}

/// All records were passed on that were there at the time of a request.
pub(crate) fn answer(request: u32) {
    ANSWERED.store(request, Release);
}

/// Lets the functions lead here, in all libraries that are loaded.
pub(crate) fn watch() {
    for ((_, symbol), original) in REPLACEMENTS.iter().zip(&ORIGINALS) {
        // SAFETY: a name that ends with zero.
        original.store(unsafe { sys::dlsym(null_mut(), symbol.as_ptr()) }.addr(), Release);
    }
    lead(true);
}

/// Lets them lead to themselves again.
pub(crate) fn unwatch() {
    lead(false);
}

fn lead(here: bool) {
    let mut here = here;
    // SAFETY: `see` gets this value.
    unsafe { sys::dl_iterate_phdr(see, (&raw mut here).cast()) };
}

/// A library of the process. It is not unloaded meanwhile, since the walk has a lock of the loader.
extern "C" fn see(object: *const LoadedObject, _: usize, here: *mut c_void) -> c_int {
    // SAFETY: of the C library's walk, and the value of `lead`.
    let (object, here) = unsafe { (&*object, *here.cast::<bool>()) };
    if let Some(library) = Library::of(object) {
        library.lead(here);
    }
    0
}

/// A library, as the loader describes it.
struct Library {
    base: usize,
    /// All of it.
    memory: Range<usize>,
    /// Memory that the loader has made read-only.
    protected: Range<usize>,
    dynamic: *const [usize; 2],
}

/// Tags of the dynamic section.
mod tag {
    pub(super) const END: usize = 0;
    pub(super) const PLT_SIZE: usize = 2;
    pub(super) const STRINGS: usize = 5;
    pub(super) const SYMBOLS: usize = 6;
    pub(super) const RELOCATIONS: usize = 7;
    pub(super) const SIZE: usize = 8;
    pub(super) const PLT: usize = 23;
}

/// `Elf64_Rela`
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// `Elf64_Sym`
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

const PAGE: usize = 4096;

impl Library {
    /// `None` for a file that imports nothing, and for this library.
    fn of(object: &LoadedObject) -> Option<Library> {
        const DYNAMIC: u32 = 2;
        const RELRO: u32 = 0x6474_e552;
        const LOAD: u32 = 1;
        if object.segments.is_null() {
            return None;
        }
        // SAFETY: the loader's table.
        let segments: &[Segment] =
            unsafe { core::slice::from_raw_parts(object.segments, object.count.into()) };
        let base = object.address;
        let memory = |segment: &Segment| {
            let start = base.wrapping_add(segment.address);
            start..start.wrapping_add(segment.size)
        };
        let loaded = || segments.iter().filter(|segment| segment.kind == LOAD).map(memory);
        let all = loaded().map(|part| part.start).min()?..loaded().map(|part| part.end).max()?;
        if all.contains(&(leaves as *const ()).addr()) {
            return None;
        }
        let dynamic = memory(segments.iter().find(|segment| segment.kind == DYNAMIC)?).start;
        let protected = segments.iter().find(|segment| segment.kind == RELRO).map_or(0..0, memory);
        let protected = protected.start / PAGE * PAGE..protected.end / PAGE * PAGE;
        Some(Library { base, memory: all, protected, dynamic: core::ptr::with_exposed_provenance(dynamic) })
    }

    /// Lets its words lead here, or to the functions themselves.
    fn lead(&self, here: bool) {
        let (Some(symbols), Some(strings)) = (self.address(tag::SYMBOLS), self.address(tag::STRINGS)) else {
            return;
        };
        for (table, size) in [(tag::PLT, tag::PLT_SIZE), (tag::RELOCATIONS, tag::SIZE)] {
            let (Some(table), Some(size)) = (self.address(table), self.value(size)) else { continue };
            for number in 0..size / size_of::<Relocation>() {
                // SAFETY: within the library's table.
                let relocation =
                    unsafe { &*core::ptr::with_exposed_provenance::<Relocation>(table).add(number) };
                if let Some(function) = function(relocation, symbols, strings) {
                    self.write(self.base.wrapping_add(relocation.offset), function, here);
                }
            }
        }
    }

    /// Writes the word of a function, unless another tool has.
    fn write(&self, at: usize, function: usize, here: bool) {
        let (replacement, original) = (REPLACEMENTS[function].0 as usize, ORIGINALS[function].load(Acquire));
        if original == 0 || !at.is_multiple_of(size_of::<usize>()) {
            return;
        }
        // SAFETY: a word of the library, which is not unloaded meanwhile.
        let word = unsafe { &*core::ptr::with_exposed_provenance::<AtomicUsize>(at) };
        let now = word.load(Acquire);
        let new = match here {
            // The word of a function that was not called yet leads into the library itself.
            true if now == original || self.memory.contains(&now) => replacement,
            false if now == replacement => original,
            // A page is left alone: the loader may be writing to it, if another thread loads this library now.
            _ => return,
        };
        let page = core::ptr::with_exposed_provenance_mut(at / PAGE * PAGE);
        let is_protected = self.protected.contains(&at);
        // SAFETY: its page becomes what it was.
        unsafe {
            if is_protected && sys::mprotect(page, PAGE, sys::PROT_READ_WRITE) != 0 {
                return;
            }
            let _ = word.compare_exchange(now, new, AcqRel, Acquire);
            if is_protected {
                sys::mprotect(page, PAGE, sys::PROT_READ);
            }
        }
    }

    /// The value of a tag.
    fn value(&self, tag: usize) -> Option<usize> {
        (0..)
            .map(|number| {
                // SAFETY: the section ends with its own tag.
                unsafe { *self.dynamic.add(number) }
            })
            .take_while(|[found, _]| *found != tag::END)
            .find(|[found, _]| *found == tag)
            .map(|[_, value]| value)
    }

    /// The value of a tag that is an address. glibc has added the base to it, musl has not.
    fn address(&self, tag: usize) -> Option<usize> {
        self.value(tag).map(|value| if value < self.base { value.wrapping_add(self.base) } else { value })
    }
}

/// The function whose word the loader writes by a relocation.
fn function(relocation: &Relocation, symbols: usize, strings: usize) -> Option<usize> {
    const WORD: u32 = 6;
    const CALLED_WORD: u32 = 7;
    if ![WORD, CALLED_WORD].contains(&(relocation.info as u32)) {
        return None;
    }
    // SAFETY: a symbol of the library, and its name, which ends with zero.
    let name = unsafe {
        let symbol =
            core::ptr::with_exposed_provenance::<Symbol>(symbols).add((relocation.info >> 32) as usize);
        CStr::from_ptr(core::ptr::with_exposed_provenance(strings + (*symbol).name as usize))
    };
    REPLACEMENTS.iter().position(|(_, symbol)| *symbol == name)
}

const _: () =
    assert!(offset_of!(Symbol, value) == 8 && size_of::<Symbol>() == 24 && size_of::<Relocation>() == 24);
