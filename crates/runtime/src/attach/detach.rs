//! Closes links in a process of their own, so that the tracer does not wait for the kernel.
//!
//! Closing a link removes its probes within microseconds each and then waits for a grace period of the kernel: 30 to 70 ms for
//! a multi-uprobe link, more for a tracepoint. Closing the perf event of a single uprobe takes three or four grace periods under
//! a kernel lock, so threads cannot close several at once (see `perf_uprobe`).
//!
//! ```text
//! tracer    fork    close links (returns at once: not the last descriptor)    goes on
//! ct-detach         waits for that                                            closes links, exits
//! ```
//!
//! If either process is killed, the kernel drops each link with its last descriptor.
//!
//! Not here: silencing the programs, which the caller has done before (`session::control_cell`).

use crate::attach::link::Link;
use crate::attach::perf_uprobe::AttachLock;
use crate::kernel::sys;
use std::ffi::c_void;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

/// Number of threads that close links: each link waits for a grace period, and the waits overlap.
const THREADS: usize = 32;

/// Links that are being closed.
pub struct PendingDetach {
    start: Instant,
    /// Perf events among them.
    events: usize,
    /// End of file when the child process exits; `None`: there is nothing to wait for.
    child: Option<UnixStream>,
}

/// The result of detaching.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DetachSummary {
    /// Time from the start of detaching until it was done or the wait timed out.
    pub after: Duration,
    /// The wait timed out: the child process goes on closing links.
    pub left_behind: bool,
    /// Number of perf events, which are closed one after the other.
    pub events: usize,
}

/// Closes links in a child process.
pub(crate) fn in_background(links: Vec<Link>) -> PendingDetach {
    let start = Instant::now();
    let events = links.iter().filter(|link| link.event.is_some()).count();
    let child = if links.is_empty() { None } else { close_in_background(links) };
    PendingDetach { start, events, child }
}

impl PendingDetach {
    /// Waits until the links are closed, at most until `timeout` after the start.
    pub fn wait(self, timeout: Duration) -> DetachSummary {
        let left = timeout.saturating_sub(self.start.elapsed());
        let left_behind = self.child.is_some_and(|child| {
            let mut ends = [sys::readable(child.as_raw_fd())];
            !matches!(sys::poll(&mut ends, left.as_millis() as i32), Ok(1))
        });
        DetachSummary { after: self.start.elapsed(), left_behind, events: self.events }
    }
}

/// Closes links in this process and waits for the kernel.
fn close_links(links: Vec<Link>) {
    let (links, events): (Vec<_>, Vec<_>) = links.into_iter().map(|link| (link.link, link.event)).unzip();
    close_in_parallel(links);
    let lock = AttachLock::open();
    for event in events.into_iter().flatten() {
        lock.as_ref().inspect(|lock| lock.wait_until_free());
        drop(event);
    }
}

fn close_in_parallel(mut links: Vec<OwnedFd>) {
    let share = links.len().div_ceil(THREADS).max(1);
    let mut threads = Vec::new();
    while links.len() > share {
        threads.extend(close_in_thread(links.split_off(links.len() - share)));
    }
    drop(links);
    for thread in threads {
        // SAFETY: a thread that was made, and is joined once.
        unsafe { libc::pthread_join(thread, null_mut()) };
    }
}

/// Closes links in a thread of the C library; in this one if there can be no other. A thread of `std` takes a lock of `std` as it starts: in
/// the child of a fork that may be held for ever, by a thread of the tracer that was starting just then.
fn close_in_thread(links: Vec<OwnedFd>) -> Option<libc::pthread_t> {
    extern "C" fn close(links: *mut c_void) -> *mut c_void {
        // SAFETY: from `Box::into_raw` below, for this thread alone.
        drop(unsafe { Box::from_raw(links.cast::<Vec<OwnedFd>>()) });
        null_mut()
    }
    let links = Box::into_raw(Box::new(links)).cast();
    let mut thread = 0;
    // SAFETY: a function that takes what it gets.
    match unsafe { libc::pthread_create(&raw mut thread, null(), close, links) } {
        0 => Some(thread),
        _ => {
            close(links);
            None
        }
    }
}

/// Closes links in a child process; in this process if there can be no child.
fn close_in_background(links: Vec<Link>) -> Option<UnixStream> {
    let Ok((ours, theirs)) = UnixStream::pair() else {
        close_links(links);
        return None;
    };
    match fork_orphan() {
        Fork::Child => close_in_child(links, &theirs),
        Fork::Failed => {
            close_links(links);
            None
        }
        Fork::Parent => {
            drop(links);
            // The child closes its copies only now: closing the last descriptor is what waits.
            let _ = ours.shutdown(Shutdown::Write);
            Some(ours)
        }
    }
}

/// The process that a fork has returned in.
enum Fork {
    Parent,
    Child,
    /// There is no child.
    Failed,
}

/// Forks a process whose parent exits at once, so that the tracer need not reap it.
fn fork_orphan() -> Fork {
    // SAFETY: the child uses descriptors, the allocator and threads of the C library, whose locks are free in the child. The
    // process in the middle ends without running the tracer's exit handlers.
    unsafe {
        let middle = libc::fork();
        if middle == 0 {
            match libc::fork() {
                0 => return Fork::Child,
                other => libc::_exit(i32::from(other < 0)),
            }
        }
        let mut status = 0;
        match libc::waitpid(middle, &mut status, 0) {
            waited if waited > 0 && status == 0 => Fork::Parent,
            _ => Fork::Failed,
        }
    }
}

fn close_in_child(links: Vec<Link>, tracer: &UnixStream) -> ! {
    let mut keep: Vec<RawFd> = links.iter().flat_map(Link::fds).collect();
    keep.push(tracer.as_raw_fd());
    // A reader of the tracer's output must not wait for this process.
    sys::close_all_but(keep);
    let _ = rustix::thread::set_name(c"ct-detach");
    let _ = rustix::io::read(tracer, &mut [0u8]);
    close_links(links);
    // SAFETY: ends this process without running the tracer's exit handlers.
    unsafe { libc::_exit(0) }
}
