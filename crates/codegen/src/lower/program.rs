//! One program per probe (and per number of pushed registers, if the body reads the stack): section, sites with their cookies,
//! guards, predicate, body, exits.

use super::body::Body;
use super::cookie_layout::CookieLayout;
use super::module::Cx;
use super::operations::Operations;
use super::prologue::{Entry, Pro, Stage};
use super::side::{Parts, ProgramPlace, by_shift, functions, without_sites};
use super::{abi, entry_return, walk};
use crate::bpf::helper::Helper;
use crate::ir::build::Builder;
use crate::ir::{BlockId, Cmp, FuncKind, ProgramInfo, Width};
use lang::Span;
use lang::hir::{Attach, Environment, Expr, ExprKind, Hook, Probe, Signature, Site, Stmt, StmtKind, Trigger};
use wire::Features;
use wire::manifest::{self, Side};

impl<'p> Cx<'p> {
    /// Lowers a probe to its programs.
    pub(super) fn probe(&mut self, probe: &'p Probe) {
        match &probe.attach {
            Attach::Event(trigger) => {
                let (word, section) = (trigger.word(), trigger.section());
                let attach = match self.runs_in_process() && probe.is_process_end() {
                    true => manifest::Attach::ProcessEnd,
                    false => manifest::Attach::Event(trigger.clone()),
                };
                self.simple_program(probe, word, &section, attach, CookieLayout::default(), 0);
            }
            Attach::Entry(_, sites) => {
                let tracked = self.program.is_tracked(probe);
                let depth_matters = tracked || self.reads_stack(probe);
                for (shift, sites) in by_shift(sites, depth_matters) {
                    match tracked {
                        true => self.tracked_entry(probe, &sites),
                        false => self.entry_program(probe, &sites, shift),
                    }
                }
            }
            Attach::Return(_, sites) => {
                let sites =
                    by_shift(sites, false).into_iter().flat_map(|(_, sites)| sites).collect::<Vec<_>>();
                self.return_program(probe, &sites);
            }
        }
    }

    /// Locations of the parameters, by case.
    pub(super) fn places(&self, probe: &Probe) -> Vec<Vec<Vec<abi::Piece>>> {
        let signatures = match &probe.cases[..] {
            [] => std::slice::from_ref(&probe.signature),
            cases => cases,
        };
        let of = |signature: &Option<Signature>| {
            let structs = &self.program.structs;
            let of = |signature| match probe.attach.hook() {
                Some(Hook::Trampoline) => abi::passed_places(signature, structs),
                _ => abi::places(self.options.arch, signature, structs),
            };
            signature.as_ref().map_or(Vec::new(), of)
        };
        signatures.iter().map(of).collect()
    }

    /// Whether the body uses the stack: the stack pointer, or an argument on the stack.
    fn reads_stack(&self, probe: &Probe) -> bool {
        let places = self.places(probe);
        let on_stack = |param: u32| {
            let of_cases = places.iter().filter_map(|places| places.get(param as usize));
            of_cases.flatten().any(abi::Piece::on_stack)
        };
        let mut reads = false;
        walk::each_of(probe, &mut |e| {
            reads |= match &e.kind {
                ExprKind::Reg(name) => name == "sp",
                ExprKind::Arg(n) => abi::machine(self.options.arch).arg(*n).on_stack(),
                ExprKind::Param(param) | ExprKind::ParamField { param, .. } => on_stack(*param),
                _ => false,
            }
        });
        reads
    }

    fn entry_program(&mut self, probe: &'p Probe, sites: &[Site], shift: u32) {
        let layout = CookieLayout::new(probe, &self.program.names, None);
        let place = self.at_functions(probe, Side::Entry, sites, &layout);
        self.simple_program(probe, place.word, &place.section, place.attach, layout, shift);
    }

    fn return_program(&mut self, probe: &'p Probe, sites: &[Site]) {
        if sites.is_empty() {
            return;
        }
        if entry_return::needs_entry(probe) || self.program.is_tracked(probe) {
            return self.paired(probe, sites);
        }
        let layout = CookieLayout::new(probe, &self.program.names, None);
        let place = self.at_functions(probe, Side::Return, sites, &layout);
        self.simple_program(probe, place.word, &place.section, place.attach, layout, 0);
    }

    /// The place of a program at functions.
    pub(super) fn at_functions(
        &self,
        probe: &Probe,
        side: Side,
        sites: &[Site],
        layout: &CookieLayout,
    ) -> ProgramPlace {
        let hook = probe.attach.hook().expect("a program at functions");
        let section = match hook {
            Hook::Trampoline => self.trampoline_section(side, &sites[0]),
            _ => register_section(hook, side, &self.options.features).to_owned(),
        };
        let word = hook.probe_type(side == Side::Return);
        ProgramPlace { word, section, attach: functions(hook, side, sites, layout) }
    }

    /// `fentry/nvidia:nvidia_open`: libbpf takes module and function from the section.
    fn trampoline_section(&self, side: Side, site: &Site) -> String {
        let kind = Hook::Trampoline.probe_type(side == Side::Return);
        format!("{kind}/{}:{}", site.module, self.program.names.funcs[site.func.0 as usize])
    }

    /// Lowers a program with one side.
    fn simple_program(
        &mut self,
        probe: &'p Probe,
        word: &str,
        section: &str,
        attach: manifest::Attach,
        layout: CookieLayout,
        shift: u32,
    ) {
        let mut body = self.begin(probe, word, section, attach);
        body.cookie = layout;
        body.new_side(Entry::Direct { shift });
        body.side(Parts {
            before: &mut |_, _| {},
            predicate: probe.predicate.iter().collect(),
            body: &mut |body| match probe.records {
                Some(_) => body.for_records(&probe.body),
                None => body.statements(&probe.body),
            },
            skipped: 0,
            refused: 0,
            filtered: body.cx.is_filtered(probe),
            variables: true,
        });
        body.finish();
    }

    /// Whether the programs of a probe run in the traced processes only.
    pub(super) fn is_filtered(&self, probe: &Probe) -> bool {
        let is_of_kernel = probe.attach.hook().is_none_or(Hook::is_in_kernel);
        probe.attach.environment().is_none_or(Environment::has_process)
            && !(is_of_kernel && self.program.config.events_of_all)
    }

    /// Starts the program of a call's side without the body.
    pub(super) fn begin_auxiliary<'c>(
        &'c mut self,
        probe: &'p Probe,
        word: &str,
        section: &str,
        attach: manifest::Attach,
    ) -> Body<'c, 'p> {
        let body = self.begin(probe, word, section, attach);
        if let Some(program) = body.cx.manifest.programs.last_mut() {
            program.auxiliary = true;
        }
        body
    }

    /// Starts a program, whose name has its index in the manifest, and adds it to the manifest.
    pub(super) fn begin<'c>(
        &'c mut self,
        probe: &'p Probe,
        word: &str,
        section: &str,
        attach: manifest::Attach,
    ) -> Body<'c, 'p> {
        let symbol = format!("{word}{}", self.manifest.programs.len());
        let place = self.place(probe.span);
        self.manifest.programs.push(manifest::Program {
            symbol: symbol.clone(),
            clause: probe.clause,
            place,
            text: self.src.slice(probe.span).to_owned(),
            attach: attach.clone(),
            auxiliary: probe.span == Span::default(),
        });
        let info = ProgramInfo { clause: probe.clause, attach: without_sites(attach) };
        let kind = FuncKind::Program { section: section.to_owned(), info };
        let builder = Builder::new(symbol.clone(), kind, probe.span);
        Body::new(self, probe, builder, symbol)
    }
}

/// Section of programs at functions whose context has registers.
fn register_section(hook: Hook, side: Side, features: &Features) -> &'static str {
    let multi = match hook {
        Hook::Uprobe => features.uprobe_multi,
        Hook::Kprobe => features.kprobe_multi,
        Hook::SingleKprobe | Hook::Trampoline => false,
    };
    match (hook.is_in_kernel(), side, multi) {
        (false, Side::Entry, true) => "uprobe.multi",
        (false, Side::Entry, false) => "uprobe",
        (false, Side::Return, true) => "uretprobe.multi",
        (false, Side::Return, false) => "uretprobe",
        (false, Side::Session, _) => "uprobe.session",
        (true, Side::Entry, true) => "kprobe.multi",
        (true, Side::Entry, false) => "kprobe",
        (true, Side::Return, true) => "kretprobe.multi",
        (true, Side::Return, false) => "kretprobe",
        (true, Side::Session, _) => "kprobe.session",
    }
}

/// Whether each call of a function makes the tracer print or export something.
fn prints_calls(probe: &Probe) -> bool {
    let prints = |stmt: &Stmt| {
        matches!(
            stmt.kind,
            StmtKind::Printf { .. }
                | StmtKind::Message { .. }
                | StmtKind::Rows { .. }
                | StmtKind::Export { .. }
                | StmtKind::PrintValue(_)
                | StmtKind::PrintEntry { .. }
                | StmtKind::PrintMap { .. }
                | StmtKind::Time(_)
        )
    };
    probe.attach.environment().is_none() && walk::any_stmt(&probe.body, &mut |stmt| prints(stmt))
}

impl<'c, 'p> Body<'c, 'p> {
    /// Emits one side, from the current block to its returns.
    pub(super) fn side(&mut self, parts: Parts<'_, 'c, 'p>) {
        let b = self.b();
        let [guard_pros, guard, predicate_pros, predicate, body_pros, body] =
            std::array::from_fn(|_| b.block());
        let [done, done_end, refused, unrun, skip] = std::array::from_fn(|_| b.block());
        (self.without_scratch, self.refused) = (unrun, refused);
        self.b().jump(guard_pros);

        self.b().switch_to(guard);
        self.guards(parts.filtered, skip);
        (parts.before)(self, skip);
        self.b().jump(predicate_pros);

        self.stage = Stage::Predicate;
        self.b().switch_to(predicate);
        // Conditions that walk a stack run late: the walk is a callback, whose frame is set up for the body only.
        let (late, early): (Vec<_>, Vec<_>) = parts.predicate.into_iter().partition(|e| self.has_walk(e));
        self.conditions(&early, refused);
        self.b().jump(body_pros);

        self.stage = Stage::Body;
        self.fun().leave = done;
        self.b().switch_to(body);
        if parts.variables {
            self.place_variables();
        }
        self.conditions(&late, done);
        (parts.body)(self);
        self.b().jump(done);

        self.exits(done, done_end, refused, unrun);
        let scratch = self.pros.get(&Pro::Scratch).is_some_and(|value| value.stage == Stage::Guard);
        match parts.refused == parts.skipped && !scratch {
            true => self.b().fall_into(skip),
            false => {
                self.b().ret(parts.refused);
                self.b().switch_to(skip);
            }
        }
        if scratch {
            self.release_scratch();
        }
        self.b().ret(parts.skipped);
        self.prologues([(guard_pros, guard), (predicate_pros, predicate), (body_pros, body)]);
    }

    /// Continues if all conditions hold, otherwise jumps to `otherwise`.
    fn conditions(&mut self, conditions: &[&Expr], otherwise: BlockId) {
        for condition in conditions {
            let holds = self.b().block();
            self.at(condition.span, |body| body.cond(condition, holds, otherwise));
            self.b().switch_to(holds);
        }
    }

    /// Jumps to `skip` in processes that are not traced, and after the end of the session.
    fn guards(&mut self, filtered: bool, skip: BlockId) {
        if filtered && self.cx.options.pid_filter {
            self.pid_filter(skip);
        } else if let Some(own) = self.cx.options.own_process.filter(|_| filtered && prints_calls(self.probe))
        {
            let thread = self.pro(Pro::Thread);
            let tgid = self.b().bin(crate::ir::Bin::Shr, thread, 32);
            self.go_on_unless(Cmp::Eq, tgid, i64::from(own), skip);
        }
        if let (Some(Environment::Item), Some(signature)) =
            (self.probe.attach.environment(), &self.probe.signature)
        {
            let item = self.context(signature.offsets[0] as i16, Width::B64, false);
            self.go_on_unless(Cmp::Eq, item, 0, skip);
        }
        if self.probe.attach != Attach::Event(Trigger::End) {
            self.exit_test(skip);
        }
    }

    fn pid_filter(&mut self, skip: BlockId) {
        let map = self.cx.pids();
        let key = self.temp(8);
        let traced = self.b().block();
        if self.cx.options.pid_namespace.is_some() {
            let global = self.b().call(Helper::GetCurrentPidTgid, &[]);
            let global = self.b().bin(crate::ir::Bin::Shr, global, 32);
            let global = self.b().bin(crate::ir::Bin::Or, global, i64::from(manifest::GLOBAL_PID));
            self.store(key, Width::B32, global);
            let cell = self.lookup_raw(map, key);
            self.go_on_unless(Cmp::Ne, cell, 0, traced);
        }
        let thread = self.pro(Pro::Thread);
        let tgid = self.b().bin(crate::ir::Bin::Shr, thread, 32);
        self.store(key, Width::B32, tgid);
        let cell = self.lookup_raw(map, key);
        self.b().branch(Cmp::Eq, cell, 0, skip, traced);
        self.b().switch_to(traced);
    }

    fn exit_test(&mut self, skip: BlockId) {
        let cell = self.control_cell();
        let exited = self.b().load(cell, manifest::CONTROL_EXITED as i16, Width::B64, false);
        self.go_on_unless(Cmp::Ne, exited, 0, skip);
    }

    /// Address of the control cell.
    pub(super) fn control_cell(&mut self) -> crate::ir::VReg {
        let map = self.cx.control();
        self.b().value_addr(map, 0)
    }

    fn exits(&mut self, done: BlockId, done_end: BlockId, refused: BlockId, unrun: BlockId) {
        let scratch = self.pros.get(&Pro::Scratch).map(|value| value.stage);
        self.b().switch_to(done);
        if scratch.is_some() {
            self.release_scratch();
        }
        self.b().fall_into(done_end);
        self.b().ret(0);
        self.b().switch_to(refused);
        if scratch.is_some_and(|stage| stage < Stage::Body) {
            self.release_scratch();
        }
        self.b().fall_into(unrun);
    }

    fn prologues(&mut self, blocks: [(BlockId, BlockId); 3]) {
        for (stage, (pros, code)) in [Stage::Guard, Stage::Predicate, Stage::Body].into_iter().zip(blocks) {
            self.b().switch_to(pros);
            self.make_pros(stage);
            if stage == Stage::Body {
                self.init_variables();
            }
            self.b().jump(code);
        }
    }

    /// Adds the finished program to the module.
    pub(super) fn finish(mut self) {
        let fun = self.fns.pop().expect("the program itself");
        self.cx.add(fun.b.finish());
    }

    /// Lowers the statements of a clause, each with its own temporaries.
    pub(super) fn statements(&mut self, body: &[Stmt]) {
        for stmt in body {
            let mark = self.mark();
            self.at(stmt.span, |lower| lower.stmt(stmt));
            self.release(mark);
        }
    }

    /// tgid and tid in the initial pid namespace, or in the tracer's if it has its own (0 outside of it).
    pub(super) fn current_thread(&mut self) -> crate::ir::VReg {
        let Some((device, inode)) = self.cx.options.pid_namespace else {
            return self.b().call(Helper::GetCurrentPidTgid, &[]);
        };
        let place = self.temp(8);
        self.zero(place, 8);
        let at = self.pointer(place);
        let args = [(device as i64).into(), (inode as i64).into(), at.into(), 8.into()];
        self.b().call_void(Helper::GetNsCurrentPidTgid, &args);
        // struct bpf_pidns_info { u32 pid, tgid }: `pid` is the thread id.
        self.load(place, Width::B64, false)
    }
}
