//! `--export KIND=DEST`: exports a run to files and servers, each on a thread of its own.
//!
//! ```text
//! ring buffer reader -> Exports (records, in batches) -> bounded queue -> thread: Exporter -> file
//!                                                     -> bounded queue -> thread: Exporter -> server
//! ```
//!
//! The reader never waits: a batch without room in a queue is dropped and counted. An error, such as a full disk, ends that
//! export with a message and has no other effect. The kinds are listed in `kinds`.

mod channel;
mod complete_file;
mod counted_file;
pub mod file;
pub mod kinds;
pub(crate) mod otlp;
mod queue;
mod signals;

use crate::console::Messages;
use anyhow::{Context as _, Result};
use kinds::{ExportOptions, ExportRequest};
use linux::mailbox::Mailbox;
use queue::Queue;
use report::export::{Record, Recorder, Run};
use report::value::Context;
use report::{Cell, Names, Output, Sink};
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use wire::Manifest;

pub use file::Destination;
pub use queue::{ExportSummary, MetricsQueue};
pub use signals::{FlushOn, flushing};

/// Number of records per batch, to reduce wake-ups.
const BATCH: usize = 256;

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
    /// Records that are not of the scripts' events.
    samples: Option<Receiver<Record>>,
    /// Set by a signal handler to flush all exports.
    flush_requested: Arc<AtomicBool>,
    is_silent: bool,
    /// Warnings of exports during the run.
    warnings: Option<Mailbox<String>>,
}

/// Prints the warnings of exports during the run.
struct Warnings<'a> {
    mailbox: Mailbox<String>,
    messages: &'a Messages,
}

impl Watch for Warnings<'_> {
    fn fd(&self) -> RawFd {
        self.mailbox.as_fd().as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        while let Some(warning) = self.mailbox.take() {
            self.messages.warning(&warning);
        }
        Next::Continue
    }
}

impl Exports {
    /// Opens all requested exports. An error is reported before anything is traced.
    pub fn open(
        requests: &[ExportRequest],
        options: &ExportOptions,
        run: &Arc<Run>,
        inner: Box<dyn Sink>,
    ) -> Result<Exports> {
        let mut queues = Vec::new();
        let (post, warnings) = Mailbox::new().ok().unzip();
        // Opening a file empties it.
        kinds::check_distinct(requests)?;
        for request in requests {
            let ExportRequest { kind, dest, .. } = request;
            let Some(open) = kind.open else { continue };
            let destination = options.destination(request).warning_to(post.clone());
            let queue = Queue::start(kind, open, destination, run.clone());
            queues.push(queue.with_context(|| format!("--export {}", kind.with(dest)))?);
        }
        let flush_requested = Arc::default();
        let recorder = Recorder::new(run.clone());
        let (batch, ending, observer, is_silent) = (Vec::new(), false, None, true);
        let samples = None;
        Ok(Exports {
            inner,
            recorder,
            queues,
            batch,
            ending,
            observer,
            samples,
            flush_requested,
            is_silent,
            warnings,
        })
    }

    /// The watch of a run that prints warnings, such as that a receiver cannot be reached.
    pub fn warnings<'a>(&mut self, messages: &'a Messages) -> Option<Box<dyn Watch + 'a>> {
        let mailbox = self.warnings.take()?;
        Some(Box::new(Warnings { mailbox, messages }))
    }

    /// Sets a callback for every record, and a source of further records.
    pub fn observe(&mut self, observer: Observer, samples: Receiver<Record>) {
        self.observer = Some(observer);
        self.samples = Some(samples);
    }

    /// Adds the samples that have come.
    fn take_samples(&mut self) {
        let Some(samples) = &self.samples else { return };
        for record in samples.try_iter() {
            self.observer.iter_mut().for_each(|observer| observer(&record));
            self.batch.push(record);
        }
    }

    /// A flag that, when set, flushes all exports at the next opportunity.
    pub fn flush_flag(&self) -> Arc<AtomicBool> {
        self.flush_requested.clone()
    }

    /// Counters of each export.
    pub fn summaries(&self) -> Vec<Arc<ExportSummary>> {
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
        let summaries =
            closed.iter().filter(|summary| self.observer.is_none() || !summary.can_be_looked_at());
        summaries.filter_map(|summary| summary.report()).for_each(|report| messages.note(&report));
        !losses.is_empty()
    }
}

impl Sink for Exports {
    fn output(&mut self, manifest: &Manifest, names: &dyn Names, output: &Output) -> io::Result<()> {
        self.is_silent &= match output {
            Output::Event { .. } | Output::Fetched { .. } | Output::Table(..) | Output::Tests(_) => false,
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
        self.take_samples();
        self.send();
        if self.flush_requested.swap(false, Ordering::Relaxed) {
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
        environment: Default::default(),
        // A command gets the environment of this process.
        rank: otlp::process::rank(pids.first().copied().filter(|_| command.is_empty())),
    }
}
