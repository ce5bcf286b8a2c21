//! Libraries that appear while a script runs. A program that we started waits until they are attached; of others we
//! hear when it has happened.

use super::compiler::Compiler;
use super::unwind::Unwinder;
use crate::messages::Messages;
use crate::names::MachineNames;
use anyhow::Result;
use lang::catalog::FileId;
use runtime::process::{Mapped, Mapping, MappingWatch, Mappings, Question};
use runtime::run::{Next, Watch};
use runtime::{AttachOptions, Session};
use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;
use target::Machine;

/// What it takes to attach a script to one more file.
pub struct Extender<'a> {
    compiler: RefCell<Compiler<'a>>,
    machine: &'a Machine,
    /// Where symbols of stacks come from.
    pub names: &'a MachineNames,
    /// Whoever keeps the tables that stacks are walked by.
    pub unwinder: Option<Unwinder<'a>>,
    messages: &'a Messages,
    /// As in [`AttachOptions`].
    link_pid: Option<u32>,
}

impl<'a> Extender<'a> {
    /// Extends by what `compiler` compiles.
    pub fn new(
        compiler: Compiler<'a>,
        machine: &'a Machine,
        names: &'a MachineNames,
        unwinder: Option<Unwinder<'a>>,
        messages: &'a Messages,
        link_pid: Option<u32>,
    ) -> Extender<'a> {
        Extender { compiler: RefCell::new(compiler), machine, names, unwinder, messages, link_pid }
    }

    /// Attaches what the script probes in the file, if it may have to do with it by its name; says how it went. `open` is
    /// where we can open it now.
    fn extend(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        if self.compiler.borrow().may_want(shown) {
            self.extend_by_content(session, open, shown, when);
        }
    }

    /// The same for a program, which may also have the CUDA runtime linked in.
    fn extend_program(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        if self.compiler.borrow().may_want_program(shown) {
            self.extend_by_content(session, open, shown, when);
        }
    }

    fn extend_by_content(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        let start = Instant::now();
        match self.try_extend(session, open, shown, when) {
            Ok(None) => {}
            Ok(Some(attached)) => self.messages.detail(|| {
                format!("{}: {when}; {attached} probes attached in {:?}", shown.display(), start.elapsed())
            }),
            Err(error) => self.messages.warning(&format!("{}: not traced: {error:#}", shown.display())),
        }
    }

    fn try_extend(
        &self,
        session: &mut Session,
        open: &Path,
        shown: &Path,
        when: &str,
    ) -> Result<Option<usize>> {
        let mut compiler = self.compiler.borrow_mut();
        let known = self.machine.files_taken().len();
        let file = self.machine.add_file(open, shown, when)?;
        let is_new = self.machine.files_taken().len() > known;
        if !is_new || !compiler.wants_file(file) {
            return Ok(None);
        }
        let Some(module) = compiler.extend(file, session.manifest())? else { return Ok(None) };
        let files = |id: u32| match FileId(id) {
            late if late == file => open.to_path_buf(),
            other => self.machine.open_path(other).to_path_buf(),
        };
        Ok(Some(session.extend(&module, &AttachOptions { files: &files, link_pid: self.link_pid })?.attached))
    }
}

/// Answers the doorman of a program that we started: its mapping thread waits.
pub struct Asked<'a> {
    mappings: Mappings,
    extender: Rc<Extender<'a>>,
}

impl<'a> Asked<'a> {
    /// Answers questions on `mappings`.
    pub fn new(mappings: Mappings, extender: Rc<Extender<'a>>) -> Asked<'a> {
        Asked { mappings, extender }
    }

    fn consider(&self, mapping: &Mapping, session: &mut Session) {
        let when = format!("about to be mapped by thread {}", mapping.tid);
        self.extender.extend(session, &mapping.open, &mapping.shown, &when);
    }

    /// A program may have the CUDA runtime linked in, whatever it is called.
    fn consider_program(&self, program: &Mapping, session: &mut Session) {
        let when = format!("about to be executed by thread {}", program.tid);
        self.extender.extend_program(session, &program.open, &program.shown, &when);
    }

    /// Stacks of a process that has ended still print names: what it had mapped is looked at before it goes.
    fn keep_symbols(&self, tid: u32) {
        let pid = target::process::tgid(tid).unwrap_or(tid);
        self.extender.names.forget(pid);
        self.extender.names.remember(pid);
        if let Some(unwinder) = &self.extender.unwinder {
            unwinder.forget(pid);
        }
    }

    /// Lets a thread go on that maps a file. Where stacks are walked, its table is there before, and we wait to see where it lies.
    fn let_map(&mut self, mapping: &Mapping) -> std::io::Result<()> {
        let Some(unwinder) = &self.extender.unwinder else { return self.mappings.answer() };
        let pid = target::process::tgid(mapping.tid).unwrap_or(mapping.tid);
        let wait = unwinder.prepare(pid, mapping);
        self.mappings.answer()?;
        unwinder.settle(pid, wait);
        Ok(())
    }
}

impl Watch for Asked<'_> {
    fn fd(&self) -> RawFd {
        self.mappings.as_fd().as_raw_fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        let answered = match self.mappings.next() {
            Ok(Some(Question::Maps(mapping))) => {
                self.consider(&mapping, session);
                self.let_map(&mapping)
            }
            Ok(Some(Question::Executes(program))) => {
                self.consider_program(&program, session);
                self.mappings.answer()
            }
            Ok(Some(Question::Late)) => {
                self.extender.messages.warning(
                    "the program waited for seconds until a library was attached, and went on: calls may be missing",
                );
                return Next::Continue;
            }
            Ok(Some(Question::Ends(tid))) => {
                self.keep_symbols(tid);
                self.mappings.answer()
            }
            Ok(None) | Err(_) => return Next::Remove,
        };
        if answered.is_ok() { Next::Continue } else { Next::Remove }
    }
}

/// Hears of files that processes have mapped. Calls before the probes are in place are missed; `-v` says how late.
pub struct Heard<'a> {
    watch: MappingWatch,
    extender: Rc<Extender<'a>>,
    /// Of any process: all are traced, or we cannot tell which.
    any: bool,
    seen: HashSet<(u64, u64)>,
}

impl<'a> Heard<'a> {
    /// Listens to `watch`.
    pub fn new(watch: MappingWatch, extender: Rc<Extender<'a>>, any: bool) -> Heard<'a> {
        Heard { watch, extender, any, seen: HashSet::new() }
    }

    fn consider(&mut self, mapped: &Mapped, session: &mut Session) {
        self.see_code(mapped, session);
        if !self.any && !session.is_traced(mapped.pid) || !self.seen.insert(mapped.identity) {
            return;
        }
        let inside = mapped.path.strip_prefix("/").unwrap_or(&mapped.path);
        let open = PathBuf::from(format!("/proc/{}/root", mapped.pid)).join(inside);
        let when = format!("mapped by process {} {} us before", mapped.pid, mapped.late_us());
        self.extender.extend(session, &open, &mapped.path, &when);
        self.extender.names.forget(mapped.pid);
    }
}

impl Heard<'_> {
    /// Where stacks are walked, the new code has its table soon.
    fn see_code(&self, mapped: &Mapped, session: &Session) {
        let Some(unwinder) = &self.extender.unwinder else { return };
        if unwinder.knows(mapped.pid) || !self.any && session.is_traced(mapped.pid) {
            unwinder.look(mapped.pid);
        }
    }
}

impl Watch for Heard<'_> {
    fn fd(&self) -> RawFd {
        self.watch.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        let lost = self.watch.lost();
        for mapped in self.watch.read() {
            self.consider(&mapped, session);
        }
        if self.watch.lost() > lost {
            self.extender.messages.warning("so much was mapped that some new libraries may have been missed");
        }
        Next::Continue
    }
}
