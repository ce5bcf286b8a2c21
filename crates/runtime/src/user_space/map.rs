//! A map in the memory of a session.

use super::memory::SessionMemory;
use native::layout::{self, ENTRY_KEY, ENTRY_USED, HASH_FRESH, MapPlace};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A map that programs in traced processes share with the tracer.
#[derive(Clone, Debug)]
pub struct SharedMap {
    memory: Arc<SessionMemory>,
    place: MapPlace,
}

impl SharedMap {
    /// The map at a place.
    pub fn new(memory: Arc<SessionMemory>, place: MapPlace) -> SharedMap {
        SharedMap { memory, place }
    }

    fn cell_size(&self) -> usize {
        (self.place.def.value_size as usize).next_multiple_of(8)
    }

    /// Reads the cells of a key on all CPUs, one after the other.
    ///
    /// # Errors
    /// ENOENT
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        let cells = if self.place.cpus > 1 { self.cell_size() } else { value.len().max(1) };
        for (cpu, cell) in (0..).zip(value.chunks_mut(cells)) {
            let at = self.memory.lookup(&self.place, key, cpu).ok_or_else(missing)?;
            self.memory.read(at, cell);
        }
        Ok(())
    }

    /// Writes the cells of a key on all CPUs.
    ///
    /// # Errors
    /// E2BIG: the map is full.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let cells = if self.place.cpus > 1 { self.cell_size() } else { value.len().max(1) };
        (0..)
            .zip(value.chunks(cells))
            .try_for_each(|(cpu, cell)| self.memory.update(&self.place, key, cell, cpu))
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// ENOENT
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.memory.delete(&self.place, key)
    }

    /// All keys; of an array all indices.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let def = &self.place.def;
        if def.kind.is_array() {
            return (0..def.max_entries).map(|index| index.to_le_bytes().to_vec()).collect();
        }
        let fresh = self.memory.word32(self.place.description + HASH_FRESH).load(Ordering::Acquire);
        let entries = 0..u64::from(fresh.min(def.max_entries + layout::SPARE));
        let key = |entry: u64| {
            let at = self.place.cells + entry * self.place.stride;
            let mut key = vec![0; def.key_size as usize];
            self.memory.read(at + ENTRY_KEY, &mut key);
            (self.memory.word(at + ENTRY_USED).load(Ordering::Acquire) != 0).then_some(key)
        };
        // An update that a kill has interrupted may have left an entry of the same key.
        let mut seen = HashSet::new();
        entries.filter_map(key).filter(|key| seen.insert(key.clone())).collect()
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}
