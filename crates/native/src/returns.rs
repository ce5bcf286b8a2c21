//! How the returns of functions are traced.
//!
//! ```text
//! header:  "ctstubs1", distance of the addresses
//! stub 0:  call *-16(%rsp); push $0; jmp leave      addresses[0]: where calls with this stub return to
//! stub 1:  call *-16(%rsp); push $1; jmp leave      addresses[1]
//! ```
//!
//! A traced call is made again by a stub: the return address of the function is replaced by that of the stub's call. The stack is as the
//! function expects it, with its arguments. A stub belongs to one return address for good, so that a call returns correctly whatever has
//! happened meanwhile: stacks may be left, copied and resumed by other threads, and a `vfork` returns twice.
//!
//! What the programs keep from the entry to the return is in slots, see `returns.c`. Stubs are code; addresses and slots are memory of the
//! process alone, which a child of `fork` inherits.
//!
//! Our own stack walks look up the addresses of stubs that they meet, those of other sessions by the header (`find_rule` of `stacks.c`).
//! Unwinders find the frames of the stubs by a table, which a [`Hook`] presents to them: a library that unwinds
//! asks `_Unwind_Find_FDE` or `_dl_find_object` for the table of an address.

use crate::Image;
use crate::calls::function;
use crate::context;
use crate::layout;
use crate::x86::{Assembler, Cond, Mem, Op, Reg, Width};
use std::ops::Range;

/// Bytes of a stub.
const STUB: u64 = 16;
/// Offset in a stub of its jump, before which it has pushed its number.
const AFTER_PUSH: u8 = 9;
/// The first word of the header.
const HEADER_MAGIC: [u8; 8] = *b"ctstubs1";
/// Offset in the area of the unwind rules that were found lately, see `stacks.c`, and of the addresses, which follow.
const RULES: u64 = layout::PAGE;
const ADDRESSES: u64 = RULES + 512 * 16;
/// Bytes of an address, and of a slot.
const ADDRESS: u64 = 8;
const SLOT: u64 = 64;
/// Sessions that a slot has room for, and sessions of a function at most.
const SLOT_SESSIONS: u64 = 5;
const MAX_SESSIONS: u64 = 31;
/// Bytes of further sessions per slot.
const MORE: u64 = 8 * (MAX_SESSIONS - SLOT_SESSIONS);
/// Number of slots: calls that are running at the same time, in all threads.
const SLOTS: u64 = 1 << 14;
/// Return addresses per function, on average, and bounds of their number. The stubs are memory of the process. A program registers each of its
/// kernels by a call of the runtime that it makes once: PyTorch has 35 000 of these.
const PER_FUNCTION: u64 = 128;
const MIN_STUBS: u64 = 1 << 15;
const MAX_STUBS: u64 = 1 << 18;

/// Offset in the area of a u64: if it is not 0, no program runs at a return any more.
pub const SILENT: u64 = 56;
/// Offset in the area of a u64: calls whose slot another call has taken, since the call had been left.
const REPLACED: u64 = 64;
/// Bits of a slot's first word: the place of the return address on the stack.
const PLACE: u64 = 0xffff_ffff_fff8;

/// Where the memory for returns is, and the code that uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returns {
    size: ReturnsSize,
    /// Offset in the region of the memory.
    area: u64,
    /// Offsets of the helper `call_enters`, of the first stub, of the common code after a return, and of its end.
    enters: u64,
    stubs: u64,
    left: u64,
    /// Offset of the index of the unwind table, which follows.
    table: u64,
}

/// Sizes, which depend on the number of functions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReturnsSize {
    stubs: u64,
}

impl ReturnsSize {
    /// Sizes for a number of functions.
    pub fn of(functions: usize) -> ReturnsSize {
        let stubs = (functions as u64 * PER_FUNCTION).next_power_of_two();
        ReturnsSize { stubs: stubs.clamp(MIN_STUBS, MAX_STUBS) }
    }

    /// Bytes of code.
    pub fn code(self) -> u64 {
        self.stubs * STUB + layout::PAGE
    }

    /// Bytes of memory of the process alone.
    pub fn area(self) -> u64 {
        ADDRESSES + self.stubs * ADDRESS + SLOTS * (SLOT + MORE)
    }

    /// Offsets in the area.
    fn slots(self) -> u64 {
        ADDRESSES + self.stubs * ADDRESS
    }
}

impl Returns {
    /// Generates the code for an offset in the region, and `area`, the offset of the memory. `image`: code with the helpers.
    /// `region`: address of the region.
    pub fn generate(
        size: ReturnsSize,
        start: u64,
        area: u64,
        image: &Image,
        region: u64,
    ) -> (Returns, Vec<u8>) {
        let helper = |number: usize| image.helpers[number].1;
        let mut asm = Assembler::new(start);
        let (leave, left) = context::leave(&mut asm, helper(function::CALL_RETURNS), area);
        asm.align(STUB);
        let addresses = area + ADDRESSES - asm.here();
        asm.raw(&[HEADER_MAGIC, addresses.to_le_bytes()].concat());
        let stubs = asm.here();
        asm.raw(&stub_code(stubs, size.stubs, leave));
        let returns =
            Returns { size, area, enters: helper(function::CALL_ENTERS), stubs, left, table: asm.here() };
        asm.raw(&returns.unwind_table(region));
        (returns, asm.finish())
    }

    /// Contents of the area at the start: `struct returns` of `returns.c`.
    pub fn contents(&self) -> Vec<u8> {
        let relative = |offset: u64| offset.wrapping_sub(self.area);
        let slots = self.size.slots();
        let masks = (self.size.stubs - 1) | (SLOTS - 1) << 32;
        let more = slots + SLOTS * SLOT;
        let (lost, active) = (relative(layout::LOST_RETURNS), relative(layout::ACTIVE));
        let words = [relative(self.stubs), ADDRESSES, slots, more, MORE, lost, masks, 0, 0, 0, active];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Offset of the memory in the region.
    pub fn area(&self) -> u64 {
        self.area
    }

    /// Offset of the helper that remembers a call.
    pub(crate) fn enters(&self) -> u64 {
        self.enters
    }

    /// Offset of the code that the return side of a dispatch jumps to.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Offset after the stubs.
    fn stubs_end(&self) -> u64 {
        self.stubs + STUB * self.size.stubs
    }

    /// Offsets of the slots in the area.
    pub fn slots(&self) -> Range<u64> {
        self.size.slots()..self.size.slots() + SLOTS * SLOT
    }

    /// `.eh_frame` of the stubs and, in front of it, its index as in `.eh_frame_hdr`.
    ///
    /// A stub has not changed any register of the caller. Its frame has no words while the call runs. After the return it has one. The
    /// return address is in the table of addresses, by the number of the stub.
    fn unwind_table(&self, region: u64) -> Vec<u8> {
        let frames = self.table + INDEX;
        // Version 1, "zR", factors 1 and -8, return address in column 16, one byte of data: the form of addresses.
        let cie = dwarf::entry(0, &[1, b'z', b'R', 0, 1, 0x78, 16, 1, dwarf::PCREL_SDATA4]);
        let fde_at = frames + cie.len() as u64;
        // Its address follows its length and its distance to the CIE.
        let begin = self.stubs.wrapping_sub(fde_at + 8) as u32;
        let size = (self.stubs_end() - self.stubs) as u32;
        let mut fde = [begin.to_le_bytes(), size.to_le_bytes()].concat();
        // No augmentation data.
        fde.push(0);
        fde.extend(dwarf::rule(&[dwarf::DEF_CFA_EXPRESSION], &frame_address()));
        // The operand begins with the frame address.
        let caller = [dwarf::literal(1), dwarf::MINUS];
        fde.extend(dwarf::rule(&[dwarf::VALUE_EXPRESSION, dwarf::RSP_COLUMN], &caller));
        fde.extend(dwarf::rule(&[dwarf::EXPRESSION, dwarf::RETURN_COLUMN], &self.return_address(region)));
        let fde = dwarf::entry(cie.len() as u32 + 4, &fde);
        let relative = |to: u64, from: u64| (to.wrapping_sub(from) as u32).to_le_bytes();
        let index = [
            [1, dwarf::PCREL_SDATA4, dwarf::UDATA4, dwarf::DATAREL_SDATA4],
            relative(frames, self.table + 4),
            1u32.to_le_bytes(),
            relative(self.stubs, self.table),
            relative(fde_at, self.table),
        ];
        [&index.concat(), &cie[..], &fde, &[0; 4]].concat()
    }

    /// The place of the return address: in the table of addresses, by the number of the stub.
    fn return_address(&self, region: u64) -> Vec<u8> {
        let address = |offset: u64| (region + offset).to_le_bytes();
        let mut expression = vec![dwarf::RIP, 0, dwarf::ADDRESS];
        expression.extend(address(self.stubs));
        expression.extend([dwarf::MINUS, dwarf::literal(4), dwarf::SHR, dwarf::literal(3), dwarf::SHL]);
        expression.push(dwarf::ADDRESS);
        expression.extend(address(self.area + ADDRESSES));
        expression.push(dwarf::PLUS);
        expression
    }
}

/// Code of stubs for an offset in the region, which jump to `leave`.
fn stub_code(start: u64, count: u64, leave: u64) -> Vec<u8> {
    let mut first = Assembler::new(start);
    // The word is that before the place of the return address, which is popped.
    first.call_mem(Mem::At(Reg::RSP, -16));
    first.push_imm(0);
    first.jmp_region(leave);
    first.align(STUB);
    let mut code = first.finish().repeat(count as usize);
    for (number, stub) in code.chunks_exact_mut(STUB as usize).enumerate() {
        let jump = AFTER_PUSH as usize;
        stub[jump - 4..jump].copy_from_slice(&(number as u32).to_le_bytes());
        let distance = leave.wrapping_sub(start + number as u64 * STUB + jump as u64 + 5) as u32;
        stub[jump + 1..jump + 5].copy_from_slice(&distance.to_le_bytes());
    }
    code
}

/// The canonical frame address of a stub, which is the caller's stack pointer: 8 bytes more after the push. Stubs are aligned to their
/// size.
///
/// One byte is added, and subtracted in the rule of the stack pointer. libgcc identifies a frame by the address of the frame that it has
/// called: a stub without a word of its own would be taken for its caller.
fn frame_address() -> Vec<u8> {
    let is_pushed =
        [dwarf::RIP, 0, dwarf::literal(STUB as u8 - 1), dwarf::AND, dwarf::literal(AFTER_PUSH), dwarf::EQ];
    let bytes = [dwarf::literal(3), dwarf::SHL, dwarf::PLUS, dwarf::literal(1), dwarf::PLUS];
    [&[dwarf::RSP, 0][..], &is_pushed, &bytes].concat()
}

/// Whether calls have slots, or had slots that others have taken before they returned. `area`: the memory, at least up to the end of its
/// slots.
///
/// A call that has a slot may have been left, but its stack may also have been copied, as some coroutines do. Where another call has
/// taken its slot, nothing tells.
pub fn has_calls(area: &[u8], slots: &Range<u64>) -> bool {
    // The process may have written anything into a description of the memory: beyond it there is nothing.
    let word = |at: u64| area.get(at as usize..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let mut places = slots.clone().step_by(SLOT as usize).filter_map(word).map(|slot| slot & PLACE);
    word(REPLACED).is_some_and(|replaced| replaced > 0) || places.any(|place| place != 0)
}

/// Size of the index in front of the table.
const INDEX: u64 = 20;

/// Numbers of the DWARF standard.
mod dwarf {
    pub(super) const DEF_CFA_EXPRESSION: u8 = 0x0f;
    pub(super) const EXPRESSION: u8 = 0x10;
    pub(super) const VALUE_EXPRESSION: u8 = 0x16;
    pub(super) const RSP_COLUMN: u8 = 7;
    pub(super) const RETURN_COLUMN: u8 = 16;
    pub(super) const ADDRESS: u8 = 0x03;
    pub(super) const AND: u8 = 0x1a;
    pub(super) const MINUS: u8 = 0x1c;
    pub(super) const PLUS: u8 = 0x22;
    pub(super) const SHL: u8 = 0x24;
    pub(super) const SHR: u8 = 0x25;
    pub(super) const EQ: u8 = 0x29;
    /// `DW_OP_breg7` and `DW_OP_breg16`: a register of the frame, plus a constant that follows.
    pub(super) const RSP: u8 = 0x77;
    pub(super) const RIP: u8 = 0x80;
    /// Forms of pointers.
    pub(super) const UDATA4: u8 = 0x03;
    pub(super) const PCREL_SDATA4: u8 = 0x1b;
    pub(super) const DATAREL_SDATA4: u8 = 0x3b;

    /// A small constant in an expression.
    pub(super) fn literal(value: u8) -> u8 {
        0x30 + value
    }

    /// A rule whose operand is an expression.
    pub(super) fn rule(operation: &[u8], expression: &[u8]) -> Vec<u8> {
        [operation, &[expression.len() as u8], expression].concat()
    }

    /// An entry of `.eh_frame`: length, id, contents, padding.
    pub(super) fn entry(id: u32, contents: &[u8]) -> Vec<u8> {
        let len = (4 + contents.len()).next_multiple_of(4);
        let mut bytes = [&(len as u32).to_le_bytes()[..], &id.to_le_bytes(), contents].concat();
        // DW_CFA_nop
        bytes.resize(4 + len, 0);
        bytes
    }
}

/// A function by which unwinders find the table of an address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// `const fde *_Unwind_Find_FDE(void *pc, struct dwarf_eh_bases *bases)` of libgcc
    FindFde,
    /// `int _dl_find_object(void *pc, struct dl_find_object *result)` of the C library, which libgcc has used since version 12
    FindObject,
}

impl Hook {
    /// All, with their symbols.
    pub const ALL: [(Hook, &str); 2] =
        [(Hook::FindFde, "_Unwind_Find_FDE"), (Hook::FindObject, "_dl_find_object")];
    /// Words of `struct dl_find_object`, of which the fifth is the address of the index.
    const OBJECT_WORDS: i32 = 12;

    /// The code that answers for the stubs, for an offset in the region. Other addresses are left to the function, by a jump to `moved`:
    /// its moved instructions, without the first one. `undo`: bytes by which that has lowered the stack pointer.
    ///
    /// A caller in another library counts on neither r11 nor the flags; rax may be a result of the first instruction.
    pub fn detour(self, returns: &Returns, at: u64, undo: u32, moved: u64) -> Vec<u8> {
        let other = moved;
        let mut asm = Assembler::new(at);
        let moved = asm.label();
        asm.push(Reg::RAX);
        asm.lea(Reg::RAX, Mem::Region(returns.stubs));
        asm.mov(true, Reg::R11, Reg::RDI);
        asm.alu(Op::Sub, true, Reg::R11, Reg::RAX);
        asm.alu_imm(Op::Cmp, true, Reg::R11, (returns.stubs_end() - returns.stubs) as i32);
        asm.jcc(Cond::AboveEqual, moved);
        asm.lea(Reg::RSP, Mem::At(Reg::RSP, 8 + undo as i32));
        let field = |word: i32| Mem::At(Reg::RSI, 8 * word);
        match self {
            // Bases of text and data, start of the function.
            Hook::FindFde => {
                asm.store_imm(Width::W64, field(0), 0);
                asm.store_imm(Width::W64, field(1), 0);
                asm.store(Width::W64, field(2), Reg::RAX);
                asm.lea(Reg::RAX, Mem::Region(returns.table + INDEX + CIE));
            }
            // Flags, start and end, no description of a library, index.
            Hook::FindObject => {
                for word in [0, 3].into_iter().chain(5..Hook::OBJECT_WORDS) {
                    asm.store_imm(Width::W64, field(word), 0);
                }
                asm.store(Width::W64, field(1), Reg::RAX);
                asm.lea(Reg::RAX, Mem::Region(returns.stubs_end()));
                asm.store(Width::W64, field(2), Reg::RAX);
                asm.lea(Reg::RAX, Mem::Region(returns.table));
                asm.store(Width::W64, field(4), Reg::RAX);
                asm.alu(Op::Xor, false, Reg::RAX, Reg::RAX);
            }
        }
        asm.ret();
        asm.bind(moved);
        asm.pop(Reg::RAX);
        asm.raw(&far_jump(other));
        asm.finish()
    }
}

/// `jmp *0(%rip)` and the address.
pub fn far_jump(to: u64) -> Vec<u8> {
    [&[0xff, 0x25, 0, 0, 0, 0][..], &to.to_le_bytes()].concat()
}

/// Size of the CIE, which precedes the FDE of the stubs.
const CIE: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_unwind_table_have_the_sizes_that_others_count_on() {
        let size = ReturnsSize::of(1);
        let returns = Returns { size, area: 1 << 20, enters: 0, stubs: 0x1000, left: 0, table: 0x20_000 };
        let table = returns.unwind_table(0x7f00_0000_0000);
        let word = |at: u64| u32::from_le_bytes(table[at as usize..][..4].try_into().expect("4 bytes"));
        assert_eq!(u64::from(word(INDEX)) + 4, CIE);
        assert_eq!(u64::from(word(INDEX - 4)), INDEX + CIE, "the index leads to the FDE");
        assert_eq!(u64::from(word(INDEX + CIE + 4)), CIE + 4, "which leads to the CIE");
        assert_eq!(word(table.len() as u64 - 4), 0, "the end");
    }

    #[test]
    fn numbers_of_stubs_are_bounded() {
        assert_eq!(ReturnsSize::of(0).stubs, MIN_STUBS);
        assert_eq!(ReturnsSize::of(700).stubs, 1 << 17);
        assert_eq!(ReturnsSize::of(1 << 20).stubs, MAX_STUBS);
    }
}
