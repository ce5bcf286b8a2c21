//! Identity of files for uprobes: whether two paths lead to one probed inode.
//!
//! The kernel registers a uprobe on the *real* inode. On overlayfs that is the inode of the layer: two containers of one image have
//! different device numbers for a library but share the inode below, and probing both would count each call twice. `stat` on an
//! overlay returns size and times of the layer's inode, and the inode number as well (its low half, where several file systems are
//! merged). These identify the file. A file that was copied up into a container has its own times.

use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `OVERLAYFS_SUPER_MAGIC`
const OVERLAYFS: i64 = 0x794c_7630;

/// Identity of a file, which distinguishes it from other files.
#[derive(Copy, Clone, Debug)]
pub struct Identity {
    /// Device as `stat` shows it.
    pub device: u64,
    /// Inode as `stat` shows it.
    pub inode: u64,
    on_overlay: bool,
    /// Size in bytes; modification, change and birth time.
    content: Content,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Content {
    size: u64,
    times: [(i64, u32); 3],
}

impl Identity {
    /// Returns the identity of an open file.
    pub fn of_file(file: &File) -> io::Result<Identity> {
        let stat = statx(file)?;
        let time = |t: rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
        Ok(Identity {
            device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            on_overlay: file_system(file)? == OVERLAYFS,
            content: Content {
                size: stat.stx_size,
                times: [time(stat.stx_mtime), time(stat.stx_ctime), time(stat.stx_btime)],
            },
        })
    }

    /// Returns the identity of the file at a path. The file is not read and may be of any kind.
    pub fn of(path: &Path) -> io::Result<Identity> {
        Identity::of_file(&OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?)
    }

    /// Creation time, if the file system records it.
    fn born(&self) -> (i64, u32) {
        self.content.times[2]
    }

    /// Whether a uprobe on one file is also a uprobe on the other.
    pub fn is_same_file(&self, other: &Identity) -> bool {
        if (self.device, self.inode) == (other.device, other.inode) {
            // The inode number of a deleted file is reused.
            return self.born() == other.born();
        }
        self.may_share_layer(other) && self.content == other.content
    }

    /// Whether one file may be a view of the other through an overlay. Their times decide, if both are read at
    /// once: a hard link to the layer's file, for example, changes the times.
    pub(crate) fn may_share_layer(&self, other: &Identity) -> bool {
        // If overlayfs combines layers of several file systems, only the low half of an inode number is the
        // layer's.
        let same_number = self.inode as u32 == other.inode as u32;
        (self.on_overlay || other.on_overlay) && same_number
    }

    /// Whether the file may be mapped with the device and inode that the kernel shows for a mapping. There,
    /// overlays and btrfs have other devices than in `stat`, with a major number of 0.
    pub fn may_be(&self, device: u64, inode: u64) -> bool {
        let is_ambiguous = |device: u64| libc::major(device) == 0;
        let same_device = self.device == device || is_ambiguous(self.device) || is_ambiguous(device);
        same_device && self.inode as u32 == inode as u32
    }
}

fn statx(file: &File) -> io::Result<Statx> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, mask)?)
}

/// Magic number of the file system of a file.
fn file_system(file: &File) -> io::Result<i64> {
    Ok(rustix::fs::fstatfs(file)?.f_type)
}

impl Identity {
    /// Whether this is the identity of the same file before it was overwritten.
    pub fn is_older_content_of(&self, now: &Identity) -> bool {
        let content = |identity: &Identity| (identity.content.size, identity.content.times[0]);
        (self.device, self.inode) == (now.device, now.inode) && content(self) != content(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_link_is_the_same_file_and_a_copy_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let (a, link, copy) = (dir.path().join("a"), dir.path().join("link"), dir.path().join("copy"));
        std::fs::write(&a, "x").expect("written");
        std::fs::hard_link(&a, &link).expect("linked");
        std::fs::copy(&a, &copy).expect("copied");
        let identity = |path: &Path| Identity::of(path).expect("stat");
        assert!(identity(&a).is_same_file(&identity(&link)));
        assert!(!identity(&a).is_same_file(&identity(&copy)));
        assert_eq!(
            Identity::of(&dir.path().join("none")).expect_err("missing").kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn an_inode_number_that_is_given_again_is_another_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("library");
        std::fs::write(&path, "x").expect("written");
        let before = Identity::of(&path).expect("stat");
        let again =
            Identity { content: Content { times: [(0, 0), (0, 0), (1, 0)], ..before.content }, ..before };
        assert!(before.is_same_file(&before) && !before.is_same_file(&again));
    }

    #[test]
    fn one_number_on_two_devices_is_two_files_unless_devices_are_made_up() {
        let file = Identity::of(Path::new("/")).expect("stat");
        let on = |major, inode| Identity { device: libc::makedev(major, 1), inode, ..file };
        assert!(on(8, 5).may_be(libc::makedev(8, 1), 5));
        assert!(!on(8, 5).may_be(libc::makedev(9, 1), 5) && !on(8, 5).may_be(libc::makedev(8, 1), 6));
        assert!(on(0, 5).may_be(libc::makedev(9, 1), 5 | 1 << 40));
    }
}
