//! Memory of the process: `*p`, `p->field`, addresses; and fields of structs that are passed in registers.

use crate::builtins::args::{Args, NO_ADDRESS};
use crate::builtins::probe_context::At;
use crate::check::Checker;
use crate::check::aggregates::{fields_are, is_passed};
use crate::check::config::{self, Setting};
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{address, binary, convert, expr, int, is_unknown, unknown, with_names};
use crate::hir::{BinaryOp, Bits, Expr, ExprKind, Field, Origin, Stmt, StmtKind, StructId, Type, VarId};
use crate::resolve::declaration::FunctionDeclaration;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::is_bytes;
use crate::types::passing::float_of;
use std::sync::Arc;

impl Checker<'_> {
    /// `args.name`, `p->field`, `p.field`
    pub(crate) fn field(&mut self, base: &ast::Expr, name: &ast::Name, span: Span) -> Expr {
        let is_item =
            self.context.iterates && matches!(&base.kind, ast::ExprKind::Ident(name) if name == "ctx");
        if base.is_args() || is_item {
            return self.param(name, span);
        }
        if is_config(base) {
            return self.setting(name, span);
        }
        let base = self.place(base);
        let id = match &base.ty {
            Type::Void => return unknown(span),
            Type::Record(names, _) => return self.record_field(&names.clone(), base, name, span),
            Type::Struct(id) => *id,
            Type::Pointer(to) => match **to {
                Type::Struct(id) => id,
                _ => return self.no_fields(&base, name, span),
            },
            _ => return self.no_fields(&base, name, span),
        };
        match self.types.member(id, &name.node) {
            Some(field) => self.member(base, &field, span),
            None => self.no_field(id, name, span),
        }
    }

    /// `config().max_strlen`
    fn setting(&mut self, name: &ast::Name, span: Span) -> Expr {
        match config::setting(&name.node, &self.config) {
            Some(Setting::Number(number)) => int(number.into(), Type::I64, span),
            Some(Setting::Switch(on)) => int(on.into(), Type::Bool, span),
            Some(Setting::Word(word)) => {
                let room = word.len() as u32 + 1;
                expr(ExprKind::Str(word.into_bytes()), Type::Str(room), span)
            }
            None => {
                let near = did_you_mean(&self.diags.similar(&name.node, config::names()));
                let error = self.error("E0214", name.span, format!("unknown setting `{}`", name.node));
                error.help.extend(near);
                unknown(span)
            }
        }
    }

    fn no_fields(&mut self, base: &Expr, name: &ast::Name, span: Span) -> Expr {
        let message = format!("{} has no field `{}`", self.types.show(&base.ty), name.node);
        let error = self.error("E0214", name.span, message);
        if matches!(base.ty, Type::Int { .. } | Type::Pointer(_)) {
            error.help("cast it to a struct pointer: `((struct NAME *)p)->field`");
        }
        unknown(span)
    }

    pub(crate) fn no_field(&mut self, id: StructId, name: &ast::Name, span: Span) -> Expr {
        let def = self.types.struct_def(id);
        let fields = def.fields.iter().map(|field| &field.name);
        let message = format!("`{}` has no field `{}`", def.name, name.node);
        if def.fields.is_empty() && def.origin == Origin::Debug {
            let message = format!("the members of `{}` are unknown", def.name);
            let error = self.error("E0214", name.span, message);
            error.note("the debug information has only its name");
            error.help("declare the struct in the script, and cast to it: `((struct NAME *)p)->field`");
            return unknown(span);
        }
        let near = did_you_mean(&self.diags.similar(&name.node, fields.clone().map(String::as_str)));
        let note = fields_are(fields);
        let error = self.error("E0214", name.span, message);
        match near.is_empty() {
            true => error.note(note),
            false => {
                error.help.extend(near);
                error
            }
        };
        unknown(span)
    }

    /// A field of a struct in memory (directly or through a pointer) or passed by value.
    pub(crate) fn member(&mut self, base: Expr, field: &Field, span: Span) -> Expr {
        if field.float {
            let in_registers = matches!(base.ty, Type::Struct(_)) && is_passed(&base);
            return match in_registers {
                true => self.float_in_register(&field.name, span),
                false => self.at_offset(base, field.offset, float_of(&field.ty), span),
            };
        }
        let value = self.at_offset(base, field.offset, field.ty.clone(), span);
        let value = match field.bits {
            Some(bits) => self.bit_field(value, bits),
            None => value,
        };
        with_names(value, field.named)
    }

    fn float_in_register(&mut self, field: &str, span: Span) -> Expr {
        let message = format!("field `{field}` is a floating-point number");
        self.error("E0213", span, message).note(
            "probes cannot read the registers that pass such fields of a struct by value; fields in memory can be read",
        );
        unknown(span)
    }

    /// The bits of a bit-field, extended by the sign of its type.
    fn bit_field(&self, unit: Expr, bits: Bits) -> Expr {
        let (ty, span) = (unit.ty.clone(), unit.span);
        let word = match self.widened(unit) {
            Ok(word) if ty == Type::Bool => convert(word, &Type::U64),
            Ok(word) | Err(word) => word,
        };
        let wide = word.ty.clone();
        let above = 64 - i64::from(bits.first) - i64::from(bits.count);
        let up = binary(BinaryOp::Shl, word, int(above, wide.clone(), span), wide.clone(), span);
        let below = int(64 - i64::from(bits.count), wide.clone(), span);
        convert(binary(BinaryOp::Shr, up, below, wide, span), &ty)
    }

    fn at_offset(&mut self, base: Expr, offset: u32, ty: Type, span: Span) -> Expr {
        let kind = match base.kind {
            ExprKind::Param(param) if matches!(base.ty, Type::Struct(_)) => {
                ExprKind::ParamField { param, offset }
            }
            ExprKind::ParamField { param, offset: start } if matches!(base.ty, Type::Struct(_)) => {
                ExprKind::ParamField { param, offset: start + offset }
            }
            ExprKind::RetvalField { offset: start } if matches!(base.ty, Type::Struct(_)) => {
                ExprKind::RetvalField { offset: start + offset }
            }
            ExprKind::Load { base: inner, offset: start } if matches!(base.ty, Type::Struct(_)) => {
                ExprKind::Load { base: inner, offset: start + i64::from(offset) }
            }
            ExprKind::Member { base: inner, offset: start } if matches!(base.ty, Type::Struct(_)) => {
                ExprKind::Member { base: inner, offset: start + offset }
            }
            kind if matches!(base.ty, Type::Struct(_)) => {
                let whole = expr(kind, base.ty, base.span);
                ExprKind::Member { base: Box::new(whole), offset }
            }
            kind => {
                let pointer = expr(kind, base.ty, base.span);
                ExprKind::Load { base: Box::new(pointer), offset: i64::from(offset) }
            }
        };
        expr(kind, ty, span)
    }

    /// The address of something in memory, as uint64.
    pub(crate) fn address_of(&mut self, place: Expr) -> Expr {
        let span = place.span;
        match place.kind {
            ExprKind::Load { base, offset } => address(*base, offset),
            _ => {
                self.error("E0213", span, "an array that is passed in registers has no address");
                unknown(span)
            }
        }
    }

    /// `*p`
    pub(crate) fn deref(&mut self, inner: &ast::Expr, span: Span) -> Expr {
        let pointer = self.expr(inner);
        self.warn_unfilled(&pointer, span);
        let to = match &pointer.ty {
            Type::Void => return unknown(span),
            Type::Pointer(to) => (**to).clone(),
            Type::Int { bytes: 8, .. } => {
                let warning = self.warning("W0259", span, "the type that this number points to is unknown");
                warning.note("it is read as a uint64").help("cast it: `*(uint64 *)p`, `*(int32 *)p`");
                Type::U64
            }
            other => {
                let message = format!("{} is not a pointer", self.types.show(other));
                let error = self.error("E0213", span, message);
                if matches!(other, Type::Int { .. }) {
                    error.help("cast it to a pointer: `*(uint64 *)p`");
                }
                return unknown(span);
            }
        };
        if to == Type::Void {
            let error = self.error("E0213", span, "the type that this points to is unknown");
            error.help("cast it: `*(uint64 *)p`, `*(int32 *)p`");
            return unknown(span);
        }
        expr(ExprKind::Load { base: Box::new(pointer), offset: 0 }, to, span)
    }

    /// At entry the callee has not yet filled the memory of its out-parameters.
    fn warn_unfilled(&mut self, pointer: &Expr, span: Span) {
        let ExprKind::Param(at) = pointer.kind else { return };
        let known = self.context.known.as_ref().and_then(FunctionDeclaration::cuda);
        let known = known.and_then(|known| known.params.get(at as usize));
        let Some(param) = known.filter(|p| p.dir == cuda::Direction::Out && self.context.at == At::Entry)
        else {
            return;
        };
        let message =
            format!("`{}` is filled by the call: at entry there is nothing to read yet", param.name);
        self.warning("W0255", span, message).help("read it in a `uretprobe`, when `retval == 0`");
    }

    /// `&p->member`, `&p[3]`, `&$x`, `&@m`: the address.
    pub(crate) fn address_in_memory(&mut self, inner: &ast::Expr, span: Span) -> Expr {
        let place = match self.place(inner) {
            Expr { kind: ExprKind::Kernel(of), .. } if matches!(of.kind, ExprKind::Var(_)) => *of,
            place => place,
        };
        match place.kind {
            ExprKind::Var(var) => address_of_variable(var, place.ty, span),
            ExprKind::MapGet { .. } => {
                // Pointers are not written through, so the address of a copy serves.
                let var = self.scope.hidden(span, place.ty.clone());
                let address = address_of_variable(var, place.ty.clone(), span);
                let keep = Stmt { kind: StmtKind::SetVar { var, value: place }, span };
                let ty = address.ty.clone();
                expr(ExprKind::Block { body: vec![keep], value: Box::new(address) }, ty, span)
            }
            ExprKind::Load { .. } => {
                let ty = Type::Pointer(Arc::new(place.ty.clone()));
                expr(ExprKind::Cast(Box::new(self.address_of(place))), ty, span)
            }
            _ if place.ty == Type::Void => unknown(span),
            _ => {
                let message = "this has no address: variables, maps and memory have one";
                self.error("E0223", span, message).help(
                    "leave out the `&` for the value; what a pointer leads to has an address, as in `&p->member`",
                );
                unknown(span)
            }
        }
    }

    /// `p + n`, `p - n`: in units of its element size.
    pub(crate) fn pointer_offset(&mut self, op: BinaryOp, pointer: Expr, count: Expr, span: Span) -> Expr {
        let ty = pointer.ty.clone();
        let size = match &ty {
            Type::Pointer(to) => i64::from(self.types.size(to).max(1)),
            _ => 1,
        };
        let count = convert(count, &Type::U64);
        let bytes = match count.kind {
            ExprKind::Int(n) => int(n.wrapping_mul(size), Type::U64, count.span),
            _ if size == 1 => count,
            _ => binary(BinaryOp::Mul, count, int(size, Type::U64, span), Type::U64, span),
        };
        let moved = binary(op, convert(pointer, &Type::U64), bytes, Type::U64, span);
        convert(moved, &ty)
    }

    /// `str(p)`, `str(p, n)`; text stays text.
    pub(crate) fn read_str(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let most = self.config.max_strlen;
        let value = match &args[0].kind {
            ast::ExprKind::Positional(_) => expr(ExprKind::Str(Vec::new()), Type::Str(1), span),
            _ => self.expr(&args[0]),
        };
        let (capacity, limit) = match args.get(1) {
            Some(size) => self.str_size(size, most),
            None => (most, None),
        };
        match &value.ty {
            Type::Void | Type::Name(_) => value,
            Type::Str(has) if args.len() == 2 && limit.is_none() && capacity < *has => {
                convert(value, &Type::Str(capacity))
            }
            Type::Str(_) => value,
            Type::Array(_, bytes) if is_bytes(&value.ty) => {
                let ty = Type::Str((bytes + 1).min(capacity));
                expr(ExprKind::Cast(Box::new(value)), ty, span)
            }
            Type::Pointer(_) | Type::Int { bytes: 8, .. } => {
                let kind = ExprKind::ReadStr { base: Box::new(value), limit: limit.map(Box::new) };
                expr(kind, Type::Str(capacity), span)
            }
            other => {
                let message = format!("`str` takes an address, found {}", self.types.show(other));
                self.error("E0210", args[0].span, message).help(NO_ADDRESS);
                unknown(span)
            }
        }
    }

    fn str_size(&mut self, size: &ast::Expr, most: u32) -> (u32, Option<Expr>) {
        let limit = self.number(size, "the size of a string");
        match limit.kind {
            _ if is_unknown(&limit) => (most, None),
            ExprKind::Int(n) if (1..=i64::from(most)).contains(&n) => (n as u32, None),
            ExprKind::Int(n) if n > i64::from(most) => {
                let message = format!("strings are cut at {most} bytes");
                let warning = self.warning("W0256", size.span, message);
                warning.help(match n <= crate::limits::STRING_BYTES {
                    true => format!("raise the limit: `config = {{ max_strlen = {n} }}`"),
                    false => format!("strings have at most {} bytes", crate::limits::STRING_BYTES),
                });
                (most, None)
            }
            ExprKind::Int(_) => {
                self.error("E0222", size.span, "the size of a string is at least 1: it includes the NUL");
                (most, None)
            }
            _ => (most, Some(convert(limit, &Type::U64))),
        }
    }
}

/// `&$x`
fn address_of_variable(var: VarId, ty: Type, span: Span) -> Expr {
    expr(ExprKind::VarAddress(var), Type::Pointer(Arc::new(ty)), span)
}

/// `config` or `config()`
fn is_config(base: &ast::Expr) -> bool {
    match &base.kind {
        ast::ExprKind::Ident(name) => name == "config",
        ast::ExprKind::Call { name, args } => name.node == "config" && args.is_empty(),
        _ => false,
    }
}
