//! The instruction set of the kernel's BPF machine, and how IR becomes it.

pub mod helper;
