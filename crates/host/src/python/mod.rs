//! Frames of Python in a process: functions, files and lines, read from the interpreter's own structures. Nothing runs in the process, and it
//! needs no flag.
//!
//! ```text
//! _PyRuntime -> interpreters -> threads -> innermost frame -> frame around it -> ...
//!                                           frame -> code object (name, file, table of lines), instruction
//! ```
//!
//! Python 3.13 and later tell the offsets of their members at the begin of `_PyRuntime`; earlier ones have a table in [`layout`]. Each code
//! object is checked to be one, so that a wrong guess gives no frames, and never wrong ones.
//!
//! CPython 3.9 to 3.15, without those that have no lock of the interpreter (free-threaded builds).

mod code;
mod layout;
mod lines;
mod memory;
mod version;

use std::path::Path;

use linux::proc::{self, Mapping};

use crate::elf::ElfFile;
pub use code::Code;
use layout::{Boundary, Innermost, Instruction, Layout};
use memory::Memory;
pub use version::Version;

/// Frames that are read of a thread.
const FRAMES: usize = 1024;
/// Interpreters and threads that are looked at.
const LISTED: usize = 4096;
/// Bits of a pointer to an object that are marks: objects are at multiples of 16, and Python 3.14 keeps marks in the lower bits.
const MARKS: u64 = 7;

/// The interpreter of a process.
#[derive(Debug)]
pub struct Python {
    memory: Memory,
    layout: Layout,
    /// Address of `_PyRuntime`.
    runtime: u64,
    /// Address of `PyCode_Type`, which each code object refers to.
    code_type: u64,
    version: Version,
}

/// The reason why the frames of a process cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Another version.
    #[error("Python {0}: known are 3.9 to 3.15")]
    Version(Version),
    /// Its version is not told.
    #[error("a Python whose version is not known")]
    NoVersion,
    /// A build without the lock of the interpreter.
    #[error("a free-threaded build of Python {0}")]
    FreeThreaded(Version),
    /// The symbols that lead to the frames are not there.
    #[error("`{file}` has no symbol `{name}`")]
    NoSymbol {
        /// The file of the interpreter.
        file: String,
        /// `_PyRuntime`
        name: &'static str,
    },
    /// Its memory cannot be read.
    #[error("the memory of the process cannot be read")]
    NoMemory,
}

/// A thread that Python knows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Address of its state.
    pub state: u64,
    /// `pthread_self()`, by which it is known to the C library.
    pub pthread: u64,
    /// Its id in its pid namespace; Python 3.11 and later tell it.
    pub tid: Option<u64>,
}

/// A frame of a thread: a function that is not over.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// Address of the code object.
    pub code: u64,
    /// Offset of the instruction that is executed, in bytes.
    pub offset: u32,
    /// Whether C code called the interpreter for it: the frame around it belongs to an earlier call of the interpreter.
    pub is_entry: bool,
}

impl Python {
    /// The interpreter of a process; `None` if it has none.
    ///
    /// # Errors
    /// [`Unreadable`]: there is one, but its frames cannot be read.
    pub fn of(pid: u32) -> Option<Result<Python, Unreadable>> {
        let mappings = proc::mappings(pid);
        let executable = proc::executable(pid);
        let is_candidate = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Some(path) == executable.as_deref() || name.starts_with("libpython3")
        };
        let mut candidates: Vec<&Mapping> = mappings
            .iter()
            .filter(|map| map.offset == 0 && map.name.path().is_some_and(is_candidate))
            .collect();
        // The program may have the interpreter in itself, and the library beside it.
        candidates.sort_by_key(|map| map.name.path() == executable.as_deref());
        let found = candidates.into_iter().find_map(|map| Some((map, Symbols::of(pid, map)?)));
        found.map(|(map, symbols)| symbols.and_then(|symbols| Python::with(pid, map, &mappings, symbols)))
    }

    fn with(pid: u32, map: &Mapping, mappings: &[Mapping], symbols: Symbols) -> Result<Python, Unreadable> {
        let memory = Memory::of(pid).ok_or(Unreadable::NoMemory)?;
        let offsets = layout::told(&memory, symbols.runtime);
        let version = match (offsets.as_ref(), symbols.version) {
            (Some(told), _) => told.version,
            (None, Some(at)) => Version::of_hex(memory.word(at).ok_or(Unreadable::NoMemory)?),
            (None, None) => {
                let paths = [map].into_iter().chain(mappings).filter_map(|map| map.name.path());
                paths.filter_map(Version::of_path).next().ok_or(Unreadable::NoVersion)?
            }
        };
        if offsets.as_ref().is_some_and(|told| told.is_free_threaded) {
            return Err(Unreadable::FreeThreaded(version));
        }
        let layout = Layout::of(version, offsets.as_ref()).ok_or(Unreadable::Version(version))?;
        Ok(Python { memory, layout, runtime: symbols.runtime, code_type: symbols.code_type, version })
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The threads that Python knows, those that were made last first.
    pub fn threads(&self) -> Vec<Thread> {
        let layout = &self.layout;
        let mut threads = Vec::new();
        let first = self.memory.word(self.runtime + layout.interpreters);
        for interpreter in self.list(first, layout.next_interpreter) {
            let first = self.memory.word(interpreter + layout.threads);
            threads.extend(self.list(first, layout.next_thread).filter_map(|state| {
                let tid = layout.tid.map(|at| self.memory.word(state + at));
                let pthread = self.memory.word(state + layout.pthread)?;
                Some(Thread { state, pthread, tid: tid.flatten() })
            }));
        }
        threads
    }

    /// Addresses of a list whose members have the next one at an offset.
    fn list(&self, first: Option<u64>, next: u64) -> impl Iterator<Item = u64> {
        let present = |at: u64| Some(at).filter(|at| *at != 0);
        let following = move |at: &u64| self.memory.word(at + next).and_then(present);
        std::iter::successors(first.and_then(present), following).take(LISTED)
    }

    /// The frames of a thread, the innermost one first. Those of a thread that runs may be of several moments.
    pub fn frames(&self, thread: Thread) -> Vec<PythonFrame> {
        let layout = &self.layout;
        let innermost = match layout.innermost {
            Innermost::At(at) => self.memory.word(thread.state + at),
            Innermost::Behind(at, behind) => {
                self.memory.word(thread.state + at).and_then(|inner| self.memory.word(inner + behind))
            }
        };
        let mut frames: Vec<PythonFrame> = Vec::new();
        for frame in self.list(innermost, layout.previous).take(FRAMES) {
            let is_entry = match layout.boundary {
                Boundary::Each => true,
                Boundary::Flag(at) => self.memory.byte(frame + at) == Some(1),
                Boundary::Owner(at, least) => {
                    if self.memory.byte(frame + at).is_none_or(|owner| owner >= least) {
                        // The interpreter's own frame, which calls the one before.
                        frames.last_mut().into_iter().for_each(|inner| inner.is_entry = true);
                        continue;
                    }
                    false
                }
            };
            let Some(code) = self.memory.word(frame + layout.code).map(|code| code & !MARKS) else { break };
            if !self.is_code(code) {
                break;
            }
            let offset = self.offset_in(code, frame).unwrap_or(0);
            frames.push(PythonFrame { code, offset, is_entry });
        }
        frames
    }

    /// Whether there is a code object at an address.
    fn is_code(&self, address: u64) -> bool {
        const TYPE: u64 = 8;
        self.memory.word(address + TYPE) == Some(self.code_type)
    }

    /// Offset of the instruction that a frame executes.
    fn offset_in(&self, code: u64, frame: u64) -> Option<u32> {
        match self.layout.instruction {
            // -1: none yet.
            Instruction::Index { at, bytes } => {
                Some((self.memory.half(frame + at)? as i32).max(0) as u32 * bytes)
            }
            Instruction::Address { at, first } => {
                let offset = self.memory.word(frame + at)?.wrapping_sub(code + first);
                u32::try_from(offset).ok()
            }
        }
    }

    /// The code object at an address; `None` if there is none.
    pub fn code(&self, address: u64) -> Option<Code> {
        if !self.is_code(address) {
            return None;
        }
        Code::read(&self.memory, &self.layout.code_object, address)
    }
}

/// Addresses of what leads to the frames, in a process.
struct Symbols {
    runtime: u64,
    code_type: u64,
    version: Option<u64>,
}

impl Symbols {
    /// The symbols of a mapped file; `None` if it has no interpreter.
    fn of(pid: u32, map: &Mapping) -> Option<Result<Symbols, Unreadable>> {
        let path = map.name.path()?;
        let file =
            ElfFile::open(&proc::open_path(pid, path)).or_else(|_| ElfFile::open(&map.link(pid))).ok()?;
        let bias = map.start.wrapping_sub(file.first_address());
        let at = |name: &str| Some(file.symbol_of(name)?.0.wrapping_add(bias));
        // Only a library that is named so must have it.
        let is_library = path.file_name().unwrap_or_default().to_string_lossy().starts_with("libpython3");
        let missing = |name| Unreadable::NoSymbol { file: path.display().to_string(), name };
        let Some(runtime) = at("_PyRuntime") else {
            return is_library.then(|| Err(missing("_PyRuntime")));
        };
        let symbols = at("PyCode_Type").ok_or_else(|| missing("PyCode_Type"));
        Some(symbols.map(|code_type| Symbols { runtime, code_type, version: at("Py_Version") }))
    }
}
