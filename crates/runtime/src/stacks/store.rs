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
    /// The map with the names of kernels, and bytes of a name.
    kernels: Option<(OwnedFd, usize)>,
    kernels_seen: HashMap<u64, Vec<u8>>,
    /// The map with the places of kernels that are known by a function of the host.
    places: Option<OwnedFd>,
    /// The map with the UUIDs of devices.
    uuids: Option<OwnedFd>,
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

    /// Makes the names of kernels known: a map from their numbers to text of so many bytes.
    pub(crate) fn add_kernels(&self, map: OwnedFd, bytes: usize) {
        self.lock().kernels = Some((map, bytes));
    }

    /// The name of a kernel by its number, as the driver knows it.
    pub fn kernel_name(&self, id: u64) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        if let Some(name) = inner.kernels_seen.get(&id) {
            return Some(name.clone());
        }
        let (map, bytes) = inner.kernels.as_ref()?;
        let name = read_text(map, *bytes, id)?;
        inner.kernels_seen.insert(id, name.clone());
        Some(name)
    }

    /// Makes the places of functions of the host known: a map from their numbers to process and address.
    pub(crate) fn add_places(&self, map: OwnedFd) {
        self.lock().places = Some(map);
    }

    /// Process and address of the function of the host that stands for a kernel, by its number.
    pub fn kernel_place(&self, id: u64) -> Option<(u32, u64)> {
        let inner = self.lock();
        let mut place = [0; 16];
        let known = read_value(inner.places.as_ref()?, id, &mut place);
        let (pid, address) = place.split_at(8);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        known.then(|| (word(pid) as u32, word(address)))
    }

    /// Makes the UUIDs of devices known: a map from their numbers to 16 bytes.
    pub(crate) fn add_uuids(&self, map: OwnedFd) {
        self.lock().uuids = Some(map);
    }

    /// The UUID of a device by its number.
    pub fn device_uuid(&self, id: u64) -> Option<[u8; 16]> {
        let inner = self.lock();
        let mut uuid = [0; 16];
        read_value(inner.uuids.as_ref()?, id, &mut uuid).then_some(uuid)
    }

    /// A panic while it was held leaves a cache, at worst without the last entry.
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Reads the value of a map whose keys are 8 bytes; `value` is as large as the map's, in whole words.
fn read_value(map: &OwnedFd, id: u64, value: &mut [u8]) -> bool {
    // SAFETY: the key is 8 bytes and the value so many, as the map was made.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const id).cast(), value.as_mut_ptr().cast())
    };
    result >= 0
}

fn read_text(map: &OwnedFd, bytes: usize, id: u64) -> Option<Vec<u8>> {
    let mut text = vec![0u8; bytes.next_multiple_of(8)];
    let is_there = read_value(map, id, &mut text);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(bytes);
    text.truncate(end);
    is_there.then_some(text)
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
