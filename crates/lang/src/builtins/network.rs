//! Network addresses: `ntop`, `pton`, `macaddr`.
//!
//! A value of `ntop` is a family and 16 bytes, so that IPv4 and IPv6 addresses can be keys of one map.

use std::net::IpAddr;

use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check, call};
use crate::hir::make::{binary, convert, expr, int, is_unknown, literal, piece, unknown};
use crate::hir::{BinaryOp, Expr, ExprKind, Lookup, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::{CHAR, U8, is_bytes};
use Check::Function;
use std::sync::Arc;

/// Families of addresses (linux/socket.h).
const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;
/// 32-bit words of an IPv6 address; an IPv4 address has one.
const WORDS: u32 = 4;
/// Bytes of an Ethernet address.
const MAC_BYTES: u32 = 6;

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Function(|c, f| c.ntop(f.args, f.span)),
        1..=2,
        "ntop([family, ]address)",
        "IPv4 or IPv6 address as text: from a number or bytes in network order, or from a pointer and a family (2, 10)",
        "BEGIN { print(ntop(0x0100007f)) }",
    ),
    call(
        Function(|c, f| c.pton(&f.args[0], f.span)),
        1..=1,
        "pton(\"address\")",
        "the 4 or 16 bytes of an IPv4 or IPv6 address in network order, for comparisons",
        "tracepoint:tcp:tcp_retransmit_skb / args.daddr == pton(\"127.0.0.1\") / { @ = count() }",
    ),
    call(
        Function(|c, f| c.macaddr(&f.args[0], f.span)),
        1..=1,
        "macaddr(bytes)",
        "MAC address as text, such as `00:16:3e:4f:00:01`: from 6 bytes or a pointer",
        "uprobe:./app:main { print(macaddr((uint8 *)arg0)) }",
    ),
];

impl dyn Args + '_ {
    /// `ntop(0x0100007f)`, `ntop(args.saddr)`, `ntop(args.family, args.saddr_v6)`
    pub(crate) fn ntop(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let family = (args.len() == 2).then(|| self.number(&args[0], "the family of `ntop`"));
        let arg = args.last().expect("one argument or two");
        let address = self.expr(arg);
        if is_unknown(&address) || family.as_ref().is_some_and(is_unknown) {
            return unknown(span);
        }
        let given = family.as_ref().and_then(literal);
        if given.is_some_and(|family| !matches!(family, AF_INET | AF_INET6)) {
            let error = self.error("E0210", args[0].span, "`ntop` takes IPv4 and IPv6 addresses");
            error.help("families are 2 (`AF_INET`) and 10 (`AF_INET6`)");
            return unknown(span);
        }
        let natural = match self.types().size(&address.ty) {
            _ if matches!(address.ty, Type::Int { .. }) && given != Some(AF_INET6) => AF_INET,
            4 if is_bytes(&address.ty) && given != Some(AF_INET6) => AF_INET,
            16 if is_bytes(&address.ty) => AF_INET6,
            _ if matches!(address.ty, Type::Pointer(_)) && family.is_some() => given.unwrap_or(AF_INET6),
            _ => return self.not_an_address(&address, arg.span),
        };
        let family = family.unwrap_or_else(|| int(natural, Type::I64, span));
        self.once(convert(family, &Type::U32), |checker, family| {
            checker.once(address, |_, address| inet(&family, &address, natural == AF_INET6, span))
        })
    }

    fn not_an_address(&mut self, address: &Expr, span: Span) -> Expr {
        let message = format!("`ntop` takes a network address, found {}", self.types().show(&address.ty));
        let help = match address.ty {
            Type::Pointer(_) => "add the family: `ntop(2, p)` for IPv4, `ntop(10, p)` for IPv6",
            _ => "pass a number in network order, or an array of 4 or 16 bytes",
        };
        self.error("E0210", span, message).help(help);
        unknown(span)
    }

    /// `pton("127.0.0.1")`, `pton("::1")`: its bytes in network order, for comparisons.
    pub(crate) fn pton(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(text) = self.text(arg, "the address of `pton`") else { return unknown(span) };
        let bytes = match String::from_utf8_lossy(&text).parse() {
            Ok(IpAddr::V4(address)) => address.octets().to_vec(),
            Ok(IpAddr::V6(address)) => address.octets().to_vec(),
            Err(_) => {
                let error = self.error("E0210", arg.span, "this is not an IPv4 or IPv6 address");
                error.help("write `pton(\"127.0.0.1\")` or `pton(\"::1\")`");
                return unknown(span);
            }
        };
        let ty = Type::Array(Arc::new(U8), bytes.len() as u32);
        expr(ExprKind::Str(bytes), ty, span)
    }

    /// `macaddr(args.dev_addr)`
    pub(crate) fn macaddr(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let place = self.place(arg);
        // `char mac[6]` is bytes here, not text.
        let is_chars = matches!(&place.ty, Type::Array(element, MAC_BYTES) if **element == CHAR);
        let address = if is_chars { place } else { self.value_of(place) };
        if is_unknown(&address) {
            return unknown(span);
        }
        let fits = match &address.ty {
            Type::Pointer(_) => true,
            _ if is_chars => true,
            ty => is_bytes(ty) && self.types().size(ty) == MAC_BYTES,
        };
        if !fits {
            let message =
                format!("`macaddr` takes an address or 6 bytes, found {}", self.types().show(&address.ty));
            self.error("E0210", arg.span, message)
                .help("write `macaddr((uint8 *)p)` to read the memory at an address");
            return unknown(span);
        }
        self.once(address, |_, address| {
            let [low, high] =
                [(0, 4), (4, 2)].map(|(at, bytes)| convert(piece(&address, at, bytes), &Type::U64));
            let high = binary(BinaryOp::Shl, high, int(32, Type::U64, span), Type::U64, span);
            let number = convert(binary(BinaryOp::BitOr, low, high, Type::U64, span), &Type::I64);
            expr(ExprKind::Lookup(Box::new(number)), Type::Lookup(Lookup::Mac), span)
        })
    }
}

/// Family and words. The words that only IPv6 has are zero for IPv4, so that equal addresses are equal keys.
fn inet(family: &Expr, address: &Expr, long: bool, span: Span) -> Expr {
    let zero = || int(0, Type::U32, span);
    let rest = (1..WORDS).map(|at| match family.kind {
        _ if !long => zero(),
        ExprKind::Int(AF_INET) => zero(),
        ExprKind::Int(_) => piece(address, 4 * at, 4),
        _ => {
            let six = binary(BinaryOp::Eq, family.clone(), int(AF_INET6, Type::U32, span), Type::Bool, span);
            let (then, otherwise) = (Box::new(piece(address, 4 * at, 4)), Box::new(zero()));
            expr(ExprKind::Ternary { cond: Box::new(six), then, otherwise }, Type::U32, span)
        }
    });
    let words = [family.clone(), piece(address, 0, 4)].into_iter().chain(rest);
    expr(ExprKind::Tuple(words.collect()), Type::Inet, span)
}
