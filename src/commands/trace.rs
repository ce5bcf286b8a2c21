//! Runs a script: compile, load, attach, print until something ends it.

use crate::cli::{Cli, Format};
use crate::messages::Messages;
use crate::names::MachineNames;
use crate::script;
use crate::trace::compiler::Compiler;
use crate::trace::late::{Asked, Extender, Heard};
use crate::trace::unwind::{Caretaker, Unwinder};
use crate::{Failure, trace};
use anyhow::{Context, anyhow};
use report::Sink;
use report::sink::{JsonSink, TextSink};
use runtime::process::{Child, Command, MappingWatch};
use runtime::run::Watch;
use runtime::signals::StopSignals;
use runtime::{AttachOptions, Control, Ending, Kernel, Loaded, Reason, Session};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Instant;
use target::{Machine, Scope, process};
use wire::Features;
use wire::Manifest;
use wire::manifest::{Attach, Compiled};

/// Traces as the command line says; gives the exit status.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8, Failure> {
    let start = Instant::now();
    let script = script::load(cli, messages).map_err(Failure::wrong)?;
    script::check_given(&script, cli, messages).map_err(Failure::wrong)?;
    let argv = command(cli).map_err(Failure::wrong)?;
    let pids = pids(cli).map_err(Failure::wrong)?;
    let machine = Machine::new(Scope {
        pids: pids.clone(),
        command: argv.clone(),
        lib_overrides: cli.libs.clone(),
        ..Scope::default()
    })
    .with_kernel(&crate::kernel::Running);
    let mut compiler = Compiler::new(&script, &machine, cli, messages);
    compiler.front().map_err(Failure::wrong)?;
    if cli.check {
        return Ok(0);
    }
    let kernel = kernel(cli)?;
    let traced = pids.len() + usize::from(argv.is_some());
    let by_link = cli.no_children && traced == 1 && compiler.runs_by_calls_alone() && link_filters(&kernel);
    let compiled = compiler.compile(&kernel.features, traced > 0 && !by_link).map_err(Failure::wrong)?;
    if let Some(path) = &cli.emit {
        std::fs::write(path, &compiled.elf)
            .with_context(|| path.display().to_string())
            .map_err(Failure::wrong)?;
        return Ok(0);
    }
    messages
        .detail(|| format!("compiled after {:?}: {} bytes of object", start.elapsed(), compiled.elf.len()));
    let job = Job { cli, messages, machine: &machine, argv, pids, by_link, start };
    job.run(compiler, &compiled)
}

struct Job<'a> {
    cli: &'a Cli,
    messages: &'a Messages,
    machine: &'a Machine,
    argv: Option<Vec<OsString>>,
    pids: Vec<u32>,
    /// The links' own filter says which process is traced.
    by_link: bool,
    start: Instant,
}

impl<'a> Job<'a> {
    fn run(&self, compiler: Compiler<'a>, compiled: &Compiled) -> Result<u8, Failure> {
        let signals = StopSignals::install().context("cannot catch signals").map_err(Failure::loading)?;
        let mut sink = self.sink().map_err(Failure::wrong)?;
        let mut child = if self.cli.dry_run { None } else { self.spawn(&compiled.manifest)? };
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
        let names = MachineNames::new(session.stacks());
        let extender =
            Rc::new(Extender::new(compiler, self.machine, &names, unwinder, self.messages, link_pid));
        if let Some(child) = &mut child {
            child.release().map_err(Failure::wrong)?;
            if let Some(unwinder) = &extender.unwinder {
                unwinder.look(child.pid());
            }
        }
        let mut watches = self.watches(child.as_mut(), &extender);
        let nothing_more =
            compiled.manifest.programs.iter().all(|p| matches!(p.attach, Attach::Begin | Attach::End));
        if nothing_more && targets.is_empty() {
            watches.push(Box::new(trace::Done::new().map_err(Failure::loading)?));
        }
        let control = Control { signals: Some(&signals), targets, watches, ..Control::default() };
        let ending = session.run(sink.as_mut(), &names, control);
        drop(session);
        self.end(&ending, child)
    }

    fn open_path(&self, id: u32) -> PathBuf {
        self.machine.open_path(lang::catalog::FileId(id)).to_path_buf()
    }

    fn sink(&self) -> anyhow::Result<Box<dyn Sink>> {
        let writer: Box<dyn Write> = match &self.cli.output {
            Some(path) => {
                Box::new(File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?)
            }
            None => Box::new(io::stdout()),
        };
        let writer = BufWriter::with_capacity(64 * 1024, writer);
        Ok(match self.cli.format {
            Format::Text => Box::new(TextSink::new(writer, io::stderr(), self.cli.quiet)),
            Format::Json => Box::new(JsonSink::new(writer, self.cli.quiet)),
        })
    }

    fn spawn(&self, manifest: &Manifest) -> Result<Option<Child>, Failure> {
        let Some(argv) = self.argv.clone() else { return Ok(None) };
        let known = self.machine.files_taken().iter().map(|file| self.machine.identity(file.id)).collect();
        let (user, watch_ends) = (self.cli.user.clone(), prints_symbols(manifest));
        let every_mapping = walks_stacks(manifest);
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
        for failure in session.failures() {
            self.messages.warning(&format!(
                "cannot attach {} at {:#x} in {}: {}",
                failure.probe,
                failure.offset,
                failure.path.display(),
                failure.errno
            ));
        }
        self.messages.detail(|| format!("attached after {:?}", self.start.elapsed()));
    }

    fn targets(&self, child: Option<&Child>) -> anyhow::Result<Vec<std::os::fd::OwnedFd>> {
        let running = self.pids.iter().filter(|pid| self.cli.pids.contains(pid));
        let running = running.map(|&pid| runtime::pidfd_open(pid).with_context(|| format!("process {pid}")));
        let started = child.map(|child| Ok(child.pidfd().try_clone_to_owned()?));
        running.chain(started).collect()
    }

    /// How we learn of libraries that appear from now on.
    fn watches<'w>(
        &self,
        child: Option<&mut Child>,
        extender: &Rc<Extender<'w>>,
    ) -> Vec<Box<dyn Watch + 'w>> {
        let mut watches: Vec<Box<dyn Watch + 'w>> = Vec::new();
        let mappings = child.and_then(|child| child.mappings.take());
        if mappings.is_none() || !self.pids.is_empty() {
            match MappingWatch::start() {
                Ok(watch) => {
                    let any = (self.pids.is_empty() && self.argv.is_none()) || !process::sees_all_pids();
                    watches.push(Box::new(Heard::new(watch, Rc::clone(extender), any)));
                }
                Err(error) => self
                    .messages
                    .warning(&format!("libraries that processes map later are not seen: {error}")),
            }
        }
        watches.extend(
            mappings.map(|mappings| Box::new(Asked::new(mappings, Rc::clone(extender))) as Box<dyn Watch>),
        );
        if extender.unwinder.is_some() {
            match Caretaker::new(Rc::clone(extender)) {
                Ok(caretaker) => watches.push(Box::new(caretaker)),
                Err(error) => {
                    self.messages.warning(&format!("stacks of new processes go by frame pointers: {error}"))
                }
            }
        }
        watches
    }

    fn end(&self, ending: &Ending, child: Option<Child>) -> Result<u8, Failure> {
        self.messages.detail(|| {
            let rest = if ending.detached.left_behind {
                "; the kernel's grace period goes on behind us"
            } else {
                ""
            };
            format!("detached in {:?}{rest}", ending.detached.after)
        });
        if ending.unknown > 0 {
            self.messages.warning(&format!(
                "{} records could not be read; this is a bug in cudatrace",
                ending.unknown
            ));
        }
        if ending.after_exit > 0 {
            self.messages
                .warning(&format!("{} events came after exit() and were not printed", ending.after_exit));
        }
        match &ending.reason {
            Reason::Exit(code) => Ok(*code as u8),
            Reason::Sink(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
            Reason::Sink(error) => Err(Failure::wrong(anyhow!(
                "cannot write the output: {error}; what was still to be said is lost"
            ))),
            Reason::Kernel(error) => {
                Err(Failure::loading(anyhow!("the kernel failed us in mid-run: {error}")))
            }
            Reason::TargetsEnded => match child {
                Some(mut child) => child.wait().map(status).map_err(Failure::loading),
                None => Ok(0),
            },
            Reason::Signal(_) | Reason::Watch => Ok(0),
        }
    }
}

/// The exit status as a shell gives it: 128 and the signal's number for a program that was killed.
fn status(status: ExitStatus) -> u8 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1) as u8
}

fn command(cli: &Cli) -> anyhow::Result<Option<Vec<OsString>>> {
    let argv = match &cli.command {
        Some(text) => {
            let words =
                shell_words::split(text).map_err(|_| anyhow!("-c `{text}`: a quote is not closed"))?;
            words.into_iter().map(OsString::from).collect()
        }
        None => cli.argv.clone(),
    };
    match (&cli.command, argv.is_empty()) {
        (Some(_), true) => Err(anyhow!("-c has no command")),
        (None, true) => Ok(None),
        _ => Ok(Some(argv)),
    }
}

/// The processes of `-p` and all their children, if those are wanted.
fn pids(cli: &Cli) -> anyhow::Result<Vec<u32>> {
    if let Some(pid) = cli.pids.iter().find(|pid| !process::is_alive(**pid)) {
        return Err(anyhow!("no process {pid}"));
    }
    Ok(if cli.no_children { cli.pids.clone() } else { process::with_descendants(&cli.pids) })
}

/// A link's own filter goes by process: that of a perf event does on every kernel.
fn link_filters(kernel: &Kernel) -> bool {
    kernel.uprobe_multi_pid || !kernel.features.uprobe_multi
}

/// What the kernel can do. An object to be written needs no rights: it is made for a current kernel then.
fn kernel(cli: &Cli) -> Result<Kernel, Failure> {
    let mut kernel = match Kernel::probe() {
        Ok(kernel) => kernel,
        Err(_) if cli.emit.is_some() => Kernel { features: Features::ALL, uprobe_multi_pid: true },
        Err(error) => return Err(Failure::loading(error)),
    };
    for name in &cli.no_feature {
        trace::without(&mut kernel.features, name).map_err(Failure::wrong)?;
    }
    Ok(kernel)
}

/// Whether programs walk stacks by tables of what processes have mapped.
fn walks_stacks(manifest: &Manifest) -> bool {
    manifest.internal_maps.iter().any(|map| map == wire::unwind::TABLES_MAP)
}

/// Whether what a script prints may name addresses of user space.
fn prints_symbols(manifest: &Manifest) -> bool {
    let has_usym = |ty: &wire::Type| matches!(ty, wire::Type::Usym);
    let in_keys = manifest.maps.iter().flat_map(|map| &map.key).any(has_usym);
    let in_values =
        manifest.maps.iter().any(|map| matches!(&map.value, wire::map::MapValue::Plain(ty) if has_usym(ty)));
    in_keys || in_values || manifest.stacks.iter().any(|stack| stack.user)
}
