//! Output of the bundled scripts on the simulated CUDA: objects with `-f json`, and the same rows in the same order in each run.

mod common;

use common::{can_trace, example};
use regex::Regex;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Held by what writes to the kernel's log, and by what reads it: all processes have the same one.
static KERNEL_LOG: Mutex<()> = Mutex::new(());
/// Held by runs whose stacks are compared, and by those with return probes in the kernel on the same libraries: their return addresses are
/// in the way of stacks that programs in the process walk.
static RETURNS: Mutex<()> = Mutex::new(());

/// The names of the scripts that print a report.
fn scripts() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_scripts = files.filter(|path| path.extension().is_some_and(|extension| extension == "ct"));
    let names = of_scripts.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    // `uvm` needs kernel probes and the driver: tests/kernels/module.test.
    let mut names: Vec<String> = names.filter(|name| name != "metrics" && name != "uvm").collect();
    names.sort();
    names
}

/// A program for which a script has output, and its arguments.
fn workload(script: &str) -> (&'static str, &'static [&'static str]) {
    match script {
        "nccl" => ("workload_nccl", &[]),
        "churn" => ("workload_habits", &["churn"]),
        "doublefree" => ("workload_habits", &["frees"]),
        "graphs" => ("workload_habits", &["graphs"]),
        "ioctls" => ("any_ioctls", &["/dev/null", "/dev/null"]),
        "memleak" => ("workload_habits", &["leaks", "frees"]),
        "modules" => ("workload_habits", &["modules"]),
        "offcpu" => ("workload_habits", &["asleep"]),
        "oom" => ("workload_habits", &["oom"]),
        "streams" => ("workload_habits", &["streams"]),
        "silent" => ("workload_runtime13", &["--threads", "1", "--silent", "3"]),
        "steps" => ("workload_torch", &["40", "3", "1"]),
        "top" => ("workload_runtime13", &["--threads", "1", "--linger", "1500"]),
        _ => ("workload_runtime13", &["--threads", "1"]),
    }
}

/// A command for a script. The driver that `ioctls` needs has the major number of `/dev/null`.
fn cudatrace_for(script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    if script == "ioctls" {
        common::with_devices(&mut command, &[("nvidia", 1), ("nvidia-uvm", 1)]);
    }
    command
}

/// The output of a script for its workload, without the output of the workload.
fn printed(script: &str, options: &[&str]) -> String {
    let output = tempfile::NamedTempFile::new().unwrap();
    let (program, arguments) = workload(script);
    let mut command = cudatrace_for(script);
    command.args(["-q", "-o"]).arg(output.path()).args(options).arg(script);
    command.arg("--").arg(example(program)).args(arguments);
    let run = command.output().expect("the binary under test can be started");
    assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
    std::fs::read_to_string(output.path()).unwrap()
}

#[test]
fn all_scripts_print_objects_as_json() {
    if !can_trace() {
        return;
    }
    for script in scripts() {
        let said = printed(&script, &["-f", "json"]);
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let texts: Vec<&Value> = lines.iter().filter(|line| line["type"] == "printf").collect();
        assert!(texts.is_empty(), "{script} prints text: {texts:?}");
        let has_rows = lines.iter().any(|line| line["type"] == "table" || line["type"] == "row");
        assert!(has_rows, "{script} prints no rows: {said}");
    }
}

/// The output with varying parts replaced: times, addresses, process ids.
fn alike(text: &str) -> String {
    let same = [
        (r"\d\d:\d\d:\d\d(\.\d+)?", "CLOCK"),
        (r"0x[0-9a-f]+", "ADDRESS"),
        // The program queries until its work is done, so the number varies.
        (r"\d+ queried", "QUERIED"),
        (r"\d+\.\d [num]?s|\d+ ns", "TIME"),
        (r"\b\d{3,7}\b", "NUMBER"),
        (r" +", " "),
    ];
    same.iter().fold(text.to_owned(), |text, (pattern, name)| {
        Regex::new(pattern).unwrap().replace_all(&text, *name).into_owned()
    })
}

#[test]
fn runs_of_a_workload_print_the_same_rows_in_the_same_order() {
    if !can_trace() {
        return;
    }
    let _returns = RETURNS.lock().unwrap_or_else(PoisonError::into_inner);
    // The other scripts sort their rows by time, which varies.
    for script in
        ["doublefree", "errors", "graphs", "kernels", "memcpy", "memleak", "nccl", "oom", "silent", "streams"]
    {
        let [first, second, in_process] =
            [&[][..], &[], &["--in-process"]].map(|options| alike(&printed(script, options)));
        assert!(!first.is_empty(), "{script} prints nothing");
        assert_eq!(first, second, "{script}");
        assert_eq!(first, in_process, "{script} in the process");
        assert!(!first.starts_with('\n'), "{script} begins with an empty line");
        assert!(!first.ends_with("\n\n"), "{script} ends with an empty line: {first}");
    }
}

/// Columns of a terminal that all scripts fit.
const SCREEN: usize = 80;

/// Whether a line fits the screen. The last cell of a row may run over, and so may a sentence below its title.
fn fits(line: &str) -> bool {
    let begin = line.trim_end().rfind("  ").map_or(0, |at| at + 2);
    line.chars().count() <= SCREEN || (4..SCREEN).contains(&begin)
}

/// Programs of two processes, of which one uses two GPUs, and the scripts and options that tell these apart.
fn of_several_gpus() -> (Vec<String>, [&'static [&'static str]; 8]) {
    let one = format!("{} --threads 2 --ranges 1 --seconds 1.2 --rate 1000", example("workload_gpu"));
    let script = format!("{one} --devices 2 & {one}; wait");
    let scripts: [&[&str]; 8] = [
        &["gpu"],
        &["copies"],
        &["idle"],
        &["nvtx"],
        &["graphs", "--gpu"],
        &["kernels", "--gpu"],
        &["summary", "--gpu"],
        &["top", "--gpu"],
    ];
    (vec!["sh".into(), "-c".into(), script], scripts)
}

#[test]
fn rows_of_scripts_fit_80_columns() {
    if !can_trace() {
        return;
    }
    let _log = KERNEL_LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let _returns = RETURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let (command, with_gpu) = of_several_gpus();
    let of_several = with_gpu.map(|words| {
        let output = tempfile::NamedTempFile::new().unwrap();
        let mut cudatrace = cudatrace_for(words[0]);
        cudatrace.args(["-q", "-o"]).arg(output.path()).args(words).arg("--").args(&command);
        let run =
            cudatrace.env("CUDASIM_DEVICES", "2").output().expect("the binary under test can be started");
        assert!(run.status.success(), "{words:?}: {}", String::from_utf8_lossy(&run.stderr));
        (words.join(" "), std::fs::read_to_string(output.path()).unwrap())
    });
    let of_one = scripts().into_iter().map(|script| {
        let said = printed(&script, &[]);
        (script, said)
    });
    let mut wide = String::new();
    for (script, said) in of_one.chain(of_several) {
        assert!(!said.trim().is_empty(), "{script} prints nothing");
        for line in said.lines().filter(|line| !fits(line)) {
            wide += &format!("{script}: {line}\n");
        }
    }
    assert!(wide.is_empty(), "over {SCREEN} columns:\n{wide}");
}

/// The options of a script whose values are numbers.
fn numbers(script: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(format!("{script}.ct"));
    let text = std::fs::read_to_string(path).unwrap();
    let option = Regex::new(r#"getopt\("([a-z-]+)", \d+, "#).unwrap();
    option.captures_iter(&text).map(|found| found[1].to_owned()).collect()
}

#[test]
fn a_number_that_does_not_fit_is_refused_in_one_line() {
    if !can_trace() {
        return;
    }
    let mut refused = 0;
    for script in scripts() {
        for (option, number) in
            numbers(&script).iter().flat_map(|option| [(option, "-1"), (option, "5000000000")])
        {
            let mut command = cudatrace_for(&script);
            let libcuda = format!("--lib=libcuda={}", example("libcuda.so.1"));
            let run = command.args(["--check", &libcuda, &script, &format!("--{option}={number}")]).output();
            let run = run.expect("the binary under test can be started");
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            let is_one_line = said.lines().count() == 1
                && said.starts_with(&format!("error: `--{option}={number}`: expected "));
            let is_about_libraries = said.contains("E0111");
            // A missing library on this machine is reported as a note.
            let is_taken = run.status.success() && !said.contains("error") && !said.contains("warning");
            assert!(is_taken || is_one_line || is_about_libraries, "{script} --{option}={number}: {said}");
            refused += usize::from(is_one_line);
        }
    }
    assert!(refused > 30, "{refused}");
}

/// The tables of the tracer have the texts by which stripped programs with a CUDA runtime are known.
#[test]
fn the_tracer_is_no_program_with_a_cuda_runtime() {
    let folder = tempfile::tempdir().expect("a directory");
    let stripped = folder.path().join("tracer");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(env!("CARGO_BIN_EXE_cudatrace")).status();
    assert!(strip.expect("strip of binutils").success());
    let elf = host::ElfFile::open(&stripped).expect("an ELF file");
    assert!(elf.contains(b"cudaErrorInvalidValue\0") && elf.contains(b"libcuda.so.1\0") && !elf.has_symtab());
    assert!(!host::search::hides_static_runtime(&stripped, &elf));
}

#[test]
fn a_warning_of_a_bundled_script_shows_no_line_of_it() {
    if !can_trace() {
        return;
    }
    // The library has none of the functions.
    let libcuda = format!("--lib=libcuda={}", example("liblate.so"));
    let warnings = |options: &[&str]| {
        let run = cudatrace_for("calls").args(["--check", &libcuda]).args(options).arg("calls").output();
        String::from_utf8_lossy(&run.expect("the binary under test can be started").stderr).into_owned()
    };
    let said = warnings(&[]);
    let expected = "warning: `calls` may be incomplete here: no function `cuCtxGetCurrent` in";
    assert!(said.starts_with(expected) && !said.contains("calls.ct"), "{said}");
    assert!(warnings(&["-v"]).contains("calls.ct:"), "{said}");
}

/// Lines of the kernel's log as the driver writes them, in the name of a process that launched kernels and has ended.
#[test]
fn xid_shows_the_last_launches_of_the_process_that_the_driver_names() {
    let obstacle = if Path::new("/proc/driver/nvidia").exists() {
        Some("a line for an Xid in the kernel's log could alarm those who watch the GPUs of this machine")
    } else if std::fs::OpenOptions::new().write(true).open("/dev/kmsg").is_err() {
        Some("/dev/kmsg cannot be written")
    } else {
        None
    };
    if let Some(obstacle) = obstacle {
        eprintln!("skipped: {obstacle}");
        return;
    }
    if !can_trace() {
        return;
    }
    let _log = KERNEL_LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let output = tempfile::NamedTempFile::new().unwrap();
    let log = r#""$0" gaps & wait
        echo "NVRM: Xid (PCI:0000:17:0a): 31, pid=$!, name=workload_habits, Ch 8, by a test of cudatrace" > /dev/kmsg
        echo "NVRM: Xid (PCI:0001:ff:00): 998, by a test of cudatrace" > /dev/kmsg"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_cudatrace"));
    command.args(["-q", "xid", "--launches=3", "-o"]).arg(output.path());
    let run = command.args(["--", "sh", "-c", log]).arg(example("workload_habits")).output().unwrap();
    let messages = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success() && !messages.contains("warning"), "{messages}");
    let printed = std::fs::read_to_string(output.path()).unwrap();
    let expected = [
        r"^\d\d:\d\d:\d\d\.\d+ Xid 31 on 0000:17:0a, page fault of the GPU: .*$",
        r"^  NVRM: Xid \(PCI:0000:17:0a\): 31, pid=\d+, name=workload_habits, Ch 8, by a test of cudatrace$",
        r"^  workload_habits \(\d+\) made 40 launches, at last:$",
        r"^ *BEFORE  GRID  BLOCK +STREAM  KERNEL$",
        r"^ *[0-9.]+ m?s  1     64     0x[0-9a-f]+  fill$",
        r"^ *[0-9.]+ m?s  1     64     0x[0-9a-f]+  fill$",
        r"^ *[0-9.]+ m?s  1     64     0x[0-9a-f]+  fill$",
        "^$",
        r"^\d\d:\d\d:\d\d\.\d+ Xid 998 on 0001:ff:00, without a description here$",
        r"^  NVRM: Xid \(PCI:0001:ff:00\): 998, by a test of cudatrace$",
        "^  The driver names no process.$",
        "^$",
        "^ERRORS  XID  DEVICE      MEANING$",
        "^     1   31  0000:17:0a  page fault of the GPU: .*$",
        "^     1  998  0001:ff:00  without a description here$",
    ];
    for (line, expected) in printed.lines().zip(expected) {
        assert!(
            Regex::new(expected).unwrap().is_match(line),
            "{line:?} does not match {expected}:\n{printed}"
        );
    }
    assert_eq!(printed.lines().count(), expected.len(), "{printed}");
}
