//! Whether a file can be a target, and by which path.

use crate::elf::ElfFile;
use crate::identity::Identity;
use crate::search::folders::View;
use crate::search::{self, TargetName};
use linux::proc::{Mapping, MappingName};
use std::path::{Path, PathBuf};

/// Whether the file matches: by its path, its soname, or as a program with the CUDA runtime linked in.
pub(crate) fn accepts(target: &TargetName, path: &Path, elf: &ElfFile) -> bool {
    !search::is_stub(path)
        && (target.accepts(path, elf) || (target.is_runtime() && search::has_static_runtime(path, elf)))
}

/// The path of a mapped file for this process: the path that the process sees, if that is still the same file,
/// otherwise its mapping.
pub(crate) fn reachable(view: &View, pid: u32, mapping: &Mapping) -> Option<PathBuf> {
    let link = mapping.link(pid);
    let mapped = Identity::of(&link).ok();
    if let MappingName::File(path) = &mapping.name {
        let by_path = view.outside(path);
        let is_same = Identity::of(&by_path).is_ok_and(|found| match &mapped {
            Some(mapped) => found.is_same_file(mapped),
            None => found.inode == mapping.inode,
        });
        if is_same {
            return Some(by_path);
        }
    }
    mapped.map(|_| link)
}

/// The message that a program with a stripped runtime has no functions to probe, and the remedy.
pub(crate) fn hidden_runtime(program: &Path) -> String {
    let path = program.display();
    format!(
        "`{path}` has the CUDA runtime linked in and is stripped, so its functions have no names; probe `libcuda`, which every runtime call that does something ends in"
    )
}
