//! The program that a process executes.

use super::stat::Stat;

/// The program that a process executes: another one after exec, and in another process that is given the number later.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// The process.
    pub pid: u32,
    started: u64,
    /// Addresses of its code and environment; 0 while the kernel makes its memory.
    places: [u64; 2],
    has_memory: bool,
}

impl Program {
    /// The program of a process that exists.
    pub fn of(pid: u32) -> Option<Program> {
        let stat = Stat::of(pid)?;
        let (places, has_memory) = ([stat.start_code, stat.start_environment], stat.has_memory());
        Some(Program { pid, started: stat.usage.started, places, has_memory })
    }

    /// Start time of the process, in clock ticks since boot. With the pid it identifies the process.
    pub fn started(self) -> u64 {
        self.started
    }

    /// Whether the process has memory; one that has ended and was not waited for has none.
    pub fn has_memory(self) -> bool {
        self.has_memory
    }

    /// The parent process, if it executes the same program: the process was forked, and has executed no program since.
    pub fn forked_from(self) -> Option<u32> {
        let parent = Stat::of(self.pid)?.parent;
        (self.places[0] != 0 && Program::of(parent)?.places == self.places).then_some(parent)
    }
}

/// Whether two processes have the same memory, as a child of vfork(2) has that of its parent; false if that cannot be found out.
pub fn share_memory(one: u32, other: u32) -> bool {
    const VM: libc::c_int = 1;
    // SAFETY: the system call only compares what these processes have.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, VM, 0, 0) == 0 }
}
