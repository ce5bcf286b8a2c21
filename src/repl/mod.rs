//! The prompt: a session that grows. Clauses are attached as they are entered, in addition to earlier ones, and share their maps.
//!
//! ```text
//! terminal or pipe -> input (a thread) -> Prompt (a watch of the running session) -> clauses | commands
//! records, maps, messages, the program's output -> screen (a thread) -> above the line being typed
//! ```
//!
//! The session starts empty. Each script that is entered becomes a module that extends it (`run::script_set`).

mod clauses;
pub mod commands;
pub mod complete;
mod edit;
mod gpu;
mod help;
mod input;
mod inputs;
mod program;
mod resize;
mod screen;
mod session;
mod statement;
mod watch;

use crate::cli::Cli;
use crate::console::Messages;
use crate::export::{self, Exports};
use crate::run::compiler::{Compiler, CompilerInputs};
use crate::run::extender::Extender;
use crate::run::late_files::MappingReports;
use crate::run::overwritten_files::OverwriteWatch;
use crate::run::plan::Target;
use crate::run::script_set::Scripts;
use crate::run::{exit_status, setup};
use crate::script::{self, Script};
use crate::symbolize::MachineNames;
use crate::{Failure, metrics};
use anyhow::{Context, Result, bail};
use complete::Facts;
use gpu::Gpu;
use inputs::{Input, Inputs};
use lang::SessionState;
use runtime::kernel::clock::{Epoch, SystemClock};
use runtime::kernel::signals::{BlockedSignal, StopSignals};
use runtime::session::event_loop::{Joining, Next, Watch};
use runtime::started::MappingWatch;
use runtime::{AttachOptions, Control, LoadedScript, Session};
use screen::Screen;
use session::{Clauses, Program, Repl, SessionOutput};
use statement::Statement;
use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Capacity in counters for clauses that are added later.
const SPARE_COUNTERS: u32 = 8192;

/// Reads clauses and commands until the end; returns the exit status.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8, Failure> {
    if cli.in_process {
        setup::check_prompt_in_process(messages)?;
    }
    let target = Target::of(cli)?;
    let machine = Arc::new(target.machine(cli));
    let Target { argv, pids } = target;
    let agent = crate::gpu::offer_agent(&machine, cli.user.as_deref(), messages);
    let gpu_reports = crate::gpu::Reports::default();
    let kernel = setup::kernel(cli)?;
    // Signals are set before threads start. Ctrl-C does not end a session at a prompt.
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let signals = StopSignals::install_but(terminal.then_some(libc::SIGINT))
        .context("cannot catch signals")
        .map_err(Failure::loading)?;

    let mut empty = Compiler::new(Script::empty("repl"), CompilerInputs { machine: &machine, cli, messages });
    empty.front(SessionState::default()).map_err(Failure::wrong)?;
    let compiled = empty.compile(&kernel.features, false, None).map_err(Failure::wrong)?;
    let options = runtime::Options { pids, spare_counters: SPARE_COUNTERS, ..Default::default() };
    let loaded = LoadedScript::load(&compiled, &options).map_err(Failure::loading)?;
    let files = |_| PathBuf::new();
    let mut session = loaded
        .attach(&AttachOptions { files: &files, link_pid: None, stop: None, patch: None })
        .map_err(Failure::loading)?;

    let epoch = Epoch::new(&SystemClock);
    let names = MachineNames::new(session.stacks(), epoch, &compiled.manifest);
    let scripts = Scripts::new(empty, &machine, messages, kernel.features, None);
    let extender = Extender::new(&scripts, &machine, &names, None, messages);
    let maps = Arc::new(Mutex::new(Vec::new()));
    let facts = Facts { catalog: Arc::clone(&machine) as _, maps: Arc::clone(&maps) };
    let (inputs, output) =
        if terminal { on_terminal(facts, messages) } else { on_pipe() }.map_err(Failure::wrong)?;
    let shown = setup::sink(cli, output.out(), output.notices(), true).map_err(Failure::wrong)?;
    let recorded = export::run(&epoch, "repl", argv.as_deref().unwrap_or_default(), &cli.pids);
    let mut sink = Exports::open(&cli.export, &cli.export_options(), &Arc::new(recorded), shown)
        .map_err(Failure::wrong)?;
    let servers = metrics::bind(cli).map_err(Failure::wrong)?;
    let mut exported = metrics::MetricsOutputs::new(servers, &sink, &names, &scripts);
    let measuring = exported.as_mut().map_or(Ok(Vec::new()), |exported| exported.watches(messages));
    let joining = Joining::default();
    let repl = Rc::new(Repl {
        cli,
        messages,
        machine: &machine,
        scripts: &scripts,
        extender: &extender,
        names: &names,
        inputs,
        output,
        maps,
        joining: Rc::clone(&joining),
        clauses: Clauses::default(),
        gpu: Gpu::new(agent.as_ref(), &gpu_reports),
        program: Program::named(argv),
        waiting: Cell::new(false),
        ending: Cell::new(false),
        failed: Cell::new(false),
        watching: Cell::new(0),
        is_watching: Cell::new(false),
        terminal,
    });
    repl.begin(&mut session);
    let mut watches: Vec<Box<dyn Watch>> = vec![Box::new(Prompt(Rc::clone(&repl)))];
    if terminal {
        let signal = BlockedSignal::new(libc::SIGINT).map_err(Failure::loading)?;
        watches.push(Box::new(InterruptSignal { signal, repl: Rc::clone(&repl) }));
    }
    watches.extend(measuring.map_err(Failure::loading)?);
    watches.extend(sink.warnings(messages));
    watches.push(Box::new(crate::run::ended_processes::EndedProcesses::new().map_err(Failure::loading)?));
    let control = Control { signals: Some(&signals), watches, joining, ..Control::default() };
    let ending = session.run(&mut sink, &names, control);
    if let Some(exported) = &exported {
        exported.finish(&session);
    }
    exit_status::report_expelled(&session, messages);
    drop(session);
    repl.gpu.print(repl.messages);
    sink.close(messages, &|| false);
    let status = exit_status::status(&ending, None, messages);
    repl.output.end();
    let status = status.map(|status| exit_status::of_results(status, &ending, &extender));
    status.map(|status| if status == 0 && repl.failed.get() && !terminal { crate::WRONG } else { status })
}

fn on_terminal(facts: Facts, messages: &Messages) -> Result<(Inputs, SessionOutput)> {
    let mut editor = input::editor(facts, messages.color())?;
    let output = SessionOutput::Screen(Screen::start(editor.create_external_printer()?)?);
    messages.redirect(output.notices());
    messages.note("`:help` lists the commands, Tab completes, Ctrl-D ends");
    Ok((input::from_terminal(editor)?, output))
}

fn on_pipe() -> Result<(Inputs, SessionOutput)> {
    Ok((input::from_pipe()?, SessionOutput::Standard))
}

/// Handles input.
struct Prompt<'a>(Rc<Repl<'a>>);

impl Watch for Prompt<'_> {
    fn fd(&self) -> RawFd {
        self.0.inputs.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        match self.0.inputs.take() {
            Some(Input::Text(text)) => self.0.typed(session, &text),
            Some(Input::Interrupt) => self.0.interrupt(session),
            Some(Input::End) => self.0.input_ended(session),
            None => Next::Continue,
        }
    }
}

/// Ctrl-C while there is no prompt, which the terminal turns into a signal: the line editor is between two lines.
struct InterruptSignal<'a> {
    signal: BlockedSignal,
    repl: Rc<Repl<'a>>,
}

impl Watch for InterruptSignal<'_> {
    fn fd(&self) -> RawFd {
        self.signal.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        match self.signal.take() {
            true => self.repl.interrupt(session),
            false => Next::Continue,
        }
    }
}

impl<'a> Repl<'a> {
    /// Performs the requests of the command line, before any input.
    fn begin(self: &Rc<Self>, session: &mut Session) {
        match MappingWatch::with_forks() {
            Ok(watch) => self.joining.borrow_mut().push(Box::new(MappingReports::new(watch, self.extender))),
            Err(error) => self
                .messages
                .warning(&format!("libraries that a process loads from now on get no probes: {error}")),
        }
        if let Ok(overwritten) = OverwriteWatch::new(self.extender, session) {
            self.joining.borrow_mut().push(Box::new(overwritten));
        }
        if self.terminal {
            let how =
                if self.program.is_due() { "`:run` starts it" } else { "`:pid` and `:run` change that" };
            self.messages.note(&format!("tracing {}; {how}", self.program.target(self)));
        }
        let mut begun = self.program.watch_pids(self, &self.cli.pids);
        if begun.is_ok() && self.cli.interactive && self.cli.has_script() {
            begun = script::load(self.cli, self.messages)
                .and_then(|script| self.clauses.add(self, session, script, 0).map(drop));
        }
        if let Err(error) = begun {
            self.fail(&error);
        }
    }

    fn typed(self: &Rc<Self>, session: &mut Session, text: &str) -> Next {
        for piece in pieces(text) {
            let done = match commands::split(&piece) {
                Some((name, rest)) => commands::run(self, session, name, rest),
                None => self.run_script(session, &piece).map(|()| Next::Continue),
            };
            match done {
                Ok(Next::Stop) => return Next::Stop,
                Ok(_) => {}
                Err(error) => self.fail(&error),
            }
        }
        if !self.waiting.get() {
            self.inputs.done();
        }
        Next::Continue
    }

    /// Attaches clauses, prints a map, or runs statements once.
    fn run_script(&self, session: &mut Session, text: &str) -> Result<()> {
        if let Some(command) = text.trim_start().strip_prefix('!') {
            bail!("this is no shell; `:run {}` starts a program and traces it", command.trim());
        }
        match statement::of(text, &self.clauses.defined()) {
            Some(Statement::Map(name)) => {
                let (map, _) = commands::map_and_number(session, &name)?;
                self.show_map(session, map, 0)
            }
            Some(Statement::Run(statements)) => self.clauses.run_once(self, session, &statements),
            Some(Statement::Unknown(word)) => Err(commands::unknown(&word)),
            None => self.clauses.typed(self, session, text),
        }
    }

    /// Handles Ctrl-C: clauses that print are stopped, the session continues.
    fn interrupt(&self, session: &mut Session) -> Next {
        if self.is_watching.replace(false) {
            return Next::Continue;
        }
        let stopped = self.clauses.stop_printing(self, session);
        let numbers: Vec<String> = stopped.iter().map(u32::to_string).collect();
        self.messages.note(&match numbers.len() {
            0 => "no clause prints; Ctrl-D ends".to_owned(),
            _ => format!("stopped clauses that print: {}; `:resume` attaches it again", numbers.join(", ")),
        });
        Next::Continue
    }

    /// Handles the end of input. On a terminal it ends the session. A session on a pipe runs until its program
    /// ends, which is started if necessary.
    fn input_ended(self: &Rc<Self>, session: &mut Session) -> Next {
        if self.terminal {
            return Next::Stop;
        }
        if self.program.is_due()
            && let Err(error) = self.program.start(self, session, Vec::new())
        {
            self.fail(&error);
        }
        self.ending.set(true);
        if self.program.is_running() { Next::Remove } else { Next::Stop }
    }
}

/// Splits text into commands and the text between them.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in text.lines() {
        let script = pieces.last_mut().expect("one at least");
        if edit::is_complete(script) && commands::split(line).is_some() {
            pieces.extend([line.to_owned(), String::new()]);
        } else {
            script.push_str(line);
            script.push('\n');
        }
    }
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paste_is_taken_apart() {
        let text = "BEGIN {\n:x\n}\nEND { }\n:list\n\nhelp cuInit\n#define A 1";
        assert_eq!(pieces(text), ["BEGIN {\n:x\n}\nEND { }\n", ":list", "help cuInit", "#define A 1\n"]);
    }
}
