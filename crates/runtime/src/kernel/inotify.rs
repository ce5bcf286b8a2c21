//! Reports writes to files with inotify.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Number of a watched file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchedFile(i32);

/// Files that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenFiles {
    /// The files, without duplicates.
    Files(Vec<WatchedFile>),
    /// Any file may have been written: there were too many writes.
    Any,
}

/// Reports writes to files, except those through shared mappings.
#[derive(Debug)]
pub struct WriteWatch(OwnedFd);

impl WriteWatch {
    /// Creates a watch without files.
    ///
    /// # Errors
    /// The errors of inotify_init1(2).
    pub fn new() -> io::Result<WriteWatch> {
        Ok(WriteWatch(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Descriptor that is readable when a file was written.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Watches the file at a path.
    ///
    /// # Errors
    /// The errors of inotify_add_watch(2).
    pub fn add(&self, path: &Path) -> io::Result<WatchedFile> {
        Ok(WatchedFile(inotify::add_watch(&self.0, path, WatchFlags::MODIFY)?))
    }

    /// The files that were written since the last call.
    pub fn take(&self) -> WrittenFiles {
        let mut files = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                return WrittenFiles::Any;
            }
            files.push(WatchedFile(event.wd()));
        }
        files.sort_unstable();
        files.dedup();
        WrittenFiles::Files(files)
    }

    /// The descriptor, to be closed in another process: closing takes tens of milliseconds.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn a_file_that_is_written_is_reported_once() {
        let paths = ["written", "other"]
            .map(|name| std::env::temp_dir().join(format!("writes-{name}-{}", std::process::id())));
        let mut files = paths.each_ref().map(|path| File::create(path).expect("a place for temporary files"));
        let watch = WriteWatch::new().expect("inotify");
        let [watched, _] = paths.each_ref().map(|path| watch.add(path).expect("watched"));
        paths.iter().for_each(|path| std::fs::remove_file(path).expect("just made"));
        assert_eq!(watch.take(), WrittenFiles::Files(vec![]));
        for _ in 0..3 {
            files[0].write_all(b"x").expect("written");
        }
        assert_eq!(watch.take(), WrittenFiles::Files(vec![watched]));
        assert_eq!(watch.take(), WrittenFiles::Files(vec![]));
    }
}
