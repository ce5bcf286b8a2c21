//! Built-ins on text and bytes.

use crate::builtins::Call;
use crate::builtins::args::{Args, Core, NO_ADDRESS};
use crate::builtins::row::{BuiltinSpec, Check, call};
use crate::hir::make::{binary, convert, expr, int, is_unknown, literal, not, unknown};
use crate::hir::{BinaryOp, Builtin, Expr, ExprKind, Type};
use crate::limits;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::is_kernel_name;
use Check::Function;

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Function(|c, f| c.core(Core::Str, f)),
        1..=2,
        "str(pointer[, size])",
        "string at an address of the process, up to its NUL; `size` includes the NUL",
        "uretprobe:libcuda:cuModuleGetFunction { printf(\"%s\\n\", str(args.name)) }",
    ),
    call(
        Function(|c, f| c.strncmp(f.args, f.span)),
        3..=3,
        "strncmp(a, b, n)",
        "0 if the first n bytes are equal, else 1",
        "uprobe:libcuda:cuInit / strncmp(comm, \"python\", 6) == 0 / { @ = count() }",
    ),
    call(
        Function(|c, f| c.strcontains(f.args, f.span)),
        2..=2,
        "strcontains(text, part)",
        "whether a string contains another",
        "uprobe:libcuda:cu* / strcontains(func, \"Async\") / { @[func] = count() }",
    ),
    call(
        Function(|c, f| c.strlen(&f.args[0], f.span)),
        1..=1,
        "strlen(text)",
        "bytes before the NUL, uint64",
        "uprobe:libcuda:cuInit / strlen(comm) > 8 / { @[comm] = count() }",
    ),
    call(
        Function(|c, f| c.strstr(f.args, f.span)),
        2..=2,
        "strstr(text, part)",
        "position of the part, int64; -1 if it is not found",
        "uprobe:libcuda:cuInit { @[strstr(comm, \"py\")] = count() }",
    ),
    call(
        Function(|c, f| c.strcap(&f.args[0], f.span)),
        1..=1,
        "strcap(text)",
        "capacity of a string in bytes, including the NUL, int64",
        "BEGIN { print(strcap(comm)) }",
    ),
    call(
        Function(|c, f| c.concat(f.args, f.span)),
        2..=2,
        "str_concat(a, b)",
        "concatenation of two strings",
        "uprobe:libcuda:cuInit { @[str_concat(comm, \"/init\")] = count() }",
    ),
    call(
        Function(|c, f| c.letters(f, Builtin::ToLower)),
        1..=1,
        "tolower(text)",
        "the text with its ASCII letters in lower case",
        "uprobe:libcuda:cuInit / tolower(comm) == \"python\" / { @ = count() }",
    ),
    call(
        Function(|c, f| c.letters(f, Builtin::ToUpper)),
        1..=1,
        "toupper(text)",
        "the text with its ASCII letters in upper case",
        "uprobe:libcuda:cuInit { print(toupper(comm)) }",
    ),
    call(
        Function(|c, f| c.buf(f.args, f.span)),
        1..=2,
        "buf(pointer, length), buf(array)",
        "bytes at an address of the process; `%r` prints them as text and hex, `%rx` and `%rh` in hex",
        "uprobe:libcuda:cuModuleGetFunction { printf(\"%rh\\n\", buf(args.name, 16)) }",
    ),
    call(
        Function(|c, f| int(i64::from(c.scene().config.max_strlen), Type::U64, f.span)),
        0..=0,
        "default_str_length()",
        "the setting `max_strlen`, uint64",
        "BEGIN { print(default_str_length()) }",
    ),
];

impl dyn Args + '_ {
    /// 0 if equal, else 1.
    pub(crate) fn strncmp(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (lhs, rhs) = (self.string(&args[0]), self.string(&args[1]));
        let limit = self.constant(&args[2], "the length of `strncmp`");
        let (Some(lhs), Some(rhs), Some(limit)) = (lhs, rhs, limit) else { return unknown(span) };
        let Some(limit) = u32::try_from(limit).ok().filter(|&n| n > 0) else {
            self.error("E0222", args[2].span, "the length of `strncmp` is at least 1");
            return unknown(span);
        };
        let equal = match (&lhs.ty, &rhs.ty) {
            (Type::Name(_), _) => self.name_prefix(&lhs, &rhs, limit, span),
            (_, Type::Name(_)) => self.name_prefix(&rhs, &lhs, limit, span),
            _ => {
                let kind = ExprKind::StrEq { lhs: Box::new(lhs), rhs: Box::new(rhs), limit: Some(limit) };
                expr(kind, Type::Bool, span)
            }
        };
        if is_unknown(&equal) { equal } else { convert(not(equal, span), &Type::I64) }
    }

    fn name_prefix(&mut self, name: &Expr, other: &Expr, limit: u32, span: Span) -> Expr {
        let ExprKind::Str(bytes) = &other.kind else { return self.name_against_value(span) };
        let limit = limit as usize;
        let cut = |text: &[u8]| text[..text.len().min(limit)].to_vec();
        let (start, shown) = (cut(bytes), String::from_utf8_lossy(&cut(bytes)).into_owned());
        let test = |candidate: &str| cut(candidate.as_bytes()) == start;
        self.name_test(name, &format!("that begins with `{shown}`"), other.span, test, span)
    }

    pub(crate) fn strcontains(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (haystack, needle) = (self.string(&args[0]), self.readable(&args[1], "strcontains"));
        let (Some(haystack), Some(needle)) = (haystack, needle) else { return unknown(span) };
        let ExprKind::Str(needle) = needle.kind else {
            if let Type::Name(_) = haystack.ty {
                return self.name_against_value(span);
            }
            let found = search(haystack, needle, span);
            return binary(BinaryOp::Ge, found, int(0, Type::I64, span), Type::Bool, span);
        };
        if needle.is_empty() {
            return int(1, Type::Bool, span);
        }
        if let Type::Name(_) = haystack.ty {
            let text = String::from_utf8_lossy(&needle).into_owned();
            return self.name_test(
                &haystack,
                &format!("with `{text}` in it"),
                args[1].span,
                |name| name.contains(&text),
                span,
            );
        }
        expr(ExprKind::StrContains { haystack: Box::new(haystack), needle }, Type::Bool, span)
    }

    /// A string or a name.
    fn string(&mut self, e: &ast::Expr) -> Option<Expr> {
        let value = self.expr(e);
        match &value.ty {
            Type::Void => None,
            Type::Str(_) | Type::Name(_) => Some(value),
            ty if is_kernel_name(ty) => Some(self.kernel_text(value)),
            other => {
                let message = format!("expected a string, found {}", self.types().show(other));
                let is_pointer = matches!(other, Type::Pointer(_) | Type::Int { .. });
                let error = self.error("E0210", e.span, message);
                if is_pointer {
                    error.help("read the text first: `str(p)`");
                }
                None
            }
        }
    }

    /// A string whose bytes are readable at run time; names are only ids.
    fn readable(&mut self, e: &ast::Expr, function: &str) -> Option<Expr> {
        let value = self.string(e)?;
        if let Type::Name(_) = value.ty {
            let message = format!("`{function}` cannot read {}", self.types().show(&value.ty));
            self.error("E0210", e.span, message).help("use `==`, `strncmp` or `strcontains`");
            return None;
        }
        Some(value)
    }

    pub(crate) fn strlen(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        match self.readable(arg, "strlen") {
            Some(Expr { kind: ExprKind::Str(text), .. }) => int(text.len() as i64, Type::U64, span),
            Some(text) => expr(ExprKind::Builtin(Builtin::StrLen, vec![text]), Type::U64, span),
            None => unknown(span),
        }
    }

    pub(crate) fn strstr(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (haystack, needle) = (self.readable(&args[0], "strstr"), self.readable(&args[1], "strstr"));
        let (Some(haystack), Some(needle)) = (haystack, needle) else { return unknown(span) };
        match &needle.kind {
            ExprKind::Str(text) if text.is_empty() => int(0, Type::I64, span),
            _ => search(haystack, needle, span),
        }
    }

    /// Capacity of a string in bytes, including the NUL.
    pub(crate) fn strcap(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        match self.readable(arg, "strcap").map(|value| value.ty) {
            Some(Type::Str(capacity)) => int(i64::from(capacity), Type::I64, span),
            _ => unknown(span),
        }
    }

    /// The capacity of the result fits both strings.
    pub(crate) fn concat(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (lhs, rhs) = (self.readable(&args[0], "str_concat"), self.readable(&args[1], "str_concat"));
        let (Some(lhs), Some(rhs)) = (lhs, rhs) else { return unknown(span) };
        let (Type::Str(a), Type::Str(b)) = (&lhs.ty, &rhs.ty) else { return unknown(span) };
        let capacity = a + b - 1;
        if i64::from(capacity) > limits::STRING_BYTES {
            let message =
                format!("these strings take {capacity} bytes together, {} at most", limits::STRING_BYTES);
            self.error("E0227", span, message).help("shorten them: `str(p, 64)`");
            return unknown(span);
        }
        let kind = ExprKind::Builtin(Builtin::StrConcat, vec![lhs, rhs]);
        expr(kind, Type::Str(capacity), span)
    }

    /// `tolower(text)`, `toupper(text)`
    pub(crate) fn letters(&mut self, call: &Call, case: Builtin) -> Expr {
        let Some(text) = self.readable(&call.args[0], call.name) else { return unknown(call.span) };
        let ty = text.ty.clone();
        call.value(ExprKind::Builtin(case, vec![text]), ty)
    }

    /// `buf(p, n)`, `buf(array)`
    pub(crate) fn buf(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let place = self.place(&args[0]);
        let (base, size) = match &place.ty {
            Type::Void => return unknown(span),
            Type::Array(..) => {
                let size = self.types().size(&place.ty);
                if args.len() == 1
                    && !matches!(
                        place.kind,
                        ExprKind::Load { .. } | ExprKind::ParamField { .. } | ExprKind::RetvalField { .. }
                    )
                {
                    return expr(ExprKind::Cast(Box::new(place)), Type::Buf(size), span);
                }
                (self.address_of(place), Some(size))
            }
            Type::Str(_) => return self.buf_of_text(place, args, span),
            Type::Pointer(_) | Type::Int { bytes: 8, .. } => (place, None),
            other => {
                let message = format!("`buf` takes an address, found {}", self.types().show(other));
                self.error("E0210", args[0].span, message).help(NO_ADDRESS);
                return unknown(span);
            }
        };
        let len = match (args.get(1), size) {
            (Some(arg), _) => convert(self.number(arg, "the length of `buf`"), &Type::U64),
            (None, Some(size)) => int(i64::from(size), Type::U64, span),
            (None, None) => {
                let error = self.error("E0209", span, "`buf` of an address needs a length");
                error.help("write `buf(pointer, length)`");
                return unknown(span);
            }
        };
        if is_unknown(&base) || is_unknown(&len) {
            return unknown(span);
        }
        let most = self.scene().config.max_strlen;
        let capacity = match len.kind {
            ExprKind::Int(length) if (1..=i64::from(most)).contains(&length) => length as u32,
            ExprKind::Int(length) => {
                let message = format!("the length of `buf` is from 1 to {most}, found {length}");
                let error = self.error("E0222", span, message);
                if length > i64::from(most) {
                    error.help(format!("raise the limit: `config = {{ max_strlen = {length} }}`"));
                }
                return unknown(span);
            }
            _ => most,
        };
        let base = Box::new(convert(base, &Type::U64));
        expr(ExprKind::ReadBuf { base, len: Box::new(len) }, Type::Buf(capacity), span)
    }

    /// `buf("text", 4)`: the first bytes of a text.
    fn buf_of_text(&mut self, text: Expr, args: &[ast::Expr], span: Span) -> Expr {
        let most = self.scene().config.max_strlen;
        let length = match (args.get(1), &text.ty) {
            (Some(arg), _) => literal(&self.number(arg, "the length of `buf`")),
            (None, Type::Str(capacity)) => Some(i64::from(*capacity) - 1),
            (None, _) => None,
        };
        match length.filter(|length| (1..=i64::from(most)).contains(length)) {
            Some(length) => expr(ExprKind::Cast(Box::new(text)), Type::Buf(length as u32), span),
            None => {
                let message = format!("the length of `buf` of a text is a number from 1 to {most}");
                self.error("E0222", span, message).help("write `buf(\"text\", 4)`");
                unknown(span)
            }
        }
    }
}

/// The position of a text in another, searched at run time.
fn search(haystack: Expr, needle: Expr, span: Span) -> Expr {
    let kind = ExprKind::Builtin(Builtin::StrSearch, vec![haystack, needle]);
    expr(kind, Type::I64, span)
}
