//! Parses the text that `print` writes, so that a golden file of a pass begins with IR instead of a script.
//!
//! The text omits facts that no pass reads. The parsed module has empty spans, slots aligned to 8 bytes, no data, and programs
//! that run at the start of the trace.

use super::print::{atomic_name, bin_name, cmp_names};
use super::*;

const BINS: [Bin; 11] = [
    Bin::Add,
    Bin::Sub,
    Bin::Mul,
    Bin::Div,
    Bin::Rem,
    Bin::And,
    Bin::Or,
    Bin::Xor,
    Bin::Shl,
    Bin::Shr,
    Bin::Sar,
];
const ATOMICS: [AtomicOp; 5] = [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Xchg];

/// Names of maps and functions, by which the text refers to them.
#[derive(Default)]
struct Names<'t> {
    maps: Vec<&'t str>,
    funcs: Vec<&'t str>,
}

/// Parses a module. Lines that begin with `//` are comments. The error is the first line that is not IR.
pub fn parse(text: &str) -> Result<Module, String> {
    let named = |keyword| text.lines().filter_map(move |line| words(line.strip_prefix(keyword)?).next());
    let names = Names { maps: named("map ").collect(), funcs: named("func ").collect() };
    let mut module = Module::default();
    let is_ir = |line: &str| !line.trim().is_empty() && !line.starts_with("//");
    for (at, line) in text.lines().enumerate().filter(|(_, line)| is_ir(line)) {
        read_line(&mut module, &names, line).ok_or_else(|| format!("line {}: {line}", at + 1))?;
    }
    Ok(module)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', ':', '(', ')', '[', ']']).filter(|word| !word.is_empty())
}

fn read_line(module: &mut Module, names: &Names<'_>, line: &str) -> Option<()> {
    if let Some(map) = line.strip_prefix("map ") {
        module.maps.push(read_map(map)?);
        return Some(());
    }
    if let Some(func) = line.strip_prefix("func ") {
        module.funcs.push(read_func(func)?);
        return Some(());
    }
    let func = module.funcs.last_mut()?;
    if let Some(slot) = line.strip_prefix("    slot s") {
        let size = words(slot).nth(1)?.parse().ok()?;
        func.slots.push(Slot { size, align: 8 });
        return Some(());
    }
    let inst = match line.split_once(':') {
        Some((label, inst)) if label.starts_with('b') => {
            let term = Term::Return(Operand::Const(0));
            func.blocks.push(Block { ops: vec![], term, span: Span::default() });
            inst
        }
        _ => line,
    };
    let block = func.blocks.last_mut()?;
    if let Some(term) = read_term(inst) {
        block.term = term;
        return Some(());
    }
    let op = read_op(names, inst.trim())?;
    func.vregs = op.dst().map_or(0, |dst| dst.0 + 1).max(func.vregs);
    block.ops.push(Inst { op, span: Span::default() });
    Some(())
}

fn read_map(text: &str) -> Option<MapDef> {
    let words: Vec<&str> = words(text).collect();
    let number = |at: usize| words.get(at)?.parse().ok();
    Some(MapDef {
        name: (*words.first()?).to_owned(),
        kind: number(2)?,
        key_size: number(4)?,
        value_size: number(6)?,
        max_entries: number(8)?,
        flags: number(10)?,
        direct: words.get(11) == Some(&"direct"),
    })
}

fn read_func(text: &str) -> Option<Func> {
    let (name, kind) = text.strip_suffix(')')?.split_once(" (")?;
    let kind = match kind.strip_prefix("callback, ") {
        Some(args) => FuncKind::Callback { args: words(args).next()?.parse().ok()? },
        None => {
            let info =
                ProgramInfo { clause: 0, attach: manifest::Attach::Event(wire::trigger::Trigger::Begin) };
            FuncKind::Program { section: kind.to_owned(), info }
        }
    };
    let (name, span) = (name.to_owned(), Span::default());
    Some(Func { name, kind, blocks: vec![], vregs: 0, slots: vec![], span })
}

fn read_term(text: &str) -> Option<Term> {
    let mut words = words(text);
    Some(match words.next()? {
        "jump" => Term::Jump(block(words.next()?)?),
        "return" => Term::Return(operand(words.next()?)?),
        "branch" => {
            let (lhs, sign) = (vreg(words.next()?)?, words.next()?);
            let cmp = Cmp::ALL.into_iter().find(|cmp| cmp_names(*cmp).1 == sign)?;
            let rhs = operand(words.next()?)?;
            Term::Branch { cmp, lhs, rhs, then: block(words.next()?)?, otherwise: block(words.next()?)? }
        }
        _ => return None,
    })
}

fn read_op(names: &Names<'_>, text: &str) -> Option<Op> {
    let (to, text) = match text.split_once(" = ") {
        Some((to, text)) => (Some(vreg(to)?), text),
        None => (None, text),
    };
    // Register of operations that write one.
    let dst = to.unwrap_or(VReg(u32::MAX));
    let mut words = words(text).peekable();
    let word = words.next()?;
    let (name, suffix) = word.split_once('.').unwrap_or((word, ""));
    let op = match name {
        "ctx" => Op::Ctx { dst },
        "param" => Op::Param { dst, index: words.next()?.parse().ok()? },
        "neg" => Op::Neg { dst, src: vreg(words.next()?)? },
        "opaque" => Op::Opaque { dst, src: vreg(words.next()?)? },
        "extend" => {
            let (width, signed) = extension(suffix)?;
            Op::Extend { dst, src: vreg(words.next()?)?, width, signed }
        }
        "cmp" => {
            let cmp = Cmp::ALL.into_iter().find(|cmp| cmp_names(*cmp).0 == suffix)?;
            Op::Compare { dst, cmp, lhs: operand(words.next()?)?, rhs: operand(words.next()?)? }
        }
        "load" => {
            let ((width, signed), (base, offset)) = (extension(suffix)?, address(&mut words)?);
            Op::Load { dst, base, offset, width, signed }
        }
        "store" => {
            let (width, (base, offset)) = (width(suffix)?, address(&mut words)?);
            Op::Store { base, offset, width, src: operand(words.next()?)? }
        }
        "atomic" => {
            let (name, bits) = suffix.split_once('.')?;
            let op = ATOMICS.into_iter().find(|op| atomic_name(*op) == name)?;
            let (width, (base, offset)) = (width(bits)?, address(&mut words)?);
            Op::Atomic { op, base, offset, width, src: vreg(words.next()?)?, fetch: to }
        }
        "cmpxchg" => {
            let (width, (base, offset)) = (width(suffix)?, address(&mut words)?);
            let (expected, new) = (vreg(words.next()?)?, vreg(words.nth(1)?)?);
            Op::CmpXchg { dst, base, offset, width, expected, new }
        }
        "slot" => Op::SlotAddr { dst, slot: SlotId(index(words.next()?, "s")?) },
        "map" => Op::MapAddr { dst, map: MapRef(position(&names.maps, words.next()?)?) },
        "data" => Op::DataAddr { dst, offset: words.next()?.parse().ok()? },
        "value" => {
            let map = MapRef(position(&names.maps, words.next()?)?);
            Op::ValueAddr { dst, map, offset: words.nth(1)?.parse().ok()? }
        }
        "func" => Op::FuncAddr { dst, func: FuncRef(position(&names.funcs, words.next()?)?) },
        "call" => {
            let helper = Helper::by_name(words.next()?)?;
            Op::Call { dst: to, helper, args: words.map(operand).collect::<Option<_>>()? }
        }
        "kfunc" => {
            let name = words.next()?.to_owned();
            Op::Kfunc { dst: to, name, args: words.map(operand).collect::<Option<_>>()? }
        }
        _ => match BINS.into_iter().find(|op| bin_name(*op) == name) {
            Some(op) => Op::Bin { op, dst, lhs: operand(words.next()?)?, rhs: operand(words.next()?)? },
            None => Op::Mov { dst, src: operand(word)? },
        },
    };
    (op.dst() == to).then_some(op)
}

fn index(word: &str, prefix: &str) -> Option<u32> {
    word.strip_prefix(prefix)?.parse().ok()
}

fn vreg(word: &str) -> Option<VReg> {
    index(word, "v").map(VReg)
}

fn block(word: &str) -> Option<BlockId> {
    index(word, "b").map(BlockId)
}

fn operand(word: &str) -> Option<Operand> {
    vreg(word).map(Operand::Reg).or_else(|| word.parse().ok().map(Operand::Const))
}

fn position(names: &[&str], name: &str) -> Option<u32> {
    names.iter().position(|known| *known == name).map(|at| at as u32)
}

fn width(bits: &str) -> Option<Width> {
    Width::of(bits.parse::<u32>().ok()? / 8)
}

/// `u32`, `s8`
fn extension(text: &str) -> Option<(Width, bool)> {
    let signed = text.starts_with('s');
    Some((width(text.strip_prefix(['s', 'u'])?)?, signed))
}

/// `[v0 + 8]`, without its brackets
fn address<'t>(words: &mut std::iter::Peekable<impl Iterator<Item = &'t str>>) -> Option<(VReg, i16)> {
    let base = vreg(words.next()?)?;
    let sign = words.next_if(|word| matches!(*word, "+" | "-"));
    let Some(sign) = sign else { return Some((base, 0)) };
    Some((base, format!("{sign}{}", words.next()?).parse().ok()?))
}
