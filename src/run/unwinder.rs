//! Maintains the unwind tables of the files that traced processes have mapped.
//!
//! The mappings of processes that are already traced are read when the unwinder starts. A program that we started is held while it
//! maps a new file, until the table is loaded. A mapping to a fixed address is also added to the BPF map before the program
//! continues. Other mappings are added after they exist, or when a stack walk begins in an unknown process. Large tables are read
//! by background threads; until they are loaded, stack walks use the frame pointer, and may end in addresses that are no code. Where
//! nothing is held meanwhile, as at the start with processes that already run, the unwinder waits for them. At the start there may be hundreds
//! of tables, which are read by all processors.

use super::compiler::Compiler;
use super::python_finder::PythonFinder;
use crate::console::Messages;
use crate::symbolize::python::Pythons;
use anyhow::{Context, Result};
use host::eh_frame::{Segments, Source};
use linux::proc::{self, Mapping, MappingName, Program};
use runtime::UnwindMaps;
use runtime::started::{FileState, MappedRange, MappingEvent};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Size in bytes above which unwind information is read in the background. Smaller ones take 0.1 s at most.
const LARGE: usize = 8 << 20;
/// Longest wait for large tables at the start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of possibly unmapped areas that are tolerated.
const STALE_AREAS: usize = 256;

/// Identity of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum FileKey {
    /// The table of a file: device and inode.
    File((u32, u32), u64),
    /// The table of `[vdso]`, the kernel's code in each process.
    Vdso,
    /// Memory without a file, such as code of a JIT compiler, has no table.
    Memory,
}

impl FileKey {
    fn of(mapping: &Mapping) -> FileKey {
        match &mapping.name {
            MappingName::Special(name) if name == "[vdso]" => FileKey::Vdso,
            _ if mapping.inode == 0 => FileKey::Memory,
            _ => FileKey::File(mapping.device, mapping.inode),
        }
    }
}

/// Owner of the unwind tables; see the module documentation.
pub struct Unwinder<'a> {
    inner: RefCell<Inner>,
    pythons: PythonFinder<'a>,
    messages: &'a Messages,
}

struct Inner {
    maps: UnwindMaps,
    /// False if walks are of frames of Python alone: large programs have tables of a hundred megabytes.
    reads_tables: bool,
    files: HashMap<FileKey, Option<FileTable>>,
    /// Keys of files at which programs were held.
    keys: HashMap<FileState, FileKey>,
    processes: HashMap<u32, ProcessAreas>,
    finished: Receiver<ReadTable>,
    /// Number of tables that are read in the background.
    unfinished: usize,
    finish: Sender<ReadTable>,
    /// At the start, the small tables that are read when all of them are known.
    collected: Option<Vec<UnreadTable>>,
    rows: usize,
    bytes: usize,
}

struct FileTable {
    table: u32,
    segments: Segments,
}

/// Executable memory of a process.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Area {
    start: u64,
    end: u64,
    offset: u64,
    file: FileKey,
}

#[derive(Default)]
struct ProcessAreas {
    /// Program that it ran when it was read.
    program: Option<Program>,
    /// Areas by start address; they do not overlap.
    areas: BTreeMap<u64, Area>,
    /// Number of areas when all were read.
    read: usize,
}

impl ProcessAreas {
    /// Removes the areas that overlap a range.
    fn take(&mut self, start: u64, end: u64) -> Vec<Area> {
        let before_end = self.areas.range(..end).rev();
        let found: Vec<Area> =
            before_end.map(|(_, area)| *area).take_while(|area| area.end > start).collect();
        found.iter().for_each(|area| _ = self.areas.remove(&area.start));
        found
    }

    /// Whether most areas may have been unmapped since all were read.
    fn is_stale(&self) -> bool {
        self.areas.len() > 2 * self.read + STALE_AREAS
    }
}

impl Area {
    /// The parts of the area outside of a range.
    fn beside(&self, start: u64, end: u64) -> impl Iterator<Item = Area> {
        let below = Area { end: start.min(self.end), ..*self };
        let above = Area {
            start: end.max(self.start),
            offset: self.offset + end.saturating_sub(self.start),
            ..*self
        };
        [below, above].into_iter().filter(|area| area.start < area.end)
    }
}

/// A table that was read.
struct ReadTable {
    table: u32,
    shown: String,
    rows: usize,
    chunks: Option<Vec<Vec<u64>>>,
    took: Duration,
}

impl<'a> Unwinder<'a> {
    /// Creates the owner of the tables in `maps`, which are filled if `reads_tables`. Interpreters of Python become known to `pythons`.
    pub fn new(
        maps: UnwindMaps,
        reads_tables: bool,
        pythons: Rc<Pythons>,
        messages: &'a Messages,
    ) -> Unwinder<'a> {
        let (finish, finished) = channel();
        let (files, keys, processes) = (HashMap::new(), HashMap::new(), HashMap::new());
        let inner = Inner {
            maps,
            reads_tables,
            files,
            keys,
            processes,
            finished,
            unfinished: 0,
            finish,
            collected: None,
            rows: 0,
            bytes: 0,
        };
        let pythons = PythonFinder::new(pythons, messages);
        Unwinder { inner: RefCell::new(inner), pythons, messages }
    }

    /// Where names of frames of Python are read.
    pub fn pythons(&self) -> Rc<Pythons> {
        self.pythons.names()
    }

    /// Reads the mappings of processes; prints the time that it took.
    pub fn start_with(&self, pids: &[u32]) {
        self.start(pids, Duration::ZERO);
    }

    /// The same before anything is attached, when nothing waits for the tracer: large tables are read, too, within [`PATIENCE`].
    pub fn start_complete(&self, pids: &[u32]) {
        self.start(pids, PATIENCE);
    }

    fn start(&self, pids: &[u32], patience: Duration) {
        let start = Instant::now();
        self.inner.borrow_mut().collected = Some(vec![]);
        pids.iter().for_each(|&pid| self.read_mappings(pid));
        let small = self.inner.borrow_mut().collected.take().unwrap_or_default();
        self.inner.borrow_mut().fill(&read_all(small), self.messages);
        self.inner.borrow_mut().fill_finished(start + patience, self.messages);
        if !pids.is_empty() {
            self.print_size(start.elapsed());
        }
    }

    fn print_size(&self, took: Duration) {
        let inner = self.inner.borrow();
        let files = inner.files.values().flatten().count();
        self.messages.detail(|| {
            format!(
                "unwind tables of {files} files: {} rows, {} KiB, in {took:?}",
                inner.rows,
                inner.bytes >> 10
            )
        });
    }

    /// Reads the current mappings of a process, and removes areas that no longer exist.
    pub fn read_mappings(&self, pid: u32) {
        if let Err(error) = self.inner.borrow_mut().read_mappings(pid, self.messages) {
            self.messages.warning(&format!(
                "stacks of process {pid} may be too short, since its unwind tables cannot be read: {error:#}"
            ));
        }
        self.pythons.look_at(pid, &self.inner.borrow().maps);
    }

    /// Whether mappings of a process were read.
    pub fn has_process(&self, pid: u32) -> bool {
        self.inner.borrow().processes.contains_key(&pid)
    }

    /// Removes a process that has ended.
    pub fn forget(&self, pid: u32) {
        self.inner.borrow_mut().forget(pid);
        self.pythons.forget(&[pid], &self.inner.borrow().maps);
    }

    /// Prepares for a file that a waiting thread of a process will map: reads its table and, if the address is
    /// known, adds the mapping. Otherwise [`Unwinder::add_mapping`] is called after the mapping.
    pub fn prepare(&self, pid: u32, mapping: &runtime::started::Mapping) {
        if !self.inner.borrow().runs_as_known(pid) {
            self.read_mappings(pid);
        }
        self.pythons.look_at(pid, &self.inner.borrow().maps);
        match self.inner.borrow_mut().prepare(pid, mapping, self.messages) {
            Ok(()) => {}
            // The process was killed in the meantime.
            Err(_) if !mapping.open.exists() => {}
            Err(error) => {
                self.messages.warning(&format!("{}: no unwind table: {error:#}", mapping.shown.display()));
            }
        }
    }

    /// Removes the table of an overwritten file, which is read again when it is mapped.
    pub fn detach_overwritten(&self, path: &Path) {
        let key = host::untrusted_file::open(path).ok().and_then(|file| mapped_key(&file));
        key.inspect(|key| self.inner.borrow_mut().leave(key));
    }

    /// Handles a file that a process has mapped.
    pub fn add_mapping(&self, mapped: &MappingEvent) {
        let added = self.inner.borrow_mut().add_known_file(mapped);
        match added {
            Ok(true) => self.pythons.look_at(mapped.pid, &self.inner.borrow().maps),
            Ok(false) => self.read_mappings(mapped.pid),
            Err(error) => {
                self.messages.warning(&format!("{}: no unwind table: {error:#}", mapped.path.display()))
            }
        }
    }
}

/// Device and inode as `/proc/PID/maps` shows them, which differ from `stat` on some file systems; determined by
/// mapping the file.
fn mapped_key(file: &std::fs::File) -> Option<FileKey> {
    // SAFETY: only the address is used.
    let map = unsafe { memmap2::MmapOptions::new().len(1).map(file) }.ok()?;
    let at = map.as_ptr() as u64;
    let own = proc::mappings(std::process::id());
    let mapping = own.iter().find(|mapping| (mapping.start..mapping.end).contains(&at))?;
    Some(FileKey::File(mapping.device, mapping.inode))
}

fn executable(pid: u32) -> impl Iterator<Item = Mapping> {
    proc::mappings(pid).into_iter().filter(|mapping| mapping.executable)
}

impl Inner {
    fn prepare(&mut self, pid: u32, mapping: &runtime::started::Mapping, messages: &Messages) -> Result<()> {
        let Some(file) = self.key_of(mapping, messages)? else { return Ok(()) };
        let Some(MappedRange { start, end, offset }) = mapping.range else { return Ok(()) };
        self.enter(pid, Area { start, end, offset, file })
    }

    /// The key of a file at which a program is held; its table is loaded. `None` if it cannot be mapped.
    fn key_of(
        &mut self,
        mapping: &runtime::started::Mapping,
        messages: &Messages,
    ) -> Result<Option<FileKey>> {
        if let Some(&key) = self.keys.get(&mapping.state) {
            return Ok(Some(key));
        }
        let file = host::untrusted_file::open(&mapping.open)?;
        let Some(key) = mapped_key(&file) else { return Ok(None) };
        if self.keys.keys().any(|known| known.identity == mapping.state.identity) {
            // The file was overwritten.
            self.leave(&key);
        }
        self.add(key, || Source::of_file(&file), &mapping.shown.display().to_string(), messages)?;
        self.keys.insert(mapping.state, key);
        Ok(Some(key))
    }

    fn leave(&mut self, file: &FileKey) {
        self.files.remove(file);
        self.processes.values_mut().for_each(|process| process.areas.retain(|_, area| area.file != *file));
    }

    /// Adds a mapping of a known file; false if all mappings of the process must be read.
    fn add_known_file(&mut self, mapped: &MappingEvent) -> Result<bool> {
        let (device, inode) = (mapped.inode.device, mapped.inode.number);
        let file = FileKey::File((libc::major(device), libc::minor(device)), inode);
        let is_stale = self.processes.get(&mapped.pid).is_none_or(ProcessAreas::is_stale);
        if is_stale || !self.files.contains_key(&file) || !self.runs_as_known(mapped.pid) {
            return Ok(false);
        }
        let MappedRange { start, end, offset } = mapped.range;
        self.enter(mapped.pid, Area { start, end, offset, file })?;
        Ok(true)
    }

    /// Whether the process was read and has not started another program since.
    fn runs_as_known(&self, pid: u32) -> bool {
        let known = self.processes.get(&pid).and_then(|process| process.program);
        known.is_some() && known == Program::of(pid)
    }

    fn read_mappings(&mut self, pid: u32, messages: &Messages) -> Result<()> {
        let mappings: Vec<Mapping> = executable(pid).collect();
        let now: BTreeMap<u64, Area> = mappings.iter().map(area).map(|area| (area.start, area)).collect();
        let before = self.processes.remove(&pid).unwrap_or_default().areas;
        let is_in = |areas: &BTreeMap<u64, Area>, area: &Area| areas.get(&area.start) == Some(area);
        let gone = before.values().filter(|area| !is_in(&now, area));
        gone.for_each(|area| self.maps.unmap(pid, area.start, area.end));
        for mapping in mappings.iter().filter(|mapping| !is_in(&before, &area(mapping))) {
            self.add_mapping(pid, mapping, messages)?;
        }
        if !now.is_empty() {
            let program = Program::of(pid);
            self.processes.insert(pid, ProcessAreas { program, read: now.len(), areas: now });
        }
        Ok(())
    }

    fn add_mapping(&mut self, pid: u32, mapping: &Mapping, messages: &Messages) -> Result<()> {
        let key = FileKey::of(mapping);
        self.add(key, || Source::open(pid, mapping), &shown(mapping), messages)?;
        self.cover(pid, &area(mapping))
    }

    /// Adds an area of a process, in place of what was there.
    fn enter(&mut self, pid: u32, area: Area) -> Result<()> {
        let process = self.processes.entry(pid).or_default();
        let replaced = process.take(area.start, area.end);
        process.areas.insert(area.start, area);
        if replaced == [area] {
            return Ok(());
        }
        for old in replaced {
            self.maps.unmap(pid, old.start, old.end);
            for left in old.beside(area.start, area.end) {
                self.cover(pid, &left)?;
                self.processes.entry(pid).or_default().areas.insert(left.start, left);
            }
        }
        self.cover(pid, &area)
    }

    fn cover(&self, pid: u32, area: &Area) -> Result<()> {
        let known = self.files.get(&area.file).and_then(Option::as_ref);
        let covered =
            known.and_then(|known| Some((known.table, known.segments.bias(area.start, area.offset)?)));
        // Table 0 does not exist, and marks the area as known without a table.
        let (table, bias) = covered.unwrap_or((0, 0));
        self.maps.map(pid, area.start, area.end, table, bias).context("too many mappings")
    }

    /// Adds the table of a file, unless it is known.
    fn add(
        &mut self,
        key: FileKey,
        source: impl FnOnce() -> Option<Source>,
        shown: &str,
        messages: &Messages,
    ) -> Result<()> {
        if self.files.contains_key(&key) {
            return Ok(());
        }
        let Some(source) = self.reads_tables.then(source).flatten() else {
            self.files.insert(key, None);
            return Ok(());
        };
        let table = self.maps.reserve().context("too many files")?;
        self.files.insert(key, Some(FileTable { table, segments: source.segments().clone() }));
        let unread = UnreadTable { table, source, shown: shown.to_owned() };
        if unread.source.len() > LARGE {
            messages.detail(|| format!("{shown}: unwind table is read in the background"));
            self.read_in_background(unread);
        } else if let Some(collected) = &mut self.collected {
            collected.push(unread);
        } else {
            self.fill(&[unread.read()], messages);
        }
        Ok(())
    }

    fn read_in_background(&mut self, unread: UnreadTable) {
        let finish = self.finish.clone();
        self.unfinished += 1;
        // Sending fails only after the end of the session.
        std::thread::spawn(move || drop(finish.send(unread.read())));
    }

    /// Puts the tables into the maps that were read in the background, up to a time.
    fn fill_finished(&mut self, until: Instant, messages: &Messages) {
        let mut finished = vec![];
        while self.unfinished > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(table) = self.finished.recv_timeout(left) else { break };
            self.unfinished -= 1;
            let ReadTable { shown, rows, took, .. } = &table;
            messages.detail(|| format!("{shown}: unwind table of {rows} rows after {took:?}"));
            finished.push(table);
        }
        self.fill(&finished, messages);
    }

    /// Puts tables into the maps. Of many at once: the kernel waits after each time.
    fn fill(&mut self, read: &[ReadTable], messages: &Messages) {
        let no_table = |shown: &str, why: &dyn std::fmt::Display| {
            messages.warning(&format!("{shown}: no unwind table: {why}"));
        };
        let mut fitting = vec![];
        for table in read {
            match &table.chunks {
                Some(chunks) => fitting.push((table, (table.table, chunks.as_slice()))),
                None => no_table(&table.shown, &"more rows than a table can have"),
            }
        }
        let (tables, filled): (Vec<&ReadTable>, Vec<_>) = fitting.into_iter().unzip();
        for (table, result) in tables.into_iter().zip(self.maps.fill(&filled)) {
            match result {
                Ok(bytes) => (self.bytes, self.rows) = (self.bytes + bytes, self.rows + table.rows),
                Err(error) => no_table(&table.shown, &error),
            }
        }
    }

    fn forget(&mut self, pid: u32) {
        for area in self.processes.remove(&pid).unwrap_or_default().areas.into_values() {
            self.maps.unmap(pid, area.start, area.end);
        }
    }

    fn gone(&self) -> Vec<u32> {
        self.processes.keys().copied().filter(|&pid| executable(pid).next().is_none()).collect()
    }
}

/// A table that is to be read.
struct UnreadTable {
    table: u32,
    source: Source,
    shown: String,
}

impl UnreadTable {
    fn read(&self) -> ReadTable {
        let start = Instant::now();
        let UnreadTable { table, source, shown } = self;
        let rows = source.rows();
        ReadTable {
            table: *table,
            shown: shown.clone(),
            rows: rows.len(),
            chunks: wire::unwind::chunks(&rows),
            took: start.elapsed(),
        }
    }
}

/// Reads tables on all processors.
fn read_all(mut unread: Vec<UnreadTable>) -> Vec<ReadTable> {
    unread.sort_by_key(|table| std::cmp::Reverse(table.source.len()));
    let next = AtomicUsize::new(0);
    let read_some = || {
        let next = || unread.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(|| next().map(UnreadTable::read)).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(unread.len());
    std::thread::scope(|scope| {
        // A thread that cannot be started is not needed.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, read_some).ok();
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let own = read_some();
        others.into_iter().filter_map(|other| other.join().ok()).flatten().chain(own).collect()
    })
}

fn area(mapping: &Mapping) -> Area {
    let Mapping { start, end, offset, .. } = *mapping;
    Area { start, end, offset, file: FileKey::of(mapping) }
}

fn shown(mapping: &Mapping) -> String {
    match &mapping.name {
        MappingName::Anonymous => String::new(),
        MappingName::Special(name) => name.clone(),
        MappingName::File(path) | MappingName::Deleted(path) => path.display().to_string(),
    }
}

impl Unwinder<'_> {
    /// Processes without tables in which a walk has begun since the last call.
    pub fn take_unknown(&self) -> Vec<u32> {
        self.inner.borrow().maps.take_unknown().unwrap_or_default()
    }

    /// Removes processes that have ended, since their ids may be reused.
    pub fn forget_gone(&self) {
        let gone = self.inner.borrow().gone();
        self.pythons.forget(&gone, &self.inner.borrow().maps);
        gone.iter().for_each(|pid| self.inner.borrow_mut().forget(*pid));
    }

    /// Looks again at interpreters of Python that had just begun.
    pub fn find_pythons(&self, tick: u64) {
        self.pythons.look_again(tick, &self.inner.borrow().maps);
    }

    /// Adds the tables that were read in the background.
    pub fn fill_finished(&self) {
        self.inner.borrow_mut().fill_finished(Instant::now(), self.messages);
    }
}

impl Compiler<'_> {
    /// The method of stack walks on this kernel, if the script has any. Limitations are reported at the first
    /// compilation.
    pub fn unwind(&self, features: &wire::Features) -> Option<codegen::Unwind> {
        if !self.mentions_user_stacks() {
            return None;
        }
        if *features == wire::Features::IN_PROCESS {
            return Some(codegen::Unwind { returns: None });
        }
        if !cfg!(target_arch = "x86_64") || !features.bpf_loop || !features.btf {
            if !self.was_compiled() {
                self.messages().note(
                    "stacks may be too short: they are walked by frame pointers, which most libraries lack; whole ones need \
                     x86-64, bpf_loop (Linux 5.17) and kernel BTF",
                );
            }
            return None;
        }
        let returns = return_chain();
        if returns.is_none() {
            self.messages().detail(|| "stacks end at functions with return probes: the kernel's BTF lacks the fields of their return addresses".into());
        }
        Some(codegen::Unwind { returns })
    }

    /// Where the kernel has the address of a thread's control block, if programs there look for it.
    pub fn thread_base(&self, features: &wire::Features) -> Option<u32> {
        if *features == wire::Features::IN_PROCESS
            || !self.mentions_user_stacks() && !self.uses_thread_pointer()
        {
            return None;
        }
        let fields = [("task_struct", "thread"), ("thread_struct", "fsbase")];
        runtime::kernel::btf::kernel_fields(fields).map(|[thread, base]| thread + base)
    }
}

fn return_chain() -> Option<codegen::ReturnChain> {
    let fields = [
        ("task_struct", "utask"),
        ("uprobe_task", "return_instances"),
        ("return_instance", "stack"),
        ("return_instance", "orig_ret_vaddr"),
        ("return_instance", "next"),
    ];
    let [utask, instances, stack, original, next] = runtime::kernel::btf::kernel_fields(fields)?;
    Some(codegen::ReturnChain { utask, instances, stack, original, next })
}

/// Whether programs walk stacks with unwind tables.
pub fn walks_stacks(manifest: &wire::Manifest) -> bool {
    manifest.internal_maps.iter().any(|map| map == wire::unwind::TABLES_MAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_leaves_what_it_does_not_cover_of_others() {
        let area = |start, end, offset| Area { start, end, offset, file: FileKey::File((8, 1), 7) };
        let mut process = ProcessAreas::default();
        for old in [area(0x1000, 0x3000, 0), area(0x5000, 0x6000, 0x400), area(0x8000, 0x9000, 0)] {
            process.areas.insert(old.start, old);
        }
        let replaced = process.take(0x2000, 0x5800);
        assert_eq!(process.areas.len(), 1, "the one behind it stays");
        let left: Vec<Area> = replaced.iter().flat_map(|old| old.beside(0x2000, 0x5800)).collect();
        assert!(left == [area(0x5800, 0x6000, 0xc00), area(0x1000, 0x2000, 0)]);
        assert!(process.take(0x9000, 0xa000).is_empty(), "it begins where the last one ends");
    }
}
