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
const SCRIPT: &str = "uprobe:libc:getppid { @[ustack(python)] = count() }";
const ENGINES: [&[&str]; 2] = [&[], &["--in-process"]];

fn frames_py() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/frames.py")
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
    let script = "uprobe:libc:getppid { @[ustack(100)] = count() }";
    for python in interpreters() {
        for engine in ENGINES {
            let (text, _) = trace(engine, script, &python, &["1", "8"]);
            assert!(!text.contains("_PyEval_EvalFrameDefault"), "{python:?} {engine:?}: {text}");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let at = |part: &str| lines.iter().position(|line| line.starts_with(part));
            let (first, leaf, whole) = (at("getppid"), at("leaf ("), at("<module> ("));
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
def parent(): os.getppid(); os.getppid()
def child():
    for _ in range(400):
        os.getppid()
        time.sleep(0.001)
for _ in range(400):
    parent()
    time.sleep(0.001)
if os.fork() == 0:
    child(); os._exit(0)
os.wait()
";
    let script = "uprobe:libc:getppid { @line[pyline] = count(); @own[pyfunc(own)] = count(); @len[len(ustack(python))] = count() }";
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
            let count = |row: &str| {
                let row = text.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix("]: "));
                row.map_or(0, |count| count.parse::<u64>().expect("a number"))
            };
            let line = |number: u32| count(&format!("@line[{}:{number}", file.path().display()));
            // Both calls of a line have one key; before Python 3.11 there is one for each.
            let calls = if ["3.9", "3.10"].iter().any(|version| python.ends_with(format!("python{version}")))
            {
                1
            } else {
                2
            };
            // A process is known some time after its first call.
            let parent = count("@own[parent");
            assert!(parent >= 400 && parent.abs_diff(line(2) * 2 / calls) <= 1, "{what}: {text}");
            assert!(line(5) >= 100 && count("@own[child") == line(5), "{what}: {text}");
            // The shell itself.
            assert!(count("@line[(no Python)") >= 1, "{what}: {text}");
            assert!(count("@len[0") >= 1 && count("@len[2") >= parent, "{what}: {text}");
        }
    }
}

/// Work in threads without Python is that of the line that waits for the backward pass, and of no line elsewhere.
#[test]
fn the_backward_pass_has_the_line_that_waits_for_it() {
    let library = can_trace().then(|| common::program("backward.c", &["-shared", "-fPIC"])).flatten();
    let Some(library) = library else { return };
    let program = format!(
        "import ctypes, os, time
run = ctypes.CDLL({library:?}).run_in_thread
def _engine_run_backward(calls): run(calls)
def other(calls): run(calls)
for _ in range(300):
    os.getppid(); time.sleep(0.001)
_engine_run_backward(700)
other(500)
"
    );
    for python in interpreters() {
        for engine in ENGINES {
            let script = "uprobe:libc:getppid { @[pyfunc, len(ustack(python))] = count() }";
            let output = cudatrace()
                .args(engine)
                .args(["-e", script, "--"])
                .arg(&python)
                .args(["-c", &program])
                .output();
            let output = output.expect("it starts");
            let (text, what) = (stdout(&output), format!("{python:?} {engine:?}"));
            assert!(output.status.success(), "{what}: {}", stderr(&output));
            assert!(text.contains("@[_engine_run_backward, 2]: 700\n"), "{what}: {text}");
            assert!(text.contains("@[(no Python), 0]: 500\n"), "{what}: {text}");
        }
    }
}
