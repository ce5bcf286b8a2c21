//! The thread's stack of traced calls: the calls that enclose the current one, `call_depth`, `parent_func`.
//!
//! ```text
//! { u32 calls, found; { u64 sp, start_ns; u32 seen, func; } call[128]; }     one per thread, outermost call first
//! ```
//!
//! A call is enclosed by the calls whose stack pointer is above its own, so stack pointers fall from call to call. An entry
//! that is not above the current call has ended, even if its return was missed (`longjmp`, a return that the kernel
//! skipped). It is removed at the next entry, or with the return of an enclosing call.
//!
//! Several programs may run at one call. The first one pushes it; the others find it by its stack pointer and function, and
//! use its start. Each program has a bit in `seen`. A program that finds its bit set ran before, at a call that never
//! returned. Only the thread itself writes its stack.
//!
//! A probe that is no tracked call, such as one on a system call, reads the stack without changing it. An event of the kernel
//! with a span, such as an ioctl, is a call on the stack from its beginning to its end.
//!
//! The stack of a thread is removed when the thread ends ([`Cx::forget_stacks`]).

use super::body::Body;
use super::cookie_layout::CookieLayout;
use super::module::{BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LRU_HASH, Cx};
use super::operations::Operations;
use super::prologue::Entry;
use super::prologue::Pro;
use super::side::{Parts, ProgramPlace};
use super::walk;
use crate::bpf::helper::Helper;
use crate::ir::build::Builder;
use crate::ir::{Bin, Cmp, FuncKind, MapDef, MapRef, Operand, ProgramInfo, VReg, Width};
use lang::Span;
use lang::hir::{Around, Attach, Builtin, Expr, ExprKind, Hook, NameKind, Probe, Site, Trigger};
use wire::CounterKind;
use wire::manifest::{self, Side};

/// Name of the map of call stacks, which all objects of a session share.
const MAP: &str = "ct_around";
/// Largest number of threads with a call stack.
const THREADS: u32 = 1 << 14;
/// Largest depth of a call stack; the kernel traps at most 64 pending returns per thread.
const LIMIT: i64 = ROOM - 1;
/// Number of calls in memory, a power of two: indices are masked, so the kernel's verifier accepts all accesses.
const ROOM: i64 = 128;
/// Bytes that contain the kernel's stack of a thread, which is aligned to its size: 16 KiB, or 32 KiB with KASAN.
const KERNEL_STACK: i64 = 1 << 16;
/// The number by which an event of the kernel, such as an ioctl, is on the stack: above functions of the kernel, below the
/// addresses of the program's stack.
const EVENT: i64 = KERNEL_STACK;
/// Offset of the number of calls.
const CALLS: i16 = 0;
/// Offset of the result of a search.
const FOUND: i16 = 4;
/// Offset of the first call in bytes.
const HEAD: i16 = 8;
/// Size of a call in bytes.
const CALL: i64 = 24;
const SP: i16 = HEAD;
const START: i16 = HEAD + 8;
const SEEN: i16 = HEAD + 16;
const FUNC: i16 = HEAD + 20;

impl<'p> Cx<'p> {
    /// Lowers an entry probe whose body uses the enclosing calls. The call is pushed before the body, and popped
    /// at its return.
    pub(super) fn tracked_entry(&mut self, probe: &'p Probe, sites: &[Site]) {
        let layout = CookieLayout::new(probe, &self.program.names, Some(NameKind::Func));
        let shift = sites[0].place.stack_shift;
        if self.has_sessions(probe) {
            let ProgramPlace { section, attach, .. } =
                self.at_functions(probe, Side::Session, sites, &layout);
            let mut body = self.begin(probe, "session", &section, attach);
            body.cookie = layout;
            let [entry, ret] = body.session_sides();
            body.b().switch_to(entry);
            let mark = body.mark();
            body.tracked_side(probe, shift);
            body.release(mark);
            body.b().switch_to(ret);
            body.leaving_side(false);
            return body.finish();
        }
        let ProgramPlace { section, attach, .. } = self.at_functions(probe, Side::Entry, sites, &layout);
        let mut body = self.begin(probe, "entry", &section, attach);
        body.cookie = layout.clone();
        body.tracked_side(probe, shift);
        body.finish();
        let ProgramPlace { word, section, attach } = self.at_functions(probe, Side::Return, sites, &layout);
        let mut body = self.begin_auxiliary(probe, word, &section, attach);
        body.cookie = layout;
        body.leaving_side(true);
        body.finish();
    }

    fn around_map(&mut self) -> MapRef {
        let flags = self.allocating();
        self.internal_map(MapDef {
            name: MAP.into(),
            kind: if self.runs_in_process() { BPF_MAP_TYPE_LRU_HASH } else { BPF_MAP_TYPE_HASH },
            key_size: 8,
            value_size: (i64::from(HEAD) + ROOM * CALL) as u32,
            max_entries: THREADS,
            flags,
            direct: false,
        })
    }

    /// Whether the programs run in the traced processes: nothing tells them that a thread has ended.
    pub(super) fn runs_in_process(&self) -> bool {
        self.options.in_process()
    }

    /// Adds the program that deletes the call stack of a thread when the thread ends. In the process the stack that was unused for
    /// the longest time gives way.
    pub(super) fn forget_stacks(&mut self) {
        if self.runs_in_process() || self.manifest.internal_maps.iter().any(|known| known == MAP) {
            return;
        }
        let stacks = self.around_map();
        // The event is given by name: ids of other tracepoints are in tracefs, which only root may read.
        let event = manifest::TASK_ENDS.split_once(':').map_or(manifest::TASK_ENDS, |(_, event)| event);
        let attach = manifest::Attach::Event(Trigger::RawTracepoint { event: event.into() });
        let symbol = "around_exit".to_string();
        self.manifest.programs.push(manifest::Program {
            symbol: symbol.clone(),
            clause: super::follow_processes::NO_CLAUSE,
            place: manifest::Place::default(),
            text: format!("rawtracepoint:{event}"),
            attach: attach.clone(),
            auxiliary: true,
        });
        let info = ProgramInfo { clause: super::follow_processes::NO_CLAUSE, attach };
        let kind = FuncKind::Program { section: "raw_tp".into(), info };
        let mut b = Builder::new(symbol, kind, Span::default());
        let thread = b.call(Helper::GetCurrentPidTgid, &[]);
        let slot = b.func_mut().slot(8, 8);
        let key = b.slot_addr(slot);
        b.store(key, 0, Width::B64, thread);
        let map = b.map_addr(stacks);
        b.call_void(Helper::MapDeleteElem, &[map.into(), key.into()]);
        b.ret(0);
        self.add(b.finish());
    }
}

impl<'p> Body<'_, 'p> {
    /// The entry side of a probe that uses the enclosing calls. Its return side must run once the call was pushed.
    fn tracked_side(&mut self, probe: &'p Probe, shift: u32) {
        self.new_side(Entry::Direct { shift });
        self.side(Parts {
            before: &mut |body, _| {
                let started = body.enter_call();
                body.give(Pro::Started, started);
            },
            predicate: probe.predicate.iter().collect(),
            body: &mut |body| body.statements(&probe.body),
            skipped: 1,
            refused: 0,
            filtered: true,
            variables: true,
        });
    }

    /// The return side of such a probe.
    fn leaving_side(&mut self, filtered: bool) {
        self.new_side(Entry::Saved(vec![]));
        self.side(Parts {
            before: &mut |body, _| body.leave_call(),
            predicate: vec![],
            body: &mut |_| {},
            skipped: 0,
            refused: 0,
            filtered,
            variables: false,
        });
    }

    /// Pushes the current call at its entry, and reads the values of the enclosing calls. Returns its start time.
    pub(super) fn enter_call(&mut self) -> VReg {
        let sp = self.nesting(Side::Entry);
        let func = self.name(NameKind::Func);
        let start = self.b().vreg();
        let [full, outside, entered] = std::array::from_fn(|_| self.b().cold_block());
        let (there, mine, next, after) =
            (self.b().block(), self.b().block(), self.b().block(), self.b().block());
        let stack = self.stack_of_thread(outside);
        let depth = self.calls_above(stack, sp);
        self.b().branch(Cmp::Uge, depth, LIMIT, full, there);

        self.b().switch_to(there);
        let call = self.call_at(stack, depth);
        let bit = 1i64 << (self.cx.manifest.programs.len() % 32);
        let b = self.b();
        let calls = b.load(stack, CALLS, Width::B32, false);
        let old_sp = b.load(call, SP, Width::B64, false);
        let old_func = b.load(call, FUNC, Width::B32, false);
        let seen = b.load(call, SEEN, Width::B32, false);
        let depth_and_this = b.bin(Bin::Add, depth, 1);
        b.store(stack, CALLS, Width::B32, depth_and_this);
        let known = b.block();
        b.branch(Cmp::Ugt, calls, depth, known, mine);
        b.switch_to(known);
        self.go_on_unless(Cmp::Ne, old_sp, sp, mine);
        let func_reg = self.b().reg(func);
        self.go_on_unless(Cmp::Ne, old_func, func_reg, mine);
        let again = self.b().bin(Bin::And, seen, bit);
        self.b().branch(Cmp::Ne, again, 0, mine, next);

        self.b().switch_to(next);
        let b = self.b();
        let seen = b.bin(Bin::Or, seen, bit);
        b.store(call, SEEN, Width::B32, seen);
        let known_start = b.load(call, START, Width::B64, false);
        b.set(start, known_start);
        b.jump(after);

        self.b().switch_to(mine);
        let b = self.b();
        let now = b.call(Helper::KtimeGetNs, &[]);
        b.set(start, now);
        b.store(call, SP, Width::B64, sp);
        b.store(call, START, Width::B64, now);
        b.store(call, SEEN, Width::B32, bit);
        b.store(call, FUNC, Width::B32, func);
        b.jump(after);

        self.b().switch_to(full);
        self.count(CounterKind::NoRoomAround);
        self.b().store(stack, CALLS, Width::B32, LIMIT);
        self.b().jump(entered);
        self.b().switch_to(entered);
        let now = self.b().call(Helper::KtimeGetNs, &[]);
        self.b().set(start, now);
        self.b().jump(after);

        self.b().switch_to(after);
        let around = self.look_around(stack, depth);
        self.nothing_around(&around, outside, Some(start));
        start
    }

    /// Pops the current call at its return, and reads the values of the enclosing calls.
    pub(super) fn leave_call(&mut self) {
        let sp = self.nesting(Side::Return);
        let outside = self.b().cold_block();
        let stack = self.known_stack(outside);
        let depth = self.calls_above(stack, sp);
        let func = self.name(NameKind::Func);
        let (there, own, after) = (self.b().block(), self.b().block(), self.b().block());
        let calls = self.b().load(stack, CALLS, Width::B32, false);
        self.b().branch(Cmp::Ugt, calls, depth, there, after);
        self.b().switch_to(there);
        let call = self.call_at(stack, depth);
        let own_sp = self.b().load(call, SP, Width::B64, false);
        self.go_on_unless(Cmp::Ne, own_sp, sp, after);
        let own_func = self.b().load(call, FUNC, Width::B32, false);
        let func = self.b().reg(func);
        self.b().branch(Cmp::Ne, own_func, func, after, own);
        self.b().switch_to(own);
        self.b().store(stack, CALLS, Width::B32, depth);
        self.b().jump(after);
        self.b().switch_to(after);
        let around = self.look_around(stack, depth);
        self.nothing_around(&around, outside, None);
    }

    /// Start time of the current call.
    pub(super) fn start_of_call(&mut self, expr: &Expr) -> VReg {
        match self.entry {
            Entry::Saved(_) => self.argument(expr),
            Entry::Direct { .. } => self.pro(Pro::Started),
        }
    }

    /// Pushes an event of the kernel, whose name has the number `func`. Returns its start time.
    pub(super) fn begin_event(&mut self, func: Operand) -> VReg {
        let start = self.b().vreg();
        let [full, outside] = std::array::from_fn(|_| self.b().cold_block());
        let [there, after] = std::array::from_fn(|_| self.b().block());
        let stack = self.stack_of_thread(outside);
        let nesting = self.b().copy(EVENT);
        let depth = self.calls_above(stack, nesting);
        self.b().branch(Cmp::Uge, depth, LIMIT, full, there);

        self.b().switch_to(there);
        let call = self.call_at(stack, depth);
        let b = self.b();
        let now = b.call(Helper::KtimeGetNs, &[]);
        b.set(start, now);
        b.store(call, SP, Width::B64, EVENT);
        b.store(call, START, Width::B64, now);
        b.store(call, SEEN, Width::B32, 0);
        b.store(call, FUNC, Width::B32, func);
        // The last store: a timer may interrupt the program and read the stack.
        let depth_and_this = b.bin(Bin::Add, depth, 1);
        b.store(stack, CALLS, Width::B32, depth_and_this);
        b.jump(after);

        self.b().switch_to(full);
        self.count(CounterKind::NoRoomAround);
        self.b().jump(outside);
        self.b().switch_to(outside);
        let now = self.b().call(Helper::KtimeGetNs, &[]);
        self.b().set(start, now);
        self.b().jump(after);
        self.b().switch_to(after);
        start
    }

    /// Removes the event of the kernel, and calls in it whose return was missed.
    pub(super) fn end_event(&mut self) {
        let after = self.b().block();
        let stack = self.known_stack(after);
        let nesting = self.b().copy(EVENT);
        let depth = self.calls_above(stack, nesting);
        let calls = self.b().load(stack, CALLS, Width::B32, false);
        self.go_on_unless(Cmp::Ule, calls, depth, after);
        self.b().store(stack, CALLS, Width::B32, depth);
        self.b().fall_into(after);
    }

    /// Start time of the innermost enclosing tracked call, or 0 if there is none; for probes that are not on the
    /// stack themselves.
    pub(super) fn start_around(&mut self) -> VReg {
        let start = self.b().copy(0);
        let none = self.b().block();
        let stack = self.known_stack(none);
        let depth = self.depth_here(stack);
        self.go_on_unless(Cmp::Ult, depth, 1, none);
        let last = self.b().bin(Bin::Sub, depth, 1);
        let call = self.call_at(stack, last);
        let found = self.b().load(call, START, Width::B64, false);
        self.b().set(start, found);
        self.b().fall_into(none);
        start
    }

    /// The number by which a call is on its thread's stack of calls: enclosing calls have higher ones. It is the stack pointer or,
    /// at functions of the kernel, its offset in the kernel's stack, which is lower than any address in the program's stack.
    fn nesting(&mut self, side: Side) -> VReg {
        match (self.probe.attach.hook(), side) {
            (Some(Hook::Trampoline), _) => {
                let frame = self.context_address();
                self.b().bin(Bin::And, frame, KERNEL_STACK - 1)
            }
            (hook, side) => {
                let sp = if side == Side::Entry { self.entry_sp() } else { self.sp_at_entry_of_this() };
                match hook {
                    Some(hook) if hook.is_in_kernel() => self.b().bin(Bin::And, sp, KERNEL_STACK - 1),
                    _ => sp,
                }
            }
        }
    }

    /// Number of calls that enclose a probe which is not on the stack itself.
    fn depth_here(&mut self, stack: VReg) -> VReg {
        let nesting = match self.probe.attach {
            // The event encloses all but its own span.
            _ if self.ends_event() => self.b().copy(EVENT),
            Attach::Entry(..) => self.nesting(Side::Entry),
            Attach::Return(..) => self.nesting(Side::Return),
            // The tracer runs it, when no call is left.
            Attach::Event(_) if self.cx.runs_in_process() && self.probe.is_process_end() => {
                return self.b().copy(0);
            }
            Attach::Event(_) => return self.depth_of_tracepoint(stack),
        };
        self.calls_above(stack, nesting)
    }

    /// Number of calls that enclose a tracepoint: those above the stack pointer of the traced program. All calls if the last one
    /// is in the kernel, as the tracepoint then is in it.
    fn depth_of_tracepoint(&mut self, stack: VReg) -> VReg {
        let depth = self.b().vreg();
        let [of_program, last_in_kernel, after] = std::array::from_fn(|_| self.b().block());
        let calls = self.b().load(stack, CALLS, Width::B32, false);
        self.b().set(depth, calls);
        self.go_on_unless(Cmp::Ult, calls, 1, of_program);
        let last = self.b().bin(Bin::Sub, calls, 1);
        let call = self.call_at(stack, last);
        let nesting = self.b().load(call, SP, Width::B64, false);
        self.b().branch(Cmp::Ule, nesting, EVENT, last_in_kernel, of_program);

        self.b().switch_to(of_program);
        let (regs, sp) = (self.kernel_entry_regs(), self.machine().sp);
        let sp = self.b().load(regs, sp, Width::B64, false);
        let above = self.calls_above(stack, sp);
        self.b().set(depth, above);
        self.b().jump(after);
        self.b().switch_to(last_in_kernel);
        self.b().jump(after);
        self.b().switch_to(after);
        depth
    }

    /// Whether the probe removes an event of the kernel from the stack.
    fn ends_event(&self) -> bool {
        uses(self.probe, Builtin::EndEvent)
    }

    /// Address of the thread's call stack, which is created at the thread's first call. Jumps to `outside` if the
    /// map is full.
    fn stack_of_thread(&mut self, outside: crate::ir::BlockId) -> VReg {
        let map = self.cx.around_map();
        let bytes = self.cx.module.maps[map.0 as usize].value_size;
        let zeros = self.cx.zeros(bytes);
        let mark = self.mark();
        let key = self.thread_key();
        let stack = self.b().vreg();
        let found = self.lookup_raw(map, key);
        self.b().set(stack, found);
        let (create, exists) = (self.b().cold_block(), self.b().block());
        self.b().branch(Cmp::Eq, stack, 0, create, exists);
        self.b().switch_to(create);
        let key_at = self.pointer(key);
        let b = self.b();
        let (map_at, zeros) = (b.map_addr(map), b.data_addr(zeros));
        b.call_void(Helper::MapUpdateElem, &[map_at.into(), key_at.into(), zeros.into(), 0.into()]);
        let found = self.lookup_raw(map, key);
        self.b().set(stack, found);
        let none = self.b().cold_block();
        self.b().branch(Cmp::Eq, stack, 0, none, exists);
        self.b().switch_to(none);
        self.count(CounterKind::NoRoomAround);
        self.b().jump(outside);
        self.b().switch_to(exists);
        self.release(mark);
        stack
    }

    /// Address of the thread's call stack; jumps to `outside` if there is none.
    fn known_stack(&mut self, outside: crate::ir::BlockId) -> VReg {
        let map = self.cx.around_map();
        let mark = self.mark();
        let key = self.thread_key();
        let stack = self.lookup_raw(map, key);
        self.release(mark);
        self.go_on_unless(Cmp::Eq, stack, 0, outside);
        stack
    }

    fn thread_key(&mut self) -> super::place::Place {
        let thread = self.host_thread();
        let key = self.temp(8);
        self.store(key, Width::B64, thread);
        key
    }

    /// Address of a call, from which [`SP`] and the other offsets count.
    fn call_at(&mut self, stack: VReg, index: VReg) -> VReg {
        let b = self.b();
        let inside = b.bin(Bin::And, index, ROOM - 1);
        let offset = b.bin(Bin::Mul, inside, CALL);
        b.bin(Bin::Add, stack, offset)
    }

    /// Number of calls whose stack pointer is above `sp`. In most cases these are all calls, or all but the last.
    fn calls_above(&mut self, stack: VReg, sp: VReg) -> VReg {
        let depth = self.b().vreg();
        let calls = self.b().load(stack, CALLS, Width::B32, false);
        self.b().set(depth, calls);
        let found = self.b().block();
        for _ in 0..2 {
            self.go_on_unless(Cmp::Ult, depth, 1, found);
            let last = self.b().bin(Bin::Sub, depth, 1);
            let call = self.call_at(stack, last);
            let above = self.b().load(call, SP, Width::B64, false);
            self.go_on_unless(Cmp::Ugt, above, sp, found);
            self.b().set(depth, last);
        }
        let many = self.b().cold_block();
        self.b().branch(Cmp::Ult, depth, 1, found, many);
        self.b().switch_to(many);
        self.search_above(stack, depth, sp);
        self.b().jump(found);
        self.b().switch_to(found);
        depth
    }

    /// Binary search for that number among the first `depth` calls; stores the result in `depth`.
    fn search_above(&mut self, stack: VReg, depth: VReg, sp: VReg) {
        let low = self.b().copy(0);
        let mut step = ROOM / 2;
        while step > 0 {
            let next = self.b().block();
            let middle = self.b().bin(Bin::Add, low, step);
            self.go_on_unless(Cmp::Ugt, middle, depth, next);
            let last = self.b().bin(Bin::Sub, middle, 1);
            let call = self.call_at(stack, last);
            let above = self.b().load(call, SP, Width::B64, false);
            self.go_on_unless(Cmp::Ule, above, sp, next);
            self.b().set(low, middle);
            self.b().fall_into(next);
            step /= 2;
        }
        // The result goes through the memory of the stack: otherwise the kernel's verifier would follow each
        // possible result.
        self.b().store(stack, FOUND, Width::B32, low);
        let found = self.b().load(stack, FOUND, Width::B32, false);
        self.b().set(depth, found);
    }

    /// Reads the values that the body uses of the innermost of `depth` calls.
    fn look_around(&mut self, stack: VReg, depth: VReg) -> Vec<(Around, VReg)> {
        let mut values: Vec<(Around, VReg)> = vec![];
        for around in used_values(self.probe) {
            let reg = self.b().vreg();
            self.b().set(reg, if around == Around::Depth { depth.into() } else { absent(around) });
            values.push((around, reg));
        }
        let inner: Vec<_> = values.iter().filter(|(around, _)| *around != Around::Depth).copied().collect();
        if !inner.is_empty() {
            let after = self.b().block();
            self.go_on_unless(Cmp::Ult, depth, 1, after);
            let last = self.b().bin(Bin::Sub, depth, 1);
            let call = self.call_at(stack, last);
            for (around, reg) in inner {
                let value = match around {
                    Around::Start => self.b().load(call, START, Width::B64, false),
                    _ => self.b().load(call, FUNC, Width::B32, false),
                };
                self.b().set(reg, value);
            }
            self.b().fall_into(after);
        }
        values
    }

    /// Emits the block for calls without room on a stack, and continues after both.
    fn nothing_around(
        &mut self,
        values: &[(Around, VReg)],
        outside: crate::ir::BlockId,
        start: Option<VReg>,
    ) {
        let after = self.b().block();
        self.b().jump(after);
        self.b().switch_to(outside);
        if let Some(start) = start {
            let now = self.b().call(Helper::KtimeGetNs, &[]);
            self.b().set(start, now);
        }
        for (around, reg) in values {
            self.b().set(*reg, absent(*around));
        }
        self.b().jump(after);
        self.b().switch_to(after);
        for (around, reg) in values {
            self.give(Pro::Around(*around), *reg);
        }
    }
}

/// Whether the probe pushes an event of the kernel.
pub(super) fn begins_event(probe: &Probe) -> bool {
    uses(probe, Builtin::BeginEvent)
}

fn uses(probe: &Probe, builtin: Builtin) -> bool {
    let mut found = false;
    walk::each_of(probe, &mut |e| found |= matches!(e.kind, ExprKind::Builtin(used, _) if used == builtin));
    found
}

/// Value for a call without an enclosing call.
fn absent(around: Around) -> Operand {
    match around {
        Around::Depth | Around::Start => 0.into(),
        Around::Func { none } => i64::from(none.0).into(),
    }
}

/// The values of enclosing calls that a probe uses, without duplicates.
fn used_values(probe: &Probe) -> Vec<Around> {
    let mut used = vec![];
    walk::each_of(probe, &mut |e: &Expr| {
        if let ExprKind::Around(around) = e.kind
            && !used.contains(&around)
        {
            used.push(around);
        }
    });
    used
}
