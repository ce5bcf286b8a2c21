//! The life of an attached session: records to a sink until something ends it, then the end in its order.
//!
//! The end: probes are silenced and detached; what is queued is read, unless `exit()` ended the run; END runs; its records are
//! read; the maps are said, then the losses.
//!
//! Under load the ring is looked at every [`PAUSE_MS`] and never wakes us (see `ring`); otherwise we sleep until it does.

use crate::attach;
use crate::attach::detach::{DetachSummary, PendingDetach};
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::signals::{Arrivals, StopSignals};
use crate::kernel::sys;
use crate::read::losses::losses;
use crate::read::records::{Emitter, Failure, WRITING};
use crate::session::Session;
use report::{Cell, Names, Output, Sink};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::Manifest;

/// Records read before the other descriptors are looked at.
const BATCH: usize = 16 * 1024;
/// Records in one read from which on the reader is under load.
const BUSY_RECORDS: usize = 64;
/// Pause between looks under load, in ms.
const PAUSE_MS: i32 = 2;
/// What a sink has buffered is brought out at least so often.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// Limit for probes to be gone: they are by then, and only the kernel's grace period goes on (see `detach`).
const DETACH_PATIENCE: Duration = Duration::from_millis(10);

/// What a watch wants after it was served.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call me again.
    Continue,
    /// Look at me no longer.
    Remove,
    /// End the run.
    Stop,
}

/// Something else to look at while a session runs: late files, a prompt.
pub trait Watch {
    /// Readable when there is something to do.
    fn fd(&self) -> RawFd;
    /// Does it.
    fn ready(&mut self, session: &mut Session) -> Next;
}

/// What ends a run from outside, and what else to look at.
#[derive(Default)]
pub struct Control<'a> {
    /// Signals that stop it.
    pub signals: Option<&'a StopSignals>,
    /// Pidfds of the traced processes; the run ends when all have ended. Empty: it does not end by itself.
    pub targets: Vec<OwnedFd>,
    /// Called when Ctrl-C ends the run, before anything is printed for the end.
    pub on_interrupt: Option<fn()>,
    /// Others.
    pub watches: Vec<Box<dyn Watch + 'a>>,
    /// Watches that join while it runs.
    pub joining: Joining<'a>,
    /// Maps are printed when SIGUSR1 comes, unless a probe of the script waits for a signal.
    pub maps_on_signal: bool,
    /// Called once the sink has been given the number of probes.
    pub on_attached: Option<&'a dyn Fn()>,
}

/// Where a watch puts further ones, to be looked at from then on.
pub type Joining<'a> = Rc<RefCell<Vec<Box<dyn Watch + 'a>>>>;

/// Why a run ended.
#[derive(Debug)]
pub enum Reason {
    /// `exit(code)`
    Exit(i64),
    /// A signal.
    Signal(i32),
    /// All traced processes have ended.
    TargetsEnded,
    /// A watch asked for it.
    Watch,
    /// All tests or benches have run.
    TestsDone {
        /// Tests that failed.
        failed: usize,
    },
    /// The sink cannot write: a closed pipe (EPIPE) or a full disk. What was not said is lost.
    Sink(io::Error),
    /// The kernel failed us in mid-run.
    Kernel(io::Error),
}

/// How a run ended.
#[derive(Debug)]
pub struct Ending {
    /// Why.
    pub reason: Reason,
    /// Records that were queued behind that of `exit()`: written by other threads at the same moment, not printed.
    pub after_exit: u64,
    /// Commands of `system()` that were queued when a signal ended the run, and were not run.
    pub commands_skipped: u64,
    /// Records with an unknown id or too short; 0 unless there is a bug.
    pub unknown: u64,
    /// How the probes were taken away.
    pub detached: DetachSummary,
}

impl Session {
    /// Reads until the end, then ends. Detaches in any case.
    pub fn run(&mut self, sink: &mut dyn Sink, names: &dyn Names, mut control: Control<'_>) -> Ending {
        let mut emitter = Emitter::new(sink, names);
        emitter.signals = control.signals;
        let read = match self.tests.is_empty() {
            true => self.read(&mut emitter, &mut control),
            false => self.run_tests(&mut emitter, &control),
        };
        let reason = match read {
            Ok(reason) => reason,
            Err(failure) => failure.reason(),
        };
        let ended_ns = SystemClock.boot_ns();
        let detaching = self.detach();
        emitter.interrupted |= matches!(reason, Reason::Signal(_));
        let (after_exit, commands_skipped, unknown) = (0, 0, 0);
        let mut ending =
            Ending { reason, after_exit, commands_skipped, unknown, detached: DetachSummary::default() };
        // A sink that has failed once is not written to again.
        if !matches!(ending.reason, Reason::Sink(_))
            && let Err(failure) = self.finish(&mut emitter, &mut ending, detaching, ended_ns)
        {
            ending.reason = failure.reason();
        }
        ending.unknown = emitter.unknown;
        ending.commands_skipped = emitter.commands_skipped;
        ending
    }

    fn read(&mut self, emitter: &mut Emitter<'_>, control: &mut Control<'_>) -> Result<Reason, Failure> {
        let reason = self.read_until_end(emitter, control)?;
        match self.core.exit_code().map_err(Failure::Kernel)? {
            // It came before what else ended the run.
            Some(code) if !matches!(reason, Reason::Exit(_)) => {
                self.core.drain_to_exit(emitter, code).map(Reason::Exit)
            }
            _ => Ok(reason),
        }
    }

    fn read_until_end(
        &mut self,
        emitter: &mut Emitter<'_>,
        control: &mut Control<'_>,
    ) -> Result<Reason, Failure> {
        // Before anybody can know that it runs: the signal would end it.
        let wanted = control.maps_on_signal && self.signal_programs.is_empty();
        let maps_signal = wanted.then(|| Arrivals::of(libc::SIGUSR1)).transpose().map_err(Failure::Kernel)?;
        emitter.say(&self.core.manifest, &Output::Attached { probes: self.attached() })?;
        if let Some(on_attached) = control.on_attached {
            emitter.sink.flush().map_err(Failure::Sink)?;
            on_attached();
        }
        let mut flushed = Instant::now();
        loop {
            if maps_signal.as_ref().is_some_and(|signal| signal.take() > 0) {
                self.say_maps(emitter)?;
            }
            let drained = self.core.drain(emitter, BATCH)?;
            if let Some(code) = emitter.exit {
                return Ok(Reason::Exit(code));
            }
            let busy = drained.records >= BUSY_RECORDS;
            self.core.ring.release(busy);
            if !busy && self.core.ring.has_more() {
                continue;
            }
            // An exit() whose record was lost ends the run too; we would sleep.
            if !busy && let Some(code) = self.core.exit_code().map_err(Failure::Kernel)? {
                return self.core.drain_to_exit(emitter, code).map(Reason::Exit);
            }
            if !busy || flushed.elapsed() > FLUSH_EVERY {
                emitter.sink.flush().map_err(Failure::Sink)?;
                flushed = Instant::now();
            }
            let timeout = if drained.records == BATCH { 0 } else { PAUSE_MS };
            let maps_signal = maps_signal.as_ref().map_or(-1, Arrivals::fd);
            if let Some(reason) = self.wait(control, maps_signal, busy.then_some(timeout))? {
                return Ok(reason);
            }
        }
    }

    /// Waits for something to do: under load (`pause_ms`) no longer than that, and not for the ring.
    fn wait(
        &mut self,
        control: &mut Control<'_>,
        maps_signal: RawFd,
        pause_ms: Option<i32>,
    ) -> Result<Option<Reason>, Failure> {
        control.watches.append(&mut control.joining.borrow_mut());
        let ring = if pause_ms.is_some() { -1 } else { self.core.ring.fd() };
        let signals = control.signals.map_or(-1, StopSignals::fd);
        let mut fds = vec![sys::readable(ring), sys::readable(signals)];
        fds.extend(control.targets.iter().map(|target| sys::readable(target.as_raw_fd())));
        fds.extend(control.watches.iter().map(|watch| sys::readable(watch.fd())));
        fds.extend(self.signal_programs.iter().map(|on| sys::readable(on.signal.fd())));
        fds.push(sys::readable(maps_signal));
        if sys::poll(&mut fds, pause_ms.unwrap_or(-1)).map_err(Failure::Kernel)? == 0 {
            return Ok(None);
        }
        let ready: Vec<bool> = fds[2..].iter().map(|fd| fd.revents != 0).collect();
        if fds[1].revents != 0
            && let Some(signal) = control.signals.and_then(StopSignals::take)
        {
            if let (libc::SIGINT, Some(interrupted)) = (signal, control.on_interrupt) {
                interrupted();
            }
            return Ok(Some(Reason::Signal(signal)));
        }
        self.serve_signals().map_err(Failure::Kernel)?;
        let (targets, watches) = ready.split_at(control.targets.len());
        if self.serve(&mut control.watches, watches) {
            return Ok(Some(Reason::Watch));
        }
        let mut ended = targets.iter();
        let before = control.targets.len();
        control.targets.retain(|_| !ended.next().copied().unwrap_or(false));
        Ok((before > 0 && control.targets.is_empty()).then_some(Reason::TargetsEnded))
    }

    /// Runs the programs of the signals that came.
    fn serve_signals(&self) -> io::Result<()> {
        for on in &self.signal_programs {
            (0..on.signal.take()).try_for_each(|_| attach::run_once(&on.program))?;
        }
        Ok(())
    }

    /// Serves the watches that are ready; whether one wants to end the run.
    fn serve(&mut self, watches: &mut Vec<Box<dyn Watch + '_>>, ready: &[bool]) -> bool {
        let mut ready = ready.iter();
        let mut stop = false;
        watches.retain_mut(|watch| {
            let next = if *ready.next().unwrap_or(&false) { watch.ready(self) } else { Next::Continue };
            stop |= next == Next::Stop;
            next != Next::Remove
        });
        stop
    }

    fn finish(
        &mut self,
        emitter: &mut Emitter<'_>,
        ending: &mut Ending,
        detaching: PendingDetach,
        ended_ns: u64,
    ) -> Result<(), Failure> {
        // While the kernel works; what was being written at the end comes behind it.
        self.drain_queue(emitter, ending)?;
        ending.detached = detaching.wait(DETACH_PATIENCE);
        self.drain_queue(emitter, ending)?;
        self.core.ring.release(false);
        self.core.stop_clock_at(ended_ns).map_err(Failure::Kernel)?;
        // The commands of END are run, whatever ended the run.
        (emitter.signals, emitter.interrupted) = (None, false);
        for end in std::mem::take(&mut self.end_programs) {
            attach::run_once(&end.program).map_err(Failure::Kernel)?;
            self.core.drain(emitter, usize::MAX)?;
            self.core.ring.release(false);
        }
        // `exit()` in END: its code counts unless another ended the run.
        if let (Some(code), false) = (emitter.exit, matches!(ending.reason, Reason::Exit(_))) {
            ending.reason = Reason::Exit(code);
        }
        self.say_end(emitter)
    }

    /// Reads what is queued; what lies behind `exit()` is counted only.
    fn drain_queue(&mut self, emitter: &mut Emitter<'_>, ending: &mut Ending) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            if !matches!(ending.reason, Reason::Exit(_)) {
                self.core.drain(emitter, usize::MAX)?;
            }
            if let Some(code) = emitter.exit.take() {
                ending.reason = Reason::Exit(code);
            }
            if matches!(ending.reason, Reason::Exit(_)) {
                ending.after_exit += self.core.discard();
            }
            if !self.core.ring.is_being_written() || start.elapsed() > WRITING {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    fn say_end(&mut self, emitter: &mut Emitter<'_>) -> Result<(), Failure> {
        let core = &self.core;
        emitter.from = None;
        emitter.say_rest(&core.manifest)?;
        if self.tests.is_empty() {
            emitter.say(&core.manifest, &Output::End)?;
        }
        self.say_maps(emitter)?;
        let core = &self.core;
        let counts = core.counters().map_err(Failure::Kernel)?;
        emitter.say(&core.manifest, &Output::Losses(losses(&core.manifest, &counts)))?;
        emitter.sink.flush().map_err(Failure::Sink)
    }

    /// Prints the maps that are printed at the end, those with something in them.
    fn say_maps(&self, emitter: &mut Emitter<'_>) -> Result<(), Failure> {
        let core = &self.core;
        for map in maps_at_end(&core.manifest) {
            let snapshot = core.snapshot(map, 0, 0).map_err(Failure::Kernel)?;
            let counts_nothing = matches!(snapshot.entries[..], [(_, Cell::Number { bits: 0, .. })]);
            // A count of 0 is news, unless the script has cleared it away.
            let is_gone = counts_nothing && core.scripts[map as usize].is_cleared();
            if !snapshot.entries.is_empty() && !is_gone {
                emitter.say(&core.manifest, &Output::Map(snapshot))?;
            }
        }
        Ok(())
    }
}

/// Indices of the maps to print at the end, by name.
fn maps_at_end(manifest: &Manifest) -> Vec<u32> {
    if !manifest.print_maps_on_exit {
        return Vec::new();
    }
    let shown = |index: &u32| {
        let map = &manifest.maps[*index as usize];
        !map.is_hidden() && !manifest.unprinted.contains(&map.name)
    };
    let mut indices: Vec<u32> = (0..manifest.maps.len() as u32).filter(shown).collect();
    indices.sort_by_key(|index| &manifest.maps[*index as usize].name);
    indices
}
