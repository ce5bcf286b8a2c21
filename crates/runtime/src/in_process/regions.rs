//! The regions of traced processes: their code, and the jumps to it.
//!
//! A process gets a region when it first maps a file with probes. Each time that more files are mapped, their functions are patched.
//!
//! Not here: whether a process may have a region (`environment`), exceptions through traced calls (`unwinder_hooks`).

use super::environment;
use super::outposts::{Outposts, ROOM};
use crate::remote::{
    Entry, JOURNAL_ENTRY, Jump, Patch, Patches, Region, RegionSize, Remains, RemoteError, SharedFile,
    SkipReason, StoppedProcess, is_near,
};
use crate::shared::UnwindMemory;
use crate::shared::memory::{PlacedModule, SessionMemory};
use crate::shared::names::Names;
use linux::proc::Mapping;
use native::layout;
use native::load::VectorState;
use native::program::{Dispatch, Side, Site};
use native::returns::{Returns, ReturnsSize, far_jump};
use native::site::JUMP;
use native::{Environment, Image, Process, ThreadId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// How a function gives way to a jump, from its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchSite {
    /// Offset of the jump in the file.
    pub offset: u64,
    /// The whole instructions that it overwrites.
    pub original: Vec<u8>,
    /// The first instruction of the function, which is directly before the jump.
    pub first: Vec<u8>,
    /// Bytes by which the first instruction lowers the stack pointer.
    pub undo: u32,
    /// Why its return cannot be traced.
    pub no_return: Option<&'static str>,
}

/// A function of the driver, and how it gives way to a jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSite {
    /// Offset of its first instruction in the file.
    pub offset: u64,
    /// Its jump.
    pub patch: PatchSite,
}

/// Functions of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFunctions {
    /// Id of the file.
    pub file: u32,
    /// Path that this process can open.
    pub path: PathBuf,
    /// The functions.
    pub sites: Vec<FunctionSite>,
}

/// A program of a module at the functions of a file.
#[derive(Clone, Debug)]
pub(super) struct UserProbe {
    /// Index of the module.
    pub module: usize,
    /// Index of the clause.
    pub clause: u32,
    /// Symbol in the object.
    pub symbol: String,
    /// When it runs.
    pub side: Side,
    /// The functions.
    pub sites: Vec<CookieSite>,
}

/// A function at which a program runs.
#[derive(Clone, Debug)]
pub(super) struct CookieSite {
    /// Id of the file.
    pub file: u32,
    /// Offset of the first instruction.
    pub offset: u64,
    /// The cookie for the program.
    pub cookie: u64,
}

/// A file with probed functions.
#[derive(Clone, Debug)]
pub(super) struct ProbedFile {
    /// Path that this process can open.
    pub path: PathBuf,
    /// Functions by the offset of their first instruction.
    pub functions: BTreeMap<u64, PatchSite>,
    /// Offsets of functions that have programs.
    pub probed: BTreeSet<u64>,
    /// Offsets of those that have gates.
    pub gates: BTreeSet<u64>,
}

/// A region of a process near functions of its, and the jumps to it.
#[derive(Debug)]
pub(super) struct PatchedRegion {
    pub(super) region: Region,
    /// Inode of the shared memory.
    inode: u64,
    /// Number of seccomp filters of the process that are the tracer's.
    own_filters: u32,
    names: Names,
    /// Memory of the program that runs now.
    memory: File,
    environment: Environment,
    /// Images by the index of their module.
    images: Vec<Image>,
    dispatches: HashMap<Vec<ProgramKey>, Dispatch>,
    /// Offset in the region of the next free byte of code.
    pub(super) code_end: u64,
    /// Addresses of jumps that the process has from its parent.
    pub(super) inherited: BTreeSet<u64>,
    /// The functions that have patches.
    done: BTreeSet<Place>,
    patches: Vec<(Patches, Vec<Place>)>,
    /// Patches of unwinders, with the mapping: inode, address.
    pub(super) hooks: Vec<(Patches, (u64, u64))>,
    returns_size: ReturnsSize,
    /// If a function's return is traced.
    pub(super) returns: Option<Returns>,
    /// Files that were searched for functions of unwinders: inode, address.
    pub(super) searched: BTreeSet<(u64, u64)>,
    /// Offset in the region of the gate, if functions have one.
    gate: Option<u64>,
    /// Pages near functions that are far from the region.
    outposts: Outposts,
    /// Addresses of functions that no other region can be near to either.
    far: Vec<Range<u64>>,
}

/// A function in a process. A file may be mapped several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Id of the file.
    pub file: u32,
    /// Offset in the file.
    pub offset: u64,
    /// The address at which the first byte of the file would be.
    pub base: u64,
}

/// A program in a dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ProgramKey {
    /// Index of the module.
    module: usize,
    symbol: String,
    side: Side,
}

impl ProgramKey {
    fn of(program: &ProgramAt) -> ProgramKey {
        ProgramKey { module: program.module, symbol: program.symbol.clone(), side: program.side }
    }
}

/// A function that was left out.
#[derive(Clone, Copy, Debug)]
pub struct SkippedFunction {
    /// Id of the file.
    pub file: u32,
    /// Offset in the file.
    pub offset: u64,
    /// The reason.
    pub why: SkipReason,
}

/// Result of patching.
#[derive(Clone, Debug, Default)]
pub struct PatchReport {
    /// Number of functions that were patched.
    pub patched: usize,
    /// Functions that were left out.
    pub skipped: Vec<SkippedFunction>,
}

impl PatchReport {
    fn count(&self, why: SkipReason) -> usize {
        self.skipped.iter().filter(|skipped| skipped.why == why).count()
    }

    /// Number of functions into which a thread is about to return.
    pub fn in_use(&self) -> usize {
        self.count(SkipReason::InUse)
    }

    /// Number of functions whose code another tool has changed.
    pub fn changed(&self) -> usize {
        self.count(SkipReason::OtherBytes)
    }

    /// Number of functions that have no room near them.
    pub fn crowded(&self) -> usize {
        self.count(SkipReason::NoRoom)
    }
}

/// Room for the programs, and for the functions of libraries that are mapped later, in bytes.
const CODE: u64 = 2 << 20;
/// Largest size of a detour in bytes, with many programs.
const DETOUR: u64 = 512;
/// Distance of two detours in bytes.
pub(super) const ALIGNMENT: u64 = 16;
/// Size of the memory in which functions share a region: half of what a jump reaches, since the region must lie near to all.
const JOINED: u64 = 1 << 30;

impl PatchedRegion {
    /// Creates the region of a process near these addresses, and puts the modules into it.
    pub(super) fn start(
        stopped: &StoppedProcess<'_>,
        memory: &SessionMemory,
        unwind: Option<&UnwindMemory>,
        near: Range<u64>,
        functions: usize,
        own_filters: u32,
        has_programs: bool,
    ) -> Result<PatchedRegion, RemoteError> {
        environment::check(stopped, own_filters, has_programs)?;
        let returns_size = ReturnsSize::of(functions);
        let code = CODE + functions as u64 * (DETOUR + JOURNAL_ENTRY) + returns_size.code();
        let size = RegionSize { data: memory.data_size(), code, own: returns_size.area() };
        let tables = unwind.map(|memory| SharedFile { file: memory.file(), size: native::unwind::SIZE });
        let region = Region::sharing(stopped, near, size, own_filters, memory.file(), tables)?;
        region.write(stopped, layout::TGID, &stopped.pid().to_le_bytes())?;
        if let Some(stack) = first_stack(&stopped.maps()?) {
            let words = [stack.start.to_le_bytes(), stack.end.to_le_bytes()].concat();
            region.write(stopped, layout::FIRST_STACK, &words)?;
        }
        let names = Names::start(stopped, region.code().start)?;
        let environment = environment::find(stopped, memory.cpus(), &region)?;
        if let Environment::Process(Process { thread: ThreadId::Stored(offset), .. }) = environment {
            region.write(stopped, layout::THREAD_AT, &offset.to_le_bytes())?;
        }
        let (images, dispatches, code_end) = (vec![], HashMap::new(), memory.data_size() + layout::NAMES);
        Ok(PatchedRegion {
            region,
            inode: memory.inode(),
            own_filters,
            names,
            memory: stopped.memory()?,
            environment,
            images,
            dispatches,
            code_end,
            inherited: BTreeSet::new(),
            done: BTreeSet::new(),
            patches: vec![],
            hooks: vec![],
            returns_size,
            returns: None,
            searched: BTreeSet::new(),
            gate: None,
            outposts: Outposts::default(),
            far: vec![],
        })
    }

    /// Whether functions have gates.
    pub(super) fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    /// Whether the process has calls whose return is traced.
    pub(super) fn traces_returns(&self) -> bool {
        self.returns.is_some()
    }

    /// Number of seccomp filters of the process that are the tracer's.
    pub(super) fn own_filters(&self) -> u32 {
        self.own_filters
    }

    /// The functions that have patches by this region.
    pub(super) fn functions(&self) -> impl Iterator<Item = Place> {
        self.done.iter().copied()
    }

    /// Patches the probed functions that are mapped and not patched yet. `patched`: by any region of the process, since a function may be within
    /// reach of several.
    pub(super) fn patch(
        &mut self,
        stopped: &StoppedProcess<'_>,
        memory: &SessionMemory,
        modules: &[PlacedModule],
        probes: &[UserProbe],
        files: &BTreeMap<u32, ProbedFile>,
        patched: &BTreeSet<Place>,
    ) -> Result<PatchReport, RemoteError> {
        self.add_images(stopped, memory, modules)?;
        let maps = stopped.maps()?;
        self.outposts.search_again();
        let inodes: BTreeMap<u32, u64> = files.iter().map(|(id, file)| (*id, file.inode())).collect();
        let (mut mapped, mut keys, mut list, mut entries) = (BTreeSet::new(), vec![], vec![], vec![]);
        let mut crowded = vec![];
        for ((file, function), programs) in functions(probes, files) {
            let Some(probed) = files.get(&file) else { continue };
            let Some(site) = probed.functions.get(&function) else { continue };
            for base in bases(&maps, inodes[&file], site.offset) {
                let key = Place { file, offset: function, base };
                let place = base.wrapping_add(site.offset);
                let is_of_other = patched.contains(&key) && !self.done.contains(&key);
                let is_far =
                    !self.is_near(&(place..place + 1)) && !self.far.iter().any(|far| far.contains(&place));
                if self.inherited.contains(&place) || is_of_other || is_far {
                    continue;
                }
                mapped.insert(key);
                if !self.done.contains(&key) {
                    let address = base.wrapping_add(function);
                    let gate = match probed.gates.contains(&function) {
                        true => Some(self.gate(stopped)?),
                        false => None,
                    };
                    let (patch, entry) = match self.detour(stopped, &programs, gate, address, base, site) {
                        Err(RemoteError::NoRoom) if !self.is_near(&(place..place + 1)) => {
                            crowded.push(SkippedFunction { file, offset: function, why: SkipReason::NoRoom });
                            continue;
                        }
                        made => made?,
                    };
                    list.push(patch);
                    entries.push(entry);
                    keys.push(key);
                }
            }
        }
        self.record(stopped, &entries)?;
        self.done.extend(&keys);
        self.patches.push((Patches::new(list), keys));
        let mut report = PatchReport { skipped: crowded, ..PatchReport::default() };
        // Also those that were in use the last time, and those of files that were unmapped and mapped again.
        // The others have gates only: one that another session has is not missed.
        let is_probed =
            |file: u32, function: u64| files.get(&file).is_none_or(|file| file.is_probed(function));
        for (patches, keys) in &mut self.patches {
            let count = |patches: &Patches| {
                let probed = keys.iter().enumerate().filter(|(_, key)| is_probed(key.file, key.offset));
                probed.filter(|(at, _)| patches.is_written(*at)).count()
            };
            let before = count(patches);
            let outcome = patches.write_again(stopped, |at| mapped.contains(&keys[at]))?;
            report.patched += count(patches).saturating_sub(before);
            let skipped = outcome.skipped.iter().map(|&(at, why)| {
                let Place { file, offset, .. } = keys[at];
                SkippedFunction { file, offset, why }
            });
            report.skipped.extend(skipped.filter(|skipped| is_probed(skipped.file, skipped.offset)));
        }
        Ok(report)
    }

    /// Forgets the patches whose jumps led to pages that were unmapped with a library: their functions get new ones where they are mapped, which
    /// those of that library may be again. A hook of another library still has its jump, which is taken back.
    pub(super) fn forget_unmapped(&mut self, stopped: &StoppedProcess<'_>) -> Result<(), RemoteError> {
        if !self.outposts.are_in_holes() {
            return Ok(());
        }
        let gone = self.outposts.remove_unmapped(&stopped.maps()?);
        let leads_there = |patch: &Patch| gone.iter().any(|page| page.contains(&patch.target()));
        for (patches, keys) in &mut self.patches {
            for at in patches.remove(leads_there).into_iter().rev() {
                self.done.remove(&keys.remove(at));
            }
        }
        for (mut patches, mapping) in std::mem::take(&mut self.hooks) {
            if patches.any(leads_there) {
                patches.restore(stopped)?;
                self.searched.remove(&mapping);
            } else {
                self.hooks.push((patches, mapping));
            }
        }
        Ok(())
    }

    /// Whether the jumps of a function of this file are written.
    pub(super) fn has_jumps_in(&self, file: u32) -> bool {
        let mut all = self
            .patches
            .iter()
            .flat_map(|(patches, keys)| keys.iter().enumerate().map(move |key| (patches, key)));
        all.any(|(patches, (at, key))| key.file == file && patches.is_written(at))
    }

    /// Whether a file was unmapped and mapped again at the same address, with its functions as they are in the file. The process may run.
    pub(super) fn has_lost_jumps(&self) -> bool {
        let mut seen = BTreeSet::new();
        // One function of each file.
        let mut is_lost = |patches: &Patches, at: usize, place: Place| {
            patches.is_written(at)
                && seen.insert((place.file, place.base))
                && patches.is_gone(at, &self.memory)
        };
        let mut lists = self.patches.iter();
        lists.any(|(patches, keys)| (0..).zip(keys).any(|(at, key)| is_lost(patches, at, *key)))
            || self.hooks.iter().any(|(patches, _)| patches.is_gone(0, &self.memory))
    }

    /// Reserves [`ROOM`] bytes for the code of a function near it; returns their address. `in_any`: also in a hole of another library.
    pub(super) fn reserve_near(
        &mut self,
        stopped: &StoppedProcess<'_>,
        function: u64,
        in_any: bool,
    ) -> Result<u64, RemoteError> {
        let mut outposts = std::mem::take(&mut self.outposts);
        let reserved = outposts.reserve(function, in_any, || {
            let (page, serves) = Region::outpost(stopped, function, in_any, self.own_filters)?;
            self.record(stopped, &[Entry::Outpost(page)])?;
            Ok((page, serves))
        });
        self.outposts = outposts;
        reserved
    }

    /// Functions at these addresses are patched by outposts.
    pub(super) fn reach_far(&mut self, functions: Range<u64>) {
        self.far.push(functions);
    }

    /// Whether functions at these addresses are patched by outposts.
    pub(super) fn reaches_far(&self, functions: &Range<u64>) -> bool {
        self.far.iter().any(|far| far.contains(&functions.start) && far.contains(&(functions.end - 1)))
    }

    /// Whether jumps lead from these addresses to the region.
    pub(super) fn is_near(&self, functions: &Range<u64>) -> bool {
        is_near(&self.region.range(), functions)
    }

    /// Whether the process still has the region: an execve(2) takes it away.
    pub(super) fn is_there(&self, stopped: &StoppedProcess<'_>) -> bool {
        let data = self.region.base() + layout::PAGE;
        let is_data = |map: &Mapping| map.start == data && map.inode == self.inode;
        stopped.maps().is_ok_and(|maps| maps.iter().any(is_data))
    }

    /// Keeps the names right that programs read.
    pub(super) fn update_names(&mut self) {
        self.names.update();
    }

    fn add_images(
        &mut self,
        stopped: &StoppedProcess<'_>,
        memory: &SessionMemory,
        modules: &[PlacedModule],
    ) -> Result<(), RemoteError> {
        let layout = memory.layout();
        for module in &modules[self.images.len()..] {
            let start = self.code_end.next_multiple_of(ALIGNMENT);
            let image =
                native::translate(&module.object, &layout, &module.placement, &self.environment, start)
                    .expect("it was translated for the tracer");
            self.write(stopped, start, &image.code)?;
            self.images.push(image);
        }
        Ok(())
    }

    /// Stores in the process what is about to be changed there.
    pub(super) fn record(
        &mut self,
        stopped: &StoppedProcess<'_>,
        entries: &[Entry],
    ) -> Result<(), RemoteError> {
        let used = self.code_end - self.region.size().data;
        self.region.record(stopped, used, entries)
    }

    /// Writes code and moves the end of the code behind it.
    pub(super) fn write(
        &mut self,
        stopped: &StoppedProcess<'_>,
        offset: u64,
        code: &[u8],
    ) -> Result<(), RemoteError> {
        let end = offset + code.len() as u64;
        let size = self.region.size();
        if end > size.data + self.region.room() {
            return Err(RemoteError::NoRoom);
        }
        self.region.write(stopped, offset, code)?;
        self.code_end = end;
        Ok(())
    }

    /// Writes the detour of a function; returns its patch, and what the journal records of it.
    fn detour(
        &mut self,
        stopped: &StoppedProcess<'_>,
        programs: &[ProgramAt],
        gate: Option<u64>,
        address: u64,
        base: u64,
        site: &PatchSite,
    ) -> Result<(Patch, Entry), RemoteError> {
        let dispatch = self.dispatch(stopped, programs)?;
        let at = self.code_end.next_multiple_of(ALIGNMENT);
        let described = Site {
            address,
            undo: site.undo,
            cookies: programs.iter().map(|program| program.cookie).collect(),
            gate,
        };
        let region = self.region.base();
        let detour = dispatch.detour(&described, at, region);
        let (entry, after) = (region + at + detour.entry, region + at + detour.bytes.len() as u64);
        let place = base.wrapping_add(site.offset);
        let outpost = match self.is_near(&(place..place + 1)) {
            true => None,
            false => Some(self.reserve_near(stopped, place, false)?),
        };
        let (reached, moved_to) = match outpost {
            None => (entry, after),
            Some(outpost) => (outpost, outpost + far_jump(entry).len() as u64),
        };
        let instructions = [site.first.as_slice(), &site.original].concat();
        let before = site.first.len() as u64;
        let (Ok(moved), Ok(jump)) = (
            native::site::moved(&instructions, place - before, moved_to),
            native::site::jump(place, reached),
        ) else {
            // An address that the instructions use is too far away.
            return Err(RemoteError::NoRoom);
        };
        match outpost {
            None => self.write(stopped, at, &[detour.bytes, moved.code.clone()].concat())?,
            Some(outpost) => {
                self.write(stopped, at, &[detour.bytes, far_jump(moved_to)].concat())?;
                let code = [far_jump(entry), moved.code.clone()].concat();
                if code.len() as u64 > ROOM {
                    return Err(RemoteError::NoRoom);
                }
                stopped.write(outpost, &code)?;
            }
        }
        let in_original = |(from, to): &(u8, u8)| {
            Some((u64::from(*from).checked_sub(before)? as u8, moved_to + u64::from(*to)))
        };
        let moved = moved.starts.iter().filter_map(in_original).collect();
        let patch = Patch { address: place, original: site.original.clone(), jump, moved };
        let entry = Entry::Jump(recorded(&patch));
        Ok((patch, entry))
    }

    fn dispatch(
        &mut self,
        stopped: &StoppedProcess<'_>,
        programs: &[ProgramAt],
    ) -> Result<Dispatch, RemoteError> {
        let key: Vec<_> = programs.iter().map(ProgramKey::of).collect();
        if let Some(dispatch) = self.dispatches.get(&key) {
            return Ok(dispatch.clone());
        }
        let entry = |program: &ProgramKey| {
            let image = &self.images[program.module];
            (image.function(&program.symbol).expect("a program of the module"), program.side)
        };
        let entries: Vec<_> = key.iter().map(entry).collect();
        let has_return = key.iter().any(|program| program.side != Side::Entry);
        let returns = if has_return { Some(self.returns(stopped)?) } else { None };
        let start = self.code_end.next_multiple_of(ALIGNMENT);
        let vectors = key.iter().any(|program| self.images[program.module].reads_vectors(&program.symbol));
        let (dispatch, code) = native::program::dispatch_at(start, &entries, vectors, returns.as_ref());
        self.write(stopped, start, &code)?;
        self.dispatches.insert(key, dispatch.clone());
        Ok(dispatch)
    }

    /// The code of the gate, of which the process has one.
    fn gate(&mut self, stopped: &StoppedProcess<'_>) -> Result<u64, RemoteError> {
        if let Some(gate) = self.gate {
            return Ok(gate);
        }
        let start = self.code_end.next_multiple_of(ALIGNMENT);
        let image = self.images.first().expect("every session has a module");
        let state = if is_x86_feature_detected!("xsave") { VectorState::Xsave } else { VectorState::Fxsave };
        let code = native::load::gate(start, image, state);
        self.write(stopped, start, &code)?;
        self.gate = Some(start);
        Ok(start)
    }

    /// The code and the memory for returns.
    fn returns(&mut self, stopped: &StoppedProcess<'_>) -> Result<Returns, RemoteError> {
        if let Some(returns) = &self.returns {
            return Ok(returns.clone());
        }
        let size = self.region.size();
        let (start, area) = (self.code_end.next_multiple_of(ALIGNMENT), size.data + size.code);
        let image = self.images.first().expect("the programs of the dispatch are there");
        let (returns, code) = Returns::generate(self.returns_size, start, area, image, self.region.base());
        self.write(stopped, start, &code)?;
        self.region.write(stopped, area, &returns.contents())?;
        self.record(stopped, &[Entry::Returns { area: self.region.base() + area, slots: returns.slots() }])?;
        self.returns = Some(returns.clone());
        Ok(returns)
    }
}

/// Addresses that belong to the first thread's stack or to nothing. It grows down; the kernel keeps much more than this free below its end, unless
/// a program asks for a mapping there.
fn first_stack(maps: &[Mapping]) -> Option<Range<u64>> {
    const LARGEST: u64 = 8 << 20;
    let at = maps.iter().position(|map| map.name.is_special("[stack]"))?;
    let below = at.checked_sub(1).map_or(0, |below| maps[below].end);
    let end = maps[at].end;
    Some(below.max(end.saturating_sub(LARGEST))..end)
}

/// A patch as the journal has it.
pub(super) fn recorded(patch: &Patch) -> Jump {
    let original = patch.original[..JUMP].try_into().expect("room for a jump");
    Jump { address: patch.address, original, jump: patch.jump }
}

/// A program at a function.
struct ProgramAt {
    module: usize,
    symbol: String,
    side: Side,
    cookie: u64,
}

/// The programs of each function, in the order of the script. Functions with gates may have none.
fn functions(
    probes: &[UserProbe],
    files: &BTreeMap<u32, ProbedFile>,
) -> BTreeMap<(u32, u64), Vec<ProgramAt>> {
    let mut functions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut probes: Vec<&UserProbe> = probes.iter().collect();
    probes.sort_by_key(|probe| probe.clause);
    for probe in probes {
        for site in &probe.sites {
            let programs = functions.entry((site.file, site.offset)).or_default();
            let (module, symbol, side) = (probe.module, probe.symbol.clone(), probe.side);
            programs.push(ProgramAt { module, symbol, side, cookie: site.cookie });
        }
    }
    for (id, file) in files {
        for offset in &file.gates {
            functions.entry((*id, *offset)).or_default();
        }
    }
    functions
}

/// Addresses at which the first byte of a file would be if the part with `offset` began there: one for each mapping of that part.
fn bases(maps: &[Mapping], inode: u64, offset: u64) -> impl Iterator<Item = u64> {
    let parts = maps.iter().filter(move |map| {
        let size = map.end - map.start;
        map.is_private_code() && map.inode == inode && (map.offset..map.offset + size).contains(&offset)
    });
    parts.map(|part| part.start.wrapping_sub(part.offset))
}

impl ProbedFile {
    /// A file of which no function is probed yet.
    pub(super) fn new(path: PathBuf) -> ProbedFile {
        let functions = BTreeMap::new();
        ProbedFile { path, functions, probed: BTreeSet::new(), gates: BTreeSet::new() }
    }

    /// Whether a function has programs. The others have gates only.
    fn is_probed(&self, offset: u64) -> bool {
        self.probed.contains(&offset)
    }

    /// Number of the inode; 0 if the file does not exist any more.
    pub(super) fn inode(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.ino())
    }

    /// Addresses of the functions in a process, for each time that it has mapped them and not inherited all their jumps.
    fn addresses(&self, maps: &[Mapping], inherited: &BTreeSet<u64>) -> Vec<Range<u64>> {
        let inode = self.inode();
        let sites = self.functions.values().next().zip(self.functions.values().next_back());
        let Some((first, last)) = sites else { return vec![] };
        let range = |base: u64| {
            if self.functions.values().all(|site| inherited.contains(&base.wrapping_add(site.offset))) {
                return None;
            }
            let address = |base: u64, site: &PatchSite| base.wrapping_add(site.offset);
            // The same one of several copies.
            let of_last = bases(maps, inode, last.offset).min_by_key(|other| other.abs_diff(base))?;
            let (first, last) = (address(base, first), address(of_last, last));
            Some(first.min(last)..first.max(last) + 1)
        };
        bases(maps, inode, first.offset).filter_map(range).collect()
    }
}

/// The addresses of the probed functions that a process has mapped, except for files whose jumps are all inherited. Files near to each other are one range.
pub(super) fn mapped(
    files: &BTreeMap<u32, ProbedFile>,
    stopped: &StoppedProcess<'_>,
    inherited: &BTreeSet<u64>,
) -> Result<Vec<Range<u64>>, RemoteError> {
    let maps = stopped.maps()?;
    let mut all: Vec<Range<u64>> = files.values().flat_map(|file| file.addresses(&maps, inherited)).collect();
    all.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = vec![];
    for range in all {
        match joined.last_mut() {
            Some(last) if range.end - last.start < JOINED => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    Ok(joined)
}

/// Whether the jumps of another session are where functions of these files are.
pub(super) fn have_jumps(files: &BTreeMap<u32, ProbedFile>, maps: &[Mapping], remains: &Remains) -> bool {
    let jumps: BTreeSet<u64> = remains.jumps().collect();
    let has_jump = |inode: u64, site: &PatchSite| {
        bases(maps, inode, site.offset).any(|base| jumps.contains(&base.wrapping_add(site.offset)))
    };
    files.values().any(|file| {
        let inode = file.inode();
        let mut probed = file.functions.iter().filter(|(offset, _)| file.is_probed(**offset));
        probed.any(|(_, site)| has_jump(inode, site))
    })
}
