//! Ranges of NVTX, which a program puts around parts of its work: the innermost range of each thread, so that a launch can be told its
//! range; and, if they are asked for, a record of each range at its end and of each mark.
//!
//! NVTX is a header that is compiled into each library that uses it. At its first call such a library loads the file of
//! `NVTX_INJECTION64_PATH`, which is this one, and calls [`InitializeInjectionNvtx2`](crate::InitializeInjectionNvtx2). That puts our functions
//! into the library's table, and NVTX calls them from then on. Names and numbers are those of nvtxDetail/nvtxTypes.h of NVTX 3.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use crate::names::TextTable;
use crate::record::{Kind, Record};
use crate::sys::{self, ReservedMemory};
use crate::threads::{Stack, ThreadTable};
use crate::{batch, thread_id};

/// Size of a name with the zero byte that ends it; longer ones are cut.
const NAME: usize = 64;
/// Different names that are kept.
const NAMES: usize = 1 << 13;
/// Ranges in each other that are kept for a thread; deeper ones have no records.
const DEPTH: usize = 32;
/// Ranges that one thread starts and any thread ends, at a time; further ones have no records.
const STARTED: usize = 1 << 12;
/// Names of categories.
const CATEGORIES: usize = 128;
/// Places at which a started range is looked for.
const TRIES: usize = 64;
/// Libraries whose tables are cleared at the end.
const TABLES: usize = 64;
/// The name of ranges that had no room.
const OTHERS: &[u8] = b"[other ranges]\0";

/// A range or a mark as the program describes it.
#[derive(Copy, Clone, Default)]
struct Range {
    /// Address of its name.
    name: u64,
    /// Address of the name of its domain; 0: the default one.
    domain: u64,
    /// The bits of a number that belongs to it.
    payload: u64,
    /// `nvtxPayloadType_t`; 0: no payload.
    payload_type: u32,
    category: u32,
}

/// Room for a range that is not over.
struct Place {
    /// Nanoseconds of CLOCK_MONOTONIC.
    start: AtomicU64,
    name: AtomicU64,
    domain: AtomicU64,
    payload: AtomicU64,
    /// Category, and above it the type of the payload.
    kinds: AtomicU64,
}

impl Place {
    fn store(&self, range: Range, start: u64) {
        self.start.store(start, Relaxed);
        self.name.store(range.name, Relaxed);
        self.domain.store(range.domain, Relaxed);
        self.payload.store(range.payload, Relaxed);
        self.kinds.store(u64::from(range.payload_type) << 32 | u64::from(range.category), Relaxed);
    }

    fn load(&self) -> (Range, u64) {
        let kinds = self.kinds.load(Relaxed);
        let range = Range {
            name: self.name.load(Relaxed),
            domain: self.domain.load(Relaxed),
            payload: self.payload.load(Relaxed),
            payload_type: (kinds >> 32) as u32,
            category: kinds as u32,
        };
        (range, self.start.load(Relaxed))
    }
}

/// A range that any thread may end.
struct OpenRange {
    /// Id that the program has of it; [`FREE`], or [`TAKEN`].
    id: AtomicU64,
    range: Place,
}

const FREE: u64 = 0;
const TAKEN: u64 = u64::MAX;

/// The name of a category of a domain.
struct Category {
    /// Number of the category + 1; 0: none.
    number: AtomicU64,
    domain: AtomicU64,
    name: AtomicU64,
}

/// How a range was made, as records have it.
#[derive(Copy, Clone)]
enum Form {
    /// By push and pop of one thread.
    Pushed = 0,
    /// By start and end.
    Started = 1,
    /// An instant.
    Mark = 2,
}

static NAMED: TextTable<NAME> = TextTable::of(NAMES);
/// By the ids of threads.
static THREADED: ThreadTable<Place, DEPTH> = ThreadTable::new();
static OPEN: ReservedMemory<OpenRange> = ReservedMemory::of(STARTED);
static CATEGORIZED: [Category; CATEGORIES] =
    [const { Category { number: AtomicU64::new(0), domain: AtomicU64::new(0), name: AtomicU64::new(0) } };
        CATEGORIES];
/// Id of the range that was started last.
static LAST_ID: AtomicU64 = AtomicU64::new(0);
/// Whether ranges and marks have records.
static HAVE_RECORDS: AtomicBool = AtomicBool::new(false);
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

fn functions() -> [TableEntry; 24] {
    let entry = |module, number, function| TableEntry { module, number, function };
    [
        entry(1, 1, mark as *const c_void),
        entry(1, 2, mark_text as *const c_void),
        entry(1, 3, mark_wide_text as *const c_void),
        entry(1, 4, start as *const c_void),
        entry(1, 5, start_text as *const c_void),
        entry(1, 6, start_wide_text as *const c_void),
        entry(1, 7, end as *const c_void),
        entry(1, 8, push as *const c_void),
        entry(1, 9, push_text as *const c_void),
        entry(1, 10, push_wide_text as *const c_void),
        entry(1, 11, pop as *const c_void),
        entry(1, 12, name_category as *const c_void),
        entry(1, 13, wide_name_category as *const c_void),
        entry(5, 1, mark_in_domain as *const c_void),
        entry(5, 2, start_in_domain as *const c_void),
        entry(5, 3, end_in_domain as *const c_void),
        entry(5, 4, push_in_domain as *const c_void),
        entry(5, 5, pop_in_domain as *const c_void),
        entry(5, 8, name_category_in_domain as *const c_void),
        entry(5, 9, wide_name_category_in_domain as *const c_void),
        entry(5, 10, register_text as *const c_void),
        entry(5, 11, register_wide_text as *const c_void),
        entry(5, 12, create_domain as *const c_void),
        entry(5, 13, create_wide_domain as *const c_void),
    ]
}

/// Puts the functions into the table of a library. Returns 1 if that has worked.
///
/// # Safety
/// The function is NVTX's.
pub(crate) unsafe fn hook(get: GetTable) -> c_int {
    if !NAMED.reserve() || !THREADED.reserve() || !OPEN.reserve() {
        return 0;
    }
    keep(get);
    let is_hooked = set(get, true);
    let free = |place: &&AtomicPtr<c_void>| {
        place.compare_exchange(null_mut(), get as *mut c_void, AcqRel, Acquire).is_ok()
    };
    GETTERS.iter().find(free);
    c_int::from(is_hooked)
}

/// Keeps the library of a function, which is called again at the end: NVTX does not. A program is never unloaded, and has no path to open.
fn keep(get: GetTable) {
    if let Some(object) = sys::object_of(get as *const c_void) {
        // SAFETY: a path that ends with zero.
        unsafe { sys::dlopen(object.path, sys::RTLD_LAZY | sys::RTLD_NOLOAD | sys::RTLD_NODELETE) };
    }
}

/// Whether ranges that end, and marks, have records from now on.
pub(crate) fn record(on: bool) {
    HAVE_RECORDS.store(on, Relaxed);
}

/// Takes the functions out of all tables, so that ranges cost nothing any more.
pub(crate) fn unhook() {
    for getter in &GETTERS {
        let get = getter.swap(null_mut(), AcqRel);
        if !get.is_null() && sys::object_of(get).is_some() {
            // SAFETY: it was stored by `hook`, and its library is loaded.
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
    let innermost = THREADED.find(tid.into()).and_then(|stack| stack.kept().last());
    innermost.map_or(0, |range| range.name.load(Relaxed))
}

/// `nvtxEventAttributes_t`, as far as it is used.
#[repr(C)]
struct Attributes {
    version: u32,
    category: u32,
    colour: [u32; 2],
    payload_type: u32,
    unused: u32,
    payload: u64,
    kind: u32,
    message: *const c_void,
}

/// `NVTX_MESSAGE_TYPE_ASCII`
const TEXT: u32 = 1;
/// `NVTX_MESSAGE_TYPE_UNICODE`
const WIDE_TEXT: u32 = 2;
/// `NVTX_MESSAGE_TYPE_REGISTERED`
const REGISTERED: u32 = 3;

/// A domain's handle is the address of its name.
type Domain = *const u8;

/// The range that a program describes.
fn described(domain: Domain, attributes: *const Attributes) -> Range {
    let domain = domain.addr() as u64;
    if attributes.is_null() {
        return Range { name: OTHERS.as_ptr().addr() as u64, domain, ..Range::default() };
    }
    // SAFETY: the program's struct, whose first version has these members.
    let attributes = unsafe { &*attributes };
    let name = match attributes.kind {
        TEXT => name(attributes.message.cast::<u8>()),
        WIDE_TEXT => wide_name(attributes.message.cast()),
        REGISTERED => attributes.message.cast(),
        _ => OTHERS.as_ptr(),
    };
    let Attributes { payload_type, payload, category, .. } = *attributes;
    Range { name: name.addr() as u64, domain, payload, payload_type, category }
}

/// A range of the default domain that has a name alone.
fn named(name: *const u8) -> Range {
    Range { name: name.addr() as u64, ..Range::default() }
}

extern "C" fn push(attributes: *const Attributes) -> c_int {
    begin(described(null(), attributes))
}

extern "C" fn push_text(text: *const c_char) -> c_int {
    begin(named(name(text.cast())))
}

extern "C" fn push_wide_text(text: *const u32) -> c_int {
    begin(named(wide_name(text)))
}

extern "C" fn push_in_domain(domain: Domain, attributes: *const Attributes) -> c_int {
    begin(described(domain, attributes))
}

extern "C" fn pop() -> c_int {
    finish(null())
}

extern "C" fn pop_in_domain(domain: Domain) -> c_int {
    finish(domain)
}

extern "C" fn start(attributes: *const Attributes) -> u64 {
    open(described(null(), attributes))
}

extern "C" fn start_text(text: *const c_char) -> u64 {
    open(named(name(text.cast())))
}

extern "C" fn start_wide_text(text: *const u32) -> u64 {
    open(named(wide_name(text)))
}

extern "C" fn start_in_domain(domain: Domain, attributes: *const Attributes) -> u64 {
    open(described(domain, attributes))
}

extern "C" fn end(id: u64) {
    close(id);
}

extern "C" fn end_in_domain(_: Domain, id: u64) {
    close(id);
}

extern "C" fn mark(attributes: *const Attributes) {
    mark_now(described(null(), attributes));
}

extern "C" fn mark_text(text: *const c_char) {
    mark_now(named(name(text.cast())));
}

extern "C" fn mark_wide_text(text: *const u32) {
    mark_now(named(wide_name(text)));
}

extern "C" fn mark_in_domain(domain: Domain, attributes: *const Attributes) {
    mark_now(described(domain, attributes));
}

extern "C" fn name_category(number: u32, text: *const c_char) {
    categorize(null(), number, name(text.cast()));
}

extern "C" fn wide_name_category(number: u32, text: *const u32) {
    categorize(null(), number, wide_name(text));
}

extern "C" fn name_category_in_domain(domain: Domain, number: u32, text: *const c_char) {
    categorize(domain, number, name(text.cast()));
}

extern "C" fn wide_name_category_in_domain(domain: Domain, number: u32, text: *const u32) {
    categorize(domain, number, wide_name(text));
}

extern "C" fn create_domain(text: *const c_char) -> Domain {
    name(text.cast())
}

extern "C" fn create_wide_domain(text: *const u32) -> Domain {
    wide_name(text)
}

/// The handle of a text is the address of its name.
extern "C" fn register_text(_: Domain, text: *const c_char) -> *const u8 {
    name(text.cast())
}

extern "C" fn register_wide_text(_: Domain, text: *const u32) -> *const u8 {
    wide_name(text)
}

/// Begins a range of this thread; returns how many of its domain are around it.
fn begin(range: Range) -> c_int {
    let Some(stack) = THREADED.push(thread_id::current().into()) else { return 0 };
    let depth = stack.depth - 1;
    if let Some(place) = stack.at(depth) {
        place.store(range, sys::now(sys::CLOCK_MONOTONIC));
    }
    around(&stack, depth, range.domain)
}

/// Number of ranges of a domain below this depth; deeper ones than are kept are taken for this domain's.
fn around(stack: &Stack<Place, DEPTH>, depth: u32, domain: u64) -> c_int {
    let below = &stack.kept()[..(depth as usize).min(DEPTH)];
    let others = below.iter().filter(|range| range.domain.load(Relaxed) != domain).count();
    depth as c_int - others as c_int
}

/// Ends the innermost range of a domain of this thread; returns how many of the domain are around it, or -1 if there was none.
fn finish(domain: Domain) -> c_int {
    let stack = THREADED.find(thread_id::current().into()).filter(|stack| stack.depth > 0);
    let Some(stack) = stack else { return -1 };
    let domain = domain.addr() as u64;
    if stack.depth as usize <= DEPTH {
        let kept = stack.kept();
        let Some(at) = kept.iter().rposition(|range| range.domain.load(Relaxed) == domain) else { return -1 };
        let (range, start) = kept[at].load();
        // Ranges of other domains may have begun after it.
        for (place, next) in kept[at..].iter().zip(&kept[at + 1..]) {
            let (range, start) = next.load();
            place.store(range, start);
        }
        pass_on(range, start, Form::Pushed);
    }
    stack.cut(stack.depth - 1);
    around(&stack, stack.depth - 1, domain)
}

/// Starts a range that any thread may end; returns its id.
fn open(range: Range) -> u64 {
    let id = LAST_ID.fetch_add(1, Relaxed) + 1;
    let is_free = |started: &&OpenRange| started.id.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).is_ok();
    if let Some(started) = open_places(id).find(is_free) {
        started.range.store(range, sys::now(sys::CLOCK_MONOTONIC));
        started.id.store(id, Release);
    }
    id
}

/// Ends the range with this id.
fn close(id: u64) {
    if [FREE, TAKEN].contains(&id) {
        return;
    }
    let is_it = |started: &&OpenRange| started.id.load(Acquire) == id;
    let Some(started) = open_places(id).find(is_it) else { return };
    let (range, start) = started.range.load();
    if started.id.compare_exchange(id, FREE, AcqRel, Relaxed).is_ok() {
        pass_on(range, start, Form::Started);
    }
}

/// The places at which a range with this id may be.
fn open_places(id: u64) -> impl Iterator<Item = &'static OpenRange> {
    let first = OPEN.first();
    let count = if first.is_null() { 0 } else { TRIES };
    // SAFETY: within the memory, whose zeros are valid.
    (0..count).map(move |more| unsafe { &*first.add((id as usize).wrapping_add(more) % STARTED) })
}

fn mark_now(range: Range) {
    pass_on(range, sys::now(sys::CLOCK_MONOTONIC), Form::Mark);
}

/// Passes on a range that ends now, in the thread that ends it.
fn pass_on(range: Range, start: u64, form: Form) {
    if !HAVE_RECORDS.load(Relaxed) {
        return;
    }
    let end = match form {
        Form::Mark => start,
        _ => sys::now(sys::CLOCK_MONOTONIC),
    };
    batch::at_once(
        Kind::Range,
        &Record {
            start,
            end,
            range: range.name,
            kernel: range.domain,
            bytes: range.payload,
            what: range.payload_type as u8,
            is_async: form as u8,
            value: range.category,
            uuid: category_name(range.domain, range.category),
            tid: thread_id::current(),
            ..Record::default()
        },
    );
}

/// Gives a category of a domain a name.
fn categorize(domain: Domain, number: u32, name: *const u8) {
    let domain = domain.addr() as u64;
    let marked = u64::from(number) + 1;
    for category in &CATEGORIZED {
        let found = category.number.compare_exchange(0, marked, AcqRel, Acquire);
        if found.is_ok() {
            category.domain.store(domain, Relaxed);
        }
        if found.is_ok() || found == Err(marked) && category.domain.load(Relaxed) == domain {
            return category.name.store(name.addr() as u64, Release);
        }
    }
}

/// Address of the name of a category; 0: none.
fn category_name(domain: u64, number: u32) -> u64 {
    if number == 0 {
        return 0;
    }
    let known = CATEGORIZED.iter().take_while(|category| category.number.load(Acquire) != 0);
    let mut ours = known.filter(|category| {
        category.number.load(Relaxed) == u64::from(number) + 1 && category.domain.load(Relaxed) == domain
    });
    ours.next().map_or(0, |category| category.name.load(Acquire))
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
    fn ranges_of_domains_end_independently() {
        assert!(NAMED.reserve() && THREADED.reserve());
        let run = || {
            let (a, b) = (create_domain(c"a".as_ptr()), create_domain(c"b".as_ptr()));
            let in_domain = |domain, text: &CStr| {
                begin(Range { domain: domain_of(domain), ..named(name(text.as_ptr().cast())) })
            };
            assert_eq!((in_domain(a, c"a0"), in_domain(b, c"b0"), in_domain(a, c"a1")), (0, 0, 1));
            assert_eq!(finish(b), 0);
            let me = thread_id::current();
            let innermost = || text(core::ptr::with_exposed_provenance(current(me) as usize));
            assert_eq!((innermost(), finish(a), innermost(), finish(b)), ("a1", 1, "a0", -1));
            assert_eq!((finish(a), current(me)), (0, 0));
        };
        std::thread::spawn(run).join().unwrap();
    }

    fn domain_of(domain: Domain) -> u64 {
        domain.addr() as u64
    }

    #[test]
    fn a_range_is_ended_by_its_id_once() {
        assert!(NAMED.reserve() && OPEN.reserve());
        let (one, other) = (start_text(c"one".as_ptr()), start_text(c"other".as_ptr()));
        let is_open = |id| open_places(id).any(|started| started.id.load(Acquire) == id);
        assert!(one != other && is_open(one) && is_open(other));
        end(one);
        end(one);
        assert!(!is_open(one) && is_open(other));
        end(other);
        end(0);
        // More than there is room for.
        let ids: Vec<u64> = (0..2 * STARTED).map(|_| start_text(c"many".as_ptr())).collect();
        ids.into_iter().for_each(|id| end(id));
        let last = start_text(c"last".as_ptr());
        assert!(is_open(last));
    }

    #[test]
    fn categories_have_the_names_of_their_domain() {
        assert!(NAMED.reserve());
        let domain = create_domain(c"with categories".as_ptr());
        name_category_in_domain(domain, 7, c"loading".as_ptr());
        name_category(7, c"default".as_ptr());
        let named = |domain, number| category_name(domain_of(domain), number);
        let words = |address: u64| text(core::ptr::with_exposed_provenance(address as usize));
        assert_eq!((words(named(domain, 7)), words(named(null(), 7))), ("loading", "default"));
        assert_eq!((named(domain, 8), named(domain, 0)), (0, 0));
    }

    #[test]
    fn threads_that_have_ended_leave_their_place_to_others() {
        assert!(NAMED.reserve() && THREADED.reserve());
        for _ in 0..3 * crate::threads::THREADS {
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
