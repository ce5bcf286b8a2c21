//! Gates (`native::load`): functions of CUDA's driver through which a process is made to load the agent.
//!
//! A gate is part of the function's detour, in front of its programs, if it has any. A session whose programs run in the kernel has no
//! other detours than these.

use super::patch_sites::PatchCount;
use super::patching::{ATTEMPTS, Access, PAUSE, leave, ours};
use super::regions::{FileFunctions, FunctionSite, ProbedFile};
use super::user_space::UserSpace;
use crate::remote::seccomp::{self, Caller};
use crate::remote::{Library, Remains, RemoteError, StoppedProcess, Tracer};
use native::object::Object;
use std::io;
use std::os::fd::OwnedFd;

/// Attempts to find that the thread that has loaded the library has left the region.
const LEAVING: u32 = 2;

impl UserSpace {
    /// Memory without programs.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn for_gates(cpus: u32) -> Result<UserSpace, RemoteError> {
        let made = UserSpace::with(Object::default(), &[], cpus);
        let mut user = made.map_err(|error| RemoteError::System(io::Error::other(error)))?;
        user.has_programs = false;
        Ok(user)
    }

    /// Gives functions of a file gates, which may have programs, too. A process must not be patched for these before.
    pub(crate) fn add_gates(&mut self, functions: FileFunctions) {
        let FileFunctions { file, path, sites } = functions;
        let file = self.files.entry(file).or_insert_with(|| ProbedFile::new(path));
        for FunctionSite { offset, patch } in sites {
            file.functions.entry(offset).or_insert(patch);
            file.gates.insert(offset);
        }
    }

    /// Requests that a process loads a library at its next call through a gate, see [`Remains::request_load`](crate::remote::Remains).
    ///
    /// # Errors
    /// [`RemoteError::NoGate`], those of patching the process, and those of the request.
    pub(crate) fn request_load(
        &mut self,
        pid: u32,
        library: &Library<'_>,
        access: Access,
    ) -> Result<OwnedFd, RemoteError> {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.restored = None;
        }
        let mut other = None;
        Tracer::run(|tracer| {
            for _ in 0..ATTEMPTS {
                let stopped = StoppedProcess::all(tracer, pid, access.stop_limit)?;
                if !(library.is_current)() {
                    return Err(RemoteError::Executed);
                }
                seccomp::check(&stopped, access.own_filters, Caller::Agent)?;
                self.patch(&stopped, access.own_filters)?;
                for remains in ours(&stopped, self.memory.inode())? {
                    let is_gate = self.gates.contains(&remains.base()) && remains.has_jump(&stopped)?;
                    if is_gate && !remains.is_borrowed(&stopped)? {
                        return remains.request_load(&stopped, library, access.own_filters);
                    }
                }
                other = other_tracer(&stopped, self.memory.inode())?;
                // A thread may be about to return to the functions.
                stopped.resume();
                std::thread::sleep(PAUSE);
            }
            Err(other.map_or(RemoteError::NoGate, |tracer| RemoteError::Patched { tracer }))
        })
    }

    /// Calls `load` while no thread of a process runs but the one that is about to load the library. So no thread forks meanwhile: the child
    /// would have the loader's locks and data as they are then.
    ///
    /// # Errors
    /// [`RemoteError`]; `load` was not called.
    pub(crate) fn hold_others(
        &self,
        pid: u32,
        access: Access,
        load: impl FnOnce() + Send,
    ) -> Result<(), RemoteError> {
        let inode = self.memory.inode();
        Tracer::run(|tracer| {
            let stopped = StoppedProcess::all(tracer, pid, access.stop_limit)?;
            let regions = ours(&stopped, inode)?;
            let mut in_region = Vec::new();
            for tid in stopped.threads() {
                let at = stopped.registers(*tid)?.rip;
                if regions.iter().any(|region| region.code().contains(&at)) {
                    in_region.push(*tid);
                }
            }
            // That thread waits there. Others that are there do not fork.
            let _others = stopped.without(&in_region);
            load();
            Ok(())
        })
    }

    /// Takes the request to a process back if no call has claimed it; returns whether it was taken back.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub(crate) fn withdraw_load(&self, pid: u32, access: Access) -> Result<bool, RemoteError> {
        let inode = self.memory.inode();
        Tracer::run(|tracer| {
            let stopped = StoppedProcess::all(tracer, pid, access.stop_limit)?;
            let mut is_withdrawn = false;
            for remains in ours(&stopped, inode)? {
                is_withdrawn |= remains.withdraw_load(&stopped, access.own_filters)?;
            }
            Ok(is_withdrawn)
        })
    }

    /// Restores the functions of a process that has loaded the library, if they had gates only.
    ///
    /// # Errors
    /// [`RemoteError`]; the functions are restored at the end of the session then.
    pub(crate) fn leave_gates(&mut self, pid: u32, access: Access) -> Result<(), RemoteError> {
        if self.has_programs {
            return Ok(());
        }
        let inode = self.memory.inode();
        let is_ours = |remains: &Remains, _: &StoppedProcess<'_>| Ok(remains.inode() == Some(inode));
        let is_gone = leave(pid, access, LEAVING, is_ours)?;
        let process = self.processes.entry(pid).or_default();
        process.drop_regions();
        if !is_gone {
            process.restored = Some(access.own_filters);
        }
        Ok(())
    }

    /// Counts of patches for programs.
    pub(crate) fn patched(&self) -> PatchCount {
        self.patched
    }
}

/// A thread of another session that has patched functions of the process, and goes on. Its gates, too, are restored when its agent is there.
fn other_tracer(stopped: &StoppedProcess<'_>, inode: u64) -> Result<Option<u32>, RemoteError> {
    for remains in Remains::find(stopped, &stopped.maps()?)? {
        if remains.inode() != Some(inode)
            && let Some(tracer) = remains.tracer(stopped)?
        {
            return Ok(Some(tracer));
        }
    }
    Ok(None)
}
