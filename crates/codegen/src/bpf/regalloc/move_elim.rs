//! Removes redundant moves: of a register to itself, of a value to a location that has it already, and loads of spilled registers
//! whose value is still in a register.

use crate::bpf::insn::{Reg, Width};
use crate::bpf::mir::{Base, Function, INSERTED, Inst, PlacedInst, R, Val};
use crate::ir::SlotId;

/// Removes moves without effect. The contents of registers at the start of a block are known if its only
/// predecessor precedes it.
pub(super) fn remove_superfluous_moves(function: &mut Function) {
    let predecessors = only_predecessors(function);
    // For each block: the last block that starts with its contents. They are freed afterwards, since a long
    // function has many blocks and many spilled registers.
    let mut last_use = vec![0; function.blocks.len()];
    for (at, before) in predecessors.iter().enumerate() {
        before.iter().for_each(|before| last_use[*before] = at);
    }
    let mut known: Vec<Option<Values>> = vec![None; function.blocks.len()];
    let mut fresh = 0;
    let spills = function.spills_from..function.slots.len();
    for (at, block) in function.blocks.iter_mut().enumerate() {
        let before = predecessors[at].filter(|&before| before < at).and_then(|before| {
            let values = &mut known[before];
            if last_use[before] == at { values.take() } else { values.clone() }
        });
        let mut values = before.unwrap_or_else(|| Values::new(spills.len()));
        values.fresh = fresh;
        block.insts.retain_mut(|placed| values.step(placed, spills.start));
        fresh = values.fresh;
        known[at] = Some(values).filter(|_| last_use[at] > at);
    }
}

fn only_predecessors(function: &Function) -> Vec<Option<usize>> {
    let mut edges = vec![(0u32, 0); function.blocks.len()];
    for (at, block) in function.blocks.iter().enumerate() {
        block.end.successors().for_each(|to| edges[to] = (edges[to].0 + 1, at));
    }
    edges.into_iter().map(|(count, from)| (count == 1).then_some(from)).collect()
}

/// Value numbers: locations with the same number hold the same value.
#[derive(Clone)]
struct Values {
    regs: [Option<u32>; 11],
    /// Value number of each slot of a spilled register.
    spilled: Vec<Option<u32>>,
    fresh: u32,
}

fn phys(reg: R) -> Reg {
    match reg {
        R::Phys(reg) => reg,
        R::Virt(_) => unreachable!("bug: registers have been assigned"),
    }
}

impl Values {
    fn new(spills: usize) -> Values {
        Values { regs: [None; 11], spilled: vec![None; spills], fresh: 0 }
    }

    fn name(&mut self, reg: Reg) -> u32 {
        *self.regs[reg.0 as usize].get_or_insert_with(|| {
            self.fresh += 1;
            self.fresh
        })
    }

    /// Returns false if the instruction is superfluous.
    fn step(&mut self, placed: &mut PlacedInst, spills_from: usize) -> bool {
        let spill = |slot: SlotId| {
            let number = (slot.0 as usize).checked_sub(spills_from);
            number.filter(|_| placed.origin == INSERTED)
        };
        match placed.inst {
            Inst::Store { base: Base::Slot(slot), src, .. } => {
                let Some(spill) = spill(slot) else { return true };
                let name = self.name(phys(src));
                self.spilled[spill].replace(name) != Some(name)
            }
            Inst::Load { width: Width::B64, base: Base::Slot(slot), dst, .. } => match spill(slot) {
                Some(spill) => self.reload(placed, spill, phys(dst)),
                None => self.overwrite(&placed.inst),
            },
            inst => match inst.copy() {
                Some((dst, src)) => self.copy(phys(dst), phys(src)),
                None => self.overwrite(&inst),
            },
        }
    }

    fn copy(&mut self, dst: Reg, src: Reg) -> bool {
        let name = self.name(src);
        self.regs[dst.0 as usize].replace(name) != Some(name)
    }

    /// Replaces a load from the stack by a move if some register still holds the value.
    fn reload(&mut self, placed: &mut PlacedInst, spill: usize, dst: Reg) -> bool {
        let Some(name) = self.spilled[spill] else {
            self.regs[dst.0 as usize] = None;
            self.spilled[spill] = Some(self.name(dst));
            return true;
        };
        if let Some(holder) = self.regs.iter().position(|held| *held == Some(name)) {
            let src = Val::R(R::Phys(Reg(holder as u8)));
            placed.inst = Inst::Mov { wide: true, dst: R::Phys(dst), src };
        }
        self.regs[dst.0 as usize].replace(name) != Some(name)
    }

    /// Invalidates the registers that the instruction writes. Returns true, as it is not superfluous.
    fn overwrite(&mut self, inst: &Inst) -> bool {
        inst.visit(&mut |reg, role| {
            if role.writes() {
                self.regs[phys(reg).0 as usize] = None;
            }
        });
        true
    }
}
