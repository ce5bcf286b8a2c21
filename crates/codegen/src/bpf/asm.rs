//! Assembles a module: selection, register allocation, and the layout of jumps, for each of its functions.
//!
//! Not here: how the result becomes a file (`object`), and text (`disasm`).

use super::helper;
use super::insn::{self, Callee, Cmp, Insn, Reg, SLOT, Src};
use super::mir::{self, Base, End, Function, Inst, R, Val};
use super::select::select;
use super::shield::{SPARE, Shield};
use crate::ir::{self, FuncKind, FuncRef, MapDef, MapRef, Module, Op};
use crate::regalloc::{self, Allocated, Frame, MAX_STACK};
use lang::Span;
use thiserror::Error;

/// Why a module cannot be assembled. `lang` checks the limits that a script can be told in its own terms.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AsmError {
    /// A body with too many large values at once.
    #[error(
        "this probe needs {bytes} bytes of stack, and BPF programs have {MAX_STACK}; use fewer or shorter strings and keys at once"
    )]
    Stack {
        /// Function.
        name: String,
        /// Bytes needed, by the function alone or together with its callbacks.
        bytes: u32,
        /// Its script text.
        span: Span,
    },
    /// A body of so many operations that no jump reaches over it; nobody wants to wait for their registers.
    #[error(
        "this probe's code is too long: {operations} operations, and a jump reaches over {MAX_JUMP} instructions; split the body"
    )]
    Size {
        /// Function.
        name: String,
        /// Operations, before any was found superfluous.
        operations: usize,
        /// Its script text.
        span: Span,
    },
    /// A body of tens of thousands of instructions.
    #[error(
        "this probe's code is too long: a jump over {distance} instructions does not fit; split the body"
    )]
    Length {
        /// Function.
        name: String,
        /// Instructions to jump over.
        distance: i64,
        /// Its script text.
        span: Span,
    },
}

impl AsmError {
    /// The script text that is too large.
    pub fn span(&self) -> Span {
        match self {
            AsmError::Stack { span, .. } | AsmError::Size { span, .. } | AsmError::Length { span, .. } => {
                *span
            }
        }
    }
}

/// Instructions that a jump reaches over.
const MAX_JUMP: i64 = i16::MAX as i64;

/// Operations that cannot become so few instructions.
const MAX_OPERATIONS: usize = 4 * MAX_JUMP as usize;

/// Refuses a function that is far too long before time and memory are spent on it.
pub fn check_size(func: &ir::Func) -> Result<(), AsmError> {
    let operations = func.operations();
    if operations > MAX_OPERATIONS {
        return Err(AsmError::Size { name: func.name.clone(), operations, span: func.span });
    }
    Ok(())
}

/// What an instruction refers to beyond itself; the linker fills it in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A map's address.
    Map(MapRef),
    /// A place in the value of a direct map; the immediate is the offset.
    Value(MapRef),
    /// A place in the data; the immediate is the offset.
    Data,
    /// A callback's address.
    Func(FuncRef),
    /// Call of a kernel function: index into [`Part::kfuncs`], then into [`Assembly::kfuncs`].
    Kfunc(u32),
}

/// The code of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// Symbol.
    pub name: String,
    /// ELF section; none for a callback.
    pub section: Option<String>,
    /// Number of parameters.
    pub params: u8,
    /// In order.
    pub insns: Vec<Insn>,
    /// By instruction: bytes from the start of the function; and the function's length.
    pub offsets: Vec<u32>,
    /// The instructions as the kernel reads them, but for what they refer to.
    pub bytes: Vec<u8>,
    /// By instruction: its script text.
    pub spans: Vec<Span>,
    /// Index of an instruction, and what it refers to; ascending.
    pub targets: Vec<(usize, Target)>,
    /// Bytes of stack.
    pub frame: u32,
    /// It forbids preemption while it runs.
    pub shielded: bool,
}

/// A kernel function that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kfunc {
    /// Name.
    pub name: String,
    /// Number of arguments.
    pub args: u8,
}

/// A module in machine code.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    /// Functions, in the module's order.
    pub codes: Vec<Code>,
    /// Maps.
    pub maps: Vec<MapDef>,
    /// Read-only bytes.
    pub data: Vec<u8>,
    /// Kernel functions.
    pub kfuncs: Vec<Kfunc>,
}

impl Code {
    /// Length in bytes.
    pub fn size(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Length in slots of 8 bytes, which is how the kernel counts instructions.
    pub fn slots(&self) -> usize {
        self.bytes.len() / SLOT
    }

    /// What the instruction with this index refers to.
    pub fn target(&self, index: usize) -> Option<&Target> {
        let at = self.targets.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        Some(&self.targets[at].1)
    }
}

/// A function assembled by itself.
#[derive(Clone, Debug)]
pub struct Part {
    code: Code,
    /// The kernel functions that it calls.
    kfuncs: Vec<Kfunc>,
    /// Its script text.
    span: Span,
}

/// Assembles all functions of a module.
pub fn assemble(module: &Module) -> Result<Assembly, AsmError> {
    let parts = module.funcs.iter().map(|func| part(func, module.private_stack));
    join(module, parts.collect::<Result<_, _>>()?)
}

/// Puts the functions of a module together.
pub fn join(module: &Module, parts: Vec<Part>) -> Result<Assembly, AsmError> {
    check_stack(&parts)?;
    let mut kfuncs: Vec<Kfunc> = Vec::new();
    let codes = parts.into_iter().map(|part| {
        let mut code = part.code;
        for (_, target) in &mut code.targets {
            if let Target::Kfunc(at) = target {
                *at = entered(&mut kfuncs, &part.kfuncs[*at as usize]);
            }
        }
        code
    });
    let codes = codes.collect();
    Ok(Assembly { codes, maps: module.maps.clone(), data: module.data.clone(), kfuncs })
}

/// Index of a kernel function in a list that has each once.
fn entered(kfuncs: &mut Vec<Kfunc>, kfunc: &Kfunc) -> u32 {
    let known = kfuncs.iter().position(|known| known.name == kfunc.name);
    known.unwrap_or_else(|| {
        kfuncs.push(kfunc.clone());
        kfuncs.len() - 1
    }) as u32
}

/// The kernel functions that a function calls, each once.
fn kfuncs(func: &ir::Func) -> Vec<Kfunc> {
    let mut kfuncs: Vec<Kfunc> = Vec::new();
    for inst in func.blocks.iter().flat_map(|block| &block.ops) {
        if let Op::Kfunc { name, args, .. } = &inst.op {
            entered(&mut kfuncs, &Kfunc { name: name.clone(), args: args.len() as u8 });
        }
    }
    kfuncs
}

/// Assembles a function. `private_stack` as in [`Module`].
pub fn part(func: &ir::Func, private_stack: bool) -> Result<Part, AsmError> {
    let mut kfuncs = kfuncs(func);
    let allocated = regalloc::allocate(select(func, &kfuncs));
    let (section, params) = match &func.kind {
        FuncKind::Program { section, .. } => (Some(section.clone()), 1),
        FuncKind::Callback { args } => (None, *args),
    };
    let shield = (private_stack && Shield::is_wanted(func, &allocated)).then(|| Shield::enter(&mut kfuncs));
    let mut emitter = Emitter::emit(&allocated, shield);
    let offsets = emitter.link(func)?;
    let Emitter { insns, spans, targets, .. } = emitter;
    let mut bytes = Vec::with_capacity(offsets[insns.len()] as usize);
    insns.iter().for_each(|insn| insn.encode(&mut bytes));
    let (name, frame, shielded) = (func.name.clone(), allocated.frame.size, shield.is_some());
    let code = Code { name, section, params, insns, offsets, bytes, spans, targets, frame, shielded };
    Ok(Part { code, kfuncs, span: func.span })
}

/// A program and the callbacks it runs share one stack; the kernel rounds each frame up to 32 bytes.
fn check_stack(parts: &[Part]) -> Result<(), AsmError> {
    // Calls nest 8 deep at most (MAX_CALL_FRAMES), so that the walk ends whatever refers to what.
    fn depth(parts: &[Part], at: usize, nesting: u32) -> u32 {
        let below = parts[at].code.targets.iter().filter_map(|(_, target)| match target {
            Target::Func(func) if nesting > 0 => Some(depth(parts, func.0 as usize, nesting - 1)),
            _ => None,
        });
        parts[at].code.frame.max(1).next_multiple_of(32) + below.max().unwrap_or(0)
    }
    for (at, part) in parts.iter().enumerate() {
        let bytes = part.code.frame.max(depth(parts, at, 8));
        if bytes > MAX_STACK {
            return Err(AsmError::Stack { name: part.code.name.clone(), bytes, span: part.span });
        }
    }
    Ok(())
}

/// Instructions as they are written, with jumps to blocks.
struct Emitter<'a> {
    frame: &'a Frame,
    shield: Option<Shield>,
    insns: Vec<Insn>,
    spans: Vec<Span>,
    targets: Vec<(usize, Target)>,
    /// Index of a jump, and the block it leads to.
    jumps: Vec<(usize, usize)>,
    /// By block: index of its first instruction.
    starts: Vec<Option<usize>>,
    /// No jump has led here since a branch, and nothing has been called, which is as good; see [`Emitter::meet`].
    is_unmet: bool,
    span: Span,
}

impl<'a> Emitter<'a> {
    fn emit(allocated: &'a Allocated, shield: Option<Shield>) -> Emitter<'a> {
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
        let ways = Ways::of(&ends, &order);
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
            Inst::Call { callee: mir::Callee::Helper(id), .. } => self.helper(id),
            Inst::Call { callee: mir::Callee::Kfunc(kfunc), .. } => self.kfunc(kfunc),
        }
    }

    fn helper(&mut self, id: u32) {
        if id == helper::RINGBUF_RESERVE {
            self.meet();
        }
        self.push(Insn::Call { callee: Callee::Helper, imm: id as i32 });
        self.is_unmet = false;
    }

    /// `goto +0`, which the kernel removes once it has verified the program. Where a jump leads, the verifier compares the
    /// ways that come in, and follows one of those that are alike. A search may leave its loop in any of a thousand rounds;
    /// once each way has a record of its own, none are alike to verifiers before Linux 6.3, and what is behind is followed a
    /// thousand times.
    fn meet(&mut self) {
        if self.is_unmet {
            self.push(Insn::Jump { offset: 0 });
        }
    }

    fn kfunc(&mut self, kfunc: u32) {
        self.targets.push((self.insns.len(), Target::Kfunc(kfunc)));
        // What libbpf expects of an unresolved call.
        self.push(Insn::Call { callee: Callee::Local, imm: -1 });
    }

    /// Calls a function without arguments, with `kept` put by.
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
                // A frame is far smaller than what an i16 spans, unless it is refused for its size anyway.
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

    /// Fills in the distances of jumps, in slots. Gives the offsets of the instructions and of their end, in bytes.
    fn link(&mut self, func: &ir::Func) -> Result<Vec<u32>, AsmError> {
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

/// Ends of blocks, jumps to empty blocks led on to where those jump.
fn threaded(function: &Function) -> Vec<End> {
    let follow = |mut to: usize| {
        // As many steps as blocks: a ring of empty blocks is a script's empty endless loop, and stays.
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

/// Blocks that can run, in their order; the verifier refuses others.
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

/// How control comes into blocks.
struct Ways {
    /// By block: edges that lead there.
    entries: Vec<u32>,
    /// Without loops there are few ways.
    any_loop: bool,
}

impl Ways {
    fn of(ends: &[End], order: &[usize]) -> Ways {
        let mut ways = Ways { entries: vec![0; ends.len()], any_loop: false };
        for &at in order {
            for to in ends[at].successors() {
                ways.entries[to] += 1;
                ways.any_loop |= to <= at;
            }
        }
        ways
    }

    /// Whether no jump leads to a block. The one before it ends so, and what held at its end is `unmet`.
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
