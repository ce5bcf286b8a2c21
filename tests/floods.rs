//! Two threads call as fast as they can: what is printed and what is reported as lost add up to the calls.

mod common;

use common::{Running, can_trace, cudatrace, example, stderr};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const THREADS: u64 = 2;

/// `cudatrace` with these arguments, and a program with this number of calls of `hammer_push` per thread.
fn trace(args: &[&str], calls: u64) -> Command {
    let mut command = cudatrace();
    let (threads, calls) = (THREADS.to_string(), calls.to_string());
    command.args(args).args(["--", "sh", "-c", "exec \"$@\" >&2", "sh"]);
    command.args([&example("hammer"), "--threads", &threads, "--calls", &calls]);
    command
}

/// Sum of the numbers of a map; for buckets and statistics the sum of the counts.
fn total(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().expect("an integer"),
        Value::Object(members) if members.contains_key("count") => total(&members["count"]),
        Value::Object(members) => members.values().map(total).sum(),
        Value::Array(buckets) => buckets.iter().map(total).sum(),
        other => panic!("{other}"),
    }
}

/// Keeps floods apart: one takes all of the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn values_that_intervals_print_and_clear_add_up_to_the_calls() {
    let _alone = alone();
    if !can_trace() {
        return;
    }
    const CALLS: u64 = 200_000;
    // More keys are added and deleted than fit in the map at a time.
    let script = "
        let @passing = hash(48);
        uprobe:libhammer:hammer_push {
            @count = count(); @keyed[arg0 % 8] = count(); @zeroed[arg0 % 8] = count(); @passing[arg0 / 4000] = count();
            @sum = sum(3); @stats[pid] = stats(2); @hist = hist(arg0 % 100); @lhist = lhist(arg0 % 100, 0, 100, 10);
        }
        interval:ms:20 {
            print(@count); clear(@count); print(@keyed); clear(@keyed); print(@zeroed); zero(@zeroed);
            print(@passing); clear(@passing); print(@sum); print(@stats); clear(@sum); clear(@stats);
            print(@hist); clear(@hist); print(@lhist); zero(@lhist);
        }";
    let output = trace(&["-q", "-f", "json", "-e", script], CALLS).output().expect("cudatrace starts");
    let text = common::stdout(&output);
    let (mut totals, mut prints): (HashMap<String, i64>, HashMap<String, u32>) = Default::default();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let known = ["map", "hist", "stats", "attached_probes"];
        assert!(known.contains(&line["type"].as_str().expect("a type")), "{line}");
        for (map, value) in
            line["data"].as_object().into_iter().flatten().filter(|(name, _)| name.starts_with('@'))
        {
            *totals.entry(map.clone()).or_default() += total(value);
            *prints.entry(map.clone()).or_default() += 1;
        }
    }
    let all = (THREADS * CALLS) as i64;
    for map in ["count", "keyed", "zeroed", "passing", "stats", "hist", "lhist"] {
        assert_eq!(totals[&format!("@{map}")], all, "@{map}: {}", stderr(&output));
    }
    assert_eq!(totals["@sum"], 3 * all, "{}", stderr(&output));
    assert!(prints["@keyed"] > 3, "{prints:?}");
}

#[test]
fn received_and_lost_events_of_a_slow_reader_add_up_to_the_calls() {
    let _alone = alone();
    if !can_trace() {
        return;
    }
    const CALLS: u64 = 100_000;
    let script = "config = { perf_rb_pages = 64 } uprobe:libhammer:hammer_push { printf(\"%d\\n\", arg0) }";
    for format in ["text", "json"] {
        let mut command = trace(&["-f", format, "-e", script], CALLS);
        let mut tracer =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cudatrace starts");
        let mut printed = Vec::new();
        let (mut stdout, mut part) = (tracer.stdout.take().expect("piped"), vec![0; 1 << 16]);
        while let read @ 1.. = stdout.read(&mut part).expect("read") {
            printed.extend_from_slice(&part[..read]);
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = tracer.wait_with_output().expect("ended");
        let printed = String::from_utf8(printed).expect("UTF-8");
        let (written, lost) = match format {
            "text" => {
                let lost = stderr(&output);
                let lost = lost.split_once("lost ").and_then(|(_, count)| count.split_once(' '));
                let numbers = printed.lines().filter(|line| line.parse::<u64>().is_ok()).count();
                (numbers as u64, lost.map_or(0, |(count, _)| count.parse().expect("a number")))
            }
            _ => {
                let lines: Vec<Value> =
                    printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
                let lost = lines.iter().find(|line| line["type"] == "lost_events");
                let written = lines.iter().filter(|line| line["type"] == "printf").count();
                (written as u64, lost.map_or(0, |line| line["count"].as_u64().expect("a number")))
            }
        };
        assert_eq!(written + lost, THREADS * CALLS, "{format}: {written} written, {}", stderr(&output));
        assert!(written > 0 && lost > 0, "{format}: {written} {lost}");
    }
}

/// Resident memory in KB, and open descriptors.
fn held(pid: u32) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("ours").count();
    (resident.and_then(|kb| kb.parse().ok()).expect("a number"), descriptors)
}

#[test]
fn processes_that_have_ended_leave_nothing_in_the_tracer() {
    let _alone = alone();
    if !can_trace() {
        return;
    }
    const EACH: u64 = 250;
    let run = format!(
        "for part in 1 2 3; do i=0; while [ $i -lt {EACH} ]; do \"$0\" --calls 1 > /dev/null; i=$((i+1)); done
         echo part $part >&2; read go; done"
    );
    let script = "uprobe:libhammer:hammer_push { @ = count(); @stacks[ustack] = count() }";
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    let mut command = cudatrace();
    command.args(["-e", script, "--", "sh", "-c", &run, &example("hammer")]).stdin(input);
    let mut tracer = Running::start(&mut command);
    let mut after = Vec::new();
    for part in 1..=3 {
        tracer.wait_for_line(&format!("part {part}"));
        after.push(held(tracer.pid()));
        std::io::Write::write_all(&mut writer, b"go\n").expect("the shell reads");
    }
    let lines = tracer.lines();
    assert!(lines.contains(&format!("@: {}", 3 * EACH)), "{lines:#?}");
    let [_, (kb_before, fds_before), (kb, fds)] = after[..] else { unreachable!("three parts") };
    assert!(kb < kb_before + 4096 && fds < fds_before + 8, "KB and descriptors: {after:?}");
}
