//! Builds hand-written IR for tests, one line per operation.

#![allow(dead_code, reason = "each test uses some")]

use codegen::bpf::helper::Helper;
use codegen::ir::*;
use lang::Span;

pub(crate) const ARRAY: u32 = 2;
pub(crate) const HASH: u32 = 1;
pub(crate) const PERCPU_ARRAY: u32 = 6;
pub(crate) const RINGBUF: u32 = 27;

pub(crate) fn map(name: &str, kind: u32, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef { name: name.into(), kind, key_size, value_size, max_entries, flags: 0, direct: false }
}

pub(crate) fn program(section: &str) -> FuncKind {
    let info =
        ProgramInfo { clause: 0, attach: wire::manifest::Attach::Event(wire::trigger::Trigger::Begin) };
    FuncKind::Program { section: section.into(), info }
}

/// Builder of a function. Operations go into the last block, with the span that was set last.
pub(crate) struct Build(pub Func, pub Span);

impl Build {
    pub(crate) fn new(name: &str, kind: FuncKind) -> Build {
        let span = Span::default();
        let func = Func { name: name.into(), kind, blocks: Vec::new(), vregs: 0, slots: Vec::new(), span };
        let mut build = Build(func, span);
        build.block();
        build
    }

    /// Begins a block.
    pub(crate) fn block(&mut self) -> BlockId {
        let term = Term::Return(Operand::Const(0));
        self.0.blocks.push(Block { ops: Vec::new(), term, span: self.1 });
        BlockId(self.0.blocks.len() as u32 - 1)
    }

    pub(crate) fn term(&mut self, term: Term) {
        let block = self.0.blocks.last_mut().unwrap();
        (block.term, block.span) = (term, self.1);
    }

    pub(crate) fn op(&mut self, op: Op) {
        let inst = Inst { op, span: self.1 };
        self.0.blocks.last_mut().unwrap().ops.push(inst);
    }

    /// An operation with a fresh destination register.
    pub(crate) fn def(&mut self, op: impl FnOnce(VReg) -> Op) -> VReg {
        let dst = self.0.vreg();
        self.op(op(dst));
        dst
    }

    pub(crate) fn ctx(&mut self) -> VReg {
        self.def(|dst| Op::Ctx { dst })
    }

    pub(crate) fn param(&mut self, index: u8) -> VReg {
        self.def(|dst| Op::Param { dst, index })
    }

    pub(crate) fn map(&mut self, map: u32) -> VReg {
        self.def(|dst| Op::MapAddr { dst, map: MapRef(map) })
    }

    pub(crate) fn slot(&mut self, size: u32) -> VReg {
        let slot = self.0.slot(size, 8);
        self.def(|dst| Op::SlotAddr { dst, slot })
    }

    pub(crate) fn store(&mut self, base: VReg, offset: i16, width: Width, src: impl Into<Operand>) {
        self.op(Op::Store { base, offset, width, src: src.into() });
    }

    pub(crate) fn load(&mut self, base: VReg, offset: i16, width: Width) -> VReg {
        self.def(|dst| Op::Load { dst, base, offset, width, signed: false })
    }

    pub(crate) fn bin(&mut self, op: Bin, lhs: impl Into<Operand>, rhs: impl Into<Operand>) -> VReg {
        let (lhs, rhs) = (lhs.into(), rhs.into());
        self.def(|dst| Op::Bin { op, dst, lhs, rhs })
    }

    pub(crate) fn call(&mut self, helper: Helper, args: &[Operand]) -> VReg {
        let args = args.to_vec();
        self.def(|dst| Op::Call { dst: Some(dst), helper, args })
    }

    pub(crate) fn kfunc(&mut self, name: &str) -> VReg {
        self.def(|dst| Op::Kfunc { dst: Some(dst), name: name.into(), args: vec![] })
    }

    /// `branch value == 0, then, otherwise`
    pub(crate) fn if_zero(&mut self, value: VReg, then: u32, otherwise: u32) {
        let (then, otherwise) = (BlockId(then), BlockId(otherwise));
        self.term(Term::Branch { cmp: Cmp::Eq, lhs: value, rhs: Operand::Const(0), then, otherwise });
    }
}

/// `@ = count()`
pub(crate) fn count(section: &str, key_size: u32) -> Module {
    let mut b = Build::new("probe0", program(section));
    let (map_addr, key) = (b.map(0), b.slot(key_size));
    b.store(key, 0, Width::B32, 0);
    let cell = b.call(Helper::MapLookupElem, &[map_addr.into(), key.into()]);
    b.if_zero(cell, 2, 1);
    b.block();
    let one = b.def(|dst| Op::Mov { dst, src: Operand::Const(1) });
    b.op(Op::Atomic { op: AtomicOp::Add, base: cell, offset: 0, width: Width::B64, src: one, fetch: None });
    b.term(Term::Jump(BlockId(2)));
    b.block();
    Module { funcs: vec![b.0], maps: vec![map("at_", PERCPU_ARRAY, 4, 8, 1)], ..Module::default() }
}

/// `@[func] = count()`
pub(crate) fn count_by_func(section: &str) -> Module {
    let mut b = Build::new("probe0", program(section));
    let ctx = b.ctx();
    let cookie = b.call(Helper::GetAttachCookie, &[ctx.into()]);
    let (map_addr, key) = (b.map(0), b.slot(4));
    b.store(key, 0, Width::B32, cookie);
    let cell = b.call(Helper::MapLookupElem, &[map_addr.into(), key.into()]);
    b.if_zero(cell, 2, 1);
    b.block();
    let old = b.load(cell, 0, Width::B64);
    let new = b.bin(Bin::Add, old, 1);
    b.store(cell, 0, Width::B64, new);
    b.term(Term::Jump(BlockId(2)));
    b.block();
    Module { funcs: vec![b.0], maps: vec![map("at_", PERCPU_ARRAY, 4, 8, 16)], ..Module::default() }
}
