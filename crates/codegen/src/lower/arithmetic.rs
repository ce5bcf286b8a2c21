//! Arithmetic and conversions on scalars. Registers hold values extended to 64 bits by the signedness of their type.

use super::operations::Operations;
use crate::ir::{Bin, Cmp, Operand, VReg, Width};
use lang::hir::{BinaryOp, Type};
use wire::CounterKind;

/// The comparison for an operator on signed or unsigned values.
pub(super) fn comparison(op: BinaryOp, signed: bool) -> Option<Cmp> {
    Some(match (op, signed) {
        (BinaryOp::Eq, _) => Cmp::Eq,
        (BinaryOp::Ne, _) => Cmp::Ne,
        (BinaryOp::Lt, true) => Cmp::Slt,
        (BinaryOp::Le, true) => Cmp::Sle,
        (BinaryOp::Gt, true) => Cmp::Sgt,
        (BinaryOp::Ge, true) => Cmp::Sge,
        (BinaryOp::Lt, false) => Cmp::Ult,
        (BinaryOp::Le, false) => Cmp::Ule,
        (BinaryOp::Gt, false) => Cmp::Ugt,
        (BinaryOp::Ge, false) => Cmp::Uge,
        _ => return None,
    })
}

/// Operators that map to a single operation.
fn plain(op: BinaryOp, signed: bool) -> Option<Bin> {
    Some(match op {
        BinaryOp::Add => Bin::Add,
        BinaryOp::Sub => Bin::Sub,
        BinaryOp::Mul => Bin::Mul,
        BinaryOp::BitAnd => Bin::And,
        BinaryOp::BitOr => Bin::Or,
        BinaryOp::BitXor => Bin::Xor,
        BinaryOp::Shl => Bin::Shl,
        BinaryOp::Shr if signed => Bin::Sar,
        BinaryOp::Shr => Bin::Shr,
        _ => return None,
    })
}

/// The value of a register that holds this constant with this type.
fn normal(value: i64, bytes: u32, signed: bool) -> i64 {
    let unused = 64 - 8 * bytes;
    if signed { value << unused >> unused } else { ((value as u64) << unused >> unused) as i64 }
}

/// Lowering of arithmetic.
pub(super) trait Arithmetic: Operations {
    /// A literal of this type.
    fn constant(&mut self, value: i64, ty: &Type) -> Operand {
        let bytes = self.size(ty);
        normal(value, bytes, self.signed(ty)).into()
    }

    /// Extends the low bits of a register as `ty` requires.
    fn normalise(&mut self, value: Operand, ty: &Type) -> Operand {
        match (self.width(ty), value) {
            (Width::B64, value) => value,
            (width, Operand::Const(value)) => normal(value, width.bytes(), self.signed(ty)).into(),
            (width, Operand::Reg(reg)) => {
                let signed = self.signed(ty);
                self.b().extend(reg, width, signed).into()
            }
        }
    }

    /// Converts between scalars. A register with a value of `from` needs no change if `to` can represent all
    /// values of `from`.
    fn convert(&mut self, value: Operand, from: &Type, to: &Type) -> Operand {
        if *to == Type::Bool && *from != Type::Bool {
            return self.b().compare(Cmp::Ne, value, 0).into();
        }
        let (old, new) = (self.size(from), self.size(to));
        let fits = old < new && (!self.signed(from) || self.signed(to))
            || old == new && self.signed(from) == self.signed(to);
        if fits { value } else { self.normalise(value, to) }
    }

    /// `a + b`, `a < b`, ... except `&&` and `||`.
    fn arithmetic(&mut self, op: BinaryOp, lhs: Operand, rhs: Operand, signed: bool) -> Operand {
        if let Some(cmp) = comparison(op, signed) {
            return self.b().compare(cmp, lhs, rhs).into();
        }
        if let Some(bin) = plain(op, signed) {
            let shifts = matches!(bin, Bin::Shl | Bin::Shr | Bin::Sar);
            let rhs = if shifts { self.shift_count(rhs) } else { rhs };
            return self.b().bin(bin, lhs, rhs).into();
        }
        let bin = if op == BinaryOp::Div { Bin::Div } else { Bin::Rem };
        self.division(bin, lhs, rhs, signed).into()
    }

    /// Shift counts are taken modulo 64, as the machine does.
    fn shift_count(&mut self, count: Operand) -> Operand {
        match count {
            Operand::Const(by) => (by & 63).into(),
            reg => self.b().bin(Bin::And, reg, 63).into(),
        }
    }

    /// Division. Division by zero and its remainder yield 1, and are counted.
    fn division(&mut self, bin: Bin, lhs: Operand, rhs: Operand, signed: bool) -> VReg {
        let result = self.b().vreg();
        let after = self.b().block();
        match rhs {
            Operand::Const(0) => self.by_zero(result),
            Operand::Const(_) => self.divide(bin, lhs, rhs, signed, result),
            Operand::Reg(divisor) => {
                let (zero, fine) = (self.b().cold_block(), self.b().block());
                self.b().branch(Cmp::Eq, divisor, 0, zero, fine);
                self.b().switch_to(zero);
                self.by_zero(result);
                self.b().jump(after);
                self.b().switch_to(fine);
                self.divide(bin, lhs, rhs, signed, result);
            }
        }
        self.b().fall_into(after);
        result
    }

    fn by_zero(&mut self, result: VReg) {
        self.count(CounterKind::DivisionByZero);
        self.b().set(result, 1);
    }

    /// Signed division as unsigned division of the magnitudes. The quotient gets its sign from both operands, a
    /// remainder from the dividend.
    fn divide(&mut self, bin: Bin, lhs: Operand, rhs: Operand, signed: bool, result: VReg) {
        if !signed {
            let quotient = self.b().bin(bin, lhs, rhs);
            return self.b().set(result, quotient);
        }
        let (dividend, sign) = self.magnitude(lhs);
        let (divisor, other) = match rhs {
            Operand::Const(value) => ((value.unsigned_abs() as i64).into(), (value >> 63).into()),
            reg => self.magnitude(reg),
        };
        let value = self.b().bin(bin, dividend, divisor);
        let sign = if bin == Bin::Div { self.b().bin(Bin::Xor, sign, other).into() } else { sign };
        let flipped = self.b().bin(Bin::Xor, value, sign);
        let signed = self.b().bin(Bin::Sub, flipped, sign);
        self.b().set(result, signed);
    }

    /// Absolute value, and the sign as 0 or -1.
    fn magnitude(&mut self, value: Operand) -> (Operand, Operand) {
        let b = self.b();
        let sign = b.bin(Bin::Sar, value, 63);
        let flipped = b.bin(Bin::Xor, value, sign);
        (b.bin(Bin::Sub, flipped, sign).into(), sign.into())
    }
}

impl<T: Operations> Arithmetic for T {}
