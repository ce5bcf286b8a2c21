//! A session: the maps, programs and links of a script in the kernel.
//!
//! ```text
//! LoadedScript::load     creates maps, loads programs, adds the processes to trace
//! LoadedScript::attach   attaches the programs that follow forks, runs BEGIN, attaches the rest
//! Session::extend        the same steps for another module, which shares the maps
//! Session::run           reads until the end (`session::event_loop`)
//! ```
//!
//! Not here: maps and ring buffers (`session::core`), how an object is loaded (`load`), how one program is attached (`attach`), how links are closed (`attach::detach`).

pub(crate) mod control_cell;
pub(crate) mod core;
pub mod event_loop;
mod records;
pub mod run_stats;
mod tests_and_benches;

use crate::attach::detach::PendingDetach;
use crate::attach::link::Link;
use crate::attach::own_programs::{EndProgram, SignalProgram, TestProgram, TimerProgram};
use crate::attach::{self, Attacher, detach, in_process};
use crate::error::{AttachError, LoadError, SiteFailure};
use crate::gpu::{AgentFile, Connection};
use crate::handles::{LoadResult, LoadedProgram, ProgramHandle};
use crate::in_process::{Access, FileFunctions, PatchCount, PatchReport, UserSpace};
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::inotify::WriteWatch;
use crate::kernel::signals::Arrivals;
use crate::options::{AttachOptions, Module, ModuleId, ModulePart, Options};
use crate::read::losses;
use crate::remote::{Library, RemoteError};
use crate::session::core::Core;
use crate::session::run_stats::{AttachedProgram, Runs};
use crate::stacks::store::StackStore;
use crate::stacks::unwind_maps::UnwindMaps;
use libbpf_sys as bpf;
use report::{Loss, Snapshot};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::Manifest;
use wire::counter::CounterKind;
use wire::manifest::{self, Attach, CompiledScript, Program};
use wire::trigger::{Environment, Trigger};
use wire::types::MissingProbes;

/// A loaded script. Nothing is attached, so no program runs.
pub struct LoadedScript {
    core: Core,
    programs: Vec<LoadResult>,
}

/// An attached script. Dropping it detaches.
pub struct Session {
    pub(crate) core: Core,
    pub(crate) links: Vec<Link>,
    /// Writes to probed files, if they are watched.
    pub writes: Option<WriteWatch>,
    pub(crate) end_programs: Vec<EndProgram>,
    pub(crate) signal_programs: Vec<SignalProgram>,
    pub(crate) timers: Vec<TimerProgram>,
    pub(crate) tests: Vec<TestProgram>,
    programs: Vec<AttachedProgram>,
    modules: u32,
    attached: usize,
    failures: Vec<SiteFailure>,
}

impl LoadedScript {
    /// Loads a script.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load(compiled: &CompiledScript, options: &Options) -> Result<LoadedScript, LoadError> {
        LoadedScript::load_before(compiled, &[], options)
    }

    /// Loads a script. The traced processes get room for the modules that follow, which are loaded later.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load_before(
        compiled: &CompiledScript,
        later: &[CompiledScript],
        options: &Options,
    ) -> Result<LoadedScript, LoadError> {
        let mut core = Core::new(options)?;
        let programs = core.add(compiled, later)?;
        Ok(LoadedScript { core, programs })
    }

    /// Traces a process.
    pub fn trace_pid(&self, tgid: u32) -> io::Result<()> {
        self.core.trace(tgid, manifest::UNCOUNTED)
    }

    /// Maps of the programs that walk stacks; `None` if no program does.
    pub fn unwind_maps(&self) -> Option<UnwindMaps> {
        self.core.unwind_maps()
    }

    /// The stacks that programs store.
    pub fn stacks(&self) -> Arc<StackStore> {
        Arc::clone(&self.core.stacks)
    }

    /// Runs BEGIN and attaches all programs. [`Session::failures`] lists the attach points that the kernel refused.
    pub fn attach(self, options: &AttachOptions<'_>) -> Result<Session, AttachError> {
        let LoadedScript { core, programs } = self;
        let mut session = Session {
            core,
            links: vec![],
            writes: None,
            end_programs: vec![],
            signal_programs: vec![],
            timers: vec![],
            tests: vec![],
            programs: vec![],
            modules: 0,
            attached: 0,
            failures: vec![],
        };
        session.attach_all(programs, options)?;
        Ok(session)
    }
}

impl Session {
    /// Loads and attaches another module, compiled with this session's manifest as its base. Refused attach points are
    /// added to [`Session::failures`]. After an error no part of the module stays attached.
    pub fn extend(
        &mut self,
        compiled: &CompiledScript,
        options: &AttachOptions<'_>,
    ) -> Result<Module, AttachError> {
        check_extends(&self.core.manifest, &compiled.manifest)?;
        let programs = self.core.add(compiled, &[])?;
        let before = self.attached;
        self.modules += 1;
        let id = ModuleId(self.modules);
        self.attach_all(programs, options)
            .inspect_err(|_| drop(self.detach_part(ModulePart { module: id, clause: None })))?;
        Ok(Module { id, attached: self.attached - before })
    }

    /// Detaches a module or a clause in the background. Maps stay; END programs of that part are dropped.
    pub fn detach_part(&mut self, part: ModulePart) -> PendingDetach {
        let (dropped, kept) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|link: &Link| part.contains(link.module, link.clause));
        self.links = kept;
        self.end_programs.retain(|end| !part.contains(end.module, end.clause));
        self.signal_programs.retain(|it| !part.contains(it.module, it.clause));
        self.programs.retain(|running| !part.contains(running.module, running.clause));
        detach::in_background(dropped)
    }

    /// Removes the probes of a file, given by its id. They are gone after [`PendingDetach::wait`].
    pub fn detach_file(&mut self, file: u32) -> PendingDetach {
        let (dropped, kept) =
            std::mem::take(&mut self.links).into_iter().partition(|link: &Link| link.file == Some(file));
        self.links = kept;
        detach::in_background(dropped)
    }

    /// Runs the END programs of a module or a clause now; they do not run again at the end.
    pub fn run_end_programs(&mut self, part: ModulePart) -> io::Result<()> {
        let (now, later) = std::mem::take(&mut self.end_programs)
            .into_iter()
            .partition(|end: &EndProgram| part.contains(end.module, end.clause));
        self.end_programs = later;
        now.iter().try_for_each(|end| attach::run_once(&end.program))
    }

    /// Removes all keys of a map, by its index in the manifest.
    pub fn clear(&self, map: u32) -> io::Result<()> {
        self.core.script_map(map)?.clear(None)
    }

    /// Deletes keys of a map, by its index in the manifest.
    pub fn delete(&self, map: u32, keys: &[Vec<wire::Value>]) -> io::Result<()> {
        self.core.script_map(map)?.delete(keys)
    }

    /// Deletes the keys of ended processes from all maps that the script declares as `processhash`.
    pub fn delete_ended(&self, ended: &mut dyn FnMut(u32) -> bool) -> io::Result<()> {
        let maps = self.core.manifest.by_process.iter();
        maps.map(|map| self.core.script_map(*map)).try_for_each(|map| map?.delete_ended(ended))
    }

    /// Traces a process.
    pub fn trace_pid(&self, tgid: u32) -> io::Result<()> {
        self.core.trace(tgid, manifest::UNCOUNTED)
    }

    /// Maps of the programs that walk stacks; `None` if no program does.
    pub fn unwind_maps(&self) -> Option<UnwindMaps> {
        self.core.unwind_maps()
    }

    /// Traces a process that the tracer has started, and stores its id as `cpid`.
    pub fn trace_child(&self, pid: u32) -> io::Result<()> {
        self.core.set_control(&[(manifest::CONTROL_CHILD, pid.into())])?;
        self.core.trace(pid, 1)
    }

    /// Stops tracing all processes.
    pub fn untrace_all(&self) -> io::Result<()> {
        self.core.pids().map_or(Ok(()), |pids| pids.delete_all(size_of::<u32>()))
    }

    /// Whether a process is traced, followed children included. Without a pid filter all processes are traced. In a pid
    /// namespace, followed children have other numbers in the kernel and are not found.
    pub fn is_traced(&self, tgid: u32) -> bool {
        let is_met = self.core.user.as_ref().is_some_and(|user| user.is_met(tgid));
        let Some(pids) = self.core.pids() else { return is_met || self.core.user.is_none() };
        is_met || pids.lookup(&tgid.to_le_bytes(), &mut [0; 8]).is_ok()
    }

    /// Whether programs run in a process because it has the memory of the session, as the child of a traced one that has not run another program.
    pub fn runs_in(&self, tgid: u32) -> bool {
        self.core.user.as_ref().is_some_and(|user| user.has_memory(tgid))
    }

    /// Traced processes, followed children included, by the kernel's numbers. Empty without a pid filter.
    pub fn traced(&self) -> Vec<u32> {
        let Some(pids) = self.core.pids() else { return Vec::new() };
        let keys = pids.keys(size_of::<u32>()).unwrap_or_default();
        let pids = keys.into_iter().filter_map(|key| key.try_into().ok());
        pids.map(u32::from_le_bytes).collect()
    }

    /// The manifest of the last module, which contains those of the modules before it.
    pub fn manifest(&self) -> &Manifest {
        &self.core.manifest
    }

    /// Number of attach points that are attached, timers, BEGIN and END included.
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// The attached iterators. Their programs run once for each item while one is read to its end; it has no bytes.
    ///
    /// # Errors
    /// EMFILE
    pub fn iterators(&self) -> io::Result<Vec<OwnedFd>> {
        self.links.iter().filter_map(|link| link.items.as_ref()).map(OwnedFd::try_clone).collect()
    }

    /// Attach points that the kernel refused.
    pub fn failures(&self) -> &[SiteFailure] {
        &self.failures
    }

    /// The stacks that programs have stored, for [`report::Names::stack_addresses`].
    pub fn stacks(&self) -> Arc<StackStore> {
        Arc::clone(&self.core.stacks)
    }

    /// Current contents of a map, by its index in the manifest.
    pub fn snapshot(&self, map: u32, top: u32, div: u32) -> io::Result<Snapshot> {
        self.core.snapshot(map, top, div)
    }

    /// Number of runs of each clause's programs, counted while a [`run_stats::RunTimeStats`] exists.
    pub fn runs(&self) -> io::Result<Vec<Runs>> {
        run_stats::runs_by_clause(&self.programs)
    }

    /// Losses and errors so far, as reported at the end of a run. Calls that are still running count as not returned.
    pub fn losses(&self) -> io::Result<Vec<Loss>> {
        let mut losses = self.core.losses()?;
        losses.extend(losses::missed(run_stats::missed(&self.programs)));
        Ok(losses)
    }

    /// Number of records so far for which the ring buffer had no room; 0 if the counters cannot be read.
    pub fn lost_events(&self) -> u64 {
        let counts = self.core.counters().unwrap_or_default();
        let counted = self.core.manifest.counters.iter().zip(counts);
        counted
            .filter(|(counter, _)| matches!(counter.kind, CounterKind::LostEvent(_)))
            .map(|(_, count)| count)
            .sum()
    }

    /// Sets the zero of `elapsed` to now.
    pub fn restart_clock(&self) {
        let now = SystemClock.boot_ns();
        let set = self.core.set_control(&[(manifest::CONTROL_START, now)]);
        debug_assert!(set.is_ok(), "the cell of an array can always be written: {set:?}");
    }

    /// Subtracts the time since `since_ns` from `elapsed`, because the traced program was held.
    pub fn pause_clock(&self, since_ns: u64) {
        let set = self.core.stop_clock_at(since_ns);
        debug_assert!(set.is_ok(), "the cell of an array can always be written: {set:?}");
    }

    /// Starts to watch writes to files. The returned descriptor is readable after a write.
    ///
    /// # Errors
    /// The errors of inotify_init1(2).
    pub fn watch_writes(&mut self) -> io::Result<RawFd> {
        let writes = self.writes.insert(WriteWatch::new()?);
        Ok(writes.fd())
    }

    /// Patches a process that runs, for a session whose programs run there; returns the number of patched functions.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn patch_running(&mut self, pid: u32) -> Result<PatchReport, RemoteError> {
        self.core.user.as_mut().map_or(Ok(PatchReport::default()), |user| user.patch_running(pid))
    }

    /// The same for a process one of whose threads is held while it maps a file. `release` lets it go on, and is called in any case.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn patch_held(
        &mut self,
        pid: u32,
        tid: u32,
        release: impl FnOnce() + Send,
    ) -> Result<PatchReport, RemoteError> {
        match &mut self.core.user {
            Some(user) => user.patch_held(pid, tid, release),
            None => {
                release();
                Ok(PatchReport::default())
            }
        }
    }

    /// Lets a thread that is held install a seccomp filter; returns the reason if its process is not traced any more then. `release` is
    /// called in any case.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn install_filter(
        &mut self,
        pid: u32,
        tid: u32,
        release: impl FnOnce() + Send,
    ) -> Result<Option<RemoteError>, RemoteError> {
        match &mut self.core.user {
            Some(user) => user.install_filter(pid, tid, release),
            None => {
                release();
                Ok(None)
            }
        }
    }

    /// Lets a thread that is held change the rights of its process: user, groups, capabilities. If they differ from those of the other
    /// traced processes then, it is traced no more: see [`Session::expelled`]. `release` is called in any case.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn change_rights(
        &mut self,
        pid: u32,
        tid: u32,
        release: impl FnOnce() + Send,
    ) -> Result<(), RemoteError> {
        match &mut self.core.user {
            Some(user) => user.change_rights(pid, tid, release),
            None => {
                release();
                Ok(())
            }
        }
    }

    /// Whether a process that maps a file, given by its inode and path, must be patched before it goes on.
    pub fn must_patch(&self, pid: u32, inode: u64, path: &Path) -> bool {
        self.core.user.as_ref().is_some_and(|user| user.concerns(pid, inode, path))
    }

    /// Whether a process that was patched has mapped a file again at the same address, so that it must be patched again.
    pub fn has_lost_jumps(&self, pid: u32) -> bool {
        self.core.user.as_ref().is_some_and(|user| user.has_lost_jumps(pid))
    }

    /// Gives functions of a file gates, if programs run in the processes; for [`Session::request_agent`] later.
    pub fn add_gates(&mut self, functions: FileFunctions) {
        if let Some(user) = &mut self.core.user {
            user.add_gates(functions);
        }
    }

    /// Asks a process to load the agent at its next call of one of these functions. `is_started`: the tracer has started it.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn request_agent(
        &mut self,
        pid: u32,
        functions: FileFunctions,
        library: &Library<'_>,
        is_started: bool,
    ) -> Result<Connection, RemoteError> {
        let gates = self.core.gates()?;
        gates.add_gates(functions);
        let socket = gates.request_load(pid, library, Access::new(is_started))?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(io::Error::from)?;
        Ok(Connection::to(pid, socket))
    }

    /// Lets a thread of a process load the agent, as it has announced. The other threads are stopped until it has, or for a short time: one of
    /// them may have a lock that it needs.
    pub fn load_agent(&mut self, pid: u32, connection: &Connection, is_started: bool) {
        let load = || connection.let_load(ALONE);
        let held = match self.core.gates() {
            Ok(gates) => gates.hold_others(pid, Access::new(is_started), load),
            Err(error) => Err(error),
        };
        if held.is_err() {
            connection.let_load(Duration::ZERO);
        }
    }

    /// Takes the request back if no call has begun with it; returns whether it was taken back.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn withdraw_agent(&mut self, pid: u32, is_started: bool) -> Result<bool, RemoteError> {
        let mut all = self.core.patching();
        all.try_fold(false, |done, user| Ok(done | user.withdraw_load(pid, Access::new(is_started))?))
    }

    /// A process has loaded the agent, whose functions are patched if programs run there.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn meet_agent(&mut self, pid: u32) -> Result<PatchReport, RemoteError> {
        self.core.user.as_mut().map_or(Ok(PatchReport::default()), |user| user.patch_running(pid))
    }

    /// Whether the agent's records reach the programs that run in its process, if these do.
    pub fn hears_agent(&self, pid: u32, file: &AgentFile) -> bool {
        self.core.user.as_ref().is_none_or(|user| user.traces_file(pid, file.inode()))
    }

    /// Restores the functions of a process that has loaded the agent, unless programs run there. No call waits for the agent any more.
    ///
    /// # Errors
    /// [`RemoteError`]; the functions are restored at the end of the session then.
    pub fn leave_gates(&mut self, pid: u32, is_started: bool) -> Result<(), RemoteError> {
        let mut all = self.core.patching();
        all.try_for_each(|user| user.leave_gates(pid, Access::new(is_started)))
    }

    /// Takes note of a process of the traced command, whose end a script may wait for.
    pub fn meet(&mut self, pid: u32) {
        if let Some(user) = &mut self.core.user {
            user.meet(pid);
        }
    }

    /// Whether the programs run in the traced processes, and some of them when a process ends.
    pub fn watches_ends(&self) -> bool {
        self.core.user.as_ref().is_some_and(UserSpace::watches_ends)
    }

    /// After the end: processes that keep jumps, which pass by, with the reason.
    pub fn kept_jumps(&mut self) -> Vec<(u32, String)> {
        let kept = self.core.patching().flat_map(|user| user.kept());
        kept.map(|(pid, reason)| (*pid, reason.to_string())).collect()
    }

    /// Processes that are not traced any more since they have changed their rights, with how.
    pub fn expelled(&self) -> impl Iterator<Item = &(u32, String)> {
        self.core.user.iter().flat_map(UserSpace::expelled)
    }

    /// Counts of patches so far, if the programs run in the traced processes.
    pub fn patched(&self) -> Option<PatchCount> {
        self.core.user.as_ref().map(UserSpace::patched)
    }

    /// Whether the programs run in the traced processes.
    pub fn is_in_process(&self) -> bool {
        self.core.user.is_some()
    }

    /// Silences and detaches all programs.
    pub(crate) fn detach(&mut self) -> PendingDetach {
        self.core.silence_programs();
        self.core.patching().for_each(UserSpace::detach);
        let mut links = std::mem::take(&mut self.links);
        links.extend(self.writes.take().map(|writes| Link::of_nothing(writes.into_fd())));
        detach::in_background(links)
    }

    fn attach_all(
        &mut self,
        programs: Vec<LoadResult>,
        options: &AttachOptions<'_>,
    ) -> Result<(), AttachError> {
        let described = self.core.manifest.programs.clone();
        let mut pairs: Vec<(&Program, LoadResult)> = described.iter().zip(programs).collect();
        pairs.sort_by_key(|(program, _)| order(program));
        let mut clauses: BTreeMap<u32, AttachedClause> = BTreeMap::new();
        for (program, loaded) in pairs {
            let (attached, failures) = self.attach_one(program, loaded, options)?;
            clauses.entry(program.clause).or_default().add(program, attached, failures);
        }
        self.core.find_entered_early(&described);
        let missing = self.core.manifest.missing_probes;
        for clause in clauses.into_values() {
            match missing {
                MissingProbes::Ignore => {}
                MissingProbes::Error if clause.is_missing() => return Err(clause.error(&self.core.manifest)),
                MissingProbes::Error | MissingProbes::Warn => self.failures.extend(clause.failures),
            }
        }
        Ok(())
    }

    fn attach_one(
        &mut self,
        program: &Program,
        loaded: LoadResult,
        options: &AttachOptions<'_>,
    ) -> Result<(usize, Vec<SiteFailure>), AttachError> {
        let manifest = &self.core.manifest;
        let made = match (&mut self.core.user, &loaded) {
            (Some(user), Ok(loaded @ LoadedProgram { handle: ProgramHandle::Process(_), .. })) => {
                in_process::attach(user, manifest, program, options, &mut self.timers, loaded)?
            }
            _ => Attacher { options, manifest }.attach(program, &loaded)?,
        };
        let refused = |what| move |errno| attach::probe_error(manifest, program, what, errno);
        let module = ModuleId(self.modules);
        self.links.extend(made.links.into_iter().map(|link| link.with_module(module)));
        if !program.auxiliary {
            self.attached += made.attached;
        }
        if made.stopped {
            return Err(AttachError::Stopped { attached: self.attached });
        }
        let Ok(loaded) = loaded else { return Ok((0, made.failures)) };
        match program.attach {
            Attach::Event(Trigger::Begin) => {
                // BEGIN's `elapsed` must not be later than that of any probe.
                if self.modules == 0 {
                    self.restart_clock();
                }
                attach::run_once(&loaded.handle).map_err(refused("cannot be run"))?;
            }
            Attach::Event(Trigger::End) => {
                self.end_programs.push(EndProgram { module, clause: program.clause, program: loaded.handle });
            }
            Attach::Event(Trigger::Signal { number }) => {
                let signal = Arrivals::of(number).map_err(refused("cannot wait for the signal"))?;
                self.signal_programs.push(SignalProgram {
                    module,
                    clause: program.clause,
                    signal,
                    program: loaded.handle,
                });
            }
            Attach::Event(Trigger::Test { kind, ref name }) => {
                self.tests.push(TestProgram { kind, name: name.clone(), program: loaded.handle });
            }
            Attach::Follow { .. } => {}
            Attach::Functions { .. } | Attach::ProcessEnd | Attach::Event(_) => {
                let (clause, text) = (program.clause, program.text.clone());
                self.programs.push(AttachedProgram { module, clause, text, program: loaded.handle });
            }
        }
        Ok((made.attached, made.failures))
    }
}

/// Longest time for which other threads of a process are stopped while one loads the agent.
const ALONE: Duration = Duration::from_millis(50);

/// Attached sites of a clause.
#[derive(Default)]
struct AttachedClause {
    /// Number of sites of the programs with its body, or of all if the clause is generated.
    attached: usize,
    has_body: bool,
    failures: Vec<SiteFailure>,
    text: String,
    place: manifest::Place,
}

impl AttachedClause {
    /// Adds the result of a program. Both sides of a call fail alike: only one failure is kept.
    fn add(&mut self, program: &Program, attached: usize, failures: Vec<SiteFailure>) {
        match (self.has_body, program.auxiliary) {
            (true, true) => {}
            (false, false) => (self.has_body, self.attached) = (true, attached),
            _ => self.attached += attached,
        }
        let known: HashSet<(String, u64)> = self.failures.iter().map(SiteFailure::key).collect();
        self.failures.extend(failures.into_iter().filter(|failure| !known.contains(&failure.key())));
        (self.text, self.place) = (program.text.clone(), program.place);
    }

    fn is_missing(&self) -> bool {
        self.attached == 0 && !self.failures.is_empty()
    }

    fn error(mut self, manifest: &Manifest) -> AttachError {
        let (count, place) = (self.failures.len(), manifest.line_of(self.place));
        AttachError::Nothing { text: self.text, place, count, first: Box::new(self.failures.remove(0)) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}

/// The order in which programs are attached. Forks are followed before the first record can be written, and BEGIN runs before
/// the first probe can hit. Programs of one tracepoint run in the order of attachment: a process is removed from the set of
/// traced processes after the script has received its exit. Programs of one function run in the opposite order, so the script's
/// last clause is attached first.
fn order(program: &Program) -> (u8, Reverse<u32>) {
    let clause = Reverse(program.clause);
    let any = Reverse(0);
    match &program.attach {
        Attach::Follow { tracepoint } if tracepoint == wire::manifest::TASK_ENDS => (3, any),
        Attach::Follow { .. } => (0, any),
        Attach::Functions { .. } | Attach::ProcessEnd => (2, clause),
        Attach::Event(Trigger::Begin) => (1, any),
        // The kernel runs the event that was opened last first, except clocks, which have one timer per event.
        Attach::Event(Trigger::Profile { counter, .. })
            if counter.kind == bpf::PERF_TYPE_SOFTWARE
                && counter.number > u64::from(bpf::PERF_COUNT_SW_TASK_CLOCK) =>
        {
            (3, clause)
        }
        Attach::Event(trigger) => match trigger.environment() {
            Environment::Record | Environment::Arguments => (2, any),
            Environment::Tracer | Environment::Timer | Environment::Sample | Environment::Item => (3, any),
        },
    }
}

fn check_extends(before: &Manifest, after: &Manifest) -> Result<(), LoadError> {
    let lengths = |m: &Manifest| {
        let names = m.names.funcs.len() + m.names.apis.len() + m.names.probes.len();
        [m.maps.len(), m.stacks.len(), m.events.len(), m.counters.len(), m.enums.len(), names]
    };
    let what = ["maps", "stack maps", "events", "counters", "enums", "names"];
    let pairs = lengths(before).into_iter().zip(lengths(after)).zip(what);
    match pairs.into_iter().find(|((before, after), _)| before > after) {
        Some((_, what)) => Err(LoadError::NotAnExtension { what }),
        None => Ok(()),
    }
}

#[cfg(test)]
impl Session {
    /// Creates a session around programs that a test loads itself. `programs` receives the ring buffer's descriptor.
    pub(crate) fn for_test(
        manifest: Manifest,
        maps: std::collections::HashMap<String, crate::handles::LoadedMap>,
        programs: impl FnOnce(std::os::fd::RawFd) -> Vec<LoadedProgram>,
        options: &AttachOptions<'_>,
    ) -> Result<Session, AttachError> {
        let (core, programs) = Core::for_test(manifest, maps, programs)?;
        LoadedScript { core, programs }.attach(options)
    }
}
