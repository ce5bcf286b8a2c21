//! What the agent calls in place of functions of the driver: one in some launches is measured, and before a context ends its events do.
//!
//! ```text
//! cuLaunchKernel: jmp detour      detour: subtract one; its turn? jmp to the replacement
//!                                 replacement: an event; the function itself; an event
//! ```
//!
//! The detours are the tracer's. They read the words here, so that the agent can end without the tracer.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::transmute_copy;
use core::ptr::{null_mut, with_exposed_provenance, without_provenance_mut};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

use crate::driver::Status;
use crate::message::{FUNCTIONS, REPLACED, Words};
use crate::sampling::{self, Launch};
use crate::sys;

/// Milliseconds that the end waits for replaced launches: the driver may hold them while its queue is full.
const LAST_LAUNCHES: u32 = 200;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

static WORDS: Words = Words {
    countdown: AtomicI32::new(0),
    inside: AtomicU32::new(0),
    replacements: [const { AtomicU64::new(0) }; FUNCTIONS],
};
/// Where the functions themselves go on.
static ORIGINALS: [AtomicU64; FUNCTIONS] = [const { AtomicU64::new(0) }; FUNCTIONS];
/// The detours' memory stays while this is not zero.
static RUNNING: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// One of so many launches is measured.
static EVERY: AtomicU32 = AtomicU32::new(1);

const REPLACEMENTS: [*const (); FUNCTIONS] = [
    launch::<0> as *const (),
    launch::<1> as *const (),
    launch_ex::<2> as *const (),
    launch_ex::<3> as *const (),
    end_context::<4> as *const (),
    end_context::<5> as *const (),
    end_context::<6> as *const (),
    end_context::<7> as *const (),
    end_context::<8> as *const (),
    end_context::<9> as *const (),
    end_context::<10> as *const (),
    end_context::<11> as *const (),
];

/// Takes the place of the functions of which `originals` says where they go on, and of one in `every` launches, as soon as detours know
/// the words at the address that is returned.
pub fn start(running: u64, originals: &[u64; FUNCTIONS], every: u32) -> u64 {
    EVERY.store(every, Release);
    RUNNING.store(core::ptr::with_exposed_provenance_mut(running as usize), Release);
    for (function, at) in originals.iter().enumerate() {
        ORIGINALS[function].store(*at, Release);
        let replacement = if *at == 0 { 0 } else { REPLACEMENTS[function].addr() as u64 };
        WORDS.replacements[function].store(replacement, Release);
    }
    // A child of fork(2) inherits calls of threads that it does not have.
    WORDS.inside.store(0, Release);
    WORDS.countdown.store(next_turn(), Release);
    (&raw const WORDS).addr() as u64
}

/// Takes no place any more. The detours' memory may be gone.
pub fn stop() {
    WORDS.replacements.iter().for_each(|replacement| replacement.store(0, Release));
    for _ in 0..LAST_LAUNCHES {
        if WORDS.inside.load(Acquire) == 0 {
            return;
        }
        sys::sleep(1);
    }
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

/// Does something in place of a call, for which the detour has counted one that runs. It is over for the detours' memory with the very
/// last step.
fn in_place(work: impl FnOnce() -> Status) -> Status {
    WORDS.inside.fetch_add(1, AcqRel);
    let status = work();
    WORDS.inside.fetch_sub(1, AcqRel);
    // SAFETY: the detours' memory stays until this.
    unsafe { (*RUNNING.load(Acquire)).fetch_sub(1, AcqRel) };
    status
}

/// Where a function goes on.
fn original(function: usize) -> *const () {
    with_exposed_provenance(ORIGINALS[function].load(Acquire) as usize)
}

impl Launch {
    fn new<const BY: usize>(kernel: *mut c_void, config: &Config) -> Launch {
        let Config { grid, block, shared, stream } = *config;
        // The stream in the form that functions without `_ptsz` know.
        let is_of_thread = stream.is_null() && BY % 2 == 1;
        let stream = if is_of_thread { without_provenance_mut(PER_THREAD) } else { stream };
        Launch { by: BY, kernel, grid, block, shared, stream, every: EVERY.load(Relaxed) }
    }

    /// Makes the launch, `call`, between two events.
    fn measure(&self, call: impl FnOnce() -> Status) -> Status {
        in_place(|| {
            WORDS.countdown.store(next_turn(), Release);
            let sample = sampling::begin(self);
            let status = call();
            if let Some(sample) = sample {
                sampling::finish(sample, self, status);
            }
            status
        })
    }
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
    Launch::new::<BY>(kernel, &Config { grid, block, shared, stream }).measure(|| {
        // SAFETY: the function that was called, with its arguments.
        unsafe {
            let original: LaunchKernel = transmute_copy(&original(BY));
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
    let nothing = Config { grid: [0; 3], block: [0; 3], shared: 0, stream: null_mut() };
    // SAFETY: the argument of the call; the driver refuses null.
    let readable = unsafe { config.as_ref() }.unwrap_or(&nothing);
    Launch::new::<BY>(kernel, readable).measure(|| {
        // SAFETY: the function that was called, with its arguments.
        unsafe {
            let original: LaunchKernelEx = transmute_copy(&original(BY));
            original(config, kernel, params, extra)
        }
    })
}

type EndContext = unsafe extern "C" fn(*mut c_void) -> c_int;

/// In place of a function that may end a context.
extern "C" fn end_context<const BY: usize>(of: *mut c_void) -> Status {
    in_place(|| {
        sampling::forget(if REPLACED[BY].takes_context { of } else { null_mut() });
        // SAFETY: the function that was called, with its argument.
        unsafe {
            let original: EndContext = transmute_copy(&original(BY));
            original(of)
        }
    })
}
