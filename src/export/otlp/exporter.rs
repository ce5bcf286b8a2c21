//! Exports spans and metrics to a receiver, or to a file of JSON lines.
//!
//! The offset of the wall clock is read again once a second: a machine may get its time from the network after the tracer has started,
//! and a receiver compares its spans with those of other machines.

use super::destination::{OtlpDestination, environment};
use super::outbox::Outbox;
use super::{destination, process, traces};
use crate::export::file;
use anyhow::Result;
use report::export::otlp::spans::{Batch, Settings};
use report::export::otlp::traces::Parent;
use report::export::otlp::{Attributes, Encoding, Request, Signal, metrics};
use report::export::{End, Exporter, Record, Run};
use report::metrics::Family;
use runtime::kernel::clock::{Clock, Epoch, SystemClock};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of spans per request.
const SPANS: u64 = 512;
/// Largest size of a request in bytes: gRPC servers accept 4 MiB by default.
const BYTES: usize = 2 << 20;
/// Longest delay of a span until its request is sent.
const DELAY: Duration = Duration::from_secs(1);
/// Period of readings of the wall clock.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// Exporter of spans and metrics over OTLP; see the module documentation.
pub struct Otlp {
    transport: Transport,
    batch: Batch,
    /// Time of the first span in the batch.
    since: Option<Instant>,
    run: Arc<Run>,
    given: Attributes,
    /// `None` for a recording, whose times are not those of now.
    wall_clock: Option<WallClock>,
    dest: file::Destination,
}

/// The wall clock of a run that goes on.
struct WallClock {
    epoch: Epoch,
    read_at: Instant,
    /// Whether it was set since the start of the run.
    is_stepped: bool,
}

enum Transport {
    Server(Outbox),
    File(Box<dyn Write + Send>),
    /// `OTEL_SDK_DISABLED`
    Disabled,
}

impl Transport {
    fn encoding(&self, signal: Signal) -> Encoding {
        match self {
            Transport::Server(outbox) => outbox.encoding(signal),
            Transport::File(_) | Transport::Disabled => Encoding::Json,
        }
    }
}

/// Opens the destination of `otlp=`.
pub fn open(dest: &file::Destination, run: &Arc<Run>) -> Result<Box<dyn Exporter>> {
    let disabled = environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let transport = match OtlpDestination::new(dest.text(), &environment)? {
        _ if disabled => {
            dest.deliver(0);
            dest.remark("nothing was sent: OTEL_SDK_DISABLED is true".into());
            Transport::Disabled
        }
        OtlpDestination::File => Transport::File(dest.create()?),
        OtlpDestination::Server { traces, metrics } => {
            Transport::Server(Outbox::start(dest.clone(), *traces, *metrics)?)
        }
    };
    let mut given = destination::resource(&environment);
    // Process ids of a recording do not refer to running processes.
    let live = !dest.is_recorded();
    if live {
        let is_set = |key: &str| given.iter().any(|(known, _)| known == key);
        let host: Vec<_> = process::host().into_iter().filter(|(key, _)| !is_set(key)).collect();
        given.extend(host);
    }
    let settings = Settings {
        given: given.clone(),
        encoding: transport.encoding(Signal::Traces),
        per: dest.trace_per().clone(),
        sampler: traces::sampler(&environment)?,
        parent: environment("TRACEPARENT").as_deref().and_then(Parent::parse),
        describe: live.then_some(process::describe),
    };
    let batch = Batch::new(run.clone(), settings);
    let epoch = Epoch::of_boot(run.boot_at_wall_ns);
    let wall_clock = live.then(|| WallClock { epoch, read_at: Instant::now(), is_stepped: false });
    let (run, dest) = (run.clone(), dest.clone());
    let mut otlp = Otlp { transport, batch, since: None, run, given, wall_clock, dest };
    // The next file of a run may begin after a step, which was reported.
    otlp.read_clock();
    Ok(Box::new(otlp))
}

impl Otlp {
    /// Reads the wall clock, if it was not read for a while. The first step is reported.
    fn keep_time(&mut self) {
        if self.wall_clock.as_ref().is_none_or(|clock| clock.read_at.elapsed() < CLOCK_PERIOD) {
            return;
        }
        let was_stepped = self.wall_clock.as_ref().is_some_and(|clock| clock.is_stepped);
        if let (Some(step_ns), false) = (self.read_clock(), was_stepped) {
            self.dest.warn(format!(
                "the wall clock was set by {:+.3} s: spans of the next traces have its new time, those before keep the old one",
                step_ns as f64 / 1e9
            ));
        }
    }

    /// Returns the step of the wall clock in ns, if it was set; later spans have its time.
    fn read_clock(&mut self) -> Option<i128> {
        let clock = self.wall_clock.as_mut()?;
        clock.read_at = Instant::now();
        let (epoch, step_ns) = clock.epoch.after_step(&SystemClock)?;
        (clock.epoch, clock.is_stepped) = (epoch, true);
        self.batch.set_boot_at_wall(epoch.wall_ns(0));
        Some(step_ns)
    }

    fn send_spans(&mut self) -> io::Result<()> {
        self.since = None;
        if self.batch.is_empty() {
            return Ok(());
        }
        let request = self.batch.take();
        self.send(request)
    }

    fn send(&mut self, request: Request) -> io::Result<()> {
        match &mut self.transport {
            Transport::File(file) => {
                file.write_all(&request.body)?;
                file.write_all(b"\n")
            }
            Transport::Server(outbox) => outbox.send(request),
            Transport::Disabled => Ok(()),
        }
    }
}

impl Exporter for Otlp {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if matches!(self.transport, Transport::Disabled) {
            return Ok(());
        }
        self.keep_time();
        self.batch.add(record);
        if self.batch.is_empty() {
            return Ok(());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        match self.batch.len() >= SPANS || self.batch.bytes() >= BYTES || since.elapsed() >= DELAY {
            true => self.send_spans(),
            false => Ok(()),
        }
    }

    fn metrics(&mut self, families: &[Family], boot_ns: u64) -> io::Result<()> {
        self.keep_time();
        let (start, now) = (self.run.start_ns, boot_ns);
        let epoch =
            self.wall_clock.as_ref().map_or(Epoch::of_boot(self.run.boot_at_wall_ns), |clock| clock.epoch);
        let wall = |epoch: Epoch, boot_ns| epoch.wall_ns(boot_ns).max(0) as u64;
        let end_ns = wall(epoch, now);
        // Another start would be a reset of all counters: it changes only if the clock was set to a time before it.
        let first_ns = wall(Epoch::of_boot(self.run.boot_at_wall_ns), start);
        let start_ns = if first_ns < end_ns { first_ns } else { wall(epoch, start) };
        let period = metrics::Period { start_ns, end_ns };
        let encoding = self.transport.encoding(Signal::Metrics);
        self.send(metrics::request(families, period, &self.run, &self.given, encoding))?;
        self.flush()
    }

    fn pending(&self) -> u64 {
        let in_flight = if let Transport::Server(outbox) = &self.transport { outbox.pending() } else { 0 };
        self.batch.len() + self.batch.waiting() + in_flight
    }

    /// Ends traces that are over, including those of processes that make no more calls.
    fn idle(&mut self) -> io::Result<()> {
        self.keep_time();
        self.batch.end_traces(SystemClock.boot_ns());
        self.send_spans()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_spans()?;
        match &mut self.transport {
            Transport::File(file) => file.flush(),
            Transport::Server(_) | Transport::Disabled => Ok(()),
        }
    }

    fn finish(&mut self, _: &End) -> io::Result<()> {
        self.batch.end_traces(u64::MAX);
        self.flush()?;
        if let Transport::Server(outbox) = &mut self.transport {
            outbox.finish();
        }
        Ok(())
    }
}
