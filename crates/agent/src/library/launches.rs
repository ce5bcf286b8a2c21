//! When and by which thread work was launched: a note at the begin of each launching call, by its correlation id, which the records of
//! the work have.
//!
//! A note is a store to a table, without locks, system calls or memory of its own. There is room for the launches whose records
//! have not come yet; a note that was overwritten is recognised, and its record has no launch.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use crate::counts::LaunchKind;
use crate::cupti::CallbackData;
use crate::record::{Kind, Record};
use crate::sys::{self, ReservedMemory};
use crate::{batch, counts, cupti, graphs, operators, ranges, thread_id, waits};

/// Effect of a function of the driver.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    /// Launches a kernel, whose record has its correlation id.
    Kernel = 1,
    Graph,
    /// Makes or changes a graph that can be launched, or prepares its launch.
    MakesGraph,
    /// Begins or ends the capture of a stream.
    BeginCapture,
    EndCapture,
    /// Launches other work.
    Other,
    /// Makes the host wait.
    HostWait,
    /// Makes a stream wait.
    StreamWait,
}

/// The functions of the driver that are noted, by the begins of their names. `cuLaunchCooperativeKernelMultiDevice` and `cuLaunchHostFunc` launch
/// no kernel, or several.
const CLASSES: [(&[u8], Class); 16] = [
    (b"cuLaunchCooperativeKernelMultiDevice", Class::Other),
    (b"cuLaunchCooperativeKernel", Class::Kernel),
    (b"cuLaunchKernel", Class::Kernel),
    (b"cuLaunch", Class::Other),
    (b"cuGraphLaunch", Class::Graph),
    (b"cuGraphInstantiate", Class::MakesGraph),
    (b"cuGraphUpload", Class::MakesGraph),
    (b"cuGraphExec", Class::MakesGraph),
    (b"cuStreamBeginCapture", Class::BeginCapture),
    (b"cuStreamEndCapture", Class::EndCapture),
    (b"cuMemcpy", Class::Other),
    (b"cuMemset", Class::Other),
    (b"cuStreamSynchronize", Class::HostWait),
    (b"cuStreamWaitEvent", Class::StreamWait),
    (b"cuEventSynchronize", Class::HostWait),
    (b"cuCtxSynchronize", Class::HostWait),
];

/// Classes of the driver's functions by their numbers in CUPTI; 0: not noted.
static CLASS: [AtomicU8; cupti::FUNCTIONS as usize] = [const { AtomicU8::new(0) }; cupti::FUNCTIONS as usize];

/// Which calls are noted.
#[derive(Copy, Clone)]
pub(crate) struct CallFilter {
    /// Launches of other work than kernels and graphs, too.
    pub others: bool,
    /// Waits, too.
    pub waits: bool,
    /// Waits of the host, too: they are causes of idle times, and have no records.
    pub causes: bool,
}

impl CallFilter {
    /// Whether calls of a function are noted, by its number and its name.
    pub(crate) fn has(self, number: u32, name: &[u8]) -> bool {
        match classify(number, name) {
            None => false,
            Some(class) => self.takes(class),
        }
    }

    fn takes(self, class: Class) -> bool {
        match class {
            Class::Other => self.others,
            Class::HostWait => self.waits || self.causes,
            Class::StreamWait => self.waits,
            _ => true,
        }
    }
}

/// Whether a function of the driver makes or launches graphs, by its number and its name.
pub(crate) fn is_of_graphs(number: u32, name: &[u8]) -> bool {
    matches!(classify(number, name), Some(Class::Graph | Class::MakesGraph))
}

/// The class of a function by its name, kept by its number.
fn classify(number: u32, name: &[u8]) -> Option<Class> {
    let (_, class) = CLASSES.iter().find(|(begin, _)| name.starts_with(begin))?;
    CLASS[number as usize].store(*class as u8, Relaxed);
    Some(*class)
}

/// Number of notes; a power of two.
const NOTES: usize = 1 << 18;

/// A note.
#[derive(Default)]
struct Note {
    /// Nanoseconds of CLOCK_MONOTONIC.
    time: AtomicU64,
    /// Correlation id, and above it the thread.
    who: AtomicU64,
    /// Address of the function's name.
    func: AtomicU64,
    /// Address of the name of the thread's range of NVTX; 0: none.
    range: AtomicU64,
    /// Address of the name of the thread's operator of PyTorch; 0: none.
    operator: AtomicU64,
    /// The forward operator that the work belongs to; 0: none.
    forward: AtomicU64,
    /// Bits of what is known of it.
    state: AtomicU32,
}

/// The launch is counted.
const COUNTED: u32 = 1;
/// The launch has a record.
const RECORDED: u32 = 2;
/// The launch starts a graph.
const OF_GRAPH: u32 = 4;

/// The table.
static NOTED: ReservedMemory<Note> = ReservedMemory::of(NOTES);
/// Whether calls that have a record are passed on when they begin.
static PASSES_ON: AtomicBool = AtomicBool::new(false);
/// Whether waits of the host are causes of idle times, and have no record.
static WAITS_ARE_CAUSES: AtomicBool = AtomicBool::new(false);

/// Reserves the table. `pass_on`: calls are also passed on when they begin. False if there is no memory.
pub(crate) fn create(pass_on: bool, noted: CallFilter) -> bool {
    PASSES_ON.store(pass_on, Release);
    WAITS_ARE_CAUSES.store(noted.causes, Release);
    NOTED.reserve() && (!noted.causes || waits::create())
}

/// Calls are not passed on any more when they begin.
pub(crate) fn pass_on_no_more() {
    PASSES_ON.store(false, Release);
}

/// Gives the memory back, when no launch is noted any more.
pub(crate) fn release() {
    NOTED.release();
    waits::release();
}

/// Classes of functions that use graphs.
const GRAPHS: [u8; 2] = [Class::Graph as u8, Class::MakesGraph as u8];

/// Notes the call that begins in this thread now, by the number of its function.
pub(crate) fn entered(number: u32, call: &CallbackData) {
    const OTHERS: [u8; 4] = [0, Class::MakesGraph as u8, Class::BeginCapture as u8, Class::EndCapture as u8];
    let class = class(number);
    if GRAPHS.contains(&class) {
        graphs::are_used();
    }
    if class == Class::HostWait as u8 && WAITS_ARE_CAUSES.load(Relaxed) {
        // A note would take the place of a launch.
        return call.keep(sys::now(sys::CLOCK_MONOTONIC));
    }
    let (correlation, func) = (call.correlation, call.function.addr() as u64);
    let Some(note) = at(correlation).filter(|_| !OTHERS.contains(&class)) else { return };
    let tid = thread_id::current();
    let range = ranges::current(tid);
    let (operator, forward) = operators::current();
    // The time of one launch must not be taken for that of another.
    note.who.store(0, Release);
    if note.state.swap(0, AcqRel) & (COUNTED | RECORDED) == COUNTED {
        counts::forgotten();
    }
    let launch = sys::now(sys::CLOCK_MONOTONIC);
    note.time.store(launch, Release);
    note.func.store(func, Release);
    note.range.store(range, Release);
    note.operator.store(operator, Release);
    note.forward.store(forward, Release);
    note.who.store(u64::from(tid) << 32 | u64::from(correlation), Release);
    if PASSES_ON.load(Relaxed) {
        batch::at_once(
            Kind::Launch,
            &Record {
                start: launch,
                end: launch,
                launch,
                tid,
                func,
                range,
                operator,
                forward,
                corr: correlation.into(),
                ..Record::default()
            },
        );
    }
}

/// Takes note of the return of a call, by the number of its function.
pub(crate) fn returned(number: u32, call: &CallbackData) {
    const KERNEL: u8 = Class::Kernel as u8;
    const GRAPH: u8 = Class::Graph as u8;
    const BEGIN_CAPTURE: u8 = Class::BeginCapture as u8;
    const END_CAPTURE: u8 = Class::EndCapture as u8;
    const HOST_WAIT: u8 = Class::HostWait as u8;
    let (correlation, succeeds) = (call.correlation, call.succeeds());
    let class = class(number);
    // The call may have begun before the collection.
    if GRAPHS.contains(&class) {
        graphs::are_used();
    }
    match class {
        KERNEL if succeeds => count(correlation, LaunchKind::Kernel),
        GRAPH if succeeds => count(correlation, LaunchKind::Graph),
        BEGIN_CAPTURE if succeeds => counts::begin_capture(),
        END_CAPTURE => counts::end_capture(),
        HOST_WAIT if WAITS_ARE_CAUSES.load(Relaxed) && call.kept() != 0 => waits::add(call.kept()),
        _ => {}
    }
}

/// The [`Class`] of a function; 0: none.
fn class(number: u32) -> u8 {
    CLASS.get(number as usize).map_or(0, |class| class.load(Relaxed))
}

/// Counts a launch that was noted.
fn count(correlation: u32, what: LaunchKind) {
    let Some(note) = at(correlation) else { return };
    if !counts::counts() || note.who.load(Acquire) as u32 != correlation {
        return;
    }
    counts::launched(what);
    let of_graph = if what == LaunchKind::Graph { OF_GRAPH } else { 0 };
    if note.state.fetch_or(COUNTED | of_graph, AcqRel) & RECORDED != 0 {
        counts::recorded(what);
    }
}

/// Adds the launch of a record, if it was noted, and counts that it has one.
pub(crate) fn add(kind: Kind, record: &mut Record) {
    let correlation = record.corr as u32;
    let Some(note) = at(correlation).filter(|_| correlation != 0) else { return };
    let who = note.who.load(Acquire);
    let (time, func, range) = (note.time.load(Acquire), note.func.load(Acquire), note.range.load(Acquire));
    let (operator, forward) = (note.operator.load(Acquire), note.forward.load(Acquire));
    if who as u32 == correlation && note.who.load(Acquire) == who {
        (record.launch, record.func, record.range, record.tid) = (time, func, range, (who >> 32) as u32);
        (record.operator, record.forward) = (operator, forward);
        let before = note.state.fetch_or(RECORDED, AcqRel);
        if before & (COUNTED | RECORDED) == COUNTED {
            counts::recorded(if before & OF_GRAPH == 0 { LaunchKind::Kernel } else { LaunchKind::Graph });
        }
    } else if kind == Kind::Kernel && record.node == 0 {
        counts::unknown();
    }
}

fn at(correlation: u32) -> Option<&'static Note> {
    let noted = NOTED.first();
    // SAFETY: within the table, whose bytes are valid notes and stay.
    (!noted.is_null()).then(|| unsafe { &*noted.add(correlation as usize % NOTES) })
}
