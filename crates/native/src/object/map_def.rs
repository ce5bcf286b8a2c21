//! Definitions of BPF maps.

/// Supported `BPF_MAP_TYPE_*`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MapKind {
    Hash,
    Array,
    PerCpuHash,
    PerCpuArray,
    LruHash,
    PerCpuLruHash,
    StackTrace,
    Ring,
}

impl MapKind {
    /// The kind with the kernel's number.
    pub fn from_number(number: u32) -> Option<MapKind> {
        Some(match number {
            1 => MapKind::Hash,
            2 => MapKind::Array,
            5 => MapKind::PerCpuHash,
            6 => MapKind::PerCpuArray,
            7 => MapKind::StackTrace,
            9 => MapKind::LruHash,
            10 => MapKind::PerCpuLruHash,
            27 => MapKind::Ring,
            _ => return None,
        })
    }

    /// Whether cells exist from the start.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PerCpuArray)
    }

    /// Whether there is one cell per CPU.
    pub fn is_per_cpu(self) -> bool {
        matches!(self, MapKind::PerCpuHash | MapKind::PerCpuLruHash | MapKind::PerCpuArray)
    }

    /// Whether a new key evicts the least recently used one.
    pub fn evicts(self) -> bool {
        matches!(self, MapKind::LruHash | MapKind::PerCpuLruHash)
    }
}

/// Definition of a map in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Symbol.
    pub name: String,
    /// Kind.
    pub kind: MapKind,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Largest number of keys; for a ring buffer its size in bytes.
    pub max_entries: u32,
}
