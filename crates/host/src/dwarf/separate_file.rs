//! The file that has a file's debug information: the file itself, or one that its build id or its `.gnu_debuglink` names.
//!
//! Files of a container are searched in its root first. A file that is found by its name alone must have the checksum or the build
//! id of the original.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lang::catalog::debug_info::Absent;

use crate::elf::{ElfFile, c_string, u32_at};

/// Directory where distributions install debug information.
const DEBUG: &str = "usr/lib/debug";

/// Largest size of a file that a link names, in bytes: its checksum covers the whole file.
pub(super) const MOST_LINKED: u64 = 8 << 30;

/// Folders that the user names, for all files.
static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Searches debug information in these folders first. Later calls have no effect.
pub fn search_in_folders(folders: Vec<PathBuf>) {
    let _ = FOLDERS.set(folders);
}

/// The folders that the user names.
pub(super) fn folders() -> &'static [PathBuf] {
    FOLDERS.get().map_or(&[], Vec::as_slice)
}

/// The files that contain the debug information of a file.
pub(super) struct DebugFiles {
    pub main: ElfFile,
    /// The supplementary file of `dwz`.
    pub shared: Option<ElfFile>,
}

/// Paths to the files of the process that has mapped the file.
struct Around<'a> {
    /// `/proc/PID/root`, and the root of this process.
    roots: Vec<PathBuf>,
    /// Path by which this process opens the file.
    path: &'a Path,
    /// Path that is shown.
    shown: &'a Path,
    /// Files that do not exist.
    looked_for: Vec<String>,
}

/// Finds the debug information of a file.
///
/// # Errors
/// There is none.
pub(super) fn find(elf: &ElfFile, path: &Path, shown: &Path) -> Result<DebugFiles, Absent> {
    let mut around = Around { roots: roots(path, shown), path, shown, looked_for: Vec::new() };
    let own = has_information(elf).then(|| elf.clone());
    let given = || folders().iter().find_map(|folder| around.in_folder(elf, folder));
    let found = own.or_else(given);
    let found = found.or_else(|| around.by_build_id(elf.build_id()?)).or_else(|| around.by_link(elf));
    let Some(main) = found else {
        return Err(Absent::NoInformation { looked_for: around.looked_for });
    };
    let shared = match link(&main, ".gnu_debugaltlink") {
        Some((name, id)) => Some(around.shared(name, id)?),
        None => None,
    };
    Ok(DebugFiles { main, shared })
}

fn has_information(elf: &ElfFile) -> bool {
    [".debug_info", ".zdebug_info"].iter().any(|name| elf.named_section(name).is_some_and(|s| !s.is_empty()))
}

/// The root of the process that has mapped the file, and the root of this process.
pub(super) fn roots(path: &Path, shown: &Path) -> Vec<PathBuf> {
    let inside = shown.strip_prefix("/").unwrap_or(shown);
    let prefix = path.to_str().and_then(|path| path.strip_suffix(inside.to_str()?));
    let own = PathBuf::from("/");
    match prefix.map(PathBuf::from).filter(|prefix| prefix.is_absolute() && *prefix != own) {
        Some(prefix) => vec![prefix, own],
        None => vec![own],
    }
}

/// The `.gnu_debuglink` of a file.
struct DebugLink<'e> {
    name: &'e str,
    checksum: u32,
}

impl<'e> DebugLink<'e> {
    fn of(elf: &'e ElfFile) -> Option<DebugLink<'e>> {
        let (name, rest) = link(elf, ".gnu_debuglink")?;
        let padded = (name.len() + 1).next_multiple_of(4) - (name.len() + 1);
        Some(DebugLink { name, checksum: u32_at(rest, padded)? })
    }

    /// Whether a file, which was found at the path, is the one that the link means.
    fn fits(&self, elf: &ElfFile, path: &Path, found: &ElfFile) -> bool {
        match (elf.build_id(), build_id(found)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => checksum_of(path) == Some(self.checksum),
        }
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Path of the file with a build id in a folder of debug information: `.build-id/ab/cdef.debug`.
fn path_by_id(id: &[u8]) -> Option<String> {
    let hex = hex(id);
    let (head, tail) = hex.split_at_checked(2)?;
    Some(format!(".build-id/{head}/{tail}.debug"))
}

impl Around<'_> {
    fn by_build_id(&mut self, id: &[u8]) -> Option<ElfFile> {
        let name = format!("{DEBUG}/{}", path_by_id(id)?);
        self.in_roots(&name, |elf| build_id(elf).is_none_or(|found| found == id)).or_else(|| {
            let cached = downloads()?.join(hex(id)).join("debuginfo");
            ElfFile::open(&cached).ok().filter(has_information)
        })
    }

    /// The file by its build id or its link in a folder of the user's.
    fn in_folder(&mut self, elf: &ElfFile, folder: &Path) -> Option<ElfFile> {
        let by_id = elf.build_id().and_then(path_by_id).map(|path| folder.join(path));
        let linked = DebugLink::of(elf);
        let by_link = linked.as_ref().map(|linked| folder.join(linked.name));
        for path in by_id.into_iter().chain(by_link) {
            let fits = |found: &ElfFile| match &linked {
                Some(linked) => linked.fits(elf, &path, found),
                None => build_id(found) == elf.build_id(),
            };
            match ElfFile::open(&path).ok().filter(|found| has_information(found) && fits(found)) {
                Some(found) => return Some(found),
                None => self.looked_for.push(path.display().to_string()),
            }
        }
        None
    }

    fn by_link(&mut self, elf: &ElfFile) -> Option<ElfFile> {
        let linked = DebugLink::of(elf)?;
        let name = linked.name;
        let fits = |path: &Path, found: &ElfFile| linked.fits(elf, path, found);
        let directory = self.shown.parent()?.to_path_buf();
        let below = directory.strip_prefix("/").unwrap_or(&directory);
        let beside = [self.path.with_file_name(name), self.path.parent()?.join(".debug").join(name)];
        let shown = [directory.join(name), directory.join(".debug").join(name)];
        for (path, shown) in beside.iter().zip(shown) {
            match ElfFile::open(path).ok().filter(|found| has_information(found) && fits(path, found)) {
                Some(found) => return Some(found),
                None => self.looked_for.push(shown.display().to_string()),
            }
        }
        let global = Path::new(DEBUG).join(below).join(name);
        let paths: Vec<PathBuf> = self.roots.iter().map(|root| root.join(&global)).collect();
        self.looked_for.push(format!("/{}", global.display()));
        paths.iter().find_map(|path| {
            ElfFile::open(path).ok().filter(|found| has_information(found) && fits(path, found))
        })
    }

    /// A file below one of the roots; recorded as missing if it is in none.
    fn in_roots(&mut self, name: &str, fits: impl Fn(&ElfFile) -> bool) -> Option<ElfFile> {
        let mut opened = self.roots.iter().filter_map(|root| ElfFile::open(&root.join(name)).ok());
        let found = opened.find(|elf| has_information(elf) && fits(elf));
        if found.is_none() {
            self.looked_for.push(format!("/{name}"));
        }
        found
    }

    /// The supplementary file of `dwz`: `../../.dwz/x86_64-linux-gnu/NAME.debug` and its build id.
    fn shared(&mut self, name: &str, id: &[u8]) -> Result<ElfFile, Absent> {
        let fits = |elf: &ElfFile| build_id(elf).is_none_or(|found| found == id);
        let by_id = path_by_id(id).map(|path| format!("{DEBUG}/{path}"));
        // The name is relative to the file with debug information, which was found by its own build id.
        let base = name.rsplit_once(".dwz/").map(|(_, inside)| format!("{DEBUG}/.dwz/{inside}"));
        let absolute = name.strip_prefix('/').map(str::to_owned);
        let candidates = [absolute, base, by_id];
        // The supplementary file may also be beside the file.
        let beside = || ElfFile::open(&self.path.with_file_name(name)).ok().filter(fits);
        let found =
            beside().or_else(|| candidates.into_iter().flatten().find_map(|name| self.in_roots(&name, fits)));
        found.ok_or_else(|| {
            Absent::Unusable(format!(
                "part of its debug information is in `{name}` (by dwz), which is missing"
            ))
        })
    }
}

/// Whether all files that the file's links may refer to are plain files of bounded size.
pub(super) fn links_are_harmless(elf: &ElfFile, path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let names = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"];
    let sections = names.iter().filter_map(|name| elf.named_section(name));
    // In `.debug_sup` the name follows a version and a flag.
    let names = sections.flat_map(|bytes| [c_string(bytes, 0), c_string(bytes, 3)]).flatten();
    let is_harmless = |path: PathBuf| match path.metadata() {
        Ok(metadata) => metadata.is_dir() || metadata.is_file() && metadata.len() <= MOST_LINKED,
        Err(_) => true,
    };
    let mut candidates = names.filter(|name| !name.is_empty()).flat_map(|name| {
        let debug = Path::new("/").join(DEBUG);
        let below = debug.join(folder.strip_prefix("/").unwrap_or(folder));
        [folder.join(name), folder.join(".debug").join(name), debug.join(name), below.join(name)]
    });
    candidates.all(is_harmless)
}

/// Directory with files that `debuginfod` has downloaded.
fn downloads() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("DEBUGINFOD_CACHE_PATH")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("debuginfod_client")))
        .or_else(|| Some(set("HOME")?.join(".cache/debuginfod_client")))
}

/// The name in a link section, and the bytes after it.
fn link<'a>(elf: &'a ElfFile, section: &str) -> Option<(&'a str, &'a [u8])> {
    let bytes = elf.named_section(section)?;
    let name = c_string(bytes, 0).filter(|name| !name.is_empty())?;
    Some((name, &bytes[name.len() + 1..]))
}

/// The build id. Its section is read first: the program headers of a file without code are invalid.
fn build_id(elf: &ElfFile) -> Option<&[u8]> {
    elf.build_id_section().or_else(|| elf.build_id())
}

/// CRC-32 of a whole file, as `objcopy --add-gnu-debuglink` stores it.
fn checksum_of(path: &Path) -> Option<u32> {
    let mut file = crate::untrusted_file::open(path).ok()?;
    let mut crc = flate2::Crc::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(crc.sum()),
            read => crc.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_link_to_a_pipe_is_opened_by_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::from(0o600))
            .expect("a named pipe");
        std::fs::write(path("a.c"), "int one(void) { return 1; }").expect("written");
        // A name, followed by a build id or a checksum.
        std::fs::write(path("link"), b"pipe\0\0\0\0__________________").expect("written");
        for section in [".gnu_debuglink", ".gnu_debugaltlink"] {
            let library = path("liba.so");
            let run = |command: &mut Command| assert!(command.status().expect("it runs").success());
            run(Command::new("gcc")
                .args(["-g", "-shared", "-fPIC"])
                .arg(path("a.c"))
                .arg("-o")
                .arg(&library));
            let add = format!("{section}={}", path("link").display());
            run(Command::new("objcopy").args(["--add-section", &add]).arg(&library));
            let elf = ElfFile::open(&library).expect("opened");
            assert!(!links_are_harmless(&elf, &library), "{section}");
            let found = find(&elf, &library, &library);
            assert_eq!(found.is_ok(), section == ".gnu_debuglink", "its own information needs no link");
        }
    }
}
