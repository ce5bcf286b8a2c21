//! Folders of libraries on disk, in the order of the dynamic loader, CUDA's installers and Python's wheels.
//!
//! A search has the view of one process: its root directory, its environment, its program. No program is started (not `python`, not
//! `ldconfig`), and every folder may be missing.
//! Not here: which file names match a target (`search`).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::elf::ElfFile;
use crate::search::ld_cache;
use linux::proc;

/// Directories that the loader searches without a cache.
const DEFAULT_DIRS: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib",
    "/usr/lib",
];
/// Directories inside a CUDA toolkit.
const TOOLKIT_DIRS: [&str; 3] = ["lib64", "targets/*/lib", "lib"];
/// Directories of CUDA in toolkits, container runtimes and WSL.
const CUDA_DIRS: [&str; 7] = [
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/opt/cuda/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];
/// Directories of libraries inside site-packages: NVIDIA's own wheels, PyTorch's, libraries that auditwheel
/// bundled.
const WHEEL_DIRS: [&str; 3] = ["nvidia/*/lib", "torch/lib", "*.libs"];
/// Directories of packages below the directory that contains Python's `bin`.
const PACKAGE_DIRS: [&str; 4] = [
    "lib/python3*/site-packages",
    "lib/python3*/dist-packages",
    "lib64/python3*/site-packages",
    "lib/python3/dist-packages",
];
/// [`Place::origin`] of toolkits in their default locations.
pub(crate) const CUDA_ORIGIN: &str = "CUDA toolkit";
/// [`Place::origin`] of wheels.
pub(crate) const PACKAGES_ORIGIN: &str = "Python's site-packages";
/// Largest size of a `pyvenv.cfg` in bytes.
const MOST_SETTINGS: u64 = 1 << 16;
/// Largest number of files whose needed libraries are followed.
const MAX_NEEDED: usize = 512;

/// The file system as a process sees it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Prefix of absolute paths: empty, or `/proc/PID/root`.
    pub prefix: PathBuf,
    /// Environment of the process.
    pub environment: HashMap<OsString, OsString>,
    /// Base of its relative paths, as it sees it; if empty, relative paths are ignored.
    pub directory: PathBuf,
    /// Programs that it runs or will run: the program, and for a script its interpreter. Paths as it sees them.
    pub programs: Vec<PathBuf>,
}

/// A location to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A directory, or a file that is known to be a library.
    pub path: PathBuf,
    /// Origin of this location: `LD_LIBRARY_PATH`.
    pub origin: String,
}

impl View {
    /// The view of a running process.
    pub fn of_process(pid: u32) -> View {
        View {
            prefix: proc::root_prefix(pid),
            environment: proc::environment(pid),
            directory: proc::directory(pid).unwrap_or_default(),
            programs: proc::executable(pid).into_iter().collect(),
        }
    }

    /// The view of this process from a directory, with changes to its environment.
    pub fn own(changes: &HashMap<OsString, OsString>, directory: &Path) -> View {
        let mut environment: HashMap<_, _> = std::env::vars_os().collect();
        environment.extend(changes.clone());
        View { environment, directory: directory.into(), ..View::default() }
    }

    /// The path by which this process opens the absolute `path` of the viewed process.
    pub fn outside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(inside) if !self.prefix.as_os_str().is_empty() => self.prefix.join(inside),
            _ => path.to_path_buf(),
        }
    }

    /// The opposite of [`View::outside`]: the path as the process sees it.
    pub fn inside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.prefix) {
            Ok(inside) if !self.prefix.as_os_str().is_empty() => Path::new("/").join(inside),
            _ => path.to_path_buf(),
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Directories of a list in a variable; an empty entry is the working directory.
    fn paths_in(&self, variable: &str) -> Vec<PathBuf> {
        let split = self.variable(variable).map(std::env::split_paths);
        split.into_iter().flatten().filter_map(|path| self.absolute(&path)).collect()
    }

    /// Directories of `LD_LIBRARY_PATH`. The loader also accepts `;` as separator.
    fn library_path(&self) -> Vec<PathBuf> {
        let list = self.variable("LD_LIBRARY_PATH").map(OsStrExt::as_bytes);
        let split = list.map(|list| list.split(|&byte| matches!(byte, b':' | b';')));
        let paths = split.into_iter().flatten().map(|path| Path::new(OsStr::from_bytes(path)));
        paths.filter_map(|path| self.absolute(path)).collect()
    }

    /// Converts a path of the process, which may be relative, to a path of this process.
    fn absolute(&self, path: &Path) -> Option<PathBuf> {
        let named = path.components().filter(|component| *component != Component::CurDir);
        let path = self.directory.join(named.collect::<PathBuf>());
        path.is_absolute().then(|| self.outside(&path))
    }

    /// A program on this process's `PATH`.
    pub fn program(&self, name: &OsStr) -> Option<PathBuf> {
        let found =
            self.paths_in("PATH").into_iter().map(|dir| dir.join(name)).find(|path| is_executable(path));
        found.map(|path| self.inside(&path))
    }

    /// Paths that match a pattern, as paths of this process, in alphabetical order.
    pub fn expand(&self, pattern: &str) -> Box<dyn Iterator<Item = PathBuf>> {
        let Some(inside) = pattern.strip_prefix('/') else { return globbed(pattern) };
        let root = if self.prefix.as_os_str().is_empty() { Path::new("/") } else { &self.prefix };
        let below = |folder: &Path, rest: &str| {
            let folder = folder.to_string_lossy();
            globbed(&format!("{}/{rest}", glob::Pattern::escape(folder.trim_end_matches('/'))))
        };
        // The kernel's own file systems contain no programs, and have an unbounded number of files.
        match inside.split_once('/').map(|(first, rest)| (first, glob::Pattern::new(first), rest)) {
            Some((first, Ok(wanted), rest)) if first.contains(['*', '?', '[']) => {
                let rest = if first == "**" { format!("**/{rest}") } else { rest.to_owned() };
                let folders = children(root, &wanted).into_iter().filter(|folder| !is_of_kernel(folder));
                Box::new(folders.flat_map(move |folder| below(&folder, &rest)))
            }
            _ => below(root, inside),
        }
    }

    /// Resolves links as the process would, within its root.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        if self.prefix.as_os_str().is_empty() {
            return path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        }
        self.outside(&follow_links(&self.prefix, &self.inside(path)))
    }

    /// The loader's cache in the process's root.
    pub fn loader_cache(&self) -> Vec<(String, PathBuf)> {
        let root = if self.prefix.as_os_str().is_empty() { Path::new("/") } else { &self.prefix };
        ld_cache::read(root).into_iter().map(|(soname, path)| (soname, self.outside(&path))).collect()
    }

    /// Directories to search, the more likely ones first. Missing directories are included if a variable names
    /// them, for the message.
    pub fn directories(&self) -> Vec<Place> {
        let mut places = Places::default();
        places.add(self.library_path(), "LD_LIBRARY_PATH");
        for variable in ["CUDA_HOME", "CUDA_PATH"] {
            for toolkit in self.paths_in(variable) {
                places.add(TOOLKIT_DIRS.iter().flat_map(|dir| below(&toolkit, dir)), variable);
            }
        }
        places.add(CUDA_DIRS.iter().flat_map(|dir| below(&self.outside(Path::new("/")), dir)), CUDA_ORIGIN);
        places.add(self.paths_in("CONDA_PREFIX").into_iter().map(|conda| conda.join("lib")), "CONDA_PREFIX");
        for packages in self.site_packages() {
            places.add(WHEEL_DIRS.iter().flat_map(|dir| below(&packages, dir)), PACKAGES_ORIGIN);
        }
        places.list
    }

    /// The directories that the loader searches if its cache has no entry.
    pub fn default_directories(&self) -> Vec<Place> {
        let mut places = Places::default();
        let there = DEFAULT_DIRS.iter().map(|dir| self.outside(Path::new(dir))).filter(|dir| dir.is_dir());
        // On merged systems `/lib` is a link to `/usr/lib`.
        places.add(there.map(|dir| self.resolve(&dir)), "default directory");
        places.list
    }

    /// Directories of installed Python packages: of the program if it is Python, of the active environment, of the
    /// Python on `PATH`, and the user's own.
    fn site_packages(&self) -> Vec<PathBuf> {
        let mut found = self.paths_in("PYTHONPATH");
        let mut prefixes = self.paths_in("VIRTUAL_ENV");
        prefixes.extend(self.paths_in("CONDA_PREFIX"));
        let on_path = ["python3", "python"].iter().filter_map(|name| self.program(OsStr::new(name)));
        for python in self.programs.iter().filter(|program| is_python(program)).cloned().chain(on_path) {
            prefixes.extend(self.python_prefixes(&python));
        }
        prefixes.extend(self.paths_in("HOME").into_iter().map(|home| home.join(".local")));
        found.extend(
            prefixes.iter().flat_map(|prefix| PACKAGE_DIRS.iter().flat_map(|dir| below(prefix, dir))),
        );
        found
    }

    /// Installation prefixes of an interpreter: from its path, from the targets of its links, and from its
    /// `pyvenv.cfg`.
    fn python_prefixes(&self, python: &Path) -> Vec<PathBuf> {
        if let Some(versions) = self.pyenv_versions(python) {
            return versions;
        }
        let prefix_of = |path: &Path| path.parent()?.parent().map(Path::to_path_buf);
        let outside = self.outside(python);
        let mut prefixes: Vec<PathBuf> = prefix_of(&outside).into_iter().collect();
        let in_environment = prefixes.first().map(|prefix| prefix.join("pyvenv.cfg"));
        // A virtual environment hides the packages of its base Python, unless configured otherwise.
        let settings = in_environment
            .and_then(|file| String::from_utf8(crate::untrusted_file::read(&file, MOST_SETTINGS).ok()?).ok());
        if settings.is_none_or(|text| includes_system_packages(&text)) {
            prefixes.extend(prefix_of(&self.resolve(&outside)));
        }
        if prefixes.contains(&self.outside(Path::new("/usr"))) {
            prefixes.push(self.outside(Path::new("/usr/local")));
        }
        prefixes
    }

    /// pyenv puts scripts on `PATH` that select an interpreter; any of its versions may be selected.
    fn pyenv_versions(&self, python: &Path) -> Option<Vec<PathBuf>> {
        let shims = python.parent().filter(|dir| dir.ends_with("shims"))?;
        let root = self.outside(shims.parent()?);
        Some(below(&root, "versions/*"))
    }

    /// Libraries that the programs of this view are linked with, directly or indirectly, found as the loader finds
    /// them.
    pub fn needed_libraries(&self) -> Vec<Place> {
        let mut search = NeededSearch::new(self);
        for program in &self.programs {
            search.follow(&self.outside(program));
        }
        search.found
    }
}

/// A list of locations without duplicates.
#[derive(Default)]
struct Places {
    list: Vec<Place>,
}

impl Places {
    fn add(&mut self, paths: impl IntoIterator<Item = PathBuf>, origin: &str) {
        for path in paths {
            if !self.list.iter().any(|place| place.path == path) {
                self.list.push(Place { path, origin: origin.to_owned() });
            }
        }
    }
}

/// The loader's search for the libraries of a program.
struct NeededSearch<'a> {
    view: &'a View,
    library_path: Vec<PathBuf>,
    cache: HashMap<String, PathBuf>,
    defaults: Vec<PathBuf>,
    sonames: Vec<String>,
    found: Vec<Place>,
}

impl<'a> NeededSearch<'a> {
    fn new(view: &'a View) -> NeededSearch<'a> {
        let mut cache = HashMap::new();
        for (soname, path) in view.loader_cache() {
            cache.entry(soname).or_insert(path);
        }
        let defaults = view.default_directories().into_iter().map(|place| place.path).collect();
        NeededSearch {
            view,
            library_path: view.library_path(),
            cache,
            defaults,
            sonames: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Follows the needed libraries of a file, breadth first. Unreadable files are skipped.
    fn follow(&mut self, program: &Path) {
        let mut queue = vec![(program.to_path_buf(), Vec::new())];
        let mut next = 0;
        while next < queue.len().min(MAX_NEEDED) {
            let (path, inherited) = queue[next].clone();
            next += 1;
            let Ok(elf) = ElfFile::open(&path) else { continue };
            let path = self.view.resolve(&path);
            let origin = path.parent().map(Path::to_path_buf).unwrap_or_default();
            let run_path = self.listed(elf.runpath(), &origin);
            // A DT_RPATH also applies to the libraries of libraries; it is ignored if there is a DT_RUNPATH.
            let mut rpath =
                if elf.runpath().is_none() { self.listed(elf.rpath(), &origin) } else { Vec::new() };
            rpath.extend(inherited);
            for soname in elf.needed() {
                queue.extend(
                    self.take(soname, &rpath, &run_path, &path).map(|library| (library, rpath.clone())),
                );
            }
        }
    }

    /// Finds a library that has not been searched yet.
    fn take(
        &mut self,
        soname: &str,
        rpath: &[PathBuf],
        run_path: &[PathBuf],
        needed_by: &Path,
    ) -> Option<PathBuf> {
        if self.sonames.iter().any(|seen| seen == soname) {
            return None;
        }
        self.sonames.push(soname.to_owned());
        let library = self.find(soname, rpath, run_path)?;
        let origin = format!("needed by {}", self.view.inside(needed_by).display());
        self.found.push(Place { path: library.clone(), origin });
        Some(library)
    }

    fn find(&self, soname: &str, rpath: &[PathBuf], run_path: &[PathBuf]) -> Option<PathBuf> {
        if soname.contains('/') {
            return self.view.absolute(Path::new(soname)).filter(|path| path.is_file());
        }
        let in_dirs = |dirs: &[PathBuf]| dirs.iter().map(|dir| dir.join(soname)).find(|path| path.is_file());
        in_dirs(rpath)
            .or_else(|| in_dirs(&self.library_path))
            .or_else(|| in_dirs(run_path))
            .or_else(|| self.cache.get(soname).filter(|path| path.is_file()).cloned())
            .or_else(|| in_dirs(&self.defaults))
    }

    /// Directories of a run path, with `$ORIGIN` replaced.
    fn listed(&self, list: Option<&str>, origin: &Path) -> Vec<PathBuf> {
        let origin = self.view.inside(origin).to_string_lossy().into_owned();
        let dirs = list.unwrap_or_default().split(':').filter(|dir| !dir.is_empty());
        dirs.map(|dir| dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
            .filter_map(|dir| self.view.absolute(Path::new(&dir)))
            .collect()
    }
}

/// Directories below `base` that match a pattern; other directories are not read.
fn below(base: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![base.to_path_buf()];
    for part in pattern.trim_start_matches('/').split('/') {
        found = match glob::Pattern::new(part) {
            Ok(wanted) if part.contains('*') => found.iter().flat_map(|dir| children(dir, &wanted)).collect(),
            _ => found.iter().map(|dir| dir.join(part)).collect(),
        };
    }
    found.retain(|path| path.is_dir());
    found
}

fn globbed(pattern: &str) -> Box<dyn Iterator<Item = PathBuf>> {
    Box::new(glob::glob(pattern).into_iter().flatten().flatten())
}

/// Whether the directory is `/proc`, `/sys` or `/dev`.
fn is_of_kernel(folder: &Path) -> bool {
    folder.file_name().and_then(OsStr::to_str).is_some_and(|name| ["proc", "sys", "dev"].contains(&name))
}

/// Entries of a directory with matching names, in alphabetical order.
fn children(directory: &Path, wanted: &glob::Pattern) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.retain(|name| name.to_str().is_some_and(|name| wanted.matches(name)));
    names.sort();
    names.into_iter().map(|name| directory.join(name)).collect()
}

fn includes_system_packages(pyvenv_cfg: &str) -> bool {
    let setting = |line: &str| {
        line.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_lowercase()))
    };
    pyvenv_cfg
        .lines()
        .filter_map(setting)
        .any(|(name, value)| name == "include-system-site-packages" && value == "true")
}

fn is_python(program: &Path) -> bool {
    program.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("python"))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Resolves the links of an absolute path below another root, which the kernel would leave.
fn follow_links(root: &Path, path: &Path) -> PathBuf {
    // Limit of the kernel.
    const MAX_LINKS: usize = 40;
    let mut links = 0;
    let mut pending: Vec<OsString> = components(path);
    let mut done = PathBuf::from("/");
    while let Some(name) = pending.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        let here = done.join(&name);
        match std::fs::read_link(root.join(here.strip_prefix("/").unwrap_or(&here))) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                pending.extend(components(&target));
            }
            _ => done = here,
        }
    }
    done
}

/// Components of a path in reverse order.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect::<Vec<_>>().into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn view(environment: &[(&str, &Path)]) -> View {
        let environment =
            environment.iter().map(|(name, value)| ((*name).into(), value.as_os_str().to_owned()));
        View { environment: environment.collect(), ..View::default() }
    }

    #[test]
    fn site_packages_of_an_environment_are_searched() {
        let dir = tempfile::tempdir().expect("a directory");
        let lib = dir.path().join("lib/python3.11/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&lib).expect("made");
        let places = view(&[("VIRTUAL_ENV", dir.path())]).directories();
        assert!(
            places.iter().any(|place| place.path == lib && place.origin == "Python's site-packages"),
            "{places:?}"
        );
    }

    #[test]
    fn the_loader_is_told_directories_from_where_the_program_is() {
        let paths =
            |list: &str| View { directory: "/work".into(), ..view(&[("LD_LIBRARY_PATH", list.as_ref())]) };
        let are = |list: &str, wanted: &[&str]| {
            let wanted: Vec<PathBuf> = wanted.iter().map(PathBuf::from).collect();
            assert_eq!(paths(list).library_path(), wanted, "{list}");
        };
        are("", &[]);
        are("build:/opt/lib;../x", &["/work/build", "/opt/lib", "/work/../x"]);
        // `LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/lib` in a shell without the variable.
        are(":/opt/lib", &["/work", "/opt/lib"]);
        are("./build/.", &["/work/build"]);
        let elsewhere = View { directory: PathBuf::new(), ..paths("build:/opt/lib") };
        assert_eq!(elsewhere.library_path(), [PathBuf::from("/opt/lib")]);
    }

    #[test]
    fn a_virtual_environment_hides_what_it_was_made_from() {
        let dir = tempfile::tempdir().expect("a directory");
        let (base, venv) = (dir.path().join("base"), dir.path().join("venv"));
        for prefix in [&base, &venv] {
            fs::create_dir_all(prefix.join("bin")).expect("made");
        }
        fs::write(base.join("bin/python3"), "").expect("written");
        std::os::unix::fs::symlink(base.join("bin/python3"), venv.join("bin/python3")).expect("linked");
        let prefixes = |settings: &str| {
            fs::write(venv.join("pyvenv.cfg"), settings).expect("written");
            View::default().python_prefixes(&venv.join("bin/python3"))
        };
        assert_eq!(prefixes("include-system-site-packages = false\n"), std::slice::from_ref(&venv));
        let base = base.canonicalize().expect("there");
        assert_eq!(prefixes("include-system-site-packages = true\n"), [venv.clone(), base]);
    }

    #[test]
    fn links_stay_within_the_root() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("opt/v2")).expect("made");
        std::os::unix::fs::symlink("/opt/v2", dir.path().join("opt/current")).expect("linked");
        std::os::unix::fs::symlink("../opt/current/lib.so", dir.path().join("opt/x")).expect("linked");
        assert_eq!(follow_links(dir.path(), Path::new("/opt/x")), Path::new("/opt/v2/lib.so"));
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).expect("linked");
        assert_eq!(follow_links(dir.path(), Path::new("/loop")), Path::new("/loop"));
    }

    #[test]
    fn a_prefix_with_pattern_characters_is_taken_literally() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("a[b]*");
        fs::create_dir_all(root.join("lib")).expect("made");
        let view = View { prefix: root.clone(), ..View::default() };
        assert_eq!(view.expand("/l*").collect::<Vec<_>>(), [root.join("lib")]);
        assert_eq!(view.inside(&root.join("lib")), Path::new("/lib"));
    }

    #[test]
    fn a_pattern_does_not_go_through_what_the_kernel_shows_as_files() {
        let dir = tempfile::tempdir().expect("a directory");
        for folder in ["proc/1", "sys/1", "usr/1"] {
            fs::create_dir_all(dir.path().join(folder)).expect("made");
        }
        let view = View { prefix: dir.path().into(), ..View::default() };
        assert_eq!(view.expand("/*/1").collect::<Vec<_>>(), [dir.path().join("usr/1")]);
        assert_eq!(view.expand("/**/1").collect::<Vec<_>>(), [dir.path().join("usr/1")]);
        assert_eq!(view.expand("/proc/*").collect::<Vec<_>>(), [dir.path().join("proc/1")]);
    }
}
