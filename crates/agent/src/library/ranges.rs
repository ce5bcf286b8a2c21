//! Ranges of NVTX, which a program pushes and pops around parts of its work: the innermost range of each thread, so that a launch can be
//! told its range.
//!
//! NVTX is a header that is compiled into each library that uses it. At its first call such a library loads the file of
//! `NVTX_INJECTION64_PATH`, which is this one, and calls [`InitializeInjectionNvtx2`](crate::InitializeInjectionNvtx2). That puts our functions
//! into the library's table, and NVTX calls them from then on. Names and numbers are those of nvtxDetail/nvtxTypes.h of NVTX 3.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use crate::names::TextTable;
use crate::sys::ReservedMemory;
use crate::thread_id;

/// Size of a name with the zero byte that ends it; longer ones are cut.
const NAME: usize = 64;
/// Different names that are kept.
const NAMES: usize = 1 << 13;
/// Threads whose ranges are kept.
const THREADS: usize = 1 << 12;
/// Ranges in each other that are kept for a thread.
const DEPTH: usize = 14;
/// Places at which a thread is looked for.
const TRIES: usize = 64;
/// Libraries whose tables are cleared at the end.
const TABLES: usize = 64;
/// The name of ranges that had no room.
const OTHERS: &[u8] = b"[other ranges]\0";

/// The ranges of a thread.
struct Thread {
    /// Id of the thread, and below it the number of its ranges; 0: none. Without ranges another thread may take the place, as threads end.
    state: AtomicU64,
    names: [AtomicU64; DEPTH],
}

/// The bits of [`Thread::state`] that have the number of ranges.
const DEPTH_BITS: u32 = 32;

static NAMED: TextTable<NAME> = TextTable::of(NAMES);
static THREADED: ReservedMemory<Thread> = ReservedMemory::of(THREADS);
/// Functions by which the libraries with NVTX give their tables.
static GETTERS: [AtomicPtr<c_void>; TABLES] = [const { AtomicPtr::new(null_mut()) }; TABLES];

/// `NvtxGetExportTableFunc_t`
pub(crate) type GetTable = unsafe extern "C" fn(id: u32) -> *const Callbacks;

/// `NvtxExportTableCallbacks`
#[repr(C)]
pub(crate) struct Callbacks {
    size: usize,
    functions:
        unsafe extern "C" fn(module: u32, table: *mut *const *mut *const c_void, size: *mut c_uint) -> c_int,
}

/// `NVTX_ETID_CALLBACKS`
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE` and `NVTX_CB_MODULE_CORE2`
const MODULES: [u32; 2] = [1, 5];

/// A function that NVTX calls.
struct TableEntry {
    module: u32,
    /// Index in the table of the module.
    number: usize,
    function: *const c_void,
}

fn functions() -> [TableEntry; 8] {
    let entry = |module, number, function| TableEntry { module, number, function };
    [
        entry(1, 8, push as *const c_void),
        entry(1, 9, push_text as *const c_void),
        entry(1, 10, push_wide_text as *const c_void),
        entry(1, 11, pop as *const c_void),
        entry(5, 4, push_in_domain as *const c_void),
        entry(5, 5, pop_in_domain as *const c_void),
        entry(5, 10, register_text as *const c_void),
        entry(5, 11, register_wide_text as *const c_void),
    ]
}

/// Puts the functions into the table of a library. Returns 1 if that has worked.
///
/// # Safety
/// The function is NVTX's.
pub(crate) unsafe fn hook(get: GetTable) -> c_int {
    if !NAMED.reserve() || !THREADED.reserve() {
        return 0;
    }
    let is_hooked = set(get, true);
    let free = |place: &&AtomicPtr<c_void>| {
        place.compare_exchange(null_mut(), get as *mut c_void, AcqRel, Acquire).is_ok()
    };
    GETTERS.iter().find(free);
    c_int::from(is_hooked)
}

/// Takes the functions out of all tables, so that ranges cost nothing any more.
pub(crate) fn unhook() {
    for getter in &GETTERS {
        let get = getter.swap(null_mut(), AcqRel);
        if !get.is_null() {
            // SAFETY: it was stored by `hook`.
            set(unsafe { core::mem::transmute::<*mut c_void, GetTable>(get) }, false);
        }
    }
}

/// Writes the functions of a table, or null. False if the library has no table.
fn set(get: GetTable, on: bool) -> bool {
    // SAFETY: NVTX's function and structs; its table has pointers to the pointers that it calls.
    unsafe {
        let callbacks = get(CALLBACKS);
        if callbacks.is_null() {
            return false;
        }
        for module in MODULES {
            let (mut table, mut size) = (null(), 0);
            if ((*callbacks).functions)(module, &raw mut table, &raw mut size) == 0 {
                continue;
            }
            let own = functions().into_iter().filter(|entry| entry.module == module);
            for entry in own.filter(|entry| entry.number < size as usize) {
                let place: *mut *const c_void = *table.add(entry.number);
                if !place.is_null() {
                    place.write_volatile(if on { entry.function } else { null() });
                }
            }
        }
    }
    true
}

/// Address of the name of this thread's innermost range; 0: none.
pub(crate) fn current(tid: u32) -> u64 {
    match find(tid) {
        Some((_, 0)) | None => 0,
        Some((thread, depth)) => thread.names[(depth as usize).min(DEPTH) - 1].load(Relaxed),
    }
}

/// `nvtxEventAttributes_t`, as far as it is used.
#[repr(C)]
struct Attributes {
    unused: [u64; 4],
    kind: u32,
    message: *const c_void,
}

/// `NVTX_MESSAGE_TYPE_ASCII`
const TEXT: u32 = 1;
/// `NVTX_MESSAGE_TYPE_UNICODE`
const WIDE_TEXT: u32 = 2;
/// `NVTX_MESSAGE_TYPE_REGISTERED`
const REGISTERED: u32 = 3;

extern "C" fn push(attributes: *const Attributes) -> c_int {
    if attributes.is_null() {
        return begin(OTHERS.as_ptr());
    }
    // SAFETY: the program's struct, whose first version has these members.
    let (kind, message) = unsafe { ((*attributes).kind, (*attributes).message) };
    begin(match kind {
        TEXT => name(message.cast::<u8>()),
        WIDE_TEXT => wide_name(message.cast()),
        REGISTERED => message.cast(),
        _ => OTHERS.as_ptr(),
    })
}

extern "C" fn push_text(text: *const c_char) -> c_int {
    begin(name(text.cast()))
}

extern "C" fn push_wide_text(text: *const u32) -> c_int {
    begin(wide_name(text))
}

extern "C" fn push_in_domain(_: *const c_void, attributes: *const Attributes) -> c_int {
    push(attributes)
}

extern "C" fn pop_in_domain(_: *const c_void) -> c_int {
    pop()
}

/// The handle of a text is the address of its name.
extern "C" fn register_text(_: *const c_void, text: *const c_char) -> *const u8 {
    name(text.cast())
}

extern "C" fn register_wide_text(_: *const c_void, text: *const u32) -> *const u8 {
    wide_name(text)
}

/// Begins a range of this thread; returns how many are around it.
fn begin(name: *const u8) -> c_int {
    let tid = thread_id::current();
    let Some((thread, depth)) =
        find(tid).and_then(|(thread, depth)| enter(thread, tid, depth)).or_else(|| take(tid))
    else {
        return 0;
    };
    if let Some(place) = thread.names.get(depth as usize) {
        place.store(name.addr() as u64, Relaxed);
    }
    depth as c_int
}

/// Counts a range more, unless another thread has just taken the place.
fn enter(thread: &'static Thread, tid: u32, depth: u32) -> Option<(&'static Thread, u32)> {
    let change = thread.state.compare_exchange(state(tid, depth), state(tid, depth + 1), AcqRel, Relaxed);
    change.is_ok().then_some((thread, depth))
}

/// Ends a range of this thread; returns how many are around it, or -1 if there was none.
extern "C" fn pop() -> c_int {
    let tid = thread_id::current();
    match find(tid) {
        Some((_, 0)) | None => -1,
        Some((thread, depth)) => {
            thread.state.store(state(tid, depth - 1), Release);
            depth as c_int - 1
        }
    }
}

fn state(tid: u32, depth: u32) -> u64 {
    u64::from(tid) << DEPTH_BITS | u64::from(depth)
}

/// The places at which the ranges of a thread may be.
fn places(tid: u32) -> impl Iterator<Item = &'static Thread> {
    let first = THREADED.first();
    let start = tid.wrapping_mul(0x9e37_79b1) as usize;
    let count = if first.is_null() { 0 } else { TRIES };
    // SAFETY: within the memory, whose zeros are valid.
    (0..count).map(move |more| unsafe { &*first.add(start.wrapping_add(more) % THREADS) })
}

/// The ranges of a thread, and their number.
fn find(tid: u32) -> Option<(&'static Thread, u32)> {
    for thread in places(tid) {
        match thread.state.load(Acquire) {
            0 => return None,
            known if (known >> DEPTH_BITS) as u32 == tid => return Some((thread, known as u32)),
            _ => {}
        }
    }
    None
}

/// Takes a place for the first range of a thread.
fn take(tid: u32) -> Option<(&'static Thread, u32)> {
    let mut places = places(tid);
    places
        .find(|thread| {
            let before = thread.state.load(Acquire);
            let has_ranges = before as u32 != 0;
            !has_ranges && thread.state.compare_exchange(before, state(tid, 1), AcqRel, Acquire).is_ok()
        })
        .map(|thread| (thread, 0))
}

/// The kept name for a text that ends with zero; for null an empty one.
fn name(text: *const u8) -> *const u8 {
    let text = if text.is_null() { c"".as_ptr() } else { text.cast() };
    NAMED.keep(text).unwrap_or(OTHERS.as_ptr())
}

/// The kept name for a text of wide characters; what is not ASCII becomes a question mark.
fn wide_name(text: *const u32) -> *const u8 {
    let mut bytes = [0; NAME];
    if !text.is_null() {
        for (at, byte) in bytes[..NAME - 1].iter_mut().enumerate() {
            // SAFETY: the zero was not reached yet.
            let wide = unsafe { text.add(at).read() };
            *byte = u8::try_from(wide).ok().filter(u8::is_ascii).unwrap_or(b'?');
            if wide == 0 {
                break;
            }
        }
    }
    name(bytes.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn text(name: *const u8) -> &'static str {
        // SAFETY: a kept name, which ends with zero.
        unsafe { CStr::from_ptr(name.cast()) }.to_str().unwrap()
    }

    #[test]
    fn the_innermost_range_of_a_thread_is_known_however_deep_it_is() {
        assert!(NAMED.reserve() && THREADED.reserve());
        let me = thread_id::current();
        assert_eq!((current(me), pop()), (0, -1));
        assert_eq!(push_text(c"step".as_ptr()), 0);
        assert_eq!(push_text(c"forward".as_ptr()), 1);
        let name = |of: u64| text(core::ptr::with_exposed_provenance(of as usize));
        assert_eq!(name(current(me)), "forward");
        for depth in 2..40 {
            assert_eq!(push_text(c"deep".as_ptr()), depth);
        }
        assert_eq!(name(current(me)), "deep");
        for depth in (2..40).rev() {
            assert_eq!(pop(), depth);
        }
        assert_eq!((name(current(me)), pop(), name(current(me)), pop()), ("forward", 1, "step", 0));
        assert_eq!(current(me), 0);
        std::thread::spawn(move || assert_eq!(current(thread_id::current()), 0)).join().unwrap();
    }

    #[test]
    fn threads_that_have_ended_leave_their_place_to_others() {
        assert!(NAMED.reserve() && THREADED.reserve());
        for _ in 0..3 * THREADS {
            let in_range = || {
                assert_eq!(push_text(c"short".as_ptr()), 0);
                assert_ne!(current(thread_id::current()), 0);
                assert_eq!(pop(), 0);
            };
            std::thread::spawn(in_range).join().unwrap();
        }
    }

    #[test]
    fn names_are_kept_once_cut_and_come_from_all_kinds_of_text() {
        assert!(NAMED.reserve());
        assert_eq!(name(c"a range".as_ptr().cast()), name(c"a range".as_ptr().cast()));
        let wide: Vec<u32> = "a range ü\0".chars().map(u32::from).collect();
        assert_eq!(text(wide_name(wide.as_ptr())), "a range ?");
        let long = "x".repeat(200) + "\0";
        assert_eq!(text(name(long.as_ptr())), "x".repeat(63));
        let handle = register_text(core::ptr::null(), c"registered".as_ptr());
        assert_eq!(text(handle), "registered");
    }
}
