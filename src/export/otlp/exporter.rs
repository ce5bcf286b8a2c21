//! Exports spans and metrics to a receiver, or to a file of JSON lines.

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
use runtime::kernel::clock::{Clock, SystemClock};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of spans per request.
const SPANS: u64 = 512;
/// Largest size of a request in bytes: gRPC servers accept 4 MiB by default.
const BYTES: usize = 2 << 20;
/// Longest delay of a span until its request is sent.
const DELAY: Duration = Duration::from_secs(1);

/// Exporter of spans and metrics over OTLP; see the module documentation.
pub struct Otlp {
    transport: Transport,
    batch: Batch,
    /// Time of the first span in the batch.
    since: Option<Instant>,
    run: Arc<Run>,
    given: Attributes,
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
    Ok(Box::new(Otlp { transport, batch, since: None, run: run.clone(), given }))
}

impl Otlp {
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
        let wall = |boot_ns| self.run.wall_ns(boot_ns).max(0) as u64;
        let period = metrics::Period { start_ns: wall(self.run.start_ns), end_ns: wall(boot_ns) };
        let encoding = self.transport.encoding(Signal::Metrics);
        self.send(metrics::request(families, period, &self.run, &self.given, encoding))?;
        self.flush()
    }

    fn pending(&self) -> u64 {
        let in_flight = if let Transport::Server(outbox) = &self.transport { outbox.pending() } else { 0 };
        self.batch.len() + in_flight
    }

    /// Ends traces that are over, including those of processes that make no more calls.
    fn idle(&mut self) -> io::Result<()> {
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
