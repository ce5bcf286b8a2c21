//! Frames of Python in stacks: the same as the program sees itself, by both engines, of programs that are started and that run already, with
//! each version of Python that is installed.

mod common;

use common::{Running, can_trace, cudatrace, missing, skip, stderr, stdout};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Threads of the program, and calls of each.
const THREADS: &str = "3";
const CALLS: &str = "400";
/// A function of the C library that both engines can trace.
const SCRIPT: &str = "uprobe:libc:mktime { @[ustack(python)] = count() }";
const ENGINES: [&[&str]; 2] = [&[], &["--in-process"]];

fn frames_py() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/frames.py")
}

/// Fails if the programs ran in the kernel, although they were to run in the process.
fn is_by(engine: &[&str], messages: &str) {
    assert!(engine.is_empty() || !messages.contains("cannot be patched"), "{engine:?}: {messages}");
}

/// The interpreters that are installed as `python3.N`, which may be scripts that find one.
fn interpreters() -> Vec<PathBuf> {
    let of = |minor: u32| {
        let name = format!("python3.{minor}");
        let asked = Command::new(&name).args(["-c", "import sys; print(sys.executable)"]).output();
        let found = asked.ok().filter(|asked| asked.status.success());
        if found.is_none() {
            skip(&format!("there is no {name}"));
        }
        found.map(|asked| PathBuf::from(stdout(&asked).trim()))
    };
    let found: Vec<PathBuf> = (9..=15).filter_map(of).collect();
    if found.is_empty() {
        missing("there is no Python");
    }
    found
}

/// Stacks with their counts.
type Counts = BTreeMap<String, u64>;

/// The stacks that the program tells: frames, then `= count`.
fn told(output: &str) -> Counts {
    let mut stack = Vec::new();
    let mut counts = Counts::new();
    for line in output.lines() {
        match line.strip_prefix("= ") {
            Some(count) => {
                counts.insert(stack.join("\n"), count.parse().expect("a number"));
                stack.clear();
            }
            None => stack.push(line),
        }
    }
    counts
}

/// The stacks in the map of the script: `@[`, frames, `]: count`.
fn traced(output: &str) -> Counts {
    let mut stack = Vec::new();
    let mut counts = Counts::new();
    for line in output.lines() {
        match (line.strip_prefix("]: "), line.strip_prefix("        ")) {
            (Some(count), _) => {
                *counts.entry(stack.join("\n")).or_default() += count.parse::<u64>().expect("a number");
                stack.clear();
            }
            (_, Some(frame)) => stack.push(frame),
            _ => {}
        }
    }
    counts
}

fn compare(found: &Counts, expected: &Counts, what: &str, messages: &str) {
    let wrong = found.iter().find(|(stack, count)| expected.get(*stack) != Some(count));
    let missing = expected.iter().find(|(stack, _)| !found.contains_key(*stack));
    assert!(
        wrong.is_none() && missing.is_none(),
        "{what}: {} of {} stacks; wrong: {wrong:#?}\nmissing: {missing:#?}\n{messages}",
        found.len(),
        expected.len()
    );
}

/// Traces the program: what the script prints, and what the program and the tracer say.
fn trace(engine: &[&str], script: &str, python: &Path, arguments: &[&str]) -> (String, Output) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut command = cudatrace();
    command.args(engine).arg("-o").arg(file.path()).args(["-e", script, "--"]).arg(python);
    let output = command.arg(frames_py()).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    is_by(engine, &stderr(&output));
    (std::fs::read_to_string(file.path()).expect("UTF-8"), output)
}

#[test]
fn stacks_are_those_that_the_program_sees() {
    if !can_trace() {
        return;
    }
    for python in interpreters() {
        for engine in ENGINES {
            let (found, output) = trace(engine, SCRIPT, &python, &[THREADS, CALLS]);
            let what = format!("{python:?} {engine:?}");
            compare(&traced(&found), &told(&stdout(&output)), &what, &stderr(&output));
        }
    }
}

#[test]
fn stacks_of_a_running_program_are_those_that_it_sees() {
    if !can_trace() {
        return;
    }
    for python in interpreters() {
        for engine in ENGINES {
            let mut program = Command::new(&python);
            let program = program.arg(frames_py()).args([THREADS, CALLS, "wait"]);
            let mut program =
                program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            let mut said = BufReader::new(program.stdout.take().expect("piped"));
            said.read_line(&mut String::new()).expect("it is ready");
            let mut command = cudatrace();
            command.args(engine).args(["-e", SCRIPT, "-p", &program.id().to_string()]);
            let mut tracer = Running::start(&mut command);
            tracer.wait_for_line("Attached");
            program.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
            let mut output = String::new();
            said.read_to_string(&mut output).expect("UTF-8");
            program.wait().expect("it ends");
            let lines = tracer.lines().join("\n");
            is_by(engine, &lines);
            compare(&traced(&lines), &told(&output), &format!("{python:?} {engine:?}"), &lines);
        }
    }
}

/// One frame of the interpreter for each call of it would remain if those of Python did not take their places.
#[test]
fn frames_of_python_are_in_place_of_those_of_the_interpreter() {
    if !can_trace() {
        return;
    }
    let script = "uprobe:libc:mktime { @[ustack(100)] = count() }";
    for python in interpreters() {
        for engine in ENGINES {
            let (text, _) = trace(engine, script, &python, &["1", "8"]);
            assert!(!text.contains("_PyEval_EvalFrameDefault"), "{python:?} {engine:?}: {text}");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let at = |part: &str| lines.iter().position(|line| line.starts_with(part));
            let (first, leaf, whole) = (at("mktime"), at("leaf ("), at("<module> ("));
            assert!(first.is_some() && first < leaf && leaf < whole, "{python:?} {engine:?}: {text}");
        }
    }
}

/// A program without Python, which then runs one whose child maps no file, and whose lines and functions are keys.
#[test]
fn lines_and_functions_are_keys_also_of_forked_processes() {
    if !can_trace() {
        return;
    }
    let program = "import os, time
noon = time.localtime(10**9)
def parent(): time.mktime(noon); time.mktime(noon)
def child():
    for _ in range(400):
        time.mktime(noon)
        time.sleep(0.001)
for _ in range(400):
    parent()
    time.sleep(0.001)
if os.fork() == 0:
    child(); os._exit(0)
os.wait()
";
    let script = "uprobe:libc:mktime { @line[pyline] = count(); @own[pyfunc(own)] = count(); @len[len(ustack(python))] = count() }";
    for python in interpreters() {
        let file = tempfile::NamedTempFile::with_suffix(".py").expect("a file");
        std::fs::write(file.path(), program).expect("written");
        let shell = format!("echo; {} {}; true", python.display(), file.path().display());
        for engine in ENGINES {
            let output = cudatrace()
                .args(engine)
                .args(["-e", script, "--", "bash", "-c", &shell])
                .output()
                .expect("it starts");
            let (text, what) = (stdout(&output), format!("{python:?} {engine:?}"));
            assert!(
                output.status.success() && !stderr(&output).contains("warning"),
                "{what}: {}",
                stderr(&output)
            );
            is_by(engine, &stderr(&output));
            let count = |row: &str| {
                let row = text.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix("]: "));
                row.map_or(0, |count| count.parse::<u64>().expect("a number"))
            };
            let line = |number: u32| count(&format!("@line[{}:{number}", file.path().display()));
            // Both calls of a line have one key; before Python 3.11 there is one for each.
            let calls = if is_before_qualified_names(&python) { 1 } else { 2 };
            // A process is known some time after its first call.
            let parent = count("@own[parent");
            assert!(parent >= 400 && parent.abs_diff(line(3) * 2 / calls) <= 1, "{what}: {text}");
            assert!(line(6) >= 100 && count("@own[child") == line(6), "{what}: {text}");
            // The shell itself.
            assert!(count("@line[(no Python)") >= 1, "{what}: {text}");
            assert!(count("@len[0") >= 1 && count("@len[2") >= parent, "{what}: {text}");
        }
    }
}

/// Frames of a thread: functions without their classes, files and lines, innermost first.
type Frames = Vec<String>;

/// The stacks of a process as py-spy sees them, by thread.
fn seen_by_py_spy(pid: &str) -> BTreeMap<u64, Frames> {
    let output = Command::new("py-spy").args(["dump", "--json", "--pid", pid]).output().expect("it starts");
    assert!(output.status.success(), "py-spy: {}", stderr(&output));
    let threads: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let frame = |frame: &serde_json::Value| {
        let text = |name: &str| frame[name].as_str().expect("a text").to_owned();
        format!("{} ({}:{})", without_class(&text("name")), text("filename"), frame["line"])
    };
    let frames =
        |thread: &serde_json::Value| thread["frames"].as_array().expect("frames").iter().map(frame).collect();
    let threads = threads.as_array().expect("threads").iter();
    threads.map(|thread| (thread["os_thread_id"].as_u64().expect("a thread"), frames(thread))).collect()
}

fn without_class(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Threads that wait within generators, coroutines, callbacks of C and others have the frames that py-spy sees.
#[test]
fn stacks_are_those_that_py_spy_sees() {
    if !can_trace() {
        return;
    }
    if Command::new("py-spy").arg("--version").output().is_err() {
        return skip("there is no py-spy");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/blocked.py");
    let script = r#"uprobe:libc:select { printf("thread %d%s", tid, ustack(python)) }"#;
    for python in interpreters() {
        for engine in ENGINES {
            let mut program = Command::new(&python);
            let program = program.arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut program = program.spawn().expect("it starts");
            let mut said =
                BufReader::new(program.stdout.take().expect("piped")).lines().map_while(Result::ok);
            said.next().expect("it is ready");
            let pid = program.id().to_string();
            let mut tracer = Running::start(cudatrace().args(engine).args(["-e", script, "-p", &pid]));
            tracer.wait_for_line("Attached");
            let mut go = program.stdin.take().expect("piped");
            go.write_all(b"go\n").expect("it reads");
            said.next().expect("its threads wait");
            let seen = seen_by_py_spy(&pid);
            drop(go);
            program.wait().expect("it ends");
            let mut found = printed_by_threads(&tracer.lines());
            // Older versions of Python sleep by `select`.
            found.remove(&program.id().into());
            let what = format!("{python:?} {engine:?}: {found:#?}");
            assert_eq!(found.len(), 7, "{what}");
            for (thread, frames) in &found {
                assert_eq!(seen.get(thread), Some(frames), "{what}");
            }
        }
    }
}

/// The stacks that the script prints after `thread NUMBER`.
fn printed_by_threads(lines: &[String]) -> BTreeMap<u64, Frames> {
    let mut found: BTreeMap<u64, Frames> = BTreeMap::new();
    let mut thread = None;
    for line in lines {
        if let Some(number) = line.strip_prefix("thread ") {
            thread = Some(number.parse().expect("a number"));
        } else if let (Some(frame), Some(thread)) = (line.strip_prefix("        "), thread) {
            let (name, place) = frame.split_once(" (").expect("a place");
            found.entry(thread).or_default().push(format!("{} ({place}", without_class(name)));
        }
    }
    found
}

/// Modules of PyTorch are told by their methods `forward`, also within each other; a call site begins with the line that is of no library.
#[test]
fn modules_and_call_sites() {
    if !can_trace() {
        return;
    }
    let program = "import sched, time; noon = time.localtime(10**9)
class Inner:
    def forward(self): time.mktime(noon)
class Outer:
    def forward(self): Inner().forward(); time.mktime(noon)
def forward():
    def forward(): time.mktime(noon)
    forward()
def work():
    scheduler = sched.scheduler()
    scheduler.enter(0, 1, time.mktime, (noon,))
    scheduler.run()
for _ in range(300):
    Outer().forward(); time.mktime(noon); forward(); time.sleep(0.001)
for _ in range(300):
    work()
";
    let script = "uprobe:libc:mktime { @[torch_module] = count(); @site[ustack(site)] = count() }";
    for python in interpreters() {
        let file = tempfile::NamedTempFile::with_suffix(".py").expect("a file");
        std::fs::write(file.path(), program).expect("written");
        let path = file.path().display();
        for engine in ENGINES {
            let output = cudatrace()
                .args(engine)
                .args(["-e", script, "--"])
                .arg(&python)
                .arg(file.path())
                .output()
                .expect("it starts");
            let (text, what) = (stdout(&output), format!("{python:?} {engine:?}"));
            assert!(output.status.success(), "{what}: {}", stderr(&output));
            is_by(engine, &stderr(&output));
            let modules = match is_before_qualified_names(&python) {
                true => [format!("{path}:3"), format!("{path}:5")],
                false => ["Inner".into(), "Outer".into()],
            };
            let count = |module: &str| {
                let row = text.lines().find_map(|line| line.strip_prefix(&format!("@[{module}]: ")));
                row.map_or(0, |count| count.parse::<u64>().expect("a number"))
            };
            // A process is known some time after its first call.
            let [inner, outer] = modules.each_ref().map(|module| count(module));
            assert!(inner >= 298 && outer >= 298, "{what}: {text}");
            // Without qualified names a function `forward` within another one is taken for a method.
            let others = if is_before_qualified_names(&python) { 1200 } else { 1500 };
            assert_eq!(inner + outer + count("(no module)"), others, "{what}: {text}");
            let run = if is_before_qualified_names(&python) { "run" } else { "scheduler.run" };
            let begin = format!(
                "@site[\n        work ({path}:12)\n        <module> ({path}:16)\n          -> {run} ("
            );
            let site = text
                .split("@site[")
                .map(|site| format!("@site[{site}"))
                .find(|site| site.starts_with(&begin));
            let site = site.unwrap_or_else(|| panic!("{what}: {text}"));
            assert!(site.contains("sched.py:"), "{what}: {site}");
            assert!(site.contains("\n          -> mktime+0\n]: 300\n"), "{what}: {site}");
        }
    }
}

/// Whether functions have no qualified names.
fn is_before_qualified_names(python: &Path) -> bool {
    ["3.9", "3.10"].iter().any(|version| python.ends_with(format!("python{version}")))
}

/// Work in threads without Python is that of the line that waits for the backward pass, and of no line elsewhere.
#[test]
fn the_backward_pass_has_the_line_that_waits_for_it() {
    let library = can_trace().then(|| common::program("backward.c", &["-shared", "-fPIC"])).flatten();
    let Some(library) = library else { return };
    let program = format!(
        "import ctypes, time
noon = time.localtime(10**9)
run = ctypes.CDLL({library:?}).run_in_thread
def _engine_run_backward(calls): run(calls)
def other(calls): run(calls)
for _ in range(300):
    time.mktime(noon); time.sleep(0.001)
_engine_run_backward(700)
other(500)
"
    );
    for python in interpreters() {
        for engine in ENGINES {
            let script = "uprobe:libc:mktime { @[pyfunc, len(ustack(python))] = count() }";
            let output = cudatrace()
                .args(engine)
                .args(["-e", script, "--"])
                .arg(&python)
                .args(["-c", &program])
                .output();
            let output = output.expect("it starts");
            let (text, what) = (stdout(&output), format!("{python:?} {engine:?}"));
            assert!(output.status.success(), "{what}: {}", stderr(&output));
            is_by(engine, &stderr(&output));
            assert!(text.contains("@[_engine_run_backward, 2]: 700\n"), "{what}: {text}");
            assert!(text.contains("@[(no Python), 0]: 500\n"), "{what}: {text}");
        }
    }
}
