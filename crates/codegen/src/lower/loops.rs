//! Loops. Short ranges with known ends stay in the program; others become callbacks of `bpf_loop` where the kernel has
//! it, else loops with a bound that its verifier accepts. Map loops are callbacks of `bpf_for_each_map_elem`.
//!
//! A callback sees the body's variables in scratch memory, by way of the frame. It returns 1 to stop; `return` and `exit` inside say so in the
//! frame as well.

use super::body::{Body, FRAME_LEFT, Fun, literal};
use super::frame::{Base, CALLBACK_STACK, Home, Place, is_scalar};
use super::walk;
use crate::bpf::helper;
use crate::ir::build::Builder;
use crate::ir::{Bin, BlockId, Cmp, FuncKind, FuncRef, Operand, VReg, Width};
use lang::hir::{Expr, MapId, Stmt, StmtKind, Type, VarId};
use wire::{CounterKind, layout};

/// A range of so many steps stays in the program.
const SHORT: i64 = 16;
/// Without `bpf_loop`, a loop ends after so many rounds: the verifier walks through each of them.
const INLINE_ROUNDS: i64 = 256;
/// `BPF_MAX_LOOPS`
const MAX_LOOPS: i64 = 8 * 1024 * 1024;

/// The ends of a range with few steps.
pub(super) fn short_range(start: &Expr, end: &Expr) -> Option<(i64, i64)> {
    let (start, end) = (literal(start)?, literal(end)?);
    (end.saturating_sub(start) <= SHORT).then_some((start, end))
}

/// A `return` or `exit` in the loop may leave the clause.
fn may_leave(body: &[Stmt]) -> bool {
    walk::any_stmt(body, &mut |stmt| matches!(stmt.kind, StmtKind::Return | StmtKind::Exit { .. }))
}

impl<'p> Body<'_, 'p> {
    /// `break` or `continue`.
    pub(super) fn leave_loop(&mut self, which: fn((BlockId, BlockId)) -> BlockId) {
        // The checker lets them stand in loops only.
        if let Some(&around) = self.fun().loops.last() {
            self.b().jump(which(around));
        }
    }

    /// A loop body; `break` goes to `stop`, `continue` and its end to `next`.
    fn round(&mut self, body: &'p [Stmt], stop: BlockId, next: BlockId) {
        self.fun().loops.push((stop, next));
        self.statements(body);
        self.b().jump(next);
        self.fun().loops.pop();
    }

    pub(super) fn unroll(&mut self, count: u32, body: &'p [Stmt]) {
        let after = self.b().block();
        for _ in 0..count {
            let next = self.b().block();
            self.round(body, after, next);
            self.b().switch_to(next);
        }
        self.b().fall_into(after);
    }

    pub(super) fn while_loop(&mut self, cond: &Expr, body: &'p [Stmt]) {
        if self.cx.options.features.bpf_loop {
            self.while_callback(cond, body);
        } else {
            self.while_inline(cond, body);
        }
    }

    fn while_inline(&mut self, cond: &Expr, body: &'p [Stmt]) {
        let limit = i64::from(self.cx.program.config.max_loop_iterations).min(INLINE_ROUNDS);
        let [head, test, inside, next, after] = std::array::from_fn(|_| self.b().block());
        let cut = self.b().cold_block();
        let rounds = self.b().copy(0);
        self.b().fall_into(head);
        self.cond(cond, test, after);
        self.b().switch_to(test);
        self.b().branch(Cmp::Ult, rounds, limit, inside, cut);
        self.b().switch_to(cut);
        self.count(CounterKind::LoopLimit);
        self.b().jump(after);
        self.b().switch_to(inside);
        self.round(body, after, next);
        self.b().switch_to(next);
        self.b().update(Bin::Add, rounds, 1);
        self.b().jump(head);
        self.b().switch_to(after);
    }

    fn while_callback(&mut self, cond: &Expr, body: &'p [Stmt]) {
        let limit = i64::from(self.cx.program.config.max_loop_iterations).min(MAX_LOOPS - 1);
        let callback = self.callback(2, 1, |lower, [index, ..], stop, next| {
            let [test, inside] = std::array::from_fn(|_| lower.b().block());
            let cut = lower.b().cold_block();
            lower.cond(cond, test, stop);
            lower.b().switch_to(test);
            lower.b().branch(Cmp::Ult, index, limit, inside, cut);
            lower.b().switch_to(cut);
            lower.count(CounterKind::LoopLimit);
            lower.b().jump(stop);
            lower.b().switch_to(inside);
            lower.round(body, stop, next);
        });
        // One round more than the limit, to see whether the condition still holds then.
        self.call_loop((limit + 1).into(), callback, may_leave(body));
    }

    /// `for $i : start..end`
    pub(super) fn for_range(&mut self, var: VarId, start: &Expr, end: &Expr, body: &'p [Stmt]) {
        let inline = short_range(start, end).is_some() || !self.cx.options.features.bpf_loop;
        let (start, end) = self.operands(start, end);
        if inline {
            self.range_inline(var, start, end, body)
        } else {
            self.range_callback(var, start, end, body)
        }
    }

    fn range_inline(&mut self, var: VarId, start: Operand, end: Operand, body: &'p [Stmt]) {
        let bounded = start.as_const().is_some() && end.as_const().is_some();
        let [head, test, inside, next, after] = std::array::from_fn(|_| self.b().block());
        let cut = self.b().cold_block();
        let (at, rounds) = (self.b().copy(start), self.b().copy(0));
        let end = self.b().copy(end);
        self.b().fall_into(head);
        self.b().branch(Cmp::Slt, at, end, test, after);
        self.b().switch_to(test);
        if bounded {
            self.b().jump(inside);
        } else {
            self.b().branch(Cmp::Ult, rounds, INLINE_ROUNDS, inside, cut);
            self.b().switch_to(cut);
            self.count(CounterKind::LoopLimit);
            self.b().jump(after);
        }
        self.b().switch_to(inside);
        self.set_scalar_variable(var, at.into());
        self.round(body, after, next);
        self.b().switch_to(next);
        self.b().update(Bin::Add, at, 1);
        self.b().update(Bin::Add, rounds, 1);
        self.b().jump(head);
        self.b().switch_to(after);
    }

    fn range_callback(&mut self, var: VarId, start: Operand, end: Operand, body: &'p [Stmt]) {
        let first = self.scratch_temp(8);
        self.store(first, Width::B64, start);
        let rounds = self.rounds(start, end);
        let callback = self.callback(2, 1, |lower, [index, ..], stop, next| {
            let first = lower.load(first, Width::B64, false);
            let value = lower.b().bin(Bin::Add, first, index);
            lower.set_scalar_variable(var, value.into());
            lower.round(body, stop, next);
        });
        self.call_loop(rounds.into(), callback, may_leave(body));
    }

    /// Steps of a range, cut to what `bpf_loop` takes.
    fn rounds(&mut self, start: Operand, end: Operand) -> VReg {
        let rounds = self.b().copy(0);
        let [some, large, after] =
            [false, true, false].map(|cold| if cold { self.b().cold_block() } else { self.b().block() });
        let end = self.b().reg(end);
        self.b().branch(Cmp::Sgt, end, start, some, after);
        self.b().switch_to(some);
        let steps = self.b().bin(Bin::Sub, end, start);
        self.b().set(rounds, steps);
        self.b().branch(Cmp::Ugt, rounds, MAX_LOOPS, large, after);
        self.b().switch_to(large);
        self.count(CounterKind::LoopLimit);
        self.b().set(rounds, MAX_LOOPS);
        self.b().fall_into(after);
        rounds
    }

    /// A callback with so many arguments, of which number `frame` is the frame's address. `write` gets the arguments and
    /// the blocks that stop the loop and go on with it.
    fn callback(
        &mut self,
        args: u8,
        frame: u8,
        write: impl FnOnce(&mut Self, [VReg; 4], BlockId, BlockId),
    ) -> FuncRef {
        let name = format!("{}_loop{}", self.symbol, self.cx.module.funcs.len());
        let mut b = Builder::new(name, FuncKind::Callback { args }, self.span);
        let params = std::array::from_fn(|at| if at < args as usize { b.param(at as u8) } else { VReg(0) });
        let mut fun = Fun::new(b, CALLBACK_STACK);
        fun.frame = Some(params[frame as usize]);
        self.fns.push(fun);
        let (stop, next) = (self.fun().leave, self.b().block());
        write(self, params, stop, next);
        self.b().switch_to(next);
        self.b().ret(0);
        self.b().switch_to(stop);
        self.b().ret(1);
        let fun = self.fns.pop().expect("pushed above");
        self.cx.module.funcs.push(fun.b.finish());
        FuncRef(self.cx.module.funcs.len() as u32 - 1)
    }

    fn call_loop(&mut self, rounds: Operand, callback: FuncRef, leaves: bool) {
        let frame = self.pointer(Place { base: Base::Frame, off: 0 });
        let callback = self.b().func_addr(callback);
        self.b().call_void(helper::LOOP, &[rounds, callback.into(), frame.into(), 0.into()]);
        self.leave_if_left(leaves);
    }

    /// Behind a loop: the clause may have been left in it.
    fn leave_if_left(&mut self, leaves: bool) {
        if leaves {
            let left = self.load(Place { base: Base::Frame, off: FRAME_LEFT as i32 }, Width::B64, false);
            let to = self.fun().leave;
            self.go_on_unless(Cmp::Ne, left, 0, to);
        }
    }

    /// `for ($kv : @m)`
    pub(super) fn for_map(&mut self, var: VarId, map: MapId, body: &'p [Stmt]) {
        let callback = self.callback(4, 3, |lower, [_, key, value, _], stop, next| {
            let untouched = next;
            lower.go_on_if_touched(map, key, value, untouched);
            lower.fill_pair(var, map, key, value);
            lower.round(body, stop, next);
        });
        let frame = self.pointer(Place { base: Base::Frame, off: 0 });
        self.call_for_each(map, callback, frame.into());
        self.leave_if_left(may_leave(body));
    }

    /// Writes `(key, value)` of an element to the loop variable.
    fn fill_pair(&mut self, var: VarId, map: MapId, key: VReg, value: VReg) {
        let Type::Tuple(parts) = self.probe.vars[var.0 as usize].ty.clone() else {
            unreachable!("a map loop's variable is a pair")
        };
        let Home::Memory(pair) = self.homes[var.0 as usize] else { unreachable!("a tuple is in memory") };
        let types = self.cx.wire_types(&parts);
        let offsets = layout::tuple(&types);
        for (at, len) in offsets.padding(&types) {
            self.zero(pair.plus(at), len);
        }
        // Keys and tuples are laid out alike, so a key of several parts is the tuple.
        self.copy(pair.plus(offsets.offsets[0]), Place::behind(key), types[0].size());
        let to = pair.plus(offsets.offsets[1]);
        if is_scalar(&parts[1]) {
            let value = self.element_value(map, key, value, &parts[1]);
            self.store_scalar(to, &parts[1], value.into());
        } else {
            let offset = self.cx.map(map).value_offset();
            self.copy(to, Place::behind(value).plus(offset), types[1].size());
        }
    }

    /// Calls back for each element of a map; yields their number.
    pub(super) fn call_for_each(&mut self, map: MapId, callback: FuncRef, frame: Operand) -> VReg {
        let map = self.cx.maps[map.0 as usize];
        let map = self.b().map_addr(map);
        let callback = self.b().func_addr(callback);
        self.b().call(helper::FOR_EACH_MAP_ELEM, &[map.into(), callback.into(), frame, 0.into()])
    }

    /// A callback that counts touched elements in the word whose address it is given.
    pub(super) fn counting_callback(&mut self, map: MapId) -> FuncRef {
        self.callback(4, 3, |lower, [_, key, value, _], _, next| {
            lower.go_on_if_touched(map, key, value, next);
            let place = Place { base: Base::Frame, off: 0 };
            let count = lower.load(place, Width::B64, false);
            let more = lower.b().bin(Bin::Add, count, 1);
            lower.store(place, Width::B64, more);
            lower.b().jump(next);
        })
    }
}
