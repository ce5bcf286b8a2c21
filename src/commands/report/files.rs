//! The files of a report: the named ones, or the newest recording; a rotated recording has several.

use super::unreadable;
use crate::commands::record::FOLDER;
use crate::console::Messages;
use crate::export::Destination;
use anyhow::{Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use host::Identity;
use report::export::Run;
use report::recording;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of standard input as a recording.
const STDIN: &str = "-";
/// Endings of the names of recordings.
pub const ENDINGS: [&str; 3] = [".arrows", ".jsonl", ".jsonl.gz"];
/// Largest number of recordings that are named in a message.
const NAMED: usize = 5;

/// The recordings of a report; each has its files in order.
pub enum Recordings {
    /// One recording.
    One(Vec<PathBuf>),
    /// Two recordings that are compared.
    Two([Vec<PathBuf>; 2]),
    /// The ranks of a job.
    Ranks(Vec<Vec<PathBuf>>),
}

/// The recordings that are named; the newest of `traces` if none is. Files of one run are one recording.
pub fn choose(named: &[String], compares: bool, messages: &Messages) -> Result<Recordings> {
    if let ([one], false) = (named, compares) {
        let parts = if one == STDIN { vec![one.into()] } else { with_later_parts(Path::new(one))? };
        return Ok(Recordings::One(parts));
    }
    if named.is_empty() && !compares {
        let newest = newest(&recordings(Path::new(FOLDER)), messages)?;
        return Ok(Recordings::One(with_later_parts(&newest)?));
    }
    let mut found = by_run(named.iter().map(PathBuf::from).collect())?;
    let all_ranks = found.iter().all(|recording| recording.run.rank.is_some());
    match found.len() {
        1 if !compares => Ok(Recordings::One(found.swap_remove(0).parts)),
        _ if !compares && all_ranks => ranks(found),
        2 => Ok(Recordings::Two([0, 1].map(|at| std::mem::take(&mut found[at].parts)))),
        count if compares => bail!("--diff compares two recordings, and {count} are named"),
        count => bail!(
            "{count} recordings of different runs, which do not say a rank: name one, or two to compare them"
        ),
    }
}

/// A recording with its files.
struct FoundRecording {
    description: String,
    run: Run,
    parts: Vec<PathBuf>,
}

/// The recordings of files, in the order in which they are named.
fn by_run(files: Vec<PathBuf>) -> Result<Vec<FoundRecording>> {
    let mut found: Vec<FoundRecording> = Vec::new();
    for file in files {
        if file.is_dir() {
            bail!("`{}` is a folder: name the files in it", file.display());
        }
        if !file.is_file() && (file == Path::new(STDIN) || file.exists()) {
            bail!(
                "`{}` can be read once only, which several recordings need twice: name files",
                file.display()
            );
        }
        let description = description(&file)?;
        match found.iter_mut().find(|known| known.description == description) {
            Some(known) => known.parts.push(file),
            None => {
                let run = recording::run_of(&description)
                    .map_err(|error| anyhow!("{}: {error}", file.display()))?;
                found.push(FoundRecording { description, run, parts: vec![file] });
            }
        }
    }
    for recording in &mut found {
        recording.parts = match &recording.parts[..] {
            [one] => with_later_parts(one)?,
            _ => by_number(std::mem::take(&mut recording.parts)),
        };
        if let Some([one, other]) = recording
            .parts
            .windows(2)
            .find(|pair| number(&pair[0], &recording.parts) == number(&pair[1], &recording.parts))
            .and_then(|pair| pair.as_array::<2>())
        {
            bail!(
                "`{}` and `{}` are the same part of one run: name one of them",
                one.display(),
                other.display()
            );
        }
    }
    Ok(found)
}

/// The ranks of one job: no two have the same number.
fn ranks(mut found: Vec<FoundRecording>) -> Result<Recordings> {
    found.sort_by_key(|recording| recording.run.rank);
    if let Some([one, other]) = found
        .windows(2)
        .find(|pair| pair[0].run.rank == pair[1].run.rank)
        .and_then(|pair| pair.as_array::<2>())
    {
        bail!(
            "`{}` and `{}` are both of rank {}: name the recordings of one job, or --diff to compare these two",
            one.parts[0].display(),
            other.parts[0].display(),
            one.run.rank.unwrap_or_default()
        );
    }
    Ok(Recordings::Ranks(found.into_iter().map(|recording| recording.parts).collect()))
}

/// The first file of the newest recording, with a note.
fn newest(files: &[PathBuf], messages: &Messages) -> Result<PathBuf> {
    let Some(newest) = files.iter().max_by_key(|file| (modified(file), (*file).clone())) else {
        bail!("no recording in `{FOLDER}`: name one, or make one with `cudatrace record -- PROGRAM`");
    };
    let run = description(newest)?;
    messages.note(&format!("reading the newest, {}", newest.display()));
    let parts = files.iter().filter(|file| description(file).is_ok_and(|other| other == run));
    Ok(by_number(parts.cloned().collect()).swap_remove(0))
}

/// Title of a recording: the name of its first file.
pub fn title(parts: &[PathBuf]) -> String {
    let first = parts.first().map(PathBuf::as_path).unwrap_or(Path::new(STDIN));
    first.file_name().map_or_else(|| STDIN.into(), |name| name.to_string_lossy().into_owned())
}

/// The title without the ending of recordings.
pub fn stem(parts: &[PathBuf]) -> String {
    let title = title(parts);
    ENDINGS.iter().find_map(|ending| title.strip_suffix(ending)).unwrap_or(&title).to_owned()
}

/// The lines of a file, compressed or not; `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new(STDIN) {
        let mut lines = Box::new(BufReader::new(std::io::stdin()));
        unreadable::check_begin(path, &mut lines)?;
        return Ok(lines);
    }
    let file = File::open(path).map_err(|error| not_there(path, &error))?;
    unreadable::check(path, &file, || names(recordings(path)))?;
    let mut lines: Box<dyn BufRead> = match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(file))),
        false => Box::new(BufReader::with_capacity(1 << 18, file)),
    };
    unreadable::check_begin(path, &mut *lines)?;
    Ok(lines)
}

/// The error for a file that cannot be read, with the recordings that exist.
fn not_there(path: &Path, error: &std::io::Error) -> anyhow::Error {
    if path.as_os_str().is_empty() {
        return anyhow!(
            "the name of the recording is empty: name a file, or none for the newest in `{FOLDER}`"
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut there = recordings(folder);
    if there.is_empty() {
        there = recordings(Path::new(FOLDER));
    }
    unreadable::unopened(path, error, &names(there))
}

/// The names of the last recordings.
fn names(recordings: Vec<PathBuf>) -> String {
    let names: Vec<String> =
        recordings.iter().rev().take(NAMED).map(|file| file.display().to_string()).collect();
    names.join(", ")
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
    // A pipe, as of `report <(zcat t.jsonl.gz)`, can be read once.
    if !first.is_file() {
        return Ok(vec![first.to_owned()]);
    }
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
    let all = parts.clone();
    parts.sort_by_key(|path| (number(path, &all), path.clone()));
    parts.dedup_by(|one, other| is_same(one, other));
    parts
}

/// Whether a file begins as a recording in columns does.
pub fn is_recording(path: &Path) -> bool {
    let mut begin = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && recording::is_in_columns(&begin)
}

/// Whether two paths are of one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| Identity::of(path).ok();
    one == other || identity(one).zip(identity(other)).is_some_and(|(one, other)| one.is_same_file(&other))
}

/// The number of one of several parts in its name. That of the first may look like one, too: `llama-3.1.jsonl`, `llama-3.1.1.jsonl`.
fn number(path: &Path, all: &[PathBuf]) -> u64 {
    let is_first = all.iter().any(|other| parse_part(other).is_some_and(|(first, _)| first == *path));
    parse_part(path).filter(|_| !is_first).map_or(0, |(_, number)| number)
}

/// The first part of the recording that a later part belongs to by its name, and the number: `t.jsonl` and 2 of `t.2.jsonl`.
fn parse_part(path: &Path) -> Option<(PathBuf, u64)> {
    let name = path.file_name()?.to_str()?;
    let (stem, rest) = name.split_at(name.char_indices().skip(1).find(|(_, c)| *c == '.')?.0);
    let (number, endings) = rest[1..].split_once('.')?;
    Some((path.with_file_name(format!("{stem}.{endings}")), number.parse().ok()?))
}

/// The parts that a recording lacks, of which these were read: one in between, or later ones.
pub fn missing(parts: &[PathBuf], goes_on: bool) -> Option<String> {
    let numbers = parts.iter().map(|part| number(part, parts));
    let gap = numbers.clone().zip(numbers.skip(1)).find(|(one, next)| one + 1 < *next);
    match gap {
        Some((one, next)) => Some(format!("parts {} to {} are missing", one + 1, next - 1)),
        None => goes_on.then(|| "it goes on in a later part, which is missing or was not named".to_owned()),
    }
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
        let parts = ["3.2.1.jsonl", "3.1.1.jsonl", "3.1.jsonl"].map(PathBuf::from).to_vec();
        assert_eq!(by_number(parts), ["3.1.jsonl", "3.1.1.jsonl", "3.2.1.jsonl"].map(PathBuf::from));
    }

    #[test]
    fn parts_that_are_missing_are_told() {
        let missing = |names: &[&str], goes_on| {
            missing(&names.iter().map(PathBuf::from).collect::<Vec<_>>(), goes_on).unwrap_or_default()
        };
        assert_eq!(missing(&["t.jsonl", "t.1.jsonl", "t.2.jsonl"], false), "");
        assert_eq!(missing(&["t.jsonl", "t.3.jsonl"], false), "parts 1 to 2 are missing");
        assert!(missing(&["t.jsonl"], true).starts_with("it goes on"));
    }
}
