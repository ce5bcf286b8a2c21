//! The built-in variables and functions: one table for checking, help and completion.
//!
//! A new built-in is a row here, whose first part checks a use of it; what that takes is in the file of its family.

use crate::builtins::Call;
use crate::builtins::args::{Args, Core, CoreAction};
use crate::builtins::probe_context::Where;
use crate::builtins::values::expanded;
use crate::hir::make::int;
use crate::hir::{
    self, Agg, Around, Export, Expr, ExprKind, Lookup, Message, NameKind, Stmt, StmtKind, Type,
};
use crate::resolve::usage;
use crate::syntax::ast;
use crate::types::U8;

/// What a built-in is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `pid`; `pid()` is the same.
    Variable,
    /// `strncmp(a, b, n)`: has a value.
    Function,
    /// `printf(...)`: a statement.
    Action,
    /// `@x = count()`: assigned to a map.
    Aggregation,
}

/// How a use of a built-in is checked, which has as many arguments as it takes and is in a probe where it has a meaning.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Check {
    /// `pid`, `pid(init)`
    Variable(fn(&mut dyn Args, &Call<'_>) -> Expr),
    /// `strncmp(a, b, n)`
    Function(fn(&mut dyn Args, &Call<'_>) -> Expr),
    /// `printf(...)`: the statement, and those before it.
    Action(fn(&mut dyn Args, &Call<'_>, &mut Vec<Stmt>) -> Option<StmtKind>),
    /// `sum(n)`: the arguments, and whether the sample is signed.
    Aggregation(fn(&mut dyn Args, &[ast::Expr], bool) -> Agg),
}

impl Check {
    const fn kind(self) -> Kind {
        match self {
            Check::Variable(_) => Kind::Variable,
            Check::Function(_) => Kind::Function,
            Check::Action(_) => Kind::Action,
            Check::Aggregation(_) => Kind::Aggregation,
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Builtin {
    /// As scripts write it.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// How a use of it is checked.
    pub(crate) check: Check,
    /// Fewest and most arguments.
    pub arity: (usize, usize),
    /// How it is written.
    pub signature: &'static str,
    /// What it does or is, with its type and unit.
    pub doc: &'static str,
    /// A script.
    pub example: &'static str,
    /// Where it may be used.
    pub allowed: Where,
}

const fn variable(
    check: fn(&mut dyn Args, &Call<'_>) -> Expr,
    name: &'static str,
    doc: &'static str,
    allowed: Where,
    example: &'static str,
) -> Builtin {
    Builtin { allowed, ..call(Check::Variable(check), name, (0, 0), name, doc, example) }
}

const fn call(
    check: Check,
    name: &'static str,
    arity: (usize, usize),
    signature: &'static str,
    doc: &'static str,
    example: &'static str,
) -> Builtin {
    Builtin { name, kind: check.kind(), check, arity, signature, doc, example, allowed: Where::Anywhere }
}

/// A variable that may also be called, with so many arguments at most.
const fn callable(builtin: Builtin, most: usize, signature: &'static str) -> Builtin {
    Builtin { arity: (0, most), signature, ..builtin }
}

const fn calls(builtin: Builtin) -> Builtin {
    Builtin { allowed: Where::Calls, ..builtin }
}

const fn running(builtin: Builtin) -> Builtin {
    Builtin { allowed: Where::Running, ..builtin }
}

use Check::{Action, Aggregation, Function};
use Where::{Anywhere, Calls, Returns, Running};

/// Any number of arguments.
const MANY: usize = usize::MAX;

/// All of them: variables, functions, actions, aggregations.
pub static BUILTINS: &[Builtin] = &[
    callable(
        variable(
            |c, f| c.value_or_mode(f, hir::Builtin::Pid, Type::U32),
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
            |c, f| c.value_or_mode(f, hir::Builtin::Tid, Type::U32),
            "tid",
            "thread id, uint32, in the tracer's pid namespace or the initial one",
            Anywhere,
            "uprobe:libcuda:cuInit { @[tid] = count() }",
        ),
        1,
        "tid[(curr_ns|init)]",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Uid, Type::U32),
        "uid",
        "user id, uint32",
        Anywhere,
        "uprobe:libcuda:cuInit { @[uid] = count() }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Gid, Type::U32),
        "gid",
        "group id, uint32",
        Anywhere,
        "uprobe:libcuda:cuInit { @[gid] = count() }",
    ),
    callable(
        variable(
            |c, f| c.comm(f),
            "comm",
            "name of the thread, string; `comm(process)`: of the process, its main thread's (without BTF the thread's); `comm(program)`: the file name of the process's program, which is not cut at 15 bytes (without BTF `comm(process)`); `comm(pid)`: of another process, when it is printed",
            Anywhere,
            "uprobe:libcuda:cuInit { @[comm] = count() }",
        ),
        1,
        "comm[(thread|process|program|pid)]",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Cpu, Type::U32),
        "cpu",
        "number of the CPU, uint32",
        Anywhere,
        "profile:hz:99 { @[cpu] = count() }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Cpus, Type::U64),
        "ncpus",
        "number of CPUs, uint64",
        Anywhere,
        "BEGIN { printf(\"%d CPUs\\n\", ncpus) }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::NumaNode, Type::U32),
        "numaid",
        "number of the NUMA node, uint32",
        Anywhere,
        "profile:hz:99 { @[numaid] = count() }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Jiffies, Type::U64),
        "jiffies",
        "the kernel's ticks, uint64",
        Anywhere,
        "interval:s:1 { print(jiffies) }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::UserMode, U8),
        "usermode",
        "1 if the probe interrupted user space, else 0, uint8",
        Running,
        "profile:hz:99 { @[usermode] = count() }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::ChildPid, Type::U32),
        "cpid",
        "process that was started by `--` or `-c`, uint32; 0 if there is none",
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
            |c, f| c.value_or_mode(f, hir::Builtin::Nsecs, Type::U64),
            "nsecs",
            "time, ns, uint64: since boot, without the time spent suspended (monotonic), or as TAI",
            Anywhere,
            "uprobe:libcuda:cuInit { @start[tid] = nsecs }",
        ),
        1,
        "nsecs[(boot|monotonic|tai|sw_tai)]",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Elapsed, Type::U64),
        "elapsed",
        "time since the command was started or the probes were attached, until its end, without the times for which the command was held (at new libraries, while unwind tables are read), ns, uint64",
        Anywhere,
        "interval:s:1 { print(elapsed) }",
    ),
    variable(
        |_, f| f.value(ExprKind::Name(NameKind::Func), Type::Name(NameKind::Func)),
        "func",
        "symbol that was called",
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
        "N-th integer argument from 0, as int64 whatever its type",
        Calls,
        "uprobe:libcuda:cuMemAlloc { @ = sum(arg1) }",
    ),
    variable(
        |c, f| c.core(Core::Args, f),
        "args",
        "arguments by name and type, as they were at entry; `args` alone is all of them",
        Calls,
        "uprobe:libcuda:cuMemAlloc { @ = sum(args.bytesize) }",
    ),
    variable(
        |c, f| c.retval(f.span),
        "retval",
        "result, of the function's type; uint64 where that is not known",
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
        |_, f| f.value(ExprKind::Around(Around::Depth), Type::U64),
        "call_depth",
        "how many traced calls of this thread this one lies in, uint64; 0: in none",
        Calls,
        "uretprobe:libcudart:*, uretprobe:libcuda:* { @[func, call_depth] = count() }",
    ),
    variable(
        |c, f| c.outermost(f),
        "outermost",
        "no traced call of this thread lies around this one, bool",
        Calls,
        "uretprobe:libcudart:*, uretprobe:libcuda:* / outermost / { @ns[func] = sum(duration) }",
    ),
    variable(
        |c, f| c.parent_func(f.span),
        "parent_func",
        "symbol of the traced call that this one lies in; empty if there is none",
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
        "device of the thread's current context, as CUDA numbers it in this process, int64; -1 if unknown",
        Calls,
        "cuda:launch { @launches[device] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "chosen_device",
        "the same, from the calls alone that choose a device: of a process that was running before it is unknown until it chooses",
        Calls,
        "cuda:launch { @launches[chosen_device] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device_name",
        "what that device calls itself, string; `?` if the program never asked",
        Calls,
        "cuda:alloc { @bytes[device, device_name] = sum(args.bytes) }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device_uuid",
        "its UUID, printed as `GPU-...`; `?` if the program never asked",
        Calls,
        "cuda:launch { @launches[device_uuid] = count() }",
    ),
    variable(
        |c, f| c.unknown_device(f.name, f.span),
        "device_pci",
        "its address on the PCI bus, printed as `0000:1b:00.0`; `?` if the program never asked",
        Calls,
        "cuda:launch { @launches[device_pci] = count() }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Rand, Type::U32),
        "rand",
        "random number, uint32",
        Anywhere,
        "uprobe:libcuda:cu* / rand % 100 == 0 / { @ = count() }",
    ),
    variable(
        |_, f| f.variable(hir::Builtin::Cgroup, Type::U64),
        "cgroup",
        "id of the cgroup (version 2), uint64",
        Anywhere,
        "uprobe:libcuda:cuInit { @[cgroup] = count() }",
    ),
    callable(
        variable(
            |c, f| c.parent_or_of(f),
            "ppid",
            "id of the process that started this one, or the one of a task, uint32, in the initial pid namespace",
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
            "name of the process that started this one, or the one of a task, string",
            Anywhere,
            "uprobe:libcuda:cuInit { @[pcomm, comm] = count() }",
        ),
        1,
        "pcomm[(task)]",
    ),
    variable(
        |c, f| c.ident("pid", f.span),
        "leader_tid",
        "id of the process's main thread, which is that of the process, uint32",
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
        "the kernel's `task_struct` of this thread, whose members BTF tells; without BTF its address, uint64",
        Anywhere,
        "profile:hz:99 { @[curtask] = count() }",
    ),
    variable(
        |c, f| c.context_address(f),
        "ctx",
        "address of what the kernel hands to the program that runs the body: the registers in a `uprobe`",
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
            "stack in user space; modes bpftrace, perf, raw, folded, build_id",
            Anywhere,
            "uprobe:libcuda:cuMemAlloc { @[ustack(perf, 5)] = count() }",
        ),
        2,
        "ustack[([mode, ][frames])]",
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
    call(
        Function(|c, f| c.core(Core::Str, f)),
        "str",
        (1, 2),
        "str(pointer[, size])",
        "string at an address of the process, up to its NUL; `size` counts the NUL",
        "uretprobe:libcuda:cuModuleGetFunction { printf(\"%s\\n\", str(args.name)) }",
    ),
    calls(call(
        Function(expanded),
        "alloc_base",
        (1, 1),
        "alloc_base(address)",
        "where the allocation begins that an address lies in, uint64; 0 if none is known",
        "cuda:memcpy { @[alloc_base(args.dst)] = count() }",
    )),
    calls(call(
        Function(expanded),
        "alloc_size",
        (1, 1),
        "alloc_size(address)",
        "bytes of the allocation that an address lies in, uint64; 0 if none is known",
        "cuda:memcpy { @[alloc_size(args.dst)] = sum(args.bytes) }",
    )),
    calls(call(
        Function(expanded),
        "alloc_site",
        (1, 1),
        "alloc_site(address)",
        "stack of the call that allocated what an address lies in, 16 frames",
        "cuda:memcpy { @[alloc_site(args.src)] = sum(args.bytes) }",
    )),
    calls(call(
        Function(|c, f| c.kernel_form(&f.args[1..], f.span)),
        "kernel_name",
        (1, 2),
        "kernel_name(handle[, short|full|mangled])",
        "name of a kernel, demangled as printed; conditions look at the mangled text; also of processes that were running before",
        "cuda:launch { @[kernel_name(args.kernel)] = count() }",
    )),
    call(
        Function(|c, f| c.strncmp(f.args, f.span)),
        "strncmp",
        (3, 3),
        "strncmp(a, b, n)",
        "0 if the first n bytes are equal, else 1",
        "uprobe:libcuda:cuInit / strncmp(comm, \"python\", 6) == 0 / { @ = count() }",
    ),
    call(
        Function(|c, f| c.strcontains(f.args, f.span)),
        "strcontains",
        (2, 2),
        "strcontains(text, part)",
        "whether a string contains another",
        "uprobe:libcuda:cu* / strcontains(func, \"Async\") / { @[func] = count() }",
    ),
    call(
        Function(|c, f| c.strlen(&f.args[0], f.span)),
        "strlen",
        (1, 1),
        "strlen(text)",
        "bytes before the NUL, uint64",
        "uprobe:libcuda:cuInit / strlen(comm) > 8 / { @[comm] = count() }",
    ),
    call(
        Function(|c, f| c.strstr(f.args, f.span)),
        "strstr",
        (2, 2),
        "strstr(text, part)",
        "where the part begins, int64; -1 if it is not there",
        "uprobe:libcuda:cuInit { @[strstr(comm, \"py\")] = count() }",
    ),
    call(
        Function(|c, f| c.strcap(&f.args[0], f.span)),
        "strcap",
        (1, 1),
        "strcap(text)",
        "bytes that a string has room for, its NUL included, int64",
        "BEGIN { print(strcap(comm)) }",
    ),
    call(
        Function(|c, f| c.concat(f.args, f.span)),
        "str_concat",
        (2, 2),
        "str_concat(a, b)",
        "the second string behind the first",
        "uprobe:libcuda:cuInit { @[str_concat(comm, \"/init\")] = count() }",
    ),
    call(
        Function(|c, f| c.letters(f, hir::Builtin::ToLower)),
        "tolower",
        (1, 1),
        "tolower(text)",
        "the text with its ASCII letters in lower case",
        "uprobe:libcuda:cuInit / tolower(comm) == \"python\" / { @ = count() }",
    ),
    call(
        Function(|c, f| c.letters(f, hir::Builtin::ToUpper)),
        "toupper",
        (1, 1),
        "toupper(text)",
        "the text with its ASCII letters in upper case",
        "uprobe:libcuda:cuInit { print(toupper(comm)) }",
    ),
    call(
        Function(|c, f| c.byte_swap(&f.args[0], f.span)),
        "bswap",
        (1, 1),
        "bswap(n)",
        "the bytes of an integer in the other order, unsigned",
        "BEGIN { printf(\"%x\\n\", bswap((uint32)0x12345678)) }",
    ),
    call(
        Function(|c, f| c.memcmp(f.args, f.span)),
        "memcmp",
        (3, 3),
        "memcmp(a, b, n)",
        "0 if the first n bytes at two addresses, or of two strings, are equal, else 1; n is 128 at most",
        "uprobe:libcudart:cudaLaunchKernel / memcmp(args.args, args.func, 16) == 0 / { @ = count() }",
    ),
    call(
        Function(|c, f| c.buf(f.args, f.span)),
        "buf",
        (1, 2),
        "buf(pointer, length), buf(array)",
        "bytes at an address of the process; `%r` prints them as text and hex, `%rx` and `%rh` in hex",
        "uprobe:libcuda:cuModuleGetFunction { printf(\"%rh\\n\", buf(args.name, 16)) }",
    ),
    call(
        Function(|c, f| c.ntop(f.args, f.span)),
        "ntop",
        (1, 2),
        "ntop([family, ]address)",
        "address of IPv4 or IPv6, as printed: of a number or bytes in network order, or where a pointer and a family (2, 10) say",
        "BEGIN { print(ntop(0x0100007f)) }",
    ),
    call(
        Function(|c, f| c.pton(&f.args[0], f.span)),
        "pton",
        (1, 1),
        "pton(\"address\")",
        "the 4 or 16 bytes of an address of IPv4 or IPv6, in network order, to compare with",
        "tracepoint:tcp:tcp_retransmit_skb / args.daddr == pton(\"127.0.0.1\") / { @ = count() }",
    ),
    call(
        Function(|c, f| c.macaddr(&f.args[0], f.span)),
        "macaddr",
        (1, 1),
        "macaddr(bytes)",
        "address of a network card, as printed: `00:16:3e:4f:00:01`; of 6 bytes or where a pointer says",
        "uprobe:./app:main { print(macaddr((uint8 *)arg0)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Error, &f.args[0], f.span)),
        "strerror",
        (1, 1),
        "strerror(errno)",
        "words for an error number, as printed",
        "BEGIN { print(strerror(2)) }",
    ),
    call(
        Function(|c, f| c.is_error(&f.args[0], f.span)),
        "is_error",
        (1, 1),
        "is_error(result)",
        "whether the result of a call is an error; `CUDA_ERROR_NOT_READY` and `cudaErrorNotReady` mean \"not yet\" and are no errors",
        "uretprobe:libcuda:cu* / is_error(retval) / { @[func, retval] = count() }",
    ),
    call(
        Function(|c, f| c.error_text(&f.args[0], f.span)),
        "error_text",
        (1, 1),
        "error_text(result)",
        "what the result of a call of driver or runtime means, as printed",
        "uretprobe:libcuda:cu* / is_error(retval) / { printf(\"%s: %s: %s\\n\", func, retval, error_text(retval)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Signal, &f.args[0], f.span)),
        "signal_name",
        (1, 1),
        "signal_name(number)",
        "words for a signal, as printed: `Killed`",
        "BEGIN { print(signal_name(9)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Syscall, &f.args[0], f.span)),
        "syscall_name",
        (1, 1),
        "syscall_name(number)",
        "name of a system call of this architecture, as printed",
        "BEGIN { print(syscall_name(0)) }",
    ),
    call(
        Function(|c, f| c.user_name(f)),
        "username",
        (0, 1),
        "username[(uid)]",
        "login name of a user, as printed; without `uid` of whoever runs",
        "uprobe:libcuda:cuInit { @[username(uid)] = count() }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::CgroupPath, &f.args[0], f.span)),
        "cgroup_path",
        (1, 1),
        "cgroup_path(id)",
        "path of a cgroup, found when it is printed",
        "uprobe:libcuda:cuInit { @[cgroup_path(cgroup)] = count() }",
    ),
    call(
        Function(|c, f| c.cgroup_id(&f.args[0], f.span)),
        "cgroupid",
        (1, 1),
        "cgroupid(\"path\")",
        "id of the cgroup at a path, found when the script is compiled, uint64",
        "uprobe:libcuda:cuInit / cgroup == cgroupid(\"/sys/fs/cgroup\") / { @ = count() }",
    ),
    call(
        Function(|c, f| c.strftime(f.args, f.span)),
        "strftime",
        (2, 2),
        "strftime(\"format\", ns)",
        "wall-clock time of a `nsecs` value; `%f` is microseconds",
        "uprobe:libcuda:cuInit { printf(\"%s\\n\", strftime(\"%H:%M:%S.%f\", nsecs)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Size, &f.args[0], f.span)),
        "size_text",
        (1, 1),
        "size_text(bytes)",
        "bytes as people read them, as printed: `1.5 MiB`",
        "uprobe:libcuda:cuMemAlloc { printf(\"%s\\n\", size_text(args.bytesize)) }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Time, &f.args[0], f.span)),
        "time_text",
        (1, 1),
        "time_text(ns)",
        "a length of time as people read it, as printed: `12.3 us`",
        "uretprobe:libcuda:cuInit { printf(\"%s\\n\", time_text(duration)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Pointer(_)))),
        "is_ptr",
        (1, 1),
        "is_ptr(value)",
        "whether a value is a pointer, known when the script is compiled, bool",
        "BEGIN { print(is_ptr((char *)1)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Str(_)))),
        "is_str",
        (1, 1),
        "is_str(value)",
        "whether a value is text, bool",
        "BEGIN { print(is_str(comm)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Array(..)))),
        "is_array",
        (1, 1),
        "is_array(value)",
        "whether a value is an array, bool",
        "BEGIN { print(is_array((uint8[4])1)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Int { .. }))),
        "is_integer",
        (1, 1),
        "is_integer(value)",
        "whether a value is an integer, bool",
        "BEGIN { print(is_integer(pid)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.ty, Type::Int { signed: false, .. }))),
        "is_unsigned_integer",
        (1, 1),
        "is_unsigned_integer(value)",
        "whether a value is an integer without sign, bool",
        "BEGIN { print(is_unsigned_integer(pid)) }",
    ),
    call(
        Function(|c, f| c.is_kind(f, |value| matches!(value.kind, ExprKind::Int(_) | ExprKind::Str(_)))),
        "is_literal",
        (1, 1),
        "is_literal(value)",
        "whether a value is written out, a number or text, bool",
        "BEGIN { print(is_literal(\"text\")) }",
    ),
    call(
        Function(|c, f| c.is_kernel_error(&f.args[0], f.span)),
        "is_err",
        (1, 1),
        "is_err(pointer)",
        "whether a pointer of the kernel is an error number in disguise, bool",
        "rawtracepoint:sched_switch / !is_err(args.prev) / { @ = count() }",
    ),
    call(
        Function(|c, f| int(i64::from(c.scene().config.max_strlen), Type::U64, f.span)),
        "default_str_length",
        (0, 0),
        "default_str_length()",
        "the setting `max_strlen`, uint64",
        "BEGIN { print(default_str_length()) }",
    ),
    call(
        Function(|c, f| c.folded(&f.args[0], f.span)),
        "folded",
        (1, 1),
        "folded(stack)",
        "the stack on one line, outermost first, for flame graphs: `main;work;cuInit`",
        "uprobe:libcuda:cuMemAlloc { @[ustack] = sum(args.bytesize) } END { for ($s : @) { printf(\"%s %d\\n\", folded($s.0), $s.1) } clear(@) }",
    ),
    call(
        Function(|c, f| c.usym(&f.args[0], f.span)),
        "usym",
        (1, 1),
        "usym(address)",
        "code address that prints as its symbol",
        "uprobe:libcudart:cudaLaunchKernel { @[usym(args.func)] = count() }",
    ),
    call(
        Function(|c, f| c.lookup(Lookup::Ksym, &f.args[0], f.span)),
        "ksym",
        (1, 1),
        "ksym(address)",
        "address in the kernel that prints as its symbol",
        "tracepoint:timer:timer_expire_entry { @[ksym(args.function)] = count() }",
    ),
    calls(call(
        Function(|c, f| c.uaddr(&f.args[0], f.span)),
        "uaddr",
        (1, 1),
        "uaddr(\"symbol\")",
        "address of a variable or function of the probed file, a pointer to an integer of the symbol's size; in a `uprobe`",
        "uprobe:./app:main { print(*uaddr(\"counter\")) }",
    )),
    call(
        Function(|c, f| c.expr(&f.args[0])),
        "uptr",
        (1, 1),
        "uptr(address)",
        "an address of the process, as addresses are anyway",
        "uprobe:libcuda:cuModuleGetFunction { print(str(uptr(arg2))) }",
    ),
    call(
        Function(|c, f| c.kptr(&f.args[0], f.span)),
        "kptr",
        (1, 1),
        "kptr(address)",
        "an address of the kernel: `str`, `buf`, `*` and `->` read there",
        "tracepoint:sched:sched_switch { print(str(kptr(args.path))) }",
    ),
    calls(call(
        Function(|c, f| c.register(&f.args[0], f.span)),
        "reg",
        (1, 1),
        "reg(\"name\")",
        "register of the probed thread, uint64",
        "uprobe:libcuda:cuInit { printf(\"%x\\n\", reg(\"sp\")) }",
    )),
    call(
        Function(|c, f| c.core(Core::Len, f)),
        "len",
        (1, 1),
        "len(@map), len(ustack), len(kstack)",
        "number of keys, or of frames, uint64",
        "interval:s:1 { print(len(@start)) } uprobe:libcuda:cuInit { @start[tid] = nsecs }",
    ),
    call(
        Function(|c, f| c.core(Core::HasKey, f)),
        "has_key",
        (2, 2),
        "has_key(@map, key)",
        "whether the map has the key",
        "uretprobe:libcuda:cuInit / has_key(@start, tid) / { @ = count() } uprobe:libcuda:cuInit { @start[tid] = 1 }",
    ),
    call(
        Function(|c, f| c.core(Core::Find, f)),
        "find",
        (3, 3),
        "find(@map, key, $value)",
        "whether the map has the key; if so its value is in the variable",
        "uprobe:libcuda:cuInit { @start[tid] = nsecs; if (find(@start, tid, $then)) { print($then) } }",
    ),
    call(
        Function(|c, f| c.core(Core::Delete, f)),
        "delete",
        (1, MANY),
        "delete(@map, key)",
        "removes a key; whether it was there",
        "uprobe:libcuda:cuInit { @start[tid] = nsecs; delete(@start, tid) }",
    ),
    call(
        Action(|c, f, _| c.printf(f.args, f.span)),
        "printf",
        (1, MANY),
        "printf(\"format\", values...)",
        "prints as in C, but cuts no number unless a length tells to; `%s` takes anything",
        "uprobe:libcuda:cuMemAlloc { printf(\"%d %s %d\\n\", pid, comm, args.bytesize) }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Heading, f.args, f.span)),
        "heading",
        (1, MANY),
        "heading(\"format\", values...)",
        "prints a text for people, as `printf` does; `-f json` leaves it out",
        "BEGIN { heading(\"%-8s %s\\n\", \"PID\", \"CALL\") } uprobe:libcuda:cuMem* { printf(\"%-8d %s\\n\", (pid = pid, call = func)) }",
    ),
    call(
        Action(|c, f, _| c.row(f.args, f.span)),
        "row",
        (2, MANY),
        "row(weight, \"format\", values...)",
        "a line made as by `printf`, or by `row(weight, (name = value, ...))` a row of a table, which `rows` prints in the order of the weights",
        "END { for ($kv : @) { row($kv.1, \"%-30s %d\\n\", $kv.0, $kv.1) } rows(10); clear(@) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.rows(f.args)),
        "rows",
        (0, 2),
        "rows([top[, \"none\"]])",
        "prints the lines of `row` since, the largest weight first, and how many more there are; if there are none, a line that says so",
        "END { for ($kv : @) { row($kv.1, \"%s\\n\", $kv.0) } rows(10, \"no call\") } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Error, f.args, f.span)),
        "errorf",
        (1, MANY),
        "errorf(\"format\", values...)",
        "says an error of the script's own, with its place, on standard error",
        "uretprobe:libcuda:cuInit { if (retval) { errorf(\"no CUDA: %s\", retval) } }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Warning, f.args, f.span)),
        "warnf",
        (1, MANY),
        "warnf(\"format\", values...)",
        "says a warning of the script's own, with its place, on standard error",
        "uprobe:libcuda:cuMemAlloc { if (args.bytesize == 0) { warnf(\"an empty allocation by %d\", pid) } }",
    ),
    call(
        Action(|c, f, out| {
            c.join(f.args, f.span, out);
            None
        }),
        "join",
        (1, 2),
        "join(words[, \"separator\"])",
        "prints a `char *[]` that ends in 0 as a line, 16 words of 256 bytes at most",
        "uprobe:libc:execvp { join(arg1) }",
    ),
    call(
        Action(|c, f, _| c.message(Message::Cat, f.args, f.span)),
        "cat",
        (1, MANY),
        "cat(\"path\", values...)",
        "prints a file as it is when the line is printed, 10 KiB at most; the path is made as by `printf`",
        "uprobe:libcuda:cuInit { cat(\"/proc/%d/cmdline\", pid) }",
    ),
    call(
        Action(|c, f, _| c.message(Message::System, f.args, f.span)),
        "system",
        (1, MANY),
        "system(\"command\", values...)",
        "runs a shell command and prints its output; made as by `printf`; needs `--unsafe`",
        "uretprobe:libcuda:cuInit { if (retval) { system(\"ls -l /proc/%d/fd\", pid) } }",
    ),
    running(call(
        Action(|c, f, _| c.signal(&f.args[0], false, f.span)),
        "signal",
        (1, 1),
        "signal(\"SIGSTOP\"), signal(number)",
        "sends a signal to the process that the probe interrupted; needs `--unsafe`",
        "uretprobe:libcuda:cuMemAlloc { if (retval) { signal(\"SIGSTOP\") } }",
    )),
    running(call(
        Action(|c, f, _| c.signal(&f.args[0], true, f.span)),
        "signal_thread",
        (1, 1),
        "signal_thread(\"SIGUSR1\"), signal_thread(number)",
        "likewise, to the thread",
        "uprobe:libcuda:cuInit { signal_thread(\"SIGUSR1\") }",
    )),
    call(
        Action(|c, f, _| c.assert(f.args, f.span)),
        "assert",
        (2, 2),
        "assert(condition, \"text\")",
        "unless the condition holds, says the text as an error and ends the run with status 1",
        "uprobe:libcuda:cuMemAlloc { assert(args.bytesize < 1 << 40, \"a sane size\") }",
    ),
    call(
        Action(|c, f, _| c.static_assert(f.args)),
        "static_assert",
        (2, 2),
        "static_assert(condition, \"text\")",
        "the same of a condition that is known when the script is compiled",
        "BEGIN { static_assert(sizeof(uint64) == 8, \"eight bytes\") }",
    ),
    call(
        Action(|c, f, _| c.fail(&f.args[0], f.span)),
        "fail",
        (1, 1),
        "fail(\"text\")",
        "refuses the script when it is compiled, unless an `if` whose condition is known then leaves it out",
        "BEGIN { if (sizeof(uint64) != 8) { fail(\"eight bytes are wanted\") } }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Print, f)),
        "print",
        (1, 3),
        "print(value), print(@map[, top[, divisor]])",
        "prints a value, or a map as it is when the line is printed",
        "interval:s:1 { print(@, 10) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    running(call(
        Action(|c, f, _| c.export(Export::Span, f.args, f.span)),
        "span",
        (0, 2),
        "span([\"name\"][, key = value, ...])",
        "the call as a span for `--export`: start, duration, thread, the traced call around it, status; named as the function unless told. \
         Elsewhere than in a return probe it goes from `start = `, a value of `nsecs`, to now",
        "uretprobe:libcuda:cuMemAlloc { span(bytes = args.bytesize) }",
    )),
    call(
        Action(|c, f, _| c.export(Export::Instant, f.args, f.span)),
        "event",
        (1, 2),
        "event(\"name\"[, key = value, ...])",
        "a moment for `--export`",
        "uprobe:libcuda:cuInit { event(\"CUDA begins\", flags = args.Flags) }",
    ),
    call(
        Action(|c, f, _| c.export(Export::Counter, f.args, f.span)),
        "counter",
        (2, 3),
        "counter(\"name\", number[, key = value, ...])",
        "a number that changes with time, for `--export`; keys tell several of one name apart",
        "uretprobe:libcuda:cuMemAlloc { @live += args.bytesize; counter(\"live bytes\", @live, pid = pid) }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Clear, f)),
        "clear",
        (1, 1),
        "clear(@map)",
        "removes all keys",
        "interval:s:1 { clear(@) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Zero, f)),
        "zero",
        (1, 1),
        "zero(@map)",
        "sets all values to 0",
        "interval:s:1 { zero(@) } uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Action(|c, f, _| c.core_action(CoreAction::Exit, f)),
        "exit",
        (0, 1),
        "exit([status])",
        "ends the run; maps are printed",
        "interval:s:10 { exit() }",
    ),
    call(
        Action(|c, f, _| c.time(f.args)),
        "time",
        (0, 1),
        "time([\"format\"])",
        "prints the wall-clock time, `%H:%M:%S` and a newline unless told",
        "interval:s:1 { time(\"%H:%M:%S \") }",
    ),
    call(
        Aggregation(|_, _, _| Agg::Count),
        "count",
        (0, 0),
        "@map = count()",
        "number of calls",
        "uprobe:libcuda:cu* { @[func] = count() }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Sum { signed }),
        "sum",
        (1, 1),
        "@map = sum(n)",
        "sum of the values",
        "uprobe:libcuda:cuMemAlloc { @[pid] = sum(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Avg { signed }),
        "avg",
        (1, 1),
        "@map = avg(n)",
        "average of the values",
        "uprobe:libcuda:cuMemAlloc { @[pid] = avg(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Min { signed }),
        "min",
        (1, 1),
        "@map = min(n)",
        "smallest value",
        "uprobe:libcuda:cuMemAlloc { @[pid] = min(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Max { signed }),
        "max",
        (1, 1),
        "@map = max(n)",
        "largest value",
        "uprobe:libcuda:cuMemAlloc { @[pid] = max(args.bytesize) }",
    ),
    call(
        Aggregation(|_, _, signed| Agg::Stats { signed }),
        "stats",
        (1, 1),
        "@map = stats(n)",
        "number, average and sum of the values",
        "uretprobe:libcuda:cu* { @[func] = stats(duration) }",
    ),
    call(
        Aggregation(|c, args, _| Agg::Hist { bits: c.hist_bits(args), summed: false }),
        "hist",
        (1, 2),
        "@map = hist(n[, bits])",
        "histogram by powers of two, each in 2^bits parts, bits 0 to 5",
        "uretprobe:libcuda:cu* { @[func] = hist(duration) }",
    ),
    call(
        Aggregation(|c, args, _| {
            c.linear(args).unwrap_or(Agg::LHist { min: 0, max: 1, step: 1, summed: false })
        }),
        "lhist",
        (4, 4),
        "@map = lhist(n, min, max, step)",
        "histogram with buckets of one width",
        "uretprobe:libcuda:cuMemAlloc { @us = lhist(duration / 1000, 0, 100, 10) }",
    ),
    call(
        Aggregation(|c, args, signed| c.series(args, signed)),
        "tseries",
        (3, 4),
        "@map = tseries(n, interval, intervals[, \"avg|max|min|sum\"])",
        "values over time: of each interval the last one, or what the last argument says",
        "uprobe:libcuda:cuMemAlloc { @ = tseries(args.bytesize, 100ms, 20, \"sum\") }",
    ),
];

/// Other names for the same.
static ALIASES: &[(&str, &str)] = &[("dw_ustack", "ustack")];

/// The row of a name; `arg3` finds `argN`.
pub fn find(name: &str) -> Option<&'static Builtin> {
    let numbered = usage::arg_number(name).or_else(|| usage::stack_arg_number(name)).is_some();
    let name = if numbered { "argN" } else { name };
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, known)| known);
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// The fewest and most arguments of a built-in.
pub fn arity(name: &str) -> Option<(usize, usize)> {
    find(name).map(|builtin| builtin.arity)
}

/// What others have and this language has not: name, and what to do.
pub static ABSENT: &[(&str, &str)] = &[
    ("assert_str", "use `static_assert(is_str(value), \"a string\")`"),
    ("debugf", "use `printf`"),
    ("kaddr", "use `kptr` on an address that a tracepoint passes on"),
    ("kfunc_allowed", "functions of the kernel are not called by scripts"),
    ("kfunc_exist", "functions of the kernel are not called by scripts"),
    ("path", "use `cat` or `system` on `/proc/PID/fd`"),
    ("percpu_kaddr", "use a tracepoint, whose `args` are typed"),
    ("skboutput", "packets are not written; trace the functions that send them"),
    ("socket_cookie", "use the address of the socket as a key"),
    ("typeinfo", "ask by `is_str`, `is_ptr`, `is_array`, `is_integer` or `sizeof`"),
    ("unwatch", "there are no watchpoints; probe the function that writes there"),
];

/// Names of other languages: what is written here.
pub static ELSEWHERE: &[(&str, &str)] = &[
    ("NULL", "write `0`"),
    ("None", "write `0`"),
    ("nullptr", "write `0`"),
    ("True", "write `true`"),
    ("False", "write `false`"),
    ("nil", "write `0`"),
    ("null", "write `0`"),
    ("backtrace", "use `ustack`"),
    ("concat", "use `str_concat`"),
    ("contains", "use `strcontains(text, \"part\")`"),
    ("echo", "use `printf` or `print`"),
    ("errno", "use what the call returns: `retval` in a `uretprobe`"),
    ("execname", "use `comm`"),
    ("format", "use `printf`; a value as text is printed by `%s`"),
    ("function", "`func` is the function's name"),
    ("getpid", "use `pid`"),
    ("gettid", "use `tid`"),
    ("histogram", "use `@ = hist(n)`"),
    ("length", "use `len(@map)`, or `strlen(text)`"),
    ("log", "use `printf` or `print`"),
    ("lquantize", "use `@ = lhist(n, min, max, step)`"),
    ("now", "use `nsecs`"),
    ("name", "`func` is the function's name, `comm` the process's"),
    ("printk", "use `printf` or `print`"),
    ("println", "use `printf` or `print`"),
    ("probefunc", "`func` is the function's name"),
    ("process", "`comm` is the process's name, `pid` its number"),
    ("puts", "use `printf` or `print`"),
    ("quantize", "use `@ = hist(n)`"),
    ("sleep", "a script does not wait; use `interval:s:1`"),
    ("sprintf", "use `printf`, or `str_concat` to join text"),
    ("strcat", "use `str_concat`"),
    ("strcmp", "compare by `==`"),
    ("thread", "`tid` is the thread's number, `comm` its name"),
    ("timestamp", "use `nsecs`"),
    ("walltimestamp", "use `strftime(\"%H:%M:%S\", nsecs)`"),
];

/// What is written here for a name of another language.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(foreign, _)| *foreign == name).map(|(_, here)| *here)
}

/// Functions that change the machine, and so ask for `--unsafe`.
pub static UNSAFE: &[&str] = &["system", "signal", "signal_thread", "override", "write_user"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (at, builtin) in BUILTINS.iter().enumerate() {
            assert!(BUILTINS[..at].iter().all(|other| other.name != builtin.name), "{}", builtin.name);
            let others = ABSENT.iter().chain(ELSEWHERE);
            assert!(others.into_iter().all(|(name, _)| *name != builtin.name), "{}", builtin.name);
        }
    }

    #[test]
    fn arguments_have_one_row() {
        assert_eq!(find("arg3").map(|b| b.name), Some("argN"));
        assert!(find("argx").is_none());
    }
}
