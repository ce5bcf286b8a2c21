//! Both engines on the same live program: generated scripts print the same in the kernel as with `--in-process`, to the byte.
//!
//! `ENGINES_PROGRAMS=5000` makes more scripts, `ENGINES_SEED=123` begins with that seed (and ends with it by default).

mod common;

use common::{can_trace, cudatrace, program, seeds, stderr, stdout, text};
use sim::generate::live_script;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Default number of generated scripts.
const PROGRAMS: u64 = 100;
/// Number of scripts whose clauses one run has.
const BATCH: usize = 10;

/// Output of a script, and the messages that do not depend on the engine.
#[derive(PartialEq)]
struct EngineOutput {
    lines: Vec<String>,
    messages: Vec<String>,
    /// Number of clauses in the kernel, of a run with `--in-process`.
    in_kernel: usize,
}

fn run(script: &str, program: &Path, options: &[&str]) -> Result<EngineOutput, String> {
    let mut command = cudatrace();
    command.args(options).args(["-v", "--unsafe", "-e", script, "--", text(program)]);
    // Without randomisation the stack of the program is at the same address in each run.
    // SAFETY: only a system call.
    unsafe {
        command.pre_exec(|| match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let output = command.output().expect("cudatrace starts");
    let said = stderr(&output);
    if !output.status.success() {
        return Err(format!("{}: {said}", output.status));
    }
    let in_kernel = said.lines().filter(|line| line.contains("` runs in the kernel: ")).count();
    let is_of_engine = |line: &str| {
        ["` runs in ", "Traced ", "Tracing ", "ed after ", " maps ", " functions patched", "detached in "]
            .iter()
            .any(|part| line.contains(part))
    };
    let messages: BTreeSet<&str> = said.lines().filter(|line| !is_of_engine(line)).collect();
    let messages = messages.into_iter().map(str::to_owned).collect();
    let lines = stdout(&output).lines().map(str::to_owned).collect();
    Ok(EngineOutput { lines, messages, in_kernel })
}

/// The first difference between two texts.
fn difference(kernel: &[String], process: &[String]) -> Option<String> {
    let at = (0..kernel.len().max(process.len())).find(|&at| kernel.get(at) != process.get(at))?;
    let none = String::from("(nothing)");
    let [kernel, process] = [kernel, process].map(|lines| lines.get(at).unwrap_or(&none));
    Some(format!("line {}: kernel: {kernel}\nprocess: {process}", at + 1))
}

#[test]
fn generated_scripts_print_the_same_in_the_kernel_and_in_the_process() {
    let options = ["-g", "-no-pie", "-fno-omit-frame-pointer"];
    let Some(program) = can_trace().then(|| program("slots.c", &options)).flatten() else { return };
    let seeds: Vec<u64> = seeds("ENGINES", PROGRAMS).collect();
    let (mut wrong, mut lines, mut clauses, mut in_kernel) = (Vec::new(), 0, 0, 0);
    for batch in seeds.chunks(BATCH) {
        let script = live_script(batch);
        let source = script.text.replace("TARGET", text(&program));
        let (kernel, process) = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| run(&source, &program, &[]));
            let process = run(&source, &program, &["--in-process"]);
            (kernel.join().expect("it does not panic"), process)
        });
        let found = match (&kernel, &process) {
            (Ok(kernel), Ok(process)) => {
                lines += kernel.lines.len();
                in_kernel += process.in_kernel;
                difference(&kernel.lines, &process.lines)
                    .or_else(|| difference(&kernel.messages, &process.messages))
            }
            (kernel, process) => {
                let errors = [kernel, process].map(|run| run.as_ref().err().cloned().unwrap_or_default());
                Some(errors.join("\n"))
            }
        };
        clauses += script.clauses;
        if let Some(found) = found {
            eprintln!("ENGINES_SEED={} ENGINES_PROGRAMS={}\n{found}", batch[0], batch.len());
            wrong.push(batch[0]);
        }
    }
    eprintln!("{clauses} clauses, {in_kernel} of them in the kernel, {lines} lines");
    assert!(wrong.is_empty(), "the batches of these seeds differ: {wrong:?}");
    assert!(lines > 30 * seeds.len(), "{lines} lines");
    assert!(20 * in_kernel <= clauses, "{in_kernel} of {clauses} clauses ran in the kernel");
}
