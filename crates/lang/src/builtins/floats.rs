//! Floating-point numbers. BPF has no floating-point instructions: a value in memory is read as bits, printed as a number, and can
//! be cast to an integer.
//!
//! ```text
//! *args.pMilliseconds          float(*(uint32 *)args.pMilliseconds)
//! (int64)*args.pMilliseconds   the mantissa, shifted by the exponent
//! ```

use crate::builtins::args::Args;
use crate::hir::make::{binary, convert, expr, int, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, Lookup, Stmt, StmtKind, Type};
use crate::source::span::Span;

/// The parts of a number in memory (IEEE 754): bits of the mantissa, the highest exponent, and the exponent of 1.0.
struct Format {
    mantissa: i64,
    exponents: i64,
    bias: i64,
}

const FLOAT: Format = Format { mantissa: 23, exponents: 0xff, bias: 127 };
const DOUBLE: Format = Format { mantissa: 52, exponents: 0x7ff, bias: 1023 };

/// Whether values of the type print as floating-point numbers.
pub fn is_floating(ty: &Type) -> bool {
    format_of(ty).is_some()
}

fn format_of(ty: &Type) -> Option<Format> {
    match ty {
        Type::Lookup(Lookup::Float) => Some(FLOAT),
        Type::Lookup(Lookup::Double) => Some(DOUBLE),
        _ => None,
    }
}

impl dyn Args + '_ {
    /// Reads the bits at a memory location.
    pub(crate) fn float_value(&mut self, place: Expr, bytes: u8) -> Expr {
        let (span, what) = match bytes {
            4 => (place.span, Lookup::Float),
            8 => (place.span, Lookup::Double),
            _ => {
                let error = self.error("E0213", place.span, "a `long double` is not a value");
                error.help("print the struct or array that contains it");
                return unknown(place.span);
            }
        };
        let bits = expr(place.kind, Type::Int { bytes, signed: false }, span);
        expr(ExprKind::Lookup(Box::new(convert(bits, &Type::I64))), Type::Lookup(what), span)
    }

    /// The whole part as int64; `None` for other types. Numbers out of range and NaN become the largest int64.
    pub(crate) fn truncated(&mut self, value: &Expr, span: Span) -> Option<Expr> {
        let Format { mantissa, exponents, bias } = format_of(&value.ty)?;
        let number = |n: i64| int(n, Type::I64, span);
        let word = |op, a: Expr, b: Expr| binary(op, a, b, Type::I64, span);
        let test = |op, a: Expr, b: i64| binary(op, a, number(b), Type::Bool, span);
        let choose = |cond: Expr, then: Expr, otherwise: Expr| {
            let kind = ExprKind::Ternary {
                cond: Box::new(cond),
                then: Box::new(then),
                otherwise: Box::new(otherwise),
            };
            expr(kind, Type::I64, span)
        };
        let negative = |e: Expr| expr(ExprKind::Neg(Box::new(e)), Type::I64, span);
        let mut body = Vec::new();
        let mut keep = |checker: &mut Self, value: Expr| {
            let var = checker.hidden_var(span, Type::I64);
            body.push(Stmt { kind: StmtKind::SetVar { var, value }, span });
            expr(ExprKind::Var(var), Type::I64, span)
        };
        let bits = keep(self, expr(ExprKind::Cast(Box::new(value.clone())), Type::I64, span));
        let exponent = word(BinaryOp::Shr, bits.clone(), number(mantissa));
        let exponent = word(BinaryOp::BitAnd, exponent, number(exponents));
        let up = keep(self, word(BinaryOp::Sub, exponent, number(bias + mantissa)));
        let fraction = word(BinaryOp::BitAnd, bits.clone(), number((1 << mantissa) - 1));
        let whole = keep(self, word(BinaryOp::BitOr, fraction, number(1 << mantissa)));
        let large = choose(
            test(BinaryOp::Gt, up.clone(), 62 - mantissa),
            number(i64::MAX),
            word(BinaryOp::Shl, whole.clone(), up.clone()),
        );
        let small = choose(
            test(BinaryOp::Lt, up.clone(), -mantissa),
            number(0),
            word(BinaryOp::Shr, whole, negative(up.clone())),
        );
        let size = keep(self, choose(test(BinaryOp::Ge, up, 0), large, small));
        let sign = word(BinaryOp::BitAnd, bits, number((exponents + 1) << mantissa));
        let value = choose(test(BinaryOp::Ne, sign, 0), negative(size.clone()), size);
        Some(expr(ExprKind::Block { body, value: Box::new(value) }, Type::I64, span))
    }
}
