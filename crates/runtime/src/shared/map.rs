//! A map in the memory of a session, which the traced processes can write at any time.

use super::memory::{DescribedMap, SessionMemory};
use super::untrusted::{Damage, UntrustedMemory};
use native::layout::{self, BUCKET, ENTRY_KEY, ENTRY_USED, HASH_FRESH, MapPlace};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A map that programs in traced processes share with the tracer.
#[derive(Clone, Debug)]
pub struct SharedMap {
    memory: Arc<SessionMemory>,
    map: DescribedMap,
}

/// Marks the end of a chain, see `maps.c`.
const END: u32 = 0x8000_0000;
/// Walks of a chain that another thread may be changing.
const WALKS: usize = 100;

impl SharedMap {
    /// The map.
    pub fn new(memory: Arc<SessionMemory>, map: DescribedMap) -> SharedMap {
        SharedMap { memory, map }
    }

    fn place(&self) -> &MapPlace {
        &self.map.place
    }

    fn untrusted(&self) -> &UntrustedMemory {
        self.memory.untrusted()
    }

    fn cell_size(&self) -> usize {
        (self.place().def.value_size as usize).next_multiple_of(8)
    }

    /// Reads the cells of a key on all CPUs, one after the other.
    ///
    /// # Errors
    /// ENOENT
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        let cells = if self.place().cpus > 1 { self.cell_size() } else { value.len().max(1) };
        for (cpu, cell) in (0..).zip(value.chunks_mut(cells)) {
            let at = self.memory.lookup(&self.map, key, cpu).ok_or_else(missing)?;
            self.untrusted().read(at, cell);
        }
        Ok(())
    }

    /// Writes the cells of a key on all CPUs. A key that another thread keeps locked stays as it is, which is counted.
    ///
    /// # Errors
    /// E2BIG: the map is full.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let cells = if self.place().cpus > 1 { self.cell_size() } else { value.len().max(1) };
        (0..)
            .zip(value.chunks(cells))
            .try_for_each(|(cpu, cell)| self.unless_locked(self.memory.update(&self.map, key, cell, cpu)))
    }

    /// Deletes a key. One that another thread keeps locked stays, which is counted.
    ///
    /// # Errors
    /// ENOENT
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.unless_locked(self.memory.delete(&self.map, key))
    }

    /// A thread that was stopped in the middle of an update keeps its chain locked.
    fn unless_locked(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                self.memory.count_locked(&self.place().def.name);
                Ok(())
            }
            result => result,
        }
    }

    /// All keys; of an array all indices.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let (place, memory) = (self.place(), self.untrusted());
        let def = &place.def;
        if def.kind.is_array() {
            return (0..def.max_entries).map(|index| index.to_le_bytes().to_vec()).collect();
        }
        let fresh = memory.word32(place.state + HASH_FRESH).load(Ordering::Acquire);
        let entries = 0..u64::from(fresh.min(def.max_entries + layout::SPARE));
        let key = |entry: u64| {
            let at = place.cells + entry * place.stride;
            let mut key = vec![0; def.key_size as usize];
            memory.read(at + ENTRY_KEY, &mut key);
            (memory.word(at + ENTRY_USED).load(Ordering::Acquire) != 0).then_some(key)
        };
        // An update that a kill has interrupted may have left an entry of the same key.
        let mut seen = HashSet::new();
        entries.filter_map(key).filter(|key| seen.insert(key.clone())).collect()
    }

    /// Checks that the entries of a hash form chains, as far as programs make them; notes the damage.
    pub fn check(&self) {
        let is_chain = |bucket: u32| (0..WALKS).any(|_| self.is_chain(bucket));
        if !(0..self.place().bucket_count).all(is_chain) {
            self.untrusted().note(Damage::Map);
        }
    }

    /// Whether a chain leads from entry to entry to its own end.
    fn is_chain(&self, bucket: u32) -> bool {
        let (place, memory) = (self.place(), self.untrusted());
        let entries = place.def.max_entries + layout::SPARE;
        let load = |at: u64| memory.word32(at).load(Ordering::Acquire);
        let mut index = load(place.buckets + BUCKET * u64::from(bucket));
        for _ in 0..=entries {
            if index >= entries {
                return index == END | bucket;
            }
            index = load(place.cells + u64::from(index) * place.stride);
        }
        false
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}
