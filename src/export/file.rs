//! Export to files: numbered when they rotate, compressed if the name ends in `.gz`. `-` is standard output.

use super::complete_file::CompleteFile;
use super::counted_file::CountedFile;
use anyhow::{Result, anyhow};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use linux::mailbox::Post;
use nix::unistd::{Uid, User};
use report::export::otlp::traces::Per;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

const BUFFER: usize = 256 << 10;
/// Largest number of distinct remarks of a receiver.
const REMARKS: usize = 8;
/// Name of standard output as a destination.
const STDOUT: &str = "-";

/// Destination of an export.
#[derive(Clone, Debug)]
pub struct Destination {
    /// File name or address, as given.
    text: String,
    /// True if its name ends in `.gz`.
    compressed: bool,
    /// Size of a file in bytes after which the next one begins.
    limit: Option<u64>,
    /// Index of the file, from 0.
    number: Arc<AtomicU32>,
    /// Size of the current file in bytes.
    size: Arc<AtomicU64>,
    /// Size of all files in bytes.
    total: Arc<AtomicU64>,
    /// Number of bytes written towards the current file, before buffering and compression.
    offered: Arc<AtomicU64>,
    /// Number of them that are in the file.
    arrived: Arc<AtomicU64>,
    /// True if existing files must not be overwritten.
    only_new: bool,
    /// User to whom new files are given.
    owner: Option<FileOwner>,
    /// Condition for starting another trace, for formats with traces.
    trace_per: Per,
    /// True if the data is from a recording, so that nothing is lost if it does not arrive.
    recorded: bool,
    /// State of deliveries to a server.
    delivery: Arc<Delivery>,
    /// Where warnings during the run are printed.
    warnings: Option<Post<String>>,
}

/// The user of `--user`, whose files new ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    uid: u32,
    gid: u32,
}

impl FileOwner {
    /// The user with this name or number.
    pub fn named(name: &str) -> Option<FileOwner> {
        let by_number = || User::from_uid(Uid::from_raw(name.parse().ok()?)).ok().flatten();
        let user = User::from_name(name).ok().flatten().or_else(by_number)?;
        Some(FileOwner { uid: user.uid.as_raw(), gid: user.gid.as_raw() })
    }

    /// Gives a file that this process has made to the user. A failure leaves it as it is.
    fn take(self, file: &File) {
        let _ = fchown(file, Some(self.uid), Some(self.gid));
    }
}

/// State of deliveries to a server.
#[derive(Debug, Default)]
struct Delivery {
    lost: Mutex<DeliveryLoss>,
    /// Number of spans and series that were accepted; `None` if the destination is not a server.
    delivered: Mutex<Option<u64>>,
    /// The reason why queued data has not been accepted yet.
    obstacle: Mutex<Option<String>>,
    /// Messages of the server with accepted data.
    remarks: Mutex<BTreeSet<String>>,
    /// Time of the end of the run.
    closing: OnceLock<Instant>,
    /// True if the end does not wait any longer.
    abandoned: AtomicBool,
}

/// Number of undelivered items, and the reason for the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLoss {
    /// Number of records, or of series of metrics.
    pub count: u64,
    pub reason: String,
}

impl DeliveryLoss {
    /// Text of the report.
    pub fn words(&self) -> String {
        format!("{} spans or series were not delivered: {}", self.count, self.reason)
    }
}

impl Destination {
    /// A destination with this name. Files rotate after `limit` bytes.
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
            owner: None,
            trace_per: Per::default(),
            recorded: false,
            delivery: Arc::default(),
            warnings: None,
        }
    }

    /// The same destination, but it overwrites no existing file and follows no link: for names that the user did
    /// not choose.
    pub fn only_new(self) -> Destination {
        Destination { only_new: true, ..self }
    }

    /// The same destination, whose new files belong to this user.
    pub fn owned_by(self, owner: Option<FileOwner>) -> Destination {
        Destination { owner, ..self }
    }

    /// The same destination, for data from a recording.
    pub fn of_a_recording(self) -> Destination {
        Destination { recorded: true, ..self }
    }

    /// The same destination, with a condition for starting another trace.
    pub fn with_traces(self, per: Option<Per>) -> Destination {
        Destination { trace_per: per.unwrap_or_default(), ..self }
    }

    /// The same destination, whose warnings during the run are sent there.
    pub fn warning_to(self, warnings: Option<Post<String>>) -> Destination {
        Destination { warnings, ..self }
    }

    /// Prints a warning during the run, if there is a place for it.
    pub fn warn(&self, text: String) {
        // The run may have ended.
        self.warnings.iter().for_each(|warnings| _ = warnings.send(text.clone()));
    }

    /// Condition for starting another trace.
    pub fn trace_per(&self) -> &Per {
        &self.trace_per
    }

    /// Whether the data is from a recording.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Counts spans or series that a receiver has accepted. A call with 0 marks the destination as a receiver.
    pub fn deliver(&self, count: u64) {
        if let Ok(mut delivered) = self.delivery.delivered.lock() {
            *delivered.get_or_insert_default() += count;
        }
    }

    /// Number of spans and series that a receiver has accepted; `None` if the destination is not a receiver.
    pub fn delivered(&self) -> Option<u64> {
        *self.delivery.delivered.lock().ok()?
    }

    /// Counts undelivered items.
    pub fn lose(&self, count: u64, reason: String) {
        if let Ok(mut lost) = self.delivery.lost.lock() {
            *lost = DeliveryLoss { count: lost.count + count, reason };
        }
    }

    /// Whether anything was not delivered so far.
    pub fn has_lost(&self) -> bool {
        self.lost().count > 0
    }

    /// The undelivered items so far.
    pub fn lost(&self) -> DeliveryLoss {
        self.delivery.lost.lock().map(|lost| lost.clone()).unwrap_or_default()
    }

    /// Sets the reason why queued data has not been accepted yet; `None` after a success.
    pub fn set_obstacle(&self, reason: Option<String>) {
        if let Ok(mut obstacle) = self.delivery.obstacle.lock() {
            *obstacle = reason;
        }
    }

    /// The reason why queued data has not been accepted yet.
    pub fn obstacle(&self) -> Option<String> {
        self.delivery.obstacle.lock().ok()?.clone()
    }

    /// Records a message of the receiver about accepted data.
    pub fn remark(&self, text: String) {
        if let Ok(mut remarks) = self.delivery.remarks.lock()
            && remarks.len() < REMARKS
        {
            remarks.insert(text);
        }
    }

    /// The messages of the receiver.
    pub fn remarks(&self) -> Vec<String> {
        self.delivery.remarks.lock().map(|remarks| remarks.iter().cloned().collect()).unwrap_or_default()
    }

    /// Marks the end of the run, which starts the deadline for queued data.
    pub fn close(&self) {
        self.delivery.closing.get_or_init(Instant::now);
    }

    /// Time of the end of the run.
    pub fn closed_at(&self) -> Option<Instant> {
        self.delivery.closing.get().copied()
    }

    /// Gives up queued data immediately.
    pub fn abandon(&self) {
        self.delivery.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether queued data is given up.
    pub fn is_abandoned(&self) -> bool {
        self.delivery.abandoned.load(Ordering::Relaxed)
    }

    /// The destination as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Path of the current file: `trace.jsonl`, then `trace.1.jsonl`, `trace.2.jsonl`.
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

    /// Creates the current file. The user has named the first one, which may be a link; later names are generated.
    pub fn create(&self) -> Result<Box<dyn Write + Send>> {
        self.create_with_end(b"")
    }

    /// The same for a format with a text after its last row, which is kept at the end of the file. This is not
    /// possible for compressed files and pipes.
    pub fn create_with_end(&self, end: &'static [u8]) -> Result<Box<dyn Write + Send>> {
        let path = self.path();
        let is_named_by_user = self.number.load(Ordering::Relaxed) == 0;
        let file = match (self.is_stdout(), self.only_new) {
            (true, _) => stdout(),
            (false, true) => create_new(&path, self.owner),
            (false, false) => match new_file(&path, self.owner) {
                Err(_) if is_named_by_user => File::create(&path),
                Err(_) => create_unlinked(&path),
                made => made,
            },
        };
        let file = file.map_err(|error| {
            let hint = if self.only_new { "; `--out DIR` names another folder" } else { "" };
            anyhow!("{}: {}{hint}", path.display(), why_unwritten(&path, &error))
        })?;
        for count in [&self.size, &self.offered, &self.arrived] {
            count.store(0, Ordering::Relaxed);
        }
        let arrived = (!self.is_compressed()).then(|| self.arrived.clone());
        let can_be_whole = !end.is_empty() && file.metadata().is_ok_and(|file| file.is_file());
        let file = CountedFile { file, size: self.size.clone(), total: self.total.clone(), arrived };
        let capacity = self.buffer();
        let buffered = |file| BufWriter::with_capacity(capacity, file);
        let out: Box<dyn Write + Send> = match self.is_compressed() {
            true => Box::new(GzEncoder::new(buffered(file), Compression::fast())),
            false if can_be_whole && !self.is_stdout() => Box::new(CompleteFile::new(file, capacity, end)),
            false => Box::new(buffered(file)),
        };
        Ok(Box::new(CountingWriter { out, offered: self.offered.clone(), arrived: self.arrived.clone() }))
    }

    /// Whether it is standard output, which other parts of this process also write.
    pub fn is_stdout(&self) -> bool {
        self.path() == Path::new(STDOUT)
    }

    /// Whether its name ends in `.gz`. The size of such a file is known only after a flush.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Number of bytes written towards the current file, and number of them that are in the file.
    pub fn progress(&self) -> (u64, u64) {
        (self.offered.load(Ordering::Relaxed), self.arrived.load(Ordering::Relaxed))
    }

    /// Determines how much of a compressed file can be read after a write error.
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

    /// Size of the buffer: small compared with the size of rotation, which is compared with the file.
    fn buffer(&self) -> usize {
        self.limit.map_or(BUFFER, |limit| (limit / 8).clamp(4096, BUFFER as u64) as usize)
    }

    /// Whether the current file has reached its limit, so that the next one must be opened.
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.size.load(Ordering::Relaxed) >= limit && !self.is_stdout())
    }

    /// Proceeds to the next file.
    pub fn next(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
        self.size.store(0, Ordering::Relaxed);
    }

    /// Number of bytes written to all files so far.
    pub fn bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// The error for a file that cannot be written.
pub fn cannot_write(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("cannot write `{}`: {}", path.display(), why_unwritten(path, error))
}

/// Refuses a file in a folder that does not exist, or that is one itself.
pub fn check_folder(path: &Path) -> anyhow::Result<()> {
    match missing_folder(path) {
        Some(_) => Err(cannot_write(path, &io::ErrorKind::NotFound.into())),
        None if path.is_dir() => Err(cannot_write(path, &io::Error::from_raw_os_error(libc::EISDIR))),
        None => Ok(()),
    }
}

/// Why a file cannot be written.
fn why_unwritten(path: &Path, error: &io::Error) -> String {
    match missing_folder(path).filter(|_| error.kind() == io::ErrorKind::NotFound) {
        Some(folder) => format!("there is no folder `{}`", folder.display()),
        None => error.to_string(),
    }
}

/// The folder of a file, if it does not exist.
fn missing_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
}

/// Creates a file that must not exist, and its folder. What is new belongs to the owner.
fn create_new(path: &Path, owner: Option<FileOwner>) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && std::fs::create_dir(folder).is_ok()
        && let (Some(owner), Ok(folder)) = (owner, opened_folder(folder))
    {
        owner.take(&folder);
    }
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    new_file(path, owner)
}

/// A folder, but not the target of a link.
fn opened_folder(folder: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY).open(folder)
}

/// Creates a file that must not exist.
fn new_file(path: &Path, owner: Option<FileOwner>) -> io::Result<File> {
    let file = File::create_new(path)?;
    owner.inspect(|owner| owner.take(&file));
    Ok(file)
}

/// Creates or truncates a file without following a link.
fn create_unlinked(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let made = File::options().write(true).create(true).truncate(true).custom_flags(flags).open(path);
    made.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("a link of this name is there, and it is not followed"),
        _ => error,
    })
}

/// Standard output without the buffer of the standard library.
fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Writer that counts bytes before they are buffered.
struct CountingWriter {
    out: Box<dyn Write + Send>,
    offered: Arc<AtomicU64>,
    arrived: Arc<AtomicU64>,
}

impl Write for CountingWriter {
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
