//! `cudatrace record` and `cudatrace report`, on the simulated CUDA: what the program says it did is what the recording, the tables,
//! the Chrome trace and the page say.

mod common;

use common::{Running, can_trace, example};
use regex::Regex;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn cudatrace(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    command.args(args).output().expect("the binary under test can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Calls by function, as the program counted them itself.
fn counted(stdout: &str) -> HashMap<String, u64> {
    let line = Regex::new(r"(?m)^count (\w+) (\d+)$").unwrap();
    line.captures_iter(stdout).map(|found| (found[1].to_owned(), found[2].parse().unwrap())).collect()
}

/// The recording of a program, and what the program said.
fn recorded(folder: &Path, more: &[&str], program: &[&str]) -> (PathBuf, String, String) {
    let mut args = vec!["record", "--out", folder.to_str().unwrap()];
    args.extend(more);
    args.push("--");
    args.extend(program);
    let output = cudatrace(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("one recording, found {files:?}") };
    (file.clone(), text(&output.stdout), text(&output.stderr))
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_call_is_recorded_once_and_lies_in_its_parent() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = [&*example("workload_runtime12"), "--threads", "3"];
    // The program loads it late; named, it is attached before, however slow this machine is.
    let driver = format!("libcuda={}", example("libcuda.so.1"));
    let (file, stdout, stderr) = recorded(folder.path(), &["--lib", &driver], &program);
    let lines = lines(&file);
    assert_eq!((&lines[0]["type"], &lines.last().unwrap()["type"]), (&"run".into(), &"end".into()));
    let spans: Vec<&Value> = lines.iter().filter(|line| line["type"] == "span").collect();
    let mut found: HashMap<String, u64> = HashMap::new();
    spans.iter().for_each(|span| *found.entry(span["api"].as_str().unwrap().to_owned()).or_default() += 1);
    // What the compiler calls of the runtime is none of its API.
    for (function, count) in counted(&stdout).into_iter().filter(|(function, _)| !function.starts_with("__"))
    {
        assert_eq!(found.get(&function), Some(&count), "{function}");
    }
    let by_id: HashMap<&str, &Value> =
        spans.iter().map(|span| (span["id"].as_str().unwrap(), *span)).collect();
    assert_eq!(by_id.len(), spans.len(), "ids are unique");
    let (mut inner, ns) = (0, |span: &Value, key: &str| span[key].as_u64().unwrap());
    for span in spans.iter().filter(|span| span["parent"] != "0x0") {
        let parent = by_id[span["parent"].as_str().unwrap()];
        assert_eq!(span["tid"], parent["tid"]);
        assert!(ns(span, "ts") >= ns(parent, "ts"));
        assert!(ns(span, "ts") + ns(span, "dur") <= ns(parent, "ts") + ns(parent, "dur"));
        inner += 1;
    }
    assert!(inner > 100, "the driver's calls lie in the runtime's, {inner} do");
    let launches =
        spans.iter().filter(|span| span["api"] == "cuLaunchKernel" && span["status"] == "ok").count();
    assert!(stderr.contains(&format!("launches      {launches} of 5 kernels")), "{stderr}");
}

/// The runtime finds the driver by its own path, which nobody could know before.
#[test]
fn a_call_says_how_long_it_waited_for_the_tracer() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, _, stderr) = recorded(folder.path(), &[], &[&example("workload_runtime12")]);
    if !stderr.contains("its call waited") {
        eprintln!("skipped: libcuda was found before the program loaded it");
        return;
    }
    let lines = lines(&file);
    let waited = |line: &Value| line["args"]["cudatrace_wait_ns"].as_u64();
    let calls: Vec<&Value> = lines.iter().filter(|line| waited(line).is_some()).collect();
    let [call] = &calls[..] else { panic!("one call, found {calls:?}") };
    let (ns, waited) = (call["dur"].as_u64().unwrap(), waited(call).unwrap());
    assert!(call["func"].as_str().unwrap().starts_with("cuda") && 0 < waited && waited < ns, "{call}");
    let report = text(&cudatrace(&["report", file.to_str().unwrap()]).stdout);
    let slowest = report.split("SLOWEST CALLS").nth(1).unwrap();
    let row = slowest.lines().find(|line| line.contains("cudatrace_wait_ns")).expect("it is named");
    assert!(!row.contains(&report::summary::time(ns)), "its time is its own: {row}");
}

#[test]
fn a_recording_is_reported_as_tables_chrome_trace_and_page() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, ..) = recorded(folder.path(), &[], &[&example("workload_driver")]);
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name).to_str().unwrap().to_owned();
    let (chrome, page) = (path("t.json"), path("t.html"));
    let args = ["report", file.to_str().unwrap(), "--chrome", &chrome, "--html", &page];
    let report = cudatrace(&args);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let said = text(&report.stdout);
    for part in ["API calls", "FUNCTION", "KERNEL", "SLOWEST CALLS", "TIMELINE", "CUDA_ERROR_OUT_OF_MEMORY"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let spans = lines(&file).iter().filter(|line| line["type"] == "span").count();
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&chrome).unwrap()).unwrap();
    let rows = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(rows, spans);
    drive(&page, spans);
}

/// Clicks through the page in a browser, if there is one.
fn drive(page: &str, spans: usize) {
    let Some(log) = browse(page, include_str!("record/page.js")) else { return };
    assert_eq!(log.get("error"), None);
    assert_eq!(log["spans"], spans.to_string());
    for step in [
        "stepped",
        "zoomed",
        "moved",
        "all",
        "focused",
        "searched",
        "followed",
        "cleared",
        "clicked",
        "told apart",
        "sorted",
        "readable",
        "comparable",
        "helped",
        "led",
        "nested",
    ] {
        assert_eq!(log[step], "true", "{step}");
    }
    assert_eq!(log["views"], "functions kernels memory errors keys");
}

/// More threads than any canvas is tall, each with a call.
#[test]
fn the_page_draws_the_rows_that_are_seen_of_thousands() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (recording, page) = (path("t.jsonl"), path("t.html"));
    let mut lines = String::from("{\"type\":\"run\",\"format\":1,\"boot_ns\":0,\"wall_ns\":\"0\"}\n");
    for tid in 1..=5000 {
        lines += &format!(
            "{{\"type\":\"span\",\"ts\":1,\"dur\":100,\"pid\":1,\"tid\":{tid},\"name\":\"cuInit\",\"func\":\"cuInit\",\"api\":\"cuInit\",\"id\":\"{tid:#x}\",\"status\":\"ok\"}}\n"
        );
    }
    std::fs::write(&recording, lines).unwrap();
    let report = cudatrace(&["report", &recording, "--html", &page]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let Some(log) = browse(&page, include_str!("record/threads.js")) else { return };
    assert_eq!(log.get("error"), None);
    assert_eq!((log["drawn"].as_str(), log["last"].as_str()), ("true", "1/5000"));
}

/// What steps in the page wrote down, if there is a browser.
fn browse(page: &str, steps: &str) -> Option<HashMap<String, String>> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let is_there =
        |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let Some(browser) = browsers.iter().find(is_there) else {
        eprintln!("skipped: no Chromium to open the page in");
        return None;
    };
    let html = std::fs::read_to_string(page)
        .unwrap()
        .replace("</body>", &format!("<script>{steps}</script></body>"));
    std::fs::write(page, html).unwrap();
    let options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"];
    let output = Command::new(browser).args(options).arg(format!("file://{page}")).output().unwrap();
    let dom = text(&output.stdout);
    let log = dom.split_once("<pre id=\"log\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (log, _) = log.unwrap_or_else(|| panic!("the page did not run: {}", text(&output.stderr)));
    let steps = log.lines().filter_map(|line| line.split_once(": "));
    Some(steps.map(|(step, how)| (step.to_owned(), how.to_owned())).collect())
}

#[test]
fn the_kernel_side_is_recorded_by_name() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The numbers of two ioctls of NVIDIA's driver; a file that is no device refuses them, and the kernel was asked all the same.
    let ask = "import fcntl\nfor cmd in (0xc020462a, 0xc020462a, 0xc030462b):\n  try: fcntl.ioctl(open('/dev/null'), cmd)\n  except OSError: pass";
    let (file, _, stderr) = recorded(folder.path(), &["--kernel"], &["python3", "-c", ask]);
    let lines = lines(&file);
    let count =
        |name: &str| lines.iter().filter(|line| line["type"] == "span" && line["name"] == name).count();
    assert_eq!((count("NV_ESC_RM_CONTROL"), count("NV_ESC_RM_ALLOC")), (2, 1));
    assert!(stderr.contains("ioctls        3"), "{stderr}");
}

/// A file that is gone with it.
struct Made(&'static str);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

#[test]
fn what_a_process_opened_before_is_known_by_its_name() {
    if !can_trace() {
        return;
    }
    let device = Made("/dev/nvidia-uvm-of-cudatraces-test");
    std::fs::write(device.0, "").expect("root may write there");
    // No device; the kernel is asked all the same.
    let ask = "
import fcntl, sys, time
file = open(sys.argv[1])
print('opened', flush=True)
for _ in range(60000):
    try: fcntl.ioctl(file, 0x30000001)
    except OSError: pass
    time.sleep(0.001)";
    let mut asking = Running::start(Command::new("python3").args(["-c", ask, device.0]));
    asking.wait_for_line("opened");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    let mut record = common::cudatrace();
    record.args(["record", "--kernel", "-p", &asking.pid().to_string()]);
    let _record = Running::start(record.args(["--export", &format!("jsonl={}", file.display())]));
    common::wait_for("an ioctl by its name", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("\"name\":\"UVM_INITIALIZE\""))
    });
    for whose in [&["-p", &asking.pid().to_string()][..], &[]] {
        let mut ioctls = common::cudatrace();
        Running::start(ioctls.args(["ioctls", "--interval=1"]).args(whose)).wait_for_line("UVM_INITIALIZE");
    }
}

#[test]
fn several_exports_of_one_run_agree_and_files_rotate() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (jsonl, chrome) = (format!("jsonl={}", path("t.jsonl")), format!("chrome={}", path("t.json.gz")));
    let script = "uretprobe:libcuda:cu* { span() }";
    let args = ["-q", "-e", script, "--export", &jsonl, "--export", &chrome, "--rotate", "64KiB", "--"];
    let program = [&*example("workload_driver"), "--threads", "4"];
    let output = cudatrace(&[&args[..], &program[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let calls: u64 = counted(&text(&output.stdout)).values().sum();
    let name = |number: u32| if number == 0 { "t.jsonl".into() } else { format!("t.{number}.jsonl") };
    let files = (0..).map(|number| path(&name(number))).take_while(|file| Path::new(file).exists());
    let parts: Vec<Vec<Value>> = files.map(|file| lines(Path::new(&file))).collect();
    assert!(parts.len() > 1, "64 KiB are not enough for one file");
    assert!(parts.iter().all(|part| part[0]["type"] == "run" && part.last().unwrap()["type"] == "end"));
    let spans = parts.iter().flatten().filter(|line| line["type"] == "span").count() as u64;
    assert_eq!(spans, calls);
}

#[test]
fn a_full_disk_ends_the_export_and_not_the_trace() {
    if !can_trace() {
        return;
    }
    let script = "uretprobe:libcuda:cu* { @ = count(); span() }";
    // What is lost is said however quiet we are.
    let program = example("workload_driver");
    let output = cudatrace(&["-q", "-e", script, "--export", "jsonl=/dev/full", "--", &program]);
    assert!(output.status.success());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let calls: u64 = counted(&stdout).values().sum();
    assert!(stdout.contains(&format!("@: {calls}")), "{stdout}");
    assert!(stderr.contains("export jsonl=/dev/full ended: No space left on device"), "{stderr}");
}

#[test]
fn a_recording_goes_through_a_pipe_and_is_no_file_of_o() {
    if !can_trace() {
        return;
    }
    let program = example("workload_driver");
    let piped =
        cudatrace(&["record", "-q", "--export", "jsonl=-", "--", "sh", "-c", &format!("{program} >&2")]);
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    std::fs::write(&file, &piped.stdout).unwrap();
    assert_eq!(lines(&file).last().unwrap()["type"], "end");
    let made = cudatrace(&["report", file.to_str().unwrap(), "--chrome", "-"]);
    let rows =
        serde_json::from_slice::<Value>(&made.stdout).unwrap()["traceEvents"].as_array().unwrap().len();
    assert!(rows > 100, "{rows}");
    let refused = cudatrace(&["record", "-o", file.to_str().unwrap(), "--", &program]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--export jsonl="));
    assert_eq!(std::fs::read(&file).unwrap(), piped.stdout, "it is as it was");
}

#[test]
fn a_report_moves_no_cursor_whatever_its_names_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    let evil = "\\u001b[2J\\n\\u202e";
    let lines = format!(
        "{{\"type\":\"run\",\"format\":1,\"boot_ns\":0,\"wall_ns\":\"0\",\"host\":\"{evil}\",\"command\":[\"{evil}\"]}}\n\
         {{\"type\":\"span\",\"ts\":1,\"dur\":9,\"pid\":1,\"tid\":1,\"comm\":\"{evil}\",\"name\":\"{evil}\",\"id\":\"0x1\",\"status\":\"error\",\
         \"result\":{{\"enum\":\"e\",\"name\":\"{evil}\",\"value\":1}}}}\n\
         {{\"type\":\"trouble\",\"ts\":1,\"count\":1,\"text\":\"{evil}\"}}\n"
    );
    std::fs::write(&file, lines).unwrap();
    let report = cudatrace(&["report", file.to_str().unwrap()]);
    let said = text(&report.stdout);
    assert!(said.contains("SLOWEST CALLS") && said.contains("\\x1b[2J"), "{said}");
    let slowest = said.split("SLOWEST CALLS\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    assert_eq!(slowest.lines().count(), 2, "a head and a row: {slowest}");
    let moves = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!said.contains(moves), "{said:?}");
}
