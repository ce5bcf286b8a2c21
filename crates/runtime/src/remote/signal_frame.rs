//! The frame of rt_sigreturn(2): a thread that executes it continues with the registers and blocked signals in the frame.
//!
//! A thread that makes system calls for the tracer has one prepared. If the tracer is killed, the thread restores itself.
//!
//! The layout is that of `struct rt_sigframe` and `struct _fpx_sw_bytes` of the kernel, from its `ucontext` on.

use super::ptrace::Registers;

/// Alignment of the saved floating point and vector registers.
const STATE_ALIGNMENT: usize = 64;
/// Size of `struct ucontext`.
const CONTEXT: usize = 304;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`
const FLAGS: u64 = 7;
/// Flags of the alternate signal stack that sigaltstack(2) refuses, so that the thread keeps its stack.
const KEEP_ALTERNATE_STACK: u64 = 0x77;
/// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2`.
const STATE_MAGIC: u32 = 0x4650_5853;
const STATE_END_MAGIC: u32 = 0x4650_5845;
/// Offset of `struct _fpx_sw_bytes` in the saved registers, where the kernel stores the mask of the components for ptrace.
const STATE_HEADER: usize = 464;

/// A range of error numbers by which the kernel marks a system call that it restarts.
const RESTARTS: std::ops::RangeInclusive<i64> = -514..=-512;
/// A system call that is continued by restart_syscall(2).
const RESTARTS_BY_BLOCK: i64 = -516;
/// Size of the instruction `syscall`.
const SYSCALL: u64 = 2;

/// The frame for address `at`, which is a multiple of 64: `struct ucontext`, then the floating point and vector registers.
pub(super) fn signal_frame(at: u64, registers: &Registers, mask: u64, state: &[u8]) -> Vec<u8> {
    let state_at = CONTEXT.next_multiple_of(STATE_ALIGNMENT);
    let registers = restarting(registers);
    let mut words = vec![FLAGS, 0, 0, KEEP_ALTERNATE_STACK, 0];
    let r = &registers;
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx]);
    words.extend([r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags]);
    // `cs`, `gs`, `fs`, `ss`, 16 bits each; then `err`, `trapno`, `oldmask`, `cr2`.
    words.extend([r.cs | r.ss << 48, 0, 0, 0, 0, at + state_at as u64]);
    words.extend([0; 8]);
    words.push(mask);
    let mut frame: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    debug_assert_eq!(frame.len(), CONTEXT);
    frame.resize(state_at, 0);
    frame.extend(marked(state));
    frame
}

/// The registers with which an interrupted system call begins again.
fn restarting(registers: &Registers) -> Registers {
    let mut restarted = *registers;
    let result = registers.rax as i64;
    if (registers.orig_rax as i64) < 0 {
        return restarted;
    }
    if RESTARTS.contains(&result) {
        (restarted.rax, restarted.rip) = (registers.orig_rax, registers.rip - SYSCALL);
    } else if result == RESTARTS_BY_BLOCK {
        (restarted.rax, restarted.rip) = (libc::SYS_restart_syscall as u64, registers.rip - SYSCALL);
    }
    restarted
}

/// The saved registers with the marks that the kernel demands in a frame.
fn marked(state: &[u8]) -> Vec<u8> {
    let mut marked = state.to_vec();
    let size = state.len() as u32;
    if let Some(header) = marked.get_mut(STATE_HEADER..STATE_HEADER + 24) {
        let components: [u8; 8] = header[..8].try_into().expect("8 bytes");
        header[..4].copy_from_slice(&STATE_MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&(size + 4).to_le_bytes());
        header[8..16].copy_from_slice(&components);
        header[16..20].copy_from_slice(&size.to_le_bytes());
    }
    marked.extend(STATE_END_MAGIC.to_le_bytes());
    marked
}
