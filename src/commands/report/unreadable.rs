//! Why a file cannot be read as a recording, and what to do.

use anyhow::{Result, anyhow, bail};
use std::fs::File;
use std::io::{BufRead, Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Advice where there is no recording to name.
const RECORD: &str = "`cudatrace record -- PROGRAM` makes one";

/// Endings of recordings of Nsight Systems.
const OF_NSIGHT: [&str; 3] = ["nsys-rep", "qdrep", "qdstrm"];

/// Files that are mistaken for recordings: how they begin, and their name.
const OTHERS: [(&[u8], &str); 4] = [
    (b"SQLite format 3", "a database, as Nsight Systems exports one"),
    (b"{\"schemaVersion\"", "a Chrome trace, for https://ui.perfetto.dev"),
    (b"{\"resourceSpans\"", "a file for OpenTelemetry"),
    (b"{\"resourceMetrics\"", "a file for OpenTelemetry"),
];
/// The begin of the second field of a trace of Perfetto, after a field with the length of its first packet.
const CLOCK_SNAPSHOT: u8 = 6 << 3 | 2;

/// The error for a file that cannot be opened. `there` names recordings nearby, or is empty.
pub(super) fn unopened(file: &Path, error: &Error, there: &str) -> anyhow::Error {
    let path = file.display();
    match (error.kind(), there) {
        (ErrorKind::PermissionDenied, _) => {
            let owner = std::fs::metadata(file).map(|about| about.uid());
            let owner = owner.map_or(String::new(), |uid| format!(": the file belongs to user {uid}"));
            anyhow!("{path}: {error}{owner}; read it with `sudo cudatrace report {path}`, or `sudo chown` it")
        }
        (ErrorKind::NotFound, "") => anyhow!("{path}: {error}; {RECORD}"),
        (_, "") => anyhow!("{path}: {error}"),
        _ => anyhow!("{path}: {error}; there are {there}"),
    }
}

/// Refuses a folder. `there` names the recordings in it, or is empty.
pub(super) fn check(path: &Path, file: &File, there: impl Fn() -> String) -> Result<()> {
    if !file.metadata().is_ok_and(|about| about.is_dir()) {
        return Ok(());
    }
    let path = path.display();
    match &*there() {
        "" => bail!("{path} is a folder without recordings: name a file; {RECORD}"),
        there => bail!("{path} is a folder: name a file in it; there are {there}"),
    }
}

/// Refuses an empty file, and one that was exported in a format which cannot be read again.
pub(super) fn check_begin(path: &Path, lines: &mut dyn BufRead) -> Result<()> {
    // A failure to read is reported by the reader.
    let Ok(begin) = lines.fill_buf() else { return Ok(()) };
    let is_of_nsight = OF_NSIGHT.iter().any(|ending| path.extension().is_some_and(|found| found == *ending));
    let path = match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    };
    if begin.is_empty() {
        bail!("{path} is empty: its run ended before anything was recorded; {RECORD}");
    }
    let is_perfetto = matches!(begin, [0x0a, _, CLOCK_SNAPSHOT, ..]);
    let other = OTHERS.iter().find(|(start, _)| begin.starts_with(start)).map(|(_, name)| *name);
    let other = other.or(is_perfetto.then_some("a trace of Perfetto"));
    match other.or(is_of_nsight.then_some("a recording of Nsight Systems")) {
        Some(other) => bail!(
            "{path} is {other}: a report needs a recording, by `cudatrace record`, `--export arrow=FILE` or `jsonl=FILE`"
        ),
        None => Ok(()),
    }
}
