//! Records as OTLP spans: one resource per process.
//!
//! ```text
//! span(...)     a span; children name the call around them on the same thread
//! event(...)    an event of the span of the enclosing call, if that returns within a second; otherwise a span of no duration
//! ```
//!
//! Not here: the trace of a span (`traces`), its attributes (`one_span`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan};
use prost::Message;

use super::one_span::OneSpan;
use super::traces::{Link, Parent, Per, Root, Sampler, Trace, Traces};
use super::{Attributes, Encoding, Request, SCHEMA, Signal, json, resource, scope};
use crate::export::recent::Recent;
use crate::export::{Data, Kind, Record, Run, Span};

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
    events: WaitingEvents,
    spans: u64,
    bytes: usize,
}

/// Instants whose enclosing call has not returned yet.
#[derive(Default)]
struct WaitingEvents {
    /// By the id of the call.
    by_call: HashMap<u64, Vec<(Trace, Record)>>,
    /// The calls in the order of the instants, with the boot-clock times of those.
    order: VecDeque<(u64, u64)>,
    count: usize,
}

impl WaitingEvents {
    fn add(&mut self, call: u64, trace: Trace, record: &Record) {
        self.count += 1;
        self.order.push_back((record.time_ns, call));
        self.by_call.entry(call).or_default().push((trace, record.clone()));
    }

    /// Whether there is room for another instant of a call.
    fn has_room(&self, call: u64) -> bool {
        self.count < WAITING && self.by_call.get(&call).is_none_or(|events| events.len() < EVENTS)
    }

    /// The instants of a call that has returned.
    fn of(&mut self, call: u64) -> Vec<(Trace, Record)> {
        if self.count == 0 {
            return Vec::new();
        }
        let events = self.by_call.remove(&call).unwrap_or_default();
        self.count -= events.len();
        if self.count == 0 {
            self.order.clear();
        }
        events
    }

    /// The instants of one call whose first was before a time.
    fn overdue(&mut self, before_ns: u64) -> Option<(u64, Vec<(Trace, Record)>)> {
        while let Some((_, call)) = self.order.pop_front_if(|(time_ns, _)| *time_ns <= before_ns) {
            let events = self.of(call);
            if !events.is_empty() {
                return Some((call, events));
            }
        }
        None
    }
}

/// Longest time in ns that an instant waits for the end of its call.
const EVENT_WAIT_NS: u64 = 1_000_000_000;
/// Largest number of events of a span, as in OpenTelemetry's SDKs.
const EVENTS: usize = 128;
/// Largest number of instants that wait.
const WAITING: usize = 16_384;

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
        let (by_process, known, texts, launches, events, spans, bytes) = Default::default();
        Batch { run, settings, traces, by_process, known, texts, launches, events, spans, bytes }
    }

    /// Sets the wall-clock time of the boot, in ns since 1970, after a step of the wall clock: later spans are in new traces with it.
    pub fn set_boot_at_wall(&mut self, boot_at_wall_ns: i128) {
        self.traces.set_boot_at_wall(boot_at_wall_ns).iter().for_each(|root| self.add_root(root));
    }

    /// Number of instants that wait for the end of their call.
    pub fn waiting(&self) -> u64 {
        self.events.count as u64
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
        let (Kind::Span(Span { parent_id, .. }) | Kind::Instant { parent_id }) = &record.kind else { return };
        let (trace, ended) = self.traces.assign(record, *parent_id);
        if let Some(root) = ended {
            self.add_root(&root);
        }
        let waits = record.span().is_none() && *parent_id != 0 && self.events.has_room(*parent_id);
        match (trace.sampled, waits) {
            (false, _) => {}
            (true, true) => self.events.add(*parent_id, trace, record),
            (true, false) => self.add_span(trace, record, *parent_id),
        }
        self.end_waits(record.time_ns.saturating_sub(EVENT_WAIT_NS));
    }

    /// Adds a span for a call, or for an instant that is no event of a span.
    fn add_span(&mut self, trace: Trace, record: &Record, parent_id: u64) {
        let call = record.span();
        let span_id = call.map_or_else(|| self.instant_id(record), |call| call.span_id);
        let event = |(_, event): (Trace, Record)| (trace.wall_ns(event.time_ns), event);
        let events: Vec<_> = self.events.of(span_id).into_iter().map(event).collect();
        let (pid, program) = match &record.thread {
            Some(thread) => (thread.pid, thread.program.clone()),
            None => (0, "".into()),
        };
        let launch = self.launch(record, trace.id);
        let start_ns = trace.wall_ns(record.time_ns);
        let span = OneSpan {
            record,
            call,
            trace_id: trace.id,
            span_id,
            parent_id: if parent_id == 0 { trace.root } else { parent_id },
            start_ns,
            end_ns: start_ns.saturating_add(record.duration_ns()),
            links: launch.as_slice(),
            events: &events,
        };
        self.put(pid, program, &span);
    }

    /// Adds spans for the instants before a boot-clock time whose call has not returned, or has no span.
    fn end_waits(&mut self, before_ns: u64) {
        while let Some((call, events)) = self.events.overdue(before_ns) {
            events.iter().for_each(|(trace, record)| self.add_span(*trace, record, call));
        }
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
        self.end_waits(if now_ns == u64::MAX { now_ns } else { now_ns.saturating_sub(EVENT_WAIT_NS) });
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
        let span = OneSpan {
            record: &record,
            call: None,
            trace_id: root.trace.id,
            span_id: root.trace.root,
            parent_id: root.parent_id,
            start_ns: root.trace.wall_ns(root.start_ns),
            end_ns: root.trace.wall_ns(root.end_ns),
            links: &root.links,
            events: &[],
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
        assert_eq!(attributes["cudatrace.point.x"]["intValue"], "-1", "a member is an attribute");
        assert_eq!(attributes["code.stacktrace"]["stringValue"], "f;g\nmain");
        assert_eq!(attributes[&format!("cudatrace.{hostile}")]["boolValue"], true);
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
    fn every_attribute_has_a_namespace() {
        let keys = [
            "corr",
            "graph",
            "registers",
            "weight",
            "from",
            "to",
            "gpu",
            "stream",
            "device",
            "kernel",
            "a.b",
        ];
        let fields = || keys.map(|key| (key.into(), Data::Uint(1))).to_vec();
        let mut work = record("k", call(2, 0, Status::Unset), fields());
        work.site = Site { probe: "gpu:kernel".into(), ..Site::default() }.into();
        let tid = crate::export::GpuStream { device: 0, stream: 15 }.tid();
        work.thread =
            Some(Thread { pid: 7, tid, comm: "GPU 0 stream 15".into(), program: "python3".into() }.into());
        let moment = record("moment", Kind::Instant { parent_id: 0 }, fields());
        let (json, _) = requests(None, &[record("f", call(1, 0, Status::Ok), fields()), work, moment]);
        let spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("a list");
        for span in spans {
            let attributes = attributes_of(span);
            assert!(attributes.keys().all(|key| key.contains('.')), "{attributes:?}");
            assert!(span["name"] == "python3" || attributes["cudatrace.weight"]["intValue"] == "1");
        }
        let (call, work) = (attributes_of(&spans[0]), attributes_of(&spans[1]));
        assert_eq!(
            (&call["thread.name"]["stringValue"], &call["a.b"]["intValue"]),
            (&json!("py\"th\non"), &json!("1"))
        );
        assert!(call.contains_key("cuda.stream") && call.contains_key("cuda.graph.exec"));
        assert!(
            !work.contains_key("thread.name") && !work.contains_key("thread.id"),
            "a stream is no thread"
        );
        for key in ["cuda.device.index", "cuda.stream.id", "cuda.graph.id", "cudatrace.correlation_id"] {
            assert_eq!(work[key]["intValue"], "1", "{key}");
        }
    }

    /// A span: name, start, trace, and names and times of its events.
    type SpanSummary = (String, u64, String, Vec<(String, u64)>);

    fn spans_of(json: &serde_json::Value) -> Vec<SpanSummary> {
        let ns =
            |value: &serde_json::Value| value.as_str().expect("a time").parse::<u64>().expect("a number");
        let name = |value: &serde_json::Value| value["name"].as_str().expect("a name").to_owned();
        let all = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("a list");
        let span = |span: &serde_json::Value| {
            let events = span["events"].as_array().into_iter().flatten();
            let events = events.map(|event| (name(event), ns(&event["timeUnixNano"]))).collect();
            let trace = span["traceId"].as_str().expect("an id").to_owned();
            (name(span), ns(&span["startTimeUnixNano"]), trace, events)
        };
        all.iter().map(span).collect()
    }

    #[test]
    fn an_instant_is_an_event_of_its_call_if_that_returns_soon() {
        let at = |time_ns: u64, record: Record| Record { time_ns, ..record };
        let moment = |name: &str, parent_id: u64| record(name, Kind::Instant { parent_id }, vec![]);
        let outer = |id: u64| record("call", call(id, 0, Status::Ok), vec![]);
        let records = [
            at(110, moment("first", 1)),
            at(120, moment("second", 1)),
            at(125, moment("alone", 0)),
            at(130, moment("long", 2)),
            at(100, outer(1)),
            at(2_000_000_000, outer(3)),
            at(90, outer(2)),
            at(2_000_000_100, moment("last", 4)),
        ];
        let (json, _) = requests(None, &records);
        let base = 1_700_000_000_000_000_000;
        let found = spans_of(&json);
        let found: Vec<_> =
            found.iter().map(|(name, start, _, events)| (&**name, start - base, events.len())).collect();
        let expected = [
            ("alone", 125, 0),
            ("call", 100, 2),
            ("call", 2_000_000_000, 0),
            ("long", 130, 0),
            ("call", 90, 0),
            ("last", 2_000_000_100, 0),
        ];
        assert_eq!(found[..6], expected);
        assert_eq!(
            spans_of(&json)[1].3,
            [("first".to_owned(), base + 110), ("second".to_owned(), base + 120)]
        );
    }

    #[test]
    fn after_a_step_of_the_wall_clock_a_new_trace_has_the_new_time() {
        let run = Arc::new(Run { id: 5, boot_at_wall_ns: 1_000_000, ..Run::default() });
        let settings = Settings { encoding: Encoding::Json, per: Per::Process, ..Settings::default() };
        let mut batch = Batch::new(run, settings);
        let at = |time_ns: u64, id: u64, parent_id: u64| Record {
            time_ns,
            ..record(if parent_id == 0 { "call" } else { "inner" }, call(id, parent_id, Status::Ok), vec![])
        };
        batch.add(&at(100, 1, 0));
        batch.set_boot_at_wall(1_000_000);
        batch.add(&at(210, 3, 2));
        batch.set_boot_at_wall(9_000_000);
        batch.add(&at(200, 2, 0));
        batch.add(&at(300, 4, 0));
        batch.end_traces(u64::MAX);
        let json = serde_json::from_slice(&batch.take().body).expect("JSON");
        let found = spans_of(&json);
        let times: Vec<_> = found.iter().map(|(name, start, ..)| (&**name, *start)).collect();
        let expected = [
            ("call", 1_000_100),
            ("inner", 1_000_210),
            ("python3", 1_000_100),
            // The call began before the step: its inner calls are in it.
            ("call", 1_000_200),
            ("call", 9_000_300),
            ("python3", 9_000_200),
        ];
        assert_eq!(times, expected);
        assert!(found[0].2 == found[3].2 && found[4].2 == found[5].2 && found[0].2 != found[4].2);
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
