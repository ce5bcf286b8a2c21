//! The syntax tree as an indented text, one node per line: the output of `-d ast`. All parts of a node but its span are printed, so
//! that two scripts have the same text exactly if their trees are equal apart from spans.

use super::{path_text, print_expr, quoted, type_text};
use crate::syntax::ast::*;
use crate::syntax::operators::symbol;

/// The syntax tree of a script as text.
pub fn dump(script: &Script) -> String {
    let mut tree = Tree { out: String::new(), depth: 0 };
    script.items.iter().for_each(|item| tree.item(item));
    tree.out
}

struct Tree {
    out: String,
    depth: usize,
}

impl Tree {
    fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(&"  ".repeat(self.depth));
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// Prints a node and its children.
    fn node(&mut self, text: impl AsRef<str>, below: impl FnOnce(&mut Tree)) {
        self.line(text);
        self.depth += 1;
        below(self);
        self.depth -= 1;
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Clause(clause) => self.node("clause", |t| t.clause(clause)),
            Item::Config(entries) => self.node("config", |t| {
                entries
                    .iter()
                    .for_each(|entry| t.node(format!("set {}", entry.key.node), |t| t.expr(&entry.value)));
            }),
            Item::Metric { map, entries } => self.node(format!("metric @{}", map.node), |t| {
                entries
                    .iter()
                    .for_each(|entry| t.node(format!("set {}", entry.key.node), |t| t.expr(&entry.value)));
            }),
            Item::Define { name, value } => self.node(format!("define {}", name.node), |t| t.expr(value)),
            Item::Declaration(declaration) => self.declaration(declaration),
            Item::Import(path) => self.line(format!("import {}", quoted(path.node.as_bytes()))),
            Item::Macro(def) => {
                let params: Vec<String> = def.params.iter().map(super::macro_param).collect();
                self.node(format!("macro {}({})", def.name.node, params.join(", ")), |t| {
                    t.block("body", &def.body);
                    t.node("value", |t| def.value.iter().for_each(|value| t.expr(value)));
                });
            }
            Item::MapDecl { name, kind, max_entries } => {
                self.node(format!("map @{} {}", name.node, kind.node), |t| t.expr(max_entries));
            }
        }
    }

    fn declaration(&mut self, declaration: &Declaration) {
        self.node(if declaration.names.is_empty() { "declare" } else { "typedef" }, |t| {
            t.c_type(&declaration.base);
            declaration.names.iter().for_each(|name| t.declarator(name));
        });
    }

    fn c_type(&mut self, ty: &CType) {
        let named =
            |name: &Option<Name>| name.as_ref().map_or(String::new(), |name| format!(" {}", name.node));
        match ty {
            CType::Named(name) => self.line(format!("type {}", type_text(name))),
            CType::Compound(c) => {
                let kind = if c.union { "union" } else { "struct" };
                let packed = if c.packed { " packed" } else { "" };
                let align = c.align.map_or(String::new(), |align| format!(" aligned {align}"));
                self.node(format!("{kind}{}{packed}{align}", named(&c.name)), |t| {
                    c.members.iter().for_each(|member| t.member(member));
                });
            }
            CType::Enumeration(e) => self.node(format!("enum{}", named(&e.name)), |t| {
                for (name, value) in &e.values {
                    t.node(&name.node, |t| value.iter().for_each(|value| t.expr(value)));
                }
            }),
        }
    }

    fn member(&mut self, member: &Member) {
        self.node("member", |t| {
            t.c_type(&member.base);
            member.names.iter().for_each(|name| t.declarator(name));
        });
    }

    fn declarator(&mut self, declarator: &Declarator) {
        let name = declarator.name.as_ref().map_or("", |name| name.node.as_str());
        let function = if declarator.function { " function" } else { "" };
        self.node(format!("name {}{name}{function}", "*".repeat(declarator.pointers as usize)), |t| {
            for dim in &declarator.dims {
                t.node("dimension", |t| dim.iter().for_each(|dim| t.expr(dim)));
            }
            if let Some(bits) = &declarator.bits {
                t.node("bits", |t| t.expr(bits));
            }
        });
    }

    fn clause(&mut self, clause: &Clause) {
        if let Some(name) = &clause.name {
            self.line(format!("name {}", name.node));
        }
        for spec in &clause.probes {
            self.line(format!(
                "probe {}{}",
                spec.provider.node,
                spec.parts.iter().map(part).collect::<String>()
            ));
        }
        if let Some(predicate) = &clause.predicate {
            self.node("predicate", |t| t.expr(predicate));
        }
        self.block("body", &clause.body);
    }

    fn block(&mut self, title: &str, block: &Block) {
        self.node(title, |t| block.stmts.iter().for_each(|stmt| t.stmt(&stmt.kind)));
    }

    fn stmt(&mut self, kind: &StmtKind) {
        match kind {
            StmtKind::Expr(expr) => self.expr(expr),
            StmtKind::Let { name, ty, value } => {
                let ty = ty.as_ref().map_or(String::new(), |ty| format!(": {}", type_text(ty)));
                self.node(format!("let ${}{ty}", name.node), |t| {
                    value.iter().for_each(|value| t.expr(value))
                });
            }
            StmtKind::Assign { target, op, value } => {
                self.node(format!("assign {}=", op.map_or("", symbol)), |t| t.exprs([target, value]));
            }
            StmtKind::If { cond, then, otherwise } => self.node("if", |t| {
                t.expr(cond);
                t.block("then", then);
                otherwise.iter().for_each(|block| t.block("else", block));
            }),
            StmtKind::While { cond, body } => self.looped("while", &[cond], body),
            StmtKind::Unroll { count, body } => self.looped("unroll", &[count], body),
            StmtKind::ForRange { var, start, end, body } => {
                self.looped(&format!("for ${} in range", var.node), &[start, end], body);
            }
            StmtKind::ForMap { var, map, body } => {
                self.looped(&format!("for ${} in @{}", var.node, map.node), &[], body)
            }
            StmtKind::Block(block) => self.block("block", block),
            StmtKind::Break => self.line("break"),
            StmtKind::Continue => self.line("continue"),
            StmtKind::Return(value) => self.node("return", |t| value.iter().for_each(|value| t.expr(value))),
        }
    }

    fn looped(&mut self, title: &str, exprs: &[&Expr], body: &Block) {
        self.node(title, |t| {
            t.exprs(exprs.iter().copied());
            t.block("body", body);
        });
    }

    fn exprs<'a>(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Block { body, value } = &expr.kind {
            return self.node("valued block", |t| {
                t.block("body", body);
                t.exprs(value.as_deref());
            });
        }
        let title = title(&expr.kind);
        self.node(title, |t| t.exprs(children(&expr.kind)));
    }
}

fn part(part: &crate::source::span::WithSpan<SpecPart>) -> String {
    match &part.node {
        SpecPart::Text(text) => format!(" {text}"),
        SpecPart::Quoted(text) => format!(" {}", quoted(text.as_bytes())),
        SpecPart::QuotedAt(text, offset) => format!(" {}+{offset}", quoted(text.as_bytes())),
        SpecPart::Regex(text) => format!(" /{text}/"),
        SpecPart::Option(option) => format!(" {}", print_expr(option)),
    }
}

/// The text of a node without its children.
fn title(kind: &ExprKind) -> String {
    match kind {
        ExprKind::Int { value, unsigned } => {
            format!("int {value}{}", if *unsigned { " unsigned" } else { "" })
        }
        ExprKind::Str(bytes) => format!("str {}", quoted(bytes)),
        ExprKind::Bool(value) => format!("bool {value}"),
        ExprKind::Ident(name) => format!("name {name}"),
        ExprKind::Var(name) => format!("var ${name}"),
        ExprKind::Map { name, keys } => format!("map @{name}{}", if keys.is_some() { " keyed" } else { "" }),
        ExprKind::Positional(number) => format!("parameter ${number}"),
        ExprKind::PositionalCount => "parameter count".into(),
        ExprKind::Call { name, .. } => format!("call {}", name.node),
        ExprKind::Field { name, arrow, .. } => {
            format!("field {}{}", if *arrow { "->" } else { "." }, name.node)
        }
        ExprKind::TupleIndex { index, .. } => format!("field .{index}"),
        ExprKind::Index { .. } => "index".into(),
        ExprKind::Unary { op, .. } => format!("unary {op:?}"),
        ExprKind::IncDec { delta, postfix, .. } => {
            format!(
                "{} {}",
                if *postfix { "postfix" } else { "prefix" },
                if *delta > 0 { "++" } else { "--" }
            )
        }
        ExprKind::Binary { op, .. } => format!("binary {}", symbol(*op)),
        ExprKind::Ternary { then, .. } => if then.is_some() { "ternary ? :" } else { "ternary ?:" }.into(),
        ExprKind::Cast { ty, .. } => format!("cast {}", type_text(ty)),
        ExprKind::Tuple(_) => "tuple".into(),
        ExprKind::Block { .. } => "valued block".into(),
        ExprKind::Record(members) => {
            let names: Vec<&str> = members.iter().map(|(name, _)| name.node.as_str()).collect();
            format!("record {}", names.join(" "))
        }
        ExprKind::Type(ty) => format!("type {}", type_text(ty)),
        ExprKind::TypeInfo(TypeName { of: Some(_), pointers: 0, dims, .. }) if dims.is_empty() => {
            "typeinfo".into()
        }
        ExprKind::TypeInfo(ty) => format!("typeinfo type {}", type_text(ty)),
        ExprKind::SizeofType(ty) => format!("sizeof type {}", type_text(ty)),
        ExprKind::SizeofExpr(_) => "sizeof".into(),
        ExprKind::OffsetOf { ty, path } => format!("offsetof {} {}", type_text(ty), path_text(path)),
    }
}

fn children(kind: &ExprKind) -> Vec<&Expr> {
    match kind {
        ExprKind::Map { keys: Some(keys), .. } => keys.iter().collect(),
        ExprKind::Call { args, .. } => args.iter().collect(),
        ExprKind::Tuple(parts) => parts.iter().collect(),
        ExprKind::Record(members) => members.iter().map(|(_, value)| value).collect(),
        ExprKind::Field { base, .. } | ExprKind::TupleIndex { base, .. } => vec![base],
        ExprKind::Index { base, index } => vec![base, index],
        ExprKind::Unary { expr, .. } | ExprKind::Cast { expr, .. } | ExprKind::SizeofExpr(expr) => vec![expr],
        ExprKind::IncDec { target, .. } => vec![target],
        ExprKind::TypeInfo(TypeName { of: Some(of), .. }) => vec![of],
        ExprKind::Binary { lhs, rhs, .. } => vec![lhs, rhs],
        ExprKind::Ternary { cond, then, otherwise } => {
            std::iter::once(&**cond).chain(then.as_deref()).chain([&**otherwise]).collect()
        }
        _ => Vec::new(),
    }
}
