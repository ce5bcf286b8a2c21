//! Additions to the session after its first script: the other scripts, jumps in processes that run already, unwind tables.

use super::attached::PreparedRun;
use super::compiler::Compiler;
use super::extender::Extender;
use super::plan::Plan;
use crate::Failure;
use anyhow::Context;
use runtime::Session;
use runtime::remote::RemoteError;

/// Adds the other scripts to the session, and what the processes of `-p` need.
pub fn join<'a>(
    plan: &Plan<'a>,
    prepared: &PreparedRun,
    session: &mut Session,
    extender: &Extender<'a>,
    others: Vec<Compiler<'a>>,
) -> Result<(), Failure> {
    for ((number, compiler), module) in (1..).zip(others).zip(&plan.modules[1..]) {
        extender.scripts.add_compiled(session, number, compiler, module).map_err(Failure::loading)?;
    }
    if plan.records.is_some() && session.is_in_process() && !plan.cli.pids.is_empty() {
        extender.scripts.add_gates(session);
    }
    patch_running(plan, session, extender)?;
    if let (None, Some(maps)) = (extender.unwinder(), session.unwind_maps()) {
        extender.walk_stacks(maps, plan.reads_unwind_tables).start_with(&prepared.to_unwind);
    }
    Ok(())
}

/// Patches the processes of `-p`, if the programs run there.
fn patch_running(plan: &Plan, session: &mut Session, extender: &Extender) -> Result<(), Failure> {
    for pid in plan.target.pids.iter().filter(|_| plan.in_process && !plan.cli.dry_run) {
        let patched = match session.patch_running(*pid) {
            // A child of the processes that the user has named may end at any time.
            Err(RemoteError::Gone) if !plan.cli.pids.contains(pid) => continue,
            Err(error @ RemoteError::OtherOwner { .. }) => {
                extender.report_untraced(*pid, "is not traced", &error);
                continue;
            }
            patched => patched.with_context(|| format!("process {pid}")).map_err(Failure::loading)?,
        };
        plan.messages.patched(*pid, &patched);
    }
    Ok(())
}
