//! Encodes a function as BPF instructions after register allocation, and fills in the offsets of jumps.
//!
//! Not here: ELF (`object`), text (`disasm`).

use super::code::{AsmError, Target};
use super::helper::Helper;
use super::insn::{self, Callee, Cmp, Insn, Reg, SLOT, Src};
use super::mir::{self, Base, End, Function, Inst, R, Val};
use super::no_preempt::{SPARE, Shield};
use super::regalloc::{AllocatedFunction, Frame};
use crate::ir;
use lang::Span;

/// Writer of instructions; jumps to blocks are resolved at the end.
pub(super) struct Emitter<'a> {
    frame: &'a Frame,
    shield: Option<Shield>,
    pub insns: Vec<Insn>,
    pub spans: Vec<Span>,
    pub targets: Vec<(usize, Target)>,
    /// Index of a jump instruction, and its target block.
    jumps: Vec<(usize, usize)>,
    /// Index of the first instruction of each block.
    starts: Vec<Option<usize>>,
    /// True if no jump has reached this point since the last branch, and nothing was called. A call also makes the
    /// verifier record a state. See [`Emitter::meet`].
    is_unmet: bool,
    span: Span,
}

impl<'a> Emitter<'a> {
    pub(super) fn emit(allocated: &'a AllocatedFunction, shield: Option<Shield>) -> Emitter<'a> {
        let function = &allocated.function;
        let mut emitter = Emitter {
            frame: &allocated.frame,
            shield,
            insns: Vec::new(),
            spans: Vec::new(),
            targets: Vec::new(),
            jumps: Vec::new(),
            starts: vec![None; function.blocks.len()],
            is_unmet: false,
            span: Span::default(),
        };
        let ends = threaded(function);
        let order = reachable(&ends);
        let ways = BlockEntries::of(&ends, &order);
        if let Some(shield) = shield {
            emitter.span = function.blocks[Function::ENTRY].span;
            emitter.call_around(Reg::R1, shield.disable);
        }
        for (at, &block) in order.iter().enumerate() {
            emitter.starts[block] = Some(emitter.insns.len());
            let before = at.checked_sub(1).map(|at| ends[order[at]]);
            emitter.is_unmet = ways.are_unmet(before, block, emitter.is_unmet);
            for placed in &function.blocks[block].insts {
                emitter.span = placed.span;
                emitter.inst(&placed.inst);
            }
            emitter.span = function.blocks[block].span;
            emitter.end(ends[block], order.get(at + 1).copied());
        }
        emitter
    }

    fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
        self.spans.push(self.span);
    }

    fn inst(&mut self, inst: &Inst) {
        match *inst {
            Inst::Mov { wide, dst, src } => self.push(Insn::Mov { wide, dst: phys(dst), src: operand(src) }),
            Inst::Wide { dst, value } => self.wide(phys(dst), value),
            Inst::SlotAddr { dst, slot, offset } => {
                let dst = phys(dst);
                let offset = self.frame.offset(slot.0 as usize) + offset;
                self.push(Insn::Mov { wide: true, dst, src: Src::Reg(Reg::FP) });
                self.push(Insn::Alu { wide: true, op: insn::Alu::Add, dst, src: Src::Imm(offset) });
            }
            Inst::Alu { op, dst, src } => {
                self.push(Insn::Alu { wide: true, op, dst: phys(dst), src: operand(src) })
            }
            Inst::Neg { dst } => self.push(Insn::Neg { wide: true, dst: phys(dst) }),
            Inst::Load { width, dst, base, offset } => {
                let (base, offset) = self.place(base, offset);
                self.push(Insn::Load { width, dst: phys(dst), base, offset });
            }
            Inst::Store { width, base, offset, src } => {
                let (base, offset) = self.place(base, offset);
                self.push(Insn::Store { width, base, offset, src: Src::Reg(phys(src)) });
            }
            Inst::Atomic { op, width, base, offset, src } => {
                let (base, offset) = self.place(base, offset);
                self.push(Insn::Atomic { op, width, base, offset, src: phys(src) });
            }
            Inst::Call { callee: mir::Callee::Helper(helper), .. } => self.helper(helper),
            Inst::Call { callee: mir::Callee::Kfunc(kfunc), .. } => self.kfunc(kfunc),
        }
    }

    fn helper(&mut self, helper: Helper) {
        if helper == Helper::RingbufReserve {
            self.meet();
        }
        self.push(Insn::Call { callee: Callee::Helper, imm: helper.number() as i32 });
        self.is_unmet = false;
    }

    /// Emits `goto +0`, which the kernel removes after verification. At a jump target the verifier compares the
    /// states of the incoming paths, and follows only one of several equal states.
    ///
    /// A search may leave its loop in any of a thousand iterations. A reservation in the ring buffer makes the states
    /// of these paths different for verifiers before Linux 6.3. Without a join before it, they would follow the
    /// rest of the program a thousand times.
    fn meet(&mut self) {
        if self.is_unmet {
            self.push(Insn::Jump { offset: 0 });
        }
    }

    fn kfunc(&mut self, kfunc: u32) {
        self.targets.push((self.insns.len(), Target::Kfunc(kfunc)));
        // libbpf expects this encoding for an unresolved call.
        self.push(Insn::Call { callee: Callee::Local, imm: -1 });
    }

    /// Calls a function without arguments, and keeps the register `kept` in [`SPARE`] meanwhile.
    fn call_around(&mut self, kept: Reg, kfunc: u32) {
        self.push(Insn::Mov { wide: true, dst: SPARE, src: Src::Reg(kept) });
        self.kfunc(kfunc);
        self.push(Insn::Mov { wide: true, dst: kept, src: Src::Reg(SPARE) });
    }

    fn wide(&mut self, dst: Reg, value: mir::Wide) {
        let (target, value) = match value {
            mir::Wide::Const(value) => (None, value),
            mir::Wide::Map(map) => (Some(Target::Map(map)), 0),
            mir::Wide::Data(offset) => (Some(Target::Data), i64::from(offset)),
            mir::Wide::Value(map, offset) => (Some(Target::Value(map)), i64::from(offset)),
            mir::Wide::Func(func) => (Some(Target::Func(func)), 0),
        };
        self.targets.extend(target.map(|target| (self.insns.len(), target)));
        let kind = if matches!(target, Some(Target::Func(_))) { insn::Wide::Func } else { insn::Wide::Const };
        self.push(Insn::LoadImm { dst, kind, value });
    }

    fn place(&self, base: Base, offset: i16) -> (Reg, i16) {
        match base {
            Base::R(reg) => (phys(reg), offset),
            Base::Slot(slot) => {
                let offset = self.frame.offset(slot.0 as usize) + i32::from(offset);
                // Frames larger than an i16 are refused elsewhere because of their size.
                (Reg::FP, offset.clamp(i16::MIN.into(), i16::MAX.into()) as i16)
            }
        }
    }

    fn jump(&mut self, to: usize, next: Option<usize>) {
        if Some(to) != next {
            self.jumps.push((self.insns.len(), to));
            self.push(Insn::Jump { offset: 0 });
        }
    }

    fn branch(&mut self, cmp: Cmp, lhs: R, rhs: Val, to: usize) {
        self.jumps.push((self.insns.len(), to));
        let (lhs, rhs) = (phys(lhs), operand(rhs));
        self.push(Insn::Branch { wide: true, cmp, lhs, rhs, offset: 0 });
    }

    fn end(&mut self, end: End, next: Option<usize>) {
        match end {
            End::Exit => {
                if let Some(shield) = self.shield {
                    self.call_around(Reg::R0, shield.enable);
                }
                self.push(Insn::Exit);
            }
            End::Jump(to) => self.jump(to, next),
            End::Branch { then, otherwise, .. } if then == otherwise => self.jump(then, next),
            End::Branch { cmp, lhs, rhs, then, otherwise } => match inverse(cmp) {
                Some(inverse) if Some(then) == next => self.branch(inverse, lhs, rhs, otherwise),
                _ => {
                    self.branch(cmp, lhs, rhs, then);
                    self.jump(otherwise, next);
                }
            },
        }
    }

    /// Fills in the offsets of jumps, in slots. Returns the byte offset of each instruction and of the end.
    pub(super) fn link(&mut self, func: &ir::Func) -> Result<Vec<u32>, AsmError> {
        let mut offsets = Vec::with_capacity(self.insns.len() + 1);
        let mut end = 0;
        offsets.push(end);
        offsets.extend(self.insns.iter().map(|insn| {
            end += (insn.slots() * SLOT) as u32;
            end
        }));
        for &(at, to) in &self.jumps {
            let start = self.starts[to].expect("bug: jumps lead to blocks that are reachable");
            let distance = (i64::from(offsets[start]) - i64::from(offsets[at + 1])) / SLOT as i64;
            let offset_ = i16::try_from(distance).map_err(|_| AsmError::Length {
                name: func.name.clone(),
                distance,
                span: func.span,
            })?;
            if let Insn::Jump { offset } | Insn::Branch { offset, .. } = &mut self.insns[at] {
                *offset = offset_;
            }
        }
        Ok(offsets)
    }
}

/// The terminators of all blocks. A jump to an empty block leads to that block's target instead.
fn threaded(function: &Function) -> Vec<End> {
    let follow = |mut to: usize| {
        // At most one step per block. A cycle of empty blocks is an empty endless loop of the script, and stays.
        for _ in 0..function.blocks.len() {
            match (&function.blocks[to].insts[..], function.blocks[to].end) {
                ([], End::Jump(next)) => to = next,
                _ => break,
            }
        }
        to
    };
    let mut ends: Vec<End> = function.blocks.iter().map(|block| block.end).collect();
    ends.iter_mut().for_each(|end| end.retarget(follow));
    ends
}

/// Reachable blocks in their order; the verifier refuses unreachable code.
fn reachable(ends: &[End]) -> Vec<usize> {
    let mut seen = vec![false; ends.len()];
    let mut stack = vec![Function::ENTRY];
    while let Some(at) = stack.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            stack.extend(ends[at].successors());
        }
    }
    (0..ends.len()).filter(|&at| seen[at]).collect()
}

/// Edges into blocks.
struct BlockEntries {
    /// Number of incoming edges of each block.
    entries: Vec<u32>,
    /// True if the function has a loop. Without loops there are few paths.
    any_loop: bool,
}

impl BlockEntries {
    fn of(ends: &[End], order: &[usize]) -> BlockEntries {
        let mut ways = BlockEntries { entries: vec![0; ends.len()], any_loop: false };
        for &at in order {
            for to in ends[at].successors() {
                ways.entries[to] += 1;
                ways.any_loop |= to <= at;
            }
        }
        ways
    }

    /// Whether the states of paths have not been joined at the start of `block`. `before` is the terminator of the
    /// previous block, and `unmet` the value at its end.
    fn are_unmet(&self, before: Option<End>, block: usize, unmet: bool) -> bool {
        let falls = match before {
            Some(End::Branch { then, otherwise, .. }) => then == block || otherwise == block,
            Some(End::Jump(to)) => to == block && unmet,
            Some(End::Exit) | None => false,
        };
        self.any_loop && falls && self.entries[block] == 1
    }
}

fn inverse(cmp: Cmp) -> Option<Cmp> {
    Some(match cmp {
        Cmp::Eq => Cmp::Ne,
        Cmp::Ne => Cmp::Eq,
        Cmp::Ult => Cmp::Uge,
        Cmp::Uge => Cmp::Ult,
        Cmp::Ule => Cmp::Ugt,
        Cmp::Ugt => Cmp::Ule,
        Cmp::Slt => Cmp::Sge,
        Cmp::Sge => Cmp::Slt,
        Cmp::Sle => Cmp::Sgt,
        Cmp::Sgt => Cmp::Sle,
        Cmp::Test => return None,
    })
}

fn phys(reg: R) -> Reg {
    match reg {
        R::Phys(reg) => reg,
        R::Virt(_) => unreachable!("bug: registers have been assigned"),
    }
}

fn operand(value: Val) -> Src {
    match value {
        Val::R(reg) => Src::Reg(phys(reg)),
        Val::Imm(imm) => Src::Imm(imm),
    }
}
