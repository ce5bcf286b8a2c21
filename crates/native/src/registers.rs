//! The machine's registers that stand for those of BPF, and those that are scratch.

use crate::x86::Reg;

/// Registers by the number of BPF's register.
pub(crate) const REGS: [Reg; 11] = [
    Reg::RAX,
    Reg::RDI,
    Reg::RSI,
    Reg::RDX,
    Reg::RCX,
    Reg::R8,
    Reg::RBX,
    Reg::R13,
    Reg::R14,
    Reg::R15,
    Reg::RBP,
];

/// Scratch register for addresses and operands.
pub(crate) const AUX: Reg = Reg::R11;
/// Second scratch register.
pub(crate) const AUX2: Reg = Reg::R10;
/// Sixth argument of helpers: the CPU. Also scratch.
pub(crate) const CPU: Reg = Reg::R9;
