//! Built-ins on addresses: `uaddr`, `kptr`, `memcmp`, symbols and registers.

use crate::builtins::args::{Args, NO_ADDRESS};
use crate::builtins::probe_context::At;
use crate::builtins::row::{BuiltinSpec, Check, call, calls};
use crate::diagnostics::wording::did_you_mean;
use crate::hir::make::{address, binary, convert, expr, int, is_unknown, not, pieces, unknown};
use crate::hir::{BinaryOp, Builtin, Expr, ExprKind, Hook, Lookup, Type};
use crate::limits;
use crate::source::span::Span;
use crate::syntax::ast;
use Check::Function;
use std::sync::Arc;

/// The kernel's array with the address of each CPU's area.
const AREAS: &str = "__per_cpu_offset";

/// The register with the address of the probed instruction.
const HERE: &str = "pc";

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

/// The registers of an architecture, by its Rust name; empty if it is not supported.
pub fn registers(arch: &str) -> &'static [&'static str] {
    REGISTERS_OF.iter().find(|(name, _)| *name == arch).map_or(&[], |(_, registers)| registers)
}

pub(super) static ROWS: &[BuiltinSpec] = &[
    call(
        Function(|c, f| c.memcmp(f.args, f.span)),
        3..=3,
        "memcmp(a, b, n)",
        "0 if the first n bytes at two addresses, or of two strings, are equal, else 1; n is at most 128",
        "uprobe:libcudart:cudaLaunchKernel / memcmp(args.args, args.func, 16) == 0 / { @ = count() }",
    ),
    call(
        Function(|c, f| c.usym(&f.args[0], f.span)),
        1..=1,
        "usym(address)",
        "address of code, printed as its symbol",
        "uprobe:libcudart:cudaLaunchKernel { @[usym(args.func)] = count() }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Ksym, &f.args[0], f.span)),
        1..=1,
        "ksym(address)",
        "address in the kernel, printed as its symbol",
        "tracepoint:timer:timer_expire_entry { @[ksym(args.function)] = count() }",
    ),
    calls(call(
        Function(|c, f| c.uaddr(&f.args[0], f.span)),
        1..=1,
        "uaddr(\"symbol\")",
        "address of a variable or function of the probed file, a pointer to an integer of the symbol's size; in a `uprobe`",
        "uprobe:./app:main { print(*uaddr(\"counter\")) }",
    )),
    call(
        Function(|c, f| c.expr(&f.args[0])),
        1..=1,
        "uptr(address)",
        "an address of the process; this is the default for addresses",
        "uprobe:libcuda:cuModuleGetFunction { print(str(uptr(arg2))) }",
    ),
    call(
        Function(|c, f| c.kptr(&f.args[0], f.span)),
        1..=1,
        "kptr(address)",
        "an address of the kernel: `str`, `buf`, `*` and `->` read kernel memory",
        "tracepoint:sched:sched_switch { print(str(kptr(args.path))) }",
    ),
    call(
        Function(|c, f| c.kaddr(&f.args[0], f.span)),
        1..=1,
        "kaddr(\"symbol\")",
        "address of a function or variable of the kernel, uint64; variables are listed by most kernels (CONFIG_KALLSYMS_ALL)",
        "interval:s:1 { print(*kaddr(\"avenrun\")) }",
    ),
    call(
        Function(|c, f| c.percpu_kaddr(f.args, f.span)),
        1..=2,
        "percpu_kaddr(\"symbol\", cpu)",
        "address of a CPU's copy of a variable of the kernel, a pointer to uint64, without `cpu` of the current one; 0 if there is no such CPU",
        "interval:s:1 { print(*percpu_kaddr(\"process_counts\")) }",
    ),
    calls(call(
        Function(|c, f| c.register(&f.args[0], f.span)),
        1..=1,
        "reg(\"name\")",
        "register of the probed thread, uint64",
        "uprobe:libcuda:cuInit { printf(\"%x\\n\", reg(\"sp\")) }",
    )),
];

impl dyn Args + '_ {
    /// `kptr(p)`
    pub(crate) fn kptr(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let value = self.expr(arg);
        match &value.ty {
            Type::Void => unknown(span),
            Type::Pointer(_) | Type::Int { bytes: 8, .. } => {
                let ty = value.ty.clone();
                expr(ExprKind::Kernel(Box::new(value)), ty, span)
            }
            other => {
                let message = format!("`kptr` takes an address, found {}", self.types().show(other));
                self.error("E0210", arg.span, message).help(NO_ADDRESS);
                unknown(span)
            }
        }
    }

    /// `kaddr("avenrun")`
    pub(crate) fn kaddr(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        match self.kernel_symbol(arg, "the symbol of `kaddr`") {
            Some(address) => {
                expr(ExprKind::Kernel(Box::new(int(address as i64, Type::U64, span))), Type::U64, span)
            }
            None => unknown(span),
        }
    }

    /// `percpu_kaddr("process_counts", 0)`: the offset of the variable in the area of the CPU.
    pub(crate) fn percpu_kaddr(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let number = |value: u64| int(value as i64, Type::U64, span);
        let Some(variable) = self.kernel_symbol(&args[0], "the symbol of `percpu_kaddr`") else {
            return unknown(span);
        };
        let Some(areas) = self.scene().catalog.kernel_symbol(AREAS) else {
            self.error(
                "E0210",
                span,
                format!("this kernel does not list `{AREAS}`, by which `percpu_kaddr` finds variables"),
            );
            return unknown(span);
        };
        let (cpu, is_there) = match args.get(1) {
            None => (expr(ExprKind::Builtin(Builtin::Cpu, Vec::new()), Type::U32, span), None),
            Some(arg) => {
                let cpu = convert(self.number(arg, "the CPU of `percpu_kaddr`"), &Type::U64);
                if is_unknown(&cpu) {
                    return unknown(span);
                }
                let cpus = expr(ExprKind::Builtin(Builtin::Cpus, Vec::new()), Type::U64, span);
                (cpu.clone(), Some(binary(BinaryOp::Lt, cpu, cpus, Type::Bool, span)))
            }
        };
        let index = binary(BinaryOp::Mul, convert(cpu, &Type::U64), number(8), Type::U64, span);
        let at = binary(BinaryOp::Add, number(areas), index, Type::U64, span);
        let at = expr(ExprKind::Kernel(Box::new(at)), Type::U64, span);
        let area = expr(ExprKind::Load { base: Box::new(at), offset: 0 }, Type::U64, span);
        let there = binary(BinaryOp::Add, area, number(variable), Type::U64, span);
        let address = match is_there {
            None => there,
            Some(cond) => {
                let (cond, then, otherwise) = (Box::new(cond), Box::new(there), Box::new(number(0)));
                expr(ExprKind::Ternary { cond, then, otherwise }, Type::U64, span)
            }
        };
        let ty = Type::Pointer(Arc::new(Type::U64));
        expr(ExprKind::Kernel(Box::new(convert(address, &ty))), ty, span)
    }

    /// The address of a symbol of the kernel.
    fn kernel_symbol(&mut self, arg: &ast::Expr, what: &str) -> Option<u64> {
        let name = self.text(arg, what)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let found = self.scene().catalog.kernel_symbol(&name);
        if found.is_none() {
            let error = self.error("E0210", arg.span, format!("no symbol `{name}` in the kernel"));
            error.note("the kernel lists its symbols in `/proc/kallsyms`: addresses for root, variables with CONFIG_KALLSYMS_ALL");
        }
        found
    }

    /// `uaddr("counter")`: the address of the probed instruction plus the distance in the file.
    pub(crate) fn uaddr(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let Some(name) = self.text(arg, "the symbol of `uaddr`") else { return unknown(span) };
        let name = String::from_utf8_lossy(&name).into_owned();
        if self.scene().probe.at != At::Entry {
            let error = self.error("E0211", span, "`uaddr` is only available in a `uprobe`");
            error.help("store the address in a map there");
            return unknown(span);
        }
        let site = self.scene().probe.sites.first();
        let Some((file, offset)) = site.and_then(|site| Some((site.file?, site.place.offset))) else {
            // The library is not loaded yet.
            return int(0, Type::Pointer(Arc::new(Type::U64)), span);
        };
        let here = self.scene().catalog.offset_to_address(file, offset);
        let (Some((there, size)), Some(here)) = (self.scene().catalog.symbol(file, &name), here) else {
            let error = self.error("E0210", arg.span, format!("no symbol `{name}` in the probed file"));
            error.note("a stripped file has only exported symbols");
            return unknown(span);
        };
        let bytes = if matches!(size, 1 | 2 | 4) { size as u8 } else { 8 };
        let ty = Type::Pointer(Arc::new(Type::Int { bytes, signed: false }));
        let register = expr(ExprKind::Reg(HERE.into()), Type::U64, span);
        convert(address(register, there.wrapping_sub(here) as i64), &ty)
    }

    /// 0 if equal, else 1: strings as in `strncmp`, addresses by words of memory.
    pub(crate) fn memcmp(&mut self, args: &[ast::Expr], span: Span) -> Expr {
        let Some(count) = self.constant(&args[2], "the length of `memcmp`") else { return unknown(span) };
        if !(1..=limits::MEMCMP_BYTES).contains(&count) {
            let message =
                format!("`memcmp` compares from 1 to {} bytes, found {count}", limits::MEMCMP_BYTES);
            self.error("E0222", args[2].span, message);
            return unknown(span);
        }
        let (lhs, rhs) = (self.expr(&args[0]), self.expr(&args[1]));
        let is_text = |value: &Expr| matches!(value.ty, Type::Str(_));
        if is_text(&lhs) && is_text(&rhs) {
            let kind = ExprKind::StrEq { lhs: Box::new(lhs), rhs: Box::new(rhs), limit: Some(count as u32) };
            return convert(not(expr(kind, Type::Bool, span), span), &Type::I64);
        }
        let pieces: Option<Vec<Expr>> =
            pieces(count).map(|(at, bytes)| self.same(&lhs, &rhs, at, bytes, args)).collect();
        let both = |a, b| binary(BinaryOp::And, a, b, Type::Bool, span);
        let equal = pieces.and_then(|pieces| pieces.into_iter().reduce(both));
        equal.map_or_else(|| unknown(span), |equal| convert(not(equal, span), &Type::I64))
    }

    /// Whether `bytes` bytes at offset `at` are equal.
    fn same(&mut self, lhs: &Expr, rhs: &Expr, at: i64, bytes: u8, args: &[ast::Expr]) -> Option<Expr> {
        let ty = Type::Int { bytes, signed: false };
        let mut piece = |value: &Expr, arg: &ast::Expr| match &value.ty {
            Type::Void => None,
            Type::Pointer(_) | Type::Int { bytes: 8, .. } => {
                let kind = ExprKind::Load { base: Box::new(value.clone()), offset: at };
                Some(expr(kind, ty.clone(), value.span))
            }
            other => {
                let message = format!(
                    "`memcmp` takes two addresses or two strings, found {}",
                    self.types().show(other)
                );
                if at == 0 {
                    self.error("E0210", arg.span, message);
                }
                None
            }
        };
        let (a, b) = (piece(lhs, &args[0]), piece(rhs, &args[1]));
        Some(binary(BinaryOp::Eq, a?, b?, Type::Bool, lhs.span))
    }

    pub(crate) fn usym(&mut self, arg: &ast::Expr, span: Span) -> Expr {
        let address = self.number(arg, "the address of `usym`");
        if is_unknown(&address) {
            return unknown(span);
        }
        expr(ExprKind::Builtin(Builtin::Usym, vec![convert(address, &Type::U64)]), Type::Usym, span)
    }

    pub(crate) fn register(&mut self, arg: &ast::Expr, span: Span) -> Expr {
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
        if let Some(hook @ Hook::Trampoline) = self.scene().probe.hook {
            let at_return = self.scene().probe.at == At::Return;
            let message = format!(
                "`reg` is not available in `{}`, whose context has no registers",
                hook.probe_type(at_return)
            );
            self.error("E0211", span, message)
                .help(format!("use a `{}`", Hook::Kprobe.probe_type(at_return)));
            return unknown(span);
        }
        expr(ExprKind::Reg(name), Type::U64, span)
    }
}
