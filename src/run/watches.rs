//! Watches of a run beside its ring buffer: outputs, ends of processes, libraries that are mapped later, agents. The tables `BEFORE` and
//! `AFTER` have a row for each; between them the command is released.

use super::attached::PreparedRun;
use super::descendants::Descendants;
use super::ended_processes::EndedProcesses;
use super::extender::Extender;
use super::late_files::{HeldMappings, MappingReports};
use super::mapping_scans::MappingScans;
use super::overwritten_files::OverwriteWatch;
use super::plan::{Plan, WantedRecords};
use super::traced_processes::{self, TargetEnd};
use super::unwind_updater::UnwindUpdater;
use crate::metrics::{MetricsOutputs, ScriptHealth};
use crate::{Failure, gpu};
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use runtime::started::{MappingWatch, Mappings};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use wire::manifest::{Attach, CompiledScript};
use wire::map::CONTEXTS;
use wire::trigger::Trigger;

/// Descriptors that the run polls, and what it does when they are readable.
pub type Watches<'w> = Vec<Box<dyn Watch + 'w>>;

/// An attached run that is about to begin.
pub struct Beginning<'p, 'w> {
    pub plan: &'w Plan<'w>,
    pub prepared: &'p mut PreparedRun,
    pub session: &'p mut Session,
    pub extender: &'w Extender<'w>,
    pub metrics: &'p mut Option<MetricsOutputs<'w>>,
    pub gpu_reports: &'w gpu::Reports,
}

/// Makes what is watched for one reason; nothing if the reason does not hold.
type Row<'p, 'w> = fn(&mut Beginning<'p, 'w>) -> Result<Watches<'w>, Failure>;

impl<'p, 'w> Beginning<'p, 'w> {
    /// Watches that begin before the command runs.
    const BEFORE: [Row<'p, 'w>; 4] = [Self::metrics, Self::outputs, Self::lost_exports, Self::named_ends];

    /// Watches that begin after its release.
    const AFTER: [Row<'p, 'w>; 5] = [
        Self::mappings,
        Self::overwritten_files,
        Self::held_mappings,
        Self::unwind_tables,
        Self::ended_processes,
    ];

    /// Lets the command run, and watches.
    pub fn begin(mut self) -> Result<Watches<'w>, Failure> {
        let mut watches = Vec::new();
        for row in Self::BEFORE {
            watches.extend(row(&mut self)?);
        }
        let agents = self.agents()?;
        self.session.restart_clock();
        print_targets(self.plan, self.prepared.child.is_some());
        self.release()?;
        for row in Self::AFTER {
            watches.extend(row(&mut self)?);
        }
        // After that of held threads: one that has just been released can be stopped.
        watches.extend(agents.map(|agents| Box::new(agents) as Box<dyn Watch>));
        Ok(watches)
    }

    fn metrics(&mut self) -> Result<Watches<'w>, Failure> {
        let messages = self.plan.messages;
        let watches = self.metrics.as_mut().map(|metrics| metrics.watches(messages));
        watches.unwrap_or_else(|| Ok(Vec::new())).map_err(Failure::loading)
    }

    fn outputs(&mut self) -> Result<Watches<'w>, Failure> {
        self.prepared.outputs.watches().map_err(Failure::loading)
    }

    fn lost_exports(&mut self) -> Result<Watches<'w>, Failure> {
        Ok(self.prepared.outputs.sink.warnings(self.plan.messages).into_iter().collect())
    }

    /// Ends of the processes of `-p`, whose exit status is reported.
    fn named_ends(&mut self) -> Result<Watches<'w>, Failure> {
        let ends = self.plan.named().map(|pid| TargetEnd::new(pid, self.plan.messages));
        ends.map(|end| Ok(Box::new(end?) as Box<dyn Watch>))
            .collect::<anyhow::Result<_>>()
            .map_err(Failure::wrong)
    }

    /// The agents for records of GPUs.
    fn agents(&mut self) -> Result<Option<gpu::Agents<'w>>, Failure> {
        let Some(WantedRecords { file, kinds }) = self.plan.records else { return Ok(None) };
        let options = gpu::AgentOptions {
            file,
            machine: self.plan.machine,
            messages: self.plan.messages,
            reports: self.gpu_reports,
            new_drivers: &self.extender.new_drivers,
            kinds,
            in_process: self.plan.in_process,
        };
        let mut agents = gpu::Agents::new(options).map_err(Failure::loading)?;
        agents.search_in(&self.plan.cli.pids, self.prepared.started());
        agents.begin().map_err(Failure::loading)?;
        agents.load_into_running(self.session).map_err(Failure::loading)?;
        Ok(Some(agents))
    }

    /// Releases the command.
    fn release(&mut self) -> Result<(), Failure> {
        let Some(child) = &mut self.prepared.child else { return Ok(()) };
        child.release().map_err(Failure::wrong)?;
        if let Some(unwinder) = self.extender.unwinder() {
            unwinder.read_mappings(child.pid());
        }
        Ok(())
    }

    /// The reports of the held command's mappings, until they are taken.
    fn held(&self) -> Option<&Mappings> {
        self.prepared.child.as_ref()?.mappings.as_ref()
    }

    /// Libraries that processes load later.
    fn mappings(&mut self) -> Result<Watches<'w>, Failure> {
        let is_held = self.held().is_some() && self.plan.target.pids.is_empty();
        let pids: Vec<u32> = self.plan.target.pids.iter().copied().chain(self.prepared.started()).collect();
        let mut watches: Watches<'w> = Vec::new();
        match self.mapping_watch(is_held, &pids) {
            Ok(watch) => watches.push(watch),
            // Files that are mapped executable are still reported.
            Err(_) if is_held => {}
            Err(error) => {
                self.extender.miss_mappings();
                self.warn(&format!("libraries that a process loads from now on get no probes: {error}"));
            }
        }
        // Scans of mappings see forked processes, too.
        if self.held().is_some() && self.session.watches_ends() {
            match Descendants::new(pids) {
                Ok(family) => watches.push(Box::new(family)),
                Err(error) => {
                    self.warn(&format!("scripts do not notice the end of forked processes: {error}"))
                }
            }
        }
        Ok(watches)
    }

    /// The source of reports on libraries that are loaded later. A process that programs run in is held meanwhile, or looked at.
    fn mapping_watch(&self, is_held: bool, pids: &[u32]) -> io::Result<Box<dyn Watch + 'w>> {
        let extender = self.extender;
        Ok(match (is_held, self.plan.in_process) {
            (true, _) => Box::new(MappingReports::beside(MappingWatch::start()?, extender)),
            // A command is held at new files and patched then; it cannot be stopped meanwhile.
            (false, true) if self.held().is_some() => {
                Box::new(MappingScans::new(&self.plan.target.pids, false, extender)?)
            }
            (false, true) => Box::new(MappingScans::new(pids, pids == self.plan.target.pids, extender)?),
            // Forks tell which processes that have ended were traced.
            (false, false) if self.plan.records.is_some() => {
                Box::new(MappingReports::new(MappingWatch::with_forks()?, extender))
            }
            (false, false) => Box::new(MappingReports::new(MappingWatch::start()?, extender)),
        })
    }

    fn overwritten_files(&mut self) -> Result<Watches<'w>, Failure> {
        match OverwriteWatch::new(self.extender, self.session) {
            Ok(overwritten) => Ok(vec![Box::new(overwritten)]),
            Err(error) => Ok(self.without(&format!("overwritten libraries are not detected: {error}"))),
        }
    }

    fn held_mappings(&mut self) -> Result<Watches<'w>, Failure> {
        let mappings = self.prepared.child.as_mut().and_then(|child| child.mappings.take());
        let held = mappings.map(|mappings| HeldMappings::new(mappings, self.extender));
        Ok(held.into_iter().map(|held| Box::new(held) as Box<dyn Watch>).collect())
    }

    fn unwind_tables(&mut self) -> Result<Watches<'w>, Failure> {
        if self.extender.unwinder().is_none() {
            return Ok(Vec::new());
        }
        match UnwindUpdater::new(self.extender) {
            Ok(updater) => Ok(vec![Box::new(updater)]),
            Err(error) => Ok(self.without(&format!(
                "stacks of new processes may be too short, since their unwind tables cannot be read: {error}"
            ))),
        }
    }

    /// Ends of any processes, after which what maps have of them is removed.
    fn ended_processes(&mut self) -> Result<Watches<'w>, Failure> {
        let are_needed = !self.plan.manifest().by_process.is_empty() || self.extender.scripts.are_waiting();
        let ended = are_needed.then(EndedProcesses::new).transpose().map_err(Failure::loading)?;
        Ok(ended.into_iter().map(|ended| Box::new(ended) as Box<dyn Watch>).collect())
    }

    /// No watches, with a warning about what is missed.
    fn without(&self, warning: &str) -> Watches<'w> {
        self.warn(warning);
        Vec::new()
    }

    fn warn(&self, warning: &str) {
        self.plan.messages.warning(warning);
    }
}

/// Ends a run when nothing happens any more. The descriptor is an eventfd, which is readable when it is not zero.
struct Done(OwnedFd);

impl Watch for Done {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        Next::Stop
    }
}

/// Reads the iterators. Returns the watch that ends the run after them, if nothing else happens: no process is waited for, and the
/// scripts only have iterators, BEGIN and END.
pub fn end_of_begin<'w>(
    plan: &Plan,
    extender: &Extender,
    session: &Session,
    has_targets: bool,
) -> io::Result<Option<Box<dyn Watch + 'w>>> {
    let is_done = !has_targets && does_nothing_more(&plan.modules) && !extender.scripts.are_waiting();
    let iterators = session.iterators()?;
    let done = eventfd(u32::from(iterators.is_empty()), EventfdFlags::CLOEXEC)?;
    if !iterators.is_empty() {
        let read = done.try_clone()?;
        // Beside the reader of the ring buffer, which thousands of items would fill.
        std::thread::Builder::new().spawn(move || {
            iterators.iter().for_each(read_items);
            let _ = rustix::io::write(read, &1u64.to_ne_bytes());
        })?;
    }
    Ok(match is_done {
        true => Some(Box::new(Done(done))),
        false => None,
    })
}

/// Runs an iterator's program for all of its items.
fn read_items(iterator: &OwnedFd) {
    // The kernel interrupts the iteration after a million items, with an error that asks for the next ones.
    while let Err(Errno::AGAIN | Errno::INTR) = rustix::io::read(iterator, &mut [0u8; 64]) {}
}

/// Whether the scripts only have BEGIN, END and iterators, so that nothing happens after these.
fn does_nothing_more(modules: &[CompiledScript]) -> bool {
    let mut programs = modules.iter().flat_map(|module| &module.manifest.programs);
    let ends =
        |trigger: &Trigger| matches!(trigger, Trigger::Begin | Trigger::End | Trigger::Iterator { .. });
    programs.all(|program| matches!(&program.attach, Attach::Event(trigger) if ends(trigger)))
}

/// Prints the traced processes and how the trace ends, unless the user has only given a command.
fn print_targets(plan: &Plan, has_command: bool) {
    let pids = &plan.cli.pids;
    let is_obvious = has_command && pids.is_empty();
    if is_obvious || does_nothing_more(&plan.modules) || plan.cli.run() != lang::Run::Traces {
        return;
    }
    let has_devices = |module: &CompiledScript| module.manifest.maps.iter().any(|map| map.name == CONTEXTS);
    if !pids.is_empty() && plan.modules.iter().any(has_devices) {
        plan.messages.note(
            "The device of a thread that runs already is -1 until the thread asks for it, as PyTorch does all the time, or chooses one",
        );
    }
    let names: Vec<String> = pids.iter().map(|&pid| traced_processes::name(pid)).collect();
    let whom = if pids.is_empty() { "all processes".to_owned() } else { names.join(", ") };
    plan.messages.note(&match has_command {
        false => format!("Tracing {whom}; Ctrl-C ends it and prints the results"),
        true => format!("Tracing {whom} and the command, whose end or Ctrl-C ends it and prints the results"),
    });
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::does_nothing_more;

    #[test]
    fn scripts_with_begin_and_end_alone_do_nothing_more() {
        plan("BEGIN { @ = 1 } END { printf(\"end\\n\") }", |plan| assert!(does_nothing_more(&plan.modules)));
        plan("BEGIN { @ = 1 } interval:s:1 { exit() }", |plan| assert!(!does_nothing_more(&plan.modules)));
    }
}
