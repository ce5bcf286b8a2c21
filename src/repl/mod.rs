//! The prompt: a session that grows. Clauses are attached as they are entered, beside the earlier ones, and share their maps.
//!
//! ```text
//! terminal or pipe -> input (a thread) -> Prompt (a watch of the running session) -> clauses | commands
//! records, maps, messages, the program's output -> screen (a thread) -> above the line being typed
//! ```
//!
//! The session starts empty. Each script that is entered becomes a module that extends it (`trace::script_set`).

mod clauses;
mod commands;
pub mod complete;
mod edit;
pub mod help;
mod input;
mod program;
mod resize;
mod screen;
mod statement;
mod watch;

use crate::cli::Cli;
use crate::console::Messages;
use crate::export::{self, Exports};
use crate::script::{self, Script};
use crate::symbolize::MachineNames;
use crate::trace::compiler::Compiler;
use crate::trace::extender::Extender;
use crate::trace::late_files::MappingReports;
use crate::trace::overwritten_files::OverwriteWatch;
use crate::trace::script_set::Scripts;
use crate::trace::unwind_updater::UnwindUpdater;
use crate::trace::{exit_status, setup};
use crate::{Failure, metrics};
use anyhow::{Context, Result};
use clauses::Clauses;
use complete::Facts;
use host::{Machine, Scope};
use input::{Input, Inputs};
use lang::diagnostics::suggest::similar;
use lang::{SessionState, Source};
use program::Program;
use report::Output;
use runtime::kernel::clock::{Epoch, SystemClock};
use runtime::kernel::signals::StopSignals;
use runtime::process::MappingWatch;
use runtime::read::event_loop::{Joining, Next, Watch};
use runtime::{AttachOptions, Control, LoadedScript, Session};
use screen::Screen;
use statement::Statement;
use std::cell::Cell;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use wire::Manifest;
use wire::manifest::PIDS_MAP;

/// Capacity in counters for clauses that are added later.
const SPARE_COUNTERS: u32 = 8192;
/// Number of the script that follows forks, when processes are selected.
const FOLLOWER: u32 = u32::MAX;

/// An error that was already reported.
#[derive(Debug, thiserror::Error)]
#[error("it was told")]
pub struct AlreadyReported;

/// State of the session for its commands.
pub struct Repl<'a> {
    cli: &'a Cli,
    messages: &'a Messages,
    machine: &'a Machine,
    scripts: &'a Scripts<'a>,
    extender: &'a Extender<'a>,
    names: &'a MachineNames,
    inputs: Inputs,
    mouth: Mouth,
    maps: Arc<Mutex<Vec<String>>>,
    joining: Joining<'a>,
    clauses: Clauses,
    program: Program,
    /// True during `:wait`: the next command waits for the end of the program.
    waiting: Cell<bool>,
    /// True if the input has ended but the program has not.
    ending: Cell<bool>,
    /// True after an error: a pipe then ends with status 1.
    failed: Cell<bool>,
    /// Number of the last `:watch`, and whether it is active.
    watching: Cell<u32>,
    is_watching: Cell<bool>,
    terminal: bool,
}

/// Reads clauses and commands until the end; returns the exit status.
///
/// # Errors
/// The kernel or the terminal refuses an operation.
pub fn run(cli: &Cli, messages: &Messages) -> Result<u8, Failure> {
    let argv = setup::command(cli).map_err(Failure::wrong)?;
    let pids = setup::pids(cli).map_err(Failure::wrong)?;
    let scope = Scope {
        pids: pids.clone(),
        command: argv.clone(),
        lib_overrides: cli.libs.clone(),
        ..Scope::default()
    };
    let machine = Arc::new(Machine::new(scope).with_kernel(&crate::kernel_catalog::Running));
    let kernel = setup::kernel(cli)?;
    // Signals are set before threads start. Ctrl-C does not end a session at a prompt.
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let signals = StopSignals::install_but(terminal.then_some(libc::SIGINT))
        .context("cannot catch signals")
        .map_err(Failure::loading)?;

    let mut empty = Compiler::new(nothing(), &machine, cli, messages);
    empty.front(SessionState::default()).map_err(Failure::wrong)?;
    let compiled = empty.compile(&kernel.features, false, None).map_err(Failure::wrong)?;
    let options = runtime::Options { pids, spare_counters: SPARE_COUNTERS, ..Default::default() };
    let loaded = LoadedScript::load(&compiled, &options).map_err(Failure::loading)?;
    let files = |_| PathBuf::new();
    let mut session = loaded
        .attach(&AttachOptions { files: &files, link_pid: None, stop: None })
        .map_err(Failure::loading)?;

    let epoch = Epoch::new(&SystemClock);
    let names = MachineNames::new(session.stacks(), epoch, &compiled.manifest);
    let scripts = Scripts::new(empty, &machine, messages, kernel.features, None);
    let extender = Extender::new(&scripts, &machine, &names, None, messages);
    let maps = Arc::new(Mutex::new(Vec::new()));
    let facts = Facts { catalog: Arc::clone(&machine) as _, maps: Arc::clone(&maps) };
    let (inputs, mouth) =
        if terminal { on_terminal(facts, messages) } else { on_pipe() }.map_err(Failure::wrong)?;
    let shown = setup::sink(cli, mouth.out(), mouth.notices(), true).map_err(Failure::wrong)?;
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
        mouth,
        maps,
        joining: Rc::clone(&joining),
        clauses: Clauses::default(),
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
    watches.extend(measuring.map_err(Failure::loading)?);
    watches.push(Box::new(crate::trace::EndedProcesses::new().map_err(Failure::loading)?));
    let control = Control { signals: Some(&signals), watches, joining, ..Control::default() };
    let ending = session.run(&mut sink, &names, control);
    if let Some(exported) = &exported {
        exported.finish(&session);
    }
    drop(session);
    sink.close(messages, &|| false);
    let status = exit_status::status(&ending, None, messages);
    repl.mouth.end();
    status.map(|status| if status == 0 && repl.failed.get() && !terminal { crate::WRONG } else { status })
}

/// The empty script at the start of a session.
fn nothing() -> Script {
    Script::alone(Source::new("repl", ""), &[])
}

fn on_terminal(facts: Facts, messages: &Messages) -> Result<(Inputs, Mouth)> {
    let mut editor = input::editor(facts, messages.color())?;
    let mouth = Mouth::Screen(Screen::start(editor.create_external_printer()?)?);
    messages.redirect(mouth.notices());
    messages.note("`:help` lists the commands, Tab completes, Ctrl-D ends");
    Ok((input::from_terminal(editor)?, mouth))
}

fn on_pipe() -> Result<(Inputs, Mouth)> {
    Ok((input::from_pipe()?, Mouth::Standard))
}

/// Destination of output.
enum Mouth {
    /// Above the prompt.
    Screen(Screen),
    /// Standard output, and standard error for messages.
    Standard,
}

impl Mouth {
    fn out(&self) -> Box<dyn Write> {
        match self {
            Mouth::Screen(screen) => Box::new(screen.clone()),
            Mouth::Standard => Box::new(io::stdout()),
        }
    }

    fn notices(&self) -> Box<dyn Write> {
        match self {
            Mouth::Screen(screen) => Box::new(screen.clone()),
            Mouth::Standard => Box::new(io::stderr()),
        }
    }

    fn end(&self) {
        if let Mouth::Screen(screen) = self {
            screen.end();
        }
    }
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

impl<'a> Repl<'a> {
    /// Performs the requests of the command line, before any input.
    fn begin(self: &Rc<Self>, session: &mut Session) {
        match MappingWatch::start() {
            Ok(watch) => self.joining.borrow_mut().push(Box::new(MappingReports::new(watch, self.extender))),
            Err(error) => {
                self.messages.warning(&format!("libraries that processes map later are not seen: {error}"))
            }
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
        if begun.is_ok() && (self.cli.execute.is_some() || !self.cli.words.is_empty()) {
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
            _ => format!("stopped what prints: clause {}; `:resume` attaches it again", numbers.join(", ")),
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

    fn program_ended(&self) -> Next {
        if self.ending.get() {
            return Next::Stop;
        }
        if self.waiting.replace(false) {
            self.inputs.done();
        }
        Next::Remove
    }

    /// Attaches the clauses of a script file or an embedded script.
    fn load(&self, session: &mut Session, word: &str, params: &[String]) -> Result<()> {
        let script = script::import(script::open(word, params)?, self.cli, self.messages)?;
        self.clauses.add(self, session, script, 0).map(drop)
    }

    /// Follows the children of traced processes, if processes are selected.
    fn follow_forks(&self, session: &mut Session) -> Result<()> {
        let follows = session.manifest().internal_maps.iter().any(|map| map == PIDS_MAP);
        if follows || self.machine.scope().is_system_wide() {
            return Ok(());
        }
        let mut follower = Compiler::new(nothing(), self.machine, self.cli, self.messages);
        follower.front(self.scripts.known())?;
        self.scripts.add(session, FOLLOWER, follower).map(drop)
    }

    /// Starts stack walks by unwind tables when a clause first uses user stacks.
    fn walk_stacks(&self, session: &Session) {
        if self.extender.unwinder().is_some() {
            return;
        }
        let Some(maps) = session.unwind_maps() else { return };
        let mut traced = self.machine.scope().pids.clone();
        traced.extend(self.program.pid());
        self.extender.walk_stacks(maps).start_with(&traced);
        match UnwindUpdater::new(self.extender) {
            Ok(caretaker) => self.joining.borrow_mut().push(Box::new(caretaker)),
            Err(error) => {
                self.messages.warning(&format!("stacks of new processes go by frame pointers: {error}"))
            }
        }
    }

    fn show_map(&self, session: &Session, map: u32, top: u32) -> Result<()> {
        let snapshot = session.snapshot(map, top, 0)?;
        if snapshot.entries.is_empty() {
            self.say(&format!("@{}: no keys\n", session.manifest().maps[map as usize].name));
            return Ok(());
        }
        let out = BufWriter::new(self.mouth.out());
        let mut sink = setup::format(self.cli, out, self.mouth.notices(), true);
        sink.output(session.manifest(), self.names, &Output::Map(snapshot))?;
        Ok(sink.flush()?)
    }

    /// Updates the names of maps for completion.
    fn learn_maps(&self, manifest: &Manifest) {
        let visible = manifest.maps.iter().filter(|map| !map.is_hidden());
        let names = visible.map(|map| map.name.clone()).collect();
        *self.maps.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn clear_screen(&self) {
        if self.terminal {
            self.say("\x1b[H\x1b[2J");
        }
    }

    fn say(&self, text: &str) {
        self.write(text.as_bytes());
    }

    /// Writes text. If the output is closed, the run ends at the next record.
    fn write(&self, text: &[u8]) {
        let mut out = self.mouth.out();
        let _ = out.write_all(text).and_then(|()| out.flush());
    }

    fn fail(&self, error: &anyhow::Error) {
        self.failed.set(true);
        if !error.is::<AlreadyReported>() {
            self.messages.error(error);
        }
    }
}

/// Splits text into commands and the text between them.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in text.lines() {
        let script = pieces.last_mut().expect("one at least");
        if input::is_complete(script) && commands::split(line).is_some() {
            pieces.extend([line.to_owned(), String::new()]);
        } else {
            script.push_str(line);
            script.push('\n');
        }
    }
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// `: did you mean ...?`, or nothing.
fn did_you_mean<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>, sigil: &str) -> String {
    similar(name, candidates).first().map_or(String::new(), |near| format!(": did you mean `{sigil}{near}`?"))
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
