//! A file that counts what is written to it, for the size of exports and their rotation.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// File that counts written bytes.
pub(super) struct CountedFile {
    pub(super) file: File,
    pub(super) size: Arc<AtomicU64>,
    pub(super) total: Arc<AtomicU64>,
    /// Counter of arrived bytes, if there is no compression in between.
    pub(super) arrived: Option<Arc<AtomicU64>>,
}

impl CountedFile {
    /// Counts written bytes.
    pub(super) fn count(&self, written: usize) {
        let counts = [&self.size, &self.total].into_iter().chain(&self.arrived);
        counts.for_each(|count| _ = count.fetch_add(written as u64, Ordering::Relaxed));
    }
}

impl Write for CountedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.count(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
