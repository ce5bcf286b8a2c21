//! The probed files that a session watches for writes.

use host::Machine;
use runtime::{Session, WatchedFile, WrittenFiles};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
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

    /// Paths of written files, for opening and for display.
    pub fn paths(&self, written: &WrittenFiles) -> Vec<(PathBuf, PathBuf)> {
        let paths = self.paths.borrow();
        match written {
            WrittenFiles::Files(files) => files.iter().filter_map(|file| paths.get(file).cloned()).collect(),
            WrittenFiles::Any => paths.values().cloned().collect(),
        }
    }
}
