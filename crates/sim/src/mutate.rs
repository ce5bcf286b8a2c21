//! Small random changes of a script's syntax tree. Most of them keep the types, so that most mutants compile; some keep nothing.
//!
//! ```text
//! @[pid] = sum(args.bytesize + 1)   ->   @[tid] = sum(args.bytesize + 9223372036854775807)
//! ```

use crate::rng::Rng;
use lang::builtins;
use lang::syntax::ast::{
    BinaryOp, Block, Clause, Expr, ExprKind, Item, Script, Stmt, StmtKind, TypeName, UnaryOp,
};
use lang::syntax::visit::change::{self, Exprs, Visit};
use std::mem;

/// Literals at the limits of widths.
const EXTREMES: [u64; 14] = [
    0,
    1,
    2,
    63,
    64,
    127,
    255,
    256,
    65535,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
];

const TYPES: [&str; 9] = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"];

/// Operators that can replace each other.
const OPERATORS: [&[BinaryOp]; 3] = [
    &[BinaryOp::Or, BinaryOp::And],
    &[BinaryOp::Eq, BinaryOp::Ne, BinaryOp::Lt, BinaryOp::Gt, BinaryOp::Le, BinaryOp::Ge],
    &[
        BinaryOp::BitOr,
        BinaryOp::BitXor,
        BinaryOp::BitAnd,
        BinaryOp::Shl,
        BinaryOp::Shr,
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Rem,
    ],
];

/// Probable class of an expression: others of its class may replace it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Literal,
    Number,
    Text,
    Condition,
    Variable,
    Other,
}

/// Makes one change.
pub fn mutate(script: &mut Script, rng: &mut Rng) {
    let is_binary = |e: &Expr| matches!(e.kind, ExprKind::Binary { .. });
    let is_call = |e: &Expr| matches!(e.kind, ExprKind::Call { .. });
    match rng.below(24) {
        0..=2 => replace_expression(script, rng),
        3..=5 => at_expression(script, rng, |e| class(e) == Class::Literal, extreme),
        6..=7 => at_expression(script, rng, is_binary, other_operator),
        8..=9 => at_expression(script, rng, |e| class(e) == Class::Number, wrap_number),
        10 => at_expression(script, rng, |e| class(e) == Class::Condition, wrap_condition),
        11 => other_type(script, rng),
        12 => rename_variable(script, rng),
        13..=17 => change_block(script, rng),
        18 => change_clauses(script, rng),
        19 => replace_predicate(script, rng),
        20 => replace_by_any(script, rng),
        21 => at_expression(script, rng, is_call, other_call),
        22 => at_expression(script, rng, |e| matches!(e.kind, ExprKind::Str(_)), other_text),
        _ => other_map(script, rng),
    }
}

/// Replaces an expression by any other, also a target of an assignment.
fn replace_by_any(script: &mut Script, rng: &mut Rng) {
    let all = expressions(script);
    if !all.is_empty() {
        at_expression(script, rng, |_| true, |_, rng| rng.pick(&all).clone());
    }
}

/// A call with other arguments, or of another built-in.
fn other_call(mut e: Expr, rng: &mut Rng) -> Expr {
    let ExprKind::Call { name, args } = &mut e.kind else { return e };
    match rng.below(4) {
        0 => drop(args.pop()),
        1 => args.extend(args.first().cloned()),
        2 => args.reverse(),
        _ => {
            let builtins: Vec<&str> = builtins::table::all().map(|builtin| builtin.name).collect();
            name.node = (*rng.pick(&builtins)).into();
        }
    }
    e
}

fn other_text(e: Expr, rng: &mut Rng) -> Expr {
    let long = "long ".repeat(60);
    let texts = ["", "%", "%d", "%s %s", "%-5.3rx|%%", "\0", "é\u{1f600}\"\\", "a\nb\tc", &long];
    with(&e, ExprKind::Str(rng.pick(&texts).as_bytes().to_vec()))
}

/// Replaces the name of a map at one place, and sometimes drops its key.
fn other_map(script: &mut Script, rng: &mut Rng) {
    let name = |e: Expr| if let ExprKind::Map { name, .. } = e.kind { Some(name) } else { None };
    let names: Vec<String> = expressions(script).into_iter().filter_map(name).collect();
    let change = |mut e: Expr, rng: &mut Rng| {
        if let ExprKind::Map { name, keys } = &mut e.kind {
            name.clone_from(rng.pick(&names));
            if rng.chance(20) {
                *keys = None;
            }
        }
        e
    };
    at_expression(script, rng, |e| matches!(e.kind, ExprKind::Map { .. }), change);
}

fn class(e: &Expr) -> Class {
    match &e.kind {
        ExprKind::Int { .. } => Class::Literal,
        ExprKind::Cast { ty, .. } if ty.pointers == 0 && TYPES.contains(&ty.name.as_str()) => Class::Number,
        ExprKind::Ident(name) if is_number(name) => Class::Number,
        ExprKind::Ident(name) if name == "comm" || name == "func" => Class::Text,
        ExprKind::Str(_) => Class::Text,
        ExprKind::Call { name, .. } if ["str", "toupper", "tolower"].contains(&name.node.as_str()) => {
            Class::Text
        }
        ExprKind::Bool(_) => Class::Condition,
        ExprKind::Unary { op: UnaryOp::Not, .. } => Class::Condition,
        ExprKind::Unary { op: UnaryOp::Neg | UnaryOp::BitNot, .. } => Class::Number,
        ExprKind::Binary { op, .. } if OPERATORS[2].contains(op) => Class::Number,
        ExprKind::Binary { .. } => Class::Condition,
        ExprKind::Var(_) => Class::Variable,
        _ => Class::Other,
    }
}

fn is_number(name: &str) -> bool {
    ["pid", "tid", "uid", "nsecs", "duration", "cpu"].contains(&name)
        || name.strip_prefix("arg").is_some_and(|digits| digits.parse::<u8>().is_ok())
}

/// All expressions, also targets of assignments.
fn expressions(script: &mut Script) -> Vec<Expr> {
    let mut all = Vec::new();
    change::script(script, &mut Exprs(|e: &mut Expr| all.push(e.clone())));
    all
}

/// Changes one of the expressions that a predicate selects.
fn at_expression(
    script: &mut Script,
    rng: &mut Rng,
    is_one: impl Fn(&Expr) -> bool,
    make: impl FnOnce(Expr, &mut Rng) -> Expr,
) {
    let count = expressions(script).iter().filter(|e| is_one(e)).count() as u64;
    if count == 0 {
        return;
    }
    let (mut left, mut make) = (rng.below(count), Some(make));
    let change = |e: &mut Expr| {
        if !is_one(e) {
            return;
        }
        match left.checked_sub(1) {
            Some(rest) => left = rest,
            // After the change the expression and those around it may be selected again.
            None => {
                if let Some(make) = make.take() {
                    *e = make(e.clone(), rng);
                }
            }
        }
    };
    change::script(script, &mut Exprs(change));
}

fn with(e: &Expr, kind: ExprKind) -> Expr {
    Expr { kind, span: e.span }
}

fn number(e: &Expr, value: u64) -> Expr {
    with(e, ExprKind::Int { value, unsigned: value > i64::MAX as u64 })
}

fn extreme(e: Expr, rng: &mut Rng) -> Expr {
    let extreme = number(&e, *rng.pick(&EXTREMES));
    let is_negative = rng.chance(20);
    if is_negative {
        with(&e, ExprKind::Unary { op: UnaryOp::Neg, expr: Box::new(extreme) })
    } else {
        extreme
    }
}

fn other_operator(mut e: Expr, rng: &mut Rng) -> Expr {
    if let ExprKind::Binary { op, .. } = &mut e.kind {
        let group = OPERATORS.iter().find(|group| group.contains(op)).expect("each has a group");
        *op = *rng.pick(group);
    }
    e
}

fn cast(e: Expr, ty: &str) -> Expr {
    let ty = TypeName { name: ty.into(), ..TypeName::bare(e.span) };
    Expr { span: e.span, kind: ExprKind::Cast { ty, expr: Box::new(e) } }
}

fn binary(op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr {
    Expr { span: lhs.span, kind: ExprKind::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) } }
}

/// Another number of about the same type.
fn wrap_number(e: Expr, rng: &mut Rng) -> Expr {
    let span = e.span;
    let same = Box::new(e.clone());
    let kind = match rng.below(7) {
        0 => ExprKind::Unary { op: UnaryOp::Neg, expr: same },
        1 => ExprKind::Unary { op: UnaryOp::BitNot, expr: same },
        2 => return cast(cast(e, TYPES[rng.below(9) as usize]), "int64"),
        3 => {
            let op = *rng.pick(OPERATORS[2]);
            return binary(op, e.clone(), e);
        }
        4 => {
            let one = number(&e, *rng.pick(&EXTREMES));
            return binary(*rng.pick(OPERATORS[2]), e, one);
        }
        5 => {
            let cond = Box::new(binary(*rng.pick(OPERATORS[1]), e.clone(), number(&e, 3)));
            ExprKind::Ternary { cond, then: rng.chance(70).then(|| same.clone()), otherwise: same }
        }
        _ => ExprKind::Block { body: Block { stmts: vec![], span }, value: Some(same) },
    };
    Expr { kind, span }
}

fn wrap_condition(e: Expr, rng: &mut Rng) -> Expr {
    let span = e.span;
    match rng.below(3) {
        0 => Expr { span, kind: ExprKind::Unary { op: UnaryOp::Not, expr: Box::new(e) } },
        1 => binary(*rng.pick(OPERATORS[0]), e.clone(), e),
        _ => {
            let other = with(&e, ExprKind::Bool(rng.chance(50)));
            Expr {
                span,
                kind: ExprKind::Ternary {
                    cond: Box::new(e.clone()),
                    then: Some(Box::new(e)),
                    otherwise: Box::new(other),
                },
            }
        }
    }
}

/// Replaces an expression by another one of its class.
fn replace_expression(script: &mut Script, rng: &mut Rng) {
    let all = expressions(script);
    let Some(wanted) = (!all.is_empty()).then(|| class(rng.pick(&all))) else { return };
    // Variables and calls of built-ins have many types.
    let wanted = if wanted == Class::Other { Class::Number } else { wanted };
    let others: Vec<Expr> = all.into_iter().filter(|e| class(e) == wanted).collect();
    if !others.is_empty() {
        at_expression(script, rng, |e| class(e) == wanted, |_, rng| rng.pick(&others).clone());
    }
}

struct Types<F>(F);

impl<F: FnMut(&mut TypeName)> Visit for Types<F> {
    fn ty(&mut self, ty: &mut TypeName) {
        (self.0)(ty);
    }
}

/// Replaces the name of an integer type.
fn other_type(script: &mut Script, rng: &mut Rng) {
    let is_integer = |ty: &TypeName| TYPES.contains(&ty.name.as_str());
    let mut count = 0;
    change::script(script, &mut Types(|ty: &mut TypeName| count += u64::from(is_integer(ty))));
    if count == 0 {
        return;
    }
    let mut left = rng.below(count);
    let new = *rng.pick(&TYPES);
    let change = |ty: &mut TypeName| {
        if is_integer(ty) {
            if left == 0 {
                ty.name = new.into();
            }
            left = left.wrapping_sub(1);
        }
    };
    change::script(script, &mut Types(change));
}

/// Renames all uses of a variable, sometimes to a name that is in use.
fn rename_variable(script: &mut Script, rng: &mut Rng) {
    let name = |e: Expr| if let ExprKind::Var(name) = e.kind { Some(name) } else { None };
    let names: Vec<String> = expressions(script).into_iter().filter_map(name).collect();
    if names.is_empty() {
        return;
    }
    let old = rng.pick(&names).clone();
    let new = if rng.chance(30) { rng.pick(&names).clone() } else { format!("{old}_x") };
    struct Rename(String, String);
    impl Visit for Rename {
        fn expr(&mut self, e: &mut Expr) {
            match &mut e.kind {
                ExprKind::Var(name) if *name == self.0 => name.clone_from(&self.1),
                _ => {}
            }
        }
        fn var(&mut self, name: &mut lang::syntax::ast::Name) {
            if name.node == self.0 {
                name.node.clone_from(&self.1);
            }
        }
    }
    change::script(script, &mut Rename(old, new));
}

fn clauses<'a>(script: &'a mut Script) -> Vec<&'a mut Clause> {
    let clause = |item: &'a mut Item| if let Item::Clause(clause) = item { Some(clause) } else { None };
    script.items.iter_mut().filter_map(clause).collect()
}

fn inner_blocks(stmt: &mut Stmt) -> Vec<&mut Block> {
    match &mut stmt.kind {
        StmtKind::If { then, otherwise, .. } => [then].into_iter().chain(otherwise).collect(),
        StmtKind::While { body, .. }
        | StmtKind::Unroll { body, .. }
        | StmtKind::ForRange { body, .. }
        | StmtKind::ForMap { body, .. }
        | StmtKind::Block(body) => vec![body],
        _ => vec![],
    }
}

/// A random block of a clause: the clause's own or a nested one.
fn some_block<'a>(script: &'a mut Script, rng: &mut Rng) -> Option<&'a mut Block> {
    let mut all = clauses(script);
    let clause = (!all.is_empty()).then(|| all.swap_remove(rng.below(all.len() as u64) as usize))?;
    let mut block = &mut clause.body;
    loop {
        let nested: usize = block.stmts.iter_mut().map(|stmt| inner_blocks(stmt).len()).sum();
        if nested == 0 || rng.chance(40) {
            return Some(block);
        }
        let chosen = rng.below(nested as u64) as usize;
        block = block.stmts.iter_mut().flat_map(inner_blocks).nth(chosen)?;
    }
}

/// Duplicates, deletes, swaps or nests statements.
fn change_block(script: &mut Script, rng: &mut Rng) {
    let conditions = expressions(script).into_iter().filter(|e| class(e) == Class::Condition);
    let conditions: Vec<Expr> = conditions.collect();
    let Some(block) = some_block(script, rng).filter(|block| !block.stmts.is_empty()) else { return };
    let (span, count) = (block.span, block.stmts.len() as u64);
    let (at, other) = (rng.below(count) as usize, rng.below(count) as usize);
    match rng.below(7) {
        0 | 1 => {
            let copy = block.stmts[at].clone();
            block.stmts.insert(other, copy);
        }
        2 => drop(block.stmts.remove(at)),
        3 => block.stmts.swap(at, other),
        _ => {
            let body = |stmt| Block { stmts: vec![stmt], span };
            let literal = |value| Expr { kind: ExprKind::Int { value, unsigned: false }, span };
            let stmt = block.stmts[at].clone();
            let kind = match rng.below(5) {
                0 => StmtKind::Block(body(stmt)),
                1 => StmtKind::Unroll { count: literal(1 + rng.below(3)), body: body(stmt) },
                2 => {
                    let var = lang::WithSpan { node: format!("round{}", rng.below(3)), span };
                    StmtKind::ForRange {
                        var,
                        start: literal(0),
                        end: literal(rng.below(4)),
                        body: body(stmt),
                    }
                }
                _ if conditions.is_empty() => StmtKind::Block(body(stmt)),
                _ => {
                    let otherwise = rng.chance(30).then(|| body(block.stmts[other].clone()));
                    StmtKind::If { cond: rng.pick(&conditions).clone(), then: body(stmt), otherwise }
                }
            };
            block.stmts[at] = Stmt { kind, span };
        }
    }
}

/// Duplicates a clause, or exchanges the attach points or bodies of two.
fn change_clauses(script: &mut Script, rng: &mut Rng) {
    let is_clause = |item: &Item| matches!(item, Item::Clause(_));
    let positions: Vec<usize> = (0..script.items.len()).filter(|&at| is_clause(&script.items[at])).collect();
    if positions.is_empty() {
        return;
    }
    let (one, other) = (*rng.pick(&positions), *rng.pick(&positions));
    if one == other {
        let copy = script.items[one].clone();
        return script.items.push(copy);
    }
    let (first, rest) = script.items.split_at_mut(one.max(other));
    if let (Item::Clause(a), Item::Clause(b)) = (&mut first[one.min(other)], &mut rest[0]) {
        match rng.below(2) {
            0 => mem::swap(&mut a.probes, &mut b.probes),
            _ => mem::swap(&mut a.body, &mut b.body),
        }
    }
}

/// Removes a predicate, or makes one of a condition.
fn replace_predicate(script: &mut Script, rng: &mut Rng) {
    let conditions = expressions(script).into_iter().filter(|e| class(e) == Class::Condition);
    let conditions: Vec<Expr> = conditions.collect();
    let mut all = clauses(script);
    if all.is_empty() {
        return;
    }
    let clause = all.swap_remove(rng.below(all.len() as u64) as usize);
    clause.predicate = match clause.predicate {
        None if !conditions.is_empty() => Some(rng.pick(&conditions).clone()),
        _ => None,
    };
}
