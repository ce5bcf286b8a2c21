//! Removes operations without side effects whose result is dead, and stack slots without uses.

use crate::ir::{AtomicOp, Func, Op, Operand, SlotId, VReg};

/// `v1 = add v0, 1` is removed if `v1` is dead, then perhaps the operation that computes `v0`. Calls stay, but
/// lose a dead result. A register with several definitions is treated as live or dead at all of them: such
/// registers are few, and exact liveness would dominate the time of the pass.
pub(super) fn dce(func: &mut Func) -> bool {
    let mut uses = func.uses();
    let mut changed = false;
    // Backwards: operands precede their uses, except across a loop's back edge, which the next run handles.
    for block in func.blocks.iter_mut().rev() {
        let mut dropped = false;
        for inst in block.ops.iter_mut().rev() {
            changed |= drop_result(&mut inst.op, &uses);
            if is_superfluous(&inst.op, &uses) {
                inst.op.for_each_use(|operand| forget(operand, &mut uses));
                inst.op = GONE;
                dropped = true;
            }
        }
        if dropped {
            block.ops.retain(|inst| inst.op != GONE);
            changed = true;
        }
    }
    changed | drop_slots(func)
}

/// Placeholder for a removed operation until the end of its block.
const GONE: Op = Op::Ctx { dst: VReg(u32::MAX) };

fn number(reg: VReg) -> usize {
    reg.0 as usize
}

fn forget(operand: Operand, uses: &mut [u32]) {
    if let Operand::Reg(reg) = operand {
        uses[number(reg)] -= 1;
    }
}

fn is_superfluous(op: &Op, uses: &[u32]) -> bool {
    op.is_pure() && op.dst().is_some_and(|dst| uses[number(dst)] == 0)
}

fn drop_result(op: &mut Op, uses: &[u32]) -> bool {
    let Some(result) = optional_result(op) else { return false };
    result.take_if(|reg| uses[number(*reg)] == 0).is_some()
}

/// The result that an operation can omit. An exchange always has one.
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
