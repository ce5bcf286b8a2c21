//! `--export otlp=DEST`: spans and metrics to an OpenTelemetry receiver.

pub mod client;
pub mod export;
pub mod target;
pub mod tls;
