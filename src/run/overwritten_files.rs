//! Probed files that are overwritten, for example by `cp`: the kernel would place their probes into the middle of other code when the
//! file is mapped again, in any process of the machine.
//!
//! A program that we started is held at such a mapping (`late_files`). For other processes this is a race, which is lost if a
//! process maps the file within about a tenth of a second.

use super::extender::Extender;
use runtime::session::event_loop::{Next, Watch};
use runtime::{Session, WriteWatch, WrittenFiles};
use std::io;
use std::os::fd::RawFd;

/// Removes probes from files that are overwritten.
pub struct OverwriteWatch<'a> {
    fd: RawFd,
    extender: &'a Extender<'a>,
}

impl<'a> OverwriteWatch<'a> {
    /// Starts watching the files of `extender` for writes.
    pub fn new(extender: &'a Extender<'a>, session: &mut Session) -> io::Result<OverwriteWatch<'a>> {
        let fd = session.watch_writes()?;
        extender.scripts.watch_files(session);
        let overwritten = OverwriteWatch { fd, extender };
        // A file may have been written between reading and watching it.
        overwritten.leave(&WrittenFiles::Any, session);
        Ok(overwritten)
    }

    fn leave(&self, written: &WrittenFiles, session: &mut Session) {
        for (open, shown) in self.extender.scripts.watched.paths(written) {
            if self.extender.detach_overwritten(session, &open, &shown) {
                self.extender.messages.note(&format!(
                    "{} was overwritten and its probes were removed; processes that load it from now on are traced",
                    shown.display()
                ));
            }
        }
    }
}

impl Watch for OverwriteWatch<'_> {
    fn fd(&self) -> RawFd {
        self.fd
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        let Some(written) = session.writes.as_ref().map(WriteWatch::take) else { return Next::Remove };
        self.leave(&written, session);
        Next::Continue
    }
}
