//! Machine code of functions and modules: instructions, their relocation targets, and the errors of assembling them.

use super::insn::{Insn, SLOT};
use super::mir::Kfunc;
use super::regalloc::MAX_STACK;
use crate::ir::{FuncRef, MapDef, MapRef};
use lang::Span;
use thiserror::Error;

/// Why a module cannot be assembled. `lang` checks the limits that a script can be told in its own terms.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AsmError {
    /// A body with too many large values at once.
    #[error(
        "this probe needs {bytes} bytes of stack, and BPF programs have {MAX_STACK}; use fewer or shorter strings and keys at once"
    )]
    Stack {
        /// Function.
        name: String,
        /// Bytes needed, by the function alone or together with its callbacks.
        bytes: u32,
        /// Its script text.
        span: Span,
    },
    /// A body of so many operations that no jump reaches over it; nobody wants to wait for their registers.
    #[error(
        "this probe's code is too long: {operations} operations, and a jump reaches over {MAX_JUMP} instructions; split the body"
    )]
    Size {
        /// Function.
        name: String,
        /// Operations, before any was found superfluous.
        operations: usize,
        /// Its script text.
        span: Span,
    },
    /// A body of tens of thousands of instructions.
    #[error(
        "this probe's code is too long: a jump over {distance} instructions does not fit; split the body"
    )]
    Length {
        /// Function.
        name: String,
        /// Instructions to jump over.
        distance: i64,
        /// Its script text.
        span: Span,
    },
}

impl AsmError {
    /// The script text that is too large.
    pub fn span(&self) -> Span {
        match self {
            AsmError::Stack { span, .. } | AsmError::Size { span, .. } | AsmError::Length { span, .. } => {
                *span
            }
        }
    }
}

/// Instructions that a jump reaches over.
pub const MAX_JUMP: i64 = i16::MAX as i64;

/// What an instruction refers to beyond itself; the linker fills it in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A map's address.
    Map(MapRef),
    /// A place in the value of a direct map; the immediate is the offset.
    Value(MapRef),
    /// A place in the data; the immediate is the offset.
    Data,
    /// A callback's address.
    Func(FuncRef),
    /// Call of a kernel function: index into [`Part::kfuncs`], then into [`Assembly::kfuncs`].
    Kfunc(u32),
}

/// The code of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// Symbol.
    pub name: String,
    /// ELF section; none for a callback.
    pub section: Option<String>,
    /// Number of parameters.
    pub params: u8,
    /// In order.
    pub insns: Vec<Insn>,
    /// By instruction: bytes from the start of the function; and the function's length.
    pub offsets: Vec<u32>,
    /// The instructions as the kernel reads them, but for what they refer to.
    pub bytes: Vec<u8>,
    /// By instruction: its script text.
    pub spans: Vec<Span>,
    /// Index of an instruction, and what it refers to; ascending.
    pub targets: Vec<(usize, Target)>,
    /// Bytes of stack.
    pub frame: u32,
    /// It forbids preemption while it runs.
    pub shielded: bool,
}

impl Code {
    /// Length in bytes.
    pub fn size(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Length in slots of 8 bytes, which is how the kernel counts instructions.
    pub fn slots(&self) -> usize {
        self.bytes.len() / SLOT
    }

    /// What the instruction with this index refers to.
    pub fn target(&self, index: usize) -> Option<&Target> {
        let at = self.targets.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        Some(&self.targets[at].1)
    }
}

/// A module in machine code.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    /// Functions, in the module's order.
    pub codes: Vec<Code>,
    /// Maps.
    pub maps: Vec<MapDef>,
    /// Read-only bytes.
    pub data: Vec<u8>,
    /// Kernel functions.
    pub kfuncs: Vec<Kfunc>,
}

/// A function assembled by itself.
#[derive(Clone, Debug)]
pub struct Part {
    /// Code.
    pub code: Code,
    /// The kernel functions that it calls.
    pub kfuncs: Vec<Kfunc>,
    /// Its script text.
    pub span: Span,
}
