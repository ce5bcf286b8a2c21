//! Several exports of a run: they agree on each call, count the records in a file when the disk is full, and flush their buffers on
//! a signal.

mod common;
#[path = "../crates/report/tests/protobuf/mod.rs"]
mod protobuf;

use common::{Running, can_trace, cudatrace, example, stderr, wait_for};
use regex::Regex;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A call or an instant in any format: name, process, thread, wall-clock ns, duration in ns, id, id of the
/// enclosing call. Chrome's ids are truncated, and instants have none.
type Call = (String, u64, u64, i128, u64, u64, u64);

const CORRELATION: u64 = (1 << 53) - 1;

/// Makes calls of CUDA, and system calls inside and outside of them.
const PROGRAM: &str = "
import ctypes, fcntl, sys
runtime, null = ctypes.CDLL(sys.argv[1]), open('/dev/null')
def ask():
    try: fcntl.ioctl(null, 0xc020462a)
    except OSError: pass
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(_): ask()
runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4096)
runtime.cudaLaunchHostFunc(None, host, None)
runtime.cudaDeviceSynchronize()
ask()
";

const SCRIPT: &str = r#"
tracepoint:syscalls:sys_enter_ioctl / args.cmd == 0xc020462a / { @at[tid] = nsecs; event("asks") }
tracepoint:syscalls:sys_exit_ioctl / @at[tid] / { span("ioctl", start = @at[tid]); delete(@at, tid) }
uprobe:libcuda:cuMemAlloc, uprobe:libcuda:cuCtxSynchronize { event("begins", of = func) }
uretprobe:libcuda:cuMemAlloc, uretprobe:libcuda:cuLaunchHostFunc { span() }
uretprobe:libcudart:cuda* { span() }
"#;

#[test]
fn a_call_is_the_same_in_every_export() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let exports = [
        ("jsonl", "t.jsonl"),
        ("arrow", "t.arrows"),
        ("chrome", "t.json"),
        ("perfetto", "t.pftrace"),
        ("otlp", "otlp.json"),
        ("folded", "t.folded"),
    ];
    let mut command = cudatrace();
    command.args(["-e", SCRIPT]).env_remove("TRACEPARENT");
    for (kind, name) in exports {
        command.args(["--export", &format!("{kind}={}", path(name).display())]);
    }
    let output =
        command.args(["--", "python3", "-c", PROGRAM, &example("libcudart.so.12")]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));

    let said = of_jsonl(&path("t.jsonl"));
    assert_eq!(as_lines(&path("t.arrows")), std::fs::read_to_string(path("t.jsonl")).unwrap());
    assert_eq!(of_chrome(&path("t.json")), said);
    assert_eq!(of_perfetto(&path("t.pftrace")), said);
    assert_eq!(of_otlp(&path("otlp.json")), said);
    check_parents(&said);
    let outermost: u64 = said.iter().filter(|said| said.6 == 0).map(|said| said.4).sum();
    assert_eq!(of_folded(&path("t.folded")), outermost, "each ns of a call belongs to one line");
}

#[test]
fn a_stack_is_the_same_in_a_recording_and_in_perfetto() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut command = cudatrace();
    command.args(["-e", "uretprobe:libcuda:cuMem* { span(site = ustack) }"]);
    command.args(["--export", &format!("jsonl={}", path("t.jsonl").display())]);
    command.args(["--export", &format!("perfetto={}", path("t.pftrace").display())]);
    let output = command.args(["--", &example("workload_driver"), "--threads", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let spans = lines(&path("t.jsonl")).into_iter().filter(|line| line["type"] == "span");
    let recorded: HashMap<u64, Vec<String>> = spans
        .map(|span| {
            let id = u64::from_str_radix(&span["id"].as_str().unwrap()[2..], 16).unwrap();
            let frames = span["args"]["site"].as_array().unwrap().iter().rev();
            let name = |frame: &Value| match (frame["symbol"].as_str(), frame["module"].as_str()) {
                (Some(symbol), _) => symbol.to_owned(),
                (None, Some(module)) => format!("[{}]", module.rsplit('/').next().unwrap()),
                (None, None) => frame["pc"].as_str().unwrap().to_owned(),
            };
            (id, frames.map(name).collect())
        })
        .collect();
    let slices = protobuf::Trace::of(&std::fs::read(path("t.pftrace")).unwrap()).slices();
    let shown = slices.into_iter().map(|slice| {
        (slice.pointers["span_id"], slice.stack.into_iter().map(|(function, ..)| function).collect())
    });
    assert_eq!(shown.collect::<HashMap<_, Vec<String>>>(), recorded);
    assert!(recorded.values().any(|stack| stack.iter().any(|function| function == "main")), "{recorded:?}");
}

/// Is busy outside of CUDA, and in a CUDA call.
const BUSY: &str = "
import ctypes, sys, time
runtime = ctypes.CDLL(sys.argv[1])
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(_): spin(0.3)
spin(0.2)
runtime.cudaLaunchHostFunc(None, host, None)
";

#[test]
fn the_parent_of_a_sample_is_the_interrupted_call() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    let script = "uretprobe:libcuda:cuLaunchHostFunc { span() } profile:hz:199 { event(\"sampled\", user = usermode) }";
    let export = format!("jsonl={}", file.display());
    let program = ["python3", "-c", BUSY, &example("libcudart.so.12")];
    let output = cudatrace().args(["-e", script, "--export", &export, "--"]).args(program).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (spans, samples): (Vec<Call>, Vec<Call>) = of_jsonl(&file).into_iter().partition(|said| said.5 != 0);
    let [call] = &spans[..] else { panic!("one call, found {spans:?}") };
    let (inside, outside): (Vec<&Call>, Vec<&Call>) = samples.iter().partition(|sample| sample.6 != 0);
    let lies_in = |sample: &Call| {
        (sample.2, sample.6) == (call.2, call.5) && (call.3..call.3 + i128::from(call.4)).contains(&sample.3)
    };
    assert!(inside.len() > 5 && inside.iter().all(|sample| lies_in(sample)), "{call:?} {inside:?}");
    assert!(outside.iter().any(|sample| sample.3 < call.3), "{outside:?}");
}

/// Asserts the name of the enclosing call, by name.
fn check_parents(said: &[Call]) {
    let calls: HashMap<u64, &Call> =
        said.iter().filter(|said| said.5 != 0).map(|said| (said.5, said)).collect();
    let mut found: Vec<(&str, &str)> = Vec::new();
    for one in said {
        let parent = calls.get(&one.6);
        assert_eq!(parent.is_some(), one.6 != 0, "{one:?} lies in a call that is not there");
        if let Some(parent) = parent {
            assert_eq!((one.1, one.2), (parent.1, parent.2));
            assert!(
                parent.3 <= one.3 && one.3 + i128::from(one.4) <= parent.3 + i128::from(parent.4),
                "{one:?}"
            );
        }
        found.push((&one.0, parent.map_or("", |parent| &parent.0)));
    }
    found.sort();
    let expected = [
        ("asks", ""),
        ("asks", "cuLaunchHostFunc"),
        ("begins", "cuMemAlloc_v2"),
        // The enclosing call is not traced as a span.
        ("begins", "cudaDeviceSynchronize"),
        ("cuLaunchHostFunc", "cudaLaunchHostFunc"),
        ("cuMemAlloc_v2", "cudaMalloc"),
        ("cudaDeviceSynchronize", ""),
        ("cudaLaunchHostFunc", ""),
        ("cudaMalloc", ""),
        ("ioctl", ""),
        ("ioctl", "cuLaunchHostFunc"),
    ];
    assert_eq!(found, expected);
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted(mut said: Vec<Call>) -> Vec<Call> {
    said.sort();
    said
}

fn hex(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap())
}

/// A recording as JSON lines.
fn as_lines(path: &Path) -> String {
    let output = cudatrace().arg("report").arg(path).args(["--jsonl", "-"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    common::stdout(&output)
}

fn of_jsonl(path: &Path) -> Vec<Call> {
    let lines = lines(path);
    let wall: i128 = lines[0]["wall_ns"].as_str().unwrap().parse().unwrap();
    let wall_at_boot = wall - i128::from(lines[0]["boot_ns"].as_u64().unwrap());
    let said = |line: &Value| {
        let number = |key: &str| line[key].as_u64().unwrap_or(0);
        let id = |key: &str| if line[key].is_null() { 0 } else { hex(&line[key]) & CORRELATION };
        let name = line["name"].as_str().unwrap().to_owned();
        let time = wall_at_boot + i128::from(number("ts"));
        (name, number("pid"), number("tid"), time, number("dur"), id("id"), id("parent"))
    };
    let is_said = |line: &&Value| line["type"] == "span" || line["type"] == "event";
    sorted(lines.iter().filter(is_said).map(said).collect())
}

/// Microseconds in a text, converted to ns without a double.
fn micros(row: &str, key: &str) -> i128 {
    let Some(at) = row.find(key) else { return 0 };
    let number: String =
        row[at + key.len()..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    number.replace('.', "").parse().unwrap()
}

fn of_chrome(path: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(path).unwrap();
    let base: Value = serde_json::from_str::<Value>(&text).unwrap()["baseTimeNanoseconds"].clone();
    let rows = text.lines().filter_map(|line| {
        let row: Value = serde_json::from_str(line.trim_end_matches(',')).ok()?;
        let moment = row["ph"] == "i" && row["name"] != "Record Window End";
        (row["ph"] == "X" || moment).then(|| {
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            (
                row["name"].as_str().unwrap().to_owned(),
                number(&row["pid"]),
                number(&row["tid"]),
                i128::from(base.as_i64().unwrap()) + micros(line, "\"ts\": "),
                micros(line, "\"dur\": ") as u64,
                number(&row["args"]["correlation"]),
                number(&row["args"]["parent_correlation"]),
            )
        })
    });
    sorted(rows.collect())
}

fn of_perfetto(path: &Path) -> Vec<Call> {
    let trace = protobuf::Trace::of(&std::fs::read(path).unwrap());
    let said = |slice: &protobuf::Slice| {
        let id = |name: &str| slice.pointers.get(name).copied().unwrap_or(0) & CORRELATION;
        let (pid, tid) = trace.threads[&slice.track];
        let name = slice.name.clone();
        (name, pid, tid, trace.wall_ns(slice.start), slice.end - slice.start, id("span_id"), id("parent_id"))
    };
    sorted(trace.slices().iter().chain(&trace.moments()).map(said).collect())
}

fn of_otlp(path: &Path) -> Vec<Call> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let attribute = |of: &Value, key: &str| -> u64 {
        let all = list(of, "attributes");
        let value = &all.iter().find(|one| one["key"] == key).unwrap()["value"]["intValue"];
        value.as_str().unwrap().parse().unwrap()
    };
    let (mut said, mut roots) = (Vec::new(), Vec::new());
    for of in lines(path).iter().flat_map(|line| list(line, "resourceSpans")) {
        for span in list(&of, "scopeSpans").iter().flat_map(|scope| list(scope, "spans")) {
            let ns = |key: &str| span[key].as_str().unwrap().parse::<i128>().unwrap();
            let (start, end) = (ns("startTimeUnixNano"), ns("endTimeUnixNano"));
            let id = |key: &str| match span[key].as_str() {
                Some("") | None => 0,
                Some(id) => u64::from_str_radix(id, 16).unwrap() & CORRELATION,
            };
            // The root span of a trace is not a call.
            if list(&span, "attributes").iter().any(|one| one["key"] == "cudatrace.spans") {
                roots.push(id("spanId"));
                continue;
            }
            let (pid, tid) = (attribute(&of["resource"], "process.pid"), attribute(&span, "thread.id"));
            for event in list(&span, "events") {
                let time = event["timeUnixNano"].as_str().unwrap().parse().unwrap();
                said.push((event["name"].as_str().unwrap().to_owned(), pid, tid, time, 0, 0, id("spanId")));
            }
            said.push((
                span["name"].as_str().unwrap().to_owned(),
                pid,
                tid,
                start,
                (end - start) as u64,
                if start == end { 0 } else { id("spanId") },
                id("parentSpanId"),
            ));
        }
    }
    let below_root = |said: &mut Call| said.6 = if roots.contains(&said.6) { 0 } else { said.6 };
    said.iter_mut().for_each(below_root);
    sorted(said)
}

/// Sum of all ns.
fn of_folded(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A disk with a limited size in KiB, until it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mounted(kib: u32) -> SmallDisk {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "small"])
            .arg(folder.path())
            .status();
        assert!(mount.unwrap().success(), "root can mount a tmpfs");
        SmallDisk(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Traces a program with this number of calls on each of two threads, each a span; returns the messages.
fn hammered(calls: u32, exports: &[String], more: &[&str]) -> String {
    let script = format!(
        "config = {{ perf_rb_pages = 16384 }} uretprobe:{}:hammer_push {{ span() }}",
        example("libhammer.so")
    );
    let mut command = cudatrace();
    command.args(["-e", &script]).args(more);
    exports.iter().for_each(|export| _ = command.args(["--export", export]));
    let calls = calls.to_string();
    let program = [&example("hammer"), "--function", "push", "--threads", "2", "--calls", &calls];
    let output = command.arg("--").args(program).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn only_records_that_are_on_a_full_disk_are_counted() {
    if !can_trace() {
        return;
    }
    let count = Regex::new(r"ended: No space left on device[^;]*; (\d+) of (\d+) records are in it").unwrap();
    for (kind, mark, name, calls, more) in [
        ("arrow", "{\"type\":\"span\"", "t.arrows", 200_000, &[][..]),
        ("jsonl", "{\"type\":\"span\"", "t.json", 5000, &[]),
        ("chrome", "{\"ph\": \"X\"", "t.json", 5000, &[]),
        ("jsonl", "{\"type\":\"span\"", "t.json", 5000, &["--rotate", "64KiB"]),
        ("jsonl", "{\"type\":\"span\"", "t.json.gz", 40_000, &[]),
        ("chrome", "{\"ph\": \"X\"", "t.json.gz", 40_000, &[]),
    ] {
        let disk = SmallDisk::mounted(300);
        let export = format!("{kind}={}", disk.0.path().join(name).display());
        let said = hammered(calls, &[export], more);
        let count = count.captures(&said).unwrap_or_else(|| panic!("{kind} {more:?}: {said}"));
        let [written, all] = [1, 2].map(|at| count[at].parse::<usize>().unwrap());
        let whole = |path: &PathBuf| {
            let text = match name.ends_with(".gz") {
                _ if kind == "arrow" => as_lines(path),
                // The readable part of a truncated file.
                true => common::stdout(&Command::new("zcat").arg(path).output().unwrap()),
                false => std::fs::read_to_string(path).unwrap(),
            };
            // A row of chrome ends where the next one begins.
            text.split_inclusive('\n').filter(|line| line.starts_with(mark) && line.ends_with('\n')).count()
        };
        let files = disk.files();
        let found: usize = files.iter().map(whole).sum();
        let unclear = if kind == "chrome" { 1 } else { 0 };
        assert!((found..=found + unclear).contains(&written), "{kind} {more:?}: {found} and not {written}");
        assert!(all >= 10_000 && found > 100, "{said}");
        assert_eq!(files.len() > 1, !more.is_empty());
    }
}

/// The export is read only after the program has made its calls and the terminal has all output: records that do
/// not fit are counted, but the maps at the end wait for room.
#[test]
fn a_slow_export_delays_nothing_and_has_the_maps_of_the_end() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("t.jsonl");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Opening it for reading and writing does not block, and the pipe ends when this descriptor is closed.
    let mut pipe = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let script = format!(
        "config = {{ perf_rb_pages = 16384 }} uretprobe:{}:hammer_push {{ @calls = count(); span() }}",
        example("libhammer.so")
    );
    let mut command = cudatrace();
    command.args(["-e", &script, "--export", &format!("jsonl={}", fifo.display()), "--"]);
    command.args([&example("hammer"), "--function", "push", "--threads", "1", "--calls", "200000"]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("@calls: 200000");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut part = vec![0; 1 << 16];
        while !bytes.ends_with(b"}\n")
            || !bytes.rsplit(|b| *b == b'\n').nth(1).unwrap().starts_with(b"{\"type\":\"end\"")
        {
            let read = std::io::Read::read(&mut pipe, &mut part).unwrap();
            bytes.extend_from_slice(&part[..read]);
        }
        String::from_utf8(bytes).unwrap()
    });
    let said = trace.lines().join("\n");
    let text = reader.join().unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let dropped = end["dropped"].as_u64().unwrap();
    let spans = text.matches("\"type\":\"span\"").count() as u64;
    assert_eq!(spans + dropped, 200_000, "{said}");
    assert!(dropped > 0 && said.contains(&format!("{dropped} of 200001 records were dropped")), "{said}");
    let map = text.lines().find(|line| line.starts_with("{\"type\":\"map\"")).expect("the map of the end");
    assert!(map.contains("200000"), "{map}");
}

#[test]
fn a_signal_brings_out_what_is_buffered() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    // A hundred spans per second do not fill a buffer for seconds, and have no pause in which it would be flushed.
    let program = "
import ctypes, sys, time
driver = ctypes.CDLL(sys.argv[1])
for at in range(6000):
    driver.cuInit(0)
    if at % 20 == 0: print('made', at, 'calls', flush=True)
    time.sleep(0.01)";
    let mut command = cudatrace();
    command.args([
        "-e",
        "uretprobe:libcuda:cuInit { span() }",
        "--export",
        &format!("jsonl={}", file.display()),
    ]);
    command.args(["--", "python3", "-c", program, &example("libcuda.so.1")]);
    let mut trace = Running::start(&mut command);
    let spans = || std::fs::read_to_string(&file).unwrap().matches("\"type\":\"span\"").count();
    for (signal, calls) in [(libc::SIGUSR1, 20), (libc::SIGHUP, 100)] {
        trace.wait_for_line(&format!("made {calls} calls"));
        let (before, begun) = (spans(), Instant::now());
        trace.signal(signal);
        wait_for("spans in the file", || spans() > before);
        assert!(begun.elapsed() < Duration::from_secs(4), "signal {signal}: {:?}", begun.elapsed());
        assert!(trace.runs());
    }
}

#[test]
fn every_export_holds_fifty_thousand_spans() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let kinds = ["jsonl", "arrow", "chrome", "perfetto", "otlp", "folded"];
    let exports = kinds.map(|kind| format!("{kind}={}", path(&format!("{kind}.json")).display()));
    let said = hammered(25_000, &exports, &[]);
    assert!(!said.contains("lost") && !said.contains("dropped"), "{said}");
    let text = |kind: &str| std::fs::read_to_string(path(&format!("{kind}.json"))).unwrap();
    let expected = 50_000;
    assert_eq!(text("jsonl").matches("\"type\":\"span\"").count(), expected);
    assert_eq!(as_lines(&path("arrow.json")), text("jsonl"));
    let bytes = std::fs::metadata(path("arrow.json")).unwrap().len();
    assert!(bytes < 12 * expected as u64, "{bytes} bytes of {expected} spans");
    assert_eq!(text("chrome").matches("{\"ph\": \"X\"").count(), expected);
    assert_eq!(text("otlp").matches("\"thread.id\"").count(), expected);
    let perfetto = protobuf::Trace::of(&std::fs::read(path("perfetto.json")).unwrap());
    assert_eq!(perfetto.slices().len(), expected);
    assert_eq!(text("folded").lines().count(), 1, "one thread is named as the other");
}

/// Waits for the beginning of another write, and kills the tracer in the middle of it.
#[test]
fn a_trace_of_a_tracer_that_is_killed_while_it_writes_can_be_read() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let script = format!("uretprobe:{}:hammer_push {{ span() }}", example("libhammer.so"));
    let calls = ["--function", "push", "--threads", "1", "--calls", "20000000"];
    for run in 0..10 {
        let path = folder.path().join(format!("{run}.json"));
        let mut command = cudatrace();
        command.args(["--in-process", "-e", &script, "--export", &format!("chrome={}", path.display())]);
        command.arg("--").arg(example("hammer")).args(calls);
        let mut trace = Running::start(&mut command);
        let size = || std::fs::metadata(&path).map_or(0, |file| file.len());
        for _ in 0..=run {
            let (before, begun) = (size(), Instant::now());
            while size() == before && begun.elapsed() < Duration::from_secs(30) {
                std::hint::spin_loop();
            }
        }
        trace.signal(libc::SIGKILL);
        trace.ended();
        let text = std::fs::read_to_string(&path).expect("there");
        if let Err(error) = serde_json::from_str::<Value>(&text) {
            panic!("run {run}, {} bytes: {error}", text.len());
        }
    }
}

/// Only the contents of the files after a second count.
#[test]
fn files_of_a_tracer_that_is_killed_can_be_read() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let [chrome, recording] = ["t.json", "t.jsonl"].map(|name| folder.path().join(name));
    let mut command = cudatrace();
    command.args(["-e", "uretprobe:libcuda:cuInit { span(); printf(\"said\\n\") }"]);
    command.args(["--export", &format!("chrome={}", chrome.display())]);
    command.args(["--export", &format!("jsonl={}", recording.display()), "--", "python3", "-c"]);
    command.args([
        "import ctypes, os, sys, time\ndriver, tracer = ctypes.CDLL(sys.argv[1]), os.getppid()\n\
         while os.getppid() == tracer: driver.cuInit(0); time.sleep(0.01)",
        &example("libcuda.so.1"),
    ]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("said");
    let has_calls = |path: &Path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("cuInit"));
    // Calls never pause as long as an idle export waits.
    wait_for("calls in both files", || has_calls(&chrome) && has_calls(&recording));
    // The text of a call may come with the next flush.
    let has_text =
        || std::fs::read_to_string(&recording).is_ok_and(|text| text.contains("\"type\":\"printf\""));
    wait_for("a text in the recording", has_text);
    trace.signal(libc::SIGKILL);
    trace.ended();
    let whole: Value =
        serde_json::from_str(&std::fs::read_to_string(&chrome).expect("there")).expect("whole JSON");
    assert!(whole["traceEvents"].as_array().expect("rows").len() > 5);
    let printed = std::fs::read_to_string(&recording).expect("there");
    let printed = printed.lines().find(|line| line.contains("\"type\":\"printf\"")).expect("a text");
    assert!(!printed.contains("\"comm\":\"\"") && printed.contains("\"program\":\"python"), "{printed}");
}
