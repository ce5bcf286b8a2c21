//! BPF instructions as types, and their 8-byte encoding. Instruction set of cpu v1 to v3, as Linux 5.15 runs it.
//!
//! ```text
//! byte   0        1            2..4     4..8
//!        opcode   src:4 dst:4  offset   imm          (little endian)
//! ```
//!
//! Source: the kernel's `Documentation/bpf/standardization/instruction-set.rst`. Not here: sign-extending loads, long
//! jumps and byte swaps of cpu v4, which 5.15 lacks.

pub use crate::ir::{Bin as Alu, Cmp, Width};
use std::fmt;

/// Bytes of an instruction slot; a load of a 64-bit immediate takes two slots.
pub const SLOT: usize = 8;

/// A machine register: r0 to r10.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u8);

impl Reg {
    /// Results of calls and programs; compare-exchange compares with it and loads into it.
    pub const R0: Reg = Reg(0);
    /// First argument of calls; the context at the start of a program.
    pub const R1: Reg = Reg(1);
    /// Frame pointer, read-only: the stack is below it.
    pub const FP: Reg = Reg(10);

    /// Register of the n-th argument of a call, from 0.
    pub fn arg(index: usize) -> Reg {
        Reg(1 + index as u8)
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// Second operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Src {
    /// A register.
    Reg(Reg),
    /// An immediate, sign-extended to 64 bits.
    Imm(i32),
}

/// Meaning of a 64-bit immediate (`BPF_PSEUDO_*`, in the field of the source register).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wide {
    /// A number.
    Const = 0,
    /// A map.
    Map = 1,
    /// An address in the value of an array map.
    MapValue = 2,
    /// A function.
    Func = 4,
}

/// Meaning of the immediate of a call (`BPF_PSEUDO_CALL` and so on).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// Number of a helper.
    Helper = 0,
    /// Distance to a function of the program. Before linking also a kernel function.
    Local = 1,
    /// BTF id of a kernel function.
    Kfunc = 2,
}

/// Atomic update of memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// `lock *(u64 *)(r1 + 0) += r2`
    Update(Alu),
    /// `r2 = atomic_fetch_add((u64 *)(r1 + 0), r2)`
    Fetch(Alu),
    /// `r2 = xchg(r1 + 0, r2)`
    Xchg,
    /// `r0 = cmpxchg(r1 + 0, r0, r2)`
    CmpXchg,
}

/// An instruction. With `wide` it works on 64 bits; otherwise on the low 32 bits, and zeroes the upper half of the
/// result.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Insn {
    /// `r1 += r2`, `w1 += 7`
    Alu { wide: bool, op: Alu, dst: Reg, src: Src },
    /// `r1 = r2`, `w1 = w2`, `r1 = 7`
    Mov { wide: bool, dst: Reg, src: Src },
    /// `r1 = -r1`
    Neg { wide: bool, dst: Reg },
    /// `r1 = 0x123456789 ll`
    LoadImm { dst: Reg, kind: Wide, value: i64 },
    /// `r1 = *(u32 *)(r2 + 8)`, zero-extended
    Load { width: Width, dst: Reg, base: Reg, offset: i16 },
    /// `*(u32 *)(r1 + 8) = r2`
    Store { width: Width, base: Reg, offset: i16, src: Src },
    /// See [`Atomic`]
    Atomic { op: Atomic, width: Width, base: Reg, offset: i16, src: Reg },
    /// `goto pc+5`: slots from the next instruction
    Jump { offset: i16 },
    /// `if r1 == r2 goto pc+5`
    Branch { wide: bool, cmp: Cmp, lhs: Reg, rhs: Src, offset: i16 },
    /// `call bpf_ktime_get_ns#5`
    Call { callee: Callee, imm: i32 },
    /// `exit`
    Exit,
}

// Instruction classes and modes, with the names of linux/bpf_common.h and linux/bpf.h.
const LD_IMM_DW: u8 = 0x18;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_JMP32: u8 = 0x06;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
const MODE_ATOMIC: u8 = 0xc0;
const FROM_REG: u8 = 0x08;
const OP_NEG: u8 = 0x80;
const OP_MOV: u8 = 0xb0;
const OP_CALL: u8 = 0x80;
const OP_EXIT: u8 = 0x90;
const ATOMIC_FETCH: i32 = 0x01;
const ATOMIC_XCHG: i32 = 0xe1;
const ATOMIC_CMPXCHG: i32 = 0xf1;

const ALU_OPS: [(Alu, u8); 11] = [
    (Alu::Add, 0x00),
    (Alu::Sub, 0x10),
    (Alu::Mul, 0x20),
    (Alu::Div, 0x30),
    (Alu::Or, 0x40),
    (Alu::And, 0x50),
    (Alu::Shl, 0x60),
    (Alu::Shr, 0x70),
    (Alu::Rem, 0x90),
    (Alu::Xor, 0xa0),
    (Alu::Sar, 0xc0),
];

const BRANCH_OPS: [(Cmp, u8); 11] = [
    (Cmp::Eq, 0x10),
    (Cmp::Ugt, 0x20),
    (Cmp::Uge, 0x30),
    (Cmp::Test, 0x40),
    (Cmp::Ne, 0x50),
    (Cmp::Sgt, 0x60),
    (Cmp::Sge, 0x70),
    (Cmp::Ult, 0xa0),
    (Cmp::Ule, 0xb0),
    (Cmp::Slt, 0xc0),
    (Cmp::Sle, 0xd0),
];

const WIDTHS: [(Width, u8); 4] =
    [(Width::B32, 0x00), (Width::B16, 0x08), (Width::B8, 0x10), (Width::B64, 0x18)];

/// Operators that atomic instructions support.
const ATOMIC_OPS: [Alu; 4] = [Alu::Add, Alu::Or, Alu::And, Alu::Xor];

/// The code of a value in one of the tables; each table is complete.
fn code<T: Copy + PartialEq>(table: &[(T, u8)], value: T) -> u8 {
    table.iter().find(|(known, _)| *known == value).map_or(0, |(_, code)| *code)
}

fn value<T: Copy>(table: &[(T, u8)], code: u8) -> Option<T> {
    table.iter().find(|(_, known)| *known == code).map(|(value, _)| *value)
}

/// The fields of a slot.
#[derive(Copy, Clone, Default)]
struct Raw {
    op: u8,
    dst: u8,
    src: u8,
    offset: i16,
    imm: i32,
}

impl Raw {
    fn bytes(self) -> [u8; SLOT] {
        let mut bytes = [self.op, self.src << 4 | self.dst, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.imm.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; SLOT]) -> Raw {
        let [op, regs, o0, o1, i0, i1, i2, i3] = *bytes;
        Raw {
            op,
            dst: regs & 15,
            src: regs >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    fn with(mut self, src: Src) -> Raw {
        match src {
            Src::Reg(reg) => {
                self.op |= FROM_REG;
                self.src = reg.0;
            }
            Src::Imm(imm) => self.imm = imm,
        }
        self
    }

    fn operand(self) -> Option<Src> {
        match self.op & FROM_REG {
            0 => Some(Src::Imm(self.imm)),
            _ => register(self.src).map(Src::Reg),
        }
    }
}

fn register(number: u8) -> Option<Reg> {
    (number <= Reg::FP.0).then_some(Reg(number))
}

fn alu_class(wide: bool) -> u8 {
    if wide { CLASS_ALU64 } else { CLASS_ALU }
}

impl Insn {
    /// Slots of 8 bytes: 2 for a 64-bit immediate.
    pub fn slots(&self) -> usize {
        if matches!(self, Insn::LoadImm { .. }) { 2 } else { 1 }
    }

    /// Appends the encoded instruction.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.raw().bytes());
        if let Insn::LoadImm { value, .. } = *self {
            out.extend(Raw { imm: (value >> 32) as i32, ..Raw::default() }.bytes());
        }
    }

    /// The first slot of the encoding.
    fn raw(&self) -> Raw {
        let raw = Raw::default();
        match *self {
            Insn::Alu { wide, op, dst, src } => {
                Raw { op: alu_class(wide) | code(&ALU_OPS, op), dst: dst.0, ..raw }.with(src)
            }
            Insn::Mov { wide, dst, src } => Raw { op: alu_class(wide) | OP_MOV, dst: dst.0, ..raw }.with(src),
            Insn::Neg { wide, dst } => Raw { op: alu_class(wide) | OP_NEG, dst: dst.0, ..raw },
            Insn::LoadImm { dst, kind, value } => {
                Raw { op: LD_IMM_DW, dst: dst.0, src: kind as u8, imm: value as i32, ..raw }
            }
            Insn::Load { width, dst, base, offset } => {
                let op = CLASS_LDX | MODE_MEM | code(&WIDTHS, width);
                Raw { op, dst: dst.0, src: base.0, offset, ..raw }
            }
            Insn::Store { width, base, offset, src } => store(width, base, offset, src),
            Insn::Atomic { op, width, base, offset, src } => {
                let code = CLASS_STX | MODE_ATOMIC | code(&WIDTHS, width);
                Raw { op: code, dst: base.0, src: src.0, offset, imm: atomic_code(op) }
            }
            Insn::Jump { offset } => Raw { op: CLASS_JMP, offset, ..raw },
            Insn::Branch { wide, cmp, lhs, rhs, offset } => {
                let class = if wide { CLASS_JMP } else { CLASS_JMP32 };
                Raw { op: class | code(&BRANCH_OPS, cmp), dst: lhs.0, offset, ..raw }.with(rhs)
            }
            Insn::Call { callee, imm } => Raw { op: CLASS_JMP | OP_CALL, src: callee as u8, imm, ..raw },
            Insn::Exit => Raw { op: CLASS_JMP | OP_EXIT, ..raw },
        }
    }

    /// Decodes the instruction at the start of `bytes`, if [`Insn::encode`] can emit it.
    pub fn decode(bytes: &[u8]) -> Option<Insn> {
        let raw = Raw::parse(bytes.first_chunk()?);
        let wide = matches!(raw.op & 7, CLASS_ALU64 | CLASS_JMP);
        let dst = register(raw.dst)?;
        match raw.op & 7 {
            CLASS_ALU | CLASS_ALU64 => decode_alu(raw, wide, dst),
            CLASS_JMP | CLASS_JMP32 => decode_jump(raw, wide, dst),
            CLASS_LDX if raw.op & 0xe0 == MODE_MEM => Some(Insn::Load {
                width: value(&WIDTHS, raw.op & 0x18)?,
                dst,
                base: register(raw.src)?,
                offset: raw.offset,
            }),
            CLASS_ST | CLASS_STX => decode_store(raw, dst),
            _ if raw.op == LD_IMM_DW => {
                let high = Raw::parse(bytes.get(SLOT..)?.first_chunk()?).imm;
                let value = i64::from(high) << 32 | i64::from(raw.imm as u32);
                Some(Insn::LoadImm { dst, kind: wide_kind(raw.src)?, value })
            }
            _ => None,
        }
    }

    /// Decodes all instructions of a function; `None` if some bytes are not an instruction.
    #[cfg(test)]
    pub fn decode_all(mut bytes: &[u8]) -> Option<Vec<Insn>> {
        let mut insns = Vec::with_capacity(bytes.len() / SLOT);
        while !bytes.is_empty() {
            let insn = Insn::decode(bytes)?;
            bytes = &bytes[insn.slots() * SLOT..];
            insns.push(insn);
        }
        Some(insns)
    }
}

fn store(width: Width, base: Reg, offset: i16, src: Src) -> Raw {
    let op = MODE_MEM | code(&WIDTHS, width);
    let raw = Raw { dst: base.0, offset, ..Raw::default() };
    match src {
        Src::Reg(reg) => Raw { op: op | CLASS_STX, src: reg.0, ..raw },
        Src::Imm(imm) => Raw { op: op | CLASS_ST, imm, ..raw },
    }
}

fn atomic_code(op: Atomic) -> i32 {
    match op {
        Atomic::Update(op) => i32::from(code(&ALU_OPS, op)),
        Atomic::Fetch(op) => i32::from(code(&ALU_OPS, op)) | ATOMIC_FETCH,
        Atomic::Xchg => ATOMIC_XCHG,
        Atomic::CmpXchg => ATOMIC_CMPXCHG,
    }
}

fn decode_atomic(imm: i32) -> Option<Atomic> {
    match imm {
        ATOMIC_XCHG => return Some(Atomic::Xchg),
        ATOMIC_CMPXCHG => return Some(Atomic::CmpXchg),
        _ => {}
    }
    let op = value(&ALU_OPS, u8::try_from(imm & !ATOMIC_FETCH).ok()?)?;
    let known = ATOMIC_OPS.contains(&op);
    known.then_some(if imm & ATOMIC_FETCH == 0 { Atomic::Update(op) } else { Atomic::Fetch(op) })
}

fn decode_alu(raw: Raw, wide: bool, dst: Reg) -> Option<Insn> {
    let src = raw.operand()?;
    match raw.op & 0xf0 {
        OP_MOV => Some(Insn::Mov { wide, dst, src }),
        OP_NEG => Some(Insn::Neg { wide, dst }),
        code => Some(Insn::Alu { wide, op: value(&ALU_OPS, code)?, dst, src }),
    }
}

fn decode_jump(raw: Raw, wide: bool, lhs: Reg) -> Option<Insn> {
    match raw.op {
        CLASS_JMP => Some(Insn::Jump { offset: raw.offset }),
        op if op == CLASS_JMP | OP_EXIT => Some(Insn::Exit),
        op if op == CLASS_JMP | OP_CALL => Some(Insn::Call { callee: callee(raw.src)?, imm: raw.imm }),
        op => {
            let cmp = value(&BRANCH_OPS, op & 0xf0)?;
            Some(Insn::Branch { wide, cmp, lhs, rhs: raw.operand()?, offset: raw.offset })
        }
    }
}

fn decode_store(raw: Raw, base: Reg) -> Option<Insn> {
    let width = value(&WIDTHS, raw.op & 0x18)?;
    let offset = raw.offset;
    match (raw.op & 0xe0, raw.op & 7) {
        (MODE_MEM, CLASS_ST) => Some(Insn::Store { width, base, offset, src: Src::Imm(raw.imm) }),
        (MODE_MEM, _) => Some(Insn::Store { width, base, offset, src: Src::Reg(register(raw.src)?) }),
        (MODE_ATOMIC, CLASS_STX) => {
            let src = register(raw.src)?;
            Some(Insn::Atomic { op: decode_atomic(raw.imm)?, width, base, offset, src })
        }
        _ => None,
    }
}

fn wide_kind(src: u8) -> Option<Wide> {
    [Wide::Const, Wide::Map, Wide::MapValue, Wide::Func].into_iter().find(|kind| *kind as u8 == src)
}

fn callee(src: u8) -> Option<Callee> {
    [Callee::Helper, Callee::Local, Callee::Kfunc].into_iter().find(|callee| *callee as u8 == src)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Insn> {
        let sources = [Src::Reg(Reg(3)), Src::Imm(-7), Src::Imm(i32::MAX)];
        let mut all = vec![
            Insn::Jump { offset: -3 },
            Insn::Exit,
            Insn::Neg { wide: true, dst: Reg(9) },
            Insn::Neg { wide: false, dst: Reg(1) },
            Insn::Call { callee: Callee::Helper, imm: 5 },
            Insn::Call { callee: Callee::Local, imm: -1 },
            Insn::Call { callee: Callee::Kfunc, imm: 1234 },
        ];
        for kind in [Wide::Const, Wide::Map, Wide::MapValue, Wide::Func] {
            all.extend([-1, 0x1234_5678_9abc_def0, 1].map(|value| Insn::LoadImm {
                dst: Reg(2),
                kind,
                value,
            }));
        }
        for (src, wide) in sources.into_iter().flat_map(|src| [(src, true), (src, false)]) {
            let (dst, lhs, rhs) = (Reg(7), Reg(8), src);
            all.push(Insn::Mov { wide, dst, src });
            all.extend(ALU_OPS.map(|(op, _)| Insn::Alu { wide, op, dst, src }));
            all.extend(BRANCH_OPS.map(|(cmp, _)| Insn::Branch { wide, cmp, lhs, rhs, offset: 9 }));
        }
        for (width, _) in WIDTHS {
            let (base, offset, src) = (Reg::FP, -8, Reg(4));
            all.push(Insn::Load { width, dst: Reg(5), base, offset });
            all.extend(sources.map(|src| Insn::Store { width, base, offset, src }));
            let updates = ATOMIC_OPS.into_iter().flat_map(|op| [Atomic::Update(op), Atomic::Fetch(op)]);
            for op in updates.chain([Atomic::Xchg, Atomic::CmpXchg]) {
                all.push(Insn::Atomic { op, width, base, offset, src });
            }
        }
        all
    }

    #[test]
    fn decoding_undoes_encoding() {
        let mut bytes = Vec::new();
        samples().iter().for_each(|insn| insn.encode(&mut bytes));
        assert_eq!(Insn::decode_all(&bytes).unwrap(), samples());
    }

    #[test]
    fn encodings_are_those_that_llvm_writes() {
        let cases: [(Insn, &[u8]); 6] = [
            (Insn::Mov { wide: true, dst: Reg(2), src: Src::Reg(Reg::FP) }, &[0xbf, 0xa2, 0, 0, 0, 0, 0, 0]),
            (Insn::Call { callee: Callee::Helper, imm: 1 }, &[0x85, 0, 0, 0, 1, 0, 0, 0]),
            (
                Insn::Branch { wide: true, cmp: Cmp::Eq, lhs: Reg(0), rhs: Src::Imm(0), offset: 2 },
                &[0x15, 0, 2, 0, 0, 0, 0, 0],
            ),
            (
                Insn::Store { width: Width::B32, base: Reg::FP, offset: -4, src: Src::Reg(Reg(1)) },
                &[0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
            ),
            (
                Insn::Atomic {
                    op: Atomic::Update(Alu::Add),
                    width: Width::B64,
                    base: Reg(0),
                    offset: 0,
                    src: Reg(1),
                },
                &[0xdb, 0x10, 0, 0, 0, 0, 0, 0],
            ),
            (Insn::Exit, &[0x95, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (insn, expected) in cases {
            let mut bytes = Vec::new();
            insn.encode(&mut bytes);
            assert_eq!(bytes, expected, "{insn:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_instruction_are_refused() {
        assert_eq!(Insn::decode(&[0xff; 8]), None);
        assert_eq!(Insn::decode(&[0x18, 0, 0, 0, 0, 0, 0, 0]), None, "half of a 64-bit immediate");
        assert_eq!(Insn::decode(&[0x95]), None);
    }
}
