//! Probed files that are overwritten, for example by `cp`: the kernel would place their probes into the middle of other code when the
//! file is mapped again, in any process of the machine.
//!
//! A program that we started is held at such a mapping (`late_files`). For other processes this is a race, which is lost if a
//! process maps the file within about a tenth of a second.

use super::late_files::Extender;
use host::Machine;
use runtime::read::event_loop::{Next, Watch};
use runtime::{Session, WatchedFile, WriteWatch, Written};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The files of a machine that a session watches for writes.
#[derive(Default)]
pub struct WatchedFiles {
    /// Paths for opening and for display.
    paths: RefCell<HashMap<WatchedFile, (PathBuf, PathBuf)>>,
    /// Number of files of the machine that were processed.
    count: Cell<usize>,
}

impl WatchedFiles {
    /// Watches the files that were added since the last call, if the session watches files. Files that cannot be
    /// watched are skipped.
    pub fn add_taken(&self, machine: &Machine, session: &Session) {
        let Some(writes) = &session.writes else { return };
        let taken = machine.files_taken();
        for file in &taken[self.count.replace(taken.len())..] {
            let (open, shown) = (machine.open_path(file.id), machine.shown_path(file.id));
            if let Ok(watched) = writes.add(open) {
                self.paths.borrow_mut().insert(watched, (open.to_owned(), shown.to_owned()));
            }
        }
    }

    fn paths(&self, written: &Written) -> Vec<(PathBuf, PathBuf)> {
        let paths = self.paths.borrow();
        match written {
            Written::Files(files) => files.iter().filter_map(|file| paths.get(file).cloned()).collect(),
            Written::Any => paths.values().cloned().collect(),
        }
    }
}

/// Removes probes from files that are overwritten.
pub struct Overwritten<'a> {
    fd: RawFd,
    extender: &'a Extender<'a>,
}

impl<'a> Overwritten<'a> {
    /// Starts watching the files of `extender` for writes.
    ///
    /// # Errors
    /// The errors of inotify_init1(2).
    pub fn new(extender: &'a Extender<'a>, session: &mut Session) -> io::Result<Overwritten<'a>> {
        let fd = session.watch_writes()?;
        extender.scripts.watch_files(session);
        let overwritten = Overwritten { fd, extender };
        // A file may have been written between reading and watching it.
        overwritten.leave(&Written::Any, session);
        Ok(overwritten)
    }

    fn leave(&self, written: &Written, session: &mut Session) {
        for (open, shown) in self.extender.scripts.watched.paths(written) {
            if self.extender.leave_overwritten(session, &open, &shown) {
                self.extender.messages.note(&format!(
                    "{} was overwritten and its probes were taken out; processes that load it from now on are traced",
                    shown.display()
                ));
            }
        }
    }
}

impl Watch for Overwritten<'_> {
    fn fd(&self) -> RawFd {
        self.fd
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        let Some(written) = session.writes.as_ref().map(WriteWatch::take) else { return Next::Remove };
        self.leave(&written, session);
        Next::Continue
    }
}
