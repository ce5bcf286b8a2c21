//! Drops operations whose result nobody reads, and stack slots that nobody names.

use crate::flow::{self, Bits, Effect, Live};
use crate::ir::{AtomicOp, Block, Func, Inst, Op, Operand, SlotId, VReg};

/// `v1 = add v0, 1` goes if `v1` is not read before it is written again. Calls stay, but lose an unread result.
pub fn dce(func: &mut Func) -> bool {
    let live = live(func);
    let mut changed = false;
    for (block, live) in func.blocks.iter_mut().zip(live.ends) {
        changed |= sweep(block, live);
    }
    changed | drop_slots(func)
}

fn number(reg: VReg) -> usize {
    reg.0 as usize
}

fn effect(block: &Block, len: usize) -> Effect {
    let mut effect = Effect::new(len);
    for Inst { op, .. } in &block.ops {
        op.for_each_use(|operand| operand.as_reg().into_iter().for_each(|reg| effect.read(number(reg))));
        op.dst().into_iter().for_each(|reg| effect.write(number(reg)));
    }
    block.term.for_each_use(|operand| operand.as_reg().into_iter().for_each(|reg| effect.read(number(reg))));
    effect
}

fn live(func: &Func) -> Live {
    let len = func.vregs as usize;
    let effects: Vec<Effect> = func.blocks.iter().map(|block| effect(block, len)).collect();
    flow::live(&effects, len, |block| func.blocks[block].term.successors().map(|to| to.0 as usize))
}

/// Goes backwards through a block with what is read behind it.
fn sweep(block: &mut Block, mut live: Bits) -> bool {
    let mut changed = false;
    let mut kept = vec![true; block.ops.len()];
    block.term.for_each_use(|operand| want(operand, &mut live));
    for (inst, kept) in block.ops.iter_mut().zip(&mut kept).rev() {
        *kept = !inst.op.is_pure() || inst.op.dst().is_none_or(|dst| live.contains(number(dst)));
        if *kept {
            changed |= drop_result(&mut inst.op, &live);
            inst.op.dst().into_iter().for_each(|reg| live.remove(number(reg)));
            inst.op.for_each_use(|operand| want(operand, &mut live));
        }
    }
    changed |= kept.contains(&false);
    let mut kept = kept.into_iter();
    block.ops.retain(|_| kept.next() == Some(true));
    changed
}

fn want(operand: Operand, live: &mut Bits) {
    operand.as_reg().into_iter().for_each(|reg| live.insert(number(reg)));
}

fn drop_result(op: &mut Op, live: &Bits) -> bool {
    let Some(result) = optional_result(op) else { return false };
    let unread = result.is_some_and(|reg| !live.contains(number(reg)));
    if unread {
        *result = None;
    }
    unread
}

/// The result that an operation may do without. An exchange has none but with its fetch.
fn optional_result(op: &mut Op) -> Option<&mut Option<VReg>> {
    match op {
        Op::Atomic { op: AtomicOp::Xchg, .. } => None,
        Op::Call { dst, .. } | Op::Kfunc { dst, .. } | Op::Atomic { fetch: dst, .. } => Some(dst),
        _ => None,
    }
}

fn drop_slots(func: &mut Func) -> bool {
    let mut used = vec![false; func.slots.len()];
    for_each_slot(func, |slot| used[slot.0 as usize] = true);
    if used.iter().all(|used| *used) {
        return false;
    }
    let new: Vec<u32> =
        used.iter().scan(0, |next, used| Some(std::mem::replace(next, *next + u32::from(*used)))).collect();
    for_each_slot(func, |slot| slot.0 = new[slot.0 as usize]);
    let mut used = used.into_iter();
    func.slots.retain(|_| used.next() == Some(true));
    true
}

fn for_each_slot(func: &mut Func, mut f: impl FnMut(&mut SlotId)) {
    for inst in func.blocks.iter_mut().flat_map(|block| &mut block.ops) {
        if let Op::SlotAddr { slot, .. } = &mut inst.op {
            f(slot);
        }
    }
}
