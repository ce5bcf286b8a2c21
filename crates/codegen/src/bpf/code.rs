//! Machine code of functions and modules: instructions, their relocation targets, and the errors of assembling them.

use super::insn::{Insn, SLOT};
use super::mir::Kfunc;
use super::regalloc::MAX_STACK;
use crate::ir::{FuncRef, MapDef, MapRef};
use lang::Span;
use thiserror::Error;

/// The reason why a module cannot be assembled. `lang` checks the limits that it can report in terms of the
/// script.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AsmError {
    /// A body with too many large values live at once.
    #[error(
        "this probe needs {bytes} bytes of stack, and BPF programs have {MAX_STACK}; use fewer or shorter strings and keys at once"
    )]
    Stack {
        /// Function.
        name: String,
        /// Bytes needed by the function, alone or together with its callbacks.
        bytes: u32,
        /// Span of the probe in the script.
        span: Span,
    },
    /// A body that is longer than the range of a jump. It is refused before register allocation, which would take too long.
    #[error(
        "this probe's code is too long: {operations} operations, and a jump reaches over {MAX_JUMP} instructions; split the body"
    )]
    Size {
        /// Function.
        name: String,
        /// Number of operations before optimisation.
        operations: usize,
        /// Span of the probe in the script.
        span: Span,
    },
    /// A body of tens of thousands of instructions.
    #[error(
        "this probe's code is too long: a jump over {distance} instructions does not fit; split the body"
    )]
    Length {
        /// Function.
        name: String,
        /// Distance of the jump, in instructions.
        distance: i64,
        /// Span of the probe in the script.
        span: Span,
    },
}

impl AsmError {
    /// Span in the script of the probe that is too large.
    pub fn span(&self) -> Span {
        match self {
            AsmError::Stack { span, .. } | AsmError::Size { span, .. } | AsmError::Length { span, .. } => {
                *span
            }
        }
    }
}

/// Largest number of instructions that a jump reaches over.
pub const MAX_JUMP: i64 = i16::MAX as i64;

/// Target of a relocation: an entity outside of the function. The linker fills in its address or number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Address of a map.
    Map(MapRef),
    /// Address in the value of a direct map; the immediate is the offset.
    Value(MapRef),
    /// Address in the data section; the immediate is the offset.
    Data,
    /// Address of a callback.
    Func(FuncRef),
    /// Call of a kernel function: index into [`Part::kfuncs`], after linking into [`Assembly::kfuncs`].
    Kfunc(u32),
}

/// Machine code of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// Symbol.
    pub name: String,
    /// ELF section; `None` for a callback.
    pub section: Option<String>,
    /// Number of parameters.
    pub params: u8,
    /// Instructions in order.
    pub insns: Vec<Insn>,
    /// Byte offset of each instruction from the start of the function, then the length of the function.
    pub offsets: Vec<u32>,
    /// The encoded instructions; relocations are not applied.
    pub bytes: Vec<u8>,
    /// Span in the script of each instruction.
    pub spans: Vec<Span>,
    /// Relocations: index of the instruction, and target; in ascending order.
    pub targets: Vec<(usize, Target)>,
    /// Size of the stack frame in bytes.
    pub frame: u32,
    /// True if the function disables preemption while it runs.
    pub shielded: bool,
}

impl Code {
    /// Length in bytes.
    pub fn size(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Length in slots of 8 bytes, the kernel's unit for counting instructions.
    pub fn slots(&self) -> usize {
        self.bytes.len() / SLOT
    }

    /// The relocation target of the instruction at this index.
    pub fn target(&self, index: usize) -> Option<&Target> {
        let at = self.targets.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        Some(&self.targets[at].1)
    }
}

/// Machine code of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    /// Functions, in the order of the module.
    pub codes: Vec<Code>,
    /// Maps.
    pub maps: Vec<MapDef>,
    /// Read-only bytes.
    pub data: Vec<u8>,
    /// Kernel functions that are called.
    pub kfuncs: Vec<Kfunc>,
}

/// Machine code of one function, before linking.
#[derive(Clone, Debug)]
pub struct Part {
    /// Code.
    pub code: Code,
    /// Kernel functions that it calls.
    pub kfuncs: Vec<Kfunc>,
    /// Span of the probe in the script.
    pub span: Span,
}
