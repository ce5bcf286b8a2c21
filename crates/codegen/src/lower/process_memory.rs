//! Reads of the traced process: arguments, results, registers, memory. A failed read yields 0 and is counted.

use super::abi::{self, Piece, Pointer};
use super::body::Body;
use super::place::Place;
use super::prologue::{Entry, Pro};
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, Operand, VReg, Width};
use lang::hir::{Environment, Expr, ExprKind, Type};
use wire::CounterKind;

impl Body<'_, '_> {
    pub(super) fn machine(&self) -> &'static abi::Machine {
        abi::machine(self.cx.options.arch)
    }

    /// A field of the context. In perf event programs it is loaded as a whole word.
    fn context(&mut self, offset: i16, width: Width, signed: bool) -> VReg {
        let ctx = self.pro(Pro::Ctx);
        let whole = self.probe.attach.environment().is_some_and(Environment::has_registers);
        let width = if whole { Width::B64 } else { width };
        self.b().load(ctx, offset, width, signed)
    }

    /// `retval`
    pub(super) fn retval(&mut self, ty: &Type) -> VReg {
        let width = self.width(ty);
        self.context(self.machine().ret, width, self.signed(ty))
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
        if let Entry::Saved(saved) = &self.entry {
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
            ExprKind::Arg(n) => (self.machine().arg(n), 0),
            _ => unreachable!("not an argument: {expr:?}"),
        }
    }

    fn read_piece(&mut self, piece: Piece, offset: u32, ty: &Type) -> VReg {
        let width = self.width(ty);
        match piece {
            Piece::Reg(reg) => self.context(reg + offset as i16, width, self.signed(ty)),
            Piece::Stack(at) => {
                let address = self.stack_address(at + offset);
                self.read_user(address, width, self.signed(ty))
            }
            Piece::Behind(pointer, at) => {
                let base = match pointer {
                    Pointer::Reg(reg) => self.context(reg, Width::B64, false),
                    Pointer::Stack(place) => {
                        let address = self.stack_address(place);
                        self.read_user(address, Width::B64, false)
                    }
                };
                let address = self.b().bin(Bin::Add, base, i64::from(at + offset));
                self.read_user(address, width, self.signed(ty))
            }
            Piece::Unreadable => unreachable!("the checker lets nobody ask for it"),
        }
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
    pub(super) fn read_into(&mut self, address: impl Into<Operand>, to: Place, bytes: u32, in_kernel: bool) {
        let to = self.pointer(to);
        let args = [to.into(), i64::from(bytes).into(), address.into()];
        let failed = self.b().call(reader(in_kernel), &args);
        self.count_if(Cmp::Ne, failed, 0, CounterKind::UserRead);
    }

    /// A scalar of user memory; the helper zeroes the destination if it fails.
    pub(super) fn read_user(&mut self, address: impl Into<Operand>, width: Width, signed: bool) -> VReg {
        self.read_memory(address, width, signed, false)
    }

    /// A scalar in memory of the process or of the kernel.
    pub(super) fn read_memory(
        &mut self,
        address: impl Into<Operand>,
        width: Width,
        signed: bool,
        in_kernel: bool,
    ) -> VReg {
        let mark = self.mark();
        let place = self.temp(8);
        let to = self.pointer(place);
        let args = [to.into(), i64::from(width.bytes()).into(), address.into()];
        let failed = self.b().call(reader(in_kernel), &args);
        self.count_if(Cmp::Ne, failed, 0, CounterKind::UserRead);
        let value = self.load(place, width, signed);
        self.release(mark);
        value
    }
}

/// The helper that reads memory of the process or of the kernel.
pub(super) fn reader(in_kernel: bool) -> Helper {
    if in_kernel { Helper::ProbeReadKernel } else { Helper::ProbeReadUser }
}

/// The helper that reads text of the process or of the kernel.
pub(super) fn text_reader(in_kernel: bool) -> Helper {
    if in_kernel { Helper::ProbeReadKernelStr } else { Helper::ProbeReadUserStr }
}
