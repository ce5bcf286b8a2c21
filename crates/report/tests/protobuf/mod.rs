//! Reads the parts of a Perfetto trace that the tests use. Written from Perfetto's .proto files, independently of the writer.

use std::collections::HashMap;

/// Value of a field of a message.
pub(crate) enum Field<'a> {
    /// A varint.
    Number(u64),
    /// A string or message.
    Bytes(&'a [u8]),
}

/// The fields of a message, with their numbers.
pub(crate) fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => all.push((key >> 3, Field::Number(varint(&mut bytes)))),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(len);
                all.push((key >> 3, Field::Bytes(inner)));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    all
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    unreachable!("a byte ends it")
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    fields(message).into_iter().find_map(|(at, value)| match value {
        Field::Number(value) if at == field => Some(value),
        _ => None,
    })
}

fn inner(message: &[u8], field: u64) -> Vec<&[u8]> {
    let all = fields(message).into_iter();
    all.filter_map(|(at, value)| match value {
        Field::Bytes(bytes) if at == field => Some(bytes),
        _ => None,
    })
    .collect()
}

fn text(message: &[u8], field: u64) -> Option<String> {
    Some(String::from_utf8(inner(message, field).first()?.to_vec()).expect("protobuf strings are UTF-8"))
}

/// A call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    /// Uuid of its track.
    pub track: u64,
    /// Its name.
    pub name: String,
    /// Start, boot-clock ns.
    pub start: u64,
    /// End, boot-clock ns.
    pub end: u64,
    /// Annotations with pointer values.
    pub pointers: HashMap<String, u64>,
    /// Annotations with string values.
    pub texts: HashMap<String, String>,
    /// Function, file and line of its stack, outermost first.
    pub stack: Vec<(String, String, u64)>,
}

/// A parsed trace; see the module documentation.
#[derive(Default)]
pub(crate) struct Trace {
    /// Process and thread by track.
    pub threads: HashMap<u64, (u64, u64)>,
    /// Names of threads by track.
    pub thread_names: HashMap<u64, String>,
    /// Counters with their values.
    pub counters: Vec<(String, i64)>,
    clocks: HashMap<u64, u64>,
    events: Vec<(u64, u64, u64, Slice)>,
}

impl Trace {
    /// Parses a trace; checks that all events have a sequence, a described track and the boot clock.
    pub(crate) fn of(bytes: &[u8]) -> Trace {
        let mut trace = Trace::default();
        let (mut described, mut counters, mut interned) =
            (HashMap::new(), HashMap::new(), InternTables::default());
        for packet in inner(bytes, 1) {
            assert_eq!(number(packet, 10), Some(1), "without a sequence events are dropped");
            interned.learn(packet);
            for snapshot in inner(packet, 6) {
                for clock in inner(snapshot, 1) {
                    trace.clocks.insert(number(clock, 1).unwrap(), number(clock, 2).unwrap());
                }
            }
            for descriptor in inner(packet, 60) {
                let uuid = number(descriptor, 1).unwrap();
                described.insert(uuid, ());
                for thread in inner(descriptor, 4) {
                    trace.threads.insert(uuid, (number(thread, 1).unwrap(), number(thread, 2).unwrap()));
                    trace.thread_names.insert(uuid, text(thread, 5).unwrap());
                }
                if !inner(descriptor, 8).is_empty() {
                    counters.insert(uuid, text(descriptor, 2).unwrap());
                }
            }
            for event in inner(packet, 11) {
                let (track, kind) = (number(event, 11).unwrap(), number(event, 9).unwrap());
                assert!(described.contains_key(&track), "track {track} is not described");
                assert_eq!(number(packet, 58), None, "times are of the boot clock, as where none is named");
                let time = number(packet, 8).unwrap();
                if kind == 4 {
                    trace.counters.push((counters[&track].clone(), number(event, 30).unwrap() as i64));
                    continue;
                }
                trace.events.push((time, track, kind, interned.slice(track, event)));
            }
        }
        trace
    }

    /// Wall-clock ns of a boot-clock time, according to the clock snapshot.
    pub(crate) fn wall_ns(&self, boot: u64) -> i128 {
        i128::from(boot) + i128::from(self.clocks[&1]) - i128::from(self.clocks[&6])
    }

    /// Calls, with begin and end events paired as the importer does: by time, then by their order in the file.
    pub(crate) fn slices(&self) -> Vec<Slice> {
        let mut events: Vec<_> = self.events.iter().filter(|(.., kind, _)| *kind <= 2).collect();
        events.sort_by_key(|(time, ..)| *time);
        let (mut open, mut done): (HashMap<u64, Vec<Slice>>, Vec<Slice>) = (HashMap::new(), Vec::new());
        for (time, track, kind, slice) in events {
            let stack = open.entry(*track).or_default();
            if *kind == 1 {
                stack.push(Slice { start: *time, ..slice.clone() });
            } else {
                let begun = stack.pop().expect("an end has a begin");
                done.push(Slice { end: *time, ..begun });
            }
        }
        assert!(open.values().all(Vec::is_empty), "a begin has an end");
        done
    }

    /// Instants, as calls without duration.
    pub(crate) fn moments(&self) -> Vec<Slice> {
        let moments = self.events.iter().filter(|(.., kind, _)| *kind == 3);
        moments.map(|(time, _, _, slice)| Slice { start: *time, end: *time, ..slice.clone() }).collect()
    }
}

/// Interned texts by field and id; frames and stacks.
#[derive(Default)]
struct InternTables {
    texts: HashMap<(u64, u64), String>,
    frames: HashMap<u64, (String, String, u64)>,
    stacks: HashMap<u64, Vec<u64>>,
}

impl InternTables {
    fn learn(&mut self, packet: &[u8]) {
        let flags = number(packet, 13).unwrap_or(0);
        if flags & 1 != 0 {
            *self = InternTables::default();
        }
        for data in inner(packet, 12) {
            for (index, entry) in fields(data) {
                let Field::Bytes(entry) = entry else { panic!("interned data are messages") };
                let is_known = self.entry(index, number(entry, 1).unwrap(), entry);
                assert!(!is_known, "a number means one thing");
                assert_eq!(flags & 2, 2, "what uses numbers says so");
            }
        }
    }

    /// Adds an interned entry; returns whether the id already existed.
    fn entry(&mut self, index: u64, id: u64, entry: &[u8]) -> bool {
        let text_of = |index: u64, field: u64| {
            let meant = |number| self.texts.get(&(index, number)).expect("texts stand before frames").clone();
            number(entry, field).map(meant).unwrap_or_default()
        };
        match index {
            6 => {
                let frame = (text_of(5, 2), text_of(18, 5), number(entry, 6).unwrap_or(0));
                self.frames.insert(id, frame).is_some()
            }
            7 => {
                let frames = fields(entry).into_iter().filter_map(|(at, value)| match value {
                    Field::Number(frame) if at == 2 => Some(frame),
                    _ => None,
                });
                self.stacks.insert(id, frames.collect()).is_some()
            }
            _ => self.texts.insert((index, id), text(entry, 2).unwrap()).is_some(),
        }
    }

    /// The stack of an event, given in place or by id.
    fn stack(&self, event: &[u8]) -> Vec<(String, String, u64)> {
        if let Some(stack) = number(event, 56) {
            return self.stacks[&stack].iter().map(|frame| self.frames[frame].clone()).collect();
        }
        let frame = |frame: &[u8]| {
            let own = |field| text(frame, field).unwrap_or_default();
            (own(1), own(2), number(frame, 3).unwrap_or(0))
        };
        inner(event, 55).into_iter().flat_map(|stack| inner(stack, 1)).map(frame).collect()
    }

    /// The text of a message, given in place (`field`) or by id (`by_number`).
    fn text(&self, message: &[u8], field: u64, by_number: u64, index: u64) -> Option<String> {
        let meant =
            |number| self.texts.get(&(index, number)).expect("a number stands behind its text").clone();
        text(message, field).or_else(|| number(message, by_number).map(meant))
    }

    fn slice(&self, track: u64, event: &[u8]) -> Slice {
        let name = self.text(event, 23, 10, 2).unwrap_or_default();
        let mut slice = Slice { track, name, stack: self.stack(event), ..Slice::default() };
        for annotation in inner(event, 4) {
            let name = self.text(annotation, 10, 1, 3).unwrap();
            if let Some(pointer) = number(annotation, 7) {
                slice.pointers.insert(name.clone(), pointer);
            }
            if let Some(text) = self.text(annotation, 6, 17, 29) {
                slice.texts.insert(name, text);
            }
        }
        slice
    }
}
