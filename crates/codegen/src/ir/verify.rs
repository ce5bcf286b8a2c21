//! Verifies a module. Runs after each pass in debug builds. The rules:
//!
//! 1. Every referenced block, register, slot, map, function and data byte exists.
//! 2. `ctx` occurs only in the entry block of a program, `param` only in that of a callback with parameters.
//! 3. A register is written on every path before it is read.
//! 4. A call has at most 5 arguments.
//! 5. Every block is reachable from the entry, and no block jumps to the entry.
//! 6. Constant shifts are below 64, constant divisors are not 0.
//! 7. Atomics are 32 or 64 bits wide.
//! 8. `func` refers to a callback.
//! 9. Slots are not empty, aligned to at most 8, and fit into the 512 bytes of stack.
//! 10. An access whose base is the address of a slot is within the slot.
//!
//! Not here: the kernel's rules for pointers and ranges.

use super::*;

/// Bytes of stack that a program has (`MAX_BPF_STACK`).
pub const MAX_STACK: u32 = 512;

/// Checks a module. The error has the first broken rule and its position.
pub fn verify(module: &Module) -> Result<(), String> {
    module.funcs.iter().try_for_each(|func| verify_func(module, func))
}

/// Checks one function.
pub fn verify_func(module: &Module, func: &Func) -> Result<(), String> {
    Check { module, func }.run().map_err(|what| format!("{}: {what}\n{}", func.name, module.func_text(func)))
}

struct Check<'a> {
    module: &'a Module,
    func: &'a Func,
}

fn ensure(holds: bool, what: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Check<'_> {
    fn run(&self) -> Result<(), String> {
        self.slots()?;
        for (at, block) in self.func.blocks.iter().enumerate() {
            let mut slots = vec![None; self.func.vregs as usize];
            for inst in &block.ops {
                self.op(at, &inst.op)?;
                self.slot_access(&mut slots, &inst.op)?;
            }
            self.term(&block.term)?;
        }
        self.reached()?;
        self.written_before_read()
    }

    fn slots(&self) -> Result<(), String> {
        let total: u32 = self.func.slots.iter().map(|slot| slot.size.next_multiple_of(8)).sum();
        ensure(total <= MAX_STACK, || format!("slots take {total} bytes of stack"))?;
        let fine = |slot: &Slot| slot.size > 0 && [1, 2, 4, 8].contains(&slot.align);
        ensure(self.func.slots.iter().all(fine), || "a slot is empty or oddly aligned".into())
    }

    fn op(&self, block: usize, op: &Op) -> Result<(), String> {
        let known = op.uses().into_iter().chain(op.dst()).all(|reg| reg.0 < self.func.vregs);
        ensure(known, || format!("unknown register in {op:?}"))?;
        let holds = match op {
            Op::Ctx { .. } => block == 0 && matches!(self.func.kind, FuncKind::Program { .. }),
            Op::Param { index, .. } => {
                block == 0 && matches!(self.func.kind, FuncKind::Callback { args } if *index < args)
            }
            Op::Bin { op: Bin::Shl | Bin::Shr | Bin::Sar, rhs: Operand::Const(by), .. } => {
                (0..64).contains(by)
            }
            Op::Bin { op: Bin::Div | Bin::Rem, rhs: Operand::Const(by), .. } => *by != 0,
            Op::Atomic { width, .. } | Op::CmpXchg { width, .. } => width.bytes() >= 4,
            Op::SlotAddr { slot, .. } => (slot.0 as usize) < self.func.slots.len(),
            Op::MapAddr { map, .. } => (map.0 as usize) < self.module.maps.len(),
            Op::DataAddr { offset, .. } => (*offset as usize) < self.module.data.len(),
            Op::ValueAddr { map, offset, .. } => {
                let map = self.module.maps.get(map.0 as usize);
                map.is_some_and(|map| map.direct && *offset < map.value_size)
            }
            Op::FuncAddr { func, .. } => self.is_callback(*func),
            Op::Call { args, .. } | Op::Kfunc { args, .. } => args.len() <= 5,
            _ => true,
        };
        ensure(holds, || format!("out of place: {op:?}"))
    }

    fn is_callback(&self, func: FuncRef) -> bool {
        let callee = self.module.funcs.get(func.0 as usize);
        callee.is_some_and(|callee| matches!(callee.kind, FuncKind::Callback { .. }))
    }

    /// Checks rule 10; `slots` has the registers that hold the address of a slot at this point of the block.
    fn slot_access(&self, slots: &mut [Option<SlotId>], op: &Op) -> Result<(), String> {
        let access = match *op {
            Op::Load { base, offset, width, .. } | Op::Store { base, offset, width, .. } => {
                Some((base, offset, width))
            }
            Op::Atomic { base, offset, width, .. } | Op::CmpXchg { base, offset, width, .. } => {
                Some((base, offset, width))
            }
            _ => None,
        };
        if let Some((base, offset, width)) = access
            && let Some(slot) = slots[base.0 as usize]
        {
            let size = self.func.slots[slot.0 as usize].size as i32;
            let end = i32::from(offset) + width.bytes() as i32;
            ensure(offset >= 0 && end <= size, || format!("outside of its slot: {op:?}"))?;
            ensure((offset as u32).is_multiple_of(width.bytes()), || format!("unaligned: {op:?}"))?;
        }
        if let Some(dst) = op.dst() {
            slots[dst.0 as usize] = if let Op::SlotAddr { slot, .. } = op { Some(*slot) } else { None };
        }
        Ok(())
    }

    fn term(&self, term: &Term) -> Result<(), String> {
        let blocks = term.successors().all(|to| to.0 != 0 && (to.0 as usize) < self.func.blocks.len());
        let regs = term.uses().iter().all(|reg| reg.0 < self.func.vregs);
        ensure(blocks && regs, || format!("unknown block or register in {term:?}"))
    }

    fn reached(&self) -> Result<(), String> {
        let lost = build::reachable(self.func).iter().position(|reached| !reached);
        lost.map_or(Ok(()), |block| Err(format!("nothing leads to b{block}")))
    }

    fn written_before_read(&self) -> Result<(), String> {
        let all = vec![true; self.func.vregs as usize];
        let mut written_at = vec![all.clone(); self.func.blocks.len()];
        written_at[0] = vec![false; all.len()];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for (at, block) in self.func.blocks.iter().enumerate() {
                let mut written = written_at[at].clone();
                block
                    .ops
                    .iter()
                    .filter_map(|inst| inst.op.dst())
                    .for_each(|dst| written[dst.0 as usize] = true);
                for to in block.term.successors() {
                    changed |= narrow(&mut written_at[to.0 as usize], &written);
                }
            }
        }
        (0..self.func.blocks.len()).try_for_each(|at| self.reads_in(at, written_at[at].clone()))
    }

    fn reads_in(&self, at: usize, mut written: Vec<bool>) -> Result<(), String> {
        let block = &self.func.blocks[at];
        for inst in &block.ops {
            for reg in inst.op.uses() {
                ensure(written[reg.0 as usize], || format!("b{at} reads {reg} before it is written"))?;
            }
            if let Some(dst) = inst.op.dst() {
                written[dst.0 as usize] = true;
            }
        }
        let unwritten = block.term.uses().into_iter().find(|reg| !written[reg.0 as usize]);
        unwritten.map_or(Ok(()), |reg| Err(format!("b{at} ends on {reg} before it is written")))
    }
}

/// Intersects `set` with `with`; returns whether `set` changed.
fn narrow(set: &mut [bool], with: &[bool]) -> bool {
    let mut changed = false;
    for (have, other) in set.iter_mut().zip(with) {
        changed |= *have && !other;
        *have &= other;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::build::Builder;
    use super::*;

    fn module(write: impl FnOnce(&mut Builder)) -> Module {
        let kind = FuncKind::Callback { args: 2 };
        let mut builder = Builder::new("f".into(), kind, Span::default());
        write(&mut builder);
        Module { funcs: vec![builder.finish()], ..Module::default() }
    }

    #[test]
    fn a_register_must_be_written_on_every_path() {
        let fine = module(|b| {
            let v = b.param(0);
            b.ret(v);
        });
        assert_eq!(verify(&fine), Ok(()));
        let broken = module(|b| {
            let (p, v) = (b.param(0), b.vreg());
            let (one, two) = (b.block(), b.block());
            b.branch(Cmp::Eq, p, 0, one, two);
            b.switch_to(one);
            b.set(v, 1);
            b.fall_into(two);
            b.ret(v);
        });
        assert!(verify(&broken).unwrap_err().contains("ends on v1 before it is written"));
    }

    #[test]
    fn accesses_stay_inside_their_slot() {
        let broken = module(|b| {
            let slot = b.func_mut().slot(4, 8);
            let at = b.slot_addr(slot);
            b.store(at, 0, Width::B64, 0);
        });
        assert!(verify(&broken).unwrap_err().contains("outside of its slot"));
    }

    #[test]
    fn shifts_and_callback_parameters_are_bounded() {
        let broken = module(|b| {
            let v = b.param(0);
            b.bin(Bin::Shl, v, 64);
        });
        assert!(verify(&broken).is_err());
        assert!(verify(&module(|b| b.op(Op::Param { dst: VReg(0), index: 2 }))).is_err());
        assert!(verify(&module(|b| b.op(Op::Ctx { dst: VReg(0) }))).is_err());
    }
}
