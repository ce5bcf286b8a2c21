//! Data of stack walks in programs: unwind tables, and the address ranges of processes that the tables cover. These are maps of the
//! kernel, or memory that the traced processes share with the tracer.
//!
//! Not here: contents of a table (`wire::unwind`), choice of files and processes (`src/run/unwinder.rs`).

use crate::handles::{self, LoadedMap, MapHandle};
use crate::kernel::sys;
use crate::shared::{SessionMemory, UnwindMemory};
use libbpf_sys as bpf;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use wire::{python, unwind};
use zerocopy::IntoBytes;

/// `BPF_F_INNER_MAP`: tables may have another number of chunks than the template.
const BPF_F_INNER_MAP: u32 = 1 << 12;

/// Most tables that are put into the array at once: each has a descriptor until then.
const AT_ONCE: usize = 256;

/// Largest number of processes that are removed per call.
const UNKNOWN_LIMIT: usize = 1 << 10;

/// Maps that programs read when they walk stacks.
#[derive(Debug)]
pub struct UnwindMaps {
    place: Place,
    used: u32,
    /// Processes with an interpreter of Python; `None` if programs do not look for its frames.
    pythons: Option<MapHandle>,
}

#[derive(Debug)]
enum Place {
    Kernel(KernelMaps),
    Process { tables: Arc<UnwindMemory>, session: Arc<SessionMemory> },
}

#[derive(Debug)]
struct KernelMaps {
    tables: OwnedFd,
    mappings: OwnedFd,
    unknown: OwnedFd,
}

impl UnwindMaps {
    /// Maps of the kernel.
    pub(crate) fn in_kernel(tables: OwnedFd, mappings: OwnedFd, unknown: OwnedFd) -> UnwindMaps {
        UnwindMaps { place: Place::Kernel(KernelMaps { tables, mappings, unknown }), used: 1, pythons: None }
    }

    /// Memory of a session.
    pub(crate) fn in_process(tables: Arc<UnwindMemory>, session: Arc<SessionMemory>) -> UnwindMaps {
        UnwindMaps { place: Place::Process { tables, session }, used: 1, pythons: None }
    }

    pub(crate) fn with_pythons(self, pythons: Option<MapHandle>) -> UnwindMaps {
        UnwindMaps { pythons, ..self }
    }

    /// Whether programs look for frames of Python.
    pub fn walk_python(&self) -> bool {
        self.pythons.is_some()
    }

    /// Tells programs where the interpreter of a process has its frames.
    ///
    /// # Errors
    /// E2BIG: too many processes.
    pub fn set_python(&self, tgid: u32, layout: &python::Layout) -> io::Result<()> {
        let Some(pythons) = &self.pythons else { return Ok(()) };
        let value: Vec<u8> = layout.iter().flat_map(|word| word.to_le_bytes()).collect();
        pythons.update(&tgid.to_le_bytes(), &value)
    }

    /// Tells programs that a process has no interpreter.
    pub fn remove_python(&self, tgid: u32) {
        if let Some(pythons) = &self.pythons {
            // Fails if it had none.
            let _ = pythons.delete(&tgid.to_le_bytes());
        }
    }

    /// Reserves the number of a table, which is filled later. `None` if there is no room.
    pub fn reserve(&mut self) -> Option<u32> {
        let table = self.used;
        (table < unwind::MAX_TABLES).then(|| {
            self.used += 1;
            table
        })
    }

    /// Fills tables, which are given by their numbers and chunks; returns the size of each in bytes, or an error of bpf(2) such as ENOMEM. Linux 6.8
    /// and later waits some milliseconds once for many, until no program runs that may use what was there before.
    pub fn fill(&self, filled: &[(u32, &[Vec<u64>])]) -> Vec<io::Result<usize>> {
        match &self.place {
            Place::Kernel(maps) => filled.chunks(AT_ONCE).flat_map(|some| maps.fill(some)).collect(),
            Place::Process { tables, .. } => {
                filled.iter().map(|(table, chunks)| tables.fill(*table, chunks)).collect()
            }
        }
    }

    /// Records that a table covers addresses `start..end` of a process, which are `bias` above those in the file.
    ///
    /// # Errors
    /// The errors of bpf(2), such as too many mappings.
    pub fn map(&self, tgid: u32, start: u64, end: u64, table: u32, bias: u64) -> io::Result<()> {
        match &self.place {
            Place::Kernel(maps) => maps.map(tgid, start, end, table, bias),
            Place::Process { tables, .. } => tables.map(tgid, start, end, table, bias),
        }
    }

    /// Removes addresses of a process.
    pub fn unmap(&self, tgid: u32, start: u64, end: u64) {
        match &self.place {
            Place::Kernel(maps) => maps.unmap(tgid, start, end),
            Place::Process { tables, .. } => tables.unmap(tgid, start, end),
        }
    }

    /// Processes in whose stacks programs found an unknown mapping since the last call.
    ///
    /// # Errors
    /// The errors of bpf(2).
    pub fn take_unknown(&self) -> io::Result<Vec<u32>> {
        let mut found = match &self.place {
            Place::Kernel(maps) => maps.take_unknown()?,
            Place::Process { session, .. } => session.take_unknown(),
        };
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

impl KernelMaps {
    fn fill(&self, filled: &[(u32, &[Vec<u64>])]) -> Vec<io::Result<usize>> {
        let made: Vec<io::Result<OwnedFd>> = filled.iter().map(|(_, chunks)| table_of(chunks)).collect();
        let numbers = |((table, _), made): (&(u32, _), &io::Result<OwnedFd>)| {
            Some((*table, made.as_ref().ok()?.as_raw_fd() as u32))
        };
        let (keys, values): (Vec<u32>, Vec<u32>) = filled.iter().zip(&made).filter_map(numbers).unzip();
        let mut put = handles::update_batch(&self.tables, &keys, &values);
        if put.is_err() {
            // Linux before 5.19.
            let mut pairs = keys.iter().zip(&values);
            put = pairs
                .try_for_each(|(key, value)| handles::update(&self.tables, key.as_bytes(), value.as_bytes()));
        }
        let code = put.err().map(|error| error.raw_os_error().unwrap_or(libc::EIO));
        let result = |(made, (_, chunks)): (io::Result<OwnedFd>, &(u32, &[Vec<u64>]))| match (made, code) {
            (Err(error), _) => Err(error),
            (Ok(_), Some(code)) => Err(io::Error::from_raw_os_error(code)),
            (Ok(_), None) => Ok(chunks.len() * unwind::CHUNK_BYTES as usize),
        };
        made.into_iter().zip(filled).map(result).collect()
    }

    fn map(&self, tgid: u32, start: u64, end: u64, table: u32, bias: u64) -> io::Result<()> {
        let mut value = [0; unwind::MAPPING_VALUE as usize];
        value[..4].copy_from_slice(&table.to_le_bytes());
        value[8..].copy_from_slice(&bias.to_le_bytes());
        blocks(start, end)
            .try_for_each(|(start, bits)| handles::update(&self.mappings, &key(tgid, start, bits), &value))
    }

    fn unmap(&self, tgid: u32, start: u64, end: u64) {
        for (start, bits) in blocks(start, end) {
            // Fails if another mapping has replaced it.
            let _ = handles::delete(&self.mappings, &key(tgid, start, bits));
        }
    }

    fn take_unknown(&self) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        let mut key = [0u8; 4];
        // Limited, because programs may add processes as fast as they are removed.
        while found.len() < UNKNOWN_LIMIT {
            // SAFETY: no previous key, and 4 bytes for the next key.
            let got = unsafe {
                bpf::bpf_map_get_next_key(self.unknown.as_raw_fd(), std::ptr::null(), key.as_mut_ptr().cast())
            };
            if got != 0 {
                break;
            }
            handles::delete(&self.unknown, &key)?;
            found.push(u32::from_le_bytes(key));
        }
        Ok(found)
    }
}

/// Creates the array of tables, which libbpf cannot create without a template.
pub(crate) fn create_tables() -> io::Result<LoadedMap> {
    let template = create_table(1)?;
    let options = bpf::bpf_map_create_opts {
        sz: size_of::<bpf::bpf_map_create_opts>() as u64,
        inner_map_fd: template.as_raw_fd() as u32,
        ..Default::default()
    };
    // SAFETY: numbers, a C string, and options that contain their size.
    let fd = sys::owned_libbpf(unsafe {
        bpf::bpf_map_create(
            bpf::BPF_MAP_TYPE_ARRAY_OF_MAPS,
            c"ct_tables".as_ptr(),
            4,
            4,
            unwind::MAX_TABLES,
            &options,
        )
    })?;
    Ok(LoadedMap { handle: MapHandle::Kernel(fd), max_entries: unwind::MAX_TABLES, value_size: 4 })
}

/// A new table with these chunks.
fn table_of(chunks: &[Vec<u64>]) -> io::Result<OwnedFd> {
    let table = create_table(chunks.len() as u32)?;
    for (index, chunk) in (0u32..).zip(chunks) {
        handles::update(&table, &index.to_le_bytes(), chunk.as_bytes())?;
    }
    Ok(table)
}

fn create_table(chunks: u32) -> io::Result<OwnedFd> {
    let options = bpf::bpf_map_create_opts {
        sz: size_of::<bpf::bpf_map_create_opts>() as u64,
        map_flags: BPF_F_INNER_MAP,
        ..Default::default()
    };
    // SAFETY: as above.
    sys::owned_libbpf(unsafe {
        bpf::bpf_map_create(
            bpf::BPF_MAP_TYPE_ARRAY,
            c"ct_table".as_ptr(),
            4,
            unwind::CHUNK_BYTES,
            chunks,
            &options,
        )
    })
}

fn key(tgid: u32, start: u64, bits: u32) -> [u8; unwind::MAPPING_KEY as usize] {
    let mut key = [0; unwind::MAPPING_KEY as usize];
    key[..4].copy_from_slice(&(unwind::KEY_HEAD_BITS + bits).to_le_bytes());
    key[4..8].copy_from_slice(&tgid.to_le_bytes());
    key[8..].copy_from_slice(&start.to_be_bytes());
    key
}

/// Splits a range into aligned blocks whose sizes are powers of two: start, and length of the address prefix in bits.
fn blocks(mut start: u64, end: u64) -> impl Iterator<Item = (u64, u32)> {
    std::iter::from_fn(move || {
        let left = end.checked_sub(start).filter(|left| *left > 0)?;
        let size = left.ilog2().min(start.trailing_zeros());
        let block = (start, u64::BITS - size);
        start = start.checked_add(1 << size)?;
        Some(block)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_into_aligned_blocks() {
        let all: Vec<(u64, u32)> = blocks(0x3000, 0x9000).collect();
        assert_eq!(all, [(0x3000, 52), (0x4000, 50), (0x8000, 52)]);
        assert_eq!(blocks(0x5000, 0x5000).count(), 0);
        assert_eq!(blocks(5, 4).count(), 0);
    }

    #[test]
    fn the_address_in_a_key_is_big_endian() {
        let key = key(7, 0x7f00_0000_1000, 52);
        assert_eq!(key[..8], [84, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(key[8..], [0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
    }
}
