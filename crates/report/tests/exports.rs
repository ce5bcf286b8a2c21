//! One list of records in all formats with times: they agree on each call, calls are nested, malicious names are escaped, and a
//! truncated recording is read up to the truncation.

mod protobuf;

use report::Frame;
use report::export::arrow::Arrow;
use report::export::chrome::Chrome;
use report::export::jsonl::Jsonl;
use report::export::perfetto::Perfetto;
use report::export::{
    Data, End, Enumerator, Exporter, Fields, Kind, Record, Run, Site, Span, Status, Text, Thread,
};
use report::recording::{self, Reader, Recording, RecordingEnd};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Output that outlives its writer.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run() -> Run {
    Run {
        id: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
        boot_at_wall_ns: 1_795_320_000_123_456_789,
        suspended_ns: 42_000_000,
        start_ns: 5_000_000_000_123,
        tool: "cudatrace 0".into(),
        host: "h\"o\\st".into(),
        command: vec!["./a b".into()],
        script: "t.ct".into(),
        rank: Some(3),
        environment: [("driver".into(), "570".into()), ("com\"mit".into(), HOSTILE.into())].into(),
    }
}

/// Quotes, newlines, terminal escapes, direction marks, a replaced truncated character, tags.
const HOSTILE: &str = "a\"b\\c\nd\u{1b}[2J\u{202e}\u{9b}漢\u{fffd}</script><!--";

fn thread(tid: u32) -> Thread {
    let comm: Arc<str> = if tid == 78 { HOSTILE.into() } else { "worker".into() };
    Thread { pid: 77, tid, program: if tid == 79 { HOSTILE.into() } else { comm.clone() }, comm }
}

/// A call that began at `start` and took `ns`, in the call that began at `parent`; times are relative to the start
/// of the run.
fn call(tid: u32, func: &str, (start, ns): (u64, u64), parent: Option<u64>) -> Record {
    let run = run();
    let id = |at: u64| run.span_id(77, tid, run.start_ns - run.suspended_ns + at);
    let failed = func == "cuMemAlloc_v2";
    let result = Data::Enum(Arc::new(Enumerator {
        ty: "CUresult".into(),
        name: Some(if failed { "CUDA_ERROR_OUT_OF_MEMORY" } else { "CUDA_SUCCESS" }.into()),
        value: if failed { 2 } else { 0 },
    }));
    let status = if failed { Status::Error } else { Status::Ok };
    let span = Span {
        duration_ns: ns,
        span_id: id(start),
        parent_id: parent.map_or(0, id),
        status,
        result: Some(result),
        launch_id: 0,
    };
    let site = Site {
        func: func.into(),
        api: func.trim_end_matches("_v2").into(),
        probe: format!("uretprobe:/lib/libcuda.so.1:{func}").into(),
    };
    let fields: Vec<(Arc<str>, Data)> = vec![
        ("bytes".into(), Data::Uint(u64::MAX)),
        ("stream".into(), Data::Handle(0xffff_8000_1234_5678)),
        ("delta".into(), Data::Int(-3)),
        ("name".into(), Data::Text(HOSTILE.into())),
        ("0x10".into(), Data::Text("0x10".into())),
        ("grid".into(), Data::Map(vec![("x".into(), Data::Uint(1)), ("y".into(), Data::Uint(2))])),
        ("async".into(), Data::Bool(true)),
    ];
    Record {
        kind: Kind::Span(span),
        time_ns: run.start_ns + start,
        thread: Some(thread(tid).into()),
        site: site.into(),
        name: func.into(),
        fields: fields.into_iter().collect(),
    }
}

/// Records in realistic order: nested calls before enclosing ones, threads interleaved, ends and starts at the
/// same ns.
fn records() -> Vec<Record> {
    vec![
        call(77, "cuInit", (101, 1), Some(100)),
        call(78, "cuMemAlloc_v2", (150, 999_999_999), None),
        call(77, "cuCtxCreate", (102, 7), Some(100)),
        call(77, "cuCtxGetDevice", (109, 1), Some(100)),
        call(77, "cudaMalloc", (100, 10), None),
        call(77, "cudaFree", (110, 1), None),
        Record {
            kind: Kind::Instant { parent_id: 0 },
            name: HOSTILE.into(),
            ..call(77, "cuInit", (120, 0), None)
        },
        Record { kind: Kind::Counter { value: Data::Int(-5) }, ..call(77, "live", (121, 0), None) },
        Record {
            kind: Kind::Text(Text::Output, HOSTILE.into()),
            fields: Fields::default(),
            ..call(77, "", (122, 0), None)
        },
    ]
}

fn written<E: Exporter>(make: impl FnOnce(SharedBuffer) -> E) -> Vec<u8> {
    let out = SharedBuffer::default();
    let mut exporter = make(out.clone());
    records().iter().for_each(|record| exporter.record(record).unwrap());
    exporter.finish(&End { dropped: 3, ..End::default() }).unwrap();
    out.0.lock().unwrap().clone()
}

#[derive(Default)]
struct RecordList(Vec<Record>);

impl Reader for RecordList {
    fn begin(&mut self, run: &Run) {
        assert_eq!(*run, self::run());
    }

    fn record(&mut self, record: Record) {
        self.0.push(record);
    }
}

fn read(bytes: &[u8]) -> (Vec<Record>, Recording) {
    let mut kept = RecordList::default();
    let recording = recording::read(bytes, &mut kept).unwrap();
    (kept.0, recording)
}

#[test]
fn records_of_a_recording_are_read_back() {
    let bytes = written(|out| Jsonl::new(out, &run()).unwrap());
    let (back, recording) = read(&bytes);
    assert_eq!(back, records());
    assert_eq!(recording.ended, RecordingEnd::Whole { dropped: 3, goes_on: false });
    assert_eq!(recording.unreadable, None);
    assert!(
        bytes.split(|b| *b == b'\n').all(|line| !line.contains(&0x1b)),
        "no control character is in the file"
    );
}

#[test]
fn columns_have_all_that_lines_have() {
    let bytes = written(|out| Arrow::new(out, &Arc::new(run())).unwrap());
    let (back, recording) = read(&bytes);
    assert_eq!(back, records());
    assert_eq!(
        (recording.ended, recording.unreadable),
        (RecordingEnd::Whole { dropped: 3, goes_on: false }, None)
    );
    let lines = written(|out| Jsonl::new(out, &run()).unwrap());
    let described = |bytes: &[u8]| recording::description(bytes).unwrap();
    assert_eq!(described(&bytes), described(&lines).trim_end());
}

#[test]
fn columns_that_were_cut_off_are_read_up_to_the_last_batch() {
    let (out, all) = (SharedBuffer::default(), records());
    let mut exporter = Arrow::new(out.clone(), &Arc::new(run())).unwrap();
    let mut ends = vec![out.0.lock().unwrap().len()];
    for record in &all {
        exporter.record(record).unwrap();
        assert!(!exporter.catch_up().unwrap(), "one row takes too much room for a batch");
        exporter.flush().unwrap();
        assert_eq!(exporter.pending(), 0);
        ends.push(out.0.lock().unwrap().len());
    }
    let bytes = out.0.lock().unwrap().clone();
    let edges =
        ends.iter().flat_map(|end| end - 1..end + 2).filter(|end| (ends[0]..bytes.len()).contains(end));
    for end in edges.chain((ends[0]..bytes.len()).step_by(97)) {
        let (back, recording) = read(&bytes[..end]);
        let whole = ends.iter().filter(|batch| **batch <= end).count() - 1;
        assert_eq!(back, all[..whole], "{end} of {} bytes", bytes.len());
        assert_eq!((recording.ended, recording.unreadable), (RecordingEnd::Cut, None));
    }
    assert!(recording::read(&bytes[..ends[0] / 2], &mut RecordList::default()).is_err());
}

#[test]
fn damaged_columns_are_no_crash() {
    let bytes = written(|out| Arrow::new(out, &Arc::new(run())).unwrap());
    struct Nothing;
    impl Reader for Nothing {
        fn begin(&mut self, _: &Run) {}
        fn record(&mut self, _: Record) {}
    }
    for at in (1..bytes.len()).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= [0x01, 0x80, 0xff][at % 3];
        let _ = recording::read(&damaged[..], &mut Nothing);
    }
}

#[test]
fn a_recording_that_was_cut_off_is_read_up_to_there() {
    let bytes = written(|out| Jsonl::new(out, &run()).unwrap());
    let first = bytes.iter().position(|b| *b == b'\n').unwrap();
    let (mut most, all) = (0, records());
    for end in first + 1..bytes.len() - 1 {
        let (back, recording) = read(&bytes[..end]);
        assert_eq!(recording.ended, RecordingEnd::Cut);
        assert_eq!(recording.unreadable, None);
        assert_eq!(back, all[..back.len()]);
        assert!(back.len() >= most, "a longer file has no fewer records");
        most = back.len();
    }
    assert_eq!(most, all.len());
    assert!(recording::read(&b"{\"type\": \"map\"}\n"[..], &mut RecordList::default()).is_err());
    assert!(recording::read(&b""[..], &mut RecordList::default()).is_err());
}

/// Facts about a call in a format: name, process, thread, wall-clock start, ns, id, parent. Ids have the precision
/// of the format.
type CallFacts = (String, u64, u64, i128, u64, u64, u64);

const CORRELATION: u64 = (1 << 53) - 1;

fn meant() -> Vec<CallFacts> {
    let said = |record: &Record| {
        let (span, thread) = (record.span()?, record.thread.as_ref()?);
        Some((
            record.name.to_string(),
            u64::from(thread.pid),
            u64::from(thread.tid),
            run().wall_ns(record.time_ns),
            span.duration_ns,
            span.span_id & CORRELATION,
            span.parent_id & CORRELATION,
        ))
    };
    let mut all: Vec<CallFacts> = records().iter().filter_map(said).collect();
    all.sort();
    all
}

/// Microseconds in a text, converted to ns without a double.
fn micros(text: &str, key: &str) -> i128 {
    let at = text.find(key).unwrap_or_else(|| panic!("{key} in {text}")) + key.len();
    let number: String = text[at..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let (whole, decimals) = number.split_once('.').unwrap();
    assert_eq!(decimals.len(), 3, "{number}");
    whole.parse::<i128>().unwrap() * 1000 + decimals.parse::<i128>().unwrap()
}

#[test]
fn chrome_says_the_same_and_nests() {
    let bytes = written(|out| Chrome::new(out, Arc::new(run())).unwrap());
    let text = String::from_utf8(bytes).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert!(text.contains("\"rank\": 3"), "readers of torch's traces look for it with a blank");
    let base = i128::from(json["baseTimeNanoseconds"].as_i64().unwrap());
    assert_eq!(base % (7_889_238 * 1_000_000_000), 0);
    let events = json["traceEvents"].as_array().unwrap();
    let mut said = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("{\"ph\": \"X\"")) {
        let event: Value = serde_json::from_str(line.trim_end_matches(',')).unwrap();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        assert!(event["args"].get("stream").is_none(), "a host row with a stream is taken for the GPU's");
        assert_eq!(event["args"]["name"], HOSTILE);
        said.push((
            event["name"].as_str().unwrap().to_owned(),
            number(&event["pid"]),
            number(&event["tid"]),
            base + micros(line, "\"ts\": "),
            micros(line, "\"dur\": ") as u64,
            number(&event["args"]["correlation"]),
            number(&event["args"]["parent_correlation"]),
        ));
    }
    said.sort();
    assert_eq!(said, meant());
    assert_nested(said.iter().map(|said| (said.2, said.3, said.4)).collect());
    let failed = events.iter().find(|event| event["name"] == "cuMemAlloc_v2").unwrap();
    assert_eq!(
        (&failed["cname"], &failed["args"]["error"]),
        (&"terrible".into(), &"CUDA_ERROR_OUT_OF_MEMORY".into())
    );
    assert!(events.iter().any(|e| e["ph"] == "M" && e["args"]["name"] == format!("thread 78 ({HOSTILE})")));
    assert!(events.iter().all(|event| event["cat"] != "kernel" && event["cat"] != "gpu_memcpy"));
    assert_eq!(events.last().unwrap()["name"], "Record Window End");
}

/// Asserts that the calls of a thread are nested or disjoint.
fn assert_nested(mut calls: Vec<(u64, i128, u64)>) {
    calls.sort_by_key(|(tid, start, ns)| (*tid, *start, std::cmp::Reverse(*ns)));
    let mut open: Vec<(u64, i128)> = Vec::new();
    for (tid, start, ns) in calls {
        open.retain(|(other, end)| *other == tid && *end > start);
        let end = start + i128::from(ns);
        assert!(open.last().is_none_or(|(_, around)| end <= *around), "a call crosses the one around it");
        open.push((tid, end));
    }
}

#[test]
fn perfetto_says_the_same_and_nests() {
    let bytes = written(|out| Perfetto::new(out, &run()).unwrap());
    let trace = protobuf::Trace::of(&bytes);
    let wall_at = |boot: u64| trace.wall_ns(boot);
    let mut said: Vec<CallFacts> = Vec::new();
    for slice in trace.slices() {
        let id = |name: &str| slice.pointers.get(name).copied().unwrap_or(0) & CORRELATION;
        let (pid, tid) = trace.threads[&slice.track];
        let (start, ns) = (wall_at(slice.start), slice.end - slice.start);
        assert_eq!(slice.texts["name"], HOSTILE);
        said.push((slice.name.clone(), pid, tid, start, ns, id("span_id"), id("parent_id")));
    }
    said.sort();
    assert_eq!(said, meant());
    assert_eq!(trace.moments().len(), 2, "text and an event");
    let names: HashMap<u64, String> = trace.thread_names.clone();
    assert!(names.values().any(|name| name == HOSTILE));
    assert_eq!(
        trace.counters,
        [(
            "live {bytes=18446744073709551615,stream=0xffff800012345678,delta=-3,name=".to_owned()
                + HOSTILE
                + ",0x10=0x10,grid=x=1 y=2,async=true}",
            -5
        )]
    );
}

fn frame(symbol: &str, line: u32) -> Frame {
    Frame {
        address: 0x7f00_0000_1000 + u64::from(line),
        symbol: Some(symbol.into()),
        offset: 4,
        module: Some("/usr/bin/train".into()),
        source: (line != 0).then(|| (HOSTILE.into(), line)),
        inlined: false,
    }
}

#[test]
fn perfetto_writes_a_stack_once() {
    let with = |start: u64, frames: Vec<Frame>| {
        let fields: Vec<(Arc<str>, Data)> = vec![("site".into(), Data::Stack(frames.into()))];
        Record { fields: fields.into_iter().collect(), ..call(77, "cuInit", (start, 1), None) }
    };
    let (step, main) = (frame("step", 7), frame("main", 0));
    let stacks =
        [vec![step.clone(), main.clone()], vec![frame("step", 9), main.clone()], vec![], vec![step, main]];
    let out = SharedBuffer::default();
    let mut exporter = Perfetto::new(out.clone(), &run()).unwrap();
    for (start, stack) in (100..).step_by(10).zip(stacks) {
        exporter.record(&with(start, stack)).unwrap();
    }
    let bytes = out.0.lock().unwrap();
    let said = |text: &[u8]| bytes.windows(text.len()).filter(|bytes| *bytes == text).count();
    assert_eq!((said(b"main"), said(b"step"), said(b"/usr/bin/train")), (1, 1, 1));
    let trace = protobuf::Trace::of(&bytes);
    let stacks: Vec<_> = trace.slices().into_iter().map(|slice| slice.stack).collect();
    let meant = |line| {
        vec![
            ("main".to_owned(), "/usr/bin/train".to_owned(), 0),
            ("step".to_owned(), HOSTILE.to_owned(), line),
        ]
    };
    assert_eq!(stacks, [meant(7), meant(9), vec![], meant(7)]);
}

/// Stacks that are not interned are written in place.
#[test]
fn perfetto_writes_more_stacks_than_have_numbers() {
    let out = SharedBuffer::default();
    let mut exporter = Perfetto::new(out.clone(), &run()).unwrap();
    let stacks = 65_536 + 2;
    for line in 1..=stacks {
        let site = Data::Stack(vec![frame("step", line)].into());
        let fields: Vec<(Arc<str>, Data)> = vec![("site".into(), site)];
        let start = 100 + 10 * u64::from(line);
        let record = Record { fields: fields.into_iter().collect(), ..call(77, "cuInit", (start, 1), None) };
        exporter.record(&record).unwrap();
    }
    let slices = protobuf::Trace::of(&out.0.lock().unwrap()).slices();
    let lines: Vec<u64> = slices.iter().map(|slice| slice.stack[0].2).collect();
    assert_eq!(lines, (1..=u64::from(stacks)).collect::<Vec<_>>());
}

#[test]
fn the_page_has_no_tag_of_a_hostile_name() {
    let mut page = report::recording::page::Page::default();
    let mut summary = report::recording::summary::Summary::default();
    for record in records() {
        page.add(&record);
        summary.add(&record);
    }
    let recording = Recording { run: run(), ended: RecordingEnd::Cut, unreadable: None };
    let html = page.html(HOSTILE, &recording, &summary);
    let columns = html.matches("<script type=\"application/octet-stream\" id=\"column-").count();
    assert!(columns > 10, "{columns}");
    assert_eq!(html.matches("</script>").count(), columns + 2, "those of the page itself");
    assert_eq!(html.matches("<script").count(), columns + 2, "those of the page itself");
    assert!(!html.contains("<!--") && !html.contains('\u{202e}') && !html.contains('\u{1b}'));
    let data = html.lines().find_map(|line| line.strip_prefix("<script>const DATA = ")).unwrap();
    let json: Value = serde_json::from_str(data.strip_suffix(";</script>").unwrap()).unwrap();
    assert_eq!(json["title"], HOSTILE);
    assert_eq!(json["spans"], 6);
    assert_eq!(json["errors"][0], serde_json::json!(["cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY", 1]));
    assert!(!html.contains("http:") && !html.contains("https:") || html.contains("www.w3.org"));
}
