//! Libraries that running processes map while a script runs in them. The processes are looked at from time to time, which needs no rights; and at once
//! where the kernel reports mappings.

use super::extender::Extender;
use crate::pacing::{Budget, CpuTime, PacedTimer};
use crate::process_tree::ProcessTree;
use linux::proc::{self, Mapping};
use runtime::Session;
use runtime::remote::RemoteError;
use runtime::session::event_loop::{Next, Watch};
use runtime::started::{MappingEvent, MappingWatch};
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Shortest pause between two scans.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks for new mappings of processes and their descendants.
pub struct MappingScans<'a> {
    events: OwnedFd,
    timer: PacedTimer,
    /// Reports of the kernel, if this process may have them.
    reports: Option<MappingWatch>,
    /// Processes of the tree by these reports.
    tree: ProcessTree,
    /// Time that looks on reports may take.
    budget: Budget,
    /// True if a process that ended before it was looked at was reported.
    has_missed: bool,
    /// Since when another tracer has stopped a process.
    traced: BTreeMap<u32, Instant>,
    pids: Vec<u32>,
    /// By process: first addresses and inodes of executable mappings at the last scan.
    seen: BTreeMap<u32, BTreeSet<(u64, u64)>>,
    extender: &'a Extender<'a>,
}

impl<'a> MappingScans<'a> {
    /// Watches processes, whose present mappings are patched already. `at_once`: by reports of the kernel, too.
    pub fn new(pids: &[u32], at_once: bool, extender: &'a Extender<'a>) -> io::Result<MappingScans<'a>> {
        let seen = pids.iter().map(|pid| (*pid, places(&executable(*pid)))).collect();
        let (timer, reports) =
            (PacedTimer::new(PAUSE)?, at_once.then(MappingWatch::with_forks).and_then(Result::ok));
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd| epoll::add(&events, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        add(timer.as_fd())?;
        reports.as_ref().map_or(Ok(()), |reports| add(reports.as_fd()))?;
        Ok(MappingScans {
            events,
            timer,
            reports,
            tree: ProcessTree::of(pids),
            budget: Budget::new(),
            has_missed: false,
            traced: BTreeMap::new(),
            pids: pids.to_vec(),
            seen,
            extender,
        })
    }

    /// Returns the CPU time that the search for new mappings has taken, without what was done for them.
    fn scan(&mut self, session: &mut Session) -> Duration {
        let start = CpuTime::start();
        let pids = proc::with_descendants(&self.pids);
        self.seen.retain(|pid, _| pids.contains(pid));
        let mut searched = start.elapsed();
        for pid in pids {
            searched += self.look(pid, session);
        }
        searched
    }

    /// Looks at a process; returns the CPU time that the search for new mappings has taken.
    fn look(&mut self, pid: u32, session: &mut Session) -> Duration {
        let start = CpuTime::start();
        let mapped = executable(pid);
        // The process has ended. Reports of its mappings may still come.
        if mapped.is_empty() {
            return start.elapsed();
        }
        let seen = self.seen.insert(pid, places(&mapped)).unwrap_or_default();
        let new = mapped.iter().filter(|mapping| !seen.contains(&(mapping.start, mapping.inode)));
        let new: Vec<&Mapping> = new.collect();
        let searched = start.elapsed();
        let mut is_done = true;
        if !new.is_empty() {
            session.meet(pid);
            is_done = self.consider(pid, &new, session);
        }
        if session.has_lost_jumps(pid) {
            is_done &= self.patch(pid, session);
        }
        if !is_done {
            self.seen.remove(&pid);
        }
        searched
    }

    /// Mappings that processes of the tree have made since the last call, of files that may be probed.
    fn read_reports(&mut self) -> Vec<MappingEvent> {
        let Some(reports) = &mut self.reports else { return vec![] };
        let mut mapped = reports.read();
        if reports.lost() > 0 {
            self.extender.lose_reports();
        }
        let forks = reports.take_forks();
        self.tree.add(&forks);
        self.extender.new_drivers.add_forks(&forks);
        let scripts = self.extender.scripts;
        mapped.retain(|mapped| self.tree.contains(mapped.pid));
        for mapped in &mapped {
            // A look at a process that has ended sees no mappings.
            self.extender.new_drivers.maps(mapped.pid, &mapped.path, mapped.time_in_use());
        }
        mapped.retain(|mapped| scripts.may_concern(&mapped.path));
        mapped
    }

    /// Looks at the processes of the tree that have mapped files that may be probed.
    fn take_reports(&mut self, session: &mut Session) {
        let mapped = self.read_reports();
        let pids: BTreeSet<u32> = mapped.iter().map(|mapped| mapped.pid).collect();
        for pid in pids {
            if self.budget.has_time() {
                let searched = self.look(pid, session);
                self.budget.spend(searched);
            }
        }
        mapped.iter().for_each(|mapped| self.miss_ended(mapped));
    }

    /// Reports the first process that has mapped a probed file and ended before it was looked at.
    fn miss_ended(&mut self, mapped: &MappingEvent) {
        let range = &mapped.range;
        let seen = self.seen.get(&mapped.pid);
        let is_seen =
            seen.is_some_and(|seen| seen.iter().any(|(start, _)| (range.start..range.end).contains(start)));
        if self.has_missed
            || is_seen
            || !self.extender.scripts.may_probe(&mapped.path)
            || !executable(mapped.pid).is_empty()
        {
            return;
        }
        self.has_missed = true;
        self.extender.miss_mappings();
        self.extender.messages.lost(&format!(
            "process {} ended before its functions were patched: its calls are missing (others like it are not named)",
            mapped.pid
        ));
    }

    /// Adds probes in new files; returns false if the process has to be looked at again, or has ended before they were there.
    fn consider(&mut self, pid: u32, new: &[&Mapping], session: &mut Session) -> bool {
        let before = session.attached();
        for mapping in new {
            let Some(shown) = mapping.name.path() else { continue };
            self.extender.new_drivers.maps(pid, shown, Duration::ZERO);
            let (major, minor) = mapping.device;
            self.extender.record_mapping((libc::makedev(major, minor), mapping.inode));
            let when = format!("mapped by process {pid}");
            self.extender.scripts.extend(session, &proc::open_path(pid, shown), shown, &when);
        }
        let path = |mapping: &&Mapping| mapping.name.path().unwrap_or(Path::new("")).to_owned();
        let must_patch = new.iter().any(|mapping| session.must_patch(pid, mapping.inode, &path(mapping)));
        let is_done = !must_patch || self.patch(pid, session);
        let more = session.attached().saturating_sub(before);
        let last = new.iter().filter_map(|mapping| mapping.name.path()).next_back();
        if let (1.., Some(last)) = (more, last) {
            self.note(pid, more, last);
        }
        is_done
    }

    /// Patches a process; returns false if that has to be tried again, or the process has ended before.
    fn patch(&mut self, pid: u32, session: &mut Session) -> bool {
        let patched = session.patch_running(pid);
        if let Err(RemoteError::Traced { .. }) = &patched {
            let since = *self.traced.entry(pid).or_insert_with(Instant::now);
            if since.elapsed() < RemoteError::BRIEFLY {
                return false;
            }
        }
        self.traced.remove(&pid);
        match patched {
            Ok(report) => self.extender.messages.patched(pid, &report),
            Err(RemoteError::Gone) => return false,
            Err(error) => {
                self.extender.miss_mappings();
                self.extender.report_untraced(pid, "is not traced in a new library", &error);
            }
        }
        true
    }

    fn note(&self, pid: u32, more: usize, library: &Path) {
        self.extender.add_probed(library);
        self.extender.names.outdate(pid);
        let how = format!("process {pid} loaded it up to {PAUSE:?} before; earlier calls are not traced");
        self.extender.note_attached(more, library, &how);
    }
}

fn executable(pid: u32) -> Vec<Mapping> {
    let mut all = proc::mappings(pid);
    all.retain(|mapping| mapping.executable && mapping.inode != 0);
    all
}

fn places(mapped: &[Mapping]) -> BTreeSet<(u64, u64)> {
    mapped.iter().map(|mapping| (mapping.start, mapping.inode)).collect()
}

impl Watch for MappingScans<'_> {
    fn fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    fn ready(&mut self, session: &mut Session) -> Next {
        self.take_reports(session);
        if self.timer.due().is_some() {
            let searched = self.scan(session);
            self.timer.rest(searched);
        }
        Next::Continue
    }

    fn finish(&mut self, _: &mut Session) -> bool {
        self.read_reports().iter().for_each(|mapped| self.miss_ended(mapped));
        true
    }
}
