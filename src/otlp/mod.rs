//! `--export otlp=DEST`: spans and metrics to an OpenTelemetry receiver.

mod client;
pub mod export;
mod outbox;
pub mod process;
pub mod target;
pub mod tls;
pub mod traces;
