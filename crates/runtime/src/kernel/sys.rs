//! Wrappers of system calls that `std`, libbpf and `rustix` lack, which return owned descriptors and `io::Error`s.

use libbpf_sys as bpf;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Converts the result of a raw system call.
pub(crate) fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Converts the result of a libbpf call, which is a negative errno on failure.
pub(crate) fn check_libbpf(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// Takes ownership of a descriptor that a system call has created.
pub(crate) fn owned(fd: c_long) -> io::Result<OwnedFd> {
    let fd = check(fd)? as RawFd;
    // SAFETY: the descriptor is new, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes ownership of a descriptor that a libbpf call has created.
pub(crate) fn owned_libbpf(fd: c_int) -> io::Result<OwnedFd> {
    let fd = check_libbpf(fd)?;
    // SAFETY: as in `owned`.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A random number; 0 if the kernel has none.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    fill_random(&mut bytes).map_or(0, |()| u64::from_ne_bytes(bytes))
}

/// Fills a buffer of up to 256 bytes with random bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: room for as many bytes.
    let filled = check(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } as c_long)?;
    if filled as usize == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Creates memory that processes can share: all zero, and of a size that nobody can change, so that no access fails.
///
/// # Errors
/// The errors of memfd_create(2), ftruncate(2) and fcntl(2).
pub(crate) fn shared_memory(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, size)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The process at the other end of a Unix socket; `None` if it is in a pid namespace that this process does not see.
pub(crate) fn peer_pid(socket: &impl AsRawFd) -> io::Result<Option<u32>> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let at = (&raw mut peer).cast();
    // SAFETY: room for a struct of this size.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut size)
    };
    check(result.into())?;
    Ok(u32::try_from(peer.pid).ok().filter(|pid| *pid != 0))
}

/// Moves a descriptor to a number above 1023 if possible: select(2), which line editors use, supports only smaller numbers.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, libc::FD_SETSIZE as RawFd).unwrap_or(fd)
}

/// A path as a C string.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Opens a perf event of process `pid` (-1: all) on `cpu` (-1: all).
pub(crate) fn perf_event_open(
    attr: &mut bpf::perf_event_attr,
    pid: c_int,
    cpu: c_int,
) -> io::Result<OwnedFd> {
    attr.size = size_of::<bpf::perf_event_attr>() as u32;
    let flags = u64::from(bpf::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is complete and contains its size.
    owned(unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr as *mut bpf::perf_event_attr, pid, cpu, -1, flags)
    })
}

/// Closes all descriptors of this process except these, including owned ones. For forked children.
pub(crate) fn close_all_but(mut keep: Vec<RawFd>) {
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep.into_iter().map(|fd| fd as u32).chain([u32::MAX]) {
        if first < fd {
            let last = if fd == u32::MAX { fd } else { fd - 1 };
            // SAFETY: plain system call; the closed descriptors are no longer used in this process.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = fd.saturating_add(1);
    }
}

/// Waits until a descriptor is ready; returns 0 on EINTR.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout_ms: c_int) -> io::Result<usize> {
    // SAFETY: pointer and length of one slice.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) }.into()) {
        Ok(ready) => Ok(ready as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        // RLIMIT_NOFILE, which limits poll(2), was lowered.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && fds.len() > 1 => {
            poll_halves(fds, timeout_ms)
        }
        Err(error) => Err(error),
    }
}

/// Polls both halves in turn, until a descriptor is ready or the time is over.
fn poll_halves(fds: &mut [libc::pollfd], timeout_ms: c_int) -> io::Result<usize> {
    const PAUSE: Duration = Duration::from_millis(10);
    let timeout = u64::try_from(timeout_ms).map(Duration::from_millis).unwrap_or(Duration::MAX);
    let start = Instant::now();
    let (first, second) = fds.split_at_mut(fds.len() / 2);
    loop {
        let ready = poll(first, 0)? + poll(second, 0)?;
        if ready > 0 || start.elapsed() >= timeout {
            return Ok(ready);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Poll for readability.
pub(crate) fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// A mapping of a descriptor, unmapped on drop.
#[derive(Debug)]
pub(crate) struct MemoryMapping {
    address: *mut c_void,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; its users synchronise with atomics.
unsafe impl Send for MemoryMapping {}

impl MemoryMapping {
    /// Maps `len` bytes from `offset`, shared.
    pub(crate) fn shared(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        writable: bool,
    ) -> io::Result<MemoryMapping> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        MemoryMapping::new(fd, offset, len, access, libc::MAP_SHARED)
    }

    /// Maps the first `len` bytes of a file that does not change.
    pub(crate) fn read_only(fd: BorrowedFd<'_>, len: usize) -> io::Result<MemoryMapping> {
        MemoryMapping::new(fd, 0, len, libc::PROT_READ, libc::MAP_PRIVATE)
    }

    fn new(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        access: c_int,
        flags: c_int,
    ) -> io::Result<MemoryMapping> {
        let offset = offset as libc::off_t;
        // SAFETY: the kernel chooses the address; nothing is replaced.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd.as_raw_fd(), offset) };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(MemoryMapping { address, len })
        }
    }

    /// Address of the first byte.
    pub(crate) fn bytes(&self) -> *mut u8 {
        self.address.cast()
    }
}

impl Drop for MemoryMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and not used afterwards.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

/// The limit of open files before it was raised.
static FILE_LIMIT: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files to its maximum: each probed file and each link needs one. Failure is harmless: the call that
/// reaches the limit reports it.
pub fn raise_file_limit() {
    let limit = *FILE_LIMIT.get_or_init(|| getrlimit(Resource::Nofile));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Restores the original limit of open files for a started program: some use select(2), or close all numbers up to the limit.
/// May be called between fork(2) and exec(2).
pub(crate) fn restore_file_limit() {
    if let Some(limit) = FILE_LIMIT.get() {
        let _ = setrlimit(Resource::Nofile, *limit);
    }
}

/// Raises the limit of locked memory, which counts BPF maps before Linux 5.11, and perf buffers without root. Failure is harmless
/// for the same reason.
pub(crate) fn raise_memlock_limit() {
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

/// Parses a list of CPUs such as `0-3,8`.
pub(crate) fn parse_cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The CPUs that are online.
pub(crate) fn online_cpus() -> io::Result<Vec<u32>> {
    match std::fs::read_to_string("/sys/devices/system/cpu/online") {
        Ok(list) => Ok(parse_cpu_list(&list)),
        Err(_) => Ok(cpus_of_stat(&std::fs::read_to_string("/proc/stat")?)),
    }
}

/// CPUs of `/proc/stat`, which has a line per online CPU.
fn cpus_of_stat(text: &str) -> Vec<u32> {
    let cpu = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    text.lines().filter_map(cpu).collect()
}

/// Number of possible CPUs: per-CPU maps have a cell for each.
pub(crate) fn possible_cpus() -> io::Result<usize> {
    match std::fs::read_to_string("/sys/devices/system/cpu/possible") {
        Ok(text) => Ok(parse_cpu_list(&text).last().map_or(1, |last| *last as usize + 1)),
        Err(_) => count_cells(),
    }
}

/// Counts the cells of a per-CPU map, where sysfs is not mounted.
fn count_cells() -> io::Result<usize> {
    // Limit of CONFIG_NR_CPUS.
    const LIMIT: usize = 8192;
    let (word, key) = (size_of::<u64>() as u32, 0u32);
    // SAFETY: an empty name and no options; the result is a new descriptor.
    let map = owned_libbpf(unsafe {
        let (kind, name) = (bpf::BPF_MAP_TYPE_PERCPU_ARRAY, c"cells".as_ptr());
        bpf::bpf_map_create(kind, name, size_of_val(&key) as u32, word, 1, std::ptr::null())
    })?;
    // The cells of a new map are zero.
    let mut cells = vec![u64::MAX; LIMIT];
    // SAFETY: a key, and room for the cells of all CPUs.
    check_libbpf(unsafe {
        bpf::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), cells.as_mut_ptr().cast())
    })?;
    Ok(cells.iter().take_while(|cell| **cell == 0).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_list_has_numbers_and_ranges() {
        assert_eq!(parse_cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_cpu_list("0"), [0]);
        assert_eq!(parse_cpu_list(""), [0u32; 0]);
    }

    #[test]
    fn cpus_are_counted_without_sysfs() {
        assert_eq!(cpus_of_stat("cpu  5 0\ncpu0 3 0\ncpu12 2 0\nintr 7\n"), [0, 12]);
        if crate::kernel::features::is_root() {
            assert_eq!(count_cells().expect("a map"), possible_cpus().expect("sysfs"));
        }
    }

    #[test]
    fn descriptors_are_polled_in_halves() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut fds = [readable(-1), readable(reader.as_raw_fd()), readable(-1)];
        assert_eq!(poll_halves(&mut fds, 20).expect("polled"), 0);
        drop(writer);
        assert_eq!(poll_halves(&mut fds, -1).expect("polled"), 1);
        assert_eq!(fds.map(|fd| fd.revents != 0), [false, true, false]);
    }
}
