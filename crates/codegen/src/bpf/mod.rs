//! The BPF backend: instruction selection, register allocation, encoding and object files.

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
