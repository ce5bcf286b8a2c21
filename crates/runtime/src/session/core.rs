//! Maps and ring buffers of a session, at the places where its programs run: in the kernel and in the traced processes.
//!
//! A map of the script is at one of the places. Each place has a control cell, counters and a ring buffer of its own; the cells are
//! written together, and counters are added.

use crate::error::LoadError;
use crate::handles::{LoadResult, LoadedMap, MapHandle, Objects};
use crate::in_process::{MemorySizes, UserSpace, placement};
use crate::kernel::clock::{self, Clock, SystemClock};
use crate::kernel::{features, sys};
use crate::load;
use crate::options::Options;
use crate::read::losses;
use crate::read::maps::{self, MapPrint, ScriptMap};
use crate::read::ring::{self, Ring, Rings};
use crate::remote::RemoteError;
use crate::session::control_cell::ControlCell;
use crate::shared::Damage;
use crate::stacks::store::StackStore;
use crate::stacks::unwind_maps::{self, UnwindMaps};
use libbpf_sys as bpf;
use report::{Loss, Snapshot};
use std::collections::HashMap;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use wire::Manifest;
use wire::counter::{COUNTERS_MAP, CounterKind, FAILURES_MAP};
use wire::manifest::{self, Attach, CompiledScript, EventKind, Program, Side};

/// Maps of the objects at a place, by symbol.
type Maps = HashMap<String, LoadedMap>;

/// Maps and ring buffers of a session, independent of the attached programs.
pub(crate) struct Core {
    pub manifest: Manifest,
    pub scripts: Vec<ScriptMap>,
    pub rings: Rings,
    pub cpus: usize,
    options: Options,
    /// Maps in the kernel; `None` if no program runs there.
    kernel: Option<Maps>,
    /// Maps in memory that the traced processes share.
    shared: Maps,
    /// `Some` if programs run in the traced processes.
    pub user: Option<UserSpace>,
    /// Gates of processes in which no programs run, if there are any.
    gates: Option<UserSpace>,
    pub stacks: Arc<StackStore>,
    /// By counter: calls that entered before the program at their return was attached. They do not count as running.
    entered_early: Vec<u64>,
}

impl Core {
    /// A session without programs.
    pub(crate) fn new(options: &Options) -> Result<Core, LoadError> {
        Ok(Core {
            manifest: Manifest::default(),
            scripts: Vec::new(),
            rings: Rings::default(),
            cpus: sys::possible_cpus().map_err(setup("cannot count the CPUs"))?,
            options: options.clone(),
            kernel: None,
            shared: Maps::new(),
            user: None,
            gates: None,
            stacks: Arc::default(),
            entered_early: Vec::new(),
        })
    }

    /// Loads a module; returns its programs. `later`: modules that follow, for which the traced processes get room.
    pub(crate) fn add(
        &mut self,
        compiled: &CompiledScript,
        later: &[CompiledScript],
    ) -> Result<Vec<LoadResult>, LoadError> {
        self.check_counters(&compiled.manifest)?;
        let (is_first, objects) = match compiled.manifest.in_process {
            true => (self.user.is_none(), self.load_for_processes(compiled, later)?),
            false => (self.kernel.is_none(), self.load_in_kernel(compiled)?),
        };
        self.manifest = compiled.manifest.clone();
        let programs = self.adopt(objects)?;
        if is_first {
            self.init_control_cells()?;
        }
        if is_first && !compiled.manifest.in_process {
            self.trace_given()?;
        }
        Ok(programs)
    }

    fn load_in_kernel(&mut self, compiled: &CompiledScript) -> Result<Objects, LoadError> {
        let spare = self.options.spare_counters;
        if let Some(maps) = &mut self.kernel {
            create_unwind_tables(maps, &compiled.manifest)?;
            return load::load(compiled, maps);
        }
        sys::raise_memlock_limit();
        let mut maps = Maps::new();
        let ring = create_ring(ring_size(&compiled.manifest, &self.options), &mut maps)?;
        create_unwind_tables(&mut maps, &compiled.manifest)?;
        let objects = load::load_first(compiled, &maps, spare)?;
        self.rings.add(ring);
        self.kernel = Some(maps);
        Ok(objects)
    }

    fn load_for_processes(
        &mut self,
        compiled: &CompiledScript,
        later: &[CompiledScript],
    ) -> Result<Objects, LoadError> {
        placement::check(&compiled.manifest)?;
        if let Some(user) = &mut self.user {
            return user.extend(compiled);
        }
        let given = self.options.spare_counters;
        let spare = if given == 0 { load::SPARE_COUNTERS } else { given };
        let sizes = MemorySizes {
            cpus: self.cpus as u32,
            ring_bytes: ring_size(&compiled.manifest, &self.options),
            spare_counters: spare,
        };
        let (user, objects) = UserSpace::load(compiled, later, sizes)?;
        if let Some((memory, place)) = user.ring() {
            self.rings.add(Ring::in_memory(memory, place));
        }
        self.user = Some(user);
        Ok(objects)
    }

    /// The part that patches functions of processes that are to load the agent.
    pub(crate) fn gates(&mut self) -> Result<&mut UserSpace, RemoteError> {
        if self.user.is_none() && self.gates.is_none() {
            self.gates = Some(UserSpace::for_gates(self.cpus as u32)?);
        }
        Ok(self.user.as_mut().or(self.gates.as_mut()).expect("just created"))
    }

    /// The parts of the session that have patched processes.
    pub(crate) fn patching(&mut self) -> impl Iterator<Item = &mut UserSpace> {
        self.user.iter_mut().chain(&mut self.gates)
    }

    /// Adds the processes that are to be traced from the start.
    fn trace_given(&self) -> Result<(), LoadError> {
        let enter = |pid: &u32| {
            // The started program has one thread, which is held; other processes start and end threads at any time.
            let threads = if self.options.child == Some(*pid) { 1 } else { manifest::UNCOUNTED };
            self.trace(*pid, threads).map_err(setup("the traced processes cannot be recorded"))
        };
        self.options.pids.iter().try_for_each(enter)
    }

    /// Maps of each place.
    fn places(&self) -> impl Iterator<Item = &Maps> {
        self.user.iter().map(|_| &self.shared).chain(&self.kernel)
    }

    /// A map of the script, at the place where it is.
    fn map(&self, symbol: &str) -> Option<&LoadedMap> {
        self.places().find_map(|maps| maps.get(symbol))
    }

    /// Maps for the reader of stacks; `None` if no program walks stacks.
    pub(crate) fn unwind_maps(&self) -> Option<UnwindMaps> {
        let of_processes = self.user.as_ref().and_then(UserSpace::unwind_maps);
        let handle = |name: &str| self.map(name)?.handle.try_clone().ok();
        let maps = of_processes.or_else(|| {
            let map = |name: &str| self.kernel.as_ref()?.get(name)?.handle.fd()?.try_clone().ok();
            Some(UnwindMaps::in_kernel(
                map(wire::unwind::TABLES_MAP)?,
                map(wire::unwind::MAPPINGS_MAP)?,
                map(wire::unwind::UNKNOWN_MAP)?,
            ))
        });
        maps.map(|maps| maps.with_pythons(handle(wire::python::PYTHONS_MAP)))
    }

    /// Adds the maps and stack maps of a loaded module to the session. Returns the module's programs.
    fn adopt(&mut self, objects: Objects) -> Result<Vec<LoadResult>, LoadError> {
        let manifest = &self.manifest;
        let ours = [manifest::PIDS_MAP, manifest::CONTROL_MAP, COUNTERS_MAP, FAILURES_MAP];
        let named = manifest.maps.iter().map(|map| map.symbol.as_str());
        let named = named.chain(manifest.stacks.iter().map(|stack| stack.symbol.as_str()));
        let named: Vec<&str> =
            named.chain(manifest.internal_maps.iter().map(String::as_str)).chain(ours).collect();
        // Constant data is not shared between modules.
        let shared = objects.maps.into_iter().filter(|(name, _)| named.contains(&name.as_str()));
        match (manifest.in_process, &mut self.kernel) {
            (false, Some(kernel)) => kernel.extend(shared),
            _ => self.shared.extend(shared),
        }
        for map in &self.manifest.maps[self.scripts.len()..] {
            if self.comes_later(&map.symbol) {
                break;
            }
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
            if self.comes_later(&stack.symbol) {
                break;
            }
            self.stacks.add(self.duplicate(&stack.symbol)?.0, stack.clone());
        }
        if self.map(wire::python::CODES_MAP).is_some() {
            let [codes, lines] =
                [wire::python::CODES_MAP, wire::python::LINES_MAP].map(|map| self.duplicate(map));
            self.stacks.add_codes(codes?.0, lines?.0);
        }
        Ok(objects.programs)
    }

    /// Whether a map is in the kernel, whose first module is loaded after those of the processes.
    fn comes_later(&self, symbol: &str) -> bool {
        self.kernel.is_none() && self.map(symbol).is_none()
    }

    fn duplicate(&self, symbol: &str) -> Result<(MapHandle, u32), LoadError> {
        let missing = || LoadError::Missing { what: "map", symbol: symbol.to_owned() };
        let map = self.map(symbol).ok_or_else(missing)?;
        Ok((map.handle.try_clone().map_err(setup("cannot duplicate a descriptor"))?, map.max_entries))
    }

    /// Writes the values of the control cells that do not change during a run.
    fn init_control_cells(&self) -> Result<(), LoadError> {
        let words = [
            (manifest::CONTROL_START, SystemClock.boot_ns()),
            (manifest::CONTROL_TAI, clock::tai_ahead_ns(&SystemClock) as u64),
            (manifest::CONTROL_CHILD, u64::from(self.options.child.unwrap_or(0))),
        ];
        self.set_control(&words).map_err(setup("the control map cannot be written"))
    }

    /// Damage by a traced process to the memory that it shares with the tracer, if there is any.
    pub(crate) fn damage(&self) -> Option<Damage> {
        self.user.as_ref()?.damage().cloned()
    }

    /// The processes that share memory with the tracer.
    pub(crate) fn sharing(&self) -> Vec<u32> {
        self.user.as_ref().map_or_else(Vec::new, UserSpace::sharing)
    }

    /// Checks the maps that traced processes can write, whose programs do not run any more.
    pub(crate) fn check_maps(&self) {
        self.shared.values().for_each(|map| map.handle.check());
    }

    /// Writes words of all control cells.
    pub(crate) fn set_control(&self, words: &[(u32, u64)]) -> io::Result<()> {
        self.controls().try_for_each(|control| control.set(words))
    }

    /// Descriptors that are readable when a traced process has ended.
    pub(crate) fn end_fds(&self) -> impl Iterator<Item = RawFd> {
        self.user.iter().flat_map(UserSpace::end_fds)
    }

    /// Runs the programs for the traced processes that have ended.
    pub(crate) fn serve_ends(&mut self) -> io::Result<()> {
        self.user.as_mut().map_or(Ok(()), UserSpace::serve_ends)
    }

    /// Keeps the clock of programs in processes right.
    pub(crate) fn tick(&mut self) {
        if let Some(user) = &mut self.user {
            user.tick();
        }
    }

    /// Subtracts the time since `then_ns` from `elapsed`.
    pub(crate) fn stop_clock_at(&self, then_ns: u64) -> io::Result<()> {
        let late = SystemClock.boot_ns().saturating_sub(then_ns);
        self.controls().try_for_each(|control| {
            control.set(&[(manifest::CONTROL_START, control.start_ns()?.wrapping_add(late))])
        })
    }

    /// Makes the programs of probes return at once from now on.
    pub(crate) fn silence_programs(&self) {
        let silenced = self.controls().try_for_each(|control| control.stop());
        debug_assert!(silenced.is_ok(), "the cell of an array can always be written: {silenced:?}");
    }

    /// The code of an `exit()` whose record was lost or has not been read yet.
    pub(crate) fn exit_code(&self) -> io::Result<Option<i64>> {
        let can_exit = self.manifest.events.iter().any(|event| event.kind == EventKind::Exit);
        let mut codes = self.controls().filter(|_| can_exit).map(|control| control.exit_code());
        codes.find(|code| !matches!(code, Ok(None))).unwrap_or(Ok(None))
    }

    /// The control cell of each place.
    pub(crate) fn controls(&self) -> impl Iterator<Item = ControlCell<'_>> {
        self.places().filter_map(|maps| Some(ControlCell(&maps.get(manifest::CONTROL_MAP)?.handle)))
    }

    /// The set of traced processes, for programs in the kernel.
    pub(crate) fn pids(&self) -> Option<&MapHandle> {
        self.kernel.as_ref()?.get(manifest::PIDS_MAP).map(|map| &map.handle)
    }

    /// Adds a process to the set of traced processes. Without a pid filter there is no such map and nothing to do.
    pub(crate) fn trace(&self, tgid: u32, threads: u64) -> io::Result<()> {
        let enter = |pids: &MapHandle| pids.update(&tgid.to_le_bytes(), &threads.to_le_bytes());
        self.pids().map_or(Ok(()), enter)
    }

    pub(crate) fn script_map(&self, map: u32) -> io::Result<&ScriptMap> {
        self.scripts.get(map as usize).ok_or_else(|| io::Error::other(format!("no map with index {map}")))
    }

    pub(crate) fn snapshot(&self, map: u32, top: u32, div: u32) -> io::Result<Snapshot> {
        self.script_map(map)?.snapshot(MapPrint { map, top, div })
    }

    /// Refuses a module whose counters do not fit into the counter maps: programs would not count them, without an error.
    fn check_counters(&self, manifest: &Manifest) -> Result<(), LoadError> {
        let frequent = self.places().filter_map(|maps| Some(maps.get(COUNTERS_MAP)?.max_entries));
        let failures = self.places().filter_map(|maps| Some(maps.get(FAILURES_MAP)?.value_size / 8));
        let room = frequent.chain(failures).min().map_or(usize::MAX, |room| room as usize);
        if manifest.counters.len() <= room { Ok(()) } else { Err(LoadError::NoCounters { room }) }
    }

    /// Records the calls that have entered so far, of clauses with a program at each side: the one at the entry is attached first.
    /// The tracer itself makes calls in between, such as reading files.
    pub(crate) fn find_entered_early(&mut self, attached: &[Program]) {
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
    pub(crate) fn losses(&self) -> io::Result<Vec<Loss>> {
        let mut losses = losses::losses(&self.manifest, &self.counters()?);
        if let Some(user) = &self.user {
            let symbol = |map: u32| self.manifest.maps.get(map as usize).map_or("", |map| &map.symbol);
            losses = losses::separate_locked(losses, |map| user.refused_updates(symbol(map)));
        }
        let lost_returns = self.user.as_ref().map_or(0, UserSpace::lost_returns);
        losses.extend(self.user.iter().flat_map(UserSpace::locked_changes).filter_map(|(symbol, count)| {
            let map = self.manifest.maps.iter().position(|map| map.symbol == symbol)?;
            Some(losses::locked(map as u32, count))
        }));
        losses.extend(losses::lost_returns(lost_returns));
        losses.extend(losses::unfinished(self.rings.unfinished()));
        Ok(losses)
    }

    /// Counters of all modules, summed over CPUs, in the order of the manifest.
    pub(crate) fn counters(&self) -> io::Result<Vec<u64>> {
        let early = self.entered_early.iter().chain(std::iter::repeat(&0));
        Ok(self
            .all_counters()?
            .into_iter()
            .zip(early)
            .map(|(count, early)| count.saturating_sub(*early))
            .collect())
    }

    fn all_counters(&self) -> io::Result<Vec<u64>> {
        let mut sums = vec![0u64; self.manifest.counters.len()];
        for maps in self.places() {
            let failures = failures(maps)?;
            for (index, (counter, sum)) in self.manifest.counters.iter().zip(&mut sums).enumerate() {
                *sum = sum.wrapping_add(match maps.get(COUNTERS_MAP) {
                    Some(map) if counter.kind.is_frequent() => self.frequent(map, index)?,
                    _ => failures.get(index).copied().unwrap_or(0),
                });
            }
        }
        Ok(sums)
    }

    /// A counter of frequent events.
    fn frequent(&self, map: &LoadedMap, index: usize) -> io::Result<u64> {
        let mut row = vec![0; 8 * self.cpus];
        map.handle.lookup(&(index as u32).to_le_bytes(), &mut row)?;
        // A traced process may have written anything.
        Ok(maps::words(&row).into_iter().fold(0, u64::wrapping_add))
    }
}

/// Counters of failures, by their index in the manifest.
fn failures(maps: &Maps) -> io::Result<Vec<u64>> {
    let Some(map) = maps.get(FAILURES_MAP) else { return Ok(Vec::new()) };
    let mut value = vec![0; map.value_size as usize];
    map.handle.lookup(&[0; 4], &mut value)?;
    Ok(maps::words(&value))
}

/// Creates the map of unwind tables if this module is the first that needs it.
fn create_unwind_tables(maps: &mut Maps, manifest: &Manifest) -> Result<(), LoadError> {
    let name = wire::unwind::TABLES_MAP;
    let is_needed = manifest.internal_maps.iter().any(|map| map == name);
    if is_needed && !maps.contains_key(name) {
        let tables =
            unwind_maps::create_tables().map_err(setup("the map of unwind tables cannot be created"))?;
        maps.insert(name.to_owned(), tables);
    }
    Ok(())
}

fn ring_size(manifest: &Manifest, options: &Options) -> u32 {
    let bytes = [options.ring_bytes, manifest.ring_bytes].into_iter().find(|bytes| *bytes != 0);
    ring::round_size(bytes.unwrap_or(ring::DEFAULT_BYTES))
}

/// Creates the ring buffer in the kernel, as one of the maps.
fn create_ring(size: u32, maps: &mut Maps) -> Result<Ring, LoadError> {
    let (map, size) = create_ring_map(size)?;
    let fd = map.try_clone().map_err(setup("cannot duplicate a descriptor"))?;
    let map = LoadedMap { handle: MapHandle::Kernel(map), max_entries: size, value_size: 0 };
    maps.insert(manifest::RING_MAP.to_owned(), map);
    Ring::new(fd, size).map_err(setup("the ring buffer cannot be mapped"))
}

/// Halves the size until the kernel has memory for it.
fn create_ring_map(mut size: u32) -> Result<(OwnedFd, u32), LoadError> {
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

fn setup(what: &'static str) -> impl Fn(io::Error) -> LoadError {
    move |errno| match errno.raw_os_error() {
        Some(libc::EPERM) => features::explain(errno).into(),
        _ => LoadError::Setup { what, errno },
    }
}

#[cfg(test)]
impl Core {
    /// A session around maps that a test creates itself. `programs` receives the ring buffer's descriptor.
    pub(crate) fn for_test(
        manifest: Manifest,
        maps: Maps,
        programs: impl FnOnce(RawFd) -> Vec<crate::handles::LoadedProgram>,
    ) -> Result<(Core, Vec<LoadResult>), LoadError> {
        let mut core = Core::new(&Options::default())?;
        let mut kernel = Maps::new();
        core.rings.add(create_ring(ring::DEFAULT_BYTES, &mut kernel)?);
        (core.manifest, core.kernel) = (manifest, Some(kernel));
        let programs = programs(core.rings.fds().next().expect("a ring in the kernel"));
        let programs = core.adopt(Objects { programs: programs.into_iter().map(Ok).collect(), maps })?;
        core.init_control_cells()?;
        Ok((core, programs))
    }
}
