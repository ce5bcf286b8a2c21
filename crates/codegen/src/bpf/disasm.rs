//! Prints instructions in the form of the verifier's log and of llvm-objdump: `r1 = *(u64 *)(r10 -8)`.
//!
//! Jumps name their target by instruction number, so that a listing can be read without counting.

use super::code::{Assembly, Code, Target};
use super::helper::Helper;
use super::insn::{Alu, Atomic, Callee, Cmp, Insn, Reg, Src, Wide, Width};
use lang::Source;
use std::fmt::{self, Write};

/// The listing of all functions, with instruction counts. Each script line precedes its instructions.
pub fn listing(assembly: &Assembly, src: &Source) -> String {
    let mut out = String::new();
    for (at, code) in assembly.codes.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        list_function(&mut out, assembly, code, src);
    }
    out
}

fn list_function(out: &mut String, assembly: &Assembly, code: &Code, src: &Source) {
    let section = code.section.as_deref().unwrap_or("callback");
    let _ = writeln!(
        out,
        "{} ({section}): {} instructions, {} bytes of stack",
        code.name,
        code.slots(),
        code.frame
    );
    let mut shown = None;
    let mut slot = 0;
    for (index, insn) in code.insns.iter().enumerate() {
        let line = src.line_column(code.spans[index].start).0;
        if shown != Some(line) {
            let start = code.spans[index].start;
            let _ = writeln!(out, "; {}:{line}: {}", src.file_at(start).name, src.line_at(start).trim());
            shown = Some(line);
        }
        let _ = writeln!(out, "{slot:4}: {}", Text { insn, slot, target: code.target(index), assembly });
        slot += insn.slots();
    }
}

/// Formats one instruction; jump targets are relative to the next instruction.
impl fmt::Display for Insn {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Insn::Alu { wide, op, dst, src } => {
                write!(f, "{} {} {}", name(wide, dst), alu_sign(op), operand(wide, src))
            }
            Insn::Mov { wide, dst, src } => write!(f, "{} = {}", name(wide, dst), operand(wide, src)),
            Insn::Neg { wide, dst } => write!(f, "{0} = -{0}", name(wide, dst)),
            Insn::LoadImm { dst, kind: Wide::Const, value } => write!(f, "{dst} = {value:#x} ll"),
            Insn::LoadImm { dst, kind, value } => {
                write!(f, "{dst} = {}[{value}]", ["", "map", "data", "", "func"][kind as usize])
            }
            Insn::Load { width, dst, base, offset } => write!(f, "{dst} = {}", memory(width, base, offset)),
            Insn::Store { width, base, offset, src } => {
                write!(f, "{} = {}", memory(width, base, offset), operand(true, src))
            }
            Insn::Atomic { op, width, base, offset, src } => atomic(f, op, width, base, offset, src),
            Insn::Jump { offset } => write!(f, "goto pc{offset:+}"),
            Insn::Branch { wide, cmp, lhs, rhs, offset } => {
                write!(f, "if {} {} {} goto pc{offset:+}", name(wide, lhs), sign(cmp), operand(wide, rhs))
            }
            Insn::Call { callee: Callee::Helper, imm } => match Helper::by_number(imm as u32) {
                Some(helper) => write!(f, "call bpf_{}#{imm}", helper.name()),
                None => write!(f, "call helper#{imm}"),
            },
            Insn::Call { callee: Callee::Local, imm } => write!(f, "call pc{imm:+}"),
            Insn::Call { callee: Callee::Kfunc, imm } => write!(f, "call kfunc#{imm}"),
            Insn::Exit => write!(f, "exit"),
        }
    }
}

/// Formats an instruction in its context: relocation targets have names, and jump targets are absolute.
struct Text<'a> {
    insn: &'a Insn,
    slot: usize,
    target: Option<&'a Target>,
    assembly: &'a Assembly,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let goal = |offset: i16| self.slot as i64 + 1 + i64::from(offset);
        match (self.insn, self.target) {
            (Insn::LoadImm { dst, .. }, Some(Target::Map(map))) => {
                write!(f, "{dst} = map {}", self.assembly.maps[map.0 as usize].name)
            }
            (Insn::LoadImm { dst, value, .. }, Some(Target::Data)) => write!(f, "{dst} = data {value}"),
            (Insn::LoadImm { dst, value, .. }, Some(Target::Value(map))) => {
                write!(f, "{dst} = value {} + {value}", self.assembly.maps[map.0 as usize].name)
            }
            (Insn::LoadImm { dst, .. }, Some(Target::Func(func))) => {
                write!(f, "{dst} = func {}", self.assembly.codes[func.0 as usize].name)
            }
            (_, Some(Target::Kfunc(kfunc))) => {
                write!(f, "call {}", self.assembly.kfuncs[*kfunc as usize].name)
            }
            (Insn::Jump { offset }, _) => write!(f, "goto {}", goal(*offset)),
            (&Insn::Branch { wide, cmp, lhs, rhs, offset }, _) => {
                let (lhs, rhs) = (name(wide, lhs), operand(wide, rhs));
                write!(f, "if {lhs} {} {rhs} goto {}", sign(cmp), goal(offset))
            }
            (insn, _) => write!(f, "{insn}"),
        }
    }
}

fn name(wide: bool, reg: Reg) -> String {
    format!("{}{}", if wide { 'r' } else { 'w' }, reg.0)
}

fn operand(wide: bool, src: Src) -> String {
    match src {
        Src::Reg(reg) => name(wide, reg),
        Src::Imm(imm) => imm.to_string(),
    }
}

fn bits(width: Width) -> u32 {
    match width {
        Width::B8 => 8,
        Width::B16 => 16,
        Width::B32 => 32,
        Width::B64 => 64,
    }
}

fn memory(width: Width, base: Reg, offset: i16) -> String {
    format!("*(u{} *)({base} {offset:+})", bits(width))
}

fn atomic(f: &mut fmt::Formatter, op: Atomic, width: Width, base: Reg, offset: i16, src: Reg) -> fmt::Result {
    let place = format!("(u{} *)({base} {offset:+})", bits(width));
    match op {
        Atomic::Update(op) => write!(f, "lock *{place} {} {src}", alu_sign(op)),
        Atomic::Fetch(op) => {
            write!(f, "{src} = atomic_fetch_{}({place}, {src})", format!("{op:?}").to_lowercase())
        }
        Atomic::Xchg => write!(f, "{src} = xchg({place}, {src})"),
        Atomic::CmpXchg => write!(f, "r0 = cmpxchg({place}, r0, {src})"),
    }
}

fn alu_sign(op: Alu) -> &'static str {
    match op {
        Alu::Add => "+=",
        Alu::Sub => "-=",
        Alu::Mul => "*=",
        Alu::Div => "/=",
        Alu::Rem => "%=",
        Alu::And => "&=",
        Alu::Or => "|=",
        Alu::Xor => "^=",
        Alu::Shl => "<<=",
        Alu::Shr => ">>=",
        Alu::Sar => "s>>=",
    }
}

fn sign(cmp: Cmp) -> &'static str {
    match cmp {
        Cmp::Eq => "==",
        Cmp::Ne => "!=",
        Cmp::Test => "&",
        Cmp::Ult => "<",
        Cmp::Ule => "<=",
        Cmp::Ugt => ">",
        Cmp::Uge => ">=",
        Cmp::Slt => "s<",
        Cmp::Sle => "s<=",
        Cmp::Sgt => "s>",
        Cmp::Sge => "s>=",
    }
}
