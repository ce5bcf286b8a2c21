//! The seccomp server: a process that holds the seccomp listener of a traced program and answers its requests.
//!
//! A worker thread handles a request: it finds the file, queries the tracer if the file is new, and lets the system call continue.
//! A file system may block a worker for any time. Therefore the main thread accesses no file. A request slower than [`SLOW`] may
//! depend on another one, for example of a traced file server: the main thread starts another worker if none is idle. If neither
//! the tracer nor the server has run for [`PATIENCE`], or after [`TIMEOUT`], it answers the request itself. When the tracer has ended,
//! all system calls continue.
//!
//! Not here: which system calls are reported (`seccomp_filter`), the tracer's side (`server_handle`).

use super::query::{
    BEGINS, ENDS, EXECUTES, FILTER, LISTENER, MAPS, MappedRange, PROTECTS, QueryMessage, RIGHTS, SIZE, STRICT,
};
use super::seccomp_filter::Call;
use super::shared_memory::{FileState, SLOTS, SharedState};
use super::{exec_target, mprotect};
use crate::kernel::clock::{Clock, SystemClock};
use crate::kernel::sys;
use linux::proc::Usage;
use linux::timer::Timer;
use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request is answered if tracer and server wait all this time: for a file server that waits for them. Finding and attaching the
/// functions of the largest library takes 1/60 of it.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(3) };
/// Time limit of a request while they run: beside many other busy processes attaching may take seconds.
const TIMEOUT: Duration = PATIENCE.saturating_mul(MOST_CHECKS);
/// A test's own process always runs.
const MOST_CHECKS: u32 = if cfg!(test) { 1 } else { 10 };
/// How often a worker that waits for the tracer looks whether its request was answered.
const LOOK: Duration = Duration::from_millis(100);
/// Time limit for a further mapping of a known file, whose addresses only stacks need.
const RANGE_TIMEOUT: Duration = Duration::from_secs(1);
/// A request that takes longer may depend on another one.
const SLOW: Duration = Duration::from_millis(20);

/// Environment variable with the descriptors that the server inherits, `LISTENER,SOCKET,MEMORY`.
pub(super) const VARIABLE: &str = "CT_SECCOMP";
/// Name of the process. It differs from the tracer's, so that `pkill -9 cudatrace` does not kill it.
pub(super) const NAME: &str = "ct-seccomp";

/// Whether `main` makes a server of this program's processes. The runner of tests would run all tests again in its place, each with a server.
static CAN_SERVE: AtomicBool = AtomicBool::new(cfg!(test));

/// Whether a process of this program can be the server.
pub(super) fn can_serve() -> bool {
    CAN_SERVE.load(Ordering::Relaxed)
}

/// Becomes the seccomp server, and does not return, if this process was started as one. Must be the first call of `main`.
pub fn serve_if_seccomp_server() {
    CAN_SERVE.store(true, Ordering::Relaxed);
    let is_server = cfg!(test) || std::env::args_os().next().is_some_and(|name| name == NAME);
    let fds = std::env::var(VARIABLE).ok().filter(|_| is_server);
    let numbers: Option<Vec<i32>> = fds.and_then(|fds| fds.split(',').map(|fd| fd.parse().ok()).collect());
    if let Some(fds) = numbers.and_then(|numbers| numbers.try_into().ok()) {
        serve(fds);
    }
}

/// Serves until no traced process is left, then ends this process. `fds`: the listener, the tracer's socket, the shared memory.
fn serve(fds: [i32; 3]) -> ! {
    sys::close_all_but([0, 1, 2].into_iter().chain(fds).collect());
    protect();
    // SAFETY: this process has inherited them, and nothing else in it owns them.
    let [listener, socket, memory] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let Ok(shared) = SharedState::open(memory) else { exit() };
    let tracer = Mutex::new(Tracer { socket: Some(socket.into()), unanswered: 0 });
    let (queried, idle) = (Mutex::default(), AtomicUsize::new(0));
    let server = SeccompServer { listener, shared, queried, tracer, idle };
    Supervisor::new(Box::leak(Box::new(server))).run()
}

/// Protects this process from signals and the OOM killer: the traced program needs it.
fn protect() {
    ignore_signals();
    let _ = rustix::thread::set_name(c"ct-seccomp");
    // Needs CAP_SYS_RESOURCE.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Ignores signals, which are meant for the tracer or the program. Async-signal-safe.
pub(super) fn ignore_signals() {
    let own_faults =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !own_faults.contains(signal)) {
        // SAFETY: no handler is installed; SIGKILL and SIGSTOP are refused.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn exit() -> ! {
    // SAFETY: ends this process with all its threads.
    unsafe { libc::_exit(0) }
}

struct SeccompServer {
    listener: OwnedFd,
    shared: SharedState,
    /// Files that the tracer has been queried about.
    queried: Mutex<HashSet<FileState>>,
    tracer: Mutex<Tracer>,
    /// Number of threads that wait for a request.
    idle: AtomicUsize,
}

/// A thread that handles requests.
struct Worker {
    /// Its request in the shared memory.
    slot: usize,
    /// Runs while there is a request.
    timer: Timer,
    /// The main thread has answered the request.
    is_answered: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SeccompServer {
    fn work(&self, worker: &'static Worker) {
        loop {
            let request = self.receive(worker.slot);
            self.idle.fetch_sub(1, Ordering::Relaxed);
            if let Some(request) = request {
                worker.is_answered.store(false, Ordering::Relaxed);
                let _ = worker.timer.set(SLOW, PATIENCE);
                let (since_ns, until) = (SystemClock.boot_ns(), Instant::now() + TIMEOUT);
                let limit = Limit { since_ns, until, is_answered: &worker.is_answered };
                self.handle(&request, limit);
                // The main thread answers at the same time; the first answer counts.
                if !limit.left().is_zero() {
                    self.pass(request.id);
                } else {
                    self.pass_late(request.id, request.pid);
                }
                let _ = worker.timer.stop();
            }
            self.shared.clear(worker.slot);
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for a request. `None` if its thread was killed before it was read, or if no traced process is left.
    fn receive(&self, slot: usize) -> Option<libc::seccomp_notif> {
        let request = self.shared.request(slot);
        // SAFETY: the kernel writes one `seccomp_notif`, for which there is room. It is all zero, as the kernel requires.
        let received =
            unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, request) };
        // SAFETY: the kernel has written it, and only this thread writes to the slot.
        (received == 0).then(|| unsafe { request.read() })
    }

    /// Answers the next request without handling it, because all threads are blocked.
    fn pass_next(&self) {
        // SAFETY: all zero is a valid value.
        let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `seccomp_notif`.
        let received =
            unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut request) };
        if received == 0 {
            self.pass_late(request.id, request.pid);
        }
    }

    /// Queries the tracer about the system call, unless its file is known.
    fn handle(&self, request: &libc::seccomp_notif, limit: Limit) {
        let tid = request.pid;
        let notify = |kind| {
            lock(&self.tracer).query(QueryMessage { kind, tid, fd: 0, range: None, since_ns: 0 }, limit)
        };
        match Call::of(&request.data) {
            Call::Maps => self.maps(request, limit),
            Call::Protects { start, len } => self.protects(tid, pages(start, len), limit),
            Call::Executes { directory, address } => self.executes(tid, directory, address, limit),
            Call::Begins if exec_target::has_loader(tid) => {}
            Call::Begins => notify(BEGINS),
            Call::Ends => notify(ENDS),
            Call::InstallsListener => notify(LISTENER),
            Call::InstallsFilter => notify(FILTER),
            Call::EntersStrictMode => notify(STRICT),
            Call::ChangesRights => notify(RIGHTS),
        }
    }

    fn maps(&self, request: &libc::seccomp_notif, limit: Limit) {
        // mmap's descriptor is an int: the upper half of the register is undefined.
        let (tid, fd) = (request.pid, request.data.args[4] as u32);
        let Ok(file) = FileState::of(Path::new(&format!("/proc/{tid}/fd/{fd}"))) else { return };
        self.query_file(
            &file,
            QueryMessage { kind: MAPS, tid, fd, range: fixed_range(&request.data), since_ns: 0 },
            limit,
        );
    }

    fn protects(&self, tid: u32, pages: Option<Range<u64>>, limit: Limit) {
        for (file, range) in pages.map(|pages| mprotect::files(tid, pages)).unwrap_or_default() {
            let Ok(state) = FileState::of_file(&file) else { continue };
            let fd = file.as_raw_fd() as u32;
            self.query_file(
                &state,
                QueryMessage { kind: PROTECTS, tid, fd, range: Some(range), since_ns: 0 },
                limit,
            );
        }
    }

    fn executes(&self, tid: u32, directory: i32, address: u64, limit: Limit) {
        let Some(program) = exec_target::open(tid, directory, address) else { return };
        let Ok(file) = FileState::of_file(&program) else { return };
        if let Some(Ok(loader)) = exec_target::loader(tid, &program).map(|loader| FileState::of_file(&loader))
        {
            self.shared.mark(&loader);
        }
        let held = self.shared.held();
        // The tracer has examined the command's own program before it started it.
        if tid == held && runs_our_program(held) {
            self.shared.mark(&file);
        } else {
            // The tracer opens the file through this process.
            let fd = program.as_raw_fd() as u32;
            self.query_file(&file, QueryMessage { kind: EXECUTES, tid, fd, range: None, since_ns: 0 }, limit);
        }
    }

    /// Queries the tracer about a file unless it is known. Other threads that map the file wait for the same answer.
    fn query_file(&self, file: &FileState, query: QueryMessage, limit: Limit) {
        // Addresses that the kernel chooses are not known yet.
        let is_every = self.shared.reports_again(query.range.is_some());
        let is_known = self.shared.mark(file);
        if !is_every && (is_known || lock(&self.queried).contains(file)) {
            return;
        }
        let mut tracer = lock(&self.tracer);
        if is_known || lock(&self.queried).contains(file) {
            if is_every {
                tracer.query(query, self.limit_of_known_file(limit));
            }
            return;
        }
        tracer.query(query, limit);
        lock(&self.queried).insert(*file);
    }

    /// Time limit of a further mapping of a known file. A process that is to be patched must not go on before.
    fn limit_of_known_file(&self, limit: Limit) -> Limit {
        if self.shared.reports_all() {
            return limit;
        }
        Limit { until: limit.until.min(Instant::now() + RANGE_TIMEOUT), ..limit }
    }

    /// Lets the system call continue. False if its thread was killed, or the request was already answered.
    fn pass(&self, id: u64) -> bool {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the kernel reads one `seccomp_notif_resp`.
        unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) == 0 }
    }

    /// Lets the system call continue and counts it as late.
    fn pass_late(&self, id: u64, tid: u32) {
        if id != 0 && self.pass(id) {
            self.shared.add_late(tid);
        }
    }
}

/// The main thread. It accesses no file.
struct Supervisor {
    server: &'static SeccompServer,
    workers: Vec<&'static Worker>,
    /// By slot, the request that was slow.
    slow: [SlowRequest; SLOTS],
    /// By slot, the request that the main thread answered: its worker is blocked.
    blocked: [u64; SLOTS],
    /// True if another worker can be started.
    has_room: bool,
}

impl Supervisor {
    fn new(server: &'static SeccompServer) -> Supervisor {
        // Requests that a previous server received but did not answer.
        for slot in 0..SLOTS {
            server.pass_late(server.shared.request_id(slot), server.shared.request_thread(slot));
            server.shared.clear(slot);
        }
        let (slow, blocked) = ([SlowRequest::default(); SLOTS], [0; SLOTS]);
        let mut supervisor = Supervisor { server, workers: Vec::new(), slow, blocked, has_room: true };
        supervisor.start_worker();
        supervisor
    }

    fn run(mut self) -> ! {
        loop {
            let timers = self.workers.iter().map(|worker| sys::readable(worker.timer.fd()));
            let mut fds: Vec<libc::pollfd> = std::iter::once(self.listener()).chain(timers).collect();
            if sys::poll(&mut fds, -1).is_err() {
                continue;
            }
            if fds[0].revents & !libc::POLLIN != 0 {
                exit();
            }
            if fds[0].revents != 0 && self.is_exhausted() {
                self.server.pass_next();
            }
            let ready: Vec<usize> =
                (0..self.workers.len()).filter(|slot| fds[slot + 1].revents != 0).collect();
            ready.into_iter().for_each(|slot| self.check(slot));
        }
    }

    /// The listener for poll(2): its end, and requests only if no worker can receive them.
    fn listener(&self) -> libc::pollfd {
        let events = if self.is_exhausted() { libc::POLLIN } else { 0 };
        libc::pollfd { fd: self.server.listener.as_raw_fd(), events, revents: 0 }
    }

    fn is_exhausted(&self) -> bool {
        let is_blocked = |slot| self.server.shared.request_id(slot) == self.blocked[slot];
        !self.has_room
            && self.server.idle.load(Ordering::Relaxed) == 0
            && (0..self.workers.len()).all(is_blocked)
    }

    /// Handles an expired timer. The first time, another worker is started; later, the request is answered if nobody works on it.
    fn check(&mut self, slot: usize) {
        let id = self.server.shared.request_id(slot);
        if !self.workers[slot].timer.take() {
            // The request was answered in the meantime.
            return;
        }
        let slow = &mut self.slow[slot];
        let ticks = std::mem::replace(&mut slow.ticks, ticks_of_tracer_and_server());
        if slow.id != id {
            (slow.id, slow.checks) = (id, 0);
            if self.server.idle.load(Ordering::Relaxed) == 0 {
                self.start_worker();
            }
            return;
        }
        slow.checks += 1;
        if slow.checks >= MOST_CHECKS || slow.ticks <= ticks + 1 {
            self.workers[slot].is_answered.store(true, Ordering::Relaxed);
            self.server.pass_late(id, self.server.shared.request_thread(slot));
            self.blocked[slot] = id;
        }
    }

    fn start_worker(&mut self) {
        let (server, slot) = (self.server, self.workers.len());
        let Some(timer) = Timer::stopped().ok().filter(|_| slot < SLOTS) else {
            self.has_room = false;
            return;
        };
        let worker: &Worker =
            Box::leak(Box::new(Worker { slot, timer, is_answered: AtomicBool::new(false) }));
        // Counted before the thread runs, so that the next check includes it.
        server.idle.fetch_add(1, Ordering::Relaxed);
        self.has_room = std::thread::Builder::new().spawn(|| server.work(worker)).is_ok();
        if self.has_room {
            self.workers.push(worker);
        } else {
            server.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A request that was not answered at once.
#[derive(Copy, Clone, Default)]
struct SlowRequest {
    id: u64,
    /// Number of times that it was not answered yet.
    checks: u32,
    /// See [`ticks_of_tracer_and_server`].
    ticks: u64,
}

/// Processor time of the tracer, this process's parent, and of this process, in clock ticks.
fn ticks_of_tracer_and_server() -> u64 {
    let usages = [Usage::of(std::os::unix::process::parent_id()), Usage::own()];
    usages.into_iter().flatten().map(|usage| usage.cpu_ticks).sum()
}

/// Time limit of a request.
#[derive(Copy, Clone)]
struct Limit {
    /// Boot-clock time at which the request was received.
    since_ns: u64,
    until: Instant,
    /// See [`Worker::is_answered`].
    is_answered: &'static AtomicBool,
}

impl Limit {
    /// Zero if the request was answered.
    fn left(&self) -> Duration {
        match self.is_answered.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => self.until.saturating_duration_since(Instant::now()),
        }
    }
}

/// The connection to the tracer: one query at a time.
struct Tracer {
    /// `None` once the tracer has ended.
    socket: Option<UnixStream>,
    /// Number of queries without an answer.
    unanswered: u32,
}

impl Tracer {
    fn query(&mut self, query: QueryMessage, limit: Limit) {
        if self.try_query(query, limit).is_err() {
            self.socket = None;
        }
    }

    /// Sends a query. Waits for the answer unless earlier queries are unanswered.
    fn try_query(&mut self, mut query: QueryMessage, limit: Limit) -> io::Result<()> {
        while self.unanswered > 0 && self.receive(Duration::ZERO)? {}
        let is_behind = self.unanswered > 0;
        query.since_ns = if is_behind { 0 } else { limit.since_ns };
        if !self.send(&query)? {
            return Ok(());
        }
        self.unanswered += 1;
        while self.unanswered > 0 && !is_behind {
            let left = limit.left();
            if !self.receive(left.min(LOOK))? && left.is_zero() {
                break;
            }
        }
        Ok(())
    }

    /// Returns false if the socket is full: the tracer may be blocked for a long time.
    fn send(&mut self, message: &QueryMessage) -> io::Result<bool> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let message = message.encode();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: a buffer and its length. Messages this small are sent as a whole or not at all.
        let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), SIZE, flags) };
        match io::Error::last_os_error() {
            _ if sent == SIZE as isize => Ok(true),
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// Reads answers, one byte each. Returns false if there is none within the timeout.
    fn receive(&mut self, timeout: Duration) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        // Rounded up, so that the time is over if there was no answer.
        let timeout_ms = timeout.as_micros().div_ceil(1000) as i32;
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

/// The addresses of an mmap(2) with `MAP_FIXED`; without it the kernel chooses them.
fn fixed_range(call: &libc::seccomp_data) -> Option<MappedRange> {
    let [start, len, _, flags, _, offset] = call.args;
    let Range { start, end } = pages(start, len)?;
    (flags & libc::MAP_FIXED as u64 != 0).then_some(MappedRange { start, end, offset })
}

/// The memory from a start, which is at a page boundary, to the end of its last page.
fn pages(start: u64, len: u64) -> Option<Range<u64>> {
    Some(start..start.checked_add(len)?.checked_next_multiple_of(rustix::param::page_size() as u64)?)
}

/// Whether a process runs the same executable as this one, so that it has not become its program yet.
pub(super) fn runs_our_program(pid: u32) -> bool {
    let of = |pid: &str| FileState::of(Path::new(&format!("/proc/{pid}/exe")));
    matches!((of(&pid.to_string()), of("self")), (Ok(its), Ok(ours)) if its.identity == ours.identity)
}
