//! Spills registers: inserts a load before each use and a store after each definition.

use crate::bpf::insn::Width;
use crate::bpf::mir::{Base, Block, End, Function, INSERTED, Inst, PlacedInst, R, Role, Slot};
use crate::ir::{SlotId, VReg};
use lang::Span;

/// Replaces each use of the registers in `spilled` by a short-lived register with a load before or a store after
/// it.
pub(super) fn spill(function: &mut Function, spilled: &[VReg]) {
    let mut slots = vec![None; function.vregs as usize];
    for reg in spilled {
        slots[reg.0 as usize] = Some(SlotId(function.slots.len() as u32));
        function.slots.push(Slot { size: 8, align: 8 });
    }
    let mut blocks = std::mem::take(&mut function.blocks);
    for block in &mut blocks {
        Spiller { slots: &slots, function }.block(block);
    }
    function.blocks = blocks;
}

struct Spiller<'a> {
    slots: &'a [Option<SlotId>],
    function: &'a mut Function,
}

/// A spilled register in an instruction: its slot, its short-lived register, and its role.
struct Reload {
    reg: VReg,
    slot: SlotId,
    temp: R,
    reads: bool,
    writes: bool,
}

impl Spiller<'_> {
    fn block(&mut self, block: &mut Block) {
        let mut out = Vec::with_capacity(block.insts.len() + 8);
        for mut placed in std::mem::take(&mut block.insts) {
            let mut stands = Vec::new();
            placed.inst.rewrite(&mut |reg, role| self.replace(&mut stands, reg, role));
            out.extend(stands.iter().filter(|stand| stand.reads).map(|stand| stand.load(placed.span)));
            out.push(placed);
            out.extend(stands.iter().filter(|stand| stand.writes).map(|stand| stand.store(placed.span)));
        }
        let mut stands = Vec::new();
        let end: &mut End = &mut block.end;
        end.rewrite(&mut |reg, role| self.replace(&mut stands, reg, role));
        out.extend(stands.iter().map(|stand| stand.load(block.span)));
        block.insts = out;
    }

    fn replace(&mut self, stands: &mut Vec<Reload>, reg: &mut R, role: Role) {
        let R::Virt(virt) = *reg else { return };
        let Some(slot) = self.slots.get(virt.0 as usize).copied().flatten() else { return };
        let known = stands.iter().position(|stand| stand.reg == virt);
        let at = known.unwrap_or_else(|| {
            let temp = R::Virt(self.function.vreg());
            stands.push(Reload { reg: virt, slot, temp, reads: false, writes: false });
            stands.len() - 1
        });
        stands[at].reads |= role.reads();
        stands[at].writes |= role.writes();
        *reg = stands[at].temp;
    }
}

impl Reload {
    fn load(&self, span: Span) -> PlacedInst {
        let base = Base::Slot(self.slot);
        let inst = Inst::Load { width: Width::B64, dst: self.temp, base, offset: 0 };
        PlacedInst { inst, span, origin: INSERTED }
    }

    fn store(&self, span: Span) -> PlacedInst {
        let base = Base::Slot(self.slot);
        let inst = Inst::Store { width: Width::B64, base, offset: 0, src: self.temp };
        PlacedInst { inst, span, origin: INSERTED }
    }
}
