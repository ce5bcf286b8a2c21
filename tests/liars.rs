//! Processes that speak to the agents' socket in place of an agent change nothing: not the totals, not the terminal, not the exit status.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use common::{can_trace, cudatrace, example, program, stderr, stdout, text};

/// A user without rights.
const NOBODY: u32 = 65534;
/// A name of a tool that controls the terminal is sent by `escapes`.
const PARTS: [&str; 4] = ["PWNED", "root#", "\x1b", "\u{9b}"];
const COUNT: &str = "gpu:kernel { @ = count() }";

/// The program that lies, at a place that all users can reach.
fn liar() -> Option<std::path::PathBuf> {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let built = program("liar.c", &["-fno-strict-aliasing"]).filter(|_| can_trace())?;
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let copy = std::env::temp_dir().join(format!("cudatrace-liar-{}-{number}", std::process::id()));
    std::fs::copy(built, &copy).expect("the folder for temporary files is writable");
    Some(copy)
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

/// Runs the liar as a user beside a traced workload.
fn lie(user: u32, arguments: [&str; 3]) -> (String, Output) {
    let liar = liar().expect("built before");
    let run = traced("1.5").spawn().expect("cudatrace starts");
    let mut command = Command::new(&liar);
    command.arg(run.id().to_string()).args(arguments).uid(user).gid(user);
    let lied = command.output().expect("the liar starts");
    let output = run.wait_with_output().expect("it ends");
    let _ = std::fs::remove_file(liar);
    (stdout(&lied), output)
}

const NOT_TRACED: &str = ", which is not traced, tried to speak for a traced one: refused\n";

#[test]
fn any_user_can_connect_and_is_refused() {
    if liar().is_none() {
        return;
    }
    for arguments in [["wrong", "escapes", "3"], ["none", "numbers", "3"], ["wrong", "random", "50"]] {
        let (_, output) = lie(NOBODY, arguments);
        check(&output);
        // Told once.
        assert_eq!(stderr(&output).matches(NOT_TRACED).count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn the_right_secret_of_a_process_that_is_not_traced_is_refused() {
    if liar().is_none() {
        return;
    }
    let (sent, output) = lie(0, ["right", "escapes", "2"]);
    assert!(!sent.contains("no tracer"), "root can read the secret: {sent}");
    check(&output);
    assert_eq!(stderr(&output).matches(NOT_TRACED).count(), 1, "{}", stderr(&output));
}

#[test]
fn a_flood_of_connections_keeps_no_agent_out() {
    if liar().is_none() {
        return;
    }
    let (_, output) = lie(NOBODY, ["none", "none", "20000"]);
    check(&output);
    let messages = stderr(&output);
    assert!(messages.contains(" connections of processes without an agent were refused\n"), "{messages}");
}

/// Runs the liar as a child of the traced command, beside the workload.
fn lie_inside(arguments: &str) -> Output {
    let liar = liar().expect("built before");
    let (lie, workload) = (text(&liar), example("workload_gpu"));
    let both =
        format!("{lie} 0 {arguments} & {workload} --kernels 50 --graphs 0 --rate 2000 --seconds 1; wait");
    let output = cudatrace().args(["-e", COUNT, "--", "sh", "-c", &both]).output().expect("cudatrace starts");
    let _ = std::fs::remove_file(&liar);
    output
}

#[test]
fn a_traced_process_without_the_secret_is_refused() {
    if liar().is_none() {
        return;
    }
    for arguments in ["wrong escapes 3", "none numbers 3", "wrong random 100", "none none 500"] {
        let output = lie_inside(arguments);
        check(&output);
        let messages = stderr(&output);
        let refused = "connected as an agent, without the secret of the agent: refused\n";
        assert_eq!(messages.matches(refused).count(), 1, "{arguments}: {messages}");
    }
}

#[test]
fn a_traced_process_that_sends_nonsense_is_not_trusted_and_harms_no_other() {
    if liar().is_none() {
        return;
    }
    for (arguments, what) in [
        ("right numbers 2", "a total of 9223372036854775808 after 0"),
        ("right falls 2", "a total of 0 after 1"),
    ] {
        let output = lie_inside(arguments);
        let messages = stderr(&output);
        assert!(output.status.success(), "{messages}");
        let told =
            format!("sent {what} in place of its agent: its GPU records are not trusted from here on\n");
        assert_eq!(messages.matches(&told).count(), 1, "{messages}");
        assert!(messages.contains("connected as an agent once more: refused\n"), "{messages}");
    }
}

#[test]
fn names_of_tools_do_not_control_the_terminal() {
    if liar().is_none() {
        return;
    }
    let output = lie_inside("right escapes");
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
    if liar().is_none() {
        return;
    }
    let start = Instant::now();
    let limit = common::number("CUDATRACE_FUZZ_SECONDS").unwrap_or(2);
    let mut seed = 1;
    while seed == 1 || start.elapsed().as_secs() < limit {
        let output = lie_inside(&format!("right random {seed}"));
        let (out, messages) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{seed}: {out}{messages}");
        assert!(out.contains("@: ") && !messages.contains("panicked"), "{seed}: {out}{messages}");
        seed += 1;
    }
}
