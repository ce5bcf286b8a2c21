//! Ids of the files that can be probed.

/// A file that can be probed, as an index into the catalog's own list.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Pseudo file of the kernel and its modules: their BTF types are presented like those of a file, and the offsets of their
/// functions are addresses.
pub const KERNEL: FileId = FileId(wire::manifest::KERNEL_FILE);
