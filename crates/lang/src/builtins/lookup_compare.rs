//! Folds `strerror(n) == "Permission denied"` to `n == 13` at compile time, since BPF programs have only the number.

use crate::builtins::args::Args;
use crate::builtins::floats::is_floating;
use crate::builtins::posix;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{binary, convert, expr, int, not};
use crate::hir::{BinaryOp, Expr, ExprKind, Lookup, Type};
use crate::source::span::Span;
use crate::syntax::operators::symbol;
use crate::types::is_kernel_name;

/// Help for lookups whose texts are unknown at compile time.
static ALTERNATIVES: &[(Lookup, &str)] = &[
    (Lookup::Comm, "`comm` without argument can be compared; for another process, compare the pid"),
    (Lookup::User, "compare the number: `uid == 1000`"),
    (Lookup::CgroupPath, "compare the number: `cgroup == cgroupid(\"/sys/fs/cgroup/...\")`"),
    (Lookup::Mac, "compare the bytes: `memcmp(p, q, 6)`"),
    (Lookup::DeviceUuid, "compare the number: `device == 0`"),
    (Lookup::DevicePci, "compare the number: `device == 0`"),
];

impl dyn Args + '_ {
    /// `strerror(a) == strerror(b)`, `strerror(n) == "text"`. `None` for operands that are not looked up, for
    /// floating-point numbers, and for names of GPU kernels, whose text is in a map.
    pub(crate) fn compare_looked_up(
        &mut self,
        op: BinaryOp,
        lhs: &Expr,
        rhs: &Expr,
        span: Span,
    ) -> Option<Expr> {
        let is_other = |e: &Expr| is_kernel_name(&e.ty) || is_floating(&e.ty);
        if is_other(lhs) || is_other(rhs) {
            return None;
        }
        let equality = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
        let equal = match (&lhs.ty, &rhs.ty) {
            (Type::Lookup(a), Type::Lookup(b)) if a == b && equality => {
                binary(BinaryOp::Eq, number_of(lhs), number_of(rhs), Type::Bool, span)
            }
            (Type::Lookup(what), Type::Str(_)) => self.text_equals(*what, lhs, op, rhs, span),
            (Type::Str(_), Type::Lookup(what)) => self.text_equals(*what, rhs, op, lhs, span),
            _ => return None,
        };
        Some(if op == BinaryOp::Ne { not(equal, span) } else { equal })
    }

    /// Whether the text of a number equals `text`.
    fn text_equals(&mut self, what: Lookup, value: &Expr, op: BinaryOp, text: &Expr, span: Span) -> Expr {
        let function = what.function();
        let Some(texts) = texts(what) else {
            let message = format!("the result of `{function}` cannot be compared by `{}`", symbol(op));
            let alternative = ALTERNATIVES.iter().find(|(known, _)| *known == what);
            let error = self.error("E0212", span, message);
            error.note("it is a number in the probe, and is looked up when it is printed");
            error.help(alternative.map_or("compare its argument", |(_, alternative)| alternative));
            return int(0, Type::Bool, span);
        };
        let (ExprKind::Str(expected), BinaryOp::Eq | BinaryOp::Ne) = (&text.kind, op) else {
            let message = format!(
                "the result of `{function}` can only be compared with text in quotes, by `==` and `!=`"
            );
            self.error("E0212", span, message)
                .note("it is a number in the probe, and is looked up when it is printed");
            return int(0, Type::Bool, span);
        };
        let expected = String::from_utf8_lossy(expected);
        let found: Vec<i64> =
            texts.iter().filter(|(_, text)| *text == expected).map(|(number, _)| *number).collect();
        if found.is_empty() {
            let near = did_you_mean(&self.diags().similar(&expected, texts.iter().map(|(_, text)| *text)));
            let warning =
                self.warning("W0254", text.span, format!("`{function}` never returns `{expected}`"));
            warning.help.extend(near);
            if posix::constant(&expected).is_some() {
                warning.help(format!("compare the number: `n == {expected}`"));
            }
        }
        self.once(number_of(value), |_, value| {
            let is = |number: i64| {
                binary(BinaryOp::Eq, value.clone(), int(number, Type::I64, span), Type::Bool, span)
            };
            let either = |a, b| binary(BinaryOp::Or, a, b, Type::Bool, span);
            found.into_iter().map(is).reduce(either).unwrap_or_else(|| int(0, Type::Bool, span))
        })
    }
}

/// The number of a lookup.
fn number_of(value: &Expr) -> Expr {
    match &value.kind {
        ExprKind::Lookup(number) => convert((**number).clone(), &Type::I64),
        _ => expr(ExprKind::Cast(Box::new(value.clone())), Type::I64, value.span),
    }
}

/// All texts of a lookup; `None` if they depend on the machine.
fn texts(what: Lookup) -> Option<Vec<(i64, &'static str)>> {
    Some(match what {
        Lookup::Error => posix::error_texts().collect(),
        Lookup::Signal => posix::signal_texts().collect(),
        Lookup::Syscall => {
            let calls = syscalls::SysnoSet::all();
            calls.iter().map(|call| (i64::from(call.id()), call.name())).collect()
        }
        Lookup::DriverResult => cuda::errors::DRIVER.texts(),
        Lookup::RuntimeResult => cuda::errors::RUNTIME.texts(),
        _ => return None,
    })
}
