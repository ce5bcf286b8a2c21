//! The compiler of a run: a script is compiled at the start, and again for each file that appears later.
//!
//! A script that joins others starts from their state ([`SessionState`]) and from the manifest of their session.

use crate::cli::{Cli, Stage};
use crate::console::Messages;
use crate::script::{self, Script};
use anyhow::{Result, anyhow};
use codegen::{Arch, Follow};
use host::Machine;
use lang::builtins::assert::FAILS;
use lang::catalog::FileId;
use lang::hir::{Attach, Builtin, Environment, Expr, ExprKind, Hook, TestKind, Trigger, Type, visit};
use lang::syntax::ast;
use lang::syntax::ast::SpecPart;
use lang::syntax::ast::text;
use lang::{CheckedScript, Diagnostics, SessionState, Severity, Source, Span};
use linux::proc;
use std::collections::HashSet;
use std::path::Path;
use wire::manifest::{self, CompiledScript, PIDS_MAP, Program, Side, Site};
use wire::{Features, Manifest};

/// Largest number of reasons why an embedded script may be incomplete that are printed.
const MOST_REASONS: usize = 3;

/// A clause as the user wrote it.
#[derive(Debug)]
pub struct SourceClause {
    /// Span in the script.
    pub span: Span,
    /// Numbers of the clauses that it was expanded to.
    pub parts: Vec<u32>,
}

/// A script and all inputs of its compilation.
pub struct Compiler<'a> {
    script: Script,
    machine: &'a Machine,
    cli: &'a Cli,
    messages: &'a Messages,
    ast: ast::Script,
    /// Errors and warnings of parsing, which are reported with those of checking.
    parse_findings: Diagnostics,
    /// Numbers of disabled clauses.
    disabled: HashSet<u32>,
    /// True if it was attached before, so BEGIN has run.
    begun: bool,
    checked: Option<CheckedScript>,
    /// Warnings about it.
    warnings: Vec<lang::Diagnostic>,
    /// Files that existed when it was compiled.
    files: HashSet<FileId>,
    /// Later files that it could not be attached to. The reason was reported.
    refused: Vec<FileId>,
    options: Option<codegen::Options>,
    /// True if it is compiled for the traced processes.
    in_process: bool,
    /// Set if a part of it runs in the kernel and a part in the traced processes.
    part: Option<codegen::Part>,
}

/// Inputs that all scripts of a run share.
#[derive(Copy, Clone)]
pub struct CompilerInputs<'a> {
    pub machine: &'a Machine,
    pub cli: &'a Cli,
    pub messages: &'a Messages,
}

impl<'a> Compiler<'a> {
    /// Creates the compiler, for the kernel; nothing is compiled yet.
    pub fn new(script: Script, inputs: CompilerInputs<'a>) -> Compiler<'a> {
        let CompilerInputs { machine, cli, messages } = inputs;
        let (ast, disabled, files) = (ast::Script::default(), HashSet::new(), HashSet::new());
        let (begun, checked, options, refused) = (false, None, None, Vec::new());
        Compiler {
            script,
            machine,
            cli,
            messages,
            ast,
            parse_findings: Diagnostics::default(),
            disabled,
            begun,
            checked,
            warnings: Vec::new(),
            files,
            refused,
            options,
            in_process: false,
            part: None,
        }
    }

    /// Leaves the clauses that the division has in the kernel, if any, to the compiler that is returned. `known`: the state of the session.
    ///
    /// # Errors
    /// The clauses are no script for the kernel; the reasons were reported.
    pub fn divide(&mut self, part: codegen::Part, known: SessionState) -> Result<Option<Compiler<'a>>> {
        self.part = Some(part.clone());
        if part.kernel.is_empty() {
            return Ok(None);
        }
        let mut other = Compiler::new(self.script.clone(), self.inputs());
        (other.ast, other.files) = (self.ast.clone(), self.files.clone());
        let (checked, mut diags) =
            other.check_again(&other.remaining(), &other.front_options(known, None))?;
        let spans: Vec<Span> = (0..)
            .zip(other.clauses())
            .filter(|(number, _)| part.kernel.contains(number))
            .map(|(_, clause)| clause.span)
            .collect();
        let is_new = |found: &lang::Diagnostic| {
            let is_within = |span: &Span| span.start <= found.span.start && found.span.end <= span.end;
            spans.iter().any(is_within) && !self.warnings.contains(found)
        };
        diags.list.retain(is_new);
        self.print_diagnostics(&diags);
        (other.checked, other.part) = (Some(checked), Some(part));
        Ok(Some(other))
    }

    fn inputs(&self) -> CompilerInputs<'a> {
        CompilerInputs { machine: self.machine, cli: self.cli, messages: self.messages }
    }

    /// Checks a script, for the place where it runs; reports errors. Also returns the warnings.
    fn check_again(
        &self,
        script: &ast::Script,
        options: &lang::Options,
    ) -> Result<(CheckedScript, Diagnostics)> {
        let mut diags = Diagnostics::default();
        self.machine.put_probes_at_starts(self.in_process);
        match lang::check(script, self.source(), options, self.machine, &mut diags) {
            Some(checked) if !diags.has_errors() => Ok((checked, diags)),
            _ => {
                self.print_diagnostics(&diags);
                Err(wrong(&diags))
            }
        }
    }

    /// The probes of a clause as written.
    pub fn text_of(&self, clause: &ast::Clause) -> String {
        let (first, last) = (clause.probes.first(), clause.probes.last());
        let range = first.zip(last).map(|(first, last)| Span { end: last.span.end, ..first.span });
        range.map_or_else(String::new, |span| self.source().slice(span).to_owned())
    }

    /// Text of the script and its imports.
    pub fn source(&self) -> &Source {
        &self.script.source
    }

    /// Name of the script in the output among several scripts; empty for a single script.
    pub fn heading(&self) -> &str {
        &self.script.heading
    }

    /// Name of the object among several: that of the script, and the place of a part.
    pub fn object_name(&self) -> String {
        match (self.part.is_some() && !self.in_process, self.heading()) {
            (false, script) => script.to_owned(),
            (true, "") => "kernel".to_owned(),
            (true, script) => format!("{script}.kernel"),
        }
    }

    /// Whether code was generated before.
    pub fn was_compiled(&self) -> bool {
        self.options.is_some()
    }

    /// The state that the next script needs of this one and the previous ones, after checking.
    pub fn session_state(&self) -> SessionState {
        self.checked.as_ref().map(|checked| SessionState::of(&checked.program)).unwrap_or_default()
    }

    /// Clauses of the script.
    pub fn clauses(&self) -> impl Iterator<Item = &ast::Clause> {
        self.ast.items.iter().filter_map(|item| match item {
            ast::Item::Clause(clause) => Some(clause),
            _ => None,
        })
    }

    /// The clauses in the text, without those that expansion has added.
    pub fn written(&self) -> Vec<SourceClause> {
        let mut all: Vec<SourceClause> = Vec::new();
        for (clause, number) in self.clauses().zip(0..) {
            match all.iter_mut().find(|written| written.span == clause.span) {
                Some(written) => written.parts.push(number),
                None => all.push(SourceClause { span: clause.span, parts: vec![number] }),
            }
        }
        all.retain(|written| written.span != Span::default());
        all
    }

    /// Parses, resolves and checks for the kernel; reports errors.
    pub fn front(&mut self, known: SessionState) -> Result<()> {
        self.parse()?;
        self.check_for(false, known)
    }

    /// Parses and expands; errors that do not prevent checking are reported with its own.
    pub fn parse(&mut self) -> Result<()> {
        let mut diags = Diagnostics::default();
        let options = self.front_options(SessionState::default(), None);
        let dump = |ast: &ast::Script| {
            if self.dumps(Stage::Ast) {
                print!("{}", lang::syntax::print::dump(ast));
            }
        };
        let Some(ast) = lang::expand(self.source(), &options, dump, &mut diags) else {
            self.print_diagnostics(&diags);
            return Err(wrong(&diags));
        };
        (self.ast, self.parse_findings) = (ast, diags);
        Ok(())
    }

    /// Resolves and checks the whole script for the place where it is to run; reports errors.
    pub fn check_for(&mut self, in_process: bool, known: SessionState) -> Result<()> {
        (self.in_process, self.part, self.options) = (in_process, None, None);
        self.check(known, self.parse_findings.clone())
    }

    /// Resolves and checks again, all clauses or only some, after the scope of the machine or the clauses have
    /// changed. BEGIN does not run again.
    pub fn again(&mut self, known: SessionState, only: Option<&[u32]>) -> Result<()> {
        self.begun = true;
        let others = (0..self.clauses().count() as u32)
            .filter(|clause| only.is_some_and(|only| !only.contains(clause)));
        let disabled = self.disabled.clone();
        self.disabled.extend(others);
        let checked = self.check(known, Diagnostics::default());
        self.disabled = disabled;
        checked
    }

    /// Disables clauses; the others keep their numbers.
    pub fn disable(&mut self, clauses: &[u32]) {
        self.disabled.extend(clauses);
    }

    /// Enables clauses again.
    pub fn enable(&mut self, clauses: &[u32]) {
        self.disabled.retain(|clause| !clauses.contains(clause));
    }

    /// The script in which disabled clauses have no attach points.
    fn remaining(&self) -> ast::Script {
        let mut script = self.ast.clone();
        let clauses = script.items.iter_mut().filter_map(|item| match item {
            ast::Item::Clause(clause) => Some(clause),
            _ => None,
        });
        for (clause, number) in clauses.zip(0..) {
            let is_disabled = self.disabled.contains(&number);
            clause.probes.retain(|probe| !(is_disabled || self.begun && is_begin(probe)));
        }
        script
    }

    fn check(&mut self, known: SessionState, mut diags: Diagnostics) -> Result<()> {
        let options = self.front_options(known, None);
        self.machine.put_probes_at_starts(self.in_process);
        let checked = lang::check(&self.remaining(), self.source(), &options, self.machine, &mut diags);
        if let Some(checked) = checked.as_ref().filter(|_| !self.waits()) {
            let mut needed = checked.pending.iter().filter(|pending| pending.needed);
            if self.script.is_embedded()
                && let Some(pending) = needed.next()
            {
                return Err(self.missing_library(pending));
            }
            needed.for_each(|pending| pending.refuse(self.machine, &mut diags));
        }
        if self.script.is_embedded() && diags.has_errors() && !self.cli.verbose {
            return Err(self.not_here(&diags));
        }
        self.print_diagnostics(&diags);
        let checked = checked.filter(|_| !diags.has_errors()).ok_or_else(|| wrong(&diags))?;
        self.refuse_no_tests(&checked)?;
        if self.dumps(Stage::Hir) {
            print!("{}", lang::hir::print::print(&checked.program));
        }
        self.files_taken();
        self.report_pending(&checked);
        self.files = self.machine.files_taken().into_iter().map(|file| file.id).collect();
        (self.checked, self.warnings) = (Some(checked), diags.list);
        Ok(())
    }

    /// Prints the compiler's messages. Warnings of an embedded script have no positions in its text, which is not
    /// the user's, and form one message.
    fn print_diagnostics(&self, diags: &Diagnostics) {
        if !self.script.is_embedded() || diags.has_errors() || self.cli.verbose {
            return self.messages.diagnostics(diags, self.source());
        }
        let script = self.script.source.name.trim_end_matches(".ct");
        let texts = diags.list.iter().map(|warning| format!("{} ({})", warning.message, warning.code));
        let mut reasons = distinct(texts);
        let more = reasons.split_off(reasons.len().min(MOST_REASONS)).len();
        if more > 0 {
            reasons.push(format!("{more} more"));
        }
        if !reasons.is_empty() {
            let reasons = reasons.join("; ");
            self.messages
                .warning(&format!("`{script}` may be incomplete here: {reasons}; `-v` has the lines"));
        }
    }

    /// The error for an embedded script that cannot run on this machine, without positions in that script.
    fn not_here(&self, diags: &Diagnostics) -> anyhow::Error {
        let script = self.script.source.name.trim_end_matches(".ct");
        let errors = || diags.list.iter().filter(|diag| diag.severity == Severity::Error);
        if let Some(text) = errors().find_map(|error| error.message.strip_prefix(FAILS)) {
            return anyhow!("`{script}`: {text}");
        }
        let reasons = distinct(errors().map(|error| format!("{} ({})", error.message, error.code)));
        anyhow!("`{script}` cannot run here: {}", reasons.join("; "))
    }

    /// The error for a missing library of an embedded script, without a position in that script.
    fn missing_library(&self, pending: &lang::PendingTarget) -> anyhow::Error {
        let (library, script) = (&pending.target, self.script.source.name.trim_end_matches(".ct"));
        let what = match library.as_str() {
            "libcuda" => "no NVIDIA driver library (libcuda.so.1)".to_owned(),
            other => format!("no `{other}`"),
        };
        anyhow!(
            "{what} is installed where libraries are looked for, and no process has one mapped; trace a program, \
             `cudatrace {script} -- COMMAND`, or wait until one loads it, `--wait`"
        )
    }

    fn front_options(&self, known: SessionState, only_files: Option<Vec<FileId>>) -> lang::Options {
        let (params, map_prefix) = (self.script.params.clone(), self.script.scope.clone());
        let (given, environment) = (self.cli.given.clone(), script::settings().collect());
        lang::Options {
            unsafe_ok: self.cli.allow_unsafe,
            known: Some(known),
            only_files,
            params,
            map_prefix,
            given,
            environment,
            run: self.cli.run(),
            for_other_machine: self.cli.check,
            probe_filter: self.cli.probe_filter.clone(),
        }
    }

    /// Whether the script is an embedded one.
    pub fn is_embedded(&self) -> bool {
        self.script.is_embedded()
    }

    /// Printer of messages.
    pub fn messages(&self) -> &'a Messages {
        self.messages
    }

    /// Whether the script may use user stacks, now or in a module that joins later.
    pub fn mentions_user_stacks(&self) -> bool {
        lang::expand::mentions_user_stacks(&self.ast)
    }

    /// Whether the script may use native frames of user stacks, now or in a module that joins later.
    pub fn mentions_native_stacks(&self) -> bool {
        lang::expand::mentions_native_stacks(&self.ast)
    }

    /// Whether programs look for the control block of their thread.
    pub fn uses_thread_pointer(&self) -> bool {
        let mut found = false;
        let mut see = |e: &Expr| found |= matches!(e.kind, ExprKind::Builtin(Builtin::ThreadPointer, _));
        let probes = self.checked.iter().flat_map(|checked| &checked.program.probes);
        probes.for_each(|probe| visit::visit_probe(probe, &mut see));
        found
    }

    /// Whether a body that the tracer runs itself, such as BEGIN, uses user stacks: those are the tracer's own.
    pub fn uses_own_stacks(&self) -> bool {
        let mut found = false;
        let mut see = |e: &Expr| {
            found |= match e.kind {
                ExprKind::Stack => matches!(e.ty, Type::Stack { user: true, .. }),
                ExprKind::StackLen { user, .. } => user,
                _ => false,
            }
        };
        let probes = self.checked.iter().flat_map(|checked| &checked.program.probes);
        let own = probes.filter(|probe| probe.attach.environment() == Some(Environment::Tracer));
        own.for_each(|probe| visit::visit_probe(probe, &mut see));
        found
    }

    /// Refuses a request for tests or benches that the script does not have.
    fn refuse_no_tests(&self, checked: &CheckedScript) -> Result<()> {
        let lang::Run::Tests { kind, names } = self.cli.run() else { return Ok(()) };
        if checked
            .program
            .probes
            .iter()
            .any(|probe| matches!(probe.attach, Attach::Event(Trigger::Test { .. })))
        {
            return Ok(());
        }
        let has = self.tests(kind);
        Err(match has.is_empty() {
            true => anyhow!("the script has no `{}:NAME`", kind.word()),
            false => anyhow!("no `{}:{names}`; there are {}", kind.word(), has.join(", ")),
        })
    }

    /// Names of the script's tests or benches.
    fn tests(&self, kind: TestKind) -> Vec<&str> {
        let of_kind = |probe: &&ast::ProbeSpec| lang::resolve::test_kind(probe) == Some(kind);
        let probes = self.clauses().flat_map(|clause| &clause.probes).filter(of_kind);
        probes.filter_map(|probe| Some(text(&probe.parts.first()?.node))).collect()
    }

    fn dumps(&self, stage: Stage) -> bool {
        self.cli.debug.contains(&stage) || self.cli.debug.contains(&Stage::All)
    }

    fn files_taken(&self) {
        for file in self.machine.files_taken() {
            self.messages.detail(|| format!("{}: {}", file.path, self.machine.why(file.id)));
        }
    }

    /// Whether a missing library may be mapped later: by a traced program, otherwise only if the user requests it.
    fn waits(&self) -> bool {
        self.cli.check || self.cli.wait || !self.machine.scope().is_system_wide()
    }

    fn report_pending(&self, checked: &CheckedScript) {
        let process = if self.machine.scope().is_system_wide() { "a process" } else { "the program" };
        for pending in &checked.pending {
            let meant = pending.meant(self.machine);
            let meant = meant.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
            self.messages.note(&match pending.target.as_str() {
                "*" => format!("no executed file has the function yet: waiting for {process} to load one"),
                target if self.cli.check => {
                    format!("functions of `{target}` were not checked: it is not on this machine{meant}")
                }
                target => format!("waiting for {process} to load `{target}`{meant}"),
            });
            self.messages
                .detail(|| format!("looked for `{}` in {}", pending.target, pending.looked_in.join(", ")));
        }
    }

    /// Whether functions of libraries that no process has mapped yet may be probed later.
    pub fn has_pending(&self) -> bool {
        self.checked.as_ref().is_some_and(|checked| !checked.pending.is_empty())
    }

    /// Targets that no process has mapped yet, if the script has no other functions to probe.
    pub fn waits_for(&self) -> Vec<&str> {
        let Some(checked) = &self.checked else { return Vec::new() };
        let is_there = |probe: &lang::hir::Probe| probe.attach.sites().iter().any(|site| site.file.is_some());
        if checked.program.probes.iter().any(is_there) {
            return Vec::new();
        }
        let was_refused = |target: &&str| self.refused.iter().any(|&file| self.machine.belongs(target, file));
        checked
            .pending
            .iter()
            .map(|pending| pending.target.as_str())
            .filter(|name| !was_refused(name))
            .collect()
    }

    /// Whether the script asks to run in the traced processes.
    pub fn asks_for_process(&self) -> bool {
        lang::config(&self.ast, &self.front_options(SessionState::default(), None)).in_process
    }

    /// Generates code for this kernel, optionally as a module of a running session. Only calls in the machine's
    /// scope are traced; with `by_link`, the links filter them. Prints the stages that the user wants to see.
    pub fn compile(
        &mut self,
        features: &Features,
        by_link: bool,
        base: Option<&Manifest>,
    ) -> Result<CompiledScript> {
        let options = self.codegen_options(features, by_link, base);
        self.print_stages(&options)?;
        let compiled = self.generate_with(options)?;
        self.print_manifest(&compiled.manifest)?;
        Ok(compiled)
    }

    /// Prints what [`Compiler::compile`] would print of the last generated code.
    pub fn print(&self, compiled: &CompiledScript) -> Result<()> {
        self.options.as_ref().map_or(Ok(()), |options| self.print_stages(options))?;
        self.print_manifest(&compiled.manifest)
    }

    /// As [`Compiler::compile`], without a print.
    pub fn generate(
        &mut self,
        features: &Features,
        by_link: bool,
        base: Option<&Manifest>,
    ) -> Result<CompiledScript> {
        self.generate_with(self.codegen_options(features, by_link, base))
    }

    fn generate_with(&mut self, options: codegen::Options) -> Result<CompiledScript> {
        let compiled = codegen::compile(&self.checked()?.program, self.source(), &options)?;
        self.refuse_returns_of_go(&compiled.manifest)?;
        self.options = Some(options);
        Ok(compiled)
    }

    fn checked(&self) -> Result<&CheckedScript> {
        self.checked.as_ref().ok_or_else(|| anyhow!("the script was not checked"))
    }

    fn print_stages(&self, options: &codegen::Options) -> Result<()> {
        for (stage, _) in STAGES.iter().filter(|(_, named)| self.dumps(*named)) {
            print!("{}", codegen::dump(&self.checked()?.program, self.source(), options, *stage)?);
        }
        Ok(())
    }

    fn print_manifest(&self, manifest: &Manifest) -> Result<()> {
        if self.dumps(Stage::Manifest) {
            println!("{}", serde_json::to_string_pretty(manifest)?);
        }
        Ok(())
    }

    fn codegen_options(
        &self,
        features: &Features,
        by_link: bool,
        base: Option<&Manifest>,
    ) -> codegen::Options {
        let traced = !by_link && !self.machine.scope().is_system_wide();
        let follows = base.is_some_and(|base| base.internal_maps.iter().any(|map| map == PIDS_MAP));
        let namespace = proc::own_pid_namespace().filter(|namespace| !namespace.is_initial_pid());
        let namespace = namespace.filter(|_| *features != Features::IN_PROCESS);
        codegen::Options {
            arch: if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 },
            pid_filter: traced,
            own_process: self.probes_own_files().then(std::process::id),
            follow: if traced && !follows && !self.cli.no_children { self.follow() } else { None },
            unwind: self.unwind(features),
            thread_base: self.thread_base(features),
            pid_namespace: namespace.map(|namespace| (namespace.device, namespace.inode)),
            script: self.script.heading.clone(),
            base: base.cloned(),
            sums: self.cli.export.iter().any(|request| request.kind.metrics),
            self_describing: self.cli.emit.is_some(),
            part: self.part.clone(),
            ..codegen::Options::new(*features, cpus())
        }
    }

    /// Whether every process is traced and this process has mapped a probed file, such as libc.
    fn probes_own_files(&self) -> bool {
        let Some(checked) = self.checked.as_ref().filter(|_| self.machine.scope().is_system_wide()) else {
            return false;
        };
        let ours = proc::mappings(std::process::id());
        let is_ours = |path: &Path| ours.iter().any(|mapping| mapping.name.path() == Some(path));
        checked.program.files.iter().any(|file| {
            let path = Path::new(&file.path);
            is_ours(path) || path.canonicalize().is_ok_and(|path| is_ours(&path))
        })
    }

    /// Field offsets of the tracepoint of new tasks; without it children are not followed.
    fn follow(&self) -> Option<Follow> {
        let found = runtime::kernel::tracefs::tracepoint_format("task", "task_newtask");
        let offset = |field| found.as_ref().ok().and_then(|format| format.offset(field));
        let follow = offset("pid").zip(offset("clone_flags"));
        if follow.is_none() {
            let why = found.err().map_or("it lacks a field".to_string(), |error| error.to_string());
            self.messages.warning(&format!(
                "children of the traced processes are not followed: tracepoint task_newtask: {why}"
            ));
        }
        follow.map(|(pid, clone_flags)| Follow { pid, clone_flags })
    }

    /// Refuses return probes in Go programs. Go detects the replaced return address when it moves a stack, and
    /// then ends the program.
    fn refuse_returns_of_go(&self, manifest: &Manifest) -> Result<()> {
        let in_go = |site: &Site| self.machine.is_go(FileId(site.file));
        let kills = |program: &&Program| match &program.attach {
            manifest::Attach::Functions { hook: Hook::Uprobe, side: Side::Return | Side::Session, sites } => {
                sites.iter().any(in_go)
            }
            _ => false,
        };
        match manifest.programs.iter().find(kills) {
            None => Ok(()),
            Some(Program { place, text, .. }) => Err(anyhow!(
                "{}, `{text}`: a return probe would crash this program, which is written in Go and moves its stacks; \
                 probe entries only (`uprobe`), or a C library that it calls",
                manifest.line_of(*place)
            )),
        }
    }

    /// Whether a probe of the script may be in this file, which did not exist when the script was compiled.
    pub fn wants_file(&self, file: FileId) -> bool {
        !self.files.contains(&file) && self.targets().any(|target| self.machine.belongs(target, file))
    }

    /// Whether a file may be relevant, judged by its path.
    pub fn may_probe(&self, shown: &std::path::Path) -> bool {
        self.targets().any(|target| self.machine.matches(target, shown))
    }

    /// The same for a program, which may have the CUDA runtime linked in.
    pub fn may_probe_program(&self, shown: &std::path::Path) -> bool {
        self.targets().any(|target| self.machine.matches_program(target, shown))
    }

    /// Whether only calls of functions depend on the traced processes, so that the filter of a link suffices.
    pub fn runs_by_calls_alone(&self) -> bool {
        let mut probes = self.checked.iter().flat_map(|checked| &checked.program.probes);
        probes.all(|probe| !probe.attach.environment().is_some_and(Environment::has_process))
    }

    /// Targets of the script's uprobes, as written, and of its operations.
    fn targets(&self) -> impl Iterator<Item = &str> {
        self.clauses().flat_map(|clause| &clause.probes).filter_map(target)
    }

    /// Records that the script cannot be attached to a later file, so that it is not tried again.
    pub fn refuse(&mut self, file: FileId) {
        self.files.insert(file);
        self.refused.push(file);
    }

    /// Compiles the script for a later file; `None` if it has no probe there.
    pub fn extend(
        &mut self,
        file: FileId,
        base: &Manifest,
        known: SessionState,
    ) -> Result<Option<CompiledScript>> {
        let front = self.front_options(known, Some(vec![file]));
        let (checked, _) = self.check_again(&self.remaining(), &front)?;
        let options = self.options.clone().ok_or_else(|| anyhow!("the script was not compiled"))?;
        if !checked.program.probes.iter().any(|probe| options.has_clause(probe.clause)) {
            return Ok(None);
        }
        let options = codegen::Options { base: Some(base.clone()), follow: None, ..options };
        let compiled = codegen::compile(&checked.program, self.source(), &options)?;
        self.refuse_returns_of_go(&compiled.manifest)?;
        self.checked = Some(checked);
        self.files.insert(file);
        Ok(Some(compiled))
    }
}

const STAGES: [(codegen::Stage, Stage); 3] =
    [(codegen::Stage::Ir, Stage::Ir), (codegen::Stage::Opt, Stage::Opt), (codegen::Stage::Bpf, Stage::Bpf)];

/// The target of a probe: a file, or a library by name.
fn target(probe: &ast::ProbeSpec) -> Option<&str> {
    if let Some(api) = cuda::operations::Api::of(&probe.provider.node) {
        let function = lang::expand::operations::functions(probe).next();
        return Some(function.map_or(api.library, lang::expand::operations::library).alias());
    }
    match &probe.parts.first()?.node {
        SpecPart::Text(target) | SpecPart::Quoted(target) => Some(target),
        SpecPart::QuotedAt(..) | SpecPart::Regex(_) | SpecPart::Option(_) => None,
    }
}

fn is_begin(probe: &ast::ProbeSpec) -> bool {
    probe.provider.node.eq_ignore_ascii_case("BEGIN")
}

fn wrong(diags: &Diagnostics) -> anyhow::Error {
    let errors = diags.list.iter().filter(|d| d.severity == lang::Severity::Error).count();
    anyhow!("the script has {errors} error{}", if errors == 1 { "" } else { "s" })
}

/// Each text once, in the same order.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

/// Number of possible CPUs.
fn cpus() -> u32 {
    // SAFETY: no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or(1).max(1)
}
