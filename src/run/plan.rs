//! The plan of a run, made before anything is opened or started: the scripts, compiled for the place where they run, and the target.

use super::compiled::{self, Compiled};
use super::compiler::{Compiler, Purpose};
use super::setup;
use crate::cli::{Cli, Stage};
use crate::console::Messages;
use crate::script::Script;
use crate::{Failure, gpu};
use host::{Machine, Scope};
use lang::catalog::FileId;
use runtime::gpu::{AgentFile, KindSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;
use wire::Features;
use wire::Manifest;
use wire::manifest::CompiledScript;

/// Where scripts run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the kernel, unless a script asks for the traced processes.
    Unsaid,
    Kernel,
    Process,
}

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
        let scope = Scope { pids, command, lib_overrides, ..Scope::default() };
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
    pub start: Instant,
}

/// Result of planning scripts for a place.
pub enum Planned<'a> {
    /// The scripts can run.
    Run(Box<Plan<'a>>, Vec<Compiler<'a>>),
    /// The user wanted no run.
    Done,
    /// A script asks to run in the traced processes.
    Asks,
    /// The scripts cannot run in the traced processes, for this reason.
    NeedsKernel(String),
}

/// Makes a plan of scripts.
pub struct Planner<'a> {
    pub purpose: Purpose<'a>,
    pub target: &'a Target,
    pub agent: Option<&'a AgentFile>,
    pub place: Place,
    pub start: Instant,
}

impl<'a> Planner<'a> {
    /// Checks and compiles the scripts.
    pub fn plan(&self, scripts: Vec<Script>) -> Result<Planned<'a>, Failure> {
        let Planner { purpose, target, place, .. } = *self;
        let Purpose { cli, messages, in_process, .. } = purpose;
        if in_process {
            setup::check_in_process(cli).map_err(Failure::wrong)?;
        }
        let checked = compiled::check(scripts, purpose);
        let mut compilers = checked.map_err(Failure::wrong)?;
        if place == Place::Unsaid && compilers.iter().any(Compiler::asks_for_process) {
            return Ok(Planned::Asks);
        }
        if cli.check {
            warn_of_stages(cli, messages);
            return Ok(Planned::Done);
        }
        let compiled = match in_process {
            true => compiled::for_processes(&purpose, &mut compilers)?,
            false => Ok(compiled::for_kernel(&mut compilers, cli, target.count())?),
        };
        match compiled {
            Err(reason) => Ok(Planned::NeedsKernel(reason)),
            Ok(compiled) => match &cli.emit {
                Some(path) => {
                    let objects = compilers.iter().map(Compiler::object_name).zip(&compiled.modules);
                    compiled::emit(path, objects, messages).map_err(Failure::wrong)?;
                    Ok(Planned::Done)
                }
                None => Ok(Planned::Run(Box::new(self.with(compiled)?), compilers)),
            },
        }
    }

    fn with(&self, compiled: Compiled) -> Result<Plan<'a>, Failure> {
        let Compiled { modules, features, by_link, in_kernel } = compiled;
        let bytes: usize = modules.iter().map(|module| module.elf.len()).sum();
        self.purpose
            .messages
            .detail(|| format!("compiled after {:?}: {bytes} bytes of object", self.start.elapsed()));
        let kinds = modules
            .iter()
            .fold(KindSet::EMPTY, |kinds, module| kinds.union(KindSet::from_bits(module.manifest.gpu_kinds)));
        if !kinds.is_empty() && self.target.is_all() {
            return Err(Failure::wrong(gpu::no_process()));
        }
        Ok(Plan {
            cli: self.purpose.cli,
            messages: self.purpose.messages,
            machine: self.purpose.machine,
            target: self.target.clone(),
            records: self.agent.filter(|_| !kinds.is_empty()).map(|file| WantedRecords { file, kinds }),
            modules,
            features,
            by_link,
            in_process: self.purpose.in_process,
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
    pub fn planned(args: &[&str], text: &str, place: Place, see: impl FnOnce(&Planned<'_>)) {
        let cli = Cli::parse_from(["cudatrace", "-q"].iter().chain(args));
        let (messages, target) = (cli.messages(), Target::of(&cli).expect("a target"));
        let machine = target.machine(&cli);
        let purpose = Purpose {
            machine: &machine,
            cli: &cli,
            messages: &messages,
            in_process: place == Place::Process,
        };
        let planner = Planner { purpose, target: &target, agent: None, place, start: Instant::now() };
        let script = Script::alone(Source::new("-e", text), &[]);
        see(&planner.plan(vec![script]).unwrap_or_else(|failure| panic!("{:#}", failure.error)));
    }

    /// The plan of a script for the processes of a command.
    pub fn plan(text: &str, see: impl FnOnce(&Plan<'_>)) {
        planned(&["--", "true"], text, Place::Process, |planned| match planned {
            Planned::Run(plan, _) => see(plan),
            _ => panic!("{text} can run"),
        });
    }

    #[test]
    fn a_script_may_ask_for_the_traced_processes() {
        let script = "config = { in_process = true } BEGIN { exit() }";
        planned(&["--", "true"], script, Place::Unsaid, |planned| assert!(matches!(planned, Planned::Asks)));
        planned(&["--", "true"], script, Place::Process, |planned| {
            let Planned::Run(plan, compilers) = planned else { panic!("it can run") };
            assert!(plan.in_process && !plan.by_link && plan.records.is_none() && plan.in_kernel.is_none());
            assert_eq!((plan.modules.len(), compilers.len(), plan.named().count()), (1, 1, 0));
        });
    }

    #[test]
    fn a_script_that_only_the_kernel_can_run_says_why() {
        let script = "tracepoint:sched:sched_switch { @ = count() }";
        if !std::path::Path::new("/sys/kernel/tracing/events/sched/sched_switch").exists() {
            return;
        }
        planned(&["--", "true"], script, Place::Process, |planned| {
            let Planned::NeedsKernel(reason) = planned else { panic!("an event of the kernel") };
            assert!(reason.contains("sched_switch"), "{reason}");
        });
    }

    #[test]
    fn a_check_and_an_emitted_object_are_no_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let object = folder.path().join("x.o");
        let object = object.to_str().expect("text");
        let script = "BEGIN { exit() }";
        for args in [&["--check", "--", "true"][..], &["--emit", object, "--", "true"]] {
            planned(args, script, Place::Process, |planned| assert!(matches!(planned, Planned::Done)));
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
