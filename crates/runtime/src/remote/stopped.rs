//! A process whose threads have been stopped.

use linux::proc::{self, Mapping, Status, maps};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::error::RemoteError;
use super::ptrace::{self, Registers, Stop};

/// Shortest and longest pause between two polls.
const SHORTEST_PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Further attempts to seize a thread.
const EXECVE_TRIES: u32 = 3;

/// Time after which threads that have ended are freed.
const REAP_PERIOD: Duration = Duration::from_millis(5);

/// The right to trace, which only the thread has that [`Tracer::run`] starts.
#[derive(Debug)]
pub struct Tracer {
    /// Seized threads, except the first of each process.
    seized: Arc<Mutex<Vec<u32>>>,
    /// Requests are bound to the thread.
    not_send: PhantomData<*const ()>,
}

impl Tracer {
    /// Runs `work` on a thread of its own. When the thread ends, the kernel resumes all threads of other processes that are still
    /// held, also those that have not stopped yet.
    ///
    /// Meanwhile the calling thread frees seized threads that have ended: an execve(2) of another thread waits for that, and the
    /// next PTRACE_SEIZE would wait for the execve(2).
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(work: impl FnOnce(&Tracer) -> T + Send) -> T {
        let seized = Arc::new(Mutex::new(Vec::new()));
        let (done, is_done) = mpsc::channel::<()>();
        let of_thread = Arc::clone(&seized);
        let run = move || {
            // Dropped at the end, also by a panic.
            let _done = done;
            hurry();
            work(&Tracer { seized: of_thread, not_send: PhantomData })
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(run);
            while is_done.recv_timeout(REAP_PERIOD) == Err(mpsc::RecvTimeoutError::Timeout) {
                lock(&seized).retain(|tid| !ptrace::reap(*tid));
            }
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Takes control of a thread and makes it stop; false if it has ended.
    fn seize(&self, pid: u32, tid: u32) -> Result<bool, RemoteError> {
        // Another thread may take the place of the first one by execve(2) between the error and the search for its reason.
        for _ in 0..EXECVE_TRIES {
            match self.try_to_seize(pid, tid) {
                Err(RemoteError::NotPermitted) => std::thread::sleep(LONGEST_PAUSE),
                result => return result,
            }
        }
        self.try_to_seize(pid, tid)
    }

    fn try_to_seize(&self, pid: u32, tid: u32) -> Result<bool, RemoteError> {
        let seized = ptrace::seize(tid);
        if seized.is_ok() && tid != pid {
            lock(&self.seized).push(tid);
        }
        match seized.and_then(|()| ptrace::interrupt(tid)) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => not_permitted(pid, tid),
            Err(error) => Err(error.into()),
        }
    }

    /// Resumes threads of a process. Its first thread is the last one: a debugger that attaches begins there, and must find that none of
    /// the others is traced any more.
    fn detach(&self, pid: u32, threads: &[u32]) {
        let (first, others): (HashSet<u32>, HashSet<u32>) = threads.iter().partition(|tid| **tid == pid);
        // Threads that were killed cannot be detached: they stay here, to be freed when they have ended. The number of one that can,
        // or that was freed, may become that of a child of this process.
        lock(&self.seized).retain(|tid| !others.contains(tid) || ptrace::detach(*tid).is_err());
        first.into_iter().for_each(|tid| drop(ptrace::detach(tid)));
    }
}

fn lock(seized: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    seized.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives this thread precedence, if permitted: all threads of the traced process wait for it.
fn hurry() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: a policy and its parameter; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &priority) };
}

/// A thread that will stop as soon as it leaves the kernel.
#[derive(Debug)]
pub struct SeizedThread<'t> {
    pid: u32,
    tid: u32,
    tracer: &'t Tracer,
}

impl<'t> SeizedThread<'t> {
    /// Takes control of a thread. A thread that waits for the answer of a seccomp listener goes on waiting, and stops after the
    /// answer, before it executes an instruction.
    ///
    /// # Errors
    /// [`RemoteError::Traced`], [`RemoteError::NotPermitted`], [`RemoteError::Gone`]
    pub fn thread(tracer: &'t Tracer, pid: u32, tid: u32) -> Result<SeizedThread<'t>, RemoteError> {
        if !tracer.seize(pid, tid)? {
            return Err(RemoteError::Gone);
        }
        Ok(SeizedThread { pid, tid, tracer })
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// [`RemoteError::DidNotStop`] after `limit`, [`RemoteError::Gone`]
    pub fn stop(self, limit: Duration) -> Result<StoppedProcess<'t>, RemoteError> {
        let since = Instant::now();
        let stopped = wait_for_stop(self.tid, since + limit)?;
        StoppedProcess::of(self.tracer, self.pid, if stopped { vec![self.tid] } else { Vec::new() }, since)
    }

    /// Stops the other threads of the process, of which there may be none, while this one waits in its system call.
    ///
    /// # Errors
    /// As for [`StoppedProcess::all`]
    pub fn others(&self, limit: Duration) -> Result<StoppedProcess<'t>, RemoteError> {
        let since = Instant::now();
        let threads = stop_all(self.tracer, self.pid, Vec::new(), Some(self.tid), limit)?;
        StoppedProcess::with_leader(self.tracer, self.pid, self.tid, threads, since)
    }

    /// Waits until this thread has stopped like the others.
    ///
    /// # Errors
    /// As for [`SeizedThread::stop`]
    pub fn join(
        self,
        mut others: StoppedProcess<'t>,
        limit: Duration,
    ) -> Result<StoppedProcess<'t>, RemoteError> {
        if !wait_for_stop(self.tid, Instant::now() + limit)? {
            return Err(RemoteError::Gone);
        }
        others.threads.insert(0, self.tid);
        Ok(others)
    }
}

/// Stopped threads of a process; they are resumed on drop.
#[derive(Debug)]
pub struct StoppedProcess<'t> {
    pid: u32,
    /// The thread by whose folder in `/proc` the process is reached.
    leader: u32,
    threads: Vec<u32>,
    memory: File,
    since: Instant,
    tracer: &'t Tracer,
}

impl<'t> StoppedProcess<'t> {
    /// Stops all threads of a process, including those that are born meanwhile.
    ///
    /// # Errors
    /// [`RemoteError::DidNotStop`] after `limit`: a thread waits in a driver, or for a child of vfork(2). Then no thread is
    /// stopped once the work of the [`Tracer`] has returned. [`RemoteError::Traced`], [`RemoteError::NotPermitted`],
    /// [`RemoteError::Gone`]
    pub fn all(tracer: &'t Tracer, pid: u32, limit: Duration) -> Result<StoppedProcess<'t>, RemoteError> {
        let since = Instant::now();
        let threads = stop_all(tracer, pid, Vec::new(), None, limit)?;
        StoppedProcess::of(tracer, pid, threads, since)
    }

    /// Stops the other threads of the process, too, including those that are born meanwhile.
    ///
    /// # Errors
    /// As for [`StoppedProcess::all`]
    pub fn with_others(mut self, limit: Duration) -> Result<StoppedProcess<'t>, RemoteError> {
        let threads = std::mem::take(&mut self.threads);
        self.threads = stop_all(self.tracer, self.pid, threads, None, limit)?;
        if self.threads.is_empty() { Err(RemoteError::Gone) } else { Ok(self) }
    }

    fn of(
        tracer: &'t Tracer,
        pid: u32,
        threads: Vec<u32>,
        since: Instant,
    ) -> Result<StoppedProcess<'t>, RemoteError> {
        let leader = *threads.first().ok_or(RemoteError::Gone)?;
        StoppedProcess::with_leader(tracer, pid, leader, threads, since)
    }

    fn with_leader(
        tracer: &'t Tracer,
        pid: u32,
        leader: u32,
        threads: Vec<u32>,
        since: Instant,
    ) -> Result<StoppedProcess<'t>, RemoteError> {
        // Opened now: an execve(2) before would have replaced the memory.
        let path = format!("/proc/{pid}/task/{leader}/mem");
        match File::options().read(true).write(true).open(path) {
            Ok(memory) => Ok(StoppedProcess { pid, leader, threads, memory, since, tracer }),
            Err(error) => {
                tracer.detach(pid, &threads);
                Err(error.into())
            }
        }
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ids of the stopped threads.
    pub fn threads(&self) -> &[u32] {
        &self.threads
    }

    /// Time since the first thread was asked to stop.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Path of a file in `/proc`. The process's own folder has no memory and files once its first thread has ended.
    pub(super) fn file(&self, name: &str) -> String {
        format!("/proc/{}/task/{}/{name}", self.pid, self.leader)
    }

    /// The mappings of the process.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] if it has ended, the errors of reading `/proc/PID/maps`.
    pub fn maps(&self) -> Result<Vec<Mapping>, RemoteError> {
        let maps: Vec<Mapping> = maps::parse(&std::fs::read(self.file("maps"))?).collect();
        if maps.is_empty() { Err(RemoteError::Gone) } else { Ok(maps) }
    }

    /// Reads memory of the process.
    ///
    /// # Errors
    /// EIO where nothing is mapped, [`RemoteError::Gone`].
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), RemoteError> {
        self.memory.read_exact_at(bytes, address).map_err(memory_error)
    }

    /// Reads memory up to the first page that cannot be read; returns the number of bytes. A mapping may be longer than its file: the
    /// loader first maps a library's file over the length of all segments.
    ///
    /// # Errors
    /// [`RemoteError::Gone`]
    pub fn read_some(&self, address: u64, bytes: &mut [u8]) -> Result<usize, RemoteError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.memory.read_at(&mut bytes[done..], address + done as u64) {
                Ok(0) => return Err(RemoteError::Gone),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EIO) => break,
                Err(error) => return Err(memory_error(error)),
            }
        }
        Ok(done)
    }

    /// Reads memory; returns false if a part of it cannot be read.
    ///
    /// # Errors
    /// As for [`StoppedProcess::read_some`]
    pub fn read_if_there(&self, address: u64, bytes: &mut [u8]) -> Result<bool, RemoteError> {
        Ok(self.read_some(address, bytes)? == bytes.len())
    }

    /// Writes memory of the process, also where it is write-protected.
    ///
    /// # Errors
    /// EIO where nothing is mapped, [`RemoteError::Gone`].
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        match self.memory.write_all_at(bytes, address) {
            // Kernels with CONFIG_PROC_MEM_NO_FORCE refuse protected memory here, but permit it to ptrace.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => self.poke(address, bytes),
            result => result.map_err(memory_error),
        }
    }

    /// The memory, for when the process runs again. It is that of the program that runs now: after an execve(2), writes fail.
    ///
    /// # Errors
    /// EMFILE
    pub fn memory(&self) -> Result<File, RemoteError> {
        self.memory.try_clone().map_err(memory_error)
    }

    /// Writes memory word by word.
    fn poke(&self, address: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        const WORD: u64 = size_of::<u64>() as u64;
        let end = address + bytes.len() as u64;
        let first = address / WORD * WORD;
        let mut whole = vec![0; (end.next_multiple_of(WORD) - first) as usize];
        self.read(first, &mut whole)?;
        whole[(address - first) as usize..][..bytes.len()].copy_from_slice(bytes);
        for (number, word) in (0..).zip(whole.as_chunks().0) {
            ptrace::poke(self.threads[0], first + number * WORD, u64::from_le_bytes(*word))?;
        }
        Ok(())
    }

    /// Registers of a stopped thread.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] if it was killed meanwhile.
    pub fn registers(&self, tid: u32) -> Result<Registers, RemoteError> {
        Ok(ptrace::registers(tid)?)
    }

    /// Sets the registers of a stopped thread.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] if it was killed meanwhile.
    pub fn set_registers(&self, tid: u32, registers: &Registers) -> Result<(), RemoteError> {
        Ok(ptrace::set_registers(tid, registers)?)
    }

    /// Resumes some of the threads.
    pub fn without(mut self, threads: &[u32]) -> StoppedProcess<'t> {
        self.threads.retain(|tid| !threads.contains(tid));
        self.tracer.detach(self.pid, threads);
        self
    }

    /// Resumes the threads; returns the time for which the process was held.
    pub fn resume(self) -> Duration {
        let since = self.since;
        drop(self);
        since.elapsed()
    }
}

impl Drop for StoppedProcess<'_> {
    fn drop(&mut self) {
        self.tracer.detach(self.pid, &self.threads);
    }
}

/// Stops all threads of a process but those that are stopped already, and one that is left out.
fn stop_all(
    tracer: &Tracer,
    pid: u32,
    mut stopped: Vec<u32>,
    left_out: Option<u32>,
    limit: Duration,
) -> Result<Vec<u32>, RemoteError> {
    let deadline = Instant::now() + limit;
    loop {
        let known: HashSet<u32> = stopped.iter().copied().chain(left_out).collect();
        let new: Vec<u32> = proc::threads(pid)?.into_iter().filter(|tid| !known.contains(tid)).collect();
        let mut seized = Vec::with_capacity(new.len());
        for tid in new {
            if tracer.seize(pid, tid)? {
                seized.push(tid);
            }
        }
        for tid in &seized {
            if wait_for_stop(*tid, deadline)? {
                stopped.push(*tid);
            }
        }
        // A thread that was not seized yet may have executed another program, and have the number of the first thread.
        let before = stopped.len();
        stopped.retain(|tid| ptrace::stop(*tid).is_ok());
        if seized.is_empty() && stopped.len() == before {
            return Ok(stopped);
        }
        if Instant::now() > deadline {
            return Err(RemoteError::DidNotStop { tid: pid });
        }
    }
}

/// `/proc/PID/mem` has no bytes after the process has ended.
fn memory_error(error: io::Error) -> RemoteError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => RemoteError::Gone,
        _ => error.into(),
    }
}

/// The meaning of EPERM: the thread has ended (false), it was seized under its number before execve(2), it has another tracer, or
/// rights are missing.
fn not_permitted(pid: u32, tid: u32) -> Result<bool, RemoteError> {
    let Some(status) = Status::of_thread(pid, tid).ok().filter(|status| !status.has_ended()) else {
        return Ok(false);
    };
    match status.tracer() {
        Some(tracer) if tracer == rustix::thread::gettid().as_raw_nonzero().get() as u32 => {
            Ok(ptrace::interrupt(tid).map(|()| true)?)
        }
        Some(tracer) if tracer != 0 => Err(RemoteError::Traced { tracer }),
        _ => Err(RemoteError::NotPermitted),
    }
}

/// Waits until a seized thread has stopped; false if it is traced no longer. A signal that comes first is delivered.
pub(super) fn wait_for_stop(tid: u32, deadline: Instant) -> Result<bool, RemoteError> {
    loop {
        match next_stop(tid, deadline)? {
            None => return Ok(false),
            Some(Stop::Interrupted) => return Ok(true),
            // The stop cancels the pending interrupt.
            Some(Stop::Signal(signal)) => interrupt_and_resume(tid, signal)?,
            Some(Stop::SystemCall) => interrupt_and_resume(tid, 0)?,
        }
    }
}

/// Resumes a thread that stops again before it executes an instruction of its own, or of the signal's handler.
pub(super) fn interrupt_and_resume(tid: u32, signal: libc::c_int) -> Result<(), RemoteError> {
    match ptrace::interrupt(tid).and_then(|()| ptrace::resume(tid, signal)) {
        // The thread was killed.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => Ok(result?),
    }
}

/// Waits for the next stop of any kind; `None` if the thread is traced no longer.
pub(super) fn next_stop(tid: u32, deadline: Instant) -> Result<Option<Stop>, RemoteError> {
    let mut polls = 0;
    loop {
        match ptrace::stop(tid) {
            Ok(stop) => return Ok(Some(stop)),
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error.into()),
            Err(_) if ptrace::is_lost(tid) => return Ok(None),
            Err(_) if Instant::now() >= deadline => return Err(RemoteError::DidNotStop { tid }),
            Err(_) => pause(&mut polls),
        }
    }
}

/// Pauses between two polls: longer and longer. The threads that are to stop need the CPU.
fn pause(polls: &mut u32) {
    *polls += 1;
    std::thread::sleep(LONGEST_PAUSE.min(SHORTEST_PAUSE * *polls));
}
