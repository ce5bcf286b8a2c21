//! Runs a script: compile, load, attach, print until something ends it.

use crate::cli::{Cli, Stage};
use crate::export::{self, Exports, FlushOn, Observer, Summary};
use crate::messages::Messages;
use crate::names::MachineNames;
use crate::script::{self, Script};
use crate::trace::compiler::Compiler;
use crate::trace::late::{Asked, Extender, Heard};
use crate::trace::scripts::Scripts;
use crate::trace::unwind::{Caretaker, Unwinder};
use crate::trace::{ending, setup};
use crate::{Failure, metrics, trace};
use anyhow::Context;
use lang::Known;
use runtime::clock::{Epoch, SystemClock};
use runtime::process::{Child, Command, MappingWatch};
use runtime::run::Watch;
use runtime::signals::StopSignals;
use runtime::{AttachOptions, Control, Loaded, Session};
use std::ffi::OsString;
use std::io::{self};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use target::{Machine, Scope};
use wire::Features;
use wire::Manifest;
use wire::manifest::{Attach, Compiled, Event, EventKind, Message};

/// Traces as the command line says; gives the exit status.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8, Failure> {
    let scripts = script::load_all(cli, messages).map_err(Failure::wrong)?;
    script::check_given(&scripts, cli, messages).map_err(Failure::wrong)?;
    run_scripts(scripts, cli, messages, None)
}

/// What is done beside the script's own output when a run is recorded.
pub struct Recording {
    /// Where records go.
    pub exports: Vec<export::Asked>,
    /// Sees all of them.
    pub observer: Observer,
    /// Looked at while it runs; it is given what has gone through.
    pub live: OpenLive,
}

/// Makes what is looked at while a recording runs, of the exports' counts.
pub type OpenLive = Box<dyn FnOnce(Vec<Arc<Summary>>) -> anyhow::Result<Box<dyn Watch>>>;

/// Traces by these scripts. When it is recorded, what it says at the end is for `recording` alone.
pub fn run_scripts(
    scripts: Vec<Script>,
    cli: &Cli,
    messages: &Messages,
    recording: Option<Recording>,
) -> Result<u8, Failure> {
    let start = Instant::now();
    let argv = setup::command(cli).map_err(Failure::wrong)?;
    let pids = setup::pids(cli).map_err(Failure::wrong)?;
    let machine = Machine::new(Scope {
        pids: pids.clone(),
        command: argv.clone(),
        lib_overrides: cli.libs.clone(),
        ..Scope::default()
    })
    .with_kernel(&crate::kernel::Running);
    let mut compilers: Vec<Compiler> = Vec::new();
    for script in scripts {
        let mut compiler = Compiler::new(script, &machine, cli, messages);
        let known = compilers.last().map_or_else(Known::default, Compiler::known);
        compiler.front(known).map_err(Failure::wrong)?;
        compilers.push(compiler);
    }
    if cli.check {
        if cli.debug.iter().any(|stage| !matches!(stage, Stage::Ast | Stage::Hir)) {
            messages.warning("--check stops before code is made: with --dry-run, -d shows all stages");
        }
        return Ok(0);
    }
    let kernel = setup::kernel(cli)?;
    let traced = pids.len() + usize::from(argv.is_some());
    let by_link = cli.no_children
        && traced == 1
        && compilers.iter().all(Compiler::runs_by_calls_alone)
        && setup::link_filters(&kernel);
    let mut modules: Vec<Compiled> = Vec::new();
    for compiler in &mut compilers {
        let before = modules.last().map(|module| &module.manifest);
        modules.push(compiler.compile(&kernel.features, by_link, before).map_err(Failure::wrong)?);
    }
    let compiled = &modules[0];
    if let Some(path) = &cli.emit {
        let objects = compilers.iter().map(Compiler::heading).zip(&modules);
        return emit(path, objects, messages).map(|()| 0).map_err(Failure::wrong);
    }
    messages
        .detail(|| format!("compiled after {:?}: {} bytes of object", start.elapsed(), compiled.elf.len()));
    let features = kernel.features;
    let job = Job { cli, messages, machine: &machine, features, argv, pids, by_link, start };
    job.run(compilers, &modules, recording)
}

/// Writes the objects of the scripts; of several each to a file of its own: `x.kernels.o`.
fn emit<'m>(
    path: &Path,
    objects: impl Iterator<Item = (&'m str, &'m Compiled)>,
    messages: &Messages,
) -> anyhow::Result<()> {
    for (heading, compiled) in objects {
        let to = if heading.is_empty() { path.to_owned() } else { beside(path, heading) };
        std::fs::write(&to, &compiled.elf).with_context(|| to.display().to_string())?;
        if !heading.is_empty() {
            messages.note(&format!("wrote {}", to.display()));
        }
    }
    Ok(())
}

/// `x.o` of the script `kernels`: `x.kernels.o`.
fn beside(path: &Path, heading: &str) -> PathBuf {
    let word = heading.trim_start_matches('-');
    match path.extension() {
        Some(extension) => path.with_extension(format!("{word}.{}", extension.display())),
        None => path.with_extension(word),
    }
}

/// Who runs bpftrace and sets this waits for a line that says the same, once the probes are attached.
const NOTIFY: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";

struct Job<'a> {
    cli: &'a Cli,
    messages: &'a Messages,
    machine: &'a Machine,
    features: Features,
    argv: Option<Vec<OsString>>,
    pids: Vec<u32>,
    /// The links' own filter says which process is traced.
    by_link: bool,
    start: Instant,
}

impl<'a> Job<'a> {
    /// Runs the scripts, each a module that was compiled behind those before it.
    fn run(
        &self,
        compilers: Vec<Compiler<'a>>,
        modules: &[Compiled],
        recording: Option<Recording>,
    ) -> Result<u8, Failure> {
        let (compiled, all) = (&modules[0], &modules[modules.len() - 1].manifest);
        let flushing =
            if self.cli.export.is_empty() && recording.is_none() { Vec::new() } else { export::flushing() };
        let signals = StopSignals::install_without(&flushing)
            .context("cannot catch signals")
            .map_err(Failure::loading)?;
        let epoch = Epoch::new(&SystemClock);
        let asked = recording.as_ref().map_or(&self.cli.export[..], |recording| &recording.exports);
        let mut sink = self.sink(&epoch, all, asked, recording.is_some()).map_err(Failure::wrong)?;
        let live = recording.map(|recording| {
            sink.observe(recording.observer);
            (recording.live)(sink.summaries())
        });
        self.say_where_metrics_go(all);
        let servers =
            if self.cli.dry_run { Vec::new() } else { metrics::bind(self.cli).map_err(Failure::wrong)? };
        let mut child = if self.cli.dry_run { None } else { self.spawn(all)? };
        let mut traced = self.pids.clone();
        let started = child.as_ref().map(Child::pid);
        traced.extend(started);
        let link_pid = traced.first().copied().filter(|_| self.by_link);
        let options = runtime::Options { pids: traced, child: started, ..Default::default() };
        let loaded = Loaded::load(compiled, &options).map_err(Failure::loading)?;
        self.messages.detail(|| format!("loaded after {:?}", self.start.elapsed()));
        if self.cli.dry_run {
            return Ok(0);
        }
        let unwinder = loaded.unwind_maps().map(|maps| Unwinder::new(maps, self.messages));
        if let Some(unwinder) = &unwinder {
            unwinder.start_with(&self.pids);
        }
        let files = |id: u32| self.open_path(id);
        let attach = AttachOptions { files: &files, link_pid };
        let mut session = loaded.attach(&attach).map_err(Failure::loading)?;
        self.attached(&session);
        let targets = self.targets(child.as_ref()).map_err(Failure::wrong)?;
        let names = MachineNames::new(session.stacks(), epoch);
        let mut compilers = compilers.into_iter();
        let first = compilers.next().expect("one script at least");
        let scripts = Scripts::new(first, self.machine, self.messages, self.features, link_pid);
        let extender = Extender::new(&scripts, self.machine, &names, unwinder, self.messages);
        for ((number, compiler), module) in (1..).zip(compilers).zip(&modules[1..]) {
            scripts.add_compiled(&mut session, number, compiler, module).map_err(Failure::loading)?;
        }
        if let (None, Some(maps)) = (extender.unwinder(), session.unwind_maps()) {
            extender.walk_stacks(maps).start_with(&self.pids);
        }
        let mut exported = metrics::Exported::new(servers, &sink, &names);
        let measuring = exported.as_mut().map_or(Ok(Vec::new()), |exported| exported.watches(self.messages));
        let measuring = measuring.map_err(Failure::loading)?;
        if let Some(child) = &mut child {
            child.release().map_err(Failure::wrong)?;
            if let Some(unwinder) = extender.unwinder() {
                unwinder.look(child.pid());
            }
        }
        let mut watches = self.watches(child.as_mut(), &extender);
        watches.extend(measuring);
        if !flushing.is_empty() {
            let flush = FlushOn::signals(&flushing, sink.flush_flag()).context("cannot catch signals");
            watches.push(Box::new(flush.map_err(Failure::loading)?));
        }
        let mut programs = modules.iter().flat_map(|module| &module.manifest.programs);
        let nothing_more = programs.all(|p| matches!(p.attach, Attach::Begin | Attach::End));
        if nothing_more && targets.is_empty() {
            watches.push(Box::new(trace::Done::new().map_err(Failure::loading)?));
        }
        if let Some(live) = live {
            watches.push(live.map_err(Failure::loading)?);
        }
        let control = Control { signals: Some(&signals), targets, watches, ..Control::default() };
        let ending = session.run(&mut sink, &names, control);
        if let Some(exported) = &exported {
            exported.finish(&session);
        }
        drop(session);
        sink.close(self.messages);
        scripts.say_missing();
        ending::status(&ending, child, self.messages)
    }

    /// Where the script's output goes, and what else hears of it.
    fn sink(
        &self,
        epoch: &Epoch,
        manifest: &Manifest,
        asked: &[export::Asked],
        recorded: bool,
    ) -> anyhow::Result<Exports> {
        let out: Box<dyn io::Write> = if recorded { Box::new(io::sink()) } else { Box::new(io::stdout()) };
        let inner = setup::sink(self.cli, out, Box::new(io::stderr()), self.cli.quiet || recorded)?;
        let argv = self.argv.as_deref().unwrap_or_default();
        let run = export::run(epoch, &manifest.scripts().join(" "), argv);
        let asked = if self.cli.dry_run { &[][..] } else { asked };
        Exports::open(asked, self.cli.rotate, &Arc::new(run), inner)
    }

    /// Scripts that are nothing but metrics print none of them.
    fn say_where_metrics_go(&self, manifest: &Manifest) {
        let is_warning =
            |event: &Event| matches!(event.kind, EventKind::Message { what: Message::Warning, .. });
        let silent = !manifest.print_maps_on_exit && manifest.events.iter().all(is_warning);
        if silent && !manifest.metrics.is_empty() && self.cli.export.is_empty() {
            self.messages.warning(
                "metrics are not printed, and nobody is told of them: add `--export openmetrics=9464` for Prometheus, or \
                 `--export otlp=URL`",
            );
        }
    }

    fn open_path(&self, id: u32) -> PathBuf {
        self.machine.open_path(lang::catalog::FileId(id)).to_path_buf()
    }

    fn spawn(&self, manifest: &Manifest) -> Result<Option<Child>, Failure> {
        let Some(argv) = self.argv.clone() else { return Ok(None) };
        let known = self.machine.files_taken().iter().map(|file| self.machine.identity(file.id)).collect();
        let (user, watch_ends) = (self.cli.user.clone(), prints_symbols(manifest));
        let every_mapping = trace::walks_stacks(manifest);
        let command =
            Command { argv, user, watch_mappings: true, watch_ends, known, every_mapping, apart: false };
        let child = Child::spawn(&command).map_err(Failure::wrong)?;
        if let Some(error) = &child.unwatched {
            self.messages.warning(&format!(
                "libraries that the program maps later cannot be attached before their first call: {error}"
            ));
        }
        Ok(Some(child))
    }

    fn attached(&self, session: &Session) {
        if std::env::var_os(NOTIFY).is_some() {
            println!("{NOTIFY}");
        }
        session.failures().iter().for_each(|failure| self.messages.not_attached(failure));
        self.messages.detail(|| format!("attached after {:?}", self.start.elapsed()));
    }

    fn targets(&self, child: Option<&Child>) -> anyhow::Result<Vec<std::os::fd::OwnedFd>> {
        let running = self.pids.iter().filter(|pid| self.cli.pids.contains(pid));
        let running = running.map(|&pid| runtime::pidfd_open(pid).with_context(|| format!("process {pid}")));
        let started = child.map(|child| Ok(child.pidfd().try_clone_to_owned()?));
        running.chain(started).collect()
    }

    /// How we learn of libraries that appear from now on.
    fn watches<'w>(&self, child: Option<&mut Child>, extender: &'w Extender<'w>) -> Vec<Box<dyn Watch + 'w>> {
        let mut watches: Vec<Box<dyn Watch + 'w>> = Vec::new();
        let mappings = child.and_then(|child| child.mappings.take());
        if mappings.is_none() || !self.pids.is_empty() {
            match MappingWatch::start() {
                Ok(watch) => watches.push(Box::new(Heard::new(watch, extender))),
                Err(error) => self
                    .messages
                    .warning(&format!("libraries that processes map later are not seen: {error}")),
            }
        }
        watches.extend(mappings.map(|mappings| Box::new(Asked::new(mappings, extender)) as Box<dyn Watch>));
        if extender.unwinder().is_some() {
            match Caretaker::new(extender) {
                Ok(caretaker) => watches.push(Box::new(caretaker)),
                Err(error) => {
                    self.messages.warning(&format!("stacks of new processes go by frame pointers: {error}"))
                }
            }
        }
        watches
    }
}

/// Whether what a script prints may name addresses of user space.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_several_scripts_lie_beside_each_other() {
        let beside = |path: &str, heading| beside(Path::new(path), heading).display().to_string();
        assert_eq!(beside("/tmp/x.o", "kernels"), "/tmp/x.kernels.o");
        assert_eq!(beside("/tmp/x", "kernels2"), "/tmp/x.kernels2");
        assert_eq!(beside("x.o", "-e"), "x.e.o");
    }
}
