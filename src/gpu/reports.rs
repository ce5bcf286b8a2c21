//! Notes and warnings about GPU records: what the user is told.
//!
//! In: reports of the agent, the library of ours in each traced process that reads the records from CUPTI. Out: which processes have times
//! of the GPU, and which only an estimate by NVML; what was lost, and why; which connections were refused.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linux::proc;
use report::value::escape;
use runtime::gpu::{LaunchCounts, MULTIPLE_SUBSCRIBERS, Operators, Report, ReportError, State};

use super::cupti::{fault, file_with, release, way_out};
use super::nvml::Utilization;
use crate::console::Messages;

/// `CUPTI_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: u32 = 15;

/// Number of releases of CUPTI that are named.
const RELEASES: usize = 16;
/// Number of refused processes that are named in messages.
const NAMED: usize = 3;
/// Number of processes with lost records that are named in messages.
const NAMED_LOSSES: u64 = 20;

/// Reports of all agents. A process that executes another program has an agent for each.
#[derive(Default)]
pub struct Reports {
    all: RefCell<All>,
    /// A message tells why a process has no records.
    is_explained: Cell<bool>,
    estimate: RefCell<Option<Estimate>>,
    /// An agent has reported what an agent cannot report.
    are_damaged: Cell<bool>,
    refused: RefCell<RefusedConnections>,
}

/// Connections that were refused.
#[derive(Default)]
struct RefusedConnections {
    count: u64,
    /// The first processes.
    named: BTreeSet<Option<u32>>,
}

/// Why a connection is refused.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its process is not traced.
    NotTraced,
    /// Its process did not send the secret of the agent in time.
    NoProof,
    /// Its process has an agent already, or is not trusted any more.
    NotAgain,
}

/// Estimates for processes without records.
struct Estimate {
    utilization: Utilization,
    pids: BTreeSet<u32>,
}

#[derive(Default)]
struct All {
    /// Last reports of agents that run, by process.
    running: BTreeMap<u32, Report>,
    /// Totals of agents that have ended, or whose process has: there may be any number of them.
    ended: Totals,
    /// Processes without all records, the first ones.
    losses: Vec<Loss>,
    /// Number of all of these, of those that a message names, and of the launches without a record.
    incomplete: u64,
    named: u64,
    launches_without: u64,
}

/// A process without all records.
struct Loss {
    pid: u32,
    end: AgentEnd,
    /// `None`: they were not counted.
    launches: Option<LaunchCounts>,
}

/// How an agent has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentEnd {
    /// As it was asked to, or with its process.
    InTime,
    /// Its process has ended without notice.
    Killed,
    /// Its process executes another program.
    Executed,
}

impl AgentEnd {
    /// Reason for the loss.
    fn reason(self) -> &'static str {
        match self {
            AgentEnd::InTime => "the trace or the process ended before the GPU had done them",
            AgentEnd::Killed => "it was killed, or ended without calling exit",
            AgentEnd::Executed => "it executed another program",
        }
    }
}

impl Loss {
    /// `None` if there is no loss.
    fn new(pid: u32, end: AgentEnd, launches: Option<LaunchCounts>) -> Option<Loss> {
        let loss = Loss { pid, end, launches };
        let is_loss = match launches {
            None => end != AgentEnd::InTime,
            Some(_) => loss.without() > 0,
        };
        is_loss.then_some(loss)
    }

    /// Launches without a record. A graph may have no work of which there is one, so it counts only if the agent has not ended in time.
    fn without(&self) -> u64 {
        self.launches.map_or(0, |launches| {
            let graphs = if self.end == AgentEnd::InTime { 0 } else { launches.graphs_without };
            launches.kernels_without + graphs
        })
    }

    fn text(&self) -> String {
        let Loss { pid, end, launches } = self;
        match launches {
            None => format!("process {pid}: its last GPU records may be missing, since {}", end.reason()),
            Some(launches) => format!(
                "process {pid}: {} of {} launches have no GPU record, since {}",
                self.without(),
                launches.kernels + launches.graphs,
                end.reason()
            ),
        }
    }
}

/// Totals of reports.
#[derive(Clone, Default)]
struct Totals {
    reports: u64,
    /// Processes whose records CUPTI gives; of others there is an estimate by NVML at most.
    exact: u64,
    releases: BTreeSet<String>,
    records: u64,
    dropped: u64,
    refused: u64,
    without_time: u64,
    clock_steps: u64,
    missed: u64,
    /// Processes whose operators of PyTorch are known, and processes without PyTorch.
    with_operators: u64,
    without_pytorch: u64,
}

impl Totals {
    /// Records that CUPTI or the agent has dropped, as far as that is known.
    fn lost(&self) -> u64 {
        self.dropped.saturating_add(self.refused).saturating_add(self.without_time)
    }

    fn add(&mut self, report: &Report) {
        let add = |total: &mut u64, number: u64| *total = total.saturating_add(number);
        add(&mut self.reports, 1);
        let records = report.passed.iter().fold(0, |sum: u64, records| sum.saturating_add(*records));
        if has_records(report) {
            add(&mut self.exact, 1);
            // A traced process can claim any release.
            if self.releases.len() < RELEASES {
                self.releases.insert(release(report.version));
            }
            add(&mut self.records, records);
        }
        add(&mut self.dropped, report.dropped);
        add(&mut self.refused, report.refused);
        add(&mut self.without_time, report.without_time);
        add(&mut self.clock_steps, report.clock_steps);
        add(&mut self.missed, report.missed);
        let operators = |state| u64::from(report.operators == state as u32);
        add(&mut self.with_operators, operators(Operators::Come));
        add(&mut self.without_pytorch, operators(Operators::NoPyTorch));
    }
}

impl All {
    fn totals(&self) -> Totals {
        let mut totals = self.ended.clone();
        self.running.values().for_each(|report| totals.add(report));
        totals
    }

    /// The agent of a process has ended. `way`: how, if it was not in time.
    fn end(&mut self, pid: u32, way: AgentEnd, launches: Option<LaunchCounts>) {
        let last = self.running.remove(&pid).unwrap_or_default();
        self.ended.add(&last);
        let way = if is(&last, State::Collects) { way } else { AgentEnd::InTime };
        let Some(loss) = Loss::new(pid, way, launches) else {
            return;
        };
        self.launches_without = self.launches_without.saturating_add(loss.without());
        if self.is_named() {
            self.losses.push(loss);
        }
    }

    /// Counts a process without all records; returns whether a message names it.
    fn is_named(&mut self) -> bool {
        self.incomplete += 1;
        let is_named = self.named < NAMED_LOSSES;
        self.named += u64::from(is_named);
        is_named
    }
}

impl Reports {
    /// Takes a report; returns whether it is the first one of a process, which tells whether records come. `named`: the files of CUPTI that the
    /// user has named.
    pub(super) fn take(&self, pid: u32, report: Report, named: &[PathBuf], messages: &Messages) -> bool {
        let earlier = self.all.borrow_mut().running.insert(pid, report);
        let lacks_operators = |report: &Report| report.operators == Operators::Refused as u32;
        if lacks_operators(&report) && !earlier.is_some_and(|earlier| lacks_operators(&earlier)) {
            messages.lost(&format!(
                "operators of PyTorch are not seen in process {pid}: its PyTorch is older than 2.0, or the process is out of memory"
            ));
        }
        if earlier.is_some() {
            return false;
        }
        let release = release(report.version);
        if !has_records(&report) {
            self.estimate(pid);
            self.explain(pid, &why_none(&release, pid, &report, named), messages);
            return true;
        }
        messages.detail(|| format!("process {pid}: GPU records by {release}"));
        if report.graphs_lack_records != 0 && self.all.borrow_mut().is_named() {
            messages.lost(&format!(
                "work of graphs has no records in process {pid}, since an earlier trace took its graphs as a whole (`gpu:graph`): CUPTI \
                 keeps that until the process ends"
            ));
        }
        if let Some(fault) = fault(report.version) {
            messages.warning(&format!(
                "process {pid} has {release}, which {fault}; a newer one can be put into LD_LIBRARY_PATH"
            ));
        }
        true
    }

    /// Lets NVML sample the use of the GPUs by a process.
    fn estimate(&self, pid: u32) {
        let mut estimate = self.estimate.borrow_mut();
        if estimate.is_none() {
            *estimate =
                Utilization::start().ok().map(|utilization| Estimate { utilization, pids: BTreeSet::new() });
        }
        estimate.iter_mut().for_each(|estimate| _ = estimate.pids.insert(pid));
    }

    /// Tells why a process has no records.
    pub(super) fn explain(&self, pid: u32, why: &str, messages: &Messages) {
        self.is_explained.set(true);
        if self.all.borrow_mut().is_named() {
            messages.lost(&format!("no GPU records of process {pid}: {why}"));
        }
    }

    /// A process was found when it had a context of CUDA already.
    pub(super) fn miss_first(&self, pid: u32, messages: &Messages) {
        if self.all.borrow_mut().is_named() {
            messages.lost(&format!(
                "the first GPU records of process {pid} may be missing: it used CUDA before the library that reads them was loaded"
            ));
        }
    }

    /// A process has used the driver, and ended before its agent reported anything.
    pub(super) fn miss(&self, pid: u32, messages: &Messages) {
        self.is_explained.set(true);
        if self.all.borrow_mut().is_named() {
            messages.lost(&format!(
                "process {pid} has no GPU records: it ended before the library that reads them was ready"
            ));
        }
    }

    /// Tells that a process has no agent since it has not called the driver, which is no failure.
    pub(super) fn explain_no_call(&self, pid: u32, messages: &Messages) {
        self.is_explained.set(true);
        messages.note(&format!("process {pid} made no call of CUDA's driver while it was traced"));
    }

    /// The agent of a process has ended. `way`: how its process has ended, if it has not reported its end.
    pub(super) fn end(&self, pid: u32, way: AgentEnd, launches: Option<LaunchCounts>, messages: &Messages) {
        if !self.all.borrow().running.contains_key(&pid) {
            return self.miss(pid, messages);
        }
        self.all.borrow_mut().end(pid, way, launches);
    }

    /// A process has sent what no agent sends. What it reported before still counts.
    pub(super) fn distrust(&self, pid: u32, error: ReportError, messages: &Messages) {
        self.are_damaged.set(true);
        let mut all = self.all.borrow_mut();
        let last = all.running.remove(&pid).unwrap_or_default();
        all.ended.add(&last);
        messages.lost(&format!(
            "process {pid} sent {error} in place of its agent: its GPU records are not trusted from here on"
        ));
    }

    /// Whether records are missing, or an agent has reported what an agent cannot report.
    pub fn are_incomplete(&self) -> bool {
        let all = self.all.borrow();
        self.are_damaged.get() || all.incomplete > 0 || all.totals().lost() > 0
    }

    /// A connection was refused. `pid`: its process, if this pid namespace has it. The first ones are told.
    pub(super) fn refuse(&self, pid: Option<u32>, why: Refusal, messages: &Messages) {
        let mut refused = self.refused.borrow_mut();
        refused.count += 1;
        if refused.named.len() >= NAMED || !refused.named.insert(pid) {
            return;
        }
        let process = match pid {
            Some(pid) => format!("process {pid}"),
            None => "a process of another pid namespace".to_owned(),
        };
        messages.note(&match why {
            Refusal::NotTraced => {
                format!("{process} is not traced but connected in the name of a traced process: refused")
            }
            Refusal::NoProof => {
                format!("{process} connected as an agent, without the secret of the agent: refused")
            }
            Refusal::NotAgain => format!("{process} connected as an agent a second time: refused"),
        });
    }

    /// Prints what was collected, and all that was lost.
    pub fn print(&self, messages: &Messages) {
        let refused = self.refused.borrow();
        if refused.count > refused.named.len() as u64 {
            messages
                .note(&format!("{} connections of processes without an agent were refused", refused.count));
        }
        let all = self.all.borrow();
        let totals = all.totals();
        if totals.reports == 0 && self.is_explained.get() {
            return;
        }
        if totals.reports == 0 {
            return messages.warning(
                "no GPU records: no traced process used CUDA, or not for long enough; a process that a container, a service or a shell in the \
                 background has started must be named: `-p PID`",
            );
        }
        if totals.exact > 0 {
            let releases: Vec<&str> = totals.releases.iter().map(String::as_str).collect();
            let processes = if totals.exact == 1 { "process" } else { "processes" };
            let what = if all.incomplete == 0 && totals.lost() == 0 {
                "are exact"
            } else {
                "are exact, but some are missing"
            };
            messages.note(&format!(
                "GPU times {what} ({}): {} records of {} {processes}",
                releases.join(", "),
                totals.records,
                totals.exact
            ));
        }
        if totals.with_operators == 0 && totals.without_pytorch > 0 {
            messages.note("no operators: no traced process has loaded PyTorch");
        }
        for Estimate { utilization, pids } in self.estimate.borrow().iter() {
            for (pid, (uuid, percent)) in
                pids.iter().flat_map(|pid| utilization.mean(*pid).into_iter().map(move |used| (pid, used)))
            {
                messages.note(&format!(
                    "an estimate by NVML: kernels of process {pid} ran for {percent} % of the time on {uuid}"
                ));
            }
        }
        let losses = [
            (totals.dropped, "GPU records were dropped by CUPTI"),
            (totals.refused, "times CUPTI got no buffer, and dropped records"),
            (totals.without_time, "GPU records had no time, and were left out"),
            (totals.clock_steps, "times the wall clock was set: GPU times are wrong around that"),
            (
                totals.missed,
                "kernel records came late: the idle time that was reported around them is too long",
            ),
        ];
        for (count, what) in losses {
            if count > 0 {
                messages.lost(&format!("{count} {what}"));
            }
        }
        all.losses.iter().for_each(|loss| messages.lost(&loss.text()));
        let more = all.incomplete - all.named;
        if more > 0 {
            messages.lost(&format!(
                "{more} more processes lack GPU records; {} launches of all have none",
                all.launches_without
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

/// Why CUPTI gives no records of a process, and what to do.
fn why_none(release: &str, pid: u32, report: &Report, named: &[PathBuf]) -> String {
    match (report.status, report.kind) {
        _ if is(report, State::NoCupti) && report.version > 0 => {
            format!("it has {release}, which is too old: {}", way_out(pid))
        }
        _ if is(report, State::NoCupti) => match named {
            [] => format!("it has no CUPTI: {}", way_out(pid)),
            [file, ..] => format!("it cannot load CUPTI from {}, the file of `--lib`", quoted(file)),
        },
        (MULTIPLE_SUBSCRIBERS, _) => {
            format!("another tool uses CUPTI there, {}: trace a run without it", holder(pid, report))
        }
        (NOT_INITIALIZED, _) => format!(
            "its driver is older than {release}, or one of its kernels has failed; for an older driver name an older CUPTI by `--lib \
             libcupti=PATH`, or put its folder into LD_LIBRARY_PATH, and start the program again"
        ),
        (0, _) => "no memory is left".to_owned(),
        (status, 0) => format!("{release} refuses with error {status}"),
        (status, kind) => format!("{release} refuses `CUpti_ActivityKind` {kind} with error {status}"),
    }
}

/// A path in a message.
fn quoted(file: &Path) -> String {
    format!("`{}`", escape(file.as_os_str().as_encoded_bytes()))
}

/// Libraries that use CUPTI, by the begin of their names.
const TOOLS: [(&str, &str); 5] = [
    ("libToolsInjection", "Nsight Systems"),
    ("libnsys", "Nsight Systems"),
    ("libtorch_cpu", "probably torch.profiler, which keeps it when it has ended"),
    ("libjax", "probably JAX's profiler"),
    ("libtensorflow", "probably TensorFlow's profiler"),
];

/// Which tool has CUPTI: its name if CUPTI knows it, else by what the process has loaded.
fn holder(pid: u32, report: &Report) -> String {
    let name = report.holder.split(|byte| *byte == 0).next().unwrap_or_default();
    if !name.is_empty() && !name.windows(UNNAMED.len()).any(|part| part == UNNAMED) {
        return format!("`{}`", escape(name));
    }
    let mappings = proc::mappings(pid);
    let tool = TOOLS.iter().find(|(library, _)| file_with(&mappings, library).is_some());
    tool.map_or("such as torch.profiler, Nsight or a debugger", |(_, tool)| tool).to_owned()
}

/// CUPTI's name for a tool that has given none.
const UNNAMED: &[u8] = b"not provided";

#[cfg(test)]
mod tests {
    use super::*;

    /// The losses of a process whose last report has this state.
    fn losses(state: State, way: AgentEnd, launches: Option<LaunchCounts>) -> Vec<String> {
        let mut all = All::default();
        all.running.insert(7, Report { state: state as u32, ..Report::default() });
        all.end(7, way, launches);
        all.losses.iter().map(Loss::text).collect()
    }

    #[test]
    fn a_process_that_executes_another_program_counts_for_both() {
        let reports = Reports::default();
        for kernels in [3, 4] {
            let mut report = Report { state: State::Collects as u32, ..Report::default() };
            report.passed[0] = kernels;
            reports.all.borrow_mut().running.insert(7, report);
            reports.all.borrow_mut().end(7, AgentEnd::Executed, None);
        }
        let all = reports.all.borrow();
        let totals = all.totals();
        assert_eq!((totals.records, totals.exact, totals.reports), (7, 2, 2));
        assert_eq!((all.running.len(), all.incomplete), (0, 2));
    }

    #[test]
    fn only_losses_are_counted() {
        let complete = LaunchCounts { kernels: 9, graphs: 1, ..LaunchCounts::default() };
        let some = LaunchCounts { kernels_without: 2, graphs_without: 1, ..complete };
        for way in [AgentEnd::Killed, AgentEnd::Executed] {
            assert!(losses(State::Collects, way, Some(complete)).is_empty());
            assert_eq!(losses(State::Collects, way, None).len(), 1);
            assert!(losses(State::Ended, way, Some(complete)).is_empty());
            assert!(losses(State::Ended, way, None).is_empty());
        }
        let killed = "process 7: 3 of 10 launches have no GPU record, since it was killed, or ended without calling exit";
        assert_eq!(losses(State::Collects, AgentEnd::Killed, Some(some)), [killed]);
        let ended = "process 7: 2 of 10 launches have no GPU record, since the trace or the process ended before the GPU had done them";
        assert_eq!(losses(State::Ended, AgentEnd::Killed, Some(some)), [ended]);
    }
}
