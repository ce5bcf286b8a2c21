//! A bounded queue, and the thread that writes one export from it.

use super::channel::{Channel, Message};
use super::file::{DeliveryLoss, Destination};
use super::kinds::{Kind, Open};
use super::otlp::destination::without_credentials;
use anyhow::Result;
use report::export::{End, Exporter, Record, Run};
use report::metrics::Family;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Idle time after which buffers are flushed.
const QUIET: Duration = Duration::from_millis(250);
/// Period of flushes without idle time, so that the file is readable even if the run is killed.
const BUSY: Duration = Duration::from_secs(1);
/// Uncompressed bytes between two flushes of a compressed file: after a full disk or a crash, the file can be read
/// up to the last one.
const COMPRESSED_PART: u64 = 4 << 20;
/// Period of checks whether to stop waiting for the end.
const LOOK: Duration = Duration::from_millis(50);

/// Counters of an export.
#[derive(Debug)]
pub struct ExportSummary {
    /// `jsonl=trace.jsonl`
    pub what: String,
    dest: Destination,
    look: Option<&'static str>,
    written: AtomicU64,
    /// Number of metrics updates.
    readings: AtomicU64,
    dropped: AtomicU64,
    failure: Mutex<Option<String>>,
    /// The reason why the receiver accepted nothing when a record was dropped.
    obstacle: Mutex<Option<String>>,
}

impl ExportSummary {
    /// Number of records that have arrived in a file or at a receiver.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Number of records that were dropped, because the queue was full or the export failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records that were accepted but not delivered.
    pub fn lost(&self) -> DeliveryLoss {
        self.dest.lost()
    }

    /// Size of its files in bytes.
    pub fn bytes(&self) -> u64 {
        self.dest.bytes()
    }

    /// Whether there is a viewer for its file.
    pub fn can_be_looked_at(&self) -> bool {
        self.look.is_some()
    }

    /// Report of the written or delivered records and their destination; `None` for standard output.
    pub fn report(&self) -> Option<String> {
        let to = self.what.split_once('=').map_or("its receiver", |(_, dest)| dest);
        if let Some(delivered) = self.dest.delivered() {
            let lost = self.lost().count + self.dropped();
            return Some(match (delivered, lost) {
                (0, 0) => format!("there was nothing to deliver to {to}"),
                (0, _) => format!("delivered nothing to {to}"),
                (_, 0) => format!("delivered all {delivered} spans and series to {to}"),
                _ => format!("delivered {delivered} spans and series to {to}, and {lost} not"),
            });
        }
        if to == "-" {
            return None;
        }
        if self.bytes() == 0 && self.failure().is_none() && self.dropped() == 0 {
            return Some(format!("there was nothing to write to {to}"));
        }
        let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let records = counted(self.written(), "record");
        let readings = match self.readings.load(Ordering::Relaxed) {
            0 => String::new(),
            readings => format!(" and {} of metrics", counted(readings, "reading")),
        };
        // Viewers that take the file are not mentioned: users of these formats know them.
        let look =
            self.look.filter(|look| !look.contains("FILE")).map_or(String::new(), |look| format!("; {look}"));
        Some(format!("wrote {records}{readings} to {to}{look}"))
    }

    /// The error that ended the export.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().ok()?.clone()
    }
}

/// An export with its thread and queue; see the module documentation.
pub struct Queue {
    kind: &'static Kind,
    channel: Arc<Channel>,
    thread: JoinHandle<()>,
    summary: Arc<ExportSummary>,
}

impl Queue {
    /// Opens the destination and starts the thread.
    pub fn start(kind: &'static Kind, open: Open, dest: Destination, run: Arc<Run>) -> Result<Queue> {
        let exporter = open.open(&dest, &run)?;
        let summary = Arc::new(ExportSummary {
            what: without_credentials(&kind.with(dest.text())),
            dest,
            look: kind.look,
            written: AtomicU64::new(0),
            readings: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failure: Mutex::default(),
            obstacle: Mutex::default(),
        });
        let channel = Arc::new(Channel::default());
        let receiver = channel.clone();
        let ledger = Ledger::default();
        let writer = Writer {
            open,
            run,
            summary: summary.clone(),
            exporter: Some(exporter),
            // The exporter may have written a header.
            dirty: true,
            flushed: Instant::now(),
            ledger,
        };
        let thread = std::thread::Builder::new().name(format!("ct-{}", kind.name)).spawn(move || {
            // Marks the receiver as ended in any case, also after a panic, so that nothing waits for it.
            let _guard = EndGuard(&receiver);
            writer.run(&receiver);
        })?;
        Ok(Queue { kind, channel, thread, summary })
    }

    /// Counters.
    pub fn summary(&self) -> Arc<ExportSummary> {
        self.summary.clone()
    }

    /// Queues a batch without waiting; if there is no room, it counts as dropped.
    pub fn send(&self, batch: &Arc<Vec<Record>>) {
        if !self.channel.try_send(Message::Records(batch.clone())) {
            self.summary.drop_batch(batch.len());
        }
    }

    /// Marks the end of the run; the batches that follow are the last ones.
    pub fn begin_end(&self) {
        self.summary.dest.close();
    }

    /// Queues the last batches of a run, and waits for room.
    pub fn send_last(&self, batch: &Arc<Vec<Record>>) {
        if !self.channel.send(batch) {
            self.summary.drop_batch(batch.len());
        }
    }

    /// Requests a flush. A full queue is being written anyway.
    pub fn flush(&self) {
        self.channel.try_send(Message::Flush);
    }

    /// Whether it accepts metrics.
    pub fn takes_metrics(&self) -> bool {
        self.kind.metrics
    }

    /// A sender of metrics to the same queue.
    pub fn metrics(&self) -> MetricsQueue {
        MetricsQueue(self.channel.clone())
    }

    /// Lets the thread write the queue, and ends it. Data for servers is given up when `stop` returns true.
    pub fn close(self, stop: &dyn Fn() -> bool) -> Arc<ExportSummary> {
        self.summary.dest.close();
        self.channel.try_send(Message::End);
        while !self.channel.wait_for_end(LOOK) {
            if stop() {
                self.summary.dest.abandon();
            }
        }
        if self.thread.join().is_err() {
            self.summary.fail("its thread died; this is a bug in cudatrace".into());
        }
        self.summary
    }
}

/// Sender of metrics to an export.
pub struct MetricsQueue(Arc<Channel>);

impl MetricsQueue {
    /// Queues the metrics of a time of the boot clock without waiting. If there is no room, the next ones replace
    /// them.
    pub fn send(&self, families: &Arc<Vec<Family>>, boot_ns: u64) {
        self.0.try_send(Message::Metrics(families.clone(), boot_ns));
    }
}

/// Guard that marks the receiver as ended when it is dropped.
struct EndGuard<'c>(&'c Channel);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl ExportSummary {
    /// Descriptions of what did not arrive; empty if everything did.
    pub fn losses(&self) -> Vec<String> {
        let (dropped, written, undelivered) = (self.dropped(), self.written(), self.lost());
        let (what, all) = (&self.what, dropped + written);
        let mut losses = Vec::new();
        match self.failure() {
            Some(error) => {
                losses.push(format!("export {what} ended: {error}; {written} of {all} records are in it"));
            }
            None if dropped > 0 => {
                let obstacle = self.obstacle.lock().ok().and_then(|obstacle| obstacle.clone());
                let reason = obstacle.map_or("it was slower than the events".into(), |obstacle| {
                    format!("the receiver accepted nothing for too long: {obstacle}")
                });
                losses.push(format!(
                    "export {what}: {dropped} of {all} records were dropped, because {reason}"
                ));
            }
            None => {}
        }
        if undelivered.count > 0 {
            losses.push(format!("export {what}: {}", undelivered.words()));
        }
        losses
    }

    /// Messages of a receiver about accepted data.
    pub fn remarks(&self) -> Vec<String> {
        self.dest.remarks().into_iter().map(|remark| format!("export {}: {remark}", self.what)).collect()
    }

    fn drop_batch(&self, records: usize) {
        self.dropped.fetch_add(records as u64, Ordering::Relaxed);
        if let (Some(found), Ok(mut obstacle)) = (self.dest.obstacle(), self.obstacle.lock()) {
            *obstacle = Some(found);
        }
    }

    fn fail(&self, error: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the export has ended")
}

/// State of the thread.
struct Writer {
    open: Open,
    run: Arc<Run>,
    summary: Arc<ExportSummary>,
    /// `None` after a failure.
    exporter: Option<Box<dyn Exporter>>,
    dirty: bool,
    flushed: Instant,
    ledger: Ledger,
}

/// Number of records in the file: buffers delay those of the exporter.
#[derive(Default)]
struct Ledger {
    /// Number of records that the exporter has accepted.
    taken: u64,
    /// Number of them that are in the file.
    arrived: u64,
    /// Pairs of a number of records and the number of bytes that must be in the file for them, in order.
    marks: VecDeque<(u64, u64)>,
}

impl Ledger {
    /// Records that the exporter has accepted another record, of which it holds `pending` back.
    fn take(&mut self, pending: u64, dest: &Destination) {
        self.taken += 1;
        let (records, (bytes, _)) = (self.taken.saturating_sub(pending), dest.progress());
        match self.marks.back_mut() {
            Some(last) if last.1 == bytes => *last = (records, bytes),
            _ => self.marks.push_back((records, bytes)),
        }
    }

    /// Updates the number of records in the file.
    fn settle(&mut self, dest: &Destination) -> u64 {
        let (_, arrived) = dest.progress();
        while let Some((records, _)) = self.marks.front().copied().filter(|(_, bytes)| *bytes <= arrived) {
            self.arrived = self.arrived.max(records);
            self.marks.pop_front();
        }
        self.arrived
    }

    /// Marks the file as complete, with all accepted records.
    fn close(&mut self) -> u64 {
        self.marks.clear();
        self.arrived = self.taken;
        self.arrived
    }
}

impl Writer {
    fn run(mut self, receiver: &Channel) {
        match self.write_all(receiver) {
            Ok(()) => {
                if let Err(error) = self.finish(false) {
                    self.fail(&error);
                }
                return;
            }
            Err(error) => self.fail(&error),
        }
        // The trace continues without this export; records that it does not write are counted.
        loop {
            match receiver.receive(QUIET) {
                Some(Message::Records(batch)) => {
                    self.summary.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
                }
                Some(Message::Metrics(..) | Message::Flush) | None => {}
                Some(Message::End) => return,
            }
        }
    }

    /// Writes messages until the end.
    fn write_all(&mut self, receiver: &Channel) -> io::Result<()> {
        loop {
            match receiver.receive(QUIET) {
                Some(Message::Records(batch)) => self.write(&batch)?,
                Some(Message::Metrics(families, boot_ns)) => {
                    self.exporter()?.metrics(&families, boot_ns)?;
                    self.summary.readings.fetch_add(1, Ordering::Relaxed);
                }
                Some(Message::Flush) => self.flush()?,
                None if self.dirty => self.catch_up()?,
                None => self.exporter()?.idle()?,
                Some(Message::End) => return Ok(()),
            }
        }
    }

    fn write(&mut self, batch: &[Record]) -> io::Result<()> {
        for (at, record) in batch.iter().enumerate() {
            let exporter = self.exporter.as_mut().ok_or_else(ended)?;
            exporter.record(record).inspect_err(|_| {
                self.summary.dropped.fetch_add((batch.len() - at) as u64, Ordering::Relaxed);
            })?;
            self.ledger.take(exporter.pending(), &self.summary.dest);
        }
        self.dirty = true;
        let (offered, arrived) = self.summary.dest.progress();
        let has_part = self.summary.dest.is_compressed() && offered - arrived >= COMPRESSED_PART;
        if has_part || self.flushed.elapsed() >= BUSY {
            self.catch_up()?;
        }
        self.settle();
        if self.summary.dest.is_full() { self.rotate() } else { Ok(()) }
    }

    fn exporter(&mut self) -> io::Result<&mut Box<dyn Exporter>> {
        self.exporter.as_mut().ok_or_else(ended)
    }

    /// Makes the file readable up to now, if that takes little room.
    fn catch_up(&mut self) -> io::Result<()> {
        if self.exporter()?.catch_up()? {
            self.dirty = false;
        }
        self.flushed = Instant::now();
        self.settle();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.exporter()?.flush()?;
        self.dirty = false;
        self.flushed = Instant::now();
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        self.summary.written.store(self.ledger.settle(&self.summary.dest), Ordering::Relaxed);
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.finish(true)?;
        self.exporter = None;
        self.summary.dest.next();
        self.exporter = Some(self.open.open(&self.summary.dest, &self.run).map_err(io::Error::other)?);
        Ok(())
    }

    fn finish(&mut self, goes_on: bool) -> io::Result<()> {
        let end = End { dropped: self.summary.dropped(), goes_on, is_cut: false };
        self.exporter()?.finish(&end)?;
        self.summary.written.store(self.ledger.close(), Ordering::Relaxed);
        Ok(())
    }

    /// EndGuard the export after an error. Records that are not in the file count as dropped.
    fn fail(&mut self, error: &io::Error) {
        self.summary.fail(error.to_string());
        // Dropping the exporter writes its buffers once more.
        self.exporter = None;
        self.summary.dest.settle_compressed();
        self.settle();
        let taken = self.ledger.taken - self.ledger.arrived;
        self.summary.dropped.fetch_add(taken, Ordering::Relaxed);
    }
}
