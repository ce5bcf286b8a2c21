//! `--export otlp=DEST`: spans and metrics to an OpenTelemetry receiver.

mod client;
pub mod destination;
pub mod exporter;
mod outbox;
pub mod process;
pub mod tls;
pub mod traces;
