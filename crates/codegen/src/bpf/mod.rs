//! The instruction set of the kernel's BPF machine, and how IR becomes it.

mod apart;
pub mod asm;
pub mod disasm;
pub mod helper;
pub mod insn;
pub mod mir;
pub mod select;
mod shield;
