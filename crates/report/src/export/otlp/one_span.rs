//! One OTLP span before encoding, and its attributes.
//!
//! Attributes have OpenTelemetry's names where those exist (`thread.id`, `error.type`, `code.function.name`), the names of its eBPF
//! instrumentation for facts that it reports as well (`cuda.kernel.name`, `cuda.memcpy.kind`), the prefix `cuda.` for other facts of
//! CUDA, and the prefix `cudatrace.` otherwise, also for the keys of scripts.

use opentelemetry_proto::tonic::common::v1::{KeyValue, KeyValueList, any_value::Value as AnyValue};
use opentelemetry_proto::tonic::trace::v1::{
    Span as OtlpSpan, Status as OtlpStatus, span::Event as OtlpEvent, span::Link as OtlpLink, span::SpanKind,
    status::StatusCode,
};

use super::traces::Link;
use super::{array, attribute};
use crate::Frame;
use crate::export::{Data, GpuStream, Record, Site, Span, Status, Thread, WAITED};
use crate::recording::summary::is_informative;

/// Names of keys in scripts, and the corresponding names of OpenTelemetry's conventions.
static KNOWN: &[(&str, &str)] = &[
    ("kernel", "cuda.kernel.name"),
    ("kernel_name", "cuda.kernel.name"),
    ("kind", "cuda.memory.kind"),
    ("direction", "cuda.memcpy.kind"),
    ("async", "cuda.memcpy.async"),
    ("ptr", "cuda.memory.address"),
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
    ("event", "cuda.event"),
    ("graph", "cuda.graph.exec"),
    ("registers", "cuda.registers_per_thread"),
    ("from", "cuda.memcpy.source.kind"),
    ("to", "cuda.memcpy.destination.kind"),
    ("corr", "cudatrace.correlation_id"),
    (WAITED, "cudatrace.wait_ns"),
];

/// The names for work of a GPU that differ: CUPTI's numbers, where calls have handles.
static KNOWN_OF_WORK: &[(&str, &str)] = &[
    ("stream", "cuda.stream.id"),
    ("context", "cuda.context.id"),
    ("graph", "cuda.graph.id"),
    ("event", "cuda.event.id"),
];

/// Prefix of keys without a standard name.
const OWN: &str = "cudatrace.";

/// Kind of all spans.
pub(crate) const KIND: SpanKind = SpanKind::Internal;
/// Status of a failed call. Successful spans have none: the conventions reserve `Ok` for the application.
pub(crate) const FAILED: StatusCode = StatusCode::Error;

/// A span before encoding.
pub(crate) struct OneSpan<'r> {
    pub record: &'r Record,
    /// The call; `None` for an instant.
    pub call: Option<&'r Span>,
    pub trace_id: u128,
    pub span_id: u64,
    /// Id of the parent; 0 if there is none.
    pub parent_id: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Spans of other traces that it is linked to.
    pub links: &'r [Link],
    /// Instants in it, with their times.
    pub events: &'r [(u64, Record)],
}

impl OneSpan<'_> {
    /// The result of the call, if it failed.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = self.call.filter(|call| call.status == Status::Error)?;
        Some(failed.result.as_ref().map_or(String::new(), Data::label))
    }

    pub(super) fn message(&self) -> OtlpSpan {
        let status = self.failure().map(|message| OtlpStatus { code: FAILED as i32, message });
        OtlpSpan {
            trace_id: self.trace_id.to_be_bytes().to_vec(),
            span_id: self.span_id.to_be_bytes().to_vec(),
            parent_span_id: match self.parent_id {
                0 => Vec::new(),
                parent => parent.to_be_bytes().to_vec(),
            },
            name: self.record.name.to_string(),
            kind: KIND as i32,
            start_time_unix_nano: self.start_ns,
            end_time_unix_nano: self.end_ns,
            attributes: attributes(self.record, self.call),
            status,
            links: self.links.iter().map(link).collect(),
            events: self.events.iter().map(event).collect(),
            ..OtlpSpan::default()
        }
    }
}

fn link((trace_id, span_id): &Link) -> OtlpLink {
    OtlpLink {
        trace_id: trace_id.to_be_bytes().to_vec(),
        span_id: span_id.to_be_bytes().to_vec(),
        ..OtlpLink::default()
    }
}

fn event((time_ns, record): &(u64, Record)) -> OtlpEvent {
    OtlpEvent {
        time_unix_nano: *time_ns,
        name: record.name.to_string(),
        attributes: collected(|each| of_fields(record, each)),
        ..OtlpEvent::default()
    }
}

/// Value of an attribute.
pub(crate) enum Value<'r> {
    Int(i64),
    Text(&'r str),
    Data(&'r Data),
}

/// Callback for attributes.
type Each<'e> = &'e mut dyn FnMut(&str, Value);

fn attributes(record: &Record, call: Option<&Span>) -> Vec<KeyValue> {
    collected(|each| {
        if let Some(thread) = &record.thread {
            of_thread(thread, each);
        }
        of_site(&record.site, each);
        of_call(call, each);
        of_fields(record, each);
    })
}

fn collected(of: impl FnOnce(Each)) -> Vec<KeyValue> {
    let mut all = Vec::new();
    of(&mut |key, value| {
        let value = match value {
            Value::Int(value) => Some(AnyValue::IntValue(value)),
            Value::Text(value) => Some(AnyValue::StringValue(value.to_owned())),
            Value::Data(data) => any_value(data),
        };
        all.extend(value.map(|value| attribute(key, value)));
    });
    all
}

/// Attributes of a thread. A stream of a GPU is none: its work has `cuda.device.index` and `cuda.stream.id`.
pub(crate) fn of_thread(thread: &Thread, each: Each) {
    if GpuStream::of_tid(thread.tid).is_some() {
        return;
    }
    each("thread.id", Value::Int(thread.tid.into()));
    if !thread.comm.is_empty() {
        each("thread.name", Value::Text(&thread.comm));
    }
}

pub(crate) fn of_site(site: &Site, each: Each) {
    if !site.func.is_empty() {
        each("code.function.name", Value::Text(&site.func));
    }
    if let Some(api) = api(&site.func) {
        each("cuda.api", Value::Text(api));
    }
}

pub(crate) fn of_call(call: Option<&Span>, each: Each) {
    let Some((call, result)) = call.and_then(|call| Some((call, call.result.as_ref()?))) else { return };
    if let Some(number) = result.number() {
        each("cuda.result", Value::Int(number as i64));
    }
    if call.status == Status::Error {
        each("error.type", Value::Data(result));
    }
}

/// Attributes for the fields of the script; fields without a value are omitted.
pub(crate) fn of_fields(record: &Record, each: Each) {
    for (key, data) in record.fields.iter().filter(|(key, _)| is_informative(record, key)) {
        match attribute_name(key, record.gpu_kind().is_some()) {
            Some(name) => flattened(name, data, each),
            // The first word of a name with dots is its namespace.
            None if key.contains('.') => flattened(key, data, each),
            None => flattened(&format!("{OWN}{key}"), data, each),
        }
    }
}

/// The standard name for a key of a script.
fn attribute_name(key: &str, is_work: bool) -> Option<&'static str> {
    let of_work = KNOWN_OF_WORK.iter().filter(|_| is_work);
    of_work.chain(KNOWN).find(|(known, _)| *known == key).map(|(_, name)| *name)
}

/// Attributes for the members of a record, `cuda.grid.x`: few backends can search in maps.
fn flattened(key: &str, data: &Data, each: Each) {
    match data {
        Data::None => {}
        Data::Map(members) => {
            members.iter().for_each(|(name, data)| flattened(&format!("{key}.{name}"), data, each));
        }
        data => each(key, Value::Data(data)),
    }
}

/// The API of a function.
fn api(func: &str) -> Option<&'static str> {
    let is_driver = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    match func {
        _ if func.starts_with("cuda") => Some("runtime"),
        _ if func.strip_prefix("cu").is_some_and(is_driver) => Some("driver"),
        _ => None,
    }
}

pub(crate) fn any_value(data: &Data) -> Option<AnyValue> {
    Some(match data {
        Data::None => return None,
        Data::Bool(value) => AnyValue::BoolValue(*value),
        Data::Int(value) => AnyValue::IntValue(*value),
        Data::Uint(value) => match i64::try_from(*value) {
            Ok(value) => AnyValue::IntValue(value),
            Err(_) => AnyValue::StringValue(value.to_string()),
        },
        Data::Handle(_) | Data::Enum(_) | Data::Text(_) => AnyValue::StringValue(data.label()),
        Data::Stack(frames) => AnyValue::StringValue(stack(frames)),
        Data::List(parts) => array(parts.iter().filter_map(any_value).collect()),
        Data::Map(members) => AnyValue::KvlistValue(KeyValueList {
            values: members.iter().filter_map(|(key, data)| Some(attribute(key, any_value(data)?))).collect(),
        }),
    })
}

/// One line per frame, innermost first.
pub(crate) fn stack(frames: &[Frame]) -> String {
    frames.iter().map(Frame::label).collect::<Vec<_>>().join("\n")
}
