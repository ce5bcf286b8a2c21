//! Times of kernels without CUPTI: one in some launches is measured between two events of the driver.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use common::{Running, can_trace, cudatrace, example, examples, stderr, stdout, wait_for};

/// The mean of each kernel of the simulated GPU in ns, as it keeps it.
fn truth(lines: &str) -> BTreeMap<String, u64> {
    let kernels = lines.lines().filter_map(|line| line.strip_prefix("kernel "));
    let mean = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, _, count, _, total] = words[..] else { panic!("{line}") };
        (name.to_owned(), total.parse::<u64>().unwrap() / count.parse::<u64>().unwrap())
    };
    kernels.map(mean).collect()
}

/// The times of the samples of each kernel, the shortest first.
fn samples(output: &str) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("sample ")) {
        let (kernel, time) = line.split_once(' ').expect("two words");
        all.entry(kernel.to_owned()).or_default().push(time.parse().expect("ns"));
    }
    all.values_mut().for_each(|times| times.sort_unstable());
    all
}

/// The values of a map, by key.
fn map(output: &str, name: &str) -> BTreeMap<String, u64> {
    let of_map = |line: &str| {
        let (key, value) = line.strip_prefix(name)?.strip_prefix('[')?.split_once("]: ")?;
        Some((key.to_owned(), value.parse().ok()?))
    };
    output.lines().filter_map(of_map).collect()
}

#[test]
fn samples_have_the_times_of_the_gpu_and_no_capture_is_spoiled() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("truth");
    let script = "gpu:kernel { printf(\"sample %s %d\\n\", str(args.kernel), args.duration);
                      @of[func, args.delay, tid != pid, args.block.x > 0] = count() }
                  uprobe:libcuda:cuLaunchKernel { @launches[1] = count() }";
    let mut command = cudatrace();
    command.args(["--in-process", "-e", script, "--", &example("workload_gpu")]);
    command.args(["--threads", "8", "--kernels", "2000", "--graphs", "4", "--rounds", "2"]);
    command.args(["--global-captures", "1"]);
    command.env("CUPTISIM_BUSY", "1").env("CUDASIM_GPU_TRUTH", &kept);
    let output = command.output().unwrap();
    let (said, messages) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}{messages}");
    let (samples, truth) = (samples(&said), truth(&fs::read_to_string(kept).unwrap()));
    assert_eq!(samples.len(), 5, "{said}");
    for (kernel, times) in &samples {
        // A fifth of 32 000 launches, one of 100.
        assert!((30..110).contains(&times.len()), "{kernel}: {said}");
        // On a stream that was idle the time of the call is taken off.
        let (median, exact) = (times[times.len() / 2], truth[kernel]);
        assert!(median.abs_diff(exact) <= 3000 + exact / 20, "{kernel}: {median}, not {exact}: {said}");
    }
    let samples: u64 = samples.values().map(|times| times.len() as u64).sum();
    assert_eq!(map(&said, "@of")["cuLaunchKernel, -1, true, true"], samples, "{said}");
    // The workload prints its own number of these calls.
    let asked = said.lines().find_map(|line| line.strip_prefix("count cuLaunchKernel ")).expect("the number");
    assert_eq!(map(&said, "@launches")["1"].to_string(), asked.trim(), "{said}");
    assert!(
        messages.contains("are sampled, one of 100 launches: another tool uses CUPTI there"),
        "{messages}"
    );
    assert!(
        messages.contains(&format!("GPU times are sampled: {samples} kernels of 1 process")),
        "{messages}"
    );
}

/// The workload, with a driver of its own, and CUPTI taken.
fn busy() -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    for library in ["libcuda.so.1", "libcupti.so.13"] {
        fs::copy(examples().join(library), folder.path().join(library)).unwrap();
    }
    let mut command = Command::new(example("workload_gpu"));
    command.args(["--threads", "6", "--kernels", "100", "--graphs", "1", "--seconds", "60"]);
    command.env("LD_LIBRARY_PATH", folder.path()).env("CUPTISIM_BUSY", "1");
    let busy = Running::start(&mut command);
    let threads = format!("/proc/{}/task", busy.pid());
    wait_for("its threads", || fs::read_dir(&threads).is_ok_and(|threads| threads.count() > 6));
    (folder, busy)
}

/// The text of libcuda in a process.
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
fn a_running_process_is_as_before_after_each_trace() {
    if !can_trace() {
        return;
    }
    let (_folder, busy) = busy();
    let before = text_of_driver(busy.pid());
    for _ in 0..3 {
        let script = "gpu:kernel { @ = count() } interval:ms:600 { exit() }";
        let mut command = cudatrace();
        command.args(["--in-process", "-e", script, "-p", &busy.pid().to_string()]);
        let output = command.output().unwrap();
        let said = stdout(&output);
        let count = said.lines().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 10), "{said}{}", stderr(&output));
        assert!(text_of_driver(busy.pid()) == before, "the text differs");
    }
}

#[test]
fn a_tracer_that_is_killed_leaves_a_program_that_can_be_traced_again() {
    if !can_trace() {
        return;
    }
    let (_folder, mut busy) = busy();
    let pid = busy.pid().to_string();
    for round in 0..15 {
        let mut tracer = cudatrace();
        tracer.args(["--in-process", "-q", "-e", "gpu:kernel { @ = count() }", "-p", &pid]);
        let mut tracer = tracer.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
        tracer.kill().unwrap();
        tracer.wait().unwrap();
        assert!(busy.runs(), "round {round}");
    }
    let mut tracer = cudatrace();
    // The agent of the last session ends within a flush, and then there is a new one.
    tracer.args(["--in-process", "-e", "gpu:kernel { @ = count() } interval:s:2 { exit() }", "-p", &pid]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let output = tracer.output().unwrap();
    assert!(stderr(&output).contains("GPU times are sampled"), "{}", stderr(&output));
    assert!(busy.runs());
}

/// What a script that counts samples prints about a workload.
fn counted(command: &[&str]) -> (u64, String) {
    let mut tracer = cudatrace();
    tracer.args(["--in-process", "-e", "gpu:kernel { @ = count() }", "--"]).args(command);
    let output = tracer.env("CUPTISIM_BUSY", "1").output().unwrap();
    let said = stdout(&output) + &stderr(&output);
    assert!(output.status.success(), "{said}");
    let count = said.lines().find_map(|line| line.strip_prefix("@: ")?.parse().ok());
    (count.unwrap_or_else(|| panic!("{said}")), said)
}

#[test]
fn events_end_with_their_context_and_what_they_have_measured_is_kept() {
    if !can_trace() {
        return;
    }
    let (count, said) = counted(&[&example("workload_contexts"), "40", "500"]);
    // One in 100 of 20 000 launches.
    assert!((140..270).contains(&count), "{said}");
    assert!(!said.contains("could not be measured"), "{said}");
}

#[test]
fn children_of_fork_are_sampled_like_their_parent() {
    if !can_trace() {
        return;
    }
    let (count, said) = counted(&[&example("workload_contexts"), "10", "500", "3"]);
    assert!((140..270).contains(&count), "{said}");
    assert!(said.contains("kernels of 4 processes"), "{said}");
}

#[test]
fn a_driver_that_nobody_knew_is_sampled_too() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for library in ["libcuda.so.1", "libcupti.so.13"] {
        fs::copy(examples().join(library), folder.path().join(library)).unwrap();
    }
    let workload = example("workload_contexts");
    let script = format!("LD_LIBRARY_PATH={} exec {workload} 20 500", folder.path().display());
    let (count, said) = counted(&["sh", "-c", &script]);
    assert!((60..150).contains(&count), "{said}");
}

#[test]
fn a_recording_estimates_from_samples() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = cudatrace();
    command.args(["--in-process", "record", "--gpu", "--", &example("workload_contexts"), "20", "500"]);
    command.current_dir(folder.path()).env("CUPTISIM_BUSY", "1");
    let output = command.output().unwrap();
    let (said, messages) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{said}{messages}");
    let line = messages.lines().find_map(|line| line.strip_prefix("on the GPU")).expect(&messages);
    let words: Vec<&str> = line.split_whitespace().collect();
    let [kernels, _, _, _, _, "estimated", "from", samples, ..] = words[..] else { panic!("{line}") };
    let samples: u64 = samples.parse().expect(line);
    assert_eq!(kernels.parse(), Ok(100 * samples), "{line}");
    assert!((60..150).contains(&samples), "{line}");
}
