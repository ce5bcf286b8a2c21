//! Programs that cudatrace starts, or loads its agent into, run as without it: they are not broken, ended or held for long. All their calls
//! are traced.

mod common;

use common::{
    Running, can_trace, cudatrace, example, examples, exported, has_installed, loader_and_library, program,
    skip, stderr, stdout, text, wait_for,
};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const COUNT: &str = "uprobe:libhammer:hammer_push { @ = count() }";

/// Seconds after which the seccomp server lets a program continue without the tracer.
const SERVER_PATIENCE: f64 = 3.0;

fn trace(args: &[&str], command: &[&str]) -> Output {
    cudatrace().args(args).arg("--").args(command).output().expect("cudatrace starts")
}

/// The seccomp server of a tracer, if it exists or has not been reaped.
fn find_seccomp_server(tracer: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "ct-seccomp\n")
    })
}

/// The seccomp server of a tracer; waits until it exists.
fn seccomp_server_of(tracer: u32) -> u32 {
    wait_for("the seccomp server", || find_seccomp_server(tracer).is_some());
    find_seccomp_server(tracer).expect("just found")
}

/// State of a process: `T` if it is stopped.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_file_server_that_is_traced_with_its_clients_is_not_waited_for() {
    let (true, Some(server)) = (can_trace(), program("file_server.c", &[])) else { return };
    for script in [COUNT, "uprobe:libhammer:hammer_push { @[ustack] = count() }"] {
        let mount = tempfile::tempdir().expect("a directory");
        let output = trace(&["-q", "-e", script], &[text(&server), text(mount.path())]);
        let said = stdout(&output);
        if output.status.code() == Some(77) {
            return skip(&format!("no FUSE: {}", stderr(&output)));
        }
        let took = said.split_once(" ms, status 0").and_then(|(ms, _)| ms.parse::<u64>().ok());
        assert!(took.is_some_and(|ms| ms < 12_000), "{said}{}", stderr(&output));
    }
}

#[test]
fn a_program_goes_on_when_the_seccomp_server_is_signalled_or_killed() {
    if !can_trace() {
        return;
    }
    // Each `ls` causes an execution and mappings.
    let script = "for i in 1 2 3; do read line; ls / >/dev/null || exit 9; echo went on; done; exit 5";
    let mut command = cudatrace();
    command.args(["-v", "-e", COUNT, "--", "sh", "-c", script]);
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    let mut tracer = Running::start(command.stdin(input));
    let send = |signal: i32| {
        let server = seccomp_server_of(tracer.pid()) as i32;
        // SAFETY: sends a signal to a child of the tracer, which has not reaped it.
        unsafe { libc::kill(server, signal) };
    };
    for signals in [&[libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM][..], &[libc::SIGKILL]] {
        signals.iter().for_each(|&signal| send(signal));
        std::io::Write::write_all(&mut writer, b"next\n").expect("the shell reads");
    }
    // Kills only the tracer.
    tracer.wait_for_line("went on");
    tracer.signal(libc::SIGKILL);
    std::io::Write::write_all(&mut writer, b"next\n").expect("the shell reads");
    let lines = tracer.lines();
    assert_eq!(lines.iter().filter(|line| *line == "went on").count(), 3, "{lines:#?}");
}

#[test]
fn a_seccomp_server_that_is_stopped_is_continued() {
    if !can_trace() {
        return;
    }
    let script = "for i in 1 2; do read line; ls / >/dev/null || exit 9; echo went on; done; exit 5";
    let mut command = cudatrace();
    command.args(["-v", "-e", COUNT, "--", "sh", "-c", script]);
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    let mut tracer = Running::start(command.stdin(input));
    tracer.wait_for_line("Attached 1");
    let server = seccomp_server_of(tracer.pid());
    let send = |pid: u32, signal: i32| {
        // SAFETY: both processes exist as long as the program, which waits for its input.
        unsafe { libc::kill(pid as i32, signal) };
    };
    // Stops only the seccomp server, as `pkill -STOP ct-seccomp` does.
    send(server, libc::SIGSTOP);
    std::io::Write::write_all(&mut writer, b"next\n").expect("the shell reads");
    tracer.wait_for_line("went on");
    // Stops the seccomp server with the tracer, which is then continued as by `fg`.
    send(tracer.pid(), libc::SIGSTOP);
    wait_for("the tracer to stop", || state(tracer.pid()) == Some('T'));
    send(server, libc::SIGSTOP);
    wait_for("the seccomp server to stop", || state(server) == Some('T'));
    std::io::Write::write_all(&mut writer, b"next\n").expect("the shell reads");
    send(tracer.pid(), libc::SIGCONT);
    let (status, _) = tracer.ended();
    assert_eq!(status.code(), Some(5));
    assert!(!tracer.lines().iter().any(|line| line.contains("may be missing")));
}

#[test]
fn a_seccomp_server_that_has_ended_is_reaped_while_the_tracer_goes_on() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    // At the prompt, which continues after its programs.
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    let mut tracer = Running::start(cudatrace().stdin(input));
    let lines = format!("{COUNT}\n:run cat {}\n", pipe.display());
    std::io::Write::write_all(&mut writer, lines.as_bytes()).expect("it reads");
    let reader = std::fs::File::options().write(true).open(&pipe).expect("cat opens it");
    seccomp_server_of(tracer.pid());
    drop(reader);
    wait_for("the seccomp server to be reaped", || find_seccomp_server(tracer.pid()).is_none());
    assert!(tracer.runs());
}

#[test]
fn a_program_outlives_a_tracer_that_is_killed_at_any_moment() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    for moment in 0..10 {
        let (begun, ended) =
            (folder.path().join(format!("{moment}.b")), folder.path().join(format!("{moment}.e")));
        let script = format!(
            "echo > {}; for i in 1 2 3 4 5; do ls / >/dev/null || exit; done; echo > {}",
            begun.display(),
            ended.display()
        );
        let mut command = cudatrace();
        let tracer = Running::start(command.args(["-e", COUNT, "--", "sh", "-c", &script]));
        std::thread::sleep(Duration::from_millis(12 * moment));
        tracer.signal(libc::SIGKILL);
        let lines = tracer.lines();
        assert!(!lines.iter().any(|line| line.contains("fatal") || line.contains("No such")), "{lines:#?}");
        // Both outputs are closed, so no process of the tracer is left.
        assert_eq!(begun.exists(), ended.exists(), "{moment}: {lines:#?}");
    }
}

/// Runs a tracer that loads its agent into a job and is killed in its `at`-th call of ptrace(2); returns whether it makes fewer.
fn is_outlived(at: u32) -> bool {
    let mut command = Command::new(example("workload_gpu"));
    command.args(["--threads", "2", "--rate", "1000", "--seconds", "60"]).env("LD_LIBRARY_PATH", examples());
    let mut job = Running::start(&mut command);
    let threads = format!("/proc/{}/task", job.pid());
    wait_for("its threads", || std::fs::read_dir(&threads).is_ok_and(|threads| threads.count() > 2));
    let kill = format!("inject=ptrace:signal=KILL:when={at}");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", "trace=ptrace", "-e", &kill]).arg(cudatrace().get_program());
    strace.args([
        "-e",
        "gpu:kernel { @ = count() } interval:ms:300 { exit() }",
        "-p",
        &job.pid().to_string(),
    ]);
    let status = strace.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("strace runs");
    std::thread::sleep(Duration::from_millis(50));
    job.signal(libc::SIGKILL);
    let (ended, _) = job.ended();
    assert_eq!(ended.signal(), Some(libc::SIGKILL), "the tracer was killed in its {at}th call");
    status.success()
}

#[test]
fn a_running_program_outlives_a_tracer_that_is_killed_in_any_of_its_calls() {
    if !can_trace() || !has_installed("strace") {
        return;
    }
    std::thread::scope(|scope| {
        for first in 1..=4 {
            scope.spawn(move || {
                let calls =
                    (first..1000).step_by(4).find(|at| is_outlived(*at)).expect("it attaches at last");
                assert!(calls > 50, "{calls} calls");
            });
        }
    });
}

#[test]
fn a_stopped_tracer_holds_a_program_for_seconds_and_reports_it() {
    if !can_trace() {
        return;
    }
    for action in ["@ = count()", "@[ustack] = count()"] {
        let script = format!("uprobe:libhammer:hammer_push {{ {action} }}");
        let run =
            format!("read line; {} {} hammer_push 100", example("late_dlopen"), example("libhammer.so"));
        let mut command = cudatrace();
        command.env("LD_LIBRARY_PATH", "").args(["-v", "-e", &script, "--", "sh", "-c", &run]);
        let (input, mut writer) = std::io::pipe().expect("a pipe");
        let mut tracer = Running::start(command.stdin(input));
        tracer.wait_for_line("Attached 0");
        tracer.signal(libc::SIGSTOP);
        std::io::Write::write_all(&mut writer, b"next\n").expect("the shell reads");
        // Waits until the program has continued.
        tracer.wait_for_line("count hammer_push 100");
        tracer.signal(libc::SIGCONT);
        let lines = tracer.lines();
        assert!(lines.iter().any(|line| line.contains("calls may be missing")), "{action}: {lines:#?}");
    }
}

#[test]
fn output_that_cannot_be_written_ends_the_trace_and_not_the_program() {
    if !can_trace() {
        return;
    }
    let script = "uprobe:libhammer:hammer_push { printf(\"%d\\n\", arg0) }";
    let folder = tempfile::tempdir().expect("a directory");
    let end = folder.path().join("end");
    let run = format!(
        "trap 'echo TERM > {0}; exit 3' TERM; {1} --calls 20000 >/dev/null; sleep 0.3; echo whole > {0}",
        end.display(),
        example("hammer")
    );
    let full = trace(&["-q", "-o", "/dev/full", "-e", script], &["sh", "-c", &run]);
    assert_eq!(std::fs::read_to_string(&end).expect("it ended"), "whole\n", "{}", stderr(&full));
    assert_eq!(full.status.code(), Some(1));
    assert!(stderr(&full).contains("No space left on device"), "{}", stderr(&full));
    std::fs::remove_file(&end).expect("just read");
    let mut command = cudatrace();
    command.args(["-q", "-e", script, "--", "sh", "-c", &run]);
    let mut tracer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cudatrace starts");
    let mut five = [0; 5];
    std::io::Read::read_exact(&mut tracer.stdout.take().expect("piped"), &mut five).expect("some calls");
    let gone = tracer.wait_with_output().expect("ended");
    assert_eq!(std::fs::read_to_string(&end).expect("it ended"), "whole\n", "{}", stderr(&gone));
    assert_eq!((gone.status.code(), stderr(&gone).as_str()), (Some(0), ""));
}

#[test]
fn mappings_stay_cheap_where_stacks_are_walked() {
    let (true, Some(map)) = (can_trace(), program("map.c", &[])) else { return };
    let library = example("libhammer.so");
    let script = "uprobe:libhammer:hammer_push { @[ustack] = count() }";
    let output = trace(&["-q", "-e", script], &[text(&map), &library, "kept", "2000"]);
    let each = stdout(&output).split_once(" us each").and_then(|(us, _)| us.parse::<u64>().ok());
    // The time per mapping must not grow with the number of mappings.
    assert!(each.is_some_and(|us| us < 3000), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn all_calls_into_a_file_that_is_made_executable_later_are_seen() {
    let (true, Some(map)) = (can_trace(), program("map.c", &[])) else { return };
    let library = example("libhammer.so");
    let offset = exported(&library, "hammer_push").to_string();
    for mode in ["later", "key"] {
        let run = [text(&map), library.as_str(), mode, &offset, "100"];
        for (action, line) in [("@ = count()", "@: 100"), ("@[ustack(2)] = count()", "]: 100")] {
            let script = format!("uprobe:libhammer:hammer_push {{ {action} }}");
            let mut command = cudatrace();
            command.env("LD_LIBRARY_PATH", "").args(["-e", &script, "--"]).args(run);
            let output = command.output().expect("cudatrace starts");
            has_lines(&output, &[line.into()]);
            assert!(!stderr(&output).contains("may be missing"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_program_that_a_32_bit_program_executes_is_traced() {
    let Some(wrapper) =
        program("execute.c", &["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie"])
    else {
        return;
    };
    if !can_trace() {
        return;
    }
    if Command::new(&wrapper).arg("/bin/true").status().is_err() {
        return skip("this kernel runs no 32-bit programs");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let copy = folder.path().join("copy");
    std::fs::copy(example("recurse"), &copy).expect("copied");
    let script = format!("uprobe:{0}:traced_recurse {{ @ = count() }}", copy.display());
    let output = trace(&["-q", "-e", &script], &[text(&wrapper), text(&copy), "3", "0"]);
    assert!(stdout(&output).lines().any(|line| line == "@: 3"), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_program_that_uses_seccomp_itself_works_or_the_refusal_is_explained() {
    let (true, Some(filters)) = (can_trace(), program("filters.c", &[])) else { return };
    let run = |mode: &str| trace(&["-e", COUNT], &[text(&filters), mode, &example("libhammer.so")]);
    for mode in ["prctl", "tsync"] {
        let output = run(mode);
        let (said, problems) = (stdout(&output), stderr(&output));
        assert!(said.contains("@: 10") && output.status.success(), "{mode}: {said}{problems}");
    }
    for (mode, name) in [("strict", "strict mode"), ("listener", "listener of its own")] {
        let output = run(mode);
        let (said, problems) = (stdout(&output), stderr(&output));
        assert!(problems.contains(name) && said.contains("@: 10"), "{mode}: {said}{problems}");
    }
}

/// Shell code that runs a program once for each argument.
fn each(program: &Path, arguments: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let runs: Vec<String> =
        arguments.map(|argument| format!("{} {argument} || exit 1", text(program))).collect();
    runs.join("; ")
}

fn has_lines(output: &Output, lines: &[String]) {
    let printed = stdout(output);
    for line in lines {
        assert!(printed.lines().any(|found| found == line), "`{line}`: {printed}{}", stderr(output));
    }
    assert!(output.status.success(), "{printed}{}", stderr(output));
}

#[test]
fn all_calls_are_seen_however_processes_and_threads_come_and_go() {
    let (true, Some(exact)) = (can_trace(), program("exact.c", &[])) else { return };
    // By mode, in the order of `exact.c`: calls that return, and calls that do not.
    const RETURN: [u32; 12] = [64000, 2000, 20, 100, 10, 0, 0, 200, 600, 0, 100, 100];
    const LEAVE: [u32; 12] = [0, 0, 0, 0, 0, 20, 100, 0, 0, 20, 0, 0];
    let path = text(&exact);
    let script = format!(
        "uprobe:{path}:traced_call {{ @in[arg0] = count() }} uretprobe:{path}:traced_call {{ @out = count() }} \
         uprobe:{path}:traced_leave {{ @left[arg0] = count() }}"
    );
    let output = trace(&["-q", "-e", &script], &["sh", "-c", &each(&exact, 0..RETURN.len())]);
    let of = |map: &str, counts: [u32; 12]| {
        let called = (0..).zip(counts).filter(|(_, count)| *count > 0);
        called.map(|(mode, count)| format!("@{map}[{mode}]: {count}")).collect::<Vec<_>>()
    };
    let out = format!("@out: {}", RETURN.iter().sum::<u32>());
    has_lines(&output, &[of("in", RETURN), of("left", LEAVE), vec![out]].concat());
}

#[test]
fn all_calls_are_seen_however_a_program_was_linked() {
    if !can_trace() {
        return;
    }
    let ways: [&[&str]; 5] =
        [&["-static"], &["-static-pie"], &["-no-pie"], &["-s", "-rdynamic"], &["-Wl,-z,noseparate-code"]];
    for way in ways {
        let Some(exact) = program("exact.c", way) else { continue };
        let script = format!("uprobe:{}:traced_call {{ @in[arg0] = count() }}", text(&exact));
        let output = trace(&["-q", "-e", &script], &["sh", "-c", &each(&exact, [0, 1, 4].iter())]);
        has_lines(&output, &["@in[0]: 64000".into(), "@in[1]: 2000".into(), "@in[4]: 10".into()]);
    }
    let Some(throws) = program("throws.cpp", &[]) else { return };
    let script = format!("uprobe:{}:traced_call {{ @ = count() }}", text(&throws));
    has_lines(&trace(&["-q", "-e", &script], &[text(&throws)]), &["@: 100".into()]);
}

#[test]
fn all_calls_into_libraries_that_come_and_go_are_seen() {
    let shared = ["-shared", "-fPIC"];
    let (true, Some(user), Some(one), Some(other)) = (
        can_trace(),
        program("libraries.c", &[]),
        program("work.c", &shared),
        program("work.c", &["-shared", "-fPIC", "-DMOVED"]),
    ) else {
        return;
    };
    let cases = [
        ("again", 1, 1000),
        ("all", 5, 500),
        ("deleted", 1, 100),
        ("renamed", 1, 200),
        ("overwritten", 1, 200),
        ("threads", 10, 100_000),
    ];
    for (mode, copies, calls) in cases {
        let folder = tempfile::tempdir().expect("a directory");
        let copy = |source: &Path, number: u32| {
            let place = folder.path().join(number.to_string());
            std::fs::create_dir(&place).expect("made");
            let path = place.join("libwork.so");
            std::fs::copy(source, &path).expect("copied");
            text(&path).to_owned()
        };
        let mut paths: Vec<String> = (0..copies).map(|number| copy(&one, number)).collect();
        if copies == 1 {
            paths.push(copy(&other, 1));
        }
        let run: Vec<&str> =
            [text(&user), mode].into_iter().chain(paths.iter().map(String::as_str)).collect();
        let output = trace(&["-q", "-e", "uprobe:libwork:traced_work { @ = count() }"], &run);
        has_lines(&output, &[format!("@: {calls}")]);
    }
}

#[test]
fn a_library_that_io_uring_has_opened_is_traced() {
    let Some((user, work)) = loader_and_library() else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let library = folder.path().join("libwork.so");
    std::fs::copy(work, &library).expect("copied");
    let script = "uprobe:libwork:traced_work { @ = count() }";
    let output = trace(&["-q", "-e", script], &[text(&user), "ring", text(&library)]);
    match output.status.code() {
        Some(77) => skip("this kernel has no io_uring"),
        _ => has_lines(&output, &["@: 100".into()]),
    }
}

#[test]
fn programs_that_run_are_not_broken_by_probes_in_a_file_that_is_overwritten() {
    let (true, Some(user), Some(work), Some(moved)) = (
        can_trace(),
        program("libraries.c", &[]),
        program("work.c", &["-shared", "-fPIC"]),
        program("work.c", &["-shared", "-fPIC", "-DMOVED"]),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a directory");
    let library = folder.path().join("libwork.so");
    let script = format!("uprobe:{}:traced_work {{ @ = count() }}", library.display());
    for whom in ["process", "all processes"] {
        std::fs::copy(&work, &library).expect("copied");
        let (input, mut writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(&user);
        command.stdin(input).args(["told", text(&library), text(&moved)]);
        let mut running = Running::start(&mut command);
        let pid = running.pid().to_string();
        let mut command = cudatrace();
        command.args(["-e", &script]);
        if whom == "process" {
            command.args(["-p", &pid]);
        }
        let mut tracer = Running::start(&mut command);
        tracer.wait_for_line("Attached");
        std::io::Write::write_all(&mut writer, b"\n").expect("it reads");
        tracer.wait_for_line("its probes were removed");
        std::io::Write::write_all(&mut writer, b"\n").expect("it reads");
        let (status, _) = running.ended();
        assert!(status.success(), "{whom}: {status} {:#?}", running.lines());
        tracer.signal(libc::SIGINT);
        let lines = tracer.lines();
        let counted = lines.iter().find_map(|line| line.strip_prefix("@: ")?.parse().ok());
        // Calls of a library that is loaded late are traced as soon as the probes are attached.
        assert!(counted.is_some_and(|count: u32| (100..=200).contains(&count)), "{whom}: {lines:#?}");
    }
}

#[test]
fn programs_that_trace_isolate_or_change_users_work_as_without_us() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let browse = format!(
        "cd {0}; chmod 777 .; echo '<p>hello' >page.html; su nobody -s /bin/sh -c 'HOME={0} timeout 60 chromium --headless \
         --disable-gpu --dump-dom file://{0}/page.html' 2>/dev/null",
        folder.path().display()
    );
    let compiled = "local f; for n = 1, 99 do f = loadstring('local s = 0; for i = 1, 999 do s = s + i % '..n..' end; return s'); f() end; print(f())";
    let compile = format!("luajit -e \"{compiled}\"");
    let recurse = example("recurse");
    let debugged = format!(
        "gdb -batch -ex run -ex 'print 7*6' --args {recurse} 3 0 2>&1 | grep -cE '= 42|exited normally'"
    );
    let commands = [
        ("strace", "strace -f -e trace=execve,mmap -o /dev/null sh -c '/bin/true; echo hi'"),
        ("gdb", debugged.as_str()),
        ("unshare", "unshare -Ur id -u; unshare -mpf sh -c 'echo $$'"),
        ("su", "su nobody -s /bin/sh -c 'id -un'"),
        ("sudo", "sudo -n -u nobody id -un"),
        ("ping", "su nobody -s /bin/sh -c 'ping -q -c1 127.0.0.1 | grep received | cut -d, -f1-3'"),
        ("luajit", compile.as_str()),
        ("java", "java -Xshare:auto --version"),
        ("chromium", browse.as_str()),
        ("node", "node -e 'let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; console.log(s)'"),
        ("python3", "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'"),
        (
            "script",
            "script -qec \"bash -ic 'set -m; sleep 0.1 & fg; (exit 3) & wait \\$!; echo status \\$?'\" /dev/null | grep status",
        ),
    ];
    for (tool, command) in commands {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().expect("sh");
        if !found.status.success() {
            skip(&format!("there is no {tool}"));
            continue;
        }
        let alone = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output().expect("sh");
        let expected = stdout(&alone);
        if expected.is_empty() {
            skip(&format!("{tool} does not work here: {}", stderr(&alone)));
            continue;
        }
        let traced = trace(&["-q", "-e", COUNT], &["sh", "-c", command]);
        let printed = stdout(&traced);
        assert!(printed.starts_with(&expected), "{command}: {expected} {printed}");
        assert_eq!(traced.status.code(), alone.status.code(), "{command}: {}", stderr(&traced));
    }
}

#[test]
fn a_tracer_that_waits_for_the_reader_of_its_output_ends_at_the_first_signal() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let export = format!("jsonl={}", pipe.display());
    for output in [["-o", text(&pipe)], ["--export", &export]] {
        let mut command = cudatrace();
        let mut tracer = Running::start(command.args(output).args(["-e", COUNT, "--", "true"]));
        let opens = || {
            let call = std::fs::read_to_string(format!("/proc/{}/wchan", tracer.pid())).unwrap_or_default();
            let threads = std::fs::read_dir(format!("/proc/{}/task", tracer.pid())).expect("it runs");
            let in_open = |task: std::fs::DirEntry| {
                std::fs::read_to_string(task.path().join("wchan")).is_ok_and(|at| at == "wait_for_partner")
            };
            call == "wait_for_partner" || threads.flatten().any(in_open)
        };
        wait_for("open(2)", opens);
        tracer.signal(libc::SIGTERM);
        let (status, _) = tracer.ended();
        assert!(!status.success(), "{output:?}");
    }
}

#[test]
fn the_time_for_which_a_program_is_held_until_stacks_can_be_walked_is_not_elapsed() {
    let (true, Some(unwound)) = (can_trace(), program("unwound.c", &[])) else { return };
    let path = text(&unwound);
    let script = format!(
        "tracepoint:sched:sched_process_exec {{ @n = nsecs; @e = elapsed; }}
         uprobe:{path}:traced_call {{ @s[ustack] = count(); printf(\"%d of %d\\n\", elapsed - @e, nsecs - @n); }}
         END {{ clear(@n); clear(@e); clear(@s) }}"
    );
    let output = trace(&["-q", "-e", &script], &[path]);
    let said = stdout(&output);
    let times = said
        .trim()
        .split_once(" of ")
        .and_then(|(own, all)| Some((own.parse::<u64>().ok()?, all.parse::<u64>().ok()?)));
    // Reading its unwind table takes a hundred times longer than the program takes to start.
    assert!(times.is_some_and(|(own, all)| own * 4 < all), "{said}{}", stderr(&output));
}

#[test]
fn a_tracer_that_is_traced_leaves_the_times_of_the_gpu_to_the_first_one() {
    if !can_trace() {
        return;
    }
    let tracer = cudatrace();
    let mut command = cudatrace();
    command.args(["-q", "-e", "gpu:kernel { @outer = count() }", "--"]).arg(tracer.get_program());
    command.args(["-e", "gpu:kernel { @inner = count() }", "--", &example("workload_contexts"), "2", "500"]);
    let output = command.output().unwrap();
    let (said, messages) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}{messages}");
    assert!(said.contains("@outer: 1000\n"), "{said}{messages}");
    assert!(messages.contains("another tool uses CUPTI there"), "{messages}");
}

#[test]
fn programs_that_exit_while_the_agent_sets_cupti_up_end_as_without_us() {
    if !can_trace() {
        return;
    }
    let workload = example("workload_gpu");
    for seconds in ["0.3", "0.5", "0.7"] {
        let script =
            "gpu:kernel { @n = count() } gpu:memcpy { @copies = count() } gpu:sync { @waits = count() }";
        let mut command = cudatrace();
        command.env("CUPTISIM_SLOW", "100").args(["-e", script, "--", "env", "-u", "CUDA_INJECTION64_PATH"]);
        command.args([&workload, "--rate", "500", "--farewell", "300", "--seconds", seconds]);
        let output = command.output().unwrap();
        let (said, messages) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{said}{messages}");
        assert!(said.contains("== end ==\n") && said.contains("@n: "), "{said}{messages}");
        assert!(!messages.contains("called after its end"), "{messages}");
    }
}

/// CUPTI holds a lock of the loader while it is set up and while it ends, which a child of fork would never see released.
#[test]
fn forks_of_a_program_can_load_libraries_while_the_agent_comes_and_goes() {
    if !can_trace() || !has_installed("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let stop = folder.path().join("stop");
    let program = format!(
        "import ctypes, os, signal, threading, time
driver = ctypes.CDLL('{0}/libcuda.so.1'); driver.cuInit(0)
context = ctypes.c_void_p(); driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); driver.cuCtxSetCurrent(context)
memory = ctypes.c_uint64(); driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096))
threading.Thread(target=lambda: time.sleep(1000), daemon=True).start()
forks = 0
print('ready', flush=True)
while not os.path.exists('{1}'):
    driver.cuMemcpyDtoD_v2(memory, memory, ctypes.c_size_t(64))
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        ctypes.CDLL('{0}/liblate.so')
        os._exit(0)
    forks += 1
    status = os.waitpid(child, 0)[1]
    if status: print('status', status); break
print('forks', forks)",
        examples().display(),
        text(&stop)
    );
    let mut job = Running::start(Command::new("python3").args(["-c", &program]).env("CUPTISIM_SLOW", "30"));
    job.wait_for_line("ready");
    for _ in 0..3 {
        let script = "gpu:kernel { @n = count() } gpu:memcpy { @copies = count() } interval:ms:100 { if ((uint64)@copies > 10) { exit() } }";
        let output = cudatrace().args(["-e", script, "-p", &job.pid().to_string()]).output().unwrap();
        let messages = stderr(&output);
        assert!(output.status.success() && messages.contains("GPU times are exact"), "{messages}");
    }
    std::fs::write(&stop, "").unwrap();
    job.wait_for_line("forks");
    assert!(!job.has_printed("status"), "a child ended by a signal, since it waited for the loader");
}

#[test]
fn a_thread_that_loads_libraries_does_not_wait_for_the_agent() {
    if !can_trace() || !has_installed("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = format!(
        "import ctypes, shutil, threading, time
driver = ctypes.CDLL('{0}/libcuda.so.1'); driver.cuInit(0)
threading.Thread(target=lambda: time.sleep(2)).start()
longest, i, end = 0, 0, time.time() + 3
context = ctypes.c_void_p()
while time.time() < end:
    i += 1
    driver.cuCtxGetCurrent(ctypes.byref(context))
    path = '{1}/%d.so' % i
    shutil.copy('{0}/libhammer.so', path)
    start = time.time()
    ctypes.CDLL(path)
    longest = max(longest, time.time() - start)
print('longest', longest)",
        examples().display(),
        folder.path().display()
    );
    let mut command = cudatrace();
    command.args(["-e", "gpu:memset { @ = count() }", "--", "env", "-u", "CUDA_INJECTION64_PATH"]);
    let output = command.args(["python3", "-c", &program]).output().unwrap();
    let (said, messages) = (stdout(&output), stderr(&output));
    let longest = said.lines().find_map(|line| line.strip_prefix("longest ")?.parse::<f64>().ok());
    // A thread that waits for the agent does so until the seccomp server gives up. On a machine where a dozen programs want two CPUs, a load
    // takes a second, most of which the tracer waits for a CPU.
    assert!(longest.is_some_and(|seconds| seconds < SERVER_PATIENCE), "{said}{messages}");
    assert!(messages.contains("GPU times are exact"), "{messages}");
    assert!(!messages.contains("waited for seconds"), "{messages}");
}
