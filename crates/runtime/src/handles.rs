//! Maps and programs of a session: in the kernel, or in memory that the tracer shares with the traced processes.

use crate::kernel::sys;
use crate::shared::{SharedMap, SharedProgram};
use libbpf_sys as bpf;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A map; keys and values have the sizes that it was created with. The value of a per-CPU map has a cell per possible CPU.
#[derive(Debug)]
pub enum MapHandle {
    /// A BPF map.
    Kernel(OwnedFd),
    /// A map in the memory of the session.
    Process(SharedMap),
}

impl MapHandle {
    /// The descriptor of a map in the kernel.
    pub fn fd(&self) -> Option<&OwnedFd> {
        match self {
            MapHandle::Kernel(fd) => Some(fd),
            MapHandle::Process(_) => None,
        }
    }

    /// Another handle of the same map.
    ///
    /// # Errors
    /// EMFILE
    pub fn try_clone(&self) -> io::Result<MapHandle> {
        Ok(match self {
            MapHandle::Kernel(fd) => MapHandle::Kernel(fd.try_clone()?),
            MapHandle::Process(map) => MapHandle::Process(map.clone()),
        })
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// ENOENT: there is no such key.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        match self {
            MapHandle::Kernel(fd) => lookup(fd, key, value),
            MapHandle::Process(map) => map.lookup(key, value),
        }
    }

    /// Reads the value of a key, and deletes the key.
    ///
    /// # Errors
    /// ENOENT: there is no such key. ENOTSUPP, EINVAL: the kernel cannot do it in one step.
    pub fn lookup_and_delete(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        match self {
            MapHandle::Kernel(fd) => {
                let (key, value) = (key.as_ptr().cast(), value.as_mut_ptr().cast());
                // SAFETY: as in `lookup`.
                sys::check_libbpf(unsafe { bpf::bpf_map_lookup_and_delete_elem(fd.as_raw_fd(), key, value) })
                    .map(drop)
            }
            MapHandle::Process(map) => map.lookup(key, value).and_then(|()| map.delete(key)),
        }
    }

    /// Writes the value of a key.
    ///
    /// # Errors
    /// E2BIG: the map is full.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match self {
            MapHandle::Kernel(fd) => update(fd, key, value),
            MapHandle::Process(map) => map.update(key, value),
        }
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// ENOENT: there is no such key.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        match self {
            MapHandle::Kernel(fd) => delete(fd, key),
            MapHandle::Process(map) => map.delete(key),
        }
    }

    /// Checks what traced processes can have damaged.
    pub fn check(&self) {
        if let MapHandle::Process(map) = self {
            map.check();
        }
    }

    /// All keys, which may change during the call.
    ///
    /// # Errors
    /// EPERM
    pub fn keys(&self, key_size: usize) -> io::Result<Vec<Vec<u8>>> {
        let fd = match self {
            MapHandle::Kernel(fd) => fd,
            MapHandle::Process(map) => return Ok(map.keys()),
        };
        let mut keys: Vec<Vec<u8>> = Vec::new();
        // A key that was deleted meanwhile is followed by the first one.
        while let Some(key) = next_key(fd, keys.last().map(Vec::as_slice), key_size)? {
            keys.push(key);
        }
        Ok(keys)
    }

    /// Removes all keys of a hash map.
    ///
    /// # Errors
    /// EPERM
    pub fn delete_all(&self, key_size: usize) -> io::Result<()> {
        for key in self.keys(key_size)? {
            ignore_missing(self.delete(&key))?;
        }
        Ok(())
    }
}

/// A map of a session.
#[derive(Debug)]
pub(crate) struct LoadedMap {
    /// The map.
    pub handle: MapHandle,
    /// Largest number of keys; for a ring buffer, size in bytes.
    pub max_entries: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
}

/// A program, where it runs.
#[derive(Debug)]
pub enum ProgramHandle {
    /// A BPF program.
    Kernel(OwnedFd),
    /// Code in the memory of the session.
    Process(SharedProgram),
}

/// A loaded program.
#[derive(Debug)]
pub struct LoadedProgram {
    /// The program.
    pub handle: ProgramHandle,
    /// `BPF_TRACE_UPROBE_MULTI`, `_SESSION`, or 0; from the program's section.
    pub attach_type: bpf::bpf_attach_type,
}

impl LoadedProgram {
    /// See [`ProgramHandle::fd`].
    pub fn fd(&self) -> io::Result<&OwnedFd> {
        self.handle.fd()
    }
}

impl ProgramHandle {
    /// Another handle of the same program.
    ///
    /// # Errors
    /// EMFILE
    pub fn try_clone(&self) -> io::Result<ProgramHandle> {
        Ok(match self {
            ProgramHandle::Kernel(fd) => ProgramHandle::Kernel(fd.try_clone()?),
            ProgramHandle::Process(program) => ProgramHandle::Process(program.clone()),
        })
    }

    /// The descriptor of a BPF program.
    ///
    /// # Errors
    /// EBADF: it does not run in the kernel.
    pub fn fd(&self) -> io::Result<&OwnedFd> {
        match self {
            ProgramHandle::Kernel(fd) => Ok(fd),
            ProgramHandle::Process(_) => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }
}

/// A program, or the kernel's reason why no program can be at its function.
pub(crate) type LoadResult = Result<LoadedProgram, String>;

/// Programs and maps of a loaded object.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Programs in the order of the manifest.
    pub programs: Vec<LoadResult>,
    /// Maps by their names in the object.
    pub maps: HashMap<String, LoadedMap>,
}

/// Makes a missing key no error.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) })
}

/// Reads the value of a key of a BPF map.
pub(crate) fn lookup(fd: &OwnedFd, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    // SAFETY: both buffers have the sizes of the map; all callers ensure that.
    let result =
        unsafe { bpf::bpf_map_lookup_elem(fd.as_raw_fd(), key.as_ptr().cast(), value.as_mut_ptr().cast()) };
    sys::check_libbpf(result).map(drop)
}

/// Writes the value of a key of a BPF map.
pub(crate) fn update(fd: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: as in `lookup`.
    let result =
        unsafe { bpf::bpf_map_update_elem(fd.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), 0) };
    sys::check_libbpf(result).map(drop)
}

/// Writes values of keys of a BPF map, which both have four bytes.
///
/// # Errors
/// ENOTSUPP, EINVAL: the kernel has no such call for this map.
pub(crate) fn update_batch(fd: &OwnedFd, keys: &[u32], values: &[u32]) -> io::Result<()> {
    assert_eq!(keys.len(), values.len(), "as many keys as values");
    let mut count = keys.len() as u32;
    // SAFETY: as many keys and values of the map's sizes as `count` says, and no options.
    let result = unsafe {
        bpf::bpf_map_update_batch(
            fd.as_raw_fd(),
            keys.as_ptr().cast(),
            values.as_ptr().cast(),
            &raw mut count,
            std::ptr::null(),
        )
    };
    sys::check_libbpf(result).map(drop)
}

/// Deletes a key of a BPF map.
pub(crate) fn delete(fd: &OwnedFd, key: &[u8]) -> io::Result<()> {
    // SAFETY: as in `lookup`.
    sys::check_libbpf(unsafe { bpf::bpf_map_delete_elem(fd.as_raw_fd(), key.as_ptr().cast()) }).map(drop)
}

/// The key after a key, or the first one.
pub(crate) fn next_key(fd: &OwnedFd, key: Option<&[u8]>, size: usize) -> io::Result<Option<Vec<u8>>> {
    let mut next = vec![0; size];
    let from = key.map_or(std::ptr::null(), <[u8]>::as_ptr);
    // SAFETY: as in `lookup`.
    let result = unsafe { bpf::bpf_map_get_next_key(fd.as_raw_fd(), from.cast(), next.as_mut_ptr().cast()) };
    match sys::check_libbpf(result) {
        Ok(_) => Ok(Some(next)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
