//! Perfetto's native format: a protobuf stream of TrackEvents. Field numbers are those of Perfetto's .proto files (trace_packet,
//! track_descriptor, track_event, debug_annotation, clock_snapshot, interned_data, profile_common).
//!
//! A record arrives when its call has returned. The begin and end of a call are therefore written together, out of order of time;
//! the importer sorts. Events with equal times keep the order of the file. Nested calls arrive before the call around them, so the end of a
//! call comes after their ends.
//!
//! Work of a GPU is not nested, and its records are not in order of time. If one slice ends at the time at which the next begins, and the
//! begin is first in the file, the importer takes the second for nested in the first. So such records are held back, some thousand
//! at a time, and sorted. Work that begins before the last work of its track has ended is written to a lane: another track
//! of the same name.
//!
//! Names, string values, and stacks with their frames are interned: written once, then referred to by number. A frame is symbolized already
//! and therefore has no `Mapping`, Perfetto's record of a loaded file. If its source file is unknown, its module is written there.

use std::io::{self, Write};
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::format::IN_PERFETTO;
use super::recent::{LAUNCHES, Recent};
use super::record::{Data, GpuStream, Kind, Record, Row, Span, Status, Thread};
use super::{End, Exporter, Format, Run};
use crate::Frame;
use crate::units;

/// Id of the only packet sequence in the file; without an id, events are dropped silently.
const SEQUENCE: u64 = 1;
/// Ids of clocks in Perfetto.
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;

/// Field numbers, by message.
mod field {
    pub(super) const TRACE_PACKET: u32 = 1;
    pub(super) mod packet {
        pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
        pub(crate) const TIMESTAMP: u32 = 8;
        pub(crate) const SEQUENCE_ID: u32 = 10;
        pub(crate) const TRACK_EVENT: u32 = 11;
        pub(crate) const INTERNED: u32 = 12;
        pub(crate) const SEQUENCE_FLAGS: u32 = 13;
        pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    }
    pub(super) mod snapshot {
        pub(crate) const CLOCKS: u32 = 1;
        pub(crate) const PRIMARY: u32 = 2;
        pub(crate) const CLOCK_ID: u32 = 1;
        pub(crate) const TIMESTAMP: u32 = 2;
    }
    pub(super) mod descriptor {
        pub(crate) const UUID: u32 = 1;
        pub(crate) const NAME: u32 = 2;
        pub(crate) const PROCESS: u32 = 3;
        pub(crate) const THREAD: u32 = 4;
        pub(crate) const PARENT: u32 = 5;
        pub(crate) const COUNTER: u32 = 8;
        pub(crate) const PROCESS_PID: u32 = 1;
        pub(crate) const PROCESS_NAME: u32 = 6;
        pub(crate) const THREAD_PID: u32 = 1;
        pub(crate) const THREAD_TID: u32 = 2;
        pub(crate) const THREAD_NAME: u32 = 5;
    }
    pub(super) mod interned {
        pub(crate) const ID: u32 = 1;
        pub(crate) const TEXT: u32 = 2;
        pub(crate) const FRAMES: u32 = 6;
        pub(crate) const CALLSTACKS: u32 = 7;
        pub(crate) const FRAME_FUNCTION: u32 = 2;
        pub(crate) const FRAME_FILE: u32 = 5;
        pub(crate) const FRAME_LINE: u32 = 6;
        pub(crate) const CALLSTACK_FRAME: u32 = 2;
    }
    pub(super) mod event {
        pub(crate) const ANNOTATION: u32 = 4;
        pub(crate) const TYPE: u32 = 9;
        pub(crate) const TRACK: u32 = 11;
        pub(crate) const NAME: u32 = 23;
        pub(crate) const COUNTER: u32 = 30;
        pub(crate) const FLOW: u32 = 47;
        pub(crate) const CALLSTACK: u32 = 55;
        pub(crate) const CALLSTACK_NUMBER: u32 = 56;
        pub(crate) const FRAME: u32 = 1;
        pub(crate) const FUNCTION: u32 = 1;
        pub(crate) const FILE: u32 = 2;
        pub(crate) const LINE: u32 = 3;
    }
    pub(super) mod annotation {
        pub(crate) const BOOL: u32 = 2;
        pub(crate) const UINT: u32 = 3;
        pub(crate) const INT: u32 = 4;
        pub(crate) const STRING: u32 = 6;
        pub(crate) const POINTER: u32 = 7;
        pub(crate) const ENTRIES: u32 = 11;
        pub(crate) const VALUES: u32 = 12;
    }
}

const BEGIN: u64 = 1;
const FINISH: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// SEQ_INCREMENTAL_STATE_CLEARED
const CLEARED: u64 = 1;
/// SEQ_NEEDS_INCREMENTAL_STATE: the packet uses interned data.
const NEEDED: u64 = 2;

/// A message under construction, with the enclosing messages.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn uint(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Writes a nested message in place. One byte is reserved for its length, which suffices for most; longer
    /// messages are moved.
    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        self.varint(u64::from(field) << 3 | 2);
        let at = self.0.len();
        self.0.push(0);
        fill(self);
        let (end, length) = (self.0.len(), self.0.len() - at - 1);
        if length < 0x80 {
            self.0[at] = length as u8;
            return;
        }
        self.varint(length as u64);
        let bytes = self.0.len() - end;
        self.0[at..].rotate_right(bytes);
        self.0.remove(at + bytes);
    }
}

/// Fields for a kind of interned text: its entries in the interned data, a reference by id, and a text without id.
struct Index {
    texts: u32,
    number: u32,
    text: u32,
}

const CATEGORIES: Index = Index { texts: 1, number: 3, text: 22 };
const NAMES: Index = Index { texts: 2, number: 10, text: field::event::NAME };
const ANNOTATIONS: Index = Index { texts: 3, number: 1, text: 10 };
const VALUES: Index = Index { texts: 29, number: 17, text: field::annotation::STRING };

/// Fields of interned data that only frames refer to.
const FUNCTIONS: u32 = 5;
const FILES: u32 = 18;

/// Largest number of interned texts per kind, and of stacks; later ones are written in place.
const MOST: usize = 65_536;
/// Largest size in bytes of an interned text.
const LONGEST: usize = 4096;

/// A frame with the ids of its texts; 0: none.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
struct FrameKey {
    function: u64,
    file: u64,
    line: u32,
}

/// Ids of texts, frames and stacks.
#[derive(Default)]
struct InternTables {
    numbers: HashMap<u32, HashMap<Box<str>, u64>>,
    frames: HashMap<FrameKey, u64>,
    /// Ids of stacks by the ids of their frames.
    stacks: HashMap<Box<[u64]>, u64>,
    /// Interned data that has not been written yet.
    news: Message,
}

impl InternTables {
    /// Writes a text into a message, as an id if it is interned.
    fn text(&mut self, message: &mut Message, index: &Index, text: &str) {
        match self.number(index.texts, text) {
            Some(number) => message.uint(index.number, number),
            None => message.text(index.text, text),
        }
    }

    fn number(&mut self, texts: u32, text: &str) -> Option<u64> {
        let numbers = self.numbers.entry(texts).or_default();
        if let Some(number) = numbers.get(text) {
            return Some(*number);
        }
        if numbers.len() >= MOST || text.len() > LONGEST {
            return None;
        }
        let number = numbers.len() as u64 + 1;
        numbers.insert(text.into(), number);
        self.news.message(texts, |entry| {
            entry.uint(field::interned::ID, number);
            entry.text(field::interned::TEXT, text);
        });
        Some(number)
    }

    /// The id of a stack, if it is interned; innermost frame first.
    fn stack(&mut self, frames: &[Frame]) -> Option<u64> {
        // The stack is stored with the outermost frame first.
        let frames: Box<[u64]> = frames.iter().rev().map(|frame| self.frame(frame)).collect::<Option<_>>()?;
        if let Some(number) = self.stacks.get(&frames) {
            return Some(*number);
        }
        if self.stacks.len() >= MOST {
            return None;
        }
        let number = self.stacks.len() as u64 + 1;
        self.news.message(field::interned::CALLSTACKS, |entry| {
            entry.uint(field::interned::ID, number);
            frames.iter().for_each(|frame| entry.uint(field::interned::CALLSTACK_FRAME, *frame));
        });
        self.stacks.insert(frames, number);
        Some(number)
    }

    fn frame(&mut self, frame: &Frame) -> Option<u64> {
        let function = self.number(FUNCTIONS, &frame.label())?;
        let (file, line) = place(frame);
        let file = file.map_or(Some(0), |file| self.number(FILES, file))?;
        let key = FrameKey { function, file, line };
        if let Some(number) = self.frames.get(&key) {
            return Some(*number);
        }
        if self.frames.len() >= MOST {
            return None;
        }
        let number = self.frames.len() as u64 + 1;
        self.frames.insert(key, number);
        self.news.message(field::interned::FRAMES, |entry| {
            entry.uint(field::interned::ID, number);
            for (at, value) in [
                (field::interned::FRAME_FUNCTION, function),
                (field::interned::FRAME_FILE, file),
                (field::interned::FRAME_LINE, line.into()),
            ] {
                if value != 0 {
                    entry.uint(at, value);
                }
            }
        });
        Some(number)
    }
}

/// Source file and line of a frame, otherwise its module and 0.
fn place(frame: &Frame) -> (Option<&str>, u32) {
    match &frame.source {
        Some((file, line)) => (Some(file), *line),
        None => (frame.module.as_deref(), 0),
    }
}

/// Number of records of GPUs that are held back to be sorted.
const HELD: usize = 4096;
/// Largest number of lanes of a stream.
const LANES: usize = 255;

/// `--export perfetto=FILE`
pub const FORMAT: Format = Format {
    name: "perfetto",
    file: "FILE",
    doc: "a native trace of Perfetto, with stacks; smaller and faster to open than chrome",
    look: IN_PERFETTO,
    end: b"",
    create: |out, run| Ok(Box::new(Perfetto::new(out, run)?)),
};

/// Exporter of packets to `out`.
pub struct Perfetto<W> {
    out: W,
    packets: Message,
    interned: InternTables,
    /// Threads by process and thread id, as they were last described.
    threads: HashMap<(u32, u32), Arc<Thread>>,
    processes: HashSet<u32>,
    /// Tracks of counters, by process and name with labels.
    counters: HashMap<(u32, String), u64>,
    /// Work of GPUs that is not written yet.
    held: Vec<Record>,
    /// For each lane of a stream: the end of its last work, boot-clock ns.
    lanes: HashMap<(u32, u32), Vec<u64>>,
    /// Calls whose flow has begun, by their ids.
    flows: Recent<u64, (), LAUNCHES>,
}

impl<W: Write + Send> Perfetto<W> {
    /// Writes the offsets between the clocks.
    pub fn new(out: W, run: &Run) -> io::Result<Perfetto<W>> {
        let mut perfetto = Perfetto {
            out,
            packets: Message::default(),
            interned: InternTables::default(),
            threads: HashMap::new(),
            processes: HashSet::new(),
            counters: HashMap::new(),
            held: Vec::new(),
            lanes: HashMap::new(),
            flows: Recent::default(),
        };
        let boot = run.start_ns;
        let clocks = [
            (BOOTTIME, boot),
            (MONOTONIC, boot.saturating_sub(run.suspended_ns)),
            (REALTIME, run.wall_ns(boot).max(0) as u64),
        ];
        perfetto.packet(|packet| {
            packet.message(field::packet::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, time) in clocks {
                    snapshot.message(field::snapshot::CLOCKS, |message| {
                        message.uint(field::snapshot::CLOCK_ID, clock);
                        message.uint(field::snapshot::TIMESTAMP, time);
                    });
                }
                snapshot.uint(field::snapshot::PRIMARY, BOOTTIME);
            });
            packet.uint(field::packet::SEQUENCE_FLAGS, CLEARED);
        })?;
        Ok(perfetto)
    }

    fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packets.0.clear();
        self.packets.message(field::TRACE_PACKET, |packet| {
            fill(packet);
            packet.uint(field::packet::SEQUENCE_ID, SEQUENCE);
        });
        self.out.write_all(&self.packets.0)
    }

    /// Writes an event on a track at a boot-clock time, the default clock of the sequence.
    fn event(
        &mut self,
        time_ns: u64,
        kind: u64,
        track: u64,
        fill: impl FnOnce(&mut Message, &mut InternTables),
    ) -> io::Result<()> {
        let mut interned = std::mem::take(&mut self.interned);
        let written = self.packet(|packet| {
            packet.uint(field::packet::TIMESTAMP, time_ns);
            packet.message(field::packet::TRACK_EVENT, |event| {
                event.uint(field::event::TYPE, kind);
                event.uint(field::event::TRACK, track);
                fill(event, &mut interned);
            });
            packet.uint(field::packet::SEQUENCE_FLAGS, NEEDED);
            if !interned.news.0.is_empty() {
                packet.bytes(field::packet::INTERNED, &interned.news.0);
                interned.news.0.clear();
            }
        });
        self.interned = interned;
        written
    }

    /// The track of a thread, which is described when it is new or its name has changed.
    fn thread(&mut self, thread: &Arc<Thread>) -> io::Result<u64> {
        let Thread { pid, tid, comm, program } = &**thread;
        let track = thread_track(*pid, *tid);
        if self.threads.get(&(*pid, *tid)).is_some_and(|known| known.comm == *comm || comm.is_empty()) {
            return Ok(track);
        }
        self.threads.insert((*pid, *tid), thread.clone());
        if self.processes.insert(*pid) {
            self.packet(|packet| {
                packet.message(field::packet::TRACK_DESCRIPTOR, |descriptor| {
                    descriptor.uint(field::descriptor::UUID, process_track(*pid));
                    descriptor.message(field::descriptor::PROCESS, |process| {
                        process.uint(field::descriptor::PROCESS_PID, u64::from(*pid));
                        process.text(field::descriptor::PROCESS_NAME, program);
                    });
                });
            })?;
        }
        if GpuStream::of_tid(*tid).is_some() {
            self.stream(thread, track)?;
            return Ok(track);
        }
        self.packet(|packet| {
            packet.message(field::packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.uint(field::descriptor::UUID, track);
                descriptor.uint(field::descriptor::PARENT, process_track(*pid));
                descriptor.message(field::descriptor::THREAD, |thread| {
                    thread.uint(field::descriptor::THREAD_PID, u64::from(*pid));
                    thread.uint(field::descriptor::THREAD_TID, u64::from(*tid));
                    thread.text(field::descriptor::THREAD_NAME, comm);
                });
            });
        })?;
        Ok(track)
    }

    /// Describes a track of a stream.
    fn stream(&mut self, thread: &Thread, track: u64) -> io::Result<()> {
        self.packet(|packet| {
            packet.message(field::packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.uint(field::descriptor::UUID, track);
                descriptor.uint(field::descriptor::PARENT, process_track(thread.pid));
                descriptor.text(field::descriptor::NAME, &thread.comm);
            });
        })
    }

    /// Writes the work of GPUs that was held back, in order of time.
    fn release(&mut self) -> io::Result<()> {
        let mut held = std::mem::take(&mut self.held);
        // Among records with one start the shortest is first: work without duration ends where the next one begins.
        held.sort_by_key(|record| (record.time_ns, record.duration_ns()));
        for record in &held {
            if let (Some(thread), Kind::Span(span)) = (&record.thread, &record.kind) {
                let track = self.thread(thread)?;
                let track = self.lane(thread, track, record.time_ns, record.time_ns + span.duration_ns)?;
                self.span(record, span, track)?;
            }
        }
        held.clear();
        self.held = held;
        Ok(())
    }

    /// The first track of a stream on which all work has ended at a time; it is used until `end`.
    fn lane(&mut self, thread: &Thread, first: u64, start: u64, end: u64) -> io::Result<u64> {
        let ends = self.lanes.entry((thread.pid, thread.tid)).or_default();
        let free = ends.iter().position(|last| *last <= start).unwrap_or(ends.len()).min(LANES - 1);
        let is_new = free == ends.len();
        if is_new {
            ends.push(0);
        }
        ends[free] = end;
        // Process ids have 22 bits: those above the process are free.
        let track = first | (free as u64) << 54;
        if is_new && free > 0 {
            self.stream(thread, track)?;
        }
        Ok(track)
    }

    /// The field for the flow from a call to the work that it launched, if there is one.
    ///
    /// The importer reports an end without a begin, and ignores a begin without an end: a call is written before its work is known.
    /// Each work of a graph continues the flow.
    fn flow(&mut self, record: &Record, span: &Span) -> Option<u64> {
        let launch = record.launch()?;
        if record.gpu_kind().is_some() {
            return self.flows.get(&launch).map(|()| launch);
        }
        (span.status != Status::Error).then(|| self.flows.insert(launch, ()))?;
        Some(launch)
    }

    fn span(&mut self, record: &Record, span: &Span, track: u64) -> io::Result<()> {
        let flow = self.flow(record, span);
        self.event(record.time_ns, BEGIN, track, |event, interned| {
            named(event, record, interned);
            flow.iter().for_each(|flow| event.fixed(field::event::FLOW, *flow));
            annotate(event, "span_id", &Data::Handle(span.span_id), interned);
            parent(event, span.parent_id, interned);
            if let Some(result) = &span.result {
                let name = if span.status == Status::Error { "error" } else { "result" };
                annotate(event, name, result, interned);
            }
            fields(event, record, interned);
        })?;
        self.event(record.time_ns + span.duration_ns, FINISH, track, |_, _| {})
    }

    fn counter(&mut self, record: &Record, value: &Data) -> io::Result<()> {
        let Some(value) = value.number() else { return Ok(()) };
        let labels: Vec<String> = record.fields.labels().collect();
        let name = if labels.is_empty() {
            record.name.to_string()
        } else {
            format!("{} {{{}}}", record.name, labels.join(","))
        };
        self.count(record, name, value)
    }

    fn count(&mut self, record: &Record, name: String, value: i128) -> io::Result<()> {
        let pid = record.thread.as_ref().map_or(0, |thread| thread.pid);
        let track = match self.counters.get(&(pid, name.clone())) {
            Some(track) => *track,
            None => {
                // Counter tracks are numbered from the highest id downwards; thread tracks have the process in the
                // upper half.
                let track = u64::MAX - self.counters.len() as u64;
                self.packet(|packet| {
                    packet.message(field::packet::TRACK_DESCRIPTOR, |descriptor| {
                        descriptor.uint(field::descriptor::UUID, track);
                        if pid != 0 {
                            descriptor.uint(field::descriptor::PARENT, process_track(pid));
                        }
                        descriptor.text(field::descriptor::NAME, &name);
                        descriptor.message(field::descriptor::COUNTER, |_| {});
                    });
                })?;
                self.counters.insert((pid, name), track);
                track
            }
        };
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.event(record.time_ns, COUNTER, track, |event, _| event.uint(field::event::COUNTER, value as u64))
    }
}

fn process_track(pid: u32) -> u64 {
    u64::from(pid) << 32 | 0xffff_ffff
}

fn thread_track(pid: u32, tid: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(tid)
}

fn named(event: &mut Message, record: &Record, interned: &mut InternTables) {
    interned.text(event, &NAMES, &record.name);
    interned.text(event, &CATEGORIES, super::chrome::category(record));
}

/// Writes the fields of the script; the first stack becomes the stack of the event.
fn fields(event: &mut Message, record: &Record, interned: &mut InternTables) {
    let mut has_stack = false;
    for (name, value) in record.fields.iter() {
        match value {
            Data::Stack(frames) if !has_stack => {
                has_stack = true;
                callstack(event, frames, interned);
            }
            value => annotate(event, name, value, interned),
        }
    }
}

fn callstack(event: &mut Message, frames: &[Frame], interned: &mut InternTables) {
    if frames.is_empty() {
        return;
    }
    if let Some(number) = interned.stack(frames) {
        return event.uint(field::event::CALLSTACK_NUMBER, number);
    }
    event.message(field::event::CALLSTACK, |stack| {
        // The frames are written with the outermost first.
        for frame in frames.iter().rev() {
            stack.message(field::event::FRAME, |message| {
                message.text(field::event::FUNCTION, &frame.label());
                let (file, line) = place(frame);
                file.iter().for_each(|file| message.text(field::event::FILE, file));
                if line != 0 {
                    message.uint(field::event::LINE, u64::from(line));
                }
            });
        }
    });
}

fn parent(event: &mut Message, id: u64, interned: &mut InternTables) {
    if id != 0 {
        annotate(event, "parent_id", &Data::Handle(id), interned);
    }
}

fn annotate(event: &mut Message, name: &str, value: &Data, interned: &mut InternTables) {
    event.message(field::event::ANNOTATION, |annotation| {
        interned.text(annotation, &ANNOTATIONS, name);
        annotation_value(annotation, value, interned);
    });
}

fn annotation_value(annotation: &mut Message, value: &Data, interned: &mut InternTables) {
    match value {
        Data::None => {}
        Data::Bool(value) => annotation.uint(field::annotation::BOOL, u64::from(*value)),
        Data::Int(value) => annotation.uint(field::annotation::INT, *value as u64),
        Data::Uint(value) => annotation.uint(field::annotation::UINT, *value),
        Data::Handle(value) => annotation.uint(field::annotation::POINTER, *value),
        Data::Text(text) => interned.text(annotation, &VALUES, text),
        Data::Enum(of) => match &of.name {
            Some(name) => interned.text(annotation, &VALUES, name),
            None => annotation.text(field::annotation::STRING, &of.value.to_string()),
        },
        Data::Stack(_) => annotation.text(field::annotation::STRING, &value.label()),
        Data::List(parts) => {
            for part in parts {
                annotation
                    .message(field::annotation::VALUES, |inner| annotation_value(inner, part, interned));
            }
        }
        Data::Map(members) => {
            for (name, value) in members {
                annotation.message(field::annotation::ENTRIES, |inner| {
                    interned.text(inner, &ANNOTATIONS, name);
                    annotation_value(inner, value, interned);
                });
            }
        }
    }
}

impl<W: Write + Send> Exporter for Perfetto<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.gpu_stream().is_some() && record.span().is_some() {
            self.held.push(record.clone());
            return if self.held.len() >= HELD { self.release() } else { Ok(()) };
        }
        let track = record.thread.as_ref().map(|thread| self.thread(thread)).transpose()?;
        match (&record.kind, track) {
            (Kind::Span(span), Some(track)) => self.span(record, span, track),
            (Kind::Instant { parent_id }, Some(track)) => {
                self.event(record.time_ns, INSTANT, track, |event, interned| {
                    named(event, record, interned);
                    parent(event, *parent_id, interned);
                    fields(event, record, interned);
                })
            }
            (Kind::Text(kind, text), Some(track)) => {
                self.event(record.time_ns, INSTANT, track, |event, interned| {
                    interned.text(event, &NAMES, kind.name());
                    interned.text(event, &CATEGORIES, "cudatrace");
                    // Such texts all differ, so interned data would only grow.
                    event.message(field::event::ANNOTATION, |annotation| {
                        interned.text(annotation, &ANNOTATIONS, "text");
                        annotation.text(field::annotation::STRING, text);
                    });
                })
            }
            (Kind::Counter { value }, _) => self.counter(record, value),
            (Kind::Table(table), _) => {
                let label = |row: &Row| match row.key.is_empty() {
                    true => record.name.to_string(),
                    false => {
                        let key: Vec<String> = row.key.iter().map(Data::label).collect();
                        format!("{}[{}]", record.name, key.join(","))
                    }
                };
                let rows = table.rows.iter().take(32);
                let labels = units::distinct(rows.clone().map(label).collect());
                for (label, row) in labels.into_iter().zip(rows) {
                    if let Some(value) = row.value.number() {
                        self.count(record, label, value)?;
                    }
                }
                Ok(())
            }
            // Records of the run have no track.
            (Kind::Span(_) | Kind::Instant { .. } | Kind::Text(..), None) => Ok(()),
        }
    }

    fn pending(&self) -> u64 {
        self.held.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.release()?;
        self.out.flush()
    }

    fn finish(&mut self, _: &End) -> io::Result<()> {
        self.flush()
    }
}
