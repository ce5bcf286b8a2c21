//! Walks over statements and expressions of the checked program.

use lang::hir::{Expr, ExprKind, Probe, Stmt, StmtKind};

/// Calls `f` with the direct operands of an expression.
pub fn operands<'e>(expr: &'e Expr, f: &mut dyn FnMut(&'e Expr)) {
    use ExprKind::*;
    match &expr.kind {
        Int(_)
        | Str(_)
        | Var(_)
        | Param(_)
        | ParamField { .. }
        | RecordBytes { .. }
        | Zero
        | Task
        | Arg(_)
        | Reg(_)
        | Retval
        | Duration
        | Started
        | Around(_)
        | Pid
        | Tid
        | Uid
        | Gid
        | Cpu
        | Nsecs
        | Elapsed
        | Comm
        | Cgroup
        | Rand
        | Fact(_)
        | Name(_)
        | NameIn { .. }
        | Stack
        | StackLen { .. }
        | Len(_) => {}
        Neg(e) | BitNot(e) | Not(e) | Cast(e) | Kernel(e) | Usym(e) | Strftime(e) => f(e),
        StrLen(e) | StrHash(e) | ByteSwap(e) | Lookup(e) => f(e),
        StrContains { haystack: e, .. }
        | StrCase { text: e, .. }
        | StrFind { haystack: e, .. }
        | Load { base: e, .. }
        | TupleGet { base: e, .. }
        | Member { base: e, .. } => f(e),
        UpdateVar { value, .. } => f(value),
        Binary { lhs, rhs, .. } | StrEq { lhs, rhs, .. } | StrConcat { lhs, rhs } => {
            [lhs, rhs].into_iter().for_each(|e| f(e))
        }
        StrIndex { base, index } | Element { base, index } => [base, index].into_iter().for_each(|e| f(e)),
        ReadBuf { base, len } => [base, len].into_iter().for_each(|e| f(e)),
        Ternary { cond, then, otherwise } => [cond, then, otherwise].into_iter().for_each(|e| f(e)),
        ReadStr { base, limit } => std::iter::once(base).chain(limit).for_each(|e| f(e)),
        MapGet { key, .. } | HasKey { key, .. } | Delete { key, .. } => key.iter().for_each(f),
        UpdateMap { key, value, .. } => {
            key.iter().for_each(&mut *f);
            f(value);
        }
        Tuple(parts) => parts.iter().for_each(f),
        Block { value, .. } => f(value),
    }
}

/// Calls `f` with an expression and all in it, outermost first.
pub fn each<'e>(expr: &'e Expr, f: &mut dyn FnMut(&'e Expr)) {
    f(expr);
    if let ExprKind::Block { body, .. } = &expr.kind {
        each_in(body, f);
    }
    operands(expr, &mut |inner| each(inner, f));
}

/// Whether `test` holds for the expression or one in it.
pub fn any(expr: &Expr, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
    let mut found = false;
    each(expr, &mut |e| found = found || test(e));
    found
}

/// Calls `f` with the expressions that stand directly in a statement.
fn direct<'e>(stmt: &'e Stmt, f: &mut dyn FnMut(&'e Expr)) {
    use StmtKind::*;
    match &stmt.kind {
        SetVar { value, .. }
        | Expr(value)
        | PrintValue(value)
        | Exit { code: value }
        | Signal { number: value, .. } => f(value),
        SetMap { key, value, .. } => key.iter().chain([value]).for_each(f),
        Aggregate { key, arg, .. } => key.iter().chain(arg).for_each(f),
        If { cond, .. } | While { cond, .. } => f(cond),
        ForRange { start, end, .. } => [start, end].into_iter().for_each(f),
        Printf { args, .. } | Message { args, .. } => args.iter().for_each(f),
        PrintEntry { key, .. } => key.iter().for_each(f),
        Export { hidden, fields, .. } => {
            hidden.iter().map(|(_, e)| e).chain(fields.iter().map(|(_, e)| e)).for_each(f);
        }
        Unroll { .. }
        | ForMap { .. }
        | Break
        | Continue
        | Return
        | PrintMap { .. }
        | Rows(_)
        | Clear(_)
        | Zero(_)
        | Time(_) => {}
    }
}

/// The statements inside a statement.
fn inner(stmt: &Stmt) -> impl Iterator<Item = &Stmt> {
    use StmtKind::*;
    let (first, second): (&[Stmt], &[Stmt]) = match &stmt.kind {
        If { then, otherwise, .. } => (then, otherwise),
        While { body, .. } | Unroll { body, .. } | ForRange { body, .. } | ForMap { body, .. } => (body, &[]),
        _ => (&[], &[]),
    };
    first.iter().chain(second)
}

/// Calls `f` with every expression of the statements, those inside others too.
pub fn each_in<'e>(body: &'e [Stmt], f: &mut dyn FnMut(&'e Expr)) {
    for stmt in body {
        direct(stmt, &mut |e| each(e, f));
        inner(stmt).for_each(|stmt| each_in(std::slice::from_ref(stmt), f));
    }
}

/// Calls `f` with every expression of a probe.
pub fn each_of<'e>(probe: &'e Probe, f: &mut dyn FnMut(&'e Expr)) {
    if let Some(predicate) = &probe.predicate {
        each(predicate, f);
    }
    each_in(&probe.body, f);
}

/// Whether `test` holds for a statement, or one inside.
pub fn any_stmt(body: &[Stmt], test: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    body.iter().any(|stmt| {
        test(stmt)
            || inner(stmt).any(|stmt| any_stmt(std::slice::from_ref(stmt), test))
            || any_in_blocks(stmt, test)
    })
}

/// The same for the statements of block expressions.
fn any_in_blocks(stmt: &Stmt, test: &mut dyn FnMut(&Stmt) -> bool) -> bool {
    let mut found = false;
    direct(stmt, &mut |e| {
        found =
            found || any(e, &mut |e| matches!(&e.kind, ExprKind::Block { body, .. } if any_stmt(body, test)));
    });
    found
}

/// Running it leaves a trace beyond its value, so that it must run exactly once and even if the value is not used.
pub fn has_effect(expr: &Expr) -> bool {
    any(expr, &mut |e| {
        matches!(
            e.kind,
            ExprKind::UpdateMap { .. }
                | ExprKind::UpdateVar { .. }
                | ExprKind::Delete { .. }
                | ExprKind::Block { .. }
        )
    })
}
