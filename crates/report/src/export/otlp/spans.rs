//! Records as OTLP spans: one resource per process.
//!
//! ```text
//! span(...)     a span; children name the call around them on the same thread
//! event(...)    a span of no duration, below the call that emitted it
//! ```
//!
//! Not here: the trace of a span (`traces`), its attributes (`one_span`).

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
use prost::Message;

use super::one_span::OneSpan;
use super::traces::{Link, Parent, Per, Root, Sampler, Traces};
use super::{Attributes, Encoding, Request, SCHEMA, Signal, json, resource, scope};
use crate::export::recent::Recent;
use crate::export::{Data, Kind, Record, Run};

/// Settings for all requests of a run.
#[derive(Default)]
pub struct Settings {
    /// Attributes of all processes; they take precedence over those of each process.
    pub given: Attributes,
    /// Encoding of requests.
    pub encoding: Encoding,
    /// Condition for starting another trace.
    pub per: Per,
    /// Selection of the traces that are sent.
    pub sampler: Sampler,
    /// Parent span of the run.
    pub parent: Option<Parent>,
    /// Reads the attributes of a running process.
    pub describe: Option<fn(u32) -> Attributes>,
}

/// Collector of spans for the next request.
pub struct Batch {
    run: Arc<Run>,
    settings: Settings,
    traces: Traces,
    by_process: HashMap<u32, Process>,
    /// Attributes of processes, with their program.
    known: HashMap<u32, (Arc<str>, Attributes)>,
    texts: json::Texts,
    /// Traces of calls that launched work of a GPU, by the call's id.
    launches: Recent<u64, u128, LAUNCHES>,
    spans: u64,
    bytes: usize,
}

/// Number of launches that are kept for their work.
const LAUNCHES: usize = 1 << 17;
/// Largest number of processes whose attributes are kept.
const KNOWN_PROCESSES: usize = 4096;

/// Spans of a process.
struct Process {
    program: Arc<str>,
    spans: Spans,
}

enum Spans {
    Messages(Vec<OtlpSpan>),
    /// Encoded spans, separated by commas.
    Json(String),
}

impl Spans {
    fn new(encoding: Encoding) -> Spans {
        match encoding {
            Encoding::Protobuf => Spans::Messages(Vec::new()),
            Encoding::Json => Spans::Json(String::new()),
        }
    }

    /// Adds a span; returns its size in bytes.
    fn add(&mut self, span: &OneSpan, texts: &mut json::Texts) -> usize {
        match self {
            Spans::Messages(all) => {
                let message = span.message();
                let bytes = message.encoded_len();
                all.push(message);
                bytes
            }
            Spans::Json(text) => {
                let before = text.len();
                text.push_str(if before == 0 { "" } else { "," });
                json::span(text, texts, span);
                text.len() - before
            }
        }
    }
}

impl Batch {
    /// Creates an empty batch for a run.
    pub fn new(run: Arc<Run>, settings: Settings) -> Batch {
        let traces = Traces::new(run.clone(), settings.per.clone(), settings.sampler, settings.parent);
        let (by_process, known, texts, launches, spans, bytes) = Default::default();
        Batch { run, settings, traces, by_process, known, texts, launches, spans, bytes }
    }

    /// Number of spans that are in no request yet.
    pub fn len(&self) -> u64 {
        self.spans
    }

    /// Whether there are no spans.
    pub fn is_empty(&self) -> bool {
        self.spans == 0
    }

    /// Approximate size of a request with these spans, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record, if it is a span or an instant.
    pub fn add(&mut self, record: &Record) {
        let (span_id, parent_id, duration_ns, call) = match &record.kind {
            Kind::Span(span) => (span.span_id, span.parent_id, span.duration_ns, Some(span)),
            Kind::Instant { parent_id } => (self.instant_id(record), *parent_id, 0, None),
            _ => return,
        };
        let (trace, ended) = self.traces.assign(record, parent_id);
        if let Some(root) = ended {
            self.add_root(&root);
        }
        if !trace.sampled {
            return;
        }
        let parent_id = if parent_id == 0 { trace.root } else { parent_id };
        let start_ns = self.run.wall_ns(record.time_ns).max(0) as u64;
        let (pid, program) = match &record.thread {
            Some(thread) => (thread.pid, thread.program.clone()),
            None => (0, "".into()),
        };
        let (trace_id, end_ns) = (trace.id, start_ns.saturating_add(duration_ns));
        let launch = self.launch(record, trace_id);
        let links = launch.as_slice();
        let span = OneSpan { record, call, trace_id, span_id, parent_id, start_ns, end_ns, links };
        self.put(pid, program, &span);
    }

    /// The call that launched work of a GPU: a link, and no parent, since it ended before, perhaps in an earlier trace. Keeps such calls.
    fn launch(&mut self, record: &Record, trace_id: u128) -> Option<Link> {
        let call = record.launch()?;
        if record.gpu_kind().is_none() {
            self.launches.insert(call, trace_id);
            return None;
        }
        Some((self.launches.get(&call)?, call))
    }

    /// Ends the traces that are over at a boot-clock time; with the largest time all of them.
    pub fn end_traces(&mut self, now_ns: u64) {
        self.traces.over(now_ns).iter().for_each(|root| self.add_root(root));
    }

    /// Adds the root span of a trace.
    fn add_root(&mut self, root: &Root) {
        if !root.trace.sampled {
            return;
        }
        let name = if root.program.is_empty() { super::SCOPE.into() } else { root.program.clone() };
        let record = Record {
            kind: Kind::Instant { parent_id: root.parent_id },
            time_ns: root.start_ns,
            thread: None,
            site: Arc::default(),
            name,
            fields: [("cudatrace.spans".into(), Data::Uint(root.spans))].into_iter().collect(),
        };
        let wall = |boot_ns| self.run.wall_ns(boot_ns).max(0) as u64;
        let span = OneSpan {
            record: &record,
            call: None,
            trace_id: root.trace.id,
            span_id: root.trace.root,
            parent_id: root.parent_id,
            start_ns: wall(root.start_ns),
            end_ns: wall(root.end_ns),
            links: &root.links,
        };
        self.put(root.pid, root.program.clone(), &span);
    }

    fn put(&mut self, pid: u32, program: Arc<str>, span: &OneSpan) {
        self.describe(pid, &program);
        let encoding = self.settings.encoding;
        let process =
            self.by_process.entry(pid).or_insert_with(|| Process { program, spans: Spans::new(encoding) });
        self.bytes += process.spans.add(span, &mut self.texts);
        self.spans += 1;
    }

    /// Reads the attributes of a process when it first occurs, since it may end soon.
    fn describe(&mut self, pid: u32, program: &Arc<str>) {
        let Some(describe) = self.settings.describe else { return };
        if self.known.get(&pid).is_some_and(|(known, _)| known == program) {
            return;
        }
        if self.known.len() >= KNOWN_PROCESSES {
            self.known.clear();
        }
        self.known.insert(pid, (program.clone(), describe(pid)));
    }

    /// Takes the collected spans as a request; the batch is then empty.
    pub fn take(&mut self) -> Request {
        let items = std::mem::take(&mut self.spans);
        self.bytes = 0;
        let mut processes: Vec<_> = self.by_process.drain().collect();
        processes.sort_by_key(|(pid, _)| *pid);
        let body = match self.settings.encoding {
            Encoding::Protobuf => self.messages(processes).encode_to_vec(),
            Encoding::Json => self.json(processes).into_bytes(),
        };
        Request { signal: Signal::Traces, body, items }
    }

    fn messages(&self, processes: Vec<(u32, Process)>) -> ExportTraceServiceRequest {
        let of_process = |(pid, process): (u32, Process)| {
            let spans = match process.spans {
                Spans::Messages(spans) => spans,
                Spans::Json(_) => Vec::new(),
            };
            let scope_spans = vec![ScopeSpans { scope: scope(), spans, schema_url: SCHEMA.into() }];
            let resource = Some(self.resource(pid, &process.program));
            ResourceSpans { resource, scope_spans, schema_url: SCHEMA.into() }
        };
        ExportTraceServiceRequest { resource_spans: processes.into_iter().map(of_process).collect() }
    }

    fn json(&self, processes: Vec<(u32, Process)>) -> String {
        let mut out = String::from("{\"resourceSpans\":[");
        for (at, (pid, process)) in processes.into_iter().enumerate() {
            let Spans::Json(spans) = process.spans else { continue };
            out.push_str(if at > 0 { "," } else { "" });
            out.push_str("{\"resource\":");
            out.push_str(&json::message(&self.resource(pid, &process.program)));
            out.push_str(",\"scopeSpans\":[{\"scope\":");
            out.push_str(&json::message(&scope()));
            out.push_str(",\"spans\":[");
            out.push_str(&spans);
            out.push_str(&format!("],\"schemaUrl\":\"{SCHEMA}\"}}],\"schemaUrl\":\"{SCHEMA}\"}}"));
        }
        out.push_str("]}");
        out
    }

    /// Attributes of a process.
    fn resource(&self, pid: u32, program: &str) -> Resource {
        let known = self.known.get(&pid).map(|(_, known)| known.clone()).unwrap_or_default();
        let of_process = [
            ("process.executable.name", Data::Text(program.into())),
            ("process.pid", Data::Uint(pid.into())),
        ];
        let of_process = of_process.map(|(key, value)| (key.to_owned(), value)).into_iter().chain(known);
        let service = if program.is_empty() { super::SCOPE } else { program };
        resource(&self.run, service, pid, of_process, &self.settings.given)
    }

    fn instant_id(&self, record: &Record) -> u64 {
        let (pid, tid) = record.thread.as_ref().map_or((0, 0), |thread| (thread.pid, thread.tid));
        // No call begins at the same ns on a thread with this pair of ids.
        self.run.span_id(tid, pid ^ u32::MAX, record.time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::export::{Enumerator, Site, Span, Status, Thread};
    use serde_json::json;

    fn record(name: &str, kind: Kind, fields: Vec<(Arc<str>, Data)>) -> Record {
        let thread = Thread { pid: 7, tid: 8, comm: "py\"th\non".into(), program: "python3".into() };
        let site = Site { func: "cuMemAlloc_v2".into(), ..Site::default() };
        let (thread, fields) = (Some(thread.into()), fields.into_iter().collect());
        Record { kind, time_ns: 100, thread, site: site.into(), name: name.into(), fields }
    }

    fn call(span_id: u64, parent_id: u64, status: Status) -> Kind {
        let result =
            Enumerator { ty: "CUresult".into(), name: Some("CUDA_ERROR_OUT_OF_MEMORY".into()), value: 2 };
        Kind::Span(Span {
            duration_ns: 50,
            span_id,
            parent_id,
            status,
            result: Some(Data::Enum(result.into())),
            launch_id: 0,
        })
    }

    fn requests(parent: Option<&str>, records: &[Record]) -> (serde_json::Value, ExportTraceServiceRequest) {
        let run = Arc::new(Run { id: 5, boot_at_wall_ns: 1_700_000_000_000_000_000, ..Run::default() });
        let parent = parent.map(|parent| Parent::parse(parent).expect("well formed"));
        let one = |encoding| {
            let given = vec![("service.name".into(), Data::Text("train".into()))];
            let mut batch =
                Batch::new(run.clone(), Settings { given, parent, encoding, ..Settings::default() });
            records.iter().for_each(|record| batch.add(record));
            batch.end_traces(u64::MAX);
            let request = batch.take();
            assert!(batch.is_empty() && batch.bytes() == 0);
            request.body
        };
        let (json, protobuf) = (one(Encoding::Json), one(Encoding::Protobuf));
        let understood: ExportTraceServiceRequest = serde_json::from_slice(&json).expect("OTLP");
        let protobuf = ExportTraceServiceRequest::decode(protobuf.as_slice()).expect("protobuf");
        assert_eq!(understood, protobuf);
        (serde_json::from_slice(&json).expect("JSON"), protobuf)
    }

    fn attributes_of(span: &serde_json::Value) -> HashMap<String, serde_json::Value> {
        let pairs = span["attributes"].as_array().expect("a list").iter();
        pairs.map(|pair| (pair["key"].as_str().expect("a key").to_owned(), pair["value"].clone())).collect()
    }

    #[test]
    fn a_call_with_names_that_are_hard_to_write() {
        let hostile = "a\"b\\c\n\u{1b}[31m\u{fffd}漢";
        let frame = |name: &str| Frame { symbol: Some(name.into()), ..Frame::default() };
        let fields: Vec<(Arc<str>, Data)> = vec![
            ("kernel".into(), Data::Text(hostile.into())),
            ("bytes".into(), Data::Uint(u64::MAX)),
            ("stream".into(), Data::Handle(0x7f00_0000_0000_0001)),
            ("grid".into(), Data::List(vec![Data::Uint(1), Data::Uint(2), Data::None])),
            ("point".into(), Data::Map(vec![("x".into(), Data::Int(-1)), ("y".into(), Data::None)])),
            ("nothing".into(), Data::None),
            ("stack".into(), Data::Stack([frame("f;g"), frame("main")].into())),
            (hostile.into(), Data::Bool(true)),
        ];
        let records = [record(hostile, call(0xab, 0xcd, Status::Error), fields)];
        let (json, protobuf) = requests(None, &records);
        let of = &json["resourceSpans"][0];
        let span = &of["scopeSpans"][0]["spans"][0];
        assert_eq!((&span["name"], &span["kind"]), (&json!(hostile), &json!(1)));
        assert_eq!(
            (&span["spanId"], &span["parentSpanId"]),
            (&json!("00000000000000ab"), &json!("00000000000000cd"))
        );
        assert_eq!(span["traceId"].as_str().map(str::len), Some(32));
        assert_eq!(span["startTimeUnixNano"], "1700000000000000100");
        assert_eq!(span["endTimeUnixNano"], "1700000000000000150");
        assert_eq!(
            (&span["status"]["code"], &span["status"]["message"]),
            (&json!(2), &json!("CUDA_ERROR_OUT_OF_MEMORY"))
        );
        let attributes = attributes_of(span);
        assert_eq!(attributes["cuda.kernel.name"]["stringValue"], hostile);
        assert_eq!(attributes["cuda.size"]["stringValue"], "18446744073709551615", "beyond int64 it is text");
        assert_eq!(attributes["cuda.stream"]["stringValue"], "0x7f00000000000001");
        assert_eq!(attributes["cuda.grid"]["arrayValue"]["values"][1]["intValue"], "2");
        assert_eq!(attributes["point.x"]["intValue"], "-1", "a member is an attribute");
        assert_eq!(attributes["code.stacktrace"]["stringValue"], "f;g\nmain");
        assert_eq!(attributes[hostile]["boolValue"], true);
        assert_eq!(attributes["thread.name"]["stringValue"], "py\"th\non");
        assert_eq!(attributes["error.type"]["stringValue"], "CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(attributes["cuda.result"]["intValue"], "2");
        let resource = attributes_of(&of["resource"]);
        assert_eq!(
            resource["process.executable.name"]["stringValue"], "python3",
            "whatever its threads are called"
        );
        assert_eq!(resource["telemetry.sdk.name"]["stringValue"], "cudatrace");
        assert_eq!(resource["service.instance.id"]["stringValue"].as_str().map(str::len), Some(36));
        assert_eq!(of["schemaUrl"], SCHEMA);
        assert_eq!(
            (&resource["service.name"]["stringValue"], &resource["process.pid"]["intValue"]),
            (&json!("train"), &json!("7"))
        );
        let same = &protobuf.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((same.name.as_str(), same.span_id.as_slice()), (hostile, &0xab_u64.to_be_bytes()[..]));
        assert_eq!(same.attributes.len(), attributes.len());
    }

    #[test]
    fn a_kind_of_memory_is_none_of_a_copy() {
        let text = |text: &str| Data::Text(text.into());
        let alloc = record("cuMemAlloc_v2", call(1, 0, Status::Ok), vec![("kind".into(), text("device"))]);
        let copy =
            record("cuMemcpyHtoD_v2", call(2, 0, Status::Ok), vec![("direction".into(), text("HtoD"))]);
        let (json, _) = requests(None, &[alloc, copy]);
        let attributes = |at: usize| attributes_of(&json["resourceSpans"][0]["scopeSpans"][0]["spans"][at]);
        assert_eq!(attributes(0)["cuda.memory.kind"]["stringValue"], "device");
        assert_eq!(attributes(1)["cuda.memcpy.kind"]["stringValue"], "HtoD");
        assert!(!attributes(0).contains_key("cuda.memcpy.kind"));
    }

    #[test]
    fn calls_are_below_the_span_of_a_program_in_a_trace() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let records = [
            record("inner", call(2, 1, Status::Ok), vec![]),
            record("outer", call(1, 0, Status::Ok), vec![]),
            record("moment", Kind::Instant { parent_id: 1 }, vec![]),
            record("text", Kind::Counter { value: Data::Uint(1) }, vec![]),
        ];
        let (json, _) = requests(Some(parent), &records);
        let spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("a list");
        let parents: Vec<_> =
            spans.iter().map(|span| span["parentSpanId"].as_str().expect("an id")).collect();
        let root = spans[3]["spanId"].as_str().expect("an id");
        assert_eq!(parents, ["0000000000000001", root, "0000000000000001", "b7ad6b7169203331"]);
        assert_eq!(
            (&spans[3]["name"], attributes_of(&spans[3])["cudatrace.spans"].clone()),
            (&json!("python3"), json!({"intValue": "3"}))
        );
        assert!(spans.iter().all(|span| span["traceId"] == "0af7651916cd43dd8448eb211c80319c"));
        assert_eq!(spans[2]["startTimeUnixNano"], spans[2]["endTimeUnixNano"]);
        assert!(spans[0].get("status").is_none(), "whether a call was fine is for the program to say");
    }
}
