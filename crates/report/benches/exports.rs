//! Time per event from the bytes of the ring buffer to the bytes of each format.
//!
//! ```text
//! cargo bench -p cudatrace-report --bench exports
//! ```
//!
//! The first two lines are the work of the thread that reads events, the others that of the thread of each export. The minimum
//! of many runs is printed. Files, queues and compression are not included.

use report::export::chrome::Chrome;
use report::export::folded::FoldedStacks;
use report::export::jsonl::Jsonl;
use report::export::otlp::Encoding;
use report::export::otlp::spans::{Batch, Settings};
use report::export::perfetto::Perfetto;
use report::export::{End, Exporter, Record, Recorder, Run};
use report::value::Context;
use report::{Frame, Names, Output};
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::manifest::{Enum, Event, EventKind, Export, HiddenValue};
use wire::types::{Lookup, Type};
use wire::{Manifest, NameKind, decode, layout};

/// Number of records of a run.
const RECORDS: usize = 20_000;
const RUNS: usize = 20;
/// Number of functions that are called.
const FUNCTIONS: u32 = 200;
/// Spans per OTLP request.
const BATCH: usize = 512;

/// A measurement: the shortest time for all records.
type Measure = fn(&Script) -> Duration;

fn main() {
    println!("{:<22}{:>14}{:>16}", "ns an event", "span()", "span(a, b, ...)");
    let (bare, full) = (Script::new(&[]), Script::new(FIELDS));
    let rows: [(&str, Measure); 8] = [
        ("decode", decoding),
        ("decode, record", recording),
        ("jsonl", |script| writing(script, |run| Jsonl::new(Nowhere, run))),
        ("chrome", |script| writing(script, |run| Chrome::new(Nowhere, run.clone()))),
        ("perfetto", |script| writing(script, |run| Perfetto::new(Nowhere, run))),
        ("folded", |script| writing(script, |_| Ok(FoldedStacks::new(Nowhere)))),
        ("otlp, protobuf", |script| requests(script, Encoding::Protobuf)),
        ("otlp, JSON", |script| requests(script, Encoding::Json)),
    ];
    for (name, measure) in rows {
        let ns = |script| measure(script).as_nanos() / RECORDS as u128;
        println!("{name:<22}{:>14}{:>16}", ns(&bare), ns(&full));
    }
}

/// The fields of a launch, as in `record`.
const FIELDS: &[(&str, Type)] = &[
    ("kernel", Type::Lookup(Lookup::Kernel)),
    ("grid_x", Type::Int { bytes: 4, signed: false }),
    ("grid_y", Type::Int { bytes: 4, signed: false }),
    ("shared", Type::Int { bytes: 4, signed: false }),
    ("stream", Type::Pointer),
    ("kind", Type::Enum { id: 0, signed: false }),
];

const HIDDEN: [(HiddenValue, Type); 8] = [
    (HiddenValue::Start, Type::Int { bytes: 8, signed: false }),
    (HiddenValue::Duration, Type::Int { bytes: 8, signed: false }),
    (HiddenValue::ParentStart, Type::Int { bytes: 8, signed: false }),
    (HiddenValue::Result, Type::Enum { id: 0, signed: false }),
    (HiddenValue::Func, Type::Name(NameKind::Func)),
    (HiddenValue::Api, Type::Name(NameKind::Api)),
    (HiddenValue::Probe, Type::Name(NameKind::Probe)),
    (HiddenValue::Comm, Type::Str(16)),
];

/// A script with one `span`, and the records that its probes wrote.
struct Script {
    manifest: Manifest,
    records: Vec<Vec<u8>>,
}

impl Script {
    fn new(fields: &[(&str, Type)]) -> Script {
        let types = HIDDEN.iter().map(|(_, ty)| ty).chain(fields.iter().map(|(_, ty)| ty));
        let record = layout::Record::new(types.cloned());
        let records = (0..RECORDS as u64).map(|number| written(&record, number)).collect();
        let kind = EventKind::Export {
            what: Export::Span,
            name: None,
            hidden: HIDDEN.iter().map(|(hidden, _)| *hidden).collect(),
            keys: fields.iter().map(|(key, _)| (*key).to_owned()).collect(),
        };
        let events = vec![Event { kind, record, place: wire::manifest::Place::default() }];
        let named = |form: &dyn Fn(u32) -> String| (0..FUNCTIONS).map(form).collect();
        let names = wire::manifest::Names {
            funcs: named(&|number| format!("cuFunctionOfTheDriver{number}_v2")),
            apis: named(&|number| format!("cuFunctionOfTheDriver{number}")),
            probes: named(&|number| {
                format!("uretprobe:/usr/lib/x86_64-linux-gnu/libcuda.so.1:cuFunctionOfTheDriver{number}_v2")
            }),
        };
        let results = (0..100).map(|number| (format!("CUDA_RESULT_NUMBER_{number}"), number)).collect();
        let enums = vec![Enum { name: "CUresult".into(), variants: results }];
        Script { manifest: Manifest { events, names, enums, ..Manifest::default() }, records }
    }
}

/// The bytes of a record: each function in turn, called by a few threads.
fn written(record: &layout::Record, number: u64) -> Vec<u8> {
    let comm = b"python3";
    let mut bytes = vec![0; record.head_size as usize];
    let mut put = |at: u32, word: &[u8]| bytes[at as usize..at as usize + word.len()].copy_from_slice(word);
    put(layout::RECORD_TIME, &(1_000_000 + 1000 * number).to_le_bytes());
    put(layout::RECORD_THREAD, &(4242 << 32 | (4242 + number % 4)).to_le_bytes());
    for field in &record.fields {
        match &field.ty {
            Type::Str(_) => put(field.offset, &(comm.len() as u16).to_le_bytes()),
            Type::Name(_) => put(field.offset, &((number % u64::from(FUNCTIONS)) as u32).to_le_bytes()),
            Type::Enum { .. } => put(field.offset, &0u32.to_le_bytes()),
            other => put(field.offset, &(990_000 + 1000 * number).to_le_bytes()[..other.size() as usize]),
        }
    }
    bytes.extend_from_slice(comm);
    bytes
}

/// A machine with one program, whose GPU kernels have names.
struct OneProgram(Arc<str>);

impl Names for OneProgram {
    fn user_symbol(&self, _: u32, address: u64) -> String {
        format!("{address:#x}")
    }

    fn stack(&self, _: bool, _: u32, _: &[u64]) -> Vec<Frame> {
        Vec::new()
    }

    fn stack_addresses(&self, _: u32, _: u32) -> Vec<u64> {
        Vec::new()
    }

    fn wall_clock_ns(&self, boot_ns: u64) -> i128 {
        i128::from(boot_ns)
    }

    fn strftime(&self, _: &str, wall_ns: i128) -> String {
        wall_ns.to_string()
    }

    fn lookup(&self, _: Lookup, number: i64) -> String {
        format!("vectorized_elementwise_kernel<{}>", number % 50)
    }

    fn program(&self, _: u32) -> Option<Arc<str>> {
        Some(self.0.clone())
    }
}

/// A writer that discards everything.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(black_box(bytes).len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run() -> Arc<Run> {
    Arc::new(Run { id: 7, boot_at_wall_ns: 1_700_000_000_000_000_000, ..Run::default() })
}

/// The shortest of many runs.
fn best(mut once: impl FnMut() -> Duration) -> Duration {
    (0..RUNS).map(|_| once()).min().expect("RUNS > 0")
}

fn outputs(script: &Script) -> impl Iterator<Item = Output> + '_ {
    script.records.iter().map(|data| {
        let header = decode::header(data).expect("well formed");
        let values = decode::record(data, &script.manifest.events[0].record).expect("well formed");
        Output::Event { header, values, cell: None }
    })
}

fn decoding(script: &Script) -> Duration {
    best(|| {
        let begun = Instant::now();
        outputs(script).for_each(|output| drop(black_box(output)));
        begun.elapsed()
    })
}

fn recording(script: &Script) -> Duration {
    let (names, mut recorder) = (OneProgram("python3".into()), Recorder::new(run()));
    let context = Context { manifest: &script.manifest, names: &names, verbatim: false };
    best(|| {
        let begun = Instant::now();
        for output in outputs(script) {
            recorder.records(context, &output, &mut |record| drop(black_box(record)));
        }
        begun.elapsed()
    })
}

fn records(script: &Script) -> Vec<Record> {
    let (names, mut recorder) = (OneProgram("python3".into()), Recorder::new(run()));
    let context = Context { manifest: &script.manifest, names: &names, verbatim: false };
    let mut records = Vec::new();
    outputs(script).for_each(|output| recorder.records(context, &output, &mut |record| records.push(record)));
    records
}

fn writing<E: Exporter>(script: &Script, make: impl Fn(&Arc<Run>) -> io::Result<E>) -> Duration {
    let records = records(script);
    best(|| {
        let mut exporter = make(&run()).expect("nowhere is always there");
        let begun = Instant::now();
        records.iter().for_each(|record| exporter.record(record).expect("nowhere takes everything"));
        exporter.finish(&End::default()).expect("nowhere takes everything");
        begun.elapsed()
    })
}

fn requests(script: &Script, encoding: Encoding) -> Duration {
    let records = records(script);
    best(|| {
        let mut batch = Batch::new(run(), Settings { encoding, ..Settings::default() });
        let begun = Instant::now();
        for part in records.chunks(BATCH) {
            part.iter().for_each(|record| batch.add(record));
            black_box(batch.take());
        }
        begun.elapsed()
    })
}
