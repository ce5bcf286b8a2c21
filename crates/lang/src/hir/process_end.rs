//! Which bodies run at the end of a process and need nothing of the ending task: the tracer itself can run them, if the script runs in
//! the traced processes.

use super::visit::visit_probe;
use super::{Attach, BinaryOp, Builtin, Expr, ExprKind, Probe, Trigger};

impl Probe {
    /// Whether this is `tracepoint:sched:sched_process_exit / pid == tid /`, perhaps with more conditions, and the body uses ids, names,
    /// times and values of the script only.
    pub fn is_process_end(&self) -> bool {
        let is_task_end = matches!(&self.attach, Attach::Event(Trigger::Tracepoint { category, event })
            if wire::manifest::is_task_end(category, event));
        let mut needs_task = false;
        visit_probe(self, &mut |e| needs_task |= is_of_task(&e.kind));
        is_task_end && self.predicate.as_ref().is_some_and(is_main_thread) && !needs_task
    }
}

/// Whether the condition holds in the main thread only.
fn is_main_thread(condition: &Expr) -> bool {
    let ExprKind::Binary { op, lhs, rhs } = &condition.kind else { return false };
    let is = |e: &Expr, id: Builtin| matches!(e.kind, ExprKind::Builtin(builtin, _) if builtin == id);
    match op {
        BinaryOp::And => is_main_thread(lhs) || is_main_thread(rhs),
        BinaryOp::Eq => [(lhs, rhs), (rhs, lhs)]
            .iter()
            .any(|(one, other)| is(one, Builtin::Pid) && is(other, Builtin::Tid)),
        _ => false,
    }
}

/// Whether the value is one of the ending task, other than its ids and names.
fn is_of_task(kind: &ExprKind) -> bool {
    match kind {
        ExprKind::Builtin(builtin, _) => matches!(
            builtin,
            Builtin::Uid
                | Builtin::Gid
                | Builtin::Cgroup
                | Builtin::Task
                | Builtin::Context
                | Builtin::FunctionAddress
                | Builtin::Cpu
                | Builtin::NumaNode
                | Builtin::UserMode
        ),
        ExprKind::Param(_)
        | ExprKind::ParamField { .. }
        | ExprKind::RecordBytes { .. }
        | ExprKind::Arg(_)
        | ExprKind::Reg(_)
        | ExprKind::Kernel(_)
        | ExprKind::Load { .. }
        | ExprKind::ReadStr { .. }
        | ExprKind::ReadBuf { .. }
        | ExprKind::Stack
        | ExprKind::StackLen { .. } => true,
        _ => false,
    }
}
