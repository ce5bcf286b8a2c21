//! Constructors of checked expressions, and the conversions that the checker inserts.

use crate::hir::{BinaryOp, EnumId, Expr, ExprKind, Stmt, Type};
use crate::source::span::Span;
use crate::types::{int_holds, places_of};

/// Creates an expression.
pub(crate) fn expr(kind: ExprKind, ty: Type, span: Span) -> Expr {
    Expr { kind, ty, span }
}

/// Creates a number of the given type.
pub(crate) fn int(value: i64, ty: Type, span: Span) -> Expr {
    expr(ExprKind::Int(value), ty, span)
}

/// Placeholder for an expression that is wrong or not yet determined. Operations on it report no further errors.
pub(crate) fn unknown(span: Span) -> Expr {
    int(0, Type::Void, span)
}

/// Whether the expression is an [`unknown`] placeholder.
pub(crate) fn is_unknown(value: &Expr) -> bool {
    value.ty == Type::Void
}

/// The value of an integer literal, whose type adapts to the other operand.
pub(crate) fn literal(value: &Expr) -> Option<i64> {
    match value.kind {
        ExprKind::Int(number) if value.ty == Type::I64 => Some(number),
        _ => None,
    }
}

/// A comparison or 64-bit operation on operands of equal type.
pub(crate) fn binary(op: BinaryOp, lhs: Expr, rhs: Expr, ty: Type, span: Span) -> Expr {
    expr(ExprKind::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) }, ty, span)
}

/// `!e`; the negation of a `!` is its operand.
pub(crate) fn not(value: Expr, span: Span) -> Expr {
    match value.kind {
        ExprKind::Not(inner) if inner.ty == Type::Bool => *inner,
        _ => expr(ExprKind::Not(Box::new(value)), Type::Bool, span),
    }
}

/// Converts the value to the given type. Literals become literals of that type; equal types need no conversion.
pub(crate) fn convert(value: Expr, ty: &Type) -> Expr {
    if value.ty == *ty || is_unknown(&value) || *ty == Type::Void {
        return value;
    }
    let span = value.span;
    if let Some(number) = literal(&value)
        && (int_holds(ty, number) || matches!(ty, Type::Enum(_) | Type::Pointer(_)))
    {
        return int(number, ty.clone(), span);
    }
    let places = places_of(ty, &value.ty);
    match (value.kind, ty) {
        // Parts with effects must be evaluated in source order.
        (ExprKind::Tuple(parts), Type::Record(..))
            if places.as_ref().is_some_and(|places| !places.is_sorted())
                && parts.iter().any(Expr::changes) =>
        {
            let inner = expr(ExprKind::Tuple(parts), value.ty, span);
            expr(ExprKind::Cast(Box::new(inner)), ty.clone(), span)
        }
        (ExprKind::Tuple(parts), Type::Record(_, types)) if places.is_some() => {
            let of = |(at, ty): (usize, &Type)| convert(parts[at].clone(), ty);
            let parts = places.into_iter().flatten().zip(&**types).map(of).collect();
            expr(ExprKind::Tuple(parts), ty.clone(), span)
        }
        (ExprKind::Str(bytes), Type::Str(capacity)) if bytes.len() < *capacity as usize => {
            expr(ExprKind::Str(bytes), ty.clone(), span)
        }
        (ExprKind::Tuple(parts), Type::Tuple(types) | Type::Record(_, types) | Type::Either(types))
            if parts.len() == types.len() =>
        {
            let parts = parts.into_iter().zip(&**types).map(|(part, ty)| convert(part, ty)).collect();
            expr(ExprKind::Tuple(parts), ty.clone(), span)
        }
        (kind, _) => {
            let inner = expr(kind, value.ty, span);
            expr(ExprKind::Cast(Box::new(inner)), ty.clone(), span)
        }
    }
}

/// Converts an address to uint64 and adds an offset.
pub(crate) fn address(base: Expr, offset: i64) -> Expr {
    let span = base.span;
    let base = convert(base, &Type::U64);
    if offset == 0 {
        return base;
    }
    binary(BinaryOp::Add, base, int(offset, Type::U64, span), Type::U64, span)
}

/// The result of `op` on literals; `None` if it is not exact.
pub(crate) fn fold(op: BinaryOp, a: i64, b: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div => a.checked_div(b),
        BinaryOp::Rem => a.checked_rem(b),
        BinaryOp::BitAnd => Some(a & b),
        BinaryOp::BitOr => Some(a | b),
        BinaryOp::BitXor => Some(a ^ b),
        BinaryOp::Shl => {
            u32::try_from(b).ok().filter(|&b| b < 63 && a >= 0 && a <= i64::MAX >> b).map(|b| a << b)
        }
        BinaryOp::Shr => u32::try_from(b).ok().filter(|&b| b < 64).map(|b| a >> b),
        _ => None,
    }
}

/// Bytes at an offset of an array or of a pointer's target, or the low bytes of a number.
pub(crate) fn piece(value: &Expr, at: u32, bytes: u8) -> Expr {
    let (base, ty) = (Box::new(value.clone()), Type::Int { bytes, signed: false });
    let kind = match value.ty {
        Type::Array(..) => ExprKind::Member { base, offset: at },
        Type::Pointer(_) => ExprKind::Load { base, offset: i64::from(at) },
        _ => return convert(value.clone(), &ty),
    };
    expr(kind, ty, value.span)
}

/// Splits memory into words, the largest first, as pairs of offset and size.
pub(crate) fn pieces(count: i64) -> impl Iterator<Item = (i64, u8)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = count - at;
        let bytes = [8, 4, 2, 1].into_iter().find(|&bytes| bytes <= left)?;
        at += bytes;
        Some((at - bytes, bytes as u8))
    })
}

/// Puts statements before a value.
pub(crate) fn value_after(stmts: Vec<Stmt>, value: Expr) -> Expr {
    if stmts.is_empty() || is_unknown(&value) {
        return value;
    }
    let (ty, span) = (value.ty.clone(), value.span);
    expr(ExprKind::Block { body: stmts, value: Box::new(value) }, ty, span)
}

/// A number as a value of an enum, whose constants have names.
pub(crate) fn with_names(bits: Expr, named: Option<EnumId>) -> Expr {
    match named {
        Some(id) => convert(bits, &Type::Enum(id)),
        None => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cover_all_bytes_once() {
        assert_eq!(pieces(15).collect::<Vec<_>>(), [(0, 8), (8, 4), (12, 2), (14, 1)]);
        assert_eq!(pieces(1).collect::<Vec<_>>(), [(0, 1)]);
        assert_eq!(pieces(16).count(), 2);
    }

    #[test]
    fn folding_is_exact_or_left_alone() {
        assert_eq!(fold(BinaryOp::Shl, 1, 20), Some(1 << 20));
        assert_eq!(fold(BinaryOp::Shl, 1, 63), None);
        assert_eq!(fold(BinaryOp::Add, i64::MAX, 1), None);
        assert_eq!(fold(BinaryOp::Div, 1, 0), None);
        assert_eq!(fold(BinaryOp::Shr, -8, 1), Some(-4));
    }

    #[test]
    fn literals_convert_without_a_cast() {
        let span = Span::default();
        assert_eq!(convert(int(3, Type::I64, span), &Type::U32).kind, ExprKind::Int(3));
        assert!(matches!(convert(int(-3, Type::I64, span), &Type::U32).kind, ExprKind::Cast(_)));
        assert!(matches!(convert(int(3, Type::U64, span), &Type::U32).kind, ExprKind::Cast(_)));
    }
}
