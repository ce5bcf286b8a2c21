//! A run: scripts to an exit status. This file shows it from top to bottom, and each step is a file.
//!
//! ```text
//! plan       Plan                       the scripts, compiled for the kernel, the traced processes, or both
//! attached   PreparedRun                outputs are open, the command is started and held
//!            LoadedRun -> AttachedRun   the first script
//! joined                                the other scripts, and processes that run already
//! watches    Beginning                  what is watched beside the ring buffer; the command is released
//! ending     EndedRun                   reports, and the exit status
//! ```
//!
//! The prompt takes the same steps with a session that begins empty (`repl`).

pub mod attached;
pub mod command;
pub mod compiled;
pub mod compiler;
pub mod descendants;
pub mod ended_processes;
pub mod ending;
pub mod exit_status;
pub mod extender;
pub mod joined;
pub mod late_files;
pub mod mapping_scans;
pub mod outputs;
pub mod overwritten_files;
pub mod places;
pub mod plan;
pub mod python_finder;
pub mod script_set;
pub mod setup;
pub mod traced_processes;
pub mod unmapped_files;
pub mod unwind_updater;
pub mod unwinder;
pub mod watched_files;
pub mod watches;

use crate::cli::Cli;
use crate::console::Messages;
use crate::metrics::MetricsOutputs;
use crate::script::Script;
use crate::{Failure, gpu};
use attached::{AttachedRun, LoadedRun, PreparedRun};
use compiler::{Compiler, CompilerInputs};
use ending::EndedRun;
use extender::Extender;
use outputs::RecordingOutputs;
use plan::{Plan, Planner, Target};
use runtime::{Control, Session};
use script_set::Scripts;
use std::io::{self, IsTerminal};
use std::time::Instant;
use unmapped_files::UnmappedTargets;
use watches::Beginning;

/// Traces with these scripts. With `recording`, only the recording reports the end.
pub fn run_scripts(
    scripts: Vec<Script>,
    cli: &Cli,
    messages: &Messages,
    recording: Option<RecordingOutputs>,
) -> Result<u8, Failure> {
    let start = Instant::now();
    let target = Target::of(cli)?;
    let machine = target.machine(cli).with_progress(messages.search_progress());
    let agent = match scripts.iter().any(Script::may_probe_gpus) {
        true => gpu::offer_agent(&machine, cli.user.as_deref(), messages),
        false => None,
    };
    let inputs = CompilerInputs { machine: &machine, cli, messages };
    let planner = Planner { inputs, target: &target, agent: agent.as_ref(), start };
    let Some((plan, compilers)) = planner.plan(scripts)? else { return Ok(0) };
    let status = run(&plan, compilers, recording)?;
    plan.why_kernel.iter().for_each(|reason| messages.note(&format!("Traced by the kernel: {reason}")));
    Ok(status)
}

/// Runs a plan; returns the exit status.
fn run(
    plan: &Plan,
    mut compilers: Vec<Compiler>,
    recording: Option<RecordingOutputs>,
) -> Result<u8, Failure> {
    let mut prepared = PreparedRun::new(plan, &compilers, recording)?;
    let loaded = LoadedRun::new(plan, &prepared)?;
    let AttachedRun { mut session, targets, names, unwinder } = loaded.attach(plan, &prepared)?;

    let (first, others) = (compilers.remove(0), compilers);
    let scripts = Scripts::new(first, plan.machine, plan.messages, plan.features, prepared.link_pid);
    let extender = Extender::new(&scripts, plan.machine, &names, unwinder, plan.messages);
    joined::join(plan, &prepared, &mut session, &extender, others)?;
    if plan.cli.dry_run {
        return Ok(report_dry_run(&session, plan.messages));
    }

    let gpu_reports = gpu::Reports::default();
    let servers = std::mem::take(&mut prepared.outputs.servers);
    let mut metrics = MetricsOutputs::new(servers, &prepared.outputs.sink, &names, &scripts);
    let beginning = Beginning {
        plan,
        prepared: &mut prepared,
        session: &mut session,
        extender: &extender,
        metrics: &mut metrics,
        gpu_reports: &gpu_reports,
    };
    let mut watches = beginning.begin()?;
    // From here on mappings are reported.
    let unmapped = UnmappedTargets::new(plan.machine, &plan.modules, &plan.target.pids);
    if prepared.child.is_none() {
        unmapped.note_at_start(&plan.target.pids, plan.messages);
    }
    let done = watches::end_of_begin(plan, &extender, &session, !targets.is_empty());
    watches.extend(done.map_err(Failure::loading)?);

    let outputs = &mut prepared.outputs;
    let control = Control {
        signals: Some(&outputs.signals),
        on_interrupt: io::stderr().is_terminal().then_some(end_line as fn()),
        on_attached: std::env::var_os(NOTIFY).map(|_| &notify as &dyn Fn()),
        // With exports the signal flushes them.
        maps_on_signal: outputs.flushing.is_empty(),
        targets,
        watches,
        ..Control::default()
    };
    let ending = session.run(&mut outputs.sink, &names, control);
    let (names, extender, gpu_reports) = (&names, &extender, &gpu_reports);
    EndedRun { plan, ending, prepared, names, extender, unmapped, gpu_reports }.report(session, metrics)
}

/// bpftrace's test runner sets this variable and waits for a line with this text after the probes are attached.
const NOTIFY: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";

/// Prints the line for the test runner. A caller that reads both outputs gets the number of probes first.
fn notify() {
    println!("{NOTIFY}");
}

/// Reports what `--dry-run` has attached; returns the exit status.
fn report_dry_run(session: &Session, messages: &Messages) -> u8 {
    let count = session.attached();
    messages.note(&format!("Attached {count} probe{}", if count == 1 { "" } else { "s" }));
    std::env::var_os(NOTIFY).inspect(|_| notify());
    0
}

/// Ends the line on a terminal, which shows Ctrl-C as `^C`.
fn end_line() {
    eprintln!();
}
