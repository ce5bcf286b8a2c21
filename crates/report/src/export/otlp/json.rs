//! Spans in OTLP's JSON, streamed: at half a million spans a second, building a tree of messages for each is too slow.
//!
//! Zero and empty fields are omitted. Tests parse the output with `opentelemetry-proto`.

use super::one_span::{FAILED, KIND, OneSpan, Value, of_call, of_fields, of_site, of_thread, stack};
use crate::export::json::{digits, hex_digits, list, string};
use crate::export::text_cache::TextCache;
use crate::export::{Data, Site, Thread};

/// Cached text that many spans share.
#[derive(Default)]
pub(crate) struct Texts {
    threads: TextCache<Thread>,
    sites: TextCache<Site>,
}

/// `{"traceId":...}`
pub(crate) fn span(out: &mut String, texts: &mut Texts, span: &OneSpan) {
    out.push_str("{\"traceId\":\"");
    hex_digits(out, (span.trace_id >> 64) as u64, 16);
    hex_digits(out, span.trace_id as u64, 16);
    out.push_str("\",\"spanId\":\"");
    hex_digits(out, span.span_id, 16);
    if span.parent_id != 0 {
        out.push_str("\",\"parentSpanId\":\"");
        hex_digits(out, span.parent_id, 16);
    }
    out.push_str("\",\"name\":");
    string(out, &span.record.name);
    out.push_str(",\"kind\":");
    digits(out, KIND as i32);
    for (key, ns) in [("start", span.start_ns), ("end", span.end_ns)] {
        out.push_str(",\"");
        out.push_str(key);
        out.push_str("TimeUnixNano\":\"");
        digits(out, ns);
        out.push('"');
    }
    out.push_str(",\"attributes\":[");
    attributes(out, texts, span);
    out.push(']');
    if !span.links.is_empty() {
        out.push_str(",\"links\":");
        list(out, span.links.iter(), |out, (trace_id, span_id)| {
            out.push_str("{\"traceId\":\"");
            hex_digits(out, (trace_id >> 64) as u64, 16);
            hex_digits(out, *trace_id as u64, 16);
            out.push_str("\",\"spanId\":\"");
            hex_digits(out, *span_id, 16);
            out.push_str("\"}");
        });
    }
    if !span.events.is_empty() {
        out.push_str(",\"events\":");
        list(out, span.events.iter(), |out, (time_ns, record)| {
            out.push_str("{\"timeUnixNano\":\"");
            digits(out, *time_ns);
            out.push_str("\",\"name\":");
            string(out, &record.name);
            out.push_str(",\"attributes\":[");
            let begin = out.len();
            of_fields(record, &mut |key, value| attribute(out, key, value));
            without_first_comma(out, begin);
            out.push_str("]}");
        });
    }
    if let Some(message) = span.failure() {
        out.push_str(",\"status\":{\"message\":");
        string(out, &message);
        out.push_str(",\"code\":");
        digits(out, FAILED as i32);
        out.push('}');
    }
    out.push('}');
}

fn attributes(out: &mut String, texts: &mut Texts, span: &OneSpan) {
    let begin = out.len();
    if let Some(thread) = &span.record.thread {
        out.push_str(texts.threads.of(thread, |thread| {
            let mut text = String::new();
            of_thread(thread, &mut |key, value| attribute(&mut text, key, value));
            text
        }));
    }
    out.push_str(texts.sites.of(&span.record.site, |site| {
        let mut text = String::new();
        of_site(site, &mut |key, value| attribute(&mut text, key, value));
        text
    }));
    of_call(span.call, &mut |key, value| attribute(out, key, value));
    of_fields(span.record, &mut |key, value| attribute(out, key, value));
    without_first_comma(out, begin);
}

/// Removes the comma of the first attribute: each begins with one.
fn without_first_comma(out: &mut String, begin: usize) {
    if out.len() > begin {
        out.remove(begin);
    }
}

/// `,{"key":"thread.id","value":{"intValue":"7"}}`
fn attribute(out: &mut String, key: &str, value: Value) {
    out.push(',');
    member(out, key, |out| match value {
        Value::Int(value) => integer(out, value),
        Value::Text(value) => text(out, value),
        Value::Data(value) => data(out, value),
    });
}

fn member(out: &mut String, key: &str, value: impl FnOnce(&mut String)) {
    out.push_str("{\"key\":");
    string(out, key);
    out.push_str(",\"value\":");
    value(out);
    out.push('}');
}

fn integer(out: &mut String, value: i64) {
    out.push_str("{\"intValue\":\"");
    digits(out, value);
    out.push_str("\"}");
}

fn text(out: &mut String, value: &str) {
    out.push_str("{\"stringValue\":");
    string(out, value);
    out.push('}');
}

fn data(out: &mut String, value: &Data) {
    match value {
        Data::None => out.push_str("{}"),
        Data::Bool(value) => {
            out.push_str("{\"boolValue\":");
            out.push_str(if *value { "true}" } else { "false}" });
        }
        Data::Int(value) => integer(out, *value),
        Data::Uint(value) => match i64::try_from(*value) {
            Ok(value) => integer(out, value),
            Err(_) => text(out, &value.to_string()),
        },
        Data::Text(value) => text(out, value),
        Data::Handle(_) | Data::Enum(_) => text(out, &value.label()),
        Data::Stack(frames) => text(out, &stack(frames)),
        Data::List(parts) => {
            out.push_str("{\"arrayValue\":{\"values\":");
            list(out, parts.iter().filter(|part| **part != Data::None), data);
            out.push_str("}}");
        }
        Data::Map(members) => {
            out.push_str("{\"kvlistValue\":{\"values\":");
            let members = members.iter().filter(|(_, value)| *value != Data::None);
            list(out, members, |out, (key, value)| member(out, key, |out| data(out, value)));
            out.push_str("}}");
        }
    }
}

/// A part that occurs once per request, encoded by serde. It would fail for maps whose keys are not text.
pub(crate) fn message(message: &impl serde::Serialize) -> String {
    serde_json::to_string(message).unwrap_or_default()
}
