//! Variables with a value in every probe, or of the call that was hit: `comm(process)`, `curtask`, `retval`.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::diagnostics::wording::did_you_mean;
use crate::expand::template::expression;
use crate::hir::make::{address, binary, convert, expr, int, is_unknown, unknown, with_names};
use crate::hir::{Around, BinaryOp, Builtin, Expr, ExprKind, Lookup, NameKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use std::sync::Arc;

/// What a word makes of a variable.
enum Mode {
    /// It is what the variable is without it.
    Plain,
    Other(Builtin, Type),
    /// The name of the main thread.
    Leader,
    /// The file name of the program.
    Program,
}

/// Words for the ids, names and clocks that a variable can be asked for.
static MODES: &[(&str, &str, Mode)] = &[
    ("pid", "curr_ns", Mode::Plain),
    ("pid", "init", Mode::Other(Builtin::InitPid, Type::U32)),
    ("tid", "curr_ns", Mode::Plain),
    ("tid", "init", Mode::Other(Builtin::InitTid, Type::U32)),
    ("comm", "thread", Mode::Plain),
    ("comm", "process", Mode::Leader),
    ("comm", "program", Mode::Program),
    ("nsecs", "boot", Mode::Plain),
    ("nsecs", "monotonic", Mode::Other(Builtin::Monotonic, Type::U64)),
    ("nsecs", "tai", Mode::Other(Builtin::Tai, Type::U64)),
    ("nsecs", "sw_tai", Mode::Other(Builtin::Tai, Type::U64)),
];

impl dyn Args + '_ {
    /// Another built-in variable.
    pub fn ident(&mut self, name: &str, span: Span) -> Expr {
        self.expr(&ast::Expr { kind: ast::ExprKind::Ident(name.into()), span })
    }

    /// `ctx`
    pub fn context_address(&mut self, call: &Call) -> Expr {
        let ty = Type::Pointer(Arc::new(Type::Void));
        let address = call.variable(Builtin::Context, ty.clone());
        call.value(ExprKind::Kernel(Box::new(address)), ty)
    }

    /// `config` without a setting.
    pub fn bare_config(&mut self, call: &Call) -> Expr {
        let error = self.error("E0206", call.span, "settings are read by name");
        error.help("write `config().max_strlen`");
        unknown(call.span)
    }

    /// `outermost`
    pub fn outermost(&mut self, call: &Call) -> Expr {
        let depth = call.value(ExprKind::Around(Around::Depth), Type::U64);
        binary(BinaryOp::Eq, depth, int(0, Type::U64, call.span), Type::Bool, call.span)
    }

    /// `has_cpid`
    pub fn has_child(&mut self, call: &Call) -> Expr {
        let none = int(0, Type::U32, call.span);
        binary(BinaryOp::Ne, call.variable(Builtin::ChildPid, Type::U32), none, Type::Bool, call.span)
    }

    /// `pid`, `pid(init)`
    pub fn value_or_mode(&mut self, call: &Call, id: Builtin, ty: Type) -> Expr {
        match call.args.first() {
            None => call.variable(id, ty),
            Some(mode) => self.moded(call.name, mode, call.span),
        }
    }

    /// `ppid`, `ppid(task)`, `pcomm`, `pcomm(task)`
    pub fn parent_or_of(&mut self, call: &Call) -> Expr {
        match call.args.first() {
            None => self.parent_process(call.name, this_task(call.span), call.span),
            Some(task) => self.parent_of(call.name, task, call.span),
        }
    }

    pub fn retval(&mut self, span: Span) -> Expr {
        let signature = self.scene().probe.signature.as_ref();
        let named = signature.and_then(|signature| signature.named);
        match signature.map_or(Type::U64, |signature| signature.ret.clone()) {
            // What no register holds was said when the function was looked up.
            Type::Array(..) => unknown(span),
            ty @ Type::Struct(_) => expr(ExprKind::RetvalField { offset: 0 }, ty, span),
            ty => with_names(expr(ExprKind::Retval, ty, span), named),
        }
    }

    /// The name of the call around this one; one without any has the empty name.
    pub fn parent_func(&mut self, span: Span) -> Expr {
        let none = self.names().intern(NameKind::Func, "");
        expr(ExprKind::Around(Around::Func { none }), Type::Name(NameKind::Func), span)
    }

    /// Forms have put lookups where calls may ask for a device. Elsewhere none is known.
    pub fn unknown_device(&mut self, name: &str, span: Span) -> Expr {
        let of_number = |number: i64, lookup| {
            let number = Box::new(int(number, Type::I64, span));
            expr(ExprKind::Lookup(number), Type::Lookup(lookup), span)
        };
        match name {
            "device_name" => expr(ExprKind::Str(b"?".to_vec()), Type::Str(64), span),
            "device_uuid" => of_number(0, Lookup::DeviceUuid),
            "device_pci" => of_number(-1, Lookup::DevicePci),
            "device" | "chosen_device" => int(-1, Type::I64, span),
            _ => int(0, Type::U64, span),
        }
    }

    /// `curtask`: a pointer to the kernel's struct, where its BTF tells what is in it.
    pub fn this_task(&mut self, span: Span) -> Expr {
        match self.kernel_struct("task_struct") {
            Some(task) => convert(this_task(span), &Type::Pointer(Arc::new(task))),
            None => this_task(span),
        }
    }

    /// `ppid(task)`, `pcomm(task)`
    fn parent_of(&mut self, name: &str, task: &ast::Expr, span: Span) -> Expr {
        let address = self.number(task, &format!("the task of `{name}`"));
        if is_unknown(&address) {
            return unknown(span);
        }
        let task = expr(ExprKind::Kernel(Box::new(convert(address, &Type::U64))), Type::U64, span);
        self.parent_process(name, task, span)
    }

    /// `ppid`, `pcomm`: of the process that started a task's, as the kernel's structs have it.
    fn parent_process(&mut self, name: &str, task: Expr, span: Span) -> Expr {
        let wanted = if name == "ppid" { "tgid" } else { "comm" };
        let Some((parent, field)) = self.of_task(task, "real_parent", wanted, span) else {
            let error =
                self.error("E0223", span, format!("`{name}` needs the kernel's BTF, which is not there"));
            error
                .help("keep what `tracepoint:sched:sched_process_fork` says of parents, by `args.child_pid`");
            return unknown(span);
        };
        if name == "ppid" {
            return expr(ExprKind::Load { base: Box::new(parent), offset: field.into() }, Type::U32, span);
        }
        comm_at(address(parent, field.into()), span)
    }

    /// `comm(process)`; where the kernel does not say how its structs are laid out, the name of the thread.
    pub fn process_comm(&mut self, span: Span) -> Expr {
        match self.of_task(this_task(span), "group_leader", "comm", span) {
            Some((leader, field)) => comm_at(address(leader, field.into()), span),
            None => self.ident("comm", span),
        }
    }

    /// `comm(program)`; where the kernel does not say how its structs are laid out, the name of the process.
    fn program_name(&mut self, span: Span) -> Expr {
        const NAME: &str = "str(curtask->mm->exe_file->f_path.dentry->d_name.name, 64)";
        match self.kernel_struct("task_struct") {
            Some(_) => self.expr(&expression(NAME, span)),
            None => self.process_comm(span),
        }
    }

    /// The task that a field of another's leads to, and where that has another field.
    fn of_task(&mut self, task: Expr, link: &str, wanted: &str, span: Span) -> Option<(Expr, u32)> {
        let [link, field] =
            [link, wanted].map(|field| self.scene().catalog.kernel_field("task_struct", field));
        let base = Box::new(task);
        let task = expr(ExprKind::Load { base, offset: link?.into() }, Type::U64, span);
        Some((task, field?))
    }

    pub fn probe_name(&mut self, span: Span) -> Expr {
        let ty = Type::Name(NameKind::Probe);
        match self.scene().probe.timed_name {
            Some(id) => int(i64::from(id.0), ty, span),
            None => expr(ExprKind::Name(NameKind::Probe), ty, span),
        }
    }

    /// `uprobe`, `interval`; `BEGIN` and `END` are `special`.
    pub fn probe_type(&mut self, span: Span) -> Expr {
        let word = self.scene().probe.probe_type.as_bytes();
        expr(ExprKind::Str(word.to_vec()), Type::Str(word.len() as u32 + 1), span)
    }

    /// `pid(init)`, `comm(process)`, `nsecs(monotonic)`
    pub fn moded(&mut self, name: &str, mode: &ast::Expr, span: Span) -> Expr {
        let modes = || MODES.iter().filter(|(variable, ..)| *variable == name);
        let found = match &mode.kind {
            ast::ExprKind::Ident(word) => modes().find(|(_, known, _)| known == word),
            _ => None,
        };
        match found {
            Some((.., Mode::Plain)) => self.ident(name, span),
            Some((.., Mode::Other(id, ty))) => expr(ExprKind::Builtin(*id, Vec::new()), ty.clone(), span),
            Some((.., Mode::Leader)) => self.process_comm(span),
            Some((.., Mode::Program)) => self.program_name(span),
            None => {
                let near = self.near_modes(name, mode);
                let known: Vec<String> = modes().map(|(_, word, _)| format!("`{name}({word})`")).collect();
                let error = self.error("E0210", mode.span, format!("`{name}` has no such form"));
                error.help.extend(near);
                error.help(format!("there are {}", known.join(", ")));
                unknown(span)
            }
        }
    }

    /// `comm(proces)`: the name that nobody knows may be a form of the variable.
    pub fn suggest_mode(&mut self, name: &str, mode: &ast::Expr) {
        let near = self.near_modes(name, mode);
        let said = self.diags().list.last_mut().filter(|found| found.span == mode.span);
        if let Some(error) = said.filter(|_| !near.is_empty()) {
            error.help = near;
        }
    }

    fn near_modes(&mut self, name: &str, mode: &ast::Expr) -> Vec<String> {
        let ast::ExprKind::Ident(word) = &mode.kind else { return Vec::new() };
        let modes = MODES.iter().filter(|(variable, ..)| *variable == name);
        did_you_mean(&self.diags().similar(word, modes.map(|(_, word, _)| *word)))
    }
}

/// Whether the word makes a form of a variable.
pub fn has_mode(name: &str, word: &ast::Expr) -> bool {
    matches!(&word.kind, ast::ExprKind::Ident(word) if MODES.iter().any(|(of, known, _)| *of == name && known == word))
}

/// The address of the kernel's struct of this thread.
fn this_task(span: Span) -> Expr {
    expr(
        ExprKind::Kernel(Box::new(expr(ExprKind::Builtin(Builtin::Task, Vec::new()), Type::U64, span))),
        Type::U64,
        span,
    )
}

/// The kernel's name of a thread.
fn comm_at(base: Expr, span: Span) -> Expr {
    expr(ExprKind::ReadStr { base: Box::new(base), limit: None }, Type::Str(16), span)
}
