//! Times of kernels without CUPTI: one in some launches is put between two events of the driver.
//!
//! ```text
//! cuLaunchKernel: jmp detour      detour: count down; its turn? jmp replacement
//!                                 replacement: record an event; call the function itself; record an event
//! agent's thread: is the second event done? the time between both is the record's
//! ```
//!
//! The detours are the tracer's ([`Launches`] has their words). Names and numbers of the driver's functions are those of cuda.h.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::transmute_copy;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

use crate::launches;
use crate::message::Launches;
use crate::ranges;
use crate::record::Record;
use crate::sys::{self, CLOCK_MONOTONIC, Reserved, now};

/// Launches that are measured at the same time.
const SAMPLES: usize = 2048;
/// Places at which a launch looks for a free one.
const TRIES: usize = 16;
/// Milliseconds that the end waits for replaced launches: the driver may hold them while its queue is full.
const LAST_LAUNCHES: u32 = 200;

/// `CUresult`
type Status = c_int;
const SUCCESS: Status = 0;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: Status = 600;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread spoil no capture of another one.
const RELAXED: c_int = 2;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// A list of functions, each with its symbol and type.
macro_rules! driver {
    ($($field:ident: $name:literal fn($($arg:ty),*);)*) => {
        /// The driver's functions.
        #[derive(Copy, Clone)]
        pub struct Driver {
            $($field: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        impl Driver {
            /// The functions of the loaded driver; `None` if it lacks one.
            fn loaded() -> Option<Driver> {
                // SAFETY: names that end with zero; the documented types of these functions.
                unsafe {
                    let library = sys::dlopen(c"libcuda.so.1".as_ptr(), sys::RTLD_LAZY | sys::RTLD_NOLOAD);
                    if library.is_null() {
                        return None;
                    }
                    Some(Driver { $($field: {
                        let address = sys::dlsym(library, concat!($name, "\0").as_ptr().cast());
                        if address.is_null() {
                            return None;
                        }
                        transmute_copy(&address)
                    },)* })
                }
            }
        }
    };
}

driver! {
    current: "cuCtxGetCurrent" fn(*mut *mut c_void);
    device: "cuCtxGetDevice" fn(*mut c_int);
    create: "cuEventCreate" fn(*mut *mut c_void, c_uint);
    record: "cuEventRecord" fn(*mut c_void, *mut c_void);
    query: "cuEventQuery" fn(*mut c_void);
    is_idle: "cuStreamQuery" fn(*mut c_void);
    elapsed: "cuEventElapsedTime" fn(*mut f32, *mut c_void, *mut c_void);
    is_capturing: "cuStreamIsCapturing" fn(*mut c_void, *mut c_int);
    exchange_mode: "cuThreadExchangeStreamCaptureMode" fn(*mut c_int);
    function_name: "cuFuncGetName" fn(*mut *const c_char, *mut c_void);
    kernel_name: "cuKernelGetName" fn(*mut *const c_char, *mut c_void);
}

/// State of a [`Sample`].
mod state {
    pub const FREE: u32 = 0;
    pub const TAKEN: u32 = 1;
    /// Both events are recorded.
    pub const RUNS: u32 = 2;
}

/// A launch that is measured. Its events are kept for the next one in the same context.
struct Sample {
    state: AtomicU32,
    context: *mut c_void,
    before: *mut c_void,
    after: *mut c_void,
    /// Nanoseconds that an idle stream had to wait for the kernel after the first event.
    late: u64,
    record: Record,
}

static MEASURED: Reserved<Sample> = Reserved::of(SAMPLES);
static DRIVER: Reserved<Driver> = Reserved::of(1);
static WORDS: AtomicPtr<Launches> = AtomicPtr::new(null_mut());
static EVERY: AtomicU32 = AtomicU32::new(0);
/// Where the next launch looks for a place.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// The process whose launches are measured; a child of fork(2) inherits the rest.
static OF: AtomicU32 = AtomicU32::new(0);
/// Launches that could not be measured.
pub static NOT_MEASURED: AtomicU32 = AtomicU32::new(0);

/// Starts to measure one in `every` launches; `words`: address of the detours' words. False if that is impossible.
pub fn start(words: u64, every: u32) -> bool {
    let words: *mut Launches = core::ptr::with_exposed_provenance_mut(words as usize);
    let Some(driver) = Driver::loaded().filter(|_| !words.is_null()) else { return false };
    if !MEASURED.reserve() || !DRIVER.reserve() {
        return false;
    }
    // SAFETY: reserved just now, and nothing is measured yet.
    unsafe { DRIVER.first().write(driver) };
    WORDS.store(words, Release);
    EVERY.store(every, Release);
    // SAFETY: no arguments.
    OF.store(unsafe { sys::getpid() } as u32, Release);
    // SAFETY: the tracer's words, which stay while launches are replaced.
    let words = unsafe { &*words };
    words.countdown.store(next_turn(), Release);
    for (function, replacement) in words.functions.iter().zip(REPLACEMENTS) {
        if function.original.load(Acquire) != 0 {
            function.replacement.store(replacement.addr() as u64, Release);
        }
    }
    true
}

/// Measures no further launches.
pub fn stop() {
    // SAFETY: see `start`.
    let Some(words) = (unsafe { WORDS.load(Acquire).as_ref() }) else { return };
    words.functions.iter().for_each(|function| function.replacement.store(0, Release));
    for _ in 0..LAST_LAUNCHES {
        if words.running.load(Acquire) == 0 {
            return;
        }
        sys::sleep(1);
    }
}

/// Lets the calls of the agent's thread spoil no capture of the program.
pub fn enter_thread() {
    relax(driver());
}

/// Passes on the launches whose work has been done.
pub fn take(pass_on: &mut dyn FnMut(Record)) {
    let driver = driver();
    for sample in samples().filter(|sample| sample.state.load(Acquire) == state::RUNS) {
        let mut record = sample.record;
        let mut milliseconds = 0.0f32;
        // SAFETY: events of this sample.
        let status = unsafe {
            match (driver.query)(sample.after) {
                NOT_READY => continue,
                SUCCESS => (driver.elapsed)(&raw mut milliseconds, sample.before, sample.after),
                status => status,
            }
        };
        sample.state.store(state::FREE, Release);
        if status == SUCCESS {
            let between = (f64::from(milliseconds) * 1e6) as u64;
            record.end = record.start + between.saturating_sub(sample.late);
            pass_on(record);
        } else {
            NOT_MEASURED.fetch_add(1, Relaxed);
        }
    }
}

fn samples() -> impl Iterator<Item = &'static mut Sample> {
    let first = MEASURED.first();
    // SAFETY: within the memory, whose zeros are valid; who has taken a sample, by its state, writes it.
    (0..if first.is_null() { 0 } else { SAMPLES }).map(move |at| unsafe { &mut *first.add(at) })
}

fn driver() -> &'static Driver {
    // SAFETY: written by `start` before any launch is replaced, and before the agent's thread takes samples.
    unsafe { &*DRIVER.first() }
}

/// Lets calls of this thread spoil no capture; returns the mode before.
fn relax(driver: &Driver) -> c_int {
    let mut mode = RELAXED;
    // SAFETY: a valid pointer.
    unsafe { (driver.exchange_mode)(&raw mut mode) };
    mode
}

/// The arguments of a launch that its record has.
struct Launch {
    /// Number of the function.
    by: usize,
    kernel: *mut c_void,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
}

/// Makes a launch, `call`, between two events.
fn measured(launch: &Launch, call: impl FnOnce(u64) -> Status) -> Status {
    // SAFETY: see `start`; the detour has counted this launch as running.
    let words = unsafe { &*WORDS.load(Acquire) };
    let original = words.functions[launch.by].original.load(Acquire);
    words.countdown.store(next_turn(), Release);
    let sample = begin(launch);
    let status = call(original);
    if let Some(sample) = sample {
        finish(sample, launch, status);
    }
    words.running.fetch_sub(1, AcqRel);
    status
}

/// Launches up to the next one that is measured. They vary: a program that repeats the same launches would always have the same one measured.
fn next_turn() -> i32 {
    static STATE: AtomicU32 = AtomicU32::new(1);
    // The generator of POSIX's `rand_r` example: its upper bits are random enough.
    let random = STATE.load(Relaxed).wrapping_mul(1_103_515_245).wrapping_add(12_345);
    STATE.store(random, Release);
    let most = 2 * EVERY.load(Relaxed).max(1) - 1;
    (1 + (random >> 8) % most) as i32
}

/// Records the event before a launch; `None` if it cannot be measured, as one that is captured.
fn begin(launch: &Launch) -> Option<&'static mut Sample> {
    // SAFETY: no arguments.
    if OF.load(Acquire) != unsafe { sys::getpid() } as u32 {
        return None;
    }
    let driver = driver();
    let mode = relax(driver);
    let sample = begin_relaxed(driver, launch);
    restore(driver, mode);
    sample
}

fn restore(driver: &Driver, mut mode: c_int) {
    // SAFETY: a valid pointer.
    unsafe { (driver.exchange_mode)(&raw mut mode) };
}

fn begin_relaxed(driver: &Driver, launch: &Launch) -> Option<&'static mut Sample> {
    let (mut captures, mut context, mut device) = (0, null_mut(), 0);
    // SAFETY: valid pointers, and the launch's stream.
    unsafe {
        if (driver.is_capturing)(launch.stream, &raw mut captures) != SUCCESS || captures != 0 {
            return None;
        }
        if (driver.current)(&raw mut context) != SUCCESS || (driver.device)(&raw mut device) != SUCCESS {
            return None;
        }
    }
    let is_free = |sample: &&mut Sample| {
        sample.state.compare_exchange(state::FREE, state::TAKEN, AcqRel, Relaxed).is_ok()
    };
    let first = NEXT.fetch_add(1, Relaxed) as usize % (SAMPLES - TRIES);
    let Some(sample) = samples().skip(first).take(TRIES).find(is_free) else {
        NOT_MEASURED.fetch_add(1, Relaxed);
        return None;
    };
    // SAFETY: the launch's stream.
    sample.late = u64::from(unsafe { (driver.is_idle)(launch.stream) } == SUCCESS);
    if !has_events(driver, sample, context) || !record(driver, sample.before, launch.stream) {
        sample.state.store(state::FREE, Release);
        NOT_MEASURED.fetch_add(1, Relaxed);
        return None;
    }
    let tid = launches::tid();
    sample.record = Record {
        start: now(CLOCK_MONOTONIC),
        kernel: name(driver, launch.kernel).addr() as u64,
        stream: launch.stream.addr() as u64,
        device: device as u32,
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        value: EVERY.load(Relaxed),
        func: NAMES[launch.by].as_ptr().addr() as u64,
        range: ranges::current(tid),
        tid,
        ..Record::default()
    };
    Some(sample)
}

/// Whether the sample has events of this context. Those of a context that may have been destroyed are left to it.
fn has_events(driver: &Driver, sample: &mut Sample, context: *mut c_void) -> bool {
    if sample.context == context {
        return true;
    }
    sample.context = null_mut();
    // SAFETY: valid pointers.
    let created = unsafe {
        (driver.create)(&raw mut sample.before, 0) == SUCCESS
            && (driver.create)(&raw mut sample.after, 0) == SUCCESS
    };
    if created {
        sample.context = context;
    }
    created
}

fn record(driver: &Driver, event: *mut c_void, stream: *mut c_void) -> bool {
    // SAFETY: an event and a stream of the same context.
    unsafe { (driver.record)(event, stream) == SUCCESS }
}

/// Records the event after a launch.
fn finish(sample: &mut Sample, launch: &Launch, status: Status) {
    let driver = driver();
    if sample.late != 0 {
        // The first event was over at once, and the kernel began when this call was.
        sample.late = now(CLOCK_MONOTONIC) - sample.record.start;
    }
    let mode = relax(driver);
    let runs = status == SUCCESS && record(driver, sample.after, launch.stream);
    restore(driver, mode);
    sample.state.store(if runs { state::RUNS } else { state::FREE }, Release);
}

/// The mangled name of what is launched: a `CUfunction`, or a `CUkernel`.
fn name(driver: &Driver, kernel: *mut c_void) -> *const c_char {
    let mut name = null();
    // SAFETY: a valid pointer, and a handle that the program launches.
    unsafe {
        if (driver.function_name)(&raw mut name, kernel) != SUCCESS {
            (driver.kernel_name)(&raw mut name, kernel);
        }
    }
    name
}

/// The names of the functions, in the order of their numbers.
const NAMES: [&core::ffi::CStr; 4] =
    [c"cuLaunchKernel", c"cuLaunchKernel_ptsz", c"cuLaunchKernelEx", c"cuLaunchKernelEx_ptsz"];
const REPLACEMENTS: [*const (); 4] = [
    launch::<0> as *const (),
    launch::<1> as *const (),
    launch_ex::<2> as *const (),
    launch_ex::<3> as *const (),
];

/// The stream, in the form that functions without `_ptsz` know.
fn stream_of(by: usize, stream: *mut c_void) -> *mut c_void {
    let is_default = stream.is_null() && by % 2 == 1;
    if is_default { core::ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

type LaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;

/// In place of `cuLaunchKernel`.
extern "C" fn launch<const BY: usize>(
    kernel: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = Launch { by: BY, kernel, grid, block, shared, stream: stream_of(BY, stream) };
    measured(&launch, |original| {
        let original: *const () = core::ptr::with_exposed_provenance(original as usize);
        // SAFETY: the function that was called, with its arguments.
        unsafe {
            let original: LaunchKernel = transmute_copy(&original);
            original(kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra)
        }
    })
}

/// `CUlaunchConfig`, as far as it is used.
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
}

type LaunchKernelEx =
    unsafe extern "C" fn(*const Config, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> Status;

/// In place of `cuLaunchKernelEx`.
extern "C" fn launch_ex<const BY: usize>(
    config: *const Config,
    kernel: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    // SAFETY: the argument of the call; the driver refuses null.
    let (grid, block, shared, stream) = match unsafe { config.as_ref() } {
        Some(config) => (config.grid, config.block, config.shared, config.stream),
        None => ([0; 3], [0; 3], 0, null_mut()),
    };
    let launch = Launch { by: BY, kernel, grid, block, shared, stream: stream_of(BY, stream) };
    measured(&launch, |original| {
        let original: *const () = core::ptr::with_exposed_provenance(original as usize);
        // SAFETY: the function that was called, with its arguments.
        unsafe {
            let original: LaunchKernelEx = transmute_copy(&original);
            original(config, kernel, params, extra)
        }
    })
}
