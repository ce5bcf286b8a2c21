//! Lays out the stack frame. Slots that are never live at the same time share their bytes.
//!
//! A slot is live on every path between two of its uses. A slot whose address escapes, except into the arguments of the next
//! call, is always live. A spilled register is live from its store to its last load; it shares bytes only with spilled registers.

use crate::bpf::insn::Reg;
use crate::bpf::mir::{Base, Block, Function, Inst, R, Slot};
use crate::dataflow::{Bits, Effects, Live};
use crate::ir::SlotId;

/// Bytes of stack for a program and the functions that it calls (`MAX_BPF_STACK`).
pub const MAX_STACK: u32 = 512;

/// Offsets of the slots in a stack frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// For each slot: distance from the frame pointer down to its first byte, in bytes.
    depths: Vec<u32>,
    /// Size in bytes; larger than [`MAX_STACK`] if the slots do not fit.
    pub size: u32,
}

impl Frame {
    /// Lays out `slots`; slots that conflict do not overlap.
    pub fn layout(conflicts: &Conflicts, slots: &[Slot]) -> Frame {
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by_key(|&slot| std::cmp::Reverse(slots[slot].size));
        let mut frame = Frame { depths: vec![0; slots.len()], size: 0 };
        let mut placed: Vec<usize> = Vec::new();
        for slot in order {
            let taken = placed.iter().filter(|&&other| conflicts.conflict(slot, other));
            let taken = taken.map(|&other| (frame.depths[other] - room(&slots[other]), frame.depths[other]));
            let end = first_gap(taken.collect(), room(&slots[slot]));
            frame.depths[slot] = end + room(&slots[slot]);
            frame.size = frame.size.max(frame.depths[slot]);
            placed.push(slot);
        }
        frame
    }

    /// Offset of a slot from the frame pointer.
    pub fn offset(&self, slot: usize) -> i32 {
        -(self.depths[slot] as i32)
    }
}

/// Bytes that a slot occupies: the verifier tracks the stack in words of 8 bytes.
fn room(slot: &Slot) -> u32 {
    slot.size.next_multiple_of(8)
}

/// The least depth with a gap of `room` bytes between the ranges in `taken`.
fn first_gap(mut taken: Vec<(u32, u32)>, room: u32) -> u32 {
    taken.sort();
    taken
        .into_iter()
        .fold((0, false), |(at, found), (start, end)| {
            let fits = found || start >= at + room;
            if fits { (at, true) } else { (at.max(end), false) }
        })
        .0
}

/// Pairs of slots that are live at the same time.
pub struct Conflicts {
    /// For each slot of the selected code: the slots of the same kind that it conflicts with.
    of: Vec<Bits>,
    /// For each slot of a spilled register: the spill slots that it conflicts with. Their indices follow those of
    /// the selected code.
    spills: Vec<Bits>,
}

impl Conflicts {
    fn conflict(&self, a: usize, b: usize) -> bool {
        let selected = self.of.len();
        match (a.checked_sub(selected), b.checked_sub(selected)) {
            (None, None) => self.of[a].contains(b),
            (Some(a), Some(b)) => self.spills[a].contains(b),
            _ => true,
        }
    }

    /// Computes the conflicts of the slots in the selected code.
    pub fn of(function: &Function) -> Conflicts {
        let count = function.slots.len();
        let mut conflicts = Conflicts { of: vec![Bits::new(count); count], spills: vec![] };
        for slot in escaping(function) {
            (0..count).for_each(|other| conflicts.add(slot, other));
        }
        let uses: Vec<Vec<u32>> = function.blocks.iter().map(block_uses).collect();
        let (mut before, later) = (before(function, &uses, count), after(function, &uses, count));
        let mut last = LastUse { at: vec![0; count], clock: 0 };
        for (at, uses) in uses.iter().enumerate() {
            let mut after = Bits::new(count);
            later.at_end(at).for_each(|slot| after.insert(slot));
            conflicts.block(uses, &mut before[at], &after, &mut last);
        }
        conflicts
    }

    /// Adds the slots of spilled registers, in the allocated code. A slot conflicts with all slots that are live
    /// after a store to it.
    pub fn add_spills(&mut self, function: &Function) {
        let count = function.slots.len() - function.spills_from;
        if count == 0 {
            return;
        }
        self.spills = vec![Bits::new(count); count];
        let live = live_spills(function, count);
        for (at, block) in function.blocks.iter().enumerate() {
            let mut live_here = Bits::new(count);
            live.at_end(at).for_each(|spill| live_here.insert(spill));
            for placed in block.insts.iter().rev() {
                match spill_access(&placed.inst, function.spills_from) {
                    Some(Access::Load(spill)) => live_here.insert(spill),
                    Some(Access::Store(spill)) => {
                        live_here.remove(spill);
                        self.spills[spill].union(&live_here);
                        live_here.iter().for_each(|other| self.spills[other].insert(spill));
                    }
                    None => {}
                }
            }
        }
    }

    fn add(&mut self, a: usize, b: usize) {
        self.of[a].insert(b);
        self.of[b].insert(a);
    }

    /// Adds the conflicts of one block: slots that are live at its start, and slots that are live at the first
    /// use of another. `before` has the slots used before the block, `after` the slots used after
    /// it.
    fn block(&mut self, uses: &[u32], before: &mut Bits, after: &Bits, last: &mut LastUse) {
        let start = last.clock;
        last.note(uses);
        let is_used_later =
            |slot: usize, last: &LastUse, now: u32| after.contains(slot) || last.at[slot] > now;
        let mut used = Bits::new(self.of.len());
        before.iter().filter(|slot| is_used_later(*slot, last, start)).for_each(|slot| used.insert(slot));
        for slot in used.iter() {
            self.of[slot].union(&used);
        }
        for (now, slot) in (start..).zip(uses) {
            let slot = *slot as usize;
            if before.contains(slot) {
                continue;
            }
            before.insert(slot);
            for other in before.iter().filter(|other| is_used_later(*other, last, now)) {
                self.add(slot, other);
            }
        }
    }
}

/// Position of the last use of each slot.
struct LastUse {
    /// Position by slot; the positions of consecutive blocks are consecutive.
    at: Vec<u32>,
    clock: u32,
}

impl LastUse {
    /// Records the uses of a block, which begins at the current position.
    fn note(&mut self, uses: &[u32]) {
        for slot in uses {
            self.clock += 1;
            self.at[*slot as usize] = self.clock;
        }
    }
}

/// Access of an instruction to a spilled register, by the number of its slot.
enum Access {
    Load(usize),
    Store(usize),
}

fn spill_access(inst: &Inst, spills_from: usize) -> Option<Access> {
    let number = |slot: SlotId| (slot.0 as usize).checked_sub(spills_from);
    match *inst {
        Inst::Load { base: Base::Slot(slot), .. } => number(slot).map(Access::Load),
        Inst::Store { base: Base::Slot(slot), .. } => number(slot).map(Access::Store),
        _ => None,
    }
}

fn live_spills(function: &Function, count: usize) -> Live {
    let mut effects = Effects::new(count);
    for block in &function.blocks {
        effects.begin_block();
        for placed in &block.insts {
            match spill_access(&placed.inst, function.spills_from) {
                Some(Access::Load(spill)) => effects.read(spill),
                Some(Access::Store(spill)) => effects.write(spill),
                None => {}
            }
        }
    }
    effects.live(|block| function.blocks[block].end.successors())
}

/// Slots whose address is kept in a register or in memory.
fn escaping(function: &Function) -> Vec<usize> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts
        .filter_map(|placed| match placed.inst {
            Inst::SlotAddr { dst: R::Virt(_), slot, .. } => Some(slot.0 as usize),
            _ => None,
        })
        .collect()
}

/// The slots that the instructions of a block use, in their order. A call uses the slots whose addresses
/// are its arguments.
fn block_uses(block: &Block) -> Vec<u32> {
    let mut args: [Option<u32>; 6] = [None; 6];
    let mut uses = Vec::new();
    for placed in &block.insts {
        let named = placed.inst.slot().map(|slot| slot.0);
        uses.extend(named);
        match placed.inst {
            Inst::SlotAddr { dst: R::Phys(Reg(arg @ 0..=5)), .. } => args[usize::from(arg)] = named,
            Inst::Call { .. } => uses.extend(args.iter_mut().filter_map(Option::take)),
            _ => {}
        }
    }
    uses
}

/// For each block: the slots that may have been used before its start.
fn before(function: &Function, uses: &[Vec<u32>], count: usize) -> Vec<Bits> {
    let mut before = vec![Bits::new(count); uses.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for (at, block) in function.blocks.iter().enumerate() {
            let mut out = before[at].clone();
            uses[at].iter().for_each(|slot| out.insert(*slot as usize));
            changed |= block.end.successors().fold(false, |more, next| before[next].union(&out) | more);
        }
    }
    before
}

/// The slots that may be used after the ends of blocks.
fn after(function: &Function, uses: &[Vec<u32>], count: usize) -> Live {
    let mut effects = Effects::new(count);
    for uses in uses {
        effects.begin_block();
        uses.iter().for_each(|slot| effects.read(*slot as usize));
    }
    effects.live(|block| function.blocks[block].end.successors())
}
