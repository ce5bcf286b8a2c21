//! Queries of the seccomp server to the tracer: one message of fixed size over a socket, answered by one byte.

use super::shared_memory::{FileState, Identity};
use std::path::PathBuf;

/// A file that a traced program is about to map executable for the first time. The thread is held until
/// [`super::Mappings::answer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The mapping thread, in the tracer's pid namespace.
    pub tid: u32,
    /// Current state of the file.
    pub state: FileState,
    /// Path that the tracer can open while the thread is held: `/proc/TID/fd/N`, or a descriptor of the seccomp server.
    pub open: PathBuf,
    /// Path in the program's root.
    pub shown: PathBuf,
    /// Addresses, if the program has chosen them.
    pub range: Option<MappedRange>,
}

impl Mapping {
    /// Device and inode, as `stat` returns them.
    pub fn identity(&self) -> Identity {
        self.state.identity
    }
}

/// Addresses at which a part of a file is mapped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
}

/// A system call for which a thread of the traced program is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Maps a file, or makes a mapped file executable.
    Maps(Mapping),
    /// Executes a program, which can be opened until the answer.
    Executes(Mapping),
    /// A program without a loader begins, which maps no library at which it would be noticed.
    Begins(Mapping),
    /// Ends its process; the last chance to read the mappings. By thread.
    Ends(u32),
    /// Installs a seccomp listener, which the kernel refuses while ours exists.
    InstallsListener(u32),
    /// Installs another seccomp filter, or uses seccomp in another way.
    InstallsFilter(u32),
    /// Enters seccomp's strict mode, which the kernel refuses while our filter exists.
    EntersStrictMode(u32),
    /// Changes the rights of its process: user, groups, capabilities, namespaces.
    ChangesRights(u32),
}

/// A query as it is sent.
pub(super) struct QueryMessage {
    /// [`MAPS`] …
    pub kind: u32,
    pub tid: u32,
    /// Descriptor of the file: of the thread for [`MAPS`], of the server for [`EXECUTES`] and [`PROTECTS`].
    pub fd: u32,
    pub range: Option<MappedRange>,
    /// Boot-clock time since which the thread is held; 0: it is not.
    pub since_ns: u64,
}

/// Size of a message in bytes.
pub(super) const SIZE: usize = 48;

pub(super) const MAPS: u32 = 0;
pub(super) const EXECUTES: u32 = 1;
pub(super) const ENDS: u32 = 2;
pub(super) const LISTENER: u32 = 3;
pub(super) const STRICT: u32 = 4;
pub(super) const PROTECTS: u32 = 5;
pub(super) const FILTER: u32 = 6;
pub(super) const BEGINS: u32 = 7;
pub(super) const RIGHTS: u32 = 8;

impl QueryMessage {
    pub(super) fn encode(&self) -> [u8; SIZE] {
        let [start, end, offset] = self.range.map_or([0; 3], |range| [range.start, range.end, range.offset]);
        let head = u64::from(self.tid) << 32 | u64::from(self.kind);
        let mut bytes = [0; SIZE];
        for (to, word) in
            bytes.chunks_exact_mut(8).zip([head, self.fd.into(), start, end, offset, self.since_ns])
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SIZE]) -> QueryMessage {
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("8 bytes"));
        let [head, fd, start, end, offset, since_ns] = std::array::from_fn(word);
        // The kernel chooses the addresses if the start is 0.
        let range = (start != 0).then_some(MappedRange { start, end, offset });
        QueryMessage { kind: head as u32, tid: (head >> 32) as u32, fd: fd as u32, range, since_ns }
    }
}
