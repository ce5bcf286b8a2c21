//! Requests to a process to load a library at its next call through a gate (`native::load`): two descriptors and words in its region.
//!
//! The last write is that of the word with the request. If this process is killed before, or before a call has claimed the request, nothing is
//! ever loaded, since the detours then pass by, and two descriptors are left. They are closed together with the region.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use native::layout::SCRATCH;
use native::load::{self, Descriptor, Functions, REQUESTED, Request};

use super::error::RemoteError;
use super::journal::Remains;
use super::stopped::StoppedProcess;
use super::system_calls::RemoteCalls;
use crate::kernel::sys;

/// A library to load.
#[derive(Copy, Clone)]
pub struct Library<'a> {
    /// Its file.
    pub file: BorrowedFd<'a>,
    /// Name of its function, which takes a socket: `int f(int)`.
    pub symbol: &'a str,
    /// Functions of the process that load it.
    pub functions: Functions,
    /// Whether the process still executes the program whose functions these are. It is asked while the process is stopped.
    pub is_current: &'a (dyn Fn() -> bool + Sync),
}

impl Remains {
    /// Requests that the process loads a library, and calls its function with one end of a socket (SOCK_SEQPACKET); returns the other end.
    ///
    /// # Errors
    /// [`RemoteError::LoadsAlready`], the errors of [`RemoteCalls::new`], and those of the calls for descriptors. Nothing is loaded then.
    pub fn request_load(
        &self,
        stopped: &StoppedProcess<'_>,
        library: &Library<'_>,
        own_filters: u32,
    ) -> Result<OwnedFd, RemoteError> {
        if self.word(stopped, load::RUNNING)? != 0 {
            return Err(RemoteError::LoadsAlready);
        }
        self.withdraw_load(stopped, own_filters)?;
        let (scratch, room) = (self.base() + SCRATCH, self.unused_code());
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        let used = calls.use_code_at(room.start, (room.end - room.start) as usize)?;
        let (socket, end) = calls.socket_pair(scratch, libc::SOCK_SEQPACKET)?;
        let passed = calls.pass(scratch, library.file);
        if passed.is_err() {
            calls.close(socket)?;
        }
        let passed = passed?;
        calls.finish()?;
        stopped.write(room.start, &vec![0; used])?;
        let request = Request {
            library: described(stopped, passed)?,
            socket: described(stopped, socket)?,
            functions: library.functions,
            symbol: library.symbol,
            path: &new_path(passed),
        };
        stopped.write(self.base() + load::DESCRIPTORS, &request.to_bytes())?;
        stopped.write(self.base() + load::STATE, &REQUESTED.to_le_bytes())?;
        Ok(end)
    }

    /// Takes a request back that no call has claimed, and closes its descriptors. False if there is none.
    ///
    /// # Errors
    /// The errors of [`RemoteCalls::new`] and of the memory of the process.
    pub fn withdraw_load(&self, stopped: &StoppedProcess<'_>, own_filters: u32) -> Result<bool, RemoteError> {
        // Only a complete region has the words.
        if self.inode().is_none() || self.word(stopped, load::STATE)? != REQUESTED {
            return Ok(false);
        }
        stopped.write(self.base() + load::STATE, &[0; 4])?;
        let mut words = [0; 2 * load::DESCRIPTOR as usize];
        stopped.read(self.base() + load::DESCRIPTORS, &mut words)?;
        let words: Vec<u64> = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut calls = RemoteCalls::new(stopped, own_filters)?;
        for descriptor in words.as_chunks().0.iter().map(|words| Descriptor::of_words(*words)) {
            // The program may have closed it, and have another one with this number.
            if described(stopped, descriptor.number.into()).is_ok_and(|now| now == descriptor) {
                calls.close(descriptor.number.into())?;
            }
        }
        calls.finish()?;
        Ok(true)
    }

    /// A word of the process's own page.
    fn word(&self, stopped: &StoppedProcess<'_>, offset: u64) -> Result<u32, RemoteError> {
        let mut word = [0; 4];
        stopped.read(self.base() + offset, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }
}

/// A descriptor of the process, with its file.
fn described(stopped: &StoppedProcess<'_>, number: u64) -> io::Result<Descriptor> {
    let file = fs::metadata(stopped.file(&format!("fd/{number}")))?;
    Ok(Descriptor { number: number as u32, file: (file.dev(), file.ino()) })
}

/// A path of a descriptor by which no library was loaded yet: the loader takes an equal path for the library that it has.
///
/// The process's own folder has no descriptors once its first thread has ended.
fn new_path(fd: u64) -> String {
    let bits = sys::random();
    let same: String = (0..32).map(|bit| if bits >> bit & 1 == 1 { "/." } else { "/" }).collect();
    format!("/proc/thread-self/fd{same}/{fd}")
}
