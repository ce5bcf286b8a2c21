//! Drops operations whose result nobody reads, and stack slots that nobody names.

use crate::ir::{AtomicOp, Block, Func, Op, SlotId, VReg};

/// `v1 = add v0, 1` goes if `v1` is not read before it is written again. Calls stay, but lose an unread result.
pub fn dce(func: &mut Func) -> bool {
    let live_out = liveness(func);
    let mut changed = false;
    for (block, live) in func.blocks.iter_mut().zip(live_out) {
        changed |= sweep(block, live);
    }
    changed | drop_slots(func)
}

/// A set of registers.
type Set = Vec<bool>;

fn read_in(block: &Block, mut live: Set) -> Set {
    block.term.uses().into_iter().for_each(|reg| live[reg.0 as usize] = true);
    for inst in block.ops.iter().rev() {
        step(&inst.op, &mut live);
    }
    live
}

fn step(op: &Op, live: &mut Set) {
    if let Some(dst) = op.dst() {
        live[dst.0 as usize] = false;
    }
    op.uses().into_iter().for_each(|reg| live[reg.0 as usize] = true);
}

/// What is read after each block.
fn liveness(func: &Func) -> Vec<Set> {
    let none = vec![false; func.vregs as usize];
    let mut live_in = vec![none.clone(); func.blocks.len()];
    let mut live_out = live_in.clone();
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for at in (0..func.blocks.len()).rev() {
            let mut out = none.clone();
            for to in func.blocks[at].term.successors() {
                out.iter_mut().zip(&live_in[to.0 as usize]).for_each(|(live, there)| *live |= there);
            }
            let new = read_in(&func.blocks[at], out.clone());
            changed |= new != live_in[at];
            (live_in[at], live_out[at]) = (new, out);
        }
    }
    live_out
}

fn sweep(block: &mut Block, mut live: Set) -> bool {
    let mut changed = false;
    block.term.uses().into_iter().for_each(|reg| live[reg.0 as usize] = true);
    let unread = |live: &Set, reg: VReg| !live[reg.0 as usize];
    let mut kept = Vec::with_capacity(block.ops.len());
    for mut inst in std::mem::take(&mut block.ops).into_iter().rev() {
        if inst.op.is_pure() && inst.op.dst().is_some_and(|dst| unread(&live, dst)) {
            changed = true;
            continue;
        }
        if let Some(dst) = optional_result(&mut inst.op)
            && dst.is_some_and(|dst| unread(&live, dst))
        {
            *dst = None;
            changed = true;
        }
        step(&inst.op, &mut live);
        kept.push(inst);
    }
    kept.reverse();
    block.ops = kept;
    changed
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
