//! Libraries that running processes map while a script runs in them. The processes are looked at from time to time, which needs no rights.

use super::extender::Extender;
use crate::timer::PacedTimer;
use host::process::{self, Mapping};
use runtime::Session;
use runtime::in_process::RemoteError;
use runtime::read::event_loop::{Next, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Shortest pause between two scans.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks for new mappings of processes and their descendants.
pub struct MappingScans<'a> {
    timer: PacedTimer,
    pids: Vec<u32>,
    /// By process: first addresses and inodes of executable mappings at the last scan.
    seen: BTreeMap<u32, BTreeSet<(u64, u64)>>,
    extender: &'a Extender<'a>,
}

impl<'a> MappingScans<'a> {
    /// Watches processes, whose present mappings are patched already.
    pub fn new(pids: &[u32], extender: &'a Extender<'a>) -> io::Result<MappingScans<'a>> {
        let seen = pids.iter().map(|pid| (*pid, places(&executable(*pid)))).collect();
        Ok(MappingScans { timer: PacedTimer::new(PAUSE)?, pids: pids.to_vec(), seen, extender })
    }

    /// Returns the time that the search for new mappings has taken, without what was done for them.
    fn scan(&mut self, session: &mut Session) -> Duration {
        let start = Instant::now();
        let pids = process::with_descendants(&self.pids);
        self.seen.retain(|pid, _| pids.contains(pid));
        let mut searched = start.elapsed();
        for pid in pids {
            let start = Instant::now();
            let mapped = executable(pid);
            let seen = self.seen.insert(pid, places(&mapped)).unwrap_or_default();
            let new = mapped.iter().filter(|mapping| !seen.contains(&(mapping.start, mapping.inode)));
            let new: Vec<&Mapping> = new.collect();
            searched += start.elapsed();
            if !new.is_empty() {
                session.meet(pid);
                self.consider(pid, &new, session);
            }
            if session.has_lost_jumps(pid) {
                self.patch(pid, session);
            }
        }
        searched
    }

    fn consider(&self, pid: u32, new: &[&Mapping], session: &mut Session) {
        let before = session.attached();
        for mapping in new {
            let Some(shown) = mapping.name.path() else { continue };
            let (major, minor) = mapping.device;
            self.extender.record_mapping((libc::makedev(major, minor), mapping.inode));
            let when = format!("mapped by process {pid}");
            self.extender.scripts.extend(session, &process::open_path(pid, shown), shown, &when);
        }
        let path = |mapping: &&Mapping| mapping.name.path().unwrap_or(Path::new("")).to_owned();
        if new.iter().any(|mapping| session.must_patch(pid, mapping.inode, &path(mapping))) {
            self.patch(pid, session);
        }
        let more = session.attached().saturating_sub(before);
        let last = new.iter().filter_map(|mapping| mapping.name.path()).next_back();
        if let (1.., Some(last)) = (more, last) {
            self.note(pid, more, last);
        }
    }

    fn patch(&self, pid: u32, session: &mut Session) {
        match session.patch_running(pid) {
            Ok(report) => self.extender.messages.patched(pid, &report),
            Err(RemoteError::Gone) => {}
            Err(error) => {
                self.extender.miss_mappings();
                self.extender.report_untraced(pid, "is not traced in a new library", &error);
            }
        }
    }

    fn note(&self, pid: u32, more: usize, library: &Path) {
        self.extender.add_probed(library);
        self.extender.names.outdate(pid);
        let how = format!("process {pid} loaded it up to {PAUSE:?} before; earlier calls are not traced");
        self.extender.note_attached(more, library, &how);
    }
}

fn executable(pid: u32) -> Vec<Mapping> {
    let mut all = process::mappings(pid);
    all.retain(|mapping| mapping.executable && mapping.inode != 0);
    all
}

fn places(mapped: &[Mapping]) -> BTreeSet<(u64, u64)> {
    mapped.iter().map(|mapping| (mapping.start, mapping.inode)).collect()
}

impl Watch for MappingScans<'_> {
    fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        if let Some(start) = self.timer.due() {
            let searched = self.scan(session);
            self.timer.rest(start, searched);
        }
        Next::Continue
    }
}
