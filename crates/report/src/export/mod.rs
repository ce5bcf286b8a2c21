//! Exporters: formats for files and servers that are written while a run continues (`--export KIND=DEST`).
//!
//! A [`Recorder`] converts each event of a run to a [`Record`]: owned, with every id resolved to text, so that it can be sent to
//! other threads. An [`Exporter`] is one format, which writes what it can represent and skips the rest. Times, durations and ids
//! are those of the record, so that they agree in all formats.
//!
//! Not here: files, sockets, threads and queues; their owner passes an `io::Write`.

pub mod arrow;
pub mod chrome;
pub(crate) mod columns;
mod exporter;
pub mod folded;
mod format;
pub mod json;
pub mod jsonl;
pub mod otlp;
mod outer_calls;
pub mod parquet;
pub mod perfetto;
pub(crate) mod recent;
mod record;
mod recorder;
mod run;
pub(crate) mod text_cache;

pub use exporter::{End, Exporter};
pub use format::{Format, Out};
pub use record::{
    Data, Enumerator, FieldNames, Fields, GpuStream, Kind, Record, Row, Site, Span, Status, Table, Text,
    Thread, WAITED,
};
pub use recorder::Recorder;
pub use run::Run;

/// The formats of files, in the order of `--export help`.
pub static FORMATS: &[Format] =
    &[arrow::FORMAT, jsonl::FORMAT, chrome::FORMAT, folded::FORMAT, perfetto::FORMAT];
