//! cudatrace without `/proc`, `/sys`, enough descriptors, memory or rights, and beside other tracers. It either traces correctly or
//! refuses with the reason.

mod common;

use common::{
    Running, can_trace, cudatrace, example, examples, loader_and_library, skip, stderr, stdout, text,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const COUNT: &str = "uprobe:libhammer:hammer_push { @ = count() }";

fn has_line(output: &Output, line: &str) {
    let printed = stdout(output);
    assert!(printed.lines().any(|found| found == line), "`{line}`: {printed}{}", stderr(output));
}

/// A root directory with cudatrace, programs to trace, and the libraries of both.
fn small_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let inside = |path: &Path| root.path().join(path.strip_prefix("/").expect("absolute"));
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to.parent().expect("in a folder")).expect("made");
        std::fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let tracer = Path::new(env!("CARGO_BIN_EXE_cudatrace"));
    let programs = [example("hammer"), example("late_dlopen")].map(PathBuf::from);
    copy(tracer, &root.path().join("cudatrace"));
    for program in &programs {
        copy(program, &root.path().join(program.file_name().expect("a file")));
    }
    copy(Path::new(&example("libhammer.so")), &root.path().join("lib/libhammer.so"));
    for program in programs.iter().map(PathBuf::as_path).chain([tracer]) {
        let needed = Command::new("ldd").arg(program).output().expect("ldd");
        let needed = stdout(&needed);
        let paths = needed.split_whitespace().map(Path::new).filter(|word| word.is_absolute());
        paths.filter(|path| !path.ends_with("libhammer.so")).for_each(|path| copy(path, &inside(path)));
    }
    ["proc", "sys"].iter().for_each(|name| std::fs::create_dir(root.path().join(name)).expect("made"));
    root
}

/// Traces in a root in which only these file systems are mounted.
fn trace_in(root: &Path, mounts: &[(&str, &str)], libraries: &str, words: &[&str]) -> Output {
    let mount = |(kind, place): &(&str, &str)| format!("mount -t {kind} none {}/{place} && ", root.display());
    let mounted: String = mounts.iter().map(mount).collect();
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        &format!("{mounted} exec chroot {} /cudatrace \"$@\"", root.display()),
        "sh",
    ]);
    command.args(words).env("LD_LIBRARY_PATH", libraries).output().expect("unshare")
}

#[test]
fn calls_are_counted_where_proc_or_sys_are_not_mounted() {
    if !can_trace() {
        return;
    }
    let root = small_root();
    let (proc, sys, events) = (("proc", "proc"), ("sysfs", "sys"), ("tracefs", "sys/kernel/tracing"));
    let cases: [&[(&str, &str)]; 5] = [&[], &[proc], &[sys], &[sys, events], &[proc, sys]];
    for mounts in cases {
        let needed = ["-e", COUNT, "--", "/hammer", "--calls", "100"];
        let output = trace_in(root.path(), mounts, "/lib", &needed);
        has_line(&output, "@: 100");
        assert!(!stderr(&output).contains("not traced"), "{mounts:?}: {}", stderr(&output));
        let late = ["-e", COUNT, "--", "/late_dlopen", "/lib/libhammer.so", "hammer_push", "100"];
        let output = trace_in(root.path(), mounts, "", &late);
        if mounts.contains(&proc) {
            has_line(&output, "@: 100");
        } else {
            let problems = stderr(&output);
            assert!(problems.contains("cannot be attached before their first call: /proc is not mounted"));
            assert!(!problems.contains("no traced process loaded"), "{mounts:?}: {problems}");
        }
    }
}

#[test]
fn a_user_namespace_without_rights_is_refused_with_the_reason() {
    if !can_trace() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-Ur", env!("CARGO_BIN_EXE_cudatrace"), "--in-kernel", "-e", COUNT, "--", "true"]);
    let output = command.output().expect("unshare");
    assert!(!output.status.success() && stderr(&output).contains("CAP_BPF"), "{}", stderr(&output));
}

#[test]
fn a_command_is_traced_in_namespaces_of_its_own() {
    if !can_trace() {
        return;
    }
    let late = format!("{} {} hammer_push 100", example("late_dlopen"), example("libhammer.so"));
    for namespaces in ["-m", "-p -f --mount-proc", "-U -r", "-n -i -u", "-U -r -m -p -f"] {
        let run = format!("unshare {namespaces} {late}");
        let mut command = cudatrace();
        let output = command.env("LD_LIBRARY_PATH", "").args(["-q", "-e", COUNT, "-c", &run]).output();
        has_line(&output.expect("cudatrace starts"), "@: 100");
    }
}

#[test]
fn sixty_four_descriptors_are_enough() {
    if !can_trace() {
        return;
    }
    let run = "ulimit -n 64; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", run, "sh", env!("CARGO_BIN_EXE_cudatrace"), "-q", "-e", COUNT, "--"]);
    let late = [example("late_dlopen"), example("libhammer.so"), "hammer_push".into(), "100".into()];
    has_line(&command.args(late).output().expect("sh"), "@: 100");
}

/// All records of a GPU are counted with any number of descriptors, or a message gives the reason.
#[test]
fn records_that_few_descriptors_cost_are_reported() {
    if !can_trace() {
        return;
    }
    for engine in ["", "--in-process"] {
        for descriptors in (16..40).step_by(4).chain([64]) {
            let run = format!(
                "ulimit -n {descriptors}; exec \"$0\" {engine} -e 'gpu:kernel {{ @ = count() }}' -- \"$1\""
            );
            let mut command = Command::new("sh");
            command.env("LD_LIBRARY_PATH", examples()).env("CUDASIM_FAST", "1");
            let tracer = env!("CARGO_BIN_EXE_cudatrace");
            let output =
                command.args(["-c", &run, tracer, &example("workload_driver")]).output().expect("sh");
            let (printed, said) = (stdout(&output), stderr(&output));
            let is_exact = printed.lines().any(|line| line == "@: 40");
            let is_reported = said.contains("error: ") || said.contains("warning: ");
            assert!(is_exact || is_reported, "{descriptors} {engine}: {printed}{said}");
            assert!(is_exact || descriptors < 64, "{descriptors} {engine}: {printed}{said}");
            assert!(is_exact || !said.contains("are exact ("), "{descriptors} {engine}: {printed}{said}");
        }
    }
}

/// Lowers the descriptor limit of a running tracer, so that it cannot open more. It also limits poll(2).
fn take_descriptors(tracer: &Running) {
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
    // SAFETY: the limit is valid during the call, and the old one is not requested.
    let result =
        unsafe { libc::prlimit(tracer.pid() as i32, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

#[test]
fn a_library_that_comes_when_there_are_no_descriptors_left_is_reported() {
    if !can_trace() {
        return;
    }
    let late = format!("{} {} hammer_push 100", example("late_dlopen"), example("libhammer.so"));
    for action in ["@ = count()", "@[ustack] = count()"] {
        let script =
            format!("uprobe:libhammer:hammer_push {{ {action} }} uprobe:libc:getpid {{ @other = count() }}");
        let (input, mut writer) = std::io::pipe().expect("a pipe");
        let mut command = cudatrace();
        command.env("LD_LIBRARY_PATH", "").args(["-e", &script, "--", "sh", "-c"]);
        let mut tracer = Running::start(command.arg(format!("read line; {late}; exit 4")).stdin(input));
        tracer.wait_for_line("Attached");
        take_descriptors(&tracer);
        std::io::Write::write_all(&mut writer, b"next\n").expect("the shell reads");
        let (status, _) = tracer.ended();
        let lines = tracer.lines();
        assert_eq!(status.code(), Some(4), "{lines:#?}");
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(has("libhammer.so: not traced: ") && has("Too many open files"), "{lines:#?}");
        assert!(!has("no traced process loaded"), "{lines:#?}");
    }
}

#[test]
fn a_library_that_a_running_process_maps_when_there_are_no_descriptors_left_is_reported() {
    let Some((user, work)) = loader_and_library() else { return };
    // Only the process sees the file, so it must be opened through its root.
    let folder = tempfile::tempdir().expect("a directory");
    let library = folder.path().join("libwork.so");
    let run = format!(
        "mount -t tmpfs none {0} && cp {1} {2} && exec {3} told {2} {1}",
        folder.path().display(),
        work.display(),
        library.display(),
        user.display()
    );
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    let mut running = Running::start(Command::new("unshare").stdin(input).args(["-m", "sh", "-c", &run]));
    let pid = running.pid().to_string();
    let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    common::wait_for("the program", || name().starts_with("libraries"));
    let script = "uprobe:libwork:traced_work { @ = count() } uprobe:libc:getpid { @other = count() }";
    let mut tracer = Running::start(cudatrace().args(["-p", &pid, "-e", script]));
    tracer.wait_for_line("Tracing");
    tracer.wait_for_line("Attached");
    take_descriptors(&tracer);
    std::io::Write::write_all(&mut writer, b"\n").expect("it reads");
    tracer.wait_for_line("libwork.so: not traced: Too many open files");
    drop(writer);
    assert!(running.ended().0.success() && tracer.ended().0.success());
}

/// Creates a memory cgroup with a limit; returns the file for adding a process.
fn memory_group(name: &str, limit: &str) -> Option<PathBuf> {
    let old = Path::new("/sys/fs/cgroup/memory");
    let (mount, file) = if old.exists() {
        (old, "memory.limit_in_bytes")
    } else {
        (Path::new("/sys/fs/cgroup"), "memory.max")
    };
    let group = mount.join(name);
    std::fs::create_dir(&group).ok()?;
    let is_limited = std::fs::write(group.join(file), limit).is_ok();
    if !is_limited {
        let _ = std::fs::remove_dir(&group);
    }
    is_limited.then_some(group)
}

#[test]
fn a_small_memory_cgroup_is_enough() {
    if !can_trace() {
        return;
    }
    let name = format!("cudatrace-test-{}", std::process::id());
    let Some(group) = memory_group(&name, "67108864") else { return skip("memory cgroups cannot be made") };
    let run = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display());
    let mut command = Command::new("sh");
    command.args(["-c", &run, "sh", env!("CARGO_BIN_EXE_cudatrace"), "-q", "-e", COUNT, "--"]);
    let late = [example("late_dlopen"), example("libhammer.so"), "hammer_push".into(), "100".into()];
    let output = command.args(late).output().expect("sh");
    // Its seccomp server may be about to end.
    common::wait_for("the group to be left", || std::fs::remove_dir(&group).is_ok());
    has_line(&output, "@: 100");
}

#[test]
fn ten_tracers_of_one_library_each_see_all_calls() {
    let Some((user, work)) = loader_and_library() else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let library = folder.path().join("libwork.so");
    std::fs::copy(work, &library).expect("copied");
    let script = format!("uprobe:{}:traced_work {{ @ = count() }}", library.display());
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    let running = Running::start(Command::new(&user).stdin(input).args(["told", text(&library)]));
    let pid = running.pid().to_string();
    let whom: [&[&str]; 2] = [&["-p", &pid], &["--", text(&user), "told", text(&library)]];
    let start = |number: usize| Running::start(cudatrace().args(["-e", &script]).args(whom[number % 2]));
    let mut tracers: Vec<Running> = (0..10).map(start).collect();
    tracers.iter_mut().for_each(|tracer| tracer.wait_for_line("Attached"));
    std::io::Write::write_all(&mut writer, b"\n").expect("it reads");
    for tracer in tracers {
        let lines = tracer.lines();
        assert!(lines.iter().any(|line| line == "@: 100"), "{lines:#?}");
    }
}

#[test]
fn cudatrace_is_traced_by_cudatrace() {
    if !can_trace() {
        return;
    }
    let mut command = cudatrace();
    let tracer = ["-q", "-e", COUNT, "--", env!("CARGO_BIN_EXE_cudatrace"), "-q", "-e", COUNT, "--"];
    let output = command.args(tracer).args([&example("hammer"), "--calls", "100"]).output();
    let printed = stdout(&output.expect("cudatrace starts"));
    assert_eq!(printed.lines().filter(|line| *line == "@: 100").count(), 2, "{printed}");
}

#[test]
fn a_command_of_another_user_has_none_of_our_rights_and_files() {
    if !can_trace() {
        return;
    }
    // The shell itself lists its descriptors: those of a pipe to another command would come and go meanwhile.
    let show = "id -un; id -Gn; grep CapEff /proc/self/status; set -- /proc/$$/fd/*; echo $#";
    let run = |command: &mut Command| {
        let output = command.output().expect("it starts");
        stdout(&output)
    };
    let alone = run(Command::new("setpriv").args([
        "--reuid=nobody",
        "--regid=nogroup",
        "--init-groups",
        "sh",
        "-c",
        show,
    ]));
    let traced = run(cudatrace().args(["--user", "nobody", "-q", "-e", COUNT, "--", "sh", "-c", show]));
    assert!(traced.starts_with(&alone) && alone.contains("nobody"), "{alone} {traced}");
}

/// A shell with the name of sudo, which has an environment from elsewhere, starts cudatrace with another one.
#[test]
fn under_sudo_a_command_runs_as_who_has_called_it_with_the_environment_of_the_shell() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let sudo = folder.path().join("sudo");
    std::fs::copy("/bin/bash", &sudo).expect("it is copied");
    let show = "echo $(id -un) $MARK $HOME";
    let run_by_sudo = |options: &str| {
        let binary = env!("CARGO_BIN_EXE_cudatrace");
        let trace = format!(
            "unset MARK; SUDO_USER=nobody {binary} {options} -e 'BEGIN {{ }}' -- sh -c '{show}'; echo status $?"
        );
        Command::new(&sudo).args(["-c", &trace]).env("MARK", "of_the_shell").output().expect("it starts")
    };
    let traced = run_by_sudo("");
    let (said, messages) = (stdout(&traced), stderr(&traced));
    assert!(said.starts_with("nobody of_the_shell /nonexistent\n"), "{said}{messages}");
    assert!(messages.contains("the command runs as nobody, who has called sudo"), "{messages}");
    let traced = run_by_sudo("--user root");
    let (said, messages) = (stdout(&traced), stderr(&traced));
    assert!(said.starts_with("root /root\n"), "{said}{messages}");
}
