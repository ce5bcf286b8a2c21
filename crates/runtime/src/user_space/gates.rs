//! Gates (`native::load`): functions of CUDA's driver through which a process is made to load the agent.
//!
//! A gate is part of the function's detour, in front of its programs, if it has any. A session whose programs run in the kernel has no
//! other detours than these.

use super::patching::{ATTEMPTS, PAUSE, STOP_LIMIT, leave, ours};
use super::processes::{FileFunctions, FunctionSite, ProbedFile};
use super::{Patched, UserSpace};
use crate::in_process::seccomp::{self, Caller};
use crate::in_process::{Library, Remains, RemoteError, Stopped, Tracer};
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
    pub fn for_gates(cpus: u32) -> Result<UserSpace, RemoteError> {
        let made = UserSpace::with(Object::default(), &[], cpus);
        let mut user = made.map_err(|error| RemoteError::System(io::Error::other(error)))?;
        user.has_programs = false;
        Ok(user)
    }

    /// Gives functions of a file gates, which may have programs, too. A process must not be patched for these before.
    pub fn add_gates(&mut self, functions: FileFunctions) {
        let FileFunctions { file, path, sites } = functions;
        let file = self.files.entry(file).or_insert_with(|| ProbedFile::new(path));
        for FunctionSite { offset, patch } in sites {
            file.functions.entry(offset).or_insert(patch);
            file.gates.insert(offset);
        }
    }

    /// Asks a process to load a library at its next call through a gate, see [`Remains::request_load`](crate::in_process::Remains).
    /// `own_filters`: number of its seccomp filters that are the tracer's.
    ///
    /// # Errors
    /// [`RemoteError::NoGate`], those of patching the process, and those of the request.
    pub fn request_load(
        &mut self,
        pid: u32,
        library: &Library<'_>,
        own_filters: u32,
    ) -> Result<OwnedFd, RemoteError> {
        self.left.remove(&pid);
        Tracer::run(|tracer| {
            for _ in 0..ATTEMPTS {
                let stopped = Stopped::all(tracer, pid, STOP_LIMIT)?;
                seccomp::check(&stopped, own_filters, Caller::Agent)?;
                self.patch(&stopped, own_filters)?;
                for remains in ours(&stopped, self.memory.inode())? {
                    let is_gate = self.gates.contains(&remains.base()) && remains.has_jump(&stopped)?;
                    if is_gate && !remains.is_borrowed(&stopped)? {
                        return remains.request_load(&stopped, library, own_filters);
                    }
                }
                // A thread may be about to return to the functions.
                stopped.resume();
                std::thread::sleep(PAUSE);
            }
            Err(RemoteError::NoGate)
        })
    }

    /// Takes the request to a process back if no call has claimed it; returns whether it was taken back.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub fn withdraw_load(&self, pid: u32, own_filters: u32) -> Result<bool, RemoteError> {
        let inode = self.memory.inode();
        Tracer::run(|tracer| {
            let stopped = Stopped::all(tracer, pid, STOP_LIMIT)?;
            let mut is_withdrawn = false;
            for remains in ours(&stopped, inode)? {
                is_withdrawn |= remains.withdraw_load(&stopped, own_filters)?;
            }
            Ok(is_withdrawn)
        })
    }

    /// Restores the functions of a process that has loaded the library, if they had gates only.
    ///
    /// # Errors
    /// [`RemoteError`]; the functions are restored at the end of the session then.
    pub fn leave_gates(&mut self, pid: u32, own_filters: u32) -> Result<(), RemoteError> {
        if self.has_programs {
            return Ok(());
        }
        let inode = self.memory.inode();
        let is_ours = |remains: &Remains, _: &Stopped<'_>| Ok(remains.inode() == Some(inode));
        let is_gone = leave(pid, own_filters, LEAVING, is_ours)?;
        self.processes.remove(&pid);
        self.heirs.remove(&pid);
        if !is_gone {
            self.left.insert(pid, own_filters);
        }
        Ok(())
    }

    /// What was patched for programs.
    pub fn patched(&self) -> Patched {
        self.patched
    }
}
