//! The search for the files of one target: mapped files of processes, files on disk.
//!
//! A candidate is accepted by its name, or by its contents if the name does not decide. A file with the right name that cannot be
//! used is recorded for the error message.
//! Not here: the order of the places that are searched (`machine`), matching names (`search`), folders (`folders`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use lang::catalog::{FileId, TargetError};

use crate::elf::{ElfError, ElfFile};
use crate::machine::{Machine, Progress, Scope, unique};
use crate::search;
use crate::search::folders::{CUDA_ORIGIN, PACKAGES_ORIGIN, Place, View};
use crate::search::usable::{accepts, hidden_runtime, reachable};
use crate::search::{TargetName, Verdict};
use linux::proc::{self, Mapping};

impl Machine {
    /// The files of a target. `progress`: of a search that takes long.
    pub(crate) fn find(
        &self,
        target: &str,
        progress: &mut Option<Progress>,
    ) -> Result<Vec<FileId>, TargetError> {
        let overrides = self.overrides(target);
        if !overrides.is_empty() {
            let taken: Result<Vec<_>, _> =
                overrides.iter().map(|(path, why)| self.take_path(&View::default(), path, why)).collect();
            return taken.map_err(|error| TargetError::Unusable(error.to_string())).map(unique);
        }
        let wanted = self.target_name(target);
        let mut search = TargetSearch::new(self, wanted.clone());
        match wanted {
            TargetName::Path(path) => return self.find_path(&path),
            TargetName::Everything if self.scope().is_system_wide() => {
                let why = "it stands for all files that traced processes execute: select processes by `-p PID` or `-- COMMAND`";
                return Err(TargetError::Unusable(why.into()));
            }
            TargetName::Pattern(pattern) => {
                *progress = self.start_progress.map(|start| start());
                let each = |is_elf| progress.iter_mut().for_each(|report| report(is_elf));
                search.pattern(&self.scope(), pattern.as_str(), each);
            }
            _ => search.by_name(&self.scope()),
        }
        search.outcome()
    }
}

/// A search for the files of a target.
pub(crate) struct TargetSearch<'a> {
    machine: &'a Machine,
    target: TargetName,
    files: Vec<FileId>,
    looked_in: Vec<String>,
    /// Files with a matching name that cannot be used, with the reason.
    rejected: Vec<String>,
    /// Programs whose runtime cannot be probed.
    hidden: Vec<PathBuf>,
    /// Mappings that were already examined, by device and inode.
    seen: HashSet<((u32, u32), u64)>,
}

impl<'a> TargetSearch<'a> {
    pub(crate) fn new(machine: &'a Machine, target: TargetName) -> TargetSearch<'a> {
        TargetSearch {
            machine,
            target,
            files: Vec::new(),
            looked_in: Vec::new(),
            rejected: Vec::new(),
            hidden: Vec::new(),
            seen: HashSet::new(),
        }
    }

    pub(crate) fn outcome(mut self) -> Result<Vec<FileId>, TargetError> {
        if !self.files.is_empty() {
            return Ok(unique(self.files));
        }
        if let Some(program) = self.hidden.first() {
            return Err(TargetError::Unusable(hidden_runtime(program)));
        }
        self.rejected.dedup();
        self.looked_in.extend(self.rejected);
        let mut seen = HashSet::new();
        self.looked_in.retain(|place| seen.insert(place.clone()));
        Err(TargetError::NotYet { looked_in: self.looked_in })
    }

    pub(crate) fn by_name(&mut self, scope: &Scope) {
        for &pid in &scope.pids {
            self.mapped(pid, true);
        }
        if !scope.pids.is_empty() && self.files.is_empty() {
            scope.pids.iter().for_each(|&pid| self.on_disk(&View::of_process(pid)));
        }
        if scope.command.is_some() {
            self.on_disk(&self.machine.view_of_command());
        }
        if scope.is_system_wide() {
            self.looked_in.push("mapped files of all processes".into());
            proc::all_pids().into_iter().for_each(|pid| self.mapped(pid, false));
            self.on_disk(&self.machine.view_of_command());
        }
    }

    /// Adds matching files that a process has mapped. With `thorough`, any mapped file may have the runtime linked
    /// in, not just the program.
    fn mapped(&mut self, pid: u32, thorough: bool) {
        let program = proc::executable(pid);
        let mappings = proc::mappings(pid);
        if thorough {
            let why_empty = if mappings.is_empty() {
                " (it has ended, or reading its mappings is not permitted)"
            } else {
                ""
            };
            self.looked_in.push(format!("mapped files of process {pid}{why_empty}"));
        }
        let mut view = None;
        for mapping in mappings.iter().filter(|mapping| mapping.executable && mapping.inode != 0) {
            let Some(path) = mapping.name.path().filter(|path| !search::is_stub(path)) else { continue };
            let may_hold_runtime = self.target.is_runtime() && (thorough || program.as_deref() == Some(path));
            let is_candidate = may_hold_runtime || self.target.judge(path) != Verdict::No;
            if is_candidate && self.seen.insert((mapping.device, mapping.inode)) {
                let view =
                    view.get_or_insert_with(|| View { prefix: proc::root_prefix(pid), ..View::default() });
                self.offer_mapped(view, pid, mapping, path);
            }
        }
    }

    fn offer_mapped(&mut self, view: &View, pid: u32, mapping: &Mapping, path: &Path) {
        match reachable(view, pid, mapping) {
            Some(open_path) => {
                let name = proc::comm(pid).unwrap_or_default();
                self.offer(&open_path, path, &format!("mapped by process {pid} ({})", name.escape_debug()));
            }
            None if self.target.judge(path) != Verdict::No => {
                let path = path.display();
                self.rejected.push(format!(
                    "`{path}`, mapped by process {pid}, cannot be opened from here; try as root"
                ));
            }
            None => {}
        }
    }

    fn on_disk(&mut self, view: &View) {
        if self.target == TargetName::Everything {
            return self.linked(view);
        }
        if self.program_by_name(view) {
            return;
        }
        self.programs_with_runtime(view);
        for place in view.needed_libraries() {
            self.offer_named(view, &place.path, &place.origin);
        }
        let in_cache = self.loader_cache(view);
        let mut directories = view.directories();
        if !in_cache {
            directories.extend(view.default_directories());
        }
        for (origin, words) in [(CUDA_ORIGIN, "/usr/local/cuda*"), (PACKAGES_ORIGIN, PACKAGES_ORIGIN)] {
            if !directories.iter().any(|place| place.origin == origin) {
                self.looked_in.push(format!("{words} (nothing there)"));
            }
        }
        for place in directories {
            self.directory(view, &place);
        }
    }

    /// Adds the view's programs and the libraries that they are linked with. Libraries that they load later are
    /// added at that time.
    fn linked(&mut self, view: &View) {
        for program in &view.programs {
            self.take(&view.resolve(&view.outside(program)), view, "the traced program");
        }
        for place in view.needed_libraries() {
            self.offer_named(view, &place.path, &place.origin);
        }
    }

    /// Adds a program on PATH whose name matches.
    fn program_by_name(&mut self, view: &View) -> bool {
        let TargetName::Name(name) = &self.target else { return false };
        if name.starts_with("lib") {
            return false;
        }
        let found = view.program(OsStr::new(name));
        self.looked_in.push("PATH".into());
        found.is_some_and(|path| self.take(&view.resolve(&view.outside(&path)), view, "the program on PATH"))
    }

    /// Adds the view's programs that have the CUDA runtime linked in.
    fn programs_with_runtime(&mut self, view: &View) {
        for program in if self.target.is_runtime() { view.programs.as_slice() } else { &[] } {
            let path = view.resolve(&view.outside(program));
            self.offer(
                &path,
                &view.inside(&path),
                "the traced program, which has the CUDA runtime linked in",
            );
        }
    }

    fn loader_cache(&mut self, view: &View) -> bool {
        self.looked_in.push("/etc/ld.so.cache".into());
        let mut found = false;
        for (soname, path) in view.loader_cache() {
            if self.target.judge(Path::new(&soname)) != Verdict::No {
                found |= self.offer_named(view, &path, "listed in /etc/ld.so.cache");
            }
        }
        found
    }

    fn directory(&mut self, view: &View, place: &Place) {
        let directory = format!("{} ({})", view.inside(&place.path).display(), place.origin);
        let entries = std::fs::read_dir(&place.path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.retain(|name| self.target.judge(Path::new(name)) != Verdict::No);
        names.sort();
        for name in names {
            self.offer_named(view, &place.path.join(name), &format!("found in {directory}"));
        }
        self.looked_in.push(directory);
    }

    /// Adds files whose paths match a pattern. `each` is called for each of them; its argument is whether it is an
    /// ELF file.
    pub(crate) fn pattern(&mut self, scope: &Scope, pattern: &str, mut each: impl FnMut(bool)) {
        let own = std::iter::once(View::default());
        let containers =
            scope.pids.iter().map(|&pid| View { prefix: proc::root_prefix(pid), ..View::default() });
        let views: Vec<View> =
            containers.filter(|view| !view.prefix.as_os_str().is_empty()).chain(own).collect();
        self.looked_in.push(pattern.to_owned());
        for view in views {
            for path in view.expand(pattern) {
                each(self.take(&view.resolve(&path), &view, "matches the pattern"));
            }
        }
    }

    /// Adds a file on disk if its name matches, before or after following links.
    fn offer_named(&mut self, view: &View, path: &Path, reason: &str) -> bool {
        let inside = view.inside(path);
        if self.target.judge(&inside) == Verdict::No || search::is_stub(path) || !path.exists() {
            return false;
        }
        let resolved = view.resolve(path);
        let shown = view.inside(&resolved);
        // The name of a link may be the soname, even if the target file has none.
        let by_name = self.target.judge(&inside) == Verdict::Yes && !search::is_stub(&resolved);
        if by_name { self.take(&resolved, view, reason) } else { self.offer(&resolved, &shown, reason) }
    }

    /// Adds a file if its name, soname or content matches.
    fn offer(&mut self, open_path: &Path, shown: &Path, reason: &str) -> bool {
        match ElfFile::open(open_path) {
            Ok(elf) if accepts(&self.target, shown, &elf) => {
                self.keep(self.machine.add_file(open_path, shown, reason))
            }
            Ok(elf) => {
                if self.target.is_runtime() && search::hides_static_runtime(shown, &elf) {
                    self.hidden.push(shown.into());
                }
                false
            }
            Err(error) => self.target.judge(shown) != Verdict::No && self.keep(Err(error)),
        }
    }

    fn take(&mut self, resolved: &Path, view: &View, reason: &str) -> bool {
        self.keep(self.machine.add_file(resolved, &view.inside(resolved), reason))
    }

    fn keep(&mut self, taken: Result<FileId, ElfError>) -> bool {
        match taken {
            Ok(file) => {
                self.files.push(file);
                true
            }
            Err(error) => {
                self.rejected.push(error.to_string());
                false
            }
        }
    }
}
