//! Builds a function block by block: allocates registers and blocks. At the end it removes unreachable blocks
//! and moves cold ones after the others.
//!
//! ```text
//! let ctx = b.ctx();
//! let ax = b.load(ctx, 80, Width::B64, false);
//! b.branch(Cmp::Eq, ax, 0, zero, other);
//! ```
//!
//! Not here: the lowering of scripts (`lower`).

use super::*;

/// Builder of a function. Code after a terminator is in an unreachable block, which is removed.
pub struct Builder {
    func: Func,
    at: BlockId,
    ended: bool,
    cold: Vec<bool>,
    span: Span,
}

impl Builder {
    /// Starts a function; its entry block is open.
    pub fn new(name: String, kind: FuncKind, span: Span) -> Builder {
        let func = Func { name, kind, blocks: vec![], vregs: 0, slots: vec![], span };
        let mut builder = Builder { func, at: BlockId(0), ended: false, cold: vec![], span };
        builder.block();
        builder
    }

    /// Sets the span of the operations that follow; returns the previous span.
    pub fn set_span(&mut self, span: Span) -> Span {
        std::mem::replace(&mut self.span, span)
    }

    /// The unfinished function, for adding slots.
    pub fn func_mut(&mut self) -> &mut Func {
        &mut self.func
    }

    /// Returns a fresh register.
    pub fn vreg(&mut self) -> VReg {
        self.func.vreg()
    }

    /// Returns a fresh, empty block.
    pub fn block(&mut self) -> BlockId {
        let block = Block { ops: vec![], term: Term::Return(Operand::Const(0)), span: self.span };
        self.func.blocks.push(block);
        self.cold.push(false);
        BlockId(self.func.blocks.len() as u32 - 1)
    }

    /// Returns a fresh block that rarely runs and is placed after all others.
    pub fn cold_block(&mut self) -> BlockId {
        let block = self.block();
        self.cold[block.0 as usize] = true;
        block
    }

    /// Whether the current block has a terminator, so that operations added now are dead.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Makes `block` the current block.
    pub fn switch_to(&mut self, block: BlockId) {
        self.at = block;
        self.ended = false;
    }

    /// Jumps to `block` if the current block is still open, and makes it the current block.
    pub fn fall_into(&mut self, block: BlockId) {
        self.jump(block);
        self.switch_to(block);
    }

    /// Appends an operation.
    pub fn op(&mut self, op: Op) {
        if self.ended {
            let dead = self.block();
            self.switch_to(dead);
        }
        self.func.blocks[self.at.0 as usize].ops.push(Inst { op, span: self.span });
    }

    fn end(&mut self, term: Term) {
        if !self.ended {
            let block = &mut self.func.blocks[self.at.0 as usize];
            block.term = term;
            block.span = self.span;
            self.ended = true;
        }
    }

    /// `jump b1`
    pub fn jump(&mut self, to: BlockId) {
        self.end(Term::Jump(to));
    }

    /// `return 0`
    pub fn ret(&mut self, value: impl Into<Operand>) {
        self.end(Term::Return(value.into()));
    }

    /// `branch lhs cmp rhs, then, otherwise`
    pub fn branch(
        &mut self,
        cmp: Cmp,
        lhs: VReg,
        rhs: impl Into<Operand>,
        then: BlockId,
        otherwise: BlockId,
    ) {
        self.end(Term::Branch { cmp, lhs, rhs: rhs.into(), then, otherwise });
    }

    fn dst(&mut self, make: impl FnOnce(VReg) -> Op) -> VReg {
        let dst = self.vreg();
        self.op(make(dst));
        dst
    }

    /// `dst = ctx`
    pub fn ctx(&mut self) -> VReg {
        self.dst(|dst| Op::Ctx { dst })
    }

    /// `dst = param n`
    pub fn param(&mut self, index: u8) -> VReg {
        self.dst(|dst| Op::Param { dst, index })
    }

    /// `dst = src`, in a fresh register.
    pub fn copy(&mut self, src: impl Into<Operand>) -> VReg {
        let src = src.into();
        self.dst(|dst| Op::Mov { dst, src })
    }

    /// `dst = src`
    pub fn set(&mut self, dst: VReg, src: impl Into<Operand>) {
        self.op(Op::Mov { dst, src: src.into() });
    }

    /// A register that holds `value`.
    pub fn reg(&mut self, value: Operand) -> VReg {
        match value {
            Operand::Reg(reg) => reg,
            constant => self.copy(constant),
        }
    }

    /// `dst = op lhs, rhs`
    pub fn bin(&mut self, op: Bin, lhs: impl Into<Operand>, rhs: impl Into<Operand>) -> VReg {
        let (lhs, rhs) = (lhs.into(), rhs.into());
        self.dst(|dst| Op::Bin { op, dst, lhs, rhs })
    }

    /// `dst = op dst, rhs`
    pub fn update(&mut self, op: Bin, dst: VReg, rhs: impl Into<Operand>) {
        self.op(Op::Bin { op, dst, lhs: dst.into(), rhs: rhs.into() });
    }

    /// `dst = neg src`
    pub fn neg(&mut self, src: VReg) -> VReg {
        self.dst(|dst| Op::Neg { dst, src })
    }

    /// `dst = opaque src`
    pub fn opaque(&mut self, src: VReg) -> VReg {
        self.dst(|dst| Op::Opaque { dst, src })
    }

    /// `dst = extend src`
    pub fn extend(&mut self, src: VReg, width: Width, signed: bool) -> VReg {
        self.dst(|dst| Op::Extend { dst, src, width, signed })
    }

    /// `dst = cmp lhs, rhs`
    pub fn compare(&mut self, cmp: Cmp, lhs: impl Into<Operand>, rhs: impl Into<Operand>) -> VReg {
        let (lhs, rhs) = (lhs.into(), rhs.into());
        self.dst(|dst| Op::Compare { dst, cmp, lhs, rhs })
    }

    /// `dst = load [base + offset]`
    pub fn load(&mut self, base: VReg, offset: i16, width: Width, signed: bool) -> VReg {
        self.dst(|dst| Op::Load { dst, base, offset, width, signed })
    }

    /// `store [base + offset], src`
    pub fn store(&mut self, base: VReg, offset: i16, width: Width, src: impl Into<Operand>) {
        self.op(Op::Store { base, offset, width, src: src.into() });
    }

    /// `atomic.op.64 [base + offset], src`, without the old value.
    pub fn atomic(&mut self, op: AtomicOp, base: VReg, offset: i16, src: VReg) {
        self.op(Op::Atomic { op, base, offset, width: Width::B64, src, fetch: None });
    }

    /// `dst = atomic.op.64 [base + offset], src`; returns the register of the old value.
    pub fn atomic_fetch(&mut self, op: AtomicOp, base: VReg, offset: i16, src: VReg) -> VReg {
        let fetch = self.vreg();
        self.op(Op::Atomic { op, base, offset, width: Width::B64, src, fetch: Some(fetch) });
        fetch
    }

    /// `dst = cmpxchg.64 [base + offset], expected -> new`
    pub fn cmpxchg(&mut self, base: VReg, offset: i16, expected: VReg, new: VReg) -> VReg {
        self.dst(|dst| Op::CmpXchg { dst, base, offset, width: Width::B64, expected, new })
    }

    /// `dst = slot s`
    pub fn slot_addr(&mut self, slot: SlotId) -> VReg {
        self.dst(|dst| Op::SlotAddr { dst, slot })
    }

    /// `dst = map @m`
    pub fn map_addr(&mut self, map: MapRef) -> VReg {
        self.dst(|dst| Op::MapAddr { dst, map })
    }

    /// `dst = data n`
    pub fn data_addr(&mut self, offset: u32) -> VReg {
        self.dst(|dst| Op::DataAddr { dst, offset })
    }

    /// `v = value @m + offset`
    pub fn value_addr(&mut self, map: MapRef, offset: u32) -> VReg {
        self.dst(|dst| Op::ValueAddr { dst, map, offset })
    }

    /// `dst = func f`
    pub fn func_addr(&mut self, func: FuncRef) -> VReg {
        self.dst(|dst| Op::FuncAddr { dst, func })
    }

    /// `dst = call helper(args)`
    pub fn call(&mut self, helper: Helper, args: &[Operand]) -> VReg {
        self.dst(|dst| Op::Call { dst: Some(dst), helper, args: args.to_vec() })
    }

    /// `call helper(args)`, without a result.
    pub fn call_void(&mut self, helper: Helper, args: &[Operand]) {
        self.op(Op::Call { dst: None, helper, args: args.to_vec() });
    }

    /// `dst = kfunc name(args)`
    pub fn kfunc(&mut self, name: &str, args: &[Operand]) -> VReg {
        self.dst(|dst| Op::Kfunc { dst: Some(dst), name: name.into(), args: args.to_vec() })
    }

    /// Finishes the function: drops unreachable blocks and orders the others.
    pub fn finish(self) -> Func {
        let mut func = self.func;
        let order = hot_first(&reachable(&func), &self.cold);
        reorder(&mut func, &order);
        func
    }
}

/// Reachable blocks: the entry first, cold ones last.
fn hot_first(reached: &[bool], cold: &[bool]) -> Vec<BlockId> {
    let part = |want: bool| {
        (0..reached.len())
            .filter(move |&b| reached[b] && (cold[b] && b != 0) == want)
            .map(|b| BlockId(b as u32))
    };
    part(false).chain(part(true)).collect()
}

/// For each block, whether it is reachable from the entry.
pub fn reachable(func: &Func) -> Vec<bool> {
    let mut reached = vec![false; func.blocks.len()];
    let mut todo = vec![BlockId(0)];
    while let Some(block) = todo.pop() {
        if !std::mem::replace(&mut reached[block.0 as usize], true) {
            todo.extend(func.blocks[block.0 as usize].term.successors());
        }
    }
    reached
}

/// Keeps only the blocks in `order`, in that order, and renumbers the jumps between them.
pub fn reorder(func: &mut Func, order: &[BlockId]) {
    let mut new = vec![BlockId(u32::MAX); func.blocks.len()];
    for (at, old) in order.iter().enumerate() {
        new[old.0 as usize] = BlockId(at as u32);
    }
    let mut old: Vec<Option<Block>> = std::mem::take(&mut func.blocks).into_iter().map(Some).collect();
    func.blocks = order.iter().map(|b| old[b.0 as usize].take().expect("each block once")).collect();
    for block in &mut func.blocks {
        block.term.map_targets(|target| new[target.0 as usize]);
    }
}

/// Drops unreachable blocks; returns whether there were any.
pub fn drop_unreached(func: &mut Func) -> bool {
    let reached = reachable(func);
    let some_are_not = reached.contains(&false);
    if some_are_not {
        let keep = (0..reached.len()).filter(|&at| reached[at]).map(|at| BlockId(at as u32));
        reorder(func, &keep.collect::<Vec<_>>());
    }
    some_are_not
}
