//! The memory of a process, which may change or end at any time: a read gives what is there, or nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Memory of a process.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// The memory of a process; `None` without the right to read it.
    pub(super) fn of(pid: u32) -> Option<Memory> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Memory)
    }

    /// Fills a buffer; false if not all of it can be read.
    pub(super) fn read(&self, address: u64, to: &mut [u8]) -> bool {
        self.0.read_exact_at(to, address).is_ok()
    }

    fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes).then_some(bytes)
    }

    /// The 8 bytes at an address, as a number.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// The 4 bytes at an address, as a number.
    pub(super) fn half(&self, address: u64) -> Option<u32> {
        self.array(address).map(u32::from_le_bytes)
    }

    /// The byte at an address.
    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        self.array::<1>(address).map(|[byte]| byte)
    }
}
