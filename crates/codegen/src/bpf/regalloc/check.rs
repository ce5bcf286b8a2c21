//! Checks an allocation value by value, independently of the allocator. The rules:
//!
//! 1. Each selected instruction exists, in order, equal except for registers; only moves may be missing.
//! 2. Inserted instructions only move values between registers and spill slots.
//! 3. Where the selected code reads a register, the assigned one holds that register's value on every path.
//! 4. Where the selected code has a machine register, it is unchanged.
//! 5. The frame pointer is never written.
//!
//! The state maps each location (machine register or spill slot) to the registers of the selected code that have its value. At
//! a join it is the intersection over all paths. A move adds its target to the registers of a value; a call clobbers r0 to r5.

use crate::bpf::insn::Reg;
use crate::bpf::mir::{Base, Block, Function, INSERTED, Inst, PlacedInst, R, Role, Val};
use std::collections::{BTreeMap, BTreeSet};

/// Checks `allocated` against the code before allocation. The error names the broken rule and the position.
pub fn check(selected: &Function, allocated: &Function) -> Result<(), String> {
    if selected.blocks.len() != allocated.blocks.len() {
        return Err("rule 1: blocks are missing".into());
    }
    let states = states(selected, allocated);
    for (at, state) in states.into_iter().enumerate() {
        if let Some(mut state) = state {
            let mut errors = Vec::new();
            state.block(&selected.blocks[at], &allocated.blocks[at], allocated.spills_from, &mut errors);
            if let Some(error) = errors.into_iter().next() {
                return Err(format!("block {at}: {error}"));
            }
        }
    }
    Ok(())
}

/// State at the start of each block; `None` if the block is unreachable.
fn states(selected: &Function, allocated: &Function) -> Vec<Option<State>> {
    let mut states: Vec<Option<State>> = vec![None; selected.blocks.len()];
    states[Function::ENTRY] = Some(State::at_entry());
    let mut queue = BTreeSet::from([Function::ENTRY]);
    while let Some(at) = queue.pop_first() {
        let mut state = states[at].clone().expect("bug: queued blocks have a state");
        state.block(&selected.blocks[at], &allocated.blocks[at], allocated.spills_from, &mut Vec::new());
        for next in allocated.blocks[at].end.successors() {
            let met = states[next].as_ref().map_or_else(|| state.clone(), |known| known.meet(&state));
            if states[next].as_ref() != Some(&met) {
                states[next] = Some(met);
                queue.insert(next);
            }
        }
    }
    states
}

/// A location that can hold a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Reg(R),
    Slot(u32),
}

/// For each location: the registers of the selected code whose value it holds.
#[derive(Clone, Debug, Default, PartialEq)]
struct State(BTreeMap<Place, BTreeSet<R>>);

impl State {
    /// Arguments and the frame address are in the registers of the calling convention.
    fn at_entry() -> State {
        let given = (0..5).map(Reg::arg).chain([Reg::FP]).map(R::Phys);
        State(given.map(|reg| (Place::Reg(reg), BTreeSet::from([reg]))).collect())
    }

    fn meet(&self, other: &State) -> State {
        let common = |place: Place, names: &BTreeSet<R>| -> Option<BTreeSet<R>> {
            let both: BTreeSet<R> = names.intersection(other.0.get(&place)?).copied().collect();
            (!both.is_empty()).then_some(both)
        };
        State(self.0.iter().filter_map(|(&place, names)| Some((place, common(place, names)?))).collect())
    }

    fn names(&self, place: Place) -> BTreeSet<R> {
        self.0.get(&place).cloned().unwrap_or_default()
    }

    /// Removes `name` from all locations, because it gets a new value.
    fn forget(&mut self, name: R) {
        self.0.values_mut().for_each(|names| {
            names.remove(&name);
        });
    }

    /// Handles `dst = src` in the selected code.
    fn rename(&mut self, dst: R, src: R) {
        if dst != src {
            self.forget(dst);
            let holders = self.0.values_mut().filter(|names| names.contains(&src));
            holders.for_each(|names| {
                names.insert(dst);
            });
        }
    }

    fn transfer(&mut self, to: Place, from: Place) {
        let names = self.names(from);
        self.0.insert(to, names);
    }

    fn block(&mut self, selected: &Block, allocated: &Block, spills_from: usize, errors: &mut Vec<String>) {
        let mut expected = selected.insts.iter().peekable();
        for placed in &allocated.insts {
            if placed.origin == INSERTED {
                self.inserted(&placed.inst, spills_from, errors);
                continue;
            }
            while let Some(missing) = expected.next_if(|expected| expected.origin != placed.origin) {
                self.missing(missing, errors);
            }
            match expected.next() {
                Some(original) => self.inst(&original.inst, &placed.inst, errors),
                None => errors.push(format!("rule 1: {:?} is out of order", placed.inst)),
            }
        }
        expected.for_each(|missing| self.missing(missing, errors));
        let mut pairs = Vec::new();
        selected.end.visit(&mut |reg, role| pairs.push((reg, role)));
        let mut at = pairs.into_iter();
        allocated.end.visit(&mut |reg, _| {
            if let Some((name, _)) = at.next() {
                self.read(name, reg, errors);
            }
        });
    }

    /// Rule 1: a selected instruction that is missing.
    fn missing(&mut self, placed: &PlacedInst, errors: &mut Vec<String>) {
        match placed.inst.copy() {
            Some((dst, src)) => self.rename(dst, src),
            None => errors.push(format!("rule 1: {:?} is missing", placed.inst)),
        }
    }

    /// Rule 2.
    fn inserted(&mut self, inst: &Inst, spills_from: usize, errors: &mut Vec<String>) {
        match *inst {
            Inst::Load { dst, base: Base::Slot(slot), .. } if slot.0 as usize >= spills_from => {
                self.transfer(Place::Reg(dst), Place::Slot(slot.0));
            }
            Inst::Store { base: Base::Slot(slot), src, .. } if slot.0 as usize >= spills_from => {
                self.transfer(Place::Slot(slot.0), Place::Reg(src));
            }
            Inst::Mov { wide: true, dst, src: Val::R(src) } => {
                self.transfer(Place::Reg(dst), Place::Reg(src));
            }
            _ => errors.push(format!("rule 2: {inst:?} was inserted")),
        }
    }

    fn inst(&mut self, original: &Inst, inst: &Inst, errors: &mut Vec<String>) {
        if blank(original) != blank(inst) {
            errors.push(format!("rule 1: {original:?} became {inst:?}"));
            return;
        }
        let (names, regs) = (operands(original), operands(inst));
        let pairs = || names.iter().zip(&regs).map(|(&(name, role), &(reg, _))| (name, reg, role));
        for (name, reg, _) in pairs().filter(|(_, _, role)| role.reads()) {
            self.read(name, reg, errors);
        }
        let source = inst.copy().map(|(_, src)| self.names(Place::Reg(src)));
        for (name, reg, _) in pairs().filter(|(_, _, role)| role.writes()) {
            self.write(name, reg, errors);
        }
        if let (Some((dst, src)), Some((to, _)), Some(mut values)) = (original.copy(), inst.copy(), source) {
            values.remove(&dst);
            self.0.entry(Place::Reg(to)).or_default().extend(values);
            self.rename(dst, src);
            self.0.entry(Place::Reg(to)).or_default().insert(dst);
        }
    }

    /// Rules 3 and 4.
    fn read(&self, name: R, reg: R, errors: &mut Vec<String>) {
        let held = self.names(Place::Reg(reg));
        if matches!(name, R::Phys(fixed) if R::Phys(fixed) != reg) {
            errors.push(format!("rule 4: {name:?} is read from {reg:?}"));
        } else if !held.contains(&name) {
            errors.push(format!("rule 3: {name:?} is read from {reg:?}, which holds {held:?}"));
        }
    }

    /// Rules 4 and 5.
    fn write(&mut self, name: R, reg: R, errors: &mut Vec<String>) {
        if reg == R::Phys(Reg::FP) || matches!(reg, R::Virt(_)) {
            errors.push(format!("rule 5: {reg:?} is written"));
        }
        if matches!(name, R::Phys(fixed) if R::Phys(fixed) != reg) {
            errors.push(format!("rule 4: {name:?} is written to {reg:?}"));
        }
        self.forget(name);
        self.0.insert(Place::Reg(reg), BTreeSet::from([name]));
    }
}

/// The instruction without its registers.
fn blank(inst: &Inst) -> Inst {
    let mut blank = *inst;
    blank.rewrite(&mut |reg, _| *reg = R::Phys(Reg::R0));
    blank
}

fn operands(inst: &Inst) -> Vec<(R, Role)> {
    let mut operands = Vec::new();
    inst.visit(&mut |reg, role| operands.push((reg, role)));
    operands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::helper::Helper;
    use crate::bpf::insn::{Alu, Width};
    use crate::bpf::mir::{Callee, End, Slot};
    use crate::ir::{SlotId, VReg};
    use lang::Span;

    const R0: R = R::Phys(Reg(0));
    const R1: R = R::Phys(Reg(1));
    const R6: R = R::Phys(Reg(6));

    fn function(insts: Vec<Inst>) -> Function {
        let place = |(at, inst)| PlacedInst { inst, span: Span::default(), origin: at as u32 };
        let insts = insts.into_iter().enumerate().map(place).collect();
        let slots = vec![Slot { size: 8, align: 8 }];
        let block = Block { insts, end: End::Exit, span: Span::default() };
        Function { blocks: vec![block], vregs: 1, slots, spills_from: 0 }
    }

    fn mov(dst: R, src: R) -> Inst {
        Inst::Mov { wide: true, dst, src: Val::R(src) }
    }

    const CALL: Inst = Inst::Call { callee: Callee::Helper(Helper::KtimeGetNs), args: 0 };

    /// `v0 = r1; call; r0 = v0; exit` with `v0` in the given register.
    fn context_returned(reg: R) -> (Function, Function) {
        let code = |v| function(vec![mov(v, R1), CALL, mov(R0, v)]);
        (code(R::Virt(VReg(0))), code(reg))
    }

    #[test]
    fn a_value_in_a_register_that_survives_calls_is_found() {
        let (selected, allocated) = context_returned(R6);
        assert_eq!(check(&selected, &allocated), Ok(()));
    }

    #[test]
    fn a_value_that_a_call_overwrote_is_missed() {
        let (selected, allocated) = context_returned(R1);
        assert!(check(&selected, &allocated).unwrap_err().contains("rule 3"));
    }

    #[test]
    fn a_missing_store_and_a_wrong_operation_are_noticed() {
        let (selected, mut allocated) = context_returned(R6);
        let slot = Base::Slot(SlotId(0));
        let load = Inst::Load { width: Width::B64, dst: R6, base: slot, offset: 0 };
        let load = PlacedInst { inst: load, span: Span::default(), origin: INSERTED };
        allocated.blocks[0].insts.insert(2, load);
        assert!(check(&selected, &allocated).unwrap_err().contains("rule 3"));
        let (selected, mut allocated) = context_returned(R6);
        allocated.blocks[0].insts[0].inst = Inst::Alu { op: Alu::Add, dst: R6, src: Val::R(R1) };
        assert!(check(&selected, &allocated).unwrap_err().contains("rule 1"));
    }

    #[test]
    fn a_lost_instruction_is_noticed() {
        let (selected, mut allocated) = context_returned(R6);
        allocated.blocks[0].insts.remove(1);
        assert!(check(&selected, &allocated).unwrap_err().contains("rule 1"));
    }
}
