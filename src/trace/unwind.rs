//! Keeps the maps filled that programs walk stacks by: tables of the files that traced processes have mapped.
//!
//! Processes that are traced from the start are read before anything is attached, files that a program of ours maps
//! before its mapping thread goes on; of others we hear when it has happened, or when a walk has met a process that it does
//! not know. Large tables are read by threads of their own; until they are there, walks go by the frame pointer.

use super::compiler::Compiler;
use super::late::Extender;
use crate::messages::Messages;
use crate::timer::Timer;
use anyhow::{Context, Result};
use runtime::process::Place;
use runtime::run::{Next, Watch};
use runtime::{Session, UnwindMaps};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use target::process::{self, Mapping, MappingName};
use target::unwind::{Segments, Source};

/// More bytes of unwind information than these are read in the background.
const LARGE: usize = 4 << 20;
/// How often we look for processes that walks did not know, and for tables from the background.
const TICK: Duration = Duration::from_millis(50);
/// Looks for a mapping that a thread is just making.
const SETTLE_TRIES: u32 = 50;
const SETTLE_PAUSE: Duration = Duration::from_micros(100);

/// A table by another name: device, inode; the kernel's own code has none.
type FileKey = ((u32, u32), u64);

/// See the module.
pub struct Unwinder<'a> {
    inner: RefCell<Inner>,
    messages: &'a Messages,
}

struct Inner {
    maps: UnwindMaps,
    files: HashMap<FileKey, Option<Known>>,
    processes: HashMap<u32, Process>,
    finished: Receiver<Finished>,
    finish: Sender<Finished>,
    rows: usize,
    bytes: usize,
}

/// A file with a table.
struct Known {
    table: u32,
    segments: Segments,
}

/// Code in a process.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Area {
    start: u64,
    end: u64,
    offset: u64,
    file: FileKey,
}

/// What was read of a process.
#[derive(Default)]
struct Process {
    /// Tells one program of a process from the next.
    start_code: u64,
    areas: HashSet<Area>,
}

/// A table from the background.
struct Finished {
    table: u32,
    shown: String,
    rows: usize,
    chunks: Option<Vec<Vec<u64>>>,
    took: Duration,
}

impl<'a> Unwinder<'a> {
    /// Fills `maps`.
    pub fn new(maps: UnwindMaps, messages: &'a Messages) -> Unwinder<'a> {
        let (finish, finished) = channel();
        let (files, processes) = (HashMap::new(), HashMap::new());
        let inner = Inner { maps, files, processes, finished, finish, rows: 0, bytes: 0 };
        Unwinder { inner: RefCell::new(inner), messages }
    }

    /// Reads what processes have mapped, and says what that took.
    pub fn start_with(&self, pids: &[u32]) {
        let start = Instant::now();
        pids.iter().for_each(|&pid| self.look(pid));
        if !pids.is_empty() {
            self.say_size(start.elapsed());
        }
    }

    fn say_size(&self, took: Duration) {
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

    /// Reads what a process has mapped now, and forgets what it has no longer.
    pub fn look(&self, pid: u32) {
        if let Err(error) = self.inner.borrow_mut().look(pid, self.messages) {
            self.messages.warning(&format!("stacks of process {pid} go by frame pointers: {error:#}"));
        }
    }

    /// Whether something of a process was read.
    pub fn knows(&self, pid: u32) -> bool {
        self.inner.borrow().processes.contains_key(&pid)
    }

    /// The process has ended.
    pub fn forget(&self, pid: u32) {
        self.inner.borrow_mut().forget(pid);
    }

    /// A thread of a process waits to map a file: its table is read, and if we know where the file will lie the process
    /// has it there. Otherwise it is to be looked for when the thread has gone on.
    pub fn prepare(&self, pid: u32, mapping: &runtime::process::Mapping) -> Wait {
        if !self.inner.borrow().runs_as_known(pid) {
            self.look(pid);
        }
        match self.inner.borrow_mut().prepare(pid, mapping, self.messages) {
            Ok(true) => return Wait::Done,
            Ok(false) => {}
            // The process was killed meanwhile.
            Err(_) if !mapping.open.exists() => {}
            Err(error) => {
                self.messages.warning(&format!("{}: no unwind table: {error:#}", mapping.shown.display()));
            }
        }
        Wait::For(executable(pid).count())
    }

    /// The thread goes on.
    pub fn settle(&self, pid: u32, wait: Wait) {
        let Wait::For(before) = wait else { return };
        for _ in 0..SETTLE_TRIES {
            if executable(pid).count() != before {
                break;
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
        self.look(pid);
    }
}

/// What is left to do for a mapping once it is there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing.
    Done,
    /// To see where it lies; the process had so many before.
    For(usize),
}

/// Device and inode as `/proc/PID/maps` shows them, which is not what `stat` says on some file systems; found by mapping it.
fn mapped_key(file: &std::fs::File) -> Option<FileKey> {
    // SAFETY: only the address is used.
    let map = unsafe { memmap2::MmapOptions::new().len(1).map(file) }.ok()?;
    let at = map.as_ptr() as u64;
    let own = process::mappings(std::process::id());
    let mapping = own.iter().find(|mapping| (mapping.start..mapping.end).contains(&at))?;
    Some((mapping.device, mapping.inode))
}

fn executable(pid: u32) -> impl Iterator<Item = Mapping> {
    process::mappings(pid).into_iter().filter(|mapping| mapping.executable)
}

impl Inner {
    /// Whether the mapping is entered already.
    fn prepare(
        &mut self,
        pid: u32,
        mapping: &runtime::process::Mapping,
        messages: &Messages,
    ) -> Result<bool> {
        let file = std::fs::File::open(&mapping.open)?;
        let Some(key) = mapped_key(&file) else { return Ok(false) };
        self.add(key, Source::of_file(&file), &mapping.shown.display().to_string(), messages)?;
        let Some(Place { start, end, offset }) = mapping.place else { return Ok(false) };
        let area = Area { start, end, offset, file: key };
        self.cover(pid, &area)?;
        self.processes.entry(pid).or_default().areas.insert(area);
        Ok(true)
    }

    /// The process was read, and has not started another program since.
    fn runs_as_known(&self, pid: u32) -> bool {
        let known = self.processes.get(&pid).map(|process| process.start_code);
        known.is_some() && known == process::start_code(pid)
    }

    fn look(&mut self, pid: u32, messages: &Messages) -> Result<()> {
        let mappings: Vec<Mapping> = executable(pid).collect();
        let now: HashSet<Area> = mappings.iter().map(area).collect();
        let before = self.processes.remove(&pid).unwrap_or_default().areas;
        before.difference(&now).for_each(|area| self.maps.unmap(pid, area.start, area.end));
        for mapping in mappings.iter().filter(|mapping| !before.contains(&area(mapping))) {
            self.add_mapping(pid, mapping, messages)?;
        }
        if !now.is_empty() {
            let start_code = process::start_code(pid).unwrap_or(0);
            self.processes.insert(pid, Process { start_code, areas: now });
        }
        Ok(())
    }

    fn add_mapping(&mut self, pid: u32, mapping: &Mapping, messages: &Messages) -> Result<()> {
        let key = area(mapping).file;
        if !self.files.contains_key(&key) {
            let source = Source::open(pid, mapping);
            self.add(key, source, &shown(mapping), messages)?;
        }
        self.cover(pid, &area(mapping))
    }

    fn cover(&self, pid: u32, area: &Area) -> Result<()> {
        let known = self.files.get(&area.file).and_then(Option::as_ref);
        let covered =
            known.and_then(|known| Some((known.table, known.segments.bias(area.start, area.offset)?)));
        // Table 0: there is none, and nobody needs to be told again.
        let (table, bias) = covered.unwrap_or((0, 0));
        self.maps.map(pid, area.start, area.end, table, bias).context("too many mappings")
    }

    fn add(&mut self, key: FileKey, source: Option<Source>, shown: &str, messages: &Messages) -> Result<()> {
        if self.files.contains_key(&key) {
            return Ok(());
        }
        let Some(source) = source else {
            self.files.insert(key, None);
            return Ok(());
        };
        let table = self.maps.reserve().context("too many files")?;
        self.files.insert(key, Some(Known { table, segments: source.segments().clone() }));
        if source.len() > LARGE {
            messages.detail(|| format!("{shown}: unwind table is read in the background"));
            self.add_behind(table, source, shown.to_owned());
            return Ok(());
        }
        let finished = read(table, &source, shown.to_owned());
        self.fill(&finished)
    }

    fn add_behind(&self, table: u32, source: Source, shown: String) {
        let finish = self.finish.clone();
        // Nobody listens any more when we have ended: then it does not matter.
        std::thread::spawn(move || drop(finish.send(read(table, &source, shown))));
    }

    fn fill(&mut self, finished: &Finished) -> Result<()> {
        let chunks = finished.chunks.as_ref().context("more rows than a table can have")?;
        self.bytes += self.maps.fill(finished.table, chunks)?;
        self.rows += finished.rows;
        Ok(())
    }

    fn forget(&mut self, pid: u32) {
        for area in self.processes.remove(&pid).unwrap_or_default().areas {
            self.maps.unmap(pid, area.start, area.end);
        }
    }

    /// Processes that have gone may have given their number away.
    fn forget_gone(&mut self) {
        let gone: Vec<u32> =
            self.processes.keys().copied().filter(|&pid| executable(pid).next().is_none()).collect();
        gone.into_iter().for_each(|pid| self.forget(pid));
    }
}

fn read(table: u32, source: &Source, shown: String) -> Finished {
    let start = Instant::now();
    let rows = source.rows();
    let chunks = wire::unwind::chunks(&rows);
    Finished { table, shown, rows: rows.len(), chunks, took: start.elapsed() }
}

fn area(mapping: &Mapping) -> Area {
    let Mapping { start, end, offset, device, inode, .. } = *mapping;
    Area { start, end, offset, file: (device, inode) }
}

fn shown(mapping: &Mapping) -> String {
    match &mapping.name {
        MappingName::Anonymous => String::new(),
        MappingName::Special(name) => name.clone(),
        MappingName::File(path) | MappingName::Deleted(path) => path.display().to_string(),
    }
}

/// Looks now and then for what walks did not know, and for tables from the background.
pub struct Caretaker<'a> {
    timer: Timer,
    extender: &'a Extender<'a>,
    ticks: u64,
}

/// So many ticks pass between looks for processes that have gone.
const GONE_TICKS: u64 = 100;

impl<'a> Caretaker<'a> {
    /// For the unwinder of `extender`.
    ///
    /// # Errors
    /// Those of timerfd_create(2).
    pub fn new(extender: &'a Extender<'a>) -> io::Result<Caretaker<'a>> {
        let timer = Timer::new(TICK, TICK)?;
        Ok(Caretaker { timer, extender, ticks: 0 })
    }

    fn tick(&mut self, unwinder: &Unwinder<'_>) {
        let unknown = unwinder.inner.borrow().maps.take_unknown().unwrap_or_default();
        for pid in unknown {
            self.extender.names.remember(pid);
            unwinder.look(pid);
        }
        let finished: Vec<Finished> = unwinder.inner.borrow().finished.try_iter().collect();
        finished.iter().for_each(|table| unwinder.take(table));
        self.ticks += 1;
        if self.ticks.is_multiple_of(GONE_TICKS) {
            unwinder.inner.borrow_mut().forget_gone();
        }
    }
}

impl Unwinder<'_> {
    fn take(&self, table: &Finished) {
        let filled = self.inner.borrow_mut().fill(table);
        match filled {
            Ok(()) => self.messages.detail(|| {
                format!("{}: unwind table of {} rows after {:?}", table.shown, table.rows, table.took)
            }),
            Err(error) => self.messages.warning(&format!("{}: no unwind table: {error:#}", table.shown)),
        }
    }
}

impl Watch for Caretaker<'_> {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        self.timer.take();
        if let Some(unwinder) = self.extender.unwinder() {
            self.tick(unwinder);
        }
        Next::Continue
    }
}

impl Compiler<'_> {
    /// How programs walk stacks on this kernel, if the script has any. What stacks will lack is said at the first compilation.
    pub fn unwind(&self, features: &wire::Features) -> Option<codegen::Unwind> {
        if !self.mentions_user_stacks() {
            return None;
        }
        if !cfg!(target_arch = "x86_64") || !features.bpf_loop || !features.btf {
            if !self.was_compiled() {
                self.messages().note(
                    "stacks go by frame pointers alone, which most libraries do not keep: unwind tables need x86-64, \
                     bpf_loop (Linux 5.17) and kernel BTF",
                );
            }
            return None;
        }
        let returns = return_chain();
        if returns.is_none() {
            self.messages().detail(|| "stacks end at functions with return probes: the kernel's BTF does not say where it keeps their return addresses".into());
        }
        Some(codegen::Unwind { returns })
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
    let [utask, instances, stack, original, next] = runtime::btf::kernel_fields(fields)?;
    Some(codegen::ReturnChain { utask, instances, stack, original, next })
}
