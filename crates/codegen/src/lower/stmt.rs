//! Statements.

use super::body::{Body, FRAME_LEFT, LEFT_CLAUSE, LEFT_RECORD};
use super::event;
use super::operations::Operations;
use super::place::{Base, Place};
use crate::bpf::helper::Helper;
use crate::ir::{Bin, Cmp, Width};
use lang::hir::{Attach, Expr, ExprKind, Stmt, StmtKind, Trigger};
use wire::CounterKind;
use wire::manifest::{CONTROL_EXITED, CONTROL_RETURNED, EXIT_SHIFT, EXITED, EventKind};

impl<'p> Body<'_, 'p> {
    /// Lowers a statement.
    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::SetVar { var, value } => self.set_variable(*var, value),
            StmtKind::SetMap { map, key, value } => self.set_map(*map, key, value),
            StmtKind::Aggregate { map, key, arg } => self.aggregate(*map, key, arg.as_ref()),
            StmtKind::Expr(expr) => self.effect(expr),
            StmtKind::If { cond, then, otherwise } => self.if_else(cond, then, otherwise),
            StmtKind::While { cond, body } => self.while_loop(cond, body),
            StmtKind::Unroll { count, body } => self.unroll(*count, body),
            StmtKind::ForRange { var, start, end, body } => self.for_range(*var, start, end, body),
            StmtKind::ForMap { var, map, body } => self.for_map(*var, *map, body),
            StmtKind::Break => self.leave_loop(|around| around.stop),
            StmtKind::Continue => self.leave_loop(|around| around.next),
            StmtKind::Return(value) => self.return_from(value.as_ref()),
            StmtKind::Exit { code } => self.exit(code),
            StmtKind::Printf { format, args } => {
                let args: Vec<&Expr> = args.iter().collect();
                self.event(EventKind::Printf { format: format.clone() }, &args);
            }
            StmtKind::Message { what, format, args, calls } => {
                let args: Vec<&Expr> = args.iter().collect();
                let kind = self.message(*what, format, calls);
                self.event(kind, &args);
            }
            StmtKind::Rows { top, none, name } => {
                self.event(EventKind::Rows { top: *top, none: none.clone(), name: name.clone() }, &[]);
            }
            StmtKind::Signal { number, thread } => self.signal(number, *thread),
            StmtKind::Export { what, name, hidden, fields } => {
                let kind = event::exported(*what, name.as_deref(), hidden, fields);
                let hidden = hidden.iter().map(|(_, value)| value);
                let values: Vec<&Expr> = hidden.chain(fields.iter().map(|(_, value)| value)).collect();
                self.event(kind, &values);
            }
            StmtKind::PrintValue(value) => self.event(EventKind::Print, &[value]),
            StmtKind::PrintEntry { map, key } => self.print_entry(*map, key),
            StmtKind::PrintMap { map, top, div } => {
                self.event(EventKind::PrintMap { map: map.0, top: *top, div: *div }, &[]);
            }
            StmtKind::Clear(map) => self.event(EventKind::Clear { map: map.0 }, &[]),
            StmtKind::Zero(map) => self.event(EventKind::Zero { map: map.0 }, &[]),
            StmtKind::Time(format) => self.event(EventKind::Time { format: format.clone() }, &[]),
        }
    }

    /// `@x++;`, `delete(@x);`: evaluates an expression whose value is not used.
    fn effect(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::UpdateMap { map, key, op, value, .. } => {
                self.at(expr.span, |body| body.update_map(*map, key, *op, value, None));
            }
            ExprKind::Delete { map, key } => {
                let deleted = self.delete(*map, key);
                self.count_if(crate::ir::Cmp::Eq, deleted, 0, CounterKind::MissingKey(map.0));
            }
            _ if super::place::is_scalar(&expr.ty) && expr.ty != lang::hir::Type::Void => {
                self.scalar(expr);
            }
            _ if expr.changes() => {
                self.place(expr);
            }
            _ => {}
        }
    }

    fn if_else(&mut self, cond: &Expr, then: &[Stmt], otherwise: &[Stmt]) {
        let [yes, no, after] = std::array::from_fn(|_| self.b().block());
        self.cond(cond, yes, no);
        self.b().switch_to(yes);
        self.statements(then);
        self.b().jump(after);
        self.b().switch_to(no);
        self.statements(otherwise);
        self.b().fall_into(after);
    }

    /// `return`, `return 1`: the value of a test goes into the control cell, so that callbacks can also return
    /// one.
    fn return_from(&mut self, value: Option<&Expr>) {
        if let Some(value) = value {
            let value = self.scalar(value);
            let value = self.b().copy(value);
            let cell = self.control_cell();
            self.b().store(cell, CONTROL_RETURNED as i16, Width::B64, value);
        }
        match self.record {
            None => self.leave(LEFT_CLAUSE),
            Some(record) if record.level == self.fns.len() => self.b().jump(record.next),
            Some(_) => self.leave(LEFT_RECORD),
        }
    }

    /// Leaves the current function: a callback also sets the word in the frame, which the functions around it test.
    fn leave(&mut self, left: i64) {
        if !self.in_program() {
            let place = Place { base: Base::Frame, off: FRAME_LEFT as i32 };
            self.store(place, Width::B64, left);
        }
        let to = self.fun().leave;
        self.b().jump(to);
    }

    /// `exit(code)`: the word in the control cell stops all bodies; the record has its order among other events.
    /// The first of several wins. END runs when the word is already set, so only its record counts.
    fn exit(&mut self, code: &Expr) {
        let value = self.scalar(code);
        let value = self.b().copy(value);
        let after = self.b().block();
        if self.probe.attach != Attach::Event(Trigger::End) {
            let cell = self.control_cell();
            let shifted = self.b().bin(Bin::Shl, value, i64::from(EXIT_SHIFT));
            let word = self.b().bin(Bin::Or, shifted, EXITED as i64);
            let running = self.b().copy(0);
            let before = self.b().cmpxchg(cell, CONTROL_EXITED as i16, running, word);
            self.go_on_unless(Cmp::Ne, before, 0, after);
        }
        self.number_event(EventKind::Exit, code, value);
        self.b().fall_into(after);
        self.leave(LEFT_CLAUSE);
    }

    /// `signal(n)`
    fn signal(&mut self, number: &Expr, thread: bool) {
        let number = self.scalar(number);
        let helper = if thread { Helper::SendSignalThread } else { Helper::SendSignal };
        let failed = self.b().call(helper, &[number]);
        self.count_if(Cmp::Ne, failed, 0, CounterKind::UnsentSignal);
    }

    /// `print(@m[k])` of a histogram or another aggregation
    fn print_entry(&mut self, map: lang::hir::MapId, key: &[Expr]) {
        let values: Vec<&Expr> = key.iter().collect();
        self.event(EventKind::PrintEntry { map: map.0 }, &values);
    }
}
