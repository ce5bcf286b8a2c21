//! The C library.

use core::ffi::{c_char, c_int, c_long, c_short, c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

#[repr(C)]
#[derive(Copy, Clone, Default)]
pub(crate) struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

#[repr(C)]
pub(crate) struct PollFd {
    pub fd: c_int,
    pub events: c_short,
    pub revents: c_short,
}

/// `struct sockaddr_un`
#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct SocketAddress {
    pub family: u16,
    pub path: [u8; 108],
}

/// `struct ucred`
#[repr(C)]
#[derive(Copy, Clone, Default)]
pub(crate) struct Credentials {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

/// `struct dl_phdr_info`, as far as it is used.
#[repr(C)]
pub(crate) struct LoadedObject {
    pub address: usize,
    pub name: *const c_char,
    pub segments: *const Segment,
    pub count: u16,
}

/// `Elf64_Phdr`
#[repr(C)]
pub(crate) struct Segment {
    pub kind: u32,
    flags: u32,
    offset: u64,
    pub address: usize,
    physical: usize,
    file_size: usize,
    pub size: usize,
    align: usize,
}

/// `struct iovec`
#[repr(C)]
pub(crate) struct Part {
    pub bytes: *mut u8,
    pub length: usize,
}

/// `struct cmsghdr` with a descriptor.
#[repr(C)]
pub(crate) struct PassedDescriptor {
    length: usize,
    level: c_int,
    kind: c_int,
    fd: c_int,
    padding: c_int,
}

impl PassedDescriptor {
    pub(crate) const fn none() -> PassedDescriptor {
        PassedDescriptor { length: 0, level: 0, kind: 0, fd: -1, padding: 0 }
    }

    /// The descriptor that has come with a message. `length`: of the control data that have come.
    pub(crate) fn descriptor(&self, length: usize) -> Option<Descriptor> {
        const HEAD: usize = 16;
        const SCM_RIGHTS: c_int = 1;
        let is_one = length >= HEAD + size_of::<c_int>() && self.length == HEAD + size_of::<c_int>();
        (is_one && (self.level, self.kind) == (SOL_SOCKET, SCM_RIGHTS)).then_some(Descriptor(self.fd))
    }
}

/// `struct msghdr`
#[repr(C)]
pub(crate) struct Message {
    name: *mut c_void,
    name_length: c_uint,
    parts: *mut Part,
    count: usize,
    control: *mut PassedDescriptor,
    pub control_length: usize,
    flags: c_int,
}

impl Message {
    /// A message of one part, with room for one descriptor.
    pub(crate) fn new(part: &mut Part, passed: &mut PassedDescriptor) -> Message {
        Message {
            name: null_mut(),
            name_length: 0,
            parts: part,
            count: 1,
            control: passed,
            control_length: size_of::<PassedDescriptor>(),
            flags: 0,
        }
    }
}

/// `Dl_info`: the object of an address.
#[repr(C)]
pub(crate) struct FoundObject {
    /// Path; that of a program need not be one.
    pub(crate) path: *const c_char,
    base: *mut c_void,
    symbol_name: *const c_char,
    symbol: *mut c_void,
}

/// The object that has an address.
pub(crate) fn object_of(address: *const c_void) -> Option<FoundObject> {
    let null = core::ptr::null_mut();
    let mut found =
        FoundObject { path: core::ptr::null(), base: null, symbol_name: core::ptr::null(), symbol: null };
    // SAFETY: valid pointers.
    (unsafe { dladdr(address, &raw mut found) } != 0).then_some(found)
}

pub(crate) type Thread = usize;

unsafe extern "C" {
    pub(crate) fn abort() -> !;
    pub(crate) fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    pub(crate) fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn dladdr(address: *const c_void, found: *mut FoundObject) -> c_int;
    pub(crate) fn dl_iterate_phdr(
        see: extern "C" fn(*const LoadedObject, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    pub(crate) fn pthread_create(
        thread: *mut Thread,
        attributes: *const c_void,
        start: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    pub(crate) fn pthread_detach(thread: Thread) -> c_int;
    pub(crate) fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int;
    pub(crate) fn poll(fds: *mut PollFd, count: usize, milliseconds: c_int) -> c_int;
    pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    pub(crate) fn connect(fd: c_int, address: *const SocketAddress, length: c_uint) -> c_int;
    pub(crate) fn getsockopt(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: *mut Credentials,
        length: *mut c_uint,
    ) -> c_int;
    pub(crate) fn send(fd: c_int, bytes: *const u8, length: usize, flags: c_int) -> isize;
    pub(crate) fn recvmsg(fd: c_int, message: *mut Message, flags: c_int) -> isize;
    pub(crate) fn mprotect(address: *mut c_void, length: usize, access: c_int) -> c_int;
    pub(crate) fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub(crate) fn read(fd: c_int, bytes: *mut u8, length: usize) -> isize;
    pub(crate) fn shutdown(fd: c_int, how: c_int) -> c_int;
    pub(crate) fn close(fd: c_int) -> c_int;
    pub(crate) fn getpid() -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    pub(crate) fn __cxa_atexit(
        handler: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
    pub(crate) fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    pub(crate) fn nanosleep(time: *const Timespec, left: *mut Timespec) -> c_int;
    pub(crate) fn mmap(
        address: *mut c_void,
        length: usize,
        access: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
    fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    pub(crate) fn getenv(name: *const c_char) -> *const c_char;
    pub(crate) fn prctl(option: c_int, argument: *const c_char, a: c_long, b: c_long, c: c_long) -> c_int;
}

pub(crate) const RTLD_LAZY: c_int = 1;
pub(crate) const RTLD_NOLOAD: c_int = 4;
/// Keeps a library for as long as the process lives.
pub(crate) const RTLD_NODELETE: c_int = 0x1000;
pub(crate) const POLLIN: c_short = 1;
pub(crate) const POLLOUT: c_short = 4;
pub(crate) const CLOCK_REALTIME: c_int = 0;
pub(crate) const CLOCK_MONOTONIC: c_int = 1;
pub(crate) const SIG_BLOCK: c_int = 0;
pub(crate) const SIG_SETMASK: c_int = 2;
pub(crate) const PR_SET_NAME: c_int = 15;
pub(crate) const AF_UNIX: c_int = 1;
pub(crate) const SOCK_SEQPACKET_CLOEXEC: c_int = 5 | 0o2000000;
pub(crate) const SOL_SOCKET: c_int = 1;
pub(crate) const SO_PEERCRED: c_int = 17;
pub(crate) const O_CLOEXEC: c_int = 0o2000000;
pub(crate) const SHUT_RD: c_int = 0;
pub(crate) const SHUT_RDWR: c_int = 2;
pub(crate) const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
pub(crate) const MSG_NOSIGNAL: c_int = 0x4000;
pub(crate) const MSG_DONTWAIT: c_int = 0x40;
pub(crate) const PROT_READ: c_int = 1;
pub(crate) const PROT_READ_WRITE: c_int = 3;
pub(crate) const MAP_SHARED: c_int = 1;
const MAP_PRIVATE_ANONYMOUS_NORESERVE: c_int = 0x2 | 0x20 | 0x4000;

/// An open descriptor.
#[derive(Copy, Clone)]
pub(crate) struct Descriptor(pub c_int);

/// Memory of zeros for values of a type, which takes room as it is written. It is reserved once in a process.
pub(crate) struct ReservedMemory<T> {
    first: AtomicPtr<T>,
    count: usize,
}

impl<T> ReservedMemory<T> {
    /// Memory for so many values, for which zeros are valid; not reserved yet.
    pub(crate) const fn of(count: usize) -> ReservedMemory<T> {
        ReservedMemory { first: AtomicPtr::new(null_mut()), count }
    }

    /// Reserves it, unless it is. False if there is no memory.
    pub(crate) fn reserve(&self) -> bool {
        if !self.first().is_null() {
            return true;
        }
        // SAFETY: new memory.
        let at =
            unsafe { mmap(null_mut(), self.size(), PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0) };
        if at as isize == -1 {
            return false;
        }
        // Another thread was faster.
        if self.first.compare_exchange(null_mut(), at.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: nobody knows of this memory.
            unsafe { munmap(at, self.size()) };
        }
        true
    }

    /// The first value; null if the memory is not reserved.
    pub(crate) fn first(&self) -> *mut T {
        self.first.load(Acquire)
    }

    /// Makes it take no room; it is zero again.
    pub(crate) fn release(&self) {
        const MADV_DONTNEED: c_int = 4;
        if !self.first().is_null() {
            // SAFETY: this memory, whose zeros are valid.
            unsafe { madvise(self.first().cast(), self.size(), MADV_DONTNEED) };
        }
    }

    fn size(&self) -> usize {
        self.count * size_of::<T>()
    }
}

/// Nanoseconds of a clock.
pub(crate) fn now(clock: c_int) -> u64 {
    let mut time = Timespec::default();
    // SAFETY: a valid pointer.
    unsafe { clock_gettime(clock, &raw mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// The id of this thread.
pub(crate) fn gettid() -> u32 {
    const SYS_GETTID: c_long = 186;
    // SAFETY: no arguments.
    unsafe { syscall(SYS_GETTID) as u32 }
}

pub(crate) fn sleep(milliseconds: i64) {
    let time = Timespec { seconds: milliseconds / 1000, nanoseconds: milliseconds % 1000 * 1_000_000 };
    // SAFETY: valid pointers.
    unsafe { nanosleep(&raw const time, core::ptr::null_mut()) };
}
