//! Merges the same expression of several probes into one. Where they differ, it becomes a value by case.

use super::parts::{made_from_mut, take};
use lang::hir::visit::visit_expr;
use lang::hir::{Arm, Expr, ExprKind, Probe, Signature, Type};
use lang::types::passing::long_double;

/// Whether the parameters that an expression reads have the same locations in two cases of a probe.
pub(crate) fn reads_alike(probe: &Probe, a: usize, b: usize, expr: &Expr) -> bool {
    Column { signatures: probe.cases.iter().map(Option::as_ref).collect() }.places_alike(
        a,
        b,
        params_read(expr),
    )
}

/// Merges expressions of one type, one per case.
pub(super) struct Column<'p> {
    pub signatures: Vec<Option<&'p Signature>>,
}

impl Column<'_> {
    /// Merges parts of a probe; strings may differ in capacity.
    pub(super) fn merge_parts(&self, column: Vec<Expr>) -> Expr {
        let room = |e: &Expr| if let Type::Str(capacity) = e.ty { Some(capacity) } else { None };
        let most = column.iter().filter_map(room).max();
        if column.iter().all(|e| room(e) == most) {
            return self.merge(column);
        }
        let ty = Type::Str(most.expect("they differ"));
        self.merge(column.into_iter().map(|e| widened(e, &ty)).collect())
    }

    fn merge(&self, mut column: Vec<Expr>) -> Expr {
        let first = &column[0];
        if (1..).zip(&column[1..]).all(|(case, e)| self.alike(0, first, case, e)) {
            return column.swap_remove(0);
        }
        match column.iter().map(constant).collect::<Option<Vec<Expr>>>() {
            Some(constants) => self.by_case(constants),
            None => self.merge_operands(column),
        }
    }

    /// Whether the expressions of two cases are equal and read parameters at the same locations.
    fn alike(&self, a_case: usize, a: &Expr, b_case: usize, b: &Expr) -> bool {
        a == b && self.places_alike(a_case, b_case, params_read(a))
    }

    /// Whether the parameters have equal locations, which follow from the classes of the preceding parameters.
    fn places_alike(&self, a: usize, b: usize, params: usize) -> bool {
        let classes = |case: usize| {
            let params = self.signatures[case].into_iter().flat_map(|signature| &signature.params);
            params.map(|param| match &param.ty {
                ty if *ty == long_double() => Class::LongDouble,
                _ if param.float => Class::Float,
                Type::Struct(id) => Class::Struct(id.0),
                _ => Class::Word,
            })
        };
        let hidden = |case: usize| self.signatures[case].is_some_and(|signature| signature.hidden);
        params == 0 || hidden(a) == hidden(b) && classes(a).take(params).eq(classes(b).take(params))
    }

    /// Merges expressions with equal operations to one operation on merged operands; otherwise to a value by case.
    fn merge_operands(&self, mut column: Vec<Expr>) -> Expr {
        let operands: Vec<Vec<Expr>> = column.iter_mut().map(dismantled).collect();
        if operands[0].is_empty() || column[1..].iter().any(|e| *e != column[0]) {
            column.iter_mut().zip(operands).for_each(|(e, operands)| assemble(e, operands.into_iter()));
            return self.by_case(column);
        }
        let mut merged = column.swap_remove(0);
        assemble(&mut merged, columns(operands).map(|column| self.merge(column)));
        merged
    }

    fn by_case(&self, column: Vec<Expr>) -> Expr {
        let (ty, span) = (column[0].ty.clone(), column[0].span);
        let mut arms: Vec<Arm> = vec![];
        for (case, value) in column.into_iter().enumerate() {
            match arms.iter_mut().find(|arm| self.alike(arm.first_case(), &arm.value, case, &value)) {
                Some(arm) => arm.cases |= 1 << case,
                None => arms.push(Arm { cases: 1 << case, value }),
            }
        }
        Expr { kind: ExprKind::ByCase(arms), ty, span }
    }
}

/// The property of a parameter that determines the locations of parameters.
#[derive(PartialEq)]
enum Class {
    Word,
    Float,
    LongDouble,
    Struct(u32),
}

/// Transposes rows of equal length.
pub(super) fn columns(rows: Vec<Vec<Expr>>) -> impl Iterator<Item = Vec<Expr>> {
    let mut rows: Vec<_> = rows.into_iter().map(Vec::into_iter).collect();
    std::iter::from_fn(move || rows.iter_mut().map(Iterator::next).collect())
}

/// Takes the operands out of an expression; their types stay.
fn dismantled(expr: &mut Expr) -> Vec<Expr> {
    let mut operands = vec![];
    made_from_mut(expr, &mut |part| operands.push(take(part)));
    operands
}

/// Puts operands back into an expression.
fn assemble(expr: &mut Expr, mut operands: impl Iterator<Item = Expr>) {
    made_from_mut(expr, &mut |part| *part = operands.next().expect("there is one for each"));
}

/// Increases the capacity of a string.
fn widened(text: Expr, ty: &Type) -> Expr {
    let span = text.span;
    let kind = match text.kind {
        kind @ ExprKind::Str(_) => kind,
        _ => ExprKind::Cast(Box::new(text)),
    };
    Expr { kind, ty: ty.clone(), span }
}

/// The value of a constant expression, comparisons of constant strings included.
fn constant(expr: &Expr) -> Option<Expr> {
    let kind = match &expr.kind {
        ExprKind::Int(_) | ExprKind::Str(_) => expr.kind.clone(),
        ExprKind::StrEq { lhs, rhs, limit: None } => match (&lhs.kind, &rhs.kind) {
            (ExprKind::Str(lhs), ExprKind::Str(rhs)) => ExprKind::Int(i64::from(lhs == rhs)),
            _ => return None,
        },
        _ => return None,
    };
    Some(Expr { kind, ..expr.clone() })
}

/// Number of the last parameter that an expression reads, plus one.
fn params_read(expr: &Expr) -> usize {
    let mut last = 0;
    visit_expr(expr, &mut |e| {
        if let ExprKind::Param(param) | ExprKind::ParamField { param, .. } = e.kind {
            last = last.max(param as usize + 1);
        }
    });
    last
}
