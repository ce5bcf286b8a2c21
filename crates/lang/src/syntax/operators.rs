//! The infix operators: spelling and precedence. Used by the parser and the printer.

use crate::syntax::ast::BinaryOp;
use crate::syntax::ast::BinaryOp::*;

/// Each operator with its text and precedence; higher ones bind tighter, equal ones associate to the left.
const TABLE: &[(BinaryOp, &str, u8)] = &[
    (Or, "||", 1),
    (And, "&&", 2),
    (BitOr, "|", 3),
    (BitXor, "^", 4),
    (BitAnd, "&", 5),
    (Eq, "==", 6),
    (Ne, "!=", 6),
    (Lt, "<", 7),
    (Gt, ">", 7),
    (Le, "<=", 7),
    (Ge, ">=", 7),
    (Shl, "<<", 8),
    (Shr, ">>", 8),
    (Add, "+", 9),
    (Sub, "-", 9),
    (Mul, "*", 10),
    (Div, "/", 10),
    (Rem, "%", 10),
];

/// The operator with a text.
pub fn from_symbol(symbol: &str) -> Option<BinaryOp> {
    TABLE.iter().find(|(_, text, _)| *text == symbol).map(|&(op, ..)| op)
}

/// `==`
pub fn symbol(op: BinaryOp) -> &'static str {
    entry(op).1
}

/// Precedence, from 1.
pub fn level(op: BinaryOp) -> u8 {
    entry(op).2
}

fn entry(op: BinaryOp) -> &'static (BinaryOp, &'static str, u8) {
    TABLE.iter().find(|(entry, ..)| *entry == op).expect("the table has every operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_unique() {
        for &(op, text, _) in TABLE {
            assert_eq!(from_symbol(text), Some(op));
        }
    }
}
