//! `==` of tuples and records: part by part; members of records match by name.
//!
//! ```text
//! ($pid, comm) == @last        { $t = @last; $pid == $t.0 && comm == $t.1 }
//! ```

use crate::check::Checker;
use crate::hir::make::value_after;
use crate::hir::make::{binary, expr, int};
use crate::hir::{BinaryOp, Expr, ExprKind, Type};
use crate::source::span::Span;
use crate::types::places_of;

impl Checker<'_> {
    /// Whether two tuples, or two records, are equal; `None` if their parts differ in number or name.
    pub(crate) fn same_parts(&mut self, lhs: &Expr, rhs: &Expr, span: Span) -> Option<Expr> {
        let places = places_of(&lhs.ty, &rhs.ty)?;
        let mut setup = Vec::new();
        let (lhs, rhs) = (self.evaluate_once(lhs, &mut setup), self.evaluate_once(rhs, &mut setup));
        let pairs = places.into_iter().enumerate();
        let equal =
            |(at, place): (usize, usize)| self.compare(BinaryOp::Eq, part(&lhs, at), part(&rhs, place), span);
        let both = |a, b| binary(BinaryOp::And, a, b, Type::Bool, span);
        let equal: Vec<Expr> = pairs.map(equal).collect();
        let equal = equal.into_iter().reduce(both).unwrap_or_else(|| int(1, Type::Bool, span));
        Some(value_after(setup, equal))
    }
}

/// A part of a tuple without side effects.
fn part(tuple: &Expr, at: usize) -> Expr {
    match (&tuple.kind, &tuple.ty) {
        (ExprKind::Tuple(parts), _) => parts[at].clone(),
        (_, Type::Tuple(types) | Type::Record(_, types)) => {
            let kind = ExprKind::TupleGet { base: Box::new(tuple.clone()), index: at as u32 };
            expr(kind, types[at].clone(), tuple.span)
        }
        _ => unreachable!("parts are of tuples and records"),
    }
}
