//! Identifiers without `$` or `@`: built-in variables, `#define`s, constants of CUDA.

use crate::builtins::Call;
use crate::builtins::args::Args;
use crate::builtins::probe_context::At;
use crate::builtins::probe_context::Where;
use crate::builtins::row::{BuiltinSpec, Check};
use crate::builtins::{constants, posix, table};
use crate::check::Checker;
use crate::check::config::{ONE_FRAME, ONLY_OF_PROGRAMS, STACK_MODES, stack_mode, stack_modes};
use crate::check::slots::ValueState;
use crate::diagnostics::wording::did_you_mean;
use crate::expand::gpu::PROVIDER;
use crate::expand::shared_stacks::is_user_stack;
use crate::hir::make::with_names;
use crate::hir::make::{convert, expr, int, unknown};
use crate::hir::{Expr, ExprKind, StackMode, Type};
use crate::limits;
use crate::limits::MAX_DEPTH;
use crate::resolve::setting::Run;
use crate::resolve::usage::{arg_number, argument_registers, stack_arg_number};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::syntax::visit::Measure;
use crate::types::is_scalar;
use cuda::gpu;
use std::sync::Arc;

/// Upper bound of `#define` expansions in one use.
const MAX_EXPANSIONS: usize = 10_000;

/// Built-ins that have no meaning at a record of a GPU, and what they would be.
static OF_LAUNCH: &[(&[&str], &str)] = &[
    (&["tid"], "the thread that launched the work"),
    (
        &["ustack", "pyline", "pyfunc", "torch_module", "kstack", "usermode"],
        "the stack of the call that launched the work",
    ),
    (&["func", "api"], "the call that launched the work"),
    (
        &["argN", "sargN", "args", "reg", "ctx"],
        "an argument or a register of the call that launched the work",
    ),
    (&["retval"], "the result of the call that launched the work"),
    (&["duration"], "the time of the call that launched the work"),
    (&["call_depth", "outermost", "parent_func"], "a call around the one that launched the work"),
    (&["cpu", "numaid"], "the processor of the call that launched the work"),
    (
        &["device", "chosen_device", "device_name", "device_uuid", "device_pci", "context"],
        "that of the thread which launched the work",
    ),
];

/// The outermost `#define` around a point.
pub(super) struct DefineExpansion {
    name: String,
    span: Span,
    /// Total nesting depth of the values of all nested definitions.
    levels: usize,
    /// Expansions in it.
    uses: usize,
}

impl<'a> Checker<'a> {
    /// `pid`, `NAME` of a `#define`, `CUDA_SUCCESS`
    pub(crate) fn ident(&mut self, name: &str, span: Span) -> Expr {
        if let Some(&value) = self.defines.get(name) {
            return self.defined(name, value, span);
        }
        if let Some(&value) = self.enumerators.get(name) {
            return int(value, Type::I64, span);
        }
        if let Some((id, value)) = self.types.constant(name) {
            return int(value, Type::Enum(id), span);
        }
        if let Some(builtin) = table::find(name) {
            return self.builtin_variable(builtin, name, span);
        }
        if let Some((id, value)) = cuda::constant(name) {
            return int(value, Type::Enum(self.types.enum_id(id)), span);
        }
        if let Some(value) = cuda::macro_constant(name) {
            return int(value, Type::I64, span);
        }
        if let Some((id, value)) = self.types.declared_constant(name) {
            return int(value, Type::Enum(id), span);
        }
        if let Some(value) = posix::constant(name).or_else(|| constants::constant(name)) {
            return int(value, Type::I64, span);
        }
        if let Some((ty, value)) = self.types.kernel_constant(name) {
            return int(value, ty, span);
        }
        self.unknown_ident(name, span)
    }

    /// Whether the name is that of a value.
    pub(crate) fn is_value(&self, name: &str) -> bool {
        self.defines.contains_key(name)
            || self.types.constant(name).is_some()
            || table::find(name).is_some()
            || cuda::constant(name).is_some()
            || cuda::macro_constant(name).is_some()
            || self.types.declared_constant(name).is_some()
    }

    /// The value of a definition, with the span of its use. A definition is hidden in its own value.
    fn defined(&mut self, name: &str, value: &'a ast::Expr, span: Span) -> Expr {
        let outer = self.expansion.take();
        let outside = outer.as_ref().map(|outer| outer.levels);
        let fresh = || DefineExpansion { name: name.into(), span, levels: 0, uses: 0 };
        let mut inner = outer.unwrap_or_else(fresh);
        inner.levels += Measure::of(value).levels;
        inner.uses += 1;
        if inner.levels > MAX_DEPTH || inner.uses > MAX_EXPANSIONS {
            let message = format!("the definition of `{}` is too large", inner.name);
            self.error("E0007", inner.span, message).help("give a part of it to a variable first");
        }
        let fits = inner.levels <= MAX_DEPTH && inner.uses <= MAX_EXPANSIONS;
        self.expansion = Some(inner);
        self.defines.remove(name);
        let checked = if fits { self.expr(value) } else { unknown(span) };
        self.defines.insert(name.to_string(), value);
        self.expansion =
            self.expansion.take().zip(outside).map(|(inner, levels)| DefineExpansion { levels, ..inner });
        Expr { span, ..checked }
    }

    fn unknown_ident(&mut self, name: &str, span: Span) -> Expr {
        if name == ast::ABSENT {
            return unknown(span);
        }
        if let Some((_, alternative)) = table::ABSENT.iter().find(|(absent, _)| *absent == name) {
            self.error("E0223", span, format!("`{name}` is not supported")).help(*alternative);
            return unknown(span);
        }
        let builtins = table::all().map(|b| b.name);
        let constants = cuda::constants()
            .chain(cuda::driver_constants())
            .map(|constant| constant.name)
            .chain(cuda::macro_constants().map(|(name, _)| name));
        let own = self.defines.keys().map(String::as_str).chain(self.types.constant_names());
        let own = own.chain(self.types.declared_constants());
        let is_upper_case = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        let numbers = posix::constant_names()
            .chain(constants::names())
            .filter(|_| is_upper_case)
            .map(|name| name as &str);
        let near = self.diags.similar(name, builtins.chain(constants).chain(numbers).chain(own));
        let argument = self.argument_like(name);
        let has_var = self.scope.lookup(name).is_some();
        let has_map = self.map_ids.contains_key(name);
        let error = self.error("E0206", span, format!("unknown name `{name}`"));
        if let Some(here) = table::elsewhere(name) {
            error.help(here);
        } else if has_var {
            error.help(format!("did you mean the variable `${name}`?"));
        } else if has_map {
            error.help(format!("did you mean the map `@{name}`?"));
        } else if let Some(argument) = argument {
            error.help(format!("did you mean `args.{argument}`?"));
        } else if near.is_empty() {
            error.help(format!(
                "put text in quotes: `\"{name}\"`; names of variables begin with `$`, those of maps with `@`"
            ));
        } else {
            error.help.extend(did_you_mean(&near));
        }
        unknown(span)
    }

    /// The most similar name among the arguments of the probed function or the fields of the record.
    pub(crate) fn argument_like(&self, name: &str) -> Option<String> {
        if let Some(operation) = self.context.operation {
            let names = operation.all_args().map(|arg| arg.name);
            return self.diags.similar(name, names).into_iter().next();
        }
        let params = &self.context.signature.as_ref()?.params;
        self.diags.similar(name, params.iter().map(|param| param.name.as_str())).into_iter().next()
    }

    fn builtin_variable(&mut self, builtin: &'static BuiltinSpec, name: &str, span: Span) -> Expr {
        let call = Call { name, args: &[], span };
        let check = match builtin.check {
            Check::Function(check) if *builtin.arity.start() == 0 => return check(self, &call),
            Check::Variable(check) => check,
            _ => {
                let message = format!("`{name}` is a function");
                self.error("E0206", span, message).help(format!("write `{}`", builtin.signature));
                return unknown(span);
            }
        };
        let by_number = self.context.raw && arg_number(name).is_some();
        let of_record = self.context.at == At::Record && (name == "args" || by_number);
        if !of_record && !self.allowed(builtin, name, span) {
            return unknown(span);
        }
        check(self, &call)
    }

    /// `arg3`, `sarg1`
    pub(crate) fn argument(&mut self, call: &Call) -> Expr {
        let on_stack = || Some(stack_arg_number(call.name)? + argument_registers());
        match arg_number(call.name).or_else(on_stack) {
            Some(number) if self.context.passed.is_some() => self.args().passed(number, call.span),
            Some(number) if self.context.at == At::Record => self.field_by_number(number, call.span),
            Some(number) => call.value(ExprKind::Arg(number), Type::I64),
            None => self.unknown_ident(call.name, call.span),
        }
    }

    /// Reports a built-in that is not available in this probe.
    pub(crate) fn allowed(&mut self, builtin: &BuiltinSpec, name: &str, span: Span) -> bool {
        // Stacks were replaced by those of launches, but for those that an option excludes, and those of a `#define`.
        let is_left = !is_user_stack(builtin.name) || self.expansion.is_some();
        if let Some(kind) = self.context.gpu.filter(|kind| !kind.is_at_once())
            && (is_left || kind.launched_by.is_empty())
            && let Some((_, meaning)) = OF_LAUNCH.iter().find(|(names, _)| names.contains(&builtin.name))
        {
            self.of_launch(kind, name, meaning, span);
            return false;
        }
        if self.context.at.allows(builtin.allowed) {
            return true;
        }
        let (message, help) = match (builtin.allowed, self.context.at) {
            (Where::Returns, At::Entry) => {
                (format!("`{name}` has no value before the call returns"), "use a `uretprobe`")
            }
            (Where::Running, _) => (
                format!("`{name}` is not available in `BEGIN` and `END`"),
                "use it in a probe of running code",
            ),
            (Where::Returns, _) => {
                (format!("`{name}` is only available in a `uretprobe`"), "use a `uretprobe`")
            }
            _ => (
                format!("`{name}` is only available in probes of functions"),
                "use it in a `uprobe`, `uretprobe`, `kprobe`, `kretprobe`, `fentry` or `fexit`, store it in a map there, and read \
                 the map here",
            ),
        };
        self.error("E0211", span, message).help(help);
        false
    }

    /// Reports a built-in of the launching call in a probe at records of a GPU.
    fn of_launch(&mut self, kind: &gpu::RecordKind, name: &str, meaning: &str, span: Span) {
        let at = format!("{PROVIDER}:{}", kind.name);
        let error =
            self.error("E0244", span, format!("`{name}` is not known in `{at}`: it would be {meaning}"));
        if kind.arg(name).is_some() {
            error.help(format!("the record has `args.{name}`"));
            return;
        }
        error.help(format!("the record has `args.duration`, `args.device` ...: `cudatrace -lv {at}`"));
        let at_call = |operation| format!("a probe at `{operation}` has it, at the call");
        error.help.extend(kind.launched_by.first().map(at_call));
    }

    /// The value is a whole register without a declared type: `arg0`, `retval`, `reg("ax")`, or a copy of one. If the
    /// register holds an `int`, only its lower half is defined.
    pub(crate) fn is_register(&self, value: &Expr) -> bool {
        match &value.kind {
            ExprKind::Retval => self.context.signature.is_none(),
            ExprKind::Arg(number) => !self.is_wide_argument(*number),
            ExprKind::Reg(_) => true,
            ExprKind::Var(id) => self.scope.vars()[id.0 as usize].slot.get().is_register(),
            ExprKind::MapGet { map, .. } => match self.maps[map.0 as usize].value.get() {
                ValueState::Plain(slot) => slot.is_register(),
                ValueState::Agg(_) => false,
            },
            _ => false,
        }
    }

    /// Whether the signature has a 64-bit value in the n-th register.
    fn is_wide_argument(&self, number: u32) -> bool {
        let params = self.context.signature.as_ref().map_or(&[][..], |signature| &signature.params);
        let number = number as usize;
        let mut before = params.iter().take(number);
        before.all(|param| !param.float && is_scalar(&param.ty))
            && params.get(number).is_some_and(|param| !param.float && self.types.size(&param.ty) == 8)
    }

    /// `args`: a record of all arguments that can be read.
    pub(crate) fn all_args(&mut self, span: Span) -> Expr {
        // Functions without argument names were already removed, with a message.
        let Some(signature) = &self.context.signature else { return unknown(span) };
        let params = signature.params.clone();
        let (mut names, mut parts, mut omitted) = (Vec::new(), Vec::new(), Vec::new());
        for param in params {
            let name = ast::Name { node: param.name.clone(), span };
            if param.ty == Type::Void || param.float && !self.is_readable_float(&param.ty) {
                omitted.push(param.name);
                continue;
            }
            let place = self.param(&name, span);
            let value = match self.context.at {
                At::Record => Some(self.value_of(place)),
                _ => self.readable_parts(place, &param.name, &mut omitted),
            };
            if let Some(value) = value {
                parts.push(value);
                names.push(param.name);
            }
        }
        self.warn_omitted("args", &omitted, span);
        self.record_of(names, parts, span)
    }

    /// Whether programs can read arguments of this floating-point type.
    fn is_readable_float(&self, ty: &Type) -> bool {
        matches!(ty, Type::Float(4 | 8)) && self.catalog.runs_in_process()
    }

    /// `ustack`, `kstack(3)`, `ustack(perf, 10)`
    pub(crate) fn stack(&mut self, name: &str, args: &[ast::Expr], span: Span) -> Expr {
        if let Some((_, mode, own)) = ONE_FRAME.iter().find(|(known, ..)| *known == name) {
            return self.frame_of_python(name, (*mode, *own), args, span);
        }
        let (mut mode, mut limit) = (self.config.stack_mode, limits::FRAMES);
        for arg in args {
            match &arg.kind {
                ast::ExprKind::Ident(word) if stack_mode(word).is_some() => {
                    mode = stack_mode(word).unwrap_or(mode);
                }
                ast::ExprKind::Ident(word) if !self.defines.contains_key(word) => {
                    let near =
                        did_you_mean(&self.diags.similar(word, STACK_MODES.iter().map(|(word, _)| *word)));
                    let error = self.error("E0210", arg.span, format!("unknown stack mode `{word}`"));
                    error.help.extend(near);
                    error.help(stack_modes());
                }
                ast::ExprKind::Str(word) => mode = self.quoted_mode(name, word, arg.span).unwrap_or(mode),
                _ => limit = self.constant(arg, "the number of frames").unwrap_or(limit),
            }
        }
        if !(1..=limits::FRAMES).contains(&limit) {
            let message = format!("a stack has from 1 to {} frames", limits::FRAMES);
            self.error("E0222", span, message);
            limit = limits::FRAMES;
        }
        let user = name != "kstack";
        if let Some((_, why, way_out)) = ONLY_OF_PROGRAMS.iter().find(|(only, ..)| *only == mode && !user) {
            self.error("E0210", span, *why).help(*way_out);
        }
        let ty = Type::Stack { user, limit: limit as u32, mode };
        expr(ExprKind::Stack, ty, span)
    }

    /// `pyline`, `pyline(own)`
    fn frame_of_python(
        &mut self,
        name: &str,
        (innermost, own): (StackMode, Option<StackMode>),
        args: &[ast::Expr],
        span: Span,
    ) -> Expr {
        let is =
            |arg: &ast::Expr, what: &str| matches!(&arg.kind, ast::ExprKind::Ident(word) if word == what);
        if let Some(wrong) = args.iter().find(|arg| own.is_none() || !is(arg, "own")) {
            // At records of a GPU it was replaced.
            let message = match is(wrong, "forward") {
                true => format!("`{name}(forward)` is only available at work of a GPU, such as `gpu:kernel`"),
                false => format!("`{name}` has no such frame"),
            };
            let forms = match own {
                Some(_) => {
                    format!("`{name}` is the innermost frame, `{name}(own)` the innermost one of no library")
                }
                None => format!(
                    "`{name}` is that of the thread, `{name}(forward)` for the backward pass that of the forward operator"
                ),
            };
            self.error("E0210", wrong.span, message).help(forms);
        }
        let mode = own.filter(|_| !args.is_empty()).unwrap_or(innermost);
        expr(ExprKind::Stack, Type::Stack { user: true, limit: 1, mode }, span)
    }

    /// `ustack("perf")`: reports the quotes, and returns the mode between them.
    fn quoted_mode(&mut self, name: &str, word: &[u8], span: Span) -> Option<StackMode> {
        let word = String::from_utf8_lossy(word);
        let mode = stack_mode(&word);
        let error = self.error("E0210", span, "the mode of a stack is written without quotes");
        error.help(match mode.is_some() {
            true => format!("write `{name}({word})`"),
            false => stack_modes(),
        });
        mode
    }

    /// `arg0` of a raw tracepoint, as int64.
    fn field_by_number(&mut self, number: u32, span: Span) -> Expr {
        let params = self.context.signature.as_ref().map_or(&[][..], |signature| &signature.params);
        let Some(name) = params.get(number as usize).map(|param| param.name.clone()) else {
            let label = format!("the tracepoint has {}", params.len());
            self.error("E0120", span, format!("no argument `arg{number}` in this tracepoint")).label(label);
            return unknown(span);
        };
        let field = self.tracepoint_field(&ast::Name { node: name, span }, span);
        match field.kind {
            ExprKind::Kernel(address) => {
                expr(ExprKind::Kernel(Box::new(convert(*address, &Type::I64))), Type::I64, span)
            }
            _ => convert(field, &Type::I64),
        }
    }

    /// `args.comm` of a tracepoint.
    fn tracepoint_field(&mut self, name: &ast::Name, span: Span) -> Expr {
        let params = self.context.signature.as_ref().map_or(&[][..], |signature| &signature.params);
        let Some(at) = params.iter().position(|p| p.name == name.node) else {
            let names: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
            let near = did_you_mean(&self.diags.similar(&name.node, names.iter().copied()));
            let note = format!("it has {}", names.join(", "));
            let what = if self.context.iterates { "iterator" } else { "tracepoint" };
            let error = self.error("E0214", name.span, format!("this {what} has no field `{}`", name.node));
            error.note(note).help.extend(near);
            return unknown(span);
        };
        let param = at as u32;
        let declared = params[at].ty.clone();
        let pointee = self.context.pointees.get(at).cloned().flatten();
        let ty = match pointee {
            Some(name) => self.kernel_struct(&name).map(|to| Type::Pointer(Arc::new(to))),
            None => None,
        };
        match ty.unwrap_or(declared) {
            Type::Void => {
                let message = format!("the type of field `{}` cannot be read", name.node);
                self.error("E0226", name.span, message).help("numbers, addresses and text can be read");
                unknown(span)
            }
            Type::Str(0) => {
                let ty = Type::Str(self.config.max_strlen);
                expr(ExprKind::RecordBytes { param, located: true }, ty, span)
            }
            ty @ (Type::Str(_) | Type::Array(..)) => {
                expr(ExprKind::RecordBytes { param, located: false }, ty, span)
            }
            ty @ Type::Pointer(_) if self.context.kernel_pointers => {
                let address = expr(ExprKind::Param(param), ty.clone(), span);
                expr(ExprKind::Kernel(Box::new(address)), ty, span)
            }
            ty => expr(ExprKind::Param(param), ty, span),
        }
    }

    /// `args.bytesize`: a parameter, which may be a struct whose field is accessed.
    pub(crate) fn param(&mut self, name: &ast::Name, span: Span) -> Expr {
        if self.context.at == At::Record {
            return self.tracepoint_field(name, span);
        }
        let builtin = table::find("args").expect("`args` is a built-in");
        if !self.allowed(builtin, "args", span) {
            return unknown(span);
        }
        let Some(signature) = &self.context.signature else {
            return match self.options.run {
                // Tracing clauses do not run with tests, so maps that only they fill may have any type.
                Run::Tests { .. } => int(0, Type::I64, span),
                // Functions without the argument were already removed, with a message.
                _ => unknown(span),
            };
        };
        match signature.params.iter().position(|p| p.name == name.node) {
            Some(at) => {
                let param = &signature.params[at];
                with_names(expr(ExprKind::Param(at as u32), param.ty.clone(), span), param.named)
            }
            None => unknown(span),
        }
    }
}
