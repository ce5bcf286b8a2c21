//! Forbids preemption in programs whose stack is per-CPU.
//!
//! Since Linux 6.13 programs of the kprobe type with 64 bytes of stack or more use a
//! per-CPU stack: the kernel assumes that no other run of the program interrupts it on that CPU. A uprobe program breaks
//! this assumption, because it is preempted together with its thread. The next run then overwrites the stack, kernel
//! addresses included. Such a program therefore forbids preemption while it runs:
//!
//! ```text
//! r9 = r1; call bpf_preempt_disable; r1 = r9      first: the stack is still empty
//! r9 = r0; call bpf_preempt_enable; r0 = r9; exit
//! ```
//!
//! Other program types need no such code: the kernel skips a run while the program already runs on that CPU.

use super::insn::Reg;
use super::mir::Kfunc;
use super::mir::{Inst, Wide};
use crate::bpf::regalloc::AllocatedFunction;
use crate::ir::{self, FuncKind};

/// The largest frame that stays on the kernel's stack: `BPF_PRIV_STACK_MIN_SIZE` is 64, and frames are rounded up to 16.
const SHARED_STACK: u32 = 48;

/// A register that is undefined at the start of a program and dead at its end.
pub(super) const SPARE: Reg = Reg(9);

/// Indices of the kernel functions that a program without preemption calls.
#[derive(Copy, Clone, Debug)]
pub(super) struct Shield {
    /// Called first.
    pub disable: u32,
    /// Called last.
    pub enable: u32,
}

impl Shield {
    /// Adds both functions to the list of called kernel functions.
    pub(super) fn enter(kfuncs: &mut Vec<Kfunc>) -> Shield {
        let first = kfuncs.len() as u32;
        kfuncs.extend(
            ["bpf_preempt_disable", "bpf_preempt_enable"].map(|name| Kfunc { name: name.into(), args: 0 }),
        );
        Shield { disable: first, enable: first + 1 }
    }

    /// Whether this is a uprobe program whose stack, or whose callbacks' stack, may be per-CPU.
    pub(super) fn is_needed(func: &ir::Func, code: &AllocatedFunction) -> bool {
        let FuncKind::Program { section, .. } = &func.kind else { return false };
        let at_functions = section.starts_with("uprobe") || section.starts_with("uretprobe");
        at_functions && (code.frame.size > SHARED_STACK || calls_back(code))
    }
}

fn calls_back(code: &AllocatedFunction) -> bool {
    let mut insts = code.function.blocks.iter().flat_map(|block| &block.insts);
    insts.any(|placed| matches!(placed.inst, Inst::Wide { value: Wide::Func(_), .. }))
}
