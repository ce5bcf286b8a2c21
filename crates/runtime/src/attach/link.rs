//! The link of an attached program, which keeps its descriptors.
//!
//! Not here: how it is made (`kernel::links`), choice of program and functions (`attach`), closing of links (`detach`).

use crate::options::ModuleId;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// An attached program. Dropping it detaches.
#[derive(Debug)]
pub struct Link {
    /// Module of the program; set by the session.
    pub module: ModuleId,
    /// Clause of the script.
    pub clause: u32,
    /// Id of the file whose functions are probed.
    pub file: Option<u32>,
    // Fields drop in this order: the link before the event that it is on.
    pub(crate) link: OwnedFd,
    pub(crate) event: Option<OwnedFd>,
    /// The items of an iterator, whose programs run while they are read.
    pub(crate) items: Option<OwnedFd>,
}

impl Link {
    /// A descriptor that is closed with the links because closing it is slow, too.
    pub(crate) fn of_nothing(fd: OwnedFd) -> Link {
        Link { module: ModuleId::default(), clause: 0, file: None, link: fd, event: None, items: None }
    }

    /// Sets the module.
    pub(crate) fn with_module(self, module: ModuleId) -> Link {
        Link { module, ..self }
    }

    /// Its descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(&self.link).chain(&self.event).chain(&self.items).map(AsRawFd::as_raw_fd)
    }
}
