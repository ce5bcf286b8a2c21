//! Loads a library into a process that runs: one of its threads calls the C library's `dlopen`.
//!
//! The thread must hold no lock that `dlopen` takes. So it is one that waits in the kernel for something outside the process. All others are stopped
//! meanwhile: a fork(2) would copy the loader's locks as they are, and the child would wait for them forever. If one of the others holds such
//! a lock itself, `dlopen` does not return soon, and they go on.
//!
//! No file is needed in the process's file system: the thread receives the descriptor, and opens it by its name in `/proc`.

use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::calls::{ALONE, RemoteCalls};
use super::error::RemoteError;
use super::ptrace::has_shadow_stacks;
use super::stopped::{Seized, Stopped, Tracer, tids};
use crate::kernel::sys;

/// Longest time to look for a thread.
const SEARCH: Duration = Duration::from_secs(3);
/// Shortest and longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Longest time for a thread to stop.
const STOP: Duration = Duration::from_millis(500);
/// Longest time of a function: another thread may be loading a large library.
const FUNCTION: Duration = Duration::from_secs(10);
/// Room below the stack on which functions are called, for what system calls read and write.
const SCRATCH: u64 = 4096;
/// `RTLD_NOW`
const NOW: u64 = 2;

/// A library to load.
#[derive(Copy, Clone, Debug)]
pub struct Injection<'a> {
    /// Its file.
    pub library: BorrowedFd<'a>,
    /// Address of `dlopen` in the process.
    pub dlopen: u64,
    /// Address in the library of a function that gets a socket: `int f(int)`.
    pub attach: u64,
    /// Set when no thread is to be looked for any more.
    pub is_over: &'a AtomicBool,
}

/// System calls in which a thread waits for something outside the process: `poll`, `select`, `nanosleep`, `accept`, `read` …
const WAITS: [i64; 19] = [
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_pause,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    // Locks are waited for in it, too: other threads hold these, and go on.
    libc::SYS_futex,
];

impl Injection<'_> {
    /// Loads the library, and calls its function with one end of a socket (SOCK_SEQPACKET); returns the other end.
    ///
    /// # Errors
    /// [`RemoteError`]; the process is then as before, unless it loads the library later, which then does nothing.
    pub fn load(&self, pid: u32) -> Result<OwnedFd, RemoteError> {
        if has_shadow_stacks(pid) {
            return Err(RemoteError::ShadowStacks);
        }
        let (deadline, mut pause) = (Instant::now() + SEARCH, PAUSE);
        loop {
            for tid in waiting_threads(pid)? {
                let by = |is_alone| Tracer::run(|tracer| self.load_by(tracer, pid, tid, is_alone));
                // A thread may be in a driver, or wait for a child of vfork(2).
                let loaded = match by(true) {
                    Err(RemoteError::DidNotStop { .. }) => by(false),
                    loaded => loaded,
                };
                match loaded {
                    // It ended, or its stack is unusual: another thread may do.
                    Err(RemoteError::NoStack | RemoteError::Gone | RemoteError::DidNotStop { .. }) => {}
                    result => return result,
                }
            }
            if Instant::now() > deadline || self.is_over.load(Ordering::Relaxed) {
                return Err(RemoteError::NoThread);
            }
            std::thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// `is_alone`: all other threads are stopped.
    fn load_by(&self, tracer: &Tracer, pid: u32, tid: u32, is_alone: bool) -> Result<OwnedFd, RemoteError> {
        let seized = Seized::thread(tracer, pid, tid)?;
        let others = if is_alone { Some(seized.others(ALONE)?) } else { None };
        let stopped = seized.stop(STOP)?;
        let mut calls = RemoteCalls::new(&stopped, 0)?;
        calls.keep_stopped(others);
        let scratch = calls.restoring_stack_at().ok_or(RemoteError::NoStack)? - SCRATCH;
        let (socket, end) = calls.socket_pair(scratch, libc::SOCK_SEQPACKET)?;
        let attached = self.open(&stopped, &mut calls, scratch, socket);
        if attached.is_err() && !calls.is_in_function() {
            calls.close(socket)?;
        }
        calls.finish()?;
        attached.map(|()| end)
    }

    fn open(
        &self,
        stopped: &Stopped<'_>,
        calls: &mut RemoteCalls<'_>,
        scratch: u64,
        socket: u64,
    ) -> Result<(), RemoteError> {
        let fd = calls.pass(scratch, self.library)?;
        let path = new_path(fd);
        // Behind the stack of the function: it is read while the function runs.
        let name = calls.text(path.as_bytes())?;
        calls.call_function(self.dlopen, [name, NOW], FUNCTION).map_err(late)?;
        let inode = rustix::fs::fstat(self.library).map_err(std::io::Error::from)?.st_ino;
        let maps = stopped.maps()?;
        let base = maps.iter().find(|map| map.inode == inode && map.offset == 0);
        let base = base.ok_or(RemoteError::NotLoaded)?.range.start;
        calls.close(fd)?;
        calls.call_function(base + self.attach, [socket, 0], FUNCTION).map_err(late)
    }
}

/// A path of a descriptor that no library was loaded by yet: the loader takes an equal path for the library that it has.
fn new_path(fd: u64) -> String {
    let bits = sys::random();
    let same: String = (0..32).map(|bit| if bits >> bit & 1 == 1 { "/." } else { "/" }).collect();
    format!("/proc/self/fd{same}/{fd}\0")
}

/// The error of a function that has not returned in time.
fn late(error: RemoteError) -> RemoteError {
    match error {
        RemoteError::DidNotStop { .. } => RemoteError::NotLoaded,
        error => error,
    }
}

/// The threads of a process that wait in one of these system calls, the safest first.
///
/// # Errors
/// [`RemoteError::Gone`] if no thread runs any more.
fn waiting_threads(pid: u32) -> Result<Vec<u32>, RemoteError> {
    let rank = |tid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        let number: i64 = text.split(' ').next()?.parse().ok()?;
        WAITS.iter().position(|wait| *wait == number)
    };
    let tids = tids(pid)?;
    if tids.iter().all(|tid| sys::has_ended(*tid)) {
        return Err(RemoteError::Gone);
    }
    let mut found: Vec<(usize, u32)> = tids.into_iter().filter_map(|tid| Some((rank(tid)?, tid))).collect();
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, tid)| tid).collect())
}
