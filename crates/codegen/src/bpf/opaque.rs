//! Finds the values that are tested in an opaque copy instead of directly.
//!
//! At each branch the verifier narrows the tested value on both paths. A second test of the value is then decided by the
//! first, and the verifier follows the rest of the program once for each outcome: 20 such values make a million paths.
//! The same holds for a value that is a different constant on each path. An opaque copy is a separate value to the
//! verifier. Nothing is narrowed, and paths that have joined stay joined.
//!
//! ```text
//! branch v0 == 0, b1, b2            r2 = fp; r2 -= fp; r2 ^= r1; if r2 == 0 goto b1
//! ```
//!
//! Exempt are values that the verifier must track: addresses, their offsets, sizes, and loop counts.

use super::helper::Helper;
use crate::dataflow::Bits;
use crate::ir::{Func, Op, Operand, Term, VReg};

/// A function with fewer tests has few enough paths for the verifier to follow them all.
const FEW_TESTS: usize = 32;

/// Helpers whose third argument is an address that the verifier does not track.
const READERS: [Helper; 4] =
    [Helper::ProbeReadUser, Helper::ProbeReadKernel, Helper::ProbeReadUserStr, Helper::ProbeReadKernelStr];

/// Helpers whose result is an address.
const FINDERS: [Helper; 5] = [
    Helper::MapLookupElem,
    Helper::MapLookupPercpuElem,
    Helper::RingbufReserve,
    Helper::GetCurrentTaskBtf,
    Helper::TaskPtRegs,
];

/// Registers that are tested in an opaque copy.
pub(super) fn tested_copies(func: &Func) -> Bits {
    let mut apart = Bits::new(func.vregs as usize);
    let tests = tests(func);
    if tests.len() < FEW_TESTS {
        return apart;
    }
    let needed = needed(func);
    let mut known = framed(func);
    known.union(&constants(func));
    let mut seen = Bits::new(func.vregs as usize);
    for reg in tests.iter().map(|reg| reg.0 as usize).filter(|&reg| !needed.contains(reg)) {
        if known.contains(reg) || seen.contains(reg) {
            apart.insert(reg);
        }
        seen.insert(reg);
    }
    apart
}

fn ops(func: &Func) -> impl DoubleEndedIterator<Item = &Op> {
    func.blocks.iter().flat_map(|block| &block.ops).map(|inst| &inst.op)
}

/// Registers that are compared, one entry per comparison.
fn tests(func: &Func) -> Vec<VReg> {
    let compared = ops(func).filter_map(|op| match *op {
        Op::Compare { lhs, rhs, .. } => Some([lhs, rhs]),
        _ => None,
    });
    let branched = func.blocks.iter().filter_map(|block| match block.term {
        Term::Branch { lhs, rhs, .. } => Some([lhs.into(), rhs]),
        _ => None,
    });
    compared.chain(branched).flatten().filter_map(Operand::as_reg).collect()
}

/// Registers that callbacks load from the frame of their program. Each load defines another register, but the
/// verifier tracks them as one value.
fn framed(func: &Func) -> Bits {
    let mut frame = Bits::new(func.vregs as usize);
    let mut framed = frame.clone();
    for op in ops(func) {
        match *op {
            Op::Param { dst, .. } => frame.insert(dst.0 as usize),
            Op::Load { dst, base, .. } if frame.contains(base.0 as usize) => framed.insert(dst.0 as usize),
            _ => {}
        }
    }
    framed
}

/// Registers with several definitions, one of which is a constant, and values computed from such registers alone.
fn constants(func: &Func) -> Bits {
    let mut written = Bits::new(func.vregs as usize);
    let (mut again, mut set) = (written.clone(), written.clone());
    for op in ops(func) {
        let Some(VReg(dst)) = op.dst() else { continue };
        if written.contains(dst as usize) {
            again.insert(dst as usize);
        }
        written.insert(dst as usize);
        if matches!(op, Op::Mov { src: Operand::Const(_), .. }) {
            set.insert(dst as usize);
        }
    }
    let mut constants = set.both(&again);
    // Most results follow their operands, so one pass finds nearly all.
    while ops(func).fold(false, |news, op| add_result(op, &mut constants) | news) {}
    constants
}

fn is_computed(op: &Op) -> bool {
    matches!(op, Op::Mov { .. } | Op::Bin { .. } | Op::Neg { .. } | Op::Extend { .. })
}

/// Adds the result of an operation whose register operands are all constants. Returns whether the set changed. A
/// comparison is a constant on each path.
fn add_result(op: &Op, constants: &mut Bits) -> bool {
    let (mut some, mut all) = (false, true);
    op.for_each_use(|operand| {
        if let Operand::Reg(VReg(reg)) = operand {
            some |= constants.contains(reg as usize);
            all &= constants.contains(reg as usize);
        }
    });
    let is_constant = is_computed(op) && some && all || matches!(op, Op::Compare { .. });
    let Some(VReg(dst)) = op.dst().filter(|_| is_constant) else { return false };
    let news = !constants.contains(dst as usize);
    constants.insert(dst as usize);
    news
}

/// Addresses, loop counters and arguments of helpers, and the values that they are computed from.
fn needed(func: &Func) -> Bits {
    let mut needed = Bits::new(func.vregs as usize);
    let mut add =
        |operand: Operand| operand.as_reg().into_iter().for_each(|reg| needed.insert(reg.0 as usize));
    for op in ops(func) {
        match *op {
            Op::Load { base, .. } | Op::Store { base, .. } => add(base.into()),
            Op::Atomic { base, .. } | Op::CmpXchg { base, .. } => add(base.into()),
            Op::Call { helper, dst, ref args } => {
                let known = args.iter().enumerate().filter(|(at, _)| *at != 2 || !READERS.contains(&helper));
                known.for_each(|(_, arg)| add(*arg));
                dst.filter(|_| FINDERS.contains(&helper)).into_iter().for_each(|dst| add(dst.into()));
            }
            Op::Bin { dst, lhs, .. } if lhs == dst.into() => add(lhs),
            Op::Kfunc { ref args, .. } => args.iter().copied().for_each(&mut add),
            _ => {}
        }
    }
    // Most operands precede their results, so a backward pass finds nearly all.
    while ops(func).rev().fold(false, |news, op| add_sources(op, &mut needed) | news) {}
    needed
}

/// Adds the operands of a needed result. Returns whether the set changed.
fn add_sources(op: &Op, needed: &mut Bits) -> bool {
    let mut news = false;
    if is_computed(op) && op.dst().is_some_and(|dst| needed.contains(dst.0 as usize)) {
        op.for_each_use(|operand| {
            if let Operand::Reg(reg) = operand {
                news |= !needed.contains(reg.0 as usize);
                needed.insert(reg.0 as usize);
            }
        });
    }
    news
}
