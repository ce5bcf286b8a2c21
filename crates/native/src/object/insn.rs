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
