//! Traced processes that lie: what they write into the memory that they share with cudatrace harms nobody but their own results.

mod common;

use common::{can_trace, cudatrace, number, program, stderr, stdout, text};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// User and group without any rights.
const NOBODY: u32 = 65534;
/// Exit status of results that may be wrong.
const DAMAGED: i32 = 3;
/// Longest time for one program, which takes a quarter of a second by itself.
const LIMIT: Duration = Duration::from_secs(60);

/// Scripts that use all kinds of maps, on both sides: the process writes while the tracer prints, clears and deletes.
const SCRIPTS: [&str; 4] = [
    "uprobe:TARGET:traced_work { printf(\"%d %d\\n\", arg0, arg1); @[arg0] = count(); @p[arg1] = arg0 }
     interval:ms:20 { print(@); clear(@); @p[7] = 4242; delete(@p[3]) }",
    "uretprobe:TARGET:traced_work { @h[func] = hist(duration); @s = stats(retval); @a[arg0] = avg(retval) }
     interval:ms:20 { print(@h); clear(@h); zero(@a); for ($kv : @a) { @n = $kv.0 } }",
    "uprobe:TARGET:traced_work { @[ustack(4), comm] = count(); @l[tid] = lhist(arg0, 0, 100, 10); @t[arg0] = tseries(arg1, 10ms, 5) }
     interval:ms:20 { print(@l); print(@t) }",
    "config = { max_map_keys = 64 } let @m = lruhash(32);
     uprobe:TARGET:traced_work { @m[arg0] = str(arg1); @x[arg0, arg1] = (arg0, comm); @y = arg0 }
     interval:ms:10 { print(@m); delete(@x[3, 0]); printf(\"%s %d\\n\", str(@y), *(uint64*)@y); print(*(uint64*)kptr(@y)) }",
];

/// A program whose `traced_work` can be patched.
fn traced(name: &str) -> Option<PathBuf> {
    can_trace().then(|| program(name, &["-fno-omit-frame-pointer"])).flatten()
}

/// Runs a command to its end, which must come.
fn run(mut command: Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("cudatrace starts");
    let pid = child.id() as i32;
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if is_done.recv_timeout(LIMIT).is_err() {
            // SAFETY: a child of this process that was not waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().expect("a child");
    drop(done);
    guard.join().expect("it does not panic");
    output
}

/// The script with the program as its target.
fn on(script: &str, target: &str) -> String {
    script.replace("TARGET", target)
}

/// For `CUDATRACE_FUZZ_SECONDS`, by default a few runs. A run with a seed: `CUDATRACE_FUZZ_SEED`.
#[test]
fn random_words_in_the_shared_memory_end_neither_the_tracer_nor_the_program() {
    let Some(scribbler) = traced("scribbler.c") else { return };
    let seconds = Duration::from_secs(number("CUDATRACE_FUZZ_SECONDS").unwrap_or(0));
    let first = number("CUDATRACE_FUZZ_SEED").unwrap_or(1);
    let start = Instant::now();
    let (mut damaged, mut runs) = (0, 0);
    for seed in first.. {
        if runs >= 12 && start.elapsed() >= seconds {
            break;
        }
        runs += 1;
        let fill = ["-1", "-1", "-1", "0", "255", "1"][seed as usize % 6];
        let script = on(SCRIPTS[seed as usize % SCRIPTS.len()], text(&scribbler));
        let mut command = cudatrace();
        command.args([
            "--in-process",
            "-e",
            &script,
            "--",
            text(&scribbler),
            &seed.to_string(),
            "5000",
            fill,
        ]);
        let output = run(command);
        let said = stderr(&output);
        let has_told = said.contains("has damaged the memory that it shares with cudatrace");
        let expected = if has_told { DAMAGED } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "seed {seed}: {:?} {said}", output.status);
        assert!(!said.contains("panicked"), "seed {seed}: {said}");
        damaged += u32::from(has_told);
    }
    // Some writes only make values wrong.
    assert!(2 * damaged > runs, "{damaged} of {runs} runs told that the memory is damaged");
}

#[test]
fn a_program_in_the_tracer_reads_no_memory_of_the_tracer() {
    let Some(scribbler) = traced("scribbler.c") else { return };
    // Without randomisation the stacks of both are at the same addresses.
    let script = on(
        "uprobe:TARGET:traced_work /tid == pid/ { @address = reg(\"sp\") }
         interval:ms:50 { printf(\"user %d kernel %d\\n\", *(uint64*)@address, *(uint64*)kptr(@address)); @text = str(@address) }
         END { print(@text); clear(@address) }",
        text(&scribbler),
    );
    let mut command = cudatrace();
    command.args(["--in-process", "-q", "-e", &script, "--", text(&scribbler), "1", "0"]);
    // SAFETY: only a system call.
    unsafe {
        command.pre_exec(|| match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let output = run(command);
    let (said, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.lines().any(|line| line == "user 0 kernel 0"), "{said}{errors}");
    assert!(
        said.lines().filter(|line| line.starts_with("user")).all(|line| line == "user 0 kernel 0"),
        "{said}"
    );
    assert!(errors.contains("failed"), "it is counted as a failed read: {errors}");
}

#[test]
fn a_process_of_another_user_shares_no_memory() {
    let Some(scribbler) = traced("scribbler.c") else { return };
    let public = tempfile::tempdir().expect("a folder");
    let path = public.path().join("scribbler");
    std::fs::copy(&scribbler, &path).expect("copied");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(public.path(), open).expect("it is ours");
    // Both wait for memory that they share with a tracer; nobody's writes there.
    let start = |writes: &str, uid: u32| {
        let mut command = Command::new(&path);
        command.args(["5", writes, if uid == 0 { "-1" } else { "255" }, "4"]).uid(uid).gid(uid);
        common::Running::start(command.stdin(Stdio::null()))
    };
    let (of_root, mut of_nobody) = (start("0", 0), start("200000", NOBODY));
    let [first, second] = [of_root.pid(), of_nobody.pid()].map(|pid| pid.to_string());
    let script = on("uprobe:TARGET:traced_work { @[uid] = count() }", text(&path));
    let mut command = cudatrace();
    command.args(["--in-process", "-q", "-e", &script, "-p", &first, "-p", &second]);
    let output = run(command);
    let (said, errors) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(3), "{said}{errors}");
    let users: Vec<&str> = said.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(users, ["@[0]"], "{said}{errors}");
    let refused =
        format!("process {second} is not traced: its rights are not those of the processes that are traced");
    assert!(errors.contains(&refused) && !errors.contains(&format!("process {first} ")), "{errors}");
    assert!(of_nobody.ended().0.success());
}

#[test]
fn a_child_that_gives_up_root_leaves_the_shared_memory() {
    let Some(rights) = traced("rights.c") else { return };
    let script = on("uprobe:TARGET:traced_work { @[arg1] = count() }", text(&rights));
    let mut command = cudatrace();
    command.args(["--in-process", "-q", "-e", &script, "--", text(&rights)]);
    let output = run(command);
    let (said, errors) = (stdout(&output), stderr(&output));
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, ["child 0", "@[2]: 50", "@[1]: 100"], "{errors}");
    assert!(errors.contains("its rights have changed"), "{errors}");
}
