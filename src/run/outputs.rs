//! Outputs of a run: the script's text, exports, metrics, the live display of a recording; and the signals that stop the run or flush the
//! exports. All are opened before anything is traced: a wrong path or port is reported before the program starts.

use super::plan::Plan;
use super::setup;
use crate::export::kinds::ExportRequest;
use crate::export::{self, ExportSummary, Exports, FlushOn, Observer};
use crate::{Failure, metrics};
use anyhow::Context;
use report::export::Record;
use runtime::kernel::clock::{Epoch, SystemClock};
use runtime::kernel::signals::StopSignals;
use runtime::session::event_loop::Watch;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use wire::manifest::{Event, EventKind, Message};

/// Additional outputs of a run that is recorded.
pub struct RecordingOutputs {
    /// Destinations of the records.
    pub exports: Vec<ExportRequest>,
    /// Callback that gets all records.
    pub observer: Observer,
    /// Creates the live display from the exports' counters.
    pub live: OpenLive,
    /// The surroundings of the program, as far as they are known before it runs.
    pub environment: BTreeMap<String, String>,
    /// Records beside those of the scripts.
    pub samples: Receiver<Record>,
}

/// Creates the live display of a recording from the exports' counters.
pub type OpenLive = Box<dyn FnOnce(Vec<Arc<ExportSummary>>) -> anyhow::Result<Box<dyn Watch>>>;

/// The opened outputs.
pub struct Outputs {
    pub signals: StopSignals,
    /// Signals that flush the exports.
    pub flushing: Vec<i32>,
    pub sink: Exports,
    pub epoch: Epoch,
    /// Live display of a recording.
    live: Option<Box<dyn Watch>>,
    pub servers: Vec<metrics::server::Server>,
}

impl Outputs {
    /// Opens all outputs.
    pub fn open(plan: &Plan, recording: Option<RecordingOutputs>) -> Result<Outputs, Failure> {
        let sees_all_processes = !plan.cli.export.is_empty() || recording.is_some();
        let flushing = if sees_all_processes { export::flushing() } else { Vec::new() };
        let signals = StopSignals::install_without(&flushing)
            .context("cannot catch signals")
            .map_err(Failure::loading)?;
        let epoch = Epoch::new(&SystemClock);
        let requests = recording.as_ref().map_or(&plan.cli.export[..], |recording| &recording.exports);
        let open = || sink(plan, &epoch, requests, recording.as_ref());
        let mut sink = signals.while_opening(open).map_err(Failure::wrong)?;
        let live = recording.map(|recording| {
            sink.observe(recording.observer, recording.samples);
            (recording.live)(sink.summaries())
        });
        warn_of_unpublished_metrics(plan);
        let servers = if plan.cli.dry_run { Ok(Vec::new()) } else { metrics::bind(plan.cli) };
        Ok(Outputs {
            signals,
            flushing,
            sink,
            epoch,
            live: live.transpose().map_err(Failure::loading)?,
            servers: servers.map_err(Failure::wrong)?,
        })
    }

    /// Periodic tasks of the outputs.
    pub fn watches(&mut self) -> anyhow::Result<Vec<Box<dyn Watch>>> {
        let mut watches: Vec<Box<dyn Watch>> = self.live.take().into_iter().collect();
        if !self.flushing.is_empty() {
            let flush = FlushOn::signals(&self.flushing, self.sink.flush_flag());
            watches.push(Box::new(flush.context("cannot catch signals")?));
        }
        Ok(watches)
    }
}

/// Creates the sink of the script's output, with the exports.
fn sink(
    plan: &Plan,
    epoch: &Epoch,
    requests: &[ExportRequest],
    recording: Option<&RecordingOutputs>,
) -> anyhow::Result<Exports> {
    let recorded = recording.is_some();
    let out: Box<dyn io::Write> = if recorded { Box::new(io::sink()) } else { Box::new(io::stdout()) };
    let inner = setup::sink(plan.cli, out, Box::new(io::stderr()), plan.cli.quiet || recorded)?;
    let argv = plan.target.argv.as_deref().unwrap_or_default();
    let mut run = export::run(epoch, &plan.manifest().scripts().join(" "), argv, &plan.target.pids);
    run.environment = recording.map_or(BTreeMap::new(), |recording| recording.environment.clone());
    let requests = if plan.cli.dry_run { &[][..] } else { requests };
    Exports::open(requests, &plan.cli.export_options(), &Arc::new(run), inner)
}

/// Prints the addresses of metrics, for scripts that print nothing themselves.
fn warn_of_unpublished_metrics(plan: &Plan) {
    let manifest = plan.manifest();
    let is_warning = |event: &Event| matches!(event.kind, EventKind::Message { what: Message::Warning, .. });
    let is_test = plan.cli.run() != lang::Run::Traces;
    let silent = !is_test && !manifest.print_maps_on_exit && manifest.events.iter().all(is_warning);
    if silent && !manifest.metrics.is_empty() && plan.cli.export.is_empty() {
        plan.messages.warning(
            "this script prints nothing; to publish its metrics add `--export openmetrics=9464` for Prometheus, or \
             `--export otlp=URL`",
        );
    }
}
