//! The instructions that give way to a jump, at their new address.
//!
//! ```text
//! from: push %rbp; lea table(%rip),%rax; je 1f     to: lea table(%rip),%rax; je 1f; jmp from+9
//! ```
//!
//! Displacements relative to `%rip` and branches keep their absolute targets, also where a target is within the function: its own
//! address stays what the rest of the program knows. Short branches become near branches. All other instructions are copied.
//!
//! Not here: whether a function may be patched (`host::patch`), writing to a process (`runtime`).

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use thiserror::Error;

/// Size of a jump to a 32-bit displacement, in bytes.
pub const JUMP: usize = 5;
const JMP_REL32: u8 = 0xe9;

/// The reason why instructions cannot be moved.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MoveError {
    /// Bytes that are no instruction, or only the first part of one.
    #[error("the bytes at {at:#x} are no instruction")]
    Undecodable {
        /// Address of the bytes.
        at: u64,
    },
    /// `call` that is not the last one, `loop`, `xbegin`, or a branch to one of the moved instructions.
    #[error("the instruction at {at:#x} cannot be moved")]
    Unmovable {
        /// Address of the instruction.
        at: u64,
    },
    /// A displacement has 32 bits.
    #[error("{target:#x} is not within 2 GiB of {at:#x}")]
    OutOfReach {
        /// Address of the moved instruction.
        at: u64,
        /// Address to which it refers.
        target: u64,
    },
}

/// Instructions at their new address, and a jump to the instruction after the original ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedCode {
    /// The code at the new address.
    pub code: Vec<u8>,
    /// Offset of each instruction in the original bytes and in `code`; the last pair is the end of the original bytes and the jump.
    pub starts: Vec<(u8, u8)>,
}

impl MovedCode {
    /// Offset in the code that corresponds to an offset in the original bytes, for a thread that has stopped there. `None` if no
    /// instruction begins there.
    pub fn offset(&self, original: u64) -> Option<u64> {
        let start = self.starts.iter().find(|(from, _)| u64::from(*from) == original)?;
        Some(start.1.into())
    }
}

/// A jump at `at` to `to`.
///
/// # Errors
/// [`MoveError::OutOfReach`]
pub fn jump(at: u64, to: u64) -> Result<[u8; JUMP], MoveError> {
    let [a, b, c, d] = displacement(at, at.wrapping_add(JUMP as u64), to)?;
    Ok([JMP_REL32, a, b, c, d])
}

/// The whole instructions `bytes`, which are located at `from`, for the address `to`; a jump to `from + bytes.len()` follows.
///
/// # Errors
/// A [`MoveError`] if an instruction has another effect at `to`.
pub fn moved(bytes: &[u8], from: u64, to: u64) -> Result<MovedCode, MoveError> {
    let end = from.wrapping_add(bytes.len() as u64);
    let mut moved = MovedCode { code: Vec::new(), starts: Vec::new() };
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let start = instruction.ip().wrapping_sub(from) as usize;
        if instruction.is_invalid() {
            return Err(MoveError::Undecodable { at: instruction.ip() });
        }
        moved.begin(start)?;
        let original = OriginalInstruction {
            instruction,
            bytes: &bytes[start..start + instruction.len()],
            range: (from, end),
        };
        let at = to.wrapping_add(moved.code.len() as u64);
        let displaced = decoder.get_constant_offsets(&instruction).displacement_offset();
        moved.code.extend(original.at(at, displaced)?);
    }
    moved.begin(bytes.len())?;
    moved.code.extend(jump(to.wrapping_add(moved.code.len() as u64), end)?);
    Ok(moved)
}

impl MovedCode {
    fn begin(&mut self, original: usize) -> Result<(), MoveError> {
        let start = u8::try_from(original).ok().zip(u8::try_from(self.code.len()).ok());
        self.starts.push(start.ok_or(MoveError::Unmovable { at: original as u64 })?);
        Ok(())
    }
}

/// An instruction at its original address.
struct OriginalInstruction<'a> {
    instruction: Instruction,
    bytes: &'a [u8],
    /// First address and end of all moved instructions.
    range: (u64, u64),
}

impl OriginalInstruction<'_> {
    /// The instruction at another address. `displaced`: offset of its displacement.
    fn at(&self, at: u64, displaced: usize) -> Result<Vec<u8>, MoveError> {
        let instruction = &self.instruction;
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                self.branch(&[JMP_REL32], at)
            }
            FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
                self.branch(&[0x0f, 0x80 | self.condition()], at)
            }
            FlowControl::Next
            | FlowControl::Return
            | FlowControl::IndirectBranch
            | FlowControl::Exception => self.copied(at, displaced),
            FlowControl::Call if instruction.is_call_near() && instruction.next_ip() == self.range.1 => {
                self.call(at)
            }
            // Padding after the function.
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => self.copied(at, displaced),
            _ => Err(self.unmovable()),
        }
    }

    fn unmovable(&self) -> MoveError {
        MoveError::Unmovable { at: self.instruction.ip() }
    }

    /// The low half of the opcode: the condition of `0x70` and of `0x0f 0x80`.
    fn condition(&self) -> u8 {
        let opcode = self.bytes.len() - if self.instruction.is_jcc_short() { 2 } else { 5 };
        self.bytes[opcode] & 0xf
    }

    /// A near branch with the same target. Prefixes of branches are hints.
    fn branch(&self, opcode: &[u8], at: u64) -> Result<Vec<u8>, MoveError> {
        let target = self.instruction.near_branch_target();
        if (self.range.0..self.range.1).contains(&target) {
            return Err(self.unmovable());
        }
        let next = at.wrapping_add((opcode.len() + 4) as u64);
        Ok([opcode, &displacement(at, next, target)?].concat())
    }

    /// A call that returns to the instruction after the original one, not to the copy: `push end(%rip); jmp target; end: .quad`. So
    /// unwinders know the caller.
    fn call(&self, at: u64) -> Result<Vec<u8>, MoveError> {
        let push = [0xff, 0x35, JUMP as u8, 0, 0, 0];
        let target = self.instruction.near_branch_target();
        if (self.range.0..self.range.1).contains(&target) {
            return Err(self.unmovable());
        }
        let jump = jump(at.wrapping_add(push.len() as u64), target)?;
        Ok([&push[..], &jump, &self.range.1.to_le_bytes()].concat())
    }

    /// The bytes, with a displacement relative to `%rip` adjusted.
    fn copied(&self, at: u64, displaced: usize) -> Result<Vec<u8>, MoveError> {
        let mut bytes = self.bytes.to_vec();
        if self.instruction.memory_base() == Register::EIP {
            return Err(self.unmovable());
        }
        if self.instruction.is_ip_rel_memory_operand() {
            let next = at.wrapping_add(bytes.len() as u64);
            let new = displacement(at, next, self.instruction.ip_rel_memory_address())?;
            bytes[displaced..displaced + 4].copy_from_slice(&new);
        }
        Ok(bytes)
    }
}

/// The displacement from the instruction after `at` to `target`.
fn displacement(at: u64, next: u64, target: u64) -> Result<[u8; 4], MoveError> {
    let distance = target.wrapping_sub(next) as i64;
    let distance = i32::try_from(distance).map_err(|_| MoveError::OutOfReach { at, target })?;
    Ok(distance.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: u64 = 0x7f00_0000_1000;
    const TO: u64 = 0x7f00_1000_0000;

    fn at(instruction: &[u8]) -> Vec<u8> {
        let mut moved = moved(instruction, FROM, TO).expect("movable").code;
        let back = moved.split_off(moved.len() - JUMP);
        let expected = jump(TO + moved.len() as u64, FROM + instruction.len() as u64).expect("near");
        assert_eq!(back, expected, "a jump back");
        moved
    }

    /// Instructions and their targets: all operands that are relative to `%rip`.
    fn decoded(code: &[u8], ip: u64) -> Vec<(Mnemonic, Option<u64>)> {
        let target = |i: &Instruction| match i.is_ip_rel_memory_operand() {
            true => Some(i.ip_rel_memory_address()),
            false => (i.near_branch_target() != 0).then(|| i.near_branch_target()),
        };
        let decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
        decoder.into_iter().map(|i| (i.mnemonic(), target(&i))).collect()
    }

    #[test]
    fn plain_instructions_are_copied() {
        // mov %rsp,%rbp; sub $24,%rsp; ret; int3; jmp *%rax; ud2
        for code in [
            &[0x48, 0x89, 0xe5][..],
            &[0x48, 0x83, 0xec, 0x18],
            &[0xc3],
            &[0xcc],
            &[0xff, 0xe0],
            &[0x0f, 0x0b],
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], // mov %fs:0x28,%rax
        ] {
            assert_eq!(at(code), code);
        }
    }

    #[test]
    fn memory_operands_keep_their_address() {
        for code in [
            &[0x48, 0x8d, 0x05, 0x10, 0, 0, 0][..], // lea 16(%rip),%rax
            &[0x83, 0x3d, 0x10, 0, 0, 0, 0x05],     // cmpl $5,16(%rip)
            &[0x48, 0xc7, 0x05, 0xf0, 0xff, 0xff, 0xff, 1, 0, 0, 0], // movq $1,-16(%rip)
            &[0xff, 0x25, 0x10, 0, 0, 0],           // jmp *16(%rip)
            &[0xc5, 0xf8, 0x28, 0x05, 0x10, 0, 0, 0], // vmovaps 16(%rip),%xmm0
        ] {
            let moved = at(code);
            assert_eq!(moved.len(), code.len());
            assert_eq!(decoded(&moved, TO), decoded(code, FROM), "{code:02x?}");
            assert_ne!(moved, code);
        }
    }

    #[test]
    fn branches_keep_their_target_and_become_near() {
        for code in [
            &[0xeb, 0x10][..],
            &[0x74, 0xf0],
            &[0x7f, 0x10],
            &[0xe9, 0, 1, 0, 0],
            &[0x0f, 0x82, 0, 1, 0, 0],
            &[0x2e, 0x75, 0x10], // a hint
        ] {
            let moved = at(code);
            assert_eq!(decoded(&moved, TO), decoded(code, FROM), "{code:02x?}");
            assert_eq!(moved.len(), if moved[0] == JMP_REL32 { 5 } else { 6 });
        }
    }

    #[test]
    fn a_call_returns_to_the_original_code() {
        // nop; call +0x100
        let moved = moved(&[0x90, 0xe8, 0, 1, 0, 0], FROM, TO).expect("movable");
        let (code, end) = moved.code.split_at(12);
        let target = FROM + 6 + 0x100;
        let meant = [(Mnemonic::Nop, None), (Mnemonic::Push, Some(TO + 12)), (Mnemonic::Jmp, Some(target))];
        assert_eq!(decoded(code, TO), meant);
        assert_eq!(end[..8], (FROM + 6).to_le_bytes());
    }

    #[test]
    fn a_reference_to_the_function_itself_keeps_the_original_address() {
        // lea FROM(%rip),%rax
        let code = [0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff];
        assert_eq!(decoded(&at(&code), TO), [(Mnemonic::Lea, Some(FROM))]);
    }

    #[test]
    fn each_instruction_is_found_at_its_new_offset() {
        // je +16; nop; jmp +16
        let moved = moved(&[0x74, 0x10, 0x90, 0xeb, 0x10], FROM, TO).expect("movable");
        assert_eq!(moved.starts, [(0, 0), (2, 6), (3, 7), (5, 12)]);
        let offsets: Vec<_> = (0..7).map(|original| moved.offset(original)).collect();
        assert_eq!(offsets, [Some(0), None, Some(6), Some(7), None, Some(12), None]);
    }

    #[test]
    fn instructions_with_another_effect_elsewhere_are_refused() {
        for code in [
            &[0xe8, 0, 0, 0, 0, 0x90][..],         // call, and not the last one
            &[0xe8, 0xfb, 0xff, 0xff, 0xff],       // a call of itself
            &[0xff, 0xd0],                         // call *%rax
            &[0x0f, 0x05],                         // syscall
            &[0xcd, 0x80],                         // int $0x80
            &[0xe2, 0x10],                         // loop
            &[0xe3, 0x10],                         // jrcxz
            &[0xc7, 0xf8, 0, 1, 0, 0],             // xbegin
            &[0x67, 0x48, 0x8d, 0x05, 0, 0, 0, 0], // lea 0(%eip),%rax
            &[0xeb, 0xfe],                         // a jump to itself
        ] {
            assert_eq!(moved(code, FROM, TO), Err(MoveError::Unmovable { at: FROM }), "{code:02x?}");
        }
        for code in [&[0x06][..], &[0x48, 0x8d]] {
            assert_eq!(moved(code, FROM, TO), Err(MoveError::Undecodable { at: FROM }), "{code:02x?}");
        }
    }

    #[test]
    fn displacements_have_32_bits() {
        let lea = [0x48, 0x8d, 0x05, 0, 0, 0, 0];
        let target = FROM + 7;
        let far = target + (1 << 31) - 12;
        assert!(moved(&lea, FROM, far).is_ok());
        assert_eq!(
            moved(&lea, FROM, far + 1),
            Err(MoveError::OutOfReach { at: far + 8, target }),
            "the jump"
        );
        assert_eq!(moved(&lea, FROM, far + 6), Err(MoveError::OutOfReach { at: far + 6, target }));
        assert_eq!(jump(0, 1 << 32), Err(MoveError::OutOfReach { at: 0, target: 1 << 32 }));
        assert_eq!(jump(0x1000, 0x1000), Ok([0xe9, 0xfb, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0x1000, 0x1005 + i32::MAX as u64), Ok([0xe9, 0xff, 0xff, 0xff, 0x7f]));
    }

    #[test]
    fn any_bytes_are_acceptable() {
        let mut state = 1u64;
        for round in 0..40_000 {
            let mut bytes = Vec::new();
            for _ in 0..round % 24 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes.push((state >> 33) as u8);
            }
            if let Ok(moved) = moved(&bytes, FROM, TO) {
                let mut before = decoded(&bytes, FROM);
                before.pop_if(|(last, _)| *last == Mnemonic::Call);
                assert_eq!(decoded(&moved.code, TO)[..before.len()], before, "{bytes:02x?}");
            }
        }
    }
}
