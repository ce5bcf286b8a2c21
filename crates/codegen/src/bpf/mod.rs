//! The instruction set of the kernel's BPF machine, and how IR becomes it.

pub mod code;
pub mod disasm;
mod emit;
pub mod helper;
pub mod insn;
pub mod link;
pub mod mir;
mod no_preempt;
pub mod object;
mod opaque;
pub mod regalloc;
pub mod select;
