//! Which processes are traced: those of `-p` and the command with all their threads and children, and nobody else.

mod common;

use common::{Running, can_trace, cudatrace, example, stderr, stdout};
use std::path::Path;
use std::process::{Command, Output};

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
fn who_may_not_trace_is_told_what_it_needs() {
    if !can_trace() {
        return;
    }
    // Nobody may read the checkout, so nobody gets a copy.
    let copy = std::env::temp_dir().join(format!("cudatrace-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_cudatrace"), &copy).expect("a place for temporary files");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).current_dir("/");
    let output =
        command.args(["-e", "interval:s:1 { exit() }"]).output().expect("setpriv is part of util-linux");
    std::fs::remove_file(&copy).expect("just copied");
    assert_eq!(output.status.code(), Some(255), "{}", stderr(&output));
    for word in ["root", "CAP_BPF", "sudo"] {
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}

#[test]
fn two_capabilities_are_enough_to_trace_a_command() {
    if !can_trace() {
        return;
    }
    // A copy, as the checkout may be closed to others.
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
        "uretprobe:libhammer:hammer_push { @ = count(); @us[ustack(1)] = hist(duration) }",
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
fn a_process_that_is_not_there_is_said() {
    if !can_trace() {
        return;
    }
    let mut gone = Command::new("true").spawn().expect("true");
    gone.wait().expect("ended");
    let output = run(&["-p", &gone.id().to_string(), "-e", "uprobe:libhammer:hammer_push { @ = count() }"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("no process {}", gone.id())), "{}", stderr(&output));
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

/// A program that has what the Go compiler leaves in each of its programs.
fn go_like() -> std::path::PathBuf {
    const SOURCE: &str = "__attribute__((section(\".gopclntab\"), used)) static const char table[16] = {1};\n\
        __attribute__((noinline, used)) int work(int x) { __asm__ volatile(\"\"); return x; }\n\
        int main(void) { return work(0); }\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("go_like.c"), folder.join("go_like"));
    std::fs::write(&source, SOURCE).expect("target can be written to");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o"]).arg(&program).arg(&source);
    assert!(compiler.status().expect("gcc").success());
    program
}
