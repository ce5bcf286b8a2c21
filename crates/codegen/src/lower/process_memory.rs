//! Reads of the traced process: arguments, results, registers, memory. A failed read yields 0 and is counted.

use super::abi::{self, Piece, Pointer};
use super::body::Body;
use super::entry_return::is_entry_value;
use super::operations::Operations;
use super::place::Place;
use super::prologue::{Entry, Pro};
use super::read_memory::{BYTES, MemoryReads};
use super::space::Space;
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, Operand, VReg, Width};
use lang::hir::{Environment, Expr, ExprKind, Hook, Type};
use wire::CounterKind;

impl Body<'_, '_> {
    pub(super) fn machine(&self) -> &'static abi::Machine {
        abi::machine(self.cx.options.arch)
    }

    /// A field of the context. In perf event programs it is loaded as a whole word.
    pub(super) fn context(&mut self, offset: i16, width: Width, signed: bool) -> VReg {
        if self.probe.attach.hook() == Some(Hook::Trampoline) {
            return self.passed_word(Some(offset), width, signed);
        }
        let ctx = self.pro(Pro::Ctx);
        let whole = self.probe.attach.environment().is_some_and(Environment::has_registers);
        let width = if whole { Width::B64 } else { width };
        self.b().load(ctx, offset, width, signed)
    }

    /// A part of the arguments at a byte offset or, without it, the result of a function with a trampoline. A load from the context would have the type of
    /// the function's declaration, and the verifier forbids arithmetic on pointers.
    fn passed_word(&mut self, offset: Option<i16>, width: Width, signed: bool) -> VReg {
        let mark = self.mark();
        let place = self.temp(8);
        self.store(place, Width::B64, 0);
        let (ctx, to) = (self.pro(Pro::Ctx), self.pointer(place));
        match offset {
            Some(offset) => {
                let args = [ctx.into(), i64::from(offset / 8).into(), to.into()];
                self.b().call_void(Helper::GetFuncArg, &args)
            }
            None => self.b().call_void(Helper::GetFuncRet, &[ctx.into(), to.into()]),
        }
        // A struct of two members is in one word.
        let within = offset.map_or(0, |offset| offset as u32 % 8);
        let value = self.load(place.plus(within), width, signed);
        self.release(mark);
        value
    }

    /// The address of the context as a number. The verifier treats a value loaded from memory as a number, and
    /// forbids arithmetic on the pointer itself.
    pub(super) fn context_address(&mut self) -> VReg {
        let [pointer, number] = std::array::from_fn(|_| self.temp(8));
        let ctx = self.pro(Pro::Ctx);
        self.store(pointer, Width::B64, ctx);
        let (to, from) = (self.pointer(number), self.pointer(pointer));
        self.b().call_void(Helper::ProbeReadKernel, &[to.into(), 8.into(), from.into()]);
        self.load(number, Width::B64, false)
    }

    /// `retval`
    pub(super) fn retval(&mut self, ty: &Type) -> VReg {
        let width = self.width(ty);
        if self.probe.attach.hook() == Some(Hook::Trampoline) {
            let signed = self.signed(ty);
            return self.passed_word(None, width, signed);
        }
        self.context(self.machine().ret, width, self.signed(ty))
    }

    /// The low eight bytes of a vector register.
    pub(super) fn vector(&mut self, number: u32) -> VReg {
        let ctx = self.pro(Pro::Ctx);
        self.b().kfunc(wire::features::VECTOR, &[ctx.into(), i64::from(number).into()])
    }

    /// `retval.b`
    pub(super) fn retval_field(&mut self, offset: u32, ty: &Type) -> VReg {
        let ret =
            self.probe.signature.as_ref().map(|signature| &signature.ret).expect("a described function");
        let places = abi::result_places(self.cx.options.arch, ret, &self.cx.program.structs);
        self.read_piece(places[offset as usize / 8], offset % 8, ty)
    }

    /// `reg("sp")`: the stack pointer is the one at the entry of the function.
    pub(super) fn register(&mut self, name: &str) -> VReg {
        let offset = self.machine().register(name).expect("checked: a register of this machine");
        if offset == self.machine().sp { self.entry_sp() } else { self.context(offset, Width::B64, false) }
    }

    /// The stack pointer at entry.
    pub(super) fn entry_sp(&mut self) -> VReg {
        let sp = self.context(self.machine().sp, Width::B64, false);
        let shift = self.shift();
        if shift == 0 { sp } else { self.b().bin(Bin::Add, sp, i64::from(shift)) }
    }

    /// `args.x`, `args.grid.x`, `arg0`, and in a return probe the start time for `duration`: a value of the call
    /// at its entry.
    pub(super) fn argument(&mut self, expr: &Expr) -> VReg {
        if let Entry::Saved(saved) = &self.entry
            && is_entry_value(expr, self.probe.attach.hook())
        {
            let known = saved.iter().position(|e| self.is_saved_as(expr, e));
            return self.pro(Pro::Entry(known.expect("all that the body uses was saved") as u32));
        }
        let (piece, offset) = self.piece(expr);
        self.read_piece(piece, offset, &expr.ty)
    }

    /// Whether `expr` is the value that was saved, in the current cases.
    fn is_saved_as(&self, expr: &Expr, saved: &Expr) -> bool {
        let is = |e: &Expr| e.kind == expr.kind && e.ty == expr.ty;
        match &saved.kind {
            ExprKind::ByCase(arms) => {
                arms.iter().any(|arm| arm.cases & self.cases == self.cases && is(&arm.value))
            }
            _ => is(saved),
        }
    }

    /// Location of an argument, and the offset in it in bytes.
    fn piece(&self, expr: &Expr) -> (Piece, u32) {
        match expr.kind {
            ExprKind::Param(param) => (self.places_of(param)[0], 0),
            ExprKind::ParamField { param, offset } => {
                (self.places_of(param)[offset as usize / 8], offset % 8)
            }
            ExprKind::Arg(n) => (self.numbered(n), 0),
            _ => unreachable!("not an argument: {expr:?}"),
        }
    }

    /// Location of `argN`.
    fn numbered(&self, n: u32) -> Piece {
        match self.probe.attach.hook() {
            Some(Hook::Trampoline) => abi::passed(n),
            _ => self.machine().arg(n),
        }
    }

    fn read_piece(&mut self, piece: Piece, offset: u32, ty: &Type) -> VReg {
        let width = self.width(ty);
        match piece {
            Piece::Reg(reg) => {
                let value = self.context(reg + offset as i16, width, self.signed(ty));
                match self.probe.attach.environment() {
                    Some(Environment::Item) if width == Width::B64 => self.untracked(value),
                    _ => value,
                }
            }
            Piece::Stack(at) => {
                let address = self.stack_address(at + offset);
                let space = self.stack_space();
                self.read_memory(address, width, self.signed(ty), space)
            }
            Piece::Behind(pointer, at) => {
                let base = match pointer {
                    Pointer::Reg(reg) => self.context(reg, Width::B64, false),
                    Pointer::Stack(place) => {
                        let address = self.stack_address(place);
                        let space = self.stack_space();
                        self.read_memory(address, Width::B64, false, space)
                    }
                };
                let address = self.b().bin(Bin::Add, base, i64::from(at + offset));
                let space = self.stack_space();
                self.read_memory(address, width, self.signed(ty), space)
            }
            Piece::Vector(number) => {
                let value = self.vector(number);
                self.b().extend(value, width, false)
            }
            Piece::Unreadable => unreachable!("the checker lets nobody ask for it"),
        }
    }

    /// The memory of the stack with arguments.
    fn stack_space(&self) -> Space {
        if self.is_in_kernel() { Space::Kernel } else { Space::User }
    }

    fn stack_address(&mut self, at: u32) -> VReg {
        let sp = self.entry_sp();
        let offset = i64::from(self.machine().stack_args + at);
        self.b().bin(Bin::Add, sp, offset)
    }

    /// Text in the record of a tracepoint. A located field (`__data_loc`) holds the length and offset of the text.
    pub(super) fn record_bytes(&mut self, param: u32, located: bool, ty: &Type, to: Place) {
        let size = self.cx.size(ty);
        let Piece::Reg(offset) = self.places_of(param)[0] else { unreachable!("fields are in the record") };
        let ctx = self.pro(Pro::Ctx);
        let offset = match located {
            // The length is in the upper half, the offset in the lower.
            true => self.b().load(ctx, offset, Width::B16, false).into(),
            false => Operand::from(i64::from(offset)),
        };
        let address = self.b().bin(Bin::Add, ctx, offset);
        self.zero(to, size);
        let at = self.pointer(to);
        let args = [at.into(), i64::from(size).into(), address.into()];
        let read = match ty {
            Type::Str(_) => Helper::ProbeReadKernelStr,
            _ => Helper::ProbeReadKernel,
        };
        self.b().call_void(read, &args);
    }

    /// Reads a struct or array from memory; the helper zeroes the destination if it fails.
    pub(super) fn read_into(&mut self, address: impl Into<Operand>, to: Place, bytes: u32, space: Space) {
        let to = self.pointer(to);
        let failed = self.read_bytes(BYTES, space, to, i64::from(bytes).into(), address.into());
        self.count_if(Cmp::Ne, failed, 0, CounterKind::UserRead);
    }

    /// A scalar in memory; the helper zeroes the destination if it fails.
    pub(super) fn read_memory(
        &mut self,
        address: impl Into<Operand>,
        width: Width,
        signed: bool,
        space: Space,
    ) -> VReg {
        let mark = self.mark();
        let place = self.temp(8);
        let to = self.pointer(place);
        let failed = self.read_bytes(BYTES, space, to, i64::from(width.bytes()).into(), address.into());
        self.count_if(Cmp::Ne, failed, 0, CounterKind::UserRead);
        let value = self.load(place, width, signed);
        self.release(mark);
        value
    }
}
