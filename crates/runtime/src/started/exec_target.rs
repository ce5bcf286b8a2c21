//! Opens the file that a thread is about to execute. Paths are resolved as the kernel does: by the thread's root, directory and
//! descriptors, and through `#!` lines to the interpreter.
//!
//! A file that is not found is left to the kernel: the call fails there too, or the file is not probed before it runs.

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest number of nested interpreters, as in the kernel.
const SCRIPTS: usize = 5;
/// Bytes of a `#!` line that the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: usize = 256;

/// Opens the program or interpreter that a thread executes; the path is at an address in its memory, relative to a directory.
pub(super) fn open(tid: u32, directory: i32, address: u64) -> Option<File> {
    let mut file = find(tid, directory, &string_at(tid, address)?).ok()?;
    for _ in 0..SCRIPTS {
        let Some(interpreter) = interpreter(&file) else { break };
        file = find(tid, libc::AT_FDCWD, &interpreter).ok()?;
    }
    Some(file)
}

/// Reads a path from the thread's memory.
fn string_at(tid: u32, address: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{tid}/mem")).ok()?;
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    // Shorter if the mapping ends before.
    let read = memory.read_at(&mut bytes, address).ok()?;
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    Some(OsStr::from_bytes(&bytes[..end]).into())
}

fn find(tid: u32, directory: i32, path: &Path) -> io::Result<File> {
    let of_thread = PathBuf::from(format!("/proc/{tid}"));
    let base = match directory {
        libc::AT_FDCWD => of_thread.join("cwd"),
        fd => of_thread.join(format!("fd/{fd}")),
    };
    // in_root() does not follow these links, which differ by process.
    for itself in ["/proc/self", "/proc/thread-self"] {
        if let Ok(rest) = path.strip_prefix(itself) {
            return plain(&of_thread.join(rest));
        }
    }
    match path {
        // fexecve(3)
        path if path.as_os_str().is_empty() => plain(&base),
        path if path.starts_with("/proc") => plain(path),
        path if path.is_absolute() => in_root(&of_thread.join("root"), path),
        path => plain(&base.join(path)),
    }
}

/// Opens the regular file at a path.
pub(super) fn plain(path: &Path) -> io::Result<File> {
    regular(&OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?)
}

/// Opens a regular file for reading. Pipes, terminals and devices are refused: opening them has side effects, for which the
/// thread may lack the permission.
fn regular(found: &File) -> io::Result<File> {
    if !found.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens a path below a root, with symbolic links and `..` resolved within it.
fn in_root(root: &Path, path: &Path) -> io::Result<File> {
    let root = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    regular(&openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?.into())
}

/// Opens the dynamic loader of a program, which the kernel maps with it.
pub(super) fn loader(tid: u32, program: &File) -> Option<File> {
    find(tid, libc::AT_FDCWD, &loader_path(program)?).ok()
}

/// Path of the dynamic loader of a program, which it names.
fn loader_path(program: &File) -> Option<PathBuf> {
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;
    let mut header = [0; HEADER];
    program.read_exact_at(&mut header, 0).ok()?;
    header.starts_with(b"\x7fELF\x02").then_some(())?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (table, entry, entries) = (long(&header, 32), u64::from(half(54)), u64::from(half(56)));
    let mut segment = [0; SEGMENT];
    for number in 0..entries {
        program.read_exact_at(&mut segment, table.checked_add(number * entry)?).ok()?;
        if segment.starts_with(&PT_INTERP.to_le_bytes()) {
            let mut path = vec![0; long(&segment, 32).min(libc::PATH_MAX as u64) as usize];
            program.read_exact_at(&mut path, long(&segment, 8)).ok()?;
            let path = path.split(|byte| *byte == 0).next()?;
            return Some(OsStr::from_bytes(path).into());
        }
    }
    None
}

/// Whether the program that a thread executes has a dynamic loader.
pub(super) fn has_loader(tid: u32) -> bool {
    File::open(format!("/proc/{tid}/exe")).is_ok_and(|program| loader_path(&program).is_some())
}

const PT_INTERP: u32 = 3;

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// `/bin/sh` of `#!/bin/sh -e`.
fn interpreter(file: &File) -> Option<PathBuf> {
    let mut bytes = [0; FIRST_LINE];
    let read = file.read_at(&mut bytes, 0).ok()?;
    let line = bytes[..read].strip_prefix(b"#!")?.split(|byte| b"\n\0".contains(byte)).next()?;
    let word = line.trim_ascii_start().split(|byte| b" \t\r".contains(byte)).next()?;
    (!word.is_empty()).then(|| OsStr::from_bytes(word).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::MetadataExt;

    /// Inode of the file that `execveat(directory, path)` executes in this thread.
    fn executed(directory: i32, path: &str) -> Option<u64> {
        let path = CString::new(path).expect("no zero in it");
        // SAFETY: reads a number.
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        open(tid, directory, path.as_ptr() as u64).map(|file| file.metadata().expect("open").ino())
    }

    fn inode(path: &Path) -> Option<u64> {
        std::fs::metadata(path).ok().map(|metadata| metadata.ino())
    }

    #[test]
    fn paths_are_found_as_the_kernel_finds_them() {
        let shell = inode(Path::new("/bin/sh"));
        assert!(shell.is_some());
        assert_eq!(executed(libc::AT_FDCWD, "/bin/../bin/sh"), shell);
        let root = File::open("/bin").expect("a directory");
        assert_eq!(executed(root.as_raw_fd(), "sh"), shell);
        assert_eq!(executed(libc::AT_FDCWD, "/proc/self/exe"), inode(&std::env::current_exe().expect("us")));
        let program = File::open("/bin/sh").expect("a shell");
        assert_eq!(executed(program.as_raw_fd(), ""), shell);
        assert_eq!(executed(libc::AT_FDCWD, "no/such/program"), None);
        assert_eq!(executed(libc::AT_FDCWD, "/bin"), None);
    }

    #[test]
    fn pipes_are_not_opened() {
        let path = std::env::temp_dir().join(format!("executed-fifo-{}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from(0o600)).expect("a named pipe");
        // A writer waits for a reader, and takes an open of ours for one.
        let (opened, open) = std::sync::mpsc::channel();
        let pipe = path.clone();
        std::thread::spawn(move || opened.send(OpenOptions::new().write(true).open(pipe).is_ok()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(executed(libc::AT_FDCWD, path.to_str().expect("UTF-8")), None);
        let waited = open.recv_timeout(std::time::Duration::from_millis(50));
        drop(File::open(&path).expect("there is a writer"));
        std::fs::remove_file(&path).expect("just made");
        assert!(waited.is_err(), "the writer still waits");
    }

    #[test]
    fn a_program_names_its_loader() {
        let tid = std::process::id();
        let loader_of = |path| loader(tid, &File::open(path).expect("a file"));
        let shell = loader_of(Path::new("/bin/sh")).expect("a shell that is linked dynamically");
        let mapped = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
        let inode = shell.metadata().expect("open").ino();
        assert!(mapped.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string())));
        assert!(loader_of(Path::new("/proc/self/status")).is_none());
    }

    #[test]
    fn the_executed_file_of_a_script_is_its_interpreter() {
        let script = std::env::temp_dir().join(format!("executed-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\nexit\n").expect("a place for temporary files");
        let found = executed(libc::AT_FDCWD, script.to_str().expect("UTF-8"));
        std::fs::remove_file(&script).expect("just written");
        assert_eq!(found, inode(Path::new("/bin/sh")));
    }
}
