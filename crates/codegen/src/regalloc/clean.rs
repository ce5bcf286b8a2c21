//! Removes moves that change nothing: of a register to itself, of a value to where it already is, and loads of spilled
//! registers whose value is still in a register.

use crate::bpf::insn::{Reg, Width};
use crate::bpf::mir::{Base, Function, INSERTED, Inst, Placed, R, Val};
use crate::ir::SlotId;
use std::collections::HashMap;

/// See the module. What registers hold is known from a block's only predecessor, if that lies before it.
pub fn remove_superfluous_moves(function: &mut Function) {
    let predecessors = only_predecessors(function);
    let mut known: Vec<Values> = Vec::with_capacity(function.blocks.len());
    let mut fresh = 0;
    let spills_from = function.spills_from;
    for (at, block) in function.blocks.iter_mut().enumerate() {
        let before = predecessors[at].filter(|&before| before < at);
        let mut values = before.map_or_else(Values::default, |before| known[before].clone());
        values.fresh = fresh;
        block.insts.retain_mut(|placed| values.step(placed, spills_from));
        fresh = values.fresh;
        known.push(values);
    }
}

fn only_predecessors(function: &Function) -> Vec<Option<usize>> {
    let mut edges = vec![Vec::new(); function.blocks.len()];
    for (at, block) in function.blocks.iter().enumerate() {
        block.end.successors().for_each(|to| edges[to].push(at));
    }
    edges.into_iter().map(|from| if from.len() == 1 { Some(from[0]) } else { None }).collect()
}

/// Names of values: two places with the same name hold the same value.
#[derive(Clone, Default)]
struct Values {
    regs: [Option<u32>; 11],
    slots: HashMap<u32, u32>,
    fresh: u32,
}

fn phys(reg: R) -> Reg {
    match reg {
        R::Phys(reg) => reg,
        R::Virt(_) => unreachable!("bug: registers have been assigned"),
    }
}

impl Values {
    fn name(&mut self, reg: Reg) -> u32 {
        *self.regs[reg.0 as usize].get_or_insert_with(|| {
            self.fresh += 1;
            self.fresh
        })
    }

    /// False if the instruction is superfluous.
    fn step(&mut self, placed: &mut Placed, spills_from: usize) -> bool {
        let spill = |slot: SlotId| slot.0 as usize >= spills_from && placed.origin == INSERTED;
        match placed.inst {
            Inst::Store { base: Base::Slot(slot), src, .. } if spill(slot) => {
                let name = self.name(phys(src));
                self.slots.insert(slot.0, name) != Some(name)
            }
            Inst::Load { width: Width::B64, base: Base::Slot(slot), dst, .. } if spill(slot) => {
                self.reload(placed, slot, phys(dst))
            }
            inst => match inst.copy() {
                Some((dst, src)) => self.copy(phys(dst), phys(src)),
                None => {
                    self.overwrite(&inst);
                    true
                }
            },
        }
    }

    fn copy(&mut self, dst: Reg, src: Reg) -> bool {
        let name = self.name(src);
        self.regs[dst.0 as usize].replace(name) != Some(name)
    }

    /// A load from the stack becomes a move if some register still holds the value.
    fn reload(&mut self, placed: &mut Placed, slot: SlotId, dst: Reg) -> bool {
        let Some(&name) = self.slots.get(&slot.0) else {
            self.regs[dst.0 as usize] = None;
            let name = self.name(dst);
            self.slots.insert(slot.0, name);
            return true;
        };
        if let Some(holder) = self.regs.iter().position(|held| *held == Some(name)) {
            let src = Val::R(R::Phys(Reg(holder as u8)));
            placed.inst = Inst::Mov { wide: true, dst: R::Phys(dst), src };
        }
        self.regs[dst.0 as usize].replace(name) != Some(name)
    }

    fn overwrite(&mut self, inst: &Inst) {
        inst.visit(&mut |reg, role| {
            if role.writes() {
                self.regs[phys(reg).0 as usize] = None;
            }
        });
    }
}
