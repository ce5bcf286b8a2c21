//! Programs that the session runs itself: at its end, at signals and ticks, and as tests.

use crate::handles::ProgramHandle;
use crate::kernel::signals::Arrivals;
use crate::options::ModuleId;
use linux::timer::Timer;
use wire::trigger::TestKind;

/// An END program that has not run yet.
pub(crate) struct EndProgram {
    pub module: ModuleId,
    pub clause: u32,
    pub program: ProgramHandle,
}

/// The program of a `signal` probe: runs each time that the tracer receives the signal.
pub(crate) struct SignalProgram {
    pub module: ModuleId,
    pub clause: u32,
    pub signal: Arrivals,
    pub program: ProgramHandle,
}

/// The program of an `interval` probe of a session that does not run in the kernel.
pub(crate) struct TimerProgram {
    pub timer: Timer,
    pub program: ProgramHandle,
}

/// The program of a test or a bench.
pub(crate) struct TestProgram {
    pub kind: TestKind,
    pub name: String,
    pub program: ProgramHandle,
}
