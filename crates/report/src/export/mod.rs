//! Exporters: formats for files and servers that are written while a run continues (`--export KIND=DEST`).
//!
//! A [`Recorder`] converts each event of a run to a [`Record`]: owned, with every id resolved to text, so that it can be sent to
//! other threads. An [`Exporter`] is one format, which writes what it can represent and skips the rest. Times, durations and ids
//! are those of the record, so that they agree in all formats.
//!
//! Not here: files, sockets, threads and queues; their owner passes an `io::Write`.

pub mod chrome;
pub mod folded;
pub mod json;
pub mod jsonl;
pub mod otlp;
pub mod perfetto;
mod record;
mod recorder;
pub(crate) mod text_cache;

use std::io;

use crate::metrics::Family;

pub use record::{
    Data, Enumerator, FieldNames, Fields, Kind, Record, Row, Site, Span, Status, Table, Text, Thread, WAITED,
};
pub use recorder::Recorder;

/// A format. A write error ends this exporter and nothing else.
pub trait Exporter: Send {
    /// Takes one record in.
    fn record(&mut self, record: &Record) -> io::Result<()>;
    /// Takes the metrics in as they were at a time of the boot clock, if the format has any.
    fn metrics(&mut self, families: &[Family], boot_ns: u64) -> io::Result<()> {
        let _ = (families, boot_ns);
        Ok(())
    }
    /// Records that were taken in and are not written yet, as they travel together.
    fn pending(&self) -> u64 {
        0
    }
    /// Nothing came for a moment.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Brings what is buffered out.
    fn flush(&mut self) -> io::Result<()>;
    /// Writes what the format has at its end. Called once, and nothing after it.
    fn finish(&mut self, end: &End) -> io::Result<()>;
}

/// What is known when nothing more comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Records that this exporter was too slow for.
    pub dropped: u64,
    /// Another file of the same run follows (rotation).
    pub goes_on: bool,
}

/// The run that records belong to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Random.
    pub id: u128,
    /// Wall-clock ns since 1970 of the moment of boot: what turns the records' times into wall-clock times. One for the
    /// run, so that a step of the wall clock reorders nothing.
    pub boot_at_wall_ns: i128,
    /// Boot clock minus monotonic clock, ns: the time spent suspended.
    pub suspended_ns: u64,
    /// Boot-clock ns of the start of the run.
    pub start_ns: u64,
    /// `cudatrace 0.1.0`
    pub tool: String,
    /// Name of the machine.
    pub host: String,
    /// The traced command; empty if none was started.
    pub command: Vec<String>,
    /// Name of the script.
    pub script: String,
    /// The rank of what is traced in a distributed job.
    pub rank: Option<u32>,
}

impl Run {
    /// Wall-clock ns since 1970 of a record's time.
    pub fn wall_ns(&self, boot_ns: u64) -> i128 {
        self.boot_at_wall_ns + i128::from(boot_ns)
    }

    /// The id of the call that a thread began at a time of the monotonic clock. A call that knows the start of the one around
    /// it knows its id with that; nobody needs to keep calls that are under way. Never 0.
    pub fn span_id(&self, pid: u32, tid: u32, start_ns: u64) -> u64 {
        let thread = u64::from(pid) << 32 | u64::from(tid);
        let seed = self.id as u64 ^ (self.id >> 64) as u64;
        mix(mix(mix(seed) ^ thread) ^ start_ns).max(1)
    }
}

/// A bijection that spreads bits (the finaliser of splitmix64).
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_by_run_thread_and_start() {
        let run = Run { id: 7, ..Run::default() };
        let id = run.span_id(1, 2, 3);
        assert_eq!(id, run.span_id(1, 2, 3));
        let others = [
            run.span_id(1, 2, 4),
            run.span_id(1, 3, 3),
            run.span_id(2, 2, 3),
            Run { id: 8, ..Run::default() }.span_id(1, 2, 3),
        ];
        assert!(others.iter().all(|other| *other != id && *other != 0));
    }
}
