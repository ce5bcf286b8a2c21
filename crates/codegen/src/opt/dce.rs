//! Drops operations whose result nobody reads, and stack slots that nobody names.

use crate::flow::{Bits, Effects, Live};
use crate::ir::{AtomicOp, Block, Func, Inst, Op, Operand, SlotId, VReg};

/// `v1 = add v0, 1` goes if `v1` is not read before it is written again. Calls stay, but lose an unread result.
pub fn dce(func: &mut Func) -> bool {
    let live = live(func);
    let mut wanted = Bits::new(func.vregs as usize);
    let mut changed = false;
    for (at, block) in func.blocks.iter_mut().enumerate() {
        live.at_end(at).for_each(|reg| wanted.insert(reg));
        changed |= sweep(block, &mut wanted);
        live.at_start(at).for_each(|reg| wanted.remove(reg));
    }
    changed | drop_slots(func)
}

fn number(reg: VReg) -> usize {
    reg.0 as usize
}

fn live(func: &Func) -> Live {
    let mut effects = Effects::new(func.vregs as usize);
    for block in &func.blocks {
        effects.begin_block();
        for Inst { op, .. } in &block.ops {
            op.for_each_use(|operand| operand.as_reg().into_iter().for_each(|reg| effects.read(number(reg))));
            op.dst().into_iter().for_each(|reg| effects.write(number(reg)));
        }
        block
            .term
            .for_each_use(|operand| operand.as_reg().into_iter().for_each(|reg| effects.read(number(reg))));
    }
    effects.live(|block| func.blocks[block].term.successors().map(|to| to.0 as usize))
}

/// Goes backwards through a block with what is read behind it; `live` becomes what is read from its start on.
fn sweep(block: &mut Block, live: &mut Bits) -> bool {
    let mut changed = false;
    let mut kept = vec![true; block.ops.len()];
    block.term.for_each_use(|operand| want(operand, live));
    for (inst, kept) in block.ops.iter_mut().zip(&mut kept).rev() {
        *kept = !inst.op.is_pure() || inst.op.dst().is_none_or(|dst| live.contains(number(dst)));
        if *kept {
            changed |= drop_result(&mut inst.op, live);
            inst.op.dst().into_iter().for_each(|reg| live.remove(number(reg)));
            inst.op.for_each_use(|operand| want(operand, live));
        }
    }
    if !kept.contains(&false) {
        return changed;
    }
    let mut kept = kept.into_iter();
    block.ops.retain(|_| kept.next() == Some(true));
    true
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
