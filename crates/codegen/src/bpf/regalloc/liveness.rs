//! Live ranges of registers.
//!
//! Instruction i reads at position 2i and writes at 2i + 1, terminators included; ranges are half-open. The last
//! use of a source and the target of the same instruction may therefore share a machine register.

use crate::bpf::insn::Reg;
use crate::bpf::mir::{Function, R, Role};
use crate::dataflow::{Effects, Lists, Live};
use crate::ir::VReg;

/// Half-open range of positions.
pub(super) type Range = std::ops::Range<u32>;

/// Number of machine registers, which precede the virtual ones in the numbering.
const PHYS: usize = Reg::FP.0 as usize + 1;

/// Live ranges of all registers, and the weight of virtual ones.
pub(super) struct Ranges {
    ranges: Lists<Range>,
    weights: Vec<f32>,
    end: u32,
}

fn index(reg: R) -> usize {
    match reg {
        R::Phys(reg) => reg.0 as usize,
        R::Virt(reg) => PHYS + reg.0 as usize,
    }
}

/// The registers that are live at the start and end of each block.
pub(super) struct Liveness(Live);

impl Liveness {
    /// Computes liveness from the code.
    pub(super) fn of(function: &Function) -> Liveness {
        Liveness(live(function))
    }

    /// Removes spilled registers. The registers that replace them are live within one block only.
    pub(super) fn forget(&mut self, spilled: &[VReg]) {
        // Few of the many registers are spilled.
        let mut numbers: Vec<usize> = spilled.iter().map(|reg| index(R::Virt(*reg))).collect();
        numbers.sort_unstable();
        self.0.forget(|number| numbers.binary_search(&number).is_ok());
    }
}

fn live(function: &Function) -> Live {
    let mut effects = Effects::new(PHYS + function.vregs as usize);
    for block in &function.blocks {
        effects.begin_block();
        let mut see = |reg, role: Role| {
            if role.reads() {
                effects.read(index(reg));
            }
            if role.writes() {
                effects.write(index(reg));
            }
        };
        block.insts.iter().for_each(|placed| placed.inst.visit(&mut see));
        block.end.visit(&mut see);
    }
    effects.live(|block| function.blocks[block].end.successors())
}

/// Loop depth of each block, derived from the backward jumps.
fn loop_depths(function: &Function) -> Vec<u32> {
    let mut depths = vec![0; function.blocks.len()];
    for (at, block) in function.blocks.iter().enumerate() {
        for head in block.end.successors().filter(|&to| to <= at) {
            depths[head..=at].iter_mut().for_each(|depth| *depth += 1);
        }
    }
    depths
}

impl Ranges {
    /// Computes the ranges of all registers.
    pub(super) fn of(function: &Function, Liveness(live): &Liveness) -> Ranges {
        let len = PHYS + function.vregs as usize;
        let insts: usize = function.blocks.iter().map(|block| block.insts.len() + 1).sum();
        let mut walk = Walk::new(len, insts);
        let mut at = insts as u32;
        let depths = loop_depths(function);
        // A call has the largest number of operands.
        let mut seen: Vec<(usize, Role)> = Vec::with_capacity(16);
        for (number, block) in function.blocks.iter().enumerate().rev() {
            let weight = 10f32.powi(depths[number].min(8) as i32);
            live.at_end(number).for_each(|reg| walk.regs[reg].end = 2 * at);
            at -= 1;
            seen.clear();
            block.end.visit(&mut |reg, role| seen.push((index(reg), role)));
            walk.step(at, weight, &seen);
            for placed in block.insts.iter().rev() {
                at -= 1;
                seen.clear();
                placed.inst.visit(&mut |reg, role| seen.push((index(reg), role)));
                walk.step(at, weight, &seen);
            }
            walk.begin_block(2 * at, live.at_start(number));
        }
        walk.ranges.reverse();
        let weights = walk.regs.iter().map(|reg| reg.weight).collect();
        Ranges { ranges: Lists::of(&walk.ranges, len), weights, end: 2 * insts as u32 }
    }

    /// Upper bound of all positions.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Ranges in ascending order.
    pub(super) fn get(&self, reg: R) -> &[Range] {
        self.ranges.get(index(reg))
    }

    /// Spill cost of the register: number of reads and writes, weighted by loop depth, divided by the length of
    /// the ranges.
    pub(super) fn weight(&self, reg: R) -> f32 {
        let length: u32 = self.get(reg).iter().map(|range| range.end - range.start).sum();
        self.weights[index(reg)] / length.max(1) as f32
    }
}

/// State of a backward walk over the code.
struct Walk {
    /// Registers and their ranges, in reverse order.
    ranges: Vec<(u32, Range)>,
    regs: Vec<RangeBuilder>,
}

/// The state of a register during the walk.
#[derive(Clone)]
struct RangeBuilder {
    /// Index of its first range, or [`NONE`].
    first: u32,
    /// End of the range that is open at the current position, or [`NONE`].
    end: u32,
    weight: f32,
}

const NONE: u32 = u32::MAX;

impl Walk {
    fn new(len: usize, insts: usize) -> Walk {
        let regs = vec![RangeBuilder { first: NONE, end: NONE, weight: 0.0 }; len];
        Walk { ranges: Vec::with_capacity(insts), regs }
    }

    /// Handles an instruction. Writes come before reads, since the walk goes backwards.
    fn step(&mut self, at: u32, weight: f32, operands: &[(usize, Role)]) {
        for &(reg, role) in operands {
            if role.writes() {
                let met = &mut self.regs[reg];
                met.weight += weight;
                let end = std::mem::replace(&mut met.end, NONE);
                self.push(reg, 2 * at + 1..if end == NONE { 2 * at + 2 } else { end });
            }
        }
        for &(reg, role) in operands {
            if role.reads() {
                let met = &mut self.regs[reg];
                met.weight += weight;
                if met.end == NONE {
                    met.end = 2 * at + 1;
                }
            }
        }
    }

    fn begin_block(&mut self, start: u32, live: impl Iterator<Item = usize>) {
        for reg in live {
            let end = std::mem::replace(&mut self.regs[reg].end, NONE);
            if end != NONE {
                self.push(reg, start..end);
            }
        }
    }

    /// Prepends a range, or joins it with the first range if they are adjacent.
    fn push(&mut self, reg: usize, range: Range) {
        let first = &mut self.regs[reg].first;
        match self.ranges.get_mut(*first as usize) {
            Some((_, next)) if next.start == range.end => next.start = range.start,
            _ => {
                *first = self.ranges.len() as u32;
                self.ranges.push((reg as u32, range));
            }
        }
    }
}
