//! Functions with a value, one arm each.

use crate::ast;
use crate::check::Checker;
use crate::check::build::{convert, expr, is_unknown, not, unknown};
use crate::hir::{Expr, ExprKind, MapId, Type};
use crate::resolve::probes::did_you_mean;
use crate::similar::similar;
use crate::span::Span;

/// Registers that `reg` reads, by architecture.
static REGISTERS_OF: &[(&str, &[&str])] = &[
    (
        "x86_64",
        &[
            "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "bp", "bx", "cx", "dx", "si", "di", "ax",
            "ip", "pc", "sp", "cs", "ss", "flags",
        ],
    ),
    (
        "aarch64",
        &[
            "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15", "r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23", "r24", "r25", "r26", "r27", "r28",
            "r29", "r30", "pc", "sp", "pstate",
        ],
    ),
];

/// The registers of an architecture as Rust names it; none where it is not supported.
pub fn registers(arch: &str) -> &'static [&'static str] {
    REGISTERS_OF.iter().find(|(name, _)| *name == arch).map_or(&[], |(_, registers)| registers)
}

impl Checker<'_> {
    /// A built-in function with as many arguments as it takes.
    pub fn function(&mut self, name: &str, args: &[ast::Expr], span: Span) -> Expr {
        match name {
            "str" => self.read_str(args, span),
            "strncmp" => self.strncmp(args, span),
            "strcontains" => self.strcontains(args, span),
            "strftime" => self.strftime(args, span),
            "usym" => self.usym(&args[0], span),
            "reg" => self.register(&args[0], span),
            "len" => self.len(&args[0], span),
            "has_key" => self.has_key(args, span),
            "delete" => self.delete(args, span).pop().unwrap_or_else(|| unknown(span)),
            "ustack" | "kstack" => self.stack(name, args, span),
            "nsecs" | "pid" | "tid" => self.moded(name, &args[0], span),
            other => unreachable!("built-in function `{other}` has no arm"),
        }
    }

    /// 0 if equal, else 1.
    fn strncmp(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (lhs, rhs) = (self.string(&args[0]), self.string(&args[1]));
        let limit = self.constant(&args[2], "the length of `strncmp`");
        let (Some(lhs), Some(rhs), Some(limit)) = (lhs, rhs, limit) else { return unknown(span) };
        let Some(limit) = u32::try_from(limit).ok().filter(|&n| n > 0) else {
            self.error("E0222", args[2].span, "the length of `strncmp` is 1 at least");
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
        self.name_test(name, &format!("that begins with `{shown}`"), test, span)
    }

    fn strcontains(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let haystack = self.string(&args[0]);
        let needle = self.text(&args[1], "what `strcontains` looks for");
        let (Some(haystack), Some(needle)) = (haystack, needle) else { return unknown(span) };
        if needle.is_empty() {
            self.error("E0222", args[1].span, "what `strcontains` looks for is empty");
            return unknown(span);
        }
        if let Type::Name(_) = haystack.ty {
            let text = String::from_utf8_lossy(&needle).into_owned();
            return self.name_test(
                &haystack,
                &format!("with `{text}` in it"),
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
            other => {
                let message = format!("expected a string, found {}", self.types.show(other));
                let is_pointer = matches!(other, Type::Pointer(_) | Type::Int { .. });
                let error = self.error("E0210", e.span, message);
                if is_pointer {
                    error.help("read the text first: `str(p)`");
                }
                None
            }
        }
    }

    fn strftime(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let format = self.text(&args[0], "the format of `strftime`");
        let ns = self.number(&args[1], "the time of `strftime`");
        let Some(format) = format.filter(|_| !is_unknown(&ns)) else { return unknown(span) };
        let ty = Type::Timestamp(String::from_utf8_lossy(&format).into_owned());
        expr(ExprKind::Strftime(Box::new(convert(ns, &Type::U64))), ty, span)
    }

    fn usym(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let address = self.number(arg, "the address of `usym`");
        if is_unknown(&address) {
            return unknown(span);
        }
        expr(ExprKind::Usym(Box::new(convert(address, &Type::U64))), Type::Usym, span)
    }

    fn register(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(name) = self.text(arg, "the name of a register") else { return unknown(span) };
        let name = String::from_utf8_lossy(&name).into_owned();
        let known = registers(std::env::consts::ARCH);
        if !known.contains(&name.as_str()) {
            let near = did_you_mean(&similar(&name, known.iter().copied()));
            let error = self.error("E0210", arg.span, format!("no register `{name}`"));
            error.note(format!("registers are {}", known.join(" ")));
            error.help.extend(near);
            return unknown(span);
        }
        expr(ExprKind::Reg(name), Type::U64, span)
    }

    fn len(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        match self.whole_map(arg, "len") {
            Some(map) => expr(ExprKind::Len(map), Type::U64, span),
            None => unknown(span),
        }
    }

    fn has_key(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let Some(map) = self.whole_map(&args[0], "has_key") else { return unknown(span) };
        match self.given_key(map, &args[1], span) {
            Some(key) => expr(ExprKind::HasKey { map, key }, Type::Bool, span),
            None => unknown(span),
        }
    }

    /// A key that stands as an argument: `k`, `(a, b)`.
    fn given_key(&mut self, map: MapId, key: &ast::Expr, span: Span) -> Option<Vec<Expr>> {
        let name = self.maps[map.0 as usize].name.clone();
        self.cell(&name, Some(std::slice::from_ref(key)), span).map(|(_, key)| key)
    }

    /// `delete(@m, k)`, `delete(@scalar)`, and of old `delete(@a[k], @b[k])`: one expression for each key.
    pub fn delete(&mut self, args: &[ast::Expr], span: Span) -> Vec<Expr> {
        let is_old = |arg: &ast::Expr| matches!(&arg.kind, ast::ExprKind::Map { keys: Some(_), .. });
        if is_old(&args[0]) {
            return args.iter().filter_map(|arg| self.delete_cell(arg)).collect();
        }
        let Some(map) = self.whole_map(&args[0], "delete") else { return Vec::new() };
        let key = match &args[1..] {
            [] => self.key_of_scalar(map, span),
            [key] => self.given_key(map, key, span),
            _ => {
                let error = self.error("E0209", span, "`delete` takes a map and one key");
                error.help("put a key of several values in parentheses: `delete(@map, (a, b))`");
                None
            }
        };
        key.map(|key| expr(ExprKind::Delete { map, key }, Type::Bool, span)).into_iter().collect()
    }

    fn key_of_scalar(&mut self, map: MapId, span: Span) -> Option<Vec<Expr>> {
        let state = &self.maps[map.0 as usize];
        if state.key.as_ref().is_some_and(|key| !key.is_empty()) {
            let name = state.name.clone();
            let error = self.error("E0202", span, format!("`delete` needs to know which key of `@{name}`"));
            error.help(format!("write `delete(@{name}, key)`, or `clear(@{name})` for all keys"));
            return None;
        }
        Some(Vec::new())
    }

    fn delete_cell(&mut self, arg: &ast::Expr) -> Option<Expr> {
        let ast::ExprKind::Map { name, keys } = &arg.kind else {
            self.error("E0210", arg.span, "expected a map with a key").help("write `delete(@map, key)`");
            return None;
        };
        let (map, key) = self.cell(name, keys.as_deref(), arg.span)?;
        Some(expr(ExprKind::Delete { map, key }, Type::Bool, arg.span))
    }
}
