//! The doorman's own side: a process that holds the seccomp listener of a traced program and answers its requests.
//!
//! Each request is looked at by a thread: it finds the file, asks the tracer about one that is new, and lets the system call run.
//! A file system may block that thread for as long as it likes. So the main thread touches no file: after [`SLOW`] it starts
//! another thread if none is free, since the request may wait for another one of the program (a file server that is traced, too),
//! and after [`PATIENCE`] it answers the request itself.
//!
//! Not here: which system calls are reported (`seccomp_filter`), what the tracer does with a question (`server_handle`).

use super::seccomp_filter::Call;
use super::server_handle::{ENDS, EXECUTES, LISTENER, MAPS, PLACE, PROTECTS, Place, QUESTION, SINCE, STRICT};
use super::shared_memory::{DESKS, FileState, Shared};
use super::{exec_target, mprotect};
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::sys;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a request waits at most. Finding and attaching the largest library takes a hundredth of that.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };
/// How long a mapping of a file that was asked about before waits: its place is for stacks alone.
const PATIENCE_FOR_PLACE: Duration = Duration::from_secs(1);
/// A request that takes longer may wait for another one.
const SLOW: Duration = Duration::from_millis(20);

/// Serves until no traced process is left, then ends this process. `fds` are the listener, the tracer's socket and the
/// shared memory, which this process has inherited.
pub(super) fn serve(fds: [i32; 3]) -> ! {
    sys::close_all_but([0, 1, 2].into_iter().chain(fds).collect());
    protect();
    // SAFETY: they were left open for this process, and nothing else in it has them.
    let [listener, socket, memory] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let Ok(shared) = Shared::open(memory) else { exit() };
    let tracer = Tracer { socket: Some(socket.into()), unanswered: 0 };
    let doorman = Doorman {
        listener,
        shared,
        settled: Mutex::default(),
        tracer: Mutex::new(tracer),
        idle: AtomicUsize::new(0),
    };
    Supervisor::new(Box::leak(Box::new(doorman))).run()
}

/// The traced program needs this process for as long as it runs.
fn protect() {
    ignore_signals();
    let _ = rustix::thread::set_name(c"ct-doorman");
    // Needs CAP_SYS_RESOURCE.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Signals that are sent by habit are meant for the tracer or the program. Async-signal-safe.
pub(super) fn ignore_signals() {
    let own_faults =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !own_faults.contains(signal)) {
        // SAFETY: no handler is installed; SIGKILL and SIGSTOP are refused.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn exit() -> ! {
    // SAFETY: ends this process, whatever its threads wait for.
    unsafe { libc::_exit(0) }
}

struct Doorman {
    listener: OwnedFd,
    shared: Shared,
    /// Files that the tracer was asked about.
    settled: Mutex<HashSet<FileState>>,
    tracer: Mutex<Tracer>,
    /// Threads that wait for a request.
    idle: AtomicUsize,
}

/// Where a thread works on a request.
struct Desk {
    number: usize,
    /// Runs while there is a request.
    timer: OwnedFd,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Doorman {
    fn work(&self, desk: &Desk) {
        loop {
            let request = self.receive(desk.number);
            self.idle.fetch_sub(1, Ordering::Relaxed);
            if let Some(request) = request {
                set(&desk.timer, SLOW, PATIENCE - SLOW);
                let wait = Wait { since_ns: SystemClock.boot_ns(), until: Instant::now() + PATIENCE };
                self.consider(&request, wait);
                // The main thread answers at the same time; whoever is first counts it.
                if Instant::now() < wait.until {
                    self.pass(request.id);
                } else {
                    self.pass_unseen(request.id);
                }
                set(&desk.timer, Duration::ZERO, Duration::ZERO);
            }
            self.shared.clear(desk.number);
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for a request; `None` when its thread died before it was read, and when no traced process is left.
    fn receive(&self, desk: usize) -> Option<libc::seccomp_notif> {
        let request = self.shared.request(desk);
        // SAFETY: the kernel writes one `seccomp_notif`, there is room for it, and it is all zero as the kernel demands.
        let received =
            unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, request) };
        // SAFETY: it was written; nobody else writes to this desk.
        (received == 0).then(|| unsafe { request.read() })
    }

    /// Answers the next request unseen: all threads are blocked.
    fn pass_next(&self) {
        // SAFETY: all zero is valid for it.
        let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `seccomp_notif`.
        let received =
            unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut request) };
        if received == 0 {
            self.pass_unseen(request.id);
        }
    }

    /// Asks about the file unless it is known; then it is.
    fn consider(&self, request: &libc::seccomp_notif, wait: Wait) {
        let tid = request.pid;
        let tell = |kind| lock(&self.tracer).ask(&Ask { kind, tid, fd: 0, place: None }, wait);
        match Call::of(&request.data) {
            Call::Maps => self.maps(request, wait),
            Call::Protects { start, len } => self.protects(tid, pages(start, len), wait),
            Call::Executes { directory, address } => self.executes(tid, directory, address, wait),
            Call::Ends => tell(ENDS),
            Call::InstallsListener => tell(LISTENER),
            Call::EntersStrictMode => tell(STRICT),
        }
    }

    fn maps(&self, request: &libc::seccomp_notif, wait: Wait) {
        // mmap's descriptor is an int: the upper half of the register means nothing.
        let (tid, fd) = (request.pid, request.data.args[4] as u32);
        let Ok(file) = FileState::of(Path::new(&format!("/proc/{tid}/fd/{fd}"))) else { return };
        self.ask_about(&file, &Ask { kind: MAPS, tid, fd, place: place(&request.data) }, wait);
    }

    fn protects(&self, tid: u32, pages: Option<Range<u64>>, wait: Wait) {
        for (file, place) in pages.map(|pages| mprotect::files(tid, pages)).unwrap_or_default() {
            let Ok(state) = FileState::of_file(&file) else { continue };
            let fd = file.as_raw_fd() as u32;
            self.ask_about(&state, &Ask { kind: PROTECTS, tid, fd, place: Some(place) }, wait);
        }
    }

    fn executes(&self, tid: u32, directory: i32, address: u64, wait: Wait) {
        let Some(program) = exec_target::open(tid, directory, address) else { return };
        let Ok(file) = FileState::of_file(&program) else { return };
        if let Some(Ok(loader)) = exec_target::loader(tid, &program).map(|loader| FileState::of_file(&loader))
        {
            self.shared.mark(&loader);
        }
        let held = self.shared.held();
        // The command's own program was looked at before it was started.
        if tid == held && is_ours(held) {
            self.shared.mark(&file);
        } else {
            // The tracer opens it through this process.
            let fd = program.as_raw_fd() as u32;
            self.ask_about(&file, &Ask { kind: EXECUTES, tid, fd, place: None }, wait);
        }
    }

    /// Asks unless the file is known; threads that map it meanwhile wait for the same answer.
    fn ask_about(&self, file: &FileState, ask: &Ask, wait: Wait) {
        // Where the kernel chooses the address, there is nothing to report yet.
        let is_every = ask.place.is_some() && self.shared.asks_every();
        let is_known = self.shared.mark(file);
        if !is_every && (is_known || lock(&self.settled).contains(file)) {
            return;
        }
        let mut tracer = lock(&self.tracer);
        if is_known || lock(&self.settled).contains(file) {
            if is_every {
                let until = wait.until.min(Instant::now() + PATIENCE_FOR_PLACE);
                tracer.ask(ask, Wait { until, ..wait });
            }
            return;
        }
        tracer.ask(ask, wait);
        lock(&self.settled).insert(*file);
    }

    /// Lets the system call run as if nobody had looked; false when its thread was killed, or it was answered before.
    fn pass(&self, id: u64) -> bool {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the kernel reads one `seccomp_notif_resp`.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) == 0 }
    }

    fn pass_unseen(&self, id: u64) {
        if id != 0 && self.pass(id) {
            self.shared.add_late();
        }
    }
}

/// The main thread: it touches no file.
struct Supervisor {
    doorman: &'static Doorman,
    desks: Vec<&'static Desk>,
    /// By desk, the request that was found slow.
    slow: [u64; DESKS],
    /// By desk, the request that was answered here: its thread is blocked.
    stuck: [u64; DESKS],
    /// Another desk can be opened.
    has_room: bool,
}

impl Supervisor {
    fn new(doorman: &'static Doorman) -> Supervisor {
        // Requests that a process before this one took and did not answer.
        for desk in 0..DESKS {
            doorman.pass_unseen(doorman.shared.request_id(desk));
            doorman.shared.clear(desk);
        }
        let (slow, stuck) = ([0; DESKS], [0; DESKS]);
        let mut supervisor = Supervisor { doorman, desks: Vec::new(), slow, stuck, has_room: true };
        supervisor.open_desk();
        supervisor
    }

    fn run(mut self) -> ! {
        loop {
            let timers = self.desks.iter().map(|desk| sys::readable(desk.timer.as_raw_fd()));
            let mut fds: Vec<libc::pollfd> = std::iter::once(self.listener()).chain(timers).collect();
            if sys::poll(&mut fds, -1).is_err() {
                continue;
            }
            if fds[0].revents & !libc::POLLIN != 0 {
                exit();
            }
            if fds[0].revents != 0 && self.is_exhausted() {
                self.doorman.pass_next();
            }
            let ready: Vec<usize> = (0..self.desks.len()).filter(|desk| fds[desk + 1].revents != 0).collect();
            ready.into_iter().for_each(|desk| self.look_after(desk));
        }
    }

    /// What to poll the listener for: its end, and requests only if no thread will receive them.
    fn listener(&self) -> libc::pollfd {
        let events = if self.is_exhausted() { libc::POLLIN } else { 0 };
        libc::pollfd { fd: self.doorman.listener.as_raw_fd(), events, revents: 0 }
    }

    fn is_exhausted(&self) -> bool {
        let is_stuck = |desk| self.doorman.shared.request_id(desk) == self.stuck[desk];
        !self.has_room
            && self.doorman.idle.load(Ordering::Relaxed) == 0
            && (0..self.desks.len()).all(is_stuck)
    }

    /// A request has taken long: the first time others get a thread, the second time it is answered.
    fn look_after(&mut self, desk: usize) {
        let id = self.doorman.shared.request_id(desk);
        if !has_expired(&self.desks[desk].timer) {
            // Answered meanwhile.
        } else if std::mem::replace(&mut self.slow[desk], id) == id {
            self.doorman.pass_unseen(id);
            self.stuck[desk] = id;
        } else if self.doorman.idle.load(Ordering::Relaxed) == 0 {
            self.open_desk();
        }
    }

    /// Starts a further thread.
    fn open_desk(&mut self) {
        let (doorman, number) = (self.doorman, self.desks.len());
        let Some(timer) = timer().ok().filter(|_| number < DESKS) else {
            self.has_room = false;
            return;
        };
        let desk: &Desk = Box::leak(Box::new(Desk { number, timer }));
        // Counted here, so that the next look finds it.
        doorman.idle.fetch_add(1, Ordering::Relaxed);
        self.has_room = std::thread::Builder::new().spawn(|| doorman.work(desk)).is_ok();
        if self.has_room {
            self.desks.push(desk);
        } else {
            doorman.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How long the thread of a request waits.
#[derive(Copy, Clone)]
struct Wait {
    /// Boot-clock time at which the request was received.
    since_ns: u64,
    until: Instant,
}

/// A question to the tracer.
struct Ask {
    kind: u32,
    tid: u32,
    fd: u32,
    place: Option<Place>,
}

/// The conversation with the tracer: one question at a time.
struct Tracer {
    /// None once it has gone.
    socket: Option<UnixStream>,
    /// Questions that it has not answered.
    unanswered: u32,
}

impl Tracer {
    fn ask(&mut self, ask: &Ask, wait: Wait) {
        if self.try_ask(ask, wait).is_err() {
            self.socket = None;
        }
    }

    /// Asks, and waits for the answer unless it is behind with others.
    fn try_ask(&mut self, ask: &Ask, wait: Wait) -> io::Result<()> {
        while self.unanswered > 0 && self.receive(Duration::ZERO)? {}
        let is_behind = self.unanswered > 0;
        let since_ns = if is_behind { 0 } else { wait.since_ns };
        if !self.send(ask, since_ns)? {
            return Ok(());
        }
        self.unanswered += 1;
        let left = || wait.until.saturating_duration_since(Instant::now());
        while self.unanswered > 0 && !is_behind && self.receive(left())? {}
        Ok(())
    }

    /// Whether there was room: the tracer may be stuck for long.
    fn send(&mut self, ask: &Ask, since_ns: u64) -> io::Result<bool> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let mut question = [0; QUESTION];
        for (bytes, word) in question.chunks_exact_mut(4).zip([ask.kind, ask.tid, ask.fd]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let words = ask.place.map_or([0; 3], |place| [place.start, place.end, place.offset]);
        for (bytes, word) in question[PLACE..SINCE].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        question[SINCE..].copy_from_slice(&since_ns.to_le_bytes());
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: a buffer with its length; so few bytes are sent whole or not at all.
        let sent = unsafe { libc::send(socket.as_raw_fd(), question.as_ptr().cast(), QUESTION, flags) };
        match io::Error::last_os_error() {
            _ if sent == QUESTION as isize => Ok(true),
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// Takes answers, of which each is a byte; whether there were any in time.
    fn receive(&mut self, patience: Duration) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        // Rounded up, so that the time has passed when nothing came.
        let timeout_ms = patience.as_micros().div_ceil(1000) as i32;
        if sys::poll(&mut [sys::readable(socket.as_raw_fd())], timeout_ms)? == 0 {
            return Ok(false);
        }
        let answers = socket.read(&mut [0; 64])?;
        if answers == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unanswered = self.unanswered.saturating_sub(answers as u32);
        Ok(true)
    }
}

/// Where mmap(2) is told to put a file; otherwise the kernel chooses.
fn place(call: &libc::seccomp_data) -> Option<Place> {
    let [start, len, _, flags, _, offset] = call.args;
    let Range { start, end } = pages(start, len)?;
    (flags & libc::MAP_FIXED as u64 != 0).then_some(Place { start, end, offset })
}

/// Memory that begins with a page, up to the end of the last one.
fn pages(start: u64, len: u64) -> Option<Range<u64>> {
    Some(start..start.checked_add(len)?.checked_next_multiple_of(rustix::param::page_size() as u64)?)
}

/// The process still runs our own program.
pub(super) fn is_ours(pid: u32) -> bool {
    let of = |who: &str| FileState::of(Path::new(&format!("/proc/{who}/exe")));
    matches!((of(&pid.to_string()), of("self")), (Ok(its), Ok(ours)) if its.identity == ours.identity)
}

fn timer() -> io::Result<OwnedFd> {
    Ok(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?)
}

/// Lets a timer expire after `first`, then each `later`; zero stops it.
fn set(timer: &OwnedFd, first: Duration, later: Duration) {
    let time = |duration: Duration| Timespec::try_from(duration).expect("seconds");
    let times = Itimerspec { it_interval: time(later), it_value: time(first) };
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &times);
}

fn has_expired(timer: &OwnedFd) -> bool {
    rustix::io::read(timer, &mut [0u8; 8]) == Ok(8)
}
