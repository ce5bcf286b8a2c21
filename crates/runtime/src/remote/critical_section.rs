//! Restartable sequences (rseq(2)): code that the kernel makes begin again if the thread is interrupted in the middle.
//!
//! The kernel decides by the address at which the thread continues. A thread that makes system calls for the tracer continues
//! elsewhere, so the sequence is aborted here.

use super::error::RemoteError;
use super::ptrace::{self, Registers};
use super::stopped::StoppedProcess;

/// Offset of the pointer to `struct rseq_cs` in `struct rseq`.
const RSEQ_CS: u64 = 8;
/// Size of `struct rseq_cs`: version and flags, start, size, address after an abort.
const SIZE: usize = 32;

/// The registers with which the thread continues after an interruption.
pub(super) fn interrupted(
    stopped: &StoppedProcess<'_>,
    tid: u32,
    registers: Registers,
) -> Result<Registers, RemoteError> {
    let mut aborted = registers;
    let Some(area) = ptrace::rseq_area(tid)? else { return Ok(registers) };
    let mut pointer = [0; 8];
    stopped.read(area + RSEQ_CS, &mut pointer)?;
    let mut section = [0; SIZE];
    // The kernel kills threads whose pointer is invalid.
    if pointer == [0; 8] || stopped.read(u64::from_le_bytes(pointer), &mut section).is_err() {
        return Ok(registers);
    }
    let [_, start, size, abort] = *section.as_chunks().0 else { return Ok(registers) };
    if registers.rip.wrapping_sub(u64::from_le_bytes(start)) < u64::from_le_bytes(size) {
        aborted.rip = u64::from_le_bytes(abort);
    }
    Ok(aborted)
}
