//! Visitors of the checked program: the direct subexpressions of every expression and statement, by reference and mutably.

use crate::hir::{Around, Attach, Builtin, Expr, ExprKind, Probe, Program, Stmt, StmtKind};

/// Defines the traversals of a borrowed or mutably borrowed (`mut`) tree.
macro_rules! walks {
    ($operands:ident, $direct:ident, $inner:ident, $iter:ident, $($mutable:tt)?) => {
        /// Calls `f` with the direct operands of an expression, without those in the statements of a block.
        pub fn $operands<'e>(expr: &'e $($mutable)? Expr, f: &mut dyn FnMut(&'e $($mutable)? Expr)) {
            use ExprKind::*;
            match &$($mutable)? expr.kind {
                Int(_)
                | Str(_)
                | Var(_)
                | VarAddress(_)
                | Param(_)
                | ParamField { .. }
                | RecordBytes { .. }
                | Zero
                | Arg(_)
                | Reg(_)
                | Retval
                | RetvalField { .. }
                | Duration
                | Started
                | Around(_)
                | Name(_)
                | NameIn { .. }
                | Stack
                | StackLen { .. }
                | Len(_) => {}
                Neg(e) | BitNot(e) | Not(e) | Cast(e) | Kernel(e) | Lookup(e) => f(e),
                StrContains { haystack: e, .. }
                | Load { base: e, .. }
                | TupleGet { base: e, .. }
                | Member { base: e, .. }
                | UpdateVar { value: e, .. }
                | Block { value: e, .. } => f(e),
                Binary { lhs: a, rhs: b, .. }
                | StrEq { lhs: a, rhs: b, .. }
                | StrIndex { base: a, index: b }
                | Element { base: a, index: b }
                | ReadBuf { base: a, len: b } => {
                    f(a);
                    f(b);
                }
                Ternary { cond, then, otherwise } => {
                    f(cond);
                    f(then);
                    f(otherwise);
                }
                ReadStr { base, limit } => {
                    f(base);
                    if let Some(limit) = limit {
                        f(limit);
                    }
                }
                MapGet { key, .. } | HasKey { key, .. } | Delete { key, .. } | Tuple(key) | Builtin(_, key) => {
                    key.$iter().for_each(f)
                }
                UpdateMap { key, value, .. } => {
                    key.$iter().for_each(&mut *f);
                    f(value);
                }
                ByCase(arms) => arms.$iter().for_each(|arm| f(&$($mutable)? arm.value)),
            }
        }

        /// Calls `f` with the direct expressions of a statement.
        pub fn $direct<'e>(stmt: &'e $($mutable)? Stmt, f: &mut dyn FnMut(&'e $($mutable)? Expr)) {
            use StmtKind::*;
            match &$($mutable)? stmt.kind {
                SetVar { value: e, .. }
                | Expr(e)
                | PrintValue(e)
                | Exit { code: e }
                | Signal { number: e, .. }
                | If { cond: e, .. }
                | While { cond: e, .. } => f(e),
                SetMap { key, value, .. } => {
                    key.$iter().for_each(&mut *f);
                    f(value);
                }
                Aggregate { key, arg, .. } => key.$iter().chain(arg).for_each(f),
                ForRange { start, end, .. } => {
                    f(start);
                    f(end);
                }
                Printf { args: list, .. } | Message { args: list, .. } | PrintEntry { key: list, .. } => {
                    list.$iter().for_each(f)
                }
                Export { hidden, fields, .. } => {
                    hidden.$iter().for_each(|(_, e)| f(e));
                    fields.$iter().for_each(|(_, e)| f(e));
                }
                Return(value) => value.$iter().for_each(f),
                Unroll { .. }
                | ForMap { .. }
                | Break
                | Continue
                | PrintMap { .. }
                | Rows { .. }
                | Clear(_)
                | Zero(_)
                | Time(_) => {}
            }
        }

        /// Calls `f` with the direct inner statements of a statement.
        pub fn $inner<'e>(stmt: &'e $($mutable)? Stmt, f: &mut dyn FnMut(&'e $($mutable)? Stmt)) {
            use StmtKind::*;
            match &$($mutable)? stmt.kind {
                If { then, otherwise, .. } => {
                    then.$iter().for_each(&mut *f);
                    otherwise.$iter().for_each(f);
                }
                While { body, .. } | Unroll { body, .. } | ForRange { body, .. } | ForMap { body, .. } => {
                    body.$iter().for_each(f)
                }
                _ => {}
            }
        }
    };
}

walks!(operands, direct, inner, iter,);
walks!(operands_mut, direct_mut, inner_mut, iter_mut, mut);

/// Calls `see` on every expression of the program in pre-order.
pub fn visit<'e>(program: &'e Program, see: &mut dyn FnMut(&'e Expr)) {
    program.probes.iter().for_each(|probe| visit_probe(probe, see));
}

/// Calls `see` on every expression of a probe in pre-order.
pub fn visit_probe<'e>(probe: &'e Probe, see: &mut dyn FnMut(&'e Expr)) {
    probe.predicate.iter().for_each(|e| visit_expr(e, see));
    visit_block(&probe.body, see);
}

/// Calls `see` on every expression of a block in pre-order.
pub fn visit_block<'e>(stmts: &'e [Stmt], see: &mut dyn FnMut(&'e Expr)) {
    for stmt in stmts {
        direct(stmt, &mut |e| visit_expr(e, see));
        inner(stmt, &mut |stmt| visit_block(std::slice::from_ref(stmt), see));
    }
}

/// Calls `see` on an expression and its subexpressions in pre-order.
pub fn visit_expr<'e>(expr: &'e Expr, see: &mut dyn FnMut(&'e Expr)) {
    see(expr);
    if let ExprKind::Block { body, .. } = &expr.kind {
        visit_block(body, see);
    }
    operands(expr, &mut |e| visit_expr(e, see));
}

impl Program {
    /// Whether the calls of a probe are pushed onto their thread's stack of calls. This holds for calls that are
    /// spans. If a clause uses enclosing calls, it also holds for all calls probed at return and for those of that
    /// clause. The end of an event is no call: the event itself is on the stack.
    pub fn is_tracked(&self, probe: &Probe) -> bool {
        let (mut names, mut sends, mut ends) = (false, false, false);
        let mut see = |e: &Expr| match e.kind {
            ExprKind::Around(Around::Depth | Around::Func { .. }) => names = true,
            ExprKind::Started => sends = true,
            ExprKind::Builtin(Builtin::EndEvent, _) => ends = true,
            _ => {}
        };
        visit_probe(probe, &mut see);
        if ends && !names {
            return false;
        }
        match probe.attach {
            Attach::Return(..) => sends || self.tracks_calls,
            Attach::Entry(..) => sends || self.tracks_calls && names,
            Attach::Event(_) => false,
        }
    }
}
