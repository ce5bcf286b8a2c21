//! Symbolization of code addresses: of processes, including ended ones, and of the kernel.
//!
//! A process's mappings are recorded when it is first seen, so that its addresses have names after its end. A file that the tracer cannot
//! open by its path (in a container, or deleted) is kept open. Symbols of JIT-compiled code are read from the file that the runtime
//! of the language writes (`perf_map`).
//!
//! Not here: formatting a frame, collecting the addresses of a stack.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::dwarf::{has_harmless_information, symbols_beside};
use crate::elf::ElfFile;
use crate::perf_map::PerfMap;
use crate::prologue;
use crate::untrusted_file;
use linux::proc::{self, Mapping, MappingName};

/// Symbol information of a code address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Function name, demangled if enabled.
    pub symbol: Option<String>,
    /// Offset from the start of the function in bytes. Without a function it is the offset from the load address
    /// of the file, as for `addr2line -e`.
    pub offset: u64,
    /// Address.
    pub address: u64,
    /// File, `[vdso]`, or kernel module.
    pub module: Option<String>,
    /// Source file and line.
    pub source: Option<(String, u32)>,
    /// True if the compiler inlined this function into the function of the next frame.
    pub inlined: bool,
}

impl Frame {
    fn unknown(address: u64) -> Frame {
        Frame { address, ..Frame::default() }
    }
}

/// Symbolizer of code addresses. It must not be shared between threads.
#[derive(Debug)]
pub struct Symbols {
    symbolizer: Symbolizer,
    demangle: bool,
    with_source: bool,
    processes: HashMap<u32, Vec<Region>>,
    /// Processes with new mappings since the last read.
    outdated: HashSet<u32>,
    /// Mappings that the kernel has reported, for processes that end before their mappings are read; the latest
    /// last.
    recorded: VecDeque<(u32, MappedFile)>,
    /// Open files that the tracer cannot open by their path, by device and inode of the mapping.
    held: HashMap<((u32, u32), u64), File>,
    /// Open files that were announced, by device and inode of the file.
    expected: HashMap<(u64, u64), File>,
    perf_maps: HashMap<u32, PerfMap>,
    frames: HashMap<(u32, u64), Vec<Frame>>,
    /// For addresses near the start of a function: whether a probe may be there.
    probed: HashMap<(u32, u64), bool>,
    kernel_frames: HashMap<u64, Frame>,
    /// Build id of each file; `None` if a file has none.
    build_ids: HashMap<PathBuf, Option<String>>,
    /// For stripped files: the separate debug file with their symbols.
    beside: HashMap<PathBuf, Option<(ElfFile, PathBuf)>>,
    /// For each file: whether its symbol tables are small enough for the symbolizer.
    bounded: HashMap<PathBuf, bool>,
    kernel_readable: OnceCell<bool>,
}

/// Executable memory of a process.
#[derive(Clone, Debug)]
struct Region {
    start: u64,
    end: u64,
    offset: u64,
    /// Load address of the file.
    base: u64,
    module: Option<String>,
    /// File with the symbols.
    file: Option<PathBuf>,
}

/// An executable mapping of a file that the kernel has reported.
#[derive(Clone, Debug)]
struct MappedFile {
    place: Range<u64>,
    offset: u64,
    inode: u64,
    path: PathBuf,
}

/// Largest size of a kernel function in bytes.
const LARGEST_KERNEL_FUNCTION: usize = 1 << 20;

/// Largest number of reported mappings that are kept.
const MAX_RECORDED: usize = 1 << 13;

impl Symbols {
    /// `with_source`: also find source lines and inlined functions, which requires debug information and time.
    /// `demangle`: show names of C++ and Rust as in the source.
    pub fn new(with_source: bool, demangle: bool) -> Symbols {
        // The symbolizer also maps files.
        untrusted_file::survive_truncation();
        let symbolizer = Symbolizer::builder()
            .enable_code_info(with_source)
            .enable_inlined_fns(with_source)
            .enable_demangling(false)
            .enable_auto_reload(false)
            .build();
        Symbols {
            symbolizer,
            demangle,
            with_source,
            processes: HashMap::new(),
            outdated: HashSet::new(),
            recorded: VecDeque::new(),
            held: HashMap::new(),
            expected: HashMap::new(),
            perf_maps: HashMap::new(),
            frames: HashMap::new(),
            probed: HashMap::new(),
            kernel_frames: HashMap::new(),
            build_ids: HashMap::new(),
            beside: HashMap::new(),
            bounded: HashMap::new(),
            kernel_readable: OnceCell::new(),
        }
    }

    /// Reads the mappings of a process, unless they are up to date.
    pub fn remember(&mut self, pid: u32) {
        if !self.processes.contains_key(&pid) || self.outdated.contains(&pid) {
            self.look(pid);
        }
    }

    /// Marks a process as outdated: it has new mappings, runs another program, or its pid was reused. Symbols of
    /// former mappings are kept until their addresses are mapped again, since a stack may be older.
    pub fn outdate(&mut self, pid: u32) {
        self.outdated.insert(pid);
        self.perf_maps.remove(&pid);
        self.frames.retain(|(of, _), _| *of != pid);
        self.probed.retain(|(of, _), _| *of != pid);
    }

    /// Adds a file that is about to be mapped, with `offset` bytes of it at the start of `place`. It may be
    /// unmapped before the mappings are read.
    pub fn expect(&mut self, pid: u32, place: Range<u64>, offset: u64, open: &Path, shown: &Path) {
        let Some(regions) = self.processes.get_mut(&pid) else { return self.look(pid) };
        let Ok(file) = untrusted_file::open(open).and_then(|file| Ok((file.metadata()?, file))) else {
            return;
        };
        let (metadata, file) = file;
        let is_there = shown.metadata().is_ok_and(|other| same_file(&other, &metadata));
        let file = if is_there { shown.to_path_buf() } else { hold(&mut self.expected, &metadata, file) };
        let Range { start, end } = place;
        let module = Some(shown.to_string_lossy().into_owned());
        let region =
            Region { start, end, offset, base: start.saturating_sub(offset), module, file: Some(file) };
        regions.retain(|old| old.end <= start || end <= old.start);
        regions.push(region);
        self.frames.retain(|(of, _), _| *of != pid);
        self.probed.retain(|(of, _), _| *of != pid);
    }

    /// Records that a process has mapped a file, with its inode and its path in the process's root. If the process
    /// ends before its mappings are read, there is no other source.
    pub fn record_mapping(&mut self, pid: u32, place: Range<u64>, offset: u64, inode: u64, path: PathBuf) {
        if self.recorded.len() == MAX_RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((pid, MappedFile { place, offset, inode, path }));
    }

    /// Regions from the recorded mappings of a process that has ended; later mappings replace earlier ones.
    fn recorded_regions(&self, pid: u32) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for (_, mapped) in self.recorded.iter().filter(|(of, _)| *of == pid) {
            let MappedFile { place: Range { start, end }, offset, inode, path } = mapped.clone();
            // The path may refer to another file by now, or in the root of this process.
            if !path.metadata().is_ok_and(|metadata| metadata.ino() == inode) {
                continue;
            }
            let module = Some(path.to_string_lossy().into_owned());
            let base = start.saturating_sub(offset);
            regions.retain(|old| old.end <= start || end <= old.start);
            regions.push(Region { start, end, offset, base, module, file: Some(path) });
        }
        regions
    }

    /// Frames of an address in a process, innermost first: inlined functions, then the function that contains the
    /// address. Never empty.
    pub fn user(&mut self, pid: u32, address: u64) -> Vec<Frame> {
        if let Some(frames) = self.frames.get(&(pid, address)) {
            return frames.clone();
        }
        let frames = match self.region(pid, address) {
            Some(region) => {
                let frames = self.frames_in(&region, address);
                let beside =
                    if frames[0].symbol.is_none() { self.frames_beside(&region, address) } else { None };
                beside.unwrap_or(frames)
            }
            None => vec![Frame::unknown(address)],
        };
        let frames = if frames[0].symbol.is_none() { self.made_code(pid, frames) } else { frames };
        self.frames.insert((pid, address), frames.clone());
        frames
    }

    /// Frames of the address at which the stack of a probe begins. A probe at the entry of a function may be some bytes after its start,
    /// where it costs less: the frame is that of the start.
    pub fn first(&mut self, pid: u32, address: u64) -> Vec<Frame> {
        let frames = self.user(pid, address);
        match &frames[..] {
            [Frame { symbol: Some(_), offset, .. }] if self.may_be_probe(pid, address, *offset) => {
                let (offset, address) = (0, address - offset);
                frames.into_iter().map(|frame| Frame { offset, address, ..frame }).collect()
            }
            _ => frames,
        }
    }

    /// Whether a probe of the function that contains the address may be there. `offset`: from the start of the function.
    fn may_be_probe(&mut self, pid: u32, address: u64, offset: u64) -> bool {
        if !(1..prologue::LARGEST_DISTANCE).contains(&offset) {
            return false;
        }
        if let Some(known) = self.probed.get(&(pid, address)) {
            return *known;
        }
        let place = self.region(pid, address).and_then(|region| {
            let start = (address - offset).checked_sub(region.start)? + region.offset;
            Some((ElfFile::open(&region.file?).ok().filter(ElfFile::is_x86_64)?, start))
        });
        let may_be = place.is_some_and(|(elf, start)| {
            prologue::may_be_probed_at(elf.code(start, 2 * prologue::LARGEST_DISTANCE), offset)
        });
        self.probed.insert((pid, address), may_be);
        may_be
    }

    /// The linker symbol of the function that begins at an address of a process.
    pub fn function_at(&mut self, pid: u32, address: u64) -> Option<String> {
        let region = self.region(pid, address)?;
        let offset = address - region.start + region.offset;
        let mut elf = Elf::new(self.symbol_file(&region)?);
        elf.debug_syms = false;
        match self.symbolizer.symbolize_single(&Source::Elf(elf), Input::FileOffset(offset)) {
            Ok(Symbolized::Sym(sym)) if sym.offset == 0 => Some(sym.name.into_owned()),
            _ => None,
        }
    }

    /// Build id in hex of the file that contains an address of a process, and the offset in the file.
    pub fn file_place(&mut self, pid: u32, address: u64) -> Option<(String, u64)> {
        let region = self.region(pid, address)?;
        let offset = address - region.start + region.offset;
        let path = region.file?;
        let known =
            self.build_ids.entry(path).or_insert_with_key(|path| ElfFile::open(path).ok()?.build_id_text());
        known.clone().map(|id| (id, offset))
    }

    /// The frame of a kernel address. Without a readable `/proc/kallsyms` it has no name.
    pub fn kernel(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.kernel_frames.get(&address) {
            return frame.clone();
        }
        let frame = self.kernel_frame(address).unwrap_or_else(|| Frame::unknown(address));
        self.kernel_frames.insert(address, frame.clone());
        frame
    }

    /// Searches the perf map of the process for code without symbols in a file.
    fn made_code(&mut self, pid: u32, unknown: Vec<Frame>) -> Vec<Frame> {
        self.find_perf_map(pid);
        let address = unknown[0].address;
        let Some(map) = self.perf_maps.get_mut(&pid) else { return unknown };
        let Some((symbol, offset)) = map.find(address) else { return unknown };
        let module = Some(map.path().to_owned());
        vec![Frame { symbol: Some(symbol), offset, address, module, ..Frame::default() }]
    }

    fn find_perf_map(&mut self, pid: u32) {
        if !self.perf_maps.contains_key(&pid)
            && let Some(map) = PerfMap::open(pid)
        {
            self.perf_maps.insert(pid, map);
        }
    }

    /// The region of an address. If there is none, the mappings are read again, since a library may have been
    /// loaded.
    fn region(&mut self, pid: u32, address: u64) -> Option<Region> {
        self.remember(pid);
        if let Some(region) = self.known_region(pid, address) {
            return Some(region);
        }
        self.look(pid);
        self.known_region(pid, address)
    }

    fn known_region(&self, pid: u32, address: u64) -> Option<Region> {
        let regions = self.processes.get(&pid)?;
        regions.iter().find(|region| (region.start..region.end).contains(&address)).cloned()
    }

    /// Reads the mappings of a process; if it has ended, the known ones are kept.
    fn look(&mut self, pid: u32) {
        let mappings = proc::mappings(pid);
        if mappings.is_empty() {
            return self.look_back(pid);
        }
        let prefix = proc::root_prefix(pid);
        let executable = mappings.iter().enumerate().filter(|(_, mapping)| mapping.executable);
        let regions = executable.map(|(index, mapping)| Region {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            base: base(&mappings[..=index]),
            module: module_name(&mapping.name),
            file: self.lasting_path(pid, mapping, prefix.as_os_str().is_empty()),
        });
        let mut regions: Vec<Region> = regions.collect();
        let before = self.processes.remove(&pid).unwrap_or_default();
        regions.extend(unmapped(before, &regions));
        self.processes.insert(pid, regions);
        self.outdated.remove(&pid);
        self.find_perf_map(pid);
    }

    /// Adds the recorded mappings of a process that has ended, which may be its only ones.
    fn look_back(&mut self, pid: u32) {
        let mut regions = self.recorded_regions(pid);
        if let Some(before) = self.processes.remove(&pid) {
            regions.extend(unmapped(before, &regions));
        }
        if !regions.is_empty() {
            self.processes.insert(pid, regions);
        }
        self.outdated.remove(&pid);
    }

    /// A path to the mapped file that stays valid after the end of the process.
    fn lasting_path(&mut self, pid: u32, mapping: &Mapping, sees_our_files: bool) -> Option<PathBuf> {
        let path = mapping.name.path().filter(|_| mapping.inode != 0)?;
        let is_there = || path.metadata().is_ok_and(|metadata| metadata.ino() == mapping.inode);
        if sees_our_files && matches!(mapping.name, MappingName::File(_)) && is_there() {
            return Some(path.to_path_buf());
        }
        let file = match self.held.entry((mapping.device, mapping.inode)) {
            std::collections::hash_map::Entry::Occupied(held) => held.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => place.insert(open_mapped(pid, mapping)?),
        };
        Some(untrusted_file::path_of(file))
    }

    /// The file with a region's symbols. Files with huge symbol tables are excluded, since the symbolizer reads
    /// all symbols.
    fn symbol_file(&mut self, region: &Region) -> Option<PathBuf> {
        let path = region.file.as_ref()?;
        let is_endless = |path: &PathBuf| ElfFile::open(path).is_ok_and(|elf| !elf.has_bounded_symbols());
        let bounded = self.bounded.entry(path.clone()).or_insert_with_key(|path| !is_endless(path));
        bounded.then(|| path.clone())
    }

    fn frames_in(&mut self, region: &Region, address: u64) -> Vec<Frame> {
        let unknown = || {
            let offset = address - region.base;
            vec![Frame { offset, module: region.module.clone(), ..Frame::unknown(address) }]
        };
        let Some(path) = self.symbol_file(region) else { return unknown() };
        let offset = address - region.start + region.offset;
        let found = |with_source| {
            let mut elf = Elf::new(&path);
            elf.debug_syms = with_source && has_harmless_information(&path);
            match self.symbolizer.symbolize_single(&Source::Elf(elf), Input::FileOffset(offset)) {
                Ok(Symbolized::Sym(sym)) => Some(self.named(&sym, address, region.module.as_deref())),
                _ => None,
            }
        };
        // The debug information may be of another build; the file's own symbols are still valid.
        let with_source = self.with_source.then(|| found(true)).flatten();
        with_source.or_else(|| found(false)).unwrap_or_else(unknown)
    }

    /// Frames by the symbols in the separate debug file of a stripped file.
    fn frames_beside(&mut self, region: &Region, address: u64) -> Option<Vec<Frame>> {
        let (path, shown) = (region.file.as_ref()?, Path::new(region.module.as_deref()?));
        let known = self.beside.entry(path.clone()).or_insert_with(|| {
            let elf = ElfFile::open(path).ok().filter(|elf| !elf.has_symtab())?;
            let symbols = symbols_beside(&elf, path, shown).filter(ElfFile::has_bounded_symbols)?;
            Some((elf, symbols.path().to_path_buf()))
        });
        let (elf, symbols) = known.as_ref()?;
        let address_in_file = elf.code_address(address - region.start + region.offset)?;
        let mut source = Elf::new(symbols);
        source.debug_syms = self.with_source;
        match self.symbolizer.symbolize_single(&Source::Elf(source), Input::VirtOffset(address_in_file)) {
            Ok(Symbolized::Sym(sym)) => Some(self.named(&sym, address, region.module.as_deref())),
            _ => None,
        }
    }

    fn kernel_frame(&self, address: u64) -> Option<Frame> {
        if !self.kernel_readable.get_or_init(kernel_symbols_readable) {
            return None;
        }
        let mut kernel = Kernel { vmlinux: MaybeDefault::None, ..Kernel::default() };
        kernel.debug_syms = false;
        match self.symbolizer.symbolize_single(&Source::Kernel(kernel), Input::AbsAddr(address)) {
            // For code without a symbol, such as a removed BPF program, the symbolizer returns the preceding
            // symbol, which is meaningless.
            Ok(Symbolized::Sym(sym)) if sym.offset < LARGEST_KERNEL_FUNCTION => {
                self.named(&sym, address, None).pop()
            }
            _ => None,
        }
    }
}

impl Symbols {
    /// The frames of a symbol, with names as they are shown.
    fn named(&self, sym: &Sym<'_>, address: u64, module: Option<&str>) -> Vec<Frame> {
        let mut frames = frames(sym, address, module);
        for name in frames.iter_mut().filter_map(|frame| frame.symbol.as_mut()).filter(|_| self.demangle) {
            *name = demangled(name);
        }
        frames
    }
}

/// Demangles a name of C++ or Rust. C names stay unchanged: some, such as `f`, are types in C++'s mangling.
fn demangled(name: &str) -> String {
    if !["_Z", "__Z", "_R"].iter().any(|mangled| name.starts_with(mangled)) {
        return name.to_owned();
    }
    let rust = rustc_demangle::try_demangle(name).ok().map(|name| format!("{name:#}"));
    let cpp = || cpp_demangle::Symbol::new(name).ok()?.demangle().ok();
    rust.or_else(cpp).unwrap_or_else(|| name.to_owned())
}

/// Opens a mapped file through its mapping, or through the process's root if that is not permitted.
pub(crate) fn open_mapped(pid: u32, mapping: &Mapping) -> Option<File> {
    let through_root = || {
        let inside = mapping.name.path()?.strip_prefix("/").ok()?;
        let file = untrusted_file::open(&PathBuf::from(format!("/proc/{pid}/root")).join(inside)).ok()?;
        (file.metadata().ok()?.ino() == mapping.inode).then_some(file)
    };
    untrusted_file::open(&mapping.link(pid)).ok().or_else(through_root)
}

/// Whether kernel symbols are readable: without the right, all addresses read as 0.
fn kernel_symbols_readable() -> bool {
    use std::io::Read;
    let mut head = String::new();
    let read = File::open("/proc/kallsyms").and_then(|file| file.take(4096).read_to_string(&mut head));
    read.is_ok()
        && head
            .lines()
            .filter_map(|line| line.split(' ').next())
            .any(|address| address.bytes().any(|b| b != b'0'))
}

fn same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// A path to an open file that is valid while the file is kept in `held`.
fn hold(held: &mut HashMap<(u64, u64), File>, metadata: &Metadata, file: File) -> PathBuf {
    let file = held.entry((metadata.dev(), metadata.ino())).or_insert(file);
    untrusted_file::path_of(file)
}

/// Returns the file regions of `before` whose addresses are unmapped now.
fn unmapped(before: Vec<Region>, now: &[Region]) -> Vec<Region> {
    let is_free = |old: &Region| now.iter().all(|region| region.end <= old.start || old.end <= region.start);
    before.into_iter().filter(|old| old.file.is_some() && is_free(old)).collect()
}

/// Load address of the file of the last of these mappings.
fn base(mappings: &[Mapping]) -> u64 {
    let last = &mappings[mappings.len() - 1];
    let is_begin = |one: &&Mapping| (one.device, one.inode, one.offset) == (last.device, last.inode, 0);
    mappings.iter().rev().find(is_begin).filter(|_| last.inode != 0).map_or(last.start, |begin| begin.start)
}

fn module_name(name: &MappingName) -> Option<String> {
    match name {
        MappingName::Anonymous => None,
        MappingName::File(path) | MappingName::Deleted(path) => Some(path.to_string_lossy().into_owned()),
        MappingName::Special(name) => Some(name.clone()),
    }
}

/// Inlined functions, innermost first, then the function itself. The line of each is where it calls the next inner
/// frame.
fn frames(sym: &Sym<'_>, address: u64, module: Option<&str>) -> Vec<Frame> {
    let module =
        module.map(str::to_owned).or_else(|| Some(sym.module.as_ref()?.to_string_lossy().into_owned()));
    let outer = Frame {
        symbol: Some(sym.name.to_string()),
        offset: sym.offset as u64,
        address,
        module: module.clone(),
        source: sym.code_info.as_deref().and_then(source),
        inlined: false,
    };
    let inlined = sym.inlined.iter().rev().map(|function| Frame {
        symbol: Some(function.name.to_string()),
        address,
        module: module.clone(),
        source: function.code_info.as_ref().and_then(source),
        inlined: true,
        ..Frame::default()
    });
    inlined.chain([outer]).collect()
}

fn source(info: &CodeInfo<'_>) -> Option<(String, u32)> {
    Some((info.to_path().to_string_lossy().into_owned(), info.line?))
}
