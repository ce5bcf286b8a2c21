//! Reads recordings, up to the point of truncation if there is one: Arrow streams ([`crate::export::arrow`]) and JSON lines
//! ([`crate::export::jsonl`]), which their first bytes tell apart.

mod arrow;
mod arrow_messages;
pub mod difference;
pub mod gpu_use;
mod lines;
pub mod page;
pub mod ranks;
pub mod summary;
pub mod summary_tables;
mod text_table;
pub mod timeline;

use std::io::BufRead;

use crate::export::Run;

pub use lines::{NoRecording, Reader, Recording, RecordingEnd, UnreadableLines};

/// Passes the records of a recording to `to`.
///
/// # Errors
/// The file cannot be read at all. Later errors are part of the result.
pub fn read(mut input: impl BufRead, to: &mut dyn Reader) -> Result<Recording, NoRecording> {
    match is_arrow(&mut input).map_err(NoRecording::Io)? {
        true => arrow::read(input, to),
        false => lines::read(input, to),
    }
}

/// The text that describes the run of a recording: the parts of a rotated one have the same.
///
/// # Errors
/// The file cannot be read, or is no recording.
pub fn description(mut input: impl BufRead) -> Result<String, NoRecording> {
    match is_arrow(&mut input).map_err(NoRecording::Io)? {
        true => arrow::description(input),
        false => lines::description(input),
    }
}

/// The run that a description of [`description`] is of.
///
/// # Errors
/// It is the description of no run.
pub fn run_of(description: &str) -> Result<Run, NoRecording> {
    lines::first_line(description.as_bytes())
}

/// Whether a file begins as a recording in columns does.
pub fn is_in_columns(begin: &[u8]) -> bool {
    begin.starts_with(&arrow_messages::CONTINUATION)
}

/// Whether an input begins as an Arrow stream does. A byte of text is never 255.
fn is_arrow(input: &mut impl BufRead) -> std::io::Result<bool> {
    Ok(input.fill_buf()?.first() == Some(&0xff))
}
