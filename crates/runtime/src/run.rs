//! The life of an attached session: records to a sink until something ends it, then the end in its order.
//!
//! The end: probes are silenced and detached; what is queued is read, unless `exit()` ended the run; END runs; its records are
//! read; the maps are said, then the troubles.
//!
//! Under load the ring is looked at every [`PAUSE_MS`] and never wakes us (see `ring`); otherwise we sleep until it does.

mod trials;

use crate::clock::{Clock, SystemClock};
use crate::detach::{Detached, Detaching};
use crate::ring::Drained;
use crate::rows::{Row, Rows};
use crate::session::{Core, Session};
use crate::signals::{Arrivals, StopSignals};
use crate::{attach, fetch, sys};
use report::table::Table;
use report::value::Context;
use report::{Cell, Names, Output, Sink, Trouble, map_order};
use std::cell::RefCell;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::decode::{self, Header, Value};
use wire::manifest::{Event, EventKind, Message, Piece, Place};
use wire::{CounterKind, Manifest};

/// Records read before the other descriptors are looked at.
const BATCH: usize = 16 * 1024;
/// So many records in one look mean load.
const BUSY_RECORDS: usize = 64;
/// Pause between looks under load, in ms.
const PAUSE_MS: i32 = 2;
/// What a sink has buffered is brought out at least so often.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// So long we wait for probes to be gone: they are by then, and only the kernel's grace period goes on (see `detach`).
const DETACH_PATIENCE: Duration = Duration::from_millis(10);
/// So long a program may take to finish the record that it was writing when it was silenced.
const WRITING: Duration = Duration::from_millis(100);

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
    /// Those that join while it runs.
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
    Tried {
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
    pub detached: Detached,
}

impl Session {
    /// Reads until the end, then ends. Detaches in any case.
    pub fn run(&mut self, sink: &mut dyn Sink, names: &dyn Names, mut control: Control<'_>) -> Ending {
        let mut speaker = Speaker::new(sink, names);
        speaker.signals = control.signals;
        let read = match self.trials.is_empty() {
            true => self.read(&mut speaker, &mut control),
            false => self.try_all(&mut speaker, &control),
        };
        let reason = match read {
            Ok(reason) => reason,
            Err(failure) => failure.reason(),
        };
        let ended_ns = SystemClock.boot_ns();
        let detaching = self.detach();
        speaker.interrupted |= matches!(reason, Reason::Signal(_));
        let (after_exit, commands_skipped, unknown) = (0, 0, 0);
        let mut ending =
            Ending { reason, after_exit, commands_skipped, unknown, detached: Detached::default() };
        // A sink that has failed once is not written to again.
        if !matches!(ending.reason, Reason::Sink(_))
            && let Err(failure) = self.finish(&mut speaker, &mut ending, detaching, ended_ns)
        {
            ending.reason = failure.reason();
        }
        ending.unknown = speaker.unknown;
        ending.commands_skipped = speaker.commands_skipped;
        ending
    }

    fn read(&mut self, speaker: &mut Speaker<'_>, control: &mut Control<'_>) -> Result<Reason, Failure> {
        let reason = self.read_until_end(speaker, control)?;
        match self.core.exit_code().map_err(Failure::Kernel)? {
            // It came before what else ended the run.
            Some(code) if !matches!(reason, Reason::Exit(_)) => {
                self.core.drain_to_exit(speaker, code).map(Reason::Exit)
            }
            _ => Ok(reason),
        }
    }

    fn read_until_end(
        &mut self,
        speaker: &mut Speaker<'_>,
        control: &mut Control<'_>,
    ) -> Result<Reason, Failure> {
        // Before anybody can know that it runs: the signal would end it.
        let wanted = control.maps_on_signal && self.on_signals.is_empty();
        let maps_signal = wanted.then(|| Arrivals::of(libc::SIGUSR1)).transpose().map_err(Failure::Kernel)?;
        speaker.say(&self.core.manifest, &Output::Attached { probes: self.attached() })?;
        if let Some(on_attached) = control.on_attached {
            speaker.sink.flush().map_err(Failure::Sink)?;
            on_attached();
        }
        let mut flushed = Instant::now();
        loop {
            if maps_signal.as_ref().is_some_and(|signal| signal.take() > 0) {
                self.say_maps(speaker)?;
            }
            let drained = self.core.drain(speaker, BATCH)?;
            if let Some(code) = speaker.exit {
                return Ok(Reason::Exit(code));
            }
            let busy = drained.records >= BUSY_RECORDS;
            self.core.ring.release(busy);
            if !busy && self.core.ring.has_more() {
                continue;
            }
            // An exit() whose record was lost ends the run too; we would sleep.
            if !busy && let Some(code) = self.core.exit_code().map_err(Failure::Kernel)? {
                return self.core.drain_to_exit(speaker, code).map(Reason::Exit);
            }
            if !busy || flushed.elapsed() > FLUSH_EVERY {
                speaker.sink.flush().map_err(Failure::Sink)?;
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
        fds.extend(self.on_signals.iter().map(|on| sys::readable(on.signal.fd())));
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
        for on in &self.on_signals {
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
        speaker: &mut Speaker<'_>,
        ending: &mut Ending,
        detaching: Detaching,
        ended_ns: u64,
    ) -> Result<(), Failure> {
        // While the kernel works; what was being written at the end comes behind it.
        self.drain_queue(speaker, ending)?;
        ending.detached = detaching.wait(DETACH_PATIENCE);
        self.drain_queue(speaker, ending)?;
        self.core.ring.release(false);
        self.core.stop_clock_at(ended_ns).map_err(Failure::Kernel)?;
        // The commands of END are run, whatever ended the run.
        (speaker.signals, speaker.interrupted) = (None, false);
        for end in std::mem::take(&mut self.ends) {
            attach::run_once(&end.program).map_err(Failure::Kernel)?;
            self.core.drain(speaker, usize::MAX)?;
            self.core.ring.release(false);
        }
        // `exit()` in END: its code counts unless another ended the run.
        if let (Some(code), false) = (speaker.exit, matches!(ending.reason, Reason::Exit(_))) {
            ending.reason = Reason::Exit(code);
        }
        self.say_end(speaker)
    }

    /// Reads what is queued; what lies behind `exit()` is counted only.
    fn drain_queue(&mut self, speaker: &mut Speaker<'_>, ending: &mut Ending) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            if !matches!(ending.reason, Reason::Exit(_)) {
                self.core.drain(speaker, usize::MAX)?;
            }
            if let Some(code) = speaker.exit.take() {
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

    fn say_end(&mut self, speaker: &mut Speaker<'_>) -> Result<(), Failure> {
        let core = &self.core;
        speaker.from = None;
        speaker.say_rest(&core.manifest)?;
        if self.trials.is_empty() {
            speaker.say(&core.manifest, &Output::End)?;
        }
        self.say_maps(speaker)?;
        let core = &self.core;
        let counts = core.counters().map_err(Failure::Kernel)?;
        speaker.say(&core.manifest, &Output::Trouble(troubles(&core.manifest, &counts)))?;
        speaker.sink.flush().map_err(Failure::Sink)
    }

    /// Prints the maps that are printed at the end, those with something in them.
    fn say_maps(&self, speaker: &mut Speaker<'_>) -> Result<(), Failure> {
        let core = &self.core;
        for map in maps_at_end(&core.manifest) {
            let snapshot = core.snapshot(map, 0, 0).map_err(Failure::Kernel)?;
            let counts_nothing = matches!(snapshot.entries[..], [(_, Cell::Number { bits: 0, .. })]);
            // A count of 0 is news, unless the script has cleared it away.
            let is_gone = counts_nothing && core.scripts[map as usize].is_cleared();
            if !snapshot.entries.is_empty() && !is_gone {
                speaker.say(&core.manifest, &Output::Map(snapshot))?;
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

/// Counters that say something. A paired program's two become one, `Entered`: calls seen at entry that did not return,
/// those still under way at the end included.
pub(crate) fn troubles(manifest: &Manifest, counts: &[u64]) -> Vec<Trouble> {
    let counted = manifest.counters.iter().zip(counts);
    let returned = |program: u32, place: Place| -> u64 {
        let same = |(counter, _): &(&wire::Counter, &u64)| {
            counter.kind == CounterKind::Returned(program) && counter.place == place
        };
        counted.clone().filter(same).map(|(_, count)| *count).sum()
    };
    let trouble = |(counter, count): (&wire::Counter, &u64)| {
        let count = match counter.kind {
            CounterKind::Entered(program) => count.saturating_sub(returned(program, counter.place)),
            CounterKind::Returned(_) => 0,
            _ => *count,
        };
        Trouble { kind: counter.kind.clone(), count, place: counter.place }
    };
    counted.clone().map(trouble).filter(|trouble| trouble.count > 0).collect()
}

/// Why reading stopped before its time.
enum Failure {
    Sink(io::Error),
    Kernel(io::Error),
}

impl Failure {
    fn reason(self) -> Reason {
        match self {
            Failure::Sink(error) => Reason::Sink(error),
            Failure::Kernel(error) => Reason::Kernel(error),
        }
    }
}

/// The sink, and what was met on the way to it.
struct Speaker<'a> {
    sink: &'a mut dyn Sink,
    names: &'a dyn Names,
    unknown: u64,
    exit: Option<i64>,
    rows: Rows,
    /// The statement whose output is being said.
    from: Option<Place>,
    /// The script that spoke last.
    script: String,
    /// Signals that end the run.
    signals: Option<&'a StopSignals>,
    /// One came: queued commands are not run, as each takes its time.
    interrupted: bool,
    /// Commands that were not run.
    commands_skipped: u64,
}

impl<'a> Speaker<'a> {
    fn new(sink: &'a mut dyn Sink, names: &'a dyn Names) -> Speaker<'a> {
        let (rows, script) = (Rows::default(), String::new());
        let (signals, interrupted, commands_skipped) = (None, false, 0);
        Speaker {
            sink,
            names,
            unknown: 0,
            exit: None,
            rows,
            from: None,
            script,
            signals,
            interrupted,
            commands_skipped,
        }
    }

    /// Whether a command may be run now; one that may not is counted.
    fn may_run(&mut self) -> bool {
        self.interrupted |= self.signals.is_some_and(StopSignals::is_waiting);
        self.commands_skipped += u64::from(self.interrupted);
        !self.interrupted
    }

    fn say(&mut self, manifest: &Manifest, output: &Output) -> Result<(), Failure> {
        let script = self.from.map_or("", |place| manifest.script_of(place));
        if !script.is_empty() && script != self.script {
            self.script = script.to_owned();
            let heading = Output::Script(self.script.clone());
            self.sink.output(manifest, self.names, &heading).map_err(Failure::Sink)?;
        }
        self.sink.output(manifest, self.names, output).map_err(Failure::Sink)
    }

    /// Keeps a line of `row`.
    fn keep(&mut self, manifest: &Manifest, header: Header, values: Vec<Value>) -> Result<(), Failure> {
        match self.rows.keep(header, values) {
            Ok(()) => Ok(()),
            Err((header, values)) => self.say(manifest, &Output::Event { header, values, cell: None }),
        }
    }

    /// Says the lines of one CPU, and how many are left out. If there are none, that (`says_none`).
    fn say_rows(
        &mut self,
        manifest: &Manifest,
        header: Header,
        top: u32,
        says_none: bool,
    ) -> Result<(), Failure> {
        let mut rows = self.rows.take(header.cpu);
        if rows.is_empty() && says_none {
            return self.say(manifest, &Output::Event { header, values: Vec::new(), cell: None });
        }
        let kept = if top == 0 { rows.len() } else { rows.len().min(top as usize) };
        map_order::rows(Context { manifest, names: self.names, verbatim: false }, &mut rows, kept);
        let more = rows.len() - kept;
        rows.truncate(kept);
        self.say_lines(manifest, rows)?;
        match more {
            0 => Ok(()),
            more => {
                let values = vec![Value::Uint(more as u64, 8)];
                self.say(manifest, &Output::Event { header, values, cell: None })
            }
        }
    }

    /// Lines that no `rows` asked for.
    fn say_rest(&mut self, manifest: &Manifest) -> Result<(), Failure> {
        let rows = self.rows.take_all();
        self.say_lines(manifest, rows)
    }

    /// Prints rows in this order: lines one by one, rows of a table with the others that have its columns.
    fn say_lines(&mut self, manifest: &Manifest, rows: Vec<Row>) -> Result<(), Failure> {
        let mut rows = rows.into_iter().peekable();
        while let Some((header, mut values)) = rows.next() {
            let Some(first) = table_row(manifest, header, &mut values) else {
                self.say(manifest, &Output::Event { header, values, cell: None })?;
                continue;
            };
            let mut table = Table::new(first);
            while let Some((next, values)) = rows.peek_mut()
                && let Some(cells) = table_row(manifest, *next, values)
            {
                if let Err(other) = table.push(cells) {
                    let before = std::mem::replace(&mut table, Table::new(other));
                    self.say(manifest, &Output::Table(header, before))?;
                }
                rows.next();
            }
            self.say(manifest, &Output::Table(header, table))?;
        }
        Ok(())
    }
}

/// Takes the cells out of the values of a row that belongs to a table.
fn table_row(manifest: &Manifest, header: Header, values: &mut [Value]) -> Option<Vec<(String, Value)>> {
    let event = manifest.events.get(header.event as usize)?;
    let EventKind::Message { what: Message::Row, format, .. } = &event.kind else { return None };
    match values.last_mut() {
        Some(Value::Record(cells)) if format.is_empty() => Some(std::mem::take(cells)),
        _ => None,
    }
}

impl Core {
    /// Reads records up to `limit`, until one of them is `exit()` or something fails.
    fn drain(&mut self, speaker: &mut Speaker<'_>, limit: usize) -> Result<Drained, Failure> {
        let mut failure = None;
        let Core { ring, manifest, scripts, .. } = self;
        let reader = Reader { manifest, scripts };
        let drained = ring.read(limit, |record| match reader.record(speaker, record) {
            Ok(()) if speaker.exit.is_some() => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        });
        failure.map_or(Ok(drained), Err)
    }

    /// `exit()` has stopped all programs. Its record is on its way, or found no room and would never be heard of.
    fn drain_to_exit(&mut self, speaker: &mut Speaker<'_>, code: i64) -> Result<i64, Failure> {
        let start = Instant::now();
        while speaker.exit.is_none() && start.elapsed() < WRITING {
            self.drain(speaker, usize::MAX)?;
            self.ring.release(false);
            std::thread::yield_now();
        }
        Ok(speaker.exit.take().unwrap_or(code))
    }

    /// Throws queued records away; how many.
    fn discard(&mut self) -> u64 {
        self.ring.read(usize::MAX, |_| ControlFlow::Continue(())).records as u64
    }
}

/// What a record needs to be understood.
struct Reader<'a> {
    manifest: &'a Manifest,
    scripts: &'a [crate::aggregate::ScriptMap],
}

impl Reader<'_> {
    fn record(&self, speaker: &mut Speaker<'_>, data: &[u8]) -> Result<(), Failure> {
        let Some((header, event)) = self.event(data) else {
            speaker.unknown += 1;
            return Ok(());
        };
        let Ok(values) = decode::record(data, &event.record) else {
            speaker.unknown += 1;
            return Ok(());
        };
        self.act(speaker, header, event, values)
    }

    fn event(&self, data: &[u8]) -> Option<(Header, &Event)> {
        let header = decode::header(data).ok()?;
        Some((header, self.manifest.events.get(header.event as usize)?))
    }

    fn act(
        &self,
        speaker: &mut Speaker<'_>,
        header: Header,
        event: &Event,
        values: Vec<Value>,
    ) -> Result<(), Failure> {
        let mut cell = None;
        speaker.from = is_output(&event.kind).then_some(event.place);
        match &event.kind {
            EventKind::Printf { .. }
            | EventKind::Print
            | EventKind::Time { .. }
            | EventKind::Export { .. } => {}
            EventKind::Message { what: Message::System, .. } if !speaker.may_run() => return Ok(()),
            EventKind::Message { what: what @ (Message::Cat | Message::System), format, .. } => {
                return self.fetch(speaker, *what, format, &values);
            }
            EventKind::Message { what: Message::Row, .. } => {
                return speaker.keep(self.manifest, header, values);
            }
            EventKind::Rows { top, none } => {
                return speaker.say_rows(self.manifest, header, *top, !none.is_empty());
            }
            EventKind::Message { .. } => {}
            EventKind::PrintEntry { map } => cell = self.entry(*map, &values)?,
            EventKind::PrintMap { map, top, div } => {
                return self.print_map(speaker, header, (*map, *top, *div));
            }
            EventKind::Clear { map } => return self.on_map(*map, |map| map.clear(Some(header))),
            EventKind::Zero { map } => return self.on_map(*map, |map| map.zero(Some(header))),
            EventKind::Exit => {
                speaker.exit = Some(exit_code(&values));
                return Ok(());
            }
        }
        speaker.say(self.manifest, &Output::Event { header, values, cell })
    }

    /// Reads the file or runs the command that is meant, now: what was said before is out before.
    fn fetch(
        &self,
        speaker: &mut Speaker<'_>,
        what: Message,
        format: &[Piece],
        values: &[Value],
    ) -> Result<(), Failure> {
        let context =
            report::value::Context { manifest: self.manifest, names: speaker.names, verbatim: false };
        let meant = report::printf::printf(format, values, context);
        let text = match what {
            Message::System => fetch::command(&meant),
            _ => fetch::file(&meant, self.manifest.cat_bytes.into()),
        };
        speaker.say(self.manifest, &Output::Fetched { what, text })
    }

    /// The cell of a `print(@m[k])`.
    fn entry(&self, index: u32, key: &[Value]) -> Result<Option<Cell>, Failure> {
        let Some(map) = self.scripts.get(index as usize) else { return Ok(None) };
        map.lookup(key).map_err(Failure::Kernel)
    }

    fn print_map(
        &self,
        speaker: &mut Speaker<'_>,
        header: Header,
        (index, top, div): (u32, u32, u32),
    ) -> Result<(), Failure> {
        let Some(map) = self.scripts.get(index as usize) else { return Ok(()) };
        let snapshot = match self.is_emptied(index) {
            true => map.print((index, top, div), header),
            false => map.snapshot(index, top, div),
        };
        let mut snapshot = snapshot.map_err(Failure::Kernel)?;
        if snapshot.entries.is_empty() {
            snapshot.entries.extend(map.unset().map(|cell| (Vec::new(), cell)));
        }
        speaker.say(self.manifest, &Output::Map(snapshot))
    }

    /// The script has a `clear` or `zero` of this map.
    fn is_emptied(&self, index: u32) -> bool {
        let empties = |kind: &EventKind| matches!(kind, EventKind::Clear { map } | EventKind::Zero { map } if *map == index);
        self.manifest.events.iter().any(|event| empties(&event.kind))
    }

    fn on_map(
        &self,
        index: u32,
        act: impl Fn(&crate::aggregate::ScriptMap) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.scripts.get(index as usize).map_or(Ok(()), act).map_err(Failure::Kernel)
    }
}

/// Whether it goes where the script's output goes.
fn is_output(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::Message { what: Message::Error | Message::Warning, .. } | EventKind::Export { .. }
    )
}

fn exit_code(values: &[Value]) -> i64 {
    match values.first() {
        Some(Value::Int(code, _)) => *code,
        Some(Value::Uint(code, _)) => *code as i64,
        _ => 0,
    }
}
