//! The values of the probed call that a clause uses. Functions with the same such values share a program.

use rustc_hash::FxHashSet;

use crate::source::span::Span;
use crate::syntax::ast::{Clause, Expr, ExprKind, Stmt, StmtKind, UnaryOp};
use crate::syntax::visit::look;

/// The values of a call that a body uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// `args.NAME`, without duplicates, with the first position.
    pub args: Vec<(String, Span)>,
    seen_args: FxHashSet<String>,
    /// `args` itself: the first position.
    pub all_args: Option<Span>,
    /// The largest N of `argN`, with its first position.
    pub highest_arg: Option<(u32, Span)>,
    /// `retval`: the first position.
    pub retval: Option<Span>,
    /// True if the body may read through a pointer, directly or from a variable.
    pub follows: bool,
    /// `span()`: the result code, if the function has one.
    pub result: bool,
    /// `uaddr("x")`: the value differs by function.
    pub place: bool,
    /// A value of the enclosing calls: the first position.
    pub enclosing: Option<Span>,
    /// `event()`: it names the enclosing span.
    pub event: bool,
}

/// Variables that are values of the enclosing calls.
const OF_ENCLOSING: &[&str] = &["call_depth", "outermost", "parent_func"];

/// Whether an expression is a value of the enclosing calls; its operands are not considered.
pub fn is_of_enclosing(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Ident(name) => OF_ENCLOSING.contains(&name.as_str()),
        ExprKind::Call { name, .. } => OF_ENCLOSING.contains(&name.node.as_str()),
        _ => false,
    }
}

impl Usage {
    /// The usage of the predicate and the body.
    pub fn of(clause: &Clause) -> Usage {
        let mut user = UsageVisitor::default();
        look::clause(clause, &mut user);
        user.usage
    }

    /// Whether the body uses arguments or the result by name.
    pub fn needs_signature(&self) -> bool {
        !self.args.is_empty() || self.all_args.is_some() || self.retval.is_some()
    }

    fn see(&mut self, expr: &Expr) {
        if is_of_enclosing(expr) {
            self.enclosing.get_or_insert(expr.span);
        }
        self.follows |= match &expr.kind {
            ExprKind::Field { base, .. } => !base.is_args(),
            ExprKind::Unary { op: UnaryOp::Deref, .. } | ExprKind::Index { .. } => true,
            ExprKind::SizeofExpr(_) | ExprKind::Block { .. } => true,
            ExprKind::Cast { ty, .. } | ExprKind::TypeInfo(ty) => ty.of.is_some(),
            _ => false,
        };
        match &expr.kind {
            ExprKind::Field { base, name, .. } if base.is_args() => self.see_arg(&name.node, name.span),
            ExprKind::Ident(name) => self.see_ident(name, expr.span),
            ExprKind::Call { name, .. } if name.node == "span" => self.result = true,
            ExprKind::Call { name, .. } if name.node == "event" => self.event = true,
            ExprKind::Call { name, args } if args.is_empty() => self.see_ident(&name.node, expr.span),
            ExprKind::Call { name, .. } => self.place |= name.node == "uaddr",
            _ => {}
        }
    }

    /// Whether the body uses `args.NAME`.
    pub fn uses_arg(&self, name: &str) -> bool {
        self.seen_args.contains(name)
    }

    fn see_arg(&mut self, name: &str, span: Span) {
        if self.seen_args.insert(name.to_string()) {
            self.args.push((name.to_string(), span));
        }
    }

    fn see_ident(&mut self, name: &str, span: Span) {
        if name == "retval" {
            self.retval.get_or_insert(span);
        }
        if let Some(number) = arg_number(name) {
            self.see_number(number, span);
        }
        if let Some(number) = stack_arg_number(name) {
            self.see_number(number + argument_registers(), span);
        }
    }

    fn see_number(&mut self, number: u32, span: Span) {
        if self.highest_arg.is_none_or(|(highest, _)| highest < number) {
            self.highest_arg = Some((number, span));
        }
    }
}

#[derive(Default)]
struct UsageVisitor {
    usage: Usage,
    /// True right after `args.NAME`: the `args` in it is not the use of all arguments.
    named: bool,
}

impl look::Visit for UsageVisitor {
    fn before_expr(&mut self, expr: &Expr) {
        if expr.is_args() && !self.named {
            self.usage.all_args.get_or_insert(expr.span);
        }
        self.named = matches!(&expr.kind, ExprKind::Field { base, .. } if base.is_args());
        self.usage.see(expr);
    }

    /// A stored value may be a pointer that is followed later.
    fn stmt(&mut self, stmt: &Stmt) {
        self.usage.follows |= match &stmt.kind {
            StmtKind::Let { .. } => true,
            StmtKind::Assign { value, .. } => !matches!(value.kind, ExprKind::Call { .. }),
            _ => false,
        };
    }
}

/// The N of `argN`.
pub fn arg_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("arg")?;
    let canonical = digits == "0" || !digits.starts_with('0');
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    (canonical && number < 100).then_some(number)
}

/// The N of `sargN`, the N-th argument on the stack.
pub fn stack_arg_number(name: &str) -> Option<u32> {
    name.strip_prefix('s').and_then(arg_number)
}

/// Integer registers that hold arguments on this machine.
pub fn argument_registers() -> u32 {
    if std::env::consts::ARCH == "aarch64" { 8 } else { 6 }
}

#[cfg(test)]
mod tests {
    use super::arg_number;

    #[test]
    fn arg_numbers() {
        assert_eq!(arg_number("arg0"), Some(0));
        assert_eq!(arg_number("arg12"), Some(12));
        for other in ["arg", "args", "arg01", "argx", "arg100", "arg99999999999", "rarg0"] {
            assert_eq!(arg_number(other), None, "{other}");
        }
    }
}
