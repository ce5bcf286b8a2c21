//! Built-in functions that return a value, one arm each.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::builtins::variables::has_mode;
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{binary, convert, expr, int, is_unknown, literal, not, unknown};
use crate::hir::{BinaryOp, Builtin, Expr, ExprKind, Lookup, StackMode, Type};
use crate::limits;
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::is_kernel_name;

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

impl dyn Args + '_ {
    /// `username`, `username(uid)`
    pub fn user_name(&mut self, call: &Call) -> Expr {
        let Some(id) = call.args.first() else {
            let uid = Box::new(convert(call.variable(Builtin::Uid, Type::U32), &Type::I64));
            return call.value(ExprKind::Lookup(uid), Type::Lookup(Lookup::User));
        };
        self.lookup(Lookup::User, id, call.span)
    }

    /// `comm`, `comm(process)`, `comm(pid)`
    pub fn comm(&mut self, call: &Call) -> Expr {
        match call.args.first() {
            None => call.variable(Builtin::Comm, Type::Str(16)),
            Some(mode) if has_mode("comm", mode) => self.moded("comm", mode, call.span),
            Some(pid) => {
                let name = self.lookup(Lookup::Comm, pid, call.span);
                if is_unknown(&name) {
                    self.suggest_mode("comm", pid);
                }
                name
            }
        }
    }

    /// The result of a call, and what is known of its enum.
    fn result(&mut self, arg: &ast::Expr, function: &str) -> Option<(Expr, &'static cuda::errors::Results)> {
        let value = self.expr(arg);
        if is_unknown(&value) {
            return None;
        }
        let known = match value.ty {
            Type::Enum(id) => cuda::errors::results(&self.types().enum_def(id).name),
            _ => None,
        };
        if known.is_none() {
            let message = format!(
                "`{function}` takes the result of a CUDA call, found {}",
                self.types().show(&value.ty)
            );
            let error = self.error("E0210", arg.span, message);
            error.help("it is `retval` in a `uretprobe`; cast a number to what it is: `(CUresult)n`, `(cudaError_t)n`");
        }
        known.map(|known| (value, known))
    }

    /// It is none of the results that are fine.
    pub fn is_error(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some((value, known)) = self.result(arg, "is_error") else { return int(0, Type::Bool, span) };
        self.once(value, |_, value| {
            let differs = |fine: &i64| {
                let fine = int(*fine, value.ty.clone(), span);
                binary(BinaryOp::Ne, value.clone(), fine, Type::Bool, span)
            };
            let tests = known.fine.iter().map(differs);
            let both = |a, b| binary(BinaryOp::And, a, b, Type::Bool, span);
            tests.reduce(both).unwrap_or_else(|| int(0, Type::Bool, span))
        })
    }

    /// `is_ptr(e)` and its like: what is known of an expression now.
    pub fn is_kind(&mut self, call: &Call, holds: fn(&Expr) -> bool) -> Expr {
        let place = self.place(&call.args[0]);
        if is_unknown(&place) {
            return unknown(call.span);
        }
        int(i64::from(holds(&place)), Type::Bool, call.span)
    }

    /// The last addresses are error numbers: IS_ERR of include/linux/err.h.
    pub fn is_kernel_error(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        const MAX_ERRNO: i64 = 4095;
        let pointer = self.number(arg, "what `is_err` takes");
        if is_unknown(&pointer) {
            return unknown(span);
        }
        let least = int(-MAX_ERRNO, Type::U64, span);
        binary(BinaryOp::Ge, convert(pointer, &Type::U64), least, Type::Bool, span)
    }

    /// What it means, found when it is printed.
    pub fn error_text(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some((value, known)) = self.result(arg, "error_text") else { return unknown(span) };
        let lookup = match known {
            known if *known == cuda::errors::DRIVER => Lookup::DriverResult,
            known if *known == cuda::errors::RUNTIME => Lookup::RuntimeResult,
            _ => {
                let message = format!("there are no words for the results of `{}`", known.name);
                self.error("E0210", arg.span, message).help("print the result itself: it has a name");
                return unknown(span);
            }
        };
        expr(ExprKind::Lookup(Box::new(convert(value, &Type::I64))), Type::Lookup(lookup), span)
    }

    /// `kernel_name(h, what)`: forms leave those alone that they do not know.
    pub fn kernel_form(&mut self, form: &[ast::Expr], span: Span) -> Expr {
        let span = form.first().map_or(span, |form| form.span);
        let error = self.error("E0210", span, "there is no such form of a kernel's name");
        error.help("there are `short`, `full` and `mangled`: `kernel_name(args.kernel, full)`");
        unknown(span)
    }

    /// 0 if equal, else 1.
    pub fn strncmp(&mut self, args: &[ast::Expr], span: Span) -> Expr {
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
        self.name_test(name, (&format!("that begins with `{shown}`"), other.span), test, span)
    }

    pub fn strcontains(&mut self, args: &[ast::Expr], span: Span) -> Expr {
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
                (&format!("with `{text}` in it"), args[1].span),
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

    /// A string whose bytes can be looked at when the body runs; of names there are only ids then.
    fn readable(&mut self, e: &ast::Expr, function: &str) -> Option<Expr> {
        let value = self.string(e)?;
        if let Type::Name(_) = value.ty {
            let message = format!("`{function}` cannot look into {}", self.types().show(&value.ty));
            self.error("E0210", e.span, message).help("use `==`, `strncmp` or `strcontains`");
            return None;
        }
        Some(value)
    }

    pub fn strlen(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        match self.readable(arg, "strlen") {
            Some(Expr { kind: ExprKind::Str(text), .. }) => int(text.len() as i64, Type::U64, span),
            Some(text) => expr(ExprKind::Builtin(Builtin::StrLen, vec![text]), Type::U64, span),
            None => unknown(span),
        }
    }

    pub fn strstr(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let (haystack, needle) = (self.readable(&args[0], "strstr"), self.readable(&args[1], "strstr"));
        let (Some(haystack), Some(needle)) = (haystack, needle) else { return unknown(span) };
        match &needle.kind {
            ExprKind::Str(text) if text.is_empty() => int(0, Type::I64, span),
            _ => search(haystack, needle, span),
        }
    }

    /// Bytes that a string has room for, its NUL included.
    pub fn strcap(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        match self.readable(arg, "strcap").map(|value| value.ty) {
            Some(Type::Str(capacity)) => int(i64::from(capacity), Type::I64, span),
            _ => unknown(span),
        }
    }

    /// The result has room for both.
    pub fn concat(&mut self, args: &[ast::Expr], span: Span) -> Expr {
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
    pub fn letters(&mut self, call: &Call, case: Builtin) -> Expr {
        let Some(text) = self.readable(&call.args[0], call.name) else { return unknown(call.span) };
        let ty = text.ty.clone();
        call.value(ExprKind::Builtin(case, vec![text]), ty)
    }

    pub fn byte_swap(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let value = self.expr(arg);
        let bytes = match value.ty {
            Type::Void => return unknown(span),
            Type::Int { bytes, .. } => bytes,
            _ => {
                let message = format!("`bswap` takes an integer, found {}", self.types().show(&value.ty));
                self.error("E0210", arg.span, message);
                return unknown(span);
            }
        };
        let ty = Type::Int { bytes, signed: false };
        expr(ExprKind::Builtin(Builtin::ByteSwap, vec![convert(value, &ty)]), ty, span)
    }

    /// `buf(p, n)`, `buf(array)`
    pub fn buf(&mut self, args: &[ast::Expr], span: Span) -> Expr {
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
                self.error("E0210", args[0].span, message);
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

    /// `buf("text", 4)`: as many of its bytes.
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
                let message = format!("the length of a text's `buf` is a number from 1 to {most}");
                self.error("E0222", span, message).help("write `buf(\"text\", 4)`");
                unknown(span)
            }
        }
    }

    /// `strerror(n)` and its like.
    pub fn lookup(&mut self, what: Lookup, arg: &ast::Expr, span: Span) -> Expr {
        let number = self.number(arg, &format!("what `{}` takes", what.function()));
        if is_unknown(&number) {
            return unknown(span);
        }
        let number = Box::new(convert(number, &Type::I64));
        expr(ExprKind::Lookup(number), Type::Lookup(what), span)
    }

    pub fn cgroup_id(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(path) = self.text(arg, "the path of `cgroupid`") else { return unknown(span) };
        let path = String::from_utf8_lossy(&path).into_owned();
        match self.scene().catalog.cgroup_id(&path) {
            Some(id) => int(id as i64, Type::U64, span),
            None => {
                let error = self.error("E0210", arg.span, format!("`{path}` is no cgroup"));
                error.help("name a directory under /sys/fs/cgroup");
                unknown(span)
            }
        }
    }

    pub fn strftime(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let format = self.text(&args[0], "the format of `strftime`");
        let ns = self.number(&args[1], "the time of `strftime`");
        let Some(format) = format.filter(|_| !is_unknown(&ns)) else { return unknown(span) };
        let ty = Type::Timestamp(String::from_utf8_lossy(&format).into_owned());
        expr(ExprKind::Lookup(Box::new(convert(ns, &Type::U64))), ty, span)
    }

    /// `folded(stack)`: the same stack, printed in another way.
    pub fn folded(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let stack = self.expr(arg);
        match stack.ty {
            Type::Stack { user, limit, .. } => {
                Expr { ty: Type::Stack { user, limit, mode: StackMode::Folded }, ..stack }
            }
            _ if is_unknown(&stack) => stack,
            _ => {
                let message = format!("`folded` takes a stack, found {}", self.types().show(&stack.ty));
                self.error("E0210", arg.span, message)
                    .help("give it `ustack`, `kstack`, or a stack that was kept");
                unknown(span)
            }
        }
    }

    pub fn usym(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let address = self.number(arg, "the address of `usym`");
        if is_unknown(&address) {
            return unknown(span);
        }
        expr(ExprKind::Builtin(Builtin::Usym, vec![convert(address, &Type::U64)]), Type::Usym, span)
    }

    pub fn register(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(name) = self.text(arg, "the name of a register") else { return unknown(span) };
        let name = String::from_utf8_lossy(&name).into_owned();
        let known = registers(std::env::consts::ARCH);
        if !known.contains(&name.as_str()) {
            let near = did_you_mean(&self.diags().similar(&name, known.iter().copied()));
            let error = self.error("E0210", arg.span, format!("no register `{name}`"));
            error.note(format!("registers are {}", known.join(" ")));
            error.help.extend(near);
            return unknown(span);
        }
        expr(ExprKind::Reg(name), Type::U64, span)
    }
}

/// Checks what the stage before has replaced where it is right; the others have their messages.
pub(crate) fn expanded(_: &mut dyn Args, call: &Call<'_>) -> Expr {
    unknown(call.span)
}

/// Where a text that is known when the body runs begins in another.
fn search(haystack: Expr, needle: Expr, span: Span) -> Expr {
    let kind = ExprKind::Builtin(Builtin::StrSearch, vec![haystack, needle]);
    expr(kind, Type::I64, span)
}
