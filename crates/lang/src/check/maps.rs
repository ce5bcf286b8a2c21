//! Maps: keys, values, updates in place, aggregations. Assignments anywhere in the script determine the types.

use crate::builtins::args::Args;
use crate::check::slots::{Mismatch, Slot, ValueState, agg_name, join_aggs};
use crate::check::temporaries::is_single;
use crate::check::{Checker, NEVER_ASSIGNED};
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{convert, expr, int, is_unknown, literal, unknown};
use crate::hir::{
    Agg, BinaryOp, Builtin, Expr, ExprKind, Lookup, MapId, NameKind, Stmt, StmtKind, Type, VarId, Yields,
};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::operators::symbol;
use crate::types::Types;

impl Checker<'_> {
    /// `@m[k]` as a value.
    pub(crate) fn read_map(&mut self, name: &str, keys: Option<&[ast::Expr]>, span: Span) -> Expr {
        let Some((map, key)) = self.cell(name, keys, span) else { return unknown(span) };
        let state = &self.maps[map.0 as usize];
        match (state.value.get(), state.read_type(&self.types)) {
            (_, Some(ty)) => expr(ExprKind::MapGet { map, key }, ty, span),
            (ValueState::Plain(_), None) => unknown(span),
            (ValueState::Agg(agg), None) => {
                let message = format!("`@{name}` is made by `{}` and has no single value", agg_name(agg));
                self.error("E0218", span, message).help(format!("print it: `print(@{name})`"));
                unknown(span)
            }
        }
    }

    /// The map and the parts of the key of `@m[k]`; widens the key type or reports a mismatch.
    pub(crate) fn cell(
        &mut self,
        name: &str,
        keys: Option<&[ast::Expr]>,
        span: Span,
    ) -> Option<(MapId, Vec<Expr>)> {
        let map = self.map_id(name, span);
        let parts: Vec<Expr> = keys.unwrap_or_default().iter().map(|key| self.expr(key)).collect();
        let parts = self.flatten(parts);
        if parts.iter().any(is_unknown) {
            return None;
        }
        self.key_of(map, parts, span).map(|key| (map, key))
    }

    /// Splits a key that is one tuple into its parts. The tuple is evaluated once, before the first part.
    fn flatten(&mut self, parts: Vec<Expr>) -> Vec<Expr> {
        let [only] = parts.as_slice() else { return parts };
        let Type::Tuple(types) = &only.ty else { return parts };
        let span = only.span;
        if let ExprKind::Tuple(inner) = &only.kind {
            return inner.clone();
        }
        let (tuple, keep) = match is_single(only) {
            true => (only.clone(), None),
            false => {
                let var = self.scope.hidden(span, only.ty.clone());
                let keep = Stmt { kind: StmtKind::SetVar { var, value: only.clone() }, span };
                (expr(ExprKind::Var(var), only.ty.clone(), span), Some(keep))
            }
        };
        let part = |(index, ty): (usize, &Type)| {
            let kind = ExprKind::TupleGet { base: Box::new(tuple.clone()), index: index as u32 };
            expr(kind, ty.clone(), span)
        };
        let mut parts: Vec<Expr> = types.iter().enumerate().map(part).collect();
        if let (Some(keep), Some(first)) = (keep, parts.first_mut()) {
            let (ty, value) = (first.ty.clone(), Box::new(first.clone()));
            *first = expr(ExprKind::Block { body: vec![keep], value }, ty, span);
        }
        parts
    }

    /// Fits the parts of a key to a map.
    pub(crate) fn key_of(&mut self, map: MapId, parts: Vec<Expr>, span: Span) -> Option<Vec<Expr>> {
        let part_type = |at: usize| self.maps[map.0 as usize].key_types(&self.types)?.get(at).cloned();
        let parts = parts.into_iter().enumerate();
        let parts: Vec<Expr> = parts.map(|(at, part)| self.symbol_for(part, || part_type(at))).collect();
        let types = &self.types;
        let state = &mut self.maps[map.0 as usize];
        let taken = state.key.change(types, |slots| {
            let slots = slots.get_or_insert_with(|| vec![Slot::default(); parts.len()]);
            match slots.len() == parts.len() {
                true => Ok(take_all(slots, &parts, types)),
                false => Err(slots.len()),
            }
        });
        let mismatch = match taken {
            Ok(mismatch) => mismatch,
            Err(has) => {
                self.wrong_arity(map, has, parts.len(), span);
                return None;
            }
        };
        if let Some((at, mismatch)) = mismatch {
            let message = format!(
                "the key of `@{}` is {}, found {}",
                state.name,
                types.show(&mismatch.has),
                types.show(&parts[at].ty)
            );
            self.error("E0202", parts[at].span, message).help("use one type for a key in all of the script");
            return None;
        }
        let key_types = self.maps[map.0 as usize].key_types(&self.types)?;
        self.warn_lost_names(&parts, &key_types);
        Some(parts.into_iter().zip(&key_types).map(|(part, ty)| convert(part, ty)).collect())
    }

    fn wrong_arity(&mut self, map: MapId, has: usize, found: usize, span: Span) {
        let name = self.maps[map.0 as usize].name.clone();
        let shown = |n: usize| match n {
            0 => "no key".to_string(),
            1 => "a key of one value".to_string(),
            n => format!("a key of {n} values"),
        };
        let message = format!("`@{name}` has {} elsewhere, found {}", shown(has), shown(found));
        let error = self.error("E0202", span, message);
        match (has, found) {
            (0, _) => error.help(format!("use another map, or give `@{name}` a key everywhere")),
            (_, 0) => error.help(format!("name a key: `@{name}[...]`")),
            _ => error.help("use the same number of values for a key in all of the script"),
        };
    }

    /// An enum that shares a slot with other numbers prints as a number.
    fn warn_lost_names(&mut self, values: &[Expr], types: &[Type]) {
        for (value, ty) in values.iter().zip(types) {
            if let (Type::Enum(id), Type::Int { .. }) = (&value.ty, ty) {
                let message = format!(
                    "values of `{}` are mixed with other numbers here, and print as numbers",
                    self.types.enum_def(*id).name
                );
                self.warning("W0258", value.span, message).help("use a map for each type");
            }
        }
    }

    fn warn_sign(&mut self, value: &Expr, ty: &Type, target: &str) {
        let unsigned = value.ty == Type::U64 && !matches!(value.kind, ExprKind::Int(_));
        if unsigned && *ty == Type::I64 {
            let message = format!("`{target}` also takes signed numbers, so it is an int64");
            self.warning("W0251", value.span, message).note("values beyond int64 print as negative numbers");
        }
    }

    /// `@m[k] = e;`
    pub(crate) fn set_map(
        &mut self,
        name: &str,
        keys: Option<&[ast::Expr]>,
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        if let Some((agg, sample)) = self.aggregation(value) {
            return self.aggregate(name, keys, agg, sample, span);
        }
        let value = self.expr(value);
        let (map, key) = self.cell(name, keys, span)?;
        self.maps[map.0 as usize].is_assigned = true;
        let value = self.symbol_for(value, || self.maps[map.0 as usize].read_type(&self.types));
        let register = self.is_register(&value);
        self.widen_cells(map, &value, "a value", span, |slot, types| {
            slot.note_register(&value, register);
            slot.take_or_symbol(&value, types)
        })?;
        let ty = self.maps[map.0 as usize].read_type(&self.types)?;
        self.warn_sign(&value, &ty, &format!("@{name}"));
        self.warn_lost_names(std::slice::from_ref(&value), std::slice::from_ref(&ty));
        Some(StmtKind::SetMap { map, key, value: convert(value, &ty) })
    }

    /// `func` of a function of the kernel is a symbol as `ksym` returns it, if the map or variable holds those.
    pub(crate) fn symbol_for(&self, value: Expr, held: impl FnOnce() -> Option<Type>) -> Expr {
        let symbol = Type::Lookup(Lookup::Ksym);
        let is_function = value.kind == ExprKind::Name(NameKind::Func) && self.context.kernel_pointers;
        // A type that is read is a reason to check the body again when it widens.
        if !is_function || held() != Some(symbol.clone()) {
            return value;
        }
        let address = expr(ExprKind::Builtin(Builtin::FunctionAddress, Vec::new()), Type::I64, value.span);
        expr(ExprKind::Lookup(Box::new(address)), symbol, value.span)
    }

    /// Widens the type of a map's values, or reports a mismatch. `found` describes the value if the map is an aggregation.
    fn widen_cells(
        &mut self,
        map: MapId,
        value: &Expr,
        found: &str,
        span: Span,
        widen: impl FnOnce(&mut Slot, &Types) -> Result<(), Mismatch>,
    ) -> Option<()> {
        let types = &self.types;
        let taken = self.maps[map.0 as usize].value.change(types, |state| match state {
            ValueState::Plain(slot) => Ok(widen(slot, types)),
            ValueState::Agg(agg) => Err(agg_name(agg)),
        });
        match taken {
            Ok(Ok(())) => return Some(()),
            Ok(Err(mismatch)) => {
                let target = format!("@{}", self.maps[map.0 as usize].name);
                self.value_mismatch(&target, "E0201", &mismatch.has, value);
            }
            Err(agg) => self.agg_conflict(map, agg, found, span),
        }
        None
    }

    /// Reports a value that does not fit the type of a variable or map.
    pub(crate) fn value_mismatch(&mut self, target: &str, code: &'static str, has: &Type, value: &Expr) {
        if let (Some(number), Type::Int { .. }) = (literal(value), has) {
            let message = format!("`{target}` holds {}, and {number} does not fit", self.types.show(has));
            self.error(code, value.span, message).help("declare it wider, or use another name");
            return;
        }
        let message =
            format!("`{target}` holds {}, found {}", self.types.show(has), self.types.show(&value.ty));
        self.error(code, value.span, message).help("use another name for a value of another type");
    }

    fn agg_conflict(&mut self, map: MapId, has: &str, found: &str, span: Span) {
        let name = self.maps[map.0 as usize].name.clone();
        let message = format!("`@{name}` is made by `{has}`, found {found}");
        self.error("E0218", span, message).help("use another map for it");
    }

    /// `@m[k] = hist(e);`
    fn aggregate(
        &mut self,
        name: &str,
        keys: Option<&[ast::Expr]>,
        agg: Agg,
        arg: Option<Expr>,
        span: Span,
    ) -> Option<StmtKind> {
        let (map, key) = self.cell(name, keys, span)?;
        let types = &self.types;
        let clash = self.maps[map.0 as usize].value.change(types, |state| aggregate_into(state, &agg));
        match clash {
            None => return Some(StmtKind::Aggregate { map, key, arg }),
            Some(ValueState::Plain(_)) => {
                let message = format!("`@{name}` holds plain values, found `{}`", agg_name(&agg));
                self.error("E0218", span, message).help("use another map for it");
            }
            Some(ValueState::Agg(has)) if agg_name(&has) == agg_name(&agg) => {
                let message = format!("`@{name}` has buckets of other sizes elsewhere");
                self.error("E0218", span, message).help("use the same numbers, or another map");
            }
            Some(ValueState::Agg(has)) => {
                self.agg_conflict(map, agg_name(&has), &format!("`{}`", agg_name(&agg)), span);
            }
        }
        None
    }

    /// `@m[k] += e`, as a value.
    pub(crate) fn update_map(
        &mut self,
        name: &str,
        keys: Option<&[ast::Expr]>,
        op: BinaryOp,
        value: Expr,
        yields: Yields,
        span: Span,
    ) -> Expr {
        let Some((map, key)) = self.cell(name, keys, span) else { return unknown(span) };
        if let Some(ty @ Type::Pointer(_)) = self.maps[map.0 as usize].read_type(&self.types) {
            let Some(value) = self.elements(op, &ty, value, span) else { return unknown(span) };
            return expr(ExprKind::UpdateMap { map, key, op, value, yields }, ty, span);
        }
        let value = match self.widened(value) {
            Ok(value) => value,
            Err(value) => {
                let message =
                    format!("`{}=` takes a number, found {}", symbol(op), self.types.show(&value.ty));
                self.error("E0212", value.span, message);
                return unknown(span);
            }
        };
        let sample = signed_sample(op, &value);
        let found = format!("an update such as `{}=`", symbol(op));
        let widened = self.widen_cells(map, &value, &found, span, |slot, types| slot.update(&sample, types));
        if widened.is_none() {
            return unknown(span);
        }
        let Some(ty) = self.maps[map.0 as usize].read_type(&self.types) else { return unknown(span) };
        if !matches!(ty, Type::Int { bytes: 8, .. }) {
            let message =
                format!("`@{name}` holds {}: only a 64-bit integer can be updated", self.types.show(&ty));
            self.error("E0201", span, message);
            return unknown(span);
        }
        let value = Box::new(convert(value, &ty));
        expr(ExprKind::UpdateMap { map, key, op, value, yields }, ty, span)
    }

    /// `$x += e`, as a value.
    pub(crate) fn update_var(
        &mut self,
        name: &str,
        op: BinaryOp,
        value: Expr,
        yields: Yields,
        span: Span,
    ) -> Expr {
        let current = self.place(&ast::Expr { kind: ast::ExprKind::Var(name.into()), span });
        let Some(id) = self.scope.lookup(name) else { return unknown(span) };
        if matches!(current.ty, Type::Pointer(_)) {
            let Some(value) = self.elements(op, &current.ty, value, span) else { return unknown(span) };
            let in_kernel = current.in_kernel();
            let moved = expr(ExprKind::UpdateVar { var: id, op, value, yields }, current.ty.clone(), span);
            return match in_kernel {
                true => expr(ExprKind::Kernel(Box::new(moved)), current.ty, span),
                false => moved,
            };
        }
        let value = match self.widened(value) {
            Ok(value) => value,
            Err(value) => {
                let message =
                    format!("`{}=` takes a number, found {}", symbol(op), self.types.show(&value.ty));
                self.error("E0212", value.span, message);
                return unknown(span);
            }
        };
        self.widen_var(name, id, op, &value, &current)
            .map(|ty| {
                let value = Box::new(convert(value, &ty));
                expr(ExprKind::UpdateVar { var: id, op, value, yields }, ty, span)
            })
            .unwrap_or_else(|| unknown(span))
    }

    /// The number of bytes in `count` elements of a pointer's type.
    fn elements(&mut self, op: BinaryOp, pointer: &Type, count: Expr, span: Span) -> Option<Box<Expr>> {
        let Type::Pointer(to) = pointer else { return None };
        let size = i64::from(self.types.size(to).max(1));
        if !matches!(op, BinaryOp::Add | BinaryOp::Sub) || !matches!(count.ty, Type::Int { .. }) {
            let message =
                format!("`{}=` with {} does not move a pointer", symbol(op), self.types.show(&count.ty));
            self.error("E0212", span, message)
                .help("a pointer is moved by a number of elements, with `+=` or `-=`");
            return None;
        }
        let count = convert(count, &Type::I64);
        let bytes = self.operate(BinaryOp::Mul, count, int(size, Type::I64, span), span);
        Some(Box::new(convert(bytes, pointer)))
    }

    /// The type of a variable after an update in place.
    fn widen_var(
        &mut self,
        name: &str,
        id: VarId,
        op: BinaryOp,
        value: &Expr,
        current: &Expr,
    ) -> Option<Type> {
        if is_unknown(current) && is_unknown(value) {
            return None;
        }
        let sample = signed_sample(op, value);
        let types = &self.types;
        let slot = &mut self.scope.var(id).slot;
        // A declared type does not change.
        let taken =
            slot.change(types, |slot| if slot.is_fixed() { Ok(()) } else { slot.update(&sample, types) });
        if let Err(mismatch) = taken {
            self.value_mismatch(&format!("${name}"), "E0201", &mismatch.has, value);
            return None;
        }
        let ty = self.scope.var(id).slot.get().ty(&self.types)?;
        if !matches!(ty, Type::Int { .. }) {
            self.value_mismatch(&format!("${name}"), "E0201", &ty, value);
            return None;
        }
        Some(ty)
    }

    /// `$x++` `--@m[k]`
    pub(crate) fn inc_dec(&mut self, target: &ast::Expr, delta: i8, postfix: bool, span: Span) -> Expr {
        let op = if delta > 0 { BinaryOp::Add } else { BinaryOp::Sub };
        let yields = if postfix { Yields::Old } else { Yields::New };
        let one = int(1, Type::I64, span);
        match &target.kind {
            ast::ExprKind::Map { name, keys } => {
                self.update_map(name, keys.as_deref(), op, one, yields, span)
            }
            ast::ExprKind::Var(name) => self.update_var(name, op, one, yields, span),
            _ => {
                self.error("E0212", span, "only variables and maps can be incremented and decremented");
                unknown(span)
            }
        }
    }

    /// `@m` without a key, as an argument of the function `what`.
    pub(crate) fn whole_map(&mut self, e: &ast::Expr, what: &str) -> Option<MapId> {
        match &e.kind {
            ast::ExprKind::Map { name, keys: None } => Some(self.map_id(name, e.span)),
            ast::ExprKind::Map { name, keys: Some(_) } => {
                let error = self.error("E0210", e.span, format!("`{what}` takes a whole map"));
                error.help(format!("write `{what}(@{name})`"));
                None
            }
            _ => {
                let error = self.error("E0210", e.span, format!("`{what}` takes a map"));
                if let ast::ExprKind::Ident(name) | ast::ExprKind::Var(name) = &e.kind {
                    error.help(format!("names of maps begin with `@`: `{what}(@{name})`"));
                }
                None
            }
        }
    }

    /// Reports a map that is never assigned.
    pub(crate) fn undefined_map(&mut self, at: usize) {
        let (name, span) = (self.maps[at].name.clone(), self.maps[at].span);
        let others = self.maps.iter().filter(|map| map.is_known(&self.types)).map(|map| map.name.as_str());
        let near = self.diags.similar(&name, others).into_iter().map(|name| format!("@{name}"));
        let near = did_you_mean(&near.collect::<Vec<_>>());
        let pending_library = self.pending_library.clone();
        let error = self.error(NEVER_ASSIGNED, span, format!("map `@{name}` is never assigned"));
        error.help.extend(near);
        if let Some(library) = pending_library {
            error.note(format!(
                "`{library}` is not loaded yet, so the types of its functions' arguments are unknown"
            ));
            error.help(format!("give its file: `--lib {library}=FILE`"));
        }
    }
}

/// Widens the parts of a key; returns the first mismatch.
fn take_all(slots: &mut [Slot], parts: &[Expr], types: &Types) -> Option<(usize, Mismatch)> {
    let taken: Vec<_> =
        slots.iter_mut().zip(parts).map(|(slot, part)| slot.take_or_symbol(part, types)).collect();
    taken.into_iter().enumerate().find_map(|(at, taken)| Some((at, taken.err()?)))
}

/// Makes the map an aggregation; returns its current state on a conflict.
fn aggregate_into(state: &mut ValueState, agg: &Agg) -> Option<ValueState> {
    let joined = match state {
        ValueState::Plain(slot) => (*slot == Slot::default()).then(|| agg.clone()),
        ValueState::Agg(has) => join_aggs(has, agg),
    };
    match joined {
        Some(joined) => *state = ValueState::Agg(joined),
        None => return Some(state.clone()),
    }
    None
}

/// The value that an update adds to a slot: subtraction of a literal adds its negative.
fn signed_sample(op: BinaryOp, value: &Expr) -> Expr {
    match literal(value) {
        Some(number) if op == BinaryOp::Sub => int(number.saturating_neg(), Type::I64, value.span),
        _ => value.clone(),
    }
}
