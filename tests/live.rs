//! Live tests: a real script on a real library and process, through the real kernel.
//!
//! Each `tests/live/*.test` holds cases of this form; a line that starts with blanks continues the one before.
//!
//! ```text
//! NAME     what holds
//! ARGS     more arguments for cudatrace
//! SCRIPT   uprobe:libcuda:cuInit { @ = count() }
//! RUN      {examples}/workload_driver --threads 2
//! BEFORE   5 {examples}/hammer --threads 4
//! EXPECT   this exact line is printed
//! MATCH    a line matches this regular expression
//! KERNEL   why only the kernel gives this result; not run with `CUDATRACE_LIVE_IN_PROCESS`
//! ABSENT   no line, of messages neither, matches this one
//! MESSAGE  a line on standard error matches this one
//! TRUTH    count {0} {1} => @[{0}]: {1}
//! STATUS   0
//! DEVICES  1 nvidia
//! ALONE    watchpoints
//! ```
//!
//! `TRUTH`: for each line of the traced program that has the left form, the right one must be printed. `RUN` is the command after
//! `--`; `{examples}` is the folder of the built examples, `{programs}` `tests/programs`, `{cgroup}` the mount point of cgroup v2. No sleeps: a case ends when its program does. `BEFORE` is the number of
//! threads and the command of a program that runs before cudatrace starts and after it has ended; `{pid}` is its process id.
//! `DEVICES` is a row of the `/proc/devices` that cudatrace sees: calls on the devices with this major number, which exists, are
//! traced as those on NVIDIA's. Cases of the same `ALONE` run one after another: they need something of which the machine has few.
//!
//! `CUDATRACE_LIVE_CASES=FILE:FILE` selects other files, `CUDATRACE_LIVE_ORDER=FILE` of their cases those whose
//! names are the lines of this file, `CUDATRACE_LIVE_SECONDS` is the time limit of a case, `CUDATRACE_LIVE_LOG=FILE` gets each
//! failure at once: all for `tools/test-kernels.sh`, which runs this program on other kernels in a slow machine.
//!
//! `CUDATRACE_LIVE_IN_PROCESS=1` adds `--in-process` to each case that starts a program: the output must be the same. What cannot run
//! there runs in the kernel.

mod common;

use common::{Running, examples, obstacle, wait_for};
use libtest_mimic::{Arguments, Failed, Trial};
use regex::Regex;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of a case.
fn time_limit() -> Duration {
    let seconds =
        std::env::var("CUDATRACE_LIVE_SECONDS").map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(60))
}

#[derive(Clone, Debug, Default)]
struct Case {
    name: String,
    directives: Vec<(String, String)>,
}

impl Case {
    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.directives.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    fn last(&self, key: &str) -> Option<&str> {
        self.directives.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let obstacle = obstacle();
    if let (true, Some(reason)) = (common::is_required(), &obstacle) {
        eprintln!("live tests are required here, but {reason}");
        return ExitCode::FAILURE;
    }
    if let Some(reason) = &obstacle {
        eprintln!("live tests skipped: {reason}");
    }
    let trials = cases()
        .into_iter()
        .filter(|case| !in_process() || case.last("RUN").is_some() && case.last("KERNEL").is_none())
        .map(|case| {
            let name = case.name.clone();
            Trial::test(name, move || run(&case).inspect_err(|failed| log(&case, failed)))
                .with_ignored_flag(obstacle.is_some())
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whether programs are traced without the kernel where that is possible.
fn in_process() -> bool {
    std::env::var_os(IN_PROCESS).is_some()
}

/// Parts of the messages that say why a script cannot run in the traced process.
const IN_THE_KERNEL: [&str; 2] = ["; it runs in the kernel instead", "Traced by the kernel: "];

const IN_PROCESS: &str = "CUDATRACE_LIVE_IN_PROCESS";

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = files().iter().flat_map(|file| parse(file)).collect();
    if let Some(order) = std::env::var_os("CUDATRACE_LIVE_ORDER") {
        let order = std::fs::read_to_string(&order).expect("a file with the names of cases");
        let ordered: HashSet<&str> = order.lines().collect();
        cases.retain(|case| ordered.contains(case.name.as_str()));
    }
    cases
}

fn files() -> Vec<PathBuf> {
    if let Some(chosen) = std::env::var_os("CUDATRACE_LIVE_CASES") {
        return std::env::split_paths(&chosen).collect();
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live");
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "test")).collect();
    files.sort();
    files
}

fn parse(file: &Path) -> Vec<Case> {
    let stem = file.file_stem().unwrap().to_string_lossy();
    let mut cases: Vec<Case> = Vec::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            let (_, value) = cases.last_mut().unwrap().directives.last_mut().expect("a line to continue");
            value.push('\n');
            value.push_str(line.trim_start());
            continue;
        }
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if key == "NAME" {
            cases.push(Case { name: format!("{stem}: {}", value.trim()), directives: vec![] });
        } else {
            let case = cases.last_mut().expect("NAME comes first");
            case.directives.push((key.into(), value.trim().into()));
        }
    }
    cases
}

fn run(case: &Case) -> Result<(), Failed> {
    let known = [
        "ARGS", "SCRIPT", "RUN", "EXPECT", "MATCH", "ABSENT", "MESSAGE", "TRUTH", "STATUS", "ENV", "BEFORE",
        "DEVICES", "KERNEL", "ALONE",
    ];
    if let Some((key, _)) = case.directives.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        return Err(format!("unknown directive {key}").into());
    }
    let _turn = case.last("ALONE").map(take_turn);
    let mut result = Ok(());
    for _ in 0..MISSED_TRIES {
        let output = trace(case)?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let failed =
            |wrong| format!("{wrong}\n--- stdout\n{}--- stderr\n{}", cut(&stdout), cut(&stderr)).into();
        result = verdict(case, &stdout, &stderr, output.status.code()).map_err(failed);
        if result.is_ok() || !MISSED.iter().any(|missed| stderr.contains(missed)) {
            break;
        }
    }
    result
}

/// Waits until no other case that names this resource runs.
fn take_turn(resource: &str) -> MutexGuard<'static, ()> {
    static TURNS: LazyLock<Mutex<HashMap<String, &'static Mutex<()>>>> = LazyLock::new(Mutex::default);
    let turn = *TURNS.lock().unwrap().entry(resource.to_owned()).or_insert_with(|| Box::leak(Box::default()));
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages of a run whose result cannot be exact: the kernel has left out events of tracepoints, because of other BPF programs and maps
/// on the machine. Such a run is repeated.
const MISSED: [&str; 2] = ["event was missed", "events were missed"];
/// Number of runs before such a failure counts.
const MISSED_TRIES: u32 = 4;

/// Writes a failure to the file of `CUDATRACE_LIVE_LOG`. The list of failures after the last case is lost if the machine
/// does not survive it.
fn log(case: &Case, failed: &Failed) {
    let Some(path) = std::env::var_os("CUDATRACE_LIVE_LOG") else { return };
    let text = format!("{}: {}\n", case.name, failed.message().unwrap_or_default());
    let file = std::fs::File::options().append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the log can be written");
}

fn cut(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.iter().take(60).map(|line| format!("{line}\n")).collect::<String>();
    if lines.len() > 60 { format!("{shown}... {} more lines\n", lines.len() - 60) } else { shown }
}

fn trace(case: &Case) -> Result<Output, Failed> {
    let build = examples();
    let fill = |text: &str| {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        text.replace("{examples}", &build.to_string_lossy())
            .replace("{programs}", &programs.to_string_lossy())
            .replace("{cgroup}", &cgroup_mount())
    };
    let before = case.last("BEFORE").map(|text| start_before(&fill(text))).transpose()?;
    let pid = before.as_ref().map_or(String::new(), |running| running.pid().to_string());
    let fill = |text: &str| fill(text).replace("{pid}", &pid);
    let mut command = common::cudatrace();
    // Its name is similar to that of a setting.
    command.env_remove(IN_PROCESS);
    for pair in case.all("ENV") {
        let (name, value) = pair.split_once('=').ok_or("ENV wants NAME=VALUE")?;
        command.env(name, fill(value));
    }
    let devices: Vec<(&str, u32)> = case.all("DEVICES").filter_map(device).collect();
    if !devices.is_empty() {
        common::with_devices(&mut command, &devices);
    }
    for args in case.all("ARGS") {
        command.args(shell_words::split(&fill(args)).map_err(|e| e.to_string())?);
    }
    if let Some(script) = case.last("SCRIPT") {
        command.arg("-e").arg(fill(script));
    }
    if let Some(program) = case.last("RUN") {
        if in_process() && case.all("ARGS").all(|args| !args.contains("--no-children")) {
            command.arg("--in-process");
        }
        command.arg("--").args(shell_words::split(&fill(program)).map_err(|e| e.to_string())?);
    }
    finish(command)
}

/// `1 nvidia`: the major number and the name.
fn device(row: &str) -> Option<(&str, u32)> {
    let (major, name) = row.split_once(' ')?;
    Some((name, major.parse().ok()?))
}

/// Mount point of cgroups version 2.
fn cgroup_mount() -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.find(|fields| fields.get(2) == Some(&"cgroup2"));
    found.map_or("/sys/fs/cgroup".into(), |fields| fields[1].to_owned())
}

/// Starts the program of `BEFORE`, `THREADS PROGRAM`, and waits for its threads.
fn start_before(text: &str) -> Result<Running, Failed> {
    let (threads, program) = text.split_once(' ').ok_or("BEFORE wants THREADS PROGRAM")?;
    let threads: usize = threads.parse()?;
    let words = shell_words::split(program).map_err(|e| e.to_string())?;
    let (program, arguments) = words.split_first().ok_or("BEFORE wants THREADS PROGRAM")?;
    let running = Running::start(Command::new(program).args(arguments));
    let tasks = format!("/proc/{}/task", running.pid());
    wait_for("its threads", || std::fs::read_dir(&tasks).is_ok_and(|list| list.count() == threads));
    Ok(running)
}

/// Runs a command to its end; kills it after the time limit.
fn finish(mut command: Command) -> Result<Output, Failed> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id() as i32;
    let waiter = std::thread::spawn(move || child.wait_with_output());
    let (start, limit) = (Instant::now(), time_limit());
    while !waiter.is_finished() {
        if start.elapsed() > limit {
            // SAFETY: the child has not been waited for, so the pid is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            return Err(format!("not finished after {limit:?}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(waiter.join().expect("the waiter does not panic")?)
}

fn verdict(case: &Case, stdout: &str, stderr: &str, status: Option<i32>) -> Result<(), String> {
    let has = |wanted: &str| stdout.lines().any(|line| line.trim_end() == wanted.trim_end());
    if let Some(wanted) = case.all("EXPECT").flat_map(str::lines).find(|wanted| !has(wanted)) {
        return Err(format!("expected the line `{wanted}`"));
    }
    for (key, text) in [("MATCH", stdout), ("MESSAGE", stderr)] {
        for pattern in case.all(key) {
            if !text.lines().any(|line| regex(pattern).is_match(line)) {
                return Err(format!("no line matches {key} `{pattern}`"));
            }
        }
    }
    for pattern in case.all("ABSENT") {
        let is_reason = |line: &&str| IN_THE_KERNEL.iter().any(|part| line.contains(part));
        let said = stderr.lines().filter(|line| !(in_process() && is_reason(line)));
        if let Some(line) = stdout.lines().chain(said).find(|line| regex(pattern).is_match(line)) {
            return Err(format!("`{line}` matches ABSENT `{pattern}`"));
        }
    }
    for rule in case.all("TRUTH") {
        truth(rule, stdout)?;
    }
    let wanted = case.last("STATUS").map_or(0, |text| text.parse().expect("STATUS is a number"));
    if status != Some(wanted) {
        Err(format!("expected exit status {wanted}, found {status:?}"))
    } else {
        Ok(())
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| panic!("{error}"))
}

fn truth(rule: &str, stdout: &str) -> Result<(), String> {
    let (left, right) = rule.split_once("=>").ok_or("TRUTH wants `left => right`")?;
    let word =
        |form: &str| regex(r"\\\{\d\\\}").replace_all(&regex::escape(form.trim()), r"(\S+)").into_owned();
    let pattern = regex(&format!("^{}$", word(left)));
    let mut seen = 0;
    for captures in stdout.lines().filter_map(|line| pattern.captures(line)) {
        let mut wanted = right.trim().to_string();
        for (at, group) in captures.iter().skip(1).flatten().enumerate() {
            wanted = wanted.replace(&format!("{{{at}}}"), group.as_str());
        }
        if !stdout.lines().any(|line| line == wanted) {
            return Err(format!("the program says `{}`, so `{wanted}` was expected", &captures[0]));
        }
        seen += 1;
    }
    if seen == 0 { Err(format!("the program printed nothing like `{}`", left.trim())) } else { Ok(()) }
}
