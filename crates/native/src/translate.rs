//! The instructions of one function of the object as x86-64. The registers are those of the kernel's own compiler: r0 is rax, r1 to r5
//! are the argument registers, r6 to r9 survive calls, r10 is rbp.
//!
//! r9, r10, r11 and r12 of the machine belong to no register of BPF: r9 to r11 are scratch here.

use crate::TranslateError;
use crate::calls;
use crate::object::Reference;
use crate::object::insn::{self, Insn};
use crate::registers::{AUX, AUX2, CPU, REGS};
use crate::translator::{Context, Translator};
use crate::x86::{Assembler, Cond, Mem, Op, Reg, Shift, Width};
use std::collections::BTreeSet;

/// MAX_BPF_STACK
const MAX_STACK: i32 = 512;

/// Translates a function behind its label.
pub(crate) fn function(context: &Context, asm: &mut Assembler, number: usize) -> Result<(), TranslateError> {
    let function = &context.object.functions[number];
    asm.align(16);
    asm.bind(context.functions[number]);
    let targets = targets(&function.code);
    let labels = targets.iter().map(|target| (*target, asm.label())).collect();
    let exit = asm.label();
    let mut translator = Translator { context, asm, function, labels, exit, map: None };
    translator.body()
}

/// Instructions to which a jump leads.
fn targets(code: &[Insn]) -> BTreeSet<usize> {
    let is_jump = |insn: &Insn| {
        matches!(insn.class(), insn::JMP | insn::JMP32) && !matches!(insn.opcode, insn::CALL | insn::EXIT)
    };
    let jumps = instructions(code).filter(|(_, insn)| is_jump(insn));
    jumps.map(|(at, insn)| target(at, *insn)).collect()
}

fn target(at: usize, insn: Insn) -> usize {
    (at as i64 + 1 + i64::from(insn.offset)) as usize
}

/// The instructions with their numbers, without the second halves of wide loads.
fn instructions(code: &[Insn]) -> impl Iterator<Item = (usize, &Insn)> {
    let second = |at: usize| at > 0 && code[at - 1].opcode == insn::WIDE;
    code.iter().enumerate().filter(move |(at, insn)| !(insn.opcode == 0 && second(*at)))
}

/// Bytes of stack that the function uses below r10, a multiple of 8. An address below r10 is made by adding a negative constant.
fn frame_size(code: &[Insn]) -> i32 {
    let depth = |insn: &Insn| match insn.class() {
        insn::LDX | insn::ST | insn::STX => -i32::from(insn.offset),
        insn::ALU64 if insn.opcode == 0x07 => insn.imm.saturating_neg(),
        _ => 0,
    };
    let depths = instructions(code).map(|(_, insn)| depth(insn)).filter(|depth| *depth <= MAX_STACK);
    (depths.max().unwrap_or(0).max(0) + 7) / 8 * 8
}

/// Registers of BPF that survive calls and that the function uses.
fn saved(code: &[Insn]) -> Vec<Reg> {
    let used: BTreeSet<u8> = instructions(code).flat_map(|(_, insn)| [insn.dst, insn.src]).collect();
    (6..=10).filter(|reg| used.contains(reg)).map(|reg| REGS[reg as usize]).collect()
}

fn wide(insn: Insn) -> bool {
    matches!(insn.class(), insn::ALU64 | insn::JMP)
}

fn width(insn: Insn) -> Width {
    match insn.size() {
        1 => Width::W8,
        2 => Width::W16,
        4 => Width::W32,
        _ => Width::W64,
    }
}

fn reg(number: u8) -> Reg {
    REGS[number as usize]
}

impl Translator<'_, '_> {
    fn body(&mut self) -> Result<(), TranslateError> {
        let code = &self.function.code;
        let saved = saved(code);
        // At a call the stack is aligned to 16: return address, saved registers, frame.
        let frame = frame_size(code);
        let above = 8 + 8 * saved.len() as i32;
        let frame = (above + frame + 15) / 16 * 16 - above;
        for reg in &saved {
            self.asm.push(*reg);
        }
        if saved.contains(&Reg::RBP) {
            self.asm.mov(true, Reg::RBP, Reg::RSP);
        }
        if frame > 0 {
            self.asm.alu_imm(Op::Sub, true, Reg::RSP, frame);
        }
        for (at, insn) in instructions(code) {
            if let Some(label) = self.labels.get(&at) {
                self.asm.bind(*label);
                self.map = None;
            }
            self.instruction(at, *insn)?;
        }
        self.asm.bind(self.exit);
        if frame > 0 {
            self.asm.alu_imm(Op::Add, true, Reg::RSP, frame);
        }
        for reg in saved.iter().rev() {
            self.asm.pop(*reg);
        }
        self.asm.ret();
        Ok(())
    }

    fn unsupported(&self, at: usize) -> TranslateError {
        let code = self.function.code[at].encode();
        TranslateError::Instruction {
            function: self.function.name.clone(),
            at,
            code: u64::from_le_bytes(code),
        }
    }

    fn instruction(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        let is_memory = insn.opcode & 0xe0 == 0x60;
        let memory = |base: u8| Mem::At(reg(base), i32::from(insn.offset));
        match insn.class() {
            insn::LD if insn.opcode == insn::WIDE => self.wide_load(at, insn)?,
            insn::LDX if is_memory => self.asm.load(width(insn), reg(insn.dst), memory(insn.src)),
            insn::ST if is_memory => self.asm.store_imm(width(insn), memory(insn.dst), insn.imm),
            insn::STX if is_memory => self.asm.store(width(insn), memory(insn.dst), reg(insn.src)),
            insn::STX if insn.opcode & 0xe0 == 0xc0 && insn.size() >= 4 => self.atomic(at, insn)?,
            insn::ALU | insn::ALU64 => self.arithmetic(at, insn)?,
            insn::JMP | insn::JMP32 => self.jump(at, insn)?,
            _ => return Err(self.unsupported(at)),
        }
        if matches!(insn.class(), insn::LDX | insn::ALU | insn::ALU64) && insn.dst == 1 {
            self.map = None;
        }
        Ok(())
    }

    fn wide_load(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        let second = *self.function.code.get(at + 1).ok_or_else(|| self.unsupported(at))?;
        let context = self.context;
        let dst = reg(insn.dst);
        let known = if insn.dst == 1 { &mut self.map } else { &mut None };
        *known = None;
        match self.function.references.get(&at) {
            None => self.asm.mov_imm(dst, u64::from(insn.imm as u32) | u64::from(second.imm as u32) << 32),
            Some(Reference::Map(map)) => {
                *known = Some(*map);
                self.asm.lea(dst, Mem::Region(context.head.descriptions[*map]));
            }
            Some(Reference::Value { map, offset }) => {
                self.asm.lea(dst, Mem::Region(context.map(*map).cells.wrapping_add(*offset)));
            }
            Some(Reference::Data { section, offset }) => {
                let start = context.head.constants[*section].unwrap_or_default();
                self.asm.lea(dst, Mem::Region(start.wrapping_add(*offset)));
            }
            Some(Reference::Function(function)) => {
                self.asm.lea_code(dst, self.context.functions[*function]);
            }
            Some(Reference::Kfunc(_)) => return Err(self.unsupported(at)),
        }
        Ok(())
    }

    fn atomic(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        const FETCH: i32 = 1;
        let (is_wide, src) = (insn.size() == 8, reg(insn.src));
        let memory = Mem::At(reg(insn.dst), i32::from(insn.offset));
        let op = match insn.imm & !FETCH {
            0x00 => Op::Add,
            0x40 => Op::Or,
            0x50 => Op::And,
            0xa0 => Op::Xor,
            0xe0 if insn.imm & FETCH != 0 => {
                self.asm.xchg(is_wide, memory, src);
                return Ok(());
            }
            0xf0 if insn.imm & FETCH != 0 => {
                self.asm.lock_cmpxchg(is_wide, memory, src);
                // Where they were equal, the upper half was not written.
                if !is_wide {
                    self.asm.mov(false, Reg::RAX, Reg::RAX);
                }
                return Ok(());
            }
            _ => return Err(self.unsupported(at)),
        };
        match (op, insn.imm & FETCH != 0) {
            (op, false) => self.asm.lock_alu(op, is_wide, memory, src),
            (Op::Add, true) => self.asm.lock_xadd(is_wide, memory, src),
            (op, true) => self.fetch(op, is_wide, memory, src),
        }
        Ok(())
    }

    /// Bitwise operation that yields the old value: a loop of compare and exchange.
    fn fetch(&mut self, op: Op, is_wide: bool, memory: Mem, src: Reg) {
        let again = self.asm.label();
        self.asm.lea(CPU, memory);
        let memory = Mem::At(CPU, 0);
        self.asm.mov(true, AUX, src);
        if src != Reg::RAX {
            self.asm.push(Reg::RAX);
        }
        self.asm.load(if is_wide { Width::W64 } else { Width::W32 }, Reg::RAX, memory);
        self.asm.bind(again);
        self.asm.mov(true, AUX2, Reg::RAX);
        self.asm.alu(op, is_wide, AUX2, AUX);
        self.asm.lock_cmpxchg(is_wide, memory, AUX2);
        self.asm.jcc(Cond::NotEqual, again);
        if src != Reg::RAX {
            self.asm.mov(is_wide, src, Reg::RAX);
            self.asm.pop(Reg::RAX);
        } else if !is_wide {
            self.asm.mov(false, Reg::RAX, Reg::RAX);
        }
    }

    fn arithmetic(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        let (is_wide, dst) = (wide(insn), reg(insn.dst));
        let src = insn.from_register().then(|| reg(insn.src));
        // Signed division and sign-extending moves need Linux 6.6; no object has them.
        if insn.offset != 0 {
            return Err(self.unsupported(at));
        }
        let simple = match insn.opcode & 0xf0 {
            0x00 => Some(Op::Add),
            0x10 => Some(Op::Sub),
            0x40 => Some(Op::Or),
            0x50 => Some(Op::And),
            0xa0 => Some(Op::Xor),
            _ => None,
        };
        match (insn.opcode & 0xf0, simple, src) {
            (_, Some(op), Some(src)) => self.asm.alu(op, is_wide, dst, src),
            (_, Some(op), None) => self.asm.alu_imm(op, is_wide, dst, insn.imm),
            (0x20, _, Some(src)) => self.asm.imul(is_wide, dst, src),
            (0x20, _, None) => self.asm.imul_imm(is_wide, dst, dst, insn.imm),
            (0x30, ..) => self.divide(insn, false),
            (0x90, ..) => self.divide(insn, true),
            (0x60, _, src) => self.shift(Shift::Left, is_wide, dst, src, insn.imm),
            (0x70, _, src) => self.shift(Shift::Right, is_wide, dst, src, insn.imm),
            (0xc0, _, src) => self.shift(Shift::Arithmetic, is_wide, dst, src, insn.imm),
            (0x80, ..) => self.asm.neg(is_wide, dst),
            (0xb0, _, Some(src)) => self.asm.mov(is_wide, dst, src),
            (0xb0, _, None) if is_wide => self.asm.mov_imm(dst, insn.imm as i64 as u64),
            (0xb0, _, None) => self.asm.mov_imm(dst, u64::from(insn.imm as u32)),
            _ => return Err(self.unsupported(at)),
        }
        Ok(())
    }

    fn shift(&mut self, shift: Shift, is_wide: bool, dst: Reg, by: Option<Reg>, constant: i32) {
        let Some(by) = by else { return self.asm.shift(shift, is_wide, dst, constant as u8) };
        // The number of bits must be in cl.
        if by == Reg::RCX {
            self.asm.mov(true, AUX, dst);
            self.asm.shift_cl(shift, is_wide, AUX);
            self.asm.mov(true, dst, AUX);
            return;
        }
        self.asm.mov(true, AUX, Reg::RCX);
        self.asm.mov(true, AUX2, dst);
        self.asm.mov(true, Reg::RCX, by);
        self.asm.shift_cl(shift, is_wide, AUX2);
        self.asm.mov(true, Reg::RCX, AUX);
        self.asm.mov(true, dst, AUX2);
    }

    /// Division by zero yields 0, and the dividend as the rest.
    fn divide(&mut self, insn: Insn, rest: bool) {
        let (is_wide, dst) = (wide(insn), reg(insn.dst));
        let (zero, done) = (self.asm.label(), self.asm.label());
        match insn.from_register() {
            true => self.asm.mov(is_wide, AUX, reg(insn.src)),
            false if is_wide => self.asm.mov_imm(AUX, insn.imm as i64 as u64),
            false => self.asm.mov_imm(AUX, u64::from(insn.imm as u32)),
        }
        self.asm.test(is_wide, AUX, AUX);
        self.asm.jcc(Cond::Equal, zero);
        self.asm.mov(true, CPU, Reg::RAX);
        self.asm.mov(true, AUX2, Reg::RDX);
        self.asm.mov(is_wide, Reg::RAX, dst);
        self.asm.alu(Op::Xor, false, Reg::RDX, Reg::RDX);
        self.asm.div(is_wide, AUX);
        self.asm.mov(is_wide, AUX, if rest { Reg::RDX } else { Reg::RAX });
        self.asm.mov(true, Reg::RAX, CPU);
        self.asm.mov(true, Reg::RDX, AUX2);
        self.asm.mov(true, dst, AUX);
        self.asm.jmp(done);
        self.asm.bind(zero);
        match rest {
            true => self.asm.mov(is_wide, dst, dst),
            false => self.asm.alu(Op::Xor, false, dst, dst),
        }
        self.asm.bind(done);
    }

    fn jump(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        match insn.opcode {
            insn::CALL => return self.call(at, insn),
            // The epilogue follows the last instruction.
            insn::EXIT if at + 1 == self.function.code.len() => {}
            insn::EXIT => self.asm.jmp(self.exit),
            0x05 => self.asm.jmp(self.labels[&target(at, insn)]),
            _ => return self.branch(at, insn),
        }
        Ok(())
    }

    fn branch(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        let code = insn.opcode & 0xf0;
        let cond = match code {
            0x10 => Cond::Equal,
            0x20 => Cond::Above,
            0x30 => Cond::AboveEqual,
            0x40 | 0x50 => Cond::NotEqual,
            0x60 => Cond::Greater,
            0x70 => Cond::GreaterEqual,
            0xa0 => Cond::Below,
            0xb0 => Cond::BelowEqual,
            0xc0 => Cond::Less,
            0xd0 => Cond::LessEqual,
            _ => return Err(self.unsupported(at)),
        };
        let (is_wide, dst) = (wide(insn), reg(insn.dst));
        match (code == 0x40, insn.from_register()) {
            (true, true) => self.asm.test(is_wide, dst, reg(insn.src)),
            (true, false) => self.asm.test_imm(is_wide, dst, insn.imm),
            (false, true) => self.asm.alu(Op::Cmp, is_wide, dst, reg(insn.src)),
            (false, false) => self.asm.alu_imm(Op::Cmp, is_wide, dst, insn.imm),
        }
        self.asm.jcc(cond, self.labels[&target(at, insn)]);
        Ok(())
    }

    fn call(&mut self, at: usize, insn: Insn) -> Result<(), TranslateError> {
        let refused = match (self.function.references.get(&at), insn.src) {
            (Some(Reference::Function(function)), _) => {
                self.asm.call(self.context.functions[*function]);
                None
            }
            (Some(Reference::Kfunc(name)), _) => (!calls::kfunc(self, name)).then(|| name.clone()),
            (None, 0) => {
                let number = insn.imm as u32;
                let is_known = calls::helper(self, number);
                if let Some(what) = calls::only_kernel(number).filter(|_| !is_known) {
                    return Err(TranslateError::Language(what));
                }
                (!is_known).then(|| format!("helper {number}"))
            }
            _ => return Err(self.unsupported(at)),
        };
        self.map = None;
        match refused {
            Some(name) => Err(TranslateError::Helper { function: self.function.name.clone(), at, name }),
            None => Ok(()),
        }
    }
}
