//! The plan of a run, made before anything is opened or started: the scripts, compiled for the place where they run, and the target.

use super::compiled::{self, CompiledScripts};
use super::compiler::{Compiler, CompilerInputs};
use super::setup;
use crate::cli::{Cli, Stage};
use crate::console::Messages;
use crate::script::Script;
use crate::{Failure, export, gpu, metrics};
use host::{Machine, Scope};
use lang::catalog::FileId;
use runtime::gpu::{AgentFile, KindSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;
use wire::Features;
use wire::Manifest;
use wire::manifest::CompiledScript;

/// The processes that a run traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The command, which the run starts.
    pub argv: Option<Vec<OsString>>,
    /// Processes of `-p` and, unless disabled, all their children.
    pub pids: Vec<u32>,
}

impl Target {
    /// The target that the command line names.
    pub fn of(cli: &Cli) -> Result<Target, Failure> {
        let argv = setup::command(cli).map_err(Failure::wrong)?;
        Ok(Target { argv, pids: setup::pids(cli).map_err(Failure::wrong)? })
    }

    /// The machine as scripts with this target see it.
    pub fn machine(&self, cli: &Cli) -> Machine {
        let (pids, command, lib_overrides) = (self.pids.clone(), self.argv.clone(), cli.libs.clone());
        let environment = cli.environment.iter().cloned().collect();
        let scope = Scope { pids, command, environment, lib_overrides };
        host::search_in_folders(cli.debuginfo.clone());
        Machine::new(scope).with_kernel(&crate::kernel_catalog::RunningKernel)
    }

    /// Whether all processes are traced.
    pub fn is_all(&self) -> bool {
        self.argv.is_none() && self.pids.is_empty()
    }

    fn count(&self) -> usize {
        self.pids.len() + usize::from(self.argv.is_some())
    }
}

/// The agent's file, and the kinds of records that it is to make.
#[derive(Copy, Clone)]
pub struct WantedRecords<'a> {
    pub file: &'a AgentFile,
    pub kinds: KindSet,
}

/// A run that can begin.
pub struct Plan<'a> {
    pub cli: &'a Cli,
    pub messages: &'a Messages,
    pub machine: &'a Machine,
    pub target: Target,
    /// The agent for records of GPUs, if a script has probes for them.
    pub records: Option<WantedRecords<'a>>,
    /// Compiled scripts. Each is a module that was compiled after the previous ones.
    pub modules: Vec<CompiledScript>,
    /// Features of the kernel, or of code in the traced processes.
    pub features: Features,
    /// True if the links filter by process.
    pub by_link: bool,
    /// True if programs run in the traced processes.
    pub in_process: bool,
    /// Clauses that run in the kernel beside them.
    pub in_kernel: Option<String>,
    /// True if walks of stacks need the unwind tables of files.
    pub reads_unwind_tables: bool,
    /// Why the kernel runs scripts that were to run in the traced processes.
    pub why_kernel: Option<String>,
    pub start: Instant,
}

/// Makes a plan of scripts.
pub struct Planner<'a> {
    pub inputs: CompilerInputs<'a>,
    pub target: &'a Target,
    pub agent: Option<&'a AgentFile>,
    pub start: Instant,
}

impl<'a> Planner<'a> {
    /// Parses the scripts, decides where they run, checks and compiles them for that place. Only if code for the traced processes turns
    /// out to be impossible, they are checked and compiled again, for the kernel. `None` if the user wanted no run.
    pub fn plan(&self, scripts: Vec<Script>) -> Result<Option<(Plan<'a>, Vec<Compiler<'a>>)>, Failure> {
        let CompilerInputs { cli, messages, .. } = self.inputs;
        let mut compilers = compiled::parse(scripts, self.inputs).map_err(Failure::wrong)?;
        let in_process = cli.in_process || compilers.iter().any(Compiler::asks_for_process);
        if in_process {
            setup::check_in_process(cli).map_err(Failure::wrong)?;
        }
        if let Some(reason) = &cli.why_in_process {
            messages.note(&format!(
                "{reason}: probes run in the traced processes, as with --in-process (`--in-kernel` says what the kernel needs)"
            ));
        }
        compiled::check(&mut compilers, in_process).map_err(Failure::wrong)?;
        let checks = [export::kinds::check(&cli.export), metrics::check(cli), setup::check_features(cli)];
        checks.into_iter().collect::<anyhow::Result<()>>().map_err(Failure::wrong)?;
        if cli.check {
            warn_of_stages(cli, messages);
            return Ok(None);
        }
        let compiled = self.compile(&mut compilers, in_process)?;
        if let Some(path) = &cli.emit {
            let objects = compilers.iter().map(Compiler::object_name).zip(&compiled.modules);
            compiled::emit(path, objects, messages).map_err(Failure::wrong)?;
            return Ok(None);
        }
        let reads_unwind_tables = compilers.iter().any(Compiler::mentions_native_stacks);
        Ok(Some((self.with(compiled, reads_unwind_tables)?, compilers)))
    }

    fn compile(
        &self,
        compilers: &mut Vec<Compiler<'a>>,
        in_process: bool,
    ) -> Result<CompiledScripts, Failure> {
        let CompilerInputs { cli, messages, .. } = self.inputs;
        let mut why_kernel = None;
        if in_process {
            match compiled::for_processes(self.inputs, compilers)? {
                Ok(compiled) => return Ok(compiled),
                Err(reason) => {
                    messages.note(&format!("{reason}; it runs in the kernel instead"));
                    compiled::check(compilers, false).map_err(Failure::wrong)?;
                    why_kernel = Some(reason);
                }
            }
        }
        let compiled = compiled::for_kernel(compilers, cli, self.target.count())?;
        Ok(CompiledScripts { why_kernel, ..compiled })
    }

    fn with(&self, compiled: CompiledScripts, reads_unwind_tables: bool) -> Result<Plan<'a>, Failure> {
        let CompiledScripts { modules, features, in_process, by_link, in_kernel, why_kernel } = compiled;
        let bytes: usize = modules.iter().map(|module| module.elf.len()).sum();
        self.inputs
            .messages
            .detail(|| format!("compiled after {:?}: {bytes} bytes of object", self.start.elapsed()));
        let kinds = modules
            .iter()
            .fold(KindSet::EMPTY, |kinds, module| kinds.union(KindSet::from_bits(module.manifest.gpu_kinds)));
        if !kinds.is_empty() && self.target.is_all() {
            return Err(Failure::wrong(gpu::no_process()));
        }
        Ok(Plan {
            cli: self.inputs.cli,
            messages: self.inputs.messages,
            machine: self.inputs.machine,
            target: self.target.clone(),
            records: self.agent.filter(|_| !kinds.is_empty()).map(|file| WantedRecords { file, kinds }),
            modules,
            features,
            by_link,
            in_process,
            reads_unwind_tables,
            why_kernel,
            in_kernel,
            start: self.start,
        })
    }
}

/// Warns of stages of `-d` that come after those of `--check`.
fn warn_of_stages(cli: &Cli, messages: &Messages) {
    if cli.debug.iter().any(|stage| !matches!(stage, Stage::Ast | Stage::Hir)) {
        messages.warning("--check stops before code generation: --dry-run shows these stages");
    }
}

impl Plan<'_> {
    /// The manifest of all scripts: the last one's, which has what is in the previous ones.
    pub fn manifest(&self) -> &Manifest {
        &self.modules.last().expect("a script").manifest
    }

    /// The processes of `-p` that still ran when the run was planned, without their children.
    pub fn named(&self) -> impl Iterator<Item = u32> {
        self.target.pids.iter().copied().filter(|pid| self.cli.pids.contains(pid))
    }

    /// The path at which this process can open a file.
    pub fn open_path(&self, id: u32) -> PathBuf {
        self.machine.open_path(FileId(id)).to_path_buf()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;
    use lang::Source;

    /// Plans a script with this command line. No kernel is needed, but by scripts for the kernel.
    pub fn planned(args: &[&str], text: &str, see: impl FnOnce(Option<&(Plan<'_>, Vec<Compiler<'_>>)>)) {
        let cli = Cli::parse_from(["cudatrace", "-q"].iter().chain(args));
        let (messages, target) = (cli.messages(), Target::of(&cli).expect("a target"));
        let machine = target.machine(&cli);
        let inputs = CompilerInputs { machine: &machine, cli: &cli, messages: &messages };
        let planner = Planner { inputs, target: &target, agent: None, start: Instant::now() };
        let script = Script::alone(Source::new(crate::script::NO_FILE, text), &[]);
        see(planner.plan(vec![script]).unwrap_or_else(|failure| panic!("{:#}", failure.error)).as_ref());
    }

    /// The plan of a script for the processes of a command.
    pub fn plan(text: &str, see: impl FnOnce(&Plan<'_>)) {
        planned(&["--in-process", "--", "true"], text, |planned| see(&planned.expect("it can run").0));
    }

    #[test]
    fn a_script_may_ask_for_the_traced_processes() {
        let script = "config = { in_process = true } BEGIN { exit() }";
        planned(&["--", "true"], script, |planned| {
            let (plan, compilers) = planned.expect("it can run");
            assert!(plan.in_process && !plan.by_link && plan.records.is_none());
            assert!(plan.in_kernel.is_none() && plan.why_kernel.is_none());
            assert_eq!((plan.modules.len(), compilers.len(), plan.named().count()), (1, 1, 0));
        });
    }

    #[test]
    fn a_script_that_only_the_kernel_can_run_says_why() {
        let script = "tracepoint:sched:sched_switch { @ = count() }";
        if !std::path::Path::new("/sys/kernel/tracing/events/sched/sched_switch").exists() {
            return;
        }
        planned(&["--in-process", "--", "true"], script, |planned| {
            let (plan, _) = planned.expect("the kernel runs it");
            let reason = plan.why_kernel.as_deref().expect("an event of the kernel");
            assert!(!plan.in_process && reason.contains("sched_switch"), "{reason}");
        });
    }

    #[test]
    fn a_check_and_an_emitted_object_are_no_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let object = folder.path().join("x.o");
        let object = object.to_str().expect("text");
        let script = "BEGIN { exit() }";
        for args in [&["--check"][..], &["--emit", object]] {
            let args = [args, &["--in-process", "--", "true"]].concat();
            planned(&args, script, |planned| assert!(planned.is_none()));
        }
        assert!(std::fs::metadata(object).is_ok_and(|found| found.len() > 0));
    }

    #[test]
    fn the_target_is_the_command_and_the_processes() {
        let own = std::process::id().to_string();
        let target = |args: &[&str]| Target::of(&Cli::parse_from(["cudatrace"].iter().chain(args)));
        assert!(target(&["-e", "BEGIN { }"]).expect("all processes").is_all());
        let both = target(&["--no-children", "-p", &own, "-c", "echo 'two words'"]).expect("a target");
        assert_eq!(both.pids, [std::process::id()]);
        assert_eq!(both.argv.as_deref(), Some(&["echo".into(), "two words".into()][..]));
        assert_eq!((both.count(), both.is_all()), (2, false));
        assert!(target(&["-p", "4194305"]).is_err() && target(&["-c", "'open"]).is_err());
    }
}
