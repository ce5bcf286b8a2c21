//! Export to files: numbered when they rotate, compressed if the name ends in `.gz`. `-` is standard output.

use super::at;
use anyhow::Result;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use report::export::otlp::traces::Per;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

const BUFFER: usize = 256 << 10;
/// Different remarks of a receiver that are kept.
const REMARKS: usize = 8;
/// Standard output as a destination.
const STDOUT: &str = "-";

/// Where an export goes.
#[derive(Clone, Debug)]
pub struct Destination {
    /// As it was given; for what is no file, its address.
    text: String,
    /// Its name ends in `.gz`.
    compressed: bool,
    /// Bytes of a file after which the next one begins.
    limit: Option<u64>,
    /// Number of the file, from 0.
    number: Arc<AtomicU32>,
    /// Bytes in the file in hand.
    size: Arc<AtomicU64>,
    /// Bytes in all files.
    total: Arc<AtomicU64>,
    /// Bytes that were to be written to the file in hand, before they are buffered and compressed.
    offered: Arc<AtomicU64>,
    /// Bytes of them that are in the file.
    arrived: Arc<AtomicU64>,
    /// Only files that are not there yet are written to.
    only_new: bool,
    /// When another trace begins, where the format has traces.
    trace_per: Per,
    /// What is sent is read from a recording: it is still there if it does not arrive.
    recorded: bool,
    /// How far what is sent gets.
    delivery: Arc<Delivery>,
}

/// What a server makes of what is sent to it.
#[derive(Debug, Default)]
struct Delivery {
    lost: Mutex<Undelivered>,
    /// Spans and series that were taken; none if nothing is sent.
    delivered: Mutex<Option<u64>>,
    /// Why what waits has not been taken yet.
    obstacle: Mutex<Option<String>>,
    /// What the server says though it takes all.
    remarks: Mutex<BTreeSet<String>>,
    /// When the run ended.
    closing: OnceLock<Instant>,
    /// Nobody waits for the end any more.
    abandoned: AtomicBool,
}

/// What could not be delivered, and why the last of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Records, or series of a metric.
    pub count: u64,
    /// In words.
    pub reason: String,
}

impl Undelivered {
    /// What it says.
    pub fn words(&self) -> String {
        format!("{} spans or series were not delivered: {}", self.count, self.reason)
    }
}

impl Destination {
    /// A destination as it was given. Files rotate after `limit` bytes.
    pub fn new(text: &str, limit: Option<u64>) -> Destination {
        Destination {
            text: text.into(),
            compressed: Path::new(text).extension().is_some_and(|extension| extension == "gz"),
            limit,
            number: Arc::default(),
            size: Arc::default(),
            total: Arc::default(),
            offered: Arc::default(),
            arrived: Arc::default(),
            only_new: false,
            trace_per: Per::default(),
            recorded: false,
            delivery: Arc::default(),
        }
    }

    /// The same, which writes to no file that is there already, and follows no link: for names that the user did not choose.
    pub fn only_new(self) -> Destination {
        Destination { only_new: true, ..self }
    }

    /// For what is read from a recording.
    pub fn of_a_recording(self) -> Destination {
        Destination { recorded: true, ..self }
    }

    /// With another rule for when a trace begins.
    pub fn with_traces(self, per: Option<Per>) -> Destination {
        Destination { trace_per: per.unwrap_or_default(), ..self }
    }

    /// When another trace begins.
    pub fn trace_per(&self) -> &Per {
        &self.trace_per
    }

    /// Whether what is sent is read from a recording.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Counts spans or series that a receiver took. What has a receiver says so before: 0.
    pub fn deliver(&self, count: u64) {
        if let Ok(mut delivered) = self.delivery.delivered.lock() {
            *delivered.get_or_insert_default() += count;
        }
    }

    /// Spans and series that a receiver took; none if it has no receiver.
    pub fn delivered(&self) -> Option<u64> {
        *self.delivery.delivered.lock().ok()?
    }

    /// Counts what could not be delivered.
    pub fn lose(&self, count: u64, reason: String) {
        if let Ok(mut lost) = self.delivery.lost.lock() {
            *lost = Undelivered { count: lost.count + count, reason };
        }
    }

    /// Whether anything could not be delivered so far.
    pub fn has_lost(&self) -> bool {
        self.lost().count > 0
    }

    /// What could not be delivered so far.
    pub fn lost(&self) -> Undelivered {
        self.delivery.lost.lock().map(|lost| lost.clone()).unwrap_or_default()
    }

    /// Why what waits has not been taken yet; nothing once the receiver takes something.
    pub fn set_obstacle(&self, reason: Option<String>) {
        if let Ok(mut obstacle) = self.delivery.obstacle.lock() {
            *obstacle = reason;
        }
    }

    /// Why what waits has not been taken yet.
    pub fn obstacle(&self) -> Option<String> {
        self.delivery.obstacle.lock().ok()?.clone()
    }

    /// The receiver took all, and says something about it.
    pub fn remark(&self, text: String) {
        if let Ok(mut remarks) = self.delivery.remarks.lock()
            && remarks.len() < REMARKS
        {
            remarks.insert(text);
        }
    }

    /// What the receiver said.
    pub fn remarks(&self) -> Vec<String> {
        self.delivery.remarks.lock().map(|remarks| remarks.iter().cloned().collect()).unwrap_or_default()
    }

    /// The run has ended: from now on there is one deadline for all that waits.
    pub fn close(&self) {
        self.delivery.closing.get_or_init(Instant::now);
    }

    /// When the run ended.
    pub fn closed_at(&self) -> Option<Instant> {
        self.delivery.closing.get().copied()
    }

    /// What waits is given up at once.
    pub fn abandon(&self) {
        self.delivery.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        self.delivery.abandoned.load(Ordering::Relaxed)
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file in hand: `trace.jsonl`, then `trace.1.jsonl`, `trace.2.jsonl`.
    pub fn path(&self) -> PathBuf {
        let number = self.number.load(Ordering::Relaxed);
        let path = Path::new(self.text.strip_prefix("file:").unwrap_or(&self.text));
        if number == 0 {
            return path.into();
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (stem, extensions) = match name.char_indices().skip(1).find(|(_, c)| *c == '.') {
            Some((dot, _)) => name.split_at(dot),
            None => (name.as_str(), ""),
        };
        path.with_file_name(format!("{stem}.{number}{extensions}"))
    }

    /// Creates the file in hand. The first one is named by the user, and may be a link; the names of later ones are ours.
    pub fn create(&self) -> Result<Box<dyn Write + Send>> {
        self.create_with_end(b"")
    }

    /// The same for a format that has something behind its last row, which stands there at any time where that can be: a
    /// compressed file is never rewritten, and a pipe cannot be.
    pub fn create_with_end(&self, end: &'static [u8]) -> Result<Box<dyn Write + Send>> {
        let path = self.path();
        let is_named_by_user = self.number.load(Ordering::Relaxed) == 0;
        let file = match (self.is_stdout(), self.only_new) {
            (true, _) => stdout(),
            (false, true) => File::create_new(&path),
            (false, false) if is_named_by_user => File::create(&path),
            (false, false) => create_unlinked(&path),
        };
        let file = file.map_err(at(&path))?;
        for count in [&self.size, &self.offered, &self.arrived] {
            count.store(0, Ordering::Relaxed);
        }
        let arrived = (!self.is_compressed()).then(|| self.arrived.clone());
        let can_be_whole = !end.is_empty() && file.metadata().is_ok_and(|file| file.is_file());
        let file = Counted { file, size: self.size.clone(), total: self.total.clone(), arrived };
        let capacity = self.buffer();
        let buffered = |file| BufWriter::with_capacity(capacity, file);
        let out: Box<dyn Write + Send> = match self.is_compressed() {
            true => Box::new(GzEncoder::new(buffered(file), Compression::fast())),
            false if can_be_whole && !self.is_stdout() => {
                Box::new(Whole { file, buffer: Vec::new(), capacity, at: 0, end, is_closed: false })
            }
            false => Box::new(buffered(file)),
        };
        Ok(Box::new(Offered { out, offered: self.offered.clone(), arrived: self.arrived.clone() }))
    }

    /// It is what others of this process write to, too.
    pub fn is_stdout(&self) -> bool {
        self.path() == Path::new(STDOUT)
    }

    /// Its name ends in `.gz`. What is in such a file is known when it is flushed.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Bytes that were to be written to the file in hand, and how many of them are in it.
    pub fn progress(&self) -> (u64, u64) {
        (self.offered.load(Ordering::Relaxed), self.arrived.load(Ordering::Relaxed))
    }

    /// Looks how much of a compressed file that could not be written further can be read.
    pub fn settle_compressed(&self) {
        let path = self.path();
        if !self.is_compressed() || !path.is_file() {
            return;
        }
        let Ok(file) = File::open(path) else { return };
        let (mut decoder, mut part, mut readable) =
            (MultiGzDecoder::new(BufReader::new(file)), [0; 1 << 16], 0);
        while let Ok(read @ 1..) = decoder.read(&mut part) {
            readable += read as u64;
        }
        self.arrived.store(readable, Ordering::Relaxed);
    }

    /// Small beside the size at which files rotate: that is looked at in the file.
    fn buffer(&self) -> usize {
        self.limit.map_or(BUFFER, |limit| (limit / 8).clamp(4096, BUFFER as u64) as usize)
    }

    /// The file in hand has its size: another is to be opened.
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.size.load(Ordering::Relaxed) >= limit && !self.is_stdout())
    }

    /// Goes on to the next file.
    pub fn next(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
        self.size.store(0, Ordering::Relaxed);
    }

    /// Bytes written so far, of all files.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// A file that can be read at any time: behind what is in it stands the end of its format, which what comes next overwrites.
struct Whole {
    file: Counted,
    buffer: Vec<u8>,
    capacity: usize,
    /// Where the next part goes.
    at: u64,
    end: &'static [u8],
    /// The end itself has been written.
    is_closed: bool,
}

impl Whole {
    fn write_out(&mut self) -> io::Result<()> {
        let parts = self.buffer.len();
        if !self.is_closed {
            self.buffer.extend_from_slice(self.end);
        }
        let mut written = 0;
        while written < self.buffer.len() {
            let more = match self.file.file.write_at(&self.buffer[written..], self.at + written as u64) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                more => more,
            }?;
            self.file.count(more.min(parts.saturating_sub(written)));
            written += more;
        }
        self.at += parts as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Write for Whole {
    /// Takes all: what the format writes at once is never in the file in part.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_closed |= bytes == self.end;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= self.capacity {
            self.write_out()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()
    }
}

/// Creates a file, or empties one that is there, and follows no link.
fn create_unlinked(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let made = File::options().write(true).create(true).truncate(true).custom_flags(flags).open(path);
    made.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("a link of this name is there, and it is not followed"),
        _ => error,
    })
}

/// Standard output without a buffer of others.
fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// What stands before the buffer.
struct Offered {
    out: Box<dyn Write + Send>,
    offered: Arc<AtomicU64>,
    arrived: Arc<AtomicU64>,
}

impl Write for Offered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.out.write(bytes)?;
        self.offered.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.arrived.store(self.offered.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }
}

/// A file that knows its size.
struct Counted {
    file: File,
    size: Arc<AtomicU64>,
    total: Arc<AtomicU64>,
    /// What it gets is what was to be written.
    arrived: Option<Arc<AtomicU64>>,
}

impl Counted {
    fn count(&self, written: usize) {
        let counts = [&self.size, &self.total].into_iter().chain(&self.arrived);
        counts.for_each(|count| _ = count.fetch_add(written as u64, Ordering::Relaxed));
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.count(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// `1GiB`, `512M`, `65536`; units are powers of 1024, with or without `iB` or `B`.
pub fn size_in_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit) {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_files_have_a_number_before_the_extensions() {
        let dest = Destination::new("/tmp/trace.json.gz", None);
        assert!(dest.is_compressed() && !Destination::new("file:/tmp/gz", None).is_compressed());
        assert_eq!(dest.path(), Path::new("/tmp/trace.json.gz"));
        dest.next();
        assert_eq!(dest.path(), Path::new("/tmp/trace.1.json.gz"));
        assert!(Destination::new("file:-", None).is_stdout() && !Destination::new("./-", None).is_stdout());
        let plain = Destination::new("trace", None);
        plain.next();
        assert_eq!(plain.path(), Path::new("trace.1"));
    }

    #[test]
    fn sizes() {
        assert_eq!(size_in_bytes("1GiB"), Some(1 << 30));
        assert_eq!(size_in_bytes("2mb"), Some(2 << 20));
        assert_eq!(size_in_bytes("77"), Some(77));
        assert_eq!(size_in_bytes("1.5G"), None);
        assert_eq!(size_in_bytes(""), None);
    }

    #[test]
    fn a_file_with_an_end_is_whole_whenever_it_is_written_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("rows.json");
        let dest = Destination::new(path.to_str().expect("UTF-8"), None);
        let mut out = dest.create_with_end(b"]").expect("a file");
        let written = || std::fs::read_to_string(&path).expect("there");
        out.write_all(b"[1").expect("written");
        assert_eq!(written(), "");
        out.flush().expect("written");
        assert_eq!(written(), "[1]");
        out.write_all(b",2").expect("written");
        out.flush().expect("written");
        assert_eq!((written().as_str(), dest.bytes(), dest.progress()), ("[1,2]", 4, (4, 4)));
        out.write_all(b"]").expect("written");
        out.flush().expect("written");
        assert_eq!((written().as_str(), dest.bytes(), dest.progress()), ("[1,2]", 5, (5, 5)));
    }

    #[test]
    fn a_name_that_the_user_did_not_choose_is_no_way_to_another_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let (link, aim) = (dir.path().join("trace.jsonl"), dir.path().join("aim"));
        std::os::unix::fs::symlink(&aim, &link).expect("linked");
        let dest = Destination::new(link.to_str().expect("UTF-8"), None).only_new();
        assert!(dest.create().is_err() && !aim.exists());
    }

    #[test]
    fn only_the_first_file_may_be_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink(path("first"), path("t.jsonl")).expect("linked");
        std::os::unix::fs::symlink(path("second"), path("t.1.jsonl")).expect("linked");
        std::fs::write(path("t.2.jsonl"), "of an earlier run").expect("written");
        let dest = Destination::new(path("t.jsonl").to_str().expect("UTF-8"), Some(1));
        assert!(dest.create().is_ok() && path("first").exists());
        dest.next();
        let error = dest.create().err().expect("a link");
        assert!(!path("second").exists() && format!("{error:#}").contains("not followed"), "{error:#}");
        dest.next();
        assert!(dest.create().is_ok());
        assert_eq!(std::fs::read(path("t.2.jsonl")).expect("there"), b"");
    }
}
