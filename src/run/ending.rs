//! The end of a run: what was lost, what was never traced, where it ran, and the exit status.

use super::attached::PreparedRun;
use super::compiled;
use super::exit_status;
use super::extender::Extender;
use super::outputs::Outputs;
use super::plan::Plan;
use super::unmapped_files::UnmappedTargets;
use crate::metrics::MetricsOutputs;
use crate::symbolize::MachineNames;
use crate::{Failure, gpu};
use runtime::started::Child;
use runtime::{Ending, Session};

/// Exit status if clauses for a library that was loaded later could not be loaded, as if it had been there at the start.
const NOT_LOADED: u8 = 255;

/// A run that has ended.
pub struct EndedRun<'e> {
    pub plan: &'e Plan<'e>,
    pub ending: Ending,
    pub prepared: PreparedRun,
    pub names: &'e MachineNames,
    pub extender: &'e Extender<'e>,
    pub unmapped: UnmappedTargets<'e>,
    pub gpu_reports: &'e gpu::Reports,
}

impl EndedRun<'_> {
    /// Closes session and outputs, and reports; returns the exit status.
    pub fn report(self, mut session: Session, metrics: Option<MetricsOutputs>) -> Result<u8, Failure> {
        if let Some(metrics) = &metrics {
            metrics.finish(&session);
        }
        self.report_processes(&mut session);
        let (attached, patched) = (session.attached(), session.patched());
        drop(session);
        let EndedRun { plan, ending, prepared, extender, unmapped, gpu_reports, .. } = self;
        let PreparedRun { outputs: Outputs { signals, sink, .. }, child, .. } = prepared;
        let messages = plan.messages;
        let was_silent = sink.was_silent();
        let lost = sink.close(messages, &|| signals.is_waiting());
        if let Some(patched) = patched {
            messages.note(&compiled::where_it_ran(patched, plan.in_kernel.as_deref()));
        }
        let saw_all_mappings = !extender.may_miss_mappings() && child.as_ref().is_none_or(Child::is_watched);
        let is_explained = extender.scripts.report_missing(saw_all_mappings)
            | unmapped.report(&ending, child.as_ref(), extender, messages);
        if was_silent && !is_explained && prints_maps(plan) {
            exit_status::report_no_output(&ending, attached, messages);
        }
        let status = exit_status::status(&ending, child.map(|child| (child, &signals)), messages)?;
        let status = exit_status::of_results(status, &ending, extender);
        Ok(match status {
            0 if extender.scripts.has_failed() => NOT_LOADED,
            0 if (lost | gpu_reports.are_incomplete()) && plan.cli.fail_on_loss => crate::LOST,
            status => status,
        })
    }

    /// Reports what is known of single processes.
    fn report_processes(&self, session: &mut Session) {
        let messages = self.plan.messages;
        if self.plan.records.is_some() {
            self.gpu_reports.print(messages);
        }
        self.names.report_cut_stacks(messages);
        exit_status::report_survivors(&self.ending, session, &self.plan.target.pids, messages);
        for (pid, reason) in session.kept_jumps() {
            messages.warning(&format!(
                "process {pid} keeps the jumps of the probes, which pass by now: {reason}; the next `--in-process -p {pid}` removes them"
            ));
        }
        exit_status::report_expelled(session, messages);
    }
}

/// Whether the end prints maps, so that a run without any output is a surprise.
fn prints_maps(plan: &Plan) -> bool {
    let manifest = plan.manifest();
    manifest.print_maps_on_exit && manifest.metrics.iter().all(|metric| !metric.declared)
}
