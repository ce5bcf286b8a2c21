//! Spans and metrics as an OpenTelemetry receiver gets them: one made of OpenTelemetry's own Python packages (`pip install
//! opentelemetry-proto grpcio`; skipped where they are missing), by gRPC and HTTP, through a collector (`pip install rotel`,
//! also optional), and a file of JSON lines.

mod common;

use common::{Running, can_trace, cudatrace, example, wait_for};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = "
    uretprobe:libcudart:cuda*, uretprobe:libcuda:cu* { span(size = 3) }
    cuda:launch { @launches[kernel_name(args.kernel)] = count(); @ns = hist(args.duration) }";

struct Receiver {
    running: Running,
    grpc: u16,
    http: u16,
    folder: tempfile::TempDir,
}

impl Receiver {
    /// Starts a receiver that refuses the first `refusals` requests of each kind; it uses TLS if `tls` has a
    /// certificate and its key.
    fn start(refusals: u32, tls: &[&str]) -> Option<Receiver> {
        Receiver::start_at([0, 0], refusals, tls)
    }

    /// Starts a receiver with ports for gRPC and HTTP; 0 is any port.
    fn start_at([grpc, http]: [u16; 2], refusals: u32, tls: &[&str]) -> Option<Receiver> {
        let needs = "import grpc, opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc";
        let has = Command::new("python3").args(["-c", needs]).stderr(Stdio::null()).status();
        if !has.is_ok_and(|status| status.success()) {
            eprintln!("skipped: python3 has no opentelemetry-proto and grpcio");
            return None;
        }
        let folder = tempfile::tempdir().expect("a directory");
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/otlp_receiver.py");
        let mut command = Command::new("python3");
        command.arg(program).arg(folder.path().join("got")).arg(refusals.to_string()).args(tls);
        command.env("OTLP_GRPC_PORT", grpc.to_string()).env("OTLP_HTTP_PORT", http.to_string());
        let mut running = Running::start(&mut command);
        running.wait_for_line(" ");
        let ports = running.printed_lines()[0].split_once(' ').expect("two ports");
        let (grpc, http) = (ports.0.parse().expect("a port"), ports.1.parse().expect("a port"));
        Some(Receiver { running, grpc, http, folder })
    }

    fn got(&self, signal: &str, way: &str) -> Vec<Value> {
        let of = |line: &&Value| line["signal"] == signal && line["way"] == way;
        lines(&self.folder.path().join("got")).iter().filter(of).cloned().collect()
    }
}

/// The complete lines of a file that may still be written.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// Runs the workload under `SCRIPT`; returns its output.
fn trace(exports: &[&str], environment: &[(&str, &str)]) -> String {
    trace_program(exports, environment, &[])
}

/// The same, with arguments of the program.
fn trace_program(exports: &[&str], environment: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = cudatrace();
    command.args(["-e", SCRIPT]).envs(environment.iter().copied());
    exports.iter().for_each(|export| _ = command.args(["--export", export]));
    command.arg("--").arg(example("workload_runtime12")).args(arguments);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", common::stderr(&output));
    common::stdout(&output) + &common::stderr(&output)
}

/// All spans of calls in requests, with their resource.
fn spans(bodies: &[Value]) -> Vec<(Value, Value)> {
    all_spans(bodies).into_iter().filter(|(_, span)| !is_root(span)).collect()
}

/// Whether a span is the root of a trace.
fn is_root(span: &Value) -> bool {
    attribute(span, "cudatrace.spans").is_some()
}

/// All spans of requests, with their resource.
fn all_spans(bodies: &[Value]) -> Vec<(Value, Value)> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for of_resource in bodies.iter().flat_map(|body| list(body, "resourceSpans")) {
        for span in list(&of_resource, "scopeSpans").iter().flat_map(|scope| list(scope, "spans")) {
            all.push((of_resource["resource"].clone(), span));
        }
    }
    all
}

fn attribute(of: &Value, key: &str) -> Option<Value> {
    let attribute = of["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    attribute["value"].as_object()?.values().next().cloned()
}

fn ns(span: &Value, key: &str) -> u64 {
    span[key].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{key}: {span}"))
}

/// Counts of calls that the workload reports.
fn truth(said: &str) -> HashMap<String, usize> {
    let counts = said.lines().filter_map(|line| line.strip_prefix("count ")?.split_once(' '));
    // Calls that the compiler generates are not named `cuda*`.
    let counts = counts.filter(|(name, _)| !name.starts_with("__"));
    counts.map(|(name, count)| (name.to_owned(), count.parse().expect("a number"))).collect()
}

fn check_spans(spans: &[(Value, Value)], said: &str) {
    let by_id: HashMap<&str, &Value> =
        spans.iter().map(|(_, span)| (span["spanId"].as_str().expect("an id"), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "an id twice");
    for (name, count) in truth(said) {
        let named = spans.iter().filter(|(_, span)| span["name"] == name.as_str()).count();
        assert_eq!(named, count, "{name}");
    }
    let mut children = 0;
    for (resource, span) in spans {
        assert_eq!(attribute(span, "code.function.name").as_ref(), Some(&span["name"]));
        assert!(
            attribute(resource, "process.pid").is_some() && attribute(resource, "service.name").is_some()
        );
        let driver = span["name"].as_str().is_some_and(|name| !name.starts_with("cuda"));
        assert_eq!(attribute(span, "cuda.api"), Some(if driver { "driver" } else { "runtime" }.into()));
        assert_eq!(attribute(span, "cuda.size"), Some("3".into()));
        let Some(parent) = span["parentSpanId"].as_str().and_then(|id| by_id.get(id)) else { continue };
        children += 1;
        assert_eq!(parent["traceId"], span["traceId"]);
        assert!(ns(parent, "startTimeUnixNano") <= ns(span, "startTimeUnixNano"));
        assert!(ns(span, "endTimeUnixNano") <= ns(parent, "endTimeUnixNano"));
    }
    assert!(children > 100, "{children} of {} spans have a parent", spans.len());
    let launches = spans.iter().filter(|(_, span)| span["name"] == "cuLaunchKernel");
    let parents =
        launches.map(|(_, span)| by_id[span["parentSpanId"].as_str().expect("a parent")]["name"].clone());
    assert!(parents.into_iter().all(|name| name == "cudaLaunchKernel"));
    let failed = |(_, span): &&(Value, Value)| {
        let code = &span["status"]["code"];
        *code == 2 || *code == "STATUS_CODE_ERROR"
    };
    let failed: Vec<_> = spans.iter().filter(failed).collect();
    let out_of_memory = failed.iter().find(|(_, span)| span["name"] == "cuMemAlloc_v2").expect("one fails");
    assert_eq!(attribute(&out_of_memory.1, "error.type"), Some("CUDA_ERROR_OUT_OF_MEMORY".into()));
    assert_eq!(out_of_memory.1["status"]["message"], "CUDA_ERROR_OUT_OF_MEMORY");
}

fn check_metrics(bodies: &[Value]) {
    let last = bodies.last().expect("metrics came");
    let metrics = last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("a list");
    let named = |name: &str| metrics.iter().find(|metric| metric["name"] == name).expect("it is there");
    let launches = &named("cudatrace_launches")["sum"];
    let cumulative = [Value::from(2), "AGGREGATION_TEMPORALITY_CUMULATIVE".into()];
    assert!(cumulative.contains(&launches["aggregationTemporality"]) && launches["isMonotonic"] == true);
    let points = launches["dataPoints"].as_array().expect("points");
    let of = |kernel: &str| {
        let point = points.iter().find(|point| attribute(point, "kernel_name") == Some(kernel.into()));
        point.map(|point| {
            point["asInt"].as_str().and_then(|count| count.parse::<u64>().ok()).expect("a number")
        })
    };
    assert_eq!((of("saxpy"), of("vector_add")), (Some(8), Some(8)), "{points:?}");
    let of_maps: Vec<_> =
        metrics.iter().filter_map(|metric| metric["name"].as_str()?.strip_prefix("cudatrace_")).collect();
    assert_eq!(of_maps, ["launches", "ns"]);
    let point = &named("cudatrace_ns")["histogram"]["dataPoints"][0];
    let list = |key: &str| point[key].as_array().expect("a list").clone();
    assert_eq!(list("bucketCounts").len(), list("explicitBounds").len() + 1);
    let bounds: Vec<f64> = list("explicitBounds").iter().filter_map(Value::as_f64).collect();
    assert!(bounds.iter().all(|bound| (*bound as u64 + 1).is_power_of_two()), "{bounds:?}");
    let total: u64 =
        list("bucketCounts").iter().filter_map(|count| count.as_str()?.parse::<u64>().ok()).sum();
    assert_eq!(point["count"].as_str().and_then(|count| count.parse().ok()), Some(total));
    assert!(ns(point, "startTimeUnixNano") < ns(point, "timeUnixNano"));
    let lower = std::iter::once(0.0).chain(bounds.iter().map(|bound| bound + 1.0)).zip(list("bucketCounts"));
    let least: f64 = lower.filter_map(|(low, count)| Some(low * count.as_str()?.parse::<f64>().ok()?)).sum();
    let sum = point["sum"].as_f64().expect("a sum");
    assert!(least <= sum && sum < 2.0 * least + total as f64, "{least} {sum}");
}

#[test]
fn a_report_has_undelivered_records() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("t.jsonl");
    let mut lines = String::from("{\"type\":\"run\",\"format\":1,\"boot_ns\":0,\"wall_ns\":\"0\"}\n");
    for id in 1..=2000 {
        lines += &format!(
            "{{\"type\":\"span\",\"ts\":{id},\"dur\":1,\"pid\":1,\"tid\":1,\"name\":\"f\",\"id\":\"{id:#x}\",\"status\":\"ok\"}}\n"
        );
    }
    std::fs::write(&file, lines).expect("written");
    let mut command = cudatrace();
    command.args(["report", "-q"]).arg(&file).args(["--otlp", "http://127.0.0.1:9"]);
    // Each of the four requests would wait for this time.
    let begun = std::time::Instant::now();
    let output = command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "1500").output().expect("runs");
    let said = common::stderr(&output);
    assert!(said.contains("otlp=http://127.0.0.1:9: 2001 spans or series were not delivered"), "{said}");
    assert!(!output.status.success() && !said.contains("wrote"));
    assert!(begun.elapsed() < std::time::Duration::from_millis(4500), "{:?}", begun.elapsed());
}

#[test]
fn a_receiver_gets_spans_and_metrics_by_grpc_and_http() {
    if !can_trace() {
        return;
    }
    let Some(receiver) = Receiver::start(2, &[]) else { return };
    let environment = [("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b"), ("OTEL_SERVICE_NAME", "training")];
    let ways = [
        (format!("otlp=grpc://127.0.0.1:{}", receiver.grpc), "grpc"),
        (format!("otlp=http://127.0.0.1:{}", receiver.http), "http/protobuf"),
        (format!("otlp=http://127.0.0.1:{}/", receiver.http), "http/json"),
    ];
    for (export, way) in ways {
        let protocol = if way == "http/json" { way } else { "" };
        let environment = [&environment[..], &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]].concat();
        let said = trace(&[&export], &environment);
        assert!(!said.contains("not delivered") && !said.contains("dropped"), "{said}");
        let requests = receiver.got("traces", way);
        let header = |line: &Value| {
            let headers = line["headers"].as_object().expect("headers").iter();
            headers.filter(|(name, _)| name.eq_ignore_ascii_case("x-tenant")).any(|(_, value)| value == "a b")
        };
        assert!(!requests.is_empty() && requests.iter().all(header), "{way}");
        let bodies: Vec<Value> = requests.iter().map(|line| line["body"].clone()).collect();
        let spans = spans(&bodies);
        check_spans(&spans, &said);
        assert_eq!(attribute(&spans[0].0, "service.name"), Some("training".into()), "{way}");
        let metrics: Vec<Value> =
            receiver.got("metrics", way).iter().map(|line| line["body"].clone()).collect();
        check_metrics(&metrics);
    }
    drop(receiver.running);
}

/// Another collector, which forwards all requests to a receiver.
struct Collector {
    _running: Running,
    grpc: u16,
    http: u16,
}

impl Collector {
    fn before(receiver: &Receiver) -> Option<Collector> {
        let find = "import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'))";
        let found = Command::new("python3").args(["-c", find]).output().expect("python3 runs");
        if !found.status.success() {
            eprintln!("skipped: python3 has no rotel");
            return None;
        }
        let free = || std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let (grpc, http) = (free(), free());
        let ports = [&grpc, &http].map(|socket| socket.local_addr().expect("bound").port());
        drop((grpc, http));
        let mut command = Command::new(common::stdout(&found).trim());
        command.args(["start", "--exporter", "otlp", "--otlp-exporter-compression", "none"]);
        command.arg(format!("--otlp-exporter-endpoint=http://127.0.0.1:{}", receiver.grpc));
        command.arg(format!("--otlp-grpc-endpoint=127.0.0.1:{}", ports[0]));
        command.arg(format!("--otlp-http-endpoint=127.0.0.1:{}", ports[1]));
        let running = Running::start(&mut command);
        for port in ports {
            wait_for("the collector", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
        Some(Collector { _running: running, grpc: ports[0], http: ports[1] })
    }
}

#[test]
fn a_collector_of_others_passes_everything_on() {
    if !can_trace() {
        return;
    }
    let ways = [("grpc", "otlp=grpc://127.0.0.1:"), ("http", "otlp=http://127.0.0.1:")];
    for (way, export) in ways {
        let Some(receiver) = Receiver::start(0, &[]) else { return };
        let Some(collector) = Collector::before(&receiver) else { return };
        let port = if way == "grpc" { collector.grpc } else { collector.http };
        let said = trace(&[&format!("{export}{port}")], &[]);
        assert!(!said.contains("not delivered") && !said.contains("dropped"), "{said}");
        let bodies = |signal| -> Vec<Value> {
            receiver.got(signal, "grpc").into_iter().map(|mut line| line["body"].take()).collect()
        };
        let calls = truth(&said);
        wait_for("all spans and metrics", || {
            let mut found: HashMap<String, usize> = HashMap::new();
            for (_, span) in spans(&bodies("traces")) {
                *found.entry(span["name"].as_str().expect("a name").to_owned()).or_default() += 1;
            }
            calls.iter().all(|(name, count)| found.get(name) >= Some(count)) && !bodies("metrics").is_empty()
        });
        check_spans(&spans(&bodies("traces")), &said);
        check_metrics(&bodies("metrics"));
    }
}

/// A self-signed certificate and its key, if openssl can create them.
fn certificate(folder: &Path, name: &str) -> Option<(String, String)> {
    let path = |end: &str| folder.join(format!("{name}.{end}")).to_str().expect("UTF-8").to_owned();
    let (certificate, key) = (path("pem"), path("key"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            &format!("/CN={name}"),
        ])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-out", &certificate, "-keyout", &key])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: openssl makes no certificate here");
        return None;
    }
    Some((certificate, key))
}

#[test]
fn a_receiver_that_requires_a_client_certificate_gets_it() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let Some((certificate, key)) = self::certificate(folder.path(), "receiver") else { return };
    let Some((own, own_key)) = self::certificate(folder.path(), "sender") else { return };
    let Some(receiver) = Receiver::start(0, &[&certificate, &key, &own]) else { return };
    let trusted = ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*certificate);
    let known = [
        trusted,
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &own),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &own_key),
    ];
    let grpc = format!("otlp=grpcs://127.0.0.1:{}", receiver.grpc);
    let http = format!("otlp=https://127.0.0.1:{}", receiver.http);
    for (export, way) in [(&grpc, "grpc"), (&http, "http/protobuf")] {
        let said = trace(&[export], &known);
        assert!(!said.contains("not delivered"), "{said}");
        assert!(!receiver.got("traces", way).is_empty(), "{way}");
        let said = trace(&[export], &[trusted, ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")]);
        assert!(said.contains("not delivered"), "{way}: {said}");
    }
    let mut alone = cudatrace();
    alone.args(["-e", SCRIPT, "--export", &http, "--", "true"]).envs(known[..2].iter().copied());
    let output = alone.output().expect("it runs");
    assert!(!output.status.success() && common::stderr(&output).contains("go together"));
}

#[test]
fn requests_are_compressed_on_request() {
    if !can_trace() {
        return;
    }
    let Some(receiver) = Receiver::start(0, &[]) else { return };
    let ways = [
        ("grpc", "grpc", receiver.grpc),
        ("http/protobuf", "http", receiver.http),
        ("http/json", "http", receiver.http),
    ];
    for (way, scheme, port) in ways {
        let environment = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), ("OTEL_EXPORTER_OTLP_PROTOCOL", way)];
        let said = trace(&[&format!("otlp={scheme}://127.0.0.1:{port}")], &environment);
        assert!(!said.contains("not delivered") && !said.contains("dropped"), "{said}");
        let requests = receiver.got("traces", way);
        let encoding = |line: &Value| {
            let headers = line["headers"].as_object().expect("headers").iter();
            headers
                .filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))
                .any(|(_, value)| value == "gzip")
        };
        // A service cannot see gRPC's own headers.
        assert!(way == "grpc" || requests.iter().all(encoding), "{way}");
        let bodies: Vec<Value> = requests.iter().map(|line| line["body"].clone()).collect();
        check_spans(&spans(&bodies), &said);
    }
}

#[test]
fn a_receiver_with_tls_is_sent_to_if_its_certificate_is_trusted() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let Some((certificate, key)) = certificate(folder.path(), "receiver") else { return };
    let Some(receiver) = Receiver::start(0, &[&certificate, &key]) else { return };
    let trusted = [("OTEL_EXPORTER_OTLP_CERTIFICATE", &*certificate)];
    let grpc = format!("otlp=grpcs://127.0.0.1:{}", receiver.grpc);
    let http = format!("otlp=https://127.0.0.1:{}", receiver.http);
    for (export, way) in [(&grpc, "grpc"), (&http, "http/protobuf")] {
        let said = trace(&[export], &trusted);
        assert!(!said.contains("not delivered"), "{said}");
        let bodies: Vec<Value> =
            receiver.got("traces", way).iter().map(|line| line["body"].clone()).collect();
        check_spans(&spans(&bodies), &said);
    }
    let before = receiver.got("traces", "http/protobuf").len();
    let said = trace(&[&http], &[("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")]);
    assert!(said.contains("not delivered") && said.contains("UnknownIssuer"), "{said}");
    assert_eq!(receiver.got("traces", "http/protobuf").len(), before);
}

#[test]
fn a_file_has_a_request_a_line() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("trace.json");
    let parent = ("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    // Path and arguments are unknown for a process that ends before its first record is read.
    let linger = ["--linger", "1000"];
    let said = trace_program(&[&format!("otlp=file:{}", path.display())], &[parent], &linger);
    let lines = lines(&path);
    let traces: Vec<Value> = lines.iter().filter(|line| !line["resourceSpans"].is_null()).cloned().collect();
    let metrics: Vec<Value> =
        lines.iter().filter(|line| !line["resourceMetrics"].is_null()).cloned().collect();
    let spans = spans(&traces);
    check_spans(&spans, &said);
    check_metrics(&metrics);
    assert!(spans.iter().all(|(_, span)| span["traceId"] == "0af7651916cd43dd8448eb211c80319c"));
    let all = all_spans(&traces);
    let roots: Vec<&Value> = all.iter().map(|(_, span)| span).filter(|span| is_root(span)).collect();
    let [root] = &roots[..] else { panic!("one root, found {roots:?}") };
    assert_eq!(root["parentSpanId"], "b7ad6b7169203331");
    assert!(spans.iter().any(|(_, span)| span["parentSpanId"] == root["spanId"]));
    let resource = &all[0].0;
    for key in
        ["service.instance.id", "telemetry.sdk.name", "process.executable.path", "process.command_args"]
    {
        assert!(attribute(resource, key).is_some(), "{key} in {resource}");
    }
    assert!(spans.iter().all(|(_, span)| span["kind"] == 1));
}

#[test]
fn undelivered_records_are_counted_without_a_wait() {
    if !can_trace() {
        return;
    }
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let begun = std::time::Instant::now();
    let environment = [("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")];
    let said = trace(&[&format!("otlp=http://{free}")], &environment);
    assert!(said.contains("were not delivered") && said.contains("refused"), "{said}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Runs the workload with an export to a file and environment variables; returns its output, and the requests.
fn to_file(more: &[&str], environment: &[(&str, &str)]) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("trace.json");
    let mut command = cudatrace();
    command
        .args(["-e", "uretprobe:libcuda:cu* { span() } uprobe:libcuda:cuLaunchKernel { event(\"step\") }"]);
    command.args(["--export", &format!("otlp=file:{}", path.display())]).args(more);
    command.envs(environment.iter().copied()).arg("--").arg(example("workload_driver"));
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", common::stderr(&output));
    (common::stderr(&output), lines(&path))
}

#[test]
fn unsampled_traces_are_not_sent() {
    if !can_trace() {
        return;
    }
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    for (environment, sent) in [
        (&[("OTEL_TRACES_SAMPLER", "always_off")][..], false),
        (&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "1.0")], true),
        (&[("TRACEPARENT", unsampled)], false),
        (&[("TRACEPARENT", unsampled), ("OTEL_TRACES_SAMPLER", "always_on")], true),
    ] {
        let (said, requests) = to_file(&[], environment);
        assert_eq!(spans(&requests).len() > 50, sent, "{environment:?}");
        assert!(sent || spans(&requests).is_empty(), "{environment:?}");
        assert!(!said.contains("delivered") && !said.contains("dropped"), "{said}");
    }
    let (said, requests) = to_file(&[], &[("OTEL_SDK_DISABLED", "true")]);
    assert!(said.contains("nothing was sent: OTEL_SDK_DISABLED is true") && requests.is_empty(), "{said}");
}

#[test]
fn a_marker_begins_a_trace_that_links_to_the_one_before() {
    if !can_trace() {
        return;
    }
    let (_, requests) = to_file(&["--trace-per", "event:step"], &[]);
    let (roots, spans): (Vec<_>, Vec<_>) =
        all_spans(&requests).into_iter().map(|(_, span)| span).partition(is_root);
    let traces: HashMap<&str, &Value> =
        roots.iter().map(|root| (root["traceId"].as_str().expect("an id"), root)).collect();
    let events = |span: &Value| span["events"].as_array().map_or(0, Vec::len);
    // A call that lasts is not waited for: then the step is a span below it.
    let steps: usize = spans.iter().map(|span| events(span) + usize::from(span["name"] == "step")).sum();
    assert!(spans.iter().map(events).sum::<usize>() > 4);
    assert!(
        roots.len() > 4 && roots.len() <= steps + 1 && traces.len() == roots.len(),
        "{} {steps}",
        roots.len()
    );
    for span in &spans {
        let root = traces[span["traceId"].as_str().expect("an id")];
        assert!(span["parentSpanId"].as_str().is_some_and(|id| !id.is_empty()), "{span}");
        assert_eq!(root["traceId"], span["traceId"]);
    }
    let linked = roots.iter().filter(|root| {
        let link = &root["links"][0];
        link["traceId"]
            .as_str()
            .and_then(|id| traces.get(id))
            .is_some_and(|before| before["spanId"] == link["spanId"])
    });
    assert_eq!(linked.count(), roots.len() - 1, "all but the first");
}

/// A program that makes a number of calls at a fixed rate.
const PACED: &str = "
import ctypes, sys, time
driver = ctypes.CDLL(sys.argv[1])
for at in range(int(sys.argv[2])):
    driver.cuInit(0)
    time.sleep(0.001)";

fn paced(export: &str, calls: u32) -> Command {
    let mut command = cudatrace();
    command.args(["-e", "uretprobe:libcuda:cuInit { span() }", "--export", export, "--"]);
    command.args(["python3", "-c", PACED, &example("libcuda.so.1"), &calls.to_string()]);
    command
}

#[test]
fn a_receiver_that_comes_late_gets_everything() {
    if !can_trace() {
        return;
    }
    for (way, scheme) in [("grpc", "grpc"), ("http/protobuf", "http")] {
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .expect("a port");
        let mut command = paced(&format!("otlp={scheme}://{free}"), 3000);
        let trace = Running::start(&mut command);
        std::thread::sleep(std::time::Duration::from_millis(2500));
        let ports = if scheme == "grpc" { [free.port(), 0] } else { [0, free.port()] };
        let Some(receiver) = Receiver::start_at(ports, 0, &[]) else { return };
        let said = trace.lines().join("\n");
        assert!(said.contains("delivered all 30") && !said.contains("dropped"), "{way}: {said}");
        let bodies: Vec<Value> =
            receiver.got("traces", way).iter().map(|line| line["body"].clone()).collect();
        assert_eq!(spans(&bodies).len(), 3000, "{way}");
        drop(receiver.running);
    }
}

/// Compiles a library that adds two hours to the wall clock of a program as soon as a file is there; `None` without a compiler.
fn clock_that_is_set(folder: &Path, mark: &Path) -> Option<String> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    let text = format!(
        "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
         int clock_gettime(clockid_t id, struct timespec *time) {{\n\
             int status = syscall(SYS_clock_gettime, id, time);\n\
             if (id == CLOCK_REALTIME && access(\"{}\", F_OK) == 0) time->tv_sec += 7200;\n\
             return status;\n}}\n",
        mark.display()
    );
    std::fs::write(&source, text).expect("written");
    let mut compiler = Command::new("cc");
    let made = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !made.is_ok_and(|made| made.success()) {
        eprintln!("skipped: no C compiler");
        return None;
    }
    Some(library.to_str().expect("UTF-8").to_owned())
}

#[test]
fn spans_after_a_step_of_the_wall_clock_have_its_time() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let (file, mark) = (folder.path().join("trace.json"), folder.path().join("stepped"));
    let Some(library) = clock_that_is_set(folder.path(), &mark) else { return };
    let export = format!("otlp=file:{}", file.display());
    let mut command = cudatrace();
    command.args([
        "-e",
        "uretprobe:libcuda:cuInit { span() }",
        "--trace-per",
        "process",
        "--export",
        &export,
    ]);
    command.args(["--", "python3", "-c", PACED, &example("libcuda.so.1"), "5000"]);
    let trace = Running::start(command.env("LD_PRELOAD", library));
    wait_for("the first spans", || !lines(&file).is_empty());
    std::fs::write(&mark, "").expect("written");
    let said = trace.lines().join("\n");
    assert_eq!(said.matches("the wall clock was set by +7200.000 s").count(), 1, "{said}");
    let spans = all_spans(&lines(&file));
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    let is_new = |span: &Value| ns(span, "startTimeUnixNano") > now + 3_600_000_000_000;
    let mut traces: HashMap<String, [u32; 2]> = HashMap::new();
    for (_, span) in &spans {
        assert!(ns(span, "endTimeUnixNano") - ns(span, "startTimeUnixNano") < 60_000_000_000, "{span}");
        let trace = traces.entry(span["traceId"].as_str().expect("an id").to_owned()).or_default();
        trace[usize::from(is_new(span))] += 1;
    }
    assert_eq!(traces.len(), 2, "{traces:?}");
    assert!(traces.values().all(|[old, new]| (*old == 0) != (*new == 0)), "{traces:?}");
    assert_eq!(spans.iter().filter(|(_, span)| !is_root(span)).count(), 5000);
}

/// Address of a server that accepts connections but never responds.
fn black_hole() -> std::net::SocketAddr {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || socket.incoming().collect::<Vec<_>>());
    address
}

#[test]
fn a_receiver_that_never_answers_holds_the_end_up_once() {
    if !can_trace() {
        return;
    }
    let mut command = paced(&format!("otlp=http://{}", black_hole()), 4000);
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "2000");
    let begun = std::time::Instant::now();
    let output = command.output().expect("it runs");
    let said = common::stderr(&output);
    // Each of the eight requests, and the metrics, would take two seconds.
    let lost =
        said.split(" spans or series were not delivered").next().and_then(|said| said.split(' ').next_back());
    let lost: u32 = lost.and_then(|count| count.parse().ok()).unwrap_or(0);
    assert!(lost > 4000 && said.contains("no answer"), "{said}");
    assert!(said.contains("delivered nothing to http://127.0.0.1") && !said.contains("wrote"), "{said}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[test]
fn sigterm_ends_the_wait_for_a_receiver() {
    if !can_trace() {
        return;
    }
    let mut command = paced(&format!("otlp=http://{}", black_hole()), 10);
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "60000");
    let trace = Running::start(&mut command);
    std::thread::sleep(std::time::Duration::from_secs(4));
    let begun = std::time::Instant::now();
    trace.signal(libc::SIGTERM);
    let said = trace.lines().join("\n");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(said.contains("spans or series were not delivered: no answer"), "{said}");
}

#[test]
fn fail_on_loss_makes_lost_exports_the_exit_status() {
    if !can_trace() {
        return;
    }
    let mut command = cudatrace();
    command.args([
        "--fail-on-loss",
        "-e",
        "uretprobe:libcuda:cuInit { span() }",
        "--export",
        "jsonl=/dev/full",
    ]);
    let output = command.arg("--").arg(example("workload_driver")).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{}", common::stderr(&output));
}

#[test]
fn a_receiver_that_cannot_be_reached_is_reported_while_the_program_runs() {
    if !can_trace() {
        return;
    }
    // A port of this machine that is taken, and that nothing listens on.
    let taken =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&taken, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let closed = std::net::SocketAddr::try_from(rustix::net::getsockname(&taken).unwrap()).unwrap();
    let mut command = cudatrace();
    command.args(["-e", "uretprobe:libcuda:cuInit { span() }", "--export", &format!("otlp=http://{closed}")]);
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "1000").args(["--", "sleep", "600"]);
    let mut trace = Running::start(&mut command);
    trace.wait_for_line(&format!("nothing can be sent to http://{closed}: Connection refused"));
    assert!(trace.runs());
    trace.signal(libc::SIGTERM);
    let (status, _) = trace.ended();
    assert_eq!(status.code(), Some(0), "{:?}", trace.printed_lines());
}
