//! Damaged recordings are read, summarised and converted without a panic, an overflow, or memory without bound: times, durations, sizes and devices in
//! them were written by traced processes, or by anybody. `CUDATRACE_FUZZ_SECONDS` is the time that is tried, 2 by default.

#[path = "../../wire/tests/common/mod.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod common;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Numbers;
use report::export::jsonl::Jsonl;
use report::export::otlp::Encoding;
use report::export::otlp::spans::{Batch, Settings};
use report::export::{
    Data, End, Exporter, FORMATS, Fields, Kind, Record, Run, Site, Span, Status, Text, Thread,
};
use report::recording::page::Page;
use report::recording::summary::Summary;
use report::recording::timeline::Timeline;
use report::recording::{self, Reader, summary_tables};

/// Numbers at which sums, products and conversions go wrong.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "16384",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "\"170141183460469231731687303715884105727\"",
    "\"-170141183460469231731687303715884105728\"",
    "1e308",
    "null",
    "\"0xffffffffffffffff\"",
];

/// Everything that reads the records of a recording.
struct Readers {
    summary: Summary,
    timeline: Timeline,
    page: Page,
    exporters: Vec<Box<dyn Exporter>>,
    batches: [Batch; 2],
}

impl Readers {
    fn new(run: Arc<Run>) -> Readers {
        let batch = |encoding| Batch::new(run.clone(), Settings { encoding, ..Settings::default() });
        let batches = [batch(Encoding::Protobuf), batch(Encoding::Json)];
        Readers {
            summary: Summary::default(),
            timeline: Timeline::new(run.start_ns),
            page: Page::default(),
            exporters: FORMATS
                .iter()
                .map(|format| (format.create)(Box::new(io::sink()), &run).expect("begun"))
                .collect(),
            batches,
        }
    }
}

/// Creates the readers for the run that the recording describes.
#[derive(Default)]
struct All(Option<Readers>);

impl Reader for All {
    fn begin(&mut self, run: &Run) {
        self.0 = Some(Readers::new(Arc::new(run.clone())));
    }

    fn record(&mut self, record: Record) {
        let all = self.0.as_mut().expect("begun");
        all.summary.add(&record);
        all.timeline.add(&record);
        all.page.add(&record);
        all.exporters.iter_mut().for_each(|exporter| exporter.record(&record).expect("nothing can fail"));
        all.batches.iter_mut().for_each(|batch| batch.add(&record));
    }
}

/// Reads a recording into all of them, and lets each write what it has.
fn read(bytes: &[u8]) {
    let mut all = All::default();
    let Ok(recording) = recording::read(bytes, &mut all) else { return };
    let mut all = all.0.expect("begun");
    let written =
        [all.summary.short(), all.timeline.draw(60, 8), all.page.html("t", &recording, &all.summary)];
    assert!(written.iter().all(|text| text.len() < 4 << 20), "a few lines do not become megabytes");
    let mut out = String::new();
    summary_tables::tables(&all.summary).iter().for_each(|table| table.json(&mut out));
    all.exporters.iter_mut().for_each(|exporter| exporter.finish(&End::default()).expect("nothing can fail"));
    all.batches.iter_mut().for_each(|batch| {
        batch.end_traces(u64::MAX);
        batch.take();
    });
}

/// A recording with a record of each kind.
fn recording() -> Vec<u8> {
    let text = |text: &str| Data::Text(text.into());
    let record = |kind, tid: u32, time_ns, name: &str, probe: &str, fields: Vec<(&str, Data)>| Record {
        kind,
        time_ns,
        thread: Some(Arc::new(Thread { pid: 7, tid, comm: "app".into(), program: "app".into() })),
        site: Arc::new(Site { func: name.into(), api: name.into(), probe: probe.into() }),
        name: name.into(),
        fields: fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect::<Fields>(),
    };
    let span = |duration_ns, span_id, parent_id| {
        let (status, result) = (Status::Ok, None);
        Kind::Span(Span { duration_ns, span_id, parent_id, status, result, launch_id: 5 })
    };
    let stream = 1 << 30 | 3 << 16 | 9;
    let (bytes, ptr) = (("bytes", Data::Uint(4096)), ("ptr", Data::Handle(0x7000)));
    let records = [
        record(span(30, 5, 0), 8, 900, "cuLaunchKernel", "uprobe:x", vec![("kernel", text("k"))]),
        record(span(30, 6, 0), 8, 950, "cuMemAlloc_v2", "uprobe:x", vec![bytes.clone(), ptr.clone()]),
        record(span(30, 7, 6), 8, 960, "cuMemFree_v2", "uprobe:x", vec![ptr]),
        record(span(90, 8, 0), stream, 1000, "k", "gpu:kernel", vec![("gpu", Data::Uint(1))]),
        record(
            span(90, 9, 0),
            stream,
            2000,
            "copy",
            "gpu:memcpy",
            vec![bytes.clone(), ("direction", text("HtoD"))],
        ),
        record(span(9, 1, 0), 8, 3000, "cuMemcpyHtoD_v2", "uprobe:x", vec![bytes]),
        record(Kind::Instant { parent_id: 8 }, 8, 3100, "process end", "tracepoint:x", Vec::new()),
        record(Kind::Counter { value: Data::Int(-4) }, 8, 3200, "c", "uprobe:x", Vec::new()),
        record(Kind::Text(Text::Loss(3), "3 lost".into()), 8, 3300, "", "", Vec::new()),
    ];
    let run = Run { start_ns: 800, boot_at_wall_ns: 1_700_000_000_000_000_000, ..Run::default() };
    let mut bytes = Vec::new();
    let mut jsonl = Jsonl::new(&mut bytes, &run).expect("begun");
    records.iter().for_each(|record| jsonl.record(record).expect("nothing can fail"));
    jsonl.finish(&End::default()).expect("nothing can fail");
    drop(jsonl);
    bytes
}

/// Changes a number, or some bytes.
fn mutate(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() as u64) as usize;
    if numbers.below(4) == 0 {
        bytes[at] = numbers.next() as u8;
        return;
    }
    let Some(first) = bytes[at..].iter().position(u8::is_ascii_digit).map(|digit| at + digit) else { return };
    let length = bytes[first..].iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(0);
    let number = NUMBERS[numbers.below(NUMBERS.len() as u64) as usize];
    bytes.splice(first..first + length, number.bytes());
}

#[test]
fn damaged_recordings_are_read() {
    let seconds = std::env::var("CUDATRACE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(2));
    let (whole, start) = (recording(), Instant::now());
    read(&whole);
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    while start.elapsed() < limit {
        let mut bytes = whole.clone();
        for _ in 0..1 + numbers.below(6) {
            mutate(&mut bytes, &mut numbers);
        }
        // Times and sums of the same damaged record twice.
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let twice = lines[numbers.below(lines.len() as u64) as usize].repeat(3);
        let (head, tail) = bytes.split_at(lines[..lines.len() - 1].concat().len());
        let damaged = [head, &twice, tail].concat();
        let result = std::panic::catch_unwind(|| read(&damaged));
        assert!(result.is_ok(), "{}", String::from_utf8_lossy(&damaged));
    }
}

#[test]
fn extreme_numbers_in_every_place_are_read() {
    let whole = recording();
    let is_first = |at: &usize| whole[*at].is_ascii_digit() && !whole[at - 1].is_ascii_digit();
    for (place, first) in (1..whole.len()).filter(is_first).enumerate() {
        let length = whole[first..].iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(0);
        // Some of them in each place, others in the next one.
        for number in NUMBERS.iter().skip(place % 5).step_by(5) {
            let mut bytes = whole.clone();
            bytes.splice(first..first + length, number.bytes());
            read(&bytes);
        }
    }
}
