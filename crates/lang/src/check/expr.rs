//! Expressions: one arm per kind, implemented in the other files of this folder.

use crate::builtins::args::Args;
use crate::builtins::table;
use crate::check::Checker;
use crate::check::aggregates::BY_NAME;
use crate::check::comptime::decided_early;
use crate::check::slots::Slot;
use crate::diagnostics::wording::did_you_mean;
use crate::expand::macros::written;
use crate::hir::make::value_after;
use crate::hir::make::{convert, expr, int, is_unknown, literal, unknown};
use crate::hir::{Expr, ExprKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::ExprKind as Ast;

impl Checker<'_> {
    /// A value, or a struct or array in memory whose field or element is accessed.
    pub(crate) fn place(&mut self, e: &ast::Expr) -> Expr {
        let place = self.any_place(e);
        self.scope.has_unknown |= is_unknown(&place);
        place
    }

    fn any_place(&mut self, e: &ast::Expr) -> Expr {
        let span = e.span;
        match &e.kind {
            Ast::Int { value, unsigned } => {
                int(*value as i64, if *unsigned { Type::U64 } else { Type::I64 }, span)
            }
            Ast::Str(bytes) => expr(ExprKind::Str(bytes.clone()), Type::Str(bytes.len() as u32 + 1), span),
            Ast::Bool(on) => int(i64::from(*on), Type::Bool, span),
            Ast::Ident(name) => self.ident(name, span),
            Ast::Var(name) => self.read_var(name, span),
            Ast::Map { name, keys } => self.read_map(name, keys.as_deref(), span),
            Ast::Positional(_) => int(0, Type::I64, span),
            Ast::PositionalCount => int(self.options.params.len() as i64, Type::I64, span),
            Ast::Call { name, args } => self.call_value(name, args, span),
            Ast::Field { base, name, .. } => self.field(base, name, span),
            Ast::TupleIndex { base, index } => self.tuple_index(base, *index, span),
            Ast::Index { base, index } => self.index(base, index, span),
            Ast::Unary { op, expr } => self.unary(*op, expr, span),
            Ast::IncDec { target, delta, postfix } => self.inc_dec(target, *delta, *postfix, span),
            Ast::Binary { op, lhs, rhs } => self.binary(*op, lhs, rhs, span),
            Ast::Ternary { cond, then, otherwise } => self.ternary(cond, then.as_deref(), otherwise, span),
            Ast::Cast { ty, expr } => self.cast(ty, expr, span),
            Ast::Tuple(parts) => self.tuple(parts, span),
            Ast::Block { body, value } => self.valued_block(body, value.as_deref(), span),
            Ast::Record(members) => self.record(members, span),
            Ast::Type(_) => {
                let error = self.error("E0212", span, "expected a value, found a type");
                error.help("`typeof(TYPE)` alone is for the arguments of macros; a cast is `(TYPE)x`");
                unknown(span)
            }
            Ast::TypeInfo(ty) => self.type_info(ty, span),
            Ast::SizeofType(ty) => match self.types.spelled(ty).or_else(|| self.spelled(ty)) {
                Some(ty) => int(i64::from(self.types.size(&ty)), Type::I64, span),
                None => unknown(span),
            },
            Ast::SizeofExpr(inner) => {
                let ty = self.type_of(inner);
                int(i64::from(self.types.size(&ty)), Type::I64, span)
            }
            Ast::OffsetOf { ty, path } => self.offset_of(ty, path, span),
        }
    }

    /// `{ let $b = 1; $b + 1 }`: control flow cannot leave it.
    pub(crate) fn valued_block(&mut self, body: &ast::Block, value: Option<&ast::Expr>, span: Span) -> Expr {
        let Some(value) = value else { return unknown(span) };
        let outer = self.scope.enter_value();
        let start = self.scope.enter_block();
        let (body, value) = self.in_expansion(span, |checker| (checker.stmts(body), checker.expr(value)));
        self.scope.leave_block(start);
        self.scope.leave_value(outer);
        if is_unknown(&value) {
            return unknown(span);
        }
        let ty = value.ty.clone();
        match body.is_empty() {
            true => value,
            false => expr(ExprKind::Block { body, value: Box::new(value) }, ty, span),
        }
    }

    /// A conditionally evaluated expression: variables that it sets are not set after it.
    pub(crate) fn conditional(&mut self, e: &ast::Expr) -> Expr {
        let fork = self.scope.fork();
        let value = self.expr(e);
        self.scope.rewind(fork);
        value
    }

    fn tuple(&mut self, parts: &[ast::Expr], span: Span) -> Expr {
        let parts: Vec<Expr> = parts.iter().map(|part| self.expr(part)).collect();
        if parts.iter().any(is_unknown) {
            return unknown(span);
        }
        if !self.fits_tuple(&parts, span) {
            return unknown(span);
        }
        let ty = Type::Tuple(parts.iter().map(|part| part.ty.clone()).collect());
        expr(ExprKind::Tuple(parts), ty, span)
    }

    fn tuple_index(&mut self, base: &ast::Expr, index: u32, span: Span) -> Expr {
        let base = self.expr(base);
        match &base.ty {
            Type::Void => unknown(span),
            Type::Tuple(parts) => match parts.get(index as usize) {
                Some(ty) => {
                    let ty = ty.clone();
                    expr(ExprKind::TupleGet { base: Box::new(base), index }, ty, span)
                }
                None => {
                    let message = format!("a tuple of {} parts has no part {index}", parts.len());
                    self.error("E0214", span, message).help("parts are numbered from 0");
                    unknown(span)
                }
            },
            other => {
                let message = format!("{} is not a tuple", self.types.show(other));
                let named = matches!(other, Type::Record(..));
                let error = self.error("E0214", span, message);
                if named {
                    error.help(BY_NAME);
                }
                unknown(span)
            }
        }
    }

    fn ternary(
        &mut self,
        cond: &ast::Expr,
        then: Option<&ast::Expr>,
        otherwise: &ast::Expr,
        span: Span,
    ) -> Expr {
        let Some(then) = then else { return self.elvis(cond, otherwise, span) };
        if let Some(cond) = decided_early(cond) {
            return match self.decide(cond) {
                Some(true) => self.expr(then),
                Some(false) => self.expr(otherwise),
                None => unknown(span),
            };
        }
        let (cond, then) = (self.condition(cond), self.conditional(then));
        self.chosen(cond, then, otherwise, span)
    }

    /// `cond ? then : otherwise`, the first two checked.
    fn chosen(&mut self, cond: Expr, then: Expr, otherwise: &ast::Expr, span: Span) -> Expr {
        let otherwise = self.conditional(otherwise);
        let mut slot = Slot::default();
        let fits = slot.take(&then, &self.types).and_then(|()| slot.take(&otherwise, &self.types));
        if fits.is_err() && either(&then.ty, &otherwise.ty) {
            return choice(cond, then, otherwise, span);
        }
        if fits.is_err() {
            let message = format!(
                "the two values of `?:` are of different types: {} and {}",
                self.types.show(&then.ty),
                self.types.show(&otherwise.ty)
            );
            self.error("E0212", span, message);
            return unknown(span);
        }
        let Some(ty) = slot.ty(&self.types).filter(|_| !is_unknown(&then) && !is_unknown(&otherwise)) else {
            return unknown(span);
        };
        let kind = ExprKind::Ternary {
            cond: Box::new(cond),
            then: Box::new(convert(then, &ty)),
            otherwise: Box::new(convert(otherwise, &ty)),
        };
        expr(kind, ty, span)
    }

    /// `c ?: b`: the condition is the value.
    fn elvis(&mut self, cond: &ast::Expr, otherwise: &ast::Expr, span: Span) -> Expr {
        let value = self.expr(cond);
        let mut setup = Vec::new();
        let value = if is_unknown(&value) { value } else { self.evaluate_once(&value, &mut setup) };
        let condition = self.as_condition(value.clone());
        value_after(setup, self.chosen(condition, value, otherwise, span))
    }

    /// `$x`
    fn read_var(&mut self, name: &str, span: Span) -> Expr {
        let Some(id) = self.scope.lookup(name) else {
            self.undefined_var(name, span);
            return unknown(span);
        };
        if !self.scope.is_set(id) {
            let first = self.scope.var(id).span;
            let name = written(name);
            let value = match self.scope.var(id).slot.get().ty(&self.types) {
                Some(Type::Str(_)) => "\"\"",
                _ => "0",
            };
            let message = format!("`${name}` is not set on all paths to here");
            let error = self.error("E0204", span, message);
            let place = if first.start < span.start { "before the branch" } else { "before this use" };
            error.help(format!("set it {place}: `${name} = {value};`"));
        }
        let var = self.scope.var(id);
        var.read = true;
        let in_kernel = var.kernel == Some(true);
        match var.slot.get().ty(&self.types) {
            Some(ty) if in_kernel && ty.may_be_address() => {
                let var = expr(ExprKind::Var(id), ty.clone(), span);
                expr(ExprKind::Kernel(Box::new(var)), ty, span)
            }
            Some(ty) => expr(ExprKind::Var(id), ty, span),
            None => unknown(span),
        }
    }

    fn undefined_var(&mut self, name: &str, span: Span) {
        let near = self.diags.similar(name, self.scope.visible_names());
        let near: Vec<String> = near.into_iter().map(|name| format!("${name}")).collect();
        let is_map = self.map_ids.contains_key(name);
        let argument = self.argument_like(name).filter(|_| near.is_empty());
        let error = self.error("E0203", span, format!("undefined variable `${}`", written(name)));
        error.help.extend(did_you_mean(&near));
        if let Some(argument) = argument {
            error.help(format!("did you mean `args.{argument}`?"));
        }
        if table::find(name).is_some() {
            error.help(format!("built-ins have no `$`: `{name}`"));
        }
        if is_map {
            error.help(format!("there is a map `@{name}`"));
        }
        if error.help.is_empty() {
            error.help("`$x = 1` gives a variable its value, in the same body; for other probes keep a value in a map, `@x = 1`");
        }
    }

    pub(crate) fn tuple_at(&mut self, base: Expr, index: &Expr, span: Span) -> Expr {
        let Type::Tuple(parts) = &base.ty else { return unknown(span) };
        let found = literal(index).and_then(|at| Some((at, parts.get(usize::try_from(at).ok()?)?.clone())));
        match found {
            Some((at, ty)) => expr(ExprKind::TupleGet { base: Box::new(base), index: at as u32 }, ty, span),
            None => {
                let message =
                    format!("expected a number from 0 to {} between the brackets", parts.len().max(1) - 1);
                self.error("E0214", index.span, message);
                unknown(span)
            }
        }
    }
}

/// Two texts of which at least one may be looked up when it is printed.
fn either(a: &Type, b: &Type) -> bool {
    let found = |ty: &Type| {
        matches!(
            ty,
            Type::Enum(_)
                | Type::Name(_)
                | Type::Lookup(_)
                | Type::Usym
                | Type::Stack { .. }
                | Type::Timestamp(_)
                | Type::Inet
                | Type::Either(_)
        )
    };
    let text = |ty: &Type| found(ty) || matches!(ty, Type::Str(_));
    text(a) && text(b)
}

/// `c ? func : "none"`: the value carries a tag that selects how it prints.
fn choice(cond: Expr, then: Expr, otherwise: Expr, span: Span) -> Expr {
    let zero = |like: &Expr| expr(ExprKind::Zero, like.ty.clone(), span);
    let ty = Type::Either([Type::U32, then.ty.clone(), otherwise.ty.clone()].into());
    let of = |which: i64, parts: [Expr; 2]| {
        let parts = [int(which, Type::U32, span)].into_iter().chain(parts).collect();
        Box::new(expr(ExprKind::Tuple(parts), ty.clone(), span))
    };
    let (no_text, no_other) = (zero(&then), zero(&otherwise));
    let (then, otherwise) = (of(1, [then, no_other]), of(2, [no_text, otherwise]));
    expr(ExprKind::Ternary { cond: Box::new(cond), then, otherwise }, ty, span)
}
