//! Typical scripts for bpftrace, unchanged: `tests/bpftrace/*.bt` run and print what their heads specify.
//!
//! ```text
//! // run: {examples}/workload_driver      what is traced; without it the script ends by itself
//! // args: 7 seven                        positional parameters
//! // expect: ^@calls: 16$                 a line of the output
//! // 0.17: same | shape | differs: why    what Debian 12's bpftrace prints
//! ```
//!
//! `same`: its output is ours, but for the order of a map's entries with equal values. `shape`: it has the same maps with the same
//! keys, and other numbers, such as times. Where bpftrace 0.17 is not installed this is not looked at. Scripts name
//! `/usr/lib/x86_64-linux-gnu/libcuda.so.1`; it is replaced by the simulated one.

mod common;

use common::{can_trace, cudatrace, examples, has_installed, stderr, stdout};
use regex::Regex;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const DRIVER: &str = "/usr/lib/x86_64-linux-gnu/libcuda.so.1";
const COMPARED: &str = "bpftrace v0.17.";

/// bpftrace traces the programs of the other test too, so the tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A script and its header.
struct Sample {
    path: PathBuf,
    text: String,
}

impl Sample {
    fn head(&self, key: &str) -> impl Iterator<Item = &str> {
        let start = format!("// {key}: ");
        self.text.lines().filter_map(move |line| line.strip_prefix(&start))
    }

    fn other(&self) -> &str {
        let said = self.head("0.17").next();
        said.unwrap_or_else(|| panic!("{}: a line `// 0.17:` is missing", self.path.display()))
    }

    /// The traced command, without output: bpftrace does not support quotes, and does not run scripts by their
    /// first line.
    fn traced(&self, wrapper: &Path) -> Option<String> {
        let command = self.head("run").next()?.replace("{examples}", &examples().to_string_lossy());
        Some(format!("/bin/sh {} {command}", wrapper.display()))
    }

    fn output(&self, mut tracer: Command, folder: &Path) -> (Vec<String>, String) {
        let script = folder.join("script.bt");
        let driver = examples().join("libcuda.so.1").canonicalize().expect("the examples are built");
        std::fs::write(&script, self.text.replace(DRIVER, &driver.to_string_lossy())).expect("room in /tmp");
        let wrapper = folder.join("silent.sh");
        std::fs::write(&wrapper, "exec \"$@\" >/dev/null 2>&1\n").expect("room in /tmp");
        if let Some(command) = self.traced(&wrapper) {
            tracer.args(["-c", &command]);
        }
        tracer.arg(&script).args(self.head("args").flat_map(str::split_whitespace));
        let output = tracer.output().expect("it starts");
        (lines(&stdout(&output)), stderr(&output))
    }
}

fn samples() -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bpftrace");
    let entries = std::fs::read_dir(folder).expect("the folder of samples");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let read = |path: PathBuf| Sample { text: std::fs::read_to_string(&path).expect("a script"), path };
    paths.into_iter().map(read).collect()
}

/// The output without trailing blanks, empty lines and the greeting.
fn lines(text: &str) -> Vec<String> {
    let shown = text.lines().map(str::trim_end);
    shown.filter(|line| !line.is_empty() && !line.starts_with("Attaching ")).map(String::from).collect()
}

/// Sorts consecutive entries of one map.
fn sorted(lines: &[String]) -> Vec<String> {
    let map = |line: &String| line.starts_with('@').then(|| line.split(['[', ':']).next().map(String::from));
    let runs = lines.chunk_by(|a, b| map(a).is_some() && map(a) == map(b));
    runs.flat_map(|run| {
        let mut run = run.to_vec();
        run.sort();
        run
    })
    .collect()
}

/// Maps with their keys.
fn shape(lines: &[String]) -> Vec<String> {
    let entry =
        |line: &String| line.starts_with('@').then(|| line.split(':').next().unwrap_or("").to_string());
    let mut entries: Vec<String> = lines.iter().filter_map(entry).collect();
    entries.sort();
    entries
}

/// Debian 12's bpftrace, if it is installed.
fn bpftrace() -> Option<Command> {
    let version = Command::new("bpftrace").arg("--version").output().ok()?;
    stdout(&version).starts_with(COMPARED).then(|| {
        let mut command = Command::new("bpftrace");
        command.env("LD_LIBRARY_PATH", examples()).env("CUDASIM_FAST", "1").stdin(Stdio::null());
        command
    })
}

#[test]
fn samples_run_unchanged_and_print_what_they_should() {
    if !can_trace() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room in /tmp");
    let samples = samples();
    assert!(samples.len() > 10, "the samples are gone");
    for sample in &samples {
        let (ours, messages) = sample.output(cudatrace(), folder.path());
        let name = sample.path.display();
        assert!(!messages.contains("error"), "{name}: {messages}");
        assert!(!ours.is_empty(), "{name} prints nothing: {messages}");
        for wanted in sample.head("expect") {
            let regex = Regex::new(wanted).expect("a regular expression");
            assert!(ours.iter().any(|line| regex.is_match(line)), "{name}: no `{wanted}` in {ours:#?}");
        }
    }
}

#[test]
fn common_features_print_as_in_bpftrace_0_17() {
    if !can_trace() {
        return;
    }
    if bpftrace().is_none() {
        return eprintln!("skipped: {COMPARED} is not installed");
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room in /tmp");
    for sample in samples() {
        let compare: fn(&[String]) -> Vec<String> = match sample.other() {
            "same" => sorted,
            "shape" => shape,
            other => {
                let why = other.strip_prefix("differs: ").expect("same, shape or differs");
                eprintln!("{}: {why}", sample.path.file_name().unwrap_or_default().to_string_lossy());
                continue;
            }
        };
        let (theirs, said) = sample.output(bpftrace().expect("it was there"), folder.path());
        let (ours, _) = sample.output(cudatrace(), folder.path());
        assert_eq!(compare(&ours), compare(&theirs), "{}: {said}", sample.path.display());
    }
}

/// A folder with the layout of bpftrace's source tree, with a program for each verdict that does not need
/// bpftrace.
const SUITE: &str = r#"# A comment.
NAME prints
PROG BEGIN { printf("three %d\n", 3); exit() }
EXPECT three [0-9]
TIMEOUT 5

NAME prints after the probes are attached
RUN {{BPFTRACE}} -e 't:sched:sched_process_exec / strcontains(args.filename, "true") / { printf("seen\n"); exit() }'
EXPECT ^seen$
AFTER /bin/true
TIMEOUT 20

NAME prints something else
PROG BEGIN { printf("four\n"); exit() }
EXPECT three
TIMEOUT 5

NAME is refused
PROG frobnicate:x { exit() }
EXPECT three
TIMEOUT 5

NAME needs what is not there
PROG BEGIN { exit() }
EXPECT three
REQUIRES false
TIMEOUT 5
"#;

#[test]
fn the_comparison_with_bpftrace_has_a_verdict_for_each_program() {
    if !can_trace() || !has_installed("python3") {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("room in /tmp");
    let tests = folder.path().join("tests/runtime");
    std::fs::create_dir_all(&tests).expect("room in /tmp");
    std::fs::write(tests.join("mine"), SUITE).expect("room in /tmp");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/test-bpftrace.py");
    let tracer = env!("CARGO_BIN_EXE_cudatrace");
    let output = Command::new("python3")
        .arg(script)
        .args(["--bpftrace", "", "--patience", "4", "--cudatrace", tracer])
        .arg(folder.path())
        .output()
        .expect("it starts");
    let text = stdout(&output);
    for wanted in [
        r"(?m)^same +mine\.prints$",
        r"(?m)^same +mine\.prints after the probes are attached$",
        r"(?m)^different +mine\.prints something else +no `three`$",
        r"(?m)^refused +mine\.is refused +error\[E0101\]: unknown kind of probe `frobnicate`$",
        r"(?m)^skipped +mine\.needs what is not there +requires `false`$",
        r"(?m)^all +5$",
    ] {
        assert!(Regex::new(wanted).expect("a regex").is_match(&text), "{wanted}: {text}{}", stderr(&output));
    }
}
