//! Frames of Python in stacks: their names, and their places among the native frames.

use host::python::{Code, Python};
use host::untrusted_file;
use linux::proc;
use report::Frame;
use runtime::StackStore;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use wire::python::{self, At};

/// The function of the interpreter that executes frames: a native frame of it is a call of the interpreter, and has one or several of Python.
const INTERPRETER: &str = "_PyEval_EvalFrameDefault";

/// The begin of the names that `-X perf` gives to code around each call of a function of Python.
const TRAMPOLINE: &str = "py::";

/// The begin of the names of functions for instructions, which the interpreter calls where it was built for tail calls (Python/ceval_macros.h, from
/// 3.14 on).
const INSTRUCTION: &str = "_TAIL_CALL_";

/// Interpreters of ended processes that are kept: stacks of theirs may still be printed.
const MOST_ENDED: usize = 1 << 12;

/// The interpreters of traced processes, also of those that have ended.
pub struct Pythons {
    /// Where copies of code objects are.
    stacks: Arc<StackStore>,
    by_process: RefCell<HashMap<u32, Interpreter>>,
    codes: RefCell<HashMap<(u32, u64), Rc<Code>>>,
    /// Source files by process and path.
    sources: RefCell<HashMap<(u32, String), SourceLines>>,
}

/// The lines of a source file; `None` if it cannot be read.
type SourceLines = Option<Vec<String>>;

struct Interpreter {
    python: Python,
    has_ended: bool,
}

impl Pythons {
    /// Knows no process. `stacks` has what programs have copied.
    pub fn new(stacks: Arc<StackStore>) -> Pythons {
        let (by_process, codes, sources) = (RefCell::default(), RefCell::default(), RefCell::default());
        Pythons { stacks, by_process, codes, sources }
    }

    /// Adds the interpreter of a process, in place of that of an earlier process with this id.
    pub fn add(&self, pid: u32, python: Python) {
        self.by_process.borrow_mut().insert(pid, Interpreter { python, has_ended: false });
    }

    /// Takes what programs have copied of code objects of processes that end or run another program, so that there is room for others.
    pub fn end(&self, pids: &[u32]) {
        let mut interpreters = self.by_process.borrow_mut();
        let ends = |pid: &u32| interpreters.get(pid).is_some_and(|interpreter| !interpreter.has_ended);
        let ends: Vec<u32> = pids.iter().copied().filter(ends).collect();
        if ends.is_empty() {
            return;
        }
        self.codes.borrow_mut().retain(|(pid, _), _| !ends.contains(pid));
        for ((pid, address), copy) in self.stacks.take_codes(|pid| ends.contains(&pid)) {
            let code = interpreters.get(&pid).and_then(|of| code_of(&of.python, address, Some(&copy)));
            if let Some(code) = code {
                self.codes.borrow_mut().insert((pid, address), Rc::new(code));
            }
        }
        for pid in ends {
            interpreters.entry(pid).and_modify(|interpreter| {
                interpreter.has_ended = true;
                interpreter.python.close();
            });
        }
        if interpreters.len() > MOST_ENDED {
            interpreters.retain(|_, interpreter| !interpreter.has_ended);
            self.codes.borrow_mut().retain(|(pid, _), _| interpreters.contains_key(pid));
            self.sources.borrow_mut().retain(|(pid, _), _| interpreters.contains_key(pid));
        }
    }

    /// Names of a code object, as a program has copied it.
    fn code(&self, pid: u32, address: u64) -> Option<Rc<Code>> {
        if let Some(code) = self.codes.borrow().get(&(pid, address)) {
            return Some(Rc::clone(code));
        }
        let interpreters = self.by_process.borrow();
        let python = &interpreters.get(&pid)?.python;
        let copy = self.stacks.code_copy(pid, address);
        let code = Rc::new(code_of(python, address, copy.as_deref())?);
        self.codes.borrow_mut().insert((pid, address), Rc::clone(&code));
        Some(code)
    }

    /// The text of a line of a file of Python, without the space around it. Only files that are named as such are read: the process says which.
    pub fn source_line(&self, pid: u32, file: &str, line: u32) -> Option<String> {
        let mut sources = self.sources.borrow_mut();
        let lines =
            sources.entry((pid, file.to_owned())).or_insert_with(|| read_source(pid, Path::new(file)));
        let text = lines.as_ref()?.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
        Some(text.trim().to_owned())
    }

    /// The frame of a word; `None` if Python itself would not show it.
    fn frame(&self, pid: u32, word: u64) -> Option<Frame> {
        let python::Frame { code: address, at, .. } = python::Frame::of(word)?;
        let Some(code) = self.code(pid, address) else {
            let symbol = Some(format!("<code {address:#x}>"));
            return Some(Frame { address: word, symbol, ..Frame::default() });
        };
        let line = match at {
            At::Unknown if code.is_before_begin(None) => return None,
            At::Offset(offset) if code.is_before_begin(Some(offset)) => return None,
            At::Offset(offset) => code.line(offset).unwrap_or(code.first_line),
            At::Line(line) => line,
            At::Unknown | At::Function => code.first_line,
        };
        Some(Frame {
            address: word,
            symbol: Some(code.name.clone()),
            module: Some(code.file.clone()),
            source: Some((code.file.clone(), line)),
            ..Frame::default()
        })
    }

    /// The frames of a stack: those of Python in place of the interpreter's. What has no place among the native frames follows them.
    pub fn merged(&self, pid: u32, native: Vec<Frame>, words: &[u64]) -> Vec<Frame> {
        let begins_call = |word: &u64| python::Frame::of(*word).is_some_and(|frame| frame.is_innermost);
        let calls = words.chunk_by(|_, next| !begins_call(next));
        let mut calls = calls.map(|call| call.iter().filter_map(|word| self.frame(pid, *word)));
        let mut merged = Vec::with_capacity(native.len() + words.len());
        for frame in native {
            let is_named = |part: &str| frame.symbol.as_ref().is_some_and(|symbol| symbol.starts_with(part));
            if is_named(TRAMPOLINE) || is_named(INSTRUCTION) {
                continue;
            }
            let is_interpreter = is_named(INTERPRETER);
            match is_interpreter.then(|| calls.next()).flatten() {
                Some(call) => merged.extend(call),
                None => merged.push(frame),
            }
        }
        merged.extend(calls.flatten());
        merged
    }
}

/// A code object: the copy, if it has all of it; otherwise the process itself; if it has ended, what the copy has.
fn code_of(python: &Python, address: u64, copy: Option<&[u8]>) -> Option<Code> {
    let copied = |needs_lines| python.copied_code(address, copy?, needs_lines);
    copied(true).or_else(|| python.code(address)).or_else(|| copied(false))
}

/// Largest source file that is read, in bytes.
const LARGEST_SOURCE: u64 = 16 << 20;

/// The lines of a file as a process names it: within its root, from its working directory on.
fn read_source(pid: u32, file: &Path) -> SourceLines {
    file.extension().is_some_and(|ending| ending == "py").then_some(())?;
    let of_process = match file.is_absolute() {
        true => proc::open_path(pid, file),
        false => PathBuf::from(format!("/proc/{pid}/cwd")).join(file),
    };
    // The process may have ended.
    let found = [of_process.as_path(), file].into_iter().find_map(|path| untrusted_file::open(path).ok())?;
    let mut text = Vec::new();
    found.take(LARGEST_SOURCE).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}
