//! `signal`: the signal's number, and the probes that may send one.

use crate::builtins::args::Args;
use crate::builtins::posix::SIGNALS;
use crate::builtins::row::{BuiltinSpec, Check, call, running};
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{convert, int, is_unknown, literal};
use crate::hir::{Expr, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use Check::Action;

/// The largest number, that of the last real-time signal.
const LAST: i64 = 64;

pub(super) static ROWS: &[BuiltinSpec] = &[
    running(call(
        Action(|c, f, _| c.signal(&f.args[0], false, f.span)),
        1..=1,
        "signal(\"SIGSTOP\"), signal(number)",
        "sends a signal to the process that the probe interrupted; needs `--unsafe`",
        "uretprobe:libcuda:cuMemAlloc { if (retval) { signal(\"SIGSTOP\") } }",
    )),
    running(call(
        Action(|c, f, _| c.signal(&f.args[0], true, f.span)),
        1..=1,
        "signal_thread(\"SIGUSR1\"), signal_thread(number)",
        "sends a signal to the thread that the probe interrupted; needs `--unsafe`",
        "uprobe:libcuda:cuInit { signal_thread(\"SIGUSR1\") }",
    )),
];

impl dyn Args + '_ {
    /// `signal("SIGSTOP")`, `signal("STOP")`, `signal(19)`
    pub(crate) fn signal(&mut self, arg: &ast::Expr, thread: bool, span: Span) -> Option<StmtKind> {
        if self.scene().probe.probe_type == "interval" {
            let error = self.error("E0211", span, "an interval interrupts no process to send a signal to");
            error.help("use it in a probe on functions, or `system(\"kill ...\")`");
            return None;
        }
        let number = match &arg.kind {
            ast::ExprKind::Str(name) => self.signal_named(&String::from_utf8_lossy(name), arg.span)?,
            _ => convert(self.number(arg, "a signal"), &Type::I64),
        };
        if let Some(given) = literal(&number).filter(|given| !(1..=LAST).contains(given)) {
            self.error("E0222", arg.span, format!("signals have numbers from 1 to {LAST}, found {given}"));
            return None;
        }
        (!is_unknown(&number)).then_some(StmtKind::Signal { number, thread })
    }

    fn signal_named(&mut self, name: &str, span: Span) -> Option<Expr> {
        let full = if name.starts_with("SIG") { name.to_string() } else { format!("SIG{name}") };
        match SIGNALS.iter().position(|known| *known == full) {
            Some(at) => Some(int(at as i64 + 1, Type::I64, span)),
            None => {
                let near = did_you_mean(&self.diags().similar(&full, SIGNALS.iter().copied()));
                let error = self.error("E0210", span, format!("no signal `{name}`"));
                error.help.extend(near);
                None
            }
        }
    }
}
