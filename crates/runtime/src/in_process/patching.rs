//! How a session enters processes, patches what they have mapped, and leaves them.
//!
//! A process is stopped meanwhile. Sessions before may have left something in it, and it may have jumps from its parent.

use super::owner::Owner;
use super::regions::{self, PatchReport, PatchedRegion, Place};
use super::traced_process::{Inheritance, TracedProcess};
use super::unwinder_hooks;
use super::user_space::UserSpace;
use crate::remote::seccomp::{self, Caller};
use crate::remote::{Remains, RemoteError, SeizedThread, StoppedProcess, Tracer, is_shared_data};
use crate::shared::names::Names;
use linux::proc;
use linux::proc::seccomp::own_filters;
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Longest wait for the threads of a process to stop.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for a thread alone that was held in a system call: nothing else stands still meanwhile, and the call may wait for a disk.
const HELD_LIMIT: Duration = Duration::from_secs(10);
/// Attempts to patch functions that threads are about to return to.
pub(super) const ATTEMPTS: usize = 20;
/// Number of processes from which on those that have ended are forgotten.
const MANY: usize = 64;
/// Pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// Attempts to find that no thread is in the region, with longer and longer pauses.
const LEAVING: u32 = 6;

/// Longest wait for the threads of a process to stop that the tracer has started: one of them may wait for the tracer.
const STARTED_STOP_LIMIT: Duration = Duration::from_millis(10);

/// How a process is controlled.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Access {
    /// Number of its seccomp filters that are the tracer's.
    pub own_filters: u32,
    /// Longest wait for its threads to stop.
    pub stop_limit: Duration,
}

impl Access {
    /// `is_started`: the tracer has started the process.
    pub(crate) fn new(is_started: bool) -> Access {
        match is_started {
            true => Access { own_filters: own_filters() + 1, stop_limit: STARTED_STOP_LIMIT },
            false => Access { own_filters: 0, stop_limit: STOP_LIMIT },
        }
    }
}

/// Starts a region near any code of a process that has room near it.
fn started_anywhere(
    stopped: &StoppedProcess<'_>,
    start: impl Fn(Range<u64>) -> Result<PatchedRegion, RemoteError>,
) -> Result<PatchedRegion, RemoteError> {
    for map in stopped.maps()?.iter().filter(|map| map.is_private_code()) {
        match start(map.start..map.end) {
            Err(RemoteError::NoRoom) => {}
            region => return region,
        }
    }
    Err(RemoteError::NoRoom)
}

impl UserSpace {
    /// Patches a running process: all its threads are stopped meanwhile.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub(crate) fn patch_running(&mut self, pid: u32) -> Result<PatchReport, RemoteError> {
        // In the same group the limit is the same.
        if proc::control_groups(pid) != proc::control_groups(std::process::id()) {
            self.memory.allocate();
        }
        Tracer::run(|tracer| {
            let mut all = PatchReport::default();
            for _ in 0..ATTEMPTS {
                let stopped = StoppedProcess::all(tracer, pid, STOP_LIMIT)?;
                let report = self.patch(&stopped, 0)?;
                all = PatchReport { patched: all.patched + report.patched, ..report };
                if all.in_use() == 0 {
                    break;
                }
                stopped.resume();
                std::thread::sleep(PAUSE);
            }
            Ok(all)
        })
    }

    /// Patches a process one of whose threads is held in the system call that maps a file: `release` lets it go on.
    ///
    /// # Errors
    /// [`RemoteError`]; `release` was called.
    pub(crate) fn patch_held(
        &mut self,
        pid: u32,
        tid: u32,
        release: impl FnOnce() + Send,
    ) -> Result<PatchReport, RemoteError> {
        Tracer::run(|tracer| {
            let seized = SeizedThread::thread(tracer, pid, tid);
            release();
            // Other threads may run in files that are mapped already.
            let stopped = seized?.stop(HELD_LIMIT)?.with_others(STOP_LIMIT)?;
            self.patch(&stopped, own_filters() + 1)
        })
    }

    /// Lets a thread that is held install a seccomp filter. If programs in the process could be killed then, or if the tracer could not
    /// control the process any more, its functions are restored before any thread goes on; the reason is returned.
    ///
    /// # Errors
    /// [`RemoteError`]; `release` was called.
    pub(crate) fn install_filter(
        &mut self,
        pid: u32,
        tid: u32,
        release: impl FnOnce() + Send,
    ) -> Result<Option<RemoteError>, RemoteError> {
        if !self.has_memory(pid) {
            release();
            return Ok(None);
        }
        let inode = self.memory.inode();
        let why = Tracer::run(|tracer| {
            let seized = SeizedThread::thread(tracer, pid, tid);
            let others = seized.as_ref().map(|seized| others_outside(seized, inode));
            release();
            let stopped = match others {
                Ok(others) => seized?.join(others?, STOP_LIMIT)?,
                Err(_) => return seized.map(|_| None),
            };
            let own_filters = own_filters() + 1;
            let Err(why) = seccomp::check(&stopped, own_filters, Caller::Programs) else { return Ok(None) };
            let mut restored = None;
            for remains in ours(&stopped, inode)? {
                if !remains.is_borrowed(&stopped)? {
                    remove(&remains, &stopped, own_filters)?;
                    restored = Some(());
                }
            }
            Ok(restored.map(|()| why))
        })?;
        if why.is_some() {
            let process = self.processes.entry(pid).or_default();
            process.regions.clear();
            process.restored = Some(own_filters() + 1);
        }
        Ok(why)
    }

    /// Whether a process has a region of this session, maybe from its parent.
    pub(crate) fn has_memory(&self, pid: u32) -> bool {
        let inode = self.memory.inode();
        proc::mappings(pid).iter().any(|map| map.inode == inode && is_shared_data(map))
    }

    /// Whether programs of this file's functions run in a process, or there are no such programs.
    pub(crate) fn traces_file(&self, pid: u32, inode: u64) -> bool {
        let mut files = self.files.iter().filter(|(_, file)| file.inode() == inode);
        let regions = self.regions(pid);
        files.all(|(file, _)| regions.iter().any(|region| region.has_jumps_in(*file)))
    }

    /// Whether a process has mapped a file again where it was, without the jumps.
    pub(crate) fn has_lost_jumps(&self, pid: u32) -> bool {
        self.regions(pid).iter().any(PatchedRegion::has_lost_jumps)
    }

    /// The regions of a process that are its own.
    fn regions(&self, pid: u32) -> &[PatchedRegion] {
        self.processes.get(&pid).map_or(&[], |process| &process.regions)
    }

    /// Whether a process that maps a file must be patched: the file has probes, or the program itself has, or exceptions could pass a
    /// traced call as soon as the file is there.
    pub(crate) fn concerns(&self, pid: u32, inode: u64, path: &Path) -> bool {
        // Its seccomp filter is there for good.
        if self.processes.get(&pid).is_some_and(|process| process.restored.is_some()) {
            return false;
        }
        let regions = self.regions(pid);
        if regions.iter().any(PatchedRegion::traces_returns) && unwinder_hooks::may_unwind(path) {
            return true;
        }
        let has_probes = |inode: u64| self.files.values().any(|file| file.inode() == inode);
        let program = || std::fs::metadata(format!("/proc/{pid}/exe")).map_or(0, |file| file.ino());
        has_probes(inode) || regions.is_empty() && has_probes(program())
    }

    pub(super) fn patch(
        &mut self,
        stopped: &StoppedProcess<'_>,
        own_filters: u32,
    ) -> Result<PatchReport, RemoteError> {
        let mut report = PatchReport::default();
        if regions::mapped(&self.files, stopped, &BTreeSet::new())?.is_empty() {
            return Ok(report);
        }
        let pid = stopped.pid();
        // Gates share no values of processes.
        if self.has_programs {
            let admitted = self.owner.admit(Owner::of(pid)?);
            admitted.map_err(|other| RemoteError::OtherOwner { how: other.to_string() })?;
        }
        self.ends.watch(pid);
        self.forget_regions(stopped);
        let mut inherited = BTreeSet::new();
        if self.regions(pid).is_empty() {
            self.settle(stopped, own_filters)?;
            let process = self.processes.entry(pid).or_default();
            process.inheritance = None;
            for remains in ours(stopped, self.memory.inode())? {
                // The process is traced like its parent, whose memory it has until it executes a program.
                if remains.is_borrowed(stopped)? {
                    return Ok(report);
                }
                let names = Names::start(stopped, remains.code_start())?;
                let none = || Inheritance { own_filters, names: vec![] };
                process.inheritance.get_or_insert_with(none).names.push(names);
                inherited.extend(remains.jumps());
            }
        }
        let ranges = regions::mapped(&self.files, stopped, &inherited)?;
        if ranges.is_empty() {
            return Ok(report);
        }
        let functions = self.files.values().map(|file| file.functions.len()).sum();
        let regions = &mut self.processes.entry(pid).or_default().regions;
        self.patched.processes += usize::from(regions.is_empty());
        let mut far = vec![];
        let (memory, unwind) = (&*self.memory, self.unwind.as_deref());
        let has_programs = self.has_programs;
        let start = |near| {
            let mut region =
                PatchedRegion::start(stopped, memory, unwind, near, functions, own_filters, has_programs)?;
            region.inherited.clone_from(&inherited);
            Ok(region)
        };
        for near in ranges {
            if regions.iter().any(|region| region.is_near(&near) || region.reaches_far(&near)) {
                continue;
            }
            match start(near.clone()) {
                Err(RemoteError::NoRoom) => far.push(near),
                region => regions.push(region?),
            }
        }
        if regions.is_empty() {
            regions.push(started_anywhere(stopped, start)?);
        }
        for near in far {
            regions.first_mut().ok_or(RemoteError::NoRoom)?.reach_far(near);
        }
        regions.iter_mut().try_for_each(|region| region.forget_unmapped(stopped))?;
        let mut patched: BTreeSet<Place> = regions.iter().flat_map(PatchedRegion::functions).collect();
        for region in regions {
            let (modules, probes) = (&self.modules[..], &self.probes[..]);
            let further = region.patch(stopped, &self.memory, modules, probes, &self.files, &patched)?;
            patched.extend(region.functions());
            region.hook_unwinders(stopped, self.unwinder)?;
            self.gates.extend(region.has_gate().then(|| region.region.base()));
            report.patched += further.patched;
            report.skipped.extend(further.skipped);
        }
        self.patched.functions += report.patched;
        Ok(report)
    }

    /// Forgets regions that an execve has taken away, and those of ended processes if there are many.
    fn forget_regions(&mut self, stopped: &StoppedProcess<'_>) {
        if self.processes.len() > MANY {
            let changed = self.processes.iter_mut().filter(|(_, process)| process.is_changed());
            changed.filter(|(pid, _)| !proc::exists(**pid)).for_each(|(_, process)| process.end());
            self.processes.retain(|_, process| process.is_met || process.is_changed());
        }
        if let Some(process) = self.processes.get_mut(&stopped.pid()) {
            process.regions.retain(|region| region.is_there(stopped));
        }
    }

    /// Undoes what sessions before have left in a process.
    ///
    /// # Errors
    /// [`RemoteError::Patched`] if one of them goes on, with the same functions.
    fn settle(&self, stopped: &StoppedProcess<'_>, own_filters: u32) -> Result<(), RemoteError> {
        let maps = stopped.maps()?;
        for remains in Remains::find(stopped, &maps)? {
            match remains.tracer(stopped)? {
                None => _ = remains.remove(stopped, own_filters)?,
                // A child of a traced process has the region of this session.
                Some(_) if remains.inode() == Some(self.memory.inode()) => {}
                Some(tracer) if regions::have_jumps(&self.files, &maps, &remains) => {
                    return Err(RemoteError::Patched { tracer });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the memory away from processes that have other rights by now: since setuid(2), for example.
    pub(super) fn expel_changed(&mut self) {
        for pid in self.sharing() {
            let Some(other) = self.owner.changed(pid) else { continue };
            let own_filters = self.processes.get(&pid).map_or(0, TracedProcess::own_filters);
            let inode = self.memory.inode();
            let expelled = Tracer::run(|tracer| {
                expel(&StoppedProcess::all(tracer, pid, STOP_LIMIT)?, inode, own_filters)
            });
            match expelled {
                // The process is tried again.
                Err(error @ RemoteError::DidNotStop { .. }) => {
                    if !self.expelled.iter().any(|(known, _)| *known == pid) {
                        self.expelled.push((
                            pid,
                            format!("its rights have changed, and it still shares memory: {other}; {error}"),
                        ));
                    }
                }
                Ok(()) => self.forget(pid, format!("its rights have changed: {other}")),
                // A program that it executes now has no memory of the session.
                Err(RemoteError::Gone) => self.processes.entry(pid).or_default().regions.clear(),
                Err(error) => {
                    let shares = "it still shares memory with the processes that are traced";
                    self.forget(pid, format!("its rights have changed, and {shares}: {other}; {error}"));
                }
            }
        }
    }

    /// Lets a thread that is held change the rights of its process, and takes the memory away before any thread goes on if they are others then.
    ///
    /// # Errors
    /// [`RemoteError`]; `release` was called.
    pub(crate) fn change_rights(
        &mut self,
        pid: u32,
        tid: u32,
        release: impl FnOnce() + Send,
    ) -> Result<(), RemoteError> {
        if !self.has_memory(pid) {
            release();
            return Ok(());
        }
        let (inode, owner) = (self.memory.inode(), &self.owner);
        let other = Tracer::run(|tracer| {
            let seized = SeizedThread::thread(tracer, pid, tid);
            release();
            let stopped = seized?.stop(HELD_LIMIT)?.with_others(STOP_LIMIT)?;
            let Some(other) = owner.changed(pid) else { return Ok(None) };
            expel(&stopped, inode, own_filters() + 1).map(|()| Some(other))
        })?;
        if let Some(other) = other {
            self.forget(pid, format!("its rights have changed: {other}"));
        }
        Ok(())
    }

    /// Traces a process no more.
    fn forget(&mut self, pid: u32, why: String) {
        let process = self.processes.entry(pid).or_default();
        process.drop_regions();
        process.restored = Some(own_filters() + 1);
        self.expelled.retain(|(known, _)| *known != pid);
        self.expelled.push((pid, why));
    }

    /// Makes all detours pass by and restores the functions of the processes that still run.
    pub(crate) fn detach(&mut self) {
        self.check_words();
        self.lease = None;
        for (pid, process) in self.processes.drain().filter(|(_, process)| process.is_changed()) {
            let is_over =
                |remains: &Remains, stopped: &StoppedProcess<'_>| Ok(remains.tracer(stopped)?.is_none());
            let access = Access { own_filters: process.own_filters(), stop_limit: STOP_LIMIT };
            match leave(pid, access, LEAVING, is_over) {
                Ok(_) | Err(RemoteError::Gone) => {}
                Err(error) => self.kept.push((pid, error)),
            }
        }
    }
}

/// Restores a process and takes its regions away that are not used any more; returns whether all are gone. Threads that are in a region get
/// some time to leave it.
pub(super) fn leave(
    pid: u32,
    access: Access,
    attempts: u32,
    is_over: impl Fn(&Remains, &StoppedProcess<'_>) -> Result<bool, RemoteError> + Sync,
) -> Result<bool, RemoteError> {
    Tracer::run(|tracer| {
        for attempt in 0..=attempts {
            let stopped = StoppedProcess::all(tracer, pid, access.stop_limit)?;
            let mut left = false;
            for remains in Remains::find(&stopped, &stopped.maps()?)? {
                if is_over(&remains, &stopped)? {
                    left |= !remove(&remains, &stopped, access.own_filters)?;
                }
            }
            stopped.resume();
            if !left {
                return Ok(true);
            }
            std::thread::sleep(PAUSE * 2u32.pow(attempt));
        }
        Ok(false)
    })
}

/// Puts memory of the process's own in the place of what it shares, and restores its functions. Programs that run there at this moment
/// find zeros.
fn expel(stopped: &StoppedProcess<'_>, inode: u64, own_filters: u32) -> Result<(), RemoteError> {
    for remains in ours(stopped, inode)? {
        remains.separate(stopped, own_filters)?;
        remove(&remains, stopped, own_filters)?;
    }
    Ok(())
}

/// Restores functions and frees a region, if it is not in use and no seccomp filter forbids the calls for that.
fn remove(remains: &Remains, stopped: &StoppedProcess<'_>, own_filters: u32) -> Result<bool, RemoteError> {
    match remains.remove(stopped, own_filters) {
        Err(RemoteError::Filtered) => Ok(true),
        result => result,
    }
}

/// The regions of a session in a process, by the inode of its shared memory.
pub(super) fn ours(stopped: &StoppedProcess<'_>, inode: u64) -> Result<Vec<Remains>, RemoteError> {
    let mut remains = Remains::find(stopped, &stopped.maps()?)?;
    remains.retain(|remains| remains.inode() == Some(inode));
    Ok(remains)
}

/// Stops the other threads of a process, none of them in a region of the session, where it could be about to make a system call.
fn others_outside<'t>(seized: &SeizedThread<'t>, inode: u64) -> Result<StoppedProcess<'t>, RemoteError> {
    let mut attempt = 0;
    loop {
        let others = seized.others(STOP_LIMIT)?;
        let mut inside = false;
        for remains in ours(&others, inode)? {
            inside |= remains.has_threads(&others)?;
        }
        if !inside || attempt == LEAVING {
            return Ok(others);
        }
        others.resume();
        std::thread::sleep(PAUSE * 2u32.pow(attempt));
        attempt += 1;
    }
}
