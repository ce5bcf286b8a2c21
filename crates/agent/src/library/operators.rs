//! Operators of PyTorch: the innermost one of each thread, so that a launch can be told its operator; the forward operator that work of the
//! backward pass belongs to; and, if they are asked for, a record of each operator, or of each range that the program names, at its end.
//!
//! PyTorch calls back at the begin and at the end of each operator, each function of the backward pass and each range that the program names
//! (`at::addGlobalCallback`). A call for an operator makes a [`RecordFunction`] on its stack, and passes that.
//!
//! A function of the backward pass knows the thread and the number of the operator that made it: PyTorch counts them in each thread, and an
//! operator has the number of what it makes first. Its id is both in one ([`operator_id`]).

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

use crate::message::Operators;
use crate::names::TextTable;
use crate::record::{Kind, Record, operator_table};
use crate::sys::ReservedMemory;
use crate::threads::{Stack, THREADS, ThreadTable};
use crate::{batch, sys, thread_id};

/// Size of a name with the zero byte that ends it; longer ones are cut.
const NAME: usize = 128;
/// Different names that are kept.
const NAMES: usize = 1 << 12;
/// Operators in each other that are kept for a thread; deeper ones are taken for the last of these.
const DEPTH: usize = 64;
/// The name of operators that had no room.
const OTHERS: &[u8] = b"[other operators]\0";

/// The library that has the operators.
const LIBRARY: &CStr = c"libtorch_cpu.so";

/// `at::RecordScope`: what is recorded.
mod scope {
    /// An operator.
    pub(super) const FUNCTION: u8 = 0;
    /// A function of the backward pass.
    pub(super) const BACKWARD: u8 = 1;
    /// A range that the program names: `torch.profiler.record_function`.
    pub(super) const USER: u8 = 7;
    /// Scopes that are operators: functions, also of the backward pass, of TorchScript, of classes, and ranges of the program.
    pub(super) const ALL: [u8; SCOPES] = [1, 1, 1, 0, 1, 0, 0, 1, 0, 0];
    /// Ranges of the program alone: PyTorch then calls at no operator.
    pub(super) const RANGES: [u8; SCOPES] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    pub(super) const SCOPES: usize = 10;
}

/// `at::RecordFunctionCallback` of PyTorch 2.0 to 2.11.
#[repr(C)]
struct Callback {
    start: extern "C" fn(*mut *mut c_void, *const RecordFunction) -> *mut *mut c_void,
    end: extern "C" fn(*const RecordFunction, *mut c_void),
    probability: f64,
    scopes: [u8; scope::SCOPES],
    /// Whether inputs, outputs and ids are wanted.
    needs: [u8; 3],
    padding: [u8; 3],
}

/// `at::RecordFunction` of PyTorch 2.0 to 2.11 and GNU's standard library, as far as it is used.
#[repr(C)]
struct RecordFunction {
    virtual_functions: u64,
    /// Callbacks that are to be called.
    callbacks: [u64; 10],
    /// PyTorch's number of this thread.
    thread: u64,
    scope: u8,
    needs: [u8; 3],
    was_called: [u64; 1],
    contexts: [u64; 6],
    name: [u64; 5],
    /// Number of what an operator makes first, or of the operator that a function of the backward pass belongs to; -1: none.
    sequence: i64,
    inputs: [u64; 2],
    named_inputs: [u64; 7],
    outputs: [u64; 3],
    /// The thread of the operator that a function of the backward pass belongs to.
    forward_thread: u64,
}

const _: () = assert!(
    core::mem::offset_of!(RecordFunction, thread) == 88
        && core::mem::offset_of!(RecordFunction, scope) == 96
        && core::mem::offset_of!(RecordFunction, sequence) == 200
        && core::mem::offset_of!(RecordFunction, forward_thread) == 304
);

/// An operator that has not ended.
struct Place {
    /// Address of PyTorch's [`RecordFunction`].
    of: AtomicUsize,
    /// Address of the name.
    name: AtomicU64,
    /// The forward operator that it belongs to; 0: none.
    forward: AtomicU64,
    /// Number of what it makes first; -1: none.
    sequence: AtomicU64,
    /// Nanoseconds of CLOCK_MONOTONIC, if operators have records.
    start: AtomicU64,
}

/// A place of the table that programs read: see [`operator_table`].
#[repr(C)]
struct Current {
    thread: AtomicU64,
    name: AtomicU64,
    forward: AtomicU64,
    unused: u64,
}

const _: () = {
    assert!(size_of::<Current>() as u64 == operator_table::PLACE);
    assert!(core::mem::offset_of!(Current, thread) as u64 == operator_table::THREAD);
    assert!(core::mem::offset_of!(Current, name) as u64 == operator_table::NAME);
    assert!(core::mem::offset_of!(Current, forward) as u64 == operator_table::FORWARD);
};

static NAMED: TextTable<NAME> = TextTable::of(NAMES);
static CURRENT: ReservedMemory<Current> = ReservedMemory::of(THREADS);
/// By the addresses of control blocks.
static THREADED: ThreadTable<Place, DEPTH> = ThreadTable::new();
/// PyTorch's id of the callbacks; 0: they are not registered.
static REGISTERED: AtomicU64 = AtomicU64::new(0);
/// Whether operators have records.
static HAVE_RECORDS: AtomicBool = AtomicBool::new(false);
/// Whether ranges of the program have records.
static HAVE_ANNOTATIONS: AtomicBool = AtomicBool::new(false);
/// Whether forward operators are passed on when they begin.
static PASSES_ON: AtomicBool = AtomicBool::new(false);
/// Functions of PyTorch.
static NAME_OF: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static NEXT_NUMBER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static REMOVE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Which events of operators have a probe.
#[derive(Copy, Clone)]
pub(crate) struct ProbedEvents {
    /// Any operator matters, if only as that of a launch.
    pub all: bool,
    /// Each operator at its end.
    pub records: bool,
    /// Each operator that may have work in the backward pass, when it begins.
    pub forward: bool,
    /// Each range of the program at its end.
    pub annotations: bool,
}

/// Lets PyTorch call back, if the process has loaded it.
pub(crate) fn hook(probed: ProbedEvents) -> Operators {
    // SAFETY: names that end with zero.
    let library = unsafe { sys::dlopen(LIBRARY.as_ptr(), sys::RTLD_LAZY | sys::RTLD_NOLOAD) };
    if library.is_null() {
        return Operators::NoPyTorch;
    }
    // SAFETY: as before.
    let function = |name: &CStr| unsafe { sys::dlsym(library, name.as_ptr()) };
    let add = function(c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    let functions = [
        (&REMOVE, function(c"_ZN2at14removeCallbackEm")),
        (&NAME_OF, function(c"_ZNK2at14RecordFunction4nameEv")),
        (&NEXT_NUMBER, function(c"_ZN2at15sequence_number4peekEv")),
    ];
    // PyTorch before 2.0 has other structs.
    let is_known = !function(c"_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE").is_null();
    let has_all = !add.is_null() && functions.iter().all(|(_, found)| !found.is_null());
    if !is_known || !has_all || !reserve() {
        return Operators::Refused;
    }
    functions.iter().for_each(|(place, found)| place.store(*found, Release));
    HAVE_RECORDS.store(probed.records, Release);
    HAVE_ANNOTATIONS.store(probed.annotations, Release);
    PASSES_ON.store(probed.forward, Release);
    batch::at_once(Kind::OperatorTable, &Record { corr: CURRENT.first().addr() as u64, ..Record::default() });
    let callback = Callback {
        start: begins,
        end: ends,
        probability: 1.0,
        scopes: if probed.all { scope::ALL } else { scope::RANGES },
        needs: [0; 3],
        padding: [0; 3],
    };
    // SAFETY: PyTorch's function, and functions that live as long as the process: this library is never unloaded.
    let add: extern "C" fn(Callback) -> u64 = unsafe { transmute(add) };
    REGISTERED.store(add(callback), Release);
    Operators::Come
}

fn reserve() -> bool {
    if !NAMED.reserve() || !THREADED.reserve() || !CURRENT.reserve() {
        return false;
    }
    // Programs in the kernel cannot read memory that was never written.
    const PAGE: usize = 4096;
    for place in (0..THREADS).step_by(PAGE / size_of::<Current>()) {
        // SAFETY: within the memory, whose zeros are valid.
        unsafe { (*CURRENT.first().add(place)).thread.fetch_add(0, Relaxed) };
    }
    true
}

/// Ends the calls, so that operators cost nothing any more. Those that have begun still call back at their end.
pub(crate) fn unhook() {
    [&HAVE_RECORDS, &HAVE_ANNOTATIONS, &PASSES_ON].iter().for_each(|passed| passed.store(false, Release));
    let registered = REGISTERED.swap(0, AcqRel);
    if registered != 0 {
        // SAFETY: PyTorch's function.
        let remove: extern "C" fn(u64) = unsafe { transmute(REMOVE.load(Acquire)) };
        remove(registered);
    }
}

/// Address of the name of this thread's innermost operator, and the forward operator that work of the thread belongs to, in the backward pass;
/// 0: none.
pub(crate) fn current() -> (u64, u64) {
    let innermost = THREADED.find(this_thread()).and_then(|stack| stack.kept().last());
    innermost.map_or((0, 0), |operator| (operator.name.load(Relaxed), operator.forward.load(Relaxed)))
}

/// A number of this thread, which ends with it.
fn this_thread() -> u64 {
    thread_id::control_block() as u64 >> operator_table::BITS
}

/// Writes what programs see of a thread whose stack has this depth.
fn show(stack: &Stack<Place, DEPTH>, depth: usize) {
    // SAFETY: within the memory, which is reserved as long as there are stacks.
    let current = unsafe { &*CURRENT.first().add(stack.place) };
    let innermost = depth.checked_sub(1).and_then(|last| stack.kept().get(last));
    let (name, forward) =
        innermost.map_or((0, 0), |operator| (operator.name.load(Relaxed), operator.forward.load(Relaxed)));
    current.thread.store(stack.number, Relaxed);
    current.name.store(name, Relaxed);
    current.forward.store(forward, Relaxed);
}

/// The id of work of the backward pass that is of no forward operator, such as the sum of a gradient. No operator has it, since threads begin with 1.
const NO_OPERATOR: u64 = 1;

/// A thread and the number of an operator of it; 0 without a number.
fn operator_id(thread: u64, sequence: i64) -> u64 {
    const NUMBER_BITS: u32 = 40;
    match u64::try_from(sequence) {
        Ok(number) if number < (1 << NUMBER_BITS) - 1 => thread << NUMBER_BITS | (number + 1),
        _ => 0,
    }
}

/// PyTorch calls this when an operator begins. The context that it asks for is null.
extern "C" fn begins(context: *mut *mut c_void, of: *const RecordFunction) -> *mut *mut c_void {
    // SAFETY: PyTorch's.
    let function = unsafe {
        context.write(null_mut());
        &*of
    };
    if let Some(stack) = THREADED.push(this_thread()) {
        begin(&stack, of, function);
    }
    context
}

/// PyTorch calls this when an operator ends.
extern "C" fn ends(of: *const RecordFunction, _: *mut c_void) {
    if let Some(stack) = THREADED.find(this_thread()) {
        // SAFETY: PyTorch's.
        end(&stack, of, unsafe { (*of).scope });
    }
}

fn begin(stack: &Stack<Place, DEPTH>, of: *const RecordFunction, function: &RecordFunction) {
    let Some((place, around)) = stack.kept().split_last().filter(|_| stack.depth as usize <= DEPTH) else {
        return;
    };
    let around = around.last();
    let forward = match function.scope {
        scope::BACKWARD => operator_id(function.forward_thread, function.sequence).max(NO_OPERATOR),
        _ => around.map_or(0, |around| around.forward.load(Relaxed)),
    };
    place.of.store(of.addr(), Relaxed);
    place.name.store(name(of), Relaxed);
    place.forward.store(forward, Relaxed);
    place.sequence.store(function.sequence as u64, Relaxed);
    let has_record =
        HAVE_RECORDS.load(Relaxed) || function.scope == scope::USER && HAVE_ANNOTATIONS.load(Relaxed);
    let start = if has_record { sys::now(sys::CLOCK_MONOTONIC) } else { 0 };
    place.start.store(start, Relaxed);
    show(stack, stack.depth as usize);
    let sequence_around = around.map_or(-1, |around| around.sequence.load(Relaxed) as i64);
    if PASSES_ON.load(Relaxed) && forward == 0 && function.makes(sequence_around) {
        let id = operator_id(function.thread, function.sequence);
        batch::at_once(Kind::Forward, &Record { corr: id, ..Record::default() });
    }
}

/// Ends an operator, and those in it, which have ended in another thread.
fn end(stack: &Stack<Place, DEPTH>, of: *const RecordFunction, scope: u8) {
    let kept = stack.kept();
    let Some(at) = kept.iter().rposition(|place| place.of.load(Relaxed) == of.addr()) else {
        // One that is not kept.
        if stack.depth as usize > DEPTH {
            stack.cut(stack.depth - 1);
        }
        return;
    };
    let place = &kept[at];
    let start = place.start.load(Relaxed);
    if start != 0 {
        let record = Record {
            start,
            end: sys::now(sys::CLOCK_MONOTONIC),
            operator: place.name.load(Relaxed),
            forward: place.forward.load(Relaxed),
            value: at as u32,
            tid: thread_id::current(),
            ..Record::default()
        };
        if HAVE_RECORDS.load(Relaxed) {
            batch::at_once(Kind::Operator, &record);
        }
        if HAVE_ANNOTATIONS.load(Relaxed) && scope == scope::USER {
            batch::at_once(Kind::Annotation, &record);
        }
    }
    show(stack, at);
    stack.cut(at as u32);
}

impl RecordFunction {
    /// Whether it is a forward operator that may make a function of the backward pass, and not in one of the same number. `around`: the number of
    /// the operator around it; -1: none.
    fn makes(&self, around: i64) -> bool {
        if self.scope != scope::FUNCTION || self.sequence < 0 || self.sequence == around {
            return false;
        }
        // SAFETY: PyTorch's function.
        let next: extern "C" fn() -> i64 = unsafe { transmute(NEXT_NUMBER.load(Relaxed)) };
        // So a PyTorch with another struct has no forward operators, rather than wrong ones.
        self.sequence == next()
    }
}

/// Address of the kept name of an operator.
fn name(of: *const RecordFunction) -> u64 {
    // SAFETY: PyTorch's function, whose text ends with zero.
    let name_of: extern "C" fn(*const RecordFunction) -> *const c_char =
        unsafe { transmute(NAME_OF.load(Relaxed)) };
    NAMED.keep(name_of(of)).unwrap_or(OTHERS.as_ptr()).addr() as u64
}
