//! `arg0` in a USDT probe: a value in a register or in memory, as the marker describes.

use crate::builtins::args::Args;
use crate::catalog::MarkerPlace;
use crate::hir::make::{binary, convert, expr, int, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, Type};
use crate::source::span::Span;

impl dyn Args + '_ {
    /// The n-th value, with the size and sign in the marker.
    pub(crate) fn passed(&mut self, number: u32, span: Span) -> Expr {
        let args = self.scene().probe.passed.as_deref().unwrap_or_default();
        let Some(arg) = args.get(number as usize).cloned() else {
            let message = format!("no argument `arg{number}` in `{}`", self.scene().probe.symbol);
            let help = match args.len() {
                0 => "use built-ins such as `pid` and `ustack`".to_string(),
                count => format!("the last argument is `arg{}`", count - 1),
            };
            self.error("E0120", span, message).label("no such argument").help(help);
            return unknown(span);
        };
        let ty = Type::Int { bytes: arg.bytes, signed: arg.signed };
        match arg.place {
            MarkerPlace::Constant(value) => int(value, ty, span),
            MarkerPlace::Register(name) => convert(register(name, span), &ty),
            MarkerPlace::Memory { base, index, offset } => {
                let scaled = index.map(|(name, scale)| times(register(name, span), scale, span));
                let parts = base.map(|name| register(name, span)).into_iter().chain(scaled);
                let add = |a, b| binary(BinaryOp::Add, a, b, Type::U64, span);
                let base = parts.reduce(add).unwrap_or_else(|| int(0, Type::U64, span));
                expr(ExprKind::Load { base: Box::new(base), offset }, ty, span)
            }
            MarkerPlace::Unreadable(written) => self.unreadable(number, &written, span),
        }
    }

    fn unreadable(&mut self, number: u32, written: &str, span: Span) -> Expr {
        let message = format!("`arg{number}` of `{}` cannot be read", self.scene().probe.symbol);
        let error = self.error("E0122", span, message);
        error.note(format!(
            "the file gives its location as `{written}`: a floating-point register, or an unsupported location"
        ));
        unknown(span)
    }
}

fn register(name: String, span: Span) -> Expr {
    expr(ExprKind::Reg(name), Type::U64, span)
}

fn times(value: Expr, scale: u8, span: Span) -> Expr {
    match scale {
        1 => value,
        _ => binary(BinaryOp::Mul, value, int(i64::from(scale), Type::U64, span), Type::U64, span),
    }
}
