//! Structs, arrays and records as values: their members, and casts to and from them.

use crate::builtins::args::Args;
use crate::check::Checker;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::const_eval::is_constant;
use crate::hir::make::{address, binary, convert, expr, int, is_unknown, literal, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, StructId, Type};
use crate::limits;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::{CHAR, U8, is_bytes, is_scalar};
use std::sync::Arc;

/// Fields that a message lists.
const LISTED: usize = 20;

/// `its fields are a, b`
pub(super) fn fields_are<'s>(names: impl ExactSizeIterator<Item = &'s String>) -> String {
    let more = names.len().saturating_sub(LISTED);
    let shown: Vec<&str> = names.take(LISTED).map(String::as_str).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("its fields are {}{rest}", shown.join(", "))
}

/// Why an argument that is passed by value cannot be read.
const NOT_PASSED: &str = "probes cannot read the registers of floating-point numbers and vectors, or text and long arrays \
                          that are passed by value";

/// Whether the value is passed in registers or on the stack, not in memory.
pub(super) fn is_passed(place: &Expr) -> bool {
    matches!(place.kind, ExprKind::Param(_) | ExprKind::ParamField { .. } | ExprKind::RetvalField { .. })
}

/// Returns the part at offset `bytes` of an argument that is passed by value.
fn offset_by(place: &Expr, bytes: u32, ty: Type) -> Option<Expr> {
    let kind = match place.kind {
        ExprKind::ParamField { param, offset } => ExprKind::ParamField { param, offset: offset + bytes },
        ExprKind::RetvalField { offset } => ExprKind::RetvalField { offset: offset + bytes },
        _ => return None,
    };
    Some(expr(kind, ty, place.span))
}

pub(super) const BY_NAME: &str = "members of a record are accessed by name: `.name`";

impl Checker<'_> {
    /// Returns the value at a memory location: text of a char array, the bytes of other arrays and of structs.
    pub(crate) fn value_of(&mut self, place: Expr) -> Expr {
        match &place.ty {
            Type::Array(element, count) if **element == CHAR => self.text_in(place.clone(), *count),
            Type::Struct(id) => {
                let id = *id;
                self.struct_value(place, id)
            }
            Type::Float(bytes) => {
                let bytes = *bytes;
                self.args().float_value(place, bytes)
            }
            Type::Array(..) if is_passed(&place) => self.passed_value(place),
            Type::Array(..) => self.sized(place),
            Type::Str(_) => up_to_nul(place),
            _ => place,
        }
    }

    /// The text of a char array in memory or in a value.
    fn text_in(&mut self, place: Expr, count: u32) -> Expr {
        let (span, ty) = (place.span, Type::Str((count + 1).min(self.config.max_strlen)));
        let kind = match place.kind {
            ExprKind::Load { .. } | ExprKind::ParamField { .. } | ExprKind::RetvalField { .. } => {
                let base = self.address_of(place);
                ExprKind::ReadStr { base: Box::new(base), limit: None }
            }
            _ => ExprKind::Cast(Box::new(place)),
        };
        expr(kind, ty, span)
    }

    fn struct_value(&mut self, place: Expr, id: StructId) -> Expr {
        self.types.complete(id);
        if is_passed(&place) { self.passed_value(place) } else { self.sized(place) }
    }

    /// Checks that a value has a known size within the limits.
    fn sized(&mut self, place: Expr) -> Expr {
        let size = self.types.size(&place.ty);
        let shown = self.types.show(&place.ty);
        if size == 0 {
            self.error("E0226", place.span, format!("`{shown}` has no members, or they are not known here"));
            return unknown(place.span);
        }
        let values = self.types.extent(&place.ty).values;
        if size > limits::VALUE_BYTES || values > limits::TUPLE_VALUES {
            let message = match size > limits::VALUE_BYTES {
                true => format!("`{shown}` takes {size} bytes as a value, {} at most", limits::VALUE_BYTES),
                false => {
                    format!("`{shown}` has {values} members as a value, {} at most", limits::TUPLE_VALUES)
                }
            };
            self.error("E0227", place.span, message).help("name the members that are needed");
            return unknown(place.span);
        }
        place
    }

    /// A whole argument that is passed by value. Unreadable members are omitted, with a warning.
    fn passed_value(&mut self, place: Expr) -> Expr {
        let (span, ty) = (place.span, place.ty.clone());
        let text = self.src.slice(span).to_owned();
        let mut omitted = Vec::new();
        match self.readable_parts(place, &text, &mut omitted) {
            Some(value) => {
                self.warn_omitted(&text, &omitted, span);
                value
            }
            None => {
                let message =
                    format!("no part of `{}` can be read as it is passed here", self.types.show(&ty));
                self.error("E0226", span, message).note(NOT_PASSED);
                unknown(span)
            }
        }
    }

    /// The readable parts of a parameter or result: a record for a struct, a tuple for an array. Names of unreadable members are
    /// added to `omitted`; `None` if no part is readable.
    pub(crate) fn readable_parts(
        &mut self,
        place: Expr,
        name: &str,
        omitted: &mut Vec<String>,
    ) -> Option<Expr> {
        let span = place.span;
        let value = match place.ty.clone() {
            Type::Struct(id) => {
                self.types.complete(id);
                let fields = self.types.struct_def(id).fields.clone();
                let (mut names, mut parts) = (Vec::new(), Vec::new());
                for field in fields {
                    let within = format!("{name}.{}", field.name);
                    let Some(member) = self.types.member(id, &field.name).filter(|member| !member.float)
                    else {
                        omitted.push(within);
                        continue;
                    };
                    let member = self.member(place.clone(), &member, span);
                    if let Some(value) = self.readable_parts(member, &within, omitted) {
                        names.push(field.name);
                        parts.push(value);
                    }
                }
                (!parts.is_empty()).then(|| self.record_of(names, parts, span))
            }
            Type::Array(element, count) if count <= limits::PASSED_ELEMENTS && *element != CHAR => {
                let size = self.types.size(&element);
                let at = |n: u32| offset_by(&place, n * size, (*element).clone());
                let parts: Option<Vec<Expr>> =
                    (0..count).map(|n| self.readable_parts(at(n)?, name, &mut Vec::new())).collect();
                parts.filter(|parts| !parts.is_empty()).map(|parts| {
                    let ty = Type::Tuple(parts.iter().map(|part| part.ty.clone()).collect());
                    expr(ExprKind::Tuple(parts), ty, span)
                })
            }
            Type::Array(..) | Type::Void => None,
            _ => return Some(place),
        };
        // Unreadable members are already listed.
        if value.is_none() && !omitted.iter().any(|known| known.starts_with(name)) {
            omitted.push(name.to_owned());
        }
        value
    }

    /// Warns of members that a record lacks.
    pub(crate) fn warn_omitted(&mut self, whole: &str, names: &[String], span: Span) {
        if names.is_empty() {
            return;
        }
        let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
        let more = if names.len() > LISTED { ", ..." } else { "" };
        let plural = if names.len() == 1 { "is" } else { "are" };
        let symbol = self.context.symbol.clone();
        let of = if symbol.is_empty() { String::new() } else { format!(" of `{symbol}`") };
        let message = format!("{}{more} {plural} not in `{whole}`{of}", shown.join(", "));
        self.warning("W0261", span, message).note(NOT_PASSED);
    }

    /// `(a = 1, b = "x")`
    pub(crate) fn record(&mut self, members: &[(ast::Name, ast::Expr)], span: Span) -> Expr {
        let parts: Vec<Expr> = members.iter().map(|(_, value)| self.expr(value)).collect();
        let names = self.names_of(members);
        self.record_of(names, parts, span)
    }

    /// `$r.a`
    pub(crate) fn record_field(
        &mut self,
        names: &[String],
        base: Expr,
        name: &ast::Name,
        span: Span,
    ) -> Expr {
        let Type::Record(_, types) = &base.ty else { return unknown(span) };
        let Some(at) = names.iter().position(|known| *known == name.node) else {
            let near = did_you_mean(&self.diags.similar(&name.node, names.iter().map(String::as_str)));
            let error = self.error("E0214", name.span, format!("the record has no field `{}`", name.node));
            error.note(fields_are(names.iter())).help.extend(near);
            return unknown(span);
        };
        // A member of a record of literals, such as that of `typeinfo`, is a literal.
        if let ExprKind::Tuple(parts) = &base.kind
            && parts.iter().all(is_constant)
        {
            return Expr { span, ..parts[at].clone() };
        }
        let ty = types[at].clone();
        expr(ExprKind::TupleGet { base: Box::new(base), index: at as u32 }, ty, span)
    }

    /// `(uint32)x`, `(struct point *)p`, `(uint8[8])x`
    pub(crate) fn cast(&mut self, name: &ast::TypeName, inner: &ast::Expr, span: Span) -> Expr {
        let value = self.expr(inner);
        let ty = self.spelled(name);
        let Some(ty) = ty.map(|spelled| self.array_for(spelled, name, &value.ty)) else {
            return unknown(span);
        };
        if is_unknown(&value) {
            return if is_scalar(&ty) { int(0, ty, span) } else { unknown(span) };
        }
        if is_scalar(&ty) && is_scalar(&value.ty) {
            // A cast gives a literal or register a fixed type.
            let same = value.ty == ty && literal(&value).is_none() && !self.is_register(&value);
            return if same { value } else { expr(ExprKind::Cast(Box::new(value)), ty, span) };
        }
        if value.ty == ty {
            return value;
        }
        if let (Type::Int { .. }, Some(whole)) = (&ty, self.args().truncated(&value, span)) {
            return convert(whole, &ty);
        }
        if let (Type::Str(_), Type::Bool) = (&value.ty, &ty) {
            // A text is true if it is not empty.
            let index = Box::new(int(0, Type::U64, span));
            let first = expr(ExprKind::StrIndex { base: Box::new(value), index }, U8, span);
            return binary(BinaryOp::Ne, first, int(0, U8, span), Type::Bool, span);
        }
        self.cast_whole(value, ty, span)
    }

    /// The array that a value is cast to: `int8[]` has as many elements as fit. An array of `int8` prints as numbers,
    /// an array of `char` as text.
    fn array_for(&self, ty: Type, name: &ast::TypeName, value: &Type) -> Type {
        let Type::Array(element, count) = ty else { return ty };
        let element = if *element == CHAR && name.name.starts_with("int8") { Arc::new(U8) } else { element };
        let count = match count {
            0 => self.types.size(value) / self.types.size(&element).max(1),
            count => count,
        };
        Type::Array(element, count)
    }

    /// Casts between an integer and an array of the same size, and from a string to an array of bytes.
    fn cast_whole(&mut self, value: Expr, ty: Type, span: Span) -> Expr {
        let bytes = self.types.size(&ty);
        match (&value.ty, &ty) {
            (from, Type::Array(element, _))
                if is_scalar(from) && is_scalar(element) && matches!(bytes, 1 | 2 | 4 | 8) =>
            {
                let word = Type::Int { bytes: bytes as u8, signed: false };
                let value = match literal(&value) {
                    Some(_) => expr(ExprKind::Cast(Box::new(value)), word, span),
                    None if self.types.size(from) == bytes => convert(value, &word),
                    None => return self.no_cast(&value.ty, &ty, span),
                };
                expr(ExprKind::Cast(Box::new(value)), ty, span)
            }
            (Type::Str(_), Type::Array(_, 1..)) if is_bytes(&ty) => match value.kind {
                ExprKind::Str(mut text) => {
                    text.resize(bytes as usize, 0);
                    expr(ExprKind::Str(text), ty, span)
                }
                _ => expr(ExprKind::Cast(Box::new(value)), ty, span),
            },
            (Type::Array(..), to @ Type::Int { .. }) if self.types.size(&value.ty) == self.types.size(to) => {
                expr(ExprKind::Cast(Box::new(value)), ty, span)
            }
            _ => self.no_cast(&value.ty, &ty, span),
        }
    }

    fn no_cast(&mut self, from: &Type, to: &Type, span: Span) -> Expr {
        let message = format!("cannot cast {} to {}", self.types.show(from), self.types.show(to));
        let whole = matches!(to, Type::Struct(_));
        let error = self.error("E0217", span, message);
        error.note(
            "numbers, bools, enums and pointers can be cast to each other, numbers to arrays of the same size and back, and strings to arrays of bytes",
        );
        if whole {
            error.help("cast the address to a pointer: `*(struct NAME *)p`");
        }
        unknown(span)
    }

    /// `e[i]`
    pub(crate) fn index(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> Expr {
        if let (true, ast::ExprKind::Str(name)) = (base.is_args(), &index.kind) {
            let help = format!("write `args.{}`", String::from_utf8_lossy(name));
            self.error("E0214", span, "arguments are named after a dot").help(help);
            return unknown(span);
        }
        let keyed = matches!(base.kind, ast::ExprKind::Map { keys: Some(_), .. });
        let base = self.place(base);
        let index = self.number(index, "an index");
        if is_unknown(&base) || is_unknown(&index) {
            return unknown(span);
        }
        match base.ty.clone() {
            Type::Str(_) => {
                if let (ExprKind::Str(text), Some(at)) = (&base.kind, literal(&index)) {
                    let byte = usize::try_from(at).ok().and_then(|at| text.get(at).copied()).unwrap_or(0);
                    return int(byte.into(), U8, span);
                }
                let kind = ExprKind::StrIndex { base: Box::new(base), index: Box::new(index) };
                expr(kind, U8, span)
            }
            Type::Tuple(_) => self.tuple_at(base, &index, span),
            Type::Array(element, count) => self.array_element(base, &element, count, index, span),
            Type::Pointer(element) if *element != Type::Void => self.element(base, &element, index, span),
            other => {
                let shown = self.types.show(&other);
                let error = self.error("E0214", span, format!("cannot index {shown}"));
                if matches!(other, Type::Record(..)) {
                    error.help(BY_NAME);
                }
                if keyed {
                    error.help("write all keys in one pair of brackets: `@m[a, b]`");
                }
                unknown(span)
            }
        }
    }

    fn array_element(&mut self, base: Expr, element: &Type, count: u32, index: Expr, span: Span) -> Expr {
        let at = literal(&index);
        // A flexible array member has no known length.
        if count > 0 && at.is_some_and(|at| at < 0 || at >= i64::from(count)) {
            let message = format!("the index is out of bounds: the array has {count} elements");
            self.error("E0214", index.span, message).help("elements are numbered from 0");
            return unknown(span);
        }
        let size = self.types.size(element);
        match (base.kind, at) {
            // An argument passed by value has no address, but a constant index has a known offset.
            (ExprKind::ParamField { param, offset }, Some(at)) if count > 0 => {
                let offset = offset + at as u32 * size;
                expr(ExprKind::ParamField { param, offset }, element.clone(), span)
            }
            (ExprKind::RetvalField { offset }, Some(at)) if count > 0 => {
                let offset = offset + at as u32 * size;
                expr(ExprKind::RetvalField { offset }, element.clone(), span)
            }
            (
                kind @ (ExprKind::Load { .. }
                | ExprKind::Param(_)
                | ExprKind::ParamField { .. }
                | ExprKind::RetvalField { .. }),
                at,
            ) => {
                let address = self.address_of(expr(kind, base.ty, base.span));
                // Arrays of one element are unchecked: older code declares flexible array members so.
                let checked = at.is_none() && count > 1;
                let address = if checked { in_bounds(address, &index, count) } else { address };
                self.element(address, element, index, span)
            }
            (ExprKind::Member { base: inner, offset }, Some(at)) => {
                let offset = offset + at as u32 * size;
                expr(ExprKind::Member { base: inner, offset }, element.clone(), span)
            }
            (kind, Some(at)) => {
                let base = Box::new(expr(kind, base.ty, base.span));
                expr(ExprKind::Member { base, offset: at as u32 * size }, element.clone(), span)
            }
            (kind, None) if is_scalar(element) => {
                let base = Box::new(expr(kind, base.ty, base.span));
                let index = Box::new(convert(index, &Type::U64));
                expr(ExprKind::Element { base, index }, element.clone(), span)
            }
            _ => {
                let message = format!(
                    "the index of an element of type {} must be constant here",
                    self.types.show(element)
                );
                let error = self.error("E0221", index.span, message);
                error.help("read it from memory: `p->items[$i]`");
                unknown(span)
            }
        }
    }

    /// `base[index]` where `base` is an address.
    fn element(&mut self, base: Expr, element: &Type, index: Expr, span: Span) -> Expr {
        let size = i64::from(self.types.size(element));
        let (base, offset) = match literal(&index).and_then(|at| at.checked_mul(size)) {
            Some(offset) => (base, offset),
            None => {
                let index = convert(index, &Type::U64);
                let bytes = binary(BinaryOp::Mul, index, int(size, Type::U64, span), Type::U64, span);
                let base = convert(base, &Type::U64);
                (binary(BinaryOp::Add, base, bytes, Type::U64, span), 0)
            }
        };
        expr(ExprKind::Load { base: Box::new(base), offset }, element.clone(), span)
    }
}

/// Cuts a text literal at its first NUL, as in all other texts.
fn up_to_nul(mut text: Expr) -> Expr {
    if let ExprKind::Str(bytes) = &mut text.kind {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
    }
    text
}

/// The address of an array if the index is in bounds, else an unreadable address, whose failed read is counted. An index
/// with side effects is unchecked, since it must be evaluated once.
fn in_bounds(array: Expr, index: &Expr, count: u32) -> Expr {
    let span = index.span;
    if index.changes() {
        return array;
    }
    let index = convert(index.clone(), &Type::U64);
    let inside = binary(BinaryOp::Lt, index, int(i64::from(count), Type::U64, span), Type::Bool, span);
    let outside = int(i64::MIN, Type::U64, span);
    let kind = ExprKind::Ternary {
        cond: Box::new(inside),
        then: Box::new(address(array, 0)),
        otherwise: Box::new(outside),
    };
    expr(kind, Type::U64, span)
}
