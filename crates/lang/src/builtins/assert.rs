//! `assert` and `static_assert`.

use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check, MANY, call};
use crate::hir::const_eval::constant;
use crate::hir::make::{int, is_unknown};
use crate::hir::{Expr, ExprKind, Message, Piece, Stmt, StmtKind, Type};
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
        Action(|c, f, _| c.fail(f.args, f.span)),
        1..=MANY,
        "fail(\"format\", values...)",
        "rejects the script when it is compiled, unless an `if` with a constant condition excludes it; the values are constants",
        "BEGIN { if (sizeof(uint64) != 8) { fail(\"eight bytes are needed\") } }",
    ),
];

/// Begin of the message of `fail`, before its text.
pub const FAILS: &str = "the script calls `fail`: ";

impl dyn Args + '_ {
    /// `assert(condition, "text")`: the text is not a format.
    pub(crate) fn assert(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let cond = self.condition(&args[0]);
        let text = self.text(&args[1], "the text of `assert`")?;
        if !self.may_leave(span, "assert") || is_unknown(&cond) {
            return None;
        }
        let format = vec![Piece::Text([b"assert failed: ".as_slice(), &text].concat())];
        let calls = self.diags().calls_around(span);
        let prints = StmtKind::Message { what: Message::Error, format, args: Vec::new(), calls };
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

    /// `fail("format", values...)`
    pub(crate) fn fail(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let (format, values) = self.formatted("fail", args, span)?;
        if self.scene().dead {
            return None;
        }
        if let Some(wrong) = values.iter().find(|value| written(value, 'd').is_none()) {
            let span = wrong.span;
            self.error("E0221", span, "a value of `fail` is not constant")
                .help("its text is printed when the script is compiled");
            return None;
        }
        let mut values = values.iter();
        let text: String = format.iter().map(|piece| printed(piece, &mut values)).collect();
        self.error("E0228", span, format!("{FAILS}{text}"));
        None
    }
}

/// A piece of a format as text, with the next value if it prints one.
fn printed<'v>(piece: &Piece, values: &mut impl Iterator<Item = &'v Expr>) -> String {
    match piece {
        Piece::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Piece::Directive(directive) => {
            let text =
                values.next().and_then(|value| written(value, directive.conversion)).unwrap_or_default();
            let width = directive.width as usize;
            if directive.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
        }
    }
}

/// A constant as text.
fn written(value: &Expr, conversion: char) -> Option<String> {
    if let ExprKind::Str(text) = &value.kind {
        return Some(String::from_utf8_lossy(text).into_owned());
    }
    let number = constant(value)?;
    Some(match conversion {
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        'o' => format!("{number:o}"),
        'p' => format!("{number:#x}"),
        'u' => (number as u64).to_string(),
        's' if value.ty == Type::Bool => (number != 0).to_string(),
        _ => number.to_string(),
    })
}
