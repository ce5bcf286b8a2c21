//! Connections to the tracer's socket, until their processes have proven that they have loaded the agent.
//!
//! The socket has an abstract name, which any local process can read in `/proc/net/unix` and connect to. So the first packet must be the agent's
//! [`Hello`] with the secret that only the agent's file has; no other packet is read before.
//!
//! Not here: which processes are expected to connect, and how many connections may wait (`gpu/agents.rs` of the binary).

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use agent::message::{Hello, SECRET};
use native::load::{BEGINS, LOADED};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};

use super::agent_socket::AgentSocket;
use crate::kernel::sys;

/// Longest time until the first packet. The agent sends it right after it has connected.
const LIMIT: Duration = Duration::from_secs(2);

/// The secret of an agent's file.
#[derive(Copy, Clone)]
pub(super) struct Secret([u8; SECRET]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(super) fn new() -> io::Result<Secret> {
        let mut bytes = [0; SECRET];
        sys::fill_random(&mut bytes)?;
        Ok(Secret(bytes))
    }

    /// Bytes for the file.
    pub(super) fn bytes(&self) -> &[u8; SECRET] {
        &self.0
    }

    /// Whether these are its bytes. All of them are compared: the time that a refusal takes depends on no byte of the secret.
    fn is(&self, bytes: &[u8]) -> bool {
        let differences = self.0.iter().zip(bytes).fold(0, |found, (own, other)| found | (own ^ other));
        bytes.len() == SECRET && differences == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A connection without a proof.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    pid: Option<u32>,
    since: Instant,
    /// The tracer has made it for a process that is to load the agent.
    is_request: bool,
}

/// Evidence in the first packet of a connection.
#[derive(Debug)]
pub enum Proof {
    /// The process has loaded the agent.
    Agent(Box<AgentSocket>),
    /// There is no packet yet.
    Missing(Connection),
    /// A thread of the process is about to load the agent, see [`Session::load_agent`](crate::Session::load_agent).
    Begins(Connection),
    /// The packet is wrong. The connection is closed.
    Wrong,
    /// The process has closed the connection, and sent nothing or an empty packet.
    Closed,
}

impl Connection {
    /// A connection that the tracer has made for a process.
    pub(crate) fn to(pid: u32, socket: OwnedFd) -> Connection {
        Connection { socket, pid: Some(pid), since: Instant::now(), is_request: true }
    }

    /// Lets the thread that is about to load the agent go on, and waits until it has.
    pub(crate) fn let_load(&self, patience: Duration) {
        // If it has ended, the next packet is missing.
        let _ = rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL);
        let mut readable = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut readable, Some(&timeout));
    }

    /// A connection that was accepted.
    pub(super) fn accepted(socket: OwnedFd) -> io::Result<Connection> {
        let pid = sys::peer_pid(&socket)?;
        Ok(Connection { socket, pid, since: Instant::now(), is_request: false })
    }

    /// The process that has connected; `None` if it is in a pid namespace that this process does not see.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// A descriptor that is readable when the first packet has come.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the time for the first packet is over.
    pub fn is_late(&self) -> bool {
        self.since.elapsed() > LIMIT
    }

    /// Reads the first packet.
    pub(super) fn prove(self, secret: &Secret) -> Proof {
        // One byte more than the packet has: a longer one is wrong.
        let mut packet = [MaybeUninit::<u8>::uninit(); size_of::<Hello>() + 1];
        match rustix::net::recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Proof::Missing(self),
            Ok(((&mut [], _), _)) | Err(rustix::io::Errno::CONNRESET) => Proof::Closed,
            Ok(((&mut [BEGINS], _), _)) if self.is_request => Proof::Begins(self),
            // The thread goes on, whether the others could be held that long or not.
            Ok(((&mut [LOADED], _), _)) if self.is_request => self.prove(secret),
            Ok(((bytes, _), _)) if secret.is(bytes) => match self.pid {
                Some(pid) => Proof::Agent(Box::new(AgentSocket::new(self.socket, pid))),
                None => Proof::Wrong,
            },
            _ => Proof::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, send, socketpair};

    fn connected() -> (OwnedFd, Connection) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (process, tracer) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket pair");
        (process, Connection::to(7, tracer))
    }

    #[test]
    fn only_the_secret_alone_is_a_proof() {
        let secret = Secret::new().expect("random bytes");
        let mut wrong = *secret.bytes();
        wrong[SECRET - 1] ^= 1;
        let longer = [&secret.bytes()[..], &[0]].concat();
        for packet in [&wrong[..], &secret.bytes()[1..], &longer, &[0; SECRET], &[0; 4000]] {
            let (process, connection) = connected();
            send(&process, packet, SendFlags::empty()).expect("there is room");
            assert!(matches!(connection.prove(&secret), Proof::Wrong), "{packet:?}");
        }
        let (process, connection) = connected();
        let Proof::Missing(connection) = connection.prove(&secret) else { panic!("nothing was sent") };
        assert!(!connection.is_late());
        send(&process, secret.bytes(), SendFlags::empty()).expect("there is room");
        let Proof::Agent(socket) = connection.prove(&secret) else { panic!("it is the secret") };
        assert_eq!(socket.pid(), 7);
    }

    #[test]
    fn a_closed_connection_proves_nothing() {
        let secret = Secret::new().expect("random bytes");
        let (process, connection) = connected();
        drop(process);
        assert!(matches!(connection.prove(&secret), Proof::Closed));
    }

    #[test]
    fn secrets_differ_and_are_not_printed() {
        let [one, other] = [Secret::new(), Secret::new()].map(|secret| secret.expect("random bytes"));
        assert!(!one.is(other.bytes()) && one.is(one.bytes()));
        assert_eq!(format!("{one:?}"), "Secret");
    }
}
