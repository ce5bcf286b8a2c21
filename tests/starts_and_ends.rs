//! Records of the GPU in processes that start and end in every way, by each engine, of `--` and `-p`: each launch has a record, or is told to have
//! none. A cell of the table is a way to start, a way to end, an engine, and how the tracer got the processes.

mod common;

use common::{Running, can_trace, cudatrace, example, program};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Launches of each process.
const LAUNCHES: u64 = 200;
/// Launches of a process after it could not execute a program.
const MORE: u64 = 10;
const ENDS: &[&str] = &[
    "exit",
    "_exit",
    "quick_exit",
    "abort",
    "kill",
    "term",
    "segv",
    "exec",
    "failed_exec",
    "thread",
    MEANWHILE,
];
/// Another thread launches until the end.
const MEANWHILE: &str = "meanwhile";
/// Ends after which the last records may be missing, which is told: no process can survive them for a moment, or there is no last launch.
const SUDDEN: &[&str] = &["kill", "term", "segv", MEANWHILE];
const SCRIPT: &str = "gpu:kernel { @gpu[pid] = count() } cuda:launch { @launched[pid] = count() }";

/// A table of ends.
#[derive(Copy, Clone)]
struct Table {
    start: &'static str,
    ends: &'static [&'static str],
    /// Processes of each end.
    count: usize,
    in_process: bool,
    /// The processes run before the tracer.
    runs_before: bool,
    /// The tracer is stopped until the processes have ended, as if it were busy.
    is_late: bool,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = if self.in_process { "in process" } else { "in the kernel" };
        let way = if self.runs_before { "-p" } else { "--" };
        write!(f, "{} x {}, {engine}, {way}", self.start, self.count)
    }
}

/// Results of a traced process.
struct ProcessResults {
    end: String,
    truth: u64,
    recorded: u64,
    launched: u64,
    messages: Vec<String>,
    /// Messages about no process in particular.
    others: Vec<String>,
}

impl ProcessResults {
    /// Whether the process was held for as long as it may be, since this machine is busy: what it did then is told to be missing.
    fn has_waited(&self, pid: u32) -> bool {
        let waited = format!("process {pid} waited for seconds until a library was attached");
        self.messages.iter().any(|line| line.contains(&waited))
    }
}

impl Table {
    fn arguments(&self) -> Vec<String> {
        let head = [self.start, &LAUNCHES.to_string(), &self.count.to_string()].map(str::to_owned);
        let ends = self.ends.iter().map(|end| (*end).to_owned());
        head.into_iter().chain([example("libcuda.so.1")]).chain(ends).collect()
    }

    /// The lines of both outputs of the tracer and the program.
    fn run(&self, program: &PathBuf) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("a pipe");
        let mut pipe = File::options().read(true).write(true).open(&fifo).expect("a pipe");
        let mut tracer = cudatrace();
        tracer.args(["-q", "-e", SCRIPT]).args(self.in_process.then_some("--in-process"));
        tracer.env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1").env("LD_LIBRARY_PATH", common::examples());
        if !self.runs_before {
            tracer.arg("--").arg(program).args(self.arguments());
            pipe.write_all(b"\n").expect("a line");
            return Running::start(tracer.stdin(pipe)).lines();
        }
        let mut traced = Command::new(program);
        traced.args(self.arguments()).env("LD_LIBRARY_PATH", common::examples());
        // New processes are found while they initialise CUDA, which takes as long on a real GPU.
        traced.env("CUDASIM_INIT_MS", "1500");
        let mut traced = Running::start(traced.stdin(pipe.try_clone().expect("a descriptor")));
        if self.start == "before" {
            traced.wait_for_line(self.ends.last().expect("there are ends"));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let mut tracer = Running::start(tracer.args(["-p", &traced.pid().to_string()]));
        tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
        self.is_late.then(|| tracer.signal(libc::SIGSTOP));
        pipe.write_all(b"\n").expect("a line");
        let said = traced.lines();
        self.is_late.then(|| tracer.signal(libc::SIGCONT));
        said.into_iter().chain(tracer.lines()).collect()
    }

    fn seen(&self, program: &PathBuf) -> BTreeMap<u32, ProcessResults> {
        let lines = self.run(program);
        let count = |map: &str, pid: u32| {
            let begin = format!("@{map}[{pid}]: ");
            lines.iter().find_map(|line| line.strip_prefix(&begin)?.parse().ok()).unwrap_or(0)
        };
        let mut all = BTreeMap::new();
        for line in &lines {
            let Some((pid, end)) = line.split_once(' ') else { continue };
            let (Ok(pid), true) = (pid.parse::<u32>(), self.ends.contains(&end)) else { continue };
            let of_process = |line: &&String| line.contains(&format!("process {pid}"));
            let messages = lines.iter().filter(of_process).cloned().collect();
            let is_other = |line: &&String| {
                ["warning", "error"].iter().any(|kind| line.starts_with(kind)) && !line.contains("process ")
            };
            let others = lines.iter().filter(is_other).cloned().collect();
            let (recorded, launched) = (count("gpu", pid), count("launched", pid));
            let truth = match end {
                "failed_exec" => LAUNCHES + MORE,
                MEANWHILE => launched,
                _ => LAUNCHES,
            };
            all.insert(
                pid,
                ProcessResults { end: end.to_owned(), truth, recorded, launched, messages, others },
            );
        }
        assert_eq!(all.len(), self.ends.len() * self.count, "{self}: {lines:#?}");
        all
    }

    /// Whether a process may end before the tracer has found it: a new one, and this machine is busy.
    fn may_miss(&self) -> bool {
        self.runs_before && self.start != "before"
    }

    /// The cells that are wrong.
    fn faults(&self, program: &PathBuf) -> Vec<String> {
        let fault = |(pid, seen): (u32, ProcessResults)| {
            let lost = seen.truth - seen.recorded.min(seen.truth);
            // One launch may be under way at the end.
            let more = u64::from(seen.end == MEANWHILE);
            let all = seen.truth.saturating_sub(more)..seen.truth + more + 1;
            let is_told = all.clone().any(|all| {
                let without = all - seen.recorded.min(all);
                (without - more.min(without)..=without + more).any(|without| {
                    let told = format!("process {pid}: {without} of {all} launches have no GPU record");
                    seen.messages.iter().any(|line| line.contains(&told))
                })
            });
            let has_none = format!("process {pid} has no GPU records: it ended before");
            let refused = format!("no GPU records of process {pid}: ");
            let first = format!("the first GPU records of process {pid} may be missing");
            let is_missed = seen.messages.iter().any(|line| {
                let is_whole = line.contains(&has_none) || line.contains(&refused);
                is_whole && seen.recorded == 0 || line.contains(&first)
            });
            if seen.has_waited(pid) {
                return None;
            }
            let is_right = match lost {
                _ if lost <= more && seen.messages.is_empty() => all.contains(&seen.recorded),
                _ => SUDDEN.contains(&&*seen.end) && is_told || self.may_miss() && is_missed,
            };
            (!is_right || seen.launched != seen.truth).then(|| {
                format!(
                    "{self}: {} ({pid}): {} records, {} launches counted, of {}; {:#?} {:#?}",
                    seen.end, seen.recorded, seen.launched, seen.truth, seen.messages, seen.others
                )
            })
        };
        let all = self.seen(program);
        let waiting = all.iter().filter(|(pid, seen)| seen.has_waited(**pid)).count();
        assert!(waiting * 2 < all.len(), "{self}: {waiting} of {} processes waited for too long", all.len());
        all.into_iter().filter_map(fault).collect()
    }
}

/// Whether all cells of some tables are right.
fn are_right(tables: impl IntoIterator<Item = Table>) {
    if !can_trace() {
        return;
    }
    let Some(program) = program("starts_and_ends.c", &["-ldl"]) else { return };
    let faults: Vec<String> = tables.into_iter().flat_map(|table| table.faults(&program)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Tables of these starts, of one and of four processes of each end, a dozen or so at once.
fn tables(starts: &[&'static str], runs_before: bool, in_process: bool) -> impl Iterator<Item = Table> {
    starts.iter().flat_map(move |start| {
        [1, 4].into_iter().flat_map(move |count| {
            let parts = ENDS.chunks(16 / count);
            parts.map(move |ends| Table { start, ends, count, in_process, runs_before, is_late: false })
        })
    })
}

/// Initialises the driver, and finds a kernel.
const START: &str = "
import ctypes
def start():
    d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0)
    c, m, f = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); d.cuCtxSetCurrent(c)
    ptx = b'.version 7.0 .target sm_50 .address_size 64 .visible .entry tick() { ret; }'
    d.cuModuleLoadData(ctypes.byref(m), ptx); d.cuModuleGetFunction(ctypes.byref(f), m, b'tick')
    return d, f
";

/// A process that launches 100 kernels for each line that it reads, with `graph` also a graph of one kernel 10 times, and calls nothing in between.
const BURSTS: &str = "
import sys, time
d, f = start()
s, g, e = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
d.cuStreamCreate(ctypes.byref(s), 0); d.cuStreamBeginCapture_v2(s, 0)
d.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, None, None)
d.cuStreamEndCapture(s, ctypes.byref(g)); d.cuGraphInstantiateWithFlags(ctypes.byref(e), g, 0)
print('ready', flush=True)
for line in sys.stdin:
    for _ in range(100):
        d.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, None, None); time.sleep(.001)
    failed = sum(d.cuGraphLaunch(e, s) != 0 for _ in range(10 if 'graph' in sys.argv else 0))
    d.cuCtxSynchronize()
    print(failed, 'failed in burst', line, flush=True)
";

/// Sessions in a process that is idle between them: the first launch of each session has a record, and so has each after it.
#[test]
fn sessions_in_an_idle_process_have_all_records() {
    if !can_trace() || !common::has_installed("python3") {
        return;
    }
    let mut idle = IdleProcess::start(&[]);
    for session in 0..10 {
        let script = "gpu:kernel { @gpu = count() } cuda:launch { @launched = count() }";
        let said = idle.session(script, session % 2 == 1);
        for wanted in ["@gpu: 100", "@launched: 100"] {
            assert!(said.iter().any(|line| line == wanted), "session {session}: {said:#?}");
        }
        assert!(
            said.iter().any(|line| line.contains("GPU times are exact (")),
            "session {session}: {said:#?}"
        );
    }
}

/// A process of [`BURSTS`], which is idle but for [`IdleProcess::work`].
struct IdleProcess {
    process: Running,
    lines: std::io::PipeWriter,
    bursts: u32,
}

impl IdleProcess {
    fn start(arguments: &[&str]) -> IdleProcess {
        let mut process = Command::new("python3");
        process
            .args(["-c", &[START, BURSTS].concat()])
            .args(arguments)
            .env("LD_LIBRARY_PATH", common::examples());
        let (input, lines) = std::io::pipe().expect("a pipe");
        let mut process = Running::start(process.stdin(input));
        process.wait_for_line("ready");
        IdleProcess { process, lines, bursts: 0 }
    }

    /// Lets it work once. No call fails.
    fn work(&mut self) {
        self.bursts += 1;
        writeln!(self.lines, "{}", self.bursts).expect("it reads");
        let done = format!("failed in burst {}", self.bursts);
        self.process.wait_for_line(&done);
        let lines = self.process.printed_lines();
        assert!(lines.contains(&format!("0 {done}")), "{lines:#?}");
    }

    /// Traces one burst; returns what was said.
    fn session(&mut self, script: &str, in_process: bool) -> Vec<String> {
        let mut tracer = cudatrace();
        tracer.args(["-e", script, "-p", &self.process.pid().to_string()]);
        tracer.args(in_process.then_some("--in-process")).env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1");
        let mut tracer = Running::start(&mut tracer);
        tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
        self.work();
        tracer.signal(libc::SIGINT);
        tracer.lines()
    }
}

/// A process that for a line forks one that launches kernels and ends, and waits for that only after a second line.
const UNREAPED: &str = "
import os, sys
print('ready', flush=True); sys.stdin.readline()
pid = os.fork()
if pid == 0:
    d, f = start()
    for _ in range(100): d.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, None, None)
    d.cuCtxSynchronize(); os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print('ended', pid, flush=True); sys.stdin.readline(); os.waitpid(pid, 0)
";

/// The tracer gets no CPU meanwhile.
#[test]
fn a_process_that_has_ended_and_was_not_waited_for_is_told() {
    if !can_trace() || !common::has_installed("python3") {
        return;
    }
    for in_process in [false, true] {
        let (input, mut lines) = std::io::pipe().expect("a pipe");
        let mut process = Command::new("python3");
        process
            .args(["-c", &[START, UNREAPED].concat()])
            .env("LD_LIBRARY_PATH", common::examples())
            .stdin(input);
        // As long as on a real GPU.
        process.env("CUDASIM_INIT_MS", "300");
        let mut process = Running::start(&mut process);
        process.wait_for_line("ready");
        let mut tracer = cudatrace();
        tracer.args(["-q", "-e", "gpu:kernel { @gpu = count() }", "-p", &process.pid().to_string()]);
        tracer.args(in_process.then_some("--in-process")).env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1");
        let mut tracer = Running::start(&mut tracer);
        tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
        tracer.signal(libc::SIGSTOP);
        writeln!(lines).expect("it reads");
        process.wait_for_line("ended");
        // Longer than new processes are looked at.
        std::thread::sleep(std::time::Duration::from_millis(700));
        tracer.signal(libc::SIGCONT);
        std::thread::sleep(std::time::Duration::from_millis(700));
        writeln!(lines).expect("it reads");
        let said = tracer.lines();
        assert!(said.iter().any(|line| line.contains("has no GPU records: it ended before")), "{said:#?}");
    }
}

/// CUPTI changes graphs that are launched while it records, and their next launch fails once it has ended.
#[test]
fn graphs_can_be_launched_after_each_session() {
    if !can_trace() || !common::has_installed("python3") {
        return;
    }
    let mut idle = IdleProcess::start(&["graph"]);
    for session in 0..4 {
        let said = idle.session("gpu:kernel { @gpu = count() }", session % 2 == 1);
        assert!(said.iter().any(|line| line == "@gpu: 110"), "session {session}: {said:#?}");
        assert!(said.iter().any(|line| line.contains("GPU times are exact (")), "{said:#?}");
        idle.work();
    }
    let said = idle.session("gpu:graph { @gpu = count() }", false);
    assert!(said.iter().any(|line| line == "@gpu: 10"), "{said:#?}");
    let said = idle.session("gpu:kernel { @gpu = count() }", false);
    assert!(said.iter().any(|line| line == "@gpu: 100"), "{said:#?}");
    for lack in ["work of graphs has no records in process", "are exact, but some are missing"] {
        assert!(said.iter().any(|line| line.contains(lack)), "{said:#?}");
    }
}

/// A process that replays a graph of three kernels of 2 ms, with some launches in flight at any time.
const REPLAYS: &str = "
d, f = start()
s, g, e = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
d.cuStreamCreate(ctypes.byref(s), 0); d.cuStreamBeginCapture_v2(s, 0)
for _ in range(3): d.cuLaunchKernel(f, 65536, 1, 1, 1024, 1, 1, 0, s, None, None)
d.cuStreamEndCapture(s, ctypes.byref(g)); d.cuGraphInstantiateWithFlags(ctypes.byref(e), g, 0)
print('ready', flush=True)
while True:
    for _ in range(8): d.cuGraphLaunch(e, s)
    d.cuStreamSynchronize(s)
";

/// CUPTI confuses the times of graphs that are in flight when a session ends carelessly.
#[test]
fn times_of_graphs_that_are_in_flight_at_the_end_are_right() {
    if !can_trace() || !common::has_installed("python3") {
        return;
    }
    let mut process = Command::new("python3");
    process.args(["-c", &[START, REPLAYS].concat()]).env("LD_LIBRARY_PATH", common::examples());
    let mut process = Running::start(&mut process);
    process.wait_for_line("ready");
    for session in 0..4 {
        let script = "gpu:kernel { @kernels = count(); if (args.duration > 10ms) { @wrong = count() } }";
        let mut tracer = cudatrace();
        tracer.args(["-e", script, "-p", &process.pid().to_string()]);
        tracer.args((session % 2 == 1).then_some("--in-process"));
        let mut tracer = Running::start(tracer.env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1"));
        tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
        std::thread::sleep(std::time::Duration::from_millis(500));
        tracer.signal(libc::SIGINT);
        let said = tracer.lines();
        let has = |text: &str| said.iter().any(|line| line.contains(text));
        assert!(!has("@kernels: 0") && has("@wrong: 0") && has("GPU times are exact ("), "{said:#?}");
    }
}

/// Commands that give a program its own namespaces, session or environment, as containers, MPI launchers, daemons and `sudo` do.
const LAUNCHERS: &[&str] = &[PIDS, NETWORK, RIGHTS, "unshare --mount", "setsid --fork --wait", ENVIRONMENT];
/// The program cannot open files of the tracer.
const RIGHTS: &str = "setpriv --bounding-set=-all --inh-caps=-all";
const PIDS: &str = "unshare --user --map-root-user --pid --fork --mount-proc";
const NETWORK: &str = "unshare --net";
const ENVIRONMENT: &str = "env -i CUDASIM_INIT_MS=$CUDASIM_INIT_MS LD_LIBRARY_PATH=$LD_LIBRARY_PATH";
/// Times that CUDA takes to initialise, ms: some 100 on a real GPU, and so long that a busy machine finds a new process in it.
const INITIALISES: [u32; 2] = [800, 20_000];

/// The lines of the tracer of a workload that a launcher starts. `runs_before`: the process that starts the launcher runs before the tracer.
fn lines_of_launched(launcher: &str, in_process: bool, runs_before: bool) -> Vec<String> {
    let missed = |lines: &[String]| lines.iter().any(|line| line.contains("it ended before the library"));
    let lines = lines_of_slow(launcher, in_process, runs_before, INITIALISES[0]);
    // A new process of a running one may be found too late.
    match runs_before && missed(&lines) {
        true => lines_of_slow(launcher, in_process, runs_before, INITIALISES[1]),
        false => lines,
    }
}

/// The same, of a workload that takes this time to initialise CUDA.
fn lines_of_slow(launcher: &str, in_process: bool, runs_before: bool, initialise_ms: u32) -> Vec<String> {
    let command = format!("read line; {launcher} {} --graphs 0 > /dev/null; :", example("workload_gpu"));
    let (input, mut go) = std::io::pipe().expect("a pipe");
    let mut tracer = cudatrace();
    tracer.args(["-q", "-e", "gpu:kernel { @gpu = count() } cuda:launch { @launched = count() }"]);
    tracer.args(in_process.then_some("--in-process")).env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1");
    let set = |command: &mut Command| {
        // New processes are found while they initialise CUDA.
        command.env("LD_LIBRARY_PATH", common::examples()).env("CUDASIM_INIT_MS", initialise_ms.to_string());
    };
    set(&mut tracer);
    if !runs_before {
        writeln!(go, "go").expect("it reads");
        return Running::start(tracer.args(["--", "sh", "-c", &command]).stdin(input)).lines();
    }
    let mut shell = Command::new("sh");
    set(shell.args(["-c", &command]).stdin(input));
    let shell = Running::start(&mut shell);
    let mut tracer = Running::start(tracer.args(["-p", &shell.pid().to_string()]));
    tracer.wait_for_line("NOTIFY_PROBES_ATTACHED");
    writeln!(go, "go").expect("it reads");
    shell.lines();
    tracer.lines()
}

/// Why a launched workload has no records: with `--in-process` ids of another pid namespace mean other processes, and a started process has to
/// load the library itself.
fn refusal(launcher: &str, in_process: bool, runs_before: bool) -> Option<&'static str> {
    match launcher {
        PIDS if in_process => Some("the process is in another pid namespace"),
        NETWORK | RIGHTS if in_process && !runs_before => {
            Some("it has other namespaces, fewer rights or another user than cudatrace")
        }
        ENVIRONMENT if in_process && !runs_before => Some("it was started without CUDA_INJECTION64_PATH"),
        _ => None,
    }
}

#[test]
fn programs_of_launchers_have_all_records_or_are_refused() {
    if !can_trace() || !common::has_installed("unshare") || !common::has_installed("setsid") {
        return;
    }
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let all = LAUNCHERS.iter().flat_map(|launcher| ways.map(|(engine, runs)| (*launcher, engine, runs)));
    for (launcher, in_process, runs_before) in all {
        let lines = lines_of_launched(launcher, in_process, runs_before);
        let case = format!("{launcher}, in process: {in_process}, -p: {runs_before}: {lines:#?}");
        let messages: Vec<&String> =
            lines.iter().filter(|line| line.starts_with("error") || line.starts_with("warning")).collect();
        let has = |wanted: &str| lines.iter().any(|line| line == wanted);
        match refusal(launcher, in_process, runs_before) {
            None => assert!(messages.is_empty() && has("@gpu: 41") && has("@launched: 45"), "{case}"),
            Some(why) => {
                assert!(has("@gpu: 0") && messages.iter().any(|line| line.contains(why)), "{case}");
            }
        }
    }
}

#[test]
fn a_program_that_is_executed_when_the_agent_is_requested_is_not_harmed() {
    let Some(opens) = program("opens.c", &["-ldl"]).filter(|_| can_trace()) else { return };
    let (driver, workload) = (example("libcuda.so.1"), example("workload_gpu"));
    for microseconds in [0, 500, 1000, 2000, 4000, 8000] {
        let mut tracer = cudatrace();
        tracer.args(["-q", "-e", "gpu:kernel { @gpu = count() }", "--", "env", "-i", "CUDASIM_INIT_MS=800"]);
        tracer.arg(format!("LD_LIBRARY_PATH={}", common::examples().display())).arg(&opens);
        tracer.args([&driver, "-", &microseconds.to_string(), &workload, "--graphs", "0"]);
        let output = tracer.env("LD_LIBRARY_PATH", common::examples()).output().expect("cudatrace starts");
        let (printed, said) = (common::stdout(&output), common::stderr(&output));
        assert!(printed.contains("== end ==") && output.status.success(), "{microseconds}: {printed}{said}");
    }
}

#[test]
fn processes_that_only_open_the_driver_are_not_missed() {
    let Some(opens) = program("opens.c", &["-ldl"]).filter(|_| can_trace()) else { return };
    let driver = example("libcuda.so.1");
    let others = format!("for i in 1 2 3 4 5 6 7 8 9 10; do {} {driver}; done", common::text(&opens));
    let command = format!("{others}; {} --graphs 0 > /dev/null", example("workload_gpu"));
    for options in [&[][..], &["--in-process"], &["--no-children"]] {
        // Processes that are not traced do the same.
        let mut stranger = Running::start(Command::new("sh").args(["-c", &others]));
        let mut tracer = cudatrace();
        tracer.args(options).args(["-e", "gpu:kernel { @gpu = count() }", "--", "sh", "-c", &command]);
        let lines = Running::start(tracer.env("LD_LIBRARY_PATH", common::examples())).lines();
        stranger.ended();
        assert!(!lines.iter().any(|line| line.contains("has no GPU records")), "{options:?}: {lines:#?}");
    }
}

const STARTED: &[&str] = &["fork", "exec", "grandchild", "daemon"];
const RUNNING: &[&str] = &["before", "idle", "fork", "exec", "grandchild"];

#[test]
fn a_command_s_processes_in_the_kernel() {
    are_right(tables(STARTED, false, false));
}

#[test]
fn a_command_s_processes_in_process() {
    are_right(tables(STARTED, false, true));
}

#[test]
fn running_processes_in_the_kernel() {
    are_right(tables(RUNNING, true, false));
}

#[test]
fn running_processes_in_process() {
    are_right(tables(RUNNING, true, true));
}

#[test]
fn processes_that_ended_before_the_tracer_saw_them_are_told() {
    let late = |table| Table { is_late: true, ..table };
    are_right(tables(&["fork", "exec", "grandchild"], true, false).map(late));
}
