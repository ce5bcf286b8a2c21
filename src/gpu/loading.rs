//! Functions that a running process needs to load the agent: those of its C library, and those of the driver by whose calls it begins.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use host::{ElfFile, Machine};
use linux::proc::{self, Mapping, Program};
use runtime::gpu::{AgentFile, Connection, LoaderFunctions};
use runtime::remote::RemoteError;
use runtime::{FileFunctions, Session};

use super::candidates::Candidate;
use super::cupti::{self, DRIVER};
use crate::patch_sites;

/// Files of C libraries, by the begin of their names: of glibc, since 2.34 in one file; of musl.
const C_LIBRARIES: [&str; 5] = ["libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-musl-", "libc.musl-"];
const MUSL: [&str; 2] = ["ld-musl-", "libc.musl-"];
/// The real-time signals that C libraries use themselves, as bits: 32 and 33 in glibc, in musl 34, too. A thread that blocks them makes
/// `setuid` wait for ever.
const OF_GLIBC: u64 = 3 << 31;
const OF_MUSL: u64 = 7 << 31;

/// A prepared request to a process to load the agent.
pub struct LoadRequest {
    pub found: Candidate,
    /// The program whose functions these are.
    pub program: Program,
    since: Instant,
    functions: LoaderFunctions,
    gates: FileFunctions,
}

impl LoadRequest {
    /// Finds the functions of a process.
    pub fn new(machine: &Machine, found: Candidate) -> anyhow::Result<LoadRequest> {
        let program = Program::of(found.pid).ok_or(RemoteError::Gone)?;
        let mappings = proc::mappings(found.pid);
        if mappings.is_empty() {
            return Err(RemoteError::Gone.into());
        }
        let functions = functions_of(found.pid, &mappings);
        // Its addresses may be those of two programs; and the driver is mapped before the C library.
        let is_loaded =
            || mappings.iter().any(|mapping| C_LIBRARIES.iter().any(|name| cupti::is_of_file(mapping, name)));
        if Program::of(found.pid) != Some(program) || functions.is_err() && !is_loaded() {
            return Err(RemoteError::Executed.into());
        }
        let functions = functions?;
        let gates = gates_of(machine, found.pid, &mappings)?;
        Ok(LoadRequest { found, program, since: Instant::now(), functions, gates })
    }

    /// Whether a request that failed so may succeed soon.
    pub fn may_be_retried(&self, error: &RemoteError) -> bool {
        match error {
            RemoteError::DidNotStop { .. } => self.found.is_started,
            RemoteError::Traced { .. } => self.since.elapsed() < RemoteError::BRIEFLY,
            _ => false,
        }
    }

    /// Asks the process to load the agent.
    pub fn request(&self, file: &AgentFile, session: &mut Session) -> Result<Connection, RemoteError> {
        let Candidate { pid, is_started, .. } = self.found;
        let user = proc::file_user(pid).ok_or(RemoteError::Gone)?;
        let is_current = || Program::of(pid) == Some(self.program);
        let library = file.library(user, self.functions, &is_current)?;
        session.request_agent(pid, self.gates.clone(), &library, is_started)
    }
}

/// A file that a process has mapped.
struct LoadedFile {
    elf: ElfFile,
    start: u64,
    is_c_library: bool,
}

impl LoadedFile {
    fn of(pid: u32, mapping: &Mapping) -> Option<LoadedFile> {
        let path = proc::open_path(pid, mapping.name.path()?);
        let elf = ElfFile::open(&mapping.link(pid)).or_else(|_| ElfFile::open(&path)).ok()?;
        let is_c_library = C_LIBRARIES.iter().any(|name| cupti::is_of_file(mapping, name));
        Some(LoadedFile { elf, start: mapping.start, is_c_library })
    }

    /// Address of a function in the process.
    fn address(&self, name: &str) -> Option<u64> {
        Some(self.start.wrapping_sub(self.elf.first_address()).wrapping_add(self.elf.exported(name)?))
    }
}

/// The functions of a process that load a library in a thread.
fn functions_of(pid: u32, mappings: &[Mapping]) -> anyhow::Result<LoaderFunctions> {
    let is_musl = MUSL.iter().any(|name| cupti::file_with(mappings, name).is_some());
    let mut starts: Vec<&Mapping> =
        mappings.iter().filter(|mapping| mapping.offset == 0 && mapping.inode != 0).collect();
    // The program is first. Of the others those are higher that were loaded earlier.
    let program = proc::executable(pid);
    starts
        .sort_by_key(|mapping| std::cmp::Reverse((mapping.name.path() == program.as_deref(), mapping.start)));
    let files: Vec<LoadedFile> =
        starts.into_iter().filter_map(|mapping| LoadedFile::of(pid, mapping)).collect();
    let in_c_library =
        |name: &str| files.iter().filter(|file| file.is_c_library).find_map(|file| file.address(name));
    // A sanitizer, for example, has a function of its own in the place of the C library's.
    let function = |name: &str| {
        let others = files.iter().filter(|file| !file.is_c_library);
        others.into_iter().find_map(|file| file.address(name)).or_else(|| in_c_library(name))
    };
    let all = (|| {
        Some(LoaderFunctions {
            pthread_create: function("pthread_create")?,
            pthread_detach: function("pthread_detach")?,
            dlopen: in_c_library("dlopen")?,
            dlsym: in_c_library("dlsym")?,
            blocked: !if is_musl { OF_MUSL } else { OF_GLIBC },
        })
    })();
    all.ok_or_else(|| {
        anyhow!(
            "the program has no `dlopen`, since it is linked statically: no library can be loaded into it"
        )
    })
}

/// The functions of a process's driver by whose calls it can be made to load the agent.
fn gates_of(machine: &Machine, pid: u32, mappings: &[Mapping]) -> anyhow::Result<FileFunctions> {
    let driver = mappings.iter().find(|mapping| mapping.executable && cupti::is_of_file(mapping, DRIVER));
    let (driver, shown) =
        driver.and_then(|driver| Some((driver, driver.name.path()?))).ok_or(RemoteError::Gone)?;
    let add = |open: PathBuf| machine.add_file(&open, shown, &format!("mapped by process {pid}"));
    let file = match driver.name {
        proc::MappingName::Deleted(_) => add(driver.link(pid))?,
        _ => add(proc::open_path(pid, shown))?,
    };
    Ok(patch_sites::gates(machine, file))
}
