//! Processes in `/proc`: mappings, children, namespaces, environment.
//!
//! A process may end between any two reads; a value that cannot be read then is `None` or empty.
//! Not here: which mapped files are targets (`search`), names of addresses (`stack`).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Inode of the initial pid namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// True if the memory is executable.
    pub executable: bool,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Device as the kernel shows it here; on overlayfs and btrfs it differs from that in `stat`.
    pub device: (u32, u32),
    /// Inode; 0: no file.
    pub inode: u64,
    /// The mapped object.
    pub name: MappingName,
}

/// The object of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappingName {
    /// Plain memory.
    Anonymous,
    /// `/usr/lib/libc.so.6`
    File(PathBuf),
    /// `/tmp/libx.so (deleted)`, `/memfd:x (deleted)`: accessible only through `/proc/PID/map_files`.
    Deleted(PathBuf),
    /// `[vdso]`, `[stack]`
    Special(String),
}

impl MappingName {
    /// The path of a file, deleted or not.
    pub fn path(&self) -> Option<&Path> {
        match self {
            MappingName::File(path) | MappingName::Deleted(path) => Some(path),
            _ => None,
        }
    }
}

impl Mapping {
    /// Parses a line; `None` if it is malformed.
    pub fn parse(line: &[u8]) -> Option<Mapping> {
        let mut rest = line;
        let range = word(&mut rest)?;
        let flags = word(&mut rest)?;
        let offset = hex(word(&mut rest)?)?;
        let device = word(&mut rest)?;
        let inode = std::str::from_utf8(word(&mut rest)?).ok()?.parse().ok()?;
        let (start, end) = split_at_byte(range, b'-')?;
        let (major, minor) = split_at_byte(device, b':')?;
        Some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            executable: flags.get(2) == Some(&b'x'),
            offset,
            device: (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?),
            inode,
            name: mapping_name(rest.trim_ascii_start()),
        })
    }

    /// The link to the mapped file under `/proc/PID/map_files`; following it requires CAP_SYS_ADMIN or
    /// CAP_CHECKPOINT_RESTORE.
    pub fn link(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end))
    }
}

/// Splits at the first separator byte.
fn split_at_byte(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(separator, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Removes the next word from `rest`.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = rest.trim_ascii_start();
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    let (word, behind) = text.split_at(end);
    *rest = behind;
    (!word.is_empty()).then_some(word)
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn mapping_name(text: &[u8]) -> MappingName {
    match text.first() {
        None => MappingName::Anonymous,
        Some(b'/') => match text.strip_suffix(b" (deleted)") {
            Some(path) => MappingName::Deleted(unescape(path)),
            None => MappingName::File(unescape(text)),
        },
        Some(_) => MappingName::Special(String::from_utf8_lossy(text).into_owned()),
    }
}

/// Replaces `\012`, by which the kernel escapes a newline in a path; other characters are not escaped.
fn unescape(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"\\012") {
        path.extend_from_slice(&rest[..at]);
        path.push(b'\n');
        rest = &rest[at + 4..];
    }
    path.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(path))
}

/// All mappings of a process; empty if it has ended or may not be inspected.
pub fn mappings(pid: u32) -> Vec<Mapping> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(Mapping::parse).collect()
}

/// All processes that `/proc` shows, in ascending order.
pub fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Whether the process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    stat_fields(pid).is_some_and(|fields| !matches!(fields.state, 'Z' | 'X'))
}

/// The exit status of a zombie, whose parent has not waited for it yet.
pub fn exit_status(pid: u32) -> Option<ExitStatus> {
    stat_fields(pid).filter(|fields| fields.state == 'Z')?.exit_code.map(ExitStatus::from_raw)
}

/// Start time of a process in clock ticks since boot; `None` if it has ended, even as a zombie.
pub fn started(pid: u32) -> Option<u64> {
    let fields = stat_fields(pid)?;
    // The first thread may end before the others, and is then a zombie until they end.
    let has_ended = matches!(fields.state, 'Z' | 'X') && fields.threads <= 1;
    (!has_ended).then_some(fields.started)
}

/// Size of the memory that a process has mapped, in pages; it changes with each library that is loaded.
pub fn mapped_pages(pid: u32) -> Option<u64> {
    let sizes = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    sizes.split(' ').next()?.parse().ok()
}

/// The program that a process executes: another one after exec, and in another process that is given the number later.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// The process.
    pub pid: u32,
    started: u64,
    /// Addresses of its code and environment.
    places: [u64; 2],
}

impl Program {
    /// The program of a process that exists.
    pub fn of(pid: u32) -> Option<Program> {
        let StatFields { started, start_code, start_environment, .. } = stat_fields(pid)?;
        Some(Program { pid, started, places: [start_code, start_environment] })
    }

    /// Start time of the process, in clock ticks since boot. With the pid it identifies the process.
    pub fn started(self) -> u64 {
        self.started
    }

    /// Whether the process has memory; one that has ended and was not waited for has none.
    pub fn has_memory(self) -> bool {
        self.places[0] != 0
    }

    /// The parent process, if it executes the same program: the process was forked, and has executed no program since.
    pub fn forked_from(self) -> Option<u32> {
        let parent = stat_fields(self.pid)?.parent;
        (self.has_memory() && Program::of(parent)?.places == self.places).then_some(parent)
    }
}

/// Whether two processes have the same memory, as a child of vfork(2) has that of its parent; false if that cannot be found out.
pub fn share_memory(one: u32, other: u32) -> bool {
    const VM: libc::c_int = 1;
    // SAFETY: the system call only compares what these processes have.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, VM, 0, 0) == 0 }
}

/// Whether it is a kernel thread.
pub fn is_of_kernel(pid: u32) -> bool {
    stat_fields(pid).is_some_and(|fields| fields.flags & KERNEL_THREAD != 0)
}

/// Child processes of `pid`, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    all_pids()
        .into_iter()
        .filter(|&other| stat_fields(other).is_some_and(|fields| fields.parent == pid))
        .collect()
}

/// `pids` and all their descendants, in ascending order.
pub fn with_descendants(pids: &[u32]) -> Vec<u32> {
    if pids.is_empty() {
        return Vec::new();
    }
    let parents: Vec<(u32, u32)> =
        all_pids().into_iter().filter_map(|pid| Some((pid, stat_fields(pid)?.parent))).collect();
    let mut family = pids.to_vec();
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let young =
            parents.iter().filter(|(pid, of)| *of == parent && !family.contains(pid)).map(|(pid, _)| *pid);
        let young: Vec<u32> = young.collect();
        family.extend(young);
        next += 1;
    }
    family.sort_unstable();
    family.dedup();
    family
}

/// Whether a process is one of `roots`, or a descendant of one. Reads only its ancestors, however many processes there are.
pub fn descends_from(pid: u32, roots: &[u32]) -> bool {
    let parent = |pid: &u32| stat_fields(*pid).map(|fields| fields.parent).filter(|parent| *parent != 0);
    // Parents change while they are read; the limit is that of a chain of processes.
    std::iter::successors(Some(pid), parent).take(MOST_ANCESTORS).any(|pid| roots.contains(&pid))
}

/// Largest number of ancestors that are read.
const MOST_ANCESTORS: usize = 1000;

/// The value of a line of `/proc/PID/status`, which may have any bytes: the name of a process is among them.
fn status_field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
}

/// The user by whose rights a process opens files.
pub fn file_user(pid: u32) -> Option<u32> {
    // The real, effective, saved and file system user.
    status_field(pid, "Uid")?.split_ascii_whitespace().nth(3)?.parse().ok()
}

struct StatFields {
    state: char,
    parent: u32,
    flags: u32,
    threads: u32,
    started: u64,
    start_code: u64,
    start_environment: u64,
    exit_code: Option<i32>,
}

/// Flag of a kernel thread: `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Fields of `/proc/PID/stat` after the name, which may contain blanks and parentheses.
fn stat_fields(pid: u32) -> Option<StatFields> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let behind = memchr::memrchr(b')', &text)?;
    let mut fields = std::str::from_utf8(text.get(behind + 1..)?).ok()?.split_ascii_whitespace();
    // proc(5): state is field 3, parent 4, flags 9, threads 20, start time 22, start of the code 26 and of the environment 50, exit
    // code 52.
    Some(StatFields {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        flags: fields.nth(4)?.parse().ok()?,
        threads: fields.nth(10)?.parse().ok()?,
        started: fields.nth(1)?.parse().ok()?,
        start_code: fields.nth(3)?.parse().ok()?,
        start_environment: fields.nth(23).and_then(|address| address.parse().ok()).unwrap_or(0),
        exit_code: fields.nth(1).and_then(|code| code.parse().ok()),
    })
}

/// The process that a thread belongs to.
pub fn tgid(tid: u32) -> Option<u32> {
    status_field(tid, "Tgid")?.trim().parse().ok()
}

/// Pid of the process in its own pid namespace.
pub fn innermost_pid(pid: u32) -> Option<u32> {
    status_field(pid, "NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// The process name that the kernel stores: at most 15 bytes, which the process can change.
pub fn comm(pid: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(&text)).into_owned())
}

/// Path of the running program in the process's root.
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Path of the working directory in the process's root.
pub fn directory(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Environment of the process at its start.
pub fn environment(pid: u32) -> HashMap<OsString, OsString> {
    let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pairs = text.split(|&byte| byte == 0).filter_map(|pair| split_at_byte(pair, b'='));
    pairs.map(|(name, value)| (OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into())).collect()
}

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

/// A namespace: device and inode of its file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// Device of the file system of namespaces.
    pub device: u64,
    /// Inode number of the namespace.
    pub inode: u64,
}

impl Namespace {
    /// Whether this is the initial pid namespace, whose pids BPF's plain pid helper returns.
    pub fn is_initial_pid(self) -> bool {
        self.inode == INITIAL_PID_NAMESPACE
    }
}

/// The pid namespace of this process, for `bpf_get_ns_current_pid_tgid`.
pub fn own_pid_namespace() -> Option<Namespace> {
    own_namespace("pid")
}

/// Whether this process is in the initial pid namespace.
pub fn sees_all_pids() -> bool {
    own_pid_namespace().is_none_or(|namespace| namespace.is_initial_pid())
}

/// The pid namespace of a process.
pub fn pid_namespace(pid: u32) -> Option<Namespace> {
    namespace(pid, "pid")
}

/// Whether a process knows processes by the ids of this process, and sees its sockets with abstract names.
pub fn shares_network_and_pids(pid: u32) -> bool {
    ["net", "pid"].iter().all(|kind| namespace(pid, kind) == own_namespace(kind))
}

/// Whether a process may read the memory and open the files of this process, if that has the same user: it has all of its capabilities.
pub fn may_inspect_this_one(pid: u32) -> bool {
    let permitted = |pid: u32| u64::from_str_radix(status_field(pid, "CapPrm")?.trim(), 16).ok();
    let has_all = permitted(pid).zip(permitted(std::process::id())).is_some_and(|(its, own)| own & !its == 0);
    has_all && namespace(pid, "user") == own_namespace("user")
}

fn namespace(pid: u32, kind: &str) -> Option<Namespace> {
    namespace_at(&format!("/proc/{pid}/ns/{kind}"))
}

fn own_namespace(kind: &str) -> Option<Namespace> {
    namespace_at(&format!("/proc/self/ns/{kind}"))
}

fn namespace_at(path: &str) -> Option<Namespace> {
    let metadata = fs::metadata(path).ok()?;
    Some(Namespace { device: metadata.dev(), inode: metadata.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_executes_the_program_of_its_parent_until_it_executes_another_one() {
        let script = "(while :; do read line; done) <&0 & sleep 60 & wait";
        let mut shell = std::process::Command::new("sh");
        let mut shell =
            shell.args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().expect("a shell");
        let pid = shell.id();
        let find = || {
            let all = children(pid).into_iter();
            let (forked, other): (Vec<u32>, _) =
                all.partition(|child| Program::of(*child).and_then(Program::forked_from) == Some(pid));
            (forked.len(), other.iter().filter(|child| comm(**child).as_deref() == Some("sleep")).count())
        };
        let found = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            find() == (1, 1)
        });
        let all = with_descendants(&[pid]);
        all.iter().for_each(|pid| drop(std::process::Command::new("kill").arg(pid.to_string()).status()));
        shell.wait().expect("it ends");
        assert!(found, "{:?}", find());
    }

    #[test]
    fn a_line_of_maps_is_read() {
        let line = b"7f00-7f10 r-xp 00001000 fe:01 42                   /usr/lib/a b\\012c.so";
        let mapping = Mapping::parse(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x7f10, 0x1000));
        assert_eq!((mapping.executable, mapping.device, mapping.inode), (true, (0xfe, 1), 42));
        assert_eq!(mapping.name, MappingName::File("/usr/lib/a b\nc.so".into()));
    }

    #[test]
    fn kinds_of_names_are_told_apart() {
        let name =
            |text: &str| Mapping::parse(format!("1-2 rw-p 0 00:00 0 {text}").as_bytes()).map(|m| m.name);
        assert_eq!(name(""), Some(MappingName::Anonymous));
        assert_eq!(name("[vdso]"), Some(MappingName::Special("[vdso]".into())));
        assert_eq!(name("/memfd:jit (deleted)"), Some(MappingName::Deleted("/memfd:jit".into())));
    }

    #[test]
    fn what_is_no_line_of_maps_is_none() {
        for text in ["", "1-2", "x-y r-xp 0 0:0 0", "1 r-xp 0 0:0 0", "1-2 r-xp 0 00 0", "1-2 r-xp 0 0:0 z"] {
            assert_eq!(Mapping::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn own_code_is_among_own_mappings() {
        let here = own_code_is_among_own_mappings as *const () as u64;
        let mapping = mappings(std::process::id())
            .into_iter()
            .find(|m| (m.start..m.end).contains(&here))
            .expect("mapped");
        assert!(mapping.executable);
        assert_eq!(mapping.name.path(), executable(std::process::id()).as_deref());
    }

    #[test]
    fn a_child_is_a_descendant_until_it_ends() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        assert!(children(own).contains(&child.id()));
        assert!(with_descendants(&[own]).contains(&child.id()));
        assert!(is_alive(child.id()) && !is_of_kernel(child.id()));
        assert!(Program::of(child.id()).is_some_and(|program| program.places.iter().all(|at| *at > 0)));
        assert_eq!(root_prefix(child.id()), PathBuf::new());
        assert_eq!(pid_namespace(child.id()), own_pid_namespace());
        child.kill().expect("killed");
        child.wait().expect("waited");
        assert!(!is_alive(child.id()));
        assert!(mappings(child.id()).is_empty());
    }
}
