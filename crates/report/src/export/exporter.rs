//! The interface of an export format.

use std::io;

use super::record::Record;
use crate::metrics::Family;

/// An export format. A write error ends only this exporter.
pub trait Exporter: Send {
    /// Adds a record.
    fn record(&mut self, record: &Record) -> io::Result<()>;
    /// Adds the metrics at a time of the boot clock, if the format supports metrics.
    fn metrics(&mut self, families: &[Family], boot_ns: u64) -> io::Result<()> {
        let _ = (families, boot_ns);
        Ok(())
    }
    /// Number of records that were added but are not written yet, because the format batches them.
    fn pending(&self) -> u64 {
        0
    }
    /// Called when no record has arrived for a moment.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Makes what was added so far readable, if that takes little room; returns whether it did. Called when no record has arrived for a
    /// moment, and once a second.
    fn catch_up(&mut self) -> io::Result<bool> {
        self.flush()?;
        Ok(true)
    }
    /// Writes buffered data.
    fn flush(&mut self) -> io::Result<()>;
    /// Writes the end of the format. Called once, as the last call.
    fn finish(&mut self, end: &End) -> io::Result<()>;
}

/// State at the end of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Number of records that were dropped because this exporter was too slow.
    pub dropped: u64,
    /// True if another file of the same run follows (rotation).
    pub goes_on: bool,
    /// True if the recording that is converted was cut off: its end is not known.
    pub is_cut: bool,
}
