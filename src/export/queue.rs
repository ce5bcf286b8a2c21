//! A bounded queue and the thread behind it that writes one export.

use super::file::Lost;
use super::{Destination, Kind, Open};
use anyhow::Result;
use report::export::{End, Exporter, Record, Run};
use report::metric::Family;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Batches that wait at most: 256 records each, so some 30 MB of them at the worst.
const WAITING: usize = 256;
/// What is written comes out of our buffers so long after the last of it.
const QUIET: Duration = Duration::from_millis(250);

/// What the thread hears.
enum Message {
    Records(Arc<Vec<Record>>),
    /// As they were at a time of the boot clock.
    Metrics(Arc<Vec<Family>>, u64),
    Flush,
    /// Nothing more comes.
    End,
}

/// What has gone through an export.
#[derive(Debug)]
pub struct Summary {
    /// `jsonl=trace.jsonl`
    pub what: String,
    dest: Destination,
    written: AtomicU64,
    dropped: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Summary {
    /// Records that have arrived, in a file or at a receiver.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Records for which there was no room, or that a failure took.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// What was taken and could not be delivered.
    pub fn lost(&self) -> Lost {
        self.dest.lost()
    }

    /// Bytes in its files.
    pub fn bytes(&self) -> u64 {
        self.dest.bytes()
    }

    /// Why it ended before its time.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().ok()?.clone()
    }
}

/// See the module.
pub struct Queue {
    kind: &'static Kind,
    sender: SyncSender<Message>,
    thread: JoinHandle<()>,
    summary: Arc<Summary>,
}

impl Queue {
    /// Opens the destination and starts the thread.
    pub fn start(kind: &'static Kind, open: Open, dest: Destination, run: Arc<Run>) -> Result<Queue> {
        let exporter = open(&dest, &run)?;
        let summary = Arc::new(Summary {
            what: kind.with(dest.text()),
            dest,
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failure: Mutex::default(),
        });
        let (sender, receiver) = sync_channel(WAITING);
        let ledger = Ledger::default();
        let writer =
            Writer { open, run, summary: summary.clone(), exporter: Some(exporter), dirty: false, ledger };
        let thread = std::thread::Builder::new()
            .name(format!("ct-{}", kind.name))
            .spawn(move || writer.run(&receiver))?;
        Ok(Queue { kind, sender, thread, summary })
    }

    /// As it was given.
    pub fn dest(&self) -> &str {
        self.summary.dest.text()
    }

    /// What has gone through.
    pub fn summary(&self) -> Arc<Summary> {
        self.summary.clone()
    }

    /// Takes a batch, or counts it as dropped: never waits.
    pub fn send(&self, batch: &Arc<Vec<Record>>) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.sender.try_send(Message::Records(batch.clone()))
        {
            self.summary.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    /// Takes the last batches of a run, which are worth waiting for: nothing comes behind them.
    pub fn send_last(&self, batch: &Arc<Vec<Record>>) {
        if self.sender.send(Message::Records(batch.clone())).is_err() {
            self.summary.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    /// Asks for everything to be written out. A full queue is being written anyway.
    pub fn flush(&self) {
        let _ = self.sender.try_send(Message::Flush);
    }

    /// Whether it wants metrics.
    pub fn takes_metrics(&self) -> bool {
        self.kind.metrics
    }

    /// A way for metrics, beside that of records.
    pub fn metrics(&self) -> MetricsQueue {
        MetricsQueue(self.sender.clone())
    }

    /// Lets the thread write what waits, and ends it.
    pub fn close(self) -> Arc<Summary> {
        self.summary.dest.close();
        // Here there is nobody left to be kept waiting.
        let _ = self.sender.send(Message::End);
        if self.thread.join().is_err() {
            self.summary.fail("its thread died; this is a bug in cudatrace".into());
        }
        self.summary
    }
}

/// Takes metrics to an export.
pub struct MetricsQueue(SyncSender<Message>);

impl MetricsQueue {
    /// Sends metrics as they were at a time of the boot clock; never waits. The next ones have all that these have.
    pub fn send(&self, families: &Arc<Vec<Family>>, boot_ns: u64) {
        let _ = self.0.try_send(Message::Metrics(families.clone(), boot_ns));
    }

    /// Sends the last metrics of a run, which are worth waiting for.
    pub fn send_last(&self, families: &Arc<Vec<Family>>, boot_ns: u64) {
        let _ = self.0.send(Message::Metrics(families.clone(), boot_ns));
    }
}

impl Summary {
    /// What did not arrive, in words; nothing if all did.
    pub fn losses(&self) -> Vec<String> {
        let (dropped, written, undelivered) = (self.dropped(), self.written(), self.lost());
        let (what, all) = (&self.what, dropped + written);
        let mut losses = Vec::new();
        match self.failure() {
            Some(error) => {
                losses.push(format!("export {what} ended: {error}; {written} of {all} records are in it"));
            }
            None if dropped > 0 => losses.push(format!(
                "export {what}: {dropped} of {all} records were dropped, as it was slower than the events"
            )),
            None => {}
        }
        if undelivered.count > 0 {
            losses.push(format!("export {what}: {}", undelivered.words()));
        }
        losses
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

/// The thread's side.
struct Writer {
    open: Open,
    run: Arc<Run>,
    summary: Arc<Summary>,
    /// None when it has failed.
    exporter: Option<Box<dyn Exporter>>,
    dirty: bool,
    ledger: Ledger,
}

/// Which records are in the file, as buffers lie between it and their exporter.
#[derive(Default)]
struct Ledger {
    /// Records that the exporter took.
    taken: u64,
    /// So many of them are in the file.
    arrived: u64,
    /// In a row: so many records are in the file when it has so many bytes.
    marks: VecDeque<(u64, u64)>,
}

impl Ledger {
    /// The exporter has taken another record; it keeps `pending` back.
    fn take(&mut self, pending: u64, dest: &Destination) {
        self.taken += 1;
        let (records, (bytes, _)) = (self.taken.saturating_sub(pending), dest.progress());
        match self.marks.back_mut() {
            // What is compressed arrives as a whole.
            Some(last) if last.1 == bytes || dest.is_compressed() => *last = (records, bytes),
            _ => self.marks.push_back((records, bytes)),
        }
    }

    /// Looks how far the file has come.
    fn settle(&mut self, dest: &Destination) -> u64 {
        let (_, arrived) = dest.progress();
        while let Some((records, _)) = self.marks.front().copied().filter(|(_, bytes)| *bytes <= arrived) {
            self.arrived = self.arrived.max(records);
            self.marks.pop_front();
        }
        self.arrived
    }

    /// A file is complete, and with it all that was taken.
    fn close(&mut self) -> u64 {
        self.marks.clear();
        self.arrived = self.taken;
        self.arrived
    }
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        match self.write_all(receiver) {
            Ok(()) => {
                if let Err(error) = self.finish(false) {
                    self.fail(&error);
                }
                return;
            }
            Err(error) => self.fail(&error),
        }
        // The trace goes on without us; what we do not write is counted.
        while let Ok(message) = receiver.recv() {
            match message {
                Message::Records(batch) => {
                    self.summary.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
                }
                Message::Metrics(..) | Message::Flush => {}
                Message::End => return,
            }
        }
    }

    /// Writes what comes, up to the end.
    fn write_all(&mut self, receiver: &Receiver<Message>) -> io::Result<()> {
        loop {
            match receiver.recv_timeout(QUIET) {
                Ok(Message::Records(batch)) => self.write(&batch)?,
                Ok(Message::Metrics(families, boot_ns)) => self.exporter()?.metrics(&families, boot_ns)?,
                Ok(Message::Flush) => self.flush()?,
                Err(RecvTimeoutError::Timeout) if self.dirty => self.flush()?,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
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
        self.settle();
        if self.summary.dest.is_full() { self.rotate() } else { Ok(()) }
    }

    fn exporter(&mut self) -> io::Result<&mut Box<dyn Exporter>> {
        self.exporter.as_mut().ok_or_else(ended)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.exporter()?.flush()?;
        self.dirty = false;
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
        self.exporter = Some((self.open)(&self.summary.dest, &self.run).map_err(io::Error::other)?);
        Ok(())
    }

    fn finish(&mut self, goes_on: bool) -> io::Result<()> {
        let end = End { dropped: self.summary.dropped(), goes_on };
        self.exporter()?.finish(&end)?;
        self.summary.written.store(self.ledger.close(), Ordering::Relaxed);
        Ok(())
    }

    /// Ends the export. What it had taken and is not in the file is dropped with it.
    fn fail(&mut self, error: &io::Error) {
        self.summary.fail(error.to_string());
        // Buffers are written once more when they go.
        self.exporter = None;
        self.settle();
        let taken = self.ledger.taken - self.ledger.arrived;
        self.summary.dropped.fetch_add(taken, Ordering::Relaxed);
    }
}
