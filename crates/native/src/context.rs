//! The context of a program, and the rest of the stack while programs run at the entry or the return of a function.

use crate::registers::AUX;
use crate::x86::{Assembler, Cond, Mem, Reg, Width};

/// Size of `struct pt_regs` in bytes.
pub const REGISTERS: i32 = 168;
/// u64 in the context: attach cookie.
pub const COOKIE: i32 = REGISTERS;
/// u32 in the context: 1 on the return side of a session, 0 at its entry.
pub const IS_RETURN: i32 = REGISTERS + 8;
/// u64 in the context: address of the 8 bytes that a session keeps from entry to return.
pub const SESSION: i32 = REGISTERS + 16;
/// u64 of each vector register in the context, if a program reads one: its low 8 bytes.
pub const VECTORS: i32 = REGISTERS + 24;
/// Vector registers with arguments, and with a result.
pub(crate) const ARGUMENT_VECTORS: u8 = 8;
pub(crate) const RESULT_VECTORS: u8 = 1;
/// Size of the context in bytes.
pub const SIZE: i32 = VECTORS + 8 * ARGUMENT_VECTORS as i32;

/// Registers that the code of programs may overwrite, with their offsets in `struct pt_regs`.
const VOLATILE: [(i32, Reg); 9] = [
    (48, Reg::R11),
    (56, Reg::R10),
    (64, Reg::R9),
    (72, Reg::R8),
    (80, Reg::RAX),
    (88, Reg::RCX),
    (96, Reg::RDX),
    (104, Reg::RSI),
    (112, Reg::RDI),
];
/// The other registers.
const KEPT: [(i32, Reg); 6] =
    [(0, Reg::R15), (8, Reg::R14), (16, Reg::R13), (24, Reg::R12), (32, Reg::RBP), (40, Reg::RBX)];
pub(crate) const RIP: i32 = 128;
const CS: i32 = 136;
const FLAGS: i32 = 144;
pub(crate) const RSP: i32 = 152;
const SS: i32 = 160;
/// Selectors of user code and data in 64-bit mode, and flags with interrupts enabled.
const CONSTANTS: [(i32, i32); 3] = [(CS, 0x33), (FLAGS, 0x202), (SS, 0x2b)];

/// Largest number of programs at one function: each has a bit in a mask.
pub(crate) const MAX_PROGRAMS: usize = 31;

/// Size of the context, and what aligns the stack to 16 at the call of a program. The stack while the programs of a side run:
///
/// ```text
/// rsp -> context, padding (FRAME bytes)
///        return address into the detour, at the entry; at the return nothing
///        address of the record, mask of the programs that want the return, words of the sessions
///        address of the stub, 0 if no program wants the return; address of the moved instructions
///        return address of the function
/// ```
pub(crate) const FRAME: i32 = SIZE + 8;
pub(crate) const RECORD: i32 = FRAME + 8;
pub(crate) const MASK: i32 = RECORD + 8;
pub(crate) const SESSIONS: i32 = MASK + 8;
/// Words at the return, where the code does not know the function.
pub(crate) const MAX_WORDS: i32 = 2 + MAX_PROGRAMS as i32;
/// Offsets from the place of the return address.
pub(crate) const MOVED_WORD: i32 = -8;
pub(crate) const STUB_WORD: i32 = -16;

/// Description of a function: words in front of its detour, whose offsets these are. The cookies of the programs follow.
pub(crate) struct Record;

#[allow(dead_code, reason = "the first word and the last one are used by helpers.c")]
impl Record {
    /// Address of the record itself: the detour pushes it.
    pub(crate) const SELF: i32 = 0;
    /// Address of the function.
    pub(crate) const ADDRESS: i32 = 8;
    /// Address of its moved instructions.
    pub(crate) const MOVED: i32 = 16;
    /// Address of the dispatch's return side.
    pub(crate) const LEAVE: i32 = 24;
    /// Number of sessions.
    pub(crate) const SESSIONS: i32 = 32;
    pub(crate) const COOKIES: i32 = 40;
}

/// A place at a distance from the stack pointer.
pub(crate) fn stack(offset: i32) -> Mem {
    Mem::At(Reg::RSP, offset)
}

/// Stores the registers in the context.
pub(crate) fn store_registers(asm: &mut Assembler) {
    for (offset, reg) in VOLATILE.into_iter().chain(KEPT) {
        asm.store(Width::W64, stack(offset), reg);
    }
    for (offset, value) in CONSTANTS {
        asm.store_imm(Width::W64, stack(offset), value);
    }
}

/// Stores the first vector registers in the context. Nothing that runs before the programs uses them.
pub(crate) fn store_vectors(asm: &mut Assembler, count: u8) {
    for number in 0..count {
        asm.store_vector(stack(VECTORS + 8 * i32::from(number)), number);
    }
}

/// Loads the registers that programs overwrite.
pub(crate) fn load_registers(asm: &mut Assembler) {
    for (offset, reg) in VOLATILE {
        asm.load(Width::W64, reg, stack(offset));
    }
}

/// Generates the code to which stubs jump, for all functions; returns its offset, and the offset of its end, to which the return side of a
/// dispatch jumps. `returned`: offset of the helper `call_returns`, `area`: offset of its memory.
///
/// The place of the return address is at the stack pointer.
pub(crate) fn leave(asm: &mut Assembler, returned: u64, area: u64) -> (u64, u64) {
    asm.align(16);
    let start = asm.here();
    let place = RECORD + 8 * MAX_WORDS;
    asm.lea(Reg::RSP, stack(-place));
    store_registers(asm);
    asm.lea(Reg::RDI, Mem::Region(area));
    asm.lea(Reg::RSI, stack(place));
    asm.lea(Reg::RDX, stack(RECORD));
    asm.call_region(returned);
    let end = asm.label();
    asm.test(true, Reg::RAX, Reg::RAX);
    asm.jcc(Cond::Equal, end);
    // The return address is popped, and is where the program goes on.
    asm.lea(AUX, stack(place + 8));
    asm.store(Width::W64, stack(RSP), AUX);
    asm.load(Width::W64, AUX, stack(place));
    asm.store(Width::W64, stack(RIP), AUX);
    asm.jmp_mem(Mem::At(Reg::RAX, Record::LEAVE));
    asm.bind(end);
    let end = asm.here();
    load_registers(asm);
    asm.lea(Reg::RSP, stack(place));
    asm.ret();
    (start, end)
}
