//! Built-in functions with a value.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::builtins::row::{BuiltinSpec, Check, call, calls};
use crate::builtins::variables::has_mode;
use crate::hir::make::{binary, convert, expr, int, is_unknown, unknown};
use crate::hir::{BinaryOp, Builtin, Expr, ExprKind, Lookup, StackMode, Stmt, StmtKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use Check::Function;

pub(super) static ROWS: &[BuiltinSpec] = &[
    calls(call(
        Function(expanded),
        1..=1,
        "alloc_base(address)",
        "start of the allocation that contains an address, uint64; 0 if unknown",
        "cuda:memcpy { @[alloc_base(args.dst)] = count() }",
    )),
    calls(call(
        Function(expanded),
        1..=1,
        "alloc_size(address)",
        "bytes of the allocation that contains an address, uint64; 0 if unknown",
        "cuda:memcpy { @[alloc_size(args.dst)] = sum(args.bytes) }",
    )),
    calls(call(
        Function(expanded),
        1..=1,
        "alloc_site(address)",
        "stack of the call that allocated the memory at an address, 16 frames",
        "cuda:memcpy { @[alloc_site(args.src)] = sum(args.bytes) }",
    )),
    calls(call(
        Function(|c, f| c.unknown_kernel_form(&f.args[1..], f.span)),
        1..=2,
        "kernel_name(handle[, short|full|mangled])",
        "name of a GPU kernel, demangled when printed; conditions compare the mangled name; also in processes that were already running",
        "cuda:launch { @[kernel_name(args.kernel)] = count() }",
    )),
    call(
        Function(|c, f| c.byte_swap(&f.args[0], f.span)),
        1..=1,
        "bswap(n)",
        "an integer with its bytes in reverse order, unsigned",
        "BEGIN { printf(\"%x\\n\", bswap((uint32)0x12345678)) }",
    ),
    call(
        Function(|c, f| c.pop_count(&f.args[0], f.span)),
        1..=1,
        "popcount(n)",
        "number of bits of an integer that are 1, uint64",
        "BEGIN { print(popcount(0xff)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Error, &f.args[0], f.span)),
        1..=1,
        "strerror(errno)",
        "text of an error number, when printed",
        "BEGIN { print(strerror(2)) }",
    ),
    call(
        Function(|c, f| c.is_error(&f.args[0], f.span)),
        1..=1,
        "is_error(result)",
        "whether the result of a call is an error; `CUDA_ERROR_NOT_READY` and `cudaErrorNotReady` mean \"not yet\" and are not errors",
        "uretprobe:libcuda:cu* / is_error(retval) / { @[func, retval] = count() }",
    ),
    call(
        Function(|c, f| c.error_text(&f.args[0], f.span)),
        1..=1,
        "error_text(result)",
        "text of a result of the driver or runtime API, when printed",
        "uretprobe:libcuda:cu* / is_error(retval) / { printf(\"%s: %s: %s\\n\", func, retval, error_text(retval)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Signal, &f.args[0], f.span)),
        1..=1,
        "signal_name(number)",
        "text of a signal, when printed: `Killed`",
        "BEGIN { print(signal_name(9)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Syscall, &f.args[0], f.span)),
        1..=1,
        "syscall_name(number)",
        "name of a system call of this architecture, when printed",
        "BEGIN { print(syscall_name(0)) }",
    ),
    call(
        Function(|c, f| c.user_name(f)),
        0..=1,
        "username[(uid)]",
        "login name of a user, when printed; by default of the current process",
        "uprobe:libcuda:cuInit { @[username(uid)] = count() }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::CgroupPath, &f.args[0], f.span)),
        1..=1,
        "cgroup_path(id)",
        "path of a cgroup, looked up when it is printed",
        "uprobe:libcuda:cuInit { @[cgroup_path(cgroup)] = count() }",
    ),
    call(
        Function(|c, f| c.cgroup_id(&f.args[0], f.span)),
        1..=1,
        "cgroupid(\"path\")",
        "id of the cgroup at a path, looked up when the script is compiled, uint64",
        "uprobe:libcuda:cuInit / cgroup == cgroupid(\"/sys/fs/cgroup\") / { @ = count() }",
    ),
    call(
        Function(|c, f| c.strftime(f.args, f.span)),
        2..=2,
        "strftime(\"format\", ns)",
        "wall-clock time of a `nsecs` value; `%f` is microseconds",
        "uprobe:libcuda:cuInit { printf(\"%s\\n\", strftime(\"%H:%M:%S.%f\", nsecs)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Size, &f.args[0], f.span)),
        1..=1,
        "size_text(bytes)",
        "bytes with a unit, when printed: `1.5 MiB`",
        "uprobe:libcuda:cuMemAlloc { printf(\"%s\\n\", size_text(args.bytesize)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Time, &f.args[0], f.span)),
        1..=1,
        "time_text(ns)",
        "duration with a unit, when printed: `12.3 us`",
        "uretprobe:libcuda:cuInit { printf(\"%s\\n\", time_text(duration)) }",
    ),
    call(
        Function(|c, f| c.percent(&f.args[0], &f.args[1], f.span)),
        2..=2,
        "percent_text(part, whole)",
        "rounded percentage, when printed: `40`; those of a column of a table are rounded so that they add up to 100 if they do before",
        "END { printf(\"%s %%\\n\", percent_text(2, 5)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Pointer(_)))),
        1..=1,
        "is_ptr(value)",
        "whether a value is a pointer, a constant bool",
        "BEGIN { print(is_ptr((char *)1)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Str(_)))),
        1..=1,
        "is_str(value)",
        "whether a value is text, bool",
        "BEGIN { print(is_str(comm)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Array(..)))),
        1..=1,
        "is_array(value)",
        "whether a value is an array, bool",
        "BEGIN { print(is_array((uint8[4])1)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Int { .. }))),
        1..=1,
        "is_integer(value)",
        "whether a value is an integer, bool",
        "BEGIN { print(is_integer(pid)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Int { signed: false, .. }))),
        1..=1,
        "is_unsigned_integer(value)",
        "whether a value is an unsigned integer, bool",
        "BEGIN { print(is_unsigned_integer(pid)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.kind, ExprKind::Int(_) | ExprKind::Str(_)))),
        1..=1,
        "is_literal(value)",
        "whether a value is a literal number or text, bool",
        "BEGIN { print(is_literal(\"text\")) }",
    ),
    call(
        Function(|c, f| c.is_kernel_error(&f.args[0], f.span)),
        1..=1,
        "is_err(pointer)",
        "whether a pointer of the kernel encodes an error number, bool",
        "rawtracepoint:sched_switch / !is_err(args.prev) / { @ = count() }",
    ),
    call(
        Function(|c, f| c.source_line(&f.args[0], f.span)),
        1..=1,
        "source_line(pyline)",
        "the text of a line of Python, from its file: `loss.backward()`",
        "cuda:sync { @[pyline] = sum(args.duration) } END { for ($l : @) { print(($l.1, source_line($l.0))) } clear(@) }",
    ),
    call(
        Function(|c, f| c.folded(&f.args[0], f.span)),
        1..=1,
        "folded(stack)",
        "the stack on one line, outermost first, for flame graphs: `main;work;cuInit`",
        "uprobe:libcuda:cuMemAlloc { @[ustack] = sum(args.bytesize) } END { for ($s : @) { printf(\"%s %d\\n\", folded($s.0), $s.1) } clear(@) }",
    ),
];

impl dyn Args + '_ {
    /// `username`, `username(uid)`
    pub(crate) fn user_name(&mut self, call: &Call) -> Expr {
        let Some(id) = call.args.first() else {
            let uid = Box::new(convert(call.variable(Builtin::Uid, Type::U32), &Type::I64));
            return call.value(ExprKind::Lookup(uid), Type::Lookup(Lookup::User));
        };
        self.lookup(Lookup::User, id, call.span)
    }

    /// `comm`, `comm(process)`, `comm(pid)`
    pub(crate) fn comm(&mut self, call: &Call) -> Expr {
        match call.args.first() {
            None => call.variable(Builtin::Comm, Type::Str(16)),
            Some(mode) if has_mode("comm", mode) => self.with_mode("comm", mode, call.span),
            Some(pid) => {
                let name = self.lookup(Lookup::Comm, pid, call.span);
                if is_unknown(&name) {
                    self.suggest_mode("comm", pid);
                }
                name
            }
        }
    }

    /// The result of a call, and the table of its enum.
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
            error.help("use `retval` in a `uretprobe`, or cast a number: `(CUresult)n`, `(cudaError_t)n`");
        }
        known.map(|known| (value, known))
    }

    /// Whether the value is none of the results that are not errors.
    pub(crate) fn is_error(&mut self, arg: &ast::Expr, span: Span) -> Expr {
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

    /// `is_ptr(e)` and similar tests of a type.
    pub(crate) fn is_kind(&mut self, call: &Call, holds: fn(&Expr) -> bool) -> Expr {
        let place = self.place(&call.args[0]);
        if is_unknown(&place) {
            return unknown(call.span);
        }
        int(i64::from(holds(&place)), Type::Bool, call.span)
    }

    /// The highest addresses are error numbers: IS_ERR of include/linux/err.h.
    pub(crate) fn is_kernel_error(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        const MAX_ERRNO: i64 = 4095;
        let pointer = self.number(arg, "the argument of `is_err`");
        if is_unknown(&pointer) {
            return unknown(span);
        }
        let least = int(-MAX_ERRNO, Type::U64, span);
        binary(BinaryOp::Ge, convert(pointer, &Type::U64), least, Type::Bool, span)
    }

    /// The text of a result, looked up when it is printed.
    pub(crate) fn error_text(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some((value, known)) = self.result(arg, "error_text") else { return unknown(span) };
        let lookup = match known {
            known if *known == cuda::errors::DRIVER => Lookup::DriverResult,
            known if *known == cuda::errors::RUNTIME => Lookup::RuntimeResult,
            _ => {
                let message = format!("results of `{}` have no texts", known.name);
                self.error("E0210", arg.span, message).help("print the result itself, which has a name");
                return unknown(span);
            }
        };
        expr(ExprKind::Lookup(Box::new(convert(value, &Type::I64))), Type::Lookup(lookup), span)
    }

    /// `kernel_name(h, what)` with a second argument that `expand` does not expand.
    pub(crate) fn unknown_kernel_form(&mut self, form: &[ast::Expr], span: Span) -> Expr {
        let span = form.first().map_or(span, |form| form.span);
        let error = self.error("E0210", span, "unknown form of a kernel's name");
        error.help("forms are `short`, `full` and `mangled`: `kernel_name(args.kernel, full)`");
        unknown(span)
    }

    pub(crate) fn byte_swap(&mut self, arg: &ast::Expr, span: Span) -> Expr {
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

    /// Counts the 64 bits of a negative number.
    fn pop_count(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let number = self.number(arg, "the argument of `popcount`");
        if is_unknown(&number) {
            return unknown(span);
        }
        expr(ExprKind::Builtin(Builtin::PopCount, vec![convert(number, &Type::U64)]), Type::U64, span)
    }

    /// `strerror(n)` and similar.
    pub(crate) fn lookup(&mut self, what: Lookup, arg: &ast::Expr, span: Span) -> Expr {
        let number = self.number(arg, &format!("the argument of `{}`", what.function()));
        if is_unknown(&number) {
            return unknown(span);
        }
        let number = Box::new(convert(number, &Type::I64));
        expr(ExprKind::Lookup(number), Type::Lookup(what), span)
    }

    /// `percent_text(part, whole)`: tenths of a percent, rounded. All is 0 % of nothing.
    pub(crate) fn percent(&mut self, part: &ast::Expr, whole: &ast::Expr, span: Span) -> Expr {
        let part = self.number(part, "the part of `percent_text`");
        let whole = self.number(whole, "the whole of `percent_text`");
        if is_unknown(&part) || is_unknown(&whole) {
            return unknown(span);
        }
        let mut body = Vec::new();
        let [part, whole] = [part, whole].map(|value| {
            let var = self.hidden_var(span, Type::U64);
            let value = convert(value, &Type::U64);
            body.push(Stmt { kind: StmtKind::SetVar { var, value }, span });
            expr(ExprKind::Var(var), Type::U64, span)
        });
        let word = |op, lhs: Expr, rhs: Expr| binary(op, lhs, rhs, Type::U64, span);
        let number = |value| int(value, Type::U64, span);
        let tenths = word(BinaryOp::Mul, part, number(1000));
        let half = word(BinaryOp::Div, whole.clone(), number(2));
        let rounded = word(BinaryOp::Div, word(BinaryOp::Add, tenths, half), whole.clone());
        let kind = ExprKind::Ternary {
            cond: Box::new(whole),
            then: Box::new(rounded),
            otherwise: Box::new(number(0)),
        };
        let value = Box::new(convert(expr(kind, Type::U64, span), &Type::I64));
        let block = expr(ExprKind::Block { body, value }, Type::I64, span);
        expr(ExprKind::Lookup(Box::new(block)), Type::Lookup(Lookup::Percent), span)
    }

    pub(crate) fn cgroup_id(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(path) = self.text(arg, "the path of `cgroupid`") else { return unknown(span) };
        let path = String::from_utf8_lossy(&path).into_owned();
        match self.scene().catalog.cgroup_id(&path) {
            Some(id) => int(id as i64, Type::U64, span),
            None => {
                let error = self.error("E0210", arg.span, format!("`{path}` is not a cgroup"));
                error.help("give a directory under /sys/fs/cgroup");
                unknown(span)
            }
        }
    }

    pub(crate) fn strftime(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let format = self.time_format(&args[0], "the format of `strftime`");
        let ns = self.number(&args[1], "the time of `strftime`");
        let Some(format) = format.filter(|_| !is_unknown(&ns)) else { return unknown(span) };
        let ty = Type::Timestamp(format);
        expr(ExprKind::Lookup(Box::new(convert(ns, &Type::U64))), ty, span)
    }

    /// `source_line(pyline)`: the same line, printed as its text.
    pub(crate) fn source_line(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let line = self.expr(arg);
        match line.ty {
            Type::Stack { user, limit, mode } if mode.is_line() => {
                // The frame of the walk depends on the type within.
                let ty = Type::Stack { user, limit, mode: StackMode::Source };
                expr(ExprKind::Cast(Box::new(line)), ty, span)
            }
            _ if is_unknown(&line) => line,
            _ => {
                let message =
                    format!("`source_line` takes a line of Python, found {}", self.types().show(&line.ty));
                self.error("E0210", arg.span, message).help("pass `pyline`, or a stored one");
                unknown(span)
            }
        }
    }

    /// `folded(stack)`: the same stack, printed on one line.
    pub(crate) fn folded(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let stack = self.expr(arg);
        match stack.ty {
            Type::Stack { user, limit, mode } => {
                let ty = Type::Stack { user, limit, mode: StackMode::Folded };
                match mode.is_python() || !mode.has_python() {
                    // The frames of the walk are others than those of a folded stack.
                    true => expr(ExprKind::Cast(Box::new(stack)), ty, span),
                    false => Expr { ty, ..stack },
                }
            }
            _ if is_unknown(&stack) => stack,
            _ => {
                let message = format!("`folded` takes a stack, found {}", self.types().show(&stack.ty));
                self.error("E0210", arg.span, message).help("pass `ustack`, `kstack`, or a stored stack");
                unknown(span)
            }
        }
    }
}

/// Checks a built-in that `expand` replaces; only wrong uses remain, which are already reported.
pub(crate) fn expanded(_: &mut dyn Args, call: &Call<'_>) -> Expr {
    unknown(call.span)
}
