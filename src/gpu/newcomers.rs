//! Connections to the agents' socket whose process has not sent the first packet yet. Only processes that are traced get this far.
//! There are 64 at most, one of each process; those that wait too long are closed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use runtime::gpu::Connection;

/// Largest number of them, one of a process. An agent sends its first packet right after it has connected, so that few wait.
const MOST: usize = 64;

/// The connections, by the mark of their descriptor. A later one has a larger mark.
pub struct Newcomers {
    waiting: BTreeMap<u64, Connection>,
    next: u64,
}

impl Newcomers {
    /// No connections. Their marks are `first` and larger.
    pub fn new(first: u64) -> Newcomers {
        Newcomers { waiting: BTreeMap::new(), next: first }
    }

    /// Keeps a connection, whose descriptor `watch` adds to a set with a mark; returns the one that makes room: an earlier one of the same process, or
    /// the oldest one.
    ///
    /// # Errors
    /// That of `watch`; the connection is closed.
    pub fn add(
        &mut self,
        connection: Connection,
        watch: impl FnOnce(BorrowedFd<'_>, u64) -> io::Result<()>,
    ) -> io::Result<Option<Connection>> {
        watch(connection.as_fd(), self.next)?;
        let of_same = self.waiting.iter().find(|(_, earlier)| earlier.pid() == connection.pid());
        let oldest = || self.waiting.keys().next().filter(|_| self.waiting.len() >= MOST);
        let replaced = of_same.map(|(mark, _)| mark).or_else(oldest).copied();
        let replaced = replaced.and_then(|mark| self.waiting.remove(&mark));
        self.waiting.insert(self.next, connection);
        self.next += 1;
        Ok(replaced)
    }

    /// The connection with a mark, as long as it waits.
    pub fn take(&mut self, mark: u64) -> Option<Connection> {
        self.waiting.remove(&mark)
    }

    /// Puts a connection back under its mark.
    pub fn put_back(&mut self, mark: u64, connection: Connection) {
        self.waiting.insert(mark, connection);
    }

    /// Takes the connections whose time is over.
    pub fn late(&mut self) -> Vec<Connection> {
        let is_late = |(_, connection): &(&u64, &Connection)| connection.is_late();
        let marks: Vec<u64> = self.waiting.iter().filter(is_late).map(|(mark, _)| *mark).collect();
        marks.into_iter().filter_map(|mark| self.waiting.remove(&mark)).collect()
    }
}
