//! Records as spans of OTLP: one resource for each process, one trace too.
//!
//! ```text
//! span(...)     a span; children name the call around them on the same thread
//! event(...)    a span of no duration, below the call in which it was said
//! ```
//!
//! Attributes have OpenTelemetry's names where it has some (`thread.id`, `error.type`, `code.function.name`), those of its eBPF
//! instrumentation for what that sees too (`cuda.kernel.name`, `cuda.memcpy.kind`), and `cuda.` before the rest of a call.
//! Whoever runs under a trace of his own (`TRACEPARENT`) finds the calls below the span that it names.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, KeyValueList, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span as OtlpSpan, Status as OtlpStatus, span::SpanKind, status::StatusCode,
};

use prost::Message;

use super::{Attributes, Encoding, Request, Signal, array, attribute, resource, scope, text};
use crate::Frame;
use crate::export::{Data, Kind, Record, Run, Span, Status};

/// Names of a script's keys, and those of OpenTelemetry's conventions for the same.
static KNOWN: &[(&str, &str)] = &[
    ("kernel", "cuda.kernel.name"),
    ("kernel_name", "cuda.kernel.name"),
    ("kind", "cuda.memcpy.kind"),
    ("bytes", "cuda.size"),
    ("size", "cuda.size"),
    ("stream", "cuda.stream"),
    ("context", "cuda.context"),
    ("grid", "cuda.grid"),
    ("block", "cuda.block"),
    ("shared", "cuda.shared_memory"),
    ("device", "cuda.device.index"),
    ("stack", "code.stacktrace"),
    ("ustack", "code.stacktrace"),
];

/// The trace in which whoever started us stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    trace_id: u128,
    span_id: u64,
}

impl Parent {
    /// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`, as W3C's Trace Context has it.
    pub fn parse(traceparent: &str) -> Option<Parent> {
        let mut parts = traceparent.trim().split('-');
        let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
        Some(Parent { trace_id, span_id })
    }
}

/// Collects spans and makes requests of them.
pub struct Batch {
    run: Arc<Run>,
    given: Attributes,
    parent: Option<Parent>,
    encoding: Encoding,
    by_process: HashMap<u32, (String, Vec<OtlpSpan>)>,
    spans: u64,
    bytes: usize,
}

impl Batch {
    /// `given` is said of all processes, and wins over what is known of each.
    pub fn new(run: Arc<Run>, given: Attributes, parent: Option<Parent>, encoding: Encoding) -> Batch {
        Batch { run, given, parent, encoding, by_process: HashMap::new(), spans: 0, bytes: 0 }
    }

    /// Spans that were taken in and are in no request yet.
    pub fn len(&self) -> u64 {
        self.spans
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans == 0
    }

    /// About the size of a request with them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a record in, if it is a span or an instant.
    pub fn add(&mut self, record: &Record) {
        let Some(span) = self.span(record) else { return };
        let (pid, program) = record.thread.as_ref().map_or((0, ""), |thread| (thread.pid, &*thread.program));
        let (_, spans) = self.by_process.entry(pid).or_insert_with(|| (program.to_owned(), Vec::new()));
        self.bytes += span.encoded_len();
        spans.push(span);
        self.spans += 1;
    }

    /// What was taken in, as a request; the batch is empty again.
    pub fn take(&mut self) -> Request {
        let items = std::mem::take(&mut self.spans);
        self.bytes = 0;
        let mut processes: Vec<_> = self.by_process.drain().collect();
        processes.sort_by_key(|(pid, _)| *pid);
        let of_process = |(pid, (program, spans)): (u32, (String, Vec<OtlpSpan>))| {
            let mut of = resource(&process(&self.run, &program, &self.given)).unwrap_or_default();
            of.attributes.push(attribute("process.pid", Value::IntValue(pid.into())));
            let scope_spans = vec![ScopeSpans { scope: scope(), spans, ..ScopeSpans::default() }];
            ResourceSpans { resource: Some(of), scope_spans, ..ResourceSpans::default() }
        };
        let resource_spans = processes.into_iter().map(of_process).collect();
        let message = ExportTraceServiceRequest { resource_spans };
        Request { signal: Signal::Traces, body: self.encoding.encode(&message), items }
    }

    fn span(&self, record: &Record) -> Option<OtlpSpan> {
        let (span_id, parent_id, duration_ns, call) = match &record.kind {
            Kind::Span(span) => (span.span_id, span.parent_id, span.duration_ns, Some(span)),
            Kind::Instant { parent_id } => (self.instant_id(record), *parent_id, 0, None),
            _ => return None,
        };
        let pid = record.thread.as_ref().map_or(0, |thread| thread.pid);
        let parent = match (parent_id, self.parent) {
            (0, Some(parent)) => parent.span_id,
            (parent, _) => parent,
        };
        let start = self.run.wall_ns(record.time_ns).max(0) as u64;
        Some(OtlpSpan {
            trace_id: self.trace_id(pid).to_be_bytes().to_vec(),
            span_id: span_id.to_be_bytes().to_vec(),
            parent_span_id: if parent == 0 { Vec::new() } else { parent.to_be_bytes().to_vec() },
            name: record.name.to_string(),
            kind: SpanKind::Internal as i32,
            start_time_unix_nano: start,
            end_time_unix_nano: start + duration_ns,
            attributes: attributes(record, call),
            status: call.map(status),
            ..OtlpSpan::default()
        })
    }

    /// That of a process; never 0.
    fn trace_id(&self, pid: u32) -> u128 {
        match self.parent {
            Some(parent) => parent.trace_id,
            None => u128::from(self.run.span_id(pid, 0, 0)) << 64 | u128::from(self.run.span_id(pid, 0, 1)),
        }
    }

    fn instant_id(&self, record: &Record) -> u64 {
        let (pid, tid) = record.thread.as_ref().map_or((0, 0), |thread| (thread.pid, thread.tid));
        // No call begins in the same ns of the same thread with this number of a thread.
        self.run.span_id(tid, pid ^ u32::MAX, record.time_ns)
    }
}

/// What is known of a process.
fn process(run: &Run, program: &str, given: &Attributes) -> Attributes {
    let service = if program.is_empty() { super::SCOPE } else { program };
    let mut attributes: Attributes = vec![
        ("service.name".into(), service.into()),
        ("host.name".into(), run.host.clone()),
        ("process.executable.name".into(), program.into()),
    ];
    attributes.retain(|(key, value)| !value.is_empty() && !given.iter().any(|(known, _)| known == key));
    attributes.extend(given.iter().cloned());
    attributes
}

fn status(span: &Span) -> OtlpStatus {
    let (code, message) = match span.status {
        // "Ok" is for who runs the program to say.
        Status::Unset | Status::Ok => (StatusCode::Unset, String::new()),
        Status::Error => (StatusCode::Error, span.result.as_ref().map_or(String::new(), Data::label)),
    };
    OtlpStatus { code: code as i32, message }
}

fn attributes(record: &Record, call: Option<&Span>) -> Vec<KeyValue> {
    let mut all = Vec::new();
    if let Some(thread) = &record.thread {
        all.push(attribute("thread.id", Value::IntValue(i64::from(thread.tid))));
        if !thread.comm.is_empty() {
            all.push(text("thread.name", &thread.comm));
        }
    }
    if !record.site.func.is_empty() {
        all.push(text("code.function.name", &record.site.func));
        all.extend(api(&record.site.func).map(|api| text("cuda.api", api)));
    }
    if let Some(result) = call.and_then(|call| call.result.as_ref()) {
        all.extend(result.number().map(|number| attribute("cuda.result", Value::IntValue(number as i64))));
        if call.is_some_and(|call| call.status == Status::Error) {
            all.push(text("error.type", &result.label()));
        }
    }
    for (key, data) in &record.fields {
        let name = KNOWN.iter().find(|(known, _)| *known == &**key).map_or(&**key, |(_, name)| name);
        all.extend(value(data).map(|value| attribute(name, value)));
    }
    all
}

/// Which API a function is of.
fn api(func: &str) -> Option<&'static str> {
    let is_driver = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    match func {
        _ if func.starts_with("cuda") => Some("runtime"),
        _ if func.strip_prefix("cu").is_some_and(is_driver) => Some("driver"),
        _ => None,
    }
}

fn value(data: &Data) -> Option<Value> {
    Some(match data {
        Data::None => return None,
        Data::Bool(value) => Value::BoolValue(*value),
        Data::Int(value) => Value::IntValue(*value),
        Data::Uint(value) => match i64::try_from(*value) {
            Ok(value) => Value::IntValue(value),
            Err(_) => Value::StringValue(value.to_string()),
        },
        Data::Handle(_) | Data::Enum { .. } | Data::Text(_) => Value::StringValue(data.label()),
        Data::Stack(frames) => Value::StringValue(stack(frames)),
        Data::List(parts) => array(parts.iter().filter_map(value).collect()),
        Data::Map(members) => Value::KvlistValue(KeyValueList {
            values: members.iter().filter_map(|(key, data)| Some(attribute(key, value(data)?))).collect(),
        }),
    })
}

/// A frame a line, innermost first.
fn stack(frames: &[Frame]) -> String {
    frames.iter().map(Frame::label).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{Site, Thread};
    use serde_json::json;

    fn record(name: &str, kind: Kind, fields: Vec<(Arc<str>, Data)>) -> Record {
        let thread = Some(Thread { pid: 7, tid: 8, comm: "py\"th\non".into(), program: "python3".into() });
        let site = Site { func: "cuMemAlloc_v2".into(), ..Site::default() };
        Record { kind, time_ns: 100, thread, site, name: name.into(), fields }
    }

    fn call(span_id: u64, parent_id: u64, status: Status) -> Kind {
        let result =
            Data::Enum { ty: "CUresult".into(), name: Some("CUDA_ERROR_OUT_OF_MEMORY".into()), value: 2 };
        Kind::Span(Span { duration_ns: 50, span_id, parent_id, status, result: Some(result) })
    }

    fn requests(parent: Option<&str>, records: &[Record]) -> (serde_json::Value, ExportTraceServiceRequest) {
        let run = Arc::new(Run { id: 5, boot_at_wall_ns: 1_700_000_000_000_000_000, ..Run::default() });
        let parent = parent.map(|parent| Parent::parse(parent).expect("well formed"));
        let one = |encoding| {
            let mut batch =
                Batch::new(run.clone(), vec![("service.name".into(), "train".into())], parent, encoding);
            records.iter().for_each(|record| batch.add(record));
            let request = batch.take();
            assert!(batch.is_empty() && batch.bytes() == 0);
            request.body
        };
        let json = serde_json::from_slice(&one(Encoding::Json)).expect("JSON");
        let protobuf = one(Encoding::Protobuf);
        (json, ExportTraceServiceRequest::decode(protobuf.as_slice()).expect("protobuf"))
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
            ("grid".into(), Data::List(vec![Data::Uint(1), Data::Uint(2)])),
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
        assert_eq!(
            (&resource["service.name"]["stringValue"], &resource["process.pid"]["intValue"]),
            (&json!("train"), &json!("7"))
        );
        let same = &protobuf.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((same.name.as_str(), same.span_id.as_slice()), (hostile, &0xab_u64.to_be_bytes()[..]));
        assert_eq!(same.attributes.len(), attributes.len());
    }

    #[test]
    fn who_runs_in_a_trace_finds_the_calls_below_it() {
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
        assert_eq!(parents, ["0000000000000001", "b7ad6b7169203331", "0000000000000001"]);
        assert!(spans.iter().all(|span| span["traceId"] == "0af7651916cd43dd8448eb211c80319c"));
        assert_eq!(spans[2]["startTimeUnixNano"], spans[2]["endTimeUnixNano"]);
        assert_eq!(spans[0]["status"]["code"], 0, "whether a call was fine is for the program to say");
        for bad in [
            "",
            "00-0-1-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            &parent.replace("b7ad6b7169203331", "0000000000000000"),
        ] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
    }
}
