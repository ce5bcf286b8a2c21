//! Runs the tests and benches of a script: bodies that need no event.
//!
//! A test runs once. It fails if it returns a number other than 0, calls `exit()` with one, or prints an error; its output is
//! kept for that case. A bench first runs as a test, then repeatedly for a fixed time. Its duration is measured by the kernel,
//! minus that of an empty program, because reading the clock takes longer than many bodies.

use super::event_loop::{Control, Reason};
use super::records::{Emitter, Failure};
use crate::attach::own_programs::TestProgram;
use crate::handles::ProgramHandle;
use crate::kernel::features;
use crate::kernel::signals::StopSignals;
use crate::session::Session;
use crate::session::core::Core;
use crate::session::run_stats::RunTimeStats;
use crate::{attach, run_stats};
use report::sink::TextSink;
use report::test_results::{Step, TestResult};
use report::{Names, Output, Sink};
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::Manifest;
use wire::manifest::{EventKind, Message};
use wire::trigger::TestKind;

/// Duration of a bench.
const BENCH_TIME: Duration = Duration::from_millis(500);
/// Duration of the runs of the empty program.
const EMPTY_TIME: Duration = Duration::from_millis(200);
/// Number of runs between readings of the clock and the ring.
const BATCH: u64 = 64;

impl Session {
    /// Runs all tests, or all benches, in the order of the script.
    pub(super) fn run_tests(
        &mut self,
        emitter: &mut Emitter<'_>,
        control: &Control<'_>,
    ) -> Result<Reason, Failure> {
        // Output of BEGIN.
        self.core.drain(emitter, usize::MAX)?;
        if let Some(code) = self.core.exit_code().map_err(Failure::Kernel)? {
            return self.core.drain_to_exit(emitter, code).map(Reason::Exit);
        }
        let Session { core, tests, .. } = self;
        let kind = tests.first().map_or(TestKind::Test, |test| test.kind);
        let names = tests.iter().map(|test| test.name.clone()).collect();
        emit(core, emitter, Step::Begin { kind, names })?;
        let mut failed = Vec::new();
        let bench =
            if kind == TestKind::Bench { Some(Bench::start().map_err(Failure::Kernel)?) } else { None };
        for test in &*tests {
            let step = match &bench {
                Some(bench) => bench.step(core, emitter, test, control.signals)?,
                None => Step::Test(core.test(emitter.names, test)?),
            };
            if let Step::Test(TestResult { name, passed: false, .. }) = &step {
                failed.push(name.clone());
            }
            emit(core, emitter, step)?;
            if let Some(signal) = control.signals.and_then(StopSignals::take) {
                return Ok(Reason::Signal(signal));
            }
        }
        let done = Reason::TestsDone { failed: failed.len() };
        emit(core, emitter, Step::End { kind, count: tests.len(), failed })?;
        Ok(done)
    }
}

fn emit(core: &Core, emitter: &mut Emitter<'_>, step: Step) -> Result<(), Failure> {
    emitter.emit(&core.manifest, &Output::Tests(step))?;
    emitter.sink.flush().map_err(Failure::Sink)
}

impl Core {
    fn test(&mut self, names: &dyn Names, test: &TestProgram) -> Result<TestResult, Failure> {
        self.reset_test()?;
        let start = Instant::now();
        attach::run_once(&test.program).map_err(Failure::Kernel)?;
        let ns = start.elapsed().as_nanos() as u64;
        let mut output = TestOutput::default();
        let mut emitter = Emitter::new(&mut output, names);
        self.drain(&mut emitter, usize::MAX)?;
        emitter.emit_rest(&self.manifest)?;
        let exited = emitter.exit.take();
        self.rings.release(false);
        let returned =
            self.controls().next().map_or(Ok(0), |cell| cell.returned()).map_err(Failure::Kernel)?;
        // The exit code must not end END or the next test.
        self.reset_test()?;
        let passed = returned == 0 && exited.unwrap_or(0) == 0 && !output.error;
        Ok(TestResult { name: test.name.clone(), passed, ns, output: output.text.0.take() })
    }

    fn reset_test(&self) -> Result<(), Failure> {
        self.controls().try_for_each(|cell| cell.reset_test()).map_err(Failure::Kernel)
    }
}

/// Sink of a test: its output as text, and whether it printed an error.
struct TestOutput {
    text: SharedBuffer,
    error: bool,
    sink: TextSink<SharedBuffer, SharedBuffer>,
}

/// Output and messages, in their order.
#[derive(Clone, Default)]
struct SharedBuffer(Rc<RefCell<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Default for TestOutput {
    fn default() -> TestOutput {
        let text = SharedBuffer::default();
        let sink = TextSink::new(text.clone(), text.clone(), true);
        TestOutput { text, error: false, sink }
    }
}

impl Sink for TestOutput {
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()> {
        let event = match output {
            Output::Event { header, .. } => manifest.events.get(header.event as usize),
            _ => None,
        };
        let is_error = |kind: &EventKind| matches!(kind, EventKind::Message { what: Message::Error, .. });
        self.error |= event.is_some_and(|event| is_error(&event.kind));
        self.sink.output(manifest, names, output)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// State of benches: duration of an empty run; the kernel's statistics are enabled.
struct Bench {
    empty_ns: f64,
    _counting: RunTimeStats,
}

/// Number of runs of a program and their duration, from the kernel's statistics.
#[derive(Clone, Copy)]
struct ProgramStats {
    runs: u64,
    ns: u64,
}

impl ProgramStats {
    fn of(program: &ProgramHandle) -> io::Result<ProgramStats> {
        run_stats::read_program_stats(program.fd()?).map(|(runs, ns)| ProgramStats { runs, ns })
    }

    fn since(self, before: ProgramStats) -> ProgramStats {
        ProgramStats { runs: self.runs - before.runs, ns: self.ns - before.ns }
    }

    fn average_ns(self) -> f64 {
        self.ns as f64 / self.runs.max(1) as f64
    }
}

impl Bench {
    fn start() -> io::Result<Bench> {
        let counting = RunTimeStats::start()?;
        let empty = ProgramHandle::Kernel(features::empty_program()?);
        let begin = Instant::now();
        while begin.elapsed() < EMPTY_TIME {
            (0..BATCH).try_for_each(|_| attach::run_once(&empty))?;
        }
        let empty_ns = ProgramStats::of(&empty)?.average_ns();
        Ok(Bench { empty_ns, _counting: counting })
    }

    fn step(
        &self,
        core: &mut Core,
        emitter: &mut Emitter<'_>,
        test: &TestProgram,
        signals: Option<&StopSignals>,
    ) -> Result<Step, Failure> {
        let first = core.test(emitter.names, test)?;
        if !first.passed {
            return Ok(Step::Test(first));
        }
        let run = |core: &mut Core| -> Result<(), Failure> {
            (0..BATCH).try_for_each(|_| attach::run_once(&test.program)).map_err(Failure::Kernel)?;
            // The output is not needed, and a full ring would change the duration.
            core.discard();
            core.rings.release(false);
            Ok(())
        };
        run(core)?;
        let before = ProgramStats::of(&test.program).map_err(Failure::Kernel)?;
        let begin = Instant::now();
        while begin.elapsed() < BENCH_TIME && !signals.is_some_and(StopSignals::is_waiting) {
            run(core)?;
        }
        let stats = ProgramStats::of(&test.program).map_err(Failure::Kernel)?.since(before);
        if core.exit_code().map_err(Failure::Kernel)?.is_some() {
            core.reset_test()?;
            let output = b"a bench that calls `exit()` runs once and cannot be measured\n".to_vec();
            return Ok(Step::Test(TestResult { passed: false, output, ..first }));
        }
        let average_ns = (stats.average_ns() - self.empty_ns).max(0.0).round() as u64;
        Ok(Step::Bench { name: test.name.clone(), average_ns, runs: stats.runs })
    }
}
