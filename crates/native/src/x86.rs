//! An encoder of the x86-64 instructions that generated code consists of.
//!
//! Data is addressed relative to the instruction pointer: code and data lie in one region, at offsets that are known here, and the
//! region's address is not. So code is the same in every process.
//!
//! Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.

/// A general register.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reg(pub u8);

#[allow(missing_docs)]
impl Reg {
    pub const RAX: Reg = Reg(0);
    pub const RCX: Reg = Reg(1);
    pub const RDX: Reg = Reg(2);
    pub const RBX: Reg = Reg(3);
    pub const RSP: Reg = Reg(4);
    pub const RBP: Reg = Reg(5);
    pub const RSI: Reg = Reg(6);
    pub const RDI: Reg = Reg(7);
    pub const R8: Reg = Reg(8);
    pub const R9: Reg = Reg(9);
    pub const R10: Reg = Reg(10);
    pub const R11: Reg = Reg(11);
    pub const R12: Reg = Reg(12);
    pub const R13: Reg = Reg(13);
    pub const R14: Reg = Reg(14);
    pub const R15: Reg = Reg(15);
}

/// Size of an operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Width {
    /// 1 byte.
    W8,
    /// 2 bytes.
    W16,
    /// 4 bytes.
    W32,
    /// 8 bytes.
    W64,
}

/// An operand in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mem {
    /// Address in a register, plus a displacement.
    At(Reg, i32),
    /// Offset in the region.
    Region(u64),
    /// Offset from the thread control block.
    Thread(i32),
}

/// Arithmetic with two operands; the value is the opcode's number in the group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Op {
    Add = 0,
    Or = 1,
    Sbb = 3,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// A shift; the value is the opcode's number in the group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Shift {
    Left = 4,
    Right = 5,
    Arithmetic = 7,
}

/// A condition; the value is its code.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Cond {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

/// A position in the code that may not be known yet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Code under construction.
#[derive(Clone, Debug)]
pub struct Assembler {
    /// Offset of the first byte in the region.
    start: u64,
    bytes: Vec<u8>,
    labels: Vec<Option<usize>>,
    /// Positions of 32-bit distances to labels.
    references: Vec<(usize, Label)>,
}

/// The second operand of an encoded instruction: a register or memory.
#[derive(Copy, Clone)]
enum Rm {
    Reg(Reg),
    Mem(Mem),
    Code(Label),
}

/// Beginning of an instruction, before its operands.
#[derive(Copy, Clone)]
struct Opcode<'a> {
    bytes: &'a [u8],
    width: Width,
    /// Bytes of the immediate that follows the operands.
    immediate: usize,
}

impl Assembler {
    /// Begins code whose first byte will lie at this offset in the region.
    pub fn new(start: u64) -> Assembler {
        Assembler { start, bytes: Vec::new(), labels: Vec::new(), references: Vec::new() }
    }

    /// Offset of the next instruction in the region.
    pub fn here(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The code; every label that was used must have been bound.
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in std::mem::take(&mut self.references) {
            let target = self.labels[label.0].expect("every label is bound");
            let distance = target as i64 - (at as i64 + 4);
            self.bytes[at..at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        self.bytes
    }

    /// A new label.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label in front of the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.bytes.len());
    }

    /// Puts a label some bytes behind the next instruction.
    pub fn bind_ahead(&mut self, label: Label, bytes: u64) {
        self.labels[label.0] = Some(self.bytes.len() + bytes as usize);
    }

    /// Offset in the region of a bound label.
    pub fn offset(&self, label: Label) -> Option<u64> {
        self.labels[label.0].map(|at| self.start + at as u64)
    }

    /// Fills up to a multiple of `to` bytes with `int3`.
    pub fn align(&mut self, to: u64) {
        while !self.here().is_multiple_of(to) {
            self.bytes.push(0xcc);
        }
    }

    /// Adds bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `mov dst, src`; 32 bits clear the upper half.
    pub fn mov(&mut self, wide: bool, dst: Reg, src: Reg) {
        self.op(opcode(&[0x89], wide), src.0, Rm::Reg(dst));
    }

    /// `mov dst, value`, in the shortest form.
    pub fn mov_imm(&mut self, dst: Reg, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.rex(false, 0, 0, dst.0, false);
            self.raw(&[0xb8 | dst.0 & 7]);
            self.raw(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value as i64) {
            self.op(Opcode { bytes: &[0xc7], width: Width::W64, immediate: 4 }, 0, Rm::Reg(dst));
            self.raw(&value.to_le_bytes());
        } else {
            self.rex(true, 0, 0, dst.0, false);
            self.raw(&[0xb8 | dst.0 & 7]);
            self.raw(&value.to_le_bytes());
        }
    }

    /// Load, zero-extended to 64 bits.
    pub fn load(&mut self, width: Width, dst: Reg, from: Mem) {
        let (bytes, width): (&[u8], _) = match width {
            Width::W8 => (&[0x0f, 0xb6], Width::W32),
            Width::W16 => (&[0x0f, 0xb7], Width::W32),
            Width::W32 | Width::W64 => (&[0x8b], width),
        };
        self.op(Opcode { bytes, width, immediate: 0 }, dst.0, Rm::Mem(from));
    }

    /// Store of the low bytes of a register.
    pub fn store(&mut self, width: Width, to: Mem, src: Reg) {
        let bytes: &[u8] = if width == Width::W8 { &[0x88] } else { &[0x89] };
        self.op(Opcode { bytes, width, immediate: 0 }, src.0, Rm::Mem(to));
    }

    /// Store of the low 8 bytes of a vector register, one of the first eight: `movq [memory], xmm`
    pub fn store_vector(&mut self, to: Mem, number: u8) {
        self.raw(&[0x66]);
        self.op(Opcode { bytes: &[0x0f, 0xd6], width: Width::W32, immediate: 0 }, number, Rm::Mem(to));
    }

    /// Store of a constant, sign-extended to 64 bits.
    pub fn store_imm(&mut self, width: Width, to: Mem, value: i32) {
        let (bytes, immediate): (&[u8], _) = match width {
            Width::W8 => (&[0xc6], 1),
            Width::W16 => (&[0xc7], 2),
            Width::W32 | Width::W64 => (&[0xc7], 4),
        };
        self.op(Opcode { bytes, width, immediate }, 0, Rm::Mem(to));
        self.raw(&value.to_le_bytes()[..immediate]);
    }

    /// `lea dst, [memory]`
    pub fn lea(&mut self, dst: Reg, memory: Mem) {
        self.op(opcode(&[0x8d], true), dst.0, Rm::Mem(memory));
    }

    /// `lea dst, [label]`
    pub fn lea_code(&mut self, dst: Reg, label: Label) {
        self.op(opcode(&[0x8d], true), dst.0, Rm::Code(label));
    }

    /// `op dst, src`
    pub fn alu(&mut self, op: Op, wide: bool, dst: Reg, src: Reg) {
        self.op(opcode(&[(op as u8) << 3 | 1], wide), src.0, Rm::Reg(dst));
    }

    /// `op dst, [memory]`
    pub fn alu_load(&mut self, op: Op, wide: bool, dst: Reg, from: Mem) {
        self.op(opcode(&[(op as u8) << 3 | 3], wide), dst.0, Rm::Mem(from));
    }

    /// `op dst, value`, sign-extended
    pub fn alu_imm(&mut self, op: Op, wide: bool, dst: Reg, value: i32) {
        self.group_imm(op, wide, Rm::Reg(dst), value);
    }

    /// `op [memory], value`, sign-extended
    pub fn alu_mem_imm(&mut self, op: Op, wide: bool, to: Mem, value: i32) {
        self.group_imm(op, wide, Rm::Mem(to), value);
    }

    fn group_imm(&mut self, op: Op, wide: bool, to: Rm, value: i32) {
        let width = width(wide);
        if let Ok(short) = i8::try_from(value) {
            self.op(Opcode { bytes: &[0x83], width, immediate: 1 }, op as u8, to);
            self.raw(&short.to_le_bytes());
        } else {
            self.op(Opcode { bytes: &[0x81], width, immediate: 4 }, op as u8, to);
            self.raw(&value.to_le_bytes());
        }
    }

    /// `test dst, src`
    pub fn test(&mut self, wide: bool, dst: Reg, src: Reg) {
        self.op(opcode(&[0x85], wide), src.0, Rm::Reg(dst));
    }

    /// `test dst, value`, sign-extended
    pub fn test_imm(&mut self, wide: bool, dst: Reg, value: i32) {
        self.op(Opcode { bytes: &[0xf7], width: width(wide), immediate: 4 }, 0, Rm::Reg(dst));
        self.raw(&value.to_le_bytes());
    }

    /// `test [memory], value`
    pub fn test_mem_imm(&mut self, wide: bool, to: Mem, value: i32) {
        self.op(Opcode { bytes: &[0xf7], width: width(wide), immediate: 4 }, 0, Rm::Mem(to));
        self.raw(&value.to_le_bytes());
    }

    /// `neg dst`
    pub fn neg(&mut self, wide: bool, dst: Reg) {
        self.op(opcode(&[0xf7], wide), 3, Rm::Reg(dst));
    }

    /// `imul dst, src`
    pub fn imul(&mut self, wide: bool, dst: Reg, src: Reg) {
        self.op(opcode(&[0x0f, 0xaf], wide), dst.0, Rm::Reg(src));
    }

    /// `imul dst, src, value`
    pub fn imul_imm(&mut self, wide: bool, dst: Reg, src: Reg, value: i32) {
        self.op(Opcode { bytes: &[0x69], width: width(wide), immediate: 4 }, dst.0, Rm::Reg(src));
        self.raw(&value.to_le_bytes());
    }

    /// `mul [memory]`: rdx:rax = rax * memory
    pub fn mul_mem(&mut self, by: Mem) {
        self.op(opcode(&[0xf7], true), 4, Rm::Mem(by));
    }

    /// `div src`: rax = rdx:rax / src, rdx = the rest
    pub fn div(&mut self, wide: bool, src: Reg) {
        self.op(opcode(&[0xf7], wide), 6, Rm::Reg(src));
    }

    /// Shift by a constant.
    pub fn shift(&mut self, shift: Shift, wide: bool, dst: Reg, by: u8) {
        self.op(Opcode { bytes: &[0xc1], width: width(wide), immediate: 1 }, shift as u8, Rm::Reg(dst));
        self.raw(&[by]);
    }

    /// Shift by `cl`.
    pub fn shift_cl(&mut self, shift: Shift, wide: bool, dst: Reg) {
        self.op(opcode(&[0xd3], wide), shift as u8, Rm::Reg(dst));
    }

    /// `shrd dst, src, by`
    pub fn shrd(&mut self, dst: Reg, src: Reg, by: u8) {
        self.op(Opcode { bytes: &[0x0f, 0xac], width: Width::W64, immediate: 1 }, src.0, Rm::Reg(dst));
        self.raw(&[by]);
    }

    /// `lock op [memory], src`
    pub fn lock_alu(&mut self, op: Op, wide: bool, to: Mem, src: Reg) {
        self.raw(&[0xf0]);
        self.op(opcode(&[(op as u8) << 3 | 1], wide), src.0, Rm::Mem(to));
    }

    /// `lock xadd [memory], src`
    pub fn lock_xadd(&mut self, wide: bool, to: Mem, src: Reg) {
        self.raw(&[0xf0]);
        self.op(opcode(&[0x0f, 0xc1], wide), src.0, Rm::Mem(to));
    }

    /// `lock cmpxchg [memory], src`; compares with rax
    pub fn lock_cmpxchg(&mut self, wide: bool, to: Mem, src: Reg) {
        self.raw(&[0xf0]);
        self.op(opcode(&[0x0f, 0xb1], wide), src.0, Rm::Mem(to));
    }

    /// `xchg [memory], src`, which is atomic
    pub fn xchg(&mut self, wide: bool, to: Mem, src: Reg) {
        self.op(opcode(&[0x87], wide), src.0, Rm::Mem(to));
    }

    /// `jmp label`
    pub fn jmp(&mut self, label: Label) {
        self.raw(&[0xe9]);
        self.distance(label);
    }

    /// `jcc label`
    pub fn jcc(&mut self, cond: Cond, label: Label) {
        self.raw(&[0x0f, 0x80 | cond as u8]);
        self.distance(label);
    }

    /// `call label`
    pub fn call(&mut self, label: Label) {
        self.raw(&[0xe8]);
        self.distance(label);
    }

    /// `call` of code at an offset in the region.
    pub fn call_region(&mut self, target: u64) {
        self.raw(&[0xe8]);
        let distance = target as i64 - (self.here() as i64 + 4);
        self.raw(&(distance as i32).to_le_bytes());
    }

    /// `jmp` to code at an offset in the region.
    pub fn jmp_region(&mut self, target: u64) {
        self.raw(&[0xe9]);
        let distance = target as i64 - (self.here() as i64 + 4);
        self.raw(&(distance as i32).to_le_bytes());
    }

    /// `jmp [memory]`
    pub fn jmp_mem(&mut self, target: Mem) {
        self.op(Opcode { bytes: &[0xff], width: Width::W32, immediate: 0 }, 4, Rm::Mem(target));
    }

    /// `call [memory]`
    pub fn call_mem(&mut self, target: Mem) {
        self.op(Opcode { bytes: &[0xff], width: Width::W32, immediate: 0 }, 2, Rm::Mem(target));
    }

    /// `ret`
    pub fn ret(&mut self) {
        self.raw(&[0xc3]);
    }

    /// `push src`
    pub fn push(&mut self, src: Reg) {
        self.rex(false, 0, 0, src.0, false);
        self.raw(&[0x50 | src.0 & 7]);
    }

    /// `push [memory]`
    pub fn push_mem(&mut self, from: Mem) {
        self.op(Opcode { bytes: &[0xff], width: Width::W32, immediate: 0 }, 6, Rm::Mem(from));
    }

    /// `push value`, sign-extended
    pub fn push_imm(&mut self, value: i32) {
        self.raw(&[0x68]);
        self.raw(&value.to_le_bytes());
    }

    /// `pop dst`
    pub fn pop(&mut self, dst: Reg) {
        self.rex(false, 0, 0, dst.0, false);
        self.raw(&[0x58 | dst.0 & 7]);
    }

    /// `rdtsc`: edx:eax = the time stamp counter
    pub fn rdtsc(&mut self) {
        self.raw(&[0x0f, 0x31]);
    }

    /// `rdpid dst`: node and number of the CPU
    pub fn rdpid(&mut self, dst: Reg) {
        self.raw(&[0xf3]);
        self.rex(false, 0, 0, dst.0, false);
        self.raw(&[0x0f, 0xc7, 0xf8 | dst.0 & 7]);
    }

    /// `lsl dst, src`: limit of the segment with this selector
    pub fn lsl(&mut self, dst: Reg, src: Reg) {
        self.op(Opcode { bytes: &[0x0f, 0x03], width: Width::W32, immediate: 0 }, dst.0, Rm::Reg(src));
    }

    /// `syscall`
    pub fn syscall(&mut self) {
        self.raw(&[0x0f, 0x05]);
    }

    fn distance(&mut self, label: Label) {
        self.references.push((self.bytes.len(), label));
        self.raw(&[0; 4]);
    }

    /// Prefix for 64 bits and for registers from r8 on; `force`: for the low bytes of rsi, rdi, rbp and rsp.
    fn rex(&mut self, wide: bool, reg: u8, index: u8, base: u8, force: bool) {
        let rex = u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        if rex != 0 || force {
            self.raw(&[0x40 | rex]);
        }
    }

    fn op(&mut self, opcode: Opcode, reg: u8, rm: Rm) {
        if let Rm::Mem(Mem::Thread(_)) = rm {
            self.raw(&[0x64]);
        }
        if opcode.width == Width::W16 {
            self.raw(&[0x66]);
        }
        let base = match rm {
            Rm::Reg(base) | Rm::Mem(Mem::At(base, _)) => base.0,
            Rm::Mem(_) | Rm::Code(_) => 0,
        };
        let low_byte = opcode.width == Width::W8 && (4..8).contains(&reg);
        self.rex(opcode.width == Width::W64, reg, 0, base, low_byte);
        self.raw(opcode.bytes);
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(base) => self.raw(&[0xc0 | reg | base.0 & 7]),
            Rm::Mem(Mem::At(base, displacement)) => self.based(reg, base, displacement),
            Rm::Mem(Mem::Region(offset)) => {
                self.raw(&[reg | 5]);
                let end = self.here() as i64 + 4 + opcode.immediate as i64;
                self.raw(&((offset as i64 - end) as i32).to_le_bytes());
            }
            Rm::Mem(Mem::Thread(offset)) => {
                self.raw(&[reg | 4, 0x25]);
                self.raw(&offset.to_le_bytes());
            }
            Rm::Code(label) => {
                self.raw(&[reg | 5]);
                self.distance(label);
            }
        }
    }

    /// Operand bytes of `[base + displacement]`.
    fn based(&mut self, reg: u8, base: Reg, displacement: i32) {
        let (low, short) = (base.0 & 7, i8::try_from(displacement));
        // Without displacement the code of rbp and r13 means the instruction pointer.
        let form = match short {
            Ok(0) if low != 5 => 0x00,
            Ok(_) => 0x40,
            Err(_) => 0x80,
        };
        self.raw(&[form | reg | low]);
        if low == 4 {
            self.raw(&[0x24]);
        }
        match (form, short) {
            (0x00, _) => {}
            (0x40, Ok(short)) => self.raw(&short.to_le_bytes()),
            _ => self.raw(&displacement.to_le_bytes()),
        }
    }
}

fn width(wide: bool) -> Width {
    if wide { Width::W64 } else { Width::W32 }
}

fn opcode(bytes: &[u8], wide: bool) -> Opcode<'_> {
    Opcode { bytes, width: width(wide), immediate: 0 }
}
