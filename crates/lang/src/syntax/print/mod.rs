//! Syntax tree to text: [`print`] writes a script in canonical form, [`dump`] a tree of its nodes.
//!
//! Canonical form: one probe per line, four blanks per level, parentheses only where precedence requires them. Parsing the output
//! gives the same tree; positional parameters are literals already.
//! ```text
//! BEGIN<print((1+2)*3)>      ->      BEGIN {
//!                                        print((1 + 2) * 3);
//!                                    }
//! ```

use std::fmt::Write as _;

use crate::syntax::ast::*;
use crate::syntax::operators::{level, symbol};

mod declaration;
mod dump;

pub use dump::dump;

/// The script in canonical form.
pub fn print(script: &Script) -> String {
    let mut printer = Printer { out: String::new(), depth: 0 };
    for (index, item) in script.items.iter().enumerate() {
        if index > 0 && matches!(item, Item::Clause(_)) {
            printer.out.push('\n');
        }
        printer.item(item);
    }
    printer.out
}

/// An expression as source text, for messages.
pub fn print_expr(expr: &Expr) -> String {
    expr_text(expr, 0)
}

struct Printer {
    out: String,
    depth: usize,
}

impl Printer {
    fn line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Clause(clause) => self.clause(clause),
            Item::Config(entries) => self.settings("config", entries),
            Item::Metric { map, entries } => self.settings(&format!("metric @{}", map.node), entries),
            Item::Define { name, value } => {
                self.line(&format!("#define {} {}", name.node, print_expr(value)))
            }
            Item::Declaration(declaration) => self.declaration(declaration),
            Item::Import(path) => self.line(&format!("import {};", quoted(path.node.as_bytes()))),
            Item::Macro(def) => self.macro_def(def),
            Item::MapDecl { name, kind, max_entries } => {
                self.line(&format!("let @{} = {}({});", name.node, kind.node, print_expr(max_entries)));
            }
        }
    }

    fn macro_def(&mut self, def: &Macro) {
        let params: Vec<String> = def.params.iter().map(macro_param).collect();
        self.out.push_str(&format!("macro {}({}) {{\n", def.name.node, params.join(", ")));
        self.depth += 1;
        def.body.stmts.iter().for_each(|stmt| self.stmt(stmt));
        def.value.iter().for_each(|value| self.line(&print_expr(value)));
        self.depth -= 1;
        self.line("}");
    }

    fn settings(&mut self, head: &str, entries: &[ConfigEntry]) {
        self.line(&format!("{head} = {{"));
        self.depth += 1;
        for entry in entries {
            self.line(&format!("{} = {};", entry.key.node, print_expr(&entry.value)));
        }
        self.depth -= 1;
        self.line("}");
    }

    fn clause(&mut self, clause: &Clause) {
        let probes: Vec<String> = clause.probes.iter().map(spec).collect();
        let name = clause.name.as_ref().map_or(String::new(), |name| format!("{} = ", name.node));
        let mut head = name + &probes.join(",\n");
        if let Some(predicate) = &clause.predicate {
            let _ = write!(head, "\n/ {} /\n", print_expr(predicate));
        } else {
            head.push(' ');
        }
        self.block(&head, &clause.body);
        self.out.push('\n');
    }

    /// Prints `head { ... }` without a newline after it.
    fn block(&mut self, head: &str, block: &Block) {
        self.out.push_str(head);
        self.out.push_str("{\n");
        self.depth += 1;
        for stmt in &block.stmts {
            self.stmt(stmt);
        }
        self.depth -= 1;
        self.out.push_str(&"    ".repeat(self.depth));
        self.out.push('}');
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match block_head(&stmt.kind) {
            Some((head, body)) => {
                self.out.push_str(&"    ".repeat(self.depth));
                self.block(&head, body);
                if let StmtKind::If { otherwise: Some(otherwise), .. } = &stmt.kind {
                    self.otherwise(otherwise);
                }
                self.out.push('\n');
            }
            None => self.line(&format!("{};", simple(&stmt.kind))),
        }
    }

    fn otherwise(&mut self, block: &Block) {
        match block.stmts.as_slice() {
            [Stmt { kind: StmtKind::If { cond, then, otherwise }, .. }] => {
                self.block(&format!(" else if {} ", print_expr(cond)), then);
                if let Some(otherwise) = otherwise {
                    self.otherwise(otherwise);
                }
            }
            _ => self.block(" else ", block),
        }
    }
}

/// The head of a statement with a body.
fn block_head(kind: &StmtKind) -> Option<(String, &Block)> {
    Some(match kind {
        StmtKind::If { cond, then, .. } => (format!("if {} ", print_expr(cond)), then),
        StmtKind::While { cond, body } => (format!("while ({}) ", print_expr(cond)), body),
        StmtKind::Unroll { count, body } => (format!("unroll ({}) ", print_expr(count)), body),
        StmtKind::ForRange { var, start, end, body } => {
            (format!("for ${} : {}..{} ", var.node, print_expr(start), print_expr(end)), body)
        }
        StmtKind::ForMap { var, map, body } => (format!("for ${} : @{} ", var.node, map.node), body),
        StmtKind::Block(block) => (String::new(), block),
        _ => return None,
    })
}

/// `a`, `$v`, `@m`
pub fn macro_param(param: &MacroParam) -> String {
    let sigil = match param {
        MacroParam::Expr(_) => "",
        MacroParam::Var(_) => "$",
        MacroParam::Map(_) => "@",
    };
    format!("{sigil}{}", param.name().node)
}

/// `{ let $b = 1; $b + 1 }`, on one line.
fn valued_block(body: &Block, value: Option<&Expr>) -> String {
    let mut printer = Printer { out: String::new(), depth: 0 };
    body.stmts.iter().for_each(|stmt| printer.stmt(stmt));
    let words = printer.out.lines().map(|line| line.trim().to_owned());
    let words: Vec<String> = words.chain(value.map(print_expr)).collect();
    format!("{{ {} }}", words.join(" "))
}

fn simple(kind: &StmtKind) -> String {
    match kind {
        StmtKind::Expr(expr) => print_expr(expr),
        StmtKind::Let { name, ty, value } => {
            let ty = ty.as_ref().map_or(String::new(), |ty| format!(": {}", type_text(ty)));
            let value = value.as_ref().map_or(String::new(), |value| format!(" = {}", print_expr(value)));
            format!("let ${}{ty}{value}", name.node)
        }
        StmtKind::Assign { target, op, value } => {
            format!("{} {}= {}", print_expr(target), op.map_or("", symbol), print_expr(value))
        }
        StmtKind::Return(None) => "return".into(),
        StmtKind::Return(Some(value)) => format!("return {}", print_expr(value)),
        StmtKind::Break => "break".into(),
        StmtKind::Continue => "continue".into(),
        _ => unreachable!("statements with a body have a head"),
    }
}

/// `uprobe:libcuda:cuInit`
pub fn spec(spec: &ProbeSpec) -> String {
    let mut text = spec.provider.node.clone();
    for part in &spec.parts {
        text.push(':');
        match &part.node {
            SpecPart::Text(part) => text.push_str(part),
            SpecPart::Quoted(part) => text.push_str(&quoted(part.as_bytes())),
            SpecPart::QuotedAt(part, offset) => {
                text.push_str(&format!("{}+{offset}", quoted(part.as_bytes())));
            }
            SpecPart::Regex(part) => text.push_str(&format!("/{}/", part.replace('/', "\\/"))),
            SpecPart::Option(option) => text.push_str(&print_expr(option)),
        }
    }
    text
}

/// `struct CUlaunchConfig *`, `uint8[8]`, `typeof($x)`
pub fn type_text(ty: &TypeName) -> String {
    let stars =
        if ty.pointers > 0 { format!(" {}", "*".repeat(ty.pointers as usize)) } else { String::new() };
    let dim = |length: &u32| if *length == 0 { "[]".to_string() } else { format!("[{length}]") };
    let dims: String = ty.dims.iter().map(dim).collect();
    let name = ty.of.as_ref().map_or_else(|| ty.name.clone(), |of| format!("typeof({})", print_expr(of)));
    format!("{name}{stars}{dims}")
}

/// A string with its quotes and escapes.
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out.push('"');
    out
}

/// Precedences outside of those of the infix operators.
const TERNARY: u8 = 0;
const UNARY: u8 = 20;
const POSTFIX: u8 = 21;

/// Precedence of an expression.
fn own_level(kind: &ExprKind) -> u8 {
    match kind {
        ExprKind::Ternary { .. } => TERNARY,
        ExprKind::Binary { op, .. } => level(*op),
        ExprKind::Unary { .. } | ExprKind::Cast { .. } | ExprKind::IncDec { postfix: false, .. } => UNARY,
        _ => POSTFIX,
    }
}

/// An expression where at least precedence `least` is required: in parentheses if its own is lower.
fn expr_text(expr: &Expr, least: u8) -> String {
    let text = kind_text(&expr.kind);
    if own_level(&expr.kind) < least { format!("({text})") } else { text }
}

/// The right operand. Without parentheses, a slash before a block would end a predicate.
fn right_text(op: BinaryOp, rhs: &Expr) -> String {
    let text = expr_text(rhs, level(op) + 1);
    if op == BinaryOp::Div && text.starts_with('{') { format!("({text})") } else { text }
}

/// A chain of `||` or `&&`, which the parser makes a balanced tree; a tree of another shape was written with parentheses.
fn logical_text(op: BinaryOp, lhs: &Expr, rhs: &Expr) -> String {
    let mut operands = vec![lhs, rhs];
    if balanced_length(op, lhs)
        .zip(balanced_length(op, rhs))
        .is_some_and(|(left, right)| are_halves(left, right))
    {
        operands.clear();
        [lhs, rhs].into_iter().for_each(|side| add_operands(op, side, &mut operands));
    }
    let texts: Vec<String> = operands.into_iter().map(|operand| expr_text(operand, level(op) + 1)).collect();
    texts.join(&format!(" {} ", symbol(op)))
}

/// Number of operands of a balanced chain; 1 for any other expression, `None` for another tree of the operator.
fn balanced_length(op: BinaryOp, e: &Expr) -> Option<usize> {
    match &e.kind {
        ExprKind::Binary { op: own, lhs, rhs } if *own == op => {
            let (left, right) = (balanced_length(op, lhs)?, balanced_length(op, rhs)?);
            are_halves(left, right).then_some(left + right)
        }
        _ => Some(1),
    }
}

fn are_halves(left: usize, right: usize) -> bool {
    left == (left + right).div_ceil(2)
}

fn add_operands<'e>(op: BinaryOp, e: &'e Expr, operands: &mut Vec<&'e Expr>) {
    match &e.kind {
        ExprKind::Binary { op: own, lhs, rhs } if *own == op => {
            [lhs, rhs].into_iter().for_each(|side| add_operands(op, side, operands));
        }
        _ => operands.push(e),
    }
}

fn kind_text(kind: &ExprKind) -> String {
    match kind {
        ExprKind::Int { value, unsigned } => {
            format!("{value}{}", if *unsigned && *value <= i64::MAX as u64 { "u" } else { "" })
        }
        ExprKind::Str(bytes) => quoted(bytes),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Ident(name) => name.clone(),
        ExprKind::Var(name) => format!("${name}"),
        ExprKind::Map { name, keys: None } => format!("@{name}"),
        ExprKind::Map { name, keys: Some(keys) } => format!("@{name}[{}]", list(keys)),
        ExprKind::Positional(number) => format!("${number}"),
        ExprKind::PositionalCount => "$#".into(),
        ExprKind::Call { name, args } => format!("{}({})", name.node, list(args)),
        ExprKind::Field { base, name, arrow } => {
            format!("{}{}{}", expr_text(base, POSTFIX), if *arrow { "->" } else { "." }, name.node)
        }
        ExprKind::TupleIndex { base, index } => format!("{}.{index}", base_of_position(base)),
        ExprKind::Index { base, index } => format!("{}[{}]", base_of_index(base), print_expr(index)),
        ExprKind::Unary { op, expr } => unary(*op, expr),
        ExprKind::IncDec { target, delta, postfix } => {
            let sign = if *delta > 0 { "++" } else { "--" };
            let target = expr_text(target, POSTFIX);
            if *postfix { format!("{target}{sign}") } else { format!("{sign}{target}") }
        }
        ExprKind::Binary { op: op @ (BinaryOp::Or | BinaryOp::And), lhs, rhs } => logical_text(*op, lhs, rhs),
        ExprKind::Binary { op, lhs, rhs } => {
            format!("{} {} {}", expr_text(lhs, level(*op)), symbol(*op), right_text(*op, rhs))
        }
        ExprKind::Ternary { cond, then, otherwise } => {
            let then = then.as_ref().map_or("?:".into(), |then| format!("? {} :", print_expr(then)));
            format!("{} {then} {}", expr_text(cond, TERNARY + 1), expr_text(otherwise, TERNARY))
        }
        ExprKind::Cast { ty, expr } => format!("({}){}", type_text(ty), cast_operand(expr)),
        ExprKind::Tuple(parts) => match parts.as_slice() {
            [only] => format!("({},)", print_expr(only)),
            _ => format!("({})", list(parts)),
        },
        ExprKind::Block { body, value } => valued_block(body, value.as_deref()),
        ExprKind::Record(members) => {
            let member = |(name, value): &(Name, Expr)| format!("{} = {}", name.node, print_expr(value));
            format!("({})", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        ExprKind::Type(ty) => format!("typeof({})", type_text(ty)),
        ExprKind::TypeInfo(TypeName { of: Some(of), pointers: 0, dims, .. }) if dims.is_empty() => {
            format!("typeinfo({})", print_expr(of))
        }
        ExprKind::TypeInfo(ty) => format!("typeinfo({})", type_text(ty)),
        ExprKind::SizeofType(ty) => format!("sizeof({})", type_text(ty)),
        ExprKind::SizeofExpr(expr) => format!("sizeof({})", print_expr(expr)),
        ExprKind::OffsetOf { ty, path } => format!("offsetof({}, {})", type_text(ty), path_text(path)),
    }
}

/// `corner.x`
fn path_text(path: &[Name]) -> String {
    path.iter().map(|name| name.node.as_str()).collect::<Vec<_>>().join(".")
}

fn list(exprs: &[Expr]) -> String {
    exprs.iter().map(print_expr).collect::<Vec<_>>().join(", ")
}

/// The base of a tuple index, in parentheses if it is a number: `7.1` would be parsed as a float.
fn base_of_position(base: &Expr) -> String {
    match base.kind {
        ExprKind::Int { .. } => format!("({})", print_expr(base)),
        _ => expr_text(base, POSTFIX),
    }
}

/// The base of an index, in parentheses if it is a map: `@m[1]` has a key, `(@m)[1]` does not.
fn base_of_index(base: &Expr) -> String {
    match base.kind {
        ExprKind::Map { keys: None, .. } => format!("({})", print_expr(base)),
        _ => expr_text(base, POSTFIX),
    }
}

/// The operand of a cast. `(name)` is a cast only before an operand, not before `-`, `*`, `&`.
fn cast_operand(expr: &Expr) -> String {
    match expr.kind {
        ExprKind::Unary { op: UnaryOp::Not | UnaryOp::BitNot, .. } | ExprKind::Cast { .. } => {
            expr_text(expr, UNARY)
        }
        _ => expr_text(expr, POSTFIX),
    }
}

fn unary(op: UnaryOp, expr: &Expr) -> String {
    let (sign, operand) = (
        match op {
            UnaryOp::Neg => "-",
            UnaryOp::Not => "!",
            UnaryOp::BitNot => "~",
            UnaryOp::Deref => "*",
            UnaryOp::AddressOf => "&",
            UnaryOp::Comptime => "comptime ",
        },
        expr_text(expr, UNARY),
    );
    // `- -x`, not `--x`.
    let gap = if op == UnaryOp::Neg && operand.starts_with('-') { " " } else { "" };
    format!("{sign}{gap}{operand}")
}
