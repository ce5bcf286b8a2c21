//! The infix operators: spelling and precedence. Used by the parser and the printer.

use crate::syntax::ast::BinaryOp;
use crate::syntax::ast::BinaryOp::*;

/// An infix operator.
struct Operator {
    op: BinaryOp,
    symbol: &'static str,
    /// Precedence: higher ones bind tighter, equal ones associate to the left.
    level: u8,
}

const fn row(op: BinaryOp, symbol: &'static str, level: u8) -> Operator {
    Operator { op, symbol, level }
}

static TABLE: &[Operator] = &[
    row(Or, "||", 1),
    row(And, "&&", 2),
    row(BitOr, "|", 3),
    row(BitXor, "^", 4),
    row(BitAnd, "&", 5),
    row(Eq, "==", 6),
    row(Ne, "!=", 6),
    row(Lt, "<", 7),
    row(Gt, ">", 7),
    row(Le, "<=", 7),
    row(Ge, ">=", 7),
    row(Shl, "<<", 8),
    row(Shr, ">>", 8),
    row(Add, "+", 9),
    row(Sub, "-", 9),
    row(Mul, "*", 10),
    row(Div, "/", 10),
    row(Rem, "%", 10),
];

/// The operator with a text.
pub fn from_symbol(symbol: &str) -> Option<BinaryOp> {
    TABLE.iter().find(|row| row.symbol == symbol).map(|row| row.op)
}

/// `==`
pub fn symbol(op: BinaryOp) -> &'static str {
    entry(op).symbol
}

/// Precedence, from 1.
pub fn level(op: BinaryOp) -> u8 {
    entry(op).level
}

fn entry(op: BinaryOp) -> &'static Operator {
    TABLE.iter().find(|row| row.op == op).expect("the table has every operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_unique() {
        for row in TABLE {
            assert_eq!(from_symbol(row.symbol), Some(row.op));
        }
    }
}
