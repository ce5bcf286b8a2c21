//! Reads a Perfetto trace, as much of it as the tests look at. Written from Perfetto's .proto files and not from our writer.

use std::collections::HashMap;

/// A field: number, and what it holds.
pub enum Field<'a> {
    /// A varint.
    Number(u64),
    /// A string or message.
    Bytes(&'a [u8]),
}

/// The fields of a message.
pub fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
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
pub struct Slice {
    /// Its track's uuid.
    pub track: u64,
    /// Its name.
    pub name: String,
    /// Boot-clock ns.
    pub start: u64,
    /// Boot-clock ns.
    pub end: u64,
    /// Annotations that are pointers.
    pub pointers: HashMap<String, u64>,
    /// Annotations that are strings.
    pub texts: HashMap<String, String>,
}

/// See the module.
#[derive(Default)]
pub struct Trace {
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
    /// Reads it; checks that all events have a sequence, a described track and the boot clock.
    pub fn of(bytes: &[u8]) -> Trace {
        let mut trace = Trace::default();
        let (mut described, mut counters) = (HashMap::new(), HashMap::new());
        for packet in inner(bytes, 1) {
            assert_eq!(number(packet, 10), Some(1), "without a sequence events are dropped");
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
                assert_eq!(number(packet, 58), Some(6), "times are of the boot clock");
                let time = number(packet, 8).unwrap();
                if kind == 4 {
                    trace.counters.push((counters[&track].clone(), number(event, 30).unwrap() as i64));
                    continue;
                }
                trace.events.push((time, track, kind, slice(track, event)));
            }
        }
        trace
    }

    /// Wall-clock ns of a boot-clock time, by the snapshot.
    pub fn wall_ns(&self, boot: u64) -> i128 {
        i128::from(boot) + i128::from(self.clocks[&1]) - i128::from(self.clocks[&6])
    }

    /// Begins and ends paired as the importer does: by time, and by their order in the file where that is equal.
    pub fn slices(&self) -> Vec<Slice> {
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

    /// Moments, as calls that take no time.
    pub fn moments(&self) -> Vec<Slice> {
        let moments = self.events.iter().filter(|(.., kind, _)| *kind == 3);
        moments.map(|(time, _, _, slice)| Slice { start: *time, end: *time, ..slice.clone() }).collect()
    }
}

fn slice(track: u64, event: &[u8]) -> Slice {
    let mut slice = Slice { track, name: text(event, 23).unwrap_or_default(), ..Slice::default() };
    for annotation in inner(event, 4) {
        let name = text(annotation, 10).unwrap();
        if let Some(pointer) = number(annotation, 7) {
            slice.pointers.insert(name.clone(), pointer);
        }
        if let Some(text) = text(annotation, 6) {
            slice.texts.insert(name, text);
        }
    }
    slice
}
