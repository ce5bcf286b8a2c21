//! Selects BPF instructions for IR, over virtual registers.
//!
//! A register whose single definition is an address or a constant has no machine register. Its value is rematerialised at each
//! use, mostly in an addressing mode or an immediate.
//!
//! ```text
//! v1 = slot s0; store.64 [v1 + 0], 1; v2 = call map_lookup_elem(v0, v1)
//! v9 = 1; *(u64 *)(s0) = v9; r1 = map; r2 = &s0; call #1; v2 = r0
//! ```
//!
//! Not here: assignment of machine registers and stack slots (`regalloc`).

use super::insn::{Alu, Atomic, Cmp, Reg, Width};
use super::mir::Kfunc;
use super::mir::{Base, Block, Callee, End, Function, INSERTED, Inst, PlacedInst, R, Val, Wide};
use super::opaque::tested_copies;
use crate::dataflow::Bits;
use crate::ir::{self, AtomicOp, Bin, BlockId, FuncRef, MapRef, Op, Operand, SlotId, Term, VReg};
use lang::Span;

/// A value that is rematerialised at each use.
#[derive(Copy, Clone, Debug)]
enum RematValue {
    Const(i64),
    Slot(SlotId, i32),
    Map(MapRef),
    Data(u32),
    Value(MapRef, u32),
    Func(FuncRef),
}

/// Selects a function's instructions; `kfuncs` are the kernel functions of its module. Blocks are returned in
/// their order in memory.
pub fn select(func: &ir::Func, kfuncs: &[Kfunc]) -> Function {
    let mut select = Select::new(func, kfuncs);
    select.prologue();
    let order = layout(func);
    for (at, &block) in order.iter().enumerate() {
        select.starts[block.0 as usize] = select.out.blocks.len();
        select.next = order.get(at + 1).copied();
        select.block(block);
    }
    let starts = select.starts;
    let mut out = select.out;
    for (block, label) in out.blocks.iter_mut().zip(select.internal) {
        block.end.retarget(|to| if label { to } else { starts[to] });
    }
    number(&mut out);
    out
}

/// Reverse postorder; the lower-numbered successor follows its block directly. So loops and bodies stay together,
/// and exits come last.
fn layout(func: &ir::Func) -> Vec<BlockId> {
    let mut seen = vec![false; func.blocks.len()];
    let mut order = Vec::with_capacity(func.blocks.len());
    let mut stack = vec![(BlockId(0), false)];
    while let Some((block, done)) = stack.pop() {
        if done {
            order.push(block);
        } else if !std::mem::replace(&mut seen[block.0 as usize], true) {
            stack.push((block, true));
            let mut next: Vec<_> = func.blocks[block.0 as usize].term.successors().collect();
            next.sort();
            // The block pushed last is finished first, and so is placed last. The lower-numbered one is pushed
            // first.
            stack.extend(next.into_iter().map(|block| (block, false)));
        }
    }
    order.reverse();
    order
}

/// Numbers the instructions; the allocation checker identifies them by number.
fn number(out: &mut Function) {
    let insts = out.blocks.iter_mut().flat_map(|block| &mut block.insts);
    insts.enumerate().for_each(|(at, placed)| placed.origin = at as u32);
}

struct Select<'a> {
    func: &'a ir::Func,
    kfuncs: &'a [Kfunc],
    out: Function,
    /// First machine block of each IR block.
    starts: Vec<usize>,
    /// For each machine block: whether its targets are already machine blocks.
    internal: Vec<bool>,
    known: Vec<Option<RematValue>>,
    uses: Vec<u32>,
    params: Vec<Option<VReg>>,
    /// The IR block that will follow the current one in memory.
    next: Option<BlockId>,
    /// The constant that was stored last, and the register that still holds it.
    stored: Option<(i64, R)>,
    insts: Vec<PlacedInst>,
    span: Span,
    /// Registers that are tested in an opaque copy.
    tested_copies: Bits,
}

impl<'a> Select<'a> {
    fn new(func: &'a ir::Func, kfuncs: &'a [Kfunc]) -> Select<'a> {
        let out = Function {
            blocks: Vec::with_capacity(func.blocks.len() + 1),
            vregs: func.vregs,
            slots: func.slots.clone(),
            spills_from: func.slots.len(),
        };
        Select {
            func,
            kfuncs,
            out,
            starts: vec![0; func.blocks.len()],
            internal: Vec::new(),
            known: known_values(func),
            uses: func.uses(),
            params: Vec::new(),
            next: None,
            stored: None,
            insts: Vec::new(),
            span: func.span,
            tested_copies: tested_copies(func),
        }
    }

    /// Begins the entry block: arguments are moved out of their registers before a call can overwrite them.
    fn prologue(&mut self) {
        let reads = |index| self.func.blocks[0].ops.iter().any(|inst| reads_param(&inst.op, index));
        let is_read: Vec<bool> = (0..5).map(reads).collect();
        for (index, is_read) in is_read.into_iter().enumerate() {
            let param = is_read.then(|| self.out.vreg());
            if let Some(param) = param {
                self.mov(R::Virt(param), Val::R(R::Phys(Reg::arg(index))));
            }
            self.params.push(param);
        }
        self.finish(End::Jump(0), false);
    }

    /// Ends the current machine block and begins the next one.
    fn finish(&mut self, end: End, internal: bool) {
        self.stored = None;
        let insts = std::mem::take(&mut self.insts);
        self.out.blocks.push(Block { insts, end, span: self.span });
        self.internal.push(internal);
    }

    fn block(&mut self, id: BlockId) {
        let func = self.func;
        let block = &func.blocks[id.0 as usize];
        let fused = self.fused(block);
        let ops = if fused.is_some() { &block.ops[..block.ops.len() - 1] } else { &block.ops[..] };
        for inst in ops {
            self.span = inst.span;
            self.op(&inst.op);
        }
        self.span = block.span;
        self.term(fused.unwrap_or(block.term));
    }

    /// The branch that a comparison and its only use, the branch that follows it, are fused to.
    fn fused(&self, block: &ir::Block) -> Option<Term> {
        let Term::Branch { cmp: cmp @ (Cmp::Eq | Cmp::Ne), lhs, rhs: Operand::Const(0), then, otherwise } =
            block.term
        else {
            return None;
        };
        match block.ops.last()?.op {
            Op::Compare { dst, cmp: inner, lhs: Operand::Reg(left), rhs }
                if dst == lhs && self.uses[dst.0 as usize] == 1 =>
            {
                let (then, otherwise) = if cmp == Cmp::Ne { (then, otherwise) } else { (otherwise, then) };
                Some(Term::Branch { cmp: inner, lhs: left, rhs, then, otherwise })
            }
            _ => None,
        }
    }

    fn term(&mut self, term: Term) {
        match term {
            Term::Jump(to) => match returned(self.func, to) {
                // A jump to a block that only returns becomes that return, unless the block comes next.
                Some(value) if self.next != Some(to) => self.ret(Operand::Const(value)),
                _ => self.finish(End::Jump(to.0 as usize), false),
            },
            Term::Branch { cmp, lhs, rhs, then, otherwise } => {
                let (then, otherwise) = (then.0 as usize, otherwise.0 as usize);
                let (lhs, rhs) = self.tested(lhs.into(), rhs);
                self.finish(End::Branch { cmp, lhs, rhs, then, otherwise }, false);
            }
            Term::Return(value) => self.ret(value),
        }
    }

    fn ret(&mut self, value: Operand) {
        self.load(R::Phys(Reg::R0), value);
        self.finish(End::Exit, false);
    }

    /// Both operands of a test.
    fn tested(&mut self, lhs: Operand, rhs: Operand) -> (R, Val) {
        let lhs = self.reg(lhs);
        let rhs = self.val(rhs);
        let rhs = match rhs {
            Val::R(reg) => Val::R(self.tested_reg(reg)),
            constant => constant,
        };
        (self.tested_reg(lhs), rhs)
    }

    fn tested_reg(&mut self, reg: R) -> R {
        let R::Virt(VReg(number)) = reg else { return reg };
        if number >= self.func.vregs || !self.tested_copies.contains(number as usize) {
            return reg;
        }
        let copy = self.temp();
        self.copy_opaque(copy, reg);
        copy
    }

    /// `dst = src` as an opaque copy: the verifier does not compute differences of addresses.
    fn copy_opaque(&mut self, dst: R, src: R) {
        let frame = Val::R(R::Phys(Reg::FP));
        self.mov(dst, frame);
        self.emit(Inst::Alu { op: Bin::Sub, dst, src: frame });
        self.emit(Inst::Alu { op: Bin::Xor, dst, src: Val::R(src) });
    }

    fn opaque(&mut self, dst: VReg, src: VReg) {
        match self.known[src.0 as usize] {
            None if self.uses[src.0 as usize] > 1 && dst != src => {
                self.copy_opaque(R::Virt(dst), R::Virt(src))
            }
            _ => self.load(R::Virt(dst), src.into()),
        }
    }

    fn emit(&mut self, inst: Inst) {
        self.insts.push(PlacedInst { inst, span: self.span, origin: INSERTED });
    }

    fn mov(&mut self, dst: R, src: Val) {
        self.emit(Inst::Mov { wide: true, dst, src });
    }

    fn temp(&mut self) -> R {
        R::Virt(self.out.vreg())
    }

    /// The value of a register that is rematerialised at each use.
    fn known(&self, operand: Operand) -> Option<RematValue> {
        match operand {
            Operand::Const(value) => Some(RematValue::Const(value)),
            Operand::Reg(reg) => self.known[reg.0 as usize],
        }
    }

    /// `dst = operand`
    fn load(&mut self, dst: R, operand: Operand) {
        match (self.known(operand), operand) {
            (Some(RematValue::Const(value)), _) => match i32::try_from(value) {
                Ok(value) => self.mov(dst, Val::Imm(value)),
                Err(_) => self.emit(Inst::Wide { dst, value: Wide::Const(value) }),
            },
            (Some(RematValue::Slot(slot, offset)), _) => self.emit(Inst::SlotAddr { dst, slot, offset }),
            (Some(RematValue::Map(map)), _) => self.emit(Inst::Wide { dst, value: Wide::Map(map) }),
            (Some(RematValue::Data(offset)), _) => self.emit(Inst::Wide { dst, value: Wide::Data(offset) }),
            (Some(RematValue::Value(map, offset)), _) => {
                self.emit(Inst::Wide { dst, value: Wide::Value(map, offset) })
            }
            (Some(RematValue::Func(func)), _) => self.emit(Inst::Wide { dst, value: Wide::Func(func) }),
            (None, Operand::Reg(src)) => self.mov(dst, Val::R(R::Virt(src))),
            (None, Operand::Const(_)) => unreachable!("bug: a constant is always known"),
        }
    }

    /// A register that holds the operand.
    fn reg(&mut self, operand: Operand) -> R {
        match (self.known(operand), operand) {
            (None, Operand::Reg(reg)) => R::Virt(reg),
            _ => {
                let temp = self.temp();
                self.load(temp, operand);
                temp
            }
        }
    }

    /// The operand as an immediate if it fits.
    fn val(&mut self, operand: Operand) -> Val {
        match self.known(operand) {
            Some(RematValue::Const(value)) if i32::try_from(value).is_ok() => Val::Imm(value as i32),
            _ => Val::R(self.reg(operand)),
        }
    }

    /// Base and offset of a memory access.
    fn place(&mut self, base: VReg, offset: i16) -> (Base, i16) {
        let known = self.known(base.into());
        if let Some(RematValue::Slot(slot, within)) = known
            && let Ok(offset) = i16::try_from(within + i32::from(offset))
        {
            return (Base::Slot(slot), offset);
        }
        (Base::R(self.reg(base.into())), offset)
    }

    fn op(&mut self, op: &Op) {
        if op.dst().is_some_and(|dst| self.known[dst.0 as usize].is_some()) {
            return;
        }
        match *op {
            Op::Ctx { dst } => self.param(dst, 0),
            Op::Param { dst, index } => self.param(dst, index.into()),
            Op::Mov { dst, src } => self.load(R::Virt(dst), src),
            Op::Bin { op, dst, lhs, rhs } => self.bin(op, dst, lhs, rhs),
            Op::Neg { dst, src } => {
                self.load(R::Virt(dst), src.into());
                self.emit(Inst::Neg { dst: R::Virt(dst) });
            }
            Op::Opaque { dst, src } => self.opaque(dst, src),
            Op::Extend { dst, src, width, signed } => {
                let src = self.reg(src.into());
                self.extend(R::Virt(dst), src, width, signed);
            }
            Op::Compare { dst, cmp, lhs, rhs } => self.compare(dst, cmp, lhs, rhs),
            Op::Load { dst, base, offset, width, signed } => {
                let (base, offset) = self.place(base, offset);
                self.emit(Inst::Load { width, dst: R::Virt(dst), base, offset });
                if signed {
                    self.extend(R::Virt(dst), R::Virt(dst), width, true);
                }
            }
            Op::Store { base, offset, width, src } => self.store(base, offset, width, src),
            Op::Atomic { op, base, offset, width, src, fetch } => {
                self.atomic(op, base, offset, width, src, fetch)
            }
            Op::CmpXchg { dst, base, offset, width, expected, new } => {
                let (base, offset) = self.place(base, offset);
                let src = self.reg(new.into());
                self.load(R::Phys(Reg::R0), expected.into());
                self.emit(Inst::Atomic { op: Atomic::CmpXchg, width, base, offset, src });
                self.mov(R::Virt(dst), Val::R(R::Phys(Reg::R0)));
            }
            Op::Call { dst, helper, ref args } => self.call(dst, Callee::Helper(helper), args),
            Op::Kfunc { dst, ref name, ref args } => {
                let kfunc = self.kfuncs.iter().position(|known| known.name == *name);
                let kfunc = kfunc.expect("bug: a kernel function that the module does not list");
                self.call(dst, Callee::Kfunc(kfunc as u32), args);
            }
            // Registers with several definitions; the others are rematerialised.
            Op::SlotAddr { dst, slot } => self.emit(Inst::SlotAddr { dst: R::Virt(dst), slot, offset: 0 }),
            Op::MapAddr { dst, map } => self.emit(Inst::Wide { dst: R::Virt(dst), value: Wide::Map(map) }),
            Op::DataAddr { dst, offset } => {
                self.emit(Inst::Wide { dst: R::Virt(dst), value: Wide::Data(offset) })
            }
            Op::ValueAddr { dst, map, offset } => {
                self.emit(Inst::Wide { dst: R::Virt(dst), value: Wide::Value(map, offset) })
            }
            Op::FuncAddr { dst, func } => {
                self.emit(Inst::Wide { dst: R::Virt(dst), value: Wide::Func(func) })
            }
        }
    }

    fn param(&mut self, dst: VReg, index: usize) {
        if let Some(param) = self.params[index] {
            self.mov(R::Virt(dst), Val::R(R::Virt(param)));
        }
    }

    /// Two-address code: `dst = lhs; dst op= rhs`, with a temporary if `dst` is `rhs`.
    fn bin(&mut self, op: Bin, dst: VReg, lhs: Operand, rhs: Operand) {
        if rhs == Operand::Reg(dst) && lhs != rhs {
            return self.bin_onto_rhs(op, dst, lhs);
        }
        let src = self.alu_src(op, rhs);
        if lhs != Operand::Reg(dst) {
            self.load(R::Virt(dst), lhs);
        }
        self.emit(Inst::Alu { op, dst: R::Virt(dst), src });
    }

    /// `dst = lhs op dst`
    fn bin_onto_rhs(&mut self, op: Bin, dst: VReg, lhs: Operand) {
        let dst = R::Virt(dst);
        if matches!(op, Bin::Add | Bin::Mul | Bin::And | Bin::Or | Bin::Xor) {
            let src = self.val(lhs);
            return self.emit(Inst::Alu { op, dst, src });
        }
        let temp = self.temp();
        self.load(temp, lhs);
        self.emit(Inst::Alu { op, dst: temp, src: Val::R(dst) });
        self.mov(dst, Val::R(temp));
    }

    /// Operand of an operation. Constant shift counts are taken modulo 64, as the machine does for registers; the
    /// verifier refuses larger immediates.
    fn alu_src(&mut self, op: Bin, rhs: Operand) -> Val {
        match (op, self.known(rhs)) {
            (Bin::Shl | Bin::Shr | Bin::Sar, Some(RematValue::Const(by))) => Val::Imm((by & 63) as i32),
            _ => self.val(rhs),
        }
    }

    fn extend(&mut self, dst: R, src: R, width: Width, signed: bool) {
        let bits = 8 * width.bytes() as i32;
        if !signed && width == Width::B32 {
            return self.emit(Inst::Mov { wide: false, dst, src: Val::R(src) });
        }
        if dst != src {
            self.mov(dst, Val::R(src));
        }
        match width {
            Width::B64 => {}
            _ if signed => {
                self.emit(Inst::Alu { op: Alu::Shl, dst, src: Val::Imm(64 - bits) });
                self.emit(Inst::Alu { op: Alu::Sar, dst, src: Val::Imm(64 - bits) });
            }
            _ => self.emit(Inst::Alu { op: Alu::And, dst, src: Val::Imm((1 << bits) - 1) }),
        }
    }

    /// `dst = 1; if lhs cmp rhs goto next; dst = 0; next:`
    fn compare(&mut self, dst: VReg, cmp: Cmp, lhs: Operand, rhs: Operand) {
        let (lhs, rhs) = self.tested(lhs, rhs);
        let target = R::Virt(dst);
        let read = lhs == target || rhs == Val::R(target);
        let result = if read { self.temp() } else { target };
        self.mov(result, Val::Imm(1));
        let at = self.out.blocks.len();
        self.finish(End::Branch { cmp, lhs, rhs, then: at + 2, otherwise: at + 1 }, true);
        self.mov(result, Val::Imm(0));
        self.finish(End::Jump(at + 2), true);
        if read {
            self.mov(target, Val::R(result));
        }
    }

    /// Stores a value. Constants also go through a register: disassemblers before LLVM 17 do not support stores of
    /// immediates. Verifiers before Linux 6.3 do not track immediates that were stored to the stack.
    fn store(&mut self, base: VReg, offset: i16, width: Width, src: Operand) {
        let (base, offset) = self.place(base, offset);
        let src = match self.known(src) {
            Some(RematValue::Const(value)) => self.stored_constant(value, width),
            _ => self.reg(src),
        };
        self.emit(Inst::Store { width, base, offset, src });
    }

    /// A register that holds a constant; the last one is reused until the next call.
    fn stored_constant(&mut self, value: i64, width: Width) -> R {
        // A narrow store uses the low bytes only, so its constant always fits an immediate.
        let value = if width == Width::B64 { value } else { i64::from(value as i32) };
        match self.stored {
            Some((known, reg)) if known == value => reg,
            _ => {
                let reg = self.reg(value.into());
                self.stored = Some((value, reg));
                reg
            }
        }
    }

    /// Emits an atomic update. A fetch overwrites its source, so the source is copied.
    fn atomic(
        &mut self,
        op: AtomicOp,
        base: VReg,
        offset: i16,
        width: Width,
        src: VReg,
        fetch: Option<VReg>,
    ) {
        let (base, offset) = self.place(base, offset);
        let update = match op {
            AtomicOp::Add => Alu::Add,
            AtomicOp::And => Alu::And,
            AtomicOp::Or => Alu::Or,
            AtomicOp::Xor => Alu::Xor,
            AtomicOp::Xchg => return self.fetch(Atomic::Xchg, base, offset, width, src, fetch),
        };
        if fetch.is_some() {
            return self.fetch(Atomic::Fetch(update), base, offset, width, src, fetch);
        }
        let src = self.reg(src.into());
        self.emit(Inst::Atomic { op: Atomic::Update(update), width, base, offset, src });
    }

    fn fetch(&mut self, op: Atomic, base: Base, offset: i16, width: Width, src: VReg, dst: Option<VReg>) {
        let old = self.temp();
        self.load(old, src.into());
        self.emit(Inst::Atomic { op, width, base, offset, src: old });
        if let Some(dst) = dst {
            self.mov(R::Virt(dst), Val::R(old));
        }
    }

    fn call(&mut self, dst: Option<VReg>, callee: Callee, args: &[Operand]) {
        for (index, &arg) in args.iter().enumerate() {
            self.load(R::Phys(Reg::arg(index)), arg);
        }
        self.emit(Inst::Call { callee, args: args.len() as u8 });
        self.stored = None;
        if let Some(dst) = dst.filter(|dst| self.uses[dst.0 as usize] > 0) {
            self.mov(R::Virt(dst), Val::R(R::Phys(Reg::R0)));
        }
    }
}

fn reads_param(op: &Op, number: u8) -> bool {
    match op {
        Op::Ctx { .. } => number == 0,
        Op::Param { index, .. } => number == *index,
        _ => false,
    }
}

/// The constant that a block without operations returns.
fn returned(func: &ir::Func, block: BlockId) -> Option<i64> {
    let block = &func.blocks[block.0 as usize];
    match block.term {
        Term::Return(Operand::Const(value)) if block.ops.is_empty() => Some(value),
        _ => None,
    }
}

/// For each register with a single definition: its value, if that is an address or a constant.
fn known_values(func: &ir::Func) -> Vec<Option<RematValue>> {
    let ops = || func.blocks.iter().flat_map(|block| &block.ops).map(|inst| &inst.op);
    let mut defs = vec![0u32; func.vregs as usize];
    ops().filter_map(Op::dst).for_each(|dst| defs[dst.0 as usize] += 1);
    let mut known = vec![None; func.vregs as usize];
    for op in ops() {
        if let Some(dst) = op.dst().filter(|dst| defs[dst.0 as usize] == 1) {
            known[dst.0 as usize] = known_value(op, &known);
        }
    }
    known
}

fn known_value(op: &Op, known: &[Option<RematValue>]) -> Option<RematValue> {
    match *op {
        Op::Mov { src: Operand::Const(value), .. } => Some(RematValue::Const(value)),
        Op::Mov { src: Operand::Reg(src), .. } => known[src.0 as usize],
        Op::SlotAddr { slot, .. } => Some(RematValue::Slot(slot, 0)),
        Op::MapAddr { map, .. } => Some(RematValue::Map(map)),
        Op::DataAddr { offset, .. } => Some(RematValue::Data(offset)),
        Op::ValueAddr { map, offset, .. } => Some(RematValue::Value(map, offset)),
        Op::FuncAddr { func, .. } => Some(RematValue::Func(func)),
        Op::Bin { op: Bin::Add, lhs: Operand::Reg(lhs), rhs: Operand::Const(by), .. } => {
            match known[lhs.0 as usize]? {
                RematValue::Slot(slot, at) => Some(RematValue::Slot(slot, within(i64::from(at), by)?)),
                RematValue::Data(at) => Some(RematValue::Data(within(i64::from(at), by)? as u32)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The sum, if it is at most a small distance from its base; other sums are computed at run time.
fn within(at: i64, by: i64) -> Option<i32> {
    let sum = at.checked_add(by)?;
    (0..=i64::from(i16::MAX)).contains(&sum).then_some(sum as i32)
}
