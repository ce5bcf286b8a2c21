//! Addresses of values in memory, and the temporaries of a function.

use crate::ir::{SlotId, VReg, Width};
use lang::hir::Type;

/// Base of a location.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// A stack slot of the current function.
    Slot(SlotId),
    /// The address in a register.
    Reg(VReg),
    /// The frame.
    Frame,
    /// The scratch cell.
    Scratch,
}

/// A location in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub base: Base,
    /// Offset in bytes.
    pub off: i32,
}

impl Place {
    /// The location `bytes` bytes further.
    pub(super) fn plus(self, bytes: u32) -> Place {
        Place { off: self.off + bytes as i32, ..self }
    }

    /// The location at an address.
    pub(super) fn behind(reg: VReg) -> Place {
        Place { base: Base::Reg(reg), off: 0 }
    }
}

/// Storage of a variable.
#[derive(Copy, Clone, Debug)]
pub(super) enum Home {
    Reg(VReg),
    Memory(Place),
}

/// Temporaries of a function.
pub(super) struct Temps {
    pub budget: u32,
    pub free: Vec<(SlotId, u32)>,
    pub used: Vec<(SlotId, u32)>,
}

impl Temps {
    pub(super) fn new(budget: u32) -> Temps {
        Temps { budget, free: vec![], used: vec![] }
    }
}

/// The temporaries in use at the start of a statement.
#[derive(Copy, Clone)]
pub(super) struct Mark {
    pub used: usize,
    pub scratch: u32,
}

/// Largest aligned access for `left` bytes at `off`; the stack requires alignment.
fn chunk(off: i32, left: u32) -> Width {
    let fits = |width: &Width| off.unsigned_abs().is_multiple_of(width.bytes()) && width.bytes() <= left;
    [Width::B64, Width::B32, Width::B16].into_iter().find(fits).unwrap_or(Width::B8)
}

/// The `(offset, width)` of the accesses that cover `bytes` from `off` on; offsets are relative to `off`.
pub(super) fn chunks(off: i32, bytes: u32) -> impl Iterator<Item = (u32, Width)> {
    chunks_of_both(off, off, bytes)
}

/// The same for two locations at once: each access is aligned in both.
pub(super) fn chunks_of_both(a: i32, b: i32, bytes: u32) -> impl Iterator<Item = (u32, Width)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < bytes).then(|| {
            let width = chunk((a + at as i32) | (b + at as i32), bytes - at);
            at += width.bytes();
            (at - width.bytes(), width)
        })
    })
}

/// Whether values of the type are held in registers.
pub(super) fn is_scalar(ty: &Type) -> bool {
    use Type::*;
    !matches!(ty, Str(_) | Tuple(_) | Record(..) | Either(_) | Struct(_) | Array(..) | Usym | Buf(_) | Inet)
}

/// Bytes of stack for temporaries; the rest of the 512 bytes is for spills.
#[derive(Copy, Clone, Debug)]
pub struct StackShare {
    /// Share of a program.
    pub(super) program: u32,
    /// Share of a program with callbacks, which have stacks of their own.
    pub(super) program_with_callbacks: u32,
    /// Share of a callback.
    pub(super) callback: u32,
}

impl StackShare {
    /// The default, which leaves enough room for the spills of nearly all programs.
    pub const USUAL: StackShare = StackShare { program: 208, program_with_callbacks: 96, callback: 48 };
    /// No stack: all temporaries are in scratch memory, which is slower to access.
    pub const NONE: StackShare = StackShare { program: 0, program_with_callbacks: 0, callback: 0 };
}
