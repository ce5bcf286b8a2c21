//! The address of a probe within a function: the cheapest instruction that observes the same state as the first.
//!
//! The kernel emulates a few instructions (`push reg`, `nop`, relative `call` and jumps) and single-steps all others, which costs
//! ten times as much. Many functions start with `endbr64`, `sub` or `mov`; a probe a few bytes further is then cheaper. The
//! probe's meaning must not change:
//!
//! - the skipped code is straight-line, so that every entry of the function reaches the new address;
//! - no skipped instruction writes an argument: an argument register, or memory other than a local of the function;
//! - the change of the stack pointer is known, so that stack arguments can be located ([`CodePosition::stack_shift`]);
//! - no jump of the function leads to a skipped byte or to the new address, otherwise calls would be counted twice.
//!
//! A return probe reads the return address at the stack pointer, so that it may skip an `endbr64` and nothing else.
//!
//! The set of emulated instructions is that of `arch/x86/kernel/uprobes.c` (`push_setup_xol_ops`, `branch_setup_xol_ops`).
//! Not here: reading the file (`elf`); other instruction sets, whose probes stay at the first instruction.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpKind, Register,
    UsedMemory,
};

pub use crate::branches::Body;
use crate::branches::{ENDBR64, Indirect, decoder, is_push, search, writes};

/// Largest distance in bytes by which an entry probe is moved.
const MAX_MOVE: u64 = 64;

/// A position relative to the first instruction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CodePosition {
    /// Distance from the start in bytes.
    pub bytes: u64,
    /// Bytes that were pushed between the start and the position.
    pub stack_shift: u32,
}

/// Position for an entry probe.
pub fn entry_place(body: Body<'_>) -> CodePosition {
    let known_size = body.size != 0;
    match straight_line(body.code, body.end(), known_size) {
        Some(place) if place.bytes > 0 && is_reached_from_start_only(body, place.bytes) => place,
        _ => return_place(body),
    }
}

/// Position for a return probe or a session.
pub fn return_place(body: Body<'_>) -> CodePosition {
    let mut decoder = decoder(body.code, 0);
    let passes = decoder.decode().code() == Code::Endbr64 && is_cheap(&decoder.decode());
    let length = ENDBR64.len() as u64;
    let allowed = passes && length < body.end() && is_reached_from_start_only(body, length);
    CodePosition { bytes: if allowed { length } else { 0 }, stack_shift: 0 }
}

/// Largest distance of a probe from the start of its function, in bytes.
pub const LARGEST_DISTANCE: u64 = MAX_MOVE;

/// Whether a probe of the function whose code this is may be this number of bytes after its start.
pub fn may_be_probed_at(code: &[u8], bytes: u64) -> bool {
    let is_after_endbr = bytes == ENDBR64.len() as u64 && code.starts_with(&ENDBR64);
    is_after_endbr || straight_line(code, MAX_MOVE, true).is_some_and(|place| place.bytes == bytes)
}

/// The range of the instruction that begins at or contains `at`, if decoding from the start of the code reaches
/// it.
pub fn instruction_at(code: &[u8], at: u64) -> Option<std::ops::Range<u64>> {
    let mut decoder = decoder(code, 0);
    while decoder.ip() <= at && decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        if instruction.next_ip() > at {
            return Some(instruction.ip()..instruction.next_ip());
        }
    }
    None
}

/// Whether the kernel emulates the instruction, or patches it (the 5-byte `nop`, from 6.18 on). Longer `nop`s are
/// single-stepped.
fn is_cheap(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Push_r64 | Code::Nopd | Code::Nopw => true,
        Code::Nop_rm32 => instruction.len() == 5,
        Code::Call_rel32_64 | Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => true,
        _ => instruction.is_jcc_short() || instruction.is_jcc_near(),
    }
}

/// The first cheap instruction in the straight-line code of the prologue.
fn straight_line(code: &[u8], limit: u64, beyond_endbr: bool) -> Option<CodePosition> {
    let mut info = InstructionInfoFactory::new();
    let mut decoder = decoder(code, 0);
    let mut stack_shift = 0;
    while decoder.ip() < limit.min(MAX_MOVE) {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        if is_cheap(&instruction) {
            let stack_shift = u32::try_from(stack_shift).ok()?;
            return Some(CodePosition { bytes: instruction.ip(), stack_shift });
        }
        let is_first_endbr = instruction.code() == Code::Endbr64 && instruction.ip() == 0;
        if !is_first_endbr && (!beyond_endbr || !keeps_arguments(&instruction, &mut info, stack_shift)) {
            return None;
        }
        stack_shift += pushed(&instruction)?;
    }
    None
}

/// Whether all arguments are still in their locations after this instruction.
fn keeps_arguments(instruction: &Instruction, info: &mut InstructionInfoFactory, stack_shift: i64) -> bool {
    // A landing pad after the first instruction is the target of a jump.
    if instruction.flow_control() != FlowControl::Next
        || instruction.code() == Code::Endbr64
        || instruction.has_lock_prefix()
    {
        return false;
    }
    let used = info.info(instruction);
    let registers_kept =
        used.used_registers().iter().all(|used| !writes(used.access()) || !is_argument(used.register()));
    registers_kept
        && used.used_memory().iter().all(|used| !writes(used.access()) || is_local(used, stack_shift))
}

/// Whether the System V ABI passes arguments in the register; `%al`, the number of vector registers, is excluded.
pub(crate) fn is_argument(register: Register) -> bool {
    let vector = register.is_vector_register() && register.number() < 8;
    let integer = matches!(
        register.full_register(),
        Register::RDI | Register::RSI | Register::RDX | Register::RCX | Register::R8 | Register::R9
    );
    vector || integer || register.is_segment_register()
}

/// Whether the accessed memory is entirely below the return address.
fn is_local(used: &UsedMemory, stack_shift: i64) -> bool {
    let size = match used.memory_size() {
        MemorySize::Unknown => return false,
        size => size.size() as i64,
    };
    let displacement = used.displacement() as i64;
    used.base() == Register::RSP
        && used.index() == Register::None
        && displacement.checked_add(size).is_some_and(|end| size > 0 && end <= stack_shift)
}

/// Bytes by which the instruction lowers the stack pointer; `None` if the change cannot be determined.
fn pushed(instruction: &Instruction) -> Option<i64> {
    let is_rsp = |operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand) == Register::RSP
    };
    if instruction.is_stack_instruction() {
        let bytes = -i64::from(instruction.stack_pointer_increment());
        return (instruction.mnemonic() == Mnemonic::Push && bytes > 0).then_some(bytes);
    }
    if instruction.op_count() == 0 || !is_rsp(0) {
        let full = |operand| {
            instruction.op_kind(operand) == OpKind::Register
                && instruction.op_register(operand).full_register() == Register::RSP
        };
        // `esp`, or the stack pointer as a second written operand (`xchg`).
        let touched = (0..instruction.op_count()).any(full) && instruction.mnemonic() == Mnemonic::Xchg;
        let partly = instruction.op_count() > 0 && full(0);
        return (!touched && !partly).then_some(0);
    }
    let bytes = match instruction.mnemonic() {
        Mnemonic::Sub => immediate(instruction)?,
        Mnemonic::Lea
            if instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None =>
        {
            (instruction.memory_displacement64() as i64).checked_neg()?
        }
        // These instructions only read the register.
        Mnemonic::Cmp | Mnemonic::Test => 0,
        _ => return None,
    };
    // For larger frames the function probes its stack in a loop.
    (0..=1 << 20).contains(&bytes).then_some(bytes)
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    matches!(instruction.op_kind(1), OpKind::Immediate8to64 | OpKind::Immediate32to64)
        .then(|| instruction.immediate(1) as i64)
}

/// Whether no jump leads to `(start, start + moved]`. With an unknown size this is an assumption, which is made
/// only for `endbr64`.
fn is_reached_from_start_only(body: Body<'_>, moved: u64) -> bool {
    if body.size == 0 {
        return moved == ENDBR64.len() as u64;
    }
    search(body, 1..moved + 1, indirect_jumps(body.code, moved)).is_ok()
}

fn indirect_jumps(code: &[u8], moved: u64) -> Indirect {
    let behind_endbr = code.strip_prefix(&ENDBR64).filter(|_| moved == ENDBR64.len() as u64);
    match behind_endbr {
        // Only a `push` follows, which compilers do not place in loops and cases.
        Some(rest) if is_push(&decoder(rest, 0).decode()) => Indirect::Harmless,
        _ if code.starts_with(&ENDBR64) => Indirect::HarmlessUnmarked,
        _ => Indirect::Suspect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_may_be_after_instructions_that_change_nothing() {
        // endbr64; sub $8,%rsp; push %rbx
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x53];
        let places: Vec<u64> = (1..9).filter(|bytes| may_be_probed_at(&code, *bytes)).collect();
        assert_eq!(places, [4, 8]);
        assert!(!may_be_probed_at(&code[4..], 1) && may_be_probed_at(&code[4..], 4));
    }

    #[test]
    fn instructions_are_followed_from_the_start() {
        // mov %esi,%eax; add 0x50(%rdi),%eax; ret; and a byte that is invalid in 64-bit mode
        let code = [0x89, 0xf0, 0x03, 0x47, 0x50, 0xc3, 0x06];
        let ranges = [0..2, 0..2, 2..5, 2..5, 2..5, 5..6];
        for (at, range) in ranges.into_iter().enumerate() {
            assert_eq!(instruction_at(&code, at as u64), Some(range), "{at}");
        }
        assert_eq!((instruction_at(&code, 6), instruction_at(&code[..6], 6)), (None, None));
    }
}
