//! A format of files, as a row of the table.

use std::io::{self, Write};
use std::sync::Arc;

use super::exporter::Exporter;
use super::run::Run;

/// How to view a file that Perfetto reads.
pub(super) const IN_PERFETTO: Option<&str> = Some("open it at https://ui.perfetto.dev");

/// Output of an exporter.
pub type Out = Box<dyn Write + Send>;

/// Makes an exporter that writes to a file.
pub(super) type Create = fn(Out, &Arc<Run>) -> io::Result<Box<dyn Exporter>>;

/// A format of files: `--export NAME=FILE`.
#[derive(Debug)]
pub struct Format {
    /// Name on the command line.
    pub name: &'static str,
    /// Notation of the file: `FILE.json[.gz]`.
    pub file: &'static str,
    /// One line of help.
    pub doc: &'static str,
    /// How to view its file `FILE`.
    pub look: Option<&'static str>,
    /// Text after the last record, which is kept at the end of an unfinished file. Empty if a truncated file is valid.
    pub end: &'static [u8],
    /// Creates an exporter for a file. It is called again for the next file when one has reached its limit.
    pub create: Create,
}
