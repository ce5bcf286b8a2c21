//! The memory of a process, which may change or end at any time, or copies of parts of it: a read gives what is there, or nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Memory of a process.
#[derive(Debug)]
pub(super) enum Memory {
    /// The process itself.
    Process(File),
    /// Parts of it, with their addresses.
    Copies(Vec<(u64, Vec<u8>)>),
}

impl Memory {
    /// The memory of a process; `None` without the right to read it.
    pub(super) fn of(pid: u32) -> Option<Memory> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Memory::Process)
    }

    /// Fills a buffer from a member of a structure on; false if not all of it can be read. Addresses and offsets are the process's own words:
    /// their sum may be any number.
    pub(super) fn read(&self, base: u64, offset: u64, to: &mut [u8]) -> bool {
        let at = base.wrapping_add(offset);
        match self {
            Memory::Process(file) => file.read_exact_at(to, at).is_ok(),
            Memory::Copies(parts) => parts.iter().any(|(start, bytes)| {
                let from = at.checked_sub(*start).and_then(|from| usize::try_from(from).ok());
                let part = from.and_then(|from| bytes.get(from..)?.get(..to.len()));
                part.is_some_and(|part| {
                    to.copy_from_slice(part);
                    true
                })
            }),
        }
    }

    fn array<const N: usize>(&self, base: u64, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(base, offset, &mut bytes).then_some(bytes)
    }

    /// A member of 8 bytes.
    pub(super) fn u64(&self, base: u64, offset: u64) -> Option<u64> {
        self.array(base, offset).map(u64::from_le_bytes)
    }

    /// A member of 4 bytes.
    pub(super) fn u32(&self, base: u64, offset: u64) -> Option<u32> {
        self.array(base, offset).map(u32::from_le_bytes)
    }

    /// A member of one byte.
    pub(super) fn u8(&self, base: u64, offset: u64) -> Option<u8> {
        self.array(base, offset).map(|[byte]| byte)
    }

    /// The words from an address on.
    pub(super) fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (at, word) in (0..).step_by(8).zip(&mut words) {
            *word = self.u64(address, at)?;
        }
        Some(words)
    }
}
