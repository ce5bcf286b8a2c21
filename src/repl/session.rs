//! State of a session at the prompt, and its output. Clauses and the traced program add their operations in their own files.

use super::gpu::{Gpu, Surroundings};
use super::inputs::Inputs;
use super::screen::Screen;
use crate::cli::Cli;
use crate::console::Messages;
use crate::run::extender::Extender;
use crate::run::script_set::Scripts;
use crate::run::setup;
use crate::symbolize::MachineNames;
use anyhow::Result;
use host::Machine;
use report::Output;
use runtime::Session;
use runtime::session::event_loop::Joining;
use runtime::started::Child;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io::{self, BufWriter, PipeReader, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use wire::Manifest;

/// An error that was already reported.
#[derive(Debug, thiserror::Error)]
#[error("already reported")]
pub struct ReportedError;

/// State of the session for its commands.
pub struct Repl<'a> {
    pub(super) cli: &'a Cli,
    pub(super) messages: &'a Messages,
    pub(super) machine: &'a Machine,
    pub(super) scripts: &'a Scripts<'a>,
    pub(super) extender: &'a Extender<'a>,
    pub(super) names: &'a MachineNames,
    pub(super) inputs: Inputs,
    pub(super) output: SessionOutput,
    pub(super) maps: Arc<Mutex<Vec<String>>>,
    pub(super) joining: Joining<'a>,
    pub(super) clauses: Clauses,
    pub(super) gpu: Gpu<'a>,
    pub(super) program: Program,
    /// True during `:wait`: the next command waits for the end of the program.
    pub(super) waiting: Cell<bool>,
    /// True if the input has ended but the program has not.
    pub(super) ending: Cell<bool>,
    /// True after an error: a pipe then ends with status 1.
    pub(super) failed: Cell<bool>,
    /// Number of the last `:watch`, and whether it is active.
    pub(super) watching: Cell<u32>,
    pub(super) is_watching: Cell<bool>,
    pub(super) terminal: bool,
}

impl<'a> Repl<'a> {
    /// Parts of the session that agents need.
    pub(super) fn surroundings(&self) -> Surroundings<'_, 'a> {
        Surroundings {
            machine: self.machine,
            messages: self.messages,
            new_drivers: &self.extender.new_drivers,
            program: self.program.pid(),
            joining: &self.joining,
        }
    }
}

/// All clauses of a session.
#[derive(Default)]
pub struct Clauses {
    pub(super) list: RefCell<Vec<Clause>>,
    pub(super) scripts: Cell<u32>,
    pub(super) numbered: Cell<u32>,
    /// Entered text: definitions unchanged, other text replaced by newlines.
    pub(super) typed: RefCell<String>,
}

/// A clause of the session.
pub struct Clause {
    pub(super) number: u32,
    /// Number of its script, and of the clauses that it was expanded to.
    pub(super) script: u32,
    pub(super) parts: Vec<u32>,
    pub(super) text: String,
    /// True if another script contains it; the saved script then imports it.
    pub(super) is_imported: bool,
    /// True if it is from a script that was loaded, which lists do not repeat.
    pub(super) is_loaded: bool,
    /// Text between the previous clause and this one.
    pub(super) definitions: String,
    pub(super) attach_points: usize,
    pub(super) is_stopped: bool,
}

/// The started program, if any, and its command line for the next start.
#[derive(Default)]
pub struct Program {
    pub(super) child: RefCell<Option<Child>>,
    pub(super) argv: RefCell<Option<Vec<OsString>>>,
    pub(super) output: RefCell<Option<Rc<PipeReader>>>,
    /// True if it was started at least once.
    pub started: Cell<bool>,
}

/// Destination of output.
pub enum SessionOutput {
    /// Above the prompt.
    Screen(Screen),
    /// Standard output, and standard error for messages.
    Standard,
}

impl SessionOutput {
    pub(super) fn out(&self) -> Box<dyn Write> {
        match self {
            SessionOutput::Screen(screen) => Box::new(screen.clone()),
            SessionOutput::Standard => Box::new(io::stdout()),
        }
    }

    pub(super) fn notices(&self) -> Box<dyn Write> {
        match self {
            SessionOutput::Screen(screen) => Box::new(screen.clone()),
            SessionOutput::Standard => Box::new(io::stderr()),
        }
    }

    pub(super) fn end(&self) {
        if let SessionOutput::Screen(screen) = self {
            screen.end();
        }
    }
}

impl Repl<'_> {
    pub(super) fn show_map(&self, session: &Session, map: u32, top: u32) -> Result<()> {
        let snapshot = session.snapshot(map, top, 0)?;
        if snapshot.entries.is_empty() {
            self.print(&format!("@{}: no keys\n", session.manifest().maps[map as usize].name));
            return Ok(());
        }
        let out = BufWriter::new(self.output.out());
        let mut sink = setup::format(self.cli, out, self.output.notices(), true);
        sink.output(session.manifest(), self.names, &Output::Map(snapshot))?;
        Ok(sink.flush()?)
    }

    /// Updates the names of maps for completion.
    pub(super) fn learn_maps(&self, manifest: &Manifest) {
        let visible = manifest.maps.iter().filter(|map| !map.is_hidden());
        let names = visible.map(|map| map.name.clone()).collect();
        *self.maps.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub(super) fn clear_screen(&self) {
        if self.terminal {
            self.print("\x1b[H\x1b[2J");
        }
    }

    pub(super) fn print(&self, text: &str) {
        self.write(text.as_bytes());
    }

    /// Writes text. If the output is closed, the run ends at the next record.
    pub(super) fn write(&self, text: &[u8]) {
        let mut out = self.output.out();
        let _ = out.write_all(text).and_then(|()| out.flush());
    }

    pub(super) fn fail(&self, error: &anyhow::Error) {
        self.failed.set(true);
        if !error.is::<ReportedError>() {
            self.messages.error(error);
        }
    }
}
