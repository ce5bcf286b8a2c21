//! The processes of `-p`: their names, and how they ended.

use super::{exit_status, setup};
use crate::console::Messages;
use linux::proc;
use runtime::Session;
use runtime::session::event_loop::{Next, Watch};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// `process 4242 (python3)`
pub fn name(pid: u32) -> String {
    match proc::comm(pid) {
        Some(comm) => format!("process {pid} ({})", comm.escape_debug()),
        None => format!("process {pid}"),
    }
}

/// Prints how a process of `-p` ended.
pub struct TargetEnd<'a> {
    pid: u32,
    pidfd: OwnedFd,
    name: String,
    messages: &'a Messages,
}

impl<'a> TargetEnd<'a> {
    pub fn new(pid: u32, messages: &'a Messages) -> anyhow::Result<TargetEnd<'a>> {
        Ok(TargetEnd { pid, pidfd: setup::end_of(pid)?, name: name(pid), messages })
    }
}

impl Watch for TargetEnd<'_> {
    fn fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }

    fn ready(&mut self, _: &mut Session) -> Next {
        let how = linux::exit_status::of(self.pid, &self.pidfd).map_or(String::new(), exit_status::in_words);
        self.messages.note(&format!("{} has ended{how}", self.name));
        Next::Remove
    }
}
