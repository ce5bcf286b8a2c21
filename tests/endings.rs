//! The end of a run, for all its causes: prompt, complete, and with the right status.

mod common;

use common::{Running, can_trace, cudatrace, example, exported, stderr, stdout, wait_for};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program that calls `hammer_push` from two threads until it is killed.
fn hammer() -> Running {
    let calls = u64::MAX.to_string();
    Running::start(Command::new(example("hammer")).args(["--threads", "2", "--calls", &calls]))
}

/// A program that has mapped the simulated driver, and calls it until it is killed.
fn workload() -> Running {
    let mut command = Command::new(example("workload_driver"));
    command.env("LD_LIBRARY_PATH", common::examples()).env("CUDASIM_FAST", "1");
    Running::start(command.args([
        "--threads",
        "2",
        "--calls",
        "2000000000",
        "--call",
        "device",
        "--no-errors",
    ]))
}

/// `cudatrace -p` of a running program, after attaching.
fn attached(script: &str, target: &Running) -> Running {
    let mut command = cudatrace();
    command.args(["-v", "-p", &target.pid().to_string(), "-e", script]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("attached after");
    trace.wait_for_line("Attached ");
    trace
}

/// Time from Ctrl-C to the end of the process: the shortest of several runs, since other processes use this
/// machine too.
fn least_time_to_end(script: &str, target: &Running) -> Duration {
    let once = |_| {
        let mut trace = attached(script, target);
        trace.signal(libc::SIGINT);
        let (status, took) = trace.ended();
        assert!(status.success(), "{status}: {:#?}", trace.lines());
        took
    };
    (0..8).map(once).min().expect("some runs")
}

#[test]
fn a_single_function_is_detached_at_once() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let took = least_time_to_end("uprobe:libhammer:hammer_push { @ = count() }", &target);
    eprintln!("from Ctrl-C to the end: {took:?}");
    assert!(took < Duration::from_millis(40), "{took:?}");
}

#[test]
fn entries_and_returns_of_the_whole_driver_are_detached_at_once() {
    if !can_trace() {
        return;
    }
    let target = workload();
    let script = "uprobe:libcuda:cu* { @a[func] = count() } uretprobe:libcuda:cu* { @b[func] = count() }";
    let took = least_time_to_end(script, &target);
    eprintln!("from Ctrl-C to the end: {took:?}");
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn single_uprobes_that_go_let_others_pass() {
    if !can_trace() {
        return;
    }
    let target = workload();
    let mut command = cudatrace();
    command.args(["--no-feature", "uprobe_multi", "-p", &target.pid().to_string()]);
    command.args(["-e", "uprobe:libcuda:cuMem* { @ = count() } END { printf(\"end\\n\") }"]);
    // The kernel takes 100 ms for each of the 179 events of the first run, whose end the second run waits for.
    for _ in 0..2 {
        let begun = Instant::now();
        let mut trace = Running::start(&mut command);
        trace.wait_for_line("Attached ");
        trace.signal(libc::SIGINT);
        let lines = trace.lines();
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
        assert!(lines.iter().any(|line| line == "end"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("`ct-detach` continues")), "{lines:#?}");
    }
}

#[test]
fn nothing_of_us_stays_in_the_program() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let trace = attached("uprobe:libhammer:hammer_push { @ = count() }", &target);
    assert!(has_breakpoint(target.pid()), "probed");
    trace.signal(libc::SIGINT);
    trace.lines();
    common::wait_for("the probe to go", || !has_breakpoint(target.pid()));
    // A killed tracer also leaves no probes.
    let mut trace = attached("uprobe:libhammer:hammer_push { @ = count() }", &target);
    assert!(has_breakpoint(target.pid()), "probed");
    trace.signal(libc::SIGKILL);
    trace.ended();
    common::wait_for("the probe to go", || !has_breakpoint(target.pid()));
}

/// Whether `hammer_push` begins with an int3 in this process.
fn has_breakpoint(pid: u32) -> bool {
    use std::os::unix::fs::FileExt;
    let at = address_of_push(pid).expect("libhammer is mapped");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("a process of ours");
    let mut first = [0];
    memory.read_exact_at(&mut first, at).expect("mapped");
    first[0] == 0xcc
}

/// Address of the function in a process that has mapped the library.
fn address_of_push(pid: u32) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.contains("libhammer"))?;
    let base = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
    Some(base + exported(&example("libhammer.so"), "hammer_push"))
}

#[test]
fn two_signals_at_once_are_one_and_a_later_one_ends_the_wait() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let waiting = |seconds: &str| {
        let end = format!("END {{ system(\"sleep {seconds}\"); printf(\"said\\n\"); }}");
        let mut command = cudatrace();
        command.args(["-v", "--unsafe", "-p", &target.pid().to_string(), "-e"]);
        let mut trace =
            Running::start(command.arg(format!("uprobe:libhammer:hammer_push {{ @n = count() }} {end}")));
        trace.wait_for_line("Attached ");
        trace
    };
    let twice = waiting("1");
    twice.signal(libc::SIGINT);
    std::thread::sleep(Duration::from_millis(50));
    twice.signal(libc::SIGINT);
    assert!(twice.lines().iter().any(|line| line == "said"));
    let mut impatient = waiting("60");
    impatient.signal(libc::SIGINT);
    std::thread::sleep(Duration::from_millis(500));
    impatient.signal(libc::SIGINT);
    let (status, took) = impatient.ended();
    assert!(!status.success() && took < Duration::from_secs(10), "{status}, {took:?}");
}

#[test]
fn a_background_job_of_a_script_ends_on_a_signal() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    // A shell without job control starts background commands in this way.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' INT; exec \"$0\" -v -p $1 -e 'uprobe:libhammer:hammer_push { @ = count() }'"]);
    let program = cudatrace();
    command.arg(program.get_program()).arg(target.pid().to_string());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("Attached ");
    trace.signal(libc::SIGINT);
    let (status, _) = trace.ended();
    let lines = trace.lines();
    assert!(status.success() && lines.iter().any(|line| line.starts_with("@: ")), "{status}: {lines:#?}");
}

#[test]
fn a_second_signal_does_not_wait_for_a_blocked_reader() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let mut command = cudatrace();
    command.args([
        "-p",
        &target.pid().to_string(),
        "-e",
        "uprobe:libhammer:hammer_push { printf(\"%d\\n\", tid) }",
    ]);
    let mut trace = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("cudatrace starts");
    let out = trace.stdout.take().expect("a pipe");
    let mut before = 0;
    let is_full = || {
        std::thread::sleep(Duration::from_millis(100));
        let mut waiting = 0;
        // SAFETY: FIONREAD writes an int.
        unsafe { libc::ioctl(out.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
        waiting > 0 && waiting == std::mem::replace(&mut before, waiting)
    };
    wait_for("the pipe is full", is_full);
    // SAFETY: a signal to our child, which has not been waited for: the id is not reused.
    let signal = || unsafe { libc::kill(trace.id() as i32, libc::SIGINT) };
    signal();
    std::thread::sleep(Duration::from_millis(500));
    signal();
    wait_for("it ends", || trace.try_wait().expect("our child").is_some());
}

#[test]
fn events_queued_at_the_end_are_printed_or_counted_as_lost() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let script = "uprobe:libhammer:hammer_push { @n = count(); printf(\"call\\n\") }";
    let mut trace = attached(script, &target);
    trace.wait_for_line("call");
    trace.signal(libc::SIGINT);
    let lines = trace.lines();
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let printed = lines.iter().filter(|line| *line == "call").count() as u64;
    let counted = lines.iter().find_map(|line| number(line.strip_prefix("@n:")?)).expect("the map");
    let lost = lines
        .iter()
        .find(|line| line.contains("lost"))
        .and_then(|line| number(&line[line.find("lost").expect("found above")..]));
    assert_eq!(printed + lost.unwrap_or(0), counted, "{lost:?}");
}

#[test]
fn the_first_exit_wins_and_nothing_is_printed_after_it() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let script = "uprobe:libhammer:hammer_push { printf(\"by %d\\n\", tid); exit(tid % 100 + 1) }";
    let mut command = cudatrace();
    let output = command.args(["-q", "-p", &target.pid().to_string(), "-e", script]).output().expect("runs");
    let text = stdout(&output);
    // Other threads may have printed before; the thread that called exit() first printed before its call.
    let codes: Vec<i32> =
        text.lines().filter_map(|line| line.strip_prefix("by ")?.parse::<i32>().ok()).collect();
    let status = output.status.code().expect("not killed");
    assert!(codes.iter().any(|tid| tid % 100 + 1 == status), "{status} of {codes:?}");
    assert!(codes.len() <= 2, "two threads, one call each at most: {codes:?}");
}

#[test]
fn an_exit_that_finds_no_room_ends_the_run_all_the_same() {
    if !can_trace() {
        return;
    }
    let script = "config = { perf_rb_pages = 1 }
        BEGIN { $i = 0; while ($i < 1000) { printf(\"0123456789012345678901234567890123456789\\n\"); $i++ } exit(3) }";
    let output = cudatrace().args(["-e", script, "--", "sleep", "60"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("lost 1 event"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let mut command = cudatrace();
    command.args(["-q", "-p", &target.pid().to_string()]);
    command.args(["-e", "uprobe:libhammer:hammer_push { printf(\"call\\n\") }"]);
    let mut trace = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cudatrace");
    // `head -c 5`
    let mut five = [0; 5];
    std::io::Read::read_exact(&mut trace.stdout.take().expect("piped"), &mut five).expect("a call");
    let output = trace.wait_with_output().expect("ended");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn readers_of_the_output_do_not_wait_for_the_kernel() {
    if !can_trace() {
        return;
    }
    // The shell reads until the pipe is closed; a remaining process of the tracer must not hold it open.
    let script = format!(
        "text=$({} -q -e 'BEGIN {{ printf(\"done\\n\"); exit() }} uprobe:{}:hammer_push {{ @ = count() }}'); echo \"$text\"; \
         cat /proc/$$/task/$$/children",
        env!("CARGO_BIN_EXE_cudatrace"),
        example("libhammer.so")
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    assert!(stdout(&output).starts_with("done\n"), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_target_that_dies_ends_the_run_with_what_was_seen() {
    if !can_trace() {
        return;
    }
    let mut target = hammer();
    let trace = attached("uprobe:libhammer:hammer_push { @ = count() }", &target);
    target.signal(libc::SIGKILL);
    target.ended();
    let lines = trace.lines();
    assert!(lines.iter().any(|line| line.starts_with("@: ")), "{lines:#?}");
}

#[test]
fn too_few_open_files_are_reported_with_a_remedy() {
    if !can_trace() {
        return;
    }
    // The limit may be reached at the first own file, or while functions are attached.
    for limit in [24, 48, 64, 100] {
        let traced = format!(
            "ulimit -n {limit}; exec {} --no-feature uprobe_multi -e 'uprobe:libcuda:cuMem* {{ @ = count() }}' -- true",
            env!("CARGO_BIN_EXE_cudatrace")
        );
        let mut command = Command::new("bash");
        let output =
            command.args(["-c", &traced]).env("LD_LIBRARY_PATH", common::examples()).output().expect("bash");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(255), "{limit}: {said}");
        assert!(said.contains("Too many open files"), "{limit}: {said}");
        assert!(said.contains("`ulimit -n`") && !said.contains("warning"), "{limit}: {said}");
    }
}

#[test]
fn unprintable_values_are_reported() {
    let no_file = ["--check", "--lib", "libcuda=/no/such/file", "-e", "uprobe:libcuda:cuInit { }"];
    let cases: [(&[&str], i32, &str); 3] = [
        (&no_file, 1, "no such file: `/no/such/file`"),
        (&["-l", "asyncwatchpoint:*"], 1, "use `watchpoint:ADDRESS:BYTES:ACCESSES`"),
        (&["-d", "bpf", "--check", "-e", "BEGIN { exit() }"], 0, "--dry-run"),
    ];
    for (args, status, said) in cases {
        let output = cudatrace().args(args).output().expect("cudatrace starts");
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("did you mean"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_backlog_of_commands_does_not_delay_the_end() {
    if !can_trace() {
        return;
    }
    let target = hammer();
    let script =
        "uprobe:libhammer:hammer_push { system(\"sleep 0.1\"); @ = count() } END { system(\"echo ended\") }";
    let mut command = cudatrace();
    command.args(["--unsafe", "-p", &target.pid().to_string(), "-e", script]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("Attached ");
    std::thread::sleep(Duration::from_millis(300));
    trace.signal(libc::SIGINT);
    let (status, took) = trace.ended();
    let said = trace.lines().join("\n");
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}: {said}");
    for wanted in ["ended", "@: ", "commands of system() were still queued"] {
        assert!(said.contains(wanted), "no `{wanted}` in {said}");
    }
}

#[test]
fn the_number_of_probes_is_printed_before_the_mark_that_callers_wait_for() {
    if !can_trace() {
        return;
    }
    let mut command = cudatrace();
    command.env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1").args(["-e", "interval:ms:300 { exit() }"]);
    // Both outputs go to one pipe, which shows their order.
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    command.stderr(writer.try_clone().expect("a descriptor")).stdout(writer);
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut reader, &mut said).expect("text");
    assert!(child.wait().expect("it ends").success(), "{said}");
    assert!(said.contains("Attached 1 probe\n__BPFTRACE_NOTIFY_PROBES_ATTACHED\n"), "{said}");
}

#[test]
fn maps_are_printed_on_a_signal_and_the_run_goes_on() {
    if !can_trace() {
        return;
    }
    let mut command = cudatrace();
    command.args(["-e", "BEGIN { @kept = 7 } interval:s:100 { exit() }"]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("Attached ");
    trace.signal(libc::SIGUSR1);
    trace.wait_for_line("@kept: 7");
    trace.signal(libc::SIGINT);
    let (status, _) = trace.ended();
    let printed = trace.lines().iter().filter(|line| line.contains("@kept: 7")).count();
    assert!(status.success() && printed == 2, "{status}, {printed}");
}
