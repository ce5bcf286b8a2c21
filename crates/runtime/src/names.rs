//! Addresses of the stacks that programs stored, read once and kept: a stack map gives an id away again when it is full.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use wire::manifest::StackMap;
use wire::unwind;

/// Stacks of a session, by stack map and id. Shared between the session and whoever prints.
#[derive(Debug, Default)]
pub struct StackStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Descriptor of each stack map, and what it is.
    maps: Vec<(OwnedFd, StackMap)>,
    seen: HashMap<(u32, u32), Vec<u64>>,
}

impl StackStore {
    /// Adds the stack map with the next index.
    pub(crate) fn add(&self, map: OwnedFd, declared: StackMap) {
        self.lock().maps.push((map, declared));
    }

    /// Number of stack maps known.
    pub(crate) fn len(&self) -> usize {
        self.lock().maps.len()
    }

    /// Addresses of a stack, innermost first; empty if it is not there.
    pub fn addresses(&self, map: u32, id: u32) -> Vec<u64> {
        let mut inner = self.lock();
        if let Some(addresses) = inner.seen.get(&(map, id)) {
            return addresses.clone();
        }
        let read = inner.maps.get(map as usize).map(|(fd, declared)| read_stack(fd, declared, id));
        let addresses = read.unwrap_or_default();
        if !addresses.is_empty() {
            inner.seen.insert((map, id), addresses.clone());
        }
        addresses
    }

    /// A panic while it was held leaves a cache, at worst without the last entry.
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn read_stack(map: &OwnedFd, declared: &StackMap, id: u32) -> Vec<u64> {
    let head = if declared.walked { unwind::ADDRESSES_AT as usize / 8 } else { 0 };
    let mut addresses = vec![0u64; head + declared.limit as usize];
    // SAFETY: the key is 4 bytes and the value so many words, as the map was made.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const id).cast(),
            addresses.as_mut_ptr().cast(),
        )
    };
    if result < 0 {
        return Vec::new();
    }
    addresses.drain(..head);
    let end = addresses.iter().position(|address| *address == 0).unwrap_or(addresses.len());
    addresses.truncate(end);
    addresses
}
