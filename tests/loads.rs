//! A process that already runs is made to load the agent, whatever its threads are doing, and whatever becomes of the tracer.

mod common;

use common::{Running, can_trace, cudatrace, example, number, program, stderr, stdout, text, wait_for};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Ends as soon as records have come.
const SOME: &str =
    "gpu:memcpy { @n = count() } interval:ms:50 { if ((uint64)@n > 50) { exit() } } interval:s:15 { exit() }";
const NONE: &str = "gpu:memcpy { @n = count() } interval:ms:400 { exit() }";
const ALL: &str = "gpu:memcpy { @n = count() }";
const ENGINES: [&[&str]; 2] = [&[], &["--in-process"]];

/// A running program, with its input.
struct Job {
    running: Running,
    input: std::io::PipeWriter,
}

impl Job {
    /// `library`: what it loads, besides.
    fn start(mode: &str, library: &str, release: &Path) -> Option<Job> {
        let program = can_trace().then(|| program("loads.c", &[])).flatten()?;
        let (input, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(program);
        command.args([&example("libcuda.so.1"), mode, library]).stdin(input).env("RELEASE", release);
        let mut running = Running::start(&mut command);
        running.wait_for_line("ready");
        Some(Job { running, input: writer })
    }

    fn line(&mut self) {
        std::io::Write::write_all(&mut self.input, b"\n").expect("it reads");
    }

    fn command(&self, engine: &[&str], script: &str) -> Command {
        let mut command = cudatrace();
        command.args(engine).args(["-e", script, "-p", &self.running.pid().to_string()]);
        command
    }

    fn trace(&self, engine: &[&str], script: &str) -> Output {
        self.command(engine, script).output().expect("cudatrace runs")
    }

    /// Waits until all threads have gone on.
    fn goes_on(&mut self) {
        let lives = |running: &mut Running| {
            running.has_printed("alive");
            running.printed_lines().iter().filter(|line| *line == "alive").count()
        };
        let before = lives(&mut self.running);
        // The first one may have been printed before.
        wait_for("all threads of the program", || lives(&mut self.running) > before + 1);
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.running.pid())).expect("it runs").count()
    }

    fn has_region(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.running.pid())).expect("it runs");
        maps.contains("/memfd:cudatrace (deleted)")
    }

    /// Lets it end, which it does as without a tracer.
    fn end(mut self) -> Vec<String> {
        drop(self.input);
        let (status, _) = self.running.ended();
        assert!(status.success(), "{status:?}: {:#?}", self.running.lines());
        self.running.lines()
    }
}

fn records(output: &Output) -> u64 {
    let text = stdout(output);
    let count = text.lines().find_map(|line| line.strip_prefix("@n: ")?.parse().ok());
    count.unwrap_or_else(|| panic!("no count: {text}{}", stderr(output)))
}

#[test]
fn a_process_that_calls_the_driver_later_loads_the_agent_then() {
    for engine in ENGINES {
        let Some(mut job) = Job::start("idle", "", Path::new("")) else { return };
        let mut tracer = Running::start(job.command(engine, SOME).arg("-v"));
        tracer.wait_for_line("loads the agent for GPU records at its next call of the driver");
        std::thread::sleep(Duration::from_secs(1));
        assert!(!tracer.has_printed("loaded the agent"), "{:#?}", tracer.printed_lines());
        job.line();
        tracer.wait_for_line("@n: ");
        assert!(tracer.has_printed("loaded the agent"), "{:#?}", tracer.printed_lines());
        tracer.ended();
        job.goes_on();
        job.end();
    }
}

#[test]
fn a_process_that_never_calls_the_driver_is_left_as_it_was() {
    for engine in ENGINES {
        let Some(mut job) = Job::start("idle", "", Path::new("")) else { return };
        let before = job.descriptors();
        for _ in 0..2 {
            let output = job.trace(engine, NONE);
            let messages = stderr(&output);
            assert_eq!((output.status.code(), records(&output)), (Some(0), 0), "{messages}");
            assert!(messages.contains("made no call of CUDA's driver while it was traced"), "{messages}");
            assert!(!messages.contains("warning") && !messages.contains("error"), "{messages}");
            assert_eq!((job.descriptors(), job.has_region()), (before, false));
        }
        job.line();
        let output = job.trace(engine, SOME);
        assert!(records(&output) > 0, "{}", stderr(&output));
        job.goes_on();
        job.end();
    }
}

#[test]
fn descriptors_that_a_killed_tracer_has_left_are_closed_by_the_next_one() {
    for engine in ENGINES {
        let Some(job) = Job::start("idle", "", Path::new("")) else { return };
        let before = job.descriptors();
        let mut tracer = Running::start(job.command(engine, ALL).arg("-v"));
        tracer.wait_for_line("at its next call of the driver");
        tracer.signal(libc::SIGKILL);
        tracer.ended();
        assert_eq!(job.descriptors(), before + 2);
        assert_eq!(records(&job.trace(engine, NONE)), 0);
        assert_eq!((job.descriptors(), job.has_region()), (before, false));
        job.end();
    }
}

#[test]
fn a_lock_of_malloc_that_a_thread_holds_keeps_no_call_waiting() {
    for engine in ENGINES {
        let Some(mut job) = Job::start("malloc", "", Path::new("")) else { return };
        let output = job.trace(engine, SOME);
        assert!(records(&output) > 0, "{}", stderr(&output));
        job.goes_on();
        job.line();
        let output = job.trace(engine, SOME);
        assert!(records(&output) > 0, "{}", stderr(&output));
        job.end();
    }
}

#[test]
fn the_loader_is_waited_for_by_no_thread_of_the_program() {
    let Some(library) = program("loads.c", &["-shared", "-fPIC", "-DLIBRARY"]) else { return };
    for engine in ENGINES {
        let folder = tempfile::tempdir().expect("a folder");
        let release = folder.path().join("release");
        let Some(mut job) = Job::start("loader", text(&library), &release) else { return };
        let mut tracer = Running::start(job.command(engine, SOME).arg("-v"));
        tracer.wait_for_line("at its next call of the driver");
        for _ in 0..5 {
            job.goes_on();
        }
        assert!(!tracer.has_printed("loaded the agent"), "{:#?}", tracer.printed_lines());
        std::fs::write(&release, "").expect("a file");
        tracer.wait_for_line("loaded the agent");
        tracer.wait_for_line("@n: ");
        tracer.ended();
        job.goes_on();
        job.end();
    }
}

#[test]
fn a_tracer_that_ends_or_is_killed_while_the_loader_waits_leaves_a_program_that_goes_on() {
    let Some(library) = program("loads.c", &["-shared", "-fPIC", "-DLIBRARY"]) else { return };
    for (engine, signal) in
        ENGINES.iter().flat_map(|engine| [(engine, libc::SIGINT), (engine, libc::SIGKILL)])
    {
        let folder = tempfile::tempdir().expect("a folder");
        let release = folder.path().join("release");
        let Some(mut job) = Job::start("loader", text(&library), &release) else { return };
        let mut tracer = Running::start(job.command(engine, ALL).arg("-v"));
        tracer.wait_for_line("at its next call of the driver");
        job.goes_on();
        tracer.signal(signal);
        tracer.ended();
        job.goes_on();
        std::fs::write(&release, "").expect("a file");
        job.running.wait_for_line("loaded");
        job.goes_on();
        let output = job.trace(engine, SOME);
        assert!(records(&output) > 0, "{}", stderr(&output));
        job.goes_on();
        assert!(!job.has_region());
        job.end();
    }
}

#[test]
fn a_program_outlives_a_tracer_that_is_killed_while_it_makes_it_load_the_agent() {
    let kills = number("CUDATRACE_KILLS").unwrap_or(20);
    let mut state = 1u64;
    for engine in ENGINES {
        let Some(mut job) = Job::start("storm", &example("liblate.so"), Path::new("")) else { return };
        for _ in 0..kills {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut command = job.command(engine, ALL);
            let tracer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let mut tracer = tracer.expect("cudatrace starts");
            std::thread::sleep(Duration::from_micros((state >> 33) % 500_000));
            tracer.kill().expect("it runs");
            tracer.wait().expect("a child");
            job.goes_on();
        }
        // Its memory may be too full for programs by now.
        if engine.is_empty() {
            let output = job.trace(engine, SOME);
            assert!(records(&output) > 0, "{}", stderr(&output));
        }
        job.goes_on();
        let lines = job.end();
        assert!(
            !lines.iter().any(|line| line.contains("failed") || line.contains("not loaded")),
            "{lines:#?}"
        );
    }
}
