//! Runs a script: compile, load, attach, print until the end of the run.

use crate::cli::{Cli, Stage};
use crate::console::Messages;
use crate::export::kinds::ExportRequest;
use crate::export::{self, ExportSummary, Exports, FlushOn, Observer};
use crate::script::{self, Script};
use crate::symbolize::{MachineNames, process_facts};
use crate::trace::compiled::{self, Compiled};
use crate::trace::compiler::Compiler;
use crate::trace::descendants::Descendants;
use crate::trace::extender::Extender;
use crate::trace::late_files::{HeldMappings, MappingReports};
use crate::trace::mapping_scans::MappingScans;
use crate::trace::overwritten_files::OverwriteWatch;
use crate::trace::patch_sites::{patch_site, unwinder_sites};
use crate::trace::script_set::Scripts;
use crate::trace::traced_processes::TargetEnd;
use crate::trace::unmapped_files::UnmappedTargets;
use crate::trace::unwind_updater::UnwindUpdater;
use crate::trace::unwinder::Unwinder;
use crate::trace::{exit_status, setup, traced_processes};
use crate::{Failure, gpu, metrics, python, trace};
use anyhow::Context;
use host::{Machine, Scope};
use lang::catalog::FileId;
use runtime::gpu::AgentFile;
use runtime::kernel::clock::{Epoch, SystemClock};
use runtime::kernel::signals::StopSignals;
use runtime::remote::RemoteError;
use runtime::session::event_loop::Watch;
use runtime::started::{Child, Command, FileState, MappingWatch, Reported};
use runtime::{AttachOptions, Control, LoadedScript, Patching, Session};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use wire::manifest::{Attach, CompiledScript, Event, EventKind, Message};
use wire::map::CONTEXTS;
use wire::trigger::Trigger;
use wire::{Features, Manifest};

/// Traces as the command line specifies; returns the exit status.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8, Failure> {
    let scripts = script::load_all(cli, messages).map_err(Failure::wrong)?;
    script::check_given(&scripts, cli, messages).map_err(Failure::wrong)?;
    run_scripts(scripts, cli, messages, None)
}

/// Additional outputs of a run that is recorded.
pub struct RecordingOutputs {
    /// Destinations of the records.
    pub exports: Vec<ExportRequest>,
    /// Callback that gets all records.
    pub observer: Observer,
    /// Creates the live display from the exports' counters.
    pub live: OpenLive,
}

/// Creates the live display of a recording from the exports' counters.
pub type OpenLive = Box<dyn FnOnce(Vec<Arc<ExportSummary>>) -> anyhow::Result<Box<dyn Watch>>>;

/// Traces with these scripts. With `recording`, only the recording reports the end.
pub fn run_scripts(
    scripts: Vec<Script>,
    cli: &Cli,
    messages: &Messages,
    recording: Option<RecordingOutputs>,
) -> Result<u8, Failure> {
    let mut recording = recording;
    let mut place = if cli.in_process { Place::Process } else { Place::Unsaid };
    let mut why_kernel = None;
    loop {
        match run_where(scripts.clone(), cli, messages, &mut recording, place)? {
            Ran::Done(status) => {
                why_kernel.inspect(|reason| messages.note(&format!("Traced by the kernel: {reason}")));
                return Ok(status);
            }
            Ran::Asks => place = Place::Process,
            Ran::NeedsKernel(reason) => {
                messages.note(&format!("{reason}; it runs in the kernel instead"));
                (place, why_kernel) = (Place::Kernel, Some(reason));
            }
        }
    }
}

/// Where scripts run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the kernel, unless a script asks for the traced processes.
    Unsaid,
    Kernel,
    Process,
}

/// The end of a run.
enum Ran {
    /// The exit status.
    Done(u8),
    /// It did not begin: a script asks to run in the traced processes.
    Asks,
    /// It did not begin: the scripts cannot run in the traced processes, for this reason.
    NeedsKernel(String),
}

/// Runs the scripts at a place. `recording` is taken when the run begins.
fn run_where(
    scripts: Vec<Script>,
    cli: &Cli,
    messages: &Messages,
    recording: &mut Option<RecordingOutputs>,
    place: Place,
) -> Result<Ran, Failure> {
    let in_process = place == Place::Process;
    if in_process {
        setup::check_in_process(cli).map_err(Failure::wrong)?;
    }
    let start = Instant::now();
    let argv = setup::command(cli).map_err(Failure::wrong)?;
    let pids = setup::pids(cli).map_err(Failure::wrong)?;
    let machine = Machine::new(Scope {
        pids: pids.clone(),
        command: argv.clone(),
        lib_overrides: cli.libs.clone(),
        ..Scope::default()
    })
    .with_kernel(&crate::kernel_catalog::RunningKernel)
    .with_progress(messages.search_progress());
    let agent = match scripts.iter().any(Script::may_probe_gpus) {
        true => gpu::offer_agent(&machine, cli.user.as_deref(), messages),
        false => None,
    };
    let mut compilers =
        compiled::check(scripts, (&machine, in_process), cli, messages).map_err(Failure::wrong)?;
    if place == Place::Unsaid && compilers.iter().any(Compiler::asks_for_process) {
        return Ok(Ran::Asks);
    }
    if cli.check {
        if cli.debug.iter().any(|stage| !matches!(stage, Stage::Ast | Stage::Hir)) {
            messages.warning("--check stops before code generation: --dry-run shows these stages");
        }
        return Ok(Ran::Done(0));
    }
    let compiled = match in_process {
        true => compiled::for_processes(&machine, &mut compilers, (cli, messages))?,
        false => Ok(compiled::for_kernel(&mut compilers, cli, pids.len() + usize::from(argv.is_some()))?),
    };
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(reason) => return Ok(Ran::NeedsKernel(reason)),
    };
    let Compiled { modules, .. } = &compiled;
    if let Some(path) = &cli.emit {
        let objects = compilers.iter().map(Compiler::object_name).zip(modules);
        return compiled::emit(path, objects, messages).map(|()| Ran::Done(0)).map_err(Failure::wrong);
    }
    let bytes: usize = modules.iter().map(|module| module.elf.len()).sum();
    messages.detail(|| format!("compiled after {:?}: {bytes} bytes of object", start.elapsed()));
    let Compiled { modules, features, by_link, in_kernel } = compiled;
    let gpu_kinds = modules.iter().fold(0, |kinds, module| kinds | module.manifest.gpu_kinds);
    if gpu_kinds != 0 && argv.is_none() && pids.is_empty() {
        return Err(Failure::wrong(gpu::no_process()));
    }
    let agent = agent.as_ref().filter(|_| gpu_kinds != 0).map(|file| (file, gpu_kinds));
    let job = Job {
        cli,
        messages,
        machine: &machine,
        agent,
        features,
        argv,
        pids,
        by_link,
        in_process,
        in_kernel,
        start,
    };
    job.run(compilers, &modules, recording.take()).map(Ran::Done)
}

/// bpftrace's test runner sets this variable and waits for a line with this text after the probes are attached.
const NOTIFY: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";

/// Prints the line for the test runner. A caller that reads both outputs gets the number of probes first.
fn notify() {
    println!("{NOTIFY}");
}

/// Exit status if clauses for a library that was loaded later could not be loaded, as if it had been there at the start.
const NOT_LOADED: u8 = 255;

struct Job<'a> {
    cli: &'a Cli,
    messages: &'a Messages,
    machine: &'a Machine,
    /// The agent for records of GPUs and their kinds, if a script has probes for them.
    agent: Option<(&'a AgentFile, u32)>,
    features: Features,
    argv: Option<Vec<OsString>>,
    pids: Vec<u32>,
    /// True if the links filter by process.
    by_link: bool,
    /// True if programs run in the traced processes.
    in_process: bool,
    /// What runs in the kernel beside them.
    in_kernel: Option<String>,
    start: Instant,
}

/// Outputs of the run, and the signals that stop it.
struct Outputs {
    signals: StopSignals,
    /// Signals that flush the exports.
    flushing: Vec<i32>,
    sink: Exports,
    epoch: Epoch,
    /// Live display of a recording.
    live: Option<Box<dyn Watch>>,
    servers: Vec<metrics::server::Server>,
}

impl<'a> Job<'a> {
    /// Runs the scripts. Each is a module that was compiled after the previous ones.
    fn run(
        &self,
        mut compilers: Vec<Compiler<'a>>,
        modules: &[CompiledScript],
        recording: Option<RecordingOutputs>,
    ) -> Result<u8, Failure> {
        let all = &modules[modules.len() - 1].manifest;
        let mut outputs = self.outputs(all, recording)?;
        let mut child = self.spawn(all)?;
        let gpu_reports = gpu::Reports::default();
        let to_unwind = self.to_unwind(&compilers);
        let loaded = self.load(modules, child.as_ref())?;
        let unwinder = loaded.unwind_maps().map(|maps| Unwinder::new(maps, self.messages));
        if let Some(unwinder) = &unwinder {
            unwinder.start_complete(&to_unwind);
        }
        let link_pid = self.link_pid(child.as_ref());
        let files = |id: u32| self.open_path(id);
        let functions = |file: u32, offset: u64| patch_site(self.machine, FileId(file), offset);
        let patch = Patching { functions: &functions, unwinder: unwinder_sites };
        let options =
            AttachOptions { files: &files, link_pid, stop: Some(&outputs.signals), patch: Some(patch) };
        let attached = loaded.attach(&options);
        let mut session = attached.map_err(|error| exit_status::not_attached(error, &outputs.signals))?;
        self.attached(&session);
        let targets = self.targets(child.as_ref()).map_err(Failure::wrong)?;
        let names = MachineNames::new(session.stacks(), outputs.epoch, all);
        let first = compilers.remove(0);
        let scripts = Scripts::new(first, self.machine, self.messages, self.features, link_pid);
        let extender = Extender::new(&scripts, self.machine, &names, unwinder, self.messages);
        self.join(&mut session, &extender, compilers, &modules[1..])?;
        if self.agent.is_some() && session.is_in_process() && !self.cli.pids.is_empty() {
            scripts.add_gates(&mut session);
        }
        self.patch_running(&mut session, &extender)?;
        if let (None, Some(maps)) = (extender.unwinder(), session.unwind_maps()) {
            extender.walk_stacks(maps).start_with(&to_unwind);
        }
        if self.cli.dry_run {
            let count = session.attached();
            self.messages.note(&format!("Attached {count} probe{}", if count == 1 { "" } else { "s" }));
            std::env::var_os(NOTIFY).inspect(|_| notify());
            return Ok(0);
        }
        let servers = std::mem::take(&mut outputs.servers);
        let mut exported = metrics::MetricsOutputs::new(servers, &outputs.sink, &names, &scripts);
        let measuring = exported.as_mut().map_or(Ok(Vec::new()), |exported| exported.watches(self.messages));
        let mut watches = measuring.map_err(Failure::loading)?;
        watches.extend(outputs.watches().map_err(Failure::loading)?);
        watches.extend(outputs.sink.warnings(self.messages));
        watches.extend(self.ends().map_err(Failure::wrong)?);
        let mut agents = self.agents((&gpu_reports, &extender.new_drivers), child.as_ref())?;
        if let Some(agents) = &mut agents {
            agents.begin().map_err(Failure::loading)?;
            agents.load_into_running(&mut session).map_err(Failure::loading)?;
        }
        session.restart_clock();
        self.print_targets(child.as_ref(), modules);
        self.release(child.as_mut(), &extender)?;
        watches.extend(self.watches(child.as_mut(), &extender, &mut session));
        // After that of held threads: one that has just been released can be stopped.
        watches.extend(agents.map(|agents| Box::new(agents) as Box<dyn Watch>));
        if !all.by_process.is_empty() || scripts.are_waiting() {
            watches.push(Box::new(trace::EndedProcesses::new().map_err(Failure::loading)?));
        }
        // From here on mappings are reported.
        let unmapped = UnmappedTargets::new(self.machine, modules, &self.pids);
        if child.is_none() {
            unmapped.note_at_start(&self.pids, self.messages);
        }
        if targets.is_empty() && does_nothing_more(modules) && !scripts.are_waiting() {
            watches.push(Box::new(trace::Done::new().map_err(Failure::loading)?));
        }
        // With exports the signal flushes them.
        let maps_on_signal = outputs.flushing.is_empty();
        let Outputs { signals, mut sink, .. } = outputs;
        let on_interrupt = io::stderr().is_terminal().then_some(end_line as fn());
        let on_attached: Option<&dyn Fn()> = std::env::var_os(NOTIFY).map(|_| &notify as &dyn Fn());
        let control = Control {
            signals: Some(&signals),
            on_interrupt,
            on_attached,
            maps_on_signal,
            targets,
            watches,
            ..Control::default()
        };
        let ending = session.run(&mut sink, &names, control);
        if let Some(exported) = &exported {
            exported.finish(&session);
        }
        if self.agent.is_some() {
            gpu_reports.print(self.messages);
        }
        names.report_cut_stacks(self.messages);
        exit_status::report_survivors(&ending, &session, &self.pids, self.messages);
        for (pid, reason) in session.kept_jumps() {
            self.messages.warning(&format!(
                "process {pid} keeps the jumps of the probes, which pass by now: {reason}; the next `--in-process -p {pid}` removes them"
            ));
        }
        exit_status::report_expelled(&session, self.messages);
        let (attached, patched) = (session.attached(), session.patched());
        drop(session);
        let was_silent = sink.was_silent();
        let lost = sink.close(self.messages, &|| signals.is_waiting());
        let saw_all_mappings = !extender.may_miss_mappings() && child.as_ref().is_none_or(Child::is_watched);
        if let Some(patched) = patched {
            self.messages.note(&compiled::where_it_ran(patched, self.in_kernel.as_deref()));
        }
        let is_explained = scripts.report_missing(saw_all_mappings)
            | unmapped.report(&ending, child.as_ref(), &extender, self.messages);
        let prints_maps = all.print_maps_on_exit && all.metrics.iter().all(|metric| !metric.declared);
        if was_silent && !is_explained && prints_maps {
            exit_status::report_no_output(&ending, attached, self.messages);
        }
        let lost = lost | gpu_reports.are_incomplete();
        let status = exit_status::status(&ending, child.map(|child| (child, &signals)), self.messages)?;
        let status = exit_status::of_results(status, &ending, &extender);
        Ok(match status {
            0 if scripts.has_failed() => NOT_LOADED,
            0 if lost && self.cli.fail_on_loss => crate::LOST,
            status => status,
        })
    }

    /// Opens all outputs, so that errors are reported before anything is traced.
    fn outputs(&self, manifest: &Manifest, recording: Option<RecordingOutputs>) -> Result<Outputs, Failure> {
        let sees_all_processes = !self.cli.export.is_empty() || recording.is_some();
        let flushing = if sees_all_processes { export::flushing() } else { Vec::new() };
        let signals = StopSignals::install_without(&flushing)
            .context("cannot catch signals")
            .map_err(Failure::loading)?;
        let epoch = Epoch::new(&SystemClock);
        let requests = recording.as_ref().map_or(&self.cli.export[..], |recording| &recording.exports);
        let open = || self.sink(&epoch, manifest, requests, recording.is_some());
        let mut sink = signals.while_opening(open).map_err(Failure::wrong)?;
        let live = recording.map(|recording| {
            sink.observe(recording.observer);
            (recording.live)(sink.summaries())
        });
        self.warn_of_unpublished_metrics(manifest);
        let servers = if self.cli.dry_run { Ok(Vec::new()) } else { metrics::bind(self.cli) };
        Ok(Outputs {
            signals,
            flushing,
            sink,
            epoch,
            live: live.transpose().map_err(Failure::loading)?,
            servers: servers.map_err(Failure::wrong)?,
        })
    }

    /// Loads the first script. It filters by the processes that are known now.
    fn load(&self, modules: &[CompiledScript], child: Option<&Child>) -> Result<LoadedScript, Failure> {
        let child = child.map(Child::pid);
        let pids = self.pids.iter().copied().chain(child).collect();
        let options = runtime::Options { pids, child, ..Default::default() };
        let (first, others) = modules.split_first().expect("a script");
        let in_process: Vec<CompiledScript> =
            others.iter().filter(|module| module.manifest.in_process).cloned().collect();
        let loaded = LoadedScript::load_before(first, &in_process, &options).map_err(Failure::loading)?;
        self.messages.detail(|| format!("loaded after {:?}", self.start.elapsed()));
        Ok(loaded)
    }

    /// Processes whose unwind tables are loaded before BEGIN. The tracer is one of them if a script uses its stacks.
    fn to_unwind(&self, compilers: &[Compiler<'a>]) -> Vec<u32> {
        let own = compilers.iter().any(Compiler::uses_own_stacks).then(std::process::id);
        self.pids.iter().copied().chain(own).collect()
    }

    /// The process by which the links filter, if they do.
    fn link_pid(&self, child: Option<&Child>) -> Option<u32> {
        self.pids.first().copied().or(child.map(Child::pid)).filter(|_| self.by_link)
    }

    /// Adds the other scripts to the session.
    fn join(
        &self,
        session: &mut Session,
        extender: &Extender<'a>,
        compilers: Vec<Compiler<'a>>,
        modules: &[CompiledScript],
    ) -> Result<(), Failure> {
        for ((number, compiler), module) in (1..).zip(compilers).zip(modules) {
            extender.scripts.add_compiled(session, number, compiler, module).map_err(Failure::loading)?;
        }
        Ok(())
    }

    /// Patches the processes of `-p`, if the programs run there.
    fn patch_running(&self, session: &mut Session, extender: &Extender) -> Result<(), Failure> {
        for pid in self.pids.iter().filter(|_| self.in_process && !self.cli.dry_run) {
            let patched = match session.patch_running(*pid) {
                // A child of the processes that the user has named may end at any time.
                Err(RemoteError::Gone) if !self.cli.pids.contains(pid) => continue,
                Err(error @ RemoteError::OtherOwner { .. }) => {
                    extender.report_untraced(*pid, "is not traced", &error);
                    continue;
                }
                patched => patched.with_context(|| format!("process {pid}")).map_err(Failure::loading)?,
            };
            self.messages.patched(*pid, &patched);
        }
        Ok(())
    }

    /// The agents for records of GPUs.
    fn agents<'w>(
        &self,
        (reports, new_drivers): (&'w gpu::Reports, &'w gpu::NewDrivers),
        child: Option<&Child>,
    ) -> Result<Option<gpu::Agents<'w>>, Failure>
    where
        'a: 'w,
    {
        let Some((file, kinds)) = self.agent else { return Ok(None) };
        let wanted = (kinds, self.in_process);
        let agents = gpu::Agents::new(file, self.machine, wanted, new_drivers, (reports, self.messages));
        let mut agents = agents.map_err(Failure::loading)?;
        agents.search_in(&self.cli.pids, child.map(Child::pid));
        Ok(Some(agents))
    }

    /// Prints the traced processes and how the trace ends, unless the user has only given a command.
    fn print_targets(&self, child: Option<&Child>, modules: &[CompiledScript]) {
        let pids = &self.cli.pids;
        let is_obvious = child.is_some() && pids.is_empty();
        if is_obvious || does_nothing_more(modules) || self.cli.run() != lang::Run::Traces {
            return;
        }
        let has_devices =
            |module: &CompiledScript| module.manifest.maps.iter().any(|map| map.name == CONTEXTS);
        if !pids.is_empty() && modules.iter().any(has_devices) {
            self.messages.note(
                "The device of a thread that runs already is -1 until the thread asks for it, as PyTorch does all the time, or chooses one",
            );
        }
        let names: Vec<String> = pids.iter().map(|&pid| traced_processes::name(pid)).collect();
        let whom = if pids.is_empty() { "all processes".to_owned() } else { names.join(", ") };
        self.messages.note(&match child {
            None => format!("Tracing {whom}; Ctrl-C ends it and prints the results"),
            Some(_) => {
                format!("Tracing {whom} and the command, whose end or Ctrl-C ends it and prints the results")
            }
        });
    }

    /// Releases the command.
    fn release(&self, child: Option<&mut Child>, extender: &Extender) -> Result<(), Failure> {
        let Some(child) = child else { return Ok(()) };
        child.release().map_err(Failure::wrong)?;
        if let Some(unwinder) = extender.unwinder() {
            unwinder.read_mappings(child.pid());
        }
        Ok(())
    }

    /// Creates the sink of the script's output, with the exports.
    fn sink(
        &self,
        epoch: &Epoch,
        manifest: &Manifest,
        requests: &[ExportRequest],
        recorded: bool,
    ) -> anyhow::Result<Exports> {
        let out: Box<dyn io::Write> = if recorded { Box::new(io::sink()) } else { Box::new(io::stdout()) };
        let inner = setup::sink(self.cli, out, Box::new(io::stderr()), self.cli.quiet || recorded)?;
        let argv = self.argv.as_deref().unwrap_or_default();
        let run = export::run(epoch, &manifest.scripts().join(" "), argv, &self.pids);
        let requests = if self.cli.dry_run { &[][..] } else { requests };
        Exports::open(requests, &self.cli.export_options(), &Arc::new(run), inner)
    }

    /// Prints the addresses of metrics, for scripts that print nothing themselves.
    fn warn_of_unpublished_metrics(&self, manifest: &Manifest) {
        let is_warning =
            |event: &Event| matches!(event.kind, EventKind::Message { what: Message::Warning, .. });
        let is_test = self.cli.run() != lang::Run::Traces;
        let silent = !is_test && !manifest.print_maps_on_exit && manifest.events.iter().all(is_warning);
        if silent && !manifest.metrics.is_empty() && self.cli.export.is_empty() {
            self.messages.warning(
                "this script prints nothing; to publish its metrics add `--export openmetrics=9464` for Prometheus, or \
                 `--export otlp=URL`",
            );
        }
    }

    fn open_path(&self, id: u32) -> PathBuf {
        self.machine.open_path(FileId(id)).to_path_buf()
    }

    /// Starts the command, which is held until it is released.
    fn spawn(&self, manifest: &Manifest) -> Result<Option<Child>, Failure> {
        let Some(argv) = self.argv.clone().filter(|_| !self.cli.dry_run) else { return Ok(None) };
        let files = self.machine.files_taken();
        let known =
            files.iter().filter_map(|file| FileState::of(self.machine.open_path(file.id)).ok()).collect();
        self.warn_of_command(&argv);
        let (user, watch_ends) = (self.cli.user.clone(), prints_symbols(manifest));
        let reported = match trace::walks_stacks(manifest) {
            _ if self.in_process => Reported::All,
            true => Reported::Fixed,
            false => Reported::New,
        };
        let environment = |(file, kinds)| gpu::Agents::environment(file, kinds, self.messages);
        let environment = self.agent.map_or_else(Vec::new, environment);
        let command = Command {
            argv,
            environment,
            user,
            watch_mappings: true,
            watch_ends,
            known,
            reported,
            captured: false,
        };
        let child = Child::spawn(&command).map_err(Failure::wrong)?;
        process_facts::expect(child.pid(), &command.argv);
        if let Some(error) = &child.unwatched {
            self.messages.warning(&format!(
                "libraries that the program maps later cannot be attached before their first call: {error}"
            ));
        }
        Ok(Some(child))
    }

    /// Warns of an unexpected behaviour of the command.
    fn warn_of_command(&self, argv: &[OsString]) {
        let sudoer = std::env::var("SUDO_USER").ok().filter(|name| name != "root" && self.cli.user.is_none());
        if let Some(name) = sudoer {
            self.messages.note(&format!("the command runs as root; `--user {name}` runs it as {name}"));
        }
        if let Some(version) = python::without_perf(argv) {
            self.messages.warning(&format!(
                "this is Python {version}: stacks have no names of Python functions; `-X perf` needs 3.12 or later"
            ));
        }
    }

    fn attached(&self, session: &Session) {
        self.messages.not_attached(session.failures());
        self.messages.detail(|| format!("attached after {:?}", self.start.elapsed()));
    }

    /// Processes whose end stops the trace: the command if there is one, otherwise all processes of `-p`.
    fn targets(&self, child: Option<&Child>) -> anyhow::Result<Vec<OwnedFd>> {
        match child {
            Some(child) => Ok(vec![child.pidfd().try_clone_to_owned()?]),
            None => self.running().map(setup::end_of).collect(),
        }
    }

    /// The processes of `-p` that still ran when the trace was prepared.
    fn running(&self) -> impl Iterator<Item = u32> {
        self.pids.iter().copied().filter(|pid| self.cli.pids.contains(pid))
    }

    /// Reports the exit status of the processes of `-p`.
    fn ends(&self) -> anyhow::Result<Vec<Box<dyn Watch + 'a>>> {
        let ends = self.running().map(|pid| TargetEnd::new(pid, self.messages));
        ends.map(|end| Ok(Box::new(end?) as Box<dyn Watch>)).collect()
    }

    /// Sources of reports on libraries that are loaded later.
    fn watches<'w>(
        &self,
        child: Option<&mut Child>,
        extender: &'w Extender<'w>,
        session: &mut Session,
    ) -> Vec<Box<dyn Watch + 'w>> {
        let mut watches: Vec<Box<dyn Watch + 'w>> = Vec::new();
        let started = child.as_ref().map(|child| child.pid());
        let mappings = child.and_then(|child| child.mappings.take());
        let is_held = mappings.is_some() && self.pids.is_empty();
        let pids: Vec<u32> = self.pids.iter().copied().chain(started).collect();
        match self.mapping_watch(is_held, &pids, extender) {
            Ok(watch) => watches.push(watch),
            // Files that are mapped executable are still reported.
            Err(_) if is_held => {}
            Err(error) => {
                extender.miss_mappings();
                self.messages.warning(&format!("libraries that processes load later are missed: {error}"));
            }
        }
        // Scans of mappings see forked processes, too.
        if is_held && session.watches_ends() {
            match Descendants::new(pids) {
                Ok(family) => watches.push(Box::new(family)),
                Err(error) => {
                    self.messages.warning(&format!("the end of forked processes is not noticed: {error}"));
                }
            }
        }
        match OverwriteWatch::new(extender, session) {
            Ok(overwritten) => watches.push(Box::new(overwritten)),
            Err(error) => self.messages.warning(&format!("overwritten libraries are not detected: {error}")),
        }
        watches.extend(
            mappings.map(|mappings| Box::new(HeldMappings::new(mappings, extender)) as Box<dyn Watch>),
        );
        if extender.unwinder().is_some() {
            match UnwindUpdater::new(extender) {
                Ok(updater) => watches.push(Box::new(updater)),
                Err(error) => self
                    .messages
                    .warning(&format!("stacks of new processes are walked by frame pointers: {error}")),
            }
        }
        watches
    }

    /// The source of reports on libraries that are loaded later. A process that programs run in is held meanwhile, or looked at.
    fn mapping_watch<'w>(
        &self,
        is_held: bool,
        pids: &[u32],
        extender: &'w Extender<'w>,
    ) -> io::Result<Box<dyn Watch + 'w>> {
        Ok(match (is_held, self.in_process) {
            (true, _) => Box::new(MappingReports::beside(MappingWatch::start()?, extender)),
            // A command, which would be one more, is held at new files, and cannot be stopped then.
            (false, true) => Box::new(MappingScans::new(pids, pids == self.pids, extender)?),
            (false, false) => Box::new(MappingReports::new(MappingWatch::start()?, extender)),
        })
    }
}

impl Outputs {
    /// Periodic tasks of the outputs.
    fn watches(&mut self) -> anyhow::Result<Vec<Box<dyn Watch>>> {
        let mut watches: Vec<Box<dyn Watch>> = self.live.take().into_iter().collect();
        if !self.flushing.is_empty() {
            let flush = FlushOn::signals(&self.flushing, self.sink.flush_flag());
            watches.push(Box::new(flush.context("cannot catch signals")?));
        }
        Ok(watches)
    }
}

/// Ends the line on a terminal, which shows Ctrl-C as `^C`.
fn end_line() {
    eprintln!();
}

/// Whether the scripts only have BEGIN and END, so that nothing happens in between.
fn does_nothing_more(modules: &[CompiledScript]) -> bool {
    let mut programs = modules.iter().flat_map(|module| &module.manifest.programs);
    programs.all(|program| matches!(program.attach, Attach::Event(Trigger::Begin | Trigger::End)))
}

/// Whether a script may print user-space addresses.
fn prints_symbols(manifest: &Manifest) -> bool {
    fn has_usym(ty: &wire::Type) -> bool {
        match ty {
            wire::Type::Usym => true,
            wire::Type::Tuple(parts) | wire::Type::Record(_, parts) | wire::Type::Either(parts) => {
                parts.iter().any(has_usym)
            }
            _ => false,
        }
    }
    let in_keys = manifest.maps.iter().flat_map(|map| &map.key).any(has_usym);
    let in_values =
        manifest.maps.iter().any(|map| matches!(&map.value, wire::map::MapValue::Plain(ty) if has_usym(ty)));
    in_keys || in_values || manifest.stacks.iter().any(|stack| stack.user)
}
