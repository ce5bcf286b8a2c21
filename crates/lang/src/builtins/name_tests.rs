//! Folds `func == "cuInit"` and `strcontains(api, "Mem")` per attach point at compile time, since BPF programs use numbers
//! for names.

use crate::builtins::args::Args;
use crate::hir::make::{binary, expr, int, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, NameId, NameKind, Type};
use crate::source::span::Span;

impl dyn Args + '_ {
    /// Whether the name of the current attach point passes a test. `shown` describes the test in messages, `text` is the span of the
    /// compared text.
    pub(crate) fn name_test(
        &mut self,
        name: &Expr,
        shown: &str,
        text: Span,
        test: impl Fn(&str) -> bool,
        span: Span,
    ) -> Expr {
        let Type::Name(kind) = name.ty else { return unknown(span) };
        match name.kind {
            ExprKind::Int(id) => {
                let holds = test(self.name_text(kind, NameId(id as u32)));
                return int(i64::from(holds), Type::Bool, span);
            }
            ExprKind::Name(_) => {}
            ExprKind::Around(_) => return self.only_equality(span),
            _ => return self.stored_name(span),
        }
        let (ids, of_clause) = self.scene().probe.name_ids(kind);
        let passes = |id: &NameId| test(self.name_text(kind, *id));
        let found: Vec<NameId> = ids.into_iter().filter(passes).collect();
        // An option of the command line may apply only to other clauses.
        let is_option = self.is_option(text);
        let message = format!("no attach point of this clause has a `{}` {shown}", word(kind));
        if found.is_empty() && !of_clause.iter().any(passes) && !is_option {
            self.warning("W0254", span, message);
        } else {
            self.diags().withdraw_warning("W0254", span, message);
        }
        expr(ExprKind::NameIn { kind, ids: found }, Type::Bool, span)
    }

    /// `parent_func == "cudaMalloc"`: compares the ids, since the list of functions is not complete at compile time.
    pub(crate) fn parent_is(&mut self, name: &Expr, text: &str, span: Span) -> Expr {
        let id = self.names().intern(NameKind::Func, text);
        let number = expr(ExprKind::Cast(Box::new(name.clone())), Type::U32, span);
        binary(BinaryOp::Eq, number, int(i64::from(id.0), Type::U32, span), Type::Bool, span)
    }

    fn only_equality(&mut self, span: Span) -> Expr {
        let error = self.error("E0212", span, "`parent_func` can only be compared by `==` and `!=`");
        error.note("libraries that are mapped later add names");
        error.help("write `parent_func == \"cudaMalloc\"`, and `||` between several");
        unknown(span)
    }

    fn stored_name(&mut self, span: Span) -> Expr {
        let error = self.error("E0212", span, "a stored name cannot be compared with text");
        error.help("compare `func`, `api` or `probe` itself, in the probe that stores it");
        unknown(span)
    }

    /// Reports the comparison of a name with a text that is not a literal.
    pub(crate) fn name_against_value(&mut self, span: Span) -> Expr {
        let error = self.error("E0212", span, "names can only be compared with strings in quotes");
        error.note("`func`, `api` and `probe` are numbers until they are printed");
        unknown(span)
    }
}

fn word(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Func => "func",
        NameKind::Api => "api",
        NameKind::Probe => "probe",
    }
}
