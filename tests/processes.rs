//! Which processes are traced: those of `-p` and the command with all their threads and children, and no others.

mod common;

use common::{Running, can_trace, cudatrace, example, program, stderr, stdout, text};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn hammer(threads: u32, calls: u64) -> Running {
    let (threads, calls) = (threads.to_string(), calls.to_string());
    Running::start(Command::new(example("hammer")).args(["--threads", &threads, "--calls", &calls]))
}

fn run(args: &[&str]) -> Output {
    cudatrace().args(args).output().expect("cudatrace starts")
}

#[test]
fn all_threads_of_a_process_that_runs_already_are_counted() {
    if !can_trace() {
        return;
    }
    let target = hammer(6, u64::MAX);
    let script = "uprobe:libhammer:hammer_push { @[tid] = count() } interval:s:3 { exit() }";
    let output = run(&["-p", &target.pid().to_string(), "-e", script]);
    let threads = stdout(&output).lines().filter(|line| line.starts_with("@[")).count();
    assert_eq!(threads, 6, "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_process_that_shares_the_library_is_not_counted() {
    if !can_trace() {
        return;
    }
    let (target, other) = (hammer(2, u64::MAX), hammer(2, u64::MAX));
    let script = "uprobe:libhammer:hammer_push { @[pid] = count() } interval:ms:300 { exit() }";
    for more in [&[][..], &["--no-children"], &["--no-children", "--no-feature", "uprobe_multi"]] {
        let pid = target.pid().to_string();
        let output = run(&[&["-q", "-p", &pid, "-e", script], more].concat());
        let text = stdout(&output);
        assert!(text.contains(&format!("@[{}]: ", target.pid())), "{more:?}: {text}{}", stderr(&output));
        assert!(!text.contains(&format!("@[{}]: ", other.pid())), "{more:?}: {text}");
    }
}

#[test]
fn a_command_and_its_children_are_traced_inside_a_pid_namespace() {
    if !can_trace() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-pf", "--mount-proc", env!("CARGO_BIN_EXE_cudatrace")]);
    command.env("LD_LIBRARY_PATH", common::examples()).env("CUDASIM_FAST", "1");
    command.args(["-e", "uprobe:libcuda:cuInit { @ = count(); @pids[pid < 1000] = count() }", "--"]);
    let output = command.arg(example("fork_workload")).args(["6", "10"]).output().expect("unshare");
    let text = stdout(&output);
    for line in ["@: 6", "@pids[true]: 6"] {
        assert!(text.lines().any(|found| found == line), "`{line}`: {text}{}", stderr(&output));
    }
}

#[test]
fn a_process_inside_our_pid_namespace_is_traced_by_its_number_there() {
    if !can_trace() {
        return;
    }
    let script = r#"
        hammer --threads 2 --calls 18446744073709551615 & one=$!
        hammer --threads 2 --calls 18446744073709551615 & two=$!
        sleep 0.2
        cudatrace -q -p $one -e 'uprobe:libhammer:hammer_push { @[pid] = count() } interval:ms:300 { exit() }'
        echo "traced $one, not $two"; kill -9 $one $two"#;
    let binary = Path::new(env!("CARGO_BIN_EXE_cudatrace")).parent().expect("a directory");
    let path =
        format!("{}:{}:{}", binary.display(), common::examples().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command.args(["-pf", "--mount-proc", "bash", "-c", script]).env("PATH", path);
    let output = command.output().expect("unshare");
    let text = stdout(&output);
    let numbers: Vec<&str> = text
        .lines()
        .find_map(|line| line.strip_prefix("traced "))
        .unwrap_or_else(|| panic!("{text}{}", stderr(&output)))
        .split(", not ")
        .collect();
    assert!(text.contains(&format!("@[{}]: ", numbers[0])), "{text}{}", stderr(&output));
    assert!(!text.contains(&format!("@[{}]: ", numbers[1])), "{text}");
}

#[test]
fn a_user_without_rights_gets_the_list_of_needed_rights() {
    if !can_trace() {
        return;
    }
    // The checkout is not readable for the user, so a copy is used.
    let copy = std::env::temp_dir().join(format!("cudatrace-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_cudatrace"), &copy).expect("a place for temporary files");
    // The root folder is not writable for the user, who needs rights to trace first.
    for args in [["-e", "interval:s:1 { exit() }"], ["record", "--in-kernel"]] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).current_dir("/");
        let output = command.args(args).output().expect("setpriv is part of util-linux");
        assert_eq!(output.status.code(), Some(255), "{}", stderr(&output));
        for word in ["root", "CAP_BPF", "sudo"] {
            assert!(stderr(&output).contains(word), "{}", stderr(&output));
        }
    }
    std::fs::remove_file(&copy).expect("just copied");
}

#[test]
fn two_capabilities_are_enough_to_trace_a_command() {
    if !can_trace() {
        return;
    }
    // A copy, since the checkout may be closed to other users.
    let folder = tempfile::tempdir().expect("a directory");
    let tracer = folder.path().join("cudatrace");
    std::fs::copy(env!("CARGO_BIN_EXE_cudatrace"), &tracer).expect("copied");
    for name in ["hammer", "libhammer.so"] {
        std::fs::copy(example(name), folder.path().join(name)).expect("copied");
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("opened");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--bounding-set=-all,+bpf,+perfmon"]);
    command.args(["--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon"]);
    command.env("LD_LIBRARY_PATH", folder.path()).arg(&tracer);
    command.args([
        "-e",
        "uretprobe:libhammer:hammer_push { @ = count(); @us[ustack(1)] = hist(duration); span(\"push\") }",
        "--",
    ]);
    let output =
        command.arg(folder.path().join("hammer")).args(["--calls", "1000"]).output().expect("setpriv");
    let text = stdout(&output);
    assert!(text.lines().any(|line| line == "@: 1000"), "{text}{}", stderr(&output));
}

#[test]
fn plain_probes_need_no_btf() {
    if !can_trace() {
        return;
    }
    let trace = format!(
        "mount -t tmpfs none /sys/kernel/btf && exec {} -q -e 'uprobe:libhammer:hammer_push {{ @ = count() }} \
         uretprobe:libhammer:hammer_push {{ @r = count() }}' -- {} --threads 1 --calls 1000",
        env!("CARGO_BIN_EXE_cudatrace"),
        example("hammer")
    );
    let output = Command::new("unshare").args(["-m", "bash", "-c", &trace]).output().expect("unshare");
    let text = stdout(&output);
    for line in ["@: 1000", "@r: 1000"] {
        assert!(text.lines().any(|found| found == line), "`{line}`: {text}{}", stderr(&output));
    }
}

#[test]
fn a_missing_process_is_reported() {
    if !can_trace() {
        return;
    }
    let mut gone = Command::new("true").spawn().expect("true");
    gone.wait().expect("ended");
    let output = run(&["-p", &gone.id().to_string(), "-e", "uprobe:libhammer:hammer_push { @ = count() }"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    for part in
        [&format!("error: no process {}\n", gone.id()), "\n  = help: `pgrep -f NAME` lists the processes"]
    {
        assert!(said.contains(part), "`{part}`: {said}");
    }
}

#[test]
fn children_that_continue_are_reported() {
    if !can_trace() {
        return;
    }
    let daemon = "sleep 5 > /dev/null 2>&1 & echo $!";
    let script = "uprobe:libhammer:hammer_push { @ = count() }";
    let lib = format!("libhammer={}", example("libhammer.so"));
    let output = run(&["--lib", &lib, "-e", script, "--", "sh", "-c", daemon]);
    let number = stdout(&output).lines().next().expect("its number").to_owned();
    assert!(
        stderr(&output).contains(&format!("no longer traced: {number} (")),
        "{number}: {}",
        stderr(&output)
    );
}

#[test]
fn the_status_is_known_although_sigchld_is_ignored() {
    if !can_trace() {
        return;
    }
    let run = |argv: &[&str]| {
        let mut command = cudatrace();
        command.args(["-q", "-e", "BEGIN { @ = 1 }", "--"]).args(argv);
        // SAFETY: signal(2) is async-signal-safe and does not use memory of this process.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, || {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
        command.output().expect("cudatrace starts")
    };
    let output = run(&["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let output = run(&["grep", "SigIgn", "/proc/self/status"]);
    let ignored = stdout(&output).lines().find_map(|line| line.strip_prefix("SigIgn:").map(str::to_owned));
    let ignored = u64::from_str_radix(ignored.expect("a line").trim(), 16).expect("a set");
    assert!(ignored & 1 << (libc::SIGCHLD - 1) != 0, "what we start is told so too: {ignored:x}");
}

#[test]
fn a_library_that_a_program_opens_in_memory_is_traced() {
    if !can_trace() {
        return;
    }
    let program = format!(
        "import os, ctypes\nfd = os.memfd_create('libhammer.so')\n\
         os.write(fd, open('{}', 'rb').read())\nlibrary = ctypes.CDLL(f'/proc/self/fd/{{fd}}')\n\
         for i in range(50): library.hammer_push(i)",
        example("libhammer.so")
    );
    let script = "uprobe:libhammer:hammer_push { @ = count() }";
    let output = run(&["-q", "-e", script, "--", "python3", "-c", &program]);
    assert!(stdout(&output).lines().any(|line| line == "@: 50"), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_library_of_any_process_is_waited_for_also_when_the_first_is_over_at_once() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let library = folder.path().join("libawaited.so");
    std::fs::copy(example("libhammer.so"), &library).expect("copied");
    let calls = |count: u32| {
        let text = "import ctypes, os, sys\nlibrary = ctypes.CDLL(sys.argv[1])\n\
             for i in range(int(sys.argv[2])): library.hammer_push(i)\nos._exit(0)";
        let status = Command::new("python3").args(["-c", text]).arg(&library).arg(count.to_string()).status();
        assert!(status.expect("python3").success());
    };
    let mut command = cudatrace();
    let mut trace =
        Running::start(command.args(["--wait", "-e", "uprobe:libawaited:hammer_push { @ = sum(1) }"]));
    trace.wait_for_line("Attached 0");
    calls(0);
    trace.wait_for_line("loaded it; earlier calls are not traced");
    calls(50);
    trace.signal(libc::SIGINT);
    let lines = trace.lines();
    assert!(lines.iter().any(|line| line == "@: 50"), "{lines:#?}");
}

#[test]
fn threads_are_no_processes() {
    if !can_trace() {
        return;
    }
    let target = hammer(2, u64::MAX);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", target.pid())).expect("it runs");
    common::wait_for("threads", || threads().count() > 1);
    let names = threads().map(|thread| thread.expect("it runs").file_name().into_string().expect("a number"));
    let whole = target.pid().to_string();
    let thread = names.into_iter().find(|name| *name != whole).expect("there are two");
    let output = run(&["-p", &thread, "-e", "uprobe:libhammer:hammer_push { @ = count() }"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("a thread of process {whole}")), "{}", stderr(&output));
    if linux::proc::is_of_kernel(2) {
        let output = run(&["-p", "2", "-e", "uprobe:libhammer:hammer_push { @ = count() }"]);
        assert!(stderr(&output).contains("process 2 is a thread of the kernel"), "{}", stderr(&output));
    }
}

#[test]
fn a_file_that_cannot_be_executed_is_named() {
    if !can_trace() {
        return;
    }
    let output = run(&["-e", "BEGIN { @ = 1 }", "--", "/etc/passwd"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot start `/etc/passwd`: Permission denied"), "{}", stderr(&output));
}

#[test]
fn return_probes_on_a_go_program_are_refused() {
    if !can_trace() {
        return;
    }
    let program = go_like();
    let program = program.to_str().expect("the checkout's path is UTF-8");
    let refused = run(&["-e", &format!("uretprobe:{program}:work {{ @ = count() }}"), "--", program]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("written in Go"), "{}", stderr(&refused));
    let entries = run(&["-q", "-e", &format!("uprobe:{program}:work {{ @ = count() }}"), "--", program]);
    assert!(stdout(&entries).contains("@: 1"), "{}{}", stdout(&entries), stderr(&entries));
}

#[test]
fn the_first_stack_of_a_running_process_is_whole_although_its_unwind_table_is_large() {
    if !can_trace() {
        return;
    }
    let Some(path) = program("large_table.c", &[]) else { return };
    let target = Running::start(&mut Command::new(&path));
    let script = format!(r#"uprobe:{}:leaf {{ printf("%s", ustack()); exit() }}"#, text(&path));
    let output = run(&["-p", &target.pid().to_string(), "-e", &script]);
    let (stack, messages) = (stdout(&output), stderr(&output));
    assert!(stack.contains("work+") && stack.contains("main+"), "{stack}{messages}");
    assert!(!messages.contains("warning"), "{messages}");
}

#[test]
fn stacks_of_a_program_that_is_over_at_once_have_names() {
    if !can_trace() {
        return;
    }
    const SOURCE: &str = "__attribute__((noinline)) int work(int x) { __asm__ volatile(\"\"); return x; }\n\
        void _start(void) { __asm__ volatile(\"syscall\" : : \"a\"(231), \"D\"(work(0))); }\n";
    let program = compiled("at_once", SOURCE, &["-static", "-nostdlib"]);
    let program = program.to_str().expect("the checkout's path is UTF-8");
    for _ in 0..12 {
        let output =
            run(&["-q", "-e", &format!("uprobe:{program}:work {{ @[ustack(1)] = count() }}"), "--", program]);
        assert!(stdout(&output).contains("work+0"), "{}{}", stdout(&output), stderr(&output));
    }
}

/// A program with a section that the Go compiler emits in each program.
fn go_like() -> std::path::PathBuf {
    const SOURCE: &str = "__attribute__((section(\".gopclntab\"), used)) static const char table[16] = {1};\n\
        __attribute__((noinline, used)) int work(int x) { __asm__ volatile(\"\"); return x; }\n\
        int main(void) { return work(0); }\n";
    compiled("go_like", SOURCE, &[])
}

fn compiled(name: &str, text: &str, options: &[&str]) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join(name).with_extension("c"), folder.join(name));
    std::fs::write(&source, text).expect("target can be written to");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o"]).arg(&program).arg(&source).args(options);
    assert!(compiler.status().expect("gcc").success());
    program
}

#[test]
fn to_print_a_call_is_no_call_that_is_printed() {
    if !can_trace() {
        return;
    }
    let mut writer = Command::new("sh");
    let mut writer = writer
        .args(["-c", "while :; do echo x; sleep 0.02; done"])
        .stdout(Stdio::null())
        .spawn()
        .expect("sh");
    for probe in ["uprobe:libc:write", "uretprobe:libc:write"] {
        let script =
            format!("{probe} {{ printf(\"%d\\n\", pid); @calls = count() }} interval:s:1 {{ exit() }}");
        let tracer =
            cudatrace().args(["-q", "-e", &script]).stdout(Stdio::piped()).spawn().expect("cudatrace starts");
        let own = tracer.id().to_string();
        let text = stdout(&tracer.wait_with_output().expect("ended"));
        assert!(!text.lines().any(|pid| pid == own), "{probe}");
        assert!(text.lines().any(|pid| *pid == writer.id().to_string()), "{probe}: {text}");
    }
    writer.kill().and_then(|()| writer.wait()).expect("ours");
}

#[test]
fn return_probes_leave_alone_what_is_jumped_to() {
    let (true, Some(program)) = (can_trace(), program("jumped_to.c", &["-O2"])) else { return };
    let plain = Command::new(&program).args(["a", "b"]).output().expect("it starts");
    assert!(stdout(&plain).starts_with("argc 3 last b sum "), "{}", stdout(&plain));
    for script in
        ["uretprobe:PROGRAM:* { @[func] = count() }", "uprobe:PROGRAM:* { @[func, call_depth] = count() }"]
    {
        let script = script.replace("PROGRAM", text(&program));
        let traced =
            cudatrace().args(["-e", &script, "--", text(&program), "a", "b"]).output().expect("it starts");
        let said = stdout(&traced);
        assert!(said.starts_with(&stdout(&plain)), "{script}: {said}{}", stderr(&traced));
        assert!(said.contains("@[twice") && !said.contains(".cold") && !said.contains("_start"), "{said}");
    }
    let script = format!("uretprobe:{}:_start {{ exit() }}", text(&program));
    let refused = cudatrace().args(["-e", &script, "--", text(&program)]).output().expect("it starts");
    assert!(
        !refused.status.success() && stderr(&refused).contains("does not return"),
        "{}",
        stderr(&refused)
    );
}
