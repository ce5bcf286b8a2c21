//! `assert` and `static_assert`.

use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check, call};
use crate::hir::const_eval::constant;
use crate::hir::make::{int, is_unknown};
use crate::hir::{Message, Piece, Stmt, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use Check::Action;

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Action(|c, f, _| c.assert(f.args, f.span)),
        2..=2,
        "assert(condition, \"text\")",
        "if the condition is false, prints the text as an error and exits with status 1",
        "uprobe:libcuda:cuMemAlloc { assert(args.bytesize < 1 << 40, \"a sane size\") }",
    ),
    call(
        Action(|c, f, _| c.static_assert(f.args)),
        2..=2,
        "static_assert(condition, \"text\")",
        "`assert` of a constant condition, when the script is compiled",
        "BEGIN { static_assert(sizeof(uint64) == 8, \"eight bytes\") }",
    ),
    call(
        Action(|c, f, _| c.fail(&f.args[0], f.span)),
        1..=1,
        "fail(\"text\")",
        "rejects the script when it is compiled, unless an `if` with a constant condition excludes it",
        "BEGIN { if (sizeof(uint64) != 8) { fail(\"eight bytes are needed\") } }",
    ),
];

impl dyn Args + '_ {
    /// `assert(condition, "text")`: the text is not a format.
    pub(crate) fn assert(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let cond = self.condition(&args[0]);
        let text = self.text(&args[1], "the text of `assert`")?;
        if !self.may_leave(span, "assert") || is_unknown(&cond) {
            return None;
        }
        let format = vec![Piece::Text([b"assert failed: ".as_slice(), &text].concat())];
        let prints = StmtKind::Message { what: Message::Error, format, args: Vec::new() };
        let exits = StmtKind::Exit { code: int(1, Type::I64, span) };
        let otherwise = [prints, exits].into_iter().map(|kind| Stmt { kind, span }).collect();
        Some(StmtKind::If { cond, then: Vec::new(), otherwise })
    }

    /// `static_assert(condition, "text")`: generates no code.
    pub(crate) fn static_assert(&mut self, args: &[ast::Expr]) -> Option<StmtKind> {
        let cond = self.condition(&args[0]);
        let text = self.text(&args[1], "the text of `static_assert`")?;
        let span = args[0].span;
        match constant(&cond) {
            Some(number) if number != 0 => {}
            Some(_) => {
                let message = format!("the assertion failed: {}", String::from_utf8_lossy(&text));
                self.error("E0228", span, message);
            }
            None if is_unknown(&cond) => {}
            None => {
                let message = "the condition of `static_assert` is not constant";
                self.error("E0221", span, message)
                    .help("use `assert` for conditions that depend on run time");
            }
        }
        None
    }

    /// `fail("text")`
    pub(crate) fn fail(&mut self, text: &ast::Expr, span: Span) -> Option<StmtKind> {
        let text = self.text(text, "the text of `fail`")?;
        if !self.scene().dead {
            self.error("E0228", span, format!("the script calls `fail`: {}", String::from_utf8_lossy(&text)));
        }
        None
    }
}
