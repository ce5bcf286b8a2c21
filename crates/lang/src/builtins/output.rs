//! `printf` and other output: checks that the values match the format.

use crate::builtins::args::{Args, CoreAction};
use crate::builtins::floats::is_floating;
use crate::builtins::format_string::parse_format;
use crate::builtins::row::{BuiltinSpec, Check, MANY, call};
use crate::hir::make::{convert, is_unknown};
use crate::hir::{Directive, Expr, Message, Piece, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::is_scalar;
use Check::Action;

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Action(|c, f, _| c.printf(f.args, f.span)),
        1..=MANY,
        "printf(\"format\", values...)",
        "prints as in C, but truncates numbers only to an explicit length; `%s` takes any value",
        "uprobe:libcuda:cuMemAlloc { printf(\"%d %s %d\\n\", pid, comm, args.bytesize) }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Heading, f.args, f.span)),
        1..=MANY,
        "heading(\"format\", values...)",
        "prints a text for readers, as `printf` does; `-f json` omits it",
        "BEGIN { heading(\"%-8s %s\\n\", \"PID\", \"CALL\") } uprobe:libcuda:cuMem* { printf(\"%-8d %s\\n\", (pid = pid, call = func)) }",
    ),
    call(
        Action(|c, f, _| c.row(f.args, f.span)),
        2..=MANY,
        "row(weight, \"format\", values...)",
        "collects a line formatted as by `printf`, or with `row(weight, (name = value, ...))` a row of a table, for `rows`",
        "END { for ($kv : @) { row($kv.1, \"%-30s %d\\n\", $kv.0, $kv.1) } rows(10); clear(@) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.rows(f.args)),
        0..=3,
        "rows([top[, \"none\"[, \"name\"]]])",
        "prints the lines of `row` of this thread since the last `rows`, the largest weight first, and the number of omitted lines; without lines, prints the text; the name is that of the table in `-f json`",
        "END { for ($kv : @) { row($kv.1, \"%s\\n\", $kv.0) } rows(10, \"no call\") } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Error, f.args, f.span)),
        1..=MANY,
        "errorf(\"format\", values...)",
        "prints an error of the script, with its position, on standard error",
        "uretprobe:libcuda:cuInit { if (retval) { errorf(\"no CUDA: %s\", retval) } }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Warning, f.args, f.span)),
        1..=MANY,
        "warnf(\"format\", values...)",
        "prints a warning of the script, with its position, on standard error",
        "uprobe:libcuda:cuMemAlloc { if (args.bytesize == 0) { warnf(\"an empty allocation by %d\", pid) } }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Cat, f.args, f.span)),
        1..=MANY,
        "cat(\"path\", values...)",
        "prints the contents of a file at the time of printing, at most 10 KiB; the path is formatted as by `printf`",
        "uprobe:libcuda:cuInit { cat(\"/proc/%d/cmdline\", pid) }",
    ),
    call(
        Action(|c, f, _| c.message(Message::System, f.args, f.span)),
        1..=MANY,
        "system(\"command\", values...)",
        "runs a shell command and prints its output; the command is formatted as by `printf`; needs `--unsafe`",
        "uretprobe:libcuda:cuInit { if (retval) { system(\"ls -l /proc/%d/fd\", pid) } }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Exit, f)),
        0..=1,
        "exit([status])",
        "stops tracing; maps are printed",
        "interval:s:10 { exit() }",
    ),
    call(
        Action(|c, f, _| c.time(f.args)),
        0..=1,
        "time([\"format\"])",
        "prints the wall-clock time; the default format is `%H:%M:%S` and a newline",
        "interval:s:1 { time(\"%H:%M:%S \") }",
    ),
];

impl dyn Args + '_ {
    /// `printf(format, args)`, `printf(format, (name = value, ...))`
    pub(crate) fn printf(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let (format, args) = self.formatted("printf", args, span)?;
        Some(StmtKind::Printf { format, args })
    }

    /// `errorf(format, args)`, `heading(format, args)` and similar.
    pub(crate) fn message(&mut self, what: Message, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let (format, args) = self.formatted(what.function(), args, span)?;
        let calls = self.diags().calls_around(span);
        Some(StmtKind::Message { what, format, args, calls })
    }

    /// `row(weight, format, args)`, `row(weight, (name = value, ...))`
    pub(crate) fn row(&mut self, args: &[ast::Expr], span: Span) -> Option<StmtKind> {
        let weight = self.number(&args[0], "the weight of a row");
        let (format, values) = match &args[1..] {
            [cells] if matches!(cells.kind, ast::ExprKind::Record(_)) => {
                let cells = self.expr(cells);
                if is_unknown(&cells) {
                    return None;
                }
                (Vec::new(), vec![cells])
            }
            formatted => self.formatted("row", formatted, span)?,
        };
        if is_unknown(&weight) {
            return None;
        }
        let args = [vec![convert(weight, &Type::I64)], values].concat();
        Some(StmtKind::Message { what: Message::Row, format, args, calls: Vec::new() })
    }

    /// The pieces of a format, and the values that it prints.
    pub(crate) fn formatted(
        &mut self,
        function: &str,
        args: &[ast::Expr],
        span: Span,
    ) -> Option<(Vec<Piece>, Vec<Expr>)> {
        let format = self.text(&args[0], &format!("the format of `{function}`"));
        let pieces = format.map(|format| parse_format(&format));
        let directives = pieces
            .as_ref()
            .and_then(|pieces| pieces.as_ref().ok())
            .map_or(1, |pieces| conversions(pieces).len());
        // A single `%s` prints a whole record.
        let named = match &args[1..] {
            [ast::Expr { kind: ast::ExprKind::Record(members), .. }]
                if directives != 1 || members.len() == 1 =>
            {
                Some(members)
            }
            _ => None,
        };
        let written: Vec<&ast::Expr> = match named {
            Some(members) => members.iter().map(|(_, value)| value).collect(),
            None => args[1..].iter().collect(),
        };
        let values: Vec<Expr> = written.iter().map(|value| self.expr(value)).collect();
        let mut pieces = match pieces? {
            Ok(pieces) => pieces,
            Err(error) => {
                let span = self.in_format(args[0].span, error.offset);
                self.error("E0220", span, error.message);
                return None;
            }
        };
        let expected = conversions(&pieces);
        if expected.len() != values.len() {
            self.wrong_number(expected.len(), values.len(), span);
            return None;
        }
        for ((directive, value), written) in directives_mut(&mut pieces).zip(&values).zip(written) {
            directive.register = self.is_register(value);
            directive.literal = matches!(written.kind, ast::ExprKind::Str(_));
        }
        let values =
            values.into_iter().zip(expected).map(|(value, conversion)| self.printed(value, conversion));
        let mut values: Vec<Expr> = values.collect();
        if values.iter().any(is_unknown) {
            return None;
        }
        if let Some(members) = named {
            let names = self.names_of(members);
            values = vec![self.record_of(names, values, args[1].span)];
        }
        Some((pieces, values))
    }

    /// The span of a directive, or of the whole string if it has escapes.
    fn in_format(&self, string: Span, offset: usize) -> Span {
        if self.scene().source.slice(string).contains('\\') {
            return string;
        }
        let start = string.start as usize + 1 + offset;
        Span::new(start, (start + 2).min(string.end as usize))
    }

    fn wrong_number(&mut self, expected: usize, found: usize, span: Span) {
        let few = if found < expected { "few" } else { "many" };
        let message = format!("too {few} values for the format: it prints {expected}, found {found}");
        let error = self.error("E0219", span, message);
        error.help("give one value for each `%`; `%%` prints a percent sign");
    }

    /// The value if the conversion can print it.
    fn printed(&mut self, value: Expr, conversion: char) -> Expr {
        let fits = match conversion {
            's' => true,
            'r' | 'R' | 'H' => matches!(value.ty, Type::Str(_) | Type::Buf(_)),
            'f' => is_floating(&value.ty),
            _ => is_scalar(&value.ty),
        };
        if conversion == 's' {
            return self.text_of(value);
        }
        if !fits && !is_unknown(&value) {
            let written = crate::builtins::format_string::written(conversion);
            let message = format!("`%{written}` cannot print {}", self.types().show(&value.ty));
            let help = match conversion {
                'f' => "`%f` prints the target of a `float *` or `double *`; print integers with `%d`",
                _ if is_floating(&value.ty) => "print it with `%f` or `%s`, or its whole part: `(int64)x`",
                _ => "print it with `%s`",
            };
            self.error("E0219", value.span, message).help(help);
        }
        value
    }

    /// An optional constant number of an argument of `print` or `rows`; 0 if it is absent.
    pub(crate) fn print_number(&mut self, arg: Option<&ast::Expr>, what: &str) -> Option<u32> {
        let Some(arg) = arg else { return Some(0) };
        let number = self.constant(arg, what)?;
        u32::try_from(number).ok().or_else(|| {
            self.error("E0222", arg.span, format!("{what}: expected a number from 0 to {}", u32::MAX));
            None
        })
    }

    /// `rows()`, `rows(10)`, `rows(10, "nothing was seen")`, `rows(10, "nothing was seen", "calls")`
    pub(crate) fn rows(&mut self, args: &[ast::Expr]) -> Option<StmtKind> {
        let top = self.print_number(args.first(), "the number of rows")?;
        let none = args.get(1).map_or(Some(Vec::new()), |none| self.text(none, "the text of `rows`"))?;
        let name = args.get(2).map_or(Some(Vec::new()), |name| self.text(name, "the name of a table"))?;
        Some(StmtKind::Rows { top, none, name: String::from_utf8_lossy(&name).into_owned() })
    }

    /// `time()`, `time("%H:%M ")`
    pub(crate) fn time(&mut self, args: &[ast::Expr]) -> Option<StmtKind> {
        let Some(arg) = args.first() else { return Some(StmtKind::Time("%H:%M:%S\n".into())) };
        let format = self.time_format(arg, "the format of `time`")?;
        Some(StmtKind::Time(format))
    }

    /// A constant text with directives for a time.
    pub(crate) fn time_format(&mut self, arg: &ast::Expr, what: &str) -> Option<String> {
        let format = String::from_utf8_lossy(&self.text(arg, what)?).into_owned();
        if let Some(wrong) = no_time_directive(&format) {
            let message = format!("`{wrong}` is not a directive of a time");
            let help = "`%H:%M:%S` is the time, `%F` the date, `%f` microseconds, `%s` seconds since 1970, `%%` a percent sign";
            self.error("E0220", arg.span, message).help(help);
        }
        Some(format)
    }
}

/// The first directive of a text that a time does not have.
fn no_time_directive(format: &str) -> Option<String> {
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        let directive = after.trim_start_matches(|c: char| "_-^#:.".contains(c) || c.is_ascii_digit());
        let letter = directive.chars().next();
        let flags = &after[..after.len() - directive.len()];
        // Directives of jiff, which prints times.
        let known = if flags.contains('.') { "f" } else { "%AaBbCcDdeFfGgHhIjklMmNnPpQqRrSsTtUuVWwXxYyZz" };
        if !letter.is_some_and(|letter| known.contains(letter)) {
            let end = after.len() - directive.len() + letter.map_or(0, char::len_utf8);
            return Some(format!("%{}", &after[..end]));
        }
        rest = &directive[1..];
    }
    None
}

fn directives_mut(pieces: &mut [Piece]) -> impl Iterator<Item = &mut Directive> {
    pieces.iter_mut().filter_map(|piece| match piece {
        Piece::Directive(directive) => Some(directive),
        Piece::Text(_) => None,
    })
}

fn conversions(pieces: &[Piece]) -> Vec<char> {
    let conversion = |piece: &Piece| match piece {
        Piece::Directive(directive) => Some(directive.conversion),
        Piece::Text(_) => None,
    };
    pieces.iter().filter_map(conversion).collect()
}
