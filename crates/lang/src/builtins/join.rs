//! `join(argv)`: the strings of a null-terminated array. An element is read only if the one before it is not null.
//!
//! ```text
//! join(p)      ->      $w0 = *(uint64 *)p; $w1 = $w0 ? *(uint64 *)(p + 8) : 0; ...
//!                      and a line of `$w0 ? str($w0, 256) : ""`, `$w1 ? " " : ""` and so on
//! ```

use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check, call};
use crate::hir::make::is_unknown;
use crate::hir::{Directive, Message, Piece, Stmt, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::ast::{BinaryOp, Block, Name, StmtKind as AstStmt, TypeName, UnaryOp};
use Check::Action;

/// Upper bound of words.
const WORDS: usize = 16;
/// Upper bound of bytes in a word, including the NUL.
const WORD_BYTES: u32 = 256;

pub(super) static ROWS: &[BuiltinSpec] = &[call(
    Action(|c, f, out| {
        c.join(f.args, f.span, out);
        None
    }),
    1..=2,
    "join(words[, \"separator\"])",
    "prints a null-terminated `char *[]` as a line, at most 16 words of 256 bytes",
    "uprobe:libc:execvp { join(arg1) }",
)];

impl dyn Args + '_ {
    /// `join(words)`, `join(words, ", ")`
    pub(crate) fn join(&mut self, args: &[ast::Expr], span: Span, out: &mut Vec<Stmt>) {
        let separator = match args.get(1) {
            None => b" ".to_vec(),
            Some(arg) => match self.text(arg, "the separator of `join`") {
                Some(text) => text,
                None => return,
            },
        };
        let list = self.expr(&args[0]);
        if !matches!(list.ty, Type::Pointer(_) | Type::Int { bytes: 8, .. }) {
            if !is_unknown(&list) {
                let message = format!(
                    "`join` takes the address of a list of words, found {}",
                    self.types().show(&list.ty)
                );
                self.error("E0210", args[0].span, message);
            }
            return;
        }
        let make = Make { span };
        let body = Block { stmts: make.reads(&args[0]), span };
        let reads = self.block(&body);
        let most = self.scene().config.max_strlen.min(WORD_BYTES);
        let texts: Vec<_> = make.texts(&separator, most).iter().map(|text| self.expr(text)).collect();
        out.extend(reads);
        if self.diags().has_errors() {
            return;
        }
        let text = Piece::Directive(Directive { conversion: 's', ..Directive::default() });
        let format = vec![text; texts.len()];
        let kind = StmtKind::Message { what: Message::Join, format, args: texts, calls: Vec::new() };
        out.push(Stmt { kind, span });
    }
}

/// Builds AST nodes with one span.
struct Make {
    span: Span,
}

impl Make {
    fn expr(&self, kind: ast::ExprKind) -> ast::Expr {
        ast::Expr { kind, span: self.span }
    }

    fn int(&self, value: u64) -> ast::Expr {
        self.expr(ast::ExprKind::Int { value, unsigned: false })
    }

    /// A variable that no script can name.
    fn var(&self, what: &str) -> ast::Expr {
        self.expr(ast::ExprKind::Var(format!("{what}@join{}", self.span.start)))
    }

    fn word(&self, at: usize) -> ast::Expr {
        self.var(&format!("word{at}"))
    }

    fn set(&self, target: ast::Expr, value: ast::Expr) -> ast::Stmt {
        ast::Stmt { kind: AstStmt::Assign { target, op: None, value }, span: self.span }
    }

    fn cast(&self, pointers: u32, inner: ast::Expr) -> ast::Expr {
        let ty = TypeName { name: "uint64".into(), pointers, ..TypeName::bare(self.span) };
        self.expr(ast::ExprKind::Cast { ty, expr: Box::new(inner) })
    }

    /// `$word ? value : otherwise`
    fn if_there(&self, at: usize, then: ast::Expr, otherwise: ast::Expr) -> ast::Expr {
        let (cond, then) = (Box::new(self.word(at)), Some(Box::new(then)));
        self.expr(ast::ExprKind::Ternary { cond, then, otherwise: Box::new(otherwise) })
    }

    /// The addresses of the words.
    fn reads(&self, list: &ast::Expr) -> Vec<ast::Stmt> {
        let start = self.set(self.var("list"), self.cast(0, list.clone()));
        let words = (0..WORDS).map(|at| {
            let offset = self.int(8 * at as u64);
            let (lhs, rhs) = (Box::new(self.var("list")), Box::new(offset));
            let place = self.expr(ast::ExprKind::Binary { op: BinaryOp::Add, lhs, rhs });
            let pointer = Box::new(self.cast(1, place));
            let read = self.expr(ast::ExprKind::Unary { op: UnaryOp::Deref, expr: pointer });
            let value = match at.checked_sub(1) {
                None => read,
                Some(before) => self.if_there(before, read, self.cast(0, self.int(0))),
            };
            self.set(self.word(at), value)
        });
        std::iter::once(start).chain(words).collect()
    }

    /// The printed texts: words and separators.
    fn texts(&self, separator: &[u8], most: u32) -> Vec<ast::Expr> {
        let text = |bytes: &[u8]| self.expr(ast::ExprKind::Str(bytes.to_vec()));
        let mut texts = Vec::new();
        for at in 0..WORDS {
            if at > 0 && !separator.is_empty() {
                texts.push(self.if_there(at, text(separator), text(b"")));
            }
            let name = Name { node: "str".into(), span: self.span };
            let args = vec![self.word(at), self.int(u64::from(most))];
            let read = self.expr(ast::ExprKind::Call { name, args });
            texts.push(self.if_there(at, read, text(b"")));
        }
        texts
    }
}
