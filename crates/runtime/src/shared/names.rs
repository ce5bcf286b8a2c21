//! Names of a traced process, which programs in it read: of the file that it executes, and of its main thread.
//!
//! The main thread may get another name at any time. The tracer looks once in a second and writes a new one beside the old one.

use crate::remote::{RemoteError, StoppedProcess};
use native::layout;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The names of a process, for [`native::layout::NAMES`].
#[derive(Debug)]
pub(crate) struct Names {
    pid: u32,
    /// Memory of the program that runs now: after an execve(2), writes fail.
    memory: File,
    /// Address of the names in the process.
    at: u64,
    name: ProcessName,
    /// The place of the valid name.
    place: u64,
}

type ProcessName = [u8; layout::PROCESS_NAME_SIZE as usize];

impl Names {
    /// Writes the names of a stopped process to an address in it.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub(crate) fn start(stopped: &StoppedProcess<'_>, at: u64) -> Result<Names, RemoteError> {
        let pid = stopped.pid();
        stopped.write(at, &of(pid))?;
        Ok(Names { pid, memory: stopped.memory()?, at, name: process_name(pid), place: 0 })
    }

    /// Writes the name of the main thread if it has changed. It stays if the process cannot be written to.
    pub(crate) fn update(&mut self) {
        let name = process_name(self.pid);
        let place = layout::PROCESS_NAME_SIZE - self.place;
        if name == self.name || name[0] == 0 {
            return;
        }
        let write = |bytes: &[u8], offset: u64| self.memory.write_all_at(bytes, self.at + offset);
        let written = write(&name, layout::PROCESS_NAMES + place)
            .and_then(|()| write(&place.to_le_bytes(), layout::PROCESS_NAME_NUMBER));
        if written.is_ok() {
            (self.name, self.place) = (name, place);
        }
    }
}

/// The names of a process, for [`layout::NAMES`]. One that has ended has none.
pub(crate) fn of(pid: u32) -> Vec<u8> {
    let file = linux::proc::executable(pid).unwrap_or_default();
    let name = file.file_name().map_or(&[][..], OsStr::as_encoded_bytes);
    let mut names =
        padded::<{ layout::PROGRAM_NAME_SIZE as usize }>(name.strip_suffix(b" (deleted)").unwrap_or(name))
            .to_vec();
    names.resize(layout::PROCESS_NAMES as usize, 0);
    names.extend(process_name(pid));
    names
}

/// Empty if the process has ended.
fn process_name(pid: u32) -> ProcessName {
    padded(std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default().trim_ascii_end())
}

/// A text with at least one zero behind it.
fn padded<const SIZE: usize>(text: &[u8]) -> [u8; SIZE] {
    let mut padded = [0; SIZE];
    let len = text.len().min(SIZE - 1);
    padded[..len].copy_from_slice(&text[..len]);
    padded
}
