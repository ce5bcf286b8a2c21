//! `/proc/PID/stat`: whether a process runs, since when, and by which parent.

use std::fs;

/// Whether a thread, or the first thread of a process, has ended, whether or not its parent has waited for it.
pub fn has_ended(tid: u32) -> bool {
    Stat::of(tid).is_none_or(|fields| is_ended(fields.state))
}

/// Whether a state is that of a thread that has ended: a zombie, or dead.
pub(super) fn is_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// The exit status of a zombie, whose parent has not waited for it yet, as waitpid(2) encodes it.
pub(crate) fn zombie_status(pid: u32) -> Option<i32> {
    Stat::of(pid).filter(|fields| fields.state == 'Z')?.exit_code
}

/// Start time of a process in clock ticks since boot; `None` if it has ended, even as a zombie.
pub fn started(pid: u32) -> Option<u64> {
    let fields = Stat::of(pid)?;
    // The first thread may end before the others, and is then a zombie until they end.
    let has_ended = is_ended(fields.state) && fields.threads <= 1;
    (!has_ended).then_some(fields.usage.started)
}

/// Whether it is a kernel thread.
pub fn is_of_kernel(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|fields| fields.flags & KERNEL_THREAD != 0)
}

/// Resources that a process uses.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in clock ticks, of the process and of the kernel for it.
    pub cpu_ticks: u64,
    /// Start time in clock ticks since boot.
    pub started: u64,
    /// Resident memory in pages.
    pub resident_pages: u64,
}

impl Usage {
    /// The resources of a process; `None` if there is none.
    pub fn of(pid: u32) -> Option<Usage> {
        Stat::of(pid).map(|fields| fields.usage)
    }

    /// The resources of this process; `None` if `/proc` is not mounted.
    pub fn own() -> Option<Usage> {
        Stat::at("/proc/self/stat").map(|fields| fields.usage)
    }
}

/// Flag of a kernel thread: `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Flag of a thread that ends: `PF_EXITING`.
const EXITING: u32 = 4;

/// Fields of `/proc/PID/stat`.
pub(super) struct Stat {
    state: char,
    /// The parent; 0: none, or outside of the pid namespace of this process.
    pub parent: u32,
    flags: u32,
    threads: u64,
    pub usage: Usage,
    /// Address of its code; 0 for a process without memory, and in the midst of exec.
    pub start_code: u64,
    /// Address of its environment; 0 as that of the code.
    pub start_environment: u64,
    exit_code: Option<i32>,
}

impl Stat {
    /// The fields of a process; `None` if it does not exist.
    pub(super) fn of(pid: u32) -> Option<Stat> {
        Stat::at(&format!("/proc/{pid}/stat"))
    }

    /// Whether it has memory, though it may be executing a program just now. A process that ends gives its memory back first, and its files
    /// then.
    pub(super) fn has_memory(&self) -> bool {
        self.start_code != 0 || !is_ended(self.state) && self.flags & (KERNEL_THREAD | EXITING) == 0
    }

    fn at(path: &str) -> Option<Stat> {
        Stat::parse(&fs::read(path).ok()?)
    }

    /// Parses the fields after the name, which may contain blanks and parentheses.
    fn parse(text: &[u8]) -> Option<Stat> {
        let behind = memchr::memrchr(b')', text)?;
        let mut fields = std::str::from_utf8(text.get(behind + 1..)?).ok()?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = |skipped: usize| fields.nth(skipped)?.parse::<u64>().ok();
        // proc(5): state is field 3, parent 4, flags 9, processor times 14 and 15, threads 20, start time 22, resident pages 24, start
        // of the code 26 and of the environment 50, exit code 52.
        let (parent, flags) = (number(0)?, number(4)?);
        let cpu_ticks = number(4)? + number(0)?;
        let (threads, started, resident_pages) = (number(4)?, number(1)?, number(1)?);
        Some(Stat {
            state,
            parent: u32::try_from(parent).ok()?,
            flags: u32::try_from(flags).ok()?,
            threads,
            usage: Usage { cpu_ticks, started, resident_pages },
            start_code: number(1)?,
            start_environment: number(23).unwrap_or(0),
            exit_code: fields.nth(1).and_then(|code| code.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_what_ends_it() {
        let zeros = ["0"; 40].join(" ");
        let stat = Stat::parse(format!("7 (a) Z 1 (b) S 3 {zeros}").as_bytes()).expect("all fields");
        assert_eq!((stat.state, stat.parent, stat.exit_code), ('S', 3, None));
        assert!(Stat::parse(b"7 (a) S 3").is_none());
    }

    #[test]
    fn a_process_in_the_midst_of_exec_has_memory_whose_addresses_are_not_known() {
        let of = |state: char, flags: u32| {
            let zeros = ["0"; 40].join(" ");
            Stat::parse(format!("7 (a) {state} 1 0 0 0 0 {flags} {zeros}").as_bytes()).expect("all fields")
        };
        assert!(of('R', 0).has_memory() && !of('Z', 0).has_memory() && !of('S', KERNEL_THREAD).has_memory());
        assert!(!of('R', EXITING).has_memory() && !of('D', EXITING).has_memory());
    }
}
