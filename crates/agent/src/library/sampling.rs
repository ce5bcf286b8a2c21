//! Times of kernels without CUPTI: launches that are put between two events of the driver.
//!
//! ```text
//! a thread that launches: begin, the call, finish        the agent's thread: is the second event done? the time between both
//! ```

use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::driver::{Driver, Events, NOT_READY, SUCCESS, Status};
use crate::message::REPLACED;
use crate::names::KERNELS;
use crate::ranges;
use crate::record::Record;
use crate::sys::{self, CLOCK_MONOTONIC, Reserved, now};
use crate::thread_id;

/// Launches that are measured at the same time.
const SAMPLES: usize = 2048;
/// Places at which a launch looks for a free one.
const TRIES: usize = 16;
/// Milliseconds that the end of a context waits for the agent's thread to look at an event.
const PATIENCE: u32 = 1000;
/// Nanoseconds of a call after which it is not known well enough when a stream became idle within it.
const SHORT: u64 = 50_000;

/// The arguments of a launch that its record has.
pub struct Launch {
    /// Number of the function.
    pub by: usize,
    pub kernel: *mut c_void,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: *mut c_void,
    /// One of so many launches is measured.
    pub every: u32,
}

/// States of a [`Sample`].
mod state {
    pub const FREE: u32 = 0;
    /// A launch has it.
    pub const LAUNCHES: u32 = 1;
    /// Both events are recorded.
    pub const RUNS: u32 = 2;
    /// A thread reads the events, or destroys them.
    pub const READ: u32 = 3;
    /// The record is complete.
    pub const DONE: u32 = 4;
}

/// A launch that is measured.
pub struct Sample {
    state: AtomicU32,
    measurement: UnsafeCell<Measurement>,
}

/// What the thread reads and writes that has the sample.
struct Measurement {
    /// The context of the events, which are kept for the next launch there; null: there are none.
    context: *mut c_void,
    events: Events,
    /// Whether the stream had nothing to do before.
    was_idle: bool,
    /// Nanoseconds that the stream had to wait for the kernel after the first event.
    late: u64,
    record: Record,
}

static MEASURED: Reserved<Sample> = Reserved::of(SAMPLES);
static DRIVER: Reserved<Driver> = Reserved::of(1);
/// Where the next launch looks for a place.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// The process whose launches are measured; a child of fork(2) inherits the rest.
static OF: AtomicU32 = AtomicU32::new(0);
/// 1 if calls of the program return when the kernel has ended.
static IS_BLOCKING: AtomicU32 = AtomicU32::new(0);
/// Launches that could not be measured.
pub static NOT_MEASURED: AtomicU32 = AtomicU32::new(0);

/// Prepares for launches of this process. False if that is impossible.
pub fn start() -> bool {
    let Some(driver) = Driver::loaded() else { return false };
    if !MEASURED.reserve() || !DRIVER.reserve() || !KERNELS.reserve() {
        return false;
    }
    // Zeros; a child of fork(2) has no contexts of its parent.
    MEASURED.release();
    // SAFETY: reserved just now, and nothing is measured yet.
    unsafe { DRIVER.first().write(driver) };
    NOT_MEASURED.store(0, Release);
    IS_BLOCKING.store(u32::from(launches_block()), Release);
    OF.store(pid(), Release);
    true
}

/// Whether the user has asked for it by `CUDA_LAUNCH_BLOCKING`.
fn launches_block() -> bool {
    // SAFETY: a text that ends with zero; so does the variable's.
    unsafe {
        let value = sys::getenv(c"CUDA_LAUNCH_BLOCKING".as_ptr());
        !value.is_null() && ![0, b'0'].contains(&(*value as u8))
    }
}

fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys::getpid() as u32 }
}

/// Passes on the launches whose work has been done; for the agent's thread.
pub fn take(pass_on: &mut dyn FnMut(Record)) {
    let driver = driver();
    let may_query = driver.relax().is_some();
    for sample in samples() {
        if may_query && let Some(measurement) = sample.claim(state::RUNS) {
            let next = measurement.settle(driver);
            sample.leave(next);
        }
        if let Some(measurement) = sample.claim(state::DONE) {
            let record = measurement.record;
            sample.leave(state::FREE);
            pass_on(record);
        }
    }
}

/// Destroys the events of a context, which they must not outlive; null: of all. Launches whose work is not done are not measured.
pub fn forget(context: *mut c_void) {
    if OF.load(Acquire) != pid() {
        return;
    }
    let driver = driver();
    let mode = driver.relax();
    samples().for_each(|sample| sample.forget(driver, context));
    mode.inspect(|mode| driver.restore(*mode));
}

fn samples() -> impl Iterator<Item = &'static Sample> {
    let first = MEASURED.first();
    // SAFETY: within the memory, whose zeros are valid.
    (0..if first.is_null() { 0 } else { SAMPLES }).map(move |at| unsafe { &*first.add(at) })
}

fn driver() -> &'static Driver {
    // SAFETY: written by `start` before any launch is replaced, and before the agent's thread takes samples.
    unsafe { &*DRIVER.first() }
}

/// Records the event before a launch; `None` if it cannot be measured, as one that is captured.
pub fn begin(launch: &Launch) -> Option<&'static Sample> {
    if OF.load(Acquire) != pid() {
        return None;
    }
    let driver = driver();
    let mode = driver.relax()?;
    let sample = begin_relaxed(driver, launch);
    driver.restore(mode);
    sample
}

fn begin_relaxed(driver: &Driver, launch: &Launch) -> Option<&'static Sample> {
    if driver.may_capture(launch.stream) {
        return None;
    }
    let (context, device) = driver.current()?;
    let first = NEXT.fetch_add(1, Relaxed) as usize % (SAMPLES - TRIES);
    let mut tried = samples().skip(first).take(TRIES);
    // Before it counts as one that launches, it has no events of a context that might end now.
    let prepare = |sample: &&Sample| {
        sample.claim(state::FREE).is_some_and(|measurement| {
            if measurement.context != context {
                measurement.forget(driver);
            }
            sample.leave(state::LAUNCHES);
            true
        })
    };
    let Some(sample) = tried.find(prepare) else {
        NOT_MEASURED.fetch_add(1, Relaxed);
        return None;
    };
    // SAFETY: this thread has just taken it.
    let measurement = unsafe { &mut *sample.measurement.get() };
    measurement.was_idle = driver.is_idle(launch.stream);
    if !measurement.begin(driver, context, launch.stream) {
        sample.leave(state::FREE);
        NOT_MEASURED.fetch_add(1, Relaxed);
        return None;
    }
    let tid = thread_id::current();
    measurement.record = Record {
        start: now(CLOCK_MONOTONIC),
        kernel: kept_name(driver, launch.kernel),
        stream: launch.stream.addr() as u64,
        device,
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        value: launch.every,
        func: REPLACED[launch.by].name.as_ptr().addr() as u64,
        range: ranges::current(tid),
        tid,
        ..Record::default()
    };
    Some(sample)
}

/// Address of the name of what is launched; 0 if it is not known.
fn kept_name(driver: &Driver, kernel: *mut c_void) -> u64 {
    KERNELS.keep(driver.name(kernel)).map_or(0, |name| name.addr() as u64)
}

/// Records the event after a launch.
pub fn finish(sample: &'static Sample, launch: &Launch, status: Status) {
    let driver = driver();
    // SAFETY: this thread has it since `begin`.
    let measurement = unsafe { &mut *sample.measurement.get() };
    let Some(mode) = driver.relax() else {
        measurement.context = null_mut();
        return sample.leave(state::FREE);
    };
    let late = measurement.late(driver);
    let runs = status == SUCCESS && measurement.end(driver, launch.stream);
    driver.restore(mode);
    match late {
        Some(late) if runs => {
            measurement.late = late;
            sample.leave(state::RUNS);
        }
        _ => {
            NOT_MEASURED.fetch_add(u32::from(status == SUCCESS), Relaxed);
            sample.leave(state::FREE);
        }
    }
}

impl Sample {
    /// Takes the sample in a state.
    #[allow(clippy::mut_from_ref)]
    fn claim(&self, from: u32) -> Option<&mut Measurement> {
        let is_mine = self.state.compare_exchange(from, state::READ, AcqRel, Relaxed).is_ok();
        // SAFETY: only one thread gets it, until it leaves it.
        is_mine.then(|| unsafe { &mut *self.measurement.get() })
    }

    fn leave(&self, to: u32) {
        self.state.store(to, Release);
    }

    /// Destroys the events of a context, or of all, and reads them before if that is possible.
    fn forget(&self, driver: &Driver, context: *mut c_void) {
        const WITH_EVENTS: [u32; 3] = [state::RUNS, state::DONE, state::FREE];
        for _ in 0..PATIENCE {
            let claim = |from: &u32| Some((*from, self.claim(*from)?));
            if let Some((from, measurement)) = WITH_EVENTS.iter().find_map(claim) {
                let is_other = !context.is_null() && measurement.context != context;
                return self.leave(if is_other { from } else { measurement.give_up(driver, from) });
            }
            if self.state.load(Acquire) == state::LAUNCHES {
                // A launch in a context that is not the one that ends.
                return;
            }
            // The agent's thread looks at it just now.
            sys::sleep(1);
        }
    }
}

impl Measurement {
    /// Records the first event, of this context. False if the driver refuses.
    fn begin(&mut self, driver: &Driver, context: *mut c_void, stream: *mut c_void) -> bool {
        if self.context != context {
            let Some(events) = driver.create_events() else { return false };
            (self.context, self.events) = (context, events);
        }
        let is_recorded = driver.record(self.events.before, stream);
        self.keep_if(is_recorded)
    }

    /// Records the second event. False if the driver refuses.
    fn end(&mut self, driver: &Driver, stream: *mut c_void) -> bool {
        let is_recorded = driver.record(self.events.after, stream);
        self.keep_if(is_recorded)
    }

    /// Events that the driver refuses may have ended with their context.
    fn keep_if(&mut self, is_good: bool) -> bool {
        if !is_good {
            self.context = null_mut();
        }
        is_good
    }

    /// Nanoseconds between the first event and the kernel's begin, when the launch has just been made; `None` if that is not known.
    fn late(&mut self, driver: &Driver) -> Option<u64> {
        if driver.query(self.events.before) == NOT_READY {
            // Both were in the queue.
            return Some(0);
        }
        let call = now(CLOCK_MONOTONIC) - self.record.start;
        match self.was_idle {
            // The call lasts as long as the kernel.
            _ if IS_BLOCKING.load(Relaxed) != 0 => Some(0),
            // The first event was over at once, and the kernel began when the call was.
            true => Some(call),
            // The stream became idle within the call, nobody knows when.
            false => (call < SHORT).then_some(call / 2),
        }
    }

    /// Completes the record, if the work is done. Returns the next state.
    fn settle(&mut self, driver: &Driver) -> u32 {
        let between = match driver.query(self.events.after) {
            NOT_READY => return state::RUNS,
            SUCCESS => driver.between(self.events),
            _ => None,
        };
        if self.keep_if(between.is_some())
            && let Some(between) = between
        {
            self.record.end = self.record.start + between.saturating_sub(self.late);
            return state::DONE;
        }
        NOT_MEASURED.fetch_add(1, Relaxed);
        state::FREE
    }

    /// Destroys the events of a sample in a state. Returns the next state.
    fn give_up(&mut self, driver: &Driver, from: u32) -> u32 {
        let next = if from == state::RUNS { self.settle(driver) } else { from };
        self.forget(driver);
        if next == state::RUNS {
            NOT_MEASURED.fetch_add(1, Relaxed);
            return state::FREE;
        }
        next
    }

    /// Destroys the events.
    fn forget(&mut self, driver: &Driver) {
        if !self.context.is_null() {
            self.context = null_mut();
            driver.destroy_events(self.events);
        }
    }
}
