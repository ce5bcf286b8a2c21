//! `cudatrace record` and `cudatrace report`, on the simulated CUDA: the recording, the tables, the Chrome trace and the page
//! agree with the program's own counts.

mod common;

use common::{Running, can_trace, example};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn cudatrace(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    command.args(args).output().expect("the binary under test can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Number of calls by function, as the program counted them.
fn counted(stdout: &str) -> HashMap<String, u64> {
    let line = Regex::new(r"(?m)^count (\w+) (\d+)$").unwrap();
    line.captures_iter(stdout).map(|found| (found[1].to_owned(), found[2].parse().unwrap())).collect()
}

/// Records a program; returns the recording, and the output of the program.
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

/// The lines of a recording, of whatever form.
fn lines(file: &Path) -> Vec<Value> {
    let text = match file.extension().is_some_and(|ending| ending == "arrows") {
        true => text(&cudatrace(&["report", file.to_str().unwrap(), "--jsonl", "-"]).stdout),
        false => std::fs::read_to_string(file).unwrap(),
    };
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_call_is_recorded_once_inside_its_parent() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = [&*example("workload_runtime12"), "--threads", "3"];
    // The program loads the driver late; with its name it is attached before, on a machine of any speed.
    let driver = format!("libcuda={}", example("libcuda.so.1"));
    let (file, stdout, stderr) = recorded(folder.path(), &["--all", "--lib", &driver], &program);
    let lines = lines(&file);
    assert_eq!((&lines[0]["type"], &lines.last().unwrap()["type"]), (&"run".into(), &"end".into()));
    let spans: Vec<&Value> = lines.iter().filter(|line| line["type"] == "span").collect();
    let mut found: HashMap<String, u64> = HashMap::new();
    spans.iter().for_each(|span| *found.entry(span["api"].as_str().unwrap().to_owned()).or_default() += 1);
    // Calls that the compiler generates are not part of the runtime's API.
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

/// The runtime finds the driver by its own path, which is unknown before.
#[test]
fn a_call_has_its_wait_for_the_tracer() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, _, stderr) = recorded(folder.path(), &[], &[&example("workload_runtime12")]);
    if !stderr.contains("paused the program") {
        eprintln!("skipped: libcuda was found before the program loaded it");
        return;
    }
    let lines = lines(&file);
    let calls: Vec<&Value> = lines.iter().filter(|line| waited(line).is_some()).collect();
    let [call] = &calls[..] else { panic!("one call, found {calls:?}") };
    let (ns, waited) = (call["dur"].as_u64().unwrap(), waited(call).unwrap());
    assert!(call["func"].as_str().unwrap().starts_with("cuda") && 0 < waited && 0 < ns, "{call}");
    // The delay is before the call; nested calls come after it.
    let inner = lines.iter().filter(|line| line["parent"] == call["id"]);
    let starts: Vec<u64> = inner.map(|line| line["ts"].as_u64().unwrap()).collect();
    assert!(!starts.is_empty() && starts.iter().all(|ts| *ts >= call["ts"].as_u64().unwrap()), "{call}");
    let report = text(&cudatrace(&["report", file.to_str().unwrap()]).stdout);
    let slowest = report.split("SLOWEST CALLS").nth(1).unwrap();
    let row = slowest.lines().find(|line| line.contains("cudatrace_wait_ns")).expect("it is named");
    assert!(row.contains(&report::recording::summary::time(ns)), "its time is its own: {row}");
    let spans = lines.iter().filter(|line| line["type"] == "span");
    let ends = spans.clone().map(|line| line["ts"].as_u64().unwrap() + line["dur"].as_u64().unwrap());
    let first =
        spans.map(|line| line["ts"].as_u64().unwrap() - self::waited(line).unwrap_or(0)).min().unwrap();
    let length = ends.max().unwrap() - first - waited;
    assert!(
        report.contains(&format!("time          {}", report::recording::summary::time(length))),
        "{report}"
    );
}

fn waited(line: &Value) -> Option<u64> {
    line["args"]["cudatrace_wait_ns"].as_u64()
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
    let made = cudatrace(&args);
    assert!(made.status.success() && made.stdout.is_empty(), "{}", text(&made.stderr));
    assert_eq!(text(&made.stderr), format!("wrote {chrome}\nwrote {page}\n"));
    let said = text(&cudatrace(&["report", file.to_str().unwrap()]).stdout);
    for part in ["API calls", "FUNCTION", "KERNEL", "SLOWEST CALLS", "TIMELINE", "CUDA_ERROR_OUT_OF_MEMORY"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let lines = lines(&file);
    let spans = lines.iter().filter(|line| line["type"] == "span").count();
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&chrome).unwrap()).unwrap();
    let rows = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(rows, spans);
    drive(&page, &lines);
}

/// Operates the page in a browser, if there is one.
fn drive(page: &str, lines: &[Value]) {
    let Some(log) = browse(page, include_str!("record/page.js")) else { return };
    assert_eq!(log.get("error"), None);
    check_rows(&log, lines);
    for step in [
        "tall",
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
        "filtered",
        "arguments",
        "nested",
        "named",
        "marked",
        "collapsed",
        "in sight",
        "kernels",
        "explained",
        "recalled",
        "typed",
    ] {
        assert_eq!(log[step], "true", "{step}");
    }
    assert_eq!(log["views"], "functions kernels stacks memory errors keys");
}

/// A row of the page: its kind, process, and thread or stream.
type Row = (String, u64, u64);

/// Number of spans of each row, sum of their durations, and time in which at least one ran.
fn rows(lines: &[Value]) -> BTreeMap<Row, [u64; 3]> {
    let mut spans: BTreeMap<Row, Vec<(u64, u64)>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["type"] == "span") {
        let number = |key: &str| line[key].as_u64().unwrap();
        let (kind, tid) = match number("tid") {
            tid @ ..0x4000_0000 if line["args"]["category"] == "nvtx" => ("n", tid),
            tid @ ..0x4000_0000 => ("t", tid),
            tid if line["probe"] == "gpu:idle" => ("i", tid & 0xffff),
            tid => ("s", tid & 0xffff),
        };
        let times = spans.entry((kind.into(), number("pid"), tid)).or_default();
        times.push((number("ts"), number("ts") + number("dur")));
    }
    let sums = |times: &mut Vec<(u64, u64)>| {
        times.sort_unstable();
        let (mut busy, mut until) = (0, 0);
        for (start, end) in times.iter() {
            busy += end.saturating_sub(until.max(*start));
            until = until.max(*end);
        }
        [times.len() as u64, times.iter().map(|(start, end)| end - start).sum(), busy]
    };
    spans.iter_mut().map(|(row, times)| (row.clone(), sums(times))).collect()
}

/// The page has every span, and its rows are as busy as those of the recording.
fn check_rows(log: &HashMap<String, String>, lines: &[Value]) {
    let spans = lines.iter().filter(|line| line["type"] == "span").count();
    assert_eq!(log["spans"], spans.to_string());
    let check: Vec<Value> = serde_json::from_str(&log["check"]).unwrap();
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_u64().unwrap();
        let key = (row["kind"].as_str().unwrap().to_owned(), number("pid"), number("tid"));
        (key, ["count", "total", "busy"].map(number))
    };
    let found: BTreeMap<Row, [u64; 3]> = check.iter().map(row).collect();
    assert_eq!(found, rows(lines));
}

/// Kernels of two streams that overlap, graphs whose kernels overlap in a stream, calls in calls, NVTX ranges, a counter.
#[test]
fn rows_of_the_page_are_as_busy_as_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (recording, page) = (path("t.jsonl"), path("t.html"));
    let mut out = String::from("{\"type\":\"run\",\"format\":1,\"boot_ns\":0,\"wall_ns\":\"0\"}\n");
    out += "{\"type\":\"schema\",\"id\":0,\"fields\":[[\"category\",\"string\"]]}\n";
    out += "{\"type\":\"schema\",\"id\":1,\"fields\":[[\"kernel\",\"string\"],[\"corr\",\"uint64\"]]}\n";
    let mut id = 0;
    let mut span = |ts: u64, dur: u64, tid: u64, name: &str, more: &str| {
        id += 1;
        let site = if tid < 0x4000_0000 {
            format!("\"func\":\"{name}\",\"api\":\"{name}\"")
        } else {
            "\"probe\":\"gpu:kernel\"".into()
        };
        out += &format!(
            "{{\"type\":\"span\",\"ts\":{ts},\"dur\":{dur},\"pid\":1,\"tid\":{tid},\"comm\":\"a\",\"name\":\"{name}\",{site},\"id\":\"{id:#x}\",\"status\":\"ok\"{more}}}\n"
        );
        id
    };
    for at in 0..5000u64 {
        // A pause after each 100 launches is longer than a pixel.
        let (start, tid) = (10_000 + at * 1000 + at / 100 * 70_000, 1 + at % 3);
        let launch = format!(",\"schema\":1,\"args\":{{\"kernel\":\"fill\",\"corr\":{at}}}");
        let launch = span(start + 100, 200 + at % 7, tid, "cuLaunchKernel", &launch);
        span(start, 500 + at % 11, tid, "cudaLaunchKernel", "");
        let stream = (1 << 30) + 7 + at % 2;
        span(start + 600, 1500 + at % 900, stream, "fill", &format!(",\"launch\":\"{launch:#x}\""));
        if at % 50 == 0 {
            span(start - 50, 40_000, tid, "step", ",\"schema\":0,\"args\":{\"category\":\"nvtx\"}");
        }
    }
    out += "{\"type\":\"counter\",\"ts\":20000,\"pid\":1,\"tid\":1,\"name\":\"queue\",\"value\":3}\n";
    std::fs::write(&recording, out + "{\"type\":\"end\",\"dropped\":0}\n").unwrap();
    let report = cudatrace(&["report", &recording, "--html", &page]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    let lines = lines(Path::new(&recording));
    assert!(html.contains(&format!("\"spans\":{},", 15_100)) && lines.len() > 15_100);
    let Some(log) = browse(&page, include_str!("record/rows.js")) else { return };
    assert_eq!(log.get("error"), None);
    check_rows(&log, &lines);
    assert_eq!(log["groups"], "GPU 0, a 1, counters");
    assert_eq!(log["rows"], "stream 7, stream 8, NVTX of 1, a 1, NVTX of 2, a 2, NVTX of 3, a 3, queue");
    for step in ["drawn", "heights", "kernels", "idle", "launched"] {
        assert_eq!(log[step], "true", "{step}");
    }
}

/// A recording with more threads than a canvas can show, each with a call.
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

/// Results of a script in the page, if there is a browser.
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
    let options = [
        "--headless",
        "--no-sandbox",
        "--window-size=1400,700",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ];
    let output = Command::new(browser).args(options).arg(format!("file://{page}")).output().unwrap();
    let dom = text(&output.stdout);
    let log = dom.split_once("<pre id=\"log\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (log, _) = log.unwrap_or_else(|| panic!("the page did not run: {}", text(&output.stderr)));
    let steps = log.lines().filter_map(|line| line.split_once(": "));
    Some(steps.map(|(step, how)| (step.to_owned(), how.to_owned())).collect())
}

/// Kernels of the GPU by name, as the simulated driver counts them.
fn ran(stdout: &str) -> HashMap<String, u64> {
    let line = Regex::new(r"(?m)^kernel (\S+) count (\d+) total \d+$").unwrap();
    line.captures_iter(stdout).map(|found| (found[1].to_owned(), found[2].parse().unwrap())).collect()
}

#[test]
fn the_work_of_the_gpu_is_recorded_with_its_launches() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let truth = tempfile::NamedTempFile::new().unwrap();
    let variable = format!("CUDASIM_GPU_TRUTH={}", truth.path().display());
    let workload = example("workload_gpu");
    let program = ["env", &variable, &*workload, "--threads", "2", "--kernels", "30", "--graphs", "2"];
    let (file, _, said) = recorded(folder.path(), &["--gpu"], &program);
    assert!(said.contains("GPU times are exact") && said.contains("GPU 0 busy for "), "{said}");
    let lines = lines(&file);
    let spans = || lines.iter().filter(|line| line["type"] == "span");
    let calls: HashMap<&str, &Value> = spans().map(|span| (span["id"].as_str().unwrap(), span)).collect();
    let mut kernels: HashMap<String, u64> = HashMap::new();
    for kernel in spans().filter(|span| span["probe"] == "gpu:kernel") {
        *kernels.entry(kernel["name"].as_str().unwrap().to_owned()).or_default() += 1;
        let launch = calls[kernel["launch"].as_str().expect("its launch is known")];
        let is_graph = kernel["args"]["graph"] != 0;
        assert_eq!(launch["api"], if is_graph { "cuGraphLaunch" } else { "cuLaunchKernel" }, "{kernel}");
        assert!(is_graph || launch["args"]["kernel"] == kernel["name"], "{launch} {kernel}");
        assert!(launch["ts"].as_u64() < kernel["ts"].as_u64(), "{launch} {kernel}");
        let stream = format!("GPU 0 stream {}", kernel["args"]["stream"]);
        assert_eq!((&kernel["comm"], &kernel["pid"]), (&stream.into(), &launch["pid"]));
    }
    let known = ran(&std::fs::read_to_string(truth.path()).unwrap());
    assert_eq!(kernels.values().sum::<u64>(), known.values().sum::<u64>(), "{kernels:?} {known:?}");
    assert!(
        known.iter().all(|(name, count)| kernels.iter().any(|(short, n)| name.contains(short) && n == count))
    );
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let page = path("t.html");
    let report = cudatrace(&["report", file.to_str().unwrap(), "--html", &page]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let tables = text(&cudatrace(&["report", file.to_str().unwrap()]).stdout);
    assert!(tables.contains("KERNEL (time on the GPU)") && tables.contains("GPU 0 stream "), "{tables}");
    let Some(log) = browse(&page, include_str!("record/gpu.js")) else { return };
    assert_eq!(log.get("error"), None);
    check_rows(&log, &lines);
    let steps = [
        "told",
        "arrived",
        "same kernel",
        "returned",
        "explained",
        "table",
        "card",
        "streams",
        "apart",
        "idle",
    ];
    for step in steps {
        assert_eq!(log[step], "true", "{step}");
    }
}

/// Share of the time in which at least one kernel ran, from the first to the last, in percent.
fn busy(mut kernels: Vec<(u64, u64)>) -> f64 {
    kernels.sort_unstable();
    let (mut busy, mut until) = (0, 0);
    for (start, end) in &kernels {
        busy += end.saturating_sub(until.max(*start));
        until = until.max(*end);
    }
    busy as f64 * 100.0 / (until - kernels[0].0) as f64
}

#[test]
fn a_device_that_several_processes_use_is_busy_when_any_kernel_runs() {
    if !can_trace() {
        return;
    }
    let workload = example("workload_gpu");
    let one = format!("{workload} --threads 2 --rate 2000 --seconds 1.5 --graphs 0 >/dev/null");
    let three = format!("{one} & {one} & {one} & wait");
    let percent = |pattern: &str, said: &str| -> f64 {
        let found = Regex::new(pattern).unwrap().captures(said);
        found.unwrap_or_else(|| panic!("`{pattern}` is not in {said}"))[1].parse().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let (file, _, said) = recorded(folder.path(), &["--gpu"], &["sh", "-c", &three]);
    let lines = lines(&file);
    let kernels = lines.iter().filter(|line| line["probe"] == "gpu:kernel");
    let time = |kernel: &Value, name: &str| kernel[name].as_u64().unwrap();
    let kernels = kernels.map(|kernel| (time(kernel, "ts"), time(kernel, "ts") + time(kernel, "dur")));
    let truth = busy(kernels.collect());
    let told = percent(r"GPU 0 busy for (\d+) %", &said);
    assert!((told - truth).abs() <= 0.6, "{told} for {truth}");
    // The scripts, and each kernel of the same run.
    let all = folder.path().join("all.ct");
    std::fs::write(&all, "gpu:kernel { printf(\"ran %d %d\\n\", args.start, args.end) }").unwrap();
    let said = text(&cudatrace(&["gpu", "idle", all.to_str().unwrap(), "--", "sh", "-c", &three]).stdout);
    let line = Regex::new(r"ran (\d+) (\d+)").unwrap();
    let time = |text: &str| text.parse().unwrap();
    let truth = busy(line.captures_iter(&said).map(|found| (time(&found[1]), time(&found[2]))).collect());
    let ran = percent(r"one or more of 3 processes ran for (\d+) %", &said);
    let idle = percent(r"no kernel of 3 processes ran for (\d+) %", &said);
    assert!((ran - truth).abs() <= 2.0 && (100.0 - idle - truth).abs() <= 2.0, "{ran}, {idle} for {truth}");
}

#[test]
fn the_kernel_side_is_recorded_by_name() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    let mut record = common::cudatrace();
    common::with_devices(&mut record, &[("nvidia", 1), ("nvidia-uvm", 1)]);
    record.args(["record", "--kernel", "--export", &format!("jsonl={}", file.display()), "--"]);
    let done = record.args([&*example("any_ioctls"), "/dev/null", "/dev/null"]).output().unwrap();
    let lines = lines(&file);
    let count =
        |name: &str| lines.iter().filter(|line| line["type"] == "span" && line["name"] == name).count();
    assert_eq!((count("NV_ESC_RM_CONTROL"), count("NV_ESC_RM_ALLOC"), count("UVM_MIGRATE")), (3, 2, 1));
    let stderr = common::stderr(&done);
    assert!(stderr.contains("ioctls        8"), "{stderr}");
}

/// A recording of a machine whose kernel has kprobes: an allocation, its ioctl, a function of the kernel driver.
#[test]
fn functions_of_the_kernel_driver_have_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (recording, page) = (path("t.jsonl"), path("t.html"));
    let mut lines = String::from("{\"type\":\"run\",\"format\":1,\"boot_ns\":0,\"wall_ns\":\"0\"}\n");
    lines += "{\"type\":\"schema\",\"id\":0,\"fields\":[[\"category\",\"string\"]]}\n";
    for (id, name, (start, ns), category) in [
        (3, "nv_work", (30, 10), "nvidia_driver"),
        (2, "NV_ESC_RM_ALLOC", (20, 40), "nvidia_ioctl"),
        (1, "cuMemAlloc_v2", (10, 100), ""),
    ] {
        let args = match category {
            "" => String::new(),
            _ => format!(",\"schema\":0,\"args\":{{\"category\":\"{category}\"}}"),
        };
        let (parent, site) =
            (if id == 1 { 0 } else { id - 1 }, format!("\"func\":\"{name}\",\"api\":\"{name}\""));
        lines += &format!(
            "{{\"type\":\"span\",\"ts\":{start},\"dur\":{ns},\"pid\":1,\"tid\":1,\"name\":\"{name}\",{site},\"id\":\"{id:#x}\",\"parent\":\"{parent:#x}\",\"status\":\"ok\"{args}}}\n"
        );
    }
    std::fs::write(&recording, lines).unwrap();
    let report = cudatrace(&["report", &recording, "--html", &page]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let short = text(&cudatrace(&["report", &recording]).stdout);
    for line in
        [r"(?m)^API calls +1 driver, 0 runtime$", r"(?m)^ioctls +1, 40 ns$", r"(?m)^kernel driver +1, 10 ns$"]
    {
        assert!(Regex::new(line).unwrap().is_match(&short), "{line} in {short}");
    }
    let rows = |table: &str| text(&cudatrace(&["report", &recording, "--csv", table]).stdout);
    let row =
        |table: &str| rows(table).lines().nth(1).unwrap().split(',').take(5).collect::<Vec<_>>().join(",");
    assert_eq!(row("functions"), "cuMemAlloc_v2,1,100.0,100,60", "without the ioctl");
    assert_eq!(row("ioctls"), "NV_ESC_RM_ALLOC,1,100.0,40,30", "without the function");
    assert_eq!(row("driver_functions"), "nv_work,1,100.0,10,10");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("\"driver_functions\":[[\"nv_work\",1,10,10,"), "the table's data");
    let Some(log) = browse(&page, include_str!("record/driver.js")) else { return };
    assert_eq!(log.get("error"), None);
    assert_eq!(log["driver"], "functions of the kernel driver: nv_work");
}

#[test]
fn events_within_an_ioctl_are_in_its_span() {
    if !can_trace() {
        return;
    }
    let ask = "
import fcntl, time
file = open('/dev/null')
end = time.monotonic() + 2
while time.monotonic() < end:
    try: fcntl.ioctl(file, 0x30000001)
    except OSError: pass";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    let mut trace = common::cudatrace();
    common::with_devices(&mut trace, &[("nvidia", 195), ("nvidia-uvm", 1)]);
    let script = "ioctl:nvidia-uvm:* { span() } profile:hz:997 { event(\"sample\") }";
    let export = format!("jsonl={}", file.display());
    let done = trace.args(["-e", script, "--export", &export, "--", "python3", "-c", ask]).output().unwrap();
    assert!(done.status.success(), "{}", common::stderr(&done));
    let lines = lines(&file);
    let of = |name| lines.iter().filter(move |line| line["name"] == name);
    let spans: HashMap<&str, &Value> =
        of("UVM_INITIALIZE").map(|span| (span["id"].as_str().unwrap(), span)).collect();
    let ns = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let (mut inside, mut outside) = (0, 0);
    for sample in of("sample") {
        match sample["parent"].as_str().unwrap() {
            "0x0" => outside += 1,
            parent => {
                // Records of many ioctls may be lost.
                let Some(span) = spans.get(parent) else { continue };
                inside += 1;
                let (start, at) = (ns(span, "ts"), ns(sample, "ts"));
                assert!((start..=start + ns(span, "dur")).contains(&at), "{sample} is not in {span}");
            }
        }
    }
    assert!(inside > 0 && outside > 0, "{inside} samples in ioctls, {outside} outside");
}

#[test]
fn files_that_a_process_opened_before_are_known() {
    if !can_trace() {
        return;
    }
    let ask = "
import fcntl, time
file = open('/dev/null')
print('opened', flush=True)
for _ in range(60000):
    try: fcntl.ioctl(file, 0x30000001)
    except OSError: pass
    time.sleep(0.001)";
    let mut asking = Running::start(Command::new("python3").args(["-c", ask]));
    asking.wait_for_line("opened");
    let pid = asking.pid().to_string();
    for whose in [&["-p", &pid][..], &[]] {
        let mut ioctls = common::cudatrace();
        common::with_devices(&mut ioctls, &[("nvidia", 195), ("nvidia-uvm", 1)]);
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
fn a_recording_prints_how_to_view_each_file() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let exports = ["perfetto", "chrome", "jsonl"].map(|kind| format!("{kind}={}", path(kind)));
    let mut args = vec!["record"];
    exports.iter().for_each(|export| args.extend(["--export", export]));
    let program = example("workload_driver");
    let output = cudatrace(&[&args[..], &["--", &program]].concat());
    let stderr = text(&output.stderr);
    let opened = "open it at https://ui.perfetto.dev".to_owned();
    let reported = format!("cudatrace report {} --html trace.html", path("jsonl"));
    for (kind, look) in [("perfetto", &opened), ("chrome", &opened), ("jsonl", &reported)] {
        let said = format!("recording     {}\nlook at it:   {look}\n", path(kind));
        assert!(stderr.contains(&said), "{said}: {stderr}");
    }
}

#[test]
fn a_full_disk_ends_the_export_and_not_the_trace() {
    if !can_trace() {
        return;
    }
    let script = "uretprobe:libcuda:cu* { @ = count(); span() }";
    // Losses are reported even with `-q`.
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
    let slowest = said
        .split("SLOWEST CALLS (by their own time)\n")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .unwrap();
    assert_eq!(slowest.lines().count(), 2, "a head and a row: {slowest}");
    let moves = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!said.contains(moves), "{said:?}");
}

/// Writes a recording of calls: function, start and duration in ns, id, id of the enclosing call, and further
/// members.
fn made(file: &Path, calls: &[(&str, u64, u64, u64, u64, &str)]) {
    let mut lines = String::from("{\"type\":\"run\",\"format\":1,\"boot_ns\":0,\"wall_ns\":\"0\"}\n");
    lines += "{\"type\":\"schema\",\"id\":0,\"fields\":[[\"kernel\",\"string\"],[\"bytes\",\"uint64\"],[\"ptr\",\"handle\"],[\"kind\",\"string\"]]}\n";
    for (func, ts, dur, id, parent, more) in calls {
        let api = func.trim_end_matches("_v2");
        lines += &format!(
            "{{\"type\":\"span\",\"ts\":{ts},\"dur\":{dur},\"pid\":1,\"tid\":1,\"comm\":\"a\",\"name\":\"{func}\",\"func\":\"{func}\",\
             \"api\":\"{api}\",\"id\":\"{id:#x}\",\"parent\":\"{parent:#x}\"{more}}}\n"
        );
    }
    std::fs::write(file, lines + "{\"type\":\"end\",\"dropped\":0}\n").unwrap();
}

const OK: &str = ",\"status\":\"ok\"";

fn failed(ty: &str, name: &str) -> String {
    format!(",\"status\":\"error\",\"result\":{{\"enum\":\"{ty}\",\"name\":\"{name}\",\"value\":2}}")
}

#[test]
fn calls_at_exit_are_no_failures_and_launches_of_graphs_have_no_kernel() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, _, said) = recorded(folder.path(), &[], &[&example("workload_habits"), "graphs", "at_exit"]);
    assert!(
        said.contains("\nerrors        0; 4 calls came at exit, after the driver had shut down\n"),
        "{said}"
    );
    let spans = lines(&file);
    let of = |func: &str| spans.iter().filter(|line| line["func"] == func).collect::<Vec<_>>();
    let [unload] = of("cuLibraryUnload")[..] else { panic!("one cuLibraryUnload") };
    assert_eq!(
        (&unload["status"], &unload["result"]["name"]),
        (&"unset".into(), &"CUDA_ERROR_DEINITIALIZED".into())
    );
    let launches = of("cuGraphLaunch");
    let names = |line: &Value| line["args"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(
        !launches.is_empty() && launches.iter().all(|line| names(line) == ["graph", "stream"]),
        "{launches:?}"
    );
}

#[test]
fn a_failure_counts_once_and_time_is_that_of_the_call_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    let (inner, outer) =
        (failed("CUresult", "CUDA_ERROR_OUT_OF_MEMORY"), failed("cudaError_t", "cudaErrorMemoryAllocation"));
    let launch = format!("{inner},\"schema\":0,\"args\":{{\"kernel\":\"fill\"}}");
    let graph = format!("{OK},\"schema\":0,\"args\":{{\"kernel\":\"<no kernel>\"}}");
    let at_exit = failed("CUresult", "CUDA_ERROR_DEINITIALIZED");
    let alloc = format!("{OK},\"schema\":0,\"args\":{{\"bytes\":4096,\"ptr\":\"0x10\",\"kind\":\"device\"}}");
    let host = alloc.replace("4096", "1024").replace("device", "pinned").replace("0x10", "0x20");
    made(
        &file,
        &[
            ("cuMemAlloc_v2", 1_000_010, 1_798_678, 2, 1, &inner),
            ("cudaMalloc", 1_000_000, 1_998_678, 1, 0, &outer),
            ("cuLaunchKernel", 4_000_000, 9_992, 3, 0, &launch),
            ("cuGraphLaunch", 4_100_000, 1_000, 4, 0, &graph),
            ("cuMemAlloc_v2", 4_200_000, 1_000, 5, 0, &alloc),
            ("cuLibraryUnload", 4_250_000, 1_000, 7, 0, &at_exit),
            ("cuMemHostAlloc", 4_300_000, 1_000, 6, 0, &host),
        ],
    );
    let path = file.to_str().unwrap();
    let said = text(&cudatrace(&["report", path]).stdout);
    let row = |name: &str| {
        let line =
            said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {said}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert!(
        said.contains("\nerrors        2; 1 call came at exit, after the driver had shut down\n"),
        "{said}"
    );
    assert!(!said.contains("<no kernel>") && said.lines().all(|line| !line.ends_with(' ')), "{said}");
    assert!(said.contains("\ntime          3.3 ms, ") && said.contains(" 3.3 ms|\n"), "{said}");
    assert!(
        said.contains("cudaErrorMemoryAllocation")
            && said.contains("launches      0 of 1 kernel; 1 of a graph"),
        "{said}"
    );
    assert_eq!(row("cudaMalloc"), "1 9.9 2.0 ms 200.0 us 2.0 ms 2.0 ms 2.0 ms 2.0 ms 1");
    assert_eq!(row("fill"), "1 100.0 10.0 us 10.0 us 10.0 us 10.0 us 10.0 us 10.0 us 1");
    assert!(said.contains("device 4.0 KiB in 1 (at most 4.0 KiB at a time), pinned 1.0 KiB in 1"), "{said}");
    // The nested call is listed with its enclosing call, at its time since the first call.
    let slowest = said.split("SLOWEST CALLS").nth(1).unwrap().lines().nth(2).unwrap();
    let words: Vec<&str> = slowest.split_whitespace().collect();
    assert_eq!(words[..7].join(" "), "10 ns 1.8 ms 1/1 cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY", "{slowest}");
    assert!(slowest.contains("in cudaMalloc"), "{slowest}");

    let json: Value = serde_json::from_slice(&cudatrace(&["report", "-f", "json", path]).stdout).unwrap();
    assert_eq!(
        (&json["failures"], &json["graph_launches"], &json["length_ns"]),
        (&2.into(), &1.into(), &3_301_000.into())
    );
    let alloc =
        json["functions"].as_array().unwrap().iter().find(|row| row["name"] == "cuMemAlloc_v2").unwrap();
    assert_eq!(
        (&alloc["min_ns"], &alloc["max_ns"], &alloc["stddev_ns"]),
        (&1000.into(), &1_798_678.into(), &1_271_150.into())
    );
    let csv = text(&cudatrace(&["report", "--csv", "memory", path]).stdout);
    assert_eq!(
        csv,
        "kind,allocations,bytes,total_ns,peak_bytes,bytes_left\ndevice,1,4096,1000,4096,4096\npinned,1,1024,1000,1024,1024\n"
    );
    let wrong = cudatrace(&["report", "--csv", "functionz", path]);
    assert!(
        !wrong.status.success() && text(&wrong.stderr).contains("functions, kernels"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn without_a_file_the_newest_recording_is_read_and_parts_are_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("traces")).unwrap();
    let path = |name: &str| folder.path().join("traces").join(name);
    let call = |id| [("cuInit", id, 1, id, 0, OK)];
    made(&path("old.jsonl"), &call(1));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    std::fs::File::options().append(true).open(path("old.jsonl")).unwrap().set_modified(old).unwrap();
    made(&path("new.jsonl"), &call(2));
    made(&path("new.1.jsonl"), &call(3));
    let other = |name: &str| {
        let text = std::fs::read_to_string(path(name)).unwrap();
        std::fs::write(path(name), text.replace("\"format\":1", "\"format\":1,\"id\":\"7\"")).unwrap();
    };
    ["new.jsonl", "new.1.jsonl"].into_iter().for_each(other);
    // A file as a program that could not be started leaves it.
    std::fs::write(path("newer.jsonl"), "").unwrap();
    let report = |files: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
        command.arg("report").args(files).current_dir(folder.path()).output().unwrap()
    };
    let (newest, both) = (report(&[]), report(&["traces/old.jsonl", "traces/new.jsonl"]));
    assert!(text(&newest.stderr).contains("reading the newest, traces/new."), "{}", text(&newest.stderr));
    assert!(text(&newest.stdout).contains("2 driver"), "{}", text(&newest.stdout));
    let both = text(&both.stdout);
    assert!(both.contains("before  old.jsonl: ") && both.contains("\nafter   new.jsonl: "), "{both}");
    assert!(both.lines().any(|line| line.starts_with("cuInit") && line.contains("+100.0 %")), "{both}");
    assert!(text(&report(&["traces/new.jsonl"]).stdout).contains("2 driver"), "its later parts are read");
    let missing = text(&report(&["traces/none.jsonl"]).stderr);
    assert!(missing.contains("No such file") && missing.contains("there are traces/old.jsonl"), "{missing}");
}

#[test]
fn unreadable_files_are_named_with_the_cause_and_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refused = |file: &Path| {
        let mut command = common::cudatrace();
        let output = command.arg("report").arg(file).current_dir(folder.path()).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        text(&output.stderr)
    };
    let assert_says = |file: &Path, words: &[&str]| {
        let said = refused(file);
        let name = file.display().to_string();
        let name = if name == "-" { "standard input" } else { &name };
        assert!(said.starts_with(&format!("error: {name}")), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "no `{word}` in {said}"));
    };
    assert_says(folder.path(), &["is a folder without recordings", "cudatrace record"]);
    std::fs::write(path("empty.jsonl"), "").unwrap();
    assert_says(&path("empty.jsonl"), &["is empty", "cudatrace record"]);
    assert_says(Path::new("-"), &["is empty"]);
    assert_says(&path("none.jsonl"), &["No such file", "cudatrace record"]);
    made(&path("t.jsonl"), &[("cuInit", 1, 1, 1, 0, OK)]);
    assert_says(folder.path(), &["is a folder: name a file in it", "t.jsonl"]);
    for (format, word) in [
        ("chrome", "is a Chrome trace"),
        ("perfetto", "is a trace of Perfetto"),
        ("otlp", "is a file for OpenTelemetry"),
    ] {
        let file = path(format);
        let dest =
            if format == "otlp" { format!("file:{}", file.display()) } else { file.display().to_string() };
        let mut command = common::cudatrace();
        let output = command
            .arg("report")
            .arg(path("t.jsonl"))
            .args(["--export", &format!("{format}={dest}")])
            .output();
        assert!(output.unwrap().status.success());
        assert_says(&file, &[word, "--export arrow=FILE"]);
    }
    // A pipe is read once.
    let shell = format!("{} report <(cat t.jsonl)", env!("CARGO_BIN_EXE_cudatrace"));
    let output = Command::new("bash").args(["-c", &shell]).current_dir(folder.path()).output().unwrap();
    assert!(text(&output.stdout).contains("1 driver"), "{}", text(&output.stderr));
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    std::fs::set_permissions(path("t.jsonl"), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = common::cudatrace();
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let said = text(&command.arg("report").arg(path("t.jsonl")).output().unwrap().stderr);
    let name = path("t.jsonl").display().to_string();
    assert!(said.starts_with(&format!("error: {name}: Permission denied")), "{said}");
    assert!(
        said.contains("belongs to user 0") && said.contains(&format!("sudo cudatrace report {name}")),
        "{said}"
    );
}

/// Ctrl-C in a terminal goes to both ends of `record | report -`.
#[test]
fn a_report_of_a_pipe_is_made_when_its_recording_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    made(&file, &[("cuInit", 1, 1, 1, 0, OK)]);
    let mut command = common::cudatrace();
    command.args(["report", "-"]).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut report = command.spawn().unwrap();
    let mut pipe = report.stdin.take().unwrap();
    std::io::Write::write_all(&mut pipe, &std::fs::read(&file).unwrap()).unwrap();
    let status = format!("/proc/{}/status", report.id());
    common::wait_for("SIGINT is ignored", || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap_or("0");
        u64::from_str_radix(ignored, 16).unwrap() & (1 << (libc::SIGINT - 1)) != 0
    });
    // SAFETY: sends a signal to a child that was not waited for.
    unsafe { libc::kill(report.id() as i32, libc::SIGINT) };
    drop(pipe);
    let output = report.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("1 driver"), "{output:?}");
}

#[test]
fn a_recording_and_a_trace_know_their_rank() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::cudatrace();
    command.args(["record", "-q", "--out"]).arg(folder.path()).args(["--", &example("workload_driver")]);
    assert!(command.env("RANK", "5").output().unwrap().status.success());
    let files: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("one recording, found {files:?}") };
    assert!(file.to_str().unwrap().ends_with("_rank5.arrows"), "{file:?}");
    let made = cudatrace(&["report", file.to_str().unwrap(), "--chrome", "-"]);
    assert!(text(&made.stdout).contains("\"distributedInfo\": {\"rank\": 5}"));
}

/// Without access to tracefs, which only root has, calls are still recorded; with it also the ends of processes.
#[test]
fn a_recording_belongs_to_the_user_of_the_command() {
    use std::os::unix::fs::MetadataExt;
    const NOBODY: u32 = 65534;
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    let record = |destination: &[&str]| {
        let output =
            cudatrace(&[&["record", "-q", "--user", "nobody"], destination, &["--", "true"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    record(&["--out", traces.to_str().unwrap()]);
    let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
    assert_eq!(owner(&traces), NOBODY);
    let files: Vec<_> = std::fs::read_dir(&traces).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.iter().map(|file| owner(file)).collect::<Vec<_>>(), [NOBODY]);
    // A file that was there stays its owner's.
    let there = folder.path().join("there.jsonl");
    std::fs::write(&there, "").unwrap();
    record(&["--export", &format!("jsonl={}", there.display())]);
    assert!(std::fs::metadata(&there).unwrap().len() > 0);
    assert_ne!(owner(&there), NOBODY);
}

#[test]
fn the_end_of_a_process_is_recorded_where_tracepoints_are() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, _, stderr) = recorded(folder.path(), &[], &[&example("workload_driver"), "--leak", "4096"]);
    let ends =
        lines(&file).iter().filter(|line| line["type"] == "event" && line["name"] == "process end").count();
    assert_eq!(ends, 1);
    assert!(stderr.contains("4 blocks left (4.0 KiB)"), "{stderr}");
}

/// Amounts of a kernel in a comparison of two recordings.
fn change<'c>(changes: &'c Value, subject: &str, name: &str) -> &'c Value {
    let rows = changes["changes"].as_array().unwrap();
    rows.iter().find(|row| row["subject"] == subject && row["name"] == name).expect("a row")
}

#[test]
fn two_recordings_are_compared_and_ranks_are_put_beside_each_other() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, rank: Option<&str>, kernels: &str| {
        let out = folder.path().join(name);
        let mut command = common::cudatrace();
        command.args(["record", "-q", "--gpu", "--out"]).arg(&out).args(["--", &example("workload_gpu")]);
        command.args(["--threads", "2", "--rounds", "5", "--kernels", kernels, "--ranges", "1"]);
        rank.into_iter().for_each(|rank| _ = command.env("RANK", rank));
        assert!(command.output().unwrap().status.success());
        let file = std::fs::read_dir(out).unwrap().next().unwrap().unwrap().path();
        file.to_str().unwrap().to_owned()
    };
    let json = |args: &[&str]| -> Value {
        let output = cudatrace(&[&["report", "-f", "json"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (few, many) = (record("few", None, "10"), record("many", None, "30"));
    let found = json(&[&few, &many]);
    let reports = [&few, &many].map(|file| json(&[file]));
    for kernel in ["reduce_sum", "saxpy"] {
        let row = change(&found, "kernels", kernel);
        let of_report = |report: &Value, key: &str| {
            let rows = report["gpu_kernels"].as_array().unwrap();
            rows.iter().find(|row| row["name"] == kernel).unwrap()[key].clone()
        };
        assert_eq!(row["before"], of_report(&reports[0], "total_ns"));
        assert_eq!(row["count_after"], of_report(&reports[1], "calls"));
        let number = |key: &str| row[key].as_i64().unwrap();
        assert!(number("count_after") > number("count_before"), "{row}");
        assert_eq!(number("change"), number("after") - number("before"));
    }
    assert_eq!(change(&found, "ranges", "round")["count_before"], 10);
    let shown = text(&cudatrace(&["report", &few, &many]).stdout);
    assert!(shown.contains("KERNEL (time on the GPU)") && shown.contains("+"), "{shown}");

    // Both pages are in one, which names the largest change.
    let page = folder.path().join("both.html");
    let written = cudatrace(&["report", &few, &many, "--html", page.to_str().unwrap()]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("<h1>{}</h1>", found["verdict"].as_str().unwrap())));
    assert_eq!(page.matches("const DATA = ").count(), 2);

    let ranks = [record("rank0", Some("0"), "10"), record("rank1", Some("1"), "30")];
    let found = json(&[&ranks[1], &ranks[0]]);
    assert_eq!((&found["ranks"][0]["rank"], &found["ranks"][1]["rank"]), (&0.into(), &1.into()));
    assert!(found["verdict"].as_str().unwrap().starts_with("rank 1 computes longest: "), "{found}");
    // The same two as a comparison.
    let found = json(&["--diff", &ranks[0], &ranks[1]]);
    assert!(change(&found, "kernels", "saxpy")["change"].as_i64().unwrap() > 0);
    let refused = |args: &[&str], why: &str| {
        let output = cudatrace(&[&["report"], args].concat());
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{}", text(&output.stderr));
    };
    refused(&[&few, &many, &ranks[0]], "3 recordings of different runs, which do not say a rank");
    let copy = folder.path().join("copy.arrows");
    let again = record("again", Some("1"), "10");
    std::fs::copy(again, &copy).unwrap();
    refused(&[&ranks[0], &ranks[1], copy.to_str().unwrap()], "are both of rank 1");
    refused(&["--diff", &few], "--diff compares two recordings, and 1 are named");
    refused(&[&ranks[0], &ranks[1], "--html", "page.html"], "--diff compares these two ranks in a page");
    refused(&[&few, &many, "--csv", "kernels"], "no table `kernels`: expected changes");
    refused(
        &[&few, &many, "--html", "page.html", "--csv", "kernels"],
        "no table `kernels`: expected changes",
    );
    // A copy is no further part; one file by two names is one recording; no recording is written over.
    let twin = folder.path().join("twin.arrows");
    std::fs::copy(&few, &twin).unwrap();
    let twin = twin.to_str().unwrap();
    refused(&[&few, twin], "are the same part of one run");
    let link = folder.path().join("link.arrows");
    std::os::unix::fs::symlink(&few, &link).unwrap();
    assert_eq!(json(&[&few, link.to_str().unwrap()]), json(&[&few]));
    refused(&[twin, "--html", twin], "is the recording that is read");
    refused(&[&many, twin, "--html", twin], "is the recording that is read");
    refused(&[&few, "--html", twin], "is a recording, which the output would replace");
    refused(&[&few, "--chrome", "x.json", "--folded", "x.json"], "two outputs go to `x.json`");
    refused(&[&few, "-"], "can be read once only");
    // A part of a recording stays one when it is converted.
    let lines = text(&cudatrace(&["report", &few, "--jsonl", "-"]).stdout);
    let cut = folder.path().join("cut.jsonl");
    std::fs::write(&cut, &lines[..lines.len() / 2]).unwrap();
    let converted = cudatrace(&["report", cut.to_str().unwrap(), "--jsonl", "-"]);
    assert!(lines.contains("\"type\":\"end\"") && !text(&converted.stdout).contains("\"type\":\"end\""));
    assert!(text(&converted.stderr).contains("the recording was cut off"), "{}", text(&converted.stderr));
}

#[test]
fn a_recording_has_the_gpus_counters_and_the_versions_of_libraries() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.arrows");
    let mut command = common::cudatrace();
    command.args(["record", "-q", "--export", &format!("arrow={}", file.display()), "--"]);
    command.args([&example("workload_gpu"), "--threads", "1", "--rate", "100", "--seconds", "2.5"]);
    assert!(command.env("LD_LIBRARY_PATH", common::examples()).output().unwrap().status.success());
    let lines = lines(&file);
    assert!(lines[0]["environment"]["kernel"].is_string() && lines[0]["environment"]["folder"].is_string());
    let of = |name: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["name"] == format!("nvidia-smi 0: {name}")).collect()
    };
    for (name, value) in [
        ("utilization (%)", 42),
        ("memory traffic (%)", 17),
        ("memory used (bytes)", 1 << 30),
        ("power (mW)", 345678),
    ] {
        let counted = of(name);
        assert!(
            counted.len() >= 3
                && counted.iter().all(|line| line["type"] == "counter" && line["value"] == value),
            "{name}: {counted:?}"
        );
        let times: Vec<u64> = counted.iter().map(|line| line["ts"].as_u64().unwrap()).collect();
        assert!(times.windows(2).all(|two| two[1] - two[0] > 900_000_000), "{times:?}");
    }
    // The simulated library has none.
    assert!(of("temperature (C)").is_empty());
    let environment: Vec<&Value> = lines.iter().filter(|line| line["name"] == "environment").collect();
    let [environment] = &environment[..] else { panic!("one record, found {environment:?}") };
    assert_eq!(environment["args"]["libcuda"], "580.159.04");
    let report = text(&cudatrace(&["report", file.to_str().unwrap()]).stdout);
    assert!(report.contains("\nlibcuda 580.159.04\n"), "{report}");
}

#[test]
fn stacks_are_recorded_on_request() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let recorded = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        std::fs::create_dir(&out).unwrap();
        let (file, ..) = recorded(&out, more, &[&example("workload_driver"), "--threads", "1"]);
        lines(&file)
    };
    let with_stack = |lines: &[Value], probe: &str| {
        let calls = lines.iter().filter(|line| line["probe"] == probe);
        let (with, without): (Vec<_>, Vec<_>) = calls.partition(|line| line["args"]["stack"].is_array());
        (with.len(), without.len())
    };
    let none = recorded("none", &[]);
    let usual = recorded("usual", &["--stacks"]);
    let copies = recorded("copies", &["--stacks=copy"]);
    for probe in ["cuda:launch", "cuda:alloc", "cuda:free"] {
        let (stacks, all) = (with_stack(&usual, probe), with_stack(&none, probe));
        assert!(stacks.0 > 0 && stacks == (all.1, 0) && all.0 == 0, "{probe}: {stacks:?} {all:?}");
        assert_eq!(with_stack(&copies, probe), (0, all.1));
    }
    assert_eq!(with_stack(&usual, "cuda:memcpy").0, 0);
    assert!(with_stack(&copies, "cuda:memcpy").0 > 0 && with_stack(&copies, "cuda:memcpy").1 == 0);
    let frames = usual.iter().find(|line| line["probe"] == "cuda:launch").unwrap()["args"]["stack"].clone();
    let named =
        |frame: &Value| frame["symbol"].as_str().is_some_and(|symbol| symbol.starts_with("thread_main"));
    assert!(frames.as_array().unwrap().iter().any(named), "{frames}");
}
