//! Prints IR in the form that `ir` documents, for `-d ir` and golden files.

use super::*;
use std::fmt::{self, Display, Formatter};

impl Display for VReg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl Display for BlockId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(reg) => reg.fmt(f),
            Operand::Const(value) => value.fmt(f),
        }
    }
}

/// Size of an access in bits.
fn bits(width: Width) -> u32 {
    width.bytes() * 8
}

/// `u32`, `s8`
fn extension(width: Width, signed: bool) -> String {
    format!("{}{}", if signed { 's' } else { 'u' }, bits(width))
}

pub(super) fn bin_name(op: Bin) -> &'static str {
    match op {
        Bin::Add => "add",
        Bin::Sub => "sub",
        Bin::Mul => "mul",
        Bin::Div => "div",
        Bin::Rem => "rem",
        Bin::And => "and",
        Bin::Or => "or",
        Bin::Xor => "xor",
        Bin::Shl => "shl",
        Bin::Shr => "shr",
        Bin::Sar => "sar",
    }
}

/// Suffix of `cmp.`, and the operator in a branch.
pub(super) fn cmp_names(cmp: Cmp) -> (&'static str, &'static str) {
    match cmp {
        Cmp::Eq => ("eq", "=="),
        Cmp::Ne => ("ne", "!="),
        Cmp::Test => ("test", "&"),
        Cmp::Ult => ("ult", "<"),
        Cmp::Ule => ("ule", "<="),
        Cmp::Ugt => ("ugt", ">"),
        Cmp::Uge => ("uge", ">="),
        Cmp::Slt => ("slt", "<s"),
        Cmp::Sle => ("sle", "<=s"),
        Cmp::Sgt => ("sgt", ">s"),
        Cmp::Sge => ("sge", ">=s"),
    }
}

pub(super) fn atomic_name(op: AtomicOp) -> &'static str {
    match op {
        AtomicOp::Add => "add",
        AtomicOp::And => "and",
        AtomicOp::Or => "or",
        AtomicOp::Xor => "xor",
        AtomicOp::Xchg => "xchg",
    }
}

/// `[v0 + 8]`
fn address(base: VReg, offset: i16) -> String {
    match offset {
        0 => format!("[{base}]"),
        1.. => format!("[{base} + {offset}]"),
        _ => format!("[{base} - {}]", -i32::from(offset)),
    }
}

fn arguments(args: &[Operand]) -> String {
    args.iter().map(Operand::to_string).collect::<Vec<_>>().join(", ")
}

impl Module {
    fn map_name(&self, map: MapRef) -> &str {
        self.maps.get(map.0 as usize).map_or("?", |def| &def.name)
    }

    fn func_name(&self, func: FuncRef) -> &str {
        self.funcs.get(func.0 as usize).map_or("?", |func| &func.name)
    }

    /// The right side of `dst = `, or the whole operation if it writes no register.
    fn op_text(&self, op: &Op) -> String {
        match op {
            Op::Ctx { .. } => "ctx".into(),
            Op::Param { index, .. } => format!("param {index}"),
            Op::Mov { src, .. } => src.to_string(),
            Op::Bin { op, lhs, rhs, .. } => format!("{} {lhs}, {rhs}", bin_name(*op)),
            Op::Neg { src, .. } => format!("neg {src}"),
            Op::Opaque { src, .. } => format!("opaque {src}"),
            Op::Extend { src, width, signed, .. } => format!("extend.{} {src}", extension(*width, *signed)),
            Op::Compare { cmp, lhs, rhs, .. } => format!("cmp.{} {lhs}, {rhs}", cmp_names(*cmp).0),
            Op::Load { base, offset, width, signed, .. } => {
                format!("load.{} {}", extension(*width, *signed), address(*base, *offset))
            }
            Op::Store { base, offset, width, src } => {
                format!("store.{} {}, {src}", bits(*width), address(*base, *offset))
            }
            Op::Atomic { op, base, offset, width, src, .. } => {
                format!("atomic.{}.{} {}, {src}", atomic_name(*op), bits(*width), address(*base, *offset))
            }
            Op::CmpXchg { base, offset, width, expected, new, .. } => {
                format!("cmpxchg.{} {}, {expected} -> {new}", bits(*width), address(*base, *offset))
            }
            Op::SlotAddr { slot, .. } => format!("slot s{}", slot.0),
            Op::MapAddr { map, .. } => format!("map {}", self.map_name(*map)),
            Op::DataAddr { offset, .. } => format!("data {offset}"),
            Op::ValueAddr { map, offset, .. } => format!("value {} + {offset}", self.map_name(*map)),
            Op::FuncAddr { func, .. } => format!("func {}", self.func_name(*func)),
            Op::Call { helper, args, .. } => format!("call {}({})", helper.name(), arguments(args)),
            Op::Kfunc { name, args, .. } => format!("kfunc {name}({})", arguments(args)),
        }
    }

    fn inst_text(&self, op: &Op) -> String {
        match op.dst() {
            Some(dst) => format!("{dst} = {}", self.op_text(op)),
            None => self.op_text(op),
        }
    }

    fn block_lines(&self, block: &Block) -> Vec<String> {
        let ops = block.ops.iter().map(|inst| self.inst_text(&inst.op));
        ops.chain([term_text(&block.term)]).collect()
    }

    /// Formats one function.
    pub fn func_text(&self, func: &Func) -> String {
        let mut text = match &func.kind {
            FuncKind::Program { section, .. } => format!("func {} ({section})\n", func.name),
            FuncKind::Callback { args } => format!("func {} (callback, {args} arguments)\n", func.name),
        };
        for (at, slot) in func.slots.iter().enumerate() {
            text += &format!("    slot s{at}: {} bytes\n", slot.size);
        }
        for (at, block) in func.blocks.iter().enumerate() {
            for (n, line) in self.block_lines(block).iter().enumerate() {
                let label = if n == 0 { format!("b{at}:") } else { String::new() };
                text += &format!("{label:<5}{line}\n");
            }
        }
        text
    }
}

fn term_text(term: &Term) -> String {
    match term {
        Term::Jump(to) => format!("jump {to}"),
        Term::Branch { cmp, lhs, rhs, then, otherwise } => {
            format!("branch {lhs} {} {rhs}, {then}, {otherwise}", cmp_names(*cmp).1)
        }
        Term::Return(value) => format!("return {value}"),
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for map in &self.maps {
            let MapDef { name, kind, key_size, value_size, max_entries, flags, direct } = map;
            let direct = if *direct { ", direct" } else { "" };
            writeln!(
                f,
                "map {name} (kind {kind}, key {key_size}, value {value_size}, entries {max_entries}, flags {flags}{direct})"
            )?;
        }
        for func in &self.funcs {
            write!(f, "\n{}", self.func_text(func))?;
        }
        Ok(())
    }
}
