//! The catalog of this machine: answers queries of the language from ELF files, `/proc` and the disk.
//!
//! A target's name is resolved in this order: an override; the files that the traced processes have mapped; for a command, or when
//! nothing is mapped yet, the disk as seen by that process. Without processes and command (system-wide) it is the mapped files of
//! all processes and the disk. Each file is used once, whatever the number of names, mounts and processes that lead to it.
//!
//! Files are read on demand and never dropped: a [`FileId`] stays valid, and answers borrow from the machine.
//! Not here: watching processes for files that they map later; the watcher adds those with [`Machine::add_file`].

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File as OpenFile;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use cuda::Library;
use elsa::sync::FrozenVec;
use lang::catalog::debug_info;
use lang::catalog::debug_info::{Absent, TypeId};
use lang::catalog::{
    Catalog, DeviceDriver, File, FileId, Function, KERNEL, KernelFunction, Landing, Marker, Place,
    TargetError, Tracepoint,
};

use lang::hir::Hook;

use crate::devices;
use crate::dwarf::{Debug, symbols_beside};
use crate::elf::{ElfError, ElfFile, Functions};
use crate::identity::Identity;
use crate::patch::{self, Author, PatchPlace, Refusal};
use crate::prologue::{self, Body, CodePosition};
use crate::search::folders::View;
use crate::search::{TargetName, Verdict, usable};
use crate::{search, untrusted_file, usdt};
use linux::proc;

/// Environment variables with the path of a library.
const OVERRIDES: [(&str, &str); 2] = [("CUDATRACE_LIBCUDA", "libcuda"), ("CUDATRACE_LIBCUDART", "libcudart")];
/// Size of the code around a function that is searched for branches, in bytes.
const CODE_AROUND: u64 = 4 << 20;
/// Largest size of an instruction in bytes.
const LONGEST_INSTRUCTION: u64 = 15;

/// The traced processes and libraries.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Running processes.
    pub pids: Vec<u32>,
    /// Command to start: program and arguments.
    pub command: Option<Vec<OsString>>,
    /// Changes to this process's environment for the command.
    pub environment: HashMap<OsString, OsString>,
    /// `--lib libcuda=PATH`; a name may occur several times.
    pub lib_overrides: Vec<(String, PathBuf)>,
}

impl Scope {
    /// Whether every process is traced: neither processes nor a command are given.
    pub fn is_system_wide(&self) -> bool {
        self.pids.is_empty() && self.command.is_none()
    }
}

/// Queries of a machine's catalog to the kernel; the implementation may need privileges.
pub trait Kernel: std::fmt::Debug + Sync {
    /// The fields of a tracepoint's record.
    ///
    /// # Errors
    /// There is no such tracepoint, or it cannot be read; the error is the reason.
    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String>;

    /// Category and name of all tracepoints.
    fn tracepoints(&self) -> Vec<(String, String)>;

    /// The arguments of a raw tracepoint.
    ///
    /// # Errors
    /// There is no such tracepoint, or it cannot be read; the error is the reason.
    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String>;

    /// Names of all raw tracepoints.
    fn raw_tracepoints(&self) -> Vec<String>;

    /// The fields of an iterator's items.
    ///
    /// # Errors
    /// There is no such iterator; the error is the reason.
    fn iterator(&self, items: &str) -> Result<Tracepoint, String>;

    /// Names of all iterators.
    fn iterators(&self) -> Vec<String>;

    /// Whether functions of the kernel can be probed in this way.
    ///
    /// # Errors
    /// The kernel has no such probes; the error is the reason.
    fn hook(&self, hook: Hook) -> Result<(), String>;

    /// The functions of the kernel and its modules, sorted by name, module and address.
    fn functions(&self) -> &[KernelFunction];

    /// The functions at which trampolines can be.
    fn trampoline_functions(&self) -> &[KernelFunction];

    /// The declaration of the function at an address.
    ///
    /// # Errors
    /// There is no declaration; the error is the reason.
    fn declared(&self, address: u64, symbol: &str) -> Result<debug_info::Function, Absent>;

    /// Offset of a field in a struct of the kernel, in bytes.
    fn field(&self, of: &str, field: &str) -> Option<u32>;

    /// Address of a function or variable; of a variable of each CPU the offset in the CPU's area.
    fn symbol(&self, name: &str) -> Option<u64>;

    /// Number of the kernel's type with this name.
    fn type_named(&self, name: &str) -> Option<u64>;

    /// Number of the kernel's enum that has a constant of this name.
    fn enum_with(&self, constant: &str) -> Option<u64>;

    /// One level of the type with this number.
    fn declared_type(&self, at: u64) -> Option<debug_info::Type>;
}

/// Called for each path that a search by pattern finds; the argument is whether it is an ELF file. Dropped at the
/// end of the search.
pub type Progress = Box<dyn FnMut(bool)>;

/// A file that has been added.
#[derive(Debug)]
struct TargetFile {
    /// Path at which it was found. Another file may have this path now.
    found_path: PathBuf,
    /// The open file: probes go into the file that was read, whatever its path refers to later.
    held: OpenFile,
    open_path: PathBuf,
    shown: PathBuf,
    reason: String,
    identity: Identity,
    /// True if the file has been overwritten since.
    is_overwritten: AtomicBool,
    elf: ElfFile,
    library: OnceLock<Option<(Library, u32)>>,
    functions: OnceLock<Functions>,
    /// By offset of the function: a search decodes all of it, and each clause asks.
    patch_places: Mutex<HashMap<u64, Result<PatchPlace, Refusal>>>,
    markers: OnceLock<Vec<Marker>>,
    debug: OnceLock<Result<Debug, Absent>>,
}

impl TargetFile {
    fn is_current(&self) -> bool {
        !self.is_overwritten.load(Ordering::Relaxed)
    }

    /// Whether a uprobe on this file is also a uprobe on the other.
    fn is_same_file(&self, other: &Identity) -> bool {
        let is_still_same =
            |now: Identity| !self.identity.is_older_content_of(&now) && now.is_same_file(other);
        self.identity.is_same_file(other)
            || self.identity.may_share_layer(other) && Identity::of_file(&self.held).is_ok_and(is_still_same)
    }

    fn library(&self) -> Option<(Library, u32)> {
        *self.library.get_or_init(|| search::known_library(&self.shown, &self.elf))
    }

    /// Debug information; `file` is the id of this file.
    fn debug(&self, file: FileId) -> Result<&Debug, Absent> {
        let find = || Debug::of(file, &self.elf, &self.found_path, &self.shown);
        self.debug.get_or_init(find).as_ref().map_err(Absent::clone)
    }

    fn functions(&self) -> &Functions {
        self.functions.get_or_init(|| self.elf.functions_with(self.symbols_beside().as_ref()))
    }

    /// The file with the symbols, if this file is stripped.
    fn symbols_beside(&self) -> Option<ElfFile> {
        let is_stripped = !self.elf.has_symtab();
        is_stripped.then(|| symbols_beside(&self.elf, &self.found_path, &self.shown)).flatten()
    }
}

/// The catalog of this machine for a scope.
#[derive(Debug)]
pub struct Machine {
    scope: RwLock<Arc<Scope>>,
    directory: PathBuf,
    files: FrozenVec<Box<TargetFile>>,
    /// Locked while a file is searched and added, so that it is added once.
    adding: Mutex<()>,
    /// Queries to the kernel.
    kernel: Option<&'static dyn Kernel>,
    /// True if probes are at the first instructions of functions.
    at_starts: AtomicBool,
    /// The library for the records of GPUs.
    agent: OnceLock<FileId>,
    /// Starts the progress display of a search by pattern.
    pub(crate) start_progress: Option<fn() -> Progress>,
    /// Files of the targets that were found.
    found: Mutex<HashMap<String, Vec<FileId>>>,
}

/// A CUDA runtime that is linked into a library.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OwnRuntime {
    /// Its functions have names.
    Named,
    /// Its functions have no names, so that there is nothing to probe.
    Stripped,
}

impl Machine {
    /// Creates the catalog without reading anything.
    pub fn new(scope: Scope) -> Machine {
        let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Machine {
            scope: RwLock::new(Arc::new(scope)),
            directory,
            files: FrozenVec::new(),
            kernel: None,
            at_starts: AtomicBool::new(false),
            agent: OnceLock::new(),
            start_progress: None,
            adding: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// The same catalog with the kernel's tracepoints and types.
    pub fn with_kernel(self, kernel: &'static dyn Kernel) -> Machine {
        Machine { kernel: Some(kernel), ..self }
    }

    /// Whether probes are at the first instructions of functions from now on, for programs in the traced processes: jumps need no cheap
    /// instruction.
    pub fn put_probes_at_starts(&self, at_starts: bool) {
        self.at_starts.store(at_starts, Ordering::Relaxed);
    }

    /// Sets the library that is loaded into traced processes for the records of their GPUs, once: an ELF file, which messages name
    /// `shown_path`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn set_agent(&self, open_path: &Path, shown_path: &Path) -> Result<FileId, ElfError> {
        let file = self.add_file(open_path, shown_path, "the agent of cudatrace")?;
        Ok(*self.agent.get_or_init(|| file))
    }

    /// Bytes of a file's code.
    pub fn code(&self, file: FileId, offset: u64, len: u64) -> &[u8] {
        self.file(file).elf.code(offset, len)
    }

    /// The library of CUDA that a file is, with its major version.
    pub fn library(&self, file: FileId) -> Option<(Library, u32)> {
        self.file(file).library()
    }

    /// The same catalog with a progress display for searches by pattern.
    pub fn with_progress(self, start_progress: Option<fn() -> Progress>) -> Machine {
        Machine { start_progress, ..self }
    }

    /// The reason why the file was added, for `-v`: `mapped by process 42 (python3)`.
    pub fn why(&self, file: FileId) -> &str {
        &self.file(file).reason
    }

    /// A path of this process to a descriptor of the file, valid during the lifetime of this machine.
    pub fn open_path(&self, file: FileId) -> &Path {
        &self.file(file).open_path
    }

    /// Path to show.
    pub fn shown_path(&self, file: FileId) -> &Path {
        &self.file(file).shown
    }

    /// Identity of the file.
    pub fn identity(&self, file: FileId) -> &Identity {
        &self.file(file).identity
    }

    /// GNU build id, in hex.
    pub fn build_id(&self, file: FileId) -> Option<String> {
        self.file(file).elf.build_id_text()
    }

    /// `DT_SONAME`
    pub fn soname(&self, file: FileId) -> Option<&str> {
        self.file(file).elf.soname()
    }

    /// Whether the Go compiler made the file: its stacks move, so return probes would kill the program.
    pub fn is_go(&self, file: FileId) -> bool {
        self.file(file).elf.is_go()
    }

    /// The place of a jump in the function at `offset`, and the bytes of the file that the jump overwrites.
    ///
    /// # Errors
    /// A [`Refusal`] if the function cannot be patched.
    pub fn patch_place(&self, file: FileId, offset: u64) -> Result<(PatchPlace, &[u8]), Refusal> {
        let taken = self.file(file);
        if !taken.elf.is_x86_64() {
            return Err(Refusal::Undecodable);
        }
        if taken.elf.is_go_code(offset) {
            return Err(Refusal::GoStack);
        }
        let author = if taken.library().is_some() { Author::Compiler } else { Author::Unknown };
        let body = || Body::of(&taken.elf, taken.functions(), offset, u64::MAX);
        let mut known = taken.patch_places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = *known.entry(offset).or_insert_with(|| patch::patch_place(body(), author));
        let place = place?;
        Ok((place, taken.elf.code(offset + place.bytes, place.len.into())))
    }

    /// The function that starts at an offset.
    pub fn function_at(&self, file: FileId, offset: u64) -> Option<&Function> {
        self.file(file).functions().at(offset)
    }

    /// The files added so far, in order.
    pub fn files_taken(&self) -> Vec<File> {
        (0..self.files.len()).map(|index| self.describe(FileId(index as u32))).collect()
    }

    /// Targets that were searched, as written, with their files.
    pub fn targets_found(&self) -> Vec<(String, Vec<FileId>)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut targets: Vec<_> = found.iter().map(|(name, files)| (name.clone(), files.clone())).collect();
        targets.sort();
        targets
    }

    /// Keeps the files that one of these processes has mapped, according to its mappings.
    pub fn mapped_by(&self, pids: &[u32], files: impl Iterator<Item = FileId>) -> Vec<FileId> {
        let mappings = pids.iter().flat_map(|&pid| proc::mappings(pid));
        let places: HashSet<((u32, u32), u64)> = mappings.map(|one| (one.device, one.inode)).collect();
        let is_mapped = |file: &FileId| {
            let may_be = |&((major, minor), inode): &_| {
                self.file(*file).identity.may_be(libc::makedev(major, minor), inode)
            };
            places.iter().any(may_be)
        };
        files.filter(is_mapped).collect()
    }

    /// The traced processes and libraries.
    pub fn scope(&self) -> Arc<Scope> {
        Arc::clone(&self.scope.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the scope: targets are searched again. Ids stay valid.
    pub fn set_scope(&self, scope: Scope) {
        *self.scope.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(scope);
        self.refresh();
    }

    /// Drops the files of target names, so that the next query searches again. Ids stay valid.
    pub fn refresh(&self) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The id of a file that was overwritten after it was added. The next query adds it again.
    pub fn overwritten(&self, open_path: &Path) -> Option<FileId> {
        let now = Identity::of(open_path).ok()?;
        let is_it = |at: &usize| {
            self.files
                .get(*at)
                .is_some_and(|file| file.is_current() && file.identity.is_older_content_of(&now))
        };
        let index = (0..self.files.len()).find(is_it)?;
        self.files.get(index)?.is_overwritten.store(true, Ordering::Relaxed);
        Some(FileId(index as u32))
    }

    /// Files that were named by a path, or by a pattern of paths, keep the path as written; links are not
    /// followed.
    fn show_as_written(&self, target: &str, files: &mut [File]) {
        let is_pattern = target.contains(['*', '?', '[']) && !Path::new(target).exists();
        if let ([file], false) = (&mut *files, is_pattern) {
            file.path = target.to_owned();
        }
        let dot = if target.starts_with("./") { "./" } else { "" };
        let paths = is_pattern.then(|| glob::glob(target).ok()).flatten();
        for path in paths.into_iter().flatten().flatten() {
            let Ok(identity) = Identity::of(&path) else { continue };
            let is_it = |file: &&mut File| self.file(file.id).is_same_file(&identity);
            if let Some(file) = files.iter_mut().find(is_it) {
                let path = path.display().to_string();
                file.path = format!("{dot}{}", path.strip_prefix("./").unwrap_or(&path));
            }
        }
    }

    /// Adds a file and returns its id; if the same file was added before, returns that id.
    pub fn add_file(&self, open_path: &Path, shown_path: &Path, reason: &str) -> Result<FileId, ElfError> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let unreadable = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => ElfError::NotFound { path: shown_path.into() },
            std::io::ErrorKind::InvalidInput => ElfError::NotElf { path: shown_path.into() },
            _ => ElfError::Unreadable { path: shown_path.into(), source },
        };
        let file = untrusted_file::open(open_path).map_err(unreadable)?;
        let identity = Identity::of_file(&file).map_err(unreadable)?;
        let known = (0..self.files.len())
            .find(|&at| self.files.get(at).is_some_and(|f| f.is_current() && f.is_same_file(&identity)));
        if let Some(index) = known {
            return Ok(FileId(index as u32));
        }
        let elf = ElfFile::of_file(&file, open_path)?;
        let held = untrusted_file::out_of_the_way(file);
        self.files.push(Box::new(TargetFile {
            found_path: open_path.into(),
            open_path: Some(untrusted_file::path_of(&held))
                .filter(|path| path.exists())
                .unwrap_or_else(|| open_path.into()),
            held,
            shown: shown_path.into(),
            reason: reason.into(),
            identity,
            is_overwritten: AtomicBool::new(false),
            elf,
            library: OnceLock::new(),
            functions: OnceLock::new(),
            patch_places: Mutex::default(),
            markers: OnceLock::new(),
            debug: OnceLock::new(),
        }));
        Ok(FileId(self.files.len() as u32 - 1))
    }

    /// Whether a file may belong to a target, judged by its path; [`Machine::belongs`] decides.
    pub fn matches(&self, target: &str, shown_path: &Path) -> bool {
        let overridden = self.overrides(target);
        if !overridden.is_empty() {
            return overridden.iter().any(|(path, _)| path == shown_path);
        }
        let wanted = self.target_name(target);
        !search::is_stub(shown_path) && wanted.judge(shown_path) != Verdict::No
    }

    /// Whether a program may belong to a target, judged by its path or because it may have the runtime linked in.
    pub fn matches_program(&self, target: &str, shown_path: &Path) -> bool {
        self.target_name(target).is_runtime() || self.matches(target, shown_path)
    }

    /// The CUDA runtime that is linked into a library other than libcudart.
    pub fn own_runtime(&self, open_path: &Path, shown_path: &Path) -> Option<OwnRuntime> {
        let elf = ElfFile::open(open_path).ok().filter(|_| !search::is_stub(shown_path))?;
        match () {
            () if search::has_static_runtime(shown_path, &elf) => Some(OwnRuntime::Named),
            () if search::hides_static_runtime(shown_path, &elf) => Some(OwnRuntime::Stripped),
            () => None,
        }
    }

    /// Whether the file belongs to the target: by its name, by its soname, or as a program with the CUDA runtime
    /// linked in.
    pub fn belongs(&self, target: &str, file: FileId) -> bool {
        let taken = self.file(file);
        let wanted = self.target_name(target);
        match self.overrides(target).as_slice() {
            [] => usable::accepts(&wanted, &taken.shown, &taken.elf),
            paths => paths.iter().any(|(path, _)| Identity::of(path).is_ok_and(|i| taken.is_same_file(&i))),
        }
    }

    fn file(&self, file: FileId) -> &TargetFile {
        self.files.get(file.0 as usize).expect("a FileId of another machine is a bug of ours")
    }

    fn describe(&self, id: FileId) -> File {
        let taken = self.file(id);
        File { id, path: taken.shown.to_string_lossy().into_owned(), library: taken.library() }
    }

    pub(crate) fn target_name(&self, target: &str) -> TargetName {
        TargetName::parse(target, &self.directory)
    }

    /// Paths that the user gave for a library by `--lib`, whether they exist or not.
    pub fn named_paths(&self, target: &str) -> Vec<PathBuf> {
        self.overrides(target).into_iter().map(|(path, _)| path).collect()
    }

    /// Paths that the user gave for a library, with the reason to show.
    pub(crate) fn overrides(&self, target: &str) -> Vec<(PathBuf, String)> {
        let wanted = self.target_name(target);
        let is_meant = |name: &str| {
            name == target
                || self.target_name(name).library().is_some_and(|l| wanted == TargetName::Library(l))
        };
        let scope = self.scope();
        let given = scope.lib_overrides.iter().filter(|(name, _)| is_meant(name));
        let mut paths: Vec<_> =
            given.map(|(name, path)| (self.directory.join(path), format!("given by --lib {name}"))).collect();
        if paths.is_empty() {
            let set = OVERRIDES.iter().filter(|(_, name)| is_meant(name));
            let values = set.filter_map(|(variable, _)| {
                Some((*variable, std::env::var_os(variable).filter(|v| !v.is_empty())?))
            });
            paths.extend(
                values.map(|(variable, path)| (self.directory.join(path), format!("given by {variable}"))),
            );
        }
        paths
    }

    /// Finds a path in the root of each traced process, otherwise in the root of this process.
    pub(crate) fn find_path(&self, path: &Path) -> Result<Vec<FileId>, TargetError> {
        let scope = self.scope();
        let views = scope.pids.iter().map(|&pid| (pid, proc::root_prefix(pid)));
        let containers = views.filter(|(_, prefix)| !prefix.as_os_str().is_empty());
        let mut files = Vec::new();
        for (pid, prefix) in containers {
            let view = View { prefix, ..View::default() };
            files
                .extend(self.take_path(&view, path, &format!("the path, in the root of process {pid}")).ok());
        }
        if files.is_empty() {
            let taken = self.take_path(&View::default(), path, "the path");
            files.push(taken.map_err(|error| TargetError::Unusable(error.to_string()))?);
        }
        Ok(unique(files))
    }

    /// Adds the file at a path as a view sees it, following links.
    pub(crate) fn take_path(&self, view: &View, path: &Path, why: &str) -> Result<FileId, ElfError> {
        let open_path = view.resolve(&view.outside(path));
        self.add_file(&open_path, &view.inside(&open_path), why)
    }

    /// The view of the command to be started, or of this process.
    pub(crate) fn view_of_command(&self) -> View {
        let scope = self.scope();
        let mut view = View::own(&scope.environment, &self.directory);
        let program = scope.command.as_ref().and_then(|argv| argv.first());
        if let Some(path) = program.and_then(|name| self.program_path(&view, name)) {
            view.programs = with_interpreters(&view, path);
        }
        view
    }

    fn program_path(&self, view: &View, name: &OsStr) -> Option<PathBuf> {
        match Path::new(name).components().count() {
            1 if !name.as_encoded_bytes().contains(&b'/') => view.program(name),
            _ => Some(self.directory.join(name)),
        }
    }
}

impl Catalog for Machine {
    fn tracepoint(&self, category: &str, event: &str) -> Result<Tracepoint, String> {
        let found = self.kernel.map_or_else(
            || Err("the tracepoints of the kernel are not available".into()),
            |kernel| kernel.tracepoint(category, event),
        );
        // The tracer notices itself when traced processes end; only the fields of the record need the kernel.
        match self.runs_in_process() && wire::manifest::is_task_end(category, event) {
            true => found.or_else(|_| Ok(Tracepoint::default())),
            false => found,
        }
    }

    fn tracepoints(&self) -> Vec<(String, String)> {
        self.kernel.map(Kernel::tracepoints).unwrap_or_default()
    }

    fn raw_tracepoint(&self, event: &str) -> Result<Tracepoint, String> {
        self.kernel.map_or_else(
            || Err("the tracepoints of the kernel are not available".into()),
            |kernel| kernel.raw_tracepoint(event),
        )
    }

    fn raw_tracepoints(&self) -> Vec<String> {
        self.kernel.map(Kernel::raw_tracepoints).unwrap_or_default()
    }

    fn iterator(&self, items: &str) -> Result<Tracepoint, String> {
        let kernel = self.kernel.ok_or("the iterators of the kernel are not available")?;
        kernel.iterator(items)
    }

    fn iterators(&self) -> Vec<String> {
        self.kernel.map(Kernel::iterators).unwrap_or_default()
    }

    fn kernel_hook(&self, hook: Hook) -> Result<(), String> {
        self.kernel.map_or_else(|| Err("the kernel is not available".into()), |kernel| kernel.hook(hook))
    }

    fn kernel_functions(&self) -> &[KernelFunction] {
        self.kernel.map_or(&[], Kernel::functions)
    }

    fn trampoline_functions(&self) -> &[KernelFunction] {
        self.kernel.map_or(&[], Kernel::trampoline_functions)
    }

    fn runs_in_process(&self) -> bool {
        self.at_starts.load(Ordering::Relaxed)
    }

    fn kernel_field(&self, of: &str, field: &str) -> Option<u32> {
        self.kernel?.field(of, field)
    }

    fn files(&self, target: &str) -> Result<Vec<File>, TargetError> {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(target).cloned();
        // Dropped after `show_as_written`, which takes as long as the search.
        let mut progress = None;
        let ids = match known {
            Some(ids) => ids,
            None => {
                let ids = self.find(target, &mut progress)?;
                self.found
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(target.to_owned(), ids.clone());
                ids
            }
        };
        let mut files: Vec<File> = ids.into_iter().map(|id| self.describe(id)).collect();
        if target.contains('/') {
            self.show_as_written(target, &mut files);
        }
        Ok(files)
    }

    fn files_among(&self, target: &str, among: &[FileId]) -> Vec<File> {
        let belongs = among.iter().filter(|&&file| self.belongs(target, file));
        belongs.map(|&file| self.describe(file)).collect()
    }

    fn functions(&self, file: FileId) -> &[Function] {
        &self.file(file).functions().list
    }

    fn is_indirect(&self, file: FileId, name: &str) -> bool {
        self.file(file).elf.defines_indirect(name)
    }

    fn markers(&self, file: FileId) -> &[Marker] {
        let taken = self.file(file);
        taken.markers.get_or_init(|| usdt::markers(&taken.elf))
    }

    fn entry_place(&self, file: FileId, offset: u64) -> Place {
        match self.runs_in_process() {
            true => Place { offset, stack_shift: 0 },
            false => place(self.file(file), offset, prologue::entry_place),
        }
    }

    fn return_place(&self, file: FileId, offset: u64) -> Place {
        match self.runs_in_process() {
            true => Place { offset, stack_shift: 0 },
            false => place(self.file(file), offset, prologue::return_place),
        }
    }

    fn landing(&self, file: FileId, function: Option<u64>, offset: u64) -> Landing {
        let taken = self.file(file);
        let named = function.and_then(|start| Some((start, taken.functions().size_at(start)?)));
        let Some((start, size)) = named.or_else(|| taken.functions().around(offset)) else {
            return Landing::Begins;
        };
        if size > 0 && offset - start >= size {
            return Landing::After { size };
        }
        let code = taken.elf.code(start, offset - start + LONGEST_INSTRUCTION);
        let found = if taken.elf.is_x86_64() { prologue::instruction_at(code, offset - start) } else { None };
        match found {
            Some(found) if found.start != offset - start => {
                Landing::Inside { begins: start + found.start, next: start + found.end }
            }
            _ => Landing::Begins,
        }
    }

    fn address_to_offset(&self, file: FileId, address: u64) -> Option<u64> {
        self.file(file).elf.code_offset(address)
    }

    fn symbol(&self, file: FileId, name: &str) -> Option<(u64, u64)> {
        self.file(file).elf.symbol_of(name)
    }

    fn offset_to_address(&self, file: FileId, offset: u64) -> Option<u64> {
        self.file(file).elf.code_address(offset)
    }

    fn declared(&self, file: FileId, offset: u64, symbol: &str) -> Result<Arc<debug_info::Function>, Absent> {
        if file == KERNEL {
            let kernel = self.kernel.ok_or(Absent::NotDescribed)?;
            return kernel.declared(offset, symbol).map(Arc::new);
        }
        let taken = self.file(file);
        let address = taken.elf.code_address(offset).ok_or(Absent::NotDescribed)?;
        taken.debug(file)?.function(address, symbol)
    }

    fn source_lines(&self, file: FileId, source: &str) -> Result<Vec<(u64, u64)>, Absent> {
        let taken = self.file(file);
        let mut lines = taken.debug(file)?.lines_of(source);
        // Loops and moved code split a line into several ranges; the line begins at the first range of each
        // function.
        let function = |address: u64| {
            let offset = taken.elf.code_offset(address)?;
            taken.functions().around(offset).map(|(start, _)| start)
        };
        lines.sort_unstable();
        lines.dedup_by_key(|(line, address)| (*line, function(*address).ok_or(*address)));
        Ok(lines)
    }

    fn declared_type(&self, id: TypeId) -> Arc<debug_info::Type> {
        let nothing = debug_info::Type { name: String::new(), kind: debug_info::Kind::Void };
        if id.file == KERNEL {
            let declared = self.kernel.and_then(|kernel| kernel.declared_type(id.at));
            return Arc::new(declared.unwrap_or(nothing));
        }
        let debug = self.file(id.file).debug(id.file);
        debug.map_or_else(|_| Arc::new(nothing), |debug| debug.declared_type(id))
    }

    fn declared_type_named(&self, file: FileId, name: &str) -> Option<TypeId> {
        if file == KERNEL {
            return self.kernel_type_named(name);
        }
        self.file(file).debug(file).ok()?.type_named(name)
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        self.kernel?.symbol(name)
    }

    fn kernel_type_named(&self, name: &str) -> Option<TypeId> {
        self.kernel?.type_named(name).map(|at| TypeId { file: KERNEL, at })
    }

    fn kernel_enum_with(&self, constant: &str) -> Option<TypeId> {
        self.kernel?.enum_with(constant).map(|at| TypeId { file: KERNEL, at })
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        // The id of a cgroup2 directory is its inode number.
        let is_cgroup = Path::new(path).join("cgroup.controllers").exists();
        std::fs::metadata(path).ok().filter(|_| is_cgroup).map(|metadata| metadata.ino())
    }

    fn agent(&self) -> Option<File> {
        self.agent.get().map(|file| self.describe(*file))
    }

    fn device(&self, name: &str) -> Option<DeviceDriver> {
        let device = cuda::ioctls::Device::of(name)?;
        let list = std::fs::read_to_string("/proc/devices").ok()?;
        let major = std::iter::once(name).chain(device.aliases.iter().copied());
        let major = major.filter_map(|name| devices::major(&list, name)).next()?;
        Some(DeviceDriver { major, release: devices::release() })
    }

    fn known_targets(&self) -> Vec<String> {
        Library::all().map(|library| library.alias().to_owned()).collect()
    }
}

fn place(taken: &TargetFile, offset: u64, choose: impl Fn(Body<'_>) -> CodePosition) -> Place {
    if !taken.elf.is_x86_64() {
        return Place { offset, stack_shift: 0 };
    }
    let moved = choose(Body::of(&taken.elf, taken.functions(), offset, CODE_AROUND));
    Place { offset: offset + moved.bytes, stack_shift: moved.stack_shift }
}

/// The programs and the interpreters of scripts, which may be found through `env`.
fn with_interpreters(view: &View, program: PathBuf) -> Vec<PathBuf> {
    let mut programs = vec![program];
    // The depth that the kernel supports.
    while programs.len() < 5 {
        let Some(next) = programs.last().and_then(|path| interpreter(view, path)) else { break };
        programs.push(next);
    }
    programs
}

fn interpreter(view: &View, script: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut head = Vec::new();
    untrusted_file::open(&view.outside(script)).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line =
        String::from_utf8_lossy(head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?).into_owned();
    let mut words = line.split_ascii_whitespace();
    let program = Path::new(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program.to_path_buf());
    }
    view.program(OsStr::new(words.find(|word| !word.starts_with('-') && !word.contains('='))?))
}

pub(crate) fn unique(mut files: Vec<FileId>) -> Vec<FileId> {
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(*file));
    files
}
