//! Metrics in other programs: Prometheus scrapes a run and returns the workload's own counts, `promtool` and Prometheus' Python
//! client accept them, and every query of the dashboard has a result.
//!
//! What is not installed is skipped: `apt-get install prometheus`, `pip install prometheus_client kubernetes-validate`.

mod common;

use common::{Running, can_trace, cudatrace, example, examples, wait_for};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// A session whose workload has finished; it runs until it is dropped.
struct TracedWorkload {
    trace: Running,
    port: u16,
    /// Counts that the workload reports: `count cuMemAlloc_v2` is 36.
    truth: HashMap<String, f64>,
}

impl TracedWorkload {
    /// Waits until the workload has ended; the shell that started it continues, so that metrics can be requested.
    fn start(arguments: &[&str]) -> TracedWorkload {
        let workload = format!("{} --threads 2 --leak 12345; sleep 40", example("workload_driver"));
        TracedWorkload::run(arguments, &workload, "== end ==")
    }

    /// Traces a shell command, and waits for a line of its output.
    fn run(arguments: &[&str], shell: &str, line: &str) -> TracedWorkload {
        TracedWorkload::run_by(cudatrace(), arguments, shell, line)
    }

    fn run_by(mut command: Command, arguments: &[&str], shell: &str, line: &str) -> TracedWorkload {
        command.args(arguments).args(["--export", "openmetrics=0", "--", "sh", "-c", shell]);
        let mut trace = Running::start(&mut command);
        trace.wait_for_line(line);
        let lines = trace.printed_lines().to_vec();
        let truth = lines.iter().filter_map(|line| line.rsplit_once(' '));
        let truth =
            truth.filter_map(|(what, number)| Some((what.to_owned(), number.parse().ok()?))).collect();
        TracedWorkload { port: port_of(&trace), truth, trace }
    }

    fn get(&self, path: &str, accept: &str) -> (String, String) {
        request(self.port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"))
    }

    fn truth(&self, what: &str) -> f64 {
        *self
            .truth
            .get(what)
            .unwrap_or_else(|| panic!("the workload says nothing of `{what}`: {:?}", self.truth))
    }
}

/// The port that a run has printed.
fn port_of(trace: &Running) -> u16 {
    let address =
        trace.printed_lines().iter().find_map(|line| line.strip_prefix("metrics at http://127.0.0.1:"));
    let port = address.and_then(|rest| rest.strip_suffix("/metrics")).and_then(|port| port.parse().ok());
    port.expect("the address is printed")
}

/// Head and body of a response.
fn request(port: u16, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// Whether a program can be run; reports a skip if not.
fn has(program: &str, arguments: &[&str]) -> bool {
    let ran = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = ran.is_ok_and(|status| status.success());
    if !there {
        eprintln!("skipped: `{program} {}` does not work here", arguments.join(" "));
    }
    there
}

const SCRIPT: &[&str] = &["metrics", "--kernels"];

#[test]
fn text_is_what_the_reader_accepts() {
    if !can_trace() {
        return;
    }
    let traced = TracedWorkload::start(SCRIPT);
    let (head, body) = traced.get("/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n"));
    assert!(body.contains("# UNIT gpu_cuda_memory_copies_bytes bytes\n"));
    let (head, body) = traced.get("/metrics", "*/*");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(!body.contains("# EOF") && !body.contains("# UNIT"));
    assert_eq!(traced.get("/healthz", "*/*").1, "ok\n");
    assert!(traced.get("/elsewhere", "*/*").0.starts_with("HTTP/1.1 404"));
    let (head, _) =
        request(traced.port, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n");
    assert!(head.starts_with("HTTP/1.1 405"), "{head}");
}

#[test]
fn the_use_of_the_gpu_by_a_process_comes_from_nvml() {
    if !can_trace() {
        return;
    }
    let mut command = cudatrace();
    command.args(["metrics", "--export", "openmetrics=0", "--", &example("workload_gpu"), "--seconds", "30"]);
    command.env("LD_LIBRARY_PATH", examples());
    let mut trace = Running::start(&mut command);
    wait_for("the address", || trace.has_printed("metrics at http://"));
    let port = port_of(&trace);
    let mut body = String::new();
    wait_for("a sample", || {
        body = request(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n").1;
        body.contains("gpu_cuda_process_utilization_ratio{")
    });
    let of_workload = |name: &str| {
        let line = body.lines().find(|line| line.starts_with(&format!("{name}{{process_pid=\"")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {body}"));
        assert!(
            line.contains("process_executable_name=\"workload_gpu\",cuda_device_uuid=\"GPU-4355"),
            "{line}"
        );
        line.rsplit_once(' ').map(|(_, value)| value.to_owned())
    };
    assert_eq!(of_workload("gpu_cuda_process_utilization_ratio").as_deref(), Some("0.42"));
    assert_eq!(of_workload("gpu_cuda_process_memory_utilization_ratio").as_deref(), Some("0.17"));
    // Other processes with the driver are not traced.
    assert_eq!(body.matches("gpu_cuda_process_utilization_ratio{").count(), 1, "{body}");
}

#[test]
fn the_checkers_of_others_find_nothing() {
    if !can_trace() {
        return;
    }
    // A name with special characters of every format, which becomes a label.
    let hostile = r#"uprobe:libcuda:cuInit { @["a\"b\\c\n{}=,\x1b[31m\xff", "\xe6\xbc"] = count(); @sizes["x y"] = hist(1) }"#;
    for arguments in [SCRIPT, &["-e", hostile]] {
        let traced = TracedWorkload::start(arguments);
        let open = traced.get("/metrics", "application/openmetrics-text").1;
        let plain = traced.get("/metrics", "text/plain").1;
        if has("promtool", &["--version"]) {
            let (code, said) = feed(Command::new("promtool").args(["check", "metrics"]), &plain);
            assert!(code == 0, "{said}\n{plain}");
        }
        if has("python3", &["-c", "import prometheus_client"]) {
            let parse = "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as f; print(sum(len(m.samples) for m in f(sys.stdin.read())))";
            let (code, said) = feed(Command::new("python3").args(["-c", parse]), &open);
            let samples = open.lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!((code, said.trim()), (0, samples.to_string().as_str()), "{open}");
        }
    }
}

/// Exit status and output of a command with this input.
fn feed(command: &mut Command, input: &str) -> (i32, String) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it can be run");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = format!("{}{}", common::stdout(&output), common::stderr(&output));
    (output.status.code().unwrap_or(-1), said)
}

/// A Prometheus server for a test.
struct Prometheus {
    _running: Running,
    _data: tempfile::TempDir,
    port: u16,
}

impl Prometheus {
    /// Starts Prometheus, which scrapes these local ports every second, with the alerts of the examples.
    fn scraping(ports: &[u16]) -> Prometheus {
        let data = tempfile::tempdir().expect("a directory");
        let targets: Vec<String> = ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}/alerts.yml']\nscrape_configs:\n  - job_name: cudatrace\n    static_configs: [{{targets: [{}]}}]\n",
            concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability"),
            targets.join(", ")
        );
        std::fs::write(data.path().join("prometheus.yml"), config).expect("written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", data.path().join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", data.path().join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{}", free.port()));
        let mut running = Running::start(&mut command);
        running.wait_for_line("Server is ready to receive web requests");
        let prometheus = Prometheus { _running: running, _data: data, port: free.port() };
        wait_for("two scrapes", || prometheus.value("min(count_over_time(up[1m]))") >= Some(2.0));
        assert_eq!(prometheus.value("min(up)"), Some(1.0), "it cannot scrape");
        prometheus
    }

    /// Waits until a query has this value.
    fn wait_for_value(&self, query: &str, value: f64) {
        wait_for(&format!("{query} to be {value}, found {}", self.query(query)), || {
            self.value(query) == Some(value)
        });
    }

    fn query(&self, query: &str) -> Value {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let head = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: localhost\r\n");
        let (_, body) = request(self.port, &head);
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{query}: {error}: {body}"))
    }

    /// The single number in the result of a query, if there is one.
    fn value(&self, query: &str) -> Option<f64> {
        let answer = self.query(query);
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let results = answer["data"]["result"].as_array()?;
        assert!(results.len() <= 1, "{query}: {answer}");
        results.first()?["value"][1].as_str()?.parse().ok()
    }
}

#[test]
fn prometheus_answers_with_the_counts_of_the_workload() {
    if !can_trace() {
        return;
    }
    if !has("prometheus", &["--version"]) {
        return;
    }
    let mut traced = TracedWorkload::start(SCRIPT);
    let prometheus = Prometheus::scraping(&[traced.port]);
    let is = |query: &str, truth: f64| assert_eq!(prometheus.value(query), Some(truth), "{query}");
    let kernels = ["vector_add", "saxpy", "fill", "scale", "reduce_sum"];
    let launches: f64 = kernels.iter().map(|kernel| traced.truth(&format!("launches {kernel}"))).sum();
    is("sum(gpu_cuda_kernel_launch_calls_total)", launches);
    for kernel in kernels {
        let query = format!("gpu_cuda_kernel_launches_total{{cuda_kernel_name=\"{kernel}\"}}");
        is(&query, traced.truth(&format!("launches {kernel}")));
    }
    let device =
        "{cuda_memory_kind=\"device\", process_executable_name=\"workload_driver\", cuda_device_index=\"0\"}";
    is(&format!("gpu_cuda_memory_allocated_bytes_total{device}"), traced.truth("bytes allocated"));
    is(&format!("gpu_cuda_memory_freed_bytes_total{device}"), traced.truth("bytes freed"));
    assert_eq!(prometheus.value("sum(gpu_cuda_memory_live_bytes) > 0"), None, "its process has ended");
    for (direction, truth) in [("HtoD", "h2d"), ("DtoH", "d2h"), ("DtoD", "d2d")] {
        let sum = format!("gpu_cuda_memory_copies_bytes_sum{{cuda_memcpy_kind=\"{direction}\"}}");
        is(&sum, traced.truth(&format!("bytes {truth}")));
        let buckets = format!(
            "gpu_cuda_memory_copies_bytes_bucket{{cuda_memcpy_kind=\"{direction}\",le=\"+Inf\"}} == on() gpu_cuda_memory_copies_bytes_count{{cuda_memcpy_kind=\"{direction}\"}}"
        );
        assert!(prometheus.value(&buckets) > Some(0.0), "{buckets}");
    }
    for function in ["cuMemAlloc_v2", "cuLaunchKernel", "cuStreamSynchronize"] {
        let query = format!("gpu_cuda_call_duration_seconds_count{{cuda_function=\"{function}\"}}");
        is(&query, traced.truth(&format!("count {function}")));
    }
    let failed =
        "gpu_cuda_errors_total{cuda_function=\"cuMemAlloc_v2\",error_type=\"CUDA_ERROR_OUT_OF_MEMORY\"}";
    is(failed, traced.truth("failed cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY"));
    is("cudatrace_events_lost_total", 0.0);
    let launched = traced.truth("count cuLaunchKernel");
    // Entry and return of a call are runs of one program if the kernel has sessions, otherwise of two programs.
    let hits =
        prometheus.value("cudatrace_probe_hits_total{probe=\"cuda:launch\"}").expect("the kernel counts");
    assert!(hits >= launched, "{hits} runs for {launched} launches");
    assert!(prometheus.value("sum(cudatrace_probe_overhead_seconds_total)") > Some(0.0));
    traced.trace.signal(libc::SIGINT);
    traced.trace.ended();
}

/// Runs each query of the dashboard, with Grafana's variables filled in, during a trace.
#[test]
fn the_dashboard_has_answers() {
    if !can_trace() || !has("prometheus", &["--version"]) {
        return;
    }
    let [workload, runtime, gpu] = ["workload_driver", "workload_runtime12", "workload_gpu"].map(example);
    let shell = format!(
        "{gpu} --seconds 60 --rate 100 & {workload} --threads 2; {runtime}; {workload} --leak 12345 --linger 60000"
    );
    let mut command = cudatrace();
    // NVML is found there.
    command.env("LD_LIBRARY_PATH", examples());
    let arguments = ["metrics", "--kernels", "--gpu"];
    let mut traced = TracedWorkload::run_by(command, &arguments, &shell, "== end ==");
    let prometheus = Prometheus::scraping(&[traced.port]);
    prometheus.wait_for_value("min(gpu_cuda_process_utilization_ratio)", 0.42);
    let live = "gpu_cuda_memory_live_bytes{cuda_memory_kind=\"device\", process_executable_name=\"workload_driver\"}";
    prometheus.wait_for_value(live, 12345.0);
    prometheus.wait_for_value(
        "gpu_cuda_memory_live_bytes{cuda_memory_kind=\"device\", cuda_device_index=\"0\", cuda_device_model!=\"\"}",
        12345.0,
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability/grafana-dashboard.json");
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("there")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    assert!(queries.len() >= 30, "{queries:?}");
    // Sizes of grids and blocks need an option of their own.
    let shapes = ["gpu.cuda.kernel.grid.size", "gpu.cuda.kernel.block.size"];
    let declared = include_str!("../scripts/metrics.ct").split("name = \"").skip(1);
    let declared = declared.map(|rest| rest.split('"').next().expect("a name"));
    let own = ["gpu.cuda.process.utilization", "gpu.cuda.process.memory.utilization"];
    for name in declared.filter(|name| !shapes.contains(name)).chain(own) {
        let name = name.replace('.', "_");
        assert!(queries.iter().any(|query| query.contains(&name)), "no panel has {name}");
    }
    for query in queries {
        let filled = ["$instance", "$function", "$namespace", "$pod", "$program", "$device"]
            .iter()
            .fold(query.replace("$__rate_interval", "1m"), |query, name| query.replace(name, ".*"));
        let answer = prometheus.query(&filled);
        assert_eq!(answer["status"], "success", "{filled}: {answer}");
        let results = answer["data"]["result"].as_array().expect("a list");
        assert!(!results.is_empty(), "no answer: {filled}");
    }
    traced.trace.signal(libc::SIGINT);
    traced.trace.ended();
}

/// Runs more processes than a map has keys, one after the other, and another one during that time.
#[test]
fn processes_that_end_leave_true_sums_and_no_series() {
    if !can_trace() || !has("prometheus", &["--version"]) {
        return;
    }
    const SHORT: u32 = 200;
    let script = r#"
        let @small = hash(150);
        let @blocks = processhash(150);
        metric @small = { name = "test.calls"; labels = "process, process.executable.name" }
        metric @by_pid = { name = "test.pids"; labels = "process.pid, process.executable.name" }
        uretprobe:libcuda:cuInit {
            @small[pid, comm(process)] = count();
            @by_pid[pid, comm(process)] = count();
            @blocks[pid] = 1;
        }"#;
    let workload = example("workload_driver");
    // The short processes wait for the first scrape.
    let shell = format!(
        "{workload} --no-errors --leak 7000000 --linger 60000 & echo started; sleep 4; i=0; \
         while [ $i -lt {SHORT} ]; do {workload} --no-errors --leak 1000 >/dev/null; sleep 0.01; i=$((i+1)); done; \
         echo all have ended; sleep 60"
    );
    let mut traced = TracedWorkload::run(&["metrics", "-e", script], &shell, "started");
    let prometheus = Prometheus::scraping(&[traced.port]);
    traced.trace.wait_for_line("all have ended");
    let processes = f64::from(SHORT) + 1.0;
    prometheus.wait_for_value("sum(test_calls_total)", processes);
    // Each process launches 8 times 5 kernels.
    prometheus.wait_for_value("sum(gpu_cuda_kernel_launch_calls_total)", 40.0 * processes);
    let begin = "min_over_time(sum(gpu_cuda_kernel_launch_calls_total)[5m:1s])";
    let counted = prometheus.value(&format!("sum(gpu_cuda_kernel_launch_calls_total) - {begin}"));
    assert_eq!(counted, Some(40.0 * processes), "the increase of the sum");
    assert_eq!(
        prometheus.value("sum(resets(gpu_cuda_kernel_launch_calls_total[5m]))"),
        Some(0.0),
        "it never fell"
    );
    assert_eq!(prometheus.value("sum(resets(test_calls_total[5m]))"), Some(0.0));
    let live = "gpu_cuda_memory_live_bytes{process_executable_name=\"workload_driver\", cuda_memory_kind=\"device\"}";
    prometheus.wait_for_value(&format!("count({live})"), 1.0);
    prometheus.wait_for_value(&format!("sum({live})"), 7_000_000.0);
    prometheus.wait_for_value("count(test_pids_total)", 1.0);
    assert_eq!(
        prometheus.value("sum(cudatrace_problems_total{kind=\"map_full\"})"),
        Some(0.0),
        "a map was full"
    );
    traced.trace.signal(libc::SIGINT);
    traced.trace.ended();
}

#[test]
fn the_first_failure_fires_its_alert() {
    if !can_trace() || !has("prometheus", &["--version"]) {
        return;
    }
    let shell = format!("sleep 4; {} >/dev/null; echo failed; sleep 60", example("workload_driver"));
    let mut command = cudatrace();
    command.args(["metrics", "--export", "openmetrics=0", "--", "sh", "-c", &shell]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line("metrics at");
    let prometheus = Prometheus::scraping(&[port_of(&trace)]);
    trace.wait_for_line("failed");
    prometheus.wait_for_value("count(ALERTS{alertname=\"CudaOutOfMemory\", alertstate=\"firing\"})", 1.0);
    trace.signal(libc::SIGINT);
    trace.ended();
}

/// Two machines make a thousand calls: 20 take 20 ms, all on the second machine; so does the 990th.
#[test]
fn histograms_of_two_tracers_can_be_added() {
    if !can_trace() || !has("prometheus", &["--version"]) {
        return;
    }
    let start = |samples: &str| {
        let script = format!(
            "metric @d = {{ name = \"test.duration\"; unit = \"s\"; divisor = 1000000000 }} BEGIN {{ {samples} }} interval:s:60 {{ exit() }}"
        );
        let mut trace = Running::start(cudatrace().args(["-e", &script, "--export", "openmetrics=0"]));
        trace.wait_for_line("metrics at");
        (port_of(&trace), trace)
    };
    let (quick, _quick) = start("for $i : 0..980 { @d = hist(5000) }");
    let (slow, _slow) = start("for $i : 0..20 { @d = hist(20000000) }");
    let prometheus = Prometheus::scraping(&[quick, slow]);
    prometheus.wait_for_value("sum(test_duration_seconds_count)", 1000.0);
    let p99 = prometheus.value("histogram_quantile(0.99, sum by (le) (test_duration_seconds_bucket))");
    assert!(p99 > Some(0.0167) && p99 < Some(0.0336), "{p99:?}");
    let buckets = prometheus.query("sum by (le) (test_duration_seconds_bucket)");
    let bucket = |result: &Value| -> Option<(f64, f64)> {
        let number = |value: &Value| value.as_str()?.replace("+Inf", "inf").parse().ok();
        Some((number(&result["metric"]["le"])?, number(&result["value"][1])?))
    };
    let mut up_to: Vec<(f64, f64)> =
        buckets["data"]["result"].as_array().expect("a list").iter().filter_map(bucket).collect();
    up_to.sort_by(|one, next| one.0.total_cmp(&next.0));
    assert!(up_to.len() > 20 && up_to.is_sorted_by(|one, next| one.1 <= next.1), "{up_to:?}");
}

#[test]
fn idle_connections_delay_no_scrape() {
    if !can_trace() {
        return;
    }
    let traced = TracedWorkload::start(&["metrics"]);
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(("127.0.0.1", traced.port)).expect("accepted")).collect();
    let start = std::time::Instant::now();
    assert!(traced.get("/metrics", "*/*").0.starts_with("HTTP/1.1 200"));
    // An idle connection is closed after 5 s; the request did not wait for that.
    assert!(start.elapsed() < std::time::Duration::from_secs(4), "{:?}", start.elapsed());
    drop(idle);
    let (head, _) = request(traced.port, "GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n");
    assert!(head.starts_with("HTTP/1.1 421"), "{head}");
}

#[test]
fn a_tracer_that_waits_for_its_library_is_healthy() {
    if !can_trace() {
        return;
    }
    let script = "uprobe:libnowhere:never { @n = count() }";
    let mut trace = Running::start(cudatrace().args(["--wait", "--export", "openmetrics=0", "-e", script]));
    trace.wait_for_line("metrics at");
    let get = |path: &str| request(port_of(&trace), &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n"));
    assert_eq!(get("/healthz").1, "ok\n");
    let metrics = get("/metrics").1;
    for line in ["cudatrace_probes_attached 0", "cudatrace_waiting 1", "cudatrace_files_failed 0"] {
        assert!(metrics.lines().any(|one| one == line), "{line}: {metrics}");
    }
}

#[test]
fn failures_of_both_apis_fire_alerts() {
    if !has("promtool", &["--version"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability/alerts.yml");
    let mut tests = String::new();
    for (metric, alert) in [
        ("gpu_cuda_errors_total", "CudaCallsFail"),
        ("gpu_cuda_runtime_errors_total", "CudaRuntimeCallsFail"),
    ] {
        // 6.7 failures a second, and one in all, which is none of them.
        for (values, is_firing) in [("0+100x80", true), ("0 1 1x80", false)] {
            let series = format!(
                "{metric}{{instance=\"a:1\",process_executable_name=\"app\",cuda_function=\"f\",error_type=\"E\"}}"
            );
            let firing = format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
            let samples = if is_firing { "[{labels: '{}', value: 1}]" } else { "[]" };
            tests += &format!(
                "  - interval: 15s\n    input_series:\n      - {{series: '{series}', values: '{values}'}}\n    \
                 promql_expr_test:\n      - {{expr: '{firing}', eval_time: 15m, exp_samples: {samples}}}\n"
            );
        }
    }
    let file = folder.path().join("tests.yml");
    std::fs::write(&file, format!("rule_files: ['{rules}']\ntests:\n{tests}")).expect("written");
    let output = Command::new("promtool").args(["test", "rules"]).arg(&file).output().expect("it runs");
    let said = format!("{}{}", common::stdout(&output), common::stderr(&output));
    assert!(output.status.success(), "{said}");
}

#[test]
fn configuration_of_prometheus_is_accepted() {
    if !has("promtool", &["--version"]) {
        return;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability");
    for arguments in [["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(folder).output().expect("it runs");
        let said = format!("{}{}", common::stdout(&output), common::stderr(&output));
        assert!(output.status.success() && !said.contains("WARNING"), "{said}");
    }
}

#[test]
fn the_screen_of_gpuprobe_has_its_numbers_at_the_endpoint_too() {
    if !can_trace() {
        return;
    }
    // The second process lives on: series with its id end with it.
    let workload = example("workload_driver");
    let shell = format!("{workload} --threads 2; {workload} --threads 2 --leak 12345 --linger 60000");
    let session = TracedWorkload::run(&["gpuprobe", "--interval=1"], &shell, "== end ==");
    let body = || session.get("/metrics", "*/*").1;
    let live =
        r#"gpu_cuda_memory_live_bytes\{process_pid="\d+",process_executable_name="workload_driver"\} 12345"#;
    let live = regex::Regex::new(live).unwrap();
    wait_for("the bytes that the second process holds", || live.is_match(&body()));
    let body = body();
    let sum = |family: &str, label: &str| -> f64 {
        let lines =
            body.lines().filter(|line| line.starts_with(&format!("{family}{{")) && line.contains(label));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    };
    let freed = session.truth("count cuMemFree_v2") + session.truth("count cuMemFreeHost")
        - session.truth("failed cuMemFree_v2 CUDA_ERROR_INVALID_VALUE");
    assert_eq!(sum("gpu_cuda_memory_free_calls_total", "result=\"successful\""), 2.0 * freed, "{body}");
    assert_eq!(sum("gpu_cuda_memory_free_calls_total", "result=\"failed\""), 2.0, "{body}");
    let launches = "gpu_cuda_kernel_launches_total";
    assert_eq!(sum(launches, "cuda_kernel_name=\"saxpy\""), 2.0 * session.truth("launches saxpy"), "{body}");
    assert_eq!(sum(launches, "cuda_kernel_address=\"0x"), 80.0, "{body}");
    let copies = "gpu_cuda_memory_copy_rate_bytes_per_second_count{cuda_memcpy_kind=\"DtoH\"} 16";
    assert!(body.contains(copies), "{body}");
}

#[test]
fn the_kubernetes_configuration_fits_its_schema() {
    if !has("kubernetes-validate", &["--version"]) {
        return;
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/observability/kubernetes.yaml");
    for version in ["1.25", "1.29", "1.30", "1.33"] {
        let arguments = ["-k", version, "--strict", file];
        let output = Command::new("kubernetes-validate").args(arguments).output().expect("it runs");
        let said = format!("{}{}", common::stdout(&output), common::stderr(&output));
        assert!(output.status.success(), "{version}: {said}");
    }
}
