//! Linear scan: registers in the order in which they come to life, each into a machine register that is free over all
//! of its ranges. Moves are hints, so that most of them end up with one register on both sides.
//!
//! If none is free, whoever is cheapest to keep on the stack goes there.

use super::liveness::{Range, Ranges, Wanted};
use crate::bpf::insn::Reg;
use crate::bpf::mir::{Function, R};
use crate::flow::Lists;
use crate::ir::VReg;

/// Registers that calls overwrite come first: the others cost a save and a restore in the kernel's machine code.
const ORDER: [Reg; 10] = [Reg(1), Reg(2), Reg(3), Reg(4), Reg(5), Reg(0), Reg(6), Reg(7), Reg(8), Reg(9)];

/// Where virtual registers live.
pub struct Assignment {
    regs: Vec<Option<Reg>>,
    /// Those that must go to the stack; the others' registers mean nothing then.
    pub spilled: Vec<VReg>,
}

impl Assignment {
    /// The machine register of a virtual one that occurs in the code.
    pub fn of(&self, reg: VReg) -> Reg {
        self.regs[reg.0 as usize].expect("bug: every register in the code has been assigned")
    }
}

/// Assigns what can be. Registers from number `short_lived` on are spill code's and stay in registers.
pub fn assign(function: &Function, wanted: &Wanted, short_lived: u32) -> Assignment {
    let ranges = Ranges::of(function, wanted);
    let start = |reg| ranges.get(R::Virt(reg)).first().map(|range| range.start);
    let all = (0..function.vregs).map(VReg);
    let mut order: Vec<(u32, VReg)> = all.filter_map(|reg| Some((start(reg)?, reg))).collect();
    order.sort_unstable();
    let mut scan = Scan {
        regs: vec![None; function.vregs as usize],
        busy: ORDER.map(|_| Vec::new()),
        hints: hints(function),
        ranges: &ranges,
        short_lived,
        spilled: Vec::new(),
    };
    scan.block_fixed();
    order.into_iter().for_each(|(_, reg)| scan.place(reg));
    Assignment { regs: scan.regs, spilled: scan.spilled }
}

/// By virtual register: the other sides of moves.
fn hints(function: &Function) -> Lists<R> {
    let mut hints = Vec::new();
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    for (dst, src) in insts.filter_map(|placed| placed.inst.copy()) {
        for (reg, other) in [(dst, src), (src, dst)] {
            if let R::Virt(reg) = reg {
                hints.push((reg.0, other));
            }
        }
    }
    Lists::of(&hints, function.vregs as usize)
}

/// Who occupies a machine register; `None`: the machine itself.
type Owner = Option<VReg>;

/// A range in which a machine register is occupied.
struct Busy {
    range: Range,
    owner: Owner,
}

struct Scan<'a> {
    regs: Vec<Option<Reg>>,
    /// By machine register: where it is occupied, in ascending order and without overlaps.
    busy: [Vec<Busy>; 10],
    hints: Lists<R>,
    ranges: &'a Ranges,
    short_lived: u32,
    spilled: Vec<VReg>,
}

impl Scan<'_> {
    fn block_fixed(&mut self) {
        for reg in ORDER {
            let fixed = self.ranges.get(R::Phys(reg)).iter().cloned();
            self.busy[reg.0 as usize].extend(fixed.map(|range| Busy { range, owner: None }));
        }
    }

    fn ranges(&self, reg: VReg) -> &[Range] {
        self.ranges.get(R::Virt(reg))
    }

    fn place(&mut self, reg: VReg) {
        let free = self.wanted(reg).chain(ORDER).find(|&to| self.is_free(to, reg));
        match free {
            Some(to) => self.take(reg, to),
            None => self.make_room(reg),
        }
    }

    /// Machine registers that would save a move: those at the other side of one, then one step further.
    fn wanted(&self, reg: VReg) -> impl Iterator<Item = Reg> + '_ {
        let near = self.hints.get(reg.0 as usize);
        let far = near.iter().filter_map(|hint| match hint {
            R::Virt(other) => Some(self.hints.get(other.0 as usize)),
            R::Phys(_) => None,
        });
        let assigned = |hint: &R| match *hint {
            R::Phys(reg) => Some(reg),
            R::Virt(other) => self.regs[other.0 as usize],
        };
        near.iter().chain(far.flatten()).filter_map(assigned).take(16)
    }

    fn is_free(&self, to: Reg, reg: VReg) -> bool {
        to != Reg::FP && self.conflicts(to, reg).next().is_none()
    }

    /// Owners of `to` somewhere in the ranges of `reg`, perhaps repeatedly.
    fn conflicts(&self, to: Reg, reg: VReg) -> impl Iterator<Item = Owner> + '_ {
        let busy = &self.busy[to.0 as usize];
        self.ranges(reg).iter().flat_map(move |range| {
            let first = busy.partition_point(|other| other.range.end <= range.start);
            let overlapping = busy[first..].iter().take_while(|other| other.range.start < range.end);
            overlapping.map(|other| other.owner)
        })
    }

    fn take(&mut self, reg: VReg, to: Reg) {
        let busy = &mut self.busy[to.0 as usize];
        for range in self.ranges.get(R::Virt(reg)) {
            let at = busy.partition_point(|other| other.range.start < range.start);
            busy.insert(at, Busy { range: range.clone(), owner: Some(reg) });
        }
        self.regs[reg.0 as usize] = Some(to);
    }

    /// What it costs to keep a register on the stack.
    fn cost(&self, owner: Owner) -> f32 {
        match owner {
            Some(reg) if reg.0 < self.short_lived => self.ranges.weight(R::Virt(reg)),
            _ => f32::INFINITY,
        }
    }

    /// Sends the cheapest to the stack: this register, or all that are in its way in one machine register.
    fn make_room(&mut self, reg: VReg) {
        let price = |to: Reg| self.conflicts(to, reg).map(|owner| self.cost(owner)).fold(0.0, f32::max);
        let (cheapest, price) = ORDER
            .map(|to| (to, price(to)))
            .into_iter()
            .fold((Reg::R0, f32::INFINITY), |best, next| if next.1 < best.1 { next } else { best });
        let own = self.cost(Some(reg));
        assert!(own.min(price).is_finite(), "bug: no register for spill code");
        if own <= price {
            return self.spilled.push(reg);
        }
        let mut evicted: Vec<VReg> = self.conflicts(cheapest, reg).flatten().collect();
        evicted.sort();
        evicted.dedup();
        evicted.into_iter().for_each(|owner| self.evict(owner, cheapest));
        self.take(reg, cheapest);
    }

    fn evict(&mut self, owner: VReg, from: Reg) {
        self.busy[from.0 as usize].retain(|other| other.owner != Some(owner));
        self.regs[owner.0 as usize] = None;
        self.spilled.push(owner);
    }
}
