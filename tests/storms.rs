//! Sessions that come, go and are killed while many threads call the patched functions, for programs that were compiled in many ways.
//! The results of all calls must be right, and at the end the program must be as it was.
//!
//! `STORM_CYCLES=200 STORM_KILLS=100` are the numbers for each program, `STORM_OPTIONS=-O2` selects one, and `STORM_SEED` is the first random
//! number.

mod common;

use common::{Running, can_trace, cudatrace, number, stderr, text};
use sim::rng::Rng;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Sessions that end by themselves, and sessions that are killed, for each program.
const CYCLES: u64 = 3;
const KILLS: u64 = 2;
const THREADS: &str = "6";

/// Options of the compiler, and shapes that cannot be patched, see `shapes.rs`.
const ROWS: [(&str, &[&str]); 7] = [
    ("-O0", &["switch"]),
    ("-O1", &["constant", "leaf", "load", "loop", "switch", "variadic"]),
    ("-O2", &["branch", "switch", "tail"]),
    ("-O3", &["branch", "switch", "tail"]),
    ("-O2 -fcf-protection=full", &["branch", "switch", "tail"]),
    ("-O2 -mindirect-branch=thunk -mfunction-return=thunk", &["branch", "tail"]),
    ("-O2 -fpatchable-function-entry=16,8", &["switch"]),
];

const SHAPES: [&str; 14] = [
    "constant",
    "leaf",
    "load",
    "branch",
    "loop",
    "calls",
    "tail",
    "recursive",
    "frame",
    "switch",
    "variadic",
    "many",
    "pointer",
    "double",
];

/// Bodies of a script at the entry and at the return of each function.
const BODIES: [(&str, &str); 4] = [
    ("@[func] = count()", "@r[func] = count()"),
    ("@[tid, arg0 & 15] = count()", "@h = hist(duration)"),
    ("printf(\"%d\\n\", arg0)", "@s[func] = stats(retval)"),
    ("@u[ustack(4)] = count()", "@[pid] = avg(duration)"),
];

/// A program in a storm of calls.
struct Storm {
    child: Child,
    output: BufReader<ChildStdout>,
    library: PathBuf,
    code: Vec<u8>,
}

impl Storm {
    fn start(folder: &Path, options: &str) -> Storm {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let compile = |to: &str, source: &str, options: &[&str]| {
            let to = folder.join(to);
            let mut command = Command::new("gcc");
            let built = command.arg("-w").arg("-o").arg(&to).arg(sources.join(source)).args(options).output();
            let built = built.expect("gcc is installed");
            assert!(built.status.success(), "{options:?}: {}", stderr(&built));
            to
        };
        // Jumps after other first instructions than `push` are made in CUDA's libraries only.
        let mut shared: Vec<&str> = options.split(' ').collect();
        shared.extend(["-shared", "-fPIC", "-Wl,-Bsymbolic"]);
        let library = compile("libcufft.so.12", "shapes.c", &shared);
        let program = compile("storm", "storm.c", &["-O1", "-pthread", text(&library)]);
        let mut command = Command::new(program);
        let mut child =
            command.arg(THREADS).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut storm = Storm { child, output, library, code: vec![] };
        assert_eq!(storm.line(), "running");
        storm.code = storm.read_code();
        storm
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn write(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }

    /// The library's code in the process.
    fn read_code(&self) -> Vec<u8> {
        let pid = self.child.id();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
        let is_code = |line: &&str| line.contains("r-xp") && line.ends_with(text(&self.library));
        let line = maps.lines().find(is_code).expect("it has the library");
        let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
        let mut code = vec![0; (end - start) as usize];
        let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("root may");
        memory.read_exact_at(&mut code, start).expect("it is mapped");
        code
    }

    fn script(&self, refused: &[&str], rng: &mut Rng) -> String {
        let (at_entry, at_return) = *rng.pick(&BODIES);
        let shapes: Vec<&str> = SHAPES.into_iter().filter(|shape| !refused.contains(shape)).collect();
        let shapes: BTreeSet<&str> = (0..6).map(|_| *rng.pick(&shapes)).collect();
        let specs = |provider: &str| {
            let spec = |shape| format!("{provider}:{}:shape_{shape}", text(&self.library));
            shapes.iter().map(spec).collect::<Vec<_>>().join(", ")
        };
        format!("{} {{ {at_entry} }} {} {{ {at_return} }}", specs("uprobe"), specs("uretprobe"))
    }

    fn session(&self, script: &str) -> Command {
        let mut command = cudatrace();
        command.args(["--in-process", "-e", script, "-p", &self.child.id().to_string()]);
        command
    }

    /// A session that ends by itself.
    fn cycle(&mut self, refused: &[&str], rng: &mut Rng, name: &str) {
        let script = format!("{} interval:ms:{} {{ exit() }}", self.script(refused, rng), 1 + rng.below(60));
        let output = self.session(&script).stdout(Stdio::null()).output().expect("cudatrace starts");
        let said = stderr(&output);
        assert!(output.status.success(), "{name}: {said}");
        assert!(
            said.contains(" in 1 process, without the kernel")
                || said.contains(" processes, without the kernel"),
            "{name}: {said}"
        );
        self.assert_runs(name);
        assert!(self.read_code() == self.code, "{name}: the code differs: {said}");
    }

    /// A session that is killed at any moment from its start to its end.
    fn kill(&mut self, refused: &[&str], rng: &mut Rng, name: &str) {
        let script = format!("{} interval:ms:100 {{ exit() }}", self.script(refused, rng));
        let mut command = self.session(&script);
        let mut tracer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_micros(rng.below(600_000)));
        let _ = tracer.kill();
        tracer.wait().expect("it ends");
        self.assert_runs(name);
    }

    fn assert_runs(&mut self, name: &str) {
        assert_eq!(self.child.try_wait().expect("ours"), None, "{name}: the program ended");
    }

    /// Number of calls of `shape_calls` so far; there are none before the next line.
    fn rest(&mut self) -> u64 {
        self.write();
        let line = self.line();
        line.strip_prefix("calls ").and_then(|count| count.parse().ok()).expect("a number")
    }

    /// Calls between two moments without calls are counted exactly. Forked children have called, too.
    fn assert_counts(&mut self, name: &str) {
        let function = format!("{}:shape_calls", text(&self.library));
        let pid = self.child.id();
        let script = format!(
            "BEGIN {{ printf(\"begun\\n\") }} interval:ms:10 {{ printf(\"attached\\n\") }}
             uprobe:{function} /pid == {pid}/ {{ @in = count() }} uretprobe:{function} /pid == {pid}/ {{ @out = count() }}"
        );
        let before = self.rest();
        let mut tracer = Running::start(&mut self.session(&script));
        tracer.wait_for_line("attached");
        self.write();
        std::thread::sleep(Duration::from_millis(30));
        let calls = self.rest() - before;
        tracer.signal(libc::SIGINT);
        let lines = tracer.lines();
        for map in ["@in", "@out"] {
            assert!(lines.contains(&format!("{map}: {calls}")), "{name}: {map}: not {calls}: {lines:?}");
        }
        self.write();
    }

    fn end(mut self, name: &str) {
        drop(self.child.stdin.take());
        let end = self.line();
        assert!(end.starts_with("calls ") && end.ends_with(" errors 0"), "{name}: {end}");
        assert!(self.child.wait().expect("ours").success(), "{name}: {end}");
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sessions_come_go_and_are_killed_in_a_storm_of_calls() {
    if !can_trace() {
        return;
    }
    let cycles = number("STORM_CYCLES").unwrap_or(CYCLES);
    let kills = number("STORM_KILLS").unwrap_or(KILLS);
    let seed = number("STORM_SEED").unwrap_or(1);
    let mut rng = Rng::new(seed);
    let only = std::env::var("STORM_OPTIONS").ok();
    for (options, refused) in ROWS.into_iter().filter(|row| only.as_deref().is_none_or(|only| only == row.0))
    {
        let folder = tempfile::tempdir().expect("a folder");
        let mut storm = Storm::start(folder.path(), options);
        let mut left = (cycles, kills);
        while left != (0, 0) {
            let name = format!("STORM_SEED={seed}, {options}, {left:?} left");
            if rng.below(left.0 + left.1) < left.0 {
                left.0 -= 1;
                storm.cycle(refused, &mut rng, &name);
            } else {
                left.1 -= 1;
                storm.kill(refused, &mut rng, &name);
            }
        }
        storm.assert_counts(options);
        assert!(storm.read_code() == storm.code, "{options}: the code differs at the end");
        storm.end(options);
    }
}
