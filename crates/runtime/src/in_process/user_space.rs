//! State of a session whose script runs in the traced processes (`--in-process`): the memory that they share with the tracer, the probes,
//! and the processes that were patched or refused.
//!
//! In: compiled scripts, addresses of functions, process ids. Out: handles of maps and programs, the ring buffer, failures and losses.
//! Not here: how a process is patched (`patching`).

use super::owner::CommonOwner;
use super::patch_sites::{PatchCount, PatchSiteFinders, UnwinderSites};
use super::process_ends::ProcessEnds;
use super::regions::{CookieSite, ProbedFile, UserProbe};
use super::traced_process::TracedProcess;
use crate::error::LoadError;
use crate::handles::{LoadedMap, LoadedProgram, MapHandle, Objects, ProgramHandle};
use crate::remote::RemoteError;
use crate::shared::clock::SharedClock;
use crate::shared::lease::Lease;
use crate::shared::memory::{DescribedMap, PlacedModule};
use crate::shared::{Damage, PlaceError, SessionMemory, SharedMap, SharedProgram, UnwindMemory};
use crate::stacks::unwind_maps::UnwindMaps;
use native::object::Object;
use native::program::Side;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::counter::{COUNTERS_MAP, FAILURES_MAP};
use wire::manifest::{self, CompiledScript, Program, Site};

/// The part of a session that is in user space.
pub(crate) struct UserSpace {
    pub(super) memory: Arc<SessionMemory>,
    pub(super) lease: Option<Lease>,
    /// Unwind tables, if programs walk stacks.
    pub(super) unwind: Option<Arc<UnwindMemory>>,
    pub(super) clock: SharedClock,
    pub(super) modules: Vec<PlacedModule>,
    pub(super) probes: Vec<UserProbe>,
    pub(super) files: BTreeMap<u32, ProbedFile>,
    pub(super) ends: ProcessEnds,
    /// Counts of patches so far.
    pub(super) patched: PatchCount,
    /// By process id.
    pub(super) processes: HashMap<u32, TracedProcess>,
    /// The rights of all processes.
    pub(super) owner: CommonOwner,
    /// Processes that have changed their rights, with how, or why they still share the memory.
    pub(super) expelled: Vec<(u32, String)>,
    /// Addresses of the regions to which gates lead, those of children of `fork` included.
    pub(super) gates: HashSet<u64>,
    /// False if there are gates only.
    pub(super) has_programs: bool,
    /// Processes that could not be restored at the end, with the reason.
    pub(super) kept: Vec<(u32, RemoteError)>,
    pub(super) unwinder: UnwinderSites,
}

/// Sizes of a session's memory.
#[derive(Copy, Clone, Debug)]
pub(crate) struct MemorySizes {
    /// Number of CPUs for which maps have cells.
    pub cpus: u32,
    /// Size of the ring buffer.
    pub ring_bytes: u32,
    /// Counters for modules that extend the session.
    pub spare_counters: u32,
}

impl UserSpace {
    /// Loads the first object of a session, and reserves room for the others.
    pub(crate) fn load(
        compiled: &CompiledScript,
        others: &[CompiledScript],
        sizes: MemorySizes,
    ) -> Result<(UserSpace, Objects), LoadError> {
        let mut object = parse(compiled)?;
        let others = others.iter().map(parse).collect::<Result<Vec<Object>, _>>()?;
        for map in &mut object.maps {
            match map.name.as_str() {
                manifest::RING_MAP => map.max_entries = sizes.ring_bytes,
                COUNTERS_MAP => map.max_entries += sizes.spare_counters,
                FAILURES_MAP => map.value_size += 8 * sizes.spare_counters,
                _ => {}
            }
        }
        let mut user = UserSpace::with(object, &others, sizes.cpus)?;
        let objects = objects(&user.memory, &user.modules[0], compiled);
        user.create_unwind_memory(compiled)?;
        Ok((user, objects))
    }

    /// The memory of a session that begins with an object.
    pub(super) fn with(object: Object, others: &[Object], cpus: u32) -> Result<UserSpace, LoadError> {
        let (memory, module) = SessionMemory::new(object, others, cpus)?;
        let memory = Arc::new(memory);
        let clock = SharedClock::start(Arc::clone(&memory));
        let lease = Some(Lease::start(Arc::clone(&memory)).map_err(PlaceError::Memory)?);
        let (modules, probes, files, processes) = (vec![module], vec![], BTreeMap::new(), HashMap::new());
        let (unwind, ends) = (None, ProcessEnds::default());
        let (patched, unwinder): (_, UnwinderSites) = (PatchCount::default(), |_| vec![]);
        Ok(UserSpace {
            memory,
            lease,
            unwind,
            clock,
            modules,
            probes,
            files,
            ends,
            patched,
            processes,
            owner: CommonOwner::default(),
            expelled: vec![],
            gates: HashSet::new(),
            has_programs: true,
            kept: vec![],
            unwinder,
        })
    }

    fn create_unwind_memory(&mut self, compiled: &CompiledScript) -> Result<(), LoadError> {
        let is_needed = compiled.manifest.internal_maps.iter().any(|map| map == wire::unwind::TABLES_MAP);
        if is_needed && self.unwind.is_none() {
            let memory = UnwindMemory::new().map_err(PlaceError::Memory)?;
            self.unwind = Some(Arc::new(memory));
        }
        Ok(())
    }

    /// Maps for programs that walk stacks, if there are any.
    pub(crate) fn unwind_maps(&self) -> Option<UnwindMaps> {
        let tables = self.unwind.as_ref()?;
        Some(UnwindMaps::in_process(Arc::clone(tables), Arc::clone(&self.memory)))
    }

    /// Loads a module that extends the session.
    pub(crate) fn extend(&mut self, compiled: &CompiledScript) -> Result<Objects, LoadError> {
        self.create_unwind_memory(compiled)?;
        let module = self.memory.extend(parse(compiled)?)?;
        let objects = objects(&self.memory, &module, compiled);
        self.modules.push(module);
        Ok(objects)
    }

    /// The ring buffer; a script that prints nothing has none.
    pub(crate) fn ring(&self) -> Option<(Arc<SessionMemory>, native::layout::MapPlace)> {
        let place = self.memory.layout().map(manifest::RING_MAP)?.clone();
        Some((Arc::clone(&self.memory), place))
    }

    /// Adds a program that runs when a traced process ends.
    pub(crate) fn add_process_end(&mut self, program: &ProgramHandle) {
        if let ProgramHandle::Process(program) = program {
            self.ends.add(program.entry);
        }
    }

    /// Takes note of a process of the traced command, whether it calls probed functions or not.
    pub(crate) fn meet(&mut self, pid: u32) {
        self.processes.entry(pid).or_default().is_met = true;
        self.ends.watch(pid);
    }

    /// Whether the process is traced, or may be.
    pub(crate) fn is_met(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.is_met || process.shares_memory())
    }

    /// Whether programs run when a process ends.
    pub(crate) fn watches_ends(&self) -> bool {
        self.ends.are_watched()
    }

    /// Descriptors that are readable when a process has ended, for [`UserSpace::serve_ends`].
    pub(crate) fn end_fds(&self) -> impl Iterator<Item = RawFd> {
        self.ends.fds()
    }

    /// Runs the programs for the processes that have ended.
    pub(crate) fn serve_ends(&mut self) -> io::Result<()> {
        self.ends.serve(&self.memory)
    }

    /// Adds a program of the last module at functions; returns those that cannot be patched.
    pub(crate) fn add_probe(
        &mut self,
        program: &Program,
        side: manifest::Side,
        sites: &[Site],
        path: &dyn Fn(u32) -> PathBuf,
        patch: PatchSiteFinders<'_>,
    ) -> Vec<(Site, io::Error)> {
        self.unwinder = patch.unwinder;
        let side = match side {
            manifest::Side::Entry => Side::Entry,
            manifest::Side::Return => Side::Return,
            manifest::Side::Session => Side::Session,
        };
        let (mut added, mut refused) = (vec![], vec![]);
        for site in sites {
            let file = self.files.entry(site.file).or_insert_with(|| ProbedFile::new(path(site.file)));
            let found = match file.functions.get(&site.offset) {
                Some(known) => Ok(known.clone()),
                None => (patch.functions)(site.file, site.offset),
            };
            let found = found.and_then(|found| match (side, found.no_return) {
                (Side::Return | Side::Session, Some(reason)) => Err(reason.to_owned()),
                _ => Ok(found),
            });
            match found {
                Ok(found) => {
                    file.functions.insert(site.offset, found);
                    file.probed.insert(site.offset);
                    added.push(CookieSite { file: site.file, offset: site.offset, cookie: site.cookie });
                }
                Err(reason) => refused.push((site.clone(), io::Error::other(reason))),
            }
        }
        let (module, clause, symbol) = (self.modules.len() - 1, program.clause, program.symbol.clone());
        self.probes.push(UserProbe { module, clause, symbol, side, sites: added });
        refused
    }

    /// Processes that are not traced any more since they have changed their rights, with how.
    pub(crate) fn expelled(&self) -> &[(u32, String)] {
        &self.expelled
    }

    /// Damage to the shared memory, done by a process and not by a program.
    pub(crate) fn damage(&self) -> Option<&Damage> {
        self.memory.damage()
    }

    /// The processes that share the memory.
    pub(crate) fn sharing(&self) -> Vec<u32> {
        let sharing = self.processes.iter().filter(|(_, process)| process.shares_memory());
        let mut pids: Vec<u32> = sharing.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Changes of the tracer that found a map locked, by the map's symbol.
    pub(crate) fn locked_changes(&self) -> BTreeMap<String, u64> {
        self.memory.locked()
    }

    /// Notes that a record is of no kind that a program writes.
    pub(crate) fn note_unknown_record(&self) {
        self.memory.untrusted().note(Damage::Record);
    }

    /// Processes that keep their jumps, which pass by, with the reason.
    pub(crate) fn kept(&self) -> &[(u32, RemoteError)] {
        &self.kept
    }

    /// Number of updates of a map, given by its symbol, that found a lock whose owner did not give it back.
    pub(crate) fn refused_updates(&self, symbol: &str) -> u64 {
        let layout = self.memory.layout();
        let hash = layout.map(symbol).filter(|map| map.bucket_count > 0);
        let refused = |map: &native::layout::MapPlace| map.state + native::layout::HASH_REFUSED;
        hash.map_or(0, |map| self.memory.word(refused(map)).load(Ordering::Relaxed))
    }

    /// Number of calls whose return was not traced.
    pub(crate) fn lost_returns(&self) -> u64 {
        self.memory.word(native::layout::LOST_RETURNS).load(Ordering::Relaxed)
    }

    /// Keeps the clock and the names that programs read right, and the memory with its owner; called at least once in a second.
    pub(crate) fn tick(&mut self) {
        if !self.clock.is_due() {
            return;
        }
        self.check_words();
        self.clock.correct();
        self.expel_changed();
        self.processes.values_mut().for_each(TracedProcess::update_names);
        self.ends.update_names();
    }

    /// Checks that no process has switched the probes off, or changed the clock.
    pub(super) fn check_words(&self) {
        let is_active = self.lease.as_ref().is_none_or(Lease::holds);
        if !is_active || !self.clock.is_as_published() {
            self.memory.untrusted().note(Damage::Words);
        }
    }
}

/// Checks that all programs of a script have a translation.
pub(crate) fn check(compiled: &CompiledScript) -> Result<(), LoadError> {
    SessionMemory::new(parse(compiled)?, &[], 1).map(drop)?;
    Ok(())
}

pub(super) fn parse(compiled: &CompiledScript) -> Result<Object, LoadError> {
    Object::parse(&compiled.elf).map_err(|error| LoadError::Object { reason: error.to_string() })
}

impl From<PlaceError> for LoadError {
    fn from(error: PlaceError) -> LoadError {
        LoadError::NotInProcess { reason: error.to_string() }
    }
}

/// Maps and programs of a module as a session knows them.
fn objects(memory: &Arc<SessionMemory>, module: &PlacedModule, compiled: &CompiledScript) -> Objects {
    let layout = memory.layout();
    let maps = module.placement.maps.iter().zip(&module.image.descriptions).map(|(map, description)| {
        let place = layout.maps[*map].clone();
        let (max_entries, value_size) = (place.def.max_entries, place.def.value_size);
        let name = place.def.name.clone();
        let map = DescribedMap { place, description: *description };
        let handle = MapHandle::Process(SharedMap::new(Arc::clone(memory), map));
        (name, LoadedMap { handle, max_entries, value_size })
    });
    let program = |program: &Program| {
        let entry = module.image.function(&program.symbol).expect("the object has the program");
        let shared = SharedProgram { memory: Arc::clone(memory), entry };
        Ok(LoadedProgram { handle: ProgramHandle::Process(shared), attach_type: 0 })
    };
    Objects { programs: compiled.manifest.programs.iter().map(program).collect(), maps: maps.collect() }
}
