//! BPF instructions as the kernel decodes them: 8 bytes, little endian.

/// An encoded instruction, split into its fields.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Class, operation and source kind.
    pub opcode: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or kind of the immediate.
    pub src: u8,
    /// Signed offset, of a memory access in bytes, of a jump in instructions.
    pub offset: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// Decodes 8 bytes.
    pub fn decode(bytes: [u8; 8]) -> Insn {
        Insn {
            opcode: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Encodes the instruction.
    pub fn encode(self) -> [u8; 8] {
        let [o0, o1] = self.offset.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.opcode, self.dst | self.src << 4, o0, o1, i0, i1, i2, i3]
    }

    /// Class of the instruction: the low three bits.
    pub fn class(self) -> u8 {
        self.opcode & 7
    }

    /// Size of a memory access in bytes.
    pub fn size(self) -> u64 {
        match self.opcode & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// Whether the source is a register.
    pub fn from_register(self) -> bool {
        self.opcode & 8 != 0
    }
}

/// Class of wide loads.
pub const LD: u8 = 0;
/// Class of loads.
pub const LDX: u8 = 1;
/// Class of stores of constants.
pub const ST: u8 = 2;
/// Class of stores and atomics.
pub const STX: u8 = 3;
/// Class of 32-bit arithmetic.
pub const ALU: u8 = 4;
/// Class of jumps, calls and exits.
pub const JMP: u8 = 5;
/// Class of jumps on 32 bits.
pub const JMP32: u8 = 6;
/// Class of 64-bit arithmetic.
pub const ALU64: u8 = 7;

/// Load of a 64-bit immediate, two instructions long.
pub const WIDE: u8 = 0x18;
/// `call`
pub const CALL: u8 = 0x85;
/// `exit`
pub const EXIT: u8 = 0x95;

/// Evaluates arithmetic by its code (high four bits); `None` for a code without two operands.
pub fn alu(code: u8, a: u64, b: u64, wide: bool) -> Option<u64> {
    if wide { alu64(code, a, b) } else { alu32(code, a as u32, b as u32).map(u64::from) }
}

fn alu64(code: u8, a: u64, b: u64) -> Option<u64> {
    Some(match code {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.wrapping_shl(b as u32),
        0x70 => a.wrapping_shr(b as u32),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => b,
        0xc0 => (a as i64).wrapping_shr(b as u32) as u64,
        _ => return None,
    })
}

fn alu32(code: u8, a: u32, b: u32) -> Option<u32> {
    Some(match code {
        0x60 => a.wrapping_shl(b),
        0x70 => a.wrapping_shr(b),
        0xc0 => (a as i32).wrapping_shr(b) as u32,
        0x30 => a.checked_div(b).unwrap_or(0),
        0x90 => a.checked_rem(b).unwrap_or(a),
        other => alu64(other, u64::from(a), u64::from(b))? as u32,
    })
}

/// Evaluates the condition of a jump by its code; `None` for other codes.
pub fn condition(code: u8, a: u64, b: u64, wide: bool) -> Option<bool> {
    let (a, b) = if wide { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
    let (s, t) = if wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    Some(match code {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => s > t,
        0x70 => s >= t,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => s < t,
        0xd0 => s <= t,
        _ => return None,
    })
}
