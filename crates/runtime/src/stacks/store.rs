//! Keeps the addresses of the stacks that programs store, since a full stack map reuses ids, and other values by number: names of
//! GPU kernels, UUIDs of devices.

use crate::handles::MapHandle;
use std::collections::HashMap;
use std::sync::Mutex;
use wire::manifest::StackMap;
use wire::{python, unwind};

/// Stacks of a session, by stack map and id. Shared between the session and [`report::Names`].
#[derive(Debug, Default)]
pub struct StackStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Stack maps with their declarations.
    maps: Vec<(MapHandle, StackMap)>,
    stacks: HashMap<(u32, u32), Vec<u64>>,
    /// The map of names of GPU kernels, and the size of a name in bytes.
    kernels: Option<(MapHandle, usize)>,
    kernel_names: HashMap<u64, Vec<u8>>,
    /// The map of GPU kernels that are identified by a host function.
    places: Option<MapHandle>,
    /// The map of UUIDs of devices.
    uuids: Option<MapHandle>,
    /// The maps of code objects of Python, and of lines.
    codes: Option<[MapHandle; 2]>,
}

impl StackStore {
    /// Adds the stack map with the next index.
    pub(crate) fn add(&self, map: MapHandle, declared: StackMap) {
        self.lock().maps.push((map, declared));
    }

    /// Number of stack maps.
    pub(crate) fn len(&self) -> usize {
        self.lock().maps.len()
    }

    /// Addresses of a stack, innermost first; empty if it does not exist.
    pub fn addresses(&self, map: u32, id: u32) -> Vec<u64> {
        let mut inner = self.lock();
        if let Some(addresses) = inner.stacks.get(&(map, id)) {
            return addresses.clone();
        }
        let read = inner.maps.get(map as usize).map(|(fd, declared)| read_stack(fd, declared, id));
        let addresses = read.unwrap_or_default();
        if !addresses.is_empty() {
            inner.stacks.insert((map, id), addresses.clone());
        }
        addresses
    }

    /// Sets the map from numbers of GPU kernels to names of `bytes` bytes.
    pub(crate) fn add_kernels(&self, map: MapHandle, bytes: usize) {
        self.lock().kernels = Some((map, bytes));
    }

    /// The name of a GPU kernel by its number, from the driver.
    pub fn kernel_name(&self, id: u64) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        if let Some(name) = inner.kernel_names.get(&id) {
            return Some(name.clone());
        }
        let (map, bytes) = inner.kernels.as_ref()?;
        let name = read_text(map, *bytes, id)?;
        inner.kernel_names.insert(id, name.clone());
        Some(name)
    }

    /// Sets the map from numbers of GPU kernels to process and address of a host function.
    pub(crate) fn add_places(&self, map: MapHandle) {
        self.lock().places = Some(map);
    }

    /// Process and address of the host function of a GPU kernel, by its number.
    pub fn kernel_place(&self, id: u64) -> Option<(u32, u64)> {
        let inner = self.lock();
        let mut place = [0; 16];
        let exists = read_value(inner.places.as_ref()?, id, &mut place);
        let (pid, address) = place.split_at(8);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        exists.then(|| (word(pid) as u32, word(address)))
    }

    /// Sets the maps of code objects of Python, and of lines.
    pub(crate) fn add_codes(&self, codes: MapHandle, lines: MapHandle) {
        self.lock().codes = Some([codes, lines]);
    }

    /// Removes what programs have copied of code objects of some processes: process, address and copy of each.
    pub fn take_codes(&self, of: impl Fn(u32) -> bool) -> Vec<((u32, u64), Vec<u8>)> {
        let inner = self.lock();
        let Some([codes, lines]) = &inner.codes else { return Vec::new() };
        let keys = |map: &MapHandle| map.keys(python::CODE_KEY as usize).unwrap_or_default();
        let process = |key: &[u8]| key.first_chunk().map(|pid| u32::from_le_bytes(*pid));
        for key in keys(lines).iter().filter(|key| process(key).is_some_and(&of)) {
            let _ = lines.delete(key);
        }
        let taken = keys(codes).into_iter().filter_map(|key| {
            let (pid, address) = (process(&key)?, u64::from_le_bytes(*key.last_chunk()?));
            of(pid).then_some(())?;
            let mut copy = vec![0; python::COPY_BYTES as usize];
            codes.lookup(&key, &mut copy).ok()?;
            let _ = codes.delete(&key);
            Some(((pid, address), copy))
        });
        taken.collect()
    }

    /// The copy of a code object of Python that a program has made.
    pub fn code_copy(&self, tgid: u32, code: u64) -> Option<Vec<u8>> {
        let mut key = [0; python::CODE_KEY as usize];
        key[..4].copy_from_slice(&tgid.to_le_bytes());
        key[8..].copy_from_slice(&code.to_le_bytes());
        let mut copy = vec![0; python::COPY_BYTES as usize];
        let inner = self.lock();
        inner.codes.as_ref()?[0].lookup(&key, &mut copy).is_ok().then_some(copy)
    }

    /// Sets the map from numbers of devices to UUIDs.
    pub(crate) fn add_uuids(&self, map: MapHandle) {
        self.lock().uuids = Some(map);
    }

    /// The UUID of a device by its number.
    pub fn device_uuid(&self, id: u64) -> Option<[u8; 16]> {
        let inner = self.lock();
        let mut uuid = [0; 16];
        read_value(inner.uuids.as_ref()?, id, &mut uuid).then_some(uuid)
    }

    /// Ignores poisoning: after a panic at most the last entry is missing.
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Reads a value of a map with keys of 8 bytes; `value` has the value size of the map in whole words.
fn read_value(map: &MapHandle, id: u64, value: &mut [u8]) -> bool {
    map.lookup(&id.to_ne_bytes(), value).is_ok()
}

fn read_text(map: &MapHandle, bytes: usize, id: u64) -> Option<Vec<u8>> {
    let mut text = vec![0u8; bytes.next_multiple_of(8)];
    let exists = read_value(map, id, &mut text);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(bytes);
    text.truncate(end);
    exists.then_some(text)
}

fn read_stack(map: &MapHandle, declared: &StackMap, id: u32) -> Vec<u64> {
    let (head, words) = match declared.walked {
        true => (unwind::ADDRESSES_AT as usize / 8, unwind::stack_words(declared.limit)),
        false => (0, declared.limit),
    };
    let mut bytes = vec![0; 8 * (head + words as usize)];
    if map.lookup(&id.to_ne_bytes(), &mut bytes).is_err() {
        return Vec::new();
    }
    let mut addresses = crate::read::maps::words(&bytes);
    addresses.drain(..head);
    let end = addresses.iter().position(|address| *address == 0).unwrap_or(addresses.len());
    addresses.truncate(end);
    addresses
}
