//! Statements.

use super::state::{Later, MOST_ROUNDS, Meaning, Run};
use super::value::Val;
use crate::outcome::{Loss, Signal, Value, What};
use crate::world::Moment;
use lang::hir::{Expr, ExprKind, MapId, Stmt, StmtKind, VarId};

/// Control flow after a statement.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Flow {
    /// Continue with the next statement.
    Next,
    /// Leave the loop.
    Break,
    /// Begin the next round.
    Continue,
    /// Leave the clause; in the work on a record, leave that.
    Leave,
    /// Leave the clause, and end the program.
    Exit,
}

impl Meaning<'_> {
    /// Runs statements.
    pub(super) fn block(&mut self, run: &mut Run, stmts: &[Stmt]) -> Flow {
        for stmt in stmts {
            match self.stmt(run, stmt) {
                Flow::Next => {}
                other => return other,
            }
        }
        Flow::Next
    }

    fn stmt(&mut self, run: &mut Run, stmt: &Stmt) -> Flow {
        match &stmt.kind {
            StmtKind::SetVar { var, value } => run.vars[var.0 as usize] = self.eval(run, value),
            StmtKind::SetMap { map, key, value } => {
                let key = self.values(run, key);
                let value = self.eval(run, value);
                self.set(*map, key, value);
            }
            StmtKind::Aggregate { map, key, arg } => {
                let key = self.values(run, key);
                let sample = arg.as_ref().map_or(0, |arg| self.eval(run, arg).num());
                self.aggregate(*map, key, sample, run.moment.time_ns);
            }
            StmtKind::Expr(expr) => self.effect(run, expr),
            StmtKind::If { cond, then, otherwise } => {
                let taken = self.eval(run, cond).truth();
                return self.block(run, if taken { then } else { otherwise });
            }
            StmtKind::While { cond, body } => return self.while_loop(run, cond, body),
            StmtKind::Unroll { count, body } => return self.rounds(run, 0..i64::from(*count), None, body),
            StmtKind::ForRange { var, start, end, body } => {
                let start = self.eval(run, start).num();
                let end = self.eval(run, end).num();
                return self.rounds(run, start..end, Some(*var), body);
            }
            StmtKind::ForMap { var, map, body } => return self.map_loop(run, *var, *map, body),
            StmtKind::Break => return Flow::Break,
            StmtKind::Continue => return Flow::Continue,
            StmtKind::Return(value) => {
                run.returned = value.as_ref().map_or(0, |value| self.eval(run, value).num());
                return Flow::Leave;
            }
            StmtKind::Exit { code } => {
                let code = self.eval(run, code).num();
                run.queue.push(Later::Emit(What::Exit(code)));
                return Flow::Exit;
            }
            StmtKind::Message { what, format, args, .. } => {
                let values = self.formatted(run, args);
                run.queue.push(Later::Emit(What::Message(*what, format.clone(), values)));
            }
            StmtKind::Printf { format, args } => {
                let values = self.formatted(run, args);
                run.queue.push(Later::Emit(What::Printf(format.clone(), values)));
            }
            StmtKind::Rows { top, none, .. } => {
                run.queue.push(Later::Emit(What::Rows(*top, none.clone())));
            }
            StmtKind::Signal { number, thread } => {
                let number = self.eval(run, number).num() as u32;
                let Moment { tgid, tid, .. } = *run.moment;
                self.outcome.signals.push(Signal { tgid, tid, number, thread: *thread });
            }
            StmtKind::PrintValue(expr) => {
                let value = self.eval(run, expr);
                run.queue.push(Later::Emit(What::Print(self.to_value(&value, &expr.ty))));
            }
            StmtKind::Export { what, hidden, fields, .. } => {
                let all = hidden.iter().map(|(_, e)| e).chain(fields.iter().map(|(_, e)| e));
                let values: Vec<_> = all.map(|e| (self.eval(run, e), &e.ty)).collect();
                let values = values.iter().map(|(value, ty)| self.to_value(value, ty)).collect();
                run.queue.push(Later::Emit(What::Export(what.function(), values)));
            }
            StmtKind::PrintEntry { map, key } => {
                let key = self.values(run, key);
                run.queue.push(Later::PrintEntry(*map, key));
            }
            StmtKind::PrintMap { map, top, div } => run.queue.push(Later::PrintMap(*map, *top, *div)),
            StmtKind::Clear(map) => run.queue.push(Later::Clear(*map)),
            StmtKind::Zero(map) => run.queue.push(Later::Zero(*map)),
            StmtKind::Time(format) => run.queue.push(Later::Emit(What::Time(format.clone()))),
        }
        Flow::Next
    }

    fn formatted(&mut self, run: &mut Run, args: &[Expr]) -> Vec<Value> {
        let values: Vec<_> = args.iter().map(|arg| (self.eval(run, arg), &arg.ty)).collect();
        values.iter().map(|(value, ty)| self.to_value(value, ty)).collect()
    }

    /// A text, tuple or struct that nobody uses is not evaluated, unless that changes something.
    fn effect(&mut self, run: &mut Run, expr: &Expr) {
        use lang::hir::Type::*;
        let is_large = matches!(
            expr.ty,
            Str(_) | Tuple(_) | Record(..) | Either(_) | Struct(_) | Array(..) | Usym | Buf(_) | Inet
        );
        if is_large && !expr.changes() {
            return;
        }
        let result = self.eval(run, expr);
        if let ExprKind::Delete { map, .. } = &expr.kind
            && !result.truth()
        {
            self.loss(Loss::MissingKey(self.program.maps[map.0 as usize].name.clone()));
        }
    }

    fn while_loop(&mut self, run: &mut Run, cond: &Expr, body: &[Stmt]) -> Flow {
        let limit = self.program.config.max_loop_iterations;
        for round in 0..=limit {
            if !self.spend_round() {
                return Flow::Exit;
            }
            if !self.eval(run, cond).truth() {
                return Flow::Next;
            }
            if round == limit {
                self.loss(Loss::LoopLimit);
                return Flow::Next;
            }
            match self.block(run, body) {
                Flow::Break => return Flow::Next,
                left @ (Flow::Leave | Flow::Exit) => return left,
                Flow::Next | Flow::Continue => {}
            }
        }
        Flow::Next
    }

    /// Counts a round of a loop; false beyond the limit, where the program is not interpreted further.
    fn spend_round(&mut self) -> bool {
        self.rounds += 1;
        self.rounds <= MOST_ROUNDS
    }

    fn rounds(
        &mut self,
        run: &mut Run,
        range: std::ops::Range<i64>,
        var: Option<VarId>,
        body: &[Stmt],
    ) -> Flow {
        for i in range {
            if !self.spend_round() {
                return Flow::Exit;
            }
            if let Some(var) = var {
                run.vars[var.0 as usize] = Val::Num(i);
            }
            match self.block(run, body) {
                Flow::Break => break,
                left @ (Flow::Leave | Flow::Exit) => return left,
                Flow::Next | Flow::Continue => {}
            }
        }
        Flow::Next
    }

    fn map_loop(&mut self, run: &mut Run, var: VarId, map: MapId, body: &[Stmt]) -> Flow {
        for mut key in self.keys(map) {
            let Some(slot) = self.unused_slot(map, &key) else { continue };
            let value = self.slot_value(map, slot);
            let key = if key.len() == 1 { key.remove(0) } else { Val::Tuple(key) };
            run.vars[var.0 as usize] = Val::Tuple(vec![key, value]);
            match self.block(run, body) {
                Flow::Break => break,
                left @ (Flow::Leave | Flow::Exit) => return left,
                Flow::Next | Flow::Continue => {}
            }
        }
        Flow::Next
    }
}
