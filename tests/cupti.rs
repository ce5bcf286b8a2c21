//! Processes without CUPTI: the message says why and what to do, the trace counts as incomplete, and NVML's estimate is there.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Running, can_trace, cudatrace, examples, program, stderr, stdout, text, wait_for};

/// A folder with a workload, its driver and NVML, which no other library is beside.
fn without_cupti() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["workload_gpu", "libcuda.so.1", "libnvidia-ml.so.1"] {
        fs::copy(examples().join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// A trace of the kernels of the workload in a folder.
fn trace(folder: &Path, options: &[&str]) -> Output {
    let mut command = cudatrace();
    command.env("LD_LIBRARY_PATH", folder).args(options);
    command.args(["--export", "jsonl=/dev/null", "--fail-on-loss", "-e", "gpu:kernel { @ = count() }", "--"]);
    command.arg(folder.join("workload_gpu")).args(["--kernels", "10", "--graphs", "0", "--seconds", "2.5"]);
    command.output().unwrap()
}

/// Checks that a trace has no records, the reason, and an estimate.
fn has_none(output: &Output, why: &str) {
    let (said, messages) = (stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(3), "{said}{messages}");
    let warning = messages.lines().find(|line| line.starts_with("warning: no GPU records of process "));
    assert!(warning.is_some_and(|line| line.ends_with(&format!(": {why}"))), "{said}{messages}");
    assert!(messages.contains("an estimate by NVML: kernels of process "), "{said}{messages}");
    assert!(!messages.contains("GPU times"), "{said}{messages}");
}

/// Where programs run does not matter.
const PLACES: [&[&str]; 2] = [&[], &["--in-process"]];

const INSTALL: &str = "install one by `pip install nvidia-cuda-cupti` (for CUDA 12 `nvidia-cuda-cupti-cu12`), and name its file by \
                       `--lib libcupti=PATH`";

#[test]
fn a_process_without_cupti_has_no_records_and_the_way_out_has_them() {
    if !can_trace() {
        return;
    }
    let folder = without_cupti();
    let file = examples().join("libcupti.so.13");
    for place in PLACES {
        has_none(&trace(folder.path(), place), &format!("it has no CUPTI: {INSTALL}"));
        let named = format!("libcupti={}", text(&file));
        let output = trace(folder.path(), &[place, &["--lib", &named]].concat());
        let (said, messages) = (stdout(&output), stderr(&output));
        assert!(output.status.success(), "{said}{messages}");
        assert!(messages.contains("GPU times are exact (CUPTI 13.0.1)"), "{said}{messages}");
        assert!(!messages.contains("an estimate by NVML"), "{said}{messages}");
    }
}

#[test]
fn a_file_that_is_no_cupti_is_named_and_no_other_one_is_taken() {
    if !can_trace() {
        return;
    }
    let folder = without_cupti();
    fs::copy(examples().join("libcupti.so.13"), folder.path().join("libcupti.so.13")).unwrap();
    let missing = folder.path().join("missing.so");
    let why = format!("it cannot load CUPTI from `{}`, the file of `--lib`", missing.display());
    has_none(&trace(folder.path(), &["--lib", &format!("libcupti={}", missing.display())]), &why);
}

#[test]
fn a_cupti_without_the_functions_is_too_old() {
    if !can_trace() {
        return;
    }
    let Some(old) = program("old_cupti.c", &["-shared", "-fPIC"]) else { return };
    let folder = without_cupti();
    fs::copy(old, folder.path().join("libcupti.so.12")).unwrap();
    let why = format!("it has CUPTI, API version 14, which is too old: {INSTALL}");
    has_none(&trace(folder.path(), &["--in-process"]), &why);
}

/// The text of libcuda in a process, whose file no other program maps: the kernel's probes of another trace would be in it.
fn text_of_driver(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let line = maps.lines().find(|line| line.contains("r-xp") && line.contains("libcuda")).expect("mapped");
    let range = line.split_whitespace().next().and_then(|range| range.split_once('-')).expect("a range");
    let [start, end] = [range.0, range.1].map(|at| u64::from_str_radix(at, 16).expect("an address"));
    let mut bytes = vec![0; (end - start) as usize];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("it runs");
    memory.read_exact_at(&mut bytes, start).expect("readable");
    bytes
}

#[test]
fn a_running_process_whose_cupti_is_taken_is_as_before_after_each_trace() {
    if !can_trace() {
        return;
    }
    let folder = without_cupti();
    fs::copy(examples().join("libcupti.so.13"), folder.path().join("libcupti.so.13")).unwrap();
    let mut command = Command::new(folder.path().join("workload_gpu"));
    command.args(["--threads", "6", "--kernels", "100", "--graphs", "1", "--seconds", "60"]);
    command.env("LD_LIBRARY_PATH", folder.path());
    let busy = Running::start(command.env("CUPTISIM_BUSY", "1"));
    let threads = format!("/proc/{}/task", busy.pid());
    wait_for("its threads", || fs::read_dir(&threads).is_ok_and(|threads| threads.count() > 6));
    let before = text_of_driver(busy.pid());
    for _ in 0..3 {
        let script = "gpu:kernel { @ = count() } uprobe:libcuda:cuLaunchKernel { @launches = count() } interval:ms:600 { exit() }";
        let mut command = cudatrace();
        command.args(["--in-process", "-e", script, "-p", &busy.pid().to_string()]);
        let output = command.output().unwrap();
        let (said, messages) = (stdout(&output), stderr(&output));
        let launches = said.lines().find_map(|line| line.strip_prefix("@launches: ")?.parse::<u64>().ok());
        assert!(launches.is_some_and(|count| count > 10), "{said}{messages}");
        let why = "another tool uses CUPTI there, `simulated profiler`: trace a run without it";
        assert!(messages.contains(why), "{said}{messages}");
        assert!(text_of_driver(busy.pid()) == before, "the text differs");
    }
}
