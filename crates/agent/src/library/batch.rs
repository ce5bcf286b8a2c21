//! Batches of records, and the functions on which the tracer has probes.

use core::arch::naked_asm;

use crate::kind_set::KindSet;
use crate::record::{KINDS, Kind, Record};
use crate::sys::ReservedMemory;

/// Records of one call: the program of a probe is not interrupted meanwhile.
const CALL: usize = 256;

// The functions do nothing. They begin as functions of compilers do: probes are cheapest there, and a jump has room.
macro_rules! probed {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $function:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $function(_records: *const Record, _count: u64) {
                naked_asm!("push rbp", "mov rbp, rsp", "nop dword ptr [rax + rax]", "pop rbp", "ret")
            }
        )*

        /// By [`Kind`].
        const PROBED: [extern "C" fn(*const Record, u64); KINDS] = [$($function),*];
    };
}

kinds!(probed);

/// Records that wait for the call of their kind, in the order in which they are added.
pub(crate) struct Batches {
    /// Kinds that have probes.
    kinds: KindSet,
    counts: [usize; KINDS],
    /// Records by kind that were passed on.
    pub passed: [u64; KINDS],
}

/// Memory for these.
static MEMORY: ReservedMemory<[Record; CALL]> = ReservedMemory::of(KINDS);

/// Reserves the memory. False if there is none.
pub(crate) fn create() -> bool {
    MEMORY.reserve()
}

/// Gives the memory back.
pub(crate) fn release() {
    MEMORY.release();
}

/// Passes on a record at once, in the thread of the program that calls this.
pub(crate) fn at_once(kind: Kind, record: &Record) {
    PROBED[kind as usize](record, 1);
}

impl Batches {
    pub(crate) fn new(kinds: KindSet) -> Batches {
        Batches { kinds, counts: [0; KINDS], passed: [0; KINDS] }
    }

    pub(crate) fn add(&mut self, kind: Kind, record: Record) {
        if !self.kinds.contains(kind) {
            return;
        }
        let at = kind as usize;
        records(at)[self.counts[at]] = record;
        self.counts[at] += 1;
        if self.counts[at] == CALL {
            self.pass_on(at);
        }
    }

    /// Passes on all records.
    pub(crate) fn flush(&mut self) {
        (0..KINDS).for_each(|kind| self.pass_on(kind));
    }

    fn pass_on(&mut self, kind: usize) {
        let count = core::mem::take(&mut self.counts[kind]);
        if count > 0 {
            PROBED[kind](records(kind).as_ptr(), count as u64);
        }
        self.passed[kind] += count as u64;
    }
}

fn records(kind: usize) -> &'static mut [Record; CALL] {
    // SAFETY: reserved by `create`; only the agent's thread has `Batches`, and no two of these live at once.
    unsafe { &mut *MEMORY.first().add(kind) }
}
