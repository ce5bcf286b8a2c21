//! Functions of maps: `len`, `has_key`, `find`, `delete`.

use crate::builtins::args::Args;
use crate::check::Checker;
use crate::check::slots::ValueState;
use crate::hir::make::{convert, expr, int, is_unknown, unknown};
use crate::hir::{Expr, ExprKind, MapId, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;

impl Checker<'_> {
    /// `len(@map)`, `len(ustack)`, `len(kstack(10))`
    pub(crate) fn len(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let word = match &arg.kind {
            ast::ExprKind::Ident(name) => name.as_str(),
            ast::ExprKind::Call { name, .. } => name.node.as_str(),
            _ => "",
        };
        if matches!(word, "ustack" | "kstack") {
            return match self.expr(arg).ty {
                Type::Stack { user, limit, mode } => {
                    expr(ExprKind::StackLen { user, limit, mode }, Type::U64, span)
                }
                _ => unknown(span),
            };
        }
        if self.is_copied_stack(arg) {
            let error = self.error("E0210", arg.span, "the length of this stack was not stored");
            error.help("`len($s)` is for a variable that `ustack` or `kstack` is assigned to");
            return unknown(span);
        }
        let Some(map) = self.whole_map(arg, "len") else { return unknown(span) };
        let state = &self.maps[map.0 as usize];
        if state.key.get().as_ref().is_some_and(Vec::is_empty) {
            let message = format!("`@{}` has no keys to count", state.name);
            self.error("E0202", span, message).help("`len` takes a map with keys, or a stack");
            return unknown(span);
        }
        expr(ExprKind::Len(map), Type::U64, span)
    }

    /// A variable with a copy of a stack. `expand` has replaced `len` of variables that `ustack` is assigned to directly.
    fn is_copied_stack(&mut self, arg: &ast::Expr) -> bool {
        let ast::ExprKind::Var(name) = &arg.kind else { return false };
        let Some(id) = self.scope.lookup(name) else { return false };
        matches!(self.scope.var(id).slot.get().ty(&self.types), Some(Type::Stack { .. }))
    }

    /// `is_scalar(@map)`
    pub(crate) fn is_scalar_map(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(map) = self.whole_map(arg, "is_scalar") else { return unknown(span) };
        match self.maps[map.0 as usize].key.get() {
            Some(key) => int(i64::from(key.is_empty()), Type::Bool, span),
            None => unknown(span),
        }
    }

    pub(crate) fn has_key(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let Some(map) = self.whole_map(&args[0], "has_key") else { return unknown(span) };
        match self.given_key(map, &args[1], span) {
            Some(key) => expr(ExprKind::HasKey { map, key }, Type::Bool, span),
            None => unknown(span),
        }
    }

    /// A key that is an argument: `k`, `(a, b)`.
    fn given_key(&mut self, map: MapId, key: &ast::Expr, span: Span) -> Option<Vec<Expr>> {
        let name = self.maps[map.0 as usize].name.clone();
        self.cell(&name, Some(std::slice::from_ref(key)), span).map(|(_, key)| key)
    }

    /// `delete(@m, k)`, `delete(@scalar)`, and the old `delete(@a[k], @b[k])`: one expression per key.
    pub(crate) fn delete(&mut self, args: &[ast::Expr], span: Span) -> Vec<Expr> {
        let is_old = |arg: &ast::Expr| matches!(&arg.kind, ast::ExprKind::Map { keys: Some(_), .. });
        if is_old(&args[0]) {
            return args.iter().filter_map(|arg| self.delete_cell(arg)).collect();
        }
        let Some(map) = self.whole_map(&args[0], "delete") else { return Vec::new() };
        let key = match &args[1..] {
            [] => self.key_of_scalar(map, span),
            [key] => self.given_key(map, key, span),
            _ => {
                let error = self.error("E0209", span, "`delete` takes a map and one key");
                error.help("put a key of several values in parentheses: `delete(@map, (a, b))`");
                None
            }
        };
        key.map(|key| expr(ExprKind::Delete { map, key }, Type::Bool, span)).into_iter().collect()
    }

    fn key_of_scalar(&mut self, map: MapId, span: Span) -> Option<Vec<Expr>> {
        let state = &self.maps[map.0 as usize];
        if state.key.get().as_ref().is_some_and(|key| !key.is_empty()) {
            let name = state.name.clone();
            let error = self.error("E0202", span, format!("`delete` needs a key of `@{name}`"));
            error.help(format!("write `delete(@{name}, key)`, or `clear(@{name})` for all keys"));
            return None;
        }
        Some(Vec::new())
    }

    fn delete_cell(&mut self, arg: &ast::Expr) -> Option<Expr> {
        let ast::ExprKind::Map { name, keys } = &arg.kind else {
            self.error("E0210", arg.span, "expected a map with a key").help("write `delete(@map, key)`");
            return None;
        };
        let (map, key) = self.cell(name, keys.as_deref(), arg.span)?;
        Some(expr(ExprKind::Delete { map, key }, Type::Bool, arg.span))
    }
    /// `find(@m, k, $v)` is `{ $f = has_key(@m, k); $v = $f ? @m[k] : $v; $f }`.
    pub(crate) fn find(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (ast::ExprKind::Map { name, keys: None }, ast::ExprKind::Var(var)) =
            (&args[0].kind, &args[2].kind)
        else {
            let error = self.error("E0210", span, "`find` takes a map, a key and a variable");
            error.help("write `find(@map, key, $value)`");
            return unknown(span);
        };
        let hidden = |what: &str| format!("{what}@find{}", span.start);
        let made = |kind| ast::Expr { kind, span };
        let read = |name: String| made(ast::ExprKind::Var(name));
        let assign = |name: String, value: ast::Expr| {
            let kind = ast::StmtKind::Assign { target: read(name), op: None, value };
            ast::Stmt { kind, span }
        };
        let key = read(hidden("key"));
        let call = ast::ExprKind::Call {
            name: ast::Name { node: "has_key".into(), span },
            args: vec![args[0].clone(), key.clone()],
        };
        let value = made(ast::ExprKind::Map { name: name.clone(), keys: Some(vec![key]) });
        // A variable without a type gets the type of the map.
        let var_id = self.scope.lookup(var).filter(|id| self.scope.is_set(*id));
        let is_set = var_id.is_some_and(|id| self.scope.var(id).slot.get().ty(&self.types).is_some());
        let value = match is_set {
            false => value,
            true => made(ast::ExprKind::Ternary {
                cond: Box::new(read(hidden("found"))),
                then: Some(Box::new(value)),
                otherwise: Box::new(read(var.clone())),
            }),
        };
        let stmts = vec![
            assign(hidden("key"), args[1].clone()),
            assign(hidden("found"), made(call)),
            assign(var.clone(), value),
        ];
        let body = ast::Block { stmts, span };
        self.valued_block(&body, Some(&read(hidden("found"))), span)
    }

    /// `print(e)`, `print(@m)`, `print(@m, top, div)`, `print(@m[k])`
    pub(crate) fn print(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        match &args[0].kind {
            ast::ExprKind::Map { name, keys: None } => {
                let map = self.map_id(name, args[0].span);
                let top = self.args().print_number(args.get(1), "how many keys to print")?;
                let div = self.args().print_number(args.get(2), "the divisor")?;
                Some(StmtKind::PrintMap { map, top, div })
            }
            _ if args.len() > 1 => {
                self.error("E0209", span, "only a whole map takes a number of keys and a divisor");
                None
            }
            ast::ExprKind::Map { name, keys } => self.print_cell(name, keys.as_deref(), args[0].span),
            _ => {
                let value = self.expr(&args[0]);
                (!is_unknown(&value)).then(|| StmtKind::PrintValue(self.text_of(value)))
            }
        }
    }

    /// `print(@m[k])`: the value, or the entry if the aggregation has no single value.
    fn print_cell(&mut self, name: &str, keys: Option<&[ast::Expr]>, span: Span) -> Option<StmtKind> {
        let (map, key) = self.cell(name, keys, span)?;
        let state = &self.maps[map.0 as usize];
        match (state.value.get(), state.read_type(&self.types)) {
            (_, Some(ty)) => {
                let value = expr(ExprKind::MapGet { map, key }, ty, span);
                Some(StmtKind::PrintValue(self.text_of(value)))
            }
            (ValueState::Agg(_), None) => Some(StmtKind::PrintEntry { map, key }),
            (ValueState::Plain(_), None) => None,
        }
    }

    /// `exit()`, `exit(3)`
    pub(crate) fn exit(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        if !self.may_leave(span, "exit") {
            return None;
        }
        let code = match args.first() {
            Some(arg) => self.number(arg, "the status of `exit`"),
            None => int(0, Type::I64, span),
        };
        self.scope.ended = true;
        Some(StmtKind::Exit { code: convert(code, &Type::I64) })
    }
}
