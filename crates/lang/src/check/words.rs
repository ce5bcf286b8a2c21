//! Compares enums whose constants are words, such as those of records of a GPU, with text: `args.src_kind == "pinned"`. The words are
//! no constants of the language, where `device` has another meaning.

use crate::check::Checker;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{binary, expr, int};
use crate::hir::{BinaryOp, Expr, ExprKind, Type};
use crate::source::span::Span;

impl Checker<'_> {
    /// `value == "word"`; `None` if the operands are no such enum and text.
    pub(super) fn compare_word(&mut self, op: BinaryOp, lhs: &Expr, rhs: &Expr, span: Span) -> Option<Expr> {
        if !matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            return None;
        }
        let (value, id, text) = match (&lhs.ty, &lhs.kind, &rhs.ty, &rhs.kind) {
            (Type::Enum(id), _, _, ExprKind::Str(text)) => (lhs, *id, (text, rhs.span)),
            (_, ExprKind::Str(text), Type::Enum(id), _) => (rhs, *id, (text, lhs.span)),
            _ => return None,
        };
        let name = self.types.enum_def(id).name.clone();
        let words = cuda::gpu::words(&name)?;
        let word = String::from_utf8_lossy(text.0);
        let Some((_, number)) = words.iter().find(|(known, _)| *known == word) else {
            let near = did_you_mean(&self.diags.similar(&word, words.iter().map(|(known, _)| *known)));
            let names: Vec<String> = words.iter().map(|(known, _)| format!("`{known}`")).collect();
            let result = if op == BinaryOp::Ne { "true" } else { "false" };
            let message = format!("`enum {name}` has no value `{word}`: this is always {result}");
            let warning = self.warning("W0254", text.1, message);
            match near.is_empty() {
                true => drop(warning.help(format!("values are {}", names.join(", ")))),
                false => warning.help.extend(near),
            }
            return Some(int(i64::from(op == BinaryOp::Ne), Type::Bool, span));
        };
        let number = expr(ExprKind::Int(*number), value.ty.clone(), span);
        Some(binary(op, value.clone(), number, Type::Bool, span))
    }
}
