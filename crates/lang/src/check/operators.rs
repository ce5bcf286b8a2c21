//! Operators. Arithmetic is on 64 bits; a literal takes the type of the other operand; `-` is signed.

use crate::builtins::args::Args;
use crate::builtins::floats::is_floating;
use crate::check::Checker;
use crate::check::slots::ValueState;
use crate::hir::make::{binary, convert, expr, fold, int, is_unknown, literal, not, piece, pieces, unknown};
use crate::hir::{Agg, BinaryOp, Builtin, Expr, ExprKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::UnaryOp;
use crate::syntax::operators::symbol;
use crate::types::{int_holds, is_integers, is_kernel_name, is_scalar};

/// Note and help for operators on floating-point numbers.
const INTEGERS_ONLY: &str = "code in the kernel has integers only";
const WHOLE_PART: &str = "`(int64)x` is its whole part";

impl Checker<'_> {
    /// `-e` `!e` `~e` `*e` `&e`
    pub(crate) fn unary(&mut self, op: UnaryOp, inner: &ast::Expr, span: Span) -> Expr {
        match op {
            UnaryOp::Deref => self.deref(inner, span),
            UnaryOp::Not => {
                let value = self.condition(inner);
                if is_unknown(&value) { int(0, Type::Bool, span) } else { not(value, span) }
            }
            UnaryOp::AddressOf => self.address_in_memory(inner, span),
            UnaryOp::Comptime => self.comptime_value(inner, span),
            UnaryOp::Neg | UnaryOp::BitNot => self.negate(op, inner, span),
        }
    }

    fn negate(&mut self, op: UnaryOp, inner: &ast::Expr, span: Span) -> Expr {
        let value = self.number(inner, "the operand");
        if is_unknown(&value) {
            return unknown(span);
        }
        let folded =
            literal(&value).and_then(|n| if op == UnaryOp::Neg { n.checked_neg() } else { Some(!n) });
        if let Some(number) = folded {
            return int(number, Type::I64, span);
        }
        match op {
            UnaryOp::Neg => {
                let value = convert(value, &Type::I64);
                expr(ExprKind::Neg(Box::new(value)), Type::I64, span)
            }
            _ => {
                let ty = value.ty.clone();
                expr(ExprKind::BitNot(Box::new(value)), ty, span)
            }
        }
    }

    /// `a + b`
    pub(crate) fn binary(&mut self, op: BinaryOp, lhs: &ast::Expr, rhs: &ast::Expr, span: Span) -> Expr {
        match op {
            BinaryOp::And | BinaryOp::Or => {
                let lhs = self.condition(lhs);
                let fork = self.scope.fork();
                let rhs = self.condition(rhs);
                self.scope.rewind(fork);
                binary(op, lhs, rhs, Type::Bool, span)
            }
            _ => {
                let (a, b) = (self.expr(lhs), self.expr(rhs));
                if matches!(a.ty, Type::Str(_) | Type::Name(_)) && is_unknown(&b) {
                    self.suggest_quotes(rhs);
                }
                self.operate(op, a, b, span)
            }
        }
    }

    /// `comm == python`: an unknown name may be a text.
    fn suggest_quotes(&mut self, unknown: &ast::Expr) {
        let ast::ExprKind::Ident(name) = &unknown.kind else { return };
        if let Some(error) = self.diags.list.last_mut().filter(|found| found.span == unknown.span) {
            error.help = vec![format!("put text in quotes: `\"{name}\"`")];
        }
    }

    /// Any operator but `&&` and `||`, on checked operands.
    pub(crate) fn operate(&mut self, op: BinaryOp, lhs: Expr, rhs: Expr, span: Span) -> Expr {
        if is_comparison(op) {
            return if is_unknown(&lhs) || is_unknown(&rhs) {
                int(0, Type::Bool, span)
            } else {
                self.compare(op, lhs, rhs, span)
            };
        }
        if is_unknown(&lhs) || is_unknown(&rhs) {
            return unknown(span);
        }
        match (&lhs.ty, &rhs.ty) {
            (Type::Pointer(_), Type::Pointer(_)) if op == BinaryOp::Sub => {
                binary(op, convert(lhs, &Type::I64), convert(rhs, &Type::I64), Type::I64, span)
            }
            (Type::Pointer(_), Type::Int { .. }) if matches!(op, BinaryOp::Add | BinaryOp::Sub) => {
                self.pointer_offset(op, lhs, rhs, span)
            }
            (Type::Int { .. }, Type::Pointer(_)) if op == BinaryOp::Add => {
                self.pointer_offset(op, rhs, lhs, span)
            }
            _ => self.arithmetic(op, lhs, rhs, span),
        }
    }

    fn arithmetic(&mut self, op: BinaryOp, lhs: Expr, rhs: Expr, span: Span) -> Expr {
        let (lhs, rhs) = match (self.widened(lhs), self.widened(rhs)) {
            (Ok(lhs), Ok(rhs)) => (lhs, rhs),
            (Err(other), _) | (_, Err(other)) => return self.no_operator(op, &other, span),
        };
        let (a, b) = (literal(&lhs), literal(&rhs));
        if let (Some(a), Some(b)) = (a, b)
            && let Some(value) = fold(op, a, b)
        {
            return int(value, Type::I64, span);
        }
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) {
            self.warn_division(&lhs, &rhs, span);
        }
        let ty = match op {
            BinaryOp::Shl | BinaryOp::Shr => lhs.ty.clone(),
            BinaryOp::Sub => Type::I64,
            _ => self.common(&lhs, &rhs),
        };
        binary(op, convert(lhs, &ty), convert(rhs, &ty), ty, span)
    }

    fn warn_division(&mut self, lhs: &Expr, rhs: &Expr, span: Span) {
        if literal(rhs) == Some(0) {
            self.warning("W0257", rhs.span, "division by zero yields 1, and so does the remainder");
        }
        self.warn_signs(lhs, rhs, "divided", span);
    }

    fn warn_signs(&mut self, lhs: &Expr, rhs: &Expr, what: &str, span: Span) {
        if !self.is_count(lhs) && !self.is_count(rhs) && (may_lose(lhs, rhs) || may_lose(rhs, lhs)) {
            let message = format!("an unsigned and a signed number are {what} as int64");
            let warning = self.warning("W0251", span, message);
            warning.help("cast one side to the type of the other");
        }
    }

    fn no_operator(&mut self, op: BinaryOp, operand: &Expr, span: Span) -> Expr {
        let message = format!("`{}` takes numbers, found {}", symbol(op), self.types.show(&operand.ty));
        let literal_text = matches!(operand.kind, ExprKind::Str(_));
        let is_text = matches!(operand.ty, Type::Str(_));
        let error = self.error("E0212", span, message);
        error.label = "cannot be computed".into();
        if is_floating(&operand.ty) {
            error.note(INTEGERS_ONLY).help(WHOLE_PART);
        }
        match op {
            BinaryOp::Add if is_text => {
                error.help("texts are joined by `str_concat(a, b)`; a number is printed after a text by `printf(\"size: %d\\n\", n)`");
            }
            BinaryOp::Rem if literal_text => {
                error.help("values follow the text after a comma: `printf(\"%d\\n\", pid)`");
            }
            _ => {}
        }
        unknown(span)
    }

    pub(crate) fn compare(&mut self, op: BinaryOp, lhs: Expr, rhs: Expr, span: Span) -> Expr {
        if let Some(simpler) = against_zero(op, &lhs, &rhs, span) {
            return simpler;
        }
        self.warn_chained(op, &lhs, span);
        if let Some(settled) = self.args().compare_looked_up(op, &lhs, &rhs, span) {
            return settled;
        }
        if let Some(settled) = self.compare_word(op, &lhs, &rhs, span) {
            return settled;
        }
        let equality = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
        let (lhs, rhs) = match (&lhs.ty, &rhs.ty) {
            (a, Type::Str(_)) if is_kernel_name(a) => (self.kernel_text(lhs), rhs),
            (Type::Str(_), b) if is_kernel_name(b) => (lhs, self.kernel_text(rhs)),
            _ => (lhs, rhs),
        };
        let equal = match (&lhs.ty, &rhs.ty) {
            (Type::Name(a), Type::Name(b)) if a == b && equality => {
                return binary(op, lhs, rhs, Type::Bool, span);
            }
            (Type::Name(_), _) if equality => self.name_equals(&lhs, &rhs, span),
            (_, Type::Name(_)) if equality => self.name_equals(&rhs, &lhs, span),
            (Type::Str(_), Type::Str(_)) if equality => {
                let kind = ExprKind::StrEq { lhs: Box::new(lhs), rhs: Box::new(rhs), limit: None };
                expr(kind, Type::Bool, span)
            }
            (&Type::Buf(a), &Type::Buf(b)) if equality => {
                let both = Type::Buf(a.max(b));
                let [lhs, rhs] = [lhs, rhs].map(|side| Box::new(convert(side, &both)));
                expr(ExprKind::StrEq { lhs, rhs, limit: None }, Type::Bool, span)
            }
            (&Type::Stack { user, limit, .. }, &Type::Stack { user: other, limit: most, .. })
                if equality && user == other =>
            {
                if limit != most {
                    return self.stacks_differ_in_length(limit, most, span);
                }
                // The mode only affects printing.
                let rhs = Expr { ty: lhs.ty.clone(), ..rhs };
                return binary(op, lhs, rhs, Type::Bool, span);
            }
            (a, b) if equality && a == b && is_integers(a) => {
                same_arrays(&lhs, &rhs, self.types.size(a), span)
            }
            (a, b) if equality && are_tuples(a, b) => match self.same_parts(&lhs, &rhs, span) {
                Some(equal) => equal,
                None => return self.not_comparable(op, &lhs, &rhs, span),
            },
            (a, b) if is_scalar(a) && is_scalar(b) => return self.compare_scalars(op, lhs, rhs, span),
            _ => return self.not_comparable(op, &lhs, &rhs, span),
        };
        if op == BinaryOp::Ne { not(equal, span) } else { equal }
    }

    /// `1 < pid < 5` compares the result of `1 < pid`, which is 0 or 1, with 5.
    fn warn_chained(&mut self, op: BinaryOp, lhs: &Expr, span: Span) {
        let is_order = |op| matches!(op, BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge);
        if is_order(op) && matches!(&lhs.kind, ExprKind::Binary { op: first, .. } if is_order(*first)) {
            self.warning("W0260", span, "a comparison is compared with a number")
                .help("`a < b && b < c` tests for a value between two others");
        }
    }

    fn name_equals(&mut self, name: &Expr, other: &Expr, span: Span) -> Expr {
        match &other.kind {
            ExprKind::Str(bytes) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                if matches!(name.kind, ExprKind::Around(_)) {
                    return self.args().parent_is(name, &text, span);
                }
                self.args().name_test(
                    name,
                    &format!("`{text}`"),
                    other.span,
                    |candidate| candidate == text,
                    span,
                )
            }
            _ => self.args().name_against_value(span),
        }
    }

    /// Stacks are compared by their ids, and each number of frames has ids of its own.
    fn stacks_differ_in_length(&mut self, limit: u32, most: u32, span: Span) -> Expr {
        let message = format!("a stack of at most {limit} frames is compared with one of at most {most}");
        self.error("E0212", span, message).help("take both stacks with the same number of frames");
        int(0, Type::Bool, span)
    }

    fn not_comparable(&mut self, op: BinaryOp, lhs: &Expr, rhs: &Expr, span: Span) -> Expr {
        let (a, b) = (self.types.show(&lhs.ty), self.types.show(&rhs.ty));
        let is_text = |e: &Expr| matches!(e.ty, Type::Str(_));
        let is_number = |e: &Expr| matches!(e.ty, Type::Int { .. });
        let is_char_pointer =
            |e: &Expr| matches!(&e.ty, Type::Pointer(to) if matches!(**to, Type::Int { bytes: 1, .. }));
        let unread = (is_text(lhs) && is_char_pointer(rhs)) || (is_text(rhs) && is_char_pointer(lhs));
        let both_text = is_text(lhs) && is_text(rhs);
        let error = self.error("E0212", span, format!("cannot compare {a} with {b} by `{}`", symbol(op)));
        if is_floating(&lhs.ty) || is_floating(&rhs.ty) {
            error.note(INTEGERS_ONLY).help(WHOLE_PART);
        } else if unread {
            error.help("read the text first: `str(p) == \"...\"`");
        } else if both_text {
            error.help("strings can be compared by `==` and `!=`, and by `strncmp`");
        } else if let Some(word) = quoted(lhs, rhs).or_else(|| quoted(rhs, lhs)) {
            error.help(format!("write it without quotes: `{word}`"));
        } else if is_text(lhs) != is_text(rhs) && (is_number(lhs) || is_number(rhs)) {
            error.help("a text is compared with a text in quotes: `comm == \"python3\"`");
        } else if matches!((&lhs.ty, &rhs.ty), (Type::Tuple(a), Type::Tuple(b)) if a.len() == b.len()) {
            error.help("compare their parts: `$a.0 < $b.0`");
        } else if matches!((&lhs.ty, &rhs.ty), (Type::Buf(_), Type::Buf(_))) {
            error.help("compare the bytes in memory with `memcmp(p, q, n)`");
        }
        int(0, Type::Bool, span)
    }

    fn compare_scalars(&mut self, op: BinaryOp, lhs: Expr, rhs: Expr, span: Span) -> Expr {
        let ty = self.comparison_type(&lhs, &rhs);
        if ty == Type::I64 && !matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            self.warn_signs(&lhs, &rhs, "compared", span);
        }
        binary(op, convert(lhs, &ty), convert(rhs, &ty), Type::Bool, span)
    }

    /// The type in which two scalars are compared.
    fn comparison_type(&self, lhs: &Expr, rhs: &Expr) -> Type {
        if lhs.ty == rhs.ty && literal(lhs).is_some() == literal(rhs).is_some() {
            return lhs.ty.clone();
        }
        let adapted = |number: Option<i64>, other: &Expr| {
            number.filter(|&n| self.holds(&other.ty, n)).map(|_| other.ty.clone())
        };
        if let Some(ty) = adapted(literal(lhs), rhs).or_else(|| adapted(literal(rhs), lhs)) {
            return ty;
        }
        match (&lhs.ty, &rhs.ty) {
            (Type::Pointer(_), Type::Pointer(_)) => lhs.ty.clone(),
            (Type::Pointer(_), _) | (_, Type::Pointer(_)) => Type::U64,
            _ => match (self.widened(lhs.clone()), self.widened(rhs.clone())) {
                (Ok(a), Ok(b)) => self.common(&a, &b),
                _ => Type::I64,
            },
        }
    }

    /// The 64-bit type of two 64-bit operands: unsigned if both are. A literal or a count that is never negative counts as
    /// unsigned.
    fn common(&self, lhs: &Expr, rhs: &Expr) -> Type {
        let natural = |e: &Expr| literal(e).is_some_and(|n| n >= 0) || self.is_count(e);
        let fits = |e: &Expr| is_unsigned(e) || natural(e);
        let some_typed = literal(lhs).is_none() || literal(rhs).is_none();
        let some_unsigned = is_unsigned(lhs) || is_unsigned(rhs);
        if some_typed && some_unsigned && fits(lhs) && fits(rhs) { Type::U64 } else { Type::I64 }
    }

    /// A value of a map of `count()`.
    fn is_count(&self, e: &Expr) -> bool {
        let ExprKind::MapGet { map, .. } = &e.kind else { return false };
        matches!(self.maps[map.0 as usize].value.get(), ValueState::Agg(Agg::Count))
    }

    fn holds(&self, ty: &Type, number: i64) -> bool {
        match ty {
            Type::Int { .. } => int_holds(ty, number),
            Type::Enum(_) => int_holds(&Type::I32, number),
            Type::Bool => (0..=1).contains(&number),
            Type::Pointer(_) => true,
            _ => false,
        }
    }
}

/// A number or constant in quotes, if the other side is a number or an enum.
fn quoted(text: &Expr, other: &Expr) -> Option<String> {
    let ExprKind::Str(bytes) = &text.kind else { return None };
    let word = String::from_utf8_lossy(bytes).into_owned();
    let is_constant = match other.ty {
        Type::Enum(_) => cuda::constant(&word).is_some(),
        _ => is_scalar(&other.ty) && word.parse::<i64>().is_ok(),
    };
    is_constant.then_some(word)
}

/// `strncmp(...) == 0`: the test inside.
fn against_zero(op: BinaryOp, lhs: &Expr, rhs: &Expr, span: Span) -> Option<Expr> {
    let test = match (literal(lhs), literal(rhs)) {
        (_, Some(0)) => lhs,
        (Some(0), _) => rhs,
        _ => return None,
    };
    let ExprKind::Cast(inner) = &test.kind else { return None };
    if inner.ty != Type::Bool {
        return None;
    }
    let inner = Expr { span, ..(**inner).clone() };
    match op {
        BinaryOp::Eq => Some(not(inner, span)),
        BinaryOp::Ne => Some(inner),
        _ => None,
    }
}

fn is_unsigned(e: &Expr) -> bool {
    matches!(e.ty, Type::Int { signed: false, .. })
}

/// `large` may exceed int64 and `other` is signed, so no type holds both. Times and narrow values never exceed int64.
fn may_lose(large: &Expr, other: &Expr) -> bool {
    let narrow =
        matches!(&large.kind, ExprKind::Cast(inner) if !matches!(inner.ty, Type::Int { bytes: 8, .. }));
    let time =
        matches!(large.kind, ExprKind::Builtin(Builtin::Nsecs | Builtin::Elapsed, _) | ExprKind::Duration);
    let signed = matches!(other.ty, Type::Int { signed: true, .. });
    let from_unsigned =
        matches!(&other.kind, ExprKind::Cast(inner) if matches!(inner.ty, Type::Int { signed: false, .. }));
    matches!(large.ty, Type::Int { bytes: 8, signed: false })
        && !narrow
        && !time
        && signed
        && !from_unsigned
        && literal(other).is_none_or(|n| n < 0)
}

fn are_tuples(a: &Type, b: &Type) -> bool {
    matches!((a, b), (Type::Tuple(_), Type::Tuple(_)) | (Type::Record(..), Type::Record(..)))
}

fn is_comparison(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Eq | Ne | Lt | Gt | Le | Ge)
}

/// Whether two arrays of the same type without padding are equal.
fn same_arrays(lhs: &Expr, rhs: &Expr, bytes: u32, span: Span) -> Expr {
    let same = |(at, bytes): (i64, u8)| {
        let (a, b) = (piece(lhs, at as u32, bytes), piece(rhs, at as u32, bytes));
        binary(BinaryOp::Eq, a, b, Type::Bool, span)
    };
    let both = |a, b| binary(BinaryOp::And, a, b, Type::Bool, span);
    pieces(i64::from(bytes)).map(same).reduce(both).unwrap_or_else(|| int(1, Type::Bool, span))
}
