//! Random functions: the IR and the allocated machine code must compute the same.
//!
//! There are two small interpreters, one per level. There is one helper per number of arguments. It mixes its arguments and
//! clobbers the registers that a call may overwrite.

use crate::bpf::helper::Helper;
use crate::bpf::insn::{Atomic, Insn, Reg, Src};
use crate::bpf::link;
use crate::ir::*;
use lang::Span;
use std::collections::HashMap;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Helpers by number of arguments.
const BY_ARGS: [Helper; 6] = [
    Helper::KtimeGetNs,
    Helper::SendSignal,
    Helper::GetCurrentComm,
    Helper::GetStackid,
    Helper::GetStack,
    Helper::Snprintf,
];

const BINS: [Bin; 9] =
    [Bin::Add, Bin::Sub, Bin::Mul, Bin::And, Bin::Or, Bin::Xor, Bin::Shl, Bin::Shr, Bin::Sar];
const WIDTHS: [Width; 4] = [Width::B8, Width::B16, Width::B32, Width::B64];
const NUMBERS: [i64; 8] = [0, 1, -1, 7, 63, 0xffff_ffff, i64::MIN, 0x1234_5678_9abc_def0];

/// Number of values, slot addresses (registers that follow the values) and blocks of a function.
struct Shape {
    values: u32,
    slots: u32,
    blocks: u32,
}

impl Shape {
    /// A register reserved for the number of backward jumps that are left.
    fn counter(&self) -> VReg {
        VReg(self.values + self.slots)
    }
}

/// A function that terminates: backward jumps are counted. All registers are written in the entry block.
fn function(random: &mut Random) -> Func {
    let shape = Shape {
        values: 1 + random.below(20) as u32,
        slots: 1 + random.below(4) as u32,
        blocks: 1 + random.below(6) as u32,
    };
    let (name, kind, span) = ("f".to_owned(), FuncKind::Callback { args: 2 }, Span::default());
    let mut func = Func { name, kind, blocks: vec![], vregs: shape.values, slots: vec![], span };
    for at in 0..shape.blocks {
        let mut ops = if at == 0 { initial(&mut func, &shape, random) } else { vec![] };
        let first = ops.len();
        ops.extend((0..random.below(12)).map(|_| op(&shape, random)));
        (0..random.below(3)).for_each(|_| local(&mut func, &shape, random, &mut ops, first));
        let mut term = term(at, &shape, random);
        if let Some(back) = back(at, &shape, random, &mut ops) {
            term = back;
        }
        if let Term::Return(value) = term {
            term = Term::Return(read_all(&mut func, &shape, &mut ops, value).into());
        }
        let ops = ops.into_iter().map(|op| Inst { op, span }).collect();
        func.blocks.push(Block { ops, term, span });
    }
    func
}

/// Adds a slot that is written, then read, between two operations from `first` on. Such slots may overlap in the
/// frame.
fn local(func: &mut Func, shape: &Shape, random: &mut Random, ops: &mut Vec<Op>, first: usize) {
    let (slot, base) = (func.slot(8, 8), func.vreg());
    let at = first + random.below(ops.len() + 1 - first);
    let until = at + random.below(ops.len() + 1 - at);
    let (offset, width) = (0, Width::B64);
    ops.insert(until, Op::Load { dst: value(shape, random), base, offset, width, signed: false });
    ops.insert(at, Op::Store { base, offset, width, src: operand(shape, random) });
    ops.insert(at, Op::SlotAddr { dst: base, slot });
}

/// `counter -= 1; branch counter >s 0, an earlier block, the next`
fn back(at: u32, shape: &Shape, random: &mut Random, ops: &mut Vec<Op>) -> Option<Term> {
    if at == 0 || at + 1 == shape.blocks || random.below(3) > 0 {
        return None;
    }
    let counter = shape.counter();
    ops.push(Op::Bin { op: Bin::Sub, dst: counter, lhs: counter.into(), rhs: Operand::Const(1) });
    let (then, otherwise) = (BlockId(1 + random.below(at as usize) as u32), BlockId(at + 1));
    Some(Term::Branch { cmp: Cmp::Sgt, lhs: counter, rhs: Operand::Const(0), then, otherwise })
}

/// Combines the slots and registers to the result.
fn read_all(func: &mut Func, shape: &Shape, ops: &mut Vec<Op>, value: Operand) -> VReg {
    let sum = func.vreg();
    ops.push(Op::Mov { dst: sum, src: value });
    for slot in 0..2 * shape.slots {
        let (dst, base, offset) = (func.vreg(), VReg(shape.values + slot / 2), 8 * (slot % 2) as i16);
        ops.push(Op::Load { dst, base, offset, width: Width::B64, signed: false });
        ops.push(Op::Call { dst: Some(sum), helper: BY_ARGS[2], args: vec![sum.into(), dst.into()] });
    }
    for value in (0..shape.values).map(VReg) {
        ops.push(Op::Call { dst: Some(sum), helper: BY_ARGS[2], args: vec![sum.into(), value.into()] });
    }
    sum
}

fn initial(func: &mut Func, shape: &Shape, random: &mut Random) -> Vec<Op> {
    let mut ops = vec![];
    for n in 0..shape.values {
        let dst = VReg(n);
        ops.push(match random.below(4) {
            0 => Op::Param { dst, index: random.below(2) as u8 },
            _ => Op::Mov { dst, src: Operand::Const(random.pick(&NUMBERS)) },
        });
    }
    for _ in 0..shape.slots {
        let (slot, dst) = (func.slot(16, 8), func.vreg());
        // An address with two definitions is held in a register.
        (0..1 + random.below(2)).for_each(|_| ops.push(Op::SlotAddr { dst, slot }));
        ops.push(Op::Store { base: dst, offset: 0, width: Width::B64, src: value(shape, random).into() });
        ops.push(Op::Store { base: dst, offset: 8, width: Width::B64, src: operand(shape, random) });
    }
    ops.push(Op::Mov { dst: func.vreg(), src: Operand::Const(4) });
    ops
}

fn value(shape: &Shape, random: &mut Random) -> VReg {
    VReg(random.below(shape.values as usize) as u32)
}

fn address(shape: &Shape, random: &mut Random) -> (VReg, i16) {
    (VReg(shape.values + random.below(shape.slots as usize) as u32), 8 * random.below(2) as i16)
}

fn operand(shape: &Shape, random: &mut Random) -> Operand {
    match random.below(3) {
        0 => random.pick(&NUMBERS).into(),
        _ => value(shape, random).into(),
    }
}

fn op(shape: &Shape, random: &mut Random) -> Op {
    let (dst, src) = (value(shape, random), value(shape, random));
    let (lhs, rhs) = (operand(shape, random), operand(shape, random));
    let (base, offset) = address(shape, random);
    let (width, wide) = (random.pick(&WIDTHS), random.pick(&[Width::B32, Width::B64]));
    let signed = random.below(2) == 0;
    match random.below(13) {
        0 => Op::Mov { dst, src: lhs },
        12 => Op::Opaque { dst, src },
        1..4 => Op::Bin { op: random.pick(&BINS), dst, lhs, rhs },
        4 => Op::Neg { dst, src },
        5 => Op::Extend { dst, src, width, signed },
        6 => Op::Compare { dst, cmp: random.pick(&Cmp::ALL), lhs, rhs },
        7 => Op::Load { dst, base, offset, width, signed },
        8 => Op::Store { base, offset, width, src: lhs },
        9 => {
            let op =
                random.pick(&[AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Xchg]);
            let fetch = signed.then_some(dst);
            Op::Atomic { op, base, offset, width: wide, src, fetch }
        }
        10 => Op::CmpXchg { dst, base, offset, width: wide, expected: src, new: value(shape, random) },
        _ => {
            let args: Vec<_> = (0..random.below(6)).map(|_| operand(shape, random)).collect();
            Op::Call { dst: signed.then_some(dst), helper: BY_ARGS[args.len()], args }
        }
    }
}

fn term(at: u32, shape: &Shape, random: &mut Random) -> Term {
    let left = (shape.blocks - at - 1) as usize;
    if left == 0 {
        return Term::Return(operand(shape, random));
    }
    let mut target = || BlockId(at + 1 + random.below(left) as u32);
    let (then, otherwise) = (target(), target());
    match random.below(4) {
        0 => Term::Jump(then),
        _ => Term::Branch {
            cmp: random.pick(&Cmp::ALL),
            lhs: value(shape, random),
            rhs: operand(shape, random),
            then,
            otherwise,
        },
    }
}

fn truncate(value: u64, width: Width) -> u64 {
    value & u64::MAX >> (64 - 8 * width.bytes())
}

fn sign_extend(value: u64, width: Width) -> u64 {
    let shift = 64 - 8 * width.bytes();
    ((value << shift) as i64 >> shift) as u64
}

fn bin(op: Bin, a: u64, b: u64) -> u64 {
    match op {
        Bin::Add => a.wrapping_add(b),
        Bin::Sub => a.wrapping_sub(b),
        Bin::Mul => a.wrapping_mul(b),
        Bin::Div => a / b,
        Bin::Rem => a % b,
        Bin::And => a & b,
        Bin::Or => a | b,
        Bin::Xor => a ^ b,
        Bin::Shl => a.wrapping_shl(b as u32),
        Bin::Shr => a.wrapping_shr(b as u32),
        Bin::Sar => (a as i64).wrapping_shr(b as u32) as u64,
    }
}

fn cmp(cmp: Cmp, a: u64, b: u64) -> bool {
    let (sa, sb) = (a as i64, b as i64);
    match cmp {
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Test => a & b != 0,
        Cmp::Ult => a < b,
        Cmp::Ule => a <= b,
        Cmp::Ugt => a > b,
        Cmp::Uge => a >= b,
        Cmp::Slt => sa < sb,
        Cmp::Sle => sa <= sb,
        Cmp::Sgt => sa > sb,
        Cmp::Sge => sa >= sb,
    }
}

/// Result of a call in both machines.
fn helper(args: impl Iterator<Item = u64>) -> u64 {
    args.fold(17, |hash, arg| (hash ^ arg).wrapping_mul(0x100_0000_01b3).rotate_left(9))
}

/// Memory, by byte address.
#[derive(Default)]
struct Memory(HashMap<u64, u8>);

impl Memory {
    fn load(&self, at: u64, width: Width) -> u64 {
        let byte = |n: u32| u64::from(self.0[&at.wrapping_add(u64::from(n))]) << (8 * n);
        (0..width.bytes()).map(byte).sum()
    }

    fn store(&mut self, at: u64, width: Width, value: u64) {
        for n in 0..width.bytes() {
            self.0.insert(at.wrapping_add(u64::from(n)), (value >> (8 * n)) as u8);
        }
    }

    /// Updates a word and returns the old value.
    fn update(&mut self, at: u64, width: Width, f: impl FnOnce(u64) -> u64) -> u64 {
        let old = self.load(at, width);
        self.store(at, width, f(old));
        old
    }
}

/// Runs the IR and returns its result. Slots are 64 bytes apart.
fn run_ir(func: &Func, params: [u64; 2]) -> u64 {
    let mut regs = vec![0u64; func.vregs as usize];
    let mut memory = Memory::default();
    let mut at = 0;
    loop {
        for inst in &func.blocks[at].ops {
            step_ir(&inst.op, &mut regs, &mut memory, params);
        }
        let get = |operand| match operand {
            Operand::Reg(VReg(n)) => regs[n as usize],
            Operand::Const(value) => value as u64,
        };
        match func.blocks[at].term {
            Term::Jump(to) => at = to.0 as usize,
            Term::Branch { cmp: c, lhs, rhs, then, otherwise } => {
                at = if cmp(c, get(lhs.into()), get(rhs)) { then } else { otherwise }.0 as usize
            }
            Term::Return(value) => return get(value),
        }
    }
}

fn step_ir(op: &Op, regs: &mut [u64], memory: &mut Memory, params: [u64; 2]) {
    let get = |operand: Operand| match operand {
        Operand::Reg(VReg(n)) => regs[n as usize],
        Operand::Const(value) => value as u64,
    };
    let at = |base: VReg, offset: i16| regs[base.0 as usize].wrapping_add(offset as u64);
    let value = match *op {
        Op::Param { index, .. } => params[index as usize],
        Op::Mov { src, .. } => get(src),
        Op::Bin { op, lhs, rhs, .. } => bin(op, get(lhs), get(rhs)),
        Op::Opaque { src, .. } => get(src.into()),
        Op::Neg { src, .. } => get(src.into()).wrapping_neg(),
        Op::Extend { src, width, signed: true, .. } => sign_extend(get(src.into()), width),
        Op::Extend { src, width, .. } => truncate(get(src.into()), width),
        Op::Compare { cmp: c, lhs, rhs, .. } => u64::from(cmp(c, get(lhs), get(rhs))),
        Op::Load { base, offset, width, signed, .. } => {
            let value = memory.load(at(base, offset), width);
            if signed { sign_extend(value, width) } else { value }
        }
        Op::Store { base, offset, width, src } => {
            memory.store(at(base, offset), width, get(src));
            0
        }
        Op::Atomic { op, base, offset, width, src, .. } => {
            let new = get(src.into());
            memory.update(at(base, offset), width, |old| match op {
                AtomicOp::Add => old.wrapping_add(new),
                AtomicOp::And => old & new,
                AtomicOp::Or => old | new,
                AtomicOp::Xor => old ^ new,
                AtomicOp::Xchg => new,
            })
        }
        Op::CmpXchg { base, offset, width, expected, new, .. } => {
            let (expected, new) = (truncate(get(expected.into()), width), get(new.into()));
            memory.update(at(base, offset), width, |old| if old == expected { new } else { old })
        }
        Op::SlotAddr { slot, .. } => 64 * u64::from(slot.0),
        Op::Call { ref args, .. } => helper(args.iter().map(|arg| get(*arg))),
        ref other => unreachable!("not generated: {other:?}"),
    };
    if let Some(dst) = op.dst() {
        regs[dst.0 as usize] = value;
    }
}

/// End of the stack, which is the value of the frame pointer.
const STACK: u64 = 1 << 40;
const RUBBISH: u64 = 0xdead_beef_dead_beef;

/// Runs the machine code and returns its result.
fn run_code(insns: &[Insn], params: [u64; 2]) -> u64 {
    let mut regs = [RUBBISH; 11];
    (regs[1], regs[2], regs[10]) = (params[0], params[1], STACK);
    let mut memory = Memory::default();
    // Jump distances count slots.
    let slots: Vec<usize> = insns.iter().enumerate().flat_map(|(at, insn)| vec![at; insn.slots()]).collect();
    let mut pc = 0usize;
    loop {
        let insn = &insns[slots[pc]];
        pc += insn.slots();
        let get = |src| match src {
            Src::Reg(Reg(n)) => regs[n as usize],
            Src::Imm(imm) => i64::from(imm) as u64,
        };
        let place = |base: Reg, offset: i16| regs[base.0 as usize].wrapping_add(offset as u64);
        match *insn {
            Insn::Alu { op, dst, src, .. } => regs[dst.0 as usize] = bin(op, regs[dst.0 as usize], get(src)),
            Insn::Mov { wide: true, dst, src } => regs[dst.0 as usize] = get(src),
            Insn::Mov { dst, src, .. } => regs[dst.0 as usize] = truncate(get(src), Width::B32),
            Insn::Neg { dst, .. } => regs[dst.0 as usize] = regs[dst.0 as usize].wrapping_neg(),
            Insn::LoadImm { dst, value, .. } => regs[dst.0 as usize] = value as u64,
            Insn::Load { width, dst, base, offset } => {
                regs[dst.0 as usize] = memory.load(place(base, offset), width)
            }
            Insn::Store { width, base, offset, src } => memory.store(place(base, offset), width, get(src)),
            Insn::Atomic { op, width, base, offset, src } => {
                let at = place(base, offset);
                atomic(&mut regs, &mut memory, op, width, at, src);
            }
            Insn::Jump { offset } => pc = pc.wrapping_add_signed(offset.into()),
            Insn::Branch { cmp: c, lhs, rhs, offset, .. } => {
                if cmp(c, regs[lhs.0 as usize], get(rhs)) {
                    pc = pc.wrapping_add_signed(offset.into());
                }
            }
            Insn::Call { imm, .. } => {
                let args = Helper::by_number(imm as u32).expect("one of `BY_ARGS`").args();
                regs[0] = helper(regs[1..=args.into()].iter().copied());
                regs[1..=5].fill(RUBBISH);
            }
            Insn::Exit => return regs[0],
        }
    }
}

fn atomic(regs: &mut [u64; 11], memory: &mut Memory, op: Atomic, width: Width, at: u64, src: Reg) {
    let (new, expected) = (regs[src.0 as usize], truncate(regs[0], width));
    match op {
        Atomic::Update(op) => {
            memory.update(at, width, |old| bin(op, old, new));
        }
        Atomic::Fetch(op) => regs[src.0 as usize] = memory.update(at, width, |old| bin(op, old, new)),
        Atomic::Xchg => regs[src.0 as usize] = memory.update(at, width, |_| new),
        Atomic::CmpXchg => regs[0] = memory.update(at, width, |old| if old == expected { new } else { old }),
    }
}

/// The allocation checker also runs.
#[test]
fn machine_code_computes_what_the_ir_computes() {
    let mut spilled = 0;
    for seed in 0..1500 {
        let mut random = Random(seed);
        let func = function(&mut random);
        let module = Module { funcs: vec![func], ..Module::default() };
        let assembly = link::assemble(&module).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let params = [random.next(), random.pick(&NUMBERS) as u64];
        let (expected, found) =
            (run_ir(&module.funcs[0], params), run_code(&assembly.codes[0].insns, params));
        let text = assembly.codes[0].insns.iter().map(|insn| format!("{insn}\n")).collect::<String>();
        assert_eq!(found, expected, "seed {seed}: {:#?}\n{text}", module.funcs[0].blocks);
        let room = module.funcs[0].slots.iter().map(|slot| slot.size).sum();
        spilled += u32::from(assembly.codes[0].frame > room);
    }
    assert!(spilled > 300, "only {spilled} functions needed the stack for registers");
}

#[test]
fn code_survives_its_encoding() {
    for seed in 0..200 {
        let func = function(&mut Random(seed));
        let assembly = link::assemble(&Module { funcs: vec![func], ..Module::default() }).unwrap();
        let mut bytes = Vec::new();
        assembly.codes[0].insns.iter().for_each(|insn| insn.encode(&mut bytes));
        assert_eq!(Insn::decode_all(&bytes).unwrap(), assembly.codes[0].insns);
    }
}
