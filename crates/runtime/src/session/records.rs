//! Decodes the records of the ring buffer and emits their output, in order.
//!
//! The output of the script's `row` is kept until `rows`, which sorts and prints it; `cat` and `system` run when their record is read; `clear` and `zero` change a map.
//! Not here: when the ring is read (`event_loop`), formats of output (`report`).

use crate::kernel::signals::StopSignals;
use crate::read::cat_system;
use crate::read::maps::{MapPrint, ScriptMap};
use crate::read::ring::ReadResult;
use crate::read::sorted_rows::{Row, SortedRows};
use crate::session::core::Core;
use report::table::Table;
use report::value::Context;
use report::{Cell, Names, Output, Sink, map_order};
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use wire::Manifest;
use wire::decode::{self, Header, Value};
use wire::manifest::{Event, EventKind, Message, Piece, Place};

/// Longest time for a program to finish the record that it was writing when it was silenced.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_millis(100);
/// Time for records before other descriptors are looked at.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Time for prints of maps that are queued at the end, of which a program can write as many as fit in the ring buffer.
pub(super) const LAST_PRINTS: Duration = Duration::from_secs(2);

/// Why reading failed.
pub(super) enum Failure {
    Sink(io::Error),
    Kernel(io::Error),
}

/// The sink, and state of the emitted records.
pub(super) struct Emitter<'a> {
    pub(super) sink: &'a mut dyn Sink,
    pub(super) names: &'a dyn Names,
    pub(super) unknown: u64,
    /// Prints of maps at the end for which there was no time.
    pub(super) unprinted: u64,
    /// Number of calls whose return was ignored.
    pub(super) ignored_returns: u64,
    /// End of the time for these.
    pub(super) prints_until: Option<Instant>,
    pub(super) exit: Option<i64>,
    rows: SortedRows,
    /// The statement of the current record.
    pub(super) from: Option<Place>,
    /// The script of the last output.
    script: String,
    /// Signals that end the run.
    pub(super) signals: Option<&'a StopSignals>,
    /// True after such a signal: queued commands are not run, because each may take long.
    pub(super) interrupted: bool,
    /// Number of commands that were not run.
    pub(super) commands_skipped: u64,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink, names: &'a dyn Names) -> Emitter<'a> {
        let (rows, script) = (SortedRows::default(), String::new());
        let (signals, interrupted, commands_skipped) = (None, false, 0);
        Emitter {
            sink,
            names,
            unknown: 0,
            unprinted: 0,
            ignored_returns: 0,
            prints_until: None,
            exit: None,
            rows,
            from: None,
            script,
            signals,
            interrupted,
            commands_skipped,
        }
    }

    /// Whether a command may run; otherwise it is counted.
    fn may_run(&mut self) -> bool {
        self.interrupted |= self.signals.is_some_and(StopSignals::is_waiting);
        self.commands_skipped += u64::from(self.interrupted);
        !self.interrupted
    }

    pub(super) fn emit(&mut self, manifest: &Manifest, output: &Output) -> Result<(), Failure> {
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
            Err((header, values)) => self.emit(manifest, &Output::Event { header, values, cell: None }),
        }
    }

    /// Emits the lines of one thread, and the number of omitted lines. With `emits_none`, also emits that there are none.
    fn emit_rows(
        &mut self,
        manifest: &Manifest,
        header: Header,
        top: u32,
        emits_none: bool,
    ) -> Result<(), Failure> {
        let mut rows = self.rows.take(header.place());
        if rows.is_empty() && emits_none {
            return self.emit(manifest, &Output::Event { header, values: Vec::new(), cell: None });
        }
        let kept = if top == 0 { rows.len() } else { rows.len().min(top as usize) };
        map_order::rows(Context { manifest, names: self.names, verbatim: false }, &mut rows, kept);
        let more = rows.len() - kept;
        rows.truncate(kept);
        self.emit_lines(manifest, rows, name_of_table(manifest, header))?;
        match more {
            0 => Ok(()),
            more => {
                let values = vec![Value::Uint(more as u64, 8)];
                self.emit(manifest, &Output::Event { header, values, cell: None })
            }
        }
    }

    /// Emits the lines without a `rows`.
    pub(super) fn emit_rest(&mut self, manifest: &Manifest) -> Result<(), Failure> {
        let rows = self.rows.take_all();
        self.emit_lines(manifest, rows, "")
    }

    /// Emits rows in order; consecutive rows with the same columns form a table.
    fn emit_lines(&mut self, manifest: &Manifest, rows: Vec<Row>, name: &str) -> Result<(), Failure> {
        let mut rows = rows.into_iter().peekable();
        while let Some((header, mut values)) = rows.next() {
            let Some(first) = table_row(manifest, header, &mut values) else {
                self.emit(manifest, &Output::Event { header, values, cell: None })?;
                continue;
            };
            let mut table = Table::new(name, first);
            while let Some((next, values)) = rows.peek_mut()
                && let Some(cells) = table_row(manifest, *next, values)
            {
                if let Err(other) = table.push(cells) {
                    let before = std::mem::replace(&mut table, Table::new(name, other));
                    self.emit(manifest, &Output::Table(header, before))?;
                }
                rows.next();
            }
            self.emit(manifest, &Output::Table(header, table))?;
        }
        Ok(())
    }
}

/// The name that `rows` gives to its table.
fn name_of_table(manifest: &Manifest, header: Header) -> &str {
    match manifest.events.get(header.event as usize).map(|event| &event.kind) {
        Some(EventKind::Rows { name, .. }) => name,
        _ => "",
    }
}

/// Takes the cells of a row that is part of a table.
fn table_row(manifest: &Manifest, header: Header, values: &mut [Value]) -> Option<Vec<(String, Value)>> {
    let event = manifest.events.get(header.event as usize)?;
    let EventKind::Message { what: Message::Row, format, .. } = &event.kind else { return None };
    match values.last_mut() {
        Some(Value::Record(cells)) if format.is_empty() => Some(std::mem::take(cells)),
        _ => None,
    }
}

impl Core {
    /// Emits up to `limit` records, until an `exit()` or a failure.
    pub(super) fn drain(&mut self, emitter: &mut Emitter<'_>, limit: usize) -> Result<ReadResult, Failure> {
        let mut failure = None;
        let Core { rings, manifest, scripts, cpus, .. } = self;
        let reader = Reader { manifest, scripts, cpus: *cpus, prints_until: emitter.prints_until };
        let until = Instant::now() + AT_ONCE;
        let unknown = emitter.unknown;
        let drained = rings.read(limit, |record| match reader.record(emitter, record) {
            Ok(()) if emitter.exit.is_some() => ControlFlow::Break(()),
            // Each record may print a whole map; the rest of the tracer has its turn between them.
            Ok(()) if limit != usize::MAX && Instant::now() > until => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        });
        if emitter.unknown > unknown
            && let Some(user) = &self.user
        {
            user.note_unknown_record();
        }
        failure.map_or(Ok(drained), Err)
    }

    /// Reads until the record of `exit()`, after the control cell has the exit code. The record may be lost.
    pub(super) fn drain_to_exit(&mut self, emitter: &mut Emitter<'_>, code: i64) -> Result<i64, Failure> {
        let start = Instant::now();
        while emitter.exit.is_none() && start.elapsed() < WRITE_TIMEOUT {
            self.drain(emitter, usize::MAX)?;
            self.rings.release(false);
            std::thread::yield_now();
        }
        Ok(emitter.exit.take().unwrap_or(code))
    }

    /// Discards the queued records; returns their number.
    pub(super) fn discard(&mut self) -> u64 {
        self.rings.read(usize::MAX, |_| ControlFlow::Continue(())).records as u64
    }
}

/// Decoder of records.
struct Reader<'a> {
    manifest: &'a Manifest,
    scripts: &'a [ScriptMap],
    /// Number of CPUs.
    cpus: usize,
    /// From then on maps are not printed any more.
    prints_until: Option<Instant>,
}

impl Reader<'_> {
    fn record(&self, emitter: &mut Emitter<'_>, data: &[u8]) -> Result<(), Failure> {
        let Some((header, event)) = self.event(data) else {
            emitter.unknown += 1;
            return Ok(());
        };
        let Ok(values) = decode::record(data, &event.record) else {
            emitter.unknown += 1;
            return Ok(());
        };
        self.act(emitter, header, event, values)
    }

    fn event(&self, data: &[u8]) -> Option<(Header, &Event)> {
        let header = decode::header(data).ok().filter(|header| (header.cpu as usize) < self.cpus)?;
        Some((header, self.manifest.events.get(header.event as usize)?))
    }

    fn act(
        &self,
        emitter: &mut Emitter<'_>,
        header: Header,
        event: &Event,
        values: Vec<Value>,
    ) -> Result<(), Failure> {
        let mut cell = None;
        emitter.from = is_output(&event.kind).then_some(event.place);
        match &event.kind {
            EventKind::Printf { .. }
            | EventKind::Print
            | EventKind::Time { .. }
            | EventKind::Export { .. } => {}
            EventKind::Message { what: Message::System, .. } if !emitter.may_run() => return Ok(()),
            EventKind::Message { what: what @ (Message::Cat | Message::System), format, .. } => {
                return self.fetch(emitter, *what, format, &values);
            }
            EventKind::Message { what: Message::Row, .. } => {
                return emitter.keep(self.manifest, header, values);
            }
            EventKind::Rows { top, none, .. } => {
                return emitter.emit_rows(self.manifest, header, *top, !none.is_empty());
            }
            EventKind::Message { .. } => {}
            EventKind::PrintEntry { map } => cell = self.entry(*map, &values)?,
            EventKind::PrintMap { .. } if self.prints_until.is_some_and(|until| Instant::now() > until) => {
                emitter.unprinted += 1;
                return Ok(());
            }
            EventKind::PrintMap { map, top, div } => {
                return self.print_map(emitter, header, MapPrint { map: *map, top: *top, div: *div });
            }
            EventKind::Clear { map } => return self.on_map(*map, |map| map.clear(Some(header))),
            EventKind::Zero { map } => return self.on_map(*map, |map| map.zero(Some(header))),
            EventKind::Exit => {
                emitter.exit = Some(exit_code(&values));
                return Ok(());
            }
        }
        emitter.emit(self.manifest, &Output::Event { header, values, cell })
    }

    /// Reads the file or runs the command; earlier output has been emitted.
    fn fetch(
        &self,
        emitter: &mut Emitter<'_>,
        what: Message,
        format: &[Piece],
        values: &[Value],
    ) -> Result<(), Failure> {
        let context = Context { manifest: self.manifest, names: emitter.names, verbatim: false };
        let argument = report::printf::printf(format, values, context);
        let text = match what {
            Message::System => cat_system::command(&argument),
            _ => cat_system::file(&argument, self.manifest.cat_bytes.into()),
        };
        emitter.emit(self.manifest, &Output::Fetched { what, text })
    }

    /// The cell of a `print(@m[k])`.
    fn entry(&self, index: u32, key: &[Value]) -> Result<Option<Cell>, Failure> {
        let Some(map) = self.scripts.get(index as usize) else { return Ok(None) };
        map.lookup(key).map_err(Failure::Kernel)
    }

    fn print_map(&self, emitter: &mut Emitter<'_>, header: Header, print: MapPrint) -> Result<(), Failure> {
        let Some(map) = self.scripts.get(print.map as usize) else { return Ok(()) };
        let snapshot = match self.is_emptied(print.map) {
            true => map.print(print, header),
            false => map.snapshot(print),
        };
        let mut snapshot = snapshot.map_err(Failure::Kernel)?;
        if snapshot.entries.is_empty() {
            snapshot.entries.extend(map.unset().map(|cell| (Vec::new(), cell)));
        }
        emitter.emit(self.manifest, &Output::Map(snapshot))
    }

    /// Whether the script has a `clear` or `zero` of this map.
    fn is_emptied(&self, index: u32) -> bool {
        let empties = |kind: &EventKind| matches!(kind, EventKind::Clear { map } | EventKind::Zero { map } if *map == index);
        self.manifest.events.iter().any(|event| empties(&event.kind))
    }

    fn on_map(&self, index: u32, act: impl Fn(&ScriptMap) -> io::Result<()>) -> Result<(), Failure> {
        self.scripts.get(index as usize).map_or(Ok(()), act).map_err(Failure::Kernel)
    }
}

/// Whether the record is part of the script's output.
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
