//! Frames of Python in a process: functions, files and lines, read from the interpreter's own structures. Nothing runs in the process, and it
//! needs no flag.
//!
//! ```text
//! _PyRuntime -> interpreters -> threads -> innermost frame -> frame around it -> ...
//!                                           frame -> code object (name, file, table of lines), instruction
//! ```
//!
//! Python 3.13 and later have the offsets of their members at the begin of `_PyRuntime`; earlier ones have a table in [`layout`]. Each code
//! object is checked to be one, so that what is no frame gives none.
//!
//! CPython 3.9 to 3.15, without those that have no lock of the interpreter (free-threaded builds).

mod code;
mod layout;
mod lines;
mod memory;
mod version;
mod walk;

use std::path::Path;

use linux::proc::{self, Mapping};

use crate::elf::ElfFile;
pub use code::Code;
use layout::{Boundary, DebugOffsets, Innermost, Instruction, Layout};
use memory::Memory;
pub use version::Version;
use wire::python::{self, OF_INTERPRETER};

/// Frames that are read of a thread.
const FRAMES: usize = 1024;
/// Interpreters and threads that are looked at.
const LISTED: usize = 4096;
/// Offset of an object's type.
const TYPE: u64 = 8;
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
    /// The interpreter has not begun: it does not tell its layout yet.
    #[error("Python {0} has not begun")]
    NotBegun(Version),
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
    /// Offset of the instruction that is executed, in bytes; `None` if that is none yet.
    pub offset: Option<u32>,
    /// Whether C code called the interpreter for it: the frame around it belongs to an earlier call of the interpreter.
    pub is_entry: bool,
}

/// The frames of a thread.
#[derive(Clone, Debug, Default)]
pub struct PythonStack {
    /// The innermost one first.
    pub frames: Vec<PythonFrame>,
    /// Frames around these could not be read, or are too many.
    pub is_cut: bool,
}

/// Contents of the address of a frame.
enum AtFrame {
    Frame(PythonFrame),
    /// A frame that the interpreter made for itself: the one before is the outermost of its call.
    Boundary,
    /// A frame that is not shown.
    Incomplete,
    Nothing,
}

impl Python {
    /// The interpreter of a process; `None` if it has none.
    ///
    /// # Errors
    /// [`Unreadable`]: there is one, but its frames cannot be read.
    pub fn of(pid: u32) -> Option<Result<Python, Unreadable>> {
        let mappings = proc::mappings(pid);
        let executable = proc::executable(pid);
        let is_candidate = |path: &Path| Some(path) == executable.as_deref() || is_library(path);
        let mut candidates: Vec<&Mapping> = mappings
            .iter()
            .filter(|map| map.offset == 0 && map.name.path().is_some_and(is_candidate))
            .collect();
        // A program that has the interpreter in itself may load a library of it, too, which is not used then.
        candidates.sort_by_key(|map| map.name.path() != executable.as_deref());
        let mut refused = None;
        for map in candidates {
            match Symbols::of(pid, map) {
                Some(Ok(symbols)) => return Some(Python::with(pid, map, &mappings, symbols)),
                // Some libraries named so only lead to the one with the interpreter.
                Some(Err(why)) => refused = Some(Err(why)),
                None => {}
            }
        }
        refused
    }

    fn with(pid: u32, map: &Mapping, mappings: &[Mapping], symbols: Symbols) -> Result<Python, Unreadable> {
        let memory = Memory::of(pid).ok_or(Unreadable::NoMemory)?;
        let begin = memory.words::<{ layout::WORDS }>(symbols.runtime).ok_or(Unreadable::NoMemory)?;
        let offsets = DebugOffsets::of(&begin);
        let version = match (offsets.as_ref(), symbols.version) {
            (Some(offsets), _) => offsets.version,
            (None, Some(at)) => Version::of_hex(memory.u64(at, 0).ok_or(Unreadable::NoMemory)?),
            (None, None) => {
                let own = map.name.path().and_then(Version::of_path);
                let others = || mappings.iter().filter_map(|map| map.name.path()).find_map(Version::of_path);
                own.or_else(others).ok_or(Unreadable::NoVersion)?
            }
        };
        if offsets.as_ref().is_some_and(|offsets| offsets.is_free_threaded) {
            return Err(Unreadable::FreeThreaded(version));
        }
        if offsets.is_none() && layout::tells_offsets(version) {
            return Err(Unreadable::NotBegun(version));
        }
        let layout = Layout::of(version, offsets.as_ref()).ok_or(Unreadable::Version(version))?;
        Ok(Python { memory, layout, runtime: symbols.runtime, code_type: symbols.code_type, version })
    }

    /// Closes the memory of a process that has ended: only [copies](Self::copied_code) are read from then on.
    pub fn close(&mut self) {
        self.memory = Memory::Copies(Vec::new());
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The threads that Python knows, those that were made last first.
    pub fn threads(&self) -> Vec<Thread> {
        let layout = &self.layout;
        let interpreters =
            self.list(self.memory.u64(self.runtime, layout.interpreters), layout.next_interpreter);
        let states = interpreters.flat_map(|interpreter| {
            self.list(self.memory.u64(interpreter, layout.threads), layout.next_thread)
        });
        let thread = |state: u64| {
            let tid = layout.tid.and_then(|at| self.memory.u64(state, at));
            Some(Thread { state, pthread: self.memory.u64(state, layout.pthread)?, tid })
        };
        states.take(LISTED).filter_map(thread).collect()
    }

    /// Addresses of a list whose members have the next one at an offset.
    fn list(&self, first: Option<u64>, next: u64) -> impl Iterator<Item = u64> {
        let present = |at: u64| Some(at).filter(|at| *at != 0);
        let following = move |at: &u64| self.memory.u64(*at, next).and_then(present);
        std::iter::successors(first.and_then(present), following).take(LISTED)
    }

    /// The frames of a thread, the innermost one first. Those of a thread that runs may be of several moments.
    pub fn frames(&self, thread: Thread) -> PythonStack {
        let layout = &self.layout;
        let innermost = match layout.innermost {
            Innermost::At(at) => self.memory.u64(thread.state, at),
            Innermost::Behind(at, behind) => {
                self.memory.u64(thread.state, at).and_then(|inner| self.memory.u64(inner, behind))
            }
        };
        let mut stack = PythonStack::default();
        for frame in self.list(innermost, layout.previous) {
            if stack.frames.len() == FRAMES {
                stack.is_cut = true;
                break;
            }
            match self.frame(frame) {
                AtFrame::Frame(frame) => stack.frames.push(frame),
                AtFrame::Boundary => {
                    stack.frames.last_mut().into_iter().for_each(|inner| inner.is_entry = true)
                }
                AtFrame::Incomplete => {}
                AtFrame::Nothing => {
                    stack.is_cut = true;
                    break;
                }
            }
        }
        stack
    }

    fn frame(&self, frame: u64) -> AtFrame {
        let layout = &self.layout;
        let is_entry = match layout.boundary {
            Boundary::Each => true,
            Boundary::Flag(at) => self.memory.u8(frame, at) == Some(1),
            Boundary::Owner(at) => match self.memory.u8(frame, at) {
                Some(owner) if owner < OF_INTERPRETER => false,
                Some(_) => return AtFrame::Boundary,
                None => return AtFrame::Nothing,
            },
        };
        let code = self.memory.u64(frame, layout.code).map(|code| code & !MARKS);
        let Some(code) = code.filter(|code| self.is_code(&self.memory, *code)) else {
            return AtFrame::Nothing;
        };
        let offset = self.offset_in(code, frame);
        match self.is_incomplete(frame, code, offset) {
            true if is_entry => AtFrame::Boundary,
            true => AtFrame::Incomplete,
            false => AtFrame::Frame(PythonFrame { code, offset, is_entry }),
        }
    }

    /// Whether a frame has not begun its function: Python itself shows no such frame. From 3.13 on the call of a class has one of its own,
    /// for the end of `__init__`.
    fn is_incomplete(&self, frame: u64, code: u64, offset: Option<u32>) -> bool {
        const OF_GENERATOR: u8 = 1;
        let (Some(owner), Some(first)) = (self.layout.owner, self.layout.code_object.first_traceable) else {
            return false;
        };
        let traceable = self.memory.u32(code, first).unwrap_or(0).saturating_mul(python::UNIT);
        let is_before = offset.is_none_or(|offset| offset < traceable);
        is_before && self.memory.u8(frame, owner) != Some(OF_GENERATOR)
    }

    /// Whether there is a code object at an address.
    fn is_code(&self, memory: &Memory, address: u64) -> bool {
        memory.u64(address, TYPE) == Some(self.code_type)
    }

    /// Offset of the instruction that a frame executes; `None` if it executes none yet.
    fn offset_in(&self, code: u64, frame: u64) -> Option<u32> {
        match self.layout.instruction {
            Instruction::Index { at, bytes } => {
                let index = u32::try_from(self.memory.u32(frame, at)? as i32).ok()?;
                index.checked_mul(bytes)
            }
            Instruction::Address { at, first } => {
                let offset = self.memory.u64(frame, at)?.wrapping_sub(code.wrapping_add(first));
                u32::try_from(offset).ok()
            }
        }
    }

    /// The code object at an address; `None` if there is none.
    pub fn code(&self, address: u64) -> Option<Code> {
        self.code_in(&self.memory, address, true)
    }

    fn code_in(&self, memory: &Memory, address: u64, needs_lines: bool) -> Option<Code> {
        let is_code = self.is_code(memory, address);
        is_code.then(|| Code::read(memory, &self.layout.code_object, address, needs_lines))?
    }
}

/// Whether a file is named as a library of the interpreter is.
pub fn is_library(path: &Path) -> bool {
    path.file_name().unwrap_or_default().to_string_lossy().starts_with("libpython3")
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
        let missing = |name| Unreadable::NoSymbol { file: path.display().to_string(), name };
        let Some(runtime) = at("_PyRuntime") else {
            // Only a library that is named so must have it.
            return is_library(path).then(|| Err(missing("_PyRuntime")));
        };
        let symbols = at("PyCode_Type").ok_or_else(|| missing("PyCode_Type"));
        Some(symbols.map(|code_type| Symbols { runtime, code_type, version: at("Py_Version") }))
    }
}
