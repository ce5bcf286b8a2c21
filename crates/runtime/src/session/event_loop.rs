//! Runs an attached session: emits its records until something ends it, then its final output.
//!
//! At the end the programs are silenced and detached. Queued records are read, unless `exit()` ended the run. END runs and its
//! records are read. The maps are emitted, then the losses.
//!
//! Under load the ring is polled every [`PAUSE_MS`] and never wakes the reader (see `ring`); otherwise the reader sleeps until
//! the ring wakes it.

use crate::attach;
use crate::attach::detach::{DetachSummary, PendingDetach};
use crate::attach::own_programs::{SignalProgram, TimerProgram};
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::signals::{Arrivals, StopSignals};
use crate::kernel::sys;
use crate::read::losses;
use crate::session::Session;
use crate::session::records::{Emitter, Failure, LAST_PRINTS, WRITE_TIMEOUT};
use crate::shared::Damage;
use report::{Cell, Names, Output, Sink};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::Manifest;

/// Number of records that are read before the other descriptors are polled.
const BATCH: usize = 16 * 1024;
/// Smallest number of records in one read that counts as load.
const BUSY_RECORDS: usize = 64;
/// Pause between reads under load, in ms.
const PAUSE_MS: i32 = 2;
/// Time between two reads of a ring buffer whose writers wake nobody, in ms.
const LOOK_EVERY_MS: i32 = 10;
/// Longest time of reads between two looks at other descriptors.
const LONGEST_READ: Duration = Duration::from_millis(50);
/// Longest time between flushes of the sink.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for the last events of watches, and the pause between two looks.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);
const FINISH_PAUSE: Duration = Duration::from_millis(1);
/// Longest time for records that are written after the programs were silenced.
const LAST_RECORDS: Duration = Duration::from_secs(1);
/// Longest wait for the probes to be removed. After it only the grace period of the kernel continues (see `detach`).
const DETACH_TIMEOUT: Duration = Duration::from_millis(10);

/// Action after a watch was served.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Poll the watch again.
    Continue,
    /// Remove the watch.
    Remove,
    /// End the run.
    Stop,
}

/// A descriptor that is polled while a session runs: late files, a prompt.
pub trait Watch {
    /// Descriptor that is readable when there is something to do.
    fn fd(&self) -> RawFd;
    /// Handles it.
    fn ready(&mut self, session: &mut Session) -> Next;
    /// The run is about to end: makes the last events happen that programs are to see. Called until it returns true, or for some time.
    fn finish(&mut self, _session: &mut Session) -> bool {
        true
    }
}

/// Conditions that end a run, and descriptors to poll.
#[derive(Default)]
pub struct Control<'a> {
    /// Signals that end the run.
    pub signals: Option<&'a StopSignals>,
    /// Pidfds of the traced processes; the run ends when all have ended. Empty: no such condition.
    pub targets: Vec<OwnedFd>,
    /// Called when Ctrl-C ends the run, before anything is printed for the end.
    pub on_interrupt: Option<fn()>,
    /// Other descriptors.
    pub watches: Vec<Box<dyn Watch + 'a>>,
    /// Watches that are added during the run.
    pub joining: Joining<'a>,
    /// True to print the maps on SIGUSR1, unless the script has a signal probe.
    pub maps_on_signal: bool,
    /// Called after the sink has received the number of probes.
    pub on_attached: Option<&'a dyn Fn()>,
}

/// Queue to which a watch adds further watches.
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
    /// [`Next::Stop`]
    Watch,
    /// All tests or benches have run.
    TestsDone {
        /// Number of failed tests.
        failed: usize,
    },
    /// The sink cannot write: a closed pipe (EPIPE) or a full disk. The remaining output is lost.
    Sink(io::Error),
    /// A system call failed.
    Kernel(io::Error),
    /// A traced process has damaged the memory that it shares with the tracer: see [`Ending::damage`].
    Damaged,
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Reason {
        match failure {
            Failure::Sink(error) => Reason::Sink(error),
            Failure::Kernel(error) => Reason::Kernel(error),
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Ending {
    /// Why the run ended.
    pub reason: Reason,
    /// Number of records after that of `exit()`, written by other threads at the same time; they are not printed.
    pub after_exit: u64,
    /// Number of queued `system()` commands that were not run because a signal ended the run.
    pub commands_skipped: u64,
    /// Number of records that are too short or have an unknown id; 0 unless there is a bug.
    pub unknown: u64,
    /// Number of prints of maps that were queued at the end, for which there was no time.
    pub unprinted: u64,
    /// Number of calls whose return was ignored, since there was no memory for values of their entry.
    pub ignored_returns: u64,
    /// Memory that was damaged, if any: the results may be wrong.
    pub damage: Option<DamagedMemory>,
    /// Result of detaching.
    pub detached: DetachSummary,
}

/// Memory that traced processes share with the tracer, and that one of them has damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedMemory {
    /// The check that has failed.
    pub damage: Damage,
    /// The processes that share it.
    pub pids: Vec<u32>,
}

impl Session {
    /// Emits records until the end, then the final output. Always detaches.
    pub fn run(&mut self, sink: &mut dyn Sink, names: &dyn Names, mut control: Control<'_>) -> Ending {
        let mut emitter = Emitter::new(sink, names);
        emitter.signals = control.signals;
        let read = match self.tests.is_empty() {
            true => self.read(&mut emitter, &mut control),
            false => self.run_tests(&mut emitter, &control),
        };
        let read = read.and_then(|reason| {
            self.finish_watches(&mut emitter, &mut control.watches)?;
            self.core.serve_ends().map_err(Failure::Kernel)?;
            Ok(reason)
        });
        let reason = read.unwrap_or_else(Reason::from);
        let ended_ns = SystemClock.boot_ns();
        // Afterwards it is not known any more which processes these were.
        let sharing = self.core.sharing();
        let detaching = self.detach();
        emitter.interrupted |= matches!(reason, Reason::Signal(_));
        let (after_exit, commands_skipped, unknown) = (0, 0, 0);
        let (damage, detached) = (None, DetachSummary::default());
        let (unprinted, ignored_returns) = (0, 0);
        let mut ending = Ending {
            reason,
            after_exit,
            commands_skipped,
            unknown,
            unprinted,
            ignored_returns,
            damage,
            detached,
        };
        // A sink that has failed is not used again.
        if !matches!(ending.reason, Reason::Sink(_))
            && let Err(failure) = self.finish(&mut emitter, &mut ending, detaching, ended_ns)
        {
            ending.reason = failure.into();
        }
        self.core.check_maps();
        ending.damage = self.core.damage().map(|damage| DamagedMemory { damage, pids: sharing });
        ending.unprinted = emitter.unprinted;
        ending.ignored_returns = emitter.ignored_returns;
        ending.unknown = emitter.unknown;
        ending.commands_skipped = emitter.commands_skipped;
        ending
    }

    fn read(&mut self, emitter: &mut Emitter<'_>, control: &mut Control<'_>) -> Result<Reason, Failure> {
        let reason = self.read_until_end(emitter, control)?;
        match self.core.exit_code().map_err(Failure::Kernel)? {
            // `exit()` was before the other reason.
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
        // Before the start is reported: a signal without a handler would end the process.
        let prints_maps = control.maps_on_signal && self.signal_programs.is_empty();
        let maps_signal =
            prints_maps.then(|| Arrivals::of(libc::SIGUSR1)).transpose().map_err(Failure::Kernel)?;
        emitter.emit(&self.core.manifest, &Output::Attached { probes: self.attached() })?;
        if let Some(on_attached) = control.on_attached {
            emitter.sink.flush().map_err(Failure::Sink)?;
            on_attached();
        }
        let (mut flushed, mut waited) = (Instant::now(), Instant::now());
        loop {
            if maps_signal.as_ref().is_some_and(|signal| signal.take() > 0) {
                self.emit_maps(emitter)?;
            }
            self.core.tick();
            let drained = self.core.drain(emitter, BATCH)?;
            if self.core.damage().is_some() {
                return Ok(Reason::Damaged);
            }
            if let Some(code) = emitter.exit {
                return Ok(Reason::Exit(code));
            }
            let busy = drained.records >= BUSY_RECORDS;
            self.core.rings.release(busy);
            let has_more = self.core.rings.have_more();
            // Records that cost much, or none at all, come as fast as a process writes them.
            if !busy && has_more && waited.elapsed() < LONGEST_READ {
                continue;
            }
            // An exit() whose record was lost ends the run too, and no record would wake the reader.
            if !busy && let Some(code) = self.core.exit_code().map_err(Failure::Kernel)? {
                return self.core.drain_to_exit(emitter, code).map(Reason::Exit);
            }
            if !busy || flushed.elapsed() > FLUSH_EVERY {
                emitter.sink.flush().map_err(Failure::Sink)?;
                flushed = Instant::now();
            }
            let timeout = if drained.records == BATCH || has_more { 0 } else { PAUSE_MS };
            let maps_signal = maps_signal.as_ref().map_or(-1, Arrivals::fd);
            if let Some(reason) = self.wait(control, maps_signal, (busy || has_more).then_some(timeout))? {
                return Ok(reason);
            }
            waited = Instant::now();
        }
    }

    /// Polls the descriptors. Under load the wait is limited to `pause_ms`, and the ring is not polled.
    fn wait(
        &mut self,
        control: &mut Control<'_>,
        maps_signal: RawFd,
        pause_ms: Option<i32>,
    ) -> Result<Option<Reason>, Failure> {
        control.watches.append(&mut control.joining.borrow_mut());
        let looks = pause_ms.is_none();
        let pause_ms = pause_ms.or((!self.core.rings.wake()).then_some(LOOK_EVERY_MS));
        let signals = control.signals.map_or(-1, StopSignals::fd);
        let mut fds = vec![sys::readable(signals)];
        fds.extend(control.targets.iter().map(|target| sys::readable(target.as_raw_fd())));
        fds.extend(control.watches.iter().map(|watch| sys::readable(watch.fd())));
        fds.extend(self.signal_programs.iter().map(|program| sys::readable(program.signal.fd())));
        fds.extend(self.timers.iter().map(|timer| sys::readable(timer.timer.fd())));
        fds.push(sys::readable(maps_signal));
        let others = fds.len();
        fds.extend(self.core.end_fds().map(sys::readable));
        let rings = fds.len();
        fds.extend(self.core.rings.fds().filter(|_| looks).map(sys::readable));
        if sys::poll(&mut fds, pause_ms.unwrap_or(-1)).map_err(Failure::Kernel)? == 0 {
            return Ok(None);
        }
        let ready: Vec<bool> = fds[1..].iter().map(|fd| fd.revents != 0).collect();
        if fds[0].revents != 0
            && let Some(signal) = control.signals.and_then(StopSignals::take)
        {
            if let (libc::SIGINT, Some(interrupted)) = (signal, control.on_interrupt) {
                interrupted();
            }
            return Ok(Some(Reason::Signal(signal)));
        }
        if fds[others..rings].iter().any(|fd| fd.revents != 0) {
            self.core.serve_ends().map_err(Failure::Kernel)?;
        }
        self.serve_signals().map_err(Failure::Kernel)?;
        self.serve_timers().map_err(Failure::Kernel)?;
        let (targets, watches) = ready.split_at(control.targets.len());
        if self.serve(&mut control.watches, watches) {
            return Ok(Some(Reason::Watch));
        }
        let mut ended = targets.iter();
        let before = control.targets.len();
        control.targets.retain(|_| !ended.next().copied().unwrap_or(false));
        Ok((before > 0 && control.targets.is_empty()).then_some(Reason::TargetsEnded))
    }

    /// Waits for the last events of the watches, and reads what programs write for them.
    fn finish_watches(
        &mut self,
        emitter: &mut Emitter<'_>,
        watches: &mut [Box<dyn Watch + '_>],
    ) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            let mut done = true;
            watches.iter_mut().for_each(|watch| done &= watch.finish(self));
            if done || start.elapsed() > FINISH_TIMEOUT {
                return Ok(());
            }
            self.core.drain(emitter, BATCH)?;
            self.core.rings.release(false);
            std::thread::sleep(FINISH_PAUSE);
        }
    }

    /// Runs the programs of the signals that have arrived.
    fn serve_signals(&self) -> io::Result<()> {
        for SignalProgram { signal, program, .. } in &self.signal_programs {
            (0..signal.take()).try_for_each(|_| attach::run_once(program))?;
        }
        Ok(())
    }

    /// Runs the programs of the timers that have expired.
    fn serve_timers(&self) -> io::Result<()> {
        for TimerProgram { timer, program } in &self.timers {
            if timer.take() {
                attach::run_once(program)?;
            }
        }
        Ok(())
    }

    /// Serves the watches that are ready. Returns true if one ends the run.
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
        emitter.prints_until = Some(Instant::now() + LAST_PRINTS);
        // While the kernel detaches; records that were being written at the end are read afterwards.
        self.drain_queue(emitter, ending)?;
        ending.detached = detaching.wait(DETACH_TIMEOUT);
        self.drain_queue(emitter, ending)?;
        self.core.rings.release(false);
        self.core.stop_clock_at(ended_ns).map_err(Failure::Kernel)?;
        emitter.prints_until = None;
        // Commands of END always run.
        (emitter.signals, emitter.interrupted) = (None, false);
        for end in std::mem::take(&mut self.end_programs) {
            attach::run_once(&end.program).map_err(Failure::Kernel)?;
            self.core.drain(emitter, usize::MAX)?;
            self.core.rings.release(false);
        }
        // `exit()` in END: its code is used unless another `exit()` ended the run.
        if let (Some(code), false) = (emitter.exit, matches!(ending.reason, Reason::Exit(_))) {
            ending.reason = Reason::Exit(code);
        }
        self.emit_final(emitter)
    }

    /// Reads the queued records; records after `exit()` are only counted.
    fn drain_queue(&mut self, emitter: &mut Emitter<'_>, ending: &mut Ending) -> Result<(), Failure> {
        let mut first = None;
        loop {
            if !matches!(ending.reason, Reason::Exit(_)) {
                self.core.drain(emitter, usize::MAX)?;
            }
            // Reading what is queued may take any time.
            let start = *first.get_or_insert_with(Instant::now);
            if let Some(code) = emitter.exit.take() {
                ending.reason = Reason::Exit(code);
            }
            if matches!(ending.reason, Reason::Exit(_)) {
                ending.after_exit += self.core.discard();
            }
            if !self.core.rings.are_being_written() {
                return Ok(());
            }
            let waited = start.elapsed();
            // A process that writes on and on is not waited for.
            if waited > WRITE_TIMEOUT && (!self.core.rings.give_up_next() || waited > LAST_RECORDS) {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    fn emit_final(&mut self, emitter: &mut Emitter<'_>) -> Result<(), Failure> {
        let core = &self.core;
        emitter.from = None;
        emitter.emit_rest(&core.manifest)?;
        if self.tests.is_empty() {
            emitter.emit(&core.manifest, &Output::End)?;
        }
        self.emit_maps(emitter)?;
        let losses = self.losses().map_err(Failure::Kernel)?;
        emitter.ignored_returns = losses::ignored_returns(&losses);
        emitter.emit(&self.core.manifest, &Output::Losses(losses))?;
        emitter.sink.flush().map_err(Failure::Sink)
    }

    /// Emits the maps that are printed at the end, unless they are empty.
    fn emit_maps(&self, emitter: &mut Emitter<'_>) -> Result<(), Failure> {
        let core = &self.core;
        for map in maps_at_end(&core.manifest) {
            let snapshot = core.snapshot(map, 0, 0).map_err(Failure::Kernel)?;
            let is_zero = matches!(snapshot.entries[..], [(_, Cell::Number { bits: 0, .. })]);
            // A count of 0 is printed unless the script has cleared it.
            let is_cleared_count = is_zero && core.scripts[map as usize].is_cleared();
            if !snapshot.entries.is_empty() && !is_cleared_count {
                emitter.emit(&core.manifest, &Output::Map(snapshot))?;
            }
        }
        Ok(())
    }
}

/// Indices of the maps to print at the end, sorted by name.
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
