//! Locations of integer arguments by the System V ABI of x86-64, written from its text (section 3.2.3), not from the compiler.

use lang::hir::{Param, Signature, Struct};
pub(super) use lang::types::passing::size;

/// Location of eight bytes of an argument.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// n-th of the six integer registers.
    Register(u32),
    /// n-th eightbyte above the return address.
    Stack(u32),
}

const REGISTERS: u32 = 6;

/// Locations of the eightbytes of each parameter. A struct of at most two eightbytes is passed in registers if
/// both fit, otherwise entirely on the stack. A later, smaller parameter may still use a register.
pub(super) fn places(signature: &Signature, structs: &[Struct]) -> Vec<Vec<Place>> {
    let (mut registers, mut stack) = (u32::from(signature.hidden), 0);
    let mut place = |param: &Param| {
        let eightbytes = if param.float { 0 } else { size(&param.ty, structs).div_ceil(8) };
        let fits = eightbytes <= 2 && registers + eightbytes <= REGISTERS;
        let next = if fits { &mut registers } else { &mut stack };
        let first = *next;
        *next += eightbytes;
        (first..first + eightbytes).map(|n| if fits { Place::Register(n) } else { Place::Stack(n) }).collect()
    };
    signature.params.iter().map(&mut place).collect()
}
