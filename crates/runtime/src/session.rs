//! A session: the maps, programs and links of a script in the kernel.
//!
//! ```text
//! LoadedScript::load     creates maps, loads programs, adds the processes to trace
//! LoadedScript::attach   attaches the programs that follow forks, runs BEGIN, attaches the rest
//! Session::extend        the same steps for another module, which shares the maps
//! Session::run           reads until the end (`read::event_loop`)
//! ```
//!
//! Not here: how an object is loaded (`load`), how one program is attached (`attach`), how links are closed (`attach::detach`).

use crate::attach::detach::PendingDetach;
use crate::attach::link::Link;
use crate::attach::{self, AttachResult, Attacher, detach};
use crate::control_cell::ControlCell;
use crate::error::{AttachError, LoadError, SiteFailure};
use crate::in_process::RemoteError;
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::inotify::WriteWatch;
use crate::kernel::signals::Arrivals;
use crate::kernel::{clock, features, sys};
use crate::load::{self, LoadedMap, LoadedOrRefused, LoadedProgram, Objects, ProgramHandle};
use crate::map_handle::MapHandle;
use crate::module::{AttachOptions, Module, ModuleId, ModulePart};
use crate::read::maps::ScriptMap;
use crate::read::ring::Ring;
use crate::read::{losses, maps, ring};
use crate::run_stats::{self, AttachedProgram, Runs};
use crate::stacks::store::StackStore;
use crate::stacks::unwind_maps::{self, UnwindMaps};
use crate::user_space::{self, PatchReport, Patched, Patching, UserSpace};
use libbpf_sys as bpf;
use report::{Loss, Snapshot};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use wire::Manifest;
use wire::counter::{COUNTERS_MAP, Counter, CounterKind, FAILURES_MAP};
use wire::manifest::{self, Attach, CompiledScript, EventKind, Program, Side};
use wire::trigger::{Environment, TestKind, Trigger};
use wire::types::MissingProbes;

/// How to load.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes of the ring buffer, rounded up to a power of two; 0: the size that the script sets, else
    /// [`ring::DEFAULT_BYTES`]. The size is halved while the kernel has no memory for it.
    pub ring_bytes: u32,
    /// Processes to trace, for a script that was compiled with the pid filter.
    pub pids: Vec<u32>,
    /// Number of counters reserved for modules that extend the session; 0: enough for libraries that are mapped later.
    pub spare_counters: u32,
    /// The process that the tracer started, for `cpid`.
    pub child: Option<u32>,
}

/// Maps and ring buffer of a session, independent of the attached programs.
pub(crate) struct Core {
    pub manifest: Manifest,
    pub scripts: Vec<ScriptMap>,
    pub ring: Ring,
    pub cpus: usize,
    shared: HashMap<String, LoadedMap>,
    stacks: Arc<StackStore>,
    /// `Some` if the programs run in the traced processes.
    user: Option<UserSpace>,
    /// By counter: calls that entered before the program at their return was attached. They do not count as running.
    entered_early: Vec<u64>,
}

/// An END program that has not run yet.
pub(crate) struct EndProgram {
    module: ModuleId,
    clause: u32,
    pub program: ProgramHandle,
}

/// The program of a `signal` probe: runs each time that the tracer receives the signal.
pub(crate) struct SignalProgram {
    module: ModuleId,
    clause: u32,
    pub signal: Arrivals,
    pub program: ProgramHandle,
}

/// The program of an `interval` probe of a session that does not run in the kernel.
pub(crate) struct TimerProgram {
    pub timer: OwnedFd,
    pub program: ProgramHandle,
}

/// The program of a test or a bench.
pub(crate) struct TestProgram {
    pub kind: TestKind,
    pub name: String,
    pub program: ProgramHandle,
}

/// A loaded script. Nothing is attached, so no program runs.
pub struct LoadedScript {
    core: Core,
    programs: Vec<LoadedOrRefused>,
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
    pub fn load(compiled: &CompiledScript, options: &Options) -> Result<LoadedScript, LoadError> {
        sys::raise_memlock_limit();
        let (ring_map, ring_size) = create_ring(ring_size(&compiled.manifest, options))?;
        let ring_fd = ring_map.try_clone().map_err(setup("cannot duplicate a descriptor"))?;
        let ring_map =
            LoadedMap { handle: MapHandle::Kernel(ring_map), max_entries: ring_size, value_size: 0 };
        let mut core = Core {
            manifest: compiled.manifest.clone(),
            scripts: Vec::new(),
            ring: Ring::new(ring_fd, ring_size).map_err(setup("the ring buffer cannot be mapped"))?,
            cpus: sys::possible_cpus().map_err(setup("cannot count the CPUs"))?,
            shared: HashMap::from([(manifest::RING_MAP.to_owned(), ring_map)]),
            stacks: Arc::new(StackStore::default()),
            user: None,
            entered_early: Vec::new(),
        };
        core.create_unwind_tables(&compiled.manifest)?;
        let objects = load::load_first(compiled, &core.shared, options.spare_counters)?;
        let programs = core.adopt(objects)?;
        core.init_control_cell(options.child)?;
        let loaded = LoadedScript { core, programs };
        let enter = |pid: &u32| {
            // The started program has one thread, which is held; other processes start and end threads at any time.
            let threads = if options.child == Some(*pid) { 1 } else { manifest::UNCOUNTED };
            loaded.core.trace(*pid, threads).map_err(setup("the traced processes cannot be recorded"))
        };
        options.pids.iter().try_for_each(enter)?;
        Ok(loaded)
    }

    /// Prepares the first of several scripts whose programs run in the traced processes. Needs no rights. The other ones get room and
    /// are loaded later.
    ///
    /// # Errors
    /// [`LoadError::NotInProcess`] if a program needs what only the kernel has.
    ///
    /// # Panics
    /// If there is no script.
    pub fn load_in_process(scripts: &[CompiledScript], options: &Options) -> Result<LoadedScript, LoadError> {
        let (compiled, others) = scripts.split_first().expect("a script");
        in_process_only(&compiled.manifest)?;
        let cpus = sys::possible_cpus().map_err(setup("cannot count the CPUs"))?;
        let spare = if options.spare_counters == 0 { load::SPARE_COUNTERS } else { options.spare_counters };
        let sizes = (cpus as u32, ring_size(&compiled.manifest, options), spare);
        let (user, objects) = UserSpace::load((compiled, others), sizes)?;
        let ring = match user.ring() {
            Some((memory, place)) => Ring::in_memory(memory, place),
            None => Ring::empty(),
        };
        let mut core = Core {
            manifest: compiled.manifest.clone(),
            scripts: Vec::new(),
            ring,
            cpus,
            shared: HashMap::new(),
            stacks: Arc::new(StackStore::default()),
            entered_early: Vec::new(),
            user: Some(user),
        };
        let programs = core.adopt(objects)?;
        core.init_control_cell(options.child)?;
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
        self.core.check_counters(&compiled.manifest)?;
        self.core.create_unwind_tables(&compiled.manifest)?;
        let objects = match &mut self.core.user {
            Some(user) => {
                in_process_only(&compiled.manifest)?;
                user.extend(compiled)?
            }
            None => load::load(compiled, &self.core.shared)?,
        };
        self.core.manifest = compiled.manifest.clone();
        let programs = self.core.adopt(objects)?;
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

    /// Stops tracing a process.
    pub fn untrace_pid(&self, tgid: u32) -> io::Result<()> {
        self.core.pids().map_or(Ok(()), |pids| pids.delete(&tgid.to_le_bytes()))
    }

    /// Maps of the programs that walk stacks; `None` if no program does.
    pub fn unwind_maps(&self) -> Option<UnwindMaps> {
        self.core.unwind_maps()
    }

    /// Traces a process that the tracer has started, and stores its id as `cpid`.
    pub fn trace_child(&self, pid: u32) -> io::Result<()> {
        if let Some(control) = self.core.control() {
            control.set(&[(manifest::CONTROL_CHILD, pid.into())])?;
        }
        self.core.trace(pid, 1)
    }

    /// Stops tracing all processes.
    pub fn untrace_all(&self) -> io::Result<()> {
        self.core.pids().map_or(Ok(()), |pids| pids.delete_all(size_of::<u32>()))
    }

    /// Whether a process is traced, followed children included. Without a pid filter all processes are traced. In a pid
    /// namespace, followed children have other numbers in the kernel and are not found.
    pub fn is_traced(&self, tgid: u32) -> bool {
        if let Some(user) = &self.core.user {
            return user.is_met(tgid);
        }
        let Some(pids) = self.core.pids() else { return true };
        pids.lookup(&tgid.to_le_bytes(), &mut [0; 8]).is_ok()
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
        self.core.losses()
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
        let set =
            self.core.control().map_or(Ok(()), |control| control.set(&[(manifest::CONTROL_START, now)]));
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

    /// Whether a process that maps a file, given by its inode and path, must be patched before it goes on.
    pub fn must_patch(&self, pid: u32, inode: u64, path: &Path) -> bool {
        self.core.user.as_ref().is_some_and(|user| user.concerns(pid, inode, path))
    }

    /// Whether a process that was patched has mapped a file again at the same address, so that it must be patched again.
    pub fn has_lost_jumps(&self, pid: u32) -> bool {
        self.core.user.as_ref().is_some_and(|user| user.has_lost_jumps(pid))
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

    /// What was patched so far, if the programs run in the traced processes.
    pub fn patched(&self) -> Option<Patched> {
        self.core.user.as_ref().map(UserSpace::patched)
    }

    /// Whether the programs run in the traced processes.
    pub fn is_in_process(&self) -> bool {
        self.core.user.is_some()
    }

    /// Silences and detaches all programs.
    pub(crate) fn detach(&mut self) -> PendingDetach {
        self.core.silence_programs();
        if let Some(user) = &mut self.core.user {
            user.detach();
        }
        let mut links = std::mem::take(&mut self.links);
        links.extend(self.writes.take().map(|writes| Link::of_nothing(writes.into_fd())));
        detach::in_background(links)
    }

    fn attach_all(
        &mut self,
        programs: Vec<LoadedOrRefused>,
        options: &AttachOptions<'_>,
    ) -> Result<(), AttachError> {
        let described = self.core.manifest.programs.clone();
        let mut pairs: Vec<(&Program, LoadedOrRefused)> = described.iter().zip(programs).collect();
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
        loaded: LoadedOrRefused,
        options: &AttachOptions<'_>,
    ) -> Result<(usize, Vec<SiteFailure>), AttachError> {
        let manifest = &self.core.manifest;
        let made = match (&mut self.core.user, &loaded) {
            (Some(user), Ok(loaded)) => {
                attach_in_process(user, manifest, program, options, &mut self.timers, loaded)?
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

/// What was attached of a clause.
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
            Environment::Tracer | Environment::Timer | Environment::Sample => (3, any),
        },
    }
}

impl Core {
    /// Creates the map of unwind tables if this module is the first that needs it.
    fn create_unwind_tables(&mut self, manifest: &Manifest) -> Result<(), LoadError> {
        let name = wire::unwind::TABLES_MAP;
        let is_needed = self.user.is_none() && manifest.internal_maps.iter().any(|map| map == name);
        if is_needed && !self.shared.contains_key(name) {
            let tables =
                unwind_maps::create_tables().map_err(setup("the map of unwind tables cannot be created"))?;
            self.shared.insert(name.to_owned(), tables);
        }
        Ok(())
    }

    fn unwind_maps(&self) -> Option<UnwindMaps> {
        if let Some(user) = &self.user {
            return user.unwind_maps();
        }
        let map = |name: &str| self.shared.get(name)?.handle.fd()?.try_clone().ok();
        Some(UnwindMaps::in_kernel(
            map(wire::unwind::TABLES_MAP)?,
            map(wire::unwind::MAPPINGS_MAP)?,
            map(wire::unwind::UNKNOWN_MAP)?,
        ))
    }

    /// Adds the maps and stack maps of a loaded module to the session. Returns the module's programs.
    fn adopt(&mut self, objects: Objects) -> Result<Vec<LoadedOrRefused>, LoadError> {
        let manifest = &self.manifest;
        let ours = [manifest::PIDS_MAP, manifest::CONTROL_MAP, COUNTERS_MAP, FAILURES_MAP];
        let named = manifest.maps.iter().map(|map| map.symbol.as_str());
        let named = named.chain(manifest.stacks.iter().map(|stack| stack.symbol.as_str()));
        let named: Vec<&str> =
            named.chain(manifest.internal_maps.iter().map(String::as_str)).chain(ours).collect();
        // Constant data is not shared between modules.
        let shared = objects.maps.into_iter().filter(|(name, _)| named.contains(&name.as_str()));
        self.shared.extend(shared);
        for map in &self.manifest.maps[self.scripts.len()..] {
            let (handle, max_entries) = self.duplicate(&map.symbol)?;
            if map.name == wire::map::KERNEL_TEXTS {
                let names = self.duplicate(&map.symbol)?.0;
                self.stacks.add_kernels(names, map.value_size() as usize);
            }
            if map.name == wire::map::KERNEL_PLACES {
                self.stacks.add_places(self.duplicate(&map.symbol)?.0);
            }
            if map.name == wire::map::DEVICE_UUIDS {
                self.stacks.add_uuids(self.duplicate(&map.symbol)?.0);
            }
            self.scripts.push(ScriptMap::new(handle, map.clone(), self.cpus, max_entries));
        }
        for map in &self.manifest.read {
            self.scripts.get(*map as usize).into_iter().for_each(ScriptMap::set_read_by_programs);
        }
        for stack in &self.manifest.stacks[self.stacks.len()..] {
            self.stacks.add(self.duplicate(&stack.symbol)?.0, stack.clone());
        }
        Ok(objects.programs)
    }

    fn duplicate(&self, symbol: &str) -> Result<(MapHandle, u32), LoadError> {
        let missing = || LoadError::Missing { what: "map", symbol: symbol.to_owned() };
        let map = self.shared.get(symbol).ok_or_else(missing)?;
        Ok((map.handle.try_clone().map_err(setup("cannot duplicate a descriptor"))?, map.max_entries))
    }

    /// Writes the values of the control cell that do not change during a run.
    fn init_control_cell(&self, child: Option<u32>) -> Result<(), LoadError> {
        let Some(control) = self.control() else { return Ok(()) };
        let words = [
            (manifest::CONTROL_START, SystemClock.boot_ns()),
            (manifest::CONTROL_TAI, clock::tai_ahead_ns(&SystemClock) as u64),
            (manifest::CONTROL_CHILD, u64::from(child.unwrap_or(0))),
        ];
        control.set(&words).map_err(setup("the control map cannot be written"))
    }

    /// Descriptors that are readable when a traced process has ended.
    pub fn end_fds(&self) -> impl Iterator<Item = RawFd> {
        self.user.iter().flat_map(UserSpace::end_fds)
    }

    /// Runs the programs for the traced processes that have ended.
    pub fn serve_ends(&mut self) -> io::Result<()> {
        self.user.as_mut().map_or(Ok(()), UserSpace::serve_ends)
    }

    /// Keeps the clock of programs in processes right.
    pub fn tick(&mut self) {
        if let Some(user) = &mut self.user {
            user.tick();
        }
    }

    /// Subtracts the time since `then_ns` from `elapsed`.
    pub fn stop_clock_at(&self, then_ns: u64) -> io::Result<()> {
        let Some(control) = self.control() else { return Ok(()) };
        let late = SystemClock.boot_ns().saturating_sub(then_ns);
        control.set(&[(manifest::CONTROL_START, control.start_ns()? + late)])
    }

    /// Makes the programs of probes return at once from now on.
    fn silence_programs(&self) {
        let silenced = self.control().map_or(Ok(()), |control| control.stop());
        debug_assert!(silenced.is_ok(), "the cell of an array can always be written: {silenced:?}");
    }

    /// The code of an `exit()` whose record was lost or has not been read yet.
    pub fn exit_code(&self) -> io::Result<Option<i64>> {
        let can_exit = self.manifest.events.iter().any(|event| event.kind == EventKind::Exit);
        self.control().filter(|_| can_exit).map_or(Ok(None), |control| control.exit_code())
    }

    pub(crate) fn control(&self) -> Option<ControlCell<'_>> {
        self.shared.get(manifest::CONTROL_MAP).map(|map| ControlCell(&map.handle))
    }

    fn pids(&self) -> Option<&MapHandle> {
        self.shared.get(manifest::PIDS_MAP).map(|map| &map.handle)
    }

    /// Adds a process to the set of traced processes. Without a pid filter there is no such map and nothing to do.
    fn trace(&self, tgid: u32, threads: u64) -> io::Result<()> {
        let enter = |pids: &MapHandle| pids.update(&tgid.to_le_bytes(), &threads.to_le_bytes());
        self.pids().map_or(Ok(()), enter)
    }

    pub fn script_map(&self, map: u32) -> io::Result<&ScriptMap> {
        self.scripts.get(map as usize).ok_or_else(|| io::Error::other(format!("no map with index {map}")))
    }

    pub fn snapshot(&self, map: u32, top: u32, div: u32) -> io::Result<Snapshot> {
        self.script_map(map)?.snapshot(map, top, div)
    }

    /// Refuses a module whose counters do not fit into the counter maps: programs would not count them, without an error.
    fn check_counters(&self, manifest: &Manifest) -> Result<(), LoadError> {
        let frequent = self.shared.get(COUNTERS_MAP).map(|map| map.max_entries);
        let failures = self.shared.get(FAILURES_MAP).map(|map| map.value_size / 8);
        let room = frequent.into_iter().chain(failures).min().map_or(usize::MAX, |room| room as usize);
        if manifest.counters.len() <= room { Ok(()) } else { Err(LoadError::NoCounters { room }) }
    }

    /// Records the calls that have entered so far, of clauses with a program at each side: the one at the entry is attached first.
    /// The tracer itself makes calls in between, such as reading files.
    fn find_entered_early(&mut self, attached: &[Program]) {
        let has_both = |clause: u32| {
            let is_one_side = |program: &&Program| {
                matches!(program.attach, Attach::Functions { side: Side::Entry | Side::Return, .. })
            };
            attached
                .iter()
                .any(|program| program.clause == clause && program.auxiliary && is_one_side(&program))
        };
        let open =
            self.all_counters().map(|counts| losses::losses(&self.manifest, &counts)).unwrap_or_default();
        // Counters of earlier modules keep their numbers.
        for at in self.entered_early.len()..self.manifest.counters.len() {
            let counter = &self.manifest.counters[at];
            let is_early = matches!(counter.kind, CounterKind::Entered(clause) if has_both(clause));
            let of = |loss: &&Loss| loss.kind == counter.kind && loss.place == counter.place;
            let early = open.iter().find(of).map_or(0, |loss| loss.count);
            self.entered_early.push(if is_early { early } else { 0 });
        }
    }

    /// Losses and errors so far, as reported at the end of a run.
    pub fn losses(&self) -> io::Result<Vec<Loss>> {
        let mut losses = losses::losses(&self.manifest, &self.counters()?);
        if let Some(user) = &self.user {
            let symbol = |map: u32| self.manifest.maps.get(map as usize).map_or("", |map| &map.symbol);
            losses = losses::separate_locked(losses, |map| user.refused_updates(symbol(map)));
        }
        let lost_returns = self.user.as_ref().map_or(0, UserSpace::lost_returns);
        losses.extend(losses::lost_returns(lost_returns));
        losses.extend(losses::unfinished(self.ring.unfinished()));
        Ok(losses)
    }

    /// Counters of all modules, summed over CPUs, in the order of the manifest.
    pub fn counters(&self) -> io::Result<Vec<u64>> {
        let early = self.entered_early.iter().chain(std::iter::repeat(&0));
        Ok(self
            .all_counters()?
            .into_iter()
            .zip(early)
            .map(|(count, early)| count.saturating_sub(*early))
            .collect())
    }

    fn all_counters(&self) -> io::Result<Vec<u64>> {
        let failures = self.failures()?;
        let frequent = self.shared.get(COUNTERS_MAP);
        let read = |(index, counter): (usize, &Counter)| match frequent {
            Some(map) if counter.kind.is_frequent() => {
                let mut row = vec![0; 8 * self.cpus];
                map.handle.lookup(&(index as u32).to_le_bytes(), &mut row)?;
                Ok(maps::words(&row).into_iter().sum())
            }
            _ => Ok(failures.get(index).copied().unwrap_or(0)),
        };
        self.manifest.counters.iter().enumerate().map(read).collect()
    }

    /// Counters of failures, by their index in the manifest.
    fn failures(&self) -> io::Result<Vec<u64>> {
        let Some(map) = self.shared.get(FAILURES_MAP) else { return Ok(Vec::new()) };
        let mut value = vec![0; map.value_size as usize];
        map.handle.lookup(&[0; 4], &mut value)?;
        Ok(maps::words(&value))
    }
}

/// The reason why a script cannot run in the traced processes; `None` if it can.
pub fn why_not_in_process(compiled: &CompiledScript) -> Option<String> {
    in_process_only(&compiled.manifest)
        .and_then(|()| user_space::check(compiled))
        .err()
        .map(|error| error.to_string())
}

/// Refuses programs that only the kernel can run.
fn in_process_only(manifest: &Manifest) -> Result<(), LoadError> {
    let refused = manifest.programs.iter().find(|program| match &program.attach {
        Attach::Functions { hook, .. } => hook.is_in_kernel(),
        Attach::Event(trigger) => !matches!(
            trigger,
            Trigger::Begin | Trigger::End | Trigger::Interval { .. } | Trigger::Signal { .. }
        ),
        Attach::ProcessEnd => false,
        Attach::Follow { .. } => true,
    });
    let reason = refused.map(|program| match program.text.as_str() {
        "" => "it follows events of the kernel".to_owned(),
        text => format!("`{text}` is an event of the kernel"),
    });
    reason.map_or(Ok(()), |reason| Err(LoadError::NotInProcess { reason }))
}

/// Adds a program to the user space of a session.
fn attach_in_process(
    user: &mut UserSpace,
    manifest: &Manifest,
    program: &Program,
    options: &AttachOptions<'_>,
    timers: &mut Vec<TimerProgram>,
    loaded: &LoadedProgram,
) -> Result<AttachResult, AttachError> {
    let mut result = AttachResult::default();
    match &program.attach {
        Attach::Functions { side, sites, .. } => {
            let nowhere = |_: u32, _: u64| Err("no information about the function".to_owned());
            let patch = options.patch.unwrap_or(Patching { functions: &nowhere, unwinder: |_| vec![] });
            let refused = user.add_probe(program, (*side, sites), (options.files, patch));
            result.attached = sites.len() - refused.len();
            result.failures =
                refused.into_iter().map(|one| user_space::failure(manifest, one, options.files)).collect();
        }
        Attach::ProcessEnd => {
            user.add_process_end(&loaded.handle);
            result.attached = 1;
        }
        Attach::Event(Trigger::Interval { period_ns }) => {
            let failed = |errno| attach::probe_error(manifest, program, "the timer cannot be created", errno);
            let timer = sys::timer(*period_ns);
            let made =
                timer.and_then(|timer| Ok(TimerProgram { timer, program: loaded.handle.try_clone()? }));
            timers.push(made.map_err(failed)?);
            result.attached = 1;
        }
        _ => result.attached = 1,
    }
    Ok(result)
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

fn setup(what: &'static str) -> impl Fn(io::Error) -> LoadError {
    move |errno| match errno.raw_os_error() {
        Some(libc::EPERM) => features::explain(errno).into(),
        _ => LoadError::Setup { what, errno },
    }
}

fn ring_size(manifest: &Manifest, options: &Options) -> u32 {
    let bytes = [options.ring_bytes, manifest.ring_bytes].into_iter().find(|bytes| *bytes != 0);
    ring::round_size(bytes.unwrap_or(ring::DEFAULT_BYTES))
}

/// Creates the ring buffer. Halves the size until the kernel has memory for it.
fn create_ring(mut size: u32) -> Result<(OwnedFd, u32), LoadError> {
    loop {
        // SAFETY: numbers and a C string.
        let made = sys::owned_libbpf(unsafe {
            bpf::bpf_map_create(bpf::BPF_MAP_TYPE_RINGBUF, c"ct_ring".as_ptr(), 0, 0, size, std::ptr::null())
        });
        match made {
            Ok(fd) => return Ok((fd, size)),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && size > 1 << 16 => size /= 2,
            Err(error) => return Err(setup("the ring buffer cannot be created")(error)),
        }
    }
}

#[cfg(test)]
impl Session {
    /// Creates a session around programs that a test loads itself. `programs` receives the ring buffer's descriptor.
    pub(crate) fn for_test(
        manifest: Manifest,
        maps: HashMap<String, LoadedMap>,
        programs: impl FnOnce(std::os::fd::RawFd) -> Vec<LoadedProgram>,
        options: &AttachOptions<'_>,
    ) -> Result<Session, AttachError> {
        let (ring, size) = create_ring(ring::DEFAULT_BYTES)?;
        let mut core = Core {
            manifest,
            scripts: Vec::new(),
            ring: Ring::new(ring, size).expect("ring"),
            cpus: sys::possible_cpus().expect("sysfs"),
            shared: HashMap::new(),
            stacks: Arc::new(StackStore::default()),
            user: None,
            entered_early: Vec::new(),
        };
        let programs = programs(core.ring.fd().expect("a ring in the kernel")).into_iter().map(Ok).collect();
        let programs = core.adopt(Objects { programs, maps })?;
        core.init_control_cell(None)?;
        LoadedScript { core, programs }.attach(options)
    }
}
