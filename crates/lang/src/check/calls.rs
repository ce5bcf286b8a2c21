//! Calls: which function a name refers to, its number of arguments, and where it may appear.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check};
use crate::builtins::table;
use crate::check::Checker;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{convert, unknown};
use crate::hir::{Agg, Expr, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::Name;

impl Checker<'_> {
    /// `f(a, b)` as a value.
    pub(crate) fn call_value(&mut self, name: &Name, args: &[ast::Expr], span: Span) -> Expr {
        if name.node.starts_with('@') {
            return self.hidden_call(&name.node, &args[0], span);
        }
        let Some(builtin) = self.builtin_call(name, args, span) else { return unknown(span) };
        match builtin.check {
            Check::Variable(_) if args.is_empty() => self.ident(&name.node, span),
            Check::Variable(check) | Check::Function(check) => {
                check(self, &Call { name: &name.node, args, span })
            }
            // `if comptime (c) { fail("text") } else { value }`
            Check::Action(check) if name.node == "fail" => {
                check(self, &Call { name: &name.node, args, span }, &mut Vec::new());
                unknown(span)
            }
            Check::Action(_) => {
                let message = format!("`{}` is an action and has no value", name.node);
                self.error("E0226", span, message).help("write it as a separate statement");
                unknown(span)
            }
            Check::Aggregation(_) => {
                let message = format!("`{}` must be assigned directly to a map", name.node);
                self.error("E0218", span, message).help(format!("write `{}`", builtin.signature));
                unknown(span)
            }
        }
    }

    /// The row of a valid call: known name, right number of arguments, available in the current probe.
    pub(crate) fn builtin_call(
        &mut self,
        name: &Name,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<&'static BuiltinSpec> {
        let Some(builtin) = table::find(&name.node) else {
            self.unknown_function(name);
            return None;
        };
        if !builtin.arity.contains(&args.len()) {
            self.wrong_count(builtin, args.len(), span);
            return None;
        }
        if table::UNSAFE.contains(&builtin.name) && !self.options.unsafe_ok {
            let message = format!("`{}` changes the machine that is traced", builtin.name);
            self.error("E0224", name.span, message).help("allow it with `--unsafe`");
            return None;
        }
        self.allowed(builtin, &name.node, span).then_some(builtin)
    }

    fn wrong_count(&mut self, builtin: &BuiltinSpec, found: usize, span: Span) {
        let expected = match builtin.arity.clone().into_inner() {
            (0, 0) => "no argument".to_string(),
            (1, 1) => "1 argument".to_string(),
            (1, usize::MAX) => "at least 1 argument".to_string(),
            (n, usize::MAX) => format!("at least {n} arguments"),
            (0, 1) => "at most 1 argument".to_string(),
            (a, b) if a == b => format!("{a} arguments"),
            (a, b) if a + 1 == b => format!("{a} or {b} arguments"),
            (a, b) => format!("{a} to {b} arguments"),
        };
        let message = format!("`{}` takes {expected}, found {found}", builtin.name);
        self.error("E0209", span, message).help(format!("write `{}`", builtin.signature));
    }

    fn unknown_function(&mut self, name: &Name) {
        let text = name.node.as_str();
        if table::UNSAFE.contains(&text) {
            let error = self.error("E0223", name.span, format!("`{text}` is not supported"));
            error.help("process the output in another program, or use `system`");
            return;
        }
        if let Some((_, alternative)) = table::ABSENT.iter().find(|(absent, _)| *absent == text) {
            self.error("E0223", name.span, format!("`{text}` is not supported")).help(*alternative);
            return;
        }
        let near = self.diags.similar(text, table::all().map(|b| b.name));
        let error = self.error("E0208", name.span, format!("unknown function `{text}`"));
        match table::elsewhere(text) {
            Some(here) => error.help.push(here.into()),
            None if near.is_empty() => {
                error.help.push("`cudatrace help functions` lists the functions".into())
            }
            None => error.help.extend(did_you_mean(&near)),
        }
    }

    /// `count()`, `hist(n)`: the aggregation and its sample, if the expression is one.
    pub(crate) fn aggregation(&mut self, e: &ast::Expr) -> Option<(Agg, Option<Expr>)> {
        let ast::ExprKind::Call { name, args } = &e.kind else { return None };
        let Check::Aggregation(make) = table::find(&name.node)?.check else { return None };
        let sample = args.first().map(|arg| self.number(arg, &format!("the argument of `{}`", name.node)));
        let signed = sample.as_ref().is_some_and(|s| s.ty != Type::U64);
        let agg = make(self, args, signed);
        if self.builtin_call(name, args, e.span).is_none() {
            return Some((agg, Some(unknown(e.span))));
        }
        Some((agg, sample.map(|s| if s.ty == Type::U64 { s } else { convert(s, &Type::I64) })))
    }
}
