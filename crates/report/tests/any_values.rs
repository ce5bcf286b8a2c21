//! All formats print arbitrary values of records, keys and cells without a panic, and JSON stays valid.
//!
//! Types are random, and values are read from random bytes. Ids in them may be invalid.

#[path = "../../wire/tests/common/mod.rs"]
mod common;

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;

use common::Numbers;
use report::export::jsonl::Jsonl;
use report::export::{End, Exporter, FORMATS, Recorder, Run};
use report::recording::summary::Summary;
use report::recording::timeline::Timeline;
use report::sink::{JsonSink, TextSink};
use report::value::Context;
use report::{Cell, Frame, Names, Output, Point, Sink, Snapshot};
use wire::decode::Header;
use wire::layout::Record;
use wire::manifest::{
    Directive, Enum, Event, EventKind, Export, HiddenValue, Message, Piece, Place, StackMap,
};
use wire::map::{Agg, Keeps, Map, MapValue, Storage};
use wire::types::{Lookup, NameKind, Type};
use wire::{Manifest, Value, decode};

/// A machine that resolves few names.
struct Nobody;

impl Names for Nobody {
    fn user_symbol(&self, _: u32, address: u64) -> String {
        format!("{address:#x}")
    }

    fn stack(&self, _: bool, _: u32, addresses: &[u64]) -> Vec<Frame> {
        addresses.iter().map(|&address| Frame { address, ..Frame::default() }).collect()
    }

    fn stack_addresses(&self, _: u32, id: u32) -> Vec<u64> {
        (0..u64::from(id % 4)).collect()
    }

    fn wall_clock_ns(&self, boot_ns: u64) -> i128 {
        i128::from(boot_ns) + i128::from(u64::MAX)
    }

    fn strftime(&self, format: &str, wall_ns: i128) -> String {
        format!("{format} {wall_ns}")
    }

    fn lookup(&self, what: Lookup, number: i64) -> String {
        format!("{what:?} \"{number}\"\n")
    }
}

/// Output that is read while its writer exists.
#[derive(Clone, Default)]
struct SharedBuffer(Rc<RefCell<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn directive(numbers: &mut Numbers) -> Piece {
    let conversions = ['d', 'i', 'u', 'x', 'X', 'o', 'c', 'p', 's', 'r', 'h', '?'];
    Piece::Directive(Directive {
        left: numbers.below(4) == 0,
        plus: numbers.below(4) == 0,
        space: numbers.below(4) == 0,
        alternate: numbers.below(4) == 0,
        zero: numbers.below(4) == 0,
        width: numbers.below(40) as u32,
        precision: (numbers.below(3) == 0).then(|| numbers.below(40) as u32),
        length: [0, 1, 2, 8][numbers.below(4) as usize],
        register: numbers.below(4) == 0,
        literal: numbers.below(4) == 0,
        conversion: conversions[numbers.below(conversions.len() as u64) as usize],
    })
}

/// One event of each kind that prints values, with the same record.
fn events(numbers: &mut Numbers, types: &[Type]) -> Vec<Event> {
    let format = || -> Vec<Piece> { vec![Piece::Text(vec![b'a', 0xff, b'\n'])] };
    let mut with_values = || format().into_iter().chain(types.iter().map(|_| directive(numbers))).collect();
    let message = |what, format| EventKind::Message { what, end_column: 3, format, calls: Vec::new() };
    let kinds = vec![
        EventKind::Print,
        EventKind::PrintEntry { map: 0 },
        EventKind::PrintEntry { map: 1 },
        EventKind::Printf { format: with_values() },
        EventKind::Rows { top: 1, none: Vec::new(), name: "calls".into() },
        EventKind::Time { format: "%H".into() },
        message(Message::Error, with_values()),
        message(Message::Join, with_values()),
        message(Message::Row, with_values()),
        message(Message::Heading, with_values()),
        EventKind::Export {
            what: Export::Instant,
            name: None,
            hidden: Vec::new(),
            keys: types.iter().map(|_| "key".into()).collect(),
        },
    ];
    let event = |kind| Event { kind, record: Record::new(types.to_vec()), place: Place::default() };
    kinds.into_iter().map(event).chain([gpu_work()]).collect()
}

/// Types of a record of a GPU: start, duration, probe, correlation id, device, stream, GPU.
fn gpu_types() -> Vec<Type> {
    let number = |bytes| Type::Int { bytes, signed: false };
    vec![number(8), number(8), Type::Name(NameKind::Probe), number(8), number(4), number(8), number(8)]
}

/// The event that `record` writes for work of a GPU; all of it comes from the traced process.
fn gpu_work() -> Event {
    let kind = EventKind::Export {
        what: Export::Span,
        name: Some("kernel".into()),
        hidden: vec![HiddenValue::Start, HiddenValue::Duration, HiddenValue::Probe],
        keys: ["corr", "device", "stream", "gpu"].map(String::from).to_vec(),
    };
    Event { kind, record: Record::new(gpu_types()), place: Place::default() }
}

/// The values of work of a GPU: extreme ones, of which the first name is the probe.
fn gpu_values(numbers: &mut Numbers) -> Vec<Value> {
    let extreme = |numbers: &mut Numbers| match numbers.below(4) {
        0 => u64::MAX - numbers.below(9),
        1 => 1 << 63,
        2 => numbers.below(1 << 40),
        _ => numbers.next(),
    };
    let value = |ty: &Type| match ty {
        Type::Int { bytes, .. } => Value::Uint(extreme(numbers) >> (64 - 8 * u32::from(*bytes)), *bytes),
        _ => Value::Name(NameKind::Probe, 0),
    };
    gpu_types().iter().map(value).collect()
}

fn aggregation(numbers: &mut Numbers) -> Agg {
    let signed = numbers.below(2) == 0;
    match numbers.below(6) {
        0 => Agg::Count,
        1 => Agg::Avg { signed },
        2 => Agg::Stats { signed },
        3 => Agg::Hist { bits: numbers.below(6) as u8, summed: false },
        4 => Agg::LHist {
            min: -7,
            max: numbers.below(1000) as i64,
            step: 1 + numbers.below(9) as i64,
            summed: false,
        },
        _ => Agg::TSeries { interval: 1 + numbers.below(1 << 40), count: 5, keeps: Keeps::Last, signed },
    }
}

/// A cell as the runtime makes it from an aggregation.
fn cell(numbers: &mut Numbers, agg: &Agg) -> Cell {
    let bits = numbers.next() as i64;
    match agg {
        Agg::Stats { signed } => Cell::Stats { count: 1 + numbers.next() / 2, total: bits, signed: *signed },
        Agg::Hist { .. } | Agg::LHist { .. } => Cell::Buckets {
            counts: (0..agg.buckets()).map(|_| numbers.next() >> numbers.below(64)).collect(),
            sum: None,
        },
        Agg::TSeries { interval, signed, .. } => {
            let first = numbers.below(1 << 20);
            let point = |at: u64, bits: u64| Point {
                start_ns: (first + at) * interval,
                bits: bits as i64,
                signed: *signed,
            };
            Cell::Series((0..numbers.below(5)).map(|at| point(at, numbers.next())).collect())
        }
        _ => Cell::Number { bits, signed: numbers.below(2) == 0 },
    }
}

fn manifest(numbers: &mut Numbers, types: &[Type], agg: &Agg) -> Manifest {
    let map = |name: &str, value| Map {
        name: name.into(),
        symbol: name.into(),
        key: types.to_vec(),
        value,
        storage: Storage::Hash,
        max_entries: 9,
    };
    let names = wire::manifest::Names { probes: vec!["gpu:kernel".into()], ..Default::default() };
    Manifest {
        events: events(numbers, types),
        maps: vec![map("plain", MapValue::Plain(types[0].clone())), map("agg", MapValue::Agg(agg.clone()))],
        names,
        enums: vec![Enum { name: "e".into(), variants: vec![("A".into(), 0)] }],
        stacks: vec![StackMap { symbol: "s".into(), user: true, limit: 4, walked: false }],
        ..Manifest::default()
    }
}

/// Values of these types from random bytes.
fn values(numbers: &mut Numbers, types: &[Type]) -> Vec<Value> {
    // Small ids refer to something, and lengths of strings fit. The index of a variant is invalid in most random
    // bytes, but valid if all are 0.
    let mask = if numbers.below(3) == 0 { 1 } else { 0xff };
    let lengths = (7..17).map(|power| 1 << power);
    let bytes = lengths.map(|length| numbers.bytes(length).iter().map(|byte| byte & mask).collect());
    let mut bytes = bytes.chain([vec![0; 1 << 17]]);
    let read = |data: Vec<u8>| decode::record(&data, &Record::new(types.to_vec())).ok();
    bytes.find_map(read).expect("zeros can be read")
}

/// Types that can be decoded: a struct may have members beyond its end, where no bytes exist.
fn readable(numbers: &mut Numbers) -> Vec<Type> {
    loop {
        let types: Vec<Type> = (0..1 + numbers.below(3)).map(|_| numbers.ty(2)).collect();
        if decode::record(&[0; 1 << 17], &Record::new(types.clone())).is_ok() {
            return types;
        }
    }
}

fn outputs(numbers: &mut Numbers, manifest: &Manifest, types: &[Type], agg: &Agg) -> Vec<Output> {
    let mut outputs = Vec::new();
    for event in 0..manifest.events.len() as u32 + 1 {
        let mut header = decode::header(&numbers.bytes(64)).expect("enough bytes");
        header.event = event;
        if event as usize + 1 == manifest.events.len() {
            outputs.extend((0..20).map(|_| {
                let header = Header { time_ns: header.time_ns >> numbers.below(64), ..header };
                Output::Event { header, values: gpu_values(numbers), cell: None }
            }));
            continue;
        }
        let entry = [None, Some(Cell::Plain(values(numbers, types).remove(0))), Some(cell(numbers, agg))];
        outputs.extend(entry.map(|cell| Output::Event { header, values: values(numbers, types), cell }));
    }
    let top = numbers.below(3) as u32;
    let div = numbers.below(3) as u32;
    let plain = (0..4).map(|_| (values(numbers, types), Cell::Plain(values(numbers, types).remove(0))));
    outputs.push(Output::Map(Snapshot { map: 0, entries: plain.collect(), top, div }));
    let counted = (0..4).map(|_| (values(numbers, types), cell(numbers, agg)));
    outputs.push(Output::Map(Snapshot { map: 1, entries: counted.collect(), top, div }));
    outputs
}

#[test]
fn every_format_says_whatever_comes() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for _ in 0..150 {
        let types = readable(&mut numbers);
        let agg = aggregation(&mut numbers);
        let manifest = manifest(&mut numbers, &types, &agg);
        let outputs = outputs(&mut numbers, &manifest, &types, &agg);
        let mut text = TextSink::new(io::sink(), io::sink(), false);
        let lines = SharedBuffer::default();
        let mut json = JsonSink::new(lines.clone(), false);
        for output in &outputs {
            text.output(&manifest, &Nobody, output).expect("nothing can fail");
            json.output(&manifest, &Nobody, output).expect("nothing can fail");
        }
        json.flush().expect("nothing can fail");
        all_json(&lines, &types);
        exported(&manifest, &outputs, &types);
    }
}

fn all_json(lines: &SharedBuffer, types: &[Type]) {
    let bytes = lines.0.borrow();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let read: Result<serde_json::Value, _> = serde_json::from_slice(line);
        assert!(read.is_ok(), "{types:?}: {}: {read:?}", String::from_utf8_lossy(line));
    }
}

/// The export formats, which are written on other threads.
fn exported(manifest: &Manifest, outputs: &[Output], types: &[Type]) {
    let run = Arc::new(Run::default());
    let mut recorder = Recorder::new(run.clone());
    let context = Context { manifest, names: &Nobody, verbatim: false };
    let mut records = Vec::new();
    outputs.iter().for_each(|output| recorder.records(context, output, &mut |record| records.push(record)));
    let (mut summary, mut timeline) = (Summary::default(), Timeline::new(0));
    records.iter().for_each(|record| {
        summary.add(record);
        timeline.add(record);
    });
    assert!(!summary.short().is_empty() && !timeline.draw(40, 4).is_empty());
    let mut bytes = Vec::new();
    let exporters = FORMATS.iter().map(|format| (format.create)(Box::new(io::sink()), &run).expect("begun"));
    for mut exporter in exporters {
        records.iter().for_each(|record| exporter.record(record).expect("nothing can fail"));
        exporter.finish(&End::default()).expect("nothing can fail");
    }
    {
        let mut jsonl = Jsonl::new(&mut bytes, &run).expect("begun");
        records.iter().for_each(|record| jsonl.record(record).expect("nothing can fail"));
        jsonl.finish(&End::default()).expect("nothing can fail");
    }
    all_json(&SharedBuffer(Rc::new(RefCell::new(bytes))), types);
}
