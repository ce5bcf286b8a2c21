//! When and by which thread work was launched: a note at the begin of each launching call, by its correlation id, which the records of
//! the work have.
//!
//! A note is a store to a table, without locks, system calls or memory of its own. There is room for the launches whose records
//! have not come yet; a note that was overwritten is recognised, and its record has no launch.

use core::arch::asm;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::record::Record;
use crate::sys::{self, Reserved};
use crate::{batch, ranges};

/// Functions of the driver that launch work, or wait for it, by the begins of their names.
pub const FUNCTIONS: [&[u8]; 8] = [
    b"cuLaunch",
    b"cuGraphLaunch",
    b"cuMemcpy",
    b"cuMemset",
    b"cuStreamSynchronize",
    b"cuStreamWaitEvent",
    b"cuEventSynchronize",
    b"cuCtxSynchronize",
];
/// How many of these launch work.
pub const LAUNCHING: usize = 4;

/// Number of notes; a power of two.
const NOTES: usize = 1 << 18;
/// Offset of a thread's id from its control block in glibc, 2.4 to 2.43.
const GLIBC_TID: usize = 720;

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
}

/// The table.
static NOTED: Reserved<Note> = Reserved::of(NOTES);
/// 1: launches are passed on when they begin.
static PASSES_ON: AtomicU32 = AtomicU32::new(0);
/// Whether the C library stores the id of a thread where glibc does: 0 not known yet, 1 yes, 2 no.
static STORES_TID: AtomicU32 = AtomicU32::new(0);

/// Reserves the table. `pass_on`: launches are also passed on when they begin. False if there is no memory.
pub fn create(pass_on: bool) -> bool {
    PASSES_ON.store(pass_on.into(), Release);
    NOTED.reserve()
}

/// Gives the memory back, when no launch is noted any more.
pub fn release() {
    NOTED.release();
}

/// Notes the launch that begins in this thread now, by the function of this name.
pub fn note(correlation: u32, func: u64) {
    let Some(note) = at(correlation) else { return };
    let tid = tid();
    let range = ranges::current(tid);
    // The time of one launch must not be taken for that of another.
    note.who.store(0, Release);
    let launch = sys::now(sys::CLOCK_MONOTONIC);
    note.time.store(launch, Release);
    note.func.store(func, Release);
    note.range.store(range, Release);
    note.who.store(u64::from(tid) << 32 | u64::from(correlation), Release);
    if PASSES_ON.load(Relaxed) == 1 {
        batch::launched(&Record {
            start: launch,
            end: launch,
            launch,
            tid,
            func,
            range,
            corr: correlation.into(),
            ..Record::default()
        });
    }
}

/// Adds the launch of a record, if it was noted.
pub fn add(record: &mut Record) {
    let correlation = record.corr as u32;
    let Some(note) = at(correlation).filter(|_| correlation != 0) else { return };
    let who = note.who.load(Acquire);
    let (time, func, range) = (note.time.load(Acquire), note.func.load(Acquire), note.range.load(Acquire));
    if who as u32 == correlation && note.who.load(Acquire) == who {
        (record.launch, record.func, record.range, record.tid) = (time, func, range, (who >> 32) as u32);
    }
}

fn at(correlation: u32) -> Option<&'static Note> {
    let noted = NOTED.first();
    // SAFETY: within the table, whose bytes are valid notes and stay.
    (!noted.is_null()).then(|| unsafe { &*noted.add(correlation as usize % NOTES) })
}

/// The id of this thread.
pub fn tid() -> u32 {
    match STORES_TID.load(Relaxed) {
        1 => stored_tid(),
        2 => sys::gettid(),
        _ => {
            let is_stored = stored_tid() == sys::gettid();
            STORES_TID.store(if is_stored { 1 } else { 2 }, Release);
            sys::gettid()
        }
    }
}

/// The id of this thread where glibc stores it.
fn stored_tid() -> u32 {
    let tid: u32;
    // SAFETY: reads the thread's control block, which is larger in all C libraries for x86-64.
    unsafe {
        asm!(
            "mov {block}, fs:[0x10]",
            "mov {tid:e}, [{block} + {offset}]",
            block = out(reg) _,
            tid = out(reg) tid,
            offset = const GLIBC_TID,
            options(nostack, readonly, preserves_flags),
        );
    }
    tid
}
