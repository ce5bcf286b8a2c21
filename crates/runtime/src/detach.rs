//! Probes are taken away without waiting for it.
//!
//! Closing a link removes its probes within microseconds each, and then waits for a grace period of the kernel: 30 to 70 ms for
//! a multi-uprobe link, more for a tracepoint, and one after the other for perf events. So a process that we leave behind
//! closes them: it is forked at the end, holds the links and nothing else of ours, and ends when they are gone. Ours are
//! closed first, which is free while the other process has them too. Whoever dies meanwhile, the kernel drops a link with
//! its last descriptor.
//!
//! The caller has silenced the programs before (`control`): what is called from then on is neither counted nor written.

use crate::attach::Link;
use crate::sys;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Links that are closed at the same time: each waits for a grace period, so they are waited for together.
const TOGETHER: usize = 32;

/// Links on their way out.
pub(crate) struct Detaching {
    start: Instant,
    /// Ends when the other process does; none: there is nothing to wait for.
    other: Option<UnixStream>,
}

/// How far detaching came.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// From the wish to detach until it was done, or no longer waited for.
    pub after: Duration,
    /// Not done: the kernel's grace period goes on without us.
    pub left_behind: bool,
}

/// Has another process close the links.
pub(crate) fn behind(links: Vec<Link>) -> Detaching {
    let start = Instant::now();
    let other = if links.is_empty() { None } else { leave(links) };
    Detaching { start, other }
}

impl Detaching {
    /// Waits for the end of it, but not for longer than `patience` since its start.
    pub fn wait(self, patience: Duration) -> Detached {
        let left = patience.saturating_sub(self.start.elapsed());
        let left_behind = self.other.is_some_and(|other| {
            let mut ends = [sys::readable(other.as_raw_fd())];
            !matches!(sys::poll(&mut ends, left.as_millis() as i32), Ok(1))
        });
        Detached { after: self.start.elapsed(), left_behind }
    }
}

/// Closes the links here, and waits until they are gone.
pub(crate) fn in_place(mut links: Vec<Link>) {
    let share = links.len().div_ceil(TOGETHER).max(1);
    std::thread::scope(|scope| {
        while links.len() > share {
            let part = links.split_off(links.len() - share);
            scope.spawn(move || drop(part));
        }
        drop(links);
    });
}

/// Without another process, ours does it.
fn leave(links: Vec<Link>) -> Option<UnixStream> {
    let Ok((ours, theirs)) = UnixStream::pair() else {
        in_place(links);
        return None;
    };
    // SAFETY: the child uses descriptors, the allocator and threads of its own; libc hands the allocator over unlocked.
    match unsafe { libc::fork() } {
        0 => close_in_child(links, &theirs),
        -1 => {
            in_place(links);
            None
        }
        _ => {
            drop(links);
            // Only now may the child close its copies: before, the last one would be ours, and we would wait.
            let _ = ours.shutdown(Shutdown::Write);
            Some(ours)
        }
    }
}

fn close_in_child(links: Vec<Link>, tracer: &UnixStream) -> ! {
    let mut keep: Vec<RawFd> = links.iter().flat_map(Link::fds).collect();
    keep.push(tracer.as_raw_fd());
    // Whoever reads our output must not wait for this process.
    sys::close_all_but(keep);
    // SAFETY: system calls; the buffer is ours.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"ct-detach".as_ptr());
        libc::read(tracer.as_raw_fd(), [0u8].as_mut_ptr().cast(), 1);
    }
    in_place(links);
    // SAFETY: ends this process without running the tracer's exit handlers.
    unsafe { libc::_exit(0) }
}
