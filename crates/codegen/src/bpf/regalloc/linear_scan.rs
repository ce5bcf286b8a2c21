//! Linear scan: assigns registers in the order of their first definition. Each gets a machine register that is free over all of
//! its ranges. Moves are hints, so that most of them have the same register on both sides.
//!
//! If no register is free, the register with the lowest spill cost is spilled.

use super::liveness::{Liveness, Range, Ranges};
use crate::bpf::insn::Reg;
use crate::bpf::mir::{Function, R};
use crate::dataflow::Lists;
use crate::ir::VReg;

/// Preference order. Caller-saved registers come first: each other register costs a save and a restore in the
/// kernel's machine code.
const ORDER: [Reg; 10] = [Reg(1), Reg(2), Reg(3), Reg(4), Reg(5), Reg(0), Reg(6), Reg(7), Reg(8), Reg(9)];

/// Machine registers of the virtual registers.
pub(super) struct Assignment {
    regs: Vec<Option<Reg>>,
    /// Registers that must be spilled. If there are any, the other assignments are void.
    pub spilled: Vec<VReg>,
}

impl Assignment {
    /// The machine register of a virtual register that occurs in the code.
    pub(super) fn of(&self, reg: VReg) -> Reg {
        self.regs[reg.0 as usize].expect("bug: every register in the code has been assigned")
    }
}

/// Assigns machine registers. Registers from number `short_lived` on belong to spill code and are never spilled.
pub(super) fn assign(function: &Function, liveness: &Liveness, short_lived: u32) -> Assignment {
    let ranges = Ranges::of(function, liveness);
    // The registers whose range starts at each position.
    let start = |reg| ranges.get(R::Virt(reg)).first().map(|range| range.start);
    let starts: Vec<(u32, VReg)> =
        (0..function.vregs).map(VReg).filter_map(|reg| Some((start(reg)?, reg))).collect();
    let order = Lists::of(&starts, ranges.end() as usize);
    let mut scan = Scan {
        regs: vec![None; function.vregs as usize],
        lanes: std::array::from_fn(|to| Lane::of(ranges.get(R::Phys(Reg(to as u8))))),
        hints: hints(function),
        ranges: &ranges,
        short_lived,
        spilled: Vec::new(),
    };
    for start in 0..ranges.end() {
        for reg in order.get(start as usize) {
            scan.lanes.iter_mut().for_each(|lane| lane.begin(start));
            scan.place(*reg);
        }
    }
    Assignment { regs: scan.regs, spilled: scan.spilled }
}

/// For each virtual register: the other operands of moves that it occurs in.
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

/// The virtual register in a machine register; `None` if an instruction uses the machine register implicitly.
type Owner = Option<VReg>;

/// A range in which a machine register is occupied by a virtual one.
struct OccupiedRange {
    range: Range,
    owner: VReg,
}

/// Ranges in which a machine register is occupied, in ascending order and without overlaps.
struct Lane<'a> {
    /// Implicit uses by instructions, from the current position of the scan on.
    fixed: &'a [Range],
    busy: Vec<OccupiedRange>,
    /// Number of entries of `busy` that end before the current position.
    passed: usize,
}

impl<'a> Lane<'a> {
    fn of(fixed: &'a [Range]) -> Lane<'a> {
        Lane { fixed, busy: Vec::new(), passed: 0 }
    }

    /// Moves the current position. Later queries begin here or after it.
    fn begin(&mut self, start: u32) {
        while let [first, rest @ ..] = self.fixed
            && first.end <= start
        {
            self.fixed = rest;
        }
        while self.busy.get(self.passed).is_some_and(|busy| busy.range.end <= start) {
            self.passed += 1;
        }
    }

    /// Owners of the register in these ranges; an owner may occur several times.
    fn owners<'r>(&'r self, ranges: &'r [Range]) -> impl Iterator<Item = Owner> + 'r {
        let busy = &self.busy[self.passed..];
        ranges.iter().flat_map(move |range| {
            let fixed = overlapping(self.fixed, range, |fixed| fixed).iter().map(|_| None);
            fixed.chain(overlapping(busy, range, |busy| &busy.range).iter().map(|busy| Some(busy.owner)))
        })
    }

    fn is_free(&self, ranges: &[Range]) -> bool {
        let busy = &self.busy[self.passed..];
        ranges.iter().all(|range| {
            overlapping(self.fixed, range, |fixed| fixed).is_empty()
                && overlapping(busy, range, |busy| &busy.range).is_empty()
        })
    }

    fn take(&mut self, ranges: &[Range], owner: VReg) {
        for range in ranges {
            // Most ranges come last.
            let before = self.busy.iter().rposition(|other| other.range.start < range.start);
            self.busy.insert(before.map_or(0, |at| at + 1), OccupiedRange { range: range.clone(), owner });
        }
    }

    fn evict(&mut self, owner: VReg) {
        self.busy.retain(|other| other.owner != owner);
        self.passed = 0;
    }
}

/// The part of an ascending list that overlaps a range.
fn overlapping<'l, T>(list: &'l [T], range: &Range, of: impl Fn(&T) -> &Range) -> &'l [T] {
    // The first entry mostly ends after the start of the range.
    let from = match list.first() {
        Some(first) if of(first).end <= range.start => {
            list.partition_point(|other| of(other).end <= range.start)
        }
        _ => 0,
    };
    let rest = &list[from..];
    &rest[..rest.iter().take_while(|other| of(other).start < range.end).count()]
}

struct Scan<'a> {
    regs: Vec<Option<Reg>>,
    /// Occupied ranges of each machine register.
    lanes: [Lane<'a>; 10],
    hints: Lists<R>,
    ranges: &'a Ranges,
    short_lived: u32,
    spilled: Vec<VReg>,
}

impl<'a> Scan<'a> {
    fn ranges(&self, reg: VReg) -> &'a [Range] {
        self.ranges.get(R::Virt(reg))
    }

    fn place(&mut self, reg: VReg) {
        let free = self.preferred(reg).chain(ORDER).find(|&to| self.is_free(to, reg));
        match free {
            Some(to) => self.take(reg, to),
            None => self.make_room(reg),
        }
    }

    /// Machine registers that would save a move: the other operands of its moves, then the other operands of
    /// theirs.
    fn preferred(&self, reg: VReg) -> impl Iterator<Item = Reg> + '_ {
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
        to != Reg::FP && self.lanes[to.0 as usize].is_free(self.ranges(reg))
    }

    /// Owners of `to` in the ranges of `reg`; an owner may occur several times.
    fn conflicts(&self, to: Reg, reg: VReg) -> impl Iterator<Item = Owner> + '_ {
        self.lanes[to.0 as usize].owners(self.ranges(reg))
    }

    fn take(&mut self, reg: VReg, to: Reg) {
        let ranges = self.ranges(reg);
        self.lanes[to.0 as usize].take(ranges, reg);
        self.regs[reg.0 as usize] = Some(to);
    }

    /// Cost of keeping a register on the stack.
    fn cost(&self, owner: Owner) -> f32 {
        match owner {
            Some(reg) if reg.0 < self.short_lived => self.ranges.weight(R::Virt(reg)),
            _ => f32::INFINITY,
        }
    }

    /// Spills whatever is cheapest: this register, or all registers that it conflicts with in one machine
    /// register.
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
        self.lanes[from.0 as usize].evict(owner);
        self.regs[owner.0 as usize] = None;
        self.spilled.push(owner);
    }
}
