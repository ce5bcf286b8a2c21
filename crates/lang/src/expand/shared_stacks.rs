//! Common subexpressions of stacks: a stack that is used several times is walked once and kept in a variable.
//!
//! ```text
//! { @calls[ustack(8)] = count(); @ns[ustack(8)] = sum(duration) }
//!
//! { let $walked@1 = ustack(8); @calls[$walked@1] = count(); @ns[$walked@1] = sum(duration) }
//! ```
//!
//! The variable is assigned before the first statement that uses the stack unconditionally, in that statement's block. A stack that
//! is used under two different conditions is walked twice, since neither condition may hold.

use crate::source::span::WithSpan;
use crate::syntax::ast::{BinaryOp, Block, Expr, ExprKind, Item, Name, Script, Stmt, StmtKind};
use crate::syntax::visit::{Preorder, change as visit, look};
use std::collections::BTreeSet;

/// Stores the length of a stack where the stack is assigned to a variable, if the script uses the length of the variable.
///
/// ```text
/// $s = ustack(3); print(len($s));   ->   $s = { $s@length = len(ustack(3)); ustack(3) }; print($s@length);
/// ```
pub(crate) fn measure(script: &mut Script) {
    for item in &mut script.items {
        if let Item::Clause(clause) = item {
            measure_in(&mut clause.body);
        }
    }
}

fn measure_in(body: &mut Block) {
    let mut measured = BTreeSet::new();
    let mut see = visit::Exprs(|e: &mut Expr| {
        if let Some(ExprKind::Var(name)) = length_of(e).map(|of| &of.kind) {
            measured.insert(name.clone());
        }
    });
    visit::block(body, &mut see);
    if measured.is_empty() {
        return;
    }
    let mut kept = KeepLengths { measured, found: BTreeSet::new() };
    visit::block(body, &mut kept);
    let found = kept.found;
    visit::block(
        body,
        &mut visit::Exprs(|e: &mut Expr| {
            let name = length_of(e).and_then(|of| match &of.kind {
                ExprKind::Var(name) if found.contains(name) => Some(name),
                _ => None,
            });
            if let Some(name) = name {
                e.kind = ExprKind::Var(length_name(name));
            }
        }),
    );
}

fn length_name(variable: &str) -> String {
    format!("{variable}@length")
}

/// Adds an assignment of the length to assignments of stacks, for the variables in `measured`; `found` are the variables with one.
struct KeepLengths {
    measured: BTreeSet<String>,
    found: BTreeSet<String>,
}

impl visit::Visit for KeepLengths {
    fn stmt(&mut self, stmt: &mut Stmt) {
        let (name, value) = match &mut stmt.kind {
            StmtKind::Let { name, value: Some(value), .. } => (&name.node, value),
            StmtKind::Assign { target: Expr { kind: ExprKind::Var(name), .. }, op: None, value } => {
                (&*name, value)
            }
            _ => return,
        };
        if !self.measured.contains(name) || !is_walk(value) {
            return;
        }
        self.found.insert(name.clone());
        let (span, stack) = (value.span, value.clone());
        let target = Expr { kind: ExprKind::Var(length_name(name)), span };
        let len = WithSpan { node: "len".to_owned(), span };
        let length = Expr { kind: ExprKind::Call { name: len, args: vec![stack.clone()] }, span };
        let set = Stmt { kind: StmtKind::Assign { target, op: None, value: length }, span };
        let body = Block { stmts: vec![set], span };
        value.kind = ExprKind::Block { body, value: Some(Box::new(stack)) };
    }
}

/// Functions that walk a stack.
const WALKS: [&str; 6] = ["ustack", "dw_ustack", "pyline", "pyfunc", "torch_module", "kstack"];

/// Whether a built-in is the user stack or a frame of it.
pub(crate) fn is_user_stack(name: &str) -> bool {
    name != "kstack" && WALKS.contains(&name)
}

/// The frames that an expression may need of the user stack.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum UserStack {
    /// Frames of Python alone.
    Python,
    Native,
}

/// The frames that an expression itself needs of the user stack; `None`: none.
pub(crate) fn user_stack(e: &Expr) -> Option<UserStack> {
    let (name, args) = match &e.kind {
        ExprKind::Ident(name) => (name.as_str(), &[][..]),
        ExprKind::Call { name, args } => (name.node.as_str(), &args[..]),
        _ => return None,
    };
    let is_python = |arg: &Expr| matches!(&arg.kind, ExprKind::Ident(mode) if mode == "python");
    match name {
        "ustack" | "dw_ustack" if args.iter().any(is_python) => Some(UserStack::Python),
        "ustack" | "dw_ustack" => Some(UserStack::Native),
        _ if is_user_stack(name) => Some(UserStack::Python),
        _ => None,
    }
}

/// Shares the stacks of all clauses with several stacks.
pub(crate) fn share(script: &mut Script) {
    for item in &mut script.items {
        if let Item::Clause(clause) = item {
            let mut walks = 0;
            look::block(&clause.body, &mut Preorder(|e: &Expr| walks += u32::from(is_walk(e))));
            if walks > 1 {
                SharedStack { count: 0 }.block(&mut clause.body);
            }
        }
    }
}

/// `ustack`, `ustack(perf, 8)`
fn is_walk(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Ident(name) => WALKS.contains(&name.as_str()),
        ExprKind::Call { name, args } => {
            let plain = |arg: &Expr| matches!(arg.kind, ExprKind::Int { .. } | ExprKind::Ident(_));
            WALKS.contains(&name.node.as_str()) && args.iter().all(plain)
        }
        _ => false,
    }
}

/// Whether two expressions are the same walk.
fn are_same(a: &Expr, b: &Expr) -> bool {
    match (&a.kind, &b.kind) {
        (ExprKind::Call { name: a, args: of_a }, ExprKind::Call { name: b, args: of_b }) => {
            a.node == b.node && of_a.len() == of_b.len() && of_a.iter().zip(of_b).all(|(a, b)| are_same(a, b))
        }
        (a, b) => a == b,
    }
}

struct SharedStack {
    /// Number of shared stacks.
    count: u32,
}

impl SharedStack {
    fn block(&mut self, block: &mut Block) {
        let mut at = 0;
        while at < block.stmts.len() {
            let mut walks = Vec::new();
            surely_of(&block.stmts[at], &mut walks);
            for walk in walks {
                if let Some(kept) = self.keep(&walk, &mut block.stmts[at..]) {
                    block.stmts.insert(at, kept);
                    at += 1;
                }
            }
            self.within(&mut block.stmts[at]);
            at += 1;
        }
    }

    /// Blocks in a statement.
    fn within(&mut self, stmt: &mut Stmt) {
        match &mut stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                self.block(then);
                otherwise.iter_mut().for_each(|block| self.block(block));
            }
            StmtKind::While { body, .. }
            | StmtKind::Unroll { body, .. }
            | StmtKind::ForRange { body, .. }
            | StmtKind::ForMap { body, .. }
            | StmtKind::Block(body) => self.block(body),
            StmtKind::Expr(Expr { kind: ExprKind::Block { body, .. }, .. }) => self.block(body),
            _ => {}
        }
    }

    /// Replaces a walk that these statements use several times by a variable; returns the assignment of the variable.
    fn keep(&mut self, walk: &Expr, stmts: &mut [Stmt]) -> Option<Stmt> {
        let mut places = 0;
        each(stmts, &mut |e| {
            let measured = length_of(e).is_some_and(|of| are_same(of, walk));
            places += i32::from(are_same(e, walk)) - i32::from(measured);
        });
        if places < 2 {
            return None;
        }
        self.count += 1;
        let name = format!("walked@{}", self.count);
        let var = ExprKind::Var(name.clone());
        each(stmts, &mut |e| {
            if are_same(e, walk) {
                e.kind = var.clone();
            } else if let Some(of) = length_of(e).filter(|of| of.kind == var) {
                of.kind = walk.kind.clone();
            }
        });
        let name: Name = WithSpan { node: name, span: walk.span };
        Some(Stmt { kind: StmtKind::Let { name, ty: None, value: Some(walk.clone()) }, span: walk.span })
    }
}

/// The operand of `len`, which needs no stack.
fn length_of(e: &mut Expr) -> Option<&mut Expr> {
    match &mut e.kind {
        ExprKind::Call { name, args } if name.node == "len" => args.first_mut(),
        _ => None,
    }
}

fn each(stmts: &mut [Stmt], see: &mut impl FnMut(&mut Expr)) {
    let mut see = visit::Exprs(see);
    stmts.iter_mut().for_each(|stmt| visit::stmt(stmt, &mut see));
}

/// The walks that a statement does unconditionally.
fn surely_of(stmt: &Stmt, walks: &mut Vec<Expr>) {
    match &stmt.kind {
        StmtKind::Expr(e)
        | StmtKind::Let { value: Some(e), .. }
        | StmtKind::If { cond: e, .. }
        | StmtKind::While { cond: e, .. }
        | StmtKind::Return(Some(e)) => surely(e, walks),
        StmtKind::Assign { target, value, .. } => {
            surely(target, walks);
            surely(value, walks);
        }
        _ => {}
    }
}

fn surely(e: &Expr, walks: &mut Vec<Expr>) {
    if is_walk(e) {
        if !walks.iter().any(|known| are_same(known, e)) {
            walks.push(e.clone());
        }
        return;
    }
    match &e.kind {
        ExprKind::Call { name, .. } if name.node == "len" => {}
        ExprKind::Map { keys: Some(list), .. }
        | ExprKind::Call { args: list, .. }
        | ExprKind::Tuple(list) => list.iter().for_each(|e| surely(e, walks)),
        ExprKind::Record(members) => members.iter().for_each(|(_, e)| surely(e, walks)),
        ExprKind::Binary { op: BinaryOp::And | BinaryOp::Or, lhs: e, .. }
        | ExprKind::Ternary { cond: e, .. }
        | ExprKind::Field { base: e, .. }
        | ExprKind::TupleIndex { base: e, .. }
        | ExprKind::Unary { expr: e, .. }
        | ExprKind::IncDec { target: e, .. }
        | ExprKind::Cast { expr: e, .. } => surely(e, walks),
        ExprKind::Binary { lhs: a, rhs: b, .. } | ExprKind::Index { base: a, index: b } => {
            surely(a, walks);
            surely(b, walks);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;
    use crate::parse;
    use crate::source::span::Source;

    #[test]
    fn frames_of_python_alone_are_no_native_stack() {
        let mentions = |body: &str| {
            let source = Source::new("t.ct", format!("uprobe:libcuda:cuInit {{ {body} }}"));
            let script = parse(&source, &[], &mut Diagnostics::default()).expect("a script");
            let all = crate::expand::mentions_user_stacks(&script);
            (all, crate::expand::mentions_native_stacks(&script))
        };
        assert_eq!(mentions("@ = count(); @k[kstack] = count()"), (false, false));
        assert_eq!(mentions("@[pyline(own), pyfunc] = count()"), (true, false));
        assert_eq!(mentions("if (len(ustack(python, 1)) > 0) { @[torch_module] = count() }"), (true, false));
        assert_eq!(mentions("@[pyline, ustack(3)] = count()"), (true, true));
        assert_eq!(mentions("print(ustack)"), (true, true));
    }

    fn shared(body: &str) -> String {
        let source = Source::new("t.ct", format!("uprobe:libcuda:cuInit {{ {body} }}"));
        let mut script = parse(&source, &[], &mut Diagnostics::default()).expect("a script");
        share(&mut script);
        let text = crate::syntax::print::print(&script);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn repeated_walks_are_shared() {
        for (script, expected) in [
            (
                "@a[ustack(8)] = count(); if pid == 1 { @b[ustack(8)] = count(); }",
                "let $walked@1 = ustack(8); @a[$walked@1] = count(); if pid == 1 { @b[$walked@1] = count(); }",
            ),
            (
                "@a[ustack, kstack] = 1; print(ustack);",
                "let $walked@1 = ustack; @a[$walked@1, kstack] = 1; print($walked@1);",
            ),
            (
                "if pid == 1 { @a[ustack] = 1; @b[ustack] = 1; }",
                "if pid == 1 { let $walked@1 = ustack; @a[$walked@1] = 1; @b[$walked@1] = 1; }",
            ),
        ] {
            assert_eq!(shared(script), format!("uprobe:libcuda:cuInit {{ {expected} }}"), "{script}");
        }
    }

    #[test]
    fn other_walks_are_not_shared() {
        for script in [
            "@a[ustack(8)] = 1; @b[ustack(9)] = 1;",
            "@a[ustack(perf, 8)] = 1; @b[ustack(8)] = 1;",
            "if pid == 1 { @a[ustack] = 1; } @b[ustack] = 1;",
            "if pid == 1 { @a[ustack] = 1; } else { @b[ustack] = 1; }",
            "@a[ustack] = len(ustack);",
            "$x = pid == 1 && @a[ustack] == 1; print(ustack);",
        ] {
            assert_eq!(shared(script), format!("uprobe:libcuda:cuInit {{ {script} }}"));
        }
    }
}
