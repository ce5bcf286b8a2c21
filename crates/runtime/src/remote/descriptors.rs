//! Descriptors of this process, passed to another one, and of the other one, taken from it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use linux::pidfd;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::error::RemoteError;
use super::system_calls::RemoteCalls;

/// Bytes of the other process's memory that are used.
pub(super) const SCRATCH: usize = 128;

impl RemoteCalls<'_> {
    /// A descriptor of this process in the other one. `scratch`: address of [`SCRATCH`] bytes there, which are zero afterwards.
    ///
    /// # Errors
    /// As for [`RemoteCalls::call`], and those of the socket by which it is sent.
    pub(super) fn pass(&mut self, scratch: u64, ours: BorrowedFd<'_>) -> Result<u64, RemoteError> {
        let passed = self.open(scratch, ours).or_else(|_| self.receive(scratch, ours));
        self.stopped().write(scratch, &[0; SCRATCH])?;
        passed
    }

    /// A pair of connected sockets of this kind: one in the other process, one here. `scratch`: address of 8 bytes there.
    ///
    /// # Errors
    /// As for [`RemoteCalls::call`], and those of pidfd_getfd(2).
    pub(super) fn socket_pair(&mut self, scratch: u64, kind: i32) -> Result<(u64, OwnedFd), RemoteError> {
        let kind = (kind | libc::SOCK_CLOEXEC) as u64;
        let arguments = [libc::AF_UNIX as u64, kind, 0, scratch, 0, 0];
        self.call("socketpair", libc::SYS_socketpair, arguments)?;
        let mut ends = [0; 8];
        self.stopped().read(scratch, &mut ends)?;
        let [theirs, ours] =
            [0, 4].map(|at| u32::from_ne_bytes(ends[at..at + 4].try_into().expect("4 bytes")));
        let taken = self.take(ours);
        self.close(ours.into())?;
        match taken {
            Ok(taken) => Ok((theirs.into(), taken)),
            Err(error) => {
                self.close(theirs.into())?;
                Err(error)
            }
        }
    }

    /// A descriptor of the other process in this one.
    fn take(&self, theirs: u32) -> Result<OwnedFd, RemoteError> {
        let process = pidfd::open(self.stopped().pid())?;
        Ok(pidfd::descriptor_of(&process, theirs as i32)?)
    }

    /// Opens a descriptor of this process by its path. Fails in another pid namespace, and if this process has more rights.
    fn open(&mut self, scratch: u64, ours: BorrowedFd<'_>) -> Result<u64, RemoteError> {
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), ours.as_raw_fd());
        self.stopped().write(scratch, path.as_bytes())?;
        let access = rustix::fs::fcntl_getfl(ours).map_err(io::Error::from)? & rustix::fs::OFlags::RWMODE;
        let flags = u64::from(access.bits()) | libc::O_CLOEXEC as u64;
        let arguments = [libc::AT_FDCWD as u64, scratch, flags, 0, 0, 0];
        let fd = self.descriptor("openat", libc::SYS_openat, arguments)?;
        let opened = self.stopped().file(&format!("fd/{fd}"));
        let theirs = rustix::fs::stat(opened).map_err(io::Error::from)?;
        let ours = rustix::fs::fstat(ours).map_err(io::Error::from)?;
        if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) {
            return Ok(fd);
        }
        // The number is that of another process in its namespace.
        self.close(fd)?;
        Err(io::Error::from_raw_os_error(libc::ESRCH).into())
    }

    /// Receives a descriptor through a socket whose other end this process takes.
    fn receive(&mut self, scratch: u64, ours: BorrowedFd<'_>) -> Result<u64, RemoteError> {
        let (socket, end) = self.socket_pair(scratch, libc::SOCK_DGRAM)?;
        let received = send(end.as_fd(), ours).and_then(|()| self.receive_from(scratch, socket));
        self.close(socket)?;
        received
    }

    fn receive_from(&mut self, scratch: u64, socket: u64) -> Result<u64, RemoteError> {
        // struct msghdr, struct iovec, a byte, and the control message with the descriptor
        let (vector, byte, control) = (scratch + 64, scratch + 80, scratch + 96);
        let words = [0, 0, vector, 1, control, 24, 0, 0, byte, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.stopped().write(scratch, &bytes)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        self.call("recvmsg", libc::SYS_recvmsg, [socket, scratch, flags, 0, 0, 0])?;
        let mut fd = [0; 4];
        self.stopped().read(control + 16, &mut fd)?;
        Ok(u32::from_ne_bytes(fd).into())
    }
}

/// Sends a descriptor.
fn send(socket: BorrowedFd<'_>, ours: BorrowedFd<'_>) -> Result<(), RemoteError> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [ours];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let text = [io::IoSlice::new(&[1])];
    rustix::net::sendmsg(socket, &text, &mut ancillary, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
    Ok(())
}
