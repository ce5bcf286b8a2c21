//! Processes that speak to the agents' socket in place of an agent change nothing: not the totals, not the terminal, not the exit status.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use common::{can_trace, cudatrace, example, program, stderr, stdout, text};
use cuda::gpu::{HIDDEN, KINDS};

/// A user without rights.
const NOBODY: u32 = 65534;
/// A name of a tool that controls the terminal is sent by `escapes`.
const PARTS: [&str; 4] = ["PWNED", "root#", "\x1b", "\u{9b}"];
const COUNT: &str = "gpu:kernel { @ = count() }";

/// The program that lies, at a place that all users can reach.
struct Liar {
    folder: tempfile::TempDir,
}

impl Liar {
    /// `None` if it cannot be built, or nothing can be traced.
    fn new() -> Option<Liar> {
        let kinds = format!("-DKINDS={}", KINDS.len() + HIDDEN.len());
        let built = program("liar.c", &["-fno-strict-aliasing", &kinds]).filter(|_| can_trace())?;
        let folder = tempfile::tempdir().expect("a folder");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("it is ours");
        std::fs::copy(built, folder.path().join("liar")).expect("copied");
        Some(Liar { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("liar")
    }

    /// Runs it as a user beside a traced workload.
    fn beside(&self, user: u32, arguments: [&str; 3]) -> (String, Output) {
        let run = traced("1.5").spawn().expect("cudatrace starts");
        let mut command = Command::new(self.path());
        command.arg(run.id().to_string()).args(arguments).uid(user).gid(user);
        let lied = command.output().expect("the liar starts");
        (stdout(&lied), run.wait_with_output().expect("it ends"))
    }

    /// Runs it as a child of the traced command, beside the workload.
    fn inside(&self, arguments: &str) -> Output {
        let (path, workload) = (self.path(), example("workload_gpu"));
        let both = format!(
            "{} 0 {arguments} & {workload} --kernels 50 --graphs 0 --rate 2000 --seconds 1; wait",
            text(&path)
        );
        cudatrace().args(["-e", COUNT, "--", "sh", "-c", &both]).output().expect("cudatrace starts")
    }
}

/// A traced run of the workload, beside which others lie.
fn traced(seconds: &str) -> Command {
    let mut command = cudatrace();
    command.args(["-e", COUNT, "--", &example("workload_gpu"), "--threads", "2", "--kernels", "50"]);
    command.args(["--graphs", "0", "--rate", "2000", "--seconds", seconds]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Checks that every kernel is counted that the simulated GPU ran, and that no message is a liar's.
fn check(output: &Output) {
    let (out, messages) = (stdout(output), stderr(output));
    assert!(output.status.success(), "{out}{messages}");
    let counted = out.lines().find_map(|line| line.strip_prefix("@: ")).expect("a count");
    let ran = out.lines().filter_map(|line| line.strip_prefix("gpu kernel ")?.rsplit_once(' '));
    let ran: u64 = ran.map(|(_, count)| count.parse::<u64>().expect("a number")).sum();
    assert_eq!(counted, ran.to_string(), "{out}{messages}");
    let exact = format!("GPU times are exact (CUPTI 13.0.1): {ran} records of 1 process\n");
    assert!(messages.contains(&exact), "{messages}");
    assert!(!messages.contains("warning") && !PARTS.iter().any(|part| messages.contains(part)), "{messages}");
}

const NOT_TRACED: &str = " is not traced but connected in the name of a traced process: refused\n";

#[test]
fn any_user_can_connect_and_is_refused() {
    let Some(liar) = Liar::new() else { return };
    for arguments in [["wrong", "escapes", "3"], ["none", "numbers", "3"], ["wrong", "random", "50"]] {
        let (_, output) = liar.beside(NOBODY, arguments);
        check(&output);
        // Told once.
        assert_eq!(stderr(&output).matches(NOT_TRACED).count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn the_right_secret_of_a_process_that_is_not_traced_is_refused() {
    let Some(liar) = Liar::new() else { return };
    let (sent, output) = liar.beside(0, ["right", "escapes", "2"]);
    assert!(!sent.contains("no tracer"), "root can read the secret: {sent}");
    check(&output);
    assert_eq!(stderr(&output).matches(NOT_TRACED).count(), 1, "{}", stderr(&output));
}

#[test]
fn a_flood_of_connections_keeps_no_agent_out() {
    let Some(liar) = Liar::new() else { return };
    let (_, output) = liar.beside(NOBODY, ["none", "none", "20000"]);
    check(&output);
    let messages = stderr(&output);
    assert!(messages.contains(" connections of processes without an agent were refused\n"), "{messages}");
}

#[test]
fn a_traced_process_without_the_secret_is_refused() {
    let Some(liar) = Liar::new() else { return };
    for arguments in ["wrong escapes 3", "none numbers 3", "wrong random 100", "none none 500"] {
        let output = liar.inside(arguments);
        check(&output);
        let messages = stderr(&output);
        let refused = "connected as an agent, without the secret of the agent: refused\n";
        assert_eq!(messages.matches(refused).count(), 1, "{arguments}: {messages}");
    }
}

#[test]
fn a_traced_process_that_sends_nonsense_is_not_trusted_and_harms_no_other() {
    let Some(liar) = Liar::new() else { return };
    for (arguments, what) in [
        ("right numbers 2", "a total of 9223372036854775808 after 0"),
        ("right falls 2", "a total of 0 after 1"),
    ] {
        let output = liar.inside(arguments);
        let messages = stderr(&output);
        assert!(output.status.success(), "{messages}");
        let told =
            format!("sent {what} in place of its agent: its GPU records are not trusted from here on\n");
        assert_eq!(messages.matches(&told).count(), 1, "{messages}");
        assert!(messages.contains("connected as an agent a second time: refused\n"), "{messages}");
    }
}

#[test]
fn names_of_tools_do_not_control_the_terminal() {
    let Some(liar) = Liar::new() else { return };
    let output = liar.inside("right escapes");
    let messages = stderr(&output);
    assert!(output.status.success(), "{messages}");
    assert!(
        messages.contains(r"another tool uses CUPTI there, `\x1b]0;PWNED\x07\x1b[31mroot# \n\x1b[2J\u009b`"),
        "{messages}"
    );
    assert!(!messages.contains(['\x1b', '\x07', '\u{9b}']), "{messages}");
}

#[test]
fn random_reports_of_a_traced_process_end_nothing() {
    let Some(liar) = Liar::new() else { return };
    let start = Instant::now();
    let limit = common::number("CUDATRACE_FUZZ_SECONDS").unwrap_or(2);
    let mut seed = 1;
    while seed == 1 || start.elapsed().as_secs() < limit {
        let output = liar.inside(&format!("right random {seed}"));
        let (out, messages) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{seed}: {out}{messages}");
        assert!(out.contains("@: ") && !messages.contains("panicked"), "{seed}: {out}{messages}");
        seed += 1;
    }
}
