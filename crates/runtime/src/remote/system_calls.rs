//! System calls by a stopped thread of another process.
//!
//! The thread executes a `syscall` instruction of the vdso. It stops at the begin and at the end of the call, so that no instruction of
//! its own is executed. Signals are blocked meanwhile. Afterwards registers and blocked signals are restored, while the thread is in the
//! same kind of stop as before: the kernel then restarts a system call in which the thread was interrupted.
//!
//! If this process is killed meanwhile, the kernel resumes the thread where it is. The thread then restores itself: after the call it
//! executes rt_sigreturn(2) with a [`signal_frame`]. For the first call the frame is on its stack, and the code is found in the C
//! library; for further calls both are in memory of ours, with code that first closes the descriptor that the thread has for us.
//!
//! Single steps would be shorter by a stop, but SIGTRAP cannot be blocked: the kernel would reset the program's handler of it.
//!
//! The thread may have been stopped anywhere: in a function that holds a lock of the C library, or in a signal handler. So no function of
//! the program is ever called. These are all calls, none of which takes a lock of the program, or waits for another thread of it:
//!
//! | call | for |
//! |---|---|
//! | mmap, mprotect, madvise, munmap, memfd_create | regions (`region`, `journal`) |
//! | openat, of a path in `/proc`; socketpair, recvmsg with MSG_DONTWAIT, close | descriptors (`descriptors`) |
//! | rt_sigreturn | the thread itself, if this process is killed |

use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::proc::Mapping;
use linux::proc::seccomp::is_filtered;
use memchr::memmem;

use super::critical_section::interrupted;
use super::error::RemoteError;
use super::memory_map::has_stack_below;
use super::ptrace::{self, Registers, Stop};
use super::signal_frame::signal_frame;
use super::stopped::{StoppedProcess, interrupt_and_resume, next_stop, wait_for_stop};
use crate::kernel::sys;

/// Longest time for one call.
const LIMIT: Duration = Duration::from_secs(2);
/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// Smallest part of a stack that must be free, in bytes.
const MIN_STACK: u64 = 64 << 10;
/// Alignment of a frame.
const FRAME_ALIGNMENT: u64 = 64;
/// Largest size of code that is searched for instructions, in bytes.
const MAX_CODE: u64 = 4 << 20;
/// Size in bytes of the parts in which it is read.
const CHUNK: u64 = 128 << 10;
/// Largest number of mappings that are searched.
const MAX_SEARCHED: usize = 64;
/// Selector of 64-bit code.
const USER_CS: u64 = 0x33;
/// `syscall`
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Makes system calls by one stopped thread; on drop the thread is as before.
#[derive(Debug)]
pub struct RemoteCalls<'s> {
    stopped: &'s StoppedProcess<'s>,
    tid: u32,
    /// Address of the `syscall` instruction that is used, and the stack pointer for it.
    instruction: u64,
    stack: u64,
    /// Both for the first call, before [`RemoteCalls::use_code_at`].
    first: (u64, u64),
    /// Address of the code of [`RemoteCalls::use_code_at`].
    code: Option<u64>,
    registers: Registers,
    mask: u64,
    /// A SIGSTOP, which cannot be blocked, was taken from the thread.
    took_stop: bool,
    has_called: bool,
    is_restored: bool,
}

impl<'s> RemoteCalls<'s> {
    /// Prepares the first of the stopped threads. `own_filters`: number of seccomp filters of the process that are the caller's, and
    /// permit the calls.
    ///
    /// # Errors
    /// [`RemoteError::Filtered`] if the process has another seccomp filter that may not be suspended;
    /// [`RemoteError::OtherMachine`], [`RemoteError::NoVdso`]. Then the thread is unchanged.
    pub fn new(stopped: &'s StoppedProcess<'s>, own_filters: u32) -> Result<RemoteCalls<'s>, RemoteError> {
        let tid = stopped.threads()[0];
        let registers = ptrace::registers(tid)?;
        if registers.cs != USER_CS {
            return Err(RemoteError::OtherMachine);
        }
        let maps = stopped.maps()?;
        let vdso = syscall_in_vdso(stopped, &maps)?;
        if is_filtered(stopped.pid(), tid, own_filters)? {
            ptrace::suspend_seccomp(tid, true).map_err(|error| match error.raw_os_error() {
                Some(libc::ESRCH) => RemoteError::Gone,
                _ => RemoteError::Filtered,
            })?;
        }
        let mask = ptrace::signal_mask(tid)?;
        let registers = interrupted(stopped, tid, registers)?;
        let (took_stop, has_called, is_restored) = (false, false, false);
        let (instruction, stack) = (vdso, registers.rsp);
        let first = (instruction, stack);
        let mut calls = RemoteCalls {
            stopped,
            tid,
            instruction,
            stack,
            first,
            code: None,
            registers,
            mask,
            took_stop,
            has_called,
            is_restored,
        };
        calls.first = calls.restoring_stack(&maps)?.unwrap_or(first);
        calls.use_first_code();
        ptrace::set_signal_mask(tid, u64::MAX)?;
        Ok(calls)
    }

    /// A frame on the thread's stack, and code that continues with it after a system call. `None` if it does not look like a
    /// thread's stack, or the program has no such code.
    fn restoring_stack(&self, maps: &[Mapping]) -> Result<Option<(u64, u64)>, RemoteError> {
        let state = ptrace::extended_state(self.tid)?;
        let frame_at = |size: usize| (self.registers.rsp - RED_ZONE - size as u64) & !(FRAME_ALIGNMENT - 1);
        let size = signal_frame(0, &self.registers, self.mask, &state).len();
        let at = frame_at(size);
        let (stack, control_block) = (self.registers.rsp, self.registers.fs_base);
        if !has_stack_below(maps, stack, control_block, 2 * size as u64 + MIN_STACK) {
            return Ok(None);
        }
        let Some([call, sigreturn]) = find_code(self.stopped, maps)? else { return Ok(None) };
        let frame = signal_frame(at, &self.registers, self.mask, &state);
        // `ret` takes the address of the code that makes the system call rt_sigreturn.
        self.stopped.write(at - 8, &[&sigreturn.to_le_bytes()[..], &frame].concat())?;
        Ok(Some((call, at - 8)))
    }

    /// The process, with the thread that makes the calls.
    pub(super) fn stopped(&self) -> &'s StoppedProcess<'s> {
        self.stopped
    }

    /// Takes a mapping away.
    ///
    /// # Errors
    /// As for [`RemoteCalls::call`]
    pub(super) fn unmap(&mut self, range: &Range<u64>) -> Result<(), RemoteError> {
        let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
        self.call("munmap", libc::SYS_munmap, arguments).map(drop)
    }

    /// Puts empty memory of the process's own in the place of what is there.
    ///
    /// # Errors
    /// As for [`RemoteCalls::call`]
    pub(super) fn map_over(&mut self, range: &Range<u64>, access: u64) -> Result<(), RemoteError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let arguments = [range.start, range.end - range.start, access, flags as u64, u64::MAX, 0];
        self.call("mmap", libc::SYS_mmap, arguments).map(drop)
    }

    /// The result of a system call.
    ///
    /// # Errors
    /// [`RemoteError::Call`] with the error number of the call, [`RemoteError::Gone`] if the process is killed meanwhile.
    pub fn call(&mut self, name: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, RemoteError> {
        self.call_from(self.instruction, name, number, arguments)
    }

    /// The result of a system call that returns a descriptor. Until [`RemoteCalls::close`] the thread closes it if this process is
    /// killed.
    ///
    /// # Errors
    /// As for [`RemoteCalls::call`]
    pub(super) fn descriptor(
        &mut self,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, RemoteError> {
        let from = self.code.map_or(self.instruction, |code| code + OPEN_AT);
        let fd = self.call_from(from, name, number, arguments)?;
        self.hold(fd as u32)?;
        Ok(fd)
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// As for [`RemoteCalls::call`]
    pub(super) fn close(&mut self, fd: u64) -> Result<(), RemoteError> {
        self.hold(fd as u32)?;
        let from = self.code.map_or(self.instruction, |code| code + CLOSE_AT);
        self.call_from(from, "close", libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        self.hold(NO_DESCRIPTOR)
    }

    /// The descriptor that the thread closes if this process is killed.
    fn hold(&self, fd: u32) -> Result<(), RemoteError> {
        self.code.map_or(Ok(()), |code| self.stopped.write(code + DESCRIPTOR_AT, &fd.to_le_bytes()))
    }

    fn call_from(
        &mut self,
        from: u64,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, RemoteError> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = Registers {
            rip: from,
            rsp: self.stack,
            rax: number as u64,
            // Not in a system call: nothing is restarted.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            // Another tracer must not patch the instruction to which the thread returns.
            r15: self.registers.rip,
            ..self.registers
        };
        self.has_called = true;
        ptrace::set_registers(self.tid, &registers)?;
        let deadline = Instant::now() + LIMIT;
        // Its begin and its end.
        self.next_call_stop(deadline)?;
        self.next_call_stop(deadline)?;
        let result = ptrace::registers(self.tid)?.rax;
        match result as i64 {
            error @ -4095..0 => {
                Err(RemoteError::Call { call: name, error: std::io::Error::from_raw_os_error(-error as i32) })
            }
            _ => Ok(result),
        }
    }

    /// Makes further calls by code in the process itself. If this process is killed meanwhile, the thread continues there and
    /// restores itself. `room`: address of executable memory that is not used otherwise until the last call, and its size. Returns the
    /// number of used bytes; 0 if there is too little room.
    ///
    /// # Errors
    /// The errors of [`StoppedProcess::write`].
    pub fn use_code_at(&mut self, room: u64, size: usize) -> Result<usize, RemoteError> {
        let frame_at = (room + RESTORE.len() as u64).next_multiple_of(FRAME_ALIGNMENT);
        let state = ptrace::extended_state(self.tid)?;
        let frame = signal_frame(frame_at, &self.registers, self.mask, &state);
        let mut bytes = RESTORE.to_vec();
        // The displacement of `lea` is relative to the instruction after it.
        let displacement = (frame_at - (room + FRAME_AT + 4)) as u32;
        bytes[FRAME_AT as usize..][..4].copy_from_slice(&displacement.to_le_bytes());
        bytes.resize((frame_at - room) as usize, 0);
        bytes.extend(frame);
        if bytes.len() > size {
            return Ok(0);
        }
        self.stopped.write(room, &bytes)?;
        (self.instruction, self.stack, self.code) = (room + CALL_AT, self.registers.rsp, Some(room));
        Ok(bytes.len())
    }

    /// Makes further calls as before [`RemoteCalls::use_code_at`], so that the memory there may be unmapped.
    pub fn use_first_code(&mut self) {
        (self.instruction, self.stack) = self.first;
        self.code = None;
    }

    /// Waits for the begin or the end of a system call.
    fn next_call_stop(&mut self, deadline: Instant) -> Result<(), RemoteError> {
        loop {
            ptrace::resume_to_syscall(self.tid)?;
            match next_stop(self.tid, deadline)?.ok_or(RemoteError::Gone)? {
                Stop::SystemCall => return Ok(()),
                Stop::Signal(signal) => self.took_stop |= signal == libc::SIGSTOP,
                Stop::Interrupted => {}
            }
        }
    }

    /// Restores the thread.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] if the process was killed meanwhile.
    pub fn finish(mut self) -> Result<(), RemoteError> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), RemoteError> {
        if std::mem::replace(&mut self.is_restored, true) {
            return Ok(());
        }
        if self.has_called {
            interrupt_and_resume(self.tid, 0)?;
            if !wait_for_stop(self.tid, Instant::now() + LIMIT)? {
                return Err(RemoteError::Gone);
            }
        }
        // The thread can still restore its registers itself, but signals stay blocked when it has them.
        ptrace::set_signal_mask(self.tid, self.mask)?;
        ptrace::set_registers(self.tid, &self.registers)?;
        ptrace::suspend_seccomp(self.tid, false)?;
        if self.took_stop {
            let (pid, tid) = (self.stopped.pid(), self.tid);
            // SAFETY: no pointers.
            sys::check(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGSTOP) })?;
        }
        Ok(())
    }
}

impl Drop for RemoteCalls<'_> {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.restore();
    }
}

/// Makes a system call, closes a descriptor, and restores the thread.
const RESTORE: [u8; 34] = [
    // open: syscall; mov %eax,%edi; jmp close
    0x0f, 0x05, 0x89, 0xc7, 0xeb, 0x07, //
    // call: syscall; mov $descriptor,%edi
    0x0f, 0x05, 0xbf, 0xff, 0xff, 0xff, 0xff, //
    // close: mov $SYS_close,%eax; syscall
    0xb8, 3, 0, 0, 0, 0x0f, 0x05, //
    // mov $SYS_rt_sigreturn,%eax; lea frame(%rip),%rsp; syscall
    0xb8, 15, 0, 0, 0, 0x48, 0x8d, 0x25, 0, 0, 0, 0, 0x0f, 0x05,
];
/// Offsets of its parts.
const OPEN_AT: u64 = 0;
const CALL_AT: u64 = 6;
const DESCRIPTOR_AT: u64 = 9;
const CLOSE_AT: u64 = 13;
const FRAME_AT: u64 = 28;
/// Closing it has no effect.
const NO_DESCRIPTOR: u32 = u32::MAX;

fn syscall_in_vdso(stopped: &StoppedProcess<'_>, maps: &[Mapping]) -> Result<u64, RemoteError> {
    let vdso = maps.iter().find(|map| map.name.is_special("[vdso]")).ok_or(RemoteError::NoVdso)?.range();
    find(&contents(stopped, &vdso)?, vdso.start, &SYSCALL).ok_or(RemoteError::NoVdso)
}

/// `syscall; ret`
const SYSCALL_RET: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov $SYS_rt_sigreturn,%rax; syscall`: C libraries have this for returns from signal handlers.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

/// Addresses of `syscall; ret` and of the code that makes the system call rt_sigreturn.
fn find_code(stopped: &StoppedProcess<'_>, maps: &[Mapping]) -> Result<Option<[u64; 2]>, RemoteError> {
    let is_small = |map: &&Mapping| map.is_private_code() && map.end - map.start <= MAX_CODE;
    // The page at this address is the kernel's, and cannot be read: small programs have no other code to search.
    let is_own = |map: &&Mapping| !map.name.is_special("[vsyscall]");
    let mut code: Vec<&Mapping> = maps.iter().filter(is_small).filter(is_own).collect();
    code.sort_by_key(|map| {
        let name = map.name.path().and_then(Path::file_name).map(OsStr::to_string_lossy);
        !name.is_some_and(|name| name.starts_with("lib") && name.contains("c.so"))
    });
    let mut found = [None; 2];
    for map in code.into_iter().take(MAX_SEARCHED) {
        for start in map.range().step_by(CHUNK as usize) {
            // The code may lie across the end of a chunk.
            let end = map.end.min(start + CHUNK + SIGRETURN.len() as u64);
            let bytes = contents(stopped, &(start..end))?;
            // A file that is shorter than its mapping ends here.
            if bytes.is_empty() {
                break;
            }
            for (found, code) in found.iter_mut().zip([&SYSCALL_RET[..], &SIGRETURN]) {
                *found = found.or_else(|| find(&bytes, start, code));
            }
            if let [Some(call), Some(sigreturn)] = found {
                return Ok(Some([call, sigreturn]));
            }
        }
    }
    Ok(None)
}

/// The bytes of a range, as far as it can be read.
fn contents(stopped: &StoppedProcess<'_>, range: &Range<u64>) -> Result<Vec<u8>, RemoteError> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let length = stopped.read_some(range.start, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn find(bytes: &[u8], start: u64, pattern: &[u8]) -> Option<u64> {
    memmem::find(bytes, pattern).map(|at| start + at as u64)
}
