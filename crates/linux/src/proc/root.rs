//! The files that a process sees.

use super::ns::{namespace, own_namespace};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The prefix that makes a path of the process valid in this process: empty if both see the same files.
pub fn root_prefix(pid: u32) -> PathBuf {
    let same_mounts = namespace(pid, "mnt").is_some_and(|its| own_namespace("mnt") == Some(its));
    let root = fs::metadata(format!("/proc/{pid}/root/")).ok().map(|m| (m.dev(), m.ino()));
    let own_root = fs::metadata("/").ok().map(|m| (m.dev(), m.ino()));
    if root.is_none() || (same_mounts && root == own_root) {
        PathBuf::new()
    } else {
        format!("/proc/{pid}/root").into()
    }
}

/// A path of the process as this process opens it.
pub fn open_path(pid: u32, path: &Path) -> PathBuf {
    let mut open = root_prefix(pid).into_os_string();
    open.push(path);
    open.into()
}
