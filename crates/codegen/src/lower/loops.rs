//! Loops. Short ranges with constant ends are inline; others become callbacks of `bpf_loop`. Kernels without it iterate over an
//! array with one empty cell per possible iteration. Map loops are callbacks of `bpf_for_each_map_elem`.
//!
//! A callback accesses the variables of the body in scratch memory, through the frame. It returns 1 to stop; `return` and `exit`
//! in it also set a word of the frame.

use super::body::{Body, FRAME_LEFT, Fun, LEFT_CLAUSE, LoopExits, RecordLoop};
use super::loop_shape::{is_loop, may_exit, may_leave, short_range};
use super::module::{BPF_MAP_TYPE_ARRAY, Cx};
use super::operations::Operations;
use super::place::{Base, Home, Place, is_scalar};
use super::walk;
use crate::bpf::helper::Helper;
use crate::ir::build::Builder;
use crate::ir::{Bin, BlockId, Cmp, FuncKind, FuncRef, MapDef, MapRef, Operand, VReg, Width};
use lang::hir::{Config, Expr, ExprKind, MapId, Stmt, StmtKind, Type, VarId};
use wire::{CounterKind, layout};

/// `BPF_MAX_LOOPS`
const MAX_LOOPS: i64 = 8 * 1024 * 1024;
/// Limit of the iterations of all loops inside a loop together. Each loop is bounded, but their product would occupy a
/// CPU for minutes.
const MAX_NESTED: i64 = MAX_LOOPS;

/// Whether the iterations of the loop are counted at run time.
fn is_counted_loop(stmt: &Stmt) -> bool {
    is_loop(stmt) && !matches!(stmt.kind, StmtKind::Unroll { .. })
}

impl Cx<'_> {
    /// Limit of the iterations of a range without `bpf_loop`: the setting is for `while`.
    fn max_iterations(&self) -> u32 {
        self.program.config.max_loop_iterations.max(Config::default().max_loop_iterations)
    }

    /// The array with one element per iteration, for kernels without `bpf_loop`.
    fn array_of_iterations(&mut self) -> MapRef {
        let iterations = self.max_iterations() + 1;
        self.internal_map(MapDef {
            name: format!("ct_loop{iterations}"),
            kind: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 1,
            max_entries: iterations,
            flags: 0,
            direct: false,
        })
    }
}

impl<'p> Body<'_, 'p> {
    /// `break` or `continue`.
    pub(super) fn leave_loop(&mut self, which: fn(&LoopExits) -> BlockId) {
        // The checker accepts both only in loops.
        if let Some(target) = self.fun().loops.last().map(which) {
            self.b().jump(target);
        }
    }

    /// Emits a loop body; `break` jumps to `stop`, `continue` and the end to `next`.
    fn iteration(&mut self, body: &[Stmt], stop: BlockId, next: BlockId) {
        self.fun().loops.push(LoopExits { stop, next });
        self.statements(body);
        self.b().jump(next);
        self.fun().loops.pop();
    }

    /// Emits a loop. Inside another loop, `write` gets the location of the number of iterations left, which all loops
    /// in the outermost one share.
    fn nest(&mut self, body: &[Stmt], write: impl FnOnce(&mut Self, Option<Place>)) {
        let around = self.iterations_left;
        if around.is_none() && walk::any_stmt(body, &mut is_counted_loop) {
            let left = self.scratch_temp(8);
            self.store(left, Width::B64, MAX_NESTED);
            self.iterations_left = Some(left);
        }
        write(self, around);
        self.iterations_left = around;
    }

    /// Counts a iteration of a loop inside another loop; jumps to `stop` if none is left.
    fn spend_iteration(&mut self, left: Option<Place>, stop: BlockId) {
        let Some(place) = left else { return };
        let (some, none) = (self.b().block(), self.b().cold_block());
        let left = self.load(place, Width::B64, false);
        self.b().branch(Cmp::Ne, left, 0, some, none);
        self.b().switch_to(none);
        self.count(CounterKind::LoopLimit);
        self.b().jump(stop);
        self.b().switch_to(some);
        let fewer = self.b().bin(Bin::Sub, left, 1);
        self.store(place, Width::B64, fewer);
    }

    pub(super) fn unroll(&mut self, count: u32, body: &[Stmt]) {
        let after = self.b().block();
        for _ in 0..count {
            let next = self.b().block();
            self.iteration(body, after, next);
            self.b().switch_to(next);
        }
        self.b().fall_into(after);
    }

    /// `while`
    pub(super) fn while_loop(&mut self, cond: &Expr, body: &[Stmt]) {
        let limit = self.max_iterations().min(i64::from(self.cx.program.config.max_loop_iterations));
        self.nest(body, |lower, left| {
            // One more iteration than the limit, to test whether the condition still holds.
            lower.repeat((limit + 1).into(), may_leave(body), |lower, index, stop, next| {
                let [test, inside] = std::array::from_fn(|_| lower.b().block());
                let cut = lower.b().cold_block();
                lower.cond(cond, test, stop);
                lower.b().switch_to(test);
                lower.b().branch(Cmp::Ult, index, limit, inside, cut);
                lower.b().switch_to(cut);
                lower.count(CounterKind::LoopLimit);
                lower.b().jump(stop);
                lower.b().switch_to(inside);
                lower.spend_iteration(left, stop);
                lower.iteration(body, stop, next);
            });
        });
    }

    /// Largest number of iterations on this kernel.
    fn max_iterations(&self) -> i64 {
        match self.cx.options.features.bpf_loop {
            true => MAX_LOOPS - 1,
            false => i64::from(self.cx.max_iterations()),
        }
    }

    /// `for $i : start..end`
    pub(super) fn for_range(&mut self, var: VarId, start: &Expr, end: &Expr, body: &[Stmt]) {
        if let Some((start, end)) = short_range(start, end, body) {
            return self.short_loop(var, start, end, body);
        }
        let (start, end) = self.operands(start, end);
        let first = self.scratch_temp(8);
        self.store(first, Width::B64, start);
        let iterations = self.iterations(start, end);
        self.nest(body, |lower, left| {
            lower.repeat(iterations.into(), may_leave(body), |lower, index, stop, next| {
                lower.spend_iteration(left, stop);
                let first = lower.load(first, Width::B64, false);
                let value = lower.b().bin(Bin::Add, first, index);
                lower.set_scalar_variable(var, value.into());
                lower.iteration(body, stop, next);
            });
        });
    }

    fn short_loop(&mut self, var: VarId, start: i64, end: i64, body: &[Stmt]) {
        let [head, inside, next, after] = std::array::from_fn(|_| self.b().block());
        let at = self.b().copy(start);
        self.b().fall_into(head);
        self.b().branch(Cmp::Slt, at, end, inside, after);
        self.b().switch_to(inside);
        self.set_scalar_variable(var, at.into());
        self.iteration(body, after, next);
        self.b().switch_to(next);
        self.b().update(Bin::Add, at, 1);
        self.b().jump(head);
        self.b().switch_to(after);
    }

    /// Number of iterations of a range, limited to what the kernel supports.
    fn iterations(&mut self, start: Operand, end: Operand) -> VReg {
        let most = self.max_iterations();
        let iterations = self.b().copy(0);
        let [some, large, after] =
            [false, true, false].map(|cold| if cold { self.b().cold_block() } else { self.b().block() });
        let end = self.b().reg(end);
        self.b().branch(Cmp::Sgt, end, start, some, after);
        self.b().switch_to(some);
        let steps = self.b().bin(Bin::Sub, end, start);
        self.b().set(iterations, steps);
        self.b().branch(Cmp::Ugt, iterations, most, large, after);
        self.b().switch_to(large);
        self.count(CounterKind::LoopLimit);
        self.b().set(iterations, most);
        self.b().fall_into(after);
        iterations
    }

    /// Adds a callback with `args` arguments; argument number `frame` is the address of the frame. `write` gets
    /// the arguments, the block that stops the loop, and the block that continues it.
    fn callback(
        &mut self,
        args: u8,
        frame: u8,
        write: impl FnOnce(&mut Self, [VReg; 4], BlockId, BlockId),
    ) -> FuncRef {
        let name = format!("{}_loop{}", self.symbol, self.cx.module.funcs.len());
        let mut b = Builder::new(name, FuncKind::Callback { args }, self.span);
        let params = std::array::from_fn(|at| if at < args as usize { b.param(at as u8) } else { VReg(0) });
        let mut fun = Fun::new(b, self.cx.share.callback);
        fun.frame = Some(params[frame as usize]);
        self.fns.push(fun);
        self.finish_callback(|body, stop, next| write(body, params, stop, next))
    }

    /// Finishes the current function, a callback. `write` gets the block that stops the loop and the block that
    /// continues it.
    pub(super) fn finish_callback(&mut self, write: impl FnOnce(&mut Self, BlockId, BlockId)) -> FuncRef {
        let (stop, next) = (self.fun().leave, self.b().block());
        write(self, stop, next);
        self.b().switch_to(next);
        self.b().ret(0);
        self.b().switch_to(stop);
        self.b().ret(1);
        let fun = self.fns.pop().expect("the callback");
        self.cx.add(fun.b.finish())
    }

    /// Calls back `iterations` times. `write` gets the number of the iteration, the block that stops the loop, and the
    /// block that continues it.
    pub(super) fn repeat(
        &mut self,
        iterations: Operand,
        leaves: bool,
        write: impl FnOnce(&mut Self, VReg, BlockId, BlockId),
    ) {
        // With 0 iterations the call is skipped: the verifier removes a callback that it never sees called, and then
        // fails to find it.
        let after = self.b().block();
        let iterations = self.b().copy(iterations);
        self.go_on_unless(Cmp::Eq, iterations, 0, after);
        match self.cx.options.features.bpf_loop {
            true => self.bpf_loop(iterations, write),
            false => self.array_loop(iterations, write),
        }
        self.leave_if_left(leaves);
        self.b().fall_into(after);
    }

    fn bpf_loop(&mut self, iterations: VReg, write: impl FnOnce(&mut Self, VReg, BlockId, BlockId)) {
        let callback = self.callback(2, 1, |lower, [index, ..], stop, next| write(lower, index, stop, next));
        let frame = self.pointer(Place { base: Base::Frame, off: 0 });
        let callback = self.b().func_addr(callback);
        self.b().call_void(Helper::Loop, &[iterations.into(), callback.into(), frame.into(), 0.into()]);
    }

    fn array_loop(&mut self, iterations: VReg, write: impl FnOnce(&mut Self, VReg, BlockId, BlockId)) {
        let limit = self.scratch_temp(8);
        self.store(limit, Width::B64, iterations);
        let callback = self.callback(4, 3, |lower, [_, key, ..], stop, next| {
            let index = lower.b().load(key, 0, Width::B32, false);
            let limit = lower.load(limit, Width::B64, false);
            lower.go_on_unless(Cmp::Uge, index, limit, stop);
            write(lower, index, stop, next);
        });
        let map = self.cx.array_of_iterations();
        let frame = self.pointer(Place { base: Base::Frame, off: 0 });
        self.for_each(map, callback, frame.into());
    }

    /// After a loop: returns if `return` or `exit` ran in it. At the end of the work on a record, goes on with the next one.
    fn leave_if_left(&mut self, leaves: bool) {
        if !leaves {
            return;
        }
        let word = Place { base: Base::Frame, off: FRAME_LEFT as i32 };
        let left = self.load(word, Width::B64, false);
        let to = self.fun().leave;
        let level = self.fns.len();
        let Some(record) = self.record.filter(|record| record.level == level) else {
            return self.go_on_unless(Cmp::Ne, left, 0, to);
        };
        let [left_record, ended] = std::array::from_fn(|_| self.b().cold_block());
        self.go_on_unless(Cmp::Ne, left, 0, ended);
        let after = self.b().block();
        self.b().jump(after);
        self.b().switch_to(ended);
        self.b().branch(Cmp::Eq, left, LEFT_CLAUSE, to, left_record);
        self.b().switch_to(left_record);
        self.store(word, Width::B64, 0);
        self.b().jump(record.next);
        self.b().switch_to(after);
    }

    /// The body of a probe that gets a batch of records: runs for each of them.
    pub(super) fn for_records(&mut self, body: &'p [Stmt]) {
        let count = Expr { kind: ExprKind::Arg(1), ty: Type::I64, span: self.span };
        let count = self.scalar(&count);
        let iterations = self.iterations(0.into(), count);
        self.nest(body, |lower, left| {
            lower.repeat(iterations.into(), may_exit(body), |lower, index, stop, next| {
                lower.spend_iteration(left, stop);
                lower.record = Some(RecordLoop { level: lower.fns.len(), index, next });
                lower.iteration(body, stop, next);
                lower.record = None;
            });
        });
    }

    /// Address of the current record, which the expansion uses at the beginning of the body only.
    pub(super) fn record_address(&mut self) -> VReg {
        let record = self.record.expect("a body that runs for records");
        let bytes = self.probe.records.expect("a body that runs for records").bytes;
        let first = Expr { kind: ExprKind::Arg(0), ty: Type::I64, span: self.span };
        let first = self.scalar(&first);
        let offset = self.b().bin(Bin::Mul, record.index, i64::from(bytes));
        self.b().bin(Bin::Add, offset, first)
    }

    /// `for ($kv : @m)`
    pub(super) fn for_map(&mut self, var: VarId, map: MapId, body: &[Stmt]) {
        self.nest(body, |lower, left| {
            let callback = lower.callback(4, 3, |lower, [_, key, value, _], stop, next| {
                lower.spend_iteration(left, stop);
                let untouched = next;
                lower.go_on_if_touched(map, key, value, untouched);
                lower.fill_pair(var, map, key, value);
                lower.iteration(body, stop, next);
            });
            let frame = lower.pointer(Place { base: Base::Frame, off: 0 });
            lower.call_for_each(map, callback, frame.into());
            lower.leave_if_left(may_leave(body));
        });
    }

    /// Stores `(key, value)` of an element in the loop variable.
    fn fill_pair(&mut self, var: VarId, map: MapId, key: VReg, value: VReg) {
        let Type::Tuple(parts) = self.probe.vars[var.0 as usize].ty.clone() else {
            unreachable!("a map loop's variable is a pair")
        };
        let Home::Memory(pair) = self.homes[var.0 as usize] else { unreachable!("a tuple is in memory") };
        let types = self.cx.wire_types(&*parts);
        let offsets = layout::tuple(&types);
        for (at, len) in offsets.padding(&types) {
            self.zero(pair.plus(at), len);
        }
        // Keys and tuples have the same layout, so a key of several parts is the tuple.
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

    /// Calls the callback for each element of a map; returns their number.
    pub(super) fn call_for_each(&mut self, map: MapId, callback: FuncRef, frame: Operand) -> VReg {
        let map = self.cx.maps[map.0 as usize];
        self.for_each(map, callback, frame)
    }

    fn for_each(&mut self, map: MapRef, callback: FuncRef, frame: Operand) -> VReg {
        let map = self.b().map_addr(map);
        let callback = self.b().func_addr(callback);
        self.b().call(Helper::ForEachMapElem, &[map.into(), callback.into(), frame, 0.into()])
    }

    /// A callback that counts written elements in the word whose address is its argument.
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
