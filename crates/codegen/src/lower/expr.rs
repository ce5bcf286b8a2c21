//! Expressions: scalars are lowered to registers, strings and tuples to memory.

use super::arithmetic::Arithmetic;
use super::body::Body;
use super::builtin::Builtins;
use super::operations::Operations;
use super::place::{Home, Place, chunks_of_both, is_scalar};
use super::prologue::Pro;
use super::string::Strings;
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, Operand, VReg, Width};
use lang::hir::{BinaryOp, Expr, ExprKind, Type, VarId, Yields};
use wire::types::StackMode;
use wire::{CounterKind, layout};

/// Flag of bpf_get_stackid: the user stack.
const BPF_F_USER_STACK: i64 = 1 << 8;

/// Result of the kernel's stack helpers if there is no stack: -EFAULT.
const NO_FRAMES: i64 = -14;

impl Body<'_, '_> {
    /// The value of a scalar expression.
    pub(super) fn scalar(&mut self, expr: &Expr) -> Operand {
        self.at(expr.span, |body| body.scalar_here(expr))
    }

    fn scalar_here(&mut self, expr: &Expr) -> Operand {
        let ty = &expr.ty;
        match &expr.kind {
            ExprKind::Int(value) => self.constant(*value, ty),
            ExprKind::Var(var) => self.variable(*var),
            ExprKind::VarAddress(var) => self.address_of_variable(*var).into(),
            ExprKind::Param(_) | ExprKind::ParamField { .. } | ExprKind::Arg(_) => self.argument(expr).into(),
            ExprKind::Reg(name) => self.register(name).into(),
            ExprKind::Retval => self.retval(ty).into(),
            ExprKind::RetvalField { offset } => self.retval_field(*offset, ty).into(),
            ExprKind::Duration => self.pro(Pro::Duration).into(),
            ExprKind::Started => self.start_of_call(expr).into(),
            ExprKind::Around(around) => self.pro(Pro::Around(*around)).into(),
            ExprKind::Name(kind) => self.name(*kind),
            ExprKind::NameIn { kind, ids } => self.name_in(*kind, ids),
            ExprKind::Stack => self.stack(ty).into(),
            ExprKind::Neg(e) => self.negated(e).into(),
            ExprKind::BitNot(e) => self.inverted(e),
            ExprKind::Not(e) => {
                let value = self.scalar(e);
                self.b().compare(Cmp::Eq, value, 0).into()
            }
            ExprKind::Binary { op: BinaryOp::And | BinaryOp::Or, .. } => self.truth(expr).into(),
            ExprKind::StrEq { .. } | ExprKind::StrContains { .. } => self.truth(expr).into(),
            ExprKind::Binary { op, lhs, rhs } => {
                let (left, right) = self.operands(lhs, rhs);
                let value = self.arithmetic(*op, left, right, self.signed(&lhs.ty));
                self.normalise(value, ty)
            }
            ExprKind::Cast(e) if !is_scalar(&e.ty) => {
                let place = self.place(e);
                self.load_scalar(place, ty).into()
            }
            ExprKind::Cast(e) => {
                let value = self.scalar(e);
                self.convert(value, &e.ty, ty)
            }
            ExprKind::Ternary { cond, then, otherwise } => self.choice(cond, then, otherwise).into(),
            ExprKind::ByCase(arms) => self.scalar_by_case(arms).into(),
            ExprKind::Block { body, value } => {
                self.statements(body);
                self.scalar(value)
            }
            ExprKind::Kernel(address) => self.scalar(address),
            ExprKind::Load { base, offset } => self.dereference(base, *offset, ty).into(),
            ExprKind::StrIndex { base, index } => self.string_index(base, index).into(),
            ExprKind::TupleGet { base, index } => {
                let place = self.part(base, *index);
                self.load_scalar(place, ty).into()
            }
            ExprKind::Lookup(e) => self.scalar(e),
            ExprKind::Builtin(id, args) => self.builtin(*id, args),
            ExprKind::StackLen { user, limit, mode } => self.stack_length(*user, *limit, *mode).into(),
            ExprKind::Member { base, offset } => {
                let place = self.place(base).plus(*offset);
                self.load_scalar(place, ty).into()
            }
            ExprKind::Element { base, index } => self.element_of(base, index, ty).into(),
            ExprKind::MapGet { map, key } => self.map_get(*map, key, ty).into(),
            ExprKind::HasKey { map, key } => self.has_key(*map, key).into(),
            ExprKind::Len(map) => self.map_len(*map).into(),
            ExprKind::Delete { map, key } => self.delete(*map, key).into(),
            ExprKind::UpdateMap { map, key, op, value, yields } => {
                self.update_map(*map, key, *op, value, Some(*yields)).expect("the value is requested").into()
            }
            ExprKind::UpdateVar { var, op, value, yields } => self.update_var(*var, *op, value, *yields),
            ExprKind::Zero => 0.into(),
            ExprKind::Str(_)
            | ExprKind::RecordBytes { .. }
            | ExprKind::Tuple(_)
            | ExprKind::ReadStr { .. }
            | ExprKind::ReadBuf { .. } => {
                unreachable!("not a scalar: {expr:?}")
            }
        }
    }

    fn variable(&mut self, var: VarId) -> Operand {
        match self.homes[var.0 as usize] {
            Home::Reg(reg) => reg.into(),
            // A variable in memory holds the extended value.
            Home::Memory(place) => self.load(place, Width::B64, false).into(),
        }
    }

    /// `&$x`, as a number: the verifier permits little arithmetic with addresses, and none that it cannot bound.
    fn address_of_variable(&mut self, var: VarId) -> VReg {
        let Home::Memory(place) = self.homes[var.0 as usize] else {
            unreachable!("variables with addresses are in memory")
        };
        let address = self.pointer(place);
        self.untracked(address)
    }

    /// An address as a number to the verifier.
    pub(super) fn untracked(&mut self, address: VReg) -> VReg {
        let temp = self.scratch_temp(8);
        self.store(temp, Width::B64, address);
        self.load(temp, Width::B64, false)
    }

    /// `$x = value`
    pub(super) fn set_variable(&mut self, var: VarId, value: &Expr) {
        match self.homes[var.0 as usize] {
            Home::Memory(place) if !is_scalar(&value.ty) => self.assign(var, place, value),
            _ => {
                let value = self.scalar(value);
                self.set_scalar_variable(var, value);
            }
        }
    }

    /// Stores an aggregate in a variable that its value may be computed from. The address of memory is computed before it is read.
    fn assign(&mut self, var: VarId, place: Place, value: &Expr) {
        let is_read = super::walk::any(
            value,
            &mut |e| matches!(e.kind, ExprKind::Var(read) | ExprKind::VarAddress(read) if read == var),
        );
        if !is_read || matches!(value.kind, ExprKind::Load { .. }) {
            return self.store_value(value, place);
        }
        let size = self.cx.size(&value.ty);
        let temp = self.temp(size);
        self.store_value(value, temp);
        self.copy(place, temp, size);
    }

    /// `$x = value` for a scalar that has been evaluated.
    pub(super) fn set_scalar_variable(&mut self, var: VarId, value: Operand) {
        match self.homes[var.0 as usize] {
            Home::Reg(reg) => self.b().set(reg, value),
            Home::Memory(place) => self.store(place, Width::B64, value),
        }
    }

    fn update_var(&mut self, var: VarId, op: BinaryOp, value: &Expr, yields: Yields) -> Operand {
        let right = self.scalar(value);
        let old = self.variable(var);
        let old: Operand = self.b().copy(old).into();
        let ty = self.probe.vars[var.0 as usize].ty.clone();
        let new = self.arithmetic(op, old, right, self.signed(&ty));
        let new = self.normalise(new, &ty);
        self.set_scalar_variable(var, new);
        match yields {
            Yields::Old => old,
            Yields::New => self.b().copy(new).into(),
        }
    }

    fn negated(&mut self, e: &Expr) -> VReg {
        let value = self.scalar(e);
        let reg = self.b().reg(value);
        self.b().neg(reg)
    }

    fn inverted(&mut self, e: &Expr) -> Operand {
        let value = self.scalar(e);
        let value = self.b().bin(Bin::Xor, value, -1);
        self.normalise(value.into(), &e.ty)
    }

    fn choice(&mut self, cond: &Expr, then: &Expr, otherwise: &Expr) -> VReg {
        let result = self.b().vreg();
        self.branches(cond, |body, yes| {
            let value = body.scalar(if yes { then } else { otherwise });
            body.b().set(result, value);
        });
        result
    }

    /// Runs `f` for both outcomes of a condition.
    fn branches(&mut self, cond: &Expr, mut f: impl FnMut(&mut Self, bool)) {
        let [yes, no, after] = std::array::from_fn(|_| self.b().block());
        self.cond(cond, yes, no);
        for (block, outcome) in [(yes, true), (no, false)] {
            self.b().switch_to(block);
            f(self, outcome);
            self.b().jump(after);
        }
        self.b().switch_to(after);
    }

    /// `*p`, `p->f`
    fn dereference(&mut self, base: &Expr, offset: i64, ty: &Type) -> VReg {
        let address = self.address(base, offset);
        let width = self.width(ty);
        let space = self.space(base);
        self.read_memory(address, width, self.signed(ty), space)
    }

    fn address(&mut self, base: &Expr, offset: i64) -> Operand {
        let base = self.scalar(base);
        if offset == 0 { base } else { self.b().bin(Bin::Add, base, offset).into() }
    }

    /// A word of the control cell, which the runtime writes.
    pub(super) fn control_word(&mut self, offset: u32) -> VReg {
        let cell = self.control_cell();
        self.b().load(cell, offset as i16, Width::B64, false)
    }

    /// The stack id, combined with `tgid << 32` for a user stack; the id is all ones if there is no stack.
    fn stack(&mut self, ty: &Type) -> VReg {
        let Type::Stack { user, limit, mode } = ty else { unreachable!("a stack has a stack's type") };
        if self.cx.walks(*user) {
            let id = self.walked_stack(*limit, *mode);
            return self.with_tgid(id);
        }
        if mode.is_python() {
            let none = self.b().copy(i64::from(u32::MAX));
            return self.with_tgid(none);
        }
        let map = self.cx.stack_map_ref(*user, *limit);
        let ctx = self.pro(Pro::Ctx);
        let map = self.b().map_addr(map);
        let flags = if *user { BPF_F_USER_STACK } else { 0 };
        let id = self.b().call(Helper::GetStackid, &[ctx.into(), map.into(), flags.into()]);
        self.or_without_stack(id, i64::from(u32::MAX));
        // A kernel stack has the same key in all processes.
        if *user { self.with_tgid(id) } else { id }
    }

    /// Handles a failed stack helper. Without frames, as for the kernel stack in user mode, nothing is lost. Other
    /// failures are counted.
    fn or_without_stack(&mut self, result: VReg, none: i64) {
        let [lost, without] = std::array::from_fn(|_| self.b().cold_block());
        let (checked, found) = (self.b().cold_block(), self.b().block());
        self.b().branch(Cmp::Slt, result, 0, checked, found);
        self.b().switch_to(checked);
        self.b().branch(Cmp::Eq, result, NO_FRAMES, without, lost);
        self.b().switch_to(lost);
        self.count(CounterKind::LostStack);
        self.b().fall_into(without);
        self.b().set(result, none);
        self.b().fall_into(found);
    }

    /// `len(ustack)`: the kernel returns the number of bytes of the addresses.
    fn stack_length(&mut self, user: bool, limit: u32, mode: StackMode) -> VReg {
        if self.cx.walks(user) {
            return self.walked_length(limit, mode);
        }
        if mode.is_python() {
            return self.b().copy(0);
        }
        let place = self.temp(8 * limit);
        // In raw tracepoint programs, kernels such as 6.1 refuse uninitialised memory here.
        self.zero(place, 8 * limit);
        let ctx = self.pro(Pro::Ctx);
        let at = self.pointer(place);
        let flags = if user { BPF_F_USER_STACK } else { 0 };
        let args = [ctx.into(), at.into(), i64::from(8 * limit).into(), flags.into()];
        let bytes = self.b().call(Helper::GetStack, &args);
        self.or_without_stack(bytes, 0);
        self.b().bin(Bin::Shr, bytes, 3)
    }

    fn with_tgid(&mut self, id: VReg) -> VReg {
        let thread = self.pro(Pro::Thread);
        let b = self.b();
        let tgid = b.bin(Bin::Shr, thread, 32);
        let high = b.bin(Bin::Shl, tgid, 32);
        b.bin(Bin::Or, id, high)
    }

    /// Stores a value in its memory format, padding included.
    pub(super) fn store_value(&mut self, expr: &Expr, to: Place) {
        if is_scalar(&expr.ty) {
            let value = self.scalar(expr);
            return self.store_scalar(to, &expr.ty, value);
        }
        self.at(expr.span, |body| body.store_aggregate(expr, to));
    }

    fn store_aggregate(&mut self, expr: &Expr, to: Place) {
        let size = self.cx.size(&expr.ty);
        match &expr.kind {
            ExprKind::Str(text) => self.store_bytes(to, text, size),
            ExprKind::Zero => self.zero(to, size),
            ExprKind::RecordBytes { param, located } => self.record_bytes(*param, *located, &expr.ty, to),
            ExprKind::ReadStr { base, limit } => self.read_string(base, limit.as_deref(), to, size),
            ExprKind::Builtin(id, args) => self.store_builtin(*id, args, to, size),
            ExprKind::ReadBuf { base, len } => self.read_buffer(base, len, to, &expr.ty),
            ExprKind::Load { base, offset } => {
                let address = self.address(base, *offset);
                let space = self.space(base);
                self.read_into(address, to, size, space);
            }
            ExprKind::Tuple(parts) => self.store_tuple(parts, to),
            ExprKind::Cast(e) => self.store_cast(e, &expr.ty, to),
            ExprKind::Ternary { cond, then, otherwise } => self.branches(cond, |body, yes| {
                body.store_value(if yes { then } else { otherwise }, to);
            }),
            ExprKind::ByCase(arms) => self.store_by_case(arms, to),
            ExprKind::MapGet { map, key } => self.map_get_into(*map, key, to),
            ExprKind::Block { body, value } => {
                self.statements(body);
                self.store_value(value, to);
            }
            _ => {
                let from = self.place(expr);
                self.copy(to, from, size);
            }
        }
    }

    /// Stores the parts of a tuple or key, and zeroes the padding.
    pub(super) fn store_tuple(&mut self, parts: &[Expr], to: Place) {
        let types = self.cx.wire_types(parts.iter().map(|part| &part.ty));
        let offsets = layout::tuple(&types);
        for (at, len) in offsets.padding(&types) {
            self.zero(to.plus(at), len);
        }
        for (part, offset) in parts.iter().zip(offsets.offsets) {
            self.store_value(part, to.plus(offset));
        }
    }

    /// Converts a string to another capacity, or a tuple part by part.
    fn store_cast(&mut self, from: &Expr, ty: &Type, to: Place) {
        if is_scalar(&from.ty) {
            // `(uint8[8])x`: the array has the bytes of the number.
            let value = self.scalar(from);
            return self.store_scalar(to, &from.ty, value);
        }
        let source = self.place(from);
        self.convert_memory(source, &from.ty, to, ty);
    }

    fn convert_memory(&mut self, from: Place, old: &Type, to: Place, new: &Type) {
        match (old, new) {
            (Type::Str(had), Type::Str(has)) => self.convert_string(from, *had, to, *has),
            (Type::Array(..), Type::Buf(capacity)) => {
                self.store(to, Width::B32, i64::from(*capacity));
                self.zero(to.plus(4 + capacity), capacity.next_multiple_of(4) - capacity);
                self.copy(to.plus(4), from, *capacity);
            }
            (Type::Str(had), Type::Buf(capacity)) => {
                let bytes = (*had).min(*capacity);
                self.store(to, Width::B32, i64::from(*capacity));
                self.copy(to.plus(4), from, bytes);
                self.zero(to.plus(4 + bytes), capacity.next_multiple_of(4) - bytes);
            }
            (Type::Str(had), Type::Array(_, count)) => {
                let bytes = (*had).min(*count);
                self.copy(to, from, bytes);
                self.zero(to.plus(bytes), count - bytes);
            }
            (Type::Buf(had), Type::Buf(has)) => {
                let (old, new) = (had.next_multiple_of(4), has.next_multiple_of(4));
                self.copy(to, from, 4 + old.min(new));
                self.zero(to.plus(4 + old.min(new)), new - old.min(new));
            }
            (Type::Array(_, count), Type::Str(capacity)) => self.text_of_chars(from, *count, to, *capacity),
            (Type::Tuple(olds), Type::Tuple(news)) | (Type::Either(olds), Type::Either(news)) => {
                self.convert_tuple(from, olds, to, news, |at| at);
            }
            (Type::Record(names, olds), Type::Record(new_names, news)) => {
                let place = |at: usize| names.iter().position(|name| *name == new_names[at]);
                self.convert_tuple(from, olds, to, news, |at| {
                    place(at).expect("records of the same members")
                });
            }
            _ if is_scalar(old) => {
                let value = self.load_scalar(from, old).into();
                let value = self.convert(value, old, new);
                self.store_scalar(to, new, value);
            }
            _ => {
                let size = self.cx.size(old);
                self.copy(to, from, size);
            }
        }
    }

    /// Converts a char array to a string, up to its NUL.
    fn text_of_chars(&mut self, from: Place, count: u32, to: Place, capacity: u32) {
        self.zero(to, capacity);
        let (to, from) = (self.pointer(to), self.pointer(from));
        let bytes = i64::from(capacity.min(count + 1));
        self.b().call_void(Helper::ProbeReadKernelStr, &[to.into(), bytes.into(), from.into()]);
    }

    /// Converts a tuple; `place(i)` is the index of the old part that becomes part `i`.
    fn convert_tuple(
        &mut self,
        from: Place,
        olds: &[Type],
        to: Place,
        news: &[Type],
        place: impl Fn(usize) -> usize,
    ) {
        let had = layout::tuple(&self.cx.wire_types(olds));
        let types = self.cx.wire_types(news);
        let has = layout::tuple(&types);
        for (at, len) in has.padding(&types) {
            self.zero(to.plus(at), len);
        }
        for (at, new) in news.iter().enumerate() {
            let old = place(at);
            self.convert_memory(from.plus(had.offsets[old]), &olds[old], to.plus(has.offsets[at]), new);
        }
    }

    fn convert_string(&mut self, from: Place, had: u32, to: Place, has: u32) {
        self.copy(to, from, had.min(has));
        if has < had {
            self.store(to.plus(has - 1), Width::B8, 0);
        } else {
            self.zero(to.plus(had), has - had);
        }
    }

    /// Location of an aggregate value, which may be a temporary.
    pub(super) fn place(&mut self, expr: &Expr) -> Place {
        match &expr.kind {
            ExprKind::Var(var) => match self.homes[var.0 as usize] {
                Home::Memory(place) => place,
                Home::Reg(_) => unreachable!("a scalar has no place"),
            },
            ExprKind::TupleGet { base, index } => self.part(base, *index),
            ExprKind::Member { base, offset } => self.place(base).plus(*offset),
            _ => {
                let size = self.cx.size(&expr.ty);
                let place = self.temp(size);
                self.store_value(expr, place);
                place
            }
        }
    }

    /// Location of a part of a tuple.
    fn part(&mut self, tuple: &Expr, index: u32) -> Place {
        let (Type::Tuple(parts) | Type::Record(_, parts)) = &tuple.ty else {
            unreachable!("parts are of tuples")
        };
        let offset = layout::tuple(&self.cx.wire_types(&**parts)).offsets[index as usize];
        self.place(tuple).plus(offset)
    }

    /// `"abc"[i]`: 0 if out of bounds.
    fn string_index(&mut self, base: &Expr, index: &Expr) -> VReg {
        let capacity = self.cx.size(&base.ty);
        let place = self.place(base);
        let index = self.scalar(index);
        let index = self.b().reg(index);
        let index = self.b().opaque(index);
        let result = self.b().copy(0);
        let (inside, after) = (self.b().block(), self.b().block());
        self.b().branch(Cmp::Ult, index, i64::from(capacity), inside, after);
        self.b().switch_to(inside);
        let start = self.pointer(place);
        let at = self.b().bin(Bin::Add, start, index);
        let byte = self.b().load(at, 0, Width::B8, false);
        self.b().set(result, byte);
        self.b().fall_into(after);
        result
    }

    /// `$a[i]`: 0 if out of bounds, which is counted.
    fn element_of(&mut self, base: &Expr, index: &Expr, ty: &Type) -> VReg {
        let size = self.cx.size(ty);
        let count = self.cx.size(&base.ty) / size;
        let place = self.place(base);
        let index = self.scalar(index);
        let index = self.b().reg(index);
        let index = self.b().opaque(index);
        let result = self.b().copy(0);
        let (inside, outside, after) = (self.b().block(), self.b().cold_block(), self.b().block());
        self.b().branch(Cmp::Ult, index, i64::from(count), inside, outside);
        self.b().switch_to(outside);
        self.count(CounterKind::OutOfBounds);
        self.b().jump(after);
        self.b().switch_to(inside);
        let at = self.b().bin(Bin::Mul, index, i64::from(size));
        let start = self.pointer(place);
        let at = self.b().bin(Bin::Add, start, at);
        let value = self.load_as_aligned_at(place.off, Place::behind(at), ty);
        self.b().set(result, value);
        self.b().fall_into(after);
        result
    }

    /// Compares `bytes` bytes at two locations: continues if they are equal, otherwise jumps to `different`.
    pub(super) fn compare_memory(&mut self, a: Place, b: Place, bytes: u32, different: crate::ir::BlockId) {
        for (at, width) in chunks_of_both(a.off, b.off, bytes) {
            let left = self.load(a.plus(at), width, false);
            let right = self.load(b.plus(at), width, false);
            self.go_on_unless(Cmp::Ne, left, right, different);
        }
    }
}
