//! Pairs the entry of a call with its return: values of the entry that the body uses are saved there and loaded at the return.
//!
//! With sessions one program runs on both sides and has 8 bytes per call. One value fits there. Several are in a cell of an
//! array; the 8 bytes hold its index and the mark of its owner. Without sessions there are two programs, which find the cell by
//! the mark: a number for thread, stack pointer and function. The stack pointer distinguishes nested calls. A depth
//! counter would be wrong after a longjmp or a missed return. The function distinguishes tail calls, which share a stack pointer.
//! A BPF hash map instead of the array would take 1 300 instructions per call, as much as the probes themselves.
//!
//! Conditions of the predicate that need only the entry are tested there. If one fails, nothing is saved, and a session does not
//! trap the return.
//!
//! Not here: locations of arguments (`abi`). `Entered` minus `Returned` are the unpaired calls.

use super::abi;
use super::body::Body;
use super::cookie_layout::CookieLayout;
use super::module::{BPF_MAP_TYPE_ARRAY, Cx};
use super::operations::Operations;
use super::place::Place;
use super::prologue::{Entry, Pro};
use super::side::{Parts, ProgramPlace};
use super::walk;
use crate::bpf::helper::Helper;
use crate::ir::{AtomicOp, Bin, BlockId, Cmp, MapDef, MapRef, Operand, VReg, Width};
use crate::merge::reads_alike;
use lang::Span;
use lang::hir::visit::{direct, inner, operands};
use lang::hir::{Arm, BinaryOp, Expr, ExprKind, Hook, NameKind, Probe, Site, Stmt, Type};
use wire::CounterKind;
use wire::manifest::Side;

/// Number of cells for pending calls, a power of two.
const SLOTS: u32 = 1 << SLOT_BITS;
const SLOT_BITS: i64 = 14;
/// Mask of the low bits of a cell's mark: the number of the cell, from 1.
const MARK_INDEX: i64 = (1 << (SLOT_BITS + 1)) - 1;
/// Number of cells that a call tries.
const SLOT_TRIES: u32 = 8;
/// Odd multipliers that spread thread, stack pointer and function over the mark (from the golden ratio and pi).
const MIX: [i64; 3] = [0x9e37_79b9_7f4a_7c15_u64 as i64, 0x2436_0d1d_4d2a_3b05, 0x13198a2e_03707345];

/// Whether the body uses values that exist only at the entry.
pub(super) fn needs_entry(probe: &Probe) -> bool {
    let mut needs = false;
    walk::each_of(probe, &mut |e| needs |= is_entry_value(e, probe.attach.hook()));
    needs
}

/// Whether the value must be saved at entry. A trampoline passes the arguments again at the return.
pub(super) fn is_entry_value(expr: &Expr, hook: Option<Hook>) -> bool {
    use ExprKind::{Arg, Duration, Param, ParamField, Started};
    match expr.kind {
        Duration | Started => true,
        Param(_) | ParamField { .. } | Arg(_) => hook != Some(Hook::Trampoline),
        _ => false,
    }
}

/// The expression that is saved for a value of the entry: the start time for `duration`.
fn saved_for(expr: &Expr) -> Expr {
    match expr.kind {
        ExprKind::Duration => Expr { kind: ExprKind::Started, ..expr.clone() },
        _ => expr.clone(),
    }
}

/// Whether the expression can be evaluated at entry, and has the same value there.
fn is_entry_only(expr: &Expr) -> bool {
    use ExprKind::*;
    use lang::hir::Builtin as B;
    !walk::any(expr, &mut |e| {
        !matches!(
            e.kind,
            Int(_)
                | Str(_)
                | Param(_)
                | ParamField { .. }
                | Arg(_)
                | Builtin(B::Pid | B::Tid | B::Uid | B::Gid | B::Comm | B::Cgroup, _)
                | Name(_)
                | NameIn { .. }
                | Neg(_)
                | BitNot(_)
                | Not(_)
                | Binary { .. }
                | StrEq { .. }
                | StrContains { .. }
                | Cast(_)
                | Ternary { .. }
                | ByCase(_)
                | StrIndex { .. }
        )
    })
}

/// The operands of `a && b && c` as a list.
fn conjuncts<'e>(expr: &'e Expr, list: &mut Vec<&'e Expr>) {
    match &expr.kind {
        ExprKind::Binary { op: BinaryOp::And, lhs, rhs } => {
            conjuncts(lhs, list);
            conjuncts(rhs, list);
        }
        _ => list.push(expr),
    }
}

/// Expressions that are saved at entry, without duplicates.
struct SavedValues<'p> {
    probe: &'p Probe,
    values: Vec<Expr>,
}

impl<'p> SavedValues<'p> {
    fn of(probe: &'p Probe) -> SavedValues<'p> {
        SavedValues { probe, values: vec![] }
    }

    fn all_in(&mut self, body: &[Stmt]) {
        for stmt in body {
            direct(stmt, &mut |e| self.all_of(e));
            inner(stmt, &mut |stmt| self.all_in(std::slice::from_ref(stmt)));
        }
    }

    fn all_of(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::ByCase(arms) => self.of_arms(arms),
            ExprKind::Block { body, .. } => self.all_in(body),
            _ if is_entry_value(expr, self.probe.attach.hook()) => self.add(saved_for(expr)),
            _ => {}
        }
        if !matches!(expr.kind, ExprKind::ByCase(_)) {
            operands(expr, &mut |e| self.all_of(e));
        }
    }

    fn add(&mut self, value: Expr) {
        if !self.values.iter().any(|known| known.kind == value.kind && known.ty == value.ty) {
            self.values.push(value);
        }
    }

    /// Adds the values of a value by case. The arms share locations, since only one of them runs. An arm with
    /// fewer values leaves the other locations unchanged.
    fn of_arms(&mut self, arms: &[Arm]) {
        let of_arm = |arm: &Arm| {
            let mut saved = SavedValues::of(self.probe);
            saved.all_of(&arm.value);
            (arm.cases, saved.values)
        };
        let by_arm: Vec<(u64, Vec<Expr>)> = arms.iter().map(of_arm).collect();
        let most = by_arm.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        for at in 0..most {
            let mut arms: Vec<Arm> = vec![];
            for (cases, value) in by_arm.iter().filter_map(|(cases, values)| Some((cases, values.get(at)?))) {
                let value = Expr { span: Span::default(), ..value.clone() };
                // The same parameter may have another location in other cases.
                let same = |arm: &&mut Arm| {
                    let case = cases.trailing_zeros() as usize;
                    arm.value == value && reads_alike(self.probe, arm.first_case(), case, &value)
                };
                match arms.iter_mut().find(same) {
                    Some(arm) => arm.cases |= cases,
                    None => arms.push(Arm { cases: *cases, value }),
                }
            }
            self.add(Expr { kind: ExprKind::ByCase(arms), ty: Type::U64, span: Span::default() });
        }
    }
}

/// Distribution of the work between the entry and the return side.
struct Plan<'p> {
    probe: &'p Probe,
    at_entry: Vec<&'p Expr>,
    at_return: Vec<&'p Expr>,
    saved: Vec<Expr>,
    /// True if the call is pushed onto the thread's stack of calls.
    tracked: bool,
}

impl<'p> Plan<'p> {
    fn new(probe: &'p Probe, tracked: bool) -> Plan<'p> {
        let mut conditions = vec![];
        if let Some(predicate) = &probe.predicate {
            conjuncts(predicate, &mut conditions);
        }
        // A tracked call may enclose others, so it is pushed whatever the predicate yields.
        let (at_entry, at_return): (Vec<_>, Vec<_>) =
            conditions.into_iter().partition(|e| !tracked && is_entry_only(e));
        let mut saved = SavedValues::of(probe);
        at_return.iter().for_each(|condition| saved.all_of(condition));
        saved.all_in(&probe.body);
        let mut saved = saved.values;
        // The start time is saved last, so that the duration does not include the cost of saving.
        saved.sort_by_key(|e| e.kind == ExprKind::Started);
        Plan { probe, at_entry, at_return, saved, tracked }
    }
}

impl<'p> Cx<'p> {
    /// Lowers a return probe that uses values of the entry.
    pub(super) fn paired(&mut self, probe: &'p Probe, sites: &[Site]) {
        let plan = Plan::new(probe, self.program.is_tracked(probe));
        if self.has_sessions(probe) { self.session(&plan, sites) } else { self.two_programs(&plan, sites) }
    }

    /// Whether one program can run on both sides of the probe's functions.
    pub(super) fn has_sessions(&self, probe: &Probe) -> bool {
        let features = &self.options.features;
        match probe.attach.hook() {
            Some(Hook::Uprobe) => features.uprobe_session,
            Some(Hook::Kprobe) => features.kprobe_session,
            Some(Hook::SingleKprobe | Hook::Trampoline) | None => false,
        }
    }

    /// The array of cells for pending calls: the mark of the owner, 0 in a free cell, and the saved values. Its name is unique
    /// among the modules of the session.
    fn cells(&mut self, plan: &Plan) -> MapRef {
        self.internal_map(MapDef {
            name: format!("ct_slots{}", self.manifest.internal_maps.len()),
            kind: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 8 * (1 + plan.saved.len() as u32),
            max_entries: SLOTS,
            flags: 0,
            direct: false,
        })
    }

    fn session(&mut self, plan: &Plan<'p>, sites: &[Site]) {
        let probe = plan.probe;
        let layout = CookieLayout::new(probe, &self.program.names, plan.tracked.then_some(NameKind::Func));
        let slots = (plan.saved.len() > 1).then(|| self.cells(plan));
        let ProgramPlace { section, attach, .. } = self.at_functions(probe, Side::Session, sites, &layout);
        let mut body = self.begin(probe, "session", &section, attach);
        body.cookie = layout;
        let [entry, ret] = body.session_sides();

        body.b().switch_to(entry);
        let mark = body.mark();
        body.new_side(Entry::Direct { shift: sites[0].place.stack_shift });
        body.side(Parts {
            before: &mut |_, _| {},
            predicate: plan.at_entry.clone(),
            body: &mut |body| body.save_in_session(plan, slots),
            skipped: 1,
            refused: 1,
            filtered: body.cx.is_filtered(probe),
            variables: false,
        });
        body.release(mark);

        body.b().switch_to(ret);
        body.new_side(Entry::Saved(plan.saved.clone()));
        body.side(Parts {
            before: &mut |body, skip| body.restore_in_session(plan, slots, skip),
            predicate: plan.at_return.clone(),
            body: &mut |body| body.statements(&probe.body),
            skipped: 0,
            refused: 0,
            filtered: false,
            variables: true,
        });
        body.finish();
    }

    fn two_programs(&mut self, plan: &Plan<'p>, sites: &[Site]) {
        let probe = plan.probe;
        let layout = CookieLayout::new(probe, &self.program.names, Some(NameKind::Func));
        let slots = self.cells(plan);

        let ProgramPlace { section, attach, .. } = self.at_functions(probe, Side::Entry, sites, &layout);
        let mut body = self.begin_auxiliary(probe, "entry", &section, attach);
        body.cookie = layout.clone();
        body.new_side(Entry::Direct { shift: sites[0].place.stack_shift });
        body.side(Parts {
            before: &mut |_, _| {},
            predicate: plan.at_entry.clone(),
            body: &mut |body| body.save_by_mark(plan, slots),
            skipped: 0,
            refused: 0,
            filtered: body.cx.is_filtered(probe),
            variables: false,
        });
        body.finish();

        let ProgramPlace { word, section, attach } = self.at_functions(probe, Side::Return, sites, &layout);
        let mut body = self.begin(probe, word, &section, attach);
        body.cookie = layout;
        body.new_side(Entry::Saved(plan.saved.clone()));
        body.side(Parts {
            before: &mut |body, skip| body.restore_by_mark(plan, slots, skip),
            predicate: plan.at_return.clone(),
            body: &mut |body| body.statements(&probe.body),
            skipped: 0,
            refused: 0,
            filtered: body.cx.is_filtered(probe),
            variables: true,
        });
        body.finish();
    }
}

/// A cell, and the mark by which a call owns it.
struct OwnedCell {
    cell: VReg,
    mark: VReg,
}

/// Operands for computing the cells in which the values of a call may be.
struct Tries {
    /// Number of the first cell.
    first: VReg,
    /// Mark of the call, without the number of a cell.
    call: VReg,
    /// For the key of a cell.
    key: Place,
}

impl Body<'_, '_> {
    /// A value of the current call at its entry.
    fn entry_value(&mut self, expr: &Expr) -> VReg {
        match (&expr.kind, self.started) {
            (ExprKind::Started, Some(started)) => started,
            (ExprKind::Started, None) => self.b().call(Helper::KtimeGetNs, &[]),
            (ExprKind::ByCase(arms), _) => {
                self.entry_value_by_case(arms, |body, value| body.entry_value(value))
            }
            _ => self.argument(expr),
        }
    }

    /// Pushes the call onto the thread's stack of calls, if it is tracked.
    fn begin_call(&mut self, plan: &Plan) {
        self.started = plan.tracked.then(|| self.enter_call());
    }

    /// Branches to the entry block or the return block of a session program, and returns both.
    pub(super) fn session_sides(&mut self) -> [BlockId; 2] {
        let is_return = self.session_kfunc("bpf_session_is_return");
        // The result is a bool: kernel functions leave the upper bits of the register undefined.
        let is_return = self.b().extend(is_return, Width::B8, false);
        let [entry, ret] = std::array::from_fn(|_| self.b().block());
        self.b().branch(Cmp::Ne, is_return, 0, ret, entry);
        [entry, ret]
    }

    fn session_kfunc(&mut self, name: &str) -> VReg {
        let ctx: Operand = self.ctx.into();
        let args: &[Operand] = if self.cx.options.features.session_takes_context { &[ctx] } else { &[] };
        self.b().kfunc(name, args)
    }

    fn save_in_session(&mut self, plan: &Plan, slots: Option<MapRef>) {
        self.count(CounterKind::Entered(plan.probe.clause));
        match (slots, &plan.saved[..]) {
            (Some(slots), _) => self.save_in_slot(plan, slots),
            (None, [value]) => {
                self.begin_call(plan);
                let cookie = self.session_kfunc("bpf_session_cookie");
                let value = self.entry_value(value);
                self.b().store(cookie, 0, Width::B64, value);
            }
            (None, _) => self.begin_call(plan),
        }
    }

    fn save_in_slot(&mut self, plan: &Plan, slots: MapRef) {
        let function = self.register("pc");
        let owned = self.own_cell(slots, function);
        let cookie = self.session_kfunc("bpf_session_cookie");
        self.b().store(cookie, 0, Width::B64, owned.mark);
        self.save_values(plan, &owned);
    }

    fn save_by_mark(&mut self, plan: &Plan, slots: MapRef) {
        self.count(CounterKind::Entered(plan.probe.clause));
        let function = self.name(NameKind::Func);
        let function = self.b().copy(function);
        let owned = self.own_cell(slots, function);
        self.save_values(plan, &owned);
    }

    fn save_values(&mut self, plan: &Plan, owned: &OwnedCell) {
        self.begin_call(plan);
        for (at, value) in plan.saved.iter().enumerate() {
            let value = self.entry_value(value);
            self.b().store(owned.cell, 8 * (at as i16 + 1), Width::B64, value);
        }
    }

    /// The cell that this call owns from now on.
    fn own_cell(&mut self, slots: MapRef, function: VReg) -> OwnedCell {
        let got = self.b().block();
        let (owned, tries) = self.try_slots(slots, function, |body, owned, next| {
            body.claim_slot(owned.cell, owned.mark, got, next);
        });
        self.take_over_slot(slots, tries, &owned);
        self.b().jump(got);
        self.b().switch_to(got);
        owned
    }

    /// Tries the cells in which the values of this call may be: `test` jumps to its last argument or leaves the loop.
    fn try_slots(
        &mut self,
        slots: MapRef,
        function: VReg,
        mut test: impl FnMut(&mut Self, &OwnedCell, BlockId),
    ) -> (OwnedCell, Tries) {
        let call = self.call_mark(function);
        let owned = OwnedCell { mark: self.b().vreg(), cell: self.b().vreg() };
        let key = self.temp(4);
        let first = self.b().bin(Bin::Shr, call, 64 - SLOT_BITS);
        // A copy, so that the register in which the mark was computed is dead in the loop.
        let call = self.b().copy(call);
        self.counted_loop(SLOT_TRIES, |body, attempt| {
            let next = body.b().block();
            let index = body.b().bin(Bin::Add, first, attempt);
            let index = body.b().bin(Bin::And, index, i64::from(SLOTS - 1));
            body.mark_of_cell(owned.mark, call, index);
            body.store(key, Width::B32, index);
            let found = body.lookup_raw(slots, key);
            body.go_on_unless(Cmp::Eq, found, 0, next);
            body.b().set(owned.cell, found);
            test(body, &owned, next);
            body.b().switch_to(next);
        });
        (owned, Tries { first, call, key })
    }

    /// Sets `mark` to that of a call in the cell with this number.
    fn mark_of_cell(&mut self, mark: VReg, call: VReg, index: VReg) {
        let number = self.b().bin(Bin::Add, index, 1);
        let own = self.b().bin(Bin::And, call, !MARK_INDEX);
        let own = self.b().bin(Bin::Or, own, number);
        self.b().set(mark, own);
    }

    /// Claims a cell that is free, or that has the mark of this call since an earlier call with this mark never
    /// returned.
    fn claim_slot(&mut self, cell: VReg, own: VReg, got: BlockId, next: BlockId) {
        let free = self.b().block();
        let owner = self.b().load(cell, 0, Width::B64, false);
        self.b().branch(Cmp::Eq, owner, own, got, free);
        self.b().switch_to(free);
        let zero = self.b().copy(0);
        let old = self.b().cmpxchg(cell, 0, zero, own);
        self.b().branch(Cmp::Eq, old, 0, got, next);
    }

    /// Takes the first cell over from its owner. In most cases the owner's thread has ended. If the owner does
    /// return, its mark has changed and it counts as unpaired.
    fn take_over_slot(&mut self, slots: MapRef, tries: Tries, owned: &OwnedCell) {
        let [missing, there] = std::array::from_fn(|_| self.b().block());
        self.mark_of_cell(owned.mark, tries.call, tries.first);
        self.store(tries.key, Width::B32, tries.first);
        let found = self.lookup_raw(slots, tries.key);
        self.b().branch(Cmp::Ne, found, 0, there, missing);
        self.b().switch_to(missing);
        self.count(CounterKind::NoCallSlot);
        let refused = self.refused;
        self.b().jump(refused);
        self.b().switch_to(there);
        self.b().set(owned.cell, found);
        self.b().atomic_fetch(AtomicOp::Xchg, found, 0, owned.mark);
    }

    /// A number for (thread, stack pointer, function). Two pending calls have the same number with a probability
    /// of 2^-49.
    fn call_mark(&mut self, function: VReg) -> VReg {
        let thread = self.host_thread();
        let sp = self.frame_of_call();
        let b = self.b();
        let mark = b.bin(Bin::Mul, thread, MIX[0]);
        for (part, factor) in [(sp, MIX[1]), (function, MIX[2])] {
            let part = b.bin(Bin::Mul, part, factor);
            b.update(Bin::Xor, mark, part);
            let high = b.bin(Bin::Shr, mark, 29);
            b.update(Bin::Xor, mark, high);
        }
        b.update(Bin::Mul, mark, MIX[0]);
        mark
    }

    /// tgid and tid in the initial pid namespace, which are unique.
    pub(super) fn host_thread(&mut self) -> VReg {
        match self.cx.options.pid_namespace {
            None => self.pro(Pro::Thread),
            Some(_) => self.b().call(Helper::GetCurrentPidTgid, &[]),
        }
    }

    fn restore_in_session(&mut self, plan: &Plan, slots: Option<MapRef>, skip: BlockId) {
        let now = self.now_if_timed(plan);
        self.end_call(plan);
        if let Some(slots) = slots {
            let owned = self.find_slot(plan, slots, skip);
            self.take_values(plan, &owned, now, skip);
        } else if !plan.saved.is_empty() {
            let cookie = self.session_kfunc("bpf_session_cookie");
            self.give_values(plan, Place::behind(cookie), now);
        }
        self.count(CounterKind::Returned(plan.probe.clause));
    }

    /// Loads the values of a cell, and frees it.
    fn take_values(&mut self, plan: &Plan, owned: &OwnedCell, now: Option<VReg>, skip: BlockId) {
        self.give_values(plan, Place::behind(owned.cell).plus(8), now);
        // Another call may have taken over the cell, and overwritten the values.
        let zero = self.b().copy(0);
        let owner = self.b().cmpxchg(owned.cell, 0, owned.mark, zero);
        let lost = self.b().cold_block();
        self.go_on_unless(Cmp::Ne, owner, owned.mark, lost);
        self.no_entry(plan, lost, skip);
    }

    fn restore_by_mark(&mut self, plan: &Plan, slots: MapRef, skip: BlockId) {
        let now = self.now_if_timed(plan);
        self.end_call(plan);
        let function = self.name(NameKind::Func);
        let function = self.b().copy(function);
        let got = self.b().block();
        let (owned, ..) = self.try_slots(slots, function, |body, owned, next| {
            let owner = body.b().load(owned.cell, 0, Width::B64, false);
            body.b().branch(Cmp::Eq, owner, owned.mark, got, next);
        });
        // If a predicate was tested at the entry, it failed there most likely, which is not an error.
        if plan.at_entry.is_empty() {
            self.count(CounterKind::NoEntry(plan.probe.clause));
        }
        self.b().jump(skip);
        self.b().switch_to(got);
        self.take_values(plan, &owned, now, skip);
        self.count(CounterKind::Returned(plan.probe.clause));
    }

    /// Pops the call, if it is tracked.
    fn end_call(&mut self, plan: &Plan) {
        if plan.tracked {
            self.leave_call();
        }
    }

    /// The stack pointer at the entry of the call, computed at its return.
    pub(super) fn sp_at_entry_of_this(&mut self) -> VReg {
        let popped = i64::from(abi::machine(self.cx.options.arch).sp_after_return);
        let sp = self.entry_sp();
        if popped == 0 { sp } else { self.b().bin(Bin::Sub, sp, popped) }
    }

    fn now_if_timed(&mut self, plan: &Plan) -> Option<VReg> {
        let mut timed = false;
        walk::each_of(plan.probe, &mut |e| timed |= e.kind == ExprKind::Duration);
        timed.then(|| self.b().call(Helper::KtimeGetNs, &[]))
    }

    /// The cell that the session cookie refers to, if it still has the mark of this call.
    fn find_slot(&mut self, plan: &Plan, slots: MapRef, skip: BlockId) -> OwnedCell {
        let cookie = self.session_kfunc("bpf_session_cookie");
        let mark = self.b().load(cookie, 0, Width::B64, false);
        let number = self.b().bin(Bin::And, mark, MARK_INDEX);
        let index = self.b().bin(Bin::Sub, number, 1);
        let key = self.temp(4);
        self.store(key, Width::B32, index);
        let cell = self.lookup_raw(slots, key);
        let lost = self.b().cold_block();
        self.go_on_unless(Cmp::Eq, cell, 0, lost);
        let owner = self.b().load(cell, 0, Width::B64, false);
        self.go_on_unless(Cmp::Ne, owner, mark, lost);
        self.no_entry(plan, lost, skip);
        OwnedCell { cell, mark }
    }

    /// Emits the block for returns without a known entry.
    fn no_entry(&mut self, plan: &Plan, lost: BlockId, skip: BlockId) {
        let found = self.b().block();
        self.b().jump(found);
        self.b().switch_to(lost);
        self.count(CounterKind::NoEntry(plan.probe.clause));
        self.b().jump(skip);
        self.b().switch_to(found);
    }

    /// Loads the saved values; the duration is computed from the start time.
    fn give_values(&mut self, plan: &Plan, from: Place, now: Option<VReg>) {
        for (at, value) in plan.saved.iter().enumerate() {
            let reg = self.load(from.plus(8 * at as u32), Width::B64, false);
            if let (ExprKind::Started, Some(now)) = (&value.kind, now) {
                let duration = self.b().bin(Bin::Sub, now, reg);
                self.give(Pro::Duration, duration);
            }
            self.give(Pro::Entry(at as u32), reg);
        }
    }

    /// A number by which the pending calls of a thread differ: the stack pointer at entry. A trampoline has the same context at the
    /// entry and the return of a call, on the stack of the thread. The verifier forbids arithmetic on its address, but not on the
    /// lower half.
    fn frame_of_call(&mut self) -> VReg {
        match &self.probe.attach {
            attach if attach.hook() == Some(Hook::Trampoline) => {
                let ctx = self.pro(Pro::Ctx);
                self.b().extend(ctx, Width::B32, false)
            }
            // Saved values belong to the return side.
            _ if matches!(self.entry, Entry::Saved(_)) => self.sp_at_entry_of_this(),
            _ => self.entry_sp(),
        }
    }
}
