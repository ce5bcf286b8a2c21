//! Probes are taken away without waiting for it.
//!
//! Closing a link removes its probes within microseconds each, and then waits for a grace period of the kernel: 30 to 70 ms for
//! a multi-uprobe link, more for a tracepoint. A single uprobe's perf event goes with three or four of them, and under a lock of
//! the kernel's: such events go one after the other, however many threads close them (see `perf_uprobe`). So a process that we leave behind
//! closes them all: it is forked at the end, holds the links and nothing else of ours, and ends when they are gone. Ours are
//! closed first, which is free while the other process has them too. Whoever dies meanwhile, the kernel drops a link with
//! its last descriptor.
//!
//! The caller has silenced the programs before (`control_cell`): what is called from then on is neither counted nor written.

use crate::attach::link::Link;
use crate::attach::perf_uprobe::Gate;
use crate::kernel::sys;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Links that are closed at the same time: each waits for a grace period, so they are waited for together.
const TOGETHER: usize = 32;

/// Links on their way out.
pub struct Detaching {
    start: Instant,
    /// Perf events among them.
    events: usize,
    /// Ends when the other process does; none: there is nothing to wait for.
    other: Option<UnixStream>,
}

/// How far detaching came.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// From the wish to detach until it was done, or no longer waited for.
    pub after: Duration,
    /// Not done: the kernel's grace periods go on without us.
    pub left_behind: bool,
    /// Perf events that were to go, one after the other.
    pub events: usize,
}

/// Has another process close the links.
pub(crate) fn behind(links: Vec<Link>) -> Detaching {
    let start = Instant::now();
    let events = links.iter().filter(|link| link.event.is_some()).count();
    let other = if links.is_empty() { None } else { leave(links) };
    Detaching { start, events, other }
}

impl Detaching {
    /// Waits for the end of it, but not for longer than `patience` since its start.
    pub fn wait(self, patience: Duration) -> Detached {
        let left = patience.saturating_sub(self.start.elapsed());
        let left_behind = self.other.is_some_and(|other| {
            let mut ends = [sys::readable(other.as_raw_fd())];
            !matches!(sys::poll(&mut ends, left.as_millis() as i32), Ok(1))
        });
        Detached { after: self.start.elapsed(), left_behind, events: self.events }
    }
}

/// Closes the links here, and waits until they are gone.
fn in_place(links: Vec<Link>) {
    let (links, events): (Vec<_>, Vec<_>) = links.into_iter().map(|link| (link.link, link.event)).unzip();
    together(links);
    let gate = Gate::open();
    for event in events.into_iter().flatten() {
        gate.as_ref().inspect(|gate| gate.let_pass());
        drop(event);
    }
}

fn together(mut links: Vec<OwnedFd>) {
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
    match fork_away() {
        Fork::Other => close_in_other(links, &theirs),
        Fork::None => {
            in_place(links);
            None
        }
        Fork::Ours => {
            drop(links);
            // Only now may the other close its copies: before, the last one would be ours, and we would wait.
            let _ = ours.shutdown(Shutdown::Write);
            Some(ours)
        }
    }
}

/// Where we are after a fork.
enum Fork {
    Ours,
    Other,
    /// There is no other process.
    None,
}

/// Makes a process that is nobody's child, so that nobody has to wait for its end.
fn fork_away() -> Fork {
    // SAFETY: the other uses descriptors, the allocator and threads of its own; libc hands the allocator over unlocked. The
    // one between ends without running our exit handlers.
    unsafe {
        let between = libc::fork();
        if between == 0 {
            match libc::fork() {
                0 => return Fork::Other,
                other => libc::_exit(i32::from(other < 0)),
            }
        }
        let mut status = 0;
        match libc::waitpid(between, &mut status, 0) {
            waited if waited > 0 && status == 0 => Fork::Ours,
            _ => Fork::None,
        }
    }
}

fn close_in_other(links: Vec<Link>, tracer: &UnixStream) -> ! {
    let mut keep: Vec<RawFd> = links.iter().flat_map(Link::fds).collect();
    keep.push(tracer.as_raw_fd());
    // A reader of our output must not wait for this process.
    sys::close_all_but(keep);
    let _ = rustix::thread::set_name(c"ct-detach");
    let _ = rustix::io::read(tracer, &mut [0u8]);
    in_place(links);
    // SAFETY: ends this process without running the tracer's exit handlers.
    unsafe { libc::_exit(0) }
}
