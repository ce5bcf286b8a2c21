//! What the agents say: which times are exact, and what was lost.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use runtime::gpu_agent::{Report, State};

use super::cupti::{fault, release};
use crate::console::Messages;

/// `CUPTI_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: u32 = 15;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`
const MULTIPLE_SUBSCRIBERS: u32 = 39;

/// The last reports of all agents. A process that executes another program has an agent for each.
#[derive(Default)]
pub struct Reports(RefCell<All>);

#[derive(Default)]
struct All {
    /// Reports of agents that run, by process.
    running: BTreeMap<u32, Report>,
    /// Reports of agents that have ended, or whose process has, with the process.
    ended: Vec<(u32, Report)>,
}

impl All {
    fn each(&self) -> impl Iterator<Item = &Report> {
        self.running.values().chain(self.ended.iter().map(|(_, report)| report))
    }
}

impl Reports {
    /// Takes a report; the first one of a process tells whether records come.
    pub(super) fn take(&self, pid: u32, report: Report, messages: &Messages) {
        if self.0.borrow_mut().running.insert(pid, report).is_some() {
            return;
        }
        let release = release(report.version);
        match is(&report, State::NoCupti) || is(&report, State::Refused) {
            true => messages.lost(&why_none(pid, &release, &report)),
            false => messages.detail(|| format!("process {pid}: GPU records by {release}")),
        }
        if let Some(fault) = fault(report.version) {
            messages.warning(&format!(
                "process {pid} has {release}, which {fault}; a newer one can be put into LD_LIBRARY_PATH"
            ));
        }
    }

    /// The agent of a process has ended.
    pub(super) fn end(&self, pid: u32) {
        let mut all = self.0.borrow_mut();
        let last = all.running.remove(&pid).unwrap_or_default();
        all.ended.push((pid, last));
    }

    /// Prints what was collected, and all that was lost.
    pub fn print(&self, messages: &Messages) {
        let all = self.0.borrow();
        if all.each().next().is_none() {
            return messages.warning(
                "no GPU records: no process has initialised CUDA while it was traced; if one has, but as another user or in a container, \
                 trace it with `-p PID`",
            );
        }
        let exact: Vec<&Report> = all.each().filter(|report| has_records(report)).collect();
        let releases: BTreeSet<String> = exact.iter().map(|report| release(report.version)).collect();
        if !exact.is_empty() {
            let records: u64 = exact.iter().flat_map(|report| report.passed).sum();
            let releases: Vec<String> = releases.into_iter().collect();
            let processes = if exact.len() == 1 { "process" } else { "processes" };
            messages.note(&format!(
                "GPU times are exact ({}): {records} records of {} {processes}",
                releases.join(", "),
                exact.len()
            ));
        }
        let total = |count: fn(&Report) -> u64| -> u64 { all.each().map(count).sum() };
        let losses = [
            (total(|report| report.dropped), "GPU records were dropped by CUPTI"),
            (total(|report| report.refused), "times CUPTI got no buffer, and dropped records"),
            (total(|report| report.without_time), "GPU records had no time, and were left out"),
            (
                total(|report| report.clock_steps),
                "times the wall clock was set: GPU times are wrong around that",
            ),
        ];
        for (count, what) in losses {
            if count > 0 {
                messages.lost(&format!("{count} {what}"));
            }
        }
        let early = all.ended.iter().filter(|(_, report)| is(report, State::Collects));
        for (pid, _) in early {
            messages.lost(&format!(
                "process {pid} was killed, or executed another program: its last GPU records may be missing"
            ));
        }
    }
}

fn is(report: &Report, state: State) -> bool {
    report.state == state as u32
}

fn has_records(report: &Report) -> bool {
    report.state >= State::Collects as u32
}

/// Why there are no records of a process.
fn why_none(pid: u32, release: &str, report: &Report) -> String {
    match (report.status, report.kind) {
        _ if is(report, State::NoCupti) => format!(
            "process {pid} has no CUPTI, which GPU records need: install it with CUDA's toolkit or by `pip install nvidia-cuda-cupti`, \
             and put its folder into LD_LIBRARY_PATH"
        ),
        (MULTIPLE_SUBSCRIBERS, _) => {
            let holder = match report.holder.split(|byte| *byte == 0).next() {
                Some(name @ [_, ..]) => format!("`{}`", String::from_utf8_lossy(name)),
                _ => "such as torch.profiler, Nsight or a debugger".into(),
            };
            format!("no GPU records of process {pid}: another tool uses CUPTI there, {holder}")
        }
        (NOT_INITIALIZED, _) => format!(
            "no GPU records of process {pid}: its driver is older than {release}; put the folder of an older one into LD_LIBRARY_PATH"
        ),
        (status, 0) => format!("no GPU records of process {pid}: {release} refuses with error {status}"),
        (status, kind) => format!(
            "no GPU records of process {pid}: {release} refuses `CUpti_ActivityKind` {kind} with error {status}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_executes_another_program_counts_for_both() {
        let reports = Reports::default();
        let report = |passed| Report { state: State::Collects as u32, passed, ..Report::default() };
        for passed in [[3, 0, 0, 0, 0, 0, 0, 0], [4, 0, 0, 0, 0, 0, 0, 0]] {
            reports.0.borrow_mut().running.insert(7, report(passed));
            reports.end(7);
        }
        let all = reports.0.borrow();
        assert_eq!(all.each().flat_map(|report| report.passed).sum::<u64>(), 7);
        assert_eq!((all.running.len(), all.ended.len()), (0, 2));
    }
}
