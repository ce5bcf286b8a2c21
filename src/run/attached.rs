//! From a plan to an attached session. Each step has what the ones before it have opened, and closes it if it fails.
//!
//! ```text
//! Plan -> PreparedRun (outputs are open, the command is held) -> LoadedRun -> AttachedRun
//! ```

use super::command;
use super::compiler::Compiler;
use super::exit_status;
use super::outputs::{Outputs, RecordingOutputs};
use super::plan::Plan;
use super::setup;
use super::unwinder::Unwinder;
use crate::Failure;
use crate::patch_sites::{patch_site, unwinder_sites};
use crate::symbolize::MachineNames;
use crate::symbolize::python::Pythons;
use lang::catalog::FileId;
use runtime::started::Child;
use runtime::{AttachOptions, LoadedScript, PatchSiteFinders, Session};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use wire::manifest::CompiledScript;

/// The outputs are open, and the command is held before its first instruction.
pub struct PreparedRun {
    pub outputs: Outputs,
    pub child: Option<Child>,
    /// Processes whose unwind tables are loaded before BEGIN. The tracer is one of them if a script uses its stacks.
    pub to_unwind: Vec<u32>,
    /// The process by which the links filter, if they do.
    pub link_pid: Option<u32>,
}

impl PreparedRun {
    /// Opens the outputs, then starts the command.
    pub fn new(
        plan: &Plan,
        compilers: &[Compiler],
        recording: Option<RecordingOutputs>,
    ) -> Result<PreparedRun, Failure> {
        let outputs = Outputs::open(plan, recording)?;
        let child = command::start(plan)?;
        let own = compilers.iter().any(Compiler::uses_own_stacks).then(std::process::id);
        let to_unwind = plan.target.pids.iter().copied().chain(own).collect();
        let traced = plan.target.pids.first().copied().or(child.as_ref().map(Child::pid));
        Ok(PreparedRun { outputs, child, to_unwind, link_pid: traced.filter(|_| plan.by_link) })
    }

    /// The command's process.
    pub fn started(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }
}

/// Maps and programs of the first script are there; nothing is attached.
pub struct LoadedRun<'a> {
    script: LoadedScript,
    unwinder: Option<Unwinder<'a>>,
}

impl<'a> LoadedRun<'a> {
    /// Loads the first script. It filters by the processes that are known now.
    pub fn new(plan: &Plan<'a>, prepared: &PreparedRun) -> Result<LoadedRun<'a>, Failure> {
        let child = prepared.started();
        let pids = plan.target.pids.iter().copied().chain(child).collect();
        let options = runtime::Options { pids, child, ..Default::default() };
        let (first, others) = plan.modules.split_first().expect("a script");
        let in_process: Vec<CompiledScript> =
            others.iter().filter(|module| module.manifest.in_process).cloned().collect();
        let script = LoadedScript::load_before(first, &in_process, &options).map_err(Failure::loading)?;
        plan.messages.detail(|| format!("loaded after {:?}", plan.start.elapsed()));
        let pythons = || Rc::new(Pythons::new(script.stacks()));
        let unwinder = |maps| Unwinder::new(maps, plan.reads_unwind_tables, pythons(), plan.messages);
        let unwinder = script.unwind_maps().map(unwinder);
        if let Some(unwinder) = &unwinder {
            unwinder.start_complete(&prepared.to_unwind);
        }
        Ok(LoadedRun { script, unwinder })
    }

    /// Attaches it, and runs BEGIN.
    pub fn attach(self, plan: &Plan<'a>, prepared: &PreparedRun) -> Result<AttachedRun<'a>, Failure> {
        let files = |id: u32| plan.open_path(id);
        let functions = |file: u32, offset: u64| patch_site(plan.machine, FileId(file), offset);
        let options = AttachOptions {
            files: &files,
            link_pid: prepared.link_pid,
            stop: Some(&prepared.outputs.signals),
            patch: Some(PatchSiteFinders { functions: &functions, unwinder: unwinder_sites }),
        };
        let attached = self.script.attach(&options);
        let session =
            attached.map_err(|error| exit_status::not_attached(error, &prepared.outputs.signals))?;
        plan.messages.not_attached(session.failures());
        plan.messages.detail(|| format!("attached after {:?}", plan.start.elapsed()));
        let targets = targets(plan, prepared.child.as_ref()).map_err(Failure::wrong)?;
        let mut names = MachineNames::new(session.stacks(), prepared.outputs.epoch, plan.manifest());
        if let Some(unwinder) = &self.unwinder {
            names.pythons = unwinder.pythons();
        }
        Ok(AttachedRun { session, targets, names, unwinder: self.unwinder })
    }
}

/// The probes of the first script are attached.
pub struct AttachedRun<'a> {
    pub session: Session,
    /// Processes whose end stops the trace.
    pub targets: Vec<OwnedFd>,
    pub names: MachineNames,
    /// Reads unwind tables, if programs walk stacks.
    pub unwinder: Option<Unwinder<'a>>,
}

/// The command if there is one, otherwise all processes of `-p`.
fn targets(plan: &Plan, child: Option<&Child>) -> anyhow::Result<Vec<OwnedFd>> {
    match child {
        Some(child) => Ok(vec![child.pidfd().try_clone_to_owned()?]),
        None => plan.named().map(setup::end_of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::planned;
    use super::*;
    use std::process::{Command, Stdio};
    use wire::Value;

    /// Prepares a script that runs in a process. Its maps are in shared memory: no kernel is needed.
    ///
    /// The process runs before: a command would be started by this program as another one of itself, which the runner of tests is not.
    fn prepared(text: &str, see: impl FnOnce(u32, &Plan<'_>, &PreparedRun)) {
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat starts");
        let pid = process.id();
        planned(&["--in-process", "-p", &pid.to_string()], text, |planned| {
            let (plan, compilers) = planned.expect("it can run");
            see(pid, plan, &worked(PreparedRun::new(plan, compilers, None)));
        });
        drop(process.stdin.take());
        assert!(process.wait().expect("it ends").success(), "it is not harmed");
    }

    fn worked<T>(result: Result<T, Failure>) -> T {
        result.unwrap_or_else(|failure| panic!("{:#}", failure.error))
    }

    #[test]
    fn a_prepared_run_knows_its_processes() {
        prepared("BEGIN { @ = 1 }", |pid, _, prepared| {
            assert_eq!(
                (prepared.started(), prepared.link_pid, &prepared.to_unwind[..]),
                (None, None, &[pid][..])
            );
        });
    }

    #[test]
    fn a_loaded_run_reads_unwind_tables_if_a_program_walks_stacks() {
        for (script, walks) in
            [("uprobe:libc:malloc { @[ustack] = count() }", true), ("BEGIN { @ = 1 }", false)]
        {
            prepared(script, |_, plan, prepared| {
                let loaded = worked(LoadedRun::new(plan, prepared));
                assert_eq!(loaded.unwinder.is_some(), walks, "{script}");
            });
        }
    }

    #[test]
    fn an_attached_run_has_run_begin_and_waits_for_the_process() {
        prepared("BEGIN { @ = 7 } uprobe:libc:malloc { @++ }", |_, plan, prepared| {
            let run = worked(worked(LoadedRun::new(plan, prepared)).attach(plan, prepared));
            let entries = run.session.snapshot(0, 0, 1).expect("the map").entries;
            assert_eq!(entries, [(vec![], report::Cell::Plain(Value::Int(7, 8)))]);
            assert!(run.session.is_in_process() && run.session.attached() > 0);
            assert_eq!((run.targets.len(), run.session.failures().len()), (1, 0));
        });
    }
}
