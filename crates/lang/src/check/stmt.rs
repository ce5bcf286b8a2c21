//! Statements, and which variables are set on all paths to each of them.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::builtins::row::{Check, Kind};
use crate::builtins::table;
use crate::check::Checker;
use crate::check::comptime::decided_early;
use crate::check::slots::Slot;
use crate::hir::const_eval::truth;
use crate::hir::make::{convert, expr, is_unknown};
use crate::hir::{BinaryOp, Effects, Expr, ExprKind, MapId, NameKind, Stmt, StmtKind, Type, VarId, Yields};
use crate::limits;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::{Block, ExprKind as Ast, StmtKind as AstStmt};

impl Checker<'_> {
    /// A block, with a scope for its variables.
    pub(crate) fn block(&mut self, block: &Block) -> Vec<Stmt> {
        let start = self.scope.enter_block();
        let stmts = self.stmts(block);
        self.scope.leave_block(start);
        stmts
    }

    /// A block's statements. Code after `return` is checked too, with a warning.
    pub(crate) fn stmts(&mut self, block: &Block) -> Vec<Stmt> {
        let mut out = Vec::new();
        self.scope.ended = false;
        let mut warned = false;
        for stmt in &block.stmts {
            if self.scope.ended && !warned {
                self.warning("W0252", stmt.span, "this statement is never reached");
                warned = true;
            }
            let ended = self.scope.ended;
            self.stmt(stmt, &mut out);
            self.scope.ended |= ended;
        }
        out
    }

    fn stmt(&mut self, stmt: &ast::Stmt, out: &mut Vec<Stmt>) {
        let span = stmt.span;
        let (copies, statements) = self.scope.unrolled;
        if copies > 1 {
            self.scope.unrolled.1 = statements.saturating_add(copies);
        }
        let kind = match &stmt.kind {
            AstStmt::Expr(e) => return self.expr_stmt(e, span, out),
            AstStmt::Let { name, ty, value } => self.let_stmt(name, ty.as_ref(), value.as_ref(), span),
            AstStmt::Assign { target, op: None, value } if self.ends_in_aggregation(value) => {
                return self.aggregate_after_block(target, value, span, out);
            }
            AstStmt::Assign { target, op, value } => self.assign(target, *op, value, span),
            AstStmt::If { cond, then, otherwise } => self.if_stmt(cond, then, otherwise.as_ref(), out),
            AstStmt::While { cond, body } => Some(self.while_stmt(cond, body)),
            AstStmt::Unroll { count, body } => self.unroll(count, body),
            AstStmt::ForRange { var, start, end, body } => Some(self.for_range(var, start, end, body)),
            AstStmt::ForMap { var, map, body } => self.for_map(var, map, body),
            AstStmt::Block(block) => {
                out.extend(self.in_expansion(block.span, |checker| checker.block(block)));
                None
            }
            AstStmt::Break => self.leave(StmtKind::Break, "break", span),
            AstStmt::Continue => self.leave(StmtKind::Continue, "continue", span),
            AstStmt::Return(value) => {
                self.may_leave(span, "return").then(|| self.return_stmt(value.as_ref()))
            }
        };
        out.extend(kind.map(|kind| Stmt { kind, span }));
    }

    fn leave(&mut self, kind: StmtKind, word: &str, span: Span) -> Option<StmtKind> {
        if self.scope.loops == 0 {
            self.error("E0225", span, format!("`{word}` outside of a loop"))
                .help("leave a clause by `return`");
            return None;
        }
        self.scope.ended = true;
        Some(kind)
    }

    /// Reports a jump out of a block before its value is computed.
    pub(crate) fn may_leave(&mut self, span: Span, word: &str) -> bool {
        if self.scope.in_value {
            self.error("E0225", span, format!("`{word}` leaves a block before its value is computed"))
                .help("use it in a statement of the clause itself");
        }
        !self.scope.in_value
    }

    /// `return`, `return 1`: only tests use the value.
    fn return_stmt(&mut self, value: Option<&ast::Expr>) -> StmtKind {
        let value = value.and_then(|value| self.returned(value));
        self.scope.ended = true;
        StmtKind::Return(value)
    }

    fn returned(&mut self, value: &ast::Expr) -> Option<Expr> {
        if self.context.probe_type == "test" {
            let value = self.number(value, "the result of a test");
            return Some(convert(value, &Type::I64));
        }
        self.expr(value);
        self.warning("W0253", value.span, "the value of `return` is not used");
        None
    }

    /// An action, an update, or an unused value.
    fn expr_stmt(&mut self, e: &ast::Expr, span: Span, out: &mut Vec<Stmt>) {
        match &e.kind {
            Ast::Call { name, args } if is_kind(&name.node, Kind::Action) => {
                let kind = self.action(name, args, e.span, out);
                out.extend(kind.map(|kind| Stmt { kind, span }));
            }
            Ast::Call { name, args } if name.node == "delete" && !args.is_empty() => {
                let deletes = self.delete(args, e.span);
                out.extend(deletes.into_iter().map(|e| Stmt { kind: StmtKind::Expr(e), span }));
            }
            // `c ? printf(...) : 0` is an `if` statement.
            Ast::Ternary { cond, then: Some(then), otherwise } if acts(then) || acts(otherwise) => {
                let as_block = |e: &ast::Expr| match e.kind {
                    Ast::Int { .. } => Block { stmts: Vec::new(), span: e.span },
                    _ => {
                        let kind = AstStmt::Expr(e.clone());
                        Block { stmts: vec![ast::Stmt { kind, span: e.span }], span: e.span }
                    }
                };
                let kind = self.if_stmt(cond, &as_block(then), Some(&as_block(otherwise)), out);
                out.extend(kind.map(|kind| Stmt { kind, span }));
            }
            _ => self.value_stmt(e, span, out),
        }
    }

    fn value_stmt(&mut self, e: &ast::Expr, span: Span, out: &mut Vec<Stmt>) {
        let value = self.expr(e);
        if is_unknown(&value) {
            return;
        }
        let on_purpose = self.src.slice(span).starts_with('_') && span.start != e.span.start;
        if value.kind.effects() != Effects::Changes && !on_purpose {
            let text = self.src.slice(e.span);
            let message = match text.len() < 40 && !text.is_empty() {
                true => format!("the value of `{text}` is not used"),
                false => "this value is not used".to_string(),
            };
            let compares = matches!(e.kind, ast::ExprKind::Binary { op: ast::BinaryOp::Eq, .. });
            let help = if compares {
                "`=` assigns, `==` compares"
            } else {
                "print it, assign it, or write `_ = ...`"
            };
            self.warning("W0253", e.span, message).help(help);
        }
        out.push(Stmt { kind: StmtKind::Expr(value), span });
    }

    fn action(
        &mut self,
        name: &ast::Name,
        args: &[ast::Expr],
        span: Span,
        out: &mut Vec<Stmt>,
    ) -> Option<StmtKind> {
        let Check::Action(check) = self.builtin_call(name, args, span)?.check else { return None };
        check(self, &Call { name: &name.node, args, span }, out)
    }

    fn let_stmt(
        &mut self,
        name: &ast::Name,
        ty: Option<&ast::TypeName>,
        value: Option<&ast::Expr>,
        span: Span,
    ) -> Option<StmtKind> {
        let value = value.map(|value| self.expr(value));
        let id = self.scope.declare_in_block(&name.node, name.span);
        if let Some(ty) = ty {
            let ty = if ty.name == "string" && ty.pointers == 0 {
                Some(Type::Str(self.config.max_strlen))
            } else {
                self.spelled(ty)
            };
            self.scope.var(id).slot.set(ty.map(Slot::fixed).unwrap_or_default());
        }
        match value {
            Some(value) => self.set_var(id, value),
            None => self.zeroed(id, span),
        }
    }

    /// `let $x;` resets the variable on each iteration, and for each record; outside of loops variables are zero anyway.
    fn zeroed(&mut self, var: VarId, span: Span) -> Option<StmtKind> {
        let is_repeated = self.scope.loops > 0 || self.scope.in_value || self.context.gpu.is_some();
        let ty = self.scope.var(var).slot.get().ty(&self.types).filter(|_| is_repeated)?;
        Some(StmtKind::SetVar { var, value: expr(ExprKind::Zero, ty, span) })
    }

    /// `{ let $n = 100; avg($n) }`
    fn ends_in_aggregation(&self, value: &ast::Expr) -> bool {
        let Ast::Block { value: Some(last), .. } = &value.kind else { return false };
        matches!(&last.kind, Ast::Call { name, .. } if is_kind(&name.node, Kind::Aggregation))
    }

    /// `@m = { let $n = 100; avg($n) }`: the statements, and then `@m = avg($n)`.
    fn aggregate_after_block(
        &mut self,
        target: &ast::Expr,
        value: &ast::Expr,
        span: Span,
        out: &mut Vec<Stmt>,
    ) {
        let Ast::Block { body, value: Some(last) } = &value.kind else { return };
        let start = self.scope.enter_block();
        out.extend(self.stmts(body));
        let kind = self.assign(target, None, last, span);
        self.scope.leave_block(start);
        out.extend(kind.map(|kind| Stmt { kind, span }));
    }

    /// `target = value`, `target += value`
    fn assign(
        &mut self,
        target: &ast::Expr,
        op: Option<BinaryOp>,
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        match (&target.kind, op) {
            (Ast::Map { name, keys }, None) => self.set_map(name, keys.as_deref(), value, span),
            (Ast::Map { name, keys }, Some(op)) => {
                let value = self.expr(value);
                effect(self.update_map(name, keys.as_deref(), op, value, Yields::New, span))
            }
            (Ast::Var(name), None) => {
                if let Some((agg, _)) = self.aggregation(value) {
                    let message = format!(
                        "`{}` must be assigned directly to a map",
                        crate::check::slots::agg_name(&agg)
                    );
                    self.error("E0218", value.span, message).help(format!("write `@{name} = ...`"));
                    // Uses of the variable are no further mistakes.
                    let id = self.scope.lookup_or_add(name, target.span);
                    self.scope.set(id);
                    return None;
                }
                let value = self.expr(value);
                let id = self.scope.lookup_or_add(name, target.span);
                self.set_var(id, value)
            }
            (Ast::Var(name), Some(op)) => {
                let value = self.expr(value);
                effect(self.update_var(name, op, value, Yields::New, span))
            }
            _ => {
                let error = self.error("E0212", target.span, "cannot assign to this");
                error.help("assign to a variable (`$x = ...`) or a map (`@x = ...`)");
                None
            }
        }
    }

    fn set_var(&mut self, id: VarId, value: Expr) -> Option<StmtKind> {
        self.scope.set(id);
        let value = match value.kind {
            ExprKind::Name(NameKind::Func) => {
                let held = self.scope.var(id).slot.get().ty(&self.types);
                self.symbol_for(value, || held)
            }
            _ => value,
        };
        let register = self.is_register(&value);
        let types = &self.types;
        let taken = self.scope.var(id).slot.change(types, |slot| {
            slot.note_register(&value, register);
            slot.take_or_symbol(&value, types)
        });
        if let Err(mismatch) = taken {
            let name = format!("${}", self.scope.var(id).name);
            self.value_mismatch(&name, "E0201", &mismatch.has, &value);
            return None;
        }
        let ty = self.scope.var(id).slot.get().ty(&self.types)?;
        if is_unknown(&value) {
            return None;
        }
        if ty.may_be_address() {
            let var = self.scope.var(id);
            var.kernel = Some(var.kernel.unwrap_or(true) && value.in_kernel());
        }
        if value.ty == Type::U64 && ty == Type::I64 && !matches!(value.kind, ExprKind::Int(_)) {
            let message =
                format!("`${}` also takes signed numbers, so it is an int64", self.scope.var(id).name);
            self.warning("W0251", value.span, message).note("values beyond int64 print as negative numbers");
        }
        Some(StmtKind::SetVar { var: id, value: convert(value, &ty) })
    }

    fn if_stmt(
        &mut self,
        cond: &ast::Expr,
        then: &Block,
        otherwise: Option<&Block>,
        out: &mut Vec<Stmt>,
    ) -> Option<StmtKind> {
        if let Some(cond) = decided_early(cond) {
            let taken = self.decide(cond).and_then(|holds| if holds { Some(then) } else { otherwise });
            out.extend(taken.map(|block| self.block(block)).unwrap_or_default());
            return None;
        }
        let cond = self.condition(cond);
        let (holds, outside) = (truth(&cond), self.scope.dead);
        let fork = self.scope.fork();
        self.scope.dead = outside || holds == Some(false);
        let then = self.block(then);
        self.scope.dead = outside || holds == Some(true);
        let after_then = self.scope.rewind(fork);
        self.scope.ended = false;
        let otherwise = otherwise.map(|block| self.block(block)).unwrap_or_default();
        self.scope.dead = outside;
        let after_else = self.scope.rewind(fork);
        self.scope.join(after_then, after_else);
        Some(StmtKind::If { cond, then, otherwise })
    }

    /// The body of a loop, which may not run: variables that it sets are not set after it.
    fn loop_body(&mut self, body: &Block) -> Vec<Stmt> {
        let fork = self.scope.fork();
        let body = self.block(body);
        self.scope.rewind(fork);
        self.scope.ended = false;
        body
    }

    fn while_stmt(&mut self, cond: &ast::Expr, body: &Block) -> StmtKind {
        let cond = self.condition(cond);
        self.scope.loops += 1;
        let body = self.loop_body(body);
        self.scope.loops -= 1;
        StmtKind::While { cond, body }
    }

    fn unroll(&mut self, count: &ast::Expr, body: &Block) -> Option<StmtKind> {
        let times = self.constant(count, "the count of `unroll`");
        let outer = self.scope.unrolled.0;
        self.scope.unrolled.0 = outer.saturating_mul(times.map_or(1, i64::unsigned_abs).max(1));
        self.scope.loops += 1;
        let body = self.block(body);
        self.scope.loops -= 1;
        self.scope.unrolled.0 = outer;
        self.scope.ended = false;
        let times = times?;
        let statements = self.scope.unrolled.1;
        if outer == 1 && statements > limits::UNROLLED {
            let message =
                format!("`unroll` makes {statements} statements here, {} at most", limits::UNROLLED);
            self.error("E0222", count.span, message).help("use `for $i : 0..n { }`, which copies nothing");
            return None;
        }
        if !(1..=limits::UNROLL).contains(&times) {
            let message = format!("`unroll` makes from 1 to {} copies, found {times}", limits::UNROLL);
            self.error("E0222", count.span, message).help("use `for $i : 0..n { }` for more");
            return None;
        }
        Some(StmtKind::Unroll { count: times as u32, body })
    }

    fn for_range(&mut self, var: &ast::Name, start: &ast::Expr, end: &ast::Expr, body: &Block) -> StmtKind {
        let start = convert(self.number(start, "the first value of a range"), &Type::I64);
        let end = convert(self.number(end, "the end of a range"), &Type::I64);
        let id = self.scope.enter_loop(&var.node, var.span);
        self.scope.var(id).slot.set(Slot::fixed(Type::I64));
        let body = self.loop_body(body);
        self.scope.leave_loop(&var.node);
        StmtKind::ForRange { var: id, start, end, body }
    }

    fn for_map(&mut self, var: &ast::Name, map: &ast::Name, body: &Block) -> Option<StmtKind> {
        let map_id = self.map_id(&map.node, map.span);
        let pair = self.pair_type(map_id, map);
        let id = self.scope.enter_loop(&var.node, var.span);
        self.scope.var(id).slot.set(pair.clone().map(Slot::fixed).unwrap_or_default());
        let body = self.loop_body(body);
        self.scope.leave_loop(&var.node);
        pair.map(|_| StmtKind::ForMap { var: id, map: map_id, body })
    }

    /// The type of `(key, value)` of a map; `None` while unknown.
    fn pair_type(&mut self, id: MapId, name: &ast::Name) -> Option<Type> {
        let state = &self.maps[id.0 as usize];
        if state.key.get().as_ref().is_some_and(Vec::is_empty) {
            self.error("E0202", name.span, format!("`@{}` has no keys to loop over", name.node));
            return None;
        }
        if let crate::check::slots::ValueState::Agg(agg) = state.value.get()
            && state.read_type(&self.types).is_none()
        {
            let message = format!(
                "`@{}` is made by `{}` and has no values to loop over",
                name.node,
                crate::check::slots::agg_name(agg)
            );
            self.error("E0218", name.span, message).help(format!("print it: `print(@{})`", name.node));
            return None;
        }
        let key = state.key_types(&self.types)?;
        let value = state.read_type(&self.types)?;
        let key = if let [only] = key.as_slice() { only.clone() } else { Type::Tuple(key.into()) };
        Some(Type::Tuple([key, value].into()))
    }
}

fn effect(value: Expr) -> Option<StmtKind> {
    (!is_unknown(&value)).then_some(StmtKind::Expr(value))
}

fn is_kind(name: &str, kind: Kind) -> bool {
    table::find(name).is_some_and(|builtin| builtin.kind == kind)
}

/// A call of an action.
fn acts(e: &ast::Expr) -> bool {
    matches!(&e.kind, Ast::Call { name, .. } if is_kind(&name.node, Kind::Action))
}
