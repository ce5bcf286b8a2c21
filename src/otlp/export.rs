//! Spans and metrics on their way to a receiver, or to a file of JSON lines.
//!
//! A request that could not be delivered in its time is given up and counted; those behind it get theirs. When the run has ended
//! all that is left has no more time than one request otherwise, so that a receiver that is gone keeps nobody waiting.

use super::client::{Client, Sent};
use super::target::{self, Destination, Target, environment};
use crate::export;
use anyhow::{Context, Result};
use report::export::{End, Exporter, Record, Run};
use report::metric::Family;
use report::otlp::spans::{Batch, Parent};
use report::otlp::{self, Attributes, Encoding, Request, Signal, metrics};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Spans of a request.
const SPANS: u64 = 512;
/// Bytes of a request: gRPC servers take 4 MiB unless told otherwise.
const BYTES: usize = 2 << 20;
/// Spans wait no longer than this for others.
const DELAY: Duration = Duration::from_secs(1);

/// See the module.
pub struct Otlp {
    way: Way,
    batch: Batch,
    /// When the first span of the batch came.
    since: Option<Instant>,
    run: Arc<Run>,
    given: Attributes,
    dest: export::Destination,
    /// What is left of the time after the end of the run.
    left: Option<Duration>,
}

enum Way {
    Server { runtime: Runtime, traces: Box<Client>, metrics: Box<Client>, patience: [Duration; 2] },
    File(Box<dyn Write + Send>),
}

/// Opens what `otlp=` names.
///
/// # Errors
/// It names nothing that can be sent to, or a file that cannot be written.
pub fn open(dest: &export::Destination, run: &Arc<Run>) -> Result<Box<dyn Exporter>> {
    let way = match Destination::new(dest.text(), &environment)? {
        Destination::File => Way::File(dest.create()?),
        Destination::Server { traces, metrics } => server(*traces, *metrics)?,
    };
    let encoding = match &way {
        Way::Server { traces, .. } => traces.encoding(),
        Way::File(_) => Encoding::Json,
    };
    let given = target::resource(&environment);
    let parent = environment("TRACEPARENT").as_deref().and_then(Parent::parse);
    let batch = Batch::new(run.clone(), given.clone(), parent, encoding);
    Ok(Box::new(Otlp { way, batch, since: None, run: run.clone(), given, dest: dest.clone(), left: None }))
}

fn server(traces: Target, metrics: Target) -> Result<Way> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no event loop for the network")?;
    let patience = [traces.timeout, metrics.timeout];
    let (traces, metrics) = (Box::new(Client::new(traces)), Box::new(Client::new(metrics)));
    Ok(Way::Server { runtime, traces, metrics, patience })
}

impl Otlp {
    fn send_spans(&mut self) -> io::Result<()> {
        self.since = None;
        if self.batch.is_empty() {
            return Ok(());
        }
        let request = self.batch.take();
        self.send(&request)
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        let (runtime, client, patience) = match &mut self.way {
            Way::File(file) => {
                file.write_all(&request.body)?;
                return file.write_all(b"\n");
            }
            Way::Server { runtime, traces, metrics, patience } => match request.signal {
                Signal::Traces => (runtime, traces, patience[0]),
                Signal::Metrics => (runtime, metrics, patience[1]),
            },
        };
        if self.left.is_none() && self.dest.is_closing() {
            self.left = Some(patience);
        }
        let begun = Instant::now();
        let sent = runtime.block_on(client.send(request, self.left.unwrap_or(patience)));
        self.left = self.left.map(|left| left.saturating_sub(begun.elapsed()));
        match sent {
            Sent::Taken { refused: 0, .. } => {}
            Sent::Taken { refused, message } => {
                self.dest.lose(refused, format!("the receiver refused some: {}", message.escape_debug()));
            }
            Sent::Failed(reason) => self.dest.lose(request.items, reason),
        }
        Ok(())
    }
}

impl Exporter for Otlp {
    fn record(&mut self, record: &Record) -> io::Result<()> {
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
        let mut of = self.given.clone();
        let mut say = |key: &str, value: &str| {
            if !of.iter().any(|(known, _)| known == key) {
                of.push((key.to_owned(), value.to_owned()));
            }
        };
        say("service.name", otlp::SCOPE);
        say("host.name", &self.run.host);
        let encoding = match &self.way {
            Way::Server { metrics, .. } => metrics.encoding(),
            Way::File(_) => Encoding::Json,
        };
        self.send(&metrics::request(families, period, &of, encoding))?;
        self.flush()
    }

    fn pending(&self) -> u64 {
        self.batch.len()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_spans()?;
        match &mut self.way {
            Way::File(file) => file.flush(),
            Way::Server { .. } => Ok(()),
        }
    }

    fn finish(&mut self, _: &End) -> io::Result<()> {
        self.flush()
    }
}
