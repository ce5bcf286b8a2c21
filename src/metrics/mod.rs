//! Maps as metrics during a run: families are built on the thread that reads events, on request, and rendered by the requesting
//! thread.
//!
//! ```text
//! GET /metrics -> SnapshotClient -> (event descriptor) -> Responder, a watch of the run -> families -> text
//! ```

mod devices;
mod own;
mod requests;
mod scrapes;
pub mod server;
mod utilization;

use crate::cli::Cli;
use crate::console::Messages;
use crate::export::kinds::ExportRequest;
use crate::export::{self, Exports, MetricsQueue};
use crate::gpu::Utilization;
use crate::symbolize::MachineNames;
use anyhow::Context;
use linux::timer::Timer;
use report::metrics::{ClauseRuns, Family, Health, Metrics};
use report::{Snapshot, metrics};
use requests::{MetricsSnapshot, SnapshotRequests};
use runtime::Session;
use runtime::kernel::clock::{Clock, SystemClock};
use runtime::run_stats::RunTimeStats;
use runtime::session::event_loop::{Next, Watch};
use server::Server;
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest interval between two readings of the maps, for all clients together.
const FRESH: Duration = Duration::from_millis(100);

/// Period of the deletion of keys of ended processes.
const SWEEP: Duration = Duration::from_secs(1);

/// OpenTelemetry's default period of metrics exports.
const INTERVAL: Duration = Duration::from_secs(60);

/// Whether the scripts of a run trace all that they are to trace.
pub trait ScriptHealth {
    /// Files that could not be traced, with the reason.
    fn untraced(&self) -> Vec<(PathBuf, String)>;

    /// Whether a script has no probe until a library is loaded.
    fn are_waiting(&self) -> bool;
}

/// Number of records that each sink has dropped so far, by its name on the command line.
pub type DropCounts = Box<dyn Fn() -> Vec<(String, u64)>>;

/// Converts a session's maps to families.
pub struct Collector<'a> {
    names: &'a MachineNames,
    scripts: &'a dyn ScriptHealth,
    metrics: Metrics,
    dropped: DropCounts,
    /// Use of the GPUs, as long as a thread can be had.
    utilization: Option<Utilization>,
    /// While it exists, the kernel measures the runs of programs.
    counting: Option<RunTimeStats>,
}

impl<'a> Collector<'a> {
    /// Starts measuring the runs of programs, if the kernel permits it.
    pub fn new(names: &'a MachineNames, scripts: &'a dyn ScriptHealth, dropped: DropCounts) -> Collector<'a> {
        names.processes.track();
        Collector {
            names,
            scripts,
            metrics: Metrics::default(),
            dropped,
            utilization: Utilization::start().ok(),
            counting: RunTimeStats::start().ok(),
        }
    }

    /// The current families.
    pub fn collect(&mut self, session: &Session) -> MetricsSnapshot {
        let (mut families, error) = match self.maps(session) {
            Ok(families) => (families, None),
            Err(error) => (Vec::new(), Some(error.to_string().into())),
        };
        if let Some(utilization) = &self.utilization {
            let is_traced = |pid| session.is_traced(pid);
            families.extend(utilization::families(&utilization.latest(), self.names, is_traced));
        }
        let health = self.health(session);
        families.extend(health.families(session.manifest()));
        let has_probes = !session.manifest().programs.is_empty();
        let unhealthy = unhealthy(&self.scripts.untraced(), &health, has_probes).map(Arc::from);
        MetricsSnapshot { families: Arc::new(families), error, unhealthy }
    }

    fn maps(&mut self, session: &Session) -> io::Result<Vec<Family>> {
        let manifest = session.manifest();
        let snapshots = self.settled(session, metrics::exported(manifest))?;
        Ok(self.metrics.families(manifest, self.names, &snapshots))
    }

    /// Deletes the keys of ended processes, so that maps do not fill up between readings.
    pub fn sweep(&mut self, session: &Session) -> io::Result<()> {
        self.settled(session, metrics::by_process(session.manifest())).map(drop)
    }

    /// The contents of maps, without the keys of ended processes, which are deleted.
    fn settled(&mut self, session: &Session, maps: Vec<u32>) -> io::Result<Vec<Snapshot>> {
        // Devices come first, since the labels of ended processes become final here.
        self.names.processes.learn_devices(devices::queried(session, self.names)?);
        self.names.processes.find_ended();
        let snapshots: io::Result<Vec<_>> = maps.into_iter().map(|map| session.snapshot(map, 0, 0)).collect();
        let mut snapshots = snapshots?;
        for snapshot in &mut snapshots {
            let keys = self.metrics.settle(session.manifest(), self.names, snapshot);
            session.delete(snapshot.map, &keys)?;
        }
        self.names.processes.forget_settled();
        Ok(snapshots)
    }

    fn health(&self, session: &Session) -> Health {
        let runs = match &self.counting {
            Some(_) => session.runs().unwrap_or_default(),
            None => Vec::new(),
        };
        Health {
            version: env!("CARGO_PKG_VERSION").into(),
            attached: session.attached(),
            failed: session.failures().len(),
            untraced: self.scripts.untraced().len(),
            waiting: self.scripts.are_waiting(),
            runs: runs
                .into_iter()
                .map(|runs| ClauseRuns { probe: runs.probe, hits: runs.hits, ns: runs.ns })
                .collect(),
            losses: session.losses().unwrap_or_default(),
            dropped: (self.dropped)(),
        }
    }
}

/// Serves requests in the event loop of a run.
struct Responder<'a> {
    requests: SnapshotRequests,
    collector: Rc<RefCell<Collector<'a>>>,
    last: Option<(Instant, MetricsSnapshot)>,
}

impl Responder<'_> {
    fn reading(&mut self, session: &Session) -> MetricsSnapshot {
        match &self.last {
            Some((when, reading)) if when.elapsed() < FRESH => reading.clone(),
            _ => {
                let reading = self.collector.borrow_mut().collect(session);
                self.last = Some((Instant::now(), reading.clone()));
                reading
            }
        }
    }
}

impl Watch for Responder<'_> {
    fn fd(&self) -> RawFd {
        self.requests.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        for answer in self.requests.take().collect::<Vec<_>>() {
            // The client may have closed its connection.
            let _ = answer.send(self.reading(session));
        }
        Next::Continue
    }
}

/// A periodic task on the maps.
struct Periodic<F> {
    timer: Timer,
    task: F,
}

impl<F: FnMut(&Session)> Watch for Periodic<F> {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.timer.take();
        (self.task)(session);
        Next::Continue
    }
}

/// Sends the families to exports.
fn push(collector: &RefCell<Collector>, queues: &[MetricsQueue], session: &Session) {
    let snapshot = collector.borrow_mut().collect(session);
    let now = SystemClock.boot_ns();
    queues.iter().for_each(|queue| queue.send(&snapshot.families, now));
}

/// All metrics of a run.
pub struct MetricsOutputs<'a> {
    collector: Rc<RefCell<Collector<'a>>>,
    queues: Rc<Vec<MetricsQueue>>,
    servers: Vec<Server>,
}

/// Listens on the addresses of `--export openmetrics=ADDR`.
pub fn bind(cli: &Cli) -> anyhow::Result<Vec<Server>> {
    endpoints(cli).map(|request| Server::bind(&request.dest)).collect()
}

/// Refuses addresses of endpoints and settings that are none, without listening.
pub fn check(cli: &Cli) -> anyhow::Result<()> {
    if cli.export.iter().any(|request| request.kind.metrics && request.kind.open.is_some()) {
        push_interval()?;
    }
    endpoints(cli).try_for_each(|request| server::addresses(&request.dest).map(drop))
}

/// The exports that are scraped.
fn endpoints(cli: &Cli) -> impl Iterator<Item = &ExportRequest> {
    cli.export.iter().filter(|request| request.kind.name == export::kinds::OPENMETRICS)
}

/// Time between two exports of metrics to a receiver.
fn push_interval() -> anyhow::Result<Duration> {
    let variable = "OTEL_METRIC_EXPORT_INTERVAL";
    let Some(text) = export::otlp::destination::environment(variable) else { return Ok(INTERVAL) };
    let ms = text
        .trim()
        .parse()
        .with_context(|| format!("{variable}={text}: expected milliseconds, such as 60000"))?;
    Ok(Duration::from_millis(ms).max(FRESH))
}

impl<'a> MetricsOutputs<'a> {
    /// Metrics for `servers` and the exports in `queues`; `None` if there are neither.
    pub fn new(
        servers: Vec<Server>,
        exports: &Exports,
        names: &'a MachineNames,
        scripts: &'a dyn ScriptHealth,
    ) -> Option<MetricsOutputs<'a>> {
        let queues = exports.metrics();
        if servers.is_empty() && queues.is_empty() {
            return None;
        }
        let summaries = exports.summaries();
        let drop_counts = move || {
            let of = |summary: &Arc<export::ExportSummary>| {
                (summary.what.clone(), summary.dropped() + summary.lost().count)
            };
            summaries.iter().map(of).collect()
        };
        let collector = Rc::new(RefCell::new(Collector::new(names, scripts, Box::new(drop_counts))));
        Some(MetricsOutputs { collector, queues: Rc::new(queues), servers })
    }

    /// Starts the servers and periodic exports.
    pub fn watches(&mut self, messages: &Messages) -> anyhow::Result<Vec<Box<dyn Watch + 'a>>> {
        let mut watches: Vec<Box<dyn Watch + 'a>> = Vec::new();
        let collector = self.collector.clone();
        // An error of the maps is reported when they are read for families.
        let sweep = move |session: &Session| _ = collector.borrow_mut().sweep(session);
        watches.push(Box::new(Periodic { timer: Timer::new(SWEEP, SWEEP)?, task: sweep }));
        for server in std::mem::take(&mut self.servers) {
            let (client, requests) = requests::channel()?;
            messages.note(&format!("metrics at http://{}/metrics", server.address));
            server.start(client);
            watches.push(Box::new(Responder { requests, collector: self.collector.clone(), last: None }));
        }
        if !self.queues.is_empty() {
            let every = push_interval()?;
            let (collector, queues) = (self.collector.clone(), self.queues.clone());
            let task = move |session: &Session| push(&collector, &queues, session);
            watches.push(Box::new(Periodic { timer: Timer::new(every, every)?, task }));
        }
        Ok(watches)
    }

    /// Sends the families at the end of the run.
    pub fn finish(&self, session: &Session) {
        if !self.queues.is_empty() {
            push(&self.collector, &self.queues, session);
        }
    }
}

/// The reason why not everything is traced. A library that no process has mapped yet is not one.
fn unhealthy(untraced: &[(PathBuf, String)], health: &Health, has_probes: bool) -> Option<String> {
    if let Some((path, why)) = untraced.first() {
        return Some(format!("{}: not traced: {why}", path.display()));
    }
    let nothing = has_probes && health.attached == 0 && !health.waiting;
    nothing.then(|| format!("no probe is attached, {} attach points were refused", health.failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_traces_nothing_is_unhealthy_unless_it_waits() {
        let health = |attached, waiting| Health { attached, failed: 7, waiting, ..Health::default() };
        assert_eq!(unhealthy(&[], &health(3, false), true), None);
        assert_eq!(unhealthy(&[], &health(0, true), true), None);
        assert_eq!(unhealthy(&[], &health(0, false), false), None, "a prompt without a clause");
        let why = unhealthy(&[], &health(0, false), true);
        assert_eq!(why.as_deref(), Some("no probe is attached, 7 attach points were refused"));
        let files = [(PathBuf::from("/lib/libcuda.so.1"), "no such file".to_owned())];
        let why = unhealthy(&files, &health(3, false), true);
        assert_eq!(why.as_deref(), Some("/lib/libcuda.so.1: not traced: no such file"));
    }
}
