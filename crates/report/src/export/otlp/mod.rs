//! Spans and metrics in OpenTelemetry's protocol, as protobuf and as JSON.
//!
//! The messages are those of the crate `opentelemetry-proto`. Its JSON has hexadecimal ids, numeric enums and 64-bit integers as
//! strings, as OTLP's specification requires, which differs from protobuf's own mapping.
//!
//! Not here: transport.

mod json;
pub mod metrics;
mod one_span;
pub mod spans;
pub mod traces;

use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::export::{Data, Run};
use prost::Message;
use serde::Serialize;

/// Name of the instrumentation scope.
pub const SCOPE: &str = "cudatrace";

/// Attributes of the sender or of a traced process: `service.name`, `host.name`, ...
pub type Attributes = Vec<(String, Data)>;

/// Schema that defines the attributes.
pub const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// A signal: the kind of telemetry in a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
}

impl Signal {
    /// The path of an HTTP endpoint, after the base.
    pub fn http_path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
        }
    }

    /// The path of the gRPC method.
    pub fn grpc_path(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }
}

/// An encoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind of telemetry.
    pub signal: Signal,
    /// Body, encoded as Protobuf or JSON.
    pub body: Vec<u8>,
    /// Number of spans or series in it.
    pub items: u64,
}

/// Encoding of a request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Protobuf.
    #[default]
    Protobuf,
    /// One line of JSON, without the newline.
    Json,
}

impl Encoding {
    fn encode(self, message: &(impl Message + Serialize)) -> Vec<u8> {
        match self {
            Encoding::Protobuf => message.encode_to_vec(),
            // JSON fails for maps whose keys are not text, which do not occur in these messages.
            Encoding::Json => serde_json::to_vec(message).unwrap_or_default(),
        }
    }
}

/// Number of items that the receiver rejected although it accepted the request, and its message. `None` if it
/// accepted all of them without a message.
pub fn refused(signal: Signal, body: &[u8], encoding: Encoding) -> Option<(u64, String)> {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
    let (count, message) = match signal {
        Signal::Traces => {
            let partial = decode::<ExportTraceServiceResponse>(body, encoding)?.partial_success?;
            (partial.rejected_spans, partial.error_message)
        }
        Signal::Metrics => {
            let partial = decode::<ExportMetricsServiceResponse>(body, encoding)?.partial_success?;
            (partial.rejected_data_points, partial.error_message)
        }
    };
    (count > 0 || !message.is_empty()).then_some((count as u64, message))
}

fn decode<M: Message + Default + serde::de::DeserializeOwned>(body: &[u8], encoding: Encoding) -> Option<M> {
    match encoding {
        Encoding::Protobuf => M::decode(body).ok(),
        Encoding::Json => serde_json::from_slice(body).ok(),
    }
}

pub(crate) fn scope() -> Option<InstrumentationScope> {
    let (name, version) = (SCOPE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Some(InstrumentationScope { name, version, ..InstrumentationScope::default() })
}

/// Attributes of a sender: the known ones and the given ones, which take precedence.
pub(crate) fn resource(
    run: &Run,
    service: &str,
    pid: u32,
    known: impl IntoIterator<Item = (String, Data)>,
    given: &Attributes,
) -> Resource {
    let text = |text: &str| Data::Text(text.into());
    let always = [
        ("service.name", text(service)),
        ("service.instance.id", text(&instance(run, pid))),
        ("host.name", text(&run.host)),
        ("telemetry.sdk.name", text(SCOPE)),
        ("telemetry.sdk.language", text("rust")),
        ("telemetry.sdk.version", text(env!("CARGO_PKG_VERSION"))),
    ];
    let always = always.map(|(key, value)| (key.to_owned(), value)).into_iter().chain(known);
    let is_free = |(key, value): &(String, Data)| {
        *value != Data::Text("".into()) && !given.iter().any(|(known, _)| known == key)
    };
    let all = always.filter(is_free).chain(given.iter().cloned());
    let attributes =
        all.filter_map(|(key, value)| Some(attribute(&key, one_span::any_value(&value)?))).collect();
    Resource { attributes, ..Resource::default() }
}

/// A UUID of a process in a run.
fn instance(run: &Run, pid: u32) -> String {
    let (high, low) = (run.span_id(pid, u32::MAX, 0), run.span_id(pid, u32::MAX, 1));
    // Version 8 (custom), variant 1.
    let (high, low) = (high & !0xf000 | 0x8000, low & !(3 << 62) | 2 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

pub(crate) fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: any(value), ..KeyValue::default() }
}

pub(crate) fn any(value: any_value::Value) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

pub(crate) fn array(values: Vec<any_value::Value>) -> any_value::Value {
    let values = values.into_iter().map(|value| AnyValue { value: Some(value) }).collect();
    any_value::Value::ArrayValue(ArrayValue { values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceResponse,
    };

    #[test]
    fn a_receiver_that_takes_all_may_say_something() {
        let answer = |rejected_spans, error_message: &str| {
            let partial = ExportTracePartialSuccess { rejected_spans, error_message: error_message.into() };
            let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
            refused(Signal::Traces, &answer.encode_to_vec(), Encoding::Protobuf)
        };
        assert_eq!(answer(0, "slow down"), Some((0, "slow down".into())));
        assert_eq!(answer(3, ""), Some((3, String::new())));
        assert_eq!(answer(0, ""), None);
    }
}
