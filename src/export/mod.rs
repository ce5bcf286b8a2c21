//! `--export KIND=DEST`: exports a run to files and servers, each on a thread of its own.
//!
//! ```text
//! ring buffer reader -> Exports (records, in batches) -> bounded queue -> thread: Exporter -> file
//!                                                     -> bounded queue -> thread: Exporter -> server
//! ```
//!
//! The reader never waits: a batch without room in a queue is dropped and counted. An error, such as a full disk, ends that
//! export with a message and has no other effect. A new kind is a row in [`KINDS`].

mod channel;
mod file;
pub(crate) mod otlp;
mod queue;
mod signals;

use crate::cli::Cli;
use crate::console::Messages;
use anyhow::{Context as _, Result, anyhow, bail};
use queue::Queue;
use report::export::otlp::traces::Per;
use report::export::{Exporter, Record, Recorder, Run};
use report::value::Context;
use report::{Cell, Names, Output, Sink};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::Manifest;

pub use file::{Destination, size_in_bytes};
pub use queue::{MetricsQueue, Summary};
pub use signals::{FlushOn, flushing};

/// Number of records per batch, to reduce wake-ups.
const BATCH: usize = 256;

/// A parsed `--export` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest {
    /// `jsonl`
    pub kind: &'static Kind,
    /// `trace.jsonl`
    pub dest: String,
    /// True if the user did not choose the name, so that the file must be new.
    pub only_new: bool,
}

/// A kind of export.
#[derive(Debug)]
pub struct Kind {
    /// Name before the `=`.
    pub name: &'static str,
    /// Notation of the destination after the `=`.
    pub dest: &'static str,
    /// One line of help.
    pub doc: &'static str,
    /// Opens the exporter; `None` if the kind does not process records.
    pub open: Option<Open>,
    /// True if it exports maps as metrics, periodically or on request.
    pub metrics: bool,
    /// True if it has a default destination.
    pub optional: bool,
    /// How to view its file `FILE`.
    pub look: Option<&'static str>,
}

/// Opens an export. It is called again for the next file when one has reached its limit.
pub type Open = fn(&Destination, &Arc<Run>) -> Result<Box<dyn Exporter>>;

impl Kind {
    /// The option: `jsonl=t.jsonl`, `otlp`.
    fn with(&self, dest: &str) -> String {
        if dest.is_empty() { self.name.into() } else { format!("{}={dest}", self.name) }
    }
}

/// How to view files for Perfetto.
const PERFETTO: Option<&str> = Some("open it at https://ui.perfetto.dev");

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

/// The kind that is scraped, and sends nothing.
pub const OPENMETRICS: &str = "openmetrics";

/// All kinds.
pub static KINDS: &[Kind] = &[
    Kind {
        name: "jsonl",
        dest: "FILE",
        doc: "a record a line, for `cudatrace report` and jq; `.gz` compresses",
        open: Some(|dest, run| Ok(Box::new(report::export::jsonl::Jsonl::new(dest.create()?, run)?))),
        metrics: false,
        optional: false,
        look: Some("cudatrace report FILE --html trace.html"),
    },
    Kind {
        name: "chrome",
        dest: "FILE.json[.gz]",
        doc: "trace events for Perfetto, chrome://tracing and readers of PyTorch's traces; no rows of the GPU",
        open: Some(|dest, run| {
            let out = dest.create_with_end(report::export::chrome::END)?;
            Ok(Box::new(report::export::chrome::Chrome::new(out, run.clone())?))
        }),
        metrics: false,
        optional: false,
        look: PERFETTO,
    },
    Kind {
        name: "folded",
        dest: "FILE",
        doc: "stacks for flame graphs, from maps by stack or from spans with stacks",
        open: Some(|dest, _| Ok(Box::new(report::export::folded::Folded::new(dest.create()?)))),
        metrics: false,
        optional: false,
        look: None,
    },
    Kind {
        name: "otlp",
        dest: "URL|file:FILE",
        doc: "spans and maps to an OpenTelemetry receiver, by gRPC or HTTP, or as JSON lines",
        open: Some(crate::export::otlp::exporter::open),
        metrics: true,
        optional: true,
        look: None,
    },
    Kind {
        name: OPENMETRICS,
        dest: "[HOST:]PORT",
        doc: "maps to Prometheus, at http://127.0.0.1:PORT/metrics",
        open: None,
        metrics: true,
        optional: true,
        look: None,
    },
    Kind {
        name: "perfetto",
        dest: "FILE",
        doc: "a native trace of Perfetto, with stacks; smaller and faster to open than chrome",
        open: Some(|dest, run| Ok(Box::new(report::export::perfetto::Perfetto::new(dest.create()?, run)?))),
        metrics: false,
        optional: false,
        look: PERFETTO,
    },
];

/// The kinds of exports, one per line.
pub fn kinds() -> String {
    let row = |kind: &Kind| format!("  {:<24} {}", format!("{}={}", kind.name, kind.dest), kind.doc);
    KINDS.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Parses `jsonl=trace.jsonl`.
pub fn parse(text: &str) -> Result<ExportRequest, String> {
    let (kind, dest) = text.split_once('=').unwrap_or((text, ""));
    let kind = KINDS
        .iter()
        .find(|known| known.name == kind)
        .ok_or_else(|| format!("no kind `{kind}`; there are\n{}", kinds()))?;
    if dest.is_empty() && !kind.optional {
        return Err(format!("expected KIND=DEST: {}={}", kind.name, kind.dest));
    }
    Ok(ExportRequest { kind, dest: dest.into(), only_new: false })
}

/// Options for all exports.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Size of a file in bytes after which the next one begins.
    pub rotate: Option<u64>,
    /// Condition for starting another trace, for formats with traces.
    pub trace_per: Option<Per>,
}

impl Options {
    /// The options of the command line.
    pub fn of(cli: &Cli) -> Options {
        Options { rotate: cli.rotate, trace_per: cli.trace_per.clone() }
    }

    fn destination(&self, asked: &ExportRequest) -> Destination {
        let dest = Destination::new(&asked.dest, self.rotate).with_traces(self.trace_per.clone());
        if asked.only_new { dest.only_new() } else { dest }
    }
}

/// Called for each record. It must return quickly, since events wait for it.
pub type Observer = Box<dyn FnMut(&Record)>;

/// Sink of a run with exports: forwards all output, and passes records of it to the exports.
pub struct Exports {
    inner: Box<dyn Sink>,
    recorder: Recorder,
    queues: Vec<Queue>,
    batch: Vec<Record>,
    /// True after the last event: only maps and reports of losses follow.
    ending: bool,
    /// Callback for every record, on the reader's thread.
    observer: Option<Observer>,
    /// Set by a signal handler to flush all exports.
    flush_asked: Arc<AtomicBool>,
    is_silent: bool,
}

impl Exports {
    /// Opens all requested exports. An error is reported before anything is traced.
    pub fn open(
        asked: &[ExportRequest],
        options: &Options,
        run: &Arc<Run>,
        inner: Box<dyn Sink>,
    ) -> Result<Exports> {
        let mut queues = Vec::new();
        for wanted in asked {
            let ExportRequest { kind, dest, .. } = wanted;
            if queues.iter().any(|queue: &Queue| queue.dest() == dest) {
                bail!("--export: two exports go to `{dest}`");
            }
            let Some(open) = kind.open else { continue };
            let queue = Queue::start(kind, open, options.destination(wanted), run.clone());
            queues.push(queue.with_context(|| format!("--export {}", kind.with(dest)))?);
        }
        let flush_asked = Arc::default();
        let recorder = Recorder::new(run.clone());
        let (batch, ending, observer, is_silent) = (Vec::new(), false, None, true);
        Ok(Exports { inner, recorder, queues, batch, ending, observer, flush_asked, is_silent })
    }

    /// Sets a callback for every record.
    pub fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// A flag that, when set, flushes all exports at the next opportunity.
    pub fn flush_flag(&self) -> Arc<AtomicBool> {
        self.flush_asked.clone()
    }

    /// Counters of each export.
    pub fn summaries(&self) -> Vec<Arc<Summary>> {
        self.queues.iter().map(Queue::summary).collect()
    }

    /// Queues of the exports with metrics.
    pub fn metrics(&self) -> Vec<MetricsQueue> {
        self.queues.iter().filter(|queue| queue.takes_metrics()).map(Queue::metrics).collect()
    }

    fn send(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let next = Vec::with_capacity(BATCH);
        let batch = Arc::new(std::mem::replace(&mut self.batch, next));
        for queue in &self.queues {
            if self.ending { queue.send_last(&batch) } else { queue.send(&batch) }
        }
    }

    /// Whether nothing was printed or exported.
    pub fn was_silent(&self) -> bool {
        self.is_silent
    }

    /// Waits until everything is written, or until `stop` returns true, which gives up data for servers. Reports
    /// losses and failures; returns whether there were any.
    pub fn close(mut self, messages: &Messages, stop: &dyn Fn() -> bool) -> bool {
        self.send();
        self.queues.iter().for_each(Queue::begin_end);
        let queues = std::mem::take(&mut self.queues);
        let closed: Vec<_> = queues.into_iter().map(|queue| queue.close(stop)).collect();
        closed.iter().flat_map(|summary| summary.remarks()).for_each(|remark| messages.warning(&remark));
        let losses: Vec<String> = closed.iter().flat_map(|summary| summary.losses()).collect();
        losses.iter().for_each(|loss| messages.lost(loss));
        // A recording prints its own summary, with the files that can be viewed.
        let told = closed.iter().filter(|summary| self.observer.is_none() || !summary.can_be_looked_at());
        told.filter_map(|summary| summary.ended()).for_each(|ended| messages.note(&ended));
        !losses.is_empty()
    }
}

impl Sink for Exports {
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()> {
        self.is_silent &= match output {
            Output::Event { .. } | Output::Fetched { .. } | Output::Table(..) | Output::Trials(_) => false,
            Output::Map(snapshot) => snapshot.entries.iter().all(is_untouched),
            _ => true,
        };
        if self.queues.is_empty() && self.observer.is_none() {
            return self.inner.output(manifest, names, output);
        }
        if matches!(output, Output::End) {
            self.send();
            self.ending = true;
            self.queues.iter().for_each(Queue::begin_end);
        }
        let (batch, observer) = (&mut self.batch, &mut self.observer);
        self.recorder.records(Context { manifest, names, verbatim: false }, output, &mut |record| {
            observer.iter_mut().for_each(|observer| observer(&record));
            batch.push(record);
        });
        if self.batch.len() >= BATCH {
            self.send();
        }
        // Exported records are not printed on a terminal.
        match is_exported(manifest, output) {
            true => Ok(()),
            false => self.inner.output(manifest, names, output),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // Printing does not wait until the exports have accepted the last records.
        let flushed = self.inner.flush();
        self.send();
        if self.flush_asked.swap(false, Ordering::Relaxed) {
            self.queues.iter().for_each(Queue::flush);
        }
        flushed
    }
}

/// Whether a map without keys has its initial value.
fn is_untouched((key, cell): &(Vec<wire::Value>, Cell)) -> bool {
    let is_zero = match cell {
        Cell::Number { bits, .. } => *bits == 0,
        Cell::Stats { count, .. } => *count == 0,
        Cell::Buckets { counts, .. } => counts.iter().all(|count| *count == 0),
        _ => false,
    };
    key.is_empty() && is_zero
}

fn is_exported(manifest: &Manifest, output: &Output) -> bool {
    let Output::Event { header, .. } = output else { return false };
    let event = manifest.events.get(header.event as usize);
    event.is_some_and(|event| matches!(event.kind, wire::manifest::EventKind::Export { .. }))
}

/// Description of a run that begins now on this machine.
pub fn run(
    clock: &runtime::kernel::clock::Epoch,
    script: &str,
    command: &[std::ffi::OsString],
    pids: &[u32],
) -> Run {
    use runtime::kernel::clock::{Clock, SystemClock};
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let random = read("/proc/sys/kernel/random/uuid");
    let id = u128::from_str_radix(&random.trim().replace('-', ""), 16).unwrap_or(1);
    Run {
        id,
        boot_at_wall_ns: clock.wall_ns(0),
        suspended_ns: runtime::kernel::clock::suspended_ns(&SystemClock),
        start_ns: SystemClock.boot_ns(),
        tool: format!("cudatrace {}", env!("CARGO_PKG_VERSION")),
        host: read("/proc/sys/kernel/hostname").trim().to_owned(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        script: script.to_owned(),
        // A command gets the environment of this process.
        rank: crate::export::otlp::process::rank(pids.first().copied().filter(|_| command.is_empty())),
    }
}

/// Parses the size of `--rotate`; the error is a message.
pub fn rotate(text: &str) -> Result<u64, String> {
    let least = 1 << 16;
    match size_in_bytes(text) {
        Some(bytes) if bytes >= least => Ok(bytes),
        Some(_) => Err("expected 64KiB at least".into()),
        None => Err("expected a size such as 512MiB or 1GiB".into()),
    }
}

/// Converts an io error to an error with the path.
fn at(path: &std::path::Path) -> impl Fn(io::Error) -> anyhow::Error + '_ {
    move |error| anyhow!("{}: {error}", path.display())
}

/// A destination without user and password in its URL: `otlp=http://user:secret@host` becomes `otlp=http://host`.
pub fn without_credentials(what: &str) -> String {
    let Some((scheme, rest)) = what.split_once("://") else { return what.to_owned() };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_asked_for() {
        assert_eq!(parse("jsonl=a=b.jsonl").unwrap().dest, "a=b.jsonl");
        assert!(parse("jsonl").unwrap_err().contains("KIND=DEST"));
        assert!(parse("yaml=x").unwrap_err().contains("no kind `yaml`"));
        assert!(parse("jsonl=").is_err());
        assert_eq!(parse("openmetrics").unwrap().dest, "");
        assert_eq!(parse("otlp=http://c:4318").unwrap().dest, "http://c:4318");
    }

    #[test]
    fn sizes_for_rotation() {
        assert_eq!(rotate("1GiB"), Ok(1 << 30));
        assert_eq!(rotate("64k"), Ok(1 << 16));
        assert!(rotate("1").is_err() && rotate("x").is_err());
    }

    #[test]
    fn no_password_is_shown() {
        assert_eq!(
            without_credentials("otlp=http://user:s3c@ret@host:4318/v1@2"),
            "otlp=http://host:4318/v1@2"
        );
        for plain in ["jsonl=/tmp/a@b", "otlp=grpc://host:4317", "otlp=http://host/x@y"] {
            assert_eq!(without_credentials(plain), plain);
        }
    }
}
