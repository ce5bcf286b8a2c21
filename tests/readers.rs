//! Exports and examples, as read by other programs: PyTorch's trace analysis (`pip install HolisticTraceAnalysis psutil networkx`),
//! Perfetto's own messages (`pip install perfetto`), tables (`pip install pyarrow duckdb`), Kubernetes' schemas (`pip install
//! kubernetes-validate`). What is not installed is skipped.

mod common;

use common::{can_trace, cudatrace, example, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Output of a Python program for a file, if python3 has the module.
fn read(module: &str, program: &str, file: &Path) -> Option<String> {
    let python = |code: &str| {
        let mut command = Command::new("python3");
        // Otherwise the module's own directory would come first.
        command.args(["-P", "-c", code]).arg(file).output().expect("python3 runs")
    };
    if !python(&format!("import {module}")).status.success() {
        eprintln!("skipped: python3 has no `{module}`");
        return None;
    }
    let output = python(program);
    assert!(output.status.success(), "{}", stderr(&output));
    Some(stdout(&output))
}

/// Exports a run of the workload to a file; returns the workload's counts.
fn exported(kind: &str, file: &Path) -> Vec<(String, u64)> {
    let script = "uretprobe:libcuda:cu* { span(site = ustack(3)) }";
    let export = format!("{kind}={}", file.display());
    let program = [&example("workload_driver"), "--threads", "2"];
    let output =
        cudatrace().args(["-e", script, "--export", &export, "--"]).args(program).output().expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    let counts = said.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    counts.map(|(name, count)| (name.to_owned(), count.parse().expect("a number"))).collect()
}

/// Asserts that the output has `NAME COUNT` for all functions.
fn assert_counts(said: &str, counts: &[(String, u64)]) {
    assert!(counts.len() > 20, "{counts:?}");
    for (name, count) in counts {
        let line = format!("{name} {count}");
        assert!(said.lines().any(|found| found == line), "`{line}` is not in:\n{said}");
    }
}

#[test]
fn pytorchs_trace_analysis_finds_every_call() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("trace.json.gz");
    let counts = exported("chrome", &file);
    let program = "
import logging, os, sys
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
trace.parse_traces()
trace.decode_symbol_ids(False)
rows = trace.get_trace(0)
assert (rows['stream'] == -1).all(), 'a host call is taken for work of the GPU'
assert rows['correlation'].is_unique and (rows['correlation'] > 0).all()
assert set(rows['s_cat']) == {'cuda_driver'}, set(rows['s_cat'])
for name, count in rows['s_name'].value_counts().items(): print(name, count)";
    if let Some(said) = read("hta.common.trace", program, &file) {
        assert_counts(&said, &counts);
    }
}

#[test]
fn pyarrow_and_duckdb_find_every_call() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("trace.arrows");
    let counts = exported("arrow", &file);
    let table = "
import sys, pyarrow
rows = pyarrow.ipc.open_stream(sys.argv[1]).read_all()
assert b'cudatrace.run' in rows.schema.metadata";
    let counted = "
calls = rows.filter(pyarrow.compute.equal(rows['type'].cast('string'), 'span'))
for row in calls['name'].cast('string').value_counts(): print(row['values'], row['counts'])";
    if let Some(said) = read("pyarrow.compute", &format!("import pyarrow.compute{table}{counted}"), &file) {
        assert_counts(&said, &counts);
    }
    let query = "
import duckdb
calls = duckdb.sql(\"select name, count(*) from rows where type = 'span' group by name\").fetchall()
for name, count in calls: print(name, count)";
    if let Some(said) = read("duckdb", &format!("{table}{query}"), &file) {
        assert_counts(&said, &counts);
    }
}

/// Runs the queries of docs/analysis.md: those before the second section on one recording, those of the second on all, the others on the
/// tables of 64 ranks.
const QUERIES: &str = r#"
import duckdb, glob, json, pyarrow, re, sys
one, ranks, large = open("docs/analysis.md").read().split("\n## ")
def queries(text): return re.findall(r"^### (.*?)\n.*?```sql\n(.*?)```", text, re.S | re.M)
files = sorted(glob.glob(sys.argv[1] + "/*_rank*.arrows"))
rows = pyarrow.ipc.open_stream(files[0]).read_all()
def ask(all):
    for question, query in all:
        found = duckdb.sql(query.replace("tables/", sys.argv[1] + "/tables/")).fetchall()
        print(question, len(found))
        if question == "Which kernels take the time?":
            for name, launches, ms, *_ in found: print("kernel", name, launches, round(ms * 1e6))
ask(queries(one))
exec(re.search(r"```python\n(.*?)```", ranks, re.S).group(1).replace("traces/", sys.argv[1] + "/"))
ask(queries(ranks))
print("ranks", sorted(set(rows["rank"].to_pylist())))
ask(queries(large))
all = "select count(distinct rank), count(*), count(distinct id), max(launch is null) from read_parquet('%s/tables/*/gpu.parquet') where probe = 'gpu:kernel'"
import importlib.util
if importlib.util.find_spec("dask"):
    exec(re.search(r"```python\n(import dask.*?)print\((.*?)\)\n```", large, re.S).expand(r"\1found = \2").replace("tables/", sys.argv[1] + "/tables/"))
    sums = "select rank, sum(dur) from read_parquet('%s/tables/*/gpu.parquet') where probe = 'gpu:kernel' and name not like 'nccl%%' group by rank"
    print("dask finds the same:", found.to_dict() == dict(duckdb.sql(sums % sys.argv[1]).fetchall()))
else:
    print("no dask")
import pyarrow.parquet
print("time is", pyarrow.parquet.read_schema(sys.argv[1] + "/tables/rank0/gpu.parquet").field("time").type)
keys = duckdb.sql("select key from parquet_kv_metadata('%s/tables/rank0/gpu.parquet')" % sys.argv[1]).fetchall()
print("metadata:", *sorted(key.decode() for key, in keys))
print("kernels of", *duckdb.sql(all % sys.argv[1]).fetchall()[0])
"#;

const RANKS: u64 = 64;

fn recording_of_rank_0(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder).expect("there").map(|file| file.expect("a file").path());
    files.find(|file| file.display().to_string().ends_with("_rank0.arrows")).expect("a recording")
}

/// Makes recordings of many ranks of one, and of these tables; returns the number of kernels of each.
fn tables_of_ranks(folder: &Path) -> u64 {
    let report = |args: &[&str]| {
        let output = cudatrace().arg("report").args(args).output().expect("it runs");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let lines = report(&[recording_of_rank_0(folder).to_str().expect("UTF-8"), "--jsonl", "-"]);
    assert_eq!(lines.matches("\"rank\":0").count(), 1, "{}", lines.lines().next().unwrap_or_default());
    let ranks: Vec<String> = (0..RANKS)
        .map(|rank| {
            let file = path(&format!("rank{rank}.jsonl"));
            std::fs::write(&file, lines.replacen("\"rank\":0", &format!("\"rank\":{rank}"), 1))
                .expect("written");
            file
        })
        .collect();
    let tables = path("tables");
    let args: Vec<&str> =
        ranks.iter().map(String::as_str).chain(["--parquet", &tables, "-f", "json"]).collect();
    let report: serde_json::Value = serde_json::from_str(&report(&args)).expect("JSON");
    let rows = report["ranks"].as_array().expect("rows");
    assert_eq!(rows.len() as u64, RANKS);
    rows[0]["kernels"].as_u64().expect("a number")
}

#[test]
fn the_questions_in_sql_have_answers() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    for rank in ["0", "1"] {
        let mut command = cudatrace();
        command
            .args(["record", "-q", "--gpu", "--out"])
            .arg(folder.path())
            .args(["--", &example("workload_gpu")]);
        let output =
            command.args(["--threads", "2", "--ranges", "1"]).env("RANK", rank).output().expect("it runs");
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let kernels = tables_of_ranks(folder.path());
    let Some(said) = read("duckdb, pyarrow", QUERIES, folder.path()) else { return };
    let asked = include_str!("../docs/analysis.md").matches("\n### ").count();
    let answers: Vec<(&str, u64)> = said
        .lines()
        .filter_map(|line| line.split_once("? ").and_then(|(what, rows)| Some((what, rows.parse().ok()?))))
        .collect();
    assert_eq!(answers.len(), asked, "{said}");
    // The workload fails nowhere and frees all.
    for (question, rows) in answers {
        let is_empty = ["Which calls failed", "Which blocks were never freed"].contains(&question);
        assert_eq!(rows == 0, is_empty, "{question}: {said}");
    }
    assert!(said.contains("ranks [0, 1]"), "{said}");
    assert!(said.contains("cudatrace.dropped cudatrace.run"), "{said}");
    // Spark reads no time in ns.
    assert!(said.contains("time is timestamp[us, tz=UTC]"), "{said}");
    assert!(said.contains("dask finds the same: True") || said.contains("no dask"), "{said}");
    assert!(
        said.contains(&format!("kernels of {RANKS} {} {kernels} False", RANKS * kernels)),
        "{kernels}: {said}"
    );
    let first = recording_of_rank_0(folder.path());
    let report = cudatrace().arg("report").arg(first).args(["-f", "json"]).output().expect("it runs");
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("JSON");
    for kernel in report["gpu_kernels"].as_array().expect("kernels") {
        let line = format!(
            "kernel {} {} {}",
            kernel["name"].as_str().expect("a name"),
            kernel["calls"],
            kernel["total_ns"]
        );
        assert!(said.contains(&line), "no `{line}` in {said}");
    }
}

#[test]
fn pytorchs_trace_analysis_joins_kernels_to_their_launches() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("trace.json.gz");
    let mut command = common::cudatrace();
    command.args(["record", "-q", "--gpu", "--export", &format!("chrome={}", file.display()), "--"]);
    command.args([&common::example("workload_gpu"), "--threads", "1", "--kernels", "30", "--graphs", "1"]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = "
import logging, os, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
rows = analysis.t.get_trace(0)
work = rows[rows['stream'] >= 0]
names = analysis.t.symbol_table.get_sym_table()
kernels = work[work['cat'].map(lambda cat: names[cat]) == 'kernel']
launched = kernels[kernels['index_correlation'] > 0]
assert len(kernels) > 100 and len(launched) == len(kernels), (len(kernels), len(launched))
launches = {names[rows.loc[at, 'name']] for at in launched['index_correlation']}
assert launches == {'cuLaunchKernel', 'cuGraphLaunch'}, launches
busy = analysis.get_temporal_breakdown(visualize=False)
assert 0 < busy.loc[0, 'compute_time(us)'] < busy.loc[0, 'kernel_time(us)'], busy
print(len(kernels), 'kernels')";
    if let Some(said) = read("hta.trace_analysis", program, &file) {
        assert!(said.contains("kernels"), "{said}");
    }
}

#[test]
fn pytorchs_trace_analysis_fills_its_statistics_of_launches_and_bandwidth() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("trace.json.gz");
    let mut command = cudatrace();
    command.args(["record", "-q", "--gpu", "--export", &format!("chrome={}", file.display()), "--"]);
    let output = command.args([&example("workload_runtime12")]).output().expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let program = "
import gzip, json, logging, os, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
rows = analysis.t.get_trace(0)
names = analysis.t.symbol_table.get_sym_table()
assert rows[rows['stream'] < 0]['correlation'].is_unique
cats = rows['cat'].map(lambda cat: names[cat])
kernels = rows[cats == 'kernel']
launches = [names[rows.loc[at, 'name']] for at in kernels['index_correlation']]
assert launches == ['cudaLaunchKernel'] * len(kernels), launches
moved = rows[cats == 'gpu_memcpy']
assert (moved['bytes'] > 0).all() and (moved['memory_bw_gbps'] > 0).all(), moved
raw = [row['args'] for row in json.load(gzip.open(sys.argv[1]))['traceEvents'] if row.get('cat') == 'kernel']
assert all(args['grid'][0] > 1 and args['grid'][1:] == [1, 1] and args['block'] == [256, 1, 1] for args in raw), raw[0]
assert all(args['registers per thread'] > 0 and args['queued'] == 0 for args in raw), raw[0]
asynchronous = [n for at in moved['index_correlation'] if (n := names[rows.loc[at, 'name']]) == 'cudaMemcpyAsync']
filled = rows[cats == 'gpu_memset']
statistics = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
assert len(statistics) == len(kernels) + len(asynchronous) + len(filled) > 40, len(statistics)
bandwidth = analysis.get_memory_bw_summary(ranks=[0])
found = sorted(name for _, name in bandwidth.index)
assert found == ['Memcpy DtoD', 'Memcpy DtoH', 'Memcpy HtoD', 'Memset'], found
assert (bandwidth['memory_bw_gbps']['max'] > 0).all(), bandwidth
assert not analysis.get_queue_length_summary(ranks=[0]).empty
print('filled')";
    if let Some(said) = read("hta.trace_analysis", program, &file) {
        assert_eq!(said, "filled\n");
    }
}

/// A program that nests slices and joins flows as Perfetto's importer does.
const NESTING: &str = "
import sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace.FromString(open(sys.argv[1], 'rb').read())
tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField('track_descriptor')}
names = {n.iid: n.name for p in trace.packet for n in p.interned_data.event_names}
open_, slices, flows, active = {}, [], [], {}
for p in sorted((p for p in trace.packet if p.HasField('track_event')), key=lambda p: p.timestamp):
    e = p.track_event
    stack = open_.setdefault(e.track_uuid, [])
    if e.type == TrackEvent.TYPE_SLICE_BEGIN:
        stack.append((names[e.name_iid], p.timestamp, len(stack)))
        for flow in e.flow_ids:
            if flow in active: flows.append((active[flow], stack[-1][0]))
            active[flow] = stack[-1][0]
        assert all(flow in active for flow in e.terminating_flow_ids), 'a flow ends that has not begun'
    if e.type == TrackEvent.TYPE_SLICE_END:
        name, begin, depth = stack.pop()
        slices.append((tracks[e.track_uuid], name, begin, p.timestamp - begin, depth))
assert not any(open_.values())";

/// The file of a recording that is converted to another format.
fn converted(folder: &Path, lines: &str, format: &str) -> std::path::PathBuf {
    let (recording, file) = (folder.join("t.jsonl"), folder.join("converted"));
    let head = r#"{"type":"run","format":1,"boot_ns":0,"wall_ns":"0"}"#;
    std::fs::write(&recording, format!("{head}\n{lines}")).expect("written");
    let mut command = cudatrace();
    command.args(["report", "-q"]).arg(&recording).arg(format!("--{format}")).arg(&file);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    file
}

/// Lines of work of a GPU on one stream: name, start, duration, launch.
fn work(all: &[(&str, u64, u64, u64)]) -> String {
    let line = |(name, start, ns, launch): &(&str, u64, u64, u64)| {
        format!(
            "{{\"type\":\"span\",\"ts\":{start},\"dur\":{ns},\"pid\":7,\"tid\":{tid},\"comm\":\"GPU 0 stream 15\",\
             \"name\":\"{name}\",\"probe\":\"gpu:kernel\",\"id\":\"{id:#x}\",\"launch\":\"{launch:#x}\",\"status\":\"unset\"}}\n",
            tid = (1 << 30) | 15,
            id = 1000 + start * 100 + ns,
        )
    };
    all.iter().map(line).collect()
}

#[test]
fn perfetto_nests_no_work_of_a_stream() {
    let folder = tempfile::tempdir().expect("a directory");
    let end = "{\"type\":\"end\",\"dropped\":0}\n";
    // In the order of kinds, as records of a GPU arrive: each begins where another one ends, which comes later in the file.
    let mut all =
        vec![("c", 30, 10, 0), ("a", 10, 10, 0), ("e", 50, 0, 0), ("d", 40, 10, 0), ("b", 20, 10, 0)];
    all.extend([("f", 50, 5, 0), ("none", 60, 0, 0), ("none", 60, 0, 0)]);
    let file = converted(folder.path(), &(work(&all) + end), "perfetto");
    let program =
        NESTING.to_owned() + "\nfor slice in sorted(slices, key=lambda s: (s[2], s[3])): print(*slice)";
    let module = "perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    let Some(said) = read(module, &program, &file) else { return };
    let row =
        |(name, start, ns, _): &(&str, u64, u64, u64)| format!("GPU 0 stream 15 {name} {start} {ns} 0\n");
    all.sort_by_key(|(_, start, ns, _)| (*start, *ns));
    assert_eq!(said, all.iter().map(row).collect::<String>());
    // Kernels of a graph run side by side, also in one stream.
    let mut all =
        vec![("a", 10, 20, 0), ("b", 15, 20, 0), ("c", 15, 20, 0), ("d", 30, 5, 0), ("e", 100, 5, 0)];
    // More records than are sorted at once.
    all.extend((0..6000).map(|at| ("many", 200_000 - at * 10, 10, 0)));
    let file = converted(folder.path(), &(work(&all) + end), "perfetto");
    let said = read(module, &program, &file).expect("it has the module");
    all.sort_by_key(|(_, start, ns, _)| (*start, *ns));
    assert_eq!(said, all.iter().map(row).collect::<String>());
}

#[test]
fn every_arrow_has_two_ends() {
    let folder = tempfile::tempdir().expect("a directory");
    let call = |name: &str, start: u64, ns: u64, id: u64, parent: u64, corr: &str| {
        format!(
            "{{\"type\":\"span\",\"ts\":{start},\"dur\":{ns},\"pid\":7,\"tid\":8,\"comm\":\"app\",\"name\":\"{name}\",\
             \"func\":\"{name}\",\"id\":\"{id:#x}\",\"parent\":\"{parent:#x}\",\"status\":\"ok\"{corr}}}\n"
        )
    };
    let corr = |number: u64| format!(",\"schema\":0,\"args\":{{\"corr\":{number}}}");
    let mut lines = String::from("{\"type\":\"schema\",\"id\":0,\"fields\":[[\"corr\",\"uint64\"]]}\n");
    // A launch that a graph captures has no work; one of a graph has several; the launch of the last work is not recorded.
    lines += &call("cuLaunchKernel", 1, 1, 0x11, 0, &corr(1));
    lines += &call("cuLaunchKernel", 3, 1, 0x12, 0x13, &corr(2));
    lines += &call("cudaLaunchKernel", 2, 3, 0x13, 0, "");
    lines += &call("cuGraphLaunch", 8, 1, 0x14, 0, &corr(3));
    lines +=
        &work(&[("one", 10, 5, 0x12), ("two", 20, 5, 0x14), ("three", 30, 5, 0x14), ("lost", 40, 5, 0x77)]);
    lines += "{\"type\":\"end\",\"dropped\":0}\n";
    let chrome = std::fs::read_to_string(converted(folder.path(), &lines, "chrome")).expect("there");
    let chrome: serde_json::Value = serde_json::from_str(&chrome).expect("JSON");
    let rows = chrome["traceEvents"].as_array().expect("rows");
    let ids = |phase: &str| -> Vec<u64> {
        rows.iter().filter(|row| row["ph"] == phase).map(|row| row["id"].as_u64().expect("an id")).collect()
    };
    assert_eq!(ids("s"), [0x13, 0x14], "the arrow begins at the runtime's call");
    assert_eq!(ids("f"), [0x13, 0x14, 0x14]);
    let correlation = |name: &str| {
        rows.iter().find(|row| row["name"] == name).expect("a row")["args"]["correlation"].as_u64()
    };
    let all = ["cuLaunchKernel", "cudaLaunchKernel", "one", "two", "lost"].map(correlation);
    assert_eq!(all, [Some(0x11), Some(0x13), Some(0x13), Some(0x14), Some(0x77)]);
    let file = converted(folder.path(), &lines, "perfetto");
    let program = NESTING.to_owned() + "\nfor flow in flows: print(*flow)";
    if let Some(said) = read("perfetto.protos.perfetto.trace.perfetto_trace_pb2", &program, &file) {
        assert_eq!(said, "cuLaunchKernel one\ncuGraphLaunch two\ntwo three\n");
    }
}

/// The commands of a section of docs/export.md that begin with `jq`: those of its block, and those of the second column of its table.
fn jq_lines() -> Vec<String> {
    let docs = include_str!("../docs/export.md");
    let section = docs.split("\n## The JSON lines, with jq\n").nth(1).expect("a section");
    let section = section.split("\n## ").next().expect("its text");
    let in_block = section.lines().filter(|line| line.starts_with("jq ")).map(str::to_owned);
    let rows =
        section.lines().filter(|line| line.starts_with("| `")).map(|line| line.replace("\\|", "\u{1}"));
    let in_table = rows.filter_map(|row| {
        let cell = row.split('|').nth(2)?.trim().strip_prefix('`')?.to_owned();
        Some(cell.split('`').next()?.replace('\u{1}', "|"))
    });
    in_block.chain(in_table).collect()
}

#[test]
fn the_lines_for_jq_have_answers() {
    if !can_trace() {
        return;
    }
    if !Command::new("jq").arg("--version").output().is_ok_and(|jq| jq.status.success()) {
        return eprintln!("skipped: jq is missing");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("t.jsonl");
    let mut command = cudatrace();
    command.args(["record", "-q", "--gpu", "--export", &format!("jsonl={}", file.display()), "--"]);
    let output = command.arg(example("workload_runtime12")).output().expect("it runs");
    assert!(output.status.success(), "{}", stderr(&output));
    // As `record --kernel` writes it where NVIDIA's driver is.
    let ioctl = r#"{"type":"span","ts":1,"dur":2,"pid":1,"tid":1,"name":"ALLOC","probe":"ioctl:nvidia:ALLOC","id":"0x1","parent":"0x2","status":"unset","args":{"category":"nvidia_ioctl"}}"#;
    let recorded = std::fs::read_to_string(&file).expect("there");
    std::fs::write(&file, format!("{recorded}{ioctl}\n")).expect("written");
    let lines = jq_lines();
    assert!(lines.len() >= 17, "{lines:?}");
    let answers: Vec<(String, String)> = lines
        .into_iter()
        .map(|line| {
            let output =
                Command::new("sh").args(["-c", &line]).current_dir(folder.path()).output().expect("it runs");
            let said = stdout(&output);
            assert!(
                stderr(&output).is_empty() && !said.trim().is_empty(),
                "{line}: {said}{}",
                stderr(&output)
            );
            (line, said)
        })
        .collect();
    let answer = |part: &str| &answers.iter().find(|(line, _)| line.contains(part)).expect("a line").1;
    let by_name = answer(".name' t.jsonl | sort | uniq -c");
    for line in stdout(&output).lines().filter_map(|line| line.strip_prefix("count cuda")) {
        let (name, count) = line.split_once(' ').expect("a count");
        let row = format!(" {count} cuda{name}");
        // Queries of the state are left out.
        let is_there = by_name.lines().any(|row| row.ends_with(&format!(" cuda{name}")));
        assert!(!is_there || by_name.contains(&row), "no `{row}` in {by_name}");
    }
    let kernels = recorded.matches("\"probe\":\"gpu:kernel\"").count();
    assert_eq!(answer("/ 1e9' t.jsonl").lines().count(), kernels);
    assert!(kernels > 10 && answer("{direction").contains("HtoD"), "{}", answer("{direction"));
    assert!(
        answer("error: .result.name").contains("cudaErrorMemoryAllocation"),
        "{}",
        answer("error: .result.name")
    );
}

#[test]
fn perfettos_own_messages_hold_every_call() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("trace.pftrace");
    let counts = exported("perfetto", &file);
    let program = "
import collections, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent, TracePacket
trace = Trace.FromString(open(sys.argv[1], 'rb').read())
tracks = {p.track_descriptor.uuid for p in trace.packet if p.HasField('track_descriptor')}
events = [(p.timestamp, p.track_event) for p in trace.packet if p.HasField('track_event')]
assert all(e.track_uuid in tracks for _, e in events)
assert all(p.trusted_packet_sequence_id for p in trace.packet)
open_ = collections.Counter()
for _, e in sorted(events, key=lambda event: event[0]):
    open_[e.track_uuid] += {TrackEvent.TYPE_SLICE_BEGIN: 1, TrackEvent.TYPE_SLICE_END: -1}.get(e.type, 0)
    assert open_[e.track_uuid] >= 0
assert not any(open_.values())
names, annotations = {}, {}
for p in trace.packet:
    for e in p.interned_data.event_names: names[e.iid] = e.name
    for e in p.interned_data.debug_annotation_names: annotations[e.iid] = e.name
    assert not p.track_event.name_iid or p.track_event.name_iid in names
assert trace.packet[0].sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
calls = [e for _, e in events if e.type == TrackEvent.TYPE_SLICE_BEGIN]
for call in calls:
    assert {'span_id', 'result'} & {annotations[a.name_iid] for a in call.debug_annotations}, call
data = [p.interned_data for p in trace.packet]
functions = {f.iid: f.str.decode() for d in data for f in d.function_names}
frames = {f.iid: functions[f.function_name_id] for d in data for f in d.frames}
stacks = {s.iid: [frames[f] for f in s.frame_ids] for d in data for s in d.callstacks}
assert len(stacks) < len(calls) / 4, 'a stack is written once'
assert all(1 <= len(stacks[call.callstack_iid]) <= 3 for call in calls), stacks
assert any(stack[-1] == 'main' for stack in stacks.values()), stacks
for name, count in collections.Counter(names[call.name_iid] for call in calls).items(): print(name, count)";
    if let Some(said) = read("perfetto.protos.perfetto.trace.perfetto_trace_pb2", program, &file) {
        assert_counts(&said, &counts);
    }
}

#[test]
fn kubernetes_takes_the_daemon_set_with_no_right_too_many() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/observability/kubernetes.yaml");
    let program = "
import pathlib, sys, yaml, kubernetes_validate
folder = pathlib.Path(sys.argv[1]).parent
kustomization = yaml.safe_load(open(folder / 'kustomization.yaml'))
assert all((folder / resource).exists() for resource in kustomization['resources'])
images = [image['name'] for image in kustomization['images']]
for document in yaml.safe_load_all(open(sys.argv[1])):
    kubernetes_validate.validate(document, '1.30', strict=True)
    print(document['kind'])
    for container in document.get('spec', {}).get('template', {}).get('spec', {}).get('containers', []):
        assert container['image'].split(':')[0] in images
        print(container['securityContext']['privileged'], container['securityContext']['capabilities'])";
    if let Some(said) = read("yaml, kubernetes_validate", program, &file) {
        let expected = "Namespace\nDaemonSet\nFalse {'drop': ['ALL'], 'add': ['BPF', 'PERFMON', 'SYS_PTRACE']}\nNetworkPolicy\n";
        assert_eq!(said, expected);
    }
}
