//! Built-in variables of every probe, or of the probed call: `comm(process)`, `curtask`, `retval`.

use crate::builtins::Call;
use crate::builtins::args::{Args, Core};
use crate::builtins::probe_context::Where;
use crate::builtins::row::{BuiltinSpec, callable, variable};
use crate::diagnostics::wording::did_you_mean;
use crate::expand::template::expression;
use crate::hir::make::{address, binary, convert, expr, int, is_unknown, unknown, with_names};
use crate::hir::{Around, BinaryOp, Builtin, Expr, ExprKind, Lookup, NameKind, Type};
use crate::source::span::Span;
use crate::syntax::ast;
use crate::types::U8;
use Where::{Anywhere, Calls, Returns};
use std::sync::Arc;

/// The effect of a mode on a variable.
enum Mode {
    /// The same value as without a mode.
    Plain,
    Other(Builtin, Type),
    /// The name of the main thread.
    Leader,
    /// The file name of the program.
    Program,
}

/// Modes of variables, by variable and word.
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

pub(super) static ROWS: &[BuiltinSpec] = &[
    callable(
        variable(
            |c, f| c.value_or_mode(f, Builtin::Pid, Type::U32),
            "pid",
            "process id, uint32, in the tracer's pid namespace or the initial one",
            Anywhere,
            "uprobe:libcuda:cuInit { @[pid] = count() }",
        ),
        1,
        "pid[(curr_ns|init)]",
    ),
    callable(
        variable(
            |c, f| c.value_or_mode(f, Builtin::Tid, Type::U32),
            "tid",
            "thread id, uint32, in the tracer's pid namespace or the initial one",
            Anywhere,
            "uprobe:libcuda:cuInit { @[tid] = count() }",
        ),
        1,
        "tid[(curr_ns|init)]",
    ),
    variable(
        |_, f| f.variable(Builtin::Uid, Type::U32),
        "uid",
        "user id, uint32",
        Anywhere,
        "uprobe:libcuda:cuInit { @[uid] = count() }",
    ),
    variable(
        |_, f| f.variable(Builtin::Gid, Type::U32),
        "gid",
        "group id, uint32",
        Anywhere,
        "uprobe:libcuda:cuInit { @[gid] = count() }",
    ),
    callable(
        variable(
            |c, f| c.comm(f),
            "comm",
            "name of the thread, string; `comm(process)`: of the process's main thread (without BTF, of the thread); `comm(program)`: file name of the process's program, not cut at 15 bytes (without BTF, `comm(process)`); `comm(pid)`: of another process, when printed",
            Anywhere,
            "uprobe:libcuda:cuInit { @[comm] = count() }",
        ),
        1,
        "comm[(thread|process|program|pid)]",
    ),
    variable(
        |_, f| f.variable(Builtin::Cpu, Type::U32),
        "cpu",
        "number of the CPU, uint32",
        Anywhere,
        "profile:hz:99 { @[cpu] = count() }",
    ),
    variable(
        |_, f| f.variable(Builtin::Cpus, Type::U64),
        "ncpus",
        "number of CPUs, uint64",
        Anywhere,
        "BEGIN { printf(\"%d CPUs\\n\", ncpus) }",
    ),
    variable(
        |_, f| f.variable(Builtin::NumaNode, Type::U32),
        "numaid",
        "number of the NUMA node, uint32",
        Anywhere,
        "profile:hz:99 { @[numaid] = count() }",
    ),
    variable(
        |_, f| f.variable(Builtin::Jiffies, Type::U64),
        "jiffies",
        "ticks of the kernel, uint64",
        Anywhere,
        "interval:s:1 { print(jiffies) }",
    ),
    variable(
        |_, f| f.variable(Builtin::UserMode, U8),
        "usermode",
        "1 if the probe interrupted user space, else 0, uint8; 1 in `BEGIN` and `END`",
        Anywhere,
        "profile:hz:99 { @[usermode] = count() }",
    ),
    variable(
        |_, f| f.variable(Builtin::ChildPid, Type::U32),
        "cpid",
        "process started by `--` or `-c`, uint32; 0 without one",
        Anywhere,
        "uprobe:libcuda:cuInit / pid == cpid / { @ = count() }",
    ),
    variable(
        |c, f| c.has_child(f),
        "has_cpid",
        "whether a process was started by `--` or `-c`, bool",
        Anywhere,
        "BEGIN { if (has_cpid) { printf(\"tracing %d\\n\", cpid) } }",
    ),
    callable(
        variable(
            |c, f| c.value_or_mode(f, Builtin::Nsecs, Type::U64),
            "nsecs",
            "time, ns, uint64: since boot, without the time spent suspended (monotonic), or as TAI",
            Anywhere,
            "uprobe:libcuda:cuInit { @start[tid] = nsecs }",
        ),
        1,
        "nsecs[(boot|monotonic|tai|sw_tai)]",
    ),
    variable(
        |_, f| f.variable(Builtin::Elapsed, Type::U64),
        "elapsed",
        "time since the start of the command or, without one, since the probes were attached, ns, uint64; stops at the command's end, and excludes times when the command was paused (at new libraries, while unwind tables are read)",
        Anywhere,
        "interval:s:1 { print(elapsed) }",
    ),
    variable(
        |_, f| f.value(ExprKind::Name(NameKind::Func), Type::Name(NameKind::Func)),
        "func",
        "called symbol",
        Calls,
        "uprobe:libcuda:cuMem* { @[func] = count() }",
    ),
    variable(
        |_, f| f.value(ExprKind::Name(NameKind::Api), Type::Name(NameKind::Api)),
        "api",
        "name of the symbol's family: `cuMemAlloc` for `cuMemAlloc_v2`",
        Calls,
        "uprobe:libcuda:cuMem* { @[api] = count() }",
    ),
    variable(
        |c, f| c.probe_name(f.span),
        "probe",
        "name of the attach point",
        Anywhere,
        "uprobe:libcuda:cuMem* { @[probe] = count() }",
    ),
    variable(
        |c, f| c.probe_type(f.span),
        "probetype",
        "kind of the probe: `uprobe`, `interval`; `special` in `BEGIN` and `END`",
        Anywhere,
        "uprobe:libcuda:cuInit, uretprobe:libcuda:cuInit { @[probetype] = count() }",
    ),
    variable(
        |c, f| c.core(Core::Arg, f),
        "argN",
        "N-th integer argument, from 0, int64 for any type",
        Calls,
        "uprobe:libcuda:cuMemAlloc { @ = sum(arg1) }",
    ),
    variable(
        |c, f| c.core(Core::Args, f),
        "args",
        "arguments by name and type, with their values at entry; `args` alone is a record of all arguments",
        Calls,
        "uprobe:libcuda:cuMemAlloc { @ = sum(args.bytesize) }",
    ),
    variable(
        |c, f| c.retval(f.span),
        "retval",
        "result, with the function's return type; uint64 if unknown",
        Returns,
        "uretprobe:libcuda:cuMem* { @[func, retval] = count() }",
    ),
    variable(
        |_, f| f.value(ExprKind::Duration, Type::U64),
        "duration",
        "time from entry to return of this call, ns, uint64",
        Returns,
        "uretprobe:libcuda:cuMem* { @[func] = hist(duration) }",
    ),
    variable(
        |_, f| f.value(ExprKind::Started, Type::U64),
        "started",
        "time at which this call began, ns of the clock of `nsecs(monotonic)`, uint64",
        Returns,
        "uretprobe:libcuda:cuMemFree { @idle = hist(started - @last[tid]); @last[tid] = nsecs(monotonic) }",
    ),
    variable(
        |_, f| f.value(ExprKind::Around(Around::Depth), Type::U64),
        "call_depth",
        "number of enclosing traced calls of this thread, uint64",
        Calls,
        "uretprobe:libcudart:*, uretprobe:libcuda:* { @[func, call_depth] = count() }",
    ),
    variable(
        |c, f| {
            c.of_launch(
                f,
                "and in clauses at `cuda:launch`, `cuda:graph`, `cuda:memcpy` and `cuda:memset` alone",
            )
        },
        "corr",
        "id of the call that launched the work of a GPU, uint64: in `gpu:` probes, and in `cuda:launch`, `cuda:graph`, `cuda:memcpy`, `cuda:memset`",
        Anywhere,
        "cuda:launch { @by[pid, corr] = comm } gpu:kernel { @ns[@by[pid, corr]] = sum(args.duration) }",
    ),
    variable(
        |c, f| c.of_launch(f, "of programs that cudatrace starts"),
        "nvtx",
        "innermost NVTX range around the call that launched the work of a GPU; empty without one. Only in `gpu:` probes, of started programs",
        Anywhere,
        "gpu:kernel { @ns[nvtx] = sum(args.duration) }",
    ),
    variable(
        |c, f| c.of_operators(f),
        "torch_op",
        "innermost operator of PyTorch that this thread executes, or at records of a GPU that of the launching call, string; empty without one",
        Anywhere,
        "gpu:kernel { @ns[torch_op] = sum(args.duration) } cuda:alloc { @bytes[torch_op] = sum(args.bytes) }",
    ),
    variable(
        |c, f| c.of_operators(f),
        "torch_backward",
        "whether that is in PyTorch's backward pass, bool",
        Anywhere,
        "gpu:kernel { @ns[torch_op, torch_backward] = sum(args.duration) }",
    ),
    variable(
        |c, f| c.outermost(f),
        "outermost",
        "whether no traced call of this thread encloses this one, bool",
        Calls,
        "uretprobe:libcudart:*, uretprobe:libcuda:* / outermost / { @ns[func] = sum(duration) }",
    ),
    variable(
        |c, f| c.parent_func(f.span),
        "parent_func",
        "symbol of the enclosing traced call; empty without one",
        Calls,
        "uretprobe:libcudart:*, uretprobe:libcuda:* { @[parent_func, func] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "context",
        "handle of the thread's current context, uint64; 0 if unknown or none",
        Calls,
        "cuda:alloc { @bytes[pid, context] = sum(args.bytes) }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device",
        "device of the thread's current context, CUDA's number in this process, int64; -1 if unknown",
        Calls,
        "cuda:launch { @launches[device] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "chosen_device",
        "`device`, known only from calls that choose a device, such as cudaSetDevice; -1 until the first one after tracing began",
        Calls,
        "cuda:launch { @launches[chosen_device] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device_name",
        "name of the device, string; `?` if the program did not query it",
        Calls,
        "cuda:alloc { @bytes[device, device_name] = sum(args.bytes) }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device_uuid",
        "UUID of the device, printed as `GPU-...`; `?` if the program did not query it",
        Calls,
        "cuda:launch { @launches[device_uuid] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device_pci",
        "PCI address of the device, printed as `0000:1b:00.0`; `?` if the program did not query it",
        Calls,
        "cuda:launch { @launches[device_pci] = count() }",
    ),
    variable(
        |_, f| f.variable(Builtin::Rand, Type::U32),
        "rand",
        "random number, uint32",
        Anywhere,
        "uprobe:libcuda:cu* / rand % 100 == 0 / { @ = count() }",
    ),
    variable(
        |_, f| f.variable(Builtin::Cgroup, Type::U64),
        "cgroup",
        "id of the cgroup (version 2), uint64",
        Anywhere,
        "uprobe:libcuda:cuInit { @[cgroup] = count() }",
    ),
    callable(
        variable(
            |c, f| c.parent_or_of(f),
            "ppid",
            "id of the parent process, or of a task's parent, uint32, in the initial pid namespace",
            Anywhere,
            "uprobe:libcuda:cuInit { printf(\"%d is a child of %d\\n\", pid, ppid) }",
        ),
        1,
        "ppid[(task)]",
    ),
    callable(
        variable(
            |c, f| c.parent_or_of(f),
            "pcomm",
            "name of the parent process, or of a task's parent, string",
            Anywhere,
            "uprobe:libcuda:cuInit { @[pcomm, comm] = count() }",
        ),
        1,
        "pcomm[(task)]",
    ),
    variable(
        |c, f| c.ident("pid", f.span),
        "leader_tid",
        "id of the process's main thread, equal to the process id, uint32",
        Anywhere,
        "uprobe:libcuda:cuInit { @[leader_tid] = count() }",
    ),
    variable(
        |c, f| c.process_comm(f.span),
        "leader_comm",
        "name of the process's main thread, string: `comm(process)`",
        Anywhere,
        "uprobe:libcuda:cuInit { @[leader_comm] = count() }",
    ),
    variable(
        |c, f| c.this_task(f.span),
        "curtask",
        "the kernel's `task_struct` of this thread, with members from BTF; without BTF, its address, uint64",
        Anywhere,
        "profile:hz:99 { @[curtask] = count() }",
    ),
    variable(
        |c, f| c.context_address(f),
        "ctx",
        "address of the BPF program's context: the registers in a `uprobe`",
        Anywhere,
        "uprobe:libcuda:cuInit { printf(\"%p\\n\", ctx) }",
    ),
    callable(
        variable(
            |c, f| c.bare_config(f),
            "config",
            "the script's settings, by name: `config().max_strlen`",
            Anywhere,
            "BEGIN { print(config().max_strlen) }",
        ),
        0,
        "config().SETTING",
    ),
    callable(
        variable(
            |c, f| c.core(Core::Stack, f),
            "ustack",
            "stack in user space, with frames of Python; modes bpftrace, perf, raw, folded, build_id, native, python, site",
            Anywhere,
            "uprobe:libcuda:cuMemAlloc { @[ustack(perf, 5)] = count() }",
        ),
        2,
        "ustack[([mode, ][frames])]",
    ),
    callable(
        variable(
            |c, f| c.core(Core::Stack, f),
            "pyline",
            "file and line of Python that this thread executes; `own`: the innermost that is of no library; `forward`: the same, for the backward pass of PyTorch that of the forward operator",
            Anywhere,
            "cuda:launch { @[pyline(own)] = count() }",
        ),
        1,
        "pyline[([own|forward])]",
    ),
    callable(
        variable(
            |c, f| c.core(Core::Stack, f),
            "pyfunc",
            "function of Python that this thread executes; `own`: the innermost that is of no library; `forward`: the same, for the backward pass of PyTorch that of the forward operator",
            Anywhere,
            "cuda:alloc { @[pyfunc] = sum(args.bytes) }",
        ),
        1,
        "pyfunc[([own|forward])]",
    ),
    callable(
        variable(
            |c, f| c.core(Core::Stack, f),
            "torch_module",
            "class of the module of PyTorch whose `forward` this thread executes, the innermost one; `forward`: for the backward pass that of the forward operator",
            Anywhere,
            "cuda:launch { @[torch_module] = count() }",
        ),
        1,
        "torch_module[([forward])]",
    ),
    callable(
        variable(
            |c, f| c.core(Core::Stack, f),
            "kstack",
            "stack in the kernel; modes bpftrace, perf, raw, folded",
            Anywhere,
            "profile:hz:99 { @[kstack] = count() }",
        ),
        2,
        "kstack[([mode, ][frames])]",
    ),
];

impl dyn Args + '_ {
    /// Another built-in variable.
    pub(crate) fn ident(&mut self, name: &str, span: Span) -> Expr {
        self.expr(&ast::Expr { kind: ast::ExprKind::Ident(name.into()), span })
    }

    /// `ctx`
    pub(crate) fn context_address(&mut self, call: &Call) -> Expr {
        let ty = Type::Pointer(Arc::new(Type::Void));
        let address = call.variable(Builtin::Context, ty.clone());
        call.value(ExprKind::Kernel(Box::new(address)), ty)
    }

    /// `config` without a setting.
    pub(crate) fn bare_config(&mut self, call: &Call) -> Expr {
        let error = self.error("E0206", call.span, "settings are read by name");
        error.help("write `config().max_strlen`");
        unknown(call.span)
    }

    /// `outermost`
    pub(crate) fn outermost(&mut self, call: &Call) -> Expr {
        let depth = call.value(ExprKind::Around(Around::Depth), Type::U64);
        binary(BinaryOp::Eq, depth, int(0, Type::U64, call.span), Type::Bool, call.span)
    }

    /// `has_cpid`
    pub(crate) fn has_child(&mut self, call: &Call) -> Expr {
        let none = int(0, Type::U32, call.span);
        binary(BinaryOp::Ne, call.variable(Builtin::ChildPid, Type::U32), none, Type::Bool, call.span)
    }

    /// `pid`, `pid(init)`
    pub(crate) fn value_or_mode(&mut self, call: &Call, id: Builtin, ty: Type) -> Expr {
        match call.args.first() {
            None => call.variable(id, ty),
            Some(mode) => self.with_mode(call.name, mode, call.span),
        }
    }

    /// `ppid`, `ppid(task)`, `pcomm`, `pcomm(task)`
    pub(crate) fn parent_or_of(&mut self, call: &Call) -> Expr {
        match call.args.first() {
            None => self.parent_process(call.name, this_task(call.span), call.span),
            Some(task) => self.parent_of(call.name, task, call.span),
        }
    }

    /// Reports a value of a launch where it has no meaning: elsewhere the expansion has replaced it.
    pub(crate) fn of_launch(&mut self, call: &Call, further: &str) -> Expr {
        let message = format!("`{}` is only available in `gpu:` probes {further}", call.name);
        self.error("E0211", call.span, message).help("a map carries a value from one probe to another");
        unknown(call.span)
    }

    /// An operator of PyTorch where the expansion has not replaced it: in a clause of records that no call has launched, and in code that is
    /// never reached.
    pub(crate) fn of_operators(&mut self, call: &Call) -> Expr {
        let message = format!("`{}` is not known here: the record belongs to no call", call.name);
        self.error("E0211", call.span, message).help("`gpu:operator` and probes of functions have it");
        unknown(call.span)
    }

    /// The result, with the type that the function returns.
    pub(crate) fn retval(&mut self, span: Span) -> Expr {
        let signature = self.scene().probe.signature.as_ref();
        let named = signature.and_then(|signature| signature.named);
        match signature.map_or(Type::U64, |signature| signature.ret.clone()) {
            // Results outside of registers are already reported.
            Type::Array(..) => unknown(span),
            ty @ Type::Float(_) => expr(ExprKind::Builtin(Builtin::FloatResult, Vec::new()), ty, span),
            ty @ Type::Struct(_) => expr(ExprKind::RetvalField { offset: 0 }, ty, span),
            ty => with_names(expr(ExprKind::Retval, ty, span), named),
        }
    }

    /// The name of the enclosing call; empty without one.
    pub(crate) fn parent_func(&mut self, span: Span) -> Expr {
        let none = self.names().intern(NameKind::Func, "");
        expr(ExprKind::Around(Around::Func { none }), Type::Name(NameKind::Func), span)
    }

    /// Defaults for scripts without such calls: `expand` replaces these variables if calls may choose or query a device.
    pub(crate) fn unknown_device(&mut self, name: &str, span: Span) -> Expr {
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

    /// `curtask`: a pointer to the kernel's struct, or an address without BTF.
    pub(crate) fn this_task(&mut self, span: Span) -> Expr {
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

    /// `ppid`, `pcomm`: of a task's parent, read from the kernel's structs.
    fn parent_process(&mut self, name: &str, task: Expr, span: Span) -> Expr {
        let field = if name == "ppid" { "tgid" } else { "comm" };
        let Some((parent, field)) = self.task_field(task, "real_parent", field, span) else {
            let error =
                self.error("E0223", span, format!("`{name}` needs the kernel's BTF, which is missing"));
            error.help(
                "store parents from `tracepoint:sched:sched_process_fork` in a map, by `args.child_pid`",
            );
            return unknown(span);
        };
        if name == "ppid" {
            return expr(ExprKind::Load { base: Box::new(parent), offset: field.into() }, Type::U32, span);
        }
        comm_at(address(parent, field.into()), span)
    }

    /// `comm(process)`; without BTF, the name of the thread.
    pub(crate) fn process_comm(&mut self, span: Span) -> Expr {
        if self.scene().catalog.runs_in_process() {
            return expr(ExprKind::Builtin(Builtin::ProcessName, Vec::new()), Type::Str(16), span);
        }
        match self.task_field(this_task(span), "group_leader", "comm", span) {
            Some((leader, field)) => comm_at(address(leader, field.into()), span),
            None => self.ident("comm", span),
        }
    }

    /// `comm(program)`; without BTF, the name of the process.
    fn program_name(&mut self, span: Span) -> Expr {
        const NAME: &str = "str(curtask->mm->exe_file->f_path.dentry->d_name.name, 64)";
        if self.scene().catalog.runs_in_process() {
            return expr(ExprKind::Builtin(Builtin::Program, Vec::new()), Type::Str(64), span);
        }
        match self.kernel_struct("task_struct") {
            Some(_) => self.expr(&expression(NAME, span)),
            None => self.process_comm(span),
        }
    }

    /// The task in the field `link` of a task, and the offset of its field `field`.
    fn task_field(&mut self, task: Expr, link: &str, field: &str, span: Span) -> Option<(Expr, u32)> {
        let [link, field] =
            [link, field].map(|field| self.scene().catalog.kernel_field("task_struct", field));
        let base = Box::new(task);
        let task = expr(ExprKind::Load { base, offset: link?.into() }, Type::U64, span);
        Some((task, field?))
    }

    pub(crate) fn probe_name(&mut self, span: Span) -> Expr {
        let ty = Type::Name(NameKind::Probe);
        match self.scene().probe.timed_name {
            Some(id) => int(i64::from(id.0), ty, span),
            None => expr(ExprKind::Name(NameKind::Probe), ty, span),
        }
    }

    /// `uprobe`, `interval`; `BEGIN` and `END` are `special`.
    pub(crate) fn probe_type(&mut self, span: Span) -> Expr {
        let word = self.scene().probe.probe_type.as_bytes();
        expr(ExprKind::Str(word.to_vec()), Type::Str(word.len() as u32 + 1), span)
    }

    /// `pid(init)`, `comm(process)`, `nsecs(monotonic)`
    pub(crate) fn with_mode(&mut self, name: &str, mode: &ast::Expr, span: Span) -> Expr {
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
                let error = self.error("E0210", mode.span, format!("unknown form of `{name}`"));
                error.help.extend(near);
                error.help(format!("forms are {}", known.join(", ")));
                unknown(span)
            }
        }
    }

    /// `comm(proces)`: an unknown name may be a misspelled mode.
    pub(crate) fn suggest_mode(&mut self, name: &str, mode: &ast::Expr) {
        let near = self.near_modes(name, mode);
        let last = self.diags().list.last_mut().filter(|found| found.span == mode.span);
        if let Some(error) = last.filter(|_| !near.is_empty()) {
            error.help = near;
        }
    }

    fn near_modes(&mut self, name: &str, mode: &ast::Expr) -> Vec<String> {
        let ast::ExprKind::Ident(word) = &mode.kind else { return Vec::new() };
        let modes = MODES.iter().filter(|(variable, ..)| *variable == name);
        did_you_mean(&self.diags().similar(word, modes.map(|(_, word, _)| *word)))
    }
}

/// Whether the word is a mode of a variable.
pub(crate) fn has_mode(name: &str, word: &ast::Expr) -> bool {
    matches!(&word.kind, ast::ExprKind::Ident(word) if MODES.iter().any(|(of, known, _)| *of == name && known == word))
}

/// The address of this thread's `task_struct`.
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
