//! The files of a report: the named ones, or the newest recording; a rotated recording has several.

use crate::commands::record::FOLDER;
use crate::console::Messages;
use crate::export::Destination;
use anyhow::{Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use report::recording;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of standard input as a recording.
const STDIN: &str = "-";
/// Endings of the names of recordings.
pub const ENDINGS: [&str; 3] = [".arrows", ".jsonl", ".jsonl.gz"];
/// Largest number of recordings that are named in a message.
const NAMED: usize = 5;

/// The files of one recording in order. Of several recordings the newest is selected, with a note.
pub fn choose(named: &[String], messages: &Messages) -> Result<Vec<PathBuf>> {
    if let [one] = named {
        return if one == STDIN { Ok(vec![one.into()]) } else { with_later_parts(Path::new(one)) };
    }
    let files: Vec<PathBuf> = if named.is_empty() {
        recordings(Path::new(FOLDER))
    } else {
        named.iter().map(PathBuf::from).collect()
    };
    let Some(newest) = files.iter().max_by_key(|file| (modified(file), (*file).clone())) else {
        bail!("no recording in `{FOLDER}`: name one, or make one with `cudatrace record -- PROGRAM`");
    };
    let run = description(newest)?;
    let (parts, others): (Vec<PathBuf>, Vec<PathBuf>) =
        files.iter().cloned().partition(|file| description(file).is_ok_and(|other| other == run));
    if named.is_empty() || !others.is_empty() {
        let count =
            if named.is_empty() { String::new() } else { format!("{} recordings: ", others.len() + 1) };
        messages.note(&format!("{count}reading the newest, {}", newest.display()));
    }
    if named.is_empty() {
        return with_later_parts(&by_number(parts)[0]);
    }
    Ok(by_number(parts))
}

/// Title of a recording: the name of its first file.
pub fn title(parts: &[PathBuf]) -> String {
    let first = parts.first().map(PathBuf::as_path).unwrap_or(Path::new(STDIN));
    first.file_name().map_or_else(|| STDIN.into(), |name| name.to_string_lossy().into_owned())
}

/// The lines of a file, compressed or not; `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new(STDIN) {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = File::open(path).map_err(|error| not_there(path, &error))?;
    Ok(match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(file))),
        false => Box::new(BufReader::with_capacity(1 << 18, file)),
    })
}

/// The error for a file that cannot be read, with the recordings that exist.
fn not_there(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut there = recordings(folder);
    if there.is_empty() {
        there = recordings(Path::new(FOLDER));
    }
    there.reverse();
    let names: Vec<String> = there.iter().take(NAMED).map(|file| file.display().to_string()).collect();
    let hint = if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) };
    anyhow!("{}: {error}{hint}", path.display())
}

/// Recordings in a folder, by name.
fn recordings(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    // A recording is empty if its program could not be started.
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ENDINGS.iter().any(|ending| name.ends_with(ending))
            && path.metadata().is_ok_and(|about| about.len() > 0)
    };
    let mut found: Vec<PathBuf> =
        entries.filter_map(|entry| entry.ok()).map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|about| about.modified()).ok()
}

/// The description of the run, which all parts of a recording share.
fn description(path: &Path) -> Result<String> {
    recording::description(open(path)?).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// A file and the later files of its rotation.
fn with_later_parts(first: &Path) -> Result<Vec<PathBuf>> {
    let Ok(run) = description(first) else { return Ok(vec![first.to_owned()]) };
    let dest = Destination::new(&first.to_string_lossy(), None);
    let later = std::iter::repeat_with(|| {
        dest.next();
        dest.path()
    });
    let later = later.take_while(|path| path.exists() && description(path).is_ok_and(|other| other == run));
    Ok(std::iter::once(first.to_owned()).chain(later).collect())
}

/// Sorts `t.jsonl`, `t.1.jsonl`, ..., `t.10.jsonl`.
fn by_number(mut parts: Vec<PathBuf>) -> Vec<PathBuf> {
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('.').find_map(|part| part.parse::<u64>().ok()).unwrap_or(0)
    };
    parts.sort_by_key(|path| (number(path), path.clone()));
    parts.dedup();
    parts
}

/// Ignores SIGINT during its lifetime.
pub struct IgnoredInterrupts(libc::sighandler_t);

impl IgnoredInterrupts {
    /// Begins to ignore SIGINT.
    pub fn begin() -> IgnoredInterrupts {
        // SAFETY: changes a disposition; no handler is installed.
        IgnoredInterrupts(unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) })
    }
}

impl Drop for IgnoredInterrupts {
    fn drop(&mut self) {
        // SAFETY: as above; the disposition is the previous one.
        unsafe { libc::signal(libc::SIGINT, self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_the_order_in_which_they_were_written() {
        let parts = ["t.10.jsonl", "t.jsonl", "t.2.jsonl"].map(PathBuf::from).to_vec();
        assert_eq!(by_number(parts), ["t.jsonl", "t.2.jsonl", "t.10.jsonl"].map(PathBuf::from));
    }
}
