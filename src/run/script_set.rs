//! The scripts of a session. Each is compiled to modules: one when it joins, one per file that appears later.

use super::compiler::Compiler;
use super::watched_files::WatchedFiles;
use crate::console::Messages;
use crate::metrics::ScriptHealth;
use crate::patch_sites::{gates, patch_site, unwinder_sites};
use anyhow::Result;
use host::{Machine, OwnRuntime};
use lang::catalog::FileId;
use lang::{Catalog, SessionState};
use runtime::{AttachError, AttachOptions, Module, ModuleId, ModulePart, PatchSiteFinders, Session};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::Features;
use wire::manifest::CompiledScript;

/// Target of CUDA's driver.
const DRIVER: &str = "libcuda";
/// Timeout for the kernel to remove probes from an overwritten file. A thread waits meanwhile.
const OVERWRITTEN_PATIENCE: Duration = Duration::from_secs(2);

/// The attached scripts, and the state that they share.
pub struct Scripts<'a> {
    machine: &'a Machine,
    messages: &'a Messages,
    features: Features,
    /// Same as in [`AttachOptions`].
    link_pid: Option<u32>,
    attached: RefCell<BTreeMap<u32, AttachedScript<'a>>>,
    known: RefCell<SessionState>,
    /// Files that could not be traced, with the reason.
    untraced: RefCell<BTreeMap<PathBuf, String>>,
    has_failed: Cell<bool>,
    /// True if a runtime without names was reported.
    has_hidden_runtime: Cell<bool>,
    /// Processes that run are made to load an agent by calls of CUDA's driver.
    needs_gates: Cell<bool>,
    /// Files that are watched for being overwritten.
    pub watched: WatchedFiles,
}

struct AttachedScript<'a> {
    compiler: Compiler<'a>,
    modules: Vec<ModuleId>,
}

impl<'a> Scripts<'a> {
    /// Creates the set for a session that begins with `first`, which has number 0.
    pub fn new(
        first: Compiler<'a>,
        machine: &'a Machine,
        messages: &'a Messages,
        features: Features,
        link_pid: Option<u32>,
    ) -> Scripts<'a> {
        let known = RefCell::new(first.session_state());
        let first = AttachedScript { compiler: first, modules: vec![ModuleId::default()] };
        let attached = RefCell::new(BTreeMap::from([(0, first)]));
        let (untraced, has_failed, has_hidden_runtime, needs_gates, watched) = Default::default();
        Scripts {
            machine,
            messages,
            features,
            link_pid,
            attached,
            known,
            untraced,
            has_failed,
            has_hidden_runtime,
            needs_gates,
            watched,
        }
    }

    /// The state that a further script needs.
    pub fn session_state(&self) -> SessionState {
        self.known.borrow().clone()
    }

    /// Attaches a checked script with a number.
    pub fn add(&self, session: &mut Session, number: u32, mut compiler: Compiler<'a>) -> Result<Module> {
        let compiled = compiler.compile(&self.features, self.link_pid.is_some(), Some(session.manifest()))?;
        let module = self.join(session, &compiled, compiler.session_state())?;
        let attached = AttachedScript { compiler, modules: vec![module.id] };
        self.attached.borrow_mut().insert(number, attached);
        Ok(module)
    }

    /// Attaches a script that was compiled after all modules of the session, with a number.
    pub fn add_compiled(
        &self,
        session: &mut Session,
        number: u32,
        compiler: Compiler<'a>,
        compiled: &CompiledScript,
    ) -> Result<()> {
        let module = self.join(session, compiled, compiler.session_state())?;
        self.attached.borrow_mut().insert(number, AttachedScript { compiler, modules: vec![module.id] });
        Ok(())
    }

    /// Adds a module to the session. If it was loaded, its declarations stay known even if it could not be
    /// attached.
    fn join(&self, session: &mut Session, compiled: &CompiledScript, known: SessionState) -> Result<Module> {
        let files = |id: u32| self.machine.open_path(FileId(id)).into();
        let functions = |file: u32, offset: u64| patch_site(self.machine, FileId(file), offset);
        let patch = PatchSiteFinders { functions: &functions, unwinder: unwinder_sites };
        let options =
            AttachOptions { files: &files, link_pid: self.link_pid, stop: None, patch: Some(patch) };
        let failed_before = session.failures().len();
        self.watch_files(session);
        let joined = session.extend(compiled, &options);
        self.messages.not_attached(&session.failures()[failed_before..]);
        if joined.is_ok() || *session.manifest() == compiled.manifest {
            *self.known.borrow_mut() = known;
        }
        Ok(joined?)
    }

    /// Detaches a script and attaches its enabled clauses for the processes that are traced now.
    pub fn again(&self, session: &mut Session, number: u32) -> Result<()> {
        let Some(mut script) = self.remove(session, number) else { return Ok(()) };
        let fits = script.again(self.session_state(), None);
        match fits {
            Ok(()) => self.add(session, number, script).map(drop),
            Err(error) => {
                self.attached
                    .borrow_mut()
                    .insert(number, AttachedScript { compiler: script, modules: vec![] });
                Err(error)
            }
        }
    }

    /// Removes a script; its maps stay.
    pub fn remove(&self, session: &mut Session, number: u32) -> Option<Compiler<'a>> {
        let script = self.attached.borrow_mut().remove(&number)?;
        for &module in &script.modules {
            session.detach_part(ModulePart { module, clause: None });
        }
        Some(script.compiler)
    }

    /// Disables clauses of a script.
    pub fn stop(&self, session: &mut Session, number: u32, clauses: &[u32]) {
        let mut attached = self.attached.borrow_mut();
        let Some(script) = attached.get_mut(&number) else { return };
        for &module in &script.modules {
            for &clause in clauses {
                session.detach_part(ModulePart { module, clause: Some(clause) });
            }
        }
        script.compiler.disable(clauses);
    }

    /// Enables clauses of a script again.
    pub fn resume(&self, session: &mut Session, number: u32, clauses: &[u32]) -> Result<()> {
        let mut attached = self.attached.borrow_mut();
        let Some(script) = attached.get_mut(&number) else { return Ok(()) };
        script.compiler.enable(clauses);
        script.compiler.again(self.session_state(), Some(clauses))?;
        let compiled =
            script.compiler.compile(&self.features, self.link_pid.is_some(), Some(session.manifest()))?;
        let module = self.join(session, &compiled, script.compiler.session_state())?;
        script.modules.push(module.id);
        Ok(())
    }

    /// Runs END of clauses.
    pub fn run_end_programs(
        &self,
        session: &mut Session,
        number: u32,
        clauses: &[u32],
    ) -> std::io::Result<()> {
        let attached = self.attached.borrow();
        let Some(script) = attached.get(&number) else { return Ok(()) };
        let mut parts = script.modules.iter().flat_map(|&module| {
            clauses.iter().map(move |&clause| ModulePart { module, clause: Some(clause) })
        });
        parts.try_for_each(|part| session.run_end_programs(part))
    }

    /// Gives functions of CUDA's driver gates, too, in processes that are patched from now on.
    pub fn add_gates(&self, session: &mut Session) {
        self.needs_gates.set(true);
        for driver in self.machine.files(DRIVER).unwrap_or_default() {
            session.add_gates(gates(self.machine, driver.id));
        }
    }

    /// Attaches the scripts to a later file, if its name matches a target; reports the result. `open` is its path
    /// for opening.
    pub fn extend(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        if self.needs_gates.get()
            && self.machine.matches(DRIVER, shown)
            && let Ok(driver) = self.machine.add_file(open, shown, when)
        {
            session.add_gates(gates(self.machine, driver));
        }
        if self.may_probe(shown) {
            self.extend_by_content(session, open, shown, when);
        } else if self.may_probe_program(shown) {
            self.extend_by_own_runtime(session, open, shown, when);
        }
    }

    /// Attaches the scripts to the CUDA runtime that a library has for itself.
    fn extend_by_own_runtime(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        let before = session.attached();
        let library = shown.display();
        match self.machine.own_runtime(open, shown) {
            Some(OwnRuntime::Named) => self.extend_by_content(session, open, shown, when),
            // NVIDIA's own libraries are such: one is named.
            Some(OwnRuntime::Stripped)
                if self.is_written_here() && !self.has_hidden_runtime.replace(true) =>
            {
                self.messages.note(&format!(
                    "`{library}` has a CUDA runtime of its own without names, as others may: only `cuda:` and `libcuda` have its calls"
                ));
            }
            _ => {}
        }
        if session.attached() > before {
            self.messages
                .note(&format!("`{library}` has a CUDA runtime of its own, whose calls are traced too"));
        }
    }

    /// Whether the user has written one of the scripts.
    fn is_written_here(&self) -> bool {
        self.attached.borrow().values().any(|script| !script.compiler.is_embedded())
    }

    /// Whether a script may have a probe in a file, judged by its path.
    pub fn may_probe(&self, shown: &Path) -> bool {
        self.attached.borrow().values().any(|script| script.compiler.may_probe(shown))
    }

    /// Whether a file that is mapped may have probes by its name, as a program may, or is CUDA's driver.
    pub fn may_concern(&self, shown: &Path) -> bool {
        self.may_probe(shown) || self.may_probe_program(shown) || crate::gpu::is_driver(shown)
    }

    /// The same for a program, which may have the CUDA runtime linked in.
    pub fn extend_program(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        if self.may_probe_program(shown) {
            self.extend_by_content(session, open, shown, when);
        }
    }

    fn may_probe_program(&self, shown: &Path) -> bool {
        self.attached.borrow().values().any(|script| script.compiler.may_probe_program(shown))
    }

    /// Removes the probes from an overwritten file: they would be written into other code when it is mapped again.
    /// Afterwards the file counts as new. Returns whether it was overwritten.
    pub fn detach_overwritten(&self, session: &mut Session, open: &Path, shown: &Path) -> bool {
        let overwritten = self.machine.overwritten(open);
        if let Some(file) = overwritten {
            session.detach_file(file.0).wait(OVERWRITTEN_PATIENCE);
            self.messages.detail(|| format!("{}: overwritten, its probes were removed", shown.display()));
        }
        overwritten.is_some()
    }

    /// Watches files that were added since the last call, if files are watched.
    pub fn watch_files(&self, session: &Session) {
        self.watched.add_taken(self.machine, session);
    }

    /// Whether the clauses for a library that was loaded later could not be loaded, which was reported as an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Reports the libraries that were not loaded, if that is why nothing was traced; returns whether it is.
    /// `is_complete`: all mappings of traced processes were reported.
    pub fn report_missing(&self, is_complete: bool) -> bool {
        let attached = self.attached.borrow();
        let mut missing: Vec<&str> =
            attached.values().flat_map(|script| script.compiler.waits_for()).collect();
        missing.sort_unstable();
        missing.dedup();
        let nothing =
            |script: &AttachedScript| script.modules.len() == 1 && !script.compiler.waits_for().is_empty();
        let is_missing = attached.values().all(nothing);
        // A file that was loaded but could not be traced was already reported.
        if is_missing && self.untraced.borrow().is_empty() {
            let what = match missing.as_slice() {
                ["*"] => "a file that has the function".to_owned(),
                names => format!("`{}`", names.join("` or `")),
            };
            let why = match is_complete {
                true if missing.iter().any(|name| is_of_cuda(name)) => format!(
                    "no traced process loaded {what}; does the program use CUDA, and did it get that far?"
                ),
                true => format!(
                    "no traced process loaded {what}; is the name right, and did the program get that far?"
                ),
                false => {
                    format!("{what} was not loaded before the trace ended, or it was loaded and not noticed")
                }
            };
            self.messages.note(&format!("nothing was traced: {why}"));
        }
        is_missing
    }

    fn extend_by_content(&self, session: &mut Session, open: &Path, shown: &Path, when: &str) {
        let start = Instant::now();
        let added = match self.machine.add_file(open, shown, when) {
            Ok(file) => self.extend_all(session, file),
            Err(error) => Err(error.into()),
        };
        if matches!(added, Ok(1..)) {
            self.untraced.borrow_mut().remove(shown);
        }
        match added {
            Ok(0) => {}
            Ok(attached) => self.messages.detail(|| {
                format!("{}: {when}; {attached} probes attached in {:?}", shown.display(), start.elapsed())
            }),
            Err(error) => {
                let error = error.context(format!("{}: not traced", shown.display()));
                match error.downcast_ref() {
                    // Else the end of the run would look as if the library had not been used.
                    Some(AttachError::Load(_)) => {
                        self.messages.error(&error);
                        self.has_failed.set(true);
                    }
                    _ => self.messages.warning(&format!("{error:#}")),
                }
                self.untraced.borrow_mut().insert(shown.to_owned(), format!("{error:#}"));
            }
        }
    }

    fn extend_all(&self, session: &mut Session, file: FileId) -> Result<usize> {
        let mut count = 0;
        for script in self.attached.borrow_mut().values_mut() {
            if !script.compiler.wants_file(file) {
                continue;
            }
            let joined = self.extend_script(session, &mut script.compiler, file);
            let Some(module) = joined.inspect_err(|_| script.compiler.refuse(file))? else { continue };
            script.modules.push(module.id);
            count += module.attached;
        }
        Ok(count)
    }

    fn extend_script(
        &self,
        session: &mut Session,
        compiler: &mut Compiler<'a>,
        file: FileId,
    ) -> Result<Option<Module>> {
        let Some(compiled) = compiler.extend(file, session.manifest(), self.session_state())? else {
            return Ok(None);
        };
        self.join(session, &compiled, compiler.session_state()).map(Some)
    }
}

impl ScriptHealth for Scripts<'_> {
    fn untraced(&self) -> Vec<(PathBuf, String)> {
        self.untraced.borrow().clone().into_iter().collect()
    }

    fn are_waiting(&self) -> bool {
        self.attached.borrow().values().any(|script| !script.compiler.waits_for().is_empty())
    }
}

/// Whether a target is a library of CUDA: `libcuda`, `cudart`.
fn is_of_cuda(target: &str) -> bool {
    let alias = target.strip_prefix("lib").unwrap_or(target);
    cuda::Library::all().any(|library| library.alias().trim_start_matches("lib") == alias)
}
