//! BPF maps. A value is a region of memory, so that programs can hold pointers to it.

use super::memory::{Kind, Memory, RegionId};
use crate::recency::Recency;
use native::object::MapDef;
use std::collections::BTreeMap;

/// Errors of map helpers, by the kernel's numbers.
pub(super) mod errno {
    /// No such key.
    pub(crate) const ENOENT: i64 = 2;
    /// Map full.
    pub(crate) const E2BIG: i64 = 7;
    /// Bad address.
    pub(crate) const EFAULT: i64 = 14;
    /// The key already exists.
    pub(crate) const EEXIST: i64 = 17;
    /// Unsupported for this kind of map.
    pub(crate) const EINVAL: i64 = 22;
}

/// A map.
#[derive(Debug)]
pub struct Map {
    /// Definition.
    pub def: MapDef,
    cpus: usize,
    /// For each key one cell, or one per CPU, in the order of loops over the map, so that runs are reproducible.
    /// Cells of arrays are created on first access; before that they are zero.
    cells: BTreeMap<Vec<u8>, Vec<RegionId>>,
    recent: Recency,
    /// Stacks, indexed by id.
    pub stacks: Vec<Vec<u64>>,
    /// Records of a ring buffer.
    pub records: Vec<Vec<u8>>,
    /// Used bytes of a ring buffer.
    pub used: u64,
}

/// Reverses the bytes of an array's key: big-endian keys have the order of the numbers.
fn turned(key: &[u8]) -> Vec<u8> {
    key.iter().rev().copied().collect()
}

impl Map {
    /// Creates an empty map.
    pub fn new(def: MapDef, cpus: u32) -> Map {
        let cpus = if def.kind.is_per_cpu() { cpus as usize } else { 1 };
        Map {
            def,
            cpus,
            cells: BTreeMap::new(),
            recent: Recency::default(),
            stacks: vec![],
            records: vec![],
            used: 0,
        }
    }

    fn place(&self, key: &[u8]) -> Vec<u8> {
        if self.def.kind.is_array() { turned(key) } else { key.to_vec() }
    }

    /// Whether the key is a valid index of an array.
    fn indexes(&self, key: &[u8]) -> bool {
        let index = key.try_into().map(u32::from_le_bytes);
        self.def.kind.is_array() && index.is_ok_and(|index| index < self.def.max_entries)
    }

    fn insert(&mut self, key: &[u8], memory: &mut Memory) {
        let size = self.def.value_size as usize;
        let name = format!("a cell of {}", self.def.name);
        let cells = (0..self.cpus).map(|_| memory.add(name.clone(), Kind::Value, vec![0; size])).collect();
        self.cells.insert(self.place(key), cells);
    }

    /// The cell of a key on a CPU.
    pub fn lookup(&mut self, key: &[u8], cpu: u32, memory: &mut Memory) -> Option<RegionId> {
        let cells = self.lookup_all(key, memory);
        cells.get(cpu as usize % self.cpus).copied()
    }

    /// Cells of a key on all CPUs; empty if the key does not exist.
    pub fn lookup_all(&mut self, key: &[u8], memory: &mut Memory) -> Vec<RegionId> {
        let place = self.place(key);
        if self.indexes(key) && !self.cells.contains_key(&place) {
            self.insert(key, memory);
        }
        self.cells.get(&place).cloned().unwrap_or_default()
    }

    /// Existing keys in the order of loops; for an array those that were accessed.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.cells.keys().map(|place| self.place(place)).collect()
    }

    /// Keys that a loop over the map visits.
    pub fn visited(&self) -> Box<dyn Iterator<Item = Vec<u8>>> {
        match self.def.kind.is_array() {
            true => Box::new((0..self.def.max_entries).map(|index| index.to_le_bytes().to_vec())),
            false => Box::new(self.keys().into_iter()),
        }
    }

    /// `bpf_map_update_elem`: 0 or a negative error.
    pub fn update(&mut self, key: &[u8], value: &[u8], flags: u64, cpu: u32, memory: &mut Memory) -> i64 {
        const NO_EXIST: u64 = 1;
        const EXIST: u64 = 2;
        let there = !self.lookup_all(key, memory).is_empty();
        match flags {
            NO_EXIST if there => return -errno::EEXIST,
            EXIST if !there => return -errno::ENOENT,
            0..=2 => {}
            _ => return -errno::EINVAL,
        }
        if !there {
            let full = self.def.kind.is_array() || self.cells.len() >= self.def.max_entries as usize;
            if full && !self.evict() {
                return -errno::E2BIG;
            }
            self.insert(key, memory);
        }
        let cell = self.lookup(key, cpu, memory).expect("there or just inserted");
        memory.fill(cell, value);
        0
    }

    /// Marks a key as used.
    pub fn used(&mut self, key: &[u8]) {
        if self.def.kind.evicts() && self.cells.contains_key(key) {
            self.recent.used(key);
        }
    }

    /// Evicts the least recently used key; false if the map does not evict. The kernel's order is less strict.
    fn evict(&mut self) -> bool {
        let oldest = if self.def.kind.evicts() { self.recent.take_oldest() } else { None };
        oldest.is_some_and(|key| self.cells.remove(&key).is_some())
    }

    /// Sets the cells of a key on all CPUs, from outside of programs.
    pub fn set(&mut self, key: &[u8], value: &[u8], memory: &mut Memory) {
        if self.lookup_all(key, memory).is_empty() {
            self.insert(key, memory);
        }
        for cell in self.lookup_all(key, memory) {
            memory.fill(cell, value);
        }
    }

    /// `bpf_map_delete_elem`.
    pub fn delete(&mut self, key: &[u8]) -> i64 {
        match self.def.kind.is_array() {
            true => -errno::EINVAL,
            false => {
                self.recent.forget(key);
                self.cells.remove(key).map_or(-errno::ENOENT, |_| 0)
            }
        }
    }

    /// Removes all keys; cells of arrays are zeroed.
    pub fn clear(&mut self, memory: &mut Memory) {
        match self.def.kind.is_array() {
            true => self.zero(0, memory),
            false => {
                self.cells.clear();
                self.recent = Recency::default();
            }
        }
    }

    /// Zeroes every cell from byte `from` on.
    pub fn zero(&mut self, from: usize, memory: &mut Memory) {
        for cell in self.cells.values().flatten() {
            let mut bytes = memory.bytes(*cell).to_vec();
            bytes[from..].fill(0);
            memory.fill(*cell, &bytes);
        }
    }

    /// `bpf_get_stackid`: the id of a stack, which is added if it is new.
    pub fn stack_id(&mut self, frames: &[u64]) -> i64 {
        let limit = (self.def.value_size / 8) as usize;
        let kept = &frames[..frames.len().min(limit)];
        if kept.is_empty() {
            return -errno::EFAULT;
        }
        let id = self.stacks.iter().position(|s| s == kept).unwrap_or_else(|| {
            self.stacks.push(kept.to_vec());
            self.stacks.len() - 1
        });
        id as i64
    }

    /// Bytes that a record occupies in a ring buffer: a header of 8 bytes, and padding to 8.
    pub fn ring_space(size: u64) -> u64 {
        8 + size.next_multiple_of(8)
    }
}
